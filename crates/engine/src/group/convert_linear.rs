//! Mirrored volumes that become linear where they are (`lvconvert -m0`). Nothing is written anew: the extents that the
//! volume and its snapshots use lose a leg.
//!
//! * MZ4 First the whole family counts as linear, durably. Then extents lose a leg, if they hold nothing of mirrored
//!   volumes, and their legs are equal. Requests that were planned before go to both legs until they have ended, and so
//!   does everything else until the table without the leg is durable. Only then the leg's extents can be allocated. So
//!   after a crash, also without a disk, each extent has all of its writes on each leg that it has by the table.
//!
//! * MZ5 The family takes linear blocks when there is room for all that it can get from mirrored extents. Before that it
//!   takes mirrored ones, and extents lose legs already, which gives the room.
//!
//! An extent that has blocks of mirrored volumes, too, keeps both legs: the volume's blocks there have two copies until
//! the extent is free, or the command is repeated, or the last mirrored volume becomes linear.

use super::Group;
use super::convert::{EXTENTS_TOGETHER, Family, in_runs};
use super::mirrors::full_table;
use super::move_state::Leaving;
use super::moves::ZONES_KEPT;
use super::retry::Nearer;
use crate::disk::PvIndex;
use crate::error::{Error, Result};
use crate::format::zones::MAX_ZONES;
use crate::legs::MirroredRun;
use crate::model::SegmentType;
use crate::placement::{PlacedRun, mirrored};
use crate::planted;
use crate::space::Run;
use crate::units::{TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often extents are looked at in which something is that may be being freed.
const TRIES: usize = 2;

/// What became of the extents of a volume that is linear now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinearExtents {
    /// They lost a leg.
    pub single: u64,
    /// They keep two: they hold blocks of mirrored volumes, too.
    pub shared: u64,
}

/// The used blocks of an extent, a bit each.
struct Used {
    free: u64,
    blocks: Vec<u64>,
}

impl Used {
    /// Whether nothing else is in the extent.
    fn is_all(&self, extent_blocks: u64) -> bool {
        let used: u64 = self.blocks.iter().map(|word| u64::from(word.count_ones())).sum();
        used + self.free == extent_blocks || planted::is("shared_extents_lose_legs")
    }
}

impl Group {
    /// Makes a mirrored volume and its snapshots linear. The legs on these physical volumes go, of other extents the
    /// second ones. A volume that is linear already, and has blocks in mirrored extents still, loses those.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it is a snapshot, or has no leg on these physical volumes. [`Error::Busy`]: its legs
    /// are not equal yet, or are being compared or changed, or extents are being moved. [`Error::NoSpace`]: what is
    /// promised to it has no room as linear blocks. After an error it may be linear, and have extents with two legs.
    pub async fn convert_to_linear(self: &Arc<Self>, id: VolumeId, from: &[PvIndex]) -> Result<LinearExtents> {
        self.claim_repair()?;
        let converted = self.linear_alone(id, from).await;
        self.end_repair();
        converted
    }

    async fn linear_alone(self: &Arc<Self>, id: VolumeId, from: &[PvIndex]) -> Result<LinearExtents> {
        if !self.is_there_to_convert(id, from).await? {
            return Ok(LinearExtents::default());
        }
        // Until there is room for linear blocks, new blocks are mirrored ones: what snapshots need is there.
        let family = self.store_as_linear(id).await?;
        let mut done = LinearExtents::default();
        if !planted::is("linear_at_once") {
            self.drop_legs_of(&family, from, &mut done).await?;
        }
        self.begin_linear(id).await?;
        for _ in 0..TRIES {
            let family = Family::of(&self.catalog.read(), id)?;
            self.drop_legs_of(&family, from, &mut done).await?;
            if done.shared == 0 {
                break;
            }
        }
        // What is mirrored and not needed any more is given back: at once, if a disk may have to leave.
        if !self.has_mirrors() {
            self.dissolve_to(SegmentType::Raid1, 0, 1).await?;
        }
        self.dissolve_later();
        Ok(done)
    }

    /// Extents of the family in which nothing of other mirrored volumes is lose a leg.
    async fn drop_legs_of(self: &Arc<Self>, family: &Family, from: &[PvIndex], done: &mut LinearExtents) -> Result<()> {
        let mut trees = family.trees.clone();
        if !self.has_mirrors() {
            // Extents that kept both legs for volumes that are linear now, or gone.
            trees.append(&mut self.other_linear_trees(family)?);
        }
        let extents = self.extents_of_trees(&trees, true).await?;
        let dropped = self.drop_withheld(family, &extents, from, done).await;
        self.core.space.lock().release();
        dropped?;
        // What was being freed is free then.
        self.checkpoint().await
    }

    /// The same for these extents. What is withheld for it stays so.
    async fn drop_withheld(
        self: &Arc<Self>,
        family: &Family,
        extents: &BTreeSet<u64>,
        from: &[PvIndex],
        done: &mut LinearExtents,
    ) -> Result<()> {
        let alone = self.extents_alone(family, extents).await?;
        done.shared = (extents.len() - alone.len()) as u64;
        done.single += self.drop_legs(alone, from).await?;
        Ok(())
    }

    /// These extents, which are withheld, lose a leg. Returns how many.
    async fn drop_legs(self: &Arc<Self>, extents: BTreeSet<u64>, from: &[PvIndex]) -> Result<u64> {
        let (mut single, extent_blocks) = (0, self.core.placement().extent_blocks);
        for run in in_runs(extents, extent_blocks) {
            let mut at = run.start;
            while at < run.end {
                let (end, lost) = self.drop_leg(at..run.end, from).await?;
                single += lost / extent_blocks;
                at = end;
            }
        }
        Ok(single)
    }

    /// Refuses what can be refused before anything changes. False: the volume is linear, and so are its extents.
    async fn is_there_to_convert(&self, id: VolumeId, from: &[PvIndex]) -> Result<bool> {
        let volume = self.volume(id)?;
        let meta = volume.state.lock().stored_meta();
        self.check_own_type(&meta)?;
        let family = Family::of(&self.catalog.read(), id)?;
        let extents = self.extents_of_trees(&family.trees, true).await?;
        if extents.is_empty() && meta.segment == SegmentType::Linear {
            return Ok(false);
        }
        self.may_move()?;
        if self.is_scrubbing() {
            return Err(comparing());
        }
        let placement = self.core.placement();
        let mut has_leg = from.is_empty() || extents.is_empty();
        for run in in_runs(extents, placement.extent_blocks) {
            let mut at = run.start;
            while at < run.end {
                let (part, end) = placement.part_of_run(&(at..run.end));
                if let Some(part) = part {
                    let is_named = |(pv, _)| from.contains(&PvIndex(pv));
                    has_leg |= part.legs().any(is_named);
                    if part.legs().all(is_named) {
                        let why = "some of its data has no copy but on the physical volumes that were named";
                        return Err(Error::Invalid(why.into()));
                    }
                    self.may_lose(&part, is_first_leaving(&part, from))?;
                }
                at = end;
            }
        }
        match has_leg {
            true => Ok(true),
            false => Err(Error::Invalid("the volume has no copy on the physical volumes that were named".into())),
        }
    }

    /// Makes room for linear blocks: for what is promised to the family, and for what its snapshots find in mirrored extents now.
    async fn room_as_linear(self: &Arc<Self>, family: &Family) -> Result<()> {
        let mut nearer = Nearer::default();
        loop {
            let (needed, free) = self.needed_as_linear(family);
            if needed <= free || planted::is("linear_at_once") {
                return Ok(());
            }
            let kept = if self.has_stored_mirrors() { self.kept_free() } else { 0 };
            let is_dissolved = self.dissolve_to(SegmentType::Raid1, kept, 1).await? > 0;
            let goes_on = match is_dissolved {
                true => nearer.goes_on(needed - free, self.reclaiming()),
                false => self.room_for_volume(SegmentType::Linear, needed - free, &[], &mut nearer).await?,
            };
            if !goes_on {
                return Err(Error::NoSpace { needed, free });
            }
        }
    }

    /// Blocks that the volumes of the family that are mirrored still need as linear ones, and those that are free.
    fn needed_as_linear(&self, family: &Family) -> (u64, u64) {
        let catalog = self.catalog.read();
        let (mut promised, mut redirected) = (0, 0);
        for volume in family.volumes.iter().filter_map(|id| catalog.volumes.get(id)) {
            let state = volume.state.lock();
            if state.meta.segment == SegmentType::Raid1 {
                promised += self.core.space.lock().promised_to(volume.id, state.shortfall());
                redirected += if state.head.parent.is_some() { state.meta.blocks } else { 0 };
            }
        }
        let space = self.core.space.lock();
        let has = redirected.min(space.available_for(SegmentType::Raid1));
        (promised + has, space.available_for(SegmentType::Linear))
    }

    /// Whether the leg that stays has everything.
    fn may_lose(&self, run: &PlacedRun, is_first_leaving: bool) -> Result<()> {
        let is_whole = match mirrored(run) {
            None => true,
            // What is being filled is no copy yet.
            Some(_) if run.is_filling => !is_first_leaving,
            Some(legs) => self.core.members.legs().are_equal(&legs),
        };
        match is_whole {
            true => Ok(()),
            false => Err(Error::Busy(
                "its copies are being made equal; repeat this when they are (copy_percent of mirrored volumes)".into(),
            )),
        }
    }

    /// The volumes of the family are stored as linear when this returns. Until [`begin_linear`](Self::begin_linear) they take
    /// mirrored blocks.
    async fn store_as_linear(self: &Arc<Self>, id: VolumeId) -> Result<Family> {
        loop {
            let family = Family::of(&self.catalog.read(), id)?;
            if self.count_as_linear(&family) {
                self.checkpoint().await?;
                continue;
            }
            return match self.is_scrubbing() {
                // It began before that.
                true => Err(comparing()),
                false => Ok(family),
            };
        }
    }

    /// The volumes of the family take linear blocks from now on. If there is no room for that any more, they take mirrored
    /// ones until the command is repeated, or the group is opened again.
    async fn begin_linear(self: &Arc<Self>, id: VolumeId) -> Result<()> {
        loop {
            let family = self.store_as_linear(id).await?;
            self.room_as_linear(&family).await?;
            let Some(volume) = self.mirrored_of(&family) else { break };
            let _they_fit_or_are_tried_again = self.take_blocks_of(&volume, SegmentType::Linear, true).await?;
        }
        // Mirrored blocks that were taken before are in the trees then, and what was freed is free.
        self.all_done().await;
        self.checkpoint().await
    }

    /// Returns whether a volume was stored as mirrored before.
    fn count_as_linear(&self, family: &Family) -> bool {
        let catalog = self.catalog.read();
        let mut has_changed = false;
        for volume in family.volumes.iter().filter_map(|id| catalog.volumes.get(id)) {
            let mut state = volume.state.lock();
            if state.meta.segment == SegmentType::Raid1 && !state.is_converting && !planted::is("linear_stored_late") {
                state.is_converting = true;
                has_changed = true;
            }
        }
        has_changed
    }

    /// A volume of the family that takes mirrored blocks.
    fn mirrored_of(&self, family: &Family) -> Option<Arc<Volume>> {
        let catalog = self.catalog.read();
        let mut volumes = family.volumes.iter().filter_map(|id| catalog.volumes.get(id));
        volumes.find(|volume| volume.segment() == SegmentType::Raid1).cloned()
    }

    /// Those of the extents in which nothing of mirrored volumes is. They are withheld, so it stays so (S9).
    async fn extents_alone(self: &Arc<Self>, family: &Family, extents: &BTreeSet<u64>) -> Result<BTreeSet<u64>> {
        let extent_blocks = self.core.placement().extent_blocks;
        let blocks = |extent: &u64| extent * extent_blocks..(extent + 1) * extent_blocks;
        let ranges: Vec<Range<u64>> = extents.iter().map(blocks).collect();
        self.withhold_extents(&ranges).await?;
        // What is free now stays free, so none of it is found in a tree.
        let mut used: BTreeMap<u64, Used> = {
            let space = self.core.space.lock();
            let unseen = |free| Used { free, blocks: vec![0; extent_blocks.div_ceil(64) as usize] };
            space.pvs().withheld().map(|(part, free)| (part.start / extent_blocks, unseen(free))).collect()
        };
        self.note_used(&family.trees, &mut used).await?;
        if used.values().any(|used| !used.is_all(extent_blocks)) {
            let others = self.other_linear_trees(family)?;
            self.note_used(&others, &mut used).await?;
        }
        Ok(used.into_iter().filter(|(_, used)| used.is_all(extent_blocks)).map(|(extent, _)| extent).collect())
    }

    /// Notes the blocks of these trees.
    async fn note_used(&self, trees: &BTreeSet<TreeId>, used: &mut BTreeMap<u64, Used>) -> Result<()> {
        let extent_blocks = self.core.placement().extent_blocks;
        let mut note = |_: &_, blocks: Range<u64>| {
            if let Some(used) = used.get_mut(&(blocks.start / extent_blocks)) {
                for block in blocks {
                    let at = block % extent_blocks;
                    used.blocks[(at / 64) as usize] |= 1 << (at % 64);
                }
            }
        };
        for id in trees {
            self.own_blocks(*id, &mut note).await?;
        }
        Ok(())
    }

    /// The trees of all linear volumes but those of the family.
    fn other_linear_trees(&self, family: &Family) -> Result<BTreeSet<TreeId>> {
        let catalog = self.catalog.read();
        let mut trees = BTreeSet::new();
        for (id, volume) in &catalog.volumes {
            let is_known = {
                let state = volume.state.lock();
                state.meta.segment != SegmentType::Linear || trees.contains(&state.head.id)
            };
            if !is_known && !family.volumes.contains(id) {
                trees.append(&mut Family::of(&catalog, *id)?.trees);
            }
        }
        Ok(trees)
    }

    /// The first of these extents, which are withheld, lose a leg. Returns where the others begin, and the blocks that lost
    /// one.
    async fn drop_leg(self: &Arc<Self>, blocks: Range<u64>, from: &[PvIndex]) -> Result<(u64, u64)> {
        let claim = self.claim_table().await?;
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let placement = self.core.placement();
        let end = blocks.end.min(blocks.start + EXTENTS_TOGETHER * placement.extent_blocks);
        if !placement.holds(blocks.start, end - blocks.start) {
            // It is free now, and was dissolved.
            return Ok((blocks.start + placement.extent_blocks, 0));
        }
        let (run, end) = placement.part_of_run(&(blocks.start..end));
        let Some(run) = run.filter(|run| run.is_mirrored) else { return Ok((end, 0)) };
        let is_first_leaving = is_first_leaving(&run, from);
        self.may_lose(&run, is_first_leaving)?;
        let (new, given) = placement.with_one_leg(&(run.start..run.end), is_first_leaving);
        if new.zones().len() > MAX_ZONES - ZONES_KEPT {
            return Err(full_table());
        }
        let new = Arc::new(new);
        let legs = self.core.members.legs();
        let runs = leaving_runs(&run, is_first_leaving);
        let numbers: Vec<Run> = given.iter().map(|given| (given.start, given.end - given.start)).collect();
        self.moves.state.lock().leaving = Leaving { runs, numbers: numbers.clone() };
        if let Err(error) = legs.set_runs(self.runs_of_legs(&new)).await {
            self.moves.state.lock().leaving = Leaving::default();
            return Err(error);
        }
        self.change_zones_of_mirrors(&new, Vec::new());
        self.catalog.read().volumes.values().for_each(|volume| volume.forget_copies());
        drop(hold);
        self.checkpoint().await?;
        // A request that has no space may wait for the claim.
        drop(claim);
        self.all_done().await;
        self.end_leaving(&numbers).await?;
        Ok((run.end, run.end - run.start))
    }

    /// Nothing goes to the legs that leave any more, and their extents become free.
    async fn end_leaving(&self, numbers: &[Run]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let _claim = self.claim_table().await?;
        let _hold = self.hold_checkpoints().await;
        let runs = self.core.placement().mirrored_runs();
        self.core.members.legs().set_runs(runs).await?;
        let _gate = self.core.gate.read();
        let mut space = self.core.space.lock();
        self.moves.state.lock().leaving = Leaving::default();
        numbers.iter().for_each(|run| space.free_later(*run));
        Ok(())
    }
}

/// The runs that get all writes while a leg leaves. If the first one leaves, requests that were planned before name its
/// place, and later ones that of the second leg.
fn leaving_runs(run: &PlacedRun, is_first_leaving: bool) -> Vec<MirroredRun> {
    let Some(both) = mirrored(run).filter(|_| !planted::is("leg_leaves_at_once")) else { return Vec::new() };
    match is_first_leaving {
        true => vec![both, both.swapped()],
        false => vec![both],
    }
}

/// Which leg goes: one on the named physical volumes, or the second one.
fn is_first_leaving(run: &PlacedRun, from: &[PvIndex]) -> bool {
    let is_named = |pv: u16| from.contains(&PvIndex(pv));
    run.second.is_some_and(|(second, _)| !is_named(second) && is_named(run.pv))
}

fn comparing() -> Error {
    Error::Busy("its copies are being compared; end that first (lvchange --syncaction idle)".into())
}
