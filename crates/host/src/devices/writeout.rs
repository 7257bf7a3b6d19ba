//! Writes out a sparse file: fills its holes with zeros, so that later writes need no allocation.
//!
//! The contents do not change, so this can be interrupted and started again at any time.

use super::error::Error;
use super::plain::Plain;
use rowen_engine::disk::PageBuf;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Bytes in one request.
const TOGETHER: usize = 4 << 20;
/// Ranges are whole pages: with direct I/O, too.
const PAGE: u64 = 4096;

/// Bytes of holes in the regular file at `path`; 0 if it is not a regular file.
pub fn without_room(path: &Path) -> u64 {
    let Ok(meta) = std::fs::metadata(path) else { return 0 };
    let blocks = std::os::unix::fs::MetadataExt::blocks(&meta);
    if meta.is_file() { meta.len().saturating_sub(blocks * 512) } else { 0 }
}

/// Writes out the file at `path`, and reports progress. Returns how many bytes were written.
pub fn write_out(path: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<u64, Error> {
    let path = std::path::absolute(path).map_err(|e| failed(path, "find", e))?;
    let opened = Plain::hold(&path)?.into_opened();
    if opened.is_device {
        let why = io::Error::new(io::ErrorKind::InvalidInput, "it is a block device: only files have holes");
        return Err(failed(&path, "write out", why));
    }
    let size = opened.geometry.size / PAGE * PAGE;
    let fd = opened.fd.as_fd();
    let wanted = without_room(&path);
    let room = rustix::fs::fstatvfs(fd).map_err(|e| failed(&path, "ask for the room behind", e.into()))?;
    let free = room.f_bfree.saturating_mul(room.f_frsize);
    if wanted > free {
        let why =
            format!("it needs {wanted} bytes more, and its filesystem has {free}; make room, or make the file smaller");
        return Err(failed(&path, "write out", io::Error::new(io::ErrorKind::StorageFull, why)));
    }
    let holes = holes(fd, size).map_err(|e| failed(&path, "look for holes in", e.into()))?;
    let total = holes.iter().map(|hole| hole.end - hole.start).sum();
    fill(&path, fd, &holes, &mut |done| tell(done, total))?;
    rustix::fs::fsync(fd).map_err(|e| failed(&path, "flush", e.into()))?;
    Ok(total)
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> Error {
    Error::Io { path: PathBuf::from(path), what, source }
}

/// The holes, in order. Allocated but unwritten room is a hole, too.
fn holes(fd: BorrowedFd<'_>, size: u64) -> Result<Vec<Range<u64>>, Errno> {
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size {
        let hole = rustix::fs::seek(fd, SeekFrom::Hole(at))?.next_multiple_of(PAGE);
        if hole >= size {
            break;
        }
        at = match rustix::fs::seek(fd, SeekFrom::Data(hole)) {
            // Nothing behind it.
            Err(Errno::NXIO) => size,
            data => (data? / PAGE * PAGE).clamp(hole, size),
        };
        if hole < at {
            holes.push(hole..at);
        } else {
            at = hole + PAGE;
        }
    }
    Ok(holes)
}

fn fill(path: &Path, fd: BorrowedFd<'_>, holes: &[Range<u64>], tell: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let mut zeros = PageBuf::zeroed(TOGETHER);
    let zeros = &*zeros.as_mut_slice();
    let mut done = 0;
    tell(done);
    for hole in holes {
        let mut at = hole.start;
        while at < hole.end {
            let len = usize::try_from(hole.end - at).unwrap_or(TOGETHER).min(TOGETHER);
            let written = match rustix::io::pwrite(fd, &zeros[..len], at) {
                Err(Errno::INTR) => continue,
                Ok(0) => return Err(failed(path, "write out", io::ErrorKind::WriteZero.into())),
                written => written.map_err(|e| failed(path, "write out", e.into()))? as u64,
            };
            (at, done) = (at + written, done + written);
            tell(done);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn holes_get_their_room_and_nothing_else_changes() {
        let path = std::env::temp_dir().join(format!("rowen-writeout-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len((16 << 20) + 5000).unwrap();
        file.write_all_at(&[7; 8192], 5 << 20).unwrap();
        file.write_all_at(&[8; 5000], 16 << 20).unwrap();
        let own = holes(file.as_fd(), 16 << 20).unwrap();
        assert_eq!(own, [0..5 << 20, (5 << 20) + 8192..16 << 20]);
        assert!(without_room(&path) > 15 << 20);
        let mut told = Vec::new();
        fill(&path, file.as_fd(), &own, &mut |done| told.push(done)).unwrap();
        assert_eq!((told.first(), told.last()), (Some(&0), Some(&((16 << 20) - 8192))));
        assert!(file.metadata().unwrap().blocks() * 512 >= 16 << 20);
        assert_eq!(without_room(&path), 0);
        let mut bytes = vec![1; (16 << 20) + 5000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        let expected = |at: usize| match at {
            _ if (5 << 20..(5 << 20) + 8192).contains(&at) => 7,
            _ if at >= 16 << 20 => 8,
            _ => 0,
        };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }
}
