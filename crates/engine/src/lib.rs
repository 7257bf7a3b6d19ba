//! Rowen's engine: a volume group over a set of disks. Bytes -> journal -> trees -> volumes.
//!
//! The engine does no I/O of its own, reads no clock and starts no thread: it is async code over [`disk::Disks`]
//! and [`runtime::Runtime`], so that the same code runs under io_uring and under a deterministic simulator.
#![forbid(unsafe_code)]
// Longer than a screen still, to be cut: `capture`, `open_as`, `plan_write`, and two decoders.
#![allow(clippy::too_many_lines)]

mod core;
mod dead_blocks;
pub mod discards;
pub mod disk;
pub mod error;
mod event;
pub mod fixed_hash;
pub mod format;
pub mod group;
pub mod journal;
pub mod legs;
pub mod map;
pub mod members;
pub mod model;
mod moving;
pub mod placement;
pub mod planted;
pub mod runtime;
pub mod space;
mod stripes;
pub mod units;
pub mod unproven;
pub mod volume;
