//! Loop devices: the block device in front of a volume's file.
//!
//! They use direct I/O, so that nothing is cached twice. The sector size is the volume's. Read-only is a flag of the
//! block device, which can change while it is open. Opening the device makes the kernel send requests to the volume's
//! file, so a helper does it ([`direct`]). Everything else reads sysfs.

pub(crate) mod direct;

use super::error::{Doing, Error, Result};
use crate::helper::{self, Job};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A loop device, bound or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoopDevice {
    pub number: u32,
}

impl LoopDevice {
    /// Binds a free device to `file`.
    pub fn attach(file: &Path, sector: u32, read_only: bool) -> Result<LoopDevice> {
        let number = helper::ask(Job::Attach { file: file.to_owned(), sector, read_only })?;
        Ok(LoopDevice { number })
    }

    /// Frees the device and waits until it is free. When something still uses it, it stays as it is and this fails.
    pub fn detach(self) -> Result<()> {
        helper::ask(Job::Detach(self.number)).map(drop)
    }

    /// Frees the device as soon as nothing uses it any more; does not wait.
    pub fn abandon(self) {
        abandon(&[self]);
    }

    /// Takes over the file's new size.
    pub fn update_size(self) -> Result<()> {
        helper::ask(Job::UpdateSize(self.number)).map(drop)
    }

    pub fn set_read_only(self, read_only: bool) -> Result<()> {
        helper::ask(Job::SetReadOnly(self.number, read_only)).map(drop)
    }

    /// Writes out what is cached of the device, and forgets it: the next read shows the volume's new contents.
    pub fn flush_cache(self) -> Result<()> {
        helper::ask(Job::FlushCache(self.number)).map(drop)
    }

    /// A number that identifies the device's current binding.
    pub fn sequence_of(major: u32, minor: u32) -> Option<u64> {
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/diskseq")).ok()?.trim().parse().ok()
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

    /// Major and minor number.
    pub fn numbers(self) -> Result<(u32, u32)> {
        let text = self.attribute("dev")?;
        let parsed =
            text.trim().split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parsed.ok_or_else(|| Error::System {
            doing: format!("read {}", self.sys("dev").display()),
            source: io::Error::new(io::ErrorKind::InvalidData, format!("\"{}\" is not a device number", text.trim())),
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

    /// Whether writes to it are refused.
    pub fn is_read_only(self) -> bool {
        self.attribute("ro").is_ok_and(|text| text.trim() == "1")
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
}

/// Frees devices as soon as nothing uses them any more. One that is free already is what is wanted.
pub fn abandon(devices: &[LoopDevice]) {
    if !devices.is_empty()
        && let Err(e) = helper::ask(Job::Abandon(devices.iter().map(|device| device.number).collect()))
    {
        crate::journal::warn(format_args!("cannot remove old loop devices: {e}"));
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
