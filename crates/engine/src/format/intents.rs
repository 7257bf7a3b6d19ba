//! Write intents: which regions of a physical volume may differ from the other leg of a mirror.
//!
//! Each physical volume has one bit for each region, in sectors that stand alone: a power cut tears between sectors. A
//! sector that nobody wrote is all zeros. If a sector is anything else, and is not the one that belongs there, all of
//! its regions count as open (ML6).

use super::record::{block_crc, on_disk, seal};
use super::superblock::DATA_OFFSET;
use crate::planted;

/// First byte of the sectors on a physical volume.
pub const INTENTS_OFFSET: u64 = 640 << 10;
/// Sectors, of 512 bytes each.
pub const INTENT_SECTORS: u32 = 512;
/// Regions that a sector has bits for.
pub const REGIONS_IN_SECTOR: u32 = 3904;
/// Bytes of a physical volume in a region. Region 0 begins at [`DATA_OFFSET`].
pub const REGION_BYTES: u64 = 4 << 20;
/// Bytes after [`DATA_OFFSET`] that have a region. What lies behind them cannot be mirrored.
pub const LARGEST_MIRRORED: u64 = INTENT_SECTORS as u64 * REGIONS_IN_SECTOR as u64 * REGION_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"RWNI");

on_disk! {
    /// A sector of write intents.
    IntentsRecord, 512 {
        0 => magic: u32,
        4 => crc: u32,
        8 => group: u64,
        16 => number: u32,
        20 => reserved: u32,
        24 => bits: [u8; 488],
    }
}

/// The region of a byte of a physical volume.
pub fn region_of(offset: u64) -> u32 {
    u32::try_from(offset.saturating_sub(DATA_OFFSET) / REGION_BYTES).unwrap_or(u32::MAX)
}

/// First byte of a region.
pub fn region_start(region: u32) -> u64 {
    DATA_OFFSET + u64::from(region) * REGION_BYTES
}

/// The bytes of sector `number`, with a bit for each of these regions that lie in it.
pub fn encode(number: u32, group: u64, open: impl Iterator<Item = u32>) -> [u8; IntentsRecord::SIZE] {
    let mut bits = [0; 488];
    let first = number * REGIONS_IN_SECTOR;
    for bit in open.filter_map(|region| region.checked_sub(first)).filter(|bit| *bit < REGIONS_IN_SECTOR) {
        bits[bit as usize / 8] |= 1 << (bit % 8);
    }
    let mut bytes = IntentsRecord { magic: MAGIC, crc: 0, group, number, reserved: 0, bits }.encode();
    seal(&mut bytes, 4);
    bytes
}

/// The open regions of sector `number`. None: it cannot be told, so all of them count as open.
pub fn decode(bytes: &[u8], number: u32, group: u64) -> Option<Vec<u32>> {
    let bytes = bytes.get(..IntentsRecord::SIZE)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(Vec::new());
    }
    let record = IntentsRecord::decode_from(bytes)?;
    let is_own = record.magic == MAGIC && record.group == group && record.number == number && record.reserved == 0;
    if (!is_own || block_crc(bytes, 4) != record.crc) && !planted::is("torn_intents_trusted") {
        return None;
    }
    let is_set = |bit: &u32| record.bits[*bit as usize / 8] >> (bit % 8) & 1 == 1;
    Some((0..REGIONS_IN_SECTOR).filter(is_set).map(|bit| number * REGIONS_IN_SECTOR + bit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_gives_back_its_regions() {
        let regions = [REGIONS_IN_SECTOR, REGIONS_IN_SECTOR + 9, 2 * REGIONS_IN_SECTOR - 1];
        let all = regions.into_iter().chain([0, REGIONS_IN_SECTOR - 1, 2 * REGIONS_IN_SECTOR]);
        let bytes = encode(1, 77, all);
        assert_eq!(decode(&bytes, 1, 77), Some(regions.to_vec()));
        assert_eq!(decode(&[0; 512], 1, 77), Some(Vec::new()), "nobody wrote it");
        for other in [decode(&bytes, 2, 77), decode(&bytes, 1, 78), decode(&bytes[..511], 1, 77)] {
            assert_eq!(other, None);
        }
    }

    #[test]
    fn a_damaged_sector_is_never_believed() {
        let mut bytes = encode(0, 77, [5].into_iter());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes, 0, 77), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn regions_are_counted_from_the_extents() {
        assert_eq!([region_of(DATA_OFFSET), region_of(DATA_OFFSET + REGION_BYTES - 1)], [0, 0]);
        assert_eq!(region_of(region_start(7)), 7);
        assert_eq!(region_of(u64::MAX), u32::MAX);
        assert_eq!(region_of(DATA_OFFSET + LARGEST_MIRRORED - 1), INTENT_SECTORS * REGIONS_IN_SECTOR - 1);
        assert!(INTENTS_OFFSET + u64::from(INTENT_SECTORS) * 512 <= DATA_OFFSET);
    }
}
