//! Disks that are calculated: what a record of I/O takes on a disk of the documents' time, in virtual time.
//!
//! Promise: the same record gives the same figure on every machine. Times are whole nanoseconds, and what is calculated in
//! floating point uses only operations whose results IEEE 754 fixes.
//!
//! Assumptions about the system above: it takes no time itself, and it submits a request as soon as all requests are
//! complete that had completed before it in the record. What were independent requests on the fast disk of the record
//! may so become a chain; on a disk with a write cache this matters little.

pub mod hdd;
pub mod ssd;

use crate::trace::Request;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds of virtual time.
pub type Nanos = u64;

/// Number of a request in its record.
pub type Id = usize;

/// A disk in virtual time.
pub trait Disk {
    /// Takes a request. `now` never goes back.
    fn submit(&mut self, now: Nanos, id: Id, request: &Request);
    /// When something happens next, if anything is under way, also in the background.
    fn next(&self) -> Option<Nanos>;
    /// Lets everything happen that is due at `now`, which is what [`Disk::next`] said; gives the requests that are answered.
    fn advance(&mut self, now: Nanos) -> Vec<Id>;
}

/// How a replay went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// When the last request was answered.
    pub answered: Nanos,
    /// When the disk had also written all that it had taken into its cache.
    pub drained: Nanos,
    /// Sum of the response times.
    pub waited: Nanos,
}

/// Sends the record to the disk.
pub fn replay(disk: &mut dyn Disk, requests: &[Request]) -> Replayed {
    // In the order of their completion in the record; a request waits for those that come first here.
    let mut finished: Vec<Id> = (0..requests.len()).collect();
    finished.sort_by_key(|id| (requests[*id].completed, *id));
    let mut done = vec![false; requests.len()];
    let mut begun = vec![0; requests.len()];
    let (mut all_before, mut next, mut now) = (0, 0, 0);
    let mut outcome = Replayed::default();
    loop {
        while all_before < finished.len() && done[finished[all_before]] {
            all_before += 1;
        }
        while let Some(request) = requests.get(next) {
            let needs = finished.partition_point(|id| requests[*id].completed < request.submitted);
            if needs > all_before {
                break;
            }
            begun[next] = now;
            disk.submit(now, next, request);
            next += 1;
        }
        let Some(then) = disk.next() else { break };
        now = now.max(then);
        for id in disk.advance(now) {
            done[id] = true;
            outcome.answered = now;
            outcome.waited += now - begun[id];
        }
        outcome.drained = now;
    }
    assert!(done.iter().all(|done| *done), "a modelled disk left a request unanswered");
    outcome
}

/// Things that happen at their time, in the order in which they were planned where that is the same.
#[derive(Default)]
struct Agenda {
    heap: BinaryHeap<Reverse<(Nanos, u64, Id)>>,
    planned: u64,
}

impl Agenda {
    fn plan(&mut self, at: Nanos, id: Id) {
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, id)));
    }

    fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    fn take(&mut self, now: Nanos, into: &mut Vec<Id>) {
        while self.next().is_some_and(|at| at <= now) {
            into.extend(self.heap.pop().map(|Reverse((_, _, id))| id));
        }
    }
}

/// The time for this many bytes at this rate in bytes per second.
fn transfer(bytes: u64, rate: f64) -> Nanos {
    (bytes as f64 * 1e9 / rate).round() as Nanos
}

/// A stretch of dirty bytes in a cache.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    end: u64,
    /// The epoch of the oldest write in it: a flush of this epoch or a later one waits for it.
    epoch: u64,
}

/// What a write cache holds, merged where it touches.
#[derive(Default)]
struct Dirty {
    stretches: std::collections::BTreeMap<u64, Stretch>,
    bytes: u64,
}

impl Dirty {
    fn add(&mut self, mut start: u64, mut end: u64, mut epoch: u64) {
        let touching: Vec<u64> = self
            .stretches
            .range(..=end)
            .rev()
            .take_while(|(_, stretch)| stretch.end >= start)
            .map(|(start, _)| *start)
            .collect();
        for key in touching {
            if let Some(old) = self.stretches.remove(&key) {
                self.bytes -= old.end - key;
                (start, end, epoch) = (start.min(key), end.max(old.end), epoch.min(old.epoch));
            }
        }
        self.stretches.insert(start, Stretch { end, epoch });
        self.bytes += end - start;
    }

    fn covers(&self, start: u64, end: u64) -> bool {
        self.stretches.range(..=start).next_back().is_some_and(|(_, stretch)| stretch.end >= end)
    }

    /// Takes at most this many bytes from the first stretch at or after a place; if there is no such stretch, from the start of the disk.
    fn take_from(&mut self, place: u64, most: u64) -> Option<(u64, u64, u64)> {
        let (start, stretch) =
            self.stretches.range(place..).next().or_else(|| self.stretches.iter().next()).map(|(s, t)| (*s, *t))?;
        let end = stretch.end.min(start + most);
        self.stretches.remove(&start);
        if end < stretch.end {
            self.stretches.insert(end, stretch);
        }
        self.bytes -= end - start;
        Some((start, end, stretch.epoch))
    }

    fn oldest(&self) -> Option<u64> {
        self.stretches.values().map(|stretch| stretch.epoch).min()
    }
}

#[cfg(test)]
mod tests;
