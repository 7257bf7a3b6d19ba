//! Numbers and texts as a stream has them: little endian, texts with their length before them.

use crate::error::StreamError;

/// The longest text.
pub const MAX_TEXT: usize = 255;

#[derive(Default)]
pub struct Out(pub Vec<u8>);

impl Out {
    pub fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub fn u16(&mut self, number: u16) {
        self.0.extend(number.to_le_bytes());
    }

    pub fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// A text that is not longer than [`MAX_TEXT`]; what is behind that is left out.
    pub fn text(&mut self, text: &str) {
        let mut end = text.len().min(MAX_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.bytes(&text.as_bytes()[..end]);
    }
}

/// Takes values from a frame's body.
pub struct In<'a> {
    rest: &'a [u8],
}

impl<'a> In<'a> {
    pub fn new(body: &'a [u8]) -> In<'a> {
        In { rest: body }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], StreamError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(StreamError::Malformed("a frame is too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StreamError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| StreamError::Malformed("a frame is too short"))
    }

    pub fn u8(&mut self) -> Result<u8, StreamError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, StreamError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, StreamError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, StreamError> {
        self.array().map(u64::from_le_bytes)
    }

    /// The number of a volume, in 8 bytes.
    pub fn volume(&mut self) -> Result<u32, StreamError> {
        u32::try_from(self.u64()?).map_err(|_| StreamError::Malformed("a volume's number is impossible"))
    }

    pub fn uuid(&mut self) -> Result<[u8; 16], StreamError> {
        self.array()
    }

    pub fn hash(&mut self) -> Result<[u8; 32], StreamError> {
        self.array()
    }

    pub fn text(&mut self) -> Result<String, StreamError> {
        let len = usize::from(self.u16()?);
        if len > MAX_TEXT {
            return Err(StreamError::Malformed("a name is too long"));
        }
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| StreamError::Malformed("a name is no text"))?;
        if text.chars().any(char::is_control) {
            return Err(StreamError::Malformed("a name has signs that are no letters"));
        }
        Ok(text.to_owned())
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub fn end(self) -> Result<(), StreamError> {
        if self.rest.is_empty() { Ok(()) } else { Err(StreamError::Malformed("a frame is too long")) }
    }
}
