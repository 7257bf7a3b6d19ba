//! A store in a directory: each object is a file. What is acknowledged is on the disk.

use rowen_transfer::store::{Created, Objects, Remedy, Trouble};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Files that are being written have names that begin so. What a killed program left of them is harmless.
const PART: &str = ".part-";

pub struct Directory {
    root: PathBuf,
    /// Makes names of parts that no other program has.
    writer: String,
    parts: AtomicU64,
}

fn trouble(error: &io::Error) -> Trouble {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied
        | ErrorKind::NotADirectory
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::StorageFull => Remedy::Nothing,
        _ => Remedy::AskAgain,
    };
    Trouble { why: error.to_string(), remedy }
}

impl Directory {
    pub fn new(root: &Path, writer: [u8; 16]) -> Directory {
        let writer = writer[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Directory { root: root.to_owned(), writer, parts: AtomicU64::new(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes the bytes into a file of its own, which is durable.
    fn part(&self, path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        let folder = path.parent().unwrap_or(&self.root);
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let part = folder.join(format!("{PART}{}-{number}", self.writer));
        let write = || {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        match write() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(folder)?;
                // The name of a new folder is durable, too.
                sync(folder.parent().unwrap_or(&self.root))?;
                write()?;
            }
            outcome => outcome?,
        }
        Ok(part)
    }

    fn finish(path: &Path, part: &Path, done: io::Result<()>) -> io::Result<()> {
        let _already_gone = fs::remove_file(part);
        done?;
        sync(path.parent().unwrap_or(path))
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl Objects for Directory {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<Created, Trouble> {
        let path = self.path(name);
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(Created::Exists);
        }
        let create = || {
            let part = self.part(&path, bytes)?;
            // Of several links to one name, one is made.
            Directory::finish(&path, &part, fs::hard_link(&part, &path))
        };
        match create() {
            Ok(()) => Ok(Created::New),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Created::Exists),
            Err(error) => Err(trouble(&error)),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Trouble> {
        let path = self.path(name);
        let replace = || {
            let part = self.part(&path, bytes)?;
            fs::rename(&part, &path)
        };
        replace().map_err(|error| trouble(&error))
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>, Trouble> {
        let read = || {
            let mut file = File::open(self.path(name))?;
            let mut bytes = Vec::new();
            match range {
                Some(range) => {
                    file.seek(SeekFrom::Start(range.start))?;
                    file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
                }
                None => {
                    file.read_to_end(&mut bytes)?;
                }
            }
            Ok::<_, io::Error>(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(trouble(&error)),
        }
    }

    fn delete(&self, name: &str) -> Result<(), Trouble> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(trouble(&error)),
            _ => Ok(()),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble> {
        let folder = self.path(prefix.trim_end_matches('/'));
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| trouble(&error))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| trouble(&error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let metadata = entry.metadata().map_err(|error| trouble(&error))?;
            if !name.starts_with(PART) && metadata.is_file() {
                found.push((format!("{prefix}{name}"), metadata.len()));
            }
        }
        Ok(found)
    }

    fn pause(&self, attempt: u32) {
        std::thread::sleep(Duration::from_millis(100 << attempt.min(5)));
    }
}
