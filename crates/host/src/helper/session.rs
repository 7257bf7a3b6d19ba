//! Starts helpers, talks to them, abandons late ones, and keeps idle ones.

use super::{Job, ROLE};
use crate::{journal, planted};
use parking_lot::{Mutex, RwLock};
use rowen_control::protocol::{read_frame, write_frame};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a helper may leave a request unread: it reads nothing but requests.
const UNREAD: Duration = Duration::from_secs(10);

static PROGRAM: RwLock<Option<PathBuf>> = RwLock::new(None);

/// Sets the program of the helpers: `program helper`. For programs other than `rowen`.
pub fn use_program(program: &Path) {
    *PROGRAM.write() = Some(program.to_owned());
    IDLE.lock().clear();
}

/// Helpers of this process that wait for a request (H10). To start a process takes longer than most requests do.
static IDLE: Mutex<Vec<Session>> = Mutex::new(Vec::new());
/// More than two requests at a time are rare: their helpers end.
const MAX_IDLE: usize = 2;

/// A working helper. When dropped, its socket closes, and the helper ends as soon as it can.
pub struct Session {
    socket: UnixStream,
    /// For an idle helper: the request until the first answer, because the helper may have been killed meanwhile.
    unread: Option<Job>,
}

impl Session {
    /// Gives the job to an idle helper, or to a new one.
    pub fn start(job: Job) -> io::Result<Session> {
        while let Some(mut session) = take_idle() {
            // One that was killed meanwhile cannot be asked.
            if !is_gone(&session.socket) && session.send(&job).is_ok() {
                session.unread = Some(job);
                return Ok(session);
            }
        }
        Session::ask_new(&job)
    }

    /// Gives the job to a separate helper, which ends with it, so that urgent requests keep theirs.
    pub fn start_apart(job: &Job, what: &str) -> io::Result<Session> {
        let session = Session::spawn(Some(what))?;
        session.send(job)?;
        Ok(session)
    }

    fn ask_new(job: &Job) -> io::Result<Session> {
        let session = Session::spawn(None)?;
        session.send(job)?;
        Ok(session)
    }

    /// The helper has given its last answer, and may get another request. Call it only then.
    pub fn end(self) {
        let mut idle = IDLE.lock();
        if idle.len() < MAX_IDLE {
            idle.push(self);
        }
    }

    /// `what` it does, where it is known, is seen in lists of processes.
    fn spawn(what: Option<&str>) -> io::Result<Session> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_write_timeout(Some(UNREAD))?;
        if planted::is("in_server") {
            std::thread::spawn(move || super::work(&theirs, planted::reached()));
            return Ok(Session { socket, unread: None });
        }
        if planted::is("keeps_descriptors") {
            rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty())?;
        }
        // Not by name: an upgrade may have put another version there.
        let program = PROGRAM.read().clone().unwrap_or_else(|| "/proc/self/exe".into());
        let mut command = Command::new(program);
        command.env(journal::GROUP, journal::group());
        command.arg(ROLE).args(what).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        // H2: a reader of a command's output would wait for a helper that hangs.
        if is_pipe(std::io::stderr()) {
            command.stderr(Stdio::null());
        }
        let child = command.spawn()?;
        // The helper's end of the socket: as long as it is open here, the helper's death goes unnoticed.
        drop(command);
        wait_elsewhere(child);
        Ok(Session { socket, unread: None })
    }

    pub fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        write_frame(&mut &self.socket, message)
    }

    /// For what is no message. The limit of the last [`receive`](Session::receive) holds.
    pub fn with_socket<T>(&self, body: impl FnOnce(&UnixStream) -> io::Result<T>) -> io::Result<T> {
        body(&self.socket)
    }

    /// The helper's next message; an error of [`is_late`] after `limit`.
    pub fn receive<T: DeserializeOwned>(&mut self, limit: Duration) -> io::Result<T> {
        let unread = self.unread.take();
        match (self.receive_this(limit), unread) {
            // The kernel resets a connection whose other end is closed with something unread: nothing was done (H10).
            (Err(e), Some(job)) if e.kind() == io::ErrorKind::ConnectionReset && !planted::is("asks_no_other") => {
                *self = Session::ask_new(&job)?;
                self.receive_this(limit)
            }
            (received, _) => received,
        }
    }

    fn receive_this<T: DeserializeOwned>(&self, limit: Duration) -> io::Result<T> {
        let limit = if planted::is("waits_for_ever") { Duration::from_secs(1 << 20) } else { limit };
        self.socket.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        match read_frame(&mut &self.socket) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the helper process was killed")),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let why = format!("it was not done within {} s", limit.as_secs_f64().ceil());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            Err(e) => Err(e),
        }
    }
}

fn is_pipe(fd: impl AsFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// The lock is not held while the helper is asked.
fn take_idle() -> Option<Session> {
    IDLE.lock().pop()
}

/// Whether a helper did not answer in time.
pub fn is_late(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::TimedOut
}

/// In a helper: whether the asker is gone.
pub fn is_gone(socket: &UnixStream) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// An ended child stays in the process table until it is waited for. A child that cannot end must not block a working
/// thread. (This wait ends with the process.)
fn wait_elsewhere(mut child: Child) {
    let wait = move || drop(child.wait());
    // Without a thread it stays in the table for as long as this process lives.
    let _ = std::thread::Builder::new().name("rowen-reaper".into()).stack_size(64 << 10).spawn(wait);
}

/// In a helper: releases everything of the process that started it, and ignores all signals except SIGKILL. So if a
/// server is ended with all its children, the helper has time to undo its work.
pub fn stand_alone() {
    if planted::is("keeps_descriptors") {
        return;
    }
    // SAFETY: plain numbers; no descriptor from 3 on belongs to anything in this process, which has just begun.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    // Refused to one that leads a session already.
    let _ = rustix::process::setsid();
}
