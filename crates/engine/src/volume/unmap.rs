//! Discards and write-zeroes: whole blocks leave the map, parts of blocks are written with zeros.

use super::Volume;
use super::plan::Plan;
use super::state::{Mode, State, apply_unmap};
use crate::disk::PageBuf;
use crate::error::{Error, Result};
use crate::format::journal::Record;
use crate::format::node::UNWRITTEN;
use crate::journal::Pressure;
use crate::map::{self, Extents, MapError};
use crate::model::{SegmentType, is_bookmark};
use crate::space::Run;
use crate::space::metadata::{NODES_FOR_WRITE, RUNS_TOGETHER, blocks_for_runs};
use crate::units::{BLOCK_SIZE, LvBlock};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Blocks unmapped by one record: bounds memory and the time that a lock is held.
const UNMAP_BLOCKS: u64 = 1 << 16;
/// If metadata is full, it can be fewer, down to this many.
const MIN_UNMAPPED: u64 = 1 << 7;
/// The least extents in a leaf of a map after a split.
const EXTENTS_IN_LEAF: u64 = 64;

impl Volume {
    /// Reads of whole blocks in the range give zeros afterwards; partial blocks at the edges are zeroed too.
    pub async fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.unmap(offset, len).await
    }

    /// The range reads as zeros afterwards.
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.unmap(offset, len).await
    }

    async fn unmap(&self, offset: u64, len: u64) -> Result<()> {
        {
            let state = self.state.lock();
            self.check_range(&state, offset, len)?;
            if self.is_read_only(&state) {
                return Err(Error::ReadOnly);
            }
        }
        // Also if nothing is mapped: a failed write may become mapped when the group is opened again, and the
        // acknowledged discard must still hold then.
        self.core.journal.failed()?;
        let end = offset + len;
        let (first, last) = (offset.div_ceil(BLOCK_SIZE), end / BLOCK_SIZE);
        if first >= last {
            // Within one block, or two halves of neighbours.
            return self.zero_bytes(offset, end).await;
        }
        self.zero_bytes(offset, first * BLOCK_SIZE).await?;
        let (mut at, mut together) = (first, UNMAP_BLOCKS);
        while at < last {
            match self.unmap_blocks(at, last.min(at + together)).await {
                // A smaller part takes fewer nodes.
                Err(Error::NoSpace { .. }) if together > MIN_UNMAPPED => together /= 8,
                // What is being removed gives back metadata, too.
                Err(Error::NoSpace { .. }) if self.core.space_finder()?.wait_for_space(SegmentType::Linear).await? => {}
                outcome => at = outcome?,
            }
        }
        self.zero_bytes(last * BLOCK_SIZE, end).await
    }

    /// Writes zeros over less than two blocks, block by block. Leaves out ranges that read as zeros already.
    async fn zero_bytes(&self, mut start: u64, end: u64) -> Result<()> {
        while start < end {
            let to = end.min((start / BLOCK_SIZE + 1) * BLOCK_SIZE);
            if self.mapped(start / BLOCK_SIZE, start / BLOCK_SIZE + 1).await?.0 > 0 {
                self.write(start, (to - start) as u32, Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize))).await?;
            }
            start = to;
        }
        Ok(())
    }

    /// The number of extents of the range, or 0 if none of them holds data. If there are too many to free together,
    /// also returns where the first remaining one begins.
    async fn mapped(&self, first: u64, last: u64) -> Result<(usize, u64)> {
        let most = if self.core.planted("frees_unbounded") { usize::MAX } else { RUNS_TOGETHER };
        self.core
            .with_nodes(|| {
                let state = self.state.lock();
                let mut found = Extents::new();
                map::lookup(&self.core.cache, &state.head.tree, first, last, &mut found)?;
                let end = found.get(most).map_or(last, |extent| extent.key);
                found.truncate(most);
                // A bookmark keeps no places either.
                let is_any = is_bookmark(&state.meta.name) || found.iter().any(|e| e.flags & UNWRITTEN == 0);
                Ok((if is_any { found.len() } else { 0 }, end))
            })
            .await
    }

    /// Unmaps the range, or its first part. Returns the end of that part.
    async fn unmap_blocks(&self, first: u64, last: u64) -> Result<u64> {
        let op = loop {
            let plan = poll_fn(|cx| {
                let mut guard = self.state.lock();
                let state = &mut *guard;
                if let Err(error) = self.check_range(state, first * BLOCK_SIZE, (last - first) * BLOCK_SIZE) {
                    return Poll::Ready(Err(error));
                }
                if state.gates > 0 || state.conflict(first, last, Mode::Exclusive) {
                    return Self::wait_for_wake(&mut guard, cx);
                }
                if self.core.journal.pressure() == Pressure::Full || self.core.too_dirty() {
                    return Poll::Ready(Ok(None));
                }
                Poll::Ready(Ok(Some(state.begin(first, last, Mode::Exclusive))))
            });
            match plan.await? {
                Some(op) => break op,
                None => self.wait_for(Plan::Admit).await?,
            }
        };
        let outcome = self.unmap_registered(first, last).await;
        self.state.lock().finish(op);
        outcome
    }

    async fn unmap_registered(&self, first: u64, last: u64) -> Result<u64> {
        let (extents, end) = self.mapped(first, last).await?;
        if extents == 0 {
            return Ok(end);
        }
        let keep_place = self.state.lock().thick();
        // Leaves in the middle are dropped, or rewritten if their extents keep their places.
        let nodes = NODES_FOR_WRITE + if keep_place { (extents as u64).div_ceil(EXTENTS_IN_LEAF) } else { 0 };
        // Freed runs make the next checkpoint's stream longer (M2).
        let bounded = if self.core.planted("frees_unbounded") { 0 } else { extents };
        let blocks = nodes + blocks_for_runs(bounded);
        self.core.admit_unmap(blocks).await?;
        let outcome = self.unmap_admitted(first, end, keep_place).await;
        self.core.meta.lock().unmap_done(blocks);
        outcome.map(|()| end)
    }

    /// The blocks that the volume owns there, which will be discarded on the disks when they are free. None: discards
    /// are not passed down.
    fn passed_down(&self, state: &State, first: u64, last: u64) -> std::result::Result<Option<Vec<Run>>, MapError> {
        if !self.core.discards.policy().passed_down || !state.meta.attributes.passes_down() {
            return Ok(None);
        }
        let mut found = Extents::new();
        map::lookup(&self.core.cache, &state.head.tree, first, last, &mut found)?;
        let own = found.iter().filter(|e| state.ownership.owns(e.birth, Some(e.end())));
        Ok(Some(own.map(|e| (e.value, u64::from(e.len))).collect()))
    }

    async fn unmap_admitted(&self, first: u64, last: u64, keep_place: bool) -> Result<()> {
        let journal = &self.core.journal;
        let record = Record::Unmap { volume: self.id, start: LvBlock(first), len: last - first };
        let seq = journal.append(&record, true);
        let outcome = match journal.written(seq).await {
            Ok(()) => {
                let applied = self
                    .core
                    .with_nodes(|| {
                        let _gate = self.core.gate.read();
                        let mut state = self.state.lock();
                        let freed = self.passed_down(&state, first, last)?;
                        apply_unmap(&self.core, &mut state, first, last, keep_place)?;
                        if let Some(freed) = freed {
                            self.core.discards.queue((self.id, first..last), freed);
                            self.core.discard_soon();
                        }
                        Ok(())
                    })
                    .await;
                if let Err(error) = &applied {
                    journal.poison(&format!("a mapping could not be changed: {error}"));
                }
                applied
            }
            Err(error) => Err(error),
        };
        journal.close(seq);
        self.core.space_use_changed();
        if !self.state.lock().meta.attributes.pool.is_empty() {
            // Other volumes of the pool may wait for these blocks.
            self.core.space_event.notify();
        }
        outcome
    }
}
