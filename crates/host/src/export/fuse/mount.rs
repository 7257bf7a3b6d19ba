//! Makes a volume's file: a FUSE filesystem whose root is a regular file, mounted on a regular file.

use super::abi::{self, init, op};
use crate::export::error::{Doing, Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// The protocol that this transport speaks; the kernel takes the lower of its own and this.
const MAJOR: u32 = 7;
const MINOR: u32 = 41;
/// Requests that the kernel keeps in flight. Its default of 12 halves the rate.
const MAX_BACKGROUND: u16 = 256;

/// A mounted file's connection, negotiated and ready to serve.
pub struct Mounted {
    pub fd: OwnedFd,
    /// Whether the kernel will repeat unanswered requests to a successor of this process.
    pub resend: bool,
}

/// Mounts a new file on `path`, an existing regular file. Blocks for a moment; nothing needs to serve yet.
pub fn mount(path: &Path) -> Result<Mounted> {
    mount_as(path, "rowen")
}

/// The same, by another program: what is not called `rowen` is no volume (H8).
pub fn mount_as(path: &Path, name: &str) -> Result<Mounted> {
    let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        .doing(|| "open /dev/fuse (is the kernel's fuse module loaded?)".into())?;
    let options = format!(
        "fd={},rootmode=100600,user_id=0,group_id=0,default_permissions,max_read={}",
        fd.as_raw_fd(),
        super::MAX_WRITE
    );
    let options = CString::new(options).expect("no NUL in the mount options");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    // Each file has its own source: with a shared one, `umount SOURCE` could unmount another volume. The source is not
    // the path itself: mkfs.btrfs would then take the loop device over the file for mounted.
    let source = format!("{name}:{}", path.display());
    rustix::mount::mount(&source, path, format!("fuse.{name}"), flags, Some(options.as_c_str()))
        .doing(|| format!("mount a volume's file on {}", path.display()))?;
    match negotiate(&fd) {
        Ok(resend) => Ok(Mounted { fd, resend }),
        Err(source) => {
            drop(fd);
            // The connection is closed: nothing can be waiting on the mount.
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
            Err(Error::System { doing: format!("set up the connection of {}", path.display()), source })
        }
    }
}

/// Answers the kernel's first request.
fn negotiate(fd: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    let limit = rustix::fs::Timespec { tv_sec: 10, tv_nsec: 0 };
    if poll(&mut polled, Some(&limit))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel sent no INIT in 10 s"));
    }
    let mut message = vec![0u8; 64 << 10];
    let len = rustix::io::read(fd, &mut message)?;
    let message = &message[..len];
    let args = message.get(abi::IN_HEADER..).unwrap_or_default();
    let header: abi::InHeader = message.get(..abi::IN_HEADER).map(bytemuck::pod_read_unaligned).unwrap_or_default();
    // Older kernels send a shorter INIT; what is not there is zero.
    let mut known = [0u8; size_of::<abi::InitIn>()];
    let shared = known.len().min(args.len());
    known[..shared].copy_from_slice(&args[..shared]);
    let init: abi::InitIn = bytemuck::pod_read_unaligned(&known);
    if header.opcode != op::INIT || init.major != MAJOR || init.minor < 31 {
        let why = format!("the kernel has FUSE {}.{}; Rowen needs 7.31 or later", init.major, init.minor);
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let extended = u64::from(init.flags) & init::INIT_EXT != 0;
    let offered = u64::from(init.flags) | if extended { u64::from(init.flags2) << 32 } else { 0 };
    let wanted =
        init::ASYNC_READ | init::BIG_WRITES | init::ASYNC_DIO | init::MAX_PAGES | init::INIT_EXT | init::HAS_RESEND;
    let agreed = offered & wanted;
    let answer = abi::InitOut {
        major: MAJOR,
        minor: MINOR.min(init.minor),
        // The loop device above reads ahead; a cache here would be a second copy.
        max_readahead: 0,
        flags: agreed as u32,
        flags2: (agreed >> 32) as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND * 3 / 4,
        max_write: super::MAX_WRITE as u32,
        time_granularity: 1,
        max_pages: (super::MAX_WRITE / 4096) as u16,
        ..Default::default()
    };
    let header = abi::OutHeader::answer(header.unique, size_of_val(&answer));
    send(fd, &header, bytemuck::bytes_of(&answer))?;
    Ok(agreed & init::HAS_RESEND != 0)
}

/// Sends one reply. Message and data go out in one system call, so that a kill leaves all of it or nothing.
pub fn send(fd: &OwnedFd, header: &abi::OutHeader, data: &[u8]) -> io::Result<()> {
    let parts = [IoSlice::new(bytemuck::bytes_of(header)), IoSlice::new(data)];
    let parts = if data.is_empty() { &parts[..1] } else { &parts[..] };
    Ok(rustix::io::writev(fd, parts).map(|_| ())?)
}

/// Asks the kernel to repeat every request that was read from this connection and not answered.
pub fn resend(fd: &OwnedFd) -> io::Result<()> {
    send(fd, &abi::OutHeader::error(0, abi::NOTIFY_RESEND), &[])
}

/// The size has changed: the kernel asks for the file's attributes again when it next needs them. It asks nothing here.
pub fn forget_attributes(fd: &OwnedFd) -> io::Result<()> {
    // A negative offset: no cached data.
    let file = abi::InvalidateInode { ino: abi::ROOT, offset: -1, len: 0 };
    match send(
        fd,
        &abi::OutHeader::notification(abi::NOTIFY_INVAL_INODE, size_of_val(&file)),
        bytemuck::bytes_of(&file),
    ) {
        // The kernel has no attributes of it.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        outcome => outcome,
    }
}

/// Unmounts the file, which is no longer in use, and ends its connection: copies of the mount in other mount namespaces
/// (containers) would keep the connection alive. Waits for a moment for a process that has the file open briefly (a
/// scan of all files). It does not wait for the server of the file: the connection ends before the mount does, and no
/// request needs an answer for that (H1).
pub fn unmount(path: &Path) -> Result<()> {
    let mut tries = 0;
    loop {
        match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::BUSY) => {
                return rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
                    .doing(|| format!("unmount {}", path.display()));
            }
            Err(e) => return Err(e).doing(|| format!("unmount {}", path.display())),
        }
    }
}
