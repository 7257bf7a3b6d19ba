//! Whether a worker returns to its loop, for the watchdog.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// A worker's pulse. Only its own thread changes it, so a beat costs a load and a store.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Odd while the worker waits for something to do.
    beats: AtomicU64,
    /// The worker's thread as the kernel knows it; 0 before it runs.
    thread: AtomicI32,
}

/// What is seen of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    pub beats: u64,
    pub thread: i32,
}

impl Beat {
    /// Whether the worker has nothing to do.
    pub fn waits(self) -> bool {
        self.beats % 2 == 1
    }
}

impl Pulse {
    /// Called by the worker's thread when it begins.
    pub(super) fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// Called by the worker when it turns to the kernel: with something to do, or to wait.
    pub(super) fn turns(&self, waits: bool) {
        self.add(if waits { 1 } else { 2 });
    }

    /// Called by the worker when it has waited.
    pub(super) fn has_waited(&self) {
        self.add(1);
    }

    fn add(&self, count: u64) {
        let beats = self.beats.load(Ordering::Relaxed);
        self.beats.store(beats.wrapping_add(count), Ordering::Relaxed);
    }

    /// What is seen of it from another thread.
    pub fn read(&self) -> Beat {
        Beat { beats: self.beats.load(Ordering::Relaxed), thread: self.thread.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_waits_is_distinguished_from_one_that_works() {
        let pulse = Pulse::default();
        assert!(!pulse.read().waits());
        pulse.turns(false);
        assert!(!pulse.read().waits());
        pulse.turns(true);
        assert!(pulse.read().waits());
        pulse.has_waited();
        assert!(!pulse.read().waits());
        assert_eq!(pulse.read().beats, 4);
    }
}
