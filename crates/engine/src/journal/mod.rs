//! The journal: a ring of frames, with group commit. All device flushes are issued here.
//!
//! Invariants
//!
//! * J1 Records get rising sequence numbers in the order in which they are appended. A reader that follows the frames
//!   finds the records in exactly that order (rule R7).
//! * J2 [`Journal::written`] returns only when the record's frame *and every frame before it* is on the disk. So
//!   recovery reaches each acknowledged record.
//! * J3 A record is *open* from its append until its owner has finished its data and its mapping. A flush covers the
//!   records below the lowest open one, and nothing else.
//! * J4 The *marker* in a frame states: all records below it were durable, data included, when the frame was made.
//!   Recovery accepts the records below the highest marker that it finds. It proves the others by the checksum of their
//!   data (rule R6). A block may be written in place only when the marker that covers its mapping is itself durable.
//!   From then on the block's data need not match the record's checksum any more.
//! * J5 After a failed flush, or when a frame can be written nowhere, nothing is acknowledged any more. The failure
//!   stays until the group is opened again.
//! * J7 A block of the ring that cannot be written costs only itself: see [`bad_runs`] and [`rewrite`].
//! * J8 While the ring is over half full, a checkpoint is requested whenever a frame was added to it or the oldest open
//!   record was closed. So a caller that waits for room in the ring waits for a checkpoint that will come.
//! * J9 Each marker is sent in one frame. While that frame is in flight, or waits for frames before it, a caller that
//!   needs the marker does not cause another frame.

pub mod bad_runs;
mod copies;
mod copy_changes;
mod rewrite;

use crate::disk::{DiskError, DiskOp, DiskOpKind, Disks, PageBuf, PvIndex, Segments, start};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::codec::Encoder;
use crate::format::journal::{FrameId, MAX_FRAME, Record, encode_frame, frame_bytes};
use crate::planted;
use crate::runtime::Runtime;
use crate::units::Seq;
use bad_runs::BadRuns;
pub use copies::Copies;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

/// The most frames in flight at once.
const FRAMES_IN_FLIGHT: usize = 4;
/// While a frame is in flight, the next one waits until it contains at least 1/SHARE_OF_OPEN of the open records. Each
/// frame costs the processor as much as a write: at a queue depth of 32, frames of five records cost a fifth of the
/// throughput. A record waits at most for the frames in flight. A lone write does not wait.
const SHARE_OF_OPEN: usize = 2;
/// The most bytes of records in one frame, if more records are waiting.
const FRAME_TARGET: usize = 128 << 10;

/// The place of the journal on the disks, and its identity.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The length of each copy in bytes.
    pub bytes: u64,
    pub id: u64,
    /// First eight bytes of the group's UUID.
    pub group: u64,
    /// Blocks that cannot be written.
    pub bad: BadRuns,
}

/// What the journal needs from its group.
pub trait JournalOwner: Send + Sync {
    /// Whether the group can continue without the physical volume (MB9).
    fn can_continue_without(&self, pv: PvIndex) -> bool;
    /// Writes a superblock to each physical volume that is not out.
    fn probe_disks(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;
    /// Records these bad blocks in a superblock, and makes it durable.
    fn record_bad_runs(self: Arc<Self>, bad: BadRuns) -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;
    /// Writes to these ranges when there is room behind the disks again (U6). A first write met no room.
    fn write_when_there_is_room(
        self: Arc<Self>,
        error: DiskError,
        segments: Segments,
        buf: Arc<PageBuf>,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;
}

#[derive(Default)]
struct Batch {
    first: u64,
    count: u32,
    records: Encoder,
    /// It was written once. A frame that begins with a given record always has the same records (J7).
    is_sealed: bool,
}

struct Span {
    serial: u64,
    first: u64,
    count: u32,
    /// The frame's records, until this frame and all before it are on the disk.
    batch: Batch,
    /// Where the frame before it ended, and where this one begins.
    from: u64,
    position: u64,
    /// Bytes that the frame takes in the ring, with the bytes that were skipped for it.
    bytes: u64,
    marker: u64,
    written: bool,
}

struct State {
    next: u64,
    batches: VecDeque<Batch>,
    /// Frames since the last checkpoint, oldest first.
    spans: VecDeque<Span>,
    next_serial: u64,
    /// How many spans at the front are on the disk without a gap.
    written_prefix: usize,
    position: u64,
    used: u64,
    in_flight: usize,
    /// Records below this are on the disk.
    written: u64,
    open: BTreeSet<u64>,
    /// Records below this are durable, data included.
    flushed: u64,
    /// The highest marker in a frame that is on the disk, and the highest durable one.
    marker_written: u64,
    marker_durable: u64,
    marker_requested: bool,
    /// The marker in the newest frame, which may be in flight.
    marker_sent: u64,
    flush_started: u64,
    flush_finished: u64,
    flush_running: bool,
    waiting: Vec<(u64, Waker)>,
    watchers: Vec<Waker>,
    failed: Option<Error>,
    bad: BadRuns,
    /// Why a frame could not be written. No other frame begins before it is rewritten.
    write_error: Option<String>,
    /// A checkpoint was requested because the next frame has no room, and none was taken since.
    asked: bool,
    frames: u64,
    flushes: u64,
}

/// What a checkpoint needs from the journal at its capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The checkpoint does not contain records from this one on.
    pub next: Seq,
    /// Records below `next` that the checkpoint does not contain either.
    pub open: Vec<u64>,
    /// Where replay starts.
    pub position: u64,
    pub first: Seq,
    /// The oldest frame that replay still needs.
    keep: u64,
    /// The copies of the ring that have all frames that replay needs (JC2). None: those that the superblock names.
    pub whole: Option<Vec<u64>>,
}

impl Capture {
    /// The position in a journal that is being replayed. Records from `next` on, and those in `open`, are still to be
    /// replayed. The frames do not belong to the new journal.
    pub fn of_replay(next: Seq, open: Vec<u64>, position: u64, first: Seq) -> Capture {
        Capture { next, open, position, first, keep: 0, whole: None }
    }
}

/// How full the ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    Low,
    /// Time for a checkpoint.
    Half,
    /// Writers wait for one.
    Full,
}

pub struct Journal {
    disks: Arc<dyn Disks>,
    runtime: Arc<dyn Runtime>,
    ring: Ring,
    copies: Copies,
    /// How full the ring is: 0, 1 (over half: time for a checkpoint), 2 (nearly full: writers wait).
    pressure: AtomicU8,
    is_failed: AtomicBool,
    /// Whether a checkpoint is requested, and the event that wakes the task that takes it.
    pub checkpoint_requested: AtomicBool,
    pub background: Arc<Event>,
    /// Notified when the journal fails. Tasks that wait for the group then see that it has stopped (L4).
    pub stopped: Arc<Event>,
    owner: Mutex<Option<Weak<dyn JournalOwner>>>,
    /// A planted bug, for the tests that must find it.
    planted: Option<&'static str>,
    state: Mutex<State>,
}

/// The last batch takes another record.
fn begin_batch(state: &mut State) {
    let is_full = |batch: &Batch| batch.is_sealed || batch.records.bytes.len() >= FRAME_TARGET;
    if state.batches.back().is_none_or(is_full) {
        state.batches.push_back(Batch { first: state.next, ..Batch::default() });
    }
}

fn push(state: &mut State, record: &Record) {
    begin_batch(state);
    state.next += 1;
    let batch = state.batches.back_mut().expect("one was begun");
    record.encode(&mut batch.records);
    batch.count += 1;
}

impl Journal {
    /// A journal whose ring holds nothing: the next record is `next`.
    pub fn new(
        disks: Arc<dyn Disks>,
        runtime: Arc<dyn Runtime>,
        copies: Copies,
        ring: Ring,
        next: Seq,
        planted: Option<&'static str>,
    ) -> Arc<Self> {
        let state = State {
            next: next.0,
            batches: VecDeque::new(),
            spans: VecDeque::new(),
            next_serial: 0,
            written_prefix: 0,
            position: 0,
            used: 0,
            in_flight: 0,
            written: next.0,
            open: BTreeSet::new(),
            flushed: next.0,
            marker_written: next.0,
            marker_durable: next.0,
            marker_requested: false,
            marker_sent: next.0,
            flush_started: 0,
            flush_finished: 0,
            flush_running: false,
            waiting: Vec::new(),
            watchers: Vec::new(),
            failed: None,
            bad: ring.bad.clone(),
            write_error: None,
            asked: false,
            frames: 0,
            flushes: 0,
        };
        Arc::new(Journal {
            disks,
            runtime,
            copies,
            ring,
            pressure: AtomicU8::new(0),
            is_failed: AtomicBool::new(false),
            checkpoint_requested: AtomicBool::new(false),
            background: Arc::default(),
            stopped: Arc::default(),
            owner: Mutex::new(None),
            planted,
            state: Mutex::new(state),
        })
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    pub fn set_owner(&self, owner: Weak<dyn JournalOwner>) {
        *self.owner.lock() = Some(owner);
    }

    /// The group, unless it was dropped.
    fn owner(&self) -> Option<Arc<dyn JournalOwner>> {
        self.owner.lock().as_ref().and_then(Weak::upgrade)
    }

    /// Blocks of the ring that cannot be written.
    pub fn bad_blocks(&self) -> u64 {
        self.state.lock().bad.blocks()
    }

    /// Appends a record and returns its sequence number. `open`: see J3; the caller must [`close`](Self::close) it.
    pub fn append(self: &Arc<Self>, record: &Record, open: bool) -> Seq {
        let mut state = self.state.lock();
        let seq = state.next;
        if open {
            state.open.insert(seq);
        }
        push(&mut state, record);
        self.start_frames(&mut state);
        Seq(seq)
    }

    /// Appends records that are in one frame: recovery finds all of them or none. Returns the number of the last. They
    /// [`fit_together`](Self::fit_together).
    pub fn append_together(self: &Arc<Self>, records: &[Record]) -> Seq {
        let mut state = self.state.lock();
        begin_batch(&mut state);
        let batch = state.batches.len();
        for record in records {
            let last = state.batches.back_mut().expect("one was begun");
            record.encode(&mut last.records);
            last.count += 1;
            state.next += 1;
        }
        debug_assert_eq!(batch, state.batches.len());
        let last = state.next - 1;
        self.start_frames(&mut state);
        Seq(last)
    }

    /// Planted bug: a record whose successor is in another frame.
    pub fn append_in_own_frame(self: &Arc<Self>, record: &Record) {
        let mut state = self.state.lock();
        push(&mut state, record);
        let last = state.batches.back_mut().expect("one was begun");
        last.is_sealed = true;
        self.start_frames(&mut state);
    }

    /// Whether these records fit into one frame.
    pub fn fit_together(&self, records: &[Record]) -> bool {
        let mut probe = Encoder::default();
        records.iter().for_each(|record| record.encode(&mut probe));
        probe.bytes.len() <= self.longest_record()
    }

    /// Whether a record of this many bytes can ever be written to this ring.
    pub fn fits(&self, record: &Record) -> bool {
        self.fit_together(std::slice::from_ref(record))
    }

    fn longest_record(&self) -> usize {
        (MAX_FRAME / 2).min(self.ring.bytes as usize / 8)
    }

    /// The record's data and mapping are finished, or were abandoned.
    pub fn close(&self, seq: Seq) {
        let mut state = self.state.lock();
        let pinned = state.open.first() == Some(&seq.0);
        state.open.remove(&seq.0);
        if pinned {
            self.checkpoint_if_full();
        }
        wake(&mut state);
    }

    /// Waits until the record can be found by recovery after the death of the server (J2).
    pub async fn written(&self, seq: Seq) -> Result<()> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if let Some(error) = failure(&state) {
                return Poll::Ready(Err(error));
            }
            if state.written > seq.0 {
                return Poll::Ready(Ok(()));
            }
            state.waiting.push((seq.0, cx.waker().clone()));
            Poll::Pending
        })
        .await
    }

    /// Makes everything acknowledged before the call durable. Calls that wait together share one device flush.
    pub async fn flush(&self) -> Result<()> {
        let ticket = self.state.lock().flush_started + 1;
        loop {
            let lead = poll_fn(|cx| {
                let mut state = self.state.lock();
                if let Some(error) = failure(&state) {
                    return Poll::Ready(Err(error));
                }
                if state.flush_finished >= ticket {
                    return Poll::Ready(Ok(None));
                }
                if state.flush_running {
                    state.watchers.push(cx.waker().clone());
                    return Poll::Pending;
                }
                state.flush_running = true;
                state.flush_started += 1;
                let covered = state.open.first().copied().unwrap_or(state.next).min(state.written);
                Poll::Ready(Ok(Some((covered, state.marker_written))))
            })
            .await?;
            let Some((covered, marker)) = lead else { return Ok(()) };
            let outcome = if self.planted("no_flush") { Ok(None) } else { start(&*self.disks, DiskOp::Flush).await };
            let outcome = outcome.map_err(|error| self.reason(error.into(), None));
            let mut state = self.state.lock();
            state.flush_running = false;
            state.flushes += 1;
            match outcome {
                Ok(_) => {
                    state.flush_finished = state.flush_started;
                    state.flushed = state.flushed.max(covered);
                    state.marker_durable = state.marker_durable.max(marker);
                }
                Err(_) if self.planted("flush_tried_again") => {}
                Err(Error::DiskLost(_)) if self.planted("flushed_without_disk") => {
                    state.flush_finished = state.flush_started;
                }
                Err(reason) => self.fail(&mut state, reason),
            }
            wake(&mut state);
        }
    }

    /// Returns when recovery would accept the record without a proof (J4). Then its block may be written in place.
    pub async fn ensure_marker(self: &Arc<Self>, seq: Seq) -> Result<()> {
        loop {
            let flush = poll_fn(|cx| {
                let mut state = self.state.lock();
                if let Some(error) = failure(&state) {
                    return Poll::Ready(Err(error));
                }
                if state.marker_durable > seq.0 {
                    return Poll::Ready(Ok(false));
                }
                let unfinished = state.written <= seq.0 || state.open.first().is_some_and(|open| *open <= seq.0);
                let flush = if state.flushed <= seq.0 { !unfinished } else { state.marker_written > seq.0 };
                if flush {
                    return Poll::Ready(Ok(true));
                }
                if state.flushed > seq.0 {
                    state.marker_requested = true;
                    self.start_frames(&mut state);
                }
                state.watchers.push(cx.waker().clone());
                Poll::Pending
            })
            .await?;
            match flush {
                true => self.flush().await?,
                false => return Ok(()),
            }
        }
    }

    /// Records below this need no marker any more.
    pub fn marker_durable(&self) -> Seq {
        Seq(self.state.lock().marker_durable)
    }

    /// Waits while the ring is nearly full.
    pub async fn admit(&self) -> Result<()> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if let Some(error) = failure(&state) {
                return Poll::Ready(Err(error));
            }
            if self.pressure() == Pressure::Full {
                state.watchers.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The sequence number that the next record gets.
    pub fn next_seq(&self) -> Seq {
        Seq(self.state.lock().next)
    }

    /// How full the ring is. Lock-free: asked by every write that changes a mapping.
    pub fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::Low,
            1 => Pressure::Half,
            _ => Pressure::Full,
        }
    }

    fn update_pressure(&self, state: &State) {
        let level = match state.used {
            used if used > self.ring.bytes / 4 * 3 => 2,
            used if used > self.ring.bytes / 2 => 1,
            _ => 0,
        };
        self.pressure.store(level, Ordering::Relaxed);
    }

    /// J8: called wherever a checkpoint may free more of the ring than the last one did, or must come first.
    fn checkpoint_if_full(&self) {
        if self.pressure() != Pressure::Low && !self.planted("no_checkpoint_for_waiters") {
            self.request_checkpoint();
        }
    }

    /// Asks the background for a checkpoint, without waiting for it.
    pub fn request_checkpoint(&self) {
        if !self.checkpoint_requested.swap(true, Ordering::AcqRel) {
            self.background.notify();
        }
    }

    /// Frames written and device flushes issued since the journal was opened.
    pub fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.frames, state.next, state.flushes)
    }

    /// The failure that stopped the journal, if one did (J5).
    pub fn failed(&self) -> Result<()> {
        if !self.is_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        failure(&self.state.lock()).map_or(Ok(()), Err)
    }

    fn fail(&self, state: &mut State, why: Error) {
        state.failed.get_or_insert(why);
        self.is_failed.store(true, Ordering::Relaxed);
        state.waiting.drain(..).for_each(|(_, waker)| waker.wake());
        self.stopped.notify();
    }

    /// The reason with which the journal stops after this error of `doing`. It says whether the group can continue
    /// without the failed disk (MB9).
    fn reason(&self, error: Error, doing: Option<&str>) -> Error {
        if let Error::Disk(failed) = &error {
            let is_told = matches!(failed.op, DiskOpKind::Write | DiskOpKind::Flush);
            if is_told && self.owner().is_some_and(|owner| owner.can_continue_without(failed.pv)) {
                return Error::DiskLost(*failed);
            }
        }
        Error::Poisoned(doing.map_or(error.to_string(), |doing| format!("{doing}: {error}")))
    }

    /// A write to newly allocated blocks failed with this error. If the disk takes no writes at all, and the group
    /// stops for that (MB9), the write gets no answer. The next process allocates other blocks.
    pub async fn stopped_by(&self, error: &Error) -> Result<()> {
        let Error::Disk(failed) = error else { return Ok(()) };
        let Some(owner) = self.owner() else { return Ok(()) };
        if planted::is("failed_write_reported") {
            return Ok(());
        }
        if failed.op == DiskOpKind::Write && owner.can_continue_without(failed.pv) {
            // If this fails, the journal has stopped.
            let _ = owner.probe_disks().await;
        }
        match self.failed() {
            Err(error @ Error::DiskLost(_)) => Err(error),
            _ => Ok(()),
        }
    }

    /// The answer to a request that failed with this error: if the group stops because of a disk that it can do without,
    /// the next process answers (MB9).
    pub fn answer(&self, error: Error) -> Error {
        match (&error, self.failed()) {
            (Error::Disk(_), Err(stopped @ Error::DiskLost(_))) => stopped,
            _ => error,
        }
    }

    /// Stops the journal: `doing` failed, and the state of the disk is unknown (J5). If the group can continue without
    /// that disk, the next process answers the requests in flight (MB9).
    pub fn stop_after(&self, error: Error, doing: &str) {
        let reason = self.reason(error, Some(doing));
        self.stop(reason);
    }

    /// Stops the journal: something below failed in a way that leaves the disk's state unknown (J5).
    pub fn poison(&self, why: &str) {
        self.stop(Error::Poisoned(why.to_owned()));
    }

    /// Stops the journal for this reason. [`Error::Closed`]: nothing is wrong, and a successor answers the requests in
    /// flight.
    pub fn stop(&self, why: Error) {
        let mut state = self.state.lock();
        self.fail(&mut state, why);
        wake(&mut state);
    }

    fn planted(&self, bug: &str) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug) || planted::is(bug)
    }

    /// The journal's position for a checkpoint that captures the group's state at this instant. Frames that are not on
    /// the disk yet may have to be written elsewhere, and all frames behind them too. So replay begins with them (J7).
    pub fn capture(&self) -> Capture {
        let state = self.state.lock();
        let low = state.open.first().copied().unwrap_or(state.next);
        let needed = state.spans.iter().position(|span| span.first + u64::from(span.count) > low);
        let needed = needed.unwrap_or(state.spans.len());
        let needed = if self.planted("bad_ring_checkpoint_past") { needed } else { needed.min(state.written_prefix) };
        let (position, first, keep) = match state.spans.get(needed) {
            Some(span) => (span.position, span.first, span.serial),
            None => {
                let first = state.batches.front().map_or(state.next, |batch| batch.first);
                (state.position, first, state.next_serial)
            }
        };
        let open = state.open.iter().copied().collect();
        let whole = Some(self.copies.whole_from(keep));
        Capture { next: Seq(state.next), open, position, first: Seq(first), keep, whole }
    }

    /// The checkpoint of `capture` is durable: frames before it are free, and its records need no marker.
    pub fn checkpointed(self: &Arc<Self>, capture: &Capture) {
        let mut state = self.state.lock();
        while state.written_prefix > 0 && state.spans.front().is_some_and(|span| span.serial < capture.keep) {
            let span = state.spans.pop_front().expect("the front was looked at");
            state.written_prefix -= 1;
            state.used -= span.bytes;
        }
        state.asked = false;
        self.update_pressure(&state);
        let covered = capture.open.first().copied().unwrap_or(capture.next.0);
        state.marker_durable = state.marker_durable.max(covered);
        state.flushed = state.flushed.max(covered.min(state.written));
        self.start_frames(&mut state);
        wake(&mut state);
    }

    /// Starts a frame if there is something to write and room for it.
    fn start_frames(self: &Arc<Self>, state: &mut State) {
        while state.in_flight < FRAMES_IN_FLIGHT && state.failed.is_none() && state.write_error.is_none() {
            let worthwhile = if state.in_flight == 0 { 1 } else { state.open.len() / SHARE_OF_OPEN };
            let waits = |batch: &Batch| !batch.is_sealed && (batch.count as usize) < worthwhile;
            if state.batches.len() == 1 && waits(&state.batches[0]) {
                return;
            }
            let sent = if self.planted("marker_sent_twice") { state.marker_written } else { state.marker_sent };
            let batch = match state.batches.front() {
                Some(_) => state.batches.pop_front(),
                None if state.marker_requested && sent < state.flushed => {
                    let first = state.next;
                    state.next += u64::from(self.planted("marker_takes_number"));
                    Some(Batch { first, ..Batch::default() })
                }
                None => None,
            };
            let Some(batch) = batch else { return };
            let bytes = frame_bytes(batch.records.bytes.len()) as u64;
            let place = state.bad.place(state.position, bytes, self.ring.bytes);
            let Some((position, skipped)) = place.filter(|(_, by)| state.used + by + bytes <= self.ring.bytes) else {
                // Full: the batch waits for a checkpoint.
                if batch.count > 0 || batch.is_sealed {
                    state.batches.push_front(batch);
                }
                self.request_checkpoint_for_room(state);
                return;
            };
            let (from, marker) = (state.position, state.flushed);
            state.marker_requested = false;
            state.marker_sent = marker;
            state.position = (position + bytes) % self.ring.bytes;
            state.used += skipped + bytes;
            self.update_pressure(state);
            self.checkpoint_if_full();
            state.in_flight += 1;
            state.frames += 1;
            let serial = state.next_serial;
            state.next_serial += 1;
            let (first, count) = (batch.first, batch.count);
            let bytes = skipped + bytes;
            let span = Span { serial, first, count, batch, from, position, bytes, marker, written: false };
            self.write_frame(&span);
            state.spans.push_back(span);
        }
    }

    /// The next frame has no room before a checkpoint.
    fn request_checkpoint_for_room(&self, state: &mut State) {
        if !std::mem::replace(&mut state.asked, true) {
            self.request_checkpoint();
        }
    }

    /// The bytes of a frame.
    fn encode(&self, span: &Span) -> PageBuf {
        let bytes = frame_bytes(span.batch.records.bytes.len());
        let mut block = PageBuf::zeroed(bytes);
        let Ring { id: journal_id, group, .. } = self.ring;
        let id = FrameId { journal_id, group, position: span.position, first_seq: Seq(span.first) };
        let frame = &mut block.as_mut_slice()[..bytes];
        encode_frame(id, span.count, Seq(span.marker), &span.batch.records.bytes, frame);
        block
    }

    /// Starts a write to all copies of the ring (JC1). If there is no room behind a disk, the write waits for room
    /// (U6).
    fn start_write(&self, position: u64, buf: PageBuf) -> impl Future<Output = Result<()>> + Send + use<> {
        let segments = self.copies.map(position, buf.capacity() as u64);
        let buf = Arc::new(buf);
        let owner = self.owner.lock().clone();
        let done = start(&*self.disks, DiskOp::Write { segments: segments.clone(), buf: buf.clone() });
        async move {
            match (done.await, owner.as_ref().and_then(Weak::upgrade)) {
                (Err(error), Some(owner)) if error.is_no_room() => {
                    owner.write_when_there_is_room(error, segments, buf).await
                }
                (outcome, _) => outcome.map(|_| ()).map_err(Error::from),
            }
        }
    }

    fn write_frame(self: &Arc<Self>, span: &Span) {
        let done = self.start_write(span.position, self.encode(span));
        let (journal, serial) = (self.clone(), span.serial);
        self.runtime.spawn("journal frame", Box::pin(async move { journal.frame_done(serial, done.await) }));
    }

    fn frame_done(self: &Arc<Self>, serial: u64, outcome: Result<()>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.in_flight -= 1;
        match outcome {
            Err(error @ Error::Disk(_)) if !self.planted("bad_ring_stops_group") => {
                state.write_error.get_or_insert_with(|| error.to_string());
            }
            // The group ended while the frame waited for room. Other blocks of the ring have no room, either.
            Err(Error::Closed) => self.fail(state, Error::Closed),
            Err(error) => self.fail(state, Error::Poisoned(error.to_string())),
            Ok(()) => {
                let span = state.spans.iter_mut().rev().find(|span| span.serial == serial);
                span.expect("a frame in flight has its span").written = true;
                self.settle(state);
            }
        }
        if state.in_flight == 0 && state.write_error.is_some() && state.failed.is_none() {
            self.runtime.spawn("journal mending", Box::pin(self.clone().rewrite_failed()));
        }
        self.start_frames(state);
        self.wake_waiting(state);
    }

    /// J2: only records behind whole frames count.
    fn settle(&self, state: &mut State) {
        while let Some(span) = state.spans.get_mut(state.written_prefix).filter(|span| span.written) {
            span.batch = Batch::default();
            state.written = state.written.max(span.first + u64::from(span.count));
            state.marker_written = state.marker_written.max(span.marker);
            state.written_prefix += 1;
        }
    }

    fn wake_waiting(&self, state: &mut State) {
        let written = state.written;
        let failed = state.failed.is_some();
        let mut i = 0;
        while i < state.waiting.len() {
            if failed || state.waiting[i].0 < written {
                state.waiting.swap_remove(i).1.wake();
            } else {
                i += 1;
            }
        }
        wake(state);
    }
}

fn failure(state: &State) -> Option<Error> {
    state.failed.clone()
}

fn wake(state: &mut State) {
    state.watchers.drain(..).for_each(Waker::wake);
}
