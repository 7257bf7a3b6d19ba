//! Opening a group, with recovery.
//!
//! Recovery starts from the last checkpoint and applies the journal's records in order: all records below the highest
//! marker, and later ones if their data is on the disk (rule R6). Before its own checkpoint it changes nothing that
//! another recovery needs. So it can be interrupted and started again at any time. It takes a checkpoint at the end,
//! and earlier ones if metadata is short (`replay.rs`).
//!
//! * RO1 A group is not written by a program that does not know all features that writers must know. It is opened
//!   read-only ([`Config::read_only`]): recovery changes memory only, and no request reaches the disks but reads
//!   (docs/adr/0054).
//! * B1 Everything that opening reads is durable before it writes. A server may have died with its newest superblock in
//!   the disk's cache. Recovery overwrites blocks that only the superblock before it needs, and a power cut could leave
//!   just that older one.

use super::catalog::{Catalog, empty_head};
use super::journal_layout::is_copy_on;
use super::journal_scan::{prove, scan_journal};
use super::newest_root::find_root;
use super::read::{read_stream, stream_corrupt};
use super::replay_position::Replay;
use super::requirements::Requirements;
use super::zones::read_zones;
use super::{Durable, Group, Root};
use crate::core::{Core, MergeCursor};
use crate::dead_blocks::PointEpochs;
use crate::disk::{DiskOp, Disks, PvIndex, start};
use crate::error::Result;
use crate::format::journal::Record;
use crate::format::stream::Stream;
use crate::format::superblock::GroupRoot;
use crate::journal::{Copies, Journal, Ring};
use crate::legs::{Legs, LegsState};
use crate::members::Members;
use crate::model::{ArenaMeta, Config, PvFlags, TreeKind, TreeMeta, VolumeKind, VolumeState};
use crate::placement::Placement;
use crate::planted;
use crate::runtime::Runtime;
use crate::space::Space;
use crate::space::metadata::MetaSpace;
use crate::space::pvs::Pvs;
use crate::units::{BLOCK_SIZE, Epoch, MetaBlock, Seq, TreeId, Uuid, VgBlock};
use crate::unproven::Unproven;
use crate::volume::Volume;
use crate::volume::state::State;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Whether this bug is planted.
fn is_planted(config: &Config, bug: &str) -> bool {
    cfg!(feature = "planted") && config.planted == Some(bug)
}

impl Group {
    pub(super) fn assemble(
        disks: Arc<Members>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        root: GroupRoot,
        parts: Parts,
    ) -> Arc<Group> {
        let tag = root.tag();
        let ring =
            Ring { bytes: root.journal_blocks * BLOCK_SIZE, id: root.journal_id, group: tag, bad: root.bad.clone() };
        let copies = Copies::new(&usable_journals(&root, &parts.placement, disks.out()), parts.placement.clone());
        let journal = Journal::new(disks.clone(), runtime.clone(), copies, ring, parts.next_seq, config.planted);
        let (generation, root_zones) = (root.generation + 1, root.zones.serial);
        let points = parts.catalog.points.clone();
        let durable = Durable { group: root.clone(), pairs: parts.meta.recorded_pairs() };
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
                durable,
                stream_blocks: parts.stream_blocks,
            }),
            checkpoints: Default::default(),
            background: core.journal.background.clone(),
            reclaim_wanted: AtomicBool::new(true),
            lost: Mutex::default(),
            retry: Mutex::default(),
            removal_stopped: AtomicBool::new(false),
            orphans_urgent: AtomicBool::new(false),
            to_rehome: Mutex::default(),
            to_fill: Mutex::default(),
            rehome_wanted: AtomicBool::new(false),
            scrubs: Default::default(),
            mirrors_wanted: AtomicBool::new(true),
            has_mirrors_task: AtomicBool::new(false),
            repairing: AtomicBool::new(false),
            dissolve_wanted: AtomicBool::new(true),
            progress: Default::default(),
            moves: Default::default(),
            discards: Default::default(),
            zones_on: Mutex::new((root_zones, parts.zones_on)),
            replay: Mutex::new(None),
        });
        let this: Weak<Group> = Arc::downgrade(&group);
        core.journal.set_owner(this.clone());
        core.members.legs().set_owner(this.clone());
        core.set_space_finder(this);
        group
    }

    /// Opens the group on these disks, in the order of the group's table, and recovers it.
    pub async fn open(disks: Arc<dyn Disks>, runtime: Arc<dyn Runtime>, config: Config) -> Result<Arc<Group>> {
        Self::open_as(disks, runtime, config, false, None).await
    }

    /// The same if physical volumes may be missing; a disk of size 0 stands for each. They are out until they return
    /// (MB1). `lineage`: a random number for the new history.
    pub async fn open_without(
        disks: Arc<dyn Disks>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        lineage: u64,
    ) -> Result<Arc<Group>> {
        Self::open_as(disks, runtime, config, false, Some(lineage)).await
    }

    /// `is_live`: another process has the group open, and this one only reads.
    pub(super) async fn open_as(
        disks: Arc<dyn Disks>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        is_live: bool,
        without: Option<u64>,
    ) -> Result<Arc<Group>> {
        // B1: it covers everything that is read from here on, because nothing is written meanwhile.
        let flushes = !config.read_only && !is_planted(&config, "no_first_flush");
        let flush = flushes.then(|| start(&*disks, DiskOp::Flush));
        let newest = find_root(&*disks, is_planted(&config, "stale_pv_accepted"), without).await?;
        let (sequence, mut root) = (newest.sequence, newest.group.clone());
        if !config.read_only && !planted::is("unknown_written") {
            root.check_known_to_writers()?;
        }
        let out = PvFlags(root.out());
        if planted::is("missing_pv_not_recorded") {
            root.left.clear();
        }
        let tag = root.tag();
        let legs = Legs::new(disks, runtime.clone(), tag);
        let disks = Arc::new(Members::new(legs, out, planted::is("lost_are_zeros")));
        let zones_on = read_zones(&*disks, &mut root).await?;
        let placement = Arc::new(Placement::of(&root));
        let state = LegsState {
            out,
            behind: PvFlags(root.behind),
            behind_longer: PvFlags(root.behind_longer),
            is_read_only: config.read_only,
        };
        disks.legs().open(placement.mirrored_runs(), state).await?;
        Requirements { root: &root, placement: &placement, out }.check_journal()?;
        if !out.is_empty() {
            let there = usable_journals(&root, &placement, out);
            root.set_whole_journals(&there);
        }
        let requirements = Requirements { root: &root, placement: &placement, out };
        let read = read_stream(&*disks, &placement, &root, tag, &mut None).await;
        let (stream, stream_places) = read.map_err(|error| requirements.metadata_error(error))?;
        requirements.check_pairs(&stream.pairs, &stream.pair_lengths)?;
        // The journal of a group that another process has open changes during the reads.
        let looks_behind = !is_live && !is_planted(&config, "journal_end_not_checked");
        let journal = scan_journal(&*disks, &placement, &root, tag, &stream.open_records, looks_behind).await?;
        let unverified = is_planted(&config, "skip_crc");
        let (applied, unproven) =
            prove(&*disks, &placement, journal.records, if unverified { Seq(u64::MAX) } else { journal.marker })
                .await?;
        check_stream(&stream, &placement, &root)?;
        let mut meta = MetaSpace::new(&stream.pairs, &stream.pair_lengths, root.extent_blocks);
        if !meta.load_bitmap(&stream.bitmap) {
            return Err(stream_corrupt("the bitmap of metadata blocks does not fit the metadata area"));
        }
        load_unproven(&disks.unproven, &placement, &stream, root.extent_blocks, &applied);
        let newly = unproven.into_iter().filter(|_| !planted::is("unproven_forgotten"));
        newly.for_each(|run| disks.unproven.add(&placement, run));
        let replay = Replay {
            journal_id: root.journal_id,
            frames: journal.frames,
            capture: Seq(root.capture_seq),
            open: stream.open_records.clone(),
            next: Seq(root.journal_seq),
            slack: u64::MAX,
        };
        // A new journal id: frames of the previous journal can never be mistaken for new ones.
        root.journal_id += 1;
        let pvs = Pvs::stored(&placement, &stream.pv_free, stream.free_blocks);
        let mut space = Space::new(stream.free_tree, stream.free_blocks, pvs);
        let is_out_unallocatable = !planted::is("allocated_on_missing");
        (0..root.pvs.len())
            .filter(|pv| stream.attributes.unallocatable.has(*pv) || out.has(*pv) && is_out_unallocatable)
            .for_each(|pv| space.make_unallocatable(pv));
        let mut to_free = stream.to_free.clone();
        for arena in &stream.arenas {
            if placement.is_lost(arena.start, |pv| out.has(usize::from(pv.0))).0 && is_out_unallocatable {
                // MB3: no blocks are allocated on it.
                to_free.extend(unused(arena));
            } else if !space.restore_arena(arena.start, arena.len, &arena.used) {
                return Err(stream_corrupt("two arenas overlap"));
            }
        }
        if !space.restore_freed(to_free) {
            return Err(stream_corrupt("it frees a block twice"));
        }
        let stream_blocks = stream_places.into_iter().filter_map(|place| meta_block_of(&meta, place)).collect();
        let points = Arc::new(PointEpochs::new(!is_planted(&config, "dead_never_folded")));
        let attributes = stream.attributes.clone();
        let catalog = Catalog::new(stream.epoch, stream.next_volume, stream.next_tree, attributes, points);
        let next_seq = Seq(journal.next.0.max(root.capture_seq));
        let read_only = config.read_only;
        let pvs = root.pvs.len();
        let parts = Parts { placement, meta, space, next_seq, catalog, sequence, stream_blocks, zones_on };
        let group = Group::assemble(disks, runtime, config, root, parts);
        group.build_catalog(&stream)?;
        {
            let bytes = group.stream_estimate();
            let mut meta = group.core.meta.lock();
            meta.set_stream_bytes(bytes);
            meta.set_stream_in_use(group.root.lock().stream_blocks.len() as u64);
            if read_only {
                meta.add_replay_blocks();
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
            let root = group.root.lock().written.clone();
            group.write_zones(&root).await?;
            newest.complete(&*group.core.disks).await?;
        }
        group.return_freed().await?;
        group.replay(applied).await?;
        group.settle_reservations();
        #[cfg(feature = "planted")]
        {
            let mut space = group.core.space.lock();
            space.reuse_early = group.core.planted("reuse_early");
            space.take_unallocatable = group.core.planted("take_unallocatable");
        }
        if !read_only {
            group.checkpoint_turn(group.final_ticket(), false).await?;
            group.repeat_superblocks(|_| {}).await?;
            group.join_stale_copies().await?;
            group.core.backing.is_serving.store(true, Ordering::Release);
            group.request_rehoming_of_all();
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
                state.set_merge_cursor(Some(MergeCursor { cursor: parent.cursor, lower }));
            }
            catalog.heads.insert(state.head.id, id);
            let volume = Volume::new(self.core.clone(), id, state);
            if catalog.names.insert(meta.name.clone(), id).is_some() {
                return Err(stream_corrupt("two volumes have one name"));
            }
            catalog.insert_volume(Arc::new(volume));
        }
        // Removal would wait for ever for a child that does not exist.
        match heads.keys().all(|head| catalog.heads.contains_key(head)) {
            true => Ok(()),
            false => Err(stream_corrupt("two volumes have one head")),
        }
    }
}

/// The copies of the journal that have all frames (JC2) and lie on physical volumes that are not out.
fn usable_journals(root: &GroupRoot, placement: &Placement, out: PvFlags) -> Vec<u64> {
    let is_out = |start: &u64| {
        let mut out = out.iter().map(|pv| PvIndex(u16::try_from(pv).expect("at most 64 physical volumes")));
        out.any(|pv| is_copy_on(root, placement, *start, pv))
    };
    root.whole_journals().filter(|start| !is_out(start)).collect()
}

/// The unused blocks of an arena.
fn unused(arena: &ArenaMeta) -> impl Iterator<Item = (u64, u64)> {
    (0..arena.len).filter(|i| arena.used[(i / 8) as usize] >> (i % 8) & 1 == 0).map(|i| (arena.start + i, 1))
}

/// The pieces that opening and creating assemble a group from.
pub(super) struct Parts {
    pub placement: Arc<Placement>,
    pub meta: MetaSpace,
    pub space: Space,
    pub next_seq: Seq,
    pub catalog: Catalog,
    pub sequence: u64,
    pub stream_blocks: Vec<MetaBlock>,
    pub zones_on: BTreeSet<Uuid>,
}

fn meta_block_of(meta: &MetaSpace, place: u64) -> Option<MetaBlock> {
    meta.block_at(VgBlock(place))
}

/// Neither a counter nor their sum exceeds the number of possible blocks.
fn has_possible_counters(tree: &TreeMeta) -> bool {
    let dead = tree.dead.iter().try_fold(0u64, |sum, (_, blocks)| sum.checked_add(*blocks));
    let counters = [tree.mapped, tree.own.unsigned_abs(), tree.progress, dead.unwrap_or(u64::MAX)];
    tree.written <= tree.mapped && counters.iter().all(|counter| *counter < 1 << 48)
}

/// Reads the unproven blocks of the checkpoint (MB7), without those that have other contents now: metadata, or the data
/// of a record that counts.
fn load_unproven(
    unproven: &Unproven,
    placement: &Placement,
    stream: &Stream,
    extent_blocks: u64,
    applied: &[(Seq, Record, bool)],
) {
    stream.unproven.iter().for_each(|run| unproven.add(placement, *run));
    for (n, pair) in stream.pairs.iter().enumerate() {
        let blocks = stream.pair_lengths.get(n).copied().unwrap_or(extent_blocks);
        pair.iter().for_each(|start| unproven.forget_range(&(*start..start + blocks)));
    }
    for (_, record, _) in applied.iter().filter(|(_, _, counts)| *counts) {
        let Record::Write { extents, .. } = record else { continue };
        let written = extents.iter().map(|extent| (extent.vg_block.0, u64::from(extent.len)));
        let inside = written.filter(|(start, len)| placement.holds(*start, *len));
        inside.for_each(|(start, len)| unproven.forget_blocks(placement, start, len));
    }
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
        && lengths().try_fold(0u64, u64::checked_add).is_some_and(|sum| sum <= blocks);
    let runs = stream.to_free.iter().all(|(start, len)| inside(*start, *len));
    let arenas = stream.arenas.iter().all(|a| inside(a.start, a.len));
    let unproven = stream.unproven.iter().all(|run| inside(run.start, run.len));
    let trees = stream.trees.iter().all(|t| t.id.0 < stream.next_tree && has_possible_counters(t));
    let volume_ids: BTreeSet<_> = stream.volumes.iter().map(|v| v.id).collect();
    let volumes = volume_ids.len() == stream.volumes.len()
        && stream.volumes.iter().all(|v| v.id.0 < stream.next_volume && v.name.len() <= 127);
    let ids: BTreeSet<_> = stream.trees.iter().map(|t| t.id).collect();
    let parents = stream.trees.iter().filter_map(|t| t.parent).all(|p| ids.contains(&p));
    let distinct = ids.len() == stream.trees.len();
    // Parents never form a circle: epochs fall upwards. A dying tree that was a head has no epoch, and no children.
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
    // Free striped blocks have counters of their own, behind the others. Mirrored free blocks are the rest.
    let striped = Pvs::striped_counters(placement);
    let has_mirrored = placement.runs().iter().any(|run| run.is_mirrored);
    let pv_free = stream.pv_free.iter().try_fold(0u64, |sum, free| sum.checked_add(*free));
    let adds_up = pv_free.is_some_and(|sum| sum == stream.free_blocks || has_mirrored && sum < stream.free_blocks);
    let checks = [
        (written, "a tree's root is younger than the checkpoint"),
        (known, "a tree has an epoch above the group's"),
        (pairs, "its metadata area lies outside the group"),
        (runs, "it frees blocks outside the group"),
        (arenas, "an arena lies outside the group"),
        (unproven, "unproven blocks lie outside the group"),
        (trees, "a tree has impossible counters"),
        (volumes, "a volume has an impossible id or name"),
        (parents && distinct && order, "the parents and epochs of its points contradict each other"),
        (heads_match, "volumes and heads do not match"),
        (thick, "a thick volume is larger than the group"),
        (!stream.pairs.is_empty(), "it has no metadata area"),
        (
            PvFlags::of_first(root.pvs.len()).has_all(stream.attributes.unallocatable),
            "it names physical volumes as not allocatable that do not exist",
        ),
        (stream.free_blocks <= blocks, "it has more free blocks than blocks"),
        (
            stream.pv_free.len() == root.pvs.len() + striped && adds_up,
            "the free blocks of its physical volumes do not add up",
        ),
    ];
    match checks.iter().find(|(good, _)| !good) {
        Some((_, what)) => Err(stream_corrupt(what)),
        None => Ok(()),
    }
}
