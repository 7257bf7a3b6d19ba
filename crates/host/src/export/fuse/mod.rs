//! A volume as one file: Rowen's own FUSE transport.
//!
//! One connection per volume, one file descriptor per connection, mounted on a regular file: no directory, no names, a
//! dozen kinds of request. One task on one worker reads requests and starts a task for each; data is read from and
//! written to the kernel straight out of the page-aligned buffers that go to the disks.
//!
//! What it promises:
//!
//! * FU1 Each request is answered exactly once, with its own number.
//! * FU2 It keeps no state about the kernel's side. A successor with the descriptor can take over at any point, after
//!   it asks for the unanswered requests again ([`mount::resend`]). A write may then be carried out twice.
//! * FU3 When [`Connection::serve`] returns, no request is in flight and the descriptor is no longer used.
//! * FU4 No request from the kernel can end the process.
//! * FU5 Who only looks at the file's attributes waits for no server. The kernel keeps them, and forgets them when the
//!   volume's size changes.

pub mod abi;
pub mod budget;
pub mod buffers;
#[cfg(test)]
mod connection_test;
pub mod mount;
pub mod request;
#[cfg(test)]
mod request_test;

use super::target::{CLOSED, Errno, HANDED_ON, Target};
use crate::meter::{Begun, Meter, Op};
use crate::planted;
use crate::reactor::{REPLY_HEAD, Reply, readable, softirq_raised};
use budget::{Budget, Permit, Share};
use buffers::{Buffers, Class, Data, LARGE, SMALL};
use parking_lot::Mutex;
use request::{Args, Request};
use rowen_control::protocol::IoCounts;
use rowen_engine::disk::PageBuf;
use rowen_engine::runtime::Runtime;
use rowen_engine::runtime::yield_now;
use rustix::io::Errno as Sys;
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Bytes in the largest READ or WRITE.
pub const MAX_WRITE: usize = 1 << 20;
/// For how long the kernel keeps attributes.
const KEPT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Requests that are read before other tasks of the worker run: their disk requests go out with one system call.
const BATCH: usize = 32;
/// The same in bytes. To copy a request of 1 MiB out of the kernel takes a large part of the time in which a disk writes it: the
/// disk does not wait for the copies of others.
const BATCH_BYTES: usize = 128 << 10;

/// One volume's connection to the kernel.
pub struct Connection {
    fd: Arc<OwnedFd>,
    target: Arc<dyn Target>,
    buffers: Arc<Buffers>,
    share: Arc<Share>,
    under_way: UnderWay,
    stop: Stop,
    meter: Arc<Meter>,
}

/// The memory for requests, of all connections of a process.
#[derive(Clone, Default)]
pub struct Memory {
    buffers: Arc<Buffers>,
    pub budget: Arc<Budget>,
}

/// Where the next request lands. The split makes a WRITE's data start on a page, whatever its length: data of up to
/// [`SMALL`] bytes fills `small` alone; of longer data, `large` has all but the first [`SMALL`] bytes in place.
struct Inbox {
    permit: Permit,
    head: [u8; abi::WRITE_HEADER],
    small: PageBuf,
    large: PageBuf,
}

impl Connection {
    /// Serves `target` through `fd`, with memory of `memory`, and counts with `meter`.
    pub fn new(fd: Arc<OwnedFd>, target: Arc<dyn Target>, memory: &Memory, meter: Arc<Meter>) -> Arc<Connection> {
        Arc::new(Connection {
            fd,
            share: memory.budget.share(target.pool()),
            target,
            buffers: memory.buffers.clone(),
            under_way: UnderWay::default(),
            stop: Stop::default(),
            meter,
        })
    }

    /// The volume that is served.
    pub fn target(&self) -> &dyn Target {
        &*self.target
    }

    /// The counters of the volume.
    pub fn counts(&self) -> IoCounts {
        self.meter.counts()
    }

    /// Makes [`Connection::serve`] stop reading requests and return. Later requests wait for a successor, and so do
    /// requests that a closed volume did not carry out.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Serves until the file is unmounted, or [`Connection::stop`]. Must run on a worker; `runtime` starts further
    /// tasks.
    pub async fn serve(self: Arc<Self>, runtime: Arc<dyn Runtime>) -> io::Result<()> {
        let outcome = self.receive_all(&runtime).await;
        if !planted::is("ends_under_way") {
            self.under_way.none_left().await;
        }
        outcome
    }

    async fn receive_all(self: &Arc<Self>, runtime: &Arc<dyn Runtime>) -> io::Result<()> {
        let mut inbox = None;
        let (mut turn, mut copied) = (0, 0);
        let mut alone = false;
        while !self.stop.is_stopped() {
            let open = match &mut inbox {
                Some(open) => open,
                None => match self.stop.or(self.open_inbox()).await? {
                    Some(open) => inbox.insert(open),
                    None => return Ok(()),
                },
            };
            // After a single request there is rarely another one. So its disk requests go first, and the same system
            // call polls for the next request.
            let received = if std::mem::take(&mut alone) { Err(Sys::AGAIN) } else { self.receive(open) };
            match received {
                Ok(len) => {
                    copied += len;
                    self.accept(&mut inbox, len, runtime);
                    alone = self.under_way.is_one();
                    if alone {
                        yield_now().await;
                    }
                }
                Err(Sys::AGAIN) => {
                    // An idle volume holds no buffers.
                    inbox.take().into_iter().for_each(|inbox| self.return_inbox(inbox));
                    if self.stop.or(readable(self.fd.as_raw_fd())).await?.is_none() {
                        return Ok(());
                    }
                    (turn, copied) = (0, 0);
                }
                // Withdrawn before it was read.
                Err(Sys::NOENT | Sys::INTR) => {}
                // Unmounted.
                Err(Sys::NODEV) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            turn += 1;
            if turn == BATCH || (copied >= BATCH_BYTES && !planted::is("batch_of_any_size")) {
                (turn, copied) = (0, 0);
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Waits for memory for the next request.
    async fn open_inbox(&self) -> io::Result<Inbox> {
        let permit = self.share.take(SMALL + LARGE).await;
        Ok(Inbox {
            permit,
            head: [0; abi::WRITE_HEADER],
            small: self.buffers.take(Class::Small),
            large: self.buffers.take(Class::Large),
        })
    }

    fn return_inbox(&self, inbox: Inbox) {
        self.buffers.give(Class::Small, inbox.small);
        self.buffers.give(Class::Large, inbox.large);
    }

    fn receive(&self, inbox: &mut Inbox) -> rustix::io::Result<usize> {
        let mut parts = [
            IoSliceMut::new(&mut inbox.head),
            IoSliceMut::new(&mut inbox.small.as_mut_slice()[..SMALL]),
            IoSliceMut::new(&mut inbox.large.as_mut_slice()[SMALL..MAX_WRITE]),
        ];
        rustix::io::readv(&*self.fd, &mut parts)
    }

    /// Starts the request in the inbox. Leaves the inbox ready for the next, or none if there is no memory for that.
    fn accept(self: &Arc<Self>, full: &mut Option<Inbox>, len: usize, runtime: &Arc<dyn Runtime>) {
        let Some(inbox) = full.as_ref().filter(|_| len >= abi::IN_HEADER) else { return };
        let header: abi::InHeader = bytemuck::pod_read_unaligned(&inbox.head[..abi::IN_HEADER]);
        let mut args = [0u8; abi::MAX_ARGS];
        let (direct, spilled) = args.split_at_mut(abi::WRITE_HEADER - abi::IN_HEADER);
        direct.copy_from_slice(&inbox.head[abi::IN_HEADER..]);
        spilled.copy_from_slice(&inbox.small.as_slice()[..spilled.len()]);
        let args = Args::new(&args[..(len - abi::IN_HEADER).min(abi::MAX_ARGS)]);
        let data = len.saturating_sub(abi::WRITE_HEADER);
        let request = request::parse(header.opcode, &args, data);
        let unique = header.unique;
        let Some(op) = op_of(&request) else { return self.answer_at_once(unique, request) };
        let begun = self.meter.begin();
        if let Err(errno) = self.admit(&request) {
            self.meter.end(op, begun, None);
            if !planted::is("refused_silently") {
                self.answer_now(unique, Err(errno), &[]);
            }
            return;
        }
        match request {
            Request::Write { offset, len } => {
                let Some(data) = self.take_data(full, len as usize) else { return };
                let this = self.clone();
                self.start(runtime, async move { this.write(unique, begun, (offset, len), data).await });
            }
            Request::Read { offset, len } => {
                let this = self.clone();
                self.start(runtime, async move { this.read(unique, begun, offset, len).await });
            }
            _ => {
                let this = self.clone();
                self.start(runtime, async move { this.change(unique, begun, op, request).await });
            }
        }
    }

    /// Refuses what the volume cannot do, before anything is started.
    fn admit(&self, request: &Request) -> Result<(), Errno> {
        let (offset, len, changes) = match *request {
            Request::Read { offset, len } => {
                // A read may reach past the end: what there is comes back.
                let len = u64::from(len).min(self.target.size().saturating_sub(offset));
                (if len == 0 { 0 } else { offset }, len, false)
            }
            Request::Write { offset, len } => (offset, u64::from(len), true),
            Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => (offset, len, true),
            _ => return Ok(()),
        };
        if changes && self.target.read_only() {
            return Err(libc::EROFS);
        }
        if planted::is("any_range") {
            return Ok(());
        }
        request::check_range(offset, len, self.target.size(), self.target.sector())
    }

    /// Takes a WRITE's data out of the inbox. If there is no memory for another buffer, the inbox goes with it.
    fn take_data(&self, full: &mut Option<Inbox>, len: usize) -> Option<Data> {
        let class = Class::of(len);
        let mut inbox = full.take()?;
        if class == Class::Large {
            inbox.large.as_mut_slice()[..SMALL].copy_from_slice(&inbox.small.as_slice()[..SMALL]);
        }
        if let Some(permit) = self.share.try_take(class.size()) {
            let place = if class == Class::Small { &mut inbox.small } else { &mut inbox.large };
            let buf = std::mem::replace(place, self.buffers.take(class));
            *full = Some(inbox);
            return Some(Data { buf, class, permit });
        }
        let Inbox { mut permit, small, large, .. } = inbox;
        let (buf, (rest, of)) = match class {
            Class::Small => (small, (large, Class::Large)),
            Class::Large => (large, (small, Class::Small)),
        };
        self.buffers.give(of, rest);
        permit.shrink(class.size());
        Some(Data { buf, class, permit })
    }

    fn start(self: &Arc<Self>, runtime: &Arc<dyn Runtime>, request: impl Future<Output = ()> + Send + 'static) {
        self.under_way.add();
        let this = self.clone();
        runtime.spawn(
            "fuse request",
            Box::pin(async move {
                request.await;
                this.under_way.remove();
            }),
        );
    }

    async fn write(&self, unique: u64, begun: Begun, (offset, len): (u64, u32), data: Data) {
        let Data { buf, class, permit } = data;
        let buf = Arc::new(buf);
        let outcome = self.target.write(offset, len, buf.clone()).await;
        self.count(Op::Write, begun, outcome.map(|()| len.into()));
        self.answer(unique, outcome, &abi::WriteOut { size: len, pad: 0 }).await;
        // A failed write may still be held by the disk; such a buffer is freed by its last holder.
        if let Some(buf) = Arc::into_inner(buf) {
            self.buffers.give(class, buf);
        }
        drop(permit);
    }

    async fn read(&self, unique: u64, begun: Begun, offset: u64, len: u32) {
        let len = u64::from(len).min(self.target.size().saturating_sub(offset)) as u32;
        if len == 0 {
            self.count(Op::Read, begun, Ok(0));
            return self.answer_now(unique, Ok(()), &[]);
        }
        let class = Class::of(len as usize);
        let permit = self.share.take(class.size()).await;
        match self.target.read(offset, len, self.buffers.take(class)).await {
            Ok(buf) => {
                self.count(Op::Read, begun, Ok(len.into()));
                let header = abi::OutHeader::answer(unique, len as usize);
                let reply = Reply::new(self.fd.clone(), bytemuck::bytes_of(&header), Some((buf, len as usize)));
                if let Some(buf) = self.send(unique, reply).await {
                    self.buffers.give(class, buf);
                }
            }
            Err(errno) => {
                self.count(Op::Read, begun, Err(errno));
                self.answer(unique, Err(errno), &()).await;
            }
        }
        drop(permit);
    }

    async fn change(&self, unique: u64, begun: Begun, op: Op, request: Request) {
        let (bytes, outcome) = match request {
            Request::Discard { offset, len } => (len, self.target.discard(offset, len).await),
            Request::WriteZeroes { offset, len } => (len, self.target.write_zeroes(offset, len).await),
            _ => (0, self.target.flush().await),
        };
        self.count(op, begun, outcome.map(|()| bytes));
        self.answer(unique, outcome, &()).await;
    }

    /// Whether the kernel is to ask the successor.
    fn is_handed_on(&self, errno: Errno) -> bool {
        errno == HANDED_ON || (errno == CLOSED && self.stop.is_stopped())
    }

    /// Counts a request that is about to be answered, or is left to a successor: a program that was answered finds it counted.
    fn count(&self, op: Op, begun: Begun, outcome: Result<u64, Errno>) {
        match outcome {
            Err(errno) if self.is_handed_on(errno) => self.meter.withdraw(),
            outcome => self.meter.end(op, begun, outcome.ok()),
        }
    }

    /// Requests that need nothing of the volume but its size.
    fn answer_at_once(&self, unique: u64, request: Request) {
        match request {
            Request::GetAttr => self.answer_now(unique, Ok(()), bytemuck::bytes_of(&self.attributes())),
            // The size follows the volume's, and nothing else does.
            Request::SetAttr { size: Some(size) } if size != self.target.size() => {
                self.answer_now(unique, Err(libc::EPERM), &[]);
            }
            Request::SetAttr { .. } => self.answer_now(unique, Ok(()), bytemuck::bytes_of(&self.attributes())),
            Request::Open => {
                // No page cache between the loop device and the server, and concurrent direct writes.
                let flags = abi::open::DIRECT_IO | abi::open::NOFLUSH | abi::open::PARALLEL_DIRECT_WRITES;
                self.answer_now(unique, Ok(()), bytemuck::bytes_of(&abi::OpenOut { flags, ..Default::default() }));
            }
            Request::StatFs => {
                // With zero blocks, df omits it, and monitoring does not report it as full.
                let stat = abi::StatFsOut { files: 1, block_size: 4096, fragment_size: 4096, ..Default::default() };
                self.answer_now(unique, Ok(()), bytemuck::bytes_of(&stat));
            }
            Request::Acknowledge => self.answer_now(unique, Ok(()), &[]),
            Request::Refuse(errno) => self.answer_now(unique, Err(errno), &[]),
            Request::Ignore => {}
            _ => unreachable!("requests for data are started, not answered at once"),
        }
    }

    /// The kernel keeps it until [`mount::forget_attributes`]. So `losetup`, which asks for the attributes of all files, does
    /// not wait for a server that stands still (FU5).
    fn attributes(&self) -> abi::AttrOut {
        let size = self.target.size();
        let attr = abi::Attr {
            ino: abi::ROOT,
            size,
            blocks: size.div_ceil(512),
            mode: libc::S_IFREG | 0o600,
            links: 1,
            block_size: 4096,
            ..Default::default()
        };
        let valid = if planted::is("attributes_uncached") { 0 } else { KEPT.as_secs() };
        abi::AttrOut { valid, attr, ..Default::default() }
    }

    /// Answers with the others of this turn. `data` is what a request that went well is answered with.
    async fn answer<T: bytemuck::Pod>(&self, unique: u64, outcome: Result<(), Errno>, data: &T) {
        if outcome.is_err_and(|errno| self.is_handed_on(errno)) {
            return;
        }
        let mut head = [0; REPLY_HEAD];
        let data = bytemuck::bytes_of(data);
        let header = match outcome {
            Ok(()) => abi::OutHeader::answer(unique, data.len()),
            Err(errno) => Self::refusal(unique, errno),
        };
        let len = header.len as usize;
        head[..size_of::<abi::OutHeader>()].copy_from_slice(bytemuck::bytes_of(&header));
        head[size_of::<abi::OutHeader>()..len].copy_from_slice(&data[..len - size_of::<abi::OutHeader>()]);
        self.send(unique, Reply::new(self.fd.clone(), &head[..len], None)).await;
        if planted::is("answers_twice") {
            self.send(unique, Reply::new(self.fd.clone(), &head[..len], None)).await;
        }
    }

    /// Gives back the reply's buffer.
    async fn send(&self, unique: u64, reply: Reply) -> Option<PageBuf> {
        // A single answer has no others to wait for: send it at once.
        let (sent, buf) = if self.under_way.is_one() { reply.send() } else { reply.send_with_others().await };
        softirq_raised();
        self.judge(unique, sent);
        buf
    }

    /// Answers at once, for what is not asked often.
    fn answer_now(&self, unique: u64, outcome: Result<(), Errno>, data: &[u8]) {
        let (header, data) = match outcome {
            Ok(()) => (abi::OutHeader::answer(unique, data.len()), data),
            Err(errno) => (Self::refusal(unique, errno), &[][..]),
        };
        let sent = mount::send(&self.fd, &header, data);
        softirq_raised();
        self.judge(unique, sent);
    }

    fn refusal(unique: u64, errno: Errno) -> abi::OutHeader {
        abi::OutHeader::error(unique, -if errno == CLOSED { libc::EIO } else { errno })
    }

    /// The kernel refuses an answer only if it no longer waits for it (the request was withdrawn, or the file was
    /// unmounted).
    fn judge(&self, unique: u64, sent: io::Result<()>) {
        if let Err(e) = sent
            && !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
        {
            crate::journal::warn(format_args!("an answer to request {unique:#x} was refused: {e}"));
        }
    }
}

/// The kind of a data request. None: the request needs only the volume's size.
fn op_of(request: &Request) -> Option<Op> {
    match request {
        Request::Read { .. } => Some(Op::Read),
        Request::Write { .. } => Some(Op::Write),
        Request::Flush => Some(Op::Flush),
        Request::Discard { .. } => Some(Op::Discard),
        Request::WriteZeroes { .. } => Some(Op::Zero),
        _ => None,
    }
}

/// Tells a task that waits for the kernel to end.
#[derive(Default)]
struct Stop {
    stopped: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Stop {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(waker) = self.waiting.lock().take() {
            waker.wake();
        }
    }

    /// Waits for `event`; `None` when stopped before it came.
    async fn or<T>(&self, event: impl Future<Output = io::Result<T>>) -> io::Result<Option<T>> {
        let mut event = pin!(event);
        poll_fn(|cx| {
            {
                let mut waiting = self.waiting.lock();
                if !waiting.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waiting = Some(cx.waker().clone());
                }
            }
            // Checked after the waker is registered, so that a stop cannot come unnoticed in between.
            if self.is_stopped() {
                return Poll::Ready(Ok(None));
            }
            event.as_mut().poll(cx).map_ok(Some)
        })
        .await
    }
}

/// Requests that were started and not answered yet.
#[derive(Default)]
struct UnderWay {
    count: AtomicU64,
    last: Mutex<Option<Waker>>,
}

impl UnderWay {
    fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waker) = self.last.lock().take()
        {
            waker.wake();
        }
    }

    fn is_one(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 1
    }

    async fn none_left(&self) {
        poll_fn(|cx| {
            // Registered before the count is read, so that the last request cannot end unnoticed in between.
            *self.last.lock() = Some(cx.waker().clone());
            if self.count.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
