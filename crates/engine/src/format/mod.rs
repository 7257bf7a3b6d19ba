//! Every byte that a volume group puts on a disk is declared in this folder and nowhere else.
//!
//! [`record`] declares a structure (offset => field). The other modules are the structures. Decoders take any bytes,
//! and return a value or a typed error. They never panic.

pub mod codec;
pub mod features;
pub mod intents;
pub mod journal;
pub mod node;
pub mod packed;
pub mod record;
pub mod stream;
pub mod superblock;
pub mod tally;
pub mod zones;

#[cfg(test)]
mod spec_test;
