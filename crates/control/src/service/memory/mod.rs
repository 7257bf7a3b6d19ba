//! A platform in memory: disks that hold what is written to them, devices that are but names with users, and notes that can be
//! read again. Time is virtual and everything happens in one order. The tests of the service and of the commands run on it.

mod devices;
mod disks;
mod executor;
mod members;
mod notes;

use super::platform::{Executor, Faults, Platform};
use super::state::Service;
use crate::lists::Lists;
use crate::protocol::IoCounts;
use crate::settings::Settings;
pub use devices::MemoryDevices;
pub use disks::Cut;
use disks::MemoryDisks;
use executor::OneByOne;
pub use members::{MemoryMembers, Outside};
pub use notes::{MemoryNotes, NOW};
use parking_lot::Mutex;
use rowen_engine::disk::{Disks, PageBuf, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Config, Group, NewGroup};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

type Result<T> = std::result::Result<T, Error>;

/// What a group is called that went on without a disk.
const LINEAGE: u64 = 7;

/// A service and the platform below it.
pub struct Memory {
    pub service: Service,
    pub devices: Arc<MemoryDevices>,
    pub members: Arc<MemoryMembers>,
    pub notes: Arc<MemoryNotes>,
    disks: Arc<MemoryDisks>,
    executor: Arc<OneByOne>,
    settings: Settings,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.executor.end();
    }
}

impl Memory {
    /// A new group over disks of these paths and sizes (bytes), and its service.
    pub fn create(group: NewGroup, disks: &[(&str, u64)], settings: Settings) -> Result<Memory> {
        let set = Arc::new(MemoryDisks::default());
        disks.iter().for_each(|(path, size)| set.push(Path::new(path), *size));
        let executor = Arc::new(OneByOne::default());
        run(&executor, Group::create(set.clone(), group))?;
        Memory::open(set, Arc::default(), executor, settings)
    }

    /// The server is killed, the disk at this place is lost, and another server opens the group without it, as the administrator
    /// wants.
    pub fn without(self, pv: PvIndex) -> Result<Memory> {
        let (disks, settings) = (self.disks.clone(), self.settings.clone());
        drop(self);
        disks.go(pv);
        let executor: Arc<OneByOne> = Arc::default();
        let (set, runtime) = (disks.clone(), executor.clone());
        let group = run(&executor, Group::open_without(set, runtime, Config::default(), LINEAGE))?;
        Ok(Memory::serving(group, disks, Arc::default(), executor, settings))
    }

    fn open(
        disks: Arc<MemoryDisks>,
        devices: Arc<MemoryDevices>,
        executor: Arc<OneByOne>,
        settings: Settings,
    ) -> Result<Memory> {
        disks.keep(&members(&executor, &disks));
        let group = run(&executor, Group::open(disks.clone(), executor.clone(), Config::default()))?;
        Ok(Memory::serving(group, disks, devices, executor, settings))
    }

    fn serving(
        group: Arc<Group>,
        disks: Arc<MemoryDisks>,
        devices: Arc<MemoryDevices>,
        executor: Arc<OneByOne>,
        settings: Settings,
    ) -> Memory {
        let name = group.info().name;
        let groups = Mutex::new(vec![name.clone()]);
        let members =
            MemoryMembers { disks: disks.clone(), outside: Mutex::default(), groups, new_failures: Mutex::default() };
        let (members, notes) = (Arc::new(members), Arc::new(MemoryNotes::default()));
        let platform = Platform {
            devices: devices.clone(),
            members: members.clone(),
            notes: notes.clone(),
            executor: executor.clone(),
        };
        let service = Service::new(&name, group, platform, &settings, Lists::default());
        Memory { service, devices, members, notes, disks, executor, settings }
    }

    /// The server dies when it writes to the disks for the `count`th time from now on.
    pub fn die_at(&self, count: u64) {
        *self.disks.left.lock() = Some(count);
    }

    /// The disks lose a bit of each block with these contents, and report no error.
    pub fn rot(&self, block: &[u8]) {
        self.disks.rot(block);
    }

    /// Flushes are acknowledged and do nothing from now on.
    pub fn lie(&self) {
        self.disks.lies.store(true, Ordering::SeqCst);
    }

    /// So much was counted of the disks, in order.
    pub fn set_disk_io(&self, counts: &[IoCounts]) {
        *self.disks.counted.lock() = counts.to_vec();
    }

    /// The disks are said to have behaved so, in order.
    pub fn set_faults(&self, faults: &[Faults]) {
        *self.disks.faults.lock() = faults.to_vec();
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        !self.disks.is_alive()
    }

    /// The server is killed and another one opens the group: the devices are gone, the disks are as they are.
    pub fn killed(self) -> Result<Memory> {
        self.opened_again(None)
    }

    /// The power fails, and a server opens the group: the devices are gone, and so is what `cut` takes of the disks.
    pub fn cut(self, cut: Cut) -> Result<Memory> {
        self.opened_again(Some(cut))
    }

    fn opened_again(self, cut: Option<Cut>) -> Result<Memory> {
        let (disks, settings, notes) = (self.disks.clone(), self.settings.clone(), self.notes.clone());
        drop(self);
        *disks.left.lock() = None;
        // What a server notes for its successor outlives no boot.
        let is_killed = cut.is_none();
        cut.into_iter().for_each(|cut| disks.cut(cut));
        let next = Memory::open(disks, Arc::default(), Arc::default(), settings)?;
        if is_killed {
            next.notes.take_up(&notes);
        }
        Ok(next)
    }

    /// The next server, after this one was asked to end: the devices stay. None: the group was removed.
    pub fn successor(self) -> Result<Option<Memory>> {
        let service = &self.service;
        if service.ending.is_destroyed() {
            return Ok(None);
        }
        let group = service.group.clone();
        match service.ending.leaving() {
            Some(pv) => service.close_without(pv).expect("a physical volume that was vacated leaves"),
            None => service.run(async move { group.close().await })?,
        }
        let (disks, devices, settings) = (self.disks.clone(), self.devices.clone(), self.settings.clone());
        let notes = self.notes.clone();
        drop(self);
        let next = Memory::open(disks, devices, Arc::default(), settings)?;
        next.notes.take_up(&notes);
        assert!(next.service.restore_nodes(true).is_empty(), "a successor has the nodes");
        Ok(Some(next))
    }

    /// Time passes, in which the group does what it does in the background.
    pub fn pass(&self, time: Duration) {
        self.executor.pass(time);
    }

    /// Writes the first `blocks` blocks of a volume.
    pub fn write(&self, volume: &str, blocks: u64) -> Result<()> {
        const PART: u64 = 256;
        let id = self.service.group.find(volume).ok_or_else(|| Error::NotFound(volume.to_owned()))?;
        let volume = self.service.group.volume(id)?;
        self.service.run(async move {
            for first in (0..blocks).step_by(PART as usize) {
                let bytes = (PART.min(blocks - first) * BLOCK_SIZE) as u32;
                let data = Arc::new(PageBuf::zeroed(bytes as usize));
                volume.write(first * BLOCK_SIZE, bytes, data).await?;
            }
            Ok(())
        })
    }
}

/// The members of the group, in order: those that the newest label names, as a host finds them. Others are left over from a joining
/// or a leaving that did not come to its end.
fn members(executor: &OneByOne, disks: &Arc<MemoryDisks>) -> Vec<usize> {
    let mut labels = Vec::new();
    for index in 0..disks.count() {
        let disks = disks.clone();
        let pv = PvIndex(u16::try_from(index).expect("few disks"));
        labels.push(run(executor, async move { Group::read_label(&*disks, pv).await }).ok().flatten());
    }
    let memberships = labels.iter().flatten().filter_map(|label| label.group.as_ref());
    let newest = memberships.max_by_key(|membership| membership.sequence);
    let has = |uuid: &Uuid| labels.iter().position(|label| label.as_ref().is_some_and(|label| label.pv_uuid == *uuid));
    newest.into_iter().flat_map(|membership| membership.members.iter().filter_map(has)).collect()
}

/// Runs a future of the engine to its end.
fn run<T: Send + 'static>(executor: &OneByOne, future: impl Future<Output = T> + Send + 'static) -> T {
    let result = Arc::new(Mutex::new(None));
    let place = result.clone();
    executor.complete(Box::pin(async move {
        let value = future.await;
        *place.lock() = Some(value);
    }));
    let value = result.lock().take();
    value.expect("work is run to its end")
}
