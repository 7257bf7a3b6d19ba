//! What is known of scrubs: of the one that goes on, and of the last one of each volume.

use crate::units::VolumeId;
use std::collections::BTreeMap;

/// A scrub that goes on, or the last one of a volume since the group was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubInfo {
    /// Differences are removed.
    pub is_repair: bool,
    pub is_running: bool,
    /// It did not get to its end: someone stopped it, or an error did.
    pub is_incomplete: bool,
    /// Blocks that were compared, and how many that will be, as far as is known.
    pub done: u64,
    pub total: u64,
    /// Blocks whose copies differ; of a repair, blocks whose copies did.
    pub different: u64,
    /// Blocks that one disk could not read. They are written to it anew.
    pub unreadable: u64,
    /// Blocks that have one copy now, because a disk is away or is being caught up.
    pub skipped: u64,
}

/// The scrubs of a group.
#[derive(Default)]
pub(super) struct Scrubs {
    pub of: BTreeMap<VolumeId, ScrubInfo>,
    pub is_stopping: bool,
    /// Those that have ended and were not reported.
    pub ended: Vec<(VolumeId, ScrubInfo)>,
}

impl Scrubs {
    /// The volume whose copies are being compared.
    pub fn running(&self) -> Option<VolumeId> {
        self.of.iter().find(|(_, info)| info.is_running).map(|(id, _)| *id)
    }
}
