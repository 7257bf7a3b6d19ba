//! The places of a volume's blocks, for reports. A report lists each physical volume that has blocks of the volume,
//! with the extent of the first block there, in the volume's order. Mirrored blocks have an entry
//! for each pair of physical volumes.

use super::Group;
use crate::error::{Error, Result};
use crate::map;
use crate::units::{VgBlock, VolumeId};

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
        let mut places: Vec<PvUsage> = Vec::new();
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
                    let (mut legs, run_end) = placement.legs_of(VgBlock(at));
                    let blocks = end.min(run_end) - at;
                    let (pv, first_extent) = legs.next().expect("a block has a place");
                    let second = legs.next().map(|(pv, extent)| (pv.0, extent));
                    let is_there = |place: &&mut PvUsage| {
                        place.pv == pv.0 && place.second.map(|(pv, _)| pv) == second.map(|(pv, _)| pv)
                    };
                    match places.iter_mut().find(is_there) {
                        Some(place) => place.blocks += blocks,
                        None => places.push(PvUsage { pv: pv.0, first_extent, blocks, second }),
                    }
                    at += blocks;
                }
            }
            match step.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        Ok(places)
    }
}
