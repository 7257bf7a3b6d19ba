//! Runs of blocks in few bytes, for a checkpoint whose stream would not fit otherwise.
//!
//! Runs in rising order, no two of which touch. Each is two numbers: the blocks between the end of the run before it (at first block 0)
//! and its start, and its length. A number takes 7 bits a byte, the lowest first; the top bit says that another byte follows.

use super::codec::{Decoder, RECORD_LIMIT};
use crate::error::Result;

/// Bytes of the longest number, which is below 2^63.
const LONGEST: u32 = 9;

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn bytes_of(n: u64) -> usize {
    ((64 - n.leading_zeros()).max(1)).div_ceil(7) as usize
}

/// The bytes that packing these runs takes.
pub fn packed_len(runs: &[(u64, u64)]) -> usize {
    let mut last = 0;
    let mut bytes = 0;
    for (start, len) in runs {
        bytes += bytes_of(start.saturating_sub(last)) + bytes_of(*len);
        last = start + len;
    }
    bytes
}

/// Packs runs that are in order and do not touch.
pub fn pack(runs: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packed_len(runs));
    let mut last = 0;
    for (start, len) in runs {
        put(&mut out, start - last);
        put(&mut out, *len);
        last = start + len;
    }
    out
}

fn number(input: &mut Decoder<'_>) -> Result<u64> {
    let mut n = 0;
    for i in 0..LONGEST {
        let byte = input.take(1)?[0];
        n |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            let is_shortest = byte > 0 || i == 0;
            return if is_shortest { Ok(n) } else { Err(input.corrupt("a number with more bytes than it needs")) };
        }
    }
    Err(input.corrupt("a number of too many bytes"))
}

/// Reads all of `input`, which [`pack`] made.
pub fn unpack(mut input: Decoder<'_>) -> Result<Vec<(u64, u64)>> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut last = 0u64;
    while input.remaining() > 0 {
        let (gap, len) = (number(&mut input)?, number(&mut input)?);
        let start = last.saturating_add(gap);
        if len == 0 || (gap == 0 && !runs.is_empty()) {
            return Err(input.corrupt("packed runs that are empty or touch"));
        }
        input.run(start, len, "a run to free")?;
        runs.push((start, len));
        last = start + len;
    }
    debug_assert!(last <= RECORD_LIMIT, "each run was looked at");
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(bytes: &[u8]) -> Result<Vec<(u64, u64)>> {
        unpack(Decoder::new("runs", bytes))
    }

    #[test]
    fn runs_come_back_as_they_were() {
        let far = RECORD_LIMIT - 5;
        for runs in [vec![], vec![(0, 1)], vec![(0, 127), (128, 128), (300, 1)], vec![(7, 1 << 40), (far, 5)]] {
            let bytes = pack(&runs);
            assert_eq!(bytes.len(), packed_len(&runs));
            assert!(bytes.len() <= 16 * runs.len());
            assert_eq!(unpacked(&bytes).unwrap(), runs);
        }
        let scattered: Vec<_> = (0..1000).map(|i| (2 * i + 1, 1)).collect();
        assert_eq!(pack(&scattered).len(), 2000);
    }

    #[test]
    fn what_is_no_list_of_runs_is_refused() {
        let far = pack(&[(RECORD_LIMIT, 1)]);
        for bytes in [&[5][..], &[0x80], &[1, 0], &[1, 1, 0, 1], &[0x81, 0x00, 1], &[0xff; 12], &far] {
            assert!(unpacked(bytes).is_err(), "{bytes:x?}");
        }
    }
}
