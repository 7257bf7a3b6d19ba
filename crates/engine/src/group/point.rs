//! Identities of points, the same on every host, and how received contents become visible.
//!
//! Invariants
//!
//! * PT1 Volumes with equal point identities have equal contents and equal sizes, in any group. A volume has the
//!   identity of a point that is an ancestor of its head, is not dying, and has the same root. The first write after a
//!   point was frozen gives a head a new root, because the head owns no block of the point (R3). The bound of its
//!   ownership is never below a living ancestor.
//! * PT2 The identity is made of the random identifier of the snapshot with which the point was made, and the size. Of
//!   several points with the same root the oldest counts, so an unwritten snapshot keeps its identity when snapshots
//!   are made of it. Without that snapshot, or after its point was merged, the volume has no identity.
//! * PT3 Received contents are durable before the records that make them visible. The records of all volumes are in one
//!   frame: after a crash all of them count or none.
//! * PT4 A target gets received contents only while it has the contents of the point that they are based on. A target
//!   that was written to, reverted or resized is refused: no write is undone.
//! * PT5 An unfinished receive takes only space that others do not need. When a write of another volume finds no room,
//!   the unfinished receive is dropped before any snapshot is, and before the write waits or fails. If the new contents
//!   of a thick target need a larger reservation, the target gets them only if there is room for it.
//! * HO1 The point of an unwritten snapshot that is held ([`HOLD`](crate::model::HOLD)) is not merged, whichever of its
//!   other volumes are removed. So the snapshot keeps its identity.
//! * HO2 A full group drops held snapshots, and those that name their contents (PT2), after all others, the oldest first:
//!   writes are more important than holds.

use super::Group;
use super::catalog::Catalog;
use super::checkpoint::{NEW_TREE_BYTES, volume_bytes};
use super::ops::{ChangeError, check_name};
use crate::error::{Error, Result};
use crate::format::journal::{Record, SnapshotPart};
use crate::model::{
    Attributes, RECEIVING, Tree, TreeKind, TreeMeta, VolumeKind, VolumeMeta, VolumeState, is_being_received,
};
use crate::planted;
use crate::units::{Epoch, Seq, TreeId, Uuid, VolumeId};
use crate::volume::Volume;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Received contents that are to become visible.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The volume that has them. Afterwards it is gone, or is the new volume.
    pub received: VolumeId,
    pub to: PublishTo,
    /// The snapshot with which the received point is made.
    pub snapshot: String,
    /// Its identifier, by which the point is known ([`point_seed`]).
    pub seed: Uuid,
    pub attributes: Attributes,
}

/// The target of received contents.
#[derive(Clone, Debug)]
pub enum PublishTo {
    /// A new volume of this name.
    New { name: String, attributes: Attributes },
    /// This volume, on whose contents the received ones are based, when it had this many blocks.
    Volume { target: VolumeId, blocks: u64 },
}

/// The identity of a point that was made with a snapshot of this identifier, at a size in blocks (PT2).
pub fn point_identity(seed: Uuid, blocks: u64) -> Uuid {
    let mut bytes = seed.0;
    bytes[8..].iter_mut().zip(blocks.to_le_bytes()).for_each(|(byte, size)| *byte ^= size);
    Uuid(bytes)
}

/// The identifier that the snapshot of a received point gets: the inverse of [`point_identity`].
pub fn point_seed(identity: Uuid, blocks: u64) -> Uuid {
    point_identity(identity, blocks)
}

/// The fields of a head that show at which point it is.
#[derive(Clone, Copy)]
pub(super) struct HeadState {
    tree: Tree,
    parent: Option<TreeId>,
    blocks: u64,
}

impl HeadState {
    pub(super) fn of(meta: &VolumeMeta, head: &TreeMeta) -> HeadState {
        HeadState { tree: head.tree, parent: head.parent, blocks: meta.blocks }
    }
}

/// The head of a snapshot that is held.
fn held_head(snapshot: &Volume) -> Option<HeadState> {
    let state = snapshot.state.lock();
    let is_held = state.meta.attributes.is_held() && !state.closed && !state.invalid();
    is_held.then(|| HeadState::of(&state.meta, &state.head))
}

impl Catalog {
    /// The points whose contents a head has, the nearest first (PT1).
    fn points_at(&self, head: HeadState) -> impl Iterator<Item = &TreeMeta> + '_ {
        // On a damaged image parents may be a circle.
        let most = self.trees.len() + 1;
        let above = std::iter::successors(head.parent, |id| self.trees.get(id).and_then(|tree| tree.parent));
        let trees = above.take(most).map_while(|id| self.trees.get(&id));
        let alive = trees.filter(|tree| tree.kind == TreeKind::Point);
        alive.take_while(move |tree| tree.tree == head.tree || planted::is("written_head_is_point"))
    }

    /// The epoch of the oldest point with the head's contents.
    pub(super) fn oldest_point(&self, head: HeadState) -> Option<Epoch> {
        self.points_at(head).last().map(|point| point.epoch)
    }

    /// The snapshot whose identifier names the contents of a head (PT2).
    pub(super) fn snapshot_of(&self, head: HeadState) -> Option<VolumeId> {
        self.points_at(head).filter_map(|point| point.charged).filter(|id| self.volumes.contains_key(id)).last()
    }

    /// The epoch in which a snapshot was taken, if it still has its contents. An older snapshot may name these
    /// contents.
    pub(super) fn point_epoch(&self, id: VolumeId, head: HeadState) -> Option<Epoch> {
        self.points_at(head).find(|point| point.charged == Some(id)).map(|point| point.epoch)
    }

    /// Whether the point is that of a snapshot that is held (HO1). No volume is locked.
    pub(super) fn is_held(&self, point: &TreeMeta) -> bool {
        let snapshot = point.charged.filter(|_| point.kind == TreeKind::Point).and_then(|id| self.volumes.get(&id));
        let held = snapshot.and_then(|snapshot| held_head(snapshot));
        held.is_some_and(|head| self.points_at(head).any(|at| at.id == point.id)) && !planted::is("held_is_merged")
    }

    /// The snapshots that are held, and those whose identifiers name their contents (PT2). No volume is locked.
    pub(super) fn needed_by_holds(&self) -> BTreeSet<VolumeId> {
        let held = self.volumes.values().filter_map(|volume| Some((volume.id, held_head(volume)?)));
        let held: Vec<(VolumeId, HeadState)> = held.collect();
        let named_by = held.iter().filter_map(|(_, head)| self.snapshot_of(*head));
        let named_by: Vec<VolumeId> = named_by.filter(|_| !planted::is("names_of_held_go")).collect();
        held.iter().map(|(id, _)| *id).chain(named_by).collect()
    }

    /// Looks up the snapshot's identifier. No volume is locked.
    pub(super) fn identity(&self, head: HeadState) -> Option<Uuid> {
        let snapshot = self.volumes.get(&self.snapshot_of(head)?)?;
        let seed = snapshot.state.lock().meta.uuid;
        let blocks = if planted::is("identity_without_size") { 0 } else { head.blocks };
        Some(point_identity(seed, blocks))
    }
}

impl Group {
    /// A volume that is being received, and was not dropped (PT5).
    pub(super) fn received_to_drop(&self) -> Option<VolumeId> {
        let catalog = self.catalog.read();
        let named = catalog.names.range(RECEIVING.to_owned()..).take_while(|(name, _)| is_being_received(name));
        let mut alive = named.filter(|(_, id)| catalog.volumes.get(id).is_some_and(|v| !v.state.lock().invalid()));
        alive.next().map(|(_, id)| *id)
    }

    /// The identity of the point that a volume is at. None: it was written to since, or the point has no identity (PT1,
    /// PT2).
    pub fn point_of(&self, id: VolumeId) -> Result<Option<Uuid>> {
        let catalog = self.catalog.read();
        let volume = catalog.volumes.get(&id).ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let head = {
            let state = volume.state.lock();
            if state.closed || state.invalid() {
                return Ok(None);
            }
            HeadState::of(&state.meta, &state.head)
        };
        Ok(catalog.identity(head))
    }

    /// Makes received contents visible: volumes and their snapshots, all of them in one step (PT3, PT4).
    pub async fn publish(self: &Arc<Self>, all: &[Publish]) -> Result<()> {
        if all.is_empty() {
            return Err(Error::Invalid("nothing was received".into()));
        }
        let mut ids = BTreeSet::new();
        for publish in all {
            check_name(&publish.snapshot, &publish.attributes)?;
            if let PublishTo::New { name, attributes } = &publish.to {
                check_name(name, attributes)?;
            }
            for id in publish.volumes() {
                if !ids.insert(id) {
                    return Err(Error::Invalid("a volume cannot take its own contents, or two".into()));
                }
            }
        }
        let volumes = ids.into_iter().map(|id| self.volume(id)).collect::<Result<Vec<_>>>()?;
        let seq = loop {
            match self.publish_once(all, &volumes).await {
                Err(error @ Error::NoSpace { .. }) if !self.more_space().await? => return Err(error),
                Err(Error::NoSpace { .. }) => {}
                outcome => break outcome?,
            }
        };
        self.request_reclaim();
        self.core.volumes_changed();
        self.durable(seq).await
    }

    async fn publish_once(&self, all: &[Publish], volumes: &[Arc<Volume>]) -> Result<Seq> {
        self.may_change()?;
        self.core.journal.admit().await?;
        let mut gates = Vec::with_capacity(volumes.len());
        for volume in volumes {
            gates.push(volume.close_gate(true).await);
        }
        if !planted::is("published_before_flush") {
            self.core.journal.flush().await?;
        }
        self.change(|| self.publish_now(all)).await
    }

    fn publish_now(&self, all: &[Publish]) -> std::result::Result<Seq, ChangeError> {
        let _gate = self.core.gate.read();
        let mut catalog = self.catalog_mut();
        self.refuse_publish(&catalog, all)?;
        let mut parts = Vec::with_capacity(all.len());
        let mut then = Vec::with_capacity(all.len());
        let trees = TreeId(catalog.next_tree + 2 * all.len() as u64);
        for (at, publish) in (0..).zip(all) {
            let volume = volume_in(&catalog, publish.received)?;
            let (meta, stored) = {
                let state = volume.state.lock();
                (state.meta.clone(), state.stored_meta())
            };
            parts.push(part_of(&catalog, publish, &stored, at));
            then.push(publish.received_record(meta, TreeId(trees.0 + 2 * at)));
        }
        let mut records = vec![Record::Snapshot { parts: parts.clone() }];
        records.extend(then);
        if !self.core.journal.fit_together(&records) {
            let message = "the change is too large for this volume group's journal".to_owned();
            return Err(Error::Invalid(message).into());
        }
        let bytes = all.iter().map(|publish| 2 * volume_bytes(&publish.attributes) + 2 * NEW_TREE_BYTES).sum();
        self.admit_change(bytes)?;
        self.apply_snapshot(&mut catalog, &parts)?;
        for record in &records[1..] {
            match record {
                Record::Update { volume } => self.apply_update(&mut catalog, volume)?,
                Record::Revert { target, source, consume, point, head } => {
                    self.apply_revert(&mut catalog, *target, *source, *consume, *point, *head)?;
                }
                _ => unreachable!("it was just made"),
            }
        }
        if planted::is("published_in_two_frames") {
            let (last, before) = records.split_last().expect("there is one at least");
            before.iter().for_each(|record| self.core.journal.append_in_own_frame(record));
            return Ok(self.append(last));
        }
        Ok(self.core.journal.append_together(&records))
    }

    /// Refuses names that exist, receives that were dropped, and targets that changed (PT4) or have no room (PT5).
    fn refuse_publish(&self, catalog: &Catalog, all: &[Publish]) -> Result<()> {
        let mut names = BTreeSet::new();
        let mut needed = 0;
        for publish in all {
            let new_name = match &publish.to {
                PublishTo::New { name, .. } => Some(name),
                PublishTo::Volume { .. } => None,
            };
            for name in new_name.into_iter().chain([&publish.snapshot]) {
                if catalog.names.contains_key(name) || !names.insert(name) {
                    return Err(Error::Exists(format!("volume {name}")));
                }
            }
            let received = volume_in(catalog, publish.received)?;
            if received.state.lock().invalid() {
                return Err(Error::InvalidSnapshot);
            }
            if let PublishTo::Volume { target, blocks } = publish.to {
                self.refuse_moved(catalog, publish.received, target, blocks)?;
                needed += room_for(&received, &*volume_in(catalog, target)?);
            }
        }
        let free = self.core.space.lock().available();
        if needed > free && !planted::is("size_without_room") { Err(Error::NoSpace { needed, free }) } else { Ok(()) }
    }

    /// PT4.
    fn refuse_moved(&self, catalog: &Catalog, received: VolumeId, target: VolumeId, blocks: u64) -> Result<()> {
        let volume = volume_in(catalog, target)?;
        let state = volume.state.lock();
        if state.invalid() {
            return Err(Error::InvalidSnapshot);
        }
        if volume_in(catalog, received)?.state.lock().meta.segment != state.meta.segment {
            return Err(Error::Invalid(
                "a linear volume cannot get its contents from a mirror, nor a mirror from a linear one".into(),
            ));
        }
        let head = HeadState::of(&state.meta, &state.head);
        let is_there = catalog.points_at(head).any(|point| point.charged == Some(received));
        if is_there && head.blocks == blocks || planted::is("publish_over_writes") { Ok(()) } else { Err(Error::Moved) }
    }
}

impl Publish {
    /// The volumes that change.
    fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        let target = match self.to {
            PublishTo::New { .. } => None,
            PublishTo::Volume { target, .. } => Some(target),
        };
        target.into_iter().chain([self.received])
    }

    /// The record after the snapshot. Tree ids from this one on are free.
    fn received_record(&self, received: VolumeMeta, trees: TreeId) -> Record {
        match &self.to {
            PublishTo::New { name, attributes } => {
                Record::Update { volume: VolumeMeta { name: name.clone(), attributes: attributes.clone(), ..received } }
            }
            PublishTo::Volume { target, .. } => {
                let (point, head) = (trees, TreeId(trees.0 + 1));
                Record::Revert { target: *target, source: self.received, consume: true, point, head }
            }
        }
    }
}

/// PT5: the additional blocks that a thick target needs.
fn room_for(received: &Volume, target: &Volume) -> u64 {
    let unmapped = {
        let state = received.state.lock();
        state.meta.blocks as i64 - state.head.mapped as i64
    };
    let state = target.state.lock();
    let needed = if state.thick() { unmapped - state.shortfall() } else { 0 };
    u64::try_from(needed).unwrap_or(0)
}

fn volume_in(catalog: &Catalog, id: VolumeId) -> Result<Arc<Volume>> {
    catalog.volumes.get(&id).cloned().ok_or_else(|| Error::NotFound(format!("volume {id}")))
}

/// The part of the record for one received snapshot. Its origin is the volume that then has the contents.
fn part_of(catalog: &Catalog, publish: &Publish, received: &VolumeMeta, number: u64) -> SnapshotPart {
    let origin = match publish.to {
        PublishTo::New { .. } => received.id,
        PublishTo::Volume { target, .. } => target,
    };
    let volume = VolumeMeta {
        id: VolumeId(catalog.next_volume + number),
        uuid: publish.seed,
        name: publish.snapshot.clone(),
        kind: VolumeKind::Thin,
        state: VolumeState::Ok,
        read_only: true,
        origin: Some(origin),
        reserve: None,
        head: TreeId(catalog.next_tree + 2 * number + 1),
        attributes: publish.attributes.clone(),
        ..received.clone()
    };
    SnapshotPart { origin: received.id, point: TreeId(catalog.next_tree + 2 * number), volume }
}
