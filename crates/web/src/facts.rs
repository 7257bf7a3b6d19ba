//! What is known of a host's volume groups, as `rowen facts` reports it: one JSON document. Names of fields stay; more may come.

use crate::planted;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The version of the document. Another one is not read.
pub const VERSION: u32 = 1;
/// A longer file is not read.
pub const MOST_BYTES: u64 = 64 << 20;
/// Points of latencies have this many seconds at least...
pub const POINT: f64 = 60.0;
/// ... and are kept for this many seconds.
pub const HOUR: f64 = 3600.0;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub version: u32,
    /// The version of the program that looked.
    pub program: String,
    pub host: String,
    /// When it looked: seconds since 1970, the same in words, and seconds since the host was started ([`uptime`]).
    pub time: u64,
    pub at: String,
    pub uptime: f64,
    /// Seconds between two looks; 0: there is no next one.
    pub every: u64,
    pub healthy: bool,
    /// What is wrong with no group in particular.
    pub problems: Vec<Problem>,
    pub groups: Vec<Group>,
}

/// Something that is wrong, as `rowen status` reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    pub what: String,
    pub next: String,
}

/// A volume group. What is not known is `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    pub name: String,
    /// In the words of `rowen status`.
    pub state: String,
    pub healthy: bool,
    pub sentence: String,
    /// Its processes.
    pub runs: Option<String>,
    pub problems: Vec<Problem>,
    pub space: Option<Space>,
    pub pools: Vec<Pool>,
    pub physical_volumes: Vec<Pv>,
    /// What was done between the last two looks.
    pub load: Option<Load>,
    /// Those that came from a volume follow it, as in `rowen tree`. Of a server that is silent: its last report.
    pub volumes: Vec<Volume>,
    /// So many more follow.
    pub volumes_left_out: u64,
    /// When they were reported, on the clock of [`Facts::uptime`].
    pub volumes_uptime: Option<f64>,
    pub work: Vec<Work>,
    /// The oldest first.
    pub latency: Vec<Point>,
    /// The active volumes that had requests in the last minute, those with most requests first.
    pub busy_volumes: Vec<BusyVolume>,
    /// The newest first.
    pub events: Vec<Event>,
}

/// The space of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Space {
    pub size_bytes: u64,
    /// What can be taken.
    pub free_bytes: u64,
    pub metadata_bytes: u64,
}

/// A thin pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    pub name: String,
    pub size_bytes: u64,
    pub used_bytes: u64,
}

/// A physical volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pv {
    pub path: String,
    /// In the words of `rowen status`.
    pub state: String,
    pub size_bytes: Option<u64>,
    /// Requests that failed.
    pub failed: Option<u64>,
}

/// What a group's volumes did in a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    pub requests: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
}

/// A volume, where it is in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub name: String,
    pub parent: Option<String>,
    pub depth: u64,
    pub size_bytes: u64,
    pub referenced_bytes: u64,
    pub own_bytes: u64,
    pub freed_if_removed_bytes: u64,
    /// In words.
    pub created: String,
    pub state: Vec<String>,
    pub tags: Vec<String>,
}

/// What is done in the background, or waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    pub what: String,
    pub why: String,
    /// The share that is done, from 0 to 1.
    pub done: Option<f64>,
    pub seconds_left: Option<u64>,
    /// It waits for something that is wrong.
    pub is_stuck: bool,
}

/// How long requests took in some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    /// Its end, on the clock of [`Facts::uptime`], and its length.
    pub uptime: f64,
    pub seconds: f64,
    pub read: Option<Latency>,
    pub write: Option<Latency>,
    pub flush: Option<Latency>,
}

/// How long requests of a kind took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    pub requests: u64,
    /// In microseconds.
    pub median: f64,
    pub p99: f64,
}

/// What a volume did in the last minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BusyVolume {
    pub name: String,
    /// The length of the time in which its requests were counted.
    pub seconds: f64,
    pub read: Option<Latency>,
    pub write: Option<Latency>,
    pub flush: Option<Latency>,
}

/// Something that happened, as `rowen events` reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Seconds since 1970, and in words.
    pub time: u64,
    pub at: String,
    pub event: String,
    pub message: String,
}

/// Seconds since the host was started, those in which it slept included. Nobody can set this clock.
pub fn uptime() -> f64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Reads a document.
pub fn parse(text: &[u8]) -> Result<Facts, String> {
    let facts: Facts = serde_json::from_slice(text).map_err(|e| format!("it is damaged ({e})"))?;
    match facts.version {
        VERSION => Ok(facts),
        other => Err(format!("it is of version {other}, and this program reads version {VERSION}")),
    }
}

/// Reads a file of them. Whatever is at the path, nothing is waited for.
pub fn read(path: &Path) -> io::Result<Result<Facts, String>> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    // A FIFO that nobody writes to would be waited for.
    let file = File::from(openat(CWD, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    if !file.metadata()?.is_file() && !planted::is("anything_is_read") {
        return Ok(Err("it is no regular file".to_owned()));
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    Ok(if text.len() as u64 > MOST_BYTES { Err("it is too long".to_owned()) } else { parse(&text) })
}
