//! What a successor goes on with: a move in a group (PM9), and missing disks that are not waited for (RF1). The notes are next to its
//! sockets: they outlive servers, but not a reboot.

use crate::{paths, run_file};
use rowen_control::service::platform::MoveNote;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn file(group: &str) -> PathBuf {
    paths::group_dir(group).join("moving")
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Stores it, in one step; none: no move.
pub fn write(group: &str, note: Option<&MoveNote>) -> io::Result<()> {
    let file = file(group);
    match note {
        Some(note) => run_file::write(&file, note),
        None => remove(&file),
    }
}

/// The noted move. An unreadable note counts as none: the user can repeat the command.
pub fn read(group: &str) -> Option<MoveNote> {
    run_file::read(&file(group)).ok().flatten()
}

fn given_up_file(group: &str) -> PathBuf {
    paths::group_dir(group).join("given_up")
}

/// Stores which missing physical volumes are not waited for any more; none: no file.
pub fn write_given_up(group: &str, pvs: &[[u8; 16]]) -> io::Result<()> {
    let file = given_up_file(group);
    match pvs {
        [] => remove(&file),
        pvs => run_file::write(&file, &pvs),
    }
}

/// Those that were noted. An unreadable note counts as none: they are waited for once more.
pub fn read_given_up(group: &str) -> Vec<[u8; 16]> {
    run_file::read(&given_up_file(group)).ok().flatten().unwrap_or_default()
}
