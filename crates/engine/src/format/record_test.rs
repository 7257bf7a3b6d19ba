use super::*;

on_disk! {
    /// A record with every kind of field.
    Sample, 24 {
        0 => magic: [u8; 4],
        4 => crc: u32,
        8 => big: u64,
        16 => half: u16,
        /// A field may have its own words.
        18 => one: u8,
        19 => tail: [u8; 5],
    }
}

fn sample() -> Sample {
    Sample { magic: *b"SMPL", crc: 0, big: 0x0102_0304_0506_0708, half: 0x1122, one: 9, tail: *b"abcde" }
}

#[test]
fn bytes_are_little_endian_at_their_offsets() {
    let bytes = sample().encode();
    assert_eq!(&bytes[..4], b"SMPL");
    assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(bytes[16..], [0x22, 0x11, 9, b'a', b'b', b'c', b'd', b'e']);
}

#[test]
fn decode_undoes_encode_and_refuses_a_short_slice() {
    let bytes = sample().encode();
    assert_eq!(Sample::decode(&bytes), sample());
    assert_eq!(Sample::decode_from(&bytes[..23]), None);
    let longer = [&bytes[..], &[7; 9]].concat();
    assert_eq!(Sample::decode_from(&longer), Some(sample()));
}

#[test]
fn the_table_names_every_field() {
    let rows: Vec<_> = Sample::FIELDS.iter().map(|f| (f.at, f.len, f.name)).collect();
    let expected = [(0, 4, "magic"), (4, 4, "crc"), (8, 8, "big"), (16, 2, "half"), (18, 1, "one"), (19, 5, "tail")];
    assert_eq!(rows, expected);
    assert_eq!((Sample::NAME, Sample::SIZE), ("Sample", 24));
}

#[test]
fn gaps_overlaps_and_wrong_sizes_are_seen() {
    let row = |at, len| Field { at, len, name: "x" };
    assert!(fills(&[row(0, 4), row(4, 2)], 6));
    assert!(!fills(&[row(0, 4), row(5, 2)], 7), "gap");
    assert!(!fills(&[row(0, 4), row(3, 2)], 5), "overlap");
    assert!(!fills(&[row(0, 4)], 6), "short");
    assert!(!fills(&[row(1, 4)], 5), "late start");
}

#[test]
fn a_sealed_block_notices_any_flipped_bit() {
    let mut block = [0u8; 64];
    block[..24].copy_from_slice(&sample().encode());
    seal(&mut block, 4);
    let stored = |b: &[u8]| u32::from_le_bytes(b[4..8].try_into().unwrap());
    assert_eq!(stored(&block), block_crc(&block, 4));
    for bit in 0..block.len() * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(stored(&block), block_crc(&block, 4), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A byte at a time, by the definition: the polynomial 0x1edc6f41, bits reflected.
fn crc32c_by_definition(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn the_checksum_is_crc32c_in_one_piece_or_several() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[]), 0);
    let bytes: Vec<u8> = (0..5000_u32).map(|n| ((n * n) >> 3) as u8).collect();
    for len in (0..300).chain([511, 512, 513, 4095, 4096, 4097, 5000]) {
        let whole = crc32c_by_definition(&bytes[..len]);
        assert_eq!(crc32c(&bytes[..len]), whole, "{len} bytes");
        for cut in [0, 1, len / 3, len / 2, len.saturating_sub(1), len] {
            let (first, rest) = bytes[..len].split_at(cut.min(len));
            assert_eq!(crc32c_append(crc32c(first), rest), whole, "{len} bytes cut at {cut}");
        }
    }
}
