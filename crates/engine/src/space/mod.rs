//! Free space: which VG blocks nothing uses, and who may take them.
//!
//! Blocks are in one of these states: *free* (in the free tree), in an *arena* (taken out of the free tree as a run
//! of up to 1024 blocks and handed out block by block; the arena's bitmap says which are used), *used*, or *pending*
//! (freed, not yet usable).
//!
//! Invariants
//!
//! * S1 A block is handed out only from the free tree or as an unused bit of an arena.
//! * S2 A freed block becomes usable only when a checkpoint that no longer refers to it is durable (rule R8). Recovery
//!   relies on it: a block that a journal record places was free at the checkpoint before.
//! * S3 The free tree never overlaps an open arena.
//! * S4 `reserved_blocks` (thick volumes' unmapped rest, unused reserves) are never handed to anyone else. Except to metadata
//!   when nothing else is left: without it nobody's write could be mapped, those that the reservation is for included.
//! * S5 Slots (rule R10) are hints: forgetting them loses no block, only neighbourhood.
//! * S6 Nothing is handed out on a physical volume that is not allocatable ([`pvs`]).

mod account;
mod arena;
mod arenas_kept;
pub mod backing;
mod commit;
mod extents;
mod free_pieces;
mod large;
mod longest;
pub mod metadata;
pub mod no_space_timeout;
mod pieces;
pub mod pools;
mod pv_changes;
pub mod pvs;
mod reservations;
mod returning;
mod runs;
mod search;
mod slots;
mod tree;

use crate::error::{Error, Result as Outcome};
use crate::fixed_hash::Map;
use crate::format::stream::{ArenaRecord, RunRecord};
use crate::map::{MapError, NodeCache};
use crate::model::Tree;
use crate::units::VolumeId;
pub use account::{Account, Reserve};
pub use arena::ARENA_BLOCKS;
use arena::Arena;
pub use commit::COMMIT_STEP;
use longest::{LEAVES_FOR_ARENA, Longest, Part};
use metadata::{MetaSpace, StreamLoad};
use parking_lot::Mutex;
use pvs::Pvs;
pub use runs::{Run, Runs, join_runs};
use std::collections::{BTreeMap, VecDeque};

/// Runs that an arena is made of rather than of a smaller one, in this order.
const LARGE_RUNS: [u64; 2] = [ARENA_BLOCKS, 64];
/// Open arenas, at most: bounds the memory of arenas and slots.
const MAX_ARENAS: usize = 4096;
/// Slots that may be kept without looking whether their arenas are still open.
const MAX_SLOTS: usize = MAX_ARENAS * 32;
/// Leaves of the free tree looked at in one step of a search.
const SEARCH_LEAVES: usize = 64;

/// What became of the wish to cut the end off a physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Done,
    /// Something lies there, or will be free only later.
    InUse,
    /// Nothing lies there, but of so many blocks only some are reserved for nobody.
    Reserved {
        needed: u64,
        free: u64,
    },
}

/// Why blocks were not handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// A node is missing or damaged; never for want of room, which the next two are.
    Map(MapError),
    /// There are too few metadata blocks for one more write (M3).
    NotAdmitted,
    /// The free tree cannot be changed with the metadata blocks that there are for that (M4).
    NoMetadataForFreeTree,
    /// Nothing left for this account.
    Full,
    /// The snapshot's reserve does not cover it.
    ReserveFull(VolumeId),
    /// So many blocks of the volume's pool are wanted, and it may have fewer left.
    PoolFull(u64),
}

/// What becomes of the arenas where nothing as large is free. Whoever lets them stay has no need yet, and gets nothing that is
/// promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenArenas {
    Close,
    /// They stay, but what is reserved may be taken.
    Kept,
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
    /// How free space contradicted itself, at first.
    contradiction: Option<String>,
    /// Blocks in the free tree.
    free: u64,
    arenas: BTreeMap<u64, Arena>,
    arena_order: VecDeque<u64>,
    arena_unused: u64,
    /// Of these, blocks that may not be handed out (S6): in arenas that begin there.
    unallocatable_unused: u64,
    current: Map<VolumeId, u64>,
    /// The slot of (volume, chunk size, chunk): its arena's serial and its first block.
    slots: Map<(VolumeId, u64, u64), (u64, u64)>,
    next_serial: u64,
    /// So many slots make a sweep for those whose arena is gone.
    slots_sweep_at: usize,
    slots_taken: u64,
    pending: Vec<Run>,
    pending_blocks: u64,
    committing: Vec<Run>,
    committing_blocks: u64,
    /// What pending runs and arenas take of the next checkpoint's stream.
    load: StreamLoad,
    /// Bytes that the runs being committed and the first so many pending ones take at the most, packed.
    packed: (usize, usize),
    reserves: Map<VolumeId, Reserve>,
    reserved_blocks: i64,
    search_from: u64,
    longest: Longest,
    leaves_for_arena: usize,
    part: Part,
    /// Blocks that came into the tree in pieces smaller than an arena. At the most: what has grown together since counts, too.
    scattered: u64,
    /// Metadata should grow while it can (M5).
    wants_metadata: bool,
    /// The same as `none_below` of an extent for that.
    no_extent_below: u64,
    /// No run of each of the [`LARGE_RUNS`] was found when so many blocks less than this were free: not looked for again until there
    /// are as many, for that means to look through the whole tree.
    none_below: [u64; LARGE_RUNS.len()],
    pvs: Pvs,
    /// Planted bug: freed blocks are handed out at once, against S2.
    #[cfg(feature = "planted")]
    pub reuse_early: bool,
    /// Planted bug: blocks are handed out wherever they are free, against S6.
    #[cfg(feature = "planted")]
    pub take_unallocatable: bool,
}

/// What the free tree needs to be changed.
#[derive(Clone, Copy)]
pub struct AllocContext<'a> {
    pub cache: &'a NodeCache,
    pub meta: &'a Mutex<MetaSpace>,
    pub generation: u64,
    /// Metadata blocks that are to be left.
    pub keep: u64,
}

fn unsound(detail: String) -> Error {
    Error::Corrupt { what: "free space", place: "the volume group".into(), detail }
}

impl Space {
    /// The structures of free space contradict each other: a damaged checkpoint, or a fault of this program. The tree has
    /// changed by then: see [`sound`](Self::sound).
    fn contradiction(&mut self, rule: &str, run: Run, what: &str) -> MapError {
        let detail = format!("{rule}: blocks {}+{} {what}", run.0, run.1);
        let detail = self.contradiction.get_or_insert(detail).clone();
        MapError::Corrupt(unsound(detail))
    }

    /// An error when free space contradicted itself: no checkpoint may be made of that.
    pub fn sound(&self) -> Outcome<()> {
        self.contradiction.clone().map_or(Ok(()), |detail| Err(unsound(detail)))
    }

    pub fn new(free_tree: Tree, free: u64, pvs: Pvs) -> Self {
        Space {
            free_tree,
            contradiction: None,
            free,
            arenas: BTreeMap::new(),
            arena_order: VecDeque::new(),
            arena_unused: 0,
            unallocatable_unused: 0,
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
            reserved_blocks: 0,
            search_from: 0,
            longest: Longest::default(),
            leaves_for_arena: LEAVES_FOR_ARENA,
            part: Part::default(),
            none_below: Default::default(),
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

    /// Blocks in the free tree, unused blocks of arenas apart.
    pub fn free_in_tree(&self) -> u64 {
        self.free
    }

    /// Blocks that nothing uses.
    pub fn free_blocks(&self) -> u64 {
        self.free + self.arena_unused
    }

    /// Blocks that nothing uses and that may be handed out (S6).
    pub fn allocatable_blocks(&self) -> u64 {
        self.allocatable_in_tree() + self.arena_unused.saturating_sub(self.unallocatable_unused)
    }

    /// Blocks in the free tree that may be handed out.
    fn allocatable_in_tree(&self) -> u64 {
        self.free.saturating_sub(self.pvs.unallocatable())
    }

    /// Free to be handed out, and reserved for nobody.
    pub fn available(&self) -> u64 {
        self.allocatable_blocks().saturating_sub(self.reserved_blocks())
    }

    /// Unused blocks of the arena that begins at `base` became more or fewer.
    fn count_unused(&mut self, base: u64, change: i64) {
        self.arena_unused = self.arena_unused.saturating_add_signed(change);
        if self.pvs.is_unallocatable(base) {
            self.unallocatable_unused = self.unallocatable_unused.saturating_add_signed(change);
        }
    }

    /// Open arenas.
    pub fn arena_count(&self) -> usize {
        self.arenas.len()
    }

    /// Where this tells what the next checkpoint's stream takes.
    pub fn load(&self) -> StreamLoad {
        self.load.clone()
    }

    /// To be called after each change of arenas and of runs that are freed (M2). A stream that has no room packs its runs.
    fn weigh(&self) {
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
