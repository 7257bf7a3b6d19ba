//! A leg is replaced by a copy on another physical volume while both legs are in use (ML12).

use super::layer::Legs;
use super::state::Begun;
use super::table::{Part, Piece, whole};
use super::types::{Leg, MirroredRun};
use crate::disk::{DiskError, DiskOp, DiskOpKind, PageBuf, Segment, Segments, start};
use crate::planted;
use std::sync::Arc;

/// EBUSY: the legs of a mirror are not equal.
const BUSY: i32 = 16;
/// What is read together if neither leg can give all of it.
const SMALLEST: u32 = 4096;

/// These runs, with a replacement for a leg of one of their parts.
pub fn with_replacement(runs: &[MirroredRun], part: &MirroredRun, replacement: Leg) -> Vec<MirroredRun> {
    let mut new = Vec::with_capacity(runs.len() + 2);
    for run in runs {
        let skipped = part.legs[0].offset.wrapping_sub(run.legs[0].offset);
        if run.legs[0].pv != part.legs[0].pv || skipped >= run.bytes {
            new.push(*run);
            continue;
        }
        let behind = skipped + part.bytes;
        let parts = [(0, skipped), (behind, run.bytes - behind)];
        new.extend(parts.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(at, bytes)| run.cut(at, bytes)));
        new.push(MirroredRun { replacement: Some(replacement), ..run.cut(skipped, part.bytes) });
    }
    new
}

impl Legs {
    /// Copies these bytes of a first leg to the replacement. No write to them is in flight meanwhile.
    ///
    /// # Errors
    /// They cannot be read, or not be written there, or the legs are not equal.
    pub async fn copy_to_replacement(&self, from: Segment) -> Result<(), DiskError> {
        let own = Segments::from_slice(&[from]);
        let is_open = planted::is("replacement_copied_without_window");
        let (id, begun) = self.window(&own, DiskOpKind::Write, is_open).await?;
        let outcome = self.copy_parts_to_replacement(&begun).await;
        self.leave(id, &begun);
        outcome
    }

    async fn copy_parts_to_replacement(&self, begun: &Begun) -> Result<(), DiskError> {
        for part in &begun.parts {
            let Part::Mirrored(piece @ Piece { replacement: Some(to), .. }) = part else { continue };
            let unsure = self.state.lock().unsure_at(&piece.place()).next();
            if let Some((place, _)) = unsure {
                let error = DiskError { op: DiskOpKind::Read, pv: place.0, offset: place.1.start, errno: BUSY };
                return Err(error);
            }
            let buf = match self.read_whole(piece).await {
                Ok(buf) => buf,
                Err(_) => self.read_in_parts(piece).await?,
            };
            let segments = Segments::from_slice(&[Segment { at: 0, ..*to }]);
            start(&*self.disks, DiskOp::Write { segments, buf: Arc::new(buf) }).await?;
        }
        Ok(())
    }

    async fn read_whole(&self, piece: &Piece) -> Result<PageBuf, DiskError> {
        match self.read_raw(piece.legs[0]).await {
            Ok(buf) => Ok(buf),
            Err(_) => self.read_raw(piece.legs[1]).await,
        }
    }

    /// Each leg may have some of it.
    async fn read_in_parts(&self, piece: &Piece) -> Result<PageBuf, DiskError> {
        let len = piece.legs[0].len;
        let (mut all, mut skipped) = (PageBuf::zeroed(len as usize), 0);
        while skipped < len {
            let part = piece.cut(skipped, SMALLEST);
            let read = self.read_whole(&part).await?;
            let (at, bytes) = (skipped as usize, part.legs[0].len as usize);
            all.as_mut_slice()[at..at + bytes].copy_from_slice(&read.as_slice()[..bytes]);
            skipped += part.legs[0].len;
        }
        Ok(all)
    }

    /// From now on a table that names the replacement may be on a disk.
    ///
    /// # Errors
    /// The replacement did not take a write, and may be given up.
    pub fn count_replacement(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        match state.replacing.failed {
            Some(error) if !planted::is("replacement_half_written") => Err(error),
            _ => {
                state.replacing.is_counted = true;
                Ok(())
            }
        }
    }

    /// Whether the legs of a run differ, or one of its disks lacks something anywhere, and cannot be made equal.
    pub fn is_stuck(&self, run: &MirroredRun) -> bool {
        let state = self.state.lock();
        let is_hopeless = |run: &MirroredRun| {
            let mut unsure = state.unsure_at(&whole(run));
            unsure.any(|(_, unsure)| unsure.is_stuck || unsure.source.is_none())
        };
        let behind = run.legs.iter().filter(|leg| state.pvs.behind.has(usize::from(leg.pv.0)));
        is_hopeless(run) || behind.into_iter().any(|leg| state.runs_of(leg.pv).any(is_hopeless))
    }

    /// Whether it is too late to give the replacement up.
    pub fn is_replacement_counted(&self) -> bool {
        self.state.lock().replacing.is_counted
    }

    /// A write failed somewhere. It is written to the replacement once more. `has_leg_failed`: a leg does not have it.
    pub(super) async fn write_replacement_again(
        &self,
        op: &DiskOp,
        piece: &Piece,
        begun: &Begun,
        has_leg_failed: bool,
    ) -> Result<(), DiskError> {
        let Some(replacement) = piece.replacement.filter(|place| begun.segments.contains(place)) else { return Ok(()) };
        let written = self.write_part(op, replacement).await;
        let written = written.map_err(|error| DiskError { pv: replacement.pv, ..error });
        if written.is_ok() && !has_leg_failed {
            return Ok(());
        }
        let is_counted = {
            let mut state = self.state.lock();
            state.replacing.missed.push(piece.place());
            let error = written.err().unwrap_or(DiskError {
                op: DiskOpKind::Write,
                pv: replacement.pv,
                offset: replacement.offset,
                errno: BUSY,
            });
            state.replacing.failed.get_or_insert(error);
            state.replacing.is_counted
        };
        match written {
            Err(error) if is_counted && !planted::is("replacement_need_not_write") => {
                if !error.is_no_room() && !has_leg_failed {
                    self.fail(error);
                }
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
