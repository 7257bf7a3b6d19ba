//! The data path of one volume: read, write, flush, discard, write-zeroes; in place or redirected.
//!
//! A request is planned in one short critical section under the volume's lock: look up, classify, take blocks,
//! register. It does its I/O without any lock, and is finished in a second critical section. If planning has to wait
//! (for a node, an overlapping request, a fresh block, or space), it waits without the lock and starts again.

mod fill;
mod gate;
mod no_space;
mod plan;
mod planning;
mod read;
mod redirect;
pub(crate) mod rehome;
pub mod state;
mod unmap;
pub(crate) mod window;
mod write;

use crate::core::Core;
use crate::disk::Segments;
use crate::error::{Error, Result};
use crate::model::{PvFlags, SegmentType};
use crate::units::{BLOCK_SIZE, SECTOR_SIZE, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// An open volume: what an export reads and writes.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    pub(crate) id: VolumeId,
    pub(crate) state: Mutex<State>,
    /// The physical volumes with acknowledged writes, a bit for each.
    pub(crate) written_to: AtomicU64,
}

/// All offsets and lengths in bytes, multiples of 512; sub-block requests are fine. Requests may overlap in time.
impl Volume {
    pub(crate) fn new(core: Arc<Core>, id: VolumeId, state: State) -> Volume {
        Volume { core, id, state: Mutex::new(state), written_to: AtomicU64::new(0) }
    }

    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Which blocks it takes.
    pub fn segment(&self) -> SegmentType {
        self.state.lock().meta.segment
    }

    pub fn size_bytes(&self) -> u64 {
        self.state.lock().meta.blocks * BLOCK_SIZE
    }

    pub fn sector(&self) -> u32 {
        self.state.lock().meta.sector
    }

    pub fn read_only(&self) -> bool {
        self.is_read_only(&self.state.lock())
    }

    /// By its permission, or because the group is open read-only.
    fn is_read_only(&self, state: &State) -> bool {
        state.meta.read_only || self.core.config.read_only
    }

    fn check_range(&self, state: &State, offset: u64, len: u64) -> Result<()> {
        if state.closed {
            return Err(Error::Closed);
        }
        if state.invalid() {
            return Err(Error::InvalidSnapshot);
        }
        if offset % SECTOR_SIZE != 0 || len % SECTOR_SIZE != 0 {
            return Err(Error::Invalid(format!("bytes {offset}+{len} are not whole sectors of 512 bytes")));
        }
        let size = state.meta.blocks * BLOCK_SIZE;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::Invalid(format!("bytes {offset}+{len} lie beyond the volume's end at {size}"))),
        }
    }

    fn wait_for_wake<T>(state: &mut MutexGuard<'_, State>, cx: &Context<'_>) -> Poll<T> {
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    /// Called before a write to these places is acknowledged.
    fn wrote(&self, places: &Segments) {
        let pvs = self.core.members.legs().only_on(places).0;
        if pvs & !self.written_to.load(Ordering::Relaxed) != 0 {
            self.written_to.fetch_or(pvs, Ordering::SeqCst);
        }
    }

    /// The physical volumes with acknowledged writes since [`forget_written_to`](Self::forget_written_to).
    pub fn written_to(&self) -> PvFlags {
        PvFlags(self.written_to.load(Ordering::SeqCst))
    }

    /// Clears and returns that set. Called before a flush.
    pub fn forget_written_to(&self) -> PvFlags {
        PvFlags(self.written_to.swap(0, Ordering::SeqCst))
    }

    /// Restores the set after a flush that failed.
    pub fn remember_written_to(&self, pvs: PvFlags) {
        self.written_to.fetch_or(pvs.0, Ordering::SeqCst);
    }

    /// Everything acknowledged before this call is durable when it returns.
    pub async fn flush(&self) -> Result<()> {
        if self.core.config.read_only {
            return Ok(());
        }
        self.core.journal.flush().await
    }
}
