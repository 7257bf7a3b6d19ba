//! Blocks of the ring that cannot be written, and the place of a frame around them.
//!
//! * For J7 a frame lies on no bad block of the newest superblock. It begins at the first of the
//!   [`starts`](BadRuns::starts) that has room for it. Writer and reader call the same function.

use crate::units::BLOCK_SIZE;
use std::ops::Range;

/// The most runs of bad blocks that fit into a superblock.
pub const MAX_BAD_RUNS: usize = 16;

/// Blocks of the ring that cannot be written: runs in rising order, which do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRuns {
    runs: Vec<Range<u64>>,
}

impl BadRuns {
    /// None: the runs are invalid, or do not lie within a ring of `ring_blocks`.
    pub fn from_runs(runs: Vec<Range<u64>>, ring_blocks: u64) -> Option<Self> {
        let mut free_from = 0;
        for (n, run) in runs.iter().enumerate() {
            let is_apart = n == 0 || run.start > free_from;
            if run.is_empty() || !is_apart || run.end > ring_blocks {
                return None;
            }
            free_from = run.end;
        }
        Some(BadRuns { runs })
    }

    pub fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Adds a bad block.
    pub fn add(&mut self, block: u64) {
        let at = self.runs.partition_point(|run| run.end < block);
        match self.runs.get_mut(at) {
            Some(run) if run.contains(&block) => return,
            Some(run) if run.end == block => run.end += 1,
            Some(run) if run.start == block + 1 => run.start = block,
            _ => self.runs.insert(at, block..block + 1),
        }
        if self.runs.get(at + 1).is_some_and(|next| next.start == self.runs[at].end) {
            self.runs[at].end = self.runs.remove(at + 1).end;
        }
    }

    /// Whether one of these bytes of the ring is on a bad block.
    pub fn touches(&self, bytes: Range<u64>) -> bool {
        let overlaps = |run: &Range<u64>| run.start * BLOCK_SIZE < bytes.end && bytes.start < run.end * BLOCK_SIZE;
        self.runs.iter().any(overlaps)
    }

    /// Where a frame may begin if the frame before it ended at `position`: there, or behind a later bad run. Then the
    /// same from the first byte of the ring on.
    pub fn starts(&self, position: u64) -> impl Iterator<Item = u64> + '_ {
        let behind = move |first: u64, limit: u64| {
            let ends = self.runs.iter().map(|run| run.end * BLOCK_SIZE);
            std::iter::once(first).chain(ends.filter(move |end| *end > first)).filter(move |at| *at < limit)
        };
        behind(position, u64::MAX).chain(behind(0, position))
    }

    /// The place of a frame of `bytes` in a ring of `ring` bytes, and the number of bytes that are skipped for it.
    pub fn place(&self, position: u64, bytes: u64, ring: u64) -> Option<(u64, u64)> {
        let at = self.starts(position).find(|at| at + bytes <= ring && !self.touches(*at..at + bytes))?;
        Some((at, distance(position, at, ring)))
    }

    /// Whether a frame of `bytes` finds a place in an empty ring, wherever the frame before it ended. That end can make
    /// one of the possible places unusable.
    pub fn leaves_room(&self, bytes: u64, ring: u64) -> bool {
        let mut from = 0;
        let mut places = 0;
        let ring = ring..u64::MAX;
        for run in self.runs.iter().map(|run| run.start * BLOCK_SIZE..run.end * BLOCK_SIZE).chain([ring]) {
            places += (run.start - from) / bytes;
            from = run.end;
        }
        places >= 2
    }
}

/// Bytes from one place of the ring to another, going forward.
pub fn distance(from: u64, to: u64, ring: u64) -> u64 {
    (to + ring - from) % ring
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one run is what is meant")]
mod tests {
    use super::*;

    fn bad(blocks: &[u64]) -> BadRuns {
        let mut bad = BadRuns::default();
        blocks.iter().for_each(|block| bad.add(*block));
        bad
    }

    #[test]
    fn blocks_become_runs_in_any_order() {
        for order in [[5, 7, 6, 1, 9], [9, 1, 6, 7, 5], [6, 5, 7, 9, 1]] {
            assert_eq!(bad(&order).runs(), [1..2, 5..8, 9..10]);
        }
        assert_eq!(bad(&[3, 3, 4, 3]).runs(), [3..5]);
        assert_eq!(bad(&[1, 5, 6]).blocks(), 3);
    }

    #[test]
    fn only_runs_in_order_and_apart_are_read() {
        let read = |runs: &[Range<u64>]| BadRuns::from_runs(runs.to_vec(), 10).is_some();
        assert!(read(&[]) && read(&[0..1, 2..10]));
        assert!(!read(&[0..1, 1..2]) && !read(&[3..4, 1..2]) && !read(&[4..4]) && !read(&[8..11]));
    }

    #[test]
    fn a_frame_passes_over_bad_places() {
        const B: u64 = BLOCK_SIZE;
        let bad = bad(&[2, 5, 9]);
        assert_eq!(bad.starts(0).collect::<Vec<_>>(), [0, 3 * B, 6 * B, 10 * B]);
        assert_eq!(bad.starts(4 * B).collect::<Vec<_>>(), [4 * B, 6 * B, 10 * B, 0, 3 * B]);
        let place =
            |position: u64, blocks: u64| bad.place(position * B, blocks * B, 10 * B).map(|(at, by)| (at / B, by / B));
        assert_eq!(place(0, 2), Some((0, 0)));
        assert_eq!(place(1, 2), Some((3, 2)));
        assert_eq!(place(4, 3), Some((6, 2)));
        assert_eq!(place(7, 2), Some((7, 0)));
        assert_eq!(place(8, 2), Some((0, 2)));
        assert_eq!(place(8, 3), Some((6, 8)), "the place it came from, too: there may be no other");
        assert_eq!(place(0, 4), None);
    }

    #[test]
    fn what_leaves_room_has_a_place_from_everywhere() {
        const B: u64 = BLOCK_SIZE;
        let ring = 12;
        let mut refused = 0;
        for set in 0..1u64 << ring {
            let blocks: Vec<u64> = (0..ring).filter(|block| set >> block & 1 == 1).collect();
            let bad = bad(&blocks);
            for bytes in [B, 3 * B, 4 * B] {
                if !bad.leaves_room(bytes, ring * B) {
                    refused += 1;
                    continue;
                }
                for from in 0..ring {
                    let (at, skipped) = bad.place(from * B, bytes, ring * B).unwrap();
                    assert!(skipped + bytes <= ring * B, "{blocks:?}, {bytes} bytes from {from}: at {at}");
                }
            }
        }
        assert!(refused > 0);
    }
}
