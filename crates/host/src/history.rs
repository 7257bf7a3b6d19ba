//! The files of the history of groups: `history/UUID.commands` and `history/UUID.events` below the system directory, by
//! the group's identifier, and the older `....old`. [`rowen_control::history`] has the format of their lines.
//!
//! * HS1 A server never waits for these files, because they may lie on its own volumes. A helper writes them
//!   ([`record`]), and the asker waits for a limited time.
//! * HS2 They are bounded: [`MAX_BYTES`] in a file, two files of each kind for a group, [`MAX_GROUPS`] groups. Beyond
//!   that, the groups that were written to least recently are removed.
//! * HS4 A file is opened only if it is a regular file of this user, and not a link: foreign files are neither written
//!   nor read, and never waited for.

use crate::helper::{self, Job, Session, has_name};
use crate::{files, paths, planted};
use rowen_control::history::{Book, Kept};
use rowen_control::protocol::write_compact;
use rowen_control::uuids::{lvm_text, parse_lvm_text};
use rowen_engine::units::Uuid;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that would be larger becomes the older one.
pub const MAX_BYTES: u64 = 1 << 20;
/// The largest number of groups with files.
pub const MAX_GROUPS: usize = 64;
/// A foreign writer may have made a file longer: no more of its end is read.
const TAIL: u64 = MAX_BYTES + (64 << 10);
/// A file that others rotate meanwhile is read again.
const TRIES: usize = 5;

/// Lines for the files of one group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Lines {
    pub group: [u8; 16],
    pub commands: String,
    pub events: String,
}

impl Lines {
    fn of(&self, book: Book) -> &str {
        match book {
            Book::Commands => &self.commands,
            Book::Events => &self.events,
        }
    }
}

/// The directory of all these files.
pub fn dir() -> PathBuf {
    paths::system_dir().join("history")
}

fn ending(book: Book) -> &'static str {
    match book {
        Book::Commands => "commands",
        Book::Events => "events",
    }
}

/// The file with the newest lines of a group.
pub fn path(group: Uuid, book: Book) -> PathBuf {
    dir().join(format!("{}.{}", lvm_text(group), ending(book)))
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    PathBuf::from(name)
}

/// Asks a helper to write the lines. All of them are written when this returns (HS1).
pub(crate) fn record(lines: Lines, limit: Duration) -> io::Result<()> {
    helper::ask_apart(&Job::Record(lines), "history", limit).map(drop)
}

/// In a helper: writes the lines down.
pub(crate) fn write_down(lines: &Lines) -> io::Result<()> {
    paths::make_private_dir(&dir())?;
    let group = Uuid(lines.group);
    for book in [Book::Commands, Book::Events] {
        let text = lines.of(book);
        if !text.is_empty() {
            append(&path(group, book), text.as_bytes())?;
        }
    }
    Ok(())
}

fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let is_new = path.symlink_metadata().is_err();
    if is_new {
        forget_oldest();
    }
    let mut file = locked(path)?;
    let mut length = file.metadata()?.len();
    if length > 0 && length.saturating_add(text.len() as u64) > MAX_BYTES && !planted::is("history_unbounded") {
        fs::rename(path, older(path))?;
        file = locked(path)?;
        length = file.metadata()?.len();
    }
    // Ends a line that a crash or a full disk has cut short, so that the next line is separate.
    let joint: &[u8] = if ends_in_a_line(&file, length)? { b"" } else { b"\n" };
    let written = file.write_all(&[joint, text].concat()).and_then(|()| file.sync_data());
    if written.is_err() {
        // A partial line is removed. If that fails, too, the next line still begins separately.
        let _ = file.set_len(length);
    }
    written
}

/// The file for appending, alone (HS4).
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = open(path, File::options().create(true).append(true).read(true).mode(0o600))?;
        paths::wait_for_lock(&file)?;
        // Else somebody made it the older one meanwhile.
        if has_name(&file, path) {
            return Ok(file);
        }
    }
}

/// Opens what may be opened (HS4).
fn open(path: &Path, how: &mut fs::OpenOptions) -> io::Result<File> {
    let flags = if planted::is("history_by_links") { OFlags::NONBLOCK } else { OFlags::NOFOLLOW | OFlags::NONBLOCK };
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()));
    let file = how.custom_flags(flags.bits().cast_signed()).open(path).map_err(|e| {
        let link = e.raw_os_error() == Some(libc::ELOOP);
        if link {
            refused("it is a link, and is ignored")
        } else {
            io::Error::new(e.kind(), format!("{}: {e}", path.display()))
        }
    })?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(refused("it is not a regular file, and is ignored"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user, and is ignored"));
    }
    Ok(file)
}

fn ends_in_a_line(mut file: &File, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The groups that have files, and when they were written to last.
fn groups() -> BTreeMap<String, SystemTime> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let group = name.to_str().and_then(|name| name.split_once('.')).filter(|(uuid, rest)| {
            let book = rest.strip_suffix(".old").unwrap_or(rest);
            parse_lvm_text(uuid).is_some() && matches!(book, "commands" | "events")
        });
        let (Some((uuid, _)), Ok(meta)) = (group, entry.metadata()) else { continue };
        let written = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let newest = found.entry(uuid.to_owned()).or_insert(written);
        *newest = written.max(*newest);
    }
    found
}

/// Makes room for the files of another group (HS2). Files that cannot be removed are tried again with the next group.
fn forget_oldest() {
    let groups = groups();
    let mut by_age: Vec<(&SystemTime, &String)> = groups.iter().map(|(uuid, written)| (written, uuid)).collect();
    by_age.sort();
    for (_, uuid) in by_age.iter().take((groups.len() + 1).saturating_sub(MAX_GROUPS)) {
        for book in [Book::Commands, Book::Events] {
            let newest = dir().join(format!("{uuid}.{}", ending(book)));
            let _ = fs::remove_file(older(&newest));
            let _ = fs::remove_file(newest);
        }
    }
}

/// The history of all groups. It changes nothing, and waits for a limited time (H15).
pub fn read() -> Vec<Kept> {
    if files::is_near(&dir()) {
        return groups().into_keys().map(kept).collect();
    }
    let mut found = Vec::new();
    if let Err(e) = ask_for_all(&mut found) {
        let trouble = format!("{}: read failed: {}", dir().display(), files::late(e));
        found.push(Kept { troubles: vec![trouble], ..Kept::default() });
    }
    found
}

fn ask_for_all(found: &mut Vec<Kept>) -> io::Result<()> {
    files::refuse_if_many_hang()?;
    let mut session = Session::start(Job::History)?;
    while let Some(kept) = session.receive(files::limit())? {
        found.push(kept);
    }
    session.end();
    Ok(())
}

/// In a helper: passes the history of each group, and then nothing.
pub(crate) fn answer(mut socket: &UnixStream) -> io::Result<()> {
    for kept in groups().into_keys().map(kept) {
        write_compact(&mut socket, &Some(kept))?;
    }
    write_compact(&mut socket, &None::<Kept>)
}

fn kept(uuid: String) -> Kept {
    let mut kept = Kept { uuid, ..Kept::default() };
    let mut troubles = BTreeSet::new();
    for book in [Book::Commands, Book::Events] {
        let newest = dir().join(format!("{}.{}", kept.uuid, ending(book)));
        let bytes = both(&newest, &mut troubles);
        match book {
            Book::Commands => kept.commands = bytes,
            Book::Events => kept.events = bytes,
        }
    }
    kept.troubles = troubles.into_iter().collect();
    kept
}

/// The older file and the newer.
fn both(newest: &Path, troubles: &mut BTreeSet<String>) -> Vec<u8> {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        found.clear();
        let before = open_there(newest, troubles);
        if let Some(file) = open_there(&older(newest), troubles) {
            found.extend(tail(&file, troubles));
        }
        let Some(file) = before else { return found };
        found.extend(tail(&file, troubles));
        // It may have become the older one before that was read.
        if has_name(&file, newest) {
            break;
        }
    }
    found
}

fn open_there(path: &Path, troubles: &mut BTreeSet<String>) -> Option<File> {
    match open(path, File::options().read(true)) {
        Ok(file) => Some(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => {
            troubles.insert(e.to_string());
            None
        }
    }
}

/// The end of a file, from the beginning of a line.
fn tail(mut file: &File, troubles: &mut BTreeSet<String>) -> Vec<u8> {
    let mut read = || -> io::Result<Vec<u8>> {
        let from = file.metadata()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        if from > 0 {
            let first = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            bytes.drain(..first);
        }
        Ok(bytes)
    };
    read().unwrap_or_else(|e| {
        troubles.insert(format!("a file in {} cannot be read: {e}", dir().display()));
        Vec::new()
    })
}

/// Follows the lines that are added to a file, also when it becomes the older one.
#[derive(Default)]
pub struct Follower {
    files: BTreeMap<String, Followed>,
    troubles: BTreeSet<String>,
}

#[derive(Default)]
struct Followed {
    file: Option<File>,
    at: u64,
}

impl Follower {
    /// All from their ends on.
    pub fn begin() -> Follower {
        let mut follower = Follower::default();
        if !answers() {
            return follower;
        }
        for uuid in groups().into_keys() {
            let file = open_there(&event_path(&uuid), &mut follower.troubles);
            let at = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
            follower.files.insert(uuid, Followed { file, at });
        }
        follower
    }

    /// The complete lines since the last call, for each group that has some.
    pub fn poll(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut news = Vec::new();
        if !answers() {
            return news;
        }
        for uuid in groups().into_keys() {
            let followed = self.files.entry(uuid.clone()).or_default();
            let lines = followed.poll(&event_path(&uuid), &mut self.troubles);
            if !lines.is_empty() {
                news.push((uuid, lines));
            }
        }
        news
    }
}

/// Whether the directory can be read now (H15).
fn answers() -> bool {
    files::is_near(&dir()) || files::names(&dir()).is_ok()
}

fn event_path(uuid: &str) -> PathBuf {
    dir().join(format!("{uuid}.{}", ending(Book::Events)))
}

impl Followed {
    fn poll(&mut self, path: &Path, troubles: &mut BTreeSet<String>) -> Vec<u8> {
        let mut lines = Vec::new();
        if let Some(file) = &self.file {
            let is_left = !has_name(file, path);
            lines = whole_lines(file, &mut self.at);
            if !is_left {
                return lines;
            }
        }
        self.file = open_there(path, troubles);
        self.at = 0;
        if let Some(file) = &self.file {
            lines.extend(whole_lines(file, &mut self.at));
        }
        lines
    }
}

/// The complete lines of a file from that byte on.
fn whole_lines(mut file: &File, at: &mut u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A file that was cut begins again.
    let length = file.metadata().map_or(0, |meta| meta.len());
    *at = if length < *at { 0 } else { (*at).max(length.saturating_sub(TAIL)) };
    let read = file.seek(SeekFrom::Start(*at)).and_then(|_| file.take(TAIL).read_to_end(&mut bytes));
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    bytes.truncate(if read.is_ok() { end } else { 0 });
    *at += bytes.len() as u64;
    bytes
}
