//! A physical volume leaves, whichever it is, and takes its part of the address space with it.
//!
//! The group closes for that: its table, and the journal's place where that has to change, are those of the final checkpoint, in
//! which nothing is under way. Nobody but who opens the group next sees the new table, so no block ever has two places, and a
//! physical volume's number changes only where numbers are given. Until that checkpoint is durable the group is as it was.

use super::Group;
use crate::disk::{PageBuf, PvIndex};
use crate::error::{Error, Result};
use crate::format::superblock::GroupRoot;
use crate::journal::places::BadPlaces;
use crate::map::MapError;
use crate::placement::Placement;
use crate::space::{AllocError, OpenArenas, Run};
use crate::units::{BLOCK_SIZE, VgBlock};
use std::ops::Range;
use std::sync::Arc;

/// Blocks of the journal's new place that are zeroed at once.
const ZEROED_TOGETHER: u64 = 256;

/// Copies of runs of metadata that move between two checkpoints.
const MOVED_TOGETHER: usize = 64;

/// LVM's word for a physical volume that cannot leave.
pub(super) fn in_use() -> Error {
    Error::Busy("the physical volume is in use".into())
}

/// What of the physical volume is the journal's, in VG blocks; empty if none is.
pub(super) fn journal_on(root: &GroupRoot, range: &Range<u64>) -> Range<u64> {
    let (start, end) = (root.journal_start, root.journal_start + root.journal_blocks);
    let start = start.clamp(range.start, range.end);
    start..end.clamp(start, range.end)
}

impl Group {
    /// Whether the journal, or a part of it, is on the physical volume.
    pub fn has_journal(&self, pv: PvIndex) -> bool {
        !journal_on(&self.root.lock().group, &self.core.placement().range_of(pv)).is_empty()
    }

    /// Sees to it that nothing but the journal is on the physical volume: metadata moves away, and what is being freed is
    /// waited for. [`Error::Busy`]: data is there, or the rest of the group has no room for what is reserved.
    pub async fn vacate_pv(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        self.may_change()?;
        if !self.out().has(usize::from(pv.0)) {
            self.core.all_there()?;
        }
        let root = self.root.lock().group.clone();
        let range = self.range_of(pv)?;
        let journal = journal_on(&root, &range);
        let wanted = range.end - range.start - (journal.end - journal.start);
        self.empty(&range, || {
            let _gate = self.core.gate.read();
            self.core.space.lock().is_pv_free(self.core.alloc_context(), usize::from(pv.0), wanted)
        })
        .await
    }

    /// The blocks of a physical volume that is not the only one.
    fn range_of(&self, pv: PvIndex) -> Result<Range<u64>> {
        let pvs = self.root.lock().group.pvs.len();
        if pvs < 2 || usize::from(pv.0) >= pvs {
            return Err(Error::Invalid("a volume group needs a physical volume".into()));
        }
        Ok(self.core.placement().range_of(pv))
    }

    /// Moves metadata out of the range, and waits for what is being freed there, until `is_left` says that it can be done
    /// without. No checkpoint is under way when that is asked.
    pub(super) async fn empty(
        self: &Arc<Self>,
        range: &Range<u64>,
        mut is_left: impl FnMut() -> std::result::Result<bool, MapError>,
    ) -> Result<()> {
        // What was freed is usable only after a checkpoint.
        self.checkpoint().await?;
        loop {
            if self.move_metadata(range).await? {
                let _hold = self.hold_checkpoints().await;
                if self.core.with_nodes_privileged(&mut is_left).await? {
                    // Whatever was there is free, and durably so.
                    self.core.members.unproven.forget_range(range);
                    return Ok(());
                }
            }
            if !self.more_space().await? {
                return Err(in_use());
            }
        }
    }

    /// Takes the last physical volume out of the group and labels it as one of no group, while the group goes on. Nothing but
    /// metadata may be on it, which moves away. The caller takes its disk out of the set afterwards.
    pub async fn remove_last_pv(self: &Arc<Self>) -> Result<()> {
        self.may_change()?;
        self.core.all_there()?;
        let mut root = self.root.lock().group.clone();
        let index = root.pvs.len() - 1;
        let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
        let range = self.range_of(pv)?;
        if self.has_journal(pv) {
            return Err(in_use());
        }
        let uuid = root.pvs.remove(index).uuid;
        let placement = Arc::new(Placement::new(root.extent_blocks, root.pvs));
        let mut runs = vec![(range.start, range.end - range.start)];
        self.empty(&range, || {
            // One critical section, and no checkpoint beside it: none sees half of it.
            let _gate = self.core.gate.read();
            let mut catalog = self.catalog_mut();
            if !self.core.space.lock().take_pv(self.core.alloc_context(), index, &mut runs)? {
                return Ok(false);
            }
            catalog.attributes.forget_pv(index);
            self.place_anew(&catalog, &placement);
            Ok(true)
        })
        .await?;
        self.checkpoint().await?;
        Group::write_label(&*self.core.disks, pv, uuid).await
    }

    /// Moves the copies of metadata that lie within these VG blocks out of them. False: there is no room for them.
    async fn move_metadata(self: &Arc<Self>, range: &Range<u64>) -> Result<bool> {
        let copies = self.core.meta.lock().copies_in(range);
        for together in copies.chunks(MOVED_TOGETHER) {
            // No checkpoint may write nodes while they are copied.
            let hold = self.hold_checkpoints().await;
            for (pair, copy, from) in together.iter().copied() {
                let moving = self.core.meta.lock().pairs()[pair];
                let Some(run) = self.run_outside(moving.blocks, range).await? else { return Ok(false) };
                let copied = self.copy_metadata([from, moving.copies[1 - copy]], run).await;
                {
                    let _gate = self.core.gate.read();
                    let mut space = self.core.space.lock();
                    match copied {
                        Ok(()) => {
                            self.core.meta.lock().move_copy(pair, copy, run.0);
                            space.free_later((from, moving.blocks));
                        }
                        // Nothing uses it yet.
                        Err(_) => space.free_later(run),
                    }
                }
                copied?;
            }
            drop(hold);
            self.checkpoint().await?;
        }
        Ok(true)
    }

    /// Copies metadata blocks from the first of two places or, one that cannot be read there, from the second: a physical volume
    /// that is failing is to leave, too.
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

    /// Closes the group, as [`close`](Self::close) does, and leaves this physical volume out of it: it is labelled as one of no
    /// group, and the next to open the group does so without it. [`Error::Busy`]: something is on it; the group may be closed
    /// by then, and is as it was.
    pub async fn close_without(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        self.vacate_pv(pv).await?;
        let uuid = self.root.lock().group.pvs[usize::from(pv.0)].uuid;
        self.quiesce().await;
        let outcome = self.leave_out(pv).await;
        match &outcome {
            Ok(()) | Err(Error::Busy(_)) => {}
            Err(error) => self.core.journal.poison(&format!("a checkpoint failed: {error}")),
        }
        self.end_background();
        outcome?;
        match self.core.disks.is_missing(pv) {
            // It says that it is of the group until it is made anew; the group knows it no more.
            true => Ok(()),
            false => Group::write_label(&*self.core.disks, pv, uuid).await,
        }
    }

    /// The final checkpoint, with a table and a journal that do without the physical volume.
    async fn leave_out(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        let range = self.core.placement().range_of(pv);
        let index = usize::from(pv.0);
        // No checkpoint of the background's may see half of it.
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        let root = self.root.lock().group.clone();
        let journal = journal_on(&root, &range);
        let new_journal = match journal.is_empty() {
            true => None,
            false => Some(self.run_outside(root.journal_blocks, &range).await?.ok_or_else(in_use)?),
        };
        let mut runs: Vec<Run> =
            vec![(range.start, journal.start - range.start), (journal.end, range.end - journal.end)];
        if journal.is_empty() {
            runs = vec![(range.start, range.end - range.start)];
        }
        runs.retain(|(_, len)| *len > 0);
        let take = || {
            let _gate = self.core.gate.read();
            let mut catalog = self.catalog_mut();
            let is_clear = self.core.meta.lock().copies_in(&range).is_empty();
            if !is_clear || !self.core.space.lock().take_pv(self.core.alloc_context(), index, &mut runs)? {
                return Ok(false);
            }
            catalog.attributes.forget_pv(index);
            Ok(true)
        };
        if !self.core.with_nodes_privileged(take).await? {
            // Nobody saw the journal's new place.
            if let Some((start, len)) = new_journal {
                self.add_free(start, start + len).await?;
            }
            drop(hold);
            self.checkpoint_turn(self.final_ticket(), true).await?;
            return Err(in_use());
        }
        if let Some(place) = new_journal {
            self.zero(place).await?;
        }
        {
            let mut root = self.root.lock();
            root.group.forget_pv(index);
            if let Some((start, _)) = new_journal {
                root.group.journal_start = start;
                root.group.bad = BadPlaces::default();
            }
        }
        self.checkpoint_alone(true).await
    }

    /// Nothing that a volume once wrote there can be taken for the journal's.
    async fn zero(&self, (start, len): Run) -> Result<()> {
        let zeros = Arc::new(PageBuf::zeroed((ZEROED_TOGETHER * BLOCK_SIZE) as usize));
        let mut at = start;
        while at < start + len {
            let blocks = (start + len - at).min(ZEROED_TOGETHER);
            let buf = match blocks {
                ZEROED_TOGETHER => zeros.clone(),
                few => Arc::new(PageBuf::zeroed((few * BLOCK_SIZE) as usize)),
            };
            self.core.write_blocks(VgBlock(at), buf).await?;
            at += blocks;
        }
        Ok(())
    }

    /// A run of blocks that lie outside of the range: before it, if there is room, or behind it.
    async fn run_outside(&self, blocks: u64, range: &Range<u64>) -> Result<Option<Run>> {
        for from in [0, range.end] {
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
            if run.0 + run.1 <= range.start || run.0 >= range.end {
                return Ok(Some(run));
            }
            // Nobody saw it: it goes straight back.
            self.add_free(run.0, run.0 + run.1).await?;
        }
        Ok(None)
    }
}
