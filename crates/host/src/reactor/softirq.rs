//! Having the kernel finish what an answer set in motion.
//!
//! An answer to a FUSE request completes a request of the loop device. The kernel leaves the last step of that, which
//! wakes the application, to a soft interrupt; raised by a system call it waits for the kernel's own thread, and that
//! thread waits until this worker sleeps or its time is up. But any system call that leaves a section closed to soft
//! interrupts runs those that wait. Setting an option of a socket is the cheapest of these: a fifth of a microsecond,
//! against two switches of tasks.
//!
//! It promises nothing: where a kernel does not do so, the answer takes its usual way.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::cell::Cell;
use std::os::fd::OwnedFd;

thread_local! {
    static RAISED: Cell<bool> = const { Cell::new(false) };
}

/// This worker answered the kernel.
pub(crate) fn raised() {
    RAISED.set(true);
}

/// A worker's means to have soft interrupts run. Without a socket it does nothing.
pub(crate) struct Softirqs(Option<OwnedFd>);

impl Softirqs {
    pub fn new() -> Softirqs {
        Softirqs(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok())
    }

    /// Has those run that this worker's answers raised since the last time.
    pub fn run(&self) {
        if RAISED.replace(false)
            && let Some(socket) = &self.0
        {
            // Whether the option can be set does not matter.
            let _ = sockopt::set_socket_reuseaddr(socket, false);
        }
    }
}
