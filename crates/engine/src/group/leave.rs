//! A physical volume leaves, whichever it is, and takes its part of the address space with it.
//!
//! The group closes for that: its table, and the journal's place where that has to change, are those of the final checkpoint, in
//! which nothing is under way. Nobody but who opens the group next sees the new table, so no block ever has two places, and a
//! physical volume's number changes only where numbers are given. Until that checkpoint is durable the group is as it was.

use super::Group;
use super::ops::in_use;
use crate::disk::{PageBuf, PvIndex};
use crate::error::{Error, Result};
use crate::format::superblock::GroupRoot;
use crate::space::Run;
use crate::units::{BLOCK_SIZE, VgBlock};
use std::ops::Range;
use std::sync::Arc;

/// Blocks of the journal's new place that are zeroed at once.
const ZEROED_TOGETHER: u64 = 256;

/// What of the physical volume is the journal's, in VG blocks; empty if none is.
fn journal_on(root: &GroupRoot, range: &Range<u64>) -> Range<u64> {
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
    /// waited for. [`Error::Busy`]: data is there, or the rest of the group has no room for what is promised.
    pub async fn vacate_pv(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        self.check_writable()?;
        let root = self.root.lock().group.clone();
        let index = usize::from(pv.0);
        if root.pvs.len() < 2 || index >= root.pvs.len() {
            return Err(Error::Invalid("a volume group needs a physical volume".into()));
        }
        let range = self.core.placement().range_of(pv);
        let journal = journal_on(&root, &range);
        let wanted = range.end - range.start - (journal.end - journal.start);
        // What was freed is usable only after a checkpoint.
        self.checkpoint().await?;
        loop {
            let is_free = || {
                let _gate = self.core.gate.read();
                self.core.space.lock().is_pv_free(self.core.hands(), index, wanted)
            };
            if self.move_metadata(&range).await? && self.core.with_nodes_privileged(is_free).await? {
                return Ok(());
            }
            if !self.more_space().await? {
                return Err(in_use());
            }
        }
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
        Group::write_label(&*self.core.disks, pv, uuid).await
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
            if !is_clear || !self.core.space.lock().take_pv(self.core.hands(), index, &mut runs)? {
                return Ok(false);
            }
            if index < catalog.attributes.pv_tags.len() {
                catalog.attributes.pv_tags.remove(index);
            }
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
            root.group.pvs.remove(index);
            if let Some((start, _)) = new_journal {
                root.group.journal_start = start;
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
}
