//! The node cache: every tree node in memory is here, bounded in bytes.
//!
//! It owns which nodes are in memory and which of them are *dirty* (changed since they were last written). It
//! does no I/O: a node that is not here is reported by the tree functions as missing, and their caller reads it
//! and hands it over. Promises:
//!
//! - NC1. A dirty node stays until it is marked clean or forgotten; clean nodes go, the least recently used about
//!   first (CLOCK), when the cache is over its bound. However many are dirty, an eighth of the bound is left to
//!   clean nodes, or operations that need several at once would never find them all: by so much the bound can be
//!   exceeded, and by what is dirty beyond it.
//! - NC2. A node is found only under the exact name (address, generation, birth) that its parent has for it, so a
//!   stale copy of a block that was since freed and used again is never taken for the new one, nor replaces it.
//! - NC3. A node that somebody holds (`Arc`) never changes under them.
//! - NC4. No lock is held across more than one shard, nor while the caller's code waits for anything.

use crate::fixed_hash::Map;
use crate::format::node::{Node, NodeRef};
use crate::planted;
use crate::units::MetaBlock;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Memory that one cached node costs: the node, its reference counts, its slot and its index entry (both of
/// them in tables that grow by doubling).
pub const NODE_COST: u64 = (size_of::<Node>() + 16 + 2 * size_of::<Slot>() + 40) as u64;

/// The least bound that a cache works with: an operation needs the nodes of a few paths at once.
const MIN_BOUND: u64 = 256 * NODE_COST;
const SHARDS: usize = 64;
/// Slots that one sweep looks at before it lets other users of the shard go first.
const SWEEP: usize = 32;

/// All nodes in memory. Every method is safe to call from any thread.
pub struct NodeCache {
    shards: Box<[Shard]>,
    bound: u64,
    nodes: AtomicU64,
    dirty: AtomicU64,
    /// The shard whose turn it is to give up a node.
    turn: AtomicUsize,
}

// A shard has cache lines of its own, so that two threads in two shards do not slow each other.
#[repr(align(128))]
#[derive(Default)]
struct Shard(RwLock<Slots>);

/// A shard's nodes. The dirty ones lie apart, so that eviction never looks at them and a checkpoint only at them.
#[derive(Default)]
struct Slots {
    /// Address -> position; [`DIRTY`] tells in which list.
    index: Map<u64, u32>,
    clean: Vec<Slot>,
    dirty: Vec<Slot>,
    /// CLOCK's hand, over `clean`.
    hand: usize,
}

const DIRTY: u32 = 1 << 31;

struct Slot {
    node: Arc<Node>,
    /// Used since the hand last came by.
    used: AtomicBool,
}

impl NodeCache {
    /// A cache that keeps to `bound` bytes (or to a mebibyte, which is the least it works with).
    pub fn new(bound: u64) -> NodeCache {
        NodeCache {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            bound: bound.max(MIN_BOUND),
            nodes: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    /// The node of that name, if it is in memory.
    pub fn get(&self, name: NodeRef) -> Option<Arc<Node>> {
        self.find(name, Arc::clone)
    }

    /// Looks at the node of that name without taking hold of it. `look` runs under the shard's lock: it must be
    /// short and must not touch the cache.
    #[inline]
    pub(super) fn with<R>(&self, name: NodeRef, look: impl FnOnce(&Node) -> R) -> Option<R> {
        self.find(name, |node| look(node))
    }

    #[inline]
    fn find<R>(&self, name: NodeRef, take: impl FnOnce(&Arc<Node>) -> R) -> Option<R> {
        let slots = self.shard(name.addr).0.read();
        let slot = slots.get(name.addr)?;
        if slot.node.this() != name && !planted::is("found_by_address") {
            return None; // NC2
        }
        if !slot.used.load(Relaxed) {
            slot.used.store(true, Relaxed); // Only when needed: a store would take the line from other readers.
        }
        Some(take(&slot.node))
    }

    /// Takes in a node as it was read from the disk and returns it. A newer node at its address stays; so does
    /// the same node if somebody else brought it first.
    pub fn insert_clean(&self, node: impl Into<Arc<Node>>) -> Arc<Node> {
        let node = node.into();
        let (name, addr) = (node.this(), node.this().addr);
        {
            let mut slots = self.shard(addr).0.write();
            let known = slots.get(addr).map(|slot| (slot.node.clone(), slots.is_dirty(addr)));
            match known {
                Some((there, _)) if there.this() == name => return there,
                Some((there, dirty)) if dirty || there.this().generation >= name.generation => return node, // NC2
                Some(_) => drop(slots.remove(addr)),
                None => drop(self.nodes.fetch_add(1, Relaxed)),
            }
            slots.push(Slot::new(node.clone()), false);
        }
        self.shrink(addr);
        node
    }

    /// Whether another node lies at this one's address that it cannot replace (NC2).
    pub fn is_displaced(&self, name: NodeRef) -> bool {
        let slots = self.shard(name.addr).0.read();
        let there = slots.get(name.addr).map(|slot| slot.node.this());
        there.is_some_and(|there| there != name && (slots.is_dirty(name.addr) || there.generation >= name.generation))
    }

    /// Takes in a node that a tree has just made; it replaces whatever was at its address.
    pub(super) fn insert_dirty(&self, node: Node) {
        let addr = node.this().addr;
        let slot = Slot::new(Arc::new(node)); // Not under the lock: it allocates.
        let old = {
            let mut slots = self.shard(addr).0.write();
            let old = slots.remove(addr);
            slots.push(slot, true);
            old
        };
        match old {
            None => drop((self.nodes.fetch_add(1, Relaxed), self.dirty.fetch_add(1, Relaxed))),
            Some((_, false)) => drop(self.dirty.fetch_add(1, Relaxed)),
            Some((_, true)) => {}
        }
        self.shrink(addr);
    }

    /// Changes the node of that name in place, unless it is not in memory. `change` says whether it changed it.
    pub(super) fn edit(&self, name: NodeRef, change: impl FnOnce(&mut Node) -> bool) -> Option<bool> {
        let mut slots = self.shard(name.addr).0.write();
        let slot = slots.get_mut(name.addr).filter(|slot| slot.node.this() == name)?;
        let changed = change(Arc::make_mut(&mut slot.node)); // NC3
        if changed && !planted::is("changed_stays_clean") && slots.relist(name.addr, true) {
            self.dirty.fetch_add(1, Relaxed);
        }
        Some(changed)
    }

    /// The node that was written to the disk is clean from now on, unless its place holds another by now. It must
    /// not have changed since it was written: write nodes of generations that are closed.
    pub fn mark_clean(&self, addr: MetaBlock, generation: u64) {
        {
            let mut slots = self.shard(addr).0.write();
            let same = slots.get(addr).is_some_and(|slot| slot.node.this().generation == generation);
            if !same || !slots.relist(addr, false) {
                return;
            }
            self.dirty.fetch_sub(1, Relaxed);
        }
        self.shrink(addr);
    }

    /// Drops the node at a freed address, clean or dirty.
    pub fn forget(&self, addr: MetaBlock) {
        let mut slots = self.shard(addr).0.write();
        let Some((_node, dirty)) = slots.remove(addr) else { return };
        drop(slots); // The memory is freed after the lock.
        self.nodes.fetch_sub(1, Relaxed);
        self.dirty.fetch_sub(u64::from(dirty), Relaxed);
    }

    /// All dirty nodes of generations up to `last`, by address.
    pub fn dirty_nodes(&self, last: u64) -> Vec<Arc<Node>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let slots = shard.0.read();
            let due = slots.dirty.iter().filter(|slot| slot.node.this().generation <= last);
            found.extend(due.map(|slot| slot.node.clone()));
        }
        found.sort_unstable_by_key(|node| node.this().addr);
        found
    }

    /// Memory that all nodes here cost.
    pub fn bytes(&self) -> u64 {
        self.nodes.load(Relaxed) * NODE_COST
    }

    /// Memory that the dirty nodes cost. Over the owner's bound a checkpoint is due.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.load(Relaxed) * NODE_COST
    }

    /// Nodes in memory.
    pub fn len(&self) -> usize {
        self.nodes.load(Relaxed) as usize
    }

    /// True when no node is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the clean nodes for which `keep` says no, whatever the bound.
    pub fn drop_clean(&self, mut keep: impl FnMut(NodeRef) -> bool) {
        for shard in &self.shards {
            let mut slots = shard.0.write();
            let clean = slots.clean.iter().map(|slot| slot.node.this());
            let gone: Vec<_> = clean.filter(|&name| !keep(name)).collect();
            for name in &gone {
                slots.remove(name.addr);
            }
            self.nodes.fetch_sub(gone.len() as u64, Relaxed);
        }
    }

    #[inline]
    fn shard(&self, addr: MetaBlock) -> &Shard {
        // Metadata addresses are dense: neighbours go to different shards, and so do whole strides.
        &self.shards[(addr.0 ^ addr.0 >> 6 ^ addr.0 >> 12) as usize % SHARDS]
    }

    /// Evicts clean nodes until the bound holds (NC1). The shards take turns; `newest` stays, so that a caller
    /// that brings a node finds it when it tries again.
    fn shrink(&self, newest: MetaBlock) {
        let mut fruitless = 0;
        while self.bytes() > self.bound {
            // Each shard is asked often enough for its hand to pass every node twice.
            let clean = self.nodes.load(Relaxed).saturating_sub(self.dirty.load(Relaxed)) as usize;
            if clean as u64 <= self.bound / NODE_COST / 8 || fruitless > 4 * SHARDS + 4 * clean / SWEEP {
                return;
            }
            let turn = self.turn.fetch_add(1, Relaxed) % SHARDS;
            let victim = self.shards[turn].0.write().evict(newest);
            match victim {
                Some(_) => {
                    self.nodes.fetch_sub(1, Relaxed);
                    fruitless = 0;
                }
                None => fruitless += 1,
            }
        }
    }
}

impl Slot {
    fn new(node: Arc<Node>) -> Slot {
        Slot { node, used: AtomicBool::new(true) }
    }
}

impl Slots {
    #[inline]
    fn get(&self, addr: MetaBlock) -> Option<&Slot> {
        let at = *self.index.get(&addr.0)?;
        let list = if at & DIRTY == 0 { &self.clean } else { &self.dirty };
        Some(&list[(at & !DIRTY) as usize])
    }

    fn get_mut(&mut self, addr: MetaBlock) -> Option<&mut Slot> {
        let at = *self.index.get(&addr.0)?;
        Some(&mut self.list(at & DIRTY != 0)[(at & !DIRTY) as usize])
    }

    fn list(&mut self, dirty: bool) -> &mut Vec<Slot> {
        if dirty { &mut self.dirty } else { &mut self.clean }
    }

    fn is_dirty(&self, addr: MetaBlock) -> bool {
        self.index.get(&addr.0).is_some_and(|at| at & DIRTY != 0)
    }

    fn push(&mut self, slot: Slot, dirty: bool) {
        let addr = slot.node.this().addr.0;
        let list = self.list(dirty);
        let at = u32::try_from(list.len()).ok().filter(|at| at & DIRTY == 0);
        list.push(slot);
        let at = at.expect("2^31 nodes do not fit in memory");
        self.index.insert(addr, if dirty { at | DIRTY } else { at });
    }

    /// Takes out the node at `addr`; says whether it was dirty.
    fn remove(&mut self, addr: MetaBlock) -> Option<(Slot, bool)> {
        let at = self.index.remove(&addr.0)?;
        let (i, dirty) = ((at & !DIRTY) as usize, at & DIRTY != 0);
        let list = self.list(dirty);
        let gone = list.swap_remove(i);
        if let Some(moved) = list.get(i).map(|slot| slot.node.this().addr.0) {
            self.index.insert(moved, at);
        }
        Some((gone, dirty))
    }

    /// Moves the node at `addr` to the dirty or the clean list; false if it was there already.
    fn relist(&mut self, addr: MetaBlock, dirty: bool) -> bool {
        match self.index.get(&addr.0) {
            Some(at) if (at & DIRTY != 0) != dirty => {}
            _ => return false,
        }
        if let Some((slot, _)) = self.remove(addr) {
            self.push(slot, dirty);
        }
        true
    }

    /// Moves the hand over a few slots and removes the first clean node that was not used since the last time.
    fn evict(&mut self, newest: MetaBlock) -> Option<Slot> {
        for _ in 0..SWEEP.min(self.clean.len()) {
            self.hand = if self.hand < self.clean.len() { self.hand } else { 0 };
            let slot = &mut self.clean[self.hand];
            let addr = slot.node.this().addr;
            if addr != newest && !std::mem::take(slot.used.get_mut()) {
                return self.remove(addr).map(|(slot, _)| slot);
            }
            self.hand += 1;
        }
        None
    }
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod tests;
