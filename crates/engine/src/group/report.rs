//! What reports show: the group, its volumes, and counters.

use super::catalog::Catalog;
use super::{Group, GroupInfo, PvInfo, Stats, Volume, VolumeInfo};
use crate::error::{Error, Result};
use crate::fixed_hash::Map;
use crate::format::stream::{TreeKind, TreeMeta, VolumeMeta};
use crate::format::superblock::DATA_OFFSET;
use crate::units::{Epoch, TreeId, VolumeId};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Group {
    pub fn info(&self) -> GroupInfo {
        let (sequence, group) = {
            let root = self.root.lock();
            (root.sequence, root.group.clone())
        };
        let (reclaim_left, attributes) = {
            let catalog = self.catalog.read();
            (catalog.reclaim_left(), catalog.attributes.clone())
        };
        let extent_blocks = group.extent_blocks;
        let extents = group.pvs.iter().map(|pv| pv.extents).sum();
        let space = self.core.space.lock();
        let free_extents = space.available() / extent_blocks;
        let mut left = free_extents;
        // Blocks in open arenas and promises belong to no physical volume yet: the last ones give them up first.
        let pvs = group.pvs.iter().zip(space.pv_free()).map(|(pv, (_, free))| {
            let share = (free.div_ceil(extent_blocks)).min(left);
            left -= share;
            PvInfo { uuid: pv.uuid, size: pv.size, data_offset: DATA_OFFSET, extents: pv.extents, free_extents: share }
        });
        let pvs = pvs.collect();
        GroupInfo {
            uuid: group.uuid,
            name: group.name,
            extent_blocks,
            extents,
            free_extents,
            blocks: extents * extent_blocks,
            free_blocks: space.free_blocks(),
            promised_blocks: space.promised(),
            pending_blocks: space.pending_blocks(),
            metadata_blocks: self.core.meta.lock().total() * 2 + group.journal_blocks,
            sequence,
            attributes,
            pvs,
            reclaim_left,
        }
    }

    pub fn stats(&self) -> Stats {
        let counters = &self.core.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (journal_frames, journal_records, device_flushes) = self.core.journal.counts();
        Stats {
            writes_in_place: get(&counters.writes_in_place),
            writes_redirected: get(&counters.writes_redirected),
            journal_frames,
            journal_records,
            device_flushes,
            checkpoints: get(&counters.checkpoints),
            nodes_written: get(&counters.nodes_written),
            node_loads: get(&counters.node_loads),
            waits_for_marker: get(&counters.waits_for_marker),
            recovered: get(&counters.recovered),
            recovery_skipped: get(&counters.recovery_skipped),
            slots_taken: self.core.space.lock().slots_taken(),
            reclaim_steps: get(&counters.reclaim_steps),
            orphans_freed: get(&counters.orphans_freed),
            volumes_invalidated: get(&counters.volumes_invalidated),
            dirty_most: get(&counters.dirty_most),
        }
    }

    /// All volumes, in the order of their creation.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let catalog = self.catalog.read();
        let holdings = Holdings::of_all(&catalog);
        catalog.volumes.values().map(|volume| holdings.info(volume)).collect()
    }

    pub fn volume_info(&self, id: VolumeId) -> Result<VolumeInfo> {
        let catalog = self.catalog.read();
        let volume = catalog.volumes.get(&id).ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        Ok(Holdings::of_one(&catalog, id).info(volume))
    }

    /// The volumes of which `wanted` says so, by what was given with them and their size.
    pub fn volumes_where(&self, mut wanted: impl FnMut(&VolumeMeta) -> bool) -> Vec<VolumeInfo> {
        let catalog = self.catalog.read();
        let mut is_wanted = |volume: &&Arc<Volume>| wanted(&volume.state.lock().meta);
        let chosen: Vec<&Arc<Volume>> = catalog.volumes.values().filter(|volume| is_wanted(volume)).collect();
        let holdings = match &chosen[..] {
            [] => return Vec::new(),
            [one] => Holdings::of_one(&catalog, one.id),
            _ => Holdings::of_all(&catalog),
        };
        chosen.into_iter().map(|volume| holdings.info(volume)).collect()
    }

    /// Whether `wanted` says so of any volume.
    pub fn any_volume(&self, mut wanted: impl FnMut(&VolumeMeta) -> bool) -> bool {
        self.catalog.read().volumes.values().any(|volume| wanted(&volume.state.lock().meta))
    }
}

/// What is held for snapshots, and for others through them. A volume's lock is held for a moment only: two reports that
/// held one while they took another would wait for each other.
pub(super) struct Holdings<'a> {
    catalog: &'a Catalog,
    /// The points that are charged to a volume.
    guarded: Map<VolumeId, SmallVec<[TreeId; 1]>>,
}

impl<'a> Holdings<'a> {
    pub fn of_all(catalog: &'a Catalog) -> Holdings<'a> {
        Holdings::new(catalog, |_| true)
    }

    /// Of this volume only.
    pub fn of_one(catalog: &'a Catalog, id: VolumeId) -> Holdings<'a> {
        Holdings::new(catalog, |guard| guard == id)
    }

    fn new(catalog: &'a Catalog, wanted: impl Fn(VolumeId) -> bool) -> Holdings<'a> {
        let mut guarded: Map<VolumeId, SmallVec<[TreeId; 1]>> = Map::default();
        for tree in catalog.trees.values() {
            if let Some(guard) = tree.guard.filter(|guard| wanted(*guard)) {
                guarded.entry(guard).or_default().push(tree.id);
            }
        }
        Holdings { catalog, guarded }
    }

    /// Blocks held for a snapshot: its own, and what the others under its point no longer use.
    pub fn held(&self, snapshot: VolumeId) -> u64 {
        let points = self.guarded.get(&snapshot).into_iter().flatten();
        points.flat_map(|point| self.catalog.children_of(*point)).map(|child| self.share(child, snapshot)).sum()
    }

    fn share(&self, child: TreeId, snapshot: VolumeId) -> u64 {
        if let Some(volume) = self.catalog.heads.get(&child).and_then(|id| self.catalog.volumes.get(id)) {
            let state = volume.state.lock();
            return match volume.id == snapshot {
                true => state.head.own.max(0) as u64,
                false => dead_above(&state.head, Epoch(0)),
            };
        }
        let tree = self.catalog.trees.get(&child).filter(|tree| tree.kind == TreeKind::Point);
        tree.map_or(0, |tree| dead_above(tree, Epoch(0)))
    }

    /// With one other child of its point left, that goes, too: with it what only it still held for this volume.
    fn merged(&self, head: TreeId, parent: Option<TreeId>) -> u64 {
        let Some(parent) = parent else { return 0 };
        let mut others = self.catalog.children_of(parent).filter(|child| *child != head);
        let (Some(other), None) = (others.next(), others.next()) else { return 0 };
        let lower = self.catalog.epoch_of(self.catalog.trees.get(&parent).and_then(|point| point.parent));
        self.catalog.with_tree(other, |tree| dead_above(tree, lower)).unwrap_or(0)
    }

    fn info(&self, volume: &Volume) -> VolumeInfo {
        let state = volume.state.lock();
        let (meta, head) = (state.meta.clone(), state.head.id);
        let (parent, referenced, own) = (state.head.parent, state.head.written, state.head.own.max(0) as u64);
        drop(state);
        VolumeInfo {
            freed_if_removed: own + self.merged(head, parent),
            snapshot_used: self.held(meta.id),
            id: meta.id,
            name: meta.name,
            uuid: meta.uuid,
            kind: meta.kind,
            state: meta.state,
            blocks: meta.blocks,
            sector: meta.sector,
            chunk_blocks: meta.chunk_blocks,
            read_only: meta.read_only,
            full: meta.full,
            origin: meta.origin.filter(|origin| self.catalog.volumes.contains_key(origin)),
            reserve: meta.reserve,
            attributes: meta.attributes,
            referenced,
            exclusive: own,
        }
    }
}

/// Blocks younger than `lower` that the tree's parent maps and it does not.
fn dead_above(tree: &TreeMeta, lower: Epoch) -> u64 {
    tree.dead.iter().filter(|(birth, _)| *birth > lower).map(|(_, blocks)| blocks).sum()
}
