//! Who uses a block device, and holding its filesystems still.
//!
//! The kernel says "busy" and no more. An administrator wants to know who: here the mounts of every mount namespace,
//! swap, devices stacked on top and open files are looked through, the cheap questions first. All of it blocks.

use super::error::{Doing, Error, Result};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

// linux/fs.h: _IOWR('X', 119, int), _IOWR('X', 120, int)
const FIFREEZE: libc::c_ulong = 0xC004_5877;
const FITHAW: libc::c_ulong = 0xC004_5878;

/// A mount of a device: where it is, as seen by `process`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub process: u32,
}

impl Mount {
    /// The mount point as this process can reach it, also when it is in another mount namespace.
    pub fn reachable(&self) -> PathBuf {
        let inside = self.point.strip_prefix("/").unwrap_or(&self.point);
        Path::new("/proc").join(self.process.to_string()).join("root").join(inside)
    }
}

fn device_of(path: &Path) -> Option<u64> {
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_block_device().then(|| meta.rdev())
}

/// Undoes the octal escapes of /proc (`\040` is a space).
fn unescape(field: &str) -> PathBuf {
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

/// The mount points in a mountinfo file that show the device. Filesystems over several devices (btrfs) carry a number of
/// their own, so their source is looked at too.
fn mounts_in(mountinfo: &str, numbers: &str, device: u64) -> Vec<PathBuf> {
    let shows_device = |line: &&str| {
        let shown = line.split(' ').nth(2).unwrap_or_default();
        let source = || line.split_once(" - ").and_then(|(_, tail)| tail.split(' ').nth(1)).map(unescape);
        let is_of_several = shown.starts_with("0:");
        shown == numbers
            || is_of_several && source().is_some_and(|path| path.is_absolute() && device_of(&path) == Some(device))
    };
    mountinfo.lines().filter(shows_device).filter_map(|line| line.split(' ').nth(4)).map(unescape).collect()
}

/// How often all processes were gone through: where there are thousands, each time takes milliseconds.
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

/// What is mounted in every mount namespace that some process lives in, as it was at one time: to look for several devices
/// in it takes one pass over the processes.
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
        let of_view = |(process, mountinfo): &(u32, String)| {
            let process = *process;
            mounts_in(mountinfo, &numbers, device).into_iter().map(move |point| Mount { point, process })
        };
        self.views.iter().flat_map(of_view).collect()
    }
}

/// Every mount of the device, in every mount namespace that some process lives in.
pub fn mounts_of(major: u32, minor: u32) -> Vec<Mount> {
    Mounts::read().of(major, minor)
}

/// So long a device may be open without being in use: whoever looks through all devices opens each for a moment.
const GLANCE: Duration = Duration::from_millis(500);
/// The same for udev, which looks at each device that was written to: what mkfs has made is removed at once now and then,
/// and udev is never the reason to refuse that. It takes as long as the host is slow; a bound all the same.
const UDEV_GLANCE: Duration = Duration::from_secs(60);
/// How a use that is but an open file is told.
const OPEN_BY: &str = "open by";
/// How often it is looked again.
const AGAIN: Duration = Duration::from_millis(20);

/// How long such a use may last without counting.
pub(super) fn patience(user: &str) -> Duration {
    match user.strip_prefix(OPEN_BY) {
        Some(program) if program.contains("udev") => UDEV_GLANCE,
        Some(_) => GLANCE,
        None => Duration::ZERO,
    }
}

/// The same as [`in_use`] of what stays: a file that is closed soon ([`patience`]) is none, as for LVM, which tries again, too.
pub fn in_lasting_use(major: u32, minor: u32) -> Result<Option<String>> {
    let begun = Instant::now();
    loop {
        match in_use(major, minor)? {
            Some(user) if begun.elapsed() < patience(&user) => std::thread::sleep(AGAIN),
            answer => return Ok(answer),
        }
    }
}

/// What uses the device, in words; none: nothing does. Files that this process has open do not count.
pub fn in_use(major: u32, minor: u32) -> Result<Option<String>> {
    if let Some(claimant) = claimed_by(major, minor)? {
        return Ok(Some(claimant));
    }
    Ok(opener(rustix::fs::makedev(major, minor)))
}

/// Who holds the device exclusively, in words. Processes are looked through only when there is somebody.
pub fn claimed_by(major: u32, minor: u32) -> Result<Option<String>> {
    Ok(is_claimed(major, minor)?.then(|| claimant(major, minor)))
}

/// Whether the kernel (a mount, swap, a device on top) or a process holds the device exclusively.
fn is_claimed(major: u32, minor: u32) -> Result<bool> {
    let name =
        fs::read_link(format!("/sys/dev/block/{major}:{minor}")).doing(|| format!("find device {major}:{minor}"))?;
    let path = Path::new("/dev").join(name.file_name().unwrap_or_default());
    match rustix::fs::open(&path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Ok(false),
        Err(rustix::io::Errno::BUSY) => Ok(true),
        Err(e) => Err(e).doing(|| format!("open {}", path.display())),
    }
}

fn claimant(major: u32, minor: u32) -> String {
    if let Some(mount) = mounts_of(major, minor).first() {
        return format!("mounted on {}", mount.point.display());
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
        return format!("used by the device {holder}");
    }
    opener(device).unwrap_or_else(|| "claimed by the kernel or another program".into())
}

/// A process, other than this one, that has the device open.
fn opener(device: u64) -> Option<String> {
    let has_it_open = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.map(|file| file.path()).any(|path| device_of(&path) == Some(device))
    };
    let pid = processes().into_iter().skip(1).find(has_it_open)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("{OPEN_BY} {} (pid {pid})", name.trim()))
}

fn control(point: &Path, request: libc::c_ulong) -> io::Result<()> {
    let file = File::open(point)?;
    // SAFETY: FIFREEZE and FITHAW take no argument that is read.
    match unsafe { libc::ioctl(file.as_raw_fd(), request as _, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Filesystems held still. Thaws them when dropped; then on a thread of its own, since thawing writes and so may need
/// the worker that drops this. [`FrozenGuard::thaw`] waits for it.
#[derive(Default)]
pub struct FrozenGuard {
    /// Frozen mount points, and the files that say so to a successor of this process.
    frozen: Vec<PathBuf>,
    markers: Vec<PathBuf>,
}

/// Freezes every filesystem on the device, which these are the mounts of: what it wrote is on the device, and nothing more is
/// written until the guard goes. `marker` names a file that exists for as long: a process that finds it after a crash must thaw
/// ([`thaw_left_over`]). A device without a mounted filesystem freezes at once.
pub fn freeze(mounts: &[Mount], (major, minor): (u32, u32), marker: &Path) -> Result<FrozenGuard> {
    let mut guard = FrozenGuard::default();
    if mounts.is_empty() {
        return Ok(guard);
    }
    fs::write(marker, format!("{major}:{minor}\n")).doing(|| format!("write {}", marker.display()))?;
    guard.markers.push(marker.to_path_buf());
    let mut seen = BTreeSet::new();
    for mount in mounts {
        let point = mount.reachable();
        // Bind mounts show one filesystem several times.
        let filesystem = fs::metadata(&point).map(|meta| meta.dev()).unwrap_or_default();
        if !seen.insert(filesystem) {
            continue;
        }
        match control(&point, FIFREEZE) {
            Ok(()) => guard.frozen.push(point),
            // A subvolume of what is frozen already, by us; or the filesystem cannot be frozen and needs no holding.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && !guard.frozen.is_empty() => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)) => {}
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                return Err(Error::InUse {
                    device: mount.point.display().to_string(),
                    user: "it is frozen by another program".into(),
                });
            }
            Err(e) => return Err(e).doing(|| format!("freeze {}", mount.point.display())),
        }
    }
    Ok(guard)
}

impl FrozenGuard {
    /// Adds what another guard holds.
    pub fn join(&mut self, mut other: FrozenGuard) {
        self.frozen.append(&mut other.frozen);
        self.markers.append(&mut other.markers);
    }

    /// Thaws, and waits until it is done. Blocks.
    pub fn thaw(mut self) {
        release(std::mem::take(&mut self.frozen), std::mem::take(&mut self.markers));
    }
}

impl Drop for FrozenGuard {
    fn drop(&mut self) {
        let (frozen, markers) = (std::mem::take(&mut self.frozen), std::mem::take(&mut self.markers));
        if markers.is_empty() {
            return;
        }
        let (again, again_markers) = (frozen.clone(), markers.clone());
        if std::thread::Builder::new().name("rowen-thaw".into()).spawn(move || release(frozen, markers)).is_err() {
            release(again, again_markers);
        }
    }
}

fn release(frozen: Vec<PathBuf>, markers: Vec<PathBuf>) {
    for point in frozen.iter().rev() {
        // EINVAL: somebody thawed it already.
        if let Err(e) = control(point, FITHAW)
            && e.raw_os_error() != Some(libc::EINVAL)
        {
            eprintln!("cannot thaw {}: {e}; run fsfreeze --unfreeze on it", point.display());
        }
    }
    for marker in markers {
        let _ = fs::remove_file(marker);
    }
}

/// Thaws what a process that died had frozen, by the marker it left.
pub fn thaw_left_over(marker: &Path) {
    let text = fs::read_to_string(marker).unwrap_or_default();
    let numbers =
        text.trim().split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    if let Some((major, minor)) = numbers {
        let points = mounts_of(major, minor).iter().map(Mount::reachable).collect();
        release(points, vec![marker.to_path_buf()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_with_its_escapes() {
        let text = "36 35 7:3 / /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/loop3 rw\n\
                    37 35 0:44 / /proc rw - proc proc rw\n\
                    short\n";
        assert_eq!(mounts_in(text, "7:3", u64::MAX), [PathBuf::from("/mnt/a b")]);
        assert!(mounts_in(text, "7:4", u64::MAX).is_empty());
    }

    #[test]
    fn udev_may_look_for_longer_than_others_and_a_mount_is_no_look() {
        assert_eq!(patience("mounted on /srv/udev"), Duration::ZERO);
        assert_eq!(patience("open by dd (pid 7)"), GLANCE);
        for udev in ["(udev-worker)", "systemd-udevd", "udevd"] {
            assert_eq!(patience(&format!("open by {udev} (pid 7)")), UDEV_GLANCE);
        }
    }

    #[test]
    fn escapes_at_the_end_and_broken_ones_stay_as_they_are() {
        assert_eq!(unescape("a\\011"), PathBuf::from("a\t"));
        assert_eq!(unescape("a\\9"), PathBuf::from("a\\9"));
        assert_eq!(unescape("\\"), PathBuf::from("\\"));
    }
}
