//! Disks that hold what is written to them, until their server dies or the power fails.

use crate::protocol::IoCounts;
use crate::service::platform::Faults;
use parking_lot::{Mutex, RwLock};
use rowen_engine::disk::{Completer, DiskError, DiskOp, DiskResult, Disks, PvGeometry, PvIndex, Segment};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: u64 = 4096;

/// The unit that a disk writes whole.
const SECTOR: usize = 512;

/// A disk.
pub(super) struct Disk {
    pub path: PathBuf,
    size: u64,
    /// What was ever written, by page.
    pages: HashMap<u64, Box<[u8]>>,
    /// Of each page that was written since the last flush, what it held then.
    flushed: HashMap<u64, Box<[u8]>>,
    /// It is away: its size.
    away: Option<u64>,
}

/// What a power cut leaves of the writes since the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// None of them.
    None,
    /// Some sectors of them, chosen by this number.
    Some(u64),
}

impl Cut {
    /// Whether this sector holds what was written last.
    fn keeps(self, pv: usize, page: u64, sector: usize) -> bool {
        match self {
            Cut::None => false,
            Cut::Some(seed) => {
                let mut hasher = DefaultHasher::new();
                (seed, pv, page, sector).hash(&mut hasher);
                hasher.finish() & 1 == 1
            }
        }
    }
}

impl Disk {
    fn cut(&mut self, pv: usize, cut: Cut) {
        for (page, old) in self.flushed.drain() {
            let now = self.pages.get_mut(&page).expect("what was flushed once is there");
            for (sector, old) in old.chunks(SECTOR).enumerate().filter(|(sector, _)| !cut.keeps(pv, page, *sector)) {
                now[sector * SECTOR..][..SECTOR].copy_from_slice(old);
            }
        }
    }
}

/// The disks of a group. Each request is done on the spot.
#[derive(Default)]
pub struct MemoryDisks {
    pub(super) disks: RwLock<Vec<Disk>>,
    /// Writes until the server dies: from then on nothing reaches the disks.
    pub(super) left: Mutex<Option<u64>>,
    /// Flushes do nothing.
    pub(super) lies: AtomicBool,
    /// The faults that each disk reports.
    pub(super) faults: Mutex<Vec<Faults>>,
    pub(super) counted: Mutex<Vec<IoCounts>>,
}

impl MemoryDisks {
    pub(super) fn push(&self, path: &Path, size: u64) {
        let (pages, flushed) = (HashMap::new(), HashMap::new());
        self.disks.write().push(Disk { path: path.to_owned(), size, pages, flushed, away: None });
    }

    /// Disks lose a bit of each block with these contents, and report no error.
    pub(super) fn rot(&self, block: &[u8]) {
        let mut disks = self.disks.write();
        let pages = disks.iter_mut().flat_map(|disk| disk.pages.values_mut());
        pages.filter(|page| page[..] == *block).for_each(|page| page[7] ^= 1);
    }

    /// A disk is lost, or is let go of.
    pub(super) fn go(&self, pv: PvIndex) {
        let disk = &mut self.disks.write()[usize::from(pv.0)];
        disk.away = disk.away.or(Some(disk.size));
        (disk.path, disk.size) = ("[unknown]".into(), 0);
    }

    /// It is there again, as it was.
    pub(super) fn come_back(&self, pv: PvIndex, path: &Path) {
        let disk = &mut self.disks.write()[usize::from(pv.0)];
        if let Some(size) = disk.away.take() {
            (disk.path, disk.size) = (path.to_owned(), size);
        }
    }

    /// Only these disks are there from now on, in this order.
    pub(super) fn keep(&self, indexes: &[usize]) {
        let mut disks = self.disks.write();
        let mut all: Vec<Option<Disk>> = disks.drain(..).map(Some).collect();
        disks.extend(indexes.iter().map(|index| all[*index].take().expect("each once")));
    }

    /// The power fails: each disk loses what was not flushed, as `cut` says.
    pub(super) fn cut(&self, cut: Cut) {
        self.disks.write().iter_mut().enumerate().for_each(|(pv, disk)| disk.cut(pv, cut));
    }

    /// Carries out `each` for every part of a page that the segment has: its page, where in it, where in the buffer.
    fn parts(segment: &Segment, mut each: impl FnMut(u64, std::ops::Range<usize>, usize)) {
        let (mut at, end, mut buffer) = (segment.offset, segment.offset + u64::from(segment.len), segment.at as usize);
        while at < end {
            let next = end.min((at / PAGE + 1) * PAGE);
            let begin = (at % PAGE) as usize;
            let len = (next - at) as usize;
            each(at / PAGE, begin..begin + len, buffer);
            buffer += len;
            at = next;
        }
    }

    /// Counts a write. False: the server is dead.
    fn lives(&self) -> bool {
        let mut left = self.left.lock();
        *left = left.map(|left| left.saturating_sub(1));
        drop(left);
        self.is_alive()
    }

    pub(super) fn is_alive(&self) -> bool {
        *self.left.lock() != Some(0)
    }

    fn run(&self, op: DiskOp) -> DiskResult {
        let kind = op.kind();
        if matches!(op, DiskOp::Write { .. }) && !self.lives() {
            return Err(DiskError { op: kind, pv: PvIndex(0), offset: 0, errno: 5 });
        }
        let mut disks = self.disks.write();
        let beyond = |disks: &[Disk], segment: &Segment| {
            let end = segment.offset + u64::from(segment.len);
            let fits = disks.get(usize::from(segment.pv.0)).is_some_and(|disk| end <= disk.size);
            if fits { Ok(()) } else { Err(DiskError { op: kind, pv: segment.pv, offset: segment.offset, errno: 5 }) }
        };
        match op {
            DiskOp::Read { segments, mut buf } => {
                for segment in &segments {
                    beyond(&disks, segment)?;
                    let pages = &disks[usize::from(segment.pv.0)].pages;
                    Self::parts(segment, |page, within, at| {
                        let to = &mut buf.as_mut_slice()[at..at + within.len()];
                        match pages.get(&page) {
                            Some(bytes) => to.copy_from_slice(&bytes[within]),
                            None => to.fill(0),
                        }
                    });
                }
                return Ok(Some(buf));
            }
            DiskOp::Write { segments, buf } => {
                for segment in &segments {
                    beyond(&disks, segment)?;
                    let Disk { pages, flushed, .. } = &mut disks[usize::from(segment.pv.0)];
                    Self::parts(segment, |page, within, at| {
                        let bytes = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into_boxed_slice());
                        flushed.entry(page).or_insert_with(|| bytes.clone());
                        let len = within.len();
                        bytes[within].copy_from_slice(&buf.as_slice()[at..at + len]);
                    });
                }
            }
            DiskOp::Flush if self.lies.load(Ordering::SeqCst) => {}
            DiskOp::Flush if self.is_alive() => disks.iter_mut().for_each(|disk| disk.flushed.clear()),
            DiskOp::Flush => return Err(DiskError { op: kind, pv: PvIndex(0), offset: 0, errno: 5 }),
            DiskOp::Discard { .. } => {}
        }
        Ok(None)
    }
}

impl Disks for MemoryDisks {
    fn count(&self) -> usize {
        self.disks.read().len()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        PvGeometry { size: self.disks.read()[usize::from(pv.0)].size, sector: 512 }
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        done.complete(self.run(op));
    }
}
