//! The control protocol between commands and the server of a volume group.
//!
//! A connection carries frames: four bytes of length (little endian), then that many bytes of JSON. [`Outcome::Report`], which
//! most commands ask for and which grows with the group, has a zero byte and then its compact form (postcard) instead: with ten
//! thousand volumes JSON would take longer than all the rest of a command. The client sends [`Request::Hello`] first, and then
//! one request at a time. The server answers each with any number of [`Outcome::Progress`] and [`Outcome::Notice`] and then
//! exactly one other outcome. A frame over [`FRAME_CAP`] or one that cannot be read ends the connection. Names are unique within the group, so requests name volumes by name.
//!
//! Counts of blocks are named `..._blocks` or `blocks` (4 KiB each), counts of extents `..._extents`, bytes `..._bytes`.

use crate::lists::Lists;
use rowen_engine::fixed_hash::{Map, Set};
use rowen_engine::group as engine;
pub use rowen_engine::group::Layout;
use rowen_engine::units::Uuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::sync::OnceLock;

/// The version of this protocol; both sides must have the same.
pub const VERSION: u32 = 5;
/// The longest frame that is read or written.
pub const FRAME_CAP: usize = 64 << 20;

/// What a command asks of a group's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The first request of each connection; answered by [`Outcome::Hello`].
    Hello {
        version: u32,
        #[serde(default)]
        caller: Caller,
    },
    /// Answered by [`Outcome::Report`]. Only `with_use` it tells whether devices are open: that search goes through all
    /// processes of the host.
    Report {
        #[serde(default)]
        with_use: bool,
    },
    /// The same for commands that are about these volumes, which may not be there. Of the group's volumes it has these,
    /// their origins and snapshots at whatever distance, and their pools: with ten thousand volumes a report of all would
    /// take longer than all the rest of a command. `with_members` it has also the volumes of those that are pools.
    /// `with_use` is about the devices of these volumes alone.
    ReportOf {
        volumes: Vec<String>,
        #[serde(default)]
        with_members: bool,
        #[serde(default)]
        with_use: bool,
    },
    /// Where the blocks of all volumes are; answered by [`Outcome::Places`].
    Places,
    /// How much of these places is free; answered by [`Outcome::Free`].
    FreeOn {
        on: Vec<PvPart>,
    },
    /// Answered by [`Outcome::Created`] when the node is there (with `activate`). All of its space is taken from the places
    /// `on`, if there are any: a thick volume only.
    CreateVolume {
        spec: VolumeSpec,
        activate: bool,
        #[serde(default)]
        on: Vec<PvPart>,
    },
    /// One atomic snapshot of all the named origins. With `freeze`, filesystems mounted from them are frozen around it.
    /// Answered by [`Outcome::Created`], in the order of `specs`.
    Snapshot {
        specs: Vec<SnapshotSpec>,
        freeze: bool,
    },
    /// Removes all of the named volumes in one step. A volume in use is refused always; an active one that nothing uses is
    /// deactivated first.
    Remove {
        names: Vec<String>,
    },
    /// Makes nodes. `names: None` is every volume. Volumes marked to skip activation are left out unless `ignore_skip`;
    /// with `auto`, those not marked for autoactivation are left out too; and always those that the caller's lists do not allow. A snapshot with a reserve goes with its origin.
    Activate {
        names: Option<Vec<String>>,
        ignore_skip: bool,
        auto: bool,
    },
    /// Makes the devices of these volumes, as far as they are active, as their permission and the caller's lists have them.
    Refresh {
        names: Vec<String>,
    },
    /// Removes nodes; a volume in use is refused.
    Deactivate {
        names: Option<Vec<String>>,
    },
    /// Grows or shrinks a volume and its device. Shrinking a volume that is mounted needs `force`. What a thick volume grows
    /// by is taken from the places `on`, if there are any. With `seen`: only if it still has so many blocks, for the new number
    /// was worked out from that; else [`ErrorKind::Changed`].
    Resize {
        name: String,
        blocks: u64,
        force: bool,
        #[serde(default)]
        on: Vec<PvPart>,
        #[serde(default)]
        seen: Option<u64>,
    },
    /// Changes what is set aside for a snapshot; with `seen`: only if it still is that much.
    SetReserve {
        name: String,
        blocks: Option<u64>,
        #[serde(default)]
        seen: Option<u64>,
    },
    Rename {
        from: String,
        to: String,
    },
    SetPermission {
        name: String,
        read_only: bool,
    },
    SetAttributes {
        name: String,
        change: AttributeChange,
    },
    /// Changes what is kept with the group.
    ChangeGroup {
        change: GroupChange,
    },
    /// Changes the tags of a physical volume of the group, named by its path.
    TagPv {
        path: String,
        add: Vec<String>,
        remove: Vec<String>,
    },
    /// Whether space is taken from a physical volume of the group, named by its path.
    SetAllocatable {
        path: String,
        allocatable: bool,
    },
    /// Gives the snapshot's origin the snapshot's contents and removes the snapshot: at once, or, while one of them is in
    /// use, when the origin is next activated.
    Merge {
        snapshot: String,
    },
    /// Gives `target` the contents of `source`; snapshots of `target`, newer ones too, stay.
    Revert {
        target: String,
        source: String,
    },
    /// Adds physical volumes, which must be labelled and belong to no group.
    AddPv {
        paths: Vec<String>,
    },
    /// Removes a physical volume on which nothing of any volume lies. Metadata and the journal move away from it.
    RemovePv {
        path: String,
    },
    /// Gives a physical volume so many bytes of its device, or all of them.
    ResizePv {
        path: String,
        #[serde(default)]
        bytes: Option<u64>,
    },
    /// Gives the group another name. The server goes on under that name, as another process.
    RenameGroup {
        to: String,
    },
    /// Makes the names of active volumes that are missing under /dev.
    MakeNodes,
    /// Changes what writes do when the group is full, for a volume or for a pool and its volumes.
    SetFullPolicy {
        name: String,
        full: FullPolicy,
    },
    /// Verifies the group while it is in use. Answered by [`Outcome::Check`].
    Check,
    /// The same, and damaged copies of metadata are written anew from the good ones.
    Repair,
    Checkpoint,
    /// Answered by [`Outcome::Stats`].
    Stats,
    /// Removes the group; with `force` its volumes first, else it must have none. The server ends after answering.
    Destroy {
        force: bool,
    },
    /// Deactivates what is not in use, closes the group and ends the server. Refused while a volume is in use.
    Stop,
}

impl Request {
    /// Whether it only looks, for a moment: then it may be made again where no answer came.
    pub fn is_look(&self) -> bool {
        use Request::*;
        matches!(self, Report { .. } | ReportOf { .. } | Places | FreeOn { .. } | Stats)
    }
}

/// Who is asking, as far as the server's records want to know; and what its settings say about activation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caller {
    /// The command line, for the description of archived metadata.
    pub command: String,
    /// `--autobackup n`: no copy of the metadata is kept for the changes of this client.
    pub no_backup: bool,
    /// Which volumes may be activated for it, and how.
    pub lists: Lists,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Hello {
        version: u32,
        group: String,
        pid: u32,
    },
    Ok,
    Report(Box<GroupReport>),
    Places(Vec<VolumePlaces>),
    /// Whole extents that are free and promised to nobody.
    Free {
        extents: u64,
    },
    Created(Vec<Created>),
    /// A merge will be carried out when the origin is next activated: the origin or, if not that, the snapshot is in use.
    MergeWaits {
        is_origin_open: bool,
    },
    /// The server ends and does the rest as its last act; whether it did is for the next server to tell.
    HandsOver,
    Check(CheckOutcome),
    Stats(StatsReport),
    /// How far a long request is, before its last outcome. `total: 0` says that nobody knows.
    Progress {
        done: u64,
        total: u64,
        what: String,
    },
    /// Something the administrator should read (a group nearly full), before the last outcome.
    Notice {
        message: String,
    },
    /// The request was refused or failed; nothing changed unless the message says so. A complete sentence.
    Error {
        kind: ErrorKind,
        message: String,
    },
}

impl Outcome {
    /// Whether another outcome of the same request follows.
    pub fn is_interim(&self) -> bool {
        matches!(self, Outcome::Progress { .. } | Outcome::Notice { .. })
    }
}

/// Why a request failed, for programs; the message is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request makes no sense, whatever the state of the group.
    Invalid,
    NotFound,
    Exists,
    InUse,
    NoSpace,
    /// What the request was worked out from is not so any more: look again.
    Changed,
    /// The group or a device may not be written or opened.
    Denied,
    /// Metadata is damaged.
    Damaged,
    /// A device failed.
    Io,
    /// The group is shutting down, or failed and must be reopened.
    Closed,
    /// The other side speaks another version.
    Version,
    /// A fault of the server itself.
    Internal,
}

/// Extents of a physical volume of the group, which is named by its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvPart {
    pub path: String,
    pub first_extent: u64,
    pub extents: u64,
}

/// A volume that a request made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    pub name: String,
    /// `/dev/VG/LV` when it is active.
    pub node: Option<String>,
}

/// What verification found. No findings: the group is sound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    pub findings: Vec<String>,
    /// How many of them [`Request::Repair`] mends.
    pub repairable: u64,
    /// Copies of metadata that were written anew.
    pub repaired: Vec<String>,
    /// Bad places of disks that the group does without.
    #[serde(default)]
    pub notes: Vec<String>,
    pub nodes: u64,
    pub blocks: u64,
}

impl From<engine::CheckReport> for CheckOutcome {
    fn from(report: engine::CheckReport) -> Self {
        let engine::CheckReport { findings, repairable, repaired, notes, nodes, blocks } = report;
        CheckOutcome { findings, repairable, repaired, notes, nodes, blocks }
    }
}

/// Allocated whole at creation, or on write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeKind {
    Thick,
    Thin,
}

/// What a write does when the group is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FullPolicy {
    DropSnapshot,
    Hold,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    Ok,
    Invalid,
}

macro_rules! mirror {
    ($name:ident { $($variant:ident),* }) => {
        impl From<engine::$name> for $name {
            fn from(value: engine::$name) -> Self {
                match value { $(engine::$name::$variant => $name::$variant),* }
            }
        }
        impl From<$name> for engine::$name {
            fn from(value: $name) -> Self {
                match value { $($name::$variant => engine::$name::$variant),* }
            }
        }
    };
}
mirror!(VolumeKind { Thick, Thin });
mirror!(FullPolicy { DropSnapshot, Hold, Fail });
mirror!(VolumeState { Ok, Invalid });
mirror!(AllocPolicy { Normal, Contiguous, Cling, Anywhere });

/// Where LVM would look for space: kept and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocPolicy {
    #[default]
    Normal,
    Contiguous,
    Cling,
    Anywhere,
}

/// What is kept with a group for the commands. The tags of physical volumes are with these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAttributes {
    pub autoactivate: bool,
    /// Nothing may be activated.
    pub exported: bool,
    pub resizeable: bool,
    pub alloc: AllocPolicy,
    /// Most volumes and physical volumes; 0: no limit.
    pub max_volumes: u64,
    pub max_pvs: u64,
    pub tags: Vec<String>,
}

impl Default for GroupAttributes {
    fn default() -> Self {
        engine::GroupAttributes::default().into()
    }
}

impl From<engine::GroupAttributes> for GroupAttributes {
    fn from(a: engine::GroupAttributes) -> Self {
        let engine::GroupAttributes { autoactivate, exported, resizeable, alloc, max_volumes, max_pvs, tags, .. } = a;
        GroupAttributes { autoactivate, exported, resizeable, alloc: alloc.into(), max_volumes, max_pvs, tags }
    }
}

/// A change of a group's attributes: what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupChange {
    pub autoactivate: Option<bool>,
    pub exported: Option<bool>,
    pub resizeable: Option<bool>,
    pub alloc: Option<AllocPolicy>,
    pub max_volumes: Option<u64>,
    pub max_pvs: Option<u64>,
    pub add_tags: Vec<String>,
    pub remove_tags: Vec<String>,
}

impl GroupChange {
    /// The attributes after the change.
    pub fn apply(&self, to: &engine::GroupAttributes) -> engine::GroupAttributes {
        let mut after = to.clone();
        after.autoactivate = self.autoactivate.unwrap_or(after.autoactivate);
        after.exported = self.exported.unwrap_or(after.exported);
        after.resizeable = self.resizeable.unwrap_or(after.resizeable);
        after.alloc = self.alloc.map_or(after.alloc, engine::AllocPolicy::from);
        after.max_volumes = self.max_volumes.unwrap_or(after.max_volumes);
        after.max_pvs = self.max_pvs.unwrap_or(after.max_pvs);
        change_tags(&mut after.tags, &self.add_tags, &self.remove_tags);
        after
    }
}

/// Adding a tag that is there, or removing one that is not, changes nothing.
pub fn change_tags(tags: &mut Vec<String>, add: &[String], remove: &[String]) {
    for tag in add {
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    tags.retain(|tag| !remove.contains(tag));
}

/// What is kept with a volume for the commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub autoactivate: bool,
    pub skip_activation: bool,
    pub active: bool,
    /// Seconds since 1970.
    pub created: u64,
    /// The thin pool that the volume is counted in. A volume that names itself *is* a pool (see [`VolumeReport::is_pool`]).
    pub pool: String,
    pub tags: Vec<String>,
    /// A snapshot that its origin takes the contents of when it is next activated.
    #[serde(default)]
    pub merging: bool,
}

impl From<engine::Attributes> for Attributes {
    fn from(a: engine::Attributes) -> Self {
        let engine::Attributes { autoactivate, skip_activation, active, created, pool, tags, merging } = a;
        Attributes { autoactivate, skip_activation, active, created, pool, tags, merging }
    }
}

impl From<Attributes> for engine::Attributes {
    fn from(a: Attributes) -> Self {
        let Attributes { autoactivate, skip_activation, active, created, pool, tags, merging } = a;
        engine::Attributes { autoactivate, skip_activation, active, created, pool, tags, merging }
    }
}

/// A change of attributes: what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttributeChange {
    pub autoactivate: Option<bool>,
    pub skip_activation: Option<bool>,
    pub add_tags: Vec<String>,
    pub remove_tags: Vec<String>,
    pub pool: Option<String>,
}

impl AttributeChange {
    /// The attributes after the change.
    pub fn apply(&self, to: &engine::Attributes) -> engine::Attributes {
        let mut after = to.clone();
        after.autoactivate = self.autoactivate.unwrap_or(after.autoactivate);
        after.skip_activation = self.skip_activation.unwrap_or(after.skip_activation);
        if let Some(pool) = &self.pool {
            after.pool.clone_from(pool);
        }
        change_tags(&mut after.tags, &self.add_tags, &self.remove_tags);
        after
    }
}

/// A volume to make. The client makes the identifier; `attributes.active` is the server's to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub kind: VolumeKind,
    pub blocks: u64,
    pub sector: u32,
    pub chunk_blocks: u32,
    pub full: FullPolicy,
    pub attributes: Attributes,
}

impl From<VolumeSpec> for engine::NewVolume {
    fn from(spec: VolumeSpec) -> Self {
        let VolumeSpec { name, uuid, kind, blocks, sector, chunk_blocks, full, attributes } = spec;
        engine::NewVolume {
            name,
            uuid,
            kind: kind.into(),
            blocks,
            sector,
            chunk_blocks,
            full: full.into(),
            attributes: attributes.into(),
        }
    }
}

/// A snapshot to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotSpec {
    pub origin: String,
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    /// Blocks set aside for it; none: it shares the group's free space.
    pub reserve_blocks: Option<u64>,
    pub read_only: bool,
    pub chunk_blocks: u32,
    /// Make its node before answering.
    pub activate: bool,
    pub attributes: Attributes,
}

impl SnapshotSpec {
    /// For the engine, which knows volumes by their identity.
    pub fn for_engine(self, origin: rowen_engine::units::VolumeId) -> engine::NewSnapshot {
        engine::NewSnapshot {
            origin,
            name: self.name,
            uuid: self.uuid,
            reserve: self.reserve_blocks,
            read_only: self.read_only,
            chunk_blocks: self.chunk_blocks,
            attributes: self.attributes.into(),
        }
    }
}

/// A group with everything in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub extent_blocks: u64,
    pub extents: u64,
    /// Extents neither used nor promised.
    pub free_extents: u64,
    /// Of these, what can be taken: they are on physical volumes that are allocatable.
    pub allocatable_extents: u64,
    pub blocks: u64,
    pub free_blocks: u64,
    pub promised_blocks: u64,
    pub pending_blocks: u64,
    pub metadata_blocks: u64,
    pub sequence: u64,
    /// Blocks that background removal has still to look at.
    pub reclaim_left_blocks: u64,
    #[serde(default)]
    pub attributes: GroupAttributes,
    pub pvs: Vec<PvReport>,
    pub volumes: Vec<VolumeReport>,
    /// Made by who looks something up, never sent.
    #[serde(skip)]
    pub index: Index,
}

/// Where a report's volumes are, found once for all who ask. It is no part of what the report says: it is neither
/// compared nor copied. Who changes the volumes of a report that was looked into takes a copy first.
#[derive(Debug, Default)]
pub struct Index {
    by_name: OnceLock<Map<String, usize>>,
    relations: OnceLock<Relations>,
}

#[derive(Debug, Default)]
struct Relations {
    by_origin: Map<String, Vec<usize>>,
    by_pool: Map<String, Vec<usize>>,
}

impl Clone for Index {
    fn clone(&self) -> Index {
        Index::default()
    }
}

impl PartialEq for Index {
    fn eq(&self, _: &Index) -> bool {
        true
    }
}

impl Eq for Index {}

impl GroupReport {
    /// From the engine's account; `paths` are the devices in the order of the group's physical volumes, and `node` tells
    /// the state of each volume's node.
    pub fn new(
        info: engine::GroupInfo,
        paths: &[String],
        volumes: Vec<engine::VolumeInfo>,
        mut node: impl FnMut(&engine::VolumeInfo) -> NodeState,
    ) -> GroupReport {
        let is_origin: Set<u64> = volumes.iter().filter_map(|volume| volume.origin).map(|id| id.0).collect();
        let names: Map<u64, String> = volumes
            .iter()
            .filter(|volume| is_origin.contains(&volume.id.0))
            .map(|volume| (volume.id.0, volume.name.clone()))
            .collect();
        let mut pv_tags = info.attributes.pv_tags.clone();
        pv_tags.resize(info.pvs.len(), Vec::new());
        let pvs = info.pvs.iter().zip(pv_tags).enumerate().map(|(index, (pv, tags))| PvReport {
            path: paths.get(index).cloned().unwrap_or_else(|| "[unknown]".to_owned()),
            uuid: pv.uuid,
            size_bytes: pv.size,
            data_offset_bytes: pv.data_offset,
            extents: pv.extents,
            free_extents: pv.free_extents,
            is_allocatable: pv.is_allocatable,
            tags,
        });
        GroupReport {
            pvs: pvs.collect(),
            name: info.name,
            uuid: info.uuid,
            extent_blocks: info.extent_blocks,
            extents: info.extents,
            free_extents: info.free_extents,
            allocatable_extents: info.allocatable_extents,
            blocks: info.blocks,
            free_blocks: info.free_blocks,
            promised_blocks: info.promised_blocks,
            pending_blocks: info.pending_blocks,
            metadata_blocks: info.metadata_blocks,
            sequence: info.sequence,
            reclaim_left_blocks: info.reclaim_left,
            attributes: info.attributes.into(),
            index: Index::default(),
            volumes: volumes
                .into_iter()
                .map(|volume| {
                    let state = node(&volume);
                    let origin = volume.origin.and_then(|id| names.get(&id.0).cloned());
                    VolumeReport::new(volume, origin, state)
                })
                .collect(),
        }
    }

    pub fn volume(&self, name: &str) -> Option<&VolumeReport> {
        let places = || self.volumes.iter().enumerate().map(|(at, volume)| (volume.name.clone(), at)).collect();
        self.index.by_name.get_or_init(places).get(name).and_then(|at| self.volumes.get(*at))
    }

    /// The volumes that name this one as their origin.
    pub fn snapshots_of(&self, name: &str) -> impl Iterator<Item = &VolumeReport> {
        self.at(self.relations().by_origin.get(name))
    }

    /// The volumes that name this pool, without the pool itself.
    pub fn members_of(&self, pool: &str) -> impl Iterator<Item = &VolumeReport> {
        self.at(self.relations().by_pool.get(pool))
    }

    fn at<'a>(&'a self, places: Option<&'a Vec<usize>>) -> impl Iterator<Item = &'a VolumeReport> {
        places.into_iter().flatten().filter_map(|at| self.volumes.get(*at))
    }

    fn relations(&self) -> &Relations {
        self.index.relations.get_or_init(|| {
            let mut places = Relations::default();
            for (at, volume) in self.volumes.iter().enumerate() {
                if let Some(origin) = &volume.origin {
                    add(&mut places.by_origin, origin, at);
                }
                if !volume.attributes.pool.is_empty() && !volume.is_pool() {
                    add(&mut places.by_pool, &volume.attributes.pool, at);
                }
            }
            places
        })
    }
}

/// Adds a place under a name, which is copied only when it is new.
fn add(to: &mut Map<String, Vec<usize>>, name: &str, at: usize) {
    match to.get_mut(name) {
        Some(places) => places.push(at),
        None => drop(to.insert(name.to_owned(), vec![at])),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvReport {
    pub path: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub size_bytes: u64,
    pub data_offset_bytes: u64,
    pub extents: u64,
    pub free_extents: u64,
    /// Space is taken from it.
    pub is_allocatable: bool,
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Where a volume's blocks are: each physical volume that has some, in the order in which the volume comes to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumePlaces {
    pub name: String,
    pub shares: Vec<PvShare>,
}

/// What a volume has on one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvShare {
    /// The physical volume's place in [`GroupReport::pvs`].
    pub pv: u16,
    /// The extent there that holds the first of the volume's blocks there.
    pub first_extent: u64,
    pub extents: u64,
}

impl VolumePlaces {
    pub fn new(name: String, places: &[engine::PlaceInfo], extent_blocks: u64) -> VolumePlaces {
        let share = |place: &engine::PlaceInfo| PvShare {
            pv: place.pv,
            first_extent: place.first_extent,
            extents: place.blocks.div_ceil(extent_blocks.max(1)),
        };
        VolumePlaces { name, shares: places.iter().map(share).collect() }
    }
}

/// A volume's block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    pub active: bool,
    /// Mounted, or held open by a process.
    pub open: bool,
    /// Of the block device, when active.
    pub major: u32,
    pub minor: u32,
    /// It cannot be written to, whatever the volume's permission.
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReport {
    pub id: u64,
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub kind: VolumeKind,
    pub state: VolumeState,
    pub blocks: u64,
    pub sector: u32,
    pub chunk_blocks: u32,
    pub read_only: bool,
    pub full: FullPolicy,
    /// The name of the volume that this is a snapshot of, while both exist.
    pub origin: Option<String>,
    pub reserve_blocks: Option<u64>,
    pub attributes: Attributes,
    pub referenced_blocks: u64,
    pub exclusive_blocks: u64,
    pub freed_if_removed_blocks: u64,
    pub snapshot_used_blocks: u64,
    pub node: NodeState,
}

impl VolumeReport {
    fn new(info: engine::VolumeInfo, origin: Option<String>, node: NodeState) -> VolumeReport {
        VolumeReport {
            id: info.id.0,
            name: info.name,
            uuid: info.uuid,
            kind: info.kind.into(),
            state: info.state.into(),
            blocks: info.blocks,
            sector: info.sector,
            chunk_blocks: info.chunk_blocks,
            read_only: info.read_only,
            full: info.full.into(),
            origin,
            reserve_blocks: info.reserve,
            attributes: info.attributes.into(),
            referenced_blocks: info.referenced,
            exclusive_blocks: info.exclusive,
            freed_if_removed_blocks: info.freed_if_removed,
            snapshot_used_blocks: info.snapshot_used,
            node,
        }
    }

    /// A snapshot that waits to be merged into its origin. Nothing but its origin's activation or removal concerns it, so
    /// reports leave it out unless it is asked for.
    pub fn is_waiting_to_merge(&self) -> bool {
        self.attributes.merging && self.origin.is_some()
    }

    /// A thin pool: a thin volume, never written and never activated, that names itself as its pool. Its size is what the
    /// pool's volumes may hold together; by itself it takes no space from the group.
    pub fn is_pool(&self) -> bool {
        !self.attributes.pool.is_empty() && self.attributes.pool == self.name
    }
}

macro_rules! stats {
    ($($field:ident),* $(,)?) => {
        /// Counters since the server opened the group.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct StatsReport { $(pub $field: u64),* }

        impl From<engine::Stats> for StatsReport {
            fn from(stats: engine::Stats) -> Self {
                let engine::Stats { $($field,)* .. } = stats;
                StatsReport { $($field),* }
            }
        }

        impl StatsReport {
            /// Each counter with its name, in order.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }
        }
    };
}
stats!(
    writes_in_place,
    writes_redirected,
    writes_again,
    journal_frames,
    journal_records,
    device_flushes,
    checkpoints,
    nodes_written,
    node_loads,
    waits_for_marker,
    recovered,
    recovery_skipped,
    slots_taken,
    reclaim_steps,
    orphans_freed,
    windows_rehomed,
    windows_filled,
    blocks_filled,
    fills_without_room,
    volumes_invalidated,
    copies_not_written,
    nodes_lost,
    ring_blocks_bad,
);

/// Identifiers as 32 hexadecimal digits, and as 16 bytes in the compact form.
mod hex {
    use super::Uuid;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(uuid: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(uuid) } else { serde::Serialize::serialize(&uuid.0, to) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        if !from.is_human_readable() {
            return <[u8; 16]>::deserialize(from).map(Uuid);
        }
        let text = String::deserialize(from)?;
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(&text, 16) {
            Ok(number) if is_hex => Ok(Uuid(number.to_be_bytes())),
            _ => Err(serde::de::Error::custom("an identifier must be 32 hexadecimal digits")),
        }
    }
}

/// Begins the compact form; JSON never begins with it.
const COMPACT: u8 = 0;

/// A message as the bytes of one frame.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    seal(frame)
}

/// The same in the form that is shorter and faster to read, and nothing for a person's eyes.
pub fn encode_compact<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let frame = vec![0, 0, 0, 0, COMPACT];
    seal(postcard::to_extend(message, frame).map_err(io::Error::other)?)
}

/// Writes the length before a frame's body.
fn seal(mut frame: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = frame.len() - 4;
    if length > FRAME_CAP {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {length} bytes is too long to send"),
        ));
    }
    let prefix = u32::try_from(length).expect("the cap is far below 4 GiB");
    frame[..4].copy_from_slice(&prefix.to_le_bytes());
    Ok(frame)
}

/// The length that a frame's first four bytes announce.
pub fn frame_length(prefix: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > FRAME_CAP {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes is over the limit")));
    }
    Ok(length)
}

/// The message in a frame's bytes after the first four.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    match body {
        [COMPACT, rest @ ..] => postcard::from_bytes(rest).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
        _ => Ok(serde_json::from_slice(body)?),
    }
}

/// Writes an answer in the form that suits it.
pub fn write_outcome(to: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let frame = match outcome {
        Outcome::Report(_) => encode_compact(outcome)?,
        _ => encode(outcome)?,
    };
    to.write_all(&frame)?;
    to.flush()
}

/// Writes one frame.
pub fn write_frame<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// Reads one frame; `None` when the other side ended the connection between frames.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut prefix = [0; 4];
    loop {
        match from.read(&mut prefix[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    from.read_exact(&mut prefix[1..])?;
    let length = frame_length(prefix)?;
    // Grown as bytes arrive: a length alone makes nobody allocate.
    let mut body = Vec::with_capacity(length.min(64 << 10));
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    decode(&body).map(Some)
}

#[cfg(test)]
#[path = "wire_test.rs"]
mod tests;
