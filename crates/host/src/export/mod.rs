//! Volumes as block devices.
//!
//! An active volume is a file of its own FUSE filesystem ([`fuse`]), a loop device on it ([`loopdev`]) and two names
//! under /dev ([`nodes`]). The group's keeper also holds the descriptor of the FUSE connection. So a server that takes
//! over finds the device unchanged, with its unanswered requests.
//!
//! * E1 The names of a volume exist exactly while it is active: they are made last and removed first.
//! * E2 Deactivation fails, and changes nothing, while anything uses the device.
//! * E3 After deactivation no request is in flight and nothing of the device is left.
//! * E4 The keeper has the descriptor before the loop device exists, and until after it is gone.
//!
//! Calls that make the kernel send requests to this process do not run on workers ([`blocking`]).

mod blocking;
mod debts;
mod devices;
mod dispatch;
pub(crate) mod ended;
pub(crate) mod error;
mod freeze;
pub mod fuse;
pub mod loopdev;
pub mod nodes;
mod openers;
mod openness;
mod remains;
mod takeover;
mod target;
pub mod usage;
mod written;

pub use blocking::blocking;
pub use devices::ExportedDevices;
pub use error::{Error, Result};
pub use freeze::FrozenGuard;
pub use remains::clear_remains;
pub use takeover::Takeover;
pub use target::{BoxFuture, Errno, Target, VolumeTarget, errno_of};

use crate::helper::hold::Held;
use crate::keeper::{self, Entry};
use crate::meter::Meter;
use crate::reactor::{Pool, readable};
use crate::{paths, planted, processes};
use dispatch::Dispatch;
use ended::Ended;
use error::Doing;
use fuse::Connection;
use fuse::budget::Budget;
use loopdev::LoopDevice;
use nodes::Nodes;
use openers::Numbers;
use openness::Openness;
use parking_lot::Mutex;
use remains::FROZEN;
use rowen_control::history::What;
use rowen_control::protocol::IoCounts;
use rowen_engine::runtime::Runtime;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use written::{Closed, NOT_NOTIFIED, Written, watch_nodes};

/// How long requests in flight may take to end after the last new request.
const DRAIN: Duration = Duration::from_secs(60);

/// An active volume's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The volume's name.
    pub name: String,
    /// `/dev/VG/LV`
    pub path: PathBuf,
    pub loop_number: u32,
    pub major: u32,
    pub minor: u32,
    /// Nobody can write to it, whatever the volume's permission.
    pub read_only: bool,
}

struct Export {
    entry: Entry,
    fd: Arc<OwnedFd>,
    connection: Arc<Connection>,
    ended: Arc<Ended>,
    device: LoopDevice,
    major: u32,
    minor: u32,
    read_only: bool,
}

/// The active volumes of one group.
pub struct Exports {
    inner: Arc<Inner>,
}

struct Inner {
    group: String,
    /// The group's directory: markers of frozen filesystems are here.
    run: PathBuf,
    /// Where the volumes' files are mounted.
    files: PathBuf,
    nodes: Nodes,
    /// None: the kernel's limit of watches is reached.
    written: Option<Arc<Written>>,
    memory: fuse::Memory,
    dispatch: Dispatch,
    runtime: Arc<dyn Runtime>,
    keeper: Mutex<keeper::Client>,
    /// How often another took a keeper's place.
    keepers: AtomicU64,
    /// The keeper is ended on purpose.
    leaving: AtomicBool,
    /// Whether the kernel repeats requests to a successor. False after it refused to.
    repeats: AtomicBool,
    openness: Openness,
    active: Mutex<BTreeMap<String, Export>>,
    /// The counters of volumes by number, also of those that are no longer active.
    meters: Mutex<BTreeMap<u64, Arc<Meter>>>,
    /// One change at a time.
    change: Mutex<()>,
}

impl Exports {
    /// The exports of `group`, served by the workers of `pool`, with nodes under /dev.
    pub fn new(group: &str, pool: &Pool, keeper: keeper::Client) -> Result<Exports> {
        Exports::with_dev(group, pool, keeper, Path::new("/dev"))
    }

    /// The same with another directory than /dev.
    pub fn with_dev(group: &str, pool: &Pool, keeper: keeper::Client, dev: &Path) -> Result<Exports> {
        let run = paths::group_dir(group);
        // As the kernel will show it: loop devices are identified by the path of their file.
        paths::make_private_dir(&run.join("volumes")).doing(|| format!("make {}", run.join("volumes").display()))?;
        let files =
            fs::canonicalize(run.join("volumes")).doing(|| format!("find {}", run.join("volumes").display()))?;
        let inner = Arc::new(Inner {
            group: group.into(),
            nodes: Nodes::new(dev, group, &files)?,
            written: watch_nodes(dev),
            run,
            files,
            memory: fuse::Memory::default(),
            dispatch: Dispatch::new(pool),
            runtime: pool.runtime(),
            keeper: Mutex::new(keeper),
            keepers: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            repeats: AtomicBool::new(true),
            openness: Openness::default(),
            active: Mutex::default(),
            meters: Mutex::default(),
            change: Mutex::new(()),
        });
        inner.watch_keeper()?;
        if let Some(written) = &inner.written {
            let exports = Arc::downgrade(&inner);
            let devices_of = move |closed: &Closed| Some(exports.upgrade()?.devices_of(closed));
            inner.dispatch.start(Box::pin(written::notify_of_writes(written.clone(), devices_of)));
        }
        Ok(Exports { inner })
    }

    async fn off_worker<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Inner>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        let change = move || {
            let _one_at_a_time = inner.change.lock();
            work(&inner)
        };
        blocking(change).await.doing(|| "start a thread".into())?
    }

    /// Makes the volume's device and its names. All is there when this returns, or nothing.
    pub async fn activate(&self, name: &str, target: Arc<dyn Target>, read_only: bool) -> Result<Node> {
        let name = name.to_owned();
        self.off_worker(move |inner| inner.activate(&name, target, read_only)).await
    }

    /// Removes the volume's device and its names; refused while anything uses it.
    pub async fn deactivate(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.off_worker(move |inner| inner.deactivate(&name, false)).await
    }

    /// The same for a device that was just found unused ([`open`](Self::open)), so that removing many devices needs one
    /// search of all processes. A device that was opened since stays.
    pub async fn deactivate_unused(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.off_worker(move |inner| inner.deactivate(&name, true)).await
    }

    /// Gives an active volume's device another name; it stays usable, also while it is open.
    pub async fn rename(&self, from: &str, to: &str) -> Result<Node> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.off_worker(move |inner| inner.rename(&from, &to)).await
    }

    /// Makes the names of all active volumes under `group`: this group's name (restores missing names), or its new name
    /// before a rename. All or none.
    pub async fn make_names_of(&self, group: &str) -> Result<()> {
        let group = group.to_owned();
        self.off_worker(move |inner| inner.make_names_of(&group)).await
    }

    /// Removes the names that [`make_names_of`](Self::make_names_of) made under another group's name.
    pub async fn remove_names_of(&self, group: &str) -> Result<()> {
        let group = group.to_owned();
        self.off_worker(move |inner| {
            let nodes = inner.nodes.of_group(&group)?;
            inner.active_names().iter().try_for_each(|name| nodes.remove(name))
        })
        .await
    }

    /// Renames the group to `group`: removes the old names, moves the run directory, and makes the keeper start servers
    /// of the new name. This process can only end afterwards. `reached` is called at each step.
    pub async fn move_to(&self, group: &str, reached: fn(&str)) -> Result<()> {
        let group = group.to_owned();
        self.off_worker(move |inner| inner.move_to(&group, reached)).await
    }

    /// The volume's size has changed: the device follows.
    pub async fn resized(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.off_worker(move |inner| inner.update_size(&name)).await
    }

    /// Makes an active volume's device read-only or writable.
    pub async fn set_read_only(&self, name: &str, read_only: bool) -> Result<()> {
        let name = name.to_owned();
        self.off_worker(move |inner| {
            inner.device(&name)?.set_read_only(read_only)?;
            inner.note_read_only(&name, read_only);
            Ok(())
        })
        .await
    }

    /// Writes out and drops the kernel's cache of the device: needed when its contents change below it.
    pub async fn flush_cache(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.off_worker(move |inner| inner.device(&name)?.flush_cache()).await
    }

    /// What uses the volume's device, in words; none: nothing.
    pub async fn in_use(&self, name: &str) -> Result<Option<String>> {
        let node = self.find(name).ok_or_else(|| Error::NotActive(name.into()))?;
        blocking(move || usage::in_use(node.major, node.minor)).await.doing(|| "start a thread".into())?
    }

    /// Which of these devices are mounted or open, with one search. It touches none of them.
    pub fn open(&self, devices: &[Numbers]) -> HashSet<Numbers> {
        self.inner.openness.in_use(devices)
    }

    /// Writes out the cached data of these volumes' devices, and freezes the filesystems on them until the guard is
    /// dropped. Inactive volumes are skipped.
    pub async fn freeze(&self, names: &[String]) -> Result<FrozenGuard> {
        let held = self.inner.held(names);
        // Not in turn with changes: writing out may take minutes.
        blocking(move || freeze::freeze(held)).await.doing(|| "start a thread".into())?
    }

    /// Takes over the devices that a predecessor left with the keeper, and removes those that cannot be taken over.
    /// `resolve` gives the volume and its current name for an entry (the number counts, the name may be older).
    pub async fn takeover(
        &self,
        resolve: impl Fn(&Entry) -> Option<(String, Arc<dyn Target>)> + Send + 'static,
    ) -> Result<Takeover> {
        self.off_worker(move |inner| inner.takeover(&resolve)).await
    }

    /// All active volumes, by name.
    pub fn active(&self) -> Vec<Node> {
        let active = self.inner.active.lock();
        active.iter().map(|(name, export)| self.inner.node(name, export)).collect()
    }

    /// An active volume's device.
    pub fn find(&self, name: &str) -> Option<Node> {
        self.inner.active.lock().get(name).map(|export| self.inner.node(name, export))
    }

    /// The memory of requests.
    pub fn memory(&self) -> &Budget {
        &self.inner.memory.budget
    }

    /// What was counted of each volume that this process served, by its number.
    pub fn io(&self) -> Vec<(u64, IoCounts)> {
        let meters: Vec<_> = self.inner.meters.lock().iter().map(|(id, meter)| (*id, meter.clone())).collect();
        meters.into_iter().map(|(id, meter)| (id, meter.counts())).collect()
    }

    /// The same of one that is active.
    pub fn io_of(&self, name: &str) -> Option<IoCounts> {
        self.inner.active.lock().get(name).map(|export| export.connection.counts())
    }

    /// Drops the counters of all volumes for whose number `keeps` is false.
    pub fn keep_io(&self, keeps: impl Fn(u64) -> bool) {
        self.inner.meters.lock().retain(|id, _| keeps(*id));
    }

    /// Whether a successor can take over the active volumes.
    pub fn can_be_taken_over(&self) -> bool {
        self.inner.repeats.load(Ordering::Relaxed) || self.inner.active.lock().is_empty()
    }

    /// Ends the keeper; no volume may be active. For a server that ends on purpose.
    pub async fn goodbye(&self) -> Result<()> {
        self.off_worker(|inner| {
            inner.leaving.store(true, Ordering::Release);
            inner.with_keeper(keeper::Client::send_bye).inspect_err(|_| inner.leaving.store(false, Ordering::Release))
        })
        .await
    }

    /// Tells the keeper, as the last act, that this process ends on purpose, and since when it has read no requests. So
    /// this end does not count as a death.
    pub async fn farewell(&self, since: Instant) -> Result<()> {
        self.off_worker(move |inner| {
            inner.leaving.store(true, Ordering::Release);
            inner.with_keeper(|keeper| keeper.send_hand_over(Some(since), false))
        })
        .await
    }

    /// Answers no request any more, not even one that is being answered: for a process that ends as if it were killed.
    pub fn fall_silent(&self) -> io::Result<()> {
        // No other keeper gets what is left.
        self.inner.leaving.store(true, Ordering::Release);
        processes::replace_by_null(&processes::descriptors(|name| name == "/dev/fuse"))
    }

    /// The farewell of a process that has fallen silent, and may hang in its end.
    pub fn farewell_of_hung(&self, since: Instant) -> io::Result<()> {
        self.inner.keeper.lock().send_hand_over(Some(since), true)
    }

    /// Stops reading on all connections. From here on, a write that ends because the group closes is left to the
    /// successor.
    pub fn stop_reading(&self) {
        self.inner.active.lock().values().for_each(|export| export.connection.stop());
    }

    /// Answers the requests in flight and reads no more: later requests wait for the server that the keeper starts when
    /// this process ends. For a server that ends while devices are in use.
    pub async fn hand_over(&self) -> Result<()> {
        self.off_worker(Inner::stop_all).await
    }
}

impl Inner {
    fn node(&self, name: &str, export: &Export) -> Node {
        Node {
            name: name.into(),
            path: self.nodes.path(name),
            loop_number: export.device.number,
            major: export.major,
            minor: export.minor,
            read_only: export.read_only,
        }
    }

    fn device(&self, name: &str) -> Result<LoopDevice> {
        self.active.lock().get(name).map(|export| export.device).ok_or_else(|| Error::NotActive(name.into()))
    }

    fn update_size(&self, name: &str) -> Result<()> {
        let export = self.active.lock().get(name).map(|export| (export.fd.clone(), export.device));
        let (fd, device) = export.ok_or_else(|| Error::NotActive(name.into()))?;
        fuse::mount::forget_attributes(&fd).doing(|| format!("change the size of {}/{name}", self.group))?;
        device.update_size()
    }

    fn note_read_only(&self, name: &str, read_only: bool) {
        if let Some(export) = self.active.lock().get_mut(name) {
            export.read_only = read_only;
        }
    }

    fn activate(&self, name: &str, target: Arc<dyn Target>, read_only: bool) -> Result<Node> {
        self.nodes.check_free(name)?;
        if self.active.lock().contains_key(name) {
            return Err(Error::Active(name.into()));
        }
        let keepers = self.keepers.load(Ordering::Acquire);
        let file = self.new_file(name, if target.is_copy() { nodes::COPY } else { "" })?;
        let mounted = fuse::mount::mount(&self.files.join(&file)).inspect_err(|_| self.remove_file(&file))?;
        if !mounted.resend {
            self.repeats.store(false, Ordering::Relaxed);
        }
        let entry = Entry { file, id: target.id(), name: name.into(), loop_number: None };
        let fd = Arc::new(mounted.fd);
        let (connection, ended) = self.serve(fd.clone(), target.clone());
        let device = self.attach(&entry, &fd, &*target, read_only);
        let made = device.and_then(|device| {
            let (major, minor) = device.numbers()?;
            let entry = Entry { loop_number: Some(device.number), ..entry.clone() };
            self.with_keeper(|keeper| keeper.hold(&entry, fd.as_fd()))
                .and_then(|()| self.make_names(name, device))
                .inspect_err(|_| device.abandon())?;
            Ok(Export { entry, fd: fd.clone(), connection, ended: ended.clone(), device, major, minor, read_only })
        });
        match made {
            Ok(export) => {
                let node = self.node(name, &export);
                self.active.lock().insert(name.into(), export);
                // K1: another keeper has not been given this one.
                if keepers != self.keepers.load(Ordering::Acquire)
                    && let Err(e) = self.hold_again(name)
                {
                    crate::journal::warn(format_args!("the keeper does not have {}/{name}: {e}", self.group));
                }
                Ok(node)
            }
            Err(e) => {
                // A helper that was killed may have attached a device.
                let file = self.files.join(&entry.file);
                let bound = loopdev::bound_in(&self.files).into_iter().filter(|(_, path)| *path == file);
                loopdev::abandon(&bound.map(|(device, _)| device).collect::<Vec<_>>());
                // The first error is the one to report.
                let _ = self.take_down(&entry.file, &ended);
                Err(e)
            }
        }
    }

    /// Makes the volume's names for its device, and watches them.
    fn make_names(&self, name: &str, device: LoopDevice) -> Result<()> {
        self.nodes.make(name, device)?;
        if let Some(Err(e)) = self.written.as_ref().map(|written| written.watch()) {
            crate::journal::warn(format_args!("{NOT_NOTIFIED}: {e}"));
        }
        Ok(())
    }

    fn attach(&self, entry: &Entry, fd: &OwnedFd, target: &dyn Target, read_only: bool) -> Result<LoopDevice> {
        if !planted::is("held_late") {
            self.with_keeper(|keeper| keeper.hold(entry, fd.as_fd()))?;
        }
        LoopDevice::attach(&self.files.join(&entry.file), target.sector(), read_only)
    }

    /// Starts serving on a worker.
    fn serve(&self, fd: Arc<OwnedFd>, target: Arc<dyn Target>) -> (Arc<Connection>, Arc<Ended>) {
        let meter = self.meters.lock().entry(target.id()).or_insert_with(|| Arc::new(Meter::for_one_thread())).clone();
        let connection = Connection::new(fd, target, &self.memory, meter);
        let ended = Arc::new(Ended::default());
        let (serving, runtime, end) = (connection.clone(), self.runtime.clone(), ended.clone());
        self.dispatch.start(Box::pin(async move {
            if let Err(e) = serving.serve(runtime).await {
                crate::journal::warn(format_args!("a volume's connection to the kernel failed: {e}"));
            }
            end.set();
        }));
        (connection, ended)
    }

    /// A new file to mount on. Names of volumes cannot hold an `@`, so that the number after it keeps them apart.
    fn new_file(&self, name: &str, kind: &str) -> Result<String> {
        for number in 1.. {
            let file = format!("{name}@{number}{kind}");
            let path = self.files.join(&file);
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(file),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).doing(|| format!("make {}", path.display())),
            }
        }
        unreachable!("there are more numbers than files")
    }

    fn remove_file(&self, file: &str) {
        // If it is left over, the next takeover removes it.
        let _ = fs::remove_file(self.files.join(file));
    }

    /// Unmounts and forgets a file whose loop device is gone.
    fn take_down(&self, file: &str, ended: &Ended) -> Result<()> {
        fuse::mount::unmount(&self.files.join(file))?;
        let drained = ended.wait(DRAIN);
        self.with_keeper(|keeper| keeper.release(file))?;
        if !planted::is("file_stays") {
            self.remove_file(file);
        }
        if drained {
            return Ok(());
        }
        let source =
            io::Error::new(io::ErrorKind::TimedOut, format!("some were not answered in {} s", DRAIN.as_secs()));
        Err(Error::System { doing: format!("finish the requests to {file}"), source })
    }

    /// `unused`: the caller has just found that the device is not open.
    fn deactivate(&self, name: &str, unused: bool) -> Result<()> {
        let (device, major, minor, file) = {
            let active = self.active.lock();
            let export = active.get(name).ok_or_else(|| Error::NotActive(name.into()))?;
            (export.device, export.major, export.minor, export.entry.file.clone())
        };
        let user = if unused { usage::claimed_by(major, minor)? } else { usage::in_lasting_use(major, minor)? };
        if let Some(user) = user.filter(|_| !planted::is("no_look_at_users")) {
            return Err(Error::InUse { device: format!("{}/{name}", self.group), user });
        }
        if !planted::is("names_stay") {
            self.nodes.remove(name)?;
        }
        if planted::is("released_early") {
            self.with_keeper(|keeper| keeper.release(&file))?;
        }
        // A helper that was killed may have detached it.
        let is_attached = || device.backing() == Some(self.files.join(&file));
        let detached = if planted::is("no_look_at_users") { Ok(()) } else { device.detach() };
        if let Err(e) = detached
            && is_attached()
        {
            // The device was opened meanwhile: the volume stays active, with its names.
            self.make_names(name, device)?;
            return Err(e);
        }
        let Some(export) = self.active.lock().remove(name) else { return Err(Error::NotActive(name.into())) };
        self.take_down(&export.entry.file, &export.ended)
    }

    fn rename(&self, from: &str, to: &str) -> Result<Node> {
        self.nodes.check_free(to)?;
        // Names that cannot go are found before there are others.
        self.nodes.check_free(from)?;
        if self.active.lock().contains_key(to) {
            return Err(Error::Active(to.into()));
        }
        let device = self.device(from)?;
        self.make_names(to, device)?;
        self.nodes.remove(from)?;
        let node = {
            let mut active = self.active.lock();
            let Some(mut export) = active.remove(from) else { return Err(Error::NotActive(from.into())) };
            export.entry.name = to.into();
            let node = self.node(to, &export);
            active.insert(to.into(), export);
            node
        };
        // A successor finds the volume by its number, and then updates the keeper.
        if let Err(e) = self.hold_again(to) {
            crate::journal::warn(format_args!("{}/{to} has its new name, but {e}", self.group));
        }
        Ok(node)
    }

    fn active_names(&self) -> Vec<String> {
        self.active.lock().keys().cloned().collect()
    }

    fn make_names_of(&self, group: &str) -> Result<()> {
        let nodes = self.nodes.of_group(group)?;
        let devices: Vec<(String, LoopDevice)> =
            self.active.lock().iter().map(|(name, export)| (name.clone(), export.device)).collect();
        devices.iter().try_for_each(|(name, _)| nodes.check_free(name))?;
        for (position, (name, device)) in devices.iter().enumerate() {
            if let Err(e) = nodes.make(name, *device) {
                if group != self.group {
                    // The first error is the one to report.
                    devices[..position].iter().for_each(|(name, _)| drop(nodes.remove(name)));
                }
                return Err(e);
            }
        }
        Ok(())
    }

    fn move_to(&self, group: &str, reached: fn(&str)) -> Result<()> {
        self.active_names().iter().try_for_each(|name| self.nodes.remove(name))?;
        reached("names removed");
        paths::rename_group_dir(&self.group, group).doing(|| format!("rename {}", self.run.display()))?;
        reached("directory moved");
        self.with_keeper(|keeper| keeper.rename(group))
    }

    /// Tells the keeper what is known of the volume now.
    fn hold_again(&self, name: &str) -> Result<()> {
        let known = self.active.lock().get(name).map(|export| (export.entry.clone(), export.fd.clone()));
        match known {
            Some((entry, fd)) => self.with_keeper(|keeper| keeper.hold(&entry, fd.as_fd())),
            None => Err(Error::NotActive(name.into())),
        }
    }

    fn held(&self, names: &[String]) -> Vec<Held> {
        let active = self.active.lock();
        let known = names.iter().filter_map(|name| active.get(name));
        let held = known.map(|export| Held {
            number: export.device.number,
            major: export.major,
            minor: export.minor,
            marker: self.run.join(format!("{FROZEN}{}", export.device.number)),
        });
        let mut held: Vec<Held> = held.collect();
        // Helpers wait for each other's locks: in one order.
        held.sort_by_key(|held| held.number);
        held.dedup_by_key(|held| held.number);
        held
    }

    fn stop_all(self: &Arc<Self>) -> Result<()> {
        let serving: Vec<_> = {
            let active = self.active.lock();
            // The successor may be an older program, which does not notify the kernel of a new size.
            active.values().for_each(|export| drop(fuse::mount::forget_attributes(&export.fd)));
            active.values().map(|export| (export.connection.clone(), export.ended.clone())).collect()
        };
        for (connection, _) in &serving {
            connection.stop();
        }
        let deadline = Instant::now() + DRAIN;
        for (_, ended) in &serving {
            if !ended.wait(deadline.saturating_duration_since(Instant::now())) {
                let source = io::Error::new(io::ErrorKind::TimedOut, "some requests were not answered in time");
                return Err(Error::System { doing: "finish the requests under way".into(), source });
            }
        }
        Ok(())
    }

    /// Sends a request to the keeper. If the keeper is gone, starts another one first, and gives it everything.
    fn with_keeper<T>(&self, ask: impl Fn(&keeper::Client) -> io::Result<T>) -> Result<T> {
        let mut keeper = self.keeper.lock();
        let answer = match ask(&keeper) {
            Err(e) if keeper::is_absent(&e) => self.replace_keeper(&mut keeper).and_then(|()| ask(&keeper)),
            answer => answer,
        };
        answer.map_err(|e| Error::Keeper(e.to_string()))
    }

    fn replace_keeper(&self, keeper: &mut keeper::Client) -> io::Result<()> {
        *keeper = keeper.reconnect()?;
        self.keepers.fetch_add(1, Ordering::AcqRel);
        for export in self.active.lock().values() {
            keeper.hold(&export.entry, export.fd.as_fd())?;
        }
        Ok(())
    }

    /// Replaces the keeper as soon as it is gone, while the exports exist.
    fn watch_keeper(self: &Arc<Self>) -> Result<()> {
        let watch = self.with_keeper(keeper::Client::watch)?;
        self.dispatch.start(Box::pin(watch_keeper(Arc::downgrade(self), watch)));
        Ok(())
    }

    fn devices_of(&self, closed: &Closed) -> Vec<LoopDevice> {
        let active = self.active.lock();
        match closed {
            Closed::Any => active.values().map(|export| export.device).collect(),
            Closed::Named(nodes) => {
                let volumes = nodes.iter().filter_map(|node| nodes::volume_of(&self.group, node));
                volumes.filter_map(|volume| Some(active.get(&volume)?.device)).collect()
            }
        }
    }

    /// Makes sure that a keeper runs, and returns a descriptor that becomes readable when it ends.
    fn revive_keeper(&self) -> Result<OwnedFd> {
        self.with_keeper(keeper::Client::send_serve)?;
        self.with_keeper(keeper::Client::watch)
    }
}

async fn watch_keeper(exports: Weak<Inner>, mut watch: OwnedFd) {
    loop {
        if readable(watch.as_raw_fd()).await.is_err() {
            return;
        }
        let Some(inner) = exports.upgrade().filter(|inner| !inner.leaving.load(Ordering::Acquire)) else { return };
        let group = inner.group.clone();
        let revived = blocking(move || inner.revive_keeper()).await;
        match revived.doing(|| "start a thread".into()) {
            Ok(Ok(new)) => {
                watch = new;
                let what = format!("the keeper of volume group \"{group}\" died; another holds its devices");
                crate::journal::happened(What::KeeperDied, &what);
            }
            Ok(Err(e)) | Err(e) => {
                let what = format!(
                    "the keeper of volume group \"{group}\" died, and there is no other: {e}. If this server dies, devices in \
                     use fail"
                );
                crate::journal::happened(What::KeeperDied, &what);
                return;
            }
        }
    }
}
