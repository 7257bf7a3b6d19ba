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
use crate::disk::{DiskOp, DiskOpKind, PageBuf, PvIndex, Segments, start};
use crate::error::{Error, Result};
use crate::format::superblock::DATA_OFFSET;
use crate::format::zones::MAX_ZONES;
use crate::map::{self, MapError};
use crate::model::{NewMove, PvExtents, SegmentType};
use crate::moving::Window;
use crate::placement::{PlacedRun, Placement};
use crate::planted;
use crate::space::Run;
use crate::units::{BLOCK_SIZE, VgBlock, VolumeId};
use std::collections::BTreeSet;
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
        let mut progress = self.moves.state.lock().progress.clone();
        progress.copied = if progress.is_running { self.core.members.moving.copied_bytes() } else { 0 };
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
    /// [`Error::Invalid`]: there are no such extents, or one is a target. [`Error::Busy`]: a move is running.
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
            Ok((total, runs)) if total > 0 => {
                self.moves.state.lock().progress.total = total;
                let group = self.clone();
                let task = async move {
                    let outcome = group.move_all(wanted.from, &runs, &wanted.to).await;
                    group.end_move(wanted.from, is_whole, outcome.err()).await;
                };
                self.core.runtime.spawn("pvmove", Box::pin(task));
                Ok(total)
            }
            outcome => {
                let skipped = self.move_progress().skipped;
                self.end_move(wanted.from, is_whole, None).await;
                match outcome? {
                    _ if skipped > 0 => Err(Error::Invalid(
                        "all that could be moved there is of mirrored and striped volumes, or kept for them, and these cannot be moved"
                            .into(),
                    )),
                    (total, _) => Ok(total),
                }
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
                    *state = MoveState { progress, ..MoveState::default() };
                    return Ok(());
                }
            }
            self.background.changed(turn).await;
        }
    }

    /// The table of places is this caller's alone, until the claim is dropped. None: another one has it.
    pub(super) fn try_claim_table(&self) -> Result<Option<TableClaim<'_>>> {
        let mut state = self.moves.state.lock();
        if state.progress.is_running {
            return Err(move_in_progress());
        }
        // A claim that is not given out must not be made: its end would free another one's.
        let is_free = !std::mem::replace(&mut state.is_table_claimed, true);
        Ok(is_free.then(|| TableClaim(self)))
    }

    /// The same, but waits for another one.
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

    /// Legs of mirrors and stripes do not move: a volume that has them is refused, and extents that are theirs stay. Returns how
    /// many these are.
    fn skip_mirrors(&self, wanted: &NewMove, extents: &[Range<u64>]) -> Result<u64> {
        let placement = self.core.placement();
        let blocks = |run: &Range<u64>| run.start * placement.extent_blocks..run.end * placement.extent_blocks;
        match wanted.volume {
            Some(id) if self.volume_now(id)?.segment() != SegmentType::Linear => {
                Err(Error::Invalid("mirrored and striped volumes cannot be moved".into()))
            }
            Some(_) => Ok(0),
            None => {
                let legs: u64 = extents.iter().map(|run| placement.legs_in(wanted.from, &blocks(run))).sum();
                Ok(legs.div_ceil(placement.extent_blocks))
            }
        }
    }

    /// Makes the source not allocatable, if all of it moves, and finds the extents in use.
    async fn prepare_move(
        self: &Arc<Self>,
        wanted: &NewMove,
        extents: &[Range<u64>],
        is_whole: bool,
    ) -> Result<(u64, Vec<PlacedRun>)> {
        let placement = self.core.placement();
        let skipped = self.skip_mirrors(wanted, extents)?;
        self.moves.state.lock().progress.skipped = skipped;
        let on_source: Vec<PlacedRun> =
            extents.iter().flat_map(|extents| placement.runs_at(wanted.from, extents)).collect();
        let targets = self.places_on(&wanted.to)?;
        let is_target = |run: &PlacedRun| targets.iter().any(|to| to.start < run.end && run.start < to.end);
        if on_source.iter().any(is_target) {
            return Err(Error::Invalid("extents cannot move to the physical volume that holds them".into()));
        }
        // Freed blocks are usable only after a checkpoint.
        self.checkpoint().await?;
        let only = match wanted.volume {
            Some(volume) => Some(self.extents_of(volume).await?),
            None => None,
        };
        let mut runs = self.used_of(&on_source, only.as_ref()).await?;
        let blocks = |runs: &[PlacedRun]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
        self.is_room_for(blocks(&runs), wanted.from, &wanted.to).await?;
        if is_whole {
            self.set_source_unallocatable(wanted.from, true).await?;
            // Short runs of metadata may share an extent with data. If metadata finds no other room, it stays with its
            // extent.
            let ranges: Vec<Range<u64>> = on_source.iter().map(|run| run.start..run.end).collect();
            self.move_metadata(&ranges).await?;
            self.checkpoint().await?;
            runs = self.used_of(&on_source, None).await?;
        }
        Ok((blocks(&runs) / placement.extent_blocks, runs))
    }

    /// Refuses a move for which the targets have too few free blocks. Blocks that are being freed may give the room.
    async fn is_room_for(&self, needed: u64, source: PvIndex, targets: &[PvExtents]) -> Result<()> {
        if self.reclaiming() || self.core.space.lock().pending_blocks() > 0 || planted::is("target_filled") {
            return Ok(());
        }
        match self.unused_in(self.target_places(source, targets)?).await? {
            free if free < needed => Err(Error::NoSpace { needed, free }),
            _ => Ok(()),
        }
    }

    /// Where extents may move to.
    fn target_places(&self, source: PvIndex, targets: &[PvExtents]) -> Result<Vec<Range<u64>>> {
        match targets {
            [] => {
                let placement = self.core.placement();
                let runs = placement.runs().iter().filter(|run| run.pv != source.0);
                Ok(runs.map(|run| run.start..run.end).collect())
            }
            targets => self.places_on(targets),
        }
    }

    async fn set_source_unallocatable(self: &Arc<Self>, pv: PvIndex, is_unallocatable: bool) -> Result<()> {
        let index = usize::from(pv.0);
        let set = || {
            let _gate = self.core.gate.read();
            // Held meanwhile: somebody may change just that.
            let catalog = self.catalog.read();
            self.moves.state.lock().unallocatable = is_unallocatable.then_some(pv);
            let may = !is_unallocatable && !catalog.attributes.unallocatable.has(index) && !self.out().has(index);
            self.core.space.lock().set_allocatable(self.core.alloc_context(), index, may)
        };
        match self.core.with_nodes_privileged(set).await? {
            Ok(()) => Ok(()),
            Err(needed) => Err(self.core.no_space(needed)),
        }
    }

    /// The extents of the address space in which the volume has blocks.
    async fn extents_of(&self, id: VolumeId) -> Result<BTreeSet<u64>> {
        let core = &self.core;
        let volume = self.catalog.read().volumes.get(&id).cloned();
        let volume = volume.ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let extent_blocks = core.placement().extent_blocks;
        let (mut extents, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let step = core
                .with_nodes_privileged(|| {
                    map::walk_step(&core.cache, &volume.state.lock().head.tree, cursor, &|_, _, _| Ok(false))
                })
                .await?;
            for extent in step.leaf.iter().flat_map(|leaf| leaf.extents()) {
                let last = extent.value + u64::from(extent.len).max(1) - 1;
                extents.extend(extent.value / extent_blocks..=last / extent_blocks);
            }
            match step.next {
                Some(next) => cursor = next,
                None => return Ok(extents),
            }
        }
    }

    /// The extents to move of these runs.
    async fn used_of(&self, on_source: &[PlacedRun], only: Option<&BTreeSet<u64>>) -> Result<Vec<PlacedRun>> {
        let mut runs = Vec::new();
        for run in on_source {
            self.used_in(*run, only, &mut runs).await?;
        }
        Ok(runs)
    }

    /// Adds the extents of a run that are not free as a whole, and have neither metadata nor the journal.
    async fn used_in(&self, run: PlacedRun, only: Option<&BTreeSet<u64>>, runs: &mut Vec<PlacedRun>) -> Result<()> {
        let extent_blocks = self.core.placement().extent_blocks;
        let mut at = run.start;
        while at < run.end {
            let next =
                || self.core.space.lock().next_free_extents(self.core.alloc_context(), at, run.end, extent_blocks);
            let free = self.core.with_nodes_privileged(next).await?;
            for extent in
                (at / extent_blocks..free.start / extent_blocks).filter(|e| only.is_none_or(|only| only.contains(e)))
            {
                let blocks = extent * extent_blocks..(extent + 1) * extent_blocks;
                if self.is_fixed(&blocks) {
                    continue;
                }
                let at = run.at + (blocks.start - run.start);
                let part = PlacedRun::plain(blocks.start, blocks.end, run.pv, at);
                match runs
                    .last_mut()
                    .filter(|last| last.end == part.start && last.at + (last.end - last.start) == part.at)
                {
                    Some(last) => last.end = part.end,
                    None => runs.push(part),
                }
            }
            at = free.end;
        }
        Ok(())
    }

    /// Whether metadata or the journal lies there.
    pub(super) fn is_fixed(&self, blocks: &Range<u64>) -> bool {
        let journal = journal_in(&self.root.lock().group, blocks);
        !journal.is_empty() || !self.core.meta.lock().copies_in(std::slice::from_ref(blocks)).is_empty()
    }

    async fn move_all(self: &Arc<Self>, source: PvIndex, runs: &[PlacedRun], targets: &[PvExtents]) -> Result<()> {
        let core = &self.core;
        core.members.moving.begin(source, core.runtime.clone());
        let outcome = self.move_runs(source, runs, targets).await;
        core.members.moving.end();
        outcome
    }

    async fn move_runs(self: &Arc<Self>, source: PvIndex, runs: &[PlacedRun], targets: &[PvExtents]) -> Result<()> {
        // Writes from before the move are not tracked.
        self.all_done().await;
        self.checkpoint().await?;
        let extent_blocks = self.core.placement().extent_blocks;
        let most = (BYTES_TOGETHER / (extent_blocks * BLOCK_SIZE)).clamp(1, TOGETHER);
        for run in runs {
            // If a read fails, extents move one by one.
            let (mut at, mut alone_until) = (run.start, run.start);
            while at < run.end {
                self.check_not_stopped()?;
                let most = if at < alone_until { 1 } else { most };
                let extents = ((run.end - at) / extent_blocks).min(most);
                let free = self.take_target(source, extents, targets).await?;
                let moved = at..at + free.1;
                match self.exchange(&moved, free).await {
                    Ok(()) => self.moves.state.lock().progress.moved += free.1 / extent_blocks,
                    Err(error) => {
                        self.abort_run(free).await?;
                        let is_unread = matches!(&error, Error::Disk(error) if error.op == DiskOpKind::Read);
                        if !is_unread && error != fixed() {
                            return Err(error);
                        }
                        if free.1 > extent_blocks {
                            alone_until = moved.end;
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
                at = moved.end;
            }
        }
        // The old places of moved extents count as free in reports.
        self.checkpoint().await
    }

    fn check_not_stopped(&self) -> Result<()> {
        self.core.journal.failed()?;
        let is_stopped = self.moves.state.lock().is_stopped || self.core.closed.load(Ordering::Acquire);
        if is_stopped { Err(Error::Closed) } else { Ok(()) }
    }

    /// Takes free extents on another physical volume, or on one of the targets, and allocates room behind them.
    async fn take_target(self: &Arc<Self>, source: PvIndex, extents: u64, targets: &[PvExtents]) -> Result<Run> {
        let placement = self.core.placement();
        let places = self.target_places(source, targets)?;
        let take = || {
            let _gate = self.core.gate.read();
            let mut space = self.core.space.lock();
            let taken = space.take_extents(self.core.alloc_context(), extents, placement.extent_blocks, &places)?;
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

    /// Copies blocks to the free extents, and exchanges their places.
    async fn exchange(self: &Arc<Self>, moved: &Range<u64>, free: Run) -> Result<()> {
        let (core, moving) = (&self.core, &self.core.members.moving);
        let old = core.placement();
        let free_range = free.0..free.0 + free.1;
        let (from, to) = (first_byte(&old, moved.start), first_byte(&old, free.0));
        debug_assert_eq!(from.0, self.moves.state.lock().progress.from, "PM1: only the source is watched");
        let new = Arc::new(old.exchanged(moved.clone(), free_range));
        if new.zones().len() > MAX_ZONES - ZONES_KEPT {
            return Err(Error::Invalid("the table of moved extents is full; move whole physical volumes".into()));
        }
        moving.begin_run(from.1..from.1 + free.1 * BLOCK_SIZE, to.0, to.1);
        self.copy_run().await?;
        self.change_zones(moved, [from.0, to.0], &new).await?;
        // Until here both places are right, whichever table the checkpoint has.
        self.checkpoint().await?;
        {
            let _gate = core.gate.read();
            let catalog = self.catalog.read();
            self.apply_placement(&catalog, &new);
            catalog.volumes.values().for_each(|volume| volume.forget_copies());
        }
        if !planted::is("old_place_reused") {
            self.all_done().await;
            moving.drain().await;
        }
        moving.end_run(core.members.all());
        self.release(free);
        Ok(())
    }

    /// Sets the new table for the next checkpoint, if the copy is complete and no journal or metadata was placed there.
    async fn change_zones(&self, moved: &Range<u64>, pvs: [PvIndex; 2], new: &Arc<Placement>) -> Result<()> {
        let core = &self.core;
        let hold = self.hold_checkpoints().await;
        core.journal.failed()?;
        if self.is_fixed(moved) {
            return Err(fixed());
        }
        let exchange = || {
            let _gate = self.core.gate.read();
            let pvs = pvs.map(|pv| usize::from(pv.0));
            let commit = || core.members.moving.commit();
            core.space.lock().exchange(core.alloc_context(), moved, pvs, new, commit)
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
    fn release(&self, free: Run) {
        let _gate = self.core.gate.read();
        self.moves.state.lock().taken = None;
        self.core.space.lock().free_later(free);
    }

    async fn end_move(self: &Arc<Self>, from: PvIndex, was_barred: bool, failed: Option<Error>) {
        let unbarred = match was_barred && self.core.journal.failed().is_ok() {
            true => self.set_source_unallocatable(from, false).await,
            false => Ok(()),
        };
        {
            let mut state = self.moves.state.lock();
            state.progress.is_running = false;
            state.progress.failed = failed.or(unbarred.err());
        }
        self.background.notify();
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

/// Why a change of physical volumes has to wait.
fn move_in_progress() -> Error {
    Error::Busy("extents of the volume group are being moved (pvmove)".into())
}

/// Why extents stay.
fn fixed() -> Error {
    Error::Busy("metadata was placed on the extents meanwhile".into())
}

/// Where a block lies: the physical volume, and the byte there.
fn first_byte(placement: &Placement, block: u64) -> (PvIndex, u64) {
    let mut segments = Segments::new();
    placement.map_blocks(VgBlock(block), 1, 0, &mut segments);
    debug_assert!(segments[0].offset >= DATA_OFFSET, "an extent");
    (segments[0].pv, segments[0].offset)
}
