//! Progress of a transfer for the user.

use crate::session::Session;
use rowen_engine::units::BLOCK_SIZE;
use std::time::Instant;

/// Progress, and the expected time to the end.
pub struct Meter {
    begun: Instant,
    what: String,
    total: u64,
}

impl Meter {
    pub fn new(what: String, total: u64) -> Meter {
        Meter { begun: Instant::now(), what, total }
    }

    pub fn show(&self, session: &mut Session<'_>, done: u64) {
        let passed = self.begun.elapsed().as_secs();
        let left = self.total.saturating_sub(done);
        let what = match passed.checked_mul(left).and_then(|seconds| seconds.checked_div(done)) {
            Some(seconds) if passed > 0 && self.total > 0 => format!("{}, {seconds} s left", self.what),
            _ => self.what.clone(),
        };
        let mib = |blocks: u64| (blocks * BLOCK_SIZE) >> 20;
        if self.total > 0 {
            session.console.progress(done.min(self.total), self.total, &what);
        } else {
            session.console.progress(mib(done), 0, &format!("{what}, MiB"));
        }
    }
}
