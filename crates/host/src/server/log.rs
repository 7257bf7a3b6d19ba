//! The server's log, and the one place from which both its lines and the group's events come ([`event`]): lines on standard error, which a command that starts the server points to a file, and in the journal
//! ([`journal`]). The file is bounded: if it is too large when the next server starts, it replaces the `.old` file.

use super::recorder;
use crate::journal::{self, Field, Priority};
use rowen_control::history::What;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens the log at `path` for appending.
pub fn open(path: &Path) -> io::Result<File> {
    journal::open(path, crate::paths::SERVER_LOG_BOUND)
}

/// Writes one line. A log that cannot be written is ignored.
pub fn line(text: impl Display) {
    about(&[], text);
}

/// The same about a volume or a physical volume.
pub fn about(fields: &[Field<'_>], text: impl Display) {
    let text = text.to_string();
    journal::say(Priority::of(&text), fields, &text);
}

/// Logs a problem; the server continues.
pub fn warning(text: impl Display) {
    journal::say(Priority::Warning, &[], &text.to_string());
}

/// Logs a failed request, or that the server does not continue.
pub fn error(text: impl Display) {
    journal::say(Priority::Error, &[], &text.to_string());
}

/// An event of the group: a line in the log, and one in the events.
pub fn event(what: What, text: impl Display) {
    event_about(what, &[], text);
}

/// The same about a volume or a physical volume.
pub fn event_about(what: What, fields: &[Field<'_>], text: impl Display) {
    let text = text.to_string();
    let priority = match what {
        What::Failed | What::Stopped => Priority::Error,
        What::ServerDied
        | What::KeeperDied
        | What::UpgradeFailed
        | What::Worker
        | What::Bug
        | What::PvError
        | What::PvMissing
        | What::PvAway
        | What::PvRefused
        | What::BadPlace
        | What::SnapshotDropped => Priority::Warning,
        _ => Priority::of(&text),
    };
    journal::say(priority, fields, &text);
    recorder::event(what, &text);
}
