//! Reports: the group, its volumes, and counters.

use super::catalog::Catalog;
use super::point::HeadState;
use super::progress::{CheckProgress, RehomeProgress};
use super::snapshot_usage::SnapshotUsage;
use super::{Group, Volume, pools};
use crate::dead_blocks;
use crate::error::{Error, Result};
use crate::fixed_hash::Map;
use crate::format::superblock::DATA_OFFSET;
use crate::model::{GroupInfo, PvInfo, SegmentType, Stats, TreeKind, TreeMeta, VolumeInfo, VolumeMeta};
use crate::units::{Epoch, VolumeId};
use std::collections::BTreeSet;
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
        let out = self.out();
        let space = self.core.space.lock();
        let reserved = space.reserved_for(SegmentType::Linear);
        let free_extents = space.free_for(SegmentType::Linear).saturating_sub(reserved) / extent_blocks;
        let allocatable_extents = (space.available() / extent_blocks).min(free_extents);
        // What can be taken, and what cannot.
        let mut left = [allocatable_extents, free_extents - allocatable_extents];
        // Blocks in open arenas and reservations belong to no physical volume yet. They are subtracted from the last
        // ones first.
        let pvs = group.pvs.iter().zip(space.pvs().free()).enumerate().map(|(index, (pv, free))| {
            // While all of it moves none is taken, too; that is no property of it.
            let is_allocatable = !attributes.unallocatable.has(index) && !out.has(index);
            let left = &mut left[usize::from(!space.pvs().is_allocatable(index))];
            let share = free.div_ceil(extent_blocks).min(*left);
            *left -= share;
            PvInfo {
                uuid: pv.uuid,
                size: pv.size,
                data_offset: DATA_OFFSET,
                extents: pv.extents,
                free_extents: share,
                free_blocks: free,
                is_allocatable,
                is_missing: out.has(index),
            }
        });
        let pvs = pvs.collect();
        let (journal_copies, journal_copies_written) = self.journal_copies();
        GroupInfo {
            uuid: group.uuid,
            name: group.name,
            extent_blocks,
            extents,
            free_extents,
            allocatable_extents,
            blocks: self.core.placement().count(),
            free_blocks: space.free_blocks(),
            available_blocks: space.available(),
            reserved_blocks: space.reserved_blocks(),
            pending_blocks: space.pending_blocks(),
            metadata_blocks: self.core.meta.lock().total() * 2 + journal_copies * group.journal_blocks,
            journal_copies,
            journal_copies_written,
            sequence,
            lineage: group.lineage,
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
            writes_again: get(&counters.writes_again),
            waits_for_marker: get(&counters.waits_for_marker),
            recovered: get(&counters.recovered),
            recovery_skipped: get(&counters.recovery_skipped),
            slots_taken: self.core.space.lock().slots_taken(),
            reclaim_steps: get(&counters.reclaim_steps),
            orphans_freed: get(&counters.orphans_freed),
            windows_rehomed: get(&counters.windows_rehomed),
            windows_filled: get(&counters.windows_filled),
            blocks_filled: get(&counters.blocks_filled),
            fills_without_room: get(&counters.fills_without_room),
            volumes_invalidated: get(&counters.volumes_invalidated),
            copies_not_written: get(&counters.copies_not_written),
            nodes_lost: get(&counters.nodes_lost),
            ring_blocks_bad: self.core.journal.bad_blocks(),
            dirty_most: get(&counters.dirty_most),
        }
    }

    /// The volume that is being re-homed now. None: no volume is.
    pub fn rehome_progress(&self) -> Option<RehomeProgress> {
        let waiting = self.to_rehome.lock().len() + self.to_fill.lock().len();
        let (id, at) = self.progress.rehoming()?;
        let volume = self.catalog.read().volumes.get(&id).cloned()?;
        let state = volume.state.lock();
        let blocks = state.meta.blocks;
        Some(RehomeProgress { name: state.meta.name.clone(), at: at.min(blocks), blocks, waiting: waiting as u64 })
    }

    /// The progress of the last check. None: no check is running.
    pub fn check_progress(&self) -> Option<CheckProgress> {
        self.progress.check()
    }

    /// A text for each bad run of the journal's ring.
    pub fn bad_places(&self) -> Vec<String> {
        let root = self.root.lock().written.clone();
        self.core.placement().bad_places(&root)
    }

    /// The most counters of dead blocks that any tree has, and how many points there are: the first is not above the second after a
    /// checkpoint, however old the group is.
    pub fn max_dead_counters(&self) -> (usize, usize) {
        self.catalog.read().max_dead_counters()
    }

    /// All volumes, in the order of their creation.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let catalog = self.catalog.read();
        let mut sums = Sums::default();
        let mut volumes: Vec<VolumeInfo> = Vec::with_capacity(catalog.volumes.len());
        for volume in catalog.volumes.values() {
            let state = volume.state.lock();
            sums.add(&catalog, &state.head, Some(volume.id));
            volumes.push(bare_info(&catalog, state.stored_meta(), &state.head));
            let seen = HeadState::of(&state.meta, &state.head);
            drop(state);
            let last = volumes.last_mut().expect("one was added");
            (last.point, last.moment) = (catalog.identity(seen), catalog.point_epoch(last.id, seen));
        }
        catalog.trees.values().for_each(|tree| sums.add(&catalog, tree, None));
        for volume in &mut volumes {
            volume.snapshot_used = sums.held.get(&volume.id).copied().unwrap_or(0);
            volume.freed_if_removed += sums.merged.get(&volume.id).copied().unwrap_or(0);
        }
        measure_pools(&catalog, &mut volumes);
        volumes
    }

    /// The thin pools.
    pub fn pools(&self) -> Vec<VolumeInfo> {
        self.volumes_where(pools::is_pool)
    }

    pub fn volume_count(&self) -> usize {
        self.catalog.read().volumes.len()
    }

    pub fn volume_info(&self, id: VolumeId) -> Result<VolumeInfo> {
        let catalog = self.catalog.read();
        let volume = catalog.volumes.get(&id).ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let mut info = [SnapshotUsage(&catalog).info(volume)];
        measure_pools(&catalog, &mut info);
        let [info] = info;
        Ok(info)
    }

    /// The volumes for which `wanted` is true, given their metadata.
    pub fn volumes_where(&self, mut wanted: impl FnMut(&VolumeMeta) -> bool) -> Vec<VolumeInfo> {
        let catalog = self.catalog.read();
        let chosen = catalog.volumes.values().filter(|volume| wanted(&volume.state.lock().meta));
        SnapshotUsage(&catalog).infos(chosen)
    }

    /// The named volumes, their snapshots, the snapshots of these and so on, and the origins of all of them. Does not
    /// read every volume of the group. In the order of creation; unknown names are skipped.
    pub fn family(&self, names: &[String]) -> Vec<VolumeInfo> {
        let catalog = self.catalog.read();
        let mut found: BTreeSet<VolumeId> = BTreeSet::new();
        let mut ahead: Vec<VolumeId> = names.iter().filter_map(|name| catalog.names.get(name).copied()).collect();
        while let Some(id) = ahead.pop() {
            if found.insert(id) {
                ahead.extend(catalog.snapshots_of(id));
            }
        }
        let origin = |id: &VolumeId| catalog.volumes.get(id).and_then(|volume| volume.state.lock().meta.origin);
        let mut above: Vec<VolumeId> = found.iter().filter_map(origin).collect();
        while let Some(id) = above.pop() {
            if found.insert(id) {
                above.extend(origin(&id));
            }
        }
        let volumes = found.iter().filter_map(|id| catalog.volumes.get(id));
        SnapshotUsage(&catalog).infos(volumes)
    }

    /// The snapshots of a volume, without theirs.
    pub fn snapshots_of(&self, id: VolumeId) -> Vec<VolumeInfo> {
        let catalog = self.catalog.read();
        let volumes = catalog.snapshots_of(id).filter_map(|id| catalog.volumes.get(&id));
        SnapshotUsage(&catalog).infos(volumes)
    }

    /// The valid snapshots that have a reserve.
    pub fn reserved(&self) -> Vec<VolumeInfo> {
        let mut ids = self.core.space.lock().reserved();
        ids.sort_unstable();
        let catalog = self.catalog.read();
        let volumes = ids.iter().filter_map(|id| catalog.volumes.get(id));
        SnapshotUsage(&catalog).infos(volumes)
    }

    /// Whether `wanted` is true for any volume.
    pub fn any_volume(&self, mut wanted: impl FnMut(&VolumeMeta) -> bool) -> bool {
        self.catalog.read().volumes.values().any(|volume| wanted(&volume.state.lock().meta))
    }
}

impl SnapshotUsage<'_> {
    fn infos<'v>(&self, volumes: impl Iterator<Item = &'v Arc<Volume>>) -> Vec<VolumeInfo> {
        let mut infos: Vec<VolumeInfo> = volumes.map(|volume| self.info(volume)).collect();
        measure_pools(self.0, &mut infos);
        infos
    }

    /// Without the use of pools: see [`measure_pools`].
    fn info(&self, volume: &Volume) -> VolumeInfo {
        let state = volume.state.lock();
        let (head, parent) = (state.head.id, state.head.parent);
        let info = bare_info(self.0, state.stored_meta(), &state.head);
        let seen = HeadState::of(&state.meta, &state.head);
        drop(state);
        VolumeInfo {
            point: self.0.identity(seen),
            moment: self.0.point_epoch(info.id, seen),
            freed_if_removed: info.freed_if_removed + self.merged(head, parent),
            snapshot_used: self.held(info.id),
            ..info
        }
    }
}

/// Sets the use of the pools among these volumes: one measurement for all of them, and none if there is no pool.
fn measure_pools(catalog: &Catalog, volumes: &mut [VolumeInfo]) {
    let is_pool = |volume: &VolumeInfo| pools::is_pool_name(&volume.name, &volume.attributes);
    if !volumes.iter().any(is_pool) {
        return;
    }
    let usage = pools::Usage::of(catalog);
    volumes.iter_mut().filter(|volume| is_pool(volume)).for_each(|pool| pool.referenced = usage.used(&pool.name));
}

/// The report of one volume, without blocks that are held for it elsewhere.
fn bare_info(catalog: &Catalog, meta: VolumeMeta, head: &TreeMeta) -> VolumeInfo {
    let own = head.own.max(0) as u64;
    VolumeInfo {
        id: meta.id,
        name: meta.name,
        uuid: meta.uuid,
        kind: meta.kind,
        segment: meta.segment,
        state: meta.state,
        blocks: meta.blocks,
        sector: meta.sector,
        chunk_blocks: meta.chunk_blocks,
        read_only: meta.read_only,
        full: meta.full,
        origin: meta.origin.filter(|origin| catalog.volumes.contains_key(origin)),
        reserve: meta.reserve,
        attributes: meta.attributes,
        referenced: head.written,
        exclusive: own,
        freed_if_removed: own,
        snapshot_used: 0,
        point: None,
        moment: None,
    }
}

/// The same sums as [`SnapshotUsage`], for all volumes at once: each tree adds its counters to the sums of others. Of
/// thousands of volumes most were never written to, and add nothing.
#[derive(Default)]
struct Sums {
    held: Map<VolumeId, u64>,
    merged: Map<VolumeId, u64>,
}

impl Sums {
    /// `of`: the volume whose head the tree is.
    fn add(&mut self, catalog: &Catalog, tree: &TreeMeta, of: Option<VolumeId>) {
        if tree.own <= 0 && tree.dead.is_empty() {
            return;
        }
        let Some(parent) = tree.parent.and_then(|parent| catalog.trees.get(&parent)) else { return };
        if let Some(charged) = parent.charged {
            let share = match (of, tree.kind) {
                (Some(of), _) if of == charged => tree.own.max(0) as u64,
                (Some(_), _) | (None, TreeKind::Point) => dead_blocks::above(&tree.dead, Epoch(0)),
                _ => 0,
            };
            *self.held.entry(charged).or_default() += share;
        }
        let mut others = catalog.children_of(parent.id).filter(|child| *child != tree.id);
        if let (Some(other), None) = (others.next(), others.next())
            && let Some(other) = catalog.heads.get(&other)
        {
            *self.merged.entry(*other).or_default() += dead_blocks::above(&tree.dead, catalog.epoch_of(parent.parent));
        }
    }
}
