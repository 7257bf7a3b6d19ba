//! Disks that hold what is written to them, until their server dies.

use parking_lot::{Mutex, RwLock};
use rowen_engine::disk::{Completer, DiskError, DiskOp, DiskResult, Disks, PvGeometry, PvIndex, Segment};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;

/// A disk.
pub(super) struct Disk {
    pub path: PathBuf,
    size: u64,
    /// What was ever written, by page.
    pages: HashMap<u64, Box<[u8]>>,
}

/// The disks of a group. Each request is done on the spot.
#[derive(Default)]
pub struct MemoryDisks {
    pub(super) disks: RwLock<Vec<Disk>>,
    /// Writes until the server dies: from then on nothing reaches the disks.
    pub(super) left: Mutex<Option<u64>>,
}

impl MemoryDisks {
    pub(super) fn push(&self, path: &Path, size: u64) {
        self.disks.write().push(Disk { path: path.to_owned(), size, pages: HashMap::new() });
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
        *left != Some(0)
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
                    let pages = &mut disks[usize::from(segment.pv.0)].pages;
                    Self::parts(segment, |page, within, at| {
                        let bytes = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into_boxed_slice());
                        let len = within.len();
                        bytes[within].copy_from_slice(&buf.as_slice()[at..at + len]);
                    });
                }
            }
            DiskOp::Flush | DiskOp::Discard { .. } => {}
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
