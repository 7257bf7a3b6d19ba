//! The note of a move in a group (PM9), next to its sockets: it outlives servers, but not a reboot.

use crate::{paths, run_file};
use rowen_control::service::platform::MoveNote;
use std::fs;
use std::io;
use std::path::PathBuf;

fn file(group: &str) -> PathBuf {
    paths::group_dir(group).join("moving")
}

/// Stores it, in one step; none: no move.
pub fn write(group: &str, note: Option<&MoveNote>) -> io::Result<()> {
    let file = file(group);
    let Some(note) = note else {
        return match fs::remove_file(&file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    };
    run_file::write(&file, note)
}

/// The noted move. An unreadable note counts as none: the user can repeat the command.
pub fn read(group: &str) -> Option<MoveNote> {
    run_file::read(&file(group)).ok().flatten()
}
