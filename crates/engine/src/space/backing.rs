//! What is known of the room behind a group's disks (rules U1 to U5 in `group/backing.rs`).

use crate::disk::{DiskError, Segments};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of the room behind a group's disks.
#[derive(Default)]
pub struct Backing {
    /// Whether a write met no room and none was found since: the writing path asks this and nothing else.
    pub is_short: AtomicBool,
    pub state: Mutex<Missing>,
}

#[derive(Default)]
pub struct Missing {
    /// The latest write that met no room, and where it goes.
    pub short: Option<(DiskError, Segments)>,
    /// Why the areas that are written without asking (U1) are not backed.
    pub unbacked: Option<DiskError>,
    pub is_looking: bool,
}

impl Backing {
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }
}
