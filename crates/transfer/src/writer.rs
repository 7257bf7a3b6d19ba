//! Writes a stream.

use crate::BLOCK;
use crate::bytes::Out;
use crate::frame::{
    DATA, END, HEAD, Head, MARK, MAX_DATA, MAX_RANGES, MAX_VOLUMES, PLAIN, Place, Range, VOLUME, Volume, ZERO, ZSTD,
    header,
};
use std::io::{self, Write};

/// Bytes of data before the first mark. Between marks these get more, up to as many as the second number.
const FIRST_MARK: u64 = 512 << 10;
const BETWEEN_MARKS: u64 = 64 << 20;
/// What a range of zeros counts as.
const ZEROS: u64 = 4096;
/// zstd's fastest usual level.
const LEVEL: i32 = 1;

/// A stream that is being written: ranges are given in their order.
pub struct StreamWriter<W: Write> {
    to: W,
    hasher: blake3::Hasher,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    /// Where the next frame is.
    place: Place,
    data_blocks: u64,
    zero_blocks: u64,
    since_mark: u64,
    next_mark: u64,
    /// Of each volume the identities of the base, or zeros, and of what is sent.
    points: Vec<[[u8; 16]; 2]>,
}

impl<W: Write> StreamWriter<W> {
    /// Begins a stream. `compress`: data that gets shorter by it is compressed.
    ///
    /// # Panics
    /// If the head has another number of volumes.
    pub fn begin(to: W, head: &Head, volumes: &[Volume], compress: bool) -> io::Result<StreamWriter<W>> {
        assert!(volumes.len() == usize::from(head.volumes) && volumes.len() <= MAX_VOLUMES);
        let mut writer = StreamWriter {
            to,
            hasher: blake3::Hasher::new(),
            compressor: compress.then(|| zstd::bulk::Compressor::new(LEVEL)).transpose()?,
            place: Place::default(),
            data_blocks: 0,
            zero_blocks: 0,
            since_mark: 0,
            next_mark: FIRST_MARK,
            points: volumes.iter().map(points_of).collect(),
        };
        writer.frame(HEAD, [&head.encode(), &[]])?;
        writer.place.stream = head.stream;
        for (number, volume) in (0..).zip(volumes) {
            writer.frame(VOLUME, [&volume.encode(number), &[]])?;
        }
        Ok(writer)
    }

    /// Data of some ranges, as much as fits into a frame: at most [`MAX_RANGES`] and [`MAX_DATA`] bytes.
    pub fn data(&mut self, volume: u32, ranges: &[Range], bytes: &[u8]) -> io::Result<()> {
        let blocks: u64 = ranges.iter().map(|range| u64::from(range.blocks)).sum();
        assert!(ranges.len() <= MAX_RANGES && bytes.len() <= MAX_DATA && blocks * BLOCK == bytes.len() as u64);
        let packed = match &mut self.compressor {
            Some(compressor) => Some(compressor.compress(bytes)?).filter(|packed| packed.len() < bytes.len()),
            None => None,
        };
        let mut out = Out(Vec::with_capacity(16 + 12 * ranges.len()));
        out.u32(volume);
        out.u8(if packed.is_some() { ZSTD } else { PLAIN });
        out.u8(0);
        out.u16(ranges.len() as u16);
        out.u32(bytes.len() as u32);
        out.u32(0);
        for range in ranges {
            out.u64(range.start);
            out.u32(range.blocks);
        }
        self.data_blocks += blocks;
        self.frame(DATA, [&out.0, packed.as_deref().unwrap_or(bytes)])?;
        self.since_mark += bytes.len() as u64;
        let last = ranges.last().map_or(0, |range| range.start + u64::from(range.blocks));
        self.mark_in_time(volume, last)
    }

    /// Blocks that read as zeros.
    pub fn zeros(&mut self, volume: u32, start: u64, blocks: u64) -> io::Result<()> {
        let mut out = Out::default();
        out.u64(volume.into());
        out.u64(start);
        out.u64(blocks);
        self.zero_blocks += blocks;
        self.frame(ZERO, [&out.0, &[]])?;
        self.since_mark += ZEROS;
        self.mark_in_time(volume, start + blocks)
    }

    fn mark_in_time(&mut self, volume: u32, block: u64) -> io::Result<()> {
        if self.since_mark < self.next_mark {
            return Ok(());
        }
        self.next_mark = (2 * self.next_mark).min(BETWEEN_MARKS);
        self.mark(volume, block)
    }

    /// A place from which a receiver can go on: all before this block of this volume was sent.
    pub fn mark(&mut self, volume: u32, block: u64) -> io::Result<()> {
        let [base, point] = self.points[volume as usize];
        let mut out = Out::default();
        out.u64(volume.into());
        out.u64(block);
        out.bytes(&base);
        out.bytes(&point);
        out.bytes(self.hasher.finalize().as_bytes());
        self.since_mark = 0;
        self.frame(MARK, [&out.0, &[]])
    }

    /// Where it is written to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// Ends the stream.
    pub fn end(mut self) -> io::Result<W> {
        let mut out = Out::default();
        out.u64(self.data_blocks);
        out.u64(self.zero_blocks);
        out.u64(self.place.frame);
        out.bytes(self.hasher.finalize().as_bytes());
        self.frame(END, [&out.0, &[]])?;
        self.to.flush()?;
        Ok(self.to)
    }

    /// Writes a frame whose body comes in two parts: what is sent is copied as rarely as possible.
    fn frame(&mut self, kind: u16, body: [&[u8]; 2]) -> io::Result<()> {
        let header = header(self.place, kind, 0, body);
        for part in [&header[..], body[0], body[1]] {
            self.to.write_all(part)?;
            self.hasher.update(part);
        }
        self.place.frame += 1;
        Ok(())
    }
}

/// The identities that a mark in a volume says again.
pub(crate) fn points_of(volume: &Volume) -> [[u8; 16]; 2] {
    [volume.base.as_ref().map_or([0; 16], |base| base.point), volume.point]
}
