//! Reads and repairs nodes and other metadata blocks, and runs steps that need them.

use super::{Core, count};
use crate::disk::{Completion, DiskOp, Disks, PageBuf, Segments, start};
use crate::error::{Error, Result};
use crate::format::node::{Node, UNWRITTEN};
use crate::map::{MapError, NodeRef};
use crate::placement::Placement;
use crate::runtime::yield_now;
use crate::units::{BLOCK_SIZE, VgBlock};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Whether a block of the group lies on a physical volume that is missing.
pub fn is_missing(disks: &dyn Disks, placement: &Placement, block: u64) -> bool {
    placement.holds(block, 1) && placement.is_lost(block, |pv| disks.is_missing(pv)).0
}

impl Core {
    /// Runs `step` until all nodes that it needs are in memory. Reads missing nodes, and makes room for metadata when
    /// there is too little.
    pub async fn with_nodes<T>(&self, mut step: impl FnMut() -> std::result::Result<T, MapError>) -> Result<T> {
        for _ in 0..3 {
            let outcome = self
                .with_nodes_privileged(|| match step() {
                    Err(MapError::NoSpace) => Ok(None),
                    outcome => outcome.map(Some),
                })
                .await?;
            if let Some(value) = outcome {
                return Ok(value);
            }
            self.metadata_room().await?;
        }
        Err(self.no_space(1))
    }

    /// The same for work that frees space: it may use the metadata reserve, and must not wait for a checkpoint.
    pub async fn with_nodes_privileged<T>(
        &self,
        mut step: impl FnMut() -> std::result::Result<T, MapError>,
    ) -> Result<T> {
        let mut failed_node = None;
        loop {
            match step() {
                Ok(value) => return Ok(value),
                Err(MapError::Corrupt(error)) => return Err(error),
                Err(MapError::NoSpace) => return Err(self.no_space(1)),
                Err(MapError::Missing(node, level)) => self.load_or_retry(node, level, &mut failed_node).await?,
                Err(MapError::Again) => yield_now().await,
            }
        }
    }

    /// The same for a walk that can skip a node: the inner `Err` is a node that could not be read.
    pub async fn with_readable_nodes<T>(
        &self,
        mut step: impl FnMut() -> std::result::Result<T, MapError>,
    ) -> Result<std::result::Result<T, Unavailable>> {
        let mut missing = None;
        let walk = || match step() {
            Err(MapError::Missing(node, level)) => {
                missing = Some(node);
                Err(MapError::Missing(node, level))
            }
            outcome => outcome,
        };
        match self.with_nodes_privileged(walk).await {
            Ok(value) => Ok(Ok(value)),
            Err(error) => match (error, missing) {
                (Error::Corrupt { .. }, Some(node)) => Ok(Err(Unavailable::Lost(node))),
                (Error::Disk(_), Some(node)) => Ok(Err(Unavailable::Unread(node))),
                (error, _) => Err(error),
            },
        }
    }

    /// Reads a node for a caller that looks it up again afterwards. `failed_node` is the node whose read failed last. The
    /// tree may change meanwhile, and the node's block may get a newer node: so a failure counts only when the same
    /// node is asked for twice.
    pub async fn load_or_retry(&self, node: NodeRef, level: u8, failed_node: &mut Option<NodeRef>) -> Result<()> {
        let displaced = |()| match self.cache.is_displaced(node) && !self.planted("displaced_node_reread") {
            true => {
                let (what, place) = ("tree node", node.to_string());
                Err(Error::Corrupt { what, place, detail: "another tree has a newer node there".into() })
            }
            false => Ok(()),
        };
        match self.load(node, level).await.and_then(displaced) {
            Ok(()) => *failed_node = None,
            Err(error) if *failed_node == Some(node) => return Err(error),
            Err(_) => *failed_node = Some(node),
        }
        Ok(())
    }

    /// Reads a node into the cache, from its first copy or from the second. In the second case the next checkpoint
    /// repairs the first copy (M8). A disk error is reported before damage: the copy that could not be read may be the
    /// good one.
    pub async fn load(&self, node: NodeRef, level: u8) -> Result<()> {
        count(&self.counters.node_loads);
        let copies = self.meta.lock().locate(node.addr);
        let Some(copies) = copies else {
            return Err(Error::Corrupt {
                what: "tree node",
                place: node.to_string(),
                detail: "there is no such metadata block".into(),
            });
        };
        let mut first = None;
        // A node that is replaced during the read can still name blocks that no physical volume has any more.
        let there = self.placement();
        for (i, place) in copies.into_iter().enumerate() {
            let Some(read) = self.start_read(place) else { continue };
            let outcome = match read.await {
                Ok(block) => self.decode(&block.expect("a read gives its buffer back"), node, level, &there),
                Err(error) => Err(error.into()),
            };
            match outcome {
                Ok(decoded) => {
                    if i == 1 && !self.config.read_only && !self.is_missing(copies[0].0) {
                        self.repair_later(node, level, &decoded).await;
                    }
                    self.cache.insert_clean(decoded);
                    return Ok(());
                }
                Err(error @ Error::Disk(_)) if !matches!(first, Some(Error::Disk(_))) => first = Some(error),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::Corrupt {
            what: "tree node",
            place: node.to_string(),
            detail: "its physical volume has left".into(),
        }))
    }

    async fn repair_later(&self, node: NodeRef, level: u8, good: &Node) {
        if self.planted("repaired_outside_checkpoint") {
            let Some([first, _]) = self.meta.lock().locate(node.addr) else { return };
            let _ = self.write_blocks(first, Arc::new(PageBuf::from_slice(&good.encode(self.tag)))).await;
            return;
        }
        let mut to_repair = self.to_repair.lock();
        if to_repair.len() < REPAIRS_TOGETHER {
            to_repair.insert((node, level));
        }
    }

    /// Rewrites the first copies of nodes that were read from their second copy. Only a checkpoint does this, before it
    /// writes anything. No one else writes metadata then, so a good second copy still has the right contents (M8).
    pub async fn repair_copies(&self) {
        let to_repair = std::mem::take(&mut *self.to_repair.lock());
        for (node, level) in to_repair {
            let Some([first, second]) = self.meta.lock().locate(node.addr) else { continue };
            let Ok(block) = self.read_block(second).await else { continue };
            if let Ok(good) = Node::decode(&block.as_slice()[..BLOCK_SIZE as usize], node, level, self.tag) {
                // A repair that fails changes nothing: the good copy is still there.
                let _ = self.write_blocks(first, Arc::new(PageBuf::from_slice(&good.encode(self.tag)))).await;
            }
        }
    }

    /// Reads many nodes into the cache, with several reads in flight. False: one of them cannot be read.
    pub async fn load_together(&self, nodes: &BTreeSet<(NodeRef, u8)>) -> bool {
        let mut under_way = VecDeque::with_capacity(READS_TOGETHER);
        let mut rest = nodes.iter();
        let there = self.placement();
        loop {
            while under_way.len() < READS_TOGETHER
                && let Some((node, level)) = rest.next()
            {
                let place = self.meta.lock().locate(node.addr);
                let Some([place, _]) = place else { return false };
                let Some(read) = self.start_read(place) else { return false };
                under_way.push_back((*node, *level, read));
            }
            let Some((node, level, read)) = under_way.pop_front() else { return true };
            let block = read.await.ok().flatten();
            match block.and_then(|block| self.decode(&block, node, level, &there).ok()) {
                Some(decoded) => {
                    count(&self.counters.node_loads);
                    self.cache.insert_clean(decoded);
                }
                // Reads the second copy, and notes that the first needs repair.
                None if self.load(node, level).await.is_ok() => {}
                None => return false,
            }
        }
    }

    /// `there`: the blocks that existed when the read began.
    fn decode(&self, block: &PageBuf, node: NodeRef, level: u8, there: &Placement) -> Result<Node> {
        let decoded = Node::decode(&block.as_slice()[..BLOCK_SIZE as usize], node, level, self.tag)?;
        self.plausible(node, decoded, there)
    }

    /// Checks that the node's own block cannot show: the bitmap has it, and the blocks that it maps exist.
    fn plausible(&self, name: NodeRef, node: Node, there: &Placement) -> Result<Node> {
        let corrupt = |detail: String| Error::Corrupt { what: "tree node", place: name.to_string(), detail };
        if !self.meta.lock().is_used(name.addr) {
            return Err(corrupt("the metadata bitmap calls its block free".into()));
        }
        let wild = node.extents().find(|e| !there.holds(e.value, u64::from(e.len)) || e.flags & !UNWRITTEN != 0);
        match wild {
            Some(e) => Err(corrupt(format!("it maps block {} to {}+{}, which are not there", e.key, e.value, e.len))),
            None => Ok(node),
        }
    }

    /// Whether an existing block lies on a physical volume that is out (MB2).
    pub fn is_missing(&self, block: u64) -> bool {
        !self.members.out().is_empty() && is_missing(&*self.disks, &self.placement(), block)
    }

    pub async fn read_block(&self, place: VgBlock) -> Result<PageBuf> {
        let mut segments = Segments::new();
        self.placement().map_blocks(place, 1, 0, &mut segments);
        self.read_with_retry(segments, PageBuf::zeroed(BLOCK_SIZE as usize)).await
    }

    /// Reads, and retries once: a broken path or a drive reset may be over.
    pub async fn read_with_retry(&self, segments: Segments, buf: PageBuf) -> Result<PageBuf> {
        let bytes = buf.capacity();
        let read = match start(&*self.disks, DiskOp::Read { segments: segments.clone(), buf }).await {
            Err(_) if !self.planted("read_not_retried") => {
                start(&*self.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(bytes) }).await
            }
            read => read,
        };
        Ok(read?.expect("a read gives its buffer back"))
    }

    /// `None`: the block no longer exists. Its physical volume left, or shrank, after the place was looked up.
    fn start_read(&self, place: VgBlock) -> Option<Completion> {
        let placement = self.placement();
        if !placement.holds(place.0, 1) && !self.planted("removed_pv_read") {
            return None;
        }
        let mut segments = Segments::new();
        placement.map_blocks(place, 1, 0, &mut segments);
        Some(start(&*self.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(BLOCK_SIZE as usize) }))
    }

    /// Writes a whole buffer at consecutive VG blocks.
    pub async fn write_blocks(&self, place: VgBlock, buf: Arc<PageBuf>) -> Result<()> {
        let mut segments = Segments::new();
        self.placement().map_blocks(place, buf.capacity() as u64 / BLOCK_SIZE, 0, &mut segments);
        start(&*self.disks, DiskOp::Write { segments, buf }).await?;
        Ok(())
    }
}

/// Why a walk did not get a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Both copies were read, and neither is this node any more.
    Lost(NodeRef),
    /// A copy cannot be read now, and may be good.
    Unread(NodeRef),
}

/// The most bad copies that one checkpoint repairs. The others will be found again.
const REPAIRS_TOGETHER: usize = 256;

/// How many node reads are in flight together.
pub const READS_TOGETHER: usize = 32;
