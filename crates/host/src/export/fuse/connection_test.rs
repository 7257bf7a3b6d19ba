//! A connection whose kernel is a socket: what it answers to any bytes, and what is under way when it ends.
//!
//! Rules FU1, FU3 and FU4.

use super::abi::{self, op};
use super::{Connection, Errno, Target};
use crate::export::BoxFuture;
use crate::meter::Meter;
use crate::reactor::Pool;
use parking_lot::Mutex;
use rowen_engine::disk::PageBuf;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Small: the answers of a batch fit into a socket.
const SIZE: u64 = 16 << 10;
const SECTOR: u32 = 512;
/// Nothing takes so long, on whatever machine; so long an answer is waited for that does not come.
const LONG: Duration = Duration::from_secs(5);

/// A volume in memory. Its flushes wait until they may end, and its writes while it is full.
#[derive(Default)]
struct Memory {
    may_flush: AtomicBool,
    is_full: AtomicBool,
    pool: String,
    waiting: Mutex<Vec<Waker>>,
    /// Bytes behind [`SIZE`].
    more: u64,
    /// For each write that begins: the bytes that have not been read from the kernel.
    unread: Mutex<Vec<u64>>,
    requests: Mutex<Option<OwnedFd>>,
}

impl Memory {
    /// What the transport promises a volume.
    fn is_inside(&self, offset: u64, len: u64) {
        let sector = u64::from(SECTOR);
        assert!(offset.is_multiple_of(sector) && len.is_multiple_of(sector), "{offset} and {len} are not on sectors");
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.size());
        assert!(is_inside, "{offset} and {len} are not in the volume");
    }

    fn let_flush(&self) {
        self.may_flush.store(true, Ordering::Release);
        self.waiting.lock().drain(..).for_each(Waker::wake);
    }

    fn make_room(&self) {
        self.is_full.store(false, Ordering::Release);
        self.waiting.lock().drain(..).for_each(Waker::wake);
    }
}

impl Target for Memory {
    fn id(&self) -> u64 {
        1
    }

    fn size(&self) -> u64 {
        SIZE + self.more
    }

    fn sector(&self) -> u32 {
        SECTOR
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: u32, buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>> {
        self.is_inside(offset, len.into());
        Box::pin(async move { Ok(buf) })
    }

    fn write(&self, offset: u64, len: u32, _: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>> {
        self.is_inside(offset, len.into());
        let unread = self.requests.lock().as_ref().map(|fd| rustix::io::ioctl_fionread(fd).unwrap());
        self.unread.lock().extend(unread);
        Box::pin(poll_fn(|cx| {
            self.waiting.lock().push(cx.waker().clone());
            if self.is_full.load(Ordering::Acquire) { Poll::Pending } else { Poll::Ready(Ok(())) }
        }))
    }

    fn pool(&self) -> String {
        self.pool.clone()
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(poll_fn(|cx| {
            self.waiting.lock().push(cx.waker().clone());
            if self.may_flush.load(Ordering::Acquire) { Poll::Ready(Ok(())) } else { Poll::Pending }
        }))
    }

    fn discard(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        self.is_inside(offset, len);
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        self.discard(offset, len)
    }
}

/// A connection that is served, and the kernel's side of it.
struct Served {
    kernel: UnixDatagram,
    connection: Arc<Connection>,
    memory: Arc<Memory>,
    has_ended: Arc<AtomicBool>,
    pool: Pool,
}

impl Served {
    fn start() -> Served {
        Served::with(&super::Memory::default(), "")
    }

    fn with(requests: &super::Memory, pool: &str) -> Served {
        Served::of(requests, Memory { pool: pool.into(), ..Memory::default() })
    }

    fn of(requests: &super::Memory, memory: Memory) -> Served {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, kernels): (OwnedFd, OwnedFd) = pair.unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        let memory = Arc::new(memory);
        *memory.requests.lock() = Some(ours.try_clone().unwrap());
        let pool = Pool::start(1).unwrap();
        let meter = Arc::new(Meter::for_one_thread());
        let connection = Connection::new(Arc::new(ours), memory.clone(), requests, meter);
        let has_ended = Arc::new(AtomicBool::new(false));
        let (serving, runtime, ended) = (connection.clone(), pool.runtime(), has_ended.clone());
        pool.spawn_on(
            0,
            Box::pin(async move {
                serving.serve(runtime).await.unwrap();
                ended.store(true, Ordering::Release);
            }),
        );
        let kernel = UnixDatagram::from(kernels);
        kernel.set_read_timeout(Some(LONG)).unwrap();
        Served { kernel, connection, memory, has_ended, pool }
    }

    /// The worker does nothing until what this gives is dropped.
    fn hold(&self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel();
        let (hold, held) = mpsc::channel();
        self.pool.spawn_on(
            0,
            Box::pin(async move {
                hold.send(()).unwrap();
                // An error: it was dropped.
                let _ = released.recv();
            }),
        );
        held.recv().unwrap();
        release
    }

    /// Asks, as the kernel would or would not.
    fn ask(&self, opcode: u32, unique: u64, rest: &[u8]) {
        let header = abi::InHeader { opcode, unique, len: 1, ..Default::default() };
        self.kernel.send(&[bytemuck::bytes_of(&header), rest].concat()).unwrap();
    }

    /// The next answer's number and error.
    fn answer(&self) -> std::io::Result<(u64, i32)> {
        let mut bytes = vec![0; 2 << 20];
        let len = self.kernel.recv(&mut bytes)?;
        let header: abi::OutHeader = bytemuck::pod_read_unaligned(&bytes[..size_of::<abi::OutHeader>()]);
        assert_eq!(header.len as usize, len, "request {}", header.unique);
        assert!(header.error == 0 || len == size_of::<abi::OutHeader>());
        Ok((header.unique, header.error))
    }

    fn end(&self) {
        self.connection.stop();
        let until = Instant::now() + LONG;
        while !self.has_ended.load(Ordering::Acquire) {
            assert!(Instant::now() < until, "requests are under way, or its end did not come");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kernel.set_nonblocking(true).unwrap();
        let more = self.answer();
        assert!(more.is_err(), "{more:?} was answered twice");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.connection.stop();
        self.memory.let_flush();
    }
}

/// A generator of numbers that repeat themselves in each run (Knuth's MMIX constants).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Mostly what a volume can have, often not.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::MAX - self.below(9),
            1 => SIZE - self.below(3) * u64::from(SECTOR),
            2 => self.below(2 * SIZE),
            _ => self.below(SIZE / u64::from(SECTOR)) * u64::from(SECTOR),
        }
    }

    fn request(&mut self) -> (u32, Vec<u8>) {
        const KNOWN: [u32; 8] =
            [op::READ, op::WRITE, op::FSYNC, op::FALLOCATE, op::GETATTR, op::SETATTR, op::OPEN, op::FORGET];
        let opcode = match self.below(10) {
            0 => self.below(64) as u32,
            _ => KNOWN[self.below(8) as usize],
        };
        let len = self.below(64) * u64::from(SECTOR);
        let mut rest = match opcode {
            op::READ => bytemuck::bytes_of(&abi::ReadIn {
                offset: self.number(),
                size: self.number() as u32,
                ..Default::default()
            })
            .to_vec(),
            op::WRITE => {
                let args = abi::WriteIn { offset: self.number(), size: len as u32, ..Default::default() };
                [bytemuck::bytes_of(&args), &vec![1; len as usize]].concat()
            }
            op::FALLOCATE => {
                let mode = [0x03, 0x10, 0x11, 0x02, self.below(256) as u32][self.below(5) as usize];
                let args =
                    abi::FallocateIn { offset: self.number(), length: self.number(), mode, ..Default::default() };
                bytemuck::bytes_of(&args).to_vec()
            }
            _ => (0..self.below(100)).map(|_| self.below(256) as u8).collect(),
        };
        if self.below(10) == 0 {
            rest.truncate(self.below(1 + rest.len() as u64) as usize);
        }
        (opcode, rest)
    }
}

/// FU1, FU4.
#[test]
fn whatever_is_asked_is_answered_once() {
    let served = Served::start();
    served.memory.let_flush();
    let mut noise = Noise(7);
    let mut refused = 0;
    for round in 0..2000u64 {
        // What is shorter than a header has no number.
        let short = vec![1; 1 + noise.below(abi::IN_HEADER as u64 - 1) as usize];
        served.kernel.send(&short).unwrap();
        let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
        for unique in round * 100 + 1..=round * 100 + 1 + noise.below(6) {
            let (opcode, rest) = noise.request();
            served.ask(opcode, unique, &rest);
            if !matches!(opcode, op::FORGET | op::BATCH_FORGET) {
                expected.insert(unique, opcode);
            }
        }
        while !expected.is_empty() {
            let (unique, error) = served.answer().unwrap_or_else(|e| panic!("no answer to {expected:?}: {e}"));
            assert!(expected.remove(&unique).is_some(), "request {unique} was not asked, or was answered before");
            refused += u64::from(error != 0);
        }
    }
    assert!((1000..7000).contains(&refused), "{refused} were refused");
    served.end();
}

/// Whoever was answered and looks at the counters finds the request.
#[test]
fn what_was_answered_is_counted() {
    let served = Served::start();
    served.memory.let_flush();
    let read = abi::ReadIn { offset: 0, size: SECTOR, ..Default::default() };
    for number in 1..=5000 {
        served.ask(op::FSYNC, 2 * number, &[]);
        assert_eq!(served.answer().unwrap(), (2 * number, 0));
        served.ask(op::READ, 2 * number + 1, bytemuck::bytes_of(&read));
        assert_eq!(served.answer().unwrap(), (2 * number + 1, 0));
        let counts = served.connection.counts();
        assert_eq!((counts.flush.requests, counts.read.requests, counts.under_way), (number, number, 0));
    }
    served.end();
}

/// A disk does not wait until all large writes are copied out of the kernel.
#[test]
fn a_large_write_goes_out_before_the_next_are_read() {
    const LEN: u64 = 64 << 10;
    const WRITES: u64 = 5;
    let served = Served::of(&super::Memory::default(), Memory { more: LEN, ..Memory::default() });
    let args = abi::WriteIn { offset: 0, size: LEN as u32, ..Default::default() };
    let write = [bytemuck::bytes_of(&args), &vec![1; LEN as usize]].concat();
    rustix::net::sockopt::set_socket_send_buffer_size(&served.kernel, 1 << 20).unwrap();
    // One that is answered before the next is read says nothing about several.
    served.memory.is_full.store(true, Ordering::Release);
    let held = served.hold();
    for unique in 1..=WRITES {
        served.ask(op::WRITE, unique, &write);
    }
    drop(held);
    let until = Instant::now() + LONG;
    while (served.memory.unread.lock().len() as u64) < WRITES {
        assert!(Instant::now() < until, "not all writes began");
        std::thread::sleep(Duration::from_millis(1));
    }
    served.memory.make_room();
    for _ in 0..WRITES {
        assert_eq!(served.answer().unwrap().1, 0);
    }
    // The first one goes alone.
    let unread = served.memory.unread.lock().clone();
    assert!(unread[1] > 0, "unread bytes when each write began: {unread:?}");
    served.end();
}

/// FU3.
#[test]
fn it_ends_when_nothing_is_under_way() {
    let served = Served::start();
    served.ask(op::FSYNC, 5, &[]);
    served.ask(op::GETATTR, 6, &[]);
    assert_eq!(served.answer().unwrap(), (6, 0));
    served.connection.stop();
    // Long enough for one that does not wait.
    std::thread::sleep(Duration::from_millis(200));
    assert!(!served.has_ended.load(Ordering::Acquire), "a request is under way");
    served.memory.let_flush();
    assert_eq!(served.answer().unwrap(), (5, 0));
    served.end();
}

#[test]
fn planted_bugs_are_found() {
    let any = "connection_test::whatever_is_asked_is_answered_once";
    let bugs = [
        ("answers_twice", any),
        ("refused_silently", any),
        ("any_range", any),
        ("batch_of_any_size", "connection_test::a_large_write_goes_out_before_the_next_are_read"),
        ("ends_under_way", "connection_test::it_ends_when_nothing_is_under_way"),
        ("budget_of_each", "connection_test::full_volumes_leave_memory_for_others"),
        ("one_class", "budget::tests::volumes_of_a_full_pool_leave_memory_for_others"),
    ];
    for (bug, test) in bugs {
        let test = format!("export::fuse::{test}");
        let mut program = Command::new(std::env::current_exe().unwrap());
        let output = program.args(["--exact", &test]).env("ROWEN_PLANTED", bug).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("running 1 test"), "{text}");
        assert!(!output.status.success(), "{bug} was not found: {text}");
    }
}

/// FB1, FB2: full volumes want more memory than there is. Another volume goes on, and so do they when there is room.
#[test]
fn full_volumes_leave_memory_for_others() {
    const WRITES: u64 = 60;
    let requests = super::Memory::default();
    requests.budget.set_limit(0);
    let full: Vec<Served> = (0..24).map(|_| Served::with(&requests, "full")).collect();
    let args = abi::WriteIn { offset: 0, size: SIZE as u32, ..Default::default() };
    let write = [bytemuck::bytes_of(&args), &vec![1; SIZE as usize]].concat();
    for served in &full {
        served.memory.is_full.store(true, Ordering::Release);
        served.kernel.set_nonblocking(true).unwrap();
    }
    // As a kernel: what is not read waits.
    let mut sent = vec![0; full.len()];
    let send = |sent: &mut Vec<u64>| {
        for (served, sent) in full.iter().zip(sent) {
            let header = abi::InHeader { opcode: op::WRITE, unique: *sent + 1, len: 1, ..Default::default() };
            let is_sent =
                *sent < WRITES && served.kernel.send(&[bytemuck::bytes_of(&header), &write[..]].concat()).is_ok();
            *sent += u64::from(is_sent);
        }
    };
    let quiet = Instant::now() + Duration::from_millis(500);
    while Instant::now() < quiet {
        send(&mut sent);
    }
    let (used, limit) = requests.budget.used();
    assert!(used <= limit, "{used} of {limit} bytes");
    assert!(sent.iter().sum::<u64>() < WRITES * 24, "all of them were taken");
    let other = Served::with(&requests, "");
    for unique in 1..=50 {
        other.ask(op::WRITE, unique, &write);
        assert_eq!(other.answer().unwrap(), (unique, 0));
    }
    full.iter().for_each(|served| served.memory.make_room());
    let mut answered = vec![0; full.len()];
    let until = Instant::now() + LONG;
    while answered.iter().any(|answered| *answered < WRITES) {
        assert!(Instant::now() < until, "{answered:?} of {WRITES} were answered");
        send(&mut sent);
        for (served, answered) in full.iter().zip(&mut answered) {
            while let Ok((_, error)) = served.answer() {
                assert_eq!(error, 0);
                *answered += 1;
            }
        }
    }
    full.iter().for_each(Served::end);
    assert!(requests.budget.used().0 <= 2 * (1 << 20), "{:?}", requests.budget.used());
}
