//! How fast the background works, and when a checkpoint is wanted.

use super::Core;
use crate::error::{Error, Result};
use crate::journal::Pressure;
use crate::runtime::yield_now;
use crate::space::metadata::RUNS_TOGETHER;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Core {
    /// Volumes changed, so the room of pools may have changed: waiting writes check again.
    pub fn volumes_changed(&self) {
        self.pools.lock().forget();
        self.space_event.notify();
    }

    /// Starts a checkpoint when there are many dirty nodes or many pending blocks.
    pub fn space_use_changed(&self) {
        let pending = self.space.lock().pending_runs();
        if self.cache.dirty_bytes() > self.config.dirty_bytes as u64 || pending > 2 * self.pending_bound() {
            self.request_checkpoint();
        }
    }

    /// The number of freed runs at which removal takes a checkpoint. For the foreground it is twice that.
    pub fn pending_bound(&self) -> usize {
        let runs = self.meta.lock().total() * PENDING_RUNS_TO_A_BLOCK;
        runs.clamp(*PENDING_RUNS.start(), *PENDING_RUNS.end()) as usize
    }

    /// Whether there are too few metadata blocks for one part of a removal or a reduction (M2).
    pub fn is_short_of_blocks_to_free(&self) -> bool {
        let is_short = !self.planted("frees_unbounded") && !self.meta.lock().has_room_to_free(RUNS_TOGETHER);
        is_short || self.is_short_for_tests()
    }

    /// For tests: metadata has no room until the group has taken this many checkpoints.
    pub fn is_short_for_tests(&self) -> bool {
        cfg!(feature = "planted")
            && self.config.planted.is_some_and(|bug| bug.starts_with("no_room_to_free"))
            && self.counters.checkpoints.load(Ordering::Relaxed) < NO_ROOM_UNTIL
    }

    /// Yields after a background step, and pauses now and then while there are writes: steps without pauses would take
    /// a processor and the disk's queue from them. It does not pause while writes wait for space that the background
    /// frees, nor when the journal fills up.
    pub async fn throttle(&self, throttle: &mut Throttle) {
        yield_now().await;
        throttle.steps += 1;
        if throttle.steps < STEPS_BETWEEN_RESTS {
            return;
        }
        let counters = &self.counters;
        let writes = [&counters.writes_in_place, &counters.writes_redirected];
        let writes = writes.map(|counter| counter.load(Ordering::Relaxed)).iter().sum();
        let busy = std::mem::replace(&mut throttle.writes, writes) != writes;
        throttle.steps = 0;
        let waited_for = self.journal.pressure() != Pressure::Low || self.too_dirty();
        if busy && !waited_for && !self.closed.load(Ordering::Acquire) {
            self.runtime.sleep(REST).await;
        }
    }

    /// Whether changes have to wait. Dirty nodes cannot leave memory before a checkpoint. If every write dirties
    /// another leaf, they come faster than the checkpoint writes them.
    pub fn too_dirty(&self) -> bool {
        self.dirty_bytes() > DIRTY_BOUND * self.config.dirty_bytes as u64
    }

    /// Bytes of dirty nodes now. Also updates the maximum.
    pub fn dirty_bytes(&self) -> u64 {
        let dirty = self.cache.dirty_bytes();
        if dirty > self.counters.dirty_most.load(Ordering::Relaxed) {
            self.counters.dirty_most.fetch_max(dirty, Ordering::Relaxed);
        }
        dirty
    }

    /// Waits while there are too many dirty nodes. The caller must have nothing in flight that a checkpoint waits for.
    pub async fn wait_while_too_dirty(&self) -> Result<()> {
        loop {
            let turn = self.space_event.turn();
            if !self.too_dirty() {
                return Ok(());
            }
            self.journal.failed()?;
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            self.request_checkpoint();
            self.space_event.changed(turn).await;
        }
    }

    /// Asks the background for a checkpoint, without waiting for it.
    pub fn request_checkpoint(&self) {
        self.journal.request_checkpoint();
    }
}

/// Rate limiter for background work: see [`Core::throttle`].
#[derive(Default)]
pub struct Throttle {
    steps: u32,
    writes: u64,
}

/// Writes that change a map wait when the dirty bytes are this many times the bytes that start a checkpoint: once for
/// the nodes that the checkpoint writes, once for those dirtied meanwhile, and once as a margin.
const DIRTY_BOUND: u64 = 3;

/// How many freed runs may be pending before a checkpoint is taken for them. With a larger number a removal needs fewer
/// checkpoints, each of which may rewrite most of the free tree. Pending runs take memory, and room in the checkpoint's
/// stream.
const PENDING_RUNS: RangeInclusive<u64> = 16 << 10..=64 << 10;

/// Pending runs for each metadata block: their stream then takes a 32nd of the metadata area.
const PENDING_RUNS_TO_A_BLOCK: u64 = 8;

/// Background work pauses after this many steps, of some tens of microseconds each...
const STEPS_BETWEEN_RESTS: u32 = 4;

/// ... for this long, if there were writes meanwhile.
const REST: Duration = Duration::from_micros(500);

/// For tests: see [`Core::is_short_for_tests`].
const NO_ROOM_UNTIL: u64 = 40;
