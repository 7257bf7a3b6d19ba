//! Tests that keep copies of the machine's mounts, in namespaces of their own: a filesystem that another test unmounts meanwhile
//! would stay in use. So they are a program of their own, which runs beside no other. Needs root, FUSE and loop devices.
#![allow(clippy::unwrap_used, reason = "tests, helpers of tests included, end where something unexpected happens")]

mod attacks;
mod containers;
#[path = "../real/world.rs"]
#[allow(dead_code, reason = "the other program's tests use the rest")]
mod world;
