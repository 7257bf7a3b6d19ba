//! The data path of one volume: read, write, flush, discard, write-zeroes; in place or redirected.
//!
//! A request is planned in one short critical section under the volume's lock (look up, classify, take blocks,
//! register), does its I/O without any lock, and is finished in another. What planning cannot decide yet (a node to
//! read, an overlapping request, a fresh block, no space) is waited for outside, and planning starts anew.

mod fill;
pub(crate) mod rehome;
mod room;
pub mod state;
mod unmap;

use crate::core::{Core, count};
use crate::disk::{DiskError, DiskOp, PageBuf, Segments, start};
use crate::error::{Error, Result};
use crate::format::journal::{Record, WriteExtent};
use crate::format::record::crc32c;
use crate::group::VolumeInfo;
use crate::journal::Pressure;
use crate::map::{self, Extents, MapError, NodeRef};
use crate::space::{Account, AllocError, Run, Runs};
use crate::units::{BLOCK_SIZE, LvBlock, SECTOR_SIZE, Seq, VgBlock, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use state::{Mode, State, UNWRITTEN, apply_write};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// Data whose records recovery would have to prove, at most, before a marker is made in the background.
const UNPROVEN_BYTES: u64 = 128 << 20;
/// What a record counts beside its data: a read of its own, whatever its size.
const RECORD_COST: u64 = 60 << 10;

/// An open volume: what an export reads and writes.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    pub(crate) id: VolumeId,
    pub(crate) state: Mutex<State>,
}

/// What a planned piece of a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Overwrite.
    Own(u64),
    /// Write where it lies and mark it written.
    Unwritten(u64),
    /// Put elsewhere; `old` holds its contents, if any.
    New { old: Option<u64>, account: Account },
    /// The head's own, at `old`, but too fresh to be overwritten: put elsewhere once more.
    Again { old: u64, account: Account },
    /// Shared, at `old`: copied to where its neighbours go (rule R13).
    Copy { old: u64, account: Account },
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    place: Place,
}

type Pieces = SmallVec<[Piece; 4]>;

/// Outcome of planning. It lives on the stack of one request: boxing its large variant would cost an allocation each.
#[allow(clippy::large_enum_variant)]
enum Plan {
    InPlace {
        op: u64,
        segments: Segments,
    },
    Map(MapPlan),
    /// Bring this node into memory.
    Load(NodeRef, u8),
    /// Wait until recovery trusts this record.
    Marker(Seq),
    /// The journal is nearly full.
    Admit,
    Space(AllocError),
}

struct MapPlan {
    op: u64,
    /// Where each block of the request goes, in order: VG run, and whether the record names it.
    targets: SmallVec<[(Run, bool); 4]>,
    /// Old contents of the first and the last block, when the write covers them in part.
    edges: [Edge; 2],
    allocated: Runs,
    /// Blocks of its own that it gives up.
    replaces: u64,
    accounts: SmallVec<[(Run, Account); 2]>,
    /// Blocks that it copies for the sake of their neighbours.
    copies: u64,
    /// Metadata should grow ahead (M5).
    wants_metadata: bool,
    /// What it redirects may lie in many pieces (rule R13).
    wants_fill: bool,
}

/// What a partial block held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Whole,
    Zeros,
    At(u64),
}

/// All offsets and lengths in bytes, multiples of 512; sub-block requests are fine. Requests may overlap in time.
impl Volume {
    pub fn id(&self) -> VolumeId {
        self.id
    }

    pub fn size_bytes(&self) -> u64 {
        self.state.lock().meta.blocks * BLOCK_SIZE
    }

    pub fn sector(&self) -> u32 {
        self.state.lock().meta.sector
    }

    pub fn read_only(&self) -> bool {
        self.state.lock().meta.read_only
    }

    pub fn info(&self) -> Result<VolumeInfo> {
        self.core.group()?.volume_info(self.id)
    }

    /// Fills `buf[..len]` and gives it back. Ranges past the end fail with [`Error::Invalid`].
    pub async fn read(&self, offset: u64, len: u32, buf: PageBuf) -> Result<PageBuf> {
        if len == 0 {
            return Ok(buf);
        }
        let mut buf = buf;
        let mut unreadable = None;
        loop {
            let (op, segments, zeros) = match poll_fn(|cx| self.plan_read(cx, offset, len)).await? {
                ReadPlan::Ready { op, segments, zeros } => (op, segments, zeros),
                ReadPlan::Load(node, level) => {
                    self.load(node, level, &mut unreadable).await?;
                    continue;
                }
            };
            for (at, len) in zeros {
                buf.as_mut_slice()[at as usize..(at + len) as usize].fill(0);
            }
            if segments.is_empty() {
                return Ok(buf);
            }
            let outcome = self.read_segments(offset, len, segments, buf).await;
            if let Some(op) = op {
                self.state.lock().finish(op);
            }
            return outcome;
        }
    }

    async fn read_segments(&self, offset: u64, len: u32, segments: Segments, buf: PageBuf) -> Result<PageBuf> {
        let sector = u64::from(self.core.sector());
        let aligned = sector == SECTOR_SIZE || (offset % sector == 0 && u64::from(len) % sector == 0);
        if aligned {
            return self.core.read_twice(segments, buf).await;
        }
        // Disks with larger sectors than the volume's: read whole blocks beside and copy.
        let mut buf = buf;
        for segment in segments {
            let (first, last) =
                (segment.offset / BLOCK_SIZE, (segment.offset + u64::from(segment.len)).div_ceil(BLOCK_SIZE));
            let bounce = PageBuf::zeroed(((last - first) * BLOCK_SIZE) as usize);
            let whole = crate::disk::Segment {
                pv: segment.pv,
                offset: first * BLOCK_SIZE,
                at: 0,
                len: ((last - first) * BLOCK_SIZE) as u32,
            };
            let bounce = self.core.read_twice(SmallVec::from_slice(&[whole]), bounce).await?;
            let from = (segment.offset - first * BLOCK_SIZE) as usize;
            let (at, len) = (segment.at as usize, segment.len as usize);
            buf.as_mut_slice()[at..at + len].copy_from_slice(&bounce.as_slice()[from..from + len]);
        }
        Ok(buf)
    }

    /// Writes `buf[..len]`. The reference is dropped before this returns, so that the caller can reuse the buffer.
    pub async fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (mut unreadable, mut tries) = (None, 0);
        loop {
            match poll_fn(|cx| self.plan(cx, offset, u64::from(len))).await? {
                Plan::InPlace { op, segments } => {
                    count(&self.core.counters.writes_in_place);
                    let places = segments.clone();
                    let outcome = start(&*self.core.disks, DiskOp::Write { segments, buf: buf.clone() }).await;
                    self.state.lock().finish(op);
                    match outcome {
                        Err(error) if error.is_no_room() => {
                            self.core.lacks_room(error, places);
                            self.no_room(error, &mut tries).await?;
                        }
                        outcome => return outcome.map(drop).map_err(Error::from),
                    }
                }
                Plan::Map(plan) => {
                    count(&self.core.counters.writes_redirected);
                    if plan.replaces > 0 {
                        count(&self.core.counters.writes_again);
                    }
                    let is_news = self.core.patience.is_tried() && self.takes_unpromised(&plan);
                    if plan.wants_metadata {
                        self.core.grow_ahead();
                    }
                    if plan.wants_fill {
                        self.want_filling();
                    }
                    match self.carry_out(offset, len, buf.clone(), plan).await {
                        Err(Error::NoRoom(error)) => self.no_room(error, &mut tries).await?,
                        outcome => {
                            if is_news && outcome.is_ok() {
                                self.found_room();
                            }
                            return outcome.map(drop);
                        }
                    }
                }
                Plan::Load(node, level) => self.load(node, level, &mut unreadable).await?,
                other => self.wait_for(other).await?,
            }
        }
    }

    /// Does what was planned, and ends the request. Returns the record's number, if it took one.
    async fn carry_out(&self, offset: u64, len: u32, buf: Arc<PageBuf>, plan: MapPlan) -> Result<Option<Seq>> {
        let (op, replaces) = (plan.op, plan.replaces);
        let outcome = self.write_mapped(offset, len, buf, plan).await;
        self.core.meta.lock().write_done();
        let in_pool = {
            let mut state = self.state.lock();
            state.finish(op);
            !state.meta.attributes.pool.is_empty()
        };
        if in_pool && (replaces > 0 || outcome.is_err()) {
            // It took more of its pool than it has now: others may wait for the rest.
            self.core.space_event.notify();
        }
        outcome
    }

    async fn wait_for(&self, plan: Plan) -> Result<()> {
        match plan {
            Plan::Marker(seq) => {
                count(&self.core.counters.waits_for_marker);
                self.core.journal.ensure_marker(seq).await?;
                self.state.lock().fresh.prune(self.core.journal.marker_durable());
                Ok(())
            }
            Plan::Admit => {
                self.core.want_checkpoint();
                self.core.journal.admit().await?;
                self.core.dirty_room().await
            }
            Plan::Space(error) => self.make_space(error).await,
            Plan::InPlace { .. } | Plan::Map(_) | Plan::Load(..) => {
                unreachable!("these are carried out, not waited for")
            }
        }
    }

    /// Reads a node. The tree may move on meanwhile: a failure counts only when planning asks for the node again.
    async fn load(&self, node: NodeRef, level: u8, unreadable: &mut Option<NodeRef>) -> Result<()> {
        match self.core.load(node, level).await {
            Ok(()) => *unreadable = None,
            Err(error) if *unreadable == Some(node) => return Err(error),
            Err(_) => *unreadable = Some(node),
        }
        Ok(())
    }

    fn check_range(&self, state: &State, offset: u64, len: u64) -> Result<()> {
        if state.closed {
            return Err(Error::Closed);
        }
        if state.invalid() {
            return Err(Error::InvalidSnapshot);
        }
        if offset % SECTOR_SIZE != 0 || len % SECTOR_SIZE != 0 {
            return Err(Error::Invalid(format!("bytes {offset}+{len} are not whole sectors of 512 bytes")));
        }
        let size = state.meta.blocks * BLOCK_SIZE;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::Invalid(format!("bytes {offset}+{len} lie beyond the volume's end at {size}"))),
        }
    }

    fn wait_here<T>(state: &mut MutexGuard<'_, State>, cx: &Context<'_>) -> Poll<T> {
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    fn plan_read(&self, cx: &Context<'_>, offset: u64, len: u32) -> Poll<Result<ReadPlan>> {
        let mut state = self.state.lock();
        if let Err(error) = self.check_range(&state, offset, u64::from(len)) {
            return Poll::Ready(Err(error));
        }
        let (end_byte, first) = (offset + u64::from(len), offset / BLOCK_SIZE);
        let last = end_byte.div_ceil(BLOCK_SIZE);
        if state.shut > 0 || state.conflict(first, last, Mode::Read) {
            return Self::wait_here(&mut state, cx);
        }
        let mut found = Extents::new();
        match map::lookup(&self.core.cache, &state.head.tree, first, last, &mut found) {
            Ok(()) => {}
            Err(MapError::Missing(node, level)) => return Poll::Ready(Ok(ReadPlan::Load(node, level))),
            Err(MapError::Corrupt(error)) => return Poll::Ready(Err(error)),
            Err(MapError::NoSpace) => unreachable!("a lookup takes no space"),
        }
        let mut segments = Segments::new();
        let mut zeros = SmallVec::new();
        let mut at = offset;
        for extent in found.iter().filter(|e| e.flags & UNWRITTEN == 0) {
            let (from, to) = ((extent.key * BLOCK_SIZE).max(offset), (extent.end() * BLOCK_SIZE).min(end_byte));
            if at < from {
                zeros.push(((at - offset) as u32, (from - at) as u32));
            }
            let byte = extent.value * BLOCK_SIZE + (from - extent.key * BLOCK_SIZE);
            state.placement.map_bytes(byte, to - from, (from - offset) as u32, &mut segments);
            at = to;
        }
        if at < end_byte {
            zeros.push(((at - offset) as u32, (end_byte - at) as u32));
        }
        let op = (!segments.is_empty()).then(|| state.begin(first, last, Mode::Read));
        Poll::Ready(Ok(ReadPlan::Ready { op, segments, zeros }))
    }

    /// Plans a write: in place without touching anything that volumes share, else again under the checkpoint's gate.
    fn plan(&self, cx: &Context<'_>, offset: u64, len: u64) -> Poll<Result<Plan>> {
        if let Some(plan) = self.plan_write(cx, offset, len, false) {
            return plan;
        }
        let _gate = self.core.gate.read();
        self.plan_write(cx, offset, len, true).expect("under the gate every write can be planned")
    }

    /// `None`: the write changes mappings, which takes the checkpoint's gate (held by the caller if `gated`), and it is closed.
    fn plan_write(&self, cx: &Context<'_>, offset: u64, len: u64, gated: bool) -> Option<Poll<Result<Plan>>> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Err(error) = self.check_range(state, offset, len) {
            return Some(Poll::Ready(Err(error)));
        }
        if state.meta.read_only {
            return Some(Poll::Ready(Err(Error::ReadOnly)));
        }
        if let Err(error) = self.core.journal.failed() {
            return Some(Poll::Ready(Err(error)));
        }
        let (first, last) = (offset / BLOCK_SIZE, (offset + len).div_ceil(BLOCK_SIZE));
        if state.gates > 0 {
            return Some(Self::wait_here(&mut guard, cx));
        }
        let mut pieces = match self.classify(state, first, last) {
            Ok(pieces) => pieces,
            Err(MapError::Missing(node, level)) => return Some(Poll::Ready(Ok(Plan::Load(node, level)))),
            Err(MapError::Corrupt(error)) => return Some(Poll::Ready(Err(error))),
            Err(MapError::NoSpace) => unreachable!("a lookup takes no space"),
        };
        let fresh = self.fresh_in(state, &pieces);
        let waits = fresh.filter(|_| !self.place_again(state, &mut pieces));
        let sector = u64::from(self.core.sector());
        let aligned = sector == SECTOR_SIZE || (offset % sector == 0 && len % sector == 0);
        let in_place = aligned && pieces.iter().all(|p| matches!(p.place, Place::Own(_)));
        let mode = if in_place { Mode::InPlace } else { Mode::Map };
        if state.conflict(first, last, mode) {
            return Some(Self::wait_here(&mut guard, cx));
        }
        if let Some(seq) = waits {
            return Some(Poll::Ready(Ok(Plan::Marker(seq))));
        }
        if in_place {
            let mut segments = Segments::new();
            for piece in &pieces {
                let Place::Own(vg) = piece.place else { unreachable!("all pieces are in place") };
                let from = (piece.start * BLOCK_SIZE).max(offset);
                let to = (piece.end * BLOCK_SIZE).min(offset + len);
                let byte = vg * BLOCK_SIZE + (from - piece.start * BLOCK_SIZE);
                state.placement.map_bytes(byte, to - from, (from - offset) as u32, &mut segments);
            }
            let op = state.begin(first, last, mode);
            return Some(Poll::Ready(Ok(Plan::InPlace { op, segments })));
        }
        // Tried, not waited for: the gate comes before this volume's lock. Most often it is open, and nothing is looked up twice.
        let gate = if gated { None } else { self.core.gate.try_read() };
        if !gated && gate.is_none() {
            return None;
        }
        if self.core.journal.pressure() == Pressure::Full || self.core.too_dirty() {
            return Some(Poll::Ready(Ok(Plan::Admit)));
        }
        if !self.core.meta.lock().admit_write() {
            return Some(Poll::Ready(Ok(Plan::Space(AllocError::NotAdmitted))));
        }
        let planned = self.plan_map(state, &pieces, offset, len);
        if planned.is_err() {
            self.core.meta.lock().write_done();
        }
        Some(match (planned, fresh) {
            (Ok(plan), _) => {
                let wants_fill = self.note_redirected(state, &pieces);
                Poll::Ready(Ok(Plan::Map(MapPlan { wants_fill, ..plan })))
            }
            (Err(AllocError::Map(MapError::Missing(node, level))), _) => Poll::Ready(Ok(Plan::Load(node, level))),
            (Err(AllocError::Map(MapError::Corrupt(error))), _) => Poll::Ready(Err(error)),
            // Where there is no room to put them elsewhere, fresh blocks are waited for.
            (Err(AllocError::Full | AllocError::Untidy | AllocError::ReserveFull(_)), Some(seq)) => {
                Poll::Ready(Ok(Plan::Marker(seq)))
            }
            (Err(error), _) => Poll::Ready(Ok(Plan::Space(error))),
        })
    }

    /// Blocks that may not be written in place yet (V3).
    fn fresh_in(&self, state: &mut State, pieces: &Pieces) -> Option<Seq> {
        if state.fresh.is_empty() {
            return None;
        }
        let in_place = |p: &&Piece| matches!(p.place, Place::Own(_) | Place::Unwritten(_));
        let latest =
            |state: &State| pieces.iter().filter(in_place).filter_map(|p| state.fresh.latest(p.start, p.end)).max();
        latest(state)?;
        let durable = self.core.journal.marker_durable();
        state.fresh.prune(durable);
        latest(state).filter(|seq| *seq >= durable)
    }

    /// Has fresh blocks put elsewhere once more rather than wait until they may be written in place, which takes two flushes. Not
    /// those that lie where a thick volume's space was laid out: they stay there. False: some piece has to be waited for, and
    /// nothing is changed.
    ///
    /// The block given up is freed as any other (rule R8), so that a record that recovery does not believe leaves the one before
    /// it as it was.
    fn place_again(&self, state: &State, pieces: &mut Pieces) -> bool {
        let is_fresh = |piece: &Piece| state.fresh.latest(piece.start, piece.end).is_some();
        let stays = |piece: &Piece| match piece.place {
            Place::Unwritten(_) => is_fresh(piece),
            Place::Own(_) => !state.fresh.is_moved(piece.start, piece.end),
            Place::New { .. } | Place::Again { .. } | Place::Copy { .. } => false,
        };
        if pieces.iter().any(stays) {
            return false;
        }
        // What is given up goes off the same account.
        let account = fill::own_account(state, self.id);
        for piece in pieces.iter_mut().filter(|piece| is_fresh(piece)) {
            if let Place::Own(old) = piece.place {
                piece.place = Place::Again { old, account };
            }
        }
        true
    }

    /// What each part of the range would do.
    fn classify(&self, state: &State, first: u64, last: u64) -> std::result::Result<Pieces, MapError> {
        let mut found = Extents::new();
        map::lookup(&self.core.cache, &state.head.tree, first, last, &mut found)?;
        let hole = Place::New {
            old: None,
            account: match (state.thick(), state.meta.reserve) {
                (_, Some(_)) => Account::Reserve(self.id),
                (true, None) => Account::Thick,
                (false, None) => Account::Open,
            },
        };
        let mut pieces = Pieces::new();
        let mut at = first;
        for extent in found {
            if at < extent.key {
                pieces.push(Piece { start: at, end: extent.key, place: hole });
            }
            let cut = state.ownership.boundary(extent.key, extent.end());
            let halves = [(extent.key, cut.unwrap_or(extent.end())), (cut.unwrap_or(extent.end()), extent.end())];
            for (start, end) in halves.into_iter().filter(|(start, end)| start < end) {
                let vg = extent.value + (start - extent.key);
                let written = extent.flags & UNWRITTEN == 0;
                let own = state.ownership.owns(extent.birth, Some(end));
                let place = match (own, written) {
                    (true, true) => Place::Own(vg),
                    (true, false) => Place::Unwritten(vg),
                    (false, _) => Place::New {
                        old: written.then_some(vg),
                        account: state.charge.map_or(Account::Open, Account::Reserve),
                    },
                };
                pieces.push(Piece { start, end, place });
            }
            at = extent.end();
        }
        if at < last {
            pieces.push(Piece { start: at, end: last, place: hole });
        }
        Ok(pieces)
    }

    /// Takes blocks for what is redirected and registers the request.
    fn plan_map(
        &self,
        state: &mut State,
        pieces: &Pieces,
        offset: u64,
        len: u64,
    ) -> std::result::Result<MapPlan, AllocError> {
        let (first, last) = (offset / BLOCK_SIZE, (offset + len).div_ceil(BLOCK_SIZE));
        let mut plan = MapPlan {
            op: 0,
            targets: SmallVec::new(),
            edges: [Edge::Whole; 2],
            allocated: Runs::new(),
            replaces: 0,
            accounts: SmallVec::new(),
            copies: 0,
            wants_metadata: false,
            wants_fill: false,
        };
        let chunk = u64::from(state.meta.chunk_blocks);
        self.take_from_pool(state, pieces)?;
        let mut space = self.core.space.lock();
        for piece in pieces {
            let blocks = piece.end - piece.start;
            match piece.place {
                Place::Own(vg) => plan.targets.push(((vg, blocks), false)),
                Place::Unwritten(vg) => plan.targets.push(((vg, blocks), true)),
                Place::New { account, .. } | Place::Again { account, .. } | Place::Copy { account, .. } => {
                    // Its slot in the chunk is taken by the block that is given up: those go one after the other.
                    let is_moved = matches!(piece.place, Place::Again { .. } | Place::Copy { .. });
                    let chunk = if is_moved { 1 } else { chunk };
                    let mut runs = Runs::new();
                    let taken =
                        space.alloc(self.core.hands(), self.id, chunk, (piece.start, blocks), account, &mut runs);
                    if let Err(error) = taken {
                        for (run, account) in plan.accounts {
                            space.unalloc(&[run], account);
                        }
                        return Err(error);
                    }
                    for run in runs {
                        plan.targets.push((run, true));
                        plan.allocated.push(run);
                        plan.accounts.push((run, account));
                    }
                }
            }
        }
        plan.wants_metadata = space.take_metadata_wish();
        drop(space);
        let edge = |block: u64| {
            let piece = pieces.iter().find(|p| p.start <= block && block < p.end).expect("pieces cover the request");
            match piece.place {
                Place::Own(vg)
                | Place::New { old: Some(vg), .. }
                | Place::Again { old: vg, .. }
                | Place::Copy { old: vg, .. } => Edge::At(vg + block - piece.start),
                Place::Unwritten(_) | Place::New { old: None, .. } => Edge::Zeros,
            }
        };
        if offset % BLOCK_SIZE != 0 {
            plan.edges[0] = edge(first);
        }
        if (offset + len) % BLOCK_SIZE != 0 && (last - 1 > first || offset % BLOCK_SIZE == 0) {
            plan.edges[1] = edge(last - 1);
        }
        let again = pieces.iter().filter(|piece| matches!(piece.place, Place::Again { .. }));
        plan.replaces = again.map(|piece| piece.end - piece.start).sum();
        let copies = pieces.iter().filter(|piece| matches!(piece.place, Place::Copy { .. }));
        plan.copies = copies.map(|piece| piece.end - piece.start).sum();
        plan.op = state.begin_with(first, last, Mode::Map, plan.allocated.clone(), plan.replaces);
        Ok(plan)
    }

    /// A pool's volumes together take no more than its size. What is taken off here and then not used comes back when the
    /// pool is measured (Q1).
    fn take_from_pool(&self, state: &State, pieces: &Pieces) -> std::result::Result<(), AllocError> {
        let pool = &state.meta.attributes.pool;
        if pool.is_empty() {
            return Ok(());
        }
        // What a snapshot's reserve pays for is not the pool's; one without a reserve pays for nothing.
        let is_counted = |piece: &&Piece| match piece.place {
            Place::New { account: Account::Reserve(payer), .. } => self.core.space.lock().reserve(payer).is_none(),
            Place::New { .. } | Place::Copy { .. } => true,
            // For each block that is put elsewhere one comes back.
            Place::Own(_) | Place::Unwritten(_) | Place::Again { .. } => false,
        };
        let wanted: u64 = pieces.iter().filter(is_counted).map(|piece| piece.end - piece.start).sum();
        match wanted == 0 || self.core.pools.lock().take(pool, wanted) {
            true => Ok(()),
            false => Err(AllocError::PoolFull(wanted)),
        }
    }

    async fn write_mapped(&self, offset: u64, len: u32, buf: Arc<PageBuf>, plan: MapPlan) -> Result<Option<Seq>> {
        let buf = match self.compose(offset, len, buf, &plan).await {
            Ok(composed) => composed,
            Err(error) => {
                self.give_up(&plan);
                return Err(error);
            }
        };
        let first = offset / BLOCK_SIZE;
        let mut extents: SmallVec<[WriteExtent; 2]> = SmallVec::new();
        let mut segments = Segments::new();
        let placement = self.state.lock().placement.clone();
        let mut at = 0u64;
        for ((vg, blocks), _) in &plan.targets {
            placement.map_blocks(VgBlock(*vg), *blocks, (at * BLOCK_SIZE) as u32, &mut segments);
            at += blocks;
        }
        let places = segments.clone();
        let data = start(&*self.core.disks, DiskOp::Write { segments, buf: buf.clone() });
        // The disk is at work while the checksums are made.
        at = 0;
        for ((vg, blocks), named) in &plan.targets {
            if *named {
                let bytes = &buf.as_slice()[(at * BLOCK_SIZE) as usize..((at + blocks) * BLOCK_SIZE) as usize];
                extents.push(WriteExtent {
                    lv_block: LvBlock(first + at),
                    vg_block: VgBlock(*vg),
                    len: *blocks as u32,
                    data_crc: crc32c(bytes),
                });
            }
            at += blocks;
        }
        // Whoever wrote may use the buffer again as soon as the write has returned.
        drop(buf);
        // U3: a write that meets no room again and again leaves nothing behind.
        let (mut data, mut early) = (Some(data), None);
        if extents.is_empty() || self.core.backing.is_short() {
            early = data.take();
        }
        if let Some(data) = early
            && let Err(error) = data.await
        {
            self.take_back(&plan);
            return Err(self.not_written(error, places));
        }
        if extents.is_empty() {
            // A partial block in place on a disk with larger sectors: read, changed, and written whole.
            return Ok(None);
        }
        let record = Record::Write { volume: self.id, extents };
        let journal = &self.core.journal;
        let seq = journal.append(&record, true);
        let Record::Write { extents, .. } = record else { unreachable!("it was just made") };
        if let Some(data) = data
            && let Err(error) = data.await
        {
            self.abort(seq, &plan).await?;
            return Err(self.not_written(error, places));
        }
        if !self.core.planted("early_ack")
            && let Err(error) = journal.written(seq).await
        {
            journal.close(seq);
            return Err(error);
        }
        let flipped = self.flip(seq, &extents, &plan.allocated).await;
        journal.close(seq);
        self.core.space_use_changed();
        self.background_marker(seq, u64::from(len));
        flipped.map(|()| Some(seq))
    }

    /// Changes the map: the blocks were written and the record is on the disk (V2). `allocated`: the new places among them.
    async fn flip(&self, seq: Seq, extents: &[WriteExtent], allocated: &[Run]) -> Result<()> {
        for extent in extents {
            let outcome = self
                .core
                .with_nodes(|| {
                    let _gate = self.core.gate.read();
                    let mut state = self.state.lock();
                    apply_write(&self.core, &mut state, extent, None)?;
                    let (start, place) = (extent.lv_block.0, extent.vg_block.0);
                    let is_part = |(at, len): &Run| (*at..at + len).contains(&place);
                    let is_moved = allocated.iter().any(is_part);
                    state.fresh.insert(start, start + u64::from(extent.len), seq, is_moved);
                    if state.fresh.is_large() {
                        state.fresh.prune(self.core.journal.marker_durable());
                    }
                    let named = (place, u64::from(extent.len));
                    let holders = state.in_flight.iter_mut().filter(|op| !op.allocated.is_empty());
                    holders.for_each(|op| remove_run(&mut op.allocated, named));
                    Ok(())
                })
                .await;
            if let Err(error) = outcome {
                // The record stands, the map does not show it: nothing but recovery can make this right.
                self.core.journal.poison(&format!("a mapping could not be changed: {error}"));
                return Err(error);
            }
        }
        Ok(())
    }

    /// The data could not be written: the record must not count.
    async fn abort(&self, seq: Seq, plan: &MapPlan) -> Result<()> {
        let journal = &self.core.journal;
        let abort = journal.append(&Record::Abort { seq }, false);
        let outcome = journal.written(abort).await;
        self.give_up(plan);
        journal.close(seq);
        outcome
    }

    fn give_up(&self, plan: &MapPlan) {
        let _gate = self.core.gate.read();
        let mut state = self.state.lock();
        let mut space = self.core.space.lock();
        for (run, account) in &plan.accounts {
            // Not straight back: a record may name these blocks until the next checkpoint.
            space.free_later(*run);
            space.unsettle(run.1, *account);
        }
        state.in_flight.iter_mut().filter(|op| op.id == plan.op).for_each(|op| op.allocated.clear());
    }

    /// Nobody was told of these blocks: no record names them.
    fn take_back(&self, plan: &MapPlan) {
        let _gate = self.core.gate.read();
        let mut state = self.state.lock();
        let mut space = self.core.space.lock();
        for (run, account) in &plan.accounts {
            space.unalloc(&[*run], *account);
        }
        state.in_flight.iter_mut().filter(|op| op.id == plan.op).for_each(|op| op.allocated.clear());
    }

    fn not_written(&self, error: DiskError, places: Segments) -> Error {
        if error.is_no_room() {
            self.core.lacks_room(error, places);
        }
        error.into()
    }

    /// The buffer with whole blocks: the caller's own when the write covers them, else a copy with the edges filled in.
    async fn compose(&self, offset: u64, len: u32, buf: Arc<PageBuf>, plan: &MapPlan) -> Result<Arc<PageBuf>> {
        if plan.edges == [Edge::Whole; 2] {
            return Ok(buf);
        }
        let (first, last) = (offset / BLOCK_SIZE, (offset + u64::from(len)).div_ceil(BLOCK_SIZE));
        let mut whole = PageBuf::zeroed(((last - first) * BLOCK_SIZE) as usize);
        for (edge, block) in plan.edges.into_iter().zip([first, last - 1]) {
            if let Edge::At(vg) = edge {
                let old = self.core.read_block(VgBlock(vg)).await?;
                let at = ((block - first) * BLOCK_SIZE) as usize;
                whole.as_mut_slice()[at..at + BLOCK_SIZE as usize]
                    .copy_from_slice(&old.as_slice()[..BLOCK_SIZE as usize]);
            }
            if edge == Edge::Zeros && self.core.planted("stale_partial") {
                let vg = plan.targets.first().expect("a write has a target").0.0;
                let stale = self.core.read_block(VgBlock(vg)).await?;
                let at = ((block - first) * BLOCK_SIZE) as usize;
                whole.as_mut_slice()[at..at + BLOCK_SIZE as usize]
                    .copy_from_slice(&stale.as_slice()[..BLOCK_SIZE as usize]);
            }
        }
        let at = (offset - first * BLOCK_SIZE) as usize;
        whole.as_mut_slice()[at..at + len as usize].copy_from_slice(&buf.as_slice()[..len as usize]);
        Ok(Arc::new(whole))
    }

    /// Keeps small what recovery has to prove by its data: time to open again is bounded by it.
    fn background_marker(&self, seq: Seq, bytes: u64) {
        let unproven = self.core.unproven.fetch_add(bytes + RECORD_COST, Ordering::Relaxed) + bytes + RECORD_COST;
        if unproven < UNPROVEN_BYTES {
            return;
        }
        self.core.unproven.store(0, Ordering::Relaxed);
        let journal = self.core.journal.clone();
        let marker = async move {
            // A failure poisons the journal, and whoever writes next is told.
            let _ = journal.ensure_marker(seq).await;
        };
        self.core.runtime.spawn("marker", Box::pin(marker));
    }

    /// Everything acknowledged before this call is durable when it returns.
    pub async fn flush(&self) -> Result<()> {
        self.core.journal.flush().await
    }

    /// Requests begun so far; what [`readers_done`](Self::readers_done) is asked about later.
    pub(crate) fn begun(&self) -> u64 {
        self.state.lock().next_op
    }

    /// Waits until no read that was begun before request `limit` is in flight.
    pub(crate) async fn readers_done(&self, limit: u64) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.in_flight.iter().any(|op| op.mode == Mode::Read && op.id < limit) {
                return Self::wait_here(&mut state, cx);
            }
            Poll::Ready(())
        })
        .await
    }

    /// Closes the gate to writes, or to reads, too, and waits until none of them is in flight. [`Gate::drop`] opens it.
    pub(crate) async fn close_gate(self: &Arc<Self>, readers_too: bool) -> Gate {
        {
            let mut state = self.state.lock();
            state.gates += 1;
            state.shut += u32::from(readers_too);
            state.touch(0, u64::MAX);
        }
        let gate = Gate { volume: self.clone(), readers_too };
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.in_flight.iter().any(|op| readers_too || op.mode != Mode::Read) {
                return Self::wait_here(&mut state, cx);
            }
            Poll::Ready(())
        })
        .await;
        gate
    }
}

/// A closed gate: the volume's writes, or all requests, wait until it is dropped.
pub(crate) struct Gate {
    volume: Arc<Volume>,
    readers_too: bool,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut state = self.volume.state.lock();
        state.gates -= 1;
        state.shut -= u32::from(self.readers_too);
        state.wake();
    }
}

enum ReadPlan {
    Ready { op: Option<u64>, segments: Segments, zeros: SmallVec<[(u32, u32); 2]> },
    Load(NodeRef, u8),
}

/// Takes a run out of a list of runs that may hold it as a part.
fn remove_run(runs: &mut Runs, (start, len): Run) {
    let end = start + len;
    if runs.iter().all(|(a, n)| a + n <= start || end <= *a) {
        return;
    }
    let mut left = Runs::new();
    for (a, n) in runs.drain(..) {
        let b = a + n;
        for (from, to) in [(a, b.min(start)), (a.max(end), b)] {
            if from < to {
                left.push((from, to - from));
            }
        }
    }
    *runs = left;
}
