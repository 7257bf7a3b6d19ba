//! Allocation of whole runs: for thick volumes, metadata and the journal.

use super::{AllocContext, AllocError, OpenArenas, Run, Space};
use crate::map::MapError;
use crate::model::SegmentType;
use std::ops::Range;

impl Space {
    /// Contiguous space for a thick volume, in as few pieces as possible: from the `places`, or from everywhere if
    /// there are none. All or nothing, on the account `Open`. `Err`: only this many blocks are free.
    pub fn alloc_large(
        &mut self,
        context: AllocContext<'_>,
        segment: SegmentType,
        blocks: u64,
        places: &[Range<u64>],
    ) -> Result<Result<Vec<Run>, u64>, MapError> {
        if blocks > self.available_for(segment) {
            return Ok(Err(self.available_for(segment)));
        }
        let mut out: Vec<Run> = Vec::new();
        let outcome = self.gather(context, segment, blocks, places, &mut out);
        if let Ok(true) = outcome {
            return Ok(Ok(out));
        }
        // These blocks were never used: they become free at once.
        let found = out.iter().map(|(_, len)| len).sum();
        for run in out {
            if self.put_run(context, run).is_err() {
                self.free_later(run);
            }
        }
        outcome.map(|_| Err(found))
    }

    /// False: there are too few.
    fn gather(
        &mut self,
        context: AllocContext<'_>,
        segment: SegmentType,
        mut left: u64,
        places: &[Range<u64>],
        out: &mut Vec<Run>,
    ) -> Result<bool, MapError> {
        let everywhere = 0..u64::MAX;
        let places = if places.is_empty() { std::slice::from_ref(&everywhere) } else { places };
        let mut min = left.min(u64::from(u32::MAX));
        while left > 0 {
            match self.search_places(context, segment, min.min(left), places)? {
                Some(e) => {
                    let run = (e.key, u64::from(e.len).min(left));
                    self.take_run(context, run)?;
                    out.push(run);
                    left -= run.1;
                }
                None if min > 1 => min = (min / 2).max(1),
                None if self.arena_unused() > 0 => self.close_arenas(context)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// One contiguous run of `blocks`, without alignment, for metadata and the journal; from `from` on if possible.
    pub fn alloc_contiguous(
        &mut self,
        context: AllocContext<'_>,
        blocks: u64,
        from: u64,
        open: OpenArenas,
    ) -> Result<Option<Run>, AllocError> {
        if self.allocatable_blocks(SegmentType::Linear) < blocks {
            return Ok(None);
        }
        if open == OpenArenas::Stay {
            return self.alloc_ahead(context, blocks, from);
        }
        let places = [from..u64::MAX, 0..u64::MAX];
        if open == OpenArenas::Close && self.search_places(context, SegmentType::Linear, blocks, &places)?.is_none() {
            match self.close_arenas(context) {
                // Some arenas were closed: that may be enough.
                Ok(()) | Err(MapError::NoSpace) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(e) = self.search_places(context, SegmentType::Linear, blocks, &places)? else { return Ok(None) };
        let run = (e.key, blocks);
        self.take_run(context, run)?;
        Ok(Some(run))
    }

    /// The same ahead of need: takes no reserved space (S4), and does not search. While arenas are made of whole runs,
    /// there are extents behind the last arena. Before it there may be millions of pieces.
    fn alloc_ahead(&mut self, context: AllocContext<'_>, blocks: u64, from: u64) -> Result<Option<Run>, AllocError> {
        if self.available() < blocks || self.allocatable_in_tree(SegmentType::Linear) < self.no_extent_below {
            return Ok(None);
        }
        let mut leaves = self.part.leaves();
        let search_from = self.class(SegmentType::Linear).search_from;
        let places = from.max(search_from)..u64::MAX;
        let Some(e) = self.search_in(context, SegmentType::Linear, blocks, places, &mut leaves)? else {
            if from <= search_from && leaves > 0 {
                // The run that was taken with it becomes free again.
                self.no_extent_below = self.allocatable_in_tree(SegmentType::Linear) + 2 * blocks;
            }
            return Ok(None);
        };
        let run = (e.key, blocks);
        self.take_run(context, run)?;
        Ok(Some(run))
    }
}
