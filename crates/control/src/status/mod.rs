//! The status of a group: one word, a sentence, and for each problem the next step. This module reads nothing from the
//! host: a [`Survey`] is the input, and a [`Status`] the result.
//!
//! * ST1 Every fault is a problem. Each problem says what to do next. A group is healthy if and only if it has no
//!   problem.

mod judge;
mod output;
mod seen;

pub use judge::{duration, failures, judge};
pub use output::{GroupStatus, Problem, PvState, PvWord, State, Status, WaitingVolume};
pub use seen::{
    Counters, Depth, IoSeen, KeeperAnswer, KeeperSeen, LostPv, MembersSeen, Process, PvSeen, Seen, ServerSeen, Survey,
};

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
