//! Replay in parts: recovery of a journal that frees more than one checkpoint can name (rule L1).
//!
//! A checkpoint that recovery takes during replay contains the records that were replayed so far. It names the position
//! in the journal of the first remaining record, so that another recovery continues there. A record that was applied in
//! part is applied again, which changes nothing.

use super::Group;
use crate::error::{Error, Result};
use crate::space::OpenArenas;
use crate::units::Seq;
use std::sync::Arc;

/// Metadata grows, if it can, while there are fewer blocks beyond the reserve.
const NODES_TO_GROW: u64 = 64;
/// Metadata blocks that one record may take.
const NODES_FOR_RECORD: u64 = 24;
/// At least this many must have been used before another checkpoint is worthwhile.
const NODES_WORTHWHILE: u64 = 8;

impl Group {
    /// Replay has reached record `next`.
    pub(super) fn replay_reached(&self, next: Seq) {
        if let Some(replay) = self.replay.lock().as_mut() {
            replay.next = next;
        }
    }

    /// Makes sure that the next record finds metadata blocks: by growth, or by a checkpoint.
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
        // A checkpoint frees the nodes that were replaced since the last one. After a few blocks that is not worth it.
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
            // There may be enough nevertheless.
            Err(Error::NoSpace { .. }) => Ok(()),
            outcome => outcome,
        }
    }
}
