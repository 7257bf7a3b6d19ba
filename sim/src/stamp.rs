//! The format of test data. Every sector says which volume wrote it, where, and in which request.

/// Bytes in a stamped sector.
pub const SECTOR: usize = 512;
const MAGIC: [u8; 4] = *b"RWS1";
const WORD: usize = 32;

/// The contents found in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Zeros,
    /// Written by request `version` of `volume` for this `sector`.
    Stamp {
        volume: u32,
        sector: u64,
        version: u64,
    },
    /// No single request wrote this: half of a sector, or bytes of metadata.
    Rubbish,
}

fn word(volume: u32, sector: u64, version: u64) -> [u8; WORD] {
    let mut word = [0; WORD];
    word[..4].copy_from_slice(&MAGIC);
    word[4..8].copy_from_slice(&volume.to_le_bytes());
    word[8..16].copy_from_slice(&sector.to_le_bytes());
    word[16..24].copy_from_slice(&version.to_le_bytes());
    let proof = version.rotate_left(32) ^ sector.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(volume);
    word[24..].copy_from_slice(&proof.to_le_bytes());
    word
}

/// Stamps all of `bytes`, whole sectors of which the first is `sector`.
pub fn stamp(bytes: &mut [u8], volume: u32, sector: u64, version: u64) {
    for (at, bytes) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let word = word(volume, sector + at as u64, version);
        bytes.chunks_exact_mut(WORD).for_each(|chunk| chunk.copy_from_slice(&word));
    }
}

/// Reads one sector's stamp.
pub fn read(bytes: &[u8]) -> Found {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes of a sector"));
    if bytes[..4] != MAGIC {
        return if *bytes == [0; SECTOR] { Found::Zeros } else { Found::Rubbish };
    }
    let volume = (number(0) >> 32) as u32;
    let (sector, version) = (number(8), number(16));
    // The first word is right and every other equals the one before it.
    match bytes[..WORD] == word(volume, sector, version) && bytes[WORD..] == bytes[..SECTOR - WORD] {
        true => Found::Stamp { volume, sector, version },
        false => Found::Rubbish,
    }
}
