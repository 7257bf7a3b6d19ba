//! A disk with a volatile cache, as a file, for tests of power cuts: `volatile_disk IMAGE FILE SEED [lies]` shows `IMAGE` as
//! `FILE`. What was written and not flushed is in memory alone.
//!
//! SIGUSR1 is the power cut. From then on nothing is answered. Of what was not flushed, some is kept, as the dice of `SEED`
//! decide: nothing, all, some writes, some sectors of 512 bytes of some versions, or what came last. It prints what was kept
//! and waits to be killed, so that the users of the disk can be killed first. After SIGUSR2 no block of 4 KiB is torn. SIGTERM is an orderly end: all is kept.
//!
//! A disk that `lies` answers flushes and does nothing.

#[path = "common/cache.rs"]
mod cache;
#[path = "common/signals.rs"]
mod signals;

use cache::{Cache, SECTOR, Torn};
use rowen_engine::disk::PageBuf;
use rowen_engine::runtime::Runtime;
use rowen_host::export::fuse::Memory;
use rowen_host::export::fuse::{Connection, mount};
use rowen_host::export::{BoxFuture, Errno, Target};
use rowen_host::meter::Meter;
use rowen_host::reactor::Pool;
use signals::{block_signals, wait_for_signal};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One in this many requests is answered late, so that others overtake it.
const LATE: u64 = 8;

struct Disk {
    size: u64,
    lies: bool,
    cache: Cache,
    requests: AtomicU64,
    runtime: Arc<dyn Runtime>,
}

fn errno(e: io::Error) -> Errno {
    e.raw_os_error().unwrap_or(libc::EIO)
}

impl Disk {
    async fn perhaps_late(&self) {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        if n % LATE == 0 {
            self.runtime.sleep(Duration::from_micros(100 + n * 7919 % 900)).await;
        }
    }

    /// After the cut no answer comes any more.
    async fn answer<T>(&self, answer: Result<T, Errno>) -> Result<T, Errno> {
        if self.cache.is_off() {
            std::future::pending::<()>().await;
        }
        answer
    }

    async fn store(&self, offset: u64, len: u64, data: Option<Vec<u8>>) -> Result<(), Errno> {
        let write = self.cache.store(offset, len, data);
        self.perhaps_late().await;
        self.cache.answer(&write);
        self.answer(Ok(())).await
    }
}

impl Target for Disk {
    fn id(&self) -> u64 {
        0
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u32 {
        SECTOR as u32
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: u32, mut buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>> {
        Box::pin(async move {
            let outcome = self.cache.load(offset, &mut buf.as_mut_slice()[..len as usize]).map_err(errno);
            self.answer(outcome.map(|()| buf)).await
        })
    }

    fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>> {
        let data = buf.as_slice()[..len as usize].to_vec();
        drop(buf);
        Box::pin(self.store(offset, u64::from(len), Some(data)))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            let number = self.cache.begin_flush();
            self.perhaps_late().await;
            let outcome = if self.lies { Ok(()) } else { self.cache.make_durable(number).map_err(errno) };
            self.answer(outcome).await
        })
    }

    fn discard(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(self.store(offset, len, None))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        self.discard(offset, len)
    }
}

/// One line that is there at once, also in a file.
fn say(line: &str) {
    let _nobody_may_listen = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (image, path, seed, lies) = match words.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        [image, path, seed] => (image, Path::new(path), seed, false),
        [image, path, seed, "lies"] => (image, Path::new(path), seed, true),
        _ => panic!("usage: volatile_disk IMAGE FILE SEED [lies]"),
    };
    let seed: u64 = seed.parse().expect("a number as the seed");
    let image = OpenOptions::new().read(true).write(true).open(image).expect("the image");
    let size = image.metadata().expect("the image's size").len();
    let signals = block_signals();
    let pool = Pool::start(1).expect("threads");
    let disk =
        Arc::new(Disk { size, lies, cache: Cache::new(image), requests: AtomicU64::new(0), runtime: pool.runtime() });
    let mounted = mount::mount(path).expect("a mount");
    let connection =
        Connection::new(Arc::new(mounted.fd), disk.clone(), &Memory::default(), Arc::new(Meter::for_one_thread()));
    let runtime = pool.runtime();
    pool.spawn_on(
        0,
        Box::pin(async move {
            if let Err(e) = connection.serve(runtime).await {
                eprintln!("the connection ended: {e}");
            }
        }),
    );
    say("ready");
    let torn = match wait_for_signal(&signals) {
        libc::SIGUSR1 => Some(Torn::Sectors),
        libc::SIGUSR2 => Some(Torn::Whole),
        _ => None,
    };
    if let Some(torn) = torn {
        say(&disk.cache.cut(seed, torn).expect("the image takes writes"));
        while wait_for_signal(&signals) != libc::SIGTERM {}
        std::process::exit(0);
    }
    let flush = disk.cache.begin_flush();
    disk.cache.make_durable(flush).expect("the image takes writes");
    mount::unmount(path).expect("an unmount");
    std::process::exit(0);
}
