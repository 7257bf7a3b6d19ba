//! The paths of a group's physical volumes, as its server wrote them down. A successor opens these, where their labels say that
//! they are still the group's. An orderly end takes the file away: then all devices are looked at, as after a boot.

use crate::paths;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Writes them down, in one step.
pub fn write(group: &str, members: &[PathBuf]) -> io::Result<()> {
    let lines = members.iter().map(|path| path.as_os_str().as_bytes());
    // No path that is a physical volume's has a line's end in it (the devices file could not hold it either).
    let text: Vec<u8> = lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
    let path = paths::members(group);
    let fresh = path.with_extension("new");
    fs::write(&fresh, text)?;
    fs::rename(fresh, path)
}

/// What was written down; nothing where there is no file.
pub fn read(group: &str) -> Vec<PathBuf> {
    read_in(&paths::group_dir(group))
}

/// The same of the group that has this run directory.
pub fn read_in(directory: &Path) -> Vec<PathBuf> {
    let text = fs::read(paths::members_in(directory)).unwrap_or_default();
    let lines = text.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"/"));
    lines.map(|line| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec()))).collect()
}

pub fn forget(group: &str) {
    let _ = fs::remove_file(paths::members(group));
}
