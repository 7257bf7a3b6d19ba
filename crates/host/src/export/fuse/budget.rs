//! The memory that the requests of all volumes may use together. The process locks its memory and is exempt from the
//! out-of-memory killer, so this must have a bound.
//!
//! * FB1 The buffers of all requests take at most the budget. A connection without a part of it reads no request:
//!   requests then wait in the kernel, and take no memory here.
//! * FB2 Whatever some volumes use, others find a part. A volume gets at most as much again as is free: one busy volume
//!   uses at most half, two use two thirds. The volumes of one thin pool, and those of no pool, are each a *class*. A
//!   class gets at most as much again as is free, too, and three times as much for volumes that use nothing yet. If a
//!   pool is full, its writes may wait for as long as they like: other classes have memory, and so have reads and
//!   discards of its volumes whose writes do not wait.
//!
//! The rule is the dynamic threshold of shared-memory switches (Choudhury and Hahne, Dynamic queue length thresholds for
//! shared-memory packet switches, IEEE/ACM Transactions on Networking 6(2), 1998).

use crate::planted;
use parking_lot::Mutex;
use rowen_control::settings::MIN_REQUEST_MEMORY;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// The least budget in bytes: several requests of the largest size fit.
pub const MIN: usize = (MIN_REQUEST_MEMORY as usize) << 20;
/// The budget in bytes if nothing is set.
pub const DEFAULT: usize = 256 << 20;
/// The most bytes that one volume uses. More do not make it faster.
const MAX_OF_A_VOLUME: usize = 64 << 20;
/// How many times the free memory a class may use for the first request of a volume.
const FIRST: usize = 3;

#[derive(Default)]
struct State {
    limit: usize,
    used: usize,
    /// What each class uses; one that uses nothing is not here.
    classes: BTreeMap<String, usize>,
    /// Who waits for memory, by class and bytes, in their order.
    queues: BTreeMap<(String, usize), VecDeque<Arc<Asked>>>,
}

impl State {
    fn free(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// Whether a class may use this many bytes more (FB2).
    fn may_class_use(&self, class: &str, bytes: usize, is_first: bool) -> bool {
        let most = if is_first { FIRST * self.free() } else { self.free() };
        self.classes.get(class).copied().unwrap_or(0) + bytes <= most || planted::is("one_class")
    }

    /// Whether a volume may use this many bytes more (FB1, FB2).
    fn may_use(&self, share: &Share, bytes: usize) -> bool {
        let mine = share.used.load(Ordering::Relaxed);
        if planted::is("budget_of_each") {
            return mine + bytes <= MAX_OF_A_VOLUME;
        }
        mine + bytes <= self.free().min(MAX_OF_A_VOLUME) && self.may_class_use(&share.class, bytes, mine == 0)
    }

    fn give(&mut self, share: &Share, bytes: usize) {
        self.used += bytes;
        share.used.fetch_add(bytes, Ordering::Relaxed);
        match self.classes.get_mut(&share.class) {
            Some(used) => *used += bytes,
            None => drop(self.classes.insert(share.class.clone(), bytes)),
        }
        debug_assert!(self.used <= self.limit || planted::is("budget_of_each"), "FB1");
    }

    fn take(&mut self, share: &Arc<Share>, bytes: usize) -> Option<Permit> {
        self.may_use(share, bytes).then(|| {
            self.give(share, bytes);
            Permit { share: share.clone(), bytes }
        })
    }

    fn take_back(&mut self, share: &Share, bytes: usize) {
        self.used -= bytes;
        share.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(used) = self.classes.get_mut(&share.class) {
            *used -= bytes;
            if *used == 0 {
                self.classes.remove(&share.class);
            }
        }
    }

    /// Memory became free: gives it to those who wait. Returns whom to wake.
    fn serve(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        let mut queues = std::mem::take(&mut self.queues);
        queues.retain(|(class, bytes), queue| {
            // However many of a full pool wait, they delay nobody.
            if !self.may_class_use(class, *bytes, true) {
                return true;
            }
            queue.retain(|asked| {
                let mut outcome = asked.outcome.lock();
                let Outcome::Waits(waker) = &mut *outcome else { return false };
                if !self.may_use(&asked.share, asked.bytes) {
                    return true;
                }
                self.give(&asked.share, asked.bytes);
                woken.push(waker.clone());
                *outcome = Outcome::Given;
                false
            });
            !queue.is_empty()
        });
        self.queues = queues;
        woken
    }
}

/// The memory for requests of all volumes of a group.
pub struct Budget(Mutex<State>);

impl Default for Budget {
    fn default() -> Budget {
        Budget(Mutex::new(State { limit: DEFAULT, ..State::default() }))
    }
}

impl Budget {
    /// Changes the limit, in bytes. What is in use stays in use.
    pub fn set_limit(&self, bytes: usize) {
        let woken = {
            let mut state = self.0.lock();
            state.limit = bytes.max(MIN);
            state.serve()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Bytes in use, and the limit.
    pub fn used(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.used, state.limit)
    }

    /// A part for a volume of this class.
    pub fn share(self: &Arc<Self>, class: String) -> Arc<Share> {
        Arc::new(Share { budget: self.clone(), class, used: AtomicUsize::new(0) })
    }
}

/// What one volume uses of a budget.
pub struct Share {
    budget: Arc<Budget>,
    class: String,
    /// Changed under the budget's lock.
    used: AtomicUsize,
}

impl Share {
    /// The right to use this many bytes, if they are free now.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        self.budget.0.lock().take(self, bytes)
    }

    /// Waits for the right to use this many bytes.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Taking {
        Taking { share: self.clone(), bytes, asked: None }
    }

    fn give_back(&self, bytes: usize) {
        let woken = {
            let mut state = self.budget.0.lock();
            state.take_back(self, bytes);
            state.serve()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The right to use memory. It is given back when this is dropped.
pub struct Permit {
    share: Arc<Share>,
    bytes: usize,
}

impl Permit {
    /// Gives back all but this many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        self.share.give_back(rest);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.share.give_back(self.bytes);
    }
}

enum Outcome {
    Waits(Waker),
    Given,
}

struct Asked {
    share: Arc<Share>,
    bytes: usize,
    /// Locked after the budget.
    outcome: Mutex<Outcome>,
}

/// A request for memory.
pub struct Taking {
    share: Arc<Share>,
    bytes: usize,
    asked: Option<Arc<Asked>>,
}

impl Future for Taking {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let Some(asked) = self.asked.clone() else { return self.ask(cx) };
        if let Outcome::Waits(waker) = &mut *asked.outcome.lock() {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        self.asked = None;
        Poll::Ready(Permit { share: self.share.clone(), bytes: self.bytes })
    }
}

impl Taking {
    fn ask(&mut self, cx: &Context<'_>) -> Poll<Permit> {
        let Taking { share, bytes, .. } = self;
        let mut state = share.budget.0.lock();
        if let Some(permit) = state.take(share, *bytes) {
            return Poll::Ready(permit);
        }
        let asked = Arc::new(Asked {
            share: share.clone(),
            bytes: *bytes,
            outcome: Mutex::new(Outcome::Waits(cx.waker().clone())),
        });
        state.queues.entry((share.class.clone(), *bytes)).or_default().push_back(asked.clone());
        drop(state);
        self.asked = Some(asked);
        Poll::Pending
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let is_given = {
            let mut state = self.share.budget.0.lock();
            let key = (self.share.class.clone(), self.bytes);
            if let Some(queue) = state.queues.get_mut(&key) {
                queue.retain(|other| !Arc::ptr_eq(other, &asked));
                if queue.is_empty() {
                    state.queues.remove(&key);
                }
            }
            matches!(*asked.outcome.lock(), Outcome::Given)
        };
        if is_given {
            self.share.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
#[path = "budget_test.rs"]
mod tests;
