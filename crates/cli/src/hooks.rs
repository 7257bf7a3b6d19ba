//! Programs that run before and after a snapshot, as a policy says: one makes an application stand still, the other one lets
//! it go on.
//!
//! * BK5 If `before` was started, `after` runs when the snapshot was taken or not, and also if this process is killed in
//!   between. No program runs for longer than its limit.

use crate::backend::{Answer, Hook, Pending, Trouble};
use rowen_control::protocol::ErrorKind;
use rowen_engine::planted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a program is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long a program that was killed is waited for. One that waits for a dead filesystem does not end.
const KILLED: Duration = Duration::from_secs(2);

/// Says that it waits. When somebody writes a line or is gone, it becomes the program. A signal that ends a session or a
/// service does not end it before.
const WAITS: &str = "trap : INT TERM HUP; echo; exec 1>&2; read -r line; exec \"$0\"";

impl Hook {
    /// In a group of processes of its own, which can be ended as a whole.
    fn start(&self, mut command: Command, input: Stdio, output: Stdio) -> Answer<Child> {
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        command.envs(variables).stdin(input).stdout(output).process_group(0);
        command.spawn().map_err(|e| self.trouble(&format!("cannot be started: {e}")))
    }

    fn trouble(&self, what: &str) -> Trouble {
        Trouble::other(ErrorKind::Internal, format!("{} {what}.", self.program))
    }

    /// Waits for its end, and ends it when its time is over.
    fn end(&self, mut child: Child) -> Answer<()> {
        let until = Instant::now() + self.limit;
        loop {
            let ended = child.try_wait().map_err(|e| self.trouble(&format!("is lost: {e}")))?;
            match ended {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.trouble(&how(status))),
                None if Instant::now() < until => std::thread::sleep(LOOK),
                None => break,
            }
        }
        kill(&mut child);
        Err(self.trouble(&format!("did not end within {} s and was killed", self.limit.as_secs())))
    }

    /// Its output is written where errors are.
    pub fn run(&self) -> Answer<()> {
        let output = rustix::io::dup(rustix::stdio::stderr()).map_or_else(|_| Stdio::null(), Stdio::from);
        let child = self.start(Command::new(&self.program), Stdio::null(), output)?;
        self.end(child)
    }

    /// Has the program run later: by [`Pending::run`], or when this process has ended.
    pub fn later(self) -> Answer<Later> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", WAITS, &self.program]);
        let mut child = self.start(shell, Stdio::piped(), Stdio::piped())?;
        match child.stdout.take().is_some_and(|output| self.says_something(output)) {
            true => Ok(Later { hook: self, child: Some(child) }),
            false => {
                kill(&mut child);
                Err(self.trouble("cannot be prepared: /bin/sh does not wait for its turn"))
            }
        }
    }

    /// Whether something is read from a program in its time.
    fn says_something(&self, mut output: ChildStdout) -> bool {
        let mut fds = [PollFd::new(&output, PollFlags::IN)];
        let limit = Timespec { tv_sec: i64::try_from(self.limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
        let is_ready = poll(&mut fds, Some(&limit)).is_ok_and(|ready| ready > 0);
        is_ready && output.read(&mut [0]).is_ok_and(|read| read > 0)
    }
}

/// Ends a program and what it started.
fn kill(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _may_have_ended = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let until = Instant::now() + KILLED;
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(LOOK);
    }
}

fn how(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("failed with exit code {code}"),
        None => "was killed".to_owned(),
    }
}

/// A program that will run.
pub struct Later {
    hook: Hook,
    child: Option<Child>,
}

impl Pending for Later {
    fn run(mut self: Box<Self>) -> Answer<()> {
        self.now()
    }
}

impl Later {
    fn now(&mut self) -> Answer<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if planted::is("after_is_forgotten") {
            kill(&mut child);
            return Ok(());
        }
        // The end of its input.
        drop(child.stdin.take());
        self.hook.end(child)
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        // The caller has reported another failure.
        let _ = self.now();
    }
}

#[cfg(test)]
#[path = "hooks_test.rs"]
mod tests;
