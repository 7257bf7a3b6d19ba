//! A volatile write cache before an image: what was written and not flushed is in memory alone, in all its versions.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const SECTOR: u64 = 512;

/// A write; zeros where it has no data.
pub struct Write {
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

/// Sectors in a block.
const SECTORS: u64 = 8;

/// Whether a cut may leave a part of a block of 4 KiB that was being written, or all of it or nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    Sectors,
    Whole,
}

/// SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What was written and is not durable: for each sector its versions, the oldest first.
#[derive(Default)]
struct Unflushed {
    sectors: BTreeMap<u64, Vec<Arc<Write>>>,
    writes: u64,
    flushes: u64,
    is_off: bool,
}

/// An image behind such a cache.
pub struct Cache {
    image: File,
    unflushed: Mutex<Unflushed>,
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

impl Cache {
    pub fn new(image: File) -> Cache {
        Cache { image, unflushed: Mutex::default() }
    }

    /// The power has failed: nothing is answered any more.
    pub fn is_off(&self) -> bool {
        self.unflushed.lock().is_off
    }

    /// A write that is not answered yet. Who answers it says so with [`Cache::answer`].
    pub fn store(&self, offset: u64, len: u64, data: Option<Vec<u8>>) -> Arc<Write> {
        let mut cache = self.unflushed.lock();
        cache.writes += 1;
        let write = Arc::new(Write { number: cache.writes, offset, data, answered: AtomicU64::new(NOT_ANSWERED) });
        if !cache.is_off {
            for sector in offset / SECTOR..(offset + len) / SECTOR {
                cache.sectors.entry(sector).or_default().push(write.clone());
            }
        }
        write
    }

    /// The write is being answered: flushes that begin from now on cover it.
    pub fn answer(&self, write: &Write) {
        write.answered.store(self.unflushed.lock().flushes, Ordering::Relaxed);
    }

    pub fn load(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let cache = self.unflushed.lock();
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

    /// A flush begins; its number.
    pub fn begin_flush(&self) -> u64 {
        let mut cache = self.unflushed.lock();
        cache.flushes += 1;
        cache.flushes - 1
    }

    /// Makes durable what was answered before the flush with this number.
    pub fn make_durable(&self, flush: u64) -> io::Result<()> {
        let mut cache = self.unflushed.lock();
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
    pub fn cut(&self, seed: u64, torn: Torn) -> io::Result<String> {
        let mut cache = self.unflushed.lock();
        cache.is_off = true;
        let mut dice = Dice(seed);
        let (how, share, salt) = (dice.below(6), [16, 128, 240][dice.below(3) as usize], dice.next());
        let oldest = cache.sectors.values().flatten().map(|write| write.number).min().unwrap_or(0);
        let late = oldest + (cache.writes - oldest.min(cache.writes)) / 2;
        let keeps_write = |write: &Write| Dice(salt ^ write.number).below(256) < share;
        let (mut kept, mut run) = (0, Run::new(&self.image));
        // Of a block that is not torn: which, and the last write that it kept.
        let mut whole = (u64::MAX, None);
        for (&sector, versions) in &cache.sectors {
            let survivor = match how {
                0 => None,
                1 => versions.last(),
                2 => versions.iter().rfind(|write| keeps_write(write)),
                3 => versions.iter().rfind(|write| write.number > late),
                _ if torn == Torn::Whole => {
                    let block = sector / SECTORS;
                    if whole.0 != block {
                        let all = cache.sectors.range(block * SECTORS..(block + 1) * SECTORS);
                        let numbers: Vec<u64> = all.flat_map(|(_, writes)| writes).map(|write| write.number).collect();
                        let last =
                            (dice.below(256) < share).then(|| numbers[dice.below(numbers.len() as u64) as usize]);
                        whole = (block, last);
                    }
                    whole.1.and_then(|last| versions.iter().rfind(|write| write.number <= last))
                }
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
