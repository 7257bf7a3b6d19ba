//! Whose blocks and nodes are a tree's own (rule R3), and a tree's writer.

use crate::map::{NodeCache, NodeOwner, NodeRef};
use crate::space::metadata::MetaSpace;
use crate::units::{Epoch, MetaBlock};

/// Whose blocks and nodes are a tree's own (rule R3): what was born after the parent was frozen; and, while the parent
/// is being merged into it, what lies below the merge's cursor and was born after the grandparent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub parent_epoch: Epoch,
    pub merge_cursor: Option<MergeCursor>,
}

/// A parent that is being merged: below `cursor` it is gone, and only blocks born in `lower` or before are still
/// shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeCursor {
    pub cursor: u64,
    pub lower: Epoch,
}

impl Ownership {
    pub fn owns(&self, birth: Epoch, end: Option<u64>) -> bool {
        birth > self.parent_epoch
            || self.merge_cursor.is_some_and(|a| birth > a.lower && end.is_some_and(|end| end <= a.cursor))
    }

    /// Where an extent has to be cut so that each piece has one owner.
    pub fn boundary(&self, start: u64, end: u64) -> Option<u64> {
        self.merge_cursor.map(|a| a.cursor).filter(|cursor| start < *cursor && *cursor < end)
    }
}

/// A head's or point's writer.
pub struct TreeOwner<'a> {
    pub meta: &'a mut MetaSpace,
    pub cache: &'a NodeCache,
    pub generation: u64,
    pub birth: Epoch,
    pub ownership: Ownership,
    /// May use the metadata reserve, because work that frees space must not fail for lack of it.
    pub privileged: bool,
}

impl NodeOwner for TreeOwner<'_> {
    fn can_alloc(&self, nodes: usize) -> bool {
        self.meta.can_alloc(nodes as u64, self.privileged)
    }
    fn alloc(&mut self) -> MetaBlock {
        self.meta.alloc()
    }
    fn release(&mut self, node: NodeRef) {
        self.meta.release(node, self.generation, self.cache);
    }
    fn owned(&self, birth: Epoch, key: u64) -> bool {
        self.ownership.owns(birth, key.checked_add(1))
    }
    fn birth(&self) -> Epoch {
        self.birth
    }
    fn generation(&self) -> u64 {
        self.generation
    }
}
