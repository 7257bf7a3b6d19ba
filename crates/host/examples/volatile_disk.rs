//! A disk with a volatile cache, as a file, for tests of power cuts: `volatile_disk IMAGE FILE SEED [lies]` shows `IMAGE` as
//! `FILE`. What was written and not flushed is in memory alone.
//!
//! SIGUSR1 is the power cut. From then on nothing is answered. Of what was not flushed, some is kept, as the dice of `SEED`
//! decide: nothing, all, some writes, some sectors of 512 bytes of some versions, or what came last. It prints what was kept
//! and waits to be killed, so that whoever uses the disk can be killed first. SIGTERM is an orderly end: all is kept.
//!
//! A disk that `lies` answers flushes and does nothing.

#[path = "common/signals.rs"]
mod signals;

use parking_lot::Mutex;
use rowen_engine::disk::PageBuf;
use rowen_engine::runtime::Runtime;
use rowen_host::export::fuse::buffers::Buffers;
use rowen_host::export::fuse::{Connection, mount};
use rowen_host::export::{BoxFuture, Errno, Target};
use rowen_host::meter::Meter;
use rowen_host::reactor::Pool;
use signals::{block_signals, wait_for_signal};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECTOR: u64 = 512;
/// Of so many requests one is answered late, so that others overtake it.
const LATE: u64 = 8;

/// A write; zeros where it has no data.
struct Write {
    number: u64,
    offset: u64,
    data: Option<Vec<u8>>,
    /// The flush before which it was answered; none yet.
    answered: AtomicU64,
}

const NOT_ANSWERED: u64 = u64::MAX;

impl Write {
    fn copy_sector(&self, sector: u64, into: &mut [u8]) {
        match &self.data {
            None => into.fill(0),
            Some(data) => {
                let from = (sector * SECTOR - self.offset) as usize;
                into.copy_from_slice(&data[from..from + SECTOR as usize]);
            }
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What was written and is not durable: for each sector its versions, the oldest first.
#[derive(Default)]
struct Cache {
    sectors: BTreeMap<u64, Vec<Arc<Write>>>,
    writes: u64,
    flushes: u64,
    is_off: bool,
}

struct Disk {
    image: File,
    size: u64,
    lies: bool,
    cache: Mutex<Cache>,
    requests: AtomicU64,
    runtime: Arc<dyn Runtime>,
}

/// Writes sectors to the image, neighbours together.
struct Run<'a> {
    image: &'a File,
    from: u64,
    bytes: Vec<u8>,
}

impl<'a> Run<'a> {
    fn new(image: &'a File) -> Run<'a> {
        Run { image, from: 0, bytes: Vec::new() }
    }

    fn add(&mut self, sector: u64, version: &Write) -> io::Result<()> {
        if self.from * SECTOR + self.bytes.len() as u64 != sector * SECTOR {
            self.end()?;
            self.from = sector;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + SECTOR as usize, 0);
        version.copy_sector(sector, &mut self.bytes[start..]);
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.image.write_all_at(&self.bytes, self.from * SECTOR)?;
        self.bytes.clear();
        Ok(())
    }
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
        if self.cache.lock().is_off {
            std::future::pending::<()>().await;
        }
        answer
    }

    async fn store(&self, offset: u64, len: u64, data: Option<Vec<u8>>) -> Result<(), Errno> {
        let write = {
            let mut cache = self.cache.lock();
            cache.writes += 1;
            let write = Arc::new(Write { number: cache.writes, offset, data, answered: AtomicU64::new(NOT_ANSWERED) });
            if !cache.is_off {
                for sector in offset / SECTOR..(offset + len) / SECTOR {
                    cache.sectors.entry(sector).or_default().push(write.clone());
                }
            }
            write
        };
        self.perhaps_late().await;
        write.answered.store(self.cache.lock().flushes, Ordering::Relaxed);
        self.answer(Ok(())).await
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let cache = self.cache.lock();
        self.image.read_exact_at(bytes, offset)?;
        let range = offset / SECTOR..(offset + bytes.len() as u64) / SECTOR;
        for (&sector, versions) in cache.sectors.range(range) {
            let at = (sector * SECTOR - offset) as usize;
            if let Some(newest) = versions.last() {
                newest.copy_sector(sector, &mut bytes[at..at + SECTOR as usize]);
            }
        }
        Ok(())
    }

    /// Makes durable what was answered before the flush with this number.
    fn make_durable(&self, flush: u64) -> io::Result<()> {
        let mut cache = self.cache.lock();
        if cache.is_off {
            return Ok(());
        }
        let mut run = Run::new(&self.image);
        let mut outcome = Ok(());
        cache.sectors.retain(|&sector, versions| {
            let covered = versions.iter().rposition(|write| write.answered.load(Ordering::Relaxed) <= flush);
            if let (Some(newest), Ok(())) = (covered, &outcome) {
                outcome = run.add(sector, &versions[newest]);
                versions.drain(..=newest);
            }
            !versions.is_empty()
        });
        outcome.and_then(|()| run.end())
    }

    /// The power fails. Tells what was kept.
    fn cut(&self, seed: u64) -> io::Result<String> {
        let mut cache = self.cache.lock();
        cache.is_off = true;
        let mut dice = Dice(seed);
        let (how, share, salt) = (dice.below(6), [16, 128, 240][dice.below(3) as usize], dice.next());
        let oldest = cache.sectors.values().flatten().map(|write| write.number).min().unwrap_or(0);
        let late = oldest + (cache.writes - oldest.min(cache.writes)) / 2;
        let keeps_write = |write: &Write| Dice(salt ^ write.number).below(256) < share;
        let (mut kept, mut run) = (0, Run::new(&self.image));
        for (&sector, versions) in &cache.sectors {
            let survivor = match how {
                0 => None,
                1 => versions.last(),
                2 => versions.iter().rfind(|write| keeps_write(write)),
                3 => versions.iter().rfind(|write| write.number > late),
                _ if dice.below(256) < share => versions.get(dice.below(versions.len() as u64) as usize),
                _ => None,
            };
            if let Some(write) = survivor {
                run.add(sector, write)?;
                kept += 1;
            }
        }
        run.end()?;
        let how = ["nothing", "all", "some writes", "the later half", "some sectors", "some sectors"][how as usize];
        Ok(format!("off: {how}, {kept} of {} sectors, after {} flushes", cache.sectors.len(), cache.flushes))
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
            let outcome = self.load(offset, &mut buf.as_mut_slice()[..len as usize]).map_err(errno);
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
            let number = {
                let mut cache = self.cache.lock();
                cache.flushes += 1;
                cache.flushes - 1
            };
            self.perhaps_late().await;
            let outcome = if self.lies { Ok(()) } else { self.make_durable(number).map_err(errno) };
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
    let disk = Arc::new(Disk {
        image,
        size,
        lies,
        cache: Mutex::default(),
        requests: AtomicU64::new(0),
        runtime: pool.runtime(),
    });
    let mounted = mount::mount(path).expect("a mount");
    let connection = Connection::new(
        Arc::new(mounted.fd),
        disk.clone(),
        Arc::new(Buffers::default()),
        Arc::new(Meter::for_one_thread()),
    );
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
    if wait_for_signal(&signals) == libc::SIGUSR1 {
        say(&disk.cut(seed).expect("the image takes writes"));
        while wait_for_signal(&signals) != libc::SIGTERM {}
        std::process::exit(0);
    }
    let flush = {
        let mut cache = disk.cache.lock();
        cache.flushes += 1;
        cache.flushes
    };
    disk.make_durable(flush).expect("the image takes writes");
    mount::unmount(path).expect("an unmount");
    std::process::exit(0);
}
