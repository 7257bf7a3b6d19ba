//! The history of a volume group: commands ([`Command`]) and events ([`Event`]), as lines of JSON. This module owns the
//! format of the lines and their parser. The host owns the files.
//!
//! * HS3 A line that is damaged, too long, or of wrong types costs only itself, and is counted. No line puts a control
//!   character on a screen.
//!
//! Lines are in the order of the commands and events. Times are for people only: a clock may jump.

use crate::names;
use rowen_engine::planted;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest command line or sentence that is kept, in characters.
pub const LONGEST: usize = 4096;
/// The longest name of a user, a host, a request or an event.
const LONGEST_WORD: usize = 256;
/// Requests of one command are matched among this many commands: others may run at the same time.
const BESIDE: usize = 64;

/// The two files of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Book {
    /// Commands.
    Commands,
    /// Events.
    Events,
}

/// One request of a command, as recorded by the server that carried it out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Seconds since 1970, when it was done.
    pub time: u64,
    /// The group's name then.
    pub group: String,
    /// The same for all requests of one run of a command. Empty: unknown.
    #[serde(default)]
    pub id: String,
    pub command: String,
    /// In the protocol's words.
    #[serde(default)]
    pub request: String,
    /// Why it failed. None: it did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    #[serde(default)]
    pub user: String,
    #[serde(default)]
    pub host: String,
    /// Of the command's process.
    #[serde(default)]
    pub pid: u32,
    #[serde(default)]
    pub milliseconds: u64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub time: u64,
    pub group: String,
    /// The kind, a word ([`What`]). A later version may write others.
    pub event: String,
    pub message: String,
    #[serde(default)]
    pub host: String,
    /// Of the server's process.
    #[serde(default)]
    pub pid: u32,
}

macro_rules! events {
    ($($(#[$doc:meta])* $id:ident $word:literal;)*) => {
        /// Kinds of events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum What { $($(#[$doc])* $id),* }

        impl What {
            /// All of them.
            pub const ALL: &[What] = &[$(What::$id),*];

            /// The word in a line.
            pub fn word(self) -> &'static str {
                match self { $(What::$id => $word),* }
            }
        }
    };
}
events! {
    /// A server has opened the group.
    Started "server-started";
    /// It has taken over the devices of an earlier server.
    TakenOver "taken-over";
    /// A server has closed the group.
    Ended "server-ended";
    /// A server ended while volumes are in use: a successor takes over.
    HandedOver "handed-over";
    /// A server of another program has taken over.
    Upgraded "upgraded";
    /// A server died, and its keeper started another.
    ServerDied "server-died";
    /// The keeper died, and the server started another, or could not.
    KeeperDied "keeper-died";
    /// An upgrade failed, and the old program continues.
    UpgradeFailed "upgrade-failed";
    /// A server could not open or close the group.
    Failed "server-failed";
    /// The group stopped: nothing is written before it is opened again.
    Stopped "stopped";
    /// A physical volume failed requests.
    PvError "pv-error";
    /// A server opened the group without a physical volume.
    PvMissing "pv-missing";
    /// A physical volume that failed has disappeared.
    PvAway "pv-away";
    /// It is back unchanged, and the group continues.
    PvBack "pv-back";
    /// It is back in another state, and is refused.
    PvRefused "pv-refused";
    /// A block of a physical volume cannot be written.
    BadPlace "bad-place";
    /// A threshold of space was crossed.
    Space "space";
    /// Writes fail that waited too long for space.
    WritesFail "writes-fail";
    /// There is no room behind a physical volume, or there is room again.
    Room "room";
    /// A volume was extended by its policy.
    Extended "extended";
    /// It could not be.
    NotExtended "not-extended";
    /// A snapshot became invalid.
    SnapshotDropped "snapshot-dropped";
    /// A snapshot was merged, or its merge waits.
    Merged "merged";
    /// Copies that a disk took with it were made anew without a person.
    Repaired "repaired";
    /// They could not be.
    NotRepaired "not-repaired";
    /// The copies of a mirrored volume were compared.
    Scrubbed "scrubbed";
    /// The group has another name, or another physical volume.
    Changed "changed";
    /// A worker of the server hangs.
    Worker "worker";
    /// A request met a bug of the server.
    Bug "bug";
    /// Lines of the history could not be kept.
    Gap "gap";
}

/// A line of a [`Book`].
pub trait Line: Serialize + DeserializeOwned {
    const BOOK: Book;
    /// The group's name when it was written.
    fn group(&self) -> &str;
    /// Makes all texts safe for a screen, and limits their length.
    fn clean(&mut self);
}

impl Line for Command {
    const BOOK: Book = Book::Commands;

    fn group(&self) -> &str {
        &self.group
    }

    fn clean(&mut self) {
        self.command = clean(&self.command, LONGEST);
        self.failure = self.failure.as_deref().map(|text| clean(text, LONGEST));
        for word in [&mut self.id, &mut self.request, &mut self.user, &mut self.host] {
            *word = clean(word, LONGEST_WORD);
        }
    }
}

impl Line for Event {
    const BOOK: Book = Book::Events;

    fn group(&self) -> &str {
        &self.group
    }

    fn clean(&mut self) {
        self.message = clean(&self.message, LONGEST);
        for word in [&mut self.event, &mut self.host] {
            *word = clean(word, LONGEST_WORD);
        }
    }
}

/// Characters that control a terminal, or change the order in which others are shown.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text without such characters, of at most `most` characters. An omission is marked.
pub fn clean(text: &str, most: usize) -> String {
    let mut cleaned = String::with_capacity(text.len().min(most));
    for (at, c) in text.chars().enumerate() {
        if at == most {
            cleaned.push('…');
            break;
        }
        if is_hostile(c) { cleaned.extend(c.escape_default()) } else { cleaned.push(c) }
    }
    cleaned
}

/// A line with its end.
pub fn write<L: Line>(line: &L) -> String {
    // A line has only texts and numbers, which JSON can always represent.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

/// The contents of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Read<L> {
    pub lines: Vec<L>,
    /// Lines that cannot be understood.
    pub damaged: u64,
}

impl<L> Default for Read<L> {
    fn default() -> Self {
        Read { lines: Vec::new(), damaged: 0 }
    }
}

/// Rowen writes no longer lines: each character takes at most 12 bytes.
const LONGEST_LINE: usize = 2 * 12 * LONGEST + 5 * 12 * LONGEST_WORD;

/// All valid lines of a text.
pub fn read<L: Line>(bytes: &[u8]) -> Read<L> {
    let mut read = Read::default();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match understand(line) {
            Some(line) => read.lines.push(line),
            None if planted::is("damaged_line_ends") => break,
            None => read.damaged += 1,
        }
    }
    read
}

fn understand<L: Line>(line: &[u8]) -> Option<L> {
    if line.len() > LONGEST_LINE {
        return None;
    }
    let mut read: L = serde_json::from_slice(line).ok()?;
    names::check_form(read.group()).ok()?;
    read.clean();
    Some(read)
}

/// The history of one group, as in its files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The group's identifier, as LVM writes it.
    pub uuid: String,
    pub commands: Vec<u8>,
    pub events: Vec<u8>,
    /// Why something was not read, a sentence each.
    pub troubles: Vec<String>,
}

/// Joins the requests of each command into one entry. It has the time and position of the first, the total duration,
/// and the first failure.
pub fn merge(requests: Vec<Command>) -> Vec<Command> {
    let mut merged: Vec<Command> = Vec::with_capacity(requests.len());
    for request in requests {
        let is_same = |known: &&mut Command| {
            !request.id.is_empty() && known.id == request.id && known.host == request.host && known.pid == request.pid
        };
        match merged.iter_mut().rev().take(BESIDE).find(is_same) {
            None => merged.push(request),
            Some(known) => {
                known.milliseconds = known.milliseconds.saturating_add(request.milliseconds);
                known.failure = known.failure.take().or(request.failure);
                if !known.request.split(' ').any(|word| word == request.request) {
                    known.request = clean(&format!("{} {}", known.request, request.request), LONGEST_WORD);
                }
            }
        }
    }
    merged
}

#[cfg(test)]
#[path = "history_test.rs"]
mod tests;
