//! A command's end of the control socket.

use super::start::{ensure_running, late};
use crate::sockets::Reach;
use crate::{paths, patience};
use parking_lot::Mutex;
use rowen_control::protocol::{self, Caller, ErrorKind, Outcome, Request};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The command that this process is carrying out; LVM's shell does one after the other.
static CALLER: Mutex<Option<Caller>> = Mutex::new(None);

/// Tells what command this process is; what it asks of servers from now on is asked in that name.
pub fn introduce(caller: Caller) {
    *CALLER.lock() = Some(caller);
}

/// A connection to a group's server.
#[derive(Debug)]
pub struct Client {
    group: String,
    stream: UnixStream,
}

/// How often a command turns to the next server when the one it met is ending.
const TURNS: usize = 8;

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// No server runs, or the one that ran is ending.
    NotRunning,
    /// The server does not want this client; its words.
    Refused {
        kind: ErrorKind,
        message: String,
    },
    /// It does not answer in the time that this command has (PA1).
    Late,
    Io(io::Error),
}

fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        NotFound | ConnectionRefused | ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof
    )
}

/// A connection to a socket. The queue of connections may be full, and nobody take one from it.
fn connect(reach: &Reach) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, patience::for_server())?;
    rustix::net::connect(&socket, &reach.address()?)?;
    Ok(socket.into())
}

/// Whether a socket's time was up.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// How long a server may take to answer an upgrade: it waits for changes under way.
const UPGRADE_ANSWERS: Duration = Duration::from_secs(30);

/// A connection that speaks the stable part of the protocol, to a server of whatever version.
pub struct Stable(Client);

impl Stable {
    /// With the connection, which notes the server leaves, and which it understands.
    pub fn connect(group: &str) -> Result<(Stable, u32, u32), ConnectError> {
        let (client, greeting) = Client::greet(group, protocol::STABLE)?;
        client.stream.set_read_timeout(Some(UPGRADE_ANSWERS)).map_err(ConnectError::Io)?;
        match greeting {
            Outcome::Hello { notes, oldest_notes, .. } => Ok((Stable(client), notes, oldest_notes)),
            other => Err(ConnectError::Io(io::Error::other(format!("it answered {other:?}")))),
        }
    }

    /// Carries out one request.
    pub fn request(&mut self, request: &Request) -> io::Result<Outcome> {
        self.0.request(request)
    }
}

impl Client {
    /// Connects and agrees on the protocol's version.
    pub fn connect(group: &str) -> Result<Client, ConnectError> {
        Client::greet(group, protocol::VERSION).map(|(client, _)| client)
    }

    fn greet(group: &str, version: u32) -> Result<(Client, Outcome), ConnectError> {
        let absent = |e: io::Error| match e {
            e if is_absence(&e) => ConnectError::NotRunning,
            e if is_late(&e) => ConnectError::Late,
            e => ConnectError::Io(e),
        };
        let reach = Reach::of(paths::control_socket(group)).map_err(absent)?;
        let stream = connect(&reach).map_err(absent)?;
        let mut client = Client { group: group.to_owned(), stream };
        match client.request(&Request::Hello { version, caller: CALLER.lock().clone().unwrap_or_default() }) {
            Ok(Outcome::Error { kind: ErrorKind::Closed, .. }) => Err(ConnectError::NotRunning),
            Ok(Outcome::Error { kind, message }) => Err(ConnectError::Refused { kind, message }),
            Ok(greeting) => Ok((client, greeting)),
            Err(e) => Err(absent(e)),
        }
    }

    /// Carries out one request and returns its final outcome.
    pub fn request(&mut self, request: &Request) -> io::Result<Outcome> {
        self.request_with(request, &mut |_| {})
    }

    /// The same, with a look at the news that come before the final outcome.
    pub fn request_with(&mut self, request: &Request, news: &mut dyn FnMut(&Outcome)) -> io::Result<Outcome> {
        protocol::write_request(&mut self.stream, request)?;
        loop {
            if let Some(left) = patience::for_server() {
                self.stream.set_read_timeout(Some(left))?;
            }
            match protocol::read_frame::<Outcome>(&mut self.stream)? {
                Some(interim) if interim.is_interim() => news(&interim),
                Some(outcome) => return Ok(outcome),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Sends one request to the group's server. If that server is ending, the next one gets the request. The same
    /// happens if a server dies during a request that only reads. If the connection breaks during any other request,
    /// the outcome says so.
    pub fn ask(&mut self, request: &Request, news: &mut dyn FnMut(&Outcome)) -> Outcome {
        for _ in 0..TURNS {
            match self.request_with(request, news) {
                // Neither was begun.
                Ok(Outcome::Error { kind: ErrorKind::Closed, .. }) => {}
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
                // Whether this one was begun is no matter.
                Err(e) if request.traits().is_repeatable && is_absence(&e) => {}
                Ok(outcome) => return outcome,
                Err(e) if is_late(&e) && patience::for_server().is_some() => return late(&self.group).into(),
                Err(e) => {
                    return Outcome::Error {
                        kind: ErrorKind::Closed,
                        message: format!(
                            "The server of volume group \"{}\" ended before it answered ({e}). Check whether it was \
                             done before you try again.",
                            self.group
                        ),
                    };
                }
            }
            match ensure_running(&self.group) {
                Ok(next) => *self = next,
                Err(failure) => return failure.into(),
            }
        }
        let message = format!("The server of volume group \"{}\" ends again and again; see its log.", self.group);
        Outcome::Error { kind: ErrorKind::Closed, message }
    }
}
