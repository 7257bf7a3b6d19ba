//! A world for servers: directories, files that are physical volumes, groups, and the end of it all.

use rowen_control::protocol::{
    Attributes, ErrorKind, FullPolicy, GroupReport, Outcome, PvPart, Request, SegmentType, SnapshotSpec, StatusReport,
    VolumeKind, VolumeSpec,
};
use rowen_control::uuids;
use rowen_host::devices::{self, Consent};
use rowen_host::{paths, server};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
/// Blocks in a MiB.
pub const MIB_BLOCKS: u64 = 256;

/// The directory of a world. Dropped, it ends everything that still lives in it.
pub struct World {
    pub dir: PathBuf,
}

impl World {
    pub fn make() -> World {
        let dir = std::env::temp_dir().join(format!("rowen-server-test-{}", std::process::id()));
        for part in ["etc", "run", "pv"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        World { dir }
    }

    /// Processes that were started in this world. The keeper goes before the server that it would start again.
    fn processes(&self) -> Vec<i32> {
        let mark = format!("ROWEN_RUN_DIR={}", self.dir.join("run").display());
        let pids =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let mut ours: Vec<i32> = pids.filter(is_ours).collect();
        let is_keeper =
            |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| contains(&line, b"keeper"));
        ours.sort_by_key(|pid| !is_keeper(pid));
        ours
    }

    fn lines_with_world(&self, file: &str) -> Vec<String> {
        let inside = self.dir.display().to_string();
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().filter(|line| line.contains(&inside)).map(str::to_owned).collect()
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl Drop for World {
    fn drop(&mut self) {
        // Mounts of filesystems in this world first, while somebody still serves the devices under them.
        for line in self.lines_with_world("/proc/self/mounts") {
            let point = line.split(' ').nth(1).unwrap_or_default();
            if point.contains("/mnt-") {
                drop(Command::new("umount").arg("-l").arg(point).status());
            }
        }
        // A keeper starts a server, and a server a keeper: first they stop, then they end, and then one looks once more.
        for _ in 0..50 {
            let pids = self.processes();
            for signal in [rustix::process::Signal::STOP, rustix::process::Signal::KILL] {
                pids.iter().for_each(|pid| kill(*pid, signal));
            }
            if pids.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // A process that waits for a volume ends with the volume.
        free_what_waits(&self.dir);
        let loops = Command::new("losetup").args(["-n", "-O", "NAME,BACK-FILE"]).output().map(|output| output.stdout);
        for line in String::from_utf8_lossy(&loops.unwrap_or_default()).lines() {
            if line.contains(&self.dir.display().to_string())
                && let Some(device) = line.split_whitespace().next()
            {
                drop(Command::new("losetup").args(["-d", device]).status());
            }
        }
        for line in self.lines_with_world("/proc/self/mounts") {
            let point = line.split(' ').nth(1).unwrap_or_default();
            drop(Command::new("umount").arg("-l").arg(point).status());
        }
        for group in fs::read_dir(self.dir.join("run")).into_iter().flatten().flatten() {
            let group = group.file_name().to_string_lossy().into_owned();
            drop(fs::remove_dir_all(Path::new("/dev").join(&group)));
            for node in fs::read_dir("/dev/mapper").into_iter().flatten().flatten() {
                if node.file_name().to_string_lossy().starts_with(&format!("{group}-")) {
                    drop(fs::remove_file(node.path()));
                }
            }
        }
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// The world's directory, seen from inside.
pub fn dir() -> PathBuf {
    paths::run_dir().parent().unwrap().to_owned()
}

/// The file that names the step at which the next server is to be killed.
fn last_step() -> PathBuf {
    dir().join("last-step")
}

/// Has the server that comes to this step killed there, once.
pub fn die_at(step: &str) {
    fs::write(last_step(), step).unwrap();
}

/// The file that names the step at which each server is to be killed, for as long as it is there.
fn fatal_step() -> PathBuf {
    dir().join("fatal-step")
}

/// Has each server killed that comes to a step, until this is dropped.
pub struct Fatal;

impl Fatal {
    pub fn at(step: &str) -> Fatal {
        fs::write(fatal_step(), step).unwrap();
        Fatal
    }
}

impl Drop for Fatal {
    fn drop(&mut self) {
        drop(fs::remove_file(fatal_step()));
    }
}

fn die_here(step: &str) {
    if fs::read_to_string(fatal_step()).is_ok_and(|fatal| fatal == step) {
        return die();
    }
    if fs::read_to_string(last_step()).is_ok_and(|last| last == step) {
        fs::remove_file(last_step()).unwrap();
        die();
    }
}

fn die() {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    // Until the signal is there nothing more is done.
    std::thread::sleep(Duration::from_secs(60));
}

/// In a server: it has come to this step.
pub fn step_here(step: &str) {
    die_here(step);
    pause_here(step);
}

/// The file that names the step at which a helper or a server is to pause, for as long as it is there.
fn pause() -> PathBuf {
    dir().join("pause")
}

/// What it makes when it has come to that step: it has its process number.
fn paused() -> PathBuf {
    dir().join("paused")
}

/// Has helpers and servers pause at a step until this is dropped.
pub struct Pause;

impl Pause {
    pub fn at(step: &str) -> Pause {
        drop(fs::remove_file(paused()));
        fs::write(pause(), step).unwrap();
        Pause
    }

    pub fn has_come(&self) -> bool {
        paused().exists()
    }

    /// The process that pauses.
    pub fn wait(&self) -> i32 {
        let mut pid = None;
        wait_for("a helper's pause", || {
            pid = fs::read_to_string(paused()).ok().and_then(|text| text.trim().parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        drop(fs::remove_file(pause()));
    }
}

/// In a helper: it has come to this step.
pub fn pause_here(step: &str) {
    let is_wanted = || fs::read_to_string(pause()).is_ok_and(|wanted| wanted == step);
    if is_wanted() {
        fs::write(paused(), format!("{}\n", std::process::id())).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_wanted() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the connections of all volumes in this directory: what waits for one gets an error.
pub fn free_what_waits(dir: &Path) {
    let control = Path::new("/sys/fs/fuse/connections");
    let is_empty = || fs::read_dir(control).map_or(true, |mut entries| entries.next().is_none());
    if is_empty() {
        drop(Command::new("mount").args(["-t", "fusectl", "none"]).arg(control).stderr(Stdio::null()).status());
    }
    let inside = dir.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines().filter(|line| line.contains(" fuse.rowen ") && line.contains(&inside)) {
        let minor = line.split(' ').nth(2).and_then(|numbers| numbers.strip_prefix("0:"));
        drop(fs::write(control.join(minor.unwrap_or("none")).join("abort"), "1"));
    }
}

/// Unmounts it. umount reads the list of mounts in parts: one that is taken away elsewhere meanwhile can hide this one from it.
pub fn unmounted(point: &Path) {
    let line = format!(" {} ", point.display());
    wait_for("the end of a mount", || {
        within(60, "umount", &[point.to_str().unwrap()]);
        !fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&line)
    });
}

/// Runs a program for at most this many seconds. If it hangs, its disks are released first, and the test fails.
pub fn within(seconds: u64, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            drop(child.kill());
            free_what_waits(&dir());
            panic!("{program} {arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// A load on a volume that reads back what it wrote, until it is interrupted.
pub fn verifying_fio(name: &str, node: &Path) -> std::process::Child {
    Command::new("fio")
        .arg(format!("--name={name}"))
        .args(["--direct=1", "--ioengine=libaio", "--iodepth=16", "--rw=randwrite", "--size=96m", "--fallocate=none"])
        .args(["--bsrange=512-64k", "--blockalign=512", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256"])
        .args(["--fdatasync=64", "--time_based", "--runtime=600", "--randseed=7", "--output-format=terse", "--thread"])
        .arg(format!("--filename={}", node.display()))
        .current_dir(dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A sparse file of this size, to become a physical volume.
pub fn file(size: u64) -> PathBuf {
    let path = dir().join("pv").join(format!("pv {}.img", number()));
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

pub const AGREED: Consent = Consent { force: 0, yes: true };

/// A group on new files. Dropped, it is removed with all that is in it.
pub struct Vg {
    pub name: String,
    pub files: Vec<PathBuf>,
}

impl Vg {
    pub fn make(sizes: &[u64]) -> Vg {
        let name = format!("t{}n{}", std::process::id(), number());
        let files: Vec<PathBuf> = sizes.iter().map(|size| file(*size)).collect();
        let pvs: Vec<_> = files.iter().map(|path| (path.clone(), uuids::fresh())).collect();
        devices::vgcreate(&name, uuids::fresh(), 1024, &pvs, Some(16), Consent::default()).unwrap();
        Vg { name, files }
    }

    /// On a device.
    pub fn over(device: &Path) -> Vg {
        Vg::on(&[device.to_owned()])
    }

    /// On these files and devices, which stay.
    pub fn on(paths: &[PathBuf]) -> Vg {
        let name = format!("t{}n{}", std::process::id(), number());
        let pvs: Vec<_> = paths.iter().map(|path| (path.clone(), uuids::fresh())).collect();
        devices::vgcreate(&name, uuids::fresh(), 1024, &pvs, Some(16), Consent::default()).unwrap();
        Vg { name, files: Vec::new() }
    }

    /// Carries a request out; an error is the test's failure.
    pub fn ask(&self, request: Request) -> Outcome {
        match self.try_ask(request.clone()) {
            Outcome::Error { message, .. } => panic!("{request:?}: {message}"),
            outcome => outcome,
        }
    }

    pub fn try_ask(&self, request: Request) -> Outcome {
        let mut client = server::ensure_running(&self.name).unwrap();
        client.ask(&request, &mut |_| {})
    }

    /// The refusal of a request.
    pub fn refusal(&self, request: Request) -> (ErrorKind, String) {
        match self.try_ask(request.clone()) {
            Outcome::Error { kind, message } => (kind, message),
            other => panic!("{request:?} was not refused: {other:?}"),
        }
    }

    pub fn report(&self) -> GroupReport {
        match self.ask(Request::Report { with_use: true }) {
            Outcome::Report(report) => *report,
            other => panic!("no report but {other:?}"),
        }
    }

    /// Its volumes, as disks of other groups, are pulled.
    pub fn pull(&self) {
        kill_both(self);
    }

    /// They are there again.
    pub fn plug(&self) {
        server::ensure_running(&self.name).unwrap();
    }

    /// What its server says of it, if one answers.
    pub fn status(&self) -> Option<StatusReport> {
        match server::connect(&self.name).ok()??.ask(&Request::Status, &mut |_| {}) {
            Outcome::Status(status) => Some(*status),
            _ => None,
        }
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.report().volumes.into_iter().map(|volume| volume.name).collect();
        names.sort();
        names
    }

    pub fn create(&self, name: &str, kind: VolumeKind, size: u64, activate: bool) -> PathBuf {
        self.made(name, kind, size, activate, Vec::new())
    }

    /// An active thick volume in these places.
    pub fn create_on(&self, name: &str, size: u64, on: Vec<PvPart>) -> PathBuf {
        self.made(name, VolumeKind::Thick, size, true, on)
    }

    fn made(&self, name: &str, kind: VolumeKind, size: u64, activate: bool, on: Vec<PvPart>) -> PathBuf {
        let spec = VolumeSpec {
            name: name.into(),
            uuid: uuids::fresh(),
            kind,
            segment: SegmentType::Linear,
            stripes: None,
            blocks: size / 4096,
            sector: 512,
            chunk_blocks: 16,
            full: FullPolicy::Fail,
            attributes: Attributes::default(),
        };
        self.ask(Request::CreateVolume { spec, activate, on });
        self.node(name)
    }

    pub fn snapshot(&self, origin: &str, name: &str) -> PathBuf {
        self.ask(Request::Snapshot { specs: vec![snapshot(origin, name, None)], freeze: true });
        self.node(name)
    }

    pub fn node(&self, name: &str) -> PathBuf {
        Path::new("/dev").join(&self.name).join(name)
    }

    /// The running server's process number.
    pub fn server(&self) -> i32 {
        let mut pid = None;
        wait_for("a server's number", || {
            // A server that is just starting has emptied the file and not yet written it.
            pid = fs::read_to_string(paths::pid_file(&self.name)).ok().and_then(|text| text.trim().parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    }

    pub fn signal_server(&self, signal: rustix::process::Signal) -> i32 {
        let pid = self.server();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        pid
    }

    pub fn log(&self) -> String {
        fs::read_to_string(paths::server_log(&self.name)).unwrap_or_default()
    }

    pub fn keeper_log(&self) -> String {
        fs::read_to_string(paths::group_dir(&self.name).join("keeper.log")).unwrap_or_default()
    }
}

impl Drop for Vg {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of {}'s server\n{}--- and keeper\n{}---", self.name, self.log(), self.keeper_log());
        }
        if let Ok(mut client) = server::ensure_running(&self.name) {
            drop(client.request(&Request::Destroy { force: true }));
        }
        self.files.iter().for_each(|file| drop(fs::remove_file(file)));
    }
}

pub fn snapshot(origin: &str, name: &str, reserve_blocks: Option<u64>) -> SnapshotSpec {
    SnapshotSpec {
        origin: origin.into(),
        name: name.into(),
        uuid: uuids::fresh(),
        reserve_blocks,
        read_only: false,
        chunk_blocks: 16,
        activate: true,
        attributes: Attributes::default(),
    }
}

/// Whether the process is there (a dead one that waits for its parent is not). While a thread of it still ends, its descriptors are
/// open, although its first thread is dead.
pub fn lives(pid: i32) -> bool {
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    state(pid).is_some_and(|state| state != 'Z' || threads() > 1)
}

pub fn is_stopped(pid: i32) -> bool {
    state(pid) == Some('T')
}

/// The letter of what a process does, as proc(5) lists them.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Reads and writes of the device itself.
pub fn direct(node: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(node).unwrap()
}

/// A page of this byte.
pub fn page(byte: u8) -> rowen_engine::disk::PageBuf {
    rowen_engine::disk::PageBuf::from_slice(&[byte; 4096])
}

/// The limit only ends what would never come: where others write much, a process that was killed ends after tens of seconds.
pub fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !come() {
        assert!(Instant::now() < deadline, "{what} did not come in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn kill(pid: i32, signal: rustix::process::Signal) {
    // One that has ended is what is wanted.
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
}

/// The group's keeper.
/// Kills server and keeper so that neither starts the other.
pub fn kill_both(vg: &Vg) {
    kill_with_keeper(keeper_of(vg), vg.server());
}

pub fn kill_with_keeper(keeper: i32, dead: i32) {
    kill(keeper, rustix::process::Signal::STOP);
    kill(dead, rustix::process::Signal::KILL);
    kill(keeper, rustix::process::Signal::KILL);
    wait_for("both ends", || !lives(dead) && !lives(keeper));
}

pub fn keeper_of(vg: &Vg) -> i32 {
    let mut pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"keeper"[..]) && words.get(2) == Some(&vg.name.as_bytes())
    };
    pids.find(is_it).unwrap()
}

/// The helpers of the group's server.
pub fn helpers_of(vg: &Vg) -> Vec<i32> {
    let server = vg.server();
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent == Some(server) && line.ends_with(b"\0helper\0") && lives(*pid)
    };
    let mut found: Vec<i32> = pids.filter(is_one).collect();
    found.sort_unstable();
    found
}

/// Runs a program, which must succeed.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A mounted filesystem, unmounted when dropped.
pub struct Mounted {
    pub point: PathBuf,
}

impl Mounted {
    pub fn ext4(device: &Path) -> Mounted {
        run("mkfs.ext4", &["-q", "-F", device.to_str().unwrap()]);
        Mounted::at(device)
    }

    pub fn at(device: &Path) -> Mounted {
        let point = dir().join(format!("mnt-{}", number()));
        fs::create_dir(&point).unwrap();
        run("mount", &[device.to_str().unwrap(), point.to_str().unwrap()]);
        Mounted { point }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.point).status());
        drop(fs::remove_dir(&self.point));
    }
}

/// A loop device over a file, detached when dropped.
pub struct Loop {
    pub device: PathBuf,
}

impl Loop {
    pub fn over(file: &Path, extra: &[&str]) -> Loop {
        let output = run("losetup", &[extra, &["--find", "--show", file.to_str().unwrap()]].concat());
        Loop { device: String::from_utf8_lossy(&output.stdout).trim().into() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("-d").arg(&self.device).status());
    }
}
