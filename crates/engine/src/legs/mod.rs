//! Mirrors: runs of extents with two legs, on two physical volumes. The rest of the engine knows the first leg's place.
//!
//! (rules: to come)

mod copy;
mod intents;
mod layer;
mod read;
mod runs;
mod state;
mod table;
mod types;
mod write;

pub use crate::format::intents::LARGEST_MIRRORED;
pub use intents::ROUND;
pub use layer::Legs;
pub use types::{Leg, LegsOwner, LegsState, MirroredRun, PvReport, RunReport};
