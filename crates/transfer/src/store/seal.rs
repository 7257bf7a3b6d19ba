//! Sums that hold in one store, for one name, at one place. And numbers of few bytes.

use super::error::{Result, StoreError};

/// Makes the sums of a store.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
}

/// Bytes of a sum.
pub const SUM: usize = 16;

impl Seal {
    /// Of a store that is not encrypted: its identifier is all that is secret.
    pub fn plain(store: [u8; 16]) -> Seal {
        Seal { key: blake3::derive_key("rowen store 1 sums", &store) }
    }

    /// The sum of some bytes: it holds for this object alone, and for this place of it.
    pub fn sum(&self, name: &str, place: u64, bytes: &[u8]) -> [u8; SUM] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(&place.to_le_bytes());
        hasher.update(bytes);
        let hash = hasher.finalize();
        hash.as_bytes()[..SUM].try_into().expect("a hash is longer")
    }

    /// An object's bytes without the sum at their end.
    pub fn opened<'a>(&self, name: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let damaged = || StoreError::Damaged { name: name.to_owned(), what: "it is not what was written" };
        let (body, sum) = bytes.split_last_chunk::<SUM>().ok_or_else(damaged)?;
        if *sum != self.sum(name, u64::MAX, body) {
            return Err(damaged());
        }
        Ok(body)
    }

    /// With the sum at their end.
    pub fn sealed(&self, name: &str, mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = self.sum(name, u64::MAX, &bytes);
        bytes.extend(sum);
        bytes
    }
}

pub fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        to.push(number as u8 | 128);
        number >>= 7;
    }
    to.push(number as u8);
}

pub fn put_signed(to: &mut Vec<u8>, number: i64) {
    put_number(to, ((number << 1) ^ (number >> 63)) as u64);
}

/// Takes values from bytes whose sum held: what makes no sense nevertheless is damage, too.
pub struct From<'a> {
    name: &'a str,
    rest: &'a [u8],
}

impl<'a> From<'a> {
    pub fn new(name: &'a str, bytes: &'a [u8]) -> From<'a> {
        From { name, rest: bytes }
    }

    pub fn damaged(&self, what: &'static str) -> StoreError {
        StoreError::Damaged { name: self.name.to_owned(), what }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.damaged("it is too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| self.damaged("it is too short"))
    }

    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 127);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(self.damaged("a number is too long"))
    }

    pub fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A count of things of which each has at least this many bytes here.
    pub fn count(&mut self, least_bytes: usize) -> Result<usize> {
        let count = self.number()?;
        if count > (self.rest.len() / least_bytes.max(1)) as u64 {
            return Err(self.damaged("it says more than it has"));
        }
        Ok(count as usize)
    }

    pub fn text(&mut self) -> Result<String> {
        let len = self.count(1)?;
        let bytes = self.take(len)?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.damaged("a name is no text"))?;
        if text.chars().any(char::is_control) || text.len() > crate::bytes::MAX_TEXT {
            return Err(self.damaged("a name has signs that are no letters"));
        }
        Ok(text.to_owned())
    }

    pub fn end(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damaged("it is too long")) }
    }
}

pub fn put_text(to: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(crate::bytes::MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_number(to, end as u64);
    to.extend(&text.as_bytes()[..end]);
}
