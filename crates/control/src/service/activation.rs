//! Activation: which volumes have nodes, and which nodes are read-only.

use super::failure::{Failure, Result};
use super::merge::is_waiting;
use super::state::{Service, follows_origin, is_pool};
use crate::protocol::{ErrorKind, Outcome};
use rowen_engine::group::{VolumeInfo, VolumeState};

/// How volumes are to be activated.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub ignore_skip: bool,
    pub auto: bool,
    pub partial: bool,
}

impl Service {
    /// Makes the nodes of the named volumes, or of all, after the merges that wait for it. Volumes that cannot be
    /// activated are reported; all others become active.
    pub fn activate(
        &self,
        names: Option<&[String]>,
        Wish { ignore_skip, auto, partial }: Wish,
        tell: &mut dyn FnMut(Outcome),
    ) -> Result<Outcome> {
        let by_name = names.is_some();
        let chosen = self.with_relatives(names)?;
        let lists = self.lists.get();
        let group_tags = self.group.info().attributes.tags;
        let judge = |volume: &VolumeInfo| {
            // A snapshot that follows its origin is active with it, even if it is not named.
            let origin = volume.origin.filter(|_| follows_origin(volume));
            let origin = origin.and_then(|origin| self.group.volume_info(origin).ok());
            let volume = origin.as_ref().unwrap_or(volume);
            let subject = self.subject(&group_tags, &volume.name, &volume.attributes.tags);
            lists.allow(subject) && (!auto || lists.allow_auto(subject))
        };
        let wanted = chosen.into_iter().filter(|volume| {
            let skipped = volume.attributes.skip_activation && !ignore_skip;
            let not_now = auto && !volume.attributes.autoactivate;
            let is_allowed = judge(volume);
            // An invalid snapshot is an error if it is named, and is skipped when all volumes are activated.
            let hopeless = volume.state == VolumeState::Invalid && !by_name;
            !(is_pool(volume) || is_waiting(volume) || skipped || not_now || hopeless) && is_allowed
        });
        let mut on = |volume| {
            if !partial {
                self.refuse_partial(&volume)?;
            }
            let volume = self.merge_before_activation(volume, tell)?;
            self.switch_on(&volume).and_then(|_| self.note_active(&volume, true))
        };
        let failures: Vec<Failure> = wanted.filter_map(|volume| on(volume).err()).collect();
        Failure::join(failures).map_or(Ok(Outcome::Ok), Err)
    }

    /// Makes devices read-only or writable, by their volumes' permission and the lists.
    pub fn refresh(&self, names: &[String]) -> Result<Outcome> {
        let active = self.find_all(names)?.into_iter().filter(|volume| self.node(&volume.name).is_some());
        let failures: Vec<Failure> = active.filter_map(|volume| self.switch_on(&volume).err()).collect();
        Failure::join(failures).map_or(Ok(Outcome::Ok), Err)
    }

    /// Removes the nodes of the named volumes, or of all; of none if one of them is in use.
    pub fn deactivate(&self, names: Option<&[String]>) -> Result<Outcome> {
        let chosen = self.with_relatives(names)?;
        self.switch_off_all(&chosen).map_err(|mut failure| {
            if names.is_none() && failure.kind == ErrorKind::InUse {
                // The user of the volume may have gone since.
                let open = chosen.iter().filter(|volume| self.is_used(&volume.name)).count().max(1);
                let whole =
                    format!("\nCan't deactivate volume group \"{}\" with {open} open logical volume(s)", self.name);
                failure.message.push_str(&whole);
            }
            failure
        })?;
        chosen.iter().try_for_each(|volume| self.note_active(volume, false))?;
        Ok(Outcome::Ok)
    }

    /// The named volumes, or all, and those that are activated together with them: a snapshot with a reserve, its origin,
    /// the origin's other snapshots of that kind, and theirs.
    fn with_relatives(&self, names: Option<&[String]>) -> Result<Vec<VolumeInfo>> {
        let Some(names) = names else { return Ok(self.shown_volumes()) };
        let mut chosen = self.find_all(names)?;
        let mut looked_at = 0;
        while let Some(volume) = chosen.get(looked_at) {
            let origin = volume.origin.filter(|_| follows_origin(volume));
            let followers = self.followers(volume.id).filter(|follower| follower.state == VolumeState::Ok);
            let related = origin.and_then(|origin| self.group.volume_info(origin).ok()).into_iter().chain(followers);
            let new: Vec<VolumeInfo> = related.filter(|one| chosen.iter().all(|other| other.id != one.id)).collect();
            chosen.extend(new);
            looked_at += 1;
        }
        Ok(chosen)
    }

    /// Whether any volume has a node.
    pub fn any_active(&self) -> bool {
        !self.platform.devices.active().is_empty()
    }

    /// After a start: makes the nodes that existed when the last server of this boot ended. After a reboot there are
    /// none, whatever the volumes' attributes say.
    pub fn restore_nodes(&self, same_boot: bool) -> Vec<Failure> {
        let _change = self.change.lock();
        let marked = self.group.volumes_where(|volume| volume.attributes.active).into_iter();
        let restore = |volume: VolumeInfo| {
            // Devices that were taken over keep the state that a client's lists gave them.
            if self.node(&volume.name).is_some() {
                Ok(())
            } else if same_boot && volume.state == VolumeState::Ok {
                self.refuse_partial(&volume)?;
                self.switch_on(&volume).map(drop)
            } else {
                self.note_active(&volume, false)
            }
        };
        marked.filter_map(|volume| restore(volume).err()).collect()
    }
}
