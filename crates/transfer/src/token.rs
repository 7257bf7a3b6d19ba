//! What a sender must know to go on with a stream that was cut: one word, which a receiver gives out.

use crate::bytes::{In, Out};
use crate::error::StreamError;
use crate::frame::{Base, MAX_VOLUMES, MarkPlace};
use rowen_engine::planted;

/// Begins each token.
const PREFIX: &str = "rowen1-";
/// Bytes of a token, at most.
const MAX_TOKEN: usize = 256 << 10;

/// Where a stream goes on, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The mark that the receiver got to (TR5).
    pub place: MarkPlace,
    /// The sender's group.
    pub group_name: String,
    pub volumes: Vec<TokenVolume>,
}

/// What a stream has of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenVolume {
    pub base: Option<Base>,
    /// The identity of the contents that are sent, and what the sender calls their snapshot.
    pub point: [u8; 16],
    pub snapshot: String,
}

impl Token {
    /// As a word of letters, numbers and a hyphen.
    pub fn to_word(&self) -> String {
        let mut bytes = self.to_bytes();
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
        bytes.extend(crc.to_le_bytes());
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]));
        PREFIX.chars().chain(digits).collect()
    }

    /// What its digits stand for, without the sum.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.bytes(&self.place.stream);
        out.u32(self.place.volume);
        out.u64(self.place.block);
        out.bytes(&self.place.hash);
        out.text(&self.group_name);
        out.u16(self.volumes.len() as u16);
        for volume in &self.volumes {
            out.bytes(&volume.point);
            out.text(&volume.snapshot);
            out.u8(u8::from(volume.base.is_some()));
            if let Some(base) = &volume.base {
                out.bytes(&base.point);
                out.text(&base.name);
            }
        }
        out.0
    }

    /// Reads such a word, or says why it is none.
    pub fn of_word(word: &str) -> Result<Token, StreamError> {
        let digits = word.strip_prefix(PREFIX).filter(|digits| digits.len() <= 2 * MAX_TOKEN && digits.len() % 2 == 0);
        let digits = digits.ok_or(StreamError::Malformed("it is no token"))?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> =
            digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect();
        let bytes = bytes.ok_or(StreamError::Malformed("it is no token"))?;
        let (bytes, crc) = bytes.split_last_chunk::<4>().ok_or(StreamError::Malformed("it is no token"))?;
        if crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32 != u32::from_le_bytes(*crc)
            && !planted::is("token_not_summed")
        {
            return Err(StreamError::Malformed("a part of the token is missing or changed"));
        }
        Token::of_bytes(bytes)
    }

    /// Reads what a word's digits stand for.
    pub fn of_bytes(bytes: &[u8]) -> Result<Token, StreamError> {
        let mut from = In::new(bytes);
        let (stream, volume, block, hash) = (from.uuid()?, from.u32()?, from.u64()?, from.hash()?);
        let place = MarkPlace { stream, volume, block, hash };
        let group_name = from.text()?;
        let count = from.u16()?;
        if usize::from(count) > MAX_VOLUMES || volume >= u32::from(count) {
            return Err(StreamError::Malformed("the token's numbers are impossible"));
        }
        let mut volumes = Vec::new();
        for _ in 0..count {
            let (point, snapshot) = (from.uuid()?, from.text()?);
            let base = match from.u8()? {
                0 => None,
                1 => Some(Base { point: from.uuid()?, name: from.text()? }),
                _ => return Err(StreamError::Malformed("the token's numbers are impossible")),
            };
            volumes.push(TokenVolume { base, point, snapshot });
        }
        from.end()?;
        Ok(Token { place, group_name, volumes })
    }
}
