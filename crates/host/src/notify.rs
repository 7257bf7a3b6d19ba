//! What a service tells the service manager, over the socket that it was given (sd_notify(3)).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Where the service manager listens. A server that a command starts must not have it: it is the command's service's.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// Tells it, if there is one. Nobody waits for it.
pub fn tell(state: &str) -> io::Result<()> {
    match std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) {
        Some(socket) => send(&socket, state),
        None => Ok(()),
    }
}

/// All is as it should be. Not to be heard at once costs nothing.
pub fn alive() {
    let _again_soon = tell("WATCHDOG=1\n");
}

/// Nobody is to watch this service.
pub fn unwatched() {
    let _again_soon = tell("WATCHDOG_USEC=0\n");
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(Path::new(OsStr::from_bytes(path)))?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_at_a_path_and_at_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("rowen-notify-{}", std::process::id()));
        let at_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("rowen-notify-{}", std::process::id());
        let abstractly = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(&path.clone().into_os_string(), "READY=1\n").unwrap();
        send(&format!("@{name}").into(), "STOPPING=1\n").unwrap();
        let mut buffer = [0; 64];
        for (socket, expected) in [(&at_path, "READY=1\n"), (&abstractly, "STOPPING=1\n")] {
            socket.set_nonblocking(true).unwrap();
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected.as_bytes());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(send(&path.into_os_string(), "READY=1\n").is_err(), "nobody listens");
    }
}
