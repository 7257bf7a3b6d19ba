//! The keeper of a volume group: a small process that outlives its server.
//!
//! A FUSE connection lives as long as somebody has its descriptor open. The keeper has them all open, and does nothing
//! else: no volume, no disk, no thread. When the server goes without saying goodbye, the keeper starts another one and
//! gives it the descriptors; meanwhile the applications above wait.
//!
//! * K1 A descriptor is kept from the answer to `Hold` until the answer to `Release`.
//! * K2 One keeper per group: it holds a lock on a file in the group's directory for as long as it lives.
//! * K3 A server that went without a `Bye` is replaced while anything is kept, however many have failed before it; after
//!   ten failures in a row a line in the log says so. If the group's directory was removed nothing is left to serve: the
//!   keeper ends, and what waits fails.
//! * K4 With nothing kept and no server, the keeper ends.
//! * K5 After a server that took over, the next one starts at once, or within 0.2 s if it served for less than 0.2 s: its
//!   applications wait. After servers in a row that never took over the pause doubles, up to 5 s. So servers that crash
//!   for ever do not keep the machine busy.
//!
//! What a service manager has of it: `store.rs`.
//!
//! A server that finds its keeper gone starts another and has it keep everything again.

mod child;
mod client;
mod daemon;
mod handing;
mod log;
mod restart;
mod state;
mod store;
mod upgrade;
pub(crate) mod wire;

pub use client::{Client, Upgrader, look};
pub(crate) use client::{is_absent, is_there, store_again, tell_name};
pub use daemon::main;
pub(crate) use store::take_back;
pub use wire::{Entry, Progress, Stage, Versions};

/// Set in the environment of a server that is started beside one that serves, to take its place in an upgrade.
/// Set in the environment of a server that a keeper starts because another died: how that ended.
pub(crate) const DEATH: &str = "ROWEN_DEATH";
pub(crate) const SUCCESSOR: &str = "ROWEN_SUCCESSOR";

use crate::paths;
use std::path::PathBuf;

fn socket_path(group: &str) -> PathBuf {
    paths::group_dir(group).join("keeper.sock")
}

fn lock_path(group: &str) -> PathBuf {
    paths::group_dir(group).join("keeper.lock")
}

fn log_path(group: &str) -> PathBuf {
    paths::group_dir(group).join("keeper.log")
}
