//! The types that all layers share: what can be asked of a group and what it answers, and what a checkpoint keeps of volumes,
//! trees and arenas. Sizes are in blocks of 4 KiB unless a name says otherwise.

use crate::disk::PvIndex;
use crate::format::node::NodeRef;
use crate::format::superblock::MAX_PVS;
use crate::units::{Epoch, TreeId, Uuid, VolumeId};
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
    /// The journal is kept twice (JC1), if a second physical volume has room for it: one copy takes at most one in so many of its
    /// extents. None: it is kept once.
    pub second_journal: Option<u64>,
}

/// Settings of a running group. None of them changes what is on disk.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bound of the node cache, in bytes.
    pub cache_bytes: usize,
    /// A dirty set of nodes over this many bytes starts a checkpoint.
    pub dirty_bytes: usize,
    /// A point with several children is searched for blocks that none of them uses when there may be so many more
    /// than at the last search, or when space runs out. `u64::MAX`: never.
    pub orphan_blocks: u64,
    /// Volumes whose blocks lie in many pieces are brought together in the background (rule R12).
    pub rehome: bool,
    /// What volumes are laid out for that do not say so themselves (rule R13).
    pub layout: Layout,
    /// Percent of the group, and of a pool, that filling leaves free (F2).
    pub fill_keeps: u64,
    /// What is given back to the disks.
    pub discards: DiscardPolicy,
    /// Free runs of fewer blocks are not worth a request, nor a hole in a file.
    pub least_discarded: u64,
    /// Read only: nothing is written, the journal is replayed in memory alone.
    pub read_only: bool,
    /// The group ends when a physical volume fails that it can do without, and another opening goes on without that one (MB9).
    pub leaves_failed_disks: bool,
    /// A planted bug (feature `planted`), for the tests that must find it.
    pub planted: Option<&'static str>,
}

/// What a group gives back to its disks by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardPolicy {
    /// All that becomes free: LVM's `issue_discards`.
    pub freed: bool,
    /// What somebody discarded on a volume.
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
            least_discarded: 16,
            read_only: false,
            leaves_failed_disks: false,
            planted: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// Laid out in one piece at creation, its space reserved.
    Thick,
    /// Allocated on write.
    Thin,
}

/// What happens to a write that needs space when the group has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullPolicy {
    /// Invalidate the oldest snapshot of this volume that may be dropped; fail when there is none.
    DropSnapshot,
    /// Hold the write until space comes, or for too long ([`set_no_space_timeout`](crate::group::Group::set_no_space_timeout)): then as below.
    Hold,
    /// Fail it (ENOSPC).
    Fail,
}

/// What a volume that was overwritten in part beside a snapshot is laid out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nothing is copied: what the snapshot holds and what was redirected lie apart.
    Space,
    /// What the volume still shares is copied to what was redirected beside it (rule R13).
    Read,
}

impl Layout {
    /// The tags that say so of a volume.
    pub const TAGS: [(&'static str, Layout); 2] = [("layout=space", Layout::Space), ("layout=read", Layout::Read)];

    /// What these tags say of a volume. With both it takes no space.
    pub fn of(tags: &[String]) -> Option<Layout> {
        Layout::TAGS.iter().find(|(tag, _)| tags.iter().any(|other| other == tag)).map(|(_, layout)| *layout)
    }
}

/// Begins the tags that hold a snapshot, each for somebody: its contents are needed (HO1, HO2).
pub const HOLD: &str = "hold=";

/// The tag of a volume of which discards are not given on to the disks.
pub const NO_PASSDOWN: &str = "discards=nopassdown";

/// Properties of a volume for the layers above. The engine keeps them; of the tags it reads those of [`Layout::TAGS`], [`HOLD`]
/// and [`NO_PASSDOWN`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Activate when the group is activated (LVM's autoactivation).
    pub autoactivate: bool,
    /// Skip activation unless told otherwise (lvcreate -k).
    pub skip_activation: bool,
    /// Active now: nodes are to exist whenever the server runs.
    pub active: bool,
    /// Seconds since 1970 at creation.
    pub created: u64,
    /// The pool (a name) that a thin volume is counted in; empty for none.
    pub pool: String,
    pub tags: Vec<String>,
    /// A snapshot whose contents its origin takes when it is next activated.
    pub merging: bool,
}

impl Attributes {
    /// What the volume's tags say; none: what is usual in the group.
    pub fn layout(&self) -> Option<Layout> {
        Layout::of(&self.tags)
    }

    /// Whether somebody needs its contents.
    pub fn is_held(&self) -> bool {
        self.tags.iter().any(|tag| tag.starts_with(HOLD))
    }

    /// Whether what is discarded on it is discarded on the disks, too.
    pub fn passes_down(&self) -> bool {
        !self.tags.iter().any(|tag| tag == NO_PASSDOWN)
    }
}

/// Where LVM would look for space. Kept and shown; the engine places as it sees fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocPolicy {
    #[default]
    Normal,
    Contiguous,
    Cling,
    Anywhere,
}

/// Properties of a group that the engine keeps but does not interpret, for the layers above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupAttributes {
    /// Its volumes are activated at boot.
    pub autoactivate: bool,
    /// Nothing may be activated until it is imported again.
    pub exported: bool,
    /// Physical volumes may be added and taken away.
    pub resizeable: bool,
    pub alloc: AllocPolicy,
    /// Most volumes and physical volumes that it may have; 0: no limit of the administrator's.
    pub max_volumes: u64,
    pub max_pvs: u64,
    pub tags: Vec<String>,
    /// Of each physical volume, in their order; those that are not there have none.
    pub pv_tags: Vec<Vec<String>>,
    /// The physical volumes that no space is taken from: [`Group::set_allocatable`](crate::group::Group::set_allocatable) changes it.
    pub unallocatable: PvFlags,
}

/// A flag of each physical volume of a group, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvFlags(pub u64);

impl PvFlags {
    /// Set for so many, and for no others.
    pub fn of_first(pvs: usize) -> PvFlags {
        PvFlags(u64::MAX.checked_shr(MAX_PVS.saturating_sub(pvs) as u32).unwrap_or(0))
    }

    /// Whether each that is set in `other` is set here.
    pub fn has_all(self, other: PvFlags) -> bool {
        other.0 & !self.0 == 0
    }

    /// Set for none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are set, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_PVS).filter(move |pv| self.has(*pv))
    }

    pub fn has(self, pv: usize) -> bool {
        pv < MAX_PVS && self.0 >> pv & 1 == 1
    }

    pub fn set(&mut self, pv: usize, flag: bool) {
        if pv < MAX_PVS {
            self.0 = self.0 & !(1 << pv) | u64::from(flag) << pv;
        }
    }

    /// The physical volume is gone, and those behind it have moved up.
    pub fn remove(&mut self, pv: usize) {
        if pv < MAX_PVS {
            let below = (1 << pv) - 1;
            self.0 = self.0 & below | self.0 >> 1 & !below;
        }
    }
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

/// Extents of one physical volume, counted from its first, that space is to be taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvExtents {
    pub pv: PvIndex,
    pub extents: Range<u64>,
}

/// Extents that are to be moved to other physical volumes.
#[derive(Clone, Debug)]
pub struct NewMove {
    pub from: PvIndex,
    /// These extents of it; all if there are none.
    pub extents: Vec<Range<u64>>,
    /// Where they may go; to any other physical volume if there are none.
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
    /// Space set aside for it, in blocks; none: it shares the group's free space.
    pub reserve: Option<u64>,
    pub read_only: bool,
    /// Chunk slot size in blocks for redirected writes of the origin and of the snapshot.
    pub chunk_blocks: u32,
    pub attributes: Attributes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    Ok,
    /// A snapshot that outgrew its reserve: it cannot be read any more, only removed.
    Invalid,
}

/// A volume as reports show it. Counts are blocks.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    pub id: VolumeId,
    pub name: String,
    pub uuid: Uuid,
    pub kind: VolumeKind,
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
    /// Blocks mapped and written, shared ones included. Of a pool: what its volumes hold together.
    pub referenced: u64,
    /// Blocks of its head: written to it since its last snapshot. No other volume uses them, and of those that a point below
    /// holds for it alone, `freed_if_removed` tells.
    pub exclusive: u64,
    /// Blocks that come back when it is removed.
    pub freed_if_removed: u64,
    /// Blocks held for this snapshot: what its origin overwrote since, and its own writes. LVM's Data%.
    pub snapshot_used: u64,
    /// The identity of its contents, if they are those of a point (PT1).
    pub point: Option<Uuid>,
    /// The epoch in which it was taken, if its contents are those of a point: snapshots of one moment have the same.
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
    /// Extents that nothing uses (thick volumes and metadata use whole extents).
    pub free_extents: u64,
    /// Blocks of it that are free, without those that wait in arenas to be handed out.
    pub free_blocks: u64,
    /// Space is taken from it.
    pub is_allocatable: bool,
    /// The group goes on without it.
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
    /// Of these, what can be taken: they are on physical volumes that are allocatable.
    pub allocatable_extents: u64,
    pub blocks: u64,
    /// Blocks that nothing uses.
    pub free_blocks: u64,
    /// Of these, blocks that are reserved for nobody and can be taken.
    pub available_blocks: u64,
    /// Free blocks that are reserved for thick volumes and snapshot reserves.
    pub reserved_blocks: u64,
    /// Freed blocks that the next checkpoint makes usable.
    pub pending_blocks: u64,
    pub metadata_blocks: u64,
    /// Copies of the journal that there are, and how many of them are written: the others lie on disks that are missing, or failed.
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
    /// Of these: writes to fresh blocks, which were put elsewhere once more (rule R6).
    pub writes_again: u64,
    pub journal_frames: u64,
    pub journal_records: u64,
    pub device_flushes: u64,
    pub checkpoints: u64,
    pub nodes_written: u64,
    pub node_loads: u64,
    /// Writes for which there was no other place, or that keep theirs, and which waited until the earlier mapping was durable.
    pub waits_for_marker: u64,
    /// Records that recovery applied, and those it left out because their data was not there.
    pub recovered: u64,
    pub recovery_skipped: u64,
    pub slots_taken: u64,
    pub reclaim_steps: u64,
    /// Blocks freed that a point held and none of its several children used.
    pub orphans_freed: u64,
    /// Stretches of a volume, of 1 MiB at most, whose pieces were brought together (rule R12).
    pub windows_rehomed: u64,
    /// Stretches of a volume, of 1 MiB at most, to which what was shared of them was copied (rule R13), and the blocks copied.
    pub windows_filled: u64,
    pub blocks_filled: u64,
    /// How often filling ended for want of room (F2).
    pub fills_without_room: u64,
    pub volumes_invalidated: u64,
    /// Blocks of metadata of which only one copy could be written.
    pub copies_not_written: u64,
    /// Nodes that removal could read in neither copy: what they alone mapped stays in use.
    pub nodes_lost: u64,
    /// Blocks of the journal's ring that take no write.
    pub ring_blocks_bad: u64,
    /// The most bytes of dirty nodes that a write met.
    pub dirty_most: u64,
}

/// Begins the name of a volume that is being received. Commands accept no such name.
pub const RECEIVING: &str = "receiving:";

/// Whether the volume of this name is being received: it has not all of its contents yet.
pub fn is_being_received(name: &str) -> bool {
    name.starts_with(RECEIVING)
}

/// Begins the name of a bookmark (MK1). Commands accept no such name.
pub const BOOKMARK: &str = "bookmark:";

/// Whether the volume of this name is a bookmark: it has no contents that anybody could read.
pub fn is_bookmark(name: &str) -> bool {
    name.starts_with(BOOKMARK)
}

/// A volume as it is kept: everything that a report needs but its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeMeta {
    pub id: VolumeId,
    pub uuid: Uuid,
    pub name: String,
    pub kind: VolumeKind,
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
    /// Was a head or a point; its blocks are being given back.
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
    /// The birth of what a head maps from now on.
    pub birth: Epoch,
    pub tree: Tree,
    /// Blocks mapped, and of these those that were written. A damaged image may say too few: nothing takes them below zero.
    pub mapped: u64,
    pub written: u64,
    /// Blocks born after the parent.
    pub own: i64,
    /// The snapshot that was made with this point, and is charged for what the point holds.
    pub charged: Option<VolumeId>,
    /// How far removal has come: everything below this block is done.
    pub cursor: u64,
    /// Blocks given back so far minus blocks that a child maps anew: settled into the child's counters at the end.
    pub progress: u64,
    pub dead: Vec<(Epoch, u64)>,
}

/// An arena as the checkpoint keeps it.
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
    /// The root's level; 0 when the root is a leaf or there is none.
    pub level: u8,
}
