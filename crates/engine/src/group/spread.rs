//! Both copies of metadata are on two physical volumes again, after the one that had the other copies was removed.

use super::Group;
use crate::error::Result;
use crate::units::VgBlock;
use std::sync::Arc;

impl Group {
    /// Moves one of two copies of metadata that are on one physical volume to another one, where another one has room.
    pub(super) async fn spread_metadata(self: &Arc<Self>) -> Result<()> {
        let pairs = self.core.meta.lock().pairs().len();
        for pair in 0..pairs {
            // No checkpoint may write nodes while they are copied.
            let hold = self.hold_checkpoints().await;
            self.core.journal.failed()?;
            let placement = self.core.placement();
            let moving = self.core.meta.lock().pairs()[pair];
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
}
