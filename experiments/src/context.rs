//! What an experiment's body has: the disks of the place where it runs, which systems it measures there, its sizes, and the
//! ways to say a figure.
//!
//! The same body runs on the host and in user-mode-linux, and in two modes. *Timing*: a section's figure is the time it took.
//! *Recording*: the disks are behind a server that logs every request; a section says only when it began and ended, and its
//! figure comes later from a replay of what was logged between.

use crate::command::{self, Result};
use crate::measurement::{Origin, parameters};
use crate::stack::{Stack, System};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub const MIB: u64 = 1 << 20;

/// The disks of a place: each system has its own of the same kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disks {
    pub raw: PathBuf,
    pub rowen: PathBuf,
    /// LVM's, and a second for the other side of a mirror. None: there is no device-mapper in this place.
    pub lvm: Option<[PathBuf; 2]>,
}

/// What a section did, and so what its figure is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Quantity {
    /// Moved so many bytes: MB/s.
    Bytes(u64),
    /// Made so many requests, one after another: ms each.
    Requests(u64),
    /// Happened once: s.
    Once,
}

impl Quantity {
    pub fn unit(self) -> &'static str {
        match self {
            Quantity::Bytes(_) => "MB/s",
            Quantity::Requests(_) => "ms",
            Quantity::Once => "s",
        }
    }

    /// The figure of a section that took so many seconds.
    pub fn figure(self, seconds: f64) -> f64 {
        match self {
            Quantity::Bytes(bytes) => bytes as f64 / 1e6 / seconds,
            Quantity::Requests(requests) => seconds * 1e3 / requests.max(1) as f64,
            Quantity::Once => seconds,
        }
    }
}

/// Which figure: everything of a series that the body decides.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Key {
    pub system: System,
    pub metric: String,
    pub parameters: BTreeMap<String, String>,
    pub round: usize,
}

impl Key {
    pub fn new(system: System, metric: &str, pairs: &[(&str, &str)], round: usize) -> Key {
        Key { system, metric: metric.to_owned(), parameters: parameters(pairs), round }
    }
}

/// What a body says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    Figure {
        key: Key,
        unit: String,
        figure: f64,
    },
    NotRun {
        key: Key,
        unit: String,
        reason: String,
    },
    /// A section of a recorded run; microseconds since 1970.
    Section {
        key: Key,
        quantity: Quantity,
        begin: u64,
        end: u64,
    },
    /// So much of this body is done (0 to 1).
    Step {
        what: String,
        done: f64,
    },
    Kernel(String),
    Failed(String),
    Finished,
}

impl Event {
    /// Where a figure comes from that this event brings.
    pub fn origin(&self) -> Origin {
        match self {
            Event::Section { .. } => Origin::Modelled,
            Event::NotRun { .. } => Origin::NotRun,
            _ => Origin::Measured,
        }
    }
}

/// Sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Form {
    pub quick: bool,
    /// The shortest run that touches everything: for a test of the runner, with figures that mean nothing.
    pub smoke: bool,
    pub rounds: usize,
    /// MiB that a large write moves.
    pub mib: u64,
}

/// See the module.
pub struct Context {
    pub form: Form,
    pub dir: PathBuf,
    pub disks: Disks,
    pub rowen: PathBuf,
    pub systems: Vec<System>,
    pub recording: bool,
    pub tell: Box<dyn Fn(&Event)>,
}

impl Context {
    /// One of three, by the form of the run.
    pub fn pick<T: Clone>(&self, smoke: &[T], quick: &[T], full: &[T]) -> Vec<T> {
        let chosen = if self.form.smoke {
            smoke
        } else if self.form.quick {
            quick
        } else {
            full
        };
        chosen.to_vec()
    }

    /// The systems measured here, each round another one first.
    pub fn turn(&self, round: usize) -> Vec<System> {
        let mut systems = self.systems.clone();
        if !systems.is_empty() {
            let by = round % systems.len();
            systems.rotate_left(by);
        }
        systems
    }

    pub fn stack(&self, system: System) -> Stack<'_> {
        Stack { context: self, system }
    }

    pub fn step(&self, what: impl Into<String>, done: f64) {
        (self.tell)(&Event::Step { what: what.into(), done });
    }

    /// A figure that the body found by itself. Recorded runs have no such figures.
    pub fn figure(&self, key: Key, unit: &str, figure: f64) {
        if !self.recording {
            (self.tell)(&Event::Figure { key, unit: unit.to_owned(), figure });
        }
    }

    /// There is no such figure, and why.
    pub fn not_run(&self, key: Key, unit: &str, reason: &str) {
        if !self.recording {
            (self.tell)(&Event::NotRun { key, unit: unit.to_owned(), reason: reason.to_owned() });
        }
    }

    /// A section whose figure is its time: in this run, or on the disks of the models.
    pub fn section(&self, key: Key, quantity: Quantity, body: impl FnOnce() -> Result) -> Result {
        let (begin, begun) = (since_epoch(), Instant::now());
        body()?;
        let seconds = begun.elapsed().as_secs_f64();
        if self.recording {
            (self.tell)(&Event::Section { key, quantity, begin, end: since_epoch() });
        } else {
            self.figure(key, quantity.unit(), quantity.figure(seconds));
        }
        Ok(())
    }
}

fn since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// Writes back and forgets what the page cache holds, so that reads come from the disk.
pub fn drop_caches() -> Result {
    command::run("sync", &[])?;
    // A container may not; then the file that is read is larger than nothing that was kept, and the figure says so.
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("cannot drop the page cache: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_a_rate_a_response_time_or_a_time() {
        assert_eq!(Quantity::Bytes(5_000_000).figure(2.0), 2.5);
        assert_eq!(Quantity::Requests(100).figure(2.0), 20.0);
        assert_eq!(Quantity::Once.figure(2.0), 2.0);
        assert_eq!(Quantity::Requests(0).figure(1.0), 1000.0);
    }
}
