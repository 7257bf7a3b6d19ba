//! What an administrator can ask for, as values: the words of the control socket ([`protocol`]), names and the ways to write
//! them ([`names`], [`paths`]), sizes and how they are read and shown ([`sizes`], [`units`]), identifiers ([`uuids`]),
//! moments ([`time`]), names of holds ([`holds`]), what was done to a group ([`history`]), its metadata as a document ([`metadata`]) and settings ([`config`], [`settings`], [`lists`]), all
//! in the syntax of LVM's text files ([`syntax`]).
//! What a group's server decides about them ([`service`]), and how a group is by what was seen of it ([`status`]).
//! Where LVM has a grammar or a sentence, it is LVM's. Nothing here opens a file, starts a process or reads a clock.
#![forbid(unsafe_code)]

pub mod config;
pub mod history;
pub mod holds;
pub mod lists;
pub mod metadata;
pub mod names;
pub mod paths;
pub mod protocol;
pub mod service;
pub mod settings;
pub mod sizes;
pub mod status;
pub mod syntax;
pub mod time;
pub mod units;
pub mod uuids;
