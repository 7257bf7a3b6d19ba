//! The paths of Rowen's files. There are two directories. The environment can move both, so that several instances
//! (tests, a container, a rescue system) can run on one host without seeing each other:
//!
//! * [`system_dir`], `/etc/rowen` or `ROWEN_SYSTEM_DIR`: files that survive a reboot (the devices file);
//! * [`run_dir`], `/run/rowen` or `ROWEN_RUN_DIR`: files that do not: sockets, locks, logs, the mounts of exports.

use rustix::fs::FlockOperation;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval of looks whether a lock is free, where waiting for it has a limit.
pub(crate) const RETRY: Duration = Duration::from_millis(10);

fn directory(variable: &str, usual: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => PathBuf::from(usual),
    }
}

/// The directory of files that survive a reboot.
pub fn system_dir() -> PathBuf {
    directory("ROWEN_SYSTEM_DIR", "/etc/rowen")
}

/// Whether this is a separate instance, which uses only the devices in its devices file.
pub fn is_private_instance() -> bool {
    std::env::var_os("ROWEN_SYSTEM_DIR").is_some_and(|value| !value.is_empty())
}

/// The block devices that a separate instance uses in addition: `ROWEN_SCAN_DEVICES`, separated by colons.
pub fn scanned_devices() -> Vec<PathBuf> {
    let paths = std::env::var_os("ROWEN_SCAN_DEVICES").unwrap_or_default();
    std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The directory of files that do not survive a reboot.
pub fn run_dir() -> PathBuf {
    directory("ROWEN_RUN_DIR", "/run/rowen")
}

/// Whether the process with this directory under /proc has the same run directory. Call it only for processes of this
/// user: reading the environment of another user's process can hang.
pub(crate) fn is_of_this_instance(process: &Path) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    let theirs = variables.find_map(|variable| variable.strip_prefix(b"ROWEN_RUN_DIR=")).unwrap_or_default();
    let own = std::env::var_os("ROWEN_RUN_DIR").unwrap_or_default();
    theirs == own.as_encoded_bytes()
}

/// Locks an open file, and waits while another process has the lock. Signals do not interrupt it.
pub(crate) fn wait_for_lock(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?)
}

/// The same until `end`, if that is given. False: another process has it still.
pub(crate) fn wait_for_lock_until(file: impl AsFd, end: Option<Instant>) -> io::Result<bool> {
    let Some(end) = end else { return wait_for_lock(file).map(|()| true) };
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if Instant::now() < end => {
                std::thread::sleep(RETRY);
            }
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
}

/// A volume group's directory of sockets, locks, logs and mounts.
pub fn group_dir(group: &str) -> PathBuf {
    run_dir().join(group)
}

/// Renames a group's run directory to the group's name.
pub fn rename_group_dir(from: &str, to: &str) -> io::Result<()> {
    let (old, new) = (group_dir(from), group_dir(to));
    // No client may find this server under the new name, because it would have to refuse.
    match std::fs::remove_file(control_socket(from)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // Remains of an earlier group with that name.
    remove_group_dir(to)?;
    std::fs::rename(&old, &new)
        .map_err(|e| io::Error::new(e.kind(), format!("{} to {}: {e}", old.display(), new.display())))
}

/// Removes a group's run directory, if there is one. The directory goes at once: a process that makes it again meanwhile, for the
/// next group of that name, loses nothing of its own. (`@` cannot be part of a group's name.)
pub fn remove_group_dir(group: &str) -> io::Result<()> {
    let removed = run_dir().join(format!("removed@{group}"));
    let unless_gone =
        |done: io::Result<()>| done.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) });
    // Remains of a process that was killed here.
    unless_gone(std::fs::remove_dir_all(&removed))?;
    unless_gone(std::fs::rename(group_dir(group), &removed))?;
    unless_gone(std::fs::remove_dir_all(&removed))
}

/// Makes `path` and its parents, open to root alone.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The socket on which a group's server accepts commands.
pub fn control_socket(group: &str) -> PathBuf {
    group_dir(group).join("control.sock")
}

/// The file whose lock decides who starts a group's server.
pub fn start_lock(group: &str) -> PathBuf {
    group_dir(group).join("lock")
}

/// The file whose lock serializes commands that take more than one request.
pub fn turn_lock(group: &str) -> PathBuf {
    group_dir(group).join("turn.lock")
}

/// The file with the paths of the physical volumes of a group's server, for its successor, which opens no others.
pub fn members(group: &str) -> PathBuf {
    members_in(&group_dir(group))
}

/// The same, by the group's run directory.
pub fn members_in(directory: &Path) -> PathBuf {
    directory.join("members")
}

/// The file with the devices that are joining the group with this run directory.
pub fn joining_in(directory: &Path) -> PathBuf {
    directory.join("joining")
}

/// The running server's process number.
pub fn pid_file(group: &str) -> PathBuf {
    group_dir(group).join("server.pid")
}

/// Why the last server that did not serve failed. Removed when one serves.
pub fn last_failure(group: &str) -> PathBuf {
    group_dir(group).join("failure")
}

/// A larger log of a server is renamed when the next server starts.
pub const SERVER_LOG_BOUND: u64 = 1 << 20;

/// The log of a server that a command or the keeper started.
pub fn server_log(group: &str) -> PathBuf {
    group_dir(group).join("server.log")
}
