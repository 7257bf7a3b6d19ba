//! An event: tasks wait until it is notified.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

/// An event. Each notification raises its version.
#[derive(Default)]
pub struct Event {
    wakers: Mutex<Vec<Waker>>,
    turn: AtomicU64,
}

impl Event {
    pub fn notify(&self) {
        self.turn.fetch_add(1, Ordering::AcqRel);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The current turn: pass it to [`changed`](Self::changed) to wait for a notification after this moment.
    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    pub async fn changed(&self, since: u64) {
        poll_fn(|cx| {
            let mut wakers = self.wakers.lock();
            if self.turn() != since {
                return Poll::Ready(());
            }
            wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
