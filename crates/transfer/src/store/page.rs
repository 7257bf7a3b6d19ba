//! Pages of a map: which block of a store has what a block of a volume has. A map is a tree of fixed shape: a leaf has 512 blocks, a node
//! has 512 pages. A page never changes, so maps share those that are equal.

use super::error::Result;
use super::seal::{From, put_number, put_signed};
use std::collections::BTreeMap;

/// Slots of a page, as a power of two.
pub const BITS: u32 = 9;
pub const SLOTS: usize = 1 << BITS;
/// The greatest height: then a map has 2^54 blocks.
pub const MOST_HEIGHT: u8 = 6;

/// Addresses; 0 is none.
pub type Slots = Box<[u64; SLOTS]>;

pub fn empty() -> Slots {
    Box::new([0; SLOTS])
}

/// The height of a map of this many blocks.
pub fn height_of(blocks: u64) -> u8 {
    (1..MOST_HEIGHT).find(|height| blocks <= 1 << (BITS * u32::from(*height))).unwrap_or(MOST_HEIGHT)
}

/// Blocks below a slot of a page at this level; leaves are at level 0.
pub fn blocks_of_slot(level: u8) -> u64 {
    1 << (BITS * u32::from(level))
}

/// The bytes of a page.
pub fn encode(level: u8, slots: &Slots) -> Vec<u8> {
    let mut runs: Vec<(usize, u64, u64)> = Vec::new();
    for (slot, address) in slots.iter().enumerate().filter(|(_, address)| **address != 0) {
        match runs.last_mut() {
            Some((start, first, len)) if *start + *len as usize == slot && *first + *len == *address => *len += 1,
            _ => runs.push((slot, *address, 1)),
        }
    }
    let mut out = vec![level];
    put_number(&mut out, runs.len() as u64);
    let (mut next_slot, mut next_address) = (0, 0);
    for (slot, address, len) in runs {
        put_number(&mut out, (slot - next_slot) as u64);
        put_number(&mut out, len);
        put_signed(&mut out, address.wrapping_sub(next_address) as i64);
        (next_slot, next_address) = (slot + len as usize, address + len);
    }
    out
}

/// Reads a page of this level.
pub fn decode(name: &str, level: u8, bytes: &[u8]) -> Result<Slots> {
    let mut from = From::new(name, bytes);
    if from.u8()? != level {
        return Err(from.damaged("a page is where it cannot be"));
    }
    let runs = from.count(3)?;
    let mut slots = empty();
    let (mut slot, mut address) = (0u64, 0u64);
    for _ in 0..runs {
        let (gap, len) = (from.number()?, from.number()?);
        let start = slot.checked_add(gap).ok_or_else(|| from.damaged("a page is too long"))?;
        slot = start
            .checked_add(len)
            .filter(|end| len > 0 && *end <= SLOTS as u64)
            .ok_or_else(|| from.damaged("a page is too long"))?;
        address = address.wrapping_add(from.signed()? as u64);
        if address == 0 || address.checked_add(len).is_none_or(|end| end > super::MOST_ADDRESSES) {
            return Err(from.damaged("a page has impossible addresses"));
        }
        for (to, at) in slots[start as usize..slot as usize].iter_mut().zip(address..) {
            *to = at;
        }
        address += len;
    }
    from.end()?;
    Ok(slots)
}

/// What a point's table says: its map, and how many blocks and pages of each segment it uses. Cleaning reads nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub root: u64,
    pub height: u8,
    pub blocks: u64,
    /// Blocks with data.
    pub data_blocks: u64,
    /// By the number of the segment. The number of the segment that has this table counts it, too.
    pub uses: BTreeMap<u64, u64>,
}

const TABLE: u8 = 0x54;

impl Contents {
    pub fn new(blocks: u64) -> Contents {
        Contents { root: 0, height: height_of(blocks), blocks, data_blocks: 0, uses: BTreeMap::new() }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![TABLE, self.height];
        put_number(&mut out, self.root);
        put_number(&mut out, self.blocks);
        put_number(&mut out, self.data_blocks);
        put_number(&mut out, self.uses.len() as u64);
        let mut next = 0;
        for (number, uses) in &self.uses {
            put_number(&mut out, number - next);
            put_number(&mut out, *uses);
            next = *number;
        }
        out
    }

    pub fn decode(name: &str, bytes: &[u8]) -> Result<Contents> {
        let mut from = From::new(name, bytes);
        let (magic, height) = (from.u8()?, from.u8()?);
        let (root, blocks, data_blocks) = (from.number()?, from.number()?, from.number()?);
        if magic != TABLE || height == 0 || height > MOST_HEIGHT || root >= super::MOST_ADDRESSES {
            return Err(from.damaged("it has no table of a point where one should be"));
        }
        let count = from.count(2)?;
        let mut uses = BTreeMap::new();
        let mut number = 0u64;
        for _ in 0..count {
            number = number
                .checked_add(from.number()?)
                .filter(|number| *number < super::MOST_NUMBERS)
                .ok_or_else(|| from.damaged("its numbers are impossible"))?;
            uses.insert(number, from.number()?);
        }
        from.end()?;
        Ok(Contents { root, height, blocks, data_blocks, uses })
    }

    pub fn uses(&mut self, address: u64) {
        *self.uses.entry(address / super::SEGMENT_BLOCKS).or_default() += 1;
    }

    /// What was counted is used no more.
    pub fn drops(&mut self, address: u64) {
        let number = address / super::SEGMENT_BLOCKS;
        if let Some(uses) = self.uses.get_mut(&number) {
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                self.uses.remove(&number);
            }
        }
    }
}
