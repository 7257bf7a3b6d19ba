//! The state of a keeper: connections, descriptors, the servers that it started, and a running upgrade.
//! [`super::daemon`] and [`super::upgrade`] act on it.

use super::child::Child;
use super::handing::Handed;
use super::log::Log;
use super::restart::Restarts;
use super::store::Store;
use super::wire::{Entry, Progress};
use crate::programs::Program;
use crate::{harden, journal};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Instant;

pub(super) struct Peer {
    pub(super) socket: OwnedFd,
    pub(super) serves: bool,
    /// It asked for the upgrade.
    pub(super) upgrades: bool,
}

pub(super) struct Keeper {
    pub(super) group: String,
    /// The program to start servers with: this one, whatever is at its path.
    pub(super) program: Program,
    pub(super) listener: OwnedFd,
    pub(super) held: Vec<(Entry, OwnedFd)>,
    /// The service manager's copies (K6).
    pub(super) store: Store,
    pub(super) peers: Vec<Peer>,
    pub(super) restarts: Restarts,
    /// Servers that this process has started.
    pub(super) started: u64,
    /// How the last server died, until another one serves.
    pub(super) death: Option<String>,
    /// Servers that ended unexpectedly or never served.
    pub(super) deaths: u64,
    /// The server has announced its end and leaves the descriptors to its successor.
    pub(super) is_handed_over: bool,
    /// For how long it had read no requests then, and the time of its message.
    pub(super) paused_at: Option<(u64, Instant)>,
    /// A server that this keeper started, until it has ended.
    pub(super) child: Option<Child>,
    /// Older servers of this keeper that are ending.
    pub(super) leftover: Vec<Child>,
    pub(super) start_at: Option<Instant>,
    /// The next server starts as soon as the last one's process is gone.
    pub(super) is_due: bool,
    pub(super) leaving: bool,
    pub(super) log: Log,
    pub(super) lock: File,
    /// A running upgrade, the program that this process is about to execute, and the progress.
    pub(super) upgrade: Option<Upgrade>,
    pub(super) next: Option<Next>,
    pub(super) progress: Progress,
}

/// A running upgrade in the keeper of the new program.
pub struct Upgrade {
    /// The program to return to.
    pub(super) old: Program,
    /// The deadline of the stage.
    pub(super) until: Instant,
    pub(super) deaths: u32,
    /// The successor, until it serves.
    pub(super) successor: Option<Child>,
}

/// The program that the keeper is about to execute.
pub struct Next {
    pub(super) program: Program,
    pub(super) handed: Handed,
}

impl Keeper {
    /// A keeper without descriptors and connections.
    pub(super) fn made(group: &str, program: Program, listener: OwnedFd, mut log: Log, lock: File) -> Keeper {
        journal::of_group(group);
        for refused in harden::harden() {
            log.warn(&refused);
        }
        Keeper {
            group: group.into(),
            program,
            listener,
            held: Vec::new(),
            store: Store::default(),
            peers: Vec::new(),
            restarts: Restarts::default(),
            started: 0,
            death: None,
            deaths: 0,
            is_handed_over: false,
            paused_at: None,
            child: None,
            leftover: Vec::new(),
            start_at: None,
            is_due: false,
            leaving: false,
            log,
            lock,
            upgrade: None,
            next: None,
            progress: Progress::default(),
        }
    }
}
