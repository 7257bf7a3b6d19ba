//! A filesystem on two disks of which either may fail, by four systems; and what an administrator does when one did: its commands,
//! until two disks have everything again.
//!
//! Promise: a mirror that is dropped is unmounted and gone, whatever became of its disks.

use crate::command::{self, Result};
use crate::context::{Context, Disks};
use crate::plugs::Plugs;
use crate::stack::{Mount, ORIGIN, Stack, System, text};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ARRAY: &str = "/dev/md0";
/// How often the system is asked whether it has two copies again.
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
pub struct Mirror<'a> {
    system: System,
    plugs: &'a Plugs,
    // Unmounted before the volume goes.
    mount: Option<Mount>,
    stack: Stack<'a>,
}

/// The place's disks as the mirror's two are called.
pub fn disks(plugs: &Plugs) -> Disks {
    let [first, second] = [0, 1].map(|n| plugs.disk(n));
    Disks { raw: first.clone(), rowen: first.clone(), rowen_mirror: second.clone(), lvm: Some([first, second]) }
}

/// A program that this system's commands or the loads need, if it is missing.
pub fn missing(system: System) -> Option<&'static str> {
    let needed: &[&'static str] = match system {
        System::Md => &["mdadm", "mkfs.ext4"],
        System::Btrfs => &["mkfs.btrfs", "btrfs"],
        _ => &["mkfs.ext4"],
    };
    ["dmsetup", "blockdev", "sqlite3", "stdbuf"].iter().chain(needed).copied().find(|name| !command::is_installed(name))
}

impl<'a> Mirror<'a> {
    /// One of `mib` MiB on the first two disks, mounted. The context is one of these disks.
    pub fn make(context: &'a Context, system: System, plugs: &'a Plugs, mib: u64) -> Result<Mirror<'a>> {
        let mut mirror = Mirror { system, plugs, mount: None, stack: context.stack(system) };
        let [first, second] = [0, 1].map(|n| text(&plugs.disk(n)));
        let node = match system {
            System::Btrfs => {
                command::run("mkfs.btrfs", &["-q", "-f", "-m", "raid1", "-d", "raid1", &first, &second])?;
                plugs.disk(0)
            }
            System::Md => {
                // In sync at once, as the others: nobody reads what was not written.
                let size = format!("--size={mib}M");
                let words = ["--create", ARRAY, "--run", "--level=1", "--raid-devices=2", "--bitmap=internal"];
                let more = ["--assume-clean", &size, &first, &second];
                command::run("mdadm", &[&words[..], &more[..]].concat())?;
                PathBuf::from(ARRAY)
            }
            _ => {
                mirror.stack.begin()?;
                mirror.stack.origin(mib, "64k", 0)?
            }
        };
        if system != System::Btrfs {
            command::run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &text(&node)])?;
        }
        mirror.mount = Some(Mount::new(&node, &context.dir.join("mirror"), "noatime")?);
        Ok(mirror)
    }

    /// Where the filesystem is.
    pub fn at(&self) -> Result<&Path> {
        self.mount.as_ref().map(|mount| mount.0.as_path()).ok_or_else(|| "nothing is mounted".to_owned())
    }

    /// Gives it the third disk for the second one, which was pulled; the copy may be made in the background.
    pub fn repair(&self) -> Result {
        let [old, new] = [1, 2].map(|n| text(&self.plugs.disk(n)));
        let (group, volume) = (self.stack.group(), format!("{}/{ORIGIN}", self.stack.group()));
        match self.system {
            System::Btrfs => {
                let at = text(self.at()?);
                command::run("btrfs", &["-q", "replace", "start", "-B", "2", &new, &at])?;
            }
            System::Md => {
                command::run("mdadm", &[ARRAY, "--fail", &old, "--remove", &old])?;
                command::run("mdadm", &[ARRAY, "--add", &new])?;
            }
            System::RowenMirror => {
                self.stack.rowen_run(&["vgreduce", "--removemissing", &group])?;
                self.stack.rowen_run(&["vgextend", "-y", &group, &new])?;
                self.stack.rowen_run(&["lvconvert", "--repair", "-y", &volume, &new])?;
            }
            _ => {
                command::run("vgextend", &["-y", &group, &new])?;
                command::run("lvconvert", &["--repair", "-y", &volume, &new])?;
            }
        }
        Ok(())
    }

    /// Waits until two disks have everything. False if that takes longer.
    pub fn is_full_within(&self, limit: Duration) -> Result<bool> {
        let until = Instant::now() + limit;
        while !self.is_full()? {
            command::in_time()?;
            if Instant::now() > until {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    fn is_full(&self) -> Result<bool> {
        let (group, volume) = (self.stack.group(), format!("{}/{ORIGIN}", self.stack.group()));
        match self.system {
            // Its command returns when all is copied.
            System::Btrfs => Ok(true),
            System::Md => {
                let said = std::fs::read_to_string("/proc/mdstat").map_err(|e| format!("/proc/mdstat: {e}"))?;
                Ok(md_is_full(&said))
            }
            System::RowenMirror => {
                let words = ["lvs", "--noheadings", "-o", "copy_percent,raid_sync_action,lv_health_status", &volume];
                let copies = ["vgs", "--noheadings", "-o", "vg_journal_copies", &group];
                let is_copied = rowen_is_full(&self.stack.rowen_run(&words)?);
                Ok(is_copied && self.stack.rowen_run(&copies)?.trim() == "2")
            }
            _ => {
                let name = format!("{group}-{ORIGIN}");
                Ok(lvm_is_full(&command::run("dmsetup", &["status", &name])?))
            }
        }
    }
}

impl Drop for Mirror<'_> {
    fn drop(&mut self) {
        self.mount = None;
        let end: &[&[&str]] = match self.system {
            System::Md => &[&["mdadm", "--stop", ARRAY]],
            System::Btrfs => &[&["btrfs", "device", "scan", "--forget"]],
            System::RowenMirror => {
                // Without a disk a group is not removed, but it is closed.
                let group = self.stack.group();
                for words in [["vgchange", "-an", &group].as_slice(), &["stop", &group]] {
                    if let Err(why) = self.stack.rowen_run(words) {
                        eprintln!("{why}");
                    }
                }
                &[]
            }
            _ => &[],
        };
        for words in end {
            let mut command = command::command(words[0]);
            command.args(&words[1..]);
            if let Err(why) = command::output_always(command) {
                eprintln!("{why}");
            }
        }
    }
}

fn md_is_full(mdstat: &str) -> bool {
    mdstat.contains("[2/2] [UU]") && !mdstat.contains("recovery") && !mdstat.contains("resync")
}

/// From "0 524288 raid raid1 2 AA 524288/524288 idle 0 0 -".
fn lvm_is_full(status: &str) -> bool {
    let words: Vec<&str> = status.split_whitespace().collect();
    words.get(5) == Some(&"AA") && words.get(7) == Some(&"idle")
}

/// From "100.00 idle": a word more is what it lacks.
fn rowen_is_full(lvs: &str) -> bool {
    lvs.split_whitespace().eq(["100.00", "idle"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_are_what_the_systems_say() {
        let idle = "md0 : active raid1 dm-2[2] dm-0[0]\n 388096 blocks super 1.2 [2/2] [UU]\n bitmap: 1/1 pages";
        assert!(md_is_full(idle));
        assert!(!md_is_full(&idle.replace("[2/2] [UU]", "[2/1] [U_]")));
        assert!(!md_is_full(&format!("{idle}\n [==>...]  recovery = 51.6% (200704/388096)")));
        assert!(lvm_is_full("0 524288 raid raid1 2 AA 524288/524288 idle 0 0 -"));
        assert!(!lvm_is_full("0 524288 raid raid1 2 Aa 32896/524288 recover 0 0 -"));
        assert!(!lvm_is_full(""));
        assert!(rowen_is_full("  100.00 idle   \n"));
        for other in ["5.98 recover", "100.00 idle refresh needed", "", "100.00 recover"] {
            assert!(!rowen_is_full(other), "{other}");
        }
    }
}
