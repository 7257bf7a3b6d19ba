//! On whose account blocks are taken.

use crate::model::SegmentType;
use crate::units::VolumeId;

/// A snapshot's reserve and what is charged to it, in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserve {
    /// The type of the snapshot.
    pub segment: SegmentType,
    pub blocks: u64,
    pub used: u64,
}

impl Reserve {
    pub fn unused(&self) -> i64 {
        self.blocks.saturating_sub(self.used) as i64
    }
}

/// On whose account blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// From free space that is not reserved.
    Open,
    /// From the reservation of a thick volume, which shrinks.
    Thick,
    /// From the reserve of this snapshot.
    Reserve(VolumeId),
}
