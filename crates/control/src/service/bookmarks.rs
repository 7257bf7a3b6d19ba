//! Bookmarks: made of snapshots, shown, removed; emptied and ended by the clock.

use super::failure::{Failure, Result};
use super::merge::is_waiting;
use super::state::Service;
use crate::history::What;
use crate::protocol::{BookmarkReport, Caller, ErrorKind, Outcome, Request};
use rowen_engine::error::Error;
use rowen_engine::group::{BOOKMARK, Bookmark, VolumeInfo, VolumeState};
use rowen_engine::units::{Uuid, VolumeId};

/// Parts of a gigabyte that are emptied at once.
const PARTS: u32 = 64;

impl Service {
    /// Keeps what is needed to send what changed since this snapshot, also when it is gone.
    pub fn bookmark(&self, snapshot: &str, name: &str, (id, created): (Uuid, u64)) -> Result<Outcome> {
        self.check_name(name)?;
        let volume = self.find(snapshot)?;
        let full = format!("{}/{snapshot}", self.name);
        let refuse = |why: String| Err(Failure::new(ErrorKind::Invalid, why));
        if volume.state == VolumeState::Invalid {
            return Err(self.failure(&Error::InvalidSnapshot, snapshot));
        }
        if is_waiting(&volume) {
            return refuse(format!("Logical volume {full} waits to be merged."));
        }
        if volume.origin.is_none() {
            return refuse(format!("Logical volume {full} is no snapshot: take one, and make a bookmark of that."));
        }
        if volume.point.is_none() {
            return refuse(self.not_as_taken(&full));
        }
        if self.group.find(&format!("{BOOKMARK}{name}")).is_some() {
            let message = format!(
                "Volume group \"{}\" has a bookmark \"{name}\". \"rowen bookmark --remove {}/{name}\" removes it.",
                self.name, self.name
            );
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        self.refuse_more_volumes(1)?;
        let (group, of, to) = (self.group.clone(), volume.id, name.to_owned());
        let made = self.run(async move { group.bookmark(of, &to, id, created).await });
        let made = made.map_err(|error| match error {
            Error::Moved => Failure::new(ErrorKind::Changed, self.not_as_taken(&full)),
            error => self.failure(&error, snapshot),
        })?;
        // What cannot be given up now is by the clock: the bookmark is good at once.
        self.empty_bookmark(made);
        Ok(Outcome::Ok)
    }

    fn not_as_taken(&self, full: &str) -> String {
        format!(
            "Logical volume {full} was written to since it was taken: take a snapshot of it, and make a bookmark of that."
        )
    }

    fn empty_bookmark(&self, id: VolumeId) {
        let group = self.group.clone();
        self.run(async move {
            for _ in 0..PARTS {
                if !group.empty_bookmark(id).await.unwrap_or(false) {
                    break;
                }
            }
        });
    }

    pub fn remove_bookmark(&self, name: &str) -> Result<Outcome> {
        let bookmark = self.group.find_bookmark(name).ok_or_else(|| {
            let message = format!("Volume group \"{}\" has no bookmark \"{}\".", self.name, name.escape_debug());
            Failure::new(ErrorKind::NotFound, message)
        })?;
        let group = self.group.clone();
        let done = self.run(async move { group.remove(&[bookmark.id]).await });
        self.told(done, name)?;
        Ok(Outcome::Ok)
    }

    pub(super) fn reported_bookmarks(&self) -> Vec<BookmarkReport> {
        self.group.bookmarks().into_iter().map(BookmarkReport::from).collect()
    }

    /// What a list of changes begins at: a volume, or else a bookmark of that name.
    pub(super) fn find_base(&self, name: &str) -> Result<VolumeInfo> {
        let id = match name.strip_prefix(BOOKMARK) {
            Some(name) => self.group.find_bookmark(name),
            None if self.group.find(name).is_some() => None,
            None => self.group.find_bookmark(name),
        };
        match id {
            Some(bookmark) => self.told(self.group.volume_info(bookmark.id), name),
            None => self.find(name.strip_prefix(BOOKMARK).unwrap_or(name)),
        }
    }

    /// The bookmark of which this is the whole name, if it still counts.
    pub(super) fn counting_bookmark(&self, name: &str) -> Option<Bookmark> {
        self.group.find_bookmark(name.strip_prefix(BOOKMARK)?).filter(|bookmark| !bookmark.has_ended)
    }

    /// Empties bookmarks that are not empty yet, and removes those that have ended: nothing can be compared with them.
    pub(super) fn prune_bookmarks(&self) {
        for bookmark in self.group.bookmarks() {
            if !bookmark.has_ended {
                self.empty_bookmark(bookmark.id);
                continue;
            }
            if self.change.is_locked() || self.group.failed().is_err() {
                return;
            }
            let full = format!("{}/{}", self.name, bookmark.name);
            let caller = Caller { command: format!("the end of the bookmark {full}"), ..Caller::default() };
            let request = Request::RemoveBookmark { name: bookmark.name };
            if let Outcome::Ok = self.handle(request, &caller, &mut |_| {}) {
                let line = format!(
                    "the bookmark {full} has ended: all that came from its snapshot is gone, or was reverted to before it"
                );
                self.event(What::Changed, &line);
            }
        }
    }
}
