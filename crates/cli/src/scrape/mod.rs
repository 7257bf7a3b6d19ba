//! `rowen metrics --listen`: two processes. The front ([`http`]) is an unprivileged HTTP server. It runs as nobody and
//! has only the listening socket and a socket to the other process. The other process runs as root, because only root
//! can ask the servers. It reads single bytes, each a request, and answers with the metrics. So an attacker who takes
//! over the front cannot reach the disks.

mod http;

use crate::backend::{Answer, Place, Scrapes, Trouble};
use crate::failure::exit;
use rowen_control::protocol::ErrorKind;
use rustix::fs::FileType;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The front's hidden argument.
const ROLE: &str = "metrics-front";
/// The user and the group nobody.
const NOBODY: u32 = 65534;

fn trouble(what: &str, error: &io::Error) -> Trouble {
    Trouble::other(ErrorKind::Io, format!("Cannot {what}: {error}."))
}

/// Listens there, and starts the front.
pub fn listen(at: Place) -> Answer<(String, Box<dyn Scrapes>)> {
    let listener = match at {
        Place::At(address) => TcpListener::bind(address).map_err(|e| trouble(&format!("listen at {address}"), &e))?,
        Place::HandedOver => {
            rowen_host::handed_over::listener().map_err(|e| trouble("take the socket that systemd made", &e))?
        }
    };
    let address = listener.local_addr().map_err(|e| trouble("listen", &e))?.to_string();
    let (socket, theirs) = UnixStream::pair().map_err(|e| trouble("make a socket", &e))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(ROLE).current_dir("/").env_clear();
    command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::from(OwnedFd::from(theirs)));
    if rustix::process::geteuid().is_root() {
        // This also drops supplementary groups.
        command.uid(NOBODY).gid(NOBODY);
    }
    let front = command.spawn().map_err(|e| trouble("start the process that answers", &e))?;
    Ok((address, Box::new(Front { socket, front })))
}

/// The front as the privileged process sees it.
struct Front {
    socket: UnixStream,
    front: Child,
}

impl Front {
    /// Without the front there are no more requests.
    fn ended(&mut self, error: &io::Error) -> Trouble {
        let how = self.front.try_wait().ok().flatten().map_or_else(|| error.to_string(), |status| status.to_string());
        Trouble::other(ErrorKind::Io, format!("The process that answers HTTP ended ({how})."))
    }
}

impl Scrapes for Front {
    fn wait(&mut self) -> Answer<()> {
        self.socket.read_exact(&mut [0]).map_err(|e| self.ended(&e))
    }

    fn answer(&mut self, text: &str) -> Answer<()> {
        let sent = http::send(&mut self.socket, text.as_bytes());
        sent.map_err(|e| self.ended(&e))
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // The front also ends when the socket closes.
        let _may_have_ended = self.front.kill();
        let _reaped = self.front.wait();
    }
}

/// Whether this process was started as a front. A user cannot start one.
pub fn is_front(words: &[String]) -> bool {
    let is_socket = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_socket();
    matches!(words, [role] if role == ROLE) && rustix::fs::fstat(io::stdin()).is_ok_and(is_socket)
}

/// Becomes the front. Returns the exit code.
pub fn front() -> u8 {
    let begin = || -> io::Result<()> {
        let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
        let socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
        http::serve(listener, socket)
    };
    match begin() {
        Ok(()) => exit::OK,
        Err(e) => {
            let _nobody_reads = writeln!(io::stderr(), "Metrics are not served any more: {e}.");
            exit::FAILED
        }
    }
}
