//! Tallies: how far a disk with legs of mirrors has come, and how far it knows that the others have.
//!
//! Linux's md driver has the like in its superblocks and bitmaps: `events` and `events_cleared`
//! (`drivers/md/md-bitmap.c`). The record is one sector, so a power cut leaves the old or the new one.

use super::record::{block_crc, on_disk, seal};
use super::superblock::MAX_PVS;

/// First byte of the record on a physical volume.
pub const TALLY_OFFSET: u64 = 896 << 10;

const MAGIC: u32 = u32::from_le_bytes(*b"RWNT");

on_disk! {
    /// The tally of a physical volume, and what it knows of the others.
    TallyRecord, 512 {
        0 => magic: u32,
        4 => crc: u32,
        8 => group: u64,
        16 => own: u32,
        20 => known: [u8; 256],
        276 => reserved: [u8; 236],
    }
}

/// A tally, and those that others are known to have, by their places in the group's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub own: u32,
    pub known: [u32; MAX_PVS],
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { own: 0, known: [0; MAX_PVS] }
    }
}

impl Tally {
    /// The bytes on the disk. `group`: the first eight bytes of the group's UUID.
    pub fn encode(&self, group: u64) -> [u8; TallyRecord::SIZE] {
        let mut known = [0; 256];
        for (bytes, tally) in known.chunks_exact_mut(4).zip(self.known) {
            bytes.copy_from_slice(&tally.to_le_bytes());
        }
        let record = TallyRecord { magic: MAGIC, crc: 0, group, own: self.own, known, reserved: [0; 236] };
        let mut bytes = record.encode();
        seal(&mut bytes, 4);
        bytes
    }

    /// What lies there. All zeros: nobody wrote it, and everything is 0. None: it is damaged.
    pub fn decode(bytes: &[u8], group: u64) -> Option<Tally> {
        let bytes = bytes.get(..TallyRecord::SIZE)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Tally::default());
        }
        let record = TallyRecord::decode_from(bytes)?;
        let is_own = record.magic == MAGIC && record.group == group && block_crc(bytes, 4) == record.crc;
        let mut tally = Tally { own: record.own, ..Tally::default() };
        for (tally, bytes) in tally.known.iter_mut().zip(record.known.chunks_exact(4)) {
            *tally = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        is_own.then_some(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::super::intents::{INTENT_SECTORS, INTENTS_OFFSET};
    use super::super::superblock::DATA_OFFSET;
    use super::*;

    #[test]
    fn a_record_gives_back_its_tallies() {
        let mut tally = Tally { own: 9, ..Tally::default() };
        (tally.known[0], tally.known[MAX_PVS - 1]) = (8, u32::MAX);
        let bytes = tally.encode(77);
        assert_eq!(Tally::decode(&bytes, 77), Some(tally));
        assert_eq!(Tally::decode(&[0; 512], 77), Some(Tally::default()), "nobody wrote it");
        assert_eq!([Tally::decode(&bytes, 78), Tally::decode(&bytes[..511], 77)], [None, None]);
    }

    #[test]
    fn a_damaged_record_is_never_believed() {
        let mut bytes = Tally { own: 9, ..Tally::default() }.encode(77);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tally::decode(&bytes, 77), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn it_lies_between_the_intents_and_the_extents() {
        const { assert!(INTENTS_OFFSET + INTENT_SECTORS as u64 * 512 <= TALLY_OFFSET) };
        const { assert!(TALLY_OFFSET + 4096 <= DATA_OFFSET && MAX_PVS * 4 == 256) };
    }
}
