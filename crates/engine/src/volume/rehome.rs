//! Re-homing: what writes beside snapshots scattered comes back to one place, a window at a time, beside the foreground
//! (rule R12).
//!
//! A window's blocks are copied in three steps: the window is *watched*, its blocks are read, and their move is registered if nothing
//! happened to the window meanwhile. The move itself is a write of what the window holds already, so that only its own writing, and
//! not the reading of many pieces, holds up others.
//!
//! Invariants
//!
//! * V4 What is written at the new place is what the window holds: from before the first block is read until the move is registered
//!   no other request changes the window, and no gate closes. Else the copy is thrown away.
//! * V5 Only blocks move that are the head's own, written, and not fresh. The move is a write that is put elsewhere 'once more' (R6): its
//!   record has the checksum of its data, reads go on beside it (V1), and the blocks given up are freed as any others (R8).

use super::state::{Mode, State};
use super::{MapPlan, Pieces, Place, Volume};
use crate::core::count;
use crate::disk::{DiskOp, PageBuf, Segments, start};
use crate::error::{Error, Result};
use crate::journal::Pressure;
use crate::map::MapError;
use crate::space::{Account, AllocError};
use crate::units::{BLOCK_SIZE, Seq};
use std::sync::Arc;

/// Blocks of a window: 1 MiB, a large request.
pub const WINDOW: u64 = 256;
/// A window with more pieces than this is brought together: 256 KiB in each is what a large request can live with.
pub const MOST_PIECES: usize = 4;
/// One in so many blocks of the group stays free for others.
const FREE_SHARE: u64 = 10;

/// A range that is being copied.
pub struct Watch {
    start: u64,
    end: u64,
    is_touched: bool,
}

impl State {
    /// A request, or something that concerns the whole volume, changes the range: a copy of it would be old (V4).
    pub(super) fn touch(&mut self, start: u64, end: u64) {
        if let Some(watch) = self.watch.as_mut().filter(|watch| watch.start < end && start < watch.end) {
            watch.is_touched = true;
        }
    }
}

/// What became of a stretch of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rehomed {
    /// It was moved, by this record.
    Moved(Seq),
    /// It was written meanwhile, or a moment ago.
    InUse,
    /// Others need the journal and the dirty nodes that it would take.
    Busy,
    /// There is no room for it.
    NoRoom,
}

impl Volume {
    /// Stretches of neighbouring blocks in `[first, last)` that are the head's own and lie in several pieces, if there are more than
    /// [`MOST_PIECES`] altogether.
    pub(crate) fn scattered(&self, first: u64, last: u64) -> std::result::Result<Vec<(u64, u64)>, MapError> {
        let state = self.state.lock();
        let last = last.min(state.meta.blocks);
        let pieces = self.classify(&state, first, last)?;
        let mut stretches: Vec<(u64, u64, usize)> = Vec::new();
        let mut after = None;
        for piece in pieces {
            let Place::Own(vg) = piece.place else {
                after = None;
                continue;
            };
            let follows = after.is_some_and(|(end, _)| end == piece.start);
            match stretches.last_mut().filter(|_| follows) {
                Some((_, end, parts)) => {
                    *end = piece.end;
                    *parts += usize::from(after != Some((piece.start, vg)));
                }
                None => stretches.push((piece.start, piece.end, 1)),
            }
            after = Some((piece.end, vg + piece.end - piece.start));
        }
        let parts: usize = stretches.iter().map(|(_, _, parts)| parts).sum();
        if parts <= MOST_PIECES {
            return Ok(Vec::new());
        }
        Ok(stretches.into_iter().filter(|(_, _, parts)| *parts > 1).map(|(start, end, _)| (start, end)).collect())
    }

    /// Brings blocks `[first, last)`, a window at most, to one place.
    pub(crate) async fn rehome(&self, first: u64, last: u64) -> Result<Rehomed> {
        debug_assert!(last - first <= WINDOW, "a window at a time");
        if self.core.backing.is_short() {
            return Ok(Rehomed::InUse);
        }
        let Some(segments) = self.watch(first, last)? else { return Ok(Rehomed::InUse) };
        let len = ((last - first) * BLOCK_SIZE) as u32;
        let read = start(&*self.core.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(len as usize) }).await;
        let planned = match read {
            // What cannot be read stays where somebody who wants it finds out.
            Err(_) => Ok(None),
            Ok(buf) => self.plan_move(first, last).map(|plan| plan.zip(buf)),
        };
        self.state.lock().watch = None;
        let Some((plan, buf)) = planned? else { return Ok(Rehomed::InUse) };
        let plan = match plan {
            Ok(plan) => plan,
            Err(refused) => return Ok(refused),
        };
        if plan.wants_metadata {
            self.core.grow_ahead();
        }
        let moved = match self.carry_out(first * BLOCK_SIZE, len, Arc::new(buf), plan).await {
            // It can wait until there is room behind the disks (U2).
            Err(Error::NoRoom(_)) => None,
            outcome => outcome?,
        };
        count(&self.core.counters.windows_rehomed);
        Ok(moved.map_or(Rehomed::InUse, Rehomed::Moved))
    }

    /// Where the blocks are, if they can be moved; from now on they are watched.
    fn watch(&self, first: u64, last: u64) -> Result<Option<Segments>> {
        let mut state = self.state.lock();
        let Some(pieces) = self.movable(&mut state, first, last)? else { return Ok(None) };
        let mut segments = Segments::new();
        for piece in &pieces {
            let Place::Own(vg) = piece.place else { unreachable!("all of it is the head's own") };
            let (byte, len) = (vg * BLOCK_SIZE, (piece.end - piece.start) * BLOCK_SIZE);
            state.placement.map_bytes(byte, len, ((piece.start - first) * BLOCK_SIZE) as u32, &mut segments);
        }
        state.watch = Some(Watch { start: first, end: last, is_touched: false });
        Ok(Some(segments))
    }

    /// The pieces of a range of which all can be moved (V5); none: something is in the way.
    fn movable(&self, state: &mut State, first: u64, last: u64) -> Result<Option<Pieces>> {
        if state.closed || state.invalid() || last > state.meta.blocks {
            return Ok(None);
        }
        self.core.journal.failed()?;
        if state.gates > 0 || state.conflict(first, last, Mode::Map) {
            return Ok(None);
        }
        let pieces = match self.classify(state, first, last) {
            Ok(pieces) => pieces,
            // It was there a moment ago, and will be next time.
            Err(MapError::Missing(..)) => return Ok(None),
            Err(MapError::Corrupt(error)) => return Err(error),
            Err(MapError::NoSpace) => unreachable!("a lookup takes no space"),
        };
        let is_movable = pieces.iter().all(|piece| matches!(piece.place, Place::Own(_)));
        Ok((is_movable && self.fresh_in(state, &pieces).is_none()).then_some(pieces))
    }

    /// Takes a place for the blocks and registers their move, if they are as they were read. The inner error: why not.
    fn plan_move(&self, first: u64, last: u64) -> Result<Option<std::result::Result<MapPlan, Rehomed>>> {
        let _gate = self.core.gate.read();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let is_touched = state.watch.take().is_none_or(|watch| watch.is_touched);
        if is_touched && !self.core.planted("rehome_unwatched") {
            return Ok(None);
        }
        let Some(mut pieces) = self.movable(state, first, last)? else { return Ok(None) };
        if self.core.journal.pressure() != Pressure::Low || self.core.too_dirty() {
            return Ok(Some(Err(Rehomed::Busy)));
        }
        if !self.has_room(last - first) || !self.core.meta.lock().admit_write() {
            return Ok(Some(Err(Rehomed::NoRoom)));
        }
        let parts = pieces.len();
        let account = state.meta.reserve.map_or(Account::Open, |_| Account::Reserve(self.id));
        for piece in pieces.iter_mut() {
            let Place::Own(old) = piece.place else { unreachable!("all of it is the head's own") };
            piece.place = Place::Again { old, account };
        }
        let planned = self.plan_map(state, &pieces, first * BLOCK_SIZE, (last - first) * BLOCK_SIZE);
        let refused = match planned {
            // A place that is not much better than the old one is not worth the while.
            Ok(plan) if pieces_of(&plan) * 2 > parts => {
                state.finish(plan.op);
                let mut space = self.core.space.lock();
                plan.accounts.iter().for_each(|(run, account)| space.unalloc(&[*run], *account));
                Ok(Some(Err(Rehomed::NoRoom)))
            }
            Ok(plan) => return Ok(Some(Ok(plan))),
            Err(AllocError::Map(MapError::Corrupt(error))) => Err(error),
            Err(_) => Ok(Some(Err(Rehomed::NoRoom))),
        };
        self.core.meta.lock().write_done();
        refused
    }

    fn has_room(&self, blocks: u64) -> bool {
        let kept = self.core.placement().count() / FREE_SHARE;
        self.core.space.lock().available() >= kept + blocks
    }
}

/// Places that follow each other count as one.
fn pieces_of(plan: &MapPlan) -> usize {
    let mut parts = 0;
    let mut end = None;
    for ((at, len), _) in &plan.targets {
        parts += usize::from(end != Some(*at));
        end = Some(at + len);
    }
    parts
}
