//! Snapshots: each head becomes a point with two new heads (rule R9).

use super::Group;
use super::catalog::Catalog;
use super::checkpoint::{NEW_TREE_BYTES, volume_bytes};
use super::create::check_sizes;
use super::ops::check_name;
use super::retry::Nearer;
use crate::error::{Error, Result};
use crate::format::journal::{Record, SnapshotPart};
use crate::legs::LegsOwner;
use crate::model::{NewSnapshot, SegmentType, TreeKind, TreeMeta, VolumeKind, VolumeMeta, VolumeState};
use crate::space::Reserve;
use crate::units::{Epoch, Seq, TreeId, VolumeId};
use crate::volume::Volume;
use crate::volume::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Group {
    /// One atomic, durable snapshot of all the named origins, in the order of `specs`.
    pub async fn snapshot(self: &Arc<Self>, specs: &[NewSnapshot]) -> Result<Vec<VolumeId>> {
        let mut origins = BTreeMap::new();
        let mut names = BTreeSet::new();
        for spec in specs {
            check_name(&spec.name, &spec.attributes)?;
            check_sizes(1, 512, spec.chunk_blocks)?;
            if origins.insert(spec.origin, self.volume(spec.origin)?).is_some() || !names.insert(&spec.name) {
                return Err(Error::Invalid("one snapshot cannot name a volume twice".into()));
            }
        }
        if specs.is_empty() {
            return Err(Error::Invalid("a snapshot needs an origin".into()));
        }
        let mut nearer = Nearer::default();
        let (ids, seq) = loop {
            self.may_change()?;
            self.core.journal.admit().await?;
            // R9: close the gates (in the order of ids, so that two snapshots cannot wait for each other) ...
            let mut gates = Vec::with_capacity(origins.len());
            for volume in origins.values() {
                gates.push(volume.close_gate(false).await);
            }
            let outcome = self.snapshot_gated(specs).await;
            // ... and open them. The waits for durability, and for space if there is too little, come after that.
            drop(gates);
            match outcome {
                Err(error @ Error::NoSpace { .. }) if !self.room_for_reserves(specs, &origins, &mut nearer).await? => {
                    return Err(error);
                }
                Err(Error::NoSpace { .. }) => {}
                outcome => break outcome?,
            }
        };
        if self.core.planted("snapshot_not_durable") {
            return Ok(ids);
        }
        self.durable(seq).await?;
        if self.has_several() {
            // What they may need is made ahead.
            self.wake();
        }
        Ok(ids)
    }

    /// Space was missing for reserves. False: there is none.
    async fn room_for_reserves(
        self: &Arc<Self>,
        specs: &[NewSnapshot],
        origins: &BTreeMap<VolumeId, Arc<Volume>>,
        nearer: &mut Nearer,
    ) -> Result<bool> {
        for several in [SegmentType::Raid1, SegmentType::Striped] {
            let own = specs.iter().filter(|spec| origins[&spec.origin].segment() == several);
            let needed: u64 = own.filter_map(|spec| spec.reserve).sum();
            let free = self.core.space.lock().available_for(several);
            if needed > free {
                return self.room_for_volume(several, needed - free, &[], nearer).await;
            }
        }
        self.more_space().await
    }

    async fn snapshot_gated(&self, specs: &[NewSnapshot]) -> Result<(Vec<VolumeId>, Seq)> {
        self.change(|| {
            let _gate = self.core.gate.read();
            let mut catalog = self.catalog_mut();
            if let Some(spec) = specs.iter().find(|s| catalog.names.contains_key(&s.name)) {
                return Err(Error::Exists(format!("volume {}", spec.name)).into());
            }
            let mut reserves = [0; SegmentType::ALL.len()];
            let mut parts = Vec::with_capacity(specs.len());
            for (i, spec) in specs.iter().enumerate() {
                let i = i as u64;
                let origin = catalog.volumes.get(&spec.origin).cloned();
                let origin = origin.ok_or_else(|| Error::NotFound("the snapshot's origin".into()))?;
                let state = origin.state.lock();
                if state.closed || state.invalid() {
                    return Err(Error::InvalidSnapshot.into());
                }
                let volume = VolumeMeta {
                    id: VolumeId(catalog.next_volume + i),
                    uuid: spec.uuid,
                    name: spec.name.clone(),
                    kind: VolumeKind::Thin,
                    segment: state.stored_segment(),
                    state: VolumeState::Ok,
                    blocks: state.meta.blocks,
                    sector: state.meta.sector,
                    chunk_blocks: spec.chunk_blocks,
                    read_only: spec.read_only,
                    full: state.meta.full,
                    origin: Some(spec.origin),
                    reserve: spec.reserve,
                    head: TreeId(catalog.next_tree + 2 * i + 1),
                    attributes: spec.attributes.clone(),
                };
                reserves[volume.segment as usize] += spec.reserve.unwrap_or(0);
                parts.push(SnapshotPart { origin: spec.origin, point: TreeId(catalog.next_tree + 2 * i), volume });
            }
            for segment in SegmentType::ALL {
                let (needed, free) = (reserves[segment as usize], self.core.space.lock().available_for(segment));
                if needed > free {
                    return Err(Error::NoSpace { needed, free }.into());
                }
            }
            let bytes = specs.iter().map(|spec| volume_bytes(&spec.attributes) + 2 * NEW_TREE_BYTES).sum();
            let record = Record::Snapshot { parts };
            self.check_fits(&record)?;
            self.admit_change(bytes)?;
            let Record::Snapshot { parts } = &record else { unreachable!("it was just made") };
            self.apply_snapshot(&mut catalog, parts)?;
            let ids = parts.iter().map(|p| p.volume.id).collect();
            Ok((ids, self.append(&record)))
        })
        .await
    }

    /// Freezes each origin's head as a point and makes two heads of it: the origin's and the snapshot's.
    pub(super) fn apply_snapshot(&self, catalog: &mut Catalog, parts: &[SnapshotPart]) -> Result<()> {
        let epoch = Epoch(catalog.epoch);
        catalog.epoch += 1;
        for part in parts {
            catalog.check_unknown(Some(part.volume.id), &[part.point, part.volume.head])?;
            let origin = catalog.volumes.get(&part.origin).cloned();
            let origin = origin.ok_or_else(|| Error::NotFound("a snapshot's origin".into()))?;
            let mut state = origin.state.lock();
            state.meta.chunk_blocks = part.volume.chunk_blocks;
            let point = self.freeze(catalog, &mut state, part.point, epoch, Some(part.volume.id));
            drop(state);
            let head = child_head(&point, part.volume.head);
            self.adopt(catalog, part.volume.clone(), head, &point)?;
            if let Some(blocks) = part.volume.reserve {
                self.core
                    .space
                    .lock()
                    .set_reserve(part.volume.id, Some(Reserve { segment: part.volume.segment, blocks, used: 0 }));
            }
        }
        Ok(())
    }

    /// Makes the head's present state a point, and the head its child.
    pub(super) fn freeze(
        &self,
        catalog: &mut Catalog,
        state: &mut State,
        id: TreeId,
        epoch: Epoch,
        charged: Option<VolumeId>,
    ) -> TreeMeta {
        let point = TreeMeta { id, kind: TreeKind::Point, epoch, charged, ..state.head.clone() };
        catalog.next_tree = catalog.next_tree.max(id.0 + 1);
        catalog.remove_child(point.parent, state.head.id);
        catalog.add_child(point.parent, id);
        catalog.add_child(Some(id), state.head.id);
        catalog.insert_tree(point.clone());
        state.head = child_head(&point, state.head.id);
        state.set_parent(Some(&point));
        point
    }

    /// A new volume over a head that is a child of `point`.
    fn adopt(&self, catalog: &mut Catalog, meta: VolumeMeta, head: TreeMeta, point: &TreeMeta) -> Result<()> {
        catalog.next_volume = catalog.next_volume.max(meta.id.0 + 1);
        catalog.next_tree = catalog.next_tree.max(head.id.0 + 1);
        catalog.add_child(Some(point.id), head.id);
        let id = meta.id;
        catalog.heads.insert(head.id, id);
        if catalog.names.insert(meta.name.clone(), id).is_some() {
            return Err(Error::Exists(format!("volume {}", meta.name)));
        }
        let state = State::new(meta, head, Some(point), self.core.placement());
        let volume = Volume::new(self.core.clone(), id, state);
        catalog.insert_volume(Arc::new(volume));
        Ok(())
    }
}

/// A head with the same contents as its point.
pub(super) fn child_head(point: &TreeMeta, id: TreeId) -> TreeMeta {
    TreeMeta {
        id,
        parent: Some(point.id),
        kind: TreeKind::Head,
        epoch: Epoch(0),
        birth: Epoch(point.epoch.0 + 1),
        own: 0,
        charged: None,
        cursor: 0,
        progress: 0,
        dead: Vec::new(),
        ..point.clone()
    }
}
