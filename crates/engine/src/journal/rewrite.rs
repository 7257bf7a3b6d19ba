//! Repair after a frame that could not be written.
//!
//! No other frame begins. When no frame is in flight any more, the failed frames are written once more, block by block.
//! This separates a passing fault from a bad block. Then a superblock is written. This separates a bad block from a
//! disk that takes no writes at all. The superblock records the bad blocks. When it is durable, the first frame on a
//! bad block and all frames behind it are written again, in their order, around the bad blocks.
//!
//! Why a reader finds the frames (J7):
//!
//! * The reader knows the bad blocks, because the superblock was durable first. No frame that replay needs lies on
//!   them: frames are written only where the ring is free.
//! * Frames do not change, not even empty ones. They keep their records, their length and their order. More bad blocks
//!   only move them ahead.
//! * An attempt can leave remains between the end of the frame before and the present place of a frame. A frame had no
//!   room there, because of the bad blocks. So the reader does not take the remains for a frame.
//! * A checkpoint refers to no frame behind one that is still in flight ([`Journal::capture`]). That frame may have to
//!   move, and those behind it with it. From the place where it was to be, the same search leads to its new place.

use super::bad_runs::{BadRuns, MAX_BAD_RUNS};
use super::{Batch, FRAME_TARGET, Journal, State, failure};
use crate::disk::{DiskError, PageBuf};
use crate::error::{Error, Result};
use crate::format::journal::frame_bytes;
use crate::units::BLOCK_SIZE;
use std::sync::Arc;

impl Journal {
    pub(super) async fn rewrite_failed(self: Arc<Self>) {
        match self.try_rewrite().await {
            Ok(()) => {}
            Err(Error::Closed) => self.stop(Error::Closed),
            Err(error) => self.stop_after(error, "a record could not be written"),
        }
    }

    async fn try_rewrite(self: &Arc<Self>) -> Result<()> {
        let bad = self.rewrite_in_place().await?;
        let moved = {
            let mut state = self.state.lock();
            self.settle(&mut state);
            bad != state.bad
        };
        if moved {
            if !self.planted("bad_ring_not_recorded") {
                self.publish_bad_runs(&bad).await?;
            }
            let mut state = self.state.lock();
            state.bad = bad;
            self.requeue(&mut state);
        }
        let mut state = self.state.lock();
        if let Some(error) = failure(&state) {
            return Err(error);
        }
        state.write_error = None;
        self.start_frames(&mut state);
        self.wake_waiting(&mut state);
        Ok(())
    }

    /// Writes the failed frames once more, at their places. Returns the bad blocks of the ring that are known then.
    async fn rewrite_in_place(&self) -> Result<BadRuns> {
        let (mut bad, failed) = {
            let state = self.state.lock();
            let failed = state.spans.iter().skip(state.written_prefix).filter(|span| !span.written);
            (state.bad.clone(), failed.map(|span| (span.serial, span.position, self.encode(span))).collect::<Vec<_>>())
        };
        for (serial, position, frame) in failed {
            let mut is_whole = true;
            for (at, block) in
                (position..).step_by(BLOCK_SIZE as usize).zip(frame.as_slice().chunks(BLOCK_SIZE as usize))
            {
                match self.start_write(at, PageBuf::from_slice(block)).await {
                    Ok(()) => {}
                    Err(Error::Disk(error)) => {
                        bad.add(at / BLOCK_SIZE);
                        self.check_room(&bad, error)?;
                        is_whole = false;
                    }
                    Err(error) => return Err(error),
                }
            }
            let mut state = self.state.lock();
            let span = state.spans.iter_mut().find(|span| span.serial == serial);
            span.expect("nobody else takes it away").written = is_whole;
        }
        Ok(bad)
    }

    /// An error if the superblock has no room for these bad blocks, or the ring has no room for frames around them.
    fn check_room(&self, bad: &BadRuns, error: DiskError) -> Result<()> {
        let longest = frame_bytes(FRAME_TARGET + self.longest_record()) as u64;
        let is_known_to_all =
            bad.runs().len() <= MAX_BAD_RUNS && bad.runs().iter().all(|run| u32::try_from(run.end).is_ok());
        match is_known_to_all && bad.leaves_room(longest, self.ring.bytes) {
            true => Ok(()),
            false => Err(error.into()),
        }
    }

    async fn publish_bad_runs(&self, bad: &BadRuns) -> Result<()> {
        let owner = self.owner().ok_or(Error::Closed)?;
        // A disk that takes no writes at all has no bad blocks: it has failed.
        if !self.planted("failed_disk_is_bad_block") {
            owner.clone().probe_disks().await?;
        }
        owner.record_bad_runs(bad.clone()).await
    }

    /// Puts the first frame that is not on the disk, and all frames behind it, back into the queue. Only their places
    /// change.
    fn requeue(&self, state: &mut State) {
        if self.planted("bad_ring_later_frames_stay") {
            let span = state.spans.remove(state.written_prefix).expect("it is not on the disk");
            state.batches.push_front(Batch { is_sealed: true, ..span.batch });
            return;
        }
        while state.spans.len() > state.written_prefix {
            let span = state.spans.pop_back().expect("there are more");
            state.position = span.from;
            state.used -= span.bytes;
            state.batches.push_front(Batch { is_sealed: true, ..span.batch });
        }
        self.update_pressure(state);
    }
}
