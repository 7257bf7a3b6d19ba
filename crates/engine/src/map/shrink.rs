//! Removes extents from one leaf without a change of any other node's range.

use super::change::{in_place, owned};
use super::{MapError, NodeCache, NodeOwner, NodeRef, Place, Tree, fetch};
use crate::format::node::{CAPACITY, Entry, Extent, Node};

/// Gives the leaf that covers `at` these extents in the place of its own: in order, within its range, at least one.
/// Unlike [`replace`](super::replace) this never splits, joins or drops a node: only the leaf and the path above it change, and
/// every other node keeps its range. On an error nothing has changed (I8).
///
/// # Panics
/// If `extents` is empty or too much for a leaf: the caller's mistake.
pub fn shrink_leaf<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    tree: &mut Tree,
    owner: &mut O,
    at: u64,
    extents: &[Extent],
) -> Result<(), MapError> {
    assert!((1..=CAPACITY).contains(&extents.len()), "a leaf of {} extents", extents.len());
    let Some(root) = tree.root else { return Ok(()) };
    let mut place = Place::root(root);
    let mut above = Vec::with_capacity(usize::from(tree.level));
    for level in (1..=tree.level).rev() {
        let node = fetch(cache, place.node, level)?;
        let child = node.child_at(at);
        let below = place.child(&node, child);
        above.push((place, node, child));
        place = below;
    }
    let leaf = fetch(cache, place.node, 0)?;
    let copied = std::iter::once(&place).chain(above.iter().rev().map(|(place, ..)| place));
    let copies = copied.take_while(|place| !in_place(owner, place)).count();
    if copies > 0 && !owner.can_alloc(copies) {
        return Err(MapError::NoSpace);
    }
    // From here on nothing fails.
    let entries: Vec<Entry> = extents.iter().map(Entry::leaf).collect();
    let mut renamed = put(cache, owner, &place, &leaf, &entries);
    for (place, node, child) in above.iter().rev() {
        let Some(name) = renamed else { return Ok(()) };
        let mut entries = node.entries().to_vec();
        entries[*child] = Entry::interior(entries[*child].key(), name);
        renamed = put(cache, owner, place, node, &entries);
    }
    if renamed.is_some() {
        tree.root = renamed;
    }
    Ok(())
}

/// Stores a node in place if that is permitted, otherwise under a new name, which is returned (I6, I7).
fn put<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    owner: &mut O,
    place: &Place,
    old: &Node,
    entries: &[Entry],
) -> Option<NodeRef> {
    if in_place(owner, place) {
        cache.insert_dirty(Node::new(place.node, old.level(), entries));
        return None;
    }
    let name = NodeRef { addr: owner.alloc(), generation: owner.generation(), birth: owner.birth() };
    cache.insert_dirty(Node::new(name, old.level(), entries));
    if owned(owner, old) {
        owner.release(place.node);
    }
    Some(name)
}
