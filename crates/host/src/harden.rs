//! Protects a process that serves block devices from memory pressure.
//!
//! The kernel may need a server's I/O to free memory. So the server must not wait for free memory, not be paged out,
//! and not be killed when memory runs out. If the kernel refuses a setting (a container without the capability), that
//! is a warning, never a failure.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// linux/prctl.h; the same number on all architectures.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Marks this thread, and all that it starts later, as doing I/O on behalf of memory reclaim. Call it first in `main`.
fn io_flusher() -> std::io::Result<()> {
    // SAFETY: this prctl takes plain integers and touches no memory of ours.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn exempt_from_oom_killer() -> std::io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "-1000")
}

/// Raises the limit of open files to the maximum: each volume needs some.
pub fn raise_file_limit() -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

/// Hardens this process; call it first in `main`, before any thread is started. Returns what the system refused,
/// one sentence each, for the log.
pub fn harden() -> Vec<String> {
    let mut refused = Vec::new();
    if let Err(e) = io_flusher() {
        refused.push(format!("not exempt from waiting for memory reclaim (PR_SET_IO_FLUSHER): {e}"));
    }
    if let Err(e) = exempt_from_oom_killer() {
        refused.push(format!("not exempt from the out-of-memory killer: {e}"));
    }
    if let Err(e) = raise_file_limit() {
        refused.push(format!("cannot raise the limit of open files: {e}"));
    }
    // ONFAULT: pages are locked once used; the unused parts of stacks and caches cost nothing.
    if let Err(e) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        refused.push(format!("memory is not locked and may be paged out: {}", std::io::Error::from(e)));
    }
    refused
}
