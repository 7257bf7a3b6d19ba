//! A worker's io_uring. It owns every request that the kernel has, with the memory that the kernel reads and writes:
//! nothing is released before its completion was seen. Scattered requests go to the kernel almost at once, adjacent
//! ones together. One `io_uring_enter` per turn submits all others and collects completions.

use super::file::{Forget, IoFile, SLOTS};
use super::io::{IoRequest, Payload, Progress, progress};
use super::mailbox::Mailbox;
use super::ready::PollCell;
use super::reply::{Reply, ReplyCell};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rowen_engine::disk::{DiskError, DiskOpKind};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// Entries queued between two turns; more wait in a list of our own.
const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 4096;
/// From linux/io_uring.h: `io_uring_enter` is to collect completions, and its argument is extended.
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
/// The number of scattered transfers that are submitted together. Keeping all transfers of a turn until its end cost a
/// fifth of the throughput at a depth of 32 (decision 0002). Adjacent transfers do wait for each other, so that the
/// block layer can merge them.
const EAGER: usize = 2;
/// A transfer of at least this many bytes is submitted at once. It gains nothing from a neighbour, and the disk can
/// work while the worker prepares the next one.
const LARGE: u32 = 256 << 10;
/// Completions that belong to no request: the bell, and those that are ignored.
const BELL: u64 = u64::MAX;
const IGNORED: u64 = u64::MAX - 1;
/// How often the kernel may say "try again" to one transfer without any progress.
const MAX_TRIES: u16 = 1000;
/// FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
const PUNCH: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;

/// How long a turn may wait when nothing is runnable.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    No,
    Until(Option<Duration>),
}

/// A finished request and its error, to be delivered when the driver is not borrowed any more.
pub(crate) type Finished = (IoRequest, Option<DiskError>);

/// The worker's tasks after a turn, collected so that no foreign code runs inside the driver.
#[derive(Default)]
pub(crate) struct Completions {
    pub finished: Vec<Finished>,
    pub polled: Vec<(Arc<PollCell>, i32)>,
    pub replied: Vec<(Arc<ReplyCell>, Reply, i32)>,
}

struct Active {
    request: IoRequest,
    /// Start of the buffer; null without one.
    base: *mut u8,
    left: u32,
    error: Option<DiskError>,
}

enum Entry {
    Part { request: u32, part: u32, done: u32, tries: u16 },
    Poll(Arc<PollCell>),
    Reply(Box<Replying>),
}

/// A reply that is with the kernel, which reads `iov` and what it points to.
struct Replying {
    reply: Reply,
    iov: [libc::iovec; 2],
    cell: Arc<ReplyCell>,
}

pub(crate) struct Ring {
    ring: IoUring,
    mailbox: Arc<Mailbox>,
    /// Replies of this turn, which go out after its disk requests.
    replies: Vec<squeue::Entry>,
    /// Replies that are with the kernel, or about to be.
    replying: usize,
    backlog: VecDeque<squeue::Entry>,
    /// The end of the transfer that was queued last.
    tail: Option<(RawFd, u64)>,
    active: Slab<Active>,
    entries: Slab<Entry>,
    /// Which file each slot of the ring's table holds: 0 none. Empty when the kernel has no table.
    registered: Vec<u64>,
    deferred: bool,
    /// Poll requests fire repeatedly until they are cancelled (Linux 5.13).
    multishot: bool,
}

impl Ring {
    /// To be called on the worker's own thread: the kernel binds the ring to the thread that makes it.
    pub fn new(mailbox: Arc<Mailbox>) -> io::Result<Ring> {
        let deferred = IoUring::builder()
            .setup_clamp()
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSIONS);
        let (ring, deferred) = match deferred {
            Ok(ring) => (ring, true),
            // Linux before 6.1 does not know these flags.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                (IoUring::builder().setup_clamp().setup_cqsize(COMPLETIONS).build(SUBMISSIONS)?, false)
            }
            Err(e) => return Err(e),
        };
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let registered = match ring.submitter().register_files(&[-1; SLOTS as usize]) {
            Ok(()) => vec![0; SLOTS as usize],
            Err(_) => Vec::new(),
        };
        let mut new = Ring {
            ring,
            mailbox,
            replies: Vec::new(),
            replying: 0,
            backlog: VecDeque::new(),
            tail: None,
            active: Slab::new(),
            entries: Slab::new(),
            registered,
            deferred,
            multishot: true,
        };
        new.watch_bell();
        Ok(new)
    }

    /// Requests and replies that are with the kernel.
    pub fn busy(&self) -> bool {
        !self.active.is_empty() || self.replying > 0
    }

    /// Sends a reply at the end of this turn.
    pub fn reply(&mut self, reply: Reply, cell: Arc<ReplyCell>) {
        let iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];
        let mut replying = Box::new(Replying { reply, iov, cell });
        let Replying { reply, iov, .. } = &mut *replying;
        for (iov, part) in iov.iter_mut().zip(reply.parts()) {
            // The kernel only reads from here.
            *iov = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        }
        let entry = opcode::Writev::new(types::Fd(reply.fd()), iov.as_ptr(), iov.len() as u32);
        let key = self.entries.insert(Entry::Reply(replying));
        self.replies.push(entry.build().user_data(key as u64));
        self.replying += 1;
    }

    /// Starts a request. Everything it names stays where it is until the kernel is done.
    pub fn start(&mut self, mut request: IoRequest) {
        let base = match &mut request.payload {
            Payload::None | Payload::Flush(_) => std::ptr::null_mut(),
            Payload::Read(buf) => buf.as_mut_slice().as_mut_ptr(),
            // The kernel only reads from here.
            Payload::Write(buf) => buf.as_slice().as_ptr().cast_mut(),
        };
        let parts = request.parts.len() as u32;
        let number = self.active.insert(Active { request, base, left: parts, error: None }) as u32;
        for part in 0..parts {
            let key = self.entries.insert(Entry::Part { request: number, part, done: 0, tries: 0 });
            self.push_part(key);
        }
    }

    /// Watches a descriptor until it is readable; the answer comes through `cell`.
    pub fn watch(&mut self, fd: RawFd, cell: Arc<PollCell>) -> usize {
        let key = self.entries.insert(Entry::Poll(cell));
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build().user_data(key as u64);
        self.push(entry);
        key
    }

    pub fn cancel_watch(&mut self, key: usize, cell: &Arc<PollCell>) {
        // The number may be another's by now: the watch may have fired before the cancellation arrived.
        if matches!(self.entries.get(key), Some(Entry::Poll(mine)) if Arc::ptr_eq(mine, cell)) {
            self.push(opcode::PollRemove::new(key as u64).build().user_data(IGNORED));
        }
    }

    pub fn forget(&mut self, forget: &Forget) {
        let Some(id) = self.registered.get_mut(forget.slot as usize) else { return };
        if *id == forget.id {
            *id = 0;
            // Cannot fail for a slot of the table; if it did, the hold would end with the ring.
            let _ = self.ring.submitter().register_files_update(forget.slot, &[-1]);
        }
    }

    /// One round trip to the kernel, or none if there is nothing to submit and nothing to collect.
    pub fn turn(&mut self, mut wait: Wait, completions: &mut Completions) {
        for entry in std::mem::take(&mut self.replies) {
            self.push(entry);
        }
        loop {
            self.fill();
            let (queued, is_notified) = {
                let submission = self.ring.submission();
                (submission.len(), submission.taskrun() || submission.cq_overflow())
            };
            let collected = !self.ring.completion().is_empty();
            match wait {
                Wait::Until(limit) if !collected => self.enter(queued as u32, 1, limit),
                _ if queued > 0 || is_notified => self.enter(queued as u32, 0, None),
                _ => {}
            }
            self.collect(completions);
            if self.backlog.is_empty() {
                return;
            }
            // Collected work must not wait for requests that are only now submitted.
            wait = Wait::No;
        }
    }

    fn enter(&mut self, submit: u32, want: u32, limit: Option<Duration>) {
        let timespec = limit.map(|d| types::Timespec::new().sec(d.as_secs()).nsec(d.subsec_nanos()));
        let mut args = types::SubmitArgs::new();
        if let Some(timespec) = &timespec {
            args = args.timespec(timespec);
        }
        let mut flags = ENTER_EXT_ARG;
        if want > 0 || self.deferred {
            flags |= ENTER_GETEVENTS;
        }
        // SAFETY: all queued entries point to memory that `active` keeps until their completion, and `args` and
        // what it points to outlive the call.
        let result = unsafe { self.ring.submitter().enter(submit, want, flags, Some(&args)) };
        if let Err(e) = result {
            match e.raw_os_error() {
                // The time is up, a signal came, or completions have to be collected first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("the kernel refused io_uring_enter: {e}"),
            }
        }
    }

    /// Submits what is queued, without collecting anything.
    fn submit(&mut self, queued: usize) {
        // SAFETY: as in `enter`. What the kernel does not take now stays queued, and the turn's end sees any error.
        let _ = unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued as u32, 0, 0, None) };
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: what the entry points to is kept in `active` until its completion.
        if !self.backlog.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    fn fill(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        let mut submission = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { submission.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    fn watch_bell(&mut self) {
        let poll = opcode::PollAdd::new(types::Fd(self.mailbox.bell()), libc::POLLIN as u32).multi(self.multishot);
        self.push(poll.build().user_data(BELL));
    }

    fn push_part(&mut self, key: usize) {
        let Entry::Part { request, part, done, .. } = self.entries[key] else { return };
        let active = &self.active[request as usize];
        let part = &active.request.parts[part as usize];
        let slot = slot_of(&self.ring, &mut self.registered, &part.file);
        let (offset, len) = (part.offset + u64::from(done), part.len - done);
        // Only transfers have a buffer; the others never form an address.
        let memory = active.base.wrapping_add(part.at as usize + done as usize);
        let fd = types::Fd(part.file.fd());
        macro_rules! on_file {
            (|$fd:ident| $entry:expr) => {
                match slot {
                    Some(slot) => {
                        let $fd = types::Fixed(slot);
                        $entry
                    }
                    None => {
                        let $fd = fd;
                        $entry
                    }
                }
            };
        }
        let mut entry = match active.request.kind {
            DiskOpKind::Read => on_file!(|fd| opcode::Read::new(fd, memory, len).offset(offset).build()),
            DiskOpKind::Write => on_file!(|fd| opcode::Write::new(fd, memory, len).offset(offset).build()),
            DiskOpKind::Flush => on_file!(|fd| opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build()),
            DiskOpKind::Discard => {
                on_file!(|fd| opcode::Fallocate::new(fd, u64::from(len)).offset(offset).mode(PUNCH).build())
            }
        };
        if part.file.may_hold_up() {
            entry = entry.flags(squeue::Flags::ASYNC);
        }
        let follows = self.tail == Some((part.file.fd(), offset));
        self.tail = Some((part.file.fd(), offset + u64::from(len)));
        let queued = self.ring.submission().len();
        if queued >= EAGER && !follows {
            self.submit(queued);
        }
        self.push(entry.user_data(key as u64));
        if len >= LARGE {
            let queued = self.ring.submission().len();
            self.submit(queued);
        }
    }

    fn collect(&mut self, completions: &mut Completions) {
        loop {
            let Some(done) = self.ring.completion().next() else { return };
            match done.user_data() {
                BELL => self.bell_rang(&done),
                IGNORED => {}
                key => self.completed(key as usize, done.result(), completions),
            }
        }
    }

    fn bell_rang(&mut self, done: &cqueue::Entry) {
        if done.result() == -libc::EINVAL && self.multishot {
            self.multishot = false;
            self.watch_bell();
        } else if !cqueue::more(done.flags()) {
            self.mailbox.silence();
            self.watch_bell();
        }
    }

    fn completed(&mut self, key: usize, result: i32, completions: &mut Completions) {
        let (request, part, before, tries) = match &self.entries[key] {
            Entry::Part { request, part, done, tries } => (*request, *part, *done, *tries),
            Entry::Reply(_) | Entry::Poll(_) => {
                match self.entries.remove(key) {
                    Entry::Reply(done) => {
                        self.replying -= 1;
                        completions.replied.push((done.cell, done.reply, result));
                    }
                    Entry::Poll(cell) => completions.polled.push((cell, result)),
                    Entry::Part { .. } => unreachable!("it was looked at just now"),
                }
                return;
            }
        };
        let active = &mut self.active[request as usize];
        let spec = &active.request.parts[part as usize];
        let kind = active.request.kind;
        let mut outcome = progress(kind, spec, before, result);
        if tries == MAX_TRIES && matches!(outcome, Progress::Continue(after) if after == before) {
            outcome = Progress::Failed(libc::EAGAIN);
        }
        match outcome {
            Progress::Continue(done) => {
                let tries = if done == before { tries + 1 } else { 0 };
                self.entries[key] = Entry::Part { request, part, done, tries };
                self.push_part(key);
                return;
            }
            Progress::Failed(errno) => {
                let offset = spec.offset + u64::from(before);
                spec.fails(DiskError { op: kind, pv: spec.pv, offset, errno }, &mut active.error);
            }
            Progress::Done => {}
        }
        spec.count(kind, active.request.begun, matches!(outcome, Progress::Done));
        self.entries.remove(key);
        active.left -= 1;
        if active.left == 0 {
            let Active { request, error, .. } = self.active.remove(request as usize);
            completions.finished.push((request, error));
        }
    }
}

/// The file's place in the ring's table, where it is put at its first request.
fn slot_of(ring: &IoUring, registered: &mut [u64], file: &IoFile) -> Option<u32> {
    let (slot, id) = file.slot()?;
    let held = registered.get_mut(slot as usize)?;
    if *held != id {
        if ring.submitter().register_files_update(slot, &[file.fd()]).is_err() {
            return None;
        }
        *held = id;
    }
    Some(slot)
}
