//! Re-homing: a volume whose blocks were scattered by writes after snapshots is defragmented in the background, one
//! window at a time (rule R12).
//!
//! A window is copied in three steps: it is *watched*, its blocks are read, and their move is registered if the window
//! did not change meanwhile. The move is a write of the same contents. So other requests wait only for this write, and
//! not for the reads of many pieces.
//!
//! Invariants
//!
//! * V4 The new place gets the current contents of the window: from before the first read until the move is registered,
//!   no other request changes the window and no gate closes. Otherwise the copy is discarded.
//! * V5 Only written blocks that the head owns move. If the volume's policy asks for it, shared blocks are copied next
//!   to them ([`fill`](super::fill)). The move is like a write to fresh blocks, which goes to other blocks (R6): its
//!   record has the checksum of its data, reads continue during it (V1), and the old blocks are freed like any others
//!   (R8). So fresh blocks could move, too. They wait, because blocks that were just written are often written again
//!   soon.

use super::Volume;
use super::fill::{copy_of, own_account};
use super::plan::{MapPlan, Pieces, Place};
use super::state::{Mode, State};
use super::window::{WINDOW, Watch};
use crate::core::count;
use crate::disk::{DiskOp, PageBuf, Segments, start};
use crate::error::{Error, Result};
use crate::journal::Pressure;
use crate::map::{MapError, NodeRef};
use crate::planted;
use crate::space::AllocError;
use crate::space::pools::PoolLeft;
use crate::units::{BLOCK_SIZE, Seq};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A window with more pieces than this is moved. With 256 KiB in each piece, a large request is still fast.
pub const MAX_PIECES: usize = 4;
/// One in this many blocks of the group stays free.
const FREE_SHARE: u64 = 10;

impl State {
    /// A request, or a change of the whole volume, changes the range: a copy of it would be stale (V4).
    pub(super) fn touch(&mut self, start: u64, end: u64) {
        if let Some(watch) = self.watch.as_mut().filter(|watch| watch.start < end && start < watch.end) {
            watch.is_touched = true;
        }
    }
}

/// A scattered range.
pub(crate) struct Scattered {
    pub stretches: Vec<(u64, u64)>,
    /// Shared blocks among them are copied.
    pub fill: bool,
}

/// The outcome for a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rehomed {
    /// It was moved, by this record.
    Moved(Seq),
    /// It was written meanwhile, or just before.
    InUse,
    /// Writes need the journal and the room for dirty nodes.
    Busy,
    /// There is no room for it.
    NoRoom,
    /// A node of the free tree was missing, and was read.
    Loaded,
}

/// Why a move is not made now.
enum Refused {
    For(Rehomed),
    Missing(NodeRef, u8),
}

impl Volume {
    /// Ranges of neighbouring blocks in `[first, last)` that the head owns and that lie in several pieces, if there are
    /// more than [`MAX_PIECES`] in all. Also says whether shared blocks belong to them, because their copies are worth
    /// the space (R13).
    pub(crate) fn scattered(&self, first: u64, last: u64, fill: bool) -> std::result::Result<Scattered, MapError> {
        let state = self.state.lock();
        let last = last.min(state.meta.blocks);
        let pieces = self.classify(&state, first, last)?;
        let fill = fill && self.is_filled(&state) && self.is_worth_filling(&state, &pieces);
        let mut stretches: Vec<(u64, u64, usize)> = Vec::new();
        let mut after = None;
        for piece in pieces {
            let Some(vg) = place_of(piece.place, fill) else {
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
        let stretches = stretches.into_iter().filter(|(_, _, several)| parts > MAX_PIECES && *several > 1);
        Ok(Scattered { stretches: stretches.map(|(start, end, _)| (start, end)).collect(), fill })
    }

    /// Moves blocks `[first, last)`, at most a window, to one place. `fill`: copies shared blocks, too.
    pub(crate) async fn rehome(&self, first: u64, last: u64, fill: bool) -> Result<Rehomed> {
        debug_assert!(last - first <= WINDOW, "a window at a time");
        if self.core.backing.is_short() {
            return Ok(Rehomed::InUse);
        }
        let pool = if fill { self.pool_left() } else { None };
        if fill && !self.may_fill(last - first, pool) {
            return Ok(Rehomed::NoRoom);
        }
        let Some(segments) = self.watch(first, last, fill)? else { return Ok(Rehomed::InUse) };
        let len = ((last - first) * BLOCK_SIZE) as u32;
        let read = start(&*self.core.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(len as usize) }).await;
        let planned = match read {
            // Blocks that cannot be read stay. Their next reader gets the error.
            Err(_) => Ok(None),
            Ok(buf) => self.plan_move(first, last, fill, pool).map(|plan| plan.zip(buf)),
        };
        self.state.lock().watch = None;
        let Some((plan, buf)) = planned? else { return Ok(Rehomed::InUse) };
        let plan = match plan {
            Ok(plan) => plan,
            Err(Refused::For(reason)) => return Ok(reason),
            Err(Refused::Missing(node, level)) => {
                self.core.load(node, level).await?;
                return Ok(Rehomed::Loaded);
            }
        };
        if plan.wants_metadata {
            self.core.grow_ahead();
        }
        let copies = plan.copies;
        let moved = match self.execute(first * BLOCK_SIZE, len, Arc::new(buf), plan).await {
            // It can wait until there is room behind the disks (U2).
            Err(Error::NoRoom(_)) => None,
            outcome => outcome?,
        };
        match copies {
            0 => count(&self.core.counters.windows_rehomed),
            _ => count(&self.core.counters.windows_filled),
        }
        self.core.counters.blocks_filled.fetch_add(copies, Ordering::Relaxed);
        Ok(moved.map_or(Rehomed::InUse, Rehomed::Moved))
    }

    /// The places of the blocks, if they can be moved. From now on they are watched.
    fn watch(&self, first: u64, last: u64, fill: bool) -> Result<Option<Segments>> {
        let mut state = self.state.lock();
        let Some(pieces) = self.movable(&mut state, first, last, fill)? else { return Ok(None) };
        let mut segments = Segments::new();
        for piece in &pieces {
            let vg = place_of(piece.place, fill).expect("all of it can be moved");
            let (byte, len) = (vg * BLOCK_SIZE, (piece.end - piece.start) * BLOCK_SIZE);
            state.placement.map_bytes(byte, len, ((piece.start - first) * BLOCK_SIZE) as u32, &mut segments);
        }
        state.watch = Some(Watch { start: first, end: last, is_touched: false });
        Ok(Some(segments))
    }

    /// The pieces of a range, if all of them can be moved (V5). None: some cannot.
    fn movable(&self, state: &mut State, first: u64, last: u64, fill: bool) -> Result<Option<Pieces>> {
        if state.closed || state.invalid() || last > state.meta.blocks {
            return Ok(None);
        }
        self.core.journal.failed()?;
        if state.gates > 0 || state.conflict(first, last, Mode::Map) {
            return Ok(None);
        }
        let pieces = match self.classify(state, first, last) {
            Ok(pieces) => pieces,
            // The node was in memory just before, and will be next time.
            Err(MapError::Missing(..)) => return Ok(None),
            Err(MapError::Corrupt(error)) => return Err(error),
            Err(MapError::NoSpace | MapError::Again) => unreachable!("a lookup takes no space and searches nothing"),
        };
        let is_movable = pieces.iter().all(|piece| place_of(piece.place, fill).is_some());
        Ok((is_movable && self.fresh_in(state, &pieces).is_none()).then_some(pieces))
    }

    /// Allocates a place for the blocks and registers their move, if they did not change since they were read. The
    /// inner error says why not.
    fn plan_move(
        &self,
        first: u64,
        last: u64,
        fill: bool,
        pool: Option<PoolLeft>,
    ) -> Result<Option<std::result::Result<MapPlan, Refused>>> {
        let _gate = self.core.gate.read();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let is_touched = state.watch.take().is_none_or(|watch| watch.is_touched);
        if is_touched && !self.core.planted("rehome_ignores_writes") {
            return Ok(None);
        }
        let Some(mut pieces) = self.movable(state, first, last, fill)? else { return Ok(None) };
        if fill && !self.is_filled(state) {
            // A snapshot with a reserve was made meanwhile, or the volume's policy is another.
            return Ok(None);
        }
        if self.core.journal.pressure() != Pressure::Low || self.core.too_dirty() {
            return Ok(Some(Err(Refused::For(Rehomed::Busy))));
        }
        let has_room = self.has_room(last - first) && (!fill || self.may_fill(last - first, pool));
        if !has_room || !self.core.meta.lock().admit_write() {
            return Ok(Some(Err(Refused::For(Rehomed::NoRoom))));
        }
        let parts = pieces.len();
        let account = own_account(state, self.id);
        for piece in &mut pieces {
            piece.place = match piece.place {
                Place::Own(old) => Place::Again { old, account },
                place => copy_of(place).expect("all of it can be moved"),
            };
        }
        let planned = self.plan_map(state, &pieces, first * BLOCK_SIZE, (last - first) * BLOCK_SIZE);
        let refused = match planned {
            // A place that is not much better than the old one is not worth a move.
            Ok(plan) if pieces_of(&plan) * 2 > parts => {
                state.finish(plan.op);
                let mut space = self.core.space.lock();
                plan.accounts.iter().for_each(|(run, account)| space.unalloc(&[*run], *account));
                Ok(Some(Err(Refused::For(Rehomed::NoRoom))))
            }
            Ok(plan) => return Ok(Some(Ok(plan))),
            Err(AllocError::Map(MapError::Corrupt(error))) => Err(error),
            Err(AllocError::Map(MapError::Missing(node, level))) => Ok(Some(Err(Refused::Missing(node, level)))),
            Err(_) => Ok(Some(Err(Refused::For(Rehomed::NoRoom)))),
        };
        self.core.meta.lock().write_done();
        refused
    }

    fn has_room(&self, blocks: u64) -> bool {
        let kept = self.core.placement().count() / FREE_SHARE;
        self.core.space.lock().available() >= kept + blocks
    }
}

/// The place of a block that can be moved; `fill`: shared ones, too.
fn place_of(place: Place, fill: bool) -> Option<u64> {
    match place {
        Place::Own(vg) => Some(vg),
        Place::New { old, .. } if fill || planted::is("moves_shared") => old,
        _ => None,
    }
}

/// Adjacent places count as one.
fn pieces_of(plan: &MapPlan) -> usize {
    let mut parts = 0;
    let mut end = None;
    for ((at, len), _) in &plan.targets {
        parts += usize::from(end != Some(*at));
        end = Some(at + len);
    }
    parts
}
