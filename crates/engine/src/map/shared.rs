//! The common parts of two trees: nodes that did not change since one tree was copied from the other, and mappings of
//! the same keys to the same places.

use super::{Extents, MapError, NodeCache, Place, Tree, descend, lookup, node_at};
use crate::format::node::{Extent, NodeRef};
use crate::planted;

/// Whether the tree has this node at that level for `key`. If so, everything below is shared, too.
pub fn has_node(cache: &NodeCache, tree: &Tree, node: NodeRef, level: u8, key: u64) -> Result<bool, MapError> {
    Ok(node_at(cache, tree, level, key)? == Some(node))
}

/// The parts of another tree's extent that this tree maps to the same places, as this tree's extents, in order.
pub fn same_places(cache: &NodeCache, tree: &Tree, extent: &Extent) -> Result<Extents, MapError> {
    let mut found = Extents::new();
    lookup(cache, tree, extent.key, extent.end(), &mut found)?;
    found.retain(|piece| piece.value.wrapping_sub(piece.key) == extent.value.wrapping_sub(extent.key));
    Ok(found)
}

/// The most leaves of the other tree that one step compares extents with (I9).
const LEAVES_OF_A_STEP: usize = 16;

/// Compares extents with what the tree has for their keys, leaf by leaf of the tree. Calls `seen` with each piece that
/// one leaf covers, and with the parts of it that the tree maps to the same places. Parts below a node for which
/// `is_lost` is true count as the same. Returns where the next step begins, after a limited number of leaves; `None`:
/// all extents were compared (I9).
///
/// After an error, what `seen` got is void: the call is repeated from the beginning.
pub fn compare_places(
    cache: &NodeCache,
    tree: &Tree,
    extents: impl Iterator<Item = Extent>,
    is_lost: &dyn Fn(NodeRef) -> bool,
    mut seen: impl FnMut(Extent, &[Extent]),
) -> Result<Option<u64>, MapError> {
    // The leaf that covers the key, until the keys have passed it.
    let (mut leaves, mut leaf) = (0, None::<Place>);
    for extent in extents {
        let mut at = extent.key;
        while let Some(rest) = extent.cut(at, u64::MAX) {
            if leaf.is_none_or(|leaf| leaf.end.is_some_and(|end| end <= at)) {
                leaf = unless_lost(descend(cache, tree, 0, at), is_lost)?.flatten();
                if leaf.is_some() {
                    if leaves >= LEAVES_OF_A_STEP && !planted::is("compared_at_once") {
                        return Ok(Some(at));
                    }
                    leaves += 1;
                }
            }
            let end = leaf.and_then(|leaf| leaf.end).map_or(rest.end(), |end| end.min(rest.end()));
            let Some(piece) = rest.cut(at, end) else { break };
            match unless_lost(same_places(cache, tree, &piece), is_lost)? {
                Some(same) => seen(piece, &same),
                None => seen(piece, &[piece]),
            }
            at = end;
        }
    }
    Ok(None)
}

/// `None`: it needs a lost node.
pub fn unless_lost<T>(outcome: Result<T, MapError>, is_lost: &dyn Fn(NodeRef) -> bool) -> Result<Option<T>, MapError> {
    match outcome {
        Err(MapError::Missing(node, _)) if is_lost(node) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// An extent without these parts of it, which are in order.
pub fn rest<'a>(extent: &'a Extent, parts: &'a [Extent]) -> impl Iterator<Item = Extent> + 'a {
    let starts = std::iter::once(extent.key).chain(parts.iter().map(Extent::end));
    let ends = parts.iter().map(|part| part.key).chain(std::iter::once(extent.end()));
    starts.zip(ends).filter_map(|(start, end)| extent.cut(start, end))
}
