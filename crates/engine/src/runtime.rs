//! What the engine needs of whatever runs it: tasks and pauses. Under test both are seeded and virtual.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Runtime: Send + Sync {
    /// Runs `task` in the background. `name` is for traces.
    fn spawn(&self, name: &'static str, task: Task);
    /// Completes after about `pause`. The engine never depends on its length for correctness.
    fn sleep(&self, pause: Duration) -> Task;
}
