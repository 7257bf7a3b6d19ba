//! How long removal waits for nodes that a disk does not read now (rule D5 in `reclaim.rs`).

use crate::units::TreeId;
use std::time::Duration;

/// How long removal has waited for nodes of one tree that cannot be read now (D5).
#[derive(Default)]
pub(super) struct Retry {
    tree: TreeId,
    waited: Duration,
}

impl Retry {
    /// How long to wait before the next try; `None`: long enough.
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

    /// A step was done. Where nodes of the tree were given up, the others are not waited for so long again.
    pub fn stepped(&mut self) {
        if self.waited < LONGEST_WAIT {
            self.waited = Duration::ZERO;
        }
    }
}

/// How long removal waits at first for a node that cannot be read now; then as long as it has waited already.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// After so long in all it goes on without the nodes of this tree that cannot be read.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
