//! Names of volume groups and logical volumes, tags, and why a name is refused. The grammar, the reserved words and the
//! sentences are LVM's.

use std::fmt;

/// The longest name of a volume group or a logical volume.
pub const MAX_NAME: usize = 127;
/// The longest group and volume name together, with the separators that LVM counts.
const MAX_PAIR: usize = 128;
const PAIR_SEPARATORS: usize = 3;

const RESERVED_PREFIXES: [&str; 2] = ["snapshot", "pvmove"];
const RESERVED_PARTS: [&str; 17] = [
    "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_wcorig", "_mimage", "_mlog", "_rimage", "_rmeta", "_tdata",
    "_tmeta", "_vdata", "_imeta", "_iorig", "_pmspare", "_vorigin",
];

/// Why a name cannot be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Empty,
    LeadingHyphen,
    BadCharacter,
    Dots,
    TooLong,
    ReservedPrefix(&'static str),
    ReservedPart(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Empty => f.write_str("Name is zero length."),
            Refusal::LeadingHyphen => f.write_str("Name cannot start with hyphen."),
            Refusal::BadCharacter => {
                f.write_str("Name contains invalid character, valid set includes: [a-zA-Z0-9.-_+].")
            }
            Refusal::Dots => f.write_str("Name starts with . or .. and has no following character(s)."),
            Refusal::TooLong => write!(f, "Name length exceeds maximum limit of {MAX_NAME}."),
            Refusal::ReservedPrefix(prefix) => {
                write!(f, "Names starting \"{prefix}\" are reserved. Please choose a different LV name.")
            }
            Refusal::ReservedPart(part) => {
                write!(f, "Names including \"{part}\" are reserved. Please choose a different LV name.")
            }
        }
    }
}

/// Whether `name` has the form of a name at all.
pub fn check_form(name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(Refusal::Empty);
    }
    if name.starts_with('-') {
        return Err(Refusal::LeadingHyphen);
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte)) {
        return Err(Refusal::BadCharacter);
    }
    if name == "." || name == ".." {
        return Err(Refusal::Dots);
    }
    if name.len() > MAX_NAME {
        return Err(Refusal::TooLong);
    }
    Ok(())
}

/// Whether a new logical volume may be called `name`.
pub fn check_volume(name: &str) -> Result<(), Refusal> {
    check_form(name)?;
    if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| name.starts_with(**prefix)) {
        return Err(Refusal::ReservedPrefix(prefix));
    }
    match RESERVED_PARTS.iter().find(|part| name.contains(**part)) {
        Some(part) => Err(Refusal::ReservedPart(part)),
        None => Ok(()),
    }
}

/// The sentence that refuses a volume's name in this group for being too long together, if it is.
pub fn pair_too_long(group: &str, volume: &str) -> Option<String> {
    let length = group.len() + volume.len() + PAIR_SEPARATORS;
    (length > MAX_PAIR).then(|| format!("LV name \"{group}/{volume}\" length {length} is not supported."))
}

/// How long a volume's name may be in this group.
pub fn longest_volume(group: &str) -> usize {
    MAX_PAIR.saturating_sub(group.len() + PAIR_SEPARATORS)
}

/// A tag without the `@` that may stand before it; `None` when it cannot be one.
pub fn tag(text: &str) -> Option<&str> {
    let tag = text.strip_prefix('@').unwrap_or(text);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_+.-/=!:&#".contains(&byte);
    let is_tag = !tag.is_empty() && tag.len() <= 1024 && tag.bytes().all(is_letter);
    is_tag.then_some(tag)
}

/// The name of a volume without a given name: `lvol` and the first number after those in use.
pub fn automatic<'a>(taken: impl Iterator<Item = &'a str>) -> String {
    let used = taken.filter_map(|name| name.strip_prefix("lvol")?.parse::<u32>().ok()).max();
    format!("lvol{}", used.map_or(0, |highest| u64::from(highest) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lvm_takes_and_names_that_it_refuses() {
        for good in ["lv1", "a+b_c.d-e", "vm-100-disk-0", "containers_c1-snap0", "...", "x_snapshot1", "tdata"] {
            assert_eq!(check_volume(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", Refusal::Empty),
            ("-dash", Refusal::LeadingHyphen),
            ("bad name", Refusal::BadCharacter),
            ("bad@name", Refusal::BadCharacter),
            ("a/b", Refusal::BadCharacter),
            ("ä", Refusal::BadCharacter),
            (".", Refusal::Dots),
            ("..", Refusal::Dots),
            ("snapshot1", Refusal::ReservedPrefix("snapshot")),
            ("pvmove0", Refusal::ReservedPrefix("pvmove")),
            ("foo_tdata", Refusal::ReservedPart("_tdata")),
            ("foo_rimage_1", Refusal::ReservedPart("_rimage")),
            ("x_pmspare", Refusal::ReservedPart("_pmspare")),
        ] {
            assert_eq!(check_volume(bad), Err(why), "{bad}");
        }
        assert_eq!(check_form(&"a".repeat(128)), Err(Refusal::TooLong));
        assert_eq!(check_form("snapshot"), Ok(()), "a group may have the name");
    }

    #[test]
    fn group_and_volume_together_have_a_limit() {
        let refusal = pair_too_long("v", &"a".repeat(127)).unwrap();
        assert!(refusal.starts_with("LV name \"v/aaa") && refusal.ends_with("\" length 131 is not supported."));
        assert_eq!(pair_too_long("v", &"b".repeat(120)), None);
        assert!(pair_too_long("v", &"b".repeat(124)).is_none() && pair_too_long("v", &"b".repeat(125)).is_some());
    }

    #[test]
    fn tags() {
        assert_eq!(tag("lv.metal-stack.io/csi-lvm-driver"), Some("lv.metal-stack.io/csi-lvm-driver"));
        assert_eq!(tag("@t7"), Some("t7"));
        assert_eq!(tag("-x"), Some("-x"));
        assert_eq!(tag("ceph.type=block"), Some("ceph.type=block"));
        for bad in ["bad tag", "", "@", "a,b"] {
            assert_eq!(tag(bad), None, "{bad}");
        }
    }

    #[test]
    fn automatic_names_go_on_after_the_highest() {
        assert_eq!(automatic([].into_iter()), "lvol0");
        assert_eq!(automatic(["lvol1", "x", "lvolx", "lvol7"].into_iter()), "lvol8");
        assert_eq!(automatic(["lvol4294967295"].into_iter()), "lvol4294967296");
    }
}
