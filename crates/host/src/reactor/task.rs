//! One spawned task: its future, and whether it is queued, so that a task is in one queue at most.

use super::mailbox::{Mailbox, Message};
use super::worker;
use parking_lot::Mutex;
use rowen_engine::runtime::Task;
use slab::Slab;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// Woken while it ran: it is queued again when it returns.
const WOKEN: u8 = 3;
const DONE: u8 = 4;

/// A task and the worker that runs it, always the same one.
pub(crate) struct TaskCell {
    state: AtomicU8,
    future: Mutex<Option<Task>>,
    home: Arc<Mailbox>,
    /// Where the worker lists it, from its first run to its end.
    listed: AtomicUsize,
}

const UNLISTED: usize = usize::MAX;

impl TaskCell {
    /// A task in the state `queued`: the caller puts it into a queue of `home`.
    pub fn queued(future: Task, home: Arc<Mailbox>) -> Arc<TaskCell> {
        let listed = AtomicUsize::new(UNLISTED);
        Arc::new(TaskCell { state: AtomicU8::new(QUEUED), future: Mutex::new(Some(future)), home, listed })
    }

    /// Drops the future unfinished. A waiting task often holds, through what it waits for, a reference to itself:
    /// a worker that ends has to break that ring.
    pub fn abandon(&self) {
        let future = self.future.lock().take();
        drop(future);
    }

    /// Polls the future once. Only the home worker calls this, and only for a task from its queue. `list` has the
    /// worker's unfinished tasks.
    pub fn run(self: Arc<Self>, list: &RefCell<Slab<Weak<TaskCell>>>) {
        if self.listed.load(Ordering::Relaxed) == UNLISTED {
            self.listed.store(list.borrow_mut().insert(Arc::downgrade(&self)), Ordering::Relaxed);
        }
        self.state.store(RUNNING, Ordering::Release);
        let waker = Waker::from(self.clone());
        let mut slot = self.future.lock();
        let Some(future) = slot.as_mut() else { return };
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                self.state.store(DONE, Ordering::Release);
                let finished = slot.take();
                // Its destructor may wake or spawn: not under the lock.
                drop(slot);
                drop(finished);
                list.borrow_mut().remove(self.listed.load(Ordering::Relaxed));
            }
            Poll::Pending => {
                drop(slot);
                let idle = self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
                if idle.is_err() {
                    self.state.store(QUEUED, Ordering::Release);
                    schedule(self);
                }
            }
        }
    }
}

/// Puts a task in the state `queued` into its worker's queue: without a lock or a system call on that worker.
pub(crate) fn schedule(cell: Arc<TaskCell>) {
    if let Err(cell) = worker::enqueue_here(cell) {
        let home = cell.home.clone();
        // A stopped worker drops its tasks.
        drop(home.post(Message::Run(cell)));
    }
}

impl TaskCell {
    pub fn home(&self) -> &Arc<Mailbox> {
        &self.home
    }
}

impl Wake for TaskCell {
    fn wake(self: Arc<Self>) {
        let mut seen = self.state.load(Ordering::Acquire);
        loop {
            let next = match seen {
                IDLE => QUEUED,
                RUNNING => WOKEN,
                _ => return,
            };
            match self.state.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(IDLE) => return schedule(self),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A task that is queued already needs no reference: the common case of a second wake.
        if matches!(self.state.load(Ordering::Acquire), IDLE | RUNNING) {
            self.clone().wake();
        }
    }
}
