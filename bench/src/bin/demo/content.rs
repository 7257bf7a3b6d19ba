//! Recognisable content: pseudo-random bytes of a seed, and the checksum of what is found later.

use crate::world::{Failure, Result, doing};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const PIECE: usize = 1 << 20;

/// What was written: its length and checksum (BLAKE3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    bytes: u64,
    checksum: blake3::Hash,
}

impl Content {
    /// Writes `bytes` pseudo-random bytes over the file at `path`, down to its device.
    pub fn write(path: &Path, seed: u64, bytes: u64, interrupted: &AtomicBool) -> Result<Content> {
        let mut file = File::create(path).map_err(doing("open", path))?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; PIECE];
        let mut random = Random::new(seed);
        let mut left = bytes;
        while left > 0 {
            if interrupted.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            let part = &mut piece[..left.min(PIECE as u64) as usize];
            random.fill(part);
            hasher.update(part);
            file.write_all(part).map_err(doing("write", path))?;
            left -= part.len() as u64;
        }
        file.sync_all().map_err(doing("sync", path))?;
        // Out of the page cache: the timed write then finds equally much free memory for another file (the snapshot's)
        // and for this one, whose pages it would free first.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|e| doing("uncache", path)(e.into()))?;
        Ok(Content { bytes, checksum: hasher.finalize() })
    }

    /// What `reader` gives until it ends.
    pub fn read(reader: &mut dyn Read, interrupted: &AtomicBool) -> std::io::Result<Content> {
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; PIECE];
        let mut bytes = 0;
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(Content { bytes, checksum: hasher.finalize() }),
                n => {
                    hasher.update(&piece[..n]);
                    bytes += n as u64;
                }
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
        }
    }
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes with checksum {}", self.bytes, self.checksum)
    }
}

/// SplitMix64: fast, and no two places of a file alike.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..word.len()]);
        }
    }
}
