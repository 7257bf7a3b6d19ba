//! When to start a server again: at once, then after growing pauses. Never no more: while a volume is kept its
//! applications wait, and what keeps a server from starting (a disk that is gone, memory) may pass.

use std::time::{Duration, Instant};

/// A server that served for so long has not failed, whatever ends it then. It has taken the volumes over by then.
const PROVEN: Duration = Duration::from_millis(200);
/// Short: servers that are killed one after another have applications that wait, too.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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

    /// A server ended, or one that was started never took over: when to start the next.
    pub fn ended(&mut self, now: Instant) -> Instant {
        let proven = self.serving_since.take().is_some_and(|since| now.duration_since(since) >= PROVEN);
        if proven {
            self.failures = 0;
            return now;
        }
        self.failures = self.failures.saturating_add(1);
        now + LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.pow((self.failures - 1).min(10)))
    }

    /// What the servers failed at is put right: the next one need not wait for it.
    pub fn forgive(&mut self) {
        self.failures = 0;
    }

    /// Servers that failed in a row.
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
        for _ in 0..9 {
            assert!(restarts.ended(start) > start);
        }
        restarts.serving(start);
        assert_eq!(restarts.ended(start + PROVEN), start + PROVEN);
        assert_eq!(restarts.failures(), 0);
        restarts.ended(start);
        restarts.ended(start);
        restarts.forgive();
        assert_eq!(restarts.ended(start), start + FIRST_PAUSE);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_it_never_gives_up() {
        let now = Instant::now();
        let mut restarts = Restarts::default();
        let mut last = Duration::ZERO;
        for _ in 0..1000 {
            restarts.serving(now);
            let pause = restarts.ended(now) - now;
            assert!(pause >= last && pause > Duration::ZERO && pause <= LONGEST_PAUSE);
            last = pause;
        }
        assert_eq!(last, LONGEST_PAUSE);
    }
}
