//! A directory, a group, mounts, children: each test has its own and shares nothing that has a name. Dropped, also by a
//! failure, a world leaves nothing.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ends threads that look at this, also when the test fails: their scope waits for them.
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub const MIB: u64 = 1 << 20;

pub struct World {
    pub dir: PathBuf,
    pub group: String,
    /// Another world has the directory.
    is_beside: bool,
}

impl World {
    /// Without a group.
    pub fn empty(name: &str) -> World {
        assert!(rustix::process::geteuid().is_root(), "these tests make block devices: run them as root");
        let group = format!("real{name}{}", std::process::id());
        let dir = std::env::temp_dir().join(format!("rowen-{group}"));
        fs::create_dir_all(&dir).unwrap();
        World { dir, group, is_beside: false }
    }

    /// Another group in the same directory. It has to be dropped before this world.
    pub fn beside(&self, suffix: &str) -> World {
        World { dir: self.dir.clone(), group: format!("{}{suffix}", self.group), is_beside: true }
    }

    /// With a group on one file of that many MiB.
    pub fn new(name: &str, mib: u64) -> World {
        let world = World::empty(name);
        world.device("pv", mib * MIB);
        world.ok("vgcreate VG pv");
        world
    }

    pub fn device(&self, name: &str, size: u64) -> PathBuf {
        let path = self.dir.join(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    pub fn node(&self, volume: &str) -> PathBuf {
        Path::new("/dev").join(&self.group).join(volume)
    }

    /// Runs a command line of Rowen's in which `VG` stands for the group.
    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    pub fn command(&self, line: &str) -> Command {
        let words = line.split_whitespace().map(|word| word.replace("VG", &self.group));
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowen"));
        command
            .args(words)
            .current_dir(&self.dir)
            .env("ROWEN_SYSTEM_DIR", self.dir.join("etc"))
            .env("ROWEN_RUN_DIR", self.dir.join("run"))
            .stdin(Stdio::null());
        command
    }

    pub fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {err}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The command must fail with this exit code and say, in one sentence on standard error, something with `words`.
    pub fn refused(&self, line: &str, code: i32, words: &str) {
        let output = self.run(line);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {err}");
        assert!(err.contains(&words.replace("VG", &self.group)), "{line}: {err}");
        assert!(!err.contains("panicked"), "{line}: {err}");
    }

    /// The server's process.
    pub fn server(&self) -> Option<i32> {
        let file = self.dir.join("run").join(&self.group).join("server.pid");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Mounts a volume on a directory of its name.
    pub fn mount(&self, volume: &str, options: &str) -> PathBuf {
        let point = self.dir.join(format!("mnt-{volume}"));
        fs::create_dir_all(&point).unwrap();
        let node = self.node(volume);
        tool("mount", &["-o", options, node.to_str().unwrap(), point.to_str().unwrap()]);
        point
    }

    /// Unmounts it. A program that another test starts at this moment has, until it is executed, a copy of what this
    /// process had open: for so long the mount is busy.
    pub fn unmount(&self, volume: &str) {
        let point = self.dir.join(format!("mnt-{volume}"));
        let until = Instant::now() + Duration::from_secs(10);
        while rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()) == Err(rustix::io::Errno::BUSY) {
            assert!(Instant::now() < until, "{} is still busy", point.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!self.mounts().contains(&point.display().to_string()), "{} is still mounted", point.display());
    }

    fn mounts(&self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1).map(str::to_owned));
        let ours = format!("{}/mnt-", self.dir.display());
        points.filter(|point| point.starts_with(&ours)).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(240);
        while !self.mounts().is_empty() && Instant::now() < until {
            for point in self.mounts() {
                let _tried_again = Command::new("umount").arg(point).stderr(Stdio::null()).status();
            }
        }
        // What a failed test had open may take a moment to be closed.
        while !self.run("vgremove -f VG").status.success() && self.node("").exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(200));
        }
        let _may_be_gone = self.run("stop VG");
        if !self.is_beside {
            let _left = fs::remove_dir_all(&self.dir);
        }
    }
}

/// A process that is stopped, until this is dropped.
pub struct Stopped(Pid);

impl Stopped {
    pub fn new(pid: i32) -> Stopped {
        let pid = Pid::from_raw(pid).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _may_be_gone = kill_process(self.0, Signal::CONT);
    }
}

/// A loop device over a file, by losetup. Dropped, also by a failure, it is detached.
pub struct Looped(String);

impl Looped {
    pub fn new(file: &Path) -> Looped {
        Looped(tool("losetup", &["--find", "--show", file.to_str().unwrap()]).trim().to_owned())
    }

    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        let _may_be_gone = Command::new("losetup").args(["-d", &self.0]).stderr(Stdio::null()).status();
    }
}

/// Runs another program, which must succeed; returns what it said.
pub fn tool(program: &str, words: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(words).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("{program} does not run ({e}); `.ci/packages test` installs it"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{program} {words:?}: {said}");
    said
}

/// A child that ends with its scope.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _may_have_ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}
