//! The server's answers, except the report of the group ([`super::report`]).

use super::diff::DiffPage;
use super::io::IoReport;
use super::report::{GroupReport, VolumePlaces};
use super::status::{MoveReport, StatusReport};
use super::transfer::{Bytes, Receiving, Unfinished};
use rowen_engine::group as engine;
use serde::{Deserialize, Serialize};

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Hello {
        version: u32,
        group: String,
        pid: u32,
        /// The version of its files for a successor, and the oldest that it understands ([`NOTES`](super::NOTES)).
        #[serde(default)]
        notes: u32,
        #[serde(default)]
        oldest_notes: u32,
    },
    Ok,
    Report(Box<GroupReport>),
    Places(Vec<VolumePlaces>),
    /// Whole extents that are free and not reserved.
    Free {
        extents: u64,
    },
    /// Extents that got a second leg, which is filled in the background.
    Repaired {
        extents: u64,
    },
    /// Extents of a volume that is linear now: those that lost a copy, and those that keep two, because mirrored volumes
    /// have blocks there, too.
    Linear {
        single: u64,
        shared: u64,
    },
    Created(Vec<Created>),
    /// A merge will be carried out when the origin is next activated, because the origin or the snapshot is in use.
    MergeWaits {
        is_origin_open: bool,
    },
    /// The server ends, and finishes the request as its last act. The next server reports whether it did.
    HandsOver,
    Check(CheckOutcome),
    Moving(MoveReport),
    /// All free blocks were discarded.
    Trimmed(TrimReport),
    Stats(StatsReport),
    Status(Box<StatusReport>),
    Io(Box<IoReport>),
    Diff(Box<DiffPage>),
    Data(Bytes),
    Receiving(Receiving),
    Receives(Vec<Unfinished>),
    /// Progress of a long request, before its last outcome. `total: 0`: unknown.
    Progress {
        done: u64,
        total: u64,
        what: String,
    },
    /// A message for the administrator (a group is nearly full), before the last outcome.
    Notice {
        message: String,
    },
    /// The request was refused or failed; nothing changed unless the message says so. A complete sentence.
    Error {
        kind: ErrorKind,
        message: String,
    },
}

impl Outcome {
    /// Whether another outcome of the same request follows.
    pub fn is_interim(&self) -> bool {
        matches!(self, Outcome::Progress { .. } | Outcome::Notice { .. })
    }
}

/// Why a request failed, for programs; the message is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request is invalid, whatever the state of the group.
    Invalid,
    NotFound,
    Exists,
    InUse,
    NoSpace,
    /// The state from which the client computed the request has changed: read it again.
    Changed,
    /// The group or a device may not be written or opened.
    Denied,
    /// Metadata is damaged.
    Damaged,
    /// A device failed.
    Io,
    /// The group is shutting down, or failed and must be reopened.
    Closed,
    /// The other side speaks another version.
    Version,
    /// A bug of the server.
    Internal,
}

/// The result of a trim, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimReport {
    /// Free bytes, and how many of them were discarded.
    pub free: u64,
    pub discarded: u64,
    /// Physical volumes that do not support discards.
    pub without: Vec<String>,
}

/// A volume that a request made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    pub name: String,
    /// `/dev/VG/LV` when it is active.
    pub node: Option<String>,
}

/// The result of a check. No findings: the group is sound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    pub findings: Vec<String>,
    /// How many of them [`Request::Repair`] corrects.
    pub repairable: u64,
    /// Copies of metadata that were rewritten.
    pub repaired: Vec<String>,
    /// Bad blocks of disks that the group avoids.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Physical volumes that are missing.
    #[serde(default)]
    pub missing: u32,
    pub nodes: u64,
    pub blocks: u64,
}

impl From<engine::CheckReport> for CheckOutcome {
    fn from(report: engine::CheckReport) -> Self {
        let engine::CheckReport { findings, repairable, repaired, notes, missing, nodes, blocks } = report;
        CheckOutcome { findings, repairable, repaired, notes, missing, nodes, blocks }
    }
}

macro_rules! stats {
    ($($field:ident),* $(,)?) => {
        /// Counters since the server opened the group.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct StatsReport { $(pub $field: u64),* }

        impl From<engine::Stats> for StatsReport {
            fn from(stats: engine::Stats) -> Self {
                let engine::Stats { $($field,)* .. } = stats;
                StatsReport { $($field),* }
            }
        }

        impl StatsReport {
            /// Each counter with its name, in order.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }
        }
    };
}
stats!(
    writes_in_place,
    writes_redirected,
    writes_again,
    journal_frames,
    journal_records,
    device_flushes,
    checkpoints,
    nodes_written,
    node_loads,
    waits_for_marker,
    recovered,
    recovery_skipped,
    slots_taken,
    reclaim_steps,
    orphans_freed,
    windows_rehomed,
    windows_filled,
    blocks_filled,
    fills_without_room,
    volumes_invalidated,
    copies_not_written,
    nodes_lost,
    ring_blocks_bad,
);
