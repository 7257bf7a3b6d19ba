//! `rowen.conf` in the system directory, read as [`rowen_control::settings`] has it. Commands refuse to run over a file
//! that cannot be read; a server goes on with the settings that it has.

use crate::paths;
use rowen_control::settings::Settings;
use std::io;
use std::path::PathBuf;

/// Longer files are no settings.
const LONGEST: usize = 1 << 20;

/// Where the file is.
pub fn path() -> PathBuf {
    paths::system_dir().join("rowen.conf")
}

/// The settings: the defaults when there is no file. The error is LVM's sentences.
pub fn load() -> Result<Settings, String> {
    let path = path();
    let refused = |why: String| format!("{why}\nFailed to load config file {}", path.display());
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Settings::default()),
        Err(e) => return Err(refused(format!("{}: read failed: {e}", path.display()))),
        Ok(bytes) if bytes.len() > LONGEST => {
            return Err(refused(format!("{}: the file is too long", path.display())));
        }
        Ok(bytes) => String::from_utf8(bytes)
            .map_err(|_| refused(format!("Parse error in {}: it is not text in UTF-8", path.display())))?,
    };
    Settings::read(&text).map_err(|error| refused(format!("Parse error in {}, {error}", path.display())))
}
