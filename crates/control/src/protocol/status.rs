//! How a group is, as its server knows it: for `rowen status`.

use super::attributes::hex;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};

/// A served group. What it means is for [`crate::status`] to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusReport {
    /// How long the group has been open.
    pub open_seconds: u64,
    /// Why it has stopped.
    pub stopped: Option<String>,
    /// A physical volume that is away, or one that came back and is not taken.
    pub disk_wait: Option<DiskWait>,
    /// Keepers that died while this server serves.
    pub keeper_deaths: u64,
    /// Volumes whose writes wait for room.
    pub held: Vec<HeldVolume>,
    /// Pools whose writes fail because they have waited for too long; `None`: the group.
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
    /// What is above its warning threshold.
    pub filling: Vec<Filling>,
    /// The physical volume behind which the journal or a checkpoint found no room, and waits for it.
    pub waits_for_room: Option<String>,
    /// What lacks room behind the disks, a sentence each.
    pub missing_room: Vec<String>,
    /// Snapshots that outgrew their reserve, or gave way in a full group.
    pub invalid_snapshots: Vec<String>,
    /// Of these, those that were held.
    pub lost_holds: Vec<String>,
    /// Snapshots that are held, and those of them that were written to since: nothing can go on from them.
    pub held_snapshots: Vec<String>,
    pub written_while_held: Vec<String>,
    /// Snapshots that wait to be merged.
    pub merging: Vec<String>,
    /// Blocks that removal in the background has still to look at.
    pub reclaim_left_blocks: u64,
    /// Verifications under way, and how far the one is that began last.
    pub checks: u32,
    pub checked: Option<CheckedNodes>,
    /// The volume that is brought together in the background (`server/rehome`).
    pub rehoming: Option<Rehoming>,
    /// Extents that are moved (`pvmove`), or were to be and are not: how the last move of this server ended.
    pub moving: Option<MoveReport>,
    /// Copies of metadata that could not be written, and nodes of which both copies are damaged.
    pub copies_not_written: u64,
    pub nodes_lost: u64,
    /// Places of the journal that take no writes.
    pub bad_places: Vec<String>,
}

/// What a group waits for that has lost a disk, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskWait {
    pub what: String,
    pub next: String,
    /// The physical volumes that are away.
    #[serde(default)]
    pub away: Vec<[u8; 16]>,
}

/// A volume whose writes wait for room, and for how long they have, as far as that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVolume {
    pub name: String,
    pub seconds: u64,
}

/// How far a verification is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedNodes {
    /// Metadata nodes that it has read.
    pub nodes: u64,
    /// There are no more nodes than this.
    pub total: u64,
}

/// A volume whose blocks are moved to one place in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehoming {
    pub name: String,
    /// Blocks of the volume that were looked at, of how many.
    pub done_blocks: u64,
    pub blocks: u64,
    /// Volumes that wait for their turn.
    pub waiting: u64,
}

/// A move of extents, or how the last one ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    pub is_running: bool,
    /// The physical volume that is emptied; empty if this server has moved nothing.
    pub path: String,
    /// Extents that were moved, and that are to be.
    pub moved: u64,
    pub total: u64,
    /// Extents that cannot be read, and stay where they are.
    pub unreadable: u64,
    /// Somebody stopped it.
    pub is_stopped: bool,
    /// Why it ended before its end.
    pub failed: Option<String>,
    /// A server that took over has not gone on with it yet, and why, if that is known.
    #[serde(default)]
    pub waits: Option<String>,
    /// Bytes that were copied, and that are to be.
    #[serde(default)]
    pub copied_bytes: u64,
    #[serde(default)]
    pub total_bytes: u64,
    /// Seconds since this server began with it, and bytes that it copied since then.
    #[serde(default)]
    pub seconds: u64,
    #[serde(default)]
    pub own_bytes: u64,
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

/// How much of a thin pool is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFill {
    pub name: String,
    pub blocks: u64,
    pub used_blocks: u64,
}

/// A physical volume of a served group. Counters are of what failed since the server opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvStatus {
    pub path: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub size_bytes: u64,
    pub failed_reads: u64,
    pub failed_writes: u64,
    pub failed_flushes: u64,
    /// Requests are under way, and none has been answered for so long.
    pub silent_seconds: Option<u64>,
}
