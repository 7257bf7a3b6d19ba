//! Which block devices a process has open, from /proc. Open files are not touched, because any user can choose what a
//! file is and how it is called.
//!
//! * Links in /proc/PID/fd are read. Only those to a name below /dev are followed, to the file itself and to no path.
//! * Only questions that the kernel answers without asking a filesystem, so that no filesystem can make this wait.
//! * A name that the kernel lists (of a mount's source, of swap) is looked up only below /dev, and on no other
//!   filesystem: links there are the administrator's. In /dev/shm any user can make one.
//! * A file that was opened with `O_PATH` does not count as use: even a user who may not read the device can do that.

use crate::planted;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Statx, StatxFlags};
use std::ffi::CStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Major and minor number of a block device.
pub type Numbers = (u32, u32);

const BELOW_DEV: &[u8; 5] = b"/dev/";

/// The block devices that this process has open. None for a process that is gone or cannot be read.
pub fn open_devices(pid: u32) -> Vec<Numbers> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(format!("/proc/{pid}/fd"), flags, Mode::empty()) else { return Vec::new() };
    let mut devices = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(directory.as_fd(), &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        match is_below_dev(&directory, name) {
            Ok(true) => {}
            Ok(false) => continue,
            // The kernel refuses all of a process.
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => break,
            Err(_) => continue,
        }
        if let Some(numbers) = device_behind(&directory, name)
            && !is_place_only(pid, name)
        {
            devices.push(numbers);
        }
    }
    devices
}

/// The block device that a name below /dev leads to.
pub fn device_named(path: &Path) -> Option<Numbers> {
    let name = path.strip_prefix("/dev").ok().filter(|name| !name.as_os_str().is_empty())?;
    let place = OFlags::PATH | OFlags::CLOEXEC;
    let dev = rustix::fs::open("/dev", place | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(&dev, name, place, Mode::empty(), resolve).ok()?;
    block_device(rustix::fs::statx(&found, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?)
}

fn block_device(stat: Statx) -> Option<Numbers> {
    let is_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::BlockDevice;
    is_device.then_some((stat.stx_rdev_major, stat.stx_rdev_minor))
}

fn is_below_dev(directory: &OwnedFd, name: &CStr) -> rustix::io::Result<bool> {
    // "." and ".." are no links.
    let mut begins = [0; BELOW_DEV.len()];
    let read = match rustix::fs::readlinkat_raw(directory, name, &mut begins[..]) {
        Err(rustix::io::Errno::INVAL) => return Ok(false),
        read => read?,
    };
    Ok(read == BELOW_DEV.len() && begins == *BELOW_DEV)
}

fn device_behind(directory: &OwnedFd, name: &CStr) -> Option<Numbers> {
    block_device(rustix::fs::statx(directory, name, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?)
}

/// Whether the file was opened with `O_PATH`.
fn is_place_only(pid: u32, name: &CStr) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.to_string_lossy())).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlags::PATH.bits() != 0) && !planted::is("counts_places")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;

    /// No test may need a block device: which of the links are followed is seen at a character device.
    #[test]
    fn names_below_dev_are_distinguished_from_others_and_places_from_files() {
        let open = |path: &str, flags| rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap();
        let links = open("/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY);
        let name = |fd: &OwnedFd| std::ffi::CString::new(std::os::fd::AsRawFd::as_raw_fd(fd).to_string()).unwrap();
        let (null, place, root) =
            (open("/dev/null", OFlags::RDONLY), open("/dev/null", OFlags::PATH), open("/", OFlags::RDONLY));
        let pid = std::process::id();
        assert!(is_below_dev(&links, &name(&null)).unwrap() && is_below_dev(&links, &name(&place)).unwrap());
        assert!(!is_below_dev(&links, &name(&root)).unwrap() && !is_below_dev(&links, c".").unwrap());
        assert!(is_place_only(pid, &name(&place)) && !is_place_only(pid, &name(&null)));
        assert_eq!(device_behind(&links, &name(&null)), None, "a character device");
        assert!(open_devices(u32::MAX).is_empty());
    }
}
