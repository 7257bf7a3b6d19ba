//! The accounting model: which blocks every head and point maps, by identity, and what must follow for each counter.
//!
//! A block has an identity from the write that placed it until nothing maps it any more. A snapshot leaves a point,
//! which becomes the parent of its origin's head and of its own head. A head owns the blocks that its parent point does
//! not map. It keeps the place of blocks that it owns, and places all others elsewhere. A point with one child left is
//! merged into the child. The model uses plain maps, copied at every snapshot: slow, and too simple to be wrong.

use crate::client::BLOCK;
use crate::oracle::Vol;
use std::collections::{BTreeMap, BTreeSet};

/// The expected counters of one volume, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Mapped and written.
    pub referenced: u64,
    /// Held by this volume's head, and by no point or other head.
    pub own: u64,
    /// Freed if the volume is removed, with all merges that follow.
    pub freed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    id: u64,
    written: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    parent: Option<u64>,
    map: BTreeMap<u64, Block>,
    /// A thick head keeps the place of discarded blocks.
    thick: bool,
}

/// All heads and points of a group. Volumes that the model does not know (requests raced, or there was a crash) are
/// left alone.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    nodes: BTreeMap<u64, Node>,
    heads: BTreeMap<Vol, u64>,
    next: u64,
}

impl Accounts {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, node: Node) -> u64 {
        let number = self.number();
        self.nodes.insert(number, node);
        number
    }

    fn head(&mut self, vol: Vol) -> &mut Node {
        self.nodes.get_mut(&self.heads[&vol]).expect("every volume has a head")
    }

    pub fn create(&mut self, vol: Vol, blocks: u64, thick: bool) {
        let head = self.add(Node { thick, ..Node::default() });
        self.heads.insert(vol, head);
        self.grow(vol, 0, blocks);
    }

    /// A thick head's new blocks are laid out and unwritten.
    fn grow(&mut self, vol: Vol, from: u64, to: u64) {
        if self.head(vol).thick {
            for block in from..to {
                let id = self.number();
                self.head(vol).map.insert(block, Block { id, written: false });
            }
        }
    }

    fn owns(&self, head: u64, block: u64) -> bool {
        let node = &self.nodes[&head];
        let Some(mapped) = node.map.get(&block) else { return false };
        let inherited = node.parent.and_then(|parent| self.nodes[&parent].map.get(&block));
        inherited.is_none_or(|theirs| theirs.id != mapped.id)
    }

    /// Sectors were written.
    pub fn write(&mut self, vol: Vol, sector: u64, count: u64) {
        if !self.heads.contains_key(&vol) {
            return;
        }
        for block in sector / BLOCK..(sector + count).div_ceil(BLOCK) {
            self.place(vol, block);
        }
    }

    fn place(&mut self, vol: Vol, block: u64) {
        let owned = self.owns(self.heads[&vol], block);
        let new = self.number();
        let entry = self.head(vol).map.entry(block).or_insert(Block { id: new, written: true });
        entry.written = true;
        if !owned {
            entry.id = new;
        }
    }

    /// Sectors were discarded or zeroed: whole blocks hold nothing any more, parts of written blocks are written.
    pub fn zero(&mut self, vol: Vol, sector: u64, count: u64) {
        if !self.heads.contains_key(&vol) {
            return;
        }
        let end = sector + count;
        // A range without written blocks reads as zeros already: nothing changes.
        let whole = sector.div_ceil(BLOCK)..end / BLOCK;
        let nothing = whole.is_empty() || self.head(vol).map.range(whole).all(|(_, block)| !block.written);
        for block in sector / BLOCK..end.div_ceil(BLOCK) {
            let written = self.head(vol).map.get(&block).is_some_and(|block| block.written);
            if block * BLOCK >= sector && (block + 1) * BLOCK <= end {
                if !nothing {
                    self.unmap(vol, block);
                }
            } else if written {
                self.place(vol, block);
            }
        }
    }

    fn unmap(&mut self, vol: Vol, block: u64) {
        let owned = self.owns(self.heads[&vol], block);
        let head = self.head(vol);
        match head.map.get_mut(&block) {
            Some(mapped) if owned && head.thick => mapped.written = false,
            Some(_) => drop(head.map.remove(&block)),
            None => {}
        }
    }

    /// `vol` is a new snapshot of `origin`.
    pub fn snapshot(&mut self, origin: Vol, vol: Vol, thick: bool) {
        let Some(&head) = self.heads.get(&origin) else { return };
        let point = Node { thick: false, ..self.nodes[&head].clone() };
        let map = point.map.clone();
        let point = self.add(point);
        self.head(origin).parent = Some(point);
        let new = self.add(Node { parent: Some(point), map, thick });
        self.heads.insert(vol, new);
    }

    pub fn remove(&mut self, vol: Vol) {
        let Some(head) = self.heads.remove(&vol) else { return };
        let parent = self.nodes.remove(&head).and_then(|node| node.parent);
        self.collapse(parent);
    }

    /// Removes a point without a child, and merges a point with one child into it.
    fn collapse(&mut self, point: Option<u64>) {
        let Some(point) = point else { return };
        let children: Vec<u64> = self.nodes.iter().filter(|(_, n)| n.parent == Some(point)).map(|(&n, _)| n).collect();
        if children.len() > 1 {
            return;
        }
        let parent = self.nodes.remove(&point).and_then(|node| node.parent);
        match children.first() {
            Some(child) => self.nodes.get_mut(child).expect("just found").parent = parent,
            None => self.collapse(parent),
        }
    }

    /// `target` has the contents of `source` now.
    pub fn revert(&mut self, target: Vol, source: Vol, consume: bool) {
        if !self.heads.contains_key(&target) || !self.heads.contains_key(&source) {
            return;
        }
        let thick = self.head(target).thick;
        let old = self.heads[&target];
        self.snapshot(source, target, thick);
        if let Some(parent) = self.nodes.remove(&old).map(|node| node.parent) {
            self.collapse(parent);
        }
        if consume {
            self.remove(source);
        }
    }

    pub fn resize(&mut self, vol: Vol, from: u64, to: u64) {
        if !self.heads.contains_key(&vol) {
            return;
        }
        self.head(vol).map.split_off(&to);
        self.grow(vol, from, to);
    }

    /// Blocks that any head or point maps.
    pub fn used(&self) -> u64 {
        let ids: BTreeSet<u64> = self.nodes.values().flat_map(|node| node.map.values().map(|block| block.id)).collect();
        ids.len() as u64
    }

    /// The counters of one volume. Slow: it removes the volume from a copy, and counts the freed blocks.
    pub fn counters(&self, vol: Vol) -> Counters {
        let Some(head) = self.heads.get(&vol) else { return Counters::default() };
        let own = self.nodes[head].map.keys().filter(|&&block| self.owns(*head, block)).count();
        let mut without = self.clone();
        without.remove(vol);
        Counters { referenced: self.referenced(vol), own: own as u64, freed: self.used() - without.used() }
    }

    /// Blocks that the volume maps and that were written.
    pub fn referenced(&self, vol: Vol) -> u64 {
        let Some(head) = self.heads.get(&vol) else { return 0 };
        self.nodes[head].map.values().filter(|block| block.written).count() as u64
    }

    /// Blocks of a thick volume's reservation that have no place yet.
    pub fn missing(&self, vol: Vol, blocks: u64) -> u64 {
        self.heads.get(&vol).map_or(0, |head| blocks - self.nodes[head].map.len() as u64)
    }
}
