//! Copies of mirrored extents that a disk took with it are made anew without a person, if `activation/raid_fault_policy` is
//! `allocate`. In LVM, dmeventd does this with `lvconvert --repair --use-policies`.
//!
//! * RF1 A missing disk has `server/repair_delay` to return, while a volume is active: what it missed is copied, which is
//!   less. What was removed is waited for by nobody. All that are missing then leave, because copies can be made only when
//!   nothing is missing: each by a server of its own, so the first one notes them for its successors.
//! * RF2 Missing physical volumes leave only if they had nothing but copies, if what is left has all of these in their last
//!   state, and if there is room for others. So nothing is given up that somebody could still want back.
//! * RF3 A spare has the tag `allocation/spare_tag`, and no new data goes there (`pvchange -x n`). When it is taken, it loses
//!   both in one step, and is a physical volume like the others.

use super::report::device_paths;
use super::spares::{self, Places, RepairPolicy, Room};
use super::state::Service;
use crate::history::What;
use crate::protocol::{Caller, Outcome, PvPart, RepairReport, Request};
use rowen_engine::disk::PvIndex;
use rowen_engine::group::MirrorInfo;
use rowen_engine::legs::RunReport;
use rowen_engine::planted;
use std::time::Duration;

impl Service {
    /// Does what is due.
    pub(super) fn repair_lost_copies(&self) {
        let policy = self.repairs.policy.lock().clone();
        if !policy.is_automatic {
            return self.end_repair();
        }
        let info = self.group.mirror_info();
        if !self.is_to_repair(&policy, &info) {
            return self.end_repair();
        }
        if self.group.failed().is_err() || self.ending.is_asked() {
            return;
        }
        let now = self.platform.notes.open_for();
        // A long change must not delay the server's other periodic work.
        if self.change.is_locked() {
            return;
        }
        let is_first = self.repairs.state.lock().since.is_none();
        if is_first {
            let given_up = self.platform.notes.noted_given_up();
            let mut state = self.repairs.state.lock();
            (state.since, state.given_up) = (Some(now), given_up);
        }
        let failed = match self.repair_begins_in(&policy, now).is_zero() {
            true => self.repair(&policy, &info).err(),
            // What cannot be done then is said at once.
            false if is_first => self.may_repair(&policy, &info).err(),
            false => return,
        };
        let mut state = self.repairs.state.lock();
        if let Some(why) = failed.as_ref().filter(|why| state.failed.as_ref() != Some(*why)) {
            let line = format!("WARNING: copies of mirrored volumes are not made anew: {why}");
            self.event(What::NotRepaired, &line);
        }
        (state.since, state.failed) = (Some(now), failed);
    }

    /// There is nothing to repair, or not any more.
    fn end_repair(&self) {
        let state = std::mem::take(&mut *self.repairs.state.lock());
        if !state.given_up.is_empty() {
            self.give_up(&[]);
        }
    }

    fn give_up(&self, pvs: &[[u8; 16]]) {
        if let Err(e) = self.platform.notes.given_up(pvs) {
            self.log(&format!("cannot record for a successor which physical volumes are not waited for: {e}"));
        }
    }

    fn is_to_repair(&self, policy: &RepairPolicy, info: &MirrorInfo) -> bool {
        let is_lacking = !info.lacking.is_empty();
        policy.is_automatic && is_lacking && self.group.any_volume(|volume| volume.attributes.active)
    }

    /// The UUIDs of the physical volumes that are missing.
    fn missing_uuids(&self) -> Vec<[u8; 16]> {
        let pvs = self.group.info().pvs;
        pvs.iter().filter(|pv| pv.is_missing).map(|pv| pv.uuid.0).collect()
    }

    /// RF1
    fn repair_begins_in(&self, policy: &RepairPolicy, now: Duration) -> Duration {
        let state = self.repairs.state.lock();
        let is_waited_for = |uuid: &[u8; 16]| !state.given_up.contains(uuid) || planted::is("given_up_forgotten");
        let waits = state.failed.is_some() || self.missing_uuids().iter().any(is_waited_for);
        match state.since {
            _ if !waits || planted::is("disk_not_waited_for") => Duration::ZERO,
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
        let (spares, why) = match self.places_of_copies(&policy, info) {
            Ok(places) => (places.spares, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Some(RepairReport {
            seconds: begins_in.as_secs(),
            spares: spares.into_iter().map(|room| room.path).collect(),
            failed: self.repairs.state.lock().failed.clone().or(why),
        })
    }

    /// Whether it can be done now, and where the copies go.
    fn may_repair(&self, policy: &RepairPolicy, info: &MirrorInfo) -> Result<Places, String> {
        let is_missing = !self.group.out().is_empty();
        if is_missing && !planted::is("given_up_with_data") {
            self.check_nothing_else_is_lost(info)?;
        }
        match self.places_of_copies(policy, info) {
            Err(_) if is_missing && planted::is("given_up_without_room") => Ok(Places::default()),
            places => places,
        }
    }

    /// A physical volume that is missing leaves, and this server ends. When none is missing, the copies are made.
    fn repair(&self, policy: &RepairPolicy, info: &MirrorInfo) -> Result<(), String> {
        let places = self.may_repair(policy, info)?;
        let missing = self.missing_uuids();
        if !missing.is_empty() {
            self.give_up(&missing);
            let left = self.ask_itself(Request::RemoveMissing, "vgreduce --removemissing");
            return left.inspect_err(|_| self.give_up(&[]));
        }
        for room in &places.spares {
            self.take_spare(room, &policy.spare_tag)?;
        }
        let part = |room: &Room| PvPart { path: room.path.clone(), first_extent: 0, extents: room.extents };
        let on = if places.are_enough { places.spares.iter().map(part).collect() } else { Vec::new() };
        self.ask_itself(Request::RepairMirrors { on }, "lvconvert --repair")?;
        let extents: u64 = info.lacking.values().sum();
        self.event(What::Repaired, &format!("{extents} extents of mirrored volumes get the copy that they lack"));
        Ok(())
    }

    /// RF3
    fn take_spare(&self, room: &Room, tag: &str) -> Result<(), String> {
        let _change = self.change.lock();
        let (group, pv, own) = (self.group.clone(), room.pv, tag.to_owned());
        let taken = self.run(async move { group.take_spare(pv, &own).await });
        self.told(taken, "").map_err(|failure| failure.message)?;
        self.event(
            What::Repaired,
            &format!("the spare {} is a physical volume like the others from now on", room.path),
        );
        self.platform.notes.changed(&self.own_command("pvchange -x y --deltag"));
        Ok(())
    }

    /// RF2
    fn check_nothing_else_is_lost(&self, info: &MirrorInfo) -> Result<(), String> {
        let out = self.group.out();
        let has_less = |report: &RunReport| {
            let source = report.run.filling.map(|filling| report.run.legs[1 - filling]);
            report.outdated_bytes > 0 || source.is_some_and(|leg| out.has(usize::from(leg.pv.0)))
        };
        if info.runs.iter().any(has_less) {
            return Err("only the missing physical volume has the last state of some extents".into());
        }
        let partial = self.partial(&self.shown_volumes()).map_err(|failure| failure.message)?;
        match partial.into_iter().min() {
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
        spares::choose(&info.lacking, spares, &others, group.allocatable_extents).map_err(|(needed, room)| {
            format!("{needed} extents lack a copy, and where their other copy is not, there is room for {room} of them")
        })
    }

    fn own_command(&self, what: &str) -> String {
        format!("the automatic repair of volume group {}: {what}", self.name)
    }

    fn ask_itself(&self, request: Request, what: &str) -> Result<(), String> {
        let caller = Caller { command: self.own_command(what), ..Caller::default() };
        match self.handle(request, &caller, &mut |_| {}) {
            Outcome::Error { message, .. } => Err(message.trim_end_matches('.').to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "repair_test.rs"]
mod tests;
