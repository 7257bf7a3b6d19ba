//! Programs that run before and after a snapshot, as a policy says: one makes an application stand still, the other one lets
//! it go on.
//!
//! * BK5 If `before` was started, `after` runs when the snapshot was taken or not, and also if this process is killed in
//!   between. No program runs for longer than its limit.

use crate::backend::{Answer, Hook, Pending, Trouble};
use rowen_control::protocol::ErrorKind;
use rowen_engine::planted;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a program is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until somebody writes a line or is gone, and then becomes the program. What ends a session or a service does not
/// end it before.
const WAITS: &str = "trap : INT TERM HUP; read -r line; exec \"$0\"";

impl Hook {
    /// Its output is told where errors are. In a group of processes of its own, which can be ended as a whole.
    fn start(&self, mut command: Command, input: Stdio) -> Answer<Child> {
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        command.envs(variables).stdin(input).process_group(0);
        let stderr = rustix::io::dup(rustix::stdio::stderr()).map_or_else(|_| Stdio::null(), Stdio::from);
        command.stdout(stderr).spawn().map_err(|e| self.trouble(&format!("cannot be started: {e}")))
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
        let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            let _may_have_ended = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _killed = child.wait();
        Err(self.trouble(&format!("did not end within {} s and was killed", self.limit.as_secs())))
    }

    pub fn run(&self) -> Answer<()> {
        let child = self.start(Command::new(&self.program), Stdio::null())?;
        self.end(child)
    }

    /// Has the program run later: by [`Pending::run`], or when this process has ended.
    pub fn later(self) -> Answer<Later> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", WAITS, &self.program]);
        let child = self.start(shell, Stdio::piped())?;
        Ok(Later { hook: self, child: Some(child) })
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
            let _ = child.kill();
            let _ = child.wait();
            return Ok(());
        }
        // The end of its input.
        drop(child.stdin.take());
        self.hook.end(child)
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        // Who drops it has told another failure.
        let _ = self.now();
    }
}

#[cfg(test)]
#[path = "hooks_test.rs"]
mod tests;
