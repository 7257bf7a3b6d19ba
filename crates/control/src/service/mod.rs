//! The decisions of a volume group's server: names, limits, merges, pools, undo, who may activate. It owns the open
//! group of the engine, and uses devices, disks and files only through [`platform`]. The server implements these traits
//! with the kernel, tests in memory.
//!
//! A file uses only files of the rows above its own:
//!
//! | | |
//! |---|---|
//! | [`failure`], `ending`, `wanted_move`, `permits`, `warnings`, `autoextend`, `spares`, `held`, `hidden`, [`platform`] | types |
//! | `state` | the [`Service`] itself, names of volumes; SV1 to SV3 |
//! | `nodes`, `group`, `warn`, `report`, `status`, `io`, `diff` | devices of volumes; the group's attributes; reports and warnings |
//! | `pvs`, `contents`, `rename` | physical volumes; contents of one volume for another; the group's name |
//! | `arriving`, `transfer` | what is being received; reads and writes of what is sent |
//! | `merge`, `bookmarks`, `holds`, `volumes`, `snapshot`, `activation`, `receive`, `life` | commands |
//! | `handle` | each request to what carries it out |
//! | `repair` | copies that a lost disk took with it, made anew |
//! | `clock` | what happens without a request |

mod activation;
mod arriving;
mod autoextend;
mod bookmarks;
mod clock;
mod contents;
mod diff;
mod ending;
pub mod failure;
mod group;
mod handle;
mod held;
mod hidden;
mod holds;
mod io;
mod life;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
mod merge;
mod missing;
mod moves;
mod nodes;
mod permits;
pub mod platform;
mod pvs;
mod receive;
mod rename;
mod repair;
mod report;
mod scrub;
mod snapshot;
mod spares;
mod state;
mod status;
mod transfer;
mod trim;
mod volumes;
mod wanted_move;
mod warn;
mod warnings;

pub use ending::Ending;
pub use pvs::SHARE_UNASKED;
pub use report::document;
pub use state::Service;

#[cfg(test)]
#[path = "asked_test.rs"]
mod asked;

#[cfg(test)]
#[path = "service_test.rs"]
mod tests;
