//! The paths of a group's physical volumes, as stored by its server. A successor opens these paths, if their labels
//! still belong to the group. A clean end removes the file; then all devices are scanned, as after a boot.
//!
//! If a server was killed while a device joined, it has stored the device as a member, or has left its note of the
//! joining device (H11). Its successor also reads that note, if a label names more members than are stored (H9).
//!
//! * H11 A server notes the joining device before it checks what the device lies on. So if two groups take each other's
//!   volumes at the same moment, at least one finds the other's note and refuses.

use crate::{files, paths, planted};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// No file of them is longer.
const LONGEST: u64 = 16 << 20;

/// Stores them, in one step.
pub fn write(group: &str, members: &[PathBuf]) -> io::Result<()> {
    write_lines(&paths::members(group), members)
}

fn write_lines(path: &Path, members: &[PathBuf]) -> io::Result<()> {
    let lines = members.iter().map(|path| path.as_os_str().as_bytes());
    // No path of a physical volume contains a line break (the devices file could not hold it either).
    let text: Vec<u8> = lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
    let fresh = path.with_extension("new");
    fs::write(&fresh, text)?;
    fs::rename(fresh, path)
}

/// The stored paths; none if there is no file.
pub fn read(group: &str) -> Vec<PathBuf> {
    read_lines(&paths::members(group))
}

/// The devices that were joining the group when its server was killed.
pub fn read_joining(group: &str) -> Vec<PathBuf> {
    if planted::is("joining_unread") {
        return Vec::new();
    }
    read_lines(&paths::joining_in(&paths::group_dir(group)))
}

/// The physical volumes of the group with this run directory, and the joining ones.
pub fn present_and_future(directory: &Path) -> Vec<PathBuf> {
    [paths::members_in(directory), paths::joining_in(directory)].iter().flat_map(|path| read_lines(path)).collect()
}

fn read_lines(path: &Path) -> Vec<PathBuf> {
    let text = files::read_here(path, LONGEST).unwrap_or_default().unwrap_or_default();
    let lines = text.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"/"));
    lines.map(|line| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec()))).collect()
}

pub fn forget(group: &str) {
    let _ = fs::remove_file(paths::members(group));
}

/// A note of joining devices (H11). It is removed when dropped: by then they have joined, or will not.
pub struct Joining(PathBuf);

impl Joining {
    pub fn note(group: &str, paths: &[PathBuf]) -> io::Result<Joining> {
        let note = Joining(paths::joining_in(&paths::group_dir(group)));
        if !planted::is("not_noted") {
            write_lines(&note.0, paths)?;
        }
        Ok(note)
    }

    /// Removes the note of a server that was killed: devices that have joined are stored as members by now.
    pub fn forget(group: &str) {
        let _ = fs::remove_file(paths::joining_in(&paths::group_dir(group)));
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
