//! Deep trees: few entries in each tree node.

use rowen_engine::format::node::CAPACITY;
use rowen_engine::map::set_fan_out;

/// The most entries of a tree node in this thread, while this exists.
pub struct FanOut(());

impl FanOut {
    pub fn new(entries: usize) -> FanOut {
        set_fan_out(entries);
        FanOut(())
    }
}

impl Drop for FanOut {
    fn drop(&mut self) {
        set_fan_out(CAPACITY);
    }
}
