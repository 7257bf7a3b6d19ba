//! The lock that lets one checkpoint run at a time.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Lets one checkpoint run at a time. Callers that wait together share the next one.
#[derive(Default)]
pub(super) struct CheckpointLock {
    state: Mutex<LockState>,
}

#[derive(Default)]
struct LockState {
    started: u64,
    finished: u64,
    running: bool,
    wakers: Vec<Waker>,
}

impl CheckpointLock {
    /// True: the caller must take the checkpoint, and then call [`leave`](Self::leave). False: another caller took one,
    /// entirely after this call began.
    pub async fn enter(&self, ticket: u64) -> bool {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.finished >= ticket {
                return Poll::Ready(false);
            }
            if state.running {
                state.wakers.push(cx.waker().clone());
                return Poll::Pending;
            }
            state.running = true;
            state.started += 1;
            Poll::Ready(true)
        })
        .await
    }

    /// What to pass to [`enter`](Self::enter).
    pub fn ticket(&self) -> u64 {
        self.state.lock().started + 1
    }

    pub fn leave(&self, done: bool) {
        let mut state = self.state.lock();
        state.running = false;
        if done {
            state.finished = state.started;
        }
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

/// Keeps checkpoints out while it exists.
pub(super) struct CheckpointHold<'a>(pub &'a CheckpointLock);

impl Drop for CheckpointHold<'_> {
    fn drop(&mut self) {
        self.0.leave(false);
    }
}
