//! What holds an origin and its snapshots for a long time: volumes of a group, or files of a filesystem that shares blocks.
//!
//! Promise: a store that is dropped leaves nothing but the disk's bytes.

use crate::command::{self, Result};
use crate::context::{Context, MIB};
use crate::stack::{Mount, ORIGIN, Stack, System, text};
use std::path::{Path, PathBuf};

/// See the module.
pub enum Store<'a> {
    Volumes(Stack<'a>),
    Files { system: System, disk: &'a Path, mount: Option<Mount>, at: PathBuf },
}

impl<'a> Store<'a> {
    /// An empty one on the system's disk.
    pub fn make(context: &'a Context, system: System) -> Result<Store<'a>> {
        if !system.is_files() {
            let stack = context.stack(system);
            stack.begin()?;
            return Ok(Store::Volumes(stack));
        }
        let (disk, at) = (&*context.disks.raw, context.dir.join("files"));
        let node = text(disk);
        match system {
            System::Btrfs => command::run("mkfs.btrfs", &["-q", "-f", "-m", "dup", &node])?,
            _ => command::run("mkfs.xfs", &["-q", "-f", "-m", "reflink=1", &node])?,
        };
        let mount = Some(Mount::new(disk, &at, "noatime")?);
        let store = Store::Files { system, disk, mount, at };
        if system == System::Btrfs {
            command::run("btrfs", &["-q", "subvolume", "create", &store.directory(ORIGIN)])?;
        }
        Ok(store)
    }

    /// The file; on btrfs the subvolume that it has for itself, of which a snapshot is made.
    fn directory(&self, name: &str) -> String {
        match self {
            Store::Volumes(_) => String::new(),
            Store::Files { at, .. } => text(&at.join(name)),
        }
    }

    /// Where the bytes of the origin, a snapshot or a volume are.
    pub fn node(&self, name: &str) -> PathBuf {
        match self {
            Store::Volumes(stack) if stack.system == System::Raw => stack.context.disks.raw.clone(),
            Store::Volumes(stack) => stack.node(name),
            Store::Files { system: System::Btrfs, at, .. } => at.join(name).join("file"),
            Store::Files { at, .. } => at.join(name),
        }
    }

    /// The origin, of `mib` MiB, in a pool of `pool_mib` MiB if the system has pools.
    pub fn origin(&self, mib: u64, chunk: &str, pool_mib: u64) -> Result<PathBuf> {
        match self {
            Store::Volumes(stack) => stack.origin(mib, chunk, pool_mib),
            Store::Files { .. } => Ok(self.node(ORIGIN)),
        }
    }

    /// One more volume or file of `mib` MiB that is unrelated to the origin.
    pub fn volume(&self, name: &str, mib: u64) -> Result<PathBuf> {
        match self {
            Store::Volumes(stack) => stack.volume(name, mib),
            Store::Files { system: System::Btrfs, .. } => {
                command::run("btrfs", &["-q", "subvolume", "create", &self.directory(name)])?;
                Ok(self.node(name))
            }
            Store::Files { .. } => Ok(self.node(name)),
        }
    }

    pub fn snapshot(&self, name: &str, chunk: &str) -> Result {
        match self {
            Store::Volumes(stack) => stack.snapshot(name, chunk, 0).map(drop),
            Store::Files { system: System::Btrfs, .. } => {
                let words = ["-q", "subvolume", "snapshot", "-r", &self.directory(ORIGIN), &self.directory(name)];
                command::run("btrfs", &words).map(drop)
            }
            Store::Files { .. } => {
                command::run("cp", &["--reflink=always", &self.directory(ORIGIN), &self.directory(name)]).map(drop)
            }
        }
    }

    pub fn remove(&self, names: &[String]) -> Result {
        match self {
            Store::Volumes(stack) => stack.remove_all(names),
            _ if names.is_empty() => Ok(()),
            Store::Files { system, .. } => {
                let directories: Vec<String> = names.iter().map(|name| self.directory(name)).collect();
                let (program, mut words) = match system {
                    System::Btrfs => ("btrfs", vec!["-q", "subvolume", "delete"]),
                    _ => ("rm", vec!["-f"]),
                };
                words.extend(directories.iter().map(String::as_str));
                command::run(program, &words).map(drop)
            }
        }
    }

    /// Gives back what a range of the origin holds.
    pub fn discard(&self, offset: u64, len: u64) -> Result {
        let (node, offset, len) = (text(&self.node(ORIGIN)), offset.to_string(), len.to_string());
        match self {
            Store::Volumes(_) => command::run("blkdiscard", &["-f", "-o", &offset, "-l", &len, &node]).map(drop),
            Store::Files { .. } => command::run("fallocate", &["-p", "-o", &offset, "-l", &len, &node]).map(drop),
        }
    }

    /// How much of the space is taken, in percent.
    pub fn fill(&self) -> Result<f64> {
        match self {
            Store::Volumes(stack) if stack.system == System::Rowen => {
                let [size, free] = vgs(stack, "vg_size,vg_free")?;
                Ok(100.0 * (size - free) / size)
            }
            Store::Volumes(stack) => stack.used("pool"),
            Store::Files { at, .. } => {
                let found = rustix::fs::statvfs(at).map_err(|e| format!("{}: {e}", at.display()))?;
                Ok(100.0 * (found.f_blocks - found.f_bavail) as f64 / found.f_blocks as f64)
            }
        }
    }

    /// MiB that metadata takes, where the system says so.
    pub fn metadata(&self) -> Result<Option<f64>> {
        let Store::Volumes(stack) = self else { return Ok(None) };
        if stack.system != System::Rowen {
            return Ok(None);
        }
        let [bytes] = vgs(stack, "vg_metadata")?;
        Ok(Some(bytes / MIB as f64))
    }

    /// MiB of memory that the system's server has.
    pub fn memory(&self) -> Option<f64> {
        let Store::Volumes(stack) = self else { return None };
        let file = stack.context.dir.join("run").join(stack.group()).join("server.pid");
        let pid = std::fs::read_to_string(file).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? / 1024.0)
    }

    /// A snapshot, ready to be read.
    pub fn readable(&self, name: &str) -> Result<PathBuf> {
        if let Store::Volumes(stack) = self
            && stack.system == System::Rowen
        {
            stack.rowen_run(&["lvchange", "-ay", &format!("{}/{name}", stack.group())])?;
        }
        Ok(self.node(name))
    }

    /// Closes it, so that what opens it next starts from the disk.
    pub fn close(&mut self) -> Result {
        match self {
            Store::Volumes(stack) if stack.system == System::Rowen => {
                let group = stack.group();
                stack.rowen_run(&["vgchange", "-an", &group])?;
                stack.rowen_run(&["stop", &group]).map(drop)
            }
            Store::Volumes(stack) => command::run("vgchange", &["-an", &stack.group()]).map(drop),
            Store::Files { mount, .. } => mount.take().map_or(Ok(()), Mount::unmount),
        }
    }

    /// Opens it until the origin can be read.
    pub fn open(&mut self) -> Result {
        match self {
            Store::Volumes(stack) => {
                let (group, origin) = (stack.group(), format!("{}/{ORIGIN}", stack.group()));
                match stack.system {
                    System::Rowen => stack.rowen_run(&["lvchange", "-ay", &origin])?,
                    _ => command::run("lvchange", &["-ay", &group])?,
                };
                Ok(())
            }
            Store::Files { disk, mount, at, .. } => {
                *mount = Some(Mount::new(disk, at, "noatime")?);
                Ok(())
            }
        }
    }

    /// Waits until nothing of removals is left to do in the background.
    pub fn settle(&self) -> Result {
        match self {
            Store::Volumes(stack) => stack.settle(),
            Store::Files { system, at, .. } => {
                command::run("sync", &["-f", &text(at)])?;
                match system {
                    System::Btrfs => command::run("btrfs", &["subvolume", "sync", &text(at)]).map(drop),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Sizes of the group as Rowen reports them, in bytes.
fn vgs<const COUNT: usize>(stack: &Stack<'_>, fields: &str) -> Result<[f64; COUNT]> {
    let words = ["vgs", "--noheadings", "--nosuffix", "--units", "b", "-o", fields, &stack.group()];
    let said = stack.rowen_run(&words)?;
    let found: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    found.try_into().map_err(|_| format!("vgs says {said:?}"))
}
