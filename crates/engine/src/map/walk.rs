//! In-order walks over a tree in bounded steps, restartable by key.
//!
//! A walk visits the nodes that its caller does not prune, typically those born after some epoch. It never loads pruned
//! nodes, so its cost is proportional to what it finds.

use super::{MapError, NodeCache, Place, Tree, descend, fetch};
use crate::format::node::{Node, NodeRef};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pruned children that one step skips at most.
const SKIPS: usize = 512;

/// A node that the walk has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub node: NodeRef,
    pub level: u8,
    /// The node covers the keys from here...
    pub first_key: u64,
    /// ... to before here; `None`: to the last key.
    pub end_key: Option<u64>,
}

/// One step of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The leaf of this step, complete: it also has extents before the cursor.
    pub leaf: Option<Arc<Node>>,
    /// The keys that the leaf covers (nothing, when there is no leaf).
    pub leaf_range: (u64, Option<u64>),
    /// The nodes that were not pruned and whose range ends after the cursor and not after `next`, children before
    /// their parents. Over a whole walk from key 0 of an unchanged tree each such node is here exactly once.
    pub passed: Vec<Passed>,
    /// Where the next step begins; `None`: the walk is done.
    pub next: Option<u64>,
}

/// Decides by node, level and first key whether a walk skips a node with everything below it.
pub type Prune<'a> = dyn Fn(NodeRef, u8, u64) -> Result<bool, MapError> + 'a;

/// Continues a walk at `cursor`, to the end of the next leaf that is not pruned. One step holds one path in memory and
/// skips at most a few hundred pruned children. It may end without a leaf and still have a `next`.
pub fn walk_step(cache: &NodeCache, tree: &Tree, cursor: u64, prune: &Prune<'_>) -> Result<Step, MapError> {
    let mut step = Step::default();
    let Some(root) = tree.root else { return Ok(step) };
    if prune(root, tree.level, 0)? {
        return Ok(step);
    }
    let (mut at, mut skips) = (cursor, SKIPS);
    while step.leaf.is_none() && skips > 0 {
        let mut path: SmallVec<[Place; 8]> = SmallVec::from_slice(&[Place::root(root)]);
        let mut level = tree.level;
        let stop = loop {
            let place = path[path.len() - 1];
            let node = fetch(cache, place.node, level)?;
            if level == 0 {
                step.leaf = Some(node);
                step.leaf_range = (place.first, place.end);
                break place.end;
            }
            level -= 1;
            match next_child(&node, &place, at, &mut skips, |child, first| prune(child, level, first))? {
                Next::Child(child) => path.push(child),
                Next::Exhausted => break place.end,
                Next::Tired(key) => {
                    step.next = Some(key);
                    return Ok(step);
                }
            }
        };
        // A path has a node for each level from the root's down.
        let lowest = (usize::from(tree.level) + 1 - path.len()) as u8;
        let ended = path.iter().rev().zip(lowest..).take_while(|(place, _)| place.end == stop);
        step.passed.extend(ended.map(|(p, level)| Passed { node: p.node, level, first_key: p.first, end_key: p.end }));
        step.next = stop;
        match stop {
            Some(key) => at = key,
            None => break,
        }
    }
    Ok(step)
}

enum Next {
    Child(Place),
    /// All children from the cursor on are pruned.
    Exhausted,
    /// The step has reached its limit of skips: continue from this key.
    Tired(u64),
}

fn next_child(
    node: &Node,
    place: &Place,
    at: u64,
    skips: &mut usize,
    prune: impl Fn(NodeRef, u64) -> Result<bool, MapError>,
) -> Result<Next, MapError> {
    for i in node.child_at(at)..node.entries().len() {
        let child = place.child(node, i);
        if !prune(child.node, child.first)? {
            return Ok(Next::Child(child));
        }
        *skips = skips.saturating_sub(1);
        if *skips == 0 && i + 1 < node.entries().len() {
            return Ok(Next::Tired(node.entries()[i + 1].key()));
        }
    }
    Ok(Next::Exhausted)
}

/// The largest number of parents that one read-ahead examines.
const PARENTS_AHEAD: usize = 8;

/// Adds the next nodes of `level` on a walk from `key` that are not in memory, until there are `most`. It uses only
/// nodes in memory, and ends at the first parent that is not.
pub fn unread_ahead(
    cache: &NodeCache,
    tree: &Tree,
    level: u8,
    key: u64,
    prune: &Prune<'_>,
    most: usize,
    unread: &mut BTreeSet<(NodeRef, u8)>,
) {
    let mut at = key;
    for _ in 0..PARENTS_AHEAD {
        let Ok(Some(parent)) = descend(cache, tree, level + 1, at) else { return };
        let Ok(node) = fetch(cache, parent.node, level + 1) else { return };
        for i in node.child_at(at)..node.entries().len() {
            if unread.len() >= most {
                return;
            }
            let child = parent.child(&node, i);
            if matches!(prune(child.node, level, child.first), Ok(false)) && cache.get(child.node).is_none() {
                unread.insert((child.node, level));
            }
        }
        match parent.end {
            Some(end) => at = end,
            None => return,
        }
    }
}
