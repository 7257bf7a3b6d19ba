//! The common parts of two trees: nodes that did not change since one tree was copied from the other, and mappings of
//! the same keys to the same places.

use super::{Extents, MapError, NodeCache, Tree, lookup, node_at};
use crate::format::node::{Extent, NodeRef};

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

/// An extent without these parts of it, which are in order.
pub fn rest<'a>(extent: &'a Extent, parts: &'a [Extent]) -> impl Iterator<Item = Extent> + 'a {
    let starts = std::iter::once(extent.key).chain(parts.iter().map(Extent::end));
    let ends = parts.iter().map(|part| part.key).chain(std::iter::once(extent.end()));
    starts.zip(ends).filter_map(|(start, end)| extent.cut(start, end))
}
