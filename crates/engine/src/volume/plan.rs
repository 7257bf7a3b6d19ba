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
    /// Write in place and mark it written.
    Unwritten(u64),
    /// Write to a new block; `old` holds the old contents, if any.
    New { old: Option<u64>, account: Account },
    /// The head owns `old`, but it is too fresh to be overwritten: write to another block.
    Again { old: u64, account: Account },
    /// Shared, at `old`: copied next to its neighbours (rule R13).
    Copy { old: u64, account: Account },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    pub place: Place,
}

pub(super) type Pieces = SmallVec<[Piece; 4]>;

/// Outcome of planning. It is on the stack of one request: boxing its large variant would cost an allocation for each
/// request.
#[allow(clippy::large_enum_variant)]
pub(super) enum Plan {
    InPlace {
        op: u64,
        segments: Segments,
    },
    Map(MapPlan),
    /// Bring this node into memory.
    Load(NodeRef, u8),
    /// Wait until a durable marker covers this record.
    Marker(Seq),
    /// The journal is nearly full.
    Admit,
    Space(AllocError),
}

pub(super) struct MapPlan {
    pub op: u64,
    /// The target of each block of the request, in order: VG run, and whether the record names it.
    pub targets: SmallVec<[(Run, bool); 4]>,
    /// Old contents of the first and the last block, if the write covers them in part.
    pub edges: [Edge; 2],
    pub allocated: Runs,
    /// Blocks of the head that the write frees.
    pub replaces: u64,
    pub accounts: SmallVec<[(Run, Account); 2]>,
    /// Shared blocks that it copies (rule R13).
    pub copies: u64,
    /// Metadata should grow ahead (M5).
    pub wants_metadata: bool,
    /// The redirected blocks may be scattered (rule R13).
    pub wants_fill: bool,
}

/// The old contents of a partial block.
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
