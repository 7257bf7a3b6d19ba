//! The state that all parts of an open group share: the disks, the node cache, free space, the journal, and the gate
//! that makes a checkpoint's capture one instant.
//!
//! Order of locks, outermost first: `gate`, catalog, a volume's state, `space`, `meta`, the journal's and the cache's
//! own. None is held across an await.

mod growth;
mod nodes;
mod ownership;
mod throttle;

pub use growth::ROOM_PAUSE;
pub use nodes::{READS_TOGETHER, Unavailable, is_missing};
pub use ownership::{MergeCursor, Ownership, TreeOwner};
pub use throttle::Throttle;

use crate::dead_blocks::PointEpochs;
use crate::discards::DiscardQueue;
use crate::disk::{DiskError, Disks, PvIndex};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::fixed_hash::Map;
use crate::journal::Journal;
use crate::map::{NodeCache, NodeRef};
use crate::members::Members;
use crate::model::{Config, SegmentType};
use crate::placement::Placement;
use crate::runtime::Runtime;
use crate::space::backing::Backing;
use crate::space::metadata::{MetaSpace, RUNS_TOGETHER};
use crate::space::no_space_timeout::NoSpaceTimeout;
use crate::space::pools::{PoolLeft, Pools};
use crate::space::{AllocContext, Run, Space};
use crate::units::VolumeId;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

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
    /// The most bytes of dirty nodes that a write or background work has seen.
    pub dirty_most: AtomicU64,
}

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Growth of the metadata area that is in progress.
#[derive(Default)]
struct Growth {
    is_under_way: AtomicBool,
    done: Event,
    /// Runs that were taken out of free space and are not metadata yet.
    taken: Mutex<Vec<Run>>,
}

/// The future answer of a [`SpaceFinder`].
pub type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How the parts of an open group, which do not know the group, ask it for space.
pub trait SpaceFinder: Send + Sync {
    /// Takes a checkpoint: blocks that were freed before it become usable.
    fn take_checkpoint(self: Arc<Self>) -> Answer<Result<()>>;
    /// Waits for space for volumes of this type, which is freed soon or can be made. False: there will be none.
    fn wait_for_space(self: Arc<Self>, segment: SegmentType) -> Answer<Result<bool>>;
    /// Removal is in progress: waiting may give space.
    fn is_removing(&self) -> bool;
    /// The oldest snapshot of the volume that may be dropped.
    fn droppable_snapshot(&self, volume: VolumeId) -> Option<VolumeId>;
    /// A volume that is being received, and holds space.
    fn being_received(&self) -> Option<VolumeId>;
    /// Drops a snapshot: its space is freed, its name stays.
    fn invalidate_snapshot(self: Arc<Self>, snapshot: VolumeId) -> Answer<Result<()>>;
    /// What the volumes of a pool may still take, measured now.
    fn pool_left(&self, pool: &str) -> PoolLeft;
    /// Gets room behind the disks for metadata and the journal (U1).
    fn back_metadata(self: Arc<Self>) -> Answer<std::result::Result<(), DiskError>>;
    /// The volume has redirected writes that may have to be filled (rule R13).
    fn request_filling(&self, volume: VolumeId);
}

pub struct Core {
    pub disks: Arc<dyn Disks>,
    /// The same disks, with the knowledge which of them are out.
    pub members: Arc<Members>,
    pub runtime: Arc<dyn Runtime>,
    pub config: Config,
    /// First eight bytes of the group's UUID: every metadata block carries them.
    pub tag: u64,
    pub placement: RwLock<Arc<Placement>>,
    pub cache: NodeCache,
    pub meta: Mutex<MetaSpace>,
    pub space: Mutex<Space>,
    /// A leaf lock: take no other lock while you hold it.
    pub pools: Mutex<Pools>,
    pub no_space_timeout: NoSpaceTimeout,
    /// Writes that wait for room, by volume.
    pub waiting_writes: Mutex<Map<VolumeId, u64>>,
    pub points: Arc<PointEpochs>,
    pub journal: Arc<Journal>,
    /// Held shared by every change of mappings, space or catalog; held exclusively by a checkpoint's capture.
    pub gate: RwLock<()>,
    /// The checkpoint generation that changes belong to now.
    pub generation: AtomicU64,
    pub counters: Counters,
    /// Space was freed, a checkpoint ended, a removal made a step, or the group stopped.
    pub space_event: Arc<Event>,
    pub closed: AtomicBool,
    /// No write waits for room any more: see [`Group::end_waiting`](crate::group::Group::end_waiting).
    pub waiting_ended: AtomicBool,
    /// Bytes written since the last marker was asked for in the background.
    pub unproven: AtomicU64,
    /// Nodes whose first copy is bad.
    to_repair: Mutex<BTreeSet<(NodeRef, u8)>>,
    /// Metadata grows ahead of its need.
    is_growing: AtomicBool,
    growth: Growth,
    pub backing: Backing,
    /// Blocks that are to be discarded on the disks.
    pub discards: DiscardQueue,
    space_finder: Mutex<Option<Weak<dyn SpaceFinder>>>,
    /// This core, for tasks that must not keep it open.
    pub this: Weak<Core>,
}

impl Core {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        members: Arc<Members>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        tag: u64,
        placement: Arc<Placement>,
        mut meta: MetaSpace,
        space: Space,
        journal: Arc<Journal>,
        generation: u64,
        points: Arc<PointEpochs>,
    ) -> Arc<Core> {
        let space_event = match cfg!(feature = "planted") && config.planted == Some("waiters_not_woken") {
            true => Arc::default(),
            false => journal.stopped.clone(),
        };
        meta.set_load(space.load());
        let discards = DiscardQueue::new(config.discards);
        Arc::new_cyclic(|this| Core {
            cache: NodeCache::new(config.cache_bytes as u64),
            disks: members.clone(),
            members,
            runtime,
            config,
            tag,
            placement: RwLock::new(placement),
            meta: Mutex::new(meta),
            space: Mutex::new(space),
            pools: Mutex::new(Pools::default()),
            no_space_timeout: NoSpaceTimeout::default(),
            waiting_writes: Mutex::default(),
            points,
            journal,
            gate: RwLock::new(()),
            generation: AtomicU64::new(generation),
            counters: Counters::default(),
            space_event,
            closed: AtomicBool::new(false),
            waiting_ended: AtomicBool::new(false),
            unproven: AtomicU64::new(0),
            to_repair: Mutex::default(),
            is_growing: AtomicBool::new(false),
            growth: Growth::default(),
            backing: Backing::default(),
            discards,
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
        cfg!(feature = "planted") && self.config.planted == Some(bug) || crate::planted::is(bug)
    }

    /// For tests: recovery takes a checkpoint before each record and in the middle of records, even if there is room.
    pub fn replays_in_small_parts(&self) -> bool {
        cfg!(feature = "planted") && self.config.planted.is_some_and(|bug| bug.starts_with("small_parts"))
    }

    /// How many runs one part of a large free may free (M2).
    pub fn runs_together(&self) -> usize {
        if self.replays_in_small_parts() { 1 } else { RUNS_TOGETHER }
    }

    /// The context for a change of the free tree.
    pub fn alloc_context(&self) -> AllocContext<'_> {
        AllocContext { cache: &self.cache, meta: &self.meta, generation: self.generation(), keep: 0 }
    }

    pub fn no_space(&self, needed: u64) -> Error {
        Error::NoSpace { needed, free: self.space.lock().available() }
    }

    /// Smallest unit that every physical volume can address, in bytes.
    pub fn sector(&self) -> u32 {
        (0..self.disks.count()).map(|i| self.disks.geometry(PvIndex(i as u16)).sector).max().unwrap_or(512)
    }
}
