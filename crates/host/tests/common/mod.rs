//! What the export tests share: a volume kept in a file, so that it outlives a killed server, and a group of exports
//! that leaves nothing behind, however the test ends.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "this is test code")]

use rowen_engine::disk::PageBuf;
use rowen_engine::runtime::Runtime;
use rowen_host::export::{BoxFuture, Errno, Error, Exports, Target};
use rowen_host::reactor::Pool;
use rowen_host::{keeper, paths};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// A volume in a file. Answers some requests late, so that requests are under way and overtake each other.
pub struct FileTarget {
    pub id: u64,
    file: File,
    pub size: AtomicU64,
    sector: u32,
    pub read_only: AtomicBool,
    /// Writes from here on fail with this error number.
    pub fail_from: AtomicU64,
    pub fail_with: AtomicU32,
    /// Every so many requests, one is answered late; 0: none.
    late: u64,
    requests: AtomicU64,
    runtime: Arc<dyn Runtime>,
}

impl FileTarget {
    pub fn open(path: &Path, id: u64, size: u64, sector: u32, late: u64, runtime: Arc<dyn Runtime>) -> Arc<FileTarget> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        if file.metadata().unwrap().len() < size {
            file.set_len(size).unwrap();
        }
        Arc::new(FileTarget {
            id,
            file,
            size: AtomicU64::new(size),
            sector,
            read_only: AtomicBool::new(false),
            fail_from: AtomicU64::new(u64::MAX),
            fail_with: AtomicU32::new(0),
            late,
            requests: AtomicU64::new(0),
            runtime,
        })
    }

    async fn perhaps_late(&self) {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.late != 0 && n % self.late == 0 {
            self.runtime.sleep(Duration::from_micros(200 + n * 7919 % 1800)).await;
        }
    }

    fn check(&self, end: u64) -> Result<(), Errno> {
        if end > self.fail_from.load(Ordering::Relaxed) {
            Err(self.fail_with.load(Ordering::Relaxed) as i32)
        } else {
            Ok(())
        }
    }

    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: plain numbers and an open descriptor.
        match unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, len as i64) } {
            0 => Ok(()),
            _ => Err(libc::EIO),
        }
    }
}

fn errno(e: std::io::Error) -> Errno {
    e.raw_os_error().unwrap_or(libc::EIO)
}

impl Target for FileTarget {
    fn id(&self) -> u64 {
        self.id
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn sector(&self) -> u32 {
        self.sector
    }

    fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    fn read(&self, offset: u64, len: u32, mut buf: PageBuf) -> BoxFuture<'_, Result<PageBuf, Errno>> {
        Box::pin(async move {
            self.perhaps_late().await;
            self.file.read_exact_at(&mut buf.as_mut_slice()[..len as usize], offset).map_err(errno)?;
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.perhaps_late().await;
            self.check(offset + u64::from(len))?;
            self.file.write_all_at(&buf.as_slice()[..len as usize], offset).map_err(errno)
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.perhaps_late().await;
            Ok(())
        })
    }

    fn discard(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.perhaps_late().await;
            self.punch(offset, len)
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<(), Errno>> {
        self.discard(offset, len)
    }
}

/// The test server's program, which is also the keeper's and the helpers'. A run of chosen tests does not build it, and one that
/// was built earlier may be of other sources.
pub fn server_program() -> PathBuf {
    static BUILT: Once = Once::new();
    let mut directory = std::env::current_exe().unwrap();
    directory.pop();
    directory.pop();
    BUILT.call_once(|| {
        let target = directory.parent().unwrap().to_str().unwrap();
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        run(
            env!("CARGO"),
            // In the profile of the tests: what they need is compiled already.
            &[
                "build",
                "-q",
                "--profile",
                "test",
                "--manifest-path",
                manifest,
                "--example",
                "export_server",
                "--target-dir",
                target,
            ],
        );
    });
    directory.join("examples").join("export_server")
}

/// A group name that no other test uses.
pub fn group_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("rowentest{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Unmounts it. A child that another test is just starting may have what is open here for a moment.
pub fn unmount(point: &Path) {
    let point = point.to_str().unwrap();
    wait_for(&format!("{point} to be unmounted"), Duration::from_secs(20), || {
        output("umount", &[point]).status.success()
    });
}

/// Runs a command that must succeed, and returns what it printed.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = output(program, args);
    assert!(output.status.success(), "{program} {args:?} failed: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

pub fn output(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `condition` holds.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Loop devices bound to the group's files.
pub fn loops_of(group: &str) -> Vec<(rowen_host::export::loopdev::LoopDevice, PathBuf)> {
    rowen_host::export::loopdev::bound_in(&paths::group_dir(group).join("volumes"))
}

/// Process numbers of the group's keeper and servers.
pub fn processes_of(group: &str, role: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&b| b == 0).collect();
        words.get(1) == Some(&role.as_bytes()) && words.get(2) == Some(&group.as_bytes())
    })
    .collect()
}

pub fn kill(pid: i32, signal: i32) {
    // SAFETY: plain numbers.
    unsafe { libc::kill(pid, signal) };
}

/// Removes whatever a group's test left: for the end of a test that failed.
pub fn scrub(group: &str) {
    let mine = std::process::id() as i32;
    for role in ["keeper", "serve"] {
        for pid in processes_of(group, role).into_iter().filter(|&pid| pid != mine) {
            kill(pid, libc::SIGKILL);
        }
    }
    let volumes = paths::group_dir(group).join("volumes");
    for (device, _) in loops_of(group) {
        device.abandon();
    }
    for entry in fs::read_dir(&volumes).into_iter().flatten().flatten() {
        let _ = rustix::mount::unmount(entry.path(), rustix::mount::UnmountFlags::DETACH);
    }
    for (device, _) in loops_of(group) {
        device.abandon();
    }
    let _ = fs::remove_dir_all(paths::group_dir(group));
    let prefix = format!("{}-", group.replace('-', "--"));
    for entry in fs::read_dir("/dev/mapper").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir_all(Path::new("/dev").join(group));
    let _ = fs::remove_dir("/dev/mapper");
    let _ = fs::remove_dir("/run/rowen");
}

/// A group with exports in this process.
pub struct World {
    pub group: String,
    pub pool: Pool,
    pub exports: Option<Arc<Exports>>,
    /// Where volumes' files and mount points of the test are: memory.
    pub dir: PathBuf,
}

impl World {
    pub fn new() -> World {
        let group = group_name();
        let dir = Path::new("/dev/shm").join(&group);
        fs::create_dir_all(&dir).unwrap();
        // As a server's.
        let pool = Pool::start(2).unwrap();
        rowen_host::helper::use_program(&server_program());
        let keeper = keeper::Client::connect_or_start_by(&server_program(), &group).unwrap();
        let exports = Some(Arc::new(Exports::new(&group, &pool, keeper).unwrap()));
        World { group, pool, exports, dir }
    }

    pub fn exports(&self) -> Arc<Exports> {
        self.exports.clone().unwrap()
    }

    pub fn volume(&self, name: &str, size: u64, sector: u32) -> Arc<FileTarget> {
        let id = size ^ u64::from(sector);
        FileTarget::open(&self.dir.join(name), id, size, sector, 16, self.pool.runtime())
    }

    /// Runs an operation on the exports to its end.
    pub fn with<T: Send + 'static, F>(&self, work: impl FnOnce(Arc<Exports>) -> F) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.pool.block_on(work(self.exports()))
    }

    pub fn activate(&self, name: &str, target: Arc<FileTarget>) -> rowen_host::export::Node {
        let name = name.to_owned();
        self.with(|exports| async move {
            let read_only = target.read_only();
            exports.activate(&name, target, read_only).await.unwrap()
        })
    }

    pub fn deactivate(&self, name: &str) -> rowen_host::export::Result<()> {
        let name = name.to_owned();
        self.with(|exports| async move { exports.deactivate(&name).await })
    }

    pub fn mount_point(&self, name: &str) -> PathBuf {
        let point = self.dir.join(format!("mnt-{name}"));
        fs::create_dir_all(&point).unwrap();
        point
    }

    /// Ends the group as a server does, and finds nothing left.
    pub fn end(mut self) {
        let exports = self.exports.take().unwrap();
        self.pool.block_on(async move {
            for node in exports.active() {
                // A mount namespace that another test made may still have a copy of this one's mounts.
                let until = Instant::now() + Duration::from_secs(20);
                loop {
                    match exports.deactivate(&node.name).await {
                        Err(Error::InUse { .. }) if Instant::now() < until => {
                            std::thread::sleep(Duration::from_millis(50));
                        }
                        outcome => break outcome.unwrap(),
                    }
                }
            }
            exports.goodbye().await.unwrap();
        });
        assert_eq!(loops_of(&self.group), []);
        wait_for("the keeper to end", Duration::from_secs(5), || processes_of(&self.group, "keeper").is_empty());
        assert!(!Path::new("/dev").join(&self.group).exists());
        let volumes = paths::group_dir(&self.group).join("volumes");
        assert_eq!(fs::read_dir(volumes).unwrap().count(), 0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Whatever is still mounted goes first, so that its device can go.
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let _ = rustix::mount::unmount(entry.path(), rustix::mount::UnmountFlags::DETACH);
        }
        if let Some(exports) = self.exports.take() {
            self.pool.block_on(async move {
                for node in exports.active() {
                    // Best effort: the test has failed already.
                    let _ = exports.deactivate(&node.name).await;
                }
                let _ = exports.goodbye().await;
            });
        }
        scrub(&self.group);
        let _ = fs::remove_dir_all(&self.dir);
    }
}
