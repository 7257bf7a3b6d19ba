//! Making, removing, resizing, renaming and replacing volumes and the group they are in.

use super::failure::{Failure, Result};
use super::log;
use super::state::{Server, follows_origin, is_pool};
use crate::devices::{self, Consent, NewMember};
use crate::export::{self, Node};
use crate::paths;
use rowen_control::protocol::{Created, ErrorKind, Outcome, PvPart, VolumeSpec};
use rowen_control::uuids;
use rowen_engine::disk::PvIndex;
use rowen_engine::group::{Attributes, NewPv, NewVolume, PvExtents, VolumeInfo};
use rowen_engine::units::VolumeId;
use std::path::{Path, PathBuf};

impl Server {
    /// A new volume, with its node when `activate`.
    pub fn create_volume(&self, spec: VolumeSpec, activate: bool, on: &[PvPart]) -> Result<Outcome> {
        self.check_name(&spec.name)?;
        self.refuse_more_volumes(1)?;
        let name = spec.name.clone();
        let mut volume = NewVolume::from(spec);
        let is_allowed = self.allows(&name, &volume.attributes.tags);
        let activate = activate && volume.attributes.pool != name && is_allowed;
        volume.attributes.active = activate;
        let on = self.extents_on(on)?;
        let group = self.group.clone();
        let made = self.run(async move { group.create_volume_on(volume, &on).await });
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

    /// Takes back volumes that were just made, because of `failure` (SV3).
    pub fn unmake(&self, ids: &[VolumeId], failure: Failure) -> Failure {
        let volumes: Vec<VolumeInfo> = ids.iter().filter_map(|id| self.group.volume_info(*id).ok()).collect();
        match self.remove_volumes(&volumes) {
            Ok(()) => failure,
            Err(also) => Failure { message: format!("{}\n{}", failure.message, also.message), ..failure },
        }
    }

    pub fn remove(&self, names: &[String]) -> Result<Outcome> {
        let volumes = self.find_all(names)?;
        self.settle_merges_before_removal(&volumes)?;
        self.remove_volumes(&volumes)?;
        Ok(Outcome::Ok)
    }

    fn remove_volumes(&self, volumes: &[VolumeInfo]) -> Result<()> {
        let off = self.switch_off_all(volumes)?;
        let ids: Vec<VolumeId> = volumes.iter().map(|volume| volume.id).collect();
        let group = self.group.clone();
        let removed = self.run(async move { group.remove(&ids).await });
        let name = volumes.first().map_or("", |volume| &volume.name);
        self.told(removed, name).map_err(|failure| self.switch_on_again(&off, failure))
    }

    /// From the size that the client saw, if it depends on that, to another.
    pub fn resize(
        &self,
        name: &str,
        (seen, blocks): (Option<u64>, u64),
        force: bool,
        on: &[PvPart],
    ) -> Result<Outcome> {
        let volume = self.find(name)?;
        self.refuse_changed(name, seen, Some(volume.blocks))?;
        if blocks < volume.blocks && !force && self.refuse_use(name).is_err() {
            return Err(Failure::new(
                ErrorKind::InUse,
                format!(
                    "Logical volume {}/{name} is in use and would lose its end; shrink its filesystem and unmount it first, or \
                     use --force.",
                    self.name
                ),
            ));
        }
        let on = self.extents_on(on)?;
        let group = self.group.clone();
        let done = self.run(async move { group.resize_on(volume.id, blocks, &on).await });
        self.told(done, name)?;
        if self.node(name).is_some() {
            let name = name.to_owned();
            self.export(|exports| async move { exports.resized(&name).await })?;
        }
        Ok(Outcome::Ok)
    }

    /// Of two who work out a new size from the same old one, the second would undo what the first did.
    fn refuse_changed(&self, name: &str, seen: Option<u64>, now: Option<u64>) -> Result<()> {
        if seen.is_none() || seen == now {
            return Ok(());
        }
        let message = format!("Logical volume {}/{name} was resized by somebody else meanwhile; try again.", self.name);
        Err(Failure::new(ErrorKind::Changed, message))
    }

    /// The places that a client names, for the engine.
    fn extents_on(&self, on: &[PvPart]) -> Result<Vec<PvExtents>> {
        let part = |part: &PvPart| {
            let pv = self.pv_at(Path::new(&part.path))?;
            Ok(PvExtents { pv, extents: part.first_extent..part.first_extent.saturating_add(part.extents) })
        };
        on.iter().map(part).collect()
    }

    /// How many whole extents are free in these places.
    pub fn free_on(&self, on: &[PvPart]) -> Result<Outcome> {
        let on = self.extents_on(on)?;
        let group = self.group.clone();
        let free = self.run(async move { group.free_on(&on).await });
        Ok(Outcome::Free { extents: self.told(free, "")? / self.group.info().extent_blocks.max(1) })
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
            self.rename_node(from, to)?;
        }
        if let Err(error) = self.rename_in_group(volume.id, to) {
            let mut failure = self.failure(&error, from);
            if active && let Err(also) = self.rename_node(to, from) {
                failure.message.push_str(&format!("\nIts node keeps the new name: {also}."));
            }
            return Err(failure);
        }
        if is_pool(&volume) {
            for member in self.group.volumes_where(|member| member.attributes.pool == from) {
                let attributes = Attributes { pool: to.to_owned(), ..member.attributes };
                self.set_attributes(member.id, &member.name, attributes)?;
            }
        }
        Ok(Outcome::Ok)
    }

    fn rename_node(&self, from: &str, to: &str) -> export::Result<Node> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.export(|exports| async move { exports.rename(&from, &to).await })
    }

    fn rename_in_group(&self, id: VolumeId, to: &str) -> rowen_engine::error::Result<()> {
        let (group, to) = (self.group.clone(), to.to_owned());
        self.run(async move { group.rename(id, &to).await })
    }

    /// Makes a volume read-only or writable, its device included.
    pub fn set_permission(&self, name: &str, read_only: bool) -> Result<Outcome> {
        let volume = self.find(name)?;
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

    /// Gives `target` the contents that `source` has; every snapshot stays.
    pub fn revert(&self, target: &str, source: &str) -> Result<Outcome> {
        let (target, source) = (self.find(target)?, self.find(source)?);
        self.replace_contents(target, source, false)
    }

    /// The kernel may hold pages of the old contents, so the devices are taken away around the change.
    pub fn replace_contents(&self, target: VolumeInfo, source: VolumeInfo, consume: bool) -> Result<Outcome> {
        let mut touched = vec![target.clone()];
        if consume {
            touched.push(source.clone());
        }
        let off = self.switch_off_all(&touched).map_err(|mut failure| {
            if failure.kind == ErrorKind::InUse {
                failure
                    .message
                    .push_str("\nIts contents cannot be replaced while it is in use; unmount it and try again.");
            }
            failure
        })?;
        let (group, to, from) = (self.group.clone(), target.id, source.id);
        let done = self.run(async move { group.revert(to, from, consume).await });
        self.told(done, &source.name).map_err(|failure| self.switch_on_again(&off, failure))?;
        if off.iter().any(|volume| volume.id == target.id) {
            self.switch_on(&self.find(&target.name)?)?;
        }
        Ok(Outcome::Ok)
    }

    /// Adds physical volumes to the running group, all checks on all of them first.
    pub fn add_pvs(&self, paths: &[String]) -> Result<Outcome> {
        self.refuse_more_pvs(paths)?;
        for (position, path) in paths.iter().enumerate() {
            if paths[..position].contains(path) {
                let message = format!("Physical volume {path} was given more than once.");
                return Err(Failure::new(ErrorKind::Invalid, message));
            }
        }
        let noted: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let failed = |e| {
            Failure::new(ErrorKind::Internal, format!("Cannot note what joins volume group \"{}\": {e}.", self.name))
        };
        // Until it is a member, or not.
        let _joining = devices::members::Joining::note(&self.name, &noted).map_err(failed)?;
        noted.iter().try_for_each(|path| self.refuse_own_volume(path))?;
        (self.reached)("looked below");
        let checked = paths
            .iter()
            .map(|path| NewMember::check(Path::new(path), uuids::fresh(), Consent::default()))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        for member in checked {
            let (path, uuid) = (member.path().to_owned(), member.uuid);
            self.pvs.push_opened(&path, member.join()?.into_opened()).map_err(devices::Error::from)?;
            let group = self.group.clone();
            let added = self.run(async move { group.add_pv(NewPv { uuid }).await });
            if let Err(error) = added {
                self.pvs.pop();
                let mut failure = self.failure(&error, "");
                failure.message.push_str(&format!(
                    "\nUnable to add physical volume '{}' to volume group '{}'",
                    path.display(),
                    self.name
                ));
                return Err(failure);
            }
            log::line(format_args!("physical volume {} joined", path.display()));
            self.note_members();
        }
        Ok(Outcome::Ok)
    }

    /// A group on its own volumes could not be opened without being open (H1). The same is true of two groups, each on a
    /// volume of the other.
    fn refuse_own_volume(&self, path: &Path) -> Result<()> {
        let own = paths::group_dir(&self.name);
        let own = std::fs::canonicalize(&own).unwrap_or(own);
        if !devices::groups_under(path)?.contains(&own) {
            return Ok(());
        }
        let (path, group) = (path.display(), &self.name);
        let message = format!("Cannot add {path} to volume group \"{group}\": it lies on a volume of this group.");
        Err(Failure::new(ErrorKind::Invalid, message))
    }

    /// Writes down where the physical volumes are, for a successor (H9).
    pub fn note_members(&self) {
        let indexes = (0..self.group.info().pvs.len()).filter_map(|index| u16::try_from(index).ok()).map(PvIndex);
        let members: Option<Vec<_>> = indexes.map(|index| self.pvs.path(index)).collect();
        if let Some(members) = members
            && let Err(e) = devices::members::write(&self.name, &members)
        {
            log::line(format_args!("a successor will look at all devices: cannot write where the members are: {e}"));
        }
    }

    /// Removes the group from its physical volumes; afterwards the server ends.
    pub fn destroy(&self, force: bool) -> Result<Outcome> {
        let volumes = self.group.volumes();
        if !volumes.is_empty() {
            if !force {
                let message =
                    format!("Volume group \"{}\" still contains {} logical volume(s)", self.name, volumes.len());
                return Err(Failure::new(ErrorKind::InUse, message));
            }
            self.remove_volumes(&volumes)?;
        }
        let group = self.group.clone();
        let done = self.run(async move { group.destroy().await });
        self.told(done, "")?;
        self.end.ask(true);
        Ok(Outcome::Ok)
    }

    /// Ends the server, unless a volume is in use.
    pub fn stop(&self) -> Result<Outcome> {
        self.switch_off_all(&self.group.volumes())?;
        self.end.ask(false);
        Ok(Outcome::Ok)
    }

    /// The snapshots that are activated with `origin`.
    pub fn followers(&self, origin: VolumeId) -> impl Iterator<Item = VolumeInfo> {
        let found = self.group.snapshots_of(origin);
        found.into_iter().filter(follows_origin)
    }
}
