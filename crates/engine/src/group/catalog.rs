//! The catalog: which volumes there are, and the tree of points and heads behind them (docs/design.md, section 6).
//!
//! * C1 A head belongs to exactly one volume; a point to none. Heads have no children.
//! * C2 A point with one child left, or none, is dying: its blocks go to the child, or back to free space. One that is held stays (HO1).
//! * C3 At most one dying tree has a cursor above zero: removal does one thing at a time. What a point took over below the cursor of
//!   its parent's merge is as old as that parent: if the point were merged meanwhile, neither merge would free it.
//! * C4 What can be asked of thousands of trees and volumes without looking at each is kept beside them: which trees C2
//!   names, which points are charged to a volume, which snapshots a volume has. Trees and volumes come and go by
//!   [`Catalog::insert_tree`] and its sisters alone; with debug assertions each checkpoint compares.

use crate::dead::{self, Points};
use crate::error::{Error, Result};
use crate::model::{GroupAttributes, Tree, TreeKind, TreeMeta};
use crate::planted;
use crate::units::{Epoch, TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct Catalog {
    pub volumes: BTreeMap<VolumeId, Arc<Volume>>,
    pub names: BTreeMap<String, VolumeId>,
    /// Whose head a tree is (C1).
    pub heads: BTreeMap<TreeId, VolumeId>,
    /// Points and dying trees. Heads live in their volumes.
    pub trees: BTreeMap<TreeId, TreeMeta>,
    pub children: BTreeMap<TreeId, BTreeSet<TreeId>>,
    pub epoch: u64,
    pub next_volume: u64,
    pub next_tree: u64,
    /// Kept by checkpoints alone: who changes them takes one.
    pub attributes: GroupAttributes,
    /// The trees that C2 names.
    removable: BTreeSet<TreeId>,
    /// The points that are charged to a volume.
    charged: BTreeMap<VolumeId, BTreeSet<TreeId>>,
    /// The volumes that were made from another one.
    snapshots: BTreeMap<VolumeId, BTreeSet<VolumeId>>,
    /// Of the points that were searched for orphans: [`Catalog::orphans_at_most`] after the search. In memory alone.
    pub searched: BTreeMap<TreeId, u64>,
    /// The epochs of `trees`.
    pub points: Arc<Points>,
}

impl Catalog {
    /// An empty one that counts on from these.
    pub fn new(
        epoch: u64,
        next_volume: u64,
        next_tree: u64,
        attributes: GroupAttributes,
        points: Arc<Points>,
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
        // Also of an origin that is gone: nobody asks for it, and ids are never used again.
        if let Some(origin) = origin {
            self.snapshots.entry(origin).or_default().insert(volume.id);
        }
        self.volumes.insert(volume.id, volume);
    }

    /// A record of something new names ids that nothing has. One that does not is no record of this group.
    pub fn refuse_known(&self, volume: Option<VolumeId>, trees: &[TreeId]) -> Result<()> {
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

    /// `origin`: what the volume was made from, which its state says; who removes a volume has that locked.
    pub fn remove_volume(&mut self, id: VolumeId, origin: Option<VolumeId>) {
        self.volumes.remove(&id);
        forget(&mut self.snapshots, origin, &id);
    }

    /// The volumes that were made from this one, oldest first.
    pub fn snapshots_of(&self, id: VolumeId) -> impl Iterator<Item = VolumeId> + '_ {
        self.snapshots.get(&id).into_iter().flatten().copied()
    }

    /// A point or dying tree. One that is there under this id is replaced.
    pub fn insert_tree(&mut self, tree: TreeMeta) {
        let (id, charged) = (tree.id, tree.charged);
        self.points.came(tree.epoch);
        if let Some(before) = self.trees.insert(id, tree) {
            self.points.went(before.epoch);
            forget(&mut self.charged, before.charged, &id);
        }
        if let Some(charged) = charged {
            self.charged.entry(charged).or_default().insert(id);
        }
        self.count_children(id);
    }

    pub fn remove_tree(&mut self, id: TreeId) -> Option<TreeMeta> {
        let tree = self.trees.remove(&id)?;
        self.points.went(tree.epoch);
        forget(&mut self.charged, tree.charged.filter(|_| !planted::is("charged_kept")), &id);
        self.removable.remove(&id);
        Some(tree)
    }

    /// The points that are charged to a volume.
    pub fn charged_to(&self, volume: VolumeId) -> impl Iterator<Item = TreeId> + '_ {
        self.charged.get(&volume).into_iter().flatten().copied()
    }

    /// Whether C2 names the tree may have changed.
    fn count_children(&mut self, id: TreeId) {
        let children = self.children.get(&id).map_or(0, BTreeSet::len);
        let most = usize::from(!planted::is("heir_not_named"));
        if children <= most && self.trees.contains_key(&id) {
            self.removable.insert(id);
        } else {
            self.removable.remove(&id);
        }
    }

    /// C4: whether what is kept beside trees and volumes is what a look at each of them finds.
    pub fn is_kept_well(&self) -> bool {
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
            // Without that child more may be nobody's.
            self.searched.remove(&parent);
        }
    }

    pub fn children_of(&self, tree: TreeId) -> impl Iterator<Item = TreeId> + '_ {
        self.children.get(&tree).into_iter().flatten().copied()
    }

    pub fn epoch_of(&self, tree: Option<TreeId>) -> Epoch {
        tree.and_then(|id| self.trees.get(&id)).map_or(Epoch(0), |t| t.epoch)
    }

    /// Gives births between which no point is left one counter in all trees, if a point has gone (N2).
    pub fn fold_dead(&mut self) {
        if !self.points.take_gone() {
            return;
        }
        self.trees.values_mut().for_each(|tree| self.points.fold(&mut tree.dead));
        self.volumes.values().for_each(|volume| self.points.fold(&mut volume.state.lock().head.dead));
    }

    /// The most counters of dead blocks that any tree has, and how many points there are (N2).
    pub fn most_dead(&self) -> (usize, usize) {
        let of_trees = self.trees.values().map(|tree| tree.dead.len());
        let of_heads = self.volumes.values().map(|volume| volume.state.lock().head.dead.len());
        (of_trees.chain(of_heads).max().unwrap_or(0), self.points.count())
    }

    /// The next tree to remove or merge: one under way, else any that C2 names.
    pub fn next_removal(&self) -> Option<TreeId> {
        if planted::is("newest_removed_first") {
            return self.removable().last().map(|t| t.id);
        }
        self.removal_under_way().or_else(|| self.removable().next().map(|t| t.id))
    }

    /// The removal that has come some way (C3).
    pub fn removal_under_way(&self) -> Option<TreeId> {
        self.removable().find(|t| t.kind == TreeKind::Dying && t.cursor > 0).map(|t| t.id)
    }

    /// No volume is locked.
    fn removable(&self) -> impl Iterator<Item = &TreeMeta> {
        self.removable.iter().filter_map(|id| self.trees.get(id)).filter(|tree| !self.is_held(tree))
    }

    /// A point whose children may have ceased to use at least `least` blocks more than when it was last searched.
    pub fn orphaned(&self, least: u64) -> Option<TreeId> {
        let points = self.children.iter().filter(|(_, children)| children.len() > 1).map(|(point, _)| *point);
        let worth = |point: &TreeId| {
            let before = self.searched.get(point).copied().unwrap_or(0);
            self.orphans_at_most(*point) >= before.saturating_add(least)
        };
        points.filter(|point| self.trees.get(point).is_some_and(|t| t.kind == TreeKind::Point)).find(worth)
    }

    /// Blocks of a point that none of its children uses: no more than the least that any one of them does not use.
    pub fn orphans_at_most(&self, point: TreeId) -> u64 {
        let lower = self.epoch_of(self.trees.get(&point).and_then(|point| point.parent));
        let unused = |tree: &TreeMeta| match tree.kind {
            // Soon it is no child, and does not count.
            TreeKind::Dying => 0,
            _ => dead::above(&tree.dead, lower),
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

    /// Looks at a head, point or dying tree. A head's volume is locked meanwhile.
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

    /// Blocks that removal may still have to look at. A tree that waits for removal counts, also when none is its own:
    /// its merge may free what its child wrote over. 0 means that removal is done.
    pub fn reclaim_left(&self) -> u64 {
        let left = |t: &TreeMeta| (t.own.max(0) as u64).saturating_sub(t.progress).max(1);
        self.removable().map(left).sum()
    }
}

/// Takes a member out of the family of `of`; a family without members is none.
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

/// A head that maps nothing.
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
