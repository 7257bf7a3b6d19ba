//! What reports and the status say of mirrors.

use rowen_engine::group::{MirrorInfo, ScrubInfo};
use serde::{Deserialize, Serialize};

/// The mirrored extents of a group. Each lies on two physical volumes and counts once here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MirrorReport {
    pub extents: u64,
    /// Of these, extents of which nothing is used: room for mirrored volumes only.
    pub free_extents: u64,
    /// Of these, extents with one leg: the physical volume of the other one was removed.
    pub single_extents: u64,
    /// All bytes of mirrored extents, and those of them whose legs may differ.
    pub bytes: u64,
    pub unsynced_bytes: u64,
    /// Of these, bytes that cannot be copied: they cannot be read or written.
    pub stuck_bytes: u64,
    /// A copy lacks something and gets it, or waits for the disk with the other one.
    pub is_catching_up: bool,
    /// Bytes that cannot be read now, because the only disk that has them is out, and the copy elsewhere is older.
    pub outdated_bytes: u64,
}

impl MirrorReport {
    /// So many of the extents, in bytes.
    fn bytes_of(&self, extents: u64) -> u64 {
        (self.bytes / self.extents.max(1)).saturating_mul(extents)
    }

    /// What is being copied, in bytes.
    pub fn left_bytes(&self) -> u64 {
        self.unsynced_bytes.saturating_sub(self.stuck_bytes)
    }

    /// The extents of which nothing is used, in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.bytes_of(self.free_extents)
    }

    /// The extents with one leg, in bytes: what is repaired.
    pub fn single_bytes(&self) -> u64 {
        self.bytes_of(self.single_extents)
    }
}

/// What is to be done with the two copies of a volume's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubAction {
    /// Compare them.
    Check,
    /// Compare them, and make them equal.
    Repair,
    /// End what was begun.
    Stop,
}

/// A comparison of the copies of a volume and its snapshots, which goes on or has ended. A block has 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubReport {
    /// Differences are removed.
    pub is_repair: bool,
    pub is_running: bool,
    /// It did not get to its end.
    pub is_incomplete: bool,
    /// Blocks that were compared, and how many that will be, as far as is known.
    pub done_blocks: u64,
    pub total_blocks: u64,
    /// Blocks whose copies differ, or did before they were repaired.
    pub different_blocks: u64,
    /// Blocks that one disk could not read.
    pub unreadable_blocks: u64,
    /// Blocks that had one copy.
    pub skipped_blocks: u64,
}

impl ScrubReport {
    /// There are blocks whose copies differ still.
    pub fn has_differences(&self) -> bool {
        self.different_blocks > 0 && (self.is_running || !self.is_repair)
    }
}

impl From<ScrubInfo> for ScrubReport {
    fn from(info: ScrubInfo) -> Self {
        ScrubReport {
            is_repair: info.is_repair,
            is_running: info.is_running,
            is_incomplete: info.is_incomplete,
            done_blocks: info.done,
            total_blocks: info.total,
            different_blocks: info.different,
            unreadable_blocks: info.unreadable,
            skipped_blocks: info.skipped,
        }
    }
}

impl From<MirrorInfo> for MirrorReport {
    fn from(info: MirrorInfo) -> Self {
        MirrorReport {
            extents: info.extents,
            free_extents: info.free_extents,
            single_extents: info.single,
            bytes: info.bytes,
            unsynced_bytes: info.unsynced,
            stuck_bytes: info.runs.iter().map(|run| run.stuck_bytes).sum(),
            is_catching_up: info.is_catching_up,
            outdated_bytes: info.runs.iter().map(|run| run.outdated_bytes).sum(),
        }
    }
}
