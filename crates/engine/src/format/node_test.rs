use super::*;

const GROUP: u64 = 0x1122_3344_5566_7788;

fn this() -> NodeRef {
    NodeRef { addr: MetaBlock(0x0000_1234_5678_9ABC), generation: 0xABCD_EF01_2345, birth: Epoch(77) }
}

fn extent(key: u64) -> Extent {
    Extent { key, len: 3, value: key + 1000, birth: Epoch(5), flags: 0x8001 }
}

fn leaf(count: u64) -> Node {
    let entries: Vec<_> = (0..count).map(|i| Entry::leaf(&extent(i * 4))).collect();
    Node::new(this(), 0, &entries)
}

fn interior(count: u64) -> Node {
    let child = |i| NodeRef { addr: MetaBlock(i * 9), generation: this().generation - i, birth: Epoch(i) };
    let entries: Vec<_> = (0..count).map(|i| Entry::interior(i * 1000, child(i))).collect();
    Node::new(this(), 2, &entries)
}

fn detail(bytes: &[u8], level: u8) -> String {
    match Node::decode(bytes, this(), level, GROUP) {
        Err(Error::Corrupt { detail, .. }) => detail,
        other => panic!("expected corruption, got {other:?}"),
    }
}

/// The node's block after `change`, with a right checksum again.
fn forged(node: &Node, change: impl FnOnce(&mut [u8; NODE_SIZE])) -> [u8; NODE_SIZE] {
    let mut block = node.encode(GROUP);
    change(&mut block);
    seal(&mut block, CRC_AT);
    block
}

#[test]
fn a_node_has_room_for_168_entries() {
    assert_eq!(CAPACITY, 168);
}

#[test]
fn entries_keep_every_bit_of_their_fields() {
    let widest = Extent { key: MASK - 1, len: 1, value: MASK, birth: Epoch(MASK), flags: u16::MAX };
    let longest = Extent { key: 0, len: u32::MAX, value: 1, birth: Epoch(0), flags: 0 };
    let mixed = Extent {
        key: 0xA1A2_A3A4,
        len: 0xB1B2_B3B4,
        value: 0x00C1_C2C3_C4C5,
        birth: Epoch(0x00D1_D2D3),
        flags: 0xE1E2,
    };
    for e in [widest, longest, mixed] {
        assert_eq!(Entry::leaf(&e).extent(), e);
        assert_eq!(Entry::leaf(&e).key(), e.key);
    }
    let child =
        NodeRef { addr: MetaBlock(0xA1A2_A3A4_A5A6), generation: 0xB1B2_B3B4_B5B6, birth: Epoch(0xC1C2_C3C4_C5C6) };
    let entry = Entry::interior(0xD1D2_D3D4_D5D6, child);
    assert_eq!((entry.key(), entry.child()), (0xD1D2_D3D4_D5D6, child));
    assert_eq!((entry.with_key(7).key(), entry.with_key(7).child()), (7, child));
}

#[test]
fn words_lie_as_the_format_says() {
    let e = Extent { key: 0x1111, len: 0x2222_3333, value: 0x4444, birth: Epoch(0x5555), flags: 0x6666 };
    let block = Node::new(this(), 0, &[Entry::leaf(&e)]).encode(GROUP);
    let word = |i: usize| u64::from_le_bytes(block[64 + i * 8..72 + i * 8].try_into().unwrap());
    assert_eq!([word(0), word(1), word(2)], [0x6666 << 48 | 0x1111, 0x3333 << 48 | 0x4444, 0x2222 << 48 | 0x5555]);
}

#[test]
fn decode_undoes_encode() {
    for (node, level) in [(leaf(1), 0), (leaf(168), 0), (interior(1), 2), (interior(168), 2)] {
        assert_eq!(Node::decode(&node.encode(GROUP), this(), level, GROUP), Ok(node));
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (node, level) in [(leaf(40), 0), (interior(168), 2)] {
        let mut block = node.encode(GROUP);
        for bit in 0..NODE_SIZE * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Node::decode(&block, this(), level, GROUP).is_err(), "bit {bit} of {node:?}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn a_node_must_be_the_one_that_was_asked_for() {
    let block = leaf(3).encode(GROUP);
    let other = |change: fn(&mut NodeRef)| {
        let mut name = this();
        change(&mut name);
        Node::decode(&block, name, 0, GROUP).is_err()
    };
    assert!(other(|n| n.addr.0 += 1));
    assert!(other(|n| n.generation -= 1));
    assert!(other(|n| n.birth.0 += 1));
    assert!(Node::decode(&block, this(), 1, GROUP).is_err());
    assert!(Node::decode(&block, this(), 0, GROUP + 1).is_err());
    assert!(Node::decode(&block[1..], this(), 0, GROUP).is_err());
    assert!(Node::decode(&[], this(), 0, GROUP).is_err());
    assert!(Node::decode(&[0; NODE_SIZE], this(), 0, GROUP).is_err());
}

#[test]
fn impossible_content_under_a_right_checksum_is_refused() {
    let count = |n: u16| move |b: &mut [u8; NODE_SIZE]| b[10..12].copy_from_slice(&n.to_le_bytes());
    assert!(detail(&forged(&leaf(3), count(0)), 0).contains("entries"));
    assert!(detail(&forged(&leaf(168), count(169)), 0).contains("entries"));
    assert!(detail(&forged(&leaf(3), count(2)), 0).contains("not zero"));
    assert!(detail(&forged(&leaf(3), |b| b[12] = 1), 0).contains("reserved"));
    assert!(detail(&forged(&leaf(3), |b| b[63] = 1), 0).contains("reserved"));
    assert!(detail(&forged(&leaf(3), |b| b[8] = 2), 0).contains("kind"));
    assert!(detail(&forged(&leaf(3), |b| b[64 + 14] = 0), 0).contains("impossible"), "length 0");
    assert!(detail(&forged(&leaf(3), |b| b[64 + 14] = 5), 0).contains("before the last one ends"));
    let far_key = |b: &mut [u8; NODE_SIZE]| b[64 + 48..64 + 54].fill(0xFF);
    assert!(detail(&forged(&leaf(3), far_key), 0).contains("impossible"), "the end is past the last key");
    assert!(detail(&forged(&interior(3), |b| b[64 + 24..64 + 26].fill(0)), 2).contains("does not come after"));
    let younger = |b: &mut [u8; NODE_SIZE]| b[64 + 22..64 + 24].fill(0xFF);
    assert!(detail(&forged(&interior(3), younger), 2).contains("younger"));
}

#[test]
fn extents_are_cut_and_joined_exactly() {
    let e = Extent { key: 10, len: 10, value: 110, birth: Epoch(3), flags: 1 };
    assert_eq!(e.cut(0, 100), Some(e));
    assert_eq!(e.cut(12, 15), Some(Extent { key: 12, len: 3, value: 112, ..e }));
    assert_eq!((e.cut(0, 10), e.cut(20, 30)), (None, None));
    let next = Extent { key: 20, len: 5, value: 120, ..e };
    assert_eq!(e.joined(&next), Some(Extent { len: 15, ..e }));
    assert_eq!(next.joined(&e), None);
    for other in [
        Extent { key: 21, ..next },
        Extent { value: 121, ..next },
        Extent { birth: Epoch(4), ..next },
        Extent { flags: 0, ..next },
        Extent { len: u32::MAX - 9, ..next },
    ] {
        assert_eq!(e.joined(&other), None, "{other:?}");
    }
    let whole = Extent { len: u32::MAX - 10, ..next };
    assert_eq!(e.joined(&whole).map(|e| e.len), Some(u32::MAX));
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for round in 0..20_000 {
        let (node, level) = if round % 2 == 0 { (leaf(100), 0) } else { (interior(100), 2) };
        let block = forged(&node, |b| {
            for _ in 0..=(next() % 4) {
                b[next() % NODE_SIZE] = next() as u8;
            }
        });
        if let Ok(node) = Node::decode(&block, this(), level, GROUP) {
            assert_eq!(node.encode(GROUP), block, "what decodes says every byte of the block");
        }
    }
}
