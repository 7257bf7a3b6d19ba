//! Legs that may differ are made equal, and what could not be read is written anew (ML6, ML8).

use super::layer::Legs;
use super::pace::{Lap, WINDOW};
use super::state::{Begun, Unsure};
use super::table::{Part, Piece, Place, do_meet, place_of};
use crate::disk::{DiskError, DiskOp, DiskOpKind, PageBuf, PvIndex, Segment, Segments, start};
use crate::error;
use crate::planted;
use crate::runtime::all_of;
use parking_lot::Mutex;
use std::sync::Arc;

/// How many windows are copied together while nobody else uses the mirrors: one is read while another one is written.
const TOGETHER: usize = 3;
/// How many windows a step copies then, at most.
const IN_A_STEP: usize = 16;
/// What is read together if a window cannot be read.
const SMALLEST: u32 = 4096;

/// How the copying of a window ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    Whole,
    Stuck,
}

fn segment_of(place: &Place) -> Segment {
    Segment { pv: place.0, offset: place.1.start, at: 0, len: (place.1.end - place.1.start) as u32 }
}

/// The window around a byte of an unsure range.
fn window_at(unsure: &Place, at: u64, bytes: u64) -> Place {
    let start = (at - at % bytes).max(unsure.1.start);
    (unsure.0, start..(at - at % bytes + bytes).min(unsure.1.end))
}

/// Windows that are being copied one after the other.
struct Copies {
    lap: Lap,
    /// The bytes of a window.
    bytes: u64,
    /// Where the next one is looked for, and how many may still begin.
    next: Mutex<((u16, u64), usize)>,
}

impl Legs {
    /// Makes equal what a read of an unsure range needs.
    pub(super) async fn copy_for_read(&self, unsure: &Place, segments: &Segments) -> Result<(), DiskError> {
        let read = segments.iter().map(place_of).find(|place| do_meet(place, unsure));
        let Some((_, read)) = read else { return Ok(()) };
        let at = read.start.max(unsure.1.start);
        self.copy_window(&window_at(unsure, at, WINDOW)).await
    }

    /// Copies a window of an unsure range, as far as it is unsure still. No write to it is in flight meanwhile.
    async fn copy_window(&self, place: &Place) -> Result<(), DiskError> {
        let own = Segments::from_slice(&[segment_of(place)]);
        let (id, begun) = self.window(&own, DiskOpKind::Write, planted::is("copied_without_window")).await?;
        let outcome = self.copy_parts(&begun).await;
        self.leave(id, &begun);
        outcome
    }

    async fn copy_parts(&self, begun: &Begun) -> Result<(), DiskError> {
        for part in &begun.parts {
            let Part::Mirrored(piece) = part else { continue };
            let unsure: Vec<_> = self.state.lock().unsure_at(&piece.place()).collect();
            for ((_, range), unsure) in unsure {
                let own = piece.place().1;
                let (from, to) = (range.start.max(own.start), range.end.min(own.end));
                let part = piece.cut((from - own.start) as u32, (to - from) as u32);
                self.copy_piece(&part, unsure).await?;
            }
        }
        Ok(())
    }

    async fn copy_piece(&self, piece: &Piece, unsure: Unsure) -> Result<(), DiskError> {
        let (is_possible, is_strict) = {
            let state = self.state.lock();
            let both = state.legs_in(piece).count() == 2 && !state.pvs.is_read_only;
            (both, unsure.source.is_some_and(|source| state.is_whole(piece, 1 - source)))
        };
        let Some(source) = unsure.source.filter(|_| is_possible) else { return Ok(()) };
        let copied = self.copy_bytes(piece, source, is_strict).await?;
        let mut state = self.state.lock();
        // Its run may have got another leg meanwhile.
        if !state.is_current(piece) {
            return Ok(());
        }
        let taken = state.take_unsure(&piece.place());
        if copied == Copied::Stuck {
            for (place, unsure) in taken {
                state.set_unsure(&place, Unsure { is_stuck: true, ..unsure });
            }
        }
        state.copied += 1;
        Ok(())
    }

    /// Copies from one leg to the other. `is_strict`: either leg could be taken for the right one later, so what is read
    /// next must be durable on both.
    async fn copy_bytes(&self, piece: &Piece, source: usize, is_strict: bool) -> Result<Copied, DiskError> {
        let target = 1 - source;
        let Ok(from) = self.read_raw(piece.legs[source]).await else {
            return self.copy_in_parts(piece, source, is_strict).await;
        };
        let len = piece.legs[0].len as usize;
        if is_strict {
            let to = self.read_raw(piece.legs[target]).await;
            if to.is_ok_and(|to| to.as_slice()[..len] == from.as_slice()[..len]) {
                return Ok(Copied::Whole);
            }
        }
        let copied = self.write_copy(piece, target, Arc::new(from)).await?;
        if is_strict && copied == Copied::Whole {
            self.flush().await?;
        }
        Ok(copied)
    }

    async fn write_copy(&self, piece: &Piece, target: usize, buf: Arc<PageBuf>) -> Result<Copied, DiskError> {
        let segments = Segments::from_slice(&[Segment { at: 0, ..piece.legs[target] }]);
        let write = || start(&*self.disks, DiskOp::Write { segments: segments.clone(), buf: buf.clone() });
        if write().await.is_ok() {
            return Ok(Copied::Whole);
        }
        let Err(error) = write().await else { return Ok(Copied::Whole) };
        let error = DiskError { pv: piece.legs[target].pv, ..error };
        if error.is_no_room() || !self.state.lock().is_whole(piece, 1 - target) {
            return Ok(Copied::Stuck);
        }
        self.fail(error);
        Err(error)
    }

    /// The source cannot be read as a whole. If either leg can be taken for the right one, the other one has what it lacks.
    async fn copy_in_parts(&self, piece: &Piece, source: usize, is_strict: bool) -> Result<Copied, DiskError> {
        let (mut skipped, mut outcome, len) = (0, Copied::Whole, piece.legs[0].len);
        while skipped < len {
            let to_border = SMALLEST - (piece.legs[0].offset + u64::from(skipped)) as u32 % SMALLEST;
            let part = piece.cut(skipped, to_border);
            skipped += part.legs[0].len;
            let (from, to) = (part.legs[source], part.legs[1 - source]);
            let copied = match self.read_raw(from).await {
                Ok(read) => self.write_copy(&part, 1 - source, Arc::new(read)).await?,
                Err(_) if is_strict => match self.read_raw(to).await {
                    Ok(read) => self.write_copy(&part, source, Arc::new(read)).await?,
                    Err(_) => Copied::Stuck,
                },
                Err(_) => Copied::Stuck,
            };
            if copied == Copied::Stuck {
                outcome = Copied::Stuck;
            }
        }
        if is_strict {
            self.flush().await?;
        }
        Ok(outcome)
    }

    /// One step of what is to be done in the background. False: there is nothing to do. After an error the caller makes a
    /// pause: the same step is tried again.
    pub async fn work(self: &Arc<Self>) -> error::Result<bool> {
        if !self.is_active.load(std::sync::atomic::Ordering::Acquire) {
            return Ok(false);
        }
        let is_due = {
            let state = self.state.lock();
            if state.stopped.is_some() || state.pvs.is_read_only {
                return Ok(false);
            }
            state.is_round_due
        };
        if is_due {
            self.settle().await?;
            return Ok(true);
        }
        let is_count_due = self.state.lock().is_count_due;
        if is_count_due {
            self.count().await?;
            return Ok(true);
        }
        let to_heal = self.state.lock().to_heal.pop_front();
        if let Some((place, leg)) = to_heal {
            self.heal(&place, leg).await?;
            return Ok(true);
        }
        if self.copy_some().await? {
            return Ok(true);
        }
        let copied = {
            let state = self.state.lock();
            (state.is_catching_up() && state.flushed != state.copied).then_some(state.copied)
        };
        let Some(copied) = copied else { return Ok(false) };
        self.flush().await?;
        self.state.lock().flushed = copied;
        self.wake_owner();
        Ok(true)
    }

    /// Copies windows: several together while nobody else uses the mirrors, else one. False: there is none to copy.
    async fn copy_some(&self) -> Result<bool, DiskError> {
        let lap = self.lap();
        let (together, most) = if self.is_alone(&lap) { (TOGETHER, IN_A_STEP) } else { (1, 1) };
        let bytes = self.window_beside(&lap);
        let copies = Copies { lap, bytes, next: Mutex::new(((0, 0), most)) };
        let copied = all_of((0..together).map(|_| self.copy_in_turn(&copies))).await;
        let copied: usize = copied.into_iter().sum::<Result<_, DiskError>>()?;
        Ok(copied > 0)
    }

    /// Returns how many windows this copied.
    async fn copy_in_turn(&self, copies: &Copies) -> Result<usize, DiskError> {
        let mut copied = 0;
        while copied == 0 || self.is_alone(&copies.lap) {
            let place = {
                let (from, left) = &mut *copies.next.lock();
                if *left == 0 {
                    break;
                }
                let Some(place) = self.next_unsure(*from, copies.bytes) else { break };
                *from = (place.0.0, place.1.end);
                *left -= 1;
                place
            };
            self.copy_window(&place).await?;
            copied += 1;
        }
        Ok(copied)
    }

    /// The next window that can be copied, from this physical volume and byte on.
    fn next_unsure(&self, from: (u16, u64), bytes: u64) -> Option<Place> {
        let state = self.state.lock();
        let can = |place: &Place, unsure: &Unsure| {
            let both = |piece: &Piece| state.legs_in(piece).count() == 2;
            let is_ready = !unsure.is_stuck && !unsure.is_held && unsure.source.is_some();
            is_ready && state.table.pieces(place).first().is_some_and(both)
        };
        let before = |key: &(u16, u64), unsure: &Unsure| (key.0, unsure.end) <= from;
        let ranges = state.unsure.iter().filter(|(key, unsure)| !before(key, unsure));
        let mut ranges = ranges.map(|(key, unsure)| ((PvIndex(key.0), key.1..unsure.end), unsure));
        let (place, _) = ranges.find(|(place, unsure)| can(place, unsure))?;
        let at = if place.0.0 == from.0 { place.1.start.max(from.1) } else { place.1.start };
        let (pv, window) = window_at(&place, at, bytes);
        Some((pv, window.start.max(at)..window.end))
    }

    /// Writes anew what could not be read on a leg (ML8).
    async fn heal(&self, place: &Place, bad: usize) -> Result<(), DiskError> {
        let mut at = place.1.start;
        while at < place.1.end {
            let window = (place.0, at..place.1.end.min(at + WINDOW));
            at = window.1.end;
            let own = Segments::from_slice(&[segment_of(&window)]);
            let (id, begun) = self.window(&own, DiskOpKind::Write, false).await?;
            let outcome = self.heal_parts(&begun, bad).await;
            self.leave(id, &begun);
            outcome?;
        }
        Ok(())
    }

    async fn heal_parts(&self, begun: &Begun, bad: usize) -> Result<(), DiskError> {
        for part in &begun.parts {
            let Part::Mirrored(piece) = part else { continue };
            let mut skipped = 0;
            while skipped < piece.legs[0].len {
                let to_border = SMALLEST - (piece.legs[0].offset + u64::from(skipped)) as u32 % SMALLEST;
                let small = piece.cut(skipped, to_border);
                skipped += small.legs[0].len;
                let can = {
                    let state = self.state.lock();
                    // While a leg leaves, writes come by the place of the other one, too, and do not wait.
                    let is_leaving = !state.table.pieces(&place_of(&small.legs[1])).is_empty();
                    !is_leaving && state.other_leg(&small, bad).is_some()
                };
                if !can || self.read_raw(small.legs[bad]).await.is_ok() {
                    continue;
                }
                let Ok(good) = self.read_raw(small.legs[1 - bad]).await else { continue };
                if self.write_copy(&small, bad, Arc::new(good)).await? == Copied::Whole {
                    let healed = u64::from(small.legs[bad].len);
                    self.state.lock().report_of(small.legs[bad].pv).healed_bytes += healed;
                }
            }
        }
        Ok(())
    }
}
