//! The only way to change a tree: it replaces the extents in a range of keys.
//!
//! Most changes affect one leaf that the writer has already changed since the last checkpoint. They are made in place
//! under one short lock ([`edit_leaf`]). [`rebuild`](super::rebuild) makes all others.

use super::change::{Change, in_place, push_joined};
use super::fan_out::{fan_out, sparse};
use super::{MapError, NodeCache, NodeOwner, Place, Tree, descend, rebuild};
use crate::format::node::{Entry, Extent, Node};
use crate::planted;
use smallvec::SmallVec;

/// Unmaps `[start, end)` and puts `new` there: extents in order within the range, possibly none. What was in the
/// range is appended to `removed`, cut to it and in order; parts of extents outside of the range stay. New and old
/// neighbours are joined where they can be one extent, within the leaves that change anyway.
///
/// All leaves of the range are held in memory at once, so long ranges come in pieces. On an error nothing has
/// changed (I8). A call that changes nothing (unmapping a hole) copies nothing.
///
/// # Panics
/// If `new` is not sorted, not within the range or cannot be stored: the caller's mistake.
pub fn replace<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    tree: &mut Tree,
    owner: &mut O,
    start: u64,
    end: u64,
    new: &[Extent],
    removed: &mut Vec<Extent>,
) -> Result<(), MapError> {
    check_request(start, end, new);
    if start >= end {
        return Ok(());
    }
    if let Some(leaf) = descend(cache, tree, 0, start)? {
        let inside = leaf.end.is_none_or(|leaf_end| end <= leaf_end + u64::from(planted::is("end_of_leaf_off")));
        let change = Change { start, end, new };
        if inside && in_place(owner, &leaf) && edit_leaf(cache, tree, &leaf, &change, removed)? {
            return Ok(());
        }
    }
    rebuild::replace(cache, tree, owner, &Change { start, end, new }, removed)
}

fn check_request(start: u64, end: u64, new: &[Extent]) {
    let mut free_from = start;
    for e in new {
        assert!(e.is_storable(), "an extent that cannot be stored: {e:?}");
        assert!(e.key >= free_from && e.end() <= end, "{e:?} is out of order or outside of [{start}, {end})");
        free_from = e.end();
    }
}

/// Makes a change within one leaf that may be changed in place. False, and nothing is done, if the leaf would
/// have to be split, joined or dropped.
fn edit_leaf(
    cache: &NodeCache,
    tree: &Tree,
    leaf: &Place,
    change: &Change<'_>,
    removed: &mut Vec<Extent>,
) -> Result<bool, MapError> {
    if change.new.len() > fan_out() {
        return Ok(false);
    }
    let mut done = false;
    let edit = |node: &mut Node| {
        if !node.is_leaf() {
            return false; // The slow path says what is wrong.
        }
        let (from, to) = affected(node, change);
        if from == to && change.new.is_empty() {
            done = true;
            return false;
        }
        let old = node.entries();
        // Neighbours that touch the range are included, because they may be joined with the new extents.
        let low = if from > 0 && old[from - 1].extent().end() == change.start { from - 1 } else { from };
        let high = if to < old.len() && old[to].key() == change.end { to + 1 } else { to };
        let entries = replacement(&old[low..high], change);
        let (count, before) = (old.len() - (high - low) + entries.len(), old.len());
        let is_sparse = count == 0 || (count < sparse() && count < before && tree.level > 0);
        if count > fan_out() || is_sparse {
            return false;
        }
        removed.extend(old[from..to].iter().filter_map(|e| e.extent().cut(change.start, change.end)));
        node.splice(low..high, &entries);
        done = true;
        true
    };
    cache.edit(leaf.node, edit).ok_or(MapError::Missing(leaf.node, 0))?;
    Ok(done)
}

/// Positions of the extents that overlap the change.
fn affected(leaf: &Node, change: &Change<'_>) -> (usize, usize) {
    let from = leaf.first_ending_after(change.start);
    let overlap = leaf.entries()[from..].iter().take_while(|e| e.key() < change.end);
    (from, from + overlap.count())
}

/// The extents that replace `old`, which are all extents that overlap or touch the change.
fn replacement(old: &[Entry], change: &Change<'_>) -> SmallVec<[Entry; 8]> {
    let mut list: SmallVec<[Extent; 8]> = SmallVec::new();
    let before = old.iter().map_while(|e| e.extent().cut(0, change.start));
    before.for_each(|e| push_joined(&mut list, e));
    change.new.iter().for_each(|&e| push_joined(&mut list, e));
    let after = old.last().and_then(|e| e.extent().cut(change.end, u64::MAX));
    after.into_iter().for_each(|e| push_joined(&mut list, e));
    list.iter().map(Entry::leaf).collect()
}
