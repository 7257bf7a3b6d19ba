//! Plans a write: what happens to each block, and which blocks are allocated.

use super::Volume;
use super::fill::own_account;
use super::plan::{Edge, MapPlan, Piece, Pieces, Place, Plan};
use super::state::{Mode, State};
use crate::disk::Segments;
use crate::error::{Error, Result};
use crate::format::node::UNWRITTEN;
use crate::journal::Pressure;
use crate::map::{self, Extents, MapError};
use crate::space::{Account, AllocError, Runs};
use crate::units::{BLOCK_SIZE, SECTOR_SIZE, Seq};
use smallvec::SmallVec;
use std::task::{Context, Poll};

impl Volume {
    /// Plans a write: in place without any state that volumes share, otherwise again under the checkpoint's gate.
    pub(super) fn plan(&self, cx: &Context<'_>, offset: u64, len: u64) -> Poll<Result<Plan>> {
        if let Some(plan) = self.plan_write(cx, offset, len, false) {
            return plan;
        }
        let _gate = self.core.gate.read();
        self.plan_write(cx, offset, len, true).expect("under the gate every write can be planned")
    }

    /// `None`: the write changes mappings and so needs the checkpoint's gate (held by the caller if `gated`), which is
    /// closed.
    fn plan_write(&self, cx: &Context<'_>, offset: u64, len: u64, gated: bool) -> Option<Poll<Result<Plan>>> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Err(error) = self.check_range(state, offset, len) {
            return Some(Poll::Ready(Err(error)));
        }
        if self.is_read_only(state) {
            return Some(Poll::Ready(Err(Error::ReadOnly)));
        }
        if let Err(error) = self.core.journal.failed() {
            return Some(Poll::Ready(Err(error)));
        }
        let (first, last) = (offset / BLOCK_SIZE, (offset + len).div_ceil(BLOCK_SIZE));
        if state.gates > 0 {
            return Some(Self::wait_for_wake(&mut guard, cx));
        }
        let mut pieces = match self.classify(state, first, last) {
            Ok(pieces) => pieces,
            Err(MapError::Missing(node, level)) => return Some(Poll::Ready(Ok(Plan::Load(node, level)))),
            Err(MapError::Corrupt(error)) => return Some(Poll::Ready(Err(error))),
            Err(MapError::NoSpace | MapError::Again) => unreachable!("a lookup takes no space and searches nothing"),
        };
        self.redirect_unproven(state, &mut pieces);
        let fresh = self.fresh_in(state, &pieces).filter(|_| !self.core.planted("fresh_in_place"));
        let waits = fresh.filter(|_| !self.place_again(state, &mut pieces));
        let sector = u64::from(self.core.sector());
        let aligned = sector == SECTOR_SIZE || (offset % sector == 0 && len % sector == 0);
        let in_place = aligned && pieces.iter().all(|p| matches!(p.place, Place::Own(_)));
        let mode = if in_place { Mode::InPlace } else { Mode::Map };
        if state.conflict(first, last, mode) {
            return Some(Self::wait_for_wake(&mut guard, cx));
        }
        if let Some(seq) = waits {
            return Some(Poll::Ready(Ok(Plan::Marker(seq))));
        }
        if in_place {
            let mut segments = Segments::new();
            for piece in &pieces {
                let Place::Own(vg) = piece.place else { unreachable!("all pieces are in place") };
                let from = (piece.start * BLOCK_SIZE).max(offset);
                let to = (piece.end * BLOCK_SIZE).min(offset + len);
                let byte = vg * BLOCK_SIZE + (from - piece.start * BLOCK_SIZE);
                state.placement.map_bytes(byte, to - from, (from - offset) as u32, &mut segments);
            }
            let op = state.begin(first, last, mode);
            return Some(Poll::Ready(Ok(Plan::InPlace { op, segments })));
        }
        // Only tried: the gate comes before this volume's lock in the lock order. It is mostly open, and then the
        // lookup is done only once.
        let gate = if gated { None } else { self.core.gate.try_read() };
        if !gated && gate.is_none() {
            return None;
        }
        if self.core.journal.pressure() == Pressure::Full || self.core.too_dirty() {
            return Some(Poll::Ready(Ok(Plan::Admit)));
        }
        if !self.core.meta.lock().admit_write() {
            return Some(Poll::Ready(Ok(Plan::Space(AllocError::NotAdmitted))));
        }
        let planned = self.plan_map(state, &pieces, offset, len);
        if planned.is_err() {
            self.core.meta.lock().write_done();
        }
        Some(match (planned, fresh) {
            (Ok(plan), _) => {
                let wants_fill = self.note_redirected(state, &pieces);
                Poll::Ready(Ok(Plan::Map(MapPlan { wants_fill, ..plan })))
            }
            (Err(AllocError::Map(MapError::Missing(node, level))), _) => Poll::Ready(Ok(Plan::Load(node, level))),
            (Err(AllocError::Map(MapError::Corrupt(error))), _) => Poll::Ready(Err(error)),
            // Without room for other blocks, the write waits until the fresh blocks are durable.
            (Err(AllocError::Full | AllocError::NoMetadataForFreeTree | AllocError::ReserveFull(_)), Some(seq)) => {
                Poll::Ready(Ok(Plan::Marker(seq)))
            }
            (Err(error), _) => Poll::Ready(Ok(Plan::Space(error))),
        })
    }

    /// An unproven block is not written in place (MB7).
    fn redirect_unproven(&self, state: &State, pieces: &mut Pieces) {
        let unproven = &self.core.members.unproven;
        if unproven.blocks() == 0 {
            return;
        }
        let account = own_account(state, self.id);
        for piece in pieces.iter_mut() {
            if let Place::Own(old) = piece.place
                && unproven.has_any(&state.placement, old, piece.end - piece.start)
            {
                piece.place = Place::Again { old, account };
            }
        }
    }

    /// Blocks that may not be written in place yet (V3).
    pub(super) fn fresh_in(&self, state: &mut State, pieces: &Pieces) -> Option<Seq> {
        if state.fresh.is_empty() {
            return None;
        }
        let in_place = |p: &&Piece| matches!(p.place, Place::Own(_) | Place::Unwritten(_));
        let latest =
            |state: &State| pieces.iter().filter(in_place).filter_map(|p| state.fresh.latest(p.start, p.end)).max();
        latest(state)?;
        let durable = self.core.journal.marker_durable();
        state.fresh.prune(durable);
        latest(state).filter(|seq| *seq >= durable)
    }

    /// Sends writes of fresh blocks to other blocks, because waiting until they may be written in place takes two
    /// flushes. Fresh blocks in the space that was laid out for a thick volume stay there. False: the write has to wait
    /// for some piece, and nothing has changed.
    ///
    /// The old block is freed like any other (rule R8). So if recovery rejects the newer record, the older one is still
    /// valid.
    fn place_again(&self, state: &State, pieces: &mut Pieces) -> bool {
        let is_fresh = |piece: &Piece| state.fresh.latest(piece.start, piece.end).is_some();
        let stays = |piece: &Piece| match piece.place {
            Place::Unwritten(_) => is_fresh(piece),
            Place::Own(_) => !state.fresh.is_moved(piece.start, piece.end),
            Place::New { .. } | Place::Again { .. } | Place::Copy { .. } => false,
        };
        if pieces.iter().any(stays) {
            return false;
        }
        // The old block is credited to the same account.
        let account = own_account(state, self.id);
        for piece in pieces.iter_mut().filter(|piece| is_fresh(piece)) {
            if let Place::Own(old) = piece.place {
                piece.place = Place::Again { old, account };
            }
        }
        true
    }

    /// What would happen to each part of the range.
    pub(super) fn classify(&self, state: &State, first: u64, last: u64) -> std::result::Result<Pieces, MapError> {
        let mut found = Extents::new();
        map::lookup(&self.core.cache, &state.head.tree, first, last, &mut found)?;
        let hole = Place::New {
            old: None,
            account: match (state.thick(), state.meta.reserve) {
                (_, Some(_)) => Account::Reserve(self.id),
                (true, None) => Account::Thick,
                (false, None) => Account::Open,
            },
        };
        let mut pieces = Pieces::new();
        let mut at = first;
        for extent in found {
            if at < extent.key {
                pieces.push(Piece { start: at, end: extent.key, place: hole });
            }
            let cut = state.ownership.boundary(extent.key, extent.end());
            let halves = [(extent.key, cut.unwrap_or(extent.end())), (cut.unwrap_or(extent.end()), extent.end())];
            for (start, end) in halves.into_iter().filter(|(start, end)| start < end) {
                let vg = extent.value + (start - extent.key);
                let written = extent.flags & UNWRITTEN == 0;
                let own = state.ownership.owns(extent.birth, Some(end));
                let place = match (own, written) {
                    (true, true) => Place::Own(vg),
                    (true, false) => Place::Unwritten(vg),
                    (false, _) => Place::New {
                        old: written.then_some(vg),
                        account: state.charged.map_or(Account::Open, Account::Reserve),
                    },
                };
                pieces.push(Piece { start, end, place });
            }
            at = extent.end();
        }
        if at < last {
            pieces.push(Piece { start: at, end: last, place: hole });
        }
        Ok(pieces)
    }

    /// Allocates blocks for the redirected pieces and registers the request.
    pub(super) fn plan_map(
        &self,
        state: &mut State,
        pieces: &Pieces,
        offset: u64,
        len: u64,
    ) -> std::result::Result<MapPlan, AllocError> {
        let (first, last) = (offset / BLOCK_SIZE, (offset + len).div_ceil(BLOCK_SIZE));
        let mut plan = MapPlan {
            op: 0,
            targets: SmallVec::new(),
            edges: [Edge::Whole; 2],
            allocated: Runs::new(),
            replaces: 0,
            accounts: SmallVec::new(),
            copies: 0,
            wants_metadata: false,
            wants_fill: false,
        };
        let chunk = u64::from(state.meta.chunk_blocks);
        self.take_from_pool(state, pieces)?;
        let mut space = self.core.space.lock();
        for piece in pieces {
            let blocks = piece.end - piece.start;
            match piece.place {
                Place::Own(vg) => plan.targets.push(((vg, blocks), false)),
                Place::Unwritten(vg) => plan.targets.push(((vg, blocks), true)),
                Place::New { account, .. } | Place::Again { account, .. } | Place::Copy { account, .. } => {
                    // Its slot in the chunk still holds the old block. So these blocks are allocated one after the
                    // other.
                    let is_moved = matches!(piece.place, Place::Again { .. } | Place::Copy { .. });
                    let chunk = if is_moved { 1 } else { chunk };
                    let mut runs = Runs::new();
                    let taken = space.alloc(
                        self.core.alloc_context(),
                        (self.id, state.meta.segment),
                        chunk,
                        (piece.start, blocks),
                        account,
                        &mut runs,
                    );
                    if let Err(error) = taken {
                        for (run, account) in plan.accounts {
                            space.unalloc(&[run], account);
                        }
                        return Err(error);
                    }
                    for run in runs {
                        plan.targets.push((run, true));
                        plan.allocated.push(run);
                        plan.accounts.push((run, account));
                    }
                }
            }
        }
        plan.wants_metadata = space.take_metadata_request();
        drop(space);
        let edge = |block: u64| {
            let piece = pieces.iter().find(|p| p.start <= block && block < p.end).expect("pieces cover the request");
            match piece.place {
                Place::Own(vg)
                | Place::New { old: Some(vg), .. }
                | Place::Again { old: vg, .. }
                | Place::Copy { old: vg, .. } => Edge::At(vg + block - piece.start),
                Place::Unwritten(_) | Place::New { old: None, .. } => Edge::Zeros,
            }
        };
        if offset % BLOCK_SIZE != 0 {
            plan.edges[0] = edge(first);
        }
        if (offset + len) % BLOCK_SIZE != 0 && (last - 1 > first || offset % BLOCK_SIZE == 0) {
            plan.edges[1] = edge(last - 1);
        }
        let again = pieces.iter().filter(|piece| matches!(piece.place, Place::Again { .. }));
        plan.replaces = again.map(|piece| piece.end - piece.start).sum();
        let copies = pieces.iter().filter(|piece| matches!(piece.place, Place::Copy { .. }));
        plan.copies = copies.map(|piece| piece.end - piece.start).sum();
        plan.op = state.begin_with(first, last, Mode::Map, plan.allocated.clone(), plan.replaces);
        Ok(plan)
    }

    /// A pool's volumes together take at most its size. Blocks that are subtracted here and then not used count again
    /// when the pool is measured (Q1).
    fn take_from_pool(&self, state: &State, pieces: &Pieces) -> std::result::Result<(), AllocError> {
        let pool = &state.meta.attributes.pool;
        if pool.is_empty() {
            return Ok(());
        }
        // Blocks on a snapshot's reserve are not on the pool. A snapshot without a reserve pays for nothing.
        let is_counted = |piece: &&Piece| match piece.place {
            Place::New { account: Account::Reserve(payer), .. } => self.core.space.lock().reserve(payer).is_none(),
            Place::New { .. } | Place::Copy { .. } => true,
            // Each block that is written to another place frees one.
            Place::Own(_) | Place::Unwritten(_) | Place::Again { .. } => false,
        };
        let wanted: u64 = pieces.iter().filter(is_counted).map(|piece| piece.end - piece.start).sum();
        match wanted == 0 || self.core.pools.lock().take(pool, wanted) {
            true => Ok(()),
            false => Err(AllocError::PoolFull(wanted)),
        }
    }
}
