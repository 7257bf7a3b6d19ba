//! Tallies: disks with legs count together while mirrors are written, so that an older copy of one of them is known
//! (ML11).

use super::intents::BLOCK;
use super::layer::Legs;
use super::state::State;
use crate::disk::{DiskError, PageBuf, PvIndex, Segment, Segments};
use crate::error::{Error, Result};
use crate::format::tally::{TALLY_OFFSET, Tally, TallyRecord};
use crate::planted;
use std::collections::BTreeSet;

impl State {
    /// The physical volumes with legs that are in.
    pub fn counting(&self) -> BTreeSet<PvIndex> {
        let mut pvs = self.table.pvs();
        pvs.retain(|pv| self.is_in(*pv));
        pvs
    }

    /// Whether a step is due: mirrors were written since the last one, or were not written for a while before.
    pub fn is_step_due(&self) -> bool {
        let round = self.round;
        self.is_count_due || self.regions.values().any(|region| region.writes > 0 || region.touched + 1 >= round)
    }
}

impl Legs {
    /// Reads the tallies of these physical volumes, which are in. None: it is damaged, or cannot be read.
    async fn tally_on(&self, pv: PvIndex) -> Option<Tally> {
        let read = self.read_raw(Segment { pv, offset: TALLY_OFFSET, at: 0, len: BLOCK as u32 }).await.ok()?;
        Tally::decode(read.as_slice(), self.group)
    }

    /// The tallies of these physical volumes, which are to be in.
    ///
    /// # Errors
    /// [`Error::OlderCopy`]: another one knows a higher tally of it.
    pub(super) async fn open_tallies(&self, pvs: &BTreeSet<PvIndex>) -> Result<()> {
        let (mut found, mut tally) = (Vec::new(), Tally::default());
        for pv in pvs {
            // A damaged one proves nothing. Its disk is most likely a disk with a damaged sector.
            let Some(own) = self.tally_on(*pv).await else { continue };
            tally.own = tally.own.max(own.own);
            tally.known.iter_mut().zip(own.known).for_each(|(known, own)| *known = own.max(*known));
            found.push((*pv, own.own));
        }
        // A step that was under way may be on a copy, and nowhere else after a power cut: it is not made again.
        tally.own = tally.own.saturating_add(1);
        self.state.lock().tally = tally;
        let is_older = |(pv, own): &(PvIndex, u32)| *own < tally.known[usize::from(pv.0)];
        match found.into_iter().find(is_older).filter(|_| !planted::is("tally_ignored")) {
            Some((pv, _)) => Err(Error::OlderCopy(pv)),
            None => Ok(()),
        }
    }

    /// Refuses a physical volume that returns as an older copy of the one that left. One without legs does not count: what is
    /// known there may be of another one, which had its place in the group's table before.
    pub(super) async fn check_tally(&self, pv: PvIndex) -> Result<()> {
        let known = {
            let state = self.state.lock();
            let counts = state.runs_of(pv).next().is_some() || planted::is("place_counts");
            if counts { state.tally.known[usize::from(pv.0)] } else { 0 }
        };
        match self.tally_on(pv).await {
            Some(tally) if tally.own < known && !planted::is("tally_ignored") => Err(Error::OlderCopy(pv)),
            _ => Ok(()),
        }
    }

    /// A step of all tallies: all disks that are in get the next one, durably. Then all record, durably, that the others have
    /// it. One task at a time does that.
    pub(super) async fn count(&self) -> std::result::Result<(), DiskError> {
        self.count_turn().await;
        let outcome = self.count_alone().await;
        self.end_count();
        outcome
    }

    /// A step before a physical volume that was behind counts as all others.
    pub async fn count_caught_up(&self) -> std::result::Result<(), DiskError> {
        if planted::is("caught_up_without_step") { Ok(()) } else { self.count().await }
    }

    /// Waits until no step is under way, and keeps the next one out.
    pub(super) async fn count_turn(&self) {
        loop {
            let turn = self.changed.turn();
            if !std::mem::replace(&mut self.state.lock().is_counting, true) {
                return;
            }
            self.changed.changed(turn).await;
        }
    }

    pub(super) fn end_count(&self) {
        self.state.lock().is_counting = false;
        self.changed.notify();
    }

    async fn count_alone(&self) -> std::result::Result<(), DiskError> {
        let (pvs, next) = {
            let mut state = self.state.lock();
            state.is_count_due = false;
            state.tally.own = state.tally.own.saturating_add(1);
            (state.counting(), state.tally)
        };
        if !planted::is("recorded_before_counted") {
            self.write_tallies(&pvs, &next).await?;
        }
        let mut known = next;
        pvs.iter().for_each(|pv| known.known[usize::from(pv.0)] = next.own);
        self.write_tallies(&pvs, &known).await?;
        // A physical volume that went meanwhile has it.
        self.state.lock().tally.known = known.known;
        Ok(())
    }

    /// Physical volumes that join or return get the present tally, whatever was there. So those that are in have no less than
    /// any of them is known to have, and it does not matter if they get other places in the group's table.
    pub(super) async fn begin_tallies(&self, pvs: &[PvIndex]) -> std::result::Result<(), DiskError> {
        let tally = self.state.lock().tally;
        self.write_tallies(&pvs.iter().copied().collect(), &tally).await
    }

    async fn write_tallies(&self, pvs: &BTreeSet<PvIndex>, tally: &Tally) -> std::result::Result<(), DiskError> {
        // The last run may have gone with a round still due.
        if pvs.is_empty() {
            return Ok(());
        }
        let mut buf = PageBuf::zeroed(BLOCK);
        buf.as_mut_slice()[..TallyRecord::SIZE].copy_from_slice(&tally.encode(self.group));
        let place = |pv: &PvIndex| Segment { pv: *pv, offset: TALLY_OFFSET, at: 0, len: BLOCK as u32 };
        self.write_own(buf, pvs.iter().map(place).collect::<Segments>(), true).await
    }
}
