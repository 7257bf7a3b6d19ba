//! The copies of the ring: each frame goes to all of them, to the same byte of each.
//!
//! * JC1 A record is acknowledged (J2) when its frame, and every frame before it, is in all copies of the ring that the
//!   newest superblock calls whole. So recovery finds it in any of them.
//! * JC2 Recovery reads whole copies only. A checkpoint calls a copy whole if all frames that replay needs were written
//!   to it. The superblock that says that a physical volume is out also says that the copy there is not whole.
//! * JC3 The place of a new copy holds zeros before the first frame is written there. So no data of a volume is taken
//!   for a frame.
//! * JC4 The blocks of a dropped copy are free when no frame to them is in flight, and a superblock that does not name
//!   the copy is durable.

use crate::disk::Segments;
use crate::placement::Placement;
use crate::planted;
use crate::units::BLOCK_SIZE;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::sync::Arc;

/// A copy that is written.
#[derive(Clone, Copy)]
struct Copy {
    /// Its first VG block.
    start: u64,
    /// The copy has frames from this one on.
    from: u64,
}

/// The copies that frames are written to.
pub struct Copies {
    written: RwLock<Written>,
}

struct Written {
    copies: SmallVec<[Copy; 2]>,
    /// Where the copies' blocks lie. Extents of the journal do not move.
    placement: Arc<Placement>,
}

impl Copies {
    /// Copies that are written from the beginning. Each is named by its first VG block.
    pub fn new(starts: &[u64], placement: Arc<Placement>) -> Copies {
        let copies = starts.iter().map(|start| Copy { start: *start, from: 0 }).collect();
        Copies { written: RwLock::new(Written { copies, placement }) }
    }

    /// The places, in all copies, of `bytes` from this byte of the ring on. Each copy gets the same bytes of the
    /// buffer.
    pub(super) fn map(&self, position: u64, bytes: u64) -> Segments {
        let mut segments = Segments::new();
        let written = self.written.read();
        for copy in &written.copies {
            written.placement.map_bytes(copy.start * BLOCK_SIZE + position, bytes, 0, &mut segments);
        }
        segments
    }

    /// The copies that have all frames from this one on (JC2).
    pub(super) fn whole_from(&self, frame: u64) -> Vec<u64> {
        let is_whole = |copy: &&Copy| copy.from <= frame || planted::is("new_copy_is_whole");
        self.written.read().copies.iter().filter(is_whole).map(|copy| copy.start).collect()
    }

    /// From this frame on, the copy at this VG block is written, too.
    pub(super) fn add(&self, start: u64, from: u64, placement: Arc<Placement>) {
        let mut written = self.written.write();
        debug_assert!(written.copies.iter().all(|copy| copy.start != start), "JC1");
        written.copies.push(Copy { start, from });
        written.placement = placement;
    }

    pub(super) fn has(&self, start: u64) -> bool {
        self.written.read().copies.iter().any(|copy| copy.start == start)
    }

    pub(super) fn drop_copy(&self, start: u64) {
        self.written.write().copies.retain(|copy| copy.start != start);
    }

    /// From now on the copies are at these places. They have all frames.
    pub(super) fn replace(&self, starts: &[u64]) {
        self.written.write().copies = starts.iter().map(|start| Copy { start: *start, from: 0 }).collect();
    }
}
