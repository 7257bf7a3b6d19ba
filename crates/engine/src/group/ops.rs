//! The administrator's requests to a group, and their changes of the catalog. The running group and recovery use the
//! same `apply_` functions (G3).

use super::Group;
use super::catalog::Catalog;
use super::checkpoint::{tag_bytes, volume_bytes};
use super::pools::is_pool;
use super::retry::Nearer;
use super::snapshot_usage::SnapshotUsage;
use crate::core::MergeCursor;
use crate::disk::PvIndex;
use crate::error::{Error, Result};
use crate::format::journal::Record;
use crate::format::superblock::MAX_PVS;
use crate::map::MapError;
use crate::model::{Attributes, FullPolicy, GroupAttributes, Layout, SegmentType, VolumeMeta};
use crate::space::Reserve;
use crate::units::{Seq, VolumeId};
use crate::volume::Volume;
use std::sync::Arc;

/// The most bytes of a tag, and of all tags of one volume with their lengths: a record of them fits into any group's
/// journal.
const MAX_TAG: usize = 1024;
const MAX_TAGS: usize = (256 + 1) << 10;

/// Why a step under the gate could not be finished: read a node, find room, or fail.
pub(super) enum ChangeError {
    Map(MapError),
    Fatal(Error),
}

impl From<Error> for ChangeError {
    fn from(error: Error) -> Self {
        ChangeError::Fatal(error)
    }
}

impl From<MapError> for ChangeError {
    fn from(error: MapError) -> Self {
        ChangeError::Map(error)
    }
}

pub(super) fn check_name(name: &str, attributes: &Attributes) -> Result<()> {
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
            "too many or too long tags: one has at most {each} characters, all tags of one object together have at most {all} KiB"
        )));
    }
    Ok(())
}

impl Group {
    /// Repeats a step under the gate until it has its nodes and its room.
    pub(super) async fn change<T>(&self, mut step: impl FnMut() -> std::result::Result<T, ChangeError>) -> Result<T> {
        self.check_writable()?;
        let mut fatal = None;
        let outcome = self
            .core
            .with_nodes(|| match step() {
                Ok(value) => Ok(Some(value)),
                Err(ChangeError::Map(error)) => Err(error),
                Err(ChangeError::Fatal(error)) => {
                    fatal = Some(error);
                    Ok(None)
                }
            })
            .await?;
        self.core.volumes_changed();
        outcome.ok_or_else(|| fatal.expect("a step without a value says why"))
    }

    pub(super) fn append(&self, record: &Record) -> Seq {
        #[cfg(feature = "planted")]
        if self.core.planted("record_later") {
            return self.append_later(record.clone());
        }
        self.core.journal.append(record, false)
    }

    /// Planted bug: other tasks can run between the change and its record, against G1.
    #[cfg(feature = "planted")]
    fn append_later(&self, record: Record) -> Seq {
        let journal = self.core.journal.clone();
        let later = async move {
            crate::runtime::yield_now().await;
            journal.append(&record, false);
        };
        self.core.runtime.spawn("late record", Box::pin(later));
        self.core.journal.next_seq()
    }

    /// Waits for space that will be freed soon. False: no space will be freed.
    pub(crate) async fn more_space(self: &Arc<Self>) -> Result<bool> {
        self.more_space_for(SegmentType::Linear).await
    }

    /// The same for volumes of this type: extents can change their type.
    pub(crate) async fn more_space_for(self: &Arc<Self>, segment: SegmentType) -> Result<bool> {
        let pending = self.core.space.lock().pending_blocks();
        if pending > 0 {
            self.checkpoint().await?;
            // A checkpoint frees nothing if metadata has no room for it.
            let left = self.core.space.lock().pending_blocks();
            if left == 0 || left < pending {
                return Ok(true);
            }
        }
        if self.change_type_for(segment).await? {
            return Ok(true);
        }
        let turn = self.core.space_event.turn();
        self.failed()?;
        if self.reclaiming() || self.search_orphans() {
            self.core.space_event.changed(turn).await;
            return Ok(true);
        }
        Ok(false)
    }

    pub(super) fn volume_now(&self, id: VolumeId) -> Result<Arc<Volume>> {
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

    pub(super) fn check_fits(&self, record: &Record) -> std::result::Result<(), ChangeError> {
        if self.core.journal.fits(record) {
            return Ok(());
        }
        Err(Error::Invalid("the change is too large for this volume group's journal: divide it".into()).into())
    }

    /// Admits a change that makes checkpoints longer by this many bytes (M2).
    pub(super) fn admit_change(&self, bytes: u64) -> std::result::Result<(), MapError> {
        if self.core.meta.lock().admit_change(bytes) { Ok(()) } else { Err(MapError::NoSpace) }
    }

    /// Changes a snapshot's reserve.
    pub async fn set_reserve(self: &Arc<Self>, id: VolumeId, reserve: Option<u64>) -> Result<()> {
        let (old, segment) = {
            let volume = self.volume(id)?;
            let state = volume.state.lock();
            (state.meta.reserve, state.meta.segment)
        };
        let more = reserve.unwrap_or(0).saturating_sub(old.unwrap_or(0));
        let mut nearer = Nearer::default();
        loop {
            let free = self.core.space.lock().available_for(segment);
            if more <= free {
                break;
            }
            if !self.room_for_volume(segment, more - free, &[], &mut nearer).await? {
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
        self.may_change()?;
        // Writes in flight finish before the volume is read-only.
        let gate = self.volume_now(id)?.close_gate(false).await;
        let outcome = self.update(id, |meta| meta.read_only = read_only).await;
        drop(gate);
        outcome
    }

    pub async fn set_attributes(self: &Arc<Self>, id: VolumeId, attributes: Attributes) -> Result<()> {
        check_name("x", &attributes)?;
        let was_held = self.volume_info(id)?.attributes.is_held();
        self.update(id, |meta| meta.attributes = attributes.clone()).await?;
        if was_held && !attributes.is_held() {
            self.request_reclaim();
        }
        if attributes.layout() == Some(Layout::Read) {
            self.request_rehoming(id);
        }
        Ok(())
    }

    /// Changes the group's own properties.
    pub async fn set_group_attributes(self: &Arc<Self>, attributes: GroupAttributes) -> Result<()> {
        self.may_change()?;
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

    /// Makes the physical volume allocatable or not. Blocks in use stay there, and are read and written in place.
    /// [`Error::NoSpace`]: there would be too little room elsewhere for the reservations.
    pub async fn set_allocatable(self: &Arc<Self>, pv: PvIndex, is_allocatable: bool) -> Result<()> {
        self.change_allocatable(pv, is_allocatable, None).await
    }

    /// Makes a physical volume that took no data allocatable, and takes this tag off, in one step.
    pub async fn take_spare(self: &Arc<Self>, pv: PvIndex, tag: &str) -> Result<()> {
        self.change_allocatable(pv, true, Some(tag)).await
    }

    async fn change_allocatable(
        self: &Arc<Self>,
        pv: PvIndex,
        is_allocatable: bool,
        without_tag: Option<&str>,
    ) -> Result<()> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        let index = usize::from(pv.0);
        if index >= self.core.placement().pvs.len() {
            return Err(Error::NotFound(format!("physical volume {index}")));
        }
        loop {
            let change = || {
                let _gate = self.core.gate.read();
                let mut catalog = self.catalog_mut();
                let context = self.core.alloc_context();
                let outcome = self.core.space.lock().set_allocatable(context, index, is_allocatable)?;
                if outcome.is_ok() {
                    catalog.attributes.unallocatable.set(index, !is_allocatable);
                    let tags = &mut catalog.attributes.pv_tags;
                    if let Some(own) = tags.get_mut(index) {
                        own.retain(|tag| without_tag != Some(tag));
                    }
                    // A group without tags is like one that never had any.
                    while tags.last().is_some_and(Vec::is_empty) {
                        tags.pop();
                    }
                }
                Ok(outcome)
            };
            match self.core.with_nodes_privileged(change).await? {
                Ok(()) => return self.checkpoint().await,
                Err(_) if self.more_space().await? => {}
                Err(too_few) => {
                    let needed = self.core.space.lock().reserved_for(SegmentType::Linear);
                    return Err(Error::NoSpace { needed, free: needed.saturating_sub(too_few) });
                }
            }
        }
    }

    /// Gives the group another name.
    pub async fn rename_group(self: &Arc<Self>, name: &str) -> Result<()> {
        self.may_change()?;
        if name.is_empty() || name.len() > 127 {
            return Err(Error::Invalid("a volume group's name has 1 to 127 bytes".into()));
        }
        let hold = self.hold_checkpoints().await;
        self.root.lock().group.name = name.to_owned();
        drop(hold);
        self.checkpoint().await
    }

    async fn update(self: &Arc<Self>, id: VolumeId, change: impl Fn(&mut VolumeMeta)) -> Result<()> {
        self.may_change()?;
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
            let used = SnapshotUsage(catalog).held(meta.id);
            let reserve = meta.reserve.map(|blocks| Reserve { segment: meta.segment, blocks, used });
            self.core.space.lock().set_reserve(meta.id, reserve);
        }
        Ok(())
    }

    /// Sets what a write does when there is no space.
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

    /// Tells a live head how far the removal of its parent is, for a merge or recovery.
    pub(super) fn set_merge_cursor(volume: &Volume, merge_cursor: Option<MergeCursor>) {
        volume.state.lock().set_merge_cursor(merge_cursor);
    }
}

/// A pool was renamed: the same record changes the pool's name in its volumes.
fn follow_pool(catalog: &Catalog, before: &str, now: &str) {
    for volume in catalog.volumes.values() {
        let pool = &mut volume.state.lock().meta.attributes.pool;
        if pool == before {
            now.clone_into(pool);
        }
    }
}
