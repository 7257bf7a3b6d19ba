//! Copies of mirrored extents that a disk took with it are made anew without a person, if `activation/raid_fault_policy` is
//! `allocate`. In LVM, dmeventd does this with `lvconvert --repair --use-policies`.
//!
//! * RF1 The missing disk has `server/repair_delay` to return, while a volume is active: what it missed is copied, which is
//!   less. What was removed is waited for by nobody.
//! * RF2 A missing physical volume leaves only if it had nothing but copies, if what is left has all of them in their last
//!   state, and if there is room for others. So nothing is given up that somebody could still want back.
//! * RF3 A spare has the tag `allocation/spare_tag`, and no new data goes there (`pvchange -x n`). When it is taken, it loses
//!   both, and is a physical volume like the others. A server that dies in between has left the tag: the next one takes it off.

use super::report::device_paths;
use super::spares::{self, Places, RepairPolicy, RepairState, Room};
use super::state::Service;
use crate::history::What;
use crate::protocol::{Caller, Outcome, PvPart, RepairReport, Request};
use rowen_engine::disk::PvIndex;
use rowen_engine::group::MirrorInfo;
use rowen_engine::planted;
use std::time::Duration;

impl Service {
    /// Does what is due.
    pub(super) fn repair_lost_copies(&self) {
        let (policy, info) = (self.repairs.policy.lock().clone(), self.group.mirror_info());
        if !self.is_to_repair(&policy, &info) {
            *self.repairs.state.lock() = RepairState::default();
            return;
        }
        if self.group.failed().is_err() || self.ending.is_asked() || info.is_catching_up {
            return;
        }
        let now = self.platform.notes.open_for();
        self.repairs.state.lock().since.get_or_insert(now);
        // A long change must not delay the server's other periodic work.
        if !self.repair_begins_in(&policy, now).is_zero() || self.change.is_locked() {
            return;
        }
        let failed = self.repair(&policy, &info).err();
        let mut state = self.repairs.state.lock();
        if let Some(why) = failed.as_ref().filter(|why| state.failed.as_ref() != Some(*why)) {
            let line = format!("WARNING: copies of mirrored volumes are not made anew: {why}");
            self.event(What::NotRepaired, &line);
        }
        *state = RepairState { since: Some(now), failed };
    }

    fn is_to_repair(&self, policy: &RepairPolicy, info: &MirrorInfo) -> bool {
        let is_lacking = !info.lacking.is_empty();
        policy.is_automatic && is_lacking && self.group.any_volume(|volume| volume.attributes.active)
    }

    /// RF1
    fn repair_begins_in(&self, policy: &RepairPolicy, now: Duration) -> Duration {
        let state = self.repairs.state.lock();
        let has_left = self.group.out().is_empty() && state.failed.is_none();
        match state.since {
            _ if has_left || planted::is("disk_not_waited_for") => Duration::ZERO,
            None => policy.delay,
            Some(since) => policy.delay.saturating_sub(now.saturating_sub(since)),
        }
    }

    /// What is due, for `rowen status`.
    pub(super) fn repair_report(&self, info: &MirrorInfo) -> Option<RepairReport> {
        let policy = self.repairs.policy.lock().clone();
        if !self.is_to_repair(&policy, info) {
            return None;
        }
        let begins_in = self.repair_begins_in(&policy, self.platform.notes.open_for());
        let spares = self.places_of_copies(&policy, info).unwrap_or_default().spares;
        Some(RepairReport {
            seconds: begins_in.as_secs(),
            spares: spares.into_iter().map(|room| room.path).collect(),
            failed: self.repairs.state.lock().failed.clone(),
        })
    }

    /// The physical volume that is missing leaves, and this server ends. The next one makes the copies.
    fn repair(&self, policy: &RepairPolicy, info: &MirrorInfo) -> Result<(), String> {
        let is_missing = !self.group.out().is_empty();
        if is_missing && !planted::is("given_up_with_data") {
            self.check_nothing_else_is_lost(info)?;
        }
        let places = match self.places_of_copies(policy, info) {
            Err(_) if is_missing && planted::is("given_up_without_room") => Places::default(),
            places => places?,
        };
        if is_missing {
            return self.ask_itself(Request::RemoveMissing);
        }
        for Room { path, .. } in &places.spares {
            self.ask_itself(Request::SetAllocatable { path: path.clone(), allocatable: true })?;
        }
        for path in self.taken_spares(policy) {
            let (add, remove) = (Vec::new(), vec![policy.spare_tag.clone()]);
            let line = format!("the spare {path} is a physical volume like the others from now on");
            self.ask_itself(Request::TagPv { path, add, remove })?;
            self.event(What::Repaired, &line);
        }
        let part = |room: &Room| PvPart { path: room.path.clone(), first_extent: 0, extents: room.extents };
        let on = if places.are_enough { places.spares.iter().map(part).collect() } else { Vec::new() };
        self.ask_itself(Request::RepairMirrors { on })?;
        let extents: u64 = info.lacking.values().sum();
        self.event(What::Repaired, &format!("{extents} extents of mirrored volumes get the copy that they lack"));
        Ok(())
    }

    /// RF2
    fn check_nothing_else_is_lost(&self, info: &MirrorInfo) -> Result<(), String> {
        if info.runs.iter().any(|run| run.outdated_bytes > 0) {
            return Err("only the missing physical volume has their last state".into());
        }
        let mut partial: Vec<String> =
            self.partial(&self.shown_volumes()).map_err(|failure| failure.message)?.into_iter().collect();
        partial.sort();
        match partial.first() {
            None => Ok(()),
            Some(name) => Err(format!(
                "logical volume {}/{name} has data on the missing physical volume only, which therefore does not leave",
                self.name
            )),
        }
    }

    fn places_of_copies(&self, policy: &RepairPolicy, info: &MirrorInfo) -> Result<Places, String> {
        let group = self.group.info();
        let paths = device_paths(&*self.platform.members, group.pvs.len());
        let tags = &group.attributes.pv_tags;
        let (mut spares, mut others) = (Vec::new(), Vec::new());
        for (at, (pv, path)) in (0..).zip(group.pvs.iter().zip(paths)).filter(|(_, (pv, _))| !pv.is_missing) {
            let room = Room { pv: PvIndex(at), path, extents: pv.extents, free: pv.free_extents };
            let is_tagged = tags.get(usize::from(at)).is_some_and(|tags| tags.contains(&policy.spare_tag));
            match pv.is_allocatable {
                true => others.push(room),
                false if is_tagged || planted::is("any_is_a_spare") => spares.push(room),
                false => {}
            }
        }
        spares::choose(&info.lacking, spares, &others, group.allocatable_extents).map_err(|(needed, free)| {
            format!(
                "{needed} extents need room on a physical volume that does not have their other copy, and spares and other \
                 physical volumes have {free}"
            )
        })
    }

    /// Those that take data, and have the tag still.
    fn taken_spares(&self, policy: &RepairPolicy) -> Vec<String> {
        let group = self.group.info();
        let paths = device_paths(&*self.platform.members, group.pvs.len());
        let tags = group.attributes.pv_tags.iter().map(|tags| tags.contains(&policy.spare_tag));
        let tagged =
            group.pvs.iter().zip(paths).zip(tags).filter(|((pv, _), is_tagged)| pv.is_allocatable && *is_tagged);
        tagged.map(|((_, path), _)| path).collect()
    }

    fn ask_itself(&self, request: Request) -> Result<(), String> {
        let command = format!("the automatic repair of volume group {}", self.name);
        match self.handle(request, &Caller { command, ..Caller::default() }, &mut |_| {}) {
            Outcome::Error { message, .. } => Err(message.trim_end_matches('.').to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "repair_test.rs"]
mod tests;
