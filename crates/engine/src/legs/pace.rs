//! What is copied or compared at once beside the requests of others.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes that are copied together.
pub const WINDOW: u64 = 512 << 10;
/// The same while others use the mirrors, on disks that do not turn: a request that comes meanwhile waits as long as the window is
/// transferred. Where each window takes two seeks, that counts for less than the number of windows.
pub const BESIDE_OTHERS: u64 = 128 << 10;

/// Counts the requests of others.
#[derive(Default)]
pub struct Pace {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A stretch of background work.
pub struct Lap {
    begun: u64,
    ended: u64,
}

impl Pace {
    /// A request of somebody else begins.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    pub fn start(&self) -> Lap {
        // In this order, so that no more have ended than have begun.
        let ended = self.ended.load(Ordering::Relaxed);
        Lap { begun: self.begun.load(Ordering::Relaxed), ended }
    }

    /// Whether nobody else had a request since then.
    pub fn is_alone(&self, since: &Lap) -> bool {
        since.begun == since.ended && self.begun.load(Ordering::Relaxed) == since.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_a_request_is_seen() {
        let pace = Pace::default();
        let lap = pace.start();
        assert!(pace.is_alone(&lap));
        pace.begin();
        assert!(!pace.is_alone(&lap) && !pace.is_alone(&pace.start()));
        pace.end();
        assert!(!pace.is_alone(&lap) && pace.is_alone(&pace.start()));
    }
}
