//! What changes in memory when the replacing of a leg ends (ML12).

use super::state::{State, Unsure};
use super::table::{Place, Table};
use super::types::MirroredRun;

impl State {
    /// Whether a table that names a replacement may be on a disk, and these runs do not name it.
    pub fn must_stay_replaced(&self, new: &Table) -> bool {
        let is_leg = |run: &MirroredRun| {
            run.replacement.is_none_or(|leg| !new.at(&(leg.pv, leg.offset..leg.offset + 1)).is_empty())
        };
        self.replacing.is_counted && !self.table.runs().all(is_leg)
    }

    /// The runs are others from here on: if no replacement is among them, none is under way any more. Returns what may differ
    /// in those that have a replacement as a leg, and the places to which writes went that go elsewhere now.
    pub fn end_replacing(&mut self, new: &Table) -> (Vec<(Place, Unsure)>, Vec<Place>) {
        let (mut unsure, mut drained) = (Vec::new(), Vec::new());
        let replaced: Vec<MirroredRun> = self.table.runs().filter(|run| run.replacement.is_some()).copied().collect();
        if replaced.is_empty() || new.runs().any(|run| run.replacement.is_some()) {
            return (unsure, drained);
        }
        let replacing = std::mem::take(&mut self.replacing);
        for run in replaced {
            let first = run.legs[0];
            let whole = (first.pv, first.offset..first.offset + run.bytes);
            let Some(replacement) = run.replacement else { continue };
            let on = |place: &Place| {
                let (from, to) = (place.1.start.max(whole.1.start), place.1.end.min(whole.1.end));
                let skipped = from.checked_sub(first.offset).filter(|_| place.0 == first.pv && from < to)?;
                let at = replacement.offset + skipped;
                Some((replacement.pv, at..at + (to - from)))
            };
            let known: Vec<Place> = self.unsure_at(&whole).map(|(place, _)| place).collect();
            for place in known.iter().chain(&replacing.missed).filter_map(on) {
                let legs = new.at(&place).into_iter();
                let how = |leg: usize| Unsure { end: 0, source: Some(1 - leg), is_stuck: false, is_held: false };
                unsure.extend(legs.map(|(leg, _, own)| (own, how(leg))));
            }
            drained.push(whole);
        }
        (unsure, drained)
    }
}
