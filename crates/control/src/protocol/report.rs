//! Reports: a group with its physical volumes and volumes, and where their blocks are.

use super::attributes::{
    Attributes, FullPolicy, GroupAttributes, HexUuid, SegmentType, Stripes, VolumeKind, VolumeState, hex,
};
use super::mirrors::{MirrorReport, ScrubReport};
use super::status::MoveReport;
use rowen_engine::fixed_hash::{Map, Set};
use rowen_engine::group as engine;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// A group with everything in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub extent_blocks: u64,
    pub extents: u64,
    /// Extents neither used nor reserved.
    pub free_extents: u64,
    /// Of these, extents on allocatable physical volumes.
    pub allocatable_extents: u64,
    pub blocks: u64,
    pub free_blocks: u64,
    pub reserved_blocks: u64,
    pub pending_blocks: u64,
    pub metadata_blocks: u64,
    /// Copies of the journal, and how many of them are written.
    pub journal_copies: u64,
    pub journal_copies_written: u64,
    pub sequence: u64,
    /// Blocks that background removal still has to examine.
    pub reclaim_left_blocks: u64,
    /// It is stopped: it takes no writes until it is opened again.
    #[serde(default)]
    pub stopped: bool,
    /// It is open read-only (RO1).
    #[serde(default)]
    pub read_only: bool,
    /// Extents that are being moved.
    #[serde(default)]
    pub moving: Option<Box<MoveReport>>,
    /// Its mirrored extents.
    #[serde(default)]
    pub mirrors: MirrorReport,
    /// None: there are no striped extents.
    #[serde(default)]
    pub stripes: Option<StripeReport>,
    #[serde(default)]
    pub attributes: GroupAttributes,
    pub pvs: Vec<PvReport>,
    pub volumes: Vec<VolumeReport>,
    #[serde(default)]
    pub bookmarks: Vec<BookmarkReport>,
    /// Made by the reader of a report, never sent.
    #[serde(skip)]
    pub index: Index,
}

/// The legs of a volume's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Legs {
    /// As many as its type has.
    #[default]
    Whole,
    /// One is on a physical volume that is missing.
    Missing,
    /// There is no second one any more: its physical volume was removed.
    Single,
}

/// What is kept of a snapshot so that what changed since then can be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookmarkReport {
    pub name: String,
    /// The identity of the contents.
    pub point_uuid: HexUuid,
    /// The identifier of the volume that these were a snapshot of.
    pub of: HexUuid,
    /// Seconds since 1970.
    pub created: u64,
    pub blocks: u64,
    /// Nothing can be compared with it any more.
    pub has_ended: bool,
}

impl From<engine::Bookmark> for BookmarkReport {
    fn from(bookmark: engine::Bookmark) -> Self {
        let engine::Bookmark { name, point, of, created, blocks, has_ended, .. } = bookmark;
        BookmarkReport { name, point_uuid: HexUuid(point), of: HexUuid(of), created, blocks, has_ended }
    }
}

/// An index of a report's volumes, built once. It is not part of the report: it is neither compared nor copied. To
/// change the volumes of a report that was used already, copy it first.
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
    /// Physical volumes that are out.
    pub fn missing(&self) -> impl Iterator<Item = &PvReport> {
        self.pvs.iter().filter(|pv| pv.is_missing)
    }

    /// Those, and physical volumes that were pulled and for which the group waits.
    pub fn absent(&self) -> impl Iterator<Item = &PvReport> {
        self.pvs.iter().filter(|pv| pv.is_missing || pv.is_away)
    }

    /// From the engine's report. `paths` are the devices in the order of the group's physical volumes; `node` returns
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
            is_missing: pv.is_missing,
            is_away: false,
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
            reserved_blocks: info.reserved_blocks,
            pending_blocks: info.pending_blocks,
            metadata_blocks: info.metadata_blocks,
            journal_copies: info.journal_copies,
            journal_copies_written: info.journal_copies_written,
            sequence: info.sequence,
            reclaim_left_blocks: info.reclaim_left,
            stopped: false,
            read_only: false,
            moving: None,
            mirrors: MirrorReport::default(),
            stripes: None,
            attributes: info.attributes.into(),
            index: Index::default(),
            bookmarks: Vec::new(),
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

/// Adds a position under a name, which is copied only if it is new.
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
    /// The group goes on without it.
    #[serde(default)]
    pub is_missing: bool,
    /// It was pulled, and the group waits for it.
    #[serde(default)]
    pub is_away: bool,
    #[serde(default)]
    pub tags: Vec<String>,
}

/// The places of a volume's blocks: each physical volume that has some, in the volume's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumePlaces {
    pub name: String,
    pub shares: Vec<PvShare>,
}

/// The blocks of a volume on one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvShare {
    /// The physical volume's place in [`GroupReport::pvs`].
    pub pv: u16,
    /// The extent there that holds the first of the volume's blocks there.
    pub first_extent: u64,
    pub extents: u64,
    /// Of mirrored blocks: the physical volume of the second leg, and the extent with the first block there.
    #[serde(default)]
    pub second: Option<(u16, u64)>,
}

impl VolumePlaces {
    pub fn new(name: String, places: &[engine::PvUsage], extent_blocks: u64) -> VolumePlaces {
        let share = |place: &engine::PvUsage| PvShare {
            pv: place.pv,
            first_extent: place.first_extent,
            extents: place.blocks.div_ceil(extent_blocks.max(1)),
            second: place.second,
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

/// The striped extents of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeReport {
    /// All of them have the same.
    pub layout: Stripes,
    pub extents: u64,
    /// Of these, extents of which nothing is used: room for striped volumes only.
    pub free_extents: u64,
    /// There is a striped volume. Without one the layout can change.
    pub has_volumes: bool,
}

impl From<engine::StripeInfo> for StripeReport {
    fn from(info: engine::StripeInfo) -> Self {
        StripeReport {
            layout: info.layout.into(),
            extents: info.extents,
            free_extents: info.free_extents,
            has_volumes: info.has_volumes,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReport {
    pub id: u64,
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub kind: VolumeKind,
    #[serde(default)]
    pub segment: SegmentType,
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
    /// Blocks of it lie on a physical volume that is missing.
    #[serde(default)]
    pub is_partial: bool,
    #[serde(default)]
    pub legs: Legs,
    /// The last comparison of its copies since the group was opened.
    #[serde(default)]
    pub scrub: Option<ScrubReport>,
    /// The identity of its contents, if it is at a point.
    #[serde(default)]
    pub point_uuid: Option<HexUuid>,
    /// The moment of that point: equal for snapshots that were taken together.
    #[serde(default)]
    pub moment: Option<u64>,
    pub node: NodeState,
}

impl VolumeReport {
    fn new(info: engine::VolumeInfo, origin: Option<String>, node: NodeState) -> VolumeReport {
        VolumeReport {
            id: info.id.0,
            name: info.name,
            uuid: info.uuid,
            kind: info.kind.into(),
            segment: info.segment.into(),
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
            is_partial: false,
            legs: Legs::Whole,
            scrub: None,
            point_uuid: info.point.map(HexUuid),
            moment: info.moment.map(|epoch| epoch.0),
            node,
        }
    }

    /// Its blocks alternate between physical volumes.
    pub fn is_striped(&self) -> bool {
        self.segment == SegmentType::Striped
    }

    /// A snapshot that waits to be merged into its origin. Only activation or removal of its origin affects it, so
    /// reports leave it out unless it is asked for.
    pub fn is_waiting_to_merge(&self) -> bool {
        self.attributes.merging && self.origin.is_some()
    }

    /// Its blocks are on two physical volumes.
    pub fn is_mirrored(&self) -> bool {
        self.segment == SegmentType::Raid1
    }

    /// A thin pool: a thin volume that names itself as its pool. It is never written and never activated. Its size
    /// limits the space of the pool's volumes; it takes no space itself.
    pub fn is_pool(&self) -> bool {
        !self.attributes.pool.is_empty() && self.attributes.pool == self.name
    }
}
