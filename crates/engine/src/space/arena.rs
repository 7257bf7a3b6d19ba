//! An arena: a run of blocks out of the free tree, of which single blocks are allocated.

use super::Run;

/// Blocks in an arena, at most.
pub const ARENA_BLOCKS: u64 = 1024;

pub(super) struct Arena {
    /// Names the arena for its life: another one may later begin at the same block.
    pub serial: u64,
    pub len: u64,
    pub used: [u64; 16],
    pub unused: u64,
    /// Where the next slot begins. Beyond it no slot exists.
    pub cursor: u64,
}

impl Arena {
    pub fn is_used(&self, i: u64) -> bool {
        self.used[(i / 64) as usize] >> (i % 64) & 1 == 1
    }

    pub fn set(&mut self, i: u64) {
        debug_assert!(!self.is_used(i), "S1: a block is handed out once");
        self.used[(i / 64) as usize] |= 1 << (i % 64);
        self.unused -= 1;
    }

    pub fn clear(&mut self, i: u64) {
        debug_assert!(self.is_used(i), "a block is freed once");
        self.used[(i / 64) as usize] &= !(1 << (i % 64));
        self.unused += 1;
    }

    /// Runs of unused blocks, relative to the arena.
    pub fn unused_runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for i in (0..self.len).filter(|i| !self.is_used(*i)) {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == i => *len += 1,
                _ => runs.push((i, 1)),
            }
        }
        runs
    }
}
