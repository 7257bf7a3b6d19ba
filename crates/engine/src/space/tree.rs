//! The free tree: taking runs out, putting runs back, and counting.

use super::metadata::MetaSpace;
use super::{ARENA_BLOCKS, AllocContext, Run, SEARCH_LEAVES, Space};
use crate::map::{self, Extent, Fit, MapError, NodeCache, NodeOwner, NodeRef};
use crate::model::SegmentType;
use crate::units::{Epoch, MetaBlock};
use std::ops::Range;

impl Space {
    /// The first range at or after `at` that is allocatable for volumes of this type (S6, S8).
    pub(super) fn allocatable_from(&self, segment: SegmentType, at: u64) -> Option<Range<u64>> {
        #[cfg(feature = "planted")]
        if self.take_unallocatable {
            return Some(at..u64::MAX);
        }
        self.pvs.allocatable(segment).iter().find(|open| open.end > at).cloned()
    }

    /// Free allocatable blocks that are not mirrored in the first leaves of `place`, and where the uncounted rest begins (none: all were
    /// counted). Without arenas.
    pub fn count_free(&self, context: AllocContext<'_>, place: &Range<u64>) -> Result<(u64, Option<u64>), MapError> {
        let (mut at, mut free) = (place.start, 0);
        let open = |e: &Extent| -> u64 {
            let parts = self
                .pvs
                .allocatable(SegmentType::Linear)
                .iter()
                .filter_map(|open| e.cut(open.start, open.end.min(place.end)));
            parts.map(|part| u64::from(part.len)).sum()
        };
        for _ in 0..COUNTED_TOGETHER {
            match map::first_fit(context.cache, &self.free_tree, at, 1, SEARCH_LEAVES)? {
                Fit::Found(e) => {
                    free += open(&e);
                    at = e.end();
                }
                Fit::Continue(next) => at = next,
                Fit::None => return Ok((free, None)),
            }
            if at >= place.end {
                return Ok((free, None));
            }
        }
        Ok((free, Some(at)))
    }

    pub(super) fn take_run(&mut self, context: AllocContext<'_>, run: Run) -> Result<(), MapError> {
        self.will_take(context, run)?;
        let mut meta = context.meta.lock();
        let mut owner = context.owner(&mut meta);
        let mut removed = Vec::new();
        map::replace(context.cache, &mut self.free_tree, &mut owner, run.0, run.0 + run.1, &[], &mut removed)?;
        let taken: u64 = removed.iter().map(|e| u64::from(e.len)).sum();
        if taken != run.1 {
            return Err(self.contradiction("S1", run, "were to be free"));
        }
        // In a damaged group the counter can be lower than what the tree has.
        let Some(free) = self.free.checked_sub(taken) else {
            return Err(self.contradiction("S3", run, "are more than are counted as free"));
        };
        self.free = free;
        let in_pieces = if run.1 < ARENA_BLOCKS { taken } else { 0 };
        self.scattered = self.scattered.saturating_sub(in_pieces).min(self.free);
        self.pvs.count(run, false);
        Ok(())
    }

    pub(super) fn put_run(&mut self, context: AllocContext<'_>, run: Run) -> Result<(), MapError> {
        self.will_put(context, run)?;
        let mut meta = context.meta.lock();
        let mut owner = context.owner(&mut meta);
        let mut removed = Vec::new();
        let extent = [run_extent(run)];
        map::replace(context.cache, &mut self.free_tree, &mut owner, run.0, run.0 + run.1, &extent, &mut removed)?;
        if !removed.is_empty() {
            return Err(self.contradiction("S3", run, "were free already"));
        }
        self.free += run.1;
        if run.1 < ARENA_BLOCKS {
            self.scattered = (self.scattered + run.1).min(self.free);
        }
        self.pvs.count(run, true);
        Ok(())
    }
}

/// The free tree's writer: all its nodes are its own.
struct FreeOwner<'a> {
    meta: &'a mut MetaSpace,
    cache: &'a NodeCache,
    generation: u64,
    keep: u64,
}

impl NodeOwner for FreeOwner<'_> {
    fn can_alloc(&self, nodes: usize) -> bool {
        self.meta.can_take(nodes as u64 + self.keep)
    }
    fn alloc(&mut self) -> MetaBlock {
        self.meta.alloc()
    }
    fn release(&mut self, node: NodeRef) {
        self.meta.release(node, self.generation, self.cache);
    }
    fn owned(&self, _: Epoch, _: u64) -> bool {
        true
    }
    fn birth(&self) -> Epoch {
        Epoch(0)
    }
    fn generation(&self) -> u64 {
        self.generation
    }
}

impl<'a> AllocContext<'a> {
    fn owner(self, meta: &'a mut MetaSpace) -> FreeOwner<'a> {
        FreeOwner { meta, cache: self.cache, generation: self.generation, keep: self.keep }
    }
}

fn run_extent((start, len): Run) -> Extent {
    let len = u32::try_from(len).expect("runs in the free tree are at most 2^32 - 1 blocks");
    Extent { key: start, len, value: start, birth: Epoch(0), flags: 0 }
}

/// Free extents counted in one step.
const COUNTED_TOGETHER: usize = 256;
