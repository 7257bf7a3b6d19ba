//! Striped extents: rows of extents on several physical volumes whose blocks alternate between them
//! ([`StripeSet`](crate::stripes::StripeSet)). Striped volumes take their blocks there.
//!
//! Rows are made and dissolved as mirrored extents are (MZ1, MZ2 of [`mirrors`](super::mirrors)).
//!
//! * SZ1 All striped extents of a group have the same layout, so all striped volumes have it. It changes when there is no
//!   striped volume.

use super::Group;
use super::mirrors::full_table;
use super::moves::ZONES_KEPT;
use crate::disk::PvIndex;
use crate::error::{Error, Result};
use crate::format::zones::{MAX_ZONES, StripeLayout};
use crate::model::{NewVolume, PvExtents, SegmentType, VolumeKind};
use crate::placement::Placement;
use crate::planted;
use crate::units::{BLOCK_SIZE, VolumeId};
use std::ops::Range;
use std::sync::Arc;

/// The striped extents of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeInfo {
    /// How blocks alternate in all of them (SZ1).
    pub layout: StripeLayout,
    pub extents: u64,
    /// Of these, extents of which nothing is used.
    pub free_extents: u64,
    /// There is a striped volume. Without one the layout can change.
    pub has_volumes: bool,
}

impl Group {
    /// The state of striped extents. None: there are none.
    pub fn stripe_info(&self) -> Option<StripeInfo> {
        let placement = self.core.placement();
        let striped = placement.runs().iter().filter(|run| run.is_striped());
        Some(StripeInfo {
            layout: placement.stripe_layout()?,
            extents: striped.map(|run| run.end - run.start).sum::<u64>() / placement.extent_blocks,
            free_extents: self.core.space.lock().available_for(SegmentType::Striped) / placement.extent_blocks,
            has_volumes: self.has_volumes_of(SegmentType::Striped),
        })
    }

    /// Creates a striped volume. Its blocks alternate between physical volumes, of these if there are any.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: there are too few free extents on as many physical volumes. [`Error::Invalid`]: the group cannot
    /// have this layout, or its striped volumes have another one (SZ1).
    pub async fn create_striped(
        self: &Arc<Self>,
        spec: NewVolume,
        layout: StripeLayout,
        on: &[PvExtents],
    ) -> Result<VolumeId> {
        self.check_layout(layout, on)?;
        self.check_new(&spec, &[])?;
        self.set_layout(layout, &spec, on).await?;
        let id = match self.create_as(&spec, SegmentType::Striped, on).await {
            // The last row may have been dissolved meanwhile.
            Err(Error::NoSpace { .. }) if self.core.placement().stripe_layout().is_none() => {
                self.set_layout(layout, &spec, on).await?;
                self.create_as(&spec, SegmentType::Striped, on).await?
            }
            outcome => outcome?,
        };
        // What its snapshots will need is made now.
        self.wake_mirrors();
        Ok(id)
    }

    /// Refuses a layout that this group, or these physical volumes of it, cannot have.
    fn check_layout(&self, layout: StripeLayout, on: &[PvExtents]) -> Result<()> {
        let placement = self.core.placement();
        let columns = usize::from(layout.columns);
        if !layout.fits(placement.extent_blocks) {
            return Err(Error::Invalid(format!(
                "{columns} stripes of {} KiB are not possible in this group: 2 to 32 stripes of 4 KiB to one extent are",
                layout.blocks().saturating_mul(BLOCK_SIZE) >> 10
            )));
        }
        if !placement.may_mirror() {
            return Err(Error::Invalid("the group's extents have too high numbers for stripes".into()));
        }
        let mut given: Vec<PvIndex> = on.iter().map(|part| part.pv).collect();
        given.sort_unstable();
        given.dedup();
        let (has, which) = match given.len() {
            0 => (placement.pvs.len(), "the group has"),
            given => (given, "were given"),
        };
        match has < columns {
            true => {
                Err(Error::Invalid(format!("{columns} stripes need {columns} physical volumes, and {has} {which}")))
            }
            false => Ok(()),
        }
    }

    /// From then on there are striped extents, and they have this layout.
    async fn set_layout(self: &Arc<Self>, layout: StripeLayout, spec: &NewVolume, on: &[PvExtents]) -> Result<()> {
        // All that the first volume needs, so that it is on the same physical volumes.
        let rows = match spec.kind {
            VolumeKind::Thick => spec.blocks.div_ceil(layout.row(self.core.placement().extent_blocks)),
            VolumeKind::Thin => 1,
        };
        loop {
            match self.core.placement().stripe_layout() {
                Some(own) if own == layout => return Ok(()),
                Some(_) if planted::is("second_layout") => return self.make_rows(layout, 1, on).await.map(drop),
                Some(own) if self.has_volumes_of(SegmentType::Striped) => return Err(other_layout(own)),
                // Blocks of volumes that were removed may not be free yet.
                Some(own) => {
                    let dissolved = self.dissolve_to(SegmentType::Striped, 0, 1).await?;
                    if dissolved == 0 && !self.more_space().await? {
                        return Err(other_layout(own));
                    }
                }
                None => {
                    let made = {
                        let _claim = self.claim_for_zones().await;
                        self.make_rows(layout, rows, on).await?
                    };
                    if made == 0 && !self.more_space().await? {
                        let needed = layout.row(self.core.placement().extent_blocks);
                        return Err(Error::NoSpace { needed, free: 0 });
                    }
                }
            }
        }
    }

    /// Makes up to this many striped extents, in whole rows of the layout that there is. If no striped volume has a block,
    /// there may be none: then any layout is right. Returns how many. The caller has claimed the table.
    pub(super) async fn make_striped(self: &Arc<Self>, extents: u64, on: &[PvExtents]) -> Result<u64> {
        let layout = self.core.placement().stripe_layout().or_else(|| self.usual_layout());
        match layout {
            Some(layout) => self.make_rows(layout, extents.div_ceil(layout.columns.into()), on).await,
            None => Ok(0),
        }
    }

    /// Two stripes of 64 KiB, or of an extent if that is less. None: there is no striped volume, or one physical volume.
    fn usual_layout(&self) -> Option<StripeLayout> {
        let placement = self.core.placement();
        let shift = placement.extent_blocks.trailing_zeros().min(4) as u8;
        let is_wanted = placement.pvs.len() >= 2 && self.has_volumes_of(SegmentType::Striped);
        is_wanted.then_some(StripeLayout { columns: 2, shift })
    }

    /// Makes up to this many rows. Returns how many extents they have (MZ1).
    async fn make_rows(self: &Arc<Self>, layout: StripeLayout, rows: u64, on: &[PvExtents]) -> Result<u64> {
        self.may_change()?;
        self.core.require_all_pvs()?;
        let hold = self.hold_checkpoints().await;
        self.core.journal.failed()?;
        let has_other = self.core.placement().stripe_layout().is_some_and(|own| own != layout);
        if has_other && !planted::is("second_layout") {
            return Ok(0);
        }
        let mut sets: Vec<Vec<Range<u64>>> = Vec::new();
        let outcome = self.take_rows(layout.columns.into(), rows, on, &mut sets).await;
        let (new, numbers) = self.core.placement().with_striped(layout, &sets);
        let new = Arc::new(new);
        let is_full = new.zones().len() > MAX_ZONES - ZONES_KEPT;
        if outcome.is_err() || is_full || sets.is_empty() {
            sets.into_iter().flatten().for_each(|run| self.give_back(run));
            outcome?;
            return if is_full { Err(full_table()) } else { Ok(0) };
        }
        let made: u64 = numbers.iter().map(|range| range.end - range.start).sum();
        self.change_zones_of_mirrors(&new, numbers);
        self.start_mirrors();
        drop(hold);
        self.checkpoint().await?;
        Ok(made / new.extent_blocks)
    }

    /// Gives the extents of unused rows their own numbers again, if there are rows on the physical volume. The caller has
    /// claimed the table.
    ///
    /// # Errors
    /// [`Error::Busy`]: some rows there are in use.
    pub(super) async fn empty_columns(self: &Arc<Self>, pv: PvIndex) -> Result<()> {
        let has_columns = |placement: &Placement| placement.has_column_on(pv);
        if !has_columns(&self.core.placement()) {
            return Ok(());
        }
        // Blocks of volumes that were removed are free after a checkpoint. Removal may end while this looks, so it looks
        // once more then.
        let mut is_last = false;
        loop {
            self.checkpoint().await?;
            self.dissolve_claimed(SegmentType::Striped, 0, None).await?;
            if !has_columns(&self.core.placement()) {
                return Ok(());
            }
            if is_last {
                return Err(Error::Busy("stripes of volumes are on the physical volume".into()));
            }
            is_last = !self.more_space().await?;
        }
    }
}

fn other_layout(own: StripeLayout) -> Error {
    Error::Invalid(format!(
        "the group's striped volumes have {} stripes of {} KiB, and all of them have the same",
        own.columns,
        (own.blocks() * BLOCK_SIZE) >> 10
    ))
}
