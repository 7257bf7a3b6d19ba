//! Whether a disk answers. Requests are not timed: each call compares the counters with those of the last call.

use crate::reactor::IoFile;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// What was seen of a disk when it was last looked at.
#[derive(Default)]
pub(super) struct Watch(Mutex<Option<Seen>>);

struct Seen {
    /// Requests that had been answered, while others were under way.
    answers: u64,
    since: Instant,
}

impl Watch {
    /// How long requests have been in flight without any answer, by the calls so far. Of a request to several disks only
    /// the part on this disk counts: the others may have answered.
    pub fn silence(&self, file: &IoFile) -> Option<Duration> {
        // In this order: a request that ends in between is an answer.
        let is_busy = file.meter.is_busy();
        self.look_at(is_busy, file.answers(), Instant::now())
    }

    fn look_at(&self, is_busy: bool, answers: u64, now: Instant) -> Option<Duration> {
        let mut seen = self.0.lock();
        match &*seen {
            _ if !is_busy => *seen = None,
            Some(before) if before.answers == answers => return Some(now.duration_since(before.since)),
            _ => *seen = Some(Seen { answers, since: now }),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_silent_from_the_check_after_its_last_answer() {
        let (watch, start) = (Watch::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let silent = [
            watch.look_at(true, 1, at(0)),
            watch.look_at(true, 1, at(5)),
            watch.look_at(true, 2, at(10)),
            watch.look_at(true, 2, at(15)),
            watch.look_at(false, 3, at(20)),
            watch.look_at(true, 3, at(25)),
        ];
        assert_eq!(silent.map(|time| time.map(|time| time.as_secs())), [None, Some(5), None, Some(5), None, None]);
    }
}
