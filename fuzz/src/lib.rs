//! Hostile bytes: bytes from a disk, a socket, the kernel or a file are read, or refused with a message. This takes no
//! panic, no hang, and no memory that the bytes do not justify.
//!
//! [`targets`] has one function for each place where bytes come in. `corpus` has small examples of what they read. [`driver`]
//! changes these, keeps what led somewhere new, and changes that. A seed decides everything.
#![forbid(unsafe_code)]

pub mod driver;
pub mod targets;

pub use driver::{Failure, Fuzzer, Target};
