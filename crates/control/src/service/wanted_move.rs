//! The move of extents that somebody wants, until it is done, has failed or was stopped.
//!
//! * PM9 A move that was begun goes on after its server was replaced, until it has ended by itself or somebody has stopped it. What
//!   is wanted is noted before the first extent moves, and is forgotten when the move has ended; a server that dies in between
//!   finds nothing left to be moved.

use super::world::MoveNote;
use std::time::Instant;

/// The move that is wanted.
#[derive(Default)]
pub struct WantedMove {
    /// What is wanted, as it is noted.
    pub note: Option<MoveNote>,
    /// It was looked whether a server before this one has left something to move.
    pub is_looked_for: bool,
    /// This server has begun with it, and when.
    pub begun: Option<Instant>,
    /// Extents that servers before this one have moved.
    pub before: u64,
    /// Why it could not go on yet.
    pub waits: Option<String>,
}
