//! What a move of extents moves: the parts of a physical volume in use, and where they may go.

use super::Group;
use super::moves::ZONES_KEPT;
use crate::disk::PvIndex;
use crate::error::{Error, Result};
use crate::format::zones::MAX_ZONES;
use crate::legs::LARGEST_MIRRORED;
use crate::map;
use crate::model::{NewMove, PvExtents, SegmentType};
use crate::placement::{PlacedPart, PlacedRun, Placement};
use crate::planted;
use crate::space::Run;
use crate::units::{BLOCK_SIZE, PvFlags, VolumeId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

fn blocks_of(parts: &[PlacedPart]) -> u64 {
    parts.iter().map(|part| part.blocks).sum()
}

/// The numbers of linear blocks.
fn linear(parts: &[PlacedPart]) -> impl Iterator<Item = Range<u64>> {
    parts.iter().filter(|part| part.segment == SegmentType::Linear).map(PlacedPart::numbers)
}

impl Group {
    /// Ends allocations on the source, if all of it moves, and finds the extents in use. Returns how many they are.
    pub(super) async fn prepare_move(
        self: &Arc<Self>,
        wanted: &NewMove,
        extents: &[Range<u64>],
        is_whole: bool,
    ) -> Result<(u64, Vec<PlacedPart>)> {
        let parts_now = || -> Vec<PlacedPart> {
            let placement = self.core.placement();
            extents.iter().flat_map(|extents| placement.parts_at(wanted.from, extents)).collect()
        };
        let targets = self.places_on(&wanted.to)?;
        let is_target = |run: Range<u64>| targets.iter().any(|to| to.start < run.end && run.start < to.end);
        if linear(&parts_now()).any(is_target) {
            return Err(Error::Invalid("extents cannot move to the physical volume that holds them".into()));
        }
        // Freed blocks are usable only after a checkpoint.
        self.checkpoint().await?;
        let only = match wanted.volume {
            Some(volume) => Some(self.extents_of(volume).await?),
            None => None,
        };
        if is_whole {
            self.set_being_emptied(wanted.from, true).await?;
            self.dissolve_on(wanted.from).await?;
        }
        let on_source = parts_now();
        let mut parts = self.used_of(&on_source, only.as_ref()).await?;
        if parts.iter().any(|part| part.is_filling) {
            return Err(Error::Busy(
                "a copy of a mirrored volume there is being made; repeat this when it is complete (copy_percent)"
                    .into(),
            ));
        }
        self.is_room_for(&parts, wanted.from, &wanted.to).await?;
        if is_whole {
            // Short runs of metadata may share an extent with data. If metadata finds no other room, it stays with its
            // extent.
            self.move_metadata(&linear(&on_source).collect::<Vec<_>>()).await?;
            self.checkpoint().await?;
            parts = self.used_of(&on_source, None).await?;
        }
        Ok((blocks_of(&parts) / self.core.placement().extent_blocks, parts))
    }

    /// Refuses a move for which the targets have too few free blocks. Blocks that are being freed may give the room.
    async fn is_room_for(&self, parts: &[PlacedPart], source: PvIndex, targets: &[PvExtents]) -> Result<()> {
        if self.reclaiming() || self.core.space.lock().pending_blocks() > 0 || planted::is("target_filled") {
            return Ok(());
        }
        let mut left: Vec<PlacedPart> = parts.to_vec();
        while let Some(first) = left.first().cloned() {
            // No leg or column goes where another one is.
            let is_alike = |part: &mut PlacedPart| part.others == first.others && part.segment == first.segment;
            let needed = left.extract_if(.., is_alike).map(|part| part.blocks).sum();
            let free = self.unused_in(self.target_places(source, targets, &first)?).await?;
            if free < needed {
                return Err(self.no_room_for(&first, needed, free));
            }
        }
        let all = match targets {
            [] => self.places_not_on(PvFlags(1 << source.0)),
            targets => self.places_on(targets)?,
        };
        let needed = blocks_of(parts);
        match self.unused_in(all).await? {
            free if free < needed => Err(Error::NoSpace { needed, free }),
            _ => Ok(()),
        }
    }

    /// Why so many blocks like these, of which all have the others on the same physical volumes, cannot move.
    fn no_room_for(&self, part: &PlacedPart, needed: u64, free: u64) -> Error {
        let what = match part.segment {
            SegmentType::Linear => return Error::NoSpace { needed, free },
            SegmentType::Raid1 => "copy",
            SegmentType::Striped => "column",
        };
        let extent_blocks = self.core.placement().extent_blocks;
        Error::Invalid(format!(
            "{} extents cannot move, because they go to no physical volume with another {what} of them, and the other ones have {} \
             free extents. Add a physical volume (vgextend), or name other ones to move to",
            needed / extent_blocks,
            free / extent_blocks,
        ))
    }

    fn places_not_on(&self, pvs: PvFlags) -> Vec<Range<u64>> {
        let placement = self.core.placement();
        let runs = placement.runs().iter().filter(|run| !pvs.has(usize::from(run.pv)));
        runs.map(|run| run.start..run.end).collect()
    }

    /// Where a part may move to: where none of its other legs and columns is, and legs only where a mirror can be.
    pub(super) fn target_places(
        &self,
        source: PvIndex,
        targets: &[PvExtents],
        part: &PlacedPart,
    ) -> Result<Vec<Range<u64>>> {
        let others = if planted::is("leg_moved_to_the_other") { PvFlags::default() } else { part.others };
        let places = match targets {
            [] => self.places_not_on(PvFlags(others.0 | 1 << source.0)),
            targets => {
                let may = targets.iter().filter(|to| !others.has(usize::from(to.pv.0)));
                self.places_on(&may.cloned().collect::<Vec<_>>())?
            }
        };
        Ok(if part.segment == SegmentType::Raid1 { self.near(&places) } else { places })
    }

    /// The parts of these places where legs of mirrors can be.
    fn near(&self, places: &[Range<u64>]) -> Vec<Range<u64>> {
        let (placement, highest) = (self.core.placement(), LARGEST_MIRRORED / BLOCK_SIZE);
        let near = |run: &PlacedRun, place: &Range<u64>| {
            let end = run.end.min(run.start + highest.saturating_sub(run.at));
            let part = run.start.max(place.start)..end.min(place.end);
            (part.start < part.end).then_some(part)
        };
        let runs = placement.runs().iter();
        runs.flat_map(|run| places.iter().filter_map(|place| near(run, place)).collect::<Vec<_>>()).collect()
    }

    /// The extents of the address space in which the volume has blocks.
    async fn extents_of(&self, id: VolumeId) -> Result<BTreeSet<u64>> {
        let core = &self.core;
        let volume = self.catalog.read().volumes.get(&id).cloned();
        let volume = volume.ok_or_else(|| Error::NotFound(format!("volume {id}")))?;
        let extent_blocks = core.placement().extent_blocks;
        let (mut extents, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let step = core
                .with_nodes_privileged(|| {
                    map::walk_step(&core.cache, &volume.state.lock().head.tree, cursor, &|_, _, _| Ok(false))
                })
                .await?;
            for extent in step.leaf.iter().flat_map(|leaf| leaf.extents()) {
                let last = extent.value + u64::from(extent.len).max(1) - 1;
                extents.extend(extent.value / extent_blocks..=last / extent_blocks);
            }
            match step.next {
                Some(next) => cursor = next,
                None => return Ok(extents),
            }
        }
    }

    /// Of these parts what moves.
    async fn used_of(&self, on_source: &[PlacedPart], only: Option<&BTreeSet<u64>>) -> Result<Vec<PlacedPart>> {
        let extent_blocks = self.core.placement().extent_blocks;
        let is_meant = |extents: Range<u64>| only.is_none_or(|only| only.range(extents).next().is_some());
        let mut parts = Vec::new();
        for part in on_source {
            let first = parts.len();
            if part.segment == SegmentType::Linear {
                self.used_in(part, &is_meant, &mut parts).await?;
                continue;
            }
            for at in (0..part.blocks).step_by(extent_blocks as usize) {
                let extent = part.cut(at, extent_blocks);
                let numbers = extent.numbers();
                if is_meant(numbers.start / extent_blocks..numbers.end / extent_blocks) && !self.is_fixed(&numbers) {
                    join(&mut parts, first, extent);
                }
            }
        }
        Ok(parts)
    }

    /// Adds the extents of a linear part that are not free as a whole, and have neither metadata nor the journal.
    async fn used_in(
        &self,
        part: &PlacedPart,
        is_meant: &impl Fn(Range<u64>) -> bool,
        parts: &mut Vec<PlacedPart>,
    ) -> Result<()> {
        let extent_blocks = self.core.placement().extent_blocks;
        let Range { start, end } = part.numbers();
        let (mut at, first) = (start, parts.len());
        while at < end {
            let next = || self.core.space.lock().next_free_extents(self.core.alloc_context(), at, end, extent_blocks);
            let free = self.core.with_nodes_privileged(next).await?;
            for extent in (at / extent_blocks..free.start / extent_blocks).filter(|e| is_meant(*e..e + 1)) {
                let own = part.cut(extent * extent_blocks - start, extent_blocks);
                if !self.is_fixed(&own.numbers()) {
                    join(parts, first, own);
                }
            }
            at = free.end;
        }
        Ok(())
    }

    /// Whether the same lies there as when the move began.
    pub(super) fn is_still_there(&self, moved: &PlacedPart) -> bool {
        let placement = self.core.placement();
        let extents = moved.at / placement.extent_blocks..(moved.at + moved.blocks) / placement.extent_blocks;
        placement.parts_at(PvIndex(moved.pv), &extents) == std::slice::from_ref(moved)
    }

    /// The table after a part and free extents have exchanged their places.
    pub(super) fn exchanged(&self, moved: &PlacedPart, free: Run) -> Result<Arc<Placement>> {
        let old = self.core.placement();
        let (part, _) = old.part_of_run(&(free.0..free.0 + free.1));
        let to = part.map(|part| (part.pv, part.at)).ok_or(Error::Closed)?;
        let new = Arc::new(old.with_places_exchanged((moved.pv, moved.at), to, moved.blocks));
        match new.zones().len() > MAX_ZONES - ZONES_KEPT {
            true => Err(Error::Invalid("the table of moved extents is full; move whole physical volumes".into())),
            false => Ok(new),
        }
    }
}

/// Adds an extent to the last part behind so many, if it continues it.
fn join(parts: &mut Vec<PlacedPart>, first: usize, extent: PlacedPart) {
    match parts[first..].last_mut() {
        Some(last) if last.cut(last.blocks, extent.blocks) == extent => last.blocks += extent.blocks,
        _ => parts.push(extent),
    }
}
