//! Replay in parts: recovery of a journal that frees more than one checkpoint can name (rule L1).
//!
//! A checkpoint that recovery takes on its way holds what was replayed so far. It names the place in the journal from which on
//! records are still to be replayed, so that another recovery goes on there. Records that are carried out in part are carried out
//! again as a whole, which changes nothing.

use super::Group;
use crate::error::{Error, Result};
use crate::space::OpenArenas;
use crate::units::Seq;
use std::sync::Arc;

/// Metadata grows, if it can, while there are fewer blocks beyond the reserve.
const NODES_TO_GROW: u64 = 64;
/// Metadata blocks that one record may take.
const NODES_FOR_RECORD: u64 = 24;
/// So many have to be used before another checkpoint is taken for what replaced them.
const NODES_WORTHWHILE: u64 = 8;

impl Group {
    /// Record `next` is to be carried out now.
    pub(super) fn replay_reached(&self, next: Seq) {
        if let Some(replay) = self.replay.lock().as_mut() {
            replay.next = next;
        }
    }

    /// Sees to it that the next record finds metadata blocks: by growth, or by a checkpoint of what was replayed.
    pub(super) async fn replay_room(self: &Arc<Self>) -> Result<()> {
        let core = &self.core;
        if core.config.read_only {
            return Ok(());
        }
        if core.replays_in_small_parts() {
            self.checkpoint_turn(self.final_ticket(), false).await?;
        }
        if !core.meta.lock().can_alloc(NODES_TO_GROW, false) {
            match core.grow(OpenArenas::Close).await {
                Ok(_) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // A checkpoint gives back what was replaced since the last one: nothing to speak of after a few blocks.
        let slack = core.meta.lock().slack();
        let worthwhile = self.replay.lock().as_ref().is_some_and(|replay| slack + NODES_WORTHWHILE <= replay.slack);
        if slack >= NODES_FOR_RECORD || !worthwhile {
            return Ok(());
        }
        self.replay_part_room().await?;
        let slack = core.meta.lock().slack();
        if let Some(replay) = self.replay.lock().as_mut() {
            replay.slack = slack;
        }
        Ok(())
    }

    /// The same for a part of a record, which frees blocks.
    pub(super) async fn replay_part_room(self: &Arc<Self>) -> Result<()> {
        if self.core.config.read_only {
            return Ok(());
        }
        if self.core.replays_in_small_parts() {
            self.checkpoint_turn(self.final_ticket(), false).await?;
        }
        match self.room_to_free().await {
            // There may be enough all the same.
            Err(Error::NoSpace { .. }) => Ok(()),
            outcome => outcome,
        }
    }
}
