//! Re-homing and filling of whole volumes: which volumes are searched, when, and at what rate (rules R12 and R13).
//!
//! A volume is searched once after an opening, and again whenever a point was merged into its head, because the head
//! then owns blocks that a snapshot held. In a volume that is filled, windows with redirected writes are searched a
//! second after the write. [`Volume::rehome`](crate::volume::Volume) moves the scattered windows. The search has no
//! state on the disk: a crash repeats the search, but not the moves.

use super::Group;
use crate::core::{Throttle, count};
use crate::error::{Error, Result};
use crate::map::{self, MapError};
use crate::units::{Seq, VolumeId};
use crate::volume::Volume;
use crate::volume::rehome::Rehomed;
use crate::volume::window::WINDOW;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Windows that are moved before their mappings are made durable. Until then a write to them goes to other blocks (R6).
const MOVED_TOGETHER: usize = 8;
/// Pause after each window while there are writes...
const REST: Duration = Duration::from_millis(5);
/// ... and before a retry if there is no room, or writes need the journal or the dirty nodes.
const PAUSE: Duration = Duration::from_millis(100);
/// After this many tries without room, the volume stays as it is until a point is merged into it again.
const TRIES: u32 = 20;
/// The same for filling, which then ends.
const TRIES_TO_FILL: u32 = 2;
/// Pause after each filled window while there are writes: filling takes longer than a move, and is less urgent.
const REST_FROM_FILLING: Duration = Duration::from_millis(20);
/// A window that was in use is tried again after this time, this many times.
const AGAIN: Duration = Duration::from_secs(1);
const PASSES: u32 = 4;

/// A search of one volume.
struct Search {
    volume: Arc<Volume>,
    /// Blocks before this one were searched.
    cursor: u64,
    /// Records of moves that may not be durable yet.
    moved: Vec<Seq>,
    /// How often in a row there was no room.
    tries: u32,
    /// Windows that were in use.
    left: BTreeSet<u64>,
    /// Only these windows are searched.
    only: Option<BTreeSet<u64>>,
    /// Shared blocks are copied if the volume is laid out for reading.
    fill: bool,
    throttle: Throttle,
    writes: u64,
}

impl Group {
    /// Requests a background search of the volume.
    pub(super) fn request_rehoming(&self, volume: VolumeId) {
        if self.core.config.rehome && !self.core.config.read_only {
            self.to_rehome.lock().insert(volume);
            self.rehome_wanted.store(true, Ordering::Release);
            self.background.notify();
        }
    }

    /// The same for all volumes.
    pub(super) fn request_rehoming_of_all(&self) {
        let volumes: Vec<VolumeId> = self.catalog.read().volumes.keys().copied().collect();
        volumes.into_iter().for_each(|volume| self.request_rehoming(volume));
    }

    /// Whether volumes are being re-homed, or are waiting for it.
    pub fn rehoming(&self) -> bool {
        self.rehome_wanted.load(Ordering::Acquire)
    }

    /// Waits until no volume is being re-homed.
    pub async fn rehome_idle(&self) -> Result<()> {
        loop {
            let turn = self.core.space_event.turn();
            self.core.journal.failed()?;
            if !self.rehoming() {
                return Ok(());
            }
            self.core.space_event.changed(turn).await;
        }
    }

    /// Requests a search of the volume's windows with redirected writes.
    pub(crate) fn request_filling_of(&self, volume: VolumeId) {
        if self.core.config.rehome && !self.core.config.read_only {
            self.to_fill.lock().insert(volume);
            self.rehome_wanted.store(true, Ordering::Release);
            self.background.notify();
        }
    }

    /// Searches one volume. Clears the flag if no volume is left.
    pub(super) async fn rehome_some(self: &Arc<Self>) {
        let whole = self.to_rehome.lock().pop_first();
        let next = whole.or_else(|| self.to_fill.lock().pop_first());
        let volume = next.and_then(|id| self.catalog.read().volumes.get(&id).cloned());
        if let Some(volume) = volume {
            let mut search = Search::new(volume);
            self.progress.set_rehoming(search.volume.id, 0);
            if whole.is_none() {
                // More writes may be redirected soon.
                self.wait(AGAIN).await;
                search.search_redirected();
            }
            for pass in 0..PASSES {
                if pass > 0 {
                    self.wait(AGAIN).await;
                    search.restart();
                }
                // Users of the volume get the error. Here the volume only stays as it is.
                if self.rehome(&mut search).await.is_err() || search.left.is_empty() {
                    break;
                }
            }
            self.progress.clear_rehoming();
            return;
        }
        if next.is_none() {
            self.rehome_wanted.store(false, Ordering::Release);
            // A request that came in between is kept.
            if !self.to_rehome.lock().is_empty() || !self.to_fill.lock().is_empty() {
                self.rehome_wanted.store(true, Ordering::Release);
            }
            self.core.space_event.notify();
        }
    }

    async fn rehome(self: &Arc<Self>, search: &mut Search) -> Result<()> {
        if let Some(seq) = search.volume.fresh_to_fill() {
            self.core.journal.ensure_marker(seq).await?;
        }
        while let Some(window) = self.next_window(search).await? {
            let end = window + WINDOW;
            let found = self.core.with_nodes(|| search.volume.scattered(window, end, search.fill)).await?;
            for (first, last) in found.stretches {
                self.rehome_stretch(search, (first, last), found.fill).await?;
            }
            search.cursor = end;
            self.progress.set_rehoming(search.volume.id, end);
        }
        self.settle(search).await
    }

    async fn rehome_stretch(self: &Arc<Self>, search: &mut Search, stretch: (u64, u64), fill: bool) -> Result<()> {
        let (first, last) = stretch;
        loop {
            if self.core.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            if self.core.meta.lock().has_pins() && !self.core.planted("rehome_during_check") {
                // Its checkpoints would need blocks that a check holds (M6).
                self.wait(PAUSE).await;
                continue;
            }
            match search.volume.rehome(first, last, fill).await? {
                Rehomed::Moved(seq) => {
                    search.moved.push(seq);
                    search.tries = 0;
                }
                Rehomed::InUse => search.left.extend([first, last - 1].map(|block| block / WINDOW * WINDOW)),
                Rehomed::Loaded => continue,
                Rehomed::Busy => {
                    // No other task may request it.
                    self.request_checkpoint();
                    self.wait(PAUSE).await;
                    continue;
                }
                Rehomed::NoRoom => {
                    search.tries += 1;
                    // Blocks that were freed so far become usable after a checkpoint.
                    self.settle(search).await?;
                    if fill && (search.tries > TRIES_TO_FILL || !search.volume.may_fill_soon()) {
                        // F2
                        (search.fill, search.tries) = (false, 0);
                        count(&self.core.counters.fills_without_room);
                        return Ok(());
                    }
                    if search.tries > TRIES {
                        return Err(self.core.no_space(last - first));
                    }
                    if self.core.space.lock().pending_blocks() > 0 {
                        self.checkpoint().await?;
                    }
                    self.wait(PAUSE).await;
                    continue;
                }
            }
            if search.moved.len() >= MOVED_TOGETHER {
                self.settle(search).await?;
            }
            if self.pending_full() {
                self.checkpoint().await?;
            }
            self.rest(search, if fill { REST_FROM_FILLING } else { REST }).await;
            return Ok(());
        }
    }

    /// The next window in which more than one extent begins. None: the whole volume was searched.
    async fn next_window(self: &Arc<Self>, search: &mut Search) -> Result<Option<u64>> {
        loop {
            if self.core.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            if let Some(only) = search.only.as_mut() {
                return Ok(only.pop_first());
            }
            let step = self.core.with_nodes(|| search.step()).await?;
            let Some((next, window)) = step else { return Ok(None) };
            if window.is_some() {
                return Ok(window);
            }
            let Some(next) = next else { return Ok(None) };
            search.cursor = next;
            self.progress.set_rehoming(search.volume.id, next);
            self.core.throttle(&mut search.throttle).await;
        }
    }

    /// Makes the moves durable, so that their blocks can be written in place.
    async fn settle(&self, search: &mut Search) -> Result<()> {
        match search.moved.drain(..).max().filter(|_| !self.core.closed.load(Ordering::Acquire)) {
            Some(seq) => self.core.journal.ensure_marker(seq).await,
            None => Ok(()),
        }
    }

    /// Sleeps in parts, so that a closed group is released soon.
    async fn wait(&self, time: Duration) {
        let part = PAUSE / 4;
        for _ in 0..time.as_micros().div_ceil(part.as_micros()) {
            if self.core.closed.load(Ordering::Acquire) {
                return;
            }
            self.core.runtime.sleep(part).await;
        }
    }

    async fn rest(&self, search: &mut Search, time: Duration) {
        let counters = &self.core.counters;
        let writes =
            counters.writes_in_place.load(Ordering::Relaxed) + counters.writes_redirected.load(Ordering::Relaxed);
        if std::mem::replace(&mut search.writes, writes) != writes {
            self.core.runtime.sleep(time).await;
        }
        crate::runtime::yield_now().await;
    }
}

impl Search {
    fn new(volume: Arc<Volume>) -> Search {
        let (left, throttle) = (BTreeSet::new(), Throttle::default());
        Search { volume, cursor: 0, moved: Vec::new(), tries: 0, left, only: None, fill: true, throttle, writes: 0 }
    }

    fn search_redirected(&mut self) {
        let redirected = self.volume.take_redirected();
        self.only = Some(redirected.windows).filter(|_| !redirected.are_more);
    }

    /// Starts again with the windows that were in use.
    fn restart(&mut self) {
        self.only = Some(std::mem::take(&mut self.left));
    }

    /// Reads one more leaf. Returns where to continue, and a window of it with several extents. None: there are no more
    /// leaves.
    #[allow(clippy::type_complexity)]
    fn step(&self) -> std::result::Result<Option<(Option<u64>, Option<u64>)>, MapError> {
        let state = self.volume.state.lock();
        if state.closed || state.invalid() || self.cursor >= state.meta.blocks {
            return Ok(None);
        }
        let ownership = state.ownership;
        // A node that is not younger than the parent is shared, with everything below it.
        let prune = |node: map::NodeRef, _: u8, _: u64| {
            Ok(ownership.merge_cursor.is_none() && node.birth <= ownership.parent_epoch)
        };
        let step = map::walk_step(&self.volume.core.cache, &state.head.tree, self.cursor, &prune)?;
        let Some(leaf) = &step.leaf else { return Ok(Some((step.next, None))) };
        let mut before = None;
        for extent in leaf.extents().filter(|extent| extent.end() > self.cursor) {
            let window = extent.key.max(self.cursor) / WINDOW * WINDOW;
            if before == Some(window) {
                return Ok(Some((step.next, Some(window))));
            }
            before = Some(window);
        }
        Ok(Some((step.next, None)))
    }
}
