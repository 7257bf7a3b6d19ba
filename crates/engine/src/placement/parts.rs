//! What lies on the extents of one physical volume, whatever it is: linear blocks, legs of mirrors, columns of stripes.

use super::{PlacedRun, Placement, SETS};
use crate::disk::PvIndex;
use crate::model::{PvFlags, SegmentType};
use crate::stripes::StripeSet;
use std::ops::Range;

/// A block of a physical volume: its number, and the block there.
type Place = (u16, u64);

/// Blocks of a physical volume that follow each other, and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPart {
    pub pv: u16,
    /// The first block there, and how many.
    pub at: u64,
    pub blocks: u64,
    /// The first of their numbers. Of a column: of the rows that it is in.
    pub first: u64,
    /// How many numbers each block there stands for: the columns of a striped set, else 1.
    pub columns: u64,
    /// Whose blocks they are.
    pub segment: SegmentType,
    /// Of mirrored blocks with two legs: which leg it is, 0 or 1.
    pub leg: Option<usize>,
    /// The second leg is being filled.
    pub is_filling: bool,
    /// The physical volumes with the other legs or columns.
    pub others: PvFlags,
}

impl PlacedPart {
    /// The numbers of the blocks. Of a column: of the rows that it is in.
    pub fn numbers(&self) -> Range<u64> {
        self.first..self.first + self.blocks * self.columns
    }

    /// The part of so many blocks that begins so many blocks after it.
    #[must_use]
    pub fn cut(&self, skipped: u64, blocks: u64) -> PlacedPart {
        PlacedPart { at: self.at + skipped, first: self.first + skipped * self.columns, blocks, ..self.clone() }
    }

    /// The part of it that lies on these blocks of its physical volume.
    fn within(&self, blocks: &Range<u64>) -> Option<PlacedPart> {
        let (from, to) = (self.at.max(blocks.start), (self.at + self.blocks).min(blocks.end));
        (from < to).then(|| self.cut(from - self.at, to - from))
    }
}

/// Two runs of blocks on physical volumes that exchange their places.
struct Exchange {
    one: Place,
    other: Place,
    blocks: u64,
}

impl Exchange {
    /// Where the blocks from `place` on, which do not cross an end of either run, lie afterwards.
    fn moved(&self, place: Place) -> Place {
        let within = |run: Place| place.0 == run.0 && (run.1..run.1 + self.blocks).contains(&place.1);
        match (within(self.one), within(self.other)) {
            (true, _) => (self.other.0, self.other.1 + (place.1 - self.one.1)),
            (_, true) => (self.one.0, self.one.1 + (place.1 - self.other.1)),
            _ => place,
        }
    }

    /// How many blocks after `place` a run begins or ends, as far as that is within `blocks`.
    fn ends(&self, place: Place, blocks: u64) -> impl Iterator<Item = u64> + use<> {
        let runs = [self.one, self.other].map(|run| (run.0, [run.1, run.1 + self.blocks]));
        let own = runs.into_iter().filter(move |(pv, _)| *pv == place.0).flat_map(|(_, ends)| ends);
        own.filter(move |end| place.1 < *end && *end < place.1 + blocks).map(move |end| end - place.1)
    }
}

impl Placement {
    /// What lies on these extents of a physical volume, in their order.
    pub fn parts_at(&self, pv: PvIndex, extents: &Range<u64>) -> Vec<PlacedPart> {
        let blocks = extents.start.saturating_mul(self.extent_blocks)..extents.end.saturating_mul(self.extent_blocks);
        let mut parts: Vec<PlacedPart> = Vec::new();
        for run in &self.runs {
            let columns = if run.is_striped() { u64::from(self.set_of(run).layout.columns) } else { 1 };
            let places = self.places_of(run);
            for (index, place) in places.iter().enumerate().filter(|(_, place)| place.0 == pv.0) {
                let mut others = PvFlags::default();
                let rest = places.iter().enumerate().filter(|(other, _)| *other != index);
                rest.for_each(|(_, (pv, _))| others.set(usize::from(*pv), true));
                let part = PlacedPart {
                    pv: pv.0,
                    at: place.1,
                    blocks: (run.end - run.start) / columns,
                    first: run.start,
                    columns,
                    segment: run.segment(),
                    leg: run.second.map(|_| index),
                    is_filling: run.is_filling,
                    others,
                };
                parts.extend(part.within(&blocks));
            }
        }
        parts.sort_unstable_by_key(|part| part.at);
        parts
    }

    /// Where a run begins on each of its physical volumes.
    fn places_of(&self, run: &PlacedRun) -> Vec<Place> {
        match run.is_striped() {
            true => self.set_of(run).behind(run.at).places,
            false => run.legs().collect(),
        }
    }

    /// The same after two runs of blocks on physical volumes, of whole extents, have exchanged their places. Each number lies
    /// where the other one did.
    #[must_use]
    pub fn with_places_exchanged(&self, one: Place, other: Place, blocks: u64) -> Placement {
        let exchange = Exchange { one, other, blocks };
        let (mut runs, mut sets) = (Vec::with_capacity(self.runs.len() + 4), self.sets.clone());
        for run in &self.runs {
            let places = self.places_of(run);
            let columns = if run.is_striped() { places.len() as u64 } else { 1 };
            let len = (run.end - run.start) / columns;
            let mut bounds: Vec<u64> = places.iter().flat_map(|place| exchange.ends(*place, len)).collect();
            bounds.extend([0, len]);
            bounds.sort_unstable();
            bounds.dedup();
            for pair in bounds.windows(2) {
                let part = run.part(run.start + pair[0] * columns, run.start + pair[1] * columns);
                let moved: Vec<Place> = places.iter().map(|(pv, at)| exchange.moved((*pv, at + pair[0]))).collect();
                runs.push(match run.is_striped() {
                    true => {
                        sets.push(StripeSet { layout: self.set_of(run).layout, places: moved });
                        PlacedRun { pv: SETS + (sets.len() - 1) as u16, at: 0, ..part }
                    }
                    false => PlacedRun { pv: moved[0].0, at: moved[0].1, second: moved.get(1).copied(), ..part },
                });
            }
        }
        Placement::of_runs(self.extent_blocks, self.pvs.clone(), runs, &sets)
    }
}
