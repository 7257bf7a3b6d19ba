//! What changes in memory when the replacing of a leg ends (ML12).

use super::state::{State, Unsure};
use super::table::{Piece, Place, Table, place_of, whole};
use super::types::MirroredRun;

/// What may differ in runs that have a replacement as a leg from now on.
pub type Differing = Vec<(Place, Unsure)>;

/// The runs of which a leg is being replaced, unless others follow.
fn replaced(old: &Table, new: &Table) -> Vec<MirroredRun> {
    match new.runs().any(|run| run.replacement.is_some()) {
        true => Vec::new(),
        false => old.runs().filter(|run| run.replacement.is_some()).copied().collect(),
    }
}

/// These places, by the names in an old run, as places of the runs that have its replacement as a leg. The other leg counts.
fn on_replacement<'a>(run: &MirroredRun, new: &Table, places: impl Iterator<Item = &'a Place>) -> Differing {
    let (whole, first) = (whole(run), run.legs[0]);
    let Some(replacement) = run.replacement else { return Vec::new() };
    let on = |place: &Place| {
        let (from, to) = (place.1.start.max(whole.1.start), place.1.end.min(whole.1.end));
        let skipped = from.checked_sub(first.offset).filter(|_| place.0 == first.pv && from < to)?;
        let at = replacement.offset + skipped;
        Some((replacement.pv, at..at + (to - from)))
    };
    let how = |leg: usize| Unsure { end: 0, source: Some(1 - leg), is_stuck: false, is_held: false };
    places.filter_map(on).flat_map(|place| new.at(&place)).map(|(leg, _, own)| (own, how(leg))).collect()
}

impl State {
    /// Whether a table that names a replacement may be on a disk, and these runs do not name it.
    pub fn must_stay_replaced(&self, new: &Table) -> bool {
        let is_leg = |run: &MirroredRun| {
            run.replacement.is_none_or(|leg| !new.at(&(leg.pv, leg.offset..leg.offset + 1)).is_empty())
        };
        self.replacing.is_counted && !self.table.runs().all(is_leg)
    }

    /// Which leg of a piece is one still, beside the replacement, which has become one.
    pub fn leg_beside_replacement(&self, piece: &Piece) -> Option<usize> {
        let replacement = piece.replacement?;
        let parts = self.table.at(&place_of(&replacement));
        let bytes: u64 = parts.iter().map(|(_, _, place)| place.1.end - place.1.start).sum();
        let is_beside = |staying: &usize| {
            let own = piece.legs[*staying];
            parts.iter().all(|(leg, run, _)| {
                let (here, other) = (run.legs[*leg], run.legs[1 - leg]);
                // As far apart as in the piece.
                other.pv == own.pv && other.offset + replacement.offset == own.offset + here.offset
            })
        };
        (bytes == u64::from(replacement.len)).then(|| [0, 1].into_iter().find(is_beside)).flatten()
    }

    /// The runs are to be others. Returns what is known to differ where a replacement becomes a leg, and the places to which
    /// writes go that will go elsewhere.
    pub fn begin_end_of_replacing(&self, new: &Table) -> (Differing, Vec<Place>) {
        let (mut differing, mut drained) = (Vec::new(), Vec::new());
        for run in replaced(&self.table, new) {
            let known: Vec<Place> = self.unsure_at(&whole(&run)).map(|(place, _)| place).collect();
            differing.append(&mut on_replacement(&run, new, known.iter()));
            drained.push(whole(&run));
        }
        (differing, drained)
    }

    /// The runs were these until now, and no write to them is in flight any more. What a replacement missed meanwhile differs, and
    /// no replacing is under way.
    pub fn end_replacing(&mut self, old: &Table) {
        let replaced = replaced(old, &self.table);
        if replaced.is_empty() {
            return;
        }
        let missed = std::mem::take(&mut self.replacing).missed;
        for run in replaced {
            let differing = on_replacement(&run, &self.table, missed.iter());
            differing.into_iter().for_each(|(place, how)| self.set_unsure(&place, how));
        }
    }
}
