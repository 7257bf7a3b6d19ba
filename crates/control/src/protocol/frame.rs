//! Frames: how requests and outcomes are written to a connection and read from it.

use super::outcome::Outcome;
use super::request::Request;
use super::transfer::Part;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// The longest frame that is read or written.
pub const FRAME_CAP: usize = 64 << 20;

/// Begins the compact form; JSON never begins with it.
const COMPACT: u8 = 0;

/// A message as the bytes of one frame.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    seal(frame)
}

/// The same in the compact form, which is shorter and faster to read, but binary.
pub fn encode_compact<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    encode_long(message, 0)
}

/// The same of a message with this many bytes of data, which are copied only once.
fn encode_long<T: Serialize>(message: &T, data: usize) -> io::Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(data.min(FRAME_CAP) + 256);
    frame.extend([0, 0, 0, 0, COMPACT]);
    seal(postcard::serialize_with_flavor(message, Frame(frame)).map_err(io::Error::other)?)
}

/// A frame that grows. Bytes of data are copied as one piece, and not one by one.
struct Frame(Vec<u8>);

impl postcard::ser_flavors::Flavor for Frame {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Writes the length before a frame's body.
fn seal(mut frame: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = frame.len() - 4;
    if length > FRAME_CAP {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {length} bytes is too long to send"),
        ));
    }
    let prefix = u32::try_from(length).expect("the cap is far below 4 GiB");
    frame[..4].copy_from_slice(&prefix.to_le_bytes());
    Ok(frame)
}

/// The length that a frame's first four bytes announce.
pub fn frame_length(prefix: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > FRAME_CAP {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes is over the limit")));
    }
    Ok(length)
}

/// The message in a frame's bytes after the first four.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    match body {
        [COMPACT, rest @ ..] => postcard::from_bytes(rest).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
        _ => Ok(serde_json::from_slice(body)?),
    }
}

/// Writes an answer in the form that suits it.
pub fn write_outcome(to: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let frame = match outcome {
        Outcome::Report(_) | Outcome::Io(_) | Outcome::Diff(_) => encode_compact(outcome)?,
        Outcome::Data(bytes) => encode_long(outcome, bytes.0.len())?,
        _ => encode(outcome)?,
    };
    to.write_all(&frame)?;
    to.flush()
}

/// Writes a request in the form that suits it.
pub fn write_request(to: &mut impl Write, request: &Request) -> io::Result<()> {
    let frame = match request {
        Request::ReceiveParts { parts, .. } => encode_long(request, parts.iter().map(Part::len).sum())?,
        _ => encode(request)?,
    };
    to.write_all(&frame)?;
    to.flush()
}

/// Writes one frame.
pub fn write_frame<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// The same in the compact form.
pub fn write_compact<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode_compact(message)?)?;
    to.flush()
}

/// Reads one frame; `None` when the other side ended the connection between frames.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut prefix = [0; 4];
    loop {
        match from.read(&mut prefix[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    from.read_exact(&mut prefix[1..])?;
    let length = frame_length(prefix)?;
    // The buffer grows as bytes arrive: a length alone allocates nothing.
    let mut body = Vec::with_capacity(length.min(64 << 10));
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    decode(&body).map(Some)
}
