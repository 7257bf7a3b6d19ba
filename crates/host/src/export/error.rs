//! Errors of devices: a sentence for each, with the device and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a volume could not be exported, or its export not be changed or ended.
#[derive(Debug)]
pub enum Error {
    /// The system refused: `doing` says what and to what ("attach /dev/loop3 to /run/...").
    System { doing: String, source: io::Error },
    /// Something uses the device; `user` says what ("mounted on /mnt").
    InUse { device: String, user: String },
    /// Something that Rowen did not make is in the way.
    Foreign { path: PathBuf, what: String },
    /// Not a name that a volume or group may have.
    BadName(String),
    /// The volume has no device.
    NotActive(String),
    /// The volume has a device already.
    Active(String),
    /// The keeper refused; the text is its own.
    Keeper(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { doing, source } => write!(f, "cannot {doing}: {source}"),
            Error::InUse { device, user } => write!(f, "{device} is in use: {user}"),
            Error::Foreign { path, what } => {
                write!(f, "{} already exists: {what}; remove it or choose another name", path.display())
            }
            Error::BadName(name) => write!(f, "\"{}\" is not a name for a volume or group", name.escape_debug()),
            Error::NotActive(name) => write!(f, "{name} is not active"),
            Error::Active(name) => write!(f, "{name} is active already"),
            Error::Keeper(why) => write!(f, "the keeper refused: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Says what was being done when the system refused.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::System { doing: what(), source: e.into() })
    }
}
