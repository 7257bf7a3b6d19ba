//! The control socket: who may connect, how much they may send, and how long they may take.
//!
//! * EN1 Closing the socket waits for running commands for a limited time, and then returns those that still run.
//!
//! Only root gets an answer. A client that sends garbage, too much, or nothing costs one thread for a short time, and
//! disturbs no other client. A running request is answered before the server ends. A request that comes too late gets
//! [`ErrorKind::Closed`], or fails while it is being sent (a broken pipe).

use super::log;
use crate::sockets::{self, Reach};
use crate::{paths, planted};
use parking_lot::{Condvar, Mutex};
use rowen_control::history::What;
use rowen_control::protocol::{self, Caller, ErrorKind, Outcome, Request};
use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More clients than this at once are turned away.
const MAX_CLIENTS: usize = 128;
/// How long a client may take to send its first request, and to read an answer.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// How long a client may be silent between two requests.
const SILENCE: Duration = Duration::from_secs(60);

/// Handles requests. It is called from several threads at once.
pub trait Handler: Send + Sync + 'static {
    /// Carries out the `request` of `caller`. `progress` sends interim outcomes before the final one.
    fn handle(&self, request: Request, caller: &Caller, progress: &mut dyn FnMut(Outcome)) -> Outcome;
}

struct ClientState {
    stream: UnixStream,
    /// The command whose request is being carried out.
    busy: Option<String>,
}

#[derive(Default)]
struct Clients {
    open: HashMap<u64, ClientState>,
    next: u64,
    closing: bool,
    last_left: Option<Instant>,
}

struct Shared {
    clients: Mutex<Clients>,
    left: Condvar,
}

/// The bound socket and its clients.
pub struct Listener {
    group: String,
    socket: UnixListener,
    shared: Arc<Shared>,
    handler: Arc<dyn Handler>,
}

impl Listener {
    /// Binds the group's control socket. The caller is the group's only server, so an existing socket is stale.
    pub fn bind(group: &str, handler: Arc<dyn Handler>) -> io::Result<Listener> {
        let path = paths::control_socket(group);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = UnixListener::bind(Reach::of(path.clone())?.path())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        let clients = Clients { last_left: Some(Instant::now()), ..Clients::default() };
        let shared = Arc::new(Shared { clients: Mutex::new(clients), left: Condvar::new() });
        Ok(Listener { group: group.to_owned(), socket, shared, handler })
    }

    /// Accepts all waiting clients.
    pub fn accept(&self) {
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    log::warning(format_args!("cannot take in a client: {e}"));
                    // Out of descriptors, most likely: leave time for some to be closed.
                    std::thread::sleep(Duration::from_millis(50));
                    return;
                }
            }
        }
    }

    fn admit(&self, stream: UnixStream) {
        if !is_root(&stream) {
            return;
        }
        let registered = stream.set_nonblocking(false).and_then(|()| stream.try_clone());
        let Ok(for_shutdown) = registered else { return };
        let id = {
            let mut clients = self.shared.clients.lock();
            if clients.open.len() >= MAX_CLIENTS {
                drop(clients);
                refuse(stream, "The server has too many clients; try again.");
                return;
            }
            clients.next += 1;
            let id = clients.next;
            clients.open.insert(id, ClientState { stream: for_shutdown, busy: None });
            id
        };
        let guard = Registered { id, shared: self.shared.clone() };
        let handler = self.handler.clone();
        let group = self.group.clone();
        let started = std::thread::Builder::new().name("rowen-client".into()).spawn(move || {
            // A client that breaks off or sends garbage only ends its own connection.
            let _ = converse(&stream, &group, &guard, &*handler);
        });
        if let Err(e) = started {
            log::warning(format_args!("cannot start a thread for a client: {e}"));
        }
    }

    /// How long there has been no client. None: there is one.
    pub fn idle(&self) -> Option<Duration> {
        let clients = self.shared.clients.lock();
        if clients.open.is_empty() { clients.last_left.map(|since| since.elapsed()) } else { None }
    }

    /// Takes no more requests, and waits until running ones are answered, or until the deadline. Returns the commands
    /// that still run. New connections find no socket.
    pub fn close(self, until: Instant) -> Vec<String> {
        // The name is removed first, so that no client connects to a socket without answers.
        let _ = std::fs::remove_file(paths::control_socket(&self.group));
        drop(self.socket);
        let mut clients = self.shared.clients.lock();
        clients.closing = true;
        for client in clients.open.values().filter(|client| client.busy.is_none()) {
            // Requests that were sent before are still read and answered. Later ones cannot be sent.
            let _ = client.stream.shutdown(Shutdown::Read);
        }
        while !clients.open.is_empty() {
            if self.shared.left.wait_until(&mut clients, until).timed_out() && !planted::is("waits_for_commands") {
                break;
            }
        }
        // A client that reads its answer slowly delays nothing else.
        clients.open.values().filter_map(|client| client.busy.clone()).collect()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_root(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root())
}

fn refuse(mut stream: UnixStream, why: &str) {
    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
    let answer = Outcome::Error { kind: ErrorKind::Denied, message: why.to_owned() };
    let _ = protocol::write_frame(&mut stream, &answer);
}

/// A client's entry in the table, removed when its thread ends.
struct Registered {
    id: u64,
    shared: Arc<Shared>,
}

impl Registered {
    /// Marks whether a request is running. False: the server is closing and accepts no more.
    fn set_busy(&self, busy: Option<String>) -> bool {
        let mut clients = self.shared.clients.lock();
        if clients.closing {
            return false;
        }
        if let Some(client) = clients.open.get_mut(&self.id) {
            client.busy = busy;
        }
        true
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut clients = self.shared.clients.lock();
        clients.open.remove(&self.id);
        clients.last_left = Some(Instant::now());
        self.shared.left.notify_all();
    }
}

fn converse(stream: &UnixStream, group: &str, place: &Registered, handler: &dyn Handler) -> io::Result<()> {
    stream.set_write_timeout(Some(SILENCE))?;
    stream.set_read_timeout(Some(FIRST_WORD))?;
    let mut writer = stream;
    let Some(first) = next_request(stream)? else { return Ok(()) };
    if !place.set_busy(Some("a greeting".into())) {
        return protocol::write_frame(&mut writer, &too_late(group));
    }
    let is_stable = matches!(first, Request::Hello { version: protocol::STABLE, .. });
    let (caller, greeting) = greet(first, group);
    let pid = sockets::peer(stream).unwrap_or(0);
    let caller = caller.map(|caller| Caller { pid, ..caller });
    protocol::write_frame(&mut writer, &greeting)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let Some(caller) = caller else { return Ok(()) };
    loop {
        if !place.set_busy(None) {
            // The server began to close while this client was busy, and did not close its stream. Reads what the client
            // has sent; without this the server would wait until the client sends something.
            let _ = stream.shutdown(Shutdown::Read);
        }
        let Some(request) = next_request(stream)? else { return Ok(()) };
        if !place.set_busy(Some(described(&request, &caller))) {
            return protocol::write_frame(&mut writer, &too_late(group));
        }
        if is_stable && !matches!(request, Request::Upgrade { .. }) {
            let message = "The stable part of the control protocol does not have this request.".to_owned();
            return protocol::write_frame(&mut writer, &Outcome::Error { kind: ErrorKind::Version, message });
        }
        let outcome = answer(handler, request, &caller, &mut |news| drop(protocol::write_frame(&mut writer, &news)));
        protocol::write_outcome(&mut writer, &outcome)?;
    }
}

/// A description of a request, for a user who searches for a hung command.
fn described(request: &Request, caller: &Caller) -> String {
    let command = if caller.command.is_empty() { request.word() } else { caller.command.clone() };
    format!("\"{command}\" (process {})", caller.pid)
}

fn too_late(group: &str) -> Outcome {
    let message = format!("Volume group \"{group}\" is shutting down; try again.");
    Outcome::Error { kind: ErrorKind::Closed, message }
}

/// The next request. None: the client is done. An unreadable frame is answered and ends the connection.
fn next_request(mut stream: &UnixStream) -> io::Result<Option<Request>> {
    protocol::read_frame::<Request>(&mut stream).or_else(|e| {
        if e.kind() == io::ErrorKind::InvalidData {
            let message = format!("The server cannot read this request: {e}.");
            protocol::write_frame(&mut stream, &Outcome::Error { kind: ErrorKind::Invalid, message })?;
        }
        Err(e)
    })
}

/// The answer to a client's first request, and the caller if it may send more.
fn greet(first: Request, group: &str) -> (Option<Caller>, Outcome) {
    let refused = |kind, message| (None, Outcome::Error { kind, message });
    match first {
        Request::Hello { version: protocol::VERSION | protocol::STABLE, caller } => {
            let (group, pid) = (group.to_owned(), std::process::id());
            let (notes, oldest_notes) = (protocol::NOTES, protocol::OLDEST_NOTES);
            (Some(caller), Outcome::Hello { version: protocol::VERSION, group, pid, notes, oldest_notes })
        }
        Request::Hello { version, .. } => refused(
            ErrorKind::Version,
            format!(
                "The server of volume group \"{group}\" speaks version {} of the control protocol and the command \
                 version {version}; replace the server by this version of rowen: rowen upgrade {group}",
                protocol::VERSION
            ),
        ),
        _ => refused(ErrorKind::Invalid, "The first request of a connection must be a greeting.".to_owned()),
    }
}

/// A panic in one request is a bug of that request. The volumes are still served.
fn answer(handler: &dyn Handler, request: Request, caller: &Caller, progress: &mut dyn FnMut(Outcome)) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| handler.handle(request, caller, progress))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        log::event(What::Bug, format_args!("a request ended in a panic: {text}"));
        let message = format!("The server met a bug of its own ({text}); see its log.");
        Outcome::Error { kind: ErrorKind::Internal, message }
    })
}
