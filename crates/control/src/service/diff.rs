//! What changed between two volumes, a page at a time. It changes nothing and waits for no command.

use super::failure::{Failure, Result};
use super::state::{Service, is_pool};
use crate::protocol::{DiffPage, DiffPlace, DiffRange, ErrorKind, Outcome, PAGE_RANGES};
use rowen_engine::error::Error;
use rowen_engine::group::{BOOKMARK, Compared, VolumeState, is_bookmark};
use rowen_engine::units::VolumeId;

impl Service {
    /// The first page, or the one that begins at a place.
    pub fn diff(&self, old: Option<&str>, new: &str, from: Option<DiffPlace>) -> Result<Outcome> {
        let (compared, at) = match from {
            Some(from) if from.old.is_some() == old.is_some() => {
                (Compared { old: from.old.map(Into::into), new: from.new.into() }, from.block)
            }
            Some(_) => return Err(Failure::new(ErrorKind::Invalid, "The position belongs to a list of another kind.")),
            None => (self.compare(old, new)?, 0),
        };
        let group = self.group.clone();
        let part = self.run(async move { group.changed(&compared, at, PAGE_RANGES).await });
        let part = part.map_err(|error| self.diff_failure(&error, old, new))?;
        Ok(Outcome::Diff(Box::new(DiffPage {
            old: compared.old.map(Into::into),
            new: compared.new.into(),
            ranges: part.ranges.into_iter().map(DiffRange::from).collect(),
            next_block: part.next,
        })))
    }

    fn compare(&self, old: Option<&str>, new: &str) -> Result<Compared> {
        let side = |name: &str| -> Result<VolumeId> {
            let volume = if old.is_some_and(|old| old == name) { self.find_base(name)? } else { self.find(name)? };
            if is_pool(&volume) {
                let message =
                    format!("Logical volume {}/{name} is a pool: give the name of a volume in it.", self.name);
                return Err(Failure::new(ErrorKind::Invalid, message));
            }
            if volume.state == VolumeState::Invalid {
                return Err(self.failure(&Error::InvalidSnapshot, name));
            }
            Ok(volume.id)
        };
        let (old_id, new_id) = (old.map(side).transpose()?, side(new)?);
        self.group.compare(old_id, new_id).map_err(|error| self.diff_failure(&error, old, new))
    }

    fn diff_failure(&self, error: &Error, old: Option<&str>, new: &str) -> Failure {
        let group = &self.name;
        let message = match (error, old) {
            (Error::Unrelated, Some(old)) if self.find_base(old).is_ok_and(|base| is_bookmark(&base.name)) => format!(
                "Logical volume {group}/{new} does not come from the bookmark {}: it is older, of another volume, or was reverted to \
                 before it.",
                old.trim_start_matches(BOOKMARK)
            ),
            (Error::Unrelated, Some(old)) => format!(
                "Logical volumes {group}/{old} and {group}/{new} have no snapshot in common, so nothing is known of what differs. \
                 \"rowen diff --allocated {group}/{new}\" lists all that {group}/{new} has."
            ),
            (Error::Moved, old) => {
                let names =
                    old.map_or_else(|| format!("{group}/{new}"), |old| format!("{group}/{old} or {group}/{new}"));
                format!(
                    "Logical volume {names} was removed, reverted, merged, resized or dropped while the list was made. Run the command again."
                )
            }
            _ => return self.failure(error, new),
        };
        Failure::new(super::failure::engine_kind(error), message)
    }
}

#[cfg(test)]
#[path = "diff_test.rs"]
mod tests;
