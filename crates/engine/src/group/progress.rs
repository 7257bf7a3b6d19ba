//! How far long work in the background is. Reports show it; nothing is decided by it.

use crate::units::VolumeId;
use parking_lot::Mutex;

/// The work under way.
#[derive(Default)]
pub(super) struct Progress {
    /// The volume that is brought together, and where the search is.
    rehoming: Mutex<Option<(VolumeId, u64)>>,
    /// Of the verification that began last: the metadata nodes that it has read, and how many there are.
    check: Mutex<Option<CheckProgress>>,
}

/// A volume that is brought together in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehomeProgress {
    pub name: String,
    /// The search is at this block of the volume...
    pub at: u64,
    /// ... which has so many.
    pub blocks: u64,
    /// Volumes that wait for their turn.
    pub waiting: u64,
}

/// A verification of the open group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckProgress {
    /// Metadata nodes that were read.
    pub nodes: u64,
    /// Metadata blocks in use when it began: there are no more nodes.
    pub total: u64,
}

impl Progress {
    pub(super) fn rehomes(&self, volume: VolumeId, at: u64) {
        *self.rehoming.lock() = Some((volume, at));
    }

    pub(super) fn rehoming(&self) -> Option<(VolumeId, u64)> {
        *self.rehoming.lock()
    }

    pub(super) fn check(&self) -> Option<CheckProgress> {
        *self.check.lock()
    }

    pub(super) fn rehomed(&self) {
        *self.rehoming.lock() = None;
    }

    pub(super) fn checks(&self, nodes: u64, total: u64) {
        *self.check.lock() = Some(CheckProgress { nodes, total });
    }

    pub(super) fn checked(&self) {
        *self.check.lock() = None;
    }
}
