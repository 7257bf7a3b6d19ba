//! The interface between the commands and the host: devices without a server, and the servers of groups. One
//! implementation uses the real host; tests use one in memory.

use crate::failure::Failure;
use rowen_control::history::{Command, Kept};
use rowen_control::protocol::{Caller, CheckOutcome, ErrorKind, Outcome, Request};
use rowen_control::settings::{Loaded, Settings};
use rowen_control::status::{Depth, IoSeen, Survey};
use rowen_engine::format::features::FormatInfo;
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

/// A physical volume as its label describes it, without a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledPv {
    pub path: String,
    pub uuid: Option<Uuid>,
    /// Bytes; 0 when it is missing.
    pub size: u64,
    /// Bytes that a group can use after it has joined.
    pub usable: u64,
    /// The group that it is a member of.
    pub group: Option<String>,
    /// Why the label cannot be trusted, or that the device is missing.
    pub trouble: Option<String>,
}

/// The format of a physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvFormat {
    pub path: String,
    pub format: FormatInfo,
}

/// Which end of a long text is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    First,
    Last,
}

/// A program whose output is collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The file that they go to.
    pub name: String,
    /// The program and its arguments; `rowen` is this program.
    pub words: Vec<String>,
    pub limit: Duration,
    /// The largest number of bytes that are kept.
    pub most: usize,
    pub end: End,
}

/// What it said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    pub text: Vec<u8>,
    /// Why the output is incomplete.
    pub trouble: Option<String>,
}

/// How far the user agreed to lose data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    pub force: u8,
    pub yes: bool,
}

/// Why a request to the host failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The user must confirm first: the whole question as it is printed, and the message after "no".
    Confirm {
        question: String,
        refused: String,
    },
    Other {
        kind: ErrorKind,
        message: String,
    },
}

impl Trouble {
    pub fn other(kind: ErrorKind, message: impl Into<String>) -> Trouble {
        Trouble::Other { kind, message: message.into() }
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Confirm { question, refused } => Failure::failed(format!("{question}\n{refused}")),
            Trouble::Other { message, .. } => Failure::failed(message),
        }
    }
}

pub type Answer<T> = Result<T, Trouble>;

/// A program of a policy.
#[derive(Clone, Debug)]
pub struct Hook {
    pub program: String,
    /// For its environment.
    pub variables: Vec<(String, String)>,
    pub limit: Duration,
}

/// A program that runs on request.
pub trait Pending {
    /// Runs it to its end.
    fn run(self: Box<Self>) -> Answer<()>;
}

/// How a group goes on without physical volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WentOn {
    /// How many these are.
    pub missing: usize,
    /// What is said besides.
    pub warnings: Vec<String>,
}

/// The result of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgraded {
    /// No server runs.
    NotRunning,
    /// A check found that the upgrade is possible.
    Tried,
    /// Done. The volumes waited for this many milliseconds.
    Done { pause: Option<u64> },
}

/// Where a command of Rowen's runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    Here,
    /// On another host, through a program that runs a command line there: its words, and the host.
    There {
        ssh: Vec<String>,
        host: String,
    },
}

/// What a command of Rowen's said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub code: u8,
    pub out: String,
    pub err: String,
}

/// A stream from one command into another one.
#[derive(Clone, Debug)]
pub struct Pipe<'a> {
    pub from: (&'a Where, &'a [String]),
    pub to: (&'a Where, &'a [String]),
    /// Bytes that pass in a second, at most.
    pub limit: Option<u64>,
}

/// How a stream passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piped {
    pub bytes: u64,
    /// The reader of the stream was gone before its end.
    pub is_cut: bool,
    pub sent: Said,
    pub received: Said,
}

/// Receives [`Outcome::Progress`] and [`Outcome::Notice`].
pub type News<'a> = &'a mut dyn FnMut(Outcome);

/// Where the HTTP server for metrics listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    At(SocketAddr),
    /// At a socket that systemd made.
    HandedOver,
}

/// HTTP clients that request metrics.
pub trait Scrapes {
    /// Waits for a request.
    fn wait(&mut self) -> Answer<()>;
    /// Answers all waiting requests.
    fn answer(&mut self, text: &str) -> Answer<()>;
}
/// Each call returns the complete lines of events since the last call, by the group's identifier. None: the stream has
/// ended.
pub type Follow = Box<dyn FnMut() -> Option<Vec<(String, Vec<u8>)>> + Send>;

/// Looks at groups from another thread, as [`Backend::survey_groups`] does.
pub type Surveyor = Box<dyn FnMut(&[String], Depth) -> Survey + Send>;

/// Asks a group's server from another thread, as [`Backend::ask`] does.
pub type Asker = Box<dyn FnMut(Request, News<'_>) -> Answer<Outcome> + Send>;

/// What a server said before its answer, to be shown by another thread, and the answer.
pub type Answered = (Vec<Outcome>, Answer<Outcome>);

/// Asks, and keeps what is to be shown.
pub fn answered(asker: &mut Asker, request: Request) -> Answered {
    let mut shown = Vec::new();
    let answer = asker(request, &mut |outcome| shown.push(outcome));
    (shown, answer)
}

/// A volume group that is to be created.
pub struct NewVg<'a> {
    pub name: &'a str,
    pub extent_blocks: u64,
    /// The journal has a second copy, if this copy takes at most one in this many extents of a second physical volume.
    pub second_journal: Option<u64>,
}

/// The host as the commands use it.
pub trait Backend {
    /// The names of all groups that any label or running server names, sorted.
    fn groups(&mut self) -> Answer<Vec<String>>;
    /// One request to the group's server, which is started when none runs. Interim outcomes go to `news`; an error
    /// outcome comes back as [`Trouble::Other`].
    fn ask(&mut self, group: &str, request: Request, news: News<'_>) -> Answer<Outcome>;
    /// A function that asks the group's server from another thread. None: there can be no such thread.
    fn asker(&mut self, _group: &str) -> Option<Asker> {
        None
    }
    /// Whether the group's server runs.
    fn is_running(&mut self, group: &str) -> Answer<bool>;
    /// The state of these groups, or of all. Nothing is started or changed. It takes at most 2 s even if a process or a
    /// device hangs.
    fn survey(&mut self, groups: &[String]) -> Survey;
    /// The same, with the counters of servers.
    fn survey_with_counters(&mut self, groups: &[String]) -> Survey;
    /// The same, with as many details as `depth` asks for.
    fn survey_groups(&mut self, groups: &[String], depth: Depth) -> Survey;
    /// A function that does the same in another thread.
    fn surveyor(&self) -> Surveyor;
    /// The request counters of the servers of these groups, or of all served groups. The limits are those of
    /// [`survey`](Self::survey).
    fn io(&mut self, groups: &[String]) -> BTreeMap<String, IoSeen>;
    /// Listens for HTTP requests for metrics. Returns the address and the source of requests.
    fn listen(&mut self, at: Place) -> Answer<(String, Box<dyn Scrapes>)>;
    /// Waits.
    fn pause(&mut self, time: Duration);
    /// The groups that have a server on this machine.
    fn served_groups(&mut self) -> Vec<String>;
    /// Replaces the server and the keeper of a group by this program. `check`: only tests whether that is possible.
    fn upgrade(&mut self, group: &str, check: bool) -> Answer<Upgraded>;
    /// Removes the devices of a group whose server and keeper were killed. Returns the number of volumes. `None`: one
    /// of the processes is alive.
    fn clear_remains(&mut self, group: &str) -> Answer<Option<usize>>;
    /// Accepts the disks of a stopped group in their present state.
    fn accept_disks(&mut self, group: &str) -> Answer<()>;
    /// Whether the physical volume at this path was made smaller while its group needed it.
    fn was_cut(&mut self, path: &str) -> bool;
    /// Lets servers open the group without the physical volumes that are missing now. `anyway`: also if this host has seen a
    /// newer state of it.
    fn go_on_without(&mut self, group: &str, anyway: bool) -> Answer<WentOn>;
    /// Verifies a group that no process has open. `progress` is called with the metadata nodes that were read, and an
    /// upper bound of them.
    fn check_closed(&mut self, group: &str, repair: bool, progress: &mut dyn FnMut(u64, u64)) -> Answer<CheckOutcome>;
    fn labels(&mut self) -> Answer<Vec<LabelledPv>>;
    /// The format of each physical volume that is found, and the paths of devices that do not answer.
    fn formats(&mut self) -> Answer<(Vec<PvFormat>, Vec<String>)>;
    /// The output of these programs, in order. A program that hangs is ended. Programs that do not run within
    /// `together` are left out.
    fn gather(&mut self, probes: &[Probe], together: Duration) -> Vec<Gathered>;
    /// The system directory and the run directory.
    fn directories(&mut self) -> (String, String);
    /// A new file that only this user may read.
    fn new_bundle(&mut self, path: &str) -> Answer<Option<File>>;
    /// Writes an archive of these files, each with its name.
    fn write_bundle(&mut self, file: Option<File>, path: &str, parts: Vec<(String, Vec<u8>)>) -> Answer<()>;
    /// The entries of the devices file.
    fn known(&mut self) -> Answer<Vec<(String, Uuid)>>;
    /// Adds the physical volume at `path` to the devices file, or only checks whether that is possible.
    fn know(&mut self, path: &str, really: bool) -> Answer<()>;
    /// Removes the entry of `path`, or only checks whether there is one.
    fn forget(&mut self, path: &str, really: bool) -> Answer<()>;
    /// Returns the messages for the user besides success.
    fn pvcreate(&mut self, path: &str, consent: Consent) -> Answer<Vec<String>>;
    /// Bytes of a file that its filesystem has not allocated; 0 for anything that is no file.
    fn without_room(&mut self, path: &str) -> u64;
    /// Writes zeros to all holes of a file, and reports progress. Returns the number of bytes.
    fn write_out(&mut self, path: &str, tell: &mut dyn FnMut(u64, u64)) -> Answer<u64>;
    /// Resizes a physical volume of no group to this many bytes, or to the size of its device.
    fn pvresize(&mut self, path: &str, bytes: Option<u64>) -> Answer<()>;
    fn pvremove(&mut self, path: &str, consent: Consent) -> Answer<Vec<String>>;
    fn vgcreate(&mut self, group: &NewVg<'_>, paths: &[String], consent: Consent) -> Answer<Vec<String>>;
    /// Block devices that are no physical volumes, with their sizes in bytes. Devices of volumes are left out.
    fn other_devices(&mut self) -> Answer<Vec<(String, u64)>>;
    /// The group to use if the command line names none.
    fn default_group(&mut self) -> Option<String>;
    /// The command that the ssh client requested, if sshd runs another in its place.
    fn ssh_command(&mut self) -> Option<String>;
    /// Runs a command of Rowen's, here or on another host, which is read by no shell in between as anything but words.
    fn rowen(&mut self, at: &Where, words: &[String]) -> Answer<Said>;
    /// Runs a program of a policy to its end.
    fn hook(&mut self, hook: &Hook) -> Answer<()>;
    /// Has one run when the value's `run` is called, or when this process has ended.
    fn later(&mut self, hook: Hook) -> Answer<Box<dyn Pending>>;
    /// Runs two, of which the second one reads what the first one writes. `tell` gets the bytes that have passed.
    fn pass(&mut self, pipe: &Pipe<'_>, tell: &mut dyn FnMut(u64)) -> Answer<Piped>;
    /// A lock for as long as the value is kept. Refused at once while another process has it.
    fn only_one(&mut self, name: &str) -> Answer<Option<File>>;
    /// The path from the root.
    fn absolute(&mut self, path: &str) -> String;
    /// Whether something is at this path.
    fn exists(&mut self, path: &str) -> bool;
    /// The kind of filesystem on a device, if any is found.
    fn filesystem(&mut self, device: &str) -> Answer<Option<String>>;
    /// Where the device with these numbers is mounted.
    fn mounted_at(&mut self, major: u32, minor: u32) -> Option<String>;
    /// Runs a program on the command's own streams and waits for it. Returns its exit code.
    fn run_tool(&mut self, words: &[&str]) -> Answer<i32>;
    /// Takes the group's lock for commands, and holds it until the value is dropped. Waits while another command holds
    /// it. The group's server runs.
    fn turn(&mut self, group: &str) -> Answer<Option<File>>;
    /// A new empty directory that no other user can enter.
    fn temporary_directory(&mut self) -> Answer<String>;
    /// Removes such a directory, if it is empty.
    fn remove_directory(&mut self, path: &str);
    /// Serves the group until a request to stop. Returns the exit code.
    fn serve(&mut self, group: &str) -> u8;
    /// The caller of this command: the user, the process, and an identifier that is unique to this run.
    fn caller(&mut self) -> Caller;
    /// Records in the history what a command did to a group without its server. The time and the host are filled in.
    fn note(&mut self, line: Command) -> Answer<()>;
    /// The recorded history of all groups.
    fn history(&mut self) -> Vec<Kept>;
    /// Follows the events of groups from now on.
    fn follow(&mut self) -> Follow;
    /// Sets the caller of all later requests to servers. `only_shows`: they are waited for a limited time.
    fn introduce(&mut self, caller: Caller, only_shows: bool);
    /// The settings of the files. The error has LVM's messages.
    fn settings(&mut self) -> std::result::Result<Loaded, String>;
    /// Keeps a copy of the group's metadata, at `path` or, as `settings` say, in the usual place.
    fn keep_copy(&mut self, group: &str, path: Option<&str>, text: &str, settings: &Settings) -> Answer<()>;
    /// The usual place of the newest copy of a group's metadata.
    fn backup_path(&mut self, group: &str) -> String;
    /// The directory of the older ones.
    fn archive_dir(&mut self) -> String;
    /// All existing copies, the newest last.
    fn copies(&mut self, group: &str) -> Answer<Vec<String>>;
    /// Creates a file with this text.
    fn write_text(&mut self, path: &str, text: &str) -> Answer<()>;
    /// Replaces the file at `path` by this text, atomically. All users can read the file.
    fn publish(&mut self, path: &str, text: &str) -> Answer<()>;
    fn read_text(&mut self, path: &str) -> Answer<String>;
    fn host_name(&mut self) -> String;
    /// The udev properties of the device at `path`.
    fn udev_properties(&mut self, path: &str) -> Vec<(&'static str, String)>;
    /// Seconds since 1970.
    fn now(&mut self) -> u64;
    fn fresh_uuid(&mut self) -> Uuid;
}
