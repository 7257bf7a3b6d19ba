//! Short runs of free space for metadata, if no whole extent is free (M9).

use super::metadata::MIN_METADATA;
use super::{AllocContext, Run, Space};
use crate::map::{self, MapError};
use std::cmp::Reverse;
use std::ops::Range;

/// Leaves of the free tree from which runs are taken together, for each copy.
const LEAVES: usize = 16;
/// A smaller gain does not cover the nodes that change: one for each leaf, and some above them.
const MIN_GAIN: u64 = 2 * LEAVES as u64;

impl Space {
    /// Pairs of free runs of equal length for the growth of metadata, the longest ones among neighbouring leaves. The
    /// copies are on two physical volumes, if two have free space. None: there are too few.
    pub fn runs_for_metadata(&self, context: AllocContext<'_>) -> Result<Vec<[Run; 2]>, MapError> {
        let mut places = self.pvs.allocatable_each();
        places.sort_by_key(|(free, _)| Reverse(*free));
        let mut places = places.into_iter().map(|(_, place)| place);
        let Some(place) = places.next() else { return Ok(Vec::new()) };
        let mut first = self.longest(context, &place)?;
        let mut second = match places.next() {
            Some(place) => self.longest(context, &place)?,
            None => Vec::new(),
        };
        if blocks_of(&second) < MIN_GAIN {
            (first, second) = deal(first);
        }
        let pairs = pair_up(first, second);
        let gain: u64 = pairs.iter().map(|[run, _]| run.1).sum();
        Ok(if gain < MIN_GAIN { Vec::new() } else { pairs })
    }

    /// The free runs of some leaves, the longest first: first leaves behind the metadata in this place, then leaves
    /// from its beginning. As many as both copies need.
    fn longest(&self, context: AllocContext<'_>, place: &Range<u64>) -> Result<Vec<Run>, MapError> {
        let from = context.meta.lock().last_end_in(place).unwrap_or(place.start).min(place.end);
        let mut runs = Vec::new();
        let mut leaves = LEAVES;
        for part in [from..place.end, place.start..from] {
            self.runs_in(context, part, &mut leaves, &mut runs)?;
        }
        runs.sort_by_key(|(start, len)| (Reverse(*len), *start));
        let mut taken = 0;
        let enough = |(_, len): &Run| {
            let before = taken;
            taken += len;
            before < 2 * MIN_METADATA
        };
        Ok(runs.into_iter().take_while(enough).collect())
    }

    fn runs_in(
        &self,
        context: AllocContext<'_>,
        mut part: Range<u64>,
        leaves: &mut usize,
        runs: &mut Vec<Run>,
    ) -> Result<(), MapError> {
        while part.start < part.end && *leaves > 0 {
            let step = map::walk_step(context.cache, &self.free_tree, part.start, &|_, _, _| Ok(false))?;
            let extents = step.leaf.iter().flat_map(|leaf| leaf.extents());
            let within = extents.filter_map(|e| e.cut(part.start, part.end));
            runs.extend(within.map(|e| (e.key, u64::from(e.len))));
            *leaves -= 1;
            part.start = step.next.unwrap_or(u64::MAX);
        }
        Ok(())
    }

    /// Takes a run out of free space, if all of it is free and allocatable (S6).
    pub fn take_if_free(&mut self, context: AllocContext<'_>, run: Run) -> Result<bool, MapError> {
        let mut found = map::Extents::new();
        map::lookup(context.cache, &self.free_tree, run.0, run.0 + run.1, &mut found)?;
        let is_free = !self.pvs.is_unallocatable(run.0) && found.iter().map(|e| u64::from(e.len)).sum::<u64>() == run.1;
        if is_free {
            self.take_run(context, run)?;
        }
        Ok(is_free)
    }
}

fn blocks_of(runs: &[Run]) -> u64 {
    runs.iter().map(|(_, len)| len).sum()
}

/// Divides one list between both copies, about the same number of blocks for each.
fn deal(runs: Vec<Run>) -> (Vec<Run>, Vec<Run>) {
    let (mut more, mut fewer) = (Vec::new(), Vec::new());
    for run in runs {
        if blocks_of(&fewer) > blocks_of(&more) {
            std::mem::swap(&mut more, &mut fewer);
        }
        fewer.push(run);
    }
    if blocks_of(&fewer) > blocks_of(&more) {
        std::mem::swap(&mut more, &mut fewer);
    }
    // A single long run is divided between both.
    let half = (blocks_of(&more) - blocks_of(&fewer)) / 2;
    if let Some((start, len)) = more.first_mut()
        && half > 0
    {
        *len -= half;
        fewer.insert(0, (*start + *len, half));
    }
    (more, fewer)
}

/// Pairs of equal length from two lists, the longest first. The rest of a longer run is used for the next pair.
fn pair_up(first: Vec<Run>, second: Vec<Run>) -> Vec<[Run; 2]> {
    let mut left = MIN_METADATA;
    let mut lists = [first, second].map(|runs| runs.into_iter().peekable());
    let mut pairs = Vec::new();
    while left > 0
        && let [Some(a), Some(b)] = lists.each_mut().map(|list| list.peek_mut())
    {
        let len = a.1.min(b.1).min(left);
        if len > 0 {
            pairs.push([(a.0, len), (b.0, len)]);
        }
        for run in [a, b] {
            *run = (run.0 + len, run.1 - len);
        }
        left -= len;
        lists.iter_mut().for_each(|list| _ = list.next_if(|(_, len)| *len == 0));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_equally_long_and_take_no_block_twice() {
        let lists: [Vec<Run>; 4] = [
            vec![(100, 7), (10, 3), (20, 3), (50, 2), (60, 1)],
            vec![(0, 9)],
            vec![(0, 200), (300, 3)],
            (0..100).map(|n| (2 * n, 1)).collect(),
        ];
        for (runs, gain) in lists.into_iter().zip([8, 4, 101, 50]) {
            let (first, second) = deal(runs.clone());
            let pairs = pair_up(first, second);
            assert!(pairs.iter().all(|[a, b]| a.1 == b.1 && a.1 > 0), "{pairs:?}");
            assert_eq!(pairs.iter().map(|[a, _]| a.1).sum::<u64>(), gain, "{pairs:?}");
            let mut blocks: Vec<u64> = pairs.iter().flatten().flat_map(|(start, len)| *start..start + len).collect();
            blocks.sort_unstable();
            blocks.dedup();
            assert_eq!(blocks.len() as u64, 2 * gain);
            assert!(blocks.iter().all(|block| runs.iter().any(|(start, len)| (*start..start + len).contains(block))));
        }
        assert_eq!(pair_up(vec![(0, 1 << 30)], vec![(1 << 40, 1 << 30)]), [[(0, 256), (1 << 40, 256)]]);
    }
}
