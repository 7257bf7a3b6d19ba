//! What was seen of the groups of a host, by whoever looked: the evidence.

use crate::protocol::{GroupReport, IoReport, StatsReport, StatusReport};

/// A host's groups, and what else was noticed.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    pub groups: Vec<Seen>,
    /// Physical volumes that the devices file knows, which are not there, of no known group.
    pub lost: Vec<LostPv>,
    /// Devices that do not answer.
    pub silent_devices: Vec<String>,
    /// What could not be looked at, a sentence each.
    pub troubles: Vec<String>,
}

/// A physical volume that this host knew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPv {
    pub path: String,
    pub uuid: String,
}

/// What was seen of one group.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub name: String,
    pub server: ServerSeen,
    pub keeper: Option<KeeperSeen>,
    pub members: MembersSeen,
    /// Volumes whose block devices are there.
    pub devices: u64,
    /// Filesystems that are held still for a snapshot.
    pub frozen: u64,
    /// Where the server's log is.
    pub log: String,
    /// What the server counted, where that was asked for and came in time.
    pub counters: Option<Box<Counters>>,
    /// All of the group, where that was asked for and came in time.
    pub report: Option<Box<GroupReport>>,
}

/// What is looked at besides how each group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// What servers counted.
    pub counters: bool,
    /// Groups with all of their volumes.
    pub reports: bool,
    /// The labels of devices: they tell of groups without a server, and of disks that are missing.
    pub devices: bool,
}

/// What a server counted since it opened the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub io: IoReport,
    pub stats: StatsReport,
}

/// What a group's server did when it was asked for its counters of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IoSeen {
    #[default]
    None,
    Told {
        pid: u32,
        io: Box<IoReport>,
    },
    /// Its socket is there, and no answer came.
    Silent,
    /// It takes no requests yet, or no more.
    Opening,
    /// It answered that it does not speak to this program; why.
    Refused(String),
}

/// A process that is there, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// The kernel's letter for what it does: `T` is stopped, `D` waits in the kernel, `Z` has ended.
    pub state: Option<char>,
}

/// What the group's server did when it was asked.
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
    /// What it told, if it did.
    pub told: Option<KeeperTold>,
}

/// What a keeper tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperTold {
    /// Servers that it has started.
    pub started: u64,
    /// Servers that ended without having been told to, or did not begin to serve.
    pub deaths: u64,
    /// The last so many of them failed.
    pub failures: u64,
    /// Volumes that it keeps.
    pub held: u64,
}

/// What the labels of devices say of the group.
#[derive(Clone, Debug, Default)]
pub enum MembersSeen {
    /// Nobody looked, or not in time.
    #[default]
    Unknown,
    Found(Vec<PvSeen>),
    /// They contradict each other; why the group cannot be opened.
    Contradictory(String),
}

/// A physical volume of the group as its label tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PvSeen {
    /// Where it is, or was last.
    pub path: Option<String>,
    /// As LVM writes it.
    pub uuid: String,
    pub size_bytes: u64,
    pub is_there: bool,
    /// The group goes on without it, whether it is there or not.
    pub is_out: bool,
}
