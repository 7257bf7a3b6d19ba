//! An open group whose physical volumes are partly out (rules MB1 to MB6): which volumes have lost blocks, and how a
//! physical volume returns.

use super::Group;
use super::journal_scan::is_any_missing;
use super::label::{read_superblocks, write_superblock, write_superblock_in};
use super::newest_root::may_return;
use super::read::read_at;
use crate::core::Core;
use crate::disk::{DiskOp, Disks, PvIndex, Segments, start};
use crate::error::{Error, Result};
use crate::format::record::crc32c_append;
use crate::format::superblock::Superblock;
use crate::map;
use crate::model::PvFlags;
use crate::placement::Placement;
use crate::planted;
use crate::units::{BLOCK_SIZE, VgBlock, VolumeId};
use crate::unproven::UnprovenRun;
use std::sync::Arc;

/// Why a change is refused while a physical volume is out.
pub const WHILE_MISSING: &str = "it cannot be done while physical volumes are missing";

impl Core {
    /// Refuses new work while a physical volume is out (MB3).
    pub fn require_all_pvs(&self) -> Result<()> {
        match self.members.out().is_empty() {
            true => Ok(()),
            false => Err(Error::MissingPv(WHILE_MISSING.into())),
        }
    }
}

/// Blocks read at once to compare a run.
const COMPARED: u64 = 256;

/// The CRC-32C of the contents of a run.
async fn crc_of(disks: &dyn Disks, placement: &Placement, run: UnprovenRun) -> Result<u32> {
    let (mut crc, end) = (0, run.start + run.len);
    for at in (run.start..end).step_by(COMPARED as usize) {
        let blocks = COMPARED.min(end - at);
        let data = read_at(disks, placement, at, blocks).await?;
        crc = crc32c_append(crc, &data.as_slice()[..(blocks * BLOCK_SIZE) as usize]);
    }
    Ok(crc)
}

impl Group {
    /// The physical volumes that are out.
    pub fn out(&self) -> PvFlags {
        self.core.members.out()
    }

    /// Whether blocks of the volume lie on a physical volume that is out. The search of its tree ends at the first one.
    pub async fn is_partial(&self, id: VolumeId) -> Result<bool> {
        let core = &self.core;
        if core.members.out().is_empty() {
            return Ok(false);
        }
        let volume = self.catalog.read().volumes.get(&id).cloned();
        let volume = volume.ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let mut cursor = 0;
        loop {
            let step = core
                .with_nodes_privileged(|| {
                    map::walk_step(&core.cache, &volume.state.lock().head.tree, cursor, &|_, _, _| Ok(false))
                })
                .await?;
            let placement = core.placement();
            for extent in step.leaf.iter().flat_map(|leaf| leaf.extents()).filter(|extent| extent.end() > cursor) {
                if is_any_missing(&*core.disks, &placement, extent.value, u64::from(extent.len)) {
                    return Ok(true);
                }
                if placement.is_mirrored(extent.value) {
                    let mut segments = Segments::new();
                    placement.map_blocks(VgBlock(extent.value), u64::from(extent.len), 0, &mut segments);
                    if !core.members.legs().have_all(&segments) {
                        return Ok(true);
                    }
                }
            }
            match step.next {
                Some(next) => cursor = next,
                None => return Ok(false),
            }
        }
    }

    /// Puts a physical volume that was out, and whose disk is in the set again, back into use (MB5).
    /// [`Error::Invalid`]: it is not out, or is not in the state in which it left. Nothing was written then.
    pub async fn restore_missing(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        self.may_change()?;
        self.is_it(pv).await?;
        self.compare_unproven(pv).await?;
        // Before the superblock says that it is in use: from then on its regions that are open count as old.
        self.core.members.legs().prepare_return(pv).await?;
        let outcome = self.restore_prepared(pv).await;
        if self.out().has(usize::from(pv.0)) {
            self.core.members.legs().return_failed(pv);
        }
        outcome
    }

    /// The rest of [`restore_missing`](Self::restore_missing), after its blocks were compared.
    async fn restore_prepared(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        self.is_it(pv).await?;
        self.fill_metadata(pv).await?;
        let disks = self.core.members.all().clone();
        start(&*disks, DiskOp::Flush).await?;
        // It gets the newest superblock before a superblock says that it is in use (B2). One copy is written after the
        // other. If a power cut tears one of them, the other still has the proof.
        let own = self.newest_superblock(pv);
        for copy in 0..2 {
            write_superblock_in(&*disks, pv, &own, copy).await?;
            start(&*disks, DiskOp::Flush).await?;
        }
        self.repeat_superblocks_held(|root| root.restore_missing(pv.0)).await?;
        // It gets this superblock before there is a next one (B2), and before anything else is written there.
        let recorded = async {
            write_superblock(&*disks, pv, &self.newest_superblock(pv)).await?;
            start(&*disks, DiskOp::Flush).await?;
            Ok::<(), Error>(())
        };
        if let Err(error) = recorded.await {
            self.core.journal.poison(&format!("a superblock could not be written: {error}"));
            return Err(error);
        }
        self.core.members.restore_missing(pv);
        self.core.members.legs().returned(pv);
        drop(hold);
        self.restore_allocatable(pv).await?;
        self.join_stale_copies().await
    }

    /// The superblock of the group's other physical volumes, as the one at this place has it.
    fn newest_superblock(&self, pv: PvIndex) -> Superblock {
        let root = self.root.lock();
        let (entry, group) = (&root.written.pvs[usize::from(pv.0)], Some(root.written.clone()));
        Superblock { sequence: root.sequence, pv_uuid: entry.uuid, pv_index: pv.0, pv_size: entry.size, group }
    }

    /// Whether the disk at this place is the physical volume, in the state in which it left.
    async fn is_it(&self, pv: PvIndex) -> Result<()> {
        let root = self.root.lock().written.clone();
        let entry = root.pvs.get(usize::from(pv.0)).filter(|_| root.left.contains_key(&pv.0));
        let entry = entry.ok_or_else(|| Error::Invalid("the physical volume is not missing".into()))?;
        let refused = |why: String| Err(Error::Invalid(format!("physical volume {} {why}", entry.uuid)));
        let disks = self.core.members.all();
        if disks.is_missing(pv) {
            return refused("is still missing".into());
        }
        let size = disks.geometry(pv).size;
        if size < entry.size {
            return refused(format!("shrank: it has {size} bytes, the volume group uses {}", entry.size));
        }
        let superblocks = read_superblocks(&**disks, pv).await?;
        match superblocks.first() {
            Some(own) if own.pv_uuid != entry.uuid => refused(format!("is another one: this is {}", own.pv_uuid)),
            None => refused("has no label".into()),
            Some(_) if may_return(&root, pv, &superblocks) => Ok(()),
            Some(own) => refused(format!(
                "is not in the state in which it left the volume group: it has superblock {}, of an older copy of it or of one \
                 that went on elsewhere; it cannot be taken back (vgreduce --removemissing takes it out for good)",
                own.sequence
            )),
        }
    }

    /// How many blocks cannot be read because their contents are unknown (MB7).
    pub fn unproven_blocks(&self) -> u64 {
        self.core.members.unproven.blocks()
    }

    /// Compares the blocks that could not be compared while the disk was away (MB7). Correct blocks leave the list, and
    /// the shorter list is durable, before anything may be written there.
    async fn compare_unproven(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        let unproven = &self.core.members.unproven;
        let runs = unproven.to_compare(pv);
        if runs.is_empty() {
            return Ok(());
        }
        let placement = self.core.placement();
        let disks = self.core.members.all().clone();
        // Only bytes on the disk count. The disk may have brought a volatile cache with it.
        start(&*disks, DiskOp::Flush).await?;
        for run in runs {
            let is_right = match crc_of(&*disks, &placement, run).await {
                Ok(crc) => run.crc == Some(crc) || planted::is("unproven_accepted"),
                Err(Error::Disk(_)) => false,
                Err(error) => return Err(error),
            };
            unproven.compared(&placement, run, is_right);
        }
        self.checkpoint().await
    }

    /// Rewrites its copies of metadata from the other copies. Checkpoints are held: nothing else writes metadata (M8).
    async fn fill_metadata(&self, pv: PvIndex) -> Result<()> {
        let core = &self.core;
        let copies = core.meta.lock().copies_in(&core.placement().ranges_of(pv));
        for (pair, copy, place) in copies {
            let moving = core.meta.lock().pairs()[pair];
            for i in 0..moving.blocks {
                let is_used = {
                    let meta = core.meta.lock();
                    meta.block_at(VgBlock(moving.copies[0] + i)).is_some_and(|block| meta.is_used(block))
                };
                if !is_used {
                    continue;
                }
                let page = match core.read_block(VgBlock(moving.copies[1 - copy] + i)).await {
                    Ok(page) => Arc::new(page),
                    // A block that no checkpoint has written yet may be unreadable.
                    Err(Error::Disk(_)) => continue,
                    Err(error) => return Err(error),
                };
                let mut segments = Segments::new();
                core.placement().map_bytes((place + i) * BLOCK_SIZE, BLOCK_SIZE, 0, &mut segments);
                start(&**core.members.all(), DiskOp::Write { segments, buf: page }).await?;
            }
        }
        Ok(())
    }

    /// Space is allocated from it again, if it was allocatable before.
    async fn restore_allocatable(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        let index = usize::from(pv.0);
        let take = || {
            let _gate = self.core.gate.read();
            let is_unallocatable = self.catalog.read().attributes.unallocatable.has(index);
            self.core.space.lock().set_allocatable(self.core.alloc_context(), index, !is_unallocatable)
        };
        // Reserved blocks have more room then, never less.
        let _ = self.core.with_nodes_privileged(take).await?;
        self.checkpoint().await
    }
}
