//! Superblocks: the entry point to all other metadata. Each physical volume has four slots in two copies. A superblock
//! of sequence `n` goes to slot `n % 4`, so a torn write never damages the previous superblock. A label is a superblock
//! of a physical volume that belongs to no group.

use super::codec::RECORD_LIMIT;
use super::record::{block_crc, on_disk, seal};
use super::zones::{MAX_ZONES, Zone, ZoneTable};
use crate::error::{Error, Result};
use crate::journal::bad_runs::{BadRuns, MAX_BAD_RUNS};
use crate::planted;
pub use crate::units::MAX_PVS;
use crate::units::{BLOCK_SIZE, PvFlags, Uuid};
use std::collections::BTreeMap;

/// First byte of the extents on a physical volume.
pub const DATA_OFFSET: u64 = 1 << 20;
/// Superblock slots in each copy.
pub const SLOTS: u64 = 4;
/// First byte of each copy's slots.
pub const COPY_OFFSETS: [u64; 2] = [4096, 512 << 10];
/// Blocks that an extent may have: 4 KiB to 1 TiB.
pub const EXTENT_BLOCKS: std::ops::RangeInclusive<u64> = 1..=1 << 28;

/// VG blocks from the start of one physical volume to the start of the next: 256 TiB. The unused rest is room to grow.
/// A new physical volume begins at a multiple of this, as long as there are such numbers.
pub const ROOM: u64 = 1 << 36;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ROWENPV1");
pub const VERSION: u32 = 1;
/// The stream has a group record, or a volume's `merging` is set.
pub const FEATURE_ATTRIBUTES: u64 = 1;
/// The extents of the physical volumes do not follow each other.
pub const FEATURE_GAPS: u64 = 2;
/// Some physical volumes are not allocatable. An older program would allocate from them.
pub const FEATURE_ALLOCATION: u64 = 4;
/// The stream has packed runs to free.
pub const FEATURE_PACKED_RUNS: u64 = 8;
/// Pairs of runs that hold metadata have different lengths.
pub const FEATURE_PAIR_LENGTHS: u64 = 16;
/// Some blocks of the journal's ring cannot be written, and frames are written around them. An older program would take
/// them for the journal's end.
pub const FEATURE_BAD_RUNS: u64 = 32;
/// Some physical volumes are out. An older program would wait for them, or use them.
pub const FEATURE_MEMBERS: u64 = 128;
/// The stream names unproven blocks: their data was never compared with the journal. An older program would return them
/// as data.
pub const FEATURE_UNPROVEN: u64 = 256;
/// Some extents are not at their home. An older program would read the wrong blocks.
pub const FEATURE_ZONES: u64 = 512;
/// The journal has two copies. An older program would not write the second one, and would count its blocks as lost.
pub const FEATURE_SECOND_JOURNAL: u64 = 1024;
/// There are bookmarks. A program that does not know them would leave holes that no list of changes finds (MK2).
pub const FEATURE_BOOKMARKS: u64 = 2048;
/// Some extents are mirrored. An older program would write only one leg.
pub const FEATURE_MIRRORS: u64 = 4096;
/// Extents became mirrored, or plain, where they are. An older program would take blocks of the wrong type.
pub const FEATURE_CONVERTED: u64 = 8192;
/// There are striped extents.
pub const FEATURE_STRIPES: u64 = 16384;
/// Incompatible features that this program knows. If another bit is set, it must not touch the group.
pub const KNOWN_INCOMPATIBLE: u64 = FEATURE_ATTRIBUTES
    | FEATURE_GAPS
    | FEATURE_ALLOCATION
    | FEATURE_PACKED_RUNS
    | FEATURE_PAIR_LENGTHS
    | FEATURE_BAD_RUNS
    | FEATURE_MEMBERS
    | FEATURE_UNPROVEN
    | FEATURE_ZONES
    | FEATURE_SECOND_JOURNAL
    | FEATURE_BOOKMARKS
    | FEATURE_MIRRORS
    | FEATURE_CONVERTED
    | FEATURE_STRIPES;

/// Features that this program knows among those that a program must know to write, but not to read. None is defined.
pub const KNOWN_READ_ONLY_COMPATIBLE: u64 = 0;

on_disk! {
    /// The fixed part of a superblock. The table of physical volumes follows at byte 512.
    SuperblockRecord, 512 {
        0 => magic: u64,
        8 => crc: u32,
        12 => version: u32,
        16 => incompatible: u64,
        24 => compatible: u64,
        32 => sequence: u64,
        40 => pv_uuid: [u8; 16],
        56 => group_uuid: [u8; 16],
        72 => pv_index: u16,
        74 => pv_count: u16,
        76 => name_len: u32,
        80 => extent_blocks: u64,
        88 => pv_size: u64,
        96 => journal_start: u64,
        104 => journal_blocks: u64,
        112 => journal_id: u64,
        120 => journal_position: u64,
        128 => journal_seq: u64,
        136 => capture_seq: u64,
        144 => generation: u64,
        152 => index_a: u64,
        160 => index_b: u64,
        168 => stream_len: u64,
        176 => clean: u64,
        184 => name: [u8; 128],
        312 => bad_runs: [u8; 128],
        440 => lineage: u64,
        448 => zones_serial: u64,
        456 => zones_count: u32,
        460 => zones_crc: u32,
        464 => second_journal: u64,
        472 => stale_journals: u64,
        480 => read_only_compatible: u64,
        488 => behind: u64,
        496 => behind_longer: u64,
        504 => reserved: [u8; 8],
    }
}

on_disk! {
    /// Blocks of the journal's ring that cannot be written.
    BadRunRecord, 8 {
        0 => start: u32,
        4 => len: u32,
    }
}

on_disk! {
    /// One physical volume of the group's table.
    PvRecord, 48 {
        0 => uuid: [u8; 16],
        16 => first_extent: u64,
        24 => extents: u64,
        32 => data_offset: u64,
        40 => size: u64,
    }
}

on_disk! {
    /// For a physical volume that is out: the two superblocks of which it had one when it left. Otherwise zeros.
    LeftRecord, 8 {
        0 => newest: u32,
        4 => before: u32,
    }
}

/// Where the LeftRecords lie: one for each physical volume that the table has room for.
pub const LEFT_OFFSET: usize = SuperblockRecord::SIZE + MAX_PVS * PvRecord::SIZE;

/// The state in which a physical volume left: the marks ([`Superblock::mark`]) of the superblocks that it could have
/// then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub newest: u32,
    /// The superblock before it: a power cut may have prevented the write of the newest.
    pub before: u32,
}

/// A physical volume as the group knows it. Sizes in bytes, extents counted in the group's extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PvEntry {
    pub uuid: Uuid,
    pub first_extent: u64,
    pub extents: u64,
    pub size: u64,
}

/// Whether there are gaps between the extents of the physical volumes.
pub fn has_gaps(pvs: &[PvEntry]) -> bool {
    let mut next = 0;
    pvs.iter().any(|pv| std::mem::replace(&mut next, pv.first_extent + pv.extents) != pv.first_extent)
}

/// The first extent number of a physical volume that joins a group whose numbers end at `end`: behind the room of the
/// last one or, if there are no such numbers, right behind it. None: there are too few numbers.
pub fn place_behind(end: u64, extent_blocks: u64, extents: u64) -> Option<u64> {
    let roomy = end.checked_mul(extent_blocks)?.checked_next_multiple_of(ROOM)? / extent_blocks;
    [roomy, end].into_iter().find(|first| extents <= max_extents(*first, extent_blocks))
}

/// The most extents that the last physical volume can have if it begins here.
pub fn max_extents(first_extent: u64, extent_blocks: u64) -> u64 {
    ((RECORD_LIMIT - 1) / extent_blocks).saturating_sub(first_extent)
}

/// Whether all of these VG blocks are on physical volumes.
pub fn holds(pvs: &[PvEntry], extent_blocks: u64, start: u64, len: u64) -> bool {
    let Some(end) = start.checked_add(len) else { return false };
    let range = |pv: &PvEntry| (pv.first_extent * extent_blocks, (pv.first_extent + pv.extents) * extent_blocks);
    let first = pvs.partition_point(|pv| range(pv).1 <= start);
    let mut at = start;
    for (from, to) in pvs[first..].iter().map(range) {
        if at >= end || from > at {
            break;
        }
        at = to;
    }
    at >= end
}

/// A superblock in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub sequence: u64,
    pub pv_uuid: Uuid,
    pub pv_index: u16,
    pub pv_size: u64,
    /// None: a label without a group.
    pub group: Option<GroupRoot>,
}

/// What a superblock says of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoot {
    pub uuid: Uuid,
    pub name: String,
    pub extent_blocks: u64,
    pub pvs: Vec<PvEntry>,
    /// VG block and length of the journal ring.
    pub journal_start: u64,
    pub journal_blocks: u64,
    /// VG block of the ring's second copy, if there is one (JC1).
    pub second_journal: Option<u64>,
    /// Copies of the ring in which frames are missing, a bit for each (JC2).
    pub stale_journals: u64,
    /// Frames with another id do not belong to this journal.
    pub journal_id: u64,
    /// Where replay starts: byte in the ring, and the sequence of the first record there.
    pub journal_position: u64,
    pub journal_seq: u64,
    /// Records before this one are in the checkpoint, except those that it lists as open.
    pub capture_seq: u64,
    pub generation: u64,
    /// Incompatible features that are used.
    pub features: u64,
    /// Features that a program must know to write the group (RO1).
    pub read_only_compatible: u64,
    /// VG blocks of the two copies of the first index block.
    pub index: [u64; 2],
    pub stream_len: u64,
    /// The group was closed cleanly: the journal has no records.
    pub clean: bool,
    /// The blocks of the ring that cannot be written.
    pub bad: BadRuns,
    /// A random number, chosen when the group is opened without a physical volume. 0: none is out.
    pub lineage: u64,
    /// The physical volumes that are out, by their number in the table, with the state in which each left.
    pub left: BTreeMap<u16, Left>,
    /// The physical volumes that returned, and whose mirrored blocks may be older than the other leg's; a bit for each.
    pub behind: u64,
    /// Those of them that were behind already when another one of them returned.
    pub behind_longer: u64,
    /// The extents that are not at their home.
    pub zones: ZoneTable,
}

impl GroupRoot {
    /// The first eight bytes of the group's UUID: carried by every metadata block.
    pub fn tag(&self) -> u64 {
        u64::from_le_bytes(*self.uuid.0.first_chunk().expect("a UUID has 16 bytes"))
    }

    /// The first VG block of each copy of the journal's ring, also of copies in which frames are missing.
    pub fn journals(&self) -> impl Iterator<Item = u64> + use<> {
        std::iter::once(self.journal_start).chain(self.second_journal)
    }

    /// The copies that have all frames (JC2).
    pub fn whole_journals(&self) -> impl Iterator<Item = u64> + use<> {
        let stale = self.stale_journals;
        (0..).zip(self.journals()).filter(move |(n, _)| stale >> n & 1 == 0).map(|(_, start)| start)
    }

    /// RO1: an error if this program can only read the group.
    pub fn check_known_to_writers(&self) -> Result<()> {
        match self.read_only_compatible & !KNOWN_READ_ONLY_COMPATIBLE {
            0 => Ok(()),
            features => Err(Error::ReadableOnly { features }),
        }
    }

    /// Forgets the second copy of the journal.
    pub fn forget_second_journal(&mut self) {
        (self.second_journal, self.stale_journals) = (None, 0);
        self.features &= !FEATURE_SECOND_JOURNAL;
    }

    /// From now on exactly these copies have all frames.
    pub fn set_whole_journals(&mut self, whole: &[u64]) {
        let stale = (0..).zip(self.journals()).filter(|(_, start)| !whole.contains(start));
        self.stale_journals = stale.fold(0, |stale, (n, _)| stale | 1u64 << n);
        debug_assert!(self.whole_journals().next().is_some() || planted::is("journal_not_needed"), "JC2");
    }

    /// From now on these extents are not at their home. If they differ from the old ones, the table gets a new serial.
    pub fn set_zones(&mut self, zones: Vec<Zone>) {
        if self.zones.zones != zones {
            let next = self.zones.next(zones, self.tag());
            debug_assert!(self.zones.is_empty() || next.offset() != self.zones.offset(), "Z5");
            self.zones = next;
        }
    }

    /// The physical volumes that are out, a bit for each.
    pub fn out(&self) -> u64 {
        self.left.keys().fold(0, |out, pv| out | 1 << pv)
    }

    /// The UUIDs of the physical volumes that are out.
    pub fn out_uuids(&self) -> Vec<Uuid> {
        self.left.keys().filter_map(|pv| Some(self.pvs.get(usize::from(*pv))?.uuid)).collect()
    }

    /// A physical volume returns. With the last one the lineage ends.
    pub fn restore_missing(&mut self, pv: u16) {
        self.left.remove(&pv);
        if self.features & FEATURE_MIRRORS != 0 {
            self.behind_longer = self.behind;
            self.behind |= 1 << pv;
        }
        self.update_lineage();
    }

    /// A physical volume leaves the table; those behind it move up.
    pub fn forget_pv(&mut self, index: usize) {
        self.pvs.remove(index);
        let left = std::mem::take(&mut self.left).into_iter();
        let others = left.filter(|(pv, _)| usize::from(*pv) != index);
        self.left = others.map(|(pv, left)| (if usize::from(pv) > index { pv - 1 } else { pv }, left)).collect();
        for behind in [&mut self.behind, &mut self.behind_longer] {
            let mut flags = PvFlags(*behind);
            flags.remove(index);
            *behind = flags.0;
        }
        self.update_lineage();
    }

    fn update_lineage(&mut self) {
        if self.left.is_empty() {
            self.lineage = 0;
            self.features &= !FEATURE_MEMBERS;
        }
    }

    /// The incompatible features that the superblock itself uses.
    pub fn own_features(&self) -> u64 {
        let gaps = if has_gaps(&self.pvs) { FEATURE_GAPS } else { 0 };
        let bad = if self.bad.is_empty() { 0 } else { FEATURE_BAD_RUNS };
        let members = if self.left.is_empty() { 0 } else { FEATURE_MEMBERS };
        let zones = if self.zones.is_empty() { 0 } else { FEATURE_ZONES };
        let journals = if self.second_journal.is_none() { 0 } else { FEATURE_SECOND_JOURNAL };
        let is_mirrored = self.zones.zones.iter().any(|zone| zone.is_mirrored(self.extent_blocks));
        // The last mirrored extents may go before a physical volume that returned was found to lack nothing.
        let is_behind = self.behind != 0 && !planted::is("behind_without_mirrors");
        let mirrors = if is_mirrored || is_behind { FEATURE_MIRRORS } else { 0 };
        let is_converted = self.zones.zones.iter().any(|zone| zone.is_converted);
        let converted = if is_converted { FEATURE_CONVERTED } else { 0 };
        let is_striped = self.zones.zones.iter().any(|zone| zone.column.is_some());
        let stripes = if is_striped { FEATURE_STRIPES } else { 0 };
        gaps | bad | members | zones | journals | mirrors | converted | stripes
    }
}

fn encode_bad(bad: &BadRuns) -> [u8; BadRunRecord::SIZE * MAX_BAD_RUNS] {
    let mut bytes = [0; BadRunRecord::SIZE * MAX_BAD_RUNS];
    for (run, bytes) in bad.runs().iter().zip(bytes.chunks_exact_mut(BadRunRecord::SIZE)) {
        let number = |number| u32::try_from(number).expect("the journal keeps no others");
        let record = BadRunRecord { start: number(run.start), len: number(run.end - run.start) };
        bytes.copy_from_slice(&record.encode());
    }
    bytes
}

/// None: they are invalid. Zeros follow the last run.
fn decode_bad(record: &SuperblockRecord) -> Option<BadRuns> {
    let records = record.bad_runs.chunks_exact(BadRunRecord::SIZE).filter_map(BadRunRecord::decode_from);
    let runs = records.take_while(|run| run.len > 0);
    let runs = runs.map(|run| u64::from(run.start)..u64::from(run.start) + u64::from(run.len)).collect();
    let bad = BadRuns::from_runs(runs, record.journal_blocks)?;
    let is_announced = record.incompatible & FEATURE_BAD_RUNS != 0;
    (is_announced != bad.is_empty() && encode_bad(&bad) == record.bad_runs).then_some(bad)
}

/// None: they make no sense.
fn decode_left(block: &[u8], record: &SuperblockRecord) -> Option<BTreeMap<u16, Left>> {
    let records = block.get(LEFT_OFFSET..)?.chunks_exact(LeftRecord::SIZE).filter_map(LeftRecord::decode_from);
    let out = (0..).zip(records).filter(|(_, record)| (record.newest, record.before) != (0, 0));
    let left: BTreeMap<u16, Left> =
        out.map(|(pv, LeftRecord { newest, before })| (pv, Left { newest, before })).collect();
    let is_announced = record.incompatible & FEATURE_MEMBERS != 0;
    let marks = left.values().all(|left| left.newest != 0 && left.before != 0);
    let is_sound = marks && left.keys().all(|pv| *pv < record.pv_count) && left.len() < usize::from(record.pv_count);
    let has_lineage = (record.lineage != 0) == is_announced;
    (is_announced != left.is_empty() && has_lineage && (is_sound || left.is_empty())).then_some(left)
}

/// Whether its fields for the ring's second copy are valid. `inside`: whether these blocks are in the group.
fn has_sound_journals(record: &SuperblockRecord, inside: impl Fn(u64, u64) -> bool) -> bool {
    let (first, second, blocks) = (record.journal_start, record.second_journal, record.journal_blocks);
    match record.incompatible & FEATURE_SECOND_JOURNAL {
        0 => second == 0 && record.stale_journals == 0,
        _ => inside(second, blocks) && first.abs_diff(second) >= blocks && record.stale_journals < 0b11,
    }
}

/// The table that a superblock names. None: the fields are invalid.
fn decode_zones(record: &SuperblockRecord) -> Option<ZoneTable> {
    let (serial, count, crc) = (record.zones_serial, record.zones_count, record.zones_crc);
    let is_announced = record.incompatible & FEATURE_ZONES != 0;
    let is_possible = match is_announced {
        true => count > 0 && count as usize <= MAX_ZONES && serial < RECORD_LIMIT,
        false => (serial, count, crc) == (0, 0, 0),
    };
    is_possible.then_some(ZoneTable { serial, count, crc, zones: Vec::new() })
}

impl Superblock {
    /// A number that identifies this superblock within its group. It is the same on all physical volumes, and never 0.
    pub fn mark(sequence: u64, group: &GroupRoot) -> u32 {
        let plain =
            Superblock { sequence, pv_uuid: Uuid([0; 16]), pv_index: 0, pv_size: 0, group: Some(group.clone()) };
        block_crc(&plain.encode(), 8).max(1)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0u8; BLOCK_SIZE as usize];
        let mut record = SuperblockRecord {
            magic: MAGIC,
            crc: 0,
            version: VERSION,
            incompatible: 0,
            compatible: 0,
            sequence: self.sequence,
            pv_uuid: self.pv_uuid.0,
            group_uuid: [0; 16],
            pv_index: self.pv_index,
            pv_count: 0,
            name_len: 0,
            extent_blocks: 0,
            pv_size: self.pv_size,
            journal_start: 0,
            journal_blocks: 0,
            journal_id: 0,
            journal_position: 0,
            journal_seq: 0,
            capture_seq: 0,
            generation: 0,
            index_a: 0,
            index_b: 0,
            stream_len: 0,
            clean: 0,
            name: [0; 128],
            bad_runs: [0; 128],
            lineage: 0,
            zones_serial: 0,
            zones_count: 0,
            zones_crc: 0,
            second_journal: 0,
            stale_journals: 0,
            read_only_compatible: 0,
            behind: 0,
            behind_longer: 0,
            reserved: [0; 8],
        };
        if let Some(group) = &self.group {
            record.group_uuid = group.uuid.0;
            record.pv_count = u16::try_from(group.pvs.len()).expect("at most MAX_PVS physical volumes");
            record.name_len = u32::try_from(group.name.len()).expect("names are at most 127 bytes");
            record.name[..group.name.len()].copy_from_slice(group.name.as_bytes());
            record.extent_blocks = group.extent_blocks;
            record.journal_start = group.journal_start;
            record.journal_blocks = group.journal_blocks;
            record.second_journal = group.second_journal.unwrap_or(0);
            record.stale_journals = group.stale_journals;
            record.journal_id = group.journal_id;
            record.journal_position = group.journal_position;
            record.journal_seq = group.journal_seq;
            record.capture_seq = group.capture_seq;
            record.generation = group.generation;
            record.incompatible = group.features;
            record.read_only_compatible = group.read_only_compatible;
            [record.index_a, record.index_b] = group.index;
            record.stream_len = group.stream_len;
            record.clean = u64::from(group.clean);
            record.bad_runs = encode_bad(&group.bad);
            record.lineage = group.lineage;
            record.behind = group.behind;
            record.behind_longer = group.behind_longer;
            if !group.zones.is_empty() {
                record.zones_serial = group.zones.serial;
                record.zones_count = group.zones.count;
                record.zones_crc = group.zones.crc;
            }
            for (pv, Left { newest, before }) in &group.left {
                let at = LEFT_OFFSET + usize::from(*pv) * LeftRecord::SIZE;
                let left = LeftRecord { newest: *newest, before: *before };
                block[at..at + LeftRecord::SIZE].copy_from_slice(&left.encode());
            }
            for (i, pv) in group.pvs.iter().enumerate() {
                let entry = PvRecord {
                    uuid: pv.uuid.0,
                    first_extent: pv.first_extent,
                    extents: pv.extents,
                    data_offset: DATA_OFFSET,
                    size: pv.size,
                };
                let at = SuperblockRecord::SIZE + i * PvRecord::SIZE;
                block[at..at + PvRecord::SIZE].copy_from_slice(&entry.encode());
            }
        }
        block[..SuperblockRecord::SIZE].copy_from_slice(&record.encode());
        seal(&mut block, 8);
        block
    }

    /// `Ok(None)`: not a superblock at all (no magic). A superblock that is damaged or not ours to read is an error.
    pub fn decode(block: &[u8], place: &str) -> Result<Option<Superblock>> {
        let corrupt =
            |detail: &str| Error::Corrupt { what: "superblock", place: place.to_string(), detail: detail.to_string() };
        let record = SuperblockRecord::decode_from(block).ok_or_else(|| corrupt("it is cut short"))?;
        if record.magic != MAGIC {
            return Ok(None);
        }
        if block_crc(block, 8) != record.crc {
            return Err(corrupt("its checksum does not match"));
        }
        if record.version != VERSION || record.incompatible & !KNOWN_INCOMPATIBLE != 0 {
            return Err(Error::Unsupported(format!(
                "the physical volume at {place} has format version {} with features {:#x}, which this program does not know",
                record.version, record.incompatible
            )));
        }
        // A compatible feature may use these bytes.
        if record.compatible == 0 && record.reserved != [0; 8] {
            return Err(corrupt("its reserved bytes are not zero"));
        }
        if record.sequence >= RECORD_LIMIT {
            return Err(corrupt("its sequence number is invalid"));
        }
        let group = if record.pv_count == 0 { None } else { Some(Self::group(block, &record, corrupt)?) };
        Ok(Some(Superblock {
            sequence: record.sequence,
            pv_uuid: Uuid(record.pv_uuid),
            pv_index: record.pv_index,
            pv_size: record.pv_size,
            group,
        }))
    }

    fn group(block: &[u8], record: &SuperblockRecord, corrupt: impl Fn(&str) -> Error) -> Result<GroupRoot> {
        let count = usize::from(record.pv_count);
        if count > MAX_PVS || record.pv_index >= record.pv_count || block.len() < 512 + count * PvRecord::SIZE {
            return Err(corrupt("its table of physical volumes is invalid"));
        }
        let extent_blocks = record.extent_blocks;
        if !extent_blocks.is_power_of_two() || !EXTENT_BLOCKS.contains(&extent_blocks) {
            return Err(corrupt("its extent size is impossible"));
        }
        let name = record.name.get(..record.name_len as usize).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let name = name.ok_or_else(|| corrupt("the group's name is no text"))?;
        let counters = [record.journal_id, record.journal_seq, record.capture_seq, record.generation];
        if counters.iter().any(|counter| *counter >= RECORD_LIMIT) || record.clean > 1 {
            return Err(corrupt("its counters are impossible"));
        }
        let mut pvs = Vec::with_capacity(count);
        let mut next = 0u64;
        for i in 0..count {
            let at = SuperblockRecord::SIZE + i * PvRecord::SIZE;
            let entry = PvRecord::decode_from(&block[at..]).ok_or_else(|| corrupt("it is cut short"))?;
            let fits = entry
                .extents
                .checked_mul(extent_blocks * BLOCK_SIZE)
                .and_then(|bytes| bytes.checked_add(entry.data_offset))
                .is_some_and(|end| end <= entry.size && entry.size < 1 << 60);
            let is_placed = match record.incompatible & FEATURE_GAPS {
                0 => entry.first_extent == next,
                _ => entry.first_extent >= next,
            };
            if !is_placed || entry.data_offset != DATA_OFFSET || !fits {
                return Err(corrupt("the sizes in its table of physical volumes contradict each other"));
            }
            // A gap, too, must stay within the format's limits.
            let end = entry.first_extent.checked_add(entry.extents).filter(|end| *end < RECORD_LIMIT);
            next = end.ok_or_else(|| corrupt("the group is larger than the format allows"))?;
            pvs.push(PvEntry {
                uuid: Uuid(entry.uuid),
                first_extent: entry.first_extent,
                extents: entry.extents,
                size: entry.size,
            });
        }
        let blocks = next.checked_mul(extent_blocks).filter(|blocks| *blocks < RECORD_LIMIT);
        let blocks = blocks.ok_or_else(|| corrupt("the group is larger than the format allows"))?;
        let zones = decode_zones(record).ok_or_else(|| corrupt("the table of zones that it names is invalid"))?;
        // The places of zones are known only after their table was read: see
        // [`Placement::of`](crate::placement::Placement::of).
        let inside = |start: u64, len: u64| !zones.is_empty() || holds(&pvs, extent_blocks, start, len);
        let journal_bytes = record.journal_blocks.saturating_mul(BLOCK_SIZE);
        if !inside(record.journal_start, record.journal_blocks)
            || record.journal_blocks == 0
            || record.journal_position >= journal_bytes
            || record.journal_position % BLOCK_SIZE != 0
            || !inside(record.index_a, 1)
            || !inside(record.index_b, 1)
            || record.stream_len > blocks.saturating_mul(BLOCK_SIZE)
        {
            return Err(corrupt("it points outside the group"));
        }
        if !has_sound_journals(record, inside) {
            return Err(corrupt("its second copy of the journal is invalid"));
        }
        let has_mirrors = record.incompatible & FEATURE_MIRRORS != 0;
        let is_behind_sound =
            record.behind == 0 || has_mirrors && PvFlags::of_first(count).has_all(PvFlags(record.behind));
        if !is_behind_sound || record.behind_longer & !record.behind != 0 {
            return Err(corrupt("its list of physical volumes that are behind is invalid"));
        }
        let is_twice = record.incompatible & FEATURE_SECOND_JOURNAL != 0;
        let second_journal = is_twice.then_some(record.second_journal);
        let bad = decode_bad(record).ok_or_else(|| corrupt("its list of the journal's bad blocks is invalid"))?;
        let left = decode_left(block, record);
        let left = left.ok_or_else(|| corrupt("its list of physical volumes that are out is invalid"))?;
        Ok(GroupRoot {
            uuid: Uuid(record.group_uuid),
            name: name.to_string(),
            extent_blocks,
            pvs,
            journal_start: record.journal_start,
            journal_blocks: record.journal_blocks,
            second_journal,
            stale_journals: record.stale_journals,
            journal_id: record.journal_id,
            journal_position: record.journal_position,
            journal_seq: record.journal_seq,
            capture_seq: record.capture_seq,
            generation: record.generation,
            features: record.incompatible,
            read_only_compatible: record.read_only_compatible,
            index: [record.index_a, record.index_b],
            stream_len: record.stream_len,
            clean: record.clean != 0,
            bad,
            lineage: record.lineage,
            behind: record.behind,
            behind_longer: record.behind_longer,
            left,
            zones,
        })
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one run is what is meant")]
pub mod tests {
    use super::*;
    use std::ops::Range;

    #[test]
    fn each_has_room_until_the_numbers_are_used_up() {
        let room = ROOM / 1024;
        assert_eq!(place_behind(0, 1024, 5), Some(0));
        assert_eq!(place_behind(1, 1024, 5), Some(room));
        assert_eq!(place_behind(room, 1024, 5), Some(room));
        assert_eq!(place_behind(2 * room + 1, 1024, 5), Some(3 * room));
        let last = RECORD_LIMIT / 1024 - 1;
        assert_eq!(place_behind(last - 4, 1024, 4), Some(last - 4));
        assert_eq!(place_behind(last - 4, 1024, 5), None);
        assert_eq!(place_behind(last - room, 1024, 5), Some(last + 1 - room), "the last multiple");
        assert_eq!(max_extents(last - 4, 1024), 4);
        assert_eq!(place_behind(1, 1 << 28, 5), Some(256), "extents of a terabyte");
    }

    /// A sound root of a group over these physical volumes.
    pub fn a_root(pvs: Vec<PvEntry>, features: u64, journal_start: u64) -> GroupRoot {
        GroupRoot {
            uuid: Uuid([9; 16]),
            name: "g".into(),
            extent_blocks: 256,
            pvs,
            journal_start,
            journal_blocks: 256,
            second_journal: None,
            stale_journals: 0,
            journal_id: 1,
            journal_position: 0,
            journal_seq: 1,
            capture_seq: 1,
            generation: 1,
            features,
            read_only_compatible: 0,
            index: [300, 400],
            stream_len: 10,
            clean: true,
            bad: BadRuns::default(),
            lineage: 0,
            behind: 0,
            behind_longer: 0,
            left: BTreeMap::new(),
            zones: ZoneTable::default(),
        }
    }

    #[test]
    fn a_gap_is_understood_only_where_it_is_announced() {
        let pv = |byte: u8, first_extent| PvEntry { uuid: Uuid([byte; 16]), first_extent, extents: 4, size: 1 << 30 };
        let decoded = |pvs: Vec<PvEntry>, features, journal_start| {
            let group = GroupRoot { index: [1700, 1800], ..a_root(pvs, features, journal_start) };
            let superblock =
                Superblock { sequence: 7, pv_uuid: Uuid([1; 16]), pv_index: 0, pv_size: 1 << 30, group: Some(group) };
            let read = Superblock::decode(&superblock.encode(), "here");
            read.map(|read| assert_eq!(read, Some(superblock))).is_ok()
        };
        // Blocks 512 to 1535 and 1536 to 2559; 512 to 1535 and 1792 to 2815.
        assert!(decoded(vec![pv(1, 2), pv(2, 6)], FEATURE_GAPS, 512));
        assert!(!decoded(vec![pv(1, 2), pv(2, 6)], 0, 512), "not announced");
        assert!(!decoded(vec![pv(1, 2), pv(2, 6)], FEATURE_GAPS, 256), "the journal is in the gap");
        assert!(!decoded(vec![pv(1, 2), pv(2, 7)], FEATURE_GAPS, 512), "the index is in the gap");
        assert!(!decoded(vec![pv(1, 6), pv(2, 2)], FEATURE_GAPS, 1536), "out of order");
        assert!(!decoded(vec![pv(1, 2), pv(2, 5)], FEATURE_GAPS, 512), "one over the other");
        assert!(!decoded(vec![pv(1, 2), pv(2, u64::MAX - 1)], FEATURE_GAPS, 512), "beyond all numbers");
    }

    #[test]
    fn bad_places_are_read_only_where_they_are_announced() {
        let decoded = |runs: Vec<Range<u64>>, features| {
            let pvs = vec![PvEntry { uuid: Uuid([1; 16]), first_extent: 0, extents: 4, size: 1 << 30 }];
            let bad = BadRuns::from_runs(runs, 1 << 20).unwrap();
            let group = GroupRoot { bad, ..a_root(pvs, features, 0) };
            let places = group.bad.runs().len();
            let superblock =
                Superblock { sequence: 7, pv_uuid: Uuid([1; 16]), pv_index: 0, pv_size: 1 << 30, group: Some(group) };
            let read = Superblock::decode(&superblock.encode(), "here");
            read.map(|read| assert_eq!(read, Some(superblock))).is_ok().then_some(places)
        };
        let many = || (0..MAX_BAD_RUNS as u64).map(|n| n * 16..n * 16 + 3).collect::<Vec<_>>();
        assert_eq!(decoded(many(), FEATURE_BAD_RUNS), Some(16));
        assert_eq!(decoded(vec![], 0), Some(0));
        assert_eq!(decoded(vec![], FEATURE_BAD_RUNS), None, "announced, and there are none");
        assert_eq!(decoded(many(), 0), None, "not announced");
        assert_eq!(decoded(vec![250..257], FEATURE_BAD_RUNS), None, "beyond the ring");
    }

    #[test]
    fn marks_of_missing_pvs_are_read_only_if_valid() {
        let decoded = |pvs: usize, lineage, features, left: &[(u16, u32, u32)]| {
            let pv = |n: usize| PvEntry {
                uuid: Uuid([n as u8 + 1; 16]),
                first_extent: 4 * n as u64,
                extents: 4,
                size: 1 << 30,
            };
            let left =
                left.iter().map(|(pv, newest, before)| (*pv, Left { newest: *newest, before: *before })).collect();
            let group = GroupRoot { lineage, left, ..a_root((0..pvs).map(pv).collect(), features, 0) };
            let out = group.out();
            let superblock =
                Superblock { sequence: 7, pv_uuid: Uuid([1; 16]), pv_index: 0, pv_size: 1 << 30, group: Some(group) };
            let read = Superblock::decode(&superblock.encode(), "here");
            read.map(|read| assert_eq!(read, Some(superblock))).is_ok().then_some(out)
        };
        let members = FEATURE_MEMBERS;
        assert_eq!(decoded(3, 5, members, &[(1, 8, 9), (2, 8, 8)]), Some(6));
        assert_eq!(decoded(MAX_PVS, 5, members, &[(63, 1, u32::MAX)]), Some(1 << 63));
        assert_eq!(decoded(3, 5, 0, &[(1, 8, 9)]), None, "not announced");
        assert_eq!(decoded(3, 5, members, &[]), None, "announced, and none is out");
        assert_eq!(decoded(3, 0, members, &[(1, 8, 9)]), None, "without a lineage");
        assert_eq!(decoded(3, 5, 0, &[]), None, "a lineage, and none is out");
        assert_eq!(decoded(3, 5, members, &[(3, 8, 9)]), None, "there is no such place");
        assert_eq!(decoded(2, 5, members, &[(0, 8, 9), (1, 8, 9)]), None, "nobody is left");
        assert_eq!(decoded(3, 5, members, &[(1, 8, 0)]), None, "half a mark");
    }
}
