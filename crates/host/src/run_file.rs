//! Small files in a group's run directory. They outlive servers, but not a boot.

use crate::files;
use rowen_control::protocol::{read_frame, write_frame};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Writes the file, in one step.
pub(crate) fn write<T: Serialize>(path: &Path, what: &T) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let written = File::create(&fresh).and_then(|mut file| write_frame(&mut file, what));
    written.and_then(|()| fs::rename(&fresh, path)).inspect_err(|_| drop(fs::remove_file(&fresh)))
}

/// Reads it; none if there is no file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match files::open_here(path, File::options().read(true)) {
        Ok(mut file) => read_frame(&mut file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
