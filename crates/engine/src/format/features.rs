//! The format that a superblock names, even if this program cannot read the rest of it.

use super::codec::RECORD_LIMIT;
use super::record::block_crc;
use super::superblock::{
    FEATURE_ALLOCATION, FEATURE_ATTRIBUTES, FEATURE_BAD_RUNS, FEATURE_BOOKMARKS, FEATURE_CONVERTED, FEATURE_GAPS,
    FEATURE_MEMBERS, FEATURE_MIRRORS, FEATURE_PACKED_RUNS, FEATURE_PAIR_LENGTHS, FEATURE_SECOND_JOURNAL,
    FEATURE_STRIPES, FEATURE_UNPROVEN, FEATURE_ZONES, KNOWN_INCOMPATIBLE, KNOWN_READ_ONLY_COMPATIBLE, MAGIC,
    SuperblockRecord, VERSION,
};
use crate::units::Uuid;

/// A feature of the format that this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its bit among the incompatible ones.
    pub bit: u64,
    pub name: &'static str,
    pub what: &'static str,
}

/// All of them, in the order of their bits.
pub const FEATURES: &[Feature] = &[
    Feature {
        bit: FEATURE_ATTRIBUTES,
        name: "attributes",
        what: "tags, limits and marks of the group; merges that wait",
    },
    Feature { bit: FEATURE_GAPS, name: "gaps", what: "physical volumes with room to grow, or of which one left" },
    Feature { bit: FEATURE_ALLOCATION, name: "allocation", what: "physical volumes that no space is taken from" },
    Feature { bit: FEATURE_PACKED_RUNS, name: "packed-runs", what: "packed lists of space to free" },
    Feature { bit: FEATURE_PAIR_LENGTHS, name: "pair-lengths", what: "pieces of metadata of any length" },
    Feature { bit: FEATURE_BAD_RUNS, name: "bad-runs", what: "places of the journal that take no writes" },
    Feature { bit: FEATURE_MEMBERS, name: "members", what: "physical volumes that the group goes on without" },
    Feature {
        bit: FEATURE_UNPROVEN,
        name: "unproven",
        what: "blocks that were being written when their disk was lost",
    },
    Feature { bit: FEATURE_ZONES, name: "zones", what: "extents that were moved to another physical volume" },
    Feature { bit: FEATURE_SECOND_JOURNAL, name: "second-journal", what: "a second copy of the journal" },
    Feature { bit: FEATURE_BOOKMARKS, name: "bookmarks", what: "bookmarks, from which changes are sent" },
    Feature { bit: FEATURE_MIRRORS, name: "mirrors", what: "extents on two physical volumes" },
    Feature {
        bit: FEATURE_CONVERTED,
        name: "converted",
        what: "extents that became mirrored, or plain, where they are",
    },
    Feature { bit: FEATURE_STRIPES, name: "stripes", what: "extents whose blocks alternate between physical volumes" },
];

/// The format of a group, or of a physical volume of no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatInfo {
    pub version: u32,
    /// Features that a program must know to open the group.
    pub incompatible: u64,
    /// Features that a program must know to write the group.
    pub read_only_compatible: u64,
    /// Features that a program need not know.
    pub compatible: u64,
    pub sequence: u64,
    pub pv_uuid: Uuid,
    pub group_uuid: Uuid,
    /// The group's name. Empty: the physical volume is in no group, or the name cannot be read.
    pub group: String,
}

impl FormatInfo {
    /// Reads a block that has the magic number and the checksum of a superblock.
    pub fn of(block: &[u8]) -> Option<FormatInfo> {
        let record = SuperblockRecord::decode_from(block)?;
        if record.magic != MAGIC || block_crc(block, 8) != record.crc || record.sequence >= RECORD_LIMIT {
            return None;
        }
        let name = record.name.get(..record.name_len as usize).and_then(|bytes| std::str::from_utf8(bytes).ok());
        Some(FormatInfo {
            version: record.version,
            incompatible: record.incompatible,
            read_only_compatible: record.read_only_compatible,
            compatible: record.compatible,
            sequence: record.sequence,
            pv_uuid: Uuid(record.pv_uuid),
            group_uuid: Uuid(record.group_uuid),
            group: name.filter(|_| record.pv_count > 0).unwrap_or_default().to_owned(),
        })
    }

    /// Whether this program can open the group: it knows the version and all incompatible features. A program needs to
    /// know all of them even to read.
    pub fn can_be_opened(&self) -> bool {
        self.version == VERSION && self.unknown() == 0
    }

    /// Whether this program can also write the group (RO1).
    pub fn can_be_written(&self) -> bool {
        self.can_be_opened() && self.unknown_to_writers() == 0
    }

    /// Features that this program would have to know to write the group.
    pub fn unknown_to_writers(&self) -> u64 {
        self.read_only_compatible & !KNOWN_READ_ONLY_COMPATIBLE
    }

    /// Incompatible features that this program does not know.
    pub fn unknown(&self) -> u64 {
        self.incompatible & !KNOWN_INCOMPATIBLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::seal;
    use crate::format::superblock::Superblock;

    #[test]
    fn each_known_feature_has_a_name() {
        assert_eq!(FEATURES.iter().fold(0, |all, feature| all | feature.bit), KNOWN_INCOMPATIBLE);
        assert!(FEATURES.iter().all(|feature| feature.bit.is_power_of_two()));
        assert!(FEATURES.windows(2).all(|pair| pair[0].bit < pair[1].bit && pair[0].name != pair[1].name));
    }

    #[test]
    fn what_cannot_be_opened_tells_its_format() {
        let label =
            Superblock { sequence: 3, pv_uuid: Uuid([5; 16]), pv_index: 0, pv_size: 1 << 30, group: None }.encode();
        let seen = FormatInfo::of(&label).unwrap();
        assert!(seen.can_be_opened() && seen.incompatible == 0 && seen.sequence == 3 && seen.group.is_empty());
        let with = |at: usize, byte: u8| {
            let mut block = label.clone();
            block[at] = byte;
            seal(&mut block, 8);
            FormatInfo::of(&block).unwrap()
        };
        // The highest bit that there is.
        let newer = with(23, 0x80);
        assert_eq!((newer.can_be_opened(), newer.unknown()), (false, 1 << 63));
        assert!(!with(12, 2).can_be_opened(), "another version");
        assert!(with(31, 0x80).can_be_written(), "a feature that need not be known");
        let readable = with(487, 0x80);
        assert!(readable.can_be_opened() && !readable.can_be_written() && seen.can_be_written());
        let mut damaged = label.clone();
        damaged[16] ^= 1;
        assert_eq!(FormatInfo::of(&damaged), None);
        assert_eq!(FormatInfo::of(&[0; 4096]), None);
        assert_eq!(FormatInfo::of(&label[..100]), None);
    }
}
