//! The simulated disks: several physical volumes with a volatile cache, faults on request, and a seed.
//!
//! A [`SimDisks`] keeps the contract that [`rowen_engine::disk`] states, and uses every freedom that it leaves:
//! requests complete in random order after a virtual delay, requests in flight together are carried out in any
//! order, also in part, and after a power cut any sector version since the last flush may be found.
//! [`Faults`] are what a disk may do outside of the contract.

mod cache;
mod image;
mod modelled;
mod room;
mod spill;
mod text;

pub use cache::{POLICIES, Policy};
pub use image::Image;
pub use modelled::{FLASH, Model, Modelled, ROTATING};
pub use room::Room;
pub use spill::{SpillDisks, is_metadata};

use crate::exec::Handle;
use crate::rng::Rng;
use crate::stamp::{self, Found};
use cache::{Cache, Held};
use image::Bytes;
use parking_lot::Mutex;
use rowen_engine::disk::{
    Completer, DiskError, DiskOp, DiskOpKind, DiskResult, Disks, PageBuf, PvGeometry, PvIndex, Segment, Segments,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Device commands so far. A request with two segments is two reads or writes; a flush counts once however many
/// physical volumes it reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Counts {
    /// What was counted since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            flushes: self.flushes - before.flushes,
            discards: self.discards - before.discards,
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

/// What is wrong with the disks. Numbers count requests of that kind since the disks were made, from 0.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The request of this kind and number fails with EIO; a failed write may have been carried out in part.
    pub fail: Option<(DiskOpKind, u64)>,
    /// All requests of this kind fail from this number on.
    pub fail_from: Option<(DiskOpKind, u64)>,
    /// Ranges (volume, offset, length) that cannot be read until they are written again.
    pub unreadable: Vec<(PvIndex, u64, u64)>,
    /// Requests of this kind that touch one of these ranges (volume, offset, length) always fail.
    pub broken: Option<(DiskOpKind, Vec<Place>)>,
    /// The write of this number is acknowledged and never done.
    pub lost_write: Option<u64>,
    /// The write of this number lands this many bytes further on.
    pub misdirected: Option<(u64, u64)>,
    /// Flushes are acknowledged and do nothing.
    pub lying_flush: bool,
    /// The request of this kind and number takes so many microseconds.
    pub slow: Option<(DiskOpKind, u64, u64)>,
    /// Half of all reads see what the disk holds when they are asked; else they see what it holds when they complete.
    pub eager_reads: bool,
    /// No request completes any more from this disk event on.
    pub hang_from: Option<u64>,
    /// Every request to this physical volume fails, and every flush.
    pub away: Option<PvIndex>,
    /// What becomes of one copy of the next metadata that is written (the journal, of which there is one copy, apart).
    pub mishap: Option<Mishap>,
    /// One block of the next stamped data is acknowledged and never written. The sectors of that request go here.
    pub lost_data: Option<Wild>,
}

/// Sectors of volumes whose contents nobody can tell any more: data was lost that a disk said it had written.
pub type Wild = Arc<Mutex<BTreeSet<u64>>>;

/// What a disk may do to a write that it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    Lost,
    /// It lands so many bytes further on.
    Misdirected(u64),
}

/// A physical volume, the first byte, how many.
pub type Place = (PvIndex, u64, u64);

impl Faults {
    fn is_broken(&self, op: &DiskOp) -> bool {
        let Some((_, ranges)) = self.broken.as_ref().filter(|(kind, _)| *kind == op.kind()) else { return false };
        let (DiskOp::Read { segments, .. } | DiskOp::Write { segments, .. } | DiskOp::Discard { segments }) = op else {
            return false;
        };
        segments.iter().any(|s| {
            let touches = |(pv, offset, len): &Place| {
                *pv == s.pv && *offset < s.offset + u64::from(s.len) && s.offset < offset + len
            };
            ranges.iter().any(touches)
        })
    }
}

/// How long requests take, in virtual microseconds: (shortest, longest).
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    pub read: (u64, u64),
    pub write: (u64, u64),
    pub flush: (u64, u64),
}

impl Default for Delays {
    fn default() -> Self {
        Delays { read: (1, 100), write: (1, 200), flush: (10, 300) }
    }
}

/// Decides by (volume, offset) whether a page is kept.
pub type Keep = Box<dyn Fn(PvIndex, u64) -> bool + Send>;

/// Called with each request before it is carried out: for tests that look at the stream of commands.
pub type Watch = Box<dyn FnMut(&DiskOp) + Send>;

struct State {
    /// What a power cut cannot take.
    durable: Image,
    /// What a read sees.
    current: Image,
    cache: Cache,
    /// Writes that were given and not completed: the parts not carried out yet.
    under_way: Vec<Held>,
    counts: Vec<Counts>,
    total: Counts,
    /// Requests given, by kind.
    requests: [u64; 4],
    /// Submissions and completions of everything that can change a crash state: the cuts that an explorer tries.
    events: u64,
    commands: u64,
    faults: Faults,
    delays: Delays,
    rng: Rng,
    keep: Option<Keep>,
    watch: Option<Watch>,
    /// A power cut's view of each event since the last call of `take_moments`, when asked for.
    moments: Option<Vec<Moment>>,
    /// None: all of the disks has its room.
    room: Option<Room>,
    /// Whether there is a volatile cache at all. Without it every completed write is durable.
    cached: bool,
}

/// The disks at one instant: from it, any number of crash states can be made.
#[derive(Clone)]
pub struct Moment {
    /// Number of the disk event that comes next.
    pub event: u64,
    durable: Image,
    current: Image,
    cache: Cache,
    under_way: Vec<Held>,
    next_command: u64,
}

impl Moment {
    /// What is on the disks after the power was cut.
    pub fn power_cut(&self, policy: Policy, rng: &mut Rng) -> Image {
        let mut image = self.durable.clone();
        self.cache.survive(&self.under_way, policy, &mut image, rng);
        image
    }

    /// The power cut hits sectors that were being written: some of them hold rubbish then.
    pub fn spoil(&self, image: &mut Image, rng: &mut Rng) {
        for piece in &self.under_way {
            let sector = u64::from(image.geometry(piece.pv).sector);
            for at in (piece.offset..piece.offset + piece.len as u64).step_by(sector as usize) {
                if rng.one_in(4) {
                    let rubbish: Vec<u8> = (0..sector).map(|_| rng.bits() as u8).collect();
                    image.write(piece.pv, at, &rubbish);
                }
            }
        }
    }

    /// Sectors that were being written and cannot be read after the power cut.
    pub fn unreadable(&self, rng: &mut Rng) -> Vec<Place> {
        let mut bad = Vec::new();
        for piece in &self.under_way {
            let sector = u64::from(self.current.geometry(piece.pv).sector);
            let all = (piece.offset..piece.offset + piece.len as u64).step_by(sector as usize);
            bad.extend(all.filter(|_| rng.one_in(4)).map(|at| (piece.pv, at, sector)));
        }
        bad
    }

    /// What was being written.
    pub fn under_way(&self) -> Vec<Place> {
        self.under_way.iter().map(|piece| (piece.pv, piece.offset, piece.len as u64)).collect()
    }

    /// What is on the disks after a power cut, or without a policy after the program died.
    pub fn crash(&self, policy: Option<Policy>, rng: &mut Rng) -> Image {
        match policy {
            Some(policy) => self.power_cut(policy, rng),
            None => self.killed(rng),
        }
    }

    /// What is on the disks after the program died: all that was completed, and any part of what was under way.
    pub fn killed(&self, rng: &mut Rng) -> Image {
        let mut image = self.current.clone();
        let policy = *rng.pick(&[Policy::Nothing, Policy::All, Policy::Commands, Policy::Sectors]);
        Cache::default().survive(&self.under_way, policy, &mut image, rng);
        image
    }
}

/// The disks of one group, in a [`crate::exec::World`].
pub struct SimDisks {
    handle: Arc<Handle>,
    state: Arc<Mutex<State>>,
}

impl SimDisks {
    /// Disks full of zeros.
    pub fn new(handle: Arc<Handle>, geometries: &[PvGeometry]) -> Arc<SimDisks> {
        SimDisks::with_image(handle, Image::blank(geometries))
    }

    /// Disks with these contents.
    pub fn with_image(handle: Arc<Handle>, image: Image) -> Arc<SimDisks> {
        let state = State {
            counts: vec![Counts::default(); image.count()],
            durable: image.clone(),
            current: image,
            cache: Cache::default(),
            under_way: Vec::new(),
            total: Counts::default(),
            requests: [0; 4],
            events: 0,
            commands: 0,
            faults: Faults::default(),
            delays: Delays::default(),
            rng: handle.draw(Rng::fork),
            keep: None,
            watch: None,
            moments: None,
            room: None,
            cached: true,
        };
        Arc::new(SimDisks { handle, state: Arc::new(Mutex::new(state)) })
    }

    /// The same disks after the death of the program alone: what was completed and not flushed is still in the volatile cache.
    /// Nothing of what was under way was carried out.
    pub fn restarted(handle: Arc<Handle>, moment: &Moment) -> Arc<SimDisks> {
        let disks = SimDisks::with_image(handle, moment.current.clone());
        {
            let mut state = disks.state.lock();
            state.durable = moment.durable.clone();
            state.cache = moment.cache.clone();
            state.events = moment.event + 1;
            state.commands = moment.next_command;
            state.cache.complete_all(moment.event);
        }
        disks
    }

    /// One more physical volume at the end.
    pub fn add_pv(&self, geometry: PvGeometry) {
        let mut state = self.state.lock();
        state.durable.add_pv(geometry);
        state.current.add_pv(geometry);
        state.counts.push(Counts::default());
    }

    /// Takes the physical volume at the end away, with all that its cache holds.
    pub fn remove_last_pv(&self) {
        let mut state = self.state.lock();
        let pv = PvIndex(state.current.count() as u16 - 1);
        state.durable.remove_last_pv();
        state.current.remove_last_pv();
        state.cache.forget(pv);
        state.under_way.retain(|piece| piece.pv != pv);
        state.counts.pop();
    }

    /// From now on there is only this much room behind the disks, which is no part of their contents: a crash leaves it as it is.
    pub fn set_room(&self, room: Option<Room>) {
        self.state.lock().room = room;
    }

    /// The room behind the disks, where it is bounded.
    pub fn room(&self) -> Option<Room> {
        self.state.lock().room.clone()
    }

    /// So many pages more can be backed from now on.
    pub fn leave_room(&self, pages: u64) {
        self.state.lock().room.as_mut().expect("room is bounded").set_left(pages);
    }

    /// Drops every page for which `keep` says no: it reads as zeros. For volumes too large for memory whose
    /// contents do not matter. Writes are durable at once, so that no cache grows.
    pub fn keep_only(&self, keep: Keep) {
        let mut state = self.state.lock();
        state.keep = Some(keep);
        state.cached = false;
    }

    /// Makes every completed write durable at once, as on a disk without a cache.
    pub fn without_cache(&self) {
        self.state.lock().cached = false;
    }

    /// Changes what is wrong with the disks.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// What cannot be read until it is written.
    pub fn unreadable(&self) -> Vec<Place> {
        self.state.lock().faults.unreadable.clone()
    }

    /// What could not be read holds rubbish from now on, as after a drive took other sectors for those.
    pub fn replace_unreadable(&self, rng: &mut Rng) {
        let mut state = self.state.lock();
        for (pv, offset, len) in std::mem::take(&mut state.faults.unreadable) {
            let rubbish: Vec<u8> = (0..len).map(|_| rng.bits() as u8).collect();
            state.durable.write(pv, offset, &rubbish);
            state.current.write(pv, offset, &rubbish);
        }
    }

    pub fn set_delays(&self, delays: Delays) {
        self.state.lock().delays = delays;
    }

    /// Shows every request to `watch` from now on.
    pub fn watch(&self, watch: Watch) {
        self.state.lock().watch = Some(watch);
    }

    /// Commands so far, on all physical volumes together.
    pub fn counts(&self) -> Counts {
        self.state.lock().total
    }

    /// Commands so far on one physical volume.
    pub fn counts_of(&self, pv: PvIndex) -> Counts {
        self.state.lock().counts[pv.0 as usize]
    }

    /// Requests of one kind so far: the numbers that [`Faults`] uses.
    pub fn requests(&self, kind: DiskOpKind) -> u64 {
        self.state.lock().requests[kind as usize]
    }

    /// What a read would see everywhere, now.
    pub fn current(&self) -> Image {
        self.state.lock().current.clone()
    }

    /// Submissions and completions so far that can change a crash state.
    pub fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// The disks at this instant.
    pub fn moment(&self) -> Moment {
        self.state.lock().moment()
    }

    /// From now on keeps a [`Moment`] of each disk event, before it happens, for [`SimDisks::take_moments`].
    pub fn keep_moments(&self) {
        self.state.lock().moments = Some(Vec::new());
    }

    /// The moments since the last call.
    pub fn take_moments(&self) -> Vec<Moment> {
        match &mut self.state.lock().moments {
            Some(moments) if !moments.is_empty() => std::mem::take(moments),
            _ => Vec::new(),
        }
    }

    /// Bit rot, in the cache and on the platters.
    pub fn rot(&self, pv: PvIndex, offset: u64, bit: u8) {
        let mut state = self.state.lock();
        state.durable.flip(pv, offset, bit);
        state.current.flip(pv, offset, bit);
    }
}

impl Disks for SimDisks {
    fn count(&self) -> usize {
        self.state.lock().current.count()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.state.lock().current.geometry(pv)
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        let mut state = self.state.lock();
        if let Some(watch) = &mut state.watch {
            watch(&op);
        }
        let kind = op.kind();
        let number = state.requests[kind as usize];
        state.requests[kind as usize] += 1;
        state.check(&op);
        self.note(&op);
        let ticket = state.begin(op, number);
        if state.faults.hang_from.is_some_and(|from| state.events > from) {
            drop(state);
            // Neither answered nor dropped: dropping a completer is an answer.
            std::mem::forget(done);
            return;
        }
        let (low, high) = match kind {
            DiskOpKind::Read => state.delays.read,
            DiskOpKind::Write | DiskOpKind::Discard => state.delays.write,
            DiskOpKind::Flush => state.delays.flush,
        };
        let mut delay = state.rng.range(low, high);
        if let Some((of, at, micros)) = state.faults.slow
            && of == kind
            && at == number
        {
            delay = micros;
        }
        drop(state);
        let shared = self.state.clone();
        self.handle.after(delay, move || {
            let result = shared.lock().finish(ticket);
            done.complete(result);
        });
    }

    fn back(&self, segments: Segments, done: Completer) {
        let mut state = self.state.lock();
        let Some(room) = &mut state.room else {
            drop(state);
            return done.complete(Ok(None));
        };
        let taken = room.take(&segments);
        let (low, high) = state.delays.write;
        let delay = state.rng.range(low, high);
        drop(state);
        self.handle.after(delay, move || {
            done.complete(taken.map(|()| None).map_err(|segment| no_room(&segment)));
        });
    }
}

fn no_room(segment: &Segment) -> DiskError {
    DiskError { op: DiskOpKind::Write, pv: segment.pv, offset: segment.offset, errno: 28 }
}

impl SimDisks {
    fn note(&self, op: &DiskOp) {
        self.handle.note(op.kind() as u64 + 1);
        let (DiskOp::Read { segments, .. } | DiskOp::Write { segments, .. } | DiskOp::Discard { segments }) = op else {
            return;
        };
        for segment in segments {
            self.handle.note(u64::from(segment.pv.0) << 48 ^ segment.offset ^ u64::from(segment.len) << 32);
        }
    }
}

/// A request on its way.
struct Ticket {
    fails: bool,
    /// It fails because of this.
    no_room: Option<DiskError>,
    work: Work,
}

enum Work {
    Read(Segments, PageBuf),
    /// A read that saw the disk as it was when it was asked.
    Done(DiskResult),
    /// Commands of this write, first and last.
    Write(u64, u64, (PvIndex, u64)),
    /// A flush covers what was completed by this event.
    Flush(u64),
}

impl State {
    /// The engine must keep its side of the contract.
    fn check(&self, op: &DiskOp) {
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

    fn event(&mut self) {
        if self.moments.is_some() {
            let moment = self.moment();
            if let Some(moments) = &mut self.moments {
                moments.push(moment);
            }
        }
        self.events += 1;
    }

    fn moment(&self) -> Moment {
        Moment {
            event: self.events,
            durable: self.durable.clone(),
            current: self.current.clone(),
            cache: self.cache.clone(),
            under_way: self.under_way.clone(),
            next_command: self.commands,
        }
    }

    fn begin(&mut self, op: DiskOp, number: u64) -> Ticket {
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
                DiskOp::Write { segments, .. } => no_room_for = room.take(segments).err(),
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

    fn count<T>(&mut self, segment: &Segment, add: impl Fn(&mut Counts, u64) -> T) {
        let len = u64::from(segment.len);
        add(&mut self.total, len);
        add(&mut self.counts[segment.pv.0 as usize], len);
    }

    fn begin_write(&mut self, segments: &Segments, buf: &PageBuf, number: u64, fails: bool) -> Work {
        let place = (segments[0].pv, segments[0].offset);
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
                Some((_, Mishap::Lost)) => continue,
                Some((_, Mishap::Misdirected(shift)))
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
            // Some disks are quick: a first part may be carried out right away, and be seen by reads.
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

    /// Which segment of this write meets with what, if it is metadata and something is to happen to it.
    fn mishap(&mut self, segments: &Segments, buf: &PageBuf) -> Option<(usize, Mishap)> {
        let bytes = &buf.as_slice()[segments[0].at as usize..];
        let is_next = is_metadata(bytes) && !bytes.starts_with(b"ROWENJRN");
        let mishap = if is_next { self.faults.mishap.take() } else { None };
        mishap.map(|mishap| (self.rng.below(segments.len() as u64) as usize, mishap))
    }

    /// The segment and the bytes of it that are lost, if this is the data for that.
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
            // Discarded contents are anything: what was there, zeros, or another's rubbish.
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

    fn give(&mut self, pv: PvIndex, offset: u64, len: usize, bytes: Bytes) {
        let command = self.commands;
        self.commands += 1;
        self.under_way.push(Held { command, pv, offset, len, bytes, completed: None });
    }

    /// Carries out some leading sectors of a command.
    fn carry_out_part(&mut self, command: u64) {
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

    fn carry_out(&mut self, piece: Held) {
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

    fn finish(&mut self, ticket: Ticket) -> DiskResult {
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
                // What a failed write did carry out lies in the cache as anything else does.
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
                    return error(DiskOpKind::Flush, (PvIndex(0), 0));
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
trait Touches {
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

impl Held {
    /// The parts before and from `place` on.
    fn split(&self, place: u64) -> (Option<Held>, Option<Held>) {
        (self.cut(0, place), self.cut(place, u64::MAX))
    }
}
