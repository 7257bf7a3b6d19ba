//! A disk that does not answer, and the worker that has sent it a request.

use crate::{Dir, park_on, read_op, root, write_op};
use rowen_engine::disk::{DiskOp, PageBuf, PvIndex, start};
use rowen_engine::planted;
use rowen_engine::runtime::Runtime;
use rowen_host::disks::{IoEngine, OpenMode, PvSet};
use rowen_host::export::fuse::{Connection, Memory, mount};
use rowen_host::export::{BoxFuture, Errno, Target};
use rowen_host::meter::Meter;
use rowen_host::reactor::Pool;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Far more than what does not hang takes.
const LONG: Duration = Duration::from_secs(10);

/// Zeros. It answers no flush before it may.
struct Silent {
    may_flush: AtomicBool,
    flushes: AtomicU32,
    runtime: Arc<dyn Runtime>,
}

impl Target for Silent {
    fn id(&self) -> u64 {
        1
    }

    fn size(&self) -> u64 {
        16 * crate::MIB
    }

    fn sector(&self) -> u32 {
        512
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, _: u64, _: u32, buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>> {
        Box::pin(async move { Ok(buf) })
    }

    fn write(&self, _: u64, _: u32, _: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async { Ok(()) })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async {
            self.flushes.fetch_add(1, Ordering::AcqRel);
            while !self.may_flush.load(Ordering::Acquire) {
                self.runtime.sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    }

    fn discard(&self, _: u64, _: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        self.discard(offset, len)
    }
}

/// A file that is such a disk. When this is dropped its requests are answered, and it is gone.
struct Shown {
    file: PathBuf,
    disk: Arc<Silent>,
    _pool: Pool,
    _dir: Dir,
}

impl Shown {
    fn new(name: &str) -> Shown {
        let dir = Dir::new(name);
        let file = dir.file("disk", 0);
        let pool = Pool::start(1).unwrap();
        let runtime = pool.runtime();
        let (may_flush, flushes) = (AtomicBool::new(false), AtomicU32::new(0));
        let disk = Arc::new(Silent { may_flush, flushes, runtime: runtime.clone() });
        let mounted = mount::mount_as(&file, "silent").unwrap();
        let meter = Arc::new(Meter::for_one_thread());
        let connection = Connection::new(Arc::new(mounted.fd), disk.clone(), &Memory::default(), meter);
        let serve = async move { drop(connection.serve(runtime).await) };
        pool.spawn_on(0, Box::pin(serve));
        Shown { file, disk, _pool: pool, _dir: dir }
    }

    fn answer(&self) {
        self.disk.may_flush.store(true, Ordering::Release);
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.answer();
        drop(mount::unmount(&self.file));
    }
}

/// Has the worker of a pool do something, and tells when it is done.
fn on_worker(pool: &Pool, work: impl Future<Output = ()> + Send + 'static) -> mpsc::Receiver<()> {
    let (done, wait) = mpsc::channel();
    let work = async move {
        work.await;
        let _nobody_waits = done.send(());
    };
    pool.spawn_on(0, Box::pin(work));
    wait
}

/// DT4: a write has to wait for the flush, because the kernel has a lock of the file meanwhile. The worker does not.
fn a_flush_that_hangs_holds_up_no_worker(name: &str) {
    let shown = Shown::new(name);
    let pool = Pool::start(1).unwrap();
    let set = Arc::new(PvSet::open(&pool, &[&shown.file], OpenMode::Exclusive, IoEngine::Uring).unwrap());
    let disks = set.clone();
    let flushed = on_worker(&pool, async move {
        start(&*disks, write_op(4096, PageBuf::zeroed(4096))).await.unwrap();
        start(&*disks, DiskOp::Flush).await.unwrap();
    });
    let since = Instant::now();
    while shown.disk.flushes.load(Ordering::Acquire) == 0 && since.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(5));
    }
    let hangs = shown.disk.flushes.load(Ordering::Acquire) == 1;
    let disks = set.clone();
    let written = on_worker(&pool, async move {
        start(&*disks, write_op(8192, PageBuf::zeroed(4096))).await.unwrap();
    });
    // The next turn of the worker is after the one that sends the write.
    let works = (0..3).all(|_| on_worker(&pool, async {}).recv_timeout(LONG).is_ok());
    // Who asks whether the disk answers is not held up either.
    let asked = Instant::now();
    let mut question = set.ask(PvIndex(0));
    let took = asked.elapsed();
    while !question.is_answered() && asked.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_answered = question.is_answered();
    let has_waited = flushed.try_recv().is_err();
    shown.answer();
    assert!(flushed.recv_timeout(LONG).is_ok() && written.recv_timeout(LONG).is_ok(), "they never end");
    park_on(Box::pin(async move {
        start(&*set, read_op(0, 4096)).await.unwrap();
    }));
    assert!(hangs && has_waited, "the flush did not hang");
    assert!(works, "the worker waits for the flush");
    assert!(took < LONG && is_answered, "who asks the disk waits for the flush");
}

#[test]
fn a_flush_that_hangs_holds_up_no_worker_of_the_disk() {
    if !root() {
        return;
    }
    a_flush_that_hangs_holds_up_no_worker("silent");
    planted::must_be_found("waits_in_kernel", || a_flush_that_hangs_holds_up_no_worker("waits"));
}
