//! Files that requests go to. Each has a place in every ring's table of registered files, so that a request does
//! not look its descriptor up. Promises that once the last reference is dropped no ring holds the file either:
//! an exclusive hold ends when it should.

use super::failures::Failures;
use super::mailbox::{Mailbox, Message};
use super::witness::{Place, Witness};
use super::worker;
use crate::disks::sys;
use crate::meter::{Begun, Meter, Op};
use crate::processes;
use parking_lot::Mutex;
use rowen_engine::disk::{DiskError, DiskOpKind};
use rowen_engine::planted;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Places in a ring's table. A file that finds none is used by its descriptor.
pub(crate) const SLOTS: u32 = 512;

/// The least time between two looks at a file's size, in nanoseconds: a look takes 400.
const LOOK_EVERY: u64 = 100_000;

/// The file that must be removed from its slot. This is dropped when that is done.
pub(crate) struct Forget {
    pub slot: u32,
    pub id: u64,
    _done: mpsc::Sender<()>,
}

/// Hands out slots, the same in all rings of a pool.
pub(crate) struct FileTable {
    mailboxes: Vec<Arc<Mailbox>>,
    free: Mutex<Vec<u32>>,
    next_id: AtomicU64,
}

impl FileTable {
    pub fn new(mailboxes: Vec<Arc<Mailbox>>) -> FileTable {
        FileTable { mailboxes, free: Mutex::new((0..SLOTS).rev().collect()), next_id: AtomicU64::new(1) }
    }

    pub fn adopt(self: &Arc<Self>, fd: OwnedFd) -> IoFile {
        let slot = self.free.lock().pop();
        IoFile {
            meter: Meter::for_many_threads(),
            may_hold_up: !sys::promises_no_wait(fd.as_fd()) && !planted::is("waits_in_kernel"),
            fd,
            slot,
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            // Writes of an earlier holder may not be flushed yet.
            changes: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            table: self.clone(),
            failures: Failures::default(),
            witness: Witness::default(),
            is_cut: AtomicBool::new(false),
            looked: AtomicU64::new(0),
        }
    }
}

/// An open file, shared by the requests that are under way to it.
pub(crate) struct IoFile {
    /// Counts the requests.
    pub meter: Meter,
    fd: OwnedFd,
    may_hold_up: bool,
    slot: Option<u32>,
    /// Tells this file from the one that had the slot before.
    id: u64,
    /// Changes that were completed.
    changes: AtomicU64,
    /// The number of changes that a completed flush has covered.
    durable: AtomicU64,
    table: Arc<FileTable>,
    failures: Failures,
    witness: Witness,
    is_cut: AtomicBool,
    /// When its size was looked at last, in nanoseconds of the meter's clock.
    looked: AtomicU64,
}

impl IoFile {
    /// How many requests were answered.
    pub fn answers(&self) -> u64 {
        self.meter.answers()
    }

    /// A request failed. Discards are advice, and that there is no room behind a file is not the disk's failure; a device says
    /// so of what lies beyond its end.
    pub fn failed(&self, error: &DiskError, is_device: bool) {
        let is_advice = error.op == DiskOpKind::Discard;
        if !is_advice && (is_device || !error.is_no_room()) {
            self.meter.fail(error.op.into());
            self.failures.add(error);
        }
    }

    /// Someone has made this file shorter. It stays failed, also if it is made longer again: what was cut off would read as zeros.
    pub fn note_cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    /// Whether a write that begins now looks at the size of the file. Of many writes only some do.
    pub fn is_look_due(&self, now: Begun) -> bool {
        let before = self.looked.load(Ordering::Relaxed);
        let is_due = now.nanos().saturating_sub(before) >= LOOK_EVERY;
        is_due && self.looked.compare_exchange(before, now.nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// The first of each range of failures since this was asked last.
    pub fn new_failures(&self) -> Vec<DiskError> {
        self.failures.take()
    }

    /// How many reads, writes and flushes did.
    pub fn failures(&self) -> [u64; 3] {
        [Op::Read, Op::Write, Op::Flush].map(|op| self.meter.failed(op))
    }

    /// A write of these bytes begins.
    pub fn write_begins(&self, offset: u64, bytes: &[u8]) {
        self.witness.write(offset, bytes.len() as u64, bytes);
    }

    pub fn discard_begins(&self, offset: u64, len: u64) {
        self.witness.discard(offset, len);
    }

    /// A change of the file is done, and about to be acknowledged; or failed, and some of it may be done.
    pub fn changed(&self, op: DiskOpKind, offset: u64, is_done: bool) {
        let change = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        if op == DiskOpKind::Write {
            self.witness.done(offset, is_done.then_some(change));
        }
    }

    /// How many changes a flush that is started now covers; none: those before it were flushed already.
    pub fn unflushed(&self) -> Option<u64> {
        let changes = self.changes.load(Ordering::Acquire);
        let covers = (changes > self.durable.load(Ordering::Acquire)).then_some(changes)?;
        self.witness.flush(covers);
        Some(covers)
    }

    /// The samples of the file's contents, if the file is as this process left it.
    pub fn places(&self) -> Option<Vec<Place>> {
        self.witness.places()
    }

    /// The flush that covers this many changes is done. A flush that has only begun does not count: a request that
    /// comes meanwhile needs its own flush.
    pub fn flushed(&self, changes: u64) {
        self.durable.fetch_max(changes, Ordering::AcqRel);
        self.witness.flushed(changes);
    }

    /// Waits until each worker has ended the turn in which this was called. False: a worker is stuck. Not for workers.
    pub fn await_workers(&self) -> bool {
        self.leave_rings()
    }

    /// Closes the file, without requests in flight and for good, although it may be shared: its number is that of
    /// /dev/null from then on. False: a worker is stuck, and its ring still has the file. Not for workers.
    pub fn let_go(&self) -> bool {
        self.leave_rings() && processes::replace_by_null(&[self.fd()]).is_ok()
    }

    /// Whether the kernel may have a thread that begins a request wait, for a lock that another request has: no worker may be that
    /// thread (DT4).
    pub fn may_hold_up(&self) -> bool {
        self.may_hold_up
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn slot(&self) -> Option<(u32, u64)> {
        self.slot.map(|slot| (slot, self.id))
    }
}

impl IoFile {
    /// Empties the file's slot in all rings. False: a worker is stuck, and its ring still has the file.
    fn leave_rings(&self) -> bool {
        let Some(slot) = self.slot else { return true };
        let (done, all_done) = mpsc::channel();
        let mut elsewhere = false;
        for mailbox in &self.table.mailboxes {
            let forget = Forget { slot, id: self.id, _done: done.clone() };
            if !worker::is_current(mailbox) {
                elsewhere = true;
                // A worker that has ended holds no files.
                drop(mailbox.post(Message::Forget(forget)));
            } else if let Err(forget) = worker::forget(forget) {
                drop(mailbox.post(Message::Forget(forget)));
            }
        }
        drop(done);
        // A second is far more than a turn of a worker takes; a worker that is stuck keeps the hold.
        let is_over = || all_done.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Disconnected);
        !elsewhere || worker::is_worker() || is_over()
    }
}

impl Drop for IoFile {
    fn drop(&mut self) {
        let _stuck_keeps_hold = self.leave_rings();
        if let Some(slot) = self.slot {
            self.table.free.lock().push(slot);
        }
    }
}
