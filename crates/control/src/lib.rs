//! Everything that an administrator can ask for, as values:
//!
//! * the control protocol ([`protocol`]);
//! * names and paths ([`names`], [`paths`]), sizes ([`sizes`], [`units`]), identifiers ([`uuids`]), times ([`time`]);
//! * names of holds ([`holds`]), points for transfers ([`points`]), policies of backups ([`backup`]);
//! * the history of a group ([`history`]);
//! * a group's metadata as a document ([`metadata`]) and settings ([`config`], [`settings`], [`lists`]), in the syntax
//!   of LVM's text files ([`syntax`]).
//!
//! [`service`] has the decisions of a group's server, [`status`] judges the state of a group. Where LVM has a grammar or
//! a message, Rowen uses LVM's. Nothing here opens a file, starts a process or reads a clock.
#![forbid(unsafe_code)]

pub mod backup;
pub mod config;
pub mod history;
pub mod holds;
pub mod lists;
pub mod metadata;
pub mod names;
pub mod paths;
pub mod points;
pub mod protocol;
pub mod service;
pub mod settings;
pub mod sizes;
pub mod status;
pub mod syntax;
pub mod time;
pub mod units;
pub mod uuids;
