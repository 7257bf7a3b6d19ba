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
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub const MIB: u64 = 1 << 20;

/// The disks of a place: each system has its own of the same kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disks {
    pub raw: PathBuf,
    pub rowen: PathBuf,
    /// The second of a group of Rowen's with mirrored volumes.
    pub rowen_mirror: PathBuf,
    /// LVM's, and a second for the other side of a mirror. None: there is no device-mapper in this place.
    pub lvm: Option<[PathBuf; 2]>,
}

/// What a section did, and so what its figure is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Quantity {
    /// Moved this many bytes: MB/s.
    Bytes(u64),
    /// Made this many requests, one after another: ms each.
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

    /// The figure of a section that took this many seconds.
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
    /// Seconds that this part may take; what does not fit is not run.
    pub seconds: f64,
    pub tell: Box<dyn Fn(&Event)>,
}

/// A system's turn may take this many times its share of the time.
const SLACK: f64 = 3.0;
/// A turn is not ended before this many seconds.
const MIN_TURN: f64 = 20.0;

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

    /// Whether this is the quick form in user-mode-linux, in which starting a program takes a tenth of a second and LVM's commands
    /// half of one: what is done there must be little.
    pub fn is_brief(&self) -> bool {
        self.form.quick && self.disks.lvm.is_some()
    }

    /// The systems measured here, each round another one first.
    fn turn(&self, round: usize) -> Vec<System> {
        let mut systems = self.systems.clone();
        if !systems.is_empty() {
            let by = round % systems.len();
            systems.rotate_left(by);
        }
        systems
    }

    /// Calls the body for each system in each round, the systems in turn; one round is enough for a record. The body gets a
    /// way to say what it does now, and how much of its own is done (0 to 1). A system that takes much longer than its share of
    /// the time gets no more turns, and no turn begins when the time is over; both are reported.
    pub fn in_turn(&self, body: impl FnMut(System, usize, &dyn Fn(&str, f64)) -> Result) -> Result {
        self.in_turns(if self.recording { 1 } else { self.form.rounds }, body)
    }

    /// The same with this many rounds.
    pub fn in_turns(&self, rounds: usize, mut body: impl FnMut(System, usize, &dyn Fn(&str, f64)) -> Result) -> Result {
        let turns = (rounds * self.systems.len()) as f64;
        let begun = Instant::now();
        let mut given_up = Vec::new();
        let over = |system, round: usize, why: &str| {
            self.not_run(Key::new(system, "all", &[], round), "", &format!("round {} of {rounds}: {why}", round + 1));
        };
        for round in 0..rounds {
            for (n, system) in self.turn(round).into_iter().enumerate() {
                if given_up.contains(&system) {
                    continue;
                }
                if begun.elapsed().as_secs_f64() > self.seconds {
                    over(system, round, &format!("all before it took longer than {:.0} s", self.seconds));
                    given_up.push(system);
                    continue;
                }
                let before = (round * self.systems.len() + n) as f64;
                let step = |what: &str, share: f64| {
                    let comma = if what.is_empty() { "" } else { ", " };
                    self.step(format!("{system}, round {}{comma}{what}", round + 1), (before + share) / turns);
                };
                step("", 0.0);
                let limit = (self.seconds * SLACK / turns).max(MIN_TURN);
                match command::within(limit, || body(system, round, &step)) {
                    Err(why) if command::is_too_long(&why) => {
                        over(system, round, &why);
                        given_up.push(system);
                    }
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }

    /// The same on other disks and in a directory of its own, for one turn. It says nothing.
    pub fn on(&self, disks: Disks, dir: PathBuf) -> Context {
        let (rowen, systems) = (self.rowen.clone(), self.systems.clone());
        let (form, recording, seconds) = (self.form, self.recording, self.seconds);
        Context { form, dir, disks, rowen, systems, recording, seconds, tell: Box::new(|_| ()) }
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

    /// There is no such figure, and why; of a recorded run: none on the modelled disks.
    pub fn not_run(&self, key: Key, unit: &str, reason: &str) {
        (self.tell)(&Event::NotRun { key, unit: unit.to_owned(), reason: reason.to_owned() });
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

/// Writes back and forgets what the page cache holds of a file or device, so that reads come from the disk.
pub fn forget(path: &Path) -> Result {
    let forget = || {
        let file = std::fs::File::open(path)?;
        file.sync_all()?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    };
    forget().map_err(|e: std::io::Error| format!("cannot uncache {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn context(recording: bool, said: &Rc<RefCell<Vec<String>>>) -> Context {
        let said = said.clone();
        Context {
            form: Form { quick: true, smoke: false, rounds: 2, mib: 1 },
            dir: PathBuf::new(),
            disks: Disks { raw: PathBuf::new(), rowen: PathBuf::new(), rowen_mirror: PathBuf::new(), lvm: None },
            rowen: PathBuf::new(),
            systems: vec![System::Raw, System::Rowen],
            recording,
            seconds: 60.0,
            tell: Box::new(move |event| match event {
                Event::Step { what, done } => said.borrow_mut().push(format!("{what} {done}")),
                Event::NotRun { key, reason, .. } => said.borrow_mut().push(format!("{}: {reason}", key.system)),
                _ => {}
            }),
        }
    }

    #[test]
    fn systems_take_turns_and_a_record_is_one_round() {
        let said = Rc::default();
        let mut calls = Vec::new();
        let body = |system, round, step: &dyn Fn(&str, f64)| {
            calls.push((system, round));
            step("half", 0.5);
            Ok(())
        };
        context(false, &said).in_turn(body).unwrap();
        assert_eq!(calls, [(System::Raw, 0), (System::Rowen, 0), (System::Rowen, 1), (System::Raw, 1)]);
        assert_eq!(said.borrow()[..2], ["raw, round 1 0", "raw, round 1, half 0.125"]);
        assert_eq!(said.borrow().last().unwrap(), "raw, round 2, half 0.875");
        let mut calls = 0;
        let count = |_, _, _: &dyn Fn(&str, f64)| {
            calls += 1;
            Ok(())
        };
        context(true, &said).in_turn(count).unwrap();
        assert_eq!(calls, 2);
        assert_eq!(context(true, &said).in_turn(|_, _, _| Err("no".to_owned())), Err("no".to_owned()));
    }

    #[test]
    fn a_system_that_takes_too_long_does_not_hold_the_others_up() {
        let said = Rc::default();
        let mut calls = Vec::new();
        let slow = |system, round, _: &dyn Fn(&str, f64)| {
            calls.push((system, round));
            let seconds = if system == System::Raw { "600" } else { "0" };
            command::run("sleep", &[seconds]).map(drop)
        };
        // An outer limit, so that the test need not wait for a turn's own.
        command::within(0.3, || context(false, &said).in_turn(slow)).unwrap();
        assert_eq!(calls, [(System::Raw, 0), (System::Rowen, 0)]);
        assert!(said.borrow()[1].starts_with("raw: round 1 of 2: took longer than"), "{:?}", said.borrow());

        let said = Rc::default();
        let mut calls = 0;
        let none_left = Context { seconds: 0.0, ..context(false, &said) };
        let count = |_, _, _: &dyn Fn(&str, f64)| {
            calls += 1;
            Ok(())
        };
        none_left.in_turn(count).unwrap();
        assert_eq!((calls, said.borrow().len()), (0, 2));
        assert_eq!(said.borrow()[1], "Rowen: round 1 of 2: all before it took longer than 0 s");
    }

    #[test]
    fn what_is_not_there_cannot_be_forgotten() {
        assert!(forget(Path::new("/no/such/file")).unwrap_err().contains("cannot uncache"));
    }

    #[test]
    fn a_section_is_a_rate_a_response_time_or_a_time() {
        assert_eq!(Quantity::Bytes(5_000_000).figure(2.0), 2.5);
        assert_eq!(Quantity::Requests(100).figure(2.0), 20.0);
        assert_eq!(Quantity::Once.figure(2.0), 2.0);
        assert_eq!(Quantity::Requests(0).figure(1.0), 1000.0);
    }
}
