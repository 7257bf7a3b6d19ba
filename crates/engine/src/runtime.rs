//! What the engine needs from its runtime: tasks and pauses. In tests both are seeded and virtual.

use parking_lot::Mutex;
use std::future::{Future, poll_fn, ready};
use std::mem::take;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Runtime: Send + Sync {
    /// Runs `task` in the background. `name` is for traces.
    fn spawn(&self, name: &'static str, task: Task);
    /// Runs a task that ends a request, so somebody waits for it.
    fn answer(&self, name: &'static str, task: Task) {
        self.spawn(name, task);
    }
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

/// Carries futures out together. Completes with their outcomes, in their order, when all have ended.
pub async fn all_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(|cx| {
        for (future, outcome) in &mut waiting {
            if let Some(Poll::Ready(done)) = future.as_mut().map(|future| future.as_mut().poll(cx)) {
                (*future, *outcome) = (None, Some(done));
            }
        }
        match waiting.iter().any(|(future, _)| future.is_some()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, outcome)| outcome).collect()
}

/// Runs tasks that end requests, and no others, within [`run`](Self::run). For groups that are only looked at.
#[derive(Default)]
pub struct AnswersOnly {
    tasks: Mutex<Vec<Task>>,
}

impl Runtime for AnswersOnly {
    fn spawn(&self, _name: &'static str, task: Task) {
        drop(task);
    }

    fn answer(&self, _name: &'static str, task: Task) {
        self.tasks.lock().push(task);
    }

    fn sleep(&self, _pause: Duration) -> Task {
        Box::pin(ready(()))
    }
}

impl AnswersOnly {
    /// Runs this, and the tasks that it begins, until it has ended.
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
                    return Poll::Ready(outcome);
                }
                if !self.poll_tasks(cx) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Polls all tasks. True: some have ended, or were begun meanwhile.
    fn poll_tasks(&self, cx: &mut Context<'_>) -> bool {
        // A task may begin others.
        let mut tasks = take(&mut *self.tasks.lock());
        let before = tasks.len();
        tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
        let mut new = self.tasks.lock();
        let is_changed = tasks.len() < before || !new.is_empty();
        new.append(&mut tasks);
        is_changed
    }
}
