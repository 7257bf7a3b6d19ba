//! How long removal waits for nodes that cannot be read now (rule D5 in `reclaim.rs`).

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

/// The first wait for a node that cannot be read now. Each further wait is as long as all earlier ones together.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// After this total time removal skips the unreadable nodes of a tree.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
