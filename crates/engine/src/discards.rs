//! Discards of free blocks on the disks ([`DiskOp::Discard`]): a sparse file becomes smaller, and a thin device or a
//! flash disk learns which blocks are unused. `group/discards.rs` decides which blocks to discard, and when.
//!
//! * DC1 A block is discarded only if it is free both in a durable checkpoint and at that moment. The same holds for
//!   unwritten blocks of a thick volume. The check is in the critical section in which the discard begins, so an
//!   allocation of the block comes later.
//! * DC2 Writes, and requests for room, wait while a discard of their blocks is in flight.
//! * DC3 No checkpoint runs while a discard is in flight. So no extent moves and no physical volume leaves meanwhile,
//!   and a closed group has no discard in flight.
//! * DC4 A failed discard is not an error for any request. Its physical volume gets no more discards until the group is
//!   opened again.
//! * DC5 A group without discards has no cost from them.
//! * DC6 A trim waits for the removals before it, so it also discards what a volume held that was just removed. It does
//!   not wait for a removal that has stopped for lack of room.
//!
//! Pending discards are kept in memory only. A crash loses them, and so does a full queue. `rowen trim` then finds the
//! free blocks.

use crate::disk::{Completer, DiskError, DiskOp, Disks, PvIndex, Segments};
pub use crate::model::DiscardPolicy as Policy;
use crate::model::PvFlags;
use crate::planted;
use crate::space::Run;
use crate::units::VolumeId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The most runs of blocks that wait for a discard.
const MAX_RUNS: usize = 1 << 16;

/// A part of a volume that a user discarded.
pub type Part = (VolumeId, Range<u64>);

/// The blocks that wait for a discard.
#[derive(Default)]
pub struct DiscardQueue {
    policy: Mutex<Policy>,
    /// Something was queued. A group without pending discards takes no other lock.
    any: AtomicBool,
    /// A timer that requests a checkpoint is running.
    pub checkpoint_due: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Discarded on volumes since the last capture, and before it.
    queued: Vec<Part>,
    queued_runs: Vec<Run>,
    captured: Vec<Part>,
    captured_runs: Vec<Run>,
    /// All of these are in a durable checkpoint.
    parts: VecDeque<Part>,
    runs: BTreeMap<u64, u64>,
}

/// One pending discard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingDiscard {
    /// The free ones of these blocks.
    Free(Range<u64>),
    /// The unwritten blocks of this part of a volume.
    Unwritten(Part),
}

impl DiscardQueue {
    pub fn new(policy: Policy) -> DiscardQueue {
        DiscardQueue { policy: Mutex::new(policy), any: AtomicBool::new(policy.freed), ..DiscardQueue::default() }
    }

    pub fn policy(&self) -> Policy {
        *self.policy.lock()
    }

    pub fn set_policy(&self, policy: Policy) {
        *self.policy.lock() = policy;
        if policy.freed {
            self.any.store(true, Ordering::Release);
        }
    }

    /// A user discarded this part of a volume, so these blocks became free or unwritten.
    pub fn queue(&self, part: Part, runs: impl IntoIterator<Item = Run>) {
        let mut state = self.state.lock();
        let room = MAX_RUNS.saturating_sub(state.queued_runs.len());
        state.queued_runs.extend(runs.into_iter().take(room));
        let has_room = state.queued.len() < MAX_RUNS;
        match state.queued.last_mut().filter(|(id, last)| *id == part.0 && last.end == part.1.start) {
            Some((_, last)) => last.end = part.1.end,
            None if has_room => state.queued.push(part),
            None => {}
        }
        self.any.store(true, Ordering::Release);
    }

    fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// At a checkpoint's capture.
    pub fn capture(&self) {
        if self.has_any() {
            let state = &mut *self.state.lock();
            state.captured.append(&mut state.queued);
            state.captured_runs.append(&mut state.queued_runs);
        }
    }

    /// The checkpoint is durable, and the blocks that it freed (`freed`) are usable. True: there is something to
    /// discard.
    pub fn checkpoint_durable(&self, freed: &[Run]) -> bool {
        if !self.has_any() {
            return false;
        }
        let all = self.policy().freed;
        let state = &mut *self.state.lock();
        state.parts.extend(state.captured.drain(..));
        let queued = std::mem::take(&mut state.captured_runs);
        for (start, len) in queued.into_iter().chain(freed.iter().copied().filter(|_| all)) {
            state.add(start..start + len);
        }
        !state.is_empty()
    }

    /// Whether all freed blocks are to be discarded.
    pub fn discards_freed(&self) -> bool {
        self.has_any() && self.policy().freed
    }

    pub fn next(&self, most: u64) -> Option<PendingDiscard> {
        let mut state = self.state.lock();
        if let Some((start, end)) = state.runs.pop_first() {
            if end - start > most {
                state.runs.insert(start + most, end);
            }
            return Some(PendingDiscard::Free(start..end.min(start + most)));
        }
        let (id, part) = state.parts.pop_front()?;
        if part.end - part.start > most {
            state.parts.push_front((id, part.start + most..part.end));
        }
        Some(PendingDiscard::Unwritten((id, part.start..part.end.min(part.start + most))))
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().is_empty()
    }

    /// Whether a pending discard waits for a checkpoint.
    pub fn awaits_checkpoint(&self) -> bool {
        let state = self.state.lock();
        !state.queued.is_empty() || !state.captured.is_empty()
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.parts.is_empty()
    }

    /// Joins runs that touch.
    fn add(&mut self, mut run: Range<u64>) {
        while let Some((start, end)) = self.runs.range(..=run.end).next_back().map(|(start, end)| (*start, *end)) {
            if end < run.start {
                break;
            }
            self.runs.remove(&start);
            run = run.start.min(start)..run.end.max(end);
        }
        if self.runs.len() < MAX_RUNS {
            self.runs.insert(run.start, run.end);
        }
    }
}

/// The discard that is in flight, and the requests that wait for its end (DC2).
#[derive(Default)]
pub struct DiscardInFlight {
    is_active: AtomicBool,
    state: Mutex<Waiting>,
    /// Physical volumes that failed a discard (DC4).
    disabled: AtomicU64,
    errors: Mutex<Vec<DiskError>>,
    discarded: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    segments: Segments,
    writes: Vec<(DiskOp, Completer)>,
    rooms: Vec<(Segments, Completer)>,
}

impl Waiting {
    fn overlaps(&self, other: &Segments) -> bool {
        let end = |offset: u64, len: u32| offset + u64::from(len);
        self.segments.iter().any(|own| {
            let overlaps = |other: &crate::disk::Segment| {
                own.pv == other.pv
                    && own.offset < end(other.offset, other.len)
                    && other.offset < end(own.offset, own.len)
            };
            other.iter().any(overlaps)
        })
    }
}

impl DiscardInFlight {
    /// A discard of these places begins. Call it where it is known that they are unused (DC1).
    pub fn begin(&self, segments: Segments) {
        let mut state = self.state.lock();
        debug_assert!(state.segments.is_empty(), "DC3: one discard at a time");
        state.segments = segments;
        self.is_active.store(true, Ordering::Release);
    }

    /// The discard has ended: waiting requests continue.
    pub fn end(&self, disks: &dyn Disks) {
        let waited = {
            let mut state = self.state.lock();
            self.is_active.store(false, Ordering::Release);
            std::mem::take(&mut *state)
        };
        waited.writes.into_iter().for_each(|(op, done)| disks.submit(op, done));
        waited.rooms.into_iter().for_each(|(segments, done)| disks.back(segments, done));
    }

    /// Takes a write if it has to wait (DC2). Otherwise returns it.
    pub fn delay_write(&self, op: DiskOp, done: Completer) -> Option<(DiskOp, Completer)> {
        if !self.is_active.load(Ordering::Acquire) || planted::is("written_while_discarded") {
            return Some((op, done));
        }
        let mut state = self.state.lock();
        match &op {
            DiskOp::Write { segments, .. } if state.overlaps(segments) => {
                state.writes.push((op, done));
                None
            }
            _ => Some((op, done)),
        }
    }

    /// The same for a request for room.
    pub fn delay_backing(&self, segments: Segments, done: Completer) -> Option<(Segments, Completer)> {
        if !self.is_active.load(Ordering::Acquire) {
            return Some((segments, done));
        }
        let mut state = self.state.lock();
        match state.overlaps(&segments) {
            true => {
                state.rooms.push((segments, done));
                None
            }
            false => Some((segments, done)),
        }
    }

    /// Whether a physical volume failed one.
    pub fn is_disabled(&self, pv: PvIndex) -> bool {
        PvFlags(self.disabled.load(Ordering::Acquire)).has(usize::from(pv.0))
    }

    /// DC4
    pub fn disable(&self, error: DiskError) {
        let flag = 1u64.checked_shl(u32::from(error.pv.0)).unwrap_or(0);
        if self.disabled.fetch_or(flag, Ordering::AcqRel) & flag == 0 {
            self.errors.lock().push(error);
        }
    }

    /// Another disk may be at this place now.
    pub fn enable_all(&self) {
        self.disabled.store(0, Ordering::Release);
    }

    /// Why physical volumes get no more discards. Each error is returned once.
    pub fn take_errors(&self) -> Vec<DiskError> {
        std::mem::take(&mut *self.errors.lock())
    }

    pub fn count(&self, bytes: u64) {
        self.discarded.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes discarded since the group was opened.
    pub fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discards_wait_for_two_steps_of_a_checkpoint_and_are_joined() {
        let queue = DiscardQueue::new(Policy { freed: false, passed_down: true });
        assert!(!queue.checkpoint_durable(&[(0, 8)]), "nobody queued");
        queue.queue((VolumeId(1), 0..4), [(10, 2)]);
        queue.queue((VolumeId(1), 4..6), [(12, 2)]);
        assert!(!queue.checkpoint_durable(&[]), "it came after the capture");
        queue.capture();
        queue.queue((VolumeId(2), 0..1), [(20, 1)]);
        assert!(queue.checkpoint_durable(&[(30, 8)]));
        assert_eq!(queue.next(3), Some(PendingDiscard::Free(10..13)));
        assert_eq!(queue.next(3), Some(PendingDiscard::Free(13..14)));
        assert_eq!(queue.next(5), Some(PendingDiscard::Unwritten((VolumeId(1), 0..5))));
        assert_eq!(queue.next(5), Some(PendingDiscard::Unwritten((VolumeId(1), 5..6))));
        assert_eq!(queue.next(5), None);
        queue.set_policy(Policy { freed: true, passed_down: true });
        queue.capture();
        assert!(queue.checkpoint_durable(&[(21, 3), (30, 8)]));
        assert_eq!(queue.next(64), Some(PendingDiscard::Free(20..24)));
        assert_eq!(queue.next(64), Some(PendingDiscard::Free(30..38)));
    }
}
