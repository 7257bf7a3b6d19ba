//! Finds the users of a block device.
//!
//! The kernel only says "busy". An administrator wants to know by whom. So this module searches the mounts of every
//! mount namespace, swap, stacked devices and open files, the cheap sources first. All of it blocks.
//!
//! * H13 A device is in use if a process has it open, if it is mounted, or if it is swap. Any user can open a path with
//!   `O_PATH`, and can choose the source name of a mount. So neither counts.

use super::error::Result;
use super::openers::{device_named, open_devices};
use crate::helper::{self, Job};
use rowen_control::service::platform::User;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A mount of a device: where it is, as seen by `process`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub process: u32,
    /// The kernel's number of the mount.
    pub id: u64,
    /// The filesystem may be on other devices as well, and has a device number of its own.
    pub is_of_several: bool,
}

/// The number of the block device that a path under /dev leads to.
fn device_of(path: &Path) -> Option<u64> {
    device_named(path).map(|(major, minor)| rustix::fs::makedev(major, minor))
}

/// Undoes the octal escapes of /proc (`\040` is a space).
pub(crate) fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        match octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// Filesystems over several devices: the kernel shows a number that is none of the devices'.
pub(super) const OF_SEVERAL: [&str; 2] = ["btrfs", "bcachefs"];

/// The mounts in a mountinfo file that show the device.
fn mounts_in(process: u32, mountinfo: &str, numbers: &str, device: u64) -> Vec<Mount> {
    let mount_of = |line: &str| {
        let mut fields = line.split(' ');
        let (id, shown, point) = (fields.next()?.parse().ok()?, fields.nth(1)?, fields.nth(1)?);
        let (_, tail) = line.split_once(" - ")?;
        let (kind, source) = tail.split_once(' ')?;
        let is_of_several = shown != numbers && OF_SEVERAL.contains(&kind);
        let is_source = || device_of(&unescape(source.split(' ').next()?)).map(|number| number == device);
        let is_it = shown == numbers || is_of_several && is_source() == Some(true);
        is_it.then(|| Mount { point: unescape(point), process, id, is_of_several })
    };
    mountinfo.lines().filter_map(mount_of).collect()
}

/// The number of searches of all processes. With thousands of processes, each takes milliseconds.
static PASSES: AtomicU64 = AtomicU64::new(0);

/// How often this process has gone through all processes of the host.
pub fn passes() -> u64 {
    PASSES.load(Ordering::Relaxed)
}

/// Process numbers, this process first: its view of the mounts is the one to report.
pub(super) fn processes() -> Vec<u32> {
    PASSES.fetch_add(1, Ordering::Relaxed);
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|&pid| pid != own);
    std::iter::once(own).chain(others).collect()
}

/// The mounts of all mount namespaces with a process, at one time. So searching for several devices takes one pass over
/// the processes.
pub struct Mounts {
    /// A process in each namespace, and what it sees.
    views: Vec<(u32, String)>,
}

impl Mounts {
    pub fn read() -> Mounts {
        let mut namespaces = BTreeSet::new();
        let mut views = Vec::new();
        for process in processes() {
            let namespace = fs::read_link(format!("/proc/{process}/ns/mnt"));
            if namespace.is_ok_and(|namespace| namespaces.insert(namespace))
                && let Ok(mountinfo) = fs::read_to_string(format!("/proc/{process}/mountinfo"))
            {
                views.push((process, mountinfo));
            }
        }
        Mounts { views }
    }

    /// Every mount of the device.
    pub fn of(&self, major: u32, minor: u32) -> Vec<Mount> {
        let numbers = format!("{major}:{minor}");
        let device = rustix::fs::makedev(major, minor);
        let of_view = |(process, mountinfo): &(u32, String)| mounts_in(*process, mountinfo, &numbers, device);
        self.views.iter().flat_map(of_view).collect()
    }
}

/// Every mount of the device, in every mount namespace that some process lives in.
pub fn mounts_of(major: u32, minor: u32) -> Vec<Mount> {
    Mounts::read().of(major, minor)
}

/// A device that is open for less than this does not count as in use: programs that scan all devices open each briefly.
const GRACE: Duration = Duration::from_millis(500);
/// The same for udev, which probes each device that was written to. A volume is sometimes removed right after mkfs, and
/// udev must not be the reason to refuse that. On a slow host udev takes long, but there is a limit.
const UDEV_GRACE: Duration = Duration::from_secs(60);
/// The words for a use by an open file.
const OPEN_BY: &str = "open by";
const MOUNTED_ON: &str = "mounted on";
const UNDER: &str = "used by the device";
/// The pause between two checks.
const AGAIN: Duration = Duration::from_millis(20);

/// How long such a use may last without counting.
pub(super) fn grace(user: &str) -> Duration {
    match user.strip_prefix(OPEN_BY) {
        Some(program) if program.contains("udev") => UDEV_GRACE,
        Some(_) => GRACE,
        None => Duration::ZERO,
    }
}

/// The kind of user that the words name.
pub fn kind(user: &str) -> User {
    match user {
        user if user.starts_with(MOUNTED_ON) => User::Filesystem,
        user if user.starts_with(UNDER) => User::Device,
        _ => User::Other,
    }
}

/// The same as [`in_use`], without short uses: a file that is closed soon ([`grace`]) does not count. LVM retries,
/// too.
pub fn in_lasting_use(major: u32, minor: u32) -> Result<Option<String>> {
    let begun = Instant::now();
    loop {
        match in_use(major, minor)? {
            Some(user) if begun.elapsed() < grace(&user) => std::thread::sleep(AGAIN),
            answer => return Ok(answer),
        }
    }
}

/// The user of the device, in words. None: it is not in use. Files that this process has open do not count.
pub fn in_use(major: u32, minor: u32) -> Result<Option<String>> {
    Ok(user_of(is_claimed(major, minor)?, major, minor))
}

/// The exclusive holder of the device, in words. Processes are searched only if there is one.
pub fn claimed_by(major: u32, minor: u32) -> Result<Option<String>> {
    Ok(is_claimed(major, minor)?.then(|| claimant(major, minor)))
}

/// Whether the kernel (a mount, swap, a device on top) or a process holds the device exclusively.
fn is_claimed(major: u32, minor: u32) -> Result<bool> {
    helper::ask(Job::IsClaimed(major, minor)).map(|claimed| claimed != 0)
}

/// The user of the device, in words. `claimed`: whether it is held exclusively.
pub(super) fn user_of(claimed: bool, major: u32, minor: u32) -> Option<String> {
    match claimed {
        true => Some(claimant(major, minor)),
        false => opener(rustix::fs::makedev(major, minor)),
    }
}

fn claimant(major: u32, minor: u32) -> String {
    if let Some(mount) = mounts_of(major, minor).first() {
        return format!("{MOUNTED_ON} {}", mount.point.display());
    }
    let device = rustix::fs::makedev(major, minor);
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|path| device_of(&unescape(path)) == Some(device))
    {
        return "used as swap".into();
    }
    let holders = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders")).into_iter().flatten().flatten();
    if let Some(holder) = holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).next() {
        return format!("{UNDER} {holder}");
    }
    opener(device).unwrap_or_else(|| "claimed by the kernel or another program".into())
}

/// A process, other than this one, that has the device open.
fn opener(device: u64) -> Option<String> {
    let numbers = (rustix::fs::major(device), rustix::fs::minor(device));
    let pid = processes().into_iter().skip(1).find(|pid| open_devices(*pid).contains(&numbers))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("{OPEN_BY} {} (pid {pid})", name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_with_its_escapes() {
        let text = "36 35 7:3 / /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/loop3 rw\n\
                    37 35 0:44 / /proc rw - proc proc rw\n\
                    short\n";
        let mount = Mount { point: "/mnt/a b".into(), process: 1, id: 36, is_of_several: false };
        assert_eq!(mounts_in(1, text, "7:3", u64::MAX), [mount]);
        assert!(mounts_in(1, text, "7:4", u64::MAX).is_empty());
    }

    #[test]
    fn udev_has_more_grace_than_others_and_a_mount_has_none() {
        assert_eq!(grace("mounted on /srv/udev"), Duration::ZERO);
        assert_eq!(grace("open by dd (pid 7)"), GRACE);
        for udev in ["(udev-worker)", "systemd-udevd", "udevd"] {
            assert_eq!(grace(&format!("open by {udev} (pid 7)")), UDEV_GRACE);
        }
    }

    #[test]
    fn escapes_at_the_end_and_broken_ones_stay_as_they_are() {
        assert_eq!(unescape("a\\011"), PathBuf::from("a\t"));
        assert_eq!(unescape("a\\9"), PathBuf::from("a\\9"));
        assert_eq!(unescape("\\"), PathBuf::from("\\"));
    }
}
