//! What the commands need of the world under them: devices without a server, and servers of groups. One implementation
//! talks to the real host; tests use one in memory.

use crate::failure::Failure;
use rowen_control::history::{Command, Kept};
use rowen_control::protocol::{Caller, CheckOutcome, ErrorKind, Outcome, Request};
use rowen_control::settings::{Loaded, Settings};
use rowen_control::status::{Depth, IoSeen, Survey};
use rowen_engine::format::seen::FormatSeen;
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

/// A physical volume as its label tells, without a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledPv {
    pub path: String,
    pub uuid: Option<Uuid>,
    /// Bytes; 0 when it is missing.
    pub size: u64,
    /// Bytes that a group which it joins may use.
    pub usable: u64,
    /// The group that it is a member of.
    pub group: Option<String>,
    /// The label cannot be trusted or the device is not there; why.
    pub trouble: Option<String>,
}

/// The format of a physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvFormat {
    pub path: String,
    pub format: FormatSeen,
}

/// Which end of a long text is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    First,
    Last,
}

/// A program whose words are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The file that they go to.
    pub name: String,
    /// The program and its arguments; `rowen` is this program.
    pub words: Vec<String>,
    pub limit: Duration,
    /// So many bytes of it are kept.
    pub most: usize,
    pub end: End,
}

/// What it said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    pub text: Vec<u8>,
    /// Why it is not whole.
    pub trouble: Option<String>,
}

/// How far the user agreed to lose data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    pub force: u8,
    pub yes: bool,
}

/// Why the world did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A person must agree first: the whole question, as it is printed, and what is said when the answer is no.
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

/// How a group goes on without physical volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WentOn {
    /// How many these are.
    pub missing: usize,
    /// What is said besides.
    pub warning: Option<String>,
}

/// What came of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgraded {
    /// No server runs.
    NotRunning,
    /// It can be done.
    Tried,
    /// Done. The volumes waited for so many milliseconds.
    Done { pause: Option<u64> },
}

/// A sink of [`Outcome::Progress`] and [`Outcome::Notice`].
pub type News<'a> = &'a mut dyn FnMut(Outcome);

/// Where metrics are asked for by HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    At(SocketAddr),
    /// At a socket that systemd made.
    HandedOver,
}

/// Those who ask for metrics.
pub trait Scrapes {
    /// Waits for one.
    fn wait(&mut self) -> Answer<()>;
    /// Answers all that wait.
    fn answer(&mut self, text: &str) -> Answer<()>;
}
/// Tells, each time it is called, the whole lines of events that came since, by the group's identifier. None: no more can come.
pub type Follow = Box<dyn FnMut() -> Option<Vec<(String, Vec<u8>)>> + Send>;

/// Looks at groups from another thread, as [`Backend::look`] does.
pub type Looker = Box<dyn FnMut(&[String], Depth) -> Survey + Send>;

/// A volume group that is to be made.
pub struct NewVg<'a> {
    pub name: &'a str,
    pub extent_blocks: u64,
    /// The journal is kept twice, if a copy takes at most one in so many extents of a second physical volume.
    pub second_journal: Option<u64>,
}

/// The world under the commands.
pub trait Backend {
    /// The names of all groups that any label or running server names, sorted.
    fn groups(&mut self) -> Answer<Vec<String>>;
    /// One request to the group's server, which is started when none runs. Interim outcomes go to `news`; an error
    /// outcome comes back as [`Trouble::Other`].
    fn ask(&mut self, group: &str, request: Request, news: News<'_>) -> Answer<Outcome>;
    /// Whether the group's server runs.
    fn is_running(&mut self, group: &str) -> Answer<bool>;
    /// What is seen of these groups, or of all, whatever hangs; nothing is started, changed or waited for longer than 2 s.
    fn survey(&mut self, groups: &[String]) -> Survey;
    /// The same, with what servers counted.
    fn survey_with_counters(&mut self, groups: &[String]) -> Survey;
    /// The same, as deep as it is wanted.
    fn look(&mut self, groups: &[String], depth: Depth) -> Survey;
    /// What looks in the same way, for a thread of its own.
    fn looker(&self) -> Looker;
    /// What the servers of these groups, or of all that have one, counted of requests; as with [`survey`](Self::survey) nothing is
    /// started, changed or waited for longer than 2 s.
    fn io(&mut self, groups: &[String]) -> BTreeMap<String, IoSeen>;
    /// Listens for who asks for metrics by HTTP, there: what it returns is where that is, and who asks.
    fn listen(&mut self, at: Place) -> Answer<(String, Box<dyn Scrapes>)>;
    /// Waits.
    fn pause(&mut self, time: Duration);
    /// The groups that have a server on this machine.
    fn served_groups(&mut self) -> Vec<String>;
    /// Replaces the server and the keeper of a group by this program; `check`: only tries whether that can be.
    fn upgrade(&mut self, group: &str, check: bool) -> Answer<Upgraded>;
    /// Clears away the devices of a group whose server and keeper were killed: of how many volumes. `None`: one of them lives.
    fn clear_remains(&mut self, group: &str) -> Answer<Option<usize>>;
    /// The disks of a group that has stopped are to be taken as they are.
    fn accept_disks(&mut self, group: &str) -> Answer<()>;
    /// Sees to it that servers open the group without the physical volumes that are missing now; `anyway`: also where this host has seen a
    /// newer state of it.
    fn go_on_without(&mut self, group: &str, anyway: bool) -> Answer<WentOn>;
    /// Verifies a group that nothing has open.
    fn check_closed(&mut self, group: &str, repair: bool) -> Answer<CheckOutcome>;
    fn labels(&mut self) -> Answer<Vec<LabelledPv>>;
    /// Which format each physical volume has that is found, and the paths of devices that do not answer.
    fn formats(&mut self) -> Answer<(Vec<PvFormat>, Vec<String>)>;
    /// What these programs say, in order, whatever hangs; those that found no time within `together` are left out.
    fn gather(&mut self, probes: &[Probe], together: Duration) -> Vec<Gathered>;
    /// The system directory and the run directory.
    fn directories(&mut self) -> (String, String);
    /// A new file that only this user may read.
    fn new_bundle(&mut self, path: &str) -> Answer<Option<File>>;
    /// Writes an archive of these files, each with its name.
    fn write_bundle(&mut self, file: Option<File>, path: &str, parts: Vec<(String, Vec<u8>)>) -> Answer<()>;
    /// The entries of the devices file.
    fn known(&mut self) -> Answer<Vec<(String, Uuid)>>;
    /// Adds the physical volume at `path` to them, or only looks whether that can be done.
    fn know(&mut self, path: &str, really: bool) -> Answer<()>;
    /// Removes the entry of `path`, or only looks whether there is one.
    fn forget(&mut self, path: &str, really: bool) -> Answer<()>;
    /// Returns what there is to tell besides success.
    fn pvcreate(&mut self, path: &str, consent: Consent) -> Answer<Vec<String>>;
    /// Bytes of a file that have no room yet; 0 of whatever is none.
    fn without_room(&mut self, path: &str) -> u64;
    /// Writes zeros to all of a file that has no room, and tells how far it is. Returns how many bytes that were.
    fn write_out(&mut self, path: &str, tell: &mut dyn FnMut(u64, u64)) -> Answer<u64>;
    /// Gives a physical volume of no group so many bytes of its device, or all of them.
    fn pvresize(&mut self, path: &str, bytes: Option<u64>) -> Answer<()>;
    fn pvremove(&mut self, path: &str, consent: Consent) -> Answer<Vec<String>>;
    fn vgcreate(&mut self, group: &NewVg<'_>, paths: &[String], consent: Consent) -> Answer<Vec<String>>;
    /// Block devices that are no physical volume, with their bytes; devices of volumes are left out.
    fn other_devices(&mut self) -> Answer<Vec<(String, u64)>>;
    /// The group that is meant where none is named.
    fn default_group(&mut self) -> Option<String>;
    /// The command that the client of ssh asked for, where another one runs in its place.
    fn ssh_command(&mut self) -> Option<String>;
    /// The path from the root.
    fn absolute(&mut self, path: &str) -> String;
    /// Whether something is at this path.
    fn exists(&mut self, path: &str) -> bool;
    /// The kind of filesystem on a device, if any is found.
    fn filesystem(&mut self, device: &str) -> Answer<Option<String>>;
    /// Where the device of these numbers is mounted.
    fn mounted_at(&mut self, major: u32, minor: u32) -> Option<String>;
    /// Runs a program on the command's own streams, to its end; its exit code.
    fn run_tool(&mut self, words: &[&str]) -> Answer<i32>;
    /// Waits until no other command has the turn in this group, whose server runs, and takes it until the value is dropped.
    fn turn(&mut self, group: &str) -> Answer<Option<File>>;
    /// A new empty directory that nobody else can enter.
    fn temporary_directory(&mut self) -> Answer<String>;
    /// Removes such a directory, if it is empty.
    fn remove_directory(&mut self, path: &str);
    /// Serves the group until told to stop; the exit code.
    fn serve(&mut self, group: &str) -> u8;
    /// Who runs this command: the user, the process, and an identifier that no other run has.
    fn caller(&mut self) -> Caller;
    /// Writes down what a command did to a group without its server. The time and the host are filled in.
    fn note(&mut self, line: Command) -> Answer<()>;
    /// What was written down of all groups.
    fn history(&mut self) -> Vec<Kept>;
    /// What happens to groups from now on.
    fn follow(&mut self) -> Follow;
    /// Says in whose name the group's servers are asked from now on.
    fn introduce(&mut self, caller: Caller);
    /// What the files of settings say. The error is LVM's sentences.
    fn settings(&mut self) -> std::result::Result<Loaded, String>;
    /// Keeps a copy of the group's metadata, at `path` or, as `settings` say, in the usual place.
    fn keep_copy(&mut self, group: &str, path: Option<&str>, text: &str, settings: &Settings) -> Answer<()>;
    /// The usual place of the newest copy of a group's metadata.
    fn backup_path(&mut self, group: &str) -> String;
    /// The directory of the older ones.
    fn archive_dir(&mut self) -> String;
    /// All copies that are there, the newest last.
    fn copies(&mut self, group: &str) -> Answer<Vec<String>>;
    /// Makes a file of this text.
    fn write_text(&mut self, path: &str, text: &str) -> Answer<()>;
    /// Puts a file of this text at `path`, over the one that is there, which any user may read; it is whole at every moment.
    fn publish(&mut self, path: &str, text: &str) -> Answer<()>;
    fn read_text(&mut self, path: &str) -> Answer<String>;
    fn host_name(&mut self) -> String;
    /// What udev should know about the device at `path`.
    fn udev_properties(&mut self, path: &str) -> Vec<(&'static str, String)>;
    /// Seconds since 1970.
    fn now(&mut self) -> u64;
    fn fresh_uuid(&mut self) -> Uuid;
}
