//! The state of a move of extents, and of the last move.

use crate::disk::PvIndex;
use crate::error::Error;
use crate::legs::MirroredRun;
use crate::space::Run;
use parking_lot::Mutex;

/// The running move, and how the last one ended.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) state: Mutex<MoveState>,
}

#[derive(Default)]
pub(super) struct MoveState {
    pub(super) progress: MoveProgress,
    /// The move was asked to end.
    pub(super) is_stopped: bool,
    /// The table of places is being changed by something else: mirrored extents, or a physical volume.
    pub(super) is_table_claimed: bool,
    /// Who makes mirrored or striped extents waits for the table.
    pub(super) waiting_for_zones: usize,
    /// Free extents that were taken for it.
    pub(super) taken: Option<Run>,
    /// Copied bytes of a leg that is being moved.
    pub(super) copied_of_leg: u64,
    /// What leaves mirrors now.
    pub(super) leaving: Leaving,
}

/// Legs that mirrored extents lose, while requests may still go there.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    /// Writes go to both legs still.
    pub(super) runs: Vec<MirroredRun>,
    /// The new numbers of the extents that leave.
    pub(super) numbers: Vec<Run>,
}

/// Progress of a move of extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveProgress {
    pub is_running: bool,
    /// The source.
    pub from: PvIndex,
    /// Extents that were moved, and all extents to move.
    pub moved: u64,
    pub total: u64,
    /// Copied bytes of the extents that are being moved.
    pub copied: u64,
    /// Extents that cannot be read, and stay.
    pub unreadable: u64,
    /// Why it ended early, if it did.
    pub failed: Option<Error>,
}
