//! Small files below the system directory: settings, the devices file, copies of metadata, who was in a group, policies.
//!
//! Anything may be in their places: a FIFO, a device, a file without end. And the directory may lie on a filesystem that
//! does not answer: of a server in the network, or on a volume.
//!
//! * H15 Only regular files are read, up to a size, and no open waits for another process. What is not on the root
//!   filesystem is read by a helper, and waited for a limited time. So a file below the system directory holds up no
//!   process: a command says which file it is, and ends.

use crate::helper::{Job, Session, is_late};
use crate::{patience, planted, processes};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Helpers that hang in the kernel, at most: each is there until its filesystem answers.
const STUCK: usize = 4;
/// An open with these flags waits for no other process, and gets no terminal.
const FLAGS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What a helper is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Asked {
    /// A file's contents, up to this many bytes.
    Contents(PathBuf, u64),
    /// The names in a directory.
    Names(PathBuf),
}

/// What it answers: contents or names, none where there is nothing; or the system's error.
pub(crate) type Told = Result<Option<Vec<Vec<u8>>>, (Option<i32>, String)>;

/// This process is a helper: it does all by itself.
static IS_HELPER: AtomicBool = AtomicBool::new(false);

/// From now on this process reads all of them by itself: it is a helper.
pub(crate) fn by_itself() {
    IS_HELPER.store(true, Ordering::Relaxed);
}

/// The contents of a file of at most this many bytes. None: there is no file.
pub fn read(path: &Path, longest: u64) -> io::Result<Option<Vec<u8>>> {
    if is_near(path) {
        return read_here(path, longest);
    }
    let contents = ask(Asked::Contents(path.to_owned(), longest))?;
    Ok(contents.map(|parts| parts.concat()))
}

/// The same for a text.
pub fn read_text(path: &Path, longest: u64) -> io::Result<Option<String>> {
    let text = read(path, longest)?.map(String::from_utf8).transpose();
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))
}

/// The names in a directory; none where there is no directory.
pub fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    if is_near(directory) {
        return names_here(directory);
    }
    let names = ask(Asked::Names(directory.to_owned()))?;
    Ok(names.unwrap_or_default().into_iter().map(OsString::from_vec).collect())
}

/// Whether this process may open it: it is on the root filesystem, or not there, or this process is a helper.
pub(crate) fn is_near(path: &Path) -> bool {
    if IS_HELPER.load(Ordering::Relaxed) || planted::is("files_by_itself") {
        return true;
    }
    // Nothing is opened by that, neither a FIFO nor a device, and no other filesystem is asked.
    let place = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_XDEV);
    match place {
        Ok(_) => true,
        // Where it says so, it was looked for on the root filesystem alone.
        Err(e) => matches!(e, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NAMETOOLONG),
    }
}

/// Reads a file that is on a filesystem that answers.
pub(crate) fn read_here(path: &Path, longest: u64) -> io::Result<Option<Vec<u8>>> {
    if planted::is("files_of_any_kind") {
        return fs::read(path).map(Some).or_else(none_there);
    }
    match open_here(path, File::options().read(true)) {
        Ok(file) => contents(&file, longest).map(Some),
        Err(e) => none_there(e),
    }
}

fn none_there<T>(e: io::Error) -> io::Result<Option<T>> {
    if e.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(e) }
}

/// Opens a regular file that is on a filesystem that answers, and nothing else.
pub(crate) fn open_here(path: &Path, how: &mut fs::OpenOptions) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    // Opening a device may do something to it.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(other());
    }
    let file = how.custom_flags(FLAGS.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

fn contents(file: &File, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(longest.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it has more than {longest} bytes")));
    }
    Ok(bytes)
}

fn names_here(directory: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name())).collect(),
        Err(e) => Ok(none_there(e)?.unwrap_or_default()),
    }
}

/// In a helper: reads what was asked for.
pub(crate) fn answer(asked: &Asked) -> Told {
    let read = match asked {
        Asked::Contents(path, longest) => read_here(path, *longest).map(|bytes| bytes.map(|bytes| vec![bytes])),
        Asked::Names(directory) => {
            let bytes = |name: &OsString| OsStr::as_bytes(name).to_vec();
            names_here(directory).map(|names| Some(names.iter().map(bytes).collect()))
        }
    };
    read.map_err(|e| (e.raw_os_error(), e.to_string()))
}

/// How long a filesystem may take to answer.
pub(crate) fn limit() -> Duration {
    patience::limit()
}

/// That nothing came in time.
pub(crate) fn late(e: io::Error) -> io::Error {
    if !is_late(&e) {
        return e;
    }
    let seconds = limit().as_secs();
    let why = format!("nothing answers for {seconds} s; look at the filesystem on which it lies");
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// A helper that never gets an answer never ends. Repeated requests must not add one helper each.
pub(crate) fn refuse_if_many_hang() -> io::Result<()> {
    match processes::stuck_helpers() {
        stuck if stuck >= STUCK => {
            let why =
                format!("{stuck} earlier reads still hang in the kernel; look at the filesystem on which it lies");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
        _ => Ok(()),
    }
}

fn ask(asked: Asked) -> io::Result<Option<Vec<Vec<u8>>>> {
    refuse_if_many_hang()?;
    let mut session = Session::start(Job::File(asked))?;
    let told: Told = session.receive(limit()).map_err(late)?;
    session.end();
    told.map_err(|(errno, why)| errno.map_or_else(|| io::Error::other(why), io::Error::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_not_all_of_them() {
        let dir = std::env::temp_dir().join(format!("rowen-files-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let fifo = dir.join("fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for other in [&fifo, &dir, Path::new("/dev/zero")] {
            assert_eq!(read_here(other, 10).unwrap_err().to_string(), "it is not a regular file", "{other:?}");
        }
        let file = dir.join("file");
        fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_here(&file, 10).unwrap().unwrap(), b"0123456789");
        assert_eq!(read_here(&file, 9).unwrap_err().to_string(), "it has more than 9 bytes");
        assert_eq!(read_here(&dir.join("none"), 9).unwrap(), None);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_on_another_filesystem_is_not_near() {
        assert!(is_near(Path::new("/")) && is_near(Path::new("/none")) && is_near(Path::new("/none/none")));
        assert!(!is_near(Path::new("/proc/self")) && !is_near(Path::new("/dev/none")));
    }
}
