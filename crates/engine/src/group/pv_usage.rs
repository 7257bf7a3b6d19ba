//! The places of a volume's blocks, for reports. A report lists each physical volume that has blocks of the volume,
//! with the extent of the first block there, in the volume's order. Mirrored blocks have an entry
//! for each pair of physical volumes, and striped ones as many as they have columns, which follow each other, for each
//! combination of physical volumes.

use super::Group;
use crate::error::{Error, Result};
use crate::map;
use crate::model::PvFlags;
use crate::placement::Placement;
use crate::units::{VgBlock, VolumeId};
use std::ops::Range;

/// The most leaves of a volume's tree that are read, to bound the time of a report. Blocks beyond count as on the
/// physical volume of the last block that was read.
const MAX_LEAVES: usize = 64;

/// Blocks of a volume on one physical volume; of mirrored blocks, on a pair of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PvUsage {
    /// The physical volume's place in the group.
    pub pv: u16,
    /// The extent of the physical volume that holds the first of these blocks, in the volume's order.
    pub first_extent: u64,
    pub blocks: u64,
    /// Of mirrored blocks: the physical volume of the second leg, and its extent with the first of these blocks. None: they
    /// are not mirrored, or have one leg.
    pub second: Option<(u16, u64)>,
}

impl Group {
    /// The places of the volume's blocks. If the volume changes meanwhile, the answer mixes several moments.
    pub async fn pv_usage(&self, id: VolumeId) -> Result<Vec<PvUsage>> {
        let core = &self.core;
        let volume = self.catalog.read().volumes.get(&id).cloned();
        let volume = volume.ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let placement = core.placement();
        let mut places = Places::default();
        let mut cursor = 0;
        for _ in 0..MAX_LEAVES {
            // Each step reads the tree again, under the lock under which it changes.
            let step = core
                .with_nodes_privileged(|| {
                    map::walk_step(&core.cache, &volume.state.lock().head.tree, cursor, &|_, _, _| Ok(false))
                })
                .await?;
            for extent in step.leaf.iter().flat_map(|leaf| leaf.extents()).filter(|extent| extent.end() > cursor) {
                let mut at = extent.value;
                let end = extent.value + u64::from(extent.len);
                while at < end {
                    at = places.add(&placement, at..end);
                }
            }
            match step.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        Ok(places.0.into_iter().map(|(usage, _)| usage).collect())
    }
}

/// What was found, with the physical volumes of striped blocks.
#[derive(Default)]
struct Places(Vec<(PvUsage, PvFlags)>);

impl Places {
    /// Adds the first of these blocks. Returns where the others begin.
    fn add(&mut self, placement: &Placement, blocks: Range<u64>) -> u64 {
        let (parts, next) = placement.parts_of(&blocks);
        let second = placement.legs_of(VgBlock(blocks.start)).0.nth(1).map(|(pv, extent)| (pv.0, extent));
        let columns = placement.columns_at(blocks.start);
        let extent = |at: u64| at / placement.extent_blocks;
        let key = |pv: u16| (pv, second.map(|(pv, _)| pv), columns);
        let is_key = |wanted, (place, columns): &(PvUsage, PvFlags)| {
            (place.pv, place.second.map(|(pv, _)| pv), *columns) == wanted
        };
        // All columns of a set follow each other, also if the first blocks are not on all of them.
        for (pv, first) in placement.columns_from(blocks.start) {
            if !self.0.iter().any(|place| is_key(key(pv), place)) {
                self.0.push((PvUsage { pv, first_extent: extent(first), blocks: 0, second }, columns));
            }
        }
        for part in parts {
            match self.0.iter_mut().find(|place| is_key(key(part.pv), place)) {
                Some((place, _)) => {
                    place.first_extent = if place.blocks == 0 { extent(part.at) } else { place.first_extent };
                    place.blocks += part.blocks;
                }
                None => {
                    let (first_extent, blocks) = (extent(part.at), part.blocks);
                    self.0.push((PvUsage { pv: part.pv, first_extent, blocks, second }, columns));
                }
            }
        }
        next
    }
}
