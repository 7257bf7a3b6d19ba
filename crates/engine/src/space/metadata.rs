//! The metadata area: pairs of runs of blocks, each block kept twice, handed out node by node.
//!
//! * M1 A block that a checkpoint on the disk refers to is not given out again before the next checkpoint is durable:
//!   it waits in `pending`, then in `committing`.
//! * M2 A reserve stays for what gives space back when ordinary writes get no more nodes (promise P8); and apart from it, for nobody
//!   else, what the next checkpoint's stream takes, and the one after that. The stream on the disk gives its blocks back only when the
//!   next is durable: what it grows by is needed twice. So a change that makes the stream longer is let in only while there is room
//!   for that: a group whose checkpoint has no room could not be opened any more. Freed runs and arenas are counted as they
//!   come ([`StreamLoad`]). Whoever frees much asks for room before each part of it ([`MetaSpace::has_room_to_free`]).
//! * M3 A write that will change a map is let in only while there are blocks beyond the reserve for it and for those under way:
//!   once its record is written the map has to follow, also where that takes more than was thought and the reserve gives it.
//!   So is a discard, which may have the reserve: where snapshots share the nodes that it changes, it gives none of them back.
//! * M4 What is done for the sake of order in the free tree (arenas that are closed, what a checkpoint freed) leaves what M2 and M3
//!   need: else the checkpoint that would give metadata back could not be made.
//! * M5 Metadata grows by whole extents while there are such: by the time all free space is in arenas and in pieces
//!   it should have a node for every few of those blocks, which is what mapping them one by one takes. What was in pieces before the
//!   group was opened is not known. This takes 3 % of free space at the most.
//! * M9 Where no whole extent is free, metadata grows by shorter runs when it has to, down to single blocks. They are taken
//!   from a few leaves of the free tree, so that the nodes which that changes are fewer than the blocks that it gives, and
//!   only while what is kept for the checkpoint stays. A run takes 24 bytes of the stream, a 168th of what it holds at least.

//! * M6 A look at the last checkpoint ([`begin_look`](MetaSpace::begin_look)) keeps what that checkpoint refers to from being given
//!   out again, while further ones are taken. It ends when metadata would run short by that: the group's own work goes first.
//!   Metadata grows before a look begins, where the group has space ([`is_short_for_look`](MetaSpace::is_short_for_look)).

//! * M7 A write error of one of two copies harms nobody: the block lives on the other copy, `check` tells it, and `repair` and whoever
//!   meets it write the bad copy again. Once it is free it is not given out again while the group is open.

//! * M8 A bad copy is written anew only while nothing else writes metadata: beside that, its block might be another node's by then.

use super::Run;
use crate::error::{Error, Result};
use crate::format::node::CAPACITY;
use crate::format::stream::{INDEX_ENTRIES, PAGE_PAYLOAD, PairRecord, RunRecord};
use crate::map::{NodeCache, NodeRef};
use crate::planted;
use crate::units::{MetaBlock, VgBlock};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks in each copy of a new group's metadata area, and by which it grows: the reserve (M2) needs some, however small an
/// extent is.
pub const LEAST_METADATA: u64 = 256;

/// What is kept back for removal, discards and the free tree, at the least.
const LEAST_RESERVE: u64 = 32;

/// Blocks beyond the reserve with which a write is let in (M3): one that splits nodes on every level...
pub const NODES_FOR_WRITE: u64 = 16;
/// ... and so many for each other write under way: its leaf, and its part of the path above.
const NODES_UNDER_WAY: u64 = 2;

/// Runs that one part of a removal, discard or reduction frees at the most: what lies in a few leaves.
pub const RUNS_TOGETHER: usize = 1024;
/// Blocks for nodes that such a part takes, and with which what it freed can be made usable again.
const NODES_TO_FREE: u64 = 8;
/// Blocks for what replay changes in memory alone: more than a journal of the largest size can ask for.
const LENT_BLOCKS: u64 = 4 << 20;
/// Blocks of a stream beside its pages and their index: what is not counted for a moment.
const STREAM_SPARE: u64 = 5;

/// What a pair takes of the stream: its places and its length.
const PAIR_BYTES: u64 = PairRecord::SIZE as u64 + 8;

/// M5: one for so many free blocks in arenas and pieces. Of slots of 16 blocks that are written at random, up to a third of the
/// blocks is an extent of the map or a piece of the free tree, 84 to 168 of which are in a node; checkpoints copy each once.
const BLOCKS_FOR_NODE: u64 = 64;

/// M6: one in so many blocks stays free beyond the reserve while looks keep blocks.
const LOOKS_LEAVE: u64 = 8;
/// M7: one in so many blocks is kept back at most.
const SHUNNED_AT_MOST: u64 = 32;

/// Whether there are metadata blocks for one more write (M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Some,
    /// When those under way have what they need.
    Taken,
    None,
}

/// Bytes of the next checkpoint's stream that come and go with what is freed and with arenas. [`Space`](super::Space) tells it, and
/// [`MetaSpace`] keeps blocks for it.
#[derive(Clone, Default)]
pub struct StreamLoad(Arc<AtomicU64>);

impl StreamLoad {
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Blocks that a stream of so many bytes takes.
fn stream_blocks(bytes: u64) -> u64 {
    let pages = bytes.div_ceil(PAGE_PAYLOAD as u64);
    pages + pages.div_ceil(INDEX_ENTRIES as u64)
}

/// Blocks that freeing so many runs takes of the next two streams (M2).
pub fn blocks_for_runs(runs: usize) -> u64 {
    2 * stream_blocks((runs * RunRecord::SIZE) as u64)
}

/// Two runs of VG blocks that hold both copies of some metadata blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The first VG block of each copy.
    pub copies: [u64; 2],
    /// Blocks in each copy.
    pub blocks: u64,
    /// The number of the first of these metadata blocks.
    first: u64,
}

impl Pair {
    /// The two runs.
    pub fn runs(&self) -> [Run; 2] {
        self.copies.map(|start| (start, self.blocks))
    }
}

pub struct MetaSpace {
    pairs: Vec<Pair>,
    /// Blocks in each copy of a pair of extents.
    extent_blocks: u64,
    /// Blocks in each copy of all pairs.
    total: u64,
    used: Vec<u64>,
    free: u64,
    next: u64,
    pending: Vec<MetaBlock>,
    committing: Vec<MetaBlock>,
    /// Bytes of the next checkpoint's stream beside what `load` says, as they were last estimated. None: no checkpoint can be due...
    stream_bytes: Option<u64>,
    /// ... and the bytes that changes have added to it since.
    added_bytes: u64,
    load: StreamLoad,
    /// Blocks of the last checkpoint's stream.
    stream_in_use: u64,
    /// Numbers behind those of the area: see [`lend`](Self::lend).
    lent: u64,
    /// Writes under way that will change a map (M3).
    writes: u64,
    /// Blocks that discards under way may need (M3).
    unmapping: u64,
    /// Looks under way that were not ended early, and how often those under way were (M6).
    looks: u32,
    looks_ended: u64,
    /// Free but for a look.
    held: Vec<MetaBlock>,
    /// Blocks of which a copy could not be written, and those of them that are free but for that (M7).
    shunned: BTreeSet<MetaBlock>,
    idle: Vec<MetaBlock>,
    /// A block that was given back twice: trees that share a node and both call it their own.
    twice: Option<MetaBlock>,
}

impl MetaSpace {
    /// `lengths`: the blocks in each copy of each pair; empty if each has an extent.
    pub fn new(pairs: &[[u64; 2]], lengths: &[u64], extent_blocks: u64) -> Self {
        let mut meta = Self::empty(extent_blocks);
        for (n, copies) in pairs.iter().enumerate() {
            meta.add_pair(*copies, lengths.get(n).copied().unwrap_or(extent_blocks));
        }
        meta.added_bytes = 0;
        meta
    }

    fn empty(extent_blocks: u64) -> Self {
        MetaSpace {
            pairs: Vec::new(),
            extent_blocks,
            total: 0,
            used: Vec::new(),
            free: 0,
            next: 0,
            pending: Vec::new(),
            committing: Vec::new(),
            stream_bytes: None,
            added_bytes: 0,
            load: StreamLoad::default(),
            stream_in_use: 0,
            lent: 0,
            writes: 0,
            unmapping: 0,
            looks: 0,
            looks_ended: 0,
            held: Vec::new(),
            shunned: BTreeSet::new(),
            idle: Vec::new(),
            twice: None,
        }
    }

    /// The same with the blocks in use that a checkpoint's bitmap names. False: the bitmap does not fit.
    pub fn load_bitmap(&mut self, bitmap: &[u8]) -> bool {
        let total = self.total();
        if bitmap.len() as u64 != self.bitmap_bytes() {
            return false;
        }
        for (i, byte) in bitmap.iter().enumerate() {
            self.used[i / 8] |= u64::from(*byte) << (i % 8 * 8);
        }
        let used: u64 = self.used.iter().map(|word| u64::from(word.count_ones())).sum();
        let past_end = (total..self.used.len() as u64 * 64).any(|n| self.used[(n / 64) as usize] >> (n % 64) & 1 == 1);
        self.free = total.saturating_sub(used);
        !past_end
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// For a group that is opened to be looked at: what replay changes stays in memory, and has numbers of which none is on the disk.
    pub fn lend(&mut self) {
        self.lent = LENT_BLOCKS;
        self.used.resize((self.total() + self.lent).div_ceil(64) as usize, 0);
        self.free += self.lent;
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    pub fn used(&self) -> u64 {
        self.total() + self.lent - self.free
    }

    /// Blocks that come back with the next checkpoint or the one under way.
    pub fn pending(&self) -> u64 {
        (self.pending.len() + self.committing.len()) as u64
    }

    /// The blocks that [`pending`](Self::pending) counts.
    pub fn pending_blocks(&self) -> impl Iterator<Item = MetaBlock> + '_ {
        self.pending.iter().chain(&self.committing).copied()
    }

    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The pairs as a checkpoint's stream names them, and their lengths, if any is not an extent's.
    pub fn recorded_pairs(&self) -> (Vec<[u64; 2]>, Vec<u64>) {
        let lengths = self.pairs.iter().map(|pair| pair.blocks);
        let is_whole = lengths.clone().all(|blocks| blocks == self.extent_blocks);
        let lengths = if is_whole { Vec::new() } else { lengths.collect() };
        (self.pairs.iter().map(|pair| pair.copies).collect(), lengths)
    }

    /// What the pairs and the bitmap take of the stream.
    pub fn area_bytes(&self) -> u64 {
        self.pairs.len() as u64 * PAIR_BYTES + self.bitmap_bytes()
    }

    /// Where the last pair ends that has a copy in this range: what lies behind it was not looked at yet for more.
    pub fn last_end_in(&self, range: &Range<u64>) -> Option<u64> {
        let ends =
            |pair: &Pair| pair.runs().into_iter().find(|(start, _)| range.contains(start)).map(|(at, len)| at + len);
        self.pairs.iter().rev().find_map(ends)
    }

    /// A pair of runs is taken out of free space: until it is part of the area the stream names the runs as free.
    pub fn expect_pair(&mut self) {
        self.added_bytes += PAIR_BYTES + 2 * RunRecord::SIZE as u64;
    }

    /// Blocks kept back from ordinary writers (M2).
    pub fn reserve(&self) -> u64 {
        (self.total() / 8).clamp(LEAST_RESERVE, 1024) + self.kept_for_checkpoint()
    }

    /// Where the bytes are told that come and go.
    pub fn set_load(&mut self, load: StreamLoad) {
        self.load = load;
    }

    /// Blocks that the next checkpoint's stream may take.
    pub fn next_stream(&self) -> u64 {
        let bytes = |bytes| bytes + self.added_bytes + self.load.bytes();
        self.stream_bytes.map_or(0, |known| stream_blocks(bytes(known)) + STREAM_SPARE)
    }

    /// Blocks kept back from everybody but checkpoints themselves (M2).
    fn kept_for_checkpoint(&self) -> u64 {
        let next = self.next_stream();
        next + next.saturating_sub(self.stream_in_use)
    }

    /// Whether so many more runs may be freed (M2): the checkpoint that names them has room, and can make some of them usable.
    pub fn has_room_to_free(&self, runs: usize) -> bool {
        self.free >= self.kept_from_commit() + blocks_for_runs(runs) + NODES_TO_FREE
    }

    /// Free blocks that are not kept for checkpoints.
    pub fn slack(&self) -> u64 {
        self.free.saturating_sub(self.kept_for_checkpoint())
    }

    /// Whether the next checkpoint has room at least, after one more leaf of a dying tree.
    pub fn has_least_room_to_free(&self) -> bool {
        self.free >= self.next_stream() + stream_blocks((CAPACITY * RunRecord::SIZE) as u64)
    }

    pub fn free_beyond_reserve(&self) -> u64 {
        self.free.saturating_sub(self.reserve())
    }

    /// What a checkpoint's stream may take beside what comes and goes: kept back as well, so that there can always be a next one.
    pub fn keep_for_stream(&mut self, bytes: u64) {
        self.stream_bytes = Some(bytes);
        self.added_bytes = 0;
    }

    /// The last checkpoint's stream has so many blocks.
    pub fn stream_has(&mut self, blocks: u64) {
        self.stream_in_use = blocks;
    }

    /// Lets a change in that makes the stream longer by so many bytes, if there is room (M2): then they are kept for it.
    pub fn admit_change(&mut self, bytes: u64) -> bool {
        self.added_bytes += bytes;
        let is_in = self.free >= self.kept_for_checkpoint() + LEAST_RESERVE;
        if !is_in {
            self.added_bytes -= bytes;
        }
        is_in
    }

    pub fn add_pair(&mut self, copies: [u64; 2], blocks: u64) {
        self.pairs.push(Pair { copies, blocks, first: self.total });
        self.total += blocks;
        self.used.resize(self.total.div_ceil(64) as usize, 0);
        self.free += blocks;
        self.added_bytes += blocks.div_ceil(8);
    }

    /// The copies of pairs of which blocks lie within these VG blocks: pair, which copy, and where.
    pub fn copies_in(&self, ranges: &[Range<u64>]) -> Vec<(usize, usize, u64)> {
        let of_pair = |(n, pair): (usize, &Pair)| [0, 1].map(|copy| (n, copy, pair.copies[copy], pair.blocks));
        let copies = self.pairs.iter().enumerate().flat_map(of_pair);
        let touches = |place: u64, len: u64| ranges.iter().any(|range| range.start < place + len && place < range.end);
        copies.filter(|(_, _, place, len)| touches(*place, *len)).map(|(n, copy, place, _)| (n, copy, place)).collect()
    }

    /// One copy of a pair lies elsewhere from now on; its blocks were copied.
    pub fn move_copy(&mut self, pair: usize, copy: usize, to: u64) {
        self.pairs[pair].copies[copy] = to;
        self.end_looks();
    }

    /// Begins to keep what the last checkpoint refers to (M6), until [`look_done`](Self::look_done). What is returned tells whether
    /// it [`is_kept`](Self::is_kept).
    pub fn begin_look(&mut self) -> u64 {
        self.looks += 1;
        self.looks_ended
    }

    pub fn is_kept(&self, look: u64) -> bool {
        look == self.looks_ended
    }

    /// Whether a look keeps blocks: what can wait does.
    pub fn has_looks(&self) -> bool {
        self.looks > 0
    }

    /// This look is over.
    pub fn look_done(&mut self, look: u64) {
        if self.is_kept(look) {
            self.looks -= 1;
        }
        if self.looks == 0 {
            self.give_back_held();
        }
    }

    /// Ends the looks under way early: what they keep is needed.
    pub fn end_looks(&mut self) {
        if self.looks > 0 {
            self.looks = 0;
            self.looks_ended += 1;
            self.give_back_held();
        }
    }

    fn give_back_held(&mut self) {
        std::mem::take(&mut self.held).into_iter().for_each(|block| self.give_back(block));
    }

    /// Whether this many nodes can be had by an ordinary or by a privileged writer.
    pub fn can_alloc(&self, nodes: u64, privileged: bool) -> bool {
        self.free >= nodes + if privileged { self.kept_for_checkpoint() } else { self.reserve() }
    }

    /// Whether this many blocks are free, for whom they are kept or who leaves what is kept himself.
    pub fn can_take(&self, blocks: u64) -> bool {
        self.free >= blocks
    }

    /// What M3 needs: for the writes under way, and to let another one in.
    fn needed_by_writes(&self) -> u64 {
        let writes = if planted::is("writes_uncounted") { 0 } else { self.writes };
        NODES_FOR_WRITE + writes * NODES_UNDER_WAY + self.unmapping
    }

    /// What closing an arena leaves (M4).
    pub fn kept_from_arenas(&self) -> u64 {
        self.reserve() + self.needed_by_writes()
    }

    /// What making freed blocks usable leaves (M4): the reserve is for that, too, but a discard must find something.
    pub fn kept_from_commit(&self) -> u64 {
        self.kept_for_checkpoint() + self.needed_by_writes()
    }

    /// What growth out of pieces leaves (M9).
    pub fn kept_from_growth(&self) -> u64 {
        self.kept_for_checkpoint()
    }

    /// Whether this many free blocks could be mapped one by one (M5).
    pub fn is_enough_for(&self, blocks: u64) -> bool {
        planted::is("grown_too_late")
            || self.free + self.pending() >= self.kept_from_arenas() + blocks / BLOCKS_FOR_NODE
    }

    /// M3
    pub fn room_for_write(&self) -> Room {
        match self.free_beyond_reserve() {
            free if free >= self.needed_by_writes() => Room::Some,
            free if free >= NODES_FOR_WRITE => Room::Taken,
            _ => Room::None,
        }
    }

    /// Lets a write in that will change a map, if there is room; it ends with [`write_done`](Self::write_done).
    pub fn admit_write(&mut self) -> bool {
        let is_in = self.room_for_write() == Room::Some;
        self.writes += u64::from(is_in);
        is_in
    }

    /// A write that was let in has changed its map, or never will.
    pub fn write_done(&mut self) {
        self.writes -= 1;
    }

    /// Lets a discard in that takes so many blocks at the most, which may be of the reserve: it gives space back. It ends with
    /// [`unmap_done`](Self::unmap_done). `Room::None`: others under way have nothing that it could wait for.
    pub fn admit_unmap(&mut self, blocks: u64) -> Room {
        let others = self.writes * NODES_UNDER_WAY + self.unmapping;
        if self.free >= self.kept_for_checkpoint() + others + blocks {
            self.unmapping += blocks;
            return Room::Some;
        }
        if self.free >= self.kept_for_checkpoint() + blocks { Room::Taken } else { Room::None }
    }

    /// A discard that was let in has changed its map, or never will.
    pub fn unmap_done(&mut self, blocks: u64) {
        self.unmapping -= blocks;
    }

    /// A free block. The caller made sure that there is one.
    pub fn alloc(&mut self) -> MetaBlock {
        let words = self.used.len();
        let total = self.total() + self.lent;
        for i in 0..=words {
            let word = (self.next / 64) as usize % words;
            let mask = if i == 0 { !0u64 << (self.next % 64) } else { !0 };
            let candidates = !self.used[word] & mask;
            let bit = word as u64 * 64 + u64::from(candidates.trailing_zeros());
            if candidates != 0 && bit < total {
                self.used[word] |= 1 << (bit % 64);
                self.free -= 1;
                self.next = (bit + 1) % total;
                return MetaBlock(bit);
            }
            self.next = (word as u64 + 1) % words as u64 * 64;
        }
        unreachable!("alloc is called only after can_alloc said yes");
    }

    /// A node that its tree does not use any more. One that never was part of a checkpoint is free at once.
    pub fn release(&mut self, node: NodeRef, generation: u64, cache: &NodeCache) {
        if node.generation == generation {
            cache.forget(node.addr);
            self.give_back(node.addr);
        } else {
            self.pending.push(node.addr);
        }
    }

    /// Blocks of the previous checkpoint's stream.
    pub fn release_later(&mut self, blocks: impl IntoIterator<Item = MetaBlock>) {
        self.pending.extend(blocks);
    }

    /// A copy of this block could not be written (M7). Of a disk that fails everywhere the group does not keep all places back.
    pub fn shun(&mut self, block: MetaBlock) {
        if (self.shunned.len() as u64) < self.total() / SHUNNED_AT_MOST {
            self.shunned.insert(block);
        }
    }

    fn give_back(&mut self, block: MetaBlock) {
        if !self.is_used(block) || self.idle.contains(&block) {
            self.twice = self.twice.or(Some(block));
            return;
        }
        if self.shunned.contains(&block) {
            self.idle.push(block);
            return;
        }
        let (word, bit) = ((block.0 / 64) as usize, block.0 % 64);
        self.used[word] &= !(1 << bit);
        self.free += 1;
    }

    /// An error when trees contradicted each other: no checkpoint may be made of that.
    pub fn sound(&self) -> Result<()> {
        match self.twice {
            None => Ok(()),
            Some(block) => Err(Error::Corrupt {
                what: "metadata area",
                place: format!("metadata block {block}"),
                detail: "two trees gave it back: both call it their own".into(),
            }),
        }
    }

    /// At a checkpoint's capture: what is pending now is free once that checkpoint is durable.
    pub fn begin_commit(&mut self) {
        debug_assert!(self.committing.is_empty(), "one checkpoint at a time");
        self.committing = std::mem::take(&mut self.pending);
    }

    /// The checkpoint is durable.
    pub fn finish_commit(&mut self, cache: &NodeCache) {
        for block in std::mem::take(&mut self.committing) {
            cache.forget(block);
            match self.looks {
                0 => self.give_back(block),
                _ => self.held.push(block),
            }
        }
        if self.free_beyond_reserve() < self.total() / LOOKS_LEAVE {
            self.end_looks();
        }
    }

    /// Whether a look that began now would soon be ended: less is free than twice what it has to leave.
    pub fn is_short_for_look(&self) -> bool {
        self.free_beyond_reserve() < 2 * self.total() / LOOKS_LEAVE
    }

    /// Whether looks keep so much that metadata should grow for them.
    pub fn is_crowded_by_looks(&self) -> bool {
        self.looks > 0 && self.free_beyond_reserve() < self.total() / 2
    }

    /// The checkpoint failed: its blocks wait for the next.
    pub fn abort_commit(&mut self) {
        let mut committing = std::mem::take(&mut self.committing);
        self.pending.append(&mut committing);
    }

    pub fn bitmap_bytes(&self) -> u64 {
        self.total().div_ceil(8)
    }

    /// Blocks in use as the checkpoint under way must record them: without what it frees.
    pub fn bitmap(&self) -> Vec<u8> {
        let mut used = self.used.clone();
        for block in self.committing.iter().chain(&self.held).chain(&self.idle) {
            used[(block.0 / 64) as usize] &= !(1 << (block.0 % 64));
        }
        let mut bytes: Vec<u8> = used.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.bitmap_bytes() as usize);
        bytes
    }

    /// The VG blocks of a metadata block's two copies; `None` when there is no such block.
    pub fn locate(&self, block: MetaBlock) -> Option<[VgBlock; 2]> {
        let index = self.pairs.partition_point(|pair| pair.first <= block.0).checked_sub(1)?;
        let pair = self.pairs[index];
        let offset = block.0 - pair.first;
        (offset < pair.blocks).then(|| pair.copies.map(|start| VgBlock(start + offset)))
    }

    /// The metadata block whose first copy lies at this VG block.
    pub fn block_at(&self, place: VgBlock) -> Option<MetaBlock> {
        let inside = |pair: &&Pair| pair.copies[0] <= place.0 && place.0 < pair.copies[0] + pair.blocks;
        let pair = self.pairs.iter().find(inside)?;
        Some(MetaBlock(pair.first + place.0 - pair.copies[0]))
    }

    /// Whether the block is marked as used, for `check`.
    pub fn is_used(&self, block: MetaBlock) -> bool {
        self.used.get((block.0 / 64) as usize).is_some_and(|word| word >> (block.0 % 64) & 1 == 1)
    }
}
