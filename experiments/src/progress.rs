//! How far a run is and how long it will still take: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

pub struct Progress {
    begun: Instant,
    /// Expected seconds: of all parts, of those that are over, of the one under way; and its share that is done.
    all: f64,
    done: f64,
    part: f64,
    share: f64,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// A run that is expected to take this many seconds.
    pub fn new(all: f64) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress { begun: Instant::now(), all, done: 0.0, part: 0.0, share: 0.0, shown: None, is_terminal }
    }

    /// The next part begins. It is expected to take this many seconds.
    pub fn begin(&mut self, seconds: f64) {
        self.done += self.part;
        (self.part, self.share) = (seconds, 0.0);
    }

    /// A part with this expected number of seconds is not needed.
    pub fn leave_out(&mut self, seconds: f64) {
        self.all -= seconds;
    }

    /// Seconds that are left: what was expected, corrected by how the run went so far.
    pub fn left(&self, elapsed: f64) -> f64 {
        let done = self.done + self.part * self.share;
        let pace = if done > 0.02 * self.all { elapsed / done } else { 1.0 };
        ((self.all - done) * pace).max(0.0)
    }

    pub fn step(&mut self, what: &str, share: f64) {
        self.share = share.clamp(0.0, 1.0);
        let pause = if self.is_terminal { Duration::from_millis(100) } else { Duration::from_secs(10) };
        if self.shown.is_some_and(|shown| shown.elapsed() < pause) {
            return;
        }
        self.shown = Some(Instant::now());
        let share = ((self.done + self.part * self.share) / self.all.max(1.0)).min(1.0);
        let left = self.left(self.begun.elapsed().as_secs_f64());
        let time = format!("{}:{:02} left", left as u64 / 60, left as u64 % 60);
        if self.is_terminal {
            let bar = "#".repeat((share * 24.0) as usize);
            eprint!("\r\x1b[K[{bar:<24}] {:3.0} %  {time}  {what}", share * 100.0);
            // Nobody sees it then.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("[{:3.0} %, {time}] {what}", share * 100.0);
        }
    }

    /// A line that stays.
    pub fn line(&mut self, text: &str) {
        let clear = if self.is_terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace_of_the_run() {
        let mut progress = Progress::new(100.0);
        assert_eq!(progress.left(0.0), 100.0);
        progress.begin(50.0);
        progress.step("half of the first half", 0.5);
        // A quarter took twice as long as expected: so will the rest.
        assert_eq!(progress.left(50.0), 150.0);
        progress.begin(50.0);
        assert_eq!(progress.left(50.0), 50.0);
        progress.leave_out(10.0);
        assert_eq!(progress.left(50.0), 40.0);
        progress.leave_out(-10.0);
        progress.begin(0.0);
        assert_eq!(progress.left(400.0), 0.0);
    }
}
