//! Addresses of a group's sockets. The kernel accepts addresses of 107 bytes, but a group's name alone may have 127. A
//! longer path is reached through a descriptor of its directory.

use rustix::fs::{Mode, OFlags};
use rustix::net::SocketAddrUnix;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The longest address, without its terminating zero.
const LONGEST: usize = 107;

/// A path that is short enough for a socket. It leads to the requested one as long as this value exists.
pub struct Reach {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl Reach {
    /// A short path to `path`, whose directory must exist.
    pub fn of(path: PathBuf) -> io::Result<Reach> {
        if path.as_os_str().len() <= LONGEST {
            return Ok(Reach { path, _directory: None });
        }
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(Reach { path, _directory: Some(directory) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same as an address.
    pub fn address(&self) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(&self.path)?)
    }
}

/// The process that listens at the other end, even if it does not answer.
pub fn peer(socket: impl AsFd) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Reach};
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_at_a_long_path_is_bound_and_found() {
        let top = std::env::temp_dir().join(format!("rowen-sockets-{}", std::process::id()));
        let left = LONGEST - top.as_os_str().len() - "//control.sock".len();
        for length in [3, left, left + 1, left + 2, 127] {
            let directory = top.join("g".repeat(length));
            std::fs::create_dir_all(&directory).unwrap();
            let path = directory.join("control.sock");
            let listener = UnixListener::bind(Reach::of(path.clone()).unwrap().path()).unwrap();
            assert!(path.exists());
            let mut caller = UnixStream::connect(Reach::of(path).unwrap().path()).unwrap();
            caller.write_all(b"x").unwrap();
            let mut heard = [0];
            listener.accept().unwrap().0.read_exact(&mut heard).unwrap();
            assert_eq!(heard, *b"x");
        }
        let gone = Reach::of(top.join("h".repeat(127)).join("control.sock"));
        assert_eq!(gone.err().map(|e| e.kind()), Some(std::io::ErrorKind::NotFound));
        std::fs::remove_dir_all(top).unwrap();
    }
}
