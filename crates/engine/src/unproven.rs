//! Unproven blocks: their data was never compared with their journal record.
//!
//! Recovery compares the data of a record that no marker covers with the record's checksum (rule R6). It cannot do that
//! if the data lies on a physical volume that is out.
//!
//! * MB7 Recovery applies such a record: a flush may have covered it, and then older data must not come back. Its
//!   blocks are *unproven*: a read of them fails, on any physical volume. They are compared when the disk returns. If
//!   they hold the record's data, they become normal blocks. If not, they stay an error until they are written again.
//!   Until then no write goes to them in place: it goes to another block, as for a shared block. Each checkpoint has
//!   the list of unproven blocks. Blocks whose numbers end with free extents are taken out of it.

use crate::disk::{PvIndex, Segment, Segments};
use crate::format::superblock::DATA_OFFSET;
use crate::placement::Placement;
use crate::units::{BLOCK_SIZE, VgBlock};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A run of unproven blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnprovenRun {
    /// Its first VG block.
    pub start: u64,
    /// In blocks.
    pub len: u64,
    /// The CRC-32C that its data should have. None: the data is known to be wrong, or cannot be compared any more.
    pub crc: Option<u32>,
}

/// The runs, by where they are: the physical volume, and the byte there.
type Runs = BTreeMap<(u16, u64), UnprovenRun>;

/// Blocks of a part: 512 MiB, the limit of one segment.
const MAX_BLOCKS: u64 = 1 << 17;

/// All unproven blocks of a group.
#[derive(Default)]
pub struct Unproven {
    runs: RwLock<Runs>,
    /// The number of unproven blocks. Most groups have none, and then take no lock.
    blocks: AtomicU64,
}

impl Unproven {
    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// The runs in the order of their places.
    pub fn list(&self) -> Vec<UnprovenRun> {
        self.runs.read().values().copied().collect()
    }

    /// Adds a run. A run on two physical volumes can never be compared, because its parts are read separately.
    pub fn add(&self, placement: &Placement, run: UnprovenRun) {
        let parts = parts_of(placement, run.start, run.len);
        let crc = run.crc.filter(|_| parts.len() == 1);
        let mut runs = self.runs.write();
        for (start, segment) in parts {
            self.remove(&mut runs, &segment);
            let len = u64::from(segment.len) / BLOCK_SIZE;
            runs.insert((segment.pv.0, segment.offset), UnprovenRun { start, len, crc });
            self.blocks.fetch_add(len, Ordering::AcqRel);
        }
    }

    /// The first of these places that has unproven blocks.
    pub fn first_of(&self, segments: &Segments) -> Option<Segment> {
        if self.blocks() == 0 {
            return None;
        }
        let runs = self.runs.read();
        segments.iter().find(|segment| overlapping(&runs, segment).next().is_some()).copied()
    }

    /// Whether any of these VG blocks is unproven.
    pub fn has_any(&self, placement: &Placement, start: u64, len: u64) -> bool {
        self.among(placement, start, len) > 0
    }

    /// How many of these VG blocks are unproven.
    pub fn among(&self, placement: &Placement, start: u64, len: u64) -> u64 {
        if self.blocks() == 0 {
            return 0;
        }
        let runs = self.runs.read();
        let within = |segment: &Segment| {
            let (from, to) = blocks_of(segment.offset, u64::from(segment.len));
            let blocks = overlapping(&runs, segment).map(|(offset, run)| {
                let (first, end) = blocks_of(offset, run.len * BLOCK_SIZE);
                end.min(to).saturating_sub(first.max(from))
            });
            blocks.sum::<u64>()
        };
        parts_of(placement, start, len).iter().map(|(_, segment)| within(segment)).sum()
    }

    /// Other data is written there.
    pub fn forget(&self, segments: &Segments) {
        if self.blocks() > 0 {
            let mut runs = self.runs.write();
            segments.iter().for_each(|segment| self.remove(&mut runs, segment));
        }
    }

    /// The same of VG blocks.
    pub fn forget_blocks(&self, placement: &Placement, start: u64, len: u64) {
        if self.blocks() > 0 {
            self.forget(&parts_of(placement, start, len).into_iter().map(|(_, segment)| segment).collect());
        }
    }

    /// These VG blocks leave the group.
    pub fn forget_range(&self, range: &Range<u64>) {
        let mut runs = self.runs.write();
        let within = |((pv, offset), run): (&(u16, u64), &UnprovenRun)| {
            let (from, to) = (run.start.max(range.start), (run.start + run.len).min(range.end));
            let offset = offset + (from.max(run.start) - run.start) * BLOCK_SIZE;
            (from < to).then(|| (PvIndex(*pv), offset, (to - from) * BLOCK_SIZE))
        };
        let leaving: Vec<_> = runs.iter().filter_map(within).collect();
        for (pv, offset, bytes) in leaving {
            let len = u32::try_from(bytes).expect("a run has at most MAX_BLOCKS");
            self.remove(&mut runs, &Segment { pv, offset, at: 0, len });
        }
    }

    /// Numbers of free extents end, because they become mirrored, striped or linear ones. No data was there.
    pub fn forget_outside(&self, placement: &Placement) {
        if self.blocks() == 0 {
            return;
        }
        for run in self.list() {
            let (mut at, end) = (run.start, run.start + run.len);
            for placed in placement.runs().iter().filter(|placed| placed.end > run.start && placed.start < end) {
                if at < placed.start {
                    self.forget_range(&(at..placed.start));
                }
                at = placed.end;
            }
            if at < end {
                self.forget_range(&(at..end));
            }
        }
    }

    /// A checkpoint frees these runs of VG blocks, which do not overlap.
    pub fn forget_freed(&self, freed: &[(u64, u64)]) {
        if self.blocks() == 0 {
            return;
        }
        let mut freed = freed.to_vec();
        freed.sort_unstable();
        for run in self.list() {
            let first = freed.partition_point(|(start, len)| start + len <= run.start);
            let touching = freed[first..].iter().take_while(|(start, _)| *start < run.start + run.len);
            touching.for_each(|(start, len)| self.forget_range(&(*start..start + len)));
        }
    }

    /// The runs on a physical volume that can be compared.
    pub fn to_compare(&self, pv: PvIndex) -> Vec<UnprovenRun> {
        let runs = self.runs.read();
        runs.range((pv.0, 0)..=(pv.0, u64::MAX)).map(|(_, run)| *run).filter(|run| run.crc.is_some()).collect()
    }

    /// The result of a comparison of a run.
    pub fn compared(&self, placement: &Placement, run: UnprovenRun, is_right: bool) {
        match is_right {
            true => self.forget_blocks(placement, run.start, run.len),
            false => self.add(placement, UnprovenRun { crc: None, ..run }),
        }
    }

    /// Takes a place out of the list. The rest of a cut run can no longer be compared.
    fn remove(&self, runs: &mut Runs, segment: &Segment) {
        let cut: Vec<(u64, UnprovenRun)> = overlapping(runs, segment).collect();
        let (from, to) = blocks_of(segment.offset, u64::from(segment.len));
        for (offset, run) in cut {
            runs.remove(&(segment.pv.0, offset));
            self.blocks.fetch_sub(run.len, Ordering::AcqRel);
            let (first, end) = blocks_of(offset, run.len * BLOCK_SIZE);
            for (start, end) in [(first, from.min(end)), (to.max(first), end)] {
                if start < end {
                    let rest = UnprovenRun { start: run.start + start - first, len: end - start, crc: None };
                    runs.insert((segment.pv.0, DATA_OFFSET + start * BLOCK_SIZE), rest);
                    self.blocks.fetch_add(rest.len, Ordering::AcqRel);
                }
            }
        }
    }
}

/// The places of VG blocks, in parts: the first VG block of each part, and its place.
fn parts_of(placement: &Placement, start: u64, len: u64) -> SmallVec<[(u64, Segment); 2]> {
    let (mut at, end, mut parts) = (start, start + len, SmallVec::new());
    while at < end {
        let (_, pv_end) = placement.pv_of(VgBlock(at));
        let to = end.min(pv_end).min(at + MAX_BLOCKS);
        let mut segments = Segments::new();
        placement.map_blocks(VgBlock(at), to - at, 0, &mut segments);
        parts.extend(segments.into_iter().map(|segment| (at, segment)));
        at = to;
    }
    parts
}

/// The blocks of a physical volume that a range of its bytes touches, counted from the first of its extents.
fn blocks_of(offset: u64, bytes: u64) -> (u64, u64) {
    let in_extents = |byte: u64| byte.saturating_sub(DATA_OFFSET);
    (in_extents(offset) / BLOCK_SIZE, in_extents(offset + bytes).div_ceil(BLOCK_SIZE))
}

/// The runs that a place touches, with their bytes on its physical volume.
fn overlapping<'a>(runs: &'a Runs, segment: &Segment) -> impl Iterator<Item = (u64, UnprovenRun)> + 'a {
    let (from, to) = blocks_of(segment.offset, u64::from(segment.len));
    let end = DATA_OFFSET + to * BLOCK_SIZE;
    // Runs do not overlap: of those that begin before the end, the last ones touch it.
    let before = runs.range((segment.pv.0, 0)..(segment.pv.0, end)).rev();
    before
        .map(|((_, offset), run)| (*offset, *run))
        .take_while(move |(offset, run)| blocks_of(*offset, run.len * BLOCK_SIZE).1 > from)
}

#[cfg(test)]
#[path = "unproven_test.rs"]
mod tests;
