//! Extents move from one physical volume to others while they are in use (`pvmove`).
//!
//! A run of extents exchanges its place with a run of free extents, whose numbers then lie on the source. No map of a
//! volume changes, so the cost does not depend on snapshots. [`moving`](crate::moving) copies the run, and sends writes
//! to both places meanwhile. Then a checkpoint stores a new table of zones.
//!
//! * PM6 The table changes when the copy is complete. The checkpoint flushes the copy before it writes the superblock.
//!   A crash before the superblock is durable finds the old table, a later crash finds the new one, and both places
//!   have all writes. In memory the old table is used until then.
//! * PM7 In every checkpoint the free extents are free: with the old table they lie at the new place, with the new
//!   table at the old place. They are allocated again only when no request that was planned with the old table is in
//!   flight.
//!
//! Extents with a part of the journal or with metadata do not move. If a whole physical volume is moved, its metadata
//! goes elsewhere first, as when a physical volume leaves ([`leave`](super::leave)).

use super::Group;
use super::journal_layout::journal_in;
use super::move_state::{MoveProgress, MoveState};
use crate::disk::{DiskError, DiskOp, DiskOpKind, PageBuf, PvIndex, Segments, start};
use crate::error::{Error, Result};
use crate::format::superblock::DATA_OFFSET;
use crate::map::MapError;
use crate::model::{NewMove, PvExtents};
use crate::moving::Window;
use crate::placement::{PlacedPart, Placement};
use crate::planted;
use crate::space::Run;
use crate::units::{BLOCK_SIZE, VgBlock};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// The most extents that move in one step, and their bytes.
const TOGETHER: u64 = 64;
const BYTES_TOGETHER: u64 = 256 << 20;
/// Bytes that are copied at once. Writes to them wait meanwhile.
const WINDOW: u64 = 512 << 10;
/// How often a move waits for blocks that are being freed, if there is no free extent.
const TRIES_FOR_ROOM: usize = 64;
/// Zones that are reserved for physical volumes that leave or shrink.
pub(super) const ZONES_KEPT: usize = 256;

impl Group {
    /// The running move, or the last one.
    pub fn move_progress(&self) -> MoveProgress {
        let (mut progress, of_leg) = {
            let state = self.moves.state.lock();
            (state.progress.clone(), state.copied_of_leg)
        };
        let copied = self.core.members.moving.copied_bytes().max(of_leg);
        progress.copied = if progress.is_running { copied } else { 0 };
        progress
    }

    /// Free extents that are taken for a move, and legs that leave mirrors. A checkpoint counts them as free (PM7, MZ4).
    pub(super) fn taken_for_move(&self) -> Vec<Run> {
        let state = self.moves.state.lock();
        let taken = state.taken.filter(|_| !planted::is("move_forgotten"));
        state.leaving.numbers.iter().copied().chain(taken).collect()
    }

    /// Whether a move is running. Until it ends, physical volumes cannot join, leave or change.
    pub fn is_moving(&self) -> bool {
        self.moves.state.lock().progress.is_running
    }

    /// Ends the running move at the next possible moment. Moved extents stay moved.
    pub fn stop_move(&self) {
        self.moves.state.lock().is_stopped = true;
        self.core.members.moving.stop_copying(self.core.members.all());
    }

    /// Waits until no move is running.
    pub async fn move_ended(&self) {
        loop {
            let turn = self.background.turn();
            if !self.is_moving() {
                return;
            }
            self.background.changed(turn).await;
        }
    }

    /// The same, for a limited time. Returns the progress.
    pub async fn move_ended_within(&self, limit: Duration) -> MoveProgress {
        let mut ended = pin!(self.move_ended());
        let mut limit = self.core.runtime.sleep(limit);
        poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => limit.as_mut().poll(cx),
        })
        .await;
        self.move_progress()
    }

    /// Whether anything can be moved now.
    ///
    /// # Errors
    /// Why not. It may be possible later.
    pub fn may_move(&self) -> Result<()> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        match self.unproven_blocks() {
            0 => Ok(()),
            _ => Err(Error::Busy(
                "the contents of some blocks are unknown, because a disk was missing; write them again first".into(),
            )),
        }
    }

    /// Starts to move the used ones of these extents, and returns how many they are; 0: there is nothing to move.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there are no such extents, or one is a target, or legs and columns have no room but beside others of the
    /// same extents. [`Error::Busy`]: a move is running.
    /// [`Error::NoSpace`]: the targets have too few free blocks, or without the source there would be too little room for the
    /// reservations. No data has moved then.
    pub async fn start_move(self: &Arc<Self>, wanted: NewMove) -> Result<u64> {
        self.may_move()?;
        let placement = self.core.placement();
        let Some(source) = placement.pvs.get(usize::from(wanted.from.0)) else {
            return Err(Error::NotFound(format!("physical volume {}", wanted.from.0)));
        };
        let is_whole = wanted.extents.is_empty() && wanted.volume.is_none();
        let mut extents = match wanted.extents.is_empty() {
            true => std::iter::once(0..source.extents).collect(),
            false => wanted.extents.clone(),
        };
        extents.sort_unstable_by_key(|run| run.start);
        let is_twice = extents.windows(2).any(|pair| pair[1].start < pair[0].end);
        if is_twice || extents.iter().any(|run| run.is_empty() || run.end > source.extents) {
            return Err(Error::Invalid(format!("physical volume {} has no such extents", wanted.from.0)));
        }
        self.claim_move(wanted.from).await?;
        let outcome = self.prepare_move(&wanted, &extents, is_whole).await;
        match outcome {
            Ok((total, parts)) if total > 0 => {
                self.moves.state.lock().progress.total = total;
                let group = self.clone();
                let task = async move {
                    let outcome = group.move_all(wanted.from, &parts, &wanted.to).await;
                    group.end_move(wanted.from, is_whole, outcome.err()).await;
                };
                self.core.runtime.spawn("pvmove", Box::pin(task));
                Ok(total)
            }
            outcome => {
                self.end_move(wanted.from, is_whole, None).await;
                outcome.map(|(total, _)| total)
            }
        }
    }

    async fn claim_move(&self, from: PvIndex) -> Result<()> {
        loop {
            let turn = self.background.turn();
            {
                let mut state = self.moves.state.lock();
                if state.progress.is_running {
                    return Err(move_in_progress());
                }
                // A move may take long, and a leg that leaves needs the table once more.
                if !state.is_table_claimed && state.leaving.runs.is_empty() {
                    let progress = MoveProgress { is_running: true, from, ..MoveProgress::default() };
                    let waiting_for_zones = state.waiting_for_zones;
                    *state = MoveState { progress, waiting_for_zones, ..MoveState::default() };
                    return Ok(());
                }
            }
            self.background.changed(turn).await;
        }
    }

    /// The table of places is this caller's alone, until the claim is dropped. None: another one has it. A move has it for
    /// each of its steps.
    pub(super) fn try_claim_table(&self) -> Result<Option<TableClaim<'_>>> {
        let mut state = self.moves.state.lock();
        if state.progress.is_running {
            return Err(move_in_progress());
        }
        // A claim that is not given out must not be made: its end would free another one's.
        let is_free = !std::mem::replace(&mut state.is_table_claimed, true);
        Ok(is_free.then(|| TableClaim(self)))
    }

    /// The same for who makes mirrored or striped extents: also between the steps of a move, which may take long.
    pub(super) fn try_claim_for_zones(&self) -> Option<TableClaim<'_>> {
        let is_free = !std::mem::replace(&mut self.moves.state.lock().is_table_claimed, true);
        is_free.then(|| TableClaim(self))
    }

    /// The same, but waits for another one.
    pub(super) async fn claim_for_zones(&self) -> TableClaim<'_> {
        self.moves.state.lock().waiting_for_zones += 1;
        let waiting = Waiting(self);
        loop {
            let turn = self.background.turn();
            if let Some(claim) = self.try_claim_for_zones() {
                drop(waiting);
                return claim;
            }
            self.background.changed(turn).await;
        }
    }

    /// The same for a step of the move: after all who need space.
    async fn claim_for_step(&self) -> TableClaim<'_> {
        loop {
            let turn = self.background.turn();
            let is_wanted = self.moves.state.lock().waiting_for_zones > 0;
            if let Some(claim) = (!is_wanted).then(|| self.try_claim_for_zones()).flatten() {
                return claim;
            }
            self.background.changed(turn).await;
        }
    }

    /// The same as [`try_claim_table`](Self::try_claim_table), but waits for another one.
    ///
    /// # Errors
    /// [`Error::Busy`]: a move is under way, which takes long.
    pub(super) async fn claim_table(&self) -> Result<TableClaim<'_>> {
        loop {
            let turn = self.background.turn();
            if let Some(claim) = self.try_claim_table()? {
                return Ok(claim);
            }
            self.background.changed(turn).await;
        }
    }

    /// Nothing more is placed on the source while all of it moves.
    pub(super) async fn set_being_emptied(&self, pv: PvIndex, is_being_emptied: bool) -> Result<()> {
        let set = || {
            let _gate = self.core.gate.read();
            let mut space = self.core.space.lock();
            space.set_being_emptied(self.core.alloc_context(), usize::from(pv.0), is_being_emptied)
        };
        match self.core.with_nodes_privileged(set).await? {
            Ok(()) => Ok(()),
            Err(needed) => Err(self.core.no_space(needed)),
        }
    }

    /// Whether metadata or the journal lies there.
    pub(super) fn is_fixed(&self, blocks: &Range<u64>) -> bool {
        let journal = journal_in(&self.root.lock().group, blocks);
        !journal.is_empty() || !self.core.meta.lock().copies_in(std::slice::from_ref(blocks)).is_empty()
    }

    async fn move_all(self: &Arc<Self>, source: PvIndex, parts: &[PlacedPart], targets: &[PvExtents]) -> Result<()> {
        let core = &self.core;
        core.members.moving.begin(source, core.runtime.clone());
        let outcome = self.move_parts(source, parts, targets).await;
        core.members.moving.end();
        outcome
    }

    async fn move_parts(self: &Arc<Self>, source: PvIndex, parts: &[PlacedPart], targets: &[PvExtents]) -> Result<()> {
        // Writes from before the move are not tracked.
        self.all_done().await;
        self.checkpoint().await?;
        for part in parts {
            self.move_part(source, part, targets).await?;
        }
        // The old places of moved extents count as free in reports.
        self.checkpoint().await
    }

    async fn move_part(self: &Arc<Self>, source: PvIndex, part: &PlacedPart, targets: &[PvExtents]) -> Result<()> {
        let extent_blocks = self.core.placement().extent_blocks;
        let most = (BYTES_TOGETHER / (extent_blocks * BLOCK_SIZE)).clamp(1, TOGETHER);
        // If a read fails, extents move one by one.
        let (mut at, mut alone_until) = (0, 0);
        while at < part.blocks {
            self.check_not_stopped()?;
            let most = if at < alone_until { 1 } else { most };
            let extents = ((part.blocks - at) / extent_blocks).min(most);
            if !self.wait_until_equal(&part.cut(at, extents * extent_blocks)).await? {
                match extents {
                    1 => {
                        self.moves.state.lock().progress.unreadable += 1;
                        at += extent_blocks;
                    }
                    _ => alone_until = at + extents * extent_blocks,
                }
                continue;
            }
            let places = self.target_places(source, targets, part)?;
            let free = self.take_target(extents, &places).await?;
            let moved = part.cut(at, free.1);
            let mut claim = Some(self.claim_for_step().await);
            match self.exchange(&moved, free, &mut claim).await {
                Ok(()) => self.moves.state.lock().progress.moved += free.1 / extent_blocks,
                Err(error) => {
                    self.abort_exchange(&moved, free).await?;
                    if error == unequal() {
                        continue;
                    }
                    let is_unread = matches!(&error, Error::Disk(error) if error.op == DiskOpKind::Read);
                    if !is_unread && error != fixed() {
                        return Err(error);
                    }
                    if free.1 > extent_blocks {
                        alone_until = at + free.1;
                        continue;
                    }
                    let mut state = self.moves.state.lock();
                    match is_unread {
                        // An unreadable extent stays: its next reader gets the error.
                        true => state.progress.unreadable += 1,
                        false => state.progress.total -= 1,
                    }
                }
            }
            at += free.1;
        }
        Ok(())
    }

    pub(super) fn check_not_stopped(&self) -> Result<()> {
        self.core.journal.failed()?;
        let is_stopped = self.moves.state.lock().is_stopped || self.core.closed.load(Ordering::Acquire);
        if is_stopped { Err(Error::Closed) } else { Ok(()) }
    }

    /// Takes free extents in these places, and allocates room behind them.
    async fn take_target(self: &Arc<Self>, extents: u64, places: &[Range<u64>]) -> Result<Run> {
        let placement = self.core.placement();
        let take = || {
            let _gate = self.core.gate.read();
            let mut space = self.core.space.lock();
            let taken = space.take_extents(self.core.alloc_context(), extents, placement.extent_blocks, places)?;
            self.moves.state.lock().taken = taken;
            Ok::<_, MapError>(taken)
        };
        let needed = extents * placement.extent_blocks;
        let mut tries = 0;
        let run = loop {
            if let Some(run) = self.core.with_nodes_privileged(take).await? {
                break run;
            }
            self.check_not_stopped()?;
            // No whole extent is free there. Blocks that are being freed may give one.
            tries += 1;
            if tries > TRIES_FOR_ROOM || !self.more_space().await? {
                return Err(Error::NoSpace { needed, free: 0 });
            }
        };
        if let Err(error) = self.core.back(&[run]).await {
            self.release(run);
            return Err(if error.is_no_room() { Error::NoRoom(error) } else { error.into() });
        }
        Ok(run)
    }

    /// Copies extents to the free ones, and exchanges their places. The claim is dropped as soon as the table is in use:
    /// a request that has no space may wait for it.
    async fn exchange(
        self: &Arc<Self>,
        moved: &PlacedPart,
        free: Run,
        claim: &mut Option<TableClaim<'_>>,
    ) -> Result<()> {
        if !self.is_still_there(moved) {
            return Err(fixed());
        }
        if let Some(leg) = moved.leg {
            return self.exchange_leg(moved, leg, free, claim).await;
        }
        let (core, moving) = (&self.core, &self.core.members.moving);
        let new = self.exchanged(moved, free)?;
        let from = DATA_OFFSET + moved.at * BLOCK_SIZE;
        let to = first_byte(&core.placement(), free.0);
        debug_assert_eq!(moved.pv, self.moves.state.lock().progress.from.0, "PM1: only the source is watched");
        moving.begin_run(from..from + free.1 * BLOCK_SIZE, to.0, to.1);
        self.copy_run().await?;
        self.change_zones(&moved.numbers(), &new, &|| moving.commit()).await?;
        // Until here both places are right, whichever table the checkpoint has.
        self.checkpoint().await?;
        self.look_up_in(&new);
        *claim = None;
        if !planted::is("old_place_reused") {
            self.all_done().await;
            moving.drain().await;
        }
        moving.end_run(core.members.all());
        self.release(free);
        Ok(())
    }

    async fn abort_exchange(&self, moved: &PlacedPart, free: Run) -> Result<()> {
        match moved.leg {
            Some(_) => self.abort_leg(free).await,
            None => self.abort_run(free).await,
        }
    }

    /// From now on blocks are looked up in this table, which is durable.
    pub(super) fn look_up_in(&self, new: &Arc<Placement>) {
        let _gate = self.core.gate.read();
        let catalog = self.catalog.read();
        self.apply_placement(&catalog, new);
        catalog.volumes.values().for_each(|volume| volume.forget_copies());
    }

    /// Sets the new table for the next checkpoint, if the copy is complete and no journal or metadata was placed there.
    /// `commit`: whether it may be stored from now on.
    pub(super) async fn change_zones(
        &self,
        moved: &Range<u64>,
        new: &Arc<Placement>,
        commit: &(dyn Fn() -> std::result::Result<bool, DiskError> + Sync),
    ) -> Result<()> {
        let core = &self.core;
        let hold = self.hold_checkpoints().await;
        core.journal.failed()?;
        if self.is_fixed(moved) {
            return Err(fixed());
        }
        let exchange = || {
            let _gate = self.core.gate.read();
            core.space.lock().exchange(core.alloc_context(), moved, new, commit)
        };
        if !core.with_nodes_privileged(exchange).await?? {
            return Err(Error::Closed);
        }
        self.root.lock().group.set_zones(new.zones());
        drop(hold);
        Ok(())
    }

    async fn copy_run(&self) -> Result<()> {
        let (core, moving) = (&self.core, &self.core.members.moving);
        let mut throttle = crate::core::Throttle::default();
        let disks = core.members.all();
        while let Some(Window { from, to }) = moving.next_window(WINDOW).await? {
            self.check_not_stopped()?;
            let buf = PageBuf::zeroed(from.len as usize);
            let read = DiskOp::Read { segments: Segments::from_slice(&[from]), buf };
            let buf = start(&**disks, read).await?.expect("a read gives its buffer back");
            let write = DiskOp::Write { segments: Segments::from_slice(&[to]), buf: Arc::new(buf) };
            start(&**disks, write).await?;
            moving.copied(disks);
            core.throttle(&mut throttle).await;
        }
        Ok(())
    }

    /// Waits for all requests in flight, also those of a checkpoint.
    pub(super) async fn all_done(&self) {
        let volumes: Vec<_> = self.catalog.read().volumes.values().map(|v| (v.clone(), v.next_request())).collect();
        for (volume, begun) in &volumes {
            volume.wait_for_requests(*begun).await;
        }
        drop(self.hold_checkpoints().await);
    }

    /// A run stays where it is. The extents that were taken for it become free.
    ///
    /// # Errors
    /// The group has failed, and it is unknown where the run is (PM8).
    async fn abort_run(&self, free: Run) -> Result<()> {
        if !self.core.members.moving.abort_run(self.core.members.all()).await {
            return self.core.journal.failed().and(Err(Error::Closed));
        }
        self.release(free);
        Ok(())
    }

    /// Free extents can be allocated again (PM7).
    pub(super) fn release(&self, free: Run) {
        let _gate = self.core.gate.read();
        self.moves.state.lock().taken = None;
        self.core.space.lock().free_later(free);
    }

    async fn end_move(self: &Arc<Self>, from: PvIndex, was_barred: bool, failed: Option<Error>) {
        let unbarred = match was_barred && self.core.journal.failed().is_ok() {
            true => self.set_being_emptied(from, false).await,
            false => Ok(()),
        };
        {
            let mut state = self.moves.state.lock();
            state.progress.is_running = false;
            state.progress.failed = failed.or(unbarred.err());
        }
        // Extents that are not needed any more become linear again.
        self.wake_mirrors();
    }
}

/// Who changes the table of places: mirrored extents, or a physical volume that joins, grows, shrinks or leaves. Each
/// works out the new table from the one before.
pub(super) struct TableClaim<'a>(&'a Group);

impl Drop for TableClaim<'_> {
    fn drop(&mut self) {
        self.0.moves.state.lock().is_table_claimed = false;
        self.0.background.notify();
    }
}

/// Somebody who waits for [`claim_for_zones`](Group::claim_for_zones).
struct Waiting<'a>(&'a Group);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.moves.state.lock().waiting_for_zones -= 1;
        self.0.background.notify();
    }
}

/// Why a change of physical volumes has to wait.
fn move_in_progress() -> Error {
    Error::Busy("extents of the volume group are being moved (pvmove)".into())
}

/// Why extents stay.
pub(super) fn fixed() -> Error {
    Error::Busy("metadata was placed on the extents meanwhile".into())
}

/// Why a leg is not copied now.
pub(super) fn unequal() -> Error {
    Error::Busy("the copies of a mirrored volume are being made equal".into())
}

/// Where a block lies: the physical volume, and the byte there.
pub(super) fn first_byte(placement: &Placement, block: u64) -> (PvIndex, u64) {
    let mut segments = Segments::new();
    placement.map_blocks(VgBlock(block), 1, 0, &mut segments);
    debug_assert!(segments[0].offset >= DATA_OFFSET, "an extent");
    (segments[0].pv, segments[0].offset)
}
