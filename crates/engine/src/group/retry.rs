//! How long is tried: removal, whose nodes cannot be read now (rule D5 in `reclaim.rs`), and who needs room that does not come.

use crate::planted;
use crate::units::TreeId;
use std::time::Duration;

/// How long removal has waited for nodes of one tree that cannot be read now (D5).
#[derive(Default)]
pub(super) struct Retry {
    tree: TreeId,
    waited: Duration,
}

impl Retry {
    /// How long to wait before the next try; `None`: it has waited long enough.
    pub fn next(&mut self, tree: TreeId) -> Option<Duration> {
        if self.tree != tree {
            *self = Retry { tree, waited: Duration::ZERO };
        }
        if self.waited >= LONGEST_WAIT {
            return None;
        }
        let pause = self.waited.max(FIRST_WAIT);
        self.waited += pause;
        Some(pause)
    }

    /// A step was done. If nodes of the tree were skipped, removal does not wait as long for others.
    pub fn stepped(&mut self) {
        if self.waited < LONGEST_WAIT {
            self.waited = Duration::ZERO;
        }
    }
}

/// Whether somebody who needs room comes nearer to it. Free extents that are given one type can be wanted for another one at once,
/// for instance for what is written beside snapshots. Then two take them from each other, and neither gets enough.
#[derive(Default)]
pub(super) struct Nearer {
    least: Option<u64>,
    tries: u32,
}

impl Nearer {
    /// So much is lacking now. `is_freed`: blocks are being freed, which takes its time. False: it was tried often enough.
    pub fn goes_on(&mut self, lacking: u64, is_freed: bool) -> bool {
        if self.least.is_none_or(|least| lacking < least) {
            *self = Nearer { least: Some(lacking), tries: 0 };
        }
        self.tries += u32::from(!is_freed);
        self.tries <= TRIES || planted::is("room_sought_for_ever")
    }
}

/// So often in a row without coming nearer.
const TRIES: u32 = 32;

/// The first wait for a node that cannot be read now. Each further wait is as long as all earlier ones together.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// After this total time removal skips the unreadable nodes of a tree.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_no_nearer_gives_up() {
        let mut nearer = Nearer::default();
        for lacking in (0..100).rev() {
            assert!(nearer.goes_on(lacking, false), "each time less is lacking");
        }
        let tries = (0..1000).take_while(|_| nearer.goes_on(5, false)).count();
        assert_eq!(tries as u32, TRIES - 1);
    }

    #[test]
    fn what_is_being_freed_is_waited_for() {
        let mut nearer = Nearer::default();
        assert!((0..1000).all(|_| nearer.goes_on(5, true)));
    }
}
