//! Lists of changes: the blocks that differ between two volumes of one family. They are found in the maps, without
//! reading data.
//!
//! OLD and NEW are volumes with a common ancestor: the nearest point from which both descend, frozen in epoch `e`. Each
//! snapshot is a volume, so two snapshots of one origin, or a snapshot and its origin, are such a pair.
//!
//! Invariants
//!
//! * DF1 A mapping that was born after `e` is changed. All older mappings come from the common point, and blocks of a
//!   point are never written in place (R1, R3). So a block is equal in two cases. Either both trees map it to the same
//!   place, and both mappings were born in `e` or before. Or both read as zeros. Every other block is in the list: as
//!   data if NEW has written it, otherwise as zeros. A block that was rewritten with the same contents is in the list,
//!   too.
//! * DF2 Both trees are walked. If OLD maps a block that NEW has dropped, NEW's tree shows nothing there but a
//!   neighbour with a wider range. A walk skips a node, with everything below it, if the other tree has the same node
//!   at that place. It asks the other tree only for nodes that were born in `e` or before: it cannot have a younger
//!   one.
//! * DF3 No state is kept between two steps, so a list can begin at any block. Volumes are named by the identity of
//!   their heads and their sizes ([`Compared`]). If one of them is removed, reverted, merged or resized, the next step
//!   fails: it never uses another tree instead.
//! * DF4 A step looks at one leaf of each tree at one moment, under the locks of both volumes. No lock is held over a
//!   wait. If a volume is written meanwhile, the list has every block that differed when it began and still differs.
//! * DF5 A volume's own tree has all of its mappings, so a list does not read the common point's tree. Orphans that the
//!   point gave up ([`orphans`](super::orphans)) change no list. The point itself stays while both descend from it: it
//!   has two children.
//! * DF6 The list has all blocks beyond the end of OLD.
//!
//! A background copy of a shared block (filling, rule R13) is born when it is made. So such a block is in the list
//! although its bytes are equal. Re-homing (rule R12) moves only blocks that the volume owns, which were born after `e`
//! already.

use super::Group;
use super::bookmark::epoch_of;
use super::catalog::Catalog;
use super::ops::ChangeError;
use crate::core::READS_TOGETHER;
use crate::error::{Error, Result};
use crate::format::node::UNWRITTEN;
use crate::map::{self, Extent, Extents, MapError, NODE_COST, NodeRef, Step};
use crate::model::{Tree, is_bookmark};
use crate::planted;
use crate::runtime::yield_now;
use crate::units::{Epoch, TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A volume as a comparison names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    pub volume: VolumeId,
    pub head: TreeId,
    /// Its size in blocks.
    pub blocks: u64,
}

/// The two sides of a comparison. To continue a list, the caller passes back the value with which it began (DF3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// `None`: the list has all blocks that NEW maps.
    pub old: Option<Side>,
    pub new: Side,
}

/// The contents of the new volume in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Data,
    Zeros,
}

/// A range of blocks that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    pub start: u64,
    pub blocks: u64,
    pub content: Content,
}

impl Changed {
    /// The first block after the range.
    pub fn end(&self) -> u64 {
        self.start + self.blocks
    }
}

/// A part of a list, in order. Its last range may continue in the next part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedPart {
    pub ranges: Vec<Changed>,
    /// Where the next part begins; `None`: this was the last.
    pub next: Option<u64>,
}

/// The most leaves that one part reads, so that an answer comes soon even if little changed.
const LEAVES_IN_A_PART: usize = 4096;
/// The most nodes that are read together.
const NODES_AHEAD: usize = 4 * READS_TOGETHER;
/// This fraction of the cache may be used for read-ahead.
const CACHE_AHEAD: usize = 4;

/// The trees of one moment.
struct Trees {
    old: Option<(Tree, u64)>,
    new: Tree,
}

/// The common point of both trees.
#[derive(Clone, Copy)]
struct Common {
    epoch: Epoch,
    tree: Tree,
    /// OLD is a bookmark: what it had is not known (MK3).
    is_bookmark: bool,
}

/// The result of a walk: from `from` to `next` the only leaf that was not skipped begins at `leaf`, if there is one.
#[derive(Clone, Copy)]
struct Walked {
    from: u64,
    leaf: Option<u64>,
    next: Option<u64>,
}

impl Walked {
    fn of(from: u64, step: &Step) -> Walked {
        Walked { from, leaf: step.leaf.as_ref().map(|_| step.leaf_range.0), next: step.next }
    }

    /// Whether this result covers a key.
    fn is_for(&self, key: u64) -> bool {
        self.from <= key && self.next.is_none_or(|next| key < next)
    }

    fn end(&self) -> u64 {
        self.next.unwrap_or(u64::MAX)
    }
}

/// The walks of one part of a list.
struct Walks {
    common: Option<Common>,
    old: Option<Walked>,
    new: Option<Walked>,
}

impl Group {
    /// Begins a list of what changed from `old` to `new`, or of what `new` maps.
    /// [`Error::Unrelated`]: they have no snapshot in common.
    pub fn compare(&self, old: Option<VolumeId>, new: VolumeId) -> Result<Compared> {
        let side = |id| {
            let volume = self.volume(id)?;
            let state = volume.state.lock();
            Ok::<Side, Error>(Side { volume: id, head: state.head.id, blocks: state.meta.blocks })
        };
        let compared = Compared { old: old.map(side).transpose()?, new: side(new)? };
        self.common(&compared)?;
        Ok(compared)
    }

    /// A part of a list that begins at the block `from`: about `most` ranges, or fewer. `next` of one part is `from` of
    /// the next one.
    pub async fn changed(&self, compared: &Compared, from: u64, most: usize) -> Result<ChangedPart> {
        let mut part = ChangedPart { ranges: Vec::new(), next: Some(from) };
        let mut walks = Walks { common: self.common(compared)?, old: None, new: None };
        for _ in 0..LEAVES_IN_A_PART {
            let Some(at) = part.next else { break };
            if part.ranges.len() >= most.max(1) {
                break;
            }
            part.next = self.changed_step(compared, &mut walks, at, &mut part.ranges).await?;
            yield_now().await;
        }
        Ok(part)
    }

    /// One step, repeated until it has its nodes.
    async fn changed_step(
        &self,
        compared: &Compared,
        walks: &mut Walks,
        at: u64,
        ranges: &mut Vec<Changed>,
    ) -> Result<Option<u64>> {
        let mut failed_node = None;
        loop {
            if self.core.closed.load(std::sync::atomic::Ordering::Acquire) {
                return Err(Error::Closed);
            }
            match self.read_both(compared, |trees| self.step_of_both(compared, walks, trees, at, ranges)) {
                Ok(next) => return Ok(next),
                Err(ChangeError::Fatal(error) | ChangeError::Map(MapError::Corrupt(error))) => return Err(error),
                Err(ChangeError::Map(MapError::Missing(node, level))) => {
                    if planted::is("diff_passes_unread") {
                        return Ok(Some(at + 64).filter(|next| *next < compared.new.blocks));
                    }
                    self.read_ahead(compared, walks, level, at).await?;
                    if self.core.cache.get(node).is_none() {
                        self.core.load_or_retry(node, level, &mut failed_node).await?;
                    }
                }
                Err(ChangeError::Map(MapError::Again | MapError::NoSpace)) => yield_now().await,
            }
        }
    }

    /// One leaf of each tree, at most. A step that fails has changed nothing but what the walks know.
    fn step_of_both(
        &self,
        compared: &Compared,
        walks: &mut Walks,
        trees: &Trees,
        at: u64,
        ranges: &mut Vec<Changed>,
    ) -> std::result::Result<Option<u64>, MapError> {
        let (cache, size) = (&self.core.cache, compared.new.blocks);
        let (Some(common), Some((old, old_size))) = (walks.common, trees.old) else {
            return self.step_of_one(trees, at, size, ranges);
        };
        let both = size.min(old_size);
        if at >= both && planted::is("diff_ends_with_old") {
            return Ok(None);
        }
        if at >= both {
            return self.step_beyond(trees, at, size, ranges);
        }
        if common.is_bookmark {
            return self.step_of_bookmark(common.epoch, trees, (at, both, size), ranges);
        }
        let old_ahead = match walks.old.filter(|walked| walked.is_for(at)) {
            Some(walked) => walked,
            None if planted::is("diff_old_not_walked") => Walked { from: at, leaf: None, next: None },
            None => Walked::of(
                at,
                &map::walk_step(cache, &old, at, &|n, l, k| self.is_in(&trees.new, None, common, n, l, k))?,
            ),
        };
        walks.old = Some(old_ahead);
        let new_ahead = match walks.new.filter(|walked| walked.is_for(at)) {
            Some(walked) => walked,
            None => {
                let as_it_was = Some(old == common.tree);
                let prune = |n: NodeRef, l: u8, k: u64| self.is_in(&old, as_it_was, common, n, l, k);
                Walked::of(at, &map::walk_step(cache, &trees.new, at, &prune)?)
            }
        };
        walks.new = Some(new_ahead);
        let next = old_ahead.end().min(new_ahead.end());
        let end = next.min(both);
        let first = [old_ahead.leaf, new_ahead.leaf].into_iter().flatten().map(|leaf| leaf.max(at)).min();
        if let Some(first) = first.filter(|first| *first < end) {
            let (mut had, mut has) = (Extents::new(), Extents::new());
            map::lookup(cache, &old, first, end, &mut had)?;
            map::lookup(cache, &trees.new, first, end, &mut has)?;
            compare_ranges(common.epoch, (first, end), &had, &has, ranges);
        }
        Ok(if next < both { Some(next) } else { Some(both).filter(|both| *both < size) })
    }

    /// One leaf of the blocks that are younger than a bookmark's point, with its holes (MK3).
    fn step_of_bookmark(
        &self,
        epoch: Epoch,
        trees: &Trees,
        (at, both, size): (u64, u64, u64),
        ranges: &mut Vec<Changed>,
    ) -> std::result::Result<Option<u64>, MapError> {
        let beyond = Some(both).filter(|both| *both < size);
        if trees.new.root.is_none() {
            push(ranges, at, both, Content::Zeros);
            return Ok(beyond);
        }
        let step = map::walk_step(&self.core.cache, &trees.new, at, &|node: NodeRef, _, _| Ok(node.birth <= epoch))?;
        if let Some(leaf) = &step.leaf {
            let from = at.max(step.leaf_range.0);
            let end = step.leaf_range.1.map_or(both, |end| end.min(both)).max(from);
            let mut done = from;
            for extent in leaf.extents().filter_map(|extent| extent.cut(from, end)) {
                if !planted::is("bookmark_without_holes") {
                    push(ranges, done, extent.key, Content::Zeros);
                }
                if extent.birth > epoch {
                    push(ranges, extent.key, extent.end(), content_of(Some(&extent)));
                }
                done = extent.end();
            }
            push(ranges, done, end, Content::Zeros);
        }
        Ok(step.next.filter(|next| *next < both).or(beyond))
    }

    /// Whether a node of one tree is in the other, too (DF2). `as_it_was`: that one is still equal to the common point.
    fn is_in(
        &self,
        other: &Tree,
        as_it_was: Option<bool>,
        common: Common,
        node: NodeRef,
        level: u8,
        key: u64,
    ) -> std::result::Result<bool, MapError> {
        if node.birth > common.epoch {
            return Ok(false);
        }
        if as_it_was == Some(true) {
            return Ok(true);
        }
        map::has_node(&self.core.cache, other, node, level, key)
    }

    /// One step over the mappings of one tree, written or not.
    fn step_of_one(
        &self,
        trees: &Trees,
        at: u64,
        size: u64,
        ranges: &mut Vec<Changed>,
    ) -> std::result::Result<Option<u64>, MapError> {
        self.leaf(trees, at, size, |extent| {
            push(ranges, extent.key, extent.end(), content_of(Some(&extent)));
        })
    }

    /// All blocks of a part beyond the end of OLD (DF6).
    fn step_beyond(
        &self,
        trees: &Trees,
        at: u64,
        size: u64,
        ranges: &mut Vec<Changed>,
    ) -> std::result::Result<Option<u64>, MapError> {
        let mut done = at;
        let next = self.leaf(trees, at, size, |extent| {
            push(ranges, done, extent.key, Content::Zeros);
            push(ranges, extent.key, extent.end(), content_of(Some(&extent)));
            done = extent.end();
        })?;
        push(ranges, done, next.unwrap_or(size), Content::Zeros);
        Ok(next)
    }

    /// Calls `each` with the extents of the leaf from a key on, cut to the volume's size. Returns where the next leaf
    /// begins.
    fn leaf(
        &self,
        trees: &Trees,
        at: u64,
        size: u64,
        mut each: impl FnMut(Extent),
    ) -> std::result::Result<Option<u64>, MapError> {
        if at >= size {
            return Ok(None);
        }
        let look =
            |extents: &mut dyn Iterator<Item = Extent>| extents.filter_map(|e| e.cut(at, size)).for_each(&mut each);
        let next = map::leaf_from(&self.core.cache, &trees.new, at, look)?.and_then(|((), next)| next);
        Ok(next.filter(|next| *next < size))
    }

    /// The point from which both descend, as it is now.
    fn common(&self, compared: &Compared) -> Result<Option<Common>> {
        let Some(old) = compared.old else { return Ok(None) };
        let catalog = self.catalog.read();
        let mut since = None;
        let mut parent = |side: &Side| {
            let volume = volume_of(&catalog, side)?;
            let state = volume.state.lock();
            if is_bookmark(&state.meta.name) {
                since = Some(epoch_of(&state.meta.attributes).ok_or(Error::Unrelated)?);
            }
            if state.head.id == side.head || planted::is("diff_of_changed_head") {
                Ok(state.head.parent)
            } else {
                Err(Error::Moved)
            }
        };
        if old.head == compared.new.head {
            return Ok(Some(Common { epoch: Epoch(u64::MAX), tree: Tree::default(), is_bookmark: false }));
        }
        // On a damaged image parents may be a circle.
        let most = catalog.trees.len() + 1;
        let above = |first: Option<TreeId>| {
            std::iter::successors(first, |id| catalog.trees.get(id).and_then(|tree| tree.parent)).take(most)
        };
        let (parent_of_old, parent_of_new) = (parent(&old)?, parent(&compared.new)?);
        let of_old: BTreeSet<TreeId> = above(parent_of_old).collect();
        let mut shared = above(parent_of_new).filter(|id| of_old.contains(id));
        let found = if planted::is("diff_from_first") { shared.last() } else { shared.next() };
        let found = found.and_then(|id| catalog.trees.get(&id)).ok_or(Error::Unrelated)?;
        // MK1.
        if since.is_some_and(|since| found.epoch < since) && !planted::is("bookmark_older_than_point") {
            return Err(Error::Unrelated);
        }
        Ok(Some(Common { epoch: found.epoch, tree: found.tree, is_bookmark: since.is_some() }))
    }

    /// Looks at the trees of one moment. The volumes are locked meanwhile, in the order of their ids.
    fn read_both<T>(
        &self,
        compared: &Compared,
        look: impl FnOnce(&Trees) -> std::result::Result<T, MapError>,
    ) -> std::result::Result<T, ChangeError> {
        let catalog = self.catalog.read();
        let new = volume_of(&catalog, &compared.new)?;
        let old = match &compared.old {
            Some(side) if side.volume != compared.new.volume => Some((volume_of(&catalog, side)?, side)),
            Some(side) if *side != compared.new => return Err(Error::Moved.into()),
            _ => None,
        };
        let is_first = old.as_ref().is_some_and(|(old, _)| old.id < new.id);
        let before = old.as_ref().filter(|_| is_first).map(|(volume, _)| volume.state.lock());
        let state = new.state.lock();
        let after = old.as_ref().filter(|_| !is_first).map(|(volume, _)| volume.state.lock());
        let is_unchanged = |side: &Side, state: &crate::volume::state::State| {
            !state.closed && !state.invalid() && state.head.id == side.head && state.meta.blocks == side.blocks
        };
        let mut trees = Trees { old: None, new: state.head.tree };
        let mut are_unchanged = is_unchanged(&compared.new, &state);
        match (before.or(after), &old) {
            (Some(state), Some((_, side))) => {
                are_unchanged &= is_unchanged(side, &state);
                trees.old = Some((state.head.tree, side.blocks));
                let looked = if are_unchanged || planted::is("diff_of_changed_head") {
                    look(&trees)?
                } else {
                    return Err(Error::Moved.into());
                };
                return Ok(looked);
            }
            // A volume and itself.
            _ if compared.old.is_some() => trees.old = Some((state.head.tree, state.meta.blocks)),
            _ => {}
        }
        if are_unchanged { Ok(look(&trees)?) } else { Err(Error::Moved.into()) }
    }

    /// Reads the nodes that the walks need next, with several reads in flight. It only warms the cache.
    async fn read_ahead(&self, compared: &Compared, walks: &Walks, level: u8, at: u64) -> Result<()> {
        let most = NODES_AHEAD.min(self.core.config.cache_bytes / NODE_COST as usize / CACHE_AHEAD);
        if most < 2 {
            return Ok(());
        }
        let cache = &self.core.cache;
        let wanted = self.read_both(compared, |trees| {
            let mut wanted = BTreeSet::new();
            let all = |_: NodeRef, _: u8, _: u64| Ok(false);
            let (Some(common), Some((old, _))) = (walks.common, trees.old) else {
                map::unread_ahead(cache, &trees.new, level, at, &all, most, &mut wanted);
                return Ok(wanted);
            };
            if common.is_bookmark {
                let is_old = |node: NodeRef, _: u8, _: u64| Ok(node.birth <= common.epoch);
                map::unread_ahead(cache, &trees.new, level, at, &is_old, most, &mut wanted);
                return Ok(wanted);
            }
            let as_it_was = Some(old == common.tree);
            let in_new = |n: NodeRef, l: u8, k: u64| self.is_in(&trees.new, None, common, n, l, k);
            let in_old = |n: NodeRef, l: u8, k: u64| self.is_in(&old, as_it_was, common, n, l, k);
            map::unread_ahead(cache, &trees.new, level, at, &in_old, most, &mut wanted);
            map::unread_ahead(cache, &old, level, at, &in_new, most, &mut wanted);
            Ok(wanted)
        });
        match wanted {
            Ok(wanted) if wanted.len() > 1 => drop(self.core.load_together(&wanted).await),
            Err(ChangeError::Fatal(error)) => return Err(error),
            _ => {}
        }
        Ok(())
    }
}

fn volume_of(catalog: &Catalog, side: &Side) -> Result<Arc<Volume>> {
    catalog.volumes.get(&side.volume).cloned().ok_or(Error::Moved)
}

/// What a block reads as.
fn content_of(extent: Option<&Extent>) -> Content {
    match extent {
        Some(e) if e.flags & UNWRITTEN == 0 => Content::Data,
        _ => Content::Zeros,
    }
}

/// DF1, over the blocks of a range, of which both trees' extents are given.
fn compare_ranges(epoch: Epoch, (mut at, end): (u64, u64), old: &[Extent], new: &[Extent], ranges: &mut Vec<Changed>) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    while at < end {
        while old.next_if(|e| e.end() <= at).is_some() {}
        while new.next_if(|e| e.end() <= at).is_some() {}
        let (had, old_until) = here(old.peek().copied(), at, end);
        let (has, new_until) = here(new.peek().copied(), at, end);
        let until = old_until.min(new_until);
        if !is_equal(epoch, had, has) {
            push(ranges, at, until, content_of(has));
        }
        at = until;
    }
}

/// The extent that covers a block, if the next one does, and the block up to which that stays true.
fn here(next: Option<&Extent>, at: u64, end: u64) -> (Option<&Extent>, u64) {
    match next {
        Some(e) if e.key <= at => (Some(e), e.end().min(end)),
        Some(e) => (None, e.key.min(end)),
        None => (None, end),
    }
}

fn is_equal(epoch: Epoch, old: Option<&Extent>, new: Option<&Extent>) -> bool {
    if content_of(old) == Content::Zeros && content_of(new) == Content::Zeros {
        return true;
    }
    let (Some(old), Some(new)) = (old, new) else { return false };
    let is_inherited = old.birth <= epoch && new.birth <= epoch;
    let is_same = old.value.wrapping_sub(old.key) == new.value.wrapping_sub(new.key) && old.flags == new.flags;
    debug_assert!(is_inherited || !is_same, "DF1: {old:?} and {new:?} share a place, and one is younger than {epoch}");
    is_same && is_inherited || planted::is("diff_by_key")
}

/// Adds a range, or makes the last one longer.
fn push(ranges: &mut Vec<Changed>, start: u64, end: u64, content: Content) {
    if start >= end {
        return;
    }
    match ranges.last_mut() {
        Some(last) if last.content == content && last.end() == start => last.blocks += end - start,
        _ => ranges.push(Changed { start, blocks: end - start, content }),
    }
}
