//! Why a physical volume could not be opened, in one sentence each.

use super::holders;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the kernel may take to end the requests of a process that was killed.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// The interval between two tries of a disk in use.
pub(super) const RETRY: Duration = Duration::from_millis(5);

/// A physical volume that could not be opened.
#[derive(Debug)]
pub struct OpenError {
    pub path: PathBuf,
    pub reason: Reason,
}

/// The reason.
#[derive(Debug)]
pub enum Reason {
    Missing,
    /// Neither a regular file nor a block device; the text says what it is.
    NotADisk(&'static str),
    ReadOnly,
    /// Held by another process; `by` names it if the system knows it.
    InUse {
        by: Option<String>,
    },
    /// A filesystem on it is mounted there.
    Mounted {
        at: String,
    },
    TooSmall {
        size: u64,
        least: u64,
    },
    /// More physical volumes than a group can have.
    TooMany,
    /// The operating system refused; `doing` says what.
    System {
        doing: &'static str,
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn new(path: &Path, reason: Reason) -> OpenError {
        OpenError { path: path.to_owned(), reason }
    }

    pub(super) fn system(path: &Path, doing: &'static str, source: io::Error) -> OpenError {
        OpenError::new(path, Reason::System { doing, source })
    }

    /// Whether to retry after this time, because the holder may release it. If no holder can be named, or it has ended,
    /// the kernel has not ended its requests yet, which takes longer on a busy machine.
    pub fn may_pass(&self, waited: Duration, limit: Duration) -> bool {
        let limit = match &self.reason {
            Reason::InUse { by } if by.as_deref().is_none_or(holders::has_ended) => limit.max(LAST_REQUESTS),
            _ => limit,
        };
        self.is_in_use() && waited < limit
    }

    /// Whether the same call may succeed after the holder releases it.
    pub fn is_in_use(&self) -> bool {
        matches!(self.reason, Reason::InUse { .. })
    }
}

/// Tries until who holds the disk lets go of it, but no longer than `limit`, or than the kernel may take.
pub fn retry<T>(limit: Duration, mut attempt: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(e) if e.may_pass(begun.elapsed(), limit) => std::thread::sleep(RETRY),
            outcome => return outcome,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            Reason::Missing => write!(f, "{path} does not exist; check the name, or attach the disk"),
            Reason::NotADisk(what) => write!(f, "{path} is {what}, not a block device or a regular file"),
            Reason::ReadOnly => write!(f, "{path} is read-only; make it writable first"),
            Reason::InUse { by: Some(by) } => write!(f, "{path} is in use by {by}; end that use first"),
            Reason::InUse { by: None } => write!(f, "{path} is in use by another program; end that use first"),
            Reason::Mounted { at } => write!(f, "{path} is mounted at {at}; unmount it first"),
            Reason::TooSmall { size, least } => {
                write!(f, "{path} is too small: it has {size} bytes, a physical volume needs at least {least}")
            }
            Reason::TooMany => write!(f, "{path} cannot be added: a group has room for {} physical volumes", u16::MAX),
            Reason::System { doing, source } => write!(f, "{path}: {doing} failed: {source}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
