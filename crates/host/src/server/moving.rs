//! The note of a move in a group (PM9), next to its sockets: it outlives servers, but not a reboot.

use crate::paths;
use rowen_control::protocol::{read_frame, write_frame};
use rowen_control::service::platform::MoveNote;
use std::fs::{self, File};
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
    let fresh = file.with_extension("new");
    let written = File::create(&fresh).and_then(|mut to| write_frame(&mut to, note));
    written.and_then(|()| fs::rename(&fresh, &file)).inspect_err(|_| drop(fs::remove_file(&fresh)))
}

/// The noted move. An unreadable note counts as none: the user can repeat the command.
pub fn read(group: &str) -> Option<MoveNote> {
    File::open(file(group)).and_then(|mut file| read_frame(&mut file)).ok().flatten()
}
