//! Physical volumes join, grow and shrink while the group is in use; [`leave`](super::leave) is how they leave.
//!
//! No block changes its number: each physical volume has its range in the group's address space, with room behind it.
//! New blocks are freed by the checkpoint whose superblock names them. So nothing can be placed there that a crash
//! would leave outside the group. Removed blocks are free in memory and in the last checkpoint; one critical section
//! removes them. After a crash the group opens with the old table or with the new one, and both are right. The command
//! returns when the table is durable.
//!
//! The caller makes one such change at a time.

use super::Group;
use super::catalog::Catalog;
use super::create_group::extend_table;
use super::journal_layout::journal_in;
use super::leave::in_use;
use crate::disk::PvIndex;
use crate::error::{Error, Result};
use crate::format::superblock::{DATA_OFFSET, MAX_PVS, PvEntry, max_extents};
use crate::model::{NewPv, SegmentType};
use crate::placement::{PlacedPart, Placement};
use crate::planted;
use crate::space::{Cut, Run, Space};
use crate::units::BLOCK_SIZE;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

impl Group {
    /// Adds the disk at the end of the disk set, which the caller extended before.
    pub async fn add_pv(self: &Arc<Self>, pv: NewPv) -> Result<()> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        let _claim = self.claim_table().await?;
        let mut root = self.root.lock().group.clone();
        let index = root.pvs.len();
        if index >= MAX_PVS {
            return Err(Error::Invalid(format!("a volume group has at most {MAX_PVS} physical volumes")));
        }
        if self.core.disks.count() != index + 1 {
            return Err(Error::Invalid("the new physical volume's disk is not in the set".into()));
        }
        let uuid = pv.uuid;
        // No number is used twice: the numbers of a physical volume that left may still be in use.
        let numbers = self.core.placement().numbers_end();
        extend_table(&*self.core.disks, &mut root.pvs, root.extent_blocks, numbers, &[pv]).await?;
        let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
        super::backing::back_label(&*self.core.disks, pv).await?;
        // A label first: the other superblocks may be durable before this one's, and then name it.
        let size = root.pvs[index].size;
        match self.core.planted("label_written_once") {
            true => Group::write_label_of(&*self.core.disks, pv, uuid, size).await?,
            false => Group::write_label_twice(&*self.core.disks, pv, uuid, size).await?,
        }
        self.change_table(root.pvs, |space, placement| {
            space.add_pv(placement);
            placement.ranges_of(pv).into_iter().for_each(|Range { start, end }| space.free_later((start, end - start)));
        })
        .await
    }

    /// The most extents that a physical volume can have: up to the next physical volume, or to the highest number.
    pub fn max_extents(&self, pv: PvIndex) -> u64 {
        let placement = self.core.placement();
        let index = usize::from(pv.0);
        let Some(pv) = placement.pvs.get(index) else { return 0 };
        let most = match placement.pvs.get(index + 1) {
            Some(next) => next.first_extent - pv.first_extent,
            None => max_extents(pv.first_extent, placement.extent_blocks),
        };
        // Numbers behind its own that are in use, by extents of a physical volume that left, or of a part that was cut
        // off.
        let end = (pv.first_extent + pv.extents) * placement.extent_blocks;
        let used = placement.runs().iter().find(|run| run.end > end);
        used.map_or(most, |used| most.min(used.start.max(end) / placement.extent_blocks - pv.first_extent))
    }

    /// Sets the bytes of its disk that a physical volume uses. Metadata moves away from the part that is cut off.
    /// [`Error::Busy`]: that part has other blocks in use. [`Error::NoSpace`]: there would be too little room for the
    /// reservations. [`Error::Invalid`]: there are too few extent numbers ([`max_extents`](Self::max_extents)), the
    /// disk is smaller, or no extent would be left. After an error the table has not changed.
    pub async fn resize_pv(self: &Arc<Self>, pv: PvIndex, bytes: u64) -> Result<()> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        let _claim = self.claim_table().await?;
        let root = self.root.lock().group.clone();
        let (mut pvs, index) = (root.pvs.clone(), usize::from(pv.0));
        let Some(entry) = pvs.get_mut(index) else {
            return Err(Error::NotFound(format!("physical volume {index}")));
        };
        let disk = self.core.disks.geometry(pv).size;
        if bytes > disk {
            return Err(Error::Invalid(format!("a physical volume on a disk of {disk} bytes cannot have {bytes}")));
        }
        let extents = bytes.saturating_sub(DATA_OFFSET) / (root.extent_blocks * BLOCK_SIZE);
        if extents == 0 {
            return Err(Error::Invalid(format!("a physical volume of {bytes} bytes is too small for one extent")));
        }
        let most = self.max_extents(pv);
        if extents > most {
            return Err(Error::Invalid(format!("this physical volume can have {most} extents, not {extents}")));
        }
        let (home, old, is_same) = (entry.first_extent, entry.extents, bytes == entry.size);
        (entry.extents, entry.size) = (extents, bytes);
        match extents.cmp(&old) {
            Ordering::Equal if is_same => Ok(()),
            // The disk may be cut to that size, and must still be accepted then.
            Ordering::Equal => self.change_table(pvs, |_, _| {}).await,
            Ordering::Greater => {
                self.change_table(pvs, |space, placement| {
                    space.place(placement);
                    space.free_later(((home + old) * root.extent_blocks, (extents - old) * root.extent_blocks));
                })
                .await
            }
            Ordering::Less => self.cut_pv(pv, extents..old, pvs).await,
        }
    }

    /// Sets a table without these extents at the end of a physical volume.
    async fn cut_pv(self: &Arc<Self>, pv: PvIndex, extents: Range<u64>, pvs: Vec<PvEntry>) -> Result<()> {
        let root = self.root.lock().group.clone();
        let old = self.core.placement();
        let is_bound = |part: &PlacedPart| match planted::is("single_legs_cut") {
            true => part.leg.is_some(),
            false => part.segment != SegmentType::Linear,
        };
        if old.parts_at(pv, &extents).iter().any(is_bound) {
            return Err(in_use());
        }
        let ranges: Vec<Range<u64>> = old.runs_at(pv, &extents).into_iter().map(|run| run.start..run.end).collect();
        if ranges.iter().any(|range| !journal_in(&root, range).is_empty()) {
            return Err(in_use());
        }
        let placement = Arc::new(old.with_table(pvs));
        let mut runs: Vec<Run> = ranges.iter().map(|range| (range.start, range.end - range.start)).collect();
        let mut outcome = Cut::InUse;
        let emptied = self
            .empty(&ranges, || {
                let _gate = self.core.gate.read();
                let catalog = self.catalog_mut();
                let (mut space, context) = (self.core.space.lock(), self.core.alloc_context());
                outcome = space.cut_pv(context, usize::from(pv.0), &mut runs, &placement)?;
                drop(space);
                if outcome == Cut::Done {
                    self.apply_placement(&catalog, &placement);
                }
                Ok(outcome == Cut::Done)
            })
            .await;
        match (emptied, outcome) {
            (Err(Error::Busy(_)), Cut::Reserved { needed, free }) => Err(Error::NoSpace { needed, free }),
            (emptied, _) => {
                emptied?;
                self.checkpoint().await
            }
        }
    }

    /// Sets a table of physical volumes in which none is smaller. `account` updates free space.
    async fn change_table(
        self: &Arc<Self>,
        pvs: Vec<PvEntry>,
        account: impl FnOnce(&mut Space, &Placement),
    ) -> Result<()> {
        let placement = Arc::new(self.core.placement().with_table(pvs));
        let hold = self.hold_checkpoints().await;
        {
            let _gate = self.core.gate.read();
            let catalog = self.catalog.read();
            self.apply_placement(&catalog, &placement);
            account(&mut self.core.space.lock(), &placement);
        }
        drop(hold);
        self.checkpoint().await
    }

    /// From now on this table gives the places of blocks.
    pub(super) fn apply_placement(&self, catalog: &Catalog, placement: &Arc<Placement>) {
        *self.core.placement.write() = placement.clone();
        for volume in catalog.volumes.values() {
            volume.state.lock().placement = placement.clone();
        }
        let mut root = self.root.lock();
        root.group.pvs.clone_from(&placement.pvs);
        root.group.set_zones(placement.zones());
    }
}
