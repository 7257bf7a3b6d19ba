//! Extents move from one physical volume to others (`pvmove`).

use super::failure::{Failure, Result};
use super::state::Service;
use crate::history::What;
use crate::protocol::{ErrorKind, MoveReport, Outcome, PvPart};
use rowen_engine::error::Error;
use rowen_engine::group::{MoveProgress, NewMove};
use std::path::Path;
use std::time::Duration;

/// Who asks how far a move is waits so long for its end.
const WAITED: Duration = Duration::from_millis(200);

impl Service {
    /// Begins to move extents of the physical volume at `path`.
    pub fn move_extents(
        &self,
        path: &str,
        extents: &[(u64, u64)],
        to: &[PvPart],
        volume: Option<&str>,
    ) -> Result<Outcome> {
        self.refuse_while_moving()?;
        let from = self.pv_at(Path::new(path))?;
        let volume = volume.map(|name| self.find(name)).transpose()?.map(|info| info.id);
        let extents = extents.iter().map(|(first, count)| *first..first.saturating_add(*count)).collect();
        let wanted = NewMove { from, extents, to: self.extents_on(to)?, volume };
        let group = self.group.clone();
        let begun = self.run(async move { group.start_move(wanted).await });
        let total = self.told(begun, "")?;
        if total == 0 {
            return Err(Failure::new(ErrorKind::NotFound, format!("No data to move for {}.", self.name)));
        }
        self.event(What::Changed, &format!("{total} extents of physical volume {path} are being moved"));
        Ok(Outcome::Moving(self.move_report(self.group.move_progress())))
    }

    /// How far the move is, when it has ended or after a moment.
    pub fn move_status(&self) -> MoveReport {
        let group = self.group.clone();
        let progress = self.run(async move { group.move_ended_within(WAITED).await });
        self.move_report(progress)
    }

    /// Ends the move under way, if there is one.
    pub fn stop_move(&self) -> Outcome {
        self.group.stop_move();
        let group = self.group.clone();
        self.run(async move { group.move_ended().await });
        Outcome::Moving(self.move_report(self.group.move_progress()))
    }

    fn move_report(&self, progress: MoveProgress) -> MoveReport {
        let is_stopped = progress.failed == Some(Error::Closed);
        let has_moved = progress.is_running || progress.total > 0;
        let path = self.world.members.path(progress.from).filter(|_| has_moved);
        MoveReport {
            is_running: progress.is_running,
            path: path.map(|path| path.display().to_string()).unwrap_or_default(),
            moved: progress.moved,
            total: progress.total,
            unreadable: progress.unreadable,
            is_stopped,
            failed: progress.failed.filter(|_| !is_stopped).map(|error| self.failure(&error, "").message),
        }
    }

    /// Physical volumes stay as they are while extents move.
    pub(super) fn refuse_while_moving(&self) -> Result<()> {
        if !self.group.is_moving() {
            return Ok(());
        }
        let from = self.world.members.path(self.group.move_progress().from).unwrap_or_default();
        let message = format!(
            "Volume group \"{}\": extents are being moved off {}. Wait for that (\"pvmove\" shows how far it is), or stop it \
             (\"pvmove --abort\").",
            self.name,
            from.display()
        );
        Err(Failure::new(ErrorKind::InUse, message))
    }
}
