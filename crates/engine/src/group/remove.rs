//! Removes, reverts and invalidates volumes: their heads become dying trees.

use super::Group;
use super::catalog::{Catalog, empty_head};
use super::snapshot::child_head;
use crate::core::{Ownership, count};
use crate::error::{Error, Result};
use crate::format::journal::Record;
use crate::model::{TreeKind, TreeMeta, VolumeState, is_bookmark};
use crate::planted;
use crate::units::{Epoch, TreeId, VolumeId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Group {
    /// Removes volumes (origins and snapshots alike) in one step. Their space is freed in the background.
    pub async fn remove(self: &Arc<Self>, ids: &[VolumeId]) -> Result<()> {
        self.may_change()?;
        let ids: BTreeSet<VolumeId> = ids.iter().copied().collect();
        let volumes = ids.iter().map(|id| self.volume_now(*id)).collect::<Result<Vec<_>>>()?;
        let mut gates = Vec::with_capacity(volumes.len());
        for volume in &volumes {
            gates.push(volume.close_gate(true).await);
        }
        let outcome = self
            .change(|| {
                let _gate = self.core.gate.read();
                let mut catalog = self.catalog_mut();
                let record = Record::Remove { volumes: ids.iter().copied().collect() };
                self.check_fits(&record)?;
                for id in &ids {
                    self.apply_remove(&mut catalog, *id)?;
                }
                Ok(self.append(&record))
            })
            .await;
        drop(gates);
        let seq = outcome?;
        self.request_reclaim();
        self.durable(seq).await
    }

    pub(super) fn apply_remove(&self, catalog: &mut Catalog, id: VolumeId) -> Result<()> {
        let volume = catalog.volumes.get(&id).cloned().ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let mut state = volume.state.lock();
        state.closed = true;
        catalog.remove_volume(id, state.meta.origin);
        catalog.names.remove(&state.meta.name);
        let shortfall = state.shortfall();
        if !state.invalid() {
            let head = std::mem::replace(&mut state.head, empty_head(TreeId(u64::MAX), Epoch(1)));
            self.retire(catalog, head);
        }
        let mut space = self.core.space.lock();
        space.reserve_blocks(state.meta.segment, -shortfall);
        space.set_reserve(id, None);
        space.forget_volume(id);
        Ok(())
    }

    /// A head without a volume.
    fn retire(&self, catalog: &mut Catalog, head: TreeMeta) {
        if !self.core.planted("head_kept") {
            catalog.heads.remove(&head.id);
        }
        catalog.insert_tree(TreeMeta { kind: TreeKind::Dying, ..head });
    }

    /// Gives `target` the contents of `source`, a snapshot taken of it at any time; newer snapshots stay.
    /// With `consume` (LVM's merge) `source` is removed in the same step.
    pub async fn revert(self: &Arc<Self>, target: VolumeId, source: VolumeId, consume: bool) -> Result<()> {
        if target == source {
            return Err(Error::Invalid("a volume cannot be reverted to itself".into()));
        }
        let (first, second) = (self.volume(target.min(source))?, self.volume(target.max(source))?);
        self.may_change()?;
        self.core.journal.admit().await?;
        let gates = [first.close_gate(true).await, second.close_gate(true).await];
        let outcome = self
            .change(|| {
                let _gate = self.core.gate.read();
                let mut catalog = self.catalog_mut();
                let (point, head) = (TreeId(catalog.next_tree), TreeId(catalog.next_tree + 1));
                self.apply_revert(&mut catalog, target, source, consume, point, head)?;
                Ok(self.append(&Record::Revert { target, source, consume, point, head }))
            })
            .await;
        drop(gates);
        let seq = outcome?;
        self.request_reclaim();
        self.durable(seq).await
    }

    pub(super) fn apply_revert(
        &self,
        catalog: &mut Catalog,
        target: VolumeId,
        source: VolumeId,
        consume: bool,
        point: TreeId,
        head: TreeId,
    ) -> Result<()> {
        // A damaged record may name one volume twice. It would be locked twice.
        if target == source {
            return Err(Error::Invalid("a volume cannot take its own contents".into()));
        }
        if !consume {
            catalog.check_unknown(None, &[point, head])?;
        }
        let get = |id| catalog.volumes.get(&id).cloned().ok_or_else(|| Error::NotFound(format!("volume {id}")));
        let (target_volume, source_volume) = (get(target)?, get(source)?);
        let mut state = target_volume.state.lock();
        let mut from = source_volume.state.lock();
        if state.invalid() || from.invalid() {
            return Err(Error::InvalidSnapshot);
        }
        let shortfall = state.shortfall();
        let new_head = if consume {
            std::mem::replace(&mut from.head, empty_head(TreeId(u64::MAX), Epoch(1)))
        } else {
            let epoch = Epoch(catalog.epoch);
            catalog.epoch += 1;
            let point = self.freeze(catalog, &mut from, point, epoch, None);
            catalog.next_tree = catalog.next_tree.max(head.0 + 1);
            catalog.add_child(Some(point.id), head);
            child_head(&point, head)
        };
        let old = std::mem::replace(&mut state.head, new_head);
        state.meta.head = state.head.id;
        state.meta.blocks = from.meta.blocks;
        state.ownership = from.ownership;
        state.charged = from.charged;
        state.fresh = std::mem::take(&mut from.fresh);
        self.retire(catalog, old);
        catalog.heads.insert(state.head.id, target);
        if consume {
            from.closed = true;
            catalog.names.remove(&from.meta.name);
            catalog.remove_volume(source, from.meta.origin);
        }
        let shortfall = state.shortfall() - shortfall;
        let mut space = self.core.space.lock();
        if consume {
            space.set_reserve(source, None);
            space.forget_volume(source);
        }
        space.reserve_blocks(state.meta.segment, shortfall);
        Ok(())
    }

    /// A snapshot outgrew its reserve, or is dropped: its contents are freed, its name stays until it is removed.
    pub(crate) async fn invalidate(self: &Arc<Self>, id: VolumeId) -> Result<()> {
        let Ok(volume) = self.volume_now(id) else { return Ok(()) };
        let gate = volume.close_gate(true).await;
        let outcome = self
            .change(|| {
                let _gate = self.core.gate.read();
                let mut catalog = self.catalog_mut();
                let invalid = volume.state.lock().invalid();
                if invalid || !catalog.volumes.contains_key(&id) {
                    return Ok(None);
                }
                self.apply_invalidate(&mut catalog, id)?;
                Ok(Some(self.append(&Record::Invalidate { volume: id })))
            })
            .await;
        drop(gate);
        if let Some(seq) = outcome? {
            count(&self.core.counters.volumes_invalidated);
            self.request_reclaim();
            self.core.journal.written(seq).await?;
        }
        Ok(())
    }

    pub(super) fn apply_invalidate(&self, catalog: &mut Catalog, id: VolumeId) -> Result<()> {
        let volume = catalog.volumes.get(&id).cloned();
        let volume = volume.ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let mut state = volume.state.lock();
        if state.invalid() {
            return Ok(());
        }
        let shortfall = state.shortfall();
        state.meta.state = VolumeState::Invalid;
        let gone = TreeId(u64::MAX);
        state.meta.head = gone;
        let head = std::mem::replace(&mut state.head, empty_head(gone, Epoch(1)));
        state.ownership = Ownership::default();
        self.retire(catalog, head);
        let mut space = self.core.space.lock();
        space.reserve_blocks(state.meta.segment, -shortfall);
        space.set_reserve(id, None);
        space.forget_volume(id);
        Ok(())
    }

    /// The oldest snapshot whose removal can help a write of `volume`: one that shares blocks with it. Those that are held, and those
    /// that name the contents of held ones, come last (HO2).
    pub(crate) fn droppable(&self, volume: VolumeId) -> Option<VolumeId> {
        let catalog = self.catalog.read();
        let head = catalog.volumes.get(&volume)?.state.lock().head.parent;
        let mut ancestors = BTreeSet::new();
        let mut at = head;
        while let Some(id) = at {
            ancestors.insert(id);
            at = catalog.trees.get(&id).and_then(|t| t.parent);
        }
        let needed = catalog.needed_by_holds();
        let (mut held, mut bookmark) = (None, None);
        for other in catalog.volumes.values().filter(|other| other.id != volume) {
            let state = other.state.lock();
            let snapshot = state.meta.origin.is_some() && !state.invalid();
            if !snapshot || state.head.parent.is_none_or(|point| !ancestors.contains(&point)) {
                continue;
            }
            if is_bookmark(&state.meta.name) {
                // MK4.
                bookmark = bookmark.or(Some(other.id));
                continue;
            }
            if !needed.contains(&other.id) || planted::is("held_dropped_first") {
                return Some(other.id);
            }
            held = held.or(Some(other.id));
        }
        held.or(bookmark)
    }
}
