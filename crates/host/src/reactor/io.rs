//! A disk request as the workers carry it: its parts, its buffer and its completion.

use super::file::IoFile;
use crate::disks::sys;
use crate::meter::Begun;
use rowen_engine::disk::{Completer, DiskError, DiskOpKind, PageBuf, PvIndex};
use smallvec::SmallVec;
use std::sync::Arc;

/// One contiguous piece on one file.
pub(crate) struct Part {
    pub file: Arc<IoFile>,
    pub pv: PvIndex,
    pub offset: u64,
    /// The offset in the buffer.
    pub at: u32,
    pub len: u32,
    /// The file's sector size: a transfer that stops within a sector met the end of a damaged file.
    pub sector: u32,
    /// The file is a block device.
    pub device: bool,
}

/// The memory that a request reads into or writes from.
pub(crate) enum Payload {
    None,
    Read(PageBuf),
    Write(Arc<PageBuf>),
    /// No memory, but the changes that a flush covers: for each part the number of its file's changes.
    Flush(Box<[u64]>),
}

impl Payload {
    pub fn capacity(&self) -> usize {
        match self {
            Payload::None | Payload::Flush(_) => 0,
            Payload::Read(buf) => buf.capacity(),
            Payload::Write(buf) => buf.capacity(),
        }
    }
}

/// A request whose ranges were checked against the files and the buffer.
pub(crate) struct IoRequest {
    pub kind: DiskOpKind,
    pub parts: SmallVec<[Part; 2]>,
    pub payload: Payload,
    pub done: Completer,
    pub begun: Begun,
}

impl IoRequest {
    /// Notes what it changed or made durable, gives back the buffer and the files, then the answer.
    pub fn finish(self, error: Option<DiskError>) {
        let IoRequest { kind, parts, payload, done, begun: _ } = self;
        if matches!(kind, DiskOpKind::Write | DiskOpKind::Discard) {
            // Also when it failed: some of it may be done.
            parts.iter().for_each(|part| part.file.changed(kind, part.offset, error.is_none()));
        }
        if let (Payload::Flush(covers), None) = (&payload, &error) {
            parts.iter().zip(covers).for_each(|(part, changes)| part.file.flushed(*changes));
        }
        if let Some(error) = &error
            && let Some(part) = parts.iter().find(|part| part.pv == error.pv)
        {
            part.file.failed(error, part.device);
        }
        drop(parts);
        let buf = match payload {
            Payload::Read(buf) => Some(buf),
            Payload::Write(buf) => {
                drop(buf);
                None
            }
            Payload::None | Payload::Flush(_) => None,
        };
        done.complete(match error {
            Some(error) => Err(error),
            None => Ok(buf),
        });
    }
}

impl Part {
    /// It failed. A request has one error: the other physical volumes that it meets are known here alone.
    pub fn fails(&self, error: DiskError, first: &mut Option<DiskError>) {
        match first {
            None => *first = Some(error),
            Some(first) if first.pv == error.pv => {}
            Some(_) => self.file.failed(&error, self.device),
        }
    }

    /// Counts a part that is answered: its file's failures are judged when the whole request is.
    pub fn count(&self, kind: DiskOpKind, begun: Begun, is_done: bool) {
        let bytes = if is_done { u64::from(self.len) } else { 0 };
        self.file.meter.end(kind.into(), begun, Some(bytes));
    }

    /// Whether this device ends before the part does, although it was larger when it was opened.
    fn is_cut_off(&self) -> bool {
        let end = self.offset + u64::from(self.len);
        self.device && sys::device_size(self.file.as_fd()).is_ok_and(|size| size < end)
    }
}

/// The meaning of a transfer's result for its part.
pub(crate) enum Progress {
    Done,
    /// This many bytes are done; continue from there.
    Continue(u32),
    Failed(i32),
}

/// Judges a result of the kernel (bytes or a negative error number) after `before` bytes of `part` were done.
pub(crate) fn progress(kind: DiskOpKind, part: &Part, before: u32, result: i32) -> Progress {
    if result < 0 {
        return match -result {
            libc::EINTR | libc::EAGAIN => Progress::Continue(before),
            // "No space" from a device that has become smaller: room will never come.
            libc::ENOSPC if part.is_cut_off() => Progress::Failed(libc::EIO),
            errno => Progress::Failed(errno),
        };
    }
    if matches!(kind, DiskOpKind::Flush | DiskOpKind::Discard) {
        return Progress::Done;
    }
    let after = before.saturating_add(result as u32);
    if after >= part.len {
        Progress::Done
    } else if result == 0 || after % part.sector != 0 {
        // It ends inside the request although it was longer when it was opened.
        if !part.device {
            part.file.note_cut();
        }
        Progress::Failed(libc::EIO)
    } else {
        Progress::Continue(after)
    }
}
