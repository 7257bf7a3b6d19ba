//! The copies of the journal: one, or one on each of two physical volumes ([`copies`](crate::journal), JC1 to JC4).

use super::Group;
use super::journal_layout::{LARGEST_SHARE, Relocation, copy_elsewhere, is_copy_on, journal_on};
use super::leave::in_use;
use crate::disk::{PageBuf, PvIndex};
use crate::error::{Error, Result};
use crate::format::superblock::GroupRoot;
use crate::journal::bad_runs::BadRuns;
use crate::planted;
use crate::space::Run;
use crate::units::{BLOCK_SIZE, VgBlock};
use std::ops::Range;
use std::sync::Arc;

/// Blocks of a new place that are zeroed at once.
const ZEROED_TOGETHER: u64 = 256;

impl Group {
    /// Whether the journal, or a part of it, is on the physical volume.
    pub fn has_journal(&self, pv: PvIndex) -> bool {
        !journal_on(&self.root.lock().group, &self.core.placement(), pv).is_empty()
    }

    /// How many copies of the journal there are, and how many of them are written.
    pub fn journal_copies(&self) -> (u64, u64) {
        let starts: Vec<u64> = self.root.lock().group.journals().collect();
        let written = starts.iter().filter(|start| self.core.journal.has_copy(**start)).count();
        (starts.len() as u64, written as u64)
    }

    /// The physical volumes that hold a part of a copy of the journal.
    fn pvs_of_copy(&self, start: u64) -> Vec<PvIndex> {
        let (root, placement) = (self.root.lock().group.clone(), self.core.placement());
        let pvs = (0..root.pvs.len()).map(|index| PvIndex(u16::try_from(index).expect("at most 64 physical volumes")));
        pvs.filter(|pv| is_copy_on(&root, &placement, start, *pv)).collect()
    }

    /// Adds a second copy of the journal (JC1), if another physical volume has room for it: the copy takes at most one
    /// in `most` of its extents. False: none has room, or there are two copies already.
    pub async fn add_second_journal(self: &Arc<Self>, most: u64) -> Result<bool> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        let root = self.root.lock().group.clone();
        if root.second_journal.is_some() {
            return Ok(false);
        }
        let Some((start, _)) = self.place_beside(&root, root.journal_start, None, most.max(1)).await? else {
            return Ok(false);
        };
        {
            let root = &mut self.root.lock().group;
            root.second_journal = Some(start);
            root.set_whole_journals(&[root.journal_start]);
        }
        drop(hold);
        self.join_copy(start).await?;
        Ok(true)
    }

    /// Drops the second copy of the journal. Its blocks become free. False: there is only one copy.
    pub async fn drop_second_journal(self: &Arc<Self>) -> Result<bool> {
        self.may_change()?;
        let Some(start) = self.root.lock().group.second_journal else { return Ok(false) };
        let (blocks, is_other_whole) = {
            let root = self.root.lock();
            (root.group.journal_blocks, root.written.whole_journals().any(|whole| whole == root.group.journal_start))
        };
        if !is_other_whole {
            return Err(Error::MissingPv("the second copy of the journal is on a missing disk".into()));
        }
        let hold = self.hold_checkpoints().await;
        // Its blocks belong to the journal until a checkpoint frees them.
        self.repeat_superblocks_held(|root| root.set_whole_journals(&[root.journal_start])).await?;
        let last = self.core.journal.drop_copy(start);
        drop(hold);
        self.core.journal.wait_for_frames(last).await?;
        let hold = self.hold_checkpoints().await;
        // Another command may have added it again meanwhile.
        if self.core.journal.has_copy(start) || self.root.lock().group.second_journal != Some(start) {
            return Ok(false);
        }
        {
            let _gate = self.core.gate.read();
            self.root.lock().group.forget_second_journal();
            self.core.space.lock().free_later((start, blocks));
        }
        drop(hold);
        self.checkpoint().await?;
        Ok(true)
    }

    /// Begins to write copies of the journal that are not written, if their physical volumes are there. Older frames
    /// need not be copied, because the next checkpoint needs none of them. A copy that cannot be written stays as it
    /// is.
    pub(super) async fn join_stale_copies(self: &Arc<Self>) -> Result<()> {
        let starts: Vec<u64> = self.root.lock().group.journals().collect();
        for start in starts.into_iter().filter(|start| !self.core.journal.has_copy(*start)) {
            if self.pvs_of_copy(start).into_iter().any(|pv| self.core.disks.is_missing(pv)) {
                continue;
            }
            match self.join_copy(start).await {
                Ok(()) | Err(Error::Disk(_) | Error::NoRoom(_)) => self.core.journal.failed()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// JC3, JC2
    async fn join_copy(self: &Arc<Self>, start: u64) -> Result<()> {
        let blocks = self.root.lock().group.journal_blocks;
        if !planted::is("copy_not_zeroed") {
            self.zero((start, blocks)).await?;
        }
        self.core.journal.flush().await?;
        self.core.journal.add_copy(start, self.core.placement());
        self.checkpoint().await
    }

    /// A place for a copy of the journal. Its physical volume has no part of the copy at `other`, and is not `leaving`.
    /// The place takes at most one in `most` of its extents.
    pub(super) async fn place_beside(
        &self,
        root: &GroupRoot,
        other: u64,
        leaving: Option<PvIndex>,
        most: u64,
    ) -> Result<Option<Run>> {
        let placement = self.core.placement();
        let other = self.pvs_of_copy(other);
        for index in 0..root.pvs.len() {
            let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
            let extents = root.pvs[index].extents * root.extent_blocks;
            let is_barred = self.catalog.read().attributes.unallocatable.has(index) || self.core.disks.is_missing(pv);
            if other.contains(&pv) || leaving == Some(pv) || is_barred || extents / most < root.journal_blocks {
                continue;
            }
            let elsewhere = placement.runs().iter().filter(|run| run.pv != pv.0).map(|run| run.start..run.end);
            let mut elsewhere: Vec<Range<u64>> = elsewhere.collect();
            elsewhere.sort_by_key(|range| range.start);
            if let Some(run) = self.run_outside(root.journal_blocks, &elsewhere).await? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// The place of the journal without a physical volume, and the blocks that are allocated for it. [`Error::Busy`]:
    /// there is no room for it.
    pub(super) async fn relocate(&self, root: &GroupRoot, pv: PvIndex) -> Result<Relocation> {
        let placement = self.core.placement();
        let ranges = placement.ranges_of(pv);
        let is_on = |start: &u64| is_copy_on(root, &placement, *start, pv);
        let mut relocation = Relocation {
            starts: root.journals().filter(|start| !is_on(start)).collect(),
            left: root.journals().filter(is_on).flat_map(|start| copy_elsewhere(root, start, &ranges)).collect(),
            taken: Vec::new(),
        };
        for _ in root.journals().filter(is_on) {
            let run = match relocation.starts.first() {
                Some(other) => self.place_beside(root, *other, Some(pv), LARGEST_SHARE).await?,
                None => Some(self.run_outside(root.journal_blocks, &ranges).await?.ok_or_else(in_use)?),
            };
            relocation.starts.extend(run.map(|(start, _)| start));
            relocation.taken.extend(run);
        }
        let is_there = |start: &u64| self.pvs_of_copy(*start).iter().all(|pv| !self.core.disks.is_missing(*pv));
        match relocation.starts.iter().any(is_there) {
            true => Ok(relocation),
            false => Err(in_use()),
        }
    }

    /// From now on the journal is at this place. Nothing is in flight, and the group only ends after this.
    pub(super) fn place_journal(&self, old: &GroupRoot, to: &Relocation) {
        let written = to
            .starts
            .iter()
            .copied()
            .filter(|start| self.core.journal.has_copy(*start) || to.taken.iter().any(|(taken, _)| taken == start));
        self.core.journal.replace_copies(&written.collect::<Vec<_>>());
        let mut root = self.root.lock();
        let root = &mut root.group;
        root.journal_start = to.starts[0];
        root.second_journal = to.starts.get(1).copied();
        // The bad blocks are those of the old copies.
        if old.journals().all(|start| !to.starts.contains(&start)) {
            root.bad = BadRuns::default();
        }
    }

    /// Nothing that a volume once wrote there can be taken for a frame.
    pub(super) async fn zero(&self, (start, len): Run) -> Result<()> {
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
