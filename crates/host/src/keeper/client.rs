//! A server's side of the keeper.

use super::wire::{self, Entry, Message};
use crate::paths;
use crate::processes;
use crate::sockets::{self, Reach};
use rowen_control::status::KeeperSeen;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A connection to the group's keeper. Dropped without [`Client::bye`] (as when the process dies), it makes the keeper
/// start another server, provided that it keeps something. Calls block, for less than a millisecond.
pub struct Client {
    group: String,
    /// What to start keepers with.
    program: PathBuf,
    socket: OwnedFd,
    took_over: Cell<bool>,
}

impl Client {
    /// Connects to the group's keeper, starting it first when there is none. From here on, this process is the server.
    pub fn connect_or_start(group: &str) -> io::Result<Client> {
        Client::connect_or_start_by(&std::env::current_exe()?, group)
    }

    /// The same for a keeper (and servers started by it) of another program than this one: `program keeper VG` and
    /// `program serve VG`.
    pub fn connect_or_start_by(program: &Path, group: &str) -> io::Result<Client> {
        Client::find(program, group, false)
    }

    fn find(program: &Path, group: &str, took_over: bool) -> io::Result<Client> {
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
        Client::find(&self.program, &self.group, self.took_over.get())
    }

    fn connect_as_server(program: &Path, group: &str, took_over: bool) -> io::Result<Client> {
        let took_over = Cell::new(took_over);
        let client = Client { group: group.into(), program: program.into(), socket: connect(group)?, took_over };
        client.say_serve()?;
        Ok(client)
    }

    /// Says (again) that this process is the server: whether the keeper is there.
    pub(crate) fn say_serve(&self) -> io::Result<()> {
        self.ask(&Message::Serve { took_over: self.took_over.get() }, None)
    }

    /// This process serves all that was kept: the keeper does not count it as failed (K5).
    pub fn say_took_over(&self) -> io::Result<()> {
        self.took_over.set(true);
        self.say_serve()
    }

    /// Everything that is kept, with descriptors of our own.
    pub fn held(&self) -> io::Result<Vec<(Entry, OwnedFd)>> {
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

    /// Has `fd` kept under `entry.file`; replaces what was kept under it.
    pub fn hold(&self, entry: &Entry, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(&Message::Hold(entry.clone()), Some(fd))
    }

    /// Has the descriptor kept under `file` closed.
    pub fn release(&self, file: &str) -> io::Result<()> {
        self.ask(&Message::Release(file.into()), None)
    }

    /// The group has another name from now on: servers are started by it.
    pub fn rename(&self, group: &str) -> io::Result<()> {
        self.ask(&Message::Rename(group.into()), None)
    }

    /// Ends the keeper; refused while it keeps anything.
    pub fn bye(self) -> io::Result<()> {
        self.say_bye()
    }

    /// This process ends on purpose, and its successor goes on. For its last moment: a keeper of an earlier version takes it for
    /// the end.
    pub(crate) fn say_hand_over(&self) -> io::Result<()> {
        self.ask(&Message::HandOver, None)
    }

    pub(crate) fn say_bye(&self) -> io::Result<()> {
        self.ask(&Message::Bye, None)
    }

    /// A descriptor that becomes readable when the keeper is gone.
    pub fn watch(&self) -> io::Result<OwnedFd> {
        let socket = connect(&self.group)?;
        wire::send(&socket, &Message::Watch, None, SendFlags::empty())?;
        Ok(socket)
    }

    fn ask(&self, message: &Message, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        wire::send(&self.socket, message, fd, SendFlags::empty())?;
        match self.answer()? {
            (Message::Done, _) => Ok(()),
            (Message::Refused(why), _) => Err(io::Error::other(why)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn answer(&self) -> io::Result<(Message, Option<OwnedFd>)> {
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the keeper ended");
        wire::receive(self.socket.as_fd(), RecvFlags::empty())?.ok_or_else(gone)
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

/// The group's keeper, seen without waiting for it longer than `limit`; one that does not answer, or is of an older version, is
/// there all the same.
pub fn look(group: &str, limit: Duration) -> Option<KeeperSeen> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    match rustix::net::connect(&socket, &Reach::of(super::socket_path(group)).ok()?.address().ok()?) {
        Ok(()) => {}
        // So many wait for its answer already that there is no room for another.
        Err(Errno::AGAIN) => return Some(KeeperSeen { told: None, process: processes::see(logged(group)?) }),
        Err(_) => return None,
    }
    let pid = sockets::peer(&socket)?;
    let ask = || {
        wire::send(&socket, &Message::Tell, None, SendFlags::empty()).ok()?;
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit)).ok()?;
        match wire::receive(&socket, RecvFlags::DONTWAIT) {
            Ok(Some((Message::Told(told), _))) => Some(told),
            _ => None,
        }
    };
    Some(KeeperSeen { told: ask(), process: processes::see(pid) })
}

/// The last keeper's process, by its log.
fn logged(group: &str) -> Option<u32> {
    let log = std::fs::read_to_string(super::log_path(group)).ok()?;
    log.lines().rev().find_map(|line| line.split_once(" started, process ")?.1.parse().ok())
}

/// Tells the keeper that is in the directory of `group` that this is the group's name. A keeper that is not there need not
/// know.
pub(crate) fn tell_name(group: &str) -> io::Result<()> {
    let told = connect(group).and_then(|socket| {
        let (program, took_over) = (PathBuf::new(), Cell::new(false));
        let client = Client { group: group.into(), program, socket, took_over };
        client.rename(group)
    });
    match told {
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
fn start(program: &Path, group: &str) -> io::Result<()> {
    paths::make_private_dir(&paths::group_dir(group))?;
    let started = Command::new(program).arg("keeper").arg(group).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    if started.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&started.stderr);
    Err(io::Error::other(format!("{} keeper {group} failed ({}): {}", program.display(), started.status, why.trim())))
}
