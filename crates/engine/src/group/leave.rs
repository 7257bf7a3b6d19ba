//! Removal of a physical volume, whichever it is. Its part of the address space goes with it.
//!
//! The group closes for this. The final checkpoint has the new table, and the journal's new place if it has to move.
//! Nothing is in flight then. Only the next opening sees the new table. So no block ever has two places, and a physical
//! volume's number changes only where an opening assigns numbers. Until that checkpoint is durable, the group is as it
//! was.

use super::Group;
use super::journal_layout::{LARGEST_SHARE, is_copy_on, journal_on, outside_journal};
use crate::disk::PvIndex;
use crate::error::{Error, Result};
use crate::map::MapError;
use crate::planted;
use crate::space::{AllocError, OpenArenas, Run};
use crate::units::VgBlock;
use std::ops::Range;
use std::sync::Arc;

/// Copies of runs of metadata that move between two checkpoints.
const MOVED_TOGETHER: usize = 64;

/// LVM's message for a physical volume that cannot leave.
pub(super) fn in_use() -> Error {
    Error::Busy("the physical volume is in use".into())
}

fn blocks_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

impl Group {
    /// Empties the physical volume, except for the journal: moves metadata away, and waits for blocks that are being
    /// freed. [`Error::Busy`]: it has data, or the rest of the group has no room for reserved blocks.
    pub async fn vacate_pv(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        self.may_change()?;
        let _claim = self.claim_table().await?;
        if !self.out().has(usize::from(pv.0)) {
            self.core.require_all_pvs()?;
            self.check_no_legs(pv).await?;
        }
        self.empty_columns(pv).await?;
        let root = self.root.lock().group.clone();
        let ranges = self.ranges_of(pv)?;
        let journal = journal_on(&root, &self.core.placement(), pv);
        let wanted = blocks_of(&ranges) - blocks_of(&journal);
        self.empty(&ranges, || {
            let _gate = self.core.gate.read();
            self.core.space.lock().is_pv_free(self.core.alloc_context(), usize::from(pv.0), wanted)
        })
        .await
    }

    /// The blocks of a physical volume that is not the only one.
    fn ranges_of(&self, pv: PvIndex) -> Result<Vec<Range<u64>>> {
        let pvs = self.root.lock().group.pvs.len();
        if pvs < 2 || usize::from(pv.0) >= pvs {
            return Err(Error::Invalid("a volume group needs a physical volume".into()));
        }
        Ok(self.core.placement().ranges_of(pv))
    }

    /// Moves metadata out of the ranges, and waits for blocks there that are being freed. Ends when `is_left` says that
    /// the ranges are no longer needed. No checkpoint runs while `is_left` is called.
    pub(super) async fn empty(
        self: &Arc<Self>,
        ranges: &[Range<u64>],
        mut is_left: impl FnMut() -> std::result::Result<bool, MapError>,
    ) -> Result<()> {
        // Freed blocks are usable only after a checkpoint.
        self.checkpoint().await?;
        loop {
            if self.move_metadata(ranges).await? {
                let _hold = self.hold_checkpoints().await;
                if self.core.with_nodes_privileged(&mut is_left).await? {
                    // All blocks there are free, and durably so.
                    ranges.iter().for_each(|range| self.core.members.unproven.forget_range(range));
                    return Ok(());
                }
            }
            if !self.more_space().await? {
                return Err(in_use());
            }
        }
    }

    /// Removes the last physical volume from the open group, and labels it as a member of no group. It may hold only
    /// metadata, which moves away. Afterwards the caller removes its disk from the set.
    pub async fn remove_last_pv(self: &Arc<Self>) -> Result<()> {
        self.may_change()?;
        let _claim = self.claim_table().await?;
        self.core.require_all_pvs()?;
        let root = self.root.lock().group.clone();
        let index = root.pvs.len() - 1;
        let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
        self.check_no_legs(pv).await?;
        self.empty_columns(pv).await?;
        let ranges = self.ranges_of(pv)?;
        if self.needs_closing(pv) {
            return Err(in_use());
        }
        // Its place may be metadata's or data's by then, until another disk has it.
        let had_second = self.has_journal(pv) && self.drop_second_journal().await?;
        match self.remove_last(pv, index, ranges).await {
            Ok(()) if !had_second => Ok(()),
            outcome => {
                let _ = self.add_second_journal(LARGEST_SHARE).await;
                outcome
            }
        }
    }

    /// Whether it can leave only while the group is closed: it is not the last one, or it has the only copy of the
    /// journal.
    pub fn needs_closing(&self, pv: PvIndex) -> bool {
        let root = self.root.lock().group.clone();
        let (is_last, placement) = (usize::from(pv.0) + 1 == root.pvs.len(), self.core.placement());
        !is_last || is_copy_on(&root, &placement, root.journal_start, pv)
    }

    /// The conditions of [`remove_last_pv`](Self::remove_last_pv), for one that has no journal.
    async fn remove_last(self: &Arc<Self>, pv: PvIndex, index: usize, ranges: Vec<Range<u64>>) -> Result<()> {
        let root = self.root.lock().group.clone();
        let uuid = root.pvs[index].uuid;
        let placement = Arc::new(self.core.placement().without(pv));
        let mut runs: Vec<Run> = ranges.iter().map(|range| (range.start, range.end - range.start)).collect();
        self.empty(&ranges, || {
            // One critical section, while checkpoints are held: no checkpoint sees half of the change.
            let _gate = self.core.gate.read();
            let mut catalog = self.catalog_mut();
            let (mut space, context) = (self.core.space.lock(), self.core.alloc_context());
            if !space.take_pv(context, index, &mut runs, &placement)? {
                return Ok(false);
            }
            drop(space);
            catalog.attributes.forget_pv(index);
            self.apply_placement(&catalog, &placement);
            Ok(true)
        })
        .await?;
        self.checkpoint().await?;
        Group::write_label(&*self.core.disks, pv, uuid).await
    }

    /// Moves copies of metadata out of these VG blocks. False: there is no room for them.
    pub(super) async fn move_metadata(self: &Arc<Self>, ranges: &[Range<u64>]) -> Result<bool> {
        let copies = self.core.meta.lock().copies_in(ranges);
        for together in copies.chunks(MOVED_TOGETHER) {
            // No checkpoint may write nodes while they are copied.
            let hold = self.hold_checkpoints().await;
            for (pair, copy, from) in together.iter().copied() {
                let moving = self.core.meta.lock().pairs()[pair];
                let other = moving.copies[1 - copy];
                let Some(run) = self.run_apart(moving.blocks, ranges, other).await? else { return Ok(false) };
                self.move_copy_to(run, (pair, copy), [from, other]).await?;
            }
            drop(hold);
            self.checkpoint().await?;
        }
        Ok(true)
    }

    /// Moves this copy of a pair to a run that nothing uses yet, from the first of two places. Checkpoints are held.
    pub(super) async fn move_copy_to(
        &self,
        run: Run,
        (pair, copy): (usize, usize),
        [from, other]: [u64; 2],
    ) -> Result<()> {
        let copied = self.copy_metadata([from, other], run).await;
        let _gate = self.core.gate.read();
        let mut space = self.core.space.lock();
        match copied {
            Ok(()) => {
                self.core.meta.lock().move_copy(pair, copy, run.0);
                space.free_later((from, run.1));
            }
            Err(_) => space.free_later(run),
        }
        copied
    }

    /// Copies metadata blocks from the first of two places. A block that cannot be read there is copied from the second
    /// place: a failing physical volume must be able to leave, too.
    async fn copy_metadata(&self, [from, other]: [u64; 2], (to, blocks): Run) -> Result<()> {
        for block in 0..blocks {
            let page = match self.core.read_block(VgBlock(from + block)).await {
                Err(_) => self.core.read_block(VgBlock(other + block)).await?,
                read => read?,
            };
            self.core.write_blocks(VgBlock(to + block), Arc::new(page)).await?;
        }
        self.core.journal.flush().await
    }

    /// Closes the group, as [`close`](Self::close) does, and leaves this physical volume out of it. The physical volume
    /// is labelled as a member of no group, and the next opening does without it. [`Error::Busy`]: it holds something.
    /// The group may be closed by then, and is unchanged.
    pub async fn close_without(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        self.vacate_pv(pv).await?;
        let uuid = self.root.lock().group.pvs[usize::from(pv.0)].uuid;
        self.quiesce().await;
        let outcome = self.checkpoint_without(pv).await;
        self.end_background();
        match &outcome {
            Ok(()) | Err(Error::Busy(_)) => self.settle_mirrors().await,
            Err(error) => self.core.journal.poison(&format!("a checkpoint failed: {error}")),
        }
        outcome?;
        match self.core.disks.is_missing(pv) {
            // Its label names the group until it is rewritten. The group no longer names it.
            true => Ok(()),
            false => Group::write_label(&*self.core.disks, pv, uuid).await,
        }
    }

    /// The final checkpoint, with a table and a journal that do without the physical volume.
    async fn checkpoint_without(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        let old = self.core.placement();
        let ranges = old.ranges_of(pv);
        let index = usize::from(pv.0);
        // No background checkpoint may see half of it.
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        let root = self.root.lock().group.clone();
        let journal = self.relocate(&root, pv).await?;
        let mut runs: Vec<Run> = ranges.iter().flat_map(|range| outside_journal(&root, range)).collect();
        let placement = old.without(pv);
        let take = || {
            let _gate = self.core.gate.read();
            let mut catalog = self.catalog_mut();
            let is_clear = self.core.meta.lock().copies_in(&ranges).is_empty();
            let (mut space, context) = (self.core.space.lock(), self.core.alloc_context());
            if !is_clear || !space.take_pv(context, index, &mut runs, &placement)? {
                return Ok(false);
            }
            journal.left.iter().for_each(|run| space.free_later(*run));
            drop(space);
            catalog.attributes.forget_pv(index);
            Ok(true)
        };
        if !self.core.with_nodes_privileged(take).await? {
            // Nothing has used the journal's new place.
            for (start, len) in journal.taken {
                self.add_free(start, start + len).await?;
            }
            drop(hold);
            self.checkpoint_turn(self.final_ticket(), true).await?;
            return Err(in_use());
        }
        for place in &journal.taken {
            self.zero(*place).await?;
        }
        self.place_journal(&root, &journal);
        {
            let mut root = self.root.lock();
            root.group.forget_pv(index);
            root.group.set_zones(placement.zones());
        }
        self.checkpoint_alone(true).await
    }

    /// A run of blocks outside of the ranges for a copy of metadata. It is on another physical volume than the other copy, where
    /// one has room (MS1).
    async fn run_apart(&self, blocks: u64, ranges: &[Range<u64>], other: u64) -> Result<Option<Run>> {
        let placement = self.core.placement();
        let beside = placement.ranges_of(placement.pv_of(VgBlock(other)).0);
        let mut all: Vec<Range<u64>> = ranges.iter().cloned().chain(beside).collect();
        all.sort_unstable_by_key(|range| range.start);
        let apart = match planted::is("copy_moved_beside") {
            true => None,
            false => self.run_outside(blocks, &all).await?,
        };
        match apart {
            Some(run) => Ok(Some(run)),
            None => self.run_outside(blocks, ranges).await,
        }
    }

    /// A run of blocks outside of the ranges, which are in order: before them, between two of them, or behind the last
    /// one.
    pub(super) async fn run_outside(&self, blocks: u64, ranges: &[Range<u64>]) -> Result<Option<Run>> {
        for from in std::iter::once(0).chain(ranges.iter().map(|range| range.end)) {
            let take = || {
                let _gate = self.core.gate.read();
                match self.core.space.lock().alloc_contiguous(
                    self.core.alloc_context(),
                    blocks,
                    from,
                    OpenArenas::Close,
                ) {
                    Ok(run) => Ok(run),
                    Err(AllocError::Map(error)) => Err(error),
                    Err(_) => Ok(None),
                }
            };
            let Some(run) = self.core.with_nodes_privileged(take).await? else { return Ok(None) };
            if ranges.iter().all(|range| run.0 + run.1 <= range.start || run.0 >= range.end) {
                return Ok(Some(run));
            }
            // Nothing has used the run, so it can be returned at once.
            self.add_free(run.0, run.0 + run.1).await?;
        }
        Ok(None)
    }
}
