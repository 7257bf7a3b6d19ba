//! What block devices lie on, from sysfs and the mount table. Nothing here touches a device or a path on one.

use crate::disks::holders::device_name;
use crate::export::usage::unescape;
use std::fs;
use std::path::{Path, PathBuf};

/// The deepest stack of devices. A deeper one is a circle, or not worth reading.
const DEEPEST: usize = 16;
/// The kind of filesystem that a volume's file is.
const EXPORT: &str = "fuse.rowen";

fn sys(numbers: &str) -> PathBuf {
    Path::new("/sys/dev/block").join(numbers)
}

/// A mount: where, of which device, of which kind, from what.
struct Mount {
    point: PathBuf,
    numbers: String,
    kind: String,
    source: PathBuf,
}

/// What is mounted here.
pub struct Stack {
    mounts: Vec<Mount>,
}

impl Stack {
    pub fn read() -> Stack {
        Stack { mounts: parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()) }
    }

    /// Whether the block device with these numbers (`7:3`) is a volume of any group, or lies on one.
    pub fn lies_on_volume(&self, numbers: &str) -> bool {
        !self.volumes_under(numbers).is_empty()
    }

    /// The files of the volumes that this device is or lies on: as a partition, a device that is stacked on them, a loop device
    /// over a file on a filesystem there.
    pub fn volumes_under(&self, numbers: &str) -> Vec<&Path> {
        let mut volumes = Vec::new();
        self.under_device(numbers, DEEPEST, &mut volumes);
        volumes
    }

    fn under_device<'a>(&'a self, numbers: &str, deepest: usize, volumes: &mut Vec<&'a Path>) {
        let Some(deeper) = deepest.checked_sub(1) else { return };
        let directory = sys(numbers);
        let number_in = |directory: &Path| Some(fs::read_to_string(directory.join("dev")).ok()?.trim().to_owned());
        if directory.join("partition").exists() {
            let whole = fs::canonicalize(&directory).ok().and_then(|part| number_in(part.parent()?));
            return whole.into_iter().for_each(|whole| self.under_device(&whole, deeper, volumes));
        }
        if let Ok(file) = fs::read_to_string(directory.join("loop/backing_file")) {
            return self.under_file(Path::new(file.trim_end_matches('\n')), deeper, volumes);
        }
        let below = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
        let below = below.filter_map(|device| number_in(&device.path()));
        below.for_each(|device| self.under_device(&device, deeper, volumes));
    }

    /// The same of what is at this path, which has no links.
    fn under_file<'a>(&'a self, path: &Path, deeper: usize, volumes: &mut Vec<&'a Path>) {
        // What is mounted later covers, and comes later.
        let above = self.mounts.iter().filter(|mount| path.starts_with(&mount.point));
        let Some(mount) = above.max_by_key(|mount| mount.point.as_os_str().len()) else { return };
        if mount.kind == EXPORT {
            return volumes.push(&mount.point);
        }
        let numbers = match mount.numbers.starts_with("0:") {
            false => Some(mount.numbers.clone()),
            true => number_of(&mount.source),
        };
        numbers.into_iter().for_each(|numbers| self.under_device(&numbers, deeper, volumes));
    }
}

/// How many volumes of the group with this run directory have their file mounted: no path there is touched.
pub fn volumes_of(directory: &Path) -> usize {
    let volumes = directory.join("volumes");
    let is_volume = |mount: &&Mount| mount.kind == EXPORT && mount.point.parent() == Some(&volumes);
    Stack::read().mounts.iter().filter(is_volume).count()
}

/// Whether a multipath or RAID device has this one: its label is the whole's.
pub fn is_component(numbers: &str) -> bool {
    let holders = fs::read_dir(sys(numbers).join("holders")).into_iter().flatten().flatten();
    holders.map(|holder| holder.path()).any(|holder| {
        let is_multipath = fs::read_to_string(holder.join("dm/uuid")).is_ok_and(|uuid| uuid.starts_with("mpath-"));
        is_multipath || holder.join("md").exists()
    })
}

/// The numbers of the device that a filesystem over several names as its source.
fn number_of(source: &Path) -> Option<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = fs::metadata(source.strip_prefix("/dev").ok().map(|_| source)?).ok()?;
    meta.file_type().is_block_device().then(|| device_name(meta.rdev()))
}

fn parse(mountinfo: &str) -> Vec<Mount> {
    let mount_of = |line: &str| {
        let (mut fields, (_, tail)) = (line.split(' '), line.split_once(" - ")?);
        let (numbers, point) = (fields.nth(2)?, fields.nth(1)?);
        let mut tail = tail.split(' ');
        let (kind, source) = (tail.next()?, tail.next()?);
        Some(Mount { point: unescape(point), numbers: numbers.into(), kind: kind.into(), source: unescape(source) })
    };
    mountinfo.lines().filter_map(mount_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "1 0 0:1 / / rw - tmpfs none rw\n\
        2 1 0:50 / /run/rowen/vg/volumes/lv@1 rw - fuse.rowen rowen:/run/rowen/vg/volumes/lv@1 rw\n\
        3 1 0:51 / /net\\040work rw - nfs server:/ rw\n\
        4 1 0:1 / /run/rowen/vg/volumes/lv@1/covered rw - tmpfs none rw\n";

    #[test]
    fn a_volumes_file_is_recognized_by_its_mount_of_any_run_directory() {
        let stack = Stack { mounts: parse(MOUNTS) };
        let lies = |path: &str| {
            let mut volumes = Vec::new();
            stack.under_file(Path::new(path), DEEPEST, &mut volumes);
            !volumes.is_empty()
        };
        assert!(lies("/run/rowen/vg/volumes/lv@1"));
        assert!(!lies("/run/rowen/vg/volumes/lv@10"));
        assert!(!lies("/run/rowen/vg/volumes/lv@1/covered/x"));
        assert!(!lies("/net work/x") && !lies("/x"));
    }

    #[test]
    fn devices_that_are_not_there_lie_on_nothing() {
        let stack = Stack { mounts: Vec::new() };
        assert!(!stack.lies_on_volume("999999:1") && !stack.lies_on_volume("../..") && !is_component("x"));
    }
}
