//! The files of settings: `rowen.conf` in the system directory, with the settings of [`rowen_control::settings`]. If
//! the environment has `LVM_SYSTEM_DIR`, also `lvm.conf` in that directory, and LVM's files for the tags of this host.
//! Without the variable LVM's own directory is not read, because old files there may be about other disks.
//!
//! Commands refuse to run if a file cannot be read. A server keeps its present settings.

use crate::{archive, paths};
use rowen_control::lists;
use rowen_control::settings::{self, Loaded};
use rowen_control::syntax::Error;
use std::io;
use std::path::{Path, PathBuf};

/// The size limit of a file of settings.
const LONGEST: usize = 1 << 20;

/// Where Rowen's own file is.
pub fn path() -> PathBuf {
    paths::system_dir().join("rowen.conf")
}

/// LVM's directory, if the environment names it.
fn lvms_dir() -> Option<PathBuf> {
    std::env::var_os("LVM_SYSTEM_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// The settings, or the defaults if there is no file. The error has LVM's messages.
pub fn load() -> Result<Loaded, String> {
    let mut loaded = Loaded::default();
    if let Some(config) = read(&path(), settings::read)? {
        loaded.config = config;
    }
    let Some(dir) = lvms_dir() else { return Ok(loaded) };
    let mut waiting = vec!["lvm.conf".to_owned(), "lvmlocal.conf".to_owned()];
    let mut known = Vec::new();
    // A tag's file may give the host another tag.
    while let Some(name) = waiting.first().cloned() {
        if let Some((config, warnings)) = read(&dir.join(&name), settings::read_lvms)? {
            loaded.config.add(config);
            loaded.warnings.extend(warnings);
        }
        known.push(waiting.remove(0));
        for tag in lists::host_tags(&loaded.config, &archive::host_name()) {
            let name = format!("lvm_{tag}.conf");
            if !tag.contains('/') && !known.contains(&name) && !waiting.contains(&name) {
                waiting.push(name);
            }
        }
    }
    Ok(loaded)
}

/// The contents of a file. None: there is no file.
fn read<T>(path: &Path, understand: impl FnOnce(&str) -> Result<T, Error>) -> Result<Option<T>, String> {
    let shown = path.display();
    let refused = |why: String| format!("{why}\nFailed to load config file {shown}");
    let text = match std::fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refused(format!("{shown}: read failed: {e}"))),
        Ok(bytes) if bytes.len() > LONGEST => return Err(refused(format!("{shown}: the file is too long"))),
        Ok(bytes) => {
            String::from_utf8(bytes).map_err(|_| refused(format!("Parse error in {shown}: it is not text in UTF-8")))?
        }
    };
    let understood = understand(&text).map_err(|error| refused(error.sentence(&shown.to_string())))?;
    Ok(Some(understood))
}
