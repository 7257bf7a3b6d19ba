//! The mirrored runs, found by a place of their first leg, or of any leg.

use super::types::MirroredRun;
use crate::disk::{PvIndex, Segment};
use crate::format::intents::{REGION_BYTES, region_of, region_start};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A range of bytes on a physical volume.
pub type Place = (PvIndex, Range<u64>);

pub fn place_of(segment: &Segment) -> Place {
    (segment.pv, segment.offset..segment.offset + u64::from(segment.len))
}

/// The place of a run: that of its first leg.
pub fn whole(run: &MirroredRun) -> Place {
    (run.legs[0].pv, run.legs[0].offset..run.legs[0].offset + run.bytes)
}

pub fn do_meet(a: &Place, b: &Place) -> bool {
    a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Plain(Segment),
    Mirrored(Piece),
}

/// A part of a request that lies in one mirrored run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its places on both legs.
    pub legs: [Segment; 2],
    pub filling: Option<usize>,
    /// Its place on the replacement of a leg (ML12).
    pub replacement: Option<Segment>,
}

impl Piece {
    /// The place on the first leg.
    pub fn place(&self) -> Place {
        place_of(&self.legs[0])
    }

    /// The regions that a leg of it touches.
    pub fn regions(&self, leg: usize) -> impl Iterator<Item = (u16, u32)> + use<> {
        regions_of(&place_of(&self.legs[leg]))
    }

    /// The part that begins `skipped` bytes after it, of at most `len` bytes.
    pub fn cut(&self, skipped: u32, len: u32) -> Piece {
        let cut = |segment: Segment| Segment {
            pv: segment.pv,
            offset: segment.offset + u64::from(skipped),
            at: segment.at + skipped,
            len: len.min(segment.len - skipped),
        };
        Piece { legs: self.legs.map(cut), filling: self.filling, replacement: self.replacement.map(cut) }
    }
}

pub type Parts = SmallVec<[Part; 2]>;

/// The regions that a place touches.
pub fn regions_of(place: &Place) -> impl Iterator<Item = (u16, u32)> + use<> {
    let pv = place.0.0;
    let (first, last) = (region_of(place.1.start), region_of(place.1.end.saturating_sub(1)));
    (first..=last).map(move |region| (pv, region))
}

/// The bytes of a region.
pub fn bytes_of(region: (u16, u32)) -> Place {
    (PvIndex(region.0), region_start(region.1)..region_start(region.1) + REGION_BYTES)
}

/// The runs of a group.
#[derive(Default)]
pub struct Table {
    /// By physical volume and first byte of the first leg.
    runs: BTreeMap<(u16, u64), MirroredRun>,
    /// By physical volume and first byte of each leg: which one it is, and its run.
    legs: BTreeMap<(u16, u64), (usize, MirroredRun)>,
}

impl Table {
    pub fn new(runs: &[MirroredRun]) -> Table {
        let mut table = Table::default();
        for run in runs {
            let key = |leg: usize| (run.legs[leg].pv.0, run.legs[leg].offset);
            table.runs.insert(key(0), *run);
            table.legs.extend([0, 1].map(|leg| (key(leg), (leg, *run))));
        }
        table
    }

    /// The physical volumes with legs, and with replacements of legs.
    pub fn pvs(&self) -> BTreeSet<PvIndex> {
        self.runs().flat_map(|run| run.legs.into_iter().chain(run.replacement)).map(|leg| leg.pv).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn runs(&self) -> impl Iterator<Item = &MirroredRun> {
        self.runs.values()
    }

    /// The parts of a segment.
    pub fn split(&self, segment: &Segment, parts: &mut Parts) {
        let (pv, range) = place_of(segment);
        let part = |from: u64, to: u64| Segment {
            pv,
            offset: from,
            at: segment.at + (from - range.start) as u32,
            len: (to - from) as u32,
        };
        let before = self.runs.range(..=(pv.0, range.start)).next_back();
        let first = before.filter(|(key, run)| key.0 == pv.0 && key.1 + run.bytes > range.start);
        let start = first.map_or((pv.0, range.start), |(key, _)| *key);
        let mut at = range.start;
        for ((_, run_start), run) in self.runs.range(start..(pv.0, range.end)) {
            let from = range.start.max(*run_start);
            if at < from {
                parts.push(Part::Plain(part(at, from)));
            }
            at = range.end.min(run_start + run.bytes);
            let own = part(from, at);
            let on = |leg: super::types::Leg| Segment { pv: leg.pv, offset: leg.offset + (from - run_start), ..own };
            let (legs, replacement) = ([own, on(run.legs[1])], run.replacement.map(on));
            parts.push(Part::Mirrored(Piece { legs, filling: run.filling, replacement }));
        }
        if at < range.end {
            parts.push(Part::Plain(part(at, range.end)));
        }
    }

    /// The mirrored parts of a place on a first leg. They may be longer than a segment can be, so they are cut.
    pub fn pieces(&self, place: &Place) -> Vec<Piece> {
        const MOST: u64 = 1 << 30;
        let mut parts = Parts::new();
        let mut at = place.1.start;
        while at < place.1.end {
            let len = MOST.min(place.1.end - at);
            self.split(&Segment { pv: place.0, offset: at, at: 0, len: len as u32 }, &mut parts);
            at += len;
        }
        let mirrored = |part: Part| match part {
            Part::Mirrored(piece) => Some(piece),
            Part::Plain(_) => None,
        };
        parts.into_iter().filter_map(mirrored).collect()
    }

    /// The runs of which a leg lies at this place: which leg, the run, and the part on its *first* leg.
    pub fn at(&self, place: &Place) -> Vec<(usize, MirroredRun, Place)> {
        let pv = place.0.0;
        let mut found = Vec::new();
        for ((_, start), (leg, run)) in self.legs.range((pv, 0)..(pv, place.1.end)).rev() {
            // Legs do not overlap.
            if start + run.bytes <= place.1.start {
                break;
            }
            let from = place.1.start.max(*start) - start;
            let to = place.1.end.min(start + run.bytes) - start;
            let first = run.legs[0];
            found.push((*leg, *run, (first.pv, first.offset + from..first.offset + to)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Leg;
    use super::*;

    fn run(first: (u16, u64), second: (u16, u64), bytes: u64) -> MirroredRun {
        let legs = [first, second].map(|(pv, offset)| Leg { pv: PvIndex(pv), offset });
        MirroredRun { legs, bytes, filling: None, replacement: None }
    }

    #[test]
    fn a_segment_is_cut_at_the_ends_of_runs() {
        let table = Table::new(&[run((0, 100), (1, 1000), 50), run((0, 150), (2, 500), 50), run((1, 0), (0, 900), 8)]);
        let mut parts = Parts::new();
        table.split(&Segment { pv: PvIndex(0), offset: 90, at: 7, len: 120 }, &mut parts);
        let seen = parts.iter().map(|part| match part {
            Part::Plain(own) => (own.offset, own.at, own.len, None),
            Part::Mirrored(piece) => {
                let [own, other] = piece.legs;
                (own.offset, own.at, own.len, Some((other.pv.0, other.offset, other.at, other.len)))
            }
        });
        let expected = [
            (90, 7, 10, None),
            (100, 17, 50, Some((1, 1000, 17, 50))),
            (150, 67, 50, Some((2, 500, 67, 50))),
            (200, 117, 10, None),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
        assert!(table.pieces(&(PvIndex(0), 900..908)).is_empty(), "a second leg is nobody's to write");
        assert_eq!(table.pieces(&(PvIndex(0), 120..130))[0].legs[1].offset, 1020);
        let at = table.at(&(PvIndex(1), 1010..1020));
        assert_eq!(at.len(), 1);
        assert_eq!((at[0].0, at[0].2.clone()), (1, (PvIndex(0), 110..120)));
    }
}
