//! Legs that should be equal are compared (ML10).

use super::layer::Legs;
use super::state::Unsure;
use super::table::{Part, Piece, place_of};
use crate::disk::{DiskError, DiskOp, DiskOpKind, PageBuf, Segment, Segments, start};
use crate::planted;

/// What is counted as one, in bytes.
const BLOCK: u32 = 4096;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The places on first legs whose other leg has something else.
    pub places: Vec<Segment>,
    /// Bytes that one leg cannot read.
    pub unreadable: u64,
    /// Bytes that were not compared: one leg is out or behind, or both are to be made equal already.
    pub skipped: u64,
}

impl Legs {
    /// Compares the legs of a place of a first leg, whose contents must be in use: what was never written may differ.
    pub async fn compare(&self, place: Segment) -> Result<Differences, DiskError> {
        let own = Segments::from_slice(&[place]);
        // A discard may begin whatever state the legs are in, and opens no region.
        let is_open = planted::is("compared_without_window");
        let (id, begun) = self.window(&own, DiskOpKind::Discard, is_open).await?;
        let mut found = Differences::default();
        for part in &begun.parts {
            if let Part::Mirrored(piece) = part {
                self.compare_piece(piece, &mut found).await;
            }
        }
        self.leave(id, &begun);
        Ok(found)
    }

    /// Both legs of this place of a first leg get what the first one has, in the background.
    pub fn make_equal(&self, place: &Segment) {
        let how = Unsure { end: 0, source: Some(0), is_stuck: false, is_held: false };
        self.state.lock().set_unsure(&place_of(place), how);
        self.wake_owner();
    }

    async fn compare_piece(&self, piece: &Piece, found: &mut Differences) {
        let len = piece.legs[0].len;
        let is_possible = {
            let state = self.state.lock();
            (0..2).all(|leg| state.is_whole(piece, leg)) && state.unsure_at(&piece.place()).next().is_none()
        };
        if !is_possible {
            found.skipped += u64::from(len);
            return;
        }
        match self.read_legs(piece).await {
            [Ok(first), Ok(second)] => note_differences(piece, &first, &second, &mut found.places),
            _ => self.compare_blocks(piece, found).await,
        }
    }

    /// A leg cannot be read as a whole. What it cannot read is written anew from the other one (ML8).
    async fn compare_blocks(&self, piece: &Piece, found: &mut Differences) {
        let mut skipped = 0;
        while skipped < piece.legs[0].len {
            let block = piece.cut(skipped, BLOCK.min(piece.legs[0].len - skipped));
            skipped += block.legs[0].len;
            match self.read_legs(&block).await {
                [Ok(first), Ok(second)] => note_differences(&block, &first, &second, &mut found.places),
                [first, second] => {
                    found.unreadable += u64::from(block.legs[0].len);
                    let mut state = self.state.lock();
                    for (leg, _) in [first, second].iter().enumerate().filter(|(_, read)| read.is_err()) {
                        state.note_unreadable(&block, leg);
                    }
                    drop(state);
                    self.wake_owner();
                }
            }
        }
    }

    /// Both legs of a piece, read at once.
    async fn read_legs(&self, piece: &Piece) -> [Result<PageBuf, DiskError>; 2] {
        let reads = piece.legs.map(|leg| {
            let segments = Segments::from_slice(&[Segment { at: 0, ..leg }]);
            (leg, start(&*self.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(leg.len as usize) }))
        });
        let [(first, own), (second, other)] = reads;
        let buffer = |leg: Segment, read: Result<Option<PageBuf>, DiskError>| {
            read?.ok_or(super::state::eio(DiskOpKind::Read, leg.pv, leg.offset))
        };
        [buffer(first, own.await), buffer(second, other.await)]
    }
}

/// The places of a first leg whose blocks are not those of the other one. Neighbours are one place.
fn note_differences(piece: &Piece, first: &PageBuf, second: &PageBuf, places: &mut Vec<Segment>) {
    let (leg, len) = (piece.legs[0], piece.legs[0].len as usize);
    let blocks = first.as_slice()[..len].chunks(BLOCK as usize).zip(second.as_slice()[..len].chunks(BLOCK as usize));
    for (number, (one, _)) in blocks.enumerate().filter(|(_, (one, other))| one != other) {
        let (offset, len) = (leg.offset + number as u64 * u64::from(BLOCK), one.len() as u32);
        match places.last_mut() {
            Some(last) if last.pv == leg.pv && last.offset + u64::from(last.len) == offset => last.len += len,
            _ => places.push(Segment { pv: leg.pv, offset, at: 0, len }),
        }
    }
}
