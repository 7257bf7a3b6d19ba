//! Linear volumes that become mirrored where they are (`lvconvert -m1`). Nothing is written anew: the extents that the
//! volume and its snapshots use get a second leg each, which is filled in the background.
//!
//! * While the volume is being converted, it takes its new blocks from mirrored extents, and counts as linear elsewhere:
//!   in reports, in checkpoints, for new snapshots. A crash or an error leaves a linear volume, of which some extents have
//!   two legs. Another attempt goes on from there.
//! * It is found to be mirrored (MZ3) when a walk of the trees of its whole family, which began after the last of them
//!   had taken a plain block, saw mirrored blocks only, and the family is still the same.
//! * From the extents of a step nothing is allocated until the table with their legs is durable (S9), and metadata leaves
//!   them: it is read before the legs are known. Extents with the journal stay as they are, and the volume with them.

use super::Group;
use super::catalog::Catalog;
use super::pools::is_pool;
use super::retry::Nearer;
use crate::error::{Error, Result};
use crate::map::{self, MapError};
use crate::model::{PvExtents, SegmentType, TreeMeta, VolumeMeta};
use crate::placement::{PlacedRun, Placement};
use crate::planted;
use crate::units::{Epoch, TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Extents that are withheld together.
pub(super) const EXTENTS_TOGETHER: u64 = 1024;

/// A volume's whole tree of points and heads.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) trees: BTreeSet<TreeId>,
    pub(super) volumes: BTreeSet<VolumeId>,
}

impl Family {
    pub(super) fn of(catalog: &Catalog, id: VolumeId) -> Result<Family> {
        let volume = catalog.volumes.get(&id).ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let mut family = Family { trees: BTreeSet::new(), volumes: BTreeSet::new() };
        let mut next = vec![volume.state.lock().head.id];
        while let Some(tree) = next.pop() {
            if !family.trees.insert(tree) {
                continue;
            }
            if planted::is("snapshots_not_converted") {
                family.volumes.insert(id);
                break;
            }
            let parent = catalog.with_tree(tree, |tree| tree.parent).flatten();
            next.extend(parent);
            next.extend(catalog.children_of(tree));
            family.volumes.extend(catalog.heads.get(&tree));
        }
        Ok(family)
    }
}

impl Group {
    /// Makes a linear volume and its snapshots mirrored. The second legs lie on these places, or anywhere.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it cannot be mirrored. [`Error::NoSpace`]: other physical volumes have too few free extents.
    /// [`Error::Busy`]: mirrors are being changed or extents moved; or the journal lies on the volume's extents. The volume
    /// is linear then, and some of its extents may have two legs.
    pub async fn convert_to_mirror(self: &Arc<Self>, id: VolumeId, on: &[PvExtents]) -> Result<()> {
        self.may_move()?;
        self.check_convertible(id)?;
        self.claim_repair()?;
        let mut converted = self.room_for_legs(id, on).await;
        if converted.is_ok() {
            converted = self.convert_alone(id, on).await;
            if converted.is_err() {
                // In a group that has failed it makes no difference. The first error is the one to tell.
                let _ = self.end_converting().await;
                self.give_back_made(SegmentType::Raid1).await;
            }
        }
        self.end_repair();
        converted
    }

    /// Refuses, before anything changes, a volume if its extents and its snapshots' cannot all get a second leg.
    async fn room_for_legs(self: &Arc<Self>, id: VolumeId, on: &[PvExtents]) -> Result<()> {
        let mut nearer = Nearer::default();
        loop {
            let family = Family::of(&self.catalog.read(), id)?;
            let plain = self.plain_extents(&family).await?;
            let Some((needed, free)) = self.lacking_for_legs(&plain, on).await? else { return Ok(()) };
            if !nearer.goes_on(needed - free, self.reclaiming()) || !self.more_space().await? {
                return Err(Error::NoSpace { needed, free });
            }
        }
    }

    /// Needed and free blocks, if these extents cannot all get a second leg.
    async fn lacking_for_legs(&self, plain: &[Range<u64>], on: &[PvExtents]) -> Result<Option<(u64, u64)>> {
        let placement = self.core.placement();
        let mut needed: BTreeMap<u16, u64> = BTreeMap::new();
        for run in plain {
            let mut at = run.start;
            while at < run.end {
                let (part, end) = placement.part_of_run(&(at..run.end));
                if let Some(part) = part.filter(|part| !part.is_mirrored) {
                    *needed.entry(part.pv).or_default() += part.end - part.start;
                }
                at = end;
            }
        }
        let free: BTreeMap<u16, u64> = self.free_for_legs(on).await?;
        let all: u64 = free.values().sum();
        // What lies on one physical volume finds its second leg on the others.
        let on_one = needed.iter().map(|(pv, needed)| (*needed, all - free.get(pv).copied().unwrap_or_default()));
        let mut lacking = on_one.chain([(needed.values().sum(), all)]).filter(|(needed, free)| needed > free);
        Ok(lacking.next())
    }

    fn check_convertible(&self, id: VolumeId) -> Result<()> {
        let placement = self.core.placement();
        if placement.pvs.len() < 2 {
            return Err(Error::Invalid("a mirror needs two physical volumes".into()));
        }
        if !placement.may_mirror() {
            return Err(Error::Invalid("the group's extents have too high numbers for mirrors".into()));
        }
        let volume = self.volume(id)?;
        let meta = volume.state.lock().stored_meta();
        self.check_own_type(&meta)?;
        match meta.segment {
            SegmentType::Raid1 => Err(Error::Invalid("the volume is mirrored already".into())),
            SegmentType::Striped => Err(Error::Invalid("a striped volume cannot be mirrored".into())),
            SegmentType::Linear => Ok(()),
        }
    }

    /// Refuses volumes that have the type of another one.
    pub(super) fn check_own_type(&self, meta: &VolumeMeta) -> Result<()> {
        let refused = match meta {
            meta if is_pool(meta) || !meta.attributes.pool.is_empty() => "thin pools and their volumes stay linear",
            meta if meta.origin.is_some_and(|origin| self.catalog.read().volumes.contains_key(&origin)) => {
                "a snapshot has the type of its origin: convert the origin"
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid(refused.into()))
    }

    async fn convert_alone(self: &Arc<Self>, id: VolumeId, on: &[PvExtents]) -> Result<()> {
        // An older program must not open a group with mirrored volumes, and it knows them by their extents.
        self.make_first_mirrored(&[]).await?;
        loop {
            self.core.journal.failed()?;
            if self.core.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            let family = Family::of(&self.catalog.read(), id)?;
            if self.begin_converting(&family).await? {
                // Plain blocks that were taken before are in the trees then.
                if !planted::is("plain_blocks_not_awaited") {
                    self.all_done().await;
                }
            }
            let plain = self.plain_extents(&family).await?;
            for run in &plain {
                self.mirror_run(run.clone(), on).await?;
            }
            if plain.is_empty() && self.finish_converting(id, &family)? {
                break;
            }
        }
        self.checkpoint().await?;
        // Best effort, as for a new mirror.
        let _ = self.spread_for_mirror().await;
        self.wake_mirrors();
        Ok(())
    }

    /// The volumes of the family take mirrored blocks from now on. Returns whether one did not before.
    async fn begin_converting(self: &Arc<Self>, family: &Family) -> Result<bool> {
        let (mut has_begun, mut nearer) = (false, Nearer::default());
        for id in &family.volumes {
            let Some(volume) = self.catalog.read().volumes.get(id).cloned() else { continue };
            while volume.segment() == SegmentType::Linear {
                match self.take_blocks_of(&volume, SegmentType::Raid1, true).await? {
                    Ok(()) => has_begun = true,
                    Err((needed, free)) => {
                        let lacking = needed - free;
                        if !self.room_for_volume(SegmentType::Raid1, lacking, &[], &mut nearer).await? {
                            return Err(Error::NoSpace { needed, free });
                        }
                    }
                }
            }
        }
        Ok(has_begun)
    }

    /// The volume takes blocks of this type from now on. Inner error: there are too few for what is promised to it, needed
    /// and free ones. If it returns to where it was, that is not asked.
    pub(super) async fn take_blocks_of(
        &self,
        volume: &Arc<Volume>,
        segment: SegmentType,
        must_fit: bool,
    ) -> Result<std::result::Result<(), (u64, u64)>> {
        let change = || {
            let _gate = self.core.gate.read();
            let mut state = volume.state.lock();
            let shortfall = state.shortfall();
            let mut space = self.core.space.lock();
            let from = state.meta.segment;
            let changed =
                space.change_type(self.core.alloc_context(), volume.id, shortfall, [from, segment], must_fit)?;
            if changed.is_ok() {
                state.meta.segment = segment;
                state.is_converting = segment == SegmentType::Raid1;
            }
            Ok::<_, MapError>(changed)
        };
        self.core.with_nodes_privileged(change).await
    }

    /// The conversion failed: volumes that have not become mirrored take plain blocks again.
    async fn end_converting(&self) -> Result<()> {
        let volumes: Vec<Arc<Volume>> = self.catalog.read().volumes.values().cloned().collect();
        for volume in volumes {
            if volume.state.lock().is_converting {
                let _ = self.take_blocks_of(&volume, SegmentType::Linear, false).await?;
            }
        }
        Ok(())
    }

    /// The volumes of the family are mirrored, if it is still the one that was searched.
    fn finish_converting(&self, id: VolumeId, searched: &Family) -> Result<bool> {
        let catalog = self.catalog_mut();
        let family = Family::of(&catalog, id)?;
        if family != *searched {
            return Ok(false);
        }
        let volumes = family.volumes.iter().filter_map(|id| catalog.volumes.get(id));
        volumes.for_each(|volume| volume.state.lock().is_converting = false);
        Ok(true)
    }

    /// The extents with blocks of the family that are not mirrored, as runs of VG blocks.
    async fn plain_extents(&self, family: &Family) -> Result<Vec<Range<u64>>> {
        let extent_blocks = self.core.placement().extent_blocks;
        let extents = self.extents_of_trees(&family.trees, false).await?;
        Ok(in_runs(extents, extent_blocks))
    }

    /// The mirrored extents, or the others, with blocks of these trees.
    pub(super) async fn extents_of_trees(&self, trees: &BTreeSet<TreeId>, are_mirrored: bool) -> Result<BTreeSet<u64>> {
        let mut extents = BTreeSet::new();
        let mut add = |placement: &Placement, blocks: Range<u64>| {
            if placement.is_mirrored(blocks.start) == are_mirrored {
                extents.insert(blocks.start / placement.extent_blocks);
            }
        };
        for id in trees {
            self.own_blocks(*id, &mut add).await?;
        }
        Ok(extents)
    }

    /// Tells what a tree does not share with its parent: VG blocks, each range in one extent.
    pub(super) async fn own_blocks(
        &self,
        id: TreeId,
        tell: &mut (dyn FnMut(&Placement, Range<u64>) + Send),
    ) -> Result<()> {
        let core = &self.core;
        let mut throttle = crate::core::Throttle::default();
        let mut cursor = 0;
        loop {
            let step = core.with_nodes_privileged(|| self.own_step(id, cursor)).await?;
            // The tree was removed: the family is another one.
            let Some(step) = step else { return Ok(()) };
            let placement = core.placement();
            for extent in step.leaf.iter().flat_map(|leaf| leaf.extents()).filter(|extent| extent.end() > cursor) {
                let (mut at, end) = (extent.value, extent.value + u64::from(extent.len));
                while at < end {
                    let next = ((at / placement.extent_blocks + 1) * placement.extent_blocks).min(end);
                    tell(&placement, at..next);
                    at = next;
                }
            }
            let Some(next) = step.next else { return Ok(()) };
            cursor = next;
            core.throttle(&mut throttle).await;
        }
    }

    /// A step of a walk of what a tree does not share with its parent. None: the tree is gone.
    fn own_step(&self, id: TreeId, cursor: u64) -> std::result::Result<Option<map::Step>, MapError> {
        let catalog = self.catalog.read();
        // It looks at heads, so it is asked before one is locked.
        let removal = catalog.next_removal();
        let step = |tree: &TreeMeta| {
            // While a dying parent is merged, its nodes become the child's.
            let is_merging = removal.is_some() && tree.parent == removal;
            let shared = if is_merging { Epoch(0) } else { catalog.epoch_of(tree.parent) };
            let prune = |node: map::NodeRef, _: u8, _: u64| Ok(node.birth <= shared);
            map::walk_step(&self.core.cache, &tree.tree, cursor, &prune)
        };
        catalog.with_tree(id, step).transpose()
    }

    /// Gives second legs to a run of plain extents.
    async fn mirror_run(self: &Arc<Self>, run: Range<u64>, on: &[PvExtents]) -> Result<()> {
        let (mut at, mut nearer) = (run.start, Nearer::default());
        while at < run.end {
            match self.mirror_part(at..run.end, on).await {
                Ok(end) => at = end,
                Err(error @ Error::NoSpace { .. }) => {
                    if !nearer.goes_on(run.end - at, self.reclaiming()) || !self.more_space().await? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives second legs to the first of these extents, which are plain. Returns where the others begin.
    async fn mirror_part(self: &Arc<Self>, blocks: Range<u64>, on: &[PvExtents]) -> Result<u64> {
        let claim = self.claim_table().await?;
        let placement = self.core.placement();
        let (run, end) = placement.part_of_run(&blocks);
        let Some(run) = run.filter(|run| !run.is_mirrored) else { return Ok(end) };
        let most = EXTENTS_TOGETHER * placement.extent_blocks;
        let run = PlacedRun { end: run.end.min(run.start + most), ..run };
        self.withhold(&(run.start..run.end)).await?;
        let mirrored = self.mirror_withheld(&run, on).await;
        // Until the table that names the legs is durable, what is free there is no room for mirrored volumes (MZ1).
        let durable = match &mirrored {
            Ok(_) => self.checkpoint().await,
            Err(_) => Ok(()),
        };
        self.core.space.lock().release();
        let blocks = mirrored?;
        durable?;
        self.start_mirrors();
        self.fill_second(claim).await;
        Ok(run.start + blocks)
    }

    /// Gives a second leg to the beginning of a run of which nothing is allocated meanwhile. Returns how many blocks got one.
    async fn mirror_withheld(self: &Arc<Self>, run: &PlacedRun, on: &[PvExtents]) -> Result<u64> {
        self.clear_of_metadata(&(run.start..run.end)).await?;
        let _hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        if self.is_fixed(&(run.start..run.end)) {
            return Err(Error::Busy("the journal or metadata lies on the volume's extents".into()));
        }
        // No checkpoint may see the extents without an owner.
        let second = self.take_second(run, on).await?;
        self.begin_second(run, second).await?;
        Ok(second.1)
    }

    /// S9.
    async fn withhold(&self, blocks: &Range<u64>) -> Result<()> {
        if planted::is("converted_not_withheld") {
            return Ok(());
        }
        // Any of them may be converted without those behind it.
        let extent_blocks = self.core.placement().extent_blocks;
        let starts = blocks.clone().step_by(extent_blocks as usize);
        let extents: Vec<Range<u64>> = starts.map(|start| start..start + extent_blocks).collect();
        self.withhold_extents(&extents).await
    }

    /// The same for extents in any place, in the order of their numbers.
    pub(super) async fn withhold_extents(&self, extents: &[Range<u64>]) -> Result<()> {
        let withhold = || {
            let _gate = self.core.gate.read();
            self.core.space.lock().withhold(self.core.alloc_context(), extents)
        };
        match self.core.with_nodes_privileged(withhold).await? {
            Ok(()) => Ok(()),
            Err(needed) => Err(self.core.no_space(needed)),
        }
    }

    /// Moves metadata out of withheld blocks, if there is room for it elsewhere.
    async fn clear_of_metadata(self: &Arc<Self>, part: &Range<u64>) -> Result<()> {
        // Runs that were taken for it before, and are not known as metadata yet.
        self.core.grown_in(part).await;
        self.move_metadata(std::slice::from_ref(part)).await.map(drop)
    }
}

/// Extents as runs of VG blocks.
pub(super) fn in_runs(extents: BTreeSet<u64>, extent_blocks: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for start in extents.into_iter().map(|extent| extent * extent_blocks) {
        match runs.last_mut() {
            Some(run) if run.end == start => run.end += extent_blocks,
            _ => runs.push(start..start + extent_blocks),
        }
    }
    runs
}
