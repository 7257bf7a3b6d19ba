//! What reports and the status say of mirrors.

use rowen_engine::group::MirrorInfo;
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
}

impl MirrorReport {
    /// So many of the extents, in bytes.
    pub fn bytes_of(&self, extents: u64) -> u64 {
        (self.bytes / self.extents.max(1)).saturating_mul(extents)
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
        }
    }
}
