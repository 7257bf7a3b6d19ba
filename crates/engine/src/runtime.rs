//! What the engine needs from its runtime: tasks and pauses. In tests both are seeded and virtual.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Runtime: Send + Sync {
    /// Runs `task` in the background. `name` is for traces.
    fn spawn(&self, name: &'static str, task: Task);
    /// Completes after about `pause`. The engine never depends on its length for correctness.
    fn sleep(&self, pause: Duration) -> Task;
}

/// Lets other tasks run. Long background work calls it every few tens of microseconds, so that requests do not wait for
/// it.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
