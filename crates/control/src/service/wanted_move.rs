//! The requested move of extents, until it is done, has failed or was stopped.
//!
//! * PM9 A move continues after its server was replaced, until it has ended or was stopped. It is noted before the
//!   first extent moves, and the note is removed after the move has ended. If a server dies in between, its successor
//!   finds nothing left to move, and reports the end.

use super::platform::MoveNote;
use std::time::Instant;

/// The move that is wanted.
#[derive(Default)]
pub struct WantedMove {
    /// The note of the move.
    pub note: Option<MoveNote>,
    /// The service has checked whether an earlier server has left a move.
    pub is_searched: bool,
    /// When this server started or resumed it.
    pub begun: Option<Instant>,
    /// Extents that earlier servers have moved.
    pub before: u64,
    /// Why it could not be resumed yet.
    pub waits: Option<String>,
    /// The end of a move that another server began. A client that waits for it gets the end from this server.
    pub ended: Option<EndedMove>,
}

/// A move that had ended when its server died, or that could not be resumed.
#[derive(Clone)]
pub struct EndedMove {
    pub note: MoveNote,
    /// Why it ended early.
    pub failed: Option<String>,
}
