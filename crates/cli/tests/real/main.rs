//! Rowen as its users meet it: real block devices under fio, under random I/O against a model, and under the
//! filesystems' own checkers. Needs root, FUSE, loop devices, fio, and the tools of ext4, xfs and btrfs.
#![allow(clippy::unwrap_used, reason = "tests, helpers of tests included, end where something unexpected happens")]

mod autoextend;
mod bad_input;
mod callers;
mod diff;
mod discards;
mod endpoint;
mod filesystems;
mod fsx;
mod held_up;
mod history;
mod iostat;
mod logs;
mod memory;
mod mirrors;
mod missing;
mod moves;
mod patience;
mod read_only;
mod replicate;
mod resized_disks;
mod room;
mod ssh;
mod status;
mod stripes;
mod told;
mod top;
mod transfer;
mod verify;
mod witness;
mod world;
