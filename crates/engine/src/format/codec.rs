//! Reading and writing sequences of on-disk records and strings: the checkpoint stream and journal records.
//! Decoding never trusts a count: it compares every count with the bytes that follow.

use crate::error::{Error, Result};

/// Ids, epochs, generations, sequence numbers, block numbers and counts of blocks in records lie below this: half of
/// the range of a tree node ([`LIMIT`](super::node::LIMIT)). This leaves numbers to count on with after a group is
/// opened.
pub const RECORD_LIMIT: u64 = 1 << 47;

/// Appends records to a byte vector.
#[derive(Default)]
pub struct Encoder {
    pub bytes: Vec<u8>,
}

impl Encoder {
    pub fn record(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
    }

    /// A string: 16-bit length, then UTF-8 bytes.
    pub fn string(&mut self, text: &str) {
        let len = u16::try_from(text.len()).expect("names and tags are bounded far below 64 KiB");
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub fn u64(&mut self, n: u64) {
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }
}

/// Takes records from bytes, in order.
pub struct Decoder<'a> {
    rest: &'a [u8],
    what: &'static str,
    len: usize,
}

impl<'a> Decoder<'a> {
    /// `what` names the structure in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes, what, len: bytes.len() }
    }

    pub fn corrupt(&self, detail: impl Into<String>) -> Error {
        Error::Corrupt { what: self.what, place: format!("byte {}", self.len - self.rest.len()), detail: detail.into() }
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.rest.len() {
            return Err(self.corrupt(format!("{n} bytes expected, {} left", self.rest.len())));
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let bytes = self.take(N)?;
        Ok(bytes.first_chunk().expect("take gives as many bytes as asked"))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(*self.array()?))
    }

    pub fn string(&mut self) -> Result<String> {
        let len = u16::from_le_bytes(*self.array()?);
        let bytes = self.take(usize::from(len))?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.corrupt("a string is not UTF-8"))
    }

    /// A count of items of at least `size` bytes each. An impossible count is damage, and allocates nothing.
    pub fn count(&self, n: u64, size: usize) -> Result<usize> {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        if n.checked_mul(size).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(self.corrupt(format!("a count of {n} does not fit into {} bytes", self.rest.len())));
        }
        Ok(n)
    }

    /// A number that stays below [`RECORD_LIMIT`]. `what` names it.
    pub fn limited(&self, n: u64, what: &str) -> Result<u64> {
        if n < RECORD_LIMIT { Ok(n) } else { Err(self.corrupt(format!("{what} of {n}, past the limit of the format"))) }
    }

    /// A run of at least one block that ends at or below [`RECORD_LIMIT`].
    pub fn run(&self, start: u64, len: u64, what: &str) -> Result<()> {
        match start.checked_add(len).filter(|end| len > 0 && *end <= RECORD_LIMIT) {
            Some(_) => Ok(()),
            None => Err(self.corrupt(format!("{what} {start}+{len}, past the limit of the format"))),
        }
    }

    /// Reserved bytes.
    pub fn zero(&self, bytes: &[u8]) -> Result<()> {
        match bytes.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(self.corrupt("reserved bytes are not zero")),
        }
    }

    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}
