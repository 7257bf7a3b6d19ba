//! Volumes that grow and shrink.

use super::Group;
use super::create::{NODES_FOR_CHANGE, check_sizes, place_runs, refuse_places};
use super::retry::Nearer;
use crate::error::{Error, Result};
use crate::format::journal::Record;
use crate::map::{self, Fit};
use crate::model::PvExtents;
use crate::space::metadata::{RUNS_TOGETHER, blocks_for_runs};
use crate::units::{Seq, VolumeId};
use crate::volume::Volume;
use crate::volume::state::{apply_place, apply_unmap};
use std::ops::Range;
use std::sync::Arc;

impl Group {
    /// Grows or shrinks a volume to `blocks`. Blocks beyond a smaller end are discarded.
    pub async fn resize(self: &Arc<Self>, id: VolumeId, blocks: u64) -> Result<()> {
        self.resize_on(id, blocks, &[]).await
    }

    /// The same, with the new space of a thick volume from these places; from everywhere, if there are none.
    pub async fn resize_on(self: &Arc<Self>, id: VolumeId, blocks: u64, on: &[PvExtents]) -> Result<()> {
        check_sizes(blocks, 512, 1)?;
        let volume = self.volume(id)?;
        if !volume.state.lock().thick() {
            refuse_places(on)?;
        }
        let segment = volume.segment();
        let mut nearer = Nearer::default();
        loop {
            let places = self.places_of(segment, on)?;
            self.may_change()?;
            self.core.journal.admit().await?;
            let gate = volume.close_gate(true).await;
            let old = volume.state.lock().meta.blocks;
            let outcome = match blocks.cmp(&old) {
                std::cmp::Ordering::Equal => return Ok(()),
                std::cmp::Ordering::Greater => match self.core.require_all_pvs() {
                    Ok(()) => self.grow(&volume, blocks, &places).await,
                    Err(error) => Err(error),
                },
                std::cmp::Ordering::Less => self.shrink(&volume, blocks).await,
            };
            drop(gate);
            match outcome {
                Err(error @ Error::NoSpace { needed, free }) => {
                    let lacking = needed.saturating_sub(free);
                    if !self.room_for_volume(segment, lacking, on, &mut nearer).await? {
                        self.give_back_made(segment).await;
                        return Err(error);
                    }
                }
                outcome => {
                    self.core.space_use_changed();
                    return self.durable(outcome?).await;
                }
            }
        }
    }

    async fn grow(&self, volume: &Arc<Volume>, blocks: u64, places: &[Range<u64>]) -> Result<Seq> {
        let core = &self.core;
        // Growth changes only the right edge of the map: read it before space is allocated.
        core.with_nodes_privileged(|| {
            let state = volume.state.lock();
            let last = state.meta.blocks.saturating_sub(1);
            crate::map::lookup(&core.cache, &state.head.tree, last, blocks, &mut crate::map::Extents::new())
        })
        .await?;
        self.change(|| {
            let _gate = core.gate.read();
            let mut state = volume.state.lock();
            let old = state.meta.blocks;
            let runs = self.lay_out((state.meta.kind, state.meta.segment), blocks - old, places)?;
            let placed = place_runs(old, &runs);
            let record = Record::Resize { volume: volume.id, blocks, placed };
            self.check_fits(&record).inspect_err(|_| self.free_runs(&runs))?;
            let Record::Resize { placed, .. } = &record else { unreachable!("it was just made") };
            for (i, p) in placed.iter().enumerate() {
                if let Err(error) = apply_place(core, &mut state, p.lv_block, (p.vg_block.0, p.len)) {
                    // There is no record: the mappings are removed again.
                    apply_unmap(core, &mut state, old, p.lv_block.0, false)?;
                    self.free_runs(&runs[i..]);
                    return Err(error.into());
                }
            }
            state.meta.blocks = blocks;
            Ok(self.append(&record))
        })
        .await
    }

    async fn shrink(self: &Arc<Self>, volume: &Arc<Volume>, blocks: u64) -> Result<Seq> {
        self.check_writable()?;
        let core = &self.core;
        let record = Record::Resize { volume: volume.id, blocks, placed: Vec::new() };
        let needed = NODES_FOR_CHANGE + blocks_for_runs(RUNS_TOGETHER);
        core.admit_unmap(needed).await?;
        let seq = core.journal.append(&record, true);
        let outcome = self.shrink_written(volume, blocks, seq).await;
        core.journal.close(seq);
        core.meta.lock().unmap_done(needed);
        outcome.map(|()| seq)
    }

    /// The map changes after its record is on the disk (V2): otherwise a checkpoint could contain the map before the
    /// journal has the record.
    async fn shrink_written(self: &Arc<Self>, volume: &Arc<Volume>, blocks: u64, seq: Seq) -> Result<()> {
        if !self.core.planted("map_first") {
            self.core.journal.written(seq).await?;
        }
        let outcome = self.shrink_recorded(volume, blocks).await;
        if let Err(error) = &outcome {
            self.core.journal.poison(&format!("a volume could not be reduced: {error}"));
        }
        outcome
    }

    async fn shrink_recorded(self: &Arc<Self>, volume: &Arc<Volume>, blocks: u64) -> Result<()> {
        let core = &self.core;
        let old = volume.state.lock().meta.blocks;
        let mut at = blocks;
        while at < old {
            self.room_to_free().await?;
            let end = self.part_to_free(volume, at, old).await?;
            core.with_nodes_privileged(|| {
                let _gate = core.gate.read();
                apply_unmap(core, &mut volume.state.lock(), at, end, false)
            })
            .await?;
            at = end;
        }
        let _gate = core.gate.read();
        let mut state = volume.state.lock();
        let before = state.shortfall();
        state.meta.blocks = blocks;
        let change = state.shortfall() - before;
        core.space.lock().reserve_blocks(state.meta.segment, change);
        Ok(())
    }

    /// The end of the first part of the range, which frees at most as many runs as may be freed together. A hole at its
    /// beginning does not count, because a thin volume may be larger than any disk.
    pub(super) async fn part_to_free(&self, volume: &Volume, start: u64, end: u64) -> Result<u64> {
        const LONGEST: u64 = 1 << 16;
        const LEAVES: usize = 16;
        if self.core.planted("frees_unbounded") {
            return Ok(end.min(start + LONGEST));
        }
        let part = || {
            let state = volume.state.lock();
            let (cache, tree) = (&self.core.cache, &state.head.tree);
            let first = match map::first_fit(cache, tree, start, 1, LEAVES)? {
                Fit::Found(extent) if extent.key < end => extent.key,
                Fit::Found(_) | Fit::None => return Ok(end),
                Fit::Continue(from) => return Ok(from.min(end)),
            };
            let end = end.min(first + LONGEST);
            let mut found = map::Extents::new();
            map::lookup(cache, tree, first, end, &mut found)?;
            Ok(found.get(self.core.runs_together()).map_or(end, |extent| extent.key))
        };
        self.core.with_nodes_privileged(part).await
    }
}
