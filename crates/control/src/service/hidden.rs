//! The names of volumes that no request can name: those that are being received, and bookmarks.

use rowen_engine::group::{Group, VolumeInfo, is_being_received, is_bookmark};
use rowen_engine::planted;

/// Whether the volume is one that is being received, or a bookmark: no request can name it, and no report has it.
pub fn is_hidden(name: &str) -> bool {
    is_bookmark(name) || is_being_received(name) && !planted::is("unfinished_is_shown")
}

/// All volumes but those.
pub fn shown_volumes(group: &Group) -> Vec<VolumeInfo> {
    let mut volumes = group.volumes();
    volumes.retain(|volume| !is_hidden(&volume.name));
    volumes
}
