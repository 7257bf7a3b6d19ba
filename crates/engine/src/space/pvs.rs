//! The physical volumes as free space sees them: where each ends, how much of it is free, and whether space may be taken
//! from it.
//!
//! * In full (S6), no allocation that is made after the change is durable lies on a physical volume that is not allocatable: neither
//!   blocks of volumes, laid out or redirected, nor extents of metadata, nor a new place of the journal. What lies there
//!   already is read and written in place, an extent of metadata as a whole; what is freed there stays free.
//!
//! So all searches of the free tree go through [`Pvs::open`], arenas are closed when the ranges change, and who asks how
//! much there is to be had is told of what is open.

use super::Run;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pv {
    /// The end of its blocks.
    end: u64,
    /// Free blocks in the free tree.
    free: u64,
    is_allocatable: bool,
}

/// The group's physical volumes, in their order.
#[derive(Clone, Debug)]
pub struct Pvs {
    pvs: Vec<Pv>,
    /// The blocks that may be taken: what lies between physical volumes that are not allocatable.
    allocatable: Vec<Range<u64>>,
    /// Free blocks in the free tree outside of these.
    unallocatable: u64,
}

impl Pvs {
    /// The end of each one's range of blocks, and the free blocks in it. All are allocatable.
    pub fn new(pvs: Vec<(u64, u64)>) -> Pvs {
        let pvs = pvs.into_iter().map(|(end, free)| Pv { end, free, is_allocatable: true }).collect();
        let mut pvs = Pvs { pvs, allocatable: Vec::new(), unallocatable: 0 };
        pvs.settle();
        pvs
    }

    /// Works out anew what follows from the table.
    fn settle(&mut self) {
        let mut start = 0;
        let mut allocatable: Vec<Range<u64>> = Vec::new();
        for (index, pv) in self.pvs.iter().enumerate() {
            // Behind the last there is nothing; that which is to come need not be told apart.
            let end = if index + 1 == self.pvs.len() { u64::MAX } else { pv.end };
            match allocatable.last_mut() {
                _ if !pv.is_allocatable => {}
                Some(before) if before.end == start => before.end = end,
                _ => allocatable.push(start..end),
            }
            start = end;
        }
        self.allocatable = allocatable;
        self.unallocatable = self.pvs.iter().filter(|pv| !pv.is_allocatable).map(|pv| pv.free).sum();
    }

    /// Where space may be taken, in order.
    pub fn allocatable(&self) -> &[Range<u64>] {
        &self.allocatable
    }

    /// The physical volumes that space may be taken from and that have some in the free tree: how much, and their ranges.
    pub fn allocatable_each(&self) -> Vec<(u64, Range<u64>)> {
        let starts = std::iter::once(0).chain(self.pvs.iter().map(|pv| pv.end));
        let allocatable = starts.zip(&self.pvs).filter(|(_, pv)| pv.is_allocatable && pv.free > 0);
        allocatable.map(|(start, pv)| (pv.free, start..pv.end)).collect()
    }

    /// Blocks in the free tree that may not be taken.
    pub fn unallocatable(&self) -> u64 {
        self.unallocatable
    }

    /// Whether the block may not be taken.
    pub fn is_unallocatable(&self, block: u64) -> bool {
        !self.allocatable.iter().any(|allocatable| allocatable.contains(&block))
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

    /// Free blocks of each in the free tree.
    pub fn free(&self) -> impl Iterator<Item = u64> + '_ {
        self.pvs.iter().map(|pv| pv.free)
    }

    /// The end of the physical volume that has the block.
    pub fn end_of(&self, block: u64) -> u64 {
        self.pvs.iter().map(|pv| pv.end).find(|end| *end > block).unwrap_or(u64::MAX)
    }

    /// One joined whose blocks end here.
    pub fn add(&mut self, end: u64) {
        self.pvs.push(Pv { end, free: 0, is_allocatable: true });
        self.settle();
    }

    /// The blocks of one end elsewhere than they did; those that it lost were taken out of the free tree.
    pub fn set_end(&mut self, pv: usize, end: u64) {
        if let Some(pv) = self.pvs.get_mut(pv) {
            pv.end = end;
        }
        self.settle();
    }

    /// One left, with all that was free of it.
    pub fn remove(&mut self, pv: usize) {
        self.pvs.remove(pv);
        self.settle();
    }

    /// Blocks came into the free tree, or were taken out of it.
    pub fn count(&mut self, (mut start, mut len): Run, more: bool) {
        let first = self.pvs.partition_point(|pv| pv.end <= start);
        for pv in self.pvs.iter_mut().skip(first) {
            let part = len.min(pv.end - start);
            let add = |to: u64| if more { to + part } else { to.saturating_sub(part) };
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
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one allocatable range is what is meant")]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_lies_between_what_is_not_allocatable() {
        let mut pvs = Pvs::new(vec![(10, 4), (20, 5), (40, 6), (50, 7)]);
        assert_eq!((pvs.allocatable(), pvs.unallocatable()), (&[0..u64::MAX][..], 0));
        for (changes, allocatable, unallocatable) in [
            (vec![(1, false)], vec![0..10, 20..u64::MAX], 5),
            (vec![(2, false)], vec![0..10, 40..u64::MAX], 11),
            (vec![(0, false), (1, true)], vec![10..20, 40..u64::MAX], 10),
            (vec![(3, false)], vec![10..20], 17),
            (vec![(1, false)], vec![], 22),
            (vec![(0, true), (1, true), (2, true), (3, true)], vec![0..u64::MAX], 0),
        ] {
            changes.iter().for_each(|(pv, is_allocatable)| pvs.set_allocatable(*pv, *is_allocatable));
            assert_eq!((pvs.allocatable(), pvs.unallocatable()), (&allocatable[..], unallocatable), "{changes:?}");
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
        let mut pvs = Pvs::new(vec![(10, 0), (20, 0), (40, 0)]);
        pvs.set_allocatable(1, false);
        pvs.count((5, 20), true);
        assert_eq!((pvs.free().collect::<Vec<_>>(), pvs.unallocatable()), (vec![5, 10, 5], 10));
        pvs.count((15, 6), false);
        assert_eq!((pvs.free().collect::<Vec<_>>(), pvs.unallocatable()), (vec![5, 5, 4], 5));
        pvs.add(60);
        pvs.set_allocatable(3, false);
        pvs.set_end(3, 70);
        pvs.count((65, 5), true);
        assert_eq!((pvs.unallocatable(), pvs.allocatable()), (10, &[0..10, 20..40][..]));
        pvs.remove(1);
        assert_eq!((pvs.unallocatable(), pvs.allocatable()), (5, &[0..40][..]));
    }
}
