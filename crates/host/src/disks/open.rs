//! Opening one physical volume: what it is, how big, how it is held, and whether direct I/O works on it.
//!
//! The hold is on the same open file description that the rings use. So it outlives a killed process exactly as long as
//! that process's last writes are in flight, and a successor with the hold meets no late write.

use super::error::{OpenError, Reason};
use super::{MISSING, OpenMode, holders, sys};
use rowen_engine::disk::{DiscardLimits, PvGeometry};
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Less than this has no room for any metadata.
pub const MIN_SIZE: u64 = 1 << 20;

/// Kinds of files that are not disks.
pub const KINDS: &[&str] = &["a directory", "a character device", "a pipe", "a socket", "something else"];
/// The steps at which opening may fail.
pub const STEPS: &[&str] = &[
    "opening it",
    "asking whether it is read-only",
    "locking it",
    "asking for its size",
    "asking for its sector size",
    "turning direct I/O off",
];

/// An open physical volume.
pub struct Opened {
    pub fd: OwnedFd,
    pub geometry: PvGeometry,
    pub is_device: bool,
    /// A rotating disk.
    pub turns: bool,
    /// Whether requests bypass the page cache.
    pub direct: bool,
}

/// Stands for a disk that is missing: it has no bytes, so that every request to it fails.
fn nothing(path: &Path) -> Result<Opened, OpenError> {
    let fd = rustix::fs::memfd_create("rowen-missing", rustix::fs::MemfdFlags::CLOEXEC);
    let fd = fd.map_err(|e| refused(path, e.into()))?;
    Ok(Opened { fd, geometry: PvGeometry { size: 0, sector: 512 }, is_device: false, turns: false, direct: true })
}

pub fn open(path: &Path, mode: OpenMode) -> Result<Opened, OpenError> {
    if path == Path::new(MISSING) {
        return nothing(path);
    }
    let meta = sys::stat(path).map_err(|e| refused(path, e))?;
    let is_device = kind_of(path, &meta)?;
    if mode != OpenMode::ReadOnly {
        refuse_foreign_use(path, &meta, is_device)?;
    }
    let (fd, mut direct) = open_fd(path, mode, is_device).map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => in_use(path, &meta, is_device),
        // Root is refused a device for writing only if the device is read-only.
        Some(libc::EACCES | libc::EPERM) if is_device && device_is_read_only(path) => {
            OpenError::new(path, Reason::ReadOnly)
        }
        _ => refused(path, e),
    })?;
    if mode != OpenMode::ReadOnly {
        hold(path, &fd, &meta, is_device, mode)?;
    }
    let geometry = geometry(path, &fd, is_device, &mut direct)?;
    if geometry.size < MIN_SIZE {
        return Err(OpenError::new(path, Reason::TooSmall { size: geometry.size, least: MIN_SIZE }));
    }
    let turns = is_device && holders::turns(Path::new("/sys"), meta.rdev());
    Ok(Opened { fd, geometry, is_device, turns, direct })
}

/// Most filesystems can punch holes in files; devices report their granularity. A granularity above a megabyte would
/// leave little to discard, and one that is not a power of two cannot be aligned to. In both cases the device decides.
pub fn discards(opened: &Opened) -> DiscardLimits {
    const LARGEST: u64 = 1 << 20;
    let Opened { fd, geometry, is_device, .. } = opened;
    let Ok(stat) = rustix::fs::fstat(fd) else { return DiscardLimits::default() };
    if !is_device {
        let is_whole = stat.st_blocks as u64 * 512 >= geometry.size;
        return DiscardLimits { is_whole, ..DiscardLimits::default() };
    }
    let granularity = match holders::discards(Path::new("/sys"), stat.st_rdev) {
        Some(0) => 0,
        Some(bytes) if bytes <= LARGEST && bytes.is_power_of_two() => bytes.max(u64::from(geometry.sector)) as u32,
        _ => 4096,
    };
    DiscardLimits { granularity, is_whole: false }
}

fn kind_of(path: &Path, meta: &Metadata) -> Result<bool, OpenError> {
    let kind = meta.file_type();
    let what = if kind.is_block_device() {
        return Ok(true);
    } else if kind.is_file() {
        return Ok(false);
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "something else"
    };
    Err(OpenError::new(path, Reason::NotADisk(what)))
}

fn refused(path: &Path, e: io::Error) -> OpenError {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => {
            OpenError::new(path, Reason::Missing)
        }
        Some(libc::EROFS) => OpenError::new(path, Reason::ReadOnly),
        _ => OpenError::system(path, "opening it", e),
    }
}

/// A device with a mounted filesystem, or a file behind a loop device, has an owner that Rowen's locks cannot see.
fn refuse_foreign_use(path: &Path, meta: &Metadata, is_device: bool) -> Result<(), OpenError> {
    if is_device {
        if let Some(at) = holders::mounted_at(meta.rdev()) {
            return Err(OpenError::new(path, Reason::Mounted { at }));
        }
    } else if let Some(by) = holders::loop_device_of(path) {
        return Err(OpenError::new(path, Reason::InUse { by: Some(by) }));
    }
    Ok(())
}

fn in_use(path: &Path, meta: &Metadata, is_device: bool) -> OpenError {
    let by = if is_device { holders::stacked_on(meta.rdev()) } else { holders::locker_of(meta) };
    OpenError::new(path, Reason::InUse { by })
}

fn device_is_read_only(path: &Path) -> bool {
    sys::open(path, libc::O_RDONLY).and_then(|fd| sys::device_is_read_only(fd.as_fd())).unwrap_or(false)
}

fn open_fd(path: &Path, mode: OpenMode, is_device: bool) -> io::Result<(OwnedFd, bool)> {
    let flags = match mode {
        OpenMode::ReadOnly => libc::O_RDONLY,
        // On a block device O_EXCL is the kernel's own hold: against mounts, device-mapper and a second opener.
        OpenMode::Exclusive if is_device => libc::O_RDWR | libc::O_EXCL,
        OpenMode::Exclusive => libc::O_RDWR,
        OpenMode::ExclusiveReadOnly if is_device => libc::O_RDONLY | libc::O_EXCL,
        OpenMode::ExclusiveReadOnly => libc::O_RDONLY,
    };
    match sys::open(path, flags | libc::O_DIRECT) {
        Ok(fd) => Ok((fd, true)),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok((sys::open(path, flags)?, false)),
        Err(e) => Err(e),
    }
}

fn hold(path: &Path, fd: &OwnedFd, meta: &Metadata, is_device: bool, mode: OpenMode) -> Result<(), OpenError> {
    if is_device && mode == OpenMode::ExclusiveReadOnly {
        return Ok(());
    }
    if is_device {
        let read_only = sys::device_is_read_only(fd.as_fd());
        return match read_only.map_err(|e| OpenError::system(path, "asking whether it is read-only", e))? {
            true => Err(OpenError::new(path, Reason::ReadOnly)),
            false => Ok(()),
        };
    }
    match sys::lock_exclusive(fd.as_fd()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(in_use(path, meta, false)),
        Err(e) => Err(OpenError::system(path, "locking it", e)),
    }
}

fn geometry(path: &Path, fd: &OwnedFd, is_device: bool, direct: &mut bool) -> Result<PvGeometry, OpenError> {
    let failed = |doing| move |e| OpenError::system(path, doing, e);
    let (size, sector) = if is_device {
        let size = sys::device_size(fd.as_fd()).map_err(failed("asking for its size"))?;
        let sector = sys::device_sector(fd.as_fd()).map_err(failed("asking for its sector size"))?;
        (size, if sector <= 512 { 512 } else { 4096 })
    } else {
        // Asked of the open file: the name may lead elsewhere by now.
        let size = rustix::fs::fstat(fd).map_err(|e| OpenError::system(path, "asking for its size", e.into()))?;
        let unit = if *direct { sys::direct_io_unit(fd.as_fd()) } else { Some(0) };
        let sector = match unit {
            Some(0) => {
                *direct = false;
                512
            }
            Some(unit) if unit <= 512 => 512,
            Some(_) | None => 4096,
        };
        (size.st_size as u64, sector)
    };
    if *direct && !direct_read_works(fd) {
        *direct = false;
    }
    if !*direct {
        sys::buffered(fd.as_fd()).map_err(failed("turning direct I/O off"))?;
    }
    Ok(PvGeometry { size: size - size % u64::from(sector), sector })
}

/// Some filesystems accept O_DIRECT and then refuse each request. (An empty file answers zero bytes: fine.)
fn direct_read_works(fd: &OwnedFd) -> bool {
    let mut page = rowen_engine::disk::PageBuf::zeroed(4096);
    let memory = page.as_mut_slice();
    // SAFETY: the memory is as long as we say.
    let result = unsafe { sys::read_at(fd.as_raw_fd(), memory.as_mut_ptr(), memory.len(), 0) };
    result != -libc::EINVAL && result != -libc::EOPNOTSUPP
}
