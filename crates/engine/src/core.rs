//! What all parts of an open group share: the disks, the node cache, free space, the journal, and the gate that makes
//! a checkpoint's capture one instant.
//!
//! Order of locks, outermost first: `gate`, catalog, a volume's state, `space`, `meta`, the journal's and the cache's
//! own. None is held across an await.

use crate::dead::Points;
use crate::disk::DiskError;
use crate::disk::{Completion, DiskOp, Disks, PageBuf, PvIndex, Segments, start};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::node::Node;
use crate::format::node::UNWRITTEN;
use crate::journal::{Journal, Pressure};
use crate::map::{MapError, NodeCache, NodeOwner, NodeRef};
use crate::model::Config;
use crate::placement::Placement;
use crate::runtime::{Runtime, yield_now};
use crate::space::backing::Backing;
use crate::space::metadata::{LEAST_METADATA, MetaSpace, RUNS_TOGETHER, Room};
use crate::space::patience::Patience;
use crate::space::pools::PoolLeft;
use crate::space::pools::Pools;
use crate::space::{AllocError, Hands, OpenArenas, Run, Space};
use crate::units::VolumeId;
use crate::units::{BLOCK_SIZE, Epoch, MetaBlock, VgBlock};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Writes that change a map wait while this many times the bytes that start a checkpoint are dirty: what one checkpoint
/// writes, what became dirty meanwhile, and some room so that nobody waits who need not.
const DIRTY_BOUND: u64 = 3;
/// Freed runs that may wait for a checkpoint before one is taken for them: the more, the fewer checkpoints a removal needs, each
/// of which may have to write most of the free tree anew. They are in memory, and in the checkpoint's stream.
const PENDING_RUNS: RangeInclusive<u64> = 16 << 10..=64 << 10;
/// So many of them to a metadata block, that is, a 32nd of the metadata area for the stream.
const PENDING_RUNS_TO_A_BLOCK: u64 = 8;
/// Work in the background rests after so many steps, of some tens of microseconds each...
const STEPS_BETWEEN_RESTS: u32 = 4;
/// ... for this long, if there were writes meanwhile.
const REST: Duration = Duration::from_micros(500);
/// How long is waited for what others under way have of metadata, until it is asked for again.
pub const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Bad copies that a checkpoint writes anew, at most; the others are met again.
const REPAIRS_TOGETHER: usize = 256;
/// For tests: see [`Core::has_no_room_to_free`].
const NO_ROOM_UNTIL: u64 = 40;
/// Nodes that are read together where many are wanted.
pub const READS_TOGETHER: usize = 32;

/// Counters since the group was opened; see [`crate::group::Stats`].
#[derive(Default)]
pub struct Counters {
    pub writes_in_place: AtomicU64,
    pub writes_redirected: AtomicU64,
    pub checkpoints: AtomicU64,
    pub nodes_written: AtomicU64,
    pub node_loads: AtomicU64,
    pub writes_again: AtomicU64,
    pub waits_for_marker: AtomicU64,
    pub recovered: AtomicU64,
    pub recovery_skipped: AtomicU64,
    pub reclaim_steps: AtomicU64,
    pub orphans_freed: AtomicU64,
    pub windows_rehomed: AtomicU64,
    pub windows_filled: AtomicU64,
    pub blocks_filled: AtomicU64,
    pub fills_without_room: AtomicU64,
    pub volumes_invalidated: AtomicU64,
    pub copies_not_written: AtomicU64,
    pub nodes_lost: AtomicU64,
    /// The most bytes of dirty nodes that a write, or work beside it, met.
    pub dirty_most: AtomicU64,
}

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The gait of work in the background: see [`Core::pace`].
#[derive(Default)]
pub struct Pace {
    steps: u32,
    writes: u64,
}

/// Why a walk did not get a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Both copies were read, and neither is this node any more.
    Lost(NodeRef),
    /// A copy that may be good cannot be read now.
    Unread(NodeRef),
}

/// Metadata that is being made larger.
#[derive(Default)]
struct Growth {
    is_under_way: AtomicBool,
    done: Event,
    /// Runs taken out of free space that are not metadata yet.
    taken: Mutex<Vec<Run>>,
}

/// What a [`SpaceFinder`] answers later.
pub type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How the parts of an open group ask the group for space. They do not know the group.
pub trait SpaceFinder: Send + Sync {
    /// Takes a checkpoint: what was freed before it becomes free.
    fn take_checkpoint(self: Arc<Self>) -> Answer<Result<()>>;
    /// Waits for space that comes back soon; false: none will.
    fn wait_for_space(self: Arc<Self>) -> Answer<Result<bool>>;
    /// Removal is in progress, so that space may come by waiting.
    fn is_removing(&self) -> bool;
    /// The oldest snapshot of the volume that may be dropped.
    fn droppable_snapshot(&self, volume: VolumeId) -> Option<VolumeId>;
    /// Gives up a snapshot: its space comes back, its name stays.
    fn invalidate_snapshot(self: Arc<Self>, snapshot: VolumeId) -> Answer<Result<()>>;
    /// What the volumes of a pool may still take, measured now.
    fn pool_left(&self, pool: &str) -> PoolLeft;
    /// Gets room behind the disks for metadata and the journal (U1).
    fn back_metadata(self: Arc<Self>) -> Answer<std::result::Result<(), DiskError>>;
    /// The volume has redirected writes that may have to be filled (rule R13).
    fn want_filling(&self, volume: VolumeId);
}

pub struct Core {
    pub disks: Arc<dyn Disks>,
    pub runtime: Arc<dyn Runtime>,
    pub config: Config,
    /// First eight bytes of the group's UUID: every metadata block carries them.
    pub tag: u64,
    pub placement: RwLock<Arc<Placement>>,
    pub cache: NodeCache,
    pub meta: Mutex<MetaSpace>,
    pub space: Mutex<Space>,
    /// Nothing is locked while this is.
    pub pools: Mutex<Pools>,
    pub patience: Patience,
    pub points: Arc<Points>,
    pub journal: Arc<Journal>,
    /// Held shared by every change of mappings, space or catalog; held exclusively by a checkpoint's capture.
    pub gate: RwLock<()>,
    /// The checkpoint generation that changes belong to now.
    pub generation: AtomicU64,
    pub counters: Counters,
    /// Space came back, a checkpoint ended, a removal went on, or the group stopped.
    pub space_event: Arc<Event>,
    pub closed: AtomicBool,
    /// Nobody waits for room any more: see [`Group::end_waiting`](crate::group::Group::end_waiting).
    pub waits_no_more: AtomicBool,
    /// Bytes written since the last marker was asked for in the background.
    pub unproven: AtomicU64,
    /// Nodes whose first copy is bad.
    to_repair: Mutex<BTreeSet<(NodeRef, u8)>>,
    /// Metadata is being made larger ahead of its need.
    is_growing: AtomicBool,
    growth: Growth,
    pub backing: Backing,
    space_finder: Mutex<Option<Weak<dyn SpaceFinder>>>,
    /// This core, for tasks that must not keep it open.
    pub this: Weak<Core>,
}

impl Core {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        disks: Arc<dyn Disks>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        tag: u64,
        placement: Arc<Placement>,
        mut meta: MetaSpace,
        space: Space,
        journal: Arc<Journal>,
        generation: u64,
        points: Arc<Points>,
    ) -> Arc<Core> {
        let space_event = match cfg!(feature = "planted") && config.planted == Some("left_asleep") {
            true => Arc::default(),
            false => journal.stopped.clone(),
        };
        meta.set_load(space.load());
        Arc::new_cyclic(|this| Core {
            cache: NodeCache::new(config.cache_bytes as u64),
            disks,
            runtime,
            config,
            tag,
            placement: RwLock::new(placement),
            meta: Mutex::new(meta),
            space: Mutex::new(space),
            pools: Mutex::new(Pools::default()),
            patience: Patience::default(),
            points,
            journal,
            gate: RwLock::new(()),
            generation: AtomicU64::new(generation),
            counters: Counters::default(),
            space_event,
            closed: AtomicBool::new(false),
            waits_no_more: AtomicBool::new(false),
            unproven: AtomicU64::new(0),
            to_repair: Mutex::default(),
            is_growing: AtomicBool::new(false),
            growth: Growth::default(),
            backing: Backing::default(),
            space_finder: Mutex::new(None),
            this: this.clone(),
        })
    }

    pub fn set_space_finder(&self, finder: Weak<dyn SpaceFinder>) {
        *self.space_finder.lock() = Some(finder);
    }

    pub fn space_finder(&self) -> Result<Arc<dyn SpaceFinder>> {
        self.space_finder.lock().as_ref().and_then(Weak::upgrade).ok_or(Error::Closed)
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub fn placement(&self) -> Arc<Placement> {
        self.placement.read().clone()
    }

    pub fn planted(&self, bug: &str) -> bool {
        cfg!(feature = "planted") && self.config.planted == Some(bug)
    }

    /// For tests: recovery takes a checkpoint before each record and in the middle of records, whatever room there is.
    pub fn replays_in_small_parts(&self) -> bool {
        cfg!(feature = "planted") && self.config.planted.is_some_and(|bug| bug.starts_with("small_parts"))
    }

    /// Runs that a part of what frees much may free (M2).
    pub fn runs_together(&self) -> usize {
        if self.replays_in_small_parts() { 1 } else { RUNS_TOGETHER }
    }

    /// What the free tree needs to be changed now.
    pub fn hands(&self) -> Hands<'_> {
        Hands { cache: &self.cache, meta: &self.meta, generation: self.generation(), keep: 0 }
    }

    /// Runs `step` until it has all the nodes it needs in memory, reading those that are missing, and makes room for
    /// metadata when it has too little.
    pub async fn with_nodes<T>(&self, mut step: impl FnMut() -> std::result::Result<T, MapError>) -> Result<T> {
        for _ in 0..3 {
            let outcome = self
                .with_nodes_privileged(|| match step() {
                    Err(MapError::NoSpace) => Ok(None),
                    outcome => outcome.map(Some),
                })
                .await?;
            if let Some(value) = outcome {
                return Ok(value);
            }
            self.metadata_room().await?;
        }
        Err(self.no_space(1))
    }

    /// The same for work that gives space back: it has the metadata reserve, and must not wait for a checkpoint.
    pub async fn with_nodes_privileged<T>(
        &self,
        mut step: impl FnMut() -> std::result::Result<T, MapError>,
    ) -> Result<T> {
        let (mut unreadable, mut displaced) = (None, None);
        loop {
            match step() {
                Ok(value) => return Ok(value),
                Err(MapError::Corrupt(error)) => return Err(error),
                Err(MapError::NoSpace) => return Err(self.no_space(1)),
                // Who asked before the block was given to the newer node has another name for what it wants by now.
                Err(MapError::Missing(node, _)) if displaced == Some(node) => {
                    let (what, place) = ("tree node", node.to_string());
                    return Err(Error::Corrupt { what, place, detail: "another tree has a newer node there".into() });
                }
                Err(MapError::Missing(node, level)) => match self.load(node, level).await {
                    Ok(()) => {
                        unreadable = None;
                        displaced = self.cache.is_displaced(node).then_some(node);
                    }
                    Err(error) if unreadable == Some(node) => return Err(error),
                    Err(_) => unreadable = Some(node),
                },
            }
        }
    }

    /// The same for a walk that can do without a node: `Err` within is one that it did not get.
    pub async fn with_nodes_there<T>(
        &self,
        mut step: impl FnMut() -> std::result::Result<T, MapError>,
    ) -> Result<std::result::Result<T, Absent>> {
        let mut missing = None;
        let walk = || match step() {
            Err(MapError::Missing(node, level)) => {
                missing = Some(node);
                Err(MapError::Missing(node, level))
            }
            outcome => outcome,
        };
        match self.with_nodes_privileged(walk).await {
            Ok(value) => Ok(Ok(value)),
            Err(error) => match (error, missing) {
                (Error::Corrupt { .. }, Some(node)) => Ok(Err(Absent::Lost(node))),
                (Error::Disk(_), Some(node)) => Ok(Err(Absent::Unread(node))),
                (error, _) => Err(error),
            },
        }
    }

    pub fn no_space(&self, needed: u64) -> Error {
        Error::NoSpace { needed, free: self.space.lock().available() }
    }

    /// Reads a node into the cache: from its first copy, or from the second. Then the next checkpoint repairs the first (M8).
    /// A disk's error goes before damage: the copy that could not be read may be the good one.
    pub async fn load(&self, node: NodeRef, level: u8) -> Result<()> {
        count(&self.counters.node_loads);
        let copies = self.meta.lock().locate(node.addr);
        let Some(copies) = copies else {
            return Err(Error::Corrupt {
                what: "tree node",
                place: node.to_string(),
                detail: "there is no such metadata block".into(),
            });
        };
        let mut first = None;
        // A node that is being replaced while it is read may still name blocks that a physical volume lost meanwhile.
        let there = self.placement();
        for (i, place) in copies.into_iter().enumerate() {
            let Some(read) = self.start_read(place) else { continue };
            let outcome = match read.await {
                Ok(block) => self.decode(&block.expect("a read gives its buffer back"), node, level, &there),
                Err(error) => Err(error.into()),
            };
            match outcome {
                Ok(decoded) => {
                    if i == 1 && !self.config.read_only {
                        self.repair_later(node, level, &decoded).await;
                    }
                    self.cache.insert_clean(decoded);
                    return Ok(());
                }
                Err(error @ Error::Disk(_)) if !matches!(first, Some(Error::Disk(_))) => first = Some(error),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::Corrupt {
            what: "tree node",
            place: node.to_string(),
            detail: "its physical volume has left".into(),
        }))
    }

    async fn repair_later(&self, node: NodeRef, level: u8, good: &Node) {
        if self.planted("repairs_at_once") {
            let Some([first, _]) = self.meta.lock().locate(node.addr) else { return };
            let _ = self.write_blocks(first, Arc::new(PageBuf::from_slice(&good.encode(self.tag)))).await;
            return;
        }
        let mut to_repair = self.to_repair.lock();
        if to_repair.len() < REPAIRS_TOGETHER {
            to_repair.insert((node, level));
        }
    }

    /// Writes the first copies anew of nodes that were read from their second one. Only a checkpoint does this, before it writes
    /// anything: nothing else writes metadata then, so a second copy that is good still says what the first has to be (M8).
    pub async fn repair_copies(&self) {
        let to_repair = std::mem::take(&mut *self.to_repair.lock());
        for (node, level) in to_repair {
            let Some([first, second]) = self.meta.lock().locate(node.addr) else { continue };
            let Ok(block) = self.read_block(second).await else { continue };
            if let Ok(good) = Node::decode(&block.as_slice()[..BLOCK_SIZE as usize], node, level, self.tag) {
                // A repair that fails changes nothing: the good copy is still there.
                let _ = self.write_blocks(first, Arc::new(PageBuf::from_slice(&good.encode(self.tag)))).await;
            }
        }
    }

    /// Reads many nodes into the cache, some reads under way together. False: one of them cannot be read.
    pub async fn load_together(&self, nodes: &BTreeSet<(NodeRef, u8)>) -> bool {
        let mut under_way = VecDeque::with_capacity(READS_TOGETHER);
        let mut rest = nodes.iter();
        let there = self.placement();
        loop {
            while under_way.len() < READS_TOGETHER
                && let Some((node, level)) = rest.next()
            {
                let place = self.meta.lock().locate(node.addr);
                let Some([place, _]) = place else { return false };
                let Some(read) = self.start_read(place) else { return false };
                under_way.push_back((*node, *level, read));
            }
            let Some((node, level, read)) = under_way.pop_front() else { return true };
            let block = read.await.ok().flatten();
            match block.and_then(|block| self.decode(&block, node, level, &there).ok()) {
                Some(decoded) => {
                    count(&self.counters.node_loads);
                    self.cache.insert_clean(decoded);
                }
                // Its second copy, and what follows from having to use that.
                None if self.load(node, level).await.is_ok() => {}
                None => return false,
            }
        }
    }

    /// `there`: the blocks that there were when the reading began.
    fn decode(&self, block: &PageBuf, node: NodeRef, level: u8, there: &Placement) -> Result<Node> {
        let decoded = Node::decode(&block.as_slice()[..BLOCK_SIZE as usize], node, level, self.tag)?;
        self.plausible(node, decoded, there)
    }

    /// What a node's own block cannot tell: that the bitmap knows it, and that it maps to blocks that there are.
    fn plausible(&self, name: NodeRef, node: Node, there: &Placement) -> Result<Node> {
        let corrupt = |detail: String| Error::Corrupt { what: "tree node", place: name.to_string(), detail };
        if !self.meta.lock().is_used(name.addr) {
            return Err(corrupt("the metadata bitmap calls its block free".into()));
        }
        let wild = node.extents().find(|e| !there.holds(e.value, u64::from(e.len)) || e.flags & !UNWRITTEN != 0);
        match wild {
            Some(e) => Err(corrupt(format!("it maps block {} to {}+{}, which are not there", e.key, e.value, e.len))),
            None => Ok(node),
        }
    }

    pub async fn read_block(&self, place: VgBlock) -> Result<PageBuf> {
        let mut segments = Segments::new();
        self.placement().map_blocks(place, 1, 0, &mut segments);
        self.read_twice(segments, PageBuf::zeroed(BLOCK_SIZE as usize)).await
    }

    /// Reads, and once more if that fails: a path that broke or a drive that was reset may be there again.
    pub async fn read_twice(&self, segments: Segments, buf: PageBuf) -> Result<PageBuf> {
        let bytes = buf.capacity();
        let read = match start(&*self.disks, DiskOp::Read { segments: segments.clone(), buf }).await {
            Err(_) if !self.planted("reads_once") => {
                start(&*self.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(bytes) }).await
            }
            read => read,
        };
        Ok(read?.expect("a read gives its buffer back"))
    }

    /// `None`: the block was there when its place was looked up, and is not any more. Its physical volume has left, or is smaller now.
    fn start_read(&self, place: VgBlock) -> Option<Completion> {
        let placement = self.placement();
        if !placement.holds(place.0, 1) && !self.planted("reads_what_left") {
            return None;
        }
        let mut segments = Segments::new();
        placement.map_blocks(place, 1, 0, &mut segments);
        Some(start(&*self.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(BLOCK_SIZE as usize) }))
    }

    /// Writes a whole buffer at consecutive VG blocks.
    pub async fn write_blocks(&self, place: VgBlock, buf: Arc<PageBuf>) -> Result<()> {
        let mut segments = Segments::new();
        self.placement().map_blocks(place, buf.capacity() as u64 / BLOCK_SIZE, 0, &mut segments);
        start(&*self.disks, DiskOp::Write { segments, buf }).await?;
        Ok(())
    }

    /// Smallest unit that every physical volume can address, in bytes.
    pub fn sector(&self) -> u32 {
        (0..self.disks.count()).map(|i| self.disks.geometry(PvIndex(i as u16)).sector).max().unwrap_or(512)
    }

    /// Makes the metadata area larger: by a pair of extents, by as many small ones as are worth the while, or by shorter runs (M9).
    /// `Ok(false)`: there is no room for any. One at a time: who comes meanwhile takes part in what was found.
    pub async fn grow(&self, open: OpenArenas) -> Result<bool> {
        loop {
            let (turn, free) = (self.growth.done.turn(), self.meta.lock().free());
            if !self.growth.is_under_way.swap(true, Ordering::AcqRel) {
                break;
            }
            self.growth.done.changed(turn).await;
            if self.meta.lock().free() > free {
                return Ok(true);
            }
        }
        let outcome = self.grow_alone(open).await;
        self.growth.is_under_way.store(false, Ordering::Release);
        self.growth.done.notify();
        outcome
    }

    async fn grow_alone(&self, open: OpenArenas) -> Result<bool> {
        let wanted = LEAST_METADATA.max(self.placement().extent_blocks);
        let mut grown = 0;
        while grown < wanted {
            let pairs = self.take_for_growth(open).await?;
            if !self.add_pairs(&pairs).await {
                break;
            }
            grown += pairs.iter().map(|[run, _]| run.1).sum::<u64>();
        }
        Ok(grown > 0)
    }

    /// Takes pairs of runs out of free space that are to become metadata: a pair of extents if there is one; where there is
    /// need, shorter runs (M9); and if there are few of these, either after the arenas were closed.
    async fn take_for_growth(&self, open: OpenArenas) -> Result<Vec<[Run; 2]>> {
        if open == OpenArenas::Stay {
            let pair = self.with_nodes_privileged(|| self.take_pair(open)).await?;
            return Ok(pair.into_iter().collect());
        }
        for arenas in [OpenArenas::Kept, OpenArenas::Close] {
            if let Some(pair) = self.with_nodes_privileged(|| self.take_pair(arenas)).await? {
                return Ok(vec![pair]);
            }
            let pieces = if self.planted("grow_by_extents") { Vec::new() } else { self.take_pieces().await? };
            if !pieces.is_empty() {
                return Ok(pieces);
            }
        }
        Ok(Vec::new())
    }

    /// Makes pairs of runs that were taken part of the metadata area. False: there are none, or there is no room behind them.
    async fn add_pairs(&self, pairs: &[[Run; 2]]) -> bool {
        let runs: Vec<Run> = pairs.iter().flatten().copied().collect();
        // U1: there is room behind it before anybody uses it.
        let backed = if self.planted("grow_unbacked") { Ok(()) } else { self.back(&runs).await };
        let _gate = self.gate.read();
        self.growth.taken.lock().clear();
        if let Err(error) = backed {
            let mut space = self.space.lock();
            runs.iter().for_each(|run| space.free_later(*run));
            drop(space);
            if error.is_no_room() {
                self.lacks_room(error, self.in_parts(&runs).into_iter().flatten().collect());
            }
            return false;
        }
        let mut meta = self.meta.lock();
        pairs.iter().for_each(|[first, second]| meta.add_pair([first.0, second.0], first.1));
        !pairs.is_empty()
    }

    /// M9
    async fn take_pieces(&self) -> Result<Vec<[Run; 2]>> {
        let plan = self.with_nodes_privileged(|| self.space.lock().pieces_for_metadata(self.hands())).await?;
        let mut taken: Vec<[Run; 2]> = Vec::new();
        for pair in plan {
            self.meta.lock().expect_pair();
            match self.take_both(pair).await {
                Ok(true) => taken.push(pair),
                // Another has taken one of them meanwhile.
                Ok(false) => {}
                Err(Error::NoSpace { .. }) => break,
                // What was taken is not lost: whoever comes next meets the error, too.
                Err(_) if !taken.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Takes both runs out of free space, or none. `Ok(false)`: one is not free any more.
    async fn take_both(&self, pair: [Run; 2]) -> Result<bool> {
        for (n, run) in pair.into_iter().enumerate() {
            let take = || {
                let _gate = self.gate.read();
                let keep = self.meta.lock().kept_from_growth();
                let is_taken = self.space.lock().take_if_free(Hands { keep, ..self.hands() }, run)?;
                if is_taken {
                    self.growth.taken.lock().push(run);
                }
                Ok(is_taken)
            };
            let outcome = self.with_nodes_privileged(take).await;
            if outcome != Ok(true) {
                let _gate = self.gate.read();
                for earlier in &pair[..n] {
                    self.growth.taken.lock().retain(|taken| taken != earlier);
                    self.space.lock().free_later(*earlier);
                }
                return outcome;
            }
        }
        Ok(true)
    }

    /// Runs that are to become metadata and are not yet: to a checkpoint they are free.
    pub fn growing(&self) -> Vec<Run> {
        if self.planted("growth_forgotten") {
            return Vec::new();
        }
        self.growth.taken.lock().clone()
    }

    fn take_pair(&self, open: OpenArenas) -> std::result::Result<Option<[Run; 2]>, MapError> {
        let _gate = self.gate.read();
        let mut space = self.space.lock();
        let placement = self.placement();
        let blocks = placement.extent_blocks;
        let one = |space: &mut Space, from| match space.alloc_contiguous(self.hands(), blocks, from, open) {
            Ok(run) => Ok(run),
            Err(AllocError::Map(error)) => Err(error),
            Err(_) => Ok(None),
        };
        let Some(first) = one(&mut space, 0)? else { return Ok(None) };
        // The second copy belongs on another physical volume, where there is one.
        let (_, pv_end) = placement.pv_of(VgBlock(first.0));
        let other = if pv_end < placement.blocks() { pv_end } else { 0 };
        let mut second = one(&mut space, other);
        if open == OpenArenas::Stay && other > 0 && matches!(second, Ok(None)) {
            second = one(&mut space, 0);
        }
        match second {
            Ok(Some(second)) => {
                self.meta.lock().expect_pair();
                *self.growth.taken.lock() = vec![first, second];
                Ok(Some([first, second]))
            }
            outcome => {
                // Nobody saw it: it goes straight back.
                if space.add_free(self.hands(), first).is_err() {
                    space.free_later(first);
                }
                outcome.map(|_| None)
            }
        }
    }

    /// Finds room for metadata: more of it, or what the next checkpoint gives back.
    pub async fn metadata_room(&self) -> Result<()> {
        self.meta.lock().end_looks();
        let grown = match self.grow(OpenArenas::Close).await {
            Err(Error::NoSpace { .. }) => false,
            outcome => outcome?,
        };
        if !grown && self.meta.lock().pending() > 0 {
            self.space_finder()?.take_checkpoint().await?;
        }
        Ok(())
    }

    /// Waits until a discard that takes so many metadata blocks may change its map (M3); each that is let in ends with
    /// [`MetaSpace::unmap_done`]. [`Error::NoSpace`]: there are not so many, and nothing has changed.
    pub async fn admit_unmap(&self, blocks: u64) -> Result<()> {
        let mut tries = 0;
        loop {
            let room = self.meta.lock().admit_unmap(blocks);
            match room {
                Room::Some => return Ok(()),
                Room::Taken => self.runtime.sleep(ROOM_PAUSE).await,
                Room::None if tries < 3 => {
                    tries += 1;
                    self.metadata_room().await?;
                }
                Room::None => return Err(self.no_space(1)),
            }
            self.journal.failed()?;
        }
    }

    /// Begins to make metadata larger, which writes need not wait for (M5). One at a time is enough.
    pub fn grow_ahead(self: &Arc<Self>) {
        if self.is_growing.swap(true, Ordering::Relaxed) {
            return;
        }
        let core = Arc::downgrade(self);
        let growth = async move {
            let Some(core) = core.upgrade() else { return };
            // Who needs more than there is tries again, and is told.
            let _ = core.grow(OpenArenas::Stay).await;
            core.is_growing.store(false, Ordering::Relaxed);
        };
        self.runtime.spawn("growth", Box::pin(growth));
    }

    /// Volumes changed, and with them perhaps what pools have left: who waits for that looks again.
    pub fn volumes_changed(&self) {
        self.pools.lock().forget();
        self.space_event.notify();
    }

    /// Starts a checkpoint when much is dirty or much waits to be freed.
    pub fn space_use_changed(&self) {
        let pending = self.space.lock().pending_runs();
        if self.cache.dirty_bytes() > self.config.dirty_bytes as u64 || pending > 2 * self.pending_bound() {
            self.want_checkpoint();
        }
    }

    /// Freed runs with which removal takes a checkpoint. The foreground's bound is twice that.
    pub fn pending_bound(&self) -> usize {
        let runs = self.meta.lock().total() * PENDING_RUNS_TO_A_BLOCK;
        runs.clamp(*PENDING_RUNS.start(), *PENDING_RUNS.end()) as usize
    }

    /// Whether there are too few metadata blocks for freeing as much as one part of a removal or a reduction does (M2).
    pub fn is_short_of_room_to_free(&self) -> bool {
        let is_short = !self.planted("frees_unbounded") && !self.meta.lock().has_room_to_free(RUNS_TOGETHER);
        is_short || self.has_no_room_to_free()
    }

    /// For tests: metadata has no room until the group has taken so many checkpoints.
    pub fn has_no_room_to_free(&self) -> bool {
        cfg!(feature = "planted")
            && self.config.planted.is_some_and(|bug| bug.starts_with("no_room_to_free"))
            && self.counters.checkpoints.load(Ordering::Relaxed) < NO_ROOM_UNTIL
    }

    /// Lets others run after a step in the background, and rests now and then while there are writes: one step after the other
    /// would take a processor and the disk's queue from them. Who waits for what the background gives back writes nothing, and it
    /// does not rest; nor when the journal fills up.
    pub async fn pace(&self, pace: &mut Pace) {
        yield_now().await;
        pace.steps += 1;
        if pace.steps < STEPS_BETWEEN_RESTS {
            return;
        }
        let counters = &self.counters;
        let writes = [&counters.writes_in_place, &counters.writes_redirected];
        let writes = writes.map(|counter| counter.load(Ordering::Relaxed)).iter().sum();
        let busy = std::mem::replace(&mut pace.writes, writes) != writes;
        pace.steps = 0;
        let waited_for = self.journal.pressure() != Pressure::Low || self.too_dirty();
        if busy && !waited_for && !self.closed.load(Ordering::Acquire) {
            self.runtime.sleep(REST).await;
        }
    }

    /// Whether changes have to wait: dirty nodes cannot leave memory before a checkpoint, and come faster than it writes
    /// them where every write meets another leaf.
    pub fn too_dirty(&self) -> bool {
        self.dirty_bytes() > DIRTY_BOUND * self.config.dirty_bytes as u64
    }

    /// Bytes of dirty nodes now. The most that was met is counted.
    pub fn dirty_bytes(&self) -> u64 {
        let dirty = self.cache.dirty_bytes();
        if dirty > self.counters.dirty_most.load(Ordering::Relaxed) {
            self.counters.dirty_most.fetch_max(dirty, Ordering::Relaxed);
        }
        dirty
    }

    /// Waits while there are too many dirty nodes. The caller has nothing under way that a checkpoint waits for.
    pub async fn dirty_room(&self) -> Result<()> {
        loop {
            let turn = self.space_event.turn();
            if !self.too_dirty() {
                return Ok(());
            }
            self.journal.failed()?;
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            self.want_checkpoint();
            self.space_event.changed(turn).await;
        }
    }

    /// Asks the background for a checkpoint, without waiting for it.
    pub fn want_checkpoint(&self) {
        self.journal.want_checkpoint();
    }
}

/// Whose blocks and nodes are a tree's own (rule R3): what was born after the parent was frozen; and, while the parent
/// is being merged into it, what lies below the merge's cursor and was born after the grandparent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub parent_epoch: Epoch,
    pub absorb: Option<Absorb>,
}

/// A parent on its way out: below `cursor` it is gone, and only what is as old as `lower` is still shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absorb {
    pub cursor: u64,
    pub lower: Epoch,
}

impl Ownership {
    pub fn owns(&self, birth: Epoch, end: Option<u64>) -> bool {
        birth > self.parent_epoch
            || self.absorb.is_some_and(|a| birth > a.lower && end.is_some_and(|end| end <= a.cursor))
    }

    /// Where an extent has to be cut so that each piece has one owner.
    pub fn boundary(&self, start: u64, end: u64) -> Option<u64> {
        self.absorb.map(|a| a.cursor).filter(|cursor| start < *cursor && *cursor < end)
    }
}

/// A head's or point's writer.
pub struct TreeOwner<'a> {
    pub meta: &'a mut MetaSpace,
    pub cache: &'a NodeCache,
    pub generation: u64,
    pub birth: Epoch,
    pub ownership: Ownership,
    /// May use the metadata reserve: what gives space back must never fail for lack of it.
    pub privileged: bool,
}

impl NodeOwner for TreeOwner<'_> {
    fn can_alloc(&self, nodes: usize) -> bool {
        self.meta.can_alloc(nodes as u64, self.privileged)
    }
    fn alloc(&mut self) -> MetaBlock {
        self.meta.alloc()
    }
    fn release(&mut self, node: NodeRef) {
        self.meta.release(node, self.generation, self.cache);
    }
    fn owned(&self, birth: Epoch, key: u64) -> bool {
        self.ownership.owns(birth, key.checked_add(1))
    }
    fn birth(&self) -> Epoch {
        self.birth
    }
    fn generation(&self) -> u64 {
        self.generation
    }
}
