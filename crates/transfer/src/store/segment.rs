//! A segment: an object of frames, each compressed and summed by itself, so that one can be read without the others.

use super::entry::Kind;
use super::error::{Result, StoreError};
use super::seal::{From, SUM, Seal};
use super::{FRAME_BLOCKS, SEGMENT_BLOCKS};
use crate::{BLOCK, Range};
use rowen_engine::planted;

pub const MAGIC: [u8; 4] = *b"RwSg";
pub const VERSION: u16 = 1;
/// Bytes before the index.
const HEADER: usize = 4 + 2 + 1 + 1 + 16 + 8 + 4 + 4;
/// Bytes of the index for a frame and for a range.
const OF_FRAME: usize = 4 + 4 + 1 + 3 + SUM;
const OF_RANGE: usize = 8 + 4 + 1 + 3;
/// Frames, ranges and bytes of a frame, at most.
pub const MOST_FRAMES: usize = SEGMENT_BLOCKS as usize;
pub const MOST_RANGES: usize = 2 * SEGMENT_BLOCKS as usize;
pub const MOST_RAW: usize = 16 << 20;
/// So many bytes from the beginning have the whole index of most segments.
pub const FIRST_READ: u64 = 128 << 10;
/// Blocks or frames with which a segment is full: less in tests, so that small volumes have several.
const FULL: u64 = if cfg!(test) { 64 } else { SEGMENT_BLOCKS };
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
const LEVEL: i32 = 1;
/// The sum of the index has this place.
const INDEX_PLACE: u64 = u64::MAX - 1;

/// What a part of a volume was found to have: a push that goes on reads it instead of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub range: Range,
    /// Zeros, which have no block in the segment.
    pub is_zeros: bool,
}

/// A segment that is being filled.
pub struct Filling {
    pub kind: Kind,
    pub number: u64,
    frames: Vec<Vec<u8>>,
    held: Vec<Held>,
    blocks: u64,
    bytes: usize,
}

/// A frame's place in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    at: u64,
    len: u32,
    raw: u32,
    codec: u8,
    sum: [u8; SUM],
}

/// The index of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    name: String,
    frames: Vec<Frame>,
    pub held: Vec<Held>,
    /// Bytes of the object.
    pub len: u64,
}

impl Filling {
    pub fn new(kind: Kind, number: u64) -> Filling {
        Filling { kind, number, frames: Vec::new(), held: Vec::new(), blocks: 0, bytes: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.held.is_empty()
    }

    pub fn has_blocks(&self) -> bool {
        self.blocks > 0
    }

    /// Whether nothing more fits.
    pub fn is_full(&self) -> bool {
        let is_long = self.bytes as u64 >= SEGMENT_BLOCKS * BLOCK;
        is_long || self.blocks == FULL || self.frames.len() as u64 == FULL || self.held.len() >= MOST_RANGES
    }

    /// Adds a block of a volume, and gives out its address.
    pub fn block(&mut self, block: u64, bytes: &[u8]) -> u64 {
        let place = self.blocks;
        if place.is_multiple_of(FRAME_BLOCKS) {
            self.frames.push(Vec::with_capacity((FRAME_BLOCKS * BLOCK) as usize));
        }
        self.frames.last_mut().expect("there is one").extend(bytes);
        self.blocks += 1;
        self.bytes += bytes.len();
        self.hold(block, 1, false);
        self.number * SEGMENT_BLOCKS + place
    }

    /// Notes that a range of a volume was zeros.
    pub fn zeros(&mut self, start: u64, blocks: u64) {
        self.hold(start, blocks, true);
    }

    fn hold(&mut self, start: u64, blocks: u64, is_zeros: bool) {
        if let Some(last) = self.held.last_mut() {
            let total = u64::from(last.range.blocks) + blocks;
            let joins = last.is_zeros == is_zeros && last.range.start + u64::from(last.range.blocks) == start;
            if joins && u32::try_from(total).is_ok() {
                last.range.blocks = total as u32;
                return;
            }
        }
        let (mut start, mut left) = (start, blocks);
        while left > 0 {
            let now = left.min(u64::from(u32::MAX));
            self.held.push(Held { range: Range { start, blocks: now as u32 }, is_zeros });
            (start, left) = (start + now, left - now);
        }
    }

    /// Adds a frame of its own, and gives out its address.
    pub fn frame(&mut self, bytes: Vec<u8>) -> u64 {
        let place = self.frames.len() as u64;
        self.bytes += bytes.len();
        self.frames.push(bytes);
        self.number * SEGMENT_BLOCKS + place
    }

    /// Its bytes.
    pub fn finish(&self, seal: &Seal, store: [u8; 16]) -> Vec<u8> {
        let name = self.kind.name(self.number);
        let mut compressor = zstd::bulk::Compressor::new(LEVEL).ok();
        let mut index = Vec::with_capacity(HEADER + self.frames.len() * OF_FRAME);
        index.extend(MAGIC);
        index.extend(VERSION.to_le_bytes());
        index.extend([self.kind.code(), 0]);
        index.extend(store);
        index.extend(self.number.to_le_bytes());
        index.extend((self.frames.len() as u32).to_le_bytes());
        index.extend((self.held.len() as u32).to_le_bytes());
        let mut body: Vec<u8> = Vec::with_capacity(self.bytes);
        for (place, raw) in (0..).zip(&self.frames) {
            let packed = compressor.as_mut().and_then(|compressor| compressor.compress(raw).ok());
            let packed = packed.filter(|packed| packed.len() < raw.len());
            let written = packed.as_deref().unwrap_or(raw);
            index.extend((written.len() as u32).to_le_bytes());
            index.extend((raw.len() as u32).to_le_bytes());
            index.extend([if packed.is_some() { ZSTD } else { PLAIN }, 0, 0, 0]);
            index.extend(seal.sum(&name, place, written));
            body.extend_from_slice(written);
        }
        for held in &self.held {
            index.extend(held.range.start.to_le_bytes());
            index.extend(held.range.blocks.to_le_bytes());
            index.extend([u8::from(held.is_zeros), 0, 0, 0]);
        }
        let sum = seal.sum(&name, INDEX_PLACE, &index);
        index.extend(sum);
        index.extend(body);
        index
    }
}

impl Index {
    /// How many bytes the index has, if these are the first ones of the object.
    pub fn wanted(kind: Kind, number: u64, first: &[u8]) -> Result<u64> {
        let name = kind.name(number);
        let mut from = From::new(&name, first);
        from.take(HEADER - 8)?;
        let (frames, ranges) = (from.u32()? as usize, from.u32()? as usize);
        if frames > MOST_FRAMES || ranges > 4 * MOST_RANGES {
            return Err(from.damaged("its counts are impossible"));
        }
        Ok((HEADER + frames * OF_FRAME + ranges * OF_RANGE + SUM) as u64)
    }

    /// Reads an index; `bytes` begins with it.
    pub fn decode(seal: &Seal, store: [u8; 16], (kind, number): (Kind, u64), bytes: &[u8]) -> Result<Index> {
        let name = kind.name(number);
        let len = Index::wanted(kind, number, bytes)? as usize;
        let damaged = |what| StoreError::Damaged { name: name.clone(), what };
        let whole = bytes.get(..len).ok_or_else(|| damaged("it is too short"))?;
        let (body, sum) = whole.split_at(len - SUM);
        if seal.sum(&name, INDEX_PLACE, body) != sum && !planted::is("store_sums_unread") {
            return Err(damaged("its index is not what was written"));
        }
        let mut from = From::new(&name, body);
        if from.array::<4>()? != MAGIC {
            return Err(from.damaged("it is no segment"));
        }
        let version = from.u16()?;
        if version != VERSION {
            return Err(StoreError::Newer(format!("{name} has version {version}")));
        }
        let (code, _reserved) = (from.u8()?, from.u8()?);
        if code != kind.code() || from.array::<16>()? != store || from.u64()? != number {
            return Err(from.damaged("it is of another store, or has another number"));
        }
        let (frames, ranges) = (from.u32()? as usize, from.u32()? as usize);
        let mut at = len as u64;
        let mut index = Index { name: name.clone(), frames: Vec::with_capacity(frames), held: Vec::new(), len: 0 };
        for _ in 0..frames {
            let (len, raw, codec) = (from.u32()?, from.u32()?, from.u8()?);
            from.take(3)?;
            if raw as usize > MOST_RAW || len > raw || codec > ZSTD || (codec == PLAIN && len != raw) {
                return Err(from.damaged("a frame has impossible numbers"));
            }
            index.frames.push(Frame { at, len, raw, codec, sum: from.array()? });
            at += u64::from(len);
        }
        for _ in 0..ranges {
            let range = Range { start: from.u64()?, blocks: from.u32()? };
            let is_zeros = from.u8()? == 1;
            from.take(3)?;
            if range.start.checked_add(range.blocks.into()).is_none_or(|end| end > 1 << 47) {
                return Err(from.damaged("a range is impossible"));
            }
            index.held.push(Held { range, is_zeros });
        }
        from.end()?;
        index.len = at;
        Ok(index)
    }

    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of the object from the first of these frames to the last one.
    pub fn span(&self, first: usize, last: usize) -> Result<std::ops::Range<u64>> {
        match (self.frames.get(first), self.frames.get(last)) {
            (Some(first), Some(last)) => Ok(first.at..last.at + u64::from(last.len)),
            _ => Err(StoreError::Damaged { name: self.name.clone(), what: "it has less frames than a map says" }),
        }
    }

    /// What a frame has in it; `bytes` are those of the object from `from` on.
    pub fn open(&self, seal: &Seal, frame: usize, from: u64, bytes: &[u8]) -> Result<Vec<u8>> {
        let damaged = |what| StoreError::Damaged { name: self.name.clone(), what };
        let span = self.span(frame, frame)?;
        let place = &self.frames[frame];
        let cut = |at: u64| at.checked_sub(from).and_then(|at| usize::try_from(at).ok());
        let written = match (cut(span.start), cut(span.end)) {
            (Some(start), Some(end)) => bytes.get(start..end),
            _ => None,
        };
        let written = written.ok_or_else(|| damaged("it is too short"))?;
        if seal.sum(&self.name, frame as u64, written) != place.sum && !planted::is("store_sums_unread") {
            return Err(damaged("a part of it is not what was written"));
        }
        let raw = match place.codec {
            PLAIN => written.to_vec(),
            _ => zstd::bulk::decompress(written, place.raw as usize)
                .map_err(|_| damaged("a part of it cannot be decompressed"))?,
        };
        if raw.len() != place.raw as usize {
            return Err(damaged("a part of it has less than it says"));
        }
        Ok(raw)
    }
}
