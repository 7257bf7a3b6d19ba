//! A world in memory, for tests of the service and of the commands: disks that hold what is written to them, devices that
//! are but names with users, and notes that can be read again. Time is virtual and everything happens in one order.

use super::failure::{Failure, Result};
use super::state::Service;
use super::world::{
    Candidate, DeviceError, Devices, Done, Executor, HeldStill, Members, Node, Notes, RenamingNote, User, World,
};
use crate::lists::Lists;
use crate::protocol::ErrorKind;
use crate::settings::Settings;
use parking_lot::{Mutex, RwLock};
use rowen_engine::disk::{Completer, DiskError, DiskOp, DiskResult, Disks, PvGeometry, PvIndex, Segment};
use rowen_engine::error::Error;
use rowen_engine::group::{Config, Group, NewGroup, NewPv, Volume, VolumeInfo};
use rowen_engine::runtime::{Runtime, Task};
use rowen_engine::units::Uuid;
use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PAGE: u64 = 4096;

/// A disk.
struct Disk {
    path: PathBuf,
    size: u64,
    /// What was ever written, by page.
    pages: HashMap<u64, Box<[u8]>>,
}

/// The disks of a group. Each request is done on the spot.
#[derive(Default)]
pub struct MemoryDisks {
    disks: RwLock<Vec<Disk>>,
    /// Writes until the server dies: from then on nothing reaches the disks.
    left: Mutex<Option<u64>>,
}

impl MemoryDisks {
    fn push(&self, path: &Path, size: u64) {
        self.disks.write().push(Disk { path: path.to_owned(), size, pages: HashMap::new() });
    }

    /// Carries out `each` for every part of a page that the segment has: its page, where in it, where in the buffer.
    fn parts(segment: &Segment, mut each: impl FnMut(u64, std::ops::Range<usize>, usize)) {
        let (mut at, end, mut buffer) = (segment.offset, segment.offset + u64::from(segment.len), segment.at as usize);
        while at < end {
            let next = end.min((at / PAGE + 1) * PAGE);
            let begin = (at % PAGE) as usize;
            let len = (next - at) as usize;
            each(at / PAGE, begin..begin + len, buffer);
            buffer += len;
            at = next;
        }
    }

    /// Counts a write. False: the server is dead.
    fn lives(&self) -> bool {
        let mut left = self.left.lock();
        *left = left.map(|left| left.saturating_sub(1));
        *left != Some(0)
    }

    fn run(&self, op: DiskOp) -> DiskResult {
        let kind = op.kind();
        if matches!(op, DiskOp::Write { .. }) && !self.lives() {
            return Err(DiskError { op: kind, pv: PvIndex(0), offset: 0, errno: 5 });
        }
        let mut disks = self.disks.write();
        let beyond = |disks: &[Disk], segment: &Segment| {
            let end = segment.offset + u64::from(segment.len);
            let fits = disks.get(usize::from(segment.pv.0)).is_some_and(|disk| end <= disk.size);
            if fits { Ok(()) } else { Err(DiskError { op: kind, pv: segment.pv, offset: segment.offset, errno: 5 }) }
        };
        match op {
            DiskOp::Read { segments, mut buf } => {
                for segment in &segments {
                    beyond(&disks, segment)?;
                    let pages = &disks[usize::from(segment.pv.0)].pages;
                    Self::parts(segment, |page, within, at| {
                        let to = &mut buf.as_mut_slice()[at..at + within.len()];
                        match pages.get(&page) {
                            Some(bytes) => to.copy_from_slice(&bytes[within]),
                            None => to.fill(0),
                        }
                    });
                }
                return Ok(Some(buf));
            }
            DiskOp::Write { segments, buf } => {
                for segment in &segments {
                    beyond(&disks, segment)?;
                    let pages = &mut disks[usize::from(segment.pv.0)].pages;
                    Self::parts(segment, |page, within, at| {
                        let bytes = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into_boxed_slice());
                        let len = within.len();
                        bytes[within].copy_from_slice(&buf.as_slice()[at..at + len]);
                    });
                }
            }
            DiskOp::Flush | DiskOp::Discard { .. } => {}
        }
        Ok(None)
    }
}

impl Disks for MemoryDisks {
    fn count(&self) -> usize {
        self.disks.read().len()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        PvGeometry { size: self.disks.read()[usize::from(pv.0)].size, sector: 512 }
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        done.complete(self.run(op));
    }
}

/// A task, and whether it is queued.
struct Cell {
    task: Mutex<Option<Task>>,
    is_queued: AtomicBool,
    queue: Arc<Mutex<VecDeque<Arc<Cell>>>>,
}

impl Wake for Cell {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.queue.clone().lock().push_back(self);
        }
    }
}

/// Sleeping tasks, by the virtual microsecond at which they go on.
#[derive(Default)]
struct Clock {
    now: u64,
    order: u64,
    sleepers: BTreeMap<(u64, u64), Option<Waker>>,
}

/// Runs tasks one after the other. The clock moves when nothing else can.
#[derive(Default)]
pub struct OneByOne {
    queue: Arc<Mutex<VecDeque<Arc<Cell>>>>,
    clock: Arc<Mutex<Clock>>,
    turn: Mutex<()>,
}

struct Sleep {
    key: (u64, u64),
    clock: Arc<Mutex<Clock>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.clock.lock().sleepers.get_mut(&self.key) {
            None => Poll::Ready(()),
            Some(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&self.key);
    }
}

impl OneByOne {
    fn queued(&self, task: Task) -> Arc<Cell> {
        let cell = Arc::new(Cell {
            task: Mutex::new(Some(task)),
            is_queued: AtomicBool::new(false),
            queue: self.queue.clone(),
        });
        cell.clone().wake();
        cell
    }

    /// Lets one task go on. False: there is none, nor will there be.
    fn step(&self) -> bool {
        let next = self.queue.lock().pop_front();
        if let Some(cell) = next {
            cell.is_queued.store(false, Ordering::SeqCst);
            let task = cell.task.lock().take();
            if let Some(mut task) = task
                && task.as_mut().poll(&mut Context::from_waker(&Waker::from(cell.clone()))).is_pending()
            {
                *cell.task.lock() = Some(task);
            }
            return true;
        }
        let woken = {
            let mut clock = self.clock.lock();
            let Some((key, waker)) = clock.sleepers.pop_first() else { return false };
            clock.now = clock.now.max(key.0);
            waker
        };
        if let Some(waker) = woken {
            waker.wake();
        }
        true
    }
}

impl Runtime for OneByOne {
    fn spawn(&self, _name: &'static str, task: Task) {
        self.queued(task);
    }

    fn sleep(&self, pause: Duration) -> Task {
        let mut clock = self.clock.lock();
        clock.order += 1;
        let key = (clock.now + pause.as_micros() as u64, clock.order);
        clock.sleepers.insert(key, None);
        drop(clock);
        Box::pin(Sleep { key, clock: self.clock.clone() })
    }
}

impl Executor for OneByOne {
    fn complete(&self, work: Task) {
        let _turn = self.turn.lock();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        self.queued(Box::pin(async move {
            work.await;
            done.store(true, Ordering::SeqCst);
        }));
        while !is_done.load(Ordering::SeqCst) {
            assert!(self.step(), "the engine waits for what will not come");
        }
    }
}

/// Devices that are but names.
#[derive(Default)]
pub struct MemoryDevices {
    nodes: Mutex<BTreeMap<String, Node>>,
    users: Mutex<BTreeMap<String, User>>,
    made: Mutex<u32>,
    /// What fails from now on: the name of a call.
    failing: Mutex<Option<&'static str>>,
    /// Names that were held still, each time.
    held: Mutex<Vec<Vec<String>>>,
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

    /// This call fails from now on.
    pub fn fail(&self, call: Option<&'static str>) {
        *self.failing.lock() = call;
    }

    /// What was held still, each time.
    pub fn held(&self) -> Vec<Vec<String>> {
        self.held.lock().clone()
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
        let mut nodes = self.nodes.lock();
        if nodes.contains_key(&info.name) {
            let why = format!("{} is active already", info.name);
            return Err(DeviceError { kind: ErrorKind::Exists, user: None, why });
        }
        let mut made = self.made.lock();
        let node = Node { name: info.name.clone(), major: 7, minor: *made, read_only };
        *made += 1;
        nodes.insert(info.name.clone(), node.clone());
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
        self.user(node)
    }

    fn claimant(&self, node: &Node) -> Done<Option<User>> {
        Ok(self.user(node)?.filter(|user| *user != User::Other))
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

/// The disks of the group, and others that may join it.
pub struct MemoryMembers {
    disks: Arc<MemoryDisks>,
    outside: Mutex<BTreeMap<PathBuf, u64>>,
    groups: Mutex<Vec<String>>,
    made: AtomicU8,
}

impl MemoryMembers {
    /// A disk of no group.
    pub fn add_outside(&self, path: &str, size: u64) {
        self.outside.lock().insert(PathBuf::from(path), size);
    }

    /// Another group of this name.
    pub fn add_group(&self, name: &str) {
        self.groups.lock().push(name.to_owned());
    }
}

struct Joining {
    path: PathBuf,
    size: u64,
    uuid: Uuid,
    disks: Arc<MemoryDisks>,
}

impl Candidate for Joining {
    fn path(&self) -> &Path {
        &self.path
    }

    fn uuid(&self) -> Uuid {
        self.uuid
    }

    fn join(self: Box<Self>) -> Result<()> {
        self.disks.push(&self.path, self.size);
        Ok(())
    }
}

impl Members for MemoryMembers {
    fn path(&self, pv: PvIndex) -> Option<PathBuf> {
        self.disks.disks.read().get(usize::from(pv.0)).map(|disk| disk.path.clone())
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        one == other
    }

    fn rescan(&self, pv: PvIndex) -> Result<u64> {
        Ok(self.disks.geometry(pv).size)
    }

    fn lies_on_group(&self, _path: &Path) -> Result<bool> {
        Ok(false)
    }

    fn check(&self, path: &Path) -> Result<Box<dyn Candidate>> {
        let size = self.outside.lock().get(path).copied();
        let missing = || Failure::new(ErrorKind::NotFound, format!("No device found for {}.", path.display()));
        let uuid = Uuid([0x80 | self.made.fetch_add(1, Ordering::SeqCst); 16]);
        let (path, size) = (path.to_owned(), size.ok_or_else(missing)?);
        Ok(Box::new(Joining { path, size, uuid, disks: self.disks.clone() }))
    }

    fn pop(&self) {
        self.disks.disks.write().pop();
    }

    fn is_group(&self, name: &str) -> Result<bool> {
        Ok(self.groups.lock().iter().any(|group| group == name))
    }
}

/// Notes that can be read again.
#[derive(Default)]
pub struct MemoryNotes {
    /// Lines of the log.
    pub lines: Mutex<Vec<String>>,
    /// Commands after which metadata was archived.
    pub archived: Mutex<Vec<String>>,
    /// Programs that were run, with their words.
    pub programs: Mutex<Vec<Vec<String>>>,
    /// Where the physical volumes are.
    pub members: Mutex<Vec<PathBuf>>,
    /// How renames ended: true, all was done or undone.
    pub renames: Arc<Mutex<Vec<bool>>>,
}

struct Note(Arc<Mutex<Vec<bool>>>);

impl RenamingNote for Note {
    fn end(self: Box<Self>) {
        self.0.lock().push(true);
    }

    fn leave(self: Box<Self>) {
        self.0.lock().push(false);
    }
}

impl Notes for MemoryNotes {
    fn log(&self, line: &str) {
        self.lines.lock().push(line.to_owned());
    }

    fn changed(&self, command: &str) {
        self.archived.lock().push(command.to_owned());
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    fn run(&self, program: &str, words: Vec<String>) {
        self.programs.lock().push([program.to_owned()].into_iter().chain(words).collect());
    }

    fn members(&self, paths: &[PathBuf]) -> io::Result<()> {
        *self.members.lock() = paths.to_vec();
        Ok(())
    }

    fn joining(&self, _paths: &[PathBuf]) -> io::Result<Box<dyn Any>> {
        Ok(Box::new(()))
    }

    fn renaming(&self, _to: &str, _group: Uuid) -> io::Result<Box<dyn RenamingNote>> {
        Ok(Box::new(Note(self.renames.clone())))
    }

    fn ending(&self) {}
}

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
