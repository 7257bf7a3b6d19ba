//! Placement: converts VG blocks to a physical volume and a byte on it.
//!
//! Each physical volume has a range of the group's address space, its home. Between the ranges there may be gaps
//! without blocks: a physical volume left or shrank there, or has room to grow. The table of zones says where moved
//! extents lie ([`zones`]).

use crate::disk::{PvIndex, Segment, Segments};
use crate::format::codec::RECORD_LIMIT;
use crate::format::superblock::{DATA_OFFSET, GroupRoot, PvEntry};
use crate::format::zones::{self, Column, MIRRORED_FROM, Zone, ZonePlace};
use crate::legs::{Leg, MirroredRun};
use crate::model::SegmentType;
use crate::stripes::StripeSet;
use crate::units::{BLOCK_SIZE, VgBlock};
use std::ops::Range;

mod parts;
mod striped;

pub use parts::PlacedPart;

/// Added to the number of a striped set, in the place of a physical volume.
const SETS: u16 = 1 << 15;

/// VG blocks that follow each other on one physical volume, or in one striped set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedRun {
    /// Its first VG block, and the block behind its last.
    pub start: u64,
    pub end: u64,
    /// The physical volume. If the run [is striped](Self::is_striped) it is none.
    pub pv: u16,
    /// The first block on the physical volume, counted from the first of its extents, or in the striped set.
    pub at: u64,
    /// The second leg of mirrored blocks: the physical volume, and the first block there.
    pub second: Option<(u16, u64)>,
    /// The second leg is being filled from the first one, and does not count yet.
    pub is_filling: bool,
    /// Mirrored volumes take their blocks there, and no others do. It may lack the second leg for the time being.
    pub is_mirrored: bool,
}

impl PlacedRun {
    /// Blocks from `start` to `end` that have one place.
    pub fn plain(start: u64, end: u64, pv: u16, at: u64) -> PlacedRun {
        PlacedRun { start, end, pv, at, second: None, is_filling: false, is_mirrored: false }
    }

    /// Whether its blocks alternate between physical volumes.
    pub fn is_striped(&self) -> bool {
        self.pv >= SETS
    }

    /// The type of the volumes that take their blocks there.
    pub fn segment(&self) -> SegmentType {
        match (self.is_striped(), self.is_mirrored) {
            (true, _) => SegmentType::Striped,
            (false, true) => SegmentType::Raid1,
            (false, false) => SegmentType::Linear,
        }
    }

    /// Whether `next` continues this run, both in numbers and on the physical volumes.
    fn continues(&self, next: &PlacedRun) -> bool {
        let len = self.end - self.start;
        self.end == next.start
            && self.pv == next.pv
            && self.at + len == next.at
            && self.second.map(|(pv, at)| (pv, at + len)) == next.second
            && self.is_filling == next.is_filling
            && self.is_mirrored == next.is_mirrored
    }

    /// The part of it that lies within these VG blocks.
    fn cut(&self, start: u64, end: u64) -> Option<PlacedRun> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| self.part(from, to))
    }

    /// The part between two of its VG blocks.
    fn part(&self, start: u64, end: u64) -> PlacedRun {
        let skipped = start - self.start;
        let second = self.second.map(|(pv, at)| (pv, at + skipped));
        PlacedRun { start, end, pv: self.pv, at: self.at + skipped, second, ..*self }
    }

    /// The legs that count.
    fn complete_legs(&self) -> impl Iterator<Item = (u16, u64)> + use<> {
        std::iter::once((self.pv, self.at)).chain(self.second.filter(|_| !self.is_filling))
    }

    /// The first leg, and the second one.
    pub fn legs(&self) -> impl Iterator<Item = (u16, u64)> + use<> {
        std::iter::once((self.pv, self.at)).chain(self.second)
    }

    /// The part of it that lies within these blocks of its physical volume.
    fn cut_place(&self, blocks: &Range<u64>) -> Option<PlacedRun> {
        let (from, to) = (self.at.max(blocks.start), (self.at + (self.end - self.start)).min(blocks.end));
        (from < to).then(|| self.part(self.start + (from - self.at), self.start + (to - self.at)))
    }
}

/// Two runs of equal length on two physical volumes that become mirrored blocks, by their numbers before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirroredPair {
    pub first: u64,
    pub second: u64,
    pub blocks: u64,
}

impl MirroredPair {
    pub fn runs(&self) -> [Range<u64>; 2] {
        [self.first, self.second].map(|start| start..start + self.blocks)
    }
}

/// The group's table of physical volumes, and where each block lies.
#[derive(Clone, Debug)]
pub struct Placement {
    pub extent_blocks: u64,
    pub pvs: Vec<PvEntry>,
    /// In the order of VG blocks.
    runs: Vec<PlacedRun>,
    /// Striped sets, each with the run of the same place among striped runs.
    sets: Vec<StripeSet>,
    has_gaps: bool,
    /// The first mirrored block (Z4). None: homes are in the way, and nothing can be mirrored.
    mirrored_from: Option<u64>,
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
        if !zones::are_sound(zones, &homes, root.extent_blocks, (RECORD_LIMIT - 1) / root.extent_blocks) {
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
        let run = |extents: Range<u64>, pv: u16, first_pe: u64| {
            PlacedRun::plain(extents.start * extent_blocks, extents.end * extent_blocks, pv, first_pe * extent_blocks)
        };
        let mut runs = Vec::new();
        for (index, pv) in (0..).zip(&pvs) {
            let home = pv.first_extent..pv.first_extent + pv.extents;
            let parts = zones::outside(zones, &home);
            runs.extend(parts.map(|part| run(part.clone(), index, part.start - home.start)));
        }
        let placed = zones.iter().filter_map(|zone| Some((zone, zone.place?)));
        let mut sets: Vec<StripeSet> = Vec::new();
        for (zone, ZonePlace { pv, first_pe }) in placed {
            let extents = zone.first_extent..zone.first_extent + zone.extents;
            let own = PlacedRun {
                second: zone.second.map(|second| (second.pv, second.first_pe * extent_blocks)),
                is_filling: zone.is_filling,
                is_mirrored: zone.is_mirrored(extent_blocks),
                ..run(extents, pv, first_pe)
            };
            match (zone.column, sets.last_mut()) {
                (None, _) => runs.push(own),
                (Some(Column { number: 1.., .. }), Some(set)) => {
                    set.places.push((pv, own.at));
                    if let Some(striped) = runs.last_mut() {
                        striped.end = own.end;
                    }
                }
                (Some(Column { layout, .. }), _) => {
                    runs.push(PlacedRun { pv: SETS + sets.len() as u16, at: 0, ..own });
                    sets.push(StripeSet { layout, places: vec![(pv, own.at)] });
                }
            }
        }
        Placement::of_runs(extent_blocks, pvs, runs, &sets)
    }

    /// `sets`: those of which the runs are parts.
    fn of_runs(extent_blocks: u64, pvs: Vec<PvEntry>, mut runs: Vec<PlacedRun>, sets: &[StripeSet]) -> Placement {
        runs.sort_unstable_by_key(|run| run.start);
        let sets = of_their_own(&mut runs, sets);
        runs.dedup_by(|next, run| {
            let continues = run.continues(next);
            run.end = if continues { next.end } else { run.end };
            continues
        });
        let mut next = 0;
        let has_gaps = runs.iter().any(|run| std::mem::replace(&mut next, run.end) != run.start);
        let from = MIRRORED_FROM.next_multiple_of(extent_blocks);
        let homes = pvs.iter().map(|pv| (pv.first_extent + pv.extents) * extent_blocks).max();
        let mirrored_from = (homes.unwrap_or(0) <= from).then_some(from);
        Placement { extent_blocks, pvs, runs, sets, has_gaps, mirrored_from }
    }

    /// The zones that describe this placement with its table of physical volumes.
    pub fn zones(&self) -> Vec<Zone> {
        let extents = |blocks: u64| blocks / self.extent_blocks;
        let is_home = |run: &PlacedRun| {
            let home = self.pvs[usize::from(run.pv)].first_extent * self.extent_blocks;
            home + run.at == run.start
        };
        let (striped, others): (Vec<&PlacedRun>, Vec<&PlacedRun>) = self.runs.iter().partition(|run| run.is_striped());
        let away = others.into_iter().filter(|run| !is_home(run) || run.is_mirrored).map(|run| Zone {
            first_extent: extents(run.start),
            extents: extents(run.end - run.start),
            place: Some(ZonePlace { pv: run.pv, first_pe: extents(run.at) }),
            second: run.second.map(|(pv, at)| ZonePlace { pv, first_pe: extents(at) }),
            is_filling: run.is_filling,
            is_converted: run.is_mirrored != self.is_high(run.start),
            column: None,
        });
        let mut zones: Vec<Zone> = away.collect();
        for run in striped {
            let set = self.set_of(run);
            let each = extents(run.end - run.start) / u64::from(set.layout.columns);
            zones.extend((0..).zip(&set.places).map(|(number, (pv, at))| Zone {
                place: Some(ZonePlace { pv: *pv, first_pe: extents(*at) }),
                column: Some(Column { layout: set.layout, number }),
                ..Zone::nowhere(extents(run.start) + u64::from(number) * each, each)
            }));
        }
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
                    zones.push(Zone::nowhere(at, from - at));
                }
                at = to;
            }
            if at < home.end {
                zones.push(Zone::nowhere(at, home.end - at));
            }
        }
        zones.sort_unstable_by_key(|zone| zone.first_extent);
        zones
    }

    /// The same with mirrored blocks in the place of these pairs of runs. Also returns the mirrored numbers.
    #[must_use]
    pub fn with_mirrored(&self, pairs: &[MirroredPair]) -> (Placement, Vec<Range<u64>>) {
        let Some(from) = self.mirrored_from else { return (self.clone(), Vec::new()) };
        let mut number = self.blocks().max(from);
        let mut taken: Vec<Range<u64>> = pairs.iter().flat_map(MirroredPair::runs).collect();
        taken.sort_unstable_by_key(|range| range.start);
        let mut runs = self.runs_outside(&taken);
        let mut numbers = Vec::new();
        for pair in pairs {
            let [first, second] = [pair.first, pair.second].map(|block| {
                let run = self.run_of(block);
                (run.pv, run.at + (block - run.start))
            });
            let end = number + pair.blocks;
            runs.push(PlacedRun {
                start: number,
                end,
                pv: first.0,
                at: first.1,
                second: Some(second),
                is_filling: false,
                is_mirrored: true,
            });
            numbers.push(number..end);
            number = end;
        }
        (Placement::of_runs(self.extent_blocks, self.pvs.clone(), runs, &self.sets), numbers)
    }

    /// The same with a second leg for these blocks, which have one place and are mirrored from now on, if they were not:
    /// the place of `second`, whose numbers go. It is filled from then on.
    #[must_use]
    pub fn with_second(&self, first: u64, second: u64, blocks: u64) -> Placement {
        let (whole, place) = (self.run_of(first), self.run_of(second));
        let leg = (place.pv, place.at + (second - place.start));
        let mut taken = [first..first + blocks, second..second + blocks];
        taken.sort_unstable_by_key(|range| range.start);
        let mut runs = self.runs_outside(&taken);
        let own = whole.part(first, first + blocks);
        runs.push(PlacedRun { second: Some(leg), is_filling: true, is_mirrored: true, ..own });
        Placement::of_runs(self.extent_blocks, self.pvs.clone(), runs, &self.sets)
    }

    /// The same with one leg for these blocks of one run, which are not mirrored any more: the first leg goes, or the
    /// second one. Its extents have numbers of their own again. Also returns those.
    #[must_use]
    pub fn with_one_leg(&self, blocks: &Range<u64>, is_first_leaving: bool) -> (Placement, Vec<Range<u64>>) {
        let own = self.run_of(blocks.start).part(blocks.start, blocks.end);
        let first = (own.pv, own.at);
        let (stays, goes) = match own.second {
            Some(second) if is_first_leaving => (second, Some(first)),
            second => (first, second),
        };
        let mut runs = self.runs_outside(std::slice::from_ref(blocks));
        runs.push(PlacedRun::plain(blocks.start, blocks.end, stays.0, stays.1));
        let places = goes.map(|(pv, at)| (pv, at, blocks.end - blocks.start)).into_iter().collect();
        self.numbered(runs, places, self.unused_numbers())
    }

    /// The same after the second legs of these runs were filled.
    #[must_use]
    pub fn filled(&self, is_filled: impl Fn(&MirroredRun) -> bool) -> Placement {
        let now = |run: &PlacedRun| {
            let is_filling = run.is_filling && !mirrored(run).is_some_and(|run| is_filled(&run));
            PlacedRun { is_filling, ..*run }
        };
        Placement::of_runs(self.extent_blocks, self.pvs.clone(), self.runs.iter().map(now).collect(), &self.sets)
    }

    /// The same without these mirrored or striped blocks: their extents have numbers of their own again. Of striped blocks
    /// they are whole rows. Also returns those numbers.
    #[must_use]
    pub fn without_zones_of(&self, numbers: &[Range<u64>]) -> (Placement, Vec<Range<u64>>) {
        let mut places: Vec<(u16, u64, u64)> = Vec::new();
        let mut unused = self.unused_numbers();
        for run in self.parts_in(numbers) {
            places.extend(self.all_parts_of(&run).into_iter().map(|part| (part.pv, part.at, part.blocks)));
            if !self.is_high(run.start) {
                unused.push(run.start..run.end);
            }
        }
        self.numbered(self.runs_outside(numbers), places, unused)
    }

    /// The parts of the runs within these blocks.
    fn parts_in(&self, blocks: &[Range<u64>]) -> impl Iterator<Item = PlacedRun> {
        blocks.iter().flat_map(|range| self.runs.iter().filter_map(|run| run.cut(range.start, range.end)))
    }

    /// The numbers of home ranges that no extent has.
    fn unused_numbers(&self) -> Vec<Range<u64>> {
        let blocks = |zone: &Zone| {
            zone.first_extent * self.extent_blocks..(zone.first_extent + zone.extents) * self.extent_blocks
        };
        self.zones().iter().filter(|zone| zone.place.is_none()).map(blocks).collect()
    }

    /// These runs, and these places with unused numbers. Also returns those.
    fn numbered(
        &self,
        mut runs: Vec<PlacedRun>,
        places: Vec<(u16, u64, u64)>,
        mut unused: Vec<Range<u64>>,
    ) -> (Placement, Vec<Range<u64>>) {
        let mut given = Vec::new();
        for (pv, mut at, mut len) in places {
            while len > 0 {
                let home = self.pvs[usize::from(pv)].first_extent * self.extent_blocks + at;
                // Its own number, or any other that no extent has.
                let own = unused.iter().position(|range| range.contains(&home));
                let (index, start) = own.map_or((0, unused[0].start), |index| (index, home));
                let end = unused[index].end.min(start + len);
                runs.push(PlacedRun::plain(start, end, pv, at));
                given.push(start..end);
                let rest = [unused[index].start..start, end..unused[index].end];
                unused.splice(index..=index, rest.into_iter().filter(|range| !range.is_empty()));
                (at, len) = (at + (end - start), len - (end - start));
            }
        }
        (Placement::of_runs(self.extent_blocks, self.pvs.clone(), runs, &self.sets), given)
    }

    /// The parts of all runs outside of these blocks, which are in order.
    fn runs_outside(&self, blocks: &[Range<u64>]) -> Vec<PlacedRun> {
        let mut runs = Vec::with_capacity(self.runs.len() + 2 * blocks.len());
        for run in &self.runs {
            let mut at = run.start;
            let first = blocks.partition_point(|range| range.end <= run.start);
            for range in blocks[first..].iter().take_while(|range| range.start < run.end) {
                runs.extend(run.cut(at, range.start));
                at = range.end;
            }
            runs.extend(run.cut(at, run.end));
        }
        runs
    }

    /// The same without a physical volume, and without all blocks that lie only there. Mirrored blocks with a leg there
    /// keep the other one. No column of striped blocks may be there.
    #[must_use]
    pub fn without(&self, pv: PvIndex) -> Placement {
        let mut pvs = self.pvs.clone();
        pvs.remove(usize::from(pv.0));
        let gone = pv.0;
        let renumbered = |(on, at): (u16, u64)| (if on > gone && on < SETS { on - 1 } else { on }, at);
        let renumber = |set: &StripeSet| StripeSet {
            places: set.places.iter().map(|place| renumbered(*place)).collect(),
            ..set.clone()
        };
        let sets: Vec<StripeSet> = self.sets.iter().map(renumber).collect();
        let runs = self.runs.iter().filter_map(|run| {
            let mut left = run.complete_legs().filter(|(on, _)| *on != gone);
            let (pv, at) = renumbered(left.next()?);
            let filling = run.second.filter(|(on, _)| run.is_filling && *on != gone);
            let second = left.next().or(filling).map(renumbered);
            Some(PlacedRun { pv, at, second, is_filling: run.is_filling && second.is_some(), ..*run })
        });
        Placement::of_runs(self.extent_blocks, pvs, runs.collect(), &sets)
    }

    /// The same with another table, of as many physical volumes or more. A physical volume that shrank loses the blocks
    /// at its end; new blocks have their home numbers.
    #[must_use]
    pub fn with_table(&self, pvs: Vec<PvEntry>) -> Placement {
        let mut runs: Vec<PlacedRun> = self.runs.iter().filter(|run| run.is_striped()).copied().collect();
        for (index, pv) in (0..).zip(&pvs) {
            let had = self.pvs.get(usize::from(index)).map_or(0, |pv| pv.extents) * self.extent_blocks;
            let has = pv.extents * self.extent_blocks;
            let kept = self.runs.iter().filter(|run| run.pv == index);
            runs.extend(kept.filter_map(|run| run.cut_place(&(0..has))));
            let home = pv.first_extent * self.extent_blocks;
            if had < has {
                runs.push(PlacedRun::plain(home + had, home + has, index, had));
            }
        }
        Placement::of_runs(self.extent_blocks, pvs, runs, &self.sets)
    }

    /// All runs, in the order of VG blocks.
    pub fn runs(&self) -> &[PlacedRun] {
        &self.runs
    }

    /// The end of the group's address space, in blocks.
    pub fn blocks(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// The end of all extent numbers in use below the mirrored ones.
    pub fn numbers_end(&self) -> u64 {
        let homes = self.pvs.last().map_or(0, |pv| pv.first_extent + pv.extents);
        let plain = self.runs.iter().rev().find(|run| !self.is_high(run.start));
        homes.max(plain.map_or(0, |run| run.end) / self.extent_blocks)
    }

    #[cfg(test)]
    pub fn mirrored_from(&self) -> Option<u64> {
        self.mirrored_from
    }

    /// Whether the number is one of those that mirrored extents get when they are made (Z4).
    fn is_high(&self, block: u64) -> bool {
        self.mirrored_from.is_some_and(|from| block >= from)
    }

    /// The type of the volumes that have their blocks there. The block must exist.
    pub fn segment_of(&self, block: u64) -> SegmentType {
        self.run_of(block).segment()
    }

    /// Whether mirrored volumes have their blocks there. The block must exist.
    pub fn is_mirrored(&self, block: u64) -> bool {
        self.run_of(block).is_mirrored
    }

    /// Whether mirrored extents can be made: no home is in the way (Z4).
    pub fn may_mirror(&self) -> bool {
        self.mirrored_from.is_some()
    }

    /// The mirrored runs with both legs, as bytes on the disks.
    pub fn mirrored_runs(&self) -> Vec<MirroredRun> {
        self.runs.iter().filter_map(mirrored).collect()
    }

    /// The striped set of a striped run.
    fn set_of(&self, run: &PlacedRun) -> &StripeSet {
        &self.sets[usize::from(run.pv - SETS)]
    }

    /// The mirrored runs that have a leg on the physical volume, also if it is the only one, in the order of VG blocks.
    pub fn legs_on(&self, pv: PvIndex) -> impl Iterator<Item = &PlacedRun> + use<'_> {
        self.runs.iter().filter(move |run| run.is_mirrored && run.legs().any(|(on, _)| on == pv.0))
    }

    /// The number of blocks, without gaps. A mirrored block counts once.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
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

    /// The VG blocks that lie on this physical volume and on no other, in the order of their numbers.
    pub fn ranges_of(&self, pv: PvIndex) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let is_only_there = |run: &&PlacedRun| run.complete_legs().all(|(on, _)| on == pv.0);
        for run in self.runs.iter().filter(is_only_there) {
            match ranges.last_mut().filter(|range| range.end == run.start) {
                Some(range) => range.end = run.end,
                None => ranges.push(run.start..run.end),
            }
        }
        ranges
    }

    /// The runs on these extents of a physical volume that are not mirrored, in their order.
    pub fn runs_at(&self, pv: PvIndex, extents: &Range<u64>) -> Vec<PlacedRun> {
        let blocks = extents.start.saturating_mul(self.extent_blocks)..extents.end.saturating_mul(self.extent_blocks);
        let on = self.runs.iter().filter(|run| run.pv == pv.0 && !run.is_mirrored);
        let mut runs: Vec<PlacedRun> = on.filter_map(|run| run.cut_place(&blocks)).collect();
        runs.sort_unstable_by_key(|run| run.at);
        runs
    }

    /// The part of these blocks that lies in the first run that they meet, if it begins with them, and where the rest of
    /// them begins.
    pub fn part_of_run(&self, blocks: &Range<u64>) -> (Option<PlacedRun>, u64) {
        let run = self.run_of(blocks.start);
        let part = run.cut(blocks.start, blocks.end).filter(|part| part.start == blocks.start);
        (part, run.end.min(blocks.end))
    }

    fn run_of(&self, block: u64) -> &PlacedRun {
        &self.runs[self.runs.partition_point(|run| run.end <= block)]
    }

    /// The run of `block`, its physical volume, the block there, and the end of the run of blocks that follow it there; of
    /// a mirrored block the first leg. The block must exist.
    fn place_of(&self, block: u64) -> (&PlacedRun, u16, u64, u64) {
        let run = self.run_of(block);
        let at = run.at + (block - run.start);
        match run.is_striped() {
            false => (run, run.pv, at, run.end),
            true => {
                let (pv, at, blocks) = self.set_of(run).place(at);
                (run, pv, at, run.end.min(block + blocks))
            }
        }
    }

    /// The physical volume of `block`, and the end of the run of blocks that follow it there. The block must exist.
    pub fn pv_of(&self, block: VgBlock) -> (PvIndex, u64) {
        let (run, pv, _, end) = self.place_of(block.0);
        debug_assert!(block.0 >= run.start, "the block exists");
        (PvIndex(pv), end)
    }

    /// Whether the block's contents are on none of the physical volumes that are there, and the end of the run of blocks
    /// for which it is the same. The block must exist.
    pub fn is_lost(&self, block: u64, is_missing: impl Fn(PvIndex) -> bool) -> (bool, u64) {
        let run = self.run_of(block);
        if !run.is_striped() {
            return (run.complete_legs().all(|(pv, _)| is_missing(PvIndex(pv))), run.end);
        }
        match self.set_of(run).places.iter().any(|(pv, _)| is_missing(PvIndex(*pv))) {
            false => (false, run.end),
            true => {
                let (_, pv, _, end) = self.place_of(block);
                (is_missing(PvIndex(pv)), end)
            }
        }
    }

    /// The physical volumes that hold `block`, each with its extent there, and the end of the run of blocks that follow it
    /// on all of them.
    pub fn legs_of(&self, block: VgBlock) -> (impl Iterator<Item = (PvIndex, u64)> + use<>, u64) {
        let (run, pv, at, end) = self.place_of(block.0);
        let second = run.second.map(|(pv, first)| (pv, first + (block.0 - run.start)));
        let extent_blocks = self.extent_blocks;
        let legs = std::iter::once((pv, at)).chain(second);
        (legs.map(move |(pv, at)| (PvIndex(pv), at / extent_blocks)), end)
    }

    /// Adds the segments of the bytes [`start`, `start + len`) of the group's address space to `segments`,
    /// with the buffer offset `at`. Continues the last segment where it can.
    pub fn map_bytes(&self, mut start: u64, mut len: u64, mut at: u32, segments: &mut Segments) {
        while len > 0 {
            let block = start / BLOCK_SIZE;
            let (_, pv, place, end) = self.place_of(block);
            let piece = len.min(end * BLOCK_SIZE - start).min(1 << 30);
            let piece32 = u32::try_from(piece).expect("cut to a gigabyte");
            let offset = DATA_OFFSET + place * BLOCK_SIZE + (start - block * BLOCK_SIZE);
            match segments.last_mut() {
                Some(last)
                    if last.pv.0 == pv && last.offset + u64::from(last.len) == offset && last.at + last.len == at =>
                {
                    last.len += piece32;
                }
                _ => segments.push(Segment { pv: PvIndex(pv), offset, at, len: piece32 }),
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

/// Gives each striped run, which are in order, a set of its own that begins with it. Runs that continue each other are
/// one.
fn of_their_own(runs: &mut Vec<PlacedRun>, sets: &[StripeSet]) -> Vec<StripeSet> {
    let mut own: Vec<StripeSet> = Vec::new();
    let mut kept: Vec<PlacedRun> = Vec::with_capacity(runs.len());
    for run in runs.iter() {
        if !run.is_striped() {
            kept.push(*run);
            continue;
        }
        let set = sets[usize::from(run.pv - SETS)].behind(run.at);
        match (kept.last_mut(), own.last()) {
            (Some(last), Some(before))
                if last.is_striped() && last.end == run.start && before.continues(last.end - last.start, &set) =>
            {
                last.end = run.end;
            }
            _ => {
                kept.push(PlacedRun { pv: SETS + own.len() as u16, at: 0, ..*run });
                own.push(set);
            }
        }
    }
    *runs = kept;
    own
}

/// A run with two legs, as bytes on the disks.
pub fn mirrored(run: &PlacedRun) -> Option<MirroredRun> {
    let leg = |(pv, at): (u16, u64)| Leg { pv: PvIndex(pv), offset: DATA_OFFSET + at * BLOCK_SIZE };
    let legs = [leg((run.pv, run.at)), leg(run.second?)];
    let filling = run.is_filling.then_some(1);
    Some(MirroredRun { legs, bytes: (run.end - run.start) * BLOCK_SIZE, filling, replacement: None })
}

#[cfg(test)]
#[path = "placement_test.rs"]
mod tests;
