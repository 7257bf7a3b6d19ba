//! A pulled disk comes back: the server that lost it finds it, proves that it is the same disk, unchanged, and ends, so
//! that a successor opens the group.
//!
//! The server itself cannot continue: the disk may have lost unflushed writes, and the server's state in memory depends
//! on them. Recovery reads what the disk has (ADR 0036).
//!
//! * RT3 It ends only under these conditions. A disk was seen to be missing. Two checks in a row found all disks of the
//!   group, each proven unchanged (RT1). This is noted for the successor.
//! * RT4 Helpers search for disks, with a time limit, and not while several earlier helpers are stuck. They read all
//!   devices only after the set of devices has changed, and while no helper is stuck. This process opens no device, and
//!   no path that may lie on a volume (H1).

use super::doubt::Doubt;
use super::left::{self, Left, LeftPv, Mismatch};
use super::seek::{self, Seeker};
use super::state::Server;
use super::{log, lost};
use crate::devices;
use crate::devices::probe::Found;
use crate::paths;
use rowen_control::history::What;
use rowen_control::protocol::DiskWait;
use rowen_control::uuids::lvm_text;
use rowen_engine::disk::PvIndex;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a server that lost a disk looks for it.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// This many checks in a row must find all disks.
const SURE: u32 = 2;
/// The number of recent lines that are not logged twice.
const REMEMBERED: usize = 8;

/// Looks for lost disks of this server from now on, until the process ends.
pub fn start(server: &Arc<Server>) {
    let server = Arc::downgrade(server);
    let watch = move || watch(&server);
    if let Err(e) = std::thread::Builder::new().name("rowen-returns".into()).spawn(watch) {
        log::warning(format_args!("nothing searches for disks that come back: {e}"));
    }
}

fn watch(server: &Weak<Server>) {
    let (mut search, mut lost, mut doubt) = (Search::default(), lost::Search::default(), Doubt::default());
    loop {
        std::thread::sleep(POLL_EVERY);
        let Some(server) = server.upgrade() else { return };
        if server.service.ending.is_asked() {
            return;
        }
        for (at, pv) in (0..).zip(server.service.group.info().pvs).filter(|(_, pv)| !pv.is_missing) {
            server.pvs.look_for_cut(PvIndex(at), pv.size);
        }
        search.turn(&server);
        lost.turn(&server);
        doubt.turn(&server);
    }
}

#[derive(Default)]
struct Search {
    /// The number of observed failures of requests.
    faults: u64,
    /// A failed disk was missing from its old path.
    was_away: bool,
    found: u32,
    seeker: Seeker,
    /// The last lines of the log.
    logged: Vec<String>,
    /// The state of the server at its last note for a successor.
    noted: Option<Noted>,
}

/// The state on which a note depends. The note is written again when it changes.
#[derive(PartialEq, Eq)]
struct Noted {
    has_stopped: bool,
    /// Which disks have not failed (RT5).
    going_on: Vec<bool>,
    /// The volumes in use.
    volumes: Vec<u64>,
}

/// A physical volume, and the devices where it may be.
struct Sought {
    left: LeftPv,
    index: PvIndex,
    /// Devices with its label, and whether each is the open device.
    there: Vec<(PathBuf, Found, bool)>,
}

impl Search {
    fn turn(&mut self, server: &Server) {
        let service = &server.service;
        let has_stopped = service.group.failed().is_err();
        // A disk with a bad place is not lost: it is checked once for each failure.
        let faults: u64 = (0..service.group.info().pvs.len()).map(|at| failures(server, at)).sum();
        let is_ill = has_stopped || self.was_away || faults != self.faults;
        if !is_ill {
            return;
        }
        self.faults = faults;
        let left = Left::of(&service.name, &service.group, &server.pvs, false);
        if has_stopped || self.was_away {
            let going_on = left.pvs.iter().map(|pv| pv.goes_on).collect();
            let noted = Noted { has_stopped, going_on, volumes: server.exports.volumes() };
            if self.noted.as_ref() != Some(&noted) {
                self.noted = self.note(server, &left).then_some(noted);
            }
        }
        if !seek::may_search() {
            return;
        }
        match self.find(server, &left) {
            Ok(sought) => self.judge(server, &left, &sought),
            Err(e) => self.log_once(What::PvError, &format!("cannot search for disks that failed: {e}")),
        }
    }

    /// This also serves the successor of a server that is killed now: all volumes in use may have lost writes.
    fn note(&mut self, server: &Server, left: &Left) -> bool {
        let group = &server.service.name;
        let noted = left::note_owed(group, &server.exports.volumes()).and_then(|()| left.note());
        self.is_written(server, noted)
    }

    /// Whether the notes for a successor are written. If not, the group does not continue automatically.
    fn is_written(&mut self, server: &Server, noted: io::Result<()>) -> bool {
        let Err(e) = noted else { return true };
        let group = &server.service.name;
        let directory = paths::group_dir(group);
        let what = format!("cannot record the state for a successor in {}: {e}", directory.display());
        self.log_once(What::PvError, &format!("WARNING: volume group {group} does not go on by itself: {what}"));
        let next = "make room there; then the group goes on by itself".to_owned();
        server.service.wait_for_disk(Some(DiskWait { what, next, away: Vec::new() }));
        false
    }

    fn log_once(&mut self, what: What, line: &str) {
        if self.logged.iter().any(|logged| logged == line) {
            return;
        }
        log::event(what, line);
        if self.logged.len() == REMEMBERED {
            self.logged.remove(0);
        }
        self.logged.push(line.to_owned());
    }

    /// Finds the physical volumes: at their old paths or, after a change of devices, at any path.
    fn find(&mut self, server: &Server, left: &Left) -> Result<Vec<Sought>, devices::Error> {
        let uuids: Vec<_> = server.service.group.info().pvs.iter().map(|pv| pv.uuid).collect();
        let mut sought: Vec<Sought> = Vec::new();
        for pv in &left.pvs {
            let at = uuids.iter().position(|uuid| *uuid == pv.uuid()).and_then(|at| u16::try_from(at).ok());
            let Some(index) = at.map(PvIndex) else { continue };
            sought.push(Sought { left: pv.clone(), index, there: Vec::new() });
        }
        // A file that exists again is no new device.
        let paths = left.pvs.iter().map(|pv| pv.path.clone()).collect();
        let is_somewhere =
            |pv: &Sought, seen: &[(PathBuf, Found)]| seen.iter().any(|(path, found)| found.is_pv(path, pv.left.uuid()));
        let seen = self.seeker.search(paths, |seen| sought.iter().all(|pv| is_somewhere(pv, seen)))?;
        for pv in &mut sought {
            let open = server.identity(pv.index);
            for (path, found) in &seen {
                let is_known = pv.there.iter().any(|(_, known, _)| known.identity == found.identity);
                if found.is_pv(path, pv.left.uuid()) && !is_known {
                    pv.there.push((path.clone(), found.clone(), Some(found.identity) == open));
                }
            }
        }
        for pv in &mut sought {
            let is_open = pv.there.iter().any(|(.., is_open)| *is_open);
            pv.left.is_held &= is_open;
            pv.left.goes_on &= is_open;
        }
        // It was found elsewhere, and the next check must find it again.
        if sought.iter().any(|pv| pv.there.iter().any(|(path, ..)| *path != pv.left.path)) {
            self.seeker.search_all_again();
        }
        Ok(sought)
    }

    fn judge(&mut self, server: &Server, left: &Left, sought: &[Sought]) {
        let group = &server.service.name;
        let away = sought.iter().find(|pv| pv.there.is_empty());
        let is_away =
            |pv: &Sought| failures(server, pv.index.0.into()) > 0 && !pv.there.iter().any(|(_, _, is_open)| *is_open);
        self.was_away |= sought.iter().any(is_away);
        if !self.was_away {
            return;
        }
        if let Some(pv) = away {
            self.found = 0;
            let (path, uuid) = (pv.left.path.display(), lvm_text(pv.left.uuid()));
            let what = format!("physical volume {path} ({uuid}) is away");
            self.log_once(
                What::PvAway,
                &format!("{what}: volume group \"{group}\" goes on by itself when it is attached again"),
            );
            let next = "attach it: the group goes on by itself, without any command".to_owned();
            let away = sought.iter().filter(|pv| pv.there.is_empty()).map(|pv| pv.left.uuid().0).collect();
            return server.service.wait_for_disk(Some(DiskWait { what, next, away }));
        }
        match compare(left, sought) {
            Ok(paths) => self.found_all(server, &paths),
            Err(why) => {
                self.found = 0;
                let (what, next) = why.split_once(". ").unwrap_or((&why, ""));
                let (what, next) = (what.to_owned(), next.trim_end_matches('.').to_owned());
                self.log_once(What::PvRefused, &why);
                server.service.wait_for_disk(Some(DiskWait { what, next, away: Vec::new() }));
            }
        }
    }

    fn found_all(&mut self, server: &Server, paths: &[PathBuf]) {
        self.found += 1;
        if self.found < SURE {
            return;
        }
        let service = &server.service;
        let group = &service.name;
        let left = Left::of(&service.name, &service.group, &server.pvs, false);
        let noted = devices::members::write(group, paths);
        if !self.is_written(server, noted) || !self.note(server, &left) {
            return;
        }
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let line = format!(
            "volume group \"{group}\" has all its physical volumes again, as they were left ({}), and goes on",
            paths.join(", ")
        );
        log::event(What::PvBack, line);
        service.wait_for_disk(None);
        service.reopen_unasked();
    }
}

/// The number of failed requests to the disk with this index in the group.
fn failures(server: &Server, at: usize) -> u64 {
    let faults = u16::try_from(at).map(|at| server.pvs.faults(PvIndex(at))).unwrap_or_default();
    faults.reads + faults.writes + faults.flushes
}

/// The path of each physical volume, in order, if exactly one device of each is unchanged. Otherwise the message.
fn compare(left: &Left, sought: &[Sought]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for pv in sought {
        let disks: Vec<_> =
            pv.there.iter().map(|(path, found, _)| (&pv.left, path.clone(), Some(found.clone()))).collect();
        let compared = left.compare(&disks).map_err(|e| format!("the disks cannot be compared: {e}"))?;
        let alike: Vec<&PathBuf> =
            disks.iter().zip(&compared).filter(|(_, outcome)| outcome.is_ok()).map(|((_, path, _), _)| path).collect();
        match alike[..] {
            [path] => paths.push(path.clone()),
            [] => {
                let why = compared.iter().find_map(|outcome| outcome.err()).unwrap_or(Mismatch::Unread);
                return Err(left.refusal(&pv.left, &disks[0].1, why));
            }
            [one, other, ..] => {
                let (one, other) = (one.display(), other.display());
                return Err(format!(
                    "{one} and {other} are the same physical volume. Detach the copy, and the group goes on by itself."
                ));
            }
        }
    }
    Ok(paths)
}
