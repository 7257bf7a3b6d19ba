//! The files that hold copies of groups' metadata: `backup/VG`, the newest, and `archive/VG_NNNNN-R.vg`, what was in it
//! before, both below the system directory. The documents themselves are [`rowen_control::metadata`]'s.
//!
//! * A1 `backup/VG` is always a complete document, also after power loss: it is replaced, never written to.
//! * A2 The old document goes to the archive first, without a copy.
//! * A3 The archive of a group is bounded in files and bytes, whatever the settings say ([`MAX_FILES`], [`MAX_BYTES`]).
//! * A4 A server waits for these files only for a limited time, because they may lie on its own volumes. A helper reads
//!   and writes them ([`ask`]).
//! * A5 If the asker has given up or died, its helper does not change the newest copy: a newer one may exist by then.
//!   One helper writes at a time.

use crate::helper::{self, Job};
use crate::{files, paths, planted};
use rowen_control::metadata::Document;
use rowen_control::names;
use rowen_control::settings::Settings;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files of one group in the archive, at most.
pub const MAX_FILES: usize = 100;
/// Their bytes, at most, where there are more files than `retain_min`.
pub const MAX_BYTES: u64 = 32 << 20;

/// A longer one is no copy.
pub const LONGEST: u64 = 32 << 20;

/// Modes of files: only this user can read and write it; or all can read it, and only this user can write it.
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// How long what was archived is kept: a part of LVM's section `backup`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Retention {
    /// Whether what is replaced goes to the archive.
    pub archive: bool,
    /// Files that stay however old they are.
    pub min: u64,
    /// Files older than this go.
    pub days: u64,
}

impl From<&Settings> for Retention {
    fn from(settings: &Settings) -> Retention {
        Retention { archive: settings.archive, min: settings.retain_min, days: settings.retain_days }
    }
}

/// What a helper does with the copies of a group's metadata.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// The length of the newest copy; 0 if there is no copy.
    Length { group: String },
    /// Keeps this text as the newest copy. `unless_same`: not where the newest copy says the same.
    Keep { group: String, text: String, unless_same: bool, retention: Retention },
    /// The group is gone: its newest copy becomes one of the older ones.
    Retire { group: String, retention: Retention },
}

/// Asks a helper, and waits for at most this long (A4).
pub(crate) fn ask(work: Work, limit: Duration) -> io::Result<u32> {
    helper::ask_apart(&Job::Archive(work), "archive", limit)
}

/// In a helper: does it. `is_wanted` says whether the asker still waits.
pub(crate) fn obey(work: Work, is_wanted: &dyn Fn() -> bool) -> io::Result<u32> {
    let is_wanted = &|| is_wanted() || planted::is("archived_for_nobody");
    match work {
        Work::Length { group } => {
            let length = backup_path(&group).metadata().map_or(0, |meta| meta.len());
            Ok(u32::try_from(length).unwrap_or(u32::MAX))
        }
        Work::Keep { group, text, unless_same, retention } => {
            let _alone = alone()?;
            if !(unless_same && says_the_same(&group, &text)) {
                keep_if(&group, &text, retention, is_wanted)?;
            }
            Ok(0)
        }
        Work::Retire { group, retention } => {
            let _alone = alone()?;
            still(is_wanted)?;
            retire(&group, retention).map(|()| 0)
        }
    }
}

/// The lock of all copies, for as long as the file is open.
fn alone() -> io::Result<File> {
    paths::make_private_dir(&backup_dir())?;
    let dir = File::open(backup_dir())?;
    paths::wait_for_lock(&dir)?;
    Ok(dir)
}

/// A5
fn still(is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
    if is_wanted() { Ok(()) } else { Err(io::Error::other("no request waits for it any more")) }
}

/// Whether the newest copy describes the same state. False if there is no copy, or if it is not a text.
fn says_the_same(group: &str, text: &str) -> bool {
    let newest = newest(group).ok().flatten();
    newest.is_some_and(|newest| Document::substance(&newest) == Document::substance(text))
}

/// The directory of the newest copies.
pub fn backup_dir() -> PathBuf {
    paths::system_dir().join("backup")
}

/// The directory of the older copies.
pub fn archive_dir() -> PathBuf {
    paths::system_dir().join("archive")
}

/// The newest copy of a group's metadata.
pub fn backup_path(group: &str) -> PathBuf {
    backup_dir().join(group)
}

fn newest(group: &str) -> io::Result<Option<String>> {
    files::read_text(&backup_path(group), LONGEST)
}

/// The group whose newest copy names a physical volume by this identifier, as LVM writes it. A group that was removed has none.
pub fn group_with(pv: &str) -> Option<String> {
    let quoted = format!("\"{pv}\"");
    let names = files::names(&backup_dir()).ok()?.into_iter().filter_map(|name| name.into_string().ok());
    for name in names.filter(|name| names::check_form(name).is_ok()) {
        match newest(&name) {
            Ok(Some(text)) if text.contains(&quoted) => return Some(name),
            // The next one would be waited for as long.
            Err(e) if helper::is_late(&e) => return None,
            _ => {}
        }
    }
    None
}

/// The older copies, oldest first.
pub fn archived(group: &str) -> io::Result<Vec<PathBuf>> {
    Ok(numbered(group)?.into_iter().map(|(_, path)| path).collect())
}

/// All copies, the newest last.
pub fn copies(group: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = archived(group)?;
    let is_newest = |name: &std::ffi::OsString| name == group;
    paths.extend(files::names(&backup_dir())?.iter().any(is_newest).then(|| backup_path(group)));
    Ok(paths)
}

/// The older copies with their numbers, in order.
fn numbered(group: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let names = files::names(&archive_dir())?.into_iter().filter_map(|name| name.into_string().ok());
    let numbers = names.filter_map(|name| Some((number_of(&name, group)?, archive_dir().join(name))));
    let mut found: Vec<(u64, PathBuf)> = numbers.collect();
    found.sort();
    Ok(found)
}

/// The number in `VG_NNNNN-R.vg`, if the name is one of this group's.
fn number_of(name: &str, group: &str) -> Option<u64> {
    let rest = name.strip_prefix(group)?.strip_prefix('_')?.strip_suffix(".vg")?;
    let (number, random) = rest.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(number) && is_number(random) { number.parse().ok() } else { None }
}

/// Keeps `text` as the newest copy, and what was the newest in the archive.
pub fn keep(group: &str, text: &str, retention: Retention) -> io::Result<()> {
    if files::is_near(&backup_dir()) && files::is_near(&archive_dir()) {
        return keep_if(group, text, retention, &|| true);
    }
    files::refuse_if_many_hang()?;
    let work = Work::Keep { group: group.to_owned(), text: text.to_owned(), unless_same: false, retention };
    ask(work, files::limit()).map(drop).map_err(files::late)
}

fn keep_if(group: &str, text: &str, retention: Retention, is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
    paths::make_private_dir(&backup_dir())?;
    if retention.archive && !planted::is("not_archived") {
        archive(group, false)?;
    }
    replace_if(&backup_path(group), text, PRIVATE, is_wanted)?;
    prune(group, retention)
}

/// The group is gone: its newest copy becomes one of the older ones.
pub fn retire(group: &str, retention: Retention) -> io::Result<()> {
    if retention.archive {
        archive(group, true)?;
        prune(group, retention)
    } else {
        remove_if_there(&backup_path(group))
    }
}

/// Puts the newest copy into the archive, too, or only there.
fn archive(group: &str, only: bool) -> io::Result<()> {
    paths::make_private_dir(&archive_dir())?;
    let newest = backup_path(group);
    // The name is taken only if two processes put a file there at once.
    for _ in 0..100 {
        let next = numbered(group)?.last().map_or(0, |(number, _)| number + 1);
        let path = archive_dir().join(format!("{group}_{next:05}-{}.vg", random()));
        match fs::hard_link(&newest, &path) {
            Ok(()) if only => return remove_if_there(&newest),
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other(format!("no free name in {}", archive_dir().display())))
}

/// Tells files of one number apart, no more.
fn random() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.subsec_nanos() ^ std::process::id().rotate_left(16)
}

/// Writes a whole file and puts it at `path`, over the file that is there (A1). A device or directory is left alone.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    replace_if(path, text, PRIVATE, &|| true)
}

/// As [`replace`], and any user may read it.
pub fn publish(path: &Path, text: &str) -> io::Result<()> {
    replace_if(path, text, PUBLIC, &|| true)
}

/// As [`replace`], with this mode. Replaces nothing if `is_wanted` is false when everything is written.
fn replace_if(path: &Path, text: &str, mode: u32, is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
    if planted::is("written_in_place") {
        return fs::write(path, text);
    }
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a regular file"));
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(mode)
        // A link that somebody else made is not written to.
        .custom_flags(libc::O_NOFOLLOW)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| still(is_wanted))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _may_not_exist = fs::remove_file(&temporary);
    }
    written
}

/// This host's name, as documents give it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes what is too old or too much (A3), oldest first.
fn prune(group: &str, retention: Retention) -> io::Result<()> {
    let oldest_kept = Duration::from_secs(retention.days.saturating_mul(86_400));
    let now = SystemTime::now();
    let files = numbered(group)?;
    let least = usize::try_from(retention.min).unwrap_or(MAX_FILES).min(MAX_FILES);
    let (mut kept, mut bytes) = (0usize, 0u64);
    for (_, path) in files.iter().rev() {
        let meta = match path.metadata() {
            Ok(meta) => meta,
            // Somebody else prunes, too.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let age = meta.modified().ok().and_then(|then| now.duration_since(then).ok()).unwrap_or_default();
        let fits = kept < MAX_FILES && bytes + meta.len() <= MAX_BYTES && age <= oldest_kept;
        if kept < least || fits || planted::is("unbounded_archive") {
            kept += 1;
            bytes += meta.len();
        } else {
            remove_if_there(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_groups_files_are_distinguished_from_those_of_others() {
        assert_eq!(number_of("vg_00012-7.vg", "vg"), Some(12));
        assert_eq!(number_of("vg_00012_00001-7.vg", "vg_00012"), Some(1));
        for other in ["vg_00012_00001-7.vg", "vg2_00012-7.vg", "vg_-7.vg", "vg_1-.vg", "vg_1-7", "vg_1-7.vg.tmp"] {
            assert_eq!(number_of(other, "vg"), None, "{other}");
        }
    }
}
