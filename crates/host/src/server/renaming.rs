//! A rename of a group has several steps: names under /dev, the disks, the run directory, the keeper. A server that is
//! killed in between would leave two names, and devices without a server. So a file in the run directory notes the
//! rename, from before the first step until after the last. The next process that needs the group finishes it.
//!
//! * RN1 The file exists while a rename is unfinished. Its name has both names of the group (neither contains `@`), so
//!   that it is found from either.
//! * RN2 The renaming process holds the file's lock, which the kernel releases when that process ends, however it ends.
//!   A process that finishes the rename holds the lock, too. So one process works on it at a time.
//! * RN3 The disks decide which name counts. If they have the new name, the other steps are finished, otherwise they
//!   are undone. Each step can be done twice.

use super::archive::LAST;
use super::log;
use crate::archive::{self, Work};
use crate::export::nodes::Nodes;
use crate::{devices, keeper, paths, patience, planted, settings};
use rowen_control::history::What;
use rowen_control::protocol::ErrorKind;
use rowen_control::service::failure::{Failure, Result};
use rowen_control::uuids;
use rowen_engine::units::Uuid;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The directory with the names of block devices.
const DEV: &str = "/dev";
const PREFIX: &str = "renaming@";

/// An unfinished rename.
pub struct Renaming {
    path: PathBuf,
    file: File,
}

/// The contents of the note: the group, and its run directory, which may have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    group: Uuid,
    run_dir: u64,
}

impl Note {
    fn write(&self) -> String {
        format!("{} {}\n", uuids::lvm_text(self.group), self.run_dir)
    }

    fn read(text: &str) -> Option<Note> {
        let (group, run_dir) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(Note { group: uuids::parse_lvm_text(group)?, run_dir: run_dir.parse().ok()? })
    }
}

fn path_of(from: &str, to: &str) -> PathBuf {
    paths::run_dir().join(format!("{PREFIX}{from}@{to}"))
}

/// The unfinished renames of all groups: from, to.
fn all() -> Vec<(String, String)> {
    let entries = fs::read_dir(paths::run_dir()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let renames = names.filter_map(|name| {
        let (from, to) = name.strip_prefix(PREFIX)?.split_once('@')?;
        Some((from.to_owned(), to.to_owned()))
    });
    renames.collect()
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.ino())
}

impl Renaming {
    /// Notes that the group is about to be renamed.
    pub fn begin(from: &str, to: &str, group: Uuid) -> io::Result<Renaming> {
        let run_dir = fs::metadata(paths::group_dir(from))?.ino();
        let path = path_of(from, to);
        loop {
            let file = File::options().create(true).read(true).write(true).truncate(false).mode(0o600).open(&path)?;
            // A process that has written nothing yet. A process that finds an empty file removes it.
            if let Locked::Held(mut renaming) = Renaming::lock(path.clone(), file, None)? {
                renaming.file.set_len(0)?;
                renaming.file.write_all(Note { group, run_dir }.write().as_bytes())?;
                if planted::is("rename_unnoted") {
                    fs::remove_file(&renaming.path)?;
                }
                return Ok(renaming);
            }
        }
    }

    /// Waits for the lock, until then if that is given.
    fn lock(path: PathBuf, file: File, end: Option<Instant>) -> io::Result<Locked> {
        if !planted::is("rename_unlocked") && !paths::wait_for_lock_until(&file, end)? {
            return Ok(Locked::Late);
        }
        let has_name = inode(&path) == Some(file.metadata()?.ino());
        Ok(if has_name { Locked::Held(Renaming { path, file }) } else { Locked::Removed })
    }

    /// The rename is complete or undone.
    pub fn end(self) {
        if let Err(e) = fs::remove_file(&self.path) {
            log::warning(format_args!("cannot remove {}: {e}", self.path.display()));
        }
    }

    /// A step failed, and the next process must try again, but not before this process with its exports has ended.
    pub fn leave(self) {
        std::mem::forget(self.file);
    }
}

enum Locked {
    Held(Renaming),
    /// The file was removed meanwhile.
    Removed,
    /// Another process has it still.
    Late,
}

/// Finishes the rename of a killed server, if this group has one of the two names. Waits for a running rename, until `end` if
/// that is given (PA1). If the group's disks are missing, the rename stays unfinished. It is also an error if the group has the
/// other name now.
pub fn settle(group: &str, end: Option<Instant>) -> Result<()> {
    let mut is_renamed = false;
    for (from, to) in all().into_iter().filter(|(from, to)| from == group || to == group) {
        let failed = |e: &dyn std::fmt::Display| {
            let message =
                format!("Volume group \"{from}\" was being renamed to \"{to}\", which cannot be finished: {e}.");
            Failure::new(ErrorKind::Internal, message)
        };
        let path = path_of(&from, &to);
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(failed(&e)),
        };
        let mut renaming = match Renaming::lock(path, file, end).map_err(|e| failed(&e))? {
            Locked::Held(renaming) => renaming,
            Locked::Removed => continue,
            Locked::Late => {
                let message = format!(
                    "Volume group \"{from}\" is being renamed to \"{to}\", and that has not ended within {} s. For what it waits: \
                     rowen status",
                    patience::limit().as_secs()
                );
                return Err(Failure::new(ErrorKind::Internal, message));
            }
        };
        let mut text = String::new();
        renaming.file.read_to_string(&mut text).map_err(|e| failed(&e))?;
        let Some(note) = Note::read(&text) else {
            renaming.end();
            continue;
        };
        match devices::name_of(note.group, &[&from, &to])? {
            None => continue,
            Some(name) if name == to || planted::is("new_name_holds") => {
                complete(&from, &to, note.run_dir).map_err(|e| failed(&e))?;
                is_renamed |= group == from;
            }
            Some(_) => sweep(&to, &paths::group_dir(&from)).map_err(|e| failed(&e))?,
        }
        renaming.end();
    }
    // A search for it on all devices could take long. Its keeper starts a server with the new name instead.
    if is_renamed { Err(devices::Error::NoGroup(group.to_owned()).into()) } else { Ok(()) }
}

/// Completes a rename that the disks already have.
fn complete(from: &str, to: &str, run_dir: u64) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (old, new) = (paths::group_dir(from), paths::group_dir(to));
    if inode(&old) == Some(run_dir) {
        sweep(from, &old)?;
        paths::rename_group_dir(from, to)?;
    }
    if inode(&new) == Some(run_dir) {
        keeper::send_name(to)?;
    }
    // The last copy of the metadata under the old name is history. It is no reason to stay half renamed.
    let loaded = settings::Asked::begin().end(LAST).unwrap_or_else(|_| settings::kept(to).unwrap_or_default());
    let retention = (&loaded.settings()).into();
    if let Err(e) = archive::ask(Work::Retire { group: from.to_owned(), retention }, LAST) {
        log::warning(format_args!("cannot archive the metadata of volume group \"{from}\": {e}"));
    }
    log::event(
        What::Changed,
        format_args!("volume group \"{from}\" is \"{to}\": what its server had begun is finished"),
    );
    Ok(())
}

/// Removes the group's names under /dev that lead to devices of volumes whose files are in that run directory.
fn sweep(group: &str, run_dir: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    match fs::canonicalize(run_dir.join("volumes")) {
        Ok(files) => Ok(Nodes::new(Path::new(DEV), group, &files)?.sweep(|_| false)?),
        // No volume was ever active.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_nothing_else_is() {
        let note = Note { group: Uuid([7; 16]), run_dir: 42 };
        assert_eq!(Note::read(&note.write()), Some(note));
        let written = note.write();
        for cut in 0..written.len() {
            assert_eq!(Note::read(&written[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Note::read("07 42\n"), None);
    }
}
