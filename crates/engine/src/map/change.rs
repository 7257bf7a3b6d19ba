//! Code for both ways to change a tree: in place ([`replace`](super::replace)) and with new nodes
//! ([`rebuild`](super::rebuild)).

use super::{NodeOwner, Place};
use crate::format::node::{Extent, Node};
use crate::planted;
use smallvec::SmallVec;

/// The arguments of [`replace`].
pub(super) struct Change<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) new: &'a [Extent],
}

/// I6.
pub(super) fn in_place<O: NodeOwner + ?Sized>(owner: &O, place: &Place) -> bool {
    place.node.generation == owner.generation() && planted::is("shared_in_place")
        || place.node.generation == owner.generation() && owner.owned(place.node.birth, place.last_key())
}

/// I7.
pub(super) fn owned<O: NodeOwner + ?Sized>(owner: &O, node: &Node) -> bool {
    owner.owned(node.this().birth, node.entries()[0].key())
}

/// Appends an extent, as a part of the last one if it continues that (I1).
pub(super) fn push_joined<A: smallvec::Array<Item = Extent>>(list: &mut SmallVec<A>, e: Extent) {
    let last = list.last_mut().filter(|_| !planted::is("neighbours_apart"));
    match last.and_then(|last| last.joined(&e).map(|both| (last, both))) {
        Some((last, both)) => *last = both,
        None => list.push(e),
    }
}
