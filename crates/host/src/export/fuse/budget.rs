//! The memory that the requests of all volumes may use together. The process locks its memory and is exempt from the
//! out-of-memory killer, so this must have a bound.
//!
//! * FB1 The buffers of all requests take at most the budget. A connection without a part of it reads no request:
//!   requests then wait in the kernel, and take no memory here.
//! * FB2 Whatever some volumes use, others find a part: a volume gets at most as much again as is free. So one busy
//!   volume uses at most half, two use two thirds. A volume whose writes have to wait for room gets an eighth of that:
//!   it may hold it for as long as they wait.
//!
//! The rule for parts is the dynamic threshold of shared-memory switches (Choudhury and Hahne, Dynamic queue length
//! thresholds for shared-memory packet switches, IEEE/ACM Transactions on Networking 6(2), 1998).

use crate::planted;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// The least budget in bytes: any request fits, also one of a volume that waits for room, if nothing else is in use.
pub const LEAST: usize = 16 << 20;
/// The budget in bytes if nothing is set.
pub const USUAL: usize = 256 << 20;
/// The most bytes that one volume uses. More do not make it faster.
const MOST_OF_A_VOLUME: usize = 64 << 20;
/// The part of the free memory that a volume may use while its writes wait for room: one of so many.
const WAITS_FOR_ROOM: usize = 8;

struct State {
    limit: usize,
    used: usize,
    /// Those who wait for memory, in their order. First those whose volumes have room.
    queues: [VecDeque<Arc<Asked>>; 2],
}

impl State {
    /// Whether a volume that uses `mine` may use so many bytes more (FB1, FB2).
    fn may_use(&self, mine: usize, bytes: usize, waits_for_room: bool) -> bool {
        if planted::is("budget_of_each") {
            return mine + bytes <= MOST_OF_A_VOLUME;
        }
        let free = self.limit.saturating_sub(self.used);
        let part = if waits_for_room && !planted::is("waits_with_all") { free / WAITS_FOR_ROOM } else { free };
        mine + bytes <= part.min(MOST_OF_A_VOLUME)
    }

    fn give(&mut self, share: &Share, bytes: usize) {
        self.used += bytes;
        share.used.fetch_add(bytes, Ordering::Relaxed);
        debug_assert!(self.used <= self.limit || planted::is("budget_of_each"), "FB1");
    }

    fn take(&mut self, share: &Arc<Share>, bytes: usize, waits_for_room: bool) -> Option<Permit> {
        let mine = share.used.load(Ordering::Relaxed);
        self.may_use(mine, bytes, waits_for_room).then(|| {
            self.give(share, bytes);
            Permit { share: share.clone(), bytes }
        })
    }

    /// Memory became free: gives it to those who wait.
    fn serve(&mut self, woken: &mut Vec<Waker>) {
        for queue in 0..self.queues.len() {
            let mut asked = std::mem::take(&mut self.queues[queue]);
            asked.retain(|asked| {
                let mut outcome = asked.outcome.lock();
                let Outcome::Waits(waker) = &mut *outcome else { return false };
                let mine = asked.share.used.load(Ordering::Relaxed);
                if !self.may_use(mine, asked.bytes, asked.waits_for_room) {
                    return true;
                }
                self.give(&asked.share, asked.bytes);
                woken.push(waker.clone());
                *outcome = Outcome::Given;
                false
            });
            self.queues[queue] = asked;
        }
    }
}

/// The memory for requests of all volumes of a group.
pub struct Budget(Mutex<State>);

impl Default for Budget {
    fn default() -> Budget {
        Budget(Mutex::new(State { limit: USUAL, used: 0, queues: Default::default() }))
    }
}

impl Budget {
    /// Changes the limit, in bytes. What is in use stays in use.
    pub fn set_limit(&self, bytes: usize) {
        let mut woken = Vec::new();
        {
            let mut state = self.0.lock();
            state.limit = bytes.max(LEAST);
            state.serve(&mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Bytes in use, and the limit.
    pub fn used(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.used, state.limit)
    }

    /// A volume's part.
    pub fn share(self: &Arc<Self>) -> Arc<Share> {
        Arc::new(Share { budget: self.clone(), used: AtomicUsize::new(0) })
    }
}

/// What one volume uses of a budget.
pub struct Share {
    budget: Arc<Budget>,
    /// Changed under the budget's lock.
    used: AtomicUsize,
}

impl Share {
    /// The right to use so many bytes, if they are free now.
    pub fn try_take(self: &Arc<Self>, bytes: usize, waits_for_room: bool) -> Option<Permit> {
        let mut state = self.budget.0.lock();
        state.take(self, bytes, waits_for_room)
    }

    /// Waits for the right to use so many bytes.
    pub fn take(self: &Arc<Self>, bytes: usize, waits_for_room: bool) -> Taking {
        Taking { share: self.clone(), bytes, waits_for_room, asked: None }
    }

    fn give_back(&self, bytes: usize) {
        let mut woken = Vec::new();
        {
            let mut state = self.budget.0.lock();
            state.used -= bytes;
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            state.serve(&mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The right to use memory. It is given back when this is dropped.
pub struct Permit {
    share: Arc<Share>,
    bytes: usize,
}

impl Permit {
    /// Gives back all but so many bytes.
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
    /// Nobody waits any more.
    Left,
}

struct Asked {
    share: Arc<Share>,
    bytes: usize,
    waits_for_room: bool,
    /// Locked after the budget.
    outcome: Mutex<Outcome>,
}

/// A request for memory.
pub struct Taking {
    share: Arc<Share>,
    bytes: usize,
    waits_for_room: bool,
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
        let Taking { share, bytes, waits_for_room, .. } = self;
        let mut state = share.budget.0.lock();
        if let Some(permit) = state.take(share, *bytes, *waits_for_room) {
            return Poll::Ready(permit);
        }
        let asked = Arc::new(Asked {
            share: share.clone(),
            bytes: *bytes,
            waits_for_room: *waits_for_room,
            outcome: Mutex::new(Outcome::Waits(cx.waker().clone())),
        });
        state.queues[usize::from(*waits_for_room)].push_back(asked.clone());
        drop(state);
        self.asked = Some(asked);
        Poll::Pending
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let outcome = std::mem::replace(&mut *asked.outcome.lock(), Outcome::Left);
        if matches!(outcome, Outcome::Given) {
            self.share.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
#[path = "budget_test.rs"]
mod tests;
