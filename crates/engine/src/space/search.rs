//! Searches of the free tree for runs of some length. They skip chunks that are known to have none ([`LongestRuns`]), so
//! that most searches need not read all leaves.
//!
//! [`LongestRuns`]: super::longest_run::LongestRuns

use super::longest_run::{CHUNK, ChunkSearch, LEAVES_FOR_ARENA, all_leaves, class};
use super::{ARENA_BLOCKS, AllocContext, AllocError, LARGE_RUNS, Run, Space};
use crate::map::{self, Extent, MapError};
use crate::model::SegmentType;
use crate::planted;
use smallvec::SmallVec;
use std::ops::Range;

/// The result of a search of one chunk.
enum ChunkResult {
    Found(Extent),
    /// No run of this length begins before this block.
    Next(u64),
    /// No run begins behind the chunk.
    End,
    /// The limit of leaves was reached.
    LimitReached,
}

impl Space {
    /// A free run for an arena: a whole one if there is one, otherwise one of the largest class. `None`: nothing is
    /// free.
    pub(super) fn find(&mut self, context: AllocContext<'_>, segment: SegmentType) -> Result<Option<Run>, AllocError> {
        let some = |e: Extent| Some((e.key, u64::from(e.len).min(ARENA_BLOCKS)));
        for (class, min) in LARGE_RUNS.into_iter().enumerate() {
            let free = self.allocatable_in_tree(segment);
            if free < self.class(segment).none_below[class] {
                continue;
            }
            // The remaining limit stays while nodes are read.
            let mut leaves = self.class(segment).leaves_for_arena;
            let found = self.search(context, segment, min, &mut leaves);
            let own = self.class_mut(segment);
            own.leaves_for_arena = leaves;
            if let Some(e) = found? {
                self.class_mut(segment).leaves_for_arena = LEAVES_FOR_ARENA;
                return Ok(some(e));
            }
            if leaves > 0 {
                self.class_mut(segment).none_below[class] = free + ARENA_BLOCKS;
            }
        }
        let found = self.search(context, segment, 1, &mut all_leaves())?;
        self.class_mut(segment).leaves_for_arena = LEAVES_FOR_ARENA;
        Ok(found.and_then(some))
    }

    /// The first free extent of at least `min` blocks behind the last arena, then from the start.
    pub(super) fn search(
        &mut self,
        context: AllocContext<'_>,
        segment: SegmentType,
        min: u64,
        leaves: &mut usize,
    ) -> Result<Option<Extent>, MapError> {
        for from in [self.class(segment).search_from, 0] {
            let found = self.search_in(context, segment, min, from..u64::MAX, leaves)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first free extent of at least `min` blocks in any of the `places`, in their order. The search is complete,
    /// so in a group that was just opened it may read the whole tree: in parts (LR3), between which the answer is
    /// [`MapError::Again`].
    pub(super) fn search_places(
        &mut self,
        context: AllocContext<'_>,
        segment: SegmentType,
        min: u64,
        places: &[Range<u64>],
    ) -> Result<Option<Extent>, MapError> {
        let mut leaves = if planted::is("search_not_divided") { all_leaves() } else { self.part.leaves() };
        for place in places {
            let found = self.search_in(context, segment, min, place.clone(), &mut leaves)?;
            if found.is_some() {
                self.part.done();
                return Ok(found);
            }
            if leaves == 0 {
                self.part.interrupted();
                return Err(MapError::Again);
            }
        }
        self.part.done();
        Ok(None)
    }

    /// The first free extent of at least `min` blocks in `place`; an extent may be cut to it. Reads at most this many
    /// unknown leaves.
    pub(super) fn search_in(
        &mut self,
        context: AllocContext<'_>,
        segment: SegmentType,
        min: u64,
        place: Range<u64>,
        leaves: &mut usize,
    ) -> Result<Option<Extent>, MapError> {
        let least = u32::try_from(min).unwrap_or(u32::MAX);
        let mut at = place.start;
        while let Some(open) = self.allocatable_from(segment, at) {
            let end = open.end.min(place.end);
            at = at.max(open.start);
            if at >= end {
                break;
            }
            // A run that begins before the place is not in its bound.
            let covering = self.extent_at(context, at)?.and_then(|e| e.cut(at, end)).filter(|e| e.len >= least);
            if covering.is_some() {
                return self.found(covering);
            }
            while at < end {
                at = self.longest.next(at, u64::from(least));
                if at >= end {
                    break;
                }
                match self.search_chunk(context, at..end, least, leaves)? {
                    ChunkResult::Found(e) => return self.found(Some(e)),
                    ChunkResult::Next(next) => at = next,
                    ChunkResult::End => at = end,
                    ChunkResult::LimitReached => return Ok(None),
                }
            }
            at = end;
        }
        Ok(None)
    }

    fn found(&mut self, extent: Option<Extent>) -> Result<Option<Extent>, MapError> {
        match extent {
            Some(e) if e.key != e.value => {
                Err(self.contradiction("S3", (e.key, u64::from(e.len)), "are free elsewhere"))
            }
            found => Ok(found),
        }
    }

    /// Searches the chunk in which the range begins, leaf by leaf, and keeps the bound that it finds.
    fn search_chunk(
        &mut self,
        context: AllocContext<'_>,
        range: Range<u64>,
        least: u32,
        leaves: &mut usize,
    ) -> Result<ChunkResult, MapError> {
        let chunk = range.start / CHUNK;
        let (first, stop) = (chunk * CHUNK, (chunk + 1) * CHUNK);
        let wanted = class(u64::from(least));
        // An unfinished search does not count if the run may be in the part that it has seen.
        let is_of_use =
            |search: &ChunkSearch| search.chunk == chunk && (search.most < wanted || search.at <= range.start);
        let earlier = self.longest.search.take().filter(is_of_use);
        let mut search = earlier.unwrap_or(ChunkSearch { chunk, at: first, run: (0, 0), most: 0 });
        let next = loop {
            // A search that was interrupted by a missing node resumes there, so a small cache need not hold the whole
            // chunk.
            self.longest.search = Some(search);
            if *leaves == 0 {
                return Ok(ChunkResult::LimitReached);
            }
            let from = search.at;
            let seen = map::leaf_from(context.cache, &self.free_tree, from, |extents| {
                for e in extents.filter(|e| e.key >= from) {
                    if e.key >= stop {
                        return Err(ChunkResult::Next(e.key));
                    }
                    if e.key >= range.end {
                        return Err(ChunkResult::End);
                    }
                    if let Some(part) = e.cut(range.start, range.end).filter(|part| part.len >= least) {
                        return Err(ChunkResult::Found(part));
                    }
                    search.add_extent(e.key, e.end());
                }
                Ok(())
            })?;
            *leaves -= 1;
            match seen {
                None => break None,
                Some((Err(ChunkResult::Next(key)), _)) => break Some(key),
                Some((Err(seen), _)) => return Ok(seen),
                Some((Ok(()), None)) => break None,
                Some((Ok(()), Some(end))) if end >= stop => break Some(end),
                Some((Ok(()), Some(end))) => search.at = end,
            }
        };
        let (begins, ends) = search.run;
        if ends > 0 {
            search.add_extent(begins, self.touching_end(context, ends)?);
        }
        self.longest.search = None;
        self.longest.settle(chunk, search.most, next);
        Ok(next.map_or(ChunkResult::End, ChunkResult::Next))
    }

    /// The free extent that has this block.
    fn extent_at(&self, context: AllocContext<'_>, block: u64) -> Result<Option<Extent>, MapError> {
        let first = map::leaf_from(context.cache, &self.free_tree, block, |extents| extents.next())?;
        Ok(first.and_then(|(first, _)| first).filter(|e| e.key <= block))
    }

    /// The end of the free blocks that begin at `end` without a gap: extents that lie in different leaves touch.
    fn touching_end(&self, context: AllocContext<'_>, mut end: u64) -> Result<u64, MapError> {
        while let Some(e) = self.extent_at(context, end)? {
            end = e.end();
        }
        Ok(end)
    }

    /// A run will be taken out of the tree. The rest behind it is a run of its own then (LR1).
    pub(super) fn will_take(&mut self, context: AllocContext<'_>, (start, len): Run) -> Result<(), MapError> {
        let end = start + len;
        let last = self.extent_at(context, end.saturating_sub(1).max(start))?;
        if let Some(last) = last.filter(|e| e.end() > end) {
            let to = self.touching_end(context, last.end())?;
            self.longest.raise(end, to - end);
        }
        Ok(())
    }

    /// A run will be put into the tree. It lengthens the runs that it touches (LR1).
    pub(super) fn will_put(&mut self, context: AllocContext<'_>, (start, len): Run) -> Result<(), MapError> {
        let to = self.touching_end(context, start + len)?;
        let mut begins: SmallVec<[u64; 4]> = SmallVec::from_slice(&[start]);
        let mut from = start;
        while let Some(e) = from.checked_sub(1).map(|block| self.extent_at(context, block)).transpose()?.flatten() {
            from = e.key;
            begins.push(from);
        }
        begins.into_iter().for_each(|from| self.longest.raise(from, to - from));
        Ok(())
    }
}
