//! Dead blocks: blocks that a tree's parent maps and the tree no longer maps, counted by birth.
//!
//! * N1 Merges and reports compare births only with the epochs of points above the tree. So births with no point's
//!   epoch between them share one counter, that of the next point's epoch. The sums stay right when a point goes,
//!   because the points above a tree only become fewer.
//! * N2 At a checkpoint a tree has no more counters than there are points in the group, however many there were.

use crate::units::Epoch;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counters of dead blocks, births rising.
pub type DeadCounters = Vec<(Epoch, u64)>;

/// Counts dead blocks of this birth.
pub fn add(dead: &mut DeadCounters, birth: Epoch, blocks: u64) {
    match dead.binary_search_by_key(&birth, |(b, _)| *b) {
        Ok(i) => dead[i].1 += blocks,
        Err(i) => dead.insert(i, (birth, blocks)),
    }
}

/// Dead blocks that are younger than `lower`.
pub fn above(dead: &DeadCounters, lower: Epoch) -> u64 {
    dead.iter().filter(|(birth, _)| *birth > lower).map(|(_, blocks)| blocks).sum()
}

/// The parent no longer maps this many of the blocks that are younger than `lower`, the epoch of a point. A counter
/// that is too low, as in a damaged group, stops at zero.
pub fn take(dead: &mut DeadCounters, lower: Epoch, mut blocks: u64) {
    for (_, count) in dead.iter_mut().filter(|(birth, _)| *birth > lower) {
        let part = blocks.min(*count);
        *count -= part;
        blocks -= part;
    }
    dead.retain(|(_, count)| *count > 0);
}

/// Merges the counters of births with none of these epochs between them (N1). `epochs` rise.
pub fn fold(dead: &mut DeadCounters, epochs: &[Epoch]) {
    for (birth, _) in dead.iter_mut() {
        *birth = next(epochs, *birth);
    }
    dead.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        earlier.1 += if is_same { later.1 } else { 0 };
        is_same
    });
}

fn next(epochs: &[Epoch], birth: Epoch) -> Epoch {
    let at = epochs.partition_point(|epoch| *epoch < birth);
    epochs.get(at).copied().unwrap_or(birth)
}

/// The epochs of all points of a group.
pub struct PointEpochs {
    /// In order. Points that were made together have the same epoch.
    epochs: RwLock<Vec<Epoch>>,
    /// A point has gone since counters were folded.
    any_removed: AtomicBool,
    /// A planted bug leaves counters as they are.
    folds: bool,
}

impl PointEpochs {
    pub fn new(folds: bool) -> PointEpochs {
        PointEpochs { epochs: RwLock::default(), any_removed: AtomicBool::new(true), folds }
    }

    /// A point was made. Its children have no dead blocks yet.
    pub fn add(&self, epoch: Epoch) {
        // The tree was a head, and has no children.
        if epoch == Epoch(0) {
            return;
        }
        let mut epochs = self.epochs.write();
        let at = epochs.partition_point(|other| *other <= epoch);
        epochs.insert(at, epoch);
    }

    pub fn remove(&self, epoch: Epoch) {
        let mut epochs = self.epochs.write();
        if let Ok(at) = epochs.binary_search(&epoch) {
            epochs.remove(at);
            self.any_removed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a point has gone since the last call.
    pub fn take_removed(&self) -> bool {
        self.any_removed.swap(false, Ordering::Relaxed) && self.folds
    }

    /// The counter for blocks of this birth.
    pub fn counter(&self, birth: Epoch) -> Epoch {
        if self.folds { next(&self.epochs.read(), birth) } else { birth }
    }

    /// Blocks of this birth that were counted as dead are mapped again.
    pub fn revive(&self, dead: &mut DeadCounters, birth: Epoch, blocks: u64) {
        let lower = match self.folds {
            true => {
                let epochs = self.epochs.read();
                let older = epochs.partition_point(|epoch| *epoch < birth);
                older.checked_sub(1).map_or(Epoch(0), |at| epochs[at])
            }
            false => Epoch(birth.0.saturating_sub(1)),
        };
        take(dead, lower, blocks);
    }

    pub fn fold(&self, dead: &mut DeadCounters) {
        if self.folds {
            fold(dead, &self.epochs.read());
        }
    }

    /// How many different epochs there are.
    pub fn count(&self) -> usize {
        let mut epochs = self.epochs.read().clone();
        epochs.dedup();
        epochs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(counters: &[(u64, u64)]) -> DeadCounters {
        counters.iter().map(|(birth, blocks)| (Epoch(*birth), *blocks)).collect()
    }

    #[test]
    fn births_between_two_points_share_a_counter() {
        let mut counters = dead(&[(1, 1), (2, 2), (3, 4), (5, 8), (6, 16), (9, 32)]);
        let before = counters.clone();
        let points = PointEpochs::new(true);
        [3, 7, 7, 10].into_iter().for_each(|epoch| points.add(Epoch(epoch)));
        points.fold(&mut counters);
        assert_eq!(counters, dead(&[(3, 7), (7, 24), (10, 32)]));
        for lower in [0, 3, 7, 10] {
            assert_eq!(above(&counters, Epoch(lower)), above(&before, Epoch(lower)), "{lower}");
        }
        points.remove(Epoch(7));
        points.fold(&mut counters);
        assert_eq!(counters.len(), 3, "another of that epoch is left");
        points.remove(Epoch(7));
        points.fold(&mut counters);
        assert_eq!(counters, dead(&[(3, 7), (10, 56)]));
        assert_eq!((points.counter(Epoch(4)), points.counter(Epoch(11)), points.count()), (Epoch(10), Epoch(11), 2));
        take(&mut counters, Epoch(3), 50);
        assert_eq!(counters, dead(&[(3, 7), (10, 6)]));
        take(&mut counters, Epoch(0), 13);
        assert!(counters.is_empty());
    }

    #[test]
    fn what_is_mapped_again_leaves_the_counter_of_its_birth() {
        let points = PointEpochs::new(true);
        [3, 7].into_iter().for_each(|epoch| points.add(Epoch(epoch)));
        let mut counters = dead(&[(3, 5), (7, 5), (9, 5)]);
        for birth in [2, 4, 9] {
            points.revive(&mut counters, Epoch(birth), 1);
        }
        assert_eq!(counters, dead(&[(3, 4), (7, 4), (9, 4)]));
        // Counted while a point existed that has gone since.
        let mut counters = dead(&[(5, 2), (7, 2)]);
        points.revive(&mut counters, Epoch(6), 2);
        assert_eq!(above(&counters, Epoch(3)), 2);
    }
}
