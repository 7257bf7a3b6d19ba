//! The keeper of a volume group: a small process that outlives its server.
//!
//! A FUSE connection exists as long as a process has its descriptor open. The keeper has all of them open, and does
//! nothing else: no volume, no disk, no thread. When the server ends without a message, the keeper starts another one
//! and gives it the descriptors. Meanwhile applications wait.
//!
//! * K1 A descriptor is kept from the answer to `Hold` until the answer to `Release`.
//! * K2 One keeper per group: it holds a lock on a file in the group's directory while it runs.
//! * K3 While any descriptor is kept, a server that ended without a `Bye` is replaced, however many have failed before;
//!   after ten failures in a row the log says so. If the group's directory was removed, there is nothing left to serve:
//!   the keeper ends, and waiting requests fail.
//! * K4 Without kept descriptors and without a server, the keeper ends.
//! * K5 After a server that took over, the next one starts at once, or within 0.2 s if it served for less than 0.2 s,
//!   because applications wait. After each further server that never took over, the pause doubles, up to 5 s. So
//!   servers that crash for ever do not keep the machine busy.
//!
//! What a service manager has of it: `store.rs`.
//!
//! A server that finds its keeper gone starts another one, and gives it everything again.

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

pub use client::{Client, Upgrader, query};
pub(crate) use client::{is_absent, is_there, send_name, store_again};
pub use daemon::main;
pub(crate) use store::Kept;
pub use wire::{Entry, Progress, Stage, Versions};

/// Set in the environment of a server that a keeper starts because another died: how that one ended.
pub(crate) const DEATH: &str = "ROWEN_DEATH";
/// Set in the environment of a server that is started to replace a serving one in an upgrade.
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
