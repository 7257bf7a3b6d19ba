//! Something that ends once, and is waited for.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Becomes true once.
#[derive(Default)]
pub struct Ended {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    pub fn set(&self) {
        *self.ended.lock() = true;
        self.changed.notify_all();
    }

    pub fn wait(&self, limit: Duration) -> bool {
        let mut ended = self.ended.lock();
        !self.changed.wait_while_for(&mut ended, |ended| !*ended, limit).timed_out()
    }
}
