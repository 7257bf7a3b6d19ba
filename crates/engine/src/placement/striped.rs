//! Striped blocks in the placement, and what each physical volume has of blocks of any type.

use super::{PlacedRun, Placement, SETS};
use crate::disk::PvIndex;
use crate::format::zones::StripeLayout;
use crate::model::PvFlags;
use crate::stripes::{ColumnPart, StripeSet};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

impl Placement {
    /// The same with striped blocks in the place of these runs of equal length, one set of runs for each. Also returns the
    /// striped numbers.
    #[must_use]
    pub fn with_striped(&self, layout: StripeLayout, rows: &[Vec<Range<u64>>]) -> (Placement, Vec<Range<u64>>) {
        let Some(from) = self.mirrored_from else { return (self.clone(), Vec::new()) };
        let mut taken: Vec<Range<u64>> = rows.iter().flatten().cloned().collect();
        taken.sort_unstable_by_key(|range| range.start);
        let mut runs = self.runs_outside(&taken);
        let (mut sets, mut numbers) = (self.sets.clone(), Vec::new());
        let row_blocks = layout.row(self.extent_blocks);
        let mut number = self.blocks().max(from).next_multiple_of(row_blocks);
        for row in rows {
            let place = |range: &Range<u64>| {
                let run = self.run_of(range.start);
                (run.pv, run.at + (range.start - run.start))
            };
            let end = number + row.iter().map(|range| range.end - range.start).sum::<u64>();
            runs.push(PlacedRun::plain(number, end, SETS + sets.len() as u16, 0));
            sets.push(StripeSet { layout, places: row.iter().map(place).collect() });
            numbers.push(number..end);
            number = end;
        }
        (Placement::of_runs(self.extent_blocks, self.pvs.clone(), runs, &sets), numbers)
    }

    /// How striped blocks alternate. None: there are none.
    pub fn stripe_layout(&self) -> Option<StripeLayout> {
        self.sets.first().map(|set| set.layout)
    }

    /// The physical volumes of a striped run.
    pub fn columns_of(&self, run: &PlacedRun) -> PvFlags {
        let mut pvs = PvFlags::default();
        self.set_of(run).places.iter().for_each(|(pv, _)| pvs.set(usize::from(*pv), true));
        pvs
    }

    /// The physical volumes of a striped block. None of another one. The block must exist.
    pub fn columns_at(&self, block: u64) -> PvFlags {
        let run = self.run_of(block);
        if run.is_striped() { self.columns_of(run) } else { PvFlags::default() }
    }

    /// The columns of a striped block, in their order: the physical volume of each, and its first block from the row of the
    /// block on. None of another one. The block must exist.
    pub fn columns_from(&self, block: u64) -> Vec<(u16, u64)> {
        let run = self.run_of(block);
        if !run.is_striped() {
            return Vec::new();
        }
        let set = self.set_of(run);
        let row = set.layout.row(self.extent_blocks);
        set.behind((run.at + (block - run.start)) / row * row).places
    }

    /// Whether a column of striped blocks is on the physical volume.
    pub fn has_column_on(&self, pv: PvIndex) -> bool {
        self.sets.iter().any(|set| set.is_on(pv.0))
    }

    /// What each physical volume has of the first of these blocks, and where the rest of them begins: of mirrored blocks the
    /// first leg.
    pub fn parts_of(&self, blocks: &Range<u64>) -> (SmallVec<[ColumnPart; 2]>, u64) {
        let run = self.run_of(blocks.start);
        let end = run.end.min(blocks.end);
        let at = run.at + (blocks.start - run.start);
        let parts = match run.is_striped() {
            true => self.set_of(run).parts(&(at..at + (end - blocks.start))).collect(),
            false => smallvec![ColumnPart { pv: run.pv, at, blocks: end - blocks.start }],
        };
        (parts, end)
    }

    /// What each physical volume has of a run: both legs of a mirrored one.
    pub fn all_parts_of(&self, run: &PlacedRun) -> SmallVec<[ColumnPart; 2]> {
        let blocks = run.end - run.start;
        match run.is_striped() {
            true => self.set_of(run).parts(&(run.at..run.at + blocks)).collect(),
            false => run.legs().map(|(pv, at)| ColumnPart { pv, at, blocks }).collect(),
        }
    }
}
