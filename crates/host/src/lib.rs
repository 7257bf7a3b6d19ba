//! Rowen on Linux: disks, exports, the server of a volume group and its keeper.

pub mod archive;
pub mod devices;
pub mod disks;
pub mod export;
pub mod files;
pub mod handed_over;
pub mod harden;
pub mod helper;
pub mod history;
pub mod hostile;
mod journal;
pub mod keeper;
mod last_failure;
pub mod meter;
mod notify;
pub mod paths;
pub mod patience;
#[doc(hidden)]
pub mod planted;
mod processes;
pub mod programs;
pub mod reactor;
mod run_file;
pub mod server;
pub mod settings;
mod sockets;
pub mod survey;
mod units;
pub mod witness;
