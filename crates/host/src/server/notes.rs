//! What a server writes down next to its group, and whom it tells.

use super::archive::Archive;
use super::renaming::Renaming;
use super::{log, moving, recorder, systemd};
use crate::devices::members::{self, Joining};
use crate::journal::Field;
use rowen_control::history::{self, What};
use rowen_control::service::world::{About, MoveNote, Notes, RenamingNote};
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
}

impl ServerNotes {
    pub fn new(group: &str, archive: Arc<Archive>) -> io::Result<ServerNotes> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ServerNotes { group: group.to_owned(), archive, since: Instant::now(), bell })
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
        self.archive.trouble()
    }

    fn run(&self, program: &str, words: Vec<String>) {
        let program = program.to_owned();
        let mut command = Command::new(&program);
        command.args(words);
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let told = program.clone();
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
            log::warning(format_args!("{told} cannot be started: {e}"));
        }
    }

    fn members(&self, paths: &[PathBuf]) -> io::Result<()> {
        members::write(&self.group, paths)
    }

    fn joining(&self, paths: &[PathBuf]) -> io::Result<Box<dyn Any>> {
        Ok(Box::new(Joining::note(&self.group, paths)?))
    }

    fn moving(&self, note: Option<&MoveNote>) -> io::Result<()> {
        moving::write(&self.group, note)
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
