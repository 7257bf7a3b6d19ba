//! Signals as events for the main loop, like those of the control socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A request by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: end.
    End,
    /// SIGUSR1: write the counters to the log.
    Stats,
    /// SIGHUP: read the settings again.
    Reload,
}

/// Readable when a signal came.
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals in this thread and in those that it starts from now on: call it before any is started.
    pub fn catch() -> io::Result<Signals> {
        // SAFETY: an all-zero sigset_t is a valid value to initialise; the calls get pointers to it that live long enough.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if blocked != 0 {
                return Err(io::Error::from_raw_os_error(blocked));
            }
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next signal that came, if any.
    pub fn next(&self) -> Option<Signal> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.fd, &mut record).ok()?;
        // ssi_signo is the record's first field.
        let number = u32::from_ne_bytes(record.get(..4).filter(|_| read == record.len())?.try_into().ok()?);
        match number.cast_signed() {
            libc::SIGTERM | libc::SIGINT => Some(Signal::End),
            libc::SIGUSR1 => Some(Signal::Stats),
            libc::SIGHUP => Some(Signal::Reload),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signals({})", self.fd.as_raw_fd())
    }
}
