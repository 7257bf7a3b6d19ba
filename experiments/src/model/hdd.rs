//! A disk that turns: seeks, rotation, zones, read-ahead, a write cache that is emptied in the order of places, and flushes.
//!
//! The defaults are the Seagate Barracuda ES ST3750640NS, two of which the first document measured: the Barracuda 7200.10 of
//! 750 GB made for servers. Where each figure is from:
//!
//! * 750 GB, 16 MB of cache, SATA at 300 MB/s: Tech Report's review of the Barracuda 7200.10 (May 2006,
//!   techreport.com/review/10063). Four platters, and so 8 heads: Tom's Hardware (April 2006, news 2688).
//! * 7200 rpm, and so 4.16 ms for half a turn.
//! * Average seek of 8.5 ms (read) and 9.5 ms (write): the typical values in Hitachi's specification of a disk of the same class
//!   (Deskstar 7K1000.C, section 4.5.2.1; manualshelf.com); reads alone, 8.5 ms, also of the T7K250 and 7K500 (Tech Report's reviews
//!   8362 and 8752).
//! * Track to track of 0.8 and 1.0 ms, 78 MB/s at the outside: Seagate's manual as it is remembered; no copy of it was at hand to
//!   compare. What was at hand agrees: Hitachi specifies 1.0 and 1.1 ms for the 7K320, and a Barracuda 7200.10 reads 62 MB/s on the
//!   average of its surface (measured with HD Tune, goughlui.com, ST3320620A); this model, 58.5.
//! * The inside transfers half as fast as the outside: 32.9 of 67.8 MB/s on the T7K250 (the same review).
//!
//! Assumed: full stroke is twice the average seek; 24 zones; 50 µs for a command.
//!
//! * *Seek* over a share x of the cylinders: `t + (f - t) (a sqrt(x) + (1 - a) x)`, with track-to-track t and full stroke f; a
//!   is chosen so that the mean over random pairs is the published average (E sqrt(x) = 8/15, E x = 1/3).
//! * *Rotation*: a byte passes under the head once a turn, at a phase given by the time that streaming from the disk's start
//!   to it would take. Track and cylinder skew are therefore exactly what streaming needs.
//! * *Writes* are answered when they are in the cache; it is emptied when there is nothing to read, ascending from where the
//!   head is and then from the start again. *Flush* waits for all that was written before it. A *durable* write (FUA) waits
//!   for itself, and for what it was merged with.
//! * *Reads* come before emptying, the nearest first; after one the disk reads on until it has something else to do.

use super::{Agenda, Dirty, Disk, Id, Nanos, transfer};
use crate::trace::{Op, Request};

/// The published figures of a disk. Bytes, bytes a second, milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sheet {
    pub name: &'static str,
    pub capacity: u64,
    pub rpm: f64,
    pub track_to_track: [f64; 2],
    pub average_seek: [f64; 2],
    pub full_stroke: [f64; 2],
    pub outer_rate: f64,
    pub inner_rate: f64,
    pub interface_rate: f64,
    pub cache: u64,
    pub command: f64,
}

/// See the module. Reads first, writes second.
pub const BARRACUDA_ES: Sheet = Sheet {
    name: "7200 rpm disk",
    capacity: 750_000_000_000,
    rpm: 7200.0,
    track_to_track: [0.8, 1.0],
    average_seek: [8.5, 9.5],
    full_stroke: [17.0, 19.0],
    outer_rate: 78e6,
    inner_rate: 39e6,
    interface_rate: 300e6,
    cache: 16 << 20,
    command: 0.05,
};

const ZONES: usize = 24;
const HEADS: f64 = 8.0;
/// The most that is read ahead, and the most that is written from the cache before the disk looks around again.
const SEGMENT: u64 = 2 << 20;

#[derive(Clone, Copy, Debug)]
struct Zone {
    /// First byte, first track, and the time of streaming to its start.
    byte: f64,
    track: f64,
    streamed: f64,
    rate: f64,
}

enum Task {
    Read { id: Id, end: u64 },
    Empty { start: u64, end: u64 },
}

struct Waiting {
    id: Id,
    offset: u64,
    len: u64,
    durable: bool,
}

/// See the module.
pub struct Hdd {
    sheet: Sheet,
    zones: Vec<Zone>,
    turn: f64,
    track_bytes: Vec<f64>,
    cylinders: f64,
    /// Share of the square root in the seek curve, for reads and writes.
    bend: [f64; 2],
    answers: Agenda,
    /// When the interface is free.
    interface: Nanos,
    reads: Vec<Waiting>,
    /// Writes for which the cache has no room.
    writes: std::collections::VecDeque<Waiting>,
    /// Flushes and durable writes, with the epoch up to which everything must be on the medium.
    flushes: Vec<(Id, u64)>,
    epoch: u64,
    dirty: Dirty,
    /// What the head does, until when; and the epoch of what is on its way to the medium.
    busy: Option<(Nanos, Task, Option<u64>)>,
    /// Where the head was left, and when.
    head: u64,
    left: Nanos,
    /// The disk reads on from there.
    reading_on: bool,
    now: Nanos,
    after_read: bool,
}

impl Hdd {
    pub fn new(sheet: Sheet) -> Hdd {
        let turn = 60.0 / sheet.rpm;
        let rate =
            |zone: usize| sheet.outer_rate - (sheet.outer_rate - sheet.inner_rate) * (zone as f64 + 0.5) / ZONES as f64;
        let track_bytes: Vec<f64> = (0..ZONES).map(|zone| rate(zone) * turn).collect();
        // All zones have as many tracks.
        let tracks = sheet.capacity as f64 / track_bytes.iter().sum::<f64>();
        let mut zones = Vec::with_capacity(ZONES);
        let mut at = Zone { byte: 0.0, track: 0.0, streamed: 0.0, rate: 0.0 };
        for (n, bytes) in track_bytes.iter().enumerate() {
            at.rate = rate(n);
            zones.push(at);
            at.byte += bytes * tracks;
            at.track += tracks;
            at.streamed += tracks * turn;
        }
        let bend = [0, 1].map(|i| {
            let (t, avg, full) = (sheet.track_to_track[i], sheet.average_seek[i], sheet.full_stroke[i]);
            (((avg - t) / (full - t) - 1.0 / 3.0) / (8.0 / 15.0 - 1.0 / 3.0)).clamp(0.0, 1.0)
        });
        Hdd {
            sheet,
            zones,
            turn,
            track_bytes,
            cylinders: at.track / HEADS,
            bend,
            answers: Agenda::default(),
            interface: 0,
            reads: Vec::new(),
            writes: Default::default(),
            flushes: Vec::new(),
            epoch: 0,
            dirty: Dirty::default(),
            busy: None,
            head: 0,
            left: 0,
            reading_on: false,
            now: 0,
            after_read: false,
        }
    }

    fn zone(&self, byte: u64) -> usize {
        self.zones.partition_point(|zone| zone.byte <= byte as f64).saturating_sub(1)
    }

    /// The cylinder of a byte.
    fn cylinder(&self, byte: u64) -> f64 {
        let n = self.zone(byte);
        let zone = &self.zones[n];
        ((zone.track + (byte as f64 - zone.byte) / self.track_bytes[n]) / HEADS).floor()
    }

    /// Seconds of streaming from the start of the disk to a byte.
    fn streamed(&self, byte: u64) -> f64 {
        let zone = &self.zones[self.zone(byte)];
        zone.streamed + (byte as f64 - zone.byte) / zone.rate
    }

    fn nanos(seconds: f64) -> Nanos {
        (seconds * 1e9).round() as Nanos
    }

    /// The time of moving the arm between two cylinders.
    pub fn seek(&self, from: f64, to: f64, write: bool) -> Nanos {
        let share = (from - to).abs() / self.cylinders;
        if share == 0.0 {
            return 0;
        }
        let i = usize::from(write);
        let (least, most, bend) = (self.sheet.track_to_track[i], self.sheet.full_stroke[i], self.bend[i]);
        Self::nanos((least + (most - least) * (bend * share.sqrt() + (1.0 - bend) * share)) / 1e3)
    }

    /// When a transfer would be over that begins with the arm where it is.
    fn served(&self, now: Nanos, start: u64, end: u64, write: bool) -> Nanos {
        let stream = |byte| Self::nanos(self.streamed(byte));
        let length = stream(end) - stream(start);
        if self.reading_on && !write && start >= self.head && start - self.head < SEGMENT {
            // The disk went on reading: what passed since is in its buffer already.
            let passed = self.left + (stream(end) - stream(self.head));
            if now <= self.left + (stream(self.head + SEGMENT) - stream(self.head)) || end <= self.head + SEGMENT {
                return passed.max(now);
            }
        }
        let arrived = now + self.seek(self.cylinder(self.head), self.cylinder(start), write);
        let turn = Self::nanos(self.turn);
        let wait = (stream(start) % turn + turn - arrived % turn) % turn;
        // Rounding to nanoseconds must not cost a turn.
        let wait = if wait + 8 >= turn { 0 } else { wait };
        arrived + wait + length
    }

    fn cached(&mut self, write: Waiting) {
        let Waiting { id, offset, len, durable } = write;
        self.dirty.add(offset, offset + len, self.epoch);
        if durable {
            self.flushes.push((id, self.epoch));
            self.epoch += 1;
        } else {
            let done = self.transferred(self.now, len);
            self.answers.plan(done, id);
        }
    }

    /// When this many bytes have passed between the cache and the system, one request after another, and the command is over.
    fn transferred(&mut self, now: Nanos, len: u64) -> Nanos {
        self.interface = self.interface.max(now) + transfer(len, self.sheet.interface_rate);
        self.interface + self.command()
    }

    fn command(&self) -> Nanos {
        Self::nanos(self.sheet.command / 1e3)
    }

    /// Gives the head something to do, if it has nothing.
    fn work(&mut self) {
        if self.busy.is_some() {
            return;
        }
        let must_empty = !self.writes.is_empty() || !self.flushes.is_empty();
        let reads_wait = !self.reads.is_empty();
        if reads_wait && !(must_empty && self.after_read && self.dirty.bytes > 0) {
            let nearest = (0..self.reads.len()).min_by_key(|n| {
                let read = &self.reads[*n];
                (self.served(self.now, read.offset, read.offset + read.len, false), *n)
            });
            if let Some(n) = nearest {
                let read = self.reads.remove(n);
                let end = read.offset + read.len;
                let over = self.served(self.now, read.offset, end, false);
                self.busy = Some((over, Task::Read { id: read.id, end }, None));
                self.after_read = true;
            }
            return;
        }
        if let Some((start, end, epoch)) = self.dirty.take_from(self.head, SEGMENT) {
            self.after_read = false;
            let over = self.served(self.now, start, end, true);
            self.reading_on = false;
            self.busy = Some((over, Task::Empty { start, end }, Some(epoch)));
        }
    }

    /// What waited for room or for the medium.
    fn settle(&mut self) {
        while self.writes.front().is_some_and(|write| self.has_room(write.len)) {
            if let Some(write) = self.writes.pop_front() {
                self.cached(write);
            }
        }
        let under_way = self.busy.as_ref().and_then(|(_, _, epoch)| *epoch);
        let oldest = self.dirty.oldest().into_iter().chain(under_way).min().unwrap_or(u64::MAX);
        let done: Vec<Id> = self.flushes.iter().filter(|(_, epoch)| *epoch < oldest).map(|(id, _)| *id).collect();
        self.flushes.retain(|(_, epoch)| *epoch >= oldest);
        let at = self.now + self.command();
        done.into_iter().for_each(|id| self.answers.plan(at, id));
    }

    /// Whether the cache has it, waiting or on its way to the medium.
    fn holds(&self, start: u64, end: u64) -> bool {
        let on_its_way = match &self.busy {
            Some((_, Task::Empty { start: from, end: to }, _)) => *from <= start && end <= *to,
            _ => false,
        };
        on_its_way || self.dirty.covers(start, end)
    }

    fn has_room(&self, len: u64) -> bool {
        self.dirty.bytes == 0 || self.dirty.bytes + len <= self.sheet.cache
    }
}

impl Disk for Hdd {
    fn submit(&mut self, now: Nanos, id: Id, request: &Request) {
        self.now = now;
        let Request { offset, len, durable, .. } = *request;
        // A disk of another size: the record's places are taken as they are, from the outside.
        let offset = offset % self.sheet.capacity;
        let waiting = Waiting { id, offset, len: len.min(self.sheet.capacity - offset), durable };
        match request.op {
            Op::Read if self.holds(offset, offset + len) => {
                let done = self.transferred(now, len);
                self.answers.plan(done, id);
            }
            Op::Read => self.reads.push(waiting),
            Op::Write if self.writes.is_empty() && self.has_room(len) => self.cached(waiting),
            Op::Write => self.writes.push_back(waiting),
            Op::Flush => {
                self.flushes.push((id, self.epoch));
                self.epoch += 1;
            }
        }
        self.settle();
        self.work();
    }

    fn next(&self) -> Option<Nanos> {
        self.answers.next().into_iter().chain(self.busy.as_ref().map(|(over, ..)| *over)).min()
    }

    fn advance(&mut self, now: Nanos) -> Vec<Id> {
        self.now = now;
        if let Some((over, task, _)) = self.busy.take_if(|(over, ..)| *over <= now) {
            match task {
                Task::Read { id, end } => {
                    self.answers.plan(over + self.command(), id);
                    (self.head, self.left, self.reading_on) = (end, over, true);
                }
                Task::Empty { end, .. } => (self.head, self.left, self.reading_on) = (end, over, false),
            }
        }
        self.settle();
        self.work();
        let mut answered = Vec::new();
        self.answers.take(now, &mut answered);
        answered
    }
}
