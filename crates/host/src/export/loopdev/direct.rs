//! The calls to loop devices that may wait for the volume behind them. Only for helpers (H1).

use super::LoopDevice;
use crate::export::error::{Doing, Error, Result};
use crate::export::nodes::LOOP_MAJOR;
use crate::export::usage;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

// linux/loop.h and linux/fs.h
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4C04;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4C07;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const BLKROSET: libc::c_ulong = 0x125D;
const BLKFLSBUF: libc::c_ulong = 0x1261;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Other programs take free devices, too: how often a lost race is tried again.
const RACES: usize = 64;
/// How long a device may take to go once nothing uses it.
const GOING: Duration = Duration::from_secs(3);
/// Read ahead for buffered sequential readers; the default of 128 KiB is a fraction of one request.
const READ_AHEAD_KIB: u32 = 1024;

#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

const NO_INFO: LoopInfo64 = LoopInfo64 {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// `argument` must be what the request `number` expects: a plain number, or a pointer to its structure.
unsafe fn ioctl(fd: &OwnedFd, number: libc::c_ulong, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the descriptor is open; the caller vouches for the argument.
    match unsafe { libc::ioctl(fd.as_raw_fd(), number as _, argument) } {
        result if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn status(fd: &OwnedFd) -> io::Result<LoopInfo64> {
    let mut info = NO_INFO;
    // SAFETY: LOOP_GET_STATUS64 fills a LoopInfo64, which outlives the call.
    unsafe { ioctl(fd, LOOP_GET_STATUS64, &raw mut info as libc::c_ulong) }?;
    Ok(info)
}

fn mark_read_only(device: &OwnedFd, read_only: bool) -> io::Result<()> {
    let value = libc::c_int::from(read_only);
    // SAFETY: BLKROSET reads an int, which outlives the call.
    unsafe { ioctl(device, BLKROSET, &raw const value as libc::c_ulong) }.map(|_| ())
}

/// For a device that is released. The kernel would keep the read-only flag, and the next program that takes the device
/// would find it read-only. (The flag is cleared before the release: afterwards another program may already have the
/// device.)
fn leave_writable(device: &OwnedFd) {
    if let Err(e) = mark_read_only(device, false) {
        crate::journal::warn(format_args!("a loop device stays read-only: {e}"));
    }
}

/// Binds a free device to `file`.
pub fn attach(file: &Path, sector: u32, read_only: bool) -> Result<LoopDevice> {
    // Always opened for writing: a volume that is read-only now may be made writable later.
    let backing = rustix::fs::open(file, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
        .doing(|| format!("open {}", file.display()))?;
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .doing(|| "open /dev/loop-control (is the kernel's loop module loaded?)".into())?;
    for _ in 0..RACES {
        // SAFETY: LOOP_CTL_GET_FREE takes no argument.
        let number = unsafe { ioctl(&control, LOOP_CTL_GET_FREE, 0) }.doing(|| "find a free loop device".into())?;
        let device = LoopDevice { number: number as u32 };
        make_node(device).doing(|| format!("make {}", device.path().display()))?;
        match bind(device, &backing, file, sector) {
            Ok(()) => {
                return set_up(device, read_only).map(|()| device).inspect_err(|_| {
                    // The error that matters is the one that led here.
                    let _ = detach(device, || false);
                });
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::ENXIO)) => {}
            Err(e) => return Err(e).doing(|| format!("attach {} to {}", device.path().display(), file.display())),
        }
    }
    Err(Error::System {
        doing: format!("attach a loop device to {}", file.display()),
        source: io::Error::new(io::ErrorKind::ResourceBusy, "other programs took every free loop device; try again"),
    })
}

/// Where nobody makes nodes, as in a container with a `/dev` of its own, a device that is new to it has none.
fn make_node(device: LoopDevice) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, makedev, mknodat};
    if device.path().exists() {
        return Ok(());
    }
    let number = makedev(LOOP_MAJOR, device.number);
    match mknodat(CWD, device.path(), FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        made => Ok(made?),
    }
}

fn bind(device: LoopDevice, backing: &OwnedFd, file: &Path, sector: u32) -> io::Result<()> {
    let fd = open(device, OFlags::RDWR)?;
    let mut info = NO_INFO;
    info.flags = LO_FLAGS_DIRECT_IO;
    // Shown by old tools only; cut to what fits, with a NUL after it.
    let name = file.as_os_str().as_encoded_bytes();
    let shown = name.len().min(info.file_name.len() - 1);
    info.file_name[..shown].copy_from_slice(&name[..shown]);
    let config = LoopConfig { fd: backing.as_raw_fd() as u32, block_size: sector, info, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads a LoopConfig, which outlives the call.
    unsafe { ioctl(&fd, LOOP_CONFIGURE, &raw const config as libc::c_ulong) }.map(|_| ())
}

/// What cannot be said when binding.
fn set_up(device: LoopDevice, read_only: bool) -> Result<()> {
    // The kernel falls back to buffered I/O silently.
    if device.attribute("loop/dio")?.trim() != "1" {
        return Err(Error::System {
            doing: format!("use direct I/O on {}", device.path().display()),
            source: io::Error::new(io::ErrorKind::Unsupported, "the kernel fell back to buffered I/O"),
        });
    }
    let read_ahead = device.sys("queue/read_ahead_kb");
    fs::write(&read_ahead, READ_AHEAD_KIB.to_string()).doing(|| format!("write {}", read_ahead.display()))?;
    // The kernel keeps the setting of the last user of the device.
    set_read_only(device, read_only)
}

fn open(device: LoopDevice, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(device.path(), flags | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_named(device: LoopDevice, flags: OFlags) -> Result<OwnedFd> {
    open(device, flags).doing(|| format!("open {}", device.path().display()))
}

/// Takes over the file's new size.
pub fn update_size(device: LoopDevice) -> Result<()> {
    let fd = open_named(device, OFlags::RDONLY)?;
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    unsafe { ioctl(&fd, LOOP_SET_CAPACITY, 0) }
        .map(|_| ())
        .doing(|| format!("set the size of {}", device.path().display()))
}

pub fn set_read_only(device: LoopDevice, read_only: bool) -> Result<()> {
    mark_read_only(&open_named(device, OFlags::RDONLY)?, read_only)
        .doing(|| format!("make {} {}", device.path().display(), if read_only { "read-only" } else { "writable" }))
}

/// Writes out what is cached of the device, and forgets it: the next read shows the volume's new contents.
pub fn flush_cache(device: LoopDevice) -> Result<()> {
    sync(device)?;
    let fd = open_named(device, OFlags::RDONLY)?;
    // SAFETY: BLKFLSBUF takes no argument.
    unsafe { ioctl(&fd, BLKFLSBUF, 0) }.map(|_| ()).doing(|| format!("drop the cache of {}", device.path().display()))
}

/// Frees the device and waits until it is free. When something still uses it, it stays as it is and this fails.
pub fn detach(device: LoopDevice, is_gone: impl Fn() -> bool) -> Result<()> {
    let bound = device.backing();
    let read_only;
    {
        let fd = match open(device, OFlags::RDONLY) {
            Ok(fd) => fd,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENXIO | libc::ENOENT)) => return Ok(()),
            Err(e) => return Err(e).doing(|| format!("open {}", device.path().display())),
        };
        if is_gone() {
            return Ok(());
        }
        read_only = device.is_read_only();
        leave_writable(&fd);
        // SAFETY: LOOP_CLR_FD takes no argument.
        match unsafe { ioctl(&fd, LOOP_CLR_FD, 0) } {
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
            Err(e) => return Err(e).doing(|| format!("detach {}", device.path().display())),
        }
    }
    let begun = Instant::now();
    let mut grace = GOING;
    while device.backing().is_some() && device.backing() == bound {
        if begun.elapsed() > grace {
            let (major, minor) = device.numbers()?;
            // One that cannot be asked any more is just going.
            let user = is_claimed(major, minor).map_or(None, |claimed| usage::user_of(claimed, major, minor));
            grace = user.as_deref().map_or(GOING, usage::grace).max(GOING);
            if begun.elapsed() > grace {
                return stay(device, read_only, user);
            }
        }
        // H7: a killed server has a successor, which uses the devices that it finds.
        if is_gone() {
            return stay(device, read_only, None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Frees the device as soon as nothing uses it any more; does not wait.
pub fn abandon(device: LoopDevice) {
    if let Ok(fd) = open(device, OFlags::RDONLY) {
        leave_writable(&fd);
        // SAFETY: LOOP_CLR_FD takes no argument. A device that is free already is what is wanted.
        let _ = unsafe { ioctl(&fd, LOOP_CLR_FD, 0) };
    }
}

/// Writes out what is cached of the device.
pub fn sync(device: LoopDevice) -> Result<()> {
    let fd = open_named(device, OFlags::RDONLY)?;
    rustix::fs::fsync(&fd).doing(|| format!("write out {}", device.path().display()))
}

/// Cancels a detach that waits for the last user.
fn stay(device: LoopDevice, read_only: bool, user: Option<String>) -> Result<()> {
    let fd = open_named(device, OFlags::RDONLY)?;
    let doing = || format!("keep {}", device.path().display());
    let mut info = match status(&fd) {
        Ok(info) => info,
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
        Err(e) => return Err(e).doing(doing),
    };
    info.flags &= !LO_FLAGS_AUTOCLEAR;
    // SAFETY: LOOP_SET_STATUS64 reads a LoopInfo64, which outlives the call.
    unsafe { ioctl(&fd, LOOP_SET_STATUS64, &raw const info as libc::c_ulong) }.doing(doing)?;
    set_read_only(device, read_only)?;
    let user = user.unwrap_or_else(|| "another program keeps it open".into());
    Err(Error::InUse { device: device.path().display().to_string(), user })
}

/// Whether the kernel (a mount, swap, a device on top) or a process holds the device of these numbers exclusively.
pub fn is_claimed(major: u32, minor: u32) -> Result<bool> {
    let name =
        fs::read_link(format!("/sys/dev/block/{major}:{minor}")).doing(|| format!("find device {major}:{minor}"))?;
    let path = Path::new("/dev").join(name.file_name().unwrap_or_default());
    match rustix::fs::open(&path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Ok(false),
        Err(rustix::io::Errno::BUSY) => Ok(true),
        Err(e) => Err(e).doing(|| format!("open {}", path.display())),
    }
}
