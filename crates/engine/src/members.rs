//! The physical volumes of a group that are in use, and those that are out. A disk can be lost, and come back.
//!
//! * MB1 A group is opened without one of its physical volumes in two cases only. Either the caller asks for it, or the
//!   superblock says that the physical volume is *out*. If all copies of the journal, or both copies of some metadata,
//!   are on physical volumes that are missing or out, the group is not opened. Then nothing is written.
//! * MB2 A read or write of a block on a physical volume that is out fails. It never returns zeros, and never the
//!   contents of a disk that came back. A write succeeds only if none of its blocks keeps its place there. Shared and
//!   unmapped blocks are placed elsewhere, as always. A block that the volume owns does not move, because its other
//!   parts cannot be read.
//! * MB3 Nothing is allocated on a physical volume that is out. The group takes no new volume, growth or physical
//!   volume.
//! * MB4 A superblock on all other physical volumes names those that are out, and is durable, before the opening ends.
//!   So this comes before the first request. From then on every opening leaves them out, even if they are attached.
//! * MB5 A physical volume that is out returns only in the state in which it left: its superblock is one of the two
//!   that it could have then. Its copies of metadata are rewritten before it is in use again.
//! * MB6 Two superblocks of one group with one number are the same on all of its physical volumes. If they differ, each
//!   part of the group was used without the other, and the parts are never joined.
//! * MB8 If the journal has two copies, two halves of a group can each be used without the other, if an administrator
//!   asks for both (split brain). Physical volumes that each say this of the other are never joined. The group is
//!   refused until the disks of one half are detached.
//! * MB9 A disk that fails a flush, a record or a superblock stops the group, even if everything that the group needs
//!   is also on other disks. In that case requests in flight get no answer: the next process opens the group without
//!   the disk, and answers them. Acknowledged writes on the disk that were not flushed may be lost: the next flush of
//!   their volume must fail. A redirected write of a part of a block is recorded only when its data is on the disk. The
//!   next process repeats the write, and needs the old contents. The record would hide them (MB7).
//! * MB10 A disk that answers nothing for longer than the caller's limit counts as one that failed a flush (MB9), if
//!   everything that the group needs is also on other disks. Nothing is acknowledged from then on, and no answer of that
//!   disk is used. If the group needs the disk, nothing changes: its requests wait.
//!
//! [`unproven`](crate::unproven) has the blocks that recovery could not compare while a physical volume was out (MB7).

use crate::discards::DiscardInFlight;
use crate::disk::{Completer, DiscardLimits, DiskError, DiskOp, Disks, PvGeometry, PvIndex, Segment, Segments};
use crate::legs::Legs;
use crate::model::PvFlags;
use crate::moving::Moving;
use crate::unproven::Unproven;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// EIO: an access to a lost block is an error.
const LOST: i32 = 5;

/// The disks of a group, some of which may be out.
pub struct Members {
    /// The disks below mirrors.
    disks: Arc<dyn Disks>,
    legs: Arc<Legs>,
    out: AtomicU64,
    /// Blocks that recovery could not compare (MB7).
    pub unproven: Unproven,
    /// The run of extents that moves.
    pub(crate) moving: Arc<Moving>,
    /// The discard in flight.
    pub discarding: DiscardInFlight,
    /// Planted bug: lost blocks read as zeros.
    lost_are_zeros: bool,
}

impl Members {
    pub fn new(legs: Arc<Legs>, out: PvFlags, lost_are_zeros: bool) -> Members {
        Members {
            disks: legs.clone(),
            legs,
            out: AtomicU64::new(out.0),
            unproven: Unproven::default(),
            moving: Arc::default(),
            discarding: DiscardInFlight::default(),
            lost_are_zeros,
        }
    }

    /// All disks, with those that are out.
    pub fn all(&self) -> &Arc<dyn Disks> {
        &self.disks
    }

    /// The mirrors below.
    pub fn legs(&self) -> &Arc<Legs> {
        &self.legs
    }

    pub fn out(&self) -> PvFlags {
        PvFlags(self.out.load(Ordering::Acquire))
    }

    /// The physical volume is in use again.
    pub fn restore_missing(&self, pv: PvIndex) {
        self.out.fetch_and(!(1 << pv.0), Ordering::AcqRel);
    }

    /// Submits a request, past the discard in flight (DC2) and the move (PM1).
    fn submit_checked(&self, op: DiskOp, done: Completer) {
        let Some((op, done)) = self.discarding.delay_write(op, done) else { return };
        match self.moving.is_active() {
            true => self.moving.submit(&self.disks, op, done),
            false => self.disks.submit(op, done),
        }
    }

    /// The first of these segments that is lost.
    fn lost(&self, segments: &Segments) -> Option<Segment> {
        let out = self.out();
        if out.is_empty() {
            return None;
        }
        let is_lost = |segment: &&Segment| out.has(usize::from(segment.pv.0)) && !self.legs.is_readable(segment);
        segments.iter().find(is_lost).copied()
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

    fn has_mirrors_below(&self) -> bool {
        true
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        let op = match op {
            DiskOp::Discard { mut segments } => {
                segments.retain(|segment| !self.out().has(usize::from(segment.pv.0)) || self.legs.is_readable(segment));
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
        segments.retain(|segment| !self.is_missing(segment.pv) || self.legs.is_readable(segment));
        let Some((segments, done)) = self.discarding.delay_backing(segments, done) else { return };
        self.disks.back(segments, done);
    }
}
