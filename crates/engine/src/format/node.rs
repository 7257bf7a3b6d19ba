//! Tree nodes: one metadata block that maps a range of keys, in memory and on disk.
//!
//! A node is a header and up to [`CAPACITY`] entries of three 64-bit words. In memory the entries stay packed as on
//! disk, in an array of fixed size. So every node costs the same memory, and one `memcpy` copies it. This module owns
//! the packing and the checks; `map` owns the trees.
//!
//! A leaf's entry is an [`Extent`], an interior node's entry names a child. Word by word, low bits first:
//!
//! | word | leaf | interior |
//! |---|---|---|
//! | 0 | key: 48, flags: 16 | first key: 48, child's generation bits 0-15 |
//! | 1 | value: 48, length bits 0-15 | child's address: 48, child's generation bits 16-31 |
//! | 2 | birth: 48, length bits 16-31 | child's birth: 48, child's generation bits 32-47 |
//!
//! [`Node::decode`] takes any bytes and never panics. A decoded node is the one that its parent named. It has at least
//! one entry, its keys rise strictly, its extents do not overlap, and every unused bit is zero.

use crate::error::Error;
use crate::format::record::{block_crc, on_disk, seal};
use crate::units::{BLOCK_SIZE, Epoch, MetaBlock};
use std::fmt;

/// Bytes in an encoded node.
pub const NODE_SIZE: usize = BLOCK_SIZE as usize;
/// Bytes in an entry.
pub const ENTRY_SIZE: usize = 24;
/// Entries that a node has room for.
pub const CAPACITY: usize = (NODE_SIZE - NodeHeader::SIZE) / ENTRY_SIZE;
/// Keys, values, births, addresses and generations are below this.
pub const LIMIT: u64 = 1 << 48;
/// No tree is higher: with this many levels even the sparsest tree has more leaves than there are keys.
pub const MAX_LEVEL: u8 = 63;

const MASK: u64 = LIMIT - 1;
const MAGIC: [u8; 4] = *b"RwNd";
const LEAF: u8 = 1;
const INTERIOR: u8 = 2;
const CRC_AT: usize = NodeHeader::FIELDS[1].at;

on_disk! {
    /// The first bytes of a tree node. Its entries follow without a gap, and zeros fill the block.
    NodeHeader, 64 {
        /// `RwNd`
        0 => magic: [u8; 4],
        /// CRC-32C of the whole block with this field zero.
        4 => crc: u32,
        /// 1: leaf, 2: interior.
        8 => kind: u8,
        /// Levels below this node; a leaf has none.
        9 => level: u8,
        10 => count: u16,
        12 => reserved: u32,
        /// The block's own address: a misdirected write is noticed.
        16 => addr: u64,
        /// The checkpoint generation that wrote it: a lost write is noticed.
        24 => generation: u64,
        32 => birth: u64,
        /// The first eight bytes of the group's UUID.
        40 => group: u64,
        48 => reserved_tail: [u8; 16],
    }
}

const _: () = assert!(NodeHeader::SIZE + CAPACITY * ENTRY_SIZE == NODE_SIZE, "entries fill the block");

/// Flag of an extent that is allocated but was never written: it reads as zeros (rule R11).
pub const UNWRITTEN: u16 = 1;

/// A run of blocks: `key + i` maps to `value + i` for `i < len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub key: u64,
    pub len: u32,
    pub value: u64,
    /// The epoch in which the mapping was made.
    pub birth: Epoch,
    /// The tree's user gives the bits their meaning.
    pub flags: u16,
}

impl Extent {
    /// The first key after the extent.
    pub fn end(&self) -> u64 {
        self.key + u64::from(self.len)
    }

    /// The part within `[start, end)`, if any.
    pub fn cut(&self, start: u64, end: u64) -> Option<Extent> {
        let (from, to) = (self.key.max(start), self.end().min(end));
        (from < to).then(|| Extent {
            key: from,
            len: (to - from) as u32, // No longer than `self.len`.
            value: self.value + (from - self.key),
            ..*self
        })
    }

    /// One extent that equals `self` followed by `next`, if there is one.
    pub fn joined(&self, next: &Extent) -> Option<Extent> {
        let continues = self.end() == next.key
            && self.value + u64::from(self.len) == next.value
            && self.birth == next.birth
            && self.flags == next.flags;
        let len = self.len.checked_add(next.len)?;
        continues.then_some(Extent { len, ..*self })
    }

    /// True when the extent can be stored: not empty, and all of it within [`LIMIT`].
    pub fn is_storable(&self) -> bool {
        let len = u64::from(self.len);
        len >= 1
            && self.key < LIMIT
            && self.key + len <= LIMIT
            && self.value < LIMIT
            && self.value + len <= LIMIT
            && self.birth.0 < LIMIT
    }
}

/// How a parent (or a root record) names a node. A block at `addr` with another generation or birth is not that node: a
/// write was lost or misdirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRef {
    pub addr: MetaBlock,
    /// The checkpoint generation that last changed the node.
    pub generation: u64,
    pub birth: Epoch,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "metadata block {} (generation {}, birth {})", self.addr, self.generation, self.birth)
    }
}

/// One entry as stored in a node. The node's level says of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry([u64; 3]);

impl Entry {
    const EMPTY: Entry = Entry([0; 3]);

    pub(crate) fn leaf(e: &Extent) -> Entry {
        debug_assert!(e.is_storable(), "an extent that cannot be stored: {e:?}");
        let (low, high) = (u64::from(e.len as u16), u64::from(e.len >> 16));
        Entry([e.key | u64::from(e.flags) << 48, e.value | low << 48, e.birth.0 | high << 48])
    }

    pub(crate) fn interior(first_key: u64, child: NodeRef) -> Entry {
        debug_assert!(first_key < LIMIT && child.addr.0 < LIMIT && child.birth.0 < LIMIT && child.generation < LIMIT);
        let part = |shift: u32| (child.generation >> shift & 0xFFFF) << 48;
        Entry([first_key | part(0), child.addr.0 | part(16), child.birth.0 | part(32)])
    }

    #[inline]
    pub(crate) fn key(&self) -> u64 {
        self.0[0] & MASK
    }

    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        let [a, b, c] = self.0;
        Extent {
            key: a & MASK,
            len: (b >> 48) as u32 | ((c >> 48) as u32) << 16,
            value: b & MASK,
            birth: Epoch(c & MASK),
            flags: (a >> 48) as u16,
        }
    }

    #[inline]
    pub(crate) fn child(&self) -> NodeRef {
        let [a, b, c] = self.0;
        NodeRef {
            addr: MetaBlock(b & MASK),
            generation: a >> 48 | (b >> 48) << 16 | (c >> 48) << 32,
            birth: Epoch(c & MASK),
        }
    }

    /// The same child under another first key.
    pub(crate) fn with_key(self, key: u64) -> Entry {
        Entry([self.0[0] & !MASK | key, self.0[1], self.0[2]])
    }
}

/// A tree node in memory.
#[derive(Clone)]
pub struct Node {
    this: NodeRef,
    count: u16,
    level: u8,
    entries: [Entry; CAPACITY],
}

impl Node {
    pub(crate) fn new(this: NodeRef, level: u8, entries: &[Entry]) -> Node {
        let mut node = Node { this, count: entries.len() as u16, level, entries: [Entry::EMPTY; CAPACITY] };
        node.entries[..entries.len()].copy_from_slice(entries);
        node
    }

    /// How this node's parent names it.
    #[inline]
    pub fn this(&self) -> NodeRef {
        self.this
    }

    /// Levels below this node; 0: a leaf.
    #[inline]
    pub fn level(&self) -> u8 {
        self.level
    }

    #[inline]
    pub fn is_leaf(&self) -> bool {
        self.level == 0
    }

    /// A leaf's extents in order; nothing for an interior node.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = Extent> + '_ {
        let leaf = if self.is_leaf() { self.entries() } else { &[] };
        leaf.iter().map(Entry::extent)
    }

    /// An interior node's children in order, each with its first key; nothing for a leaf.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = (u64, NodeRef)> + '_ {
        let interior = if self.is_leaf() { &[] } else { self.entries() };
        interior.iter().map(|e| (e.key(), e.child()))
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..usize::from(self.count)]
    }

    /// The position of the child that covers `key`: the last that starts at or before it, else the first.
    #[inline]
    pub(crate) fn child_at(&self, key: u64) -> usize {
        self.entries().partition_point(|e| e.key() <= key).saturating_sub(1)
    }

    /// The position of a leaf's first extent that ends after `key`.
    #[inline]
    pub(crate) fn first_ending_after(&self, key: u64) -> usize {
        let next = self.entries().partition_point(|e| e.key() <= key);
        match next.checked_sub(1) {
            Some(i) if self.entries[i].extent().end() > key => i,
            _ => next,
        }
    }

    /// Replaces the entries in `range` by `new`. The caller knows that they fit.
    pub(crate) fn splice(&mut self, range: std::ops::Range<usize>, new: &[Entry]) {
        let old_count = usize::from(self.count);
        let new_count = old_count - range.len() + new.len();
        assert!(new_count <= CAPACITY, "a splice that does not fit was not refused before");
        self.entries.copy_within(range.end..old_count, range.start + new.len());
        self.entries[range.start..range.start + new.len()].copy_from_slice(new);
        self.count = new_count as u16;
    }

    /// The node's block. `group` is the first eight bytes of the group's UUID, little-endian.
    pub fn encode(&self, group: u64) -> [u8; NODE_SIZE] {
        let header = NodeHeader {
            magic: MAGIC,
            crc: 0,
            kind: if self.is_leaf() { LEAF } else { INTERIOR },
            level: self.level,
            count: self.count,
            reserved: 0,
            addr: self.this.addr.0,
            generation: self.this.generation,
            birth: self.this.birth.0,
            group,
            reserved_tail: [0; 16],
        };
        let mut block = [0; NODE_SIZE];
        let (head, body) = block.split_at_mut(NodeHeader::SIZE);
        head.copy_from_slice(&header.encode());
        for (bytes, entry) in body.chunks_exact_mut(ENTRY_SIZE).zip(self.entries()) {
            for (word, value) in bytes.chunks_exact_mut(8).zip(entry.0) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        seal(&mut block, CRC_AT);
        block
    }

    /// The node in this block, which a parent named `expect` and placed `level` levels above the leaves.
    pub fn decode(bytes: &[u8], expect: NodeRef, level: u8, group: u64) -> Result<Node, Error> {
        parse(bytes, expect, level, group).map_err(|detail| corrupt(expect, detail))
    }
}

/// The error for a node that is not what its parent says.
pub(crate) fn corrupt(node: NodeRef, detail: String) -> Error {
    Error::Corrupt { what: "tree node", place: node.to_string(), detail }
}

fn parse(bytes: &[u8], expect: NodeRef, level: u8, group: u64) -> Result<Node, String> {
    let header = check_header(bytes, expect, level, group)?;
    let count = usize::from(header.count);
    let (used, unused) = bytes[NodeHeader::SIZE..].split_at(count * ENTRY_SIZE);
    if unused.iter().any(|&b| b != 0) {
        return Err("the space after the last entry is not zero".into());
    }
    let mut node = Node { this: expect, count: header.count, level, entries: [Entry::EMPTY; CAPACITY] };
    for (entry, bytes) in node.entries.iter_mut().zip(used.chunks_exact(ENTRY_SIZE)) {
        for (word, bytes) in entry.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
        }
    }
    if node.is_leaf() {
        check_extents(&node)?;
    } else {
        check_children(&node)?;
    }
    Ok(node)
}

fn check_header(bytes: &[u8], expect: NodeRef, level: u8, group: u64) -> Result<NodeHeader, String> {
    if bytes.len() != NODE_SIZE {
        return Err(format!("expected {NODE_SIZE} bytes, found {}", bytes.len()));
    }
    let h = NodeHeader::decode_from(bytes).expect("a block holds a header");
    if h.magic != MAGIC {
        return Err(format!("expected the magic {MAGIC:02x?}, found {:02x?}", h.magic));
    }
    let crc = block_crc(bytes, CRC_AT);
    if h.crc != crc {
        return Err(format!("the checksum says {:#010x}, the content has {crc:#010x}", h.crc));
    }
    if h.group != group {
        return Err(format!("it belongs to another group ({:016x}, expected {group:016x})", h.group));
    }
    let found = NodeRef { addr: MetaBlock(h.addr), generation: h.generation, birth: Epoch(h.birth) };
    if found != expect {
        return Err(format!("it calls itself {found}: a lost or misdirected write"));
    }
    if level > MAX_LEVEL {
        return Err(format!("its parent has it at level {level}, the highest is {MAX_LEVEL}"));
    }
    let kind = if level == 0 { LEAF } else { INTERIOR };
    if (h.kind, h.level) != (kind, level) {
        return Err(format!("expected kind {kind} level {level}, found kind {} level {}", h.kind, h.level));
    }
    if h.count == 0 || usize::from(h.count) > CAPACITY {
        return Err(format!("{} entries, possible are 1 to {CAPACITY}", h.count));
    }
    if h.reserved != 0 || h.reserved_tail != [0; 16] {
        return Err("reserved bytes are not zero".into());
    }
    Ok(h)
}

fn check_extents(node: &Node) -> Result<(), String> {
    let mut free_from = 0;
    for e in node.extents() {
        if !e.is_storable() {
            return Err(format!("an impossible extent: {e:?}"));
        }
        if e.key < free_from {
            return Err(format!("the extent at key {} begins before the last one ends ({free_from})", e.key));
        }
        free_from = e.end();
    }
    Ok(())
}

fn check_children(node: &Node) -> Result<(), String> {
    let mut last = None;
    for (key, child) in node.children() {
        if last.is_some_and(|last| key <= last) {
            return Err(format!("the child at key {key} does not come after the one before it"));
        }
        if child.generation > node.this.generation {
            return Err(format!("the child at key {key} is younger than its parent: {child}"));
        }
        last = Some(key);
    }
    Ok(())
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Node");
        out.field("this", &self.this).field("level", &self.level);
        match self.is_leaf() {
            true => out.field("extents", &self.extents().collect::<Vec<_>>()),
            false => out.field("children", &self.children().collect::<Vec<_>>()),
        };
        out.finish()
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        (self.this, self.level, self.entries()) == (other.this, other.level, other.entries())
    }
}

impl Eq for Node {}

#[cfg(test)]
#[path = "node_test.rs"]
mod tests;
