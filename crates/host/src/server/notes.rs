//! The files that a server writes for its group, and its notifications.

use super::archive::Archive;
use super::renaming::Renaming;
use super::{log, lost, moving, recorder, systemd};
use crate::devices::members::{self, Joining};
use crate::journal::Field;
use crate::witness;
use parking_lot::Mutex;
use rowen_control::history::{self, What};
use rowen_control::service::platform::{About, Membership, MoveNote, Notes, RenamingNote};
use rowen_engine::units::Uuid;
use rustix::event::EventfdFlags;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The notes of a running server.
pub struct ServerNotes {
    group: String,
    archive: Arc<Archive>,
    since: Instant,
    /// Readable when the service was asked to end.
    bell: OwnedFd,
    witness: Mutex<Witness>,
}

/// What could not be written down of who is in the group.
#[derive(Default)]
struct Witness {
    late: Option<(Membership, Instant)>,
    /// Why, until it was logged.
    trouble: Option<String>,
}

impl ServerNotes {
    pub fn new(group: &str, archive: Arc<Archive>) -> io::Result<ServerNotes> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ServerNotes { group: group.to_owned(), archive, since: Instant::now(), bell, witness: Mutex::default() })
    }

    /// What could not be written down is tried again, now and then (NW1).
    pub fn rewrite_witness(&self) {
        let late = self.witness.lock().late.clone().filter(|(_, since)| since.elapsed() >= witness::AGAIN);
        if let Some((membership, _)) = late
            && let Err(e) = self.membership(&membership)
        {
            log::warning(e);
        }
    }

    /// The group is gone.
    pub fn forget_witness(&self, group: Uuid) {
        if let Err(e) = witness::ask(witness::Work::Forget(group.0), witness::LIMIT) {
            log::warning(format_args!("{} stays: {e}", witness::path(group).display()));
        }
    }

    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }
}

impl RenamingNote for Renaming {
    fn end(self: Box<Self>) {
        Renaming::end(*self);
    }

    fn leave(self: Box<Self>) {
        Renaming::leave(*self);
    }
}

/// By what the journal finds it.
fn field(about: About<'_>) -> Field<'_> {
    match about {
        About::Volume(name) => ("ROWEN_LV", name),
        About::Pv(path) => ("ROWEN_PV", path),
    }
}

impl Notes for ServerNotes {
    fn open_for(&self) -> Duration {
        self.since.elapsed()
    }

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }

    fn state(&self, state: &str) {
        systemd::state(state);
    }

    fn log(&self, line: &str) {
        log::line(line);
    }

    fn log_about(&self, about: About<'_>, line: &str) {
        log::about(&[field(about)], line);
    }

    fn event(&self, what: What, about: Option<About<'_>>, line: &str) {
        log::event_about(what, about.map(field).as_slice(), line);
    }

    fn done(&self, line: history::Command) {
        recorder::command(line);
    }

    fn changed(&self, command: &str) {
        self.archive.changed(command);
    }

    fn trouble(&self) -> Option<String> {
        self.archive.trouble().or_else(|| self.witness.lock().trouble.take())
    }

    fn run(&self, program: &str, words: Vec<String>) {
        let program = program.to_owned();
        let mut command = Command::new(&program);
        command.args(words);
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = program.clone();
        let waiting = std::thread::Builder::new().name("rowen-warning".into()).spawn(move || {
            match command.spawn() {
                Ok(mut child) => {
                    // A server is exempt from being killed for its memory; somebody else's program is not.
                    let _may_have_ended = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), "0");
                    match child.wait() {
                        Ok(status) if status.success() => {}
                        Ok(status) => log::line(format_args!("{program}: {status}")),
                        Err(e) => log::warning(format_args!("{program} cannot be waited for: {e}")),
                    }
                }
                Err(e) => log::warning(format_args!("{program} cannot be started: {e}")),
            }
        });
        if let Err(e) = waiting {
            log::warning(format_args!("{name} cannot be started: {e}"));
        }
    }

    fn members(&self, paths: &[PathBuf]) -> io::Result<()> {
        members::write(&self.group, paths)
    }

    fn membership(&self, membership: &Membership) -> io::Result<()> {
        let written = witness::ask(witness::Work::Note(membership.clone()), witness::LIMIT);
        let mut witness = self.witness.lock();
        let was_told = witness.late.is_some();
        witness.late = written.is_err().then(|| (membership.clone(), Instant::now()));
        written.inspect_err(|e| {
            let (group, file) = (&self.group, witness::path(Uuid(membership.group)));
            let why = format!(
                "WARNING: Cannot record the members of volume group \"{group}\" in {}: {e}. Commands that open only \
                 older disks of it will not warn.",
                file.display()
            );
            if !was_told {
                witness.trouble = Some(why);
            }
        })
    }

    fn disk_is_back(&self, pv: Uuid) {
        lost::is_back(&self.group, pv);
    }

    fn joining(&self, paths: &[PathBuf]) -> io::Result<Box<dyn Any>> {
        Ok(Box::new(Joining::note(&self.group, paths)?))
    }

    fn moving(&self, note: Option<&MoveNote>) -> io::Result<()> {
        moving::write(&self.group, note)
    }

    fn given_up(&self, pvs: &[[u8; 16]]) -> io::Result<()> {
        moving::write_given_up(&self.group, pvs)
    }

    fn noted_given_up(&self) -> Vec<[u8; 16]> {
        moving::read_given_up(&self.group)
    }

    fn noted_move(&self) -> Option<MoveNote> {
        moving::read(&self.group)
    }

    fn renaming(&self, to: &str, group: Uuid) -> io::Result<Box<dyn RenamingNote>> {
        Ok(Box::new(Renaming::begin(&self.group, to, group)?))
    }

    fn ending(&self) {
        // The counter cannot overflow from a few requests; a failure would only cost the main loop its next timeout.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}
