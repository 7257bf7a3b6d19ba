//! Keeps copies of the group's metadata after each change ([`crate::archive`] has the files).
//!
//! * No command waits for a copy: a separate thread has them written, by a helper (A4).
//! * Frequent changes share one copy. The interval depends on the size of the copies: a group of thousands of volumes,
//!   whose copy has megabytes, is copied every few seconds at most ([`PACE`]).
//! * The last changes are copied when the server ends, which waits for at most [`LAST`]. If the server is killed, or
//!   the copy is late, its successor makes the copy.

use super::log;
use crate::archive::{self, Work};
use crate::export::ended::Ended;
use crate::planted;
use parking_lot::{Condvar, Mutex};
use rowen_control::metadata::{Document, Origin};
use rowen_control::settings::Settings;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes per second that copies may cost, over time.
const PACE: u64 = 512 << 10;
/// The shortest pause between two copies.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a copy may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a server that ends waits for the last one.
pub const LAST: Duration = Duration::from_secs(2);

/// Makes the document of the group as it is now.
pub type Describe = dyn Fn(Origin) -> Document + Send;

#[derive(Default)]
struct State {
    /// The commands since the last copy: the first one, and how many more.
    pending: Option<(String, usize)>,
    ending: bool,
    settings: Settings,
    /// Why the last copy could not be written, until it was reported.
    trouble: Option<String>,
}

struct Shared {
    group: String,
    state: Mutex<State>,
    /// There is something to copy, or an end.
    wake: Condvar,
    /// The thread makes no copies any more.
    ended: Ended,
}

/// The word to the thread that keeps copies.
pub struct Archive {
    shared: Arc<Shared>,
}

impl Archive {
    /// Starts to keep copies of the group that `describe` describes.
    pub fn start(group: &str, settings: Settings, describe: Box<Describe>) -> io::Result<Archive> {
        let state = State { settings, ..State::default() };
        let shared = Arc::new(Shared {
            group: group.to_owned(),
            state: Mutex::new(state),
            wake: Condvar::new(),
            ended: Ended::default(),
        });
        let end = End(shared.clone());
        let keep_copies = move || end.0.keep_copies(&describe);
        std::thread::Builder::new().name("rowen-archive".into()).spawn(keep_copies)?;
        Ok(Archive { shared })
    }

    /// `command` changed the group.
    pub fn changed(&self, command: &str) {
        let mut state = self.shared.state.lock();
        state.pending = Some(match state.pending.take() {
            Some((first, more)) => (first, more + 1),
            None => (command.to_owned(), 0),
        });
        drop(state);
        self.shared.wake.notify_all();
    }

    pub fn set_settings(&self, settings: Settings) {
        self.shared.state.lock().settings = settings;
    }

    /// Why copies cannot be written. Each reason is returned once.
    pub fn trouble(&self) -> Option<String> {
        self.shared.state.lock().trouble.take()
    }

    /// Copies what was not copied yet, and ends. A copy that is late is left to its helper.
    pub fn close(&self) {
        self.shared.state.lock().ending = true;
        self.shared.wake.notify_all();
        let limit = if planted::is("archive_waited_for") { Duration::from_secs(3600) } else { LAST };
        if !self.shared.ended.wait(limit) {
            log::warning("the last copy of the metadata is late: the next server makes it");
        }
    }

    /// The group is gone, or has another name: what there is becomes history.
    pub fn retire(&self) {
        self.shared.state.lock().pending = None;
        self.close();
        let retention = (&self.shared.state.lock().settings).into();
        if let Err(e) = archive::ask(Work::Retire { group: self.shared.group.clone(), retention }, LIMIT) {
            log::warning(format_args!("cannot archive the metadata of the removed group: {e}"));
        }
    }
}

/// However the thread ends, no other thread waits for it afterwards.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            log::warning("the archive of metadata ended in a panic");
        }
        self.0.ended.set();
    }
}

impl Shared {
    fn keep_copies(&self, describe: &Describe) {
        // Work that an earlier server left is not urgent.
        let length = archive::ask(Work::Length { group: self.group.clone() }, LIMIT);
        let before = length.map_or(0, u64::from);
        let mut earliest = Instant::now() + pace(before);
        let mut is_first = true;
        let mut last = None;
        let mut logged = String::new();
        while let Some((description, settings)) = self.next(earliest, is_first) {
            let bytes = self.copy(describe, description, &settings, &mut last).unwrap_or_else(|e| {
                let (group, dir) = (&self.group, archive::backup_dir());
                let why = format!(
                    "WARNING: Metadata of volume group \"{group}\" cannot be backed up in {}: {e}.",
                    dir.display()
                );
                if why != logged {
                    log::warning(&why);
                    logged.clone_from(&why);
                    self.state.lock().trouble = Some(why);
                }
                before
            });
            earliest = Instant::now() + pace(bytes);
            is_first = false;
        }
    }

    /// Waits until a copy is due, and says why it is made; none: the archive ends.
    fn next(&self, earliest: Instant, is_first: bool) -> Option<(String, Settings)> {
        let mut state = self.state.lock();
        loop {
            let is_wanted = state.pending.is_some() || is_first;
            let is_due = state.ending || Instant::now() >= earliest || (is_first && state.pending.is_some());
            if is_wanted && is_due {
                return Some((describe_commands(state.pending.take()), state.settings.clone()));
            }
            if state.ending {
                return None;
            }
            if is_wanted {
                let _woken = self.wake.wait_until(&mut state, earliest);
            } else {
                self.wake.wait(&mut state);
            }
        }
    }

    /// Keeps a copy, unless the last one says the same. Its length.
    fn copy(
        &self,
        describe: &Describe,
        description: String,
        settings: &Settings,
        last: &mut Option<Digest>,
    ) -> io::Result<u64> {
        if !settings.backup {
            return Ok(0);
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let text = describe(Origin { description, host: archive::host_name(), time }).write();
        let digest = Digest::of(Document::substance(&text));
        let length = text.len() as u64;
        if last.as_ref() != Some(&digest) {
            let (group, retention) = (self.group.clone(), settings.into());
            archive::ask(Work::Keep { group, text, unless_same: last.is_none(), retention }, LIMIT)?;
            *last = Some(digest);
        }
        Ok(length)
    }
}

/// Enough of a text to know it again: not the megabytes.
#[derive(PartialEq, Eq)]
struct Digest {
    length: usize,
    hash: u64,
}

impl Digest {
    fn of(text: &str) -> Digest {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Digest { length: text.len(), hash: hasher.finish() }
    }
}

fn pace(bytes: u64) -> Duration {
    SHORTEST_PAUSE.max(Duration::from_millis(bytes * 1000 / PACE))
}

fn describe_commands(pending: Option<(String, usize)>) -> String {
    match pending {
        None => "Created when the server started".to_owned(),
        Some((command, more)) => {
            let others = match more {
                0 => String::new(),
                1 => " and another command".to_owned(),
                more => format!(" and {more} other commands"),
            };
            format!("Created *after* executing '{command}'{others}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_group_is_copied_rarely() {
        assert_eq!(pace(4096), SHORTEST_PAUSE);
        assert_eq!(pace(5 << 20), Duration::from_secs(10));
    }

    #[test]
    fn commands_are_shortened() {
        assert_eq!(describe_commands(Some(("lvs".into(), 0))), "Created *after* executing 'lvs'");
        assert_eq!(describe_commands(Some(("a".into(), 2))), "Created *after* executing 'a' and 2 other commands");
    }
}
