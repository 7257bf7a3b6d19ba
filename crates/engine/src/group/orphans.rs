//! Orphans: blocks that a point with several children holds and that no child uses any more (docs/design.md, section
//! 6).
//!
//! Such a point cannot be merged into one child. When its children's counters show that it may have many orphans, its
//! own part is walked in bounded steps. Nodes that every child shares are skipped. The other leaves lose the extents
//! that no child maps.
//!
//! Invariants
//!
//! * O1 If a child no longer uses a block of its point, it never uses it again. So the children can be checked one by
//!   one.
//! * O2 A leaf with an orphan is in no child's tree, because a child with this leaf would map all of it. The same holds
//!   for the nodes above it. So only the point uses these nodes, and they can change like those of any tree.
//! * O3 All other nodes may be shared with a child, so they do not change. A leaf is never emptied, joined or split
//!   ([`map::shrink_leaf`]): a join would release a neighbour that a child may share. The cost is one block that stays
//!   in a leaf without used blocks.
//! * O4 As in removal (D2), a step writes nothing to the journal. The blocks that it frees are pending until the next
//!   checkpoint, in which the point no longer has them.

use super::Group;
use super::catalog::Catalog;
use super::reclaim::Stepped;
use crate::core::{Ownership, Throttle, TreeOwner, count};
use crate::dead_blocks;
use crate::error::{Error, Result};
use crate::format::node::{CAPACITY, UNWRITTEN};
use crate::map::{self, Extent, MapError, NodeRef};
use crate::model::{TreeKind, TreeMeta};
use crate::units::TreeId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Group {
    /// Starts a search for orphans if it may give space to a waiting write. Returns whether it does.
    pub(crate) fn search_orphans(&self) -> bool {
        self.orphans_urgent.store(true, Ordering::Release);
        let found = self.orphaned(&self.catalog.read()).is_some();
        if found {
            self.request_reclaim();
        }
        found
    }

    /// Looks for orphans, however few there may be.
    pub fn search_orphans_now(&self) {
        self.search_orphans();
    }

    /// The point to search now.
    pub(super) fn orphaned(&self, catalog: &Catalog) -> Option<TreeId> {
        if self.core.config.orphan_blocks == u64::MAX {
            return None;
        }
        let urgent = self.orphans_urgent.load(Ordering::Acquire);
        let least = if urgent { 1 } else { self.core.config.orphan_blocks };
        let found = catalog.orphaned(least);
        if found.is_none() && urgent {
            self.orphans_urgent.store(false, Ordering::Release);
        }
        found
    }

    /// Searches a point from one end to the other. Stops when removal, which frees more, has work.
    pub(super) async fn free_orphans(self: &Arc<Self>, point: TreeId) -> Result<Stepped> {
        let (mut cursor, mut throttle) = (0, Throttle::default());
        loop {
            if self.core.closed.load(Ordering::Acquire) || self.catalog.read().next_removal().is_some() {
                return Ok(Stepped::More);
            }
            if self.pending_full() {
                self.checkpoint().await?;
                if !self.core.meta.lock().has_least_room_to_free() {
                    break;
                }
            }
            count(&self.core.counters.reclaim_steps);
            match self.core.with_nodes_privileged(|| self.orphan_step(point, cursor)).await {
                Ok(Some(next)) => cursor = next,
                // Without room for a copied path, or if a node cannot be read, the search ends here. A later search may
                // find more.
                Ok(None) | Err(Error::NoSpace { .. } | Error::Corrupt { .. } | Error::Disk(_)) => break,
                Err(error) => return Err(error),
            }
            self.core.throttle(&mut throttle).await;
        }
        let _gate = self.core.gate.read();
        let mut catalog = self.catalog_mut();
        let left = catalog.orphans_at_most(point);
        catalog.searched.insert(point, left);
        let charged = catalog.trees.get(&point).and_then(|point| point.charged);
        Ok(self.recount_reserve(&catalog, charged))
    }

    /// Frees the orphans of one leaf, in one critical section. Returns the new cursor; `None`: done.
    fn orphan_step(&self, point: TreeId, cursor: u64) -> std::result::Result<Option<u64>, MapError> {
        let core = &self.core;
        let _gate = core.gate.read();
        let mut catalog = self.catalog_mut();
        let Some(meta) = catalog.trees.get(&point).filter(|t| t.kind == TreeKind::Point).cloned() else {
            return Ok(None);
        };
        let children: Vec<TreeId> = catalog.children_of(point).collect();
        if children.len() < 2 {
            return Ok(None);
        }
        let lower = catalog.epoch_of(meta.parent);
        let prune = |node: NodeRef, level: u8, first_key: u64| {
            let mut is_shared = node.birth <= lower;
            for child in &children {
                let has = |t: &TreeMeta| map::has_node(&core.cache, &t.tree, node, level, first_key);
                is_shared = is_shared || catalog.with_tree(*child, has).transpose()?.unwrap_or(false);
            }
            Ok(is_shared)
        };
        let step = map::walk_step(&core.cache, &meta.tree, cursor, &prune)?;
        let mut stop = None;
        if let Some(leaf) = &step.leaf {
            let own = leaf.extents().filter(|e| e.birth > lower);
            let mut orphans: Vec<Extent> = own.filter_map(|e| e.cut(cursor, u64::MAX)).collect();
            let asked = if core.planted("child_not_searched") { &children[1..] } else { &children[..] };
            for child in asked {
                if orphans.is_empty() {
                    break;
                }
                let found = catalog.with_tree(*child, |child| unused(core, child, &orphans));
                let (unused, child_stop) = found.transpose()?.unwrap_or_default();
                orphans = unused;
                stop = [stop, child_stop].into_iter().flatten().min();
            }
            // What the last child was compared with ends first.
            let end = stop.unwrap_or(u64::MAX);
            let orphans: Vec<Extent> = orphans.iter().filter_map(|e| e.cut(0, end)).collect();
            let (stay, gone) = split(leaf.extents(), &orphans);
            if !gone.is_empty() {
                let mut tree = meta.tree;
                let mut metadata = core.meta.lock();
                let mut owner = TreeOwner {
                    meta: &mut metadata,
                    cache: &core.cache,
                    generation: core.generation(),
                    birth: meta.epoch,
                    ownership: Ownership { parent_epoch: lower, merge_cursor: None },
                    privileged: true,
                };
                if core.planted("orphans_by_replace") {
                    for e in &gone {
                        map::replace(&core.cache, &mut tree, &mut owner, e.key, e.end(), &[], &mut Vec::new())?;
                    }
                } else {
                    map::shrink_leaf(&core.cache, &mut tree, &mut owner, step.leaf_range.0, &stay)?;
                }
                drop(metadata);
                // From here on nothing can fail: a step is done completely or not at all.
                if !core.planted("orphans_stay_mapped") {
                    catalog.with_tree_mut(point, |point| point.tree = tree);
                }
                forget(&mut catalog, point, &children, &gone);
                let blocks = gone.iter().map(|e| u64::from(e.len)).sum();
                core.counters.orphans_freed.fetch_add(blocks, Ordering::Relaxed);
                let mut space = core.space.lock();
                gone.iter().for_each(|e| space.free_later((e.value, u64::from(e.len))));
            }
        }
        Ok(stop.or(step.next))
    }
}

/// The parts of these extents that the child does not map to the same place, and where the rest begins.
fn unused(
    core: &crate::core::Core,
    child: &TreeMeta,
    extents: &[Extent],
) -> std::result::Result<(Vec<Extent>, Option<u64>), MapError> {
    let mut rest = Vec::new();
    let found = |piece: Extent, kept: &[Extent]| rest.extend(map::rest(&piece, kept));
    let stop = map::compare_places(&core.cache, &child.tree, extents.iter().copied(), &|_| false, found)?;
    Ok((rest, stop))
}

/// Divides a leaf's extents into those that stay and those that go. The orphans go, but never the whole leaf (O3), and
/// none that would leave more pieces than fit into a leaf.
fn split(leaf: impl Iterator<Item = Extent>, orphans: &[Extent]) -> (Vec<Extent>, Vec<Extent>) {
    let leaf: Vec<Extent> = leaf.collect();
    let (mut stay, mut gone): (Vec<Extent>, Vec<Extent>) = (Vec::new(), Vec::new());
    for (i, e) in leaf.iter().enumerate() {
        let to_come = leaf.len() - i - 1;
        let pieces: Vec<Extent> = orphans.iter().filter_map(|o| o.cut(e.key, e.end())).collect();
        let (before, gone_before) = (stay.len(), gone.len());
        stay.extend(map::rest(e, &pieces));
        gone.extend(&pieces);
        if stay.len() + to_come > CAPACITY {
            stay.truncate(before);
            stay.push(*e);
            gone.truncate(gone_before);
        }
    }
    if stay.is_empty()
        && let Some(last) = gone.pop()
    {
        gone.extend(last.cut(last.key, last.end() - 1));
        stay.extend(last.cut(last.end() - 1, last.end()));
    }
    (stay, gone)
}

/// Takes freed extents out of the counters: the point's own, and each child's count of what it no longer uses.
fn forget(catalog: &mut Catalog, point: TreeId, children: &[TreeId], gone: &[Extent]) {
    let lower = catalog.epoch_of(catalog.trees.get(&point).and_then(|point| point.parent));
    for e in gone {
        let len = u64::from(e.len);
        catalog.with_tree_mut(point, |point| {
            point.mapped = point.mapped.saturating_sub(len);
            point.written = point.written.saturating_sub(if e.flags & UNWRITTEN == 0 { len } else { 0 });
            point.own -= len as i64;
        });
        for child in children {
            catalog.with_tree_mut(*child, |child| dead_blocks::take(&mut child.dead, lower, len));
        }
    }
}
