//! Replay: recovery applies the records of the journal, with the functions of the running group (G3).

use super::Group;
use super::catalog::{Catalog, empty_head};
use super::prefetch::allocated_blocks;
use super::read::replay_corrupt;
use super::snapshot_usage::SnapshotUsage;
use crate::core::count;
use crate::error::{Error, Result};
use crate::format::journal::Record;
use crate::model::VolumeMeta;
use crate::space::Reserve;
use crate::units::{Epoch, Seq, VolumeId};
use crate::volume::Volume;
use crate::volume::state::{State, apply_place, apply_unmap, apply_write};
use std::sync::Arc;

impl Group {
    /// Applies the records. First it takes all blocks that they name out of free space, so that nothing else is put
    /// there.
    pub(super) async fn replay(self: &Arc<Self>, records: Vec<(Seq, Record, bool)>) -> Result<()> {
        let applied: Vec<_> = records
            .into_iter()
            .filter(|(_, _, good)| {
                if !good {
                    count(&self.core.counters.recovery_skipped);
                }
                *good
            })
            .collect();
        if self.core.planted("discarded_before_replay") {
            self.discard_to_back_areas().await?;
        }
        let placement = self.core.placement();
        let window = self.batch_records();
        let inside = |start: u64, len: u64| placement.holds(start, len);
        for (at, (_, record, _)) in applied.iter().enumerate() {
            if at % window == 0 {
                let records = &applied[at..applied.len().min(at + window)];
                self.prefetch_free_tree(|| allocated_blocks(records)).await;
            }
            let runs: Vec<(u64, u64)> = match record {
                Record::Write { extents, .. } => extents.iter().map(|e| (e.vg_block.0, u64::from(e.len))).collect(),
                Record::Create { placed, .. } | Record::Resize { placed, .. } => {
                    placed.iter().map(|p| (p.vg_block.0, p.len)).collect()
                }
                _ => Vec::new(),
            };
            for (start, len) in runs {
                if !inside(start, len) || len == 0 {
                    return Err(Error::Corrupt {
                        what: "journal record",
                        place: "the journal".into(),
                        detail: format!("blocks {start}+{len} lie outside the group"),
                    });
                }
                self.core
                    .with_nodes_privileged(|| self.core.space.lock().mark_used(self.core.alloc_context(), (start, len)))
                    .await?;
            }
        }
        // Blocks that are not free by now wait for recovery's own checkpoint.
        self.core.space.lock().abort_commit();
        self.discard_to_back_areas().await?;
        for (at, (seq, record, _)) in applied.iter().enumerate() {
            if at % window == 0 {
                self.prefetch_maps(&applied[at..applied.len().min(at + window)]).await;
            }
            self.replay_reached(*seq);
            self.replay_room().await?;
            self.apply(record).await?;
            count(&self.core.counters.recovered);
        }
        *self.replay.lock() = None;
        Ok(())
    }

    /// Applies one record to the state in memory.
    async fn apply(self: &Arc<Self>, record: &Record) -> Result<()> {
        let core = &self.core;
        match record {
            Record::Write { volume, extents } => {
                let volume = self.replay_volume(*volume)?;
                let parent = volume.state.lock().head.parent;
                let above = self.catalog.read().inherited_from(parent);
                for extent in extents {
                    let end = extent.lv_block.0.saturating_add(u64::from(extent.len));
                    if end > volume.state.lock().meta.blocks || extent.len == 0 {
                        return Err(replay_corrupt("a write beyond the volume's end"));
                    }
                    let write = || apply_write(core, &mut volume.state.lock(), extent, &above);
                    core.with_nodes_privileged(write).await?;
                }
            }
            Record::Unmap { volume, start, len } => {
                let volume = self.replay_volume(*volume)?;
                let (thick, blocks) = {
                    let state = volume.state.lock();
                    (state.thick(), state.meta.blocks)
                };
                let end = start.0.checked_add(*len).filter(|end| *end <= blocks);
                let end = end.ok_or_else(|| replay_corrupt("a discard beyond the volume's end"))?;
                self.replay_unmap(&volume, start.0, end, thick).await?;
            }
            Record::Abort { .. } => {}
            Record::Create { volume: meta, placed } => {
                let volume = {
                    let mut catalog = self.catalog_mut();
                    match catalog.volumes.get(&meta.id) {
                        Some(volume) => volume.clone(),
                        None => self.insert_new(&mut catalog, meta.clone())?,
                    }
                };
                for p in placed {
                    let place = || apply_place(core, &mut volume.state.lock(), p.lv_block, (p.vg_block.0, p.len));
                    core.with_nodes_privileged(place).await?;
                }
            }
            Record::Snapshot { parts } => self.apply_snapshot(&mut self.catalog_mut(), parts)?,
            Record::Resize { volume, blocks, placed } => {
                let volume = self.replay_volume(*volume)?;
                let old = volume.state.lock().meta.blocks;
                self.replay_unmap(&volume, *blocks, old, false).await?;
                for p in placed {
                    let place = || apply_place(core, &mut volume.state.lock(), p.lv_block, (p.vg_block.0, p.len));
                    core.with_nodes_privileged(place).await?;
                }
                volume.state.lock().meta.blocks = *blocks;
            }
            Record::Remove { volumes } => {
                let mut catalog = self.catalog_mut();
                for id in volumes {
                    self.apply_remove(&mut catalog, *id)?;
                }
            }
            Record::Revert { target, source, consume, point, head } => {
                self.apply_revert(&mut self.catalog_mut(), *target, *source, *consume, *point, *head)?;
            }
            Record::Update { volume } => self.apply_update(&mut self.catalog_mut(), volume)?,
            Record::Invalidate { volume } => self.apply_invalidate(&mut self.catalog_mut(), *volume)?,
        }
        Ok(())
    }

    async fn replay_unmap(self: &Arc<Self>, volume: &Volume, start: u64, end: u64, keep_place: bool) -> Result<()> {
        let core = &self.core;
        let mut at = start;
        while at < end {
            let to = self.part_to_free(volume, at, end).await?;
            core.with_nodes_privileged(|| apply_unmap(core, &mut volume.state.lock(), at, to, keep_place)).await?;
            at = to;
            if at < end {
                self.replay_part_room().await?;
            }
        }
        Ok(())
    }

    fn replay_volume(&self, id: VolumeId) -> Result<Arc<Volume>> {
        let volume = self.catalog.read().volumes.get(&id).cloned();
        volume.ok_or_else(|| replay_corrupt("a record of an unknown volume"))
    }

    /// Puts an empty volume into the catalog.
    pub(super) fn insert_new(&self, catalog: &mut Catalog, meta: VolumeMeta) -> Result<Arc<Volume>> {
        let id = meta.id;
        catalog.check_unknown(Some(id), &[meta.head])?;
        catalog.next_volume = catalog.next_volume.max(id.0 + 1);
        catalog.next_tree = catalog.next_tree.max(meta.head.0 + 1);
        if catalog.names.insert(meta.name.clone(), id).is_some() {
            return Err(replay_corrupt("two volumes of one name"));
        }
        let head = empty_head(meta.head, Epoch(1));
        catalog.heads.insert(head.id, id);
        let state = State::new(meta, head, None, self.core.placement());
        let volume = Arc::new(Volume::new(self.core.clone(), id, state));
        catalog.insert_volume(volume.clone());
        Ok(volume)
    }

    /// Recomputes reservations and reserves from the counters.
    pub(super) fn settle_reservations(&self) {
        let catalog = self.catalog.read();
        let usage = SnapshotUsage(&catalog);
        let mut shortfall = [0; crate::model::SegmentType::ALL.len()];
        let mut reserves = Vec::new();
        for volume in catalog.volumes.values() {
            let state = volume.state.lock();
            shortfall[state.meta.segment as usize] += state.shortfall();
            reserves.extend(
                state.meta.reserve.filter(|_| !state.invalid()).map(|blocks| (volume.id, state.meta.segment, blocks)),
            );
        }
        let reserve = |(id, segment, blocks)| (id, Reserve { segment, blocks, used: usage.held(id) });
        let reserves: Vec<_> = reserves.into_iter().map(reserve).collect();
        let mut space = self.core.space.lock();
        space.reset_reserved(shortfall);
        for (id, reserve) in reserves {
            space.set_reserve(id, Some(reserve));
        }
    }
}
