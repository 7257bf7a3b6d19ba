//! Stores as this program meets them: their objects, their logs, and one program at a time where that matters.

#[cfg(feature = "s3")]
use crate::cloud::Cloud;
use crate::directory::Directory;
use crate::failure::{Result, failed, usage};
use crate::keys::{self, Unlocked};
use crate::known::{Known, folder, hex, now, unhex};
use rowen_control::uuids;
use rowen_transfer::store::{Log, Objects};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A store that can be asked.
pub struct Place {
    pub known: Known,
    pub objects: Box<dyn Objects>,
    pub writer: [u8; 16],
    /// Its key, if it is encrypted.
    pub key: Option<Unlocked>,
}

/// The objects at a URL.
pub fn objects(known: &Known, writer: [u8; 16]) -> Result<Box<dyn Objects>> {
    let path = known.url.strip_prefix("file://");
    match path {
        Some(path) if path.starts_with('/') => Ok(Box::new(Directory::new(Path::new(path), writer))),
        #[cfg(feature = "s3")]
        None if known.url.starts_with("s3://") => Ok(Box::new(Cloud::new(known)?)),
        #[cfg(not(feature = "s3"))]
        None if known.url.starts_with("s3://") => Err(failed("This rowen-remote was built without object stores.")),
        Some(_) => Err(usage("A directory is given with its whole path: file:///srv/rowen.")),
        None => Err(usage(format!(
            "\"{}\" is no place for a store that this program knows: file:///DIRECTORY and s3://BUCKET/PREFIX are.",
            known.url.escape_debug()
        ))),
    }
}

impl Place {
    pub fn open(name: &str) -> Result<Place> {
        let known = Known::read(name)?.ok_or_else(|| {
            failed(format!("There is no store {name}: \"rowen store list\" shows those that this host knows."))
        })?;
        let writer = uuids::fresh().0;
        let (objects, key) = keys::opened(objects(&known, writer)?, &known)?;
        Ok(Place { known, objects, writer, key })
    }

    /// Reads the log. The header was read when the place was opened, and is the right one.
    pub fn log(&self) -> Result<Log<'_>> {
        let seen = self.known.seen();
        Log::read(&*self.objects, self.known.uuid, self.writer, now, seen)
            .map_err(|error| failed(format!("Cannot use store {}: {error}.", self.known.name)))
    }

    /// Remembers what was seen of the log.
    pub fn saw(&self, log: &Log<'_>) {
        // Who may not write here sees no step back in time, and can do all else.
        let _not_remembered = self.known.saw(log.seen());
    }

    /// Only one program of this host does this at a time. What an earlier one noted is in the file, if it did not come to its end.
    pub fn only_one(&self, of: &str) -> Result<Turn> {
        let path = folder().join(format!("{}.{of}.lock", self.known.name));
        let open = File::options().create(true).read(true).write(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(|e| failed(format!("Cannot lock {}: {e}.", path.display())))?;
        match file.try_lock() {
            Ok(()) => Ok(Turn { file, path }),
            Err(_) => Err(failed(format!(
                "Another program of this host does this already: it has locked {}.",
                path.display()
            ))),
        }
    }
}

/// The right to do something, as long as it lives.
pub struct Turn {
    file: File,
    path: PathBuf,
}

impl Turn {
    /// What was noted last.
    pub fn noted(&self) -> Option<[u8; 16]> {
        let text = fs::read_to_string(&self.path).ok()?;
        unhex(text.trim())
    }

    pub fn note(&self, stream: [u8; 16]) {
        // Without it a hold lasts longer than it must.
        let _not_noted = self.file.set_len(0).and_then(|()| (&self.file).write_all(hex(&stream).as_bytes()));
    }

    /// It is done: nothing is to be known of it any more.
    pub fn end(self) {
        let _stays = fs::remove_file(&self.path);
    }
}
