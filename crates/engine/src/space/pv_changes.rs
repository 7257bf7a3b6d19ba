//! What changes of physical volumes mean for free space.

use super::{AllocContext, Cut, Run, SEARCH_LEAVES, Space};
use crate::map::{self, Fit, MapError};

impl Space {
    /// A physical volume joined whose range ends at block `end`.
    pub fn add_pv(&mut self, end: u64) {
        self.pvs.add(end);
    }

    /// A physical volume's range ends later than it did, at block `end`.
    pub fn grow_pv(&mut self, pv: usize, end: u64) {
        self.pvs.set_end(pv, end);
    }

    /// Takes the end of a physical volume's range out of free space for good, unless some of it is in use, or reserved with what
    /// else is free: then all stays.
    pub fn cut_pv(&mut self, context: AllocContext<'_>, pv: usize, (start, len): Run) -> Result<Cut, MapError> {
        self.close_arenas(context)?;
        let mut at = start;
        while at < start + len {
            match map::first_fit(context.cache, &self.free_tree, at, 1, SEARCH_LEAVES)? {
                Fit::Found(e) if e.key == at => at = e.end(),
                Fit::Found(_) | Fit::Continue(_) | Fit::None => return Ok(Cut::InUse),
            }
        }
        let goes = if self.pvs.is_allocatable(pv) { len } else { 0 };
        if self.available() < goes {
            return Ok(Cut::Reserved { needed: goes, free: self.available() });
        }
        self.take_run(context, (start, len))?;
        self.pvs.set_end(pv, start);
        self.search_from = 0;
        Ok(Cut::Done)
    }

    /// From now on space is taken from a physical volume, or is not (S6). `Err`: that would leave so many blocks too few for
    /// what is reserved, and nothing is changed.
    pub fn set_allocatable(
        &mut self,
        context: AllocContext<'_>,
        pv: usize,
        is_allocatable: bool,
    ) -> Result<Result<(), u64>, MapError> {
        // No arena may reach from what is open into what is not; and slots would be taken from one that is closed.
        self.close_arenas(context)?;
        let (before, open) = (self.pvs.clone(), self.allocatable_in_tree());
        self.pvs.set_allocatable(pv, is_allocatable);
        let too_few = self.reserved_blocks().saturating_sub(self.allocatable_in_tree());
        if self.allocatable_in_tree() < open && too_few > 0 {
            self.pvs = before;
            return Ok(Err(too_few));
        }
        // What was found to be without space may have some now, and the other way round.
        self.none_below = Default::default();
        self.no_extent_below = 0;
        Ok(Ok(()))
    }

    /// The same of a group that is being opened, before anything is handed out.
    pub fn make_unallocatable(&mut self, pv: usize) {
        debug_assert!(self.arenas.is_empty(), "S6: no arena was opened there");
        self.pvs.set_allocatable(pv, false);
    }

    /// Whether `wanted` blocks of the physical volume are free, and reserved for nobody with what else is free.
    pub fn is_pv_free(&mut self, context: AllocContext<'_>, pv: usize, wanted: u64) -> Result<bool, MapError> {
        self.close_arenas(context)?;
        let goes = if self.pvs.is_allocatable(pv) { wanted } else { 0 };
        Ok(self.pvs.free().nth(pv) == Some(wanted) && self.available() >= goes)
    }

    /// Takes a physical volume's range out of free space for good: these runs are all of it that was not in use as something
    /// that goes with it. `Ok(false)`: some of it is in use, or reserved with what else is free, and all stays. Runs that are
    /// taken are taken from the list, so that it can be called again after an error.
    pub fn take_pv(&mut self, context: AllocContext<'_>, pv: usize, runs: &mut Vec<Run>) -> Result<bool, MapError> {
        if !self.is_pv_free(context, pv, runs.iter().map(|(_, len)| len).sum())? {
            return Ok(false);
        }
        while let Some(run) = runs.last().copied() {
            self.take_run(context, run)?;
            runs.pop();
        }
        self.pvs.remove(pv);
        self.search_from = 0;
        Ok(true)
    }
}
