//! The systems side by side: the raw disk, LVM's snapshots of three kinds, and Rowen, each as the few steps that the
//! documents take: a volume, snapshots of it, and away with them.
//!
//! Promise: [`Stack::clear`] leaves nothing of a system, whatever was made before, and may be called at any time.

use crate::command::{self, Result};
use crate::context::Context;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum System {
    Raw,
    Classic,
    Thin,
    Raid1,
    /// md's mirror, made by mdadm.
    Md,
    Rowen,
    /// Rowen's volume with two copies.
    RowenMirror,
    /// LXD's directory back end, on a filesystem of the host.
    Directory,
    /// LXD's btrfs back end; a subvolume with a file.
    Btrfs,
    /// A file on xfs, and reflinks of it.
    Xfs,
}

impl System {
    pub const ALL: [System; 10] = [
        System::Raw,
        System::Classic,
        System::Thin,
        System::Raid1,
        System::Md,
        System::Rowen,
        System::RowenMirror,
        System::Directory,
        System::Btrfs,
        System::Xfs,
    ];

    pub fn name(self) -> &'static str {
        match self {
            System::Raw => "raw",
            System::Classic => "LVM classic",
            System::Thin => "LVM thin",
            System::Raid1 => "LVM raid1",
            System::Md => "mdadm raid1",
            System::Rowen => "Rowen",
            System::RowenMirror => "Rowen mirror",
            System::Directory => "directory",
            System::Btrfs => "btrfs",
            System::Xfs => "xfs reflink",
        }
    }

    /// Whether what is measured are files of a filesystem.
    pub fn is_files(self) -> bool {
        matches!(self, System::Directory | System::Btrfs | System::Xfs)
    }

    pub fn is_rowen(self) -> bool {
        matches!(self, System::Rowen | System::RowenMirror)
    }

    /// Whether it needs the kernel's device-mapper.
    pub fn is_lvm(self) -> bool {
        matches!(self, System::Classic | System::Thin | System::Raid1)
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The group that LVM's volumes are in, inside user-mode-linux, where nobody else is.
const LVM_GROUP: &str = "xlvm";
/// The file in a context's directory to which a recorded Rowen writes its I/O.
pub const ROWEN_RECORD: &str = "rowen.io";
/// The name of the volume of which snapshots are made.
pub const ORIGIN: &str = "original";
/// The numbers of snapshots that are made by one command each, and by one shell.
const FEW: usize = 25;
/// No removal of an experiment takes longer.
const SETTLED: Duration = Duration::from_secs(60);

pub struct Stack<'a> {
    pub context: &'a Context,
    pub system: System,
}

impl Stack<'_> {
    /// Rowen's group: this process's own.
    fn rowen_group(&self) -> String {
        format!("xrowen{}", std::process::id())
    }

    pub fn group(&self) -> String {
        if self.system.is_rowen() { self.rowen_group() } else { LVM_GROUP.to_owned() }
    }

    fn rowen(&self, words: &[&str]) -> Command {
        let mut command = command::command(&self.context.rowen);
        command.args(words);
        command.env("ROWEN_SYSTEM_DIR", self.context.dir.join("etc"));
        command.env("ROWEN_RUN_DIR", self.context.dir.join("run"));
        if self.context.recording {
            command.env("ROWEN_RECORD_IO", self.context.dir.join(ROWEN_RECORD));
        }
        command
    }

    pub fn rowen_run(&self, words: &[&str]) -> Result<String> {
        command::output(self.rowen(words))
    }

    fn lvm_disk(&self) -> Result<&[PathBuf; 2]> {
        self.context.disks.lvm.as_ref().ok_or_else(|| "there is no device-mapper here".to_owned())
    }

    /// The group, on its disk.
    pub fn begin(&self) -> Result {
        match self.system {
            System::Directory | System::Btrfs | System::Xfs | System::Md => {
                Err(format!("{} has no volumes of its own", self.system))
            }
            System::Raw => Ok(()),
            System::Rowen => {
                let (group, disk) = (self.rowen_group(), text(&self.context.disks.rowen));
                self.rowen_run(&["vgcreate", "-y", &group, &disk]).map(drop)
            }
            System::RowenMirror => {
                let disks = &self.context.disks;
                let (group, disks) = (self.rowen_group(), [text(&disks.rowen), text(&disks.rowen_mirror)]);
                self.rowen_run(&["vgcreate", "-y", &group, &disks[0], &disks[1]]).map(drop)
            }
            _ => {
                let disks = self.lvm_disk()?.each_ref().map(|path| text(path));
                command::run("vgcreate", &["-y", LVM_GROUP, &disks[0], &disks[1]]).map(drop)
            }
        }
    }

    /// A volume. A thin one is in a pool of this chunk size, which takes what snapshots will need too.
    pub fn origin(&self, mib: u64, chunk: &str, pool_mib: u64) -> Result<PathBuf> {
        let size = format!("{mib}m");
        let pool_size = format!("{pool_mib}m");
        match self.system {
            System::Directory | System::Btrfs | System::Xfs | System::Md => {
                return Err(format!("{} has no volumes of its own", self.system));
            }
            System::Raw => return Ok(self.context.disks.raw.clone()),
            System::Rowen => {
                self.rowen_run(&["lvcreate", "-y", "-L", &size, "-n", ORIGIN, &self.rowen_group()])?;
            }
            System::RowenMirror => {
                self.rowen_run(&["lvcreate", "-y", "-m1", "-L", &size, "-n", ORIGIN, &self.rowen_group()])?;
            }
            System::Classic => {
                let disk = text(&self.lvm_disk()?[0]);
                command::run("lvcreate", &["-y", "-Wn", "-Zn", "-L", &size, "-n", ORIGIN, LVM_GROUP, &disk])?;
            }
            System::Raid1 => {
                command::run(
                    "lvcreate",
                    &["-y", "-Wn", "-Zn", "--type", "raid1", "-m1", "--nosync", "-L", &size, "-n", ORIGIN, LVM_GROUP],
                )?;
            }
            System::Thin => {
                let disk = text(&self.lvm_disk()?[0]);
                let pool = format!("{LVM_GROUP}/pool");
                command::run("lvcreate", &["-y", "-c", chunk, "-L", &pool_size, "-T", &pool, &disk])?;
                command::run("lvcreate", &["-y", "-V", &size, "-T", &pool, "-n", ORIGIN])?;
            }
        }
        self.appears(&self.node(ORIGIN))
    }

    /// The words of a command that makes a snapshot; classic ones have this chunk size and this much room for what is copied.
    fn snapshot_words(&self, name: &str, chunk: &str, reserve_mib: u64) -> Result<Vec<String>> {
        let origin = format!("{}/{ORIGIN}", self.group());
        let mut words = vec!["lvcreate", "-y", "-s", "-n", name];
        let (reserve, disk) = (format!("{reserve_mib}m"), self.lvm_disk().map(|disks| text(&disks[0])));
        match self.system {
            System::Raw | System::Raid1 | System::Md | System::Directory | System::Btrfs | System::Xfs => {
                return Err(format!("{} has no snapshots here", self.system));
            }
            System::Rowen | System::RowenMirror => words.extend(["-c", chunk, &origin]),
            System::Classic => {
                let disk = disk.as_deref().map_err(Clone::clone)?;
                words.extend(["-c", chunk, "-L", &reserve, &origin, disk]);
            }
            System::Thin => words.extend(["-kn", &origin]),
        }
        Ok(words.into_iter().map(str::to_owned).collect())
    }

    /// One more volume, in the same pool if there is one; beside a mirror, one with one copy.
    pub fn volume(&self, name: &str, mib: u64) -> Result<PathBuf> {
        let size = format!("{mib}m");
        match self.system {
            System::Rowen | System::RowenMirror => {
                drop(self.rowen_run(&["lvcreate", "-y", "-L", &size, "-n", name, &self.group()])?);
            }
            System::Raid1 => {
                let disk = text(&self.lvm_disk()?[0]);
                drop(command::run("lvcreate", &["-y", "-Wn", "-Zn", "-L", &size, "-n", name, LVM_GROUP, &disk])?);
            }
            System::Thin => {
                let pool = format!("{LVM_GROUP}/pool");
                drop(command::run("lvcreate", &["-y", "-V", &size, "-T", &pool, "-n", name])?);
            }
            _ => return Err(format!("{} gets no further volumes here", self.system)),
        }
        self.appears(&self.node(name))
    }

    /// A snapshot of the volume.
    pub fn snapshot(&self, name: &str, chunk: &str, reserve_mib: u64) -> Result<PathBuf> {
        self.run(&self.snapshot_words(name, chunk, reserve_mib)?)?;
        self.appears(&self.node(name))
    }

    /// A command of the system's own, without its word for the program.
    fn run(&self, words: &[String]) -> Result {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match self.system {
            System::Rowen | System::RowenMirror => self.rowen_run(&words).map(drop),
            _ => command::run(words[0], &words[1..]).map(drop),
        }
    }

    pub fn remove(&self, name: &str) -> Result {
        self.remove_all(&[name.to_owned()])
    }

    /// Snapshots with these numbers, and their names: a few by a command each, many through LVM's shell (`lvm`), which both have and
    /// which starts fewer programs.
    pub fn snapshots(&self, numbers: std::ops::Range<usize>, chunk: &str, reserve_mib: u64) -> Result<Vec<String>> {
        let names: Vec<String> = numbers.map(|n| format!("before{n}")).collect();
        if names.len() <= FEW {
            names.iter().try_for_each(|name| self.snapshot(name, chunk, reserve_mib).map(drop))?;
            return Ok(names);
        }
        for some in names.chunks(FEW) {
            let mut script = String::new();
            for name in some {
                script += &self.snapshot_words(name, chunk, reserve_mib)?.join(" ");
                script.push('\n');
            }
            let file = self.context.dir.join("snapshots.lvm");
            std::fs::write(&file, script).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
            let input = std::fs::File::open(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let mut shell = match self.system {
                System::Rowen | System::RowenMirror => self.rowen(&[]),
                _ => command::command("lvm"),
            };
            shell.arg0("lvm").stdin(input);
            command::output(shell)?;
            // The shell ends well, whatever its commands did.
            some.iter().try_for_each(|name| self.appears(&self.node(name)).map(drop))?;
        }
        Ok(names)
    }

    /// Removes volumes with one command.
    pub fn remove_all(&self, names: &[String]) -> Result {
        if names.is_empty() || self.system == System::Raw {
            return Ok(());
        }
        let mut words = vec!["lvremove".to_owned(), "-f".to_owned()];
        words.extend(names.iter().map(|name| format!("{}/{name}", self.group())));
        self.run(&words)
    }

    /// Waits until nothing is left of what removals do in the background, so that it is not in the time of what comes next. LVM does
    /// all of it before its command returns.
    pub fn settle(&self) -> Result {
        if !self.system.is_rowen() {
            return Ok(());
        }
        let group = self.rowen_group();
        let left = || self.rowen_run(&["vgs", "--noheadings", "--units", "b", "-o", "vg_reclaim,vg_sequence", &group]);
        let until = Instant::now() + SETTLED;
        let mut before = left()?;
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = left()?;
            // Nothing left to look at, and no checkpoint since.
            if now == before && now.trim_start().starts_with('0') {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("a removal is not over after {} s: {}", SETTLED.as_secs(), now.trim()));
            }
            before = now;
        }
    }

    /// How full the store of a snapshot is, in percent.
    pub fn used(&self, name: &str) -> Result<f64> {
        let said = match self.system {
            System::Rowen | System::RowenMirror => {
                let volume = format!("{}/{name}", self.rowen_group());
                self.rowen_run(&["lvs", "--noheadings", "-o", "data_percent", &volume])?
            }
            _ => command::run("lvs", &["--noheadings", "-o", "data_percent", &format!("{LVM_GROUP}/{name}")])?,
        };
        said.trim().parse().map_err(|_| format!("lvs says {said:?} and no percentage"))
    }

    pub fn node(&self, name: &str) -> PathBuf {
        Path::new("/dev").join(self.group()).join(name)
    }

    fn appears(&self, node: &Path) -> Result<PathBuf> {
        let until = Instant::now() + Duration::from_secs(10);
        while !node.exists() {
            if Instant::now() > until {
                return Err(format!("{} does not appear", node.display()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(node.to_owned())
    }

    /// Removes the group and everything in it.
    pub fn clear(&self) -> Result {
        match self.system {
            System::Raw | System::Md | System::Directory | System::Btrfs | System::Xfs => Ok(()),
            System::Rowen | System::RowenMirror => {
                let group = self.rowen_group();
                if !self.context.dir.join("run").join(&group).exists() && !Path::new("/dev").join(&group).exists() {
                    return Ok(());
                }
                // Who had it open may take a moment to be gone. Or the group is gone with its server still about.
                let until = Instant::now() + Duration::from_secs(10);
                let removed = loop {
                    let removed = command::output_always(self.rowen(&["vgremove", "-f", &group]));
                    if removed.is_ok() || !Path::new("/dev").join(&group).exists() || Instant::now() > until {
                        break removed;
                    }
                    std::thread::sleep(Duration::from_millis(200));
                };
                let _ = command::output_always(self.rowen(&["stop", &group]));
                match Path::new("/dev").join(&group).exists() {
                    true => Err(format!("volume group \"{group}\" could not be removed: {removed:?}")),
                    false => Ok(()),
                }
            }
            _ => {
                let mut vgs = command::command("vgs");
                vgs.args(["--noheadings", LVM_GROUP]);
                if command::output_always(vgs).is_err() {
                    return Ok(());
                }
                let mut remove = command::command("vgremove");
                remove.args(["-ff", "-y", LVM_GROUP]);
                command::output_always(remove).map(drop)
            }
        }
    }
}

impl Drop for Stack<'_> {
    fn drop(&mut self) {
        if let Err(why) = self.clear() {
            eprintln!("{why}");
        }
    }
}

/// A filesystem that is mounted, until it is dropped.
pub struct Mount(pub PathBuf);

impl Mount {
    pub fn new(node: &Path, at: &Path, options: &str) -> Result<Mount> {
        std::fs::create_dir_all(at).map_err(|e| format!("cannot make {}: {e}", at.display()))?;
        command::run("mount", &["-o", options, &text(node), &text(at)])?;
        Ok(Mount(at.to_owned()))
    }

    pub fn unmount(self) -> Result {
        let done = self.away();
        std::mem::forget(self);
        done
    }

    fn away(&self) -> Result {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let mut umount = command::command("umount");
            umount.arg(&self.0);
            match command::output_always(umount) {
                Ok(_) => return Ok(()),
                Err(why) if Instant::now() > until => return Err(why),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(why) = self.away() {
            eprintln!("{why}");
        }
    }
}

/// Paths here are made by this program and are text.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
