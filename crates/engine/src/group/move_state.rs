//! What is known of a move of extents while it is under way, and of the last one.

use crate::disk::PvIndex;
use crate::error::Error;
use crate::space::Run;
use parking_lot::Mutex;

/// The move under way, and how the last one ended.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) state: Mutex<MoveState>,
}

#[derive(Default)]
pub(super) struct MoveState {
    pub(super) progress: MoveProgress,
    /// Somebody wants it to end.
    pub(super) is_stopped: bool,
    /// No space is taken from this one: all of it moves.
    pub(super) barred: Option<PvIndex>,
    /// Free extents that were taken for it.
    pub(super) taken: Option<Run>,
}

/// How far a move of extents is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveProgress {
    pub is_running: bool,
    /// Where it moves from.
    pub from: PvIndex,
    /// Extents that were moved, and that are to be.
    pub moved: u64,
    pub total: u64,
    /// Bytes of those that are being moved that were copied.
    pub copied: u64,
    /// Extents that cannot be read, and stay.
    pub unreadable: u64,
    /// How it ended, if not by itself.
    pub failed: Option<Error>,
}
