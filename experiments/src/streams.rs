//! Large files and whole devices, written and read in steps of 1 MiB from end to end, as `dd bs=1M` does it: by this program itself,
//! because starting dd takes user-mode-linux as long as writing tens of MiB.
//!
//! Promises: a stream fails when somebody asked the run to end, or when no time is left; what is written past the page cache is read
//! past it, too.

use crate::command::{self, Result};
use crate::context::MIB;
use rowen_engine::disk::PageBuf;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    Zeros,
    /// Nothing that could be found again or compressed.
    Random,
}

/// Whether the page cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    Cache,
    Past,
}

/// A step of SplitMix64.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Bytes that the seed decides.
pub fn fill(buf: &mut PageBuf, seed: u64) {
    let mut state = seed;
    buf.as_mut_slice().chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&next(&mut state).to_le_bytes()));
}

/// What decides the random bytes of a MiB, by its number.
pub fn seed(n: u64) -> u64 {
    n ^ 0x5EED << 32
}

/// A file or device that is there or may be made.
pub fn open(path: &Path, may_write: bool, through: Through) -> Result<File> {
    let flags = if through == Through::Past { rustix::fs::OFlags::DIRECT.bits() as i32 } else { 0 };
    let opened = match may_write {
        // What is there is written over in its place.
        true => OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flags).open(path),
        false => OpenOptions::new().read(true).custom_flags(flags).open(path),
    };
    opened.map_err(|e| format!("cannot open {}: {e}", path.display()))
}

/// Overwrites this many MiB from the start, and returns the file, not synced.
pub fn write(path: &Path, bytes: Bytes, mib: u64, through: Through) -> Result<File> {
    let file = open(path, true, through)?;
    let mut buf = PageBuf::zeroed(MIB as usize);
    for n in 0..mib {
        command::in_time()?;
        if bytes == Bytes::Random {
            fill(&mut buf, seed(n));
        }
        file.write_all_at(buf.as_slice(), n * MIB).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(file)
}

/// Reads this many MiB from a place on.
pub fn read(path: &Path, from_mib: u64, mib: u64, through: Through) -> Result {
    let file = open(path, false, through)?;
    let mut buf = PageBuf::zeroed(MIB as usize);
    for n in from_mib..from_mib + mib {
        command::in_time()?;
        file.read_exact_at(buf.as_mut_slice(), n * MIB).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    }
    Ok(())
}

/// Writes the whole of a device, and leaves nothing of it in the page cache.
pub fn fill_device(node: &Path, mib: u64) -> Result {
    write(node, Bytes::Random, mib, Through::Past)?;
    crate::context::forget(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_there_and_the_rest_stays() {
        let path = std::env::temp_dir().join(format!("rowen-streams-{}", std::process::id()));
        for through in [Through::Cache, Through::Past] {
            std::fs::write(&path, vec![7; 3 << 20]).unwrap();
            write(&path, Bytes::Random, 2, through).unwrap();
            let found = std::fs::read(&path).unwrap();
            assert_eq!((found.len(), found[2 << 20]), (3 << 20, 7));
            assert_ne!(found[..1 << 20], found[1 << 20..2 << 20]);
            assert!(found[..1 << 20].iter().filter(|byte| **byte == 7).count() < 8192);
            write(&path, Bytes::Zeros, 1, through).unwrap();
            assert!(std::fs::read(&path).unwrap()[..1 << 20].iter().all(|byte| *byte == 0));
            read(&path, 1, 2, through).unwrap();
            assert!(read(&path, 1, 3, through).unwrap_err().contains("cannot read"));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path, 0, 1, Through::Cache).unwrap_err().contains("cannot open"));
    }
}
