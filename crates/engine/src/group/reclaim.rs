//! Removal: the blocks of trees that are no longer needed are freed in the background, in bounded steps
//! (docs/design.md, section 6).
//!
//! A dying tree without children is walked, pruned by birth: blocks that were born after its parent are its own and are
//! freed. A point with one child left is merged into the child: blocks that were born after the point's own parent and
//! that the child does not map are freed, and all others become the child's. Both walks compare trees node by node and
//! skip shared nodes, so their cost is proportional to the freed blocks. There is no list of dead blocks
//! (docs/adr/0003).
//!
//! Invariants
//!
//! * D1 Below the cursor of a merge the child owns everything born after the grandparent. At and above the cursor the
//!   dying point still shares its blocks with the child. The child knows this by its
//!   [`Ownership`](crate::core::Ownership). The key of a node's first entry decides whether the child owns the node.
//!   Its range does not: drops of neighbours may have widened the range in the child only, so that it crosses the
//!   cursor after the walk has passed the node.
//! * D2 A step writes nothing to the journal. The blocks that it frees are pending until the next checkpoint, which
//!   also stores the cursor. After a crash removal resumes from there, and no block that it freed since was allocated.
//! * D3 A merge begins only when every mapping of the dying point is durable, so that the child may write inherited
//!   blocks in place (rule R6).
//! * D4 If both copies of a node are lost, removal skips it. Only the blocks that it maps stay in use without an owner,
//!   and `check` reports them.
//! * D5 A node that cannot be read now is not lost. Removal waits ([`Retry`](super::retry::Retry)) and retries. It
//!   counts the node as lost only after a time that is longer than a usual outage of a disk or path. A close does not
//!   wait for this.
//! * D6 If there is no room for the next checkpoint, removal stops. The checkpoint that finds room again resumes it. A
//!   caller that waits for removal gets an error meanwhile.
//! * D7 A dying tree is read only at and above its cursor ([`TreeMeta::there`]), also by recovery, which applies records of
//!   the child from after the checkpoint. Below the cursor its nodes are free, and may belong to another tree.
//!   What the child inherits there is in the next tree above.

use super::Group;
use super::catalog::Catalog;
use super::snapshot_usage::SnapshotUsage;
use crate::core::{Core, MergeCursor, Throttle, Unavailable, count};
use crate::dead_blocks;
use crate::error::{Error, Result};
use crate::legs::LegsOwner;
use crate::map::{self, Extent, MapError, NodeRef};
use crate::model::{Tree, TreeKind, TreeMeta};
use crate::runtime::yield_now;
use crate::space::Reserve;
use crate::units::{Epoch, Seq, TreeId, VolumeId};
use crate::volume::Volume;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// The most checkpoints that are taken for the next part of a removal.
const CHECKPOINTS_FOR_ROOM: u32 = 8;

pub(super) enum Stepped {
    More,
    TreeDone,
    /// Done, and this snapshot now holds more than its reserve.
    Overdrawn(VolumeId),
}

impl Group {
    /// One step of removal. Clears the flag when there is nothing to do.
    pub(super) async fn reclaim_some(self: &Arc<Self>) {
        let outcome = self.reclaim_step().await;
        match outcome {
            Ok(true) => {}
            Ok(false) => {
                // Freed blocks are usable, and appear in reports, after a checkpoint.
                if self.core.space.lock().pending_blocks() > 0 {
                    self.request_checkpoint();
                }
                self.core.space_event.notify();
                if self.has_several() {
                    self.dissolve_wanted.store(true, Ordering::Release);
                    self.wake();
                }
            }
            Err(error) => {
                // Removal stops until there is room (D6), or until the group is opened again. This costs only space.
                self.reclaim_wanted.store(false, Ordering::Release);
                self.removal_stopped.store(matches!(error, Error::NoSpace { .. }), Ordering::Release);
                if !matches!(error, Error::NoSpace { .. } | Error::Closed) {
                    self.core.journal.poison(&format!("removal failed: {error}"));
                }
                self.core.space_event.notify();
            }
        }
        yield_now().await;
    }

    /// `Ok(false)`: nothing to do.
    async fn reclaim_step(self: &Arc<Self>) -> Result<bool> {
        let (work, orphaned) = {
            let catalog = self.catalog.read();
            let work = catalog.next_removal();
            let orphaned = if work.is_none() { self.orphaned(&catalog) } else { None };
            if work.is_none() && orphaned.is_none() {
                self.reclaim_wanted.store(false, Ordering::Release);
            }
            (work, orphaned)
        };
        if let Some(point) = orphaned {
            if let Stepped::Overdrawn(snapshot) = self.free_orphans(point).await? {
                self.invalidate(snapshot).await?;
            }
            self.core.space_event.notify();
            return Ok(true);
        }
        let Some(id) = work else { return Ok(false) };
        let started = self.catalog.read().trees.get(&id).is_some_and(|t| t.kind == TreeKind::Dying && t.cursor > 0);
        if !started {
            self.begin_removal(id).await?;
        }
        if self.pending_full() {
            self.checkpoint().await?;
            self.room_to_free().await?;
        }
        let mut throttle = Throttle::default();
        loop {
            count(&self.core.counters.reclaim_steps);
            let stepped = match self.core.with_readable_nodes(|| self.step(id)).await? {
                Ok(stepped) => stepped,
                Err(absent) => {
                    if !self.without(id, absent).await? {
                        return Ok(true);
                    }
                    continue;
                }
            };
            self.retry.lock().stepped();
            match stepped {
                Stepped::TreeDone => {
                    self.core.space_event.notify();
                    return Ok(true);
                }
                Stepped::Overdrawn(snapshot) => {
                    self.invalidate(snapshot).await?;
                    self.core.space_event.notify();
                    return Ok(true);
                }
                Stepped::More => {
                    if self.pending_full() || self.core.closed.load(Ordering::Acquire) {
                        return Ok(true);
                    }
                    self.core.throttle(&mut throttle).await;
                }
            }
        }
    }

    /// Waits for a node that cannot be read now (D5), or skips it (D4). False: the group ends.
    async fn without(&self, tree: TreeId, absent: Unavailable) -> Result<bool> {
        let node = match absent {
            Unavailable::Unread(node) if !self.core.planted("unread_node_is_lost") => {
                let pause = self.retry.lock().next(tree);
                if let Some(pause) = pause {
                    return Ok(self.pause(pause).await);
                }
                node
            }
            Unavailable::Unread(node) | Unavailable::Lost(node) => node,
        };
        if self.core.planted("lost_nodes_stop") || !self.lost.lock().insert(node) {
            return Err(Error::Corrupt {
                what: "tree node",
                place: node.to_string(),
                detail: "neither copy can be read".into(),
            });
        }
        count(&self.core.counters.nodes_lost);
        Ok(true)
    }

    /// Sleeps for a time. Returns false at once if the group is closed.
    async fn pause(&self, time: Duration) -> bool {
        let mut time = self.core.runtime.sleep(time);
        loop {
            let turn = self.background.turn();
            if self.core.closed.load(Ordering::Acquire) {
                return false;
            }
            let mut asked = pin!(self.background.changed(turn));
            let is_over = poll_fn(|cx| match time.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => asked.as_mut().poll(cx).map(|()| false),
            });
            if is_over.await {
                return true;
            }
        }
    }

    /// A checkpoint was taken: stopped removal resumes if there is room again (D6).
    pub(super) fn resume_removal(&self) {
        let is_asked = !self.core.planted("removal_never_resumes");
        if is_asked && self.removal_stopped.load(Ordering::Acquire) && self.has_least_room_to_free() {
            self.request_reclaim();
        }
    }

    fn has_least_room_to_free(&self) -> bool {
        self.core.meta.lock().has_least_room_to_free() && !self.core.is_short_for_tests()
    }

    /// Whether enough blocks are pending for removal to take a checkpoint.
    pub(super) fn pending_full(&self) -> bool {
        self.core.space.lock().pending_runs() > self.core.pending_bound() || self.core.is_short_of_blocks_to_free()
    }

    /// Takes checkpoints until there is room for the next part of a removal or a reduction (L2). Each checkpoint frees
    /// the metadata that was replaced before it, and makes some freed blocks usable. If that gives no more room, the
    /// least room is enough, because the removal itself frees nodes. The caller must have nothing in flight that a
    /// checkpoint waits for.
    pub(super) async fn room_to_free(self: &Arc<Self>) -> Result<()> {
        let measure = || (self.core.meta.lock().free(), self.core.space.lock().pending_runs());
        for _ in 0..CHECKPOINTS_FOR_ROOM {
            if !self.core.is_short_of_blocks_to_free() {
                return Ok(());
            }
            let (free, runs) = measure();
            self.checkpoint().await?;
            let (free_now, runs_now) = measure();
            if free_now <= free && runs_now >= runs {
                break;
            }
        }
        match self.has_least_room_to_free() {
            true => Ok(()),
            false => Err(self.core.no_space(1)),
        }
    }

    /// Marks a tree as dying and updates its child (D1, D3).
    async fn begin_removal(self: &Arc<Self>, id: TreeId) -> Result<()> {
        let newest = self.core.journal.next_seq();
        if newest.0 > 0 && !self.core.planted("merged_before_durable") {
            let last = Seq(newest.0 - 1);
            self.core.journal.ensure_marker(last).await?;
        }
        let _gate = self.core.gate.read();
        let mut catalog = self.catalog_mut();
        debug_assert!(
            catalog.current_removal().is_none_or(|other| other == id),
            "C3: removal does one thing at a time"
        );
        let Some(tree) = catalog.trees.get_mut(&id) else { return Ok(()) };
        tree.kind = TreeKind::Dying;
        let (cursor, parent) = (tree.cursor, tree.parent);
        let lower = catalog.epoch_of(parent);
        if let Some(child) = live_child(&catalog, id) {
            Group::set_merge_cursor(&child, Some(MergeCursor { cursor, lower }));
        }
        Ok(())
    }

    /// One step on the dying tree `id`, in one critical section.
    fn step(&self, id: TreeId) -> std::result::Result<Stepped, MapError> {
        let core = &self.core;
        let _gate = core.gate.read();
        let mut catalog = self.catalog_mut();
        let Some(dying) = catalog.trees.get(&id).filter(|t| t.kind == TreeKind::Dying).cloned() else {
            return Ok(Stepped::TreeDone);
        };
        let lower = catalog.epoch_of(dying.parent);
        let lost = self.lost.lock();
        let mut children = catalog.children_of(id);
        let child = children.next();
        debug_assert!(children.next().is_none(), "C2: a dying tree has at most one child");
        drop(children);
        let Some(child) = child else {
            return step_leaf(core, &mut catalog, &dying, lower, &lost);
        };
        let volume = live_child(&catalog, id);
        match volume {
            Some(volume) => {
                let mut state = volume.state.lock();
                let tree = state.head.tree;
                let Some(next) = step_merge(core, &mut catalog, &dying, &tree, lower, &lost)? else {
                    let gone = self.finish_merge(&mut catalog, &mut state.head, id);
                    let parent = gone.parent.and_then(|p| catalog.trees.get(&p)).cloned();
                    state.set_parent(parent.as_ref());
                    drop(state);
                    self.request_rehoming(volume.id);
                    return Ok(self.recount_reserve(&catalog, parent.and_then(|p| p.charged)));
                };
                if !core.planted("cursor_not_published") {
                    state.set_merge_cursor(Some(MergeCursor { cursor: next, lower }));
                }
            }
            None => {
                let Some(mut heir) = catalog.trees.get(&child).cloned() else { return Ok(Stepped::TreeDone) };
                if step_merge(core, &mut catalog, &dying, &heir.tree, lower, &lost)?.is_none() {
                    let gone = self.finish_merge(&mut catalog, &mut heir, id);
                    heir.parent = gone.parent;
                    let charged = gone.parent.and_then(|p| catalog.trees.get(&p)).and_then(|p| p.charged);
                    catalog.insert_tree(heir);
                    return Ok(self.recount_reserve(&catalog, charged));
                }
            }
        }
        Ok(Stepped::More)
    }

    /// The dying point is merged: its counters become the child's.
    fn finish_merge(&self, catalog: &mut Catalog, child: &mut TreeMeta, id: TreeId) -> TreeMeta {
        let gone = catalog.remove_tree(id).expect("the caller looked at it");
        let lower = catalog.epoch_of(gone.parent);
        catalog.children.remove(&id);
        catalog.remove_child(gone.parent, id);
        catalog.add_child(gone.parent, child.id);
        child.own += gone.own - gone.progress as i64;
        child.dead.retain(|(birth, _)| *birth <= lower);
        gone.dead.iter().for_each(|(birth, blocks)| dead_blocks::add(&mut child.dead, *birth, *blocks));
        self.core.points.fold(&mut child.dead);
        gone
    }

    /// Recomputes the charge of a snapshot that took over blocks of another one.
    pub(super) fn recount_reserve(&self, catalog: &Catalog, charged: Option<VolumeId>) -> Stepped {
        let Some(charged) = charged else { return Stepped::TreeDone };
        let Some(Reserve { segment, blocks, .. }) = self.core.space.lock().reserve(charged) else {
            return Stepped::TreeDone;
        };
        let used = SnapshotUsage(catalog).held(charged);
        self.core.space.lock().set_reserve(charged, Some(Reserve { segment, blocks, used }));
        if used > blocks { Stepped::Overdrawn(charged) } else { Stepped::TreeDone }
    }

    /// Waits until background removal has nothing left to do. [`Error::NoSpace`]: it has stopped (D6).
    pub async fn reclaim_idle(self: &Arc<Self>) -> Result<()> {
        let mut has_asked = false;
        loop {
            let turn = self.core.space_event.turn();
            self.core.journal.failed()?;
            if !self.reclaiming() {
                if self.catalog.read().next_removal().is_none() {
                    return Ok(());
                }
                if has_asked && self.removal_stopped.load(Ordering::Acquire) {
                    return Err(self.core.no_space(1));
                }
            }
            if self.core.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            self.request_reclaim();
            has_asked = !self.core.planted("removal_retries_without_room");
            self.core.space_event.changed(turn).await;
        }
    }
}

/// The volume whose head is the only child of this tree.
fn live_child(catalog: &Catalog, id: TreeId) -> Option<Arc<Volume>> {
    let child = catalog.children_of(id).next()?;
    catalog.heads.get(&child).and_then(|volume| catalog.volumes.get(volume)).cloned()
}

/// Frees the blocks of one leaf of a tree without children.
fn step_leaf(
    core: &Core,
    catalog: &mut Catalog,
    dying: &TreeMeta,
    lower: Epoch,
    lost: &BTreeSet<NodeRef>,
) -> std::result::Result<Stepped, MapError> {
    let prune = |node: NodeRef, _: u8, _: u64| Ok(node.birth <= lower || lost.contains(&node));
    let step = map::walk_step(&core.cache, &dying.tree, dying.cursor, &prune)?;
    if let Some(leaf) = &step.leaf {
        let mut space = core.space.lock();
        for e in leaf.extents().filter(|e| e.birth > lower).filter_map(|e| e.cut(dying.cursor, u64::MAX)) {
            space.free_later((e.value, u64::from(e.len)));
        }
    }
    release(core, step.passed.iter());
    let tree = catalog.trees.get_mut(&dying.id).expect("the caller looked at it");
    match step.next {
        Some(next) => {
            tree.cursor = next;
            Ok(Stepped::More)
        }
        None => {
            let parent = tree.parent;
            catalog.remove_tree(dying.id);
            catalog.remove_child(parent, dying.id);
            Ok(Stepped::TreeDone)
        }
    }
}

/// Merges one leaf, or a part of it. Returns the new cursor; `None`: done.
fn step_merge(
    core: &Core,
    catalog: &mut Catalog,
    dying: &TreeMeta,
    child: &Tree,
    lower: Epoch,
    lost: &BTreeSet<NodeRef>,
) -> std::result::Result<Option<u64>, MapError> {
    let is_lost = |node: NodeRef| lost.contains(&node);
    let prune = |node: NodeRef, level: u8, first_key: u64| {
        let is_passed = node.birth <= lower || is_lost(node);
        // Blocks in an unreadable node of the child may be shared: D4.
        let has = || map::unless_lost(map::has_node(&core.cache, child, node, level, first_key), &is_lost);
        Ok(is_passed || has()?.unwrap_or(true))
    };
    let step = map::walk_step(&core.cache, &dying.tree, dying.cursor, &prune)?;
    let mut freed: Vec<Extent> = Vec::new();
    let mut settled = 0;
    let mut stop = None;
    if let Some(leaf) = &step.leaf {
        let own = leaf.extents().filter(|e| e.birth > lower);
        // The cursor may be inside of the leaf.
        let left = own.filter_map(|e| e.cut(dying.cursor, u64::MAX));
        stop = map::compare_places(&core.cache, child, left, &is_lost, |piece, kept| {
            let before = freed.len();
            freed.extend(map::rest(&piece, kept));
            // What does not pass to the child by this merge: the freed blocks, and those that the child maps to the same
            // place and already owns.
            let owned = kept.iter().filter(|piece| piece.birth > dying.epoch);
            settled += freed[before..].iter().chain(owned).map(|piece| u64::from(piece.len)).sum::<u64>();
        })?;
    }
    // From here on nothing can fail: a step is done completely or not at all.
    {
        let mut space = core.space.lock();
        freed.iter().for_each(|e| space.free_later((e.value, u64::from(e.len))));
    }
    // The nodes above a leaf that is not done are needed for the rest of it.
    let is_done = |passed: &&map::Passed| stop.is_none_or(|stop| passed.end_key.is_some_and(|end| end <= stop));
    release(core, step.passed.iter().filter(is_done));
    let next = stop.or(step.next);
    let tree = catalog.trees.get_mut(&dying.id).expect("the caller looked at it");
    tree.progress += settled;
    if let Some(next) = next {
        tree.cursor = next;
    }
    Ok(next)
}

/// Releases nodes that a walk has passed.
fn release<'a>(core: &Core, passed: impl Iterator<Item = &'a map::Passed>) {
    let mut meta = core.meta.lock();
    for passed in passed {
        meta.release(passed.node, core.generation(), &core.cache);
    }
}
