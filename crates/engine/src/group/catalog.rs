//! The catalog: which volumes there are, and the tree of points and heads behind them (design section 5).
//!
//! * C1 A head belongs to exactly one volume; a point to none. Heads have no children.
//! * C2 A point with one child left, or none, is dying: its blocks go to the child, or back to free space.
//! * C3 At most one dying tree has a cursor above zero: removal does one thing at a time.

use crate::format::stream::{TreeKind, TreeMeta};
use crate::group::GroupAttributes;
use crate::units::{Epoch, TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
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
    /// Of the points that were searched for orphans: [`Catalog::orphans_at_most`] after the search. In memory alone.
    pub searched: BTreeMap<TreeId, u64>,
}

impl Catalog {
    pub fn add_child(&mut self, parent: Option<TreeId>, child: TreeId) {
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().insert(child);
        }
    }

    pub fn remove_child(&mut self, parent: Option<TreeId>, child: TreeId) {
        if let Some(parent) = parent
            && let Some(children) = self.children.get_mut(&parent)
        {
            children.remove(&child);
            if children.is_empty() {
                self.children.remove(&parent);
            }
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

    /// The next tree to remove or merge: one under way, else any that C2 names.
    pub fn next_removal(&self) -> Option<TreeId> {
        let started = self.trees.values().find(|t| t.kind == TreeKind::Dying && t.cursor > 0);
        started.or_else(|| self.removable().next()).map(|t| t.id)
    }

    /// The trees that C2 names. Both maps are walked side by side: with ten thousand snapshots a search for each tree's
    /// children would be the longest part of a report.
    fn removable(&self) -> impl Iterator<Item = &TreeMeta> {
        let mut families = self.children.iter().peekable();
        self.trees.values().filter(move |tree| {
            while families.next_if(|(parent, _)| **parent < tree.id).is_some() {}
            let children = families.next_if(|(parent, _)| **parent == tree.id).map_or(0, |(_, family)| family.len());
            tree.kind != TreeKind::Head && children <= 1
        })
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
            _ => tree.dead.iter().filter(|(birth, _)| *birth > lower).map(|(_, blocks)| blocks).sum(),
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
