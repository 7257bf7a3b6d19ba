//! Extents move from one physical volume to others (`pvmove`).

use super::failure::{Failure, Result};
use super::platform::MoveNote;
use super::state::Service;
use super::wanted_move::{EndedMove, WantedMove};
use crate::history::What;
use crate::protocol::{ErrorKind, MoveReport, Outcome, PvPart};
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{MoveProgress, NewMove, PvExtents};
use rowen_engine::planted;
use rowen_engine::units::BLOCK_SIZE;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a request that stops a move waits for its end.
const STOPPED: Duration = Duration::from_secs(10);
/// How long a request for the progress of a move waits for its end.
const WAITED: Duration = Duration::from_millis(200);

impl Service {
    /// Starts to move extents of the physical volume at `path`.
    pub fn move_extents(
        &self,
        path: &str,
        extents: &[(u64, u64)],
        to: &[PvPart],
        volume: Option<&str>,
    ) -> Result<Outcome> {
        self.continue_move();
        self.refuse_while_moving()?;
        let from = self.pv_at(Path::new(path))?;
        let volume = volume.map(|name| self.find(name)).transpose()?;
        let ranges = extents.iter().map(|(first, count)| *first..first.saturating_add(*count)).collect();
        let id = volume.as_ref().map(|info| info.id);
        let wanted = NewMove { from, extents: ranges, to: self.extents_on(to)?, volume: id };
        let uuid_of = |pv: PvIndex| self.group.info().pvs.get(usize::from(pv.0)).map_or([0; 16], |pv| pv.uuid.0);
        let places = wanted.to.iter();
        let note = MoveNote {
            group: self.group.info().uuid.0,
            from: uuid_of(from),
            extents: extents.to_vec(),
            to: places.map(|to| (uuid_of(to.pv), to.extents.start, to.extents.end - to.extents.start)).collect(),
            volume: volume.map(|info| info.uuid.0),
            total: 0,
        };
        let total = self.begin_move(note, wanted)?;
        if total == 0 {
            return Err(Failure::new(ErrorKind::NotFound, format!("No data to move for {}.", self.name)));
        }
        self.event(What::Changed, &format!("{total} extents of physical volume {path} are being moved"));
        Ok(Outcome::Moving(self.move_report(self.group.move_progress())))
    }

    /// Starts a move, and notes it before (PM9). Returns how many extents it moves; 0: none, and there is no note.
    fn begin_move(&self, note: MoveNote, wanted: NewMove) -> Result<u64> {
        self.note_move(Some(&note));
        let group = self.group.clone();
        let begun = self.run(async move { group.start_move(wanted).await });
        let total = match self.told(begun, "") {
            Ok(total) if total > 0 => total,
            other => {
                self.note_move(None);
                return other;
            }
        };
        let note = MoveNote { total: note.total.max(total), ..note };
        self.note_move(Some(&note));
        let before = note.total - total;
        let begun = Some(Instant::now());
        *self.wanted_move.lock() =
            WantedMove { note: Some(note), is_searched: true, begun, before, ..WantedMove::default() };
        Ok(total)
    }

    /// If the note cannot be written, a successor does not resume the move.
    fn note_move(&self, note: Option<&MoveNote>) {
        if let Err(e) = self.platform.notes.moving(note) {
            self.log(&format!("cannot record the move for a successor: {e}"));
        }
    }

    /// Resumes the move of an earlier server, and forgets a move that has ended (PM9).
    pub fn continue_move(&self) {
        self.find_noted_move();
        let (note, has_begun) = {
            let wanted = self.wanted_move.lock();
            (wanted.note.clone(), wanted.begun.is_some())
        };
        let Some(note) = note.filter(|_| !self.group.is_moving()) else { return };
        if has_begun {
            let is_interrupted =
                self.group.failed().is_err() || self.group.move_progress().failed == Some(Error::Closed);
            if !is_interrupted {
                self.tell_end_of_move();
                self.forget_move();
            }
            return;
        }
        // A long change must not delay the server's other periodic work.
        let Some(_change) = self.change.try_lock() else { return };
        self.go_on_moving(note);
    }

    /// Checks once whether an earlier server has left a move.
    fn find_noted_move(&self) {
        let mut wanted = self.wanted_move.lock();
        if wanted.is_searched || planted::is("move_not_resumed") {
            return;
        }
        wanted.is_searched = true;
        let Some(note) = self.platform.notes.noted_move() else { return };
        match note.group == self.group.info().uuid.0 {
            true => wanted.note = Some(note),
            // The note is of another group with the same name.
            false => {
                drop(wanted);
                self.note_move(None);
            }
        }
    }

    fn go_on_moving(&self, note: MoveNote) {
        let Some(wanted) = self.move_of(&note) else {
            return self.not_resumed(note, "a volume or physical volume that it needs was removed");
        };
        let path = self.platform.members.path(wanted.from).unwrap_or_default();
        if let Err(error) = self.group.may_move() {
            // It will be tried again.
            self.wanted_move.lock().waits = Some(self.failure(&error, "").message);
            return;
        }
        let ended = note.clone();
        match self.begin_move(note, wanted) {
            Ok(0) => {
                self.forget_move();
                let end = Some(EndedMove { note: ended, failed: None });
                self.wanted_move.lock().ended = end.filter(|_| !planted::is("end_of_move_forgotten"));
            }
            Ok(total) => {
                let left = format!("{total} extents of physical volume {} are still to be moved", path.display());
                self.event(What::Changed, &format!("the move goes on after the server was replaced: {left}"));
            }
            Err(failure) => self.not_resumed(ended, failure.message.trim_end_matches('.')),
        }
    }

    /// A move of an earlier server does not go on.
    fn not_resumed(&self, note: MoveNote, why: &str) {
        let source = match self.path_of_pv(&note.from) {
            Some(path) => format!("physical volume {}", path.display()),
            None => "a physical volume that was removed".into(),
        };
        self.event(What::Changed, &format!("the move off {source} does not go on: {why}"));
        self.forget_move();
        self.wanted_move.lock().ended = Some(EndedMove { note, failed: Some(format!("{why}.")) });
    }

    /// The move of this server has ended: the group's history says how.
    fn tell_end_of_move(&self) {
        let end = self.move_report(self.group.move_progress());
        let of = format!("{} of {} extents", end.moved, end.total);
        let line = match (&end.failed, end.unreadable) {
            (Some(why), _) => {
                format!("the move off physical volume {} failed after {of}: {}", end.path, why.trim_end_matches('.'))
            }
            (None, 0) => format!("{} extents of physical volume {} were moved", end.moved, end.path),
            (None, some) => {
                let path = &end.path;
                format!("{of} of physical volume {path} were moved; {some} cannot be read, and stay where they are")
            }
        };
        self.event(What::Changed, &line);
    }

    /// The physical volume with this UUID, if it is in the group.
    fn pv_with(&self, uuid: &[u8; 16]) -> Option<PvIndex> {
        let place = self.group.info().pvs.iter().position(|pv| pv.uuid.0 == *uuid)?;
        u16::try_from(place).ok().map(PvIndex)
    }

    fn path_of_pv(&self, uuid: &[u8; 16]) -> Option<PathBuf> {
        self.platform.members.path(self.pv_with(uuid)?)
    }

    /// The noted move, with the current numbers of the physical volumes. None: one of them, or the volume, is gone.
    fn move_of(&self, note: &MoveNote) -> Option<NewMove> {
        let run = |first: u64, count: u64| first..first.saturating_add(count);
        let target = |(uuid, first, count): &([u8; 16], u64, u64)| {
            Some(PvExtents { pv: self.pv_with(uuid)?, extents: run(*first, *count) })
        };
        let volume = match note.volume {
            None => None,
            Some(uuid) => Some(self.group.volumes().into_iter().find(|volume| volume.uuid.0 == uuid)?.id),
        };
        let extents = note.extents.iter().map(|(first, count)| run(*first, *count)).collect();
        Some(NewMove {
            from: self.pv_with(&note.from)?,
            extents,
            to: note.to.iter().map(target).collect::<Option<_>>()?,
            volume,
        })
    }

    fn forget_move(&self) {
        {
            let mut wanted = self.wanted_move.lock();
            (wanted.note, wanted.waits, wanted.is_searched) = (None, None, true);
        }
        self.note_move(None);
    }

    /// The progress of the move, when it has ended or after a short time.
    pub fn move_status(&self) -> MoveReport {
        self.find_noted_move();
        let group = self.group.clone();
        let progress = self.run(async move { group.move_ended_within(WAITED).await });
        self.move_report(progress)
    }

    /// Ends the running move, if there is one.
    pub fn stop_move(&self) -> Outcome {
        self.find_noted_move();
        let mut wanted = self.move_report(self.group.move_progress());
        self.forget_move();
        if !self.group.is_moving() {
            (wanted.is_stopped, wanted.is_running) = (wanted.is_running, false);
            return Outcome::Moving(wanted);
        }
        self.group.stop_move();
        // A disk that hangs may have what is being copied: then it ends later, and nobody waits for that.
        let group = self.group.clone();
        let progress = self.run(async move { group.move_ended_within(STOPPED).await });
        Outcome::Moving(self.move_report(progress))
    }

    fn move_report(&self, progress: MoveProgress) -> MoveReport {
        let (note, ended, before, begun, waits) = {
            let wanted = self.wanted_move.lock();
            (wanted.note.clone(), wanted.ended.clone(), wanted.before, wanted.begun, wanted.waits.clone())
        };
        let info = self.group.info();
        let extent_bytes = info.extent_blocks * BLOCK_SIZE;
        let is_own = begun.is_some() || progress.is_running;
        let path = |note: &MoveNote| self.path_of_pv(&note.from).unwrap_or_default().display().to_string();
        if let Some(EndedMove { note, failed }) = ended.filter(|_| !is_own) {
            // How much of one that was not resumed had moved, nobody knows.
            let (moved, bytes) = if failed.is_some() { (0, 0) } else { (note.total, note.total * extent_bytes) };
            return MoveReport {
                path: path(&note),
                moved,
                total: note.total,
                copied_bytes: bytes,
                total_bytes: note.total * extent_bytes,
                failed,
                ..MoveReport::default()
            };
        }
        if let Some(note) = note.filter(|_| !is_own) {
            return MoveReport {
                is_running: true,
                path: path(&note),
                total: note.total,
                total_bytes: note.total * extent_bytes,
                waits: Some(waits.unwrap_or_else(|| "the server was replaced and is about to go on".into())),
                ..MoveReport::default()
            };
        }
        let is_stopped = progress.failed == Some(Error::Closed);
        let has_moved = progress.is_running || progress.total > 0;
        let path = self.platform.members.path(progress.from).filter(|_| has_moved);
        let (moved, total) = (before + progress.moved, before + progress.total);
        let own_bytes = progress.moved * extent_bytes + progress.copied;
        MoveReport {
            is_running: progress.is_running,
            path: path.map(|path| path.display().to_string()).unwrap_or_default(),
            moved,
            total,
            unreadable: progress.unreadable,
            is_stopped,
            failed: progress.failed.filter(|_| !is_stopped).map(|error| self.why_failed(&error)),
            waits: None,
            copied_bytes: before * extent_bytes + own_bytes,
            total_bytes: total * extent_bytes,
            seconds: begun.map_or(0, |begun| begun.elapsed().as_secs()),
            own_bytes,
        }
    }

    fn why_failed(&self, error: &Error) -> String {
        match error {
            // There was room when it began.
            Error::NoSpace { .. } => "No physical volume to which the extents may go has room any more, or new data is kept away from it (\"pvchange -x n\").".into(),
            error => self.failure(error, "").message,
        }
    }

    /// The move for reports: one that is running, or that ended early.
    pub(super) fn move_to_report(&self) -> Option<MoveReport> {
        let report = self.move_report(self.group.move_progress());
        (report.is_running || report.failed.is_some() || report.is_stopped || report.unreadable > 0).then_some(report)
    }

    /// Whether a move is running, or waits.
    pub fn is_moving(&self) -> bool {
        self.group.is_moving() || self.wanted_move.lock().note.is_some()
    }

    /// Physical volumes must not change while extents move.
    pub(super) fn refuse_while_moving(&self) -> Result<()> {
        if !self.group.is_moving() {
            return Ok(());
        }
        let from = self.platform.members.path(self.group.move_progress().from).unwrap_or_default();
        let message = format!(
            "Volume group \"{}\": extents are being moved off {}. Wait until that is done (\"pvmove\" shows its \
             progress), or stop it (\"pvmove --abort\").",
            self.name,
            from.display()
        );
        Err(Failure::new(ErrorKind::InUse, message))
    }
}

#[cfg(test)]
#[path = "moves_test.rs"]
mod tests;
