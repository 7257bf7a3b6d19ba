//! Who has a disk. Best effort: it only makes a refusal easier to understand, it never grants or refuses anything
//! except for mounted devices and files behind loop devices.

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

/// The loop devices of this host, and the files under them as the kernel names them. The files are not touched: one may
/// lie on a filesystem whose server is dead, and asking it would wait for ever.
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

/// The process whose flock lies on a file.
pub fn locker_of(file: &fs::Metadata) -> Option<String> {
    let wanted = format!("{:02x}:{:02x}:{}", libc::major(file.dev()), libc::minor(file.dev()), file.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&wanted.as_str()))
            .then(|| fields.get(4).and_then(|pid| process(pid)))
            .flatten()
    })
}

fn process(pid: &str) -> Option<String> {
    if pid.parse::<u32>().ok()? == std::process::id() {
        return Some("this process".to_owned());
    }
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => Some(format!("process {pid} ({})", name.trim_end())),
        Err(_) => Some(format!(
            "process {pid}, which has ended: its last writes are under way, or another process has its lock"
        )),
    }
}
