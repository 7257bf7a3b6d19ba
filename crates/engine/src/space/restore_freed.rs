//! The runs that the durable checkpoint freed, when a group is opened. A running group with little metadata makes them
//! usable over several checkpoints. So does recovery (rule L1 of the design):
//!
//! 1. [`Space::restore_freed`]: all runs are being committed.
//! 2. [`Space::finish_commit`] makes as many usable as the metadata blocks allow.
//! 3. Replay takes the blocks that records name out of the free tree, and out of the rest.
//! 4. [`Space::abort_commit`]: the rest waits for recovery's own checkpoint, which names it again.

use super::{Run, Space, join_runs};
use crate::format::packed::packed_len;

impl Space {
    /// The checkpoint frees these runs. False: it frees a block twice.
    pub fn restore_freed(&mut self, mut runs: Vec<Run>) -> bool {
        debug_assert!(self.committing.is_empty(), "nothing was freed before the group is opened");
        let is_sound = join_runs(&mut runs);
        self.committing_blocks = runs.iter().map(|(_, len)| len).sum();
        self.packed = (packed_len(&runs), 0);
        self.committing = runs;
        self.update_load();
        is_sound
    }

    /// The starts of the runs that will become usable next.
    pub fn next_to_commit(&self, runs: usize) -> Vec<u64> {
        self.committing.iter().rev().take(runs).map(|(start, _)| *start).collect()
    }

    /// Recovery: a record allocated these blocks after they were freed. The rest of the runs stays in order.
    pub(super) fn take_from_committing(&mut self, (start, len): Run) {
        let end = start + len;
        let mut i = self.committing.partition_point(|(at, len)| at + len <= start);
        while let Some((at, len)) = self.committing.get(i).copied().filter(|(at, _)| *at < end) {
            let (before, after) = ((at, start.saturating_sub(at)), (end, (at + len).saturating_sub(end)));
            let left: Vec<Run> = [before, after].into_iter().filter(|(_, len)| *len > 0).collect();
            self.committing_blocks -= len - left.iter().map(|(_, len)| len).sum::<u64>();
            let kept = left.len();
            self.committing.splice(i..=i, left);
            i += kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;

    #[test]
    fn records_take_their_blocks_out_of_what_is_still_to_be_freed() {
        let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(1000, 0)]));
        assert!(space.restore_freed(vec![(100, 10), (50, 5), (55, 5), (200, 1)]));
        assert_eq!(space.pending_all(), [(50, 10), (100, 10), (200, 1)]);
        for run in [(40, 12), (103, 2), (106, 100), (300, 1), (0, 1)] {
            space.take_from_committing(run);
        }
        assert_eq!(space.pending_all(), [(52, 8), (100, 3), (105, 1)]);
        assert_eq!(space.pending_blocks(), 12);
    }

    #[test]
    fn a_block_that_is_freed_twice_is_found() {
        assert!(!join_runs(&mut vec![(1, 2), (5, 5), (9, 1)]));
        assert!(!Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(10, 0)])).restore_freed(vec![(1, 1), (1, 1)]));
    }
}
