//! Creation of a group.

use super::Group;
use super::catalog::Catalog;
use super::open::Parts;
use crate::dead_blocks::PointEpochs;
use crate::disk::{Disks, PvIndex};
use crate::error::{Error, Result};
use crate::format::superblock::{self, DATA_OFFSET, EXTENT_BLOCKS, GroupRoot, MAX_PVS, PvEntry};
use crate::format::zones::ZoneTable;
use crate::journal::bad_runs::BadRuns;
use crate::legs::Legs;
use crate::members::Members;
use crate::model::{Config, GroupAttributes, NewGroup, NewPv, PvFlags, Tree};
use crate::placement::Placement;
use crate::runtime::Runtime;
use crate::space::Space;
use crate::space::metadata::{MIN_METADATA, MetaSpace};
use crate::space::pvs::Pvs;
use crate::units::{BLOCK_SIZE, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

impl Group {
    /// Writes a group's metadata to the given disks. They must carry no group (the caller checks labels).
    pub async fn create(disks: Arc<dyn Disks>, spec: NewGroup) -> Result<()> {
        if !spec.extent_blocks.is_power_of_two() || !EXTENT_BLOCKS.contains(&spec.extent_blocks) {
            return Err(Error::Invalid("an extent must be a power of two from 4 KiB to 1 TiB".into()));
        }
        if spec.pvs.is_empty() || spec.pvs.len() > MAX_PVS || spec.pvs.len() > disks.count() {
            return Err(Error::Invalid(format!("a volume group has 1 to {MAX_PVS} physical volumes")));
        }
        if spec.name.is_empty() || spec.name.len() > 127 {
            return Err(Error::Invalid("a volume group's name has 1 to 127 bytes".into()));
        }
        let mut pvs = Vec::new();
        extend_table(&*disks, &mut pvs, spec.extent_blocks, 0, &spec.pvs).await?;
        let placement = Arc::new(Placement::new(spec.extent_blocks, pvs.clone()));
        let journal_bytes = (placement.count() * BLOCK_SIZE / 64).clamp(JOURNAL_MIN, JOURNAL_MAX);
        let journal_blocks = (journal_bytes / BLOCK_SIZE).next_multiple_of(spec.extent_blocks);
        let pairs = (MIN_METADATA / spec.extent_blocks).max(1);
        let metadata = pairs * spec.extent_blocks;
        // Blocks in use at the beginning of each physical volume. The second copy goes to another physical volume, if
        // one has room.
        let mut taken = vec![0; pvs.len()];
        taken[0] = journal_blocks + metadata;
        let of_second = (1..pvs.len()).find(|pv| pvs[*pv].extents * spec.extent_blocks >= metadata).unwrap_or(0);
        let second = pvs[of_second].first_extent * spec.extent_blocks + taken[of_second];
        taken[of_second] += metadata;
        let has_room = |pv: &usize| {
            let extents = pvs[*pv].extents * spec.extent_blocks;
            let share = spec.second_journal.map_or(0, |share| extents / share.max(1));
            share >= journal_blocks && extents >= taken[*pv] + journal_blocks
        };
        let on = (1..pvs.len()).find(has_room);
        let second_journal = on.map(|pv| {
            taken[pv] += journal_blocks;
            pvs[pv].first_extent * spec.extent_blocks + taken[pv] - journal_blocks
        });
        if taken[0] > pvs[0].extents * spec.extent_blocks {
            return Err(Error::Invalid(format!(
                "the physical volumes are too small: the journal and the metadata need {} extents",
                journal_blocks / spec.extent_blocks + 2 * pairs
            )));
        }
        let root = GroupRoot {
            uuid: spec.uuid,
            name: spec.name,
            extent_blocks: spec.extent_blocks,
            pvs: pvs.clone(),
            journal_start: 0,
            journal_blocks,
            second_journal,
            stale_journals: 0,
            journal_id: 1,
            journal_position: 0,
            journal_seq: 1,
            capture_seq: 1,
            generation: 0,
            features: 0,
            read_only_compatible: 0,
            index: [0; 2],
            stream_len: 0,
            clean: true,
            bad: BadRuns::default(),
            lineage: 0,
            behind: 0,
            behind_longer: 0,
            left: BTreeMap::new(),
            zones: ZoneTable::default(),
        };
        let no_free = vec![0; pvs.len()];
        let starts = (0..metadata).step_by(spec.extent_blocks as usize);
        let places: Vec<[u64; 2]> = starts.map(|at| [journal_blocks + at, second + at]).collect();
        let parts = Parts {
            placement: placement.clone(),
            meta: MetaSpace::new(&places, &[], spec.extent_blocks),
            space: Space::new(Tree::default(), 0, Pvs::new(&placement, &no_free, 0)),
            next_seq: Seq(1),
            catalog: Catalog::new(1, 1, 1, GroupAttributes::default(), Arc::new(PointEpochs::new(true))),
            sequence: 1,
            stream_blocks: Vec::new(),
            zones_on: BTreeSet::new(),
        };
        let members = Arc::new(Members::new(
            Legs::new(disks.clone(), Arc::new(NoRuntime), root.tag()),
            PvFlags::default(),
            false,
        ));
        let group = Group::assemble(members, Arc::new(NoRuntime), Config::default(), root, parts);
        group.back_areas().await?;
        for (i, taken) in taken.into_iter().enumerate() {
            let pv = PvIndex(i as u16);
            for Range { start, end } in placement.ranges_of(pv) {
                group.add_free(start + taken, end).await?;
            }
            super::label::erase(&*disks, pv).await?;
        }
        group.checkpoint_turn(group.final_ticket(), true).await
    }

    pub(super) async fn add_free(&self, mut start: u64, end: u64) -> Result<()> {
        while start < end {
            let step = || {
                let _gate = self.core.gate.read();
                self.core.space.lock().add_free(self.core.alloc_context(), (start, end - start))
            };
            start += self.core.with_nodes_privileged(step).await?;
        }
        Ok(())
    }
}

/// Appends physical volumes to the table: `pvs[0]` is the disk behind the table's last one. `end`: the end of the
/// group's numbers, in extents.
pub(super) async fn extend_table(
    disks: &dyn Disks,
    table: &mut Vec<PvEntry>,
    extent_blocks: u64,
    mut end: u64,
    pvs: &[NewPv],
) -> Result<()> {
    let first = table.len();
    for (i, pv) in pvs.iter().enumerate() {
        let index = u16::try_from(first + i).expect("at most 64 physical volumes");
        let size = super::label::usable(disks, PvIndex(index)).await;
        let extents = size.saturating_sub(DATA_OFFSET) / (extent_blocks * BLOCK_SIZE);
        if extents == 0 {
            return Err(Error::Invalid(format!(
                "physical volume {index} of {size} bytes is too small for one extent of {} bytes",
                extent_blocks * BLOCK_SIZE
            )));
        }
        let first_extent = superblock::place_behind(end, extent_blocks, extents).ok_or_else(|| {
            Error::Invalid(format!("there are no numbers for the {extents} extents of physical volume {index}"))
        })?;
        table.push(PvEntry { uuid: pv.uuid, first_extent, extents, size });
        end = first_extent + extents;
    }
    Ok(())
}

/// Journal size: a 64th of the group, within these bounds.
const JOURNAL_MIN: u64 = 1 << 20;

const JOURNAL_MAX: u64 = 64 << 20;

/// Runs no background work, for creation and for read-only checks.
struct NoRuntime;

impl Runtime for NoRuntime {
    fn spawn(&self, _name: &'static str, task: crate::runtime::Task) {
        drop(task);
    }
    fn sleep(&self, _pause: std::time::Duration) -> crate::runtime::Task {
        Box::pin(async {})
    }
}
