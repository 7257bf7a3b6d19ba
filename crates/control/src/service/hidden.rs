//! The names of volumes that are being received.

use rowen_engine::group::{Group, VolumeInfo, is_being_received};
use rowen_engine::planted;

/// Whether the volume is one that is being received: no request can name it, and no report has it.
pub fn is_hidden(name: &str) -> bool {
    is_being_received(name) && !planted::is("unfinished_is_shown")
}

/// All volumes but those that are being received.
pub fn shown_volumes(group: &Group) -> Vec<VolumeInfo> {
    let mut volumes = group.volumes();
    volumes.retain(|volume| !is_hidden(&volume.name));
    volumes
}
