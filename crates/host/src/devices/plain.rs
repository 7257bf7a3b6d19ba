//! A small [`Disks`] for labels: it carries out each request at once with pread and pwrite. It starts no thread, so a
//! command can read every known device in well under a millisecond. Volumes never use it.

use super::{Error, handed};
use crate::disks::OpenMode;
use crate::disks::open::{self, Opened};
use crate::disks::sys;
use crate::export::loopdev::LoopDevice;
use rowen_engine::disk::{
    Completer, DiskError, DiskOp, DiskOpKind, DiskResult, Disks, PvGeometry, PvIndex, Segment, Segments,
};
use rustix::fs::{FallocateFlags, FileType};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::future::Future;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// How long a process that has ended may still hold a disk.
pub const LETTING_GO: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(5);

/// An open file or block device. Opened with [`OpenMode::Exclusive`], it is held until this is dropped.
#[derive(Debug)]
pub struct Plain {
    pub path: PathBuf,
    pub geometry: PvGeometry,
    pub identity: Identity,
    turns: bool,
    direct: bool,
    file: File,
}

/// What makes two paths the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Identity {
    Block(u64),
    File(u64, u64),
}

impl Identity {
    /// The identity of the file or block device at `path`; nothing else has one.
    pub fn of(path: &Path) -> Option<Identity> {
        let stat = rustix::fs::stat(path).ok()?;
        Identity::of_stat(&stat)
    }

    /// Of a block device: a number that distinguishes it from earlier devices with the same numbers since the boot.
    pub(crate) fn appearance(self) -> Option<u64> {
        let Identity::Block(device) = self else { return None };
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        LoopDevice::sequence_of(major, minor)
    }

    /// Of an open one.
    pub(crate) fn of_stat(stat: &rustix::fs::Stat) -> Option<Identity> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Some(Identity::Block(stat.st_rdev)),
            FileType::RegularFile => Some(Identity::File(stat.st_dev, stat.st_ino)),
            _ => None,
        }
    }
}

impl Plain {
    /// Opens `path` in this process, which may hang: for helpers only. Others use [`handed::open`].
    pub fn open_here(path: &Path, mode: OpenMode) -> Result<Plain, Error> {
        Plain::of(path, open::open(path, mode)?)
    }

    /// What was opened by this path.
    pub fn of(path: &Path, opened: Opened) -> Result<Plain, Error> {
        let Opened { fd, geometry, turns, direct, .. } = opened;
        let stat =
            rustix::fs::fstat(&fd).map_err(|e| Error::Io { path: path.to_owned(), what: "read", source: e.into() })?;
        let identity = Identity::of_stat(&stat).ok_or_else(|| Error::Io {
            path: path.to_owned(),
            what: "read",
            source: std::io::ErrorKind::InvalidInput.into(),
        })?;
        Ok(Plain { path: path.to_owned(), geometry, identity, turns, direct, file: fd.into() })
    }

    /// The open file, for who serves it.
    pub fn into_opened(self) -> Opened {
        let is_device = matches!(self.identity, Identity::Block(_));
        Opened { fd: self.file.into(), geometry: self.geometry, is_device, turns: self.turns, direct: self.direct }
    }

    /// Opens `path` exclusively for writing. Retries for a moment: a server that has ended holds its disks until the
    /// kernel has removed its rings.
    pub fn hold(path: &Path) -> Result<Plain, Error> {
        let begun = Instant::now();
        loop {
            match handed::open(path, OpenMode::Exclusive) {
                Err(Error::Open(e)) if e.may_pass(begun.elapsed(), LETTING_GO) => std::thread::sleep(RETRY),
                outcome => return outcome,
            }
        }
    }

    /// Reads `buf.len()` bytes at `offset`, both multiples of the sector, into an aligned buffer.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    /// Writes an aligned buffer at `offset`, both multiples of the sector.
    pub fn write(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    /// Whether the device, or the filesystem that the file is on, takes no writes.
    pub fn is_read_only(&self) -> bool {
        match self.identity {
            Identity::Block(_) => sys::device_is_read_only(self.file.as_fd()).unwrap_or(false),
            Identity::File(..) => rustix::fs::fstatvfs(&self.file)
                .is_ok_and(|on| on.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)),
        }
    }

    /// Makes what was written durable.
    pub fn flush(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            done => done,
        }
    }
}

impl Plain {
    /// See [`Disks::back`].
    fn back(&self, segment: &Segment) -> Result<(), DiskError> {
        let Segment { pv, offset, len, .. } = *segment;
        if matches!(self.identity, Identity::Block(_)) {
            return Ok(());
        }
        let failed = |e: Errno| DiskError { op: DiskOpKind::Write, pv, offset, errno: e.raw_os_error() };
        sys::back(self.file.as_fd(), offset, u64::from(len)).map_err(failed)
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Several open devices as the engine sees them.
pub struct PlainDisks(pub Vec<Plain>);

impl PlainDisks {
    fn run(&self, op: DiskOp) -> DiskResult {
        let kind = op.kind();
        let failed = |segment: &Segment, errno: Errno| DiskError {
            op: kind,
            pv: segment.pv,
            offset: segment.offset,
            errno: errno.raw_os_error(),
        };
        let span = |segment: &Segment| segment.at as usize..segment.at as usize + segment.len as usize;
        match op {
            DiskOp::Read { segments, mut buf } => {
                for segment in &segments {
                    let part = &mut buf.as_mut_slice()[span(segment)];
                    self.device(segment).read(part, segment.offset).map_err(|e| failed(segment, errno(&e)))?;
                }
                Ok(Some(buf))
            }
            DiskOp::Write { segments, buf } => {
                for segment in &segments {
                    let part = &buf.as_slice()[span(segment)];
                    self.device(segment).write(part, segment.offset).map_err(|e| failed(segment, errno(&e)))?;
                }
                Ok(None)
            }
            DiskOp::Flush => {
                for (index, device) in self.0.iter().enumerate() {
                    device.flush().map_err(|e| DiskError {
                        op: DiskOpKind::Flush,
                        pv: PvIndex(index as u16),
                        offset: 0,
                        errno: errno(&e).raw_os_error(),
                    })?;
                }
                Ok(None)
            }
            DiskOp::Discard { segments } => {
                for segment in &segments {
                    let len = u64::from(segment.len);
                    self.device(segment).discard(segment.offset, len).map_err(|e| failed(segment, e))?;
                }
                Ok(None)
            }
        }
    }

    fn device(&self, segment: &Segment) -> &Plain {
        &self.0[usize::from(segment.pv.0)]
    }
}

impl Disks for PlainDisks {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.0[usize::from(pv.0)].geometry
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        done.complete(self.run(op));
    }

    fn back(&self, segments: Segments, done: Completer) {
        let backed = segments.iter().try_for_each(|segment| self.device(segment).back(segment));
        done.complete(backed.map(|()| None));
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `future` on this thread. Over [`PlainDisks`] it never has to wait.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
