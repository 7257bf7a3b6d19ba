//! One worker thread: its run queue, its deadlines and its driver, and the loop that turns them.
//!
//! A task runs only on the worker on which it was spawned. Tasks run in the order in which they became ready. No
//! foreign code (wakers, completions, destructors) runs while the driver is borrowed.

use super::file::Forget;
use super::io::IoRequest;
use super::latency::SleepRate;
use super::mailbox::{Mailbox, Message};
use super::poller::Poller;
use super::ready::PollCell;
use super::reply::{Reply, ReplyCell};
use super::ring::{Completions, Ring, Wait};
use super::softirq::Softirqs;
use super::task::TaskCell;
use super::time::{TimerCell, Timers};
use crate::planted;
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Instant;

enum Driver {
    Ring(Box<Ring>),
    Poll(Poller),
}

/// What belongs to the worker's thread alone.
struct Local {
    mailbox: Arc<Mailbox>,
    ready: RefCell<VecDeque<Arc<TaskCell>>>,
    /// Tasks that have run and are not finished.
    unfinished: RefCell<Slab<Weak<TaskCell>>>,
    timers: RefCell<Timers>,
    driver: RefCell<Driver>,
}

thread_local! {
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// The worker that runs on this thread, if one does.
fn local() -> Option<Rc<Local>> {
    LOCAL.try_with(|local| local.borrow().clone()).ok().flatten()
}

/// This thread's worker number in its pool.
pub(crate) fn current() -> Option<Arc<Mailbox>> {
    local().map(|local| local.mailbox.clone())
}

pub(crate) fn is_worker() -> bool {
    local().is_some()
}

pub(crate) fn is_current(mailbox: &Arc<Mailbox>) -> bool {
    local().is_some_and(|local| Arc::ptr_eq(&local.mailbox, mailbox))
}

/// Queues a task if this thread is its worker, else gives it back.
pub(crate) fn enqueue_here(cell: Arc<TaskCell>) -> Result<(), Arc<TaskCell>> {
    LOCAL
        .try_with(|slot| match &*slot.borrow() {
            Some(local) if Arc::ptr_eq(&local.mailbox, cell.home()) => {
                local.ready.borrow_mut().push_back(cell.clone());
                true
            }
            _ => false,
        })
        .ok()
        .filter(|queued| *queued)
        .map(|_| ())
        .ok_or(cell)
}

/// Starts a request on this thread's ring. Without one it is given back.
pub(crate) fn start_here(request: IoRequest, pool: &[Arc<Mailbox>]) -> Result<(), IoRequest> {
    let Some(local) = local() else { return Err(request) };
    if !pool.get(local.mailbox.index).is_some_and(|mine| Arc::ptr_eq(mine, &local.mailbox)) {
        return Err(request);
    }
    match &mut *local.driver.borrow_mut() {
        Driver::Ring(ring) => {
            ring.start(request);
            Ok(())
        }
        Driver::Poll(_) => Err(request),
    }
}

/// Sends a reply with this thread's ring. Without one it is given back.
pub(crate) fn reply_here(reply: Reply, cell: &Arc<ReplyCell>) -> Result<(), Reply> {
    let Some(local) = local() else { return Err(reply) };
    match &mut *local.driver.borrow_mut() {
        Driver::Ring(ring) => {
            ring.reply(reply, cell.clone());
            Ok(())
        }
        Driver::Poll(_) => Err(reply),
    }
}

/// False: this thread is no worker.
pub(crate) fn add_timer(deadline: Instant, cell: &Arc<TimerCell>) -> bool {
    match local() {
        Some(local) => {
            local.timers.borrow_mut().add(deadline, cell.clone());
            true
        }
        None => false,
    }
}

pub(crate) fn watch(fd: RawFd, cell: &Arc<PollCell>) -> Option<(Arc<Mailbox>, usize)> {
    let local = local()?;
    let key = match &mut *local.driver.borrow_mut() {
        Driver::Ring(ring) => ring.watch(fd, cell.clone()),
        Driver::Poll(poller) => poller.watch(fd, cell.clone()),
    };
    Some((local.mailbox.clone(), key))
}

/// False: another worker keeps this watch.
pub(crate) fn cancel_watch(home: &Arc<Mailbox>, key: usize, cell: &Arc<PollCell>) -> bool {
    match local() {
        Some(local) if Arc::ptr_eq(&local.mailbox, home) => {
            local.cancel_watch(key, cell);
            true
        }
        _ => false,
    }
}

/// Empties a slot of this thread's ring; given back when the driver is in use further up the stack.
pub(crate) fn forget(forget: Forget) -> Result<(), Forget> {
    let Some(local) = local() else { return Err(forget) };
    let Ok(mut driver) = local.driver.try_borrow_mut() else { return Err(forget) };
    if let Driver::Ring(ring) = &mut *driver {
        ring.forget(&forget);
    }
    Ok(())
}

impl Local {
    fn cancel_watch(&self, key: usize, cell: &Arc<PollCell>) {
        match &mut *self.driver.borrow_mut() {
            Driver::Ring(ring) => ring.cancel_watch(key, cell),
            Driver::Poll(poller) => poller.cancel_watch(key, cell),
        }
    }

    fn handle(&self, message: Message) -> bool {
        match message {
            Message::Run(cell) => self.ready.borrow_mut().push_back(cell),
            Message::Request(request) => match &mut *self.driver.borrow_mut() {
                Driver::Ring(ring) => ring.start(request),
                // Cannot be: without rings, disks use helper threads. Dropped, it fails.
                Driver::Poll(_) => drop(request),
            },
            Message::Timer(deadline, cell) => self.timers.borrow_mut().add(deadline, cell),
            Message::CancelPoll(key, cell) => self.cancel_watch(key, &cell),
            Message::Forget(forget) => {
                if let Driver::Ring(ring) = &mut *self.driver.borrow_mut() {
                    ring.forget(&forget);
                }
            }
            Message::Stop => return true,
        }
        false
    }

    fn fire_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(cell) => cell.fire(),
                None => return,
            }
        }
    }

    /// Whether requests are with the kernel.
    fn busy(&self) -> bool {
        match &*self.driver.borrow() {
            Driver::Ring(ring) => ring.busy(),
            Driver::Poll(_) => false,
        }
    }

    fn turn(&self, wait: Wait, completions: &mut Completions) {
        match &mut *self.driver.borrow_mut() {
            Driver::Ring(ring) => ring.turn(wait, completions),
            Driver::Poll(poller) => poller.turn(wait, completions),
        }
    }

    fn run(&self, mut sleep_rate: SleepRate) {
        let mut messages = Vec::new();
        let mut batch = VecDeque::new();
        let mut completions = Completions::default();
        let softirqs = Softirqs::new();
        let mut stopping = false;
        self.mailbox.pulse.begin();
        loop {
            if planted::is("worker_stops") || planted::is("watchdog_sleeps") {
                planted::reached()("worker");
            }
            self.mailbox.take(&mut messages);
            for message in messages.drain(..) {
                stopping |= self.handle(message);
            }
            // What becomes ready meanwhile waits for the next batch, so that disks and other threads get their turn.
            std::mem::swap(&mut *self.ready.borrow_mut(), &mut batch);
            for task in batch.drain(..) {
                task.run(&self.unfinished);
            }
            softirqs.run();
            self.fire_timers();
            let idle = self.ready.borrow().is_empty();
            if idle && stopping && !self.busy() {
                return;
            }
            let wait = if idle && self.mailbox.fall_asleep() {
                Wait::Until(self.timers.borrow().next().into_iter().chain(sleep_rate.limit()).min())
            } else {
                Wait::No
            };
            self.mailbox.pulse.turns(matches!(wait, Wait::Until(_)));
            self.turn(wait, &mut completions);
            if let Wait::Until(_) = wait {
                self.mailbox.pulse.has_waited();
                sleep_rate.slept();
            }
            if idle {
                self.mailbox.awake();
            }
            for (request, error) in completions.finished.drain(..) {
                request.finish(error);
            }
            for (cell, reply, result) in completions.replied.drain(..) {
                cell.sent(reply, result);
            }
            for (cell, answer) in completions.polled.drain(..) {
                cell.answer(answer);
            }
        }
    }
}

/// A worker that panicked lost a task that others wait for: the process must not go on as if nothing had happened.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            crate::journal::warn(format_args!(
                "rowen: a background task failed (see above); stopping at once, the journal has everything acknowledged"
            ));
            std::process::abort();
        }
    }
}

/// The body of a worker thread. `ring` was made on this thread; without one the worker waits with `poll`.
pub(crate) fn run(mailbox: Arc<Mailbox>, ring: Option<Ring>, sleep_rate: SleepRate) {
    let _guard = AbortOnPanic;
    let driver = match ring {
        Some(ring) => Driver::Ring(Box::new(ring)),
        None => Driver::Poll(Poller::new(mailbox.clone())),
    };
    let local = Rc::new(Local {
        mailbox,
        ready: RefCell::default(),
        unfinished: RefCell::default(),
        timers: RefCell::default(),
        driver: RefCell::new(driver),
    });
    LOCAL.with(|slot| *slot.borrow_mut() = Some(local.clone()));
    local.run(sleep_rate);
    // Tasks that still wait are dropped with what would have woken them. Their destructors find no worker here.
    LOCAL.with(|slot| slot.borrow_mut().take());
    let refused = local.mailbox.close();
    drop(refused);
    let unfinished: Vec<_> = local.unfinished.borrow_mut().drain().collect();
    for task in unfinished.iter().filter_map(Weak::upgrade) {
        task.abandon();
    }
}
