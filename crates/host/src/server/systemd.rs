//! Integration with systemd, if it runs the host. A server notifies systemd when it serves, and a command that needs a
//! server asks systemd to start one. A server that a command started itself would belong to the user's login session.
//! At shutdown it would be ended with that session, before the filesystems on its volumes are unmounted.

use super::log;
use crate::{keeper, notify, paths, units};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub use crate::notify::SOCKET as NOTIFY_SOCKET;

/// The directories of unit files, those of the administrator first.
const UNIT_DIRS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];
const UNIT: &str = "rowen@.service";
/// How often it is asked whether a child has ended.
const RETRY: Duration = Duration::from_millis(5);

/// Notifies the service manager, if there is one, that this process serves the group now, also after it took over from
/// another process of the service. If the service is being stopped while volumes are in use, a successor sends no
/// notification. Otherwise systemd would wait for the successor's end until its timeout.
pub fn ready(group: &str) {
    if is_being_stopped() {
        return;
    }
    notify(&format!("READY=1\nMAINPID={}\nSTATUS=Serving volume group {group}\n", std::process::id()));
}

/// Whether the service of this process is being stopped. A process that systemd started itself need not ask.
fn is_being_stopped() -> bool {
    let is_first = std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let is_service = std::env::var_os(NOTIFY_SOCKET).is_some_and(|socket| !socket.is_empty());
    if is_first || !is_service {
        return false;
    }
    let Some(unit) = units::of_this_process() else { return false };
    let shown = Command::new("systemctl")
        .args(["--no-ask-password", "show", "--property=ActiveState", "--value", &unit])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    shown.is_ok_and(|shown| shown.stdout.trim_ascii() == b"deactivating")
}

/// For a process that was started as the service although another process serves the group already. That process is a
/// successor that continued with volumes in use when the service was stopped, or a server that was started without the
/// service manager. It becomes the service's main process. False: there is no service manager, or the other process is
/// unknown.
pub fn adopt(group: &str) -> bool {
    let other = std::fs::read_to_string(paths::pid_file(group)).ok().and_then(|text| text.trim().parse::<u32>().ok());
    match (std::env::var_os(NOTIFY_SOCKET), other) {
        (Some(socket), Some(pid)) if !socket.is_empty() => {
            notify(&format!("READY=1\nMAINPID={pid}\nSTATUS=Serving volume group {group}\n"));
            keeper::store_again(group);
            true
        }
        _ => false,
    }
}

/// Sets the group's state in `systemctl status`.
pub fn state(state: &str) {
    notify(&format!("STATUS={}\n", state.replace('\n', " ")));
}

/// Notifies that the server is ending.
pub fn stopping() {
    notify("STOPPING=1\n");
}

/// Stops the service after the server has ended and left nothing behind. Otherwise systemd would start it again, as it
/// does if server and keeper have died together.
pub fn ended() {
    let is_service = std::env::var_os(NOTIFY_SOCKET).is_some_and(|socket| !socket.is_empty());
    let Some(unit) = units::of_this_process().filter(|_| is_service) else { return };
    let stopped = Command::new("systemctl")
        .args(["--quiet", "--no-ask-password", "--no-block", "stop", &unit])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !stopped.as_ref().is_ok_and(std::process::ExitStatus::success) {
        log::warning(format_args!("{unit} cannot be stopped: systemd may start it again"));
    }
}

fn notify(state: &str) {
    if let Err(e) = notify::notify(state) {
        log::warning(format_args!("cannot tell the service manager: {e}"));
    }
}

/// Whether the service manager must start the group's server: systemd runs this host, has the unit, can name it after
/// the group, and uses the same directories as this process.
pub fn is_in_charge(group: &str) -> bool {
    let is_usual_instance = paths::run_dir() == Path::new("/run/rowen") && !paths::is_private_instance();
    is_usual_instance
        && is_instance(group)
        && Path::new("/run/systemd/system").is_dir()
        && UNIT_DIRS.iter().any(|dir| Path::new(dir).join(UNIT).exists())
}

/// Whether the name can be used in a unit's name without escapes.
pub fn is_instance(group: &str) -> bool {
    group.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// What became of the request to start a server.
pub enum Started {
    Serving,
    /// The caller starts one itself, and so learns the reason of a failure.
    Failed,
    /// systemd is starting it still.
    Late,
}

/// Asks systemd to start the group's server, and waits until `end`.
pub fn start(group: &str, end: Option<Instant>) -> Started {
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["--quiet", "--no-ask-password", "start", &units::of_group(group)]);
    systemctl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match systemctl.spawn().and_then(|child| end_of(child, end)) {
        Ok(Some(status)) if status.success() => Started::Serving,
        Ok(None) => Started::Late,
        Ok(Some(_)) | Err(_) => Started::Failed,
    }
}

/// How a child ended; none: it had not by `end`, and was killed. What it asked for goes on.
fn end_of(mut child: Child, end: Option<Instant>) -> io::Result<Option<ExitStatus>> {
    let Some(end) = end else { return child.wait().map(Some) };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_waited_for_until_its_time_is_up() {
        let sleep = |seconds: &str| Command::new("sleep").arg(seconds).spawn().unwrap();
        assert!(end_of(sleep("0"), None).unwrap().unwrap().success());
        assert!(end_of(sleep("0"), Some(Instant::now() + Duration::from_secs(60))).unwrap().unwrap().success());
        assert!(end_of(sleep("3600"), Some(Instant::now() + RETRY)).unwrap().is_none());
    }

    #[test]
    fn names_that_units_cannot_have_are_known() {
        assert!(is_instance("vg-0_a.b") && !is_instance("vg+0"));
    }
}
