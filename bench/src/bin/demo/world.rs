//! The demo's world: one directory with the physical volume's file, mount points and Rowen's own directories, and the
//! commands that work on it, run as a user would type them.
//!
//! Promise: [`World::clean`], also when dropped, removes all of it in the reverse order of its making, and is right at any
//! point of a run: every step of it is harmless where there is nothing to do.

use crate::content::Content;
use rowen_bench::published::WRITE_MIB;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
/// The document's file is smaller (5000 MiB) than its two volumes together, which LVM refuses today.
pub const PV_MIB: u64 = 6000;

const GROUP: &str = "rowendemo";
/// The document's name for it, "snapshot", is reserved in LVM today.
const SNAPSHOT: &str = "before";

/// Why a run ends early.
#[derive(Debug)]
pub enum Failure {
    Interrupted,
    Told(String),
}

pub type Result<T> = std::result::Result<T, Failure>;

/// Turns an error into "cannot `what` `path`".
pub fn doing(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |e| Failure::Told(format!("cannot {what} {}: {e}", path.display()))
}

pub struct World {
    dir: PathBuf,
    rowen: PathBuf,
    pub interrupted: Arc<AtomicBool>,
    is_clean: bool,
}

impl World {
    /// A new world under `parent`. Refuses where one is already, or where something is missing.
    pub fn new(parent: &Path) -> Result<World> {
        let mut world = World::adopt(parent)?;
        world.is_clean = true;
        if let Ok(found) = fs::symlink_metadata(&world.dir) {
            let kind = if found.is_dir() { "directory" } else { "file" };
            return Err(Failure::Told(format!(
                "the {kind} {} is there already: another demo runs, or one was killed. In that case: demo --clean",
                world.dir.display()
            )));
        }
        if Path::new("/dev").join(GROUP).exists() {
            return Err(Failure::Told(format!(
                "a volume group \"{GROUP}\" exists on this machine; the demo leaves it alone."
            )));
        }
        let space = rustix::fs::statvfs(parent).map_err(|e| doing("look at", parent)(e.into()))?;
        let (free, needed) = (space.f_bavail * space.f_frsize, (PV_MIB + 500) * MIB);
        if free < needed {
            return Err(Failure::Told(format!(
                "{} has {} MiB free and the demo needs {} MiB for a few minutes; name another directory with --dir.",
                parent.display(),
                free / MIB,
                needed / MIB
            )));
        }
        for name in ["mkfs.ext2", "mount", "umount", "dd", "sync"] {
            if !is_installed(name) {
                return Err(Failure::Told(format!("the command {name} is missing; install e2fsprogs and mount.")));
            }
        }
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, world.interrupted.clone())
                .map_err(|e| Failure::Told(format!("cannot catch signals: {e}")))?;
        }
        world.is_clean = false;
        for name in ["scratch", "snapshot", "etc", "run"] {
            let path = world.dir.join(name);
            fs::create_dir_all(&path).map_err(doing("make", &path))?;
        }
        Ok(world)
    }

    /// The world that is or would be under `parent`.
    pub fn adopt(parent: &Path) -> Result<World> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::Told("making block devices and mounting them takes root: sudo make demo".into()));
        }
        let parent = parent.canonicalize().map_err(doing("find", parent))?;
        let here = std::env::current_exe().map_err(doing("find", Path::new("this program")))?;
        let rowen = here.with_file_name("rowen");
        if !rowen.exists() {
            return Err(Failure::Told(format!("{} is not built: cargo build --release", rowen.display())));
        }
        let interrupted = Arc::new(AtomicBool::new(false));
        Ok(World { dir: parent.join("rowen-demo"), rowen, interrupted, is_clean: false })
    }

    fn pv(&self) -> PathBuf {
        self.dir.join("bigfile")
    }

    fn node(&self, volume: &str) -> PathBuf {
        Path::new("/dev").join(GROUP).join(volume)
    }

    fn scratch(&self) -> PathBuf {
        self.dir.join("scratch")
    }

    fn snapshot_mount(&self) -> PathBuf {
        self.dir.join("snapshot")
    }

    /// The file that is written, on the origin.
    pub fn file(&self) -> PathBuf {
        self.scratch().join("moo")
    }

    /// The same file on the snapshot.
    pub fn snapshot_file(&self) -> PathBuf {
        self.snapshot_mount().join("moo")
    }

    // ---- steps --------------------------------------------------------------------------------------------------

    /// `dd if=/dev/zero of=bigfile`: written, not sparse, so that the filesystem under it has its say before the timing.
    pub fn make_file(&self) -> Result<()> {
        let to = format!("of={}", self.pv().display());
        let count = format!("count={PV_MIB}");
        self.run("dd", &["if=/dev/zero", &to, "bs=1M", &count, "conv=fsync", "status=none"])
    }

    pub fn make_original(&self) -> Result<()> {
        let (pv, node, scratch) = (text(&self.pv()), text(&self.node("original")), text(&self.scratch()));
        self.rowen(&["pvcreate", &pv])?;
        self.rowen(&["vgcreate", GROUP, &pv])?;
        self.rowen(&["lvcreate", "-L", "3G", "-n", "original", GROUP])?;
        self.run("mkfs.ext2", &["-q", &node])?;
        self.run("mount", &[&node, &scratch])
    }

    pub fn snapshot(&self, chunk: &str) -> Result<()> {
        let origin = format!("{GROUP}/original");
        self.rowen(&["lvcreate", "-s", "-c", chunk, "-L", "2G", "-n", SNAPSHOT, &origin])
    }

    pub fn remove_snapshot(&self) -> Result<()> {
        self.rowen(&["lvremove", "-f", &format!("{GROUP}/{SNAPSHOT}")])
    }

    pub fn mount_snapshot(&self, how: &str) -> Result<()> {
        self.run("mount", &["-o", how, &text(&self.node(SNAPSHOT)), &text(&self.snapshot_mount())])
    }

    pub fn unmount_snapshot(&self) -> Result<()> {
        self.run("umount", &[&text(&self.snapshot_mount())])
    }

    pub fn check(&self) -> Result<()> {
        self.rowen(&["check", GROUP])
    }

    /// The document's timed step. Only this filesystem is synced: what else the machine has to write is not measured.
    pub fn timed_write(&self, file: &Path) -> Result<Duration> {
        let path = text(file);
        self.run("sync", &["-f", &path])?;
        let script = format!("dd if=/dev/zero of=\"$0\" bs=1M count={WRITE_MIB} status=none && sync -f \"$0\"");
        let started = Instant::now();
        self.run("sh", &["-c", &script, &path])?;
        Ok(started.elapsed())
    }

    /// Reads a file from its device, past every cache, and compares it with what it must hold.
    pub fn must_hold(&self, file: &Path, content: &Content, what: &str) -> Result<()> {
        let from = format!("if={}", file.display());
        let mut command = self.command("dd", &[&from, "bs=1M", "iflag=direct", "status=none"]);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(doing("run", Path::new("dd")))?;
        let mut output = child.stdout.take().expect("it was asked for");
        let found = Content::read(&mut output, &self.interrupted);
        drop(output);
        let _ended = end(&mut child);
        self.go_on()?;
        let found = found.map_err(doing("read", file))?;
        if found != *content {
            return Err(Failure::Told(format!("WRONG CONTENT in {what}: {content} was written, {found} is there.")));
        }
        Ok(())
    }

    // ---- running commands ------------------------------------------------------------------------------------------

    fn go_on(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// A command in a process group of its own: Ctrl-C is for the demo, which then tidies up with more commands.
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("PATH", search_path());
        command.env("ROWEN_SYSTEM_DIR", self.dir.join("etc")).env("ROWEN_RUN_DIR", self.dir.join("run"));
        command
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<()> {
        self.go_on()?;
        let mut child = self.command(program, words).spawn().map_err(doing("run", Path::new(program)))?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(doing("wait for", Path::new(program)))? {
                break status;
            }
            if self.interrupted.load(Ordering::Relaxed) {
                let _ended = end(&mut child);
                return Err(Failure::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if status.success() {
            return Ok(());
        }
        let mut told = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _partly = io::Read::read_to_string(&mut stderr, &mut told);
        }
        let said = told.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(Failure::Told(format!("\"{program} {}\" failed: {said}", words.join(" "))))
    }

    /// A command of Rowen. It is never cut short: it is quick, and what it began is tidied up afterwards.
    fn rowen(&self, words: &[&str]) -> Result<()> {
        self.go_on()?;
        self.rowen_always(words)
    }

    fn rowen_always(&self, words: &[&str]) -> Result<()> {
        let output = self.command(&text(&self.rowen), words).output().map_err(doing("run", &self.rowen))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        Err(Failure::Told(format!("\"rowen {}\" failed: {said}", words.join(" "))))
    }

    // ---- the end ---------------------------------------------------------------------------------------------------

    /// Removes everything. Fails with what is left, if anything is.
    pub fn clean(mut self) -> Result<()> {
        self.clean_once()
    }

    fn clean_once(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_clean, true) || !self.dir.exists() {
            return Ok(());
        }
        for mount in [self.snapshot_mount(), self.scratch()] {
            self.unmount_surely(&mount)?;
        }
        let node = Path::new("/dev").join(GROUP);
        if self.dir.join("run").join(GROUP).exists() || node.exists() {
            // Another namespace may have copied a mount, and a look at the device takes a moment: a few tries.
            let until = Instant::now() + Duration::from_secs(20);
            let removed = loop {
                let removed = self.rowen_always(&["vgremove", "-f", GROUP]);
                if removed.is_ok() || !node.exists() || Instant::now() > until {
                    break removed;
                }
                std::thread::sleep(Duration::from_millis(200));
            };
            // Either may have nothing to do; what counts is looked at below.
            let _ended = self.rowen_always(&["stop", GROUP]);
            if node.exists() {
                let why = if let Err(Failure::Told(why)) = removed { format!(" ({why})") } else { String::new() };
                return Err(Failure::Told(format!("{} could not be removed{why}; try: demo --clean", node.display())));
            }
        }
        fs::remove_dir_all(&self.dir).map_err(doing("remove", &self.dir))
    }

    /// Something may still look at a filesystem that was just written: a few tries.
    fn unmount_surely(&self, mount: &Path) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(20);
        while is_mounted(mount) {
            let output = self.command("umount", &[&text(mount)]).output().map_err(doing("run", Path::new("umount")))?;
            if !output.status.success() {
                if Instant::now() > until {
                    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    return Err(Failure::Told(format!("{said}; once it is free: demo --clean")));
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(Failure::Told(left)) = self.clean_once() {
            eprintln!("demo: {left}");
        }
    }
}

fn is_installed(name: &str) -> bool {
    search_path().split(':').any(|dir| Path::new(dir).join(name).exists())
}

/// With the administrator's directories, which not every root has in it.
fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn is_mounted(mount: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == mount.to_str())
}

fn end(child: &mut Child) -> io::Result<()> {
    // The whole process group: a shell's dd ends with it.
    let _may_have_ended =
        rustix::process::kill_process_group(rustix::process::Pid::from_child(child), rustix::process::Signal::KILL);
    child.wait().map(|_| ())
}

/// The demo's own paths come from the command line, which is text.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
