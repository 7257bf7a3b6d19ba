//! Errors: three kinds that are never mixed. A programming error fails an assert. Corruption is a typed error (what was
//! expected, what was found, where). All other errors say what the caller must do.

use crate::disk::{DiskError, PvIndex};
use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, in the engine's terms. Commands turn it into a sentence and an exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A disk refused or failed a request.
    Disk(DiskError),
    /// The filesystem or device below a physical volume has no room for a write. The disk is not broken.
    NoRoom(DiskError),
    /// Metadata is damaged: `what` is the structure, `place` where it lies, `detail` what was expected and found.
    Corrupt { what: &'static str, place: String, detail: String },
    /// The volume group has too few free blocks: `needed` and `free` count blocks.
    NoSpace { needed: u64, free: u64 },
    /// No volume (or physical volume) of that name or id.
    NotFound(String),
    /// A volume of that name exists already.
    Exists(String),
    /// The request is invalid (out of range, unaligned, wrong kind of volume). The text says why.
    Invalid(String),
    /// The volume is in use by something that must end first; the text says what.
    Busy(String),
    /// The volume is read-only, or the group is open read-only.
    ReadOnly,
    /// The group has features that this program would have to know to write it: it can only be read (RO1).
    ReadableOnly { features: u64 },
    /// The snapshot outgrew its reserve and is invalid; its contents are gone.
    InvalidSnapshot,
    /// An earlier flush or journal write failed: nothing is acknowledged until the group is opened again.
    Poisoned(String),
    /// A physical volume failed, and the group can continue without it (MB9). The next process that opens the group does so, and
    /// answers the request.
    DiskLost(DiskError),
    /// Two volumes have no snapshot in common, so that there is nothing to compare them by.
    Unrelated,
    /// A volume changed its tree since the comparison began.
    Moved,
    /// The on-disk format has features that this program does not know.
    Unsupported(String),
    /// This physical volume is an older copy of itself: another one knows that it lacks something that was written to mirrors
    /// (ML11).
    OlderCopy(PvIndex),
    /// A physical volume that the group needs was not given.
    MissingPv(String),
    /// The group or volume was closed.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Disk(e) => e.fmt(f),
            Error::NoRoom(e) => {
                write!(
                    f,
                    "there is no room behind physical volume {}: what it lies on is full (error {})",
                    e.pv.0, e.errno
                )
            }
            Error::Corrupt { what, place, detail } => write!(f, "{what} at {place} is damaged: {detail}"),
            Error::NoSpace { needed, free } => {
                write!(f, "insufficient free space: {needed} blocks needed, {free} free")
            }
            Error::NotFound(what) => write!(f, "{what} not found"),
            Error::Exists(what) => write!(f, "{what} already exists"),
            Error::Invalid(why) | Error::Busy(why) | Error::Unsupported(why) | Error::MissingPv(why) => {
                f.write_str(why)
            }
            Error::Unrelated => f.write_str("the volumes have no snapshot in common"),
            Error::Moved => f.write_str(
                "a volume was removed, reverted, merged, resized or dropped since the comparison began: compare again",
            ),
            Error::ReadOnly => f.write_str("the volume is read-only"),
            Error::ReadableOnly { features } => {
                write!(f, "a newer program wrote it with features ({features:#x}) that this program can only read")
            }
            Error::InvalidSnapshot => {
                f.write_str("the snapshot used up its reserve, or gave way in a full group, and is invalid")
            }
            Error::Poisoned(why) => {
                write!(f, "the volume group stopped after a failed write ({why}); reopen it once the disk is well")
            }
            Error::DiskLost(error) => write!(f, "{error}; the volume group goes on without it"),
            Error::OlderCopy(pv) => write!(
                f,
                "physical volume {} is an older copy: it lacks what was written to mirrored volumes later; attach its newest copy, \
                 or detach this one and go on without it",
                pv.0
            ),
            Error::Closed => f.write_str("the volume is closed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<DiskError> for Error {
    fn from(e: DiskError) -> Self {
        if e.is_no_room() { Error::NoRoom(e) } else { Error::Disk(e) }
    }
}
