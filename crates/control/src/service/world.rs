//! The layer below the service: block devices of volumes, the group's disks, and files of the group.
//!
//! All calls are synchronous, and may wait. The server implements them with the kernel, tests in memory.

use super::failure::{Failure, Result, sentence};
use crate::history::{Command, What};
use crate::protocol::{ErrorKind, IoCounts};
use rowen_engine::disk::{DiskError, PvIndex};
use rowen_engine::group::{GroupInfo, Volume, VolumeInfo};
use rowen_engine::runtime::Task;
use rowen_engine::units::{Uuid, VolumeId};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What somebody wants to be moved. Physical volumes and volumes are named by what stays theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveNote {
    pub group: [u8; 16],
    pub from: [u8; 16],
    /// The first and how many, of each run; all if there are none.
    pub extents: Vec<(u64, u64)>,
    /// Physical volumes, the first extent of each run there, and how many.
    pub to: Vec<([u8; 16], u64, u64)>,
    pub volume: Option<[u8; 16]>,
    /// Extents that were to be moved when it began; 0: that is not known yet.
    pub total: u64,
}

/// Who is in a group, and which of these it goes on without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub group: [u8; 16],
    /// Of the newest superblock.
    pub sequence: u64,
    /// The number of the history that it has without some; 0: none is out.
    pub lineage: u64,
    pub members: Vec<[u8; 16]>,
    /// Those of them that are out.
    pub out: Vec<[u8; 16]>,
}

impl From<&GroupInfo> for Membership {
    fn from(info: &GroupInfo) -> Membership {
        Membership {
            group: info.uuid.0,
            sequence: info.sequence,
            lineage: info.lineage,
            members: info.pvs.iter().map(|pv| pv.uuid.0).collect(),
            out: info.pvs.iter().filter(|pv| pv.is_missing).map(|pv| pv.uuid.0).collect(),
        }
    }
}

/// Everything under the service.
pub struct World {
    pub devices: Arc<dyn Devices>,
    pub members: Arc<dyn Members>,
    pub notes: Arc<dyn Notes>,
    // Last, so that it goes last: everything above runs on it.
    pub executor: Arc<dyn Executor>,
}

/// Runs the engine's asynchronous work.
pub trait Executor: Send + Sync {
    /// Runs `work` to its end. Never called by such work.
    fn complete(&self, work: Task) {
        self.complete_and_look(work, &mut || {});
    }

    /// The same; now and then meanwhile, if it takes long, the caller looks at how far it is.
    fn complete_and_look(&self, work: Task, look: &mut dyn FnMut());
}

/// The block device of an active volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The volume's name.
    pub name: String,
    pub major: u32,
    pub minor: u32,
    /// Nobody can write to it, whatever the volume's permission.
    pub read_only: bool,
}

/// What uses a device, as far as sentences tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Filesystem,
    Device,
    /// A process that has it open, swap, or what nobody can name.
    Other,
}

/// Why a device was not made, changed or removed, which left everything as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    pub kind: ErrorKind,
    /// What uses it, where that is why.
    pub user: Option<User>,
    /// No whole sentence: it begins with a small letter and has no full stop.
    pub why: String,
}

/// What came of something asked of devices.
pub type Done<T> = std::result::Result<T, DeviceError>;

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Failure {
        Failure::new(error.kind, sentence(&error.why))
    }
}

/// Filesystems held still. Dropped, they go on some time later.
pub trait HeldStill: Send {
    /// They go on; returns when they do.
    fn thaw(self: Box<Self>);
}

/// The block devices of the group's active volumes.
pub trait Devices: Send + Sync {
    /// All active volumes, by name.
    fn active(&self) -> Vec<Node>;
    /// An active volume's device.
    fn find(&self, name: &str) -> Option<Node>;
    /// Makes a device and its names: all is there when this returns, or nothing.
    fn activate(&self, volume: Arc<Volume>, info: &VolumeInfo, read_only: bool) -> Done<Node>;
    /// Removes a device and its names; refused while anything uses it. `unused`: whether it is open was looked up just now
    /// ([`open`](Self::open)), so that who removes many does not look through all processes of the host for each.
    fn deactivate(&self, name: &str, unused: bool) -> Done<()>;
    /// Gives a device another name; it stays usable, also while it is open.
    fn rename(&self, from: &str, to: &str) -> Done<()>;
    /// The volume's size has changed: the device follows.
    fn resized(&self, name: &str) -> Done<()>;
    fn set_read_only(&self, name: &str, read_only: bool) -> Done<()>;
    /// Writes out and forgets what the kernel has cached of the device.
    fn flush_cache(&self, name: &str) -> Done<()>;
    /// Writes out what is cached of these devices, and holds the filesystems on them still. Volumes that are not active are
    /// nothing to hold.
    fn freeze(&self, names: &[String]) -> Done<Box<dyn HeldStill>>;
    /// Of these devices, which are mounted or open: for each one whether. All in one look, which touches none of them.
    fn open(&self, nodes: &[Node]) -> Vec<bool>;
    /// What uses the device at this moment.
    fn user(&self, node: &Node) -> Done<Option<User>>;
    /// The same of what stays: a file that is closed soon is none.
    fn lasting_user(&self, node: &Node) -> Done<Option<User>>;
    /// Who holds the device exclusively.
    fn claimant(&self, node: &Node) -> Done<Option<User>>;
    /// Makes the names of all active volumes as those of `group`, which may be this one (whose names are then all there) or
    /// what it is about to be called. All or none.
    fn make_names_of(&self, group: &str) -> Done<()>;
    /// Takes back what [`make_names_of`](Self::make_names_of) made for another group.
    fn remove_names_of(&self, group: &str) -> Done<()>;
    /// What was counted of each volume that was active since the group was opened.
    fn io(&self) -> Vec<(VolumeId, IoCounts)>;
    /// Drops the counters of all but these volumes.
    fn keep_io(&self, volumes: &BTreeSet<VolumeId>);
    /// The group is called `group` from now on. The service can only end afterwards. `reached` is told of each step.
    fn move_to(&self, group: &str, reached: fn(&str)) -> Done<()>;
}

/// A device that is to join the group, checked and held.
pub trait Candidate {
    fn path(&self) -> &Path;
    /// Its identifier: the one on its label, or a fresh one.
    fn uuid(&self) -> Uuid;
    /// Makes it the group's last disk.
    fn join(self: Box<Self>) -> Result<()>;
}

/// How a disk has behaved since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Requests that failed.
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    /// Requests are under way, and none has been answered for so long.
    pub silent: Option<Duration>,
}

/// The disks of the group's physical volumes.
pub trait Members: Send + Sync {
    /// The path by which a disk was opened.
    fn path(&self, pv: PvIndex) -> Option<PathBuf>;
    /// Whether both paths lead to one device.
    fn is_same(&self, one: &Path, other: &Path) -> bool;
    /// What went wrong with a disk since it was opened, and whether it answers.
    fn faults(&self, pv: PvIndex) -> Faults;
    /// The first of each range of requests that it failed, since this was asked last.
    fn new_failures(&self, pv: PvIndex) -> Vec<DiskError>;
    /// What was counted of a disk since it was opened.
    fn io(&self, pv: PvIndex) -> IoCounts;
    /// Looks again how large a disk is, and tells.
    fn rescan(&self, pv: PvIndex) -> Result<u64>;
    /// Whether the device lies on a volume of this group, at whatever distance.
    fn lies_on_group(&self, path: &Path) -> Result<bool>;
    /// All checks of a device that is to join.
    fn check(&self, path: &Path) -> Result<Box<dyn Candidate>>;
    /// Lets go of the disk that joined last.
    fn pop(&self);
    /// Which physical volume is at this path.
    fn uuid_at(&self, path: &Path) -> Result<Uuid>;
    /// A disk is there again at a place of the group where there was none; its label is not read.
    fn restore(&self, pv: PvIndex, path: &Path) -> Result<()>;
    /// Lets go of it again.
    fn lose(&self, pv: PvIndex);
    /// Whether there is a group of this name.
    fn is_group(&self, name: &str) -> Result<bool>;
}

/// A note that the group is being renamed (RN1, RN2).
pub trait RenamingNote {
    /// All is done, or undone.
    fn end(self: Box<Self>);
    /// Something could not be done, and who comes next is to try again.
    fn leave(self: Box<Self>);
}

/// What a line of the log is about, besides its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'a> {
    /// A volume, by its name.
    Volume(&'a str),
    /// A physical volume, by its path.
    Pv(&'a str),
}

/// What is written down next to the group, and who is told.
pub trait Notes: Send + Sync {
    /// How long the group has been open.
    fn open_for(&self) -> Duration;
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// How the group is in a sentence, for whoever looks after the server.
    fn state(&self, state: &str);
    /// A line for the log.
    fn log(&self, line: &str);
    /// The same about one volume or physical volume, by which whoever reads the log finds it.
    fn log_about(&self, about: About<'_>, line: &str) {
        let _ = about;
        self.log(line);
    }
    /// Something happened, perhaps to one volume or physical volume: a line for the log, and one for the group's events.
    fn event(&self, what: What, about: Option<About<'_>>, line: &str);
    /// What a request did, for the group's history. The time and the host are not filled in yet.
    fn done(&self, line: Command);
    /// `command` changed the group: its metadata is archived.
    fn changed(&self, command: &str);
    /// Why metadata cannot be archived; each reason is told once.
    fn trouble(&self) -> Option<String>;
    /// Runs a program, which nobody waits for.
    fn run(&self, program: &str, words: Vec<String>);
    /// Where the physical volumes are, for a successor (H9).
    fn members(&self, paths: &[PathBuf]) -> io::Result<()>;
    /// Who is in the group, for whoever is asked to open it without some (NW1). It is on the disk when this returns.
    fn membership(&self, membership: &Membership) -> io::Result<()>;
    /// What is about to join the group (H11), until the value goes.
    fn joining(&self, paths: &[PathBuf]) -> io::Result<Box<dyn Any>>;
    /// What is being moved, for a successor (PM9); none: nothing is.
    fn moving(&self, note: Option<&MoveNote>) -> io::Result<()>;
    /// What was noted of a move.
    fn noted_move(&self) -> Option<MoveNote>;
    /// The group is about to be renamed (RN1).
    fn renaming(&self, to: &str, group: Uuid) -> io::Result<Box<dyn RenamingNote>>;
    /// The service was asked to end: who runs it looks at [`Ending`](super::ending::Ending).
    fn ending(&self);
}
