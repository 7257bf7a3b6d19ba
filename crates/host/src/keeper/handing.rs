//! A keeper becomes another program in place: the same process, with all its descriptors.
//!
//! Its state goes through a file in memory. The environment names that file and the previous program ([`STATE`]). The
//! next program reads the file, or executes the previous program again, which reads the same file. So there is always a
//! keeper, and no descriptor that it keeps is closed.
//!
//! * UP3 A keeper executes only a program that has shown that it understands the state: a child has read the same file
//!   ([`rehearse`]). A program that fails nevertheless executes the previous one.

use super::wire::{Entry, Progress, VERSION};
use crate::planted;
use crate::programs::Program;
use rowen_control::protocol::{read_frame, write_frame};
use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// In the environment of a program that a keeper executes: the numbers of the descriptors of the state and of the
/// previous program.
const STATE: &str = "ROWEN_KEEPER_STATE";
/// Set for a previous program: why the next one does not continue.
const BACK: &str = "ROWEN_KEEPER_BACK";
/// Set for a child that only reads the state and ends.
const REHEARSAL: &str = "ROWEN_KEEPER_REHEARSAL";
/// How often programs have executed another one without success.
const TURNS: &str = "ROWEN_KEEPER_TURNS";
const MAX_TURNS: u32 = 4;
/// How long a program may take to read the state. The keeper waits for it.
const LIMIT: Duration = Duration::from_secs(3);

/// A connection of the keeper.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PeerState {
    pub fd: RawFd,
    pub serves: bool,
    pub upgrades: bool,
}

/// The state of a keeper. Descriptors are numbers here, and stay open. A new field has a default; an unknown one is
/// skipped.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The version of the program that wrote it.
    pub version: u32,
    pub group: String,
    pub lock: RawFd,
    pub listener: RawFd,
    pub peers: Vec<PeerState>,
    pub held: Vec<(Entry, RawFd)>,
    pub started: u64,
    pub deaths: u64,
    pub is_handed_over: bool,
    pub any: bool,
    pub failures: u32,
    pub never_served: u32,
    /// How long ago the connected server took over.
    pub took_over_ms: Option<u64>,
    /// The process of a server that the keeper started.
    pub child: Option<i32>,
    /// Older servers that are ending.
    pub leftover: Vec<i32>,
    /// A server must be started.
    pub is_wanted: bool,
    pub progress: Progress,
}

impl State {
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let peers = self.peers.iter().map(|peer| peer.fd);
        [self.lock, self.listener].into_iter().chain(peers).chain(self.held.iter().map(|(_, fd)| *fd))
    }
}

/// The state in memory, for another program or this one.
pub struct Handed {
    file: File,
    descriptors: Vec<RawFd>,
}

impl Handed {
    pub fn new(state: &State) -> io::Result<Handed> {
        // Not CLOEXEC, as all descriptors that are kept.
        let mut file = File::from(rustix::fs::memfd_create("rowen-keeper", MemfdFlags::empty())?);
        write_frame(&mut file, state)?;
        Ok(Handed { file, descriptors: state.descriptors().collect() })
    }

    /// UP3: checks that the program understands the state.
    pub fn rehearse(&self, program: &Program, group: &str) -> io::Result<()> {
        if planted::is("unrehearsed") {
            return Ok(());
        }
        self.keep_open(true)?;
        let tried = self.try_in_child(program, group);
        self.keep_open(false)?;
        tried
    }

    fn try_in_child(&self, program: &Program, group: &str) -> io::Result<()> {
        let mut command = self.command(program, program, group);
        command.env(REHEARSAL, "1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            match child.try_wait()? {
                None => std::thread::sleep(Duration::from_millis(2)),
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(io::Error::other(format!("it does not understand the keeper's state ({status})")));
                }
            }
        }
        child.kill()?;
        child.wait()?;
        let why = format!("it did not read the keeper's state within {} s", LIMIT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Executes `program`. Returns only if that fails. `own`: the program to return to. `back`: why this call returns
    /// to an earlier program.
    pub fn become_program(&self, program: &Program, own: &Program, group: &str, back: Option<&str>) -> io::Error {
        if let Err(e) = self.keep_open(true) {
            return e;
        }
        let keeps_own = rustix::io::fcntl_setfd(own, FdFlags::empty());
        let mut command = self.command(program, own, group);
        if let Some(why) = back {
            command.env(BACK, why);
        }
        let error = match keeps_own {
            Ok(()) => command.exec(),
            Err(e) => e.into(),
        };
        // This process is still the keeper.
        let _what_is_open = self.keep_open(false);
        let _ = rustix::io::fcntl_setfd(own, FdFlags::CLOEXEC);
        error
    }

    fn command(&self, program: &Program, own: &Program, group: &str) -> Command {
        let mut command = program.command();
        command.arg("keeper").arg(group).env_remove(BACK).env_remove(REHEARSAL).env_remove(TURNS);
        let numbers = format!("{}:{}", self.file.as_raw_fd(), own.as_fd().as_raw_fd());
        command.env(STATE, numbers);
        command
    }

    /// Whether the descriptors outlive an execve.
    fn keep_open(&self, keep: bool) -> io::Result<()> {
        let flags = if keep { FdFlags::empty() } else { FdFlags::CLOEXEC };
        for &fd in &self.descriptors {
            // SAFETY: the keeper that made this has them open, and the caller borrows the keeper.
            rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, flags)?;
        }
        Ok(())
    }
}

/// The state that a keeper passed to the program that it executed.
pub struct Given {
    file: File,
    pub before: Program,
    /// Why this program continues again.
    pub back: Option<String>,
    is_rehearsal: bool,
    turns: u32,
}

/// The state that this process got, if a keeper executed it.
pub fn given() -> Option<Given> {
    let numbers = std::env::var(STATE).ok()?;
    let (state, program) = numbers.split_once(':')?;
    let is_rehearsal = std::env::var_os(REHEARSAL).is_some();
    // A rehearsal has no previous program, so it returns to none.
    let before = if is_rehearsal { Program::own().ok()? } else { Program::of(adopt(program.parse().ok()?).ok()?) };
    let turns = std::env::var(TURNS).ok().and_then(|turns| turns.parse().ok()).unwrap_or(0);
    Some(Given {
        file: File::from(adopt(state.parse().ok()?).ok()?),
        before,
        back: std::env::var(BACK).ok(),
        is_rehearsal,
        turns,
    })
}

/// A descriptor that was left open for this program.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    is_open(fd)?;
    // SAFETY: it is open, and the keeper that became this program says that it is for it; nothing else in this process, which has
    // just begun, knows the number.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

fn is_open(fd: RawFd) -> io::Result<()> {
    if fd < 3 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{fd} is not a descriptor of a keeper")));
    }
    // SAFETY: only asked whether it is open.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })?;
    Ok(())
}

impl Given {
    /// The keeper's state.
    pub fn read(&mut self) -> io::Result<State> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        self.file.seek(SeekFrom::Start(0))?;
        let state: State = read_frame(&mut self.file)?.ok_or_else(|| bad("it is empty"))?;
        if !(super::wire::OLDEST..=VERSION).contains(&state.version) {
            return Err(bad(&format!("it is of version {}, and this program knows version {VERSION}", state.version)));
        }
        rowen_control::names::check_form(&state.group).map_err(|_| bad("it names no group"))?;
        state.descriptors().try_for_each(is_open)?;
        Ok(state)
    }

    /// The exit code of a rehearsal, if this is one.
    pub fn rehearsed(&mut self) -> Option<i32> {
        self.is_rehearsal.then(|| i32::from(self.read().is_err() || planted::is("cannot_take_over")))
    }

    /// Executes the previous program again, which reads the same state.
    pub fn go_back(self, group: &str, why: &str) -> io::Error {
        if self.turns >= MAX_TURNS {
            return io::Error::other(format!("no program takes the keeper's state over: {why}"));
        }
        let Ok(own) = Program::own() else { return io::Error::other("this program cannot be found") };
        let both = [self.file.as_fd(), own.as_fd()]
            .into_iter()
            .try_for_each(|fd| rustix::io::fcntl_setfd(fd, FdFlags::empty()));
        if let Err(e) = both {
            return e.into();
        }
        let mut command = self.before.command();
        let numbers = format!("{}:{}", self.file.as_raw_fd(), own.as_fd().as_raw_fd());
        command.arg("keeper").arg(group).env(STATE, numbers).env(BACK, why).env(TURNS, (self.turns + 1).to_string());
        command.exec()
    }
}

/// Removes from the environment what a child of the keeper does not need.
pub fn forget(command: &mut Command) {
    for name in [STATE, BACK, REHEARSAL, TURNS] {
        command.env_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_as_it_was_handed() {
        let null = File::open("/dev/null").unwrap();
        let entry = Entry { file: "a@1".into(), id: 3, name: "a".into(), loop_number: Some(5) };
        let fd = null.as_raw_fd();
        let peers = vec![PeerState { fd, serves: true, upgrades: false }];
        let held = vec![(entry.clone(), fd)];
        let state =
            State { version: VERSION, group: "vg".into(), lock: fd, listener: fd, peers, held, ..State::default() };
        let handed = Handed::new(&state).unwrap();
        let given = |handed: &Handed| Given {
            file: handed.file.try_clone().unwrap(),
            before: Program::own().unwrap(),
            back: None,
            is_rehearsal: false,
            turns: 0,
        };
        let read = given(&handed).read().unwrap();
        assert_eq!((read.group.as_str(), &read.held, read.peers.len()), ("vg", &vec![(entry, fd)], 1));
        for wrong in [
            State { version: VERSION + 1, ..state.clone() },
            State { lock: 1 << 20, ..state.clone() },
            State { group: "../x".into(), ..state },
        ] {
            assert!(given(&Handed::new(&wrong).unwrap()).read().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_program_that_does_not_understand_is_not_executed() {
        let null = File::open("/dev/null").unwrap();
        let fd = null.as_raw_fd();
        let state = State { version: VERSION, group: "vg".into(), lock: fd, listener: fd, ..State::default() };
        let handed = Handed::new(&state).unwrap();
        let no = Program::at(std::path::Path::new("/bin/false")).unwrap();
        let yes = Program::at(std::path::Path::new("/bin/true")).unwrap();
        assert!(handed.rehearse(&no, "vg").is_err());
        assert!(handed.rehearse(&yes, "vg").is_ok());
        assert!(rustix::io::fcntl_getfd(&null).unwrap().contains(FdFlags::CLOEXEC));
    }
}
