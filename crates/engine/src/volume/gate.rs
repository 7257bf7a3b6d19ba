//! The gate of a volume: a closed gate keeps new requests out, and closing it waits for those in flight.

use super::Volume;
use super::state::Mode;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

impl Volume {
    /// The number of requests begun so far, for [`wait_for_readers`](Self::wait_for_readers).
    pub(crate) fn next_request(&self) -> u64 {
        self.state.lock().next_op
    }

    /// Waits until no read that was begun before request `limit` is in flight.
    pub(crate) async fn wait_for_readers(&self, limit: u64) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.in_flight.iter().any(|op| op.mode == Mode::Read && op.id < limit) {
                return Self::wait_for_wake(&mut state, cx);
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until no request that was begun before request `limit` is in flight.
    pub(crate) async fn wait_for_requests(&self, limit: u64) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.in_flight.iter().any(|op| op.id < limit) {
                return Self::wait_for_wake(&mut state, cx);
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Discards a copy in progress (V4): the blocks that it read may have other contents by now.
    pub(crate) fn forget_copies(&self) {
        self.state.lock().touch(0, u64::MAX);
    }

    /// Closes the gate to writes, or to reads, too, and waits until none of them is in flight. [`Gate::drop`] opens it.
    pub(crate) async fn close_gate(self: &Arc<Self>, readers_too: bool) -> Gate {
        {
            let mut state = self.state.lock();
            state.gates += 1;
            state.shut += u32::from(readers_too);
            state.touch(0, u64::MAX);
        }
        let gate = Gate { volume: self.clone(), readers_too };
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.in_flight.iter().any(|op| readers_too || op.mode != Mode::Read) {
                return Self::wait_for_wake(&mut state, cx);
            }
            Poll::Ready(())
        })
        .await;
        gate
    }
}

/// A closed gate: the volume's writes, or all requests, wait until it is dropped.
pub(crate) struct Gate {
    volume: Arc<Volume>,
    readers_too: bool,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut state = self.volume.state.lock();
        state.gates -= 1;
        state.shut -= u32::from(self.readers_too);
        state.wake();
    }
}
