//! When to start a server again (K5): at once, or after growing pauses. It never gives up: applications wait while a
//! volume is kept, and the cause of the failure (a missing disk, memory) may pass.

use std::time::{Duration, Instant};

/// A server that served for this long has not failed, however it ends.
const PROVEN: Duration = Duration::from_millis(200);
/// Short: servers that are killed one after another have applications that wait, too.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Between servers that never took over. Something that they need is missing, so more starts would not help.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Between servers that took over and ended early. Each answers some requests of the applications, so the next one comes
/// soon. With [`PROVEN`] it bounds the rate: servers that crash for ever are started at most five times a second.
const LONGEST_PAUSE_SERVED: Duration = Duration::from_millis(200);

/// The servers so far.
#[derive(Default)]
pub struct Restarts {
    any: bool,
    /// Servers in a row that ended early.
    failures: u32,
    /// The last servers of these that never took over.
    never_served: u32,
    took_over: Option<Instant>,
}

impl Restarts {
    /// A server has connected. It has not taken over yet.
    pub fn arrived(&mut self) {
        self.any = true;
        self.took_over = None;
    }

    /// The connected server serves all kept volumes. It may report this more than once.
    pub fn took_over(&mut self, now: Instant) {
        self.took_over.get_or_insert(now);
    }

    /// Whether there ever was a server.
    pub fn any(&self) -> bool {
        self.any
    }

    fn is_proven(&self, now: Instant) -> bool {
        self.took_over.is_some_and(|since| now.duration_since(since) >= PROVEN)
    }

    /// A server ended, or one that was started never came: how long to wait before the next is started.
    pub fn ended(&mut self, now: Instant) -> Duration {
        if self.is_proven(now) {
            *self = Restarts { any: self.any, ..Restarts::default() };
            return Duration::ZERO;
        }
        self.failures = self.failures.saturating_add(1);
        match self.took_over.take() {
            Some(_) => {
                self.never_served = 0;
                LONGEST_PAUSE_SERVED.min(doubled(self.failures))
            }
            None => {
                self.never_served = self.never_served.saturating_add(1);
                LONGEST_PAUSE.min(doubled(self.never_served))
            }
        }
    }

    /// The state, for another program that continues.
    pub fn noted(&self, now: Instant) -> (bool, u32, u32, Option<Duration>) {
        let since = self.took_over.map(|since| now.saturating_duration_since(since));
        (self.any, self.failures, self.never_served, since)
    }

    /// The state that another program noted.
    pub fn of(noted: (bool, u32, u32, Option<Duration>), now: Instant) -> Restarts {
        let (any, failures, never_served, since) = noted;
        // If the clock does not go back so far, it took over when the machine was started.
        let took_over = since.map(|since| now.checked_sub(since).unwrap_or(now));
        Restarts { any, failures, never_served, took_over }
    }

    /// The cause of the failures is repaired, so the next server need not wait.
    pub fn forgive(&mut self) {
        (self.failures, self.never_served) = (0, 0);
    }

    /// The number of servers in a row that ended early. 0 after another has served for longer.
    pub fn failures(&self, now: Instant) -> u32 {
        if self.is_proven(now) { 0 } else { self.failures }
    }
}

/// The pause after this many servers.
fn doubled(servers: u32) -> Duration {
    FIRST_PAUSE * 2u32.pow(servers.saturating_sub(1).min(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    /// A clock and the servers that came and went by it.
    struct Life {
        now: Instant,
        restarts: Restarts,
    }

    impl Life {
        fn new() -> Life {
            Life { now: Instant::now(), restarts: Restarts::default() }
        }

        /// A server that takes over at once and lives for so long; the pause after it.
        fn serves(&mut self, life: Duration) -> Duration {
            self.restarts.arrived();
            self.restarts.took_over(self.now);
            self.now += life;
            self.pause()
        }

        /// A server that lives for so long and never takes over.
        fn arrives(&mut self, life: Duration) -> Duration {
            self.restarts.arrived();
            self.now += life;
            self.pause()
        }

        fn pause(&mut self) -> Duration {
            let pause = self.restarts.ended(self.now);
            self.now += pause;
            pause
        }
    }

    #[test]
    fn a_proven_server_is_replaced_at_once_and_forgives_failures() {
        let mut life = Life::new();
        for _ in 0..9 {
            assert!(life.pause() > Duration::ZERO);
        }
        assert_eq!(life.restarts.failures(life.now), 9);
        assert_eq!(life.serves(PROVEN), Duration::ZERO);
        assert_eq!(life.restarts.failures(life.now), 0);
        life.pause();
        life.pause();
        life.restarts.forgive();
        assert_eq!(life.pause(), FIRST_PAUSE);
    }

    #[test]
    fn failures_are_over_while_a_proven_server_lives() {
        let mut life = Life::new();
        life.pause();
        life.restarts.arrived();
        life.restarts.took_over(life.now);
        assert_eq!(life.restarts.failures(life.now), 1);
        assert_eq!(life.restarts.failures(life.now + PROVEN), 0);
    }

    #[test]
    fn servers_that_never_take_over_have_pauses_that_grow_to_a_bound_and_no_end() {
        // Those that never came, and those that came and lived for long without serving.
        for lives in [None, Some(Duration::ZERO), Some(10 * PROVEN)] {
            let mut life = Life::new();
            life.serves(PROVEN);
            let mut last = Duration::ZERO;
            for at in 0..1000 {
                let pause = match lives {
                    None => life.pause(),
                    Some(lives) => life.arrives(lives),
                };
                assert!(pause >= last && pause > Duration::ZERO && pause <= LONGEST_PAUSE);
                assert!(at == 0 || pause == LONGEST_PAUSE || pause == 2 * last, "{at}: {pause:?} after {last:?}");
                last = pause;
            }
            assert_eq!(last, LONGEST_PAUSE);
        }
    }

    #[test]
    fn servers_that_took_over_and_were_killed_have_short_pauses() {
        let mut life = Life::new();
        for _ in 0..1000 {
            let pause = life.serves(MOMENT);
            assert!(pause > Duration::ZERO && pause <= LONGEST_PAUSE_SERVED, "{pause:?}");
        }
        assert!(LONGEST_PAUSE_SERVED <= Duration::from_millis(250));
        // One that is killed in its start then is the first of its kind.
        assert_eq!(life.arrives(MOMENT), FIRST_PAUSE);
        assert_eq!(life.arrives(MOMENT), 2 * FIRST_PAUSE);
        // And those before one that took over are forgotten.
        life.serves(MOMENT);
        assert_eq!(life.arrives(MOMENT), FIRST_PAUSE);
    }

    #[test]
    fn servers_that_crash_for_ever_do_not_spin() {
        for lives in [Duration::ZERO, MOMENT, PROVEN - MOMENT, PROVEN] {
            let mut life = Life::new();
            let starts =
                |life: &mut Life, count| (0..count).for_each(|_| assert!(life.serves(lives) <= LONGEST_PAUSE_SERVED));
            starts(&mut life, 10);
            let begun = life.now;
            starts(&mut life, 100);
            assert!(life.now - begun >= 100 * PROVEN, "100 starts in {:?}", life.now - begun);
        }
    }
}
