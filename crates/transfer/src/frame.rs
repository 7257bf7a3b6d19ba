//! Frames: what each has in it, and its bytes.

use crate::bytes::{In, Out};
use crate::error::StreamError;
use rowen_engine::planted;

/// Begins each frame.
pub const MAGIC: [u8; 4] = *b"RwTr";
/// Bytes of a frame before its body.
pub const HEADER: usize = 16;
pub const VERSION: u16 = 1;
/// The features that this program knows and cannot pass over: none.
pub const FEATURES: u64 = 0;
/// Ranges of a Data frame, and their bytes, at most.
pub const MAX_RANGES: usize = 256;
pub const MAX_DATA: usize = 1 << 20;
/// Volumes of a stream, at most.
pub const MAX_VOLUMES: usize = 256;
/// The longest body.
pub const MAX_BODY: usize = MAX_DATA + 64 * 1024;
/// A flag of a frame: who does not know its kind passes over it.
pub const OPTIONAL: u16 = 1;

/// The kinds of frames.
pub const KINDS: [(&str, u16); 6] =
    [("Head", HEAD), ("Volume", VOLUME), ("Data", DATA), ("Zero", ZERO), ("Mark", MARK), ("End", END)];
pub(crate) const HEAD: u16 = 1;
pub(crate) const VOLUME: u16 = 2;
pub(crate) const DATA: u16 = 3;
pub(crate) const ZERO: u16 = 4;
pub(crate) const MARK: u16 = 5;
pub(crate) const END: u16 = 6;

/// How the bytes of a Data frame are written.
pub(crate) const PLAIN: u8 = 0;
pub(crate) const ZSTD: u8 = 1;

/// A mark of a stream: a place that a receiver got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkPlace {
    pub stream: [u8; 16],
    /// The number of the volume in the stream, and the block up to which all of it was sent. Volumes before it were sent whole.
    pub volume: u32,
    pub block: u64,
    /// What the mark says of all frames before it.
    pub hash: [u8; 32],
}

/// The first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Random: by it a receiver knows a stream that was cut.
    pub stream: [u8; 16],
    /// The stream begins where another one was cut.
    pub continues: Option<MarkPlace>,
    /// Volumes of the stream, from 1 to [`MAX_VOLUMES`].
    pub volumes: u16,
    /// Seconds since 1970.
    pub time: u64,
    /// The sender's group.
    pub group: [u8; 16],
    pub group_name: String,
}

/// What a stream's changes are changes of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The identity of the contents.
    pub point: [u8; 16],
    pub name: String,
}

/// The volume that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    /// Its size in blocks.
    pub blocks: u64,
    /// Bytes of a sector of its device.
    pub sector: u32,
    /// It has its space from the beginning.
    pub thick: bool,
    pub base: Option<Base>,
    /// The identity of the contents that are sent.
    pub point: [u8; 16],
    pub snapshot: String,
    /// Blocks with data that follow, if that is known.
    pub changed: Option<u64>,
}

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub blocks: u32,
}

/// The last frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub data_blocks: u64,
    pub zero_blocks: u64,
    /// Frames before this one.
    pub frames: u64,
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.u16(VERSION);
        out.u16(self.volumes);
        out.u32(u32::from(self.continues.is_some()));
        out.u64(FEATURES);
        out.bytes(&self.stream);
        out.u64(self.time);
        out.bytes(&self.group);
        let nowhere = MarkPlace { stream: [0; 16], volume: 0, block: 0, hash: [0; 32] };
        let continues = self.continues.unwrap_or(nowhere);
        out.bytes(&continues.stream);
        out.u32(continues.volume);
        out.u32(0);
        out.u64(continues.block);
        out.bytes(&continues.hash);
        out.text(&self.group_name);
        out.0
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Head, StreamError> {
        let mut from = In::new(body);
        let version = from.u16()?;
        if version != VERSION {
            return Err(StreamError::Newer(format!(
                "it has version {version}, and this program reads version {VERSION}"
            )));
        }
        let volumes = from.u16()?;
        let is_continued = from.u32()?;
        let features = from.u64()?;
        if features & !FEATURES != 0 {
            return Err(StreamError::Newer(format!("it has features {features:#x}, which this program does not know")));
        }
        if volumes == 0 || usize::from(volumes) > MAX_VOLUMES || is_continued > 1 {
            return Err(StreamError::Malformed("the head's numbers are impossible"));
        }
        let (stream, time, group) = (from.uuid()?, from.u64()?, from.uuid()?);
        let (of, volume, reserved) = (from.uuid()?, from.u32()?, from.u32()?);
        let place = MarkPlace { stream: of, volume, block: from.u64()?, hash: from.hash()? };
        let group_name = from.text()?;
        from.end()?;
        if reserved != 0 || volume >= u32::from(volumes) {
            return Err(StreamError::Malformed("the head's numbers are impossible"));
        }
        let continues = (is_continued == 1).then_some(place);
        Ok(Head { stream, continues, volumes, time, group, group_name })
    }
}

impl Volume {
    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let mut out = Out::default();
        out.u32(number);
        out.u32(self.sector);
        out.u64(self.blocks);
        out.u8(u8::from(self.thick));
        out.u8(u8::from(self.base.is_some()));
        out.u16(0);
        out.u32(0);
        out.bytes(&self.point);
        out.bytes(&self.base.as_ref().map_or([0; 16], |base| base.point));
        out.u64(self.changed.unwrap_or(u64::MAX));
        out.text(&self.name);
        out.text(&self.snapshot);
        out.text(self.base.as_ref().map_or("", |base| &base.name));
        out.0
    }

    /// The volume that has this number.
    pub(crate) fn decode(body: &[u8], number: u32) -> Result<Volume, StreamError> {
        let mut from = In::new(body);
        let is_next = from.u32()? == number;
        let (sector, blocks) = (from.u32()?, from.u64()?);
        let (thick, has_base) = (from.u8()?, from.u8()?);
        let reserved = u32::from(from.u16()?) | from.u32()?;
        let (point, base) = (from.uuid()?, from.uuid()?);
        let changed = from.u64()?;
        let (name, snapshot, base_name) = (from.text()?, from.text()?, from.text()?);
        from.end()?;
        if !is_next || reserved != 0 || thick > 1 || has_base > 1 {
            return Err(StreamError::Malformed("a volume's flags are impossible"));
        }
        if !matches!(sector, 512 | 4096) || blocks == 0 || blocks >= 1 << 47 {
            return Err(StreamError::Malformed("a volume's sizes are impossible"));
        }
        let base = (has_base == 1).then_some(Base { point: base, name: base_name });
        let changed = Some(changed).filter(|changed| *changed != u64::MAX);
        Ok(Volume { name, blocks, sector, thick: thick == 1, base, point, snapshot, changed })
    }
}

/// Where a frame is: its checksum holds nowhere else (TR4).
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The stream's identifier, from the Head on; zeros for the Head itself.
    pub stream: [u8; 16],
    /// Frames before it.
    pub frame: u64,
}

/// The header of a frame with this body, which comes in two parts.
pub(crate) fn header(place: Place, kind: u16, flags: u16, body: [&[u8]; 2]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&kind.to_le_bytes());
    header[6..8].copy_from_slice(&flags.to_le_bytes());
    let len = body[0].len() + body[1].len();
    header[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = checksum(place, &header[..12], body);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// A whole frame, with its checksum.
pub fn sealed(place: Place, kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    [&header(place, kind, flags, [body, &[]])[..], body].concat()
}

/// CRC-32C of a frame: its place, the header before it, and the body.
pub(crate) fn checksum(place: Place, header: &[u8], body: [&[u8]; 2]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    if !planted::is("frames_without_place") {
        digest.update(&place.stream);
        digest.update(&place.frame.to_le_bytes());
    }
    digest.update(header);
    digest.update(body[0]);
    digest.update(body[1]);
    digest.finalize() as u32
}
