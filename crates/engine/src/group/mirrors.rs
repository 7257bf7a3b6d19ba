//! Mirrored extents: runs of two extents on two physical volumes with one number (zones with two legs). Mirrored
//! volumes take their blocks there. [`legs`](crate::legs) keeps both legs the same.
//!
//! * MZ1 A zone is made of extents that are free in a durable checkpoint, while checkpoints are held. Its numbers are
//!   free from the checkpoint on whose superblock names it. So after a crash both extents are either free at their own
//!   numbers, or free as one mirrored number.
//! * MZ2 A zone is dissolved in the same way, when all of its blocks are free.
//!
//! * MZ3 A volume counts as mirrored from the checkpoint on that finds all of its blocks, and those of its snapshots, in
//!   mirrored extents (`convert.rs`).
//!
//! Zones are made when a volume is created or grows, and in the background before redirected writes need them. None is
//! made while a physical volume is out (MB3). All of that holds for striped extents too ([`striped`](super::striped)).

use super::Group;
use super::journal_layout::LARGEST_SHARE;
use super::moves::{TableClaim, ZONES_KEPT};
use super::retry::Nearer;
use crate::disk::{DiskError, PvIndex};
use crate::error::{Error, Result};
use crate::format::superblock::GroupRoot;
use crate::format::zones::MAX_ZONES;
use crate::journal::JournalOwner;
use crate::legs::{LegsOwner, MirroredRun, RunReport};
use crate::model::{NewVolume, PvExtents, PvFlags, SegmentType};
use crate::placement::{MirroredPair, PlacedRun, Placement};
use crate::planted;
use crate::runtime::yield_now;
use crate::space::Run;
use crate::units::{BLOCK_SIZE, TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Mirrored extents are made ahead of their need by this part of the group's extents at once ...
const GROWTH_SHARE: u64 = 32;
/// ... within these bounds, and as many as it takes to overwrite all mirrored volumes that have snapshots: while a
/// physical volume is out none can be made. They take at most half of what is free.
const GROWTH: RangeInclusive<u64> = 4..=1024;
/// When volumes were removed, free mirrored extents stay for so many times of growth.
const KEPT: u64 = 2;
/// A request never needs more blocks than this.
const PLENTY: u64 = 4096;
/// The copies of a mirrored extent.
const LEGS: usize = 2;
/// The types of volumes whose extents lie on several physical volumes.
const ON_SEVERAL: [SegmentType; 2] = [SegmentType::Raid1, SegmentType::Striped];

/// The state of a group's mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorInfo {
    /// Mirrored extents. Each has two legs.
    pub extents: u64,
    /// Of these, extents of which nothing is used.
    pub free_extents: u64,
    /// Extents that have only one leg, because the physical volume of the other one was removed.
    pub single: u64,
    /// Extents of which one leg is there, and no other one, by its physical volume: they need others elsewhere.
    pub lacking: BTreeMap<PvIndex, u64>,
    /// Bytes of regions whose legs may differ, and that are being made equal.
    pub unsynced: u64,
    /// The bytes of all mirrored extents.
    pub bytes: u64,
    /// A leg lacks something and gets it, or waits for the other leg: until then only that one has all.
    pub is_catching_up: bool,
    pub runs: Vec<RunReport>,
}

impl LegsOwner for Group {
    /// MB9: the next process goes on without the disk, if the group can.
    fn leg_failed(&self, error: DiskError) {
        if self.can_continue_without(error.pv) {
            self.core.journal.stop(Error::DiskLost(error));
        }
    }

    fn wake(&self) {
        self.mirrors_wanted.store(true, Ordering::Release);
        self.background.notify();
    }
}

impl Group {
    /// Makes the background work on mirrors look again.
    pub(super) fn wake_mirrors(&self) {
        self.wake();
    }

    /// A step of the background work on mirrors: makes legs equal, and makes zones ahead of their need.
    pub(super) async fn mirrors_some(self: &Arc<Self>) {
        self.mirrors_wanted.store(false, Ordering::Release);
        match self.core.members.legs().work().await {
            Ok(true) => {
                self.mirrors_wanted.store(true, Ordering::Release);
                yield_now().await;
            }
            // A disk that fails is reported to `leg_failed`.
            Ok(false) | Err(_) => {
                self.note_caught_up().await;
                // Tried again after the next step.
                let _ = self.note_filled().await;
                // Best effort: a write that finds no space tries again, and gets the error.
                let _ = self.fit_zones().await;
                // The same.
                if self.has_mirrors() {
                    let _ = self.spread_when_idle().await;
                }
            }
        }
    }

    /// Makes or dissolves mirrored extents, for what may be needed next. They are dissolved after removals only: what was
    /// made for a volume stays until the volume takes it.
    async fn fit_zones(self: &Arc<Self>) -> Result<()> {
        // During a move its targets are kept for what moves, and for who needs space now.
        if !self.may_make_zones() || self.is_moving() {
            return Ok(());
        }
        for segment in ON_SEVERAL {
            if self.has_volumes_of(segment) && self.make_zones_ahead(segment).await? {
                return Ok(());
            }
        }
        // The checkpoint that frees blocks comes back here.
        let is_settled = self.core.space.lock().pending_blocks() == 0;
        if is_settled && self.dissolve_wanted.swap(false, Ordering::AcqRel) {
            for segment in ON_SEVERAL {
                self.dissolve_zones(segment, self.wanted_ahead(segment), 2).await?;
            }
        }
        Ok(())
    }

    /// Physical volumes that returned, and have both legs of everything now, count as all others from here on.
    async fn note_caught_up(&self) {
        let legs = self.core.members.legs();
        let behind = PvFlags(self.root.lock().written.behind);
        let caught_up: Vec<PvIndex> =
            behind.iter().map(|pv| PvIndex(pv as u16)).filter(|pv| legs.is_caught_up(*pv)).collect();
        // A copy of it from before does not have what it missed (ML11). A disk that fails is reported to `leg_failed`.
        if !caught_up.is_empty() && legs.count_caught_up().await.is_err() {
            return;
        }
        for pv in caught_up {
            let _hold = self.hold_checkpoints().await;
            let is_caught_up = |root: &mut GroupRoot| {
                root.behind &= !(1 << pv.0);
                root.behind_longer &= root.behind;
            };
            if self.repeat_superblocks_held(is_caught_up).await.is_ok() {
                legs.caught_up(pv);
            }
        }
    }

    /// Creates a mirrored volume: each of its blocks is on two physical volumes, of these if there are any.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: there are too few free extents on two physical volumes.
    pub async fn create_mirrored(self: &Arc<Self>, spec: NewVolume, on: &[PvExtents]) -> Result<VolumeId> {
        if self.core.placement().pvs.len() < 2 {
            return Err(Error::Invalid("a mirror needs two physical volumes".into()));
        }
        let mut given: Vec<PvIndex> = on.iter().map(|part| part.pv).collect();
        given.dedup();
        if given.len() == 1 {
            return Err(Error::Invalid("a mirror needs two physical volumes, and one was given".into()));
        }
        self.check_new(&spec, &[])?;
        self.make_first_mirrored(on).await?;
        let id = self.create_as(&spec, SegmentType::Raid1, on).await?;
        // A disk may have been added since the metadata was made. Best effort: the background tries again.
        let _ = self.spread_for_mirror().await;
        // Without a physical volume none are made: those that snapshots will need then are made now.
        self.wake();
        Ok(id)
    }

    /// A group with a mirrored volume has mirrored extents: an older program must not open it, and knows it by them.
    pub(super) async fn make_first_mirrored(self: &Arc<Self>, on: &[PvExtents]) -> Result<()> {
        let (mut nearer, needed) = (Nearer::default(), self.core.placement().extent_blocks);
        while !self.has_extents_of(SegmentType::Raid1) && self.make_zones(SegmentType::Raid1, 1, on).await? == 0 {
            if !nearer.goes_on(needed, self.reclaiming()) || !self.more_space().await? {
                return Err(Error::NoSpace { needed, free: 0 });
            }
        }
        Ok(())
    }

    /// Space was missing for a new volume or for one that grows. False: there is none, or it does not get nearer.
    pub(super) async fn room_for_volume(
        self: &Arc<Self>,
        segment: SegmentType,
        lacking: u64,
        on: &[PvExtents],
        nearer: &mut Nearer,
    ) -> Result<bool> {
        if !nearer.goes_on(lacking, self.reclaiming()) {
            return Ok(false);
        }
        if segment != SegmentType::Linear {
            let extents = lacking.div_ceil(self.core.placement().extent_blocks);
            if self.make_zones(segment, extents, on).await? >= extents {
                return Ok(true);
            }
        }
        let before = self.core.space.lock().available_for(segment);
        if self.more_space_for(segment).await? {
            return Ok(true);
        }
        // The background may be dissolving extents, so that they are of neither type. Who creates or resizes a
        // volume can wait for that, but a request cannot: who has the claim may wait for it.
        match self.claim_table().await {
            Ok(_claim) => Ok(self.core.space.lock().available_for(segment) > before),
            Err(_) => Ok(false),
        }
    }

    /// Whether extents can become mirrored or striped now.
    fn may_make_zones(&self) -> bool {
        self.has_several() && self.out().is_empty()
    }

    /// A volume of this type has too little space. True: another type gave some.
    pub(super) async fn change_type_for(self: &Arc<Self>, segment: SegmentType) -> Result<bool> {
        if !self.may_make_zones() {
            return Ok(false);
        }
        let changed = self.take_from_others(segment).await;
        // If a disk fails meanwhile that the group can do without, the next process answers.
        changed.map_err(|error| self.core.journal.answer(error))
    }

    async fn take_from_others(self: &Arc<Self>, segment: SegmentType) -> Result<bool> {
        if segment != SegmentType::Linear {
            let available = || self.core.space.lock().available_for(segment);
            let before = available();
            // With plenty, something else is full: a pool, or all that a new volume can have.
            let plenty = (self.growth() * self.core.placement().extent_blocks).max(PLENTY);
            if before < plenty || planted::is("others_pay_for_a_pool") {
                // Nobody who has the claim waits for a volume of this type.
                let _claim = self.claim_for_zones().await;
                if available() > before || self.make_zones_claimed(segment, self.growth(), &[]).await? > 0 {
                    return Ok(true);
                }
            }
        }
        for other in ON_SEVERAL.into_iter().filter(|other| *other != segment) {
            if self.has_extents_of(other) && self.dissolve_zones(other, 0, 1).await? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Mirrored extents that are made at once, ahead of their need.
    fn growth(&self) -> u64 {
        let placement = self.core.placement();
        let extents: u64 = placement.pvs.iter().map(|pv| pv.extents).sum();
        (extents / GROWTH_SHARE).clamp(*GROWTH.start(), *GROWTH.end())
    }

    /// Whether there is a mirrored volume.
    pub(super) fn has_mirrors(&self) -> bool {
        self.has_volumes_of(SegmentType::Raid1)
    }

    /// Whether there is a volume of this type.
    pub(super) fn has_volumes_of(&self, segment: SegmentType) -> bool {
        self.catalog.read().volumes.values().any(|volume| volume.segment() == segment)
    }

    /// The same, without volumes that are being converted.
    pub(super) fn has_stored_mirrors(&self) -> bool {
        let is_mirrored = |volume: &Arc<Volume>| volume.state.lock().stored_segment() == SegmentType::Raid1;
        self.catalog.read().volumes.values().any(is_mirrored)
    }

    /// Whether there are extents for volumes of this type.
    pub(super) fn has_extents_of(&self, segment: SegmentType) -> bool {
        self.core.placement().runs().iter().any(|run| run.segment() == segment)
    }

    /// Whether there are mirrored or striped extents.
    pub(super) fn has_several(&self) -> bool {
        self.core.placement().runs().iter().any(|run| run.segment() != SegmentType::Linear)
    }

    /// The state of the mirrors.
    pub fn mirror_info(&self) -> MirrorInfo {
        let placement = self.core.placement();
        let mirrored = placement.runs().iter().filter(|run| run.is_mirrored);
        let extents = |blocks: u64| blocks / placement.extent_blocks;
        let (out, mut lacking) = (self.out(), BTreeMap::new());
        let (mut all, mut single) = (0, 0);
        for run in mirrored {
            let blocks = run.end - run.start;
            all += blocks;
            single += if run.second.is_none() { blocks } else { 0 };
            let mut there = run.legs().filter(|(pv, _)| !out.has(usize::from(*pv)));
            if let (Some((pv, _)), None) = (there.next(), there.next()) {
                *lacking.entry(PvIndex(pv)).or_default() += extents(blocks);
            }
        }
        let runs = self.core.members.legs().report();
        MirrorInfo {
            extents: extents(all),
            free_extents: extents(self.core.space.lock().available_for(SegmentType::Raid1)),
            single: extents(single),
            lacking,
            unsynced: runs.iter().map(|run| run.unsure_bytes).sum(),
            bytes: all * BLOCK_SIZE,
            is_catching_up: self.core.members.legs().is_catching_up(),
            runs,
        }
    }

    /// Whether no physical volume is behind, and no leg is being filled.
    pub fn mirrors_are_caught_up(&self) -> bool {
        self.root.lock().written.behind == 0 && !self.core.placement().runs().iter().any(|run| run.is_filling)
    }

    /// How many extents for volumes of this type are to be free, if there is room.
    fn wanted_ahead(&self, segment: SegmentType) -> u64 {
        let extent_blocks = self.core.placement().extent_blocks;
        let catalog = self.catalog.read();
        let mut origins = BTreeMap::new();
        for volume in catalog.volumes.values() {
            let origin = volume.state.lock().meta.origin;
            if let Some(origin) = origin.and_then(|id| catalog.volumes.get(&id)) {
                let state = origin.state.lock();
                if state.meta.segment == segment {
                    origins.insert(origin.id, state.meta.blocks);
                }
            }
        }
        // Mirrored extents cannot be made while a physical volume is out. Without all of them nobody writes to a striped volume.
        if segment == SegmentType::Striped && origins.is_empty() {
            return 0;
        }
        self.growth() + origins.into_values().map(|blocks| blocks.div_ceil(extent_blocks)).sum::<u64>()
    }

    /// How many extents are missing from those that are to be free for volumes of this type.
    fn lacking_ahead(&self, segment: SegmentType) -> u64 {
        let wanted = self.wanted_ahead(segment);
        let extent_blocks = self.core.placement().extent_blocks;
        let space = self.core.space.lock();
        let free = |segment| space.available_for(segment) / extent_blocks;
        let (plain, own) = (free(SegmentType::Linear), free(segment));
        let each = if segment == SegmentType::Raid1 { 2 } else { 1 };
        // Metadata that moves and linear volumes need the rest.
        wanted.min((plain + each * own) / (2 * each)).saturating_sub(own)
    }

    /// Makes extents before they are needed. False: none could be made now.
    async fn make_zones_ahead(self: &Arc<Self>, segment: SegmentType) -> Result<bool> {
        let lacking = self.lacking_ahead(segment);
        if lacking == 0 {
            return Ok(false);
        }
        // Who has the claim may wait for this caller.
        let Some(_claim) = self.try_claim_for_zones() else { return Ok(false) };
        Ok(self.make_zones_claimed(segment, lacking, &[]).await? > 0)
    }

    /// Makes up to this many extents for volumes of this type: mirrored ones, each of one extent on two physical volumes, or
    /// striped ones, in whole rows. Returns how many (MZ1).
    pub(super) async fn make_zones(
        self: &Arc<Self>,
        segment: SegmentType,
        extents: u64,
        on: &[PvExtents],
    ) -> Result<u64> {
        let _claim = self.claim_for_zones().await;
        self.make_zones_claimed(segment, extents, on).await
    }

    /// The same while the caller has claimed the table.
    async fn make_zones_claimed(self: &Arc<Self>, segment: SegmentType, extents: u64, on: &[PvExtents]) -> Result<u64> {
        match segment {
            SegmentType::Linear => Ok(0),
            SegmentType::Raid1 => self.make_mirrored(extents, on).await,
            SegmentType::Striped => self.make_striped(extents, on).await,
        }
    }

    async fn make_mirrored(self: &Arc<Self>, extents: u64, on: &[PvExtents]) -> Result<u64> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        let mut rows: Vec<Vec<Range<u64>>> = Vec::new();
        let outcome = self.take_rows(LEGS, extents, on, &mut rows).await;
        let pairs: Vec<MirroredPair> = rows.iter().filter_map(|row| pair_of(row)).collect();
        let (new, numbers) = self.core.placement().with_mirrored(&pairs);
        let new = Arc::new(new);
        let is_full = new.zones().len() > MAX_ZONES - ZONES_KEPT;
        if outcome.is_err() || is_full || pairs.is_empty() {
            pairs.iter().flat_map(MirroredPair::runs).for_each(|run| self.give_back(run));
            outcome?;
            return match is_full {
                true => Err(full_table()),
                false => Ok(0),
            };
        }
        if let Err(error) = self.core.members.legs().set_runs(self.runs_of_legs(&new)).await {
            // Nobody knew of them, so nothing was written there.
            pairs.iter().flat_map(MirroredPair::runs).for_each(|run| self.give_back(run));
            return Err(error);
        }
        self.change_zones_of_mirrors(&new, numbers);
        self.start_mirrors();
        drop(hold);
        self.checkpoint().await?;
        Ok(pairs.iter().map(|pair| pair.blocks).sum::<u64>() / new.extent_blocks)
    }

    /// The mirrored runs of a placement, and those that are losing a leg.
    pub(super) fn runs_of_legs(&self, placement: &Placement) -> Vec<MirroredRun> {
        let mut runs = placement.mirrored_runs();
        runs.extend_from_slice(&self.moves.state.lock().leaving.runs);
        runs
    }

    /// From now on blocks lie there. The checkpoint that names this table frees the new numbers.
    pub(super) fn change_zones_of_mirrors(&self, new: &Arc<Placement>, freed: Vec<Range<u64>>) {
        if !planted::is("unproven_outlive_extents") {
            self.core.members.unproven.forget_outside(new);
        }
        let _gate = self.core.gate.read();
        let catalog = self.catalog.read();
        {
            let mut space = self.core.space.lock();
            space.place(new);
            let runs: Vec<Run> = freed.into_iter().map(|range| (range.start, range.end - range.start)).collect();
            match planted::is("zones_freed_early") {
                true => runs.iter().for_each(|run| _ = space.add_free(self.core.alloc_context(), *run)),
                false => runs.iter().for_each(|run| space.free_later(*run)),
            }
        }
        self.apply_placement(&catalog, new);
    }

    /// Gives a second leg to mirrored extents that lost it with a physical volume that was removed, on these places or
    /// anywhere. The legs are filled in the background. The journal gets a second copy, too, if another disk has room for it.
    /// Returns how many extents got one.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: other physical volumes have too few free extents. Some may have got a second leg by then.
    /// [`Error::Busy`]: another caller does the same now.
    pub async fn repair_mirrors(self: &Arc<Self>, on: &[PvExtents]) -> Result<u64> {
        self.claim_repair()?;
        let repaired = self.repair_mirrors_alone(on).await;
        self.end_repair();
        repaired
    }

    /// Legs are added and removed by one caller at a time, who calls [`end_repair`](Self::end_repair) then.
    pub(super) fn claim_repair(&self) -> Result<()> {
        match self.repairing.swap(true, Ordering::AcqRel) {
            true => Err(Error::Busy("the mirrors are being repaired or converted already".into())),
            false => Ok(()),
        }
    }

    pub(super) fn end_repair(&self) {
        self.repairing.store(false, Ordering::Release);
    }

    /// Mirrored extents of which nothing is used are looked for in the background.
    pub(super) fn dissolve_later(&self) {
        self.dissolve_wanted.store(true, Ordering::Release);
        self.wake();
    }

    async fn repair_mirrors_alone(self: &Arc<Self>, on: &[PvExtents]) -> Result<u64> {
        let extent_blocks = self.core.placement().extent_blocks;
        // With one copy of the journal, the disk that has it could still not be lost. It comes first: copies may fill the disk.
        if !planted::is("journal_not_repaired") {
            let _may_have_no_room = self.add_second_journal(LARGEST_SHARE).await;
        }
        let mut repaired = 0;
        while single_run(&self.core.placement()).is_some() {
            repaired += self.add_leg(on).await? / extent_blocks;
        }
        // Without this, the group would still need the physical volume with the older leg.
        self.spread_metadata().await?;
        Ok(repaired)
    }

    /// Adds a second leg to the beginning of the first run without. Returns how many blocks got one.
    async fn add_leg(self: &Arc<Self>, on: &[PvExtents]) -> Result<u64> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        let claim = self.claim_table().await?;
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        let old = self.core.placement();
        let Some(run) = single_run(&old) else { return Ok(0) };
        let (start, blocks) = self.take_second(&run, on).await?;
        self.begin_second(&run, (start, blocks)).await?;
        drop(hold);
        self.checkpoint().await?;
        self.fill_second(claim).await;
        Ok(blocks)
    }

    /// The beginning of a run is mirrored from now on, with this second leg, which must be filled. Checkpoints are held.
    /// After an error it is as before, and the second leg's extents are free.
    pub(super) async fn begin_second(&self, run: &PlacedRun, (start, blocks): Run) -> Result<()> {
        let new = Arc::new(self.core.placement().with_second(run.start, start, blocks));
        if new.zones().len() > MAX_ZONES - ZONES_KEPT {
            self.give_back(start..start + blocks);
            return Err(full_table());
        }
        // Its intents are durable before a table names the leg.
        let legs = self.core.members.legs();
        if let Err(error) = legs.set_runs(self.runs_of_legs(&new)).await {
            // A group whose requests are refused frees nothing: late writes may be on their way there.
            if !legs.is_stopped() {
                self.give_back(start..start + blocks);
            }
            return Err(error);
        }
        self.change_zones_of_mirrors(&new, Vec::new());
        Ok(())
    }

    /// The table with a new second leg is durable: the leg is filled.
    pub(super) async fn fill_second(&self, claim: TableClaim<'_>) {
        // A request that has no space may wait for the claim.
        drop(claim);
        // Writes that went to the first leg alone end before it is copied.
        self.all_done().await;
        self.core.members.legs().begin_filling();
    }

    /// Second legs that were filled count from now on.
    async fn note_filled(self: &Arc<Self>) -> Result<()> {
        let legs = self.core.members.legs();
        let is_filled = |run: &MirroredRun| legs.is_filled(run);
        if self.core.placement().filled(is_filled).runs() == self.core.placement().runs() {
            return Ok(());
        }
        let Some(_claim) = self.try_claim_table()? else { return Ok(()) };
        let hold = self.hold_checkpoints().await;
        let new = Arc::new(self.core.placement().filled(is_filled));
        self.change_zones_of_mirrors(&new, Vec::new());
        drop(hold);
        // Until the table says so, an opening without the first leg's disk does not use the second one.
        self.checkpoint().await?;
        legs.set_runs(self.runs_of_legs(&new)).await
    }

    /// Dissolves extents for volumes of this type of which nothing is used, but for some, of these at least so many, if there
    /// are so many times more than those that stay (MZ2). Returns how many.
    async fn dissolve_zones(self: &Arc<Self>, segment: SegmentType, least: u64, times: u64) -> Result<u64> {
        let least = least * self.core.placement().extent_blocks;
        let kept = match segment {
            _ if !self.has_volumes_of(segment) => 0,
            // Without all disks nobody writes to a striped volume: rows can be made whenever they are needed.
            // One row stays, which keeps the layout.
            SegmentType::Striped => {
                let placement = self.core.placement();
                placement.stripe_layout().map_or(0, |layout| least.max(layout.row(placement.extent_blocks)))
            }
            _ => least.max(self.kept_free()),
        };
        self.dissolve_to(segment, kept, times).await
    }

    /// There was too little room: extents that were made for it have their former types again, as far as they can.
    pub(super) async fn give_back_made(self: &Arc<Self>, segment: SegmentType) {
        if segment != SegmentType::Linear && self.out().is_empty() && !self.is_moving() {
            // Best effort: the background does it after the next removal.
            let _ = self.dissolve_zones(segment, self.wanted_ahead(segment), 1).await;
        }
    }

    /// Blocks that stay free in mirrored, or in striped, extents while there are such volumes.
    pub(super) fn kept_free(&self) -> u64 {
        KEPT * self.growth() * self.core.placement().extent_blocks
    }

    /// The same, of all but this many blocks.
    pub(super) async fn dissolve_to(self: &Arc<Self>, segment: SegmentType, kept: u64, times: u64) -> Result<u64> {
        let free = self.core.space.lock().available_for(segment);
        if free <= kept * times.max(1) {
            return Ok(0);
        }
        let Ok(Some(_claim)) = self.try_claim_table() else { return Ok(0) };
        self.dissolve_claimed(segment, kept, None).await
    }

    /// The same while the caller has claimed the table.
    /// `on`: only those with a part on this physical volume.
    pub(super) async fn dissolve_claimed(
        self: &Arc<Self>,
        segment: SegmentType,
        kept: u64,
        on: Option<PvIndex>,
    ) -> Result<u64> {
        // Freed blocks are usable, and no discard is in flight.
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        let mut taken = Vec::new();
        let outcome = self.take_several(segment, kept, on, &mut taken).await;
        if outcome.is_err() || taken.is_empty() {
            taken.iter().for_each(|(start, len)| self.give_back(*start..start + len));
            return outcome.map(|()| 0);
        }
        taken.sort_unstable();
        let numbers: Vec<Range<u64>> = taken.iter().map(|(start, len)| *start..start + len).collect();
        let (new, given) = self.core.placement().without_zones_of(&numbers);
        let new = Arc::new(new);
        // No request to the freed blocks is in flight: they were free in a durable checkpoint.
        self.change_zones_of_mirrors(&new, given);
        if segment == SegmentType::Raid1 {
            self.core.members.legs().set_runs(self.runs_of_legs(&new)).await?;
        }
        drop(hold);
        self.checkpoint().await?;
        Ok(numbers.iter().map(|range| range.end - range.start).sum::<u64>() / new.extent_blocks)
    }

    /// All of a physical volume is to be moved: mirrored and striped extents there of which nothing is used become linear, so
    /// that they need not move. Who needs some makes others.
    pub(super) async fn dissolve_on(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        let _claim = self.claim_for_zones().await;
        for segment in ON_SEVERAL {
            let placement = self.core.placement();
            let kept = match placement.stripe_layout() {
                // One row keeps the layout.
                Some(layout) if segment == SegmentType::Striped && self.has_volumes_of(segment) => {
                    layout.row(placement.extent_blocks)
                }
                _ => 0,
            };
            self.dissolve_claimed(segment, kept, Some(pv)).await?;
        }
        Ok(())
    }

    async fn take_several(
        &self,
        segment: SegmentType,
        kept: u64,
        on: Option<PvIndex>,
        taken: &mut Vec<Run>,
    ) -> Result<()> {
        let placement = self.core.placement();
        let is_there =
            |run: &PlacedRun| on.is_none_or(|on| placement.all_parts_of(run).iter().any(|part| part.pv == on.0));
        let own = placement.runs().iter().filter(|run| run.segment() == segment && is_there(run));
        let own: Vec<_> = own.copied().collect();
        let unit = match placement.stripe_layout().filter(|_| segment == SegmentType::Striped) {
            Some(layout) => layout.row(placement.extent_blocks),
            None => placement.extent_blocks,
        };
        for run in own.into_iter().rev() {
            let mut at = run.start;
            loop {
                let take = || {
                    let _gate = self.core.gate.read();
                    let context = self.core.alloc_context();
                    self.core.space.lock().take_several(context, segment, at..run.end, unit, kept)
                };
                let Some(found) = self.core.with_nodes_privileged(take).await? else { break };
                at = found.0 + found.1;
                taken.push(found);
            }
        }
        Ok(())
    }
}

/// A row of two runs, as a pair of legs.
fn pair_of(row: &[Range<u64>]) -> Option<MirroredPair> {
    let [first, second] = row else { return None };
    Some(MirroredPair { first: first.start, second: second.start, blocks: first.end - first.start })
}

/// The first run of mirrored extents that has one leg.
fn single_run(placement: &Placement) -> Option<PlacedRun> {
    let is_single = |run: &&PlacedRun| run.second.is_none() && run.is_mirrored;
    placement.runs().iter().find(is_single).copied()
}

pub(super) fn full_table() -> Error {
    Error::Invalid("the table of mirrored and striped extents is full".into())
}

impl Group {
    /// The types of all volumes, by their heads.
    pub(super) fn types_of_heads(&self) -> BTreeMap<TreeId, SegmentType> {
        let catalog = self.catalog.read();
        let head = |volume: &Arc<Volume>| {
            let state = volume.state.lock();
            (state.head.id, state.stored_segment())
        };
        catalog.volumes.values().map(head).collect()
    }

    /// A physical volume with legs of mirrors does not leave: they would have one leg, without a word. Those of which nothing is
    /// used become linear first. The caller has claimed the table.
    pub(super) async fn check_no_legs(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        if self.core.placement().legs_on(pv).next().is_some() {
            self.dissolve_claimed(SegmentType::Raid1, 0, Some(pv)).await?;
        }
        match self.core.placement().legs_on(pv).next() {
            None => Ok(()),
            Some(_) => Err(Error::Busy("copies of mirrored volumes are on the physical volume".into())),
        }
    }
}
