//! Whole extents of free blocks, for legs and columns: taken from the physical volumes with most of them first, so that no
//! more are left over than must be ([`rows_on`](crate::stripes::rows_on)).

use super::Group;
use crate::error::{Error, Result};
use crate::legs::LARGEST_MIRRORED;
use crate::model::{PvExtents, SegmentType};
use crate::placement::PlacedRun;
use crate::space::Run;
use crate::stripes::rows_at_once;
use crate::units::BLOCK_SIZE;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where extents may be taken on one physical volume.
struct Places {
    pv: u16,
    /// Free blocks there.
    free: u64,
    places: Vec<Range<u64>>,
}

impl Group {
    /// Takes runs of free extents of the same length on so many physical volumes, for up to this many rows.
    pub(super) async fn take_rows(
        &self,
        columns: usize,
        rows: u64,
        on: &[PvExtents],
        taken: &mut Vec<Vec<Range<u64>>>,
    ) -> Result<()> {
        let extent_blocks = self.core.placement().extent_blocks;
        let mut left = rows;
        while left > 0 {
            let places = self.places_for_legs(on).await?;
            let free: Vec<u64> = places.iter().map(|there| there.free / extent_blocks).collect();
            let most = left.min(rows_at_once(&free, columns).max(1));
            let mut row: Vec<Range<u64>> = Vec::new();
            let mut outcome = Ok(());
            for there in places {
                if row.len() == columns {
                    break;
                }
                match self.take_extents_in(most, &there.places).await {
                    Ok(Some((start, len))) => row.push(start..start + len),
                    Ok(None) => {}
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            if outcome.is_err() || row.len() < columns {
                row.into_iter().for_each(|run| self.give_back(run));
                return outcome;
            }
            let blocks = row.iter().map(|run| run.end - run.start).min().unwrap_or(0);
            for run in &mut row {
                let rest = run.start + blocks..run.end;
                run.end = rest.start;
                if !rest.is_empty() {
                    self.give_back(rest);
                }
            }
            left -= blocks / extent_blocks;
            taken.push(row);
        }
        Ok(())
    }

    /// The places on each physical volume where legs and columns may lie, those of the volume with most free blocks first.
    async fn places_for_legs(&self, on: &[PvExtents]) -> Result<Vec<Places>> {
        let placement = self.core.placement();
        let wanted = self.places_on(on)?;
        let all: Vec<u64> = self.core.space.lock().pvs().free().collect();
        let highest = LARGEST_MIRRORED / BLOCK_SIZE;
        let mut found: Vec<Places> = Vec::new();
        for (pv, all) in (0..).zip(all).filter(|(_, all)| *all > 0) {
            let plain = placement.runs().iter().filter(|run| run.pv == pv && run.segment() == SegmentType::Linear);
            let near = plain.filter(|run| run.at < highest);
            let near = near.map(|run| run.start..run.end.min(run.start + (highest - run.at)));
            let within = |range: Range<u64>| -> Vec<Range<u64>> {
                match wanted.is_empty() {
                    true => vec![range],
                    false => wanted
                        .iter()
                        .map(|place| range.start.max(place.start)..range.end.min(place.end))
                        .filter(|part| part.start < part.end)
                        .collect(),
                }
            };
            let places: Vec<Range<u64>> = near.flat_map(within).collect();
            let free = match wanted.is_empty() {
                true => all,
                false => self.unused_in(places.clone()).await?,
            };
            if free > 0 && !places.is_empty() {
                found.push(Places { pv, free, places });
            }
        }
        found.sort_by_key(|there| Reverse(there.free));
        Ok(found)
    }

    pub(super) async fn take_extents_in(&self, most: u64, places: &[Range<u64>]) -> Result<Option<Run>> {
        let extent_blocks = self.core.placement().extent_blocks;
        let take = || {
            let _gate = self.core.gate.read();
            self.core.space.lock().take_extents(self.core.alloc_context(), most, extent_blocks, places)
        };
        self.core.with_nodes_privileged(take).await
    }

    /// These extents were not used.
    pub(super) fn give_back(&self, range: Range<u64>) {
        let _gate = self.core.gate.read();
        self.free_runs(&[(range.start, range.end - range.start)]);
    }

    /// The blocks in whole extents that are free at most on each physical volume where legs may lie.
    pub(super) async fn free_for_legs(&self, on: &[PvExtents]) -> Result<BTreeMap<u16, u64>> {
        let whole = |free: u64| free - free % self.core.placement().extent_blocks;
        Ok(self.places_for_legs(on).await?.into_iter().map(|there| (there.pv, whole(there.free))).collect())
    }

    /// Takes extents for the second leg of a run, or of its beginning.
    pub(super) async fn take_second(&self, run: &PlacedRun, on: &[PvExtents]) -> Result<Run> {
        let needed = run.end - run.start;
        let others: Vec<Places> =
            self.places_for_legs(on).await?.into_iter().filter(|there| there.pv != run.pv).collect();
        for there in &others {
            let second = self.take_extents_in(needed / self.core.placement().extent_blocks, &there.places).await?;
            if let Some(second) = second {
                return Ok(second);
            }
        }
        // What is free there is in pieces, or was taken meanwhile.
        Err(Error::NoSpace { needed, free: others.iter().map(|there| there.free).sum::<u64>().min(needed - 1) })
    }
}
