//! The state in which a stopped server left the group's disks, for the next server.
//!
//! * RT1 After a server has stopped, or has lost a disk, the next one opens only disks that have not changed since. It
//!   compares their identifiers, the numbers of their superblocks, and the data that was flushed last (WT1). An earlier
//!   copy, or a disk that was used elsewhere since, is refused, and nothing is written to it. An administrator can
//!   override this. A disk that the server had open all the time, and that never failed, needs no proof of contents: it
//!   never left.
//! * RT2 A disk that disappeared may have lost unflushed writes that it had acknowledged. So if a volume in use has
//!   such writes and has returned no error since, its next flush fails, in whichever server answers it.
//! * RT5 Writes that a server makes after a note are no reason to refuse the disk, or to forget that a flush must fail.
//!   If a disk has not failed and the group continues, a note only says which superblock the disk has at least.
//!
//! The notes are in the run directory: they outlive servers, but not a reboot.

use crate::devices::probe::{self, Found};
use crate::devices::sample::{self, Sample};
use crate::disks::{MISSING, PvSet};
use crate::reactor::Place;
use crate::{paths, planted, run_file};
use rowen_control::protocol::ErrorKind;
use rowen_control::service::failure::{Failure, Result};
use rowen_control::uuids::lvm_text;
use rowen_engine::disk::PvIndex;
use rowen_engine::group::Group;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The state in which the disks were left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Left {
    group: String,
    /// The number of the newest superblock. Perhaps only some of the disks have it.
    sequence: u64,
    /// A user has requested to open the group again, so missing proof is no reason to refuse.
    is_asked: bool,
    pub pvs: Vec<LeftPv>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftPv {
    uuid: [u8; 16],
    pub path: PathBuf,
    places: Option<Vec<Place>>,
    /// It had not failed, and the server had it open.
    #[serde(default)]
    pub is_held: bool,
    /// The server continued to write to it (RT5).
    #[serde(default)]
    pub goes_on: bool,
    /// Its file was made shorter (CF1).
    #[serde(default)]
    pub is_cut: bool,
}

impl LeftPv {
    pub fn uuid(&self) -> Uuid {
        Uuid(self.uuid)
    }
}

/// Why a disk counts as changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    Older,
    Newer,
    Unproven,
    Unread,
    Cut,
    /// It is unchanged as far as known, but writes to it fail.
    ReadOnly,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mismatch::Older => "it is an older copy, or has lost what was flushed to it",
            Mismatch::Newer => "it was used elsewhere meanwhile",
            Mismatch::Unproven => {
                "its last writes were being overwritten, so nothing proves that it is not an older copy"
            }
            Mismatch::Unread => "it cannot be read",
            Mismatch::Cut => "its file was made shorter while it was in use, and what was cut off is lost",
            Mismatch::ReadOnly => "it is read-only",
        })
    }
}

fn left_file(group: &str) -> PathBuf {
    paths::group_dir(group).join("left")
}

fn owed_file(group: &str) -> PathBuf {
    paths::group_dir(group).join("owed")
}

fn accepted_file(group: &str) -> PathBuf {
    paths::group_dir(group).join("accepted")
}

impl Left {
    /// The present state of this group's disks.
    pub fn of(name: &str, group: &Group, pvs: &PvSet, is_asked: bool) -> Left {
        // In this order, so that a disk that fails in between is in the note.
        let has_stopped = group.failed().is_err();
        let info = group.info();
        let left = info.pvs.iter().enumerate().filter(|(_, pv)| !pv.is_missing).filter_map(|(at, pv)| {
            let index = PvIndex(u16::try_from(at).ok()?);
            let faults = pvs.faults(index);
            let is_held = faults.reads + faults.writes + faults.flushes == 0;
            let goes_on = is_held && !has_stopped && !planted::is("note_of_the_living");
            let (path, places) = (pvs.path(index)?, pvs.places(index));
            Some(LeftPv { uuid: pv.uuid.0, path, places, is_held, goes_on, is_cut: faults.is_cut })
        });
        Left { group: name.to_owned(), sequence: info.sequence, is_asked, pvs: left.collect() }
    }

    pub fn note(&self) -> io::Result<()> {
        run_file::write(&left_file(&self.group), self)
    }

    /// Whether each of these disks is unchanged. `found`: the disks now.
    pub fn compare(
        &self,
        disks: &[(&LeftPv, PathBuf, Option<Found>)],
    ) -> io::Result<Vec<std::result::Result<(), Mismatch>>> {
        let offsets = |pv: &LeftPv| pv.places.iter().flatten().map(|place| place.offset).collect();
        let asked: Vec<sample::Asked> = disks.iter().map(|(pv, path, _)| (path.clone(), offsets(pv))).collect();
        let samples = sample::samples(&asked)?;
        let compared = disks
            .iter()
            .zip(samples)
            .map(|((pv, path, found), sample)| self.compare_one(pv, path, found.as_ref(), sample));
        Ok(compared.collect())
    }

    fn compare_one(
        &self,
        left: &LeftPv,
        path: &Path,
        found: Option<&Found>,
        sample: Option<Sample>,
    ) -> std::result::Result<(), Mismatch> {
        let pv = found.and_then(|found| found.pv(path)).ok_or(Mismatch::Unread)?;
        let label = pv.label().filter(|label| label.pv_uuid == left.uuid()).ok_or(Mismatch::Unread)?;
        if planted::is("any_age_returns") {
            return Ok(());
        }
        if left.is_cut {
            return Err(Mismatch::Cut);
        }
        let sample = sample.ok_or(Mismatch::Unread)?;
        if sample.is_read_only {
            return Err(Mismatch::ReadOnly);
        }
        let sequence = label.group.as_ref().map_or(0, |group| group.sequence);
        if sequence > self.sequence && !left.goes_on {
            return Err(Mismatch::Newer);
        }
        if sequence + 1 < self.sequence {
            return Err(Mismatch::Older);
        }
        if left.goes_on {
            return Ok(());
        }
        let Some(places) = &left.places else {
            let is_proven = self.is_asked || (left.is_held && !planted::is("held_unproven"));
            return if is_proven { Ok(()) } else { Err(Mismatch::Unproven) };
        };

        match places.iter().map(|place| place.sum).eq(sample.sums) {
            true => Ok(()),
            false => Err(Mismatch::Older),
        }
    }

    /// The message about a disk that has changed.
    pub fn refusal(&self, pv: &LeftPv, path: &Path, why: Mismatch) -> String {
        let group = &self.group;
        if why == Mismatch::ReadOnly {
            return format!(
                "Physical volume {} of volume group \"{group}\" is read-only. Make it writable (blockdev --setrw), \
                 and the group goes on by itself.",
                path.display()
            );
        }
        if why == Mismatch::Cut {
            return format!(
                "Physical volume {} ({}) of volume group \"{group}\" cannot be used any more: {why}. Detach it, and go on without \
                 it: vgchange -ay --activationmode partial {group}.",
                path.display(),
                lvm_text(pv.uuid())
            );
        }
        format!(
            "Physical volume {} ({}) of volume group \"{group}\" is not as its server left it: {why}. Attach the one that left, \
             and the group goes on by itself; or use this one as it is: rowen clear --force {group}.",
            path.display(),
            lvm_text(pv.uuid())
        )
    }
}

/// Refuses to open disks that are not as they were left (RT1). `opened`: those of the group, in order.
pub fn check(group: &str, opened: &[PathBuf]) -> Result<()> {
    let failed = |e: io::Error| {
        let message =
            format!("Cannot compare the physical volumes of volume group \"{group}\" with how they were left: {e}.");
        Failure::new(ErrorKind::Internal, message)
    };
    let is_accepted = accepted_file(group).exists();
    let left = match run_file::read::<Left>(&left_file(group)) {
        Err(_) if is_accepted => None,
        read => read.map_err(failed)?,
    };
    let Some(left) = left else { return Ok(()) };
    if is_accepted {
        super::log::line(format_args!("the physical volumes of volume group {group} are taken as they are"));
        // What was cut off reads as zeros (CF1).
        if !left.pvs.iter().any(|pv| pv.is_cut) || planted::is("cut_accepted") {
            return Ok(());
        }
    }
    let found = probe::probe(opened)?;
    let mut disks = Vec::new();
    for (path, found) in opened.iter().zip(found).filter(|(path, _)| path.as_path() != Path::new(MISSING)) {
        let uuid = found.as_ref().and_then(|found| Some(found.pv(path)?.label()?.pv_uuid));
        // A disk that joined in the last moment is not noted. One whose name has gone since it was opened is known by its path.
        let is_it = |pv: &&LeftPv| uuid.map_or(pv.path == *path, |uuid| pv.uuid() == uuid);
        if let Some(pv) = left.pvs.iter().find(is_it) {
            disks.push((pv, path.clone(), found));
        }
    }
    let compared = left.compare(&disks).map_err(failed)?;
    let mut refused =
        disks.iter().zip(compared).filter_map(|((pv, path, _), outcome)| Some((pv, path, outcome.err()?)));
    match refused.find(|(pv, ..)| !is_accepted || pv.is_cut) {
        Some((pv, path, why)) => Err(Failure::new(ErrorKind::Denied, left.refusal(pv, path, why))),
        None => Ok(()),
    }
}

/// Whether there is a note about the group.
pub fn is_noted(group: &str) -> bool {
    left_file(group).exists()
}

/// The group is open, so its note is removed.
pub fn forget(group: &str) {
    for file in [left_file(group), accepted_file(group)] {
        let _ = fs::remove_file(file);
    }
}

/// An administrator has accepted the disks as they are (RT1).
pub fn accept(group: &str) -> Result<()> {
    // A group that has not stopped has nothing to accept, now or later.
    if !left_file(group).exists() {
        return Ok(());
    }
    fs::write(accepted_file(group), "").map_err(|e| {
        let message = format!("Cannot write {}: {e}.", accepted_file(group).display());
        Failure::new(ErrorKind::Internal, message)
    })
}

/// Stands for every volume in use, in a note of volumes whose next flush must fail.
pub const EVERY: u64 = u64::MAX;

/// The volumes whose next flush must fail (RT2), by their numbers.
pub fn owed(group: &str) -> Vec<u64> {
    run_file::read(&owed_file(group)).unwrap_or_default().unwrap_or_default()
}

/// Notes them, also that there are none.
pub fn note_owed(group: &str, volumes: &[u64]) -> io::Result<()> {
    if volumes.is_empty() {
        return match fs::remove_file(owed_file(group)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    }
    run_file::write(&owed_file(group), &volumes)
}
