//! Checkpoints: the state in memory becomes the state on the disk, without holding up the foreground.
//!
//! 1. *Capture*, under the gate held exclusively: the generation is raised, so that nodes that are dirty now freeze.
//!    Roots, counters, arenas and the journal's position are copied. Nothing waits for a disk here.
//! 2. *Write* the frozen dirty nodes and the stream, each twice, to blocks that nothing on the disk refers to.
//! 3. *Flush*, write the superblock, flush: now the checkpoint is durable.
//! 4. *Commit*: the journal's tail moves forward. Blocks and nodes that were freed before the capture become usable.

use super::backing::label_area;
use super::catalog::Catalog;
use super::checkpoint_lock::CheckpointHold;
use super::label::write_superblock;
use super::{Durable, Group, Root};
use crate::core::{Throttle, count};
use crate::disk::{Completion, DiskError, DiskOp, PageBuf, PvIndex, Segments, start};
use crate::error::{Error, Result};
use crate::format::stream::{
    INDEX_ENTRIES, IndexEntry, PAGE_PAYLOAD, RunRecord, Stream, UnprovenRecord, encode_index, encode_page, sealed_crc,
};
use crate::format::superblock::{GroupRoot, Superblock};
use crate::journal::bad_runs::BadRuns;
use crate::journal::{Capture, JournalOwner};
use crate::legs::LegsOwner;
use crate::model::{Attributes, GroupAttributes, TreeMeta};
use crate::planted;
use crate::space::{AllocContext, COMMIT_STEP, OpenArenas, Run, join_runs};
use crate::units::{BLOCK_SIZE, MetaBlock, VgBlock};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// Blocks in one request of a checkpoint: large enough to be cheap, small enough not to delay other requests for long.
const BATCH_BLOCKS: u64 = 16;
/// Steps of a commit for which nodes are read ahead together.
const COMMITS_AHEAD: u64 = 16;
/// Requests of a checkpoint in flight.
const BATCHES_IN_FLIGHT: usize = 2;

/// Metadata grows for a check up to this fraction of the group.
const LOOKS_GROW_TO: u64 = 32;
/// The longest time that a checkpoint waits for reads in flight.
const LONGEST_READ: Duration = Duration::from_secs(1);

/// The most bytes of the stream that a volume takes, without its head.
pub(super) fn volume_bytes(attributes: &Attributes) -> u64 {
    600 + attributes.tags.iter().map(|tag| tag.len() as u64 + 2).sum::<u64>()
}

/// Bytes of the stream that the group's tags take.
pub(super) fn tag_bytes(attributes: &GroupAttributes) -> u64 {
    let tags = attributes.tags.iter().chain(attributes.pv_tags.iter().flatten());
    tags.map(|tag| tag.len() as u64 + 2).sum()
}

/// The most bytes of the stream that a tree takes.
fn tree_bytes(tree: &TreeMeta) -> u64 {
    NEW_TREE_BYTES + tree.dead.len() as u64 * 16
}

/// A tree as the stream has it.
fn stored_tree(tree: &TreeMeta) -> TreeMeta {
    match planted::is("cursor_not_kept") {
        true => TreeMeta { cursor: 0, ..tree.clone() },
        false => tree.clone(),
    }
}

/// Bytes of the stream that a run in flight takes, with its record's number.
const IN_FLIGHT_BYTES: u64 = RunRecord::SIZE as u64 + 8;

/// The same for a tree of which no block was freed yet.
pub(super) const NEW_TREE_BYTES: u64 = 256;

/// The state of one instant.
struct Captured {
    generation: u64,
    /// Incompatible features that the stream uses.
    features: u64,
    journal: Capture,
    /// The journal to which this position belongs.
    journal_id: u64,
    stream_len: u64,
    index: [u64; 2],
    /// Where metadata lies by the stream.
    pairs: (Vec<[u64; 2]>, Vec<u64>),
    /// Blocks of the stream: address, bytes.
    blocks: Vec<(MetaBlock, Vec<u8>)>,
}

impl Group {
    /// Takes a checkpoint now.
    pub async fn checkpoint(self: &Arc<Self>) -> Result<()> {
        let ticket = self.checkpoints.ticket();
        self.checkpoint_turn(ticket, false).await
    }

    pub(super) async fn checkpoint_turn(self: &Arc<Self>, ticket: u64, clean: bool) -> Result<()> {
        self.core.journal.failed()?;
        if self.core.config.read_only {
            return Err(Error::ReadOnly);
        }
        while self.checkpoints.enter(ticket).await {
            self.core.journal.checkpoint_requested.store(false, Ordering::Release);
            // No checkpoint may follow one that failed half way: a caller that waited here finds the group stopped.
            let outcome = match self.core.journal.failed() {
                Ok(()) => self.checkpoint_alone(clean).await,
                stopped => stopped,
            };
            match &outcome {
                Ok(()) => {}
                // A successor goes on (U6).
                Err(Error::Closed) if !self.core.planted("closed_counts_as_failure") => {
                    self.core.journal.stop(Error::Closed);
                }
                Err(error) => self.core.journal.stop_after(error.clone(), "a checkpoint failed"),
            }
            self.checkpoints.leave(outcome.is_ok());
            outcome?;
            // Freed blocks are usable now: mirrored extents may be made, or dissolved.
            if self.has_several() {
                self.wake();
            }
        }
        self.core.journal.failed()
    }

    /// Waits for the running checkpoint and keeps the next one out.
    pub(super) async fn hold_checkpoints(&self) -> CheckpointHold<'_> {
        loop {
            let ticket = self.checkpoints.ticket();
            if self.checkpoints.enter(ticket).await {
                return CheckpointHold(&self.checkpoints);
            }
        }
    }

    pub(super) fn final_ticket(&self) -> u64 {
        self.checkpoints.ticket()
    }

    /// The checkpoint itself, for a caller that keeps others out.
    pub(super) async fn checkpoint_alone(self: &Arc<Self>, clean: bool) -> Result<()> {
        self.core.repair_copies().await;
        self.make_stream_room().await?;
        let captured = self.capture()?;
        if self.core.planted("room_released_early") {
            self.release_room().await;
        }
        if self.core.planted("discards_early") {
            let freed = self.core.space.lock().committing().to_vec();
            self.core.discard(&freed).await;
        }
        let written = self.write_checkpoint(&captured, clean).await;
        if let Err(error) = written {
            self.core.meta.lock().abort_commit();
            self.core.space.lock().abort_commit();
            return Err(error);
        }
        count(&self.core.counters.checkpoints);
        if self.replay.lock().is_none() {
            self.core.journal.checkpointed(&captured.journal);
        }
        let (is_crowded, metadata) = {
            let mut meta = self.core.meta.lock();
            meta.finish_commit(&self.core.cache);
            (meta.is_crowded_by_pins(), 2 * meta.total())
        };
        if is_crowded && metadata < self.core.placement().count() / LOOKS_GROW_TO {
            self.core.grow_ahead();
        }
        self.core.space_event.notify();
        let freed = match self.core.discards.discards_freed() {
            true => self.core.space.lock().committing().to_vec(),
            false => Vec::new(),
        };
        match self.readers_are_done().await {
            true => {
                self.release_room().await;
                self.commit_freed().await?;
                self.discard_freed(&freed);
            }
            false => self.core.space.lock().abort_commit(),
        }
        if self.orphaned(&self.catalog.read()).is_some() {
            self.request_reclaim();
        }
        self.resume_removal();
        self.core.space_event.notify();
        Ok(())
    }

    /// Rule R8: a read that began before a block was freed may still be in flight to it. Waits for such reads, but only
    /// for a limited time, as a disk may retry a sector for long (L6). False: the freed blocks must wait for the next
    /// checkpoint.
    async fn readers_are_done(&self) -> bool {
        if self.core.planted("readers_not_waited_for") {
            return true;
        }
        let volumes: Vec<_> = self.catalog.read().volumes.values().map(|v| (v.clone(), v.next_request())).collect();
        let mut done = pin!(async {
            for (volume, begun) in &volumes {
                volume.wait_for_readers(*begun).await;
            }
        });
        let mut limit = self.core.runtime.sleep(LONGEST_READ);
        poll_fn(|cx| {
            if done.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            limit.as_mut().poll(cx).map(|()| false)
        })
        .await
    }

    /// Makes the blocks that were freed before the capture usable. That may take several checkpoints. If the free tree
    /// is larger than the free metadata, each checkpoint frees the nodes that the previous one replaced. If much of the
    /// tree changes, each checkpoint writes the nodes that the previous one dirtied (L7).
    async fn commit_freed(&self) -> Result<()> {
        let keep = || self.core.meta.lock().reserved_from_commit();
        let (committed, is_done) = self.commit_some(keep).await?;
        if !is_done {
            self.core.space.lock().abort_commit();
            if committed {
                self.request_checkpoint();
            }
        }
        Ok(())
    }

    /// The same in recovery, for the blocks that the durable checkpoint freed (L1). If metadata is short, the rest
    /// waits for recovery's own checkpoint, because replay needs metadata, too.
    pub(super) async fn return_freed(&self) -> Result<()> {
        let at_once = self.core.planted("frees_at_once");
        let keep = || if at_once { 0 } else { self.core.meta.lock().reserved_from_arenas() };
        match self.commit_some(keep).await? {
            (_, false) if at_once => Err(self.core.no_space(1)),
            _ => Ok(()),
        }
    }

    /// Makes runs that are being committed usable, and leaves this many metadata blocks. Returns whether there were
    /// any, and whether none are left.
    async fn commit_some(&self, keep: impl Fn() -> u64) -> Result<(bool, bool)> {
        let mut throttle = Throttle::default();
        let mut dirtied = 0;
        for step in 0u64.. {
            if self.is_dirty_enough(dirtied) && step > 0 {
                return Ok((true, false));
            }
            if step % COMMITS_AHEAD == 0 {
                let runs = self.batch_records().min(COMMITS_AHEAD as usize * COMMIT_STEP);
                let next = self.core.space.lock().next_to_commit(runs);
                self.prefetch_free_tree(|| next.clone()).await;
            }
            let some = || {
                let _gate = self.core.gate.read();
                let keep = keep();
                self.core.space.lock().finish_commit(AllocContext { keep, ..self.core.alloc_context() })
            };
            let before = self.core.cache.dirty_bytes();
            let outcome = self.core.with_nodes_privileged(some).await;
            dirtied += self.core.cache.dirty_bytes().saturating_sub(before);
            match outcome {
                Ok(true) => return Ok((true, true)),
                Ok(false) => self.core.throttle(&mut throttle).await,
                Err(Error::NoSpace { .. }) => return Ok((step > 0, false)),
                Err(error) => return Err(error),
            }
        }
        unreachable!("each step commits something")
    }

    /// L7: whether the remaining runs must wait for the next checkpoint, after the commit has dirtied this many bytes
    /// of nodes. The rest of the room for dirty nodes is for writes that change maps, so that they need not wait. The
    /// commit may always use a quarter: many writes must not prevent that space becomes free.
    fn is_dirty_enough(&self, dirtied: u64) -> bool {
        let bound = self.core.config.dirty_bytes as u64;
        let all = self.core.dirty_bytes();
        let is_enough = dirtied > bound || dirtied > bound / 4 && all > 2 * bound;
        is_enough && !self.core.planted("commit_unbounded")
    }

    /// Makes sure, before the gate is closed, that there are blocks for the stream's pages, and for those of the next
    /// stream.
    async fn make_stream_room(&self) -> Result<()> {
        if !self.core.planted("frees_unbounded") {
            self.core.space.lock().tidy_pending();
        }
        {
            let _gate = self.core.gate.read();
            self.catalog_mut().fold_dead();
        }
        let wanted = {
            let bytes = self.stream_estimate();
            let mut meta = self.core.meta.lock();
            meta.set_stream_bytes(bytes);
            meta.next_stream()
        };
        for _ in 0..8 {
            if self.core.meta.lock().free_beyond_reserve() >= wanted {
                return Ok(());
            }
            self.core.meta.lock().drop_pins();
            let grown = match self.core.grow(OpenArenas::Close).await {
                Err(Error::NoSpace { .. }) => false,
                outcome => outcome?,
            };
            if !grown {
                break;
            }
        }
        Ok(())
    }

    /// Bytes of the next checkpoint's stream, without those that [`StreamLoad`](crate::space::metadata::StreamLoad)
    /// counts.
    pub(super) fn stream_estimate(&self) -> u64 {
        let catalog = self.catalog.read();
        let growing = (self.core.growing().len() + 1) * RunRecord::SIZE;
        let unproven = self.core.members.unproven.list().len() * UnprovenRecord::SIZE;
        let own = tag_bytes(&catalog.attributes) + (growing + unproven) as u64 + 1024;
        let volumes = catalog.volumes.values().map(|volume| {
            let state = volume.state.lock();
            let in_flight: usize = state.in_flight.iter().map(|op| op.allocated.len()).sum();
            volume_bytes(&state.meta.attributes) + tree_bytes(&state.head) + in_flight as u64 * IN_FLIGHT_BYTES
        });
        let items = volumes.sum::<u64>() + catalog.trees.values().map(tree_bytes).sum::<u64>() + own;
        // A quarter more, because writes continue until the capture.
        (items + items / 4) + self.core.meta.lock().area_bytes()
    }

    fn capture(&self) -> Result<Captured> {
        let core = &self.core;
        let _gate = core.gate.write();
        core.meta.lock().check_double_free()?;
        core.space.lock().check_double_free()?;
        let catalog = self.catalog.read();
        debug_assert!(catalog.is_consistent(), "C4");
        let generation = core.generation.fetch_add(1, Ordering::AcqRel);
        let (journal, journal_id) = match self.replay.lock().as_ref() {
            Some(replay) => replay.capture(core),
            None => (core.journal.capture(), core.journal.ring().id),
        };
        let mut in_flight: Vec<Run> = Vec::new();
        let mut stream = Stream {
            epoch: catalog.epoch,
            next_volume: catalog.next_volume,
            next_tree: catalog.next_tree,
            open_records: journal.open.clone(),
            pv_free: Vec::new(),
            trees: catalog.trees.values().map(stored_tree).collect(),
            attributes: catalog.attributes.clone(),
            ..Stream::default()
        };
        for volume in catalog.volumes.values() {
            let state = volume.state.lock();
            in_flight.extend(state.in_flight.iter().flat_map(|op| op.allocated.iter().copied()));
            stream.volumes.push(state.stored_meta());
            if !state.invalid() {
                stream.trees.push(state.head.clone());
            }
        }
        let mut space = core.space.lock();
        stream.free_tree = space.free_tree();
        stream.free_blocks = space.free_in_tree();
        stream.pv_free = space.pvs().stored_free();
        let (arenas, mut loose) = space.arenas(&in_flight);
        stream.arenas = arenas;
        stream.to_free = space.begin_commit();
        core.discards.capture();
        #[cfg(feature = "planted")]
        if core.planted("arena_per_block") {
            stream.arenas.extend(crate::space::Space::arena_each(&loose));
            loose.clear();
        }
        stream.to_free.append(&mut loose);
        core.members.unproven.forget_freed(&stream.to_free);
        stream.unproven = core.members.unproven.list();
        stream.to_free.extend(core.growing());
        stream.to_free.extend(self.taken_for_move());
        drop(space);
        let mut meta = core.meta.lock();
        let mut root = self.root.lock();
        (stream.pairs, stream.pair_lengths) = meta.recorded_pairs();
        meta.release_later(root.stream_blocks.drain(..));
        meta.begin_commit();
        stream.bitmap = vec![0; meta.bitmap_bytes() as usize];
        let mut bytes = stream.encode();
        let count = |bytes: &[u8]| {
            let pages = bytes.len().div_ceil(PAGE_PAYLOAD);
            (pages, pages.div_ceil(INDEX_ENTRIES))
        };
        let (mut pages, mut indexes) = count(&bytes);
        // Room is left for the next one, too.
        let is_short = !meta.can_take((pages + indexes) as u64 + meta.next_stream());
        if is_short && !core.planted("frees_unbounded") {
            if !join_runs(&mut stream.to_free) {
                return Err(double_free_error());
            }
            stream.packs = true;
            bytes = stream.encode();
            (pages, indexes) = count(&bytes);
        }
        let features = stream.features();
        if !meta.can_take((pages + indexes) as u64) {
            let needed = (pages + indexes) as u64;
            let free = meta.free();
            drop(meta);
            drop(root);
            core.meta.lock().abort_commit();
            core.space.lock().abort_commit();
            return Err(Error::NoSpace { needed, free });
        }
        let places: Vec<MetaBlock> = (0..pages + indexes).map(|_| meta.alloc()).collect();
        meta.set_stream_in_use(places.len() as u64);
        // The bitmap is the stream's tail: now that the stream's own blocks are marked, it is complete.
        let bitmap = meta.bitmap();
        let at = bytes.len() - bitmap.len();
        bytes[at..].copy_from_slice(&bitmap);
        let locate = |place: &MetaBlock| meta.locate(*place).expect("it was just handed out").map(|b| b.0);
        let (page_places, index_places) = places.split_at(pages);
        let mut blocks = Vec::with_capacity(places.len());
        let mut entries = Vec::with_capacity(pages);
        for (number, (payload, place)) in bytes.chunks(PAGE_PAYLOAD).zip(page_places).enumerate() {
            let [copy_a, copy_b] = locate(place);
            let page = encode_page(payload, generation, number as u64, copy_a, core.tag);
            entries.push(IndexEntry { copy_a, copy_b, crc: sealed_crc(&page), reserved: 0 });
            blocks.push((*place, page));
        }
        for (i, place) in index_places.iter().enumerate() {
            let own = locate(place);
            let next = index_places.get(i + 1).map_or([0, 0], locate);
            let part = &entries[i * INDEX_ENTRIES..entries.len().min((i + 1) * INDEX_ENTRIES)];
            blocks.push((*place, encode_index(part, generation, own, next, core.tag)));
        }
        root.stream_blocks = places.clone();
        let index = locate(&index_places[0]);
        let pairs = (std::mem::take(&mut stream.pairs), std::mem::take(&mut stream.pair_lengths));
        let stream_len = bytes.len() as u64;
        Ok(Captured { generation, features, journal, journal_id, stream_len, index, pairs, blocks })
    }

    async fn write_checkpoint(&self, captured: &Captured, clean: bool) -> Result<()> {
        let core = &self.core;
        let nodes = core.cache.dirty_nodes(captured.generation);
        let mut blocks: Vec<(MetaBlock, Block<'_>)> = Vec::with_capacity(nodes.len() + captured.blocks.len());
        blocks.extend(nodes.iter().map(|node| (node.this().addr, Block::Node(node))));
        blocks.extend(captured.blocks.iter().map(|(place, bytes)| (*place, Block::Bytes(bytes))));
        blocks.sort_by_key(|(place, _)| *place);
        core.counters.nodes_written.fetch_add(nodes.len() as u64, Ordering::Relaxed);
        let mut under_way = std::collections::VecDeque::new();
        let mut throttle = Throttle::default();
        let mut rest = &blocks[..];
        while !rest.is_empty() {
            let run = self.contiguous(rest);
            let (batch, tail) = rest.split_at(run);
            rest = tail;
            let mut buf = PageBuf::zeroed(batch.len() * BLOCK_SIZE as usize);
            for ((_, block), bytes) in batch.iter().zip(buf.as_mut_slice().chunks_exact_mut(BLOCK_SIZE as usize)) {
                match block {
                    Block::Node(node) => bytes.copy_from_slice(&node.encode(core.tag)),
                    Block::Bytes(page) => bytes.copy_from_slice(page),
                }
            }
            let copies = core.meta.lock().locate(batch[0].0).expect("blocks in use have a place");
            let placement = core.placement();
            let mut segments = Segments::new();
            for copy in copies {
                placement.map_blocks(copy, batch.len() as u64, 0, &mut segments);
            }
            // One copy of each is on a physical volume that is not out (MB1).
            segments.retain(|segment| !core.disks.is_missing(segment.pv));
            let buf = Arc::new(buf);
            let write = start(&*core.disks, DiskOp::Write { segments, buf: buf.clone() });
            under_way.push_back(Batch { first: batch[0].0, copies, buf, write });
            if under_way.len() >= BATCHES_IN_FLIGHT {
                self.settle_batch(under_way.pop_front().expect("it has several")).await?;
            }
            core.throttle(&mut throttle).await;
        }
        for batch in under_way {
            self.settle_batch(batch).await?;
        }
        core.journal.flush().await?;
        let superblock = {
            let mut root = self.root.lock();
            let Root { sequence, group, written, .. } = &mut *root;
            *sequence += 1;
            *group = GroupRoot {
                journal_id: captured.journal_id,
                journal_position: captured.journal.position,
                journal_seq: captured.journal.first.0,
                capture_seq: captured.journal.next.0,
                generation: captured.generation,
                features: captured.features | group.own_features(),
                index: captured.index,
                stream_len: captured.stream_len,
                clean,
                ..group.clone()
            };
            if let Some(whole) = &captured.journal.whole {
                group.set_whole_journals(whole);
            }
            written.clone_from(group);
            (*sequence, group.clone())
        };
        self.write_superblocks(superblock.0, &superblock.1).await?;
        self.root.lock().durable = Durable { group: superblock.1, pairs: captured.pairs.clone() };
        for node in &nodes {
            core.cache.mark_clean(node.this().addr, node.this().generation);
        }
        Ok(())
    }

    /// Waits for a batch. Failed writes are retried block by block. One copy of each block is enough (M7).
    async fn settle_batch(&self, batch: Batch) -> Result<()> {
        let Err(failed) = batch.write.await else { return Ok(()) };
        if self.core.planted("both_copies_or_none") {
            return Err(failed.into());
        }
        if failed.is_no_room() {
            let mut segments = Segments::new();
            for copy in batch.copies {
                let blocks = batch.buf.capacity() as u64 / BLOCK_SIZE;
                self.core.placement().map_blocks(copy, blocks, 0, &mut segments);
            }
            match self.core.write_when_there_is_room(failed, segments, batch.buf.clone()).await {
                Ok(()) => return Ok(()),
                Err(Error::Disk(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for (i, page) in (0..).zip(batch.buf.as_slice().chunks_exact(BLOCK_SIZE as usize)) {
            let page = Arc::new(PageBuf::from_slice(page));
            let mut outcomes = Vec::with_capacity(2);
            for copy in batch.copies {
                outcomes.push(self.core.write_blocks(VgBlock(copy.0 + i), page.clone()).await);
            }
            // A copy on a physical volume that is out is rewritten when that returns (MB5).
            if let Some(n) = (0..2).find(|n| self.core.is_missing(batch.copies[*n].0 + i)) {
                outcomes.swap_remove(1 - n)?;
                continue;
            }
            match (outcomes.pop().expect("two"), outcomes.pop().expect("two")) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(_)) => return Err(error),
                _ => {
                    count(&self.core.counters.copies_not_written);
                    self.core.meta.lock().withhold(MetaBlock(batch.first.0 + i));
                }
            }
        }
        Ok(())
    }

    /// Writes the newest superblock again under the next number (B2), with this change. No superblock follows one that
    /// failed.
    pub(super) async fn repeat_superblocks(&self, change: impl Fn(&mut GroupRoot)) -> Result<()> {
        let _hold = self.hold_checkpoints().await;
        self.repeat_superblocks_held(change).await
    }

    /// The same while the caller holds checkpoints.
    pub(super) async fn repeat_superblocks_held(&self, change: impl Fn(&mut GroupRoot)) -> Result<()> {
        self.core.journal.failed()?;
        let (sequence, written) = {
            let mut root = self.root.lock();
            let Root { sequence, group, written, .. } = &mut *root;
            if written.clean {
                return Err(Error::Closed);
            }
            *sequence += 1;
            [group, written].into_iter().for_each(change);
            (root.sequence, root.written.clone())
        };
        let outcome = self.write_superblocks(sequence, &written).await;
        match &outcome {
            Ok(()) => self.root.lock().durable.group = written,
            Err(Error::Closed) => self.core.journal.stop(Error::Closed),
            Err(error) => self.core.journal.stop_after(error.clone(), "a superblock could not be written"),
        }
        outcome
    }

    /// Writes the superblock to all physical volumes and makes it durable.
    pub(super) async fn write_superblocks(&self, sequence: u64, group: &GroupRoot) -> Result<()> {
        // A table without a physical volume takes effect at the next opening: the disks are still the old ones.
        self.write_zones(group).await?;
        let disks = self.core.placement();
        for (index, pv) in group.pvs.iter().enumerate() {
            let pv_index = u16::try_from(index).expect("at most 64 physical volumes");
            let superblock =
                Superblock { sequence, pv_uuid: pv.uuid, pv_index, pv_size: pv.size, group: Some(group.clone()) };
            let disk = disks.pvs.iter().position(|own| own.uuid == pv.uuid).unwrap_or(index);
            let disk = PvIndex(u16::try_from(disk).expect("at most 64 physical volumes"));
            if self.core.disks.is_missing(disk) {
                continue;
            }
            let waiting = self.core.backing.wait();
            loop {
                let Err(error) = write_superblock(&*self.core.disks, disk, &superblock).await else { break };
                let Error::NoRoom(error) = error else { return Err(error) };
                self.core.pause_for_room(&waiting, error, &label_area(disk)).await?;
            }
        }
        self.core.journal.flush().await
    }

    /// How many of the sorted blocks follow each other in both copies, up to a batch.
    fn contiguous(&self, blocks: &[(MetaBlock, Block<'_>)]) -> usize {
        let meta = self.core.meta.lock();
        let place = |i: usize| meta.locate(blocks[i].0).unwrap_or([VgBlock(0); 2]);
        let first = place(0);
        (1..blocks.len().min(BATCH_BLOCKS as usize))
            .find(|i| {
                let here = place(*i);
                here[0].0 != first[0].0 + *i as u64 || here[1].0 != first[1].0 + *i as u64
            })
            .unwrap_or(blocks.len().min(BATCH_BLOCKS as usize))
    }

    /// Locks the catalog for a change.
    pub(super) fn catalog_mut(&self) -> parking_lot::RwLockWriteGuard<'_, Catalog> {
        self.catalog.write()
    }
}

impl JournalOwner for Group {
    fn can_continue_without(&self, pv: PvIndex) -> bool {
        self.core.config.leaves_failed_disks && self.is_whole_without(pv)
    }

    fn probe_disks(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(async move { self.repeat_superblocks(|_| {}).await })
    }

    fn record_bad_runs(self: Arc<Self>, bad: BadRuns) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(async move {
            self.repeat_superblocks(|root| {
                root.bad.clone_from(&bad);
                root.features |= root.own_features();
            })
            .await
        })
    }

    fn write_when_there_is_room(
        self: Arc<Self>,
        error: DiskError,
        segments: Segments,
        buf: Arc<PageBuf>,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(async move { self.core.write_when_there_is_room(error, segments, buf).await })
    }
}

/// Blocks that follow each other in both copies, in flight to the disk.
struct Batch {
    first: MetaBlock,
    copies: [VgBlock; 2],
    buf: Arc<PageBuf>,
    write: Completion,
}

fn double_free_error() -> Error {
    let detail = "a block is to be freed twice".into();
    Error::Corrupt { what: "free space", place: "the volume group".into(), detail }
}

enum Block<'a> {
    Node(&'a crate::format::node::Node),
    Bytes(&'a [u8]),
}
