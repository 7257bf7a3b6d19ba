//! How many blocks pools may still take. A pool is a limit: its volumes together use at most its size, so that they
//! cannot fill the group. A pool reserves nothing.
//!
//! * Q1 The number cached here is never higher than what the pool may still take. Allocated blocks are subtracted at
//!   once. Freed blocks count only after the pool is measured again ([`Group::measure_pool`]). A write that finds too
//!   little measures the pool first. So neither a counting error nor a crash has a lasting effect.
//! * Q2 A measurement counts only if no volume changed during it, and no blocks were subtracted from an earlier
//!   measurement meanwhile.
//!
//! [`Group::measure_pool`]: crate::group::Group

use crate::fixed_hash::Map;
use crate::planted;

/// The room of a pool, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct PoolLeft {
    /// The most that its volumes may use together.
    pub size: u64,
    /// The most that its volumes may still take.
    pub now: u64,
    /// Blocks that writes in flight will free: they move blocks that have a place already.
    pub soon: u64,
}

/// By the pool's name: blocks that its volumes can certainly still take.
#[derive(Default)]
pub struct Pools {
    left: Map<String, u64>,
    /// Raised by each change of volumes, and whenever a pool had too little room.
    changes: u64,
}

impl Pools {
    /// Subtracts blocks from the pool's room. False: the pool must be measured.
    pub fn take(&mut self, pool: &str, blocks: u64) -> bool {
        match self.left.get_mut(pool) {
            Some(left) if *left >= blocks => {
                *left -= blocks;
                true
            }
            Some(_) => {
                // A measurement that began before this one was used up must not count (Q1).
                self.left.remove(pool);
                self.changes += u64::from(!planted::is("stale_measure"));
                false
            }
            None => false,
        }
    }

    /// Volumes changed: which belong to the pool, or its size.
    pub fn forget(&mut self) {
        self.changes += 1;
        self.left.clear();
    }

    /// Ask this before a measurement, and pass it to [`measured`](Self::measured).
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes the result of a measurement, unless another one came first and blocks may have been taken since.
    pub fn measured(&mut self, pool: &str, changes: u64, left: u64) {
        let is_fresh = changes == self.changes || planted::is("late_measure_kept");
        if is_fresh && !self.left.contains_key(pool) {
            self.left.insert(pool.to_owned(), left);
        }
    }
}

#[cfg(test)]
#[path = "pools_test.rs"]
mod tests;
