//! Adding and dropping of copies of the ring ([`copies`](super::copies)).

use super::{Journal, failure};
use crate::error::Result;
use crate::placement::Placement;
use crate::planted;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

impl Journal {
    /// Frames that begin from now on are written to the copy at this VG block, too. It holds zeros (JC3).
    pub fn add_copy(&self, start: u64, placement: Arc<Placement>) {
        let state = self.state.lock();
        self.copies.add(start, state.next_serial, placement);
    }

    /// Whether frames are written to the copy at this VG block.
    pub fn has_copy(&self, start: u64) -> bool {
        self.copies.has(start)
    }

    /// From now on no frame is written to the copy at this VG block. Earlier frames are in flight until
    /// [`wait_for_frames`](Self::wait_for_frames) returns for the returned number (JC4). Before this call, a superblock
    /// that does not call the copy whole must be durable.
    pub fn drop_copy(&self, start: u64) -> u64 {
        let state = self.state.lock();
        self.copies.drop_copy(start);
        state.next_serial
    }

    /// Waits for the frames before this one. The caller must not hold checkpoints: a frame that fails needs a
    /// superblock.
    pub async fn wait_for_frames(self: &Arc<Self>, next: u64) -> Result<()> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if let Some(error) = failure(&state) {
                return Poll::Ready(Err(error));
            }
            let is_under_way =
                state.spans.iter().skip(state.written_prefix).any(|span| span.serial < next && !span.written);
            if !is_under_way || planted::is("copy_not_waited_for") {
                return Poll::Ready(Ok(()));
            }
            state.watchers.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// From now on the copies are at these places, and hold zeros. Nothing is in flight, and this journal writes no
    /// more frames.
    pub fn replace_copies(&self, starts: &[u64]) {
        self.copies.replace(starts);
    }
}
