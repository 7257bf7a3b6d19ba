//! Placement: a VG block to a physical volume and a byte on it. Nothing above this knows a physical volume.
//! Linear: physical volumes follow each other in the group's address space.

use crate::disk::{PvIndex, Segment, Segments};
use crate::format::superblock::{DATA_OFFSET, PvEntry};
use crate::units::{BLOCK_SIZE, VgBlock};

/// The group's table of physical volumes as address ranges.
#[derive(Clone, Debug)]
pub struct Placement {
    pub extent_blocks: u64,
    pub pvs: Vec<PvEntry>,
}

impl Placement {
    /// Blocks in the group.
    pub fn blocks(&self) -> u64 {
        self.extents() * self.extent_blocks
    }

    pub fn extents(&self) -> u64 {
        self.pvs.last().map_or(0, |pv| pv.first_extent + pv.extents)
    }

    /// The physical volume that holds `block`, and the end of its range of blocks.
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
