//! The requests of commands, and their traits for the server.

use super::attributes::{AttributeChange, Attributes, FullPolicy, GroupChange, SegmentType, Stripes, VolumeKind, hex};
use super::diff::{DiffPlace, DiffSide};
use super::mirrors::ScrubAction;
use super::transfer::{Attempt, BlockRange, Mark, Part, Receive};
use crate::lists::Lists;
use rowen_engine::group as engine;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};

/// A request of a command to a group's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The first request of each connection; answered by [`Outcome::Hello`].
    Hello {
        version: u32,
        #[serde(default)]
        caller: Caller,
    },
    /// Answered by [`Outcome::Report`]. Only with `with_use` it says whether devices are open, because that needs a
    /// search of all processes of the host.
    Report {
        #[serde(default)]
        with_use: bool,
    },
    /// The same for commands on these volumes, which need not exist. The report has these volumes, all of their
    /// ancestors and descendants, and their pools: with ten thousand volumes a report of all would take longer than the
    /// rest of a command. With `with_members` it also has the volumes of those that are pools. `with_use` covers only
    /// the devices of these volumes.
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
    /// Answered by [`Outcome::Created`] when the node exists (with `activate`). For a thick volume, `on` names the
    /// places of its space, if it is not empty.
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
    /// Removes all of the named volumes in one step. A volume in use is always refused. An active volume that is not in
    /// use is deactivated first.
    Remove {
        names: Vec<String>,
    },
    /// Makes nodes. `names: None` is every volume. It leaves out volumes that the caller's lists do not allow, volumes
    /// marked to skip activation unless `ignore_skip` is set, and with `auto` volumes without autoactivation. A
    /// snapshot with a reserve is activated with its origin.
    Activate {
        names: Option<Vec<String>>,
        ignore_skip: bool,
        auto: bool,
        /// Also volumes with blocks on a missing physical volume; reads of these blocks fail.
        #[serde(default)]
        partial: bool,
    },
    /// Updates the devices of those volumes that are active, by their permission and the caller's lists.
    Refresh {
        names: Vec<String>,
    },
    /// Removes nodes; a volume in use is refused.
    Deactivate {
        names: Option<Vec<String>>,
    },
    /// Grows or shrinks a volume and its device. Shrinking a mounted volume needs `force`. The new space of a thick
    /// volume comes from the places `on`, if it is not empty. With `seen`: only if the volume still has this many
    /// blocks, from which the client computed the new size; otherwise [`ErrorKind::Changed`].
    Resize {
        name: String,
        blocks: u64,
        force: bool,
        #[serde(default)]
        on: Vec<PvPart>,
        #[serde(default)]
        seen: Option<u64>,
    },
    /// Changes the reserve of a snapshot; with `seen`: only if it still has this size.
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
    /// Changes the attributes of the group.
    ChangeGroup {
        change: GroupChange,
    },
    /// Changes the tags of a physical volume of the group, named by its path.
    TagPv {
        path: String,
        add: Vec<String>,
        remove: Vec<String>,
    },
    /// Sets the number of copies of the journal: 1, or 2 if another physical volume has room for one.
    SetJournalCopies {
        copies: u8,
    },
    /// Makes a physical volume of the group, named by its path, allocatable or not.
    SetAllocatable {
        path: String,
        allocatable: bool,
    },
    /// Gives the snapshot's origin the snapshot's contents and removes the snapshot. It does so at once or, if one of
    /// them is in use, when the origin is next activated.
    Merge {
        snapshot: String,
    },
    /// Gives `target` the contents of `source`. All snapshots of `target` stay.
    Revert {
        target: String,
        source: String,
    },
    /// Adds devices as physical volumes. They must belong to no group. A device without a label gets one.
    AddPv {
        paths: Vec<String>,
    },
    /// Removes missing physical volumes from the group for good. No volume may have blocks there.
    RemoveMissing,
    /// Takes a missing physical volume back. It must be at this path, in the state in which it left.
    RestorePv {
        path: String,
    },
    /// Gives mirrored extents with one leg a second one, in these places or anywhere. Answered by [`Outcome::Repaired`].
    RepairMirrors {
        #[serde(default)]
        on: Vec<PvPart>,
    },
    /// Makes a linear volume and its snapshots mirrored where they are. The second copies lie in these places or anywhere,
    /// and are made in the background.
    Convert {
        volume: String,
        #[serde(default)]
        on: Vec<PvPart>,
    },
    /// Makes a mirrored volume and its snapshots linear where they are: the copies on these physical volumes go, or any.
    /// Answered by [`Outcome::Linear`].
    ConvertLinear {
        volume: String,
        #[serde(default)]
        from: Vec<String>,
    },
    /// Compares the two copies of a mirrored volume and of its snapshots, in the background.
    Scrub {
        volume: String,
        action: ScrubAction,
    },
    /// Removes a physical volume on which no volume has blocks. Metadata and the journal move away from it.
    RemovePv {
        path: String,
    },
    /// Discards all free blocks on the physical volumes.
    Trim,
    /// Starts to move the used ones of these extents to other physical volumes, or to the given ones.
    MoveExtents {
        path: String,
        /// The first extent and the length of each run. Empty: all extents.
        extents: Vec<(u64, u64)>,
        to: Vec<PvPart>,
        /// Only extents on which this volume has blocks.
        #[serde(default)]
        volume: Option<String>,
    },
    /// Asks for the progress of a move of extents. Answered when it has ended, or after a short time.
    MoveStatus,
    /// Ends the move of extents. Moved extents stay moved.
    StopMove,
    /// Sets how many bytes of its device a physical volume uses. None: all of them.
    ResizePv {
        path: String,
        #[serde(default)]
        bytes: Option<u64>,
    },
    /// Renames the group. A successor process continues under the new name.
    RenameGroup {
        to: String,
    },
    /// Makes the missing names of active volumes under /dev.
    MakeNodes,
    /// Changes the policy for a full group, for a volume or for a pool and its volumes.
    SetFullPolicy {
        name: String,
        full: FullPolicy,
    },
    /// Verifies the group while it is in use. Answered by [`Outcome::Check`].
    Check,
    /// The same, and repairs damaged copies of metadata from the good ones.
    Repair,
    Checkpoint,
    /// Answered by [`Outcome::Stats`].
    Stats,
    /// Asks for the state of the group. Answered by [`Outcome::Status`].
    Status,
    /// Asks for the counters of I/O. Answered by [`Outcome::Io`].
    Io,
    /// Asks for the blocks in which `new` differs from `old`, or those that `new` maps. Answered by [`Outcome::Diff`],
    /// a page at a time. `from` is the place that the previous page names.
    Diff {
        old: Option<String>,
        new: String,
        #[serde(default)]
        from: Option<DiffPlace>,
    },
    /// Asks for the data of these blocks of a volume at a point. Answered by [`Outcome::Data`]. Refused if, after the
    /// read, the volume is not at the point or not the one of the list of changes.
    ReadPoint {
        name: String,
        #[serde(with = "hex")]
        point: Uuid,
        side: DiffSide,
        ranges: Vec<BlockRange>,
    },
    /// Keeps of a snapshot what it takes to send what changed since then, under a name of its own.
    Bookmark {
        snapshot: String,
        name: String,
        #[serde(with = "hex")]
        uuid: Uuid,
        /// Seconds since 1970.
        created: u64,
    },
    RemoveBookmark {
        name: String,
    },
    /// Starts or resumes a receive of volumes or changes of them. Answered by [`Outcome::Receiving`].
    Receive(Receive),
    /// Writes received data, which is not visible yet.
    ReceiveParts {
        by: Attempt,
        parts: Vec<Part>,
    },
    /// Makes all received data durable: this many frames of the stream, up to this mark. The receive can resume there.
    ReceiveMark {
        by: Attempt,
        frames: u64,
        mark: Mark,
    },
    /// Everything was received and verified: makes it visible, in one step. A target that is in use or was written to
    /// is refused.
    Publish {
        by: Attempt,
    },
    /// Discards the received part for a target, and for the other targets of the same stream.
    AbortReceive {
        target: String,
    },
    /// Asks for unfinished receives. Answered by [`Outcome::Receives`].
    Receives,
    /// Removes the group. With `force` it removes its volumes first; otherwise there must be none. The server ends
    /// after the answer.
    Destroy {
        force: bool,
    },
    /// Deactivates all volumes, closes the group and ends the server. Refused while a volume is in use.
    Stop,
    /// Ends the server of a group that has stopped after a failed write, so that another one opens the group. Devices in use
    /// stay: their requests wait for the next server. Refused while the group has not stopped.
    Clear,
    /// Ends the server for an upgrade, when its successor is ready. Answered by [`Outcome::HandsOver`]. Devices stay:
    /// their requests wait for the successor. Part of the stable protocol. Waits for running changes for a limited
    /// time.
    Upgrade {
        /// The version that takes over, for the log.
        #[serde(default)]
        to: String,
    },
}

/// Whether a request only reads, or changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Answered while changes run.
    Query,
    /// Carried out one at a time, in the order of arrival.
    Change,
}

/// The traits of a request that the server needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    pub kind: Kind,
    /// It is short and only reads, or a repetition changes nothing. So it is repeated if no answer came.
    pub is_repeatable: bool,
    /// It may change data that the archive of metadata keeps.
    pub is_archived: bool,
    /// It is allowed for an exported group.
    pub is_for_exported: bool,
    /// It is allowed for a group that is open read-only (RO1).
    pub is_for_read_only: bool,
    /// The group may be fuller after it.
    pub takes_space: bool,
    /// The server ends when it is done.
    pub ends_server: bool,
}

impl Traits {
    const QUERY: Traits = Traits {
        kind: Kind::Query,
        is_repeatable: false,
        is_archived: false,
        is_for_exported: true,
        is_for_read_only: true,
        takes_space: false,
        ends_server: false,
    };
    const REPEATABLE: Traits = Traits { is_repeatable: true, ..Traits::QUERY };
    /// A change of metadata.
    const CHANGE: Traits = Traits {
        kind: Kind::Change,
        is_archived: true,
        is_for_exported: false,
        is_for_read_only: false,
        ..Traits::QUERY
    };
    const TAKES_SPACE: Traits = Traits { takes_space: true, ..Traits::CHANGE };
    /// A change of devices, which the archive does not contain.
    const DEVICES: Traits = Traits { is_archived: false, is_for_read_only: true, ..Traits::CHANGE };
    /// A change of data that the archive does not contain.
    const DATA: Traits = Traits { is_archived: false, ..Traits::CHANGE };
}

impl Request {
    /// Whether the group's history records it: all changes except checkpoints, which many commands take.
    pub fn is_noted(&self) -> bool {
        match self {
            Request::Checkpoint => false,
            Request::Repair => true,
            other => other.traits().kind == Kind::Change,
        }
    }

    /// Its name in a frame.
    pub fn word(&self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// The only list of the traits of requests: a new request does not compile without an entry.
    pub fn traits(&self) -> Traits {
        use Request::*;
        match self {
            Hello { .. } => Traits::QUERY,
            Report { .. }
            | ReportOf { .. }
            | Places
            | FreeOn { .. }
            | Stats
            | Status
            | Io
            | Diff { .. }
            | ReadPoint { .. }
            | MoveStatus
            | Receives => Traits::REPEATABLE,
            // Their changes are not visible, and a repetition changes nothing.
            ReceiveParts { .. } | ReceiveMark { .. } => {
                Traits { is_for_exported: false, is_for_read_only: false, ..Traits::REPEATABLE }
            }
            // The same stream again resumes.
            Receive(_) => Traits { is_repeatable: true, takes_space: true, ..Traits::DATA },
            AbortReceive { .. } => Traits::DATA,
            // They take long, and repair writes.
            Check => Traits::QUERY,
            Repair => Traits { is_for_read_only: false, ..Traits::QUERY },
            Trim => Traits { is_for_exported: false, is_for_read_only: false, ..Traits::QUERY },
            CreateVolume { .. }
            | Publish { .. }
            | Bookmark { .. }
            | Snapshot { .. }
            | Resize { .. }
            | SetReserve { .. }
            | SetAllocatable { .. }
            | SetJournalCopies { .. }
            | RepairMirrors { .. }
            | Convert { .. }
            | ConvertLinear { .. }
            | ResizePv { .. } => Traits::TAKES_SPACE,
            Remove { .. }
            | RemoveBookmark { .. }
            | Rename { .. }
            | SetPermission { .. }
            | SetAttributes { .. }
            | TagPv { .. }
            | Merge { .. }
            | Revert { .. }
            | AddPv { .. }
            | RemoveMissing
            | RestorePv { .. }
            | RemovePv { .. }
            | SetFullPolicy { .. } => Traits::CHANGE,
            ChangeGroup { .. } => Traits { is_for_exported: true, ..Traits::CHANGE },
            RenameGroup { .. } => Traits { is_for_exported: true, ends_server: true, ..Traits::CHANGE },
            Destroy { .. } => Traits { ends_server: true, ..Traits::CHANGE },
            Activate { .. } | Refresh { .. } => Traits::DEVICES,
            MoveExtents { .. } | StopMove | Scrub { .. } => Traits::DATA,
            Checkpoint => Traits { is_for_exported: true, ..Traits::DATA },
            Deactivate { .. } | MakeNodes => Traits { is_for_exported: true, ..Traits::DEVICES },
            Stop | Clear | Upgrade { .. } => Traits { is_for_exported: true, ends_server: true, ..Traits::DEVICES },
        }
    }
}

/// The client, for the server's records, and its activation lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caller {
    /// The command line, for the description of archived metadata and the group's history.
    pub command: String,
    /// The same for all requests of one run of a command, also to several servers. Requests with the same id are one
    /// entry of the history. Empty: each request is an entry.
    pub id: String,
    /// The user that runs the command, for the history.
    pub user: String,
    /// Its process. The server takes it from the kernel, not from the client.
    pub pid: u32,
    /// `--autobackup n`: no copy of the metadata is kept for the changes of this client.
    pub no_backup: bool,
    /// Its activation lists.
    pub lists: Lists,
}

/// Extents of a physical volume of the group, which is named by its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvPart {
    pub path: String,
    pub first_extent: u64,
    pub extents: u64,
}

/// A volume to make. The client chooses the identifier; the server sets `attributes.active`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub kind: VolumeKind,
    #[serde(default)]
    pub segment: SegmentType,
    /// Of a striped volume.
    #[serde(default)]
    pub stripes: Option<Stripes>,
    pub blocks: u64,
    pub sector: u32,
    pub chunk_blocks: u32,
    pub full: FullPolicy,
    pub attributes: Attributes,
}

impl From<VolumeSpec> for engine::NewVolume {
    fn from(spec: VolumeSpec) -> Self {
        let VolumeSpec { name, uuid, kind, blocks, sector, chunk_blocks, full, attributes, .. } = spec;
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
    /// Its reserve in blocks; none: it shares the group's free space.
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
