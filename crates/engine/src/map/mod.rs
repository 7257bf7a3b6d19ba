//! Maps: persistent (path-copying) B+trees of extents.
//!
//! One kind of tree is used for the maps of volumes (key: block of the volume, value: block of the group) and for the
//! free-space tree (key = value: block of the group). This module owns the shape of the trees. It does no I/O and makes
//! no decisions about space. Of snapshots it knows only which nodes may be changed, from its [`NodeOwner`]. A tree is a
//! plain value ([`Tree`]): a copy of it *is* a snapshot, provided that the owner no longer calls the shared nodes its
//! own.
//!
//! # Invariants
//!
//! - I1. The extents of a tree never overlap. Two neighbours in one leaf are one extent if they can be.
//! - I2. Each node covers a range of keys; the root covers all keys. The children of an interior node divide its range:
//!   child `i` covers the keys from its first key to the next child's first key, and the last child up to the end of
//!   the parent's range. For the first child see I3.
//! - I3. The first key of an interior node's first child is not below the lower bound of the node's own range. Keys
//!   between the two belong to that child, too. If the first child is removed, its range goes to the next child.
//! - I4. Every extent of a leaf lies within the leaf's range.
//! - I5. No node is empty; an empty tree has no root. All leaves are at level 0 and all paths are equally long. A
//!   root that is not a leaf has two children at least.
//! - I6. A node is changed in place if and only if its generation is the owner's *and* the owner calls it its own for
//!   all keys of its range. Any other change makes a new node, with the owner's birth and generation. The path above
//!   follows.
//! - I7. A node that a tree does not use any more is released exactly once. It is released if and only if the owner
//!   calls it its own for the key of its first entry. The lower bound of its range is no substitute: if a neighbour was
//!   removed, the range has grown in this tree, but not in another tree that has the node, too.
//! - I8. A function that returns [`MapError`] has changed nothing: neither tree nor cache nor owner nor output.
//! - I9. No step needs more nodes in memory at once than a few paths. One extent of a tree can have the keys of any number
//!   of another tree's leaves, so extents are compared with a few of these leaves at a time.
//!
//! # Who may call what at once
//!
//! All threads share the cache. A tree has one writer at a time, and no reader of the *same* tree value at that time:
//! the owner's lock ensures this. Trees that share nodes need no common lock, because shared nodes never change (I6).

mod cache;
mod change;
mod fan_out;
mod rebuild;
mod replace;
mod shared;
mod shrink;
mod walk;

pub use crate::format::node::{Extent, Node, NodeRef};
pub use crate::model::Tree;
pub use cache::{NODE_COST, NodeCache};
#[cfg(any(test, feature = "planted"))]
pub use fan_out::set_fan_out;
pub use replace::replace;
pub use shared::{compare_places, has_node, rest, same_places, unless_lost};
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

/// Why a tree function failed without any change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// This node (of this level) is not in the cache: insert it and call again.
    Missing(NodeRef, u8),
    /// The owner has too few metadata blocks for what the call may need.
    NoSpace,
    /// The call has done as much work as one holding of a lock permits: release the lock and call again.
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

/// The writer's context: it allocates and releases nodes, and knows which are its own.
pub trait NodeOwner {
    /// Called once, before any change: are there `nodes` metadata blocks, the most that this call may need?
    fn can_alloc(&self, nodes: usize) -> bool;
    /// A block for a new node. It cannot fail after [`NodeOwner::can_alloc`] returned true. The owner has forgotten any
    /// old node at this address before.
    fn alloc(&mut self) -> MetaBlock;
    /// An owned node that this tree does not use any more. A node of the current generation is no longer in the cache.
    /// An older one stays there for a running checkpoint, until the owner calls [`NodeCache::forget`].
    fn release(&mut self, node: NodeRef);
    /// Is a node of that birth this tree's own at `key`? If not, it is shared with a snapshot. A node that is its own
    /// at a key is so at all smaller keys, because a tree takes nodes over in the order of keys. The answer must not
    /// change during a call.
    fn owned(&self, birth: Epoch, key: u64) -> bool;
    /// The birth of new nodes.
    fn birth(&self) -> Epoch;
    /// The checkpoint generation of new nodes.
    fn generation(&self) -> u64;
}

/// Appends to `out` what the tree has in `[start, end)`: extents cut to that range, in order. Holes are not
/// reported. On an error `out` is as it was (I8).
///
/// Every read and write uses this function: it allocates no memory while `out` has room, and descends once per leaf.
pub fn lookup(cache: &NodeCache, tree: &Tree, start: u64, end: u64, out: &mut Extents) -> Result<(), MapError> {
    let before = out.len();
    let mut at = start;
    while at < end {
        let before = if planted::is("partial_result_kept") { out.len() } else { before };
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
    /// The extent, without its part before `from`.
    Found(Extent),
    /// Nothing from `from` to the end.
    None,
    /// Nothing in the examined leaves: continue from this key.
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

/// Calls a function with the extents of the leaf that covers `key`, from those that end after `key` on. Returns its
/// result, and the key where the next leaf begins, if there is one. `None`: the tree is empty.
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

/// Reads a node under the cache's lock.
#[inline]
fn peek<R>(cache: &NodeCache, name: NodeRef, level: u8, look: impl FnOnce(&Node) -> R) -> Result<R, MapError> {
    let seen = cache.with(name, |node| (node.level() == level).then(|| look(node)));
    seen.ok_or(MapError::Missing(name, level))?.ok_or_else(|| wrong_level(name, level))
}

/// Gets a reference to a node.
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
