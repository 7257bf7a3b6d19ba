//! What a disk was written last: by this one that comes back is told from an older copy of itself.
//!
//! * WT1 Of each flush, the last writes that it made durable are known: where, and a checksum of what. A copy of the disk that was
//!   made before them has something else there.
//! * WT2 A place that is written again counts no more from the beginning of that write on: nobody knows what the disk keeps of a
//!   write that was not flushed. Where none is left, nothing is proven.
//! * WT3 Of writes to one place that were under way at the same time, however many, nobody knows which the disk has: that place
//!   counts no more.

use parking_lot::Mutex;
use rowen_engine::format::record::crc32c;
use rowen_engine::planted;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bytes of which a checksum is kept: the smallest sector.
pub(crate) const SAMPLE: usize = 512;
/// Places of a flush that are kept.
const KEPT: usize = 8;
/// Writes that are remembered until a flush begins.
const REMEMBERED: usize = 32;
/// Writes under way of which all is known. Where there are more, the later ones prove nothing.
const UNDER_WAY: usize = 1024;

/// What is on the disk at a place: the checksum of [`SAMPLE`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub offset: u64,
    pub sum: u32,
}

#[derive(Clone, Copy)]
struct Write {
    place: Place,
    len: u64,
    /// Once it is done, it was so many changes of the file.
    change: u64,
    /// While it was under way something else began that touches it.
    is_raced: bool,
}

impl Write {
    fn touches(&self, offset: u64, len: u64) -> bool {
        self.place.offset < offset + len && offset < self.place.offset + self.len
    }
}

struct Flush {
    covers: u64,
    writes: Vec<Write>,
}

/// The last writes of a disk.
#[derive(Default)]
pub(super) struct Witness(Mutex<State>);

#[derive(Default)]
struct State {
    under_way: Vec<Write>,
    /// Done, in order.
    last: VecDeque<Write>,
    /// The newest change that is a write, and so many the last flush covers that had a new one.
    written: u64,
    covered: u64,
    flushes: Vec<Flush>,
    durable: Vec<Write>,
}

impl State {
    /// What is there is not known any more. Whether a write to it is under way.
    fn forget(&mut self, offset: u64, len: u64) -> bool {
        let mut is_raced = false;
        for write in self.under_way.iter_mut().filter(|write| write.touches(offset, len)) {
            (is_raced, write.is_raced) = (true, true);
        }
        self.last.retain(|write| !write.touches(offset, len));
        for flush in &mut self.flushes {
            flush.writes.retain(|write| !write.touches(offset, len));
        }
        self.durable.retain(|write| !write.touches(offset, len));
        is_raced
    }
}

impl Witness {
    /// A write of these bytes begins.
    pub fn write(&self, offset: u64, len: u64, bytes: &[u8]) {
        let sum = crc32c(&bytes[..bytes.len().min(SAMPLE)]);
        let mut state = self.0.lock();
        let is_raced = state.forget(offset, len) && !planted::is("races_unseen");
        if state.under_way.len() < UNDER_WAY {
            state.under_way.push(Write { place: Place { offset, sum }, len, change: 0, is_raced });
        }
    }

    /// A discard begins.
    pub fn discard(&self, offset: u64, len: u64) {
        self.0.lock().forget(offset, len);
    }

    /// A write is done, and is so many changes of the file; none: it failed.
    pub fn done(&self, offset: u64, change: Option<u64>) {
        let mut state = self.0.lock();
        state.written = state.written.max(change.unwrap_or(0));
        // Of several at one place each is raced.
        let Some(at) = state.under_way.iter().position(|write| write.place.offset == offset) else { return };
        let write = state.under_way.swap_remove(at);
        let Some(change) = change.filter(|_| !write.is_raced) else { return };
        if state.last.len() == REMEMBERED {
            state.last.pop_front();
        }
        state.last.push_back(Write { change, ..write });
    }

    /// A flush begins that covers so many changes.
    pub fn flush(&self, covers: u64) {
        let mut state = self.0.lock();
        if state.written <= state.covered {
            return;
        }
        // What an earlier flush covered proves nothing of this one.
        let before = std::mem::replace(&mut state.covered, covers);
        let is_covered = |write: &&Write| before < write.change && write.change <= covers;
        let writes = state.last.iter().rev().filter(is_covered).take(KEPT).copied().collect();
        state.flushes.push(Flush { covers, writes });
    }

    /// It is done.
    pub fn flushed(&self, covers: u64) {
        let mut state = self.0.lock();
        while let Some(at) = state.flushes.iter().position(|flush| flush.covers <= covers) {
            state.durable = state.flushes.remove(at).writes;
        }
    }

    /// Where a disk that is as this one left has what; none: nothing is proven.
    pub fn places(&self) -> Option<Vec<Place>> {
        let state = self.0.lock();
        let places: Vec<Place> = state.durable.iter().map(|write| write.place).collect();
        (!places.is_empty()).then_some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that flushes all that it wrote.
    fn written(witness: &Witness, offsets: impl IntoIterator<Item = u64>, mut change: u64) -> u64 {
        for offset in offsets {
            change += 1;
            witness.write(offset, 4096, &[change as u8; 4096]);
            witness.done(offset, Some(change));
        }
        witness.flush(change);
        witness.flushed(change);
        change
    }

    fn offsets(witness: &Witness) -> Vec<u64> {
        let mut offsets: Vec<u64> =
            witness.places().unwrap_or_default().into_iter().map(|place| place.offset).collect();
        offsets.sort_unstable();
        offsets
    }

    #[test]
    fn the_last_writes_of_the_last_flush_are_known() {
        let witness = Witness::default();
        assert_eq!(witness.places(), None);
        let change = written(&witness, (0..100).map(|at| at * 4096), 0);
        assert_eq!(offsets(&witness), (92..100).map(|at| at * 4096).collect::<Vec<_>>());
        let change = written(&witness, [1 << 20], change);
        assert_eq!(offsets(&witness), [1 << 20], "of that flush alone");
        assert_eq!(witness.places().unwrap()[0].sum, crc32c(&[change as u8; SAMPLE]));
        // A flush of nothing new proves what the one before did.
        written(&witness, [], change);
        assert_eq!(offsets(&witness), [1 << 20]);
    }

    #[test]
    fn what_is_written_again_or_was_not_flushed_proves_nothing() {
        let witness = Witness::default();
        let change = written(&witness, [0, 4096, 8192], 0);
        witness.write(4096, 512, &[9; 512]);
        assert_eq!(offsets(&witness), [0, 8192]);
        witness.done(4096, None);
        witness.discard(8192, 4096);
        assert_eq!(offsets(&witness), [0]);
        // Written, and not flushed.
        witness.write(1 << 20, 4096, &[1; 4096]);
        witness.done(1 << 20, Some(change + 1));
        assert_eq!(offsets(&witness), [0]);
        witness.write(0, 4096, &[1; 4096]);
        assert_eq!(witness.places(), None);
    }

    #[test]
    fn of_two_writes_to_one_place_at_once_nobody_knows_the_last() {
        let witness = Witness::default();
        witness.write(0, 4096, &[1; 4096]);
        witness.write(0, 4096, &[2; 4096]);
        witness.done(0, Some(1));
        witness.done(0, Some(2));
        witness.flush(2);
        witness.flushed(2);
        assert_eq!(witness.places(), None);
    }

    /// WT3. The first of three is done after the last has begun, and may be what the disk has.
    #[test]
    fn of_three_writes_to_one_place_none_is_known() {
        let witness = Witness::default();
        (1..=3).for_each(|byte| witness.write(0, 4096, &[byte; 4096]));
        (1..=3).for_each(|change| witness.done(0, Some(change)));
        witness.flush(3);
        witness.flushed(3);
        assert_eq!(witness.places(), None);
        // Once they are over, the next one is.
        assert_eq!(written(&witness, [0], 3), 4);
        assert_eq!(offsets(&witness), [0]);
    }

    /// WT3, also behind more writes than are remembered.
    #[test]
    fn a_slow_write_is_not_forgotten_behind_many_others() {
        let witness = Witness::default();
        witness.write(0, 4096, &[1; 4096]);
        let change = written(&witness, (1..100).map(|at| at * 4096), 0);
        witness.write(0, 4096, &[2; 4096]);
        witness.done(0, Some(change + 1));
        witness.done(0, Some(change + 2));
        witness.flush(change + 2);
        witness.flushed(change + 2);
        assert_eq!(witness.places(), None);
    }

    #[test]
    fn a_witness_that_sees_no_races_is_found() {
        planted::must_be_found("races_unseen", of_three_writes_to_one_place_none_is_known);
    }
}
