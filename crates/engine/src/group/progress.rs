//! Progress of long background work. Only reports use it.

use crate::units::VolumeId;
use parking_lot::Mutex;

/// The work in progress.
#[derive(Default)]
pub(super) struct Progress {
    /// The volume that is being re-homed, and the position in it.
    rehoming: Mutex<Option<(VolumeId, u64)>>,
    /// The last check: the metadata nodes that it has read, and how many there are.
    check: Mutex<Option<CheckProgress>>,
}

/// A volume that is being re-homed in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehomeProgress {
    pub name: String,
    /// The position in the volume...
    pub at: u64,
    /// ... which has this many blocks.
    pub blocks: u64,
    /// Volumes that wait for their turn.
    pub waiting: u64,
}

/// A verification of the open group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckProgress {
    /// Metadata nodes that were read.
    pub nodes: u64,
    /// Metadata blocks in use when it began: an upper bound of the nodes.
    pub total: u64,
}

impl Progress {
    pub(super) fn set_rehoming(&self, volume: VolumeId, at: u64) {
        *self.rehoming.lock() = Some((volume, at));
    }

    pub(super) fn rehoming(&self) -> Option<(VolumeId, u64)> {
        *self.rehoming.lock()
    }

    pub(super) fn check(&self) -> Option<CheckProgress> {
        *self.check.lock()
    }

    pub(super) fn clear_rehoming(&self) {
        *self.rehoming.lock() = None;
    }

    pub(super) fn set_check(&self, progress: CheckProgress) {
        *self.check.lock() = Some(progress);
    }

    pub(super) fn clear_check(&self) {
        *self.check.lock() = None;
    }
}
