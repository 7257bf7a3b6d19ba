//! The control protocol between commands and the server of a volume group.
//!
//! A connection carries frames: four bytes of length (little endian), then that many bytes of JSON.
//! [`Outcome::Report`], which most commands ask for, [`Outcome::Io`], [`Outcome::Diff`], [`Outcome::Data`] and
//! [`Request::ReceiveParts`] may be long. They have a zero byte and then a compact form (postcard) instead: with ten
//! thousand volumes JSON would take longer than the rest of a command. The client sends [`Request::Hello`] first, and
//! then one request at a time. The server answers each with any number of [`Outcome::Progress`] and [`Outcome::Notice`]
//! and then exactly one other outcome. A frame over [`FRAME_CAP`] or one that cannot be read ends the connection. Names
//! are unique within the group, so requests name volumes by name.
//!
//! Counts of blocks are named `..._blocks` or `blocks` (4 KiB each), counts of extents `..._extents`, bytes `..._bytes`.

mod attributes;
mod diff;
mod frame;
mod io;
mod mirrors;
mod outcome;
mod report;
mod request;
mod status;
mod transfer;

pub use attributes::{
    AllocPolicy, AttributeChange, Attributes, FullPolicy, GroupAttributes, GroupChange, HexUuid, SegmentType, Stripes,
    VolumeKind, VolumeState, change_tags,
};
pub use diff::{DiffPage, DiffPlace, DiffRange, DiffSide, PAGE_RANGES};
pub use frame::{
    FRAME_CAP, decode, encode, encode_compact, frame_length, read_frame, write_compact, write_frame, write_outcome,
    write_request,
};
pub use io::{BUCKETS, IoCounts, IoReport, Latency, OpCounts, PvIo, VolumeIo, bucket_end, bucket_of};
pub use mirrors::{MirrorReport, ScrubAction, ScrubReport};
pub use outcome::{CheckOutcome, Created, ErrorKind, Outcome, StatsReport, TrimReport};
pub use report::{
    BookmarkReport, GroupReport, Index, Legs, NodeState, PvReport, PvShare, StripeReport, VolumePlaces, VolumeReport,
};
pub use request::{Caller, Kind, PvPart, Request, SnapshotSpec, Traits, VolumeSpec};
pub use rowen_engine::group::Layout;
pub use status::{
    CheckedNodes, DiskWait, Filling, HeldVolume, MoveReport, PoolFill, PvStatus, Rehoming, RepairReport, StatusReport,
};
pub use transfer::{
    Attempt, Base, BlockRange, Bytes, MOST_BLOCKS, Mark, Part, Receive, ReceiveVolume, Receiving, Unfinished,
    UnfinishedVolume,
};

/// The version of this protocol. Both sides must have the same, except for the stable part.
pub const VERSION: u32 = 22;

/// The version of the protocol's stable part, which can upgrade a server of another version: [`Request::Hello`] and
/// [`Request::Upgrade`], answered by [`Outcome::Hello`], [`Outcome::HandsOver`] and [`Outcome::Error`]. Their frames
/// never change, except for new fields with a default. A server before version 10 does not know it.
pub const STABLE: u32 = 0;

/// The version of the files that a server leaves in the run directory for its successor, and the oldest version that
/// this program understands. The files have members, joining physical volumes, the boot, frozen filesystems and
/// unfinished renames.
pub const NOTES: u32 = 1;
pub const OLDEST_NOTES: u32 = 1;

#[cfg(test)]
#[path = "protocol_test.rs"]
mod tests;
