//! The stream that `rowen send` writes and `rowen receive` reads: version 1, which docs/stream.md specifies.
//!
//! No unsafe code, and no input or output but over [`Read`](std::io::Read) and [`Write`](std::io::Write).
//!
//! Invariants
//!
//! * TR1 Whatever bytes come in, a reader needs bounded memory, ends, and does not panic: lengths are compared with limits before
//!   anything is allocated, and what is decompressed has a size that was announced.
//! * TR2 A reader gives out no frame whose checksum does not hold, and no end whose hash is not that of all frames before it. So a stream
//!   that was changed, cut, or put together from parts is refused before anything of it is visible.
//! * TR3 What a reader gives out makes sense: frames in their order, ranges that rise and lie within the volume, bytes as many as the
//!   ranges have blocks.
//! * TR4 A frame's checksum holds in its stream and at its place there, and nowhere else. So no frame of another stream, or out of its
//!   order, is given out: what a receiver keeps of a stream that was cut is of that stream alone.
//! * TR5 A mark is of one stream, of its volumes, and of what is sent of them: it names the base and the contents, and has the hash of all
//!   frames before it. A stream that goes on with another one names that one's mark ([`Token`]). So two halves fit together only if they
//!   are of the same snapshots and the second one was made for the first.

#![forbid(unsafe_code)]

mod bytes;
mod error;
mod frame;
mod reader;
pub mod store;
mod sum;
mod token;
mod writer;

pub use error::StreamError;
pub use frame::{
    Base, End, FEATURES, Head, KINDS, MAGIC, MAX_BODY, MAX_DATA, MAX_RANGES, MAX_VOLUMES, MarkPlace, Place, Range,
    VERSION, Volume, sealed,
};
pub use reader::{Event, StreamReader};
pub use sum::ContentsSum;
pub use token::{Token, TokenVolume};
pub use writer::StreamWriter;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

#[cfg(test)]
#[path = "stream_test.rs"]
mod tests;
