//! Reads a stream, and believes none of it before it was checked.

use crate::BLOCK;
use crate::bytes::In;
use crate::error::StreamError;
use crate::frame::{
    DATA, END, End, HEAD, HEADER, Head, MAGIC, MARK, MAX_BODY, MAX_DATA, MAX_RANGES, MarkPlace, OPTIONAL, PLAIN, Place,
    Range, VOLUME, Volume, ZERO, ZSTD, checksum,
};
use crate::writer::points_of;
use rowen_engine::planted;
use std::io::{self, Read};

/// What comes next in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The bytes of these ranges of the volume of this number.
    Data { volume: u32, ranges: Vec<Range>, bytes: Vec<u8> },
    /// Blocks that read as zeros.
    Zeros { volume: u32, start: u64, blocks: u64 },
    /// A place from which a receiver can go on: all before it is right.
    Mark(MarkPlace),
    /// All of it is right, and nothing follows.
    End(End),
}

/// A stream that is being read.
pub struct StreamReader<R: Read> {
    from: R,
    hasher: blake3::Hasher,
    /// Where the next frame is, and how many bytes are before it.
    place: Place,
    at: u64,
    /// Of each volume its size in blocks, and the identities of the base and of what is sent.
    volumes: Vec<(u64, [[u8; 16]; 2])>,
    /// The first volume and its first block that may come.
    next_volume: u32,
    next_block: u64,
    data_blocks: u64,
    zero_blocks: u64,
    has_ended: bool,
}

struct Frame {
    kind: u16,
    body: Vec<u8>,
    /// Of a mark and of the end: the hash of all frames before it, also of those that were passed over.
    before: Option<blake3::Hash>,
}

impl<R: Read> StreamReader<R> {
    /// Reads what comes before the first data.
    pub fn begin(from: R) -> Result<(StreamReader<R>, Head, Vec<Volume>), StreamError> {
        let mut reader = StreamReader {
            from,
            hasher: blake3::Hasher::new(),
            place: Place::default(),
            at: 0,
            volumes: Vec::new(),
            next_volume: 0,
            next_block: 0,
            data_blocks: 0,
            zero_blocks: 0,
            has_ended: false,
        };
        let head = reader.only(HEAD)?;
        let head = Head::decode(&head.body)?;
        reader.place.stream = head.stream;
        let mut volumes = Vec::new();
        for number in 0..u32::from(head.volumes) {
            let volume = reader.only(VOLUME)?;
            let volume = Volume::decode(&volume.body, number)?;
            reader.volumes.push((volume.blocks, points_of(&volume)));
            volumes.push(volume);
        }
        if let Some(place) = head.continues {
            reader.go_to(place.volume, place.block)?;
        }
        Ok((reader, head, volumes))
    }

    /// Frames that were read.
    pub fn frames(&self) -> u64 {
        self.place.frame
    }

    /// What comes next. Nothing comes after [`Event::End`] or an error.
    pub fn next_event(&mut self) -> Result<Event, StreamError> {
        if self.has_ended {
            return Err(StreamError::GoesOn);
        }
        let frame = self.frame()?;
        match frame.kind {
            DATA => self.data(frame.body),
            ZERO => self.zeros(&frame.body),
            MARK => self.mark(&frame),
            END => {
                let mut body = In::new(&frame.body);
                let end = End { data_blocks: body.u64()?, zero_blocks: body.u64()?, frames: body.u64()? };
                let hash = body.hash()?;
                body.end()?;
                self.compare(hash, &frame)?;
                let frames = self.place.frame - 1;
                if (end.data_blocks, end.zero_blocks, end.frames) != (self.data_blocks, self.zero_blocks, frames) {
                    return Err(StreamError::OtherFrames);
                }
                self.has_ended = true;
                self.nothing_follows()?;
                Ok(Event::End(end))
            }
            _ => Err(StreamError::Malformed("a frame is where it cannot be")),
        }
    }

    /// Reads what is left, and looks at none of it: who writes a stream that nobody needs comes to its end, too.
    pub fn pass_over(mut self) -> io::Result<()> {
        io::copy(&mut self.from, &mut io::sink()).map(drop)
    }

    fn mark(&mut self, frame: &Frame) -> Result<Event, StreamError> {
        let mut body = In::new(&frame.body);
        let (volume, block) = (body.volume()?, body.u64()?);
        let (points, hash) = ([body.uuid()?, body.uuid()?], body.hash()?);
        body.end()?;
        self.compare(hash, frame)?;
        self.go_to(volume, block)?;
        let is_of_these = self.volumes[volume as usize].1 == points;
        if !is_of_these && !planted::is("marks_of_others") {
            return Err(StreamError::OtherFrames);
        }
        Ok(Event::Mark(MarkPlace { stream: self.place.stream, volume, block, hash }))
    }

    fn compare(&self, hash: [u8; 32], frame: &Frame) -> Result<(), StreamError> {
        if frame.before == Some(blake3::Hash::from_bytes(hash)) || planted::is("hash_not_compared") {
            Ok(())
        } else {
            Err(StreamError::OtherFrames)
        }
    }

    fn data(&mut self, mut frame: Vec<u8>) -> Result<Event, StreamError> {
        let mut body = In::new(&frame);
        let volume = body.u32()?;
        let (codec, reserved) = (body.u8()?, body.u8()?);
        let count = usize::from(body.u16()?);
        let len = body.u32()? as usize;
        let more = body.u32()?;
        if reserved != 0 || more != 0 || count == 0 || count > MAX_RANGES || len > MAX_DATA {
            return Err(StreamError::Malformed("a frame of data has impossible numbers"));
        }
        let mut ranges = Vec::with_capacity(count);
        let mut blocks = 0;
        for _ in 0..count {
            let range = Range { start: body.u64()?, blocks: body.u32()? };
            self.advance(volume, range.start, u64::from(range.blocks))?;
            blocks += u64::from(range.blocks);
            ranges.push(range);
        }
        if blocks * BLOCK != len as u64 {
            return Err(StreamError::Malformed("a frame has other data than its ranges"));
        }
        self.data_blocks += blocks;
        let written = body.rest();
        let bytes = match codec {
            PLAIN => {
                // The frame itself, without what is before the data: nothing new is allocated.
                let before = frame.len() - written.len();
                frame.drain(..before);
                frame
            }
            ZSTD => zstd::bulk::decompress(written, len)
                .map_err(|_| StreamError::Malformed("compressed data is damaged"))?,
            _ => {
                return Err(StreamError::Newer(
                    "its data is compressed in a way that this program does not know".into(),
                ));
            }
        };
        if bytes.len() != len {
            return Err(StreamError::Malformed("a frame has less data than it says"));
        }
        Ok(Event::Data { volume, ranges, bytes })
    }

    fn zeros(&mut self, body: &[u8]) -> Result<Event, StreamError> {
        let mut body = In::new(body);
        let (volume, start, blocks) = (body.volume()?, body.u64()?, body.u64()?);
        body.end()?;
        self.advance(volume, start, blocks)?;
        self.zero_blocks += blocks;
        Ok(Event::Zeros { volume, start, blocks })
    }

    /// TR3: volumes come in their order, ranges rise, and they lie within the volume.
    fn advance(&mut self, volume: u32, start: u64, blocks: u64) -> Result<(), StreamError> {
        if planted::is("ranges_not_compared") {
            return Ok(());
        }
        let end = start.checked_add(blocks).filter(|_| blocks > 0);
        let end = end.ok_or(StreamError::Malformed("a range has no blocks, or too many"))?;
        self.go_to(volume, start)?;
        self.go_to(volume, end)
    }

    /// What comes next is not before this place, which is in the stream's volumes.
    fn go_to(&mut self, volume: u32, block: u64) -> Result<(), StreamError> {
        let is_forward = (volume, block) >= (self.next_volume, self.next_block);
        match self.volumes.get(volume as usize) {
            Some((blocks, _)) if block <= *blocks && is_forward => {
                (self.next_volume, self.next_block) = (volume, block);
                Ok(())
            }
            _ => Err(StreamError::Malformed("a range is out of order or beyond the volume's end")),
        }
    }

    /// The next frame, which is of this kind.
    fn only(&mut self, kind: u16) -> Result<Frame, StreamError> {
        let frame = self.frame()?;
        if frame.kind == kind { Ok(frame) } else { Err(StreamError::Malformed("a frame is where it cannot be")) }
    }

    /// The next frame that this program knows (TR1, TR2).
    fn frame(&mut self) -> Result<Frame, StreamError> {
        loop {
            let (place, at) = (self.place, self.at);
            let frame = place.frame;
            let mut header = [0; HEADER];
            if frame == 0 {
                self.fill_first(&mut header)?;
            } else {
                self.fill(&mut header)?;
            }
            let [m0, m1, m2, m3, k0, k1, f0, f1, l0, l1, l2, l3, c0, c1, c2, c3] = header;
            if [m0, m1, m2, m3] != MAGIC {
                return Err(StreamError::Damaged { frame, byte: at });
            }
            let (kind, flags) = (u16::from_le_bytes([k0, k1]), u16::from_le_bytes([f0, f1]));
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            if len > MAX_BODY {
                return Err(StreamError::Damaged { frame, byte: at });
            }
            let mut body = Vec::with_capacity(len.min(64 << 10));
            let read = (&mut self.from).take(len as u64).read_to_end(&mut body).map_err(StreamError::Io)?;
            if read < len {
                return Err(StreamError::Cut);
            }
            self.at += len as u64;
            let crc = u32::from_le_bytes([c0, c1, c2, c3]);
            if checksum(place, &header[..12], [&body, &[]]) != crc && !planted::is("checksum_not_compared") {
                return Err(StreamError::Damaged { frame, byte: at });
            }
            let before = matches!(kind, MARK | END).then(|| self.hasher.finalize());
            self.hasher.update(&header);
            self.hasher.update(&body);
            self.place.frame += 1;
            let is_known = (HEAD..=END).contains(&kind);
            match (is_known, flags) {
                (true, 0) => return Ok(Frame { kind, body, before }),
                (false, OPTIONAL) => {}
                _ => {
                    let what =
                        format!("it has a frame of kind {kind} with flags {flags}, which this program does not know");
                    return Err(StreamError::Newer(what));
                }
            }
        }
    }

    /// The first bytes of all. What is too short for a stream may be something else.
    fn fill_first(&mut self, to: &mut [u8]) -> Result<(), StreamError> {
        let mut read = Vec::with_capacity(to.len());
        (&mut self.from).take(to.len() as u64).read_to_end(&mut read).map_err(StreamError::Io)?;
        let begins = read.iter().zip(&MAGIC).all(|(byte, magic)| byte == magic);
        match read.len() {
            0 => return Err(StreamError::Empty),
            _ if !begins => return Err(StreamError::NoStream),
            len if len < to.len() => return Err(StreamError::Cut),
            _ => to.copy_from_slice(&read),
        }
        self.at += to.len() as u64;
        Ok(())
    }

    fn fill(&mut self, to: &mut [u8]) -> Result<(), StreamError> {
        self.from.read_exact(to).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => StreamError::Cut,
            _ => StreamError::Io(error),
        })?;
        self.at += to.len() as u64;
        Ok(())
    }

    fn nothing_follows(&mut self) -> Result<(), StreamError> {
        loop {
            return match self.from.read(&mut [0]) {
                Ok(0) => Ok(()),
                Ok(_) => Err(StreamError::GoesOn),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(StreamError::Io(error)),
            };
        }
    }
}
