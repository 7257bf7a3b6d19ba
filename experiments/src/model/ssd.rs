//! A SATA SSD. Its controller takes one command after another, and its flash is read in parallel. It has flushes, and
//! a small buffer for writes that is emptied at the rate of the flash.
//!
//! The defaults are the Intel X25-M G2 of 160 GB (2009), a disk of the documents' time. 65 µs to read, 85 µs to write, 35 000
//! random 4 KiB reads a second and 8600 writes, 250 MB/s sequential reads: AnandTech's table of the drive (article 2829, page 11,
//! August 2009). 100 MB/s sequential writes: AnandTech's table of specifications (article 3965, 2010); at its launch it had 70,
//! and a later firmware brought more. Assumed: 256 KiB of buffer for data; a flush that had anything to write adds 1 ms, one
//! program of a page for the map. Not modelled: garbage collection beyond the published random write rate, reads that wait
//! for a program under way.
//!
//! * A command holds the controller for 1/35 000 s, or for its transfer at 250 MB/s if that is longer.
//! * A read then takes the flash the rest of the 65 µs. A write is answered 85 µs after it came, once the buffer has room.
//! * Emptying takes len / 100 MB/s, and what is left of 1/8600 s when a write does not continue the last one.

use super::{Agenda, Disk, Id, Nanos, transfer};
use crate::trace::{Op, Request};
use std::collections::VecDeque;

/// The published figures of a disk. Bytes a second, commands a second, microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sheet {
    pub name: &'static str,
    pub read_rate: f64,
    pub write_rate: f64,
    pub random_reads: f64,
    pub random_writes: f64,
    pub read_latency: f64,
    pub write_latency: f64,
    pub buffer: u64,
    pub map_commit: f64,
}

/// See the module.
pub const X25_M: Sheet = Sheet {
    name: "SATA SSD",
    read_rate: 250e6,
    write_rate: 100e6,
    random_reads: 35_000.0,
    random_writes: 8600.0,
    read_latency: 65.0,
    write_latency: 85.0,
    buffer: 256 << 10,
    map_commit: 1000.0,
};

/// What a large write is cut into on its way through the buffer.
const PIECE: u64 = 64 << 10;

/// See the module.
pub struct Ssd {
    sheet: Sheet,
    answers: Agenda,
    /// When the controller is free, and when the flash has taken all that was given to it.
    controller: Nanos,
    flash: Nanos,
    /// What is in the buffer: when it leaves, and how much.
    buffer: VecDeque<(Nanos, u64)>,
    held: u64,
    last_end: u64,
    written_since_flush: bool,
}

impl Ssd {
    pub fn new(sheet: Sheet) -> Ssd {
        Ssd {
            sheet,
            answers: Agenda::default(),
            controller: 0,
            flash: 0,
            buffer: VecDeque::new(),
            held: 0,
            last_end: u64::MAX,
            written_since_flush: false,
        }
    }

    fn micros(time: f64) -> Nanos {
        (time * 1e3).round() as Nanos
    }

    /// The controller's time for a command that comes now: when it is through.
    fn command(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let least = Self::micros(1e6 / self.sheet.random_reads);
        let through = now.max(self.controller) + least.max(transfer(bytes, self.sheet.read_rate));
        self.controller = through;
        through
    }

    fn write(&mut self, now: Nanos, offset: u64, len: u64) -> Nanos {
        let least = Self::micros(1e6 / self.sheet.random_reads);
        let jump = Self::micros(1e6 / self.sheet.random_writes).saturating_sub(transfer(4096, self.sheet.write_rate));
        if offset != self.last_end {
            self.flash = self.flash.max(now) + jump;
        }
        self.last_end = offset + len;
        // A large write goes through the buffer piece by piece.
        let mut left = len;
        let mut at = self.command(now, len.min(PIECE));
        while left > 0 {
            let piece = left.min(PIECE);
            if left < len {
                at = at.max(self.controller) + transfer(piece, self.sheet.read_rate);
            }
            // What leaves the buffer first makes room.
            while self.held > 0 && self.held + piece > self.sheet.buffer {
                if let Some((leaves, bytes)) = self.buffer.pop_front() {
                    at = at.max(leaves);
                    self.held -= bytes;
                }
            }
            self.controller = self.controller.max(at);
            self.flash = self.flash.max(at) + transfer(piece, self.sheet.write_rate);
            self.buffer.push_back((self.flash, piece));
            self.held += piece;
            left -= piece;
        }
        self.written_since_flush = true;
        at + Self::micros(self.sheet.write_latency) - least
    }

    fn flush(&mut self, now: Nanos) -> Nanos {
        let through = self.command(now, 0);
        if !std::mem::take(&mut self.written_since_flush) {
            return through;
        }
        self.flash = self.flash.max(through) + Self::micros(self.sheet.map_commit);
        self.last_end = u64::MAX;
        self.flash
    }
}

impl Disk for Ssd {
    fn submit(&mut self, now: Nanos, id: Id, request: &Request) {
        let at = match request.op {
            Op::Read => {
                let through = self.command(now, request.len);
                let least = Self::micros(1e6 / self.sheet.random_reads);
                through + Self::micros(self.sheet.read_latency).saturating_sub(least)
            }
            Op::Write => {
                let answered = self.write(now, request.offset, request.len);
                if request.durable { answered.max(self.flush(now)) } else { answered }
            }
            Op::Flush => self.flush(now),
        };
        self.answers.plan(at, id);
    }

    fn next(&self) -> Option<Nanos> {
        self.answers.next()
    }

    fn advance(&mut self, now: Nanos) -> Vec<Id> {
        let mut answered = Vec::new();
        self.answers.take(now, &mut answered);
        answered
    }
}
