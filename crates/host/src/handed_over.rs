//! Descriptors that systemd passes to the process that it starts (sd_listen_fds(3)): a listening socket, or descriptors
//! that an earlier process of the service stored.

use rustix::io::FdFlags;
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Where such descriptors begin.
const FIRST: i32 = 3;

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// All descriptors that were handed to this process, with their names. They can be taken once.
pub fn descriptors() -> Vec<(String, OwnedFd)> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("LISTEN_PID") != std::process::id().to_string() || IS_TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let count: i32 = variable("LISTEN_FDS").parse().unwrap_or(0);
    let names = variable("LISTEN_FDNAMES");
    let mut names = names.split(':');
    let mut taken = Vec::new();
    for number in FIRST..FIRST.saturating_add(count) {
        // SAFETY: only asked whether it is open, and made this program's own.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC).is_err() {
            break;
        }
        // SAFETY: it is open, who started this process says that it is this process' (LISTEN_PID), and nobody else takes it: IS_TAKEN.
        taken.push((names.next().unwrap_or_default().to_owned(), unsafe { OwnedFd::from_raw_fd(number) }));
    }
    taken
}

/// The one TCP socket that was handed to this process. It can be taken once.
pub fn listener() -> io::Result<TcpListener> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("LISTEN_PID") != std::process::id().to_string() || IS_TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::Error::other("it passed none to this process"));
    }
    let count = variable("LISTEN_FDS");
    if count != "1" {
        return Err(io::Error::other(format!("one was expected, and it passed {count}")));
    }
    // SAFETY: who started this process says that the descriptor is there and is this process' (LISTEN_PID), and nobody else takes
    // it: IS_TAKEN. If it lies, the calls below fail.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    if !rustix::net::sockopt::socket_acceptconn(&socket)? {
        return Err(io::Error::other("it does not listen"));
    }
    let listener = TcpListener::from(socket);
    // That it is one of TCP.
    listener.local_addr()?;
    Ok(listener)
}
