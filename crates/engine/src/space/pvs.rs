//! The physical volumes as free space sees them: where each ends, how much of it is free, and whether it is
//! allocatable.
//!
//! * In full, S6 says: after the change is durable, no allocation is on a physical volume that is not allocatable: no blocks
//!   of volumes, laid out or redirected, no extents of metadata, no place of the journal. Blocks in use there are read
//!   and written in place; an extent of metadata stays usable as a whole. Blocks that become free there stay free.
//!
//! So all searches of the free tree use [`Pvs::allocatable`], arenas are closed when the ranges change, and counts of
//! available space have only allocatable blocks.

use super::Run;
use crate::model::SegmentType;
use crate::placement::{PlacedRun, Placement};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pv {
    /// Free blocks in the free tree.
    free: u64,
    is_allocatable: bool,
}

/// The group's physical volumes, in their order.
#[derive(Clone, Debug)]
pub struct Pvs {
    pvs: Vec<Pv>,
    /// The blocks of the address space that are not mirrored, in order: the end of each run, and its physical volume.
    /// Blocks in no run do not exist, and count with the next run.
    runs: Vec<(u64, usize)>,
    /// The mirrored blocks: the end of each run.
    mirrored_ends: Vec<u64>,
    /// Mirrored free blocks in the free tree.
    mirrored_free: u64,
    /// The first mirrored block.
    mirrored_from: u64,
    /// The allocatable blocks: those that are not mirrored, and the mirrored ones.
    allocatable: [Vec<Range<u64>>; 2],
    /// Free blocks in the free tree that are neither.
    unallocatable: u64,
}

impl Pvs {
    /// Where blocks lie, and the free blocks of each physical volume that are not mirrored. All are allocatable.
    pub fn new(placement: &Placement, free: &[u64], mirrored_free: u64) -> Pvs {
        let mut pvs = Pvs {
            pvs: free.iter().map(|free| Pv { free: *free, is_allocatable: true }).collect(),
            runs: Vec::new(),
            mirrored_ends: Vec::new(),
            mirrored_free,
            mirrored_from: u64::MAX,
            allocatable: Default::default(),
            unallocatable: 0,
        };
        pvs.place(placement);
        pvs
    }

    /// The placement changes. Their free blocks are reported separately: [`moved`](Self::moved).
    pub fn place(&mut self, placement: &Placement) {
        self.place_runs(placement.runs(), placement.mirrored_from().unwrap_or(u64::MAX));
    }

    fn place_runs(&mut self, runs: &[PlacedRun], mirrored_from: u64) {
        self.mirrored_from = mirrored_from;
        let (plain, mirrored): (Vec<&PlacedRun>, Vec<&PlacedRun>) =
            runs.iter().partition(|run| run.start < mirrored_from);
        self.runs = plain.into_iter().map(|run| (run.end, usize::from(run.pv))).collect();
        self.mirrored_ends = mirrored.into_iter().map(|run| run.end).collect();
        self.settle();
    }

    /// This many free blocks moved to another physical volume.
    pub fn moved(&mut self, free: u64, from: usize, to: usize) {
        self.pvs[from].free = self.pvs[from].free.saturating_sub(free);
        self.pvs[to].free += free;
        self.settle();
    }

    /// Recomputes all fields that follow from the table.
    fn settle(&mut self) {
        let mut start = 0;
        let mut allocatable: Vec<Range<u64>> = Vec::new();
        for (index, (end, pv)) in self.runs.iter().enumerate() {
            // Nothing follows the last one but mirrored blocks, so its range may be open-ended.
            let end = if index + 1 == self.runs.len() { self.mirrored_from } else { *end };
            match allocatable.last_mut() {
                _ if !self.pvs[*pv].is_allocatable => {}
                Some(before) if before.end == start => before.end = end,
                _ => allocatable.push(start..end),
            }
            start = end;
        }
        // A mirrored block has a leg that can be written, whichever physical volume takes no new extents.
        let mirrored = (!self.mirrored_ends.is_empty()).then_some(self.mirrored_from..u64::MAX);
        self.allocatable = [allocatable, mirrored.into_iter().collect()];
        self.unallocatable = self.pvs.iter().filter(|pv| !pv.is_allocatable).map(|pv| pv.free).sum();
    }

    /// The allocatable ranges for volumes of this type, in order.
    pub fn allocatable(&self, segment: SegmentType) -> &[Range<u64>] {
        &self.allocatable[segment as usize]
    }

    /// The type of the volumes that a block is for.
    pub fn type_of(&self, block: u64) -> SegmentType {
        if block < self.mirrored_from { SegmentType::Linear } else { SegmentType::Raid1 }
    }

    /// Mirrored free blocks in the free tree.
    pub fn mirrored_free(&self) -> u64 {
        self.mirrored_free
    }

    /// The allocatable physical volumes that have space in the free tree: how much, and their longest runs.
    pub fn allocatable_each(&self) -> Vec<(u64, Range<u64>)> {
        let starts = std::iter::once(0).chain(self.runs.iter().map(|(end, _)| *end));
        let runs: Vec<(usize, Range<u64>)> =
            starts.zip(&self.runs).map(|(start, (end, pv))| (*pv, start..*end)).collect();
        let longest = |pv: usize| {
            let own = runs.iter().filter(|(on, _)| *on == pv).map(|(_, run)| run.clone());
            own.max_by_key(|run| run.end - run.start)
        };
        let open = self.pvs.iter().enumerate().filter(|(_, pv)| pv.is_allocatable && pv.free > 0);
        open.filter_map(|(index, pv)| Some((pv.free, longest(index)?))).collect()
    }

    /// Blocks in the free tree that are not allocatable.
    pub fn unallocatable(&self) -> u64 {
        self.unallocatable
    }

    /// Whether the block is not allocatable.
    pub fn is_unallocatable(&self, block: u64) -> bool {
        let ranges = self.allocatable(self.type_of(block));
        let after = ranges.partition_point(|allocatable| allocatable.end <= block);
        !ranges.get(after).is_some_and(|allocatable| allocatable.contains(&block))
    }

    pub fn is_allocatable(&self, pv: usize) -> bool {
        self.pvs.get(pv).is_some_and(|pv| pv.is_allocatable)
    }

    pub fn set_allocatable(&mut self, pv: usize, is_allocatable: bool) {
        if let Some(pv) = self.pvs.get_mut(pv) {
            pv.is_allocatable = is_allocatable;
        }
        self.settle();
    }

    /// Free blocks of each in the free tree, mirrored ones excluded.
    pub fn free(&self) -> impl Iterator<Item = u64> + '_ {
        self.pvs.iter().map(|pv| pv.free)
    }

    /// The end of the run that has the block. The next block lies on another physical volume, or elsewhere on this one.
    pub fn end_of(&self, block: u64) -> u64 {
        match self.type_of(block) {
            SegmentType::Linear => {
                self.runs.get(self.runs.partition_point(|(end, _)| *end <= block)).map_or(u64::MAX, |(end, _)| *end)
            }
            SegmentType::Raid1 => {
                let ends = &self.mirrored_ends;
                ends.get(ends.partition_point(|end| *end <= block)).copied().unwrap_or(u64::MAX)
            }
        }
    }

    /// A physical volume joined.
    pub fn add(&mut self, placement: &Placement) {
        self.pvs.push(Pv { free: 0, is_allocatable: true });
        self.place(placement);
    }

    /// A physical volume left with its free blocks.
    pub fn remove(&mut self, pv: usize, placement: &Placement) {
        self.pvs.remove(pv);
        self.place(placement);
    }

    /// Blocks came into the free tree, or were taken out of it.
    pub fn count(&mut self, (mut start, mut len): Run, more: bool) {
        if self.type_of(start) == SegmentType::Raid1 {
            self.mirrored_free = if more { self.mirrored_free + len } else { self.mirrored_free.saturating_sub(len) };
            return;
        }
        let first = self.runs.partition_point(|(end, _)| *end <= start);
        for (end, pv) in &self.runs[first..] {
            let part = len.min(end - start);
            let add = |to: u64| if more { to + part } else { to.saturating_sub(part) };
            let pv = &mut self.pvs[*pv];
            pv.free = add(pv.free);
            if !pv.is_allocatable {
                self.unallocatable = add(self.unallocatable);
            }
            (start, len) = (start + part, len - part);
            if len == 0 {
                return;
            }
        }
    }

    /// For tests: physical volumes one behind the other, each by where it ends and what is free of it.
    #[cfg(test)]
    pub fn in_a_row(pvs: &[(u64, u64)]) -> Pvs {
        let free: Vec<u64> = pvs.iter().map(|(_, free)| *free).collect();
        let runs = rows(&pvs.iter().map(|(end, _)| *end).collect::<Vec<_>>());
        let mut pvs = Pvs::new(&Placement::new(1, Vec::new()), &free, 0);
        pvs.place_runs(&runs, u64::MAX);
        pvs
    }
}

/// For tests: the runs of physical volumes that end there.
#[cfg(test)]
fn rows(ends: &[u64]) -> Vec<PlacedRun> {
    let mut start = 0;
    let run = |(pv, end): (u16, &u64)| PlacedRun {
        start: std::mem::replace(&mut start, *end),
        end: *end,
        pv,
        at: 0,
        second: None,
        is_filling: false,
    };
    (0..).zip(ends).map(run).collect()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one allocatable range is what is meant")]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_lies_between_what_is_not_allocatable() {
        let mut pvs = Pvs::in_a_row(&[(10, 4), (20, 5), (40, 6), (50, 7)]);
        assert_eq!((pvs.allocatable(SegmentType::Linear), pvs.unallocatable()), (&[0..u64::MAX][..], 0));
        for (changes, allocatable, unallocatable) in [
            (vec![(1, false)], vec![0..10, 20..u64::MAX], 5),
            (vec![(2, false)], vec![0..10, 40..u64::MAX], 11),
            (vec![(0, false), (1, true)], vec![10..20, 40..u64::MAX], 10),
            (vec![(3, false)], vec![10..20], 17),
            (vec![(1, false)], vec![], 22),
            (vec![(0, true), (1, true), (2, true), (3, true)], vec![0..u64::MAX], 0),
        ] {
            changes.iter().for_each(|(pv, is_allocatable)| pvs.set_allocatable(*pv, *is_allocatable));
            assert_eq!(
                (pvs.allocatable(SegmentType::Linear), pvs.unallocatable()),
                (&allocatable[..], unallocatable),
                "{changes:?}"
            );
            for block in [0, 9, 10, 19, 20, 39, 40, 49] {
                assert_eq!(
                    pvs.is_unallocatable(block),
                    !allocatable.iter().any(|range| range.contains(&block)),
                    "{block}"
                );
            }
        }
    }

    #[test]
    fn what_is_free_is_counted_where_it_lies() {
        let mut pvs = Pvs::in_a_row(&[(10, 0), (20, 0), (40, 0)]);
        pvs.set_allocatable(1, false);
        pvs.count((5, 20), true);
        assert_eq!((pvs.free().collect::<Vec<_>>(), pvs.unallocatable()), (vec![5, 10, 5], 10));
        pvs.count((15, 6), false);
        assert_eq!((pvs.free().collect::<Vec<_>>(), pvs.unallocatable()), (vec![5, 5, 4], 5));
        pvs.pvs.push(Pv { free: 0, is_allocatable: true });
        pvs.place_runs(&rows(&[10, 20, 40, 60]), u64::MAX);
        pvs.set_allocatable(3, false);
        pvs.place_runs(&rows(&[10, 20, 40, 70]), u64::MAX);
        pvs.count((65, 5), true);
        assert_eq!((pvs.unallocatable(), pvs.allocatable(SegmentType::Linear)), (10, &[0..10, 20..40][..]));
        pvs.pvs.remove(1);
        pvs.place_runs(&rows(&[10, 40, 70]), u64::MAX);
        assert_eq!((pvs.unallocatable(), pvs.allocatable(SegmentType::Linear)), (5, &[0..40][..]));
        // Half of the first one's blocks lie on the last one now, which is not allocatable, and two of them are free.
        let run = |start, end, pv| PlacedRun { start, end, pv, at: 0, second: None, is_filling: false };
        pvs.place_runs(&[run(0, 5, 0), run(5, 10, 2), run(10, 40, 1), run(40, 70, 2)], u64::MAX);
        pvs.moved(2, 0, 2);
        assert_eq!((pvs.unallocatable(), pvs.allocatable(SegmentType::Linear)), (7, &[0..5, 10..40][..]));
        assert_eq!((pvs.end_of(4), pvs.end_of(5), pvs.end_of(70)), (5, 10, u64::MAX));
        pvs.count((8, 4), true);
        assert_eq!(pvs.unallocatable(), 9);
    }

    /// S8
    #[test]
    fn mirrored_blocks_are_counted_and_taken_by_themselves() {
        let mut pvs = Pvs::in_a_row(&[(10, 4), (20, 5)]);
        let run = |start, end, pv| PlacedRun { start, end, pv, at: 0, second: None, is_filling: false };
        pvs.place_runs(&[run(0, 10, 0), run(10, 20, 1), run(100, 108, 0), run(108, 120, 1)], 100);
        pvs.set_allocatable(0, false);
        assert_eq!(
            (pvs.allocatable(SegmentType::Linear), pvs.allocatable(SegmentType::Raid1)),
            (&[10..100][..], &[100..u64::MAX][..])
        );
        pvs.count((104, 8), true);
        assert_eq!((pvs.mirrored_free(), pvs.unallocatable(), pvs.free().sum::<u64>()), (8, 4, 9));
        assert!(!pvs.is_unallocatable(104) && pvs.is_unallocatable(4));
        assert_eq!((pvs.end_of(104), pvs.end_of(108), pvs.end_of(15)), (108, 120, 20));
        assert_eq!((pvs.type_of(99), pvs.type_of(100)), (SegmentType::Linear, SegmentType::Raid1));
        pvs.count((106, 2), false);
        assert_eq!(pvs.mirrored_free(), 6);
    }
}
