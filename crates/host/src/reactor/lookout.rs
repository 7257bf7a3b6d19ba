//! Looking out for news for a moment before a worker sleeps. A sleeping processor takes several microseconds to wake,
//! in a virtual machine tens of them, and one small request at a time meets that twice: when it arrives and when the
//! disk is done.
//!
//! Promises: nobody looks out for longer than the limit; a worker whose news comes seldom does not look out at all, so
//! that an idle server takes no processor time; at most half of the processors are taken by it, and it stops as soon
//! as it is in another's way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A worker begins to look out after so many waits in a row that ended within the limit.
const HABIT: u32 = 2;
/// After looks in vain, or in another's way, it takes more of them, up to so many.
const LONGEST_HABIT: u32 = 512;
/// A look that took so long was interrupted by another thread.
const INTERRUPTED: Duration = Duration::from_micros(200);
/// Looks at the ring between two at the clock.
const LOOKS: u32 = 8;

/// The workers of a pool that may look out at a time: at most half of the processors, none if there is but one.
pub(crate) struct Places(AtomicUsize);

impl Places {
    pub fn new(processors: usize) -> Arc<Places> {
        Arc::new(Places(AtomicUsize::new(processors / 2)))
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn give(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One worker's habit of looking out for one kind of news.
#[derive(Clone)]
pub(crate) struct Lookout {
    limit: Duration,
    places: Arc<Places>,
    /// Waits in a row that ended within the limit.
    soon: u32,
    /// How many it takes.
    habit: u32,
}

impl Lookout {
    /// A limit of zero: never.
    pub fn new(limit: Duration, places: Arc<Places>) -> Lookout {
        Lookout { limit, places, soon: 0, habit: HABIT }
    }

    /// Whether it is worth while to look out now, for someone who may wait as long as `wait`.
    pub fn is_worth_while(&self, wait: Option<Duration>) -> bool {
        self.soon >= self.habit && wait.is_none_or(|wait| wait > self.limit)
    }

    /// Looks out until there is news (true) or the moment is over.
    pub fn look(&mut self, mut news: impl FnMut() -> bool) -> bool {
        if !self.places.take() {
            return false;
        }
        let begun = Instant::now();
        let mut last = begun;
        let mut interrupted = false;
        let found = loop {
            if (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                news()
            }) {
                break true;
            }
            let now = Instant::now();
            interrupted |= now - last > INTERRUPTED;
            last = now;
            if now - begun > self.limit {
                break false;
            }
        };
        self.places.give();
        self.learn(found, interrupted);
        found
    }

    /// Tells of a sleep that ended with news after this time.
    pub fn slept(&mut self, pause: Duration) {
        self.soon = if pause <= self.limit && !self.limit.is_zero() { self.soon.saturating_add(1) } else { 0 };
    }

    /// A look in vain after short sleeps tells that the look itself may have kept the news away: who was to bring it
    /// wanted the processor. So each makes the next rarer, and news makes them more frequent again.
    fn learn(&mut self, found: bool, interrupted: bool) {
        if interrupted {
            (self.soon, self.habit) = (0, (self.habit * 4).min(LONGEST_HABIT));
        } else if found {
            self.habit = (self.habit / 2).max(HABIT);
        } else {
            (self.soon, self.habit) = (0, (self.habit * 2).min(LONGEST_HABIT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    fn lookout(processors: usize) -> Lookout {
        Lookout::new(LIMIT, Places::new(processors))
    }

    fn sleeps(lookout: &mut Lookout, count: u32) {
        (0..count).for_each(|_| lookout.slept(LIMIT));
    }

    fn alert(processors: usize) -> Lookout {
        let mut lookout = lookout(processors);
        sleeps(&mut lookout, HABIT);
        lookout
    }

    #[test]
    fn only_who_gets_news_soon_looks_out() {
        let mut lookout = lookout(2);
        assert!(!lookout.is_worth_while(None));
        (0..100).for_each(|_| lookout.slept(LIMIT * 2));
        assert!(!lookout.is_worth_while(None));
        sleeps(&mut lookout, HABIT - 1);
        assert!(!lookout.is_worth_while(None), "one is no habit");
        lookout.slept(LIMIT);
        assert!(lookout.is_worth_while(None));
        assert!(!lookout.is_worth_while(Some(LIMIT)), "somebody is due before the moment is over");
        lookout.slept(LIMIT * 2);
        assert!(!lookout.is_worth_while(None), "a long sleep ends the habit");
        let mut never = Lookout::new(Duration::ZERO, Places::new(2));
        (0..100).for_each(|_| never.slept(Duration::ZERO));
        assert!(!never.is_worth_while(None));
    }

    #[test]
    fn looks_in_vain_make_the_next_rarer_and_news_more_frequent() {
        let mut lookout = alert(2);
        let mut needed = HABIT;
        while needed < LONGEST_HABIT {
            assert!(!lookout.look(|| false));
            needed *= 2;
            sleeps(&mut lookout, needed - 1);
            assert!(!lookout.is_worth_while(None), "after {needed}");
            lookout.slept(LIMIT);
            assert!(lookout.is_worth_while(None), "after {needed}");
        }
        for _ in 0..20 {
            assert!(lookout.look(|| true));
        }
        assert_eq!(lookout.habit, HABIT);
    }

    #[test]
    fn who_is_in_the_way_stops_at_once() {
        let mut lookout = alert(2);
        // So the look sees it when another thread has the processor meanwhile.
        let mut looks = 0;
        lookout.look(|| {
            looks += 1;
            if looks == LOOKS {
                std::thread::sleep(INTERRUPTED * 2);
            }
            false
        });
        assert!(lookout.habit >= HABIT * 4 && !lookout.is_worth_while(None));
    }

    #[test]
    fn a_look_ends_with_news_or_with_its_limit() {
        let mut lookout = alert(2);
        let mut looks = 0;
        assert!(lookout.look(|| {
            looks += 1;
            looks == 3
        }));
        assert_eq!(looks, 3);
        let begun = Instant::now();
        assert!(!lookout.look(|| false));
        assert!(begun.elapsed() > LIMIT);
        assert_eq!(lookout.places.0.load(Ordering::Relaxed), 1, "each look gave its place back");
    }

    #[test]
    fn at_most_half_of_the_processors_are_taken() {
        assert!(!alert(1).look(|| true), "the only processor is for those with work");
        let mut first = alert(4);
        let mut second = first.clone();
        let mut third = first.clone();
        assert!(first.look(|| second.look(|| !third.look(|| true))));
        assert!(first.look(|| true));
    }
}
