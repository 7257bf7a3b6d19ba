//! The layer itself, as the disks of what lies above it.

use super::pace::{BESIDE_OTHERS, Lap, Pace, WINDOW};
use super::state::{State, Turn};
use super::table::{Part, Parts};
use super::types::{Leg, LegsOwner, MirroredRun, PvReport, RunReport};
use crate::disk::{
    Completer, DiscardLimits, DiskError, DiskOp, DiskOpKind, Disks, PvGeometry, PvIndex, Segment, Segments, start,
};
use crate::event::Event;
use crate::model::PvFlags;
use crate::planted;
use crate::runtime::Runtime;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A declaration that is being collected, or carried out: its regions, and how it ended.
#[derive(Default)]
pub struct Batch {
    pub regions: Mutex<BTreeSet<(u16, u32)>>,
    pub outcome: Mutex<Option<Result<(), DiskError>>>,
}

/// The disks of a group with mirrored runs.
pub struct Legs {
    pub(super) disks: Arc<dyn Disks>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) group: u64,
    pub(super) own: Weak<Legs>,
    owner: Mutex<Option<Weak<dyn LegsOwner>>>,
    /// Without runs no lock is taken.
    pub(super) is_active: AtomicBool,
    pub(super) state: Mutex<State>,
    /// The declaration that requests can join.
    pub(super) collecting: Mutex<Option<Arc<Batch>>>,
    pub(super) changed: Event,
    pub(super) pace: Pace,
}

impl Legs {
    /// `group_tag`: the first eight bytes of the group's UUID.
    pub fn new(disks: Arc<dyn Disks>, runtime: Arc<dyn Runtime>, group_tag: u64) -> Arc<Legs> {
        Arc::new_cyclic(|own| Legs {
            disks,
            runtime,
            group: group_tag,
            own: own.clone(),
            owner: Mutex::default(),
            is_active: AtomicBool::new(false),
            state: Mutex::default(),
            collecting: Mutex::default(),
            changed: Event::default(),
            pace: Pace::default(),
        })
    }

    /// Who is told.
    pub fn set_owner(&self, owner: Weak<dyn LegsOwner>) {
        *self.owner.lock() = Some(owner);
    }

    /// The raw disks.
    pub fn all(&self) -> &Arc<dyn Disks> {
        &self.disks
    }

    fn owner(&self) -> Option<Arc<dyn LegsOwner>> {
        self.owner.lock().as_ref().and_then(Weak::upgrade)
    }

    pub(super) fn wake_owner(&self) {
        if let Some(owner) = self.owner() {
            owner.wake();
        }
    }

    /// A disk failed, and the group goes on without it when it is opened again. No request is carried out any more: those
    /// that wait fail with this error.
    pub(super) fn fail(&self, error: DiskError) {
        if let Some(owner) = self.owner() {
            owner.leg_failed(error);
        }
        self.stop(error);
    }

    fn stop(&self, error: DiskError) {
        self.state.lock().stopped.get_or_insert(error);
        self.changed.notify();
    }

    /// A stretch of background work begins.
    pub fn lap(&self) -> Lap {
        self.pace.start()
    }

    /// Whether nobody has used the mirrors since then.
    pub fn is_alone(&self, since: &Lap) -> bool {
        self.pace.is_alone(since)
    }

    /// How many bytes background work transfers together, beside what others have done since then.
    pub fn window_beside(&self, since: &Lap) -> u64 {
        let do_turn = || (0..self.disks.count()).any(|pv| self.disks.turns(PvIndex(pv as u16)));
        if self.is_alone(since) || do_turn() { WINDOW } else { BESIDE_OTHERS }
    }

    /// The physical volumes without which some of what was written to these places of first legs is lost: what is whole
    /// on two of them outlives either.
    pub fn only_on(&self, places: &Segments) -> PvFlags {
        if !self.is_active() {
            return PvFlags(places.iter().fold(0, |pvs, place| pvs | 1u64 << place.pv.0));
        }
        let state = self.state.lock();
        let only_on = |part: &Part| match part {
            Part::Plain(segment) => 1u64 << segment.pv.0,
            Part::Mirrored(piece) if (0..2).all(|leg| state.is_whole(piece, leg)) => 0,
            Part::Mirrored(piece) => state.legs_in(piece).fold(0, |pvs, leg| pvs | 1u64 << piece.legs[leg].pv.0),
        };
        PvFlags(state.split(places).iter().fold(0, |pvs, part| pvs | only_on(part)))
    }

    /// Whether all of a place of a first leg has a leg that is in. Requests there may fail still (ML7).
    pub fn is_readable(&self, segment: &Segment) -> bool {
        let state = self.state.lock();
        let parts = state.split(&Segments::from_slice(&[*segment]));
        parts.iter().all(|part| match part {
            Part::Plain(segment) => state.is_in(segment.pv),
            Part::Mirrored(piece) => state.legs_in(piece).next().is_some(),
        })
    }

    /// Whether all of these places of first legs can be read, also if nothing returns any more (ML7): a leg that is in has
    /// everything.
    pub fn have_all(&self, segments: &Segments) -> bool {
        let state = self.state.lock();
        state.split(segments).iter().all(|part| match part {
            Part::Plain(segment) => state.is_in(segment.pv),
            Part::Mirrored(piece) => state.refusal(piece, DiskOpKind::Read).is_none() || planted::is("behind_is_whole"),
        })
    }

    /// The runs, and what is to be done.
    pub fn report(&self) -> Vec<RunReport> {
        let state = self.state.lock();
        let report = |run: &MirroredRun| {
            let leg = run.legs.iter().find(|leg| state.is_in(leg.pv)).unwrap_or(&run.legs[0]);
            let place = |leg: &Leg| (leg.pv, leg.offset..leg.offset + run.bytes);
            let mut own = super::table::regions_of(&place(leg));
            let (first, last) = (own.next(), own.last());
            let open = first.map_or(0, |first| state.regions.range(first..=last.unwrap_or(first)).count() as u64);
            let (mut unsure_bytes, mut stuck_bytes) = (0, 0);
            for ((_, range), unsure) in state.unsure_at(&place(&run.legs[0])) {
                let bytes = range.end.min(run.legs[0].offset + run.bytes) - range.start.max(run.legs[0].offset);
                unsure_bytes += bytes;
                stuck_bytes += if unsure.is_stuck { bytes } else { 0 };
            }
            let pieces = state.table.pieces(&place(&run.legs[0]));
            let outdated_bytes = pieces.iter().map(|piece| state.outdated_bytes(piece)).sum();
            RunReport { run: *run, open_regions: open, unsure_bytes, stuck_bytes, outdated_bytes }
        };
        state.table.runs().map(report).collect()
    }

    /// Whether a leg gets what it lacks, or waits for the one that has it.
    pub fn is_catching_up(&self) -> bool {
        self.state.lock().is_catching_up()
    }

    pub fn pv_report(&self, pv: PvIndex) -> PvReport {
        self.state.lock().reports.get(&pv.0).copied().unwrap_or_default()
    }

    #[cfg(test)]
    pub fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Writes and discards.
    fn submit_write(&self, op: DiskOp, done: Completer) {
        let (DiskOp::Write { segments, .. } | DiskOp::Discard { segments }) = &op else { return };
        let mut state = self.state.lock();
        if state.split(segments).iter().all(|part| matches!(part, Part::Plain(_))) {
            drop(state);
            return self.disks.submit(op, done);
        }
        let id = state.enter(segments);
        let turn = state.turn(id, segments, op.kind());
        drop(state);
        let Some(legs) = self.own.upgrade() else { return };
        // Most writes are in flight when this returns.
        let begun = match turn {
            Turn::Begun(begun) if begun.segments.is_empty() => {
                legs.leave(id, &begun);
                return done.complete(Ok(None));
            }
            Turn::Begun(begun) => Some((start(&*self.disks, retargeted(&op, &begun.segments)), *begun)),
            _ => None,
        };
        legs.pace.begin();
        let write = async move {
            legs.write(id, op, begun, done).await;
            legs.pace.end();
        };
        self.runtime.answer("legs", Box::pin(write));
    }

    fn submit_read(&self, op: DiskOp, done: Completer) {
        let DiskOp::Read { segments, buf } = op else { return };
        let parts: Parts = self.state.lock().split(&segments);
        if parts.iter().all(|part| matches!(part, Part::Plain(_))) {
            return self.disks.submit(DiskOp::Read { segments, buf }, done);
        }
        let Some(legs) = self.own.upgrade() else { return };
        // So are most reads.
        let begun = legs.begin_read(&segments);
        let read = match begun {
            Ok(plan) => Ok(legs.start_read(plan, &segments, buf)),
            Err(next) => Err((next, buf)),
        };
        legs.pace.begin();
        let read = async move {
            legs.read(segments, read, done).await;
            legs.pace.end();
        };
        self.runtime.answer("legs", Box::pin(read));
    }
}

/// The same request at other places.
pub fn retargeted(op: &DiskOp, segments: &Segments) -> DiskOp {
    match op {
        DiskOp::Write { buf, .. } => DiskOp::Write { segments: segments.clone(), buf: buf.clone() },
        _ => DiskOp::Discard { segments: segments.clone() },
    }
}

impl Disks for Legs {
    fn count(&self) -> usize {
        self.disks.count()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.disks.geometry(pv)
    }

    fn is_missing(&self, pv: PvIndex) -> bool {
        self.disks.is_missing(pv)
    }

    fn discards(&self, pv: PvIndex) -> DiscardLimits {
        self.disks.discards(pv)
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        if !self.is_active() {
            return self.disks.submit(op, done);
        }
        match op {
            DiskOp::Read { .. } => self.submit_read(op, done),
            DiskOp::Write { .. } | DiskOp::Discard { .. } => self.submit_write(op, done),
            DiskOp::Flush => {
                // After a flush that failed nobody may believe a later one.
                let stopped = self.state.lock().stopped;
                match stopped {
                    Some(error) => done.complete(Err(error)),
                    None => self.disks.submit(DiskOp::Flush, done),
                }
            }
        }
    }

    fn back(&self, segments: Segments, done: Completer) {
        if !self.is_active() {
            return self.disks.back(segments, done);
        }
        let places: Segments = {
            let state = self.state.lock();
            let both = |part: &Part| match part {
                Part::Plain(segment) => Segments::from_slice(&[*segment]),
                Part::Mirrored(piece) => {
                    state.legs_in(piece).map(|leg| piece.legs[leg]).chain(piece.replacement).collect()
                }
            };
            state.split(&segments).iter().flat_map(both).collect()
        };
        match places.is_empty() {
            true => done.complete(Ok(None)),
            false => self.disks.back(places, done),
        }
    }
}
