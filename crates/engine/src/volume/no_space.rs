//! Writes that find no space: they drop a snapshot, wait, or fail (design section 7).

use super::Volume;
use super::plan::MapPlan;
use crate::core::{Core, ROOM_PAUSE};
use crate::disk::DiskError;
use crate::error::{Error, Result};
use crate::model::{FullPolicy, SegmentType, is_being_received};
use crate::planted;
use crate::space::metadata::Admission;
use crate::space::no_space_timeout::{Full, Verdict};
use crate::space::{Account, AllocError};
use crate::units::VolumeId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a write that met no room on a disk retries after blocks were freed, before its policy applies.
const TRIES_FOR_ROOM: u32 = 4;

/// Counts a write while it waits for room.
struct WaitingWrite<'a> {
    core: &'a Core,
    volume: VolumeId,
}

impl WaitingWrite<'_> {
    fn new(core: &Core, volume: VolumeId) -> WaitingWrite<'_> {
        *core.waiting_writes.lock().entry(volume).or_default() += 1;
        WaitingWrite { core, volume }
    }
}

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        let mut waiting = self.core.waiting_writes.lock();
        match waiting.get_mut(&self.volume) {
            Some(writes) if *writes > 1 => *writes -= 1,
            _ => drop(waiting.remove(&self.volume)),
        }
    }
}

impl Volume {
    /// What to do when there is no room for a write: the volume's policy (design section 7).
    pub(super) async fn make_space(&self, error: AllocError) -> Result<()> {
        let group = self.core.space_finder()?;
        match error {
            AllocError::NotAdmitted => {
                let turn = self.core.space_event.turn();
                // Another write may have found room meanwhile: one success is enough for all.
                if self.core.meta.lock().room_for_write() != Admission::Granted {
                    self.core.metadata_room().await?;
                }
                let room = self.core.meta.lock().room_for_write();
                match room {
                    Admission::Granted => Ok(()),
                    Admission::Busy => {
                        self.core.runtime.sleep(ROOM_PAUSE).await;
                        Ok(())
                    }
                    // Removal in progress frees metadata, too.
                    Admission::Refused if group.clone().wait_for_space(SegmentType::Linear).await? => Ok(()),
                    Admission::Refused => self.out_of_space(turn, None).await,
                }
            }
            AllocError::Map(_) => unreachable!("planning handles missing and damaged nodes"),
            AllocError::NoMetadataForFreeTree => {
                let turn = self.core.space_event.turn();
                let free = self.core.meta.lock().free();
                self.core.metadata_room().await?;
                if self.core.meta.lock().free() > free || group.clone().wait_for_space(SegmentType::Linear).await? {
                    return Ok(());
                }
                self.out_of_space(turn, None).await
            }
            AllocError::ReserveFull(snapshot) => group.invalidate_snapshot(snapshot).await,
            AllocError::PoolFull(wanted) => {
                let turn = self.core.space_event.turn();
                let pool = self.state.lock().meta.attributes.pool.clone();
                let left = group.pool_left(&pool);
                if left.now >= wanted {
                    return Ok(());
                }
                if left.now.saturating_add(left.soon) >= wanted {
                    self.core.journal.failed()?;
                    // Each of them signals its end.
                    self.core.space_event.changed(turn).await;
                    return Ok(());
                }
                match group.clone().wait_for_space(self.segment()).await? {
                    true => Ok(()),
                    false => self.out_of_space(turn, Some(pool)).await,
                }
            }
            AllocError::Full => {
                let turn = self.core.space_event.turn();
                match group.clone().wait_for_space(self.segment()).await? {
                    true => Ok(()),
                    false => self.out_of_space(turn, None).await,
                }
            }
        }
    }

    /// Whether the write takes blocks that were not reserved.
    pub(super) fn takes_unreserved(&self, plan: &MapPlan) -> bool {
        let taken: u64 = plan.allocated.iter().map(|run| run.1).sum();
        taken > plan.replaces && plan.accounts.iter().any(|(_, account)| *account == Account::Open)
    }

    /// Such a write succeeded: writes that wait for such blocks try again (W1).
    pub(super) fn found_room(&self) {
        let pool = self.state.lock().meta.attributes.pool.clone();
        if self.core.no_space_timeout.room(&pool) {
            self.core.space_event.notify();
        }
    }

    /// A write that waits. `full`: what is full.
    async fn wait_for_room(&self, turn: u64, full: Full) -> Result<()> {
        if self.core.waiting_ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        // The turn was read before: if the group stops from now on, it wakes this task.
        self.core.journal.failed()?;
        match self.core.no_space_timeout.hold(&full) {
            Verdict::Fail => return Err(self.core.no_space(1)),
            Verdict::First(number, limit) => {
                let (core, time) = (Arc::downgrade(&self.core), self.core.runtime.sleep(limit));
                let task = async move {
                    time.await;
                    let Some(core) = core.upgrade() else { return };
                    if core.no_space_timeout.end(&full, number) {
                        core.space_event.notify();
                    }
                };
                self.core.runtime.spawn("no-space timeout", Box::pin(task));
            }
            Verdict::Wait => {}
        }
        let _held = WaitingWrite::new(&self.core, self.id);
        self.core.space_event.changed(turn).await;
        self.core.runtime.sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    /// What to do when the disk has no room for a write (U2). `tries`: how often the write has waited for freed blocks.
    pub(super) async fn no_room(&self, error: DiskError, tries: &mut u32) -> Result<()> {
        self.core.journal.failed()?;
        let group = self.core.space_finder()?;
        // Other volumes free blocks all the time. That alone must not delay the policy for ever.
        if *tries < TRIES_FOR_ROOM || group.is_removing() {
            *tries += 1;
            if group.clone().wait_for_space(self.segment()).await? {
                return Ok(());
            }
        }
        *tries = 0;
        let turn = self.core.space_event.turn();
        if !self.core.backing.is_short() {
            return Ok(());
        }
        match self.out_of_space(turn, None).await {
            Err(Error::NoSpace { .. }) => Err(Error::NoRoom(error)),
            outcome => outcome,
        }
    }

    async fn out_of_space(&self, turn: u64, full: Full) -> Result<()> {
        let group = self.core.space_finder()?;
        let (policy, is_received) = {
            let state = self.state.lock();
            (state.meta.full, is_being_received(&state.meta.name))
        };
        // PT5.
        if !planted::is("receive_never_dropped") {
            if is_received {
                return Err(self.core.no_space(1));
            }
            // In a full pool it would make no room.
            let helps = full.is_none() || planted::is("receive_dropped_for_pool");
            if let Some(received) = helps.then(|| group.being_received()).flatten() {
                return group.invalidate_snapshot(received).await;
            }
        }
        match policy {
            FullPolicy::DropSnapshot => match group.droppable_snapshot(self.id) {
                Some(snapshot) => group.invalidate_snapshot(snapshot).await,
                None => Err(self.core.no_space(1)),
            },
            FullPolicy::Hold => self.wait_for_room(turn, full).await,
            FullPolicy::Fail => Err(self.core.no_space(1)),
        }
    }
}
