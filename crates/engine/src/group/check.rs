//! Verification of a group: both copies of every node of every tree, every block's owner, every counter.
//!
//! Repair does the same, and writes good copies of metadata over bad ones. It changes nothing else. It only reports
//! metadata of which both copies are bad, or that contradicts itself.
//!
//! An open group is checked from its last checkpoint and its journal, as recovery would see them. Checkpoints continue
//! meanwhile. The metadata blocks that the check may read are held (M6), so they are not overwritten. If the group
//! needs them, the check ends without a report.
//!
//! A node that several trees share is walked once. When it is met again, the counts below it come from memory.

use super::Group;
use super::progress::{CheckProgress, Progress};
use super::read::{BadCopy, either, read_stream};
use crate::core::Core;
use crate::dead_blocks::{self, DeadCounters};
use crate::disk::{DiskOp, Disks, start};
use crate::error::{Error, Result};
use crate::fixed_hash::Map;
use crate::format::node::{Node, UNWRITTEN};
use crate::map::{self, NodeRef};
use crate::model::{Config, SegmentType, TreeKind, TreeMeta};
use crate::runtime::{AnswersOnly, yield_now};
use crate::space::OpenArenas;
use crate::space::metadata::Pair;
use crate::units::{Epoch, MetaBlock, TreeId, VgBlock};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The result of `check`. Without findings the group is sound.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// A text for each finding: what is wrong, and where.
    pub findings: Vec<String>,
    /// How many of the findings are bad copies of metadata whose other copy is good: repair corrects them.
    pub repairable: u64,
    /// A text for each bad copy of metadata that was repaired from the good one.
    pub repaired: Vec<String>,
    /// A text for each bad block that the group knows and avoids, and for volumes with unproven blocks (MB7). The group
    /// is sound nevertheless.
    pub notes: Vec<String>,
    /// Physical volumes that are missing: nothing on them was examined.
    pub missing: u32,
    /// Tree nodes read.
    pub nodes: u64,
    /// Blocks that volumes and points use.
    pub blocks: u64,
}

/// The most findings that are reported.
const MAX_FINDINGS: usize = 100;
/// In groups of up to this many blocks (64 GiB; four bytes of memory for each block), the check also compares all
/// mappings of each block.
const IDENTITY_BLOCKS: u64 = 16 << 20;

/// Metadata grows for a check only up to this fraction of the group.
const METADATA_FOR_CHECKS: u64 = 8;

impl CheckReport {
    fn find(&mut self, what: String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(what);
        }
    }
}

impl Group {
    /// Verifies everything, read-only, on the disks of a group that nothing else has open.
    pub async fn check(disks: Arc<dyn Disks>) -> Result<CheckReport> {
        Self::verify(disks, false, &|_| {}).await
    }

    /// Reads everything that an opening reads: superblocks, the last checkpoint and the journal. Writes nothing.
    /// Another process may have the group open, and may overwrite a part meanwhile: so a failure may be retried.
    ///
    /// # Errors
    /// [`Error::ReadableOnly`]: this program cannot write it.
    pub async fn can_be_opened(disks: Arc<dyn Disks>) -> Result<()> {
        let tasks = Arc::new(AnswersOnly::default());
        let group = tasks.run(open_for_check(disks, tasks.clone(), true)).await?;
        let root = group.root.lock();
        root.group.check_known_to_writers()
    }

    /// Verifies everything like [`check`](Self::check), and repairs bad copies of metadata from the good ones.
    pub async fn repair(disks: Arc<dyn Disks>) -> Result<CheckReport> {
        Self::verify(disks, true, &|_| {}).await
    }

    /// [`check`](Self::check) for this open group, whose volumes stay in use.
    pub async fn check_open(self: &Arc<Self>) -> Result<CheckReport> {
        self.verify_open(false).await
    }

    /// [`repair`](Self::repair) for this open group, whose volumes stay in use.
    pub async fn repair_open(self: &Arc<Self>) -> Result<CheckReport> {
        self.check_writable()?;
        self.verify_open(true).await
    }

    async fn verify_open(self: &Arc<Self>, repair: bool) -> Result<CheckReport> {
        if self.core.config.read_only {
            let seen = |progress| self.progress.set_check(progress);
            let _shown = Shown::begin(&self.progress);
            return Self::verify(self.core.disks.clone(), false, &seen).await;
        }
        self.make_room_for_check().await?;
        self.checkpoint().await?;
        let hold = self.hold_checkpoints().await;
        let pin = CheckpointPin::new(&self.core);
        // Requests go through this group's disks, which have mirrors of their own.
        let group = open_for_check(self.core.disks.clone(), Arc::new(AnswersOnly::default()), true).await;
        drop(hold);
        let mut report = CheckReport::default();
        match group {
            Ok(group) => {
                let mut check = Check::new(&group);
                let shown = Shown::begin(&self.progress);
                let seen = |progress| self.progress.set_check(progress);
                check.seen = &seen;
                let outcome = check.run(&|| pin.is_held()).await;
                // No metadata block is reused while no checkpoint ends.
                let hold = if repair { Some(self.hold_checkpoints().await) } else { None };
                pin.is_held()?;
                report = check.finish(outcome, repair).await?;
                drop((hold, shown));
            }
            Err(error @ Error::Corrupt { .. }) => report.find(error.to_string()),
            Err(error) => return Err(error),
        }
        pin.is_held()?;
        Ok(report)
    }

    /// Grows metadata until a pin can last while checkpoints end (M6). Without space for that, the check begins
    /// nevertheless, and may be ended early.
    async fn make_room_for_check(&self) -> Result<()> {
        let most = self.core.placement().count() / METADATA_FOR_CHECKS;
        loop {
            let (is_short, metadata) = {
                let meta = self.core.meta.lock();
                (meta.is_short_for_pin(), 2 * meta.total())
            };
            if !is_short || metadata >= most || self.core.planted("no_room_for_check") {
                return Ok(());
            }
            // It takes neither reserved space nor nearly all of the free space.
            let has_plenty = self.core.space.lock().available() > self.core.placement().count() / METADATA_FOR_CHECKS;
            let open = if has_plenty { OpenArenas::StayWithReserved } else { OpenArenas::Stay };
            match self.core.grow(open).await {
                Ok(true) => {}
                Ok(false) | Err(Error::NoSpace { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// [`check`](Self::check), or [`repair`](Self::repair), which calls `seen` with its progress.
    pub async fn verify(disks: Arc<dyn Disks>, repair: bool, seen: &Seen<'_>) -> Result<CheckReport> {
        let tasks = Arc::new(AnswersOnly::default());
        tasks.run(Self::verify_with(disks, tasks.clone(), repair, seen)).await
    }

    async fn verify_with(
        disks: Arc<dyn Disks>,
        tasks: Arc<AnswersOnly>,
        repair: bool,
        seen: &Seen<'_>,
    ) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        match open_for_check(disks, tasks, false).await {
            Ok(group) => {
                if repair {
                    group.root.lock().group.check_known_to_writers()?;
                }
                let mut check = Check::new(&group);
                check.seen = seen;
                let outcome = check.run(&|| Ok(())).await;
                report = check.finish(outcome, repair).await?;
            }
            Err(error @ Error::Corrupt { .. }) => report.find(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(report)
    }
}

/// The group as recovery would see it now. `is_live`: it is open meanwhile.
async fn open_for_check(disks: Arc<dyn Disks>, tasks: Arc<AnswersOnly>, is_live: bool) -> Result<Arc<Group>> {
    let config = Config { read_only: true, ..Config::default() };
    Group::open_as(disks, tasks, config, is_live, None).await
}

/// Holds the blocks of an open group's last checkpoint while it exists (M6).
struct CheckpointPin<'a> {
    core: &'a Core,
    number: u64,
}

impl<'a> CheckpointPin<'a> {
    fn new(core: &'a Core) -> Self {
        let mut meta = core.meta.lock();
        let number = meta.pin_checkpoint();
        if core.planted("kept_blocks_reused") {
            meta.drop_pins();
        }
        CheckpointPin { core, number }
    }

    fn is_held(&self) -> Result<()> {
        match self.core.meta.lock().is_pinned(self.number) || self.core.planted("kept_blocks_reused") {
            true => Ok(()),
            false => Err(Error::Busy(
                "the check ended early: writes needed the metadata blocks that it reads; run it again later".into(),
            )),
        }
    }
}

impl Drop for CheckpointPin<'_> {
    fn drop(&mut self) {
        self.core.meta.lock().unpin_checkpoint(self.number);
    }
}

/// Counters of one tree as the walk finds them.
#[derive(Default)]
struct Counted {
    all: Below,
    own: u64,
}

struct Check<'a> {
    group: &'a Arc<Group>,
    report: CheckReport,
    /// One bit for each block, by its number ([`Placement::number_of`]): it is used.
    used: Vec<u64>,
    /// For each block, a hash of the LV block and birth that map it, if the group is small enough.
    identity: Vec<u32>,
    /// One bit for each metadata block: a node that was seen.
    nodes: Vec<u64>,
    /// The types of volumes, by their heads (S8).
    types: BTreeMap<TreeId, SegmentType>,
    /// The counts below interior nodes that were walked completely.
    below: Map<MetaBlock, Below>,
    bad: Vec<BadCopy>,
    /// Unproven blocks (MB7) by the tree that was walked to them first.
    unproven: BTreeMap<TreeId, u64>,
    /// Metadata blocks in use when it began: an upper bound of the nodes.
    total: u64,
    seen: &'a Seen<'a>,
}

/// Gets the progress of a check.
pub type Seen<'a> = dyn Fn(CheckProgress) + Send + Sync + 'a;

/// Progress that is shown while it lives.
struct Shown<'a>(&'a Progress);

impl<'a> Shown<'a> {
    fn begin(progress: &'a Progress) -> Self {
        progress.set_check(CheckProgress::default());
        Shown(progress)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.clear_check();
    }
}

/// Blocks that are mapped, and written, below a node.
#[derive(Clone, Copy, Default)]
struct Below {
    mapped: u64,
    written: u64,
}

impl Below {
    fn add(&mut self, more: Below) {
        self.mapped += more.mapped;
        self.written += more.written;
    }
}

/// Adds up the counts of a walk, from leaves and skipped nodes to the nodes above them.
#[derive(Default)]
struct Sums {
    /// By level: the counts below unfinished nodes, by first key.
    levels: Vec<Vec<(u64, Below)>>,
}

impl Sums {
    fn add(&mut self, level: u8, first_key: u64, below: Below) {
        let level = usize::from(level);
        if self.levels.len() <= level {
            self.levels.resize(level + 1, Vec::new());
        }
        self.levels[level].push((first_key, below));
    }

    /// An interior node ends: returns the counts below it.
    fn end(&mut self, node: &map::Passed) -> Below {
        let mut sum = Below::default();
        let inside = |key: u64| node.first_key <= key && node.end_key.is_none_or(|end| key < end);
        if let Some(met) = self.levels.get_mut(usize::from(node.level) - 1) {
            met.iter().filter(|(key, _)| inside(*key)).for_each(|(_, below)| sum.add(*below));
            met.retain(|(key, _)| !inside(*key));
        }
        self.add(node.level, node.first_key, sum);
        sum
    }
}

impl<'a> Check<'a> {
    fn new(group: &'a Arc<Group>) -> Self {
        let blocks = group.core.placement().count();
        let identity = if blocks <= IDENTITY_BLOCKS { blocks as usize } else { 0 };
        let (metadata, total) = {
            let meta = group.core.meta.lock();
            (meta.total(), meta.used())
        };
        Check {
            group,
            report: CheckReport::default(),
            used: vec![0; blocks.div_ceil(64) as usize],
            identity: vec![0; identity],
            nodes: vec![0; metadata.div_ceil(64) as usize],
            types: group.types_of_heads(),
            below: Map::default(),
            bad: Vec::new(),
            unproven: BTreeMap::new(),
            total,
            seen: &|_| {},
        }
    }

    /// Reads both copies of a node, if it is on the disk. Nodes that recovery changed are in memory only.
    async fn copies(&mut self, passed: &map::Passed) -> Result<()> {
        let core = &self.group.core;
        if passed.node.generation > self.group.root.lock().group.generation {
            return Ok(());
        }
        let located = core.meta.lock().locate(passed.node.addr);
        let Some(places) = located else { return Ok(()) };
        let decode = |block: &[u8]| Node::decode(block, passed.node, passed.level, core.tag).map(drop);
        let copies = places.map(|place| place.0);
        either(&*core.disks, &core.placement(), copies, decode, &mut Some(&mut self.bad)).await
    }

    /// Reads both copies of the checkpoint's stream and its index.
    async fn stream(&mut self) -> Result<()> {
        let core = &self.group.core;
        let root = self.group.root.lock().group.clone();
        read_stream(&*core.disks, &core.placement(), &root, core.tag, &mut Some(&mut self.bad)).await.map(drop)
    }

    /// Reports physical volumes without the table of zones or, with `repair`, writes it there.
    async fn settle_zones(&mut self, repair: bool) -> Result<()> {
        let root = self.group.root.lock().written.clone();
        for (pv, _) in self.group.without_zones(&root) {
            let what = format!("the table of moved extents on physical volume {} is bad", pv.0);
            match repair {
                true => self.report.repaired.push(what),
                false => {
                    self.report.repairable += 1;
                    self.report.find(what);
                }
            }
        }
        if repair { self.group.write_zones(&root).await } else { Ok(()) }
    }

    /// Reports the bad copies or, with `repair`, rewrites them.
    async fn settle_copies(&mut self, repair: bool) -> Result<()> {
        self.settle_zones(repair).await?;
        let core = &self.group.core;
        let rewritten = repair && !self.bad.is_empty();
        for BadCopy { place, why, good } in self.bad.drain(..) {
            let what = format!("of two copies of a metadata block the one at VG block {place} is bad: {why}");
            match repair {
                true => {
                    core.write_blocks(VgBlock(place), Arc::new(good)).await?;
                    self.report.repaired.push(what);
                }
                false => {
                    self.report.repairable += 1;
                    self.report.find(what);
                }
            }
        }
        if rewritten {
            start(&*core.disks, DiskOp::Flush).await?;
        }
        Ok(())
    }

    /// Ends the check. Bad copies are reported or, with `repair`, rewritten.
    async fn finish(mut self, outcome: Result<()>, repair: bool) -> Result<CheckReport> {
        self.settle_copies(repair).await?;
        match outcome {
            Ok(()) => {}
            Err(error @ Error::Corrupt { .. }) => self.report.find(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(self.report)
    }

    /// False: this node was seen before.
    fn meet(&mut self, node: MetaBlock) -> bool {
        let Some(word) = self.nodes.get_mut((node.0 / 64) as usize) else { return true };
        let is_new = *word >> (node.0 % 64) & 1 == 0;
        *word |= 1 << (node.0 % 64);
        is_new
    }

    fn is_used(&self, number: u64) -> bool {
        self.used[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    fn set_used(&mut self, number: u64) {
        self.used[(number / 64) as usize] |= 1 << (number % 64);
    }

    /// Marks existing blocks as used. Returns the first one that was already used.
    fn mark(&mut self, start: u64, len: u64) -> Option<u64> {
        let first = self.group.core.placement().number_of(start);
        let mut double_free = None;
        for i in 0..len {
            if self.is_used(first + i) {
                double_free = double_free.or(Some(start + i));
            }
            self.set_used(first + i);
        }
        double_free
    }

    async fn run(&mut self, may_continue: &impl Fn() -> Result<()>) -> Result<()> {
        self.fixed_areas();
        self.stream().await?;
        let trees = self.trees();
        for tree in trees.values() {
            self.tree(tree, &trees, may_continue).await?;
        }
        self.name_unproven(&trees);
        self.free_space(may_continue).await?;
        self.metadata();
        Ok(())
    }

    /// The volumes with unreadable blocks (MB7). Blocks of a point belong to all volumes above it.
    fn name_unproven(&mut self, trees: &BTreeMap<TreeId, TreeMeta>) {
        let mut above: BTreeMap<TreeId, Vec<String>> = self.unproven.keys().map(|tree| (*tree, Vec::new())).collect();
        let volumes =
            if above.is_empty() { Vec::new() } else { self.group.catalog.read().volumes.values().cloned().collect() };
        for volume in volumes {
            let state = volume.state.lock();
            let head = Some(state.head.id).filter(|_| !state.invalid());
            let up = std::iter::successors(head, |tree| trees.get(tree).and_then(|tree| tree.parent));
            // On a damaged image parents may be a circle.
            for tree in up.take(trees.len() + 1) {
                above.entry(tree).and_modify(|names| names.push(state.meta.name.clone()));
            }
        }
        for (blocks, names) in self.unproven.values().zip(above.values()).filter(|(_, names)| !names.is_empty()) {
            let names = names.join(", ");
            self.report.notes.push(format!(
                "{blocks} block(s) of {names} cannot be read: they were being written when their disk was lost"
            ));
        }
    }

    /// The journal and the metadata area.
    fn fixed_areas(&mut self) {
        let placement = self.group.core.placement();
        let root = self.group.root.lock().group.clone();
        self.report.notes = placement.bad_places(&root);
        self.report.missing = self.group.out().iter().count() as u32;
        let mut areas: Vec<_> = root.journals().map(|start| ("the journal", start, root.journal_blocks)).collect();
        let pairs = self.group.core.meta.lock().pairs().to_vec();
        areas.extend(pairs.iter().flat_map(Pair::runs).map(|(start, len)| ("the metadata area", start, len)));
        for (what, start, len) in areas {
            if !placement.holds(start, len) {
                self.report.find(format!("{what} at VG block {start} lies outside the group"));
            } else if let Some(block) = self.mark(start, len) {
                self.report.find(format!("{what} overlaps something else at VG block {block}"));
            }
        }
    }

    /// All trees by id, heads included.
    fn trees(&self) -> BTreeMap<TreeId, TreeMeta> {
        let catalog = self.group.catalog.read();
        let mut trees = catalog.trees.clone();
        for volume in catalog.volumes.values() {
            let state = volume.state.lock();
            if !state.invalid() {
                trees.insert(state.head.id, state.head.clone());
            }
        }
        trees
    }

    async fn tree(
        &mut self,
        tree: &TreeMeta,
        trees: &BTreeMap<TreeId, TreeMeta>,
        may_continue: &impl Fn() -> Result<()>,
    ) -> Result<()> {
        let parent = tree.parent.and_then(|p| trees.get(&p));
        let lower = parent.map_or(Epoch(0), |p| p.epoch);
        let dying_parent = parent.is_some_and(|p| p.kind == TreeKind::Dying && p.cursor > 0);
        let mut counted = Counted::default();
        let mut cursor = tree.first_key();
        let mut sums = Sums::default();
        loop {
            may_continue()?;
            yield_now().await;
            let core = &self.group.core;
            // A shared node that was walked before needs no second walk.
            let (step, known) = core
                .with_nodes_privileged(|| {
                    let known = RefCell::new(Vec::new());
                    let prune = |node: NodeRef, level: u8, first: u64| {
                        let below = self.below.get(&node.addr).filter(|_| node.birth <= lower);
                        known.borrow_mut().extend(below.map(|below| (level, first, *below)));
                        Ok(below.is_some())
                    };
                    let step = map::walk_step(&core.cache, &tree.tree, cursor, &prune)?;
                    Ok((step, known.into_inner()))
                })
                .await?;
            for (level, first, below) in known {
                counted.all.add(below);
                sums.add(level, first, below);
            }
            if let Some(leaf) = &step.leaf {
                let mut in_leaf = Below::default();
                for e in leaf.extents().filter_map(|e| e.cut(tree.first_key(), u64::MAX)) {
                    let len = u64::from(e.len);
                    in_leaf.add(Below { mapped: len, written: if e.flags & UNWRITTEN == 0 { len } else { 0 } });
                    counted.own += if e.birth > lower { len } else { 0 };
                    self.extent(tree, e);
                }
                counted.all.add(in_leaf);
                sums.add(0, step.leaf_range.0, in_leaf);
            }
            for passed in &step.passed {
                if self.meet(passed.node.addr) {
                    self.report.nodes += 1;
                    (self.seen)(CheckProgress { nodes: self.report.nodes, total: self.total });
                    self.copies(passed).await?;
                }
                if passed.level > 0 && tree.kind != TreeKind::Dying {
                    self.below.insert(passed.node.addr, sums.end(passed));
                }
            }
            match step.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        if tree.kind == TreeKind::Dying {
            return Ok(());
        }
        let kept = [("mapped", tree.mapped, counted.all.mapped), ("written", tree.written, counted.all.written)];
        for (what, kept, counted) in kept {
            if kept != counted {
                self.report.find(format!("tree {}: {counted} blocks are {what}, its counter says {kept}", tree.id));
            }
        }
        if !dying_parent && tree.own != counted.own as i64 {
            self.report
                .find(format!("tree {}: {} blocks are its own, its counter says {}", tree.id, counted.own, tree.own));
        }
        if let Some(parent) = parent.filter(|p| p.kind == TreeKind::Point) {
            self.dead(tree, parent, trees, may_continue).await?;
        }
        Ok(())
    }

    fn extent(&mut self, tree: &TreeMeta, e: map::Extent) {
        let (start, len) = (e.value, u64::from(e.len));
        let placement = self.group.core.placement();
        if !placement.holds(start, len) {
            self.report.find(format!("tree {}: LV block {} is mapped outside the group, to {start}", tree.id, e.key));
            return;
        }
        // A volume that is being converted may have blocks of both types, and counts as linear.
        let several = self.types.get(&tree.id).filter(|segment| **segment != SegmentType::Linear);
        if several.is_some_and(|segment| *segment != placement.segment_of(start)) {
            let what = if several == Some(&SegmentType::Raid1) { "mirrored" } else { "striped" };
            self.report
                .find(format!("tree {}: LV block {} is at VG block {start}, which is not {what}", tree.id, e.key));
        }
        let unproven = self.group.core.members.unproven.among(&placement, start, len);
        if unproven > 0 {
            *self.unproven.entry(tree.id).or_default() += unproven;
        }
        let first = placement.number_of(start);
        for i in 0..len {
            let (block, number) = (start + i, first + i);
            // Two mappings of one block come from the same write if LV block and birth are equal.
            let name = identity(e.key + i, e.birth);
            let known = self.identity.get(number as usize).copied();
            if self.is_used(number) {
                if known.is_some_and(|known| known != name) {
                    self.report.find(format!(
                        "VG block {block} has two uses, one as LV block {} of tree {}",
                        e.key + i,
                        tree.id
                    ));
                }
                continue;
            }
            self.set_used(number);
            self.report.blocks += 1;
            if let Some(slot) = self.identity.get_mut(number as usize) {
                *slot = name;
            }
        }
    }

    /// Counts the blocks that the parent maps and the tree does not, by birth.
    async fn dead(
        &mut self,
        tree: &TreeMeta,
        parent: &TreeMeta,
        trees: &BTreeMap<TreeId, TreeMeta>,
        may_continue: &impl Fn() -> Result<()>,
    ) -> Result<()> {
        let core = &self.group.core;
        let mut counted = DeadCounters::new();
        let mut cursor = 0;
        loop {
            may_continue()?;
            yield_now().await;
            let step = core
                .with_nodes_privileged(|| {
                    let prune = |node: NodeRef, level: u8, first: u64| {
                        map::has_node(&core.cache, &tree.tree, node, level, first)
                    };
                    let step = map::walk_step(&core.cache, &parent.tree, cursor, &prune)?;
                    let mut dead = Vec::new();
                    let extents = step.leaf.iter().flat_map(|leaf| leaf.extents());
                    let left = extents.filter_map(|e| e.cut(cursor, u64::MAX));
                    let stop = map::compare_places(&core.cache, &tree.tree, left, &|_| false, |piece, kept| {
                        let kept: u64 = kept.iter().map(|piece| u64::from(piece.len)).sum();
                        dead.push((piece.birth, u64::from(piece.len) - kept));
                    })?;
                    Ok((stop.or(step.next), dead))
                })
                .await?;
            let (next, dead) = step;
            for (birth, blocks) in dead.into_iter().filter(|(_, blocks)| *blocks > 0) {
                dead_blocks::add(&mut counted, birth, blocks);
            }
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let mut kept = tree.dead.clone();
        kept.retain(|(_, blocks)| *blocks > 0);
        // N1: births between the same points have only one sum.
        let above = epochs_above(tree, trees);
        dead_blocks::fold(&mut counted, &above);
        dead_blocks::fold(&mut kept, &above);
        if kept != counted {
            let total = |dead: &DeadCounters| dead_blocks::above(dead, Epoch(0));
            self.report.find(format!(
                "tree {}: its parent holds {} blocks that it no longer uses, its counter says {}",
                tree.id,
                total(&counted),
                total(&kept)
            ));
        }
        Ok(())
    }

    /// Free space, arenas and pending blocks must not overlap used blocks. Together they must be all blocks.
    async fn free_space(&mut self, may_continue: &impl Fn() -> Result<()>) -> Result<()> {
        let core = &self.group.core;
        let (tree, arenas, pending, count, pvs) = {
            let space = core.space.lock();
            (
                space.free_tree(),
                space.arena_unused_runs(),
                space.pending_all(),
                space.free_in_tree(),
                space.pvs().clone(),
            )
        };
        let mut counted = pvs.uncounted();
        let mut cursor = 0;
        let mut free = 0;
        let mut runs: Vec<(&str, u64, u64)> = Vec::new();
        loop {
            may_continue()?;
            yield_now().await;
            let step =
                core.with_nodes_privileged(|| map::walk_step(&core.cache, &tree, cursor, &|_, _, _| Ok(false))).await?;
            for passed in &step.passed {
                if !self.meet(passed.node.addr) {
                    self.report.find(format!("the free-space tree shares {} with another tree", passed.node));
                }
                self.copies(passed).await?;
            }
            for e in step.leaf.iter().flat_map(|leaf| leaf.extents()) {
                if e.key != e.value {
                    self.report.find(format!("the free-space tree maps {} to {}", e.key, e.value));
                }
                free += u64::from(e.len);
                counted.count((e.key, u64::from(e.len)), true);
                runs.push(("free", e.key, u64::from(e.len)));
            }
            match step.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        if free != count {
            self.report.find(format!("{free} blocks are free, the counter says {count}"));
        }
        let several = [("mirrored", SegmentType::Raid1), ("striped", SegmentType::Striped)];
        let several = several.map(|(what, segment)| (what, (counted.several_free(segment), pvs.several_free(segment))));
        let linear = counted.free().zip(pvs.free()).map(|counts| ("linear", counts));
        for (what, (counted, kept)) in linear.chain(several).filter(|(_, (counted, kept))| counted != kept) {
            self.report.find(format!("{counted} blocks are free for {what} volumes, the counter says {kept}"));
        }
        runs.extend(arenas.into_iter().map(|(start, len)| ("free in an arena", start, len)));
        runs.extend(pending.into_iter().map(|(start, len)| ("about to be freed", start, len)));
        let placement = core.placement();
        for (what, start, len) in runs {
            if !placement.holds(start, len) {
                self.report.find(format!("VG block {start} is {what} but lies outside the group"));
            } else if let Some(block) = self.mark(start, len) {
                self.report.find(format!("VG block {block} is {what} and in use"));
            }
        }
        let there = placement.runs().iter().flat_map(|run| run.start..run.end);
        let mut lost = there.zip(0u64..).filter(|(_, number)| !self.is_used(*number));
        if let Some((first, _)) = lost.next() {
            let n = 1 + lost.count();
            self.report.find(format!("{n} blocks are neither used nor free, the first is VG block {first}"));
        }
        Ok(())
    }

    /// The metadata blocks marked as used must be exactly the nodes that were seen and the blocks of the stream.
    fn metadata(&mut self) {
        let stream: BTreeSet<MetaBlock> = self.group.root.lock().stream_blocks.iter().copied().collect();
        let meta = self.group.core.meta.lock();
        let pending: BTreeSet<MetaBlock> = meta.pending_blocks().collect();
        for block in (0..meta.total()).map(MetaBlock) {
            let met = self.nodes[(block.0 / 64) as usize] >> (block.0 % 64) & 1 == 1
                || stream.contains(&block)
                || pending.contains(&block);
            match (meta.is_used(block), met) {
                (true, false) => {
                    self.report.find(format!("metadata block {block} is marked as used but nothing uses it"));
                }
                (false, true) => self.report.find(format!("metadata block {block} is used but marked as free")),
                _ => {}
            }
        }
    }
}

/// A hash of LV block and birth: 32 bits, never zero.
fn identity(lv_block: u64, birth: Epoch) -> u32 {
    let mixed = (lv_block ^ birth.0.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32 | 1
}

/// The epochs of the points above a tree, rising.
fn epochs_above(tree: &TreeMeta, trees: &BTreeMap<TreeId, TreeMeta>) -> Vec<Epoch> {
    let parent = |tree: &&TreeMeta| tree.parent.and_then(|parent| trees.get(&parent));
    // Epochs must fall upwards. Otherwise the parents form a circle.
    let older = |tree: &&TreeMeta| parent(tree).filter(|above| above.epoch < tree.epoch);
    let mut epochs: Vec<Epoch> = std::iter::successors(parent(&tree), older).map(|tree| tree.epoch).collect();
    epochs.reverse();
    epochs
}
