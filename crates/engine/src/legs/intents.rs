//! Write intents: regions are declared before they are written, and settled when they have been quiet (ML1, ML4).

use super::layer::{Batch, Legs};
use super::state::{Region, RegionId};
use super::table::{Piece, Place, bytes_of, regions_of};
use crate::disk::{DiskError, DiskOp, PageBuf, PvIndex, Segment, Segments, start};
use crate::format::intents::{INTENT_SECTORS, INTENTS_OFFSET, REGION_BYTES, REGIONS_IN_SECTOR, decode, encode};
use crate::format::superblock::DATA_OFFSET;
use crate::planted;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The pause between two rounds of settling.
pub const ROUND: Duration = Duration::from_secs(30);
/// Sectors are written together, in the largest sector that a disk may have.
const TOGETHER: u32 = 8;
const SECTOR: usize = 512;
pub const BLOCK: usize = 4096;
/// Blocks of intents on a physical volume.
pub const BLOCKS: u32 = INTENT_SECTORS / TOGETHER;
/// Regions that are declared ahead of a sequential writer.
const AHEAD: u64 = 16;

/// A block of intents of a physical volume.
type BlockId = (u16, u32);

fn block_of(region: RegionId) -> BlockId {
    (region.0, region.1 / (REGIONS_IN_SECTOR * TOGETHER))
}

impl Legs {
    /// The regions that are declared with this piece: more if many were declared before it in this round, or if it seems
    /// to be a part of a sequential write (D4).
    fn grown(&self, piece: &Piece) -> Vec<RegionId> {
        let state = self.state.lock();
        let (pv, range) = piece.place();
        let steps = match state.declarations {
            0..16 => 1,
            16..32 => 16,
            32..48 => 256,
            _ => 4096,
        };
        let unit = steps * REGION_BYTES;
        let from_start = |offset: u64| offset.saturating_sub(DATA_OFFSET);
        let mut wide = range.clone();
        if steps > 1 {
            wide = DATA_OFFSET + from_start(range.start) / unit * unit
                ..DATA_OFFSET + from_start(range.end).next_multiple_of(unit);
        }
        let before = range.start.checked_sub(REGION_BYTES).map(|before| regions_of(&(pv, before..before + 1)));
        if before.is_some_and(|mut before| before.any(|region| state.regions.contains_key(&region))) {
            wide.end = wide.end.max(range.end + AHEAD * REGION_BYTES);
        }
        let whole: Place = (pv, wide);
        // Only the run that it lies in: nobody wrote elsewhere.
        let others = state.table.pieces(&whole).into_iter();
        let own = others.filter(|other| other.legs[1].pv == piece.legs[1].pv);
        let mut regions: BTreeSet<RegionId> = own.flat_map(|other| state.needed(&other)).collect();
        regions.extend(state.needed(piece));
        regions.into_iter().collect()
    }

    /// Makes these open, durably.
    pub(super) async fn declare(&self, pieces: &[Piece]) -> Result<(), DiskError> {
        let regions: Vec<RegionId> = pieces.iter().flat_map(|piece| self.grown(piece)).collect();
        self.declare_regions(regions).await
    }

    pub(super) async fn declare_regions(&self, regions: Vec<RegionId>) -> Result<(), DiskError> {
        let batch = {
            let mut collecting = self.collecting.lock();
            let batch = collecting.get_or_insert_default().clone();
            batch.regions.lock().extend(regions);
            batch
        };
        loop {
            let turn = self.changed.turn();
            if let Some(outcome) = *batch.outcome.lock() {
                return outcome;
            }
            if self.begin_batch(&batch) {
                let outcome = self.open_regions(&batch).await;
                *batch.outcome.lock() = Some(outcome);
                self.end_intents();
                return outcome;
            }
            self.changed.changed(turn).await;
        }
    }

    /// Whether this task carries the declaration out. From then on nobody joins it.
    fn begin_batch(&self, batch: &Arc<Batch>) -> bool {
        let mut collecting = self.collecting.lock();
        let is_next = collecting.as_ref().is_some_and(|next| Arc::ptr_eq(next, batch));
        let is_own = is_next && self.begin_intents();
        if is_own {
            *collecting = None;
        }
        is_own
    }

    /// One task at a time writes intents: so a bit that is cleared never overtakes one that is set.
    fn begin_intents(&self) -> bool {
        let mut state = self.state.lock();
        !std::mem::replace(&mut state.is_writing_intents, true)
    }

    pub(super) async fn intents_turn(&self) {
        loop {
            let turn = self.changed.turn();
            if self.begin_intents() {
                return;
            }
            self.changed.changed(turn).await;
        }
    }

    pub(super) fn end_intents(&self) {
        self.state.lock().is_writing_intents = false;
        self.changed.notify();
    }

    async fn open_regions(&self, batch: &Batch) -> Result<(), DiskError> {
        let mut regions: Vec<RegionId> = batch.regions.lock().iter().copied().collect();
        let blocks: BTreeSet<BlockId> = {
            let mut state = self.state.lock();
            if let Some(error) = state.stopped {
                return Err(error);
            }
            state.declarations += 1;
            let round = state.round;
            let mut blocks = BTreeSet::new();
            // One that was returning may have failed meanwhile.
            regions.retain(|region| state.has_intents(PvIndex(region.0)));
            // The disks have not counted since before a pause.
            state.is_count_due |= state.regions.is_empty() && !regions.is_empty();
            for region in &regions {
                let new = Region { is_durable: false, writes: 0, touched: round };
                let known = state.regions.entry(*region).or_insert(new);
                known.touched = round;
                if !known.is_durable {
                    blocks.insert(block_of(*region));
                }
            }
            blocks
        };
        let outcome = self.write_blocks(&blocks, true).await;
        let mut state = self.state.lock();
        for region in regions {
            match (&outcome, state.regions.get_mut(&region)) {
                (Ok(()), Some(region)) => region.is_durable = true,
                // Its bit may be set on a disk, which does no harm.
                (Err(_), Some(known)) if !known.is_durable => drop(state.regions.remove(&region)),
                _ => {}
            }
        }
        let is_count_due = state.is_count_due;
        drop(state);
        if is_count_due {
            self.wake_owner();
        }
        self.start_timer();
        outcome
    }

    /// Writes blocks of intents as they are in memory, and flushes them if they must be durable.
    pub(super) async fn write_blocks(&self, blocks: &BTreeSet<BlockId>, durably: bool) -> Result<(), DiskError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let (buf, segments) = self.images(blocks);
        self.write_own(buf, segments, durably).await
    }

    /// Writes what the layer keeps on the disks. A disk that fails what must be durable is left, if the group can do
    /// without it.
    pub(super) async fn write_own(&self, buf: PageBuf, segments: Segments, durably: bool) -> Result<(), DiskError> {
        let buf = Arc::new(buf);
        let write = |segments: Segments| start(&*self.disks, DiskOp::Write { segments, buf: buf.clone() });
        if write(segments.clone()).await.is_err() {
            // Once more, each by itself: then it is known which disk fails.
            for segment in segments {
                if let Err(error) = write(Segments::from_slice(&[segment])).await {
                    if durably && !error.is_no_room() && self.can_lose(segment.pv) {
                        self.fail(DiskError { pv: segment.pv, ..error });
                    }
                    return Err(error);
                }
            }
        }
        if durably && !planted::is("intent_not_flushed") {
            self.flush().await?;
        }
        Ok(())
    }

    /// A flush that fails is not repeated: the second one would not tell what the first one lost.
    pub(super) async fn flush(&self) -> Result<(), DiskError> {
        let outcome = start(&*self.disks, DiskOp::Flush).await.map(drop);
        if let Err(error) = outcome {
            self.fail(error);
        }
        outcome
    }

    /// Whether all runs of a physical volume have another leg that is whole.
    pub(super) fn can_lose(&self, pv: PvIndex) -> bool {
        let state = self.state.lock();
        state.runs_of(pv).all(|run| {
            let other = usize::from(run.legs[0].pv == pv);
            let behind = state.pvs.behind.has(usize::from(run.legs[other].pv.0));
            state.is_in(run.legs[other].pv) && run.filling != Some(other) && !behind
        })
    }

    fn images(&self, blocks: &BTreeSet<BlockId>) -> (PageBuf, Segments) {
        let state = self.state.lock();
        let mut buf = PageBuf::zeroed(blocks.len() * BLOCK);
        let mut segments = Segments::new();
        for (at, (pv, block)) in blocks.iter().enumerate() {
            for sector in 0..TOGETHER {
                let number = block * TOGETHER + sector;
                let first = number * REGIONS_IN_SECTOR;
                let open = state.regions.range((*pv, first)..(*pv, first + REGIONS_IN_SECTOR));
                let bytes = encode(number, self.group, open.map(|(region, _)| region.1));
                let from = at * BLOCK + sector as usize * SECTOR;
                buf.as_mut_slice()[from..from + SECTOR].copy_from_slice(&bytes);
            }
            segments.push(Segment {
                pv: PvIndex(*pv),
                offset: INTENTS_OFFSET + u64::from(*block) * BLOCK as u64,
                at: (at * BLOCK) as u32,
                len: BLOCK as u32,
            });
        }
        (buf, segments)
    }

    /// The regions whose bits are set on a disk. A sector that cannot be read, or is damaged, has all of them.
    pub(super) async fn load(&self, pv: PvIndex) -> BTreeSet<RegionId> {
        let mut found = BTreeSet::new();
        let bytes = BLOCKS * BLOCK as u32;
        let all = self.read_raw(Segment { pv, offset: INTENTS_OFFSET, at: 0, len: bytes }).await.ok();
        for block in 0..BLOCKS {
            let at = block as usize * BLOCK;
            let own = match &all {
                Some(all) => Some(all.as_slice()[at..at + BLOCK].to_vec()),
                None => {
                    let place = Segment { pv, offset: INTENTS_OFFSET + at as u64, at: 0, len: BLOCK as u32 };
                    self.read_raw(place).await.ok().map(|buf| buf.as_slice().to_vec())
                }
            };
            for sector in 0..TOGETHER {
                let number = block * TOGETHER + sector;
                let from = sector as usize * SECTOR;
                let own = own.as_ref().and_then(|bytes| decode(&bytes[from..from + SECTOR], number, self.group));
                let every = || (number * REGIONS_IN_SECTOR..(number + 1) * REGIONS_IN_SECTOR).collect();
                found.extend(own.unwrap_or_else(every).into_iter().map(|region| (pv.0, region)));
            }
        }
        let state = self.state.lock();
        found.retain(|region| !state.table.at(&bytes_of(*region)).is_empty());
        found
    }

    /// While a region is open, there is a round of settling from time to time.
    pub(super) fn start_timer(&self) {
        {
            let mut state = self.state.lock();
            if state.has_timer || state.regions.is_empty() || state.pvs.is_read_only {
                return;
            }
            state.has_timer = true;
        }
        let (own, pause) = (self.own.clone(), self.runtime.sleep(ROUND));
        let timer = async move {
            pause.await;
            let Some(legs) = own.upgrade() else { return };
            {
                let mut state = legs.state.lock();
                (state.has_timer, state.is_round_due) = (false, true);
            }
            legs.wake_owner();
        };
        self.runtime.spawn("legs timer", Box::pin(timer));
    }

    /// One round of settling (ML4).
    pub(super) async fn settle(&self) -> Result<(), DiskError> {
        let (has_any, is_count_due) = {
            let mut state = self.state.lock();
            state.is_round_due = false;
            state.round += 1;
            state.declarations = 0;
            state.unsure.values_mut().for_each(|unsure| unsure.is_stuck = false);
            let round = state.round;
            let is_quiet = |region: &Region| region.writes == 0 && region.touched + 1 < round;
            let has_any = state.regions.iter().any(|(id, region)| is_quiet(region) && state.can_settle(*id));
            (has_any, state.is_step_due())
        };
        if has_any || is_count_due {
            // Its first flush makes the data durable, too. So whoever has the new tally has all of it (ML11).
            if planted::is("cleared_uncounted") {
                self.flush().await?;
            } else if !planted::is("settled_unflushed") {
                self.count().await?;
            }
        }
        if has_any {
            let round = self.state.lock().round;
            self.intents_turn().await;
            let blocks: BTreeSet<BlockId> = {
                let mut state = self.state.lock();
                let is_quiet = |region: &Region| region.writes == 0 && region.touched + 1 < round;
                let quiet = state.regions.iter().filter(|(id, region)| is_quiet(region) && state.can_settle(**id));
                let quiet: Vec<RegionId> = quiet.map(|(id, _)| *id).collect();
                for region in &quiet {
                    state.regions.remove(region);
                }
                quiet.into_iter().map(block_of).collect()
            };
            // A bit that stays set costs a copy after a power cut, and nothing else.
            let _failed = self.write_blocks(&blocks, false).await;
            self.end_intents();
        }
        self.start_timer();
        Ok(())
    }

    /// The group is closed, and nobody writes any more: what is the same on both legs is settled, so that nothing is copied
    /// when the group is opened again.
    ///
    /// # Errors
    /// It is copied then.
    pub async fn close(&self) -> Result<(), DiskError> {
        {
            let mut state = self.state.lock();
            if state.stopped.is_some() || state.pvs.is_read_only || state.regions.is_empty() {
                return Ok(());
            }
            // A write that is in flight, or begins still, keeps its region open.
            state.round += 1;
        }
        self.settle().await
    }

    pub(super) fn set_active(&self) {
        let is_active = !self.state.lock().table.is_empty();
        self.is_active.store(is_active, Ordering::Release);
    }
}
