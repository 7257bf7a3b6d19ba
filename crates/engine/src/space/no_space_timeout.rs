//! How long writes wait for room, if their volume's policy is to wait ([`FullPolicy::Hold`]). LVM's pools work in the
//! same way. When a pool fills up, a timeout begins. If it passes without room, all waiting writes fail, and new writes
//! fail at once until there is room again.
//!
//! * W1 A timeout belongs to one pool, or to the group's own space. It begins with the first write that waits, and ends
//!   with the first write that finds room. Writes that still wait then begin another timeout.
//! * W2 Waiting writes are woken when a timeout passes, ends, or is set again ([`Core::space_event`]), and ask again.
//!
//! [`FullPolicy::Hold`]: crate::group::FullPolicy
//! [`Core::space_event`]: crate::core::Core

use crate::fixed_hash::Map;
use crate::planted;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is full: a pool, or (`None`) the group.
pub type Full = Option<String>;

/// What a write that finds no room does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Wait,
    /// Wait. As the first waiting write, also call [`NoSpaceTimeout::end`] after this time.
    First(u64, Duration),
    Fail,
}

/// See the module.
#[derive(Default)]
pub struct NoSpaceTimeout {
    inner: Mutex<Inner>,
    /// Whether any timeout runs. The write path reads only this flag.
    any: AtomicBool,
}

#[derive(Default)]
struct Inner {
    limit: Option<Duration>,
    /// Timeouts that have begun, each with its number and whether it has passed.
    begun: Map<Full, (u64, bool)>,
    last: u64,
}

impl NoSpaceTimeout {
    /// Sets how long writes wait; `None`: for ever. A changed limit restarts all timeouts, so waiting writes must be
    /// woken.
    pub fn set_limit(&self, limit: Option<Duration>) {
        let mut inner = self.inner.lock();
        if inner.limit == limit {
            return;
        }
        inner.limit = limit;
        inner.begun.clear();
        self.any.store(false, Ordering::Relaxed);
    }

    /// A write found no room and is willing to wait.
    pub fn hold(&self, full: &Full) -> Verdict {
        let mut inner = self.inner.lock();
        let Some(limit) = inner.limit else { return Verdict::Wait };
        match inner.begun.get(full) {
            Some((_, true)) => Verdict::Fail,
            Some((_, false)) => Verdict::Wait,
            None => {
                inner.last += 1;
                let number = inner.last;
                inner.begun.insert(full.clone(), (number, false));
                self.any.store(true, Ordering::Relaxed);
                Verdict::First(number, limit)
            }
        }
    }

    /// The timeout with this number has passed, if it still runs. Then waiting writes must be woken.
    pub fn end(&self, full: &Full, number: u64) -> bool {
        match self.inner.lock().begun.get_mut(full) {
            Some((begun, is_over)) if *begun == number => {
                *is_over = true;
                true
            }
            _ => false,
        }
    }

    /// Whether a write waits or has failed for lack of room.
    pub fn is_tried(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// A write found room in the group and, if it has one, in its pool. True: waiting writes must be woken.
    pub fn room(&self, pool: &str) -> bool {
        let mut inner = self.inner.lock();
        let in_pool = !pool.is_empty() && inner.begun.remove(&Some(pool.to_owned())).is_some();
        let in_group = !(in_pool && planted::is("only_one_timeout_ends")) && inner.begun.remove(&None).is_some();
        self.any.store(!inner.begun.is_empty(), Ordering::Relaxed);
        in_pool || in_group
    }

    /// The pools, or the group itself, whose writes fail because their timeout has passed.
    pub fn over(&self) -> Vec<Full> {
        let inner = self.inner.lock();
        let mut over: Vec<Full> =
            inner.begun.iter().filter(|(_, (_, is_over))| *is_over).map(|(full, _)| full.clone()).collect();
        over.sort();
        over
    }
}

#[cfg(test)]
#[path = "no_space_timeout_test.rs"]
mod tests;
