//! The observed state of a host's groups.

use crate::protocol::{GroupReport, IoReport, StatsReport, StatusReport};

/// A host's groups, and what else was noticed.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    pub groups: Vec<Seen>,
    /// Missing physical volumes of the devices file that belong to no known group.
    pub lost: Vec<LostPv>,
    /// Devices that do not answer.
    pub silent_devices: Vec<String>,
    /// What could not be observed, one sentence each.
    pub troubles: Vec<String>,
}

/// A physical volume that this host knew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPv {
    pub path: String,
    pub uuid: String,
}

/// The observed state of one group.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub name: String,
    pub server: ServerSeen,
    pub keeper: Option<KeeperSeen>,
    pub members: MembersSeen,
    /// The number of volumes with a block device.
    pub devices: u64,
    /// The number of filesystems that are frozen for a snapshot.
    pub frozen: u64,
    /// Where the server's log is.
    pub log: String,
    /// Why the last server that failed to open the group did. It may be over.
    pub last_failure: Option<String>,
    /// The server's counters, if requested and received in time.
    pub counters: Option<Box<Counters>>,
    /// The report of the group, if requested and received in time.
    pub report: Option<Box<GroupReport>>,
}

/// What a survey includes besides the state of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// What servers counted.
    pub counters: bool,
    /// Groups with all of their volumes.
    pub reports: bool,
    /// The labels of devices: they show groups without a server, and missing disks.
    pub devices: bool,
}

/// What a server counted since it opened the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub io: IoReport,
    pub stats: StatsReport,
}

/// The server's answer to a request for its request counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IoSeen {
    #[default]
    None,
    Answered {
        pid: u32,
        io: Box<IoReport>,
    },
    /// Its socket is there, and no answer came.
    Silent,
    /// It takes no requests yet, or no more.
    Opening,
    /// It answered that it does not speak to this program, with the reason.
    Refused(String),
}

/// An existing process, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// The kernel's letter for what it does: `T` is stopped, `D` waits in the kernel, `Z` has ended.
    pub state: Option<char>,
}

/// The server's answer to a status request.
#[derive(Clone, Debug, Default)]
pub enum ServerSeen {
    #[default]
    None,
    Answered {
        pid: u32,
        report: Box<StatusReport>,
    },
    /// Its socket is there, and no answer came.
    Silent(Option<Process>),
    /// A process has the group's lock and takes no requests yet, or no more.
    Opening {
        process: Process,
        seconds: u64,
    },
    /// It answered that it does not speak to this program.
    Refused {
        pid: Option<u32>,
        why: String,
    },
}

/// The group's keeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperSeen {
    pub process: Process,
    /// Its answer, if any.
    pub answer: Option<KeeperAnswer>,
}

/// A keeper's answer about its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperAnswer {
    /// Servers that it has started.
    pub started: u64,
    /// Servers that ended unasked, or did not begin to serve.
    pub deaths: u64,
    /// The number of failures since the last success.
    pub failures: u64,
    /// The number of volumes whose descriptors it keeps.
    pub held: u64,
}

/// The group according to the labels of devices.
#[derive(Clone, Debug, Default)]
pub enum MembersSeen {
    /// The labels were not read, or not in time.
    #[default]
    Unknown,
    Found(Vec<PvSeen>),
    /// They contradict each other. The text says why the group cannot be opened.
    Contradictory(String),
    /// Devices have become too small. The text says which.
    Shrunk(String),
}

/// A physical volume of the group according to its label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PvSeen {
    /// Where it is, or was last.
    pub path: Option<String>,
    /// As LVM writes it.
    pub uuid: String,
    pub size_bytes: u64,
    pub is_there: bool,
    /// The group runs without it, whether its device exists or not.
    pub is_out: bool,
    /// What is attached is an older copy of it, with which the group is not opened.
    pub is_older: bool,
    /// This host has seen that its device was made smaller: it is not taken back (NW5).
    pub is_cut: bool,
    /// Its device is there and did not answer, so its label is not known.
    pub is_silent: bool,
}
