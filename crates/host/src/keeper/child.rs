//! A server that the keeper has started. It stays the keeper's child when the keeper executes another program.

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use std::io;
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// Readable when it has ended. Without it the keeper checks the child periodically.
    pub end: Option<OwnedFd>,
}

impl Child {
    /// A process that is this one's child and has not been waited for.
    pub fn of(pid: i32) -> Option<Child> {
        let pid = Pid::from_raw(pid)?;
        Some(Child { pid, end: pidfd_open(pid, PidfdFlags::empty()).ok() })
    }

    pub fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// How it has ended, in words. None: it is running.
    pub fn ended(&self) -> io::Result<Option<String>> {
        let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG)? else { return Ok(None) };
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit status: {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => return Ok(None),
        };
        Ok(Some(how))
    }

    pub fn kill(&self) {
        // If it has ended already, nothing is left to do.
        let _ = kill_process(self.pid, Signal::KILL);
    }
}
