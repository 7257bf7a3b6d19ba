//! Creation of volumes, and the space of thick ones.

use super::Group;
use super::checkpoint::{NEW_TREE_BYTES, volume_bytes};
use super::ops::{ChangeError, check_name};
use super::retry::Nearer;
use crate::error::{Error, Result};
use crate::format::journal::{Placed, Record};
use crate::map::MapError;
use crate::model::{NewVolume, PvExtents, SegmentType, VolumeKind, VolumeMeta, VolumeState};
use crate::space::Run;
use crate::stripes::ColumnPart;
use crate::units::{LvBlock, Seq, TreeId, VgBlock, VolumeId};
use crate::volume::state::apply_place;
use std::ops::Range;
use std::sync::Arc;

/// Where no block is.
const NOWHERE: Range<u64> = 0..0;

impl Group {
    pub async fn create_volume(self: &Arc<Self>, spec: NewVolume) -> Result<VolumeId> {
        self.create_volume_on(spec, &[]).await
    }

    /// The same, with all of a thick volume's space from these places; from everywhere, if there are none. Blocks that
    /// are redirected later go to any place with room.
    pub async fn create_volume_on(self: &Arc<Self>, spec: NewVolume, on: &[PvExtents]) -> Result<VolumeId> {
        self.check_new(&spec, on)?;
        self.create_as(&spec, SegmentType::Linear, on).await
    }

    pub(super) fn check_new(&self, spec: &NewVolume, on: &[PvExtents]) -> Result<()> {
        check_sizes(spec.blocks, spec.sector, spec.chunk_blocks)?;
        check_name(&spec.name, &spec.attributes)?;
        if spec.kind == VolumeKind::Thin { refuse_places(on) } else { Ok(()) }
    }

    /// The same for volumes of any type, whose sizes were checked.
    pub(super) async fn create_as(
        self: &Arc<Self>,
        spec: &NewVolume,
        segment: SegmentType,
        on: &[PvExtents],
    ) -> Result<VolumeId> {
        let mut nearer = Nearer::default();
        loop {
            // Other volumes may have taken these places meanwhile, and extents may have got another type.
            let places = self.places_of(segment, on)?;
            match self.create_once(spec, segment, &places).await {
                Err(error @ Error::NoSpace { needed, free }) => {
                    let lacking = needed.saturating_sub(free);
                    if !self.room_for_volume(segment, lacking, on, &mut nearer).await? {
                        self.give_back_made(segment).await;
                        return Err(error);
                    }
                }
                outcome => {
                    let (id, seq) = outcome?;
                    self.durable(seq).await?;
                    return Ok(id);
                }
            }
        }
    }

    async fn create_once(
        &self,
        spec: &NewVolume,
        segment: SegmentType,
        places: &[Range<u64>],
    ) -> Result<(VolumeId, Seq)> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        self.core.journal.admit().await?;
        let core = &self.core;
        self.change(|| {
            let _gate = core.gate.read();
            let mut catalog = self.catalog_mut();
            if catalog.names.contains_key(&spec.name) {
                return Err(Error::Exists(format!("volume {}", spec.name)).into());
            }
            let runs = self.lay_out((spec.kind, segment), spec.blocks, places)?;
            let placed = place_runs(0, &runs);
            let meta = VolumeMeta {
                id: VolumeId(catalog.next_volume),
                uuid: spec.uuid,
                name: spec.name.clone(),
                kind: spec.kind,
                segment,
                state: VolumeState::Ok,
                blocks: spec.blocks,
                sector: spec.sector,
                chunk_blocks: spec.chunk_blocks,
                read_only: false,
                full: spec.full,
                origin: None,
                reserve: None,
                head: TreeId(catalog.next_tree),
                attributes: spec.attributes.clone(),
            };
            let record = Record::Create { volume: meta.clone(), placed };
            let fits = self.check_fits(&record).and_then(|()| {
                let bytes = volume_bytes(&spec.attributes) + NEW_TREE_BYTES;
                self.admit_change(bytes).map_err(ChangeError::from)
            });
            fits.inspect_err(|_| self.free_runs(&runs))?;
            let Record::Create { placed, .. } = &record else { unreachable!("it was just made") };
            let volume = self.insert_new(&mut catalog, meta)?;
            for p in placed {
                let outcome = apply_place(core, &mut volume.state.lock(), p.lv_block, (p.vg_block.0, p.len));
                outcome.expect("a new map's few nodes are in memory and their room was checked");
            }
            Ok((volume.id, self.append(&record)))
        })
        .await
    }

    /// Space for new blocks of a thick volume, and the metadata for mapping its pieces.
    pub(super) fn lay_out(
        &self,
        (kind, segment): (VolumeKind, SegmentType),
        blocks: u64,
        places: &[Range<u64>],
    ) -> std::result::Result<Vec<Run>, ChangeError> {
        let has_nodes = |pieces: usize| {
            let nodes = NODES_FOR_CHANGE + pieces as u64 / PIECES_TO_A_NODE;
            self.core.meta.lock().can_alloc(nodes, false)
        };
        if !has_nodes(0) {
            return Err(MapError::NoSpace.into());
        }
        let runs = match kind {
            VolumeKind::Thick => self.large(segment, blocks, places)?,
            VolumeKind::Thin => Vec::new(),
        };
        // The allocation has changed the free tree, which also took nodes.
        if !has_nodes(runs.len()) {
            self.free_runs(&runs);
            return Err(MapError::NoSpace.into());
        }
        Ok(runs)
    }

    fn large(
        &self,
        segment: SegmentType,
        blocks: u64,
        places: &[Range<u64>],
    ) -> std::result::Result<Vec<Run>, ChangeError> {
        let taken = self.core.space.lock().alloc_large(self.core.alloc_context(), segment, blocks, places)?;
        taken.map_err(|free| Error::NoSpace { needed: blocks, free }.into())
    }

    /// The blocks for volumes of this type that lie on these extents and nowhere else, in their order. Empty: no extents were
    /// named.
    pub(super) fn places_of(&self, segment: SegmentType, on: &[PvExtents]) -> Result<Vec<Range<u64>>> {
        match segment {
            SegmentType::Linear => self.places_on(on),
            _ if on.is_empty() => Ok(Vec::new()),
            several => {
                let placement = self.core.placement();
                let are_on = |part: ColumnPart| {
                    let blocks = |extents: &Range<u64>| {
                        extents.start * placement.extent_blocks..extents.end * placement.extent_blocks
                    };
                    let has = |on: &PvExtents| {
                        let own = blocks(&on.extents);
                        on.pv.0 == part.pv && own.start <= part.at && part.at + part.blocks <= own.end
                    };
                    on.iter().any(has)
                };
                let own = placement.runs().iter().filter(|run| run.segment() == several);
                let places: Vec<Range<u64>> = own
                    .filter(|run| placement.all_parts_of(run).into_iter().all(are_on))
                    .map(|run| run.start..run.end)
                    .collect();
                Ok(if places.is_empty() { Vec::from([NOWHERE]) } else { places })
            }
        }
    }

    /// The blocks of these extents, in their order and each once.
    pub(super) fn places_on(&self, on: &[PvExtents]) -> Result<Vec<Range<u64>>> {
        let placement = self.core.placement();
        let mut places = Vec::with_capacity(on.len());
        for PvExtents { pv, extents } in on {
            let has = placement.pvs.get(usize::from(pv.0)).map_or(0, |pv| pv.extents);
            if extents.is_empty() || extents.end > has {
                let Range { start, end } = extents;
                return Err(Error::Invalid(format!("physical volume {} has no extents {start} to {end}", pv.0)));
            }
            places.extend(placement.runs_at(*pv, extents).into_iter().map(|run| run.start..run.end));
        }
        places.sort_unstable_by_key(|place| place.start);
        places.dedup_by(|next, place| {
            let meets = next.start <= place.end;
            place.end = if meets { place.end.max(next.end) } else { place.end };
            meets
        });
        Ok(places)
    }

    /// The free and unreserved blocks of these extents. Blocks that are allocated or freed meanwhile may count or not.
    pub async fn free_on(&self, on: &[PvExtents]) -> Result<u64> {
        let free = self.unused_in(self.places_on(on)?).await?;
        Ok(free.min(self.core.space.lock().available()))
    }

    /// The unused blocks of these places, reserved ones included.
    pub(super) async fn unused_in(&self, places: Vec<Range<u64>>) -> Result<u64> {
        let mut free = 0;
        for mut place in places {
            free += self.core.space.lock().unused_in(&place);
            loop {
                let count = || self.core.space.lock().count_free(self.core.alloc_context(), &place);
                let (counted, next) = self.core.with_nodes_privileged(count).await?;
                free += counted;
                let Some(next) = next else { break };
                place.start = next;
            }
        }
        Ok(free)
    }

    /// Frees runs that no record names. No waiting write is woken.
    pub(super) fn free_runs(&self, runs: &[Run]) {
        let mut space = self.core.space.lock();
        for (mut start, len) in runs.iter().copied() {
            let end = start + len;
            while start < end {
                match space.add_free(self.core.alloc_context(), (start, end - start)) {
                    Ok(part) => start += part,
                    Err(_) => {
                        space.free_later((start, end - start));
                        break;
                    }
                }
            }
        }
    }
}

pub(super) fn check_sizes(blocks: u64, sector: u32, chunk_blocks: u32) -> Result<()> {
    if blocks == 0 || blocks >= MAX_BLOCKS {
        return Err(Error::Invalid(format!("a volume cannot have {blocks} blocks")));
    }
    if !matches!(sector, 512 | 4096) {
        return Err(Error::Invalid(format!("a sector of {sector} bytes: it must be 512 or 4096")));
    }
    if !chunk_blocks.is_power_of_two() || chunk_blocks > 1024 {
        return Err(Error::Invalid(format!("a chunk of {chunk_blocks} blocks: it must be a power of two up to 1024")));
    }
    Ok(())
}

/// Blocks that are allocated when they are written cannot be placed before.
pub(super) fn refuse_places(on: &[PvExtents]) -> Result<()> {
    match on {
        [] => Ok(()),
        _ => Err(Error::Invalid(
            "a thin volume gets its space when it is written to, so its physical volumes cannot be chosen".into(),
        )),
    }
}

/// Runs laid out one after the other from an LV block on.
pub(super) fn place_runs(mut at: u64, runs: &[Run]) -> Vec<Placed> {
    let mut placed = Vec::with_capacity(runs.len());
    for (start, len) in runs {
        placed.push(Placed { lv_block: LvBlock(at), vg_block: VgBlock(*start), len: *len });
        at += len;
    }
    placed
}

/// Blocks in a volume, at most: 2^47 blocks of 4 KiB are half a zettabyte.
const MAX_BLOCKS: u64 = 1 << 47;

/// Metadata blocks that a change of the catalog may need at once...
pub(super) const NODES_FOR_CHANGE: u64 = 64;

/// ... and one more for each this many pieces of a thick volume.
const PIECES_TO_A_NODE: u64 = 64;
