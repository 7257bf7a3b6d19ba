//! Free space: which VG blocks are unused, and who may allocate them.
//!
//! A block is in one of these states: *free* (in the free tree); in an *arena* (a run of up to 1024 blocks that was
//! taken out of the free tree and is allocated block by block; the arena's bitmap says which blocks are used); *used*;
//! or *pending* (freed, not usable yet).
//!
//! Invariants
//!
//! * S1 A block is allocated only from the free tree or as an unused bit of an arena.
//! * S2 A freed block becomes usable only when a checkpoint that no longer refers to it is durable (rule R8). Recovery
//!   relies on it: a block that a journal record places was free at the checkpoint before.
//! * S3 The free tree never overlaps an open arena.
//! * S4 `reserved_blocks` (the unmapped part of thick volumes, unused reserves) go only to their volume. One exception:
//!   metadata gets them when nothing else is free. Without metadata no write could be mapped, not even a write with a
//!   reservation.
//! * S5 Slots (rule R10) are hints: forgetting them loses no block, only locality.
//! * S8 A block is for volumes of one type: mirrored blocks for mirrored volumes, the others for linear ones. What a
//!   linear volume had in an extent that became mirrored stays there. Free space, reservations and searches are separate. Metadata and the journal take what is for linear volumes.
//! * S6 Nothing is allocated on a physical volume that is not allocatable ([`pvs`]).

mod account;
mod arena;
mod arena_state;
pub mod backing;
mod commit;
mod extents;
mod free_runs;
mod large;
mod longest_run;
pub mod metadata;
mod metadata_runs;
pub mod no_space_timeout;
pub mod pools;
mod pv_changes;
pub mod pvs;
mod reservations;
mod restore_freed;
mod runs;
mod search;
mod slots;
mod tree;

use crate::error::{Error, Result as Outcome};
use crate::fixed_hash::Map;
use crate::format::stream::{ArenaRecord, RunRecord};
use crate::map::{MapError, NodeCache};
use crate::model::{SegmentType, Tree};
use crate::units::VolumeId;
pub use account::{Account, Reserve};
pub use arena::ARENA_BLOCKS;
use arena::Arena;
pub use commit::COMMIT_STEP;
use longest_run::{LEAVES_FOR_ARENA, LongestRuns, Part};
use metadata::{MetaSpace, StreamLoad};
use parking_lot::Mutex;
use pvs::Pvs;
pub use runs::{Run, Runs, join_runs};
use std::collections::{BTreeMap, VecDeque};

/// Lengths of runs that an arena prefers, in this order, before it takes a shorter one.
const LARGE_RUNS: [u64; 2] = [ARENA_BLOCKS, 64];
/// The most open arenas: bounds the memory of arenas and slots.
const MAX_ARENAS: usize = 4096;
/// The most slots that are kept without a check that their arenas are still open.
const MAX_SLOTS: usize = MAX_ARENAS * 32;
/// Leaves of the free tree that one step of a search reads.
const SEARCH_LEAVES: usize = 64;

/// The outcome of cutting the end off a physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Done,
    /// Blocks there are in use, or will be free only later.
    InUse,
    /// The range is empty, but removing these blocks would leave less free space than is reserved.
    Reserved {
        needed: u64,
        free: u64,
    },
}

/// Why blocks were not allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// A node is missing or damaged. Never for lack of room: that is one of the next two.
    Map(MapError),
    /// There are too few metadata blocks for one more write (M3).
    NotAdmitted,
    /// There are too few metadata blocks for a change of the free tree (M4).
    NoMetadataForFreeTree,
    /// Nothing left for this account.
    Full,
    /// The snapshot's reserve does not cover it.
    ReserveFull(VolumeId),
    /// The volume's pool may have fewer blocks left than this.
    PoolFull(u64),
}

/// What to do with the arenas if no run is long enough. A caller that leaves them open has no urgent need, and gets no
/// reserved blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenArenas {
    Close,
    /// They stay, but reserved blocks may be taken.
    StayWithReserved,
    Stay,
}

impl From<MapError> for AllocError {
    fn from(e: MapError) -> Self {
        match e {
            MapError::NoSpace => AllocError::NoMetadataForFreeTree,
            e => AllocError::Map(e),
        }
    }
}

pub struct Space {
    free_tree: Tree,
    /// The first contradiction that was found in free space.
    contradiction: Option<String>,
    /// Blocks in the free tree.
    free: u64,
    /// For volumes of each type.
    classes: [Class; SegmentType::ALL.len()],
    arenas: BTreeMap<u64, Arena>,
    arena_order: VecDeque<u64>,
    current: Map<VolumeId, u64>,
    /// The slot of (volume, chunk size, chunk): its arena's serial and its first block.
    slots: Map<(VolumeId, u64, u64), (u64, u64)>,
    next_serial: u64,
    /// At this many slots, slots whose arena is gone are removed.
    slots_sweep_at: usize,
    slots_taken: u64,
    pending: Vec<Run>,
    pending_blocks: u64,
    committing: Vec<Run>,
    committing_blocks: u64,
    /// Bytes of the next checkpoint's stream for pending runs and arenas.
    load: StreamLoad,
    /// The most packed bytes of the runs being committed, and of this many first pending runs.
    packed: (usize, usize),
    reserves: Map<VolumeId, Reserve>,
    longest: LongestRuns,
    part: Part,
    /// Blocks that came into the tree in pieces smaller than an arena. An upper bound: pieces that were joined since
    /// still count.
    scattered: u64,
    /// Metadata should grow while it can (M5).
    wants_metadata: bool,
    /// Like `none_below`, for an extent of metadata.
    no_extent_below: u64,
    pvs: Pvs,
    /// Planted bug: freed blocks are allocated at once, against S2.
    #[cfg(feature = "planted")]
    pub reuse_early: bool,
    /// Planted bug: blocks are allocated wherever they are free, against S6.
    #[cfg(feature = "planted")]
    pub take_unallocatable: bool,
}

/// The free space for volumes of one type (S8).
#[derive(Default)]
struct Class {
    /// Unused blocks of its arenas.
    arena_unused: u64,
    /// Of these, blocks that are not allocatable (S6): in arenas that begin there.
    unallocatable_unused: u64,
    reserved_blocks: i64,
    search_from: u64,
    /// Unknown leaves that the next search for an arena may still read.
    leaves_for_arena: usize,
    /// For each of the [`LARGE_RUNS`]: no such run was found. It is searched again only when at least this many blocks
    /// are free, because the search reads the whole tree.
    none_below: [u64; LARGE_RUNS.len()],
}

/// The context for a change of the free tree.
#[derive(Clone, Copy)]
pub struct AllocContext<'a> {
    pub cache: &'a NodeCache,
    pub meta: &'a Mutex<MetaSpace>,
    pub generation: u64,
    /// Metadata blocks that must be left.
    pub keep: u64,
}

fn unsound(detail: String) -> Error {
    Error::Corrupt { what: "free space", place: "the volume group".into(), detail }
}

impl Space {
    /// The structures of free space contradict each other: a damaged checkpoint, or a bug. The tree may have changed
    /// already: see [`sound`](Self::sound).
    fn contradiction(&mut self, rule: &str, run: Run, what: &str) -> MapError {
        let detail = format!("{rule}: blocks {}+{} {what}", run.0, run.1);
        let detail = self.contradiction.get_or_insert(detail).clone();
        MapError::Corrupt(unsound(detail))
    }

    /// An error if free space contradicted itself. Then no checkpoint may be taken.
    pub fn check_double_free(&self) -> Outcome<()> {
        self.contradiction.clone().map_or(Ok(()), |detail| Err(unsound(detail)))
    }

    pub fn new(free_tree: Tree, free: u64, pvs: Pvs) -> Self {
        Space {
            free_tree,
            contradiction: None,
            free,
            classes: SegmentType::ALL.map(|_| Class { leaves_for_arena: LEAVES_FOR_ARENA, ..Class::default() }),
            arenas: BTreeMap::new(),
            arena_order: VecDeque::new(),
            current: Map::default(),
            slots: Map::default(),
            next_serial: 0,
            slots_sweep_at: MAX_SLOTS,
            slots_taken: 0,
            scattered: 0,
            wants_metadata: false,
            no_extent_below: 0,
            pending: Vec::new(),
            pending_blocks: 0,
            committing: Vec::new(),
            committing_blocks: 0,
            load: StreamLoad::default(),
            packed: (0, 0),
            reserves: Map::default(),
            longest: LongestRuns::default(),
            part: Part::default(),
            pvs,
            #[cfg(feature = "planted")]
            reuse_early: false,
            #[cfg(feature = "planted")]
            take_unallocatable: false,
        }
    }

    pub fn free_tree(&self) -> Tree {
        self.free_tree
    }

    /// Blocks in the free tree, without unused blocks of arenas.
    pub fn free_in_tree(&self) -> u64 {
        self.free
    }

    fn class(&self, segment: SegmentType) -> &Class {
        &self.classes[segment as usize]
    }

    fn class_mut(&mut self, segment: SegmentType) -> &mut Class {
        &mut self.classes[segment as usize]
    }

    /// Unused blocks of all arenas.
    fn arena_unused(&self) -> u64 {
        self.classes.iter().map(|class| class.arena_unused).sum()
    }

    /// Blocks that nothing uses, for volumes of all types.
    pub fn free_blocks(&self) -> u64 {
        self.free + self.arena_unused()
    }

    /// Blocks that nothing uses, for volumes of this type.
    pub fn free_for(&self, segment: SegmentType) -> u64 {
        self.in_tree(segment) + self.class(segment).arena_unused
    }

    /// Blocks in the free tree for volumes of this type.
    fn in_tree(&self, segment: SegmentType) -> u64 {
        match segment {
            SegmentType::Linear => {
                let others = SegmentType::ALL.iter().map(|segment| self.pvs.several_free(*segment)).sum();
                self.free.saturating_sub(others)
            }
            several => self.pvs.several_free(several),
        }
    }

    /// Unused blocks for volumes of this type that are allocatable (S6).
    pub fn allocatable_blocks(&self, segment: SegmentType) -> u64 {
        let class = self.class(segment);
        self.allocatable_in_tree(segment) + class.arena_unused.saturating_sub(class.unallocatable_unused)
    }

    /// Blocks in the free tree for volumes of this type that are allocatable.
    fn allocatable_in_tree(&self, segment: SegmentType) -> u64 {
        self.in_tree(segment).saturating_sub(self.pvs.unallocatable(segment))
    }

    /// Allocatable blocks that are not reserved, for linear volumes and for metadata.
    pub fn available(&self) -> u64 {
        self.available_for(SegmentType::Linear)
    }

    /// Allocatable blocks that are not reserved, for volumes of this type.
    pub fn available_for(&self, segment: SegmentType) -> u64 {
        self.allocatable_blocks(segment).saturating_sub(self.reserved_for(segment))
    }

    /// The number of unused blocks of the arena at `base` changes.
    fn count_unused(&mut self, base: u64, change: i64) {
        let is_unallocatable = self.pvs.is_unallocatable(base);
        let class = self.class_mut(self.pvs.type_of(base));
        class.arena_unused = class.arena_unused.saturating_add_signed(change);
        if is_unallocatable {
            class.unallocatable_unused = class.unallocatable_unused.saturating_add_signed(change);
        }
    }

    /// Runs that were not found may be there now.
    fn forget_searches(&mut self) {
        self.classes.iter_mut().for_each(|class| class.none_below = Default::default());
        self.no_extent_below = 0;
    }

    /// Open arenas.
    pub fn arena_count(&self) -> usize {
        self.arenas.len()
    }

    /// The counter of bytes of the next checkpoint's stream.
    pub fn load(&self) -> StreamLoad {
        self.load.clone()
    }

    /// Call it after each change of arenas or freed runs (M2). A stream without room packs its runs.
    fn update_load(&self) {
        let (bytes, runs) = self.packed;
        let others = self.pending.len().saturating_sub(runs) * RunRecord::SIZE;
        self.load.set((bytes + others + self.arenas.len() * ArenaRecord::SIZE) as u64);
    }

    pub fn slots_taken(&self) -> u64 {
        self.slots_taken
    }

    pub fn pvs(&self) -> &Pvs {
        &self.pvs
    }
}

#[cfg(test)]
#[path = "space_test.rs"]
mod tests;
