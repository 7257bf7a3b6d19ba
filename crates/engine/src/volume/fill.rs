//! Filling: while a snapshot exists, the shared blocks of a window are copied next to its redirected blocks (rule R13).
//! The copy is a move as in [`rehome`](super::rehome) that includes shared blocks.
//!
//! Invariants
//!
//! * F1 The head owns a copied block from the record on, as if it had been overwritten with the same contents. The
//!   shared block stays for the other trees.
//! * F2 Filling leaves a share of the group free, and of the volume's pool. When less is free, it stops.
//! * F3 No copy is charged to a snapshot's reserve, so filling never makes a snapshot invalid.
//! * F4 Filling takes at most the space that copies of whole chunks would take.

use super::Volume;
use super::plan::{Piece, Place};
use super::state::State;
use super::window::{Redirected, WINDOW};
use crate::model::Layout;
use crate::planted;
use crate::space::Account;
use crate::space::pools::PoolLeft;
use crate::units::{Seq, VolumeId};

/// A chunk counts as at least this many blocks (F4).
const MIN_CHUNK: u64 = 16;

impl Volume {
    /// Notes redirected blocks, if they may be filled. True: the group must be notified.
    pub(super) fn note_redirected(&self, state: &mut State, pieces: &[Piece]) -> bool {
        // A block that was just filled is written to another block again (R6).
        let is_moved = |piece: &&Piece| matches!(piece.place, Place::New { old: Some(_), .. } | Place::Again { .. });
        let mut redirected = pieces.iter().filter(is_moved).peekable();
        if !self.core.config.rehome || redirected.peek().is_none() || !self.is_filled(state) {
            return false;
        }
        let mut is_news = false;
        for piece in redirected {
            is_news |= state.redirected.note(piece.start, piece.end);
        }
        is_news
    }

    pub(super) fn request_filling(&self) {
        if let Ok(group) = self.core.space_finder() {
            group.request_filling(self.id);
        }
    }

    /// The windows with redirected writes since the last call.
    pub(crate) fn take_redirected(&self) -> Redirected {
        std::mem::take(&mut self.state.lock().redirected)
    }

    /// The latest record that made a mapping fresh, if the volume is filled: fresh blocks do not move (V5).
    pub(crate) fn fresh_to_fill(&self) -> Option<Seq> {
        let state = self.state.lock();
        state.fresh.latest(0, u64::MAX).filter(|_| self.is_filled(&state))
    }

    /// Whether shared blocks of the volume are copied at all (F3).
    pub(super) fn is_filled(&self, state: &State) -> bool {
        let layout = state.meta.attributes.layout().unwrap_or(self.core.config.layout);
        let has_reserve = |id| self.core.space.lock().reserve(id).is_some();
        let is_charged = state.meta.reserve.is_some() || state.charged.is_some_and(has_reserve);
        layout == Layout::Read && (!is_charged || self.core.planted("fill_on_reserve"))
    }

    /// Whether it is worth copying the shared blocks of these pieces (F4).
    pub(super) fn is_worth_filling(&self, state: &State, pieces: &[Piece]) -> bool {
        let (mut shared, mut redirected, mut own_end) = (0, 0, None);
        for piece in pieces {
            match piece.place {
                Place::Own(_) => {
                    redirected += u64::from(own_end != Some(piece.start));
                    own_end = Some(piece.end);
                }
                Place::New { old: Some(_), .. } => shared += piece.end - piece.start,
                _ => {}
            }
        }
        let chunk = u64::from(state.meta.chunk_blocks).max(MIN_CHUNK);
        shared > 0 && (shared <= redirected * chunk || self.core.planted("fill_unlimited"))
    }

    /// Whether this many blocks may be copied (F2). `pool`: the size and the room of the volume's pool.
    pub(super) fn may_fill(&self, blocks: u64, pool: Option<PoolLeft>) -> bool {
        let left = self.core.space.lock().available();
        self.core.planted("fill_leaves_no_share") || self.leaves_share(left, pool, blocks)
    }

    /// Whether any may be copied after the next checkpoint. Hold no lock when calling it.
    pub(crate) fn may_fill_soon(&self) -> bool {
        let pool = self.pool_left();
        let space = self.core.space.lock();
        let left = space.available() + space.pending_blocks();
        drop(space);
        self.leaves_share(left, pool, WINDOW)
    }

    fn leaves_share(&self, left: u64, pool: Option<PoolLeft>, blocks: u64) -> bool {
        let share = |whole: u64| whole.saturating_mul(self.core.config.fill_keeps.min(100)) / 100;
        let leaves = |whole: u64, left: u64| left >= share(whole).saturating_add(blocks);
        leaves(self.core.placement().count(), left) && pool.is_none_or(|pool| leaves(pool.size, pool.now))
    }

    /// The size and the room of the volume's pool, in blocks. Hold no lock when calling it.
    pub(super) fn pool_left(&self) -> Option<PoolLeft> {
        let pool = self.state.lock().meta.attributes.pool.clone();
        let group = self.core.space_finder().ok().filter(|_| !pool.is_empty())?;
        Some(group.pool_left(&pool))
    }
}

/// What to do with a shared block in a move.
pub(super) fn copy_of(place: Place) -> Option<Place> {
    match place {
        // F3: a snapshot without a reserve is charged nothing.
        Place::New { old: Some(old), .. } if planted::is("shared_taken_over") => Some(Place::Unwritten(old)),
        Place::New { old: Some(old), account } => Some(Place::Copy { old, account }),
        _ => None,
    }
}

/// The account for a new block of the head.
pub(super) fn own_account(state: &State, id: VolumeId) -> Account {
    state.meta.reserve.map_or(Account::Open, |_| Account::Reserve(id))
}
