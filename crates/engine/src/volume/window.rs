//! The windows of a volume, the units of re-homing and filling (rules R12, R13).

use std::collections::BTreeSet;

/// Blocks of a window: 1 MiB, a large request.
pub const WINDOW: u64 = 256;

/// Windows that are remembered one by one.
const MAX_WINDOWS: usize = 1 << 14;

/// Windows with redirected writes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Redirected {
    /// The first blocks of windows.
    pub windows: BTreeSet<u64>,
    /// There were more windows than can be remembered.
    pub are_more: bool,
}

impl Redirected {
    /// Whether this is the first note since it was emptied.
    pub fn note(&mut self, first: u64, last: u64) -> bool {
        let was_empty = self.windows.is_empty() && !self.are_more;
        let mut window = first / WINDOW * WINDOW;
        while window < last && !self.are_more {
            self.windows.insert(window);
            self.are_more = self.windows.len() > MAX_WINDOWS;
            window += WINDOW;
        }
        if self.are_more {
            self.windows.clear();
        }
        was_empty
    }
}

/// A range that is being copied.
pub struct Watch {
    pub start: u64,
    pub end: u64,
    pub is_touched: bool,
}
