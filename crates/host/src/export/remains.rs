//! Remains of exports whose server and keeper were both killed: nodes, loop devices, files, frozen filesystems.

use super::error::{Doing, Result};
use super::nodes::Nodes;
use super::{freeze, loopdev};
use crate::paths;
use std::fs;
use std::path::{Path, PathBuf};

/// The prefix of the markers of frozen filesystems; the loop device's number follows.
pub(super) const FROZEN: &str = "frozen-";

/// A volume that stays: its name and the name of its file.
pub(super) type Kept = (String, String);

/// Removes everything that belongs to none of these volumes. A device in use returns errors from then on, and is
/// removed with its last user. Returns how many loop devices and files there were.
pub(super) fn clear(nodes: &Nodes, files: &Path, kept: &[Kept]) -> Result<usize> {
    nodes.sweep(|name| kept.iter().any(|(active, _)| active == name))?;
    let is_kept = |path: &Path| kept.iter().any(|(_, file)| path.file_name() == Some(file.as_ref()));
    let mut cleared = 0;
    let left: Vec<_> = loopdev::bound_in(files).into_iter().filter(|(_, path)| !is_kept(path)).collect();
    loopdev::abandon(&left.iter().map(|(device, _)| *device).collect::<Vec<_>>());
    let listed = fs::read_dir(files).doing(|| format!("list {}", files.display()))?;
    for path in listed.flatten().map(|entry| entry.path()).filter(|path| !is_kept(path)) {
        let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
        // Refused when it is not mounted.
        let _ = rustix::mount::unmount(&path, flags);
        fs::remove_file(&path).doing(|| format!("remove {}", path.display()))?;
        cleared += 1;
    }
    Ok(cleared)
}

/// The markers of filesystems that are frozen, or were when a helper was killed.
pub(super) fn frozen(run: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(run).doing(|| format!("list {}", run.display()))?;
    let markers = listed.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(FROZEN));
    Ok(markers.map(|entry| entry.path()).collect())
}

/// The same for all volumes of a group. The caller ensures that the group has neither a server nor a keeper.
pub fn clear_remains(group: &str) -> Result<usize> {
    let run = paths::group_dir(group);
    // Without it there never was an export.
    let Ok(files) = fs::canonicalize(run.join("volumes")) else { return Ok(0) };
    let cleared = clear(&Nodes::new(Path::new("/dev"), group, &files)?, &files, &[])?;
    freeze::thaw_left_over(&frozen(&run)?);
    Ok(cleared)
}
