//! The devices file: which files and block devices were made physical volumes on this host, one per line: identifier
//! and path. Files can be found in no other way; block devices are found by their labels as well.
//!
//! The file is only a hint: a device's label says what it is. The file is replaced as a whole: a new file is synced and
//! renamed over the old one, and the directory is synced. A lock ensures that two commands lose no line. Invalid lines
//! stay where they are: an editor may have damaged a valid one.

use super::Error;
use crate::paths;
use rowen_engine::units::Uuid;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
    match std::fs::read(path()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        text => text.map_err(|source| Error::Io { path: path(), what: "read", source }),
    }
}

/// Changes the entries under the file's lock. Nothing is written when nothing changed.
pub fn change(change: impl FnOnce(&mut Vec<Entry>)) -> Result<(), Error> {
    let failed = |what| move |source| Error::Io { path: path(), what, source };
    let dir = paths::system_dir();
    std::fs::create_dir_all(&dir).map_err(failed("make the directory of"))?;
    let lock = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join("devices.lock"))
        .map_err(failed("lock"))?;
    paths::wait_for_lock(&lock).map_err(failed("lock"))?;

    let text = text()?;
    let before = parse(&text);
    let mut after = before.clone();
    change(&mut after);
    if after != before {
        replace(&dir, &format(&after, &text)).map_err(failed("write"))?;
    }
    Ok(())
}

/// Stores that `path` is the physical volume `uuid`. Replaces older entries of either.
pub fn remember(uuid: Uuid, path: &Path) -> Result<(), Error> {
    change(|entries| {
        entries.retain(|entry| entry.uuid != uuid && entry.path != path);
        entries.push(Entry { uuid, path: path.to_owned() });
    })
}

/// Drops the entry of `path`.
pub fn forget(path: &Path) -> Result<(), Error> {
    change(|entries| entries.retain(|entry| entry.path != path))
}

fn replace(dir: &Path, text: &[u8]) -> std::io::Result<()> {
    let fresh = dir.join("devices.new");
    let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
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
