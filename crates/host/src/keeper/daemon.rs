//! The keeper's process: one thread, one poll loop.

use super::child::Child;
use super::handing;
use super::log::Log;
use super::state::{Keeper, Peer};
use super::store;
use super::wire::{self, Message, Versions};
use crate::programs::{self, Program};
use crate::sockets::Reach;
use crate::{journal, last_failure, notify, paths, planted};
use rowen_control::status::KeeperAnswer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The largest number of connections: a server, its watch, their successors.
const MAX_PEERS: usize = 16;
/// How long a peer may leave an answer unread.
const SEND_TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// After this many failures in a row the log has advice.
const TELL_AFTER: u32 = 10;
/// The interval of checks on a started server that has not connected.
const CHILD_POLL: Duration = Duration::from_millis(20);

/// `rowen keeper VG`: returns the exit code 0 when the daemon accepts connections or another one already does, and 1
/// with a message on standard error if it failed. The daemon itself does not return. It must be called before any
/// thread is started.
pub fn main(group: &str) -> i32 {
    programs::take_name();
    if let Some(given) = handing::given() {
        return match Keeper::resume(group, given) {
            Ok(keeper) => keeper.run(),
            Err(code) => code,
        };
    }
    match start(group) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("the keeper of {group} cannot start: {e}");
            1
        }
    }
}

fn start(group: &str) -> io::Result<()> {
    paths::make_private_dir(&paths::group_dir(group))?;
    let Some(lock) = take_lock(group)? else { return Ok(()) };
    let (ready, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the process has one thread (the caller's promise), so the child finds every lock free.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ready);
            let outcome = become_daemon().and_then(|()| Keeper::new(group, lock));
            let mut tell = File::from(tell);
            match outcome {
                Ok(keeper) => {
                    // The starter may have ended; the keeper is needed all the same.
                    let _ = tell.write_all(b"+");
                    drop(tell);
                    std::process::exit(keeper.run())
                }
                Err(e) => {
                    let _ = tell.write_all(e.to_string().as_bytes());
                    std::process::exit(1)
                }
            }
        }
        _ => {
            drop((lock, tell));
            let mut said = String::new();
            File::from(ready).read_to_string(&mut said)?;
            match said.as_str() {
                "+" => Ok(()),
                "" => Err(io::Error::other("its process died at once")),
                why => Err(io::Error::other(why.to_owned())),
            }
        }
    }
}

/// `None`: another keeper has it. This waits until that one accepts connections or has ended.
fn take_lock(group: &str) -> io::Result<Option<File>> {
    let path = super::lock_path(group);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            _ if planted::is("keepers_beside") => return Ok(Some(lock)),
            Ok(()) => return Ok(Some(lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(e) => return Err(e.into()),
        }
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        if rustix::net::connect(&socket, &Reach::of(super::socket_path(group))?.address()?).is_ok() {
            return Ok(None);
        }
        if Instant::now() > deadline {
            let why = format!("{} is held by a process that takes no connections", path.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Leaves the starter's session, directory and terminal.
fn become_daemon() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

impl Keeper {
    fn new(group: &str, lock: File) -> io::Result<Keeper> {
        let mut log = Log::open(&super::log_path(group))?;
        let path = super::socket_path(group);
        // This process has the lock, so the creator of the socket has ended.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let reach = Reach::of(path)?;
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = rustix::net::bind(&listener, &reach.address()?);
        rustix::process::umask(before);
        bound?;
        rustix::net::listen(&listener, MAX_PEERS as i32)?;
        log.say(&format!("keeper of {group} started, process {}", std::process::id()));
        Ok(Keeper::made(group, Program::own()?, listener, log, lock))
    }

    pub(super) fn run(mut self) -> i32 {
        // The starter connects next. A keeper without any connection is not needed.
        let lonely_until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Err(e) = self.turn() {
                self.log.warn(&format!("polling failed: {e}"));
                std::thread::sleep(Duration::from_millis(100));
            }
            let is_upgraded = self.upgrade.is_some();
            let idle = self.held.is_empty() && self.peers.is_empty() && self.child.is_none() && !is_upgraded;
            if planted::is("keeper_stays") {
                continue;
            }
            if self.leaving || (idle && (self.restarts.any() || Instant::now() > lonely_until)) {
                break;
            }
        }
        self.store.empty();
        self.log.say("ended: there are no descriptors to keep and no server");
        // Removed before the lock is released, so it cannot be a successor's.
        let _ = std::fs::remove_file(super::socket_path(&self.group));
        0
    }

    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        // A serving process notifies it itself.
        if !self.is_served() && !self.held.is_empty() {
            notify::alive();
        }
        if ready[0] {
            self.accept();
        }
        // Backwards, so that a removal does not change the indexes of the rest.
        for at in (0..ready.len() - 1).rev().filter(|at| ready[at + 1]) {
            self.receive(at);
        }
        self.store.follow(&self.held);
        self.check_child();
        self.check_upgrade();
        self.become_next();
        if self.start_at.is_some_and(|at| at <= Instant::now()) {
            self.start_at = None;
            self.start_server();
        }
        Ok(())
    }

    /// Waits for events. Returns for the listener and each peer whether it is readable.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let sockets = std::iter::once(&self.listener).chain(self.peers.iter().map(|peer| &peer.socket));
        let child_end = self.child.as_ref().and_then(|child| child.end.as_ref());
        let watched = sockets.chain(child_end).chain(self.successor_end());
        let mut polled: Vec<_> = watched.map(|one| PollFd::new(one, PollFlags::IN)).collect();
        let mut pause = if self.store.is_behind() { store::AGAIN } else { Duration::from_secs(10) };
        if self.child.as_ref().is_some_and(|child| child.end.is_none()) {
            pause = pause.min(if self.is_served() { Duration::from_secs(1) } else { CHILD_POLL });
        }
        for at in [self.start_at, self.upgrade_due()].into_iter().flatten() {
            pause = pause.min(at.saturating_duration_since(Instant::now()));
        }
        let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        match poll(&mut polled, Some(&pause)) {
            Ok(_) => Ok(polled.iter().take(1 + self.peers.len()).map(|fd| !fd.revents().is_empty()).collect()),
            Err(rustix::io::Errno::INTR) => Ok(vec![false; 1 + self.peers.len()]),
            Err(e) => Err(e.into()),
        }
    }

    fn accept(&mut self) {
        let Ok(socket) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
            return;
        };
        match rustix::net::sockopt::socket_peercred(&socket) {
            Ok(peer) if peer.uid.is_root() && self.peers.len() < MAX_PEERS => {
                self.peers.push(Peer { socket, serves: false, upgrades: false });
            }
            Ok(peer) if peer.uid.is_root() => self.log.say("a connection was refused: there are too many"),
            Ok(peer) => self.log.say(&format!("a connection of user {} was refused", peer.uid.as_raw())),
            Err(e) => self.log.warn(&format!("a connection was refused: its user is not known: {e}")),
        }
    }

    pub(super) fn is_served(&self) -> bool {
        self.peers.iter().any(|peer| peer.serves)
    }

    /// Receives one message of the peer at `at`. The peer is dropped if it has ended or sent an invalid message.
    fn receive(&mut self, at: usize) {
        let outcome = match wire::receive(&self.peers[at].socket, RecvFlags::DONTWAIT) {
            Ok(Some((message, fd))) => self.obey(at, message, fd),
            Ok(None) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended")),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(why) = outcome {
            let peer = self.peers.remove(at);
            if peer.serves && !self.is_served() && !self.leaving {
                self.server_ended(&format!("the server disconnected without a message ({why})"));
            }
        }
    }

    fn obey(&mut self, at: usize, message: Message, fd: Option<OwnedFd>) -> io::Result<()> {
        self.store.observe(&message);
        let reply = match (message, fd) {
            (Message::Serve { took_over }, _) => {
                self.serves(at, took_over);
                Message::Done
            }
            (Message::Watch, _) => return Ok(()),
            (Message::Hold(entry), Some(fd)) => {
                self.held.retain(|(held, _)| held.file != entry.file);
                // The second message has the volume's loop device.
                if entry.loop_number.is_none() || !planted::is("keeps_half") {
                    self.held.push((entry, fd));
                }
                Message::Done
            }
            (Message::Hold(_), None) => Message::Refused("no descriptor came with it".into()),
            (Message::Release(file), _) => {
                self.held.retain(|(held, _)| held.file != file);
                Message::Done
            }
            (Message::Store, _) => Message::Done,
            (Message::List, _) => {
                for (entry, fd) in &self.held {
                    answer(&self.peers[at].socket, &Message::Held(entry.clone()), Some(fd.as_fd()))?;
                }
                Message::Done
            }
            (Message::Tell, _) => Message::Told(KeeperAnswer {
                started: self.started,
                deaths: self.deaths,
                failures: self.restarts.failures(Instant::now()).into(),
                held: self.held.len() as u64,
            }),
            (Message::Rename(group), _) if rowen_control::names::check_form(&group).is_ok() => {
                self.log.say(&format!("{} is {group} from now on", self.group));
                journal::of_group(&group);
                self.group = group;
                // A server with the old name that finished the rename ends now.
                self.restarts.forgive();
                Message::Done
            }
            (Message::HandOver { paused, stays }, _) => {
                self.is_handed_over = true;
                if stays && self.peers[at].serves && self.upgrade.is_none() && !planted::is("hung_is_waited_for") {
                    self.leftover.extend(self.child.take());
                }
                self.paused_at = paused.map(|paused| (paused, Instant::now()));
                Message::Done
            }
            (Message::Versions, _) if planted::is("knows_no_upgrade") => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "that is not a message of a server or keeper"));
            }
            (Message::Versions, _) => Message::Speaks(Versions::OWN),
            (Message::Upgrade(versions), Some(program)) => self.upgrade_to(at, versions, program),
            (Message::Upgrade(_), None) => Message::Refused("no program came with it".into()),
            (Message::Ready, _) => self.successor_ready(),
            (Message::Abandon, _) => {
                self.abandon();
                Message::Done
            }
            (Message::Progress, _) => Message::Upgrading(self.progress.clone()),
            (Message::Bye, _) if self.held.is_empty() => {
                self.leaving = true;
                Message::Done
            }
            (Message::Bye, _) => {
                let names: Vec<_> = self.held.iter().map(|(entry, _)| entry.name.as_str()).collect();
                Message::Refused(format!("still active: {}", names.join(", ")))
            }
            (other, _) => Message::Refused(format!("a server does not send {other:?}")),
        };
        answer(&self.peers[at].socket, &reply, None)
    }

    /// The peer at `at` is the server, and may have taken over.
    fn serves(&mut self, at: usize, took_over: bool) {
        if !std::mem::replace(&mut self.peers[at].serves, true) {
            self.restarts.arrived();
            self.is_handed_over = false;
            self.log.say("a server has connected");
        }
        self.start_at = None;
        if took_over && !planted::is("counts_as_failed") {
            self.restarts.took_over(Instant::now());
            self.death = None;
            self.log.say("the server serves all kept descriptors");
        }
        self.upgrade_serves(took_over);
    }

    pub(super) fn server_ended(&mut self, how: &str) {
        let is_planned = std::mem::take(&mut self.is_handed_over);
        if is_planned {
            self.log.say(how);
        } else {
            self.log.warn(how);
        }
        let was_upgraded = self.upgrade.is_some();
        if self.upgrade_lost_server(is_planned) {
            return;
        }
        if (self.held.is_empty() && !was_upgraded) || planted::is("no_successor") {
            return;
        }
        // Without the group's files no server can continue, and users would wait for one for ever.
        if rustix::fs::fstat(&self.lock).is_ok_and(|lock| lock.st_nlink == 0) {
            self.log.say("the group's directory was removed: the kept descriptors are closed");
            self.leaving = true;
            return;
        }
        self.deaths += u64::from(!is_planned);
        // Of several, the first is the one that served.
        if !is_planned {
            self.death.get_or_insert_with(|| how.to_owned());
        }
        let now = Instant::now();
        let pause = self.restarts.ended(now);
        self.start_at = Some(now + pause);
        if !pause.is_zero() {
            self.log.say(&format!("the next server starts in {} ms", pause.as_millis()));
        }
        if self.restarts.failures(now) == TELL_AFTER {
            self.log.warn(&format!(
                "{TELL_AFTER} servers in a row failed{}; {} volumes wait while more are started: see {}",
                last_failure::read(&self.group).map(|why| format!(", the last one with: {why}")).unwrap_or_default(),
                self.held.len(),
                paths::server_log(&self.group).display()
            ));
        }
    }

    fn start_server(&mut self) {
        if self.is_served() {
            return;
        }
        if self.child.is_some() {
            // Its connection is closed, but the process still waits for its last disk requests.
            self.is_due = self.child.as_ref().is_some_and(|child| child.end.is_some());
            self.start_at = Some(Instant::now() + CHILD_POLL);
            return;
        }
        match self.spawn(false) {
            Ok(child) => {
                self.started += 1;
                self.log.say(&format!("started a server, process {}", child.number()));
                self.child = Some(child);
            }
            Err(e) => self.server_ended(&format!("cannot start {}: {e}", self.program.path().display())),
        }
    }

    pub(super) fn spawn(&self, is_successor: bool) -> io::Result<Child> {
        // Servers that fail for ever must not fill /run, but their last output is kept.
        let log = match journal::open(&paths::server_log(&self.group), paths::SERVER_LOG_BOUND) {
            // The directory has a new name already. The server died in the rename before it could report the name; its
            // successor will.
            Err(e) if e.kind() == io::ErrorKind::NotFound => File::options().append(true).open("/dev/null"),
            log => log,
        }?;
        let mut command = self.server_command();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if is_successor {
            command.env(super::SUCCESSOR, "1");
        }
        let pid = i32::try_from(command.spawn()?.id()).ok();
        pid.and_then(Child::of).ok_or_else(|| io::Error::other("it has no number"))
    }

    /// Handles the end of a child server. One that never connected counts as failed, unless another serves.
    fn check_child(&mut self) {
        let Some(child) = &self.child else { return };
        match child.ended() {
            Ok(None) => {}
            Ok(Some(status)) => {
                let pid = child.number();
                self.child = None;
                if std::mem::take(&mut self.is_due) && self.start_at.is_some() {
                    self.start_at = Some(Instant::now());
                }
                if !self.is_served() && self.start_at.is_none() && !self.has_successor() {
                    self.server_ended(&format!("the server, process {pid}, ended: {status}"));
                }
            }
            Err(e) => {
                self.child = None;
                self.log.warn(&format!("the server's end cannot be waited for: {e}"));
            }
        }
    }
}

/// Answers a peer, which may be slow to read within a limit.
fn answer(socket: &OwnedFd, message: &Message, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    match wire::send(socket, message, fd, SendFlags::DONTWAIT) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&SEND_TIMEOUT))?;
            wire::send(socket, message, fd, SendFlags::DONTWAIT)
        }
        other => other,
    }
}
