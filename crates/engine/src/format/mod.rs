//! Every byte that a volume group puts on a disk is declared in this folder and nowhere else.
//!
//! [`record`] is how a structure is declared (offset => field), the modules beside it are the structures.
//! Decoders take any bytes whatever and answer with a value or a typed refusal, never with a panic.

pub mod codec;
pub mod journal;
pub mod node;
pub mod packed;
pub mod record;
pub mod seen;
pub mod stream;
pub mod superblock;
pub mod zones;

#[cfg(test)]
mod spec_test;
