//! Discards of free blocks on the disks (rules DC1 to DC6 in `discards.rs`): newly freed blocks, after their
//! checkpoint; blocks that were discarded on a volume; and all free blocks on request (`rowen trim`).
//!
//! One request at a time, of up to 32 MiB, with a pause after each while volumes are written.

use super::Group;
use super::trim_state::TrimProgress;
use crate::core::Core;
use crate::discards::{Part, PendingDiscard, Policy};
use crate::disk::{DiskError, DiskOp, PvIndex, Segment, Segments, start};
use crate::error::{Error, Result};
use crate::format::node::UNWRITTEN;
use crate::map;
use crate::placement::Placement;
use crate::planted;
use crate::space::Run;
use crate::units::{BLOCK_SIZE, VgBlock};
use crate::volume::state::Mode;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The most blocks in one request. Checkpoints, and writes to these blocks, wait for its end.
const TOGETHER: u64 = 8 << 10;
/// Pause after a request while there are writes.
const REST: Duration = Duration::from_millis(5);
/// The least delay before blocks that were discarded on a volume are discarded on the disks.
const SOON: Duration = Duration::from_secs(1);

/// The result of one request.
#[derive(Default)]
struct Discarded {
    /// Free blocks that were examined.
    free: u64,
    bytes: u64,
    /// Where to go on.
    next: Option<u64>,
}

impl Core {
    /// Discards on volumes wait for a checkpoint: requests one soon.
    pub fn discard_soon(&self) {
        if self.discards.checkpoint_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let (core, pause) = (self.this.clone(), self.runtime.sleep(SOON));
        let soon = async move {
            pause.await;
            let Some(core) = core.upgrade() else { return };
            core.discards.checkpoint_due.store(false, Ordering::Release);
            if !core.closed.load(Ordering::Acquire) {
                core.request_checkpoint();
            }
        };
        self.runtime.spawn("discards asked", Box::pin(soon));
    }
}

impl Group {
    /// Sets which blocks are discarded automatically.
    pub fn set_discards(&self, policy: Policy) {
        self.core.discards.set_policy(policy);
    }

    /// Bytes discarded on the disks since the group was opened.
    pub fn discarded_bytes(&self) -> u64 {
        self.core.members.discarding.discarded()
    }

    /// Whether a physical volume is known to support discards.
    pub fn can_discard(&self, pv: PvIndex) -> bool {
        let core = &self.core;
        core.disks.is_missing(pv) || core.disks.discards(pv).granularity > 0 && !core.members.discarding.is_disabled(pv)
    }

    /// Whether a discard is in progress or about to begin.
    pub fn is_discarding(&self) -> bool {
        self.discards.is_running.load(Ordering::Acquire)
            || self.trim_progress().is_running
            || self.core.discards.awaits_checkpoint()
    }

    /// Physical volumes that failed a discard and get no more (DC4). Each is returned once.
    pub fn discard_errors(&self) -> Vec<DiskError> {
        self.core.members.discarding.take_errors()
    }

    /// How far the last [`start_trim`](Self::start_trim) is.
    pub fn trim_progress(&self) -> TrimProgress {
        self.discards.trim.lock().clone()
    }

    /// Starts to discard all free blocks, even if that makes a whole file sparse. Removals that are under way end first:
    /// their blocks are discarded, too (DC6).
    ///
    /// # Errors
    /// [`Error::Busy`]: that is under way already.
    pub fn start_trim(self: &Arc<Self>) -> Result<()> {
        self.may_change()?;
        {
            let mut trim = self.discards.trim.lock();
            if trim.is_running {
                return Err(Error::Busy("free space is being discarded already".into()));
            }
            *trim = TrimProgress { is_running: true, ..TrimProgress::default() };
        }
        self.discards.is_stopped.store(false, Ordering::Release);
        let group = self.clone();
        let task = async move {
            let failed = group.trim().await.err();
            {
                let mut trim = group.discards.trim.lock();
                (trim.is_running, trim.failed) = (false, failed);
            }
            group.background.notify();
        };
        self.core.runtime.spawn("trim", Box::pin(task));
        Ok(())
    }

    /// Ends the running trim after its next request.
    pub fn stop_trim(&self) {
        self.discards.is_stopped.store(true, Ordering::Release);
    }

    /// Waits until no trim is under way.
    pub async fn trim_ended(&self) {
        loop {
            let turn = self.background.turn();
            if !self.trim_progress().is_running {
                return;
            }
            self.background.changed(turn).await;
        }
    }

    async fn trim(self: &Arc<Self>) -> Result<()> {
        // What a removed volume held becomes free in the background. A removal that finds no room (D6) ends the wait.
        if !self.core.planted("trimmed_before_removals") {
            match self.reclaim_idle().await {
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // Freed blocks become free only after a checkpoint.
        self.checkpoint().await?;
        self.discards.trim.lock().total = self.core.space.lock().free_blocks();
        let mut next = Some(0);
        let mut writes = 0;
        while let Some(at) = next {
            if self.discards.is_stopped.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            let given = self.discard_one(&PendingDiscard::Free(at..u64::MAX), true).await?;
            self.discards.trim.lock().add(given.free, given.bytes);
            next = given.next;
            self.rest_from_discards(&mut writes).await;
        }
        Ok(())
    }

    /// A checkpoint is durable, and the blocks that it freed are usable: starts their discards in the background, as
    /// configured.
    pub(super) fn discard_freed(self: &Arc<Self>, freed: &[Run]) {
        if !self.core.discards.checkpoint_durable(freed) || self.discards.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let group = self.clone();
        let task = async move {
            let mut writes = 0;
            loop {
                while let Some(pending) = group.core.discards.next(TOGETHER) {
                    if group.discard_one(&pending, false).await.is_err() {
                        // It is closed, or has failed.
                        return;
                    }
                    group.rest_from_discards(&mut writes).await;
                }
                group.discards.is_running.store(false, Ordering::Release);
                // Discards that were queued meanwhile are kept.
                if group.core.discards.is_empty() || group.discards.is_running.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        };
        self.core.runtime.spawn("discards", Box::pin(task));
    }

    async fn rest_from_discards(&self, writes: &mut u64) {
        let counters = &self.core.counters;
        let now = counters.writes_in_place.load(Ordering::Relaxed) + counters.writes_redirected.load(Ordering::Relaxed);
        if std::mem::replace(writes, now) != now {
            self.core.runtime.sleep(REST).await;
        }
        crate::runtime::yield_now().await;
    }

    /// One request. `is_asked`: whole files become sparse, too.
    async fn discard_one(&self, pending: &PendingDiscard, is_asked: bool) -> Result<Discarded> {
        let core = &self.core;
        // DC3
        let hold = match core.planted("discards_during_checkpoints") {
            true => None,
            false => Some(self.hold_checkpoints().await),
        };
        self.check_writable()?;
        let may_punch = is_asked || core.discards.policy().freed;
        let (segments, given) = match pending {
            PendingDiscard::Free(range) => self.begin_free(range, may_punch, is_asked).await?,
            PendingDiscard::Unwritten(part) => self.begin_unwritten(part, may_punch).await?,
        };
        if segments.is_empty() {
            return Ok(given);
        }
        let bytes = segments.iter().map(|segment| u64::from(segment.len)).sum();
        let outcome = start(&*core.disks, DiskOp::Discard { segments }).await;
        core.members.discarding.end(&*core.disks);
        drop(hold);
        match outcome {
            Ok(_) => {
                core.members.discarding.count(bytes);
                Ok(Discarded { bytes, ..given })
            }
            Err(error) if core.planted("discard_failure_stops") => Err(self.stop_for(error)),
            Err(error) => {
                core.members.discarding.disable(error);
                Ok(given)
            }
        }
    }

    fn stop_for(&self, error: DiskError) -> Error {
        self.core.journal.poison(&format!("free space could not be discarded: {error}"));
        error.into()
    }

    /// Begins to discard the free ones of these blocks (DC1), up to the limit. Free blocks next to a pending one are
    /// included.
    async fn begin_free(&self, range: &Range<u64>, may_punch: bool, is_walk: bool) -> Result<(Segments, Discarded)> {
        let core = &self.core;
        let around = if is_walk { 0 } else { core.config.min_discarded - 1 };
        let wide = range.start.saturating_sub(around)..range.end.saturating_add(around);
        let begin = || {
            let _gate = core.gate.read();
            let space = core.space.lock();
            let (runs, next) = match planted::is("discards_used_blocks") || core.planted("discards_used_blocks") {
                true if !is_walk => (vec![(range.start, range.end - range.start)], None),
                _ => space.free_runs_in(core.alloc_context(), &wide, TOGETHER + 2 * around)?,
            };
            let segments = self.places_to_discard(&runs, may_punch);
            if !segments.is_empty() {
                core.members.discarding.begin(segments.clone());
            }
            let free = runs.iter().map(|(_, len)| len).sum();
            Ok((segments, Discarded { free, bytes: 0, next }))
        };
        core.with_nodes_privileged(begin).await
    }

    /// The same for unwritten blocks of a volume.
    async fn begin_unwritten(&self, (id, part): &Part, may_punch: bool) -> Result<(Segments, Discarded)> {
        let core = &self.core;
        let Some(volume) = self.catalog.read().volumes.get(id).cloned() else { return Ok(Default::default()) };
        let begin = || {
            let _gate = core.gate.read();
            let state = volume.state.lock();
            if state.closed || state.invalid() {
                return Ok(Default::default());
            }
            let mut found = map::Extents::new();
            map::lookup(&core.cache, &state.head.tree, part.start, part.end, &mut found)?;
            let is_idle = |e: &map::Extent| {
                e.flags & UNWRITTEN != 0
                    && state.ownership.owns(e.birth, Some(e.end()))
                    && !state.conflict(e.key, e.end(), Mode::Exclusive)
            };
            let runs: Vec<Run> = found.iter().filter(|e| is_idle(e)).map(|e| (e.value, u64::from(e.len))).collect();
            let segments = self.places_to_discard(&runs, may_punch);
            if !segments.is_empty() {
                core.members.discarding.begin(segments.clone());
            }
            Ok((segments, Discarded::default()))
        };
        core.with_nodes_privileged(begin).await
    }

    /// The places of these blocks for which a discard is supported and worth a request.
    fn places_to_discard(&self, runs: &[Run], may_punch: bool) -> Segments {
        let core = &self.core;
        let (mut placement, least) = (core.placement(), core.config.min_discarded);
        if core.planted("discards_ignore_moves") {
            placement = Arc::new(Placement::new(placement.extent_blocks, placement.pvs.clone()));
        }
        let mut segments = Segments::new();
        for (start, len) in runs.iter().filter(|(_, len)| *len >= least) {
            let mut at = 0;
            while at < *len {
                // In parts of which the bytes fit into a segment.
                let part = (len - at).min(TOGETHER);
                placement.map_blocks(VgBlock(start + at), part, 0, &mut segments);
                at += part;
            }
        }
        let is_taken = |segment: &Segment| {
            let limits = core.disks.discards(segment.pv);
            limits.granularity > 0
                && (may_punch || !limits.is_whole)
                && !core.disks.is_missing(segment.pv)
                && !core.members.discarding.is_disabled(segment.pv)
        };
        let aligned = |segment: Segment| {
            let granularity = u64::from(core.disks.discards(segment.pv).granularity).max(1);
            let (from, to) = (segment.offset, segment.offset + u64::from(segment.len));
            let (from, to) = (from.next_multiple_of(granularity), to / granularity * granularity);
            let is_long = from < to && to - from >= least * BLOCK_SIZE;
            is_long.then(|| Segment { offset: from, len: (to - from) as u32, ..segment })
        };
        segments.into_iter().filter(is_taken).filter_map(aligned).collect()
    }
}
