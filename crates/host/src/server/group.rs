//! What is kept with the group itself: tags, limits, whether it is exported; and its physical volumes.

use super::failure::{Failure, Result};
use super::state::Server;
use crate::devices;
use rowen_control::names;
use rowen_control::wire::{ErrorKind, GroupChange, Outcome, change_tags};
use rowen_engine::disk::PvIndex;
use rowen_engine::group::GroupAttributes;
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

    /// Refuses what an exported group does not do.
    pub fn refuse_exported(&self) -> Result<()> {
        match self.group.info().attributes.exported {
            true => Err(Failure::new(ErrorKind::Denied, format!("Volume group \"{}\" is exported", self.name))),
            false => Ok(()),
        }
    }
}

/// A server trusts no client with tags that others would read as something else.
fn check_tags(tags: &[String]) -> Result<()> {
    match tags.iter().find(|tag| names::tag(tag) != Some(tag.as_str())) {
        Some(bad) => Err(Failure::new(ErrorKind::Invalid, format!("Tag \"{}\" is invalid.", bad.escape_debug()))),
        None => Ok(()),
    }
}
