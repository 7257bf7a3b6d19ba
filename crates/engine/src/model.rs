//! The types that all layers share: requests to a group and its answers, and the records of a checkpoint for volumes,
//! trees and arenas. Sizes are in blocks of 4 KiB unless a name says otherwise.

use crate::disk::PvIndex;
use crate::format::node::NodeRef;
use crate::planted;
pub use crate::units::PvFlags;
use crate::units::{Epoch, TreeId, Uuid, VolumeId};
use smallvec::SmallVec;
use std::ops::Range;

/// A physical volume that joins a group. The disk must be given to the group at the same index.
#[derive(Clone, Debug)]
pub struct NewPv {
    pub uuid: Uuid,
}

/// A new volume group over all of the given disks.
#[derive(Clone, Debug)]
pub struct NewGroup {
    pub uuid: Uuid,
    pub name: String,
    /// Blocks in an extent: a power of two. LVM's default of 4 MiB is 1024.
    pub extent_blocks: u64,
    pub pvs: Vec<NewPv>,
    /// The journal has a second copy (JC1), if that copy takes at most one in this many extents of a second physical
    /// volume. None: one copy.
    pub second_journal: Option<u64>,
}

/// Settings of a running group. None of them changes what is on disk.
#[derive(Clone, Debug)]
pub struct Config {
    /// The limit of the node cache, in bytes.
    pub cache_bytes: usize,
    /// More dirty nodes than this, in bytes, start a checkpoint.
    pub dirty_bytes: usize,
    /// The orphans that start a search. A point with several children is searched if there may be this many more
    /// orphans than at the last search, or if space runs out. `u64::MAX`: never.
    pub orphan_blocks: u64,
    /// Fragmented volumes are defragmented in the background (rule R12).
    pub rehome: bool,
    /// The layout of volumes without a layout tag (rule R13).
    pub layout: Layout,
    /// The percentage of the group, and of a pool, that filling leaves free (F2).
    pub fill_keeps: u64,
    /// The blocks that are discarded on the disks.
    pub discards: DiscardPolicy,
    /// The smallest free run that is discarded, in blocks.
    pub min_discarded: u64,
    /// Read-only: nothing is written, and the journal is replayed only in memory.
    pub read_only: bool,
    /// If a physical volume fails that the group can do without, requests are left to another process, which opens the group
    /// without it (MB9).
    pub leaves_failed_disks: bool,
    /// A planted bug (feature `planted`), for the tests that must find it.
    pub planted: Option<&'static str>,
}

/// What a group discards on its disks automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardPolicy {
    /// All space that becomes free: LVM's `issue_discards`.
    pub freed: bool,
    /// Discards that a volume received.
    pub passed_down: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            cache_bytes: 128 << 20,
            dirty_bytes: 32 << 20,
            orphan_blocks: 16 << 10,
            rehome: false,
            layout: Layout::Space,
            fill_keeps: 25,
            discards: DiscardPolicy::default(),
            min_discarded: 16,
            read_only: false,
            leaves_failed_disks: false,
            planted: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// Allocated at creation, in one piece if possible; its space is reserved.
    Thick,
    /// Allocated on write.
    Thin,
}

/// What happens to a write that needs space when the group has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullPolicy {
    /// Invalidate the oldest snapshot of this volume that may be dropped. Without such a snapshot, fail the write.
    DropSnapshot,
    /// Hold the write until there is space. After a timeout
    /// ([`set_no_space_timeout`](crate::group::Group::set_no_space_timeout)) fail it.
    Hold,
    /// Fail it (ENOSPC).
    Fail,
}

/// How a volume's blocks lie on the physical volumes (LVM's segment types).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentType {
    /// Each block is on one physical volume.
    #[default]
    Linear,
    /// Each block is on two: a mirror.
    Raid1,
    /// Each block is on one. They alternate between several.
    Striped,
}

impl SegmentType {
    /// All of them, in the order of their numbers.
    pub const ALL: [SegmentType; 3] = [SegmentType::Linear, SegmentType::Raid1, SegmentType::Striped];
}

/// The layout of a volume that was partly overwritten while it had a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nothing is copied: the snapshot's blocks and the redirected blocks are in different places.
    Space,
    /// Blocks that the volume still shares are copied next to the redirected ones (rule R13).
    Read,
}

impl Layout {
    /// The layout tags of a volume.
    pub const TAGS: [(&'static str, Layout); 2] = [("layout=space", Layout::Space), ("layout=read", Layout::Read)];

    /// The layout by these tags. With both tags it is the one that takes no space.
    pub fn of(tags: &[String]) -> Option<Layout> {
        Layout::TAGS.iter().find(|(tag, _)| tags.iter().any(|other| other == tag)).map(|(_, layout)| *layout)
    }
}

/// Begins the tags that hold a snapshot, each for somebody: its contents are needed (HO1, HO2).
pub const HOLD: &str = "hold=";

/// The tag of a volume whose discards are not passed to the disks.
pub const NO_PASSDOWN: &str = "discards=nopassdown";

/// Properties of a volume for the layers above. The engine stores them. It interprets only the tags of [`Layout::TAGS`],
/// [`HOLD`] and [`NO_PASSDOWN`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Activate when the group is activated (LVM's autoactivation).
    pub autoactivate: bool,
    /// Skip activation unless an option overrides this (lvcreate -k).
    pub skip_activation: bool,
    /// Active: device nodes exist whenever the server runs.
    pub active: bool,
    /// Seconds since 1970 at creation.
    pub created: u64,
    /// The name of the pool that counts a thin volume; empty for none.
    pub pool: String,
    pub tags: Vec<String>,
    /// A snapshot that is merged into its origin at the origin's next activation.
    pub merging: bool,
}

impl Attributes {
    /// The layout by the volume's tags. None: the group's default.
    pub fn layout(&self) -> Option<Layout> {
        Layout::of(&self.tags)
    }

    /// Whether somebody needs its contents.
    pub fn is_held(&self) -> bool {
        self.tags.iter().any(|tag| tag.starts_with(HOLD))
    }

    /// Whether its discards are passed to the disks.
    pub fn passes_down(&self) -> bool {
        !self.tags.iter().any(|tag| tag == NO_PASSDOWN)
    }
}

/// LVM's allocation policy. It is stored and shown; the engine does not use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocPolicy {
    #[default]
    Normal,
    Contiguous,
    Cling,
    Anywhere,
}

/// Properties of a group for the layers above. The engine stores them and does not interpret them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupAttributes {
    /// Its volumes are activated at boot.
    pub autoactivate: bool,
    /// Nothing may be activated until it is imported again.
    pub exported: bool,
    /// Physical volumes may be added and removed.
    pub resizeable: bool,
    pub alloc: AllocPolicy,
    /// The administrator's limits on volumes and physical volumes; 0: no limit.
    pub max_volumes: u64,
    pub max_pvs: u64,
    pub tags: Vec<String>,
    /// The tags of each physical volume, in order. Missing entries mean no tags.
    pub pv_tags: Vec<Vec<String>>,
    /// The physical volumes from which no space is allocated:
    /// [`Group::set_allocatable`](crate::group::Group::set_allocatable) changes it.
    pub unallocatable: PvFlags,
}

impl GroupAttributes {
    /// The physical volume is gone, and those behind it have moved up.
    pub(crate) fn forget_pv(&mut self, pv: usize) {
        if pv < self.pv_tags.len() {
            self.pv_tags.remove(pv);
        }
        self.unallocatable.remove(pv);
    }
}

impl Default for GroupAttributes {
    fn default() -> Self {
        GroupAttributes {
            autoactivate: true,
            exported: false,
            resizeable: true,
            alloc: AllocPolicy::Normal,
            max_volumes: 0,
            max_pvs: 0,
            tags: Vec::new(),
            pv_tags: Vec::new(),
            unallocatable: PvFlags::default(),
        }
    }
}

/// A new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    pub name: String,
    pub uuid: Uuid,
    pub kind: VolumeKind,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes in a logical sector of the exported device: 512 or 4096; fixed for the volume's life.
    pub sector: u32,
    /// Chunk slot size in blocks (R10): a power of two from 1 to 1024.
    pub chunk_blocks: u32,
    pub full: FullPolicy,
    pub attributes: Attributes,
}

/// Extents of one physical volume, counted from its first, from which space is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvExtents {
    pub pv: PvIndex,
    pub extents: Range<u64>,
}

/// A request to move extents to other physical volumes.
#[derive(Clone, Debug)]
pub struct NewMove {
    pub from: PvIndex,
    /// These extents of it; all if there are none.
    pub extents: Vec<Range<u64>>,
    /// The permitted targets. Empty: any other physical volume.
    pub to: Vec<PvExtents>,
    /// Only extents in which this volume has blocks.
    pub volume: Option<VolumeId>,
}

/// A new snapshot: a volume that starts with the contents of `origin`.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    pub origin: VolumeId,
    pub name: String,
    pub uuid: Uuid,
    /// Its reserved space in blocks. None: it uses the group's free space.
    pub reserve: Option<u64>,
    pub read_only: bool,
    /// Chunk slot size in blocks for redirected writes of the origin and of the snapshot.
    pub chunk_blocks: u32,
    pub attributes: Attributes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    Ok,
    /// A snapshot that exceeded its reserve. It cannot be read any more, only removed.
    Invalid,
}

/// A volume as reports show it. Counts are blocks.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    pub id: VolumeId,
    pub name: String,
    pub uuid: Uuid,
    pub kind: VolumeKind,
    pub segment: SegmentType,
    pub state: VolumeState,
    pub blocks: u64,
    pub sector: u32,
    pub chunk_blocks: u32,
    pub read_only: bool,
    pub full: FullPolicy,
    /// The volume that this one is a snapshot of, while both exist.
    pub origin: Option<VolumeId>,
    pub reserve: Option<u64>,
    pub attributes: Attributes,
    /// Mapped and written blocks, including shared ones. Of a pool: the blocks that its volumes use together.
    pub referenced: u64,
    /// Blocks of its head: written since its last snapshot. No other volume uses them. `freed_if_removed` also counts
    /// blocks that a point holds for this volume alone.
    pub exclusive: u64,
    /// Blocks that its removal frees.
    pub freed_if_removed: u64,
    /// Blocks that this snapshot uses: those that its origin has overwritten since, and its own writes. LVM's Data%.
    pub snapshot_used: u64,
    /// The identity of its contents, if they equal those of a point (PT1).
    pub point: Option<Uuid>,
    /// The epoch in which it was taken, if its contents equal those of a point. Snapshots that were taken together have
    /// the same one.
    pub moment: Option<Epoch>,
}

#[derive(Clone, Debug)]
pub struct PvInfo {
    pub uuid: Uuid,
    /// Bytes.
    pub size: u64,
    /// First byte of its extents.
    pub data_offset: u64,
    pub extents: u64,
    /// Unused extents. (Thick volumes and metadata use whole extents.)
    pub free_extents: u64,
    /// Its free blocks, without those in arenas.
    pub free_blocks: u64,
    /// Space is taken from it.
    pub is_allocatable: bool,
    /// The group runs without it.
    pub is_missing: bool,
}

#[derive(Clone, Debug)]
pub struct GroupInfo {
    pub uuid: Uuid,
    pub name: String,
    pub extent_blocks: u64,
    pub extents: u64,
    /// Extents neither used nor reserved (rounded down).
    pub free_extents: u64,
    /// Those of them that are on allocatable physical volumes.
    pub allocatable_extents: u64,
    pub blocks: u64,
    /// Blocks that nothing uses.
    pub free_blocks: u64,
    /// Those of them that are not reserved and can be allocated.
    pub available_blocks: u64,
    /// Free blocks that are reserved for thick volumes and snapshot reserves.
    pub reserved_blocks: u64,
    /// Freed blocks that are usable after the next checkpoint.
    pub pending_blocks: u64,
    pub metadata_blocks: u64,
    /// The number of copies of the journal, and of those that are written. The others are on missing disks, or have
    /// failed.
    pub journal_copies: u64,
    pub journal_copies_written: u64,
    /// Sequence number of the metadata: raised by each checkpoint.
    pub sequence: u64,
    /// The number of the history that the group has without the physical volumes that are missing; 0: none is.
    pub lineage: u64,
    pub attributes: GroupAttributes,
    pub pvs: Vec<PvInfo>,
    /// Background removal: blocks still to examine, 0 when idle.
    pub reclaim_left: u64,
}

/// Counters since the group was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub writes_in_place: u64,
    pub writes_redirected: u64,
    /// Of these: writes to fresh blocks, which were redirected a second time (rule R6).
    pub writes_again: u64,
    pub journal_frames: u64,
    pub journal_records: u64,
    pub device_flushes: u64,
    pub checkpoints: u64,
    pub nodes_written: u64,
    pub node_loads: u64,
    /// Writes that waited until the earlier mapping was durable, because there was no other place or they must keep
    /// theirs.
    pub waits_for_marker: u64,
    /// Records that recovery applied, and records that it dropped because their data was missing.
    pub recovered: u64,
    pub recovery_skipped: u64,
    pub slots_taken: u64,
    pub reclaim_steps: u64,
    /// Freed blocks that a point held and none of its children used.
    pub orphans_freed: u64,
    /// Ranges of a volume, of at most 1 MiB, that were defragmented (rule R12).
    pub windows_rehomed: u64,
    /// Ranges of a volume, of at most 1 MiB, whose shared blocks were copied (rule R13), and the number of copied
    /// blocks.
    pub windows_filled: u64,
    pub blocks_filled: u64,
    /// How often filling ended because of too little space (F2).
    pub fills_without_room: u64,
    pub volumes_invalidated: u64,
    /// Blocks of metadata of which only one copy could be written.
    pub copies_not_written: u64,
    /// Nodes of which removal could read neither copy. Blocks that only they mapped stay in use.
    pub nodes_lost: u64,
    /// Blocks of the journal's ring to which writes fail.
    pub ring_blocks_bad: u64,
    /// The largest size of dirty nodes at a write, in bytes.
    pub dirty_most: u64,
}

/// The prefix of the name of a volume that is being received. Commands accept no such name.
pub const RECEIVING: &str = "receiving:";

/// Whether the volume of this name is being received, so that its contents are incomplete.
pub fn is_being_received(name: &str) -> bool {
    name.starts_with(RECEIVING)
}

/// Begins the name of a bookmark (MK1). Commands accept no such name.
pub const BOOKMARK: &str = "bookmark:";

/// Whether the volume of this name is a bookmark: it has no contents that anybody could read.
pub fn is_bookmark(name: &str) -> bool {
    name.starts_with(BOOKMARK)
}

/// The stored record of a volume: everything that a report needs except counters.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeMeta {
    pub id: VolumeId,
    pub uuid: Uuid,
    pub name: String,
    pub kind: VolumeKind,
    pub segment: SegmentType,
    pub state: VolumeState,
    pub blocks: u64,
    pub sector: u32,
    pub chunk_blocks: u32,
    pub read_only: bool,
    pub full: FullPolicy,
    pub origin: Option<VolumeId>,
    pub reserve: Option<u64>,
    pub head: TreeId,
    pub attributes: Attributes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// A volume's writable tree.
    Head,
    /// A frozen moment, parent of heads and later points.
    Point,
    /// A former head or point whose blocks are being freed.
    Dying,
}

/// A tree of mappings and its place in the history.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeMeta {
    pub id: TreeId,
    pub parent: Option<TreeId>,
    pub kind: TreeKind,
    /// The epoch in which a point was frozen.
    pub epoch: Epoch,
    /// The birth epoch of what a head maps from now on.
    pub birth: Epoch,
    pub tree: Tree,
    /// Mapped blocks, and the written ones among them. In a damaged image they may be too small; they never become
    /// negative.
    pub mapped: u64,
    pub written: u64,
    /// Blocks born after the parent.
    pub own: i64,
    /// The snapshot that was taken with this point. The point's blocks count for its usage.
    pub charged: Option<VolumeId>,
    /// The progress of removal: everything below this block is done.
    pub cursor: u64,
    /// Blocks freed so far, minus blocks that a child maps again. At the end it is added to the child's counters.
    pub progress: u64,
    pub dead: Vec<(Epoch, u64)>,
}

impl TreeMeta {
    /// The first key with mappings (D7).
    pub fn first_key(&self) -> u64 {
        match self.kind {
            TreeKind::Dying if !planted::is("read_below_cursor") => self.cursor,
            _ => 0,
        }
    }

    /// What there is of the tree.
    pub fn there(&self) -> RestOfTree {
        RestOfTree { tree: self.tree, first_key: self.first_key() }
    }
}

/// A tree that may be under removal: only keys from `first_key` on may be looked up (D7).
#[derive(Clone, Copy, Debug)]
pub struct RestOfTree {
    pub tree: Tree,
    pub first_key: u64,
}

/// A tree and those above it, nearest first. Each has the keys that the ones before it have no more.
pub type Ancestors = SmallVec<[RestOfTree; 2]>;

/// An arena in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaMeta {
    pub start: u64,
    pub len: u64,
    pub used: [u8; 128],
}

/// A tree, as a root record or a head in memory holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// `None`: the tree is empty.
    pub root: Option<NodeRef>,
    /// The root's level. 0: the root is a leaf, or the tree is empty.
    pub level: u8,
}
