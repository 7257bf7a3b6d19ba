//! The node cache: it has all tree nodes in memory, and a limit in bytes.
//!
//! It owns the nodes in memory and knows which of them are *dirty* (changed since they were last written). It does no
//! I/O: the tree functions report a node that is not here as missing, and their caller reads it and inserts it.
//! Promises:
//!
//! - NC1. A dirty node stays until it is marked clean or forgotten. If the cache exceeds its limit, clean nodes are
//!   evicted, approximately the least recently used first (CLOCK). Clean nodes always have an eighth of the limit,
//!   however many nodes are dirty, because an operation may need several at once. The limit can be exceeded by this
//!   eighth, and by dirty nodes beyond the limit.
//! - NC2. A node is found only by its exact name (address, generation, birth), which its parent has. So a stale copy of
//!   a block that was freed and used again is never mistaken for the new one, and never replaces it.
//! - NC3. A node to which a caller has a reference (`Arc`) never changes.
//! - NC4. A thread holds the lock of at most one shard, and never while the caller's code waits for anything.

use crate::fixed_hash::Map;
use crate::format::node::{Node, NodeRef};
use crate::planted;
use crate::units::MetaBlock;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Memory of one cached node: the node, its reference counts, its slot and its index entry (both of them in tables that
/// grow by doubling).
pub const NODE_COST: u64 = (size_of::<Node>() + 16 + 2 * size_of::<Slot>() + 40) as u64;

/// The smallest limit that works: an operation needs the nodes of a few paths at once.
const MIN_BOUND: u64 = 256 * NODE_COST;
const SHARDS: usize = 64;
/// Slots that one sweep examines before it releases the shard's lock.
const SWEEP: usize = 32;

/// All nodes in memory. Every method is safe to call from any thread.
pub struct NodeCache {
    shards: Box<[Shard]>,
    bound: u64,
    nodes: AtomicU64,
    dirty: AtomicU64,
    /// The shard that evicts the next node.
    turn: AtomicUsize,
}

// Each shard has its own cache lines, so that two threads in two shards do not slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Shard(RwLock<Slots>);

/// A shard's nodes. Dirty and clean ones are in separate lists: eviction examines only clean nodes, and a checkpoint
/// only dirty ones.
#[derive(Default)]
struct Slots {
    /// Address -> position; [`DIRTY`] marks the list.
    index: Map<u64, u32>,
    clean: Vec<Slot>,
    dirty: Vec<Slot>,
    /// CLOCK's hand, over `clean`.
    hand: usize,
}

const DIRTY: u32 = 1 << 31;

struct Slot {
    node: Arc<Node>,
    /// Used since the hand last passed.
    used: AtomicBool,
}

impl NodeCache {
    /// A cache with a limit of `bound` bytes, or of the smallest limit that works.
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

    /// Reads the node of that name without a reference. `look` runs under the shard's lock: it must be short and must
    /// not use the cache.
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

    /// Inserts a node that was read from the disk, and returns it. A newer node at its address stays, and so does the
    /// same node if another thread inserted it first.
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

    /// Whether the cache has another node at this address that this one cannot replace (NC2).
    pub fn is_displaced(&self, name: NodeRef) -> bool {
        let slots = self.shard(name.addr).0.read();
        let there = slots.get(name.addr).map(|slot| slot.node.this());
        there.is_some_and(|there| there != name && (slots.is_dirty(name.addr) || there.generation >= name.generation))
    }

    /// Inserts a node that a tree has just created. It replaces any node at its address.
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

    /// Changes the node of that name in place, if it is in memory. `change` returns whether it changed the node.
    pub(super) fn edit(&self, name: NodeRef, change: impl FnOnce(&mut Node) -> bool) -> Option<bool> {
        let mut slots = self.shard(name.addr).0.write();
        let slot = slots.get_mut(name.addr).filter(|slot| slot.node.this() == name)?;
        let changed = change(Arc::make_mut(&mut slot.node)); // NC3
        if changed && !planted::is("changed_stays_clean") && slots.move_to_list(name.addr, true) {
            self.dirty.fetch_add(1, Relaxed);
        }
        Some(changed)
    }

    /// Marks a node as clean after it was written to the disk, unless another node has its address by now. The node
    /// must not have changed since it was written, so only nodes of closed generations are written.
    pub fn mark_clean(&self, addr: MetaBlock, generation: u64) {
        {
            let mut slots = self.shard(addr).0.write();
            let same = slots.get(addr).is_some_and(|slot| slot.node.this().generation == generation);
            if !same || !slots.move_to_list(addr, false) {
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

    /// Memory of all nodes in the cache.
    pub fn bytes(&self) -> u64 {
        self.nodes.load(Relaxed) * NODE_COST
    }

    /// Memory of the dirty nodes. Above the owner's limit a checkpoint is due.
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

    /// Drops the clean nodes for which `keep` returns false, whatever the limit is.
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

    /// Evicts clean nodes until the limit holds (NC1). The shards take turns. `newest` stays, so that a caller that
    /// inserted a node finds it when it tries again.
    fn shrink(&self, newest: MetaBlock) {
        let mut fruitless = 0;
        while self.bytes() > self.bound {
            // Each shard has enough turns for its hand to pass every node twice.
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

    /// Removes the node at `addr`. Returns whether it was dirty.
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
    fn move_to_list(&mut self, addr: MetaBlock, dirty: bool) -> bool {
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
