//! Records commands and events of the group in its history ([`crate::history`]).
//!
//! * HS5 No command waits for its line: lines are queued, and beyond [`MAX_QUEUED`] they are dropped and counted. A
//!   separate thread has them written.
//! * HS6 A death is reported by the process that follows: a server's by its successor, a keeper's by its server, a
//!   failed upgrade by the command.
//! * A server that ends waits for queued lines, for at most [`LAST`].
//! * Lines that could not be written are counted. The log says why, once, and an event says how many.
//! * At most [`MAX_IN_A_PERIOD`] events of one kind are kept in a [`PERIOD`]: frequent events must not push out
//!   others.

use super::log;
use crate::{archive, history, journal, planted};
use parking_lot::{Condvar, Mutex};
use rowen_control::history::{Book, Command, Event, Line, What, write};
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The largest number of queued lines.
const MAX_QUEUED: usize = 1024;
/// How long the files may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a server that ends waits for them.
const LAST: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_secs(600);
const MAX_IN_A_PERIOD: u64 = 20;

/// The recorder of this process, which serves one group.
static CURRENT: Mutex<Option<Arc<Recorder>>> = Mutex::new(None);

/// The thread-safe front of the recorder.
pub struct Recorder {
    group: Uuid,
    host: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The group's name.
    name: String,
    queue: Vec<(Book, String)>,
    /// Lines are being written.
    is_writing: bool,
    /// Lines that were lost since the last written one.
    lost: u64,
    pace: BTreeMap<&'static str, Pace>,
}

/// How often one kind of event came.
struct Pace {
    since: Instant,
    count: u64,
    left_out: u64,
}

impl Pace {
    /// Whether this event is kept. If so, the number of earlier ones that were not.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= PERIOD {
            (self.since, self.count) = (now, 0);
        }
        if self.count >= MAX_IN_A_PERIOD {
            self.left_out += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Recorder {
    /// Starts the recorder of this process.
    pub fn start(name: &str, group: Uuid) {
        let state = State { name: name.to_owned(), ..State::default() };
        let recorder =
            Recorder { group, host: archive::host_name(), state: Mutex::new(state), changed: Condvar::new() };
        let recorder = Arc::new(recorder);
        *CURRENT.lock() = Some(recorder.clone());
        let started = std::thread::Builder::new().name("rowen-history".into()).spawn(move || recorder.write_all());
        if let Err(e) = started {
            log::warning(format_args!("no history is kept: {e}"));
        }
    }

    fn add<L: Line>(&self, state: &mut State, mut line: L) {
        line.clean();
        if state.queue.len() >= MAX_QUEUED {
            state.lost += 1;
            return;
        }
        state.queue.push((L::BOOK, write(&line)));
        self.changed.notify_all();
    }

    fn event_line(&self, state: &State, what: What, message: String) -> Event {
        Event {
            time: now(),
            group: state.name.clone(),
            event: what.word().to_owned(),
            message,
            host: self.host.clone(),
            pid: std::process::id(),
        }
    }

    fn event(&self, what: What, message: &str) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let pace = state.pace.entry(what.word()).or_insert(Pace { since: now, count: 0, left_out: 0 });
        let message = match pace.take(now) {
            None => return,
            Some(0) => message.to_owned(),
            Some(left_out) => format!("{message} ({left_out} more of this kind before it)"),
        };
        let line = self.event_line(&state, what, message);
        self.add(&mut state, line);
    }

    fn write_all(&self) {
        let mut logged = String::new();
        loop {
            let (lines, lost) = {
                let mut state = self.state.lock();
                while state.queue.is_empty() {
                    state.is_writing = false;
                    self.changed.notify_all();
                    self.changed.wait(&mut state);
                }
                state.is_writing = true;
                if state.lost > 0 {
                    let message = format!("{} lines of the history were not kept", state.lost);
                    let line = self.event_line(&state, What::Gap, message);
                    state.queue.insert(0, (Book::Events, write(&line)));
                }
                (std::mem::take(&mut state.queue), std::mem::take(&mut state.lost))
            };
            let text = |wanted: Book| {
                lines.iter().filter(|(book, _)| *book == wanted).map(|(_, line)| line.as_str()).collect()
            };
            let written = history::record(
                history::Lines { group: self.group.0, commands: text(Book::Commands), events: text(Book::Events) },
                LIMIT,
            );
            match written {
                Ok(()) => logged.clear(),
                Err(e) => {
                    // The line about the gap does not count as lost.
                    let own = u64::from(lost > 0);
                    if !planted::is("losses_untold") {
                        self.state.lock().lost += lost + lines.len() as u64 - own;
                    }
                    let why = format!("WARNING: History of the volume group cannot be kept: {e}.");
                    if why != logged {
                        log::warning(&why);
                        logged = why;
                    }
                }
            }
        }
    }

    fn flush(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while state.is_writing || !state.queue.is_empty() {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }
}

fn with(use_it: impl FnOnce(&Recorder)) {
    // Not under the lock: a thread that adds lines must not wait for one that ends the recorder.
    let current = CURRENT.lock().clone();
    if let Some(recorder) = current {
        use_it(&recorder);
    }
}

/// Records an event. In a process without a server it does nothing.
pub fn event(what: What, message: &str) {
    with(|recorder| recorder.event(what, message));
}

/// A command did something.
pub fn command(line: Command) {
    with(|recorder| {
        let mut state = recorder.state.lock();
        state.name.clone_from(&line.group);
        let line = Command { time: now(), host: recorder.host.clone(), ..line };
        recorder.add(&mut state, line);
        drop(state);
        if planted::is("history_waited_for") {
            recorder.flush(Instant::now() + LIMIT);
        }
    });
}

/// Waits until all is written, or for [`LAST`].
pub fn flush() {
    with(|recorder| recorder.flush(Instant::now() + LAST));
}

/// Records what a command did without a server, in its own process.
pub fn command_alone(group: Uuid, line: Command) -> io::Result<()> {
    let mut line = Command { time: now(), host: archive::host_name(), ..line };
    line.clean();
    history::record(history::Lines { group: group.0, commands: write(&line), events: String::new() }, LIMIT)
}

/// Records an event of a group in a command's process, not in its server.
pub fn event_alone(group: Uuid, name: &str, what: What, message: &str) {
    let mut line = Event {
        time: now(),
        group: name.to_owned(),
        event: what.word().to_owned(),
        message: message.to_owned(),
        host: archive::host_name(),
        pid: std::process::id(),
    };
    line.clean();
    journal::send(journal::Priority::Warning, name, &[], message);
    let lines = history::Lines { group: group.0, commands: String::new(), events: write(&line) };
    if let Err(e) = history::record(lines, LIMIT) {
        journal::warn(format_args!("WARNING: History of volume group {name} cannot be kept: {e}."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_all_the_time_is_kept_rarely_and_counted() {
        let start = Instant::now();
        let mut pace = Pace { since: start, count: 0, left_out: 0 };
        let kept = (0..1000).filter(|_| pace.take(start).is_some()).count();
        assert_eq!(kept as u64, MAX_IN_A_PERIOD);
        assert_eq!(pace.take(start + PERIOD), Some(1000 - MAX_IN_A_PERIOD));
        assert_eq!(pace.take(start + PERIOD), Some(0));
    }

    /// HS5
    #[test]
    fn what_nobody_writes_is_dropped_and_counted() {
        let recorder = Recorder {
            group: Uuid([1; 16]),
            host: "h".into(),
            state: Mutex::new(State { name: "vg".into(), ..State::default() }),
            changed: Condvar::new(),
        };
        for _ in 0..MAX_QUEUED + 7 {
            let mut state = recorder.state.lock();
            recorder.add(&mut state, Command { group: "vg".into(), ..Command::default() });
        }
        let state = recorder.state.lock();
        assert_eq!((state.queue.len(), state.lost), (MAX_QUEUED, 7));
    }
}
