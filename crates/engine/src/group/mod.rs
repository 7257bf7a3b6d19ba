//! A volume group: the engine's interface to all layers above.
//!
//! [`ops`] has the administrator's changes, [`open`] opening and recovery, [`age`] the refusal of old copies of a
//! physical volume, [`checkpoint`] checkpoints. [`pvs`] makes physical volumes join, grow and shrink, [`leave`] makes
//! them leave. [`reclaim`] frees the blocks of removed trees, [`orphans`] those of points that stay. [`rehome`]
//! defragments volumes, [`check`] verifies everything, [`diff`] lists changes, [`point`] names contents and receives
//! them.
//!
//! Invariants
//!
//! * G1 A change of the catalog and the append of its record are one critical section under the checkpoint's gate: the
//!   record is in the journal if and only if the change is in memory. The group's own attributes and its name have no
//!   record: a checkpoint stores a change of them.
//! * G2 A command returns after its record is durable.
//! * G3 Recovery builds the same state from checkpoint and journal that memory held, except writes that no flush
//!   covered and whose data is not on the disk.

mod apply;
pub mod backing;
mod bookmark;
mod catalog;
mod check;
mod checkpoint;
mod checkpoint_lock;
mod close;
mod convert;
mod convert_linear;
mod create;
mod create_group;
mod diff;
mod discards;
mod journal_copies;
mod journal_layout;
mod journal_scan;
mod label;
mod leave;
mod members;
mod mirrors;
mod move_legs;
mod move_state;
mod moved_parts;
mod moves;
mod newest_root;
mod open;
mod ops;
mod orphans;
mod point;
mod pools;
mod prefetch;
mod progress;
mod pv_usage;
mod pvs;
mod read;
mod reclaim;
mod rehome;
mod remove;
mod replay;
mod replay_position;
mod report;
mod requirements;
mod resize;
mod retry;
mod scrub;
mod scrub_state;
mod snapshot;
mod snapshot_usage;
mod space_finder;
mod spread;
mod striped;
mod take_extents;
mod trim_state;
mod zones;

pub use bookmark::Bookmark;
pub use check::{CheckReport, Seen};
pub use convert_linear::LinearExtents;
pub use diff::{Changed, ChangedPart, Compared, Content, Side};
pub use journal_layout::LARGEST_SHARE;
pub use label::{PvLabel, PvMembership, find_split_brain};
pub use members::WHILE_MISSING;
pub use mirrors::MirrorInfo;
pub use move_state::MoveProgress;
pub use point::{Publish, PublishTo, point_identity, point_seed};
pub use progress::{CheckProgress, RehomeProgress};
pub use pv_usage::PvUsage;
pub use scrub_state::ScrubInfo;
pub use striped::StripeInfo;
pub use trim_state::TrimProgress;

pub use crate::format::zones::StripeLayout;
pub use crate::model::*;
pub use crate::stripes::rows_on;
pub use crate::volume::Volume;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::superblock::GroupRoot;
use crate::map::NodeRef;
use crate::runtime::Task;
use crate::units::{MetaBlock, Seq, Uuid, VolumeId};
use catalog::Catalog;
use checkpoint_lock::CheckpointLock;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open volume group.
pub struct Group {
    core: Arc<Core>,
    catalog: RwLock<Catalog>,
    /// The superblock as it was last written.
    root: Mutex<Root>,
    checkpoints: CheckpointLock,
    /// Wakes the background tasks.
    background: Arc<Event>,
    /// Removal has work, or may have.
    reclaim_wanted: AtomicBool,
    /// Nodes of which removal could read neither copy. It skips them, and the blocks that only they map stay in use.
    lost: Mutex<BTreeSet<NodeRef>>,
    /// For nodes that removal cannot read now.
    retry: Mutex<retry::Retry>,
    /// Removal has no room for the next checkpoint.
    removal_stopped: AtomicBool,
    /// A write waits for space that a search for orphans may give.
    orphans_urgent: AtomicBool,
    /// Volumes that may be fragmented, volumes with windows that may be, and whether there are any.
    to_rehome: Mutex<BTreeSet<VolumeId>>,
    to_fill: Mutex<BTreeSet<VolumeId>>,
    rehome_wanted: AtomicBool,
    /// Legs of mirrors have to be made equal, or zones have to be made.
    mirrors_wanted: AtomicBool,
    has_mirrors_task: AtomicBool,
    /// Second legs are being added.
    repairing: AtomicBool,
    /// A removal has ended: mirrored extents may be free.
    dissolve_wanted: AtomicBool,
    progress: progress::Progress,
    scrubs: Mutex<scrub_state::Scrubs>,
    moves: move_state::Moves,
    discards: trim_state::Discards,
    /// The physical volumes that have the table of zones with this serial.
    zones_on: Mutex<(u64, BTreeSet<Uuid>)>,
    /// While recovery replays the journal.
    replay: Mutex<Option<replay_position::Replay>>,
}

struct Root {
    sequence: u64,
    group: GroupRoot,
    /// The root as it is on the disks. `group` may already have the table of the next checkpoint.
    written: GroupRoot,
    /// What all physical volumes have for certain: a round of superblocks that failed may have reached some of them.
    durable: Durable,
    /// Metadata blocks of the last checkpoint's stream.
    stream_blocks: Vec<MetaBlock>,
}

/// The newest superblock that is on all physical volumes, and where its metadata lies: pairs of copies, and their lengths.
#[derive(Clone)]
struct Durable {
    group: GroupRoot,
    pairs: (Vec<[u64; 2]>, Vec<u64>),
}

impl Group {
    /// Requests a checkpoint in the background.
    pub(crate) fn request_checkpoint(&self) {
        self.core.journal.request_checkpoint();
    }

    pub(crate) fn request_reclaim(&self) {
        self.removal_stopped.store(false, Ordering::Release);
        self.reclaim_wanted.store(true, Ordering::Release);
        self.background.notify();
    }

    /// Whether removal is in progress, so that waiting may give space.
    pub(crate) fn reclaiming(&self) -> bool {
        self.reclaim_wanted.load(Ordering::Acquire)
    }

    /// Waits until the record, and everything before it, is durable (G2).
    async fn durable(&self, seq: Seq) -> Result<()> {
        self.core.journal.written(seq).await?;
        self.core.journal.flush().await
    }

    /// Why the group has stopped, if it has. Then nothing changes before it is opened again.
    pub fn failed(&self) -> Result<()> {
        self.core.journal.failed()
    }

    /// Returns when the group has stopped, and why.
    pub async fn stopped(&self) -> Error {
        let stopped = self.core.journal.stopped.clone();
        loop {
            let turn = stopped.turn();
            if let Err(error) = self.failed() {
                return error;
            }
            stopped.changed(turn).await;
        }
    }

    /// Whether the group was opened to be read only (RO1).
    pub fn is_read_only(&self) -> bool {
        self.core.config.read_only
    }

    fn check_writable(&self) -> Result<()> {
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if self.core.config.read_only {
            return Err(Error::ReadOnly);
        }
        self.failed()
    }

    /// The background tasks: checkpoints on request, removal while there is any. They end when the group is closed.
    fn start_background(self: &Arc<Self>) {
        self.spawn_loop(
            "checkpoints",
            |group| &group.core.journal.checkpoint_requested,
            |group| {
                Box::pin(async move {
                    // A failure poisons the journal, and the next write gets the error.
                    let _ = group.checkpoint().await;
                })
            },
        );
        self.spawn_loop(
            "removal",
            |group| &group.reclaim_wanted,
            |group| Box::pin(async move { group.reclaim_some().await }),
        );
        self.spawn_loop(
            "re-homing",
            |group| &group.rehome_wanted,
            |group| Box::pin(async move { group.rehome_some().await }),
        );
        if self.has_several() {
            self.start_mirrors();
        }
    }

    /// The background task of mirrors, if there is none yet.
    fn start_mirrors(self: &Arc<Self>) {
        if !self.has_mirrors_task.swap(true, Ordering::AcqRel) {
            self.spawn_loop(
                "mirrors",
                |group| &group.mirrors_wanted,
                |group| Box::pin(async move { group.mirrors_some().await }),
            );
        }
    }

    /// Repeats `work` while `wanted` is true, until the group is closed or has failed.
    fn spawn_loop(
        self: &Arc<Self>,
        name: &'static str,
        wanted: fn(&Group) -> &AtomicBool,
        work: fn(Arc<Group>) -> Task,
    ) {
        let group = self.clone();
        let task = async move {
            loop {
                let turn = group.background.turn();
                if group.core.closed.load(Ordering::Acquire) || group.core.journal.failed().is_err() {
                    return;
                }
                match wanted(&group).load(Ordering::Acquire) {
                    true => work(group.clone()).await,
                    false => group.background.changed(turn).await,
                }
            }
        };
        self.core.runtime.spawn(name, Box::pin(task));
    }
}
