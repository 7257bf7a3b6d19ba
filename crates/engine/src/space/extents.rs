//! Free whole extents, as the target of moves from another physical volume.

use super::{AllocContext, Run, Space};
use crate::map::MapError;
use crate::model::SegmentType;
use std::ops::Range;

impl Space {
    /// Takes a run of free extents in these places, on one physical volume: the longest run of at most `most` that is
    /// found quickly. None: no whole extent is free there, or all are reserved.
    pub fn take_extents(
        &mut self,
        context: AllocContext<'_>,
        most: u64,
        extent_blocks: u64,
        places: &[Range<u64>],
    ) -> Result<Option<Run>, MapError> {
        let taken = self.find_extents(context, most, extent_blocks, places)?;
        if taken.is_some() || self.arena_unused() == 0 {
            return Ok(taken);
        }
        self.close_arenas(context)?;
        self.find_extents(context, most, extent_blocks, places)
    }

    fn find_extents(
        &mut self,
        context: AllocContext<'_>,
        most: u64,
        extent_blocks: u64,
        places: &[Range<u64>],
    ) -> Result<Option<Run>, MapError> {
        let mut extents = most.min(self.available() / extent_blocks);
        while extents > 0 {
            // A run of this length contains that many whole extents, wherever it begins. For a single extent, every run
            // is checked.
            let least = if extents == 1 { extent_blocks } else { (extents + 1) * extent_blocks - 1 };
            let mut rest: Vec<Range<u64>> = places.to_vec();
            while let Some(found) = self.search_places(context, SegmentType::Linear, least, &rest)? {
                let start = found.key.next_multiple_of(extent_blocks);
                let end = found.end().min(self.pvs.end_of(start));
                let whole = (end.saturating_sub(start) / extent_blocks).min(extents);
                if whole > 0 {
                    let run = (start, whole * extent_blocks);
                    self.take_run(context, run)?;
                    return Ok(Some(run));
                }
                let behind = found.end().min(self.pvs.end_of(found.key));
                rest.retain_mut(|place| {
                    place.start = place.start.max(behind.min(place.end));
                    !place.is_empty()
                });
                if rest.is_empty() {
                    break;
                }
            }
            extents /= 2;
        }
        Ok(None)
    }

    /// Takes free blocks of this range, which is one run for volumes of this type, in whole `unit`s, but leaves this many
    /// blocks for such volumes. None: there are none.
    pub fn take_several(
        &mut self,
        context: AllocContext<'_>,
        segment: SegmentType,
        range: Range<u64>,
        unit: u64,
        kept: u64,
    ) -> Result<Option<Run>, MapError> {
        self.close_arenas(context)?;
        // Nobody counts on blocks that are not allocatable.
        let most = match self.pvs.is_closed(range.start) {
            true => u64::MAX,
            false => self.available_for(segment).saturating_sub(kept),
        };
        let most = most / unit * unit;
        let free = self.next_free_extents(context, range.start, range.end, unit)?;
        let len = (free.end - free.start).min(most);
        if len == 0 {
            return Ok(None);
        }
        let run = (free.end - len, len);
        self.take_run(context, run)?;
        Ok(Some(run))
    }
}
