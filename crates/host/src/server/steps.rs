//! The duration of each step of a start, for the log. After a server's death, users of its volumes wait for this time.

use std::fmt::{self, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The steps so far, with their durations in milliseconds.
pub struct Steps {
    at: SystemTime,
    begun: Instant,
    last: Instant,
    text: String,
}

impl Steps {
    pub fn begin() -> Steps {
        let now = Instant::now();
        Steps { at: SystemTime::now(), begun: now, last: now, text: String::new() }
    }

    /// This has been done since the last step.
    pub fn done(&mut self, what: &str) {
        self.done_at(what, Instant::now());
    }

    /// The same of something that was done at that time.
    pub fn done_at(&mut self, what: &str, at: Instant) {
        let comma = if self.text.is_empty() { "" } else { ", " };
        let took = at.saturating_duration_since(self.last).as_millis();
        // Writing to a string does not fail.
        let _ = write!(self.text, "{comma}{what} {took}");
        self.last = at;
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let took = self.last.saturating_duration_since(self.begun).as_millis();
        write!(f, "the start at {}.{:03} took {took} ms: {}", at.as_secs(), at.subsec_millis(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_step_has_its_time() {
        let mut steps = Steps::begin();
        steps.at = UNIX_EPOCH + Duration::from_millis(7_001);
        let begun = steps.begun;
        steps.done_at("found", begun + Duration::from_millis(3));
        steps.done_at("opened", begun + Duration::from_millis(45));
        assert_eq!(steps.to_string(), "the start at 7.001 took 45 ms: found 3, opened 42");
    }
}
