//! The state of a service: the open group, its devices, and one order for all changes of metadata.
//!
//! SV1. Every change of the group or of its nodes happens under `change`; reports take no lock.
//! SV2. A node exists exactly while its volume's `active` attribute says so, outside the span of one request and of a
//!     shutdown. Shutdown leaves the attribute: the next server of this boot makes the nodes again.
//! SV3. A request that fails leaves the group and the nodes as they were; where that could not be done, its message says so.

use super::autoextend::Autoextension;
use super::ending::Ending;
use super::failure::{Context, Failure, Result};
use super::held::Held;
use super::hidden::is_hidden;
use super::permits::ListsInForce;
use super::platform::Platform;
use super::spares::Repairs;
use super::wanted_move::WantedMove;
use super::warnings::Warnings;
use crate::history::What;
use crate::lists::Lists;
use crate::names;
use crate::protocol::{DiskWait, ErrorKind};
use crate::settings::Settings;
use parking_lot::{Mutex, RwLock};
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, Group, VolumeInfo};
use rowen_engine::units::{Uuid, VolumeId};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The decisions about one open group.
pub struct Service {
    pub name: String,
    pub group: Arc<Group>,
    pub change: Mutex<()>,
    /// Held shared to write received data, and exclusively to end a receive (RX5).
    pub receiving: RwLock<()>,
    /// The requested move (PM9).
    pub wanted_move: Mutex<WantedMove>,
    /// For each stream that is being received, the run of the command that asked last (RX6).
    pub attempts: Mutex<BTreeMap<Uuid, Uuid>>,
    pub warnings: Warnings,
    pub autoextension: Autoextension,
    pub repairs: Repairs,
    /// `server/disk_timeout`, in seconds.
    pub disk_timeout: AtomicU64,
    /// What to do about a missing disk.
    pub disk_wait: Mutex<Option<DiskWait>>,
    /// Volumes whose writes wait for room.
    pub held: Held,
    /// The number of running checks.
    pub checks: AtomicU32,
    /// Which volumes may be activated, and how.
    pub lists: ListsInForce,
    /// A request to end the service.
    pub ending: Ending,
    /// Why the group is open read-only, if it is.
    pub read_only: String,
    /// Called at each step of a rename and of a join, for tests.
    pub reached: fn(&str),
    // Last, so that it is dropped last: everything above runs on it.
    pub platform: Platform,
}

/// A thin pool: a volume that names itself as its pool. It is a limit, never a device.
pub fn is_pool(volume: &VolumeInfo) -> bool {
    !volume.attributes.pool.is_empty() && volume.attributes.pool == volume.name
}

/// A valid snapshot that is activated with its origin.
pub fn follows_origin(volume: &VolumeInfo) -> bool {
    volume.origin.is_some() && volume.reserve.is_some()
}

impl Service {
    /// The service of an open group.
    pub fn new(name: &str, group: Arc<Group>, platform: Platform, settings: &Settings, lists: Lists) -> Service {
        let service = Service {
            name: name.to_owned(),
            group,
            change: Mutex::new(()),
            receiving: RwLock::new(()),
            wanted_move: Mutex::default(),
            attempts: Mutex::new(BTreeMap::new()),
            warnings: Warnings::new(settings),
            autoextension: Autoextension::new(settings),
            repairs: Repairs::new(settings),
            disk_timeout: AtomicU64::new(settings.disk_timeout),
            disk_wait: Mutex::default(),
            held: Held::default(),
            checks: AtomicU32::new(0),
            lists: ListsInForce::new(lists),
            ending: Ending::default(),
            read_only: String::new(),
            reached: |_| {},
            platform,
        };
        service.warnings.set_dropped(service.invalid_snapshots());
        service
    }

    /// Changes the settings.
    pub fn set_settings(&self, settings: &Settings, lists: Lists) {
        self.group.set_no_space_timeout(settings.no_space_timeout());
        self.group.set_discards(settings.discards());
        self.platform.devices.set_request_memory(settings.request_memory << 20);
        self.disk_timeout.store(settings.disk_timeout, Ordering::Relaxed);
        self.warnings.set_settings(settings);
        self.autoextension.set_settings(settings);
        self.repairs.set_settings(settings);
        self.lists.set_own(lists);
    }

    /// Runs a piece of asynchronous work to its end.
    pub fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.run_polling(work, &mut || {})
    }

    /// The same, with regular calls for its progress.
    pub fn run_polling<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        poll: &mut dyn FnMut(),
    ) -> T {
        let result = Arc::new(Mutex::new(None));
        let place = result.clone();
        let work = Box::pin(async move {
            let value = work.await;
            *place.lock() = Some(value);
        });
        self.platform.executor.complete_polling(work, poll);
        let value = result.lock().take();
        value.expect("an executor runs work to its end")
    }

    /// A line for the log.
    pub fn log(&self, line: &str) {
        self.platform.notes.log(line);
    }

    /// An event: writes a line to the log, and one to the group's events.
    pub fn event(&self, what: What, line: &str) {
        self.platform.notes.event(what, None, line);
    }

    /// Sets what the group waits for after it has lost a disk; none: nothing.
    pub fn wait_for_disk(&self, wait: Option<DiskWait>) {
        *self.disk_wait.lock() = wait;
    }

    /// Notifies the code that runs the service that it must end.
    pub(super) fn announce_end(&self) {
        self.platform.notes.ending();
    }

    /// A failure for an engine's error about the volume `name`, or about the group if `name` is empty.
    pub fn failure(&self, error: &Error, name: &str) -> Failure {
        self.in_context(|context| context.failure(error, name))
    }

    /// Calls `say` with the names of this group and its devices.
    pub fn in_context<T>(&self, say: impl FnOnce(&Context<'_>) -> T) -> T {
        let devices = |index| u16::try_from(index).ok().and_then(|index| self.platform.members.path(PvIndex(index)));
        let extent_blocks = self.group.info().extent_blocks;
        say(&Context { group: &self.name, extent_blocks, devices: &devices })
    }

    /// The same for a result.
    pub fn told<T>(&self, result: rowen_engine::error::Result<T>, name: &str) -> Result<T> {
        result.map_err(|error| self.failure(&error, name))
    }

    /// The volume called `name`.
    pub fn find(&self, name: &str) -> Result<VolumeInfo> {
        let found = self.group.find(name).filter(|_| !is_hidden(name));
        let id = found.ok_or_else(|| Failure::no_volume(&self.name, name))?;
        self.told(self.group.volume_info(id), name)
    }

    /// Refuses invalid names of volumes. Commands check, too, but names become paths, so the server does not trust its
    /// clients.
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

    pub fn set_attributes(&self, id: VolumeId, name: &str, attributes: Attributes) -> Result<()> {
        let group = self.group.clone();
        let done = self.run(async move { group.set_attributes(id, attributes).await });
        self.told(done, name)
    }

    /// The snapshots that are activated with `origin`.
    pub fn followers(&self, origin: VolumeId) -> impl Iterator<Item = VolumeInfo> {
        let found = self.group.snapshots_of(origin);
        found.into_iter().filter(follows_origin)
    }
}
