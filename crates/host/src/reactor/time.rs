//! Pauses: a heap of deadlines per worker, which bound how long the worker waits for its ring.

use super::mailbox::{Mailbox, Message};
use super::worker;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[derive(Default)]
struct TimerState {
    fired: bool,
    waker: Option<Waker>,
}

/// Shared by a sleeping future and the heap that wakes it.
#[derive(Default)]
pub(crate) struct TimerCell(Mutex<TimerState>);

impl TimerCell {
    pub fn fire(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.fired = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Entry {
    deadline: Instant,
    order: u64,
    cell: Arc<TimerCell>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline, self.order).cmp(&(other.deadline, other.order))
    }
}

/// A worker's deadlines, earliest first; equal ones in the order in which they were set.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl Timers {
    pub fn add(&mut self, deadline: Instant, cell: Arc<TimerCell>) {
        self.order += 1;
        self.heap.push(Reverse(Entry { deadline, order: self.order, cell }));
    }

    /// How long the worker may wait. None: for ever.
    pub fn next(&self) -> Option<Duration> {
        let Reverse(first) = self.heap.peek()?;
        Some(first.deadline.saturating_duration_since(Instant::now()))
    }

    /// Takes one deadline that has passed.
    pub fn pop_due(&mut self, now: Instant) -> Option<Arc<TimerCell>> {
        if self.heap.peek().is_some_and(|Reverse(first)| first.deadline <= now) {
            return self.heap.pop().map(|Reverse(entry)| entry.cell);
        }
        None
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// Completes at a deadline. It starts to count when it is made, not when it is first polled.
pub(crate) struct Sleep {
    deadline: Instant,
    /// Who keeps the time when the sleeper is no worker.
    fallback: Arc<Mailbox>,
    cell: Option<Arc<TimerCell>>,
}

impl Sleep {
    pub fn new(pause: Duration, fallback: Arc<Mailbox>) -> Sleep {
        // A pause beyond the clock's range is as good as a year: it is never meant to end.
        let now = Instant::now();
        let deadline = now.checked_add(pause).unwrap_or(now + Duration::from_secs(365 * 86400));
        Sleep { deadline, fallback, cell: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(cell) = &self.cell {
            let mut state = cell.0.lock();
            if state.fired {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let cell = Arc::new(TimerCell(Mutex::new(TimerState { fired: false, waker: Some(cx.waker().clone()) })));
        if !worker::add_timer(self.deadline, &cell) {
            let posted = self.fallback.post(Message::Timer(self.deadline, cell.clone()));
            if posted.is_err() {
                // The pool has stopped: nothing will ever wake this future, so it must not wait.
                return Poll::Ready(());
            }
        }
        self.cell = Some(cell);
        Poll::Pending
    }
}
