//! What reports show: the group, its volumes, and counters.

use super::{Group, GroupInfo, PvInfo, Stats, VolumeInfo};
use crate::error::{Error, Result};
use crate::format::superblock::DATA_OFFSET;
use crate::units::{Epoch, TreeId, VolumeId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a tree's parent holds for it alone, by birth.
type Dead = Vec<(Epoch, u64)>;

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
        }
    }

    /// All volumes, in the order of their creation.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let catalog = self.catalog.read();
        let held = self.holders(&catalog);
        // What each child of a point holds there for the point alone.
        let mut dead: BTreeMap<TreeId, Vec<(TreeId, Dead)>> = BTreeMap::new();
        for tree in catalog.trees.values() {
            if let Some(parent) = tree.parent {
                dead.entry(parent).or_default().push((tree.id, tree.dead.clone()));
            }
        }
        for volume in catalog.volumes.values() {
            let state = volume.state.lock();
            if let Some(parent) = state.head.parent {
                dead.entry(parent).or_default().push((state.head.id, state.head.dead.clone()));
            }
        }
        let info = |volume: &std::sync::Arc<super::Volume>| {
            let state = volume.state.lock();
            let (meta, head) = (&state.meta, &state.head);
            let own = head.own.max(0) as u64;
            // With one other child left, the point goes, too: with it what only it still held for this volume.
            let others = head.parent.and_then(|p| dead.get(&p)).into_iter().flatten();
            let mut others = others.filter(|(id, _)| *id != head.id);
            let merged = match (others.next(), others.next()) {
                (Some((_, dead)), None) => {
                    let parent = head.parent.and_then(|p| catalog.trees.get(&p));
                    let lower = catalog.epoch_of(parent.and_then(|p| p.parent));
                    dead.iter().filter(|(birth, _)| *birth > lower).map(|(_, n)| n).sum()
                }
                _ => 0,
            };
            VolumeInfo {
                id: meta.id,
                name: meta.name.clone(),
                uuid: meta.uuid,
                kind: meta.kind,
                state: meta.state,
                blocks: meta.blocks,
                sector: meta.sector,
                chunk_blocks: meta.chunk_blocks,
                read_only: meta.read_only,
                full: meta.full,
                origin: meta.origin.filter(|o| catalog.volumes.contains_key(o)),
                reserve: meta.reserve,
                attributes: meta.attributes.clone(),
                referenced: head.written,
                exclusive: own,
                freed_if_removed: own + merged,
                snapshot_used: held.get(&meta.id).copied().unwrap_or(0),
            }
        };
        catalog.volumes.values().map(info).collect()
    }

    pub fn volume_info(&self, id: VolumeId) -> Result<VolumeInfo> {
        let found = self.volumes().into_iter().find(|v| v.id == id);
        found.ok_or_else(|| Error::NotFound(format!("volume {id}")))
    }
}
