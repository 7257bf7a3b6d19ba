//! A leg of mirrored extents moves to another physical volume while both legs are in use.
//!
//! * PM10 A leg moves as an extent does (PM6, PM7), but [`legs`](crate::legs) makes the copy (ML12): both legs have all writes
//!   until the table that names the new one is durable, so at every moment either disk can be lost. The first leg's place
//!   is the one by which requests name their blocks. When it changes, no write by the old name is in flight, and those
//!   that were planned with it go to the new one.

use super::Group;
use super::moves::{TableClaim, first_byte, fixed, unequal};
use crate::disk::Segment;
use crate::error::{Error, Result};
use crate::legs::{Leg, MirroredRun, with_replacement};
use crate::placement::{PlacedPart, Placement, mirrored};
use crate::planted;
use crate::space::Run;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are copied at once. Writes to them wait meanwhile.
const WINDOW: u64 = 512 << 10;
/// The pause of who waits for legs that are being made equal.
const PAUSE: Duration = Duration::from_millis(10);

impl Group {
    /// Copies a leg to the free extents, and exchanges their places.
    pub(super) async fn exchange_leg(
        self: &Arc<Self>,
        moved: &PlacedPart,
        leg: usize,
        free: Run,
        claim: &mut Option<TableClaim<'_>>,
    ) -> Result<()> {
        let (core, moving, legs) = (&self.core, &self.core.members.moving, self.core.members.legs());
        let old = core.placement();
        let run = run_of(&old, moved)?;
        if !legs.are_equal(&run) {
            return Err(unequal());
        }
        let new = self.exchanged(moved, free)?;
        let (pv, offset) = first_byte(&old, free.0);
        legs.set_runs(with_replacement(&old.mirrored_runs(), &run, Leg { pv, offset })).await?;
        if let Err(error) = self.copy_leg(&run).await {
            return Err(if legs.are_equal(&run) { error } else { unequal() });
        }
        let count = || legs.count_replacement().map(|()| true);
        self.change_zones(&moved.numbers(), &new, &count).await?;
        if planted::is("old_leg_left_early") {
            legs.set_runs(new.mirrored_runs()).await?;
        }
        // Until here both legs are right with either table, whichever the checkpoint has.
        self.checkpoint().await?;
        let is_renamed = leg == 0 && !planted::is("leg_renamed_in_flight");
        if is_renamed {
            let place = run.legs[0].offset..run.legs[0].offset + run.bytes;
            moving.begin_renaming(place, pv, offset).await;
        }
        let outcome = legs.set_runs(new.mirrored_runs()).await;
        if outcome.is_ok() {
            self.look_up_in(&new);
        }
        if is_renamed {
            moving.renamed(core.members.all());
        }
        outcome?;
        *claim = None;
        self.all_done().await;
        if is_renamed {
            moving.drain().await;
            moving.end_run(core.members.all());
        }
        self.release(free);
        Ok(())
    }

    /// Mirrors that did not end are made equal in the background, and so are disks that returned. Who waits has no claim: a write
    /// may need it. False: they cannot be made equal.
    pub(super) async fn wait_until_equal(&self, moved: &PlacedPart) -> Result<bool> {
        let legs = self.core.members.legs();
        if moved.leg.is_none() {
            return Ok(true);
        }
        loop {
            self.check_not_stopped()?;
            let Ok(run) = run_of(&self.core.placement(), moved) else { return Ok(true) };
            if legs.are_equal(&run) {
                return Ok(true);
            }
            if legs.is_stuck(&run) {
                return Ok(false);
            }
            self.core.runtime.sleep(PAUSE).await;
        }
    }

    async fn copy_leg(&self, run: &MirroredRun) -> Result<()> {
        let mut throttle = crate::core::Throttle::default();
        let (first, mut at) = (run.legs[0], 0);
        while at < run.bytes {
            self.check_not_stopped()?;
            let len = WINDOW.min(run.bytes - at) as u32;
            let from = Segment { pv: first.pv, offset: first.offset + at, at: 0, len };
            self.core.members.legs().copy_to_replacement(from).await?;
            at += u64::from(len);
            self.moves.state.lock().copied_of_leg = at;
            self.core.throttle(&mut throttle).await;
        }
        self.moves.state.lock().copied_of_leg = 0;
        Ok(())
    }

    /// The leg stays where it is. The extents that were taken for it become free.
    ///
    /// # Errors
    /// The group has failed, and it is unknown where the leg is (PM8).
    pub(super) async fn abort_leg(&self, free: Run) -> Result<()> {
        let legs = self.core.members.legs();
        self.moves.state.lock().copied_of_leg = 0;
        if legs.is_replacement_counted() {
            return self.core.journal.failed().and(Err(Error::Closed));
        }
        legs.set_runs(self.core.placement().mirrored_runs()).await?;
        self.release(free);
        Ok(())
    }
}

/// The mirrored run of a part.
fn run_of(placement: &Placement, moved: &PlacedPart) -> Result<MirroredRun> {
    let numbers = moved.numbers();
    let (run, _) = placement.part_of_run(&numbers);
    run.filter(|run| run.end == numbers.end).as_ref().and_then(mirrored).ok_or_else(fixed)
}
