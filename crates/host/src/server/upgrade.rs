//! The command's part of `rowen upgrade`: this program replaces a running server and keeper. It first checks what it
//! can and asks the keeper to begin ([`crate::keeper`]). When the successor is ready, it asks the old server to end.
//! Then it reports the result. If this process dies, the keeper cancels or completes the upgrade.
//!
//! * UP1 Nothing is changed before this program has read the group's superblocks, checkpoint and journal, and has found
//!   a version of each protocol that both programs support.
//! * UP8 Everything here has a time limit. If running commands do not end within it, the upgrade is refused.

use super::client::{self, ConnectError};
use super::presence::StartLock;
use super::recorder;
use crate::disks::{IoEngine, OpenMode, PvSet};
use crate::keeper::{Progress, Stage, Upgrader, Versions};
use crate::programs::Program;
use crate::reactor::Pool;
use crate::{devices, keeper, paths, planted};
use rowen_control::history::What;
use rowen_control::names;
use rowen_control::protocol::{ErrorKind, NOTES, OLDEST_NOTES, Outcome, Request};
use rowen_control::service::failure::{Context, Failure, Result};
use rowen_engine::error::Error;
use rowen_engine::group::Group;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The interval of asking the keeper for progress.
const POLL_EVERY: Duration = Duration::from_millis(5);
/// How often a group that changes meanwhile is read, and the pause between.
const READS: u32 = 20;
const BETWEEN_READS: Duration = Duration::from_millis(100);
/// How long disks may take to be read.
const READING: Duration = Duration::from_secs(30);
/// The limit until the successor is ready. The keeper gives up earlier.
const GETTING_READY: Duration = Duration::from_secs(20);
/// The limit of the rest: the old server finishes its requests, and one or two successors may fail. The keeper gives up
/// earlier.
const TAKING_OVER: Duration = Duration::from_secs(150);
/// How long to wait for the successor of a server that has just died.
const BETWEEN_SERVERS: Duration = Duration::from_secs(5);

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgraded {
    /// Nothing to do: no server runs.
    NotRunning,
    /// A check found that the upgrade is possible.
    Tried,
    /// This program serves. For this many milliseconds no request was read from the volumes' devices.
    Done { pause: Option<u64> },
}

/// The groups that have a server on this machine, by name.
pub fn served_groups() -> Vec<String> {
    let entries = std::fs::read_dir(paths::run_dir()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut served: Vec<String> =
        names.filter(|name| names::check_form(name).is_ok()).filter(|name| is_served(name)).collect();
    served.sort();
    served
}

fn is_served(group: &str) -> bool {
    paths::control_socket(group).exists() || keeper::is_there(group).unwrap_or(true)
}

fn failed(group: &str, kind: ErrorKind, why: impl std::fmt::Display) -> Failure {
    Failure::new(kind, format!("Volume group \"{group}\" is not upgraded: {why}"))
}

/// Replaces the server and the keeper of a group by `program`, which has this `version`. `check`: only tests whether
/// that is possible.
pub fn upgrade(group: &str, program: &Program, version: &str, check: bool) -> Result<Upgraded> {
    let outcome = upgrade_untold(group, program, version, check);
    if let (Err(failure), false) = (&outcome, check) {
        // Without a group there is no keeper to notify.
        if let Ok(found) = devices::find_group(group) {
            recorder::event_alone(found.uuid, group, What::UpgradeFailed, &failure.message);
        }
    }
    outcome
}

fn upgrade_untold(group: &str, program: &Program, version: &str, check: bool) -> Result<Upgraded> {
    names::check_form(group).map_err(|_| Failure::from(devices::Error::NoGroup(group.to_owned())))?;
    let Some((mut server, old)) = reach(group)? else {
        devices::find_group(group)?;
        return Ok(Upgraded::NotRunning);
    };
    let upgrader = compare(group, &old)?;
    if !planted::is("upgrades_untried") {
        read_group(group)?;
    }
    if check {
        return Ok(Upgraded::Tried);
    }
    upgrader.begin(program).map_err(|e| failed(group, ErrorKind::InUse, format!("{e}.")))?;
    let reached = await_stage(group, &upgrader, GETTING_READY, |stage| !matches!(stage, Stage::Starting))?;
    // The lock keeps others from starting a server after the old one has ended and before the new one serves.
    let lock = StartLock::take(group).map_err(|e| failed(group, ErrorKind::Internal, format!("its lock: {e}.")))?;
    if reached.stage == Stage::Ready {
        let answer = server.request(&Request::Upgrade { to: version.to_owned() });
        if !matches!(answer, Ok(Outcome::HandsOver)) {
            // The keeper returns to the old program, unless the old server has ended meanwhile.
            let _it_may_have_gone = upgrader.abandon();
        }
        if let Ok(Outcome::Error { kind, message }) = answer {
            return Err(failed(group, kind, message));
        }
    }
    let mut lock = Some(lock);
    let ended = await_stage(group, &upgrader, TAKING_OVER, |stage| {
        if stage == Stage::Serving {
            lock.take();
        }
        matches!(stage, Stage::Done | Stage::Failed | Stage::None)
    })?;
    match ended.stage {
        Stage::Done => Ok(Upgraded::Done { pause: ended.pause }),
        _ => {
            let why = format!(
                "{}. The old program still serves; see {}.",
                if ended.why.is_empty() { "its keeper was replaced" } else { &ended.why },
                paths::server_log(group).display()
            );
            Err(failed(group, ErrorKind::Internal, why))
        }
    }
}

/// The old server's answer about itself.
struct Old {
    notes: u32,
    oldest_notes: u32,
}

/// A connection to the old server of any version. None: no server runs.
fn reach(group: &str) -> Result<Option<(client::Stable, Old)>> {
    let deadline = Instant::now() + BETWEEN_SERVERS;
    loop {
        match client::Stable::connect(group) {
            Ok((client, notes, oldest_notes)) => return Ok(Some((client, Old { notes, oldest_notes }))),
            Err(ConnectError::NotRunning) => {
                if !keeper::is_there(group).unwrap_or(false) {
                    return Ok(None);
                }
                if Instant::now() > deadline {
                    let why = "it has a keeper and no server that answers: see rowen status.";
                    return Err(failed(group, ErrorKind::Closed, why));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(ConnectError::Refused { kind: ErrorKind::Version, message }) => {
                return Err(failed(group, ErrorKind::Version, format!("{message}\n{}", by_hand(group, "server"))));
            }
            Err(ConnectError::Refused { kind, message }) => return Err(failed(group, kind, message)),
            Err(ConnectError::Late) => {
                return Err(failed(group, ErrorKind::Internal, "its server does not answer.".to_owned()));
            }
            Err(ConnectError::Io(e)) => return Err(failed(group, ErrorKind::Internal, format!("its server: {e}."))),
        }
    }
}

/// The message if the running program does not support upgrades.
fn by_hand(group: &str, what: &str) -> String {
    let pid = std::fs::read_to_string(paths::pid_file(group)).unwrap_or_default();
    format!(
        "Its {what} is of a version that knows no upgrade. At a quiet moment deactivate its volumes and run: rowen stop {group}. Or \
         end its server (kill {}): another server takes over, and programs that use volumes see a pause. The keeper is replaced when no volume is active.",
        pid.trim()
    )
}

/// UP1: checks that both support a common version of each protocol.
fn compare(group: &str, old: &Old) -> Result<Upgrader> {
    let reached =
        Upgrader::connect(group).and_then(|keeper| Ok((keeper.as_ref().map(Upgrader::versions).transpose()?, keeper)));
    let (versions, keeper) = reached.map_err(|e| failed(group, ErrorKind::Internal, format!("its keeper: {e}.")))?;
    let Some(keeper) = keeper else {
        return Err(failed(group, ErrorKind::Closed, "it has no keeper now: try again."));
    };
    let Some(versions) = versions.flatten() else {
        return Err(failed(group, ErrorKind::Version, by_hand(group, "keeper")));
    };
    let Versions { newest, oldest } = Versions::OWN;
    if !Versions::OWN.fit(versions) {
        let why = format!(
            "its keeper speaks versions {} to {} of the keeper's messages, and this program {oldest} to {newest}: upgrade to a \
             version between first.",
            versions.oldest, versions.newest
        );
        return Err(failed(group, ErrorKind::Version, why));
    }
    // Each leaves notes for the other.
    if old.notes < OLDEST_NOTES || NOTES < old.oldest_notes {
        let why = format!(
            "its server leaves notes of version {} for its successor and understands version {} and later; this program has \
             {NOTES} and {OLDEST_NOTES}: upgrade to a version between first.",
            old.notes, old.oldest_notes
        );
        return Err(failed(group, ErrorKind::Version, why));
    }
    Ok(keeper)
}

/// UP1: reads the metadata that opening the group needs, as `check` does, while the old server serves it.
fn read_group(group: &str) -> Result<()> {
    let (say, hear) = mpsc::channel();
    let name = group.to_owned();
    let read = move || drop(say.send(read_until_whole(&name)));
    let started = std::thread::Builder::new().name("rowen-try".into()).spawn(read);
    started.map_err(|e| failed(group, ErrorKind::Internal, format!("a thread: {e}.")))?;
    let read = hear.recv_timeout(READING).unwrap_or_else(|_| {
        let why = format!("its disks were not read within {} s.", READING.as_secs());
        Err(Failure::new(ErrorKind::Io, why))
    });
    read.map_err(|failure| {
        let why = format!(
            "this program cannot open it. {}\nNothing was changed: the old program still serves it.",
            failure.message
        );
        failed(group, failure.kind, why)
    })
}

fn read_until_whole(group: &str) -> Result<()> {
    let members = devices::find_group(group)?;
    let pool =
        Pool::start(1).map_err(|e| Failure::new(ErrorKind::Internal, format!("A worker cannot be started: {e}.")))?;
    let mut reads = 0;
    loop {
        let pvs = Arc::new(PvSet::open(&pool, &members.paths, OpenMode::ReadOnly, IoEngine::default())?);
        let read = match planted::is("cannot_open") {
            false => pool.block_on(async move { Group::can_be_opened(pvs).await }),
            true => Err(Error::Invalid("it was told to fail".into())),
        };
        reads += 1;
        match read {
            Ok(()) => return Ok(()),
            // The server may have overwritten a part just before it was read.
            Err(Error::Corrupt { .. }) if reads < READS => std::thread::sleep(BETWEEN_READS),
            Err(error) => {
                let devices = |index: usize| members.paths.get(index).cloned();
                return Err(Context { group, extent_blocks: 1, devices: &devices }.failure(&error, ""));
            }
        }
    }
}

/// Waits until the keeper reports the stage.
fn await_stage(
    group: &str,
    upgrader: &Upgrader,
    limit: Duration,
    mut is_enough: impl FnMut(Stage) -> bool,
) -> Result<Progress> {
    let deadline = Instant::now() + limit;
    loop {
        let progress = upgrader.progress().map_err(|e| {
            let why = format!("its keeper does not answer ({e}). See: rowen status {group}");
            failed(group, ErrorKind::Internal, why)
        })?;
        if is_enough(progress.stage) {
            return Ok(progress);
        }
        if Instant::now() > deadline {
            // If the old server still serves, it continues.
            let _it_may_have_gone = upgrader.abandon();
            let why = format!("it was not done within {} s. See: rowen status {group}", limit.as_secs());
            return Err(failed(group, ErrorKind::Internal, why));
        }
        std::thread::sleep(POLL_EVERY);
    }
}
