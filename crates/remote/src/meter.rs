//! Progress on a terminal, with the time that is left.

use rowen_control::status::duration;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(250);

pub struct Meter {
    what: String,
    total: u64,
    begun: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    if power == 0 {
        return format!("{bytes} B");
    }
    format!("{:.2} {}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power])
}

impl Meter {
    /// `total`: 0 if it is not known.
    pub fn new(what: String, total: u64) -> Meter {
        Meter { what, total, begun: Instant::now(), shown: None, is_terminal: io::stderr().is_terminal() }
    }

    /// In bytes.
    pub fn show(&mut self, done: u64) {
        self.line(done, &|bytes| size(bytes));
    }

    /// In things.
    pub fn count(&mut self, done: u64, total: u64) {
        self.total = total;
        self.line(done, &|count| count.to_string());
    }

    fn line(&mut self, done: u64, shown: &dyn Fn(u64) -> String) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let passed = self.begun.elapsed().as_secs_f64();
        let mut line = format!("  {}: {}", self.what, shown(done));
        if self.total > 0 {
            let percent = 100.0 * done as f64 / self.total as f64;
            line.push_str(&format!(" of {}, {:.0} %", shown(self.total), percent.min(100.0)));
            if passed > 3.0 && done > 0 && done < self.total {
                let left = passed * (self.total - done) as f64 / done as f64;
                line.push_str(&format!(", {} left", duration(left.ceil() as u64)));
            }
        }
        let _nobody_reads = write!(io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _nobody_reads = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
