//! The blocks of the journal, in all of its copies.

use crate::disk::PvIndex;
use crate::format::superblock::GroupRoot;
use crate::placement::Placement;
use crate::space::Run;
use std::ops::Range;

/// A copy that moves to another physical volume takes at most one in this many of its extents.
pub const LARGEST_SHARE: u64 = 4;

/// The part of these VG blocks that belongs to a copy of the journal; empty if none does.
fn copy_in(root: &GroupRoot, start: u64, range: &Range<u64>) -> Range<u64> {
    let end = start + root.journal_blocks;
    let start = start.clamp(range.start, range.end);
    start..end.clamp(start, range.end)
}

/// The parts of these VG blocks that belong to the journal, in order.
pub(super) fn journal_in(root: &GroupRoot, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = root.journals().map(|start| copy_in(root, start, range)).collect();
    parts.retain(|part| !part.is_empty());
    parts.sort_by_key(|part| part.start);
    parts
}

/// The parts of the physical volume that belong to the journal, in VG blocks.
pub(super) fn journal_on(root: &GroupRoot, placement: &Placement, pv: PvIndex) -> Vec<Range<u64>> {
    placement.ranges_of(pv).iter().flat_map(|range| journal_in(root, range)).collect()
}

/// Whether a part of the copy at this VG block is on the physical volume.
pub(super) fn is_copy_on(root: &GroupRoot, placement: &Placement, start: u64, pv: PvIndex) -> bool {
    placement.ranges_of(pv).iter().any(|range| !copy_in(root, start, range).is_empty())
}

/// The copy's blocks that lie in none of the ranges, which are in order.
pub(super) fn copy_elsewhere(root: &GroupRoot, start: u64, ranges: &[Range<u64>]) -> Vec<Run> {
    let (mut at, mut runs) = (start, Vec::new());
    for part in ranges.iter().map(|range| copy_in(root, start, range)).filter(|part| !part.is_empty()) {
        runs.push((at, part.start - at));
        at = part.end;
    }
    runs.push((at, start + root.journal_blocks - at));
    runs.retain(|(_, len)| *len > 0);
    runs
}

/// The parts of a range that are not the journal's.
pub(super) fn outside_journal(root: &GroupRoot, range: &Range<u64>) -> Vec<Run> {
    let (mut at, mut runs) = (range.start, Vec::new());
    for part in journal_in(root, range) {
        runs.push((at, part.start - at));
        at = part.end;
    }
    runs.push((at, range.end - at));
    runs.retain(|(_, len)| *len > 0);
    runs
}

/// The places of the journal after a physical volume has left.
#[derive(Default)]
pub(super) struct Relocation {
    /// The first VG block of each copy.
    pub starts: Vec<u64>,
    /// Places that are new.
    pub taken: Vec<Run>,
    /// Blocks on other physical volumes, of a copy that lay in part on the one that leaves.
    pub left: Vec<Run>,
}
