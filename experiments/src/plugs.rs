//! Disks that can be pulled: each is a device of device-mapper over one of the place's disks, and a pulled one answers every request
//! with an error, at once and for good.
//!
//! Promises: what is pulled was not told before; a request that is under way at that moment is answered first; nothing of them is left
//! when they are dropped.

use crate::command::{self, Result};
use crate::context::{Context, MIB};
use crate::stack::text;
use crate::streams::{self, Through};
use rowen_engine::disk::PageBuf;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What lies before each on its disk, so that nobody finds the same label on both.
const BEFORE: u64 = MIB;
const SECTOR: u64 = 512;
/// What is made zeros at both ends: labels of the system that had the disk before.
const LABELS_MIB: u64 = 4;

/// See the module.
pub struct Plugs {
    names: Vec<String>,
    /// The disks below, which say what was read and written: device-mapper counts a request that it splits more than once.
    below: Vec<PathBuf>,
}

/// What a disk has done since it was plugged in, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub read: u64,
    pub written: u64,
}

impl Moved {
    /// Since an earlier look.
    pub fn since(self, before: Moved) -> Moved {
        Moved { read: self.read - before.read, written: self.written - before.written }
    }
}

impl Plugs {
    /// Plugs the disks in that LVM and Rowen have elsewhere: two that hold a mirror, and a spare one. All are of one size.
    pub fn new(context: &Context) -> Result<Plugs> {
        let disks = &context.disks;
        let [first, second] = disks.lvm.as_ref().ok_or("there is no device-mapper here")?;
        let mut plugs = Plugs { names: Vec::new(), below: Vec::new() };
        for (n, disk) in [first, second, &disks.rowen].into_iter().enumerate() {
            let sectors: u64 = command::run("blockdev", &["--getsz", &text(disk)])?
                .trim()
                .parse()
                .map_err(|_| format!("the size of {} is not known", disk.display()))?;
            let name = format!("plug{n}");
            let (len, from) = (sectors - BEFORE / SECTOR, BEFORE / SECTOR);
            let line = format!("0 {len} linear {} {from}", disk.display());
            command::run("dmsetup", &["create", &name, "--table", &line])?;
            plugs.names.push(name);
            plugs.below.push(disk.clone());
            without_labels(&plugs.disk(n), len * SECTOR)?;
        }
        Ok(plugs)
    }

    pub fn disk(&self, n: usize) -> PathBuf {
        Path::new("/dev/mapper").join(&self.names[n])
    }

    /// Pulls one. No filesystem on it gets to write before.
    pub fn pull(&self, n: usize) -> Result {
        command::run("dmsetup", &["wipe_table", "--noflush", "--nolockfs", &self.names[n]]).map(drop)
    }

    pub fn moved(&self, n: usize) -> Result<Moved> {
        let disk = &self.below[n];
        let device = std::fs::metadata(disk).map_err(|e| format!("{}: {e}", disk.display()))?.rdev();
        let file = format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(device), rustix::fs::minor(device));
        moved_of(&std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?)
    }
}

impl Drop for Plugs {
    fn drop(&mut self) {
        for name in &self.names {
            let mut remove = command::command("dmsetup");
            remove.args(["remove", "--retry", name]);
            if let Err(why) = command::output_always(remove) {
                eprintln!("{why}");
            }
        }
    }
}

/// What the kernel's line of a device says.
fn moved_of(line: &str) -> Result<Moved> {
    let fields: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match fields[..] {
        [_, _, read, _, _, _, written, ..] => Ok(Moved { read: read * SECTOR, written: written * SECTOR }),
        _ => Err(format!("a device's figures are not understood: {line:?}")),
    }
}

fn without_labels(disk: &Path, bytes: u64) -> Result {
    let file = streams::open(disk, true, Through::Past)?;
    let zeros = PageBuf::zeroed((LABELS_MIB * MIB) as usize);
    // Past the page cache in whole pages, from the last one on that is.
    let last = (bytes - LABELS_MIB * MIB) / 4096 * 4096;
    [0, last]
        .into_iter()
        .try_for_each(|at| file.write_all_at(zeros.as_slice(), at))
        .map_err(|e| format!("cannot write {}: {e}", disk.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_what_it_moved() {
        let line = "      53        0     2128        0     1924        0   234520      110        0      280      460    12160\n";
        let moved = moved_of(line).unwrap();
        assert_eq!(moved, Moved { read: 2128 * 512, written: 234_520 * 512 });
        assert_eq!(moved.since(Moved { read: 512, written: 0 }).read, 2127 * 512);
        assert!(moved_of("1 2 3").unwrap_err().contains("not understood"));
    }
}
