//! Tasks one after the other, in virtual time.

use crate::service::platform::Executor;
use parking_lot::Mutex;
use rowen_engine::runtime::{Runtime, Task};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A task, and whether it is queued.
struct Cell {
    task: Mutex<Option<Task>>,
    is_queued: AtomicBool,
    queue: Arc<Mutex<VecDeque<Arc<Cell>>>>,
}

impl Wake for Cell {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.queue.clone().lock().push_back(self);
        }
    }
}

/// Sleeping tasks, by the virtual microsecond at which they go on.
#[derive(Default)]
struct Clock {
    now: u64,
    order: u64,
    sleepers: BTreeMap<(u64, u64), Option<Waker>>,
}

/// Runs tasks one after the other. The clock moves when nothing else can.
#[derive(Default)]
pub struct OneByOne {
    queue: Arc<Mutex<VecDeque<Arc<Cell>>>>,
    clock: Arc<Mutex<Clock>>,
    turn: Mutex<()>,
    /// All tasks that have not ended, and some that have.
    tasks: Mutex<Vec<Weak<Cell>>>,
}

struct Sleep {
    key: (u64, u64),
    clock: Arc<Mutex<Clock>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.clock.lock().sleepers.get_mut(&self.key) {
            None => Poll::Ready(()),
            Some(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&self.key);
    }
}

impl OneByOne {
    /// Lets what runs in the background go on for this long.
    pub fn pass(&self, time: Duration) {
        let _turn = self.turn.lock();
        let until = self.clock.lock().now + time.as_micros() as u64;
        while self.step(until) {}
        self.clock.lock().now = until;
    }

    /// Drops all tasks. A task that waits has what it waits for, which has the task: nothing else would end such a circle.
    pub fn end(&self) {
        let cells: Vec<Arc<Cell>> = self.tasks.lock().drain(..).filter_map(|cell| cell.upgrade()).collect();
        let tasks: Vec<Task> = cells.iter().filter_map(|cell| cell.task.lock().take()).collect();
        let sleepers = std::mem::take(&mut self.clock.lock().sleepers);
        drop((tasks, sleepers));
        // Tasks that were dropped have woken others.
        let woken = std::mem::take(&mut *self.queue.lock());
        drop((woken, cells));
    }

    fn queued(&self, task: Task) -> Arc<Cell> {
        let cell = Arc::new(Cell {
            task: Mutex::new(Some(task)),
            is_queued: AtomicBool::new(false),
            queue: self.queue.clone(),
        });
        let mut tasks = self.tasks.lock();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| task.strong_count() > 0);
        }
        tasks.push(Arc::downgrade(&cell));
        drop(tasks);
        cell.clone().wake();
        cell
    }

    /// Runs one task. False: no task can run before the clock shows `until`.
    fn step(&self, until: u64) -> bool {
        let next = self.queue.lock().pop_front();
        if let Some(cell) = next {
            cell.is_queued.store(false, Ordering::SeqCst);
            let task = cell.task.lock().take();
            if let Some(mut task) = task
                && task.as_mut().poll(&mut Context::from_waker(&Waker::from(cell.clone()))).is_pending()
            {
                *cell.task.lock() = Some(task);
            }
            return true;
        }
        let woken = {
            let mut clock = self.clock.lock();
            let Some(first) = clock.sleepers.first_entry().filter(|first| first.key().0 <= until) else { return false };
            let (key, waker) = first.remove_entry();
            clock.now = clock.now.max(key.0);
            waker
        };
        if let Some(waker) = woken {
            waker.wake();
        }
        true
    }
}

impl Runtime for OneByOne {
    fn spawn(&self, _name: &'static str, task: Task) {
        self.queued(task);
    }

    fn sleep(&self, pause: Duration) -> Task {
        let mut clock = self.clock.lock();
        clock.order += 1;
        let key = (clock.now + pause.as_micros() as u64, clock.order);
        clock.sleepers.insert(key, None);
        drop(clock);
        Box::pin(Sleep { key, clock: self.clock.clone() })
    }
}

impl Executor for OneByOne {
    fn complete_polling(&self, work: Task, poll: &mut dyn FnMut()) {
        let _turn = self.turn.lock();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        self.queued(Box::pin(async move {
            work.await;
            done.store(true, Ordering::SeqCst);
        }));
        while !is_done.load(Ordering::SeqCst) {
            assert!(self.step(u64::MAX), "the engine waits for what will not come");
            poll();
        }
    }
}
