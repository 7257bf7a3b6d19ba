//! How a group is, by what was seen of it: one word, a sentence, and for each thing that is wrong what to do next. Nothing here
//! looks at anything: [`seen`](Survey) is the evidence, [`told`](Status) the verdict.
//!
//! * ST1 Whatever is not as it should be is a problem, each problem says what to do next, and a group is healthy exactly if it
//!   has none.

mod judge;
mod seen;
mod told;

pub use judge::{duration, failures, judge};
pub use seen::{
    Counters, Depth, IoSeen, KeeperSeen, KeeperTold, LostPv, MembersSeen, Process, PvSeen, Seen, ServerSeen, Survey,
};
pub use told::{GroupStatus, Problem, PvState, PvWord, State, Status, WaitingVolume};

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
