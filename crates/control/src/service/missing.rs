//! Physical volumes that are missing: the requests that are refused meanwhile, how they leave for good, and how one is
//! taken back.

use super::failure::{Failure, Result};
use super::state::Service;
use crate::history::What;
use crate::protocol::{ErrorKind, Legs, Outcome};
use crate::uuids::lvm_text;
use rowen_engine::disk::PvIndex;
use rowen_engine::group::{PvUsage, SegmentType, VolumeInfo};
use std::collections::{HashMap, HashSet};
use std::path::Path;

impl Service {
    /// Of these volumes those that have blocks on a physical volume that is missing, by name.
    pub(super) fn partial(&self, volumes: &[VolumeInfo]) -> Result<HashSet<String>> {
        if self.group.out().is_empty() {
            return Ok(HashSet::new());
        }
        let (group, volumes) = (self.group.clone(), volumes.to_vec());
        let found = self.run(async move {
            let mut partial = HashSet::new();
            for volume in volumes {
                match group.is_partial(volume.id).await {
                    Ok(true) => drop(partial.insert(volume.name)),
                    Ok(false) | Err(rowen_engine::error::Error::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(partial)
        });
        self.told(found, "")
    }

    /// The mirrored ones of these volumes that lack a leg, by name.
    pub(super) fn legs(&self, volumes: &[VolumeInfo]) -> Result<HashMap<String, Legs>> {
        let (group, out) = (self.group.clone(), self.group.out());
        let mirrored: Vec<_> = volumes.iter().filter(|volume| volume.segment == SegmentType::Raid1).collect();
        if mirrored.is_empty() || (out.is_empty() && group.mirror_info().single == 0) {
            return Ok(HashMap::new());
        }
        let mirrored: Vec<_> = mirrored.into_iter().map(|volume| (volume.id, volume.name.clone())).collect();
        let found = self.run(async move {
            let mut lacking = HashMap::new();
            for (id, name) in mirrored {
                let places = match group.pv_usage(id).await {
                    Err(rowen_engine::error::Error::NotFound(_)) => continue,
                    places => places?,
                };
                let is_out = |pv: u16| out.has(usize::from(pv));
                let is_missing = |place: &PvUsage| is_out(place.pv) || place.second.is_some_and(|(pv, _)| is_out(pv));
                if places.iter().any(is_missing) {
                    lacking.insert(name, Legs::Missing);
                } else if places.iter().any(|place| place.second.is_none()) {
                    lacking.insert(name, Legs::Single);
                }
            }
            Ok(lacking)
        });
        self.told(found, "")
    }

    /// Refuses a volume that has lost something: what needs it would get errors.
    pub(super) fn refuse_partial(&self, volume: &VolumeInfo) -> Result<()> {
        if self.partial(std::slice::from_ref(volume))?.is_empty() {
            return Ok(());
        }
        let message = format!(
            "Refusing activation of partial LV {}/{}.  Use '--activationmode partial' to override.",
            self.name, volume.name
        );
        Err(Failure::new(ErrorKind::Denied, message))
    }

    /// One that is missing leaves for good. Refused while volumes have blocks there.
    pub(super) fn remove_missing(&self) -> Result<Outcome> {
        let Some(at) = self.group.out().iter().next() else { return Ok(Outcome::Ok) };
        let index = PvIndex(u16::try_from(at).unwrap_or(u16::MAX));
        let mut partial: Vec<String> = self.partial(&self.shown_volumes())?.into_iter().collect();
        partial.sort();
        if !partial.is_empty() {
            let warnings =
                partial.iter().map(|name| format!("WARNING: Partial LV {name} needs to be repaired or removed.\n"));
            let message = format!(
                "{}There are still partial LVs in VG {}.\nTo remove them unconditionally use: vgreduce --removemissing --force.",
                warnings.collect::<String>(),
                self.name
            );
            return Err(Failure::new(ErrorKind::InUse, message));
        }
        self.give_up_partial()?;
        let uuid = lvm_text(self.group.info().pvs[at].uuid);
        let group = self.group.clone();
        let vacated = self.run(async move { group.vacate_pv(index).await });
        self.told(vacated, "")?;
        self.event(What::Changed, &format!("physical volume {uuid}, which is missing, leaves the volume group"));
        self.ending.leave_out(index);
        self.announce_end();
        Ok(Outcome::HandsOver)
    }

    /// Takes back the one that is at this path, if it is as it left.
    pub(super) fn restore_pv(&self, path: &str) -> Result<Outcome> {
        let refused = |why: String| Failure::new(ErrorKind::Invalid, format!("{why}\nNo PV has been restored."));
        let members = &self.platform.members;
        let uuid = members.uuid_at(Path::new(path))?;
        let pvs = self.group.info().pvs;
        let Some(at) = pvs.iter().position(|pv| pv.uuid == uuid) else {
            return Err(refused(format!("WARNING: PV {path} not found in VG {}", self.name)));
        };
        if !pvs[at].is_missing {
            return Err(refused(format!("WARNING: PV {path} was not missing in VG {}", self.name)));
        }
        let index = PvIndex(u16::try_from(at).unwrap_or(u16::MAX));
        members.restore(index, Path::new(path))?;
        let group = self.group.clone();
        let taken = self.run(async move { group.restore_missing(index).await });
        if let Err(failure) = self.told(taken, "") {
            if self.group.out().has(at) {
                members.lose(index);
            }
            return Err(Failure { message: format!("{}\nNo PV has been restored.", failure.message), ..failure });
        }
        self.event(What::Changed, &format!("physical volume {path} was missing, and is back"));
        self.platform.notes.disk_is_back(uuid);
        self.members_changed();
        Ok(Outcome::Ok)
    }
}

#[cfg(test)]
#[path = "missing_test.rs"]
mod tests;
