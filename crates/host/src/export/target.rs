//! What an export needs of a volume, so that transports can be tested without an engine.

use rowen_engine::disk::PageBuf;
use rowen_engine::error::Error;
use rowen_engine::group::{Volume, VolumeInfo};
use rowen_engine::units::VolumeId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A positive Linux error number, as block devices report failures.
pub type Errno = i32;

/// The volume's group is being closed. Where a successor of this process follows, the request is for that one: it is left unanswered.
pub const CLOSED: Errno = libc::ESHUTDOWN;

/// A volume as a transport sees it. Offsets and lengths are bytes, multiples of the sector, inside the volume:
/// the transport checks. Requests may overlap in time.
pub trait Target: Send + Sync {
    /// Names the volume for its life, also over renames: a successor of this process finds the volume by it.
    fn id(&self) -> u64;
    fn size(&self) -> u64;
    /// Bytes in a logical sector of the device: 512 or 4096.
    fn sector(&self) -> u32;
    fn read_only(&self) -> bool;
    /// Whether it began as a copy of another volume: then the filesystem on it has that one's label and UUID.
    fn is_copy(&self) -> bool {
        false
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
    is_copy: bool,
}

impl VolumeTarget {
    /// `volume`, which the group describes so.
    pub fn new(volume: Arc<Volume>, info: &VolumeInfo) -> Arc<Self> {
        Arc::new(VolumeTarget { volume, id: info.id, is_copy: info.origin.is_some() })
    }
}

/// The error number that a block device reports for an engine's error.
pub fn errno_of(error: &Error) -> Errno {
    match error {
        Error::NoSpace { .. } | Error::NoRoom(_) => libc::ENOSPC,
        Error::ReadOnly => libc::EROFS,
        Error::Invalid(_) => libc::EINVAL,
        Error::Closed => CLOSED,
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

    fn read(&self, offset: u64, len: u32, buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>> {
        Box::pin(async move { self.volume.read(offset, len, buf).await.map_err(|e| errno_of(&e)) })
    }

    fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.volume.write(offset, len, buf).await.map_err(|e| errno_of(&e)) })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.volume.flush().await.map_err(|e| errno_of(&e)) })
    }

    fn discard(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.volume.discard(offset, len).await.map_err(|e| errno_of(&e)) })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move { self.volume.write_zeroes(offset, len).await.map_err(|e| errno_of(&e)) })
    }
}
