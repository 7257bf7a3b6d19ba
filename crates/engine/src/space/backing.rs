//! State of the room behind a group's disks: the space of the filesystem or thin device below them (rules U1 to U6 in
//! `group/backing.rs`).

use crate::disk::{DiskError, Segments};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of the room behind a group's disks.
#[derive(Default)]
pub struct Backing {
    /// A write met no room, and none was found since. The write path reads only this flag.
    pub is_short: AtomicBool,
    pub state: Mutex<Missing>,
    /// Set at the end of the opening. Before that, a write that meets no room fails, and so does the opening.
    pub is_serving: AtomicBool,
}

#[derive(Default)]
pub struct Missing {
    /// The latest write that met no room, and its place.
    pub short: Option<(DiskError, Segments)>,
    /// Why journal and metadata (U1) have no allocated room.
    pub unbacked: Option<DiskError>,
    pub is_polling: bool,
    /// Writes of the journal and of checkpoints that wait for room (U6).
    pub waiting: usize,
}

impl Backing {
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }

    /// Why a record cannot be written now: the journal or a checkpoint waits for room (U6).
    pub fn no_room_error(&self) -> Option<DiskError> {
        let state = self.state.lock();
        state.short.as_ref().filter(|_| state.waiting > 0).map(|(error, _)| *error)
    }

    /// A write of the journal or of a checkpoint begins to wait for room.
    pub fn wait(&self) -> Waiting<'_> {
        self.state.lock().waiting += 1;
        Waiting(self)
    }
}

/// A write of the journal or of a checkpoint that waits for room, until this is dropped.
pub struct Waiting<'a>(&'a Backing);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}
