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

/// The request of a move. Physical volumes and volumes are named by identifiers that never change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveNote {
    pub group: [u8; 16],
    pub from: [u8; 16],
    /// The first extent and the number of extents of each run. Empty: all.
    pub extents: Vec<(u64, u64)>,
    /// Physical volumes, each with the first extent and the number of extents of a run.
    pub to: Vec<([u8; 16], u64, u64)>,
    pub volume: Option<[u8; 16]>,
    /// The number of extents to move at the beginning. 0: not known yet.
    pub total: u64,
}

/// The members of a group, and those of them that it goes on without.
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
pub struct Platform {
    pub devices: Arc<dyn Devices>,
    pub members: Arc<dyn Members>,
    pub notes: Arc<dyn Notes>,
    // The last field, so that it is dropped last: everything above runs on it.
    pub executor: Arc<dyn Executor>,
}

/// Runs the engine's asynchronous work.
pub trait Executor: Send + Sync {
    /// Runs `work` to its end. Never called by such work.
    fn complete(&self, work: Task) {
        self.complete_polling(work, &mut || {});
    }

    /// The same. If it takes long, `poll` is called from time to time to check the progress.
    fn complete_polling(&self, work: Task, poll: &mut dyn FnMut());
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

/// The user of a device, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Filesystem,
    Device,
    /// A process that has it open, swap, or an unknown user.
    Other,
}

/// Why a device was not created, changed or removed. The failure changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    pub kind: ErrorKind,
    /// The user of the device, if that is the reason.
    pub user: Option<User>,
    /// No whole sentence: it begins with a small letter and has no full stop.
    pub why: String,
}

/// The result of a request to devices.
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

/// Frozen filesystems. If this is dropped, they are thawed some time later.
pub trait HeldStill: Send {
    /// Thaws them, and returns when that is done.
    fn thaw(self: Box<Self>);
}

/// The block devices of the group's active volumes.
pub trait Devices: Send + Sync {
    /// All active volumes, by name.
    fn active(&self) -> Vec<Node>;
    /// An active volume's device.
    fn find(&self, name: &str) -> Option<Node>;
    /// Creates a device and its names. When this returns, all of them exist or none.
    fn activate(&self, volume: Arc<Volume>, info: &VolumeInfo, read_only: bool) -> Done<Node>;
    /// Removes a device and its names. It is refused while anything uses the device. `unused`: the caller has just
    /// found that it is not open ([`open`](Self::open)). So the removal of many devices does not search all processes
    /// of the host for each.
    fn deactivate(&self, name: &str, unused: bool) -> Done<()>;
    /// Renames a device, which stays usable and may be open.
    fn rename(&self, from: &str, to: &str) -> Done<()>;
    /// The volume's size has changed: the device follows.
    fn resized(&self, name: &str) -> Done<()>;
    fn set_read_only(&self, name: &str, read_only: bool) -> Done<()>;
    /// Flushes and drops the kernel's cache of the device.
    fn flush_cache(&self, name: &str) -> Done<()>;
    /// Flushes the caches of these devices and freezes their filesystems. Inactive volumes are skipped.
    fn freeze(&self, names: &[String]) -> Done<Box<dyn HeldStill>>;
    /// For each of these devices, whether it is mounted or open. One search finds all, and opens none of them.
    fn open(&self, nodes: &[Node]) -> Vec<bool>;
    /// What uses the device at this moment.
    fn user(&self, node: &Node) -> Done<Option<User>>;
    /// The same for lasting users. A process that closes the device soon does not count.
    fn lasting_user(&self, node: &Node) -> Done<Option<User>>;
    /// The exclusive holder of the device.
    fn claimant(&self, node: &Node) -> Done<Option<User>>;
    /// Creates the names of all active volumes for the group name `group`: the present name or the next one. Creates
    /// all or none.
    fn make_names_of(&self, group: &str) -> Done<()>;
    /// Removes the names that [`make_names_of`](Self::make_names_of) created for another group name.
    fn remove_names_of(&self, group: &str) -> Done<()>;
    /// What was counted of each volume that was active since the group was opened.
    fn io(&self) -> Vec<(VolumeId, IoCounts)>;
    /// Bytes of memory that requests of all volumes use now, and may use at most.
    fn request_memory(&self) -> (u64, u64);
    /// Changes how much memory requests may use, in bytes.
    fn set_request_memory(&self, bytes: u64);
    /// Drops the counters of all but these volumes.
    fn keep_io(&self, volumes: &BTreeSet<VolumeId>);
    /// Changes the group's name to `group`. Afterwards the service can only end. `reached` is called at each step.
    fn move_to(&self, group: &str, reached: fn(&str)) -> Done<()>;
}

/// A device that joins the group, checked and locked.
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
    /// How long requests have been under way without any answer.
    pub silent: Option<Duration>,
    /// It is a file that someone made shorter.
    pub is_cut: bool,
}

/// The disks of the group's physical volumes.
pub trait Members: Send + Sync {
    /// The path by which a disk was opened.
    fn path(&self, pv: PvIndex) -> Option<PathBuf>;
    /// Whether both paths lead to one device.
    fn is_same(&self, one: &Path, other: &Path) -> bool;
    /// The failures of a disk since it was opened, and whether it answers.
    fn faults(&self, pv: PvIndex) -> Faults;
    /// The first failed request of each range since the last call.
    fn new_failures(&self, pv: PvIndex) -> Vec<DiskError>;
    /// What was counted of a disk since it was opened.
    fn io(&self, pv: PvIndex) -> IoCounts;
    /// Reads the size of a disk again and returns it.
    fn rescan(&self, pv: PvIndex) -> Result<u64>;
    /// Whether the device is on a volume of this group, directly or indirectly.
    fn lies_on_group(&self, path: &Path) -> Result<bool>;
    /// All checks of a device that joins.
    fn check(&self, path: &Path) -> Result<Box<dyn Candidate>>;
    /// Closes the disk that joined last.
    fn pop(&self);
    /// Which physical volume is at this path.
    fn uuid_at(&self, path: &Path) -> Result<Uuid>;
    /// Opens a disk for a missing physical volume again. Its label is not read.
    fn restore(&self, pv: PvIndex, path: &Path) -> Result<()>;
    /// Closes it again.
    fn lose(&self, pv: PvIndex);
    /// Whether there is a group of this name.
    fn is_group(&self, name: &str) -> Result<bool>;
}

/// A note that the group is being renamed (RN1, RN2).
pub trait RenamingNote {
    /// The rename is complete or undone.
    fn end(self: Box<Self>);
    /// A step failed, and the next server must try again.
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

/// The group's records outside its disks: logs, history, notes for successors.
pub trait Notes: Send + Sync {
    /// How long the group has been open.
    fn open_for(&self) -> Duration;
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// The group's state in a sentence, for the service manager.
    fn state(&self, state: &str);
    /// A line for the log.
    fn log(&self, line: &str);
    /// The same about one volume or physical volume, with a log field by which it can be found.
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
    /// Why metadata cannot be archived. Each reason is returned once.
    fn trouble(&self) -> Option<String>;
    /// Runs a program without waiting for it.
    fn run(&self, program: &str, words: Vec<String>);
    /// Where the physical volumes are, for a successor (H9).
    fn members(&self, paths: &[PathBuf]) -> io::Result<()>;
    /// A physical volume that was out counts again: no successor leaves it out (LD1).
    fn disk_is_back(&self, _: Uuid) {}
    /// Records the members of the group, for a later opening without some of them (NW1). It is on the disk when this returns.
    fn membership(&self, membership: &Membership) -> io::Result<()>;
    /// The devices that are joining the group (H11), until the value is dropped.
    fn joining(&self, paths: &[PathBuf]) -> io::Result<Box<dyn Any>>;
    /// The running move, for a successor (PM9). None: no move.
    fn moving(&self, note: Option<&MoveNote>) -> io::Result<()>;
    /// The noted move.
    fn noted_move(&self) -> Option<MoveNote>;
    /// Physical volumes that are missing and are not waited for any more, for a successor (RF1).
    fn given_up(&self, pvs: &[[u8; 16]]) -> io::Result<()>;
    /// Those that were noted.
    fn noted_given_up(&self) -> Vec<[u8; 16]>;
    /// The group is about to be renamed (RN1).
    fn renaming(&self, to: &str, group: Uuid) -> io::Result<Box<dyn RenamingNote>>;
    /// The service was asked to end: the caller checks [`Ending`](super::ending::Ending).
    fn ending(&self);
}
