//! A planned write that changes mappings: data and record, then the map (V2).

use super::Volume;
use super::plan::{Edge, MapPlan};
use super::state::apply_write;
use crate::disk::{DiskError, DiskOp, PageBuf, Segments, start};
use crate::error::{Error, Result};
use crate::format::journal::{Record, WriteExtent};
use crate::format::record::crc32c;
use crate::planted;
use crate::space::{Run, Runs};
use crate::units::{BLOCK_SIZE, LvBlock, Seq, VgBlock};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Volume {
    pub(super) async fn write_mapped(
        &self,
        offset: u64,
        len: u32,
        buf: Arc<PageBuf>,
        plan: MapPlan,
    ) -> Result<Option<Seq>> {
        let buf = match self.compose(offset, len, buf, &plan).await {
            Ok(composed) => composed,
            Err(error) => {
                self.abandon(&plan);
                return Err(error);
            }
        };
        let first = offset / BLOCK_SIZE;
        let mut extents: SmallVec<[WriteExtent; 2]> = SmallVec::new();
        let mut segments = Segments::new();
        let placement = self.state.lock().placement.clone();
        let mut at = 0u64;
        for ((vg, blocks), _) in &plan.targets {
            placement.map_blocks(VgBlock(*vg), *blocks, (at * BLOCK_SIZE) as u32, &mut segments);
            at += blocks;
        }
        let places = segments.clone();
        let data = start(&*self.core.disks, DiskOp::Write { segments, buf: buf.clone() });
        // The disk works while the checksums are computed.
        at = 0;
        for ((vg, blocks), named) in &plan.targets {
            if *named {
                let bytes = &buf.as_slice()[(at * BLOCK_SIZE) as usize..((at + blocks) * BLOCK_SIZE) as usize];
                extents.push(WriteExtent {
                    lv_block: LvBlock(first + at),
                    vg_block: VgBlock(*vg),
                    len: *blocks as u32,
                    data_crc: crc32c(bytes),
                });
            }
            at += blocks;
        }
        // The caller may use the buffer again as soon as the write has returned.
        drop(buf);
        // U3: a write that repeatedly meets no room leaves no record. MB9: nor does a part of a block on a disk that fails.
        let (mut data, mut early) = (Some(data), None);
        let is_part = plan.edges != [Edge::Whole; 2] && !planted::is("parts_recorded_early");
        let may_lose_disk = self.core.config.leaves_failed_disks && self.core.disks.count() > 1;
        if extents.is_empty() || self.core.backing.is_short() || is_part && may_lose_disk {
            early = data.take();
        }
        if let Some(data) = early
            && let Err(error) = data.await
        {
            if !self.core.planted("allocation_not_undone") {
                self.undo_allocation(&plan);
            }
            return Err(self.not_written(error, places).await);
        }
        if extents.is_empty() {
            self.wrote(&places);
            // A partial block in place on a disk with larger sectors: read, changed, and written whole.
            return Ok(None);
        }
        let record = Record::Write { volume: self.id, extents };
        let journal = &self.core.journal;
        let seq = journal.append(&record, true);
        let Record::Write { extents, .. } = record else { unreachable!("it was just made") };
        if let Some(data) = data
            && let Err(error) = data.await
        {
            self.abort(seq, &plan).await?;
            return Err(self.not_written(error, places).await);
        }
        if !self.core.planted("early_ack")
            && let Err(error) = journal.written(seq).await
        {
            journal.close(seq);
            return Err(error);
        }
        self.wrote(&places);
        let flipped = self.flip(seq, &extents, &plan.allocated).await;
        journal.close(seq);
        self.core.space_use_changed();
        self.background_marker(seq, u64::from(len));
        flipped.map(|()| Some(seq))
    }

    /// Changes the map: the blocks and the record are on the disk (V2). `allocated`: the new blocks among them.
    async fn flip(&self, seq: Seq, extents: &[WriteExtent], allocated: &[Run]) -> Result<()> {
        for extent in extents {
            let outcome = self
                .core
                .with_nodes(|| {
                    let _gate = self.core.gate.read();
                    let mut state = self.state.lock();
                    apply_write(&self.core, &mut state, extent, &[])?;
                    let (start, place) = (extent.lv_block.0, extent.vg_block.0);
                    let is_part = |(at, len): &Run| (*at..at + len).contains(&place);
                    let is_moved = allocated.iter().any(is_part);
                    state.fresh.insert(start, start + u64::from(extent.len), seq, is_moved);
                    if state.fresh.is_large() {
                        state.fresh.prune(self.core.journal.marker_durable());
                    }
                    let named = (place, u64::from(extent.len));
                    let holders = state.in_flight.iter_mut().filter(|op| !op.allocated.is_empty());
                    holders.for_each(|op| remove_run(&mut op.allocated, named));
                    Ok(())
                })
                .await;
            if let Err(error) = outcome {
                // The record is valid, but the map does not show it: only recovery can correct this.
                self.core.journal.poison(&format!("a mapping could not be changed: {error}"));
                return Err(error);
            }
        }
        Ok(())
    }

    /// The data could not be written: the record must not count.
    async fn abort(&self, seq: Seq, plan: &MapPlan) -> Result<()> {
        let journal = &self.core.journal;
        let abort = journal.append(&Record::Abort { seq }, false);
        let outcome = journal.written(abort).await;
        self.abandon(plan);
        journal.close(seq);
        outcome
    }

    fn abandon(&self, plan: &MapPlan) {
        let _gate = self.core.gate.read();
        let mut state = self.state.lock();
        let mut space = self.core.space.lock();
        for (run, account) in &plan.accounts {
            // Not free at once: a record may name these blocks until the next checkpoint.
            space.free_later(*run);
            space.unsettle(*run, *account);
        }
        state.in_flight.iter_mut().filter(|op| op.id == plan.op).for_each(|op| op.allocated.clear());
    }

    /// No record names these blocks.
    fn undo_allocation(&self, plan: &MapPlan) {
        let _gate = self.core.gate.read();
        let mut state = self.state.lock();
        let mut space = self.core.space.lock();
        for (run, account) in &plan.accounts {
            space.unalloc(&[*run], *account);
        }
        state.in_flight.iter_mut().filter(|op| op.id == plan.op).for_each(|op| op.allocated.clear());
    }

    async fn not_written(&self, error: DiskError, places: Segments) -> Error {
        if error.is_no_room() {
            self.core.note_no_room(error, places);
        }
        let error = error.into();
        self.core.journal.stopped_by(&error).await.err().unwrap_or(error)
    }

    /// The buffer with whole blocks: the caller's buffer if the write covers them, otherwise a copy with the edges
    /// filled in.
    async fn compose(&self, offset: u64, len: u32, buf: Arc<PageBuf>, plan: &MapPlan) -> Result<Arc<PageBuf>> {
        if plan.edges == [Edge::Whole; 2] {
            return Ok(buf);
        }
        let (first, last) = (offset / BLOCK_SIZE, (offset + u64::from(len)).div_ceil(BLOCK_SIZE));
        let mut whole = PageBuf::zeroed(((last - first) * BLOCK_SIZE) as usize);
        for (edge, block) in plan.edges.into_iter().zip([first, last - 1]) {
            if let Edge::At(vg) = edge {
                let old = self.core.read_block(VgBlock(vg)).await?;
                let at = ((block - first) * BLOCK_SIZE) as usize;
                whole.as_mut_slice()[at..at + BLOCK_SIZE as usize]
                    .copy_from_slice(&old.as_slice()[..BLOCK_SIZE as usize]);
            }
            if edge == Edge::Zeros && self.core.planted("stale_partial") {
                let vg = plan.targets.first().expect("a write has a target").0.0;
                let stale = self.core.read_block(VgBlock(vg)).await?;
                let at = ((block - first) * BLOCK_SIZE) as usize;
                whole.as_mut_slice()[at..at + BLOCK_SIZE as usize]
                    .copy_from_slice(&stale.as_slice()[..BLOCK_SIZE as usize]);
            }
        }
        let at = (offset - first * BLOCK_SIZE) as usize;
        whole.as_mut_slice()[at..at + len as usize].copy_from_slice(&buf.as_slice()[..len as usize]);
        Ok(Arc::new(whole))
    }

    /// Limits the data that recovery has to compare, which bounds the time of the next opening.
    fn background_marker(&self, seq: Seq, bytes: u64) {
        let unproven = self.core.unproven.fetch_add(bytes + RECORD_COST, Ordering::Relaxed) + bytes + RECORD_COST;
        if unproven < UNPROVEN_BYTES {
            return;
        }
        self.core.unproven.store(0, Ordering::Relaxed);
        let journal = self.core.journal.clone();
        let marker = async move {
            // A failure poisons the journal, and the next write gets the error.
            let _ = journal.ensure_marker(seq).await;
        };
        self.core.runtime.spawn("marker", Box::pin(marker));
    }
}

/// The most data that recovery would have to compare, before a marker is made in the background.
const UNPROVEN_BYTES: u64 = 128 << 20;

/// What a record counts in addition to its data: a separate read, whatever its size.
const RECORD_COST: u64 = 60 << 10;

/// Removes a run from a list of runs, one of which may contain it.
fn remove_run(runs: &mut Runs, (start, len): Run) {
    let end = start + len;
    if runs.iter().all(|(a, n)| a + n <= start || end <= *a) {
        return;
    }
    let mut left = Runs::new();
    for (a, n) in runs.drain(..) {
        let b = a + n;
        for (from, to) in [(a, b.min(start)), (a.max(end), b)] {
            if from < to {
                left.push((from, to - from));
            }
        }
    }
    *runs = left;
}
