//! Both copies of metadata are on two physical volumes.
//!
//! * MS1 In a group with mirrored volumes no copy of metadata stays beside the other one, where another physical volume has
//!   room: whichever disk is lost, the other ones open the group. What was made before there were two, or while one was
//!   away, is moved then. A copy that leaves a physical volume goes to one that has not the other copy.

use super::Group;
use crate::error::Result;
use crate::planted;
use crate::units::VgBlock;
use std::sync::Arc;

impl Group {
    /// Moves one of two copies of metadata that are on one physical volume to another one, where another one has room.
    pub(super) async fn spread_metadata(self: &Arc<Self>) -> Result<()> {
        for pair in self.pairs_on_one_pv() {
            // No checkpoint may write nodes while they are copied.
            let hold = self.hold_checkpoints().await;
            self.core.journal.failed()?;
            let placement = self.core.placement();
            let Some(moving) = self.core.meta.lock().pairs().get(pair).copied() else { continue };
            let [first, second] = moving.copies.map(|start| placement.pv_of(VgBlock(start)).0);
            if first != second {
                continue;
            }
            let Some(run) = self.run_outside(moving.blocks, &placement.ranges_of(first)).await? else { continue };
            self.move_copy_to(run, (pair, 1), [moving.copies[1], moving.copies[0]]).await?;
            drop(hold);
            self.checkpoint().await?;
        }
        Ok(())
    }

    /// The same in the background, unless the table of zones is being changed, or a physical volume is missing.
    pub(super) async fn spread_when_idle(self: &Arc<Self>) -> Result<()> {
        if !self.out().is_empty() || self.is_moving() || self.pairs_on_one_pv().is_empty() {
            return Ok(());
        }
        let Some(_claim) = self.try_claim_table()? else { return Ok(()) };
        self.spread_metadata().await
    }

    /// The same for a new mirrored volume. Another change of the table is waited for: the background may be doing this.
    pub(super) async fn spread_for_mirror(self: &Arc<Self>) -> Result<()> {
        if self.pairs_on_one_pv().is_empty() {
            return Ok(());
        }
        let _claim = self.claim_table().await?;
        self.core.require_all_pvs()?;
        self.spread_metadata().await
    }

    /// The pairs of copies of metadata that are on one physical volume.
    fn pairs_on_one_pv(&self) -> Vec<usize> {
        if planted::is("metadata_not_spread") {
            return Vec::new();
        }
        let placement = self.core.placement();
        let meta = self.core.meta.lock();
        let is_on_one = |copies: [u64; 2]| {
            let [first, second] = copies.map(|start| placement.pv_of(VgBlock(start)).0);
            first == second
        };
        let pairs = meta.pairs().iter().enumerate();
        pairs.filter(|(_, pair)| is_on_one(pair.copies)).map(|(at, _)| at).collect()
    }
}
