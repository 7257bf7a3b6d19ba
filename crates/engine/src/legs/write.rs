//! Writes: to both legs, in the order in which they came (ML1, ML2, ML3, ML9).

use super::layer::{Legs, retargeted};
use super::state::{Begun, Turn, Unsure};
use super::table::{Part, Piece};
use crate::disk::{Completer, Completion, DiskError, DiskOp, DiskOpKind, DiskResult, Segment, Segments, start};
use crate::planted;
use smallvec::SmallVec;

impl Legs {
    /// Waits for the turn of a write or discard. From then on it counts as begun, until it [leaves](Self::leave).
    pub(super) async fn turn(&self, id: u64, segments: &Segments, op: DiskOpKind) -> Result<Begun, DiskError> {
        loop {
            let since = self.changed.turn();
            let turn = self.state.lock().turn(id, segments, op);
            match turn {
                Turn::Begun(begun) => return Ok(*begun),
                Turn::Wait => self.changed.changed(since).await,
                Turn::Declare(pieces) => self.declare(&pieces).await?,
                Turn::Refused(error) => return Err(error),
            }
        }
    }

    /// Waits until no write to a place is in flight. None begins until the place is [left](Self::leave). `is_open`: a planted
    /// bug, writes do not wait.
    pub(super) async fn window(
        &self,
        own: &Segments,
        op: DiskOpKind,
        is_open: bool,
    ) -> Result<(u64, Begun), DiskError> {
        let id = self.state.lock().enter(&if is_open { Segments::new() } else { own.clone() });
        match self.turn(id, own, op).await {
            Ok(begun) => Ok((id, begun)),
            Err(error) => {
                self.leave(id, &Begun::default());
                Err(error)
            }
        }
    }

    pub(super) fn leave(&self, id: u64, begun: &Begun) {
        self.state.lock().leave(id, &begun.regions);
        self.changed.notify();
    }

    /// A write or discard, to its end.
    pub(super) async fn write(&self, id: u64, op: DiskOp, begun: Option<(Completion, Begun)>, done: Completer) {
        let (DiskOp::Write { segments, .. } | DiskOp::Discard { segments }) = &op else { return };
        let (own, begun) = match begun {
            Some(begun) => begun,
            None => match self.turn(id, segments, op.kind()).await {
                Ok(begun) if begun.segments.is_empty() => {
                    self.leave(id, &begun);
                    return done.complete(Ok(None));
                }
                Ok(begun) => (start(&*self.disks, retargeted(&op, &begun.segments)), begun),
                Err(error) => {
                    self.leave(id, &Begun::default());
                    // The disk's end of a request: its buffer is free again when it is answered.
                    drop(op);
                    return done.complete(Err(error));
                }
            },
        };
        let mut outcome = own.await;
        if outcome.is_err() && op.kind() == DiskOpKind::Write {
            outcome = self.write_again(&op, &begun).await;
        }
        drop(op);
        self.leave(id, &begun);
        done.complete(outcome);
    }

    /// A write failed. Each part is written once more, by itself: so it is known which leg has it (ML9).
    async fn write_again(&self, op: &DiskOp, begun: &Begun) -> DiskResult {
        let mut failed = Ok(None);
        for part in &begun.parts {
            let outcome = match part {
                Part::Plain(segment) => self.write_part(op, *segment).await,
                Part::Mirrored(piece) => self.write_piece_again(op, piece, begun).await,
            };
            if let (Ok(_), Err(error)) = (&failed, outcome) {
                failed = Err(error);
            }
        }
        failed
    }

    pub(super) async fn write_part(&self, op: &DiskOp, segment: Segment) -> Result<(), DiskError> {
        start(&*self.disks, retargeted(op, &Segments::from_slice(&[segment]))).await.map(drop)
    }

    async fn write_piece_again(&self, op: &DiskOp, piece: &Piece, begun: &Begun) -> Result<(), DiskError> {
        let mut outcomes: SmallVec<[(usize, Result<(), DiskError>); 2]> = SmallVec::new();
        for leg in [0, 1] {
            // Those to which it went: a leg that has returned since is behind.
            if begun.segments.contains(&piece.legs[leg]) {
                let outcome = self.write_part(op, piece.legs[leg]).await;
                outcomes.push((leg, outcome.map_err(|error| DiskError { pv: piece.legs[leg].pv, ..error })));
            }
        }
        let failed = outcomes.iter().find_map(|(leg, outcome)| Some((*leg, outcome.err()?)));
        let replaced = self.write_replacement_again(op, piece, begun, failed.is_some()).await;
        let Some((leg, error)) = failed else { return replaced };
        let staying = replaced.ok().and_then(|()| self.state.lock().leg_beside_replacement(piece));
        if let Some((_, outcome)) = outcomes.iter().find(|(leg, _)| Some(*leg) == staying) {
            return self.end_beside_replacement(*outcome, error);
        }
        if outcomes.len() == 2 {
            let has_it = outcomes.iter().find(|(_, outcome)| outcome.is_ok()).map(|(leg, _)| *leg);
            self.differ(piece, leg, has_it, error);
        }
        Err(error)
    }

    /// A write failed on a leg, and its replacement, which has it, became a leg meanwhile. `staying`: the outcome on the leg
    /// beside it. Without that one the group goes on; what happened on the leg that was left does not matter (ML9, ML12).
    fn end_beside_replacement(&self, staying: Result<(), DiskError>, error: DiskError) -> Result<(), DiskError> {
        match staying {
            Ok(()) if planted::is("left_leg_must_write") => return Err(error),
            Err(error) if !error.is_no_room() && !planted::is("staying_leg_kept") => self.fail(error),
            _ => {}
        }
        staying
    }

    /// A write to a piece failed on a leg: the group goes on without it, or the legs may differ from now on (ML9).
    pub(super) fn differ(&self, piece: &Piece, failed: usize, has_it: Option<usize>, error: DiskError) {
        let has_other = {
            let mut state = self.state.lock();
            let source = Some(has_it.unwrap_or(0));
            if !state.is_current(piece) {
                return;
            }
            state.set_unsure(&piece.place(), Unsure { end: 0, source, is_stuck: false, is_held: false });
            has_it.is_some_and(|other| other != failed && state.is_whole(piece, other))
        };
        if has_other && !error.is_no_room() && !planted::is("failed_leg_kept") {
            self.fail(error);
        }
        self.wake_owner();
    }
}
