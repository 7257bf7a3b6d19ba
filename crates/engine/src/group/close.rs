//! The end of an open group.

use super::Group;
use crate::error::Result;
use crate::planted;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Group {
    /// Drains, checkpoints and marks the group clean. Volumes answer [`Error::Closed`] afterwards.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        if !self.quiesce().await {
            return Ok(());
        }
        let outcome = match self.core.config.read_only {
            true => Ok(()),
            false => self.checkpoint_turn(self.final_ticket(), true).await,
        };
        self.end_background();
        if outcome.is_ok() && !self.core.config.read_only && !planted::is("closed_unsettled") {
            // Legs are made equal by the next opening, if not now.
            let _ = self.core.members.legs().close().await;
        }
        outcome
    }

    /// Lets requests in flight finish, and no new ones begin. False: that has been done already.
    pub(super) async fn quiesce(&self) -> bool {
        self.stop_move();
        self.move_ended().await;
        let volumes: Vec<_> = self.catalog.read().volumes.values().cloned().collect();
        if self.core.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        for volume in volumes {
            let gate = volume.close_gate(true).await;
            volume.state.lock().closed = true;
            drop(gate);
        }
        true
    }

    /// A closed group has no background work.
    pub(super) fn end_background(&self) {
        self.background.notify();
        self.core.space_event.notify();
    }
}
