//! The state of a group, as its server knows it, for `rowen status`.

use super::attributes::hex;
use super::mirrors::{MirrorReport, ScrubReport};
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};

/// The state of a served group. [`crate::status`] judges it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusReport {
    /// How long the group has been open.
    pub open_seconds: u64,
    /// Why it has stopped.
    pub stopped: Option<String>,
    /// Why it is open read-only (RO1).
    pub read_only: Option<String>,
    /// A physical volume that has disappeared, or that came back and is refused.
    pub disk_wait: Option<DiskWait>,
    /// Keepers that died while this server serves.
    pub keeper_deaths: u64,
    /// Volumes whose writes wait for room.
    pub held: Vec<HeldVolume>,
    /// Pools whose writes fail because they have waited too long; `None`: the group.
    pub timed_out: Vec<Option<String>>,
    pub pvs: Vec<PvStatus>,
    pub volumes: u64,
    pub active_volumes: u64,
    pub blocks: u64,
    /// Blocks that can be taken.
    pub available_blocks: u64,
    /// Blocks of metadata and of the journal.
    pub metadata_blocks: u64,
    /// Copies of the journal, and how many of them are written.
    pub journal_copies: u64,
    pub journal_copies_written: u64,
    pub pools: Vec<PoolFill>,
    /// Items above their warning threshold.
    pub filling: Vec<Filling>,
    /// The physical volume behind which the journal or a checkpoint found no room, and waits for it.
    pub waits_for_room: Option<String>,
    /// A sentence for each area without room behind the disks.
    pub missing_room: Vec<String>,
    /// Snapshots that used up their reserve, or were dropped in a full group.
    pub invalid_snapshots: Vec<String>,
    /// Of these, those that were held.
    pub lost_holds: Vec<String>,
    /// Snapshots that are held, and those of them that were written to since: nothing can go on from them.
    pub held_snapshots: Vec<String>,
    pub written_while_held: Vec<String>,
    /// Snapshots that wait to be merged.
    pub merging: Vec<String>,
    /// Blocks that background removal still has to examine.
    pub reclaim_left_blocks: u64,
    /// Running checks, and the progress of the last one.
    pub checks: u32,
    pub checked: Option<CheckedNodes>,
    /// The volume that is re-homed in the background (`server/rehome`).
    pub rehoming: Option<Rehoming>,
    /// Mirrored extents.
    #[serde(default)]
    pub mirrors: MirrorReport,
    /// Copies that are to be made anew without a person.
    pub repair: Option<RepairReport>,
    /// The last comparison of the copies of each mirrored volume.
    #[serde(default)]
    pub scrubs: Vec<(String, ScrubReport)>,
    /// The running move of extents (`pvmove`), or how the last move of this server ended.
    pub moving: Option<MoveReport>,
    /// Copies of metadata that could not be written, and nodes of which both copies are damaged.
    pub copies_not_written: u64,
    pub nodes_lost: u64,
    /// Blocks of the journal that cannot be written.
    pub bad_places: Vec<String>,
}

/// What a group waits for after it has lost a disk, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskWait {
    pub what: String,
    pub next: String,
    /// The physical volumes that have disappeared.
    #[serde(default)]
    pub away: Vec<[u8; 16]>,
}

/// A volume whose writes wait for space, and the observed time of waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVolume {
    pub name: String,
    pub seconds: u64,
}

/// Progress of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedNodes {
    /// Metadata nodes that it has read.
    pub nodes: u64,
    /// An upper bound of the nodes.
    pub total: u64,
}

/// A volume that is re-homed in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehoming {
    pub name: String,
    /// Blocks of the volume that were searched, and all blocks.
    pub done_blocks: u64,
    pub blocks: u64,
    /// Volumes that wait for their turn.
    pub waiting: u64,
}

/// Copies of mirrored extents that a disk took with it, and that are to be made anew without a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairReport {
    /// Seconds until it begins, unless the disk returns before.
    pub seconds: u64,
    /// The spares that it takes; none: it takes room on the other physical volumes.
    pub spares: Vec<String>,
    /// Why it cannot be done.
    pub failed: Option<String>,
}

/// A move of extents, or how the last one ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    pub is_running: bool,
    /// The source; empty if this server has moved nothing.
    pub path: String,
    /// Extents that were moved, and all extents to move.
    pub moved: u64,
    pub total: u64,
    /// Extents that cannot be read, and stay where they are.
    pub unreadable: u64,
    /// It was stopped by a request.
    pub is_stopped: bool,
    /// Why it ended early.
    pub failed: Option<String>,
    /// A server that took over has not resumed it yet; why, if that is known.
    #[serde(default)]
    pub waits: Option<String>,
    /// Bytes that were copied, and all bytes to copy.
    #[serde(default)]
    pub copied_bytes: u64,
    #[serde(default)]
    pub total_bytes: u64,
    /// Seconds since this server started or resumed it, and bytes that it copied since then.
    #[serde(default)]
    pub seconds: u64,
    #[serde(default)]
    pub own_bytes: u64,
}

impl MoveReport {
    /// How far it is: a part, and the whole, which is not 0.
    pub fn share(&self) -> (u64, u64) {
        match self.is_running && self.total_bytes > 0 {
            true => (self.copied_bytes, self.total_bytes),
            false => (self.moved, self.total.max(1)),
        }
    }
}

/// Something that fills up: the group, a thin pool, or a snapshot with a size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    /// None: the group.
    pub volume: Option<String>,
    pub is_pool: bool,
    /// How full, in tenths of a percent.
    pub tenths: u64,
}

/// The use of a thin pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFill {
    pub name: String,
    pub blocks: u64,
    pub used_blocks: u64,
}

/// A physical volume of a served group. Counters are failures since the server opened the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvStatus {
    pub path: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub size_bytes: u64,
    pub failed_reads: u64,
    pub failed_writes: u64,
    pub failed_flushes: u64,
    /// Requests are in flight, and none was answered for this long.
    pub silent_seconds: Option<u64>,
    /// The group runs without it.
    #[serde(default)]
    pub is_missing: bool,
}
