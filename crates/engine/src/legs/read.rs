//! Reads: from one leg, and from the other one if it fails (ML6, ML8).

use super::layer::Legs;
use super::table::{Part, Parts, Piece, Place};
use crate::disk::{
    Completer, Completion, DiskError, DiskOp, DiskOpKind, DiskResult, PageBuf, Segment, Segments, start,
};
use crate::planted;
use smallvec::SmallVec;

/// What is read together if neither leg can give all of it.
const SMALLEST: u32 = 4096;

/// The places from which a request is read, and the leg of each part.
pub struct Plan {
    parts: Parts,
    legs: SmallVec<[usize; 2]>,
    segments: Segments,
}

/// Why a read has not begun.
pub enum NotYet {
    /// This must be copied first.
    Copy(Place),
    Refused(DiskError),
}

/// A read in flight.
pub struct Reading {
    plan: Plan,
    own: Completion,
    kept: Vec<(usize, Vec<u8>)>,
    capacity: usize,
}

impl Legs {
    /// The places of a read, if it need not wait.
    pub(super) fn begin_read(&self, segments: &Segments) -> Result<Plan, NotYet> {
        let mut state = self.state.lock();
        let parts = state.split(segments);
        let mut plan = Plan { parts: Parts::new(), legs: SmallVec::new(), segments: Segments::new() };
        for part in &parts {
            let (leg, segment) = match part {
                Part::Plain(segment) => (0, *segment),
                Part::Mirrored(piece) => {
                    if let Some(error) = state.refusal(piece, DiskOpKind::Read) {
                        return Err(NotYet::Refused(error));
                    }
                    match state.choose(piece) {
                        Ok(leg) => (leg, piece.legs[leg]),
                        Err(place) => match state.stopped {
                            Some(error) => return Err(NotYet::Refused(error)),
                            None => return Err(NotYet::Copy(place)),
                        },
                    }
                }
            };
            plan.legs.push(leg);
            plan.segments.push(segment);
        }
        for segment in &plan.segments {
            *state.reading.entry(segment.pv.0).or_default() += u64::from(segment.len);
        }
        Ok(Plan { parts, ..plan })
    }

    fn unload(&self, plan: &Plan) {
        let mut state = self.state.lock();
        for segment in &plan.segments {
            let load = state.reading.entry(segment.pv.0).or_default();
            *load = load.saturating_sub(u64::from(segment.len));
        }
    }

    pub(super) fn start_read(&self, plan: Plan, segments: &Segments, buf: PageBuf) -> Reading {
        // A read that fails keeps its buffer.
        let (kept, capacity) = (gaps(segments, &buf), buf.capacity());
        let own = start(&*self.disks, DiskOp::Read { segments: plan.segments.clone(), buf });
        Reading { plan, own, kept, capacity }
    }

    /// A read, to its end.
    pub(super) async fn read(&self, segments: Segments, begun: Result<Reading, (NotYet, PageBuf)>, done: Completer) {
        let reading = match begun {
            Ok(reading) => reading,
            Err((mut next, buf)) => loop {
                match next {
                    NotYet::Copy(place) => {
                        if let Err(error) = self.copy_for_read(&place, &segments).await {
                            return done.complete(Err(error));
                        }
                    }
                    NotYet::Refused(error) => return done.complete(Err(error)),
                }
                match self.begin_read(&segments) {
                    Ok(plan) => break self.start_read(plan, &segments, buf),
                    Err(not_yet) => next = not_yet,
                }
            },
        };
        let Reading { plan, own, kept, capacity } = reading;
        let outcome = own.await;
        self.unload(&plan);
        done.complete(match outcome {
            Err(_) => self.read_again(&plan, capacity, kept).await,
            outcome => outcome,
        });
    }

    /// A read failed. Each part is read once more by itself, and from the other leg if that fails again (ML8).
    async fn read_again(&self, plan: &Plan, capacity: usize, kept: Vec<(usize, Vec<u8>)>) -> DiskResult {
        let mut buf = PageBuf::zeroed(capacity);
        kept.into_iter().for_each(|(at, bytes)| buf.as_mut_slice()[at..at + bytes.len()].copy_from_slice(&bytes));
        for (part, leg) in plan.parts.iter().zip(&plan.legs) {
            match part {
                Part::Plain(segment) => self.read_into(*segment, &mut buf).await?,
                Part::Mirrored(piece) => self.read_piece(piece, *leg, &mut buf).await?,
            }
        }
        Ok(Some(buf))
    }

    /// Reads a part of a request by itself.
    async fn read_into(&self, segment: Segment, buf: &mut PageBuf) -> Result<(), DiskError> {
        let read = self.read_raw(segment).await?;
        let (at, len) = (segment.at as usize, segment.len as usize);
        buf.as_mut_slice()[at..at + len].copy_from_slice(&read.as_slice()[..len]);
        Ok(())
    }

    /// The bytes of a place of a disk.
    pub(super) async fn read_raw(&self, segment: Segment) -> Result<PageBuf, DiskError> {
        let segments = Segments::from_slice(&[Segment { at: 0, ..segment }]);
        let read = start(&*self.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(segment.len as usize) }).await;
        let error = DiskError { op: DiskOpKind::Read, pv: segment.pv, offset: segment.offset, errno: 5 };
        read?.ok_or(error)
    }

    async fn read_piece(&self, piece: &Piece, leg: usize, buf: &mut PageBuf) -> Result<(), DiskError> {
        if self.read_either(piece, leg, buf).await.is_ok() {
            return Ok(());
        }
        // Each leg may have some of it.
        let mut skipped = 0;
        while skipped < piece.legs[0].len {
            let to_border = SMALLEST - (piece.legs[0].offset + u64::from(skipped)) as u32 % SMALLEST;
            let small = piece.cut(skipped, to_border);
            self.read_either(&small, leg, buf).await?;
            skipped += small.legs[0].len;
        }
        Ok(())
    }

    async fn read_either(&self, piece: &Piece, leg: usize, buf: &mut PageBuf) -> Result<(), DiskError> {
        let Err(error) = self.read_into(piece.legs[leg], buf).await else { return Ok(()) };
        let other = if planted::is("other_leg_not_asked") { None } else { self.state.lock().other_leg(piece, leg) };
        let Some(other) = other else { return Err(error) };
        self.read_into(piece.legs[other], buf).await.map_err(|_| error)?;
        self.state.lock().note_unreadable(piece, leg);
        self.wake_owner();
        Ok(())
    }
}

/// The parts of a buffer that a read leaves as they are.
fn gaps(segments: &Segments, buf: &PageBuf) -> Vec<(usize, Vec<u8>)> {
    let mut filled: SmallVec<[(usize, usize); 4]> =
        segments.iter().map(|segment| (segment.at as usize, (segment.at + segment.len) as usize)).collect();
    filled.push((buf.capacity(), buf.capacity()));
    filled.sort_unstable();
    let (mut at, mut gaps) = (0, Vec::new());
    for (from, to) in filled {
        if at < from && buf.as_slice()[at..from].iter().any(|byte| *byte != 0) {
            gaps.push((at, buf.as_slice()[at..from].to_vec()));
        }
        at = at.max(to);
    }
    gaps
}
