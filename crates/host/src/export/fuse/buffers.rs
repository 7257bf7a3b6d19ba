//! Page-aligned buffers for requests' data, reused, and never more than a bound.
//!
//! The free list is shared by all connections; the bound is each connection's own ([`Budget`]), so that a volume whose
//! writes wait for space cannot starve another.

use parking_lot::Mutex;
use rowen_engine::disk::PageBuf;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Data of small requests: these arrive in their final place.
pub const SMALL: usize = 16 << 10;
/// Data of any request.
pub const LARGE: usize = super::MAX_WRITE;

/// Buffers kept for reuse: 8 MiB of small ones, 32 MiB of large ones.
const KEEP: [usize; 2] = [512, 32];
/// Buffers that one connection may have in use. The loop device sends no more than about 256 requests at a time.
const PER_CONNECTION: [usize; 2] = [320, 64];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Small,
    Large,
}

impl Class {
    pub fn of(len: usize) -> Class {
        if len <= SMALL { Class::Small } else { Class::Large }
    }

    fn size(self) -> usize {
        match self {
            Class::Small => SMALL,
            Class::Large => LARGE,
        }
    }
}

/// Free buffers, shared by all connections of a process.
#[derive(Default)]
pub struct Buffers {
    free: [Mutex<Vec<PageBuf>>; 2],
}

impl Buffers {
    pub fn take(&self, class: Class) -> PageBuf {
        let reused = self.free[class as usize].lock().pop();
        reused.unwrap_or_else(|| PageBuf::zeroed(class.size()))
    }

    /// Keeps `buf` for the next request, or frees it when enough are kept.
    pub fn give(&self, class: Class, buf: PageBuf) {
        debug_assert_eq!(buf.capacity(), class.size());
        let mut free = self.free[class as usize].lock();
        if free.len() < KEEP[class as usize] {
            free.push(buf);
        }
    }
}

struct Permits {
    left: usize,
    waiting: VecDeque<Waker>,
}

/// How many buffers of each class a connection may still use.
pub struct Budget {
    permits: [Mutex<Permits>; 2],
}

impl Budget {
    pub fn new() -> Arc<Budget> {
        let permits =
            |class: Class| Mutex::new(Permits { left: PER_CONNECTION[class as usize], waiting: VecDeque::new() });
        Arc::new(Budget { permits: [permits(Class::Small), permits(Class::Large)] })
    }

    /// Waits until the connection may use one more buffer of the class.
    pub fn permit(self: &Arc<Self>, class: Class) -> Waiting {
        Waiting { budget: self.clone(), class }
    }
}

/// The right to use one buffer; given back when dropped.
pub struct Permit {
    budget: Arc<Budget>,
    class: Class,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut permits = self.budget.permits[self.class as usize].lock();
        permits.left += 1;
        let next = permits.waiting.pop_front();
        drop(permits);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

pub struct Waiting {
    budget: Arc<Budget>,
    class: Class,
}

impl Future for Waiting {
    type Output = Permit;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let mut permits = self.budget.permits[self.class as usize].lock();
        if permits.left == 0 {
            permits.waiting.push_back(cx.waker().clone());
            return Poll::Pending;
        }
        permits.left -= 1;
        Poll::Ready(Permit { budget: self.budget.clone(), class: self.class })
    }
}
