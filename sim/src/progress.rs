//! The progress of a long run. The run ends at the last item, after a time, or at SIGINT or SIGTERM. It reports its
//! results each minute.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// A run of many worlds or images.
pub struct Progress {
    what: &'static str,
    all: Option<u64>,
    limit: Option<Duration>,
    begun: Instant,
    /// The time of the last report, since `begun`.
    reported: Duration,
    is_ended: Arc<AtomicBool>,
}

impl Progress {
    /// A run of `all` items (`None`: as many as there is time for) named `what`, for at most `minutes`. From now on
    /// signals end the run in order.
    pub fn new(what: &'static str, all: Option<u64>, minutes: Option<u64>) -> Progress {
        let is_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Without this, the signal would end the program, and the results would be lost.
            let _may_be_refused = signal_hook::flag::register(signal, is_ended.clone());
        }
        let limit = minutes.map(|minutes| Duration::from_secs(60 * minutes));
        Progress { what, all, limit, begun: Instant::now(), reported: Duration::ZERO, is_ended }
    }

    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Whether to run one more item after `done`. Reports to stderr each minute.
    pub fn continues(&mut self, done: u64, failures: u64) -> bool {
        let spent = self.begun.elapsed();
        if spent.saturating_sub(self.reported) >= MINUTE {
            self.reported = spent;
            eprintln!("{}", self.line(done, failures, spent));
        }
        !self.is_ended.load(Ordering::Relaxed) && self.limit.is_none_or(|limit| spent < limit)
    }

    fn line(&self, done: u64, failures: u64, spent: Duration) -> String {
        let minutes = |time: Duration| time.as_secs().div_ceil(60);
        let of = self.all.map_or(String::new(), |all| format!(" of {all}"));
        let for_the_rest = self.all.map(|all| spent.mul_f64(all.saturating_sub(done) as f64 / done.max(1) as f64));
        let time = self.limit.map(|limit| limit.saturating_sub(spent));
        let left = for_the_rest.into_iter().chain(time).min();
        let left = left.map_or(String::new(), |left| format!(", {} left", minutes(left)));
        format!("{done}{of} {}, {failures} failures; {} minutes{left}", self.what, minutes(spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_is_left() {
        let spent = Duration::from_secs(120);
        let line = |all, minutes| Progress::new("worlds", all, minutes).line(100, 0, spent);
        assert_eq!(line(Some(1000), None), "100 of 1000 worlds, 0 failures; 2 minutes, 18 left");
        assert_eq!(line(Some(1000), Some(5)), "100 of 1000 worlds, 0 failures; 2 minutes, 3 left");
        assert_eq!(line(None, Some(60)), "100 worlds, 0 failures; 2 minutes, 58 left");
        assert_eq!(line(None, None), "100 worlds, 0 failures; 2 minutes");
    }

    #[test]
    fn a_signal_ends_a_run_in_order() {
        let mut progress = Progress::new("worlds", None, None);
        assert!(progress.continues(1, 0));
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(!progress.continues(2, 0));
    }
}
