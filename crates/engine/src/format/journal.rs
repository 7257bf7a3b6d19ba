//! Journal frames and the records in them.
//!
//! The ring holds frames, each written by one request: a header, then records, padded to whole blocks. A frame never
//! wraps: if it does not fit before the ring's end, it starts at byte 0. A reader expects the sequence number that
//! follows the previous frame. Anything else is the end of the journal.

use super::codec::{Decoder, Encoder};
use super::record::{block_crc, on_disk, seal};
use super::stream::{get_volume, put_volume};
use crate::error::{Error, Result};
use crate::model::VolumeMeta;
use crate::units::{BLOCK_SIZE, LvBlock, Seq, TreeId, VgBlock, VolumeId};
use smallvec::SmallVec;

const FRAME_MAGIC: u64 = u64::from_le_bytes(*b"ROWENJRN");
/// Largest frame, in bytes, header and padding included.
pub const MAX_FRAME: usize = 1 << 20;

on_disk! {
    /// Head of a journal frame. `len` counts the bytes of the records; the checksum covers header and records.
    FrameHeader, 64 {
        0 => magic: u64,
        8 => crc: u32,
        12 => len: u32,
        16 => journal_id: u64,
        24 => first_seq: u64,
        32 => count: u32,
        36 => reserved: u32,
        40 => marker: u64,
        48 => group: u64,
        56 => position: u64,
    }
}

on_disk! {
    /// Head of a record: its kind and the bytes of its body.
    RecordHeader, 8 {
        0 => kind: u16,
        2 => reserved: u16,
        4 => len: u32,
    }
}

on_disk! {
    /// Body of a Write record (kind 1), followed by `count` extents.
    WriteRecord, 16 {
        0 => volume: u64,
        8 => count: u32,
        12 => reserved: u32,
    }
}

on_disk! {
    /// One extent of a Write record: LV blocks that are now mapped to these VG blocks, and the checksum of their data.
    WriteExtentRecord, 24 {
        0 => lv_block: u64,
        8 => vg_block: u64,
        16 => len: u32,
        20 => data_crc: u32,
    }
}

on_disk! {
    /// Body of an Unmap record (kind 2): discard or write-zeroes.
    UnmapRecord, 24 {
        0 => volume: u64,
        8 => lv_block: u64,
        16 => len: u64,
    }
}

on_disk! {
    /// Body of a Resize record (kind 6), followed by `count` placed extents (a thick volume's new space).
    ResizeRecord, 24 {
        0 => volume: u64,
        8 => blocks: u64,
        16 => count: u64,
    }
}

on_disk! {
    /// Contiguous VG blocks given to LV blocks, unwritten.
    PlacedRecord, 24 {
        0 => lv_block: u64,
        8 => vg_block: u64,
        16 => len: u64,
    }
}

/// One extent of a redirected or first write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteExtent {
    pub lv_block: LvBlock,
    pub vg_block: VgBlock,
    pub len: u32,
    pub data_crc: u32,
}

/// Space given to a thick volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub lv_block: LvBlock,
    pub vg_block: VgBlock,
    pub len: u64,
}

/// One member of an atomic snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotPart {
    pub origin: VolumeId,
    /// The point that freezes the origin.
    pub point: TreeId,
    /// The new volume; its head is a child of the point.
    pub volume: VolumeMeta,
}

/// A change to the group, as the journal stores it. Replay of all records in order gives the last state.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Write {
        volume: VolumeId,
        extents: SmallVec<[WriteExtent; 2]>,
    },
    Unmap {
        volume: VolumeId,
        start: LvBlock,
        len: u64,
    },
    /// The record `seq` did not happen: its data could not be written.
    Abort {
        seq: Seq,
    },
    Create {
        volume: VolumeMeta,
        placed: Vec<Placed>,
    },
    Snapshot {
        parts: Vec<SnapshotPart>,
    },
    Resize {
        volume: VolumeId,
        blocks: u64,
        placed: Vec<Placed>,
    },
    Remove {
        volumes: Vec<VolumeId>,
    },
    /// `target` takes the contents of `source`: its head when `consume`, else a new head over a new point.
    Revert {
        target: VolumeId,
        source: VolumeId,
        consume: bool,
        point: TreeId,
        head: TreeId,
    },
    /// Name, permission, reserve or attributes changed.
    Update {
        volume: VolumeMeta,
    },
    /// A snapshot outgrew its reserve.
    Invalidate {
        volume: VolumeId,
    },
}

impl Record {
    fn kind(&self) -> u16 {
        match self {
            Record::Write { .. } => 1,
            Record::Unmap { .. } => 2,
            Record::Abort { .. } => 3,
            Record::Create { .. } => 4,
            Record::Snapshot { .. } => 5,
            Record::Resize { .. } => 6,
            Record::Remove { .. } => 7,
            Record::Revert { .. } => 8,
            Record::Update { .. } => 9,
            Record::Invalidate { .. } => 10,
        }
    }

    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Encoder) {
        let at = out.bytes.len();
        out.record(&[0; RecordHeader::SIZE]);
        match self {
            Record::Write { volume, extents } => {
                let count = u32::try_from(extents.len()).expect("a write has few extents");
                out.record(&WriteRecord { volume: volume.0, count, reserved: 0 }.encode());
                for e in extents {
                    let extent = WriteExtentRecord {
                        lv_block: e.lv_block.0,
                        vg_block: e.vg_block.0,
                        len: e.len,
                        data_crc: e.data_crc,
                    };
                    out.record(&extent.encode());
                }
            }
            Record::Unmap { volume, start, len } => {
                out.record(&UnmapRecord { volume: volume.0, lv_block: start.0, len: *len }.encode());
            }
            Record::Abort { seq } => out.u64(seq.0),
            Record::Create { volume, placed } => {
                put_volume(out, volume);
                out.u64(placed.len() as u64);
                put_placed(out, placed);
            }
            Record::Snapshot { parts } => {
                out.u64(parts.len() as u64);
                for part in parts {
                    out.u64(part.origin.0);
                    out.u64(part.point.0);
                    put_volume(out, &part.volume);
                }
            }
            Record::Resize { volume, blocks, placed } => {
                let count = placed.len() as u64;
                out.record(&ResizeRecord { volume: volume.0, blocks: *blocks, count }.encode());
                put_placed(out, placed);
            }
            Record::Remove { volumes } => {
                out.u64(volumes.len() as u64);
                volumes.iter().for_each(|v| out.u64(v.0));
            }
            Record::Revert { target, source, consume, point, head } => {
                [target.0, source.0, u64::from(*consume), point.0, head.0].into_iter().for_each(|n| out.u64(n));
            }
            Record::Update { volume } => put_volume(out, volume),
            Record::Invalidate { volume } => out.u64(volume.0),
        }
        let len = u32::try_from(out.bytes.len() - at - RecordHeader::SIZE).expect("records are far below 4 GiB");
        let header = RecordHeader { kind: self.kind(), reserved: 0, len };
        out.bytes[at..at + RecordHeader::SIZE].copy_from_slice(&header.encode());
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Record> {
        let header = RecordHeader::decode(input.array()?);
        input.zero(&header.reserved.to_le_bytes())?;
        let body = input.take(header.len as usize)?;
        let mut body = Decoder::new("journal record", body);
        let record = match header.kind {
            1 => {
                let fixed = WriteRecord::decode(body.array()?);
                body.zero(&fixed.reserved.to_le_bytes())?;
                let count = body.count(u64::from(fixed.count), WriteExtentRecord::SIZE)?;
                let mut extents = SmallVec::with_capacity(count);
                for _ in 0..count {
                    let e = WriteExtentRecord::decode(body.array()?);
                    body.run(e.lv_block, u64::from(e.len), "a write of LV blocks")?;
                    body.run(e.vg_block, u64::from(e.len), "a write to VG blocks")?;
                    extents.push(WriteExtent {
                        lv_block: LvBlock(e.lv_block),
                        vg_block: VgBlock(e.vg_block),
                        len: e.len,
                        data_crc: e.data_crc,
                    });
                }
                Record::Write { volume: VolumeId(fixed.volume), extents }
            }
            2 => {
                let r = UnmapRecord::decode(body.array()?);
                body.run(r.lv_block, r.len, "an unmap of LV blocks")?;
                Record::Unmap { volume: VolumeId(r.volume), start: LvBlock(r.lv_block), len: r.len }
            }
            3 => Record::Abort { seq: Seq(body.u64()?) },
            4 => {
                let volume = new_volume(&mut body)?;
                let count = body.u64()?;
                Record::Create { volume, placed: get_placed(&mut body, count)? }
            }
            5 => {
                let count = body.u64()?;
                let mut parts = Vec::with_capacity(body.count(count, 16)?);
                for _ in 0..count {
                    let origin = VolumeId(body.u64()?);
                    let point = tree_id(&mut body)?;
                    parts.push(SnapshotPart { origin, point, volume: new_volume(&mut body)? });
                }
                Record::Snapshot { parts }
            }
            6 => {
                let r = ResizeRecord::decode(body.array()?);
                body.run(0, r.blocks, "a size of LV blocks")?;
                let placed = get_placed(&mut body, r.count)?;
                Record::Resize { volume: VolumeId(r.volume), blocks: r.blocks, placed }
            }
            7 => {
                let count = body.u64()?;
                let mut volumes = Vec::with_capacity(body.count(count, 8)?);
                for _ in 0..count {
                    volumes.push(VolumeId(body.u64()?));
                }
                Record::Remove { volumes }
            }
            8 => Record::Revert {
                target: VolumeId(body.u64()?),
                source: VolumeId(body.u64()?),
                consume: match body.u64()? {
                    0 => false,
                    1 => true,
                    other => return Err(body.corrupt(format!("a flag of {other}"))),
                },
                point: tree_id(&mut body)?,
                head: tree_id(&mut body)?,
            },
            9 => Record::Update { volume: get_volume(&mut body)? },
            10 => Record::Invalidate { volume: VolumeId(body.u64()?) },
            kind => return Err(body.corrupt(format!("a record of unknown kind {kind}"))),
        };
        match body.remaining() {
            0 => Ok(record),
            left => Err(body.corrupt(format!("{left} bytes left over"))),
        }
    }
}

/// A new volume in a record. It must have a head; an invalid volume has none.
fn new_volume(body: &mut Decoder<'_>) -> Result<VolumeMeta> {
    let volume = get_volume(body)?;
    body.limited(volume.head.0, "a head's id")?;
    Ok(volume)
}

fn tree_id(body: &mut Decoder<'_>) -> Result<TreeId> {
    let id = body.u64()?;
    body.limited(id, "a tree's id").map(TreeId)
}

fn put_placed(out: &mut Encoder, placed: &[Placed]) {
    for p in placed {
        out.record(&PlacedRecord { lv_block: p.lv_block.0, vg_block: p.vg_block.0, len: p.len }.encode());
    }
}

fn get_placed(body: &mut Decoder<'_>, count: u64) -> Result<Vec<Placed>> {
    let count = body.count(count, PlacedRecord::SIZE)?;
    (0..count)
        .map(|_| {
            let p = PlacedRecord::decode(body.array()?);
            body.run(p.lv_block, p.len, "a place for LV blocks")?;
            body.run(p.vg_block, p.len, "a place on VG blocks")?;
            Ok(Placed { lv_block: LvBlock(p.lv_block), vg_block: VgBlock(p.vg_block), len: p.len })
        })
        .collect()
}

/// What identifies a frame besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId {
    pub journal_id: u64,
    pub group: u64,
    /// Byte in the ring.
    pub position: u64,
    pub first_seq: Seq,
}

/// Bytes that a frame of `records` bytes takes in the ring.
pub fn frame_bytes(records: usize) -> usize {
    (FrameHeader::SIZE + records).next_multiple_of(BLOCK_SIZE as usize)
}

/// Makes a frame of encoded records in `block`, which is zeroed and as long as [`frame_bytes`] says.
pub fn encode_frame(id: FrameId, count: u32, marker: Seq, records: &[u8], block: &mut [u8]) {
    let header = FrameHeader {
        magic: FRAME_MAGIC,
        crc: 0,
        len: u32::try_from(records.len()).expect("a frame is at most MAX_FRAME bytes"),
        journal_id: id.journal_id,
        first_seq: id.first_seq.0,
        count,
        reserved: 0,
        marker: marker.0,
        group: id.group,
        position: id.position,
    };
    let end = FrameHeader::SIZE + records.len();
    block[..FrameHeader::SIZE].copy_from_slice(&header.encode());
    block[FrameHeader::SIZE..end].copy_from_slice(records);
    seal(&mut block[..end], 8);
}

/// A frame that recovery found.
#[derive(Debug)]
pub struct Frame {
    pub records: Vec<Record>,
    pub marker: Seq,
    /// Bytes it takes in the ring.
    pub bytes: u64,
}

/// The identity that the frame at the start of `bytes` claims, if there may be a frame.
pub fn frame_id(bytes: &[u8]) -> Option<FrameId> {
    let header = FrameHeader::decode_from(bytes).filter(|header| header.magic == FRAME_MAGIC)?;
    Some(FrameId {
        journal_id: header.journal_id,
        group: header.group,
        position: header.position,
        first_seq: Seq(header.first_seq),
    })
}

/// The length of the frame at the start of `bytes`, if there may be a frame with this identity.
pub fn frame_len(bytes: &[u8], id: FrameId) -> Option<usize> {
    let header = FrameHeader::decode_from(bytes)?;
    let len = frame_bytes(header.len as usize);
    (frame_id(bytes) == Some(id) && len <= MAX_FRAME).then_some(len)
}

/// The frame at the start of `bytes`. `Ok(None)`: there is no whole frame with this identity, so the journal ends here.
/// A frame with a right checksum and impossible records is damage.
pub fn decode_frame(bytes: &[u8], id: FrameId) -> Result<Option<Frame>> {
    let Some(len) = frame_len(bytes, id).filter(|len| *len <= bytes.len()) else { return Ok(None) };
    let header = FrameHeader::decode_from(bytes).expect("frame_len saw a header");
    let end = FrameHeader::SIZE + header.len as usize;
    if block_crc(&bytes[..end], 8) != header.crc {
        return Ok(None);
    }
    let mut input = Decoder::new("journal frame", &bytes[FrameHeader::SIZE..end]);
    input.zero(&header.reserved.to_le_bytes())?;
    let mut records = Vec::new();
    for _ in 0..header.count {
        records.push(Record::decode(&mut input)?);
    }
    if input.remaining() != 0 {
        return Err(Error::Corrupt {
            what: "journal frame",
            place: format!("byte {} of the ring", id.position),
            detail: format!("{} bytes left over", input.remaining()),
        });
    }
    Ok(Some(Frame { records, marker: Seq(header.marker), bytes: len as u64 }))
}
