//! Loop devices: the block device in front of a volume's file.
//!
//! Direct I/O, so that nothing is cached twice; the sector size is the volume's; whether it may be written is a flag of
//! the block device, which can change while it is open. Every call here may make the kernel send requests to the
//! volume's file, so none of them may run on a worker that serves it.

use super::error::{Doing, Error, Result};
use super::usage;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
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

/// Others take free devices too: so often is a lost race tried again.
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

/// For a device that is given back. The kernel keeps the mark when the file goes, and the next program that takes the device
/// would find it read-only. (The mark goes before the file does: afterwards the device may be somebody else's already.)
fn leave_writable(device: &OwnedFd) {
    if let Err(e) = mark_read_only(device, false) {
        eprintln!("a loop device stays read-only: {e}");
    }
}

/// A loop device, bound or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoopDevice {
    pub number: u32,
}

impl LoopDevice {
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
            match device.bind(&backing, file, sector) {
                Ok(()) => {
                    return device.set_up(read_only).map(|()| device).inspect_err(|_| {
                        // The error that matters is the one that led here.
                        let _ = device.detach();
                    });
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::ENXIO)) => continue,
                Err(e) => return Err(e).doing(|| format!("attach {} to {}", device.path().display(), file.display())),
            }
        }
        Err(Error::System {
            doing: format!("attach a loop device to {}", file.display()),
            source: io::Error::new(io::ErrorKind::ResourceBusy, "others took every free one first; try again"),
        })
    }

    fn bind(self, backing: &OwnedFd, file: &Path, sector: u32) -> io::Result<()> {
        let device = self.open(OFlags::RDWR)?;
        let mut info = NO_INFO;
        info.flags = LO_FLAGS_DIRECT_IO;
        // Shown by old tools only; cut to what fits, with a NUL after it.
        let name = file.as_os_str().as_encoded_bytes();
        let shown = name.len().min(info.file_name.len() - 1);
        info.file_name[..shown].copy_from_slice(&name[..shown]);
        let config = LoopConfig { fd: backing.as_raw_fd() as u32, block_size: sector, info, reserved: [0; 8] };
        // SAFETY: LOOP_CONFIGURE reads a LoopConfig, which outlives the call.
        unsafe { ioctl(&device, LOOP_CONFIGURE, &raw const config as libc::c_ulong) }.map(|_| ())
    }

    /// What cannot be said when binding.
    fn set_up(self, read_only: bool) -> Result<()> {
        // The kernel falls back to buffered I/O silently.
        if self.attribute("loop/dio")?.trim() != "1" {
            return Err(Error::System {
                doing: format!("use direct I/O on {}", self.path().display()),
                source: io::Error::new(io::ErrorKind::Unsupported, "the kernel fell back to buffered I/O"),
            });
        }
        let read_ahead = self.sys("queue/read_ahead_kb");
        fs::write(&read_ahead, READ_AHEAD_KIB.to_string()).doing(|| format!("write {}", read_ahead.display()))?;
        // The kernel keeps what the last user of the device said.
        self.set_read_only(read_only)
    }

    pub fn path(self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    pub(super) fn sys(self, attribute: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/loop{}/{attribute}", self.number))
    }

    fn attribute(self, name: &str) -> Result<String> {
        let path = self.sys(name);
        fs::read_to_string(&path).doing(|| format!("read {}", path.display()))
    }

    fn open(self, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(self.path(), flags | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn open_named(self, flags: OFlags) -> Result<OwnedFd> {
        self.open(flags).doing(|| format!("open {}", self.path().display()))
    }

    /// Major and minor number.
    pub fn numbers(self) -> Result<(u32, u32)> {
        let text = self.attribute("dev")?;
        let parsed =
            text.trim().split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parsed.ok_or_else(|| Error::System {
            doing: format!("read {}", self.sys("dev").display()),
            source: io::Error::new(io::ErrorKind::InvalidData, format!("\"{}\" is no device number", text.trim())),
        })
    }

    /// The file that the device is bound to; none when it is free.
    pub fn backing(self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.sys("loop/backing_file")).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// The same for a device known by its numbers (a number of minors per device may be set, so they are not its name).
    pub fn backing_of(major: u32, minor: u32) -> Option<PathBuf> {
        let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// Takes over the file's new size.
    pub fn update_size(self) -> Result<()> {
        let device = self.open_named(OFlags::RDONLY)?;
        // SAFETY: LOOP_SET_CAPACITY takes no argument.
        unsafe { ioctl(&device, LOOP_SET_CAPACITY, 0) }
            .map(|_| ())
            .doing(|| format!("set the size of {}", self.path().display()))
    }

    /// Whether writes to it are refused.
    pub fn is_read_only(self) -> bool {
        self.attribute("ro").is_ok_and(|text| text.trim() == "1")
    }

    pub fn set_read_only(self, read_only: bool) -> Result<()> {
        mark_read_only(&self.open_named(OFlags::RDONLY)?, read_only)
            .doing(|| format!("make {} {}", self.path().display(), if read_only { "read-only" } else { "writable" }))
    }

    /// Writes out what is cached of the device, and forgets it: the next read shows the volume's new contents.
    pub fn flush_cache(self) -> Result<()> {
        self.sync()?;
        let device = self.open_named(OFlags::RDONLY)?;
        // SAFETY: BLKFLSBUF takes no argument.
        unsafe { ioctl(&device, BLKFLSBUF, 0) }
            .map(|_| ())
            .doing(|| format!("drop the cache of {}", self.path().display()))
    }

    /// Frees the device and waits until it is free. When something still uses it, it stays as it is and this fails.
    pub fn detach(self) -> Result<()> {
        let bound = self.backing();
        let read_only;
        {
            let device = match self.open(OFlags::RDONLY) {
                Ok(device) => device,
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENXIO | libc::ENOENT)) => return Ok(()),
                Err(e) => return Err(e).doing(|| format!("open {}", self.path().display())),
            };
            read_only = self.is_read_only();
            leave_writable(&device);
            // SAFETY: LOOP_CLR_FD takes no argument.
            match unsafe { ioctl(&device, LOOP_CLR_FD, 0) } {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
                Err(e) => return Err(e).doing(|| format!("detach {}", self.path().display())),
            }
        }
        let begun = Instant::now();
        let mut patience = GOING;
        while self.backing().is_some() && self.backing() == bound {
            if begun.elapsed() > patience {
                let (major, minor) = self.numbers()?;
                // One that cannot be asked any more is just going.
                let user = usage::in_use(major, minor).unwrap_or(None);
                patience = user.as_deref().map_or(GOING, usage::patience).max(GOING);
                if begun.elapsed() > patience {
                    return self.stay(read_only, user);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Frees the device as soon as nothing uses it any more; does not wait.
    pub fn abandon(self) {
        if let Ok(device) = self.open(OFlags::RDONLY) {
            leave_writable(&device);
            // SAFETY: LOOP_CLR_FD takes no argument. A device that is free already is what is wanted.
            let _ = unsafe { ioctl(&device, LOOP_CLR_FD, 0) };
        }
    }

    /// Size in bytes.
    pub fn size(self) -> Result<u64> {
        let sectors: u64 = self
            .attribute("size")?
            .trim()
            .parse()
            .map_err(io::Error::other)
            .doing(|| format!("read the size of {}", self.path().display()))?;
        Ok(sectors * 512)
    }

    /// Writes out what is cached of the device.
    pub fn sync(self) -> Result<()> {
        let device = self.open_named(OFlags::RDONLY)?;
        rustix::fs::fsync(&device).doing(|| format!("write out {}", self.path().display()))
    }

    /// Takes back a detach that waits for the last user.
    fn stay(self, read_only: bool, user: Option<String>) -> Result<()> {
        let device = self.open_named(OFlags::RDONLY)?;
        let doing = || format!("keep {}", self.path().display());
        let mut info = match status(&device) {
            Ok(info) => info,
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
            Err(e) => return Err(e).doing(doing),
        };
        info.flags &= !LO_FLAGS_AUTOCLEAR;
        // SAFETY: LOOP_SET_STATUS64 reads a LoopInfo64, which outlives the call.
        unsafe { ioctl(&device, LOOP_SET_STATUS64, &raw const info as libc::c_ulong) }.doing(doing)?;
        self.set_read_only(read_only)?;
        let user = user.unwrap_or_else(|| "something keeps it open".into());
        Err(Error::InUse { device: self.path().display().to_string(), user })
    }
}

/// All bound loop devices whose file lies in `directory`, with that file.
pub fn bound_in(directory: &Path) -> Vec<(LoopDevice, PathBuf)> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok());
    let devices = numbers.map(|number| LoopDevice { number });
    let mut ours: Vec<_> = devices
        .filter_map(|device| Some((device, device.backing()?)))
        .filter(|(_, file)| file.parent() == Some(directory))
        .collect();
    ours.sort();
    ours
}
