//! The service manager has copies of the keeper's descriptors (FDSTORE in sd_notify(3)), so that they outlive the
//! keeper.
//!
//! * K6 If a service manager runs the group's server, it has a copy of each complete descriptor of the keeper, and of
//!   none that the keeper has released. If server and keeper die, the server that the service manager starts first
//!   gives the copies to another keeper, and then takes over.
//! * K7 The service keeps its name and its copies when the group gets another name. The server that it starts then finds
//!   the group's name where the devices of its copies are: their files lie in the group's run directory.

use super::client::{self, Client};
use super::wire::{Entry, Message};
use crate::{handed_over, notify, paths, planted};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How soon to try again where the service manager has no room for messages.
pub(super) const AGAIN: Duration = Duration::from_millis(50);
/// How long a keeper that ends tries to take everything back.
const LAST_TRIES: Duration = Duration::from_secs(2);

/// The descriptors that the service manager has: names by files.
#[derive(Default)]
pub(super) struct Store {
    stored: BTreeMap<String, String>,
    /// A message could not be sent.
    is_behind: bool,
}

impl Store {
    /// Another store, which is empty, or may be.
    pub fn forget(&mut self) {
        self.stored.clear();
        self.is_behind = true;
    }

    /// This message changes the kept descriptors or the store.
    pub fn observe(&mut self, message: &Message) {
        match message {
            Message::Rename(_) if planted::is("rename_unstores") => self.empty(),
            Message::Hold(_) | Message::Release(_) | Message::Rename(_) => self.is_behind = true,
            Message::Store => self.forget(),
            _ => {}
        }
    }

    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Brings the store up to date, unless the service manager does not accept messages.
    pub fn follow(&mut self, held: &[(Entry, OwnedFd)]) {
        if !self.is_behind {
            return;
        }
        let held: BTreeMap<&str, (String, BorrowedFd<'_>)> = match notify::is_there() {
            true => held.iter().filter_map(|(entry, fd)| Some((&*entry.file, (name(entry)?, fd.as_fd())))).collect(),
            false => BTreeMap::new(),
        };
        self.is_behind = self.bring_up_to_date(&held).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
    }

    fn bring_up_to_date(&mut self, held: &BTreeMap<&str, (String, BorrowedFd<'_>)>) -> io::Result<()> {
        let is_old = |(file, name): &(&String, &String)| held.get(file.as_str()).is_none_or(|(new, _)| new != *name);
        let old: Vec<String> = self.stored.iter().filter(is_old).map(|(file, _)| file.clone()).collect();
        for file in old {
            if !planted::is("store_keeps") {
                notify::notify(&format!("FDSTOREREMOVE=1\nFDNAME={}\n", self.stored[&file]))?;
            }
            self.stored.remove(&file);
        }
        for (file, (name, fd)) in held {
            if !self.stored.contains_key(*file) {
                // The manager would wake for each request if it polled a descriptor of FUSE.
                notify::notify_with(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}\n"), *fd)?;
                self.stored.insert((*file).to_owned(), name.clone());
            }
        }
        Ok(())
    }

    /// The keeper ends. Everything is removed, or a device would wait for a server that is never started.
    pub fn empty(&mut self) {
        let begun = Instant::now();
        self.is_behind = true;
        loop {
            self.follow(&[]);
            if !self.is_behind || begun.elapsed() > LAST_TRIES {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }
}

/// An entry as the name of a descriptor. None: it is not complete.
fn name(entry: &Entry) -> Option<String> {
    let name = format!("{} {} {}", entry.id, entry.loop_number?, entry.file);
    // The limits of systemd (sd_notify(3)).
    let is_valid = name.len() < 255 && name.bytes().all(|byte| (b' '..127).contains(&byte) && byte != b':');
    is_valid.then_some(name)
}

fn entry(name: &str) -> Option<Entry> {
    let mut words = name.splitn(3, ' ');
    let (id, number, file) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    // The successor finds the volume by its number.
    Some(Entry { file: file.to_owned(), id, name: format!("volume {id}"), loop_number: Some(number) })
}

/// What the service manager kept of a server and a keeper that died together.
pub(crate) struct Kept(Vec<(Entry, OwnedFd)>);

impl Kept {
    /// All that it passed to this process. It can be taken once.
    pub fn take() -> Kept {
        Kept(handed_over::descriptors().into_iter().filter_map(|(name, fd)| Some((entry(&name)?, fd))).collect())
    }

    /// The present name of the group whose descriptors these are (K7). None: there are none, or their devices are gone.
    pub fn group(&self) -> Option<String> {
        self.0.iter().find_map(|(entry, _)| {
            let backing = format!("/sys/block/loop{}/loop/backing_file", entry.loop_number?);
            let file = std::fs::read_to_string(backing).ok()?;
            group_of(Path::new(file.trim_end_matches('\n')), &entry.file)
        })
    }

    /// Passes them to a new keeper of the group. Returns the connection of the server that this process becomes. None:
    /// there are no descriptors, or a keeper has them.
    pub fn pass_on(self, group: &str) -> io::Result<Option<Client>> {
        if self.0.is_empty() || client::is_there(group)? {
            return Ok(None);
        }
        let client = Client::connect_or_start(group)?;
        self.0.iter().try_for_each(|(entry, fd)| client.hold(entry, fd.as_fd()))?;
        Ok(Some(client))
    }
}

/// The group in whose run directory this path of a volume's file is: `RUN_DIR/VG/volumes/FILE`.
fn group_of(path: &Path, file: &str) -> Option<String> {
    let mut parts = path.strip_prefix(paths::run_dir()).ok()?.iter();
    let (group, folder, found) = (parts.next()?.to_str()?, parts.next()?, parts.next()?);
    let fits = folder == "volumes" && found == file && parts.next().is_none();
    (fits && rowen_control::names::check_form(group).is_ok()).then(|| group.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_known_by_its_name() {
        let of = |file: &str, loop_number| Entry { file: file.into(), id: 7, name: "volume 7".into(), loop_number };
        let whole = of("a b@1", Some(3));
        assert_eq!(entry(&name(&whole).unwrap()), Some(whole));
        assert_eq!(name(&of("a@1", None)), None, "it is not complete");
        assert_eq!(name(&of("a:1", Some(3))), None);
        assert_eq!(name(&of(&"a".repeat(251), Some(3))), None);
        for wrong in ["", "7", "7 3", "x 3 a", "7 x a", "stored"] {
            assert_eq!(entry(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_file_of_a_volume_tells_its_group() {
        let run = paths::run_dir();
        assert_eq!(group_of(&run.join("new/volumes/lv@1"), "lv@1"), Some("new".to_owned()));
        for other in ["new/volumes/lv@2", "new/other/lv@1", "new/volumes/lv@1/lv@1", "n w/volumes/lv@1", "lv@1"] {
            assert_eq!(group_of(&run.join(other), "lv@1"), None, "{other}");
        }
        assert_eq!(group_of(Path::new("/srv/new/volumes/lv@1"), "lv@1"), None);
    }
}
