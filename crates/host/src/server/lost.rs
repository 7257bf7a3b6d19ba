//! Disks that failed in use, and without which the group continues (MB9). The server that saw a disk fail notes it. Its
//! successor opens the group without the disk, and takes it back when it has come back.
//!
//! * LD1 The next server of this boot leaves out a noted disk, even if the disk can be read again. The disk may have lost
//!   acknowledged writes that were not flushed, and only the volumes with such writes report an error.
//! * LD2 The server takes a disk back by itself only if the disk was away: its device was missing, or is another device
//!   now. One that does not answer is not away. The disk must be as it was left (RT1) in two looks in a row. If a disk
//!   failed without being away, a user must ask for it.
//!
//! The note is in the run directory: it survives servers, but not a boot. After a boot a user must ask, too.

use super::left::{self, Left};
use super::log;
use super::seek::{self, Seeker};
use super::state::Server;
use crate::devices::Identity;
use crate::devices::probe::Found;
use crate::{paths, planted, run_file, witness};
use rowen_control::history::What;
use rowen_control::protocol::{Caller, Outcome, Request};
use rowen_control::uuids::lvm_text;
use rowen_engine::disk::PvIndex;
use rowen_engine::group::{Group, PvFlags};
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// How many looks in a row must find it.
const SURE: u32 = 2;

/// A disk that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LostPv {
    /// How this disk was left.
    left: Left,
    /// Its device, and the number that distinguishes it from later devices with the same numbers.
    device: Option<(Identity, Option<u64>)>,
    /// The volumes with unflushed writes on any disk.
    unflushed: Vec<u64>,
}

impl LostPv {
    fn uuid(&self) -> Option<Uuid> {
        self.left.pvs.first().map(left::LeftPv::uuid)
    }

    fn is_cut(&self) -> bool {
        self.left.pvs.iter().any(|pv| pv.is_cut)
    }
}

fn file(group: &str) -> PathBuf {
    paths::group_dir(group).join("lost")
}

fn read(group: &str) -> Vec<LostPv> {
    run_file::read(&file(group)).unwrap_or_default().unwrap_or_default()
}

/// The disks of the group to leave out (LD1).
pub fn noted(group: &str) -> Vec<Uuid> {
    if planted::is("lost_untold") {
        return Vec::new();
    }
    read(group).iter().filter_map(LostPv::uuid).collect()
}

/// Where they were. One that hangs need not be asked.
pub fn paths_of_noted(group: &str) -> Vec<PathBuf> {
    read(group).into_iter().flat_map(|lost| lost.left.pvs).map(|pv| pv.path).collect()
}

/// The disk that failed, and all others that failed a flush: it is unknown what they have kept.
pub fn suspects(server: &Server, lost: PvIndex) -> PvFlags {
    let mut suspects = PvFlags::default();
    for at in 0..server.service.group.info().pvs.len() {
        let index = PvIndex(u16::try_from(at).unwrap_or(u16::MAX));
        suspects.set(at, index == lost || server.pvs.faults(index).flushes > 0);
    }
    suspects
}

/// Adds a disk to the note.
pub fn note(server: &Server, pv: PvIndex) -> io::Result<()> {
    let service = &server.service;
    let mut left = Left::of(&service.name, &service.group, &server.pvs, false);
    let uuid = service.group.info().pvs.get(usize::from(pv.0)).map(|pv| pv.uuid);
    left.pvs.retain(|pv| Some(pv.uuid()) == uuid);
    // One that hangs has not failed, but is let go all the same: it must prove what it has.
    left.pvs.iter_mut().for_each(|pv| pv.is_held = false);
    let device = server.identity(pv).map(|device| (device, device.appearance()));
    let mut lost = read(&service.name);
    lost.retain(|pv| pv.uuid() != uuid);
    lost.push(LostPv { left, device, unflushed: server.exports.unflushed() });
    run_file::write(&file(&service.name), &lost)
}

/// The group cannot be opened without the noted disks, so it waits for all of its disks. By then any of them may have lost
/// writes.
pub fn give_up(group: &str) {
    let mut owed = left::owed(group);
    owed.extend(read(group).into_iter().flat_map(|lost| lost.unflushed));
    owed.sort_unstable();
    owed.dedup();
    if let Err(e) = left::note_owed(group, &owed) {
        log::warning(format_args!("cannot record which volumes may have lost writes: {e}"));
    }
    forget(group);
}

/// A noted disk was taken back.
pub fn is_back(group: &str, pv: Uuid) {
    let mut lost = read(group);
    lost.retain(|lost| lost.uuid() != Some(pv));
    // The superblocks say which of the others are out.
    if lost.is_empty() || run_file::write(&file(group), &lost).is_err() {
        forget(group);
    }
}

/// Removes the note.
fn forget(group: &str) {
    let _may_not_be_there = std::fs::remove_file(file(group));
}

/// Whether it was left because its file was made shorter (CF1).
pub fn was_cut(group: &str, pv: Uuid) -> bool {
    read(group).iter().flat_map(|lost| &lost.left.pvs).any(|left| left.uuid() == pv && left.is_cut)
}

/// The noted disks that are still out.
fn still_out(group: &Group, mut lost: Vec<LostPv>) -> Vec<LostPv> {
    let info = group.info();
    let is_out = |uuid: Option<Uuid>| info.pvs.iter().any(|pv| Some(pv.uuid) == uuid && pv.is_missing);
    lost.retain(|pv| is_out(pv.uuid()));
    lost
}

/// The search for noted disks that come back.
#[derive(Default)]
pub struct Search {
    seeker: Seeker,
    was_away: bool,
    found: u32,
    logged: Option<String>,
    /// The physical volumes that this host will remember as cut, and when that was tried last.
    cut: Vec<Uuid>,
    tried: Option<Instant>,
}

impl Search {
    pub fn turn(&mut self, server: &Server) {
        let service = &server.service;
        let noted = read(&service.name);
        if noted.is_empty() {
            return;
        }
        self.remember_cut(&noted);
        let lost = still_out(&service.group, noted);
        let Some(first) = lost.first() else {
            forget(&service.name);
            *self = Search::default();
            return;
        };
        // A group that has stopped takes nothing back: it is opened again, and its next server does.
        if service.group.failed().is_err() || !seek::may_search() {
            return;
        }
        match self.find(first) {
            Ok(Some(path)) => self.take_back(server, first, &path),
            Ok(None) => {}
            Err(why) => self.log_once(&why),
        }
    }

    /// The note of this boot is not enough (NW5).
    fn remember_cut(&mut self, noted: &[LostPv]) {
        let mut cut = noted.iter().filter(|lost| lost.is_cut()).filter_map(LostPv::uuid);
        let Some(pv) = cut.find(|pv| !self.cut.contains(pv)) else { return };
        if self.tried.is_some_and(|tried| tried.elapsed() < witness::AGAIN) {
            return;
        }
        match witness::ask(witness::Work::Cut(pv.0), witness::LIMIT) {
            Ok(()) => self.cut.push(pv),
            // A helper may hang: not another one at once.
            Err(_) => self.tried = Some(Instant::now()),
        }
    }

    fn log_once(&mut self, why: &str) {
        if self.logged.as_deref() != Some(why) {
            log::event(What::PvRefused, why);
            self.logged = Some(why.to_owned());
        }
    }

    /// The path of the disk, if it is to be taken back now.
    fn find(&mut self, lost: &LostPv) -> Result<Option<PathBuf>, String> {
        let Some(pv) = lost.left.pvs.first() else { return Ok(None) };
        let is_it = |(path, found): &(PathBuf, Found)| found.is_pv(path, pv.uuid());
        let seen = self.seeker.search(vec![pv.path.clone()], |seen| seen.iter().any(is_it));
        let mut there = seen.map_err(|e| format!("cannot search for a disk that failed: {e}"))?;
        there.retain(is_it);
        if there.iter().any(|(path, _)| *path != pv.path) {
            // It was found elsewhere, and the next check must find it again.
            self.seeker.search_all_again();
        }
        let mut known = Vec::new();
        there.retain(|(_, found)| {
            let is_new = !known.contains(&found.identity);
            known.push(found.identity);
            is_new
        });
        if there.is_empty() && self.seeker.is_silent(&pv.path) {
            self.found = 0;
            return Ok(None);
        }
        let is_same = |found: &Found| lost.device == Some((found.identity, found.identity.appearance()));
        self.was_away |= !there.iter().any(|(_, found)| is_same(found));
        let [(path, found)] = &there[..] else {
            self.found = 0;
            return match there.len() {
                0 => Ok(None),
                _ => Err(format!(
                    "{} and {} are the same physical volume: detach the copy",
                    there[0].0.display(),
                    there[1].0.display()
                )),
            };
        };
        if !self.was_away {
            return Ok(None);
        }
        let compared = lost.left.compare(&[(pv, path.clone(), Some(found.clone()))]);
        match compared.map_err(|e| format!("cannot compare a disk that failed: {e}"))?.first() {
            Some(Err(why)) if !planted::is("any_lost_returns") => {
                self.found = 0;
                let (at, uuid) = (path.display(), lvm_text(pv.uuid()));
                Err(format!("physical volume {at} ({uuid}) is attached again, but is not taken back by itself: {why}"))
            }
            _ => {
                self.found += 1;
                Ok((self.found >= SURE).then(|| path.clone()))
            }
        }
    }

    fn take_back(&mut self, server: &Server, lost: &LostPv, path: &std::path::Path) {
        let service = &server.service;
        let request = Request::RestorePv { path: path.display().to_string() };
        let caller =
            Caller { command: format!("the return of physical volume {}", path.display()), ..Caller::default() };
        match service.handle(request, &caller, &mut |_| {}) {
            Outcome::Ok => {
                let uuid = lost.uuid().map(lvm_text).unwrap_or_default();
                let line = format!(
                    "volume group \"{}\" has physical volume {} ({uuid}) again, as it was left",
                    service.name,
                    path.display()
                );
                log::event(What::PvBack, line);
                *self = Search::default();
            }
            Outcome::Error { message, .. } => {
                self.found = 0;
                self.log_once(message.lines().next().unwrap_or_default());
            }
            _ => {}
        }
    }
}
