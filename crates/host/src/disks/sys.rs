//! The system calls that disks need, each with its own little contract. No policy here.

use rowen_engine::disk::PageBuf;
use rustix::fs::{AtFlags, FallocateFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// From linux/fs.h.
const BLKROGET: libc::c_ulong = 0x125e;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Size of a block device in bytes.
pub fn device_size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut size = 0u64;
    // SAFETY: the request writes one u64 to a place that holds one.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as _, &mut size) })?;
    Ok(size)
}

/// Logical sector size of a block device.
pub fn device_sector(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut size: libc::c_int = 0;
    // SAFETY: the request writes one int to a place that holds one.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKSSZGET as _, &mut size) })?;
    Ok(size as u32)
}

pub fn device_is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut flag: libc::c_int = 0;
    // SAFETY: the request writes one int to a place that holds one.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKROGET as _, &mut flag) })?;
    Ok(flag != 0)
}

/// Tells a block device that a range is not needed any more.
pub fn device_discard(fd: RawFd, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: the request reads two u64 from a place that holds two.
    check(unsafe { libc::ioctl(fd, BLKDISCARD as _, &range) })
}

/// Smallest unit of direct I/O on an open regular file. `Some(0)`: none is possible. None: the kernel (before 6.1) or
/// the filesystem does not say.
pub fn direct_io_unit(fd: BorrowedFd<'_>) -> Option<u32> {
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor itself; the answer has room for a statx, and all
    // zeros are a valid one.
    let answer = unsafe {
        let flags = libc::AT_EMPTY_PATH;
        if libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_DIOALIGN, answer.as_mut_ptr()) < 0 {
            return None;
        }
        answer.assume_init()
    };
    (answer.stx_mask & libc::STATX_DIOALIGN != 0).then(|| {
        if answer.stx_dio_mem_align == 0 { 0 } else { answer.stx_dio_offset_align.max(answer.stx_dio_mem_align) }
    })
}

/// Turns O_DIRECT off on an open file.
pub fn buffered(fd: BorrowedFd<'_>) -> io::Result<()> {
    clear_flag(fd, libc::O_DIRECT)
}

fn clear_flag(fd: BorrowedFd<'_>, flag: libc::c_int) -> io::Result<()> {
    // SAFETY: these two commands take and return integers.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        check(flags)?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags & !flag))
    }
}

/// Holds a file for this open file description alone. False: somebody else has it.
pub fn lock_exclusive(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: no pointers.
    match check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes the lock away that [`lock_exclusive`] made.
pub fn unlock(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_UN) })
}

/// What `path` is, following symbolic links.
pub fn stat(path: &Path) -> io::Result<std::fs::Metadata> {
    std::fs::metadata(path)
}

/// Reads at an offset into memory of the caller's.
///
/// # Safety
/// `memory` must be valid for writes of `len` bytes.
pub unsafe fn read_at(fd: RawFd, memory: *mut u8, len: usize, offset: u64) -> i32 {
    // SAFETY: the caller's promise.
    result(unsafe { libc::pread(fd, memory.cast(), len, offset as libc::off_t) })
}

/// Writes at an offset from memory of the caller's.
///
/// # Safety
/// `memory` must be valid for reads of `len` bytes.
pub unsafe fn write_at(fd: RawFd, memory: *const u8, len: usize, offset: u64) -> i32 {
    // SAFETY: the caller's promise.
    result(unsafe { libc::pwrite(fd, memory.cast(), len, offset as libc::off_t) })
}

pub fn sync_data(fd: RawFd) -> i32 {
    // SAFETY: no pointers.
    result(unsafe { libc::fdatasync(fd) } as isize)
}

/// Gives a range of a regular file back to its filesystem.
pub fn punch(fd: RawFd, offset: u64, len: u64) -> i32 {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointers.
    result(unsafe { libc::fallocate(fd, mode, offset as libc::off_t, len as libc::off_t) } as isize)
}

/// A result in the ring's form: what was returned, or a negative error number.
fn result(returned: isize) -> i32 {
    if returned < 0 { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { returned as i32 }
}

/// Opens with flags as given. The descriptor closes on exec.
pub fn open(path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path =
        std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::ENOENT))?;
    // SAFETY: a terminated string; a non-negative result is a new descriptor that nobody else owns.
    let fd = unsafe {
        let fd = libc::open(path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_LARGEFILE);
        check(fd)?;
        OwnedFd::from_raw_fd(fd)
    };
    // Only opening was not to block, should the name lead to a pipe. Left on, a ring would answer EAGAIN to each
    // request that has to wait, instead of letting it wait.
    clear_flag(fd.as_fd(), libc::O_NONBLOCK)?;
    Ok(fd)
}

/// Gets room for a range of a regular file, whose contents stay as they are. Where the filesystem cannot set room aside, zeros are
/// written over the holes: nothing may write to the range meanwhile.
pub fn back(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return fill_holes(fd, offset, offset + len),
            done => return done,
        }
    }
}

/// Whether the kernel promises that a request that is not to wait does not wait. io_uring begins requests on the caller's thread, and
/// takes what has `poll` and is ready, such as a FUSE file, for a file that never waits (linux io_uring/rw.c,
/// `io_file_supports_nowait`).
pub fn promises_no_wait(fd: BorrowedFd<'_>) -> bool {
    let mut page = PageBuf::zeroed(4096);
    // Behind every end, so that no disk is asked.
    let offset = (i64::MAX as u64 & !0xfff) - (1 << 20);
    let mut memory = [io::IoSliceMut::new(page.as_mut_slice())];
    let read = rustix::io::preadv2(fd, &mut memory, offset, rustix::io::ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// The size of a file as the kernel knows it: a network filesystem is not asked.
pub fn known_size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, c"", flags, StatxFlags::SIZE).map(|found| found.stx_size)
}

/// Writes zeros over what a range does not hold yet.
fn fill_holes(fd: BorrowedFd<'_>, offset: u64, end: u64) -> Result<(), Errno> {
    let mut zeros = PageBuf::zeroed(256 << 10);
    let zeros = &*zeros.as_mut_slice();
    let mut at = offset;
    while at < end {
        let data = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            // No data behind it.
            Err(Errno::NXIO) => end,
            found => found?.min(end),
        };
        while at < data {
            // In whole pages, also with direct I/O: ranges are, and what has data begins with a block of the filesystem.
            let part = usize::try_from(data - at).unwrap_or(usize::MAX).min(zeros.len());
            at += rustix::io::pwrite(fd, &zeros[..part], at)? as u64;
        }
        at = match rustix::fs::seek(fd, SeekFrom::Hole(data)) {
            Err(Errno::NXIO) => end,
            found => found?,
        };
    }
    // A filesystem that places what is written later says so here.
    rustix::fs::fdatasync(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn holes_are_filled_and_nothing_else_changes() {
        let path = std::env::temp_dir().join(format!("rowen-holes-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let _is_gone_when_closed = std::fs::remove_file(&path);
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[7; 8192], 1 << 20).unwrap();
        fill_holes(file.as_fd(), 4096, 3 << 20).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 >= (3 << 20) - 4096, "there are holes");
        let mut bytes = vec![1; 4 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let own = 1 << 20..(1 << 20) + 8192;
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == if own.contains(&at) { 7 } else { 0 }));
    }
}
