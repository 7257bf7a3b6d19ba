//! Scrubs: the two copies of a mirrored volume's data are read and compared, to find what a disk lost without an error.
//!
//! Only what a volume has written is compared: elsewhere the legs may hold anything. So the maps say what is read: first
//! all of the volume, then what each of its snapshots has that the volume before it in the list has not
//! ([`changed`](Group::changed)). A scrub has no state on the disk, and ends with the process.
//!
//! * SC1 A difference counts only in a block that the volume has written, and only if two comparisons found it, and the
//!   volume maps the block before and after them. Blocks that were freed meanwhile may differ: each disk discards them in
//!   its own way.
//! * SC2 A repair changes nothing but blocks that differ. Both legs get what the first one has, as after a crash (ML6):
//!   without checksums nobody knows which one is right.

use super::Group;
use super::diff::{Changed, Compared, Content};
use super::scrub_state::ScrubInfo;
use crate::core::Throttle;
use crate::disk::{Segment, Segments};
use crate::error::{Error, Result};
use crate::format::node::UNWRITTEN;
use crate::legs::Differences;
use crate::map::{self, Extent, Extents};
use crate::model::SegmentType;
use crate::planted;
use crate::runtime::{all_of, yield_now};
use crate::units::{BLOCK_SIZE, VgBlock, VolumeId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Ranges of a list that are taken together.
const RANGES: usize = 64;
/// Windows that are compared together while nobody else uses the mirrors.
const TOGETHER: u64 = 8;
/// How often in a row a list is made again because a volume was changed as a whole. The other volume of a list is left out
/// before that.
const MOVED: u32 = 100;
const MOVED_WITH_ANOTHER: u32 = 2;

/// What was found in a window, in blocks.
#[derive(Default)]
struct Counted {
    different: u64,
    unreadable: u64,
    skipped: u64,
}

impl Group {
    /// Begins to compare the copies of a mirrored volume and of its snapshots, in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it is not mirrored, or is a snapshot. [`Error::Busy`]: another one is being compared.
    pub fn start_scrub(self: &Arc<Self>, id: VolumeId, is_repair: bool) -> Result<()> {
        self.check_writable()?;
        let volume = self.volume(id)?;
        if volume.state.lock().stored_segment() != SegmentType::Raid1 {
            return Err(Error::Invalid("it has one copy of its data".into()));
        }
        let family = self.with_snapshots(id);
        let infos = family.iter().filter_map(|id| self.volume_info(*id).ok());
        let total = infos.map(|info| if info.id == id { info.referenced } else { info.snapshot_used }).sum();
        {
            let mut state = self.scrubs.lock();
            if state.running().is_some() {
                return Err(Error::Busy("copies of the group are being compared already".into()));
            }
            let known = &self.catalog.read().volumes;
            state.of.retain(|id, _| known.contains_key(id));
            state.of.insert(id, ScrubInfo { is_repair, is_running: true, total, ..ScrubInfo::default() });
            state.is_stopping = false;
        }
        let group = self.clone();
        self.core.runtime.spawn("scrub", Box::pin(async move { group.scrub(id, &family).await }));
        Ok(())
    }

    /// Ends the scrub that goes on, before its end. False: there is none.
    pub fn stop_scrub(&self, id: VolumeId) -> bool {
        let mut state = self.scrubs.lock();
        let is_running = state.running() == Some(id);
        state.is_stopping |= is_running;
        is_running
    }

    /// The scrub of a volume that goes on, or its last one.
    pub fn scrub_of(&self, id: VolumeId) -> Option<ScrubInfo> {
        self.scrubs.lock().of.get(&id).copied()
    }

    /// The last one of each volume.
    pub fn scrubs(&self) -> Vec<(VolumeId, ScrubInfo)> {
        self.scrubs.lock().of.iter().map(|(id, info)| (*id, *info)).collect()
    }

    /// Whether copies are being compared.
    pub fn is_scrubbing(&self) -> bool {
        self.scrubs.lock().running().is_some()
    }

    /// The scrubs that have ended since this was asked last.
    pub fn take_ended_scrubs(&self) -> Vec<(VolumeId, ScrubInfo)> {
        std::mem::take(&mut self.scrubs.lock().ended)
    }

    /// A volume and its snapshots, their snapshots and so on, the newest first.
    fn with_snapshots(&self, id: VolumeId) -> Vec<VolumeId> {
        let catalog = self.catalog.read();
        let (mut family, mut known, mut at) = (vec![id], BTreeSet::from([id]), 0);
        while let Some(parent) = family.get(at).copied() {
            let mut snapshots: Vec<VolumeId> = catalog.snapshots_of(parent).filter(|id| known.insert(*id)).collect();
            snapshots.sort_unstable_by(|one, other| other.cmp(one));
            family.extend(snapshots);
            at += 1;
        }
        family
    }

    async fn scrub(self: Arc<Self>, id: VolumeId, family: &[VolumeId]) {
        let mut outcome = Ok(());
        for (at, volume) in family.iter().enumerate() {
            let before = if at == 0 { None } else { family.get(at - 1).copied() };
            outcome = self.scrub_volume(id, before, *volume).await;
            if outcome.is_err() || self.scrubs.lock().is_stopping {
                break;
            }
        }
        let mut state = self.scrubs.lock();
        let is_incomplete = outcome.is_err() || state.is_stopping;
        let Some(info) = state.of.get_mut(&id) else { return };
        (info.is_running, info.is_incomplete) = (false, is_incomplete);
        if !is_incomplete {
            info.total = info.done;
        }
        let ended = *info;
        state.ended.push((id, ended));
    }

    /// Compares what a volume has written and `before` has not. A volume that is gone has nothing.
    async fn scrub_volume(&self, id: VolumeId, before: Option<VolumeId>, volume: VolumeId) -> Result<()> {
        let (mut from, mut throttle) = (Some(0), Throttle::default());
        let (mut compared, mut moved): (Option<Compared>, u32) = (None, 0);
        while let Some(at) = from {
            // It is gone, or its contents are.
            if !self.volume(volume).is_ok_and(|volume| !volume.state.lock().invalid()) {
                return Ok(());
            }
            let list = match compared {
                Some(list) => list,
                None => {
                    let before = before.filter(|_| moved < MOVED_WITH_ANOTHER);
                    self.compare(before, volume).or_else(|_| self.compare(None, volume))?
                }
            };
            compared = Some(list);
            let part = match self.changed(&list, at, RANGES).await {
                Ok(part) => part,
                // One of both was changed as a whole. What is left of the list is made again.
                Err(Error::Moved | Error::Unrelated | Error::NotFound(_)) => {
                    (compared, moved) = (None, moved + 1);
                    if moved > MOVED {
                        return Err(Error::Moved);
                    }
                    yield_now().await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            moved = 0;
            for range in part.ranges.iter().filter(|range| is_written(range.content == Content::Data)) {
                self.scrub_range(id, volume, range, &mut throttle).await?;
                if self.scrubs.lock().is_stopping {
                    return Ok(());
                }
            }
            from = part.next;
        }
        Ok(())
    }

    async fn scrub_range(
        &self,
        id: VolumeId,
        volume: VolumeId,
        range: &Changed,
        throttle: &mut Throttle,
    ) -> Result<()> {
        let legs = self.core.members.legs();
        let (mut at, mut lap) = (range.start, legs.lap());
        while at < range.end() {
            self.check_writable()?;
            let window = legs.window_beside(&lap) / BLOCK_SIZE;
            let together = if legs.is_alone(&lap) { TOGETHER } else { 1 };
            lap = legs.lap();
            let end = (at + together * window).min(range.end());
            let starts = (at..end).step_by(window as usize);
            let compared = all_of(starts.map(|at| self.scrub_window(id, volume, at..(at + window).min(end)))).await;
            {
                let mut state = self.scrubs.lock();
                let Some(info) = state.of.get_mut(&id) else { return Ok(()) };
                for counted in compared {
                    let counted = counted?;
                    info.different += counted.different;
                    info.unreadable += counted.unreadable;
                    info.skipped += counted.skipped;
                }
                info.done += end - at;
                info.total = info.total.max(info.done);
            }
            at = end;
            self.core.throttle(throttle).await;
        }
        Ok(())
    }

    /// Compares a window.
    async fn scrub_window(&self, id: VolumeId, volume: VolumeId, range: Range<u64>) -> Result<Counted> {
        let mut counted = Counted::default();
        for extent in self.written(volume, range.start, range.end).await? {
            let found = self.compare_extent(&extent).await?;
            counted.unreadable += found.unreadable / BLOCK_SIZE;
            counted.skipped += found.skipped / BLOCK_SIZE;
            if !found.places.is_empty() {
                counted.different += self.confirm(id, volume, &extent).await?;
            }
        }
        Ok(counted)
    }

    /// What a volume has written of a range, where it is mirrored.
    async fn written(&self, id: VolumeId, from: u64, to: u64) -> Result<Extents> {
        let Ok(volume) = self.volume(id) else { return Ok(Extents::new()) };
        let core = &self.core;
        let mut extents = core
            .with_nodes_privileged(|| {
                let mut extents = Extents::new();
                map::lookup(&core.cache, &volume.state.lock().head.tree, from, to, &mut extents)?;
                Ok(extents)
            })
            .await?;
        let placement = core.placement();
        extents.retain(|extent| is_written(extent.flags & UNWRITTEN == 0) && placement.is_mirrored(extent.value));
        Ok(extents)
    }

    async fn compare_extent(&self, extent: &Extent) -> Result<Differences> {
        let mut segments = Segments::new();
        self.core.placement().map_blocks(VgBlock(extent.value), u64::from(extent.len), 0, &mut segments);
        let mut found = Differences::default();
        for segment in segments {
            let part = self.core.members.legs().compare(segment).await?;
            found.places.extend(part.places);
            found.unreadable += part.unreadable;
            found.skipped += part.skipped;
        }
        Ok(found)
    }

    /// The number of blocks of an extent with a difference that differ indeed (SC1). A repair makes them equal (SC2).
    async fn confirm(&self, id: VolumeId, volume: VolumeId, extent: &Extent) -> Result<u64> {
        let is_repair = self.scrub_of(id).is_some_and(|info| info.is_repair);
        let mut different = 0;
        for key in extent.key..extent.end() {
            let Some(block) = extent.cut(key, key + 1) else { continue };
            let is_mapped =
                |found: &Extents| found.iter().any(|found| (found.key, found.value) == (block.key, block.value));
            if !is_mapped(&self.written(volume, key, key + 1).await?) {
                continue;
            }
            let found = self.compare_extent(&block).await?;
            if found.places.is_empty() || !is_mapped(&self.written(volume, key, key + 1).await?) {
                continue;
            }
            different += 1;
            if is_repair {
                let legs = self.core.members.legs();
                found.places.iter().for_each(|place: &Segment| legs.make_equal(place));
            }
        }
        Ok(different)
    }
}

fn is_written(so: bool) -> bool {
    so || planted::is("scrub_compares_unwritten")
}
