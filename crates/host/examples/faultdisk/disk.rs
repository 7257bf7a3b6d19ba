//! The disk: an image, its cache, and what the rules do to its requests.

use crate::cache::{Cache, SECTOR, Torn};
use crate::rules::{Fate, KINDS, Kind, Rules};
use parking_lot::Mutex;
use rowen_engine::disk::PageBuf;
use rowen_engine::runtime::Runtime;
use rowen_host::export::{BoxFuture, Errno, Target};
use std::fs::File;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// What a disk's cache does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// There is none: what is answered is on the disk.
    Through,
    /// What is flushed is on the disk; of the rest a pulled plug keeps some.
    Volatile,
    /// Flushes are answered, and nothing is on the disk.
    Lies,
}

/// What the owner of a disk changes, also between two times that it is plugged in.
pub struct Faults {
    pub rules: Rules,
    pub caching: Caching,
    /// Answered, failed and hanging requests, by kind.
    answered: [u64; KINDS.len()],
    failed: [u64; KINDS.len()],
    hanging: [u64; KINDS.len()],
    waiting: Vec<Waker>,
}

impl Faults {
    pub fn new(seed: u64) -> Faults {
        Faults {
            rules: Rules::new(seed),
            caching: Caching::Through,
            answered: Default::default(),
            failed: Default::default(),
            hanging: Default::default(),
            waiting: Vec::new(),
        }
    }

    /// Those that hang look again.
    pub fn look_again(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    pub fn lines(&self) -> String {
        let mut lines = format!("cache {:?}\n", self.caching);
        for (at, (_, name)) in KINDS.iter().enumerate() {
            let (answered, failed, hanging) = (self.answered[at], self.failed[at], self.hanging[at]);
            lines += &format!("{name} answered {answered} failed {failed} hanging {hanging}\n");
        }
        self.rules.all.iter().for_each(|rule| lines += &format!("{rule}\n"));
        lines
    }
}

/// One that is plugged in.
pub struct Disk {
    size: u64,
    sector: u32,
    cache: Cache,
    faults: Arc<Mutex<Faults>>,
    runtime: Arc<dyn Runtime>,
}

fn errno(e: std::io::Error) -> Errno {
    e.raw_os_error().unwrap_or(libc::EIO)
}

/// Flips one bit of each sector of `bytes`, which lie at `offset`, that is in one of the ranges.
fn flip(rot: &[(Range<u64>, u64)], offset: u64, bytes: &mut [u8]) {
    for (at, dice) in rot {
        for (sector, bytes) in (offset / SECTOR..).zip(bytes.chunks_mut(SECTOR as usize)) {
            if at.start < (sector + 1) * SECTOR && sector * SECTOR < at.end {
                let bit = (dice ^ sector.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as usize % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

impl Disk {
    pub fn new(
        image: File,
        size: u64,
        sector: u32,
        faults: Arc<Mutex<Faults>>,
        runtime: Arc<dyn Runtime>,
    ) -> Arc<Disk> {
        Arc::new(Disk { size, sector, cache: Cache::new(image), faults, runtime })
    }

    /// The plug is pulled: nothing more gets through. Tells what of the cache was kept.
    pub fn pull(&self) -> std::io::Result<String> {
        let seed = self.faults.lock().rules.chance();
        let kept = self.cache.cut(seed, Torn::Sectors);
        self.faults.lock().look_again();
        kept
    }

    /// An orderly end.
    pub fn make_durable(&self) -> std::io::Result<()> {
        let flush = self.cache.begin_flush();
        self.cache.make_durable(flush)
    }

    /// What the rules say, after they had it wait.
    async fn meet(&self, kind: Kind, range: Range<u64>) -> Result<Fate, Errno> {
        let fate = self.faults.lock().rules.fate(kind, &range);
        if !fate.delay.is_zero() {
            self.runtime.sleep(fate.delay).await;
        }
        if !fate.hangs.is_empty() {
            self.faults.lock().hanging[kind as usize] += 1;
            poll_fn(|cx| {
                let mut faults = self.faults.lock();
                let hangs = faults.rules.all.iter().any(|rule| fate.hangs.contains(&rule.number));
                if !hangs || self.cache.is_off() {
                    return Poll::Ready(());
                }
                faults.waiting.push(cx.waker().clone());
                Poll::Pending
            })
            .await;
            self.faults.lock().hanging[kind as usize] -= 1;
        }
        if self.cache.is_off() { Err(libc::ENODEV) } else { fate.errno.map_or(Ok(fate), Err) }
    }

    /// Counts an outcome. What was under way when the plug was pulled may not be done: it fails.
    fn count<T>(&self, kind: Kind, outcome: Result<T, Errno>) -> Result<T, Errno> {
        let outcome = if self.cache.is_off() { Err(libc::ENODEV) } else { outcome };
        let mut faults = self.faults.lock();
        let counts = if outcome.is_ok() { &mut faults.answered } else { &mut faults.failed };
        counts[kind as usize] += 1;
        outcome
    }

    async fn store(&self, kind: Kind, offset: u64, len: u64, data: Option<Vec<u8>>) -> Result<(), Errno> {
        let outcome = self.try_store(kind, offset, len, data).await;
        self.count(kind, outcome)
    }

    async fn try_store(&self, kind: Kind, offset: u64, len: u64, mut data: Option<Vec<u8>>) -> Result<(), Errno> {
        let fate = self.meet(kind, offset..offset + len).await?;
        let to = (offset + fate.misdirected) / SECTOR * SECTOR;
        let len = if fate.is_torn { len / 2 / SECTOR * SECTOR } else { len };
        if fate.is_lost || len == 0 || to + len > self.size {
            return Ok(());
        }
        if let Some(data) = &mut data {
            data.truncate(len as usize);
            flip(&fate.rot, to, data);
        }
        let write = self.cache.store(to, len, data);
        self.cache.answer(&write);
        let caching = self.faults.lock().caching;
        if caching == Caching::Through { self.make_durable().map_err(errno) } else { Ok(()) }
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
        self.sector
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: u32, mut buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>> {
        Box::pin(async move {
            let fate = self.meet(Kind::Read, offset..offset + u64::from(len)).await;
            let outcome = fate.and_then(|fate| {
                let bytes = &mut buf.as_mut_slice()[..len as usize];
                self.cache.load(offset, bytes).map_err(errno)?;
                flip(&fate.rot, offset, bytes);
                Ok(())
            });
            self.count(Kind::Read, outcome).map(|()| buf)
        })
    }

    fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>> {
        let data = buf.as_slice()[..len as usize].to_vec();
        drop(buf);
        Box::pin(self.store(Kind::Write, offset, u64::from(len), Some(data)))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            let number = self.cache.begin_flush();
            let outcome = self.meet(Kind::Flush, 0..self.size).await.and_then(|fate| {
                let lies = fate.is_lost || self.faults.lock().caching == Caching::Lies;
                if lies { Ok(()) } else { self.cache.make_durable(number).map_err(errno) }
            });
            self.count(Kind::Flush, outcome)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(self.store(Kind::Discard, offset, len, None))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(self.store(Kind::Write, offset, len, None))
    }
}
