//! A server's side of the keeper.

use super::wire::{self, Entry, Message, Progress, Versions};
use crate::paths;
use crate::processes;
use crate::programs::Program;
use crate::sockets::{self, Reach};
use rowen_control::status::KeeperSeen;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a keeper may take to answer a command: a rehearsal takes seconds at most.
const ANSWERS: Duration = Duration::from_secs(10);

/// A connection to the group's keeper. If it is dropped without [`Client::bye`] (as when the process dies), the keeper
/// starts another server, if it keeps any descriptor. Calls block for less than a millisecond.
pub struct Client {
    group: String,
    /// What to start keepers with; none: this program.
    program: Option<PathBuf>,
    socket: OwnedFd,
    took_over: Cell<bool>,
    /// Copies of the kept descriptors, taken when this process prepared to be a successor, in case the keeper has died
    /// at the takeover (UP2).
    spare: RefCell<Vec<(Entry, OwnedFd)>>,
}

impl Client {
    /// Connects to the group's keeper, starting one first if none runs. From here on, this process is the server.
    pub fn connect_or_start(group: &str) -> io::Result<Client> {
        Client::find(None, group, false)
    }

    /// The same for a keeper (and servers started by it) of another program than this one: `program keeper VG` and
    /// `program serve VG`.
    pub fn connect_or_start_by(program: &Path, group: &str) -> io::Result<Client> {
        Client::find(Some(program), group, false)
    }

    /// A connection of a process that will be the server after the current one has ended. It has copies of all kept
    /// descriptors.
    pub(crate) fn prepare(group: &str) -> io::Result<Client> {
        let (took_over, spare) = (Cell::new(false), RefCell::default());
        let client = Client { group: group.into(), program: None, socket: connect(group)?, took_over, spare };
        if !crate::planted::is("successor_without_copies") {
            let held = client.held()?;
            *client.spare.borrow_mut() = held;
        }
        Ok(client)
    }

    /// This process is ready to be the server, except for the disks.
    pub(crate) fn send_ready(&self) -> io::Result<()> {
        self.ask(&Message::Ready, None)
    }

    /// The old server has ended: this process is the server from here on. A keeper that is gone is started again.
    pub(crate) fn become_server(self) -> io::Result<Client> {
        match self.send_serve() {
            Err(e) if is_absent(&e) => self.reconnect(),
            said => said.map(|()| self),
        }
    }

    /// Waits so long for the keeper's end: whether it is gone.
    pub(crate) fn is_gone_within(&self, time: Duration) -> bool {
        let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        poll(&mut polled, Some(&time)).is_ok_and(|ready| ready > 0)
    }

    fn find(program: Option<&Path>, group: &str, took_over: bool) -> io::Result<Client> {
        let mut tries = 0;
        loop {
            match Client::connect_as_server(program, group, took_over) {
                Ok(client) => return Ok(client),
                Err(e) if tries < 5 && is_absent(&e) => start(program, group)?,
                Err(e) => return Err(e),
            }
            tries += 1;
        }
    }

    /// A connection to the keeper that took this one's place, or to a new one.
    pub(crate) fn reconnect(&self) -> io::Result<Client> {
        let client = Client::find(self.program.as_deref(), &self.group, self.took_over.get())?;
        client.spare.replace(self.spare.take());
        Ok(client)
    }

    fn connect_as_server(program: Option<&Path>, group: &str, took_over: bool) -> io::Result<Client> {
        let (took_over, spare) = (Cell::new(took_over), RefCell::default());
        let program = program.map(Path::to_owned);
        let client = Client { group: group.into(), program, socket: connect(group)?, took_over, spare };
        client.send_serve()?;
        Ok(client)
    }

    /// Says (again) that this process is the server: whether the keeper is there.
    pub(crate) fn send_serve(&self) -> io::Result<()> {
        self.ask(&Message::Serve { took_over: self.took_over.get() }, None)
    }

    /// This process serves all that was kept: the keeper does not count it as failed (K5).
    pub fn send_took_over(&self) -> io::Result<()> {
        self.took_over.set(true);
        self.send_serve()
    }

    /// Everything that is kept, with descriptors of our own.
    pub fn held(&self) -> io::Result<Vec<(Entry, OwnedFd)>> {
        let spare = self.spare.take();
        match self.list() {
            Err(e) if is_absent(&e) && !spare.is_empty() => Ok(spare),
            // A keeper that was started again keeps nothing yet.
            Ok(listed) if listed.is_empty() => {
                spare.iter().try_for_each(|(entry, fd)| self.hold(entry, fd.as_fd()))?;
                Ok(spare)
            }
            listed => listed,
        }
    }

    fn list(&self) -> io::Result<Vec<(Entry, OwnedFd)>> {
        wire::send(&self.socket, &Message::List, None, SendFlags::empty())?;
        let mut held = Vec::new();
        loop {
            match self.answer()? {
                (Message::Held(entry), Some(fd)) => held.push((entry, fd)),
                (Message::Done, _) => return Ok(held),
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    /// Makes the keeper keep `fd` under `entry.file`. Replaces an older one.
    pub fn hold(&self, entry: &Entry, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(&Message::Hold(entry.clone()), Some(fd))
    }

    /// Makes the keeper close the descriptor under `file`.
    pub fn release(&self, file: &str) -> io::Result<()> {
        self.ask(&Message::Release(file.into()), None)
    }

    /// The group has another name from now on: servers are started by it.
    pub fn rename(&self, group: &str) -> io::Result<()> {
        self.ask(&Message::Rename(group.into()), None)
    }

    /// Ends the keeper; refused while it keeps anything.
    pub fn bye(self) -> io::Result<()> {
        self.send_bye()
    }

    /// This process ends on purpose, and a successor takes over. For its last act: an older keeper takes this message
    /// for the end. The process has read no requests since then. `stays`: it may hang in its end.
    pub(crate) fn send_hand_over(&self, since: Option<Instant>, stays: bool) -> io::Result<()> {
        let paused = since.map(|since| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.ask(&Message::HandOver { paused, stays }, None)
    }

    pub(crate) fn send_bye(&self) -> io::Result<()> {
        self.ask(&Message::Bye, None)
    }

    /// A descriptor that becomes readable when the keeper is gone.
    pub fn watch(&self) -> io::Result<OwnedFd> {
        let socket = connect(&self.group)?;
        wire::send(&socket, &Message::Watch, None, SendFlags::empty())?;
        Ok(socket)
    }

    fn ask(&self, message: &Message, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        match converse(&self.socket, message, fd)? {
            Message::Done => Ok(()),
            Message::Refused(why) => Err(io::Error::other(why)),
            other => Err(unexpected(&other)),
        }
    }

    fn answer(&self) -> io::Result<(Message, Option<OwnedFd>)> {
        answer(&self.socket)
    }
}

fn answer(socket: &OwnedFd) -> io::Result<(Message, Option<OwnedFd>)> {
    let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the keeper ended");
    wire::receive(socket.as_fd(), RecvFlags::empty())?.ok_or_else(gone)
}

fn converse(socket: &OwnedFd, message: &Message, fd: Option<BorrowedFd<'_>>) -> io::Result<Message> {
    wire::send(socket, message, fd, SendFlags::empty())?;
    Ok(answer(socket)?.0)
}

/// A command's connection to the keeper, for an upgrade. Dropped while the old server serves, it ends the upgrade.
pub struct Upgrader {
    socket: OwnedFd,
}

impl Upgrader {
    /// None: the group has no keeper.
    pub fn connect(group: &str) -> io::Result<Option<Upgrader>> {
        match connect(group) {
            Ok(socket) => {
                rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(ANSWERS))?;
                Ok(Some(Upgrader { socket }))
            }
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The keeper's process.
    pub fn process(&self) -> Option<u32> {
        sockets::peer(&self.socket)
    }

    /// Which versions the keeper speaks; none: it is of a version that knows no upgrade, and has ended this connection.
    pub fn versions(&self) -> io::Result<Option<Versions>> {
        match converse(&self.socket, &Message::Versions, None) {
            Ok(Message::Speaks(versions)) => Ok(Some(versions)),
            Ok(Message::Refused(_)) => Ok(None),
            Ok(other) => Err(unexpected(&other)),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Starts to replace keeper and server by that program. An error: nothing was changed, and why.
    pub fn begin(&self, program: &Program) -> io::Result<()> {
        match converse(&self.socket, &Message::Upgrade(Versions::OWN), Some(program.as_fd()))? {
            Message::Done => Ok(()),
            Message::Refused(why) => Err(io::Error::other(why)),
            other => Err(unexpected(&other)),
        }
    }

    /// How far it is.
    pub fn progress(&self) -> io::Result<Progress> {
        match converse(&self.socket, &Message::Progress, None)? {
            Message::Upgrading(progress) => Ok(progress),
            other => Err(unexpected(&other)),
        }
    }

    /// It is not to be, if the old server still serves.
    pub fn abandon(&self) -> io::Result<()> {
        converse(&self.socket, &Message::Abandon, None).map(drop)
    }
}

/// No keeper, or one that was just about to end.
pub(crate) fn is_absent(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(e.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected | NotFound)
}

/// Whether the group has a keeper.
pub(crate) fn is_there(group: &str) -> io::Result<bool> {
    match connect(group) {
        Ok(_) => Ok(true),
        Err(e) if is_absent(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The group's keeper. Waits for at most `limit`. A keeper that does not answer, or of an older version, is reported,
/// too.
pub fn query(group: &str, limit: Duration) -> Option<KeeperSeen> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    match rustix::net::connect(&socket, &Reach::of(super::socket_path(group)).ok()?.address().ok()?) {
        Ok(()) => {}
        // So many wait for its answer already that there is no room for another.
        Err(Errno::AGAIN) => return Some(KeeperSeen { answer: None, process: processes::see(logged(group)?) }),
        Err(_) => return None,
    }
    let pid = sockets::peer(&socket)?;
    let ask = || {
        wire::send(&socket, &Message::Tell, None, SendFlags::empty()).ok()?;
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit)).ok()?;
        match wire::receive(&socket, RecvFlags::DONTWAIT) {
            Ok(Some((Message::Told(answer), _))) => Some(answer),
            _ => None,
        }
    };
    Some(KeeperSeen { answer: ask(), process: processes::see(pid) })
}

/// The last keeper's process, by its log.
fn logged(group: &str) -> Option<u32> {
    let log = std::fs::read_to_string(super::log_path(group)).ok()?;
    log.lines().rev().find_map(|line| line.split_once(" started, process ")?.1.parse().ok())
}

/// Makes the group's keeper give all descriptors to the service manager again (K6). A missing keeper has none, and an
/// older one does not support this.
pub(crate) fn store_again(group: &str) {
    if let Ok(socket) = connect(group) {
        let _knows = converse(&socket, &Message::Store, None);
    }
}

/// Tells the keeper that is in the directory of `group` that this is the group's name. A keeper that is not there need not
/// know.
pub(crate) fn send_name(group: &str) -> io::Result<()> {
    let sent = connect(group).and_then(|socket| {
        let (took_over, spare) = (Cell::new(false), RefCell::default());
        let client = Client { group: group.into(), program: None, socket, took_over, spare };
        client.rename(group)
    });
    match sent {
        Err(e) if !is_absent(&e) => Err(e),
        _ => Ok(()),
    }
}

fn unexpected(message: &Message) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the keeper answered {message:?}"))
}

fn connect(group: &str) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &Reach::of(super::socket_path(group))?.address()?)?;
    Ok(socket)
}

/// Starts `rowen keeper VG`, which returns once its daemon takes connections.
fn start(program: Option<&Path>, group: &str) -> io::Result<()> {
    paths::make_private_dir(&paths::group_dir(group))?;
    // Not by name: an upgrade may have put another version there.
    let own = Program::own()?;
    let (program, mut command) = match program {
        Some(path) => (path.to_owned(), Command::new(path)),
        None => (own.path(), own.command()),
    };
    let started = command
        .env_remove(super::SUCCESSOR)
        .arg("keeper")
        .arg(group)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    if started.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&started.stderr);
    Err(io::Error::other(format!("{} keeper {group} failed ({}): {}", program.display(), started.status, why.trim())))
}
