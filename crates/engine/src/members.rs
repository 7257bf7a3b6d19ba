//! The physical volumes of a group that count, and those that do not: a disk may be lost, and come back.
//!
//! * MB1 A group is opened without one of its physical volumes only if whoever opens it says so, or if its superblock says that
//!   the physical volume is *out*. It is not opened, and nothing is written, where all copies of the journal lie on some that are
//!   missing or out, or both copies of some metadata do.
//! * MB2 What lies on a physical volume that is out is an error to whoever reads or writes it: never zeros, and never what a
//!   disk says that came back. A write succeeds only if none of its blocks keeps its place there: blocks that are shared or not
//!   mapped are placed elsewhere, as ever; a block that the volume owns is not moved, as the rest of it could not be read.
//! * MB3 Nothing is placed on a physical volume that is out, and no new volume, growth or physical volume is taken.
//! * MB4 Who is out is durable on all others before the opening ends, so before any request is let in. From then on the group is
//!   opened without it by anybody, whether it is there or not.
//! * MB5 One that is out comes back only in the state in which it left: its superblock is one of the two that it could have then.
//!   Its copies of metadata are written anew before it counts.
//! * MB6 Two superblocks of one group and one number are the same on all of its physical volumes. Otherwise each part went on
//!   without the other, and they are never joined.
//! * MB8 Where the journal is kept twice, two halves of a group can go on without each other, if somebody asks for both. Physical
//!   volumes that say this of each other are never joined: the group is refused until those of one half are not there.
//! * MB9 A disk that fails a flush, a record or a superblock stops the group, even if everything that the group needs is also on
//!   other disks. In that case requests in flight get no answer: the next process opens the group without the disk, and answers
//!   them. Acknowledged writes on the disk that were not flushed may be lost: the next flush of their volume must fail.
//!   A redirected write of a part of a block is recorded only when its data is on the disk: the next process repeats it,
//!   and needs the old contents, which the record would hide (MB7).
//!
//! What recovery could not compare while a physical volume was out is in [`unproven`](crate::unproven) (MB7).

use crate::discards::DiscardInFlight;
use crate::disk::{Completer, DiscardLimits, DiskError, DiskOp, Disks, PvGeometry, PvIndex, Segment, Segments};
use crate::model::PvFlags;
use crate::moving::Moving;
use crate::unproven::Unproven;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// EIO: what is lost is an error.
const LOST: i32 = 5;

/// The disks of a group, of which some are out.
pub struct Members {
    disks: Arc<dyn Disks>,
    out: AtomicU64,
    /// What nobody could compare (MB7).
    pub unproven: Unproven,
    /// What is moved to another place.
    pub(crate) moving: Arc<Moving>,
    /// What is being discarded.
    pub discarding: DiscardInFlight,
    /// Planted bug: what is lost reads as zeros.
    lost_are_zeros: bool,
}

impl Members {
    pub fn new(disks: Arc<dyn Disks>, out: PvFlags, lost_are_zeros: bool) -> Members {
        Members {
            disks,
            out: AtomicU64::new(out.0),
            unproven: Unproven::default(),
            moving: Arc::default(),
            discarding: DiscardInFlight::default(),
            lost_are_zeros,
        }
    }

    /// The disks as they are, with those that are out.
    pub fn all(&self) -> &Arc<dyn Disks> {
        &self.disks
    }

    pub fn out(&self) -> PvFlags {
        PvFlags(self.out.load(Ordering::Acquire))
    }

    /// It counts again.
    pub fn restore_missing(&self, pv: PvIndex) {
        self.out.fetch_and(!(1 << pv.0), Ordering::AcqRel);
    }

    /// To the disks, past what is discarded (DC2) and what is moved (PM1).
    fn submit_checked(&self, op: DiskOp, done: Completer) {
        let Some((op, done)) = self.discarding.delay_write(op, done) else { return };
        match self.moving.is_active() {
            true => self.moving.submit(&self.disks, op, done),
            false => self.disks.submit(op, done),
        }
    }

    /// The first of these that is lost.
    fn lost(&self, segments: &Segments) -> Option<Segment> {
        let out = self.out();
        if out.is_empty() {
            return None;
        }
        segments.iter().find(|segment| out.has(usize::from(segment.pv.0))).copied()
    }
}

impl Disks for Members {
    fn count(&self) -> usize {
        self.disks.count()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.disks.geometry(pv)
    }

    fn discards(&self, pv: PvIndex) -> DiscardLimits {
        self.disks.discards(pv)
    }

    fn is_missing(&self, pv: PvIndex) -> bool {
        self.out().has(usize::from(pv.0)) || self.disks.is_missing(pv)
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        let op = match op {
            DiskOp::Discard { mut segments } => {
                segments.retain(|segment| !self.out().has(usize::from(segment.pv.0)));
                if segments.is_empty() {
                    return done.complete(Ok(None));
                }
                DiskOp::Discard { segments }
            }
            op => op,
        };
        let (DiskOp::Read { segments, .. } | DiskOp::Write { segments, .. }) = &op else {
            return self.submit_checked(op, done);
        };
        let unproven = match op {
            DiskOp::Read { .. } => self.unproven.first_of(segments),
            _ => None,
        };
        let Some(lost) = self.lost(segments).or(unproven) else {
            if let DiskOp::Write { segments, .. } = &op {
                self.unproven.forget(segments);
            }
            return self.submit_checked(op, done);
        };
        let error = DiskError { op: op.kind(), pv: lost.pv, offset: lost.offset, errno: LOST };
        match op {
            DiskOp::Read { buf, .. } if self.lost_are_zeros => done.complete(Ok(Some(buf))),
            op => {
                drop(op);
                done.complete(Err(error));
            }
        }
    }

    fn back(&self, mut segments: Segments, done: Completer) {
        segments.retain(|segment| !self.is_missing(segment.pv));
        let Some((segments, done)) = self.discarding.delay_backing(segments, done) else { return };
        self.disks.back(segments, done);
    }
}
