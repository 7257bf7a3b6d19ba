//! Notifies udev that a volume was written to.
//!
//! udevd probes a block device again when it was open for writing and is closed. For that, it watches the kernel's
//! node, /dev/loopN. Volumes are opened by another node. So the server watches that node, and makes the kernel announce
//! a change, as udevd does. Otherwise a filesystem from mkfs has no link under /dev/disk, and a mount by UUID waits for
//! ever.

use super::error::{Doing, Result};
use super::loopdev::LoopDevice;
use super::nodes::MAPPER;
use crate::reactor::readable;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The watch on a directory of nodes.
pub struct Written {
    fd: OwnedFd,
    directory: PathBuf,
}

/// Nodes that were closed by who could write to them.
#[derive(Debug, PartialEq, Eq)]
pub enum Closed {
    /// Those of these names.
    Named(BTreeSet<String>),
    /// Too many at once for the kernel to name them.
    Any,
}

impl Written {
    /// Watches nothing yet: the directory need not be there.
    pub fn new(directory: &Path) -> Result<Written> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .doing(|| "watch the nodes of volumes".to_owned())?;
        Ok(Written { fd, directory: directory.to_owned() })
    }

    /// Watches the directory as it is now; once more changes nothing, unless it is another directory since.
    pub fn watch(&self) -> Result<()> {
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
        inotify::add_watch(&self.fd, &self.directory, flags)
            .map(drop)
            .doing(|| format!("watch {}", self.directory.display()))
    }

    /// Readable when a node was closed.
    pub fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The nodes that were closed since the last call.
    pub fn take(&self) -> Result<Closed> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.fd, &mut buffer);
        let (mut names, mut all) = (BTreeSet::new(), false);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) => all = true,
                Ok(event) => names.extend(event.file_name().and_then(|name| Some(name.to_str().ok()?.to_owned()))),
                Err(Errno::AGAIN) => return Ok(if all { Closed::Any } else { Closed::Named(names) }),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).doing(|| format!("watch {}", self.directory.display())),
            }
        }
    }
}

/// Has the kernel announce that the device's contents changed.
pub fn announce(device: LoopDevice) -> Result<()> {
    let path = device.sys("uevent");
    std::fs::write(&path, "change").doing(|| format!("write {}", path.display()))
}

/// A volume works without it.
pub(super) const NOT_NOTIFIED: &str = "udev is not notified of writes to volumes";

pub(super) fn watch_nodes(dev: &Path) -> Option<Arc<Written>> {
    let written =
        Written::new(&dev.join(MAPPER)).inspect_err(|e| crate::journal::warn(format_args!("{NOT_NOTIFIED}: {e}")));
    written.ok().map(Arc::new)
}

/// Makes the kernel announce a change of each volume whose node was closed after it was open for writing. Ends when
/// `devices_of` returns none, because the exports are gone.
pub(super) async fn notify_of_writes(
    written: Arc<Written>,
    devices_of: impl Fn(&Closed) -> Option<Vec<LoopDevice>> + Send,
) {
    while readable(written.as_raw_fd()).await.is_ok() {
        let notified = match written.take().map(|closed| devices_of(&closed)) {
            Ok(Some(devices)) => devices.into_iter().try_for_each(announce),
            Ok(None) => return,
            Err(e) => Err(e),
        };
        if let Err(e) = notified {
            crate::journal::warn(format_args!("{NOT_NOTIFIED}: {e}"));
        }
    }
}
