//! Other processes, from /proc. Reads only files that can be read even if the process hangs. And the descriptors of this one.

use crate::paths;
use rowen_control::status::Process;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process, and what it does at this moment.
pub fn see(pid: u32) -> Process {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Process { pid, state: name_and_state(&stat).map(|(_, state)| state) }
}

/// A process's name and the letter of its state.
fn name_and_state(stat: &str) -> Option<(&str, char)> {
    let (name, rest) = (stat.split_once('(')?.1).rsplit_once(')')?;
    Some((name, rest.trim_start().chars().next()?))
}

/// Closes what these descriptors of this process are of. Their numbers stay taken, by /dev/null, so that no thread that
/// still uses one meets another file.
pub fn replace_by_null(descriptors: &[RawFd]) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for descriptor in descriptors.iter().filter(|descriptor| **descriptor != null.as_raw_fd()) {
        // SAFETY: plain numbers; whoever owns one of them owns /dev/null from here on.
        if unsafe { libc::dup3(null.as_raw_fd(), *descriptor, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The descriptors of this process, without the standard ones, of what has such a name.
pub fn descriptors(is_wanted: impl Fn(&str) -> bool) -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let wanted =
        entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| is_wanted(&to.to_string_lossy())));
    wanted.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|number| *number > 2).collect()
}

/// A thread of this process.
pub struct Thread {
    /// What it does, as a letter (proc(5)).
    pub state: char,
    /// The time that it has had from the processors, in clock ticks.
    pub ticks: u64,
}

/// A thread of this process, by its number.
pub fn thread(number: i32) -> Option<Thread> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{number}/stat")).ok()?;
    let (_, state) = name_and_state(&stat)?;
    Some(Thread { state, ticks: field(&stat, 14)? + field(&stat, 15)? })
}

/// A number in a line of `stat`, counted from 1 as proc(5) does; one behind the name.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

/// So many clock ticks of /proc are a second.
const TICKS: u64 = 100;

/// When a process was started, in seconds since the boot.
fn started(stat: &str) -> Option<u64> {
    Some(field(stat, 22)? / TICKS)
}

fn uptime() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(['.', ' ']).next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

/// A helper is started as /proc/self/exe, which gives it this name.
const HELPER: &str = "exe";
/// A helper of this age in seconds hangs.
const OLD: u64 = 10;

/// How many helpers hang in the kernel.
pub fn stuck_helpers() -> usize {
    stuck(HELPER, OLD)
}

/// How many processes of this name, and at least so old, wait in the kernel, where nothing ends them. Those of other users do not
/// count, nor those of other run directories.
fn stuck(name: &str, age: u64) -> usize {
    let user = rustix::process::geteuid().as_raw();
    let born_before = uptime().saturating_sub(age);
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let is_stuck = |stat: String| {
        name_and_state(&stat) == Some((name, 'D')) && started(&stat).is_some_and(|started| started < born_before)
    };
    let is_ours = |process: &Path| {
        std::fs::metadata(process).is_ok_and(|directory| directory.uid() == user) && paths::is_of_this_instance(process)
    };
    let found = processes
        .map(|entry| entry.path())
        .filter(|process| std::fs::read_to_string(process.join("stat")).is_ok_and(is_stuck) && is_ours(process));
    found.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name_and_a_state() {
        assert_eq!(name_and_state("12 (a (b) c) D 1 2"), Some(("a (b) c", 'D')));
        assert_eq!(name_and_state(""), None);
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(started(&stat).is_some_and(|started| started > 0 && started <= uptime()), "{stat}");
        let (own, thread) = (see(std::process::id()), thread(rustix::thread::gettid().as_raw_nonzero().get()).unwrap());
        assert!(thread.state == 'R' && thread.ticks < 1_000_000);
        assert!(matches!(own.state, Some('R' | 'S')), "{own:?}");
    }
}
