//! What a running server has: the open group, its devices, and one order for everything that changes metadata.
//!
//! SV1. Every change of the group or of its nodes happens under `change`; reports take no lock.
//! SV2. A node exists exactly while its volume's `active` attribute says so, outside the span of one request and of a
//!     shutdown. Shutdown leaves the attribute: the next server of this boot makes the nodes again.
//! SV3. A request that fails leaves the group and the nodes as they were; where that could not be done, its message says so.

use super::activation::ListsInForce;
use super::archive::Archive;
use super::autoextend::Autoextension;
use super::failure::{Context, Failure, Result};
use super::warnings::Warnings;
use crate::disks::PvSet;
use crate::export::{self, Exports, Node, VolumeTarget};
use crate::reactor::Pool;
use parking_lot::Mutex;
use rowen_control::names;
use rowen_control::protocol::ErrorKind;
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, Group, VolumeInfo, VolumeState};
use rowen_engine::units::VolumeId;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A running server.
pub struct Server {
    pub name: String,
    pub group: Arc<Group>,
    pub pvs: Arc<PvSet>,
    pub exports: Arc<Exports>,
    pub change: Mutex<()>,
    pub warnings: Warnings,
    pub autoextension: Autoextension,
    pub archive: Archive,
    /// Which volumes may be activated, and how.
    pub lists: ListsInForce,
    /// Told of each step of a rename.
    pub reached: fn(&str),
    /// Somebody asked over the socket that the server end.
    pub end: End,
    // Last, so that it goes last: everything above runs on it.
    pub pool: Arc<Pool>,
}

/// A request to end, seen by the main loop.
pub struct End {
    asked: AtomicBool,
    /// The group is gone: there is nothing to checkpoint.
    destroyed: AtomicBool,
    /// The group has another name.
    renamed: AtomicBool,
    /// The physical volume that is to be left out of the group.
    leaving: Mutex<Option<PvIndex>>,
    bell: std::os::fd::OwnedFd,
}

impl End {
    pub fn new() -> std::io::Result<End> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)?;
        Ok(End {
            asked: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
            renamed: AtomicBool::new(false),
            leaving: Mutex::new(None),
            bell,
        })
    }

    /// Asks the main loop to end the server.
    pub fn ask(&self, destroyed: bool) {
        self.destroyed.fetch_or(destroyed, Ordering::SeqCst);
        self.asked.store(true, Ordering::SeqCst);
        // The counter cannot overflow from a few requests; a failure would only cost the main loop its next timeout.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Asks the main loop to end the server of a group that has another name from now on.
    pub fn rename(&self) {
        self.renamed.store(true, Ordering::SeqCst);
        self.ask(false);
    }

    pub fn is_renamed(&self) -> bool {
        self.renamed.load(Ordering::SeqCst)
    }

    /// Asks the main loop to end the server and to leave a physical volume out of the group with that.
    pub fn leave_out(&self, pv: PvIndex) {
        *self.leaving.lock() = Some(pv);
        self.ask(false);
    }

    pub fn leaving(&self) -> Option<PvIndex> {
        *self.leaving.lock()
    }

    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::SeqCst)
    }

    pub fn bell(&self) -> &std::os::fd::OwnedFd {
        &self.bell
    }
}

/// A thin pool: a volume that names itself as its pool. It is an allotment, never a device.
pub fn is_pool(volume: &VolumeInfo) -> bool {
    !volume.attributes.pool.is_empty() && volume.attributes.pool == volume.name
}

/// A snapshot that lives and is activated with its origin.
pub fn follows_origin(volume: &VolumeInfo) -> bool {
    volume.origin.is_some() && volume.reserve.is_some()
}

impl Server {
    /// Runs a piece of asynchronous work to its end.
    pub fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.pool.block_on(work)
    }

    /// Tells an engine's error about the volume `name`, or about the group where it is empty.
    pub fn failure(&self, error: &Error, name: &str) -> Failure {
        let devices = |index| u16::try_from(index).ok().and_then(|index| self.pvs.path(PvIndex(index)));
        let extent_blocks = self.group.info().extent_blocks;
        Context { group: &self.name, extent_blocks, devices: &devices }.failure(error, name)
    }

    /// The same for a result.
    pub fn told<T>(&self, result: rowen_engine::error::Result<T>, name: &str) -> Result<T> {
        result.map_err(|error| self.failure(&error, name))
    }

    /// The volume called `name`.
    pub fn find(&self, name: &str) -> Result<VolumeInfo> {
        let id = self.group.find(name).ok_or_else(|| Failure::no_volume(&self.name, name))?;
        self.told(self.group.volume_info(id), name)
    }

    /// Refuses what cannot be the name of a volume of this group. Commands check too; a server trusts no client with
    /// names that become paths.
    pub fn check_name(&self, name: &str) -> Result<()> {
        names::check_volume(name).map_err(|refusal| {
            let message = format!("Logical volume name \"{}\" is invalid: {refusal}", name.escape_debug());
            Failure::new(ErrorKind::Invalid, message)
        })?;
        names::pair_too_long(&self.name, name).map_or(Ok(()), |message| Err(Failure::new(ErrorKind::Invalid, message)))
    }

    /// The volumes of these names, each once, all of which must exist.
    pub fn find_all(&self, names: &[String]) -> Result<Vec<VolumeInfo>> {
        let mut found: Vec<VolumeInfo> = Vec::with_capacity(names.len());
        for name in names {
            let volume = self.find(name)?;
            if found.iter().all(|other| other.id != volume.id) {
                found.push(volume);
            }
        }
        Ok(found)
    }

    /// The volume's device, when it is active.
    pub fn node(&self, name: &str) -> Option<Node> {
        self.exports.find(name)
    }

    /// Asks something of the exports.
    pub fn export<T, F>(&self, ask: impl FnOnce(Arc<Exports>) -> F) -> export::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = export::Result<T>> + Send + 'static,
    {
        self.run(ask(self.exports.clone()))
    }

    /// LVM's sentence when something uses the volume's device.
    pub fn refuse_use(&self, name: &str) -> Result<()> {
        let Some(node) = self.node(name) else { return Ok(()) };
        match export::usage::in_lasting_use(node.major, node.minor)? {
            None => Ok(()),
            Some(user) => Err(self.in_use(name, &user)),
        }
    }

    /// Whether something uses the volume's device at this moment.
    pub fn is_used(&self, name: &str) -> bool {
        self.node(name).is_some_and(|node| !matches!(export::usage::in_use(node.major, node.minor), Ok(None)))
    }

    fn in_use(&self, name: &str, user: &str) -> Failure {
        let how = if user.starts_with("mounted") {
            "contains a filesystem in use"
        } else if user.starts_with("used by the device") {
            "is used by another device"
        } else {
            "in use"
        };
        Failure::new(ErrorKind::InUse, format!("Logical volume {}/{name} {how}.", self.name))
    }

    /// Makes the volume's node, or makes one that is there as it has to be.
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
        let target = VolumeTarget::new(data, volume);
        let name = volume.name.clone();
        Ok(self.export(|exports| async move { exports.activate(&name, target, read_only).await })?)
    }

    /// Makes an active volume's device read-only or writable.
    pub fn set_device_read_only(&self, name: &str, read_only: bool) -> export::Result<()> {
        let name = name.to_owned();
        self.export(|exports| async move { exports.set_read_only(&name, read_only).await })
    }

    /// LVM's sentence when something uses one of these volumes' devices. One look for all of them: of the few that seem in
    /// use each is asked again, whether it stays.
    fn refuse_any_use(&self, volumes: &[VolumeInfo]) -> Result<()> {
        let nodes: Vec<Node> = volumes.iter().filter_map(|volume| self.node(&volume.name)).collect();
        let open = self.exports.open(&nodes);
        for node in &nodes {
            if open.contains(&(node.major, node.minor)) {
                self.refuse_use(&node.name)?;
            } else if let Some(user) = export::usage::claimed_by(node.major, node.minor)? {
                return Err(self.in_use(&node.name, &user));
            }
        }
        Ok(())
    }

    /// Takes the volume's node away, if it has one. Returns whether it had. `unused`: whether its device is open was looked up
    /// just now.
    fn switch_off(&self, name: &str, unused: bool) -> Result<bool> {
        if self.node(name).is_none() {
            return Ok(false);
        }
        let volume = name.to_owned();
        let gone = self.export(|exports| async move {
            match unused {
                true => exports.deactivate_unused(&volume).await,
                false => exports.deactivate(&volume).await,
            }
        });
        match gone {
            Ok(()) => Ok(true),
            Err(export::Error::InUse { user, .. }) => Err(self.in_use(name, &user)),
            Err(other) => Err(other.into()),
        }
    }

    /// Writes down whether the volume is active (SV2).
    pub fn note_active(&self, volume: &VolumeInfo, active: bool) -> Result<()> {
        if volume.attributes.active == active {
            return Ok(());
        }
        self.set_attributes(volume.id, &volume.name, Attributes { active, ..volume.attributes.clone() })
    }

    pub fn set_attributes(&self, id: VolumeId, name: &str, attributes: Attributes) -> Result<()> {
        let group = self.group.clone();
        let done = self.run(async move { group.set_attributes(id, attributes).await });
        self.told(done, name)
    }

    /// Takes away the nodes of all these volumes or of none; those that had one come back.
    pub fn switch_off_all<'a>(&self, volumes: &'a [VolumeInfo]) -> Result<Vec<&'a VolumeInfo>> {
        // One that is refused needs no undoing; of several, each is asked before the first goes.
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

    /// Undoes [`Server::switch_off_all`] after `failure`, which gets a sentence for each node that did not come back.
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
