//! When to start a server again: at once, then after growing pauses, and at last no more.

use std::time::{Duration, Instant};

/// So many servers that failed in a row are enough.
pub const GIVE_UP: u32 = 10;
/// A server that served for so long has not failed, whatever ends it then.
const PROVEN: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    StartAt(Instant),
    GiveUp,
}

/// The servers so far.
#[derive(Default)]
pub struct Restarts {
    any: bool,
    failures: u32,
    serving_since: Option<Instant>,
}

impl Restarts {
    /// A server took over.
    pub fn serving(&mut self, now: Instant) {
        self.any = true;
        self.serving_since = Some(now);
    }

    /// Whether there ever was a server.
    pub fn any(&self) -> bool {
        self.any
    }

    /// A server ended, or one that was started never took over.
    pub fn ended(&mut self, now: Instant) -> Next {
        let proven = self.serving_since.take().is_some_and(|since| now.duration_since(since) >= PROVEN);
        if proven {
            self.failures = 0;
            return Next::StartAt(now);
        }
        self.failures += 1;
        match self.failures {
            GIVE_UP.. => Next::GiveUp,
            failures => Next::StartAt(now + LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.pow(failures - 1))),
        }
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proven_server_is_replaced_at_once_and_forgives_failures() {
        let start = Instant::now();
        let mut restarts = Restarts::default();
        for _ in 0..GIVE_UP - 1 {
            assert!(matches!(restarts.ended(start), Next::StartAt(_)));
        }
        restarts.serving(start);
        assert_eq!(restarts.ended(start + PROVEN), Next::StartAt(start + PROVEN));
        assert_eq!(restarts.failures(), 0);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_then_it_gives_up() {
        let now = Instant::now();
        let mut restarts = Restarts::default();
        let mut last = Duration::ZERO;
        for _ in 0..GIVE_UP - 1 {
            restarts.serving(now);
            let Next::StartAt(at) = restarts.ended(now) else { panic!("gave up early") };
            let pause = at - now;
            assert!(pause >= last && pause <= LONGEST_PAUSE);
            last = pause;
        }
        assert_eq!(last, LONGEST_PAUSE);
        assert_eq!(restarts.ended(now), Next::GiveUp);
    }
}
