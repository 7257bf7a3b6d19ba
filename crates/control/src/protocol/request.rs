//! What commands ask, and what the server must know of each request besides what it asks.

use super::attributes::{AttributeChange, Attributes, FullPolicy, GroupChange, VolumeKind, hex};
use super::diff::{DiffPlace, DiffSide};
use super::transfer::{Attempt, BlockRange, Mark, Part, Receive};
use crate::lists::Lists;
use rowen_engine::group as engine;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};

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
        /// Also those that have blocks on a physical volume that is missing: these are errors.
        #[serde(default)]
        partial: bool,
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
    /// How many copies of the journal there shall be: 1, or 2 where another physical volume has room for one.
    SetJournalCopies {
        copies: u8,
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
    /// Adds devices as physical volumes. They must belong to no group; one without a label gets one.
    AddPv {
        paths: Vec<String>,
    },
    /// Takes a physical volume that is missing out of the group for good. No volume may have blocks there.
    RemoveMissing,
    /// Takes a physical volume back that was missing, and is at this path as it left.
    RestorePv {
        path: String,
    },
    /// Removes a physical volume on which nothing of any volume lies. Metadata and the journal move away from it.
    RemovePv {
        path: String,
    },
    /// Discards all that is free on the physical volumes.
    Trim,
    /// Begins to move what volumes have on these extents to other physical volumes, or to these.
    MoveExtents {
        path: String,
        /// The first and how many, of each run; all if there are none.
        extents: Vec<(u64, u64)>,
        to: Vec<PvPart>,
        /// Only extents on which this volume has blocks.
        #[serde(default)]
        volume: Option<String>,
    },
    /// How far the move of extents is. Answered when it has ended, or after a moment.
    MoveStatus,
    /// Ends the move of extents. What was moved stays where it is.
    StopMove,
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
    /// Whether everything is all right. Answered by [`Outcome::Status`].
    Status,
    /// What was read, written and waited for. Answered by [`Outcome::Io`].
    Io,
    /// The blocks in which `new` differs from `old`, or those that `new` has. Answered by [`Outcome::Diff`], a page at a time; `from`
    /// is where the page before says that this one begins.
    Diff {
        old: Option<String>,
        new: String,
        #[serde(default)]
        from: Option<DiffPlace>,
    },
    /// The bytes of these blocks of a volume that is at a point. Answered by [`Outcome::Data`]; refused if it is not at the point, or
    /// not as a list of changes names it, when they were read.
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
    /// Begins to receive volumes or what changed of them, or goes on with it. Answered by [`Outcome::Receiving`].
    Receive(Receive),
    /// Writes what was received: nothing that is visible.
    ReceiveParts {
        by: Attempt,
        parts: Vec<Part>,
    },
    /// All that was received is durable afterwards: so many frames of the stream, up to this mark. It goes on there.
    ReceiveMark {
        by: Attempt,
        frames: u64,
        mark: Mark,
    },
    /// All was received and is right: makes it visible, in one step. A target that is in use or was written to is refused.
    Publish {
        by: Attempt,
    },
    /// Gives up what was received for a target, and for the others of the same stream.
    AbortReceive {
        target: String,
    },
    /// What is being received; answered by [`Outcome::Receives`].
    Receives,
    /// Removes the group; with `force` its volumes first, else it must have none. The server ends after answering.
    Destroy {
        force: bool,
    },
    /// Deactivates what is not in use, closes the group and ends the server. Refused while a volume is in use.
    Stop,
    /// Ends the server of a group that has stopped after a failed write, so that another one opens the group. Devices in use
    /// stay: their requests wait for the next server. Refused while the group has not stopped.
    Clear,
    /// Ends the server, whose successor is ready, for an upgrade: answered by [`Outcome::HandsOver`]. Devices stay: their requests wait
    /// for the successor. Of the protocol's stable part. Waits for changes under way, for a limited time.
    Upgrade {
        /// The version that takes over, for the log.
        #[serde(default)]
        to: String,
    },
}

/// Whether a request looks, or changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Answered while changes go on.
    Query,
    /// Carried out alone, in the order in which they come.
    Change,
}

/// What the server must know of a request besides what it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    pub kind: Kind,
    /// It looks for a moment only, or changes nothing when it is made again: where no answer came that is done.
    pub is_look: bool,
    /// It may change what is kept in the archive of metadata.
    pub is_archived: bool,
    /// It makes sense for a group that is on its way to another host.
    pub is_for_exported: bool,
    /// The group may be fuller after it.
    pub takes_space: bool,
    /// The server ends when it is done.
    pub ends_server: bool,
}

impl Traits {
    const QUERY: Traits = Traits {
        kind: Kind::Query,
        is_look: false,
        is_archived: false,
        is_for_exported: true,
        takes_space: false,
        ends_server: false,
    };
    const LOOK: Traits = Traits { is_look: true, ..Traits::QUERY };
    /// A change of metadata.
    const CHANGE: Traits = Traits { kind: Kind::Change, is_archived: true, is_for_exported: false, ..Traits::QUERY };
    const TAKES_SPACE: Traits = Traits { takes_space: true, ..Traits::CHANGE };
    /// A change of devices, which the archive does not keep.
    const DEVICES: Traits = Traits { is_archived: false, ..Traits::CHANGE };
}

impl Request {
    /// Whether the group's history has it: what changes something, but for checkpoints, which many commands need on their way.
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

    /// The one list of what requests are like: a new request does not compile until it says so.
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
            | Receives => Traits::LOOK,
            // Nobody can see what they change, and to do the same again changes nothing.
            ReceiveParts { .. } | ReceiveMark { .. } => Traits { is_for_exported: false, ..Traits::LOOK },
            // The same stream again goes on.
            Receive(_) => Traits { is_look: true, takes_space: true, ..Traits::DEVICES },
            AbortReceive { .. } => Traits::DEVICES,
            // They take long, and repairing is not looking.
            Check | Repair => Traits::QUERY,
            Trim => Traits { is_for_exported: false, ..Traits::QUERY },
            CreateVolume { .. }
            | Publish { .. }
            | Bookmark { .. }
            | Snapshot { .. }
            | Resize { .. }
            | SetReserve { .. }
            | SetAllocatable { .. }
            | SetJournalCopies { .. }
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
            Activate { .. } | Refresh { .. } | MoveExtents { .. } | StopMove => Traits::DEVICES,
            Deactivate { .. } | MakeNodes | Checkpoint => Traits { is_for_exported: true, ..Traits::DEVICES },
            Stop | Clear | Upgrade { .. } => Traits { is_for_exported: true, ends_server: true, ..Traits::DEVICES },
        }
    }
}

/// Who is asking, as far as the server's records want to know; and what its settings say about activation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caller {
    /// The command line, for the description of archived metadata and the group's history.
    pub command: String,
    /// The same for all requests of one run of a command, also to several servers, and for no other: by this its requests are
    /// one entry of the history. Empty: each is one.
    pub id: String,
    /// Who runs the command, for the history.
    pub user: String,
    /// Its process. The server believes the kernel, and not the client.
    pub pid: u32,
    /// `--autobackup n`: no copy of the metadata is kept for the changes of this client.
    pub no_backup: bool,
    /// Which volumes may be activated for it, and how.
    pub lists: Lists,
}

/// Extents of a physical volume of the group, which is named by its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvPart {
    pub path: String,
    pub first_extent: u64,
    pub extents: u64,
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
