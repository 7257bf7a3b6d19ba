//! Lists of changed blocks, in pages.

use rowen_engine::group as engine;
use rowen_engine::units::{TreeId, VolumeId};
use serde::{Deserialize, Serialize};

/// Ranges in a page, at most, and about: a page has some hundred kilobytes.
pub const PAGE_RANGES: usize = 64 << 10;

/// One of the volumes that are compared, as it was when the first page was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffSide {
    pub id: u64,
    pub head: u64,
    pub blocks: u64,
}

/// Where a page begins: what the page before it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffPlace {
    pub old: Option<DiffSide>,
    pub new: DiffSide,
    pub block: u64,
}

/// A range of blocks that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffRange {
    pub start_block: u64,
    pub blocks: u64,
    /// The new volume has data there; else it reads as zeros.
    pub is_data: bool,
}

/// A page of a list. Ranges are in order; the last one may go on in the next page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffPage {
    pub old: Option<DiffSide>,
    pub new: DiffSide,
    pub ranges: Vec<DiffRange>,
    /// Where the next page begins; none: this was the last.
    pub next_block: Option<u64>,
}

impl DiffPage {
    pub fn next(&self) -> Option<DiffPlace> {
        self.next_block.map(|block| DiffPlace { old: self.old, new: self.new, block })
    }
}

impl From<engine::Side> for DiffSide {
    fn from(side: engine::Side) -> Self {
        DiffSide { id: side.volume.0, head: side.head.0, blocks: side.blocks }
    }
}

impl From<DiffSide> for engine::Side {
    fn from(side: DiffSide) -> Self {
        engine::Side { volume: VolumeId(side.id), head: TreeId(side.head), blocks: side.blocks }
    }
}

impl From<engine::Changed> for DiffRange {
    fn from(changed: engine::Changed) -> Self {
        let is_data = changed.content == engine::Content::Data;
        DiffRange { start_block: changed.start, blocks: changed.blocks, is_data }
    }
}
