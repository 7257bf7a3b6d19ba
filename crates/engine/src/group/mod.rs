//! A volume group: the engine's face to everything above it.
//!
//! [`ops`] holds what administrators ask for, [`open`] creation, opening and recovery, [`age`] what tells an old copy of a physical volume, [`checkpoint`] how state reaches
//! the disk, [`pvs`] how physical volumes join, grow and shrink and [`leave`] how they leave, [`reclaim`] how removed trees
//! give their blocks back, [`orphans`] how points that stay do, [`rehome`] how scattered volumes are brought together, [`check`] the verification of everything,
//! [`diff`] lists of what changed, [`point`] names of contents and what is received.
//!
//! Invariants
//!
//! * G1 A change of the catalog, its record in the journal, and nothing else happen in one critical section under the
//!   checkpoint's gate: the record is in the journal if and only if the change is in memory.
//!   The group's own attributes and its name have no record: a change of them is a checkpoint.
//! * G2 A command returns after its record is durable.
//! * G3 What recovery makes of the checkpoint and the journal is what memory held, but for writes that no flush covered
//!   and whose data is not on the disk.

mod age;
mod ahead;
mod apply;
pub mod backing;
mod bookmark;
mod catalog;
mod check;
mod checkpoint;
mod checkpoint_lock;
mod close;
mod create;
mod create_group;
mod diff;
mod discards;
mod evidence;
mod holdings;
mod journal_places;
mod journals;
mod label;
mod lacks;
mod leave;
mod members;
mod move_state;
mod moves;
mod open;
mod ops;
mod orphans;
mod places;
mod point;
mod pools;
mod progress;
mod pvs;
mod read;
mod reclaim;
mod rehome;
mod remove;
mod replay;
mod replay_position;
mod report;
mod resize;
mod retry;
mod snapshot;
mod space_finder;
mod trim_state;
mod zones;

pub use bookmark::Bookmark;
pub use check::CheckReport;
pub use diff::{Changed, ChangedPart, Compared, Content, Side};
pub use journal_places::LARGEST_SHARE;
pub use label::{PvLabel, PvMembership, two_halves};
pub use members::WHILE_MISSING;
pub use move_state::MoveProgress;
pub use places::PlaceInfo;
pub use point::{Publish, PublishTo, point_identity, point_seed};
pub use progress::{CheckProgress, RehomeProgress};
pub use trim_state::TrimProgress;

pub use crate::model::*;
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
    /// Nodes that removal could read in neither copy. It passes them over, and what they alone map stays in use.
    lost: Mutex<BTreeSet<NodeRef>>,
    /// For nodes that it cannot read now.
    retry: Mutex<retry::Retry>,
    /// Removal has no room for the next checkpoint.
    stands_still: AtomicBool,
    /// Somebody waits for space that a search for orphans may give.
    orphans_urgent: AtomicBool,
    /// Volumes that may lie in many pieces, those of which parts may, and whether there are any.
    to_rehome: Mutex<BTreeSet<VolumeId>>,
    to_fill: Mutex<BTreeSet<VolumeId>>,
    rehome_wanted: AtomicBool,
    progress: progress::Progress,
    moves: move_state::Moves,
    discards: trim_state::Discards,
    /// The physical volumes that have a table of zones, and the serial of that.
    zones_on: Mutex<(u64, BTreeSet<Uuid>)>,
    /// While recovery replays the journal.
    replay: Mutex<Option<replay_position::Replay>>,
}

struct Root {
    sequence: u64,
    group: GroupRoot,
    /// As it is on the disks: `group` may have a table that the next checkpoint puts in force.
    written: GroupRoot,
    /// Metadata blocks of the last checkpoint's stream.
    stream_blocks: Vec<MetaBlock>,
}

impl Group {
    /// Asks for a checkpoint in the background.
    pub(crate) fn want_checkpoint(&self) {
        self.core.journal.want_checkpoint();
    }

    pub(crate) fn want_reclaim(&self) {
        self.stands_still.store(false, Ordering::Release);
        self.reclaim_wanted.store(true, Ordering::Release);
        self.background.notify();
    }

    /// Whether removal is under way, so that space may come by waiting.
    pub(crate) fn reclaiming(&self) -> bool {
        self.reclaim_wanted.load(Ordering::Acquire)
    }

    /// Waits until the record, and everything before it, is durable (G2).
    async fn durable(&self, seq: Seq) -> Result<()> {
        self.core.journal.written(seq).await?;
        self.core.journal.flush().await
    }

    /// Why the group has stopped, if it has: then nothing changes any more before it is opened anew.
    pub fn failed(&self) -> Result<()> {
        self.core.journal.failed()
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

    /// The background: checkpoints when asked for, removal while there is any. Ends when the group is closed.
    fn start_background(self: &Arc<Self>) {
        self.spawn_loop(
            "checkpoints",
            |group| &group.core.journal.checkpoint_wanted,
            |group| {
                Box::pin(async move {
                    // A failure poisons the journal, and whoever writes next is told.
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
    }

    /// Does `work` again and again while `wanted` says so, until the group is closed or has failed.
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
