//! The members of each group as this host saw them last: one file for each group, `witness/UUID` below the system directory.
//! A disk that was left behind does not know that the other disks went on without it. If a group is opened without some of
//! its disks, only that disk may be attached. This host may know better.
//!
//! * NW1 The file has each change of the members, and of those that are out, durably before the command that made the change is
//!   answered, and before a server that found the change serves commands. It has the state in which the group was opened and
//!   closed last. If the file cannot be written, the group continues, and a warning says so.
//! * NW2 A group that lacks disks is opened only if the attached part is not older than the file says, and is not a part that the
//!   others went on without. A person may override this.
//! * NW3 A group that has all its disks is opened whatever the file says. So is a group without a file, or with a damaged one.
//! * NW4 There is one small file for each group that has, or had, several disks, at most [`MAX_GROUPS`]. It is removed with its group.
//!
//! * NW5 A physical volume that was found smaller than its group needs, and without which the group went on, has a file `cut-UUID`.
//!   It is not taken back when it is larger again: what was cut off reads as zeros. The file stays.
//!
//! Servers leave reading and writing to helpers, because the file may be on a volume of the group (H1).

use crate::helper::{self, Job};
use crate::{archive, files, paths, planted};
use rowen_control::service::platform::Membership;
use rowen_control::uuids::{lvm_text, parse_lvm_text};
use rowen_engine::group::PvMembership;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server waits for a helper that writes here, and after how long one that failed is asked again.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
pub(crate) const AGAIN: Duration = Duration::from_secs(60);
/// So many groups have files, at most.
const MAX_GROUPS: usize = 1000;
/// Longer files are none of ours: a group has 64 physical volumes at most.
const LONGEST: u64 = 16 << 10;
/// The first line.
const HEAD: &str =
    "# Rowen: the members of a volume group, as this host saw them last. Rowen rewrites it; do not change it.";

/// What a helper does with the file of a group.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Note(Membership),
    /// The group is gone.
    Forget([u8; 16]),
    /// A physical volume was made smaller.
    Cut([u8; 16]),
}

/// Has a helper do it, and waits for it for this long at most.
pub(crate) fn ask(work: Work, limit: Duration) -> io::Result<()> {
    helper::ask_apart(&Job::Witness(work), "witness", limit).map(drop)
}

/// In a helper: does it.
pub(crate) fn obey(work: &Work) -> io::Result<()> {
    match work {
        Work::Note(membership) => note(membership),
        Work::Cut(pv) => note_cut(Uuid(*pv)),
        Work::Forget(_) if planted::is("witness_stays") => Ok(()),
        Work::Forget(group) => match fs::remove_file(path(Uuid(*group))) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        },
    }
}

/// The directory of all these files.
pub fn dir() -> PathBuf {
    paths::system_dir().join("witness")
}

/// Where it is written who is in this group.
pub fn path(group: Uuid) -> PathBuf {
    dir().join(lvm_text(group))
}

/// The members of this group as they were last seen. None: they were never seen, or the file cannot be read.
pub fn read(group: Uuid) -> Option<Membership> {
    look(group).ok().flatten()
}

/// The same; an error where the file cannot be read.
pub(crate) fn look(group: Uuid) -> io::Result<Option<Membership>> {
    let text = files::read_text(&path(group), LONGEST)?;
    let seen = text.and_then(|text| parse(group, &text));
    Ok(seen.filter(|_| !planted::is("witness_unread")))
}

/// Writes down who is in the group (NW1).
pub(crate) fn note(membership: &Membership) -> io::Result<()> {
    if planted::is("witness_unwritten") {
        return Ok(());
    }
    let path = path(Uuid(membership.group));
    match read(Uuid(membership.group)) {
        Some(known) if known == *membership => return Ok(()),
        // Nobody can have a part of it.
        None if membership.members.len() < 2 && !path.exists() => return Ok(()),
        _ => {}
    }
    paths::make_private_dir(&dir())?;
    forget_oldest(&path);
    archive::replace(&path, &write(membership))?;
    File::open(dir())?.sync_all()
}

/// Where it is written that this physical volume was made smaller.
fn cut_path(pv: Uuid) -> PathBuf {
    dir().join(format!("cut-{}", lvm_text(pv)))
}

/// Writes down that a physical volume was found smaller than its group needs (NW5).
pub(crate) fn note_cut(pv: Uuid) -> io::Result<()> {
    if planted::is("cut_unwritten") || cut_path(pv).exists() {
        return Ok(());
    }
    paths::make_private_dir(&dir())?;
    let head = "# Rowen: this physical volume was made smaller while a volume group needed it.\n";
    archive::replace(&cut_path(pv), head)?;
    File::open(dir())?.sync_all()
}

/// Whether this host has seen that a physical volume was made smaller (NW5).
pub fn was_cut(pv: Uuid) -> bool {
    cut_path(pv).exists()
}

fn write(membership: &Membership) -> String {
    let Membership { group: _, sequence, lineage, members, out } = membership;
    let mut text = format!("{HEAD}\nsequence {sequence}\nlineage {lineage}\n");
    for member in members {
        let state = if out.contains(member) { "out" } else { "in" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{state} {}", lvm_text(Uuid(*member)));
    }
    text.push_str("end\n");
    text
}

/// None: it is damaged, or from a program that knows more.
fn parse(group: Uuid, text: &str) -> Option<Membership> {
    let mut membership = Membership { group: group.0, sequence: 0, lineage: 0, members: Vec::new(), out: Vec::new() };
    let text = text.strip_suffix("end\n")?;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (word, value) = line.split_once(' ')?;
        match word {
            "sequence" => membership.sequence = value.parse().ok()?,
            "lineage" => membership.lineage = value.parse().ok()?,
            "in" | "out" => {
                let member = parse_lvm_text(value)?;
                membership.members.push(member.0);
                if word == "out" {
                    membership.out.push(member.0);
                }
            }
            _ => return None,
        }
    }
    (!membership.members.is_empty()).then_some(membership)
}

/// Makes place for the file of another group (NW4). What cannot be removed is tried again with the next group.
fn forget_oldest(new: &Path) {
    let files = fs::read_dir(dir()).into_iter().flatten().flatten();
    let ours = files.filter(|entry| entry.file_name().to_str().is_some_and(|name| parse_lvm_text(name).is_some()));
    let mut by_age: Vec<_> =
        ours.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    by_age.retain(|(_, path)| path != new);
    by_age.sort();
    for (_, path) in by_age.iter().take((by_age.len() + 1).saturating_sub(MAX_GROUPS)) {
        let _ = fs::remove_file(path);
    }
}

/// Why a group that lacks disks is not opened (NW2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What is there is what the others went on without. Otherwise it is older.
    pub is_left_behind: bool,
    /// The physical volumes that had the newer state.
    pub newer: Vec<Uuid>,
}

/// `newest`: the newest label that was found; `there`: those that it counts and that are there.
pub(crate) fn doubt(seen: &Membership, newest: &PvMembership, there: &[Uuid]) -> Option<Doubt> {
    let counted = seen.members.iter().filter(|member| !seen.out.contains(member)).map(|member| Uuid(*member));
    let newer: Vec<Uuid> = counted.collect();
    let is_same = seen.lineage != 0 && seen.lineage == newest.lineage;
    let knows = there.iter().any(|pv| newer.contains(pv)) || planted::is("numbers_alone");
    let is_left_behind = !is_same && !knows;
    let is_older = newest.sequence < seen.sequence;
    (is_left_behind || is_older).then_some(Doubt { is_left_behind, newer })
}

#[cfg(test)]
#[path = "witness_test.rs"]
mod tests;
