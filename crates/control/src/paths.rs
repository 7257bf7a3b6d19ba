//! The ways to write a volume group or a logical volume on a command line: `VG`, `/dev/VG`, `VG/LV`, `/dev/VG/LV`,
//! `/dev/mapper/VG-LV` (hyphens within a name doubled) and `@TAG`; and the paths of nodes.

/// What an argument names. It need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Group(String),
    Volume { group: String, volume: String },
    Tag(String),
}

impl Target {
    /// What `text` names; `None` if it is a path that cannot name a group or volume ([`refusal`] says so). `VG/` is a
    /// volume with an empty name, which no group has: a user who lost a volume's name must not get the whole group.
    pub fn parse(text: &str) -> Option<Target> {
        if let Some(tag) = text.strip_prefix('@') {
            return Some(Target::Tag(tag.to_owned()));
        }
        if let Some(name) = text.strip_prefix("/dev/mapper/") {
            let (group, volume) = split_mapper_name(name)?;
            return Some(Target::Volume { group, volume });
        }
        let name = without_dev(text);
        if name.is_empty() || name.starts_with('/') {
            return None;
        }
        match name.split_once('/') {
            None => Some(Target::Group(name.to_owned())),
            Some((group, rest)) => {
                let volume = rest.trim_start_matches('/');
                (!volume.contains('/')).then(|| Target::Volume { group: group.to_owned(), volume: volume.to_owned() })
            }
        }
    }
}

/// A name or path without the `/dev/` before it.
fn without_dev(text: &str) -> &str {
    let path = text.trim_start_matches('/');
    match path.strip_prefix("dev/") {
        Some(name) if path.len() < text.len() => name.trim_start_matches('/'),
        _ => text,
    }
}

/// LVM's lines for what [`Target::parse`] cannot read.
pub fn refusal(text: &str) -> String {
    let name = without_dev(text);
    if name.is_empty() {
        return bad_group(name);
    }
    format!("\"{name}\": Invalid path for Logical Volume.")
}

/// LVM's lines for a group whose name no group can have.
pub fn bad_group(name: &str) -> String {
    format!("Volume group name \"{name}\" has invalid characters.\nCannot process volume group {name}")
}

/// The name under `/dev/mapper`.
pub fn mapper_name(group: &str, volume: &str) -> String {
    format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
}

/// `/dev/mapper/VG-LV`.
pub fn mapper_path(group: &str, volume: &str) -> String {
    format!("/dev/mapper/{}", mapper_name(group, volume))
}

/// `/dev/VG/LV`.
pub fn node_path(group: &str, volume: &str) -> String {
    format!("/dev/{group}/{volume}")
}

/// The two names in a name under `/dev/mapper`: the first hyphen that is not doubled separates them.
pub fn split_mapper_name(name: &str) -> Option<(String, String)> {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'-' {
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'-') {
            at += 2;
        } else {
            let (group, volume) = (&name[..at], &name[at + 1..]);
            let has_both = !group.is_empty() && !volume.is_empty();
            return has_both.then(|| (group.replace("--", "-"), volume.replace("--", "-")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(group: &str, volume: &str) -> Option<Target> {
        Some(Target::Volume { group: group.into(), volume: volume.into() })
    }

    #[test]
    fn all_ways_to_write_a_target() {
        assert_eq!(Target::parse("vg0"), Some(Target::Group("vg0".into())));
        assert_eq!(Target::parse("/dev/vg0"), Some(Target::Group("vg0".into())));
        assert_eq!(Target::parse("/dev/vg0/"), volume("vg0", ""));
        assert_eq!(Target::parse("vg0/"), volume("vg0", ""));
        assert_eq!(Target::parse("vg0//lv1"), volume("vg0", "lv1"));
        assert_eq!(Target::parse("//dev//vg0/lv1"), volume("vg0", "lv1"));
        assert_eq!(Target::parse("dev/lv1"), volume("dev", "lv1"));
        assert_eq!(Target::parse("vg0/lv1"), volume("vg0", "lv1"));
        assert_eq!(Target::parse("/dev/vg0/lv1"), volume("vg0", "lv1"));
        assert_eq!(Target::parse("/dev/mapper/vg0-a+b_c.d--e"), volume("vg0", "a+b_c.d-e"));
        assert_eq!(Target::parse("@t7"), Some(Target::Tag("t7".into())));
        for nothing in ["", "/dev/", "/", "//", "a/b/c", "a//b/", "/dev/mapper/plain", "/dev/mapper/-x", "/tmp/x"] {
            let parsed = Target::parse(nothing);
            assert!(parsed.is_none(), "{nothing}: {parsed:?}");
        }
        assert_eq!(refusal("/dev/../x/y"), "\"../x/y\": Invalid path for Logical Volume.");
        assert!(refusal("/dev/").starts_with("Volume group name \"\" has invalid characters.\n"));
    }

    #[test]
    fn mapper_names_turn_back() {
        for (group, volume) in [("v", "l"), ("a-b", "c-d"), ("a--b", "c"), ("x", "vm-100-disk-0")] {
            let name = mapper_name(group, volume);
            let back = split_mapper_name(&name);
            assert_eq!(back, Some((group.to_owned(), volume.to_owned())), "{name}");
        }
    }
}
