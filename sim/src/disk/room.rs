//! The room behind the disks: physical volumes that are sparse files on a filesystem that fills up.

use rowen_engine::disk::{PvIndex, Segment};
use std::collections::BTreeSet;

const PAGE: u64 = 4096;

/// Pages that have their room, and the number of pages that can still get it.
#[derive(Clone, Debug, Default)]
pub struct Room {
    backed: BTreeSet<(PvIndex, u64)>,
    left: u64,
    /// Whether an overwrite needs room for a copy, as on filesystems that never write in place.
    copies: bool,
}

fn pages(segment: &Segment) -> impl Iterator<Item = (PvIndex, u64)> + use<> {
    let (pv, from, to) = (segment.pv, segment.offset / PAGE, (segment.offset + u64::from(segment.len)).div_ceil(PAGE));
    (from..to).map(move |page| (pv, page))
}

impl Room {
    /// These pages have their room, and this many more can get it.
    pub fn new(backed: impl IntoIterator<Item = (PvIndex, u64)>, left: u64) -> Room {
        Room { backed: backed.into_iter().collect(), left, copies: false }
    }

    /// From now on nothing is written in place. The room of the old copy is free at once.
    #[must_use]
    pub fn copying(self) -> Room {
        Room { copies: true, ..self }
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    pub fn set_left(&mut self, pages: u64) {
        self.left = pages;
    }

    /// Takes room for all segments. `Err`: there is too little, and this is the first segment that is not fully backed.
    pub(super) fn take(&mut self, segments: &[Segment]) -> Result<(), Segment> {
        for segment in segments {
            for page in pages(segment) {
                if self.backed.contains(&page) {
                    continue;
                }
                if self.left == 0 {
                    return Err(*segment);
                }
                self.left -= 1;
                self.backed.insert(page);
            }
        }
        Ok(())
    }

    /// The same for a write.
    pub(super) fn take_for_write(&mut self, segments: &[Segment]) -> Result<(), Segment> {
        match segments.first() {
            Some(first) if self.copies && self.left == 0 => Err(*first),
            _ => self.take(segments),
        }
    }

    /// Frees the room of whole pages.
    pub(super) fn give_back(&mut self, segments: &[Segment]) {
        for segment in segments {
            let whole = segment.offset.div_ceil(PAGE)..(segment.offset + u64::from(segment.len)) / PAGE;
            self.left += whole.filter(|page| self.backed.remove(&(segment.pv, *page))).count() as u64;
        }
    }
}
