//! Properties for udev: that a block device is a physical volume, or which volume it is. udev's own probing knows
//! neither. So desktop tools would offer to format a physical volume, and systemd would wait for /dev/VG/LV for ever.

use super::scan::{PvState, read_pv, scan};
use crate::export::nodes;
use crate::paths;
use crate::server::systemd;
use rowen_control::{names, uuids};
use std::path::Path;

/// Properties for udev's database. `path` is a block device, or the file that a loop device is bound to.
pub fn properties(path: &Path) -> Vec<(&'static str, String)> {
    if let Some((group, volume, is_copy)) = volume_of(path) {
        let mapper = nodes::mapper_name(group, volume);
        let mut found = vec![
            ("ROWEN_VG_NAME", group.to_owned()),
            ("ROWEN_LV_NAME", volume.to_owned()),
            // A device unit of this name is what a mount in /etc/fstab waits for. The links themselves are the server's.
            ("SYSTEMD_ALIAS", format!("/dev/{group}/{volume} /dev/mapper/{mapper}")),
        ];
        if is_copy {
            // The filesystem on it says that it is the origin's.
            found.push(("ROWEN_SNAPSHOT", "1".to_owned()));
        }
        return found;
    }
    let Some(pv) = read_pv(path) else { return Vec::new() };
    let mut found = vec![("ID_FS_TYPE", "rowen_member".to_owned()), ("ID_FS_USAGE", "raid".to_owned())];
    if let PvState::Present(label) = &pv.state {
        found.push(("ID_FS_UUID", uuids::lvm_text(label.pv_uuid)));
        if let Some(group) = label.group.as_ref().map(|group| &group.group_name) {
            found.push(("ROWEN_VG_NAME", group.clone()));
            // The one that comes last finds all others, whatever the order in which udev looks at them.
            if systemd::is_instance(group) && scan().is_ok_and(|scan| scan.group(group).is_ok()) {
                found.push(("ROWEN_VG_COMPLETE", group.clone()));
            }
        }
    }
    found
}

/// The group and volume whose file this is, `RUN_DIR/VG/volumes/LV@N`, and whether the volume is a copy of another.
fn volume_of(path: &Path) -> Option<(&str, &str, bool)> {
    let mut parts = path.strip_prefix(paths::run_dir()).ok()?.iter().map(|part| part.to_str());
    let (group, folder, file) = (parts.next()??, parts.next()??, parts.next()??);
    let (volume, number) = file.split_once('@')?;
    let copy = number.strip_suffix(nodes::COPY);
    let number = copy.unwrap_or(number);
    let is_name = |name| names::check_form(name).is_ok();
    let fits = folder == "volumes" && parts.next().is_none() && number.parse::<u64>().is_ok();
    (fits && is_name(group) && is_name(volume)).then_some((group, volume, copy.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volumes_file_names_the_volume() {
        let run = paths::run_dir();
        assert_eq!(volume_of(&run.join("vg-0/volumes/data@3")), Some(("vg-0", "data", false)));
        assert_eq!(volume_of(&run.join("vg-0/volumes/copy@12-snapshot")), Some(("vg-0", "copy", true)));
        let properties = properties(&run.join("vg-0/volumes/data@3"));
        assert_eq!(properties[2].1, "/dev/vg-0/data /dev/mapper/vg--0-data");
        assert!(!properties.iter().any(|(key, _)| *key == "ROWEN_SNAPSHOT"));
        let of_copy = super::properties(&run.join("vg-0/volumes/copy@1-snapshot"));
        assert!(of_copy.contains(&("ROWEN_SNAPSHOT", "1".to_owned())));
        for other in [
            "vg/volumes/data@1-other",
            "vg/volumes/data",
            "vg/volumes/da ta@1",
            "vg/other/data@1",
            "vg/volumes/data@1/x",
            "vg/volumes/@1",
        ] {
            assert_eq!(volume_of(&run.join(other)), None, "{other}");
        }
        assert_eq!(volume_of(Path::new("/srv/vg/volumes/data@1")), None);
    }
}
