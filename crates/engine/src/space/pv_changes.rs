//! Changes of physical volumes, as they affect free space.

use super::pvs::Pvs;
use super::{AllocContext, Cut, Run, SEARCH_LEAVES, Space};
use crate::disk::DiskError;
use crate::map::{self, Fit, MapError};
use crate::model::SegmentType;
use crate::placement::Placement;
use std::ops::Range;

impl Space {
    /// A physical volume joined.
    pub fn add_pv(&mut self, placement: &Placement) {
        self.pvs.add(placement);
    }

    /// A physical volume grew.
    pub fn place(&mut self, placement: &Placement) {
        self.pvs.place(placement);
    }

    /// Removes the end of a physical volume from free space for good. If some of it is in use, or needed for
    /// reservations, nothing changes. `rest` is the new placement. Runs that were removed are taken off the list, so
    /// that this can be called again after an error.
    pub fn cut_pv(
        &mut self,
        context: AllocContext<'_>,
        pv: usize,
        runs: &mut Vec<Run>,
        rest: &Placement,
    ) -> Result<Cut, MapError> {
        self.close_arenas(context)?;
        for (start, len) in runs.iter().copied() {
            let mut at = start;
            while at < start + len {
                match map::first_fit(context.cache, &self.free_tree, at, 1, SEARCH_LEAVES)? {
                    Fit::Found(e) if e.key == at => at = e.end(),
                    Fit::Found(_) | Fit::Continue(_) | Fit::None => return Ok(Cut::InUse),
                }
            }
        }
        let len = runs.iter().map(|(_, len)| len).sum();
        let goes = if self.pvs.is_allocatable(pv) { len } else { 0 };
        if self.available() < goes {
            return Ok(Cut::Reserved { needed: goes, free: self.available() });
        }
        while let Some(run) = runs.last().copied() {
            self.take_run(context, run)?;
            runs.pop();
        }
        self.pvs.place(rest);
        self.class_mut(SegmentType::Linear).search_from = 0;
        Ok(Cut::Done)
    }

    /// Free blocks of the tree in this range, without arenas.
    pub fn free_in(&self, context: AllocContext<'_>, range: &Range<u64>) -> Result<u64, MapError> {
        let (mut at, mut free) = (range.start, 0);
        while at < range.end {
            match map::first_fit(context.cache, &self.free_tree, at, 1, SEARCH_LEAVES)? {
                Fit::Found(e) => {
                    free += e.cut(range.start, range.end).map_or(0, |part| u64::from(part.len));
                    at = e.end();
                }
                Fit::Continue(next) => at = next,
                Fit::None => break,
            }
        }
        Ok(free)
    }

    /// The next whole free extents in these blocks; an empty range at the end if there are none.
    pub fn next_free_extents(
        &self,
        context: AllocContext<'_>,
        at: u64,
        end: u64,
        extent_blocks: u64,
    ) -> Result<Range<u64>, MapError> {
        let (mut from, least) = (at, u32::try_from(extent_blocks).unwrap_or(u32::MAX));
        while from < end {
            match map::first_fit(context.cache, &self.free_tree, from, least, SEARCH_LEAVES)? {
                Fit::Found(e) => {
                    let start = e.key.max(at).next_multiple_of(extent_blocks);
                    let until = e.end().min(end) / extent_blocks * extent_blocks;
                    if start < until {
                        return Ok(start..until);
                    }
                    from = e.end();
                }
                Fit::Continue(next) => from = next,
                Fit::None => break,
            }
        }
        Ok(end..end)
    }

    /// The blocks of one range, which are alike, now lie on another physical volume, or a leg or column of them: see
    /// [`Pvs::place_moved`]. All arenas are closed for that, because no arena may reach from one physical volume into another. `commit` is called when nothing else can fail.
    /// If it does not succeed, nothing changes.
    pub fn exchange(
        &mut self,
        context: AllocContext<'_>,
        range: &Range<u64>,
        placement: &Placement,
        commit: impl FnOnce() -> Result<bool, DiskError>,
    ) -> Result<Result<bool, DiskError>, MapError> {
        self.close_arenas(context)?;
        let free = self.free_in(context, range)?;
        match commit() {
            Ok(true) => {}
            otherwise => return Ok(otherwise),
        }
        self.pvs.place_moved(placement, range.start, free);
        self.forget_searches();
        Ok(Ok(true))
    }

    /// Makes a physical volume allocatable or not (S6). `Err`: there would be this many blocks too few for the
    /// reservations, and nothing changes.
    pub fn set_allocatable(
        &mut self,
        context: AllocContext<'_>,
        pv: usize,
        is_allocatable: bool,
    ) -> Result<Result<(), u64>, MapError> {
        self.change_allocatable(context, |pvs| pvs.set_allocatable(pv, is_allocatable))
    }

    /// All of a physical volume is being moved away, or not any more. `Err`: as above.
    pub fn set_being_emptied(
        &mut self,
        context: AllocContext<'_>,
        pv: usize,
        is_being_emptied: bool,
    ) -> Result<Result<(), u64>, MapError> {
        self.change_allocatable(context, |pvs| pvs.set_being_emptied(pv, is_being_emptied))
    }

    fn change_allocatable(
        &mut self,
        context: AllocContext<'_>,
        change: impl FnOnce(&mut Pvs),
    ) -> Result<Result<(), u64>, MapError> {
        // No arena may reach from allocatable blocks into others. Slots must not be in an arena that is not
        // allocatable.
        self.close_arenas(context)?;
        let (before, open) = (self.pvs.clone(), SegmentType::ALL.map(|segment| self.allocatable_in_tree(segment)));
        change(&mut self.pvs);
        // Striped extents with a column there are closed, too.
        let too_few = SegmentType::ALL.into_iter().zip(open).filter_map(|(segment, open)| {
            let now = self.allocatable_in_tree(segment);
            (now < open).then(|| self.reserved_for(segment).saturating_sub(now))
        });
        let too_few = too_few.max().unwrap_or(0);
        if too_few > 0 {
            self.pvs = before;
            return Ok(Err(too_few));
        }
        // Places that had no space may have some now, and the other way round.
        self.forget_searches();
        Ok(Ok(()))
    }

    /// Nothing is allocated from these blocks until [`release`](Self::release) (S9), in parts of which each lies in one run.
    /// `Err`: there would be this many blocks too few for the reservations, and nothing changes.
    pub fn withhold(&mut self, context: AllocContext<'_>, parts: &[Range<u64>]) -> Result<Result<(), u64>, MapError> {
        self.close_arenas(context)?;
        let mut free = Vec::with_capacity(parts.len());
        for part in parts {
            free.push((part.clone(), self.free_in(context, part)?));
        }
        self.pvs.withhold(free);
        let lacking = SegmentType::ALL
            .map(|segment| self.reserved_for(segment).saturating_sub(self.allocatable_in_tree(segment)));
        match lacking.into_iter().max().filter(|lacking| *lacking > 0) {
            Some(lacking) => {
                self.release();
                Ok(Err(lacking))
            }
            None => Ok(Ok(())),
        }
    }

    /// What was withheld can be allocated, if it is allocatable.
    pub fn release(&mut self) {
        self.pvs.withhold(Vec::new());
        self.forget_searches();
        self.classes.iter_mut().for_each(|class| class.search_from = 0);
    }

    /// The same while a group is being opened, before anything is allocated.
    pub fn make_unallocatable(&mut self, pv: usize) {
        debug_assert!(self.arenas.is_empty(), "S6: no arena was opened there");
        self.pvs.set_allocatable(pv, false);
    }

    /// Whether `wanted` blocks of the physical volume are free and not needed for reservations.
    pub fn is_pv_free(&mut self, context: AllocContext<'_>, pv: usize, wanted: u64) -> Result<bool, MapError> {
        self.close_arenas(context)?;
        let goes = if self.pvs.is_allocatable(pv) { wanted } else { 0 };
        Ok(self.pvs.free().nth(pv) == Some(wanted) && self.available() >= goes)
    }

    /// Removes a physical volume's blocks from free space for good. `runs` are all of its blocks except those that
    /// leave with it anyway. `Ok(false)`: some of them are in use, or needed for reservations, and nothing changes.
    /// Runs that were removed are taken off the list, so that this can be called again after an error.
    pub fn take_pv(
        &mut self,
        context: AllocContext<'_>,
        pv: usize,
        runs: &mut Vec<Run>,
        rest: &Placement,
    ) -> Result<bool, MapError> {
        if !self.is_pv_free(context, pv, runs.iter().map(|(_, len)| len).sum())? {
            return Ok(false);
        }
        while let Some(run) = runs.last().copied() {
            self.take_run(context, run)?;
            runs.pop();
        }
        self.pvs.remove(pv, rest);
        self.class_mut(SegmentType::Linear).search_from = 0;
        Ok(true)
    }
}
