//! Which of our devices are mounted or open, for reports: one pass over what the kernel shows, without touching the
//! devices. (To open a device exclusively would tell more, and could make a mount that happens just then fail.)

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Major and minor number of a block device.
pub type Numbers = (u32, u32);

fn numbers_of(path: &Path) -> Option<Numbers> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.file_type().is_block_device())?;
    Some((rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())))
}

fn processes() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |&pid| pid != own)
}

/// The block devices that a mountinfo file shows: by number, and by source for filesystems over several devices.
fn mounted(mountinfo: &str) -> impl Iterator<Item = Numbers> + '_ {
    mountinfo.lines().filter_map(|line| {
        let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
        match (major.parse().ok()?, minor.parse().ok()?) {
            (0, _) => {
                let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
                source.starts_with("/dev/").then(|| numbers_of(Path::new(source)))?
            }
            numbers => Some(numbers),
        }
    })
}

/// Of `devices`, those that are in use by somebody other than this process.
pub fn in_use(devices: &[Numbers]) -> HashSet<Numbers> {
    if devices.is_empty() {
        return HashSet::new();
    }
    let mut used = HashSet::new();
    let mut namespaces = HashSet::new();
    let own = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    used.extend(mounted(&own));
    namespaces.extend(fs::read_link("/proc/self/ns/mnt").ok());
    for pid in processes() {
        let elsewhere =
            fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|namespace| namespaces.insert(namespace));
        if elsewhere {
            used.extend(mounted(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default()));
        }
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().map(|file| file.path());
        // Only what is opened by a name under /dev: following the rest could wait for a network.
        let devices = files.filter(|file| fs::read_link(file).is_ok_and(|target| target.starts_with("/dev")));
        used.extend(devices.filter_map(|file| numbers_of(&file)));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    used.extend(swaps.lines().skip(1).filter_map(|line| numbers_of(Path::new(line.split_whitespace().next()?))));
    let stacked = |&(major, minor): &Numbers| {
        let holders = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders"));
        holders.is_ok_and(|mut holders| holders.next().is_some())
    };
    devices.iter().copied().filter(|numbers| used.contains(numbers) || stacked(numbers)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number() {
        let text =
            "36 35 7:3 / /mnt rw shared:1 - ext4 /dev/loop3 rw\n37 35 0:44 / /proc rw - proc proc rw\nshort\n1 2 x:y\n";
        assert_eq!(mounted(text).collect::<Vec<_>>(), [(7, 3)]);
    }

    #[test]
    fn nothing_is_in_use_where_nothing_is_asked() {
        assert!(in_use(&[]).is_empty());
    }
}
