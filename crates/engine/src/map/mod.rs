//! Maps: persistent (path-copying) B+trees of extents.
//!
//! One kind of tree serves the maps of volumes (key: block of the volume, value: block of the group) and the
//! free-space tree (key = value: block of the group). This module owns the shape of the trees; it does no I/O,
//! takes no decision about space, and knows of snapshots only what its [`NodeOwner`] says: which nodes may be
//! changed. A tree is a plain value ([`Tree`]): copying it *is* a snapshot, provided that the owner no longer
//! calls the shared nodes its own.
//!
//! # Invariants
//!
//! - I1. The extents of a tree never overlap, and two neighbours in one leaf that could be one extent are one.
//! - I2. Each node covers a range of keys; the root's is all keys. An interior node's children divide its range:
//!   child `i` covers the keys from its first key to the next child's, the last up to the end of the parent's (the first: I3).
//! - I3. The first key of an interior node's first child is not below the lower bound of the node's own range, and what
//!   lies between the two belongs to that child, too: where a whole first child goes, its range falls to the next.
//! - I4. Every extent of a leaf lies within the leaf's range.
//! - I5. No node is empty; an empty tree has no root. All leaves are at level 0 and all paths are equally long. A
//!   root that is not a leaf has two children at least.
//! - I6. A node is changed in place if and only if its generation is the owner's *and* the owner calls it its
//!   own for all keys of its range. Any other change makes a new node, with the owner's birth and generation, and the path above it follows.
//! - I7. A node that a tree ceases to use is released exactly once, if and only if the owner calls it its own for the key of its
//!   first entry. Its range does not tell: that has grown where a neighbour went, in this tree and not in another that has the node, too.
//! - I8. A function that returns [`MapError`] has changed nothing: neither tree nor cache nor owner nor output.
//!
//! # Who may call what at once
//!
//! The cache is shared by all threads. One tree has one writer at a time, and no reader of the *same* tree value
//! runs beside it: its owner's lock sees to that. Trees that share nodes need no lock between them, for shared
//! nodes never change (I6).

mod cache;
mod change;
mod rebuild;
mod replace;
mod shared;
mod shrink;
mod walk;

pub use crate::format::node::{Extent, Node, NodeRef};
pub use crate::model::Tree;
pub use cache::{NODE_COST, NodeCache};
pub use replace::replace;
pub use shared::{has_node, rest, same_places};
pub use shrink::shrink_leaf;
pub use walk::{Passed, Step, unread_ahead, walk_step};

use crate::error::Error;
use crate::format::node::corrupt;
use crate::planted;
use crate::units::{Epoch, MetaBlock};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// Extents of one request; almost always one.
pub type Extents = SmallVec<[Extent; 4]>;

/// Why a tree function did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// This node (of this level) is not in the cache: bring it there and call again.
    Missing(NodeRef, u8),
    /// The owner has too few metadata blocks for what the call may need.
    NoSpace,
    /// The call has looked at as much as one hold of a lock allows: let others have their turn, and call again.
    Again,
    /// The nodes contradict each other.
    Corrupt(Error),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Missing(node, level) => write!(f, "the tree node at {node}, level {level}, is not in memory"),
            MapError::NoSpace => f.write_str("too few free metadata blocks"),
            MapError::Again => f.write_str("the search is not done"),
            MapError::Corrupt(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for MapError {}

/// The writer's context: where nodes come from, where they go, and which are its own.
pub trait NodeOwner {
    /// Asked once, before any change: are there `nodes` metadata blocks, the most that this call may need?
    fn can_alloc(&self, nodes: usize) -> bool;
    /// A block for a new node. It cannot fail after [`NodeOwner::can_alloc`] said yes. If the cache may still hold
    /// an old node at this address, that has been forgotten before.
    fn alloc(&mut self) -> MetaBlock;
    /// An owned node that this tree uses no more. One of the current generation is out of the cache already; an
    /// older one stays there for a checkpoint under way, until the owner calls [`NodeCache::forget`].
    fn release(&mut self, node: NodeRef);
    /// Is a node of that birth this tree's own at `key`? No: it is shared with a snapshot. One that is its own at a key is so at
    /// all smaller ones: what a tree takes over, it takes over in the order of the keys. The answer must not change during a call.
    fn owned(&self, birth: Epoch, key: u64) -> bool;
    /// The birth of new nodes.
    fn birth(&self) -> Epoch;
    /// The checkpoint generation of new nodes.
    fn generation(&self) -> u64;
}

/// Appends to `out` what the tree has in `[start, end)`: extents cut to that range, in order. Holes are not
/// reported. On an error `out` is as it was (I8).
///
/// This is on the path of every read and write: no allocation while `out` has room, one descent per leaf.
pub fn lookup(cache: &NodeCache, tree: &Tree, start: u64, end: u64, out: &mut Extents) -> Result<(), MapError> {
    let before = out.len();
    let mut at = start;
    while at < end {
        let before = if planted::is("half_found") { out.len() } else { before };
        let Some(leaf) = descend(cache, tree, 0, at).inspect_err(|_| out.truncate(before))? else { break };
        let looked = peek(cache, leaf.node, 0, |node| {
            for e in &node.entries()[node.first_ending_after(at)..] {
                match e.extent().cut(at, end) {
                    Some(piece) => out.push(piece),
                    None => break,
                }
            }
        });
        looked.inspect_err(|_| out.truncate(before))?;
        at = leaf.end.unwrap_or(end);
    }
    Ok(())
}

/// The node of `level` that covers `key`; `None` when the tree has no such level.
pub fn node_at(cache: &NodeCache, tree: &Tree, level: u8, key: u64) -> Result<Option<NodeRef>, MapError> {
    Ok(descend(cache, tree, level, key)?.map(|place| place.node))
}

/// The leaf that covers `key`, and its first extent. `None`: the tree is empty.
pub fn leaf_at(cache: &NodeCache, tree: &Tree, key: u64) -> Result<Option<(NodeRef, Extent)>, MapError> {
    let Some(leaf) = descend(cache, tree, 0, key)? else { return Ok(None) };
    let first = peek(cache, leaf.node, 0, |node| node.extents().next())?;
    Ok(first.map(|first| (leaf.node, first)))
}

/// What [`first_fit`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Room: the extent, without what lies before `from`.
    Found(Extent),
    /// Nothing from `from` to the end.
    None,
    /// Nothing in the leaves looked at: go on from this key.
    Continue(u64),
}

/// The first extent at or after `from` with at least `min_len` blocks, looking at no more than `max_leaves`
/// leaves. An extent that begins before `from` counts with what it has from there on.
pub fn first_fit(cache: &NodeCache, tree: &Tree, from: u64, min_len: u32, max_leaves: usize) -> Result<Fit, MapError> {
    let mut at = from;
    for _ in 0..max_leaves {
        let Some(leaf) = descend(cache, tree, 0, at)? else { return Ok(Fit::None) };
        let found = peek(cache, leaf.node, 0, |node| {
            let rest = &node.entries()[node.first_ending_after(at)..];
            rest.iter().filter_map(|e| e.extent().cut(at, u64::MAX)).find(|e| e.len >= min_len)
        });
        match (found?, leaf.end) {
            (Some(extent), _) => return Ok(Fit::Found(extent)),
            (None, Some(end)) => at = end,
            (None, None) => return Ok(Fit::None),
        }
    }
    Ok(Fit::Continue(at))
}

/// Looks at the extents that end after `key` in the leaf that covers it, whole. Returned with the look's outcome is the key where the next
/// leaf begins, if there is one. `None`: the tree is empty.
pub fn leaf_from<R>(
    cache: &NodeCache,
    tree: &Tree,
    key: u64,
    look: impl FnOnce(&mut dyn Iterator<Item = Extent>) -> R,
) -> Result<Option<(R, Option<u64>)>, MapError> {
    let Some(leaf) = descend(cache, tree, 0, key)? else { return Ok(None) };
    let seen = peek(cache, leaf.node, 0, |node| {
        look(&mut node.entries()[node.first_ending_after(key)..].iter().map(|e| e.extent()))
    })?;
    Ok(Some((seen, leaf.end)))
}

/// A node and the keys that it covers: `[first, end)`, to the last key when there is no `end`.
#[derive(Clone, Copy)]
struct Place {
    node: NodeRef,
    first: u64,
    end: Option<u64>,
}

impl Place {
    fn root(node: NodeRef) -> Place {
        Place { node, first: 0, end: None }
    }

    fn last_key(&self) -> u64 {
        self.end.map_or(u64::MAX, |end| end - 1)
    }

    /// The `i`th child of this place's node.
    fn child(&self, node: &Node, i: usize) -> Place {
        let entries = node.entries();
        Place {
            node: entries[i].child(),
            first: if i == 0 { self.first } else { entries[i].key() },
            end: entries.get(i + 1).map(|e| e.key()).or(self.end.filter(|_| !planted::is("last_child_open"))),
        }
    }
}

/// The place of `level` that covers `key`, read from its parent: the node itself need not be in the cache.
fn descend(cache: &NodeCache, tree: &Tree, level: u8, key: u64) -> Result<Option<Place>, MapError> {
    let Some(root) = tree.root else { return Ok(None) };
    if level > tree.level {
        return Ok(None);
    }
    let mut place = Place::root(root);
    for below in (level..tree.level).rev() {
        place = peek(cache, place.node, below + 1, |node| place.child(node, node.child_at(key)))?;
    }
    Ok(Some(place))
}

/// Looks at a node under the cache's lock, for a moment.
#[inline]
fn peek<R>(cache: &NodeCache, name: NodeRef, level: u8, look: impl FnOnce(&Node) -> R) -> Result<R, MapError> {
    let seen = cache.with(name, |node| (node.level() == level).then(|| look(node)));
    seen.ok_or(MapError::Missing(name, level))?.ok_or_else(|| wrong_level(name, level))
}

/// Takes hold of a node.
fn fetch(cache: &NodeCache, name: NodeRef, level: u8) -> Result<Arc<Node>, MapError> {
    let node = cache.get(name).ok_or(MapError::Missing(name, level))?;
    if node.level() == level { Ok(node) } else { Err(wrong_level(name, level)) }
}

fn wrong_level(name: NodeRef, level: u8) -> MapError {
    MapError::Corrupt(corrupt(name, format!("its parent has it at level {level}, another parent elsewhere")))
}

#[cfg(test)]
#[path = "map_test.rs"]
mod tests;

#[cfg(test)]
#[path = "timing_test.rs"]
mod timing;
