//! Growth of the metadata area.

use super::Core;
use crate::error::{Error, Result};
use crate::map::MapError;
use crate::space::metadata::{Admission, MIN_METADATA};
use crate::space::{AllocContext, AllocError, OpenArenas, Run, Space};
use crate::units::VgBlock;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Core {
    /// Makes the metadata area larger: by a pair of extents, by several pairs if extents are small, or by shorter runs
    /// (M9). `Ok(false)`: there is no room. One caller at a time: callers that come meanwhile share the result.
    pub async fn grow(&self, open: OpenArenas) -> Result<bool> {
        loop {
            let (turn, free) = (self.growth.done.turn(), self.meta.lock().free());
            if !self.growth.is_under_way.swap(true, Ordering::AcqRel) {
                break;
            }
            self.growth.done.changed(turn).await;
            if self.meta.lock().free() > free {
                return Ok(true);
            }
        }
        let outcome = self.grow_alone(open).await;
        self.growth.is_under_way.store(false, Ordering::Release);
        self.growth.done.notify();
        outcome
    }

    async fn grow_alone(&self, open: OpenArenas) -> Result<bool> {
        let wanted = MIN_METADATA.max(self.placement().extent_blocks);
        let mut grown = 0;
        while grown < wanted {
            let pairs = self.take_for_growth(open).await?;
            if !self.add_pairs(&pairs).await {
                break;
            }
            grown += pairs.iter().map(|[run, _]| run.1).sum::<u64>();
        }
        Ok(grown > 0)
    }

    /// Takes pairs of runs out of free space for metadata: a pair of extents if there is one, otherwise shorter runs if
    /// they are needed (M9). If there are too few, it closes the arenas and tries again.
    async fn take_for_growth(&self, open: OpenArenas) -> Result<Vec<[Run; 2]>> {
        if open == OpenArenas::Stay {
            let pair = self.with_nodes_privileged(|| self.take_pair(open)).await?;
            return Ok(pair.into_iter().collect());
        }
        for arenas in [OpenArenas::StayWithReserved, OpenArenas::Close] {
            if let Some(pair) = self.with_nodes_privileged(|| self.take_pair(arenas)).await? {
                return Ok(vec![pair]);
            }
            let pieces = if self.planted("grow_by_extents") { Vec::new() } else { self.take_pieces().await? };
            if !pieces.is_empty() {
                return Ok(pieces);
            }
        }
        Ok(Vec::new())
    }

    /// Adds taken pairs of runs to the metadata area. False: there are none, or the disks have no room for them.
    async fn add_pairs(&self, pairs: &[[Run; 2]]) -> bool {
        let runs: Vec<Run> = pairs.iter().flatten().copied().collect();
        // U1: the disks allocate room for it before it is used.
        let backed = if self.planted("grow_unbacked") { Ok(()) } else { self.back(&runs).await };
        let _gate = self.gate.read();
        self.growth.taken.lock().clear();
        if let Err(error) = backed {
            let mut space = self.space.lock();
            runs.iter().for_each(|run| space.free_later(*run));
            drop(space);
            if error.is_no_room() {
                self.note_no_room(error, self.in_parts(&runs).into_iter().flatten().collect());
            }
            return false;
        }
        let mut meta = self.meta.lock();
        pairs.iter().for_each(|[first, second]| meta.add_pair([first.0, second.0], first.1));
        !pairs.is_empty()
    }

    /// M9
    async fn take_pieces(&self) -> Result<Vec<[Run; 2]>> {
        let plan = self.with_nodes_privileged(|| self.space.lock().runs_for_metadata(self.alloc_context())).await?;
        let mut taken: Vec<[Run; 2]> = Vec::new();
        for pair in plan {
            self.meta.lock().reserve_for_pair();
            match self.take_both(pair).await {
                Ok(true) => taken.push(pair),
                // Another has taken one of them meanwhile.
                Ok(false) => {}
                Err(Error::NoSpace { .. }) => break,
                // The taken runs are not lost: the next caller gets the same error.
                Err(_) if !taken.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Takes both runs out of free space, or none. `Ok(false)`: one is not free any more.
    async fn take_both(&self, pair: [Run; 2]) -> Result<bool> {
        for (n, run) in pair.into_iter().enumerate() {
            let take = || {
                let _gate = self.gate.read();
                let keep = self.meta.lock().reserved_from_growth();
                let is_taken = self.space.lock().take_if_free(AllocContext { keep, ..self.alloc_context() }, run)?;
                if is_taken {
                    self.growth.taken.lock().push(run);
                }
                Ok(is_taken)
            };
            let outcome = self.with_nodes_privileged(take).await;
            if outcome != Ok(true) {
                let _gate = self.gate.read();
                for earlier in &pair[..n] {
                    self.growth.taken.lock().retain(|taken| taken != earlier);
                    self.space.lock().free_later(*earlier);
                }
                return outcome;
            }
        }
        Ok(true)
    }

    /// Runs that will become metadata and are not metadata yet. A checkpoint counts them as free.
    pub fn growing(&self) -> Vec<Run> {
        if self.planted("growth_forgotten") {
            return Vec::new();
        }
        self.growth.taken.lock().clone()
    }

    /// Waits until runs in these blocks that will become metadata are metadata.
    pub async fn grown_in(&self, blocks: &Range<u64>) {
        loop {
            let turn = self.growth.done.turn();
            let meets = |(start, len): &Run| *start < blocks.end && blocks.start < start + len;
            if !self.growth.taken.lock().iter().any(meets) {
                return;
            }
            self.growth.done.changed(turn).await;
        }
    }

    fn take_pair(&self, open: OpenArenas) -> std::result::Result<Option<[Run; 2]>, MapError> {
        let _gate = self.gate.read();
        let mut space = self.space.lock();
        let placement = self.placement();
        let blocks = placement.extent_blocks;
        let one = |space: &mut Space, from| match space.alloc_contiguous(self.alloc_context(), blocks, from, open) {
            Ok(run) => Ok(run),
            Err(AllocError::Map(error)) => Err(error),
            Err(_) => Ok(None),
        };
        let Some(first) = one(&mut space, 0)? else { return Ok(None) };
        // The second copy belongs on another physical volume, where there is one.
        let (_, pv_end) = placement.pv_of(VgBlock(first.0));
        let other = if pv_end < placement.blocks() { pv_end } else { 0 };
        let mut second = one(&mut space, other);
        if open == OpenArenas::Stay && other > 0 && matches!(second, Ok(None)) {
            second = one(&mut space, 0);
        }
        match second {
            Ok(Some(second)) => {
                self.meta.lock().reserve_for_pair();
                *self.growth.taken.lock() = vec![first, second];
                Ok(Some([first, second]))
            }
            outcome => {
                // It was never used: it becomes free at once.
                if space.add_free(self.alloc_context(), first).is_err() {
                    space.free_later(first);
                }
                outcome.map(|_| None)
            }
        }
    }

    /// Finds room for metadata: makes the area larger, or takes a checkpoint that frees some.
    pub async fn metadata_room(&self) -> Result<()> {
        self.meta.lock().drop_pins();
        let grown = match self.grow(OpenArenas::Close).await {
            Err(Error::NoSpace { .. }) => false,
            outcome => outcome?,
        };
        if !grown && self.meta.lock().pending() > 0 {
            self.space_finder()?.take_checkpoint().await?;
        }
        Ok(())
    }

    /// Waits until a discard that needs this many metadata blocks may change its map (M3). Each admitted discard ends
    /// with [`MetaSpace::unmap_done`]. [`Error::NoSpace`]: there are too few, and nothing has changed.
    pub async fn admit_unmap(&self, blocks: u64) -> Result<()> {
        let mut tries = 0;
        loop {
            let room = self.meta.lock().admit_unmap(blocks);
            match room {
                Admission::Granted => return Ok(()),
                Admission::Busy => self.runtime.sleep(ROOM_PAUSE).await,
                Admission::Refused if tries < 3 => {
                    tries += 1;
                    self.metadata_room().await?;
                }
                Admission::Refused => return Err(self.no_space(1)),
            }
            self.journal.failed()?;
        }
    }

    /// Starts to grow metadata in the background (M5). Writes do not wait for it.
    pub fn grow_ahead(self: &Arc<Self>) {
        if self.is_growing.swap(true, Ordering::Relaxed) {
            return;
        }
        let core = Arc::downgrade(self);
        let growth = async move {
            let Some(core) = core.upgrade() else { return };
            // Best effort. A caller that needs the space retries and gets the error.
            let _ = core.grow(OpenArenas::Stay).await;
            core.is_growing.store(false, Ordering::Relaxed);
        };
        self.runtime.spawn("growth", Box::pin(growth));
    }
}

/// How long to wait for metadata that requests in flight hold, before the next try.
pub const ROOM_PAUSE: Duration = Duration::from_millis(1);
