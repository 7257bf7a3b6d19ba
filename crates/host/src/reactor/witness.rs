//! The last writes to a disk. They distinguish a disk that comes back from an older copy of it.
//!
//! * WT1 For each flush, the last writes that it made durable are known: the place and a checksum of the data. A copy
//!   of the disk from before these writes has other data there.
//! * WT2 When a write to a place begins, the place no longer counts: it is unknown what the disk keeps of an unflushed
//!   write. If no place is left, nothing is proven.
//! * WT3 If several writes to one place were in flight at the same time, it is unknown which one the disk has: that
//!   place no longer counts.

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

/// A sample of the disk's contents: a place and the checksum of [`SAMPLE`] bytes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub offset: u64,
    pub sum: u32,
}

#[derive(Clone, Copy)]
struct Write {
    place: Place,
    len: u64,
    /// The number of the file's changes, once the write is done.
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
    /// The newest change that is a write, and the changes covered by the last flush after a new write.
    written: u64,
    covered: u64,
    flushes: Vec<Flush>,
    durable: Vec<Write>,
}

impl State {
    /// Forgets the sample there. Returns whether a write to it is in flight.
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

    /// A write is done, and the file has this many changes. None: the write failed.
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

    /// A flush begins that covers this many changes.
    pub fn flush(&self, covers: u64) {
        let mut state = self.0.lock();
        if state.written <= state.covered {
            return;
        }
        // The range of an earlier flush proves nothing about this one.
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

    /// The samples that an unchanged disk must have. None: nothing is proven.
    pub fn places(&self) -> Option<Vec<Place>> {
        let state = self.0.lock();
        let places: Vec<Place> = state.durable.iter().map(|write| write.place).collect();
        (!places.is_empty()).then_some(places)
    }
}

#[cfg(test)]
#[path = "witness_test.rs"]
mod tests;
