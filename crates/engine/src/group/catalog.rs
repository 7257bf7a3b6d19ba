//! The catalog: which volumes there are, and the tree of points and heads behind them (docs/design.md, section 6).
//!
//! * C1 A head belongs to exactly one volume; a point to none. Heads have no children.
//! * C2 A point with one child left, or none, is dying: its blocks go to the child, or become free. A point
//!   that is held stays (HO1).
//! * C3 At most one dying tree has a cursor above zero: removal handles one tree at a time. Blocks that a point took
//!   over below the cursor of its parent's merge are as old as that parent. If the point were merged meanwhile, neither
//!   merge would free them.
//! * C4 The catalog caches facts that would need a search of thousands of trees and volumes: the trees of C2, the
//!   points that are charged to a volume, the snapshots of a volume. Trees and volumes are added and removed only by
//!   [`Catalog::insert_tree`] and similar functions. With debug assertions each checkpoint compares the cache with a
//!   search.

use crate::dead_blocks::{self, PointEpochs};
use crate::error::{Error, Result};
use crate::model::{Ancestors, GroupAttributes, Tree, TreeKind, TreeMeta};
use crate::planted;
use crate::units::{Epoch, TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct Catalog {
    pub volumes: BTreeMap<VolumeId, Arc<Volume>>,
    pub names: BTreeMap<String, VolumeId>,
    /// The volume of each head (C1).
    pub heads: BTreeMap<TreeId, VolumeId>,
    /// Points and dying trees. Heads live in their volumes.
    pub trees: BTreeMap<TreeId, TreeMeta>,
    pub children: BTreeMap<TreeId, BTreeSet<TreeId>>,
    pub epoch: u64,
    pub next_volume: u64,
    pub next_tree: u64,
    /// Stored only by checkpoints: a change takes a checkpoint.
    pub attributes: GroupAttributes,
    /// The trees that C2 names.
    removable: BTreeSet<TreeId>,
    /// The points that are charged to a volume.
    charged: BTreeMap<VolumeId, BTreeSet<TreeId>>,
    /// The volumes that were made from another one.
    snapshots: BTreeMap<VolumeId, BTreeSet<VolumeId>>,
    /// For points that were searched for orphans: [`Catalog::orphans_at_most`] after the search. In memory only.
    pub searched: BTreeMap<TreeId, u64>,
    /// The epochs of `trees`.
    pub points: Arc<PointEpochs>,
}

impl Catalog {
    /// An empty catalog whose counters continue from these.
    pub fn new(
        epoch: u64,
        next_volume: u64,
        next_tree: u64,
        attributes: GroupAttributes,
        points: Arc<PointEpochs>,
    ) -> Catalog {
        Catalog {
            volumes: BTreeMap::new(),
            names: BTreeMap::new(),
            heads: BTreeMap::new(),
            trees: BTreeMap::new(),
            children: BTreeMap::new(),
            epoch,
            next_volume,
            next_tree,
            attributes,
            removable: BTreeSet::new(),
            charged: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            searched: BTreeMap::new(),
            points,
        }
    }

    pub fn insert_volume(&mut self, volume: Arc<Volume>) {
        let origin = volume.state.lock().meta.origin;
        // Also for an origin that is gone: ids are never used again.
        if let Some(origin) = origin {
            self.snapshots.entry(origin).or_default().insert(volume.id);
        }
        self.volumes.insert(volume.id, volume);
    }

    /// A record of a new volume or tree must name unused ids. Otherwise the record is not of this group.
    pub fn check_unknown(&self, volume: Option<VolumeId>, trees: &[TreeId]) -> Result<()> {
        let is_known = |tree: &TreeId| self.trees.contains_key(tree) || self.heads.contains_key(tree);
        if volume.is_some_and(|id| self.volumes.contains_key(&id)) || trees.iter().any(is_known) {
            return Err(Error::Corrupt {
                what: "journal record",
                place: "the journal".into(),
                detail: "what it makes is there already".into(),
            });
        }
        Ok(())
    }

    /// `origin`: the volume's origin, from its state, which the caller has locked.
    pub fn remove_volume(&mut self, id: VolumeId, origin: Option<VolumeId>) {
        self.volumes.remove(&id);
        forget(&mut self.snapshots, origin, &id);
    }

    /// The volumes that were made from this one, oldest first.
    pub fn snapshots_of(&self, id: VolumeId) -> impl Iterator<Item = VolumeId> + '_ {
        self.snapshots.get(&id).into_iter().flatten().copied()
    }

    /// Inserts a point or dying tree. Replaces a tree with the same id.
    pub fn insert_tree(&mut self, tree: TreeMeta) {
        let (id, charged) = (tree.id, tree.charged);
        self.points.add(tree.epoch);
        if let Some(before) = self.trees.insert(id, tree) {
            self.points.remove(before.epoch);
            forget(&mut self.charged, before.charged, &id);
        }
        if let Some(charged) = charged {
            self.charged.entry(charged).or_default().insert(id);
        }
        self.count_children(id);
    }

    pub fn remove_tree(&mut self, id: TreeId) -> Option<TreeMeta> {
        let tree = self.trees.remove(&id)?;
        self.points.remove(tree.epoch);
        forget(&mut self.charged, tree.charged.filter(|_| !planted::is("charge_not_dropped")), &id);
        self.removable.remove(&id);
        Some(tree)
    }

    /// The points that are charged to a volume.
    pub fn charged_to(&self, volume: VolumeId) -> impl Iterator<Item = TreeId> + '_ {
        self.charged.get(&volume).into_iter().flatten().copied()
    }

    /// C2 may apply to the tree now, or no longer apply.
    fn count_children(&mut self, id: TreeId) {
        let children = self.children.get(&id).map_or(0, BTreeSet::len);
        let most = usize::from(!planted::is("last_child_not_recorded"));
        if children <= most && self.trees.contains_key(&id) {
            self.removable.insert(id);
        } else {
            self.removable.remove(&id);
        }
    }

    /// C4: whether the cached facts equal the result of a search.
    pub fn is_consistent(&self) -> bool {
        let children = |tree: &TreeMeta| self.children.get(&tree.id).map_or(0, BTreeSet::len);
        let removable = self.trees.values().filter(|tree| children(tree) <= 1).map(|tree| tree.id);
        let mut charged: BTreeMap<VolumeId, BTreeSet<TreeId>> = BTreeMap::new();
        for tree in self.trees.values() {
            tree.charged.map(|snapshot| charged.entry(snapshot).or_default().insert(tree.id));
        }
        let mut snapshots: BTreeMap<VolumeId, BTreeSet<VolumeId>> = BTreeMap::new();
        for volume in self.volumes.values() {
            let origin = volume.state.lock().meta.origin.filter(|origin| self.volumes.contains_key(origin));
            origin.map(|origin| snapshots.entry(origin).or_default().insert(volume.id));
        }
        self.trees.values().all(|tree| tree.kind != TreeKind::Head)
            && removable.eq(self.removable.iter().copied())
            && self.charged == charged
            && self.snapshots.iter().filter(|(origin, _)| self.volumes.contains_key(origin)).eq(&snapshots)
    }

    pub fn add_child(&mut self, parent: Option<TreeId>, child: TreeId) {
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().insert(child);
            self.count_children(parent);
        }
    }

    pub fn remove_child(&mut self, parent: Option<TreeId>, child: TreeId) {
        if let Some(parent) = parent {
            forget(&mut self.children, Some(parent), &child);
            self.count_children(parent);
            // Without that child there may be more orphans.
            self.searched.remove(&parent);
        }
    }

    pub fn children_of(&self, tree: TreeId) -> impl Iterator<Item = TreeId> + '_ {
        self.children.get(&tree).into_iter().flatten().copied()
    }

    pub fn epoch_of(&self, tree: Option<TreeId>) -> Epoch {
        tree.and_then(|id| self.trees.get(&id)).map_or(Epoch(0), |t| t.epoch)
    }

    /// Merges counters of dead blocks in all trees, if a point has gone (N2).
    pub fn fold_dead(&mut self) {
        if !self.points.take_removed() {
            return;
        }
        self.trees.values_mut().for_each(|tree| self.points.fold(&mut tree.dead));
        self.volumes.values().for_each(|volume| self.points.fold(&mut volume.state.lock().head.dead));
    }

    /// The most counters of dead blocks that any tree has, and how many points there are (N2).
    pub fn max_dead_counters(&self) -> (usize, usize) {
        let of_trees = self.trees.values().map(|tree| tree.dead.len());
        let of_heads = self.volumes.values().map(|volume| volume.state.lock().head.dead.len());
        (of_trees.chain(of_heads).max().unwrap_or(0), self.points.count())
    }

    /// The next tree to remove or merge: the one in progress, otherwise any tree of C2.
    pub fn next_removal(&self) -> Option<TreeId> {
        if planted::is("newest_removed_first") {
            return self.removable().last().map(|t| t.id);
        }
        self.current_removal().or_else(|| self.removable().next().map(|t| t.id))
    }

    /// The trees in which a head with this parent finds its inherited mappings (D7): the parent and, for keys below the
    /// cursor of a dying one, the tree above it.
    pub fn inherited_from(&self, parent: Option<TreeId>) -> Ancestors {
        let mut found = Ancestors::new();
        let mut next = parent;
        while let Some(tree) = next.and_then(|id| self.trees.get(&id)) {
            found.push(tree.there());
            let goes_on = tree.first_key() > 0 && !planted::is("one_parent_inherited");
            // On a damaged image parents may be a circle.
            next = tree.parent.filter(|_| goes_on && found.len() <= self.trees.len());
        }
        found
    }

    /// The removal in progress (C3).
    pub fn current_removal(&self) -> Option<TreeId> {
        self.removable().find(|t| t.kind == TreeKind::Dying && t.cursor > 0).map(|t| t.id)
    }

    /// No volume is locked.
    fn removable(&self) -> impl Iterator<Item = &TreeMeta> {
        self.removable.iter().filter_map(|id| self.trees.get(id)).filter(|tree| !self.is_held(tree))
    }

    /// A point that may have at least `least` more orphans than at its last search.
    pub fn orphaned(&self, least: u64) -> Option<TreeId> {
        let points = self.children.iter().filter(|(_, children)| children.len() > 1).map(|(point, _)| *point);
        let worth = |point: &TreeId| {
            let before = self.searched.get(point).copied().unwrap_or(0);
            self.orphans_at_most(*point) >= before.saturating_add(least)
        };
        points.filter(|point| self.trees.get(point).is_some_and(|t| t.kind == TreeKind::Point)).find(worth)
    }

    /// An upper bound of a point's orphans: the least number of blocks that any of its children does not use.
    pub fn orphans_at_most(&self, point: TreeId) -> u64 {
        let lower = self.epoch_of(self.trees.get(&point).and_then(|point| point.parent));
        let unused = |tree: &TreeMeta| match tree.kind {
            // It will soon be no child, and does not count.
            TreeKind::Dying => 0,
            _ => dead_blocks::above(&tree.dead, lower),
        };
        let mut least = u64::MAX;
        for child in self.children_of(point) {
            least = least.min(self.with_tree(child, unused).unwrap_or(0));
            if least == 0 {
                break;
            }
        }
        if least == u64::MAX { 0 } else { least }
    }

    /// Calls `look` with a head, point or dying tree. A head's volume is locked meanwhile.
    pub fn with_tree<R>(&self, id: TreeId, look: impl FnOnce(&TreeMeta) -> R) -> Option<R> {
        match self.heads.get(&id).and_then(|volume| self.volumes.get(volume)) {
            Some(volume) => Some(look(&volume.state.lock().head)),
            None => self.trees.get(&id).map(look),
        }
    }

    /// The same, to change it.
    pub fn with_tree_mut<R>(&mut self, id: TreeId, change: impl FnOnce(&mut TreeMeta) -> R) -> Option<R> {
        match self.heads.get(&id).and_then(|volume| self.volumes.get(volume)) {
            Some(volume) => Some(change(&mut volume.state.lock().head)),
            None => self.trees.get_mut(&id).map(change),
        }
    }

    /// Blocks that removal may still have to examine. Every waiting tree counts, even without own blocks, because its
    /// merge may free blocks that its child has overwritten. 0 means that removal is done.
    pub fn reclaim_left(&self) -> u64 {
        let left = |t: &TreeMeta| (t.own.max(0) as u64).saturating_sub(t.progress).max(1);
        self.removable().map(left).sum()
    }
}

/// Takes a member out of the family of `of`. An empty family is removed.
fn forget<K: Ord, V: Ord>(families: &mut BTreeMap<K, BTreeSet<V>>, of: Option<K>, member: &V) {
    if let Some(of) = of
        && let Some(family) = families.get_mut(&of)
    {
        family.remove(member);
        if family.is_empty() {
            families.remove(&of);
        }
    }
}

/// An empty head.
pub(super) fn empty_head(id: TreeId, birth: Epoch) -> TreeMeta {
    TreeMeta {
        id,
        parent: None,
        kind: TreeKind::Head,
        epoch: Epoch(0),
        birth,
        tree: Tree::default(),
        mapped: 0,
        written: 0,
        own: 0,
        charged: None,
        cursor: 0,
        progress: 0,
        dead: Vec::new(),
    }
}

#[cfg(test)]
#[path = "catalog_test.rs"]
mod tests;
