//! Room behind the disks: a physical volume can be a sparse file on a filesystem that fills up, or a thin device.
//!
//! * U1 Superblocks, the journal's ring and metadata have allocated room before they are used ([`Disks::back`]), so
//!   that only data can meet "no room". A group of an older program gets this room when it is opened. If that is not
//!   possible, it says so and retries.
//! * U2 A data write that meets no room changes no state, and the group continues. The write first waits for blocks
//!   that are being freed. Then the volume's policy for a full group decides.
//! * U3 While room is short, the data of a write is on the disk before its record is made. Blocks that a checkpoint
//!   frees are discarded on the disks after the checkpoint is durable and before they can be allocated again.
//! * U4 While room is short, or areas have no allocated room, the group checks for room once a second. If there is
//!   some, all waiting requests retry.
//! * U5 If the areas find no room when a group is opened, the group discards its free blocks, part by part, until they
//!   do. A block is free if it is free in the checkpoint and no record of the journal names it: the blocks of all
//!   records are taken first.
//! * U6 If a write of the journal or of a checkpoint meets no room in an open group, the same write is repeated once a
//!   second. To the group this looks like a slow disk. Changes of volumes are refused meanwhile. Filesystems that never
//!   write in place need this: U1 has no effect there. A group that opens or closes does not wait. If a successor takes
//!   over, the kernel repeats the unanswered requests to it.
//!
//! [`Disks::back`]: crate::disk::Disks::back

use super::Group;
use crate::core::Core;
use crate::disk::{DiskError, DiskOp, PageBuf, PvIndex, Segment, Segments, back, start};
use crate::error::{Error, Result};
use crate::format::superblock::DATA_OFFSET;
use crate::map;
use crate::space::Run;
use crate::space::backing::Waiting;
use crate::space::metadata::Pair;
use crate::units::VgBlock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The interval between two checks for room.
const LOOK: Duration = Duration::from_secs(1);
/// Blocks of one request for room or discard: its bytes must fit into 32 bits.
const TOGETHER: u64 = 1 << 16;

/// Room that is missing behind a group's disks: see [`Group::missing_room`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingRoom {
    /// Writes meet no room on this physical volume.
    pub for_data: Option<PvIndex>,
    /// The journal and metadata on this physical volume have no allocated room.
    pub for_metadata: Option<PvIndex>,
}

impl Core {
    /// Gets room for these runs of blocks.
    pub async fn back(&self, runs: &[Run]) -> std::result::Result<(), DiskError> {
        for segments in self.in_parts(runs) {
            back(&*self.disks, segments).await?;
        }
        Ok(())
    }

    /// The ranges on the disks of these runs, in requests of some size.
    pub fn in_parts(&self, runs: &[Run]) -> Vec<Segments> {
        let placement = self.placement();
        let mut parts = Vec::new();
        for (start, len) in runs {
            for at in (0..*len).step_by(TOGETHER as usize) {
                let mut segments = Segments::new();
                placement.map_blocks(VgBlock(start + at), TOGETHER.min(len - at), 0, &mut segments);
                parts.push(segments);
            }
        }
        parts
    }

    /// Discards these runs on the disks.
    pub(super) async fn discard(&self, runs: &[Run]) {
        for segments in self.in_parts(runs) {
            // A disk that does not support discards gains no room from them.
            let _not_given_back = start(&*self.disks, DiskOp::Discard { segments }).await;
        }
    }

    /// A write to these ranges met no room (U2): from now on the group checks for room there (U4).
    pub fn note_no_room(&self, error: DiskError, segments: Segments) {
        self.backing.state.lock().short = Some((error, segments));
        self.backing.is_short.store(true, Ordering::Release);
        self.poll_for_room();
    }

    /// U6: a write of these ranges met no room. Repeats it until there is some. `Err`: as in [`Core::pause_for_room`],
    /// or another error.
    pub async fn write_when_there_is_room(
        &self,
        mut error: DiskError,
        segments: Segments,
        buf: Arc<PageBuf>,
    ) -> Result<()> {
        let waiting = self.backing.wait();
        loop {
            self.pause_for_room(&waiting, error, &segments).await?;
            let write = DiskOp::Write { segments: segments.clone(), buf: buf.clone() };
            match start(&*self.disks, write).await {
                Err(failed) if failed.is_no_room() => error = failed,
                outcome => return Ok(outcome.map(|_| ())?),
            }
        }
    }

    /// Waits before a write that met no room is repeated (U6). `Err`: this group does not wait; [`Error::Closed`] if a
    /// successor will.
    pub async fn pause_for_room(&self, _: &Waiting<'_>, error: DiskError, segments: &Segments) -> Result<()> {
        let may_wait = || {
            if self.waiting_ended.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            let is_open = self.backing.is_serving.load(Ordering::Acquire) && !self.closed.load(Ordering::Acquire);
            match is_open && !self.planted("metadata_fails_without_room") {
                true => Ok(()),
                false => Err(Error::NoRoom(error)),
            }
        };
        may_wait()?;
        self.note_no_room(error, segments.clone());
        self.runtime.sleep(LOOK).await;
        may_wait()
    }

    fn poll_for_room(&self) {
        if self.space_finder().is_err() {
            return;
        }
        if std::mem::replace(&mut self.backing.state.lock().is_polling, true) {
            return;
        }
        let core = self.this.clone();
        let looking = async move {
            loop {
                let Some(time) = core.upgrade().map(|core| core.runtime.sleep(LOOK)) else { return };
                time.await;
                let Some(core) = core.upgrade() else { return };
                if core.closed.load(Ordering::Acquire) || !core.poll_once().await {
                    return;
                }
            }
        };
        self.runtime.spawn("room", Box::pin(looking));
    }

    /// False: no room is missing any more.
    async fn poll_once(&self) -> bool {
        let (short, unbacked) = {
            let state = self.backing.state.lock();
            (state.short.clone(), state.unbacked)
        };
        if let Some((_, segments)) = short {
            // Freed blocks give room (U3).
            if self.space.lock().pending_blocks() > 0 {
                self.request_checkpoint();
            }
            // A filesystem that does not write in place can have allocated room and still none for a write.
            if back(&*self.disks, segments).await.is_ok() && self.backing.no_room_error().is_none() {
                self.backing.state.lock().short = None;
                self.backing.is_short.store(false, Ordering::Release);
                if !self.planted("room_not_announced") {
                    self.space_event.notify();
                }
            }
        }
        if unbacked.is_some()
            && let Ok(group) = self.space_finder()
            && group.back_metadata().await.is_ok()
        {
            self.backing.state.lock().unbacked = None;
        }
        let mut state = self.backing.state.lock();
        state.is_polling = state.short.is_some() || state.unbacked.is_some();
        state.is_polling
    }
}

impl Group {
    /// U1, for the areas that this group's superblock and checkpoint name.
    pub(super) async fn back_areas(&self) -> std::result::Result<(), DiskError> {
        let root = self.root.lock().group.clone();
        for index in 0..root.pvs.len() {
            let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
            back(&*self.core.disks, label_area(pv)).await?;
        }
        let pairs = self.core.meta.lock().pairs().to_vec();
        let copies = pairs.iter().flat_map(Pair::runs);
        let runs: Vec<Run> = root.journals().map(|start| (start, root.journal_blocks)).chain(copies).collect();
        self.core.back(&runs).await
    }

    /// The same when the group is opened: without room it continues, reports it, and checks again later.
    pub(super) async fn back_at_opening(&self) {
        if let Err(error) = self.back_areas().await {
            self.core.backing.state.lock().unbacked = Some(error);
            self.core.poll_for_room();
        }
    }

    /// U5. Call it when the journal's blocks are taken and nothing was written yet. If there is too little to discard,
    /// the opening continues: it may need no new block, and otherwise reports that there is no room.
    pub(super) async fn discard_to_back_areas(&self) -> Result<()> {
        let core = &self.core;
        let is_unbacked = || core.backing.state.lock().unbacked.is_some();
        let tree = core.space.lock().free_tree();
        let mut next = (!core.planted("areas_stay_unbacked")).then_some(0);
        // The next check of the areas comes after twice as many discarded blocks.
        let mut leaves = 1;
        while let Some(first) = next.filter(|_| is_unbacked()) {
            let mut runs = Vec::new();
            let mut cursor = Some(first);
            for _ in 0..leaves {
                let Some(at) = cursor else { break };
                let walk = || map::walk_step(&core.cache, &tree, at, &|_, _, _| Ok(false));
                let step = core.with_nodes_privileged(walk).await?;
                runs.extend(step.leaf.iter().flat_map(|leaf| leaf.extents()).map(|e| (e.key, u64::from(e.len))));
                cursor = step.next;
            }
            core.discard(&runs).await;
            if self.back_areas().await.is_ok() {
                core.backing.state.lock().unbacked = None;
            }
            (next, leaves) = (cursor, leaves * 2);
        }
        Ok(())
    }

    /// U6: a request for a change gets an error that says what is missing, and does not wait.
    pub(super) fn may_change(&self) -> Result<()> {
        self.check_writable()?;
        self.has_room_for_records()
    }

    /// [`Error::NoRoom`]: the journal or a checkpoint waits for room, and so does every change in progress (U6).
    ///
    /// # Errors
    /// As above.
    pub fn has_room_for_records(&self) -> Result<()> {
        self.core.backing.no_room_error().map_or(Ok(()), |error| Err(Error::NoRoom(error)))
    }

    /// What is missing, for the administrator.
    pub fn missing_room(&self) -> MissingRoom {
        let state = self.core.backing.state.lock();
        MissingRoom {
            for_data: state.short.as_ref().map(|(error, _)| error.pv),
            for_metadata: state.unbacked.map(|error| error.pv),
        }
    }

    /// U3: discards the blocks that the last checkpoint freed, if room is short there.
    pub(super) async fn release_room(&self) {
        if !self.core.backing.is_short() {
            return;
        }
        let freed = self.core.space.lock().committing().to_vec();
        self.core.discard(&freed).await;
    }
}

/// The place of a physical volume's labels and superblocks.
pub(super) fn label_area(pv: PvIndex) -> Segments {
    Segments::from_slice(&[Segment { pv, offset: 0, at: 0, len: DATA_OFFSET as u32 }])
}

/// U1, for a physical volume that is to join.
pub(super) async fn back_label(disks: &dyn crate::disk::Disks, pv: PvIndex) -> Result<()> {
    back(disks, label_area(pv)).await?;
    Ok(())
}
