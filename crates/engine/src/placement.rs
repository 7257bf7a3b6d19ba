//! Placement: converts VG blocks to a physical volume and a byte on it.
//! It is linear: physical volumes follow each other in the group's address space. Between them there may be gaps, in which there
//! are no blocks: where a physical volume left or shrank, and the room that each has to grow.

use crate::disk::{PvIndex, Segment, Segments};
use crate::format::superblock::{self, DATA_OFFSET, PvEntry};
use crate::units::{BLOCK_SIZE, VgBlock};

/// The group's table of physical volumes as address ranges.
#[derive(Clone, Debug)]
pub struct Placement {
    pub extent_blocks: u64,
    pub pvs: Vec<PvEntry>,
    has_gaps: bool,
}

impl Placement {
    pub fn new(extent_blocks: u64, pvs: Vec<PvEntry>) -> Placement {
        let has_gaps = superblock::has_gaps(&pvs);
        Placement { extent_blocks, pvs, has_gaps }
    }

    /// The end of the group's address space, in blocks.
    pub fn blocks(&self) -> u64 {
        self.pvs.last().map_or(0, |pv| pv.first_extent + pv.extents) * self.extent_blocks
    }

    /// All blocks that there are, gaps not counted.
    pub fn count(&self) -> u64 {
        self.pvs.iter().map(|pv| pv.extents).sum::<u64>() * self.extent_blocks
    }

    /// How many blocks there are before `block`, which is on a physical volume. What [`holds`](Self::holds) says yes to has
    /// consecutive numbers.
    pub fn number_of(&self, block: u64) -> u64 {
        let mut before = 0;
        for pv in &self.pvs {
            let first = pv.first_extent * self.extent_blocks;
            let blocks = pv.extents * self.extent_blocks;
            if block < first + blocks {
                return before + (block - first);
            }
            before += blocks;
        }
        before
    }

    /// Whether all of these blocks are on physical volumes.
    pub fn holds(&self, start: u64, len: u64) -> bool {
        match self.has_gaps {
            false => start.checked_add(len).is_some_and(|end| end <= self.blocks()),
            true => superblock::holds(&self.pvs, self.extent_blocks, start, len),
        }
    }

    /// The blocks of one physical volume.
    pub fn range_of(&self, pv: PvIndex) -> std::ops::Range<u64> {
        let pv = &self.pvs[usize::from(pv.0)];
        pv.first_extent * self.extent_blocks..(pv.first_extent + pv.extents) * self.extent_blocks
    }

    /// The physical volume that holds `block`, which one does, and the end of its range of blocks.
    pub fn pv_of(&self, block: VgBlock) -> (PvIndex, u64) {
        let extent = block.0 / self.extent_blocks;
        let index = self.pvs.partition_point(|pv| pv.first_extent + pv.extents <= extent);
        let pv = &self.pvs[index];
        let index = u16::try_from(index).expect("a group has at most 64 physical volumes");
        (PvIndex(index), (pv.first_extent + pv.extents) * self.extent_blocks)
    }

    /// Adds the segments of the bytes [`start`, `start + len`) of the group's address space to `segments`,
    /// with the buffer offset `at`. Continues the last segment where it can.
    pub fn map_bytes(&self, mut start: u64, mut len: u64, mut at: u32, segments: &mut Segments) {
        while len > 0 {
            let (pv, end) = self.pv_of(VgBlock(start / BLOCK_SIZE));
            let first = self.pvs[usize::from(pv.0)].first_extent * self.extent_blocks * BLOCK_SIZE;
            let piece = len.min(end * BLOCK_SIZE - start).min(1 << 30);
            let piece32 = u32::try_from(piece).expect("cut to a gigabyte");
            let offset = DATA_OFFSET + start - first;
            match segments.last_mut() {
                Some(last)
                    if last.pv == pv && last.offset + u64::from(last.len) == offset && last.at + last.len == at =>
                {
                    last.len += piece32;
                }
                _ => segments.push(Segment { pv, offset, at, len: piece32 }),
            }
            start += piece;
            len -= piece;
            at = at.wrapping_add(piece32);
        }
    }

    /// The same for whole blocks.
    pub fn map_blocks(&self, start: VgBlock, blocks: u64, at: u32, segments: &mut Segments) {
        self.map_bytes(start.0 * BLOCK_SIZE, blocks * BLOCK_SIZE, at, segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Uuid;

    fn placement(ranges: &[(u64, u64)]) -> Placement {
        let entry = |(first_extent, extents): &(u64, u64)| PvEntry {
            uuid: Uuid([1; 16]),
            first_extent: *first_extent,
            extents: *extents,
            size: 1 << 40,
        };
        Placement::new(4, ranges.iter().map(entry).collect())
    }

    #[test]
    fn no_block_is_in_a_gap_or_reaches_over_one() {
        // Blocks 8 to 19 and 20 to 31 are there, and 40 to 43.
        let gaps = placement(&[(2, 3), (5, 3), (10, 1)]);
        for (start, len, is_there) in [
            (8, 24, true),
            (19, 2, true),
            (40, 4, true),
            (7, 1, false),
            (0, 4, false),
            (31, 2, false),
            (32, 8, false),
            (30, 14, false),
            (43, 2, false),
            (44, 1, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(gaps.holds(start, len), is_there, "{start}+{len}");
        }
        assert_eq!((gaps.blocks(), gaps.count()), (44, 28));
        let numbers = [8, 19, 20, 31, 40, 43].map(|block| gaps.number_of(block));
        assert_eq!(numbers, [0, 11, 12, 23, 24, 27]);
        let whole = placement(&[(0, 3), (3, 3)]);
        assert!(whole.holds(0, 24) && !whole.holds(0, 25) && !whole.holds(u64::MAX, 2));
        let mut segments = Segments::new();
        gaps.map_blocks(VgBlock(19), 2, 0, &mut segments);
        let found: Vec<_> = segments.iter().map(|segment| (segment.pv.0, segment.offset)).collect();
        assert_eq!(found, [(0, DATA_OFFSET + 11 * BLOCK_SIZE), (1, DATA_OFFSET)]);
    }
}
