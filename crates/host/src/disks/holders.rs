//! Who holds a disk. Best effort, for better error messages. It decides nothing, except for mounted devices and files
//! behind loop devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `major:minor`, as /proc and /sys write it.
pub fn device_name(rdev: u64) -> String {
    format!("{}:{}", libc::major(rdev), libc::minor(rdev))
}

/// Where a filesystem on this block device is mounted.
pub fn mounted_at(rdev: u64) -> Option<String> {
    let wanted = device_name(rdev);
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let device = fields.nth(2)?;
        let place = fields.nth(1)?;
        (device == wanted).then(|| place.replace("\\040", " "))
    })
}

/// Devices stacked on this one (device-mapper, md).
pub fn stacked_on(rdev: u64) -> Option<String> {
    let holders = fs::read_dir(format!("/sys/dev/block/{}/holders", device_name(rdev))).ok()?;
    let names: Vec<_> = holders.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Whether a block device is a rotating disk. `sys`: the path of sysfs.
pub fn turns(sys: &Path, rdev: u64) -> bool {
    let device = sys.join("dev/block").join(device_name(rdev));
    let Ok(place) = fs::canonicalize(device) else { return false };
    // Virtual disks claim to rotate, whatever is behind them.
    if place.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"virtio")) {
        return false;
    }
    // A partition has its disk's queue.
    let queues = [place.join("queue/rotational"), place.join("../queue/rotational")];
    queues.iter().find_map(|queue| fs::read_to_string(queue).ok()).is_some_and(|flag| flag.trim() == "1")
}

/// The discard granularity of a block device in bytes; 0: no discards. None: unknown. `sys`: the path of sysfs.
pub fn discards(sys: &Path, rdev: u64) -> Option<u64> {
    let place = fs::canonicalize(sys.join("dev/block").join(device_name(rdev))).ok()?;
    // A partition has its disk's queue.
    let queues = [place.join("queue"), place.join("../queue")];
    queues.iter().find_map(|queue| {
        let number = |name| fs::read_to_string(queue.join(name)).ok()?.trim().parse::<u64>().ok();
        let most = number("discard_max_bytes")?;
        if most == 0 { Some(0) } else { number("discard_granularity") }
    })
}

/// The loop devices of this host, and the files under them as the kernel names them. The files are not touched: one may
/// lie on a filesystem whose server is dead, and an access would hang.
pub fn loop_devices() -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"loop"));
    loops.filter_map(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((Path::new("/dev").join(entry.file_name()), PathBuf::from(backing.trim_end_matches('\n'))))
    })
}

/// The loop device behind which a regular file is.
pub fn loop_device_of(file: &Path) -> Option<String> {
    let file = fs::canonicalize(file).ok()?;
    loop_devices().find(|(_, backing)| *backing == file).map(|(device, _)| device.display().to_string())
}

/// What is said of a holder that has ended.
const ENDED: &str = ", which has ended: its last writes are under way, or another process has its lock";

/// Whether this holder, as [`locker_of`] names it, has ended.
pub fn has_ended(holder: &str) -> bool {
    holder.ends_with(ENDED)
}

/// The process whose flock lies on a file.
pub fn locker_of(file: &fs::Metadata) -> Option<String> {
    lock_of(file).and_then(|pid| process(&pid))
}

/// The number of the process that took the flock on a file.
pub fn lock_of(file: &fs::Metadata) -> Option<String> {
    let wanted = format!("{:02x}:{:02x}:{}", libc::major(file.dev()), libc::minor(file.dev()), file.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&wanted.as_str()))
            .then(|| fields.get(4).map(|pid| (*pid).to_owned()))
            .flatten()
    })
}

fn process(pid: &str) -> Option<String> {
    if pid.parse::<u32>().ok()? == std::process::id() {
        return Some("this process".to_owned());
    }
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => Some(format!("process {pid} ({})", name.trim_end())),
        Err(_) => Some(format!("process {pid}{ENDED}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn disks_turn_that_say_so_and_are_real() {
        let sys = &std::env::temp_dir().join(format!("rowen-turns-{}", std::process::id()));
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        let add = |number: &str, place: &str, flag: Option<&str>| {
            let device = sys.join("devices").join(place);
            fs::create_dir_all(&device).unwrap();
            if let Some(flag) = flag {
                fs::create_dir_all(device.join("queue")).unwrap();
                fs::write(device.join("queue/rotational"), flag).unwrap();
            }
            std::os::unix::fs::symlink(device, sys.join("dev/block").join(number)).unwrap();
        };
        add("8:0", "pci0/ata1/block/sda", Some("1\n"));
        add("8:1", "pci0/ata1/block/sda/sda1", None);
        add("8:16", "pci0/ata2/block/sdb", Some("0\n"));
        add("254:0", "pci0/virtio1/block/vda", Some("1\n"));
        add("254:1", "pci0/virtio1/block/vda/vda1", None);
        add("7:0", "virtual/block/loop0", None);
        let found = [(8, 0), (8, 1), (8, 16), (254, 0), (254, 1), (7, 0), (9, 9)]
            .map(|(major, minor)| turns(sys, libc::makedev(major, minor)));
        fs::remove_dir_all(sys).unwrap();
        assert_eq!(found, [true, true, false, false, false, false, false]);
    }
}
