//! The metadata area: pairs of runs of blocks. Each block has two copies. Nodes are allocated block by block.
//!
//! * M1 A block that the durable checkpoint refers to is not allocated again before the next checkpoint is durable. It
//!   waits in `pending`, then in `committing`.
//! * M2 There are two reserves. One is for work that frees space, when ordinary writes get no more nodes (promise P8).
//!   The other is for the streams of the next two checkpoints only. The stream on the disk frees its blocks only when
//!   the next one is durable, so its growth is needed twice. A change that makes the stream longer is admitted only
//!   while there is room for that: a group whose checkpoint has no room could not be opened again. Freed runs and
//!   arenas count as soon as they exist ([`StreamLoad`]). A large free asks for room before each of its parts
//!   ([`MetaSpace::has_room_to_free`]).
//! * M3 A write that will change a map is admitted only while there are blocks beyond the reserve for it and for the
//!   writes in flight. Once its record is written, the map must follow, even if it needs more blocks than expected and
//!   takes them from the reserve. The same holds for a discard, which may use the reserve: if snapshots share the nodes
//!   that it changes, it frees none of them.
//! * M4 Changes of the free tree that could wait (closing arenas, freed blocks becoming usable) leave the blocks that M2
//!   and M3 need. Otherwise the checkpoint that frees metadata could not be taken.
//! * M5 Metadata grows by whole extents while any are free. If all free space is in arenas and in short pieces, each
//!   few of these blocks need a node, because mapping them one by one takes that many. Pieces from before the opening
//!   are not counted. This takes at most 3 % of free space.
//! * M9 If no whole extent is free, metadata grows on demand by shorter runs, down to single blocks. They come from a
//!   few leaves of the free tree, so that it gains more blocks than the changed nodes take. The checkpoint's reserve
//!   must stay. A run takes 24 bytes of the stream, at most a 168th of its size.

//! * M6 A check pins the blocks of the last checkpoint ([`pin_checkpoint`](MetaSpace::pin_checkpoint)) while later
//!   checkpoints are taken. The pin is dropped when metadata would run short because of it: the group's own work has
//!   priority. The check then ends. Metadata grows before a checkpoint is pinned, if the group has space
//!   ([`is_short_for_pin`](MetaSpace::is_short_for_pin)).

//! * M7 A write error of one of two copies fails no request: the other copy is used, `check` reports the bad one, and
//!   `repair` or the next reader causes it to be written again. When such a block becomes free, it is not allocated
//!   again while the group is open.

//! * M8 A bad copy is rewritten only while nothing else writes metadata. Otherwise its block might already belong to
//!   another node.

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

/// Blocks in each copy of a new group's metadata area, and the least growth: the reserve (M2) needs some blocks, even
/// if extents are small.
pub const MIN_METADATA: u64 = 256;

/// The least reserve for removal, discards and the free tree.
const MIN_RESERVE: u64 = 32;

/// Blocks beyond the reserve with which a write is admitted (M3): enough to split nodes on every level...
pub const NODES_FOR_WRITE: u64 = 16;
/// ... and this many for each other write in flight: its leaf, and its part of the path above.
const NODES_IN_FLIGHT: u64 = 2;

/// The most runs that one part of a removal, discard or reduction frees: the runs of a few leaves.
pub const RUNS_TOGETHER: usize = 1024;
/// Blocks for nodes that such a part takes, and that are needed to make its freed blocks usable.
const NODES_TO_FREE: u64 = 8;
/// Blocks for a replay in memory only: more than the largest journal can need.
const REPLAY_BLOCKS: u64 = 4 << 20;
/// Extra blocks of a stream beyond its pages and index, for bytes that are briefly not counted.
const STREAM_SPARE: u64 = 5;

/// What a pair takes of the stream: its places and its length.
const PAIR_BYTES: u64 = PairRecord::SIZE as u64 + 8;

/// M5: one node for this many free blocks in arenas and pieces. Random writes to slots of 16 blocks turn up to a third
/// of the blocks into extents of the map or pieces of the free tree. A node has 84 to 168 of these, and checkpoints
/// copy each node once.
const BLOCKS_FOR_NODE: u64 = 64;

/// M6: while checks pin blocks, one in this many blocks stays free beyond the reserve.
const PINS_LEAVE: u64 = 8;
/// M7: at most one in this many blocks is withheld.
const WITHHELD_AT_MOST: u64 = 32;

/// Whether there are metadata blocks for one more write (M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Granted,
    /// Not now: writes in flight hold the blocks.
    Busy,
    Refused,
}

/// Bytes of the next checkpoint's stream for freed runs and arenas. [`Space`](super::Space) reports them, and
/// [`MetaSpace`] reserves blocks for them.
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

/// Blocks that a stream of this many bytes takes.
fn stream_blocks(bytes: u64) -> u64 {
    let pages = bytes.div_ceil(PAGE_PAYLOAD as u64);
    pages + pages.div_ceil(INDEX_ENTRIES as u64)
}

/// Blocks of the next two streams that freeing this many runs takes (M2).
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
    /// Bytes of the next checkpoint's stream without `load`, as last estimated. None: no checkpoint can be due...
    stream_bytes: Option<u64>,
    /// ... and the bytes that changes have added to it since.
    added_bytes: u64,
    load: StreamLoad,
    /// Blocks of the last checkpoint's stream.
    stream_in_use: u64,
    /// Block numbers beyond the area, for replay: see [`add_replay_blocks`](Self::add_replay_blocks).
    replay_blocks: u64,
    /// Writes in flight that will change a map (M3).
    writes: u64,
    /// Blocks that discards in flight may need (M3).
    unmapping: u64,
    /// Pins that were not dropped early, and how often pins were dropped early (M6).
    pins: u32,
    pins_dropped: u64,
    /// Free, but pinned by a check.
    pinned: Vec<MetaBlock>,
    /// Blocks of which a copy could not be written, and those of them that would be free otherwise (M7).
    withheld: BTreeSet<MetaBlock>,
    idle: Vec<MetaBlock>,
    /// A block that was freed twice: two trees share a node, and both own it.
    double_free: Option<MetaBlock>,
}

impl MetaSpace {
    /// `lengths`: the blocks in each copy of each pair; empty if every copy has one extent.
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
            replay_blocks: 0,
            writes: 0,
            unmapping: 0,
            pins: 0,
            pins_dropped: 0,
            pinned: Vec::new(),
            withheld: BTreeSet::new(),
            idle: Vec::new(),
            double_free: None,
        }
    }

    /// Takes the blocks in use from a checkpoint's bitmap. False: the bitmap does not fit.
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

    /// For a group that is opened read-only: changes by replay stay in memory, and get block numbers that do not exist
    /// on the disk.
    pub fn add_replay_blocks(&mut self) {
        self.replay_blocks = REPLAY_BLOCKS;
        self.used.resize((self.total() + self.replay_blocks).div_ceil(64) as usize, 0);
        self.free += self.replay_blocks;
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    pub fn used(&self) -> u64 {
        self.total() + self.replay_blocks - self.free
    }

    /// Blocks that the running or the next checkpoint frees.
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

    /// The pairs as a checkpoint's stream names them, and their lengths, if any differs from an extent's.
    pub fn recorded_pairs(&self) -> (Vec<[u64; 2]>, Vec<u64>) {
        let lengths = self.pairs.iter().map(|pair| pair.blocks);
        let is_whole = lengths.clone().all(|blocks| blocks == self.extent_blocks);
        let lengths = if is_whole { Vec::new() } else { lengths.collect() };
        (self.pairs.iter().map(|pair| pair.copies).collect(), lengths)
    }

    /// Bytes of the stream for the pairs and the bitmap.
    pub fn area_bytes(&self) -> u64 {
        self.pairs.len() as u64 * PAIR_BYTES + self.bitmap_bytes()
    }

    /// The end of the last pair that has a copy in this range. The space behind it was not searched yet.
    pub fn last_end_in(&self, range: &Range<u64>) -> Option<u64> {
        let ends =
            |pair: &Pair| pair.runs().into_iter().find(|(start, _)| range.contains(start)).map(|(at, len)| at + len);
        self.pairs.iter().rev().find_map(ends)
    }

    /// A pair of runs is taken out of free space. Until it is part of the area, the stream names the runs as free.
    pub fn reserve_for_pair(&mut self) {
        self.added_bytes += PAIR_BYTES + 2 * RunRecord::SIZE as u64;
    }

    /// Blocks withheld from ordinary writers (M2).
    pub fn reserve(&self) -> u64 {
        (self.total() / 8).clamp(MIN_RESERVE, 1024) + self.reserved_for_checkpoint()
    }

    /// Sets the source of the changing byte count.
    pub fn set_load(&mut self, load: StreamLoad) {
        self.load = load;
    }

    /// Blocks that the next checkpoint's stream may take.
    pub fn next_stream(&self) -> u64 {
        let bytes = |bytes| bytes + self.added_bytes + self.load.bytes();
        self.stream_bytes.map_or(0, |known| stream_blocks(bytes(known)) + STREAM_SPARE)
    }

    /// Blocks that only checkpoints may use (M2).
    fn reserved_for_checkpoint(&self) -> u64 {
        let next = self.next_stream();
        next + next.saturating_sub(self.stream_in_use)
    }

    /// Whether this many more runs may be freed (M2): the checkpoint that names them has room, and can make some of
    /// them usable.
    pub fn has_room_to_free(&self, runs: usize) -> bool {
        self.free >= self.reserved_from_commit() + blocks_for_runs(runs) + NODES_TO_FREE
    }

    /// Free blocks that are not reserved for checkpoints.
    pub fn slack(&self) -> u64 {
        self.free.saturating_sub(self.reserved_for_checkpoint())
    }

    /// Whether the next checkpoint has room at least, after one more leaf of a dying tree.
    pub fn has_least_room_to_free(&self) -> bool {
        self.free >= self.next_stream() + stream_blocks((CAPACITY * RunRecord::SIZE) as u64)
    }

    pub fn free_beyond_reserve(&self) -> u64 {
        self.free.saturating_sub(self.reserve())
    }

    /// Sets the bytes of a checkpoint's stream without freed runs and arenas. They are reserved, too, so that a next
    /// checkpoint is always possible.
    pub fn set_stream_bytes(&mut self, bytes: u64) {
        self.stream_bytes = Some(bytes);
        self.added_bytes = 0;
    }

    /// The last checkpoint's stream has this many blocks.
    pub fn set_stream_in_use(&mut self, blocks: u64) {
        self.stream_in_use = blocks;
    }

    /// Admits a change that makes the stream longer by this many bytes, if there is room (M2), and reserves them.
    pub fn admit_change(&mut self, bytes: u64) -> bool {
        self.added_bytes += bytes;
        let is_in = self.free >= self.reserved_for_checkpoint() + MIN_RESERVE;
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

    /// The copies of pairs that have blocks in these ranges of VG blocks: pair, copy, and place.
    pub fn copies_in(&self, ranges: &[Range<u64>]) -> Vec<(usize, usize, u64)> {
        let of_pair = |(n, pair): (usize, &Pair)| [0, 1].map(|copy| (n, copy, pair.copies[copy], pair.blocks));
        let copies = self.pairs.iter().enumerate().flat_map(of_pair);
        let touches = |place: u64, len: u64| ranges.iter().any(|range| range.start < place + len && place < range.end);
        copies.filter(|(_, _, place, len)| touches(*place, *len)).map(|(n, copy, place, _)| (n, copy, place)).collect()
    }

    /// One copy of a pair moves to another place; its blocks were copied.
    pub fn move_copy(&mut self, pair: usize, copy: usize, to: u64) {
        self.pairs[pair].copies[copy] = to;
        self.drop_pins();
    }

    /// Pins the blocks of the last checkpoint (M6), until [`unpin_checkpoint`](Self::unpin_checkpoint). Pass the
    /// returned number to [`is_pinned`](Self::is_pinned) to see whether the pin was dropped.
    pub fn pin_checkpoint(&mut self) -> u64 {
        self.pins += 1;
        self.pins_dropped
    }

    pub fn is_pinned(&self, pin: u64) -> bool {
        pin == self.pins_dropped
    }

    /// Whether a check pins blocks. Work that can wait then waits.
    pub fn has_pins(&self) -> bool {
        self.pins > 0
    }

    /// The check that pinned the blocks is over.
    pub fn unpin_checkpoint(&mut self, pin: u64) {
        if self.is_pinned(pin) {
            self.pins -= 1;
        }
        if self.pins == 0 {
            self.free_pinned();
        }
    }

    /// Drops all pins early: the pinned blocks are needed.
    pub fn drop_pins(&mut self) {
        if self.pins > 0 {
            self.pins = 0;
            self.pins_dropped += 1;
            self.free_pinned();
        }
    }

    fn free_pinned(&mut self) {
        std::mem::take(&mut self.pinned).into_iter().for_each(|block| self.free_block(block));
    }

    /// Whether an ordinary or a privileged writer can get this many nodes.
    pub fn can_alloc(&self, nodes: u64, privileged: bool) -> bool {
        self.free >= nodes + if privileged { self.reserved_for_checkpoint() } else { self.reserve() }
    }

    /// Whether this many blocks are free. The caller owns the reserves or leaves them alone.
    pub fn can_take(&self, blocks: u64) -> bool {
        self.free >= blocks
    }

    /// Blocks that M3 needs: for the writes in flight, and to admit another one.
    fn needed_by_writes(&self) -> u64 {
        let writes = if planted::is("writes_uncounted") { 0 } else { self.writes };
        NODES_FOR_WRITE + writes * NODES_IN_FLIGHT + self.unmapping
    }

    /// Blocks that closing an arena must leave (M4).
    pub fn reserved_from_arenas(&self) -> u64 {
        self.reserve() + self.needed_by_writes()
    }

    /// Blocks that making freed blocks usable must leave (M4). It may use the reserve, but must leave some for a
    /// discard.
    pub fn reserved_from_commit(&self) -> u64 {
        self.reserved_for_checkpoint() + self.needed_by_writes()
    }

    /// Blocks that growth by short runs must leave (M9).
    pub fn reserved_from_growth(&self) -> u64 {
        self.reserved_for_checkpoint()
    }

    /// Whether this many free blocks could be mapped one by one (M5).
    pub fn is_enough_for(&self, blocks: u64) -> bool {
        planted::is("grown_too_late")
            || self.free + self.pending() >= self.reserved_from_arenas() + blocks / BLOCKS_FOR_NODE
    }

    /// M3
    pub fn room_for_write(&self) -> Admission {
        match self.free_beyond_reserve() {
            free if free >= self.needed_by_writes() => Admission::Granted,
            free if free >= NODES_FOR_WRITE => Admission::Busy,
            _ => Admission::Refused,
        }
    }

    /// Admits a write that will change a map, if there is room. It ends with [`write_done`](Self::write_done).
    pub fn admit_write(&mut self) -> bool {
        let is_in = self.room_for_write() == Admission::Granted;
        self.writes += u64::from(is_in);
        is_in
    }

    /// An admitted write has changed its map, or never will.
    pub fn write_done(&mut self) {
        self.writes -= 1;
    }

    /// Admits a discard that takes at most this many blocks, also from the reserve, because it frees space. It ends
    /// with [`unmap_done`](Self::unmap_done). `Admission::Refused`: no discard in flight holds blocks for which it could wait.
    pub fn admit_unmap(&mut self, blocks: u64) -> Admission {
        let others = self.writes * NODES_IN_FLIGHT + self.unmapping;
        if self.free >= self.reserved_for_checkpoint() + others + blocks {
            self.unmapping += blocks;
            return Admission::Granted;
        }
        if self.free >= self.reserved_for_checkpoint() + blocks { Admission::Busy } else { Admission::Refused }
    }

    /// An admitted discard has changed its map, or never will.
    pub fn unmap_done(&mut self, blocks: u64) {
        self.unmapping -= blocks;
    }

    /// Allocates a block. The caller made sure that one is free.
    pub fn alloc(&mut self) -> MetaBlock {
        let words = self.used.len();
        let total = self.total() + self.replay_blocks;
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

    /// A node that its tree no longer uses. If it was never part of a checkpoint, it is free at once.
    pub fn release(&mut self, node: NodeRef, generation: u64, cache: &NodeCache) {
        if node.generation == generation {
            cache.forget(node.addr);
            self.free_block(node.addr);
        } else {
            self.pending.push(node.addr);
        }
    }

    /// Blocks of the previous checkpoint's stream.
    pub fn release_later(&mut self, blocks: impl IntoIterator<Item = MetaBlock>) {
        self.pending.extend(blocks);
    }

    /// A copy of this block could not be written (M7). If a disk fails everywhere, the number of withheld blocks is
    /// limited.
    pub fn withhold(&mut self, block: MetaBlock) {
        if (self.withheld.len() as u64) < self.total() / WITHHELD_AT_MOST {
            self.withheld.insert(block);
        }
    }

    fn free_block(&mut self, block: MetaBlock) {
        if !self.is_used(block) || self.idle.contains(&block) {
            self.double_free = self.double_free.or(Some(block));
            return;
        }
        if self.withheld.contains(&block) {
            self.idle.push(block);
            return;
        }
        let (word, bit) = ((block.0 / 64) as usize, block.0 % 64);
        self.used[word] &= !(1 << bit);
        self.free += 1;
    }

    /// An error if trees contradicted each other. Then no checkpoint may be taken.
    pub fn check_double_free(&self) -> Result<()> {
        match self.double_free {
            None => Ok(()),
            Some(block) => Err(Error::Corrupt {
                what: "metadata area",
                place: format!("metadata block {block}"),
                detail: "two trees freed it: both call it their own".into(),
            }),
        }
    }

    /// At a checkpoint's capture: the pending blocks become free when this checkpoint is durable.
    pub fn begin_commit(&mut self) {
        debug_assert!(self.committing.is_empty(), "one checkpoint at a time");
        self.committing = std::mem::take(&mut self.pending);
    }

    /// The checkpoint is durable.
    pub fn finish_commit(&mut self, cache: &NodeCache) {
        for block in std::mem::take(&mut self.committing) {
            cache.forget(block);
            match self.pins {
                0 => self.free_block(block),
                _ => self.pinned.push(block),
            }
        }
        if self.free_beyond_reserve() < self.total() / PINS_LEAVE {
            self.drop_pins();
        }
    }

    /// Whether a new pin would soon be dropped: less than twice the blocks that it must leave are free.
    pub fn is_short_for_pin(&self) -> bool {
        self.free_beyond_reserve() < 2 * self.total() / PINS_LEAVE
    }

    /// Whether metadata has to grow because of the blocks that checks pin.
    pub fn is_crowded_by_pins(&self) -> bool {
        self.pins > 0 && self.free_beyond_reserve() < self.total() / 2
    }

    /// The checkpoint failed: its blocks wait for the next.
    pub fn abort_commit(&mut self) {
        let mut committing = std::mem::take(&mut self.committing);
        self.pending.append(&mut committing);
    }

    pub fn bitmap_bytes(&self) -> u64 {
        self.total().div_ceil(8)
    }

    /// Blocks in use as the running checkpoint must record them: without the blocks that it frees.
    pub fn bitmap(&self) -> Vec<u8> {
        let mut used = self.used.clone();
        for block in self.committing.iter().chain(&self.pinned).chain(&self.idle) {
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
