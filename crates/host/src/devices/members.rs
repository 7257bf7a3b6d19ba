//! The paths of a group's physical volumes, as its server wrote them down. A successor opens these, where their labels say that
//! they are still the group's. An orderly end takes the file away: then all devices are looked at, as after a boot.
//!
//! A server that was killed while something joined has noted it as a member or has left its note of what is about to join
//! (H11): its successor reads that one, too, where a label names more members than are noted (H9).
//!
//! * H11 What is about to join a group is written down before it is looked what it lies on. So of two groups that take each
//!   other's volumes at the same moment, at least one finds the other's note and refuses.

use crate::{paths, planted};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Writes them down, in one step.
pub fn write(group: &str, members: &[PathBuf]) -> io::Result<()> {
    write_lines(&paths::members(group), members)
}

fn write_lines(path: &Path, members: &[PathBuf]) -> io::Result<()> {
    let lines = members.iter().map(|path| path.as_os_str().as_bytes());
    // No path that is a physical volume's has a line's end in it (the devices file could not hold it either).
    let text: Vec<u8> = lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
    let fresh = path.with_extension("new");
    fs::write(&fresh, text)?;
    fs::rename(fresh, path)
}

/// What was written down; nothing where there is no file.
pub fn read(group: &str) -> Vec<PathBuf> {
    read_lines(&paths::members(group))
}

/// What was about to join the group when its server was killed; nothing where no server was.
pub fn read_joining(group: &str) -> Vec<PathBuf> {
    if planted::is("joining_unread") {
        return Vec::new();
    }
    read_lines(&paths::joining_in(&paths::group_dir(group)))
}

/// The physical volumes of the group with this run directory, and what is about to join it.
pub fn present_and_future(directory: &Path) -> Vec<PathBuf> {
    [paths::members_in(directory), paths::joining_in(directory)].iter().flat_map(|path| read_lines(path)).collect()
}

fn read_lines(path: &Path) -> Vec<PathBuf> {
    let text = fs::read(path).unwrap_or_default();
    let lines = text.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"/"));
    lines.map(|line| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec()))).collect()
}

pub fn forget(group: &str) {
    let _ = fs::remove_file(paths::members(group));
}

/// A note of what is about to join a group (H11). Dropped, it is taken away: by then it has joined, or will not.
pub struct Joining(PathBuf);

impl Joining {
    pub fn note(group: &str, paths: &[PathBuf]) -> io::Result<Joining> {
        let note = Joining(paths::joining_in(&paths::group_dir(group)));
        if !planted::is("not_noted") {
            write_lines(&note.0, paths)?;
        }
        Ok(note)
    }

    /// Takes away the note of a server that was killed: what has joined is noted as a member by now.
    pub fn forget(group: &str) {
        let _ = fs::remove_file(paths::joining_in(&paths::group_dir(group)));
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
