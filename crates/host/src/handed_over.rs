//! A socket that systemd made, listens at, and hands to the process that it starts for it (sd_listen_fds(3)).

use rustix::io::FdFlags;
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Where such descriptors begin.
const FIRST: i32 = 3;

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The one TCP socket that was handed to this process. It can be taken once.
pub fn listener() -> io::Result<TcpListener> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("LISTEN_PID") != std::process::id().to_string() || IS_TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::Error::other("it made none for this process"));
    }
    let count = variable("LISTEN_FDS");
    if count != "1" {
        return Err(io::Error::other(format!("one is expected, and {count} were made")));
    }
    // SAFETY: who started this process says that the descriptor is there and is this process' (LISTEN_PID), and nobody else takes
    // it: IS_TAKEN. If it lies, the calls below fail.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    if !rustix::net::sockopt::socket_acceptconn(&socket)? {
        return Err(io::Error::other("nobody can connect to it"));
    }
    let listener = TcpListener::from(socket);
    // That it is one of TCP.
    listener.local_addr()?;
    Ok(listener)
}
