//! Hostile bytes: whatever a disk, a socket, the kernel or a file holds, it is read or refused in words, without a panic, without
//! an end that never comes, and without a claim on memory that the bytes do not justify.
//!
//! [`targets`] has one function for each place where bytes come in. `corpus` has small examples of what they read. [`driver`]
//! changes these, keeps what led somewhere new, and changes that. A seed decides everything.
#![forbid(unsafe_code)]

pub mod driver;
pub mod targets;

pub use driver::{Failure, Fuzzer, Target};
