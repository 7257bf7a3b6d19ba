//! The status of groups as it is reported. The field names are those of `rowen status --json`.

use serde::Serialize;

/// The status of a host's groups.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub healthy: bool,
    pub groups: Vec<GroupStatus>,
    /// Problems that belong to no group.
    pub problems: Vec<Problem>,
}

/// The status of a group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStatus {
    pub name: String,
    pub state: State,
    pub healthy: bool,
    /// The state in a sentence.
    pub sentence: String,
    pub server_pid: Option<u32>,
    /// How long this server has had the group open.
    pub open_seconds: Option<u64>,
    pub keeper_pid: Option<u32>,
    /// How often the keeper has started a server since it began.
    pub restarts: Option<u64>,
    /// How often since then a server ended unasked, or did not begin to serve.
    pub deaths: Option<u64>,
    pub volumes: Option<u64>,
    pub active_volumes: Option<u64>,
    /// The used percentage of the group's space.
    pub used_percent: Option<f64>,
    pub waiting_volumes: Vec<WaitingVolume>,
    pub physical_volumes: Vec<PvState>,
    /// Background work.
    pub work: Vec<String>,
    pub problems: Vec<Problem>,
}

/// A volume whose writes wait for space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingVolume {
    pub name: String,
    pub seconds: u64,
}

/// A physical volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PvState {
    pub path: Option<String>,
    pub uuid: String,
    pub state: PvWord,
    pub size_bytes: Option<u64>,
    /// Requests that failed since the server opened it.
    pub failed_reads: Option<u64>,
    pub failed_writes: Option<u64>,
    pub failed_flushes: Option<u64>,
}

/// The state of a physical volume in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PvWord {
    Ok,
    /// Requests failed.
    Errors,
    /// Requests are under way, and none is answered.
    NotAnswering,
    Missing,
    /// What is attached is an older copy of it.
    OlderCopy,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub what: String,
    pub next: String,
}

/// The state of a group in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Serving,
    NotRunning,
    Opening,
    TakingOver,
    WaitingForSpace,
    WaitingForDisk,
    Stopped,
    NotAnswering,
    /// Server and keeper are gone, and devices are left.
    Killed,
    Incomplete,
    CannotOpen,
    OtherVersion,
}

impl State {
    /// All of them.
    pub const ALL: [State; 12] = [
        State::Serving,
        State::NotRunning,
        State::Opening,
        State::TakingOver,
        State::WaitingForSpace,
        State::WaitingForDisk,
        State::Stopped,
        State::NotAnswering,
        State::Killed,
        State::Incomplete,
        State::CannotOpen,
        State::OtherVersion,
    ];

    pub fn word(self) -> &'static str {
        match self {
            State::Serving => "serving",
            State::NotRunning => "not running",
            State::Opening => "opening",
            State::TakingOver => "taking over",
            State::WaitingForSpace => "waiting for space",
            State::WaitingForDisk => "waiting for a disk",
            State::Stopped => "stopped",
            State::NotAnswering => "not answering",
            State::Killed => "killed",
            State::Incomplete => "incomplete",
            State::CannotOpen => "cannot be opened",
            State::OtherVersion => "of another version",
        }
    }
}

impl PvWord {
    pub fn word(self) -> &'static str {
        match self {
            PvWord::Ok => "ok",
            PvWord::Errors => "errors",
            PvWord::NotAnswering => "not answering",
            PvWord::Missing => "missing",
            PvWord::OlderCopy => "older copy",
        }
    }
}
