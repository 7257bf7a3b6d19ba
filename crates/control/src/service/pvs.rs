//! The group's physical volumes: lookup by path, and how they join, change and leave.

use super::failure::{Failure, Result};
use super::group::check_tags;
use super::platform::Membership;
use super::state::Service;
use crate::history::What;
use crate::protocol::{ErrorKind, Outcome, PvPart, change_tags};
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::format::superblock::DATA_OFFSET;
use rowen_engine::group::{LARGEST_SHARE, LinearExtents, NewPv, PvExtents};
use rowen_engine::units::BLOCK_SIZE;
use std::path::{Path, PathBuf};

/// A second copy of the journal that was not asked for takes at most one in this many extents of a physical volume.
pub const SHARE_UNASKED: u64 = 16;

impl Service {
    /// The group's physical volume at `path`, or at another path of the same device.
    pub fn pv_at(&self, path: &Path) -> Result<PvIndex> {
        let members = &self.platform.members;
        let is_it = |own: &Path| own == path || members.is_same(own, path);
        let count = self.group.info().pvs.len();
        let indexes = (0..count).filter_map(|index| u16::try_from(index).ok()).map(PvIndex);
        let mut found = indexes.filter(|index| self.platform.members.path(*index).is_some_and(|own| is_it(&own)));
        found.next().ok_or_else(|| {
            let message =
                format!("Physical Volume \"{}\" not found in Volume Group \"{}\".", path.display(), self.name);
            Failure::new(ErrorKind::NotFound, message)
        })
    }

    /// The places that a client names, for the engine.
    pub(super) fn extents_on(&self, on: &[PvPart]) -> Result<Vec<PvExtents>> {
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

    /// Gives mirrored extents with one leg a second one.
    pub(super) fn repair_mirrors(&self, on: &[PvPart]) -> Result<Outcome> {
        let on = self.extents_on(on)?;
        let group = self.group.clone();
        let repaired = self.run(async move { group.repair_mirrors(&on).await });
        Ok(Outcome::Repaired { extents: self.told(repaired, "")? })
    }

    /// Refuses to change mirrors while a disk that the group uses is not at its path any more: the next opening may be without
    /// it.
    fn check_all_are_there(&self) -> Result<()> {
        let members = &self.platform.members;
        for (index, pv) in (0..).map(PvIndex).zip(self.group.info().pvs) {
            let Some(path) = members.path(index).filter(|_| !pv.is_missing) else { continue };
            if !members.is_same(&path, &path) {
                let message = format!(
                    "Physical volume {} has disappeared, though the volume group {} still uses it. Attach it again first.",
                    path.display(),
                    self.name
                );
                return Err(Failure::new(ErrorKind::Invalid, message));
            }
        }
        Ok(())
    }

    /// Makes a linear volume mirrored where it is.
    pub(super) fn convert(&self, name: &str, on: &[PvPart]) -> Result<Outcome> {
        self.check_all_are_there()?;
        let (id, on) = (self.find(name)?.id, self.extents_on(on)?);
        let group = self.group.clone();
        let converted = self.run(async move { group.convert_to_mirror(id, &on).await });
        self.told(converted, name)?;
        Ok(Outcome::Ok)
    }

    /// Makes a mirrored volume linear where it is.
    pub(super) fn convert_to_linear(&self, name: &str, from: &[String]) -> Result<Outcome> {
        self.check_all_are_there()?;
        let id = self.find(name)?.id;
        let from: Vec<PvIndex> = from.iter().map(|path| self.pv_at(Path::new(path))).collect::<Result<_>>()?;
        let group = self.group.clone();
        let converted = self.run(async move { group.convert_to_linear(id, &from).await });
        let LinearExtents { single, shared } = self.told(converted, name)?;
        Ok(Outcome::Linear { single, shared })
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
        // Trailing empty entries are removed: the group is then like one that never had tags.
        while after.pv_tags.last().is_some_and(Vec::is_empty) {
            after.pv_tags.pop();
        }
        self.set_group_attributes(&before, after)
    }

    /// Makes the physical volume at `path` allocatable or not.
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
                    "Physical volume \"{path}\" has space that is reserved for volumes of volume group \"{}\": {} extents are, \
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

    /// Keeps the journal once, or twice if another physical volume has room for it.
    pub fn set_journal_copies(&self, copies: u8) -> Result<Outcome> {
        self.refuse_while_moving()?;
        let group = self.group.clone();
        let changed = match copies {
            0 | 1 => self.run(async move { group.drop_second_journal().await }),
            _ => self.run(async move { group.add_second_journal(LARGEST_SHARE).await }),
        };
        if let Ok(true) = changed {
            let words =
                if copies > 1 { "the journal is kept on two physical volumes" } else { "the journal is kept once" };
            self.event(What::Changed, words);
        }
        self.told(changed, "").map(|_| Outcome::Ok)
    }

    /// A group that gets its second physical volume keeps its journal on both. If that fails, it continues with one
    /// copy.
    fn keep_journal_twice(&self) {
        let group = self.group.clone();
        if let Err(error) = self.run(async move { group.add_second_journal(SHARE_UNASKED).await }) {
            self.log(&format!("the journal stays on one physical volume: {error}"));
        }
    }

    /// Adds physical volumes to the running group, after all checks on all of them.
    pub fn add_pvs(&self, paths: &[String]) -> Result<Outcome> {
        self.refuse_more_pvs(paths)?;
        self.refuse_while_moving()?;
        for (position, path) in paths.iter().enumerate() {
            if paths[..position].contains(path) {
                let message = format!("Physical volume {path} was given more than once.");
                return Err(Failure::new(ErrorKind::Invalid, message));
            }
        }
        let noted: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let failed = |e| {
            Failure::new(
                ErrorKind::Internal,
                format!("Cannot record which devices join volume group \"{}\": {e}.", self.name),
            )
        };
        // Held until it is a member or was refused.
        let _joining = self.platform.notes.joining(&noted).map_err(failed)?;
        noted.iter().try_for_each(|path| self.refuse_own_volume(path))?;
        (self.reached)("looked below");
        let checked =
            paths.iter().map(|path| self.platform.members.check(Path::new(path))).collect::<Result<Vec<_>>>()?;
        let had_one = self.group.info().pvs.len() == 1;
        for candidate in checked {
            let (path, uuid) = (candidate.path().to_owned(), candidate.uuid());
            candidate.join()?;
            let group = self.group.clone();
            let added = self.run(async move { group.add_pv(NewPv { uuid }).await });
            if let Err(error) = added {
                self.platform.members.pop();
                let mut failure = self.failure(&error, "");
                failure.message.push_str(&format!(
                    "\nUnable to add physical volume '{}' to volume group '{}'",
                    path.display(),
                    self.name
                ));
                return Err(failure);
            }
            (self.reached)("joined");
            self.event(What::Changed, &format!("physical volume {} joined", path.display()));
            self.members_changed();
        }
        if had_one {
            self.keep_journal_twice();
        }
        Ok(Outcome::Ok)
    }

    /// A group on its own volumes could never be opened (H1). The same is true of two groups, each on a volume of the
    /// other.
    fn refuse_own_volume(&self, path: &Path) -> Result<()> {
        if !self.platform.members.lies_on_group(path)? {
            return Ok(());
        }
        let (path, group) = (path.display(), &self.name);
        let message = format!("Cannot add {path} to volume group \"{group}\": it lies on a volume of this group.");
        Err(Failure::new(ErrorKind::Invalid, message))
    }

    /// Writes down what others are to know of it.
    pub(super) fn members_changed(&self) {
        self.note_members();
        self.note_membership();
    }

    /// Records the members of the group (NW1). If that fails, the group continues, but a later opening without some of its disks
    /// does not warn.
    pub fn note_membership(&self) {
        let membership = Membership::from(&self.group.info());
        if let Err(e) = self.platform.notes.membership(&membership) {
            self.log(&format!("cannot record the members of the volume group: {e}"));
        }
    }

    /// Stores the paths of the physical volumes, for a successor (H9).
    pub fn note_members(&self) {
        let indexes = (0..self.group.info().pvs.len()).filter_map(|index| u16::try_from(index).ok()).map(PvIndex);
        let members: Option<Vec<_>> = indexes.map(|index| self.platform.members.path(index)).collect();
        if let Some(members) = members
            && let Err(e) = self.platform.notes.members(&members)
        {
            self.log(&format!("cannot record where the members are, so a successor will search all devices: {e}"));
        }
    }

    /// A physical volume that holds no data leaves the group.
    pub fn remove_pv(&self, path: &str) -> Result<Outcome> {
        self.refuse_while_moving()?;
        let here = self.pv_at(Path::new(path))?;
        if here == PvIndex(0) && self.group.info().pvs.len() == 1 {
            let message = format!("Can't remove final physical volume \"{path}\" from volume group \"{}\"", self.name);
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        let (group, index) = (self.group.clone(), here);
        if group.needs_closing(here) {
            // The numbers of the others change: a successor must see that, and gets the remaining ones.
            return match self.run(async move { group.vacate_pv(index).await }) {
                Err(Error::Busy(_)) => Err(still_in_use(path)),
                other => self.told(other, "").map(|()| {
                    self.ending.leave_out(index);
                    self.announce_end();
                    Outcome::HandsOver
                }),
            };
        }
        let done = self.run(async move { group.remove_last_pv().await });
        // Even if its label could not be written: it is no longer in the group, so it is released.
        if self.group.info().pvs.len() == usize::from(index.0) {
            self.platform.members.pop();
            // A successor does not open it: it may be unplugged soon, and not answer.
            self.members_changed();
        }
        match done {
            Err(Error::Busy(_)) => Err(still_in_use(path)),
            other => self.told(other, "").map(|()| Outcome::Ok),
        }
    }

    /// Sets how many bytes of its device the physical volume at `path` uses. None: all of them.
    pub fn resize_pv(&self, path: &str, bytes: Option<u64>) -> Result<Outcome> {
        self.refuse_while_moving()?;
        let pv = self.pv_at(Path::new(path))?;
        let device = self.platform.members.rescan(pv)?;
        let bytes = bytes.unwrap_or(device);
        if bytes > device {
            return Err(Failure::new(ErrorKind::Invalid, format!("{path}: the device has only {device} bytes.")));
        }
        let extent_bytes = self.group.info().extent_blocks * BLOCK_SIZE;
        let extents = bytes.saturating_sub(DATA_OFFSET) / extent_bytes;
        let most = self.group.max_extents(pv);
        if extents > most {
            return Err(self.no_room_to_grow(path, pv, DATA_OFFSET + most * extent_bytes));
        }
        if extents == 0 {
            let message = format!("{path}: {bytes} bytes are less than one extent of {extent_bytes} bytes.");
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
                    "{path}: cannot resize to {extents} extents: {} would be removed, but only {} are not reserved \
                     for a volume of volume group \"{}\". Remove snapshots that have a size, or add a physical volume.",
                    needed / extent_blocks,
                    free / extent_blocks,
                    self.name
                );
                Err(Failure::new(ErrorKind::NoSpace, message))
            }
            other => self.told(other, "").map(|()| Outcome::Ok),
        }
    }

    /// Happens in groups from before physical volumes had room behind them, and if one has used up that room.
    fn no_room_to_grow(&self, path: &str, pv: PvIndex, most: u64) -> Failure {
        let next = self.platform.members.path(PvIndex(pv.0 + 1)).map(|next| format!(" before \"{}\"", next.display()));
        let group = &self.name;
        let message = format!(
            "Physical volume \"{path}\" cannot have more than {most} bytes: there is no room for its extents{}. Give the rest to \
             volume group \"{group}\" as a partition of its own (vgextend), or take \"{path}\" out while nothing is on it and \
             add it again (vgreduce, vgextend).",
            next.unwrap_or_default()
        );
        Failure::new(ErrorKind::Invalid, message)
    }

    /// Refuses more physical volumes than the administrator's limit, or any in a group that is not resizeable.
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
}

fn still_in_use(path: &str) -> Failure {
    Failure::new(ErrorKind::InUse, format!("Physical volume \"{path}\" still in use"))
}
