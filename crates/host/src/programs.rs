//! Programs as descriptors: a running program can be started again, even if its file was replaced.
//!
//! * BT1 What an initramfs started for the root filesystem (`ROWEN_SURVIVES` in its environment) lives until the machine
//!   is off. systemd kills no process at shutdown whose first argument begins with `@`, so those of all its processes do.
//!   They execute no program but the one in memory: another would lie on a volume that they serve themselves.

use crate::planted;
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name that a process has in lists of processes, however it was started.
const NAME: &std::ffi::CStr = c"rowen";

/// A program that can be started for as long as this is kept.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// The one that this process executes.
    pub fn own() -> io::Result<Program> {
        Program::at(Path::new("/proc/self/exe"))
    }

    /// The one that is at this path now.
    pub fn at(path: &Path) -> io::Result<Program> {
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Program { fd })
    }

    /// The one that somebody sent.
    pub fn of(fd: OwnedFd) -> Program {
        Program { fd }
    }

    /// Where it was found, without what the kernel says of a file that was replaced.
    pub fn path(&self) -> PathBuf {
        let path = fs::read_link(self.through_proc()).unwrap_or_default();
        let text = path.to_string_lossy();
        text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), PathBuf::from)
    }

    fn through_proc(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Starts it, or becomes it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.through_proc());
        command.arg0(first_argument(self.path().as_os_str()));
        command
    }
}

/// Whether this process must live until the machine is off (BT1).
pub fn survives() -> bool {
    std::env::var_os("ROWEN_SURVIVES").is_some_and(|value| !value.is_empty())
}

/// By which a program is called that this process starts.
pub fn first_argument(program: &OsStr) -> OsString {
    let mut argument = OsString::from(if survives() && !planted::is("killed_with_all") { "@" } else { "" });
    argument.push(program);
    argument
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One that was executed by its descriptor is called by the descriptor's number until it says more.
pub fn take_name() {
    // A name is for people.
    let _ = rustix::thread::set_name(NAME);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_whose_file_was_replaced() {
        let dir = std::env::temp_dir().join(format!("rowen-programs-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("echo");
        fs::copy("/bin/echo", &path).unwrap();
        let program = Program::at(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "not a program").unwrap();
        assert_eq!(program.path(), path);
        let said = program.command().arg("here").output().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(said.stdout, b"here\n");
    }
}
