//! Handing volumes to workers, one after the other: a volume's requests are read on one worker.
//!
//! Each worker runs a task that takes what is handed to it and starts it there. This way nobody but its owner keeps the
//! pool alive.

use crate::reactor::Pool;
use parking_lot::Mutex;
use rowen_engine::runtime::{Runtime, Task};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    closed: bool,
    waker: Option<Waker>,
}

/// Starts tasks on the pool's workers in turn. The workers' ends go when this is dropped.
pub struct Dispatch {
    queues: Vec<Arc<Mutex<Queue>>>,
    next: AtomicUsize,
}

impl Dispatch {
    pub fn new(pool: &Pool) -> Dispatch {
        let queues: Vec<_> = (0..pool.workers()).map(|_| Arc::new(Mutex::new(Queue::default()))).collect();
        for (worker, queue) in queues.iter().enumerate() {
            pool.spawn_on(worker, Box::pin(take_all(queue.clone(), pool.runtime())));
        }
        Dispatch { queues, next: AtomicUsize::new(0) }
    }

    /// Starts `task` on the next worker.
    pub fn start(&self, task: Task) {
        let worker = self.next.fetch_add(1, Ordering::Relaxed) % self.queues.len();
        let mut queue = self.queues[worker].lock();
        queue.tasks.push_back(task);
        wake(queue.waker.take());
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        for queue in &self.queues {
            let mut queue = queue.lock();
            queue.closed = true;
            wake(queue.waker.take());
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

async fn take_all(queue: Arc<Mutex<Queue>>, runtime: Arc<dyn Runtime>) {
    let next = || {
        poll_fn(|cx| {
            let mut queue = queue.lock();
            match queue.tasks.pop_front() {
                Some(task) => Poll::Ready(Some(task)),
                None if queue.closed => Poll::Ready(None),
                None => {
                    queue.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    };
    while let Some(task) = next().await {
        // From a worker, onto that worker.
        runtime.spawn("export", task);
    }
}
