//! The contract with the disks below the engine.
//!
//! A [`Disks`] is the set of a group's physical volumes. It takes any number of concurrent [`DiskOp`]s, and completes
//! each exactly once through its [`Completer`].
//!
//! What a disk promises, and what it may do:
//!
//! * A write is durable once a [`DiskOp::Flush`] that was submitted *after the write completed* has completed.
//! * Until then power loss may drop it, keep it, tear it at sector boundaries, or keep a later write and
//!   drop an earlier one.
//! * Requests in flight together may be carried out in any order, also when they overlap.
//! * A read of a completed write returns its data, or fails.
//! * A disk may return wrong data. So every metadata block names itself and has a checksum.
//! * A disk may be missing when a group is opened, and come back with older contents (rules MB1 to MB6).

use parking_lot::Mutex;
use smallvec::SmallVec;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Position of a physical volume in its group's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PvIndex(pub u16);

/// One contiguous piece of a request. All in bytes; `offset` and `len` are multiples of the disk's sector size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub pv: PvIndex,
    /// Where on the physical volume.
    pub offset: u64,
    /// Where in the request's buffer (ignored by requests without one).
    pub at: u32,
    pub len: u32,
}

pub type Segments = SmallVec<[Segment; 2]>;

#[repr(C, align(4096))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Page([u8; 4096]);

/// An owned, page-aligned buffer, fit for O_DIRECT.
#[derive(Default)]
pub struct PageBuf {
    pages: Vec<Page>,
}

impl PageBuf {
    /// A zeroed buffer of at least `len` bytes (rounded up to whole pages).
    pub fn zeroed(len: usize) -> Self {
        PageBuf { pages: bytemuck::allocation::zeroed_vec(len.div_ceil(4096)) }
    }

    /// A buffer that starts with `bytes` and is zero after them.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buf = PageBuf::zeroed(bytes.len());
        buf.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    pub fn as_slice(&self) -> &[u8] {
        bytemuck::cast_slice(&self.pages)
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.pages)
    }

    /// Bytes held: a multiple of the page size.
    pub fn capacity(&self) -> usize {
        self.pages.len() * 4096
    }
}

impl fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBuf({} bytes)", self.capacity())
    }
}

/// A request to the disks. Segments of one request may go to different physical volumes; the request completes
/// when all of them have.
#[derive(Debug)]
pub enum DiskOp {
    /// Fills the named parts of `buf`, which comes back with the completion.
    Read { segments: Segments, buf: PageBuf },
    /// Writes the named parts of `buf`. The disk drops its reference before it completes the request.
    Write { segments: Segments, buf: Arc<PageBuf> },
    /// Makes all writes that completed before it durable, on every physical volume.
    Flush,
    /// The contents of these ranges are not needed any more: a disk may drop them, or not. A failure is harmless. The
    /// engine writes nothing there while the request is in flight.
    Discard { segments: Segments },
}

/// The kind of request that a [`DiskError`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOpKind {
    Read,
    Write,
    Flush,
    Discard,
}

impl DiskOp {
    pub fn kind(&self) -> DiskOpKind {
        match self {
            DiskOp::Read { .. } => DiskOpKind::Read,
            DiskOp::Write { .. } => DiskOpKind::Write,
            DiskOp::Flush => DiskOpKind::Flush,
            DiskOp::Discard { .. } => DiskOpKind::Discard,
        }
    }
}

/// A failed request: what, where, and the operating system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskError {
    pub op: DiskOpKind,
    pub pv: PvIndex,
    pub offset: u64,
    /// Linux errno, positive (5 = EIO).
    pub errno: i32,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            DiskOpKind::Read => "read",
            DiskOpKind::Write => "write",
            DiskOpKind::Flush => "flush",
            DiskOpKind::Discard => "discard",
        };
        write!(f, "{op} failed on physical volume {} at byte {}: error {}", self.pv.0, self.offset, self.errno)
    }
}

impl std::error::Error for DiskError {}

impl DiskError {
    /// The disk is not broken: the filesystem, quota or thin device below it is full.
    pub fn is_no_room(&self) -> bool {
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        matches!(self.errno, ENOSPC | EDQUOT)
    }
}

/// Outcome of a request: reads give their buffer back.
pub type DiskResult = Result<Option<PageBuf>, DiskError>;

/// What the engine needs to know about one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PvGeometry {
    /// Usable size in bytes.
    pub size: u64,
    /// Smallest addressable unit in bytes: 512 or 4096.
    pub sector: u32,
}

/// What discards do on a physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimits {
    /// The unit of discards in bytes: a power of two, a multiple of the sector. Smaller parts are not discarded. 0:
    /// discards are not supported.
    pub granularity: u32,
    /// All of its room is allocated: a file without holes. It stays so unless a user asks for discards.
    pub is_whole: bool,
}

impl Default for DiscardLimits {
    fn default() -> Self {
        DiscardLimits { granularity: 4096, is_whole: false }
    }
}

/// The physical volumes of one group, in table order.
pub trait Disks: Send + Sync {
    /// Number of physical volumes.
    fn count(&self) -> usize;
    fn geometry(&self, pv: PvIndex) -> PvGeometry;
    /// There is no disk at this place: the physical volume is lost, or out of the group. A disk of size 0 stands for
    /// it.
    fn is_missing(&self, pv: PvIndex) -> bool {
        self.geometry(pv).size == 0
    }
    /// What discards do there. They are hints: a discarded range may read as old data, as zeros, or as anything until
    /// it is written again, also after power loss.
    fn discards(&self, _: PvIndex) -> DiscardLimits {
        DiscardLimits::default()
    }
    /// Whether it is a rotating disk: what lies elsewhere costs a seek.
    fn turns(&self, _: PvIndex) -> bool {
        false
    }
    /// Whether mirrors are kept below: the place of a first leg stands for both.
    fn has_mirrors_below(&self) -> bool {
        false
    }
    /// Starts a request. `done` must be completed exactly once, from any thread, also on failure.
    fn submit(&self, op: DiskOp, done: Completer);
    /// Allocates room for these ranges, so that no later write there fails for lack of it. Their contents do not
    /// change. For sparse files; by default a disk has all of its room.
    fn back(&self, segments: Segments, done: Completer) {
        drop(segments);
        done.complete(Ok(None));
    }
}

enum Slot {
    Waiting(Option<Waker>),
    Done(DiskResult),
    Taken,
}

/// The disk's end of a request. If it is dropped without an answer, the request fails, so a completion cannot be
/// forgotten.
pub struct Completer {
    slot: Option<Arc<Mutex<Slot>>>,
}

/// The engine's end of a request: a future of its outcome.
pub struct Completion {
    slot: Arc<Mutex<Slot>>,
}

/// A connected pair.
pub fn completion() -> (Completer, Completion) {
    let slot = Arc::new(Mutex::new(Slot::Waiting(None)));
    (Completer { slot: Some(slot.clone()) }, Completion { slot })
}

impl Completer {
    pub fn complete(mut self, result: DiskResult) {
        self.finish(result);
    }

    fn finish(&mut self, result: DiskResult) {
        if let Some(slot) = self.slot.take() {
            let before = std::mem::replace(&mut *slot.lock(), Slot::Done(result));
            if let Slot::Waiting(Some(waker)) = before {
                waker.wake();
            }
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        let lost = DiskError { op: DiskOpKind::Read, pv: PvIndex(0), offset: 0, errno: 125 };
        self.finish(Err(lost));
    }
}

impl Future for Completion {
    type Output = DiskResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DiskResult> {
        let mut slot = self.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::Done(result) => Poll::Ready(result),
            Slot::Waiting(_) => {
                *slot = Slot::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            Slot::Taken => panic!("a completion was polled after it was ready"),
        }
    }
}

/// Asks for room behind these ranges ([`Disks::back`]) and returns the future of the outcome.
pub fn back(disks: &dyn Disks, segments: Segments) -> Completion {
    let (completer, completion) = completion();
    disks.back(segments, completer);
    completion
}

/// Submits a request and returns the future of its outcome. The request is in flight when this returns.
pub fn start(disks: &dyn Disks, op: DiskOp) -> Completion {
    let (completer, completion) = completion();
    disks.submit(op, completer);
    completion
}
