//! A world in memory, for tests of the service: disks that hold what is written to them, devices that are but names with
//! users, and notes that can be read again. Time is virtual and everything happens in one order.

mod devices;
mod disks;
mod executor;
mod members;
mod notes;

use super::state::Service;
use super::world::{Executor, World};
use crate::lists::Lists;
use crate::settings::Settings;
use devices::MemoryDevices;
use disks::MemoryDisks;
use executor::OneByOne;
use members::MemoryMembers;
use notes::MemoryNotes;
use parking_lot::Mutex;
use rowen_engine::error::Error;
use rowen_engine::group::{Config, Group, NewGroup, NewPv};
use rowen_engine::units::Uuid;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// A service and the world under it.
pub struct Memory {
    pub service: Service,
    pub devices: Arc<MemoryDevices>,
    pub members: Arc<MemoryMembers>,
    pub notes: Arc<MemoryNotes>,
    disks: Arc<MemoryDisks>,
    settings: Settings,
}

impl Memory {
    /// A new group over disks of these paths and sizes, and its service.
    pub fn create(name: &str, disks: &[(&str, u64)], settings: Settings) -> std::result::Result<Memory, Error> {
        let set = Arc::new(MemoryDisks::default());
        disks.iter().for_each(|(path, size)| set.push(Path::new(path), *size));
        let pvs = (0..disks.len()).map(|index| NewPv { uuid: Uuid([0x40 | index as u8; 16]) }).collect();
        let spec = NewGroup { uuid: Uuid([0x20; 16]), name: name.to_owned(), extent_blocks: 1024, pvs };
        let executor = Arc::new(OneByOne::default());
        run(&executor, Group::create(set.clone(), spec))?;
        Memory::open(set, executor, settings)
    }

    fn open(
        disks: Arc<MemoryDisks>,
        executor: Arc<OneByOne>,
        settings: Settings,
    ) -> std::result::Result<Memory, Error> {
        let group = run(&executor, Group::open(disks.clone(), executor.clone(), Config::default()))?;
        let name = group.info().name;
        let devices = Arc::new(MemoryDevices::default());
        let members = MemoryMembers {
            disks: disks.clone(),
            outside: Mutex::default(),
            groups: Mutex::new(vec![name.clone()]),
            made: AtomicU8::default(),
        };
        let (members, notes) = (Arc::new(members), Arc::new(MemoryNotes::default()));
        let world = World { devices: devices.clone(), members: members.clone(), notes: notes.clone(), executor };
        let service = Service::new(&name, group, world, &settings, Lists::default());
        Ok(Memory { service, devices, members, notes, disks, settings })
    }

    /// The server dies when it writes to the disks for the `count`th time from now on.
    pub fn die_at(&self, count: u64) {
        *self.disks.left.lock() = Some(count);
    }

    /// Whether it has.
    pub fn is_dead(&self) -> bool {
        *self.disks.left.lock() == Some(0)
    }

    /// The server is killed and another one opens the group: the devices are gone, the disks are as they are.
    pub fn killed(self) -> std::result::Result<Memory, Error> {
        let (disks, settings) = (self.disks.clone(), self.settings.clone());
        drop(self);
        *disks.left.lock() = None;
        Memory::open(disks, Arc::default(), settings)
    }
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
