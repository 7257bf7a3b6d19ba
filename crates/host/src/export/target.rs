//! What an export needs from a volume, so that transports can be tested without an engine.

use crate::planted;
use rowen_engine::disk::PageBuf;
use rowen_engine::error::Error;
use rowen_engine::group::{PvFlags, Volume, VolumeInfo};
use rowen_engine::units::VolumeId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A positive Linux error number, as block devices report failures.
pub type Errno = i32;

/// The volume's group is being closed. If a successor follows, the request is left unanswered for it.
pub const CLOSED: Errno = libc::ESHUTDOWN;

/// The group has stopped, and a successor will open it: the request is left to the successor.
pub const HANDED_ON: Errno = libc::EOWNERDEAD;

/// A volume as a transport sees it. Offsets and lengths are bytes, multiples of the sector, inside the volume:
/// the transport checks. Requests may overlap in time.
pub trait Target: Send + Sync {
    /// Names the volume for its life, also over renames: a successor of this process finds the volume by it.
    fn id(&self) -> u64;
    fn size(&self) -> u64;
    /// Bytes in a logical sector of the device: 512 or 4096.
    fn sector(&self) -> u32;
    fn read_only(&self) -> bool;
    /// Whether it began as a copy of another volume: then its filesystem has the label and UUID of that volume.
    fn is_copy(&self) -> bool {
        false
    }
    /// Whether it has acknowledged writes that were not flushed since, or its next flush must fail.
    fn has_unflushed(&self) -> bool {
        false
    }
    /// The same of what lies on these physical volumes.
    fn has_unflushed_on(&self, _: PvFlags) -> bool {
        self.has_unflushed()
    }
    /// Whether the next flush must fail, because writes that an earlier server acknowledged may be lost.
    fn owes(&self) -> bool {
        false
    }
    /// The thin pool that gives it space; empty: none.
    fn pool(&self) -> String {
        String::new()
    }
    /// Fills `buf[..len]` and gives it back.
    fn read(&self, offset: u64, len: u32, buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>>;
    /// Writes `buf[..len]`; the reference is dropped before this completes.
    fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>>;
    /// Everything acknowledged before this call is durable when it completes.
    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>>;
    /// The range is not needed any more and reads as zeros.
    fn discard(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>>;
    /// The range reads as zeros afterwards.
    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>>;
}

/// An engine's volume as a [`Target`].
pub struct VolumeTarget {
    volume: Arc<Volume>,
    id: VolumeId,
    pool: String,
    is_copy: bool,
    has_unflushed: AtomicBool,
    owes: AtomicBool,
}

impl VolumeTarget {
    /// `volume`, which the group describes so.
    pub fn new(volume: Arc<Volume>, info: &VolumeInfo) -> Arc<Self> {
        VolumeTarget::owing(volume, info, false)
    }

    /// The same. `owes`: writes that an earlier server acknowledged may be lost, so the next flush must fail (RT2).
    pub fn owing(volume: Arc<Volume>, info: &VolumeInfo, owes: bool) -> Arc<Self> {
        let (id, pool, is_copy) = (info.id, info.attributes.pool.clone(), info.origin.is_some());
        let owes = AtomicBool::new(owes && !planted::is("losses_unpaid"));
        Arc::new(VolumeTarget { volume, id, pool, is_copy, has_unflushed: AtomicBool::new(false), owes })
    }

    /// A change is about to be acknowledged.
    fn changed<T>(&self, outcome: Result<T, Error>) -> Result<T, Errno> {
        if outcome.is_ok() && !self.has_unflushed.load(Ordering::Relaxed) {
            self.has_unflushed.store(true, Ordering::SeqCst);
        }
        outcome.map_err(|e| errno_of(&e))
    }

    async fn flush_all(&self) -> Result<(), Errno> {
        if self.owes.swap(false, Ordering::SeqCst) {
            return Err(libc::EIO);
        }
        self.has_unflushed.store(false, Ordering::SeqCst);
        let wrote_to = self.volume.forget_written_to();
        let outcome = self.volume.flush().await.map_err(|e| errno_of(&e));
        // It is left to a successor, and its sender has no answer yet.
        if matches!(outcome, Err(CLOSED | HANDED_ON)) {
            self.volume.remember_written_to(wrote_to);
            self.has_unflushed.store(true, Ordering::SeqCst);
        }
        outcome
    }
}

/// The error number that a block device reports for an engine's error.
pub fn errno_of(error: &Error) -> Errno {
    match error {
        Error::NoSpace { .. } | Error::NoRoom(_) => libc::ENOSPC,
        Error::ReadOnly => libc::EROFS,
        Error::Invalid(_) => libc::EINVAL,
        Error::Closed => CLOSED,
        Error::DiskLost(_) => HANDED_ON,
        _ => libc::EIO,
    }
}

impl Target for VolumeTarget {
    fn id(&self) -> u64 {
        self.id.0
    }

    fn size(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn sector(&self) -> u32 {
        self.volume.sector()
    }

    fn read_only(&self) -> bool {
        self.volume.read_only()
    }

    fn is_copy(&self) -> bool {
        self.is_copy
    }

    fn has_unflushed(&self) -> bool {
        self.has_unflushed.load(Ordering::SeqCst) || self.owes()
    }

    fn has_unflushed_on(&self, pvs: PvFlags) -> bool {
        let wrote_there = self.volume.written_to().0 & pvs.0 != 0;
        self.owes() || (self.has_unflushed() && wrote_there)
    }

    fn owes(&self) -> bool {
        self.owes.load(Ordering::SeqCst)
    }

    fn pool(&self) -> String {
        self.pool.clone()
    }

    fn read(&self, offset: u64, len: u32, buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>> {
        Box::pin(async move { self.volume.read(offset, len, buf).await.map_err(|e| errno_of(&e)) })
    }

    fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.changed(self.volume.write(offset, len, buf).await) })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.flush_all().await })
    }

    fn discard(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.changed(self.volume.discard(offset, len).await) })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.changed(self.volume.write_zeroes(offset, len).await) })
    }
}
