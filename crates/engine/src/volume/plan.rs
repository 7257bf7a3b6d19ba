//! What a request of a volume will do, as planned under the volume's lock.

use crate::disk::Segments;
use crate::map::NodeRef;
use crate::space::{Account, AllocError, Run, Runs};
use crate::units::Seq;
use smallvec::SmallVec;

/// What a planned piece of a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Overwrite.
    Own(u64),
    /// Write where it lies and mark it written.
    Unwritten(u64),
    /// Put elsewhere; `old` holds its contents, if any.
    New { old: Option<u64>, account: Account },
    /// The head's own, at `old`, but too fresh to be overwritten: put elsewhere once more.
    Again { old: u64, account: Account },
    /// Shared, at `old`: copied to where its neighbours go (rule R13).
    Copy { old: u64, account: Account },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    pub place: Place,
}

pub(super) type Pieces = SmallVec<[Piece; 4]>;

/// Outcome of planning. It lives on the stack of one request: boxing its large variant would cost an allocation each.
#[allow(clippy::large_enum_variant)]
pub(super) enum Plan {
    InPlace {
        op: u64,
        segments: Segments,
    },
    Map(MapPlan),
    /// Bring this node into memory.
    Load(NodeRef, u8),
    /// Wait until recovery trusts this record.
    Marker(Seq),
    /// The journal is nearly full.
    Admit,
    Space(AllocError),
}

pub(super) struct MapPlan {
    pub op: u64,
    /// Where each block of the request goes, in order: VG run, and whether the record names it.
    pub targets: SmallVec<[(Run, bool); 4]>,
    /// Old contents of the first and the last block, when the write covers them in part.
    pub edges: [Edge; 2],
    pub allocated: Runs,
    /// Blocks of its own that it gives up.
    pub replaces: u64,
    pub accounts: SmallVec<[(Run, Account); 2]>,
    /// Blocks that it copies for the sake of their neighbours.
    pub copies: u64,
    /// Metadata should grow ahead (M5).
    pub wants_metadata: bool,
    /// What it redirects may lie in many pieces (rule R13).
    pub wants_fill: bool,
}

/// What a partial block held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Whole,
    Zeros,
    At(u64),
}

pub(super) enum ReadPlan {
    Ready { op: Option<u64>, segments: Segments, zeros: SmallVec<[(u32, u32); 2]> },
    Load(NodeRef, u8),
}
