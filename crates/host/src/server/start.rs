//! Starting a group's server when a command needs it.
//!
//! If several commands find no server, one starts it and the others wait for the start lock; then all connect. The
//! server writes one frame to its standard output, which says whether it serves or why it cannot. So the command can
//! tell its user.
//!
//! * EN3 The server of a removed group may still be ending when the next group of that name is opened, and it removes the
//!   group's run directory last. A command that started a server meanwhile starts it in the new directory.

use super::client::{Client, ConnectError};
use super::presence::{Presence, StartLock};
use super::systemd::Started;
use super::{LAUNCHED_BY_COMMAND, left, log, lost, renaming, systemd};
use crate::{devices, export, keeper, paths, patience, planted, programs};
use rowen_control::names;
use rowen_control::protocol::{ErrorKind, Outcome};
use rowen_control::service::failure::{Failure, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command waits for a server that something else (the keeper, another command's remains) is starting.
const OTHERS_START: Duration = Duration::from_secs(30);

fn system(group: &str, doing: &str, source: impl std::fmt::Display) -> Failure {
    let message = format!("Cannot {doing} the server of volume group \"{group}\": {source}.");
    Failure { kind: ErrorKind::Internal, message }
}

/// That the server did not answer in the time that a look has (PA1).
pub(super) fn late(group: &str) -> Failure {
    let seconds = patience::limit().as_secs();
    let message = format!(
        "The server of volume group \"{group}\" does not answer within {seconds} s. For what it waits: rowen status {group}"
    );
    Failure { kind: ErrorKind::Internal, message }
}

/// A connection to the group's server, when one runs.
pub fn connect(group: &str) -> Result<Option<Client>> {
    // The name becomes a path.
    if names::check_form(group).is_err() {
        return Err(devices::Error::NoGroup(group.to_owned()).into());
    }
    match Client::connect(group) {
        Ok(client) => Ok(Some(client)),
        Err(ConnectError::NotRunning) => Ok(None),
        Err(ConnectError::Refused { kind, message }) => Err(Failure { kind, message }),
        Err(ConnectError::Late) => Err(late(group)),
        Err(ConnectError::Io(source)) => Err(system(group, "reach", source)),
    }
}

/// A connection to the group's server, which is started when none runs.
pub fn ensure_running(group: &str) -> Result<Client> {
    if let Some(client) = connect(group)? {
        return Ok(client);
    }
    // PA1
    let end = patience::for_server().map(|left| Instant::now() + left);
    renaming::settle(group, end)?;
    // A group that cannot be opened leaves no trace of the attempt. A server that lost a disk has just ended (LD1), perhaps.
    devices::find_group_but(group, &lost::noted(group), &lost::paths_of_noted(group))
        .or_else(|_| devices::find_group(group))?;

    let take = || StartLock::take_until(group, end).map_err(|e| system(group, "start", e))?.ok_or_else(|| late(group));
    let mut lock = take()?;
    let deadline = end.unwrap_or_else(|| Instant::now() + OTHERS_START);
    loop {
        if let Some(client) = connect(group)? {
            return Ok(client);
        }
        if systemd::is_in_charge(group) {
            match systemd::start(group, end) {
                Started::Serving => match connect(group)? {
                    Some(client) => return Ok(client),
                    // It ended again already.
                    None => std::thread::sleep(Duration::from_millis(20)),
                },
                Started::Failed => {}
                Started::Late => return Err(late(group)),
            }
        }
        let launched = launch(group, end);
        // EN3
        if !lock.counts() && Instant::now() < deadline && !planted::is("start_gives_up") {
            lock = take()?;
            continue;
        }
        match launched.map_err(|e| system(group, "start", e))? {
            Launch::Serving => {}
            Launch::Failed(error) => return Err(error),
            Launch::Late => return Err(late(group)),
            // Somebody else's server is on its way, or on its way out.
            Launch::AlreadyServed(_) if end.is_some_and(|end| Instant::now() >= end) => return Err(late(group)),
            Launch::AlreadyServed(error) if Instant::now() > deadline => return Err(error),
            Launch::AlreadyServed(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Removes the remains of the group's devices after its server and its keeper were both killed. A new server does that,
/// too, but a group without disks cannot start one. Returns how many volumes had remains; `None`: there is a server, or
/// a keeper that starts one.
pub fn clear_remains(group: &str) -> Result<Option<usize>> {
    let nobody = connect(group)?.is_none();
    if !paths::group_dir(group).is_dir() {
        return Ok(nobody.then_some(0));
    }
    let _lock = StartLock::take(group).map_err(|e| system(group, "look for", e))?;
    let presence = Presence::take(group).map_err(|e| system(group, "look for", e))?;
    if presence.is_err() || keeper::is_there(group).map_err(|e| system(group, "look for the keeper of", e))? {
        return Ok(None);
    }
    // Nothing is in use any more that a wrong disk could harm.
    left::forget(group);
    let cleared = export::clear_remains(group).map_err(|e| system(group, "clear away what is left of", e))?;
    Ok(Some(cleared))
}

enum Launch {
    Serving,
    AlreadyServed(Failure),
    Failed(Failure),
    /// It is starting still.
    Late,
}

/// What a caller left open, for instance a volume or a file on one, would be in use for as long as the server and its keeper
/// live: programs that this process starts from now on get standard input, output and errors alone.
fn leave_callers_descriptors() {
    // SAFETY: the call sets a flag of descriptors and touches no memory. A kernel before 5.11 refuses it, and all is as before.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Starts `rowen serve` and waits for its word, until `end`.
fn launch(group: &str, end: Option<Instant>) -> io::Result<Launch> {
    leave_callers_descriptors();
    let log = log::open(&paths::server_log(group))?;
    let program = program()?;
    let mut child = Command::new(&program)
        .arg0(programs::first_argument(program.as_os_str()))
        .args(["serve", group])
        .env(LAUNCHED_BY_COMMAND, "1")
        .env_remove(systemd::NOTIFY_SOCKET)
        .env_remove(keeper::SUCCESSOR)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    let mut word = child.stdout.take().ok_or_else(|| io::Error::other("its standard output is closed"))?;
    if !comes_before(end, &word)? {
        return Ok(Launch::Late);
    }
    let answer = rowen_control::protocol::read_frame::<Outcome>(&mut word);
    Ok(match answer {
        Ok(Some(Outcome::Ok)) => Launch::Serving,
        Ok(Some(Outcome::Error { kind, message })) => {
            child.wait()?;
            let error = Failure { kind, message };
            if kind == ErrorKind::Exists { Launch::AlreadyServed(error) } else { Launch::Failed(error) }
        }
        _ => {
            let status = child.wait()?;
            let message = format!(
                "The server of volume group \"{group}\" ended before it served ({status}); see {}.",
                paths::server_log(group).display()
            );
            Launch::Failed(Failure { kind: ErrorKind::Internal, message })
        }
    })
}

/// Waits for a word in this pipe, or for its end.
fn comes_before(end: Option<Instant>, word: impl AsFd) -> io::Result<bool> {
    let Some(end) = end else { return Ok(true) };
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match rustix::event::poll(&mut [PollFd::new(&word, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            polled => return Ok(polled? > 0),
        }
    }
}

/// This program, also when its file was replaced since it was started.
fn program() -> io::Result<std::path::PathBuf> {
    let program = std::env::current_exe()?;
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map(Into::into).unwrap_or(program))
}
