//! Writes the map of a point: the map of its base, in which the pages on the way to each change are new. Changes come in order.

use super::error::{Result, StoreError};
use super::fetch::Segments;
use super::page::{self, BITS, Contents, SLOTS, Slots};
use super::upload::Output;
use std::collections::BTreeMap;

/// A page on the way to where changes are made.
struct Node {
    level: u8,
    /// Which page of its level it is.
    index: u64,
    slots: Slots,
    was: u64,
    is_changed: bool,
}

/// A map that is being written.
pub struct TreeWriter<'s, 'a> {
    segments: &'s Segments<'a>,
    pub contents: Contents,
    /// From the root down.
    path: Vec<Node>,
    /// Pages that were made when the size changed, before the first change. They are not in the store yet.
    fresh: BTreeMap<u64, Slots>,
    is_resizing: bool,
}

impl<'s, 'a> TreeWriter<'s, 'a> {
    /// Begins with the map of a base.
    pub fn new(
        segments: &'s Segments<'a>,
        base: Option<Contents>,
        blocks: u64,
        output: &mut Output<'_, '_, '_>,
    ) -> Result<TreeWriter<'s, 'a>> {
        let mut contents = base.unwrap_or_else(|| Contents::new(blocks));
        let (was, needed) = (contents.blocks, page::height_of(blocks));
        contents.blocks = blocks;
        let mut fresh = BTreeMap::new();
        while contents.height < needed {
            if contents.root != 0 {
                let mut slots = page::empty();
                slots[0] = contents.root;
                contents.root = output.page(page::encode(contents.height, &slots))?;
                contents.uses(contents.root);
                fresh.insert(contents.root, slots);
            }
            contents.height += 1;
        }
        let mut writer = TreeWriter { segments, contents, path: Vec::new(), fresh, is_resizing: true };
        if was > blocks {
            // What is behind the end must not come back when the volume grows again.
            writer.zeros(blocks, was - blocks, output)?;
            writer.close_all(output)?;
        }
        writer.is_resizing = false;
        Ok(writer)
    }

    fn level(&self) -> u8 {
        self.path.last().map_or(self.contents.height, |node| node.level)
    }

    /// Leaves the pages that a block is not below.
    fn seek(&mut self, block: u64, output: &mut Output<'_, '_, '_>) -> Result<()> {
        while let Some(node) = self.path.last() {
            if block >> (BITS * (u32::from(node.level) + 1)) == node.index {
                break;
            }
            self.close(output)?;
        }
        if self.path.is_empty() {
            let level = self.contents.height - 1;
            self.open(level, 0, self.contents.root)?;
        }
        Ok(())
    }

    fn open(&mut self, level: u8, index: u64, address: u64) -> Result<()> {
        let slots = match self.fresh.get(&address) {
            Some(slots) => slots.clone(),
            None => self.segments.page(level, address)?,
        };
        self.path.push(Node { level, index, slots, was: address, is_changed: false });
        Ok(())
    }

    /// The slot of a block in the lowest page that is open.
    fn slot(&self, block: u64) -> (usize, u64) {
        let node = self.path.last().expect("a page is open");
        let slot = (block >> (BITS * u32::from(node.level))) as usize % SLOTS;
        (slot, node.slots[slot])
    }

    fn close(&mut self, output: &mut Output<'_, '_, '_>) -> Result<()> {
        let Some(node) = self.path.pop() else { return Ok(()) };
        if !node.is_changed {
            return Ok(());
        }
        if node.was != 0 {
            self.contents.drops(node.was);
        }
        let is_empty = node.slots.iter().all(|address| *address == 0);
        let address = if is_empty { 0 } else { output.page(page::encode(node.level, &node.slots))? };
        if address != 0 {
            self.contents.uses(address);
        }
        if self.is_resizing && !is_empty {
            self.fresh.insert(address, node.slots);
        }
        match self.path.last_mut() {
            Some(parent) => {
                parent.slots[node.index as usize % SLOTS] = address;
                parent.is_changed = true;
            }
            None => self.contents.root = address,
        }
        Ok(())
    }

    fn close_all(&mut self, output: &mut Output<'_, '_, '_>) -> Result<()> {
        while !self.path.is_empty() {
            self.close(output)?;
        }
        Ok(())
    }

    /// Whether the map has such a block.
    fn has(&self, block: u64) -> Result<()> {
        if block >> (BITS * u32::from(self.contents.height)) == 0 {
            return Ok(());
        }
        Err(StoreError::Refused(format!("block {block} is behind the end of the volume")))
    }

    /// A block has what is at this address.
    pub fn set(&mut self, block: u64, address: u64, output: &mut Output<'_, '_, '_>) -> Result<()> {
        self.has(block)?;
        self.seek(block, output)?;
        while self.level() > 0 {
            let (_, child) = self.slot(block);
            let level = self.level() - 1;
            self.open(level, block >> (BITS * (u32::from(level) + 1)), child)?;
        }
        self.put(block, address);
        Ok(())
    }

    fn put(&mut self, block: u64, address: u64) {
        let (slot, old) = self.slot(block);
        if old == address {
            return;
        }
        if old != 0 {
            self.contents.drops(old);
            self.contents.data_blocks = self.contents.data_blocks.saturating_sub(1);
        }
        if address != 0 {
            self.contents.uses(address);
            self.contents.data_blocks += 1;
        }
        let leaf = self.path.last_mut().expect("a page is open");
        leaf.slots[slot] = address;
        leaf.is_changed = true;
    }

    /// A range is zeros.
    pub fn zeros(&mut self, start: u64, blocks: u64, output: &mut Output<'_, '_, '_>) -> Result<()> {
        let end = (start + blocks).min(1 << (BITS * u32::from(self.contents.height)));
        let mut at = start;
        while at < end {
            self.seek(at, output)?;
            let (_, child) = self.slot(at);
            let level = self.level();
            if level == 0 {
                self.put(at, 0);
                at += 1;
            } else if child == 0 {
                let span = page::blocks_of_slot(level);
                at = (at / span + 1) * span;
            } else {
                self.open(level - 1, at >> (BITS * u32::from(level)), child)?;
            }
        }
        Ok(())
    }

    /// The whole map is written.
    pub fn finish(mut self, output: &mut Output<'_, '_, '_>) -> Result<Contents> {
        self.close_all(output)?;
        Ok(self.contents)
    }
}
