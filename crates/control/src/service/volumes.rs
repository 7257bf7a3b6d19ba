//! Creates, removes, resizes and renames volumes.

use super::failure::{Failure, Result};
use super::state::Service;
use crate::protocol::{Created, ErrorKind, Outcome, PvPart, SegmentType, VolumeSpec};
use rowen_engine::group::{NewVolume, VolumeInfo};
use rowen_engine::planted;
use rowen_engine::units::VolumeId;

impl Service {
    /// A new volume, with its node if `activate`.
    pub fn create_volume(&self, spec: VolumeSpec, activate: bool, on: &[PvPart]) -> Result<Outcome> {
        self.check_name(&spec.name)?;
        self.refuse_more_volumes(1)?;
        let name = spec.name.clone();
        let (segment, stripes) = (spec.segment, spec.stripes);
        if segment == SegmentType::Striped && stripes.is_none() {
            return Err(Failure::new(ErrorKind::Invalid, "a striped volume needs a number of stripes and their size"));
        }
        let mut volume = NewVolume::from(spec);
        let is_allowed = self.allows(&name, &volume.attributes.tags);
        let activate = activate && volume.attributes.pool != name && is_allowed;
        volume.attributes.active = activate;
        let on = self.extents_on(on)?;
        let group = self.group.clone();
        let made = self.run(async move {
            match segment {
                SegmentType::Linear => group.create_volume_on(volume, &on).await,
                SegmentType::Raid1 => group.create_mirrored(volume, &on).await,
                SegmentType::Striped => {
                    let stripes = stripes.expect("it was checked");
                    group.create_striped(volume, stripes.into(), &on).await
                }
            }
        });
        let id = self.told(made, &name)?;
        let node =
            if activate { Some(self.first_node(&name).map_err(|failure| self.unmake(&[id], failure))?) } else { None };
        Ok(Outcome::Created(vec![Created { name, node }]))
    }

    /// The node of a volume that was just made.
    pub fn first_node(&self, name: &str) -> Result<String> {
        self.switch_on(&self.find(name)?)?;
        Ok(format!("/dev/{}/{name}", self.name))
    }

    /// Removes volumes that were just made, because of `failure` (SV3).
    pub fn unmake(&self, ids: &[VolumeId], failure: Failure) -> Failure {
        if planted::is("stays_half_made") {
            return failure;
        }
        let volumes: Vec<VolumeInfo> = ids.iter().filter_map(|id| self.group.volume_info(*id).ok()).collect();
        match self.remove_volumes(&volumes) {
            Ok(()) => failure,
            Err(also) => Failure { message: format!("{}\n{}", failure.message, also.message), ..failure },
        }
    }

    pub fn remove(&self, names: &[String]) -> Result<Outcome> {
        let volumes = self.find_all(names)?;
        self.refuse_held(&volumes, "removed")?;
        self.refuse_names_of_held(&volumes, "removed")?;
        self.settle_merges_before_removal(&volumes)?;
        self.remove_volumes(&volumes)?;
        Ok(Outcome::Ok)
    }

    pub(super) fn remove_volumes(&self, volumes: &[VolumeInfo]) -> Result<()> {
        let off = self.switch_off_all(volumes)?;
        let ids: Vec<VolumeId> = volumes.iter().map(|volume| volume.id).collect();
        let group = self.group.clone();
        let removed = self.run(async move { group.remove(&ids).await });
        let name = volumes.first().map_or("", |volume| &volume.name);
        self.told(removed, name).map_err(|failure| self.switch_on_again(&off, failure))
    }

    /// Resizes a volume. `seen`: the size from which the client computed the new one, if it did.
    pub fn resize(
        &self,
        name: &str,
        (seen, blocks): (Option<u64>, u64),
        force: bool,
        on: &[PvPart],
    ) -> Result<Outcome> {
        let volume = self.find(name)?;
        self.refuse_changed(name, seen, Some(volume.blocks))?;
        if blocks != volume.blocks {
            self.refuse_held(std::slice::from_ref(&volume), "resized")?;
        }
        if blocks < volume.blocks && !force && self.refuse_use(name).is_err() {
            return Err(Failure::new(
                ErrorKind::InUse,
                format!(
                    "Logical volume {}/{name} is in use, and its end would be cut off. Shrink its filesystem and \
                     unmount it first, or use --force.",
                    self.name
                ),
            ));
        }
        let on = self.extents_on(on)?;
        let group = self.group.clone();
        let done = self.run(async move { group.resize_on(volume.id, blocks, &on).await });
        self.told(done, name)?;
        if self.node(name).is_some() {
            self.platform.devices.resized(name)?;
        }
        // What was freed counts as free from the next checkpoint on, and a group that is not written to takes none by itself.
        if blocks < volume.blocks {
            self.checkpoint()?;
        }
        Ok(Outcome::Ok)
    }

    /// If two clients compute a new size from the same old one, the second would undo the first.
    fn refuse_changed(&self, name: &str, seen: Option<u64>, now: Option<u64>) -> Result<()> {
        if seen.is_none() || seen == now {
            return Ok(());
        }
        let message =
            format!("Logical volume {}/{name} was resized by another command meanwhile; try again.", self.name);
        Err(Failure::new(ErrorKind::Changed, message))
    }

    pub fn set_reserve(&self, name: &str, (seen, blocks): (Option<u64>, Option<u64>)) -> Result<Outcome> {
        let volume = self.find(name)?;
        self.refuse_changed(name, seen, volume.reserve)?;
        let id = volume.id;
        let group = self.group.clone();
        let done = self.run(async move { group.set_reserve(id, blocks).await });
        self.told(done, name)?;
        Ok(Outcome::Ok)
    }

    /// Renames a volume, also while it is mounted. The volumes of a renamed pool follow it.
    pub fn rename(&self, from: &str, to: &str) -> Result<Outcome> {
        let volume = self.find(from)?;
        self.check_name(to)?;
        if self.group.find(to).is_some() {
            return Err(self.failure(&rowen_engine::error::Error::Exists(to.to_owned()), to));
        }
        let active = self.node(from).is_some();
        if active {
            self.platform.devices.rename(from, to)?;
        }
        if let Err(error) = self.rename_in_group(volume.id, to) {
            let mut failure = self.failure(&error, from);
            if active && let Err(also) = self.platform.devices.rename(to, from) {
                failure.message.push_str(&format!("\nIts node keeps the new name: {also}."));
            }
            return Err(failure);
        }
        Ok(Outcome::Ok)
    }

    fn rename_in_group(&self, id: VolumeId, to: &str) -> rowen_engine::error::Result<()> {
        let (group, to) = (self.group.clone(), to.to_owned());
        self.run(async move { group.rename(id, &to).await })
    }

    /// Makes a volume read-only or writable, its device included.
    pub fn set_permission(&self, name: &str, read_only: bool) -> Result<Outcome> {
        let volume = self.find(name)?;
        if volume.read_only && !read_only {
            self.refuse_held(std::slice::from_ref(&volume), "made writable")?;
        }
        let (group, id) = (self.group.clone(), volume.id);
        let done = self.run(async move { group.set_read_only(id, read_only).await });
        self.told(done, name)?;
        if self.node(name).is_none() {
            return Ok(Outcome::Ok);
        }
        let stays = self.is_read_only(&VolumeInfo { read_only, ..volume.clone() });
        if let Err(error) = self.set_device_read_only(name, stays) {
            let (group, before) = (self.group.clone(), volume.read_only);
            let undone = self.run(async move { group.set_read_only(id, before).await });
            self.told(undone, name)?;
            return Err(error.into());
        }
        Ok(Outcome::Ok)
    }
}
