//! The devices file: which files and block devices were made physical volumes on this host, one per line: identifier
//! and path. Files can be found in no other way; block devices are found by their labels as well.
//!
//! The file is only a hint: a device's label says what it is. The file is replaced as a whole: a new file is synced and
//! renamed over the old one, and the directory is synced. A lock ensures that two commands lose no line. Invalid lines
//! stay where they are: an editor may have damaged a valid one.

use super::Error;
use crate::helper::{self, Job};
use crate::{files, paths};
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A longer one is no devices file.
const LONGEST: u64 = 16 << 20;

const HEADER: &[u8] = b"# Physical volumes of Rowen: identifier and path. Commands keep this file.\n";

/// One line of the devices file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub uuid: Uuid,
    pub path: PathBuf,
}

/// Where the devices file is.
pub fn path() -> PathBuf {
    paths::system_dir().join("devices")
}

/// All entries; none when there is no file yet. Lines that cannot be read are left out.
pub fn read() -> Result<Vec<Entry>, Error> {
    text().map(|text| parse(&text))
}

fn text() -> Result<Vec<u8>, Error> {
    let text = files::read(&path(), LONGEST).map_err(|source| Error::Io { path: path(), what: "read", source })?;
    Ok(text.unwrap_or_default())
}

/// A change of the entries.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    /// Those at these paths, in this order: each replaces older entries of either.
    Remember(Vec<([u8; 16], PathBuf)>),
    Forget(PathBuf),
}

impl Change {
    fn make(&self, entries: &mut Vec<Entry>) {
        match self {
            Change::Remember(found) => {
                for (uuid, path) in found {
                    let uuid = Uuid(*uuid);
                    entries.retain(|entry| entry.uuid != uuid && entry.path != *path);
                    entries.push(Entry { uuid, path: path.clone() });
                }
            }
            Change::Forget(path) => entries.retain(|entry| entry.path != *path),
        }
    }
}

/// Stores that `path` is the physical volume `uuid`. Replaces older entries of either.
pub fn remember(uuid: Uuid, path: &Path) -> Result<(), Error> {
    change(Change::Remember(vec![(uuid.0, path.to_owned())]))
}

/// The same, where paths may have been exchanged: one that had this path is stored where it is now, if that is a known path, and
/// so is one that had that path. `at`: what is at a path now.
pub fn remember_moved(uuid: Uuid, path: &Path, at: impl Fn(&Path) -> Option<Uuid>) -> Result<(), Error> {
    change(Change::Remember(moved(&read()?, uuid, path, at)))
}

/// What is to be stored then.
fn moved(entries: &[Entry], uuid: Uuid, path: &Path, at: impl Fn(&Path) -> Option<Uuid>) -> Vec<([u8; 16], PathBuf)> {
    let mut found = vec![(uuid.0, path.to_owned())];
    let mut taken = path;
    let is_new = |found: &[([u8; 16], PathBuf)], entry: &Entry| found.iter().all(|(uuid, _)| *uuid != entry.uuid.0);
    while let Some(displaced) = entries.iter().find(|entry| entry.path == taken && is_new(&found, entry)) {
        let others = entries.iter().map(|entry| entry.path.as_path()).filter(|other| *other != taken);
        let Some(place) = others.into_iter().find(|other| at(other) == Some(displaced.uuid)) else { break };
        found.push((displaced.uuid.0, place.to_owned()));
        taken = place;
    }
    found
}

/// Drops the entry of `path`.
pub fn forget(path: &Path) -> Result<(), Error> {
    change(Change::Forget(path.to_owned()))
}

/// Changes the entries (H15).
fn change(change: Change) -> Result<(), Error> {
    let changed = if files::is_near(&paths::system_dir()) && files::is_near(&path()) {
        obey(&change)
    } else {
        let asked = files::refuse_if_many_hang();
        asked.and_then(|()| helper::ask_apart(&Job::Devices(change), "devices", files::limit()).map(drop))
    };
    changed.map_err(|e| Error::Io { path: path(), what: "change", source: files::late(e) })
}

/// Changes the entries under the file's lock. Nothing is written when nothing changed.
pub(crate) fn obey(change: &Change) -> io::Result<()> {
    let dir = paths::system_dir();
    std::fs::create_dir_all(&dir)?;
    // A FIFO that was opened for reading as well waits for nobody, and is refused.
    let mut how = File::options();
    how.create(true).read(true).write(true).truncate(false).mode(0o600);
    let lock = files::open_here(&dir.join("devices.lock"), &mut how);
    let lock = lock.map_err(|e| io::Error::new(e.kind(), format!("its lock, devices.lock, cannot be opened: {e}")))?;
    paths::wait_for_lock(&lock)?;

    let text = files::read_here(&path(), LONGEST)?.unwrap_or_default();
    let before = parse(&text);
    let mut after = before.clone();
    change.make(&mut after);
    if after == before { Ok(()) } else { replace(&dir, &format(&after, &text)) }
}

fn replace(dir: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = dir.join("devices.new");
    // What a command that was killed left there, or what anybody put there.
    let _may_not_be_there = std::fs::remove_file(&fresh);
    let mut file = File::options().create_new(true).write(true).mode(0o600).open(&fresh)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path())?;
    File::open(dir)?.sync_all()
}

/// The file with these entries, and with the other lines of `old`.
pub(crate) fn format(entries: &[Entry], old: &[u8]) -> Vec<u8> {
    let mut text = HEADER.to_vec();
    let lines =
        old.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && **line != HEADER[..HEADER.len() - 1]);
    for line in lines.filter(|line| parse_line(line).is_none()) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    for entry in entries {
        text.extend_from_slice(entry.uuid.to_string().as_bytes());
        text.push(b' ');
        text.extend_from_slice(entry.path.as_os_str().as_bytes());
        text.push(b'\n');
    }
    text
}

pub(crate) fn parse(text: &[u8]) -> Vec<Entry> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (uuid, path) = (parse_uuid(&line[..space])?, &line[space + 1..]);
    path.starts_with(b"/").then(|| Entry { uuid, path: PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())) })
}

fn parse_uuid(text: &[u8]) -> Option<Uuid> {
    if text.len() != 32 || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    u128::from_str_radix(text, 16).ok().map(|number| Uuid(number.to_be_bytes()))
}

#[cfg(test)]
#[path = "file_test.rs"]
mod tests;
