//! How many entries trees put into a node.
//!
//! It is [`CAPACITY`]. Simulations set fewer entries, so that a small volume has a deep tree of many nodes: what happens
//! between two nodes then happens often. A node with more entries than that is valid, and is split when it changes.

use crate::format::node::CAPACITY;

/// The least: a node that was split must not be joined again at once.
#[cfg(any(test, feature = "planted"))]
const MIN_FAN_OUT: usize = 8;

#[cfg(any(test, feature = "planted"))]
thread_local! {
    static FAN_OUT: std::cell::Cell<usize> = const { std::cell::Cell::new(CAPACITY) };
}

/// Sets the most entries of a node in this thread, from [`MIN_FAN_OUT`] to [`CAPACITY`].
#[cfg(any(test, feature = "planted"))]
pub fn set_fan_out(entries: usize) {
    FAN_OUT.set(entries.clamp(MIN_FAN_OUT, CAPACITY));
}

/// The most entries that a tree gives to a node.
#[inline]
pub(super) fn fan_out() -> usize {
    #[cfg(any(test, feature = "planted"))]
    return FAN_OUT.get();
    #[cfg(not(any(test, feature = "planted")))]
    CAPACITY
}

/// A node that has lost entries and now has fewer than this is joined with a sibling if possible.
#[inline]
pub(super) fn sparse() -> usize {
    fan_out() / 4
}
