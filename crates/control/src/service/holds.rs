//! Holds: names on a snapshot whose contents somebody needs. A hold is a tag (`hold=NAME`, or `hold=NAME:SECONDS` with when it ends), so it
//! is kept, shown and changed as tags are.
//!
//! Invariants
//!
//! * HO3 A snapshot that is held is not removed, merged, reverted, resized or made writable, and nothing is received into it. Only what can
//!   keep its contents is held: a snapshot that is at its point, and that waits for no merge. Nor is an older snapshot of the same contents
//!   removed or merged that gives it its identity (PT2).
//! * HO4 A hold that has an end ends by the clock, and nothing is removed by that.

use super::failure::{Failure, Result};
use super::merge::is_waiting;
use super::state::Service;
use crate::history::What;
use crate::holds::{Hold, holds};
use crate::protocol::{AttributeChange, Caller, ErrorKind, Outcome, Request};
use rowen_engine::group::{Attributes, HOLD, VolumeInfo, VolumeState, point_identity};
use rowen_engine::planted;

impl Service {
    /// Changes a volume's attributes; holds with care (HO3).
    pub fn change_attributes(&self, name: &str, change: &AttributeChange) -> Result<Outcome> {
        let volume = self.find(name)?;
        let after = change.apply(&volume.attributes);
        self.refuse_to_hold(&volume, &after)?;
        self.set_attributes(volume.id, name, after)?;
        Ok(Outcome::Ok)
    }

    /// Refuses holds that would hold nothing.
    fn refuse_to_hold(&self, volume: &VolumeInfo, after: &Attributes) -> Result<()> {
        let new: Vec<&String> = after.tags.iter().filter(|tag| !volume.attributes.tags.contains(tag)).collect();
        let Some(tag) = new.into_iter().find(|tag| tag.starts_with(HOLD)) else { return Ok(()) };
        let full = format!("{}/{}", self.name, volume.name);
        if Hold::of_tag(tag).is_none() {
            let message = format!("\"{}\" is no name of a hold.", tag[HOLD.len()..].escape_debug());
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        let why = if volume.state == VolumeState::Invalid {
            return Err(self.failure(&rowen_engine::error::Error::InvalidSnapshot, &volume.name));
        } else if is_waiting(volume) {
            format!("Logical volume {full} waits to be merged, and cannot be held.")
        } else if volume.origin.is_none() {
            format!("Logical volume {full} is no snapshot, so its contents change: take one, and hold that.")
        } else if volume.point.is_none() {
            format!("Logical volume {full} was written to since it was taken: take a snapshot of it, and hold that.")
        } else {
            return Ok(());
        };
        Err(Failure::new(ErrorKind::Invalid, why))
    }

    /// Refuses changes and removals of held snapshots (HO3). `done`: the refused action, as in "cannot be removed".
    pub fn refuse_held(&self, volumes: &[VolumeInfo], done: &str) -> Result<()> {
        let is_held = |volume: &&VolumeInfo| volume.attributes.is_held() && volume.state != VolumeState::Invalid;
        let held = volumes.iter().filter(|volume| is_held(volume) && !planted::is("held_is_removed"));
        let told = held.map(|volume| {
            let names = holds(&volume.attributes.tags).map(|hold| hold.name).collect::<Vec<_>>().join(", ");
            let full = format!("{}/{}", self.name, volume.name);
            let message = format!(
                "Logical volume {full} is held ({names}) and cannot be {done}. \"rowen release --all {full}\" ends its holds."
            );
            Failure::new(ErrorKind::InUse, message)
        });
        Failure::join(told.collect()).map_or(Ok(()), Err)
    }

    /// Refuses what removes snapshots that give held ones their identity (HO3). `done`: what is refused, as in "cannot be removed".
    pub fn refuse_names_of_held(&self, volumes: &[VolumeInfo], done: &str) -> Result<()> {
        let is_held = self.group.any_volume(|volume| volume.attributes.is_held());
        if !is_held || planted::is("names_of_held_go") {
            return Ok(());
        }
        let mut told = Vec::new();
        for held in self.group.volumes().iter().filter(|volume| volume.attributes.is_held()) {
            let names = |volume: &&VolumeInfo| {
                volume.id != held.id && held.point == Some(point_identity(volume.uuid, held.blocks))
            };
            let Some(volume) = volumes.iter().find(names) else { continue };
            let by = holds(&held.attributes.tags).map(|hold| hold.name).collect::<Vec<_>>().join(", ");
            let (group, other) = (&self.name, &held.name);
            let message = format!(
                "Logical volume {group}/{} has the same contents as {group}/{other}, which is held ({by}) and has its identity from it: it \
                 cannot be {done}. \"rowen release --all {group}/{other}\" ends the holds.",
                volume.name
            );
            told.push(Failure::new(ErrorKind::InUse, message));
        }
        Failure::join(told).map_or(Ok(()), Err)
    }

    /// Ends holds that have an end (HO4).
    pub(super) fn end_holds(&self) {
        if !self.group.any_volume(|volume| volume.attributes.is_held()) || self.change.is_locked() {
            return;
        }
        let now = self.platform.notes.now();
        for volume in self.group.volumes() {
            let is_over = |hold: &Hold<'_>| hold.until.is_some_and(|until| until <= now);
            let over: Vec<Hold<'_>> = holds(&volume.attributes.tags).filter(is_over).collect();
            if over.is_empty() {
                continue;
            }
            let remove_tags = over.iter().map(Hold::tag).collect();
            let change = AttributeChange { remove_tags, ..AttributeChange::default() };
            let full = format!("{}/{}", self.name, volume.name);
            let caller = Caller { command: format!("the end of a hold of {full}"), ..Caller::default() };
            let request = Request::SetAttributes { name: volume.name.clone(), change };
            if let Outcome::Ok = self.handle(request, &caller, &mut |_| {}) {
                for hold in over {
                    self.event(
                        What::Changed,
                        &format!("the hold {} of {full} has ended, as was said when it began", hold.name),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "holds_test.rs"]
mod tests;
