//! Which files and block devices are physical volumes, and making, removing and grouping them.
//!
//! This module owns the devices file and all work on devices that no server has open. It promises:
//!
//! * to read devices without writing to them, and only the known ones (the devices file, and block devices with Rowen's
//!   label), so that a command takes milliseconds;
//! * H8 to read labels through a helper process, for a limited time, and to leave out block devices that lie on a
//!   volume of Rowen;
//! * H9 to open a group that has lost its server at the stored paths of its members and joining devices, and to read no
//!   other device;
//! * to write to a device only while it is held exclusively, and only after all checks on all devices of the command
//!   have passed: a refusal changes nothing;
//! * to overwrite foreign data only on request.

mod create;
mod error;
pub mod file;
pub mod formats;
pub(crate) mod handed;
pub mod members;
mod plain;
pub(crate) mod probe;
pub(crate) mod sample;
mod scan;
mod signature;
pub(crate) mod stack;
mod udev;
pub mod writeout;

pub use create::{Consent, MIN_PV_BYTES, NewMember, pvcreate, pvremove, pvresize, vgcreate};
pub use error::{Error, shrank};
pub use plain::{Identity, LETTING_GO, Plain, PlainDisks, block_on};
pub use scan::{
    GroupDevices, GroupSummary, Pv, PvState, Scan, find_group, find_group_but, find_group_without, groups_under,
    name_of, read_pv, scan, scan_until,
};
pub(crate) use scan::{candidates_until, file_paths};
pub use udev::properties as udev_properties;
