//! Reads metadata before a group is open: the good one of two copies, and the checkpoint's stream.

use crate::core::{READS_TOGETHER, is_missing};
use crate::disk::{Completion, DiskOp, Disks, PageBuf, Segments, start};
use crate::error::{Error, Result};
use crate::format::stream::{IndexEntry, Stream, decode_index, decode_page};
use crate::format::superblock::GroupRoot;
use crate::placement::Placement;
use crate::units::{BLOCK_SIZE, VgBlock};
use std::collections::{BTreeSet, VecDeque};

pub(super) fn stream_corrupt(detail: &str) -> Error {
    Error::Corrupt { what: "checkpoint", place: "its stream".into(), detail: detail.into() }
}

pub(super) fn replay_corrupt(detail: &str) -> Error {
    Error::Corrupt { what: "journal", place: "replay".into(), detail: detail.into() }
}

pub(super) fn start_read(disks: &dyn Disks, placement: &Placement, block: u64, blocks: u64) -> Completion {
    start_read_into(PageBuf::zeroed((blocks * BLOCK_SIZE) as usize), disks, placement, block, blocks)
}

/// The same into a buffer that is large enough, whatever it holds.
pub(super) fn start_read_into(
    buf: PageBuf,
    disks: &dyn Disks,
    placement: &Placement,
    block: u64,
    blocks: u64,
) -> Completion {
    let mut segments = Segments::new();
    placement.map_blocks(VgBlock(block), blocks, 0, &mut segments);
    start(disks, DiskOp::Read { segments, buf })
}

pub(super) async fn read_at(disks: &dyn Disks, placement: &Placement, block: u64, blocks: u64) -> Result<PageBuf> {
    let buf = start_read(disks, placement, block, blocks).await?;
    Ok(buf.expect("a read gives its buffer back"))
}

/// A bad copy of a metadata block whose other copy is good.
pub(super) struct BadCopy {
    /// Its VG block.
    pub place: u64,
    pub why: Error,
    /// The right contents.
    pub good: PageBuf,
}

/// Reads a block with two copies: the second if the first is bad. With a list for bad copies, reads both.
pub(super) async fn either<T>(
    disks: &dyn Disks,
    placement: &Placement,
    copies: [u64; 2],
    decode: impl Fn(&[u8]) -> Result<T>,
    bad: &mut Option<&mut Vec<BadCopy>>,
) -> Result<T> {
    // A copy on a physical volume that is out is not bad: it is rewritten when that returns (MB5).
    if let Some(bad) = bad
        && !copies.iter().any(|copy| is_missing(disks, placement, *copy))
    {
        return both(disks, placement, copies, decode, bad).await;
    }
    let mut first = None;
    for copy in copies {
        if !placement.holds(copy, 1) {
            first = first.or(Some(stream_corrupt("a block outside the group")));
            continue;
        }
        let outcome = match read_at(disks, placement, copy, 1).await {
            Ok(buf) => decode(&buf.as_slice()[..BLOCK_SIZE as usize]),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(value) => return Ok(value),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.expect("two copies were tried"))
}

/// Reads both copies. If only one is good, the other goes to `bad`.
async fn both<T>(
    disks: &dyn Disks,
    placement: &Placement,
    copies: [u64; 2],
    decode: impl Fn(&[u8]) -> Result<T>,
    bad: &mut Vec<BadCopy>,
) -> Result<T> {
    let mut read: Vec<Result<(T, PageBuf)>> = Vec::with_capacity(2);
    for copy in copies {
        let outcome = match placement.holds(copy, 1) {
            true => read_at(disks, placement, copy, 1).await,
            false => Err(stream_corrupt("a block outside the group")),
        };
        read.push(outcome.and_then(|buf| Ok((decode(&buf.as_slice()[..BLOCK_SIZE as usize])?, buf))));
    }
    let (second, first) = (read.pop().expect("two"), read.pop().expect("two"));
    match (first, second) {
        (Ok((value, _)), Ok(_)) => Ok(value),
        (Ok((value, good)), Err(why)) => {
            bad.push(BadCopy { place: copies[1], why, good });
            Ok(value)
        }
        (Err(why), Ok((value, good))) => {
            bad.push(BadCopy { place: copies[0], why, good });
            Ok(value)
        }
        (Err(first), Err(_)) => Err(first),
    }
}

/// The checkpoint's stream, and the places of the first copies of its blocks.
pub(super) async fn read_stream(
    disks: &dyn Disks,
    placement: &Placement,
    root: &GroupRoot,
    tag: u64,
    bad: &mut Option<&mut Vec<BadCopy>>,
) -> Result<(Stream, Vec<u64>)> {
    let mut entries: Vec<IndexEntry> = Vec::new();
    let mut places = Vec::new();
    let mut own = root.index;
    let mut seen = BTreeSet::new();
    while own != [0, 0] {
        if !seen.insert(own[0]) {
            return Err(stream_corrupt("its index goes in a circle"));
        }
        let decode = |block: &[u8]| decode_index(block, root.generation, own, tag);
        let (part, next) = either(disks, placement, own, decode, bad).await?;
        places.push(own[0]);
        entries.extend(part);
        own = next;
    }
    let mut bytes = Vec::new();
    let mut ahead: VecDeque<Option<Completion>> = VecDeque::new();
    let mut to_come = entries.iter();
    for (number, entry) in entries.iter().enumerate() {
        let decode = |block: &[u8]| decode_page(block, root.generation, number as u64, entry, tag);
        places.push(entry.copy_a);
        // The first copies are read together. A bad one is read again alone; so are all if both copies are wanted.
        if bad.is_none() {
            while ahead.len() < READS_TOGETHER
                && let Some(entry) = to_come.next()
            {
                let inside = placement.holds(entry.copy_a, 1);
                ahead.push_back(inside.then(|| start_read(disks, placement, entry.copy_a, 1)));
            }
            if let Some(Some(read)) = ahead.pop_front()
                && let Ok(Some(buf)) = read.await
                && let Ok(page) = decode(&buf.as_slice()[..BLOCK_SIZE as usize])
            {
                bytes.extend(page);
                continue;
            }
        }
        bytes.extend(either(disks, placement, [entry.copy_a, entry.copy_b], decode, bad).await?);
    }
    if bytes.len() as u64 != root.stream_len {
        return Err(stream_corrupt("it is not as long as the superblock says"));
    }
    Ok((Stream::decode(&bytes)?, places))
}
