//! The blocks that volumes and snapshots hold, from the counters of their trees.

use super::catalog::Catalog;
use crate::dead_blocks;
use crate::model::TreeKind;
use crate::units::{Epoch, TreeId, VolumeId};

/// Computes the blocks that snapshots hold. It locks one volume at a time, and only briefly: two reports that held one
/// lock while they took another could deadlock.
pub(super) struct SnapshotUsage<'a>(pub &'a Catalog);

impl SnapshotUsage<'_> {
    /// Blocks held for a snapshot: its own, and blocks that the other volumes under its point no longer use.
    pub fn held(&self, snapshot: VolumeId) -> u64 {
        let children = self.0.charged_to(snapshot).flat_map(|point| self.0.children_of(point));
        children.map(|child| self.share(child, snapshot)).sum()
    }

    fn share(&self, child: TreeId, snapshot: VolumeId) -> u64 {
        if let Some(volume) = self.0.heads.get(&child).and_then(|id| self.0.volumes.get(id)) {
            let state = volume.state.lock();
            return match volume.id == snapshot {
                true => state.head.own.max(0) as u64,
                false => dead_blocks::above(&state.head.dead, Epoch(0)),
            };
        }
        let tree = self.0.trees.get(&child).filter(|tree| tree.kind == TreeKind::Point);
        tree.map_or(0, |tree| dead_blocks::above(&tree.dead, Epoch(0)))
    }

    /// If the point has only one other child left, the point goes, too, with the blocks that only it still held.
    pub fn merged(&self, head: TreeId, parent: Option<TreeId>) -> u64 {
        let Some(parent) = parent else { return 0 };
        let mut others = self.0.children_of(parent).filter(|child| *child != head);
        let (Some(other), None) = (others.next(), others.next()) else { return 0 };
        let lower = self.0.epoch_of(self.0.trees.get(&parent).and_then(|point| point.parent));
        self.0.with_tree(other, |tree| dead_blocks::above(&tree.dead, lower)).unwrap_or(0)
    }
}
