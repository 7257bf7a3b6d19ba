//! What pools may still take. A pool is an allotment of the group: its volumes together hold no more blocks than its size,
//! so that they cannot fill the group for others. A pool holds nothing back.
//!
//! * Q1 What is kept here is never more than what the pool may still take: blocks that are handed out are taken off at once,
//!   blocks that come back are not counted before the pool is measured again ([`Group::measure_pool`]), which is what whoever
//!   finds too little left does first. So neither a fault of counting nor a crash can last.
//! * Q2 A measure counts only if nothing about volumes changed while it was taken, and nothing was taken off another.
//!
//! [`Group::measure_pool`]: crate::group::Group

use crate::fixed_hash::Map;
use crate::planted;

/// What a pool has left, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct PoolLeft {
    /// What its volumes may hold together.
    pub size: u64,
    /// What its volumes may still take.
    pub now: u64,
    /// What writes under way give back when they are done: they put elsewhere what has a place already.
    pub soon: u64,
}

/// By the pool's name: blocks that may surely still be handed out to its volumes.
#[derive(Default)]
pub struct Pools {
    left: Map<String, u64>,
    /// Raised by each change of volumes, and whenever what was left of a pool is too little.
    changes: u64,
}

impl Pools {
    /// Takes blocks off what the pool may still take. False: the pool has to be measured.
    pub fn take(&mut self, pool: &str, blocks: u64) -> bool {
        match self.left.get_mut(pool) {
            Some(left) if *left >= blocks => {
                *left -= blocks;
                true
            }
            Some(_) => {
                // A measure that began before this one was used up must not count (Q1).
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

    /// To be asked before a measure is taken, and given with it.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What a measure found, unless another one came first and blocks may have been taken since.
    pub fn measured(&mut self, pool: &str, changes: u64, left: u64) {
        let is_fresh = changes == self.changes || planted::is("any_measure");
        if is_fresh && !self.left.contains_key(pool) {
            self.left.insert(pool.to_owned(), left);
        }
    }
}

#[cfg(test)]
#[path = "pools_test.rs"]
mod tests;
