//! The life of a request. It is checked and counted, its commands wait in the cache, they are carried out in any order,
//! also in part, and it completes.

use super::cache::CachedWrite;
use super::image::Bytes;
use super::{Counts, Moment, State, WriteFault, is_metadata, no_room};
use crate::stamp::{self, Found};
use rowen_engine::disk::{DiskError, DiskOp, DiskOpKind, DiskResult, PageBuf, PvIndex, Segment, Segments};
use std::sync::Arc;

/// A request in flight.
pub(super) struct Ticket {
    fails: bool,
    /// The reason for which it fails.
    no_room: Option<DiskError>,
    work: Work,
}

enum Work {
    Read(Segments, PageBuf),
    /// The contents for a read that sees the disk as it was at its submission.
    Done(DiskResult),
    /// Commands of this write, first and last.
    Write(u64, u64, (PvIndex, u64)),
    /// A flush covers all commands that were completed by this event.
    Flush(u64),
}

impl State {
    /// Checks that the engine keeps its side of the contract.
    pub(super) fn check(&self, op: &DiskOp) {
        let (segments, held) = match op {
            DiskOp::Read { segments, buf } => (segments, Some(buf.capacity())),
            DiskOp::Write { segments, buf } => (segments, Some(buf.capacity())),
            DiskOp::Discard { segments } => (segments, None),
            DiskOp::Flush => return,
        };
        assert!(!segments.is_empty(), "a request without segments");
        for segment in segments {
            let pv = self.current.geometry(segment.pv);
            let (offset, len) = (segment.offset, u64::from(segment.len));
            assert!(len > 0 && offset + len <= pv.size, "{:?} of {segment:?} is outside of {pv:?}", op.kind());
            let aligned = (offset | len).is_multiple_of(u64::from(pv.sector));
            assert!(aligned, "{:?} of {segment:?} is not in whole sectors of {}", op.kind(), pv.sector);
            let inside = held.is_none_or(|held| segment.at as usize + segment.len as usize <= held);
            assert!(inside, "{segment:?} is outside of its buffer of {held:?} bytes");
        }
    }

    pub(super) fn event(&mut self) {
        if self.moments.is_some() {
            let moment = self.moment();
            if let Some(moments) = &mut self.moments {
                moments.push(moment);
            }
        }
        self.events += 1;
    }

    pub(super) fn moment(&self) -> Moment {
        Moment {
            event: self.events,
            durable: self.durable.clone(),
            current: self.current.clone(),
            cache: self.cache.clone(),
            under_way: self.under_way.clone(),
            next_command: self.commands,
        }
    }

    pub(super) fn begin(&mut self, op: DiskOp, number: u64) -> Ticket {
        let kind = op.kind();
        let hit = |fault: Option<(DiskOpKind, u64)>, when: &dyn Fn(u64) -> bool| {
            fault.is_some_and(|(of, at)| of == kind && when(at))
        };
        let fails = hit(self.faults.fail, &|at| at == number)
            || hit(self.faults.fail_from, &|at| number >= at)
            || self.faults.away.is_some_and(|pv| op.touches(pv))
            || self.faults.is_broken(&op);
        let mut no_room_for = None;
        if let Some(room) = &mut self.room {
            match &op {
                DiskOp::Write { segments, .. } => no_room_for = room.take_for_write(segments).err(),
                DiskOp::Discard { segments } => room.give_back(segments),
                DiskOp::Read { .. } | DiskOp::Flush => {}
            }
        }
        let fails = fails || no_room_for.is_some();
        let work = match op {
            DiskOp::Read { segments, buf } => {
                for segment in &segments {
                    self.count(segment, |counts, len| (counts.reads += 1, counts.read_bytes += len));
                }
                if self.faults.eager_reads && self.rng.one_in(2) {
                    Work::Done(self.finish_read(&segments, buf, fails))
                } else {
                    Work::Read(segments, buf)
                }
            }
            DiskOp::Write { segments, buf } => self.begin_write(&segments, &buf, number, fails),
            DiskOp::Discard { segments } => self.begin_discard(&segments),
            DiskOp::Flush => {
                self.total.flushes += 1;
                self.counts.iter_mut().for_each(|counts| counts.flushes += 1);
                let covers = self.events;
                self.event();
                Work::Flush(covers)
            }
        };
        Ticket { fails, no_room: no_room_for.as_ref().map(no_room), work }
    }

    pub(super) fn count<T>(&mut self, segment: &Segment, add: impl Fn(&mut Counts, u64) -> T) {
        let len = u64::from(segment.len);
        add(&mut self.total, len);
        add(&mut self.counts[segment.pv.0 as usize], len);
    }

    fn begin_write(&mut self, segments: &Segments, buf: &PageBuf, number: u64, fails: bool) -> Work {
        let failing = segments.iter().find(|segment| self.faults.away == Some(segment.pv)).unwrap_or(&segments[0]);
        let place = (failing.pv, failing.offset);
        let first = self.commands;
        let mishap = self.mishap(segments, buf);
        let lost = self.lose_data(segments, buf);
        for (at, segment) in segments.iter().enumerate() {
            self.count(segment, |counts, len| (counts.writes += 1, counts.written_bytes += len));
            let bytes: Arc<[u8]> = buf.as_slice()[segment.at as usize..][..segment.len as usize].into();
            if let Some((_, from, to)) = lost.filter(|(of, ..)| *of == at) {
                let end = segment.offset + u64::from(segment.len);
                for (first, last) in
                    [(segment.offset, from), (to, end)].into_iter().filter(|(first, last)| first < last)
                {
                    let skipped = (first - segment.offset) as usize;
                    self.give(segment.pv, first, (last - first) as usize, Bytes::Given(bytes.clone(), skipped));
                }
                continue;
            }
            let mut offset = segment.offset;
            match mishap.filter(|(of, _)| *of == at) {
                Some((_, WriteFault::Lost)) => continue,
                Some((_, WriteFault::Misdirected(shift)))
                    if offset + shift + u64::from(segment.len) <= self.current.geometry(segment.pv).size =>
                {
                    offset += shift;
                }
                _ => {}
            }
            if let Some((at, shift)) = self.faults.misdirected
                && at == number
            {
                offset += shift;
            }
            self.give(segment.pv, offset, segment.len as usize, Bytes::Given(bytes, 0));
        }
        self.event();
        let last = self.commands;
        if self.faults.lost_write == Some(number) {
            self.under_way.retain(|piece| piece.command < first);
        } else {
            // Some disks are quick: a first part may be carried out at once, and be seen by reads.
            let early = if fails { 1 } else { 3 };
            for command in first..last {
                if self.rng.one_in(early) {
                    self.carry_out_part(command);
                }
            }
            if fails {
                self.under_way.retain(|piece| piece.command < first);
            }
        }
        Work::Write(first, last, place)
    }

    /// The segment of this write that gets a fault, and the fault, if the write is metadata and one is due.
    fn mishap(&mut self, segments: &Segments, buf: &PageBuf) -> Option<(usize, WriteFault)> {
        let bytes = &buf.as_slice()[segments[0].at as usize..];
        let is_next = is_metadata(bytes) && !bytes.starts_with(b"ROWENJRN");
        let mishap = if is_next { self.faults.mishap.take() } else { None };
        mishap.map(|mishap| (self.rng.below(segments.len() as u64) as usize, mishap))
    }

    /// The segment, and its bytes that are lost, if this is the data for that fault.
    fn lose_data(&mut self, segments: &Segments, buf: &PageBuf) -> Option<(usize, u64, u64)> {
        self.faults.lost_data.as_ref()?;
        let sectors = buf.as_slice().chunks_exact(stamp::SECTOR);
        let first = (0u64..).zip(sectors).find_map(|(at, bytes)| match stamp::read(bytes) {
            Found::Stamp { sector, .. } => sector.checked_sub(at),
            _ => None,
        })?;
        let wild = self.faults.lost_data.take()?;
        wild.lock().extend(first..first + (buf.capacity() / stamp::SECTOR) as u64);
        let at = self.rng.below(segments.len() as u64) as usize;
        let segment = &segments[at];
        let end = segment.offset + u64::from(segment.len);
        let block = self.rng.range(segment.offset / 4096, (end - 1) / 4096) * 4096;
        Some((at, block.max(segment.offset), (block + 4096).min(end)))
    }

    fn begin_discard(&mut self, segments: &Segments) -> Work {
        let place = (segments[0].pv, segments[0].offset);
        let first = self.commands;
        for segment in segments {
            self.count(segment, |counts, _| counts.discards += 1);
            // Discarded blocks hold anything: the old contents, zeros, or rubbish.
            let value = match self.rng.below(3) {
                0 => continue,
                1 if segment.len <= 1 << 20 => 0xDE,
                _ => 0,
            };
            self.give(segment.pv, segment.offset, segment.len as usize, Bytes::Fill(value));
        }
        self.event();
        Work::Write(first, self.commands, place)
    }

    pub(super) fn give(&mut self, pv: PvIndex, offset: u64, len: usize, bytes: Bytes) {
        let command = self.commands;
        self.commands += 1;
        self.under_way.push(CachedWrite { command, pv, offset, len, bytes, completed: None });
    }

    /// Carries out some leading sectors of a command.
    pub(super) fn carry_out_part(&mut self, command: u64) {
        let Some(at) = self.under_way.iter().position(|piece| piece.command == command) else { return };
        let piece = self.under_way[at].clone();
        let sector = u64::from(self.current.geometry(piece.pv).sector);
        let sectors = (piece.len as u64).div_ceil(sector);
        let split = piece.offset + self.rng.range(0, sectors) * sector;
        let (done, left) = piece.split(split);
        match left {
            Some(left) => self.under_way[at] = left,
            None => drop(self.under_way.remove(at)),
        }
        if let Some(done) = done {
            self.carry_out(done);
        }
    }

    fn carry_out(&mut self, piece: CachedWrite) {
        if let Some(keep) = &self.keep {
            if keep(piece.pv, piece.offset) {
                self.current.apply(piece.pv, piece.offset, piece.len, &piece.bytes);
            }
            return;
        }
        self.current.apply(piece.pv, piece.offset, piece.len, &piece.bytes);
        let (from, to) = (piece.offset, piece.offset + piece.len as u64);
        self.faults.unreadable.retain(|&(pv, offset, len)| pv != piece.pv || offset + len <= from || to <= offset);
        if self.cached {
            self.cache.push(piece);
        } else {
            self.durable.apply(piece.pv, piece.offset, piece.len, &piece.bytes);
        }
    }

    pub(super) fn finish(&mut self, ticket: Ticket) -> DiskResult {
        let Ticket { fails, no_room, work } = ticket;
        let error = |op, (pv, offset)| Err(DiskError { op, pv, offset, errno: 5 });
        match work {
            Work::Read(segments, buf) => self.finish_read(&segments, buf, fails),
            Work::Done(result) => result,
            Work::Write(first, last, place) => {
                self.event();
                let mut at = 0;
                while at < self.under_way.len() {
                    if (first..last).contains(&self.under_way[at].command) {
                        let piece = self.under_way.remove(at);
                        self.carry_out(piece);
                    } else {
                        at += 1;
                    }
                }
                // The part of a failed write that was carried out is in the cache, like other writes.
                for command in first..last {
                    self.cache.complete(command, self.events);
                }
                match no_room {
                    Some(error) => Err(error),
                    None if fails => error(DiskOpKind::Write, place),
                    None => Ok(None),
                }
            }
            Work::Flush(covers) => {
                self.event();
                if fails {
                    return error(DiskOpKind::Flush, (self.faults.away.unwrap_or_default(), 0));
                }
                if !self.faults.lying_flush {
                    self.cache.flush(covers, &mut self.durable);
                }
                Ok(None)
            }
        }
    }

    fn finish_read(&mut self, segments: &Segments, mut buf: PageBuf, fails: bool) -> DiskResult {
        for segment in segments {
            let (from, to) = (segment.offset, segment.offset + u64::from(segment.len));
            let bad = |&(pv, offset, len): &(PvIndex, u64, u64)| pv == segment.pv && offset < to && from < offset + len;
            if fails || self.faults.unreadable.iter().any(bad) {
                return Err(DiskError { op: DiskOpKind::Read, pv: segment.pv, offset: segment.offset, errno: 5 });
            }
            let out = &mut buf.as_mut_slice()[segment.at as usize..][..segment.len as usize];
            self.current.read(segment.pv, segment.offset, out);
        }
        Ok(Some(buf))
    }
}

/// Whether a request needs this physical volume.
pub(super) trait Touches {
    fn touches(&self, pv: PvIndex) -> bool;
}

impl Touches for DiskOp {
    fn touches(&self, pv: PvIndex) -> bool {
        match self {
            DiskOp::Read { segments, .. } | DiskOp::Write { segments, .. } | DiskOp::Discard { segments } => {
                segments.iter().any(|segment| segment.pv == pv)
            }
            DiskOp::Flush => true,
        }
    }
}

impl CachedWrite {
    /// The parts before and from `place` on.
    fn split(&self, place: u64) -> (Option<CachedWrite>, Option<CachedWrite>) {
        (self.cut(0, place), self.cut(place, u64::MAX))
    }
}
