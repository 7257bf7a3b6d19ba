//! Which runs there are, and which physical volumes are in: opening, changes, and physical volumes that return.

use super::intents::BLOCKS;
use super::layer::Legs;
use super::state::{Region, RegionId, State, Ticket, Unsure};
use super::table::{Part, Parts, Place, Table, bytes_of, do_meet, regions_of, whole};
use super::types::{LegsState, MirroredRun};
use crate::disk::{DiskError, PvIndex, Segment};
use crate::error::{Error, Result};
use crate::format::intents::LARGEST_MIRRORED;
use crate::format::superblock::DATA_OFFSET;
use crate::planted;
use std::collections::BTreeSet;
use std::sync::Arc;

fn check(runs: &[MirroredRun]) -> Result<()> {
    let is_sound = |run: &MirroredRun| {
        let fits = |leg: &super::types::Leg| {
            let end = leg.offset.checked_add(run.bytes);
            leg.offset >= DATA_OFFSET && end.is_some_and(|end| end <= DATA_OFFSET + LARGEST_MIRRORED)
        };
        let mut places = run.legs.iter().chain(&run.replacement);
        places.all(fits) && run.legs[0].pv != run.legs[1].pv && run.bytes > 0
    };
    match runs.iter().all(is_sound) {
        true => Ok(()),
        false => Err(Error::Invalid("a mirrored run lies where no run can be mirrored".into())),
    }
}

impl Legs {
    /// Reads the intents of these runs. Every region that is open on any of its legs is unsure if both legs are in (ML6).
    pub async fn open(self: &Arc<Self>, runs: Vec<MirroredRun>, pvs: LegsState) -> Result<()> {
        check(&runs)?;
        // A group that looks at another one's disks leaves the mirrors to it.
        if self.disks.has_mirrors_below() {
            return Ok(());
        }
        let in_use: BTreeSet<PvIndex> = {
            let mut state = self.state.lock();
            state.table = Table::new(&runs);
            state.pvs = pvs;
            state.counting()
        };
        self.set_active();
        self.open_tallies(&in_use).await?;
        let mut open: BTreeSet<RegionId> = BTreeSet::new();
        for pv in in_use {
            open.append(&mut self.load(pv).await);
        }
        {
            let mut state = self.state.lock();
            for region in open {
                state.regions.insert(region, Region { is_durable: true, writes: 0, touched: 0 });
            }
            for run in &runs {
                if run.legs.iter().all(|leg| state.is_in(leg.pv)) {
                    state.doubt(run);
                }
            }
        }
        self.start_timer();
        self.wake_owner();
        Ok(())
    }

    /// There are more runs, or fewer, or others. The contents of a new run's legs are not needed, unless one of them is being
    /// filled: then all of it is unsure, and its intents are durable when this returns. It is copied from
    /// [`begin_filling`](Self::begin_filling) on. While the first leg leaves, a run is there a second time,
    /// [`swapped`](MirroredRun::swapped). A run gets a [replacement](MirroredRun::replacement) for a leg by this, and the
    /// replacement becomes the leg, or is given up; then writes to the place that is left have ended.
    ///
    /// A table that names a leg that is being filled may be on a disk only after this has returned. Requests to runs that
    /// have changed and that came before have ended when this returns; requests to places that were in no run are not
    /// known here.
    ///
    /// # Errors
    /// A disk failed. Runs that became more or got legs are as before, and writes to such legs have ended, unless all requests
    /// are refused from now on.
    pub async fn set_runs(self: &Arc<Self>, runs: Vec<MirroredRun>) -> Result<()> {
        check(&runs)?;
        let new_pvs = self.new_pvs(&Table::new(&runs));
        // Before they count together with the others.
        self.begin_tallies(&new_pvs).await?;
        let (regions, changed, before, old) = {
            let mut state = self.state.lock();
            let new = Table::new(&runs);
            if state.must_stay_replaced(&new) {
                return Err(Error::Busy(
                    "a copy of a mirrored volume is being moved, and where it is, is known when the group is opened again".into(),
                ));
            }
            let mut changed = changes(&state.table, &new);
            let (unsure, replaced) = state.begin_end_of_replacing(&new);
            let old = std::mem::replace(&mut state.table, new);
            for place in &changed {
                state.take_unsure(place);
            }
            unsure.into_iter().for_each(|(place, how)| state.set_unsure(&place, how));
            changed.extend(replaced);
            let mut regions = Vec::new();
            for run in runs.iter().filter(|run| run.filling.is_some()) {
                for place in unlike(&old, run) {
                    state.take_unsure(&place);
                    let source = run.filling.map(|filling| 1 - filling);
                    state.set_unsure(&place, Unsure { end: 0, source, is_stuck: false, is_held: true });
                    let pieces = state.table.pieces(&place);
                    regions.extend(pieces.iter().flat_map(|piece| state.needed(piece)));
                }
            }
            (regions, changed, state.next_ticket, old)
        };
        self.set_active();
        self.drain(&changed, before).await;
        if !planted::is("late_write_missed") {
            self.state.lock().end_replacing(&old);
        }
        if !changed.is_empty() {
            self.forget_regions().await;
        }
        let begun = self.begin_runs(&new_pvs, regions).await;
        if begun.is_err() && !planted::is("failed_runs_stay") {
            self.take_back(old, &runs).await;
        }
        Ok(begun?)
    }

    /// Regions without runs are not open, and nothing is written for them any more: their physical volume may leave the group.
    async fn forget_regions(&self) {
        if planted::is("regions_outlive_runs") {
            return;
        }
        self.count_turn().await;
        self.intents_turn().await;
        {
            let State { table, regions, .. } = &mut *self.state.lock();
            regions.retain(|region, _| !table.at(&bytes_of(*region)).is_empty());
        }
        self.end_intents();
        self.end_count();
    }

    /// Writes what must be durable before a table may name new legs.
    async fn begin_runs(&self, new_pvs: &[PvIndex], regions: Vec<RegionId>) -> std::result::Result<(), DiskError> {
        // What was there before means nothing: nobody has a bit there that counts.
        if !new_pvs.is_empty() {
            self.rewrite_intents(new_pvs).await?;
        }
        if !regions.is_empty() {
            self.declare_regions(regions).await?;
        }
        Ok(())
    }

    /// The runs are as before. Writes that went to new legs meanwhile have ended when this returns.
    async fn take_back(&self, old: Table, runs: &[MirroredRun]) {
        let (places, before, new) = {
            let mut state = self.state.lock();
            let filling = runs.iter().filter(|run| run.filling.is_some());
            let mut places: Vec<Place> = filling.flat_map(|run| unlike(&old, run)).collect();
            places.iter().for_each(|place| drop(state.take_unsure(place)));
            places.extend(state.begin_end_of_replacing(&old).1);
            let new = std::mem::replace(&mut state.table, old);
            (places, state.next_ticket, new)
        };
        self.set_active();
        self.drain(&places, before).await;
        self.state.lock().end_replacing(&new);
    }

    /// Whether all requests are refused, because a disk has failed.
    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped.is_some()
    }

    /// The physical volumes that are in, and have legs in this table and none in the present one.
    fn new_pvs(&self, new: &Table) -> Vec<PvIndex> {
        let state = self.state.lock();
        let known = state.table.pvs();
        new.pvs().into_iter().filter(|pv| !known.contains(pv) && state.is_in(*pv)).collect()
    }

    /// Writes that came to new legs before [`set_runs`](Self::set_runs) have ended: they can be filled.
    pub fn begin_filling(&self) {
        self.state.lock().unsure.values_mut().for_each(|unsure| unsure.is_held = false);
        self.changed.notify();
        self.wake_owner();
    }

    /// Whether the leg that is being filled has everything, durably. Then the caller stores the run without `filling`, and
    /// tells [`set_runs`](Self::set_runs).
    pub fn is_filled(&self, run: &MirroredRun) -> bool {
        let state = self.state.lock();
        // Without the source nothing is unsure, and nothing is copied.
        let are_in = run.legs.iter().all(|leg| state.is_in(leg.pv)) || planted::is("filled_without_source");
        are_in && !state.has_unsure(run) && state.flushed == state.copied
    }

    /// Whether each leg of a run has everything.
    pub fn are_equal(&self, run: &MirroredRun) -> bool {
        let state = self.state.lock();
        let has_all = |pv: PvIndex| state.is_in(pv) && !state.pvs.behind.has(usize::from(pv.0));
        run.legs.iter().all(|leg| has_all(leg.pv)) && !state.has_unsure(run)
    }

    /// Waits for writes to these places that came before.
    async fn drain(&self, places: &[Place], before: u64) {
        loop {
            let turn = self.changed.turn();
            let is_quiet = {
                let state = self.state.lock();
                let meets = |ticket: &Ticket| ticket.iter().any(|own| places.iter().any(|place| do_meet(own, place)));
                state.stopped.is_some() || !state.tickets.range(..before).any(|(_, ticket)| meets(ticket))
            };
            if is_quiet {
                return;
            }
            self.changed.changed(turn).await;
        }
    }

    /// Writes all intents of these physical volumes as they are in memory.
    async fn rewrite_intents(&self, pvs: &[PvIndex]) -> std::result::Result<(), DiskError> {
        self.intents_turn().await;
        let blocks = pvs.iter().flat_map(|pv| (0..BLOCKS).map(|block| (pv.0, block))).collect();
        let outcome = self.write_blocks(&blocks, true).await;
        self.end_intents();
        outcome
    }

    /// A physical volume returns. All that it may have missed becomes open in its own intents, durably. Then the caller writes
    /// the superblock that says that it is in, and behind, and that those which are behind already are behind longer. Then
    /// the caller calls [`returned`](Self::returned), or [`return_failed`](Self::return_failed).
    ///
    /// # Errors
    /// [`Error::OlderCopy`]: it is an older copy of the one that left. Nothing was written to it.
    pub async fn prepare_return(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        self.check_tally(pv).await?;
        if !planted::is("returned_uncounted") {
            self.begin_tallies(&[pv]).await?;
        }
        // From now on all that is declared is declared there, too.
        self.state.lock().returning.set(usize::from(pv.0), true);
        let own = self.load(pv).await;
        self.intents_turn().await;
        let missed: Vec<RegionId> = {
            let mut state = self.state.lock();
            let mut missed = own;
            let runs: Vec<MirroredRun> = state.runs_of(pv).copied().collect();
            for run in &runs {
                for place in state.open_in(run) {
                    let pieces = state.table.pieces(&place);
                    missed
                        .extend(pieces.iter().flat_map(|piece| state.needed(piece)).filter(|region| region.0 == pv.0));
                }
            }
            let round = state.round;
            for region in &missed {
                state.regions.entry(*region).or_insert(Region { is_durable: false, writes: 0, touched: round });
            }
            missed.into_iter().collect()
        };
        let outcome = self.write_blocks(&(0..BLOCKS).map(|block| (pv.0, block)).collect(), true).await;
        {
            let mut state = self.state.lock();
            for region in missed {
                if let Some(region) = state.regions.get_mut(&region) {
                    region.is_durable = outcome.is_ok();
                }
            }
            if outcome.is_err() {
                state.returning.set(usize::from(pv.0), false);
                state.regions.retain(|region, _| region.0 != pv.0);
            }
        }
        self.end_intents();
        Ok(outcome?)
    }

    /// It does not return: its superblock was not written. No intents are written there any more.
    pub fn return_failed(&self, pv: PvIndex) {
        let mut state = self.state.lock();
        state.returning.set(usize::from(pv.0), false);
        if !state.is_in(pv) {
            state.regions.retain(|region, _| region.0 != pv.0);
        }
    }

    /// The superblock says that it is in, and behind.
    pub fn returned(&self, pv: PvIndex) {
        {
            let mut state = self.state.lock();
            let at = usize::from(pv.0);
            if !state.returning.has(at) {
                return;
            }
            // What is behind already was not written without it.
            let others = state.pvs.behind;
            state.pvs.behind_longer = others;
            state.returning.set(at, false);
            state.pvs.out.set(at, false);
            state.pvs.behind.set(at, true);
            state.copied += 1;
            let runs: Vec<MirroredRun> = state.runs_of(pv).copied().collect();
            for run in runs.iter().filter(|run| run.legs.iter().all(|leg| state.is_in(leg.pv))).collect::<Vec<_>>() {
                state.doubt(run);
            }
        }
        self.changed.notify();
        self.start_timer();
        self.wake_owner();
    }

    /// Whether a physical volume that is behind has all that it missed, durably.
    pub fn is_caught_up(&self, pv: PvIndex) -> bool {
        let state = self.state.lock();
        let runs = || state.runs_of(pv);
        let are_in = runs().all(|run| run.legs.iter().all(|leg| state.is_in(leg.pv)));
        let is_sure = !runs().any(|run| state.has_unsure(run));
        // Without legs there is nothing that it lacks, and nothing that flushes.
        let is_flushed = state.flushed == state.copied || runs().next().is_none();
        state.pvs.behind.has(usize::from(pv.0)) && are_in && is_sure && is_flushed
    }

    /// The superblock says that it is not behind any more.
    pub fn caught_up(&self, pv: PvIndex) {
        let mut state = self.state.lock();
        state.pvs.behind.set(usize::from(pv.0), false);
        state.pvs.behind_longer.set(usize::from(pv.0), false);
    }
}

impl State {
    /// The places of a run in which a region of either leg is open.
    fn open_in(&self, run: &MirroredRun) -> Vec<Place> {
        let mut places = Vec::new();
        for leg in run.legs {
            let mut own = regions_of(&(leg.pv, leg.offset..leg.offset + run.bytes));
            let (Some(first), last) = (own.next(), own.last()) else { continue };
            for (region, _) in self.regions.range(first..=last.unwrap_or(first)) {
                let at = self.table.at(&bytes_of(*region));
                places.extend(at.into_iter().filter(|(_, of, _)| of.legs == run.legs).map(|(_, _, place)| place));
            }
        }
        places
    }

    /// What is open in a run is unsure (ML6).
    fn doubt(&mut self, run: &MirroredRun) {
        let source = self.source_of(run);
        for place in self.open_in(run) {
            self.set_unsure(&place, Unsure { end: 0, source, is_stuck: false, is_held: false });
        }
    }
}

/// The parts of a run that had other legs before, or none, or were complete.
fn unlike(old: &Table, run: &MirroredRun) -> Vec<Place> {
    let mut places = Vec::new();
    let (pv, range) = whole(run);
    const MOST: u64 = 1 << 30;
    let mut at = range.start;
    while at < range.end {
        let len = MOST.min(range.end - at);
        let mut parts = Parts::new();
        old.split(&Segment { pv, offset: at, at: 0, len: len as u32 }, &mut parts);
        for part in parts {
            let (place, is_same) = match part {
                Part::Plain(segment) => (super::table::place_of(&segment), false),
                Part::Mirrored(piece) => {
                    let skipped = piece.legs[0].offset - range.start;
                    let second = (run.legs[1].pv, run.legs[1].offset + skipped);
                    let is_same = (piece.legs[1].pv, piece.legs[1].offset) == second && piece.filling == run.filling;
                    (piece.place(), is_same)
                }
            };
            if !is_same {
                places.push(place);
            }
        }
        at += len;
    }
    places
}

/// The places of old runs whose legs are not the same in the new table.
fn changes(old: &Table, new: &Table) -> Vec<Place> {
    // Complete or not: that changes nothing for writes.
    let complete: Vec<MirroredRun> = new.runs().map(|run| MirroredRun { filling: None, ..*run }).collect();
    let new = Table::new(&complete);
    old.runs().flat_map(|run| unlike(&new, &MirroredRun { filling: None, ..*run })).collect()
}
