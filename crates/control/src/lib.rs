//! What an administrator can ask for. This crate owns the words of the control socket ([`wire`]) and LVM's grammar of
//! identifiers ([`uuids`]). It promises that everything here is a value: no files, no processes, no clock.
#![forbid(unsafe_code)]

pub mod uuids;
pub mod wire;
