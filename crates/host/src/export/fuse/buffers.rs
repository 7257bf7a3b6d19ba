//! Page-aligned buffers for requests' data, reused. [`budget`](super::budget) bounds how many are in use.

use super::budget::Permit;
use parking_lot::Mutex;
use rowen_engine::disk::PageBuf;

/// Data of small requests: these arrive in their final place.
pub const SMALL: usize = 16 << 10;
/// Data of any request.
pub const LARGE: usize = super::MAX_WRITE;

/// Free buffers kept for reuse: 8 MiB of small ones, 32 MiB of large ones.
const KEEP: [usize; 2] = [512, 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Small,
    Large,
}

impl Class {
    pub fn of(len: usize) -> Class {
        if len <= SMALL { Class::Small } else { Class::Large }
    }

    /// Bytes in a buffer.
    pub fn size(self) -> usize {
        match self {
            Class::Small => SMALL,
            Class::Large => LARGE,
        }
    }
}

/// A request's data, and its part of the budget.
pub struct Data {
    pub buf: PageBuf,
    pub class: Class,
    pub permit: Permit,
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
