//! Reads segments: pages of maps, and blocks.

use super::entry::Kind;
use super::error::{Result, StoreError};
use super::objects::{self, Objects};
use super::page::{self, Contents, Slots};
use super::seal::Seal;
use super::segment::{FIRST_READ, Index};
use super::{FRAME_BLOCKS, SEGMENT_BLOCKS};
use crate::BLOCK;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// Segments with pages that are kept, and indexes of segments with data.
const KEPT_MAPS: usize = 8;
const KEPT_INDEXES: usize = 64;
/// Frames with less between them are read in one request.
const NEAR: u64 = 256 << 10;

/// A segment whose bytes are here.
struct Whole {
    index: Index,
    bytes: Vec<u8>,
}

/// What was read last, the newest at the end.
struct Recent<T> {
    kept: VecDeque<(u64, Arc<T>)>,
    most: usize,
}

impl<T> Recent<T> {
    fn get(&mut self, number: u64) -> Option<Arc<T>> {
        let at = self.kept.iter().position(|(of, _)| *of == number)?;
        let found = self.kept.remove(at)?;
        let value = found.1.clone();
        self.kept.push_back(found);
        Some(value)
    }

    fn put(&mut self, number: u64, value: Arc<T>) {
        self.kept.push_back((number, value));
        if self.kept.len() > self.most {
            self.kept.pop_front();
        }
    }
}

/// Reads the segments of a store.
pub struct Segments<'a> {
    objects: &'a dyn Objects,
    seal: Seal,
    store: [u8; 16],
    maps: Mutex<Recent<Whole>>,
    indexes: Mutex<Recent<Index>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A frame of an address, and the place of its block there.
fn place_of(address: u64) -> (u64, usize, usize) {
    let place = address % SEGMENT_BLOCKS;
    (address / SEGMENT_BLOCKS, (place / FRAME_BLOCKS) as usize, (place % FRAME_BLOCKS) as usize)
}

impl<'a> Segments<'a> {
    pub fn new(objects: &'a dyn Objects, seal: Seal, store: [u8; 16]) -> Segments<'a> {
        Segments {
            objects,
            seal,
            store,
            maps: Mutex::new(Recent { kept: VecDeque::new(), most: KEPT_MAPS }),
            indexes: Mutex::new(Recent { kept: VecDeque::new(), most: KEPT_INDEXES }),
        }
    }

    /// A frame of a segment of pages.
    fn frame(&self, address: u64) -> Result<(String, Vec<u8>)> {
        let (number, frame) = (address / SEGMENT_BLOCKS, (address % SEGMENT_BLOCKS) as usize);
        let known = lock(&self.maps).get(number);
        let name = Kind::Map.name(number);
        let whole = match known {
            Some(whole) => whole,
            None => {
                let bytes = objects::must_get(self.objects, &name, None)?;
                let index = Index::decode(&self.seal, self.store, (Kind::Map, number), &bytes)?;
                let whole = Arc::new(Whole { index, bytes });
                lock(&self.maps).put(number, whole.clone());
                whole
            }
        };
        let raw = whole.index.open(&self.seal, frame, 0, &whole.bytes)?;
        Ok((name, raw))
    }

    /// The page at this address. 0: an empty one.
    pub fn page(&self, level: u8, address: u64) -> Result<Slots> {
        if address == 0 {
            return Ok(page::empty());
        }
        let (name, raw) = self.frame(address)?;
        page::decode(&name, level, &raw)
    }

    /// The table of a point.
    pub fn table(&self, address: u64) -> Result<Contents> {
        let (name, raw) = self.frame(address)?;
        Contents::decode(&name, &raw)
    }

    /// The index of a segment of data. None: there is no such segment.
    pub fn index(&self, number: u64) -> Result<Option<Arc<Index>>> {
        if let Some(index) = lock(&self.indexes).get(number) {
            return Ok(Some(index));
        }
        let name = Kind::Data.name(number);
        let Some(mut first) = objects::get(self.objects, &name, Some(0..FIRST_READ))? else { return Ok(None) };
        let wanted = Index::wanted(Kind::Data, number, &first)?;
        if wanted > first.len() as u64 && first.len() as u64 == FIRST_READ {
            first = objects::must_get(self.objects, &name, Some(0..wanted))?;
        }
        let index = Arc::new(Index::decode(&self.seal, self.store, (Kind::Data, number), &first)?);
        lock(&self.indexes).put(number, index.clone());
        Ok(Some(index))
    }

    /// Frames of a segment of data, in as few requests as are good.
    pub fn frames(&self, number: u64, wanted: &[usize]) -> Result<BTreeMap<usize, Vec<u8>>> {
        let name = Kind::Data.name(number);
        let index = self.index(number)?.ok_or_else(|| StoreError::Missing { name: name.clone() })?;
        let mut found = BTreeMap::new();
        let mut rest = wanted;
        while let [first, ..] = rest {
            let mut span = index.span(*first, *first)?;
            let mut count = 1;
            while let Some(next) = rest.get(count) {
                let next = index.span(*next, *next)?;
                if next.start > span.end + NEAR {
                    break;
                }
                span.end = next.end;
                count += 1;
            }
            let from = span.start;
            let bytes = objects::must_get(self.objects, &name, Some(span))?;
            for frame in &rest[..count] {
                found.insert(*frame, index.open(&self.seal, *frame, from, &bytes)?);
            }
            rest = &rest[count..];
        }
        Ok(found)
    }

    /// The bytes of some runs of blocks: address and count. Segments are read at once, up to `at_once` of them.
    pub fn blocks(&self, runs: &[(u64, u64)], at_once: usize) -> Result<Vec<u8>> {
        let mut wanted: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (address, count) in runs {
            for address in *address..address + count {
                let (number, frame, _) = place_of(address);
                let frames = wanted.entry(number).or_default();
                if frames.last() != Some(&frame) {
                    frames.push(frame);
                }
            }
        }
        for frames in wanted.values_mut() {
            frames.sort_unstable();
            frames.dedup();
        }
        let wanted: Vec<(u64, Vec<usize>)> = wanted.into_iter().collect();
        let found = self.gathered(&wanted, at_once)?;
        let mut bytes = Vec::with_capacity(runs.iter().map(|(_, count)| count * BLOCK).sum::<u64>() as usize);
        for (address, count) in runs {
            for address in *address..address + count {
                let (number, frame, place) = place_of(address);
                let start = place * BLOCK as usize;
                let block = found.get(&(number, frame)).and_then(|raw| raw.get(start..start + BLOCK as usize));
                let block = block.ok_or_else(|| StoreError::Damaged {
                    name: Kind::Data.name(number),
                    what: "it has less blocks than a map says",
                })?;
                bytes.extend(block);
            }
        }
        Ok(bytes)
    }

    fn gathered(&self, wanted: &[(u64, Vec<usize>)], at_once: usize) -> Result<BTreeMap<(u64, usize), Vec<u8>>> {
        let mut all = BTreeMap::new();
        if at_once <= 1 || wanted.len() <= 1 {
            for (number, frames) in wanted {
                all.extend(self.frames(*number, frames)?.into_iter().map(|(frame, raw)| ((*number, frame), raw)));
            }
            return Ok(all);
        }
        for some in wanted.chunks(at_once) {
            let answers: Vec<_> = std::thread::scope(|scope| {
                let started: Vec<_> =
                    some.iter().map(|(number, frames)| scope.spawn(|| self.frames(*number, frames))).collect();
                started.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
            });
            for ((number, _), answer) in some.iter().zip(answers) {
                all.extend(answer?.into_iter().map(|(frame, raw)| ((*number, frame), raw)));
            }
        }
        Ok(all)
    }
}

/// What differs in a map: a run of blocks of the volume, and the address of the first one, or that they are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start: u64,
    pub blocks: u64,
    pub address: Option<u64>,
}

/// Goes through two maps and gives out what the new one has that the old one has not, in order. Pages that both have are not read.
pub struct Differences<'s, 'a, F: FnMut(Run) -> Result<()>> {
    segments: &'s Segments<'a>,
    heights: [u8; 2],
    from: u64,
    end: u64,
    pending: Option<Run>,
    give: F,
}

impl<F: FnMut(Run) -> Result<()>> Differences<'_, '_, F> {
    /// From a block on.
    pub fn walk(segments: &Segments<'_>, old: Option<&Contents>, new: &Contents, from: u64, give: F) -> Result<()> {
        let (old_root, old_height) = old.map_or((0, 1), |old| (old.root, old.height));
        let heights = [old_height, new.height];
        let top = old_height.max(new.height) - 1;
        let mut walk = Differences { segments, heights, from, end: new.blocks, pending: None, give };
        walk.below(top, 0, [old_root, new.root])?;
        walk.flush()
    }

    fn below(&mut self, level: u8, start: u64, pages: [u64; 2]) -> Result<()> {
        let span = page::blocks_of_slot(level);
        let [old, new] = pages;
        if old == new || start >= self.end || start.saturating_add(span.saturating_mul(page::SLOTS as u64)) <= self.from
        {
            return Ok(());
        }
        let [old, new] = [self.load(0, level, old)?, self.load(1, level, new)?];
        for (slot, (old, new)) in (0..).zip(old.iter().zip(new.iter())) {
            let at = start + slot * span;
            if level > 0 {
                self.below(level - 1, at, [*old, *new])?;
            } else if old != new && at >= self.from && at < self.end {
                self.run(at, Some(*new).filter(|new| *new != 0))?;
            }
        }
        Ok(())
    }

    /// A lower map is the first slot of pages that it has not got.
    fn load(&self, side: usize, level: u8, address: u64) -> Result<Slots> {
        if level < self.heights[side] {
            return self.segments.page(level, address);
        }
        let mut slots = page::empty();
        slots[0] = address;
        Ok(slots)
    }

    fn run(&mut self, block: u64, address: Option<u64>) -> Result<()> {
        if let Some(run) = &mut self.pending
            && run.start + run.blocks == block
        {
            let next = run.address.map(|address| address + run.blocks);
            if next == address {
                run.blocks += 1;
                return Ok(());
            }
        }
        self.flush()?;
        self.pending = Some(Run { start: block, blocks: 1, address });
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match self.pending.take() {
            Some(run) => (self.give)(run),
            None => Ok(()),
        }
    }
}
