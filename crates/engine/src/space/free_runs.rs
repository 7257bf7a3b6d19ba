//! The free blocks of a range, both in the free tree and in arenas.

use super::{AllocContext, Run, Space, join_runs};
use crate::map::{self, MapError};
use std::ops::Range;

impl Space {
    /// Free runs of blocks in the range, in order, until they have this many blocks. Also returns where the unsearched
    /// rest begins, if there is one.
    pub fn free_runs_in(
        &self,
        context: AllocContext<'_>,
        range: &Range<u64>,
        most: u64,
    ) -> Result<(Vec<Run>, Option<u64>), MapError> {
        let (mut runs, mut blocks, mut at): (Vec<Run>, u64, _) = (Vec::new(), 0, range.start);
        let mut next = None;
        while at < range.end && blocks < most {
            let found = map::leaf_from(context.cache, &self.free_tree, at, |extents| {
                for extent in extents {
                    let Some(part) = extent.cut(at, range.end) else { break };
                    let len = u64::from(part.len).min(most - blocks);
                    runs.push((part.key, len));
                    blocks += len;
                    if blocks == most {
                        return Some(part.key + len);
                    }
                }
                None
            })?;
            match found {
                Some((Some(cut), _)) => {
                    at = cut;
                    next = Some(cut);
                }
                Some((None, Some(leaf_end))) => at = leaf_end,
                Some((None, None)) | None => at = range.end,
            }
        }
        // Blocks of arenas are not in the tree.
        let end = next.unwrap_or(range.end);
        let first = self.arenas.range(..=range.start).next_back().map_or(range.start, |(base, _)| *base);
        for (base, arena) in self.arenas.range(first..end.max(first)) {
            for (start, len) in arena.unused_runs() {
                let (from, to) = ((base + start).max(range.start), (base + start + len).min(end));
                if from < to {
                    runs.push((from, to - from));
                }
            }
        }
        join_runs(&mut runs);
        Ok((runs, next.filter(|next| *next < range.end)))
    }
}
