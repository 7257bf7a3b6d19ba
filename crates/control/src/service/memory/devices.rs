//! Devices that are but names with users.

use crate::protocol::{ErrorKind, IoCounts};
use crate::service::platform::{DeviceError, Devices, Done, HeldStill, Node, User};
use parking_lot::Mutex;
use rowen_engine::group::{Volume, VolumeInfo};
use rowen_engine::units::VolumeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Devices that are but names.
#[derive(Default)]
pub struct MemoryDevices {
    nodes: Mutex<BTreeMap<String, Node>>,
    users: Mutex<BTreeMap<String, User>>,
    /// Users go as soon as they were seen.
    passing: AtomicBool,
    made: Mutex<u32>,
    /// What fails from now on: the name of a call.
    failing: Mutex<Option<&'static str>>,
    /// Names that were held still, each time.
    held: Mutex<Vec<Vec<String>>>,
    /// How long it takes to make a device.
    slow: Mutex<Duration>,
    making: AtomicU32,
    /// Two were being made at the same moment.
    overlapped: AtomicBool,
    counted: Mutex<BTreeMap<VolumeId, IoCounts>>,
    request_memory: AtomicU64,
}

impl MemoryDevices {
    /// Somebody uses the volume's device from now on, or nobody.
    pub fn set_user(&self, name: &str, user: Option<User>) {
        let mut users = self.users.lock();
        match user {
            Some(user) => drop(users.insert(name.to_owned(), user)),
            None => drop(users.remove(name)),
        }
    }

    /// From now on, the user of a device goes as soon as it was seen.
    pub fn let_users_pass(&self) {
        self.passing.store(true, Ordering::SeqCst);
    }

    /// This call fails from now on.
    pub fn fail(&self, call: Option<&'static str>) {
        *self.failing.lock() = call;
    }

    /// What was held still, each time.
    pub fn held(&self) -> Vec<Vec<String>> {
        self.held.lock().clone()
    }

    /// To make a device takes so long from now on.
    pub fn be_slow(&self, time: Duration) {
        *self.slow.lock() = time;
    }

    /// Whether two devices were ever being made at the same moment.
    pub fn has_overlapped(&self) -> bool {
        self.overlapped.load(Ordering::SeqCst)
    }

    fn take_time(&self) {
        if self.making.fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlapped.store(true, Ordering::SeqCst);
        }
        let time = *self.slow.lock();
        std::thread::sleep(time);
        self.making.fetch_sub(1, Ordering::SeqCst);
    }

    /// So much was counted of a volume that is or was active.
    pub fn set_io(&self, volume: VolumeId, counts: IoCounts) {
        if let Some(known) = self.counted.lock().get_mut(&volume) {
            *known = counts;
        }
    }

    fn may(&self, call: &str) -> Done<()> {
        match *self.failing.lock() == Some(call) {
            true => Err(DeviceError { kind: ErrorKind::Io, user: None, why: format!("cannot {call}: planted") }),
            false => Ok(()),
        }
    }

    fn with<T>(&self, name: &str, change: impl FnOnce(&mut Node) -> T) -> Done<T> {
        let missing = || DeviceError { kind: ErrorKind::NotFound, user: None, why: format!("{name} is not active") };
        self.nodes.lock().get_mut(name).map(change).ok_or_else(missing)
    }
}

struct Nothing;

impl HeldStill for Nothing {
    fn thaw(self: Box<Self>) {}
}

impl Devices for MemoryDevices {
    fn active(&self) -> Vec<Node> {
        self.nodes.lock().values().cloned().collect()
    }

    fn find(&self, name: &str) -> Option<Node> {
        self.nodes.lock().get(name).cloned()
    }

    fn activate(&self, _volume: Arc<Volume>, info: &VolumeInfo, read_only: bool) -> Done<Node> {
        self.may("activate")?;
        self.take_time();
        let mut nodes = self.nodes.lock();
        if nodes.contains_key(&info.name) {
            let why = format!("{} is active already", info.name);
            return Err(DeviceError { kind: ErrorKind::Exists, user: None, why });
        }
        let mut made = self.made.lock();
        let node = Node { name: info.name.clone(), major: 7, minor: *made, read_only };
        *made += 1;
        nodes.insert(info.name.clone(), node.clone());
        self.counted.lock().entry(info.id).or_default();
        Ok(node)
    }

    fn deactivate(&self, name: &str, _unused: bool) -> Done<()> {
        self.may("deactivate")?;
        if let Some(user) = self.users.lock().get(name) {
            let why = format!("{name} is in use");
            return Err(DeviceError { kind: ErrorKind::InUse, user: Some(*user), why });
        }
        self.with(name, |_| ())?;
        self.nodes.lock().remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Done<()> {
        self.may("rename")?;
        let node = self.with(from, |node| Node { name: to.to_owned(), ..node.clone() })?;
        let mut nodes = self.nodes.lock();
        nodes.remove(from);
        nodes.insert(to.to_owned(), node);
        let mut users = self.users.lock();
        if let Some(user) = users.remove(from) {
            users.insert(to.to_owned(), user);
        }
        Ok(())
    }

    fn resized(&self, name: &str) -> Done<()> {
        self.with(name, |_| ())
    }

    fn set_read_only(&self, name: &str, read_only: bool) -> Done<()> {
        self.may("set_read_only")?;
        self.with(name, |node| node.read_only = read_only)
    }

    fn flush_cache(&self, name: &str) -> Done<()> {
        self.with(name, |_| ())
    }

    fn freeze(&self, names: &[String]) -> Done<Box<dyn HeldStill>> {
        self.may("freeze")?;
        self.held.lock().push(names.to_vec());
        Ok(Box::new(Nothing))
    }

    fn open(&self, nodes: &[Node]) -> Vec<bool> {
        let users = self.users.lock();
        nodes.iter().map(|node| users.contains_key(&node.name)).collect()
    }

    fn user(&self, node: &Node) -> Done<Option<User>> {
        Ok(self.users.lock().get(&node.name).copied())
    }

    fn lasting_user(&self, node: &Node) -> Done<Option<User>> {
        let user = self.user(node);
        if self.passing.load(Ordering::SeqCst) {
            self.set_user(&node.name, None);
        }
        user
    }

    fn claimant(&self, node: &Node) -> Done<Option<User>> {
        Ok(self.user(node)?.filter(|user| *user != User::Other))
    }

    fn io(&self) -> Vec<(VolumeId, IoCounts)> {
        self.counted.lock().iter().map(|(id, counts)| (*id, *counts)).collect()
    }

    fn request_memory(&self) -> (u64, u64) {
        (0, self.request_memory.load(Ordering::Relaxed))
    }

    fn set_request_memory(&self, bytes: u64) {
        self.request_memory.store(bytes, Ordering::Relaxed);
    }

    fn keep_io(&self, volumes: &BTreeSet<VolumeId>) {
        self.counted.lock().retain(|id, _| volumes.contains(id));
    }

    fn make_names_of(&self, _group: &str) -> Done<()> {
        self.may("make_names_of")
    }

    fn remove_names_of(&self, _group: &str) -> Done<()> {
        self.may("remove_names_of")
    }

    fn move_to(&self, _group: &str, _reached: fn(&str)) -> Done<()> {
        self.may("move_to")
    }
}
