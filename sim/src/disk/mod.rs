//! The simulated disks: several physical volumes with a volatile cache, faults on request, and a seed.
//!
//! A [`SimDisks`] keeps the contract of [`rowen_engine::disk`] and uses every freedom that it leaves. Requests complete
//! in random order after a virtual delay. Requests in flight together are carried out in any order, also in part. After
//! a power cut, a sector may have any version since the last flush. [`Faults`] are what a disk may do outside of the
//! contract.

mod cache;
mod image;
mod modelled;
mod requests;
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
use cache::{Cache, CachedWrite};
use parking_lot::Mutex;
use requests::Touches;
use rowen_engine::disk::{
    Completer, DiscardLimits, DiskError, DiskOp, DiskOpKind, Disks, PvGeometry, PvIndex, Segment, Segments,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Device commands so far. A request with two segments is two reads or writes. A flush counts once, however many
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
    /// The commands since `before`.
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

/// The faults of the disks. Numbers count requests of that kind since the disks were made, from 0.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The request of this kind and number fails with EIO. A failed write may have been carried out in part.
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
    /// The request of this kind and number takes this long, in microseconds.
    pub slow: Option<(DiskOpKind, u64, u64)>,
    /// Half of all reads return the disk's contents at their submission, the others at their completion.
    pub eager_reads: bool,
    /// From this disk event on, no request completes any more.
    pub hang_from: Option<u64>,
    /// Every request to this physical volume fails, and every flush.
    pub away: Option<PvIndex>,
    /// No request to this physical volume completes, and no flush.
    pub hung: Option<PvIndex>,
    /// The fault of one copy of the next metadata that is written. The journal is left out: it has only one copy.
    pub mishap: Option<WriteFault>,
    /// One block of the next stamped data is acknowledged and never written. The sectors of that request go here.
    pub lost_data: Option<UnknownSectors>,
    /// The limits and the effect of discards.
    pub discards: DiscardLimits,
}

/// Sectors of volumes with unknown contents: a disk acknowledged their data and lost it.
pub type UnknownSectors = Arc<Mutex<BTreeSet<u64>>>;

/// What a disk may do to a write that it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    Lost,
    /// The data is written this many bytes further on.
    Misdirected(u64),
}

/// A physical volume, the first byte, and the number of bytes.
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

/// Called with each request before it is carried out, for tests that look at the sequence of commands.
pub type Watch = Box<dyn FnMut(&DiskOp) + Send>;

struct State {
    /// The contents that survive a power cut.
    durable: Image,
    /// The contents that a read returns.
    current: Image,
    cache: Cache,
    /// Writes that were submitted and are not completed: the parts not carried out yet.
    under_way: Vec<CachedWrite>,
    counts: Vec<Counts>,
    total: Counts,
    /// Requests submitted, by kind.
    requests: [u64; 4],
    /// Submissions and completions of everything that can change a crash state. An explorer cuts at each of them.
    events: u64,
    commands: u64,
    faults: Faults,
    delays: Delays,
    rng: Rng,
    keep: Option<Keep>,
    watch: Option<Watch>,
    /// If requested: a power cut's view of each event since the last call of `take_moments`.
    moments: Option<Vec<Moment>>,
    /// None: the room is not limited.
    room: Option<Room>,
    /// Whether there is a volatile cache at all. Without it every completed write is durable.
    cached: bool,
}

/// The disks at one instant. Any number of crash states can be made from it.
#[derive(Clone)]
pub struct Moment {
    /// The number of the next disk event.
    pub event: u64,
    durable: Image,
    current: Image,
    cache: Cache,
    under_way: Vec<CachedWrite>,
    next_command: u64,
}

impl Moment {
    /// The contents after a power cut.
    pub fn power_cut(&self, policy: Policy, rng: &mut Rng) -> Image {
        let mut image = self.durable.clone();
        self.cache.survive(&self.under_way, policy, &mut image, rng);
        image
    }

    /// The power cut hits sectors that were being written: some of them then hold rubbish.
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

    /// The places that were being written.
    pub fn places_in_flight(&self) -> Vec<Place> {
        self.under_way.iter().map(|piece| (piece.pv, piece.offset, piece.len as u64)).collect()
    }

    /// The contents after a power cut. Without a policy: after the program died.
    pub fn crash(&self, policy: Option<Policy>, rng: &mut Rng) -> Image {
        match policy {
            Some(policy) => self.power_cut(policy, rng),
            None => self.killed(rng),
        }
    }

    /// The contents after the program died: all completed writes, and any part of the writes in flight.
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

    /// The same disks after the death of the program alone. Writes that were completed and not flushed are still in the
    /// volatile cache. Nothing of the writes in flight was carried out.
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

    /// Adds a physical volume at the end.
    pub fn add_pv(&self, geometry: PvGeometry) {
        let mut state = self.state.lock();
        state.durable.add_pv(geometry);
        state.current.add_pv(geometry);
        state.counts.push(Counts::default());
    }

    /// Removes the last physical volume, with all that its cache holds.
    pub fn remove_last_pv(&self) {
        let mut state = self.state.lock();
        let pv = PvIndex(state.current.count() as u16 - 1);
        state.durable.remove_last_pv();
        state.current.remove_last_pv();
        state.cache.forget(pv);
        state.under_way.retain(|piece| piece.pv != pv);
        state.counts.pop();
    }

    /// From now on there is only this much room behind the disks. The room is no part of their contents: a crash leaves
    /// it as it is.
    pub fn set_room(&self, room: Option<Room>) {
        self.state.lock().room = room;
    }

    /// The room behind the disks, if it is limited.
    pub fn room(&self) -> Option<Room> {
        self.state.lock().room.clone()
    }

    /// From now on this many more pages can be backed.
    pub fn leave_room(&self, pages: u64) {
        self.state.lock().room.as_mut().expect("room is bounded").set_left(pages);
    }

    /// Drops every page for which `keep` returns false: it reads as zeros. For volumes that are too large for memory
    /// and whose contents do not matter. Writes are durable at once, so that no cache grows.
    pub fn keep_only(&self, keep: Keep) {
        let mut state = self.state.lock();
        state.keep = Some(keep);
        state.cached = false;
    }

    /// Makes every completed write durable at once, as on a disk without a cache.
    pub fn without_cache(&self) {
        self.state.lock().cached = false;
    }

    /// Sets the faults of the disks.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Ranges that cannot be read until they are written.
    pub fn unreadable(&self) -> Vec<Place> {
        self.state.lock().faults.unreadable.clone()
    }

    /// From now on, ranges that could not be read hold rubbish, as after a drive replaced the sectors.
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

    /// From now on, passes every request to `watch`.
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

    /// The bytes that a read would return now, everywhere.
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

    fn discards(&self, _: PvIndex) -> DiscardLimits {
        self.state.lock().faults.discards
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
        let is_hung = state.faults.hung.is_some_and(|pv| op.touches(pv));
        let ticket = state.begin(op, number);
        if is_hung || state.faults.hang_from.is_some_and(|from| state.events > from) {
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
