//! Placement: converts VG blocks to a physical volume and a byte on it.
//!
//! Each physical volume has a range of the group's address space, its home. Between the ranges there may be gaps
//! without blocks: a physical volume left or shrank there, or has room to grow. The table of zones says where moved
//! extents lie ([`zones`]).

use crate::disk::{PvIndex, Segment, Segments};
use crate::format::codec::RECORD_LIMIT;
use crate::format::superblock::{DATA_OFFSET, GroupRoot, PvEntry};
use crate::format::zones::{self, Zone, ZonePlace};
use crate::units::{BLOCK_SIZE, VgBlock};
use std::ops::Range;

/// VG blocks that follow each other on one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedRun {
    /// Its first VG block, and the block behind its last.
    pub start: u64,
    pub end: u64,
    pub pv: u16,
    /// The first block on the physical volume, counted from the first of its extents.
    pub at: u64,
}

impl PlacedRun {
    /// Whether `next` continues this run, both in numbers and on the physical volume.
    fn continues(&self, next: &PlacedRun) -> bool {
        self.end == next.start && self.pv == next.pv && self.at + (self.end - self.start) == next.at
    }

    /// The part of it that lies within these VG blocks.
    fn cut(&self, start: u64, end: u64) -> Option<PlacedRun> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| PlacedRun { start: from, end: to, pv: self.pv, at: self.at + (from - self.start) })
    }

    /// The part of it that lies within these blocks of its physical volume.
    fn cut_place(&self, blocks: &Range<u64>) -> Option<PlacedRun> {
        let (from, to) = (self.at.max(blocks.start), (self.at + (self.end - self.start)).min(blocks.end));
        (from < to).then(|| PlacedRun {
            start: self.start + (from - self.at),
            end: self.start + (to - self.at),
            pv: self.pv,
            at: from,
        })
    }
}

/// The group's table of physical volumes, and where each block lies.
#[derive(Clone, Debug)]
pub struct Placement {
    pub extent_blocks: u64,
    pub pvs: Vec<PvEntry>,
    /// In the order of VG blocks.
    runs: Vec<PlacedRun>,
    has_gaps: bool,
}

impl Placement {
    /// All blocks are at home.
    pub fn new(extent_blocks: u64, pvs: Vec<PvEntry>) -> Placement {
        Placement::with_zones(extent_blocks, pvs, &[])
    }

    /// As the group's root says.
    pub fn of(root: &GroupRoot) -> Placement {
        Placement::with_zones(root.extent_blocks, root.pvs.clone(), &root.zones.zones)
    }

    /// The same with these zones, if they fit the root (Z1, Z2) and all blocks that it names exist.
    pub fn checked(root: &GroupRoot, zones: &[Zone]) -> Option<Placement> {
        let homes: Vec<Range<u64>> = root.pvs.iter().map(|pv| pv.first_extent..pv.first_extent + pv.extents).collect();
        if !zones::are_sound(zones, &homes, (RECORD_LIMIT - 1) / root.extent_blocks) {
            return None;
        }
        let placement = Placement::with_zones(root.extent_blocks, root.pvs.clone(), zones);
        let journals = root.journals().map(|start| (start, root.journal_blocks));
        let mut named = journals.chain(root.index.map(|index| (index, 1)));
        named.all(|(start, len)| placement.holds(start, len)).then_some(placement)
    }

    /// Describes the bad runs of the journal's ring, one text for each. If there are two copies, a run is bad in one
    /// and skipped in both.
    pub fn bad_places(&self, root: &GroupRoot) -> Vec<String> {
        let place = |run: &Range<u64>, start: u64| {
            let mut segments = Segments::new();
            self.map_blocks(VgBlock(start + run.start), run.end - run.start, 0, &mut segments);
            segments.first().map(|Segment { pv, offset, .. }| (pv.0, *offset))
        };
        let message = |run: &Range<u64>| {
            let bytes = (run.end - run.start) * BLOCK_SIZE;
            let mut places = root.journals().filter_map(|start| place(run, start));
            let (pv, offset) = places.next()?;
            let other = places
                .next()
                .map_or(String::new(), |(pv, offset)| format!(", or physical volume {pv} from byte {offset},"));
            Some(format!(
                "physical volume {pv}{other} cannot be written in {bytes} bytes from byte {offset}: the journal is written around them"
            ))
        };
        root.bad.runs().iter().filter_map(message).collect()
    }

    /// With the zones of a valid table.
    pub fn with_zones(extent_blocks: u64, pvs: Vec<PvEntry>, zones: &[Zone]) -> Placement {
        let run = |extents: Range<u64>, pv: u16, first_pe: u64| PlacedRun {
            start: extents.start * extent_blocks,
            end: extents.end * extent_blocks,
            pv,
            at: first_pe * extent_blocks,
        };
        let mut runs = Vec::new();
        for (index, pv) in (0..).zip(&pvs) {
            let home = pv.first_extent..pv.first_extent + pv.extents;
            let parts = zones::outside(zones, &home);
            runs.extend(parts.map(|part| run(part.clone(), index, part.start - home.start)));
        }
        let zones = zones.iter().filter_map(|zone| Some((zone, zone.place?)));
        runs.extend(zones.map(|(zone, ZonePlace { pv, first_pe })| {
            run(zone.first_extent..zone.first_extent + zone.extents, pv, first_pe)
        }));
        Placement::of_runs(extent_blocks, pvs, runs)
    }

    fn of_runs(extent_blocks: u64, pvs: Vec<PvEntry>, mut runs: Vec<PlacedRun>) -> Placement {
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|next, run| {
            let continues = run.continues(next);
            run.end = if continues { next.end } else { run.end };
            continues
        });
        let mut next = 0;
        let has_gaps = runs.iter().any(|run| std::mem::replace(&mut next, run.end) != run.start);
        Placement { extent_blocks, pvs, runs, has_gaps }
    }

    /// The zones that describe this placement with its table of physical volumes.
    pub fn zones(&self) -> Vec<Zone> {
        let extents = |blocks: u64| blocks / self.extent_blocks;
        let is_home = |run: &PlacedRun| {
            let home = self.pvs[usize::from(run.pv)].first_extent * self.extent_blocks;
            home + run.at == run.start
        };
        let away = self.runs.iter().filter(|run| !is_home(run)).map(|run| Zone {
            first_extent: extents(run.start),
            extents: extents(run.end - run.start),
            place: Some(ZonePlace { pv: run.pv, first_pe: extents(run.at) }),
        });
        let mut zones: Vec<Zone> = away.collect();
        // Numbers of a home range without blocks.
        for pv in &self.pvs {
            let home = pv.first_extent..pv.first_extent + pv.extents;
            let mut at = home.start;
            for run in &self.runs {
                let (from, to) = (extents(run.start).clamp(at, home.end), extents(run.end).clamp(at, home.end));
                if extents(run.end) <= at || from >= home.end {
                    continue;
                }
                if at < from {
                    zones.push(Zone { first_extent: at, extents: from - at, place: None });
                }
                at = to;
            }
            if at < home.end {
                zones.push(Zone { first_extent: at, extents: home.end - at, place: None });
            }
        }
        zones.sort_unstable_by_key(|zone| zone.first_extent);
        zones
    }

    /// The same with two runs of equal length exchanged: each lies where the other one was.
    #[must_use]
    pub fn exchanged(&self, one: Range<u64>, other: Range<u64>) -> Placement {
        debug_assert_eq!(one.end - one.start, other.end - other.start, "Z2");
        let mut runs = Vec::with_capacity(self.runs.len() + 4);
        for run in &self.runs {
            let bounds = [run.start, one.start, one.end, other.start, other.end, run.end];
            let mut bounds = bounds.map(|bound| bound.clamp(run.start, run.end));
            bounds.sort_unstable();
            for pair in bounds.windows(2) {
                let Some(part) = run.cut(pair[0], pair[1]) else { continue };
                let moved = |from: &Range<u64>, to: &Range<u64>| to.start + (part.start - from.start);
                let start = match part.start {
                    start if one.contains(&start) => moved(&one, &other),
                    start if other.contains(&start) => moved(&other, &one),
                    start => start,
                };
                runs.push(PlacedRun { start, end: start + (part.end - part.start), ..part });
            }
        }
        Placement::of_runs(self.extent_blocks, self.pvs.clone(), runs)
    }

    /// The same without a physical volume, and without all blocks that lie there.
    #[must_use]
    pub fn without(&self, pv: PvIndex) -> Placement {
        let mut pvs = self.pvs.clone();
        pvs.remove(usize::from(pv.0));
        let runs = self.runs.iter().filter(|run| run.pv != pv.0).map(|run| match run.pv > pv.0 {
            true => PlacedRun { pv: run.pv - 1, ..*run },
            false => *run,
        });
        Placement::of_runs(self.extent_blocks, pvs, runs.collect())
    }

    /// The same with another table, of as many physical volumes or more. A physical volume that shrank loses the blocks
    /// at its end; new blocks have their home numbers.
    #[must_use]
    pub fn with_table(&self, pvs: Vec<PvEntry>) -> Placement {
        let mut runs: Vec<PlacedRun> = Vec::new();
        for (index, pv) in (0..).zip(&pvs) {
            let had = self.pvs.get(usize::from(index)).map_or(0, |pv| pv.extents) * self.extent_blocks;
            let has = pv.extents * self.extent_blocks;
            let kept = self.runs.iter().filter(|run| run.pv == index);
            runs.extend(kept.filter_map(|run| run.cut_place(&(0..has))));
            let home = pv.first_extent * self.extent_blocks;
            if had < has {
                runs.push(PlacedRun { start: home + had, end: home + has, pv: index, at: had });
            }
        }
        Placement::of_runs(self.extent_blocks, pvs, runs)
    }

    /// All runs, in the order of VG blocks.
    pub fn runs(&self) -> &[PlacedRun] {
        &self.runs
    }

    /// The end of the group's address space, in blocks.
    pub fn blocks(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// The end of all extent numbers in use.
    pub fn numbers_end(&self) -> u64 {
        let homes = self.pvs.last().map_or(0, |pv| pv.first_extent + pv.extents);
        homes.max(self.blocks() / self.extent_blocks)
    }

    /// The number of blocks, without gaps.
    pub fn count(&self) -> u64 {
        self.pvs.iter().map(|pv| pv.extents).sum::<u64>() * self.extent_blocks
    }

    /// The number of blocks before `block`, which is on a physical volume. Blocks for which [`holds`](Self::holds) is
    /// true have consecutive numbers.
    pub fn number_of(&self, block: u64) -> u64 {
        let mut before = 0;
        for run in &self.runs {
            if block < run.end {
                return before + (block - run.start);
            }
            before += run.end - run.start;
        }
        before
    }

    /// Whether all of these blocks are on physical volumes.
    pub fn holds(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        if !self.has_gaps {
            return end <= self.blocks();
        }
        let first = self.runs.partition_point(|run| run.end <= start);
        let mut at = start;
        for run in &self.runs[first..] {
            if at >= end || run.start > at {
                break;
            }
            at = run.end;
        }
        at >= end
    }

    /// The VG blocks that lie on one physical volume, in the order of their numbers.
    pub fn ranges_of(&self, pv: PvIndex) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for run in self.runs.iter().filter(|run| run.pv == pv.0) {
            match ranges.last_mut().filter(|range| range.end == run.start) {
                Some(range) => range.end = run.end,
                None => ranges.push(run.start..run.end),
            }
        }
        ranges
    }

    /// The runs on these extents of a physical volume, in their order.
    pub fn runs_at(&self, pv: PvIndex, extents: &Range<u64>) -> Vec<PlacedRun> {
        let blocks = extents.start.saturating_mul(self.extent_blocks)..extents.end.saturating_mul(self.extent_blocks);
        let on = self.runs.iter().filter(|run| run.pv == pv.0);
        let mut runs: Vec<PlacedRun> = on.filter_map(|run| run.cut_place(&blocks)).collect();
        runs.sort_unstable_by_key(|run| run.at);
        runs
    }

    fn run_of(&self, block: u64) -> &PlacedRun {
        &self.runs[self.runs.partition_point(|run| run.end <= block)]
    }

    /// The physical volume of `block`, and the end of the run of blocks that follow it there. The block must exist.
    pub fn pv_of(&self, block: VgBlock) -> (PvIndex, u64) {
        let run = self.run_of(block.0);
        (PvIndex(run.pv), run.end)
    }

    /// The extent of its physical volume that holds `block`.
    pub fn pe_of(&self, block: VgBlock) -> u64 {
        let run = self.run_of(block.0);
        (run.at + (block.0 - run.start)) / self.extent_blocks
    }

    /// Adds the segments of the bytes [`start`, `start + len`) of the group's address space to `segments`,
    /// with the buffer offset `at`. Continues the last segment where it can.
    pub fn map_bytes(&self, mut start: u64, mut len: u64, mut at: u32, segments: &mut Segments) {
        while len > 0 {
            let run = self.run_of(start / BLOCK_SIZE);
            let piece = len.min(run.end * BLOCK_SIZE - start).min(1 << 30);
            let piece32 = u32::try_from(piece).expect("cut to a gigabyte");
            let offset = DATA_OFFSET + run.at * BLOCK_SIZE + (start - run.start * BLOCK_SIZE);
            match segments.last_mut() {
                Some(last)
                    if last.pv.0 == run.pv
                        && last.offset + u64::from(last.len) == offset
                        && last.at + last.len == at =>
                {
                    last.len += piece32;
                }
                _ => segments.push(Segment { pv: PvIndex(run.pv), offset, at, len: piece32 }),
            }
            start += piece;
            len -= piece;
            at = at.wrapping_add(piece32);
        }
    }

    /// The same for whole blocks.
    pub fn map_blocks(&self, start: VgBlock, blocks: u64, at: u32, segments: &mut Segments) {
        self.map_bytes(start.0 * BLOCK_SIZE, blocks * BLOCK_SIZE, at, segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Uuid;

    fn placement(ranges: &[(u64, u64)]) -> Placement {
        let entry = |(first_extent, extents): &(u64, u64)| PvEntry {
            uuid: Uuid([1; 16]),
            first_extent: *first_extent,
            extents: *extents,
            size: 1 << 40,
        };
        Placement::new(4, ranges.iter().map(entry).collect())
    }

    #[test]
    fn no_block_is_in_a_gap_or_reaches_over_one() {
        // Blocks 8 to 19 and 20 to 31 are there, and 40 to 43.
        let gaps = placement(&[(2, 3), (5, 3), (10, 1)]);
        for (start, len, is_there) in [
            (8, 24, true),
            (19, 2, true),
            (40, 4, true),
            (7, 1, false),
            (0, 4, false),
            (31, 2, false),
            (32, 8, false),
            (30, 14, false),
            (43, 2, false),
            (44, 1, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(gaps.holds(start, len), is_there, "{start}+{len}");
        }
        assert_eq!((gaps.blocks(), gaps.count()), (44, 28));
        let numbers = [8, 19, 20, 31, 40, 43].map(|block| gaps.number_of(block));
        assert_eq!(numbers, [0, 11, 12, 23, 24, 27]);
        let whole = placement(&[(0, 3), (3, 3)]);
        assert!(whole.holds(0, 24) && !whole.holds(0, 25) && !whole.holds(u64::MAX, 2));
        let mut segments = Segments::new();
        gaps.map_blocks(VgBlock(19), 2, 0, &mut segments);
        let found: Vec<_> = segments.iter().map(|segment| (segment.pv.0, segment.offset)).collect();
        assert_eq!(found, [(0, DATA_OFFSET + 11 * BLOCK_SIZE), (1, DATA_OFFSET)]);
    }
}
