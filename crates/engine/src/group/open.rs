//! Creating a group, opening it, and recovery.
//!
//! Recovery applies, on top of the last checkpoint and in the order in which they were made, the journal's records: those
//! below the highest marker on trust, the others if the data that they name is on the disk (rule R6). It changes nothing that
//! another recovery needs until it takes its own checkpoint, so that it can be interrupted and begun again at any time. It takes
//! one at the end, and others on its way where metadata is short (`replay.rs`).
//!
//! * B1 Whatever opening reads is durable before it writes anything. A server may have died with its newest superblock in the
//!   disk's cache. Recovery writes over what only the superblock before that one needs, and a power cut may leave just that one.

use super::age::find_root;
use super::ahead::blocks_taken;
use super::catalog::Catalog;
use super::evidence::{prove, scan_journal};
use super::holdings::Holdings;
use super::read::{read_stream, replay_corrupt, stream_corrupt};
use super::replay_position::Replay;
use super::{Group, Root};
use crate::core::{Absorb, Core, count};
use crate::dead::Points;
use crate::disk::{DiskOp, Disks, PvIndex, start};
use crate::error::{Error, Result};
use crate::format::journal::Record;
use crate::format::stream::Stream;
use crate::format::superblock::{self, DATA_OFFSET, EXTENT_BLOCKS, GroupRoot, MAX_PVS, PvEntry};
use crate::journal::places::BadPlaces;
use crate::journal::{Journal, Ring};
use crate::model::{
    Config, GroupAttributes, NewGroup, NewPv, PvFlags, Tree, TreeKind, TreeMeta, VolumeKind, VolumeMeta, VolumeState,
};
use crate::placement::Placement;
use crate::runtime::Runtime;
use crate::space::metadata::{LEAST_METADATA, MetaSpace};
use crate::space::pvs::Pvs;
use crate::space::{Reserve, Space};
use crate::units::{BLOCK_SIZE, Epoch, MetaBlock, Seq, TreeId, Uuid, VgBlock, VolumeId};
use crate::volume::Volume;
use crate::volume::state::{State, apply_place, apply_unmap, apply_write};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

/// Journal size: a 64th of the group, within these bounds.
const JOURNAL_MIN: u64 = 1 << 20;
const JOURNAL_MAX: u64 = 64 << 20;
/// The first eight bytes of the group's UUID: carried by every metadata block.
fn tag_of(uuid: Uuid) -> u64 {
    u64::from_le_bytes(*uuid.0.first_chunk().expect("a UUID has 16 bytes"))
}

/// Whether this planted bug is asked for.
fn is_planted(config: &Config, bug: &str) -> bool {
    cfg!(feature = "planted") && config.planted == Some(bug)
}

/// Runs no background work: for creation and for read-only checks, which need none.
struct NoRuntime;

impl Runtime for NoRuntime {
    fn spawn(&self, _name: &'static str, task: crate::runtime::Task) {
        drop(task);
    }
    fn sleep(&self, _pause: std::time::Duration) -> crate::runtime::Task {
        Box::pin(async {})
    }
}

/// Puts physical volumes behind those of the table: `pvs[0]` is the disk behind the table's.
pub(super) async fn extend_table(
    disks: &dyn Disks,
    table: &mut Vec<PvEntry>,
    extent_blocks: u64,
    pvs: &[NewPv],
) -> Result<()> {
    let first = table.len();
    for (i, pv) in pvs.iter().enumerate() {
        let index = u16::try_from(first + i).expect("at most 64 physical volumes");
        let size = super::label::usable(disks, PvIndex(index)).await;
        let extents = size.saturating_sub(DATA_OFFSET) / (extent_blocks * BLOCK_SIZE);
        if extents == 0 {
            return Err(Error::Invalid(format!(
                "physical volume {index} of {size} bytes is too small for one extent of {} bytes",
                extent_blocks * BLOCK_SIZE
            )));
        }
        let first_extent = superblock::place_behind(table, extent_blocks, extents).ok_or_else(|| {
            Error::Invalid(format!("there are no numbers for the {extents} extents of physical volume {index}"))
        })?;
        table.push(PvEntry { uuid: pv.uuid, first_extent, extents, size });
    }
    Ok(())
}

impl Group {
    /// Writes a group's metadata to the given disks. They must carry no group (the caller checks labels).
    pub async fn create(disks: Arc<dyn Disks>, spec: NewGroup) -> Result<()> {
        if !spec.extent_blocks.is_power_of_two() || !EXTENT_BLOCKS.contains(&spec.extent_blocks) {
            return Err(Error::Invalid("an extent must be a power of two from 4 KiB to 1 TiB".into()));
        }
        if spec.pvs.is_empty() || spec.pvs.len() > MAX_PVS || spec.pvs.len() > disks.count() {
            return Err(Error::Invalid(format!("a volume group has 1 to {MAX_PVS} physical volumes")));
        }
        if spec.name.is_empty() || spec.name.len() > 127 {
            return Err(Error::Invalid("a volume group's name has 1 to 127 bytes".into()));
        }
        let mut pvs = Vec::new();
        extend_table(&*disks, &mut pvs, spec.extent_blocks, &spec.pvs).await?;
        let placement = Arc::new(Placement::new(spec.extent_blocks, pvs.clone()));
        let journal_bytes = (placement.count() * BLOCK_SIZE / 64).clamp(JOURNAL_MIN, JOURNAL_MAX);
        let journal_blocks = (journal_bytes / BLOCK_SIZE).next_multiple_of(spec.extent_blocks);
        let pairs = (LEAST_METADATA / spec.extent_blocks).max(1);
        let metadata = pairs * spec.extent_blocks;
        // What is not free at the beginning of each. The second copy belongs on another physical volume, where one has room.
        let mut taken = vec![0; pvs.len()];
        taken[0] = journal_blocks + metadata;
        let of_second = (1..pvs.len()).find(|pv| pvs[*pv].extents * spec.extent_blocks >= metadata).unwrap_or(0);
        let second = pvs[of_second].first_extent * spec.extent_blocks + taken[of_second];
        taken[of_second] += metadata;
        if taken[0] > pvs[0].extents * spec.extent_blocks {
            return Err(Error::Invalid(format!(
                "the physical volumes are too small: the journal and the metadata need {} extents",
                journal_blocks / spec.extent_blocks + 2 * pairs
            )));
        }
        let root = GroupRoot {
            uuid: spec.uuid,
            name: spec.name,
            extent_blocks: spec.extent_blocks,
            pvs: pvs.clone(),
            journal_start: 0,
            journal_blocks,
            journal_id: 1,
            journal_position: 0,
            journal_seq: 1,
            capture_seq: 1,
            generation: 0,
            features: 0,
            index: [0; 2],
            stream_len: 0,
            clean: true,
            bad: BadPlaces::default(),
        };
        let pv_free = pvs.iter().map(|pv| ((pv.first_extent + pv.extents) * spec.extent_blocks, 0)).collect();
        let starts = (0..metadata).step_by(spec.extent_blocks as usize);
        let places: Vec<[u64; 2]> = starts.map(|at| [journal_blocks + at, second + at]).collect();
        let parts = Parts {
            placement: placement.clone(),
            meta: MetaSpace::new(&places, &[], spec.extent_blocks),
            space: Space::new(Tree::default(), 0, Pvs::new(pv_free)),
            next_seq: Seq(1),
            catalog: Catalog::new(1, 1, 1, GroupAttributes::default(), Arc::new(Points::new(true))),
            sequence: 1,
            stream_blocks: Vec::new(),
        };
        let group = Group::assemble(disks.clone(), Arc::new(NoRuntime), Config::default(), root, parts);
        group.back_areas().await?;
        for (i, taken) in taken.into_iter().enumerate() {
            let pv = PvIndex(i as u16);
            let Range { start, end } = placement.range_of(pv);
            group.add_free(start + taken, end).await?;
            super::label::erase(&*disks, pv).await?;
        }
        group.checkpoint_turn(group.final_ticket(), true).await
    }

    pub(super) async fn add_free(&self, mut start: u64, end: u64) -> Result<()> {
        while start < end {
            let step = || {
                let _gate = self.core.gate.read();
                self.core.space.lock().add_free(self.core.hands(), (start, end - start))
            };
            start += self.core.with_nodes_privileged(step).await?;
        }
        Ok(())
    }

    fn assemble(
        disks: Arc<dyn Disks>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        root: GroupRoot,
        parts: Parts,
    ) -> Arc<Group> {
        let tag = tag_of(root.uuid);
        let ring = Ring {
            start: VgBlock(root.journal_start),
            bytes: root.journal_blocks * BLOCK_SIZE,
            id: root.journal_id,
            group: tag,
            bad: root.bad.clone(),
        };
        let journal = Journal::new(
            disks.clone(),
            runtime.clone(),
            (*parts.placement).clone(),
            ring,
            parts.next_seq,
            config.planted,
        );
        let generation = root.generation + 1;
        let points = parts.catalog.points.clone();
        let core = Core::new(
            disks,
            runtime,
            config,
            tag,
            parts.placement,
            parts.meta,
            parts.space,
            journal,
            generation,
            points,
        );
        let group = Arc::new(Group {
            core: core.clone(),
            catalog: RwLock::new(parts.catalog),
            root: Mutex::new(Root {
                sequence: parts.sequence,
                written: root.clone(),
                group: root,
                stream_blocks: parts.stream_blocks,
            }),
            checkpoints: Default::default(),
            background: core.journal.background.clone(),
            reclaim_wanted: AtomicBool::new(true),
            lost: Mutex::default(),
            retry: Mutex::default(),
            stands_still: AtomicBool::new(false),
            orphans_urgent: AtomicBool::new(false),
            to_rehome: Mutex::default(),
            to_fill: Mutex::default(),
            rehome_wanted: AtomicBool::new(false),
            replay: Mutex::new(None),
        });
        let this: Weak<Group> = Arc::downgrade(&group);
        core.journal.set_keeper(this.clone());
        core.set_space_finder(this);
        group
    }

    /// Opens the group on these disks, in the order of the group's table, and recovers it.
    pub async fn open(disks: Arc<dyn Disks>, runtime: Arc<dyn Runtime>, config: Config) -> Result<Arc<Group>> {
        Self::open_as(disks, runtime, config, false).await
    }

    /// `is_live`: another has the group open, and this one only looks.
    pub(super) async fn open_as(
        disks: Arc<dyn Disks>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        is_live: bool,
    ) -> Result<Arc<Group>> {
        // B1: it covers what is read from here on, as nobody writes meanwhile.
        let flushes = !config.read_only && !is_planted(&config, "no_first_flush");
        let flush = flushes.then(|| start(&*disks, DiskOp::Flush));
        let newest = find_root(&*disks, is_planted(&config, "any_age")).await?;
        let (sequence, mut root) = (newest.sequence, newest.group.clone());
        let placement = Arc::new(Placement::new(root.extent_blocks, root.pvs.clone()));
        let tag = tag_of(root.uuid);
        let (stream, stream_places) = read_stream(&*disks, &placement, &root, tag, &mut None).await?;
        // The journal of a group that another has open goes on while it is read.
        let looks_behind = !is_live && !is_planted(&config, "ends_anywhere");
        let journal = scan_journal(&*disks, &placement, &root, tag, &stream.open_records, looks_behind).await?;
        let unverified = is_planted(&config, "skip_crc");
        let applied =
            prove(&*disks, &placement, journal.records, if unverified { Seq(u64::MAX) } else { journal.marker })
                .await?;
        check_stream(&stream, &placement, &root)?;
        let mut meta = MetaSpace::new(&stream.pairs, &stream.pair_lengths, root.extent_blocks);
        if !meta.load_bitmap(&stream.bitmap) {
            return Err(stream_corrupt("the bitmap of metadata blocks does not fit the metadata area"));
        }
        let replay = Replay {
            journal_id: root.journal_id,
            frames: journal.frames,
            capture: Seq(root.capture_seq),
            open: stream.open_records.clone(),
            next: Seq(root.journal_seq),
            slack: u64::MAX,
        };
        // A journal life of its own: frames of the one before can never be taken for ours.
        root.journal_id += 1;
        let ends = root.pvs.iter().map(|pv| (pv.first_extent + pv.extents) * root.extent_blocks);
        let pv_free = ends.zip(stream.pv_free.iter().copied()).collect();
        let mut space = Space::new(stream.free_tree, stream.free_blocks, Pvs::new(pv_free));
        (0..root.pvs.len()).filter(|pv| stream.attributes.unallocatable.has(*pv)).for_each(|pv| space.bar(pv));
        for arena in &stream.arenas {
            if !space.restore_arena(arena.start, arena.len, &arena.used) {
                return Err(stream_corrupt("two arenas overlap"));
            }
        }
        if !space.restore_freed(stream.to_free.clone()) {
            return Err(stream_corrupt("it frees a block twice"));
        }
        let stream_blocks = stream_places.into_iter().filter_map(|place| meta_block_of(&meta, place)).collect();
        let points = Arc::new(Points::new(!is_planted(&config, "dead_by_birth")));
        let attributes = stream.attributes.clone();
        let catalog = Catalog::new(stream.epoch, stream.next_volume, stream.next_tree, attributes, points);
        let next_seq = Seq(journal.next.0.max(root.capture_seq));
        let read_only = config.read_only;
        let pvs = root.pvs.len();
        let parts = Parts { placement, meta, space, next_seq, catalog, sequence, stream_blocks };
        let group = Group::assemble(disks, runtime, config, root, parts);
        group.build_catalog(&stream)?;
        {
            let bytes = group.stream_estimate();
            let mut meta = group.core.meta.lock();
            meta.keep_for_stream(bytes);
            meta.stream_has(group.root.lock().stream_blocks.len() as u64);
            if read_only {
                meta.lend();
            }
        }
        *group.replay.lock() = Some(replay);
        if let Some(flush) = flush {
            flush.await?;
        }
        if !read_only {
            // Replay may take checkpoints.
            group.back_at_opening().await;
            super::label::clear_torn(&*group.core.disks, pvs, sequence).await?;
            newest.complete(&*group.core.disks).await?;
        }
        group.return_freed().await?;
        group.replay(applied).await?;
        group.settle_promises();
        #[cfg(feature = "planted")]
        {
            let mut space = group.core.space.lock();
            space.reuse_early = group.core.planted("reuse_early");
            space.take_barred = group.core.planted("take_barred");
        }
        if !read_only {
            group.checkpoint_turn(group.final_ticket(), false).await?;
            group.repeat_superblocks(|_| {}).await?;
            group.want_all_rehomed();
            group.start_background();
        }
        Ok(group)
    }

    fn build_catalog(&self, stream: &Stream) -> Result<()> {
        let mut catalog = self.catalog_mut();
        let placement = self.core.placement();
        let (heads, others): (Vec<_>, Vec<_>) = stream.trees.iter().cloned().partition(|t| t.kind == TreeKind::Head);
        for tree in others {
            catalog.add_child(tree.parent, tree.id);
            catalog.insert_tree(tree);
        }
        for head in &heads {
            catalog.add_child(head.parent, head.id);
        }
        let heads: BTreeMap<TreeId, TreeMeta> = heads.into_iter().map(|h| (h.id, h)).collect();
        for meta in &stream.volumes {
            let head = if meta.state == VolumeState::Invalid {
                empty_head(meta.head, Epoch(1))
            } else {
                let head = heads.get(&meta.head);
                head.cloned().ok_or_else(|| stream_corrupt("a volume has no head"))?
            };
            let id = meta.id;
            let parent = match head.parent {
                Some(parent) => {
                    let parent = catalog.trees.get(&parent);
                    Some(parent.ok_or_else(|| stream_corrupt("a head has an unknown parent"))?)
                }
                None => None,
            };
            let mut state = State::new(meta.clone(), head, parent, placement.clone());
            if let Some(parent) = parent.filter(|p| p.kind == TreeKind::Dying) {
                let lower = catalog.epoch_of(parent.parent);
                state.set_absorb(Some(Absorb { cursor: parent.cursor, lower }));
            }
            catalog.heads.insert(state.head.id, id);
            let volume = Volume { core: self.core.clone(), id, state: Mutex::new(state) };
            if catalog.names.insert(meta.name.clone(), id).is_some() {
                return Err(stream_corrupt("two volumes have one name"));
            }
            catalog.insert_volume(Arc::new(volume));
        }
        // Removal would wait for ever for a child that nobody has.
        match heads.keys().all(|head| catalog.heads.contains_key(head)) {
            true => Ok(()),
            false => Err(stream_corrupt("two volumes have one head")),
        }
    }

    /// Applies what the journal kept. First all places that records name are taken, so that nothing else is put there.
    async fn replay(self: &Arc<Self>, records: Vec<(Seq, Record, bool)>) -> Result<()> {
        let applied: Vec<_> = records
            .into_iter()
            .filter(|(_, _, good)| {
                if !good {
                    count(&self.core.counters.recovery_skipped);
                }
                *good
            })
            .collect();
        let placement = self.core.placement();
        let window = self.window();
        let inside = |start: u64, len: u64| placement.holds(start, len);
        for (at, (_, record, _)) in applied.iter().enumerate() {
            if at % window == 0 {
                let records = &applied[at..applied.len().min(at + window)];
                self.free_ahead(|| blocks_taken(records)).await;
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
                    .with_nodes_privileged(|| self.core.space.lock().mark_used(self.core.hands(), (start, len)))
                    .await?;
            }
        }
        // What is not free by now waits for recovery's own checkpoint.
        self.core.space.lock().abort_commit();
        for (at, (seq, record, _)) in applied.iter().enumerate() {
            if at % window == 0 {
                self.maps_ahead(&applied[at..applied.len().min(at + window)]).await;
            }
            self.replay_reached(*seq);
            self.replay_room().await?;
            self.apply(record).await?;
            count(&self.core.counters.recovered);
        }
        *self.replay.lock() = None;
        Ok(())
    }

    /// Carries out one record on the state in memory.
    async fn apply(self: &Arc<Self>, record: &Record) -> Result<()> {
        let core = &self.core;
        match record {
            Record::Write { volume, extents } => {
                let volume = self.replay_volume(*volume)?;
                let parent = volume.state.lock().head.parent;
                let parent = parent.and_then(|p| self.catalog.read().trees.get(&p).map(|t| t.tree));
                for extent in extents {
                    let end = extent.lv_block.0.saturating_add(u64::from(extent.len));
                    if end > volume.state.lock().meta.blocks || extent.len == 0 {
                        return Err(replay_corrupt("a write beyond the volume's end"));
                    }
                    let write = || apply_write(core, &mut volume.state.lock(), extent, parent.as_ref());
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
        catalog.refuse_known(Some(id), &[meta.head])?;
        catalog.next_volume = catalog.next_volume.max(id.0 + 1);
        catalog.next_tree = catalog.next_tree.max(meta.head.0 + 1);
        if catalog.names.insert(meta.name.clone(), id).is_some() {
            return Err(replay_corrupt("two volumes of one name"));
        }
        let head = empty_head(meta.head, Epoch(1));
        catalog.heads.insert(head.id, id);
        let state = State::new(meta, head, None, self.core.placement());
        let volume = Arc::new(Volume { core: self.core.clone(), id, state: Mutex::new(state) });
        catalog.insert_volume(volume.clone());
        Ok(volume)
    }

    /// Recomputes promises and reserves from the counters.
    pub(super) fn settle_promises(&self) {
        let catalog = self.catalog.read();
        let holdings = Holdings(&catalog);
        let mut shortfall = 0;
        let mut reserves = Vec::new();
        for volume in catalog.volumes.values() {
            let state = volume.state.lock();
            shortfall += state.shortfall();
            reserves.extend(state.meta.reserve.filter(|_| !state.invalid()).map(|blocks| (volume.id, blocks)));
        }
        let reserves: Vec<_> =
            reserves.into_iter().map(|(id, blocks)| (id, Reserve { blocks, used: holdings.held(id) })).collect();
        let mut space = self.core.space.lock();
        space.promise_anew(shortfall);
        for (id, reserve) in reserves {
            space.set_reserve(id, Some(reserve));
        }
    }
}

/// A head that maps nothing.
pub(super) fn empty_head(id: TreeId, birth: Epoch) -> TreeMeta {
    TreeMeta {
        id,
        parent: None,
        kind: TreeKind::Head,
        epoch: Epoch(0),
        birth,
        tree: Tree::default(),
        mapped: 0,
        written: 0,
        own: 0,
        guard: None,
        cursor: 0,
        progress: 0,
        dead: Vec::new(),
    }
}

/// The pieces that opening and creating assemble a group from.
struct Parts {
    placement: Arc<Placement>,
    meta: MetaSpace,
    space: Space,
    next_seq: Seq,
    catalog: Catalog,
    sequence: u64,
    stream_blocks: Vec<MetaBlock>,
}

fn meta_block_of(meta: &MetaSpace, place: u64) -> Option<MetaBlock> {
    meta.block_at(VgBlock(place))
}

/// No counter is larger than all blocks that there can be, nor are they together.
fn has_possible_counters(tree: &TreeMeta) -> bool {
    let dead = tree.dead.iter().try_fold(0u64, |sum, (_, blocks)| sum.checked_add(*blocks));
    let counters = [tree.mapped, tree.own.unsigned_abs(), tree.progress, dead.unwrap_or(u64::MAX)];
    tree.written <= tree.mapped && counters.iter().all(|counter| *counter < 1 << 48)
}

/// What a stream from a damaged or hostile disk must satisfy before anything relies on it.
fn check_stream(stream: &Stream, placement: &Placement, root: &GroupRoot) -> Result<()> {
    let blocks = placement.count();
    let inside = |start: u64, len: u64| len > 0 && placement.holds(start, len);
    let length = |n: usize| stream.pair_lengths.get(n).copied().unwrap_or(root.extent_blocks);
    let lengths = || (0..stream.pairs.len()).map(length);
    let copies = stream.pairs.iter().zip(lengths()).flat_map(|(pair, len)| pair.map(|start| (start, len)));
    let mut copies = copies.into_iter();
    let pairs = copies.all(|(start, len)| inside(start, len))
        && lengths().try_fold(0u64, |sum, len| sum.checked_add(len)).is_some_and(|sum| sum <= blocks);
    let runs = stream.to_free.iter().all(|(start, len)| inside(*start, *len));
    let arenas = stream.arenas.iter().all(|a| inside(a.start, a.len));
    let trees = stream.trees.iter().all(|t| t.id.0 < stream.next_tree && has_possible_counters(t));
    let volume_ids: BTreeSet<_> = stream.volumes.iter().map(|v| v.id).collect();
    let volumes = volume_ids.len() == stream.volumes.len()
        && stream.volumes.iter().all(|v| v.id.0 < stream.next_volume && v.name.len() <= 127);
    let ids: BTreeSet<_> = stream.trees.iter().map(|t| t.id).collect();
    let parents = stream.trees.iter().filter_map(|t| t.parent).all(|p| ids.contains(&p));
    let distinct = ids.len() == stream.trees.len();
    // Parents lead upwards, never in a circle: epochs fall. A dying tree that was a head has none, and is nobody's parent.
    let by_id: BTreeMap<_, _> = stream.trees.iter().map(|t| (t.id, t)).collect();
    let order = stream.trees.iter().all(|t| {
        let parent = t.parent.and_then(|p| by_id.get(&p));
        parent.is_none_or(|p| {
            p.kind != TreeKind::Head
                && p.epoch != Epoch(0)
                && (t.kind == TreeKind::Head || t.epoch == Epoch(0) || p.epoch < t.epoch)
        })
    });
    let heads = stream.volumes.iter().filter(|v| v.state == VolumeState::Ok).count();
    let heads_match = heads == stream.trees.iter().filter(|t| t.kind == TreeKind::Head).count();
    let thick = stream.volumes.iter().all(|v| v.kind == VolumeKind::Thin || v.blocks <= blocks);
    let roots = stream.trees.iter().map(|t| &t.tree).chain([&stream.free_tree]).filter_map(|t| t.root);
    let written = roots.map(|r| r.generation).max().is_none_or(|newest| newest <= root.generation);
    let known = stream.trees.iter().all(|t| t.epoch.0 < stream.epoch && t.birth.0 <= stream.epoch);
    let checks = [
        (written, "a tree's root is younger than the checkpoint"),
        (known, "a tree is of an epoch that has not begun"),
        (pairs, "its metadata area lies outside the group"),
        (runs, "it frees blocks outside the group"),
        (arenas, "an arena lies outside the group"),
        (trees, "a tree has impossible counters"),
        (volumes, "a volume has an impossible id or name"),
        (parents && distinct && order, "the history of its points does not hold together"),
        (heads_match, "volumes and heads do not match"),
        (thick, "a thick volume is larger than the group"),
        (!stream.pairs.is_empty(), "it has no metadata area"),
        (
            PvFlags::of_first(root.pvs.len()).has_all(stream.attributes.unallocatable),
            "it bars physical volumes that are not there",
        ),
        (stream.free_blocks <= blocks, "it has more free blocks than blocks"),
        (
            stream.pv_free.len() == root.pvs.len()
                && stream.pv_free.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)) == Some(stream.free_blocks),
            "the free blocks of its physical volumes do not add up",
        ),
    ];
    match checks.iter().find(|(good, _)| !good) {
        Some((_, what)) => Err(stream_corrupt(what)),
        None => Ok(()),
    }
}

impl Group {
    /// Drains, checkpoints and marks the group clean. Volumes answer [`Error::Closed`] afterwards.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        if !self.quiesce().await {
            return Ok(());
        }
        let outcome = match self.core.config.read_only {
            true => Ok(()),
            false => self.checkpoint_turn(self.final_ticket(), true).await,
        };
        self.end_background();
        outcome
    }

    /// Lets what is under way finish, and nothing begin. False: that has been done already.
    pub(super) async fn quiesce(&self) -> bool {
        let volumes: Vec<_> = self.catalog.read().volumes.values().cloned().collect();
        if self.core.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        for volume in volumes {
            let gate = volume.close_gate(true).await;
            volume.state.lock().closed = true;
            drop(gate);
        }
        true
    }

    /// A group that is closed has nothing to do in the background.
    pub(super) fn end_background(&self) {
        self.background.notify();
        self.core.space_event.notify();
    }
}
