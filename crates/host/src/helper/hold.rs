//! In a helper: writes out, freezes and thaws the filesystems on volumes.
//!
//! In their own mount namespace, users can choose which path leads to a filesystem. So a path is walked without
//! following links. Its directory counts only if the kernel says that it is of the right mount, on the right device. A
//! device has one filesystem, so one mount of it is enough.

use super::{Trouble, has_name, is_gone};
use crate::export::error::{Doing, Error, Result};
use crate::export::loopdev::{LoopDevice, direct};
use crate::export::usage::{Mount, Mounts};
use crate::{paths, planted};
use rowen_control::protocol::{read_frame, write_frame};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

// linux/fs.h: _IOWR('X', 119, int), _IOWR('X', 120, int)
const FIFREEZE: libc::c_ulong = 0xC004_5877;
const FITHAW: libc::c_ulong = 0xC004_5878;

/// A volume whose filesystem must be frozen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    pub number: u32,
    pub major: u32,
    pub minor: u32,
    /// The file that says that it is frozen.
    pub marker: PathBuf,
}

/// What has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The filesystems are found.
    Found,
    /// They are written out.
    Synced,
    Frozen,
    Thawed,
    /// There is none, and no further answer follows.
    Nothing,
}

/// The messages of a helper that freezes filesystems.
pub type Progress = std::result::Result<Stage, Trouble>;

/// The server's message at the end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Thaw;

/// A volume's filesystem, proven.
struct Filesystem {
    held: Held,
    /// A directory of it, opened without touching it.
    root: OwnedFd,
    /// It may be on other volumes, too.
    is_of_several: bool,
}

/// Frozen, with the marker's lock.
struct Frozen {
    root: File,
    marker: Marker,
    is_of_several: bool,
}

/// The main function of a helper that freezes filesystems.
pub fn hold(socket: &UnixStream, volumes: Vec<Held>, near: bool, reached: fn(&str)) -> io::Result<()> {
    let say = |progress: Progress| write_frame(&mut &*socket, &progress);
    let found = find(&volumes, near);
    say(Ok(Stage::Found))?;
    if let Err(e) = sync(&volumes, &found) {
        return say(Err(e.into()));
    }
    say(Ok(Stage::Synced))?;
    if found.is_empty() {
        return say(Ok(Stage::Nothing));
    }
    // The server may be dead: then the freeze is no longer wanted.
    if is_gone(socket) {
        return Ok(());
    }
    reached("freezing");
    let mut frozen = Vec::new();
    let all = found.into_iter().try_for_each(|filesystem| freeze(filesystem, &mut frozen));
    reached("frozen");
    let sent = say(all.map(|()| Stage::Frozen).map_err(Trouble::from));
    // H4: a word, or the end.
    let is_asked = sent.is_ok() && matches!(read_frame::<Thaw>(&mut &*socket), Ok(Some(_)));
    while planted::is("never_thaws") && !is_asked {
        std::thread::park();
    }
    reached("thawing");
    for one in frozen.into_iter().rev() {
        thaw(&one.root, &one.marker.path);
        one.marker.remove();
    }
    // A server that died does not listen.
    let _ = say(Ok(Stage::Thawed));
    Ok(())
}

fn find(volumes: &[Held], near: bool) -> Vec<Filesystem> {
    let mounts = Mounts::read();
    let of = |held: &Held| {
        let all = mounts.of(held.major, held.minor);
        let candidates = all.iter().filter(|mount| !near || mount.process == std::process::id());
        let proven = candidates.into_iter().find_map(|mount| prove(mount, held));
        if proven.is_none() && !all.is_empty() {
            let (major, minor) = (held.major, held.minor);
            crate::journal::warn(format_args!(
                "the filesystem on device {major}:{minor} is mounted where no process can reach it: it is not frozen"
            ));
        }
        proven
    };
    volumes.iter().filter_map(of).collect()
}

/// Opens the mount's root, if it is the one that the kernel lists (H6). A covered or vanished mount is not an error.
fn prove(mount: &Mount, held: &Held) -> Option<Filesystem> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(format!("/proc/{}/root", mount.process), flags, Mode::empty()).ok()?;
    let inside = mount.point.strip_prefix("/").unwrap_or(&mount.point);
    let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    let root = rustix::fs::openat2(&above, inside, flags | OFlags::NOFOLLOW, Mode::empty(), resolve).ok()?;
    // Nothing is asked of the filesystem itself.
    let ask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, ask).ok()?;
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    let tells_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let is_mount = tells_mount && stat.stx_mnt_id == mount.id;
    let is_device = device == (held.major, held.minor);
    // Filesystems over several devices have a separate number. For them the mount is the proof.
    let is_it = if mount.is_of_several { is_mount } else { is_device && (is_mount || !tells_mount) };
    (is_it || planted::is("not_proven")).then(|| Filesystem {
        held: held.clone(),
        root,
        is_of_several: mount.is_of_several,
    })
}

/// To be read and asked: what `find` opened leads nowhere else than where it led.
fn reopen(root: &OwnedFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?.into())
}

/// Writes out the cached data of filesystems and devices before the freeze, so that the freeze is short.
fn sync(volumes: &[Held], found: &[Filesystem]) -> Result<()> {
    for filesystem in found {
        // One that this does not reach is only frozen for longer.
        if let Ok(root) = reopen(&filesystem.root) {
            let _ = rustix::fs::syncfs(&root);
        }
    }
    volumes.iter().try_for_each(|held| direct::sync(LoopDevice { number: held.number }))
}

fn freeze(filesystem: Filesystem, frozen: &mut Vec<Frozen>) -> Result<()> {
    let Filesystem { held, root, is_of_several } = filesystem;
    let root = reopen(&root).doing(|| "open a filesystem that is to be frozen".into())?;
    let marker = Marker::take(&held.marker)?;
    if !marker.read().is_empty() {
        // H5: the process that froze it last was killed.
        thaw(&root, &marker.path);
    }
    let device = LoopDevice { number: held.number };
    let sequence = LoopDevice::sequence_of(held.major, held.minor).map_or(String::new(), |n| n.to_string());
    if !planted::is("no_marker") {
        marker.write(&format!("{}:{} {}\n", held.major, held.minor, sequence))?;
    }
    let refused = match control(&root, FIFREEZE) {
        Ok(()) => {
            frozen.push(Frozen { root, marker, is_of_several });
            return Ok(());
        }
        Err(e) => e,
    };
    marker.remove();
    match refused.raw_os_error() {
        // It cannot be frozen and needs no holding.
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => Ok(()),
        // On another of the volumes it is frozen already, by us.
        Some(libc::EBUSY) if is_of_several && frozen.iter().any(|other| other.is_of_several) => Ok(()),
        Some(libc::EBUSY) => {
            let device = device.path().display().to_string();
            Err(Error::InUse { device, user: "its filesystem is frozen by another program".into() })
        }
        _ => Err(refused).doing(|| format!("freeze the filesystem on {}", device.path().display())),
    }
}

fn control(root: &File, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: FIFREEZE and FITHAW take no argument that is read.
    match unsafe { libc::ioctl(root.as_raw_fd(), request as _, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn thaw(root: &File, marker: &Path) {
    match control(root, FITHAW) {
        // EINVAL: it is not frozen.
        Err(e) if e.raw_os_error() != Some(libc::EINVAL) => {
            crate::journal::warn(format_args!(
                "cannot thaw the filesystem that {} names: {e}; run fsfreeze --unfreeze on it",
                marker.display()
            ));
        }
        _ => {}
    }
}

/// The file that says what is frozen, locked.
struct Marker {
    path: PathBuf,
    file: File,
}

impl Marker {
    /// Waits until no other helper has it.
    fn take(path: &Path) -> Result<Marker> {
        let doing = || format!("lock {}", path.display());
        loop {
            let mut how = File::options();
            let file = how.create(true).read(true).write(true).truncate(false).mode(0o600).open(path).doing(doing)?;
            paths::wait_for_lock(&file).doing(doing)?;
            if has_name(&file, path) {
                return Ok(Marker { path: path.to_owned(), file });
            }
        }
    }

    fn read(&self) -> String {
        let mut text = String::new();
        // Unreadable data is ignored.
        let _ = (&self.file).read_to_string(&mut text);
        text
    }

    fn write(&self, text: &str) -> Result<()> {
        let written = self.file.set_len(0).and_then(|()| {
            use std::os::unix::fs::FileExt;
            self.file.write_all_at(text.as_bytes(), 0)
        });
        written.and_then(|()| (&self.file).flush()).doing(|| format!("write {}", self.path.display()))
    }

    fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Thaws the filesystem that a killed helper had frozen, by its marker. If the helper is alive, waits for it: it thaws
/// itself.
pub fn thaw_left_over(path: &Path) {
    if !path.exists() {
        return;
    }
    let Ok(marker) = Marker::take(path) else { return };
    let text = marker.read();
    let mut words = text.split_whitespace();
    let numbers = words.next().and_then(|word| word.split_once(':'));
    let numbers = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let sequence = words.next().and_then(|word| word.parse::<u64>().ok());
    if let Some((major, minor)) = numbers
        // The numbers may be another's by now.
        && sequence.is_none_or(|then| LoopDevice::sequence_of(major, minor).is_none_or(|now| now == then))
    {
        let held = Held { number: minor, major, minor, marker: path.to_owned() };
        let found = find(&[held], false);
        found.iter().filter_map(|filesystem| reopen(&filesystem.root).ok()).for_each(|root| thaw(&root, path));
    }
    marker.remove();
}
