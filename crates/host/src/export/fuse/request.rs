//! A request as the kernel sent it, checked and typed. Anything else is an error number, never a panic.

use super::abi::{self, op};
use bytemuck::Pod;

/// What the kernel asks of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        len: u32,
    },
    Flush,
    Discard {
        offset: u64,
        len: u64,
    },
    WriteZeroes {
        offset: u64,
        len: u64,
    },
    GetAttr,
    /// `size`: the new size, when that is to be set.
    SetAttr {
        size: Option<u64>,
    },
    Open,
    StatFs,
    /// Only acknowledged.
    Acknowledge,
    /// Not answered at all.
    Ignore,
    /// Refused with this error number.
    Refuse(i32),
}

/// The arguments behind the header that this module uses.
pub struct Args<'a> {
    bytes: &'a [u8],
}

impl<'a> Args<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Args { bytes }
    }

    /// The structure at the start of the arguments, if they are long enough.
    pub fn get<T: Pod>(&self) -> Option<T> {
        self.bytes.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
    }
}

/// Types the request. `data` is the number of bytes after a WRITE's own header.
pub fn parse(opcode: u32, args: &Args<'_>, data: usize) -> Request {
    match opcode {
        op::READ => match args.get::<abi::ReadIn>() {
            Some(read) if read.size as usize <= super::MAX_WRITE => {
                Request::Read { offset: read.offset, len: read.size }
            }
            _ => Request::Refuse(libc::EINVAL),
        },
        op::WRITE => match args.get::<abi::WriteIn>() {
            Some(write) if write.size as usize == data => Request::Write { offset: write.offset, len: write.size },
            _ => Request::Refuse(libc::EINVAL),
        },
        op::FSYNC => Request::Flush,
        op::FALLOCATE => args.get().map_or(Request::Refuse(libc::EINVAL), fallocate),
        op::GETATTR => Request::GetAttr,
        op::SETATTR => match args.get::<abi::SetAttrIn>() {
            Some(set) => Request::SetAttr { size: (set.valid & abi::FATTR_SIZE != 0).then_some(set.size) },
            None => Request::Refuse(libc::EINVAL),
        },
        op::OPEN => Request::Open,
        op::STATFS => Request::StatFs,
        // A close has nothing to write out: nothing is cached here.
        op::RELEASE | op::FLUSH | op::DESTROY => Request::Acknowledge,
        op::FORGET | op::BATCH_FORGET => Request::Ignore,
        // The only file is no directory.
        op::LOOKUP => Request::Refuse(libc::ENOENT),
        // Also INTERRUPT: after this error the kernel waits for answers instead of asking to drop requests.
        _ => Request::Refuse(libc::ENOSYS),
    }
}

fn fallocate(args: abi::FallocateIn) -> Request {
    let (offset, len) = (args.offset, args.length);
    match args.mode {
        mode if mode == abi::falloc::PUNCH_HOLE | abi::falloc::KEEP_SIZE => Request::Discard { offset, len },
        mode if mode & !abi::falloc::KEEP_SIZE == abi::falloc::ZERO_RANGE => Request::WriteZeroes { offset, len },
        _ => Request::Refuse(libc::EOPNOTSUPP),
    }
}

/// Whether a request for data lies inside the volume and on its sectors.
pub fn check_range(offset: u64, len: u64, size: u64, sector: u32) -> Result<(), i32> {
    let sector = u64::from(sector);
    if offset % sector != 0 || len % sector != 0 {
        return Err(libc::EINVAL);
    }
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(libc::ENOSPC),
    }
}
