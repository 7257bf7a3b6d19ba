//! The attributes of the group: tags, limits, policies, whether it is exported.

use super::failure::{Failure, Result};
use super::state::{Service, is_pool};
use crate::names;
use crate::protocol::{ErrorKind, FullPolicy, GroupChange, Outcome};
use rowen_engine::group::GroupAttributes;

impl Service {
    /// Changes the group's attributes, also if nothing is different.
    pub fn change_group(&self, change: &GroupChange) -> Result<Outcome> {
        check_tags(&change.add_tags)?;
        let before = self.group.info().attributes;
        self.set_group_attributes(&before, change.apply(&before))
    }

    pub(super) fn set_group_attributes(&self, before: &GroupAttributes, after: GroupAttributes) -> Result<Outcome> {
        if *before != after {
            let group = self.group.clone();
            let done = self.run(async move { group.set_group_attributes(after).await });
            self.told(done, "")?;
        }
        Ok(Outcome::Ok)
    }

    /// Makes names under /dev that another program has removed.
    pub fn make_nodes(&self) -> Result<Outcome> {
        self.platform.devices.make_names_of(&self.name)?;
        Ok(Outcome::Ok)
    }

    /// Sets the policy for a full group; for a pool, also for all of its volumes.
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

    /// Why the group is open read-only, if it is (RO1).
    pub fn why_read_only(&self) -> Option<String> {
        self.group.is_read_only().then(|| self.read_only.clone())
    }

    /// Refuses requests that would write to a group that is open read-only.
    pub fn refuse_read_only(&self) -> Result<()> {
        let Some(why) = self.why_read_only() else { return Ok(()) };
        let group = &self.name;
        let message =
            format!("Volume group \"{group}\" is open read-only: {why}. Once it can be written: rowen clear {group}.");
        Err(Failure::new(ErrorKind::Denied, message))
    }

    /// Refuses requests that an exported group does not allow.
    pub fn refuse_exported(&self) -> Result<()> {
        match self.group.info().attributes.exported {
            true => Err(Failure::new(ErrorKind::Denied, format!("Volume group \"{}\" is exported", self.name))),
            false => Ok(()),
        }
    }
}

/// The server checks tags itself: it does not trust its clients.
pub(super) fn check_tags(tags: &[String]) -> Result<()> {
    match tags.iter().find(|tag| names::tag(tag) != Some(tag.as_str())) {
        Some(bad) => Err(Failure::new(ErrorKind::Invalid, format!("Tag \"{}\" is invalid.", bad.escape_debug()))),
        None => Ok(()),
    }
}
