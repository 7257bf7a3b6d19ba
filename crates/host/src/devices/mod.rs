//! Which files and block devices are physical volumes, and making, removing and grouping them.
//!
//! This module owns the devices file and everything that is done to a device while no server has it open. It promises:
//!
//! * to look at a device without ever writing to it, and to look at the known devices only (the devices file, and block
//!   devices whose label is ours), so that a command costs milliseconds;
//! * H8 to look through a helper process, which is waited for for a limited time, and to leave out block devices that lie on a
//!   volume of Rowen's;
//! * H9 to open a group that has lost its server where that server had it or was about to have it, without looking at
//!   anything else;
//! * to write to a device only while holding it alone, and only after every check on every device of the command has
//!   passed: a refusal has changed nothing;
//! * to overwrite another's data only when told so.

mod create;
mod error;
pub mod file;
pub mod formats;
pub(crate) mod handed;
pub(crate) mod look;
pub mod members;
mod plain;
pub(crate) mod sample;
mod scan;
mod signature;
pub(crate) mod stack;
mod udev;
pub mod writeout;

pub use create::{Consent, MIN_PV_BYTES, NewMember, pvcreate, pvremove, pvresize, vgcreate};
pub use error::Error;
pub use plain::{Identity, LETTING_GO, Plain, PlainDisks, block_on};
pub use scan::{
    GroupDevices, GroupSummary, Pv, PvState, Scan, find_group, find_group_but, find_group_without, groups_under,
    name_of, probe, scan, scan_until,
};
pub(crate) use scan::{candidates_until, file_paths};
pub use udev::properties as udev_properties;
