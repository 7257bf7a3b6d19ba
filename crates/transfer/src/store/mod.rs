//! A store: points of volumes in a directory or an object store, which docs/stores.md specifies. A log whose entries are created and never
//! overwritten is the only thing that decides; segments have the data, and pages of maps that points share.
//!
//! No network here: [`Objects`] are a few requests, which `rowen-remote` makes.
//!
//! Invariants
//!
//! * SO1 Entry n of the log is created by somebody who has read all entries before it, and names the hash of entry n - 1. A request
//!   without an answer is repeated with the same bytes; other bytes at n mean that somebody else was first. So what a store has is a
//!   function of its log, which all see alike; and a store that lets two creates of one name win is noticed.
//! * SO2 The name of an entry is never freed. Each segment has a number that one entry gave to one job; numbers only rise, and none is used
//!   twice. So an object with a name has one content for all time.
//! * SO3 A job begins with an entry that names its base, and ends with a Commit, an Abandon, or with another job that takes it over. A
//!   Commit is valid only while its job is open. So a writer that slept until others gave its job up changes nothing.
//! * SO4 A Commit comes after all that it refers to is in the store, and refers to segments of its own job and to what its base refers to.
//!   Nothing of an open job or of its base is deleted.
//! * SO5 What is deleted belongs to ended jobs, and no point and no held base refers to it. No later entry can refer to it (SO4), so it stays
//!   dead, and cleaning needs no clock and no lock.
//! * SO7 An entry that takes a job over names the block of the volume with which it goes on, and all that changed before that block is in
//!   the segments of the attempts before it. So the log says which attempt a block of a point comes from: each has those from its own
//!   block to the block of the next one. A segment of these that is missing later is an error, and never a hole in a point.

mod clean;
mod entry;
mod error;
mod fetch;
mod log;
#[cfg(test)]
mod memory;
mod objects;
mod page;
mod pull;
mod push;
mod seal;
mod segment;
mod state;
mod tree;
mod upload;

pub use clean::{Checked, Cleaned, abandon, check, clean, forget, sweep};
pub use entry::{About, HEAD, HEADER, Kind, Numbers, Table};
pub use error::StoreError;
pub use log::{Header, Log, Seen, create, identify};
pub use objects::{
    Created, Objects, Remedy, Trouble, create as create_object, get as get_object, list as list_objects,
};
pub use pull::{Pull, Since, pull};
pub use push::{Begun, Pushed, Ways, begin, open_job, push, take_over};
pub use state::{Attempt, Job, Outcome, Point, State};

/// Blocks of a segment and of one of its frames, at most.
pub const SEGMENT_BLOCKS: u64 = 8192;
pub const FRAME_BLOCKS: u64 = 16;
/// Numbers of segments, and addresses in them, are below these.
const MOST_NUMBERS: u64 = 1 << 49;
const MOST_ADDRESSES: u64 = MOST_NUMBERS * SEGMENT_BLOCKS;

#[cfg(test)]
#[path = "model_test.rs"]
mod model;
#[cfg(test)]
#[path = "takeover_test.rs"]
mod takeover;
#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
