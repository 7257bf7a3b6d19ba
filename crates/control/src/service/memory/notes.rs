//! Notes that can be read again.

use crate::history::{Command, What};
use crate::service::platform::{About, Membership, MoveNote, Notes, RenamingNote};
use parking_lot::Mutex;
use rowen_engine::units::Uuid;
use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// When groups are opened: seconds since 1970.
pub const NOW: u64 = 1_700_000_000;

/// Notes that can be read again.
#[derive(Default)]
pub struct MemoryNotes {
    /// How long the group has been open.
    pub open_for: Mutex<Duration>,
    /// What was said last of how the group is.
    pub state: Mutex<String>,
    /// Lines of the log.
    pub lines: Mutex<Vec<String>>,
    /// Kinds of events, with what was said of them, which are lines of the log, too.
    pub events: Mutex<Vec<(What, String)>>,
    /// What requests did.
    pub done: Mutex<Vec<Command>>,
    /// Commands after which metadata was archived.
    pub archived: Mutex<Vec<String>>,
    /// Programs that were run, with their words.
    pub programs: Mutex<Vec<Vec<String>>>,
    /// Where the physical volumes are.
    pub members: Mutex<Vec<PathBuf>>,
    /// The members of the group.
    pub membership: Mutex<Option<Membership>>,
    /// What is being moved.
    pub moving: Mutex<Option<MoveNote>>,
    /// Missing physical volumes that are not waited for.
    pub given_up: Mutex<Vec<[u8; 16]>>,
    /// How renames ended: true, all was done or undone.
    pub renames: Arc<Mutex<Vec<bool>>>,
}

impl MemoryNotes {
    /// What another server noted for its successors.
    pub fn take_up(&self, others: &MemoryNotes) {
        self.moving.lock().clone_from(&others.moving.lock());
        self.given_up.lock().clone_from(&others.given_up.lock());
    }
}

struct Note(Arc<Mutex<Vec<bool>>>);

impl RenamingNote for Note {
    fn end(self: Box<Self>) {
        self.0.lock().push(true);
    }

    fn leave(self: Box<Self>) {
        self.0.lock().push(false);
    }
}

impl Notes for MemoryNotes {
    fn open_for(&self) -> Duration {
        *self.open_for.lock()
    }

    fn now(&self) -> u64 {
        NOW + self.open_for.lock().as_secs()
    }

    fn state(&self, state: &str) {
        *self.state.lock() = state.to_owned();
    }

    fn log(&self, line: &str) {
        self.lines.lock().push(line.to_owned());
    }

    fn event(&self, what: What, about: Option<About<'_>>, line: &str) {
        match about {
            Some(about) => self.log_about(about, line),
            None => self.log(line),
        }
        self.events.lock().push((what, line.to_owned()));
    }

    fn done(&self, line: Command) {
        self.done.lock().push(line);
    }

    fn changed(&self, command: &str) {
        self.archived.lock().push(command.to_owned());
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    fn run(&self, program: &str, words: Vec<String>) {
        self.programs.lock().push([program.to_owned()].into_iter().chain(words).collect());
    }

    fn members(&self, paths: &[PathBuf]) -> io::Result<()> {
        *self.members.lock() = paths.to_vec();
        Ok(())
    }

    fn membership(&self, membership: &Membership) -> io::Result<()> {
        *self.membership.lock() = Some(membership.clone());
        Ok(())
    }

    fn moving(&self, note: Option<&MoveNote>) -> io::Result<()> {
        *self.moving.lock() = note.cloned();
        Ok(())
    }

    fn given_up(&self, pvs: &[[u8; 16]]) -> io::Result<()> {
        *self.given_up.lock() = pvs.to_vec();
        Ok(())
    }

    fn noted_given_up(&self) -> Vec<[u8; 16]> {
        self.given_up.lock().clone()
    }

    fn noted_move(&self) -> Option<MoveNote> {
        self.moving.lock().clone()
    }

    fn joining(&self, _paths: &[PathBuf]) -> io::Result<Box<dyn Any>> {
        Ok(Box::new(()))
    }

    fn renaming(&self, _to: &str, _group: Uuid) -> io::Result<Box<dyn RenamingNote>> {
        Ok(Box::new(Note(self.renames.clone())))
    }

    fn ending(&self) {}
}
