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
//! * S4 `promised` blocks (thick volumes' unmapped rest, unused reserves) are never handed to anyone else. Except to metadata
//!   when nothing else is left: without it nobody's write could be mapped, those that the promise is for included.
//! * S5 Slots (rule R10) are hints: forgetting them loses no block, only neighbourhood.
//! * S6 Nothing is handed out on a physical volume that is not allocatable ([`pvs`]).

pub mod backing;
mod longest;
pub mod metadata;
pub mod patience;
mod pieces;
pub mod pools;
pub mod pvs;
mod returning;
mod runs;
mod search;

use crate::error::{Error, Result as Outcome};
use crate::fixed_hash::Map;
use crate::format::packed::packed_len;
use crate::format::stream::{ArenaRecord, RunRecord};
use crate::map::{self, Extent, Fit, MapError, NodeCache, NodeOwner, NodeRef};
use crate::model::{ArenaMeta, Tree};
use crate::units::{Epoch, MetaBlock, VolumeId};
use longest::{LEAVES_FOR_ARENA, Longest, all_leaves};
use metadata::{MetaSpace, StreamLoad};
use parking_lot::Mutex;
use pvs::Pvs;
use runs::push_run;
pub use runs::{Run, Runs, join_runs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Blocks in an arena, at most.
pub const ARENA_BLOCKS: u64 = 1024;
/// Runs that an arena is made of rather than of a smaller one, in this order.
const LARGE_RUNS: [u64; 2] = [ARENA_BLOCKS, 64];
/// Open arenas, at most: bounds the memory of arenas and slots.
const MAX_ARENAS: usize = 4096;
/// Slots that may be kept without looking whether their arenas are still open.
const MAX_SLOTS: usize = MAX_ARENAS * 32;
/// Leaves of the free tree looked at in one step of a search.
const SEARCH_LEAVES: usize = 64;

/// Free extents counted in one step.
const COUNTED_TOGETHER: usize = 256;

/// Freed runs made usable in one step: some tens of microseconds.
pub const COMMIT_STEP: usize = 16;

struct Arena {
    /// Names the arena for its life: another one may later begin at the same block.
    serial: u64,
    len: u64,
    used: [u64; 16],
    unused: u64,
    /// Where the next slot is carved; beyond it nothing is reserved.
    cursor: u64,
}

impl Arena {
    fn is_used(&self, i: u64) -> bool {
        self.used[(i / 64) as usize] >> (i % 64) & 1 == 1
    }

    fn set(&mut self, i: u64) {
        debug_assert!(!self.is_used(i), "S1: a block is handed out once");
        self.used[(i / 64) as usize] |= 1 << (i % 64);
        self.unused -= 1;
    }

    fn clear(&mut self, i: u64) {
        debug_assert!(self.is_used(i), "a block is freed once");
        self.used[(i / 64) as usize] &= !(1 << (i % 64));
        self.unused += 1;
    }

    /// Runs of unused blocks, relative to the arena.
    fn unused_runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for i in (0..self.len).filter(|i| !self.is_used(*i)) {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == i => *len += 1,
                _ => runs.push((i, 1)),
            }
        }
        runs
    }
}

/// A snapshot's reserve and what is charged to it, in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserve {
    pub blocks: u64,
    pub used: u64,
}

impl Reserve {
    fn promise(&self) -> i64 {
        self.blocks.saturating_sub(self.used) as i64
    }
}

/// On whose account blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// From what is free and promised to nobody.
    Open,
    /// A promise made to a thick volume, which shrinks by as much.
    Thick,
    /// The reserve of this snapshot.
    Reserve(VolumeId),
}

/// What became of the wish to cut the end off a physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Done,
    /// Something lies there, or will be free only later.
    InUse,
    /// Nothing lies there, but of so many blocks only some are promised to nobody.
    Promised {
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
    Untidy,
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
    /// They stay, but what is promised may be taken.
    Kept,
    Stay,
}

impl From<MapError> for AllocError {
    fn from(e: MapError) -> Self {
        match e {
            MapError::NoSpace => AllocError::Untidy,
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
    barred_unused: u64,
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
    promised: i64,
    search_from: u64,
    longest: Longest,
    leaves_for_arena: usize,
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
    pub take_barred: bool,
}

/// The free tree's writer: all its nodes are its own.
struct FreeOwner<'a> {
    meta: &'a mut MetaSpace,
    cache: &'a NodeCache,
    generation: u64,
    keep: u64,
}

impl NodeOwner for FreeOwner<'_> {
    fn can_alloc(&self, nodes: usize) -> bool {
        self.meta.can_take(nodes as u64 + self.keep)
    }
    fn alloc(&mut self) -> MetaBlock {
        self.meta.alloc()
    }
    fn release(&mut self, node: NodeRef) {
        self.meta.release(node, self.generation, self.cache);
    }
    fn owned(&self, _: Epoch, _: u64) -> bool {
        true
    }
    fn birth(&self) -> Epoch {
        Epoch(0)
    }
    fn generation(&self) -> u64 {
        self.generation
    }
}

/// What the free tree needs to be changed.
#[derive(Clone, Copy)]
pub struct Hands<'a> {
    pub cache: &'a NodeCache,
    pub meta: &'a Mutex<MetaSpace>,
    pub generation: u64,
    /// Metadata blocks that are to be left.
    pub keep: u64,
}

impl<'a> Hands<'a> {
    fn owner(self, meta: &'a mut MetaSpace) -> FreeOwner<'a> {
        FreeOwner { meta, cache: self.cache, generation: self.generation, keep: self.keep }
    }
}

fn run_extent((start, len): Run) -> Extent {
    let len = u32::try_from(len).expect("runs in the free tree are at most 2^32 - 1 blocks");
    Extent { key: start, len, value: start, birth: Epoch(0), flags: 0 }
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
            barred_unused: 0,
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
            promised: 0,
            search_from: 0,
            longest: Longest::default(),
            leaves_for_arena: LEAVES_FOR_ARENA,
            none_below: Default::default(),
            pvs,
            #[cfg(feature = "planted")]
            reuse_early: false,
            #[cfg(feature = "planted")]
            take_barred: false,
        }
    }

    #[cfg(feature = "planted")]
    fn reuse_now(&mut self, hands: Hands<'_>) -> Result<(), MapError> {
        while let Some(run) = self.pending.last().copied().filter(|_| self.reuse_early) {
            let len = self.put_back(hands, run)?;
            self.pending_blocks -= len;
            self.pending.pop();
            if len < run.1 {
                self.pending.push((run.0 + len, run.1 - len));
            }
            self.search_from = run.0;
            self.current.clear();
        }
        Ok(())
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

    pub fn promised(&self) -> u64 {
        self.promised.max(0) as u64
    }

    /// Blocks that nothing uses and that may be handed out (S6).
    pub fn allocatable_blocks(&self) -> u64 {
        self.open_in_tree() + self.arena_unused.saturating_sub(self.barred_unused)
    }

    /// Blocks in the free tree that may be handed out.
    fn open_in_tree(&self) -> u64 {
        self.free.saturating_sub(self.pvs.barred())
    }

    /// Free to be handed out, and promised to nobody.
    pub fn available(&self) -> u64 {
        self.allocatable_blocks().saturating_sub(self.promised())
    }

    /// Unused blocks of the arena that begins at `base` became more or fewer.
    fn count_unused(&mut self, base: u64, change: i64) {
        self.arena_unused = self.arena_unused.saturating_add_signed(change);
        if self.pvs.is_barred(base) {
            self.barred_unused = self.barred_unused.saturating_add_signed(change);
        }
    }

    pub fn pending_blocks(&self) -> u64 {
        self.pending_blocks + self.committing_blocks
    }

    /// Open arenas.
    pub fn arena_count(&self) -> usize {
        self.arenas.len()
    }

    pub fn pending_runs(&self) -> usize {
        self.pending.len()
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

    /// A physical volume joined whose range ends at block `end`.
    pub fn add_pv(&mut self, end: u64) {
        self.pvs.add(end);
    }

    /// A physical volume's range ends later than it did, at block `end`.
    pub fn grow_pv(&mut self, pv: usize, end: u64) {
        self.pvs.set_end(pv, end);
    }

    /// Takes the end of a physical volume's range out of free space for good, unless some of it is in use, or promised with what
    /// else is free: then all stays.
    pub fn cut_pv(&mut self, hands: Hands<'_>, pv: usize, (start, len): Run) -> Result<Cut, MapError> {
        self.close_arenas(hands)?;
        let mut at = start;
        while at < start + len {
            match map::first_fit(hands.cache, &self.free_tree, at, 1, SEARCH_LEAVES)? {
                Fit::Found(e) if e.key == at => at = e.end(),
                Fit::Found(_) | Fit::Continue(_) | Fit::None => return Ok(Cut::InUse),
            }
        }
        let goes = if self.pvs.is_allocatable(pv) { len } else { 0 };
        if self.available() < goes {
            return Ok(Cut::Promised { needed: goes, free: self.available() });
        }
        self.take_run(hands, (start, len))?;
        self.pvs.set_end(pv, start);
        self.search_from = 0;
        Ok(Cut::Done)
    }

    /// From now on space is taken from a physical volume, or is not (S6). `Err`: that would leave so many blocks too few for
    /// what is promised, and nothing is changed.
    pub fn set_allocatable(
        &mut self,
        hands: Hands<'_>,
        pv: usize,
        is_allocatable: bool,
    ) -> Result<Result<(), u64>, MapError> {
        // No arena may reach from what is open into what is not; and slots would be taken from one that is closed.
        self.close_arenas(hands)?;
        let (before, open) = (self.pvs.clone(), self.open_in_tree());
        self.pvs.set_allocatable(pv, is_allocatable);
        let too_few = self.promised().saturating_sub(self.open_in_tree());
        if self.open_in_tree() < open && too_few > 0 {
            self.pvs = before;
            return Ok(Err(too_few));
        }
        // What was found to be without space may have some now, and the other way round.
        self.none_below = Default::default();
        self.no_extent_below = 0;
        Ok(Ok(()))
    }

    /// The same of a group that is being opened, before anything is handed out.
    pub fn bar(&mut self, pv: usize) {
        debug_assert!(self.arenas.is_empty(), "S6: no arena was opened there");
        self.pvs.set_allocatable(pv, false);
    }

    /// Whether `wanted` blocks of the physical volume are free, and promised to nobody with what else is free.
    pub fn is_pv_free(&mut self, hands: Hands<'_>, pv: usize, wanted: u64) -> Result<bool, MapError> {
        self.close_arenas(hands)?;
        let goes = if self.pvs.is_allocatable(pv) { wanted } else { 0 };
        Ok(self.pvs.free().nth(pv) == Some(wanted) && self.available() >= goes)
    }

    /// Takes a physical volume's range out of free space for good: these runs are all of it that was not in use as something
    /// that goes with it. `Ok(false)`: some of it is in use, or promised with what else is free, and all stays. Runs that are
    /// taken are taken from the list, so that it can be called again after an error.
    pub fn take_pv(&mut self, hands: Hands<'_>, pv: usize, runs: &mut Vec<Run>) -> Result<bool, MapError> {
        if !self.is_pv_free(hands, pv, runs.iter().map(|(_, len)| len).sum())? {
            return Ok(false);
        }
        while let Some(run) = runs.last().copied() {
            self.take_run(hands, run)?;
            runs.pop();
        }
        self.pvs.remove(pv);
        self.search_from = 0;
        Ok(true)
    }

    // ---- promises -------------------------------------------------------------------------------------------

    /// Raises (or lowers) what is promised to thick volumes.
    pub fn promise(&mut self, blocks: i64) {
        self.promised += blocks;
    }

    /// Starts the count of promises anew: thick volumes' unmapped blocks, no reserves.
    pub fn promise_anew(&mut self, blocks: i64) {
        self.promised = blocks;
        self.reserves.clear();
    }

    /// Sets a snapshot's reserve and what is charged to it; `None` removes it.
    pub fn set_reserve(&mut self, snapshot: VolumeId, reserve: Option<Reserve>) {
        let before = match reserve {
            Some(reserve) => {
                self.promised += reserve.promise();
                self.reserves.insert(snapshot, reserve)
            }
            None => self.reserves.remove(&snapshot),
        };
        self.promised -= before.map_or(0, |r| r.promise());
    }

    pub fn reserve(&self, snapshot: VolumeId) -> Option<Reserve> {
        self.reserves.get(&snapshot).copied()
    }

    /// The snapshots that have a reserve, in no order.
    pub fn reserved(&self) -> Vec<VolumeId> {
        self.reserves.keys().copied().collect()
    }

    /// Charges a snapshot (negative: credits). A snapshot without a reserve is charged nothing.
    pub fn charge(&mut self, snapshot: VolumeId, blocks: i64) {
        if let Some(reserve) = self.reserves.get_mut(&snapshot) {
            let before = reserve.promise();
            reserve.used = reserve.used.saturating_add_signed(blocks);
            self.promised += reserve.promise() - before;
        }
    }

    fn admit(&self, blocks: u64, account: Account) -> Result<(), AllocError> {
        let limit = match account {
            Account::Open => self.available(),
            Account::Thick => self.allocatable_blocks(),
            Account::Reserve(snapshot) => match self.reserves.get(&snapshot) {
                Some(r) if r.used + blocks > r.blocks => return Err(AllocError::ReserveFull(snapshot)),
                Some(_) => self.allocatable_blocks(),
                None => self.available(),
            },
        };
        if blocks > limit { Err(AllocError::Full) } else { Ok(()) }
    }

    fn settle(&mut self, blocks: i64, account: Account) {
        match account {
            Account::Open => {}
            Account::Thick => self.promised -= blocks,
            Account::Reserve(snapshot) => self.charge(snapshot, blocks),
        }
    }

    /// Undoes the accounting of blocks that were handed out and are given back another way.
    pub fn unsettle(&mut self, blocks: u64, account: Account) {
        self.settle(-(blocks as i64), account);
    }

    // ---- handing out ----------------------------------------------------------------------------------------

    /// Places `len` blocks of a volume from LV block `at` on, chunk slot by chunk slot (rule R10), and settles the
    /// account. All or nothing.
    pub fn alloc(
        &mut self,
        hands: Hands<'_>,
        volume: VolumeId,
        chunk: u64,
        (mut at, len): Run,
        account: Account,
        out: &mut Runs,
    ) -> Result<(), AllocError> {
        #[cfg(feature = "planted")]
        self.reuse_now(hands)?;
        self.admit(len, account)?;
        let before = out.len();
        let end = at + len;
        while at < end {
            let want = (chunk - at % chunk).min(end - at);
            let got = if want == chunk {
                self.carve(hands, volume, (end - at) / chunk * chunk)
            } else {
                self.take_slot(hands, volume, chunk, at, want)
            };
            match got {
                Ok(run) => {
                    push_run(out, run);
                    at += run.1;
                }
                Err(e) => {
                    let taken: Vec<Run> = out.drain(before..).collect();
                    taken.into_iter().for_each(|run| self.unset(run));
                    return Err(e);
                }
            }
        }
        self.settle(len as i64, account);
        Ok(())
    }

    /// Undoes an [`alloc`](Self::alloc) whose blocks no record names.
    pub fn unalloc(&mut self, runs: &[Run], account: Account) {
        for run in runs {
            self.unset(*run);
            self.settle(-(run.1 as i64), account);
        }
    }

    /// Gives blocks back that no record names: to their arena, or, when that is gone, to a new one of their own.
    fn unset(&mut self, (start, len): Run) {
        let (mut at, end) = (start, start + len);
        while at < end {
            if let Some((base, arena)) = self.arena_of(at) {
                let stop = end.min(base + arena.len);
                (at - base..stop - base).for_each(|i| arena.clear(i));
                self.count_unused(base, (stop - at) as i64);
                at = stop;
                continue;
            }
            let next = self.arenas.range(at..).next().map_or(u64::MAX, |(base, _)| *base);
            let len = (end.min(next).min(self.pvs.end_of(at)) - at).min(ARENA_BLOCKS);
            let arena = Arena { serial: self.serial(), len, used: [0; 16], unused: len, cursor: len };
            self.arenas.insert(at, arena);
            self.arena_order.push_back(at);
            self.count_unused(at, len as i64);
            at += len;
        }
        self.weigh();
    }

    fn arena_of(&mut self, block: u64) -> Option<(u64, &mut Arena)> {
        let (base, arena) = self.arenas.range_mut(..=block).next_back()?;
        (block < base + arena.len).then_some((*base, arena))
    }

    /// Up to `want` contiguous blocks at the slot of `at`, which is made when there is none.
    fn take_slot(
        &mut self,
        hands: Hands<'_>,
        volume: VolumeId,
        chunk: u64,
        at: u64,
        want: u64,
    ) -> Result<Run, AllocError> {
        let (number, offset) = (at / chunk, at % chunk);
        if let Some((serial, slot)) = self.slots.get(&(volume, chunk, number)).copied()
            && self.arena_of(slot).is_some_and(|(_, arena)| arena.serial == serial)
            && let Some(run) = self.take_at(slot + offset, want)
        {
            return Ok(run);
        }
        let base = self.open_arena(hands, volume, chunk)?;
        let arena = self.arenas.get_mut(&base).expect("it was just opened");
        if arena.len - arena.cursor < chunk {
            return self.carve(hands, volume, want);
        }
        let slot = base + arena.cursor;
        arena.cursor += chunk;
        self.slots.insert((volume, chunk, number), (arena.serial, slot));
        self.slots_taken += 1;
        self.sweep_slots();
        Ok(self.take_at(slot + offset, want).expect("a new slot's blocks are unused"))
    }

    /// Unused blocks from `start` on, up to `want` of them; none when the first is used or in no arena.
    fn take_at(&mut self, start: u64, want: u64) -> Option<Run> {
        let (base, arena) = self.arena_of(start)?;
        let first = start - base;
        let end = (first + want).min(arena.len);
        let len = (first..end).take_while(|i| !arena.is_used(*i)).count() as u64;
        (first..first + len).for_each(|i| arena.set(i));
        let done = arena.unused == 0;
        self.count_unused(base, -(len as i64));
        if done {
            self.arenas.remove(&base);
            self.weigh();
        }
        (len > 0).then_some((start, len))
    }

    /// Up to `want` contiguous blocks from the volume's arena, beside any slot.
    fn carve(&mut self, hands: Hands<'_>, volume: VolumeId, want: u64) -> Result<Run, AllocError> {
        let base = self.open_arena(hands, volume, 1)?;
        let arena = self.arenas.get_mut(&base).expect("it was just opened");
        let start = base + arena.cursor;
        let len = want.min(arena.len - arena.cursor);
        arena.cursor += len;
        Ok(self.take_at(start, len).expect("beyond the cursor nothing is used"))
    }

    /// The volume's arena with room for `room` blocks beyond its cursor, if any arena can have that; else one with
    /// room for at least one block.
    fn open_arena(&mut self, hands: Hands<'_>, volume: VolumeId, room: u64) -> Result<u64, AllocError> {
        if let Some(base) = self.current.get(&volume)
            && let Some(arena) = self.arenas.get(base)
            && arena.len - arena.cursor >= room.max(1)
        {
            return Ok(*base);
        }
        if self.arenas.len() >= MAX_ARENAS {
            self.close_oldest(hands)?;
        }
        let run = loop {
            if let Some(run) = self.find(hands)? {
                break run;
            }
            // Slots hold what is left: take them back, the oldest first (rule R10).
            if self.arenas.is_empty() {
                return Err(AllocError::Full);
            }
            self.close_oldest(hands)?;
        };
        if run.0 < self.search_from && run.1 == ARENA_BLOCKS {
            // Arenas begin anew at the front: there may be extents behind this one.
            self.no_extent_below = 0;
        }
        let in_pieces = self.arena_unused + self.scattered + run.1;
        let may_grow = run.1 == ARENA_BLOCKS && self.open_in_tree() >= self.no_extent_below;
        self.wants_metadata |= may_grow && !hands.meta.lock().is_enough_for(in_pieces);
        self.take_run(hands, run)?;
        let arena = Arena { serial: self.serial(), len: run.1, used: [0; 16], unused: run.1, cursor: 0 };
        self.count_unused(run.0, run.1 as i64);
        self.arenas.insert(run.0, arena);
        self.arena_order.push_back(run.0);
        self.sweep_order();
        self.weigh();
        self.current.insert(volume, run.0);
        self.search_from = run.0 + run.1;
        Ok(run.0)
    }

    /// Whether metadata should grow, said once for each arena that was opened.
    pub fn take_metadata_wish(&mut self) -> bool {
        std::mem::take(&mut self.wants_metadata)
    }

    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// The first blocks at or after `at` that may be taken (S6): where they begin and end.
    fn open_from(&self, at: u64) -> Option<Range<u64>> {
        #[cfg(feature = "planted")]
        if self.take_barred {
            return Some(at..u64::MAX);
        }
        self.pvs.open().iter().find(|open| open.end > at).cloned()
    }

    /// Free blocks in `place` that may be taken, from its start on, some leaves' worth of them, and where those not counted
    /// begin; none: that is all. What arenas hold apart.
    pub fn count_free(&self, hands: Hands<'_>, place: &Range<u64>) -> Result<(u64, Option<u64>), MapError> {
        let (mut at, mut free) = (place.start, 0);
        let open = |e: &Extent| -> u64 {
            let parts = self.pvs.open().iter().filter_map(|open| e.cut(open.start, open.end.min(place.end)));
            parts.map(|part| u64::from(part.len)).sum()
        };
        for _ in 0..COUNTED_TOGETHER {
            match map::first_fit(hands.cache, &self.free_tree, at, 1, SEARCH_LEAVES)? {
                Fit::Found(e) => {
                    free += open(&e);
                    at = e.end();
                }
                Fit::Continue(next) => at = next,
                Fit::None => return Ok((free, None)),
            }
            if at >= place.end {
                return Ok((free, None));
            }
        }
        Ok((free, Some(at)))
    }

    /// Unused blocks of arenas in `place` that may be taken.
    pub fn unused_in(&self, place: &Range<u64>) -> u64 {
        let part = |(start, len): Run| (start + len).min(place.end).saturating_sub(start.max(place.start));
        self.arena_unused_runs().into_iter().filter(|(start, _)| !self.pvs.is_barred(*start)).map(part).sum()
    }

    fn take_run(&mut self, hands: Hands<'_>, run: Run) -> Result<(), MapError> {
        self.will_take(hands, run)?;
        let mut meta = hands.meta.lock();
        let mut owner = hands.owner(&mut meta);
        let mut removed = Vec::new();
        map::replace(hands.cache, &mut self.free_tree, &mut owner, run.0, run.0 + run.1, &[], &mut removed)?;
        let taken: u64 = removed.iter().map(|e| u64::from(e.len)).sum();
        if taken != run.1 {
            return Err(self.contradiction("S1", run, "were to be free"));
        }
        self.free -= taken;
        let in_pieces = if run.1 < ARENA_BLOCKS { taken } else { 0 };
        self.scattered = self.scattered.saturating_sub(in_pieces).min(self.free);
        self.pvs.count(run, false);
        Ok(())
    }

    fn put_run(&mut self, hands: Hands<'_>, run: Run) -> Result<(), MapError> {
        self.will_put(hands, run)?;
        let mut meta = hands.meta.lock();
        let mut owner = hands.owner(&mut meta);
        let mut removed = Vec::new();
        let extent = [run_extent(run)];
        map::replace(hands.cache, &mut self.free_tree, &mut owner, run.0, run.0 + run.1, &extent, &mut removed)?;
        if !removed.is_empty() {
            return Err(self.contradiction("S3", run, "were free already"));
        }
        self.free += run.1;
        if run.1 < ARENA_BLOCKS {
            self.scattered = (self.scattered + run.1).min(self.free);
        }
        self.pvs.count(run, true);
        Ok(())
    }

    /// For a write that needs a run: leaves the metadata blocks that writes need (M4).
    fn close_oldest(&mut self, hands: Hands<'_>) -> Result<(), MapError> {
        let hands = Hands { keep: hands.meta.lock().kept_from_arenas(), ..hands };
        while let Some(base) = self.arena_order.front().copied() {
            let open = self.arenas.contains_key(&base);
            if open {
                self.close_arena(hands, base)?;
            }
            self.arena_order.pop_front();
            if open {
                break;
            }
        }
        Ok(())
    }

    /// Slots of arenas that are gone are only weight, however they went: used up, or closed.
    fn sweep_slots(&mut self) {
        if self.slots.len() <= self.slots_sweep_at {
            return;
        }
        let arenas = &self.arenas;
        let alive =
            |serial: u64, slot: u64| arenas.range(..=slot).next_back().is_some_and(|(_, arena)| arena.serial == serial);
        self.slots.retain(|_, (serial, slot)| alive(*serial, *slot));
        // Each sweep is paid for by as many slots made since the last one.
        self.slots_sweep_at = MAX_SLOTS.max(2 * self.slots.len());
    }

    /// Arenas that were used up are in the order of opening no more. One that was opened again where another had been counts by
    /// its first place.
    fn sweep_order(&mut self) {
        if self.arena_order.len() > 2 * MAX_ARENAS {
            let mut seen = BTreeSet::new();
            self.arena_order.retain(|base| self.arenas.contains_key(base) && seen.insert(*base));
        }
    }

    /// Puts an arena's unused blocks back into the free tree. May stop half way with an error: what was put back is
    /// marked as used in the arena, so that it can be called again.
    fn close_arena(&mut self, hands: Hands<'_>, base: u64) -> Result<(), MapError> {
        let Some(arena) = self.arenas.get(&base) else { return Ok(()) };
        let hands = Hands { keep: hands.keep.max(hands.meta.lock().kept_from_commit()), ..hands };
        for (start, len) in arena.unused_runs() {
            self.put_run(hands, (base + start, len))?;
            let arena = self.arenas.get_mut(&base).expect("only this function closes arenas");
            (start..start + len).for_each(|i| arena.set(i));
            arena.cursor = arena.len;
            self.count_unused(base, -(len as i64));
        }
        self.arenas.remove(&base);
        self.weigh();
        Ok(())
    }

    fn close_arenas(&mut self, hands: Hands<'_>) -> Result<(), MapError> {
        let all: Vec<u64> = self.arenas.keys().copied().collect();
        for base in all {
            self.close_arena(hands, base)?;
        }
        self.arena_order.clear();
        self.slots.clear();
        self.current.clear();
        self.none_below = Default::default();
        self.no_extent_below = 0;
        Ok(())
    }

    /// A volume is gone: its slots are only weight.
    pub fn forget_volume(&mut self, volume: VolumeId) {
        self.current.remove(&volume);
        self.slots.retain(|(owner, ..), _| *owner != volume);
    }

    /// Contiguous space for a thick volume, in as few pieces as there can be: from the `places`, or from everywhere if there
    /// are none. All or nothing, settled as `Open`. `Err`: there are only so many blocks.
    pub fn alloc_large(
        &mut self,
        hands: Hands<'_>,
        blocks: u64,
        places: &[Range<u64>],
    ) -> Result<Result<Vec<Run>, u64>, MapError> {
        if blocks > self.available() {
            return Ok(Err(self.available()));
        }
        let mut out: Vec<Run> = Vec::new();
        let outcome = self.gather(hands, blocks, places, &mut out);
        if let Ok(true) = outcome {
            return Ok(Ok(out));
        }
        // Nobody saw these blocks: they go straight back.
        let found = out.iter().map(|(_, len)| len).sum();
        for run in out {
            if self.put_run(hands, run).is_err() {
                self.free_later(run);
            }
        }
        outcome.map(|_| Err(found))
    }

    /// False: there are not so many.
    fn gather(
        &mut self,
        hands: Hands<'_>,
        mut left: u64,
        places: &[Range<u64>],
        out: &mut Vec<Run>,
    ) -> Result<bool, MapError> {
        let mut min = left.min(u64::from(u32::MAX));
        while left > 0 {
            match self.search_places(hands, min.min(left), places)? {
                Some(e) => {
                    let run = (e.key, u64::from(e.len).min(left));
                    self.take_run(hands, run)?;
                    out.push(run);
                    left -= run.1;
                }
                None if min > 1 => min = (min / 2).max(1),
                None if self.arena_unused > 0 => self.close_arenas(hands)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// One contiguous, aligned-to-nothing run of `blocks`, for metadata and the journal; from `from` on if possible.
    pub fn alloc_contiguous(
        &mut self,
        hands: Hands<'_>,
        blocks: u64,
        from: u64,
        open: OpenArenas,
    ) -> Result<Option<Run>, AllocError> {
        if self.allocatable_blocks() < blocks {
            return Ok(None);
        }
        if open == OpenArenas::Stay {
            return self.alloc_ahead(hands, blocks, from);
        }
        if open == OpenArenas::Close && self.search(hands, blocks, from, &mut all_leaves())?.is_none() {
            match self.close_arenas(hands) {
                // Some are closed: that may do.
                Ok(()) | Err(MapError::NoSpace) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(e) = self.search(hands, blocks, from, &mut all_leaves())? else { return Ok(None) };
        let run = (e.key, blocks);
        self.take_run(hands, run)?;
        Ok(Some(run))
    }

    /// The same without need: nothing that is promised (S4), and nothing that has to be looked for. Where arenas are made of whole
    /// runs there are extents behind the last one; in what lies before it there may be millions of pieces.
    fn alloc_ahead(&mut self, hands: Hands<'_>, blocks: u64, from: u64) -> Result<Option<Run>, AllocError> {
        if self.available() < blocks || self.open_in_tree() < self.no_extent_below {
            return Ok(None);
        }
        let Some(e) = self.search_in(hands, blocks, from.max(self.search_from)..u64::MAX, &mut all_leaves())? else {
            if from <= self.search_from {
                // One that was taken with it goes back.
                self.no_extent_below = self.open_in_tree() + 2 * blocks;
            }
            return Ok(None);
        };
        let run = (e.key, blocks);
        self.take_run(hands, run)?;
        Ok(Some(run))
    }

    /// Marks blocks as used that recovery found in the journal: out of the free tree, or out of an arena.
    /// Blocks that are used already (the record was carried out in part before the checkpoint) stay so.
    /// What the checkpoint freed and is not free yet has them no more.
    pub fn mark_used(&mut self, hands: Hands<'_>, (start, len): Run) -> Result<(), MapError> {
        self.take_from_committing((start, len));
        let mut at = start;
        while at < start + len {
            if let Some((base, arena)) = self.arena_of(at) {
                let end = (start + len).min(base + arena.len);
                let mut taken = 0;
                for i in at - base..end - base {
                    if !arena.is_used(i) {
                        arena.set(i);
                        taken += 1;
                    }
                }
                at = end;
                self.count_unused(base, -taken);
                continue;
            }
            let next_arena = self.arenas.range(at..).next().map_or(u64::MAX, |(base, _)| *base);
            let end = (start + len).min(next_arena);
            let mut found = map::Extents::new();
            map::lookup(hands.cache, &self.free_tree, at, end, &mut found)?;
            for e in found {
                self.take_run(hands, (e.key, u64::from(e.len)))?;
            }
            at = end;
        }
        Ok(())
    }

    /// Opens an arena that a checkpoint kept. False: it overlaps another.
    pub fn restore_arena(&mut self, start: u64, len: u64, used: &[u8; 128]) -> bool {
        let mut words = [0u64; 16];
        for (i, byte) in used.iter().enumerate() {
            words[i / 8] |= u64::from(*byte) << (i % 8 * 8);
        }
        let unused = (0..len).filter(|i| words[(i / 64) as usize] >> (i % 64) & 1 == 0).count() as u64;
        let overlaps = self.arena_of(start).is_some() || self.arenas.range(start..start + len).next().is_some();
        let serial = self.serial();
        self.arenas.insert(start, Arena { serial, len, used: words, unused, cursor: len });
        self.arena_order.push_back(start);
        self.count_unused(start, unused as i64);
        self.weigh();
        !overlaps
    }

    /// Arenas as a checkpoint keeps them; blocks in `in_flight` (handed out, named by no finished record) count as
    /// unused. The second list has those whose arena is gone: to whoever opens the checkpoint they are free.
    pub fn arenas(&self, in_flight: &[Run]) -> (Vec<ArenaMeta>, Vec<Run>) {
        let mut kept: BTreeMap<u64, (u64, [u64; 16])> =
            self.arenas.iter().map(|(base, arena)| (*base, (arena.len, arena.used))).collect();
        let mut loose = Vec::new();
        for (start, len) in in_flight {
            let (mut at, end) = (*start, start + len);
            while at < end {
                let arena = kept.range_mut(..=at).next_back();
                if let Some((base, (len, used))) = arena.filter(|(base, (len, _))| at < **base + len) {
                    let stop = end.min(base + *len);
                    (at - base..stop - base).for_each(|i| used[(i / 64) as usize] &= !(1 << (i % 64)));
                    at = stop;
                    continue;
                }
                let next = kept.range(at..).next().map_or(u64::MAX, |(base, _)| *base);
                loose.push((at, end.min(next) - at));
                at = end.min(next);
            }
        }
        let bytes = |words: [u64; 16]| {
            let mut bytes = [0u8; 128];
            bytes.chunks_exact_mut(8).zip(words).for_each(|(b, w)| b.copy_from_slice(&w.to_le_bytes()));
            bytes
        };
        let arenas = kept.into_iter().map(|(start, (len, used))| ArenaMeta { start, len, used: bytes(used) });
        (arenas.collect(), loose)
    }

    #[cfg(feature = "planted")]
    /// Planted bug: each block in flight whose arena is gone is an arena of its own.
    pub fn arena_each(loose: &[Run]) -> Vec<ArenaMeta> {
        let blocks = loose.iter().flat_map(|(start, len)| *start..start + len);
        blocks.map(|start| ArenaMeta { start, len: 1, used: [0; 128] }).collect()
    }

    // ---- giving back ----------------------------------------------------------------------------------------

    /// Blocks that nothing uses any more; usable after the next checkpoint (S2).
    pub fn free_later(&mut self, run: Run) {
        self.pending_blocks += run.1;
        match self.pending.last_mut() {
            Some((start, len)) if *start + *len == run.0 => *len += run.1,
            _ => self.pending.push(run),
        }
        self.weigh();
    }

    /// Puts what waits to be freed in order and joins what touches: that is shorter in the stream, and neighbours are made usable
    /// together.
    pub fn tidy_pending(&mut self) {
        if !join_runs(&mut self.pending) {
            let run = self.pending.first().copied().unwrap_or_default();
            let _ = self.contradiction("S1", run, "or blocks behind them were freed twice");
        }
        self.packed = (packed_len(&self.committing) + packed_len(&self.pending), self.pending.len());
        self.weigh();
    }

    /// At a checkpoint's capture. Returns the runs that are free once it is durable.
    pub fn begin_commit(&mut self) -> Vec<Run> {
        debug_assert!(self.committing.is_empty(), "one checkpoint at a time");
        self.committing = std::mem::take(&mut self.pending);
        self.committing_blocks = std::mem::take(&mut self.pending_blocks);
        let (bytes, runs) = self.packed;
        self.packed = (bytes + self.committing.len().saturating_sub(runs) * RunRecord::SIZE, 0);
        self.committing.clone()
    }

    /// The checkpoint is durable: makes its freed blocks usable, some at a time. `Ok(true)`: done. Where there are too few metadata
    /// blocks for that, the rest can wait for another checkpoint ([`abort_commit`](Self::abort_commit)).
    pub fn finish_commit(&mut self, hands: Hands<'_>) -> Result<bool, MapError> {
        for _ in 0..COMMIT_STEP {
            let Some(run) = self.committing.last().copied() else { return Ok(true) };
            let len = self.put_back(hands, run)?;
            self.committing_blocks -= len;
            match self.committing.last_mut() {
                Some(last) if last.1 > len => *last = (last.0 + len, last.1 - len),
                _ => {
                    self.committing.pop();
                }
            }
            if self.committing.is_empty() {
                self.packed = (0, 0);
            }
            self.weigh();
        }
        Ok(self.committing.is_empty())
    }

    /// The checkpoint failed, or has no room for all of its blocks: they wait for the next.
    pub fn abort_commit(&mut self) {
        let mut committing = std::mem::take(&mut self.committing);
        self.pending.append(&mut committing);
        self.pending_blocks += std::mem::take(&mut self.committing_blocks);
        self.tidy_pending();
    }

    /// Puts the first part of a run where it belongs: into the arena or the free tree. Returns its length.
    fn put_back(&mut self, hands: Hands<'_>, (start, len): Run) -> Result<u64, MapError> {
        if let Some((base, arena)) = self.arena_of(start) {
            let part = len.min(base + arena.len - start);
            let within = start - base..start - base + part;
            if within.clone().any(|i| !arena.is_used(i)) {
                return Err(self.contradiction("S3", (start, part), "were free already"));
            }
            within.for_each(|i| arena.clear(i));
            self.count_unused(base, part as i64);
            return Ok(part);
        }
        let next_arena = self.arenas.range(start..).next().map_or(u64::MAX, |(base, _)| *base);
        let part = len.min(next_arena - start).min(self.pvs.end_of(start) - start).min(u64::from(u32::MAX));
        self.put_run(hands, (start, part))?;
        Ok(part)
    }

    /// Adds space that never was in use (a new physical volume, a new group).
    pub fn add_free(&mut self, hands: Hands<'_>, run: Run) -> Result<u64, MapError> {
        self.put_back(hands, run)
    }

    /// Where a free block would be: for `check`.
    pub fn arena_unused_runs(&self) -> Vec<Run> {
        let runs = |(base, arena): (&u64, &Arena)| {
            let base = *base;
            arena.unused_runs().into_iter().map(move |(start, len)| (base + start, len))
        };
        self.arenas.iter().flat_map(runs).collect()
    }

    /// Blocks that the checkpoint under way frees.
    pub fn committing(&self) -> &[Run] {
        &self.committing
    }

    /// Blocks freed but not usable yet: for `check`.
    pub fn pending_all(&self) -> Vec<Run> {
        self.pending.iter().chain(&self.committing).copied().collect()
    }
}

#[cfg(test)]
#[path = "space_test.rs"]
mod tests;
