//! A volume's state under its lock: its head, requests in flight, and blocks whose mappings are fresh.
//!
//! Invariants
//!
//! * V1 Conflicting requests are never in flight together: see [`Mode::conflicts`]. So a block has no reader or writer
//!   when it is freed (rule R8).
//! * V2 A mapping changes only after its data and its journal record are on the disk. So no reader ever sees a block
//!   with another volume's data (promise P9).
//! * V3 A block is written in place only if the head owns it, it is written, and it is not fresh (rule R6).

use super::window::{Redirected, Watch};
use crate::core::{Core, MergeCursor, Ownership, TreeOwner};
use crate::dead_blocks;
use crate::format::journal::WriteExtent;
use crate::format::node::UNWRITTEN;
use crate::map::{self, Extent, MapError};
use crate::model::{RestOfTree, SegmentType, TreeMeta, VolumeKind, VolumeMeta, VolumeState};
use crate::placement::Placement;
use crate::planted;
use crate::space::{Run, Runs};
use crate::units::{Epoch, LvBlock, Seq, VolumeId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// How a request in flight uses its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    /// Overwrites blocks in place.
    InPlace,
    /// Changes mappings. Frees no block that can be read meanwhile.
    Map,
    /// Frees mapped blocks.
    Exclusive,
}

impl Mode {
    pub fn conflicts(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::InPlace, Mode::Exclusive) | (Mode::Exclusive, Mode::InPlace) if planted::is("freed_in_flight") => {
                false
            }
            (Mode::Exclusive, _) | (_, Mode::Exclusive) => true,
            (Mode::Read, _) | (_, Mode::Read) | (Mode::InPlace, Mode::InPlace) => false,
            _ => true,
        }
    }
}

/// A request in flight, over whole blocks.
pub struct InFlight {
    pub id: u64,
    pub start: u64,
    pub end: u64,
    pub mode: Mode,
    /// Blocks that were allocated for it and that no finished record names.
    pub allocated: Runs,
    /// This many of them replace blocks of the head, which are freed when the record is valid.
    pub replaces: u64,
}

/// A range of blocks that one record mapped.
#[derive(Clone, Copy, Debug)]
struct FreshRange {
    end: u64,
    seq: u64,
    /// The record gave them a new place. Otherwise it was the first write to their old place.
    is_moved: bool,
}

/// The most fresh entries before those that became durable are removed.
const FRESH_ENTRIES: usize = 4096;

/// Blocks whose mapping no durable marker covers yet, and the record that made it.
#[derive(Default)]
pub struct Fresh {
    ranges: BTreeMap<u64, FreshRange>,
    order: VecDeque<(u64, u64)>,
    /// At this many entries they are pruned. Raised when pruning did not help, so that it stays cheap.
    prune_at: usize,
}

impl Fresh {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// There are many entries: time to find out which of them are durable, even if no write needs it.
    pub fn is_large(&self) -> bool {
        self.order.len() >= self.prune_at
    }

    /// `is_moved`: the record gave the blocks a new place.
    pub fn insert(&mut self, start: u64, end: u64, seq: Seq, is_moved: bool) {
        while let Some((at, old)) = self.ranges.range(..end).next_back().map(|(k, v)| (*k, *v)) {
            if old.end <= start {
                break;
            }
            self.ranges.remove(&at);
            for (a, b) in [(at, old.end.min(start)), (at.max(end), old.end)] {
                if a < b {
                    self.ranges.insert(a, FreshRange { end: b, ..old });
                    self.order.push_back((old.seq, a));
                }
            }
        }
        self.ranges.insert(start, FreshRange { end, seq: seq.0, is_moved });
        self.order.push_back((seq.0, start));
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &FreshRange> {
        self.ranges.range(..end).rev().map(|(_, range)| range).take_while(move |range| range.end > start)
    }

    /// The latest record that made a mapping in the range.
    pub fn latest(&self, start: u64, end: u64) -> Option<Seq> {
        self.overlapping(start, end).map(|range| Seq(range.seq)).max()
    }

    /// Whether all fresh blocks in the range got a new place.
    pub fn is_moved(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).all(|range| range.is_moved)
    }

    /// Forgets what records below `durable` made.
    pub fn prune(&mut self, durable: Seq) {
        // Pieces that were cut later can have older numbers behind newer ones. They are pruned later.
        while let Some((seq, start)) = self.order.front().copied().filter(|(seq, _)| *seq < durable.0) {
            self.order.pop_front();
            if self.ranges.get(&start).is_some_and(|range| range.seq == seq) {
                self.ranges.remove(&start);
            }
        }
        self.prune_at = FRESH_ENTRIES.max(2 * self.order.len());
    }
}

pub struct State {
    pub meta: VolumeMeta,
    /// It takes mirrored blocks already, but still has others. Until it has none, it counts as linear elsewhere (MZ3).
    pub is_converting: bool,
    pub head: TreeMeta,
    pub ownership: Ownership,
    /// Whose reserve pays for redirected writes: the snapshot made with the parent point.
    pub charged: Option<VolumeId>,
    pub placement: Arc<Placement>,
    pub in_flight: Vec<InFlight>,
    pub next_op: u64,
    pub fresh: Fresh,
    /// Closed gates: writes wait (rule R9)...
    pub gates: u32,
    /// ... Gates that also block reads. Without this, draining could wait for ever behind a steady stream of readers.
    pub shut: u32,
    pub closed: bool,
    pub wakers: Vec<Waker>,
    /// A range that is being copied (V4).
    pub(super) watch: Option<Watch>,
    /// The windows with redirected writes since the last call (rule R13).
    pub(super) redirected: Redirected,
}

impl State {
    pub fn new(meta: VolumeMeta, head: TreeMeta, parent: Option<&TreeMeta>, placement: Arc<Placement>) -> State {
        let mut state = State {
            meta,
            is_converting: false,
            head,
            ownership: Ownership::default(),
            charged: None,
            placement,
            in_flight: Vec::new(),
            next_op: 0,
            fresh: Fresh::default(),
            gates: 0,
            shut: 0,
            closed: false,
            wakers: Vec::new(),
            watch: None,
            redirected: Redirected::default(),
        };
        state.set_parent(parent);
        state
    }

    /// The type that reports and checkpoints have.
    pub fn stored_segment(&self) -> SegmentType {
        let is_linear = self.is_converting && !planted::is("converting_stored");
        if is_linear { SegmentType::Linear } else { self.meta.segment }
    }

    /// The properties that reports and checkpoints have.
    pub fn stored_meta(&self) -> VolumeMeta {
        VolumeMeta { segment: self.stored_segment(), ..self.meta.clone() }
    }

    /// Takes the ownership rule from the head's parent. A dying parent is being merged into this head.
    pub fn set_parent(&mut self, parent: Option<&TreeMeta>) {
        self.head.parent = parent.map(|p| p.id);
        self.ownership = Ownership { parent_epoch: parent.map_or(Epoch(0), |p| p.epoch), merge_cursor: None };
        self.charged = parent.and_then(|p| p.charged);
    }

    pub fn set_merge_cursor(&mut self, merge_cursor: Option<MergeCursor>) {
        self.ownership.merge_cursor = merge_cursor;
    }

    pub fn thick(&self) -> bool {
        self.meta.kind == VolumeKind::Thick
    }

    pub fn invalid(&self) -> bool {
        self.meta.state == VolumeState::Invalid
    }

    pub fn conflict(&self, start: u64, end: u64, mode: Mode) -> bool {
        self.in_flight.iter().any(|op| op.start < end && start < op.end && op.mode.conflicts(mode))
    }

    pub fn begin(&mut self, start: u64, end: u64, mode: Mode) -> u64 {
        self.begin_with(start, end, mode, Runs::new(), 0)
    }

    /// Begins a request with allocated blocks, of which `replaces` replace blocks of the head.
    pub fn begin_with(&mut self, start: u64, end: u64, mode: Mode, allocated: Runs, replaces: u64) -> u64 {
        let id = self.next_op;
        self.next_op += 1;
        if mode != Mode::Read {
            self.touch(start, end);
        }
        self.in_flight.push(InFlight { id, start, end, mode, allocated, replaces });
        id
    }

    pub fn finish(&mut self, id: u64) {
        let at = self.in_flight.iter().position(|op| op.id == id).expect("a request ends once");
        self.in_flight.swap_remove(at);
        self.wake();
    }

    pub fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// Blocks that are reserved for a thick volume and not mapped.
    pub fn shortfall(&self) -> i64 {
        if self.thick() && !self.invalid() { self.meta.blocks as i64 - self.head.mapped as i64 } else { 0 }
    }
}

/// The head no longer maps this piece: frees it, or counts it as dead. Updates the counters.
fn drop_piece(core: &Core, state: &mut State, piece: Extent) {
    let len = u64::from(piece.len);
    state.head.mapped = state.head.mapped.saturating_sub(len);
    if piece.flags & UNWRITTEN == 0 {
        state.head.written = state.head.written.saturating_sub(len);
    }
    if state.ownership.owns(piece.birth, Some(piece.end())) {
        state.head.own -= len as i64;
        let mut space = core.space.lock();
        space.free_later((piece.value, len));
        if state.meta.reserve.is_some() {
            space.charge(state.meta.id, -(len as i64));
        }
    } else {
        dead_blocks::add(&mut state.head.dead, core.points.counter(piece.birth), len);
    }
}

/// Cuts an extent where its owner changes.
fn owner_pieces(state: &State, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
    let cut = state.ownership.boundary(extent.key, extent.end());
    let (first, second) = match cut {
        Some(at) => (extent.cut(extent.key, at), extent.cut(at, extent.end())),
        None => (Some(extent), None),
    };
    first.into_iter().chain(second)
}

fn replace(
    core: &Core,
    state: &mut State,
    start: u64,
    end: u64,
    new: &[Extent],
    privileged: bool,
) -> Result<Vec<Extent>, MapError> {
    let mut removed = Vec::new();
    let mut meta = core.meta.lock();
    let mut owner = TreeOwner {
        meta: &mut meta,
        cache: &core.cache,
        generation: core.generation(),
        birth: state.head.birth,
        ownership: state.ownership,
        privileged,
    };
    map::replace(&core.cache, &mut state.head.tree, &mut owner, start, end, new, &mut removed)?;
    Ok(removed)
}

/// Applies one extent of a Write record. Applying it again changes nothing (a checkpoint may contain half of a record).
///
/// `above` is for recovery: the trees above the head, nearest first (D7). While a point is merged into its child, the
/// child may write inherited blocks in place, and the journal then names a block that the point maps, too. Recovery may
/// apply this record before the merge is repeated. Then the mapping keeps the point's birth, so that the block has one
/// owner and is freed once. If an earlier discard dropped the block from the head and counted it as dead, it is no
/// longer dead.
pub fn apply_write(core: &Core, state: &mut State, extent: &WriteExtent, above: &[RestOfTree]) -> Result<(), MapError> {
    let (start, len) = (extent.lv_block.0, u64::from(extent.len));
    let before = state.shortfall();
    let whole = Extent { key: start, len: extent.len, value: extent.vg_block.0, birth: state.head.birth, flags: 0 };
    let new = match above {
        [] => SmallVec::<[Extent; 2]>::from_slice(&[whole]),
        above => inherit(core, state, whole, above)?,
    };
    // The record is valid: the change may use the reserve (M2). Writes are admitted only while there is more.
    let removed = replace(core, state, start, start + len, &new, true)?;
    state.head.mapped += len;
    state.head.written += len;
    let owned = |state: &State, e: &Extent| state.ownership.owns(e.birth, Some(e.end()));
    let mut inherited = SmallVec::<[Extent; 2]>::new();
    for extent in &new {
        for piece in owner_pieces(state, *extent) {
            match owned(state, &piece) {
                true => state.head.own += i64::from(piece.len),
                false => inherited.push(piece),
            }
        }
    }
    for old in removed {
        for piece in owner_pieces(state, old) {
            if piece.value.wrapping_sub(piece.key) == extent.vg_block.0.wrapping_sub(start) {
                // The same place: only its mark changes.
                let len = u64::from(piece.len);
                state.head.mapped = state.head.mapped.saturating_sub(len);
                if piece.flags & UNWRITTEN == 0 {
                    state.head.written = state.head.written.saturating_sub(len);
                }
                match owned(state, &piece) {
                    true => state.head.own -= len as i64,
                    false => dead_blocks::add(&mut state.head.dead, core.points.counter(piece.birth), len),
                }
            } else {
                drop_piece(core, state, piece);
            }
        }
    }
    for piece in inherited.iter().filter(|_| !core.planted("revived_block_stays_dead")) {
        core.points.revive(&mut state.head.dead, piece.birth, u64::from(piece.len));
    }
    settle_shortfall(core, state, before);
    Ok(())
}

/// Cuts an extent where a tree above maps the same places, and gives those pieces their births there. A block that a merge
/// has passed is no longer in the parent (D7), and is the child's if it is younger than the next tree above (D1).
fn inherit(core: &Core, state: &State, whole: Extent, above: &[RestOfTree]) -> Result<SmallVec<[Extent; 2]>, MapError> {
    let (mut same, mut end) = (map::Extents::new(), whole.end());
    for RestOfTree { tree, first_key } in above {
        if let Some(part) = whole.cut(*first_key, end) {
            same.extend(map::same_places(&core.cache, tree, &part)?);
        }
        end = end.min(*first_key);
    }
    same.sort_by_key(|piece| piece.key);
    let mut pieces: SmallVec<[Extent; 2]> = map::rest(&whole, &same).collect();
    pieces.extend(same.iter().map(|e| Extent { birth: e.birth, flags: whole.flags, ..*e }));
    pieces.sort_by_key(|piece| piece.key);
    debug_assert!(state.head.parent.is_some() || pieces.len() == 1, "only a child inherits");
    Ok(pieces)
}

/// Applies an Unmap record to `[start, end)`: blocks that a thick volume owns keep their place and become unwritten.
/// All other blocks are dropped.
pub fn apply_unmap(core: &Core, state: &mut State, start: u64, end: u64, keep_place: bool) -> Result<(), MapError> {
    let before = state.shortfall();
    let mut found = map::Extents::new();
    map::lookup(&core.cache, &state.head.tree, start, end, &mut found)?;
    let mut kept: Vec<Extent> = Vec::new();
    if keep_place {
        let pieces = found.iter().flat_map(|e| owner_pieces(state, *e));
        let own = pieces.filter(|p| state.ownership.owns(p.birth, Some(p.end())));
        kept = own.map(|p| Extent { flags: p.flags | UNWRITTEN, ..p }).collect();
    }
    let removed = replace(core, state, start, end, &kept, true)?;
    for old in removed {
        for piece in owner_pieces(state, old) {
            if keep_place && state.ownership.owns(piece.birth, Some(piece.end())) {
                if piece.flags & UNWRITTEN == 0 {
                    state.head.written = state.head.written.saturating_sub(u64::from(piece.len));
                }
            } else {
                drop_piece(core, state, piece);
            }
        }
    }
    settle_shortfall(core, state, before);
    if start < end {
        take_over_hole_leaf(core, state, start)?;
        take_over_hole_leaf(core, state, end - 1)?;
    }
    Ok(())
}

/// MK2: the head owns the leaf that covers a hole. If another leaf of the range was dropped, its neighbour covers its
/// keys.
fn take_over_hole_leaf(core: &Core, state: &mut State, key: u64) -> Result<(), MapError> {
    let Some((leaf, first)) = map::leaf_at(&core.cache, &state.head.tree, key)? else { return Ok(()) };
    if state.ownership.owns(leaf.birth, first.key.checked_add(1)) || planted::is("holes_in_old_leaves") {
        return Ok(());
    }
    replace(core, state, first.key, first.end(), &[first], true).map(drop)
}

/// Gives unwritten space to a thick head (creation, growth). The blocks were unmapped.
pub fn apply_place(core: &Core, state: &mut State, at: LvBlock, run: Run) -> Result<(), MapError> {
    let (mut key, mut value, mut left) = (at.0, run.0, run.1);
    while left > 0 {
        let len = u32::try_from(left).unwrap_or(u32::MAX);
        let new = Extent { key, len, value, birth: state.head.birth, flags: UNWRITTEN };
        let removed = replace(core, state, key, key + u64::from(len), &[new], false)?;
        // Placing again after an interruption changes nothing.
        let again: u64 = removed.iter().map(|e| u64::from(e.len)).sum();
        state.head.mapped += u64::from(len) - again;
        state.head.own += i64::from(len) - again as i64;
        (key, value, left) = (key + u64::from(len), value + u64::from(len), left - u64::from(len));
    }
    Ok(())
}

fn settle_shortfall(core: &Core, state: &State, before: i64) {
    let change = state.shortfall() - before;
    if change != 0 {
        core.space.lock().reserve_blocks(state.meta.segment, change);
    }
}
