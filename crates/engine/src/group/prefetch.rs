//! Read-ahead for recovery: reads the tree nodes that the next records need, many at a time, so that records need not
//! wait for each node. It only warms the cache. If a read fails here, the apply of the record meets the same error and
//! reports it.

use super::Group;
use crate::format::journal::Record;
use crate::map::{self, Extents, MapError, NODE_COST, NodeRef};
use crate::model::Tree;
use crate::units::Seq;
use std::collections::BTreeSet;

/// The most records in one batch.
const WINDOW: usize = 512;
/// No tree is higher in practice. Deeper nodes are read one by one.
const ROUNDS: usize = 8;
/// Nodes that a record may need: two trees, some levels each.
const NODES_OF_A_RECORD: usize = 8;

/// A lookup: a tree, and a key in it.
type Lookup = (Tree, u64);

impl Group {
    /// How many records form a batch: their nodes must stay in the cache until they are used.
    pub(super) fn batch_records(&self) -> usize {
        (self.core.config.cache_bytes / NODE_COST as usize / NODES_OF_A_RECORD / 4).clamp(1, WINDOW)
    }

    /// Reads the nodes of the maps that these records change.
    pub(super) async fn prefetch_maps(&self, records: &[(Seq, Record, bool)]) {
        self.prefetch(|| {
            let catalog = self.catalog.read();
            let mut lookups = Vec::new();
            for (_, record, _) in records {
                let (id, keys): (_, Vec<u64>) = match record {
                    Record::Write { volume, extents } => (volume, extents.iter().map(|e| e.lv_block.0).collect()),
                    Record::Unmap { volume, start, .. } => (volume, vec![start.0]),
                    _ => continue,
                };
                // A volume that an earlier record of the batch creates has no nodes yet.
                let Some(volume) = catalog.volumes.get(id) else { continue };
                let (head, parent) = {
                    let state = volume.state.lock();
                    (state.head.tree, state.head.parent)
                };
                lookups.extend(keys.iter().map(|key| (head, *key)));
                for above in catalog.inherited_from(parent).iter().filter(|above| above.tree != head) {
                    let there = keys.iter().filter(|key| **key >= above.first_key);
                    lookups.extend(there.map(|key| (above.tree, *key)));
                }
            }
            lookups
        })
        .await;
    }

    /// Reads the nodes of the free tree around these blocks.
    pub(super) async fn prefetch_free_tree(&self, blocks: impl Fn() -> Vec<u64>) {
        self.prefetch(|| {
            let tree = self.core.space.lock().free_tree();
            blocks().into_iter().map(|block| (tree, block)).collect()
        })
        .await;
    }

    /// Level by level, because nodes in memory name the missing ones.
    async fn prefetch(&self, lookups: impl Fn() -> Vec<Lookup>) {
        let mut before = BTreeSet::new();
        for _ in 0..ROUNDS {
            let missing: BTreeSet<(NodeRef, u8)> = lookups().iter().filter_map(|place| self.missing(place)).collect();
            if missing.is_empty() || missing == before || !self.core.load_together(&missing).await {
                return;
            }
            before = missing;
        }
    }

    fn missing(&self, (tree, key): &Lookup) -> Option<(NodeRef, u8)> {
        match map::lookup(&self.core.cache, tree, *key, key.saturating_add(1), &mut Extents::new()) {
            Err(MapError::Missing(node, level)) => Some((node, level)),
            _ => None,
        }
    }
}

/// The first block of each run that these records allocated.
pub(super) fn allocated_blocks(records: &[(Seq, Record, bool)]) -> Vec<u64> {
    let writes = records.iter().filter_map(|(_, record, _)| match record {
        Record::Write { extents, .. } => Some(extents),
        _ => None,
    });
    writes.flatten().map(|extent| extent.vg_block.0).collect()
}
