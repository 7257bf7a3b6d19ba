//! What is done about a frame that could not be written.
//!
//! No other frame is begun. When none is under way any more, the frames that failed are written once more, block by block: that
//! tells a passing fault from a bad place. A superblock is written to tell a bad place from a disk that takes nothing any more. Bad
//! places go to a superblock, and when that is durable, the first frame that lies on one
//! and all behind it are written anew, in their order, around them.
//!
//! Why a reader finds them (J7). He knows the bad places, for the superblock was durable first. Frames that replay needs lie on none
//! of these: only where the ring is free is anything written. Frames stay as they were, empty ones too: the same records, the same
//! length, the same order. More bad places only move them ahead. So whatever an attempt has left between the end of the frame before
//! and the place where a frame is now had no room there beside the bad places, and is no frame to the reader. A checkpoint refers to no
//! frame behind one that is still on its way ([`Journal::capture`]), for that one may have to move, and those behind it with it; and
//! from the place where one was to be, the same search leads to where it is.

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

    /// Writes the frames that failed once more, where they are. The bad places of the ring as they are known by then.
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

    /// Whether the superblock has room for these bad places, and the ring for frames beside them.
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
        // A disk that takes nothing has no bad places: it has failed.
        if !self.planted("failed_disk_is_bad_block") {
            owner.clone().probe_disks().await?;
        }
        owner.record_bad_runs(bad.clone()).await
    }

    /// Takes back the first frame that is not on the disk, and all behind it. They are as they were, but for where they go.
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
