//! Real disks: block devices and regular files as a group's physical volumes.
//!
//! Owns the open files and the hold on them. It keeps the contract of [`rowen_engine::disk`]. It also promises: a
//! request that does not fit its disk or its buffer fails before anything is done; a short transfer is continued; a
//! read never returns bytes that are not on the disk; a flush goes only to disks that were changed since their last
//! complete flush. And:
//!
//! * CF1 A file that someone has made shorter has failed, for good: what was cut off would read as zeros if the file were
//!   made longer again. So writes look at the file's size, at most every 100 us, and none makes the file longer from then
//!   on.

mod error;
#[cfg(test)]
mod flush_test;
pub(crate) mod holders;
pub(crate) mod open;
mod question;
mod record;
pub mod suite;
mod sync;
pub(crate) mod sys;
mod watch;

pub use error::{OpenError, Reason, retry};
pub use open::MIN_SIZE;
pub use question::Question;
pub use record::Recorded;

use crate::meter::{Begun, Meter};
use crate::planted;
use crate::reactor::{IoFile, IoRequest, Part, Payload, Place, Pool, Shared};
use error::RETRY;
use open::Opened;
use parking_lot::RwLock;
use rowen_control::protocol::IoCounts;
use rowen_control::service::platform::Faults;
use rowen_engine::disk::{
    Completer, DiscardLimits, DiskError, DiskOp, DiskOpKind, Disks, PvGeometry, PvIndex, Segment, Segments,
};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sync::Helpers;
use watch::Watch;

/// What the physical volumes are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Only reads. Takes no hold, so it also works while a server runs.
    ReadOnly,
    /// Reads and writes exclusively: a second opener is refused, also after this process was killed, until its last
    /// writes are done.
    Exclusive,
    /// Only reads, exclusively. The disk may be read-only.
    ExclusiveReadOnly,
}

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoEngine {
    /// Through the workers' io_uring.
    #[default]
    Uring,
    /// Through helper threads and plain system calls.
    Sync,
}

impl FromStr for IoEngine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uring" => Ok(IoEngine::Uring),
            "sync" => Ok(IoEngine::Sync),
            _ => Err(format!("unknown I/O engine \"{text}\": it is \"uring\" or \"sync\"")),
        }
    }
}

impl fmt::Display for IoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoEngine::Uring => "uring",
            IoEngine::Sync => "sync",
        })
    }
}

/// Stands for the path of a disk that is missing.
pub const MISSING: &str = "[unknown]";

struct Pv {
    path: PathBuf,
    file: Arc<IoFile>,
    geometry: PvGeometry,
    is_device: bool,
    turns: bool,
    direct: bool,
    discards: DiscardLimits,
    watch: Watch,
}

impl Pv {
    /// Whether this file was seen to end too early, or ends before `end` now (CF1).
    fn is_cut_before(&self, end: u64) -> bool {
        if self.is_device || planted::is("files_grow_back") {
            return false;
        }
        if end > 0 && sys::known_size(self.file.as_fd()).is_ok_and(|size| size < end) {
            self.file.note_cut();
        }
        self.file.is_cut()
    }
}

/// The open physical volumes of one group, in table order. More can join a live set.
pub struct PvSet {
    shared: Arc<Shared>,
    engine: IoEngine,
    mode: OpenMode,
    pvs: RwLock<Vec<Pv>>,
    helpers: Helpers,
    /// Requests get no answer any more: this process ends.
    is_mute: AtomicBool,
}

impl PvSet {
    /// Opens the given disks, all or none. A pool without rings uses [`IoEngine::Sync`] whatever is asked.
    pub fn open<P: AsRef<Path>>(
        pool: &Pool,
        paths: &[P],
        mode: OpenMode,
        engine: IoEngine,
    ) -> Result<PvSet, OpenError> {
        PvSet::open_waiting(pool, paths, mode, engine, Duration::ZERO)
    }

    /// The same, but waits for disks that another process still holds, such as a killed predecessor whose last writes
    /// are in flight.
    pub fn open_waiting<P: AsRef<Path>>(
        pool: &Pool,
        paths: &[P],
        mode: OpenMode,
        engine: IoEngine,
        limit: Duration,
    ) -> Result<PvSet, OpenError> {
        let engine = if pool.has_rings() { engine } else { IoEngine::Sync };
        let shared = pool.shared().clone();
        let (pvs, helpers, is_mute) = (RwLock::default(), Helpers::default(), AtomicBool::new(false));
        let set = PvSet { shared, engine, mode, pvs, helpers, is_mute };
        let mut left = paths;
        retry(limit, || {
            while let Some((path, rest)) = left.split_first() {
                set.push(path.as_ref())?;
                left = rest;
            }
            Ok(())
        })?;
        Ok(set)
    }

    /// Adds a disk at the end of the set, which may be in use.
    pub fn push(&self, path: impl AsRef<Path>) -> Result<PvIndex, OpenError> {
        let path = path.as_ref();
        self.push_opened(path, open::open(path, self.mode)?)
    }

    /// Replaces the disk at a place: by one that came back or, as [`MISSING`], by none.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn replace(&self, pv: PvIndex, path: &Path) -> Result<(), OpenError> {
        let new = self.adopt(path, open::open(path, self.mode)?);
        let before = std::mem::replace(&mut self.pvs.write()[usize::from(pv.0)], new);
        // Closing notifies all workers: not under the lock.
        drop(before);
        Ok(())
    }

    /// The same of a disk that is open, and held.
    pub fn push_opened(&self, path: &Path, opened: Opened) -> Result<PvIndex, OpenError> {
        let new = self.adopt(path, opened);
        let mut pvs = self.pvs.write();
        let index = u16::try_from(pvs.len()).ok().filter(|index| *index < u16::MAX);
        let index = index.ok_or_else(|| OpenError::new(path, Reason::TooMany))?;
        pvs.push(new);
        Ok(PvIndex(index))
    }

    fn adopt(&self, path: &Path, opened: Opened) -> Pv {
        let discards = open::discards(&opened);
        let Opened { fd, geometry, is_device, turns, direct } = opened;
        let file = Arc::new(self.shared.files.adopt(fd));
        Pv { path: path.to_owned(), file, geometry, is_device, turns, direct, discards, watch: Watch::default() }
    }

    /// Releases the files among them, for a successor that waits: at the end of this process the kernel would take tens
    /// of milliseconds. Only for a closed group without requests in flight. (The kernel releases devices.)
    pub fn let_go(&self) {
        let pvs = self.pvs.read();
        // Each request has the file; so has the set.
        if pvs.iter().any(|pv| Arc::strong_count(&pv.file) > 1) {
            return;
        }
        for pv in pvs.iter().filter(|pv| !pv.is_device) {
            // SAFETY: the set has it open.
            let fd = unsafe { BorrowedFd::borrow_raw(pv.file.fd()) };
            // If it stays locked, the successor waits for the end of this process.
            let _ = sys::unlock(fd);
        }
    }

    /// The same of all disks but one, on which requests hang, for a process that ends as if it were killed (DT2). No request
    /// is begun or answered from here on. False: one of the others has requests that do not end either, and keeps its
    /// hold until the end of the process.
    pub fn let_go_but(&self, hung: PvIndex, limit: Duration) -> bool {
        self.is_mute.store(true, Ordering::Release);
        let files: Vec<Arc<IoFile>> = {
            let pvs = self.pvs.read();
            let others = pvs.iter().enumerate().filter(|(at, _)| *at != usize::from(hung.0));
            others.map(|(_, pv)| pv.file.clone()).collect()
        };
        // A worker that submits a request at this moment has counted it then.
        if !files.iter().all(|file| file.await_workers()) {
            return false;
        }
        let begun = Instant::now();
        while files.iter().any(|file| file.meter.is_busy()) {
            if begun.elapsed() > limit {
                return false;
            }
            std::thread::sleep(RETRY);
        }
        planted::is("hung_keeps_others") || files.iter().all(|file| file.let_go())
    }

    /// Asks a disk for its first block. The request waits for no other one of this process.
    pub fn ask(&self, pv: PvIndex) -> Question {
        let file = self.pvs.read().get(usize::from(pv.0)).map(|pv| pv.file.clone());
        file.map_or(Question::Answered, |file| Question::ask(file, self.engine))
    }

    /// Whether all of them are rotating disks.
    pub fn turn(&self) -> bool {
        self.pvs.read().iter().all(|pv| pv.turns)
    }

    /// Removes the disk that was added last: a `push` whose use failed is taken back.
    pub fn pop(&self) {
        let last = self.pvs.write().pop();
        // Closing notifies all workers: not under the lock.
        drop(last);
    }

    /// Reads the size of a disk again, and returns it. A grown disk can then be used to its new end; a shrunk disk only
    /// to its new end.
    ///
    /// # Panics
    /// If there is no such disk.
    pub fn reread_size(&self, pv: PvIndex) -> Result<u64, OpenError> {
        let path = self.pvs.read()[usize::from(pv.0)].path.clone();
        let Opened { geometry, .. } = open::open(&path, OpenMode::ReadOnly)?;
        let mut pvs = self.pvs.write();
        let known = &mut pvs[usize::from(pv.0)].geometry;
        known.size = geometry.size - geometry.size % u64::from(known.sector);
        Ok(known.size)
    }

    /// How requests reach the kernel.
    pub fn engine(&self) -> IoEngine {
        self.engine
    }

    /// The path by which a disk was opened.
    pub fn path(&self, pv: PvIndex) -> Option<PathBuf> {
        self.pvs.read().get(usize::from(pv.0)).map(|pv| pv.path.clone())
    }

    /// How a disk has behaved since it was opened.
    pub fn faults(&self, pv: PvIndex) -> Faults {
        let pvs = self.pvs.read();
        let Some(pv) = pvs.get(usize::from(pv.0)) else { return Faults::default() };
        let [reads, writes, flushes] = pv.file.failures();
        Faults { reads, writes, flushes, silent: pv.watch.silence(&pv.file), is_cut: pv.file.is_cut() }
    }

    /// Looks whether a file still has the `size` that is used of it. If not, it has failed (CF1).
    pub fn look_for_cut(&self, pv: PvIndex, size: u64) {
        let pvs = self.pvs.read();
        let Some(found) = pvs.get(usize::from(pv.0)) else { return };
        if !found.file.is_cut() && found.is_cut_before(size) {
            let error = DiskError { op: DiskOpKind::Read, pv, offset: size, errno: libc::EIO };
            found.file.failed(&error, false);
        }
    }

    /// The first failure in each range of a disk since the last call.
    pub fn new_failures(&self, pv: PvIndex) -> Vec<DiskError> {
        self.pvs.read().get(usize::from(pv.0)).map_or_else(Vec::new, |pv| pv.file.new_failures())
    }

    /// Checksums of places on the disk, which prove that it has not changed; none: nothing is proven.
    pub(crate) fn places(&self, pv: PvIndex) -> Option<Vec<Place>> {
        self.pvs.read().get(usize::from(pv.0)).and_then(|pv| pv.file.places())
    }

    /// Which file or device is open.
    pub(crate) fn stat(&self, pv: PvIndex) -> Option<rustix::fs::Stat> {
        let pvs = self.pvs.read();
        rustix::fs::fstat(pvs.get(usize::from(pv.0))?.file.as_fd()).ok()
    }

    /// The counters of a disk since it was opened.
    pub fn io(&self, pv: PvIndex) -> IoCounts {
        self.pvs.read().get(usize::from(pv.0)).map_or_else(IoCounts::default, |pv| pv.file.meter.counts())
    }

    /// A sentence for each thing that an administrator should know about the disks.
    pub fn notes(&self) -> Vec<String> {
        let pvs = self.pvs.read();
        let buffered = pvs.iter().filter(|pv| !pv.direct);
        buffered
            .map(|pv| {
                let path = pv.path.display();
                format!(
                    "{path} does not support direct I/O; it is used through the page cache, which costs memory and speed"
                )
            })
            .collect()
    }

    /// One part of a request, checked against its disk and the request's buffer. Errors are Linux error numbers.
    fn part(pvs: &[Pv], kind: DiskOpKind, piece: &Segment, capacity: usize, now: Begun) -> Result<Part, i32> {
        let pv = pvs.get(usize::from(piece.pv.0)).ok_or(libc::ENODEV)?;
        let sector = pv.geometry.sector;
        let end = piece.offset.checked_add(u64::from(piece.len)).ok_or(libc::EINVAL)?;
        if end > pv.geometry.size {
            return Err(libc::ENXIO);
        }
        let is_look_due = || kind == DiskOpKind::Write && !pv.is_device && pv.file.is_look_due(now);
        if pv.is_cut_before(if is_look_due() { end } else { 0 }) {
            return Err(libc::EIO);
        }
        let buffered = matches!(kind, DiskOpKind::Read | DiskOpKind::Write);
        let aligned = piece.offset % u64::from(sector) == 0
            && piece.len % sector == 0
            && (!buffered || piece.at % sector == 0)
            && piece.len > 0;
        if !aligned || (buffered && u64::from(piece.at) + u64::from(piece.len) > capacity as u64) {
            return Err(libc::EINVAL);
        }
        Ok(Part {
            file: pv.file.clone(),
            pv: piece.pv,
            offset: piece.offset,
            at: piece.at,
            len: piece.len,
            sector,
            device: pv.is_device,
        })
    }

    fn parts(
        &self,
        kind: DiskOpKind,
        segments: &Segments,
        capacity: usize,
        now: Begun,
    ) -> Result<SmallVec<[Part; 2]>, DiskError> {
        let pvs = self.pvs.read();
        let part = |piece: &Segment| {
            let failed = |errno| {
                let Segment { pv, offset, .. } = *piece;
                DiskError { op: kind, pv, offset, errno }
            };
            PvSet::part(&pvs, kind, piece, capacity, now).map_err(failed)
        };
        segments.iter().map(part).collect()
    }

    /// The disks that were changed since their last flush, and how many of their changes a flush covers from now on.
    fn unflushed(&self) -> (SmallVec<[Part; 2]>, Box<[u64]>) {
        let pvs = self.pvs.read();
        let whole = |(index, pv): (usize, &Pv)| {
            let covers = pv.file.unflushed()?;
            let part = Part {
                file: pv.file.clone(),
                pv: PvIndex(index as u16),
                offset: 0,
                at: 0,
                len: 0,
                sector: pv.geometry.sector,
                device: pv.is_device,
            };
            Some((part, covers))
        };
        let (parts, covers): (SmallVec<_>, Vec<_>) = pvs.iter().enumerate().filter_map(whole).unzip();
        (parts, covers.into_boxed_slice())
    }
}

/// Places that this request changes prove nothing until they are flushed.
fn begins(part: &Part, payload: &Payload) {
    match payload {
        Payload::Write(buf) => {
            let (from, to) = (part.at as usize, part.at as usize + part.len as usize);
            part.file.write_begins(part.offset, &buf.as_slice()[from..to]);
        }
        Payload::None => part.file.discard_begins(part.offset, u64::from(part.len)),
        Payload::Read(_) | Payload::Flush(_) => {}
    }
}

impl Disks for PvSet {
    fn count(&self) -> usize {
        self.pvs.read().len()
    }

    /// # Panics
    /// If there is no such disk.
    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.pvs.read()[usize::from(pv.0)].geometry
    }

    fn discards(&self, pv: PvIndex) -> DiscardLimits {
        let nothing = DiscardLimits { granularity: 0, is_whole: false };
        self.pvs.read().get(usize::from(pv.0)).map_or(nothing, |pv| pv.discards)
    }

    fn turns(&self, pv: PvIndex) -> bool {
        self.pvs.read().get(usize::from(pv.0)).is_some_and(|pv| pv.turns)
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        if self.is_mute.load(Ordering::Acquire) {
            // Dropped, it would be answered.
            return std::mem::forget((op, done));
        }
        let kind = op.kind();
        let (mut payload, segments) = match op {
            DiskOp::Read { segments, buf } => (Payload::Read(buf), segments),
            DiskOp::Write { segments, buf } => (Payload::Write(buf), segments),
            DiskOp::Discard { segments } => (Payload::None, segments),
            DiskOp::Flush => (Payload::None, Segments::new()),
        };
        let begun = Meter::now();
        let parts = match kind {
            DiskOpKind::Flush => {
                let (parts, covers) = self.unflushed();
                payload = Payload::Flush(covers);
                let cut = parts.iter().find(|part| part.file.is_cut()).map(|part| part.pv);
                cut.map_or(Ok(parts), |pv| Err(DiskError { op: kind, pv, offset: 0, errno: libc::EIO }))
            }
            _ => self.parts(kind, &segments, payload.capacity(), begun),
        };
        let request = match parts {
            Ok(parts) => {
                parts.iter().for_each(|part| begins(part, &payload));
                parts.iter().for_each(|part| part.file.meter.add());
                IoRequest { kind, parts, payload, done, begun }
            }
            Err(error) => {
                drop(payload);
                if let Some(pv) = self.pvs.read().get(usize::from(error.pv.0)) {
                    pv.file.failed(&error, pv.is_device);
                }
                return done.complete(Err(error));
            }
        };
        if request.parts.is_empty() {
            return request.finish(None);
        }
        let by_ioctl = kind == DiskOpKind::Discard && request.parts.iter().any(|part| part.device);
        if self.engine == IoEngine::Sync || by_ioctl {
            self.helpers.submit(request);
        } else {
            self.shared.submit(request);
        }
    }

    /// Rare, and possibly slow: on a separate thread.
    fn back(&self, segments: Segments, done: Completer) {
        let parts = match self.parts(DiskOpKind::Discard, &segments, 0, Meter::now()) {
            Ok(parts) => parts,
            Err(error) => return done.complete(Err(error)),
        };
        let files: Vec<Part> = parts.into_iter().filter(|part| !part.device).collect();
        if files.is_empty() {
            return done.complete(Ok(None));
        }
        let work = move || {
            let backed = files.iter().try_for_each(|part| {
                let failed = |errno: Errno| DiskError {
                    op: DiskOpKind::Write,
                    pv: part.pv,
                    offset: part.offset,
                    errno: errno.raw_os_error(),
                };
                sys::back(part.file.as_fd(), part.offset, u64::from(part.len)).map_err(failed)
            });
            // Who is answered may open the file anew.
            drop(files);
            done.complete(backed.map(|()| None));
        };
        // One that cannot be started fails the request by dropping it.
        drop(std::thread::Builder::new().name("rowen-room".into()).spawn(work));
    }
}
