//! Freed blocks: they wait for a checkpoint, and become usable when it is durable (S2).

use super::runs::join_runs;
use super::{AllocContext, Run, Space};
use crate::format::packed::packed_len;
use crate::format::stream::RunRecord;
use crate::map::MapError;
use crate::planted;

impl Space {
    #[cfg(feature = "planted")]
    pub(super) fn reuse_now(&mut self, context: AllocContext<'_>) -> Result<(), MapError> {
        while let Some(run) = self.pending.last().copied().filter(|_| self.reuse_early) {
            let len = self.put_back(context, run)?;
            self.pending_blocks -= len;
            self.pending.pop();
            if len < run.1 {
                self.pending.push((run.0 + len, run.1 - len));
            }
            let segment = self.pvs.type_of(run.0);
            self.class_mut(segment).search_from = run.0;
            self.current.clear();
        }
        Ok(())
    }

    /// Blocks that nothing uses any more; usable after the next checkpoint (S2).
    pub fn free_later(&mut self, run: Run) {
        self.pending_blocks += run.1;
        match self.pending.last_mut() {
            Some((start, len)) if *start + *len == run.0 => *len += run.1,
            _ => self.pending.push(run),
        }
        self.update_load();
    }

    /// Sorts the pending runs and joins those that touch. They then take less of the stream, and neighbours become
    /// usable together.
    pub fn tidy_pending(&mut self) {
        if !join_runs(&mut self.pending) {
            let run = self.pending.first().copied().unwrap_or_default();
            let _ = self.contradiction("S1", run, "or blocks behind them were freed twice");
        }
        self.packed = (packed_len(&self.committing) + packed_len(&self.pending), self.pending.len());
        self.update_load();
    }

    /// At a checkpoint's capture. Returns the runs that are free once it is durable.
    pub fn begin_commit(&mut self) -> Vec<Run> {
        debug_assert!(self.committing.is_empty(), "one checkpoint at a time");
        self.committing = std::mem::take(&mut self.pending);
        self.committing_blocks = std::mem::take(&mut self.pending_blocks);
        let (bytes, runs) = self.packed;
        self.packed = (bytes + self.committing.len().saturating_sub(runs) * RunRecord::SIZE, 0);
        self.committing.clone()
    }

    /// The checkpoint is durable: makes its freed blocks usable, some at a time. `Ok(true)`: done. If there are too few
    /// metadata blocks for that, the rest can wait for another checkpoint ([`abort_commit`](Self::abort_commit)).
    pub fn finish_commit(&mut self, context: AllocContext<'_>) -> Result<bool, MapError> {
        for _ in 0..COMMIT_STEP {
            let Some(run) = self.committing.last().copied() else { return Ok(true) };
            let len = self.put_back(context, run)?;
            self.committing_blocks -= len;
            match self.committing.last_mut() {
                Some(last) if last.1 > len => *last = (last.0 + len, last.1 - len),
                _ => {
                    self.committing.pop();
                }
            }
            if self.committing.is_empty() {
                self.packed = (0, 0);
            }
            self.update_load();
        }
        Ok(self.committing.is_empty())
    }

    /// The checkpoint failed, or has no room for all of its blocks: they wait for the next.
    pub fn abort_commit(&mut self) {
        let mut committing = std::mem::take(&mut self.committing);
        self.pending.append(&mut committing);
        self.pending_blocks += std::mem::take(&mut self.committing_blocks);
        self.tidy_pending();
    }

    /// Puts the first part of a run where it belongs: into the arena or the free tree. Returns its length.
    fn put_back(&mut self, context: AllocContext<'_>, (start, len): Run) -> Result<u64, MapError> {
        if let Some((base, arena)) = self.arena_of(start) {
            let part = len.min(base + arena.len - start);
            let within = start - base..start - base + part;
            if within.clone().any(|i| !arena.is_used(i)) {
                return Err(self.contradiction("S3", (start, part), "were free already"));
            }
            within.for_each(|i| arena.clear(i));
            self.count_unused(base, part as i64);
            return Ok(part);
        }
        let arena_behind = self.arenas.range(start..).next().filter(|_| !planted::is("freed_over_arena"));
        let next_arena = arena_behind.map_or(u64::MAX, |(base, _)| *base);
        let part = len.min(next_arena - start).min(self.pvs.end_of(start) - start).min(u64::from(u32::MAX));
        self.put_run(context, (start, part))?;
        Ok(part)
    }

    /// Adds space that was never in use (a new physical volume, a new group).
    pub fn add_free(&mut self, context: AllocContext<'_>, run: Run) -> Result<u64, MapError> {
        self.put_back(context, run)
    }

    /// Blocks that the running checkpoint frees.
    pub fn committing(&self) -> &[Run] {
        &self.committing
    }

    /// Blocks freed but not usable yet: for `check`.
    pub fn pending_all(&self) -> Vec<Run> {
        self.pending.iter().chain(&self.committing).copied().collect()
    }

    pub fn pending_blocks(&self) -> u64 {
        self.pending_blocks + self.committing_blocks
    }

    pub fn pending_runs(&self) -> usize {
        self.pending.len()
    }
}

/// Freed runs made usable in one step: some tens of microseconds.
pub const COMMIT_STEP: usize = 16;
