//! What administrators ask of a group, and the change that each request makes to the catalog: the `apply_` functions
//! serve the running group and recovery alike (G3).

use super::Group;
use super::catalog::Catalog;
use super::checkpoint::{NEW_TREE_BYTES, tag_bytes, volume_bytes};
use super::holdings::Holdings;
use super::open::empty_head;
use super::pools::is_pool;
use crate::core::{Absorb, Ownership, count};
use crate::disk::PvIndex;
use crate::error::{Error, Result};
use crate::format::journal::{Placed, Record, SnapshotPart};
use crate::format::superblock::MAX_PVS;
use crate::map::MapError;
use crate::model::{
    Attributes, FullPolicy, GroupAttributes, Layout, NewSnapshot, NewVolume, PvExtents, TreeKind, TreeMeta, VolumeKind,
    VolumeMeta, VolumeState,
};
use crate::space::metadata::{RUNS_TOGETHER, blocks_for_runs};
use crate::space::{Reserve, Run};
use crate::units::{Epoch, LvBlock, Seq, TreeId, VgBlock, VolumeId};
use crate::volume::Volume;
use crate::volume::state::{State, apply_place, apply_unmap};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Blocks in a volume, at most: 2^47 blocks of 4 KiB are half a zettabyte.
const MAX_BLOCKS: u64 = 1 << 47;
/// Bytes of a tag, at most, and of all tags of one thing with their lengths: a record of them fits into any group's journal.
const MAX_TAG: usize = 1024;
const MAX_TAGS: usize = (256 + 1) << 10;
/// Metadata blocks that a change of the catalog may need at once...
const NODES_FOR_CHANGE: u64 = 64;
/// ... and one more for so many pieces that a thick volume is laid out in.
const PIECES_TO_A_NODE: u64 = 64;

/// A step under the gate that could not be finished: bring a node, find room, or fail.
enum Trouble {
    Map(MapError),
    Fatal(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Fatal(error)
    }
}

impl From<MapError> for Trouble {
    fn from(error: MapError) -> Self {
        Trouble::Map(error)
    }
}

fn check_sizes(blocks: u64, sector: u32, chunk_blocks: u32) -> Result<()> {
    if blocks == 0 || blocks >= MAX_BLOCKS {
        return Err(Error::Invalid(format!("a volume cannot have {blocks} blocks")));
    }
    if !matches!(sector, 512 | 4096) {
        return Err(Error::Invalid(format!("a sector of {sector} bytes: it must be 512 or 4096")));
    }
    if !chunk_blocks.is_power_of_two() || chunk_blocks > 1024 {
        return Err(Error::Invalid(format!("a chunk of {chunk_blocks} blocks: it must be a power of two up to 1024")));
    }
    Ok(())
}

fn check_name(name: &str, attributes: &Attributes) -> Result<()> {
    if name.is_empty() || name.len() > 127 {
        return Err(Error::Invalid("a volume's name has 1 to 127 bytes".into()));
    }
    if attributes.pool.len() > 127 {
        return Err(Error::Invalid("a pool's name has at most 127 bytes".into()));
    }
    check_tags(&attributes.tags)
}

fn check_tags(tags: &[String]) -> Result<()> {
    let total: usize = tags.iter().map(|tag| tag.len() + size_of::<u16>()).sum();
    if total > MAX_TAGS || tags.iter().any(|tag| tag.len() > MAX_TAG) {
        let (each, all) = (MAX_TAG, MAX_TAGS >> 10);
        return Err(Error::Invalid(format!(
            "too many or too long tags: one has at most {each} characters, all of one thing together have at most {all} KiB"
        )));
    }
    Ok(())
}

impl Group {
    /// Repeats a step under the gate until it has its nodes and its room.
    async fn change<T>(&self, mut step: impl FnMut() -> std::result::Result<T, Trouble>) -> Result<T> {
        self.check_writable()?;
        let mut fatal = None;
        let outcome = self
            .core
            .with_nodes(|| match step() {
                Ok(value) => Ok(Some(value)),
                Err(Trouble::Map(error)) => Err(error),
                Err(Trouble::Fatal(error)) => {
                    fatal = Some(error);
                    Ok(None)
                }
            })
            .await?;
        self.core.volumes_changed();
        outcome.ok_or_else(|| fatal.expect("a step without a value says why"))
    }

    fn append(&self, record: &Record) -> Seq {
        self.core.journal.append(record, false)
    }

    /// Waits for space that comes back soon; false: none will.
    pub(crate) async fn more_space(self: &Arc<Self>) -> Result<bool> {
        let pending = self.core.space.lock().pending_blocks();
        if pending > 0 {
            self.checkpoint().await?;
            // A checkpoint gives back nothing where metadata has no room for it.
            let left = self.core.space.lock().pending_blocks();
            if left == 0 || left < pending {
                return Ok(true);
            }
        }
        let turn = self.core.space_event.turn();
        self.failed()?;
        if self.reclaiming() || self.search_orphans() {
            self.core.space_event.changed(turn).await;
            return Ok(true);
        }
        Ok(false)
    }

    fn volume_now(&self, id: VolumeId) -> Result<Arc<Volume>> {
        let found = self.catalog.read().volumes.get(&id).cloned();
        found.ok_or_else(|| Error::NotFound(format!("volume {id}")))
    }

    /// The volume's data path.
    pub fn volume(&self, id: VolumeId) -> Result<Arc<Volume>> {
        let volume = self.volume_now(id)?;
        if volume.state.lock().invalid() {
            return Err(Error::InvalidSnapshot);
        }
        Ok(volume)
    }

    pub fn find(&self, name: &str) -> Option<VolumeId> {
        self.catalog.read().names.get(name).copied()
    }

    // ---- creation -------------------------------------------------------------------------------------------

    pub async fn create_volume(self: &Arc<Self>, spec: NewVolume) -> Result<VolumeId> {
        self.create_volume_on(spec, &[]).await
    }

    /// The same with all of a thick volume's space taken from these places; from everywhere, if there are none. Those of the
    /// volume's blocks that are redirected later go where the group has room.
    pub async fn create_volume_on(self: &Arc<Self>, spec: NewVolume, on: &[PvExtents]) -> Result<VolumeId> {
        check_sizes(spec.blocks, spec.sector, spec.chunk_blocks)?;
        check_name(&spec.name, &spec.attributes)?;
        if spec.kind == VolumeKind::Thin {
            refuse_places(on)?;
        }
        let places = self.places_on(on)?;
        loop {
            match self.create_once(&spec, &places).await {
                Err(error @ Error::NoSpace { .. }) => {
                    if !self.more_space().await? {
                        return Err(error);
                    }
                }
                outcome => {
                    let (id, seq) = outcome?;
                    self.durable(seq).await?;
                    return Ok(id);
                }
            }
        }
    }

    async fn create_once(&self, spec: &NewVolume, places: &[Range<u64>]) -> Result<(VolumeId, Seq)> {
        self.core.journal.admit().await?;
        let core = &self.core;
        self.change(|| {
            let _gate = core.gate.read();
            let mut catalog = self.catalog_mut();
            if catalog.names.contains_key(&spec.name) {
                return Err(Error::Exists(format!("volume {}", spec.name)).into());
            }
            let runs = self.lay_out(spec.kind, spec.blocks, places)?;
            let placed = place_runs(0, &runs);
            let meta = VolumeMeta {
                id: VolumeId(catalog.next_volume),
                uuid: spec.uuid,
                name: spec.name.clone(),
                kind: spec.kind,
                state: VolumeState::Ok,
                blocks: spec.blocks,
                sector: spec.sector,
                chunk_blocks: spec.chunk_blocks,
                read_only: false,
                full: spec.full,
                origin: None,
                reserve: None,
                head: TreeId(catalog.next_tree),
                attributes: spec.attributes.clone(),
            };
            let record = Record::Create { volume: meta.clone(), placed };
            let fits = self.check_fits(&record).and_then(|()| {
                let bytes = volume_bytes(&spec.attributes) + NEW_TREE_BYTES;
                self.admit_change(bytes).map_err(Trouble::from)
            });
            fits.inspect_err(|_| self.give_back(&runs))?;
            let Record::Create { placed, .. } = &record else { unreachable!("it was just made") };
            let volume = self.insert_new(&mut catalog, meta)?;
            for p in placed {
                let outcome = apply_place(core, &mut volume.state.lock(), p.lv_block, (p.vg_block.0, p.len));
                outcome.expect("a new map's few nodes are in memory and their room was checked");
            }
            Ok((volume.id, self.append(&record)))
        })
        .await
    }

    fn check_fits(&self, record: &Record) -> std::result::Result<(), Trouble> {
        if self.core.journal.fits(record) {
            return Ok(());
        }
        Err(Error::Invalid("the change is too large for this volume group's journal: divide it".into()).into())
    }

    /// Lets a change in that makes checkpoints longer by so many bytes (M2).
    fn admit_change(&self, bytes: u64) -> std::result::Result<(), MapError> {
        if self.core.meta.lock().admit_change(bytes) { Ok(()) } else { Err(MapError::NoSpace) }
    }

    /// Space for new blocks of a volume, if it gets any before it is written, and the metadata that mapping its pieces takes.
    fn lay_out(&self, kind: VolumeKind, blocks: u64, places: &[Range<u64>]) -> std::result::Result<Vec<Run>, Trouble> {
        let has_nodes = |pieces: usize| {
            let nodes = NODES_FOR_CHANGE + pieces as u64 / PIECES_TO_A_NODE;
            self.core.meta.lock().can_alloc(nodes, false)
        };
        if !has_nodes(0) {
            return Err(MapError::NoSpace.into());
        }
        let runs = match kind {
            VolumeKind::Thick => self.large(blocks, places)?,
            VolumeKind::Thin => Vec::new(),
        };
        // Taking them has changed the free tree, which takes nodes, too.
        if !has_nodes(runs.len()) {
            self.give_back(&runs);
            return Err(MapError::NoSpace.into());
        }
        Ok(runs)
    }

    fn large(&self, blocks: u64, places: &[Range<u64>]) -> std::result::Result<Vec<Run>, Trouble> {
        let taken = self.core.space.lock().alloc_large(self.core.hands(), blocks, places)?;
        taken.map_err(|free| Error::NoSpace { needed: blocks, free }.into())
    }

    /// The blocks of these extents, in their order and each once.
    fn places_on(&self, on: &[PvExtents]) -> Result<Vec<Range<u64>>> {
        let placement = self.core.placement();
        let mut places = Vec::with_capacity(on.len());
        for PvExtents { pv, extents } in on {
            let has = placement.pvs.get(usize::from(pv.0)).map_or(0, |pv| pv.extents);
            if extents.is_empty() || extents.end > has {
                let Range { start, end } = extents;
                return Err(Error::Invalid(format!("physical volume {} has no extents {start} to {end}", pv.0)));
            }
            let first = placement.range_of(*pv).start;
            let blocks = |extent: u64| first + extent * placement.extent_blocks;
            places.push(blocks(extents.start)..blocks(extents.end));
        }
        places.sort_unstable_by_key(|place| place.start);
        places.dedup_by(|next, place| {
            let meets = next.start <= place.end;
            place.end = if meets { place.end.max(next.end) } else { place.end };
            meets
        });
        Ok(places)
    }

    /// The free blocks of these extents, as far as they are promised to nobody. What is taken or given back meanwhile may be
    /// counted or not.
    pub async fn free_on(&self, on: &[PvExtents]) -> Result<u64> {
        let mut free = 0;
        for mut place in self.places_on(on)? {
            free += self.core.space.lock().unused_in(&place);
            loop {
                let count = || self.core.space.lock().count_free(self.core.hands(), &place);
                let (counted, next) = self.core.with_nodes_privileged(count).await?;
                free += counted;
                let Some(next) = next else { break };
                place.start = next;
            }
        }
        Ok(free.min(self.core.space.lock().available()))
    }

    /// Puts runs back that no record names: nothing was freed that somebody could wait for.
    fn give_back(&self, runs: &[Run]) {
        let mut space = self.core.space.lock();
        for (mut start, len) in runs.iter().copied() {
            let end = start + len;
            while start < end {
                match space.add_free(self.core.hands(), (start, end - start)) {
                    Ok(part) => start += part,
                    Err(_) => {
                        space.free_later((start, end - start));
                        break;
                    }
                }
            }
        }
    }

    // ---- snapshots ------------------------------------------------------------------------------------------

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
        let (ids, seq) = loop {
            self.core.journal.admit().await?;
            // R9: close the gates (in the order of ids, so that two snapshots cannot wait for each other) ...
            let mut gates = Vec::with_capacity(origins.len());
            for volume in origins.values() {
                gates.push(volume.close_gate(false).await);
            }
            let outcome = self.snapshot_gated(specs).await;
            // ... and open them: durability, and space if there is too little, is waited for outside.
            drop(gates);
            match outcome {
                Err(error @ Error::NoSpace { .. }) if !self.more_space().await? => return Err(error),
                Err(Error::NoSpace { .. }) => {}
                outcome => break outcome?,
            }
        };
        if self.core.planted("snapshot_not_durable") {
            return Ok(ids);
        }
        self.durable(seq).await?;
        Ok(ids)
    }

    async fn snapshot_gated(&self, specs: &[NewSnapshot]) -> Result<(Vec<VolumeId>, Seq)> {
        self.change(|| {
            let _gate = self.core.gate.read();
            let mut catalog = self.catalog_mut();
            if let Some(spec) = specs.iter().find(|s| catalog.names.contains_key(&s.name)) {
                return Err(Error::Exists(format!("volume {}", spec.name)).into());
            }
            let reserves: u64 = specs.iter().filter_map(|s| s.reserve).sum();
            let free = self.core.space.lock().available();
            if reserves > free {
                return Err(Error::NoSpace { needed: reserves, free }.into());
            }
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
                parts.push(SnapshotPart { origin: spec.origin, point: TreeId(catalog.next_tree + 2 * i), volume });
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
            catalog.refuse_known(Some(part.volume.id), &[part.point, part.volume.head])?;
            let origin = catalog.volumes.get(&part.origin).cloned();
            let origin = origin.ok_or_else(|| Error::NotFound("a snapshot's origin".into()))?;
            let mut state = origin.state.lock();
            state.meta.chunk_blocks = part.volume.chunk_blocks;
            let point = self.freeze(catalog, &mut state, part.point, epoch, Some(part.volume.id));
            drop(state);
            let head = child_head(&point, part.volume.head);
            self.adopt(catalog, part.volume.clone(), head, &point)?;
            if let Some(blocks) = part.volume.reserve {
                self.core.space.lock().set_reserve(part.volume.id, Some(Reserve { blocks, used: 0 }));
            }
        }
        Ok(())
    }

    /// Makes the head's present state a point, and the head its child.
    fn freeze(
        &self,
        catalog: &mut Catalog,
        state: &mut State,
        id: TreeId,
        epoch: Epoch,
        guard: Option<VolumeId>,
    ) -> TreeMeta {
        let point = TreeMeta { id, kind: TreeKind::Point, epoch, guard, ..state.head.clone() };
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
        let volume = Volume { core: self.core.clone(), id, state: parking_lot::Mutex::new(state) };
        catalog.insert_volume(Arc::new(volume));
        Ok(())
    }

    // ---- removal --------------------------------------------------------------------------------------------

    /// Removes volumes (origins and snapshots alike) in one step; space comes back in the background.
    pub async fn remove(self: &Arc<Self>, ids: &[VolumeId]) -> Result<()> {
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
        self.want_reclaim();
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
            self.bury(catalog, head);
        }
        let mut space = self.core.space.lock();
        space.promise(-shortfall);
        space.set_reserve(id, None);
        space.forget_volume(id);
        Ok(())
    }

    /// A head that no volume has any more.
    fn bury(&self, catalog: &mut Catalog, head: TreeMeta) {
        catalog.heads.remove(&head.id);
        catalog.insert_tree(TreeMeta { kind: TreeKind::Dying, ..head });
    }

    /// Gives `target` the contents of `source`, a snapshot taken of it at any time; newer snapshots stay.
    /// With `consume` (LVM's merge) `source` is removed in the same step.
    pub async fn revert(self: &Arc<Self>, target: VolumeId, source: VolumeId, consume: bool) -> Result<()> {
        if target == source {
            return Err(Error::Invalid("a volume cannot be reverted to itself".into()));
        }
        let (first, second) = (self.volume(target.min(source))?, self.volume(target.max(source))?);
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
        self.want_reclaim();
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
        // A record may say so; the volume would be locked twice.
        if target == source {
            return Err(Error::Invalid("a volume cannot take its own contents".into()));
        }
        if !consume {
            catalog.refuse_known(None, &[point, head])?;
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
        state.charge = from.charge;
        state.fresh = std::mem::take(&mut from.fresh);
        self.bury(catalog, old);
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
        space.promise(shortfall);
        Ok(())
    }

    /// A snapshot outgrew its reserve (or has to give way): its contents go, its name stays until it is removed.
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
            self.want_reclaim();
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
        self.bury(catalog, head);
        let mut space = self.core.space.lock();
        space.promise(-shortfall);
        space.set_reserve(id, None);
        space.forget_volume(id);
        Ok(())
    }

    /// The oldest snapshot whose removal can help a write of `volume`: one that shares blocks with it.
    pub(crate) fn droppable(&self, volume: VolumeId) -> Option<VolumeId> {
        let catalog = self.catalog.read();
        let head = catalog.volumes.get(&volume)?.state.lock().head.parent;
        let mut ancestors = BTreeSet::new();
        let mut at = head;
        while let Some(id) = at {
            ancestors.insert(id);
            at = catalog.trees.get(&id).and_then(|t| t.parent);
        }
        catalog
            .volumes
            .values()
            .filter(|v| v.id != volume)
            .find(|v| {
                let state = v.state.lock();
                let snapshot = state.meta.origin.is_some() && !state.invalid();
                snapshot && state.head.parent.is_some_and(|p| ancestors.contains(&p))
            })
            .map(|v| v.id)
    }

    // ---- other changes --------------------------------------------------------------------------------------

    /// Grows or shrinks a volume to `blocks`. What lies beyond a smaller end is discarded.
    pub async fn resize(self: &Arc<Self>, id: VolumeId, blocks: u64) -> Result<()> {
        self.resize_on(id, blocks, &[]).await
    }

    /// The same with the space by which a thick volume grows taken from these places; from everywhere, if there are none.
    pub async fn resize_on(self: &Arc<Self>, id: VolumeId, blocks: u64, on: &[PvExtents]) -> Result<()> {
        check_sizes(blocks, 512, 1)?;
        let volume = self.volume(id)?;
        if !volume.state.lock().thick() {
            refuse_places(on)?;
        }
        let places = self.places_on(on)?;
        loop {
            self.core.journal.admit().await?;
            let gate = volume.close_gate(true).await;
            let old = volume.state.lock().meta.blocks;
            let outcome = match blocks.cmp(&old) {
                std::cmp::Ordering::Equal => return Ok(()),
                std::cmp::Ordering::Greater => self.grow(&volume, blocks, &places).await,
                std::cmp::Ordering::Less => self.shrink(&volume, blocks).await,
            };
            drop(gate);
            match outcome {
                Err(error @ Error::NoSpace { .. }) => {
                    if !self.more_space().await? {
                        return Err(error);
                    }
                }
                outcome => {
                    self.core.space_use_changed();
                    return self.durable(outcome?).await;
                }
            }
        }
    }

    async fn grow(&self, volume: &Arc<Volume>, blocks: u64, places: &[Range<u64>]) -> Result<Seq> {
        let core = &self.core;
        // The right edge of the map is all that growth touches: have it in memory before space is taken.
        core.with_nodes_privileged(|| {
            let state = volume.state.lock();
            let last = state.meta.blocks.saturating_sub(1);
            crate::map::lookup(&core.cache, &state.head.tree, last, blocks, &mut crate::map::Extents::new())
        })
        .await?;
        self.change(|| {
            let _gate = core.gate.read();
            let mut state = volume.state.lock();
            let old = state.meta.blocks;
            let runs = self.lay_out(state.meta.kind, blocks - old, places)?;
            let placed = place_runs(old, &runs);
            let record = Record::Resize { volume: volume.id, blocks, placed };
            self.check_fits(&record).inspect_err(|_| self.give_back(&runs))?;
            let Record::Resize { placed, .. } = &record else { unreachable!("it was just made") };
            for (i, p) in placed.iter().enumerate() {
                if let Err(error) = apply_place(core, &mut state, p.lv_block, (p.vg_block.0, p.len)) {
                    // Nothing was recorded: what was placed is taken off again.
                    apply_unmap(core, &mut state, old, p.lv_block.0, false)?;
                    self.give_back(&runs[i..]);
                    return Err(error.into());
                }
            }
            state.meta.blocks = blocks;
            Ok(self.append(&record))
        })
        .await
    }

    async fn shrink(self: &Arc<Self>, volume: &Arc<Volume>, blocks: u64) -> Result<Seq> {
        self.check_writable()?;
        let core = &self.core;
        let record = Record::Resize { volume: volume.id, blocks, placed: Vec::new() };
        let needed = NODES_FOR_CHANGE + blocks_for_runs(RUNS_TOGETHER);
        core.admit_unmap(needed).await?;
        let seq = core.journal.append(&record, true);
        let outcome = self.shrink_written(volume, blocks, seq).await;
        core.journal.close(seq);
        core.meta.lock().unmap_done(needed);
        outcome.map(|()| seq)
    }

    /// The map changes after its record is on the disk (V2): a checkpoint may hold the map before the journal has the record.
    async fn shrink_written(self: &Arc<Self>, volume: &Arc<Volume>, blocks: u64, seq: Seq) -> Result<()> {
        if !self.core.planted("map_first") {
            self.core.journal.written(seq).await?;
        }
        let outcome = self.shrink_recorded(volume, blocks).await;
        if let Err(error) = &outcome {
            self.core.journal.poison(&format!("a volume could not be reduced: {error}"));
        }
        outcome
    }

    async fn shrink_recorded(self: &Arc<Self>, volume: &Arc<Volume>, blocks: u64) -> Result<()> {
        let core = &self.core;
        let old = volume.state.lock().meta.blocks;
        let mut at = blocks;
        while at < old {
            self.room_to_free().await?;
            let end = self.part_to_free(volume, at, old).await?;
            core.with_nodes_privileged(|| {
                let _gate = core.gate.read();
                apply_unmap(core, &mut volume.state.lock(), at, end, false)
            })
            .await?;
            at = end;
        }
        let _gate = core.gate.read();
        let mut state = volume.state.lock();
        let before = state.shortfall();
        state.meta.blocks = blocks;
        let change = state.shortfall() - before;
        core.space.lock().promise(change);
        Ok(())
    }

    /// Where the first part of the range ends that frees no more runs than may be freed together.
    pub(super) async fn part_to_free(&self, volume: &Volume, start: u64, end: u64) -> Result<u64> {
        let end = end.min(start + (1 << 16));
        if self.core.planted("frees_unbounded") {
            return Ok(end);
        }
        let part = || {
            let state = volume.state.lock();
            let mut found = crate::map::Extents::new();
            crate::map::lookup(&self.core.cache, &state.head.tree, start, end, &mut found)?;
            Ok(found.get(self.core.runs_together()).map_or(end, |extent| extent.key))
        };
        self.core.with_nodes_privileged(part).await
    }

    /// Changes a snapshot's reserve.
    pub async fn set_reserve(self: &Arc<Self>, id: VolumeId, reserve: Option<u64>) -> Result<()> {
        let old = self.volume(id)?.state.lock().meta.reserve;
        let more = reserve.unwrap_or(0).saturating_sub(old.unwrap_or(0));
        loop {
            let free = self.core.space.lock().available();
            if more <= free {
                break;
            }
            if !self.more_space().await? {
                return Err(Error::NoSpace { needed: more, free });
            }
        }
        self.update(id, |meta| meta.reserve = reserve).await
    }

    pub async fn rename(self: &Arc<Self>, id: VolumeId, name: &str) -> Result<()> {
        check_name(name, &Attributes::default())?;
        if self.find(name).is_some_and(|other| other != id) {
            return Err(Error::Exists(format!("volume {name}")));
        }
        self.update(id, |meta| {
            if is_pool(meta) {
                meta.attributes.pool = name.to_string();
            }
            meta.name = name.to_string();
        })
        .await?;
        self.core.volumes_changed();
        Ok(())
    }

    pub async fn set_read_only(self: &Arc<Self>, id: VolumeId, read_only: bool) -> Result<()> {
        // Writes under way finish before the volume is read-only.
        let gate = self.volume_now(id)?.close_gate(false).await;
        let outcome = self.update(id, |meta| meta.read_only = read_only).await;
        drop(gate);
        outcome
    }

    pub async fn set_attributes(self: &Arc<Self>, id: VolumeId, attributes: Attributes) -> Result<()> {
        check_name("x", &attributes)?;
        self.update(id, |meta| meta.attributes = attributes.clone()).await?;
        if attributes.layout() == Some(Layout::Read) {
            self.want_rehoming(id);
        }
        Ok(())
    }

    /// Changes the group's own properties.
    pub async fn set_group_attributes(self: &Arc<Self>, attributes: GroupAttributes) -> Result<()> {
        self.check_writable()?;
        if attributes.pv_tags.len() > MAX_PVS {
            return Err(Error::Invalid(format!("tags of more than {MAX_PVS} physical volumes")));
        }
        attributes.pv_tags.iter().chain([&attributes.tags]).try_for_each(|tags| check_tags(tags))?;
        self.change(|| {
            let _gate = self.core.gate.read();
            let mut catalog = self.catalog_mut();
            let (before, more) = (tag_bytes(&catalog.attributes), tag_bytes(&attributes));
            if more > before {
                self.admit_change(more - before)?;
            }
            let unallocatable = catalog.attributes.unallocatable;
            catalog.attributes = GroupAttributes { unallocatable, ..attributes.clone() };
            Ok(())
        })
        .await?;
        self.checkpoint().await
    }

    /// Takes space from the physical volume from now on, or takes none from it any more: what lies there stays, and is read
    /// and written in place. [`Error::NoSpace`]: what is promised would have too little room elsewhere.
    pub async fn set_allocatable(self: &Arc<Self>, pv: PvIndex, is_allocatable: bool) -> Result<()> {
        self.check_writable()?;
        let index = usize::from(pv.0);
        if index >= self.core.placement().pvs.len() {
            return Err(Error::NotFound(format!("physical volume {index}")));
        }
        loop {
            let change = || {
                let _gate = self.core.gate.read();
                let mut catalog = self.catalog_mut();
                let outcome = self.core.space.lock().set_allocatable(self.core.hands(), index, is_allocatable)?;
                if outcome.is_ok() {
                    catalog.attributes.unallocatable.set(index, !is_allocatable);
                }
                Ok(outcome)
            };
            match self.core.with_nodes_privileged(change).await? {
                Ok(()) => return self.checkpoint().await,
                Err(_) if self.more_space().await? => {}
                Err(too_few) => {
                    let space = self.core.space.lock();
                    let (needed, promised) = (space.promised(), space.promised());
                    return Err(Error::NoSpace { needed, free: promised.saturating_sub(too_few) });
                }
            }
        }
    }

    /// Gives the group another name.
    pub async fn rename_group(self: &Arc<Self>, name: &str) -> Result<()> {
        self.check_writable()?;
        if name.is_empty() || name.len() > 127 {
            return Err(Error::Invalid("a volume group's name has 1 to 127 bytes".into()));
        }
        let hold = self.hold_checkpoints().await;
        self.root.lock().group.name = name.to_owned();
        drop(hold);
        self.checkpoint().await
    }

    async fn update(self: &Arc<Self>, id: VolumeId, change: impl Fn(&mut VolumeMeta)) -> Result<()> {
        self.core.journal.admit().await?;
        let seq = self
            .change(|| {
                let _gate = self.core.gate.read();
                let mut catalog = self.catalog_mut();
                let volume = catalog.volumes.get(&id).cloned();
                let volume = volume.ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
                let mut meta = volume.state.lock().meta.clone();
                change(&mut meta);
                if catalog.names.get(&meta.name).is_some_and(|other| *other != id) {
                    return Err(Error::Exists(format!("volume {}", meta.name)).into());
                }
                let more = volume_bytes(&meta.attributes);
                let before = volume_bytes(&volume.state.lock().meta.attributes);
                if more > before {
                    self.admit_change(more - before)?;
                }
                self.apply_update(&mut catalog, &meta)?;
                Ok(self.append(&Record::Update { volume: meta }))
            })
            .await?;
        self.durable(seq).await
    }

    pub(super) fn apply_update(&self, catalog: &mut Catalog, meta: &VolumeMeta) -> Result<()> {
        let volume = catalog.volumes.get(&meta.id).cloned();
        let volume = volume.ok_or_else(|| Error::NotFound(format!("volume {}", meta.id)))?;
        let mut state = volume.state.lock();
        if state.meta.name != meta.name {
            catalog.names.remove(&state.meta.name);
            catalog.names.insert(meta.name.clone(), meta.id);
        }
        let pool = (is_pool(&state.meta) && is_pool(meta)).then(|| state.meta.name.clone());
        let reserve_changed = state.meta.reserve != meta.reserve;
        state.meta.name = meta.name.clone();
        state.meta.read_only = meta.read_only;
        state.meta.reserve = meta.reserve;
        state.meta.full = meta.full;
        state.meta.attributes = meta.attributes.clone();
        drop(state);
        if let Some(before) = pool.filter(|before| *before != meta.name) {
            follow_pool(catalog, &before, &meta.name);
        }
        if reserve_changed {
            let used = Holdings(catalog).held(meta.id);
            let reserve = meta.reserve.map(|blocks| Reserve { blocks, used });
            self.core.space.lock().set_reserve(meta.id, reserve);
        }
        Ok(())
    }

    /// What a write does when there is no space.
    pub async fn set_full_policy(self: &Arc<Self>, id: VolumeId, full: FullPolicy) -> Result<()> {
        self.update(id, |meta| meta.full = full).await
    }

    /// Erases the group's metadata; the physical volumes stay labelled and belong to no group. It must have no volume.
    pub async fn destroy(self: &Arc<Self>) -> Result<()> {
        let volumes = self.catalog.read().volumes.len();
        if volumes > 0 {
            return Err(Error::Busy(format!("the volume group still has {volumes} volumes")));
        }
        let pvs = self.root.lock().group.pvs.clone();
        self.close().await?;
        for (i, pv) in pvs.iter().enumerate() {
            Group::write_label(&*self.core.disks, PvIndex(i as u16), pv.uuid).await?;
        }
        Ok(())
    }

    /// Takes over what recovery or a merge has to know of a live head's parent under removal.
    pub(super) fn set_absorb(volume: &Volume, absorb: Option<Absorb>) {
        volume.state.lock().set_absorb(absorb);
    }
}

/// A pool has another name: so have its volumes, by the same record.
fn follow_pool(catalog: &Catalog, before: &str, now: &str) {
    for volume in catalog.volumes.values() {
        let pool = &mut volume.state.lock().meta.attributes.pool;
        if pool == before {
            now.clone_into(pool);
        }
    }
}

/// Blocks that are placed when they are written have no place before.
fn refuse_places(on: &[PvExtents]) -> Result<()> {
    match on {
        [] => Ok(()),
        _ => Err(Error::Invalid("space for this volume is taken as it is written to, wherever there is room".into())),
    }
}

/// A head that starts as its point is.
fn child_head(point: &TreeMeta, id: TreeId) -> TreeMeta {
    TreeMeta {
        id,
        parent: Some(point.id),
        kind: TreeKind::Head,
        epoch: Epoch(0),
        birth: Epoch(point.epoch.0 + 1),
        own: 0,
        guard: None,
        cursor: 0,
        progress: 0,
        dead: Vec::new(),
        ..point.clone()
    }
}

/// Runs laid out one after the other from an LV block on.
fn place_runs(mut at: u64, runs: &[Run]) -> Vec<Placed> {
    let mut placed = Vec::with_capacity(runs.len());
    for (start, len) in runs {
        placed.push(Placed { lv_block: LvBlock(at), vg_block: VgBlock(*start), len: *len });
        at += len;
    }
    placed
}
