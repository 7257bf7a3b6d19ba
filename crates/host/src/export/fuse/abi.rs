//! The kernel's FUSE structures (linux/fuse.h, protocol 7.x), declared as they lie in a request. Only what a single
//! regular file needs. Native byte order: both ends are on one machine.

use bytemuck::{Pod, Zeroable};

/// Bytes of a request's header.
pub const IN_HEADER: usize = size_of::<InHeader>();
/// Bytes before the data of a WRITE. A read of a request splits here, so that data starts on a page of its own.
pub const WRITE_HEADER: usize = IN_HEADER + size_of::<WriteIn>();
/// The longest arguments that are parsed, without data.
pub const MAX_ARGS: usize = 88;

pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
}

/// Capabilities in INIT: the low word is `flags`, the high word `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const INIT_EXT: u64 = 1 << 30;
    /// The kernel can be asked to send unanswered requests again (7.40).
    pub const HAS_RESEND: u64 = 1 << 39;
}

pub mod open {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Bits of a FALLOCATE's mode.
pub mod falloc {
    pub const KEEP_SIZE: u32 = 0x01;
    pub const PUNCH_HOLE: u32 = 0x02;
    pub const ZERO_RANGE: u32 = 0x10;
}

/// Bits of SETATTR's `valid`.
pub const FATTR_SIZE: u32 = 1 << 3;

/// The `error` field of a message that is a notification: send every unanswered request again.
pub const NOTIFY_RESEND: i32 = 7;
/// Notification: attributes and cached data of a file are not valid any more.
pub const NOTIFY_INVAL_INODE: i32 = 2;

/// The only file: the root of its own filesystem.
pub const ROOT: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub extensions: u16,
    pub pad: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

impl OutHeader {
    /// Before `len` bytes of an answer.
    pub fn answer(unique: u64, len: usize) -> OutHeader {
        OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: 0, unique }
    }

    /// Before `len` bytes of a notification.
    pub fn notification(code: i32, len: usize) -> OutHeader {
        OutHeader { error: code, ..OutHeader::answer(0, len) }
    }

    /// The whole of an answer that is a negative error number, or of a notice.
    pub fn error(unique: u64, error: i32) -> OutHeader {
        OutHeader { len: size_of::<OutHeader>() as u32, error, unique }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub flags2: u32,
    pub unused: [u32; 11],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_granularity: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub max_stack_depth: u32,
    pub request_timeout: u16,
    pub unused: [u16; 11],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atime_nanos: u32,
    pub mtime_nanos: u32,
    pub ctime_nanos: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub block_size: u32,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct InvalidateInode {
    pub ino: u64,
    /// Of cached data; negative: none.
    pub offset: i64,
    pub len: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct AttrOut {
    /// Seconds for which the kernel may cache this.
    pub valid: u64,
    pub valid_nanos: u32,
    pub pad: u32,
    pub attr: Attr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct SetAttrIn {
    pub valid: u32,
    pub pad: u32,
    pub handle: u64,
    pub size: u64,
    pub rest: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct OpenOut {
    pub handle: u64,
    pub flags: u32,
    pub backing: i32,
}

/// READ's and WRITE's arguments have one layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct ReadIn {
    pub handle: u64,
    pub offset: u64,
    pub size: u32,
    pub flags: u32,
    pub lock_owner: u64,
    pub open_flags: u32,
    pub pad: u32,
}

pub type WriteIn = ReadIn;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct WriteOut {
    pub size: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct FallocateIn {
    pub handle: u64,
    pub offset: u64,
    pub length: u64,
    pub mode: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct StatFsOut {
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_size: u32,
    pub name_length: u32,
    pub fragment_size: u32,
    pub pad: u32,
    pub spare: [u32; 6],
}

// The kernel's sizes: a field too many or too few does not compile.
const _: () = assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<InitIn>() == 64 && size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Attr>() == 88 && size_of::<AttrOut>() == 104 && size_of::<SetAttrIn>() == 88);
const _: () = assert!(size_of::<OpenOut>() == 16 && size_of::<ReadIn>() == 40 && size_of::<WriteOut>() == 8);
const _: () = assert!(size_of::<FallocateIn>() == 32 && size_of::<StatFsOut>() == 80);
