//! The names under /dev that lead to a volume's device.
//!
//! `/dev/mapper/VG-LV` is a block node (dashes in either name doubled, as device-mapper does it), `/dev/VG/LV` a link to
//! it. A name exists from before an activation returns until before a deactivation begins. Foreign names are neither
//! replaced nor removed. A node is Rowen's if it leads to a loop device that is free or bound to a file of this group.
//! A link is Rowen's if it leads to the name of such a node.

use super::error::{Doing, Error, Result};
use super::loopdev::LoopDevice;
use rustix::fs::{AtFlags, Dev, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Major number of loop devices (Documentation/admin-guide/devices.txt).
pub const LOOP_MAJOR: u32 = 7;
const NODE_MODE: Mode = Mode::from_raw_mode(0o660);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
/// Debian's and everybody's group `disk`, when /etc/group does not say otherwise.
const DISK_GROUP: u32 = 6;

/// The volume of `group` whose node is called `node`.
pub fn volume_of(group: &str, node: &str) -> Option<String> {
    let volume = node.strip_prefix(&mapper_name(group, ""))?.replace("--", "-");
    (mapper_name(group, &volume) == node).then_some(volume)
}

/// The suffix of files of volumes that are copies: udev, which knows only the file, leaves links by UUID to the
/// originals.
pub const COPY: &str = "-snapshot";

/// The directory of nodes, below /dev.
pub const MAPPER: &str = "mapper";

/// The nodes of one group.
pub struct Nodes {
    dev: PathBuf,
    group: String,
    /// Where the files of this group's volumes are: loop devices bound to them are ours.
    files: PathBuf,
    disk_group: u32,
}

/// Whether `name` is one that LVM would take for a volume or group. Nothing else gets near a path.
pub fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '.' | '-');
    let good = !name.is_empty() && name.len() <= 127 && !name.starts_with('-') && name != "." && name != "..";
    if good && name.chars().all(allowed) { Ok(()) } else { Err(Error::BadName(name.into())) }
}

/// `VG-LV` with the dashes inside either name doubled.
pub fn mapper_name(group: &str, volume: &str) -> String {
    format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
}

fn disk_group() -> u32 {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let line = groups.lines().find_map(|line| line.strip_prefix("disk:"));
    line.and_then(|line| line.split(':').nth(1)?.parse().ok()).unwrap_or(DISK_GROUP)
}

/// What a name is found to be.
enum Found {
    Nothing,
    Ours,
    Foreign(String),
}

impl Nodes {
    /// The nodes of `group` below `dev` (`/dev`), whose volumes' files are in `files`.
    pub fn new(dev: &Path, group: &str, files: &Path) -> Result<Nodes> {
        check_name(group)?;
        Ok(Nodes { dev: dev.into(), group: group.into(), files: files.into(), disk_group: disk_group() })
    }

    /// The nodes of the same volumes under another group's name.
    pub fn of_group(&self, group: &str) -> Result<Nodes> {
        let mut other = Nodes::new(&self.dev, group, &self.files)?;
        other.disk_group = self.disk_group;
        Ok(other)
    }

    /// `/dev/VG/LV`
    pub fn path(&self, volume: &str) -> PathBuf {
        self.dev.join(&self.group).join(volume)
    }

    /// Fails when the names for `volume` cannot be made; changes nothing.
    pub fn check_free(&self, volume: &str) -> Result<()> {
        check_name(volume)?;
        let mapper = mapper_name(&self.group, volume);
        if let Ok(directory) = self.open_directory(MAPPER) {
            refuse_foreign(self.node(&directory, &mapper)?, self.dev.join(MAPPER).join(&mapper))?;
        }
        self.check_group_directory()?;
        if let Ok(directory) = self.open_directory(&self.group) {
            refuse_foreign(self.link(&directory, volume)?, self.path(volume))?;
        }
        Ok(())
    }

    /// Makes both names lead to `device`. Each appears complete, in one step.
    pub fn make(&self, volume: &str, device: LoopDevice) -> Result<()> {
        check_name(volume)?;
        let (major, minor) = device.numbers()?;
        // To look through the group's directory takes time for each volume in it.
        if self.is_made(volume, rustix::fs::makedev(major, minor)) {
            return Ok(());
        }
        self.check_free(volume)?;
        self.make_node(volume, major, minor)?;
        self.make_link(volume).inspect_err(|_| {
            // A node without its link would be left over; the first error is the one to report.
            let _ = self.remove(volume);
        })
    }

    /// Whether both names are there and lead to this device.
    fn is_made(&self, volume: &str, device: Dev) -> bool {
        let node = self.open_directory(MAPPER).and_then(|nodes| look_at(&nodes, &mapper_name(&self.group, volume)));
        let link = self.open_directory(&self.group).and_then(|links| self.link(&links, volume));
        let is_node =
            |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice && stat.st_rdev == device;
        node.is_ok_and(|node| node.is_some_and(is_node)) && matches!(link, Ok(Found::Ours))
    }

    fn make_node(&self, volume: &str, major: u32, minor: u32) -> Result<()> {
        let directory = self.make_directory(MAPPER)?;
        let name = mapper_name(&self.group, volume);
        let temporary = format!(".{name}.{}", std::process::id());
        let doing = || format!("make {}", self.dev.join(MAPPER).join(&name).display());
        remove_if_there(&directory, &temporary).doing(doing)?;
        rustix::fs::mknodat(
            &directory,
            &temporary,
            FileType::BlockDevice,
            NODE_MODE,
            rustix::fs::makedev(major, minor),
        )
        .doing(doing)?;
        let placed = rustix::fs::chmodat(&directory, &temporary, NODE_MODE, AtFlags::empty())
            .and_then(|()| {
                let (user, group) = (Uid::from_raw(0), Gid::from_raw(self.disk_group));
                rustix::fs::chownat(&directory, &temporary, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
            })
            .doing(doing)
            .and_then(|()| self.place(&directory, &temporary, &name, |found| self.node(found, &name)));
        if placed.is_err() {
            let _ = remove_if_there(&directory, &temporary);
        }
        placed
    }

    fn make_link(&self, volume: &str) -> Result<()> {
        let directory = self.make_directory(&self.group)?;
        let temporary = format!(".{volume}.{}", std::process::id());
        let doing = || format!("make {}", self.path(volume).display());
        remove_if_there(&directory, &temporary).doing(doing)?;
        rustix::fs::symlinkat(self.link_target(volume), &directory, &temporary).doing(doing)?;
        let placed = self.place(&directory, &temporary, volume, |found| self.link(found, volume));
        if placed.is_err() {
            let _ = remove_if_there(&directory, &temporary);
        }
        placed
    }

    /// Gives `temporary` its name. Replaces an existing name only if it is Rowen's.
    fn place(
        &self,
        directory: &OwnedFd,
        temporary: &str,
        name: &str,
        find: impl Fn(&OwnedFd) -> Result<Found>,
    ) -> Result<()> {
        let doing = || format!("name {name}");
        match rustix::fs::renameat_with(directory, temporary, directory, name, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => {
                refuse_foreign(find(directory)?, PathBuf::from(name))?;
                rustix::fs::renameat(directory, temporary, directory, name).doing(doing)
            }
            other => other.doing(doing),
        }
    }

    /// Removes both names, and /dev/VG if it is empty. A foreign name stays and is an error; a missing one is not.
    pub fn remove(&self, volume: &str) -> Result<()> {
        check_name(volume)?;
        let mut first_error = Ok(());
        if let Ok(directory) = self.open_directory(&self.group) {
            first_error = self.remove_ours(&directory, volume, self.link(&directory, volume)?, &self.path(volume));
            drop(directory);
            // Refused while other volumes are in it.
            let _ = rustix::fs::rmdir(self.dev.join(&self.group));
        }
        let name = mapper_name(&self.group, volume);
        if let Ok(directory) = self.open_directory(MAPPER) {
            let removed =
                self.remove_ours(&directory, &name, self.node(&directory, &name)?, &self.dev.join(MAPPER).join(&name));
            first_error = first_error.and(removed);
        }
        first_error
    }

    fn remove_ours(&self, directory: &OwnedFd, name: &str, found: Found, path: &Path) -> Result<()> {
        match found {
            Found::Ours => remove_if_there(directory, name).doing(|| format!("remove {}", path.display())),
            found => refuse_foreign(found, path.to_path_buf()),
        }
    }

    /// Removes the names of all volumes for which `keep` is false: what a process that died left behind.
    pub fn sweep(&self, keep: impl Fn(&str) -> bool) -> Result<()> {
        let list = |directory: PathBuf| {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok())
        };
        let linked = list(self.dev.join(&self.group));
        // A node without its link: a process was killed between making or removing the two.
        let unlinked = list(self.dev.join(MAPPER)).filter_map(|node| volume_of(&self.group, &node));
        let names: BTreeSet<String> = linked.chain(unlinked).collect();
        for name in names.iter().filter(|name| check_name(name).is_ok() && !keep(name)) {
            let link = self.open_directory(&self.group).map_or(Ok(Found::Nothing), |links| self.link(&links, name))?;
            let node = self
                .open_directory(MAPPER)
                .map_or(Ok(Found::Nothing), |nodes| self.node(&nodes, &mapper_name(&self.group, name)))?;
            match (link, node) {
                (Found::Foreign(_), _) | (_, Found::Foreign(_)) => {}
                _ => self.remove(name)?,
            }
        }
        // This fails while anything is in it. If it does not exist, there is nothing to do.
        let _ = rustix::fs::rmdir(self.dev.join(&self.group));
        Ok(())
    }

    fn link_target(&self, volume: &str) -> String {
        format!("../mapper/{}", mapper_name(&self.group, volume))
    }

    fn node(&self, directory: &OwnedFd, name: &str) -> Result<Found> {
        let Some(stat) = look_at(directory, name)? else { return Ok(Found::Nothing) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Ok(Found::Foreign("it is not a block device".into()));
        }
        let device: Dev = stat.st_rdev;
        if rustix::fs::major(device) != LOOP_MAJOR {
            return Ok(Found::Foreign("it is a device of another kind".into()));
        }
        match LoopDevice::backing_of(rustix::fs::major(device), rustix::fs::minor(device)) {
            Some(file) if file.parent() != Some(&self.files) => {
                Ok(Found::Foreign(format!("it leads to {}", file.display())))
            }
            _ => Ok(Found::Ours),
        }
    }

    fn link(&self, directory: &OwnedFd, volume: &str) -> Result<Found> {
        let Some(stat) = look_at(directory, volume)? else { return Ok(Found::Nothing) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(Found::Foreign("it is not a link".into()));
        }
        let target =
            rustix::fs::readlinkat(directory, volume, Vec::new()).doing(|| format!("read the link {volume}"))?;
        if target.to_bytes() == self.link_target(volume).as_bytes() {
            return Ok(Found::Ours);
        }
        Ok(Found::Foreign(format!("it leads to {}", target.to_string_lossy())))
    }

    /// A directory of that name that holds anything but this group's links is foreign (for example /dev/shm).
    fn check_group_directory(&self) -> Result<()> {
        let path = self.dev.join(&self.group);
        let foreign = |what: &str| Error::Foreign { path: path.clone(), what: what.into() };
        let Ok(meta) = std::fs::symlink_metadata(&path) else { return Ok(()) };
        if !meta.is_dir() {
            return Err(foreign("it is not a directory"));
        }
        use std::os::unix::fs::MetadataExt;
        if std::fs::metadata(&self.dev).is_ok_and(|dev| dev.dev() != meta.dev()) {
            return Err(foreign("something is mounted on it"));
        }
        let prefix = format!("../mapper/{}-", self.group.replace('-', "--"));
        let mut entries = std::fs::read_dir(&path).doing(|| format!("list {}", path.display()))?.flatten();
        let is_foreign = |link: PathBuf| {
            let target = std::fs::read_link(link).unwrap_or_default();
            !target.as_os_str().as_bytes().starts_with(prefix.as_bytes())
        };
        match entries.find(|entry| is_foreign(entry.path())) {
            Some(entry) => {
                let name: OsString = entry.file_name();
                Err(foreign(&format!("it holds {}, which is no volume of the group", name.to_string_lossy())))
            }
            None => Ok(()),
        }
    }

    fn make_directory(&self, name: &str) -> Result<OwnedFd> {
        let path = self.dev.join(name);
        match rustix::fs::mkdir(&path, DIRECTORY_MODE) {
            // The mode is what it says, whatever the process's mask.
            Ok(()) => rustix::fs::chmod(&path, DIRECTORY_MODE).doing(|| format!("make {}", path.display()))?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e).doing(|| format!("make {}", path.display())),
        }
        self.open_directory(name)
    }

    /// Never through a link.
    fn open_directory(&self, name: &str) -> Result<OwnedFd> {
        let path = self.dev.join(name);
        rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .doing(|| format!("open {}", path.display()))
    }
}

fn refuse_foreign(found: Found, path: PathBuf) -> Result<()> {
    match found {
        Found::Foreign(what) => Err(Error::Foreign { path, what }),
        _ => Ok(()),
    }
}

fn look_at(directory: &OwnedFd, name: &str) -> Result<Option<Stat>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(e) => Err(e).doing(|| format!("look at {name}")),
    }
}

fn remove_if_there(directory: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        other => other,
    }
}
