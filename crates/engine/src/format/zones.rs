//! The table of zones: runs of extents that are not at the home of their numbers.
//!
//! A physical volume's range of the group's address space is the *home* of its extents. A zone gives a run of numbers
//! another place: extents of any physical volume, or none. A mirrored zone has two places, its *legs*. A striped zone is a
//! column of a set of zones that follow each other: the blocks of all of them alternate between the columns. The table lies on
//! each physical volume before the extents, in one of two slots. The superblock names the slot, the length and the checksum. So the table is read before any
//! block that may lie in a zone.
//!
//! * Z1 Each number has at most one place: the place of the zone that covers it, or its home.
//! * Z2 Each extent of each physical volume has exactly one number, or is the second leg of one.
//! * Z3 Both legs of a number lie on different physical volumes.
//! * Z4 Extents that are made mirrored get numbers from [`MIRRORED_FROM`] on, behind all others. Extents that become
//!   mirrored, or plain, where they are, keep their numbers: their zones say so.
//! * Z6 The zones of a set of columns follow each other in the order of the columns, have as many extents each, and lie on
//!   different physical volumes. Their numbers are from [`MIRRORED_FROM`] on. All sets of a group have the same layout.
//! * Z5 A slot is written only while the newest superblock is durable on every physical volume and names the other slot, or none.

use super::record::{block_crc, on_disk, seal};
use crate::error::{Error, Result};
use crate::planted;
use crate::units::BLOCK_SIZE;
use std::collections::BTreeSet;
use std::ops::Range;

/// First byte of each slot on a physical volume: a table goes to slot `serial % 2`.
pub const ZONE_SLOTS: [u64; 2] = [64 << 10, 256 << 10];
/// The most zones in a table: a slot has room for this many.
pub const MAX_ZONES: usize = 4096;
/// Added to the number of a second leg that is being filled.
const FILLING: u16 = 1 << 15;
/// Added if the extents are mirrored although their numbers are plain, or the other way round.
const CONVERTED: u16 = 1 << 14;
/// Added if the zone is a column of a striped set. `second_pe` then has the layout.
const STRIPED: u16 = 1 << 13;
/// The physical volume of a zone that has no place.
const NOWHERE: u16 = u16::MAX;

/// First block of the numbers of extents that were made mirrored (Z4). In a group without mirrors no number is as high.
pub const MIRRORED_FROM: u64 = 1 << 46;

const MAGIC: u64 = u64::from_le_bytes(*b"ROWENZON");

on_disk! {
    /// The head of a table of zones. Its ZoneRecords follow.
    ZoneTableRecord, 32 {
        0 => magic: u64,
        8 => crc: u32,
        12 => count: u32,
        16 => group: u64,
        24 => serial: u64,
    }
}

on_disk! {
    /// A zone. `pv` is 65535 if its numbers have no place. `second_pv` is 0 if there is no second leg, otherwise one
    /// more than its physical volume's number, and 32768 more while the leg is being filled. In a zone whose extents were
    /// converted, 16384 is added: they are mirrored although their numbers are plain, or the other way round. In a column
    /// of a striped set it is 8192, and `second_pe` is the number of columns, plus 256 times the column's own number
    /// from 0, plus 65536 times the binary logarithm of a stripe's blocks.
    ZoneRecord, 32 {
        0 => first_extent: u64,
        8 => extents: u64,
        16 => first_pe: u64,
        24 => pv: u16,
        26 => second_pv: u16,
        28 => second_pe: u32,
    }
}

/// A run of extents on a physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonePlace {
    /// The physical volume's place in the group's table.
    pub pv: u16,
    /// The first of its extents, counted from 0.
    pub first_pe: u64,
}

/// How blocks alternate between columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeLayout {
    /// Columns, each on another physical volume: 2 to [`MAX_COLUMNS`].
    pub columns: u8,
    /// The binary logarithm of a stripe's blocks. A stripe is at most an extent.
    pub shift: u8,
}

/// The most columns.
pub const MAX_COLUMNS: u8 = 32;
/// The largest stripe has two to the power of this many blocks: 1 GiB.
const MAX_SHIFT: u8 = 18;

impl StripeLayout {
    /// The blocks of a stripe: those that follow each other on one column.
    pub fn blocks(&self) -> u64 {
        1u64.checked_shl(self.shift.into()).unwrap_or(u64::MAX)
    }

    /// The blocks of extents of which each column has one.
    pub fn row(&self, extent_blocks: u64) -> u64 {
        u64::from(self.columns) * extent_blocks
    }

    /// Whether volumes of a group with such extents can have it.
    pub fn fits(&self, extent_blocks: u64) -> bool {
        (2..=MAX_COLUMNS).contains(&self.columns)
            && self.shift <= MAX_SHIFT
            && extent_blocks.is_multiple_of(self.blocks())
    }
}

/// A zone that is a column of a striped set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub layout: StripeLayout,
    /// Which column, from 0 on.
    pub number: u8,
}

impl Column {
    fn encode(self) -> u64 {
        u64::from(u32::from_le_bytes([self.layout.columns, self.number, self.layout.shift, 0]))
    }

    fn decode(code: u32) -> Column {
        let [columns, number, shift, _] = code.to_le_bytes();
        Column { layout: StripeLayout { columns, shift }, number }
    }
}

/// A run of extent numbers that are not at their home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    pub first_extent: u64,
    pub extents: u64,
    /// None: no extent has these numbers. They were renumbered, or their physical volume left.
    pub place: Option<ZonePlace>,
    /// The second leg of mirrored extents. None: they have only one, for the time being.
    pub second: Option<ZonePlace>,
    /// The second leg is being filled from the first one, and does not count yet.
    pub is_filling: bool,
    /// The extents are mirrored although their numbers are plain, or the other way round (Z4).
    pub is_converted: bool,
    /// The zone is a column of a striped set (Z6).
    pub column: Option<Column>,
}

impl Zone {
    /// Numbers that have no place.
    pub fn nowhere(first_extent: u64, extents: u64) -> Zone {
        Zone { first_extent, extents, place: None, second: None, is_filling: false, is_converted: false, column: None }
    }

    /// Whether its extents are mirrored (Z4).
    pub fn is_mirrored(&self, extent_blocks: u64) -> bool {
        self.column.is_none() && (self.first_extent.saturating_mul(extent_blocks) >= MIRRORED_FROM) != self.is_converted
    }

    /// All of its places.
    pub fn places(&self) -> impl Iterator<Item = ZonePlace> + use<> {
        self.place.into_iter().chain(self.second)
    }
}

/// A table as the superblock names it, and its zones in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneTable {
    /// Counts the tables that the group has had. Its lowest bit is the slot.
    pub serial: u64,
    pub count: u32,
    pub crc: u32,
    pub zones: Vec<Zone>,
}

impl ZoneTable {
    /// The table with these zones that follows this one.
    #[must_use]
    pub fn next(&self, zones: Vec<Zone>, group: u64) -> ZoneTable {
        let count = u32::try_from(zones.len()).expect("at most MAX_ZONES");
        let step = if planted::is("slot_overwritten") { 2 } else { 1 };
        let mut table = ZoneTable { serial: self.serial + step, count, crc: 0, zones };
        table.crc = block_crc(&table.encode(group), 8);
        table
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// First byte of its slot.
    pub fn offset(&self) -> u64 {
        ZONE_SLOTS[(self.serial % 2) as usize]
    }

    /// Bytes in its slot: whole blocks.
    pub fn bytes(&self) -> u64 {
        let bytes = ZoneTableRecord::SIZE + self.count as usize * ZoneRecord::SIZE;
        (bytes as u64).next_multiple_of(BLOCK_SIZE)
    }

    /// The bytes of its slot. `group`: the first eight bytes of the group's UUID.
    pub fn encode(&self, group: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes() as usize];
        let head = ZoneTableRecord { magic: MAGIC, crc: 0, count: self.count, group, serial: self.serial };
        bytes[..ZoneTableRecord::SIZE].copy_from_slice(&head.encode());
        let records = bytes[ZoneTableRecord::SIZE..].chunks_exact_mut(ZoneRecord::SIZE);
        for (zone, bytes) in self.zones.iter().zip(records) {
            let place = zone.place.unwrap_or(ZonePlace { pv: NOWHERE, first_pe: 0 });
            let filling = if zone.is_filling { FILLING } else { 0 };
            let converted = if zone.is_converted { CONVERTED } else { 0 };
            let (second_pv, second_pe) = match (zone.second, zone.column) {
                (_, Some(column)) => (STRIPED, column.encode()),
                (Some(second), None) => ((second.pv + 1) | filling, second.first_pe),
                (None, None) => (0, 0),
            };
            let record = ZoneRecord {
                first_extent: zone.first_extent,
                extents: zone.extents,
                first_pe: place.first_pe,
                pv: place.pv,
                second_pv: second_pv | converted,
                second_pe: u32::try_from(second_pe).expect("checked when the leg was placed"),
            };
            bytes.copy_from_slice(&record.encode());
        }
        seal(&mut bytes, 8);
        bytes
    }

    /// The zones of the table that a superblock names, from the bytes in its slot. `place`: for errors.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: this is not that table.
    pub fn decode(&self, bytes: &[u8], group: u64, place: &str) -> Result<Vec<Zone>> {
        let corrupt =
            |detail: &str| Error::Corrupt { what: "table of zones", place: place.into(), detail: detail.into() };
        let head = ZoneTableRecord::decode_from(bytes).ok_or_else(|| corrupt("it is cut short"))?;
        if head.magic != MAGIC || head.group != group || head.serial != self.serial {
            return Err(corrupt("it is not the one that the superblock names"));
        }
        let bytes = bytes.get(..self.bytes() as usize).ok_or_else(|| corrupt("it is cut short"))?;
        if head.count != self.count || head.crc != self.crc || block_crc(bytes, 8) != head.crc {
            return Err(corrupt("its checksum does not match"));
        }
        let records = bytes[ZoneTableRecord::SIZE..].chunks_exact(ZoneRecord::SIZE).take(self.count as usize);
        let is_striped = |record: &ZoneRecord| record.second_pv & STRIPED != 0;
        let zone = |record: ZoneRecord| Zone {
            column: is_striped(&record).then(|| Column::decode(record.second_pe)),
            first_extent: record.first_extent,
            extents: record.extents,
            place: (record.pv != NOWHERE).then_some(ZonePlace { pv: record.pv, first_pe: record.first_pe }),
            second: (record.second_pv & !(FILLING | CONVERTED | STRIPED))
                .checked_sub(1)
                .filter(|_| !is_striped(&record))
                .map(|pv| ZonePlace { pv, first_pe: u64::from(record.second_pe) }),
            is_filling: record.second_pv & FILLING != 0,
            is_converted: record.second_pv & CONVERTED != 0,
        };
        let zones: Vec<Zone> = records.filter_map(ZoneRecord::decode_from).map(zone).collect();
        match (ZoneTable { zones: zones.clone(), ..self.clone() }).encode(group) == bytes {
            true => Ok(zones),
            false => Err(corrupt("it has bytes that mean nothing")),
        }
    }
}

/// Whether the zones fit the physical volumes, whose homes these are (Z1 to Z4). In extents of this many blocks; `most`
/// is the largest number.
pub fn are_sound(zones: &[Zone], homes: &[Range<u64>], extent_blocks: u64, most: u64) -> bool {
    let mirrored_from = MIRRORED_FROM.div_ceil(extent_blocks);
    let has_high = || zones.iter().any(|zone| zone.second.is_some() || zone.is_converted || zone.column.is_some());
    if homes.iter().any(|home| home.end > mirrored_from) && has_high() {
        return false;
    }
    if !are_whole_sets(zones, extent_blocks) {
        return false;
    }
    let is_sound = |zone: &Zone| match (zone.place, zone.second) {
        (Some(_), None) => true,
        (Some(first), Some(second)) => first.pv != second.pv && zone.is_mirrored(extent_blocks),
        (None, second) => second.is_none() && !zone.is_converted,
    };
    if !zones.iter().all(is_sound) {
        return false;
    }
    let end_of = |zone: &Zone| zone.first_extent.checked_add(zone.extents).filter(|end| *end <= most);
    let mut end = 0;
    for zone in zones {
        let Some(own_end) = end_of(zone).filter(|own_end| *own_end > zone.first_extent && zone.first_extent >= end)
        else {
            return false;
        };
        end = own_end;
    }
    // The extents of each physical volume that have a number or are second legs: those in zones, and those at home.
    let mut taken: Vec<(u16, Range<u64>)> = Vec::new();
    for (zone, place) in zones.iter().flat_map(|zone| zone.places().map(move |place| (zone, place))) {
        let last = place.first_pe.checked_add(zone.extents);
        let has = homes.get(usize::from(place.pv)).map_or(0, |home| home.end - home.start);
        match last.filter(|last| *last <= has) {
            Some(last) => taken.push((place.pv, place.first_pe..last)),
            None => return false,
        }
    }
    for (index, home) in (0..).zip(homes) {
        taken.extend(outside(zones, home).map(|run| (index, run.start - home.start..run.end - home.start)));
    }
    taken.sort_unstable_by_key(|(pv, run)| (*pv, run.start));
    let mut next = vec![0; homes.len()];
    for (pv, run) in taken {
        let next = &mut next[usize::from(pv)];
        if run.start != *next {
            return false;
        }
        *next = run.end;
    }
    next.iter().zip(homes).all(|(next, home)| *next == home.end - home.start)
}

/// Whether all columns of striped sets are there (Z6).
fn are_whole_sets(zones: &[Zone], extent_blocks: u64) -> bool {
    let mut left = zones;
    let mut layout = None;
    while let Some(zone) = left.first() {
        let Some(column) = zone.column else {
            left = &left[1..];
            continue;
        };
        let count = usize::from(column.layout.columns);
        let is_same = layout.is_none_or(|layout| layout == column.layout);
        if !is_same || !column.layout.fits(extent_blocks) || left.len() < count {
            return false;
        }
        layout = Some(column.layout);
        let row = column.layout.columns.into();
        let is_aligned =
            zone.first_extent.is_multiple_of(row) && zone.first_extent.saturating_mul(extent_blocks) >= MIRRORED_FROM;
        let is_next = |(number, own): (usize, &Zone)| {
            let before = number as u64 * zone.extents;
            own.column == Some(Column { number: number as u8, layout: column.layout })
                && own.extents == zone.extents
                && own.first_extent.checked_sub(zone.first_extent) == Some(before)
                && !own.is_converted
                && !own.is_filling
        };
        let set = &left[..count];
        let pvs: BTreeSet<u16> = set.iter().filter_map(|own| Some(own.place?.pv)).collect();
        if !is_aligned || pvs.len() != count || !set.iter().enumerate().all(is_next) {
            return false;
        }
        left = &left[count..];
    }
    true
}

/// The parts of a range of numbers that no zone covers.
pub fn outside<'a>(zones: &'a [Zone], range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + 'a {
    let (mut at, end) = (range.start, range.end);
    let first = zones.partition_point(|zone| zone.first_extent + zone.extents <= at);
    let mut zones = zones[first..].iter();
    std::iter::from_fn(move || {
        while at < end {
            let (from, to) = match zones.next() {
                Some(zone) => (zone.first_extent.min(end), zone.first_extent + zone.extents),
                None => (end, end),
            };
            let part = at..from;
            at = to.max(at);
            if part.start < part.end {
                return Some(part);
            }
            if from == end {
                return None;
            }
        }
        None
    })
}

#[cfg(test)]
#[path = "zones_test.rs"]
mod tests;
