//! The devices of volumes: which may be made, how, and whether they are in use.

use super::failure::{Failure, Result};
use super::platform::{DeviceError, Done, Node, User};
use super::state::Service;
use crate::lists::Subject;
use crate::protocol::ErrorKind;
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, VolumeInfo, VolumeState};
use rowen_engine::planted;

impl Service {
    pub(super) fn subject<'a>(&'a self, group_tags: &'a [String], volume: &'a str, tags: &'a [String]) -> Subject<'a> {
        Subject { group: &self.name, group_tags, volume, tags }
    }

    /// Whether a volume of this name may be activated.
    pub fn allows(&self, volume: &str, tags: &[String]) -> bool {
        let lists = self.lists.get();
        lists.is_nothing() || lists.allow(self.subject(&self.group.info().attributes.tags, volume, tags))
    }

    /// Whether the volume's device must be read-only, by its permission or by the list.
    pub fn is_read_only(&self, volume: &VolumeInfo) -> bool {
        let lists = self.lists.get();
        volume.read_only
            || self.group.is_read_only()
            || lists.read_only.is_some()
                && lists.make_read_only(self.subject(
                    &self.group.info().attributes.tags,
                    &volume.name,
                    &volume.attributes.tags,
                ))
    }

    /// The volume's device, if it is active.
    pub fn node(&self, name: &str) -> Option<Node> {
        self.platform.devices.find(name)
    }

    /// LVM's error if the volume's device is in use.
    pub fn refuse_use(&self, name: &str) -> Result<()> {
        let Some(node) = self.node(name) else { return Ok(()) };
        match self.platform.devices.lasting_user(&node)? {
            None => Ok(()),
            Some(user) => Err(self.in_use(name, user)),
        }
    }

    /// Whether the volume's device is in use now.
    pub fn is_used(&self, name: &str) -> bool {
        self.node(name).is_some_and(|node| !matches!(self.platform.devices.user(&node), Ok(None)))
    }

    fn in_use(&self, name: &str, user: User) -> Failure {
        let how = match user {
            User::Filesystem => "contains a filesystem in use",
            User::Device => "is used by another device",
            User::Other => "in use",
        };
        Failure::new(ErrorKind::InUse, format!("Logical volume {}/{name} {how}.", self.name))
    }

    /// Makes the volume's node, or updates an existing one.
    pub fn switch_on(&self, volume: &VolumeInfo) -> Result<Node> {
        let read_only = self.is_read_only(volume);
        if let Some(node) = self.node(&volume.name) {
            if node.read_only == read_only {
                return Ok(node);
            }
            self.set_device_read_only(&volume.name, read_only)?;
            return Ok(Node { read_only, ..node });
        }
        if volume.state == VolumeState::Invalid {
            return Err(self.failure(&Error::InvalidSnapshot, &volume.name));
        }
        let data = self.told(self.group.volume(volume.id), &volume.name)?;
        Ok(self.platform.devices.activate(data, volume, read_only)?)
    }

    /// Makes an active volume's device read-only or writable.
    pub fn set_device_read_only(&self, name: &str, read_only: bool) -> Done<()> {
        self.platform.devices.set_read_only(name, read_only)
    }

    /// LVM's error if one of these volumes' devices is in use. One search for all of them; the few that seem in use are
    /// checked again.
    fn refuse_any_use(&self, volumes: &[VolumeInfo]) -> Result<()> {
        let nodes: Vec<Node> = volumes.iter().filter_map(|volume| self.node(&volume.name)).collect();
        let open = self.platform.devices.open(&nodes);
        for (node, is_open) in nodes.iter().zip(open) {
            if is_open {
                self.refuse_use(&node.name)?;
            } else if let Some(user) = self.platform.devices.claimant(node)? {
                return Err(self.in_use(&node.name, user));
            }
        }
        Ok(())
    }

    /// Removes the volume's node, if it has one. Returns whether it had. `unused`: it was just found not to be open.
    fn switch_off(&self, name: &str, unused: bool) -> Result<bool> {
        if self.node(name).is_none() {
            return Ok(false);
        }
        match self.platform.devices.deactivate(name, unused) {
            Ok(()) => Ok(true),
            Err(DeviceError { user: Some(user), .. }) => Err(self.in_use(name, user)),
            Err(other) => Err(other.into()),
        }
    }

    /// Stores whether the volume is active (SV2). In a group that is open read-only, only its keeper knows.
    pub fn note_active(&self, volume: &VolumeInfo, active: bool) -> Result<()> {
        if volume.attributes.active == active || self.group.is_read_only() || planted::is("activity_not_noted") {
            return Ok(());
        }
        self.set_attributes(volume.id, &volume.name, Attributes { active, ..volume.attributes.clone() })
    }

    /// Removes the nodes of all these volumes or of none. Returns the volumes that had one.
    pub fn switch_off_all<'a>(&self, volumes: &'a [VolumeInfo]) -> Result<Vec<&'a VolumeInfo>> {
        // A single refused removal needs no undo. Of several, each is checked before the first is removed.
        let are_many = volumes.len() > 1;
        if are_many {
            self.refuse_any_use(volumes)?;
        }
        let mut off = Vec::new();
        for volume in volumes {
            match self.switch_off(&volume.name, are_many) {
                Ok(true) => off.push(volume),
                Ok(false) => {}
                Err(failure) => return Err(self.switch_on_again(&off, failure)),
            }
        }
        Ok(off)
    }

    /// Undoes [`Service::switch_off_all`] after `failure`, which gets a sentence for each node that could not be made
    /// again.
    pub fn switch_on_again(&self, volumes: &[&VolumeInfo], mut failure: Failure) -> Failure {
        for volume in volumes {
            if let Err(also) = self.switch_on(volume) {
                let lost = format!("\nLogical volume {}/{} stays inactive: {}", self.name, volume.name, also.message);
                failure.message.push_str(&lost);
            }
        }
        failure
    }
}
