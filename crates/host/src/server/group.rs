//! What is kept with the group itself: tags, limits, whether it is exported; and its physical volumes.

use super::failure::{Failure, Result};
use super::log;
use super::renaming::Renaming;
use super::state::{Server, is_pool};
use crate::devices;
use rowen_control::names;
use rowen_control::protocol::{ErrorKind, FullPolicy, GroupChange, Outcome, change_tags};
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::format::superblock::DATA_OFFSET;
use rowen_engine::group::GroupAttributes;
use rowen_engine::units::BLOCK_SIZE;
use std::path::Path;

impl Server {
    /// Changes the group's attributes. A change that changes nothing is done, too.
    pub fn change_group(&self, change: &GroupChange) -> Result<Outcome> {
        check_tags(&change.add_tags)?;
        let before = self.group.info().attributes;
        self.set_group_attributes(&before, change.apply(&before))
    }

    /// Changes the tags of the physical volume at `path`.
    pub fn tag_pv(&self, path: &str, add: &[String], remove: &[String]) -> Result<Outcome> {
        check_tags(add)?;
        let index = self.pv_at(Path::new(path))?;
        let before = self.group.info().attributes;
        let mut after = before.clone();
        let place = usize::from(index.0);
        if after.pv_tags.len() <= place {
            after.pv_tags.resize(place + 1, Vec::new());
        }
        change_tags(&mut after.pv_tags[place], add, remove);
        // What nobody has any more is not kept: the group is then as one that never had it.
        while after.pv_tags.last().is_some_and(Vec::is_empty) {
            after.pv_tags.pop();
        }
        self.set_group_attributes(&before, after)
    }

    /// Takes space from the physical volume at `path` from now on, or none any more.
    pub fn set_allocatable(&self, path: &str, allocatable: bool) -> Result<Outcome> {
        let index = self.pv_at(Path::new(path))?;
        if self.group.info().pvs[usize::from(index.0)].is_allocatable == allocatable {
            return Ok(Outcome::Ok);
        }
        let group = self.group.clone();
        match self.run(async move { group.set_allocatable(index, allocatable).await }) {
            Err(Error::NoSpace { needed, free }) => {
                let extent_blocks = self.group.info().extent_blocks.max(1);
                let message = format!(
                    "Physical volume \"{path}\" has space that is promised to volumes of volume group \"{}\": {} extents are, \
                     and the others have {}. Remove snapshots that have a size, or add a physical volume.",
                    self.name,
                    needed.div_ceil(extent_blocks),
                    free / extent_blocks
                );
                Err(Failure::new(ErrorKind::NoSpace, message))
            }
            other => self.told(other, "").map(|()| Outcome::Ok),
        }
    }

    fn set_group_attributes(&self, before: &GroupAttributes, after: GroupAttributes) -> Result<Outcome> {
        if *before != after {
            let group = self.group.clone();
            let done = self.run(async move { group.set_group_attributes(after).await });
            self.told(done, "")?;
        }
        Ok(Outcome::Ok)
    }

    /// The group's physical volume at `path`, or at another path of the same device.
    pub fn pv_at(&self, path: &Path) -> Result<PvIndex> {
        let identity = devices::Identity::of(path);
        let is_it = |own: &Path| own == path || identity.is_some_and(|id| devices::Identity::of(own) == Some(id));
        let count = self.group.info().pvs.len();
        let indexes = (0..count).filter_map(|index| u16::try_from(index).ok()).map(PvIndex);
        let mut found = indexes.filter(|index| self.pvs.path(*index).is_some_and(|own| is_it(&own)));
        found.next().ok_or_else(|| {
            let message =
                format!("Physical Volume \"{}\" not found in Volume Group \"{}\".", path.display(), self.name);
            Failure::new(ErrorKind::NotFound, message)
        })
    }

    /// A physical volume that holds no data leaves the group.
    pub fn remove_pv(&self, path: &str) -> Result<Outcome> {
        let here = self.pv_at(Path::new(path))?;
        if here == PvIndex(0) && self.group.info().pvs.len() == 1 {
            let message = format!("Can't remove final physical volume \"{path}\" from volume group \"{}\"", self.name);
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        let is_last = usize::from(here.0) + 1 == self.group.info().pvs.len();
        let (group, index) = (self.group.clone(), here);
        if !is_last || group.has_journal(here) {
            // The others' numbers change: a successor is to see it, and gets what is left.
            return match self.run(async move { group.vacate_pv(index).await }) {
                Err(Error::Busy(_)) => Err(still_in_use(path)),
                other => self.told(other, "").map(|()| {
                    self.end.leave_out(index);
                    Outcome::HandsOver
                }),
            };
        }
        let done = self.run(async move { group.remove_last_pv().await });
        // Whatever came of its label: what the group does not know any more is not held.
        if self.group.info().pvs.len() == usize::from(index.0) {
            self.pvs.pop();
        }
        match done {
            Err(Error::Busy(_)) => Err(still_in_use(path)),
            other => self.told(other, "").map(|()| Outcome::Ok),
        }
    }

    /// The physical volume at `path` has so many bytes of its device from now on, or all of them.
    pub fn resize_pv(&self, path: &str, bytes: Option<u64>) -> Result<Outcome> {
        let pv = self.pv_at(Path::new(path))?;
        let device = self.pvs.look_again(pv)?;
        let bytes = bytes.unwrap_or(device);
        if bytes > device {
            return Err(Failure::new(ErrorKind::Invalid, format!("{path}: the device has {device} bytes only.")));
        }
        let extent_bytes = self.group.info().extent_blocks * BLOCK_SIZE;
        let extents = bytes.saturating_sub(DATA_OFFSET) / extent_bytes;
        let most = self.group.most_extents(pv);
        if extents > most {
            return Err(self.no_room_to_grow(path, pv, DATA_OFFSET + most * extent_bytes));
        }
        if extents == 0 {
            let message = format!("{path}: {bytes} bytes are too few for one extent of {extent_bytes} bytes.");
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        let group = self.group.clone();
        match self.run(async move { group.resize_pv(pv, bytes).await }) {
            Err(Error::Busy(_)) => {
                let message = format!("{path}: cannot resize to {extents} extents as later ones are allocated.");
                Err(Failure::new(ErrorKind::InUse, message))
            }
            Err(Error::NoSpace { needed, free }) => {
                let extent_blocks = self.group.info().extent_blocks.max(1);
                let message = format!(
                    "{path}: cannot resize to {extents} extents: {} would go, and only {} are promised to no volume of volume \
                     group \"{}\". Remove snapshots that have a size, or add a physical volume.",
                    needed / extent_blocks,
                    free / extent_blocks,
                    self.name
                );
                Err(Failure::new(ErrorKind::NoSpace, message))
            }
            other => self.told(other, "").map(|()| Outcome::Ok),
        }
    }

    /// In groups that were made before physical volumes had room behind them, and of one that outgrew it.
    fn no_room_to_grow(&self, path: &str, pv: PvIndex, most: u64) -> Failure {
        let next = self.pvs.path(PvIndex(pv.0 + 1)).map(|next| format!(" before \"{}\"", next.display()));
        let group = &self.name;
        let message = format!(
            "Physical volume \"{path}\" cannot have more than {most} bytes: there is no room for its extents{}. Give the rest to \
             volume group \"{group}\" as a partition of its own (vgextend), or take \"{path}\" out while nothing is on it and \
             add it again (vgreduce, vgextend).",
            next.unwrap_or_default()
        );
        Failure::new(ErrorKind::Invalid, message)
    }

    /// Gives the group another name, its devices and its place in the run directory included. Names cannot change under a
    /// process that was started with the old one: this server ends, and its successor takes the devices over.
    pub fn rename_group(&self, to: &str) -> Result<Outcome> {
        let invalid = |why: String| Failure::new(ErrorKind::Invalid, why);
        names::check_form(to).map_err(|why| invalid(format!("{why}\nNew volume group name \"{to}\" is invalid.")))?;
        if devices::scan()?.groups().iter().any(|group| group.name == to) {
            let message = format!("New volume group \"{to}\" already exists");
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        let volumes = self.group.volumes();
        if let Some(told) = volumes.iter().find_map(|volume| names::pair_too_long(to, &volume.name)) {
            return Err(invalid(told));
        }
        let begun = Renaming::begin(&self.name, to, self.group.info().uuid);
        let renaming = begun.map_err(|e| Failure::new(ErrorKind::Internal, format!("Cannot begin to rename: {e}.")))?;
        let name = to.to_owned();
        if let Err(failure) = self.export(|exports| async move { exports.make_names_of(&name).await }) {
            renaming.end();
            return Err(failure.into());
        }
        (self.reached)("names made");
        let (group, name) = (self.group.clone(), to.to_owned());
        let renamed = self.run(async move { group.rename_group(&name).await });
        if let Err(failure) = self.told(renamed, "") {
            let name = to.to_owned();
            match self.export(|exports| async move { exports.remove_names_of(&name).await }) {
                Ok(()) => renaming.end(),
                Err(_) => renaming.leave(),
            }
            return Err(failure);
        }
        (self.reached)("disks renamed");
        // From here on there is no way back: the disks say the new name.
        self.end.rename();
        let (name, reached) = (to.to_owned(), self.reached);
        if let Err(failure) = self.export(|exports| async move { exports.move_to(&name, reached).await }) {
            renaming.leave();
            return Err(failure.into());
        }
        (self.reached)("keeper told");
        renaming.end();
        log::line(format_args!("volume group \"{}\" is \"{to}\" from now on", self.name));
        Ok(Outcome::Ok)
    }

    /// Makes names under /dev that something else has removed.
    pub fn make_nodes(&self) -> Result<Outcome> {
        let name = self.name.clone();
        self.export(|exports| async move { exports.make_names_of(&name).await })?;
        Ok(Outcome::Ok)
    }

    /// What writes do when the group is full: of a pool, for all of its volumes.
    pub fn set_full_policy(&self, name: &str, full: FullPolicy) -> Result<Outcome> {
        let volume = self.find(name)?;
        let pool = is_pool(&volume);
        let volumes = self.group.volumes();
        let chosen = volumes.iter().filter(|other| other.id == volume.id || (pool && other.attributes.pool == name));
        for (id, name) in chosen.map(|volume| (volume.id, volume.name.clone())) {
            let group = self.group.clone();
            let done = self.run(async move { group.set_full_policy(id, full.into()).await });
            self.told(done, &name)?;
        }
        Ok(Outcome::Ok)
    }

    /// Refuses more volumes than the administrator's limit.
    pub fn refuse_more_volumes(&self, more: usize) -> Result<()> {
        let most = self.group.info().attributes.max_volumes;
        if most == 0 || (self.group.volume_count() + more) as u64 <= most {
            return Ok(());
        }
        let message = format!("Maximum number of logical volumes ({most}) reached in volume group {}", self.name);
        Err(Failure::new(ErrorKind::NoSpace, message))
    }

    /// Refuses more physical volumes than the administrator's limit, or any in a group that is to stay as it is.
    pub fn refuse_more_pvs(&self, paths: &[String]) -> Result<()> {
        let info = self.group.info();
        if !info.attributes.resizeable {
            return Err(Failure::new(ErrorKind::Denied, format!("Volume group {} is not resizeable.", self.name)));
        }
        let most = info.attributes.max_pvs;
        let room = (most as usize).saturating_sub(info.pvs.len());
        match paths.get(room) {
            Some(path) if most > 0 => {
                let message = format!(
                    "No space for '{path}' - volume group '{}' holds max {most} physical volume(s).",
                    self.name
                );
                Err(Failure::new(ErrorKind::NoSpace, message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what an exported group does not do.
    pub fn refuse_exported(&self) -> Result<()> {
        match self.group.info().attributes.exported {
            true => Err(Failure::new(ErrorKind::Denied, format!("Volume group \"{}\" is exported", self.name))),
            false => Ok(()),
        }
    }
}

fn still_in_use(path: &str) -> Failure {
    Failure::new(ErrorKind::InUse, format!("Physical volume \"{path}\" still in use"))
}

/// A server trusts no client with tags that others would read as something else.
fn check_tags(tags: &[String]) -> Result<()> {
    match tags.iter().find(|tag| names::tag(tag) != Some(tag.as_str())) {
        Some(bad) => Err(Failure::new(ErrorKind::Invalid, format!("Tag \"{}\" is invalid.", bad.escape_debug()))),
        None => Ok(()),
    }
}
