//! Progress of a trim: see [`discards`](super::discards).

use crate::error::Error;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;

/// Progress of a trim.
#[derive(Clone, Debug, Default)]
pub struct TrimProgress {
    pub is_running: bool,
    /// Free blocks when it began, and those that were examined.
    pub total: u64,
    pub done: u64,
    /// Bytes that were discarded.
    pub bytes: u64,
    pub failed: Option<Error>,
}

#[derive(Default)]
pub(super) struct Discards {
    pub(super) is_running: AtomicBool,
    pub(super) is_stopped: AtomicBool,
    pub(super) trim: Mutex<TrimProgress>,
}

impl TrimProgress {
    pub(super) fn add(&mut self, done: u64, bytes: u64) {
        self.done += done;
        self.bytes += bytes;
    }
}
