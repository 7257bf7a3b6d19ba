//! The keeper's part of an upgrade: it becomes the new program, starts a server of that program while the old one
//! serves, and returns to the old program if the new server does not serve.
//!
//! * UP2 The keeper, a server or a successor always has the devices' descriptors: a keeper that becomes another program
//!   keeps them open, and a successor takes its copies before the old server ends.
//! * UP4 The old server serves until the successor is ready, except for the disks. A failure until then has no effect
//!   on users.
//! * UP5 A successor that does not serve within [`SERVES`], or dies [`DEATHS`] times, is replaced by the old program.
//! * UP6 One upgrade of a group at a time: a second one is refused.
//! * UP7 A server that ends for an upgrade does not count as died.

use super::child::Child;
use super::handing::{self, Given, Handed, PeerState, State};
use super::log::Log;
use super::restart::Restarts;
use super::state::{Keeper, Next, Peer, Upgrade};
use super::wire::{Message, Progress, Stage, VERSION, Versions};
use crate::planted;
use crate::programs::{self, Program};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a successor may take to be ready except for the disks. Users do not wait for it.
const GETS_READY: Duration = Duration::from_secs(10);
/// How long a successor may take to serve after the old server's end. That one closed with a checkpoint, so there is little to
/// read: the largest groups take less than a second.
const SERVES: Duration = Duration::from_secs(5);
/// The same if the old server was killed: its journal is replayed, and its last writes to the disks are waited for.
const RECOVERS: Duration = Duration::from_secs(30);
/// How long a successor serves until the upgrade is done.
const PROVEN: Duration = Duration::from_secs(1);
/// After this many deaths of servers of the new program the old one continues.
const DEATHS: u32 = 3;

impl Keeper {
    /// Begins to replace this program and the server by the received program.
    pub(super) fn upgrade_to(&mut self, at: usize, versions: Versions, program: OwnedFd) -> Message {
        // UP6.
        if (self.upgrade.is_some() || self.next.is_some()) && !planted::is("upgrades_beside") {
            return Message::Refused("another upgrade of this group is under way".into());
        }
        // BT1.
        if programs::survives() {
            return Message::Refused(
                "it was started by the initramfs, for the root filesystem, and is replaced when the machine is booted \
                 (after update-initramfs -u)"
                    .into(),
            );
        }
        if !Versions::OWN.fit(versions) {
            return Message::Refused(
                "the new program and the keeper speak no common version of the keeper's messages".into(),
            );
        }
        if !self.is_served() {
            return Message::Refused("the group has no server now: try again".into());
        }
        let program = Program::of(program);
        self.peers[at].upgrades = true;
        let handed = Handed::new(&self.state());
        match handed.and_then(|handed| handed.rehearse(&program, &self.group).map(|()| handed)) {
            Ok(handed) => {
                self.progress = Progress { stage: Stage::Starting, ..Progress::default() };
                self.next = Some(Next { program, handed });
                Message::Done
            }
            Err(e) => {
                self.peers[at].upgrades = false;
                Message::Refused(format!("the new program cannot be the keeper: {e}"))
            }
        }
    }

    /// Executes the next program. If that fails, this one continues.
    pub(super) fn become_next(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.log.say(&format!("the keeper becomes {}", next.program.path().display()));
        // This state also has the changes since the rehearsal.
        let handed = Handed::new(&self.state());
        drop(next.handed);
        let error = match handed {
            Ok(handed) => handed.become_program(&next.program, &self.program, &self.group, None),
            Err(e) => e,
        };
        self.has_failed(&format!("the new program cannot be executed: {error}"));
        self.peers.iter_mut().for_each(|peer| peer.upgrades = false);
    }

    fn has_failed(&mut self, why: &str) {
        self.log.warn(&format!("the upgrade failed: {why}"));
        self.death = Some(format!("the upgrade failed: {why}"));
        self.progress = Progress { stage: Stage::Failed, pause: self.progress.pause, why: why.to_owned() };
    }

    fn state(&self) -> State {
        let (any, failures, never_served, since) = self.restarts.noted(Instant::now());
        let peer =
            |peer: &Peer| PeerState { fd: peer.socket.as_raw_fd(), serves: peer.serves, upgrades: peer.upgrades };
        State {
            version: VERSION,
            group: self.group.clone(),
            lock: self.lock.as_raw_fd(),
            listener: self.listener.as_raw_fd(),
            peers: self.peers.iter().map(peer).collect(),
            held: self.held.iter().map(|(entry, fd)| (entry.clone(), fd.as_raw_fd())).collect(),
            started: self.started,
            deaths: self.deaths,
            is_handed_over: self.is_handed_over,
            any,
            failures,
            never_served,
            took_over_ms: since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            child: self.child.as_ref().map(Child::number),
            leftover: self.leftover.iter().map(Child::number).collect(),
            is_wanted: self.start_at.is_some(),
            progress: self.progress.clone(),
        }
    }

    /// Continues the keeper in this program. If that fails, the previous program continues.
    pub(super) fn resume(group: &str, mut given: Given) -> Result<Keeper, i32> {
        if let Some(code) = given.rehearsed() {
            return Err(code);
        }
        let read =
            given.read().and_then(|state| Ok((Log::open(&super::log_path(&state.group))?, Program::own()?, state)));
        let (log, own, state) = match read {
            Ok(_) if planted::is("fails_after_rehearsal") && given.back.is_none() => {
                let _does_not_return = given.go_back(group, "it was told to fail");
                return Err(1);
            }
            Ok(read) => read,
            Err(e) => {
                let _does_not_return =
                    given.go_back(group, &format!("the new program cannot take the keeper's state over: {e}"));
                return Err(1);
            }
        };
        let Given { before, back, .. } = given;
        let mut keeper = Keeper::adopt(state, own, log).map_err(|_| 1)?;
        // The previous program may not have used the store.
        keeper.store.forget();
        match back {
            // The previous program is not needed any more.
            Some(why) => {
                keeper.log.say(&format!("the keeper is {} again", keeper.program.path().display()));
                if keeper.progress.stage != Stage::Failed {
                    keeper.has_failed(&why);
                }
                keeper.peers.iter_mut().for_each(|peer| peer.upgrades = false);
            }
            None => keeper.begin(before),
        }
        Ok(keeper)
    }

    fn adopt(state: State, program: Program, log: Log) -> io::Result<Keeper> {
        let now = Instant::now();
        let held: io::Result<Vec<_>> =
            state.held.into_iter().map(|(entry, fd)| Ok((entry, handing::adopt(fd)?))).collect();
        let peers: io::Result<Vec<_>> = state
            .peers
            .iter()
            .map(|peer| {
                let socket = handing::adopt(peer.fd)?;
                Ok(Peer { socket, serves: peer.serves, upgrades: peer.upgrades })
            })
            .collect();
        let since = state.took_over_ms.map(Duration::from_millis);
        let listener = handing::adopt(state.listener)?;
        let lock = handing::adopt(state.lock)?.into();
        let mut keeper = Keeper::made(&state.group, program, listener, log, lock);
        keeper.held = held?;
        keeper.peers = peers?;
        keeper.restarts = Restarts::of((state.any, state.failures, state.never_served, since), now);
        (keeper.started, keeper.deaths, keeper.is_handed_over) = (state.started, state.deaths, state.is_handed_over);
        keeper.child = state.child.and_then(Child::of);
        keeper.leftover = state.leftover.into_iter().filter_map(Child::of).collect();
        keeper.start_at = state.is_wanted.then_some(now);
        keeper.progress = state.progress;
        Ok(keeper)
    }

    /// This is the keeper of the new program: it starts the successor.
    fn begin(&mut self, old: Program) {
        self.log.say(&format!("the keeper is {}, process {}", self.program.path().display(), std::process::id()));
        let until = Instant::now() + GETS_READY;
        match self.spawn(true) {
            Ok(successor) => {
                self.started += 1;
                self.log.say(&format!("started a successor, process {}", successor.number()));
                self.upgrade = Some(Upgrade { old, until, deaths: 0, successor: Some(successor) });
                if planted::is("hands_over_unready") {
                    self.progress.stage = Stage::Ready;
                }
            }
            Err(e) => {
                self.upgrade = Some(Upgrade { old, until, deaths: 0, successor: None });
                self.fail(&format!("the new server cannot be started: {e}"));
            }
        }
    }

    /// The successor is ready except for the disks.
    pub(super) fn successor_ready(&mut self) -> Message {
        if self.upgrade.is_none() {
            return Message::Refused("there is no upgrade".into());
        }
        if self.progress.stage == Stage::Starting {
            self.progress.stage = Stage::Ready;
            self.log.say("the successor is ready");
        }
        Message::Done
    }

    pub(super) fn abandon(&mut self) {
        if matches!(self.progress.stage, Stage::Starting | Stage::Ready) {
            self.fail("the old server could not be asked to end");
        }
    }

    /// The next deadline of the upgrade.
    pub(super) fn upgrade_due(&self) -> Option<Instant> {
        self.upgrade.as_ref().map(|upgrade| upgrade.until)
    }

    /// A descriptor that becomes readable when the successor has ended.
    pub(super) fn successor_end(&self) -> Option<&OwnedFd> {
        self.upgrade.as_ref()?.successor.as_ref()?.end.as_ref()
    }

    /// Whether a successor is waiting to serve after the old server's end.
    pub(super) fn has_successor(&self) -> bool {
        self.upgrade.as_ref().is_some_and(|upgrade| upgrade.successor.is_some())
    }

    /// The old server, or one of the new program, has ended. True: the next one is already starting.
    pub(super) fn upgrade_lost_server(&mut self, is_planned: bool) -> bool {
        let now = Instant::now();
        let stage = self.progress.stage;
        let Some(upgrade) = &mut self.upgrade else { return false };
        if matches!(stage, Stage::Starting | Stage::Ready) {
            self.deaths += u64::from(!is_planned || planted::is("upgrade_is_death"));
            self.progress.stage = Stage::Taking;
            upgrade.until = now + if is_planned { SERVES } else { RECOVERS };
            return upgrade.successor.is_some();
        }
        upgrade.deaths += u32::from(!is_planned);
        if stage == Stage::Serving {
            self.progress.stage = Stage::Taking;
            upgrade.until = now + SERVES;
        }
        if upgrade.deaths >= DEATHS {
            self.deaths += 1;
            self.fail(&format!("{DEATHS} servers of the new program died"));
            return true;
        }
        false
    }

    /// A server has connected. `took_over`: it serves all kept volumes.
    pub(super) fn upgrade_serves(&mut self, took_over: bool) {
        let Some(upgrade) = &mut self.upgrade else { return };
        if !matches!(self.progress.stage, Stage::Taking | Stage::Serving) {
            return;
        }
        if let Some(successor) = upgrade.successor.take() {
            // The old server may still be a zombie process.
            self.leftover.extend(self.child.replace(successor));
        }
        if took_over && self.progress.stage == Stage::Taking {
            self.progress.stage = Stage::Serving;
            self.progress.pause = self.paused_at.take().map(|since| {
                let (millis, at) = since;
                millis + u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)
            });
            upgrade.until = Instant::now() + PROVEN;
        }
    }

    pub(super) fn check_upgrade(&mut self) {
        self.leftover.retain(|child| matches!(child.ended(), Ok(None)));
        let stage = self.progress.stage;
        let Some(upgrade) = &mut self.upgrade else { return };
        let is_late = upgrade.until <= Instant::now();
        let ended = upgrade.successor.as_ref().and_then(|successor| {
            successor.ended().transpose().map(|how| (successor.number(), how.unwrap_or_else(|e| e.to_string())))
        });
        match (stage, ended) {
            (Stage::Starting | Stage::Ready, Some((pid, how))) => {
                upgrade.successor = None;
                self.fail(&format!("the new server, process {pid}, ended before its turn to serve ({how})"));
            }
            (Stage::Starting | Stage::Ready, None) if !self.peers.iter().any(|peer| peer.upgrades) => {
                self.fail("the command that asked for it ended");
            }
            (Stage::Starting, None) if is_late => {
                self.fail(&format!("the new server was not ready within {} s", GETS_READY.as_secs()));
            }
            // It dies as any server that never took over: the next one is of the new program, too.
            (Stage::Taking | Stage::Serving, Some((pid, how))) => {
                upgrade.successor = None;
                self.server_ended(&format!("the new server, process {pid}, ended: {how}"));
            }
            (Stage::Taking, None) if is_late => self.fail("the new server did not serve in time"),
            (Stage::Serving, None) if is_late => {
                self.log.say("the upgrade is done");
                self.progress.stage = Stage::Done;
                self.upgrade = None;
            }
            _ => {}
        }
    }

    /// UP5: the upgrade has failed. The old program continues as the keeper, and as the server if the old server has
    /// ended.
    fn fail(&mut self, why: &str) {
        let Some(Upgrade { old, successor, .. }) = self.upgrade.take() else { return };
        let old_serves = matches!(self.progress.stage, Stage::Starting | Stage::Ready);
        self.has_failed(why);
        if planted::is("no_way_back") {
            return;
        }
        successor.iter().for_each(Child::kill);
        if old_serves {
            self.leftover.extend(successor);
        } else {
            // If a server is connected that this keeper did not start, it serves.
            self.child.iter().for_each(Child::kill);
            if let Some(successor) = successor {
                self.leftover.extend(self.child.replace(successor));
            }
            self.restarts.forgive();
            self.start_at = Some(Instant::now());
        }
        let handed = Handed::new(&self.state());
        let error = match handed.and_then(|handed| handed.rehearse(&old, &self.group).map(|()| handed)) {
            Ok(handed) => handed.become_program(&old, &self.program, &self.group, Some(why)),
            Err(e) => e,
        };
        self.log.warn(&format!("the keeper stays {}: {error}", self.program.path().display()));
        self.program = old;
    }

    /// The command that starts a server from the keeper's own program, whatever program is at its path now.
    pub(super) fn server_command(&self) -> Command {
        let mut command = self.program.command();
        handing::forget(&mut command);
        command.env_remove(super::SUCCESSOR).env_remove(super::DEATH).arg("serve").arg(&self.group);
        if let Some(how) = self.death.as_ref().filter(|_| !planted::is("deaths_untold")) {
            command.env(super::DEATH, how);
        }
        command
    }
}
