//! What the layer is told, and what it tells.

use crate::disk::{DiskError, PvIndex};
use crate::model::PvFlags;

/// One copy of a mirrored run of extents: its first byte on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leg {
    pub pv: PvIndex,
    pub offset: u64,
}

/// A run of extents with two legs, on two physical volumes. The rest of the engine knows the place of the first leg
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirroredRun {
    pub legs: [Leg; 2],
    pub bytes: u64,
    /// This leg (0 or 1) is being filled from the other one, and counts nowhere until it is complete: as if its
    /// physical volume were behind. It must be stored with the run: a table that names the new leg must also say that
    /// it is incomplete.
    pub filling: Option<usize>,
    /// A place that gets all writes, too, and is no leg yet (ML12).
    pub replacement: Option<Leg>,
}

impl MirroredRun {
    /// The part of it that begins so many bytes after it.
    #[must_use]
    pub fn cut(&self, skipped: u64, bytes: u64) -> MirroredRun {
        let cut = |leg: Leg| Leg { pv: leg.pv, offset: leg.offset + skipped };
        MirroredRun { legs: self.legs.map(cut), bytes, replacement: self.replacement.map(cut), ..*self }
    }

    /// The same, found by the place of its second leg.
    pub fn swapped(&self) -> MirroredRun {
        let [first, second] = self.legs;
        MirroredRun { legs: [second, first], filling: self.filling.map(|leg| 1 - leg), ..*self }
    }
}

/// The state of the physical volumes. A group that never lost one has the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LegsState {
    /// They have no disk, or are left out.
    pub out: PvFlags,
    /// They returned, and are not caught up.
    pub behind: PvFlags,
    /// Those of `behind` that were behind already when another one of `behind` returned. They are not the source of a run
    /// with both. If a run has two legs that are behind, and both or none of them are here, the regions that are open
    /// can be neither read nor written.
    pub behind_longer: PvFlags,
    /// Nothing may be written to any disk.
    pub is_read_only: bool,
}

/// A run, and what is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    pub run: MirroredRun,
    /// Regions that count as open, on its first leg that is in.
    pub open_regions: u64,
    /// Bytes to be copied from one leg to the other.
    pub unsure_bytes: u64,
    /// Of these, bytes that cannot be copied, because they cannot be read or written.
    pub stuck_bytes: u64,
    /// Bytes in regions that the one leg that is in may have missed (ML7): only the leg that is out has them.
    pub outdated_bytes: u64,
}

/// What happened to a physical volume's legs since the group was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvReport {
    /// Reads that failed and were answered from the other leg.
    pub read_errors: u64,
    /// Bytes that were written anew after that.
    pub healed_bytes: u64,
}

/// Who is told.
pub trait LegsOwner: Send + Sync {
    /// A disk failed a write twice and another leg has it, or it failed a flush. The group must stop, so that the next
    /// process opens it without the disk. Called before the request is completed with the error.
    fn leg_failed(&self, error: DiskError);
    /// There is work.
    fn wake(&self);
}
