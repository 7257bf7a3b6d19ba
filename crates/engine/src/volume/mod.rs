//! The data path of one volume: read, write, flush, discard, write-zeroes; in place or redirected.
//!
//! A request is planned in one short critical section under the volume's lock: look up, classify, take blocks,
//! register. It does its I/O without any lock, and is finished in a second critical section. If planning has to wait
//! (for a node, an overlapping request, a fresh block, or space), it waits without the lock and starts again.

mod fill;
mod gate;
mod plan;
mod planning;
mod read;
mod redirect;
pub(crate) mod rehome;
mod room;
pub mod state;
mod unmap;
pub(crate) mod window;
mod write;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::units::{BLOCK_SIZE, SECTOR_SIZE, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An open volume: what an export reads and writes.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    pub(crate) id: VolumeId,
    pub(crate) state: Mutex<State>,
}

/// All offsets and lengths in bytes, multiples of 512; sub-block requests are fine. Requests may overlap in time.
impl Volume {
    pub fn id(&self) -> VolumeId {
        self.id
    }

    pub fn size_bytes(&self) -> u64 {
        self.state.lock().meta.blocks * BLOCK_SIZE
    }

    pub fn sector(&self) -> u32 {
        self.state.lock().meta.sector
    }

    pub fn read_only(&self) -> bool {
        self.state.lock().meta.read_only
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

    fn wait_here<T>(state: &mut MutexGuard<'_, State>, cx: &Context<'_>) -> Poll<T> {
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    /// Everything acknowledged before this call is durable when it returns.
    pub async fn flush(&self) -> Result<()> {
        self.core.journal.flush().await
    }
}
