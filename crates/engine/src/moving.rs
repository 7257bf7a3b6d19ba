//! Extents that are being moved, below the maps.
//!
//! All requests to the disks pass here while a run of extents is moved. The run is copied from its beginning to its
//! end, in windows. A write to the copied part goes to both places. So the table of zones can change at any moment
//! after the last window: both places have all writes.
//!
//! * PM1 From the copy of a window until the run is moved or abandoned, every write to the window goes to both places.
//!   It is answered when both have it.
//! * PM2 No write to a window is in flight while it is copied: the copy waits for earlier writes, and later writes wait
//!   for the copy.
//! * PM3 Two writes to the same bytes are never in flight at once: the two places could carry them out in different
//!   orders.
//! * PM4 If a write fails at the new place, the run is abandoned. If the table that names the new place may already be
//!   on the disk, the write fails instead.
//! * PM5 The old place is used again only when no request to it is in flight. The same holds for the new place of an
//!   abandoned run: otherwise a late copy could overwrite the next user's data.
//! * PM8 From the moment at which the table may be on the disk, both places are written until blocks are looked up in
//!   the new table. If that table's checkpoint fails, it is unknown which place counts: then both are written until the
//!   group is opened again.

use crate::disk::{Completer, Completion, DiskError, DiskOp, DiskResult, Disks, PvIndex, Segment, Segments, start};
use crate::event::Event;
use crate::planted;
use crate::runtime::Runtime;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// Bytes of the source that a request touches.
type Touched = SmallVec<[Range<u64>; 2]>;

/// The current move, if any.
#[derive(Default)]
pub struct Moving {
    /// Without a move no lock is taken.
    is_active: AtomicBool,
    state: Mutex<State>,
    changed: Event,
}

#[derive(Default)]
struct State {
    runtime: Option<Arc<dyn Runtime>>,
    /// The physical volume from which extents move.
    source: u16,
    next: u64,
    /// Requests in flight on the source.
    in_flight: BTreeMap<u64, DiscardInFlight>,
    run: Option<MovingRun>,
    /// Writes that wait.
    held: Vec<(DiskOp, Completer)>,
}

/// A request in flight on the source.
struct DiscardInFlight {
    touched: Touched,
    writes: bool,
    /// It is in flight at the new place of the run, too.
    is_copied: bool,
    /// The task that waits for the new place.
    waker: Option<Waker>,
}

/// A run of extents that is copied.
struct MovingRun {
    /// Bytes on the source.
    from: Range<u64>,
    /// Where its first byte goes.
    to: PvIndex,
    to_offset: u64,
    /// Bytes that were copied.
    copied: u64,
    /// Bytes after them that are being copied.
    window: u64,
    /// The table that names the new place may be on the disk.
    is_committed: bool,
    /// Requests by its old name go to the new place alone.
    is_renaming: bool,
    /// It is abandoned: its extents stay where they are.
    is_given_up: bool,
    /// The new place did not take a write.
    failed: Option<DiskError>,
}

impl MovingRun {
    fn new(from: Range<u64>, to: PvIndex, to_offset: u64) -> MovingRun {
        MovingRun {
            from,
            to,
            to_offset,
            copied: 0,
            window: 0,
            is_committed: false,
            is_renaming: false,
            is_given_up: false,
            failed: None,
        }
    }

    /// The same places by their new names. None: they have no others, or not yet.
    fn renamed(&self, segments: &Segments, source: u16) -> Option<Segments> {
        if !self.is_renaming || self.window > 0 {
            return None;
        }
        let mut new = Segments::new();
        for segment in segments {
            let (start, end) = (segment.offset, segment.offset + u64::from(segment.len));
            let bounds = [start, self.from.start.clamp(start, end), self.from.end.clamp(start, end), end];
            for pair in bounds.windows(2).filter(|pair| pair[0] < pair[1]) {
                let part = Segment {
                    pv: segment.pv,
                    offset: pair[0],
                    at: segment.at + (pair[0] - start) as u32,
                    len: (pair[1] - pair[0]) as u32,
                };
                let is_old = segment.pv.0 == source && self.from.contains(&pair[0]);
                new.push(match is_old {
                    true => Segment { pv: self.to, offset: self.to_offset + (pair[0] - self.from.start), ..part },
                    false => part,
                });
            }
        }
        Some(new)
    }

    fn in_window(&self, range: &Range<u64>) -> bool {
        let start = self.from.start + self.copied;
        // A range that crosses the end of the copied part is in no window while there is no window.
        self.window > 0 && range.start < start + self.window && start < range.end
    }

    /// The second place of a write (PM1).
    fn copies_of(&self, segments: &Segments, source: u16) -> Segments {
        if self.is_given_up {
            return Segments::new();
        }
        let done = self.from.start..self.from.start + self.copied;
        let copy = |segment: &Segment| {
            let end = segment.offset + u64::from(segment.len);
            let (start, end) = (segment.offset.max(done.start), end.min(done.end));
            (segment.pv.0 == source && start < end).then(|| Segment {
                pv: self.to,
                offset: self.to_offset + (start - self.from.start),
                at: segment.at + (start - segment.offset) as u32,
                len: (end - start) as u32,
            })
        };
        segments.iter().filter_map(copy).collect()
    }
}

/// A window of a run: its place, and its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: Segment,
    pub to: Segment,
}

impl Moving {
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// From now on requests to this physical volume are tracked.
    pub fn begin(&self, source: PvIndex, runtime: Arc<dyn Runtime>) {
        let mut state = self.state.lock();
        debug_assert!(state.run.is_none() && state.held.is_empty(), "one move at a time");
        state.source = source.0;
        state.runtime = Some(runtime);
        drop(state);
        self.is_active.store(true, Ordering::Release);
    }

    /// The move ends, unless both places of a run count until the group is opened again (PM8).
    pub fn end(&self) {
        if self.state.lock().run.is_none() {
            self.is_active.store(false, Ordering::Release);
        }
    }

    /// Begins to move these bytes of the source.
    pub fn begin_run(&self, from: Range<u64>, to: PvIndex, to_offset: u64) {
        self.state.lock().run = Some(MovingRun::new(from, to, to_offset));
    }

    /// The next window of the run, of at most `most` bytes. None: everything was copied. Returns when no write to the
    /// window is in flight (PM2).
    ///
    /// # Errors
    /// The new place did not take a write.
    pub async fn next_window(&self, most: u64) -> Result<Option<Window>, DiskError> {
        let window = {
            let mut state = self.state.lock();
            let source = PvIndex(state.source);
            let Some(run) = state.run.as_mut().filter(|run| !run.is_given_up) else { return Ok(None) };
            if let Some(error) = run.failed {
                return Err(error);
            }
            let at = run.from.start + run.copied;
            run.window = most.min(run.from.end - at);
            if run.window == 0 {
                return Ok(None);
            }
            let len = u32::try_from(run.window).expect("a window is small");
            Window {
                from: Segment { pv: source, offset: at, at: 0, len },
                to: Segment { pv: run.to, offset: run.to_offset + run.copied, at: 0, len },
            }
        };
        Ok(self.window_is_quiet().await.then_some(window))
    }

    /// Waits until no write to the window is in flight. False: the run has ended.
    async fn window_is_quiet(&self) -> bool {
        loop {
            let turn = self.changed.turn();
            let is_quiet = {
                let state = self.state.lock();
                let Some(run) = state.run.as_ref() else { return false };
                let in_window = |op: &DiscardInFlight| op.touched.iter().any(|range| run.in_window(range));
                !state.in_flight.values().any(|op| op.writes && in_window(op))
            };
            if is_quiet || planted::is("window_not_waited_for") {
                return true;
            }
            self.changed.changed(turn).await;
        }
    }

    /// Bytes of the run that were copied and do not count as moved yet.
    pub fn copied_bytes(&self) -> u64 {
        self.state.lock().run.as_ref().map_or(0, |run| run.copied)
    }

    /// The window was copied. Writes that waited for it continue, to both places.
    pub fn copied(self: &Arc<Self>, disks: &Arc<dyn Disks>) {
        if let Some(run) = self.state.lock().run.as_mut() {
            run.copied += run.window;
            run.window = 0;
        }
        self.retry(disks);
    }

    /// From now on the new place counts as much as the old one (PM4). False: the run was abandoned.
    ///
    /// # Errors
    /// It did not take a write.
    pub fn commit(&self) -> Result<bool, DiskError> {
        let mut state = self.state.lock();
        let Some(run) = state.run.as_mut().filter(|run| !run.is_given_up) else { return Ok(false) };
        debug_assert_eq!(run.copied, run.from.end - run.from.start, "PM1: all of it was copied");
        match run.failed {
            Some(error) if !planted::is("move_half_written") => Err(error),
            _ => {
                run.is_committed = true;
                Ok(true)
            }
        }
    }

    /// Waits until no request is in flight at the old place of the run (PM5).
    pub async fn drain(&self) {
        loop {
            let turn = self.changed.turn();
            let is_quiet = {
                let state = self.state.lock();
                let Some(run) = state.run.as_ref() else { return };
                let meets = |op: &DiscardInFlight| {
                    op.touched.iter().any(|range| range.start < run.from.end && run.from.start < range.end)
                };
                !state.in_flight.values().any(meets)
            };
            if is_quiet {
                return;
            }
            self.changed.changed(turn).await;
        }
    }

    /// Stops the copy, unless both places count already (PM8). Writes no longer wait for the new place.
    pub fn stop_copying(self: &Arc<Self>, disks: &Arc<dyn Disks>) {
        let mut state = self.state.lock();
        if let Some(run) = state.run.as_mut().filter(|run| !run.is_committed) {
            run.is_given_up = true;
            run.window = 0;
        }
        let waiting: Vec<Waker> = state.in_flight.values_mut().filter_map(|op| op.waker.take()).collect();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        self.retry(disks);
    }

    /// Abandons the run. Returns when no request is in flight at its new place (PM5). False: it is too late, and both
    /// places count until the group is opened again (PM8).
    pub async fn abort_run(self: &Arc<Self>, disks: &Arc<dyn Disks>) -> bool {
        self.stop_copying(disks);
        loop {
            let turn = self.changed.turn();
            {
                let mut state = self.state.lock();
                let is_committed = state.run.as_ref().is_some_and(|run| run.is_committed);
                if is_committed && !planted::is("one_place_after_failure") {
                    return false;
                }
                if planted::is("new_place_freed_early") || !state.in_flight.values().any(|op| op.is_copied) {
                    state.run = None;
                    return true;
                }
            }
            self.changed.changed(turn).await;
        }
    }

    /// Requests name these bytes by another place from now on, and only that one counts (PM10). Those that were planned with the
    /// old name wait, until they are [`renamed`](Self::renamed). Returns when no write by the old name is in flight (PM2).
    pub async fn begin_renaming(&self, from: Range<u64>, to: PvIndex, to_offset: u64) {
        let window = from.end - from.start;
        // In one step: nobody can stop it in between.
        let run = MovingRun { window, is_committed: true, is_renaming: true, ..MovingRun::new(from, to, to_offset) };
        self.state.lock().run = Some(run);
        // It ends by `end_run` only.
        self.window_is_quiet().await;
    }

    /// Requests by the old name go to the new place from now on, until the run [ends](Self::end_run).
    pub fn renamed(self: &Arc<Self>, disks: &Arc<dyn Disks>) {
        self.copied(disks);
    }

    /// The run is moved: from now on only its new place is written.
    pub fn end_run(self: &Arc<Self>, disks: &Arc<dyn Disks>) {
        self.state.lock().run = None;
        self.retry(disks);
    }

    fn retry(self: &Arc<Self>, disks: &Arc<dyn Disks>) {
        let held = std::mem::take(&mut self.state.lock().held);
        for (op, done) in held {
            self.submit(disks, op, done);
        }
        self.changed.notify();
    }

    /// Carries out a request. It is in flight, or waits, when this returns.
    pub fn submit(self: &Arc<Self>, disks: &Arc<dyn Disks>, op: DiskOp, done: Completer) {
        let (DiskOp::Read { segments, .. } | DiskOp::Write { segments, .. } | DiskOp::Discard { segments }) = &op
        else {
            return disks.submit(op, done);
        };
        let mut state = self.state.lock();
        let bytes = |segment: &Segment| segment.offset..segment.offset + u64::from(segment.len);
        let touched: Touched = segments.iter().filter(|segment| segment.pv.0 == state.source).map(bytes).collect();
        if touched.is_empty() {
            drop(state);
            return disks.submit(op, done);
        }
        let writes = !matches!(op, DiskOp::Read { .. });
        if state.must_wait(&touched, writes) {
            state.held.push((op, done));
            return;
        }
        let renamed = state.run.as_ref().and_then(|run| run.renamed(segments, state.source));
        let id = state.next;
        state.next += 1;
        let copies = match (&op, &state.run) {
            (DiskOp::Write { segments, .. }, Some(run)) if renamed.is_none() && !planted::is("one_place_written") => {
                run.copies_of(segments, state.source)
            }
            _ => Segments::new(),
        };
        state.in_flight.insert(id, DiscardInFlight { touched, writes, is_copied: !copies.is_empty(), waker: None });
        let runtime = state.runtime.clone().expect("it was given when the move began");
        drop(state);
        let copy = match &op {
            DiskOp::Write { buf, .. } if !copies.is_empty() => {
                Some(start(&**disks, DiskOp::Write { segments: copies, buf: buf.clone() }))
            }
            _ => None,
        };
        let own = start(&**disks, at(op, renamed));
        let (moving, disks) = (self.clone(), disks.clone());
        let both = async move {
            let own = own.await;
            let Some(mut copy) = copy else {
                moving.finished(id);
                moving.retry(&disks);
                return done.complete(own);
            };
            match poll_fn(|cx| moving.copied_or_aborted(cx, id, &mut copy)).await {
                Some(copy) => {
                    let outcome = moving.judge(own, copy);
                    moving.finished(id);
                    moving.retry(&disks);
                    done.complete(outcome);
                }
                None => {
                    moving.retry(&disks);
                    done.complete(own);
                    let _unwanted = copy.await;
                    moving.finished(id);
                    moving.retry(&disks);
                }
            }
        };
        runtime.spawn("moving", Box::pin(both));
    }

    /// The outcome at the new place. None: the run was abandoned, and the request is in flight only there.
    fn copied_or_aborted(&self, cx: &mut Context<'_>, id: u64, copy: &mut Completion) -> Poll<Option<DiskResult>> {
        if let Poll::Ready(outcome) = Pin::new(copy).poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        let mut state = self.state.lock();
        let is_given_up = state.run.as_ref().is_some_and(|run| run.is_given_up);
        let Some(own) = state.in_flight.get_mut(&id) else { return Poll::Ready(None) };
        if is_given_up {
            (own.writes, own.waker) = (false, None);
            own.touched.clear();
            return Poll::Ready(None);
        }
        own.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn finished(&self, id: u64) {
        self.state.lock().in_flight.remove(&id);
    }

    /// The answer to a write to both places.
    fn judge(&self, own: DiskResult, copy: DiskResult) -> DiskResult {
        let Err(error) = copy else { return own };
        let mut state = self.state.lock();
        match state.run.as_mut() {
            Some(run) if run.is_committed => own.and(Err(error)),
            Some(run) => {
                run.failed = Some(error);
                own
            }
            None => own,
        }
    }
}

/// The request at these places, if there are others.
fn at(op: DiskOp, places: Option<Segments>) -> DiskOp {
    match (op, places) {
        (DiskOp::Read { buf, .. }, Some(segments)) => DiskOp::Read { segments, buf },
        (DiskOp::Write { buf, .. }, Some(segments)) => DiskOp::Write { segments, buf },
        (DiskOp::Discard { .. }, Some(segments)) => DiskOp::Discard { segments },
        (op, _) => op,
    }
}

impl State {
    /// Whether a request has to wait: a write (PM2, PM3), or a read by a name that changes (PM10).
    fn must_wait(&self, touched: &Touched, writes: bool) -> bool {
        let Some(run) = &self.run else { return false };
        if !writes {
            return run.is_renaming && touched.iter().any(|range| run.in_window(range));
        }
        if touched.iter().any(|range| run.in_window(range)) && !planted::is("window_written_during_copy") {
            return true;
        }
        let meets = |other: &DiscardInFlight| {
            let mut others = other.touched.iter();
            others.any(|other| touched.iter().any(|range| range.start < other.end && other.start < range.end))
        };
        !planted::is("overlapping_writes_pass") && self.in_flight.values().any(|other| other.writes && meets(other))
    }
}

#[cfg(test)]
#[path = "moving_test.rs"]
mod tests;
