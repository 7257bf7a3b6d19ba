//! The physical volumes as free space sees them: where each ends, how much of it is free, and whether it is
//! allocatable.
//!
//! * In full, S6 says: after the change is durable, no allocation is on a physical volume that is not allocatable: no blocks
//!   of volumes, laid out or redirected, no extents of metadata, no place of the journal. Blocks in use there are read
//!   and written in place; an extent of metadata stays usable as a whole. Blocks that become free there stay free.
//!
//! * S9 From blocks that are being made mirrored, or plain again, nothing is allocated meanwhile: they are withheld. So
//!   what was found about them stays true.
//!
//! So all searches of the free tree use [`Pvs::allocatable`], arenas are closed when the ranges change, and counts of
//! available space have only allocatable blocks.

use super::Run;
use crate::model::{PvFlags, SegmentType};
use crate::placement::{PlacedRun, Placement};
use crate::planted;
use std::ops::Range;

const TYPES: usize = SegmentType::ALL.len();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pv {
    /// Free blocks in the free tree.
    free: u64,
    is_allocatable: bool,
    /// All of it is being moved away: nothing more is placed there. Stripes with a column there move, too, and stay in use.
    is_being_emptied: bool,
}

/// Whose a run of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A physical volume's alone.
    Pv(usize),
    /// Mirrored volumes have their blocks there.
    Mirrored,
    /// Striped volumes have their blocks there, on physical volumes of which this number is the place among
    /// [`Pvs::striped`].
    Striped(usize),
}

impl Owner {
    /// The type of the volumes that the blocks are for.
    fn segment(self) -> SegmentType {
        match self {
            Owner::Pv(_) => SegmentType::Linear,
            Owner::Mirrored => SegmentType::Raid1,
            Owner::Striped(_) => SegmentType::Striped,
        }
    }

    fn pv(self) -> Option<usize> {
        match self {
            Owner::Pv(pv) => Some(pv),
            Owner::Mirrored | Owner::Striped(_) => None,
        }
    }
}

/// Striped blocks on the same physical volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StripedSpace {
    pvs: PvFlags,
    /// Free blocks in the free tree.
    free: u64,
}

/// The group's physical volumes, in their order.
#[derive(Clone, Debug)]
pub struct Pvs {
    pvs: Vec<Pv>,
    /// The blocks of the address space, in order: the end of each run, and its owner. Blocks in no run do not exist, and count
    /// with the next run.
    runs: Vec<(u64, Owner)>,
    /// Mirrored free blocks in the free tree.
    mirrored_free: u64,
    /// Striped blocks, in the order in which their physical volumes come first in the address space.
    striped: Vec<StripedSpace>,
    /// The allocatable blocks, for volumes of each type.
    allocatable: [Vec<Range<u64>>; TYPES],
    /// Free blocks in the free tree that are not allocatable, for volumes of each type.
    unallocatable: [u64; TYPES],
    /// Blocks that are converted (S9), in parts that lie in one run each: how many are free in the free tree.
    withheld: Vec<(Range<u64>, u64)>,
}

impl Pvs {
    /// Where blocks lie, the free blocks that are each physical volume's alone, and the mirrored ones. No striped block is
    /// free, and all are allocatable.
    pub fn new(placement: &Placement, free: &[u64], mirrored_free: u64) -> Pvs {
        let mut pvs = Pvs {
            pvs: free.iter().map(|free| Pv { free: *free, is_allocatable: true, is_being_emptied: false }).collect(),
            runs: Vec::new(),
            mirrored_free,
            striped: Vec::new(),
            allocatable: Default::default(),
            unallocatable: [0; TYPES],
            withheld: Vec::new(),
        };
        pvs.place(placement);
        pvs
    }

    /// The same from what [`stored_free`](Self::stored_free) gave. `all`: the free blocks in the free tree.
    pub fn stored(placement: &Placement, stored: &[u64], all: u64) -> Pvs {
        let (free, striped) = stored.split_at(stored.len().min(placement.pvs.len()));
        let mut pvs = Pvs::new(placement, free, all.saturating_sub(stored.iter().sum()));
        pvs.striped.iter_mut().zip(striped).for_each(|(space, free)| space.free = *free);
        pvs.settle();
        pvs
    }

    /// The free blocks of each physical volume, and then those of striped blocks, for each combination of physical volumes that
    /// there is, in the order of the first numbers. Mirrored ones are the rest.
    pub fn stored_free(&self) -> Vec<u64> {
        self.free().chain(self.striped.iter().map(|space| space.free)).collect()
    }

    /// How many counters of striped blocks there are.
    pub fn striped_counters(placement: &Placement) -> usize {
        Pvs::new(placement, &vec![0; placement.pvs.len()], 0).striped.len()
    }

    /// The placement changes. If free blocks are on another physical volume then, this is [`place_moved`](Self::place_moved). Blocks that become mirrored or plain are withheld.
    pub fn place(&mut self, placement: &Placement) {
        self.place_runs(placement.runs(), |run| placement.columns_of(run));
    }

    /// `columns`: the physical volumes of a striped run.
    fn place_runs(&mut self, runs: &[PlacedRun], columns: impl Fn(&PlacedRun) -> PvFlags) {
        let mut striped: Vec<StripedSpace> = Vec::new();
        let old = self.striped.clone();
        let mut place = |run: &PlacedRun| match run.segment() {
            SegmentType::Linear => Owner::Pv(usize::from(run.pv)),
            SegmentType::Raid1 => Owner::Mirrored,
            SegmentType::Striped => {
                let pvs = columns(run);
                Owner::Striped(striped.iter().position(|space| space.pvs == pvs).unwrap_or_else(|| {
                    let free = old.iter().find(|space| space.pvs == pvs).map_or(0, |space| space.free);
                    striped.push(StripedSpace { pvs, free });
                    striped.len() - 1
                }))
            }
        };
        let owners =
            |pvs: &Pvs| -> Vec<Owner> { pvs.withheld.iter().map(|(part, _)| pvs.owner_of(part.start)).collect() };
        let before = owners(self);
        self.runs = runs.iter().map(|run| (run.end, place(run))).collect();
        self.striped = striped;
        for (index, (from, to)) in before.into_iter().zip(owners(self)).enumerate() {
            let free = self.withheld[index].1;
            if from.segment() != to.segment() {
                *self.free_of(from) -= free;
                *self.free_of(to) += free;
            }
        }
        self.settle();
    }

    fn owner_of(&self, block: u64) -> Owner {
        let run = self.runs.partition_point(|(end, _)| *end <= block);
        self.runs.get(run).or(self.runs.last()).map_or(Owner::Pv(0), |(_, owner)| *owner)
    }

    /// Its counter of free blocks.
    fn free_of(&mut self, owner: Owner) -> &mut u64 {
        match owner {
            Owner::Pv(pv) => &mut self.pvs[pv].free,
            Owner::Mirrored => &mut self.mirrored_free,
            Owner::Striped(at) => &mut self.striped[at].free,
        }
    }

    /// Whether blocks are taken from there. A mirrored block has a leg that can be written, whichever physical volume takes
    /// no new extents.
    fn is_open(&self, owner: Owner) -> bool {
        match owner {
            Owner::Pv(pv) => self.is_allocatable(pv),
            Owner::Mirrored => true,
            Owner::Striped(at) => {
                let takes = |pv: usize| match planted::is("stripes_closed_by_a_move") {
                    true => self.is_allocatable(pv),
                    false => self.pvs.get(pv).is_some_and(|pv| pv.is_allocatable),
                };
                self.striped[at].pvs.iter().all(takes)
            }
        }
    }

    /// Nothing is allocated from these blocks, of which so many are free in the free tree (S9). Each part lies in one run.
    pub fn withhold(&mut self, parts: Vec<(Range<u64>, u64)>) {
        self.withheld = parts;
        self.settle();
    }

    /// What is withheld: each part, and how many of its blocks are free in the free tree.
    pub fn withheld(&self) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        self.withheld.iter().cloned()
    }

    /// The same, and blocks that are alike, with this one among them, lie on other physical volumes then. So many of them are
    /// free in the free tree.
    pub fn place_moved(&mut self, placement: &Placement, block: u64, free: u64) {
        self.moved(block, free, |pvs| pvs.place(placement));
    }

    fn moved(&mut self, block: u64, free: u64, place: impl FnOnce(&mut Pvs)) {
        let before = self.owner_of(block);
        let columns = match before {
            Owner::Striped(at) => Some(self.striped[at].pvs),
            Owner::Pv(_) | Owner::Mirrored => None,
        };
        place(self);
        // Striped blocks on the same physical volumes as before may have another number now, or be no more.
        let before = match columns {
            None => Some(before),
            Some(columns) => self.striped.iter().position(|space| space.pvs == columns).map(Owner::Striped),
        };
        if let Some(before) = before {
            let had = self.free_of(before);
            *had = had.saturating_sub(free);
        }
        let now = self.owner_of(block);
        *self.free_of(now) += free;
        self.settle();
    }

    /// Recomputes all fields that follow from the table.
    fn settle(&mut self) {
        let mut start = 0;
        let mut allocatable: [Vec<Range<u64>>; TYPES] = Default::default();
        for (index, (end, owner)) in self.runs.iter().enumerate() {
            // Nothing follows the last one, so its range may be open-ended.
            let end = if index + 1 == self.runs.len() { u64::MAX } else { *end };
            let is_open = self.is_open(*owner);
            let own = &mut allocatable[owner.segment() as usize];
            for part in outside(&self.withheld, start..end).filter(|_| is_open) {
                match own.last_mut() {
                    Some(before) if before.end == part.start => before.end = part.end,
                    _ => own.push(part),
                }
            }
            start = end;
        }
        self.allocatable = allocatable;
        let closed = (0..self.pvs.len()).filter(|pv| !self.is_allocatable(*pv)).map(|pv| self.pvs[pv].free).sum();
        let stripes = (0..self.striped.len()).filter(|at| !self.is_open(Owner::Striped(*at)));
        let stripes = stripes.map(|at| self.striped[at].free).sum();
        self.unallocatable = [closed, 0, stripes];
        for index in 0..self.withheld.len() {
            let (part, free) = self.withheld[index].clone();
            let owner = self.owner_of(part.start);
            if self.is_open(owner) {
                self.unallocatable[owner.segment() as usize] += free;
            }
        }
    }

    /// Of these blocks some came into the free tree, or were taken out of it.
    fn count_withheld(&mut self, blocks: &Range<u64>, more: bool) {
        let first = self.withheld.partition_point(|(part, _)| part.end <= blocks.start);
        for index in first..self.withheld.len() {
            let (part, free) = &mut self.withheld[index];
            let len = part.end.min(blocks.end).saturating_sub(part.start.max(blocks.start));
            if len == 0 {
                break;
            }
            *free = if more { *free + len } else { free.saturating_sub(len) };
            let start = part.start;
            let owner = self.owner_of(start);
            if self.is_open(owner) {
                let count = &mut self.unallocatable[owner.segment() as usize];
                *count = if more { *count + len } else { count.saturating_sub(len) };
            }
        }
    }

    /// The allocatable ranges for volumes of this type, in order.
    pub fn allocatable(&self, segment: SegmentType) -> &[Range<u64>] {
        &self.allocatable[segment as usize]
    }

    /// The type of the volumes that a block is for.
    pub fn type_of(&self, block: u64) -> SegmentType {
        self.owner_of(block).segment()
    }

    /// Free blocks in the free tree that are on several physical volumes, for volumes of this type.
    pub fn several_free(&self, segment: SegmentType) -> u64 {
        match segment {
            SegmentType::Linear => 0,
            SegmentType::Raid1 => self.mirrored_free,
            SegmentType::Striped => self.striped.iter().map(|space| space.free).sum(),
        }
    }

    /// The allocatable physical volumes that have space in the free tree: how much, and their longest runs.
    pub fn allocatable_each(&self) -> Vec<(u64, Range<u64>)> {
        let starts = std::iter::once(0).chain(self.runs.iter().map(|(end, _)| *end));
        let runs: Vec<(usize, Range<u64>)> =
            starts.zip(&self.runs).filter_map(|(start, (end, owner))| Some((owner.pv()?, start..*end))).collect();
        let longest = |pv: usize| {
            let own = runs.iter().filter(|(on, _)| *on == pv).map(|(_, run)| run.clone());
            own.max_by_key(|run| run.end - run.start)
        };
        let open = self.pvs.iter().enumerate().filter(|(index, pv)| self.is_allocatable(*index) && pv.free > 0);
        open.filter_map(|(index, pv)| Some((pv.free, longest(index)?))).collect()
    }

    /// Blocks in the free tree that are not allocatable, for volumes of this type.
    pub fn unallocatable(&self, segment: SegmentType) -> u64 {
        self.unallocatable[segment as usize]
    }

    /// Whether the block is not allocatable.
    pub fn is_unallocatable(&self, block: u64) -> bool {
        let ranges = self.allocatable(self.type_of(block));
        let after = ranges.partition_point(|allocatable| allocatable.end <= block);
        !ranges.get(after).is_some_and(|allocatable| allocatable.contains(&block))
    }

    /// Whether the block is on physical volumes of which one is not allocatable.
    pub fn is_closed(&self, block: u64) -> bool {
        !self.is_open(self.owner_of(block))
    }

    /// Whether linear blocks are taken from there.
    pub fn is_allocatable(&self, pv: usize) -> bool {
        self.pvs.get(pv).is_some_and(|pv| pv.is_allocatable && !pv.is_being_emptied)
    }

    /// All of it is being moved away, or not any more.
    pub fn set_being_emptied(&mut self, pv: usize, is_being_emptied: bool) {
        if let Some(pv) = self.pvs.get_mut(pv) {
            pv.is_being_emptied = is_being_emptied;
        }
        self.settle();
    }

    pub fn set_allocatable(&mut self, pv: usize, is_allocatable: bool) {
        if let Some(pv) = self.pvs.get_mut(pv) {
            pv.is_allocatable = is_allocatable;
        }
        self.settle();
    }

    /// Free blocks of each in the free tree, without those on several.
    pub fn free(&self) -> impl Iterator<Item = u64> + '_ {
        self.pvs.iter().map(|pv| pv.free)
    }

    /// The end of the run that has the block. The next block lies on another physical volume, or elsewhere on this one.
    pub fn end_of(&self, block: u64) -> u64 {
        self.runs.get(self.runs.partition_point(|(end, _)| *end <= block)).map_or(u64::MAX, |(end, _)| *end)
    }

    /// A physical volume joined.
    pub fn add(&mut self, placement: &Placement) {
        self.pvs.push(Pv { free: 0, is_allocatable: true, is_being_emptied: false });
        self.place(placement);
    }

    /// A physical volume left with its free blocks.
    pub fn remove(&mut self, pv: usize, placement: &Placement) {
        self.pvs.remove(pv);
        self.striped.iter_mut().for_each(|space| space.pvs.remove(pv));
        self.place(placement);
    }

    /// Blocks came into the free tree, or were taken out of it.
    pub fn count(&mut self, (mut start, mut len): Run, more: bool) {
        if !self.withheld.is_empty() {
            self.count_withheld(&(start..start + len), more);
        }
        let first = self.runs.partition_point(|(end, _)| *end <= start);
        for index in first..self.runs.len() {
            let (end, owner) = self.runs[index];
            let part = if index + 1 == self.runs.len() { len } else { len.min(end - start) };
            let add = |to: u64| if more { to + part } else { to.saturating_sub(part) };
            if !self.is_open(owner) {
                let closed = &mut self.unallocatable[owner.segment() as usize];
                *closed = add(*closed);
            }
            let free = self.free_of(owner);
            *free = add(*free);
            (start, len) = (start + part, len - part);
            if len == 0 {
                return;
            }
        }
    }

    /// The same with nothing free, to count again.
    pub fn uncounted(&self) -> Pvs {
        let mut pvs = Pvs { mirrored_free: 0, withheld: Vec::new(), ..self.clone() };
        pvs.pvs.iter_mut().for_each(|pv| pv.free = 0);
        pvs.striped.iter_mut().for_each(|space| space.free = 0);
        pvs.settle();
        pvs
    }

    /// For tests: physical volumes one behind the other, each by where it ends and what is free of it.
    #[cfg(test)]
    pub fn in_a_row(pvs: &[(u64, u64)]) -> Pvs {
        let free: Vec<u64> = pvs.iter().map(|(_, free)| *free).collect();
        let runs = rows(&pvs.iter().map(|(end, _)| *end).collect::<Vec<_>>());
        let mut pvs = Pvs::new(&Placement::new(1, Vec::new()), &free, 0);
        pvs.place_runs(&runs, |_| PvFlags::default());
        pvs
    }
}

/// The parts of these blocks that are not withheld.
fn outside(withheld: &[(Range<u64>, u64)], blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
    let first = withheld.partition_point(|(part, _)| part.end <= blocks.start);
    let inside = withheld[first..].iter().map(|(part, _)| part.clone()).take_while(move |part| part.start < blocks.end);
    let end = blocks.end;
    let mut at = blocks.start;
    inside.chain(std::iter::once(end..end)).filter_map(move |part| {
        let open = at..part.start;
        at = part.end;
        (open.start < open.end).then_some(open)
    })
}

/// For tests: the runs of physical volumes that end there.
#[cfg(test)]
fn rows(ends: &[u64]) -> Vec<PlacedRun> {
    let mut start = 0;
    let run = |(pv, end): (u16, &u64)| PlacedRun::plain(std::mem::replace(&mut start, *end), *end, pv, 0);
    (0..).zip(ends).map(run).collect()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one allocatable range is what is meant")]
mod tests {
    use super::*;

    /// Blocks 10 to 20 are striped over both physical volumes.
    fn a_physical_volume_is_emptied() {
        let mut pvs = Pvs::in_a_row(&[(10, 4), (30, 5)]);
        let placed =
            [PlacedRun::plain(0, 10, 0, 0), PlacedRun::plain(10, 20, 1 << 15, 0), PlacedRun::plain(20, 30, 1, 0)];
        pvs.place_runs(&placed, |_| PvFlags(0b11));
        pvs.set_being_emptied(0, true);
        assert_eq!(pvs.allocatable(SegmentType::Linear), [20..u64::MAX]);
        assert_eq!(pvs.allocatable(SegmentType::Striped), [10..20], "it has space until it moves");
        pvs.set_allocatable(0, false);
        assert!(pvs.allocatable(SegmentType::Striped).is_empty());
    }

    #[test]
    fn stripes_are_in_use_while_a_disk_is_emptied() {
        a_physical_volume_is_emptied();
        crate::planted::must_be_found("stripes_closed_by_a_move", a_physical_volume_is_emptied);
    }

    #[test]
    fn what_is_open_lies_between_what_is_not_allocatable() {
        let mut pvs = Pvs::in_a_row(&[(10, 4), (20, 5), (40, 6), (50, 7)]);
        assert_eq!(
            (pvs.allocatable(SegmentType::Linear), pvs.unallocatable(SegmentType::Linear)),
            (&[0..u64::MAX][..], 0)
        );
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
                (pvs.allocatable(SegmentType::Linear), pvs.unallocatable(SegmentType::Linear)),
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
        assert_eq!((pvs.free().collect::<Vec<_>>(), pvs.unallocatable(SegmentType::Linear)), (vec![5, 10, 5], 10));
        pvs.count((15, 6), false);
        assert_eq!((pvs.free().collect::<Vec<_>>(), pvs.unallocatable(SegmentType::Linear)), (vec![5, 5, 4], 5));
        pvs.pvs.push(Pv { free: 0, is_allocatable: true, is_being_emptied: false });
        pvs.place_runs(&rows(&[10, 20, 40, 60]), |_| PvFlags::default());
        pvs.set_allocatable(3, false);
        pvs.place_runs(&rows(&[10, 20, 40, 70]), |_| PvFlags::default());
        pvs.count((65, 5), true);
        assert_eq!(
            (pvs.unallocatable(SegmentType::Linear), pvs.allocatable(SegmentType::Linear)),
            (10, &[0..10, 20..40][..])
        );
        pvs.pvs.remove(1);
        pvs.place_runs(&rows(&[10, 40, 70]), |_| PvFlags::default());
        assert_eq!((pvs.unallocatable(SegmentType::Linear), pvs.allocatable(SegmentType::Linear)), (5, &[0..40][..]));
        // Half of the first one's blocks lie on the last one now, which is not allocatable, and two of them are free.
        let run = |start, end, pv| PlacedRun::plain(start, end, pv, 0);
        let placed = [run(0, 5, 0), run(5, 10, 2), run(10, 40, 1), run(40, 70, 2)];
        pvs.moved(5, 2, |pvs| pvs.place_runs(&placed, |_| PvFlags::default()));
        assert_eq!(
            (pvs.unallocatable(SegmentType::Linear), pvs.allocatable(SegmentType::Linear)),
            (7, &[0..5, 10..40][..])
        );
        assert_eq!((pvs.end_of(4), pvs.end_of(5), pvs.end_of(70)), (5, 10, u64::MAX));
        pvs.count((8, 4), true);
        assert_eq!(pvs.unallocatable(SegmentType::Linear), 9);
    }

    /// S8
    #[test]
    fn mirrored_blocks_are_counted_and_taken_by_themselves() {
        let mut pvs = Pvs::in_a_row(&[(10, 4), (20, 5)]);
        let plain = |start, end, pv| PlacedRun::plain(start, end, pv, 0);
        let mirrored = |start, end, pv| PlacedRun { is_mirrored: true, ..plain(start, end, pv) };
        pvs.place_runs(&[plain(0, 10, 0), plain(10, 20, 1), mirrored(100, 108, 0), mirrored(108, 120, 1)], |_| {
            PvFlags::default()
        });
        pvs.set_allocatable(0, false);
        assert_eq!(
            (pvs.allocatable(SegmentType::Linear), pvs.allocatable(SegmentType::Raid1)),
            (&[10..20][..], &[20..u64::MAX][..])
        );
        pvs.count((104, 8), true);
        assert_eq!(
            (pvs.several_free(SegmentType::Raid1), pvs.unallocatable(SegmentType::Linear), pvs.free().sum::<u64>()),
            (8, 4, 9)
        );
        assert!(!pvs.is_unallocatable(104) && pvs.is_unallocatable(4));
        assert_eq!((pvs.end_of(104), pvs.end_of(108), pvs.end_of(15)), (108, 120, 20));
        assert_eq!((pvs.type_of(19), pvs.type_of(100)), (SegmentType::Linear, SegmentType::Raid1));
        pvs.count((106, 2), false);
        assert_eq!(pvs.several_free(SegmentType::Raid1), 6);
        // Blocks 4 to 7 become mirrored where they are, and blocks 100 to 107 plain.
        let runs = [plain(0, 4, 0), mirrored(4, 8, 0), plain(8, 10, 0), plain(10, 20, 1), plain(100, 108, 0)];
        pvs.set_allocatable(0, true);
        let before = [plain(0, 4, 0), plain(4, 8, 0), plain(8, 10, 0), plain(10, 20, 1)];
        pvs.place_runs(&[&before[..], &[mirrored(100, 108, 0), mirrored(108, 120, 1)]].concat(), |_| {
            PvFlags::default()
        });
        pvs.withhold(vec![(4..8, 2), (100..108, 4)]);
        assert_eq!(
            (pvs.allocatable(SegmentType::Linear), pvs.allocatable(SegmentType::Raid1)),
            (&[0..4, 8..20][..], &[20..100, 108..u64::MAX][..])
        );
        assert_eq!([SegmentType::Linear, SegmentType::Raid1].map(|segment| pvs.unallocatable(segment)), [2, 4]);
        pvs.count((7, 1), false);
        pvs.count((3, 2), true);
        assert_eq!([SegmentType::Linear, SegmentType::Raid1].map(|segment| pvs.unallocatable(segment)), [2, 4]);
        pvs.place_runs(&[&runs[..], &[mirrored(108, 120, 1)]].concat(), |_| PvFlags::default());
        assert_eq!([SegmentType::Linear, SegmentType::Raid1].map(|segment| pvs.unallocatable(segment)), [4, 2]);
        assert_eq!((pvs.several_free(SegmentType::Raid1), pvs.free().collect::<Vec<_>>()), (4, vec![7, 5]));
        pvs.withhold(Vec::new());
        assert_eq!(
            (pvs.allocatable(SegmentType::Linear), pvs.allocatable(SegmentType::Raid1)),
            (&[0..4, 8..108][..], &[4..8, 108..u64::MAX][..])
        );
        pvs.count((3, 6), true);
        assert_eq!((pvs.several_free(SegmentType::Raid1), pvs.free().collect::<Vec<_>>()), (8, vec![9, 5]));
    }
}
