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
        if outcome.is_ok() && !self.core.config.read_only && !planted::is("closed_with_one_superblock") {
            // The group is closed already.
            let _ = self.repeat_last_superblock().await;
        }
        self.end_background();
        if outcome.is_ok() && !self.core.config.read_only {
            self.settle_mirrors().await;
        }
        outcome
    }

    /// Nothing of mirrors has to be copied after this end. Where this fails, the next opening makes legs equal.
    pub(super) async fn settle_mirrors(&self) {
        if !planted::is("closed_unsettled") {
            let _ = self.core.members.legs().close().await;
        }
    }

    /// A second superblock after the last checkpoint: a copy of a physical volume that was made while the group was open is two
    /// behind then (B2).
    async fn repeat_last_superblock(&self) -> Result<()> {
        let _hold = self.hold_checkpoints().await;
        let (sequence, written) = {
            let mut root = self.root.lock();
            root.sequence += 1;
            (root.sequence, root.written.clone())
        };
        let outcome = self.write_superblocks(sequence, &written).await;
        if outcome.is_err() {
            // Not all physical volumes have it.
            self.root.lock().sequence = sequence - 1;
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
