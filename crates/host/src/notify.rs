//! Notifications to the service manager, over its socket (sd_notify(3)).

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;

/// Where the service manager listens. A server that a command starts must not have it: it is the command's service's.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// Tells it, if there is one. Nobody waits for it.
pub fn notify(state: &str) -> io::Result<()> {
    match socket() {
        Some(socket) => send(&socket, state, &[]),
        None => Ok(()),
    }
}

/// Whether there is one.
pub fn is_there() -> bool {
    socket().is_some()
}

/// The same with a descriptor, of which it gets a copy.
pub fn notify_with(state: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    match socket() {
        Some(socket) => send(&socket, state, &[fd]),
        None => Ok(()),
    }
}

fn socket() -> Option<OsString> {
    std::env::var_os(SOCKET).filter(|socket| !socket.is_empty())
}

/// All is as it should be. Not to be heard at once costs nothing.
pub fn alive() {
    let _again_soon = notify("WATCHDOG=1\n");
}

/// Nobody is to watch this service.
pub fn unwatched() {
    let _again_soon = notify("WATCHDOG_USEC=0\n");
}

fn send(socket: &OsString, state: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let sender = UnixDatagram::unbound()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg_addr(&sender, &address, &[IoSlice::new(state.as_bytes())], &mut control, flags)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    #[test]
    fn words_arrive_at_a_path_and_at_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("rowen-notify-{}", std::process::id()));
        let at_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("rowen-notify-{}", std::process::id());
        let abstractly = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(&path.clone().into_os_string(), "READY=1\n", &[]).unwrap();
        send(&format!("@{name}").into(), "STOPPING=1\n", &[]).unwrap();
        let mut buffer = [0; 64];
        for (socket, expected) in [(&at_path, "READY=1\n"), (&abstractly, "STOPPING=1\n")] {
            socket.set_nonblocking(true).unwrap();
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected.as_bytes());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(send(&path.into_os_string(), "READY=1\n", &[]).is_err(), "nobody listens");
    }
}
