//! Streams that are whole, cut, changed, or made to do harm.
//!
//! Rules TR1, TR2, TR3 and TR4.

use super::*;
use crate::frame::{self, header};
use rowen_engine::planted::must_be_found;
use std::collections::BTreeMap;

const BLOCKS: u64 = 1 << 20;

fn head() -> Head {
    Head { stream: [1; 16], time: 1_790_000_000, group: [2; 16], group_name: "vg0".into() }
}

fn volume() -> Volume {
    Volume {
        name: "db".into(),
        blocks: BLOCKS,
        sector: 512,
        thick: true,
        base: Some(Base { point: [3; 16], name: "mon".into() }),
        point: [4; 16],
        snapshot: "tue".into(),
        changed: None,
    }
}

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK as usize]
}

fn stream(compress: bool) -> Vec<u8> {
    let mut writer = StreamWriter::begin(Vec::new(), &head(), &volume(), compress).unwrap();
    writer
        .data(&[Range { start: 1, blocks: 1 }, Range { start: 5, blocks: 2 }], &[block(7), block(8), block(9)].concat())
        .unwrap();
    writer.zeros(7, 100).unwrap();
    writer.mark(107).unwrap();
    let random: Vec<u8> = (0..BLOCK as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    writer.data(&[Range { start: BLOCKS - 1, blocks: 1 }], &random).unwrap();
    writer.end().unwrap()
}

/// All events up to the end.
fn read(bytes: &[u8]) -> Result<Vec<Event>, StreamError> {
    let (mut reader, head_read, volume_read) = StreamReader::begin(bytes)?;
    assert_eq!((head_read, volume_read.blocks), (head(), BLOCKS));
    let mut events = Vec::new();
    loop {
        let event = reader.next_event()?;
        let is_end = matches!(event, Event::End(_));
        events.push(event);
        if is_end {
            return Ok(events);
        }
    }
}

#[test]
fn what_is_written_is_read() {
    for compress in [false, true] {
        let events = read(&stream(compress)).unwrap();
        let [
            Event::Data { ranges, bytes },
            Event::Zeros { start: 7, blocks: 100 },
            Event::Mark { block: 107 },
            Event::Data { .. },
            Event::End(end),
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!(ranges, &[Range { start: 1, blocks: 1 }, Range { start: 5, blocks: 2 }]);
        assert_eq!(bytes, &[block(7), block(8), block(9)].concat());
        assert_eq!(*end, End { data_blocks: 4, zero_blocks: 100, frames: 6 });
    }
    assert!(stream(true).len() < stream(false).len() - 2 * BLOCK as usize);
}

#[test]
fn marks_come_by_themselves() {
    let mut writer = StreamWriter::begin(Vec::new(), &head(), &volume(), true).unwrap();
    for at in 0..65 {
        writer.data(&[Range { start: at * 256, blocks: 256 }], &vec![at as u8; MAX_DATA]).unwrap();
    }
    let events = read(&writer.end().unwrap()).unwrap();
    assert_eq!(events[64], Event::Mark { block: 64 * 256 });
}

#[test]
fn a_stream_that_is_cut_has_no_end() {
    let whole = stream(true);
    for len in 0..whole.len() {
        assert!(matches!(read(&whole[..len]), Err(StreamError::Cut)), "{len}");
    }
}

/// Where frames begin, and the end of the last one.
fn starts(stream: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    while let Some(at) = starts.last().copied().filter(|at| *at < stream.len()) {
        let len = u32::from_le_bytes(stream[at + 8..at + 12].try_into().unwrap());
        starts.push(at + frame::HEADER + len as usize);
    }
    starts
}

/// Each frame in each other place of its stream, and of another one: nothing of it is given out.
fn displaced() {
    let mine = stream(true);
    let other = Head { stream: [9; 16], ..head() };
    let mut writer = StreamWriter::begin(Vec::new(), &other, &volume(), true).unwrap();
    (0..5).for_each(|at| writer.data(&[Range { start: BLOCKS - 10 + at, blocks: 1 }], &block(3)).unwrap());
    let other = writer.end().unwrap();
    let places = starts(&mine);
    for (number, place) in places.iter().enumerate().take(places.len() - 1) {
        for (from, is_mine) in [(&mine, true), (&other, false)] {
            for (at, frame) in starts(from).windows(2).enumerate() {
                let is_at_home = at == number && (is_mine || at == 0);
                if is_at_home || number < 2 {
                    continue;
                }
                let bytes = [&mine[..*place], &from[frame[0]..frame[1]]].concat();
                let (mut reader, ..) = StreamReader::begin(&bytes[..]).unwrap();
                (2..number).for_each(|_| drop(reader.next_event().unwrap()));
                let read = reader.next_event();
                assert!(matches!(read, Err(StreamError::Damaged { .. })), "{at} at {number}: {read:?}");
            }
        }
    }
}

#[test]
fn a_frame_counts_in_its_place_only() {
    displaced();
}

fn flips() {
    let whole = stream(true);
    for at in 0..whole.len() {
        for bit in [0, 3, 7] {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            assert!(read(&changed).is_err(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn a_flipped_bit_is_found() {
    flips();
}

/// The place of a frame of [`head`]'s stream.
fn at(frame: u64) -> Place {
    let stream = if frame == 0 { [0; 16] } else { head().stream };
    Place { stream, frame }
}

/// The frame after [`begun`].
fn third(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    sealed(at(2), kind, flags, body)
}

fn begun_with(volume: &[u8]) -> Vec<u8> {
    [sealed(at(0), frame::HEAD, 0, &head().encode()), sealed(at(1), frame::VOLUME, 0, volume)].concat()
}

fn begun() -> Vec<u8> {
    begun_with(&volume().encode())
}

fn data(ranges: &[(u64, u32)], codec: u8, len: u32, bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, codec, 0];
    body.extend((ranges.len() as u16).to_le_bytes());
    body.extend(len.to_le_bytes());
    body.extend([0; 4]);
    for (start, blocks) in ranges {
        body.extend(start.to_le_bytes());
        body.extend(blocks.to_le_bytes());
    }
    body.extend(bytes);
    third(frame::DATA, 0, &body)
}

/// Frames of somebody who can make checksums.
fn nonsense() {
    let one = block(1);
    let zip = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let frames = [
        ("no ranges", data(&[], 0, 0, &[])),
        ("too many ranges", data(&[(0, 1); 257], 0, 257 * 4096, &vec![0; 257 * 4096])),
        ("an empty range", data(&[(0, 0), (0, 1)], 0, 4096, &one)),
        ("beyond the end", data(&[(BLOCKS, 1)], 0, 4096, &one)),
        ("beyond all numbers", data(&[(u64::MAX, 1)], 0, 4096, &one)),
        ("backwards", data(&[(5, 1), (4, 1)], 0, 8192, &[block(1), block(2)].concat())),
        ("twice", data(&[(5, 1), (5, 1)], 0, 8192, &[block(1), block(2)].concat())),
        ("too few bytes", data(&[(0, 2)], 0, 8192, &one)),
        ("other bytes than ranges", data(&[(0, 1)], 0, 8192, &[block(1), block(2)].concat())),
        ("a length without bytes", data(&[(0, 256)], 0, MAX_DATA as u32, &[])),
        ("too long when it is decompressed", data(&[(0, 1)], 1, 4096, &zip(&vec![0; 1 << 30 >> 4]))),
        ("too short when it is decompressed", data(&[(0, 1)], 1, 4096, &zip(&[0; 100]))),
        ("not compressed", data(&[(0, 1)], 1, 4096, &one)),
        ("another codec", data(&[(0, 1)], 2, 4096, &one)),
        ("zeros beyond the end", third(frame::ZERO, 0, &[0, BLOCKS, 1].map(u64::to_le_bytes).concat())),
        ("zeros beyond all numbers", third(frame::ZERO, 0, &[0, 9, u64::MAX].map(u64::to_le_bytes).concat())),
        ("short", third(frame::ZERO, 0, &[0; 23])),
        ("long", third(frame::ZERO, 0, &[0; 25])),
        ("a mark with another hash", third(frame::MARK, 0, &[0; 48])),
        ("an end with another hash", third(frame::END, 0, &[0; 56])),
        ("a second head", third(frame::HEAD, 0, &head().encode())),
        ("a second volume", third(frame::VOLUME, 0, &volume().encode())),
        ("another kind", third(77, 0, &[])),
        ("a flag", third(frame::ZERO, 1, &[0; 24])),
    ];
    for (what, frame) in frames {
        let bytes = [begun(), frame].concat();
        let (mut reader, ..) = StreamReader::begin(&bytes[..]).unwrap();
        let read = reader.next_event();
        assert!(read.is_err(), "{what}: {read:?}");
        assert!(!matches!(read, Err(StreamError::Cut)), "{what}");
    }
}

#[test]
fn nonsense_is_refused() {
    nonsense();
}

#[test]
fn frames_that_may_be_passed_over_are() {
    let whole = stream(false);
    let at = begun().len();
    let optional = third(77, frame::OPTIONAL, b"what?");
    let (kind, body) = (u16::from_le_bytes([whole[at + 4], whole[at + 5]]), &whole[at + frame::HEADER..]);
    let len = u32::from_le_bytes(whole[at + 8..at + 12].try_into().unwrap()) as usize;
    let more = [&whole[..at], &optional[..], &sealed(self::at(3), kind, 0, &body[..len])].concat();
    let (mut reader, ..) = StreamReader::begin(&more[..]).unwrap();
    assert!(matches!(reader.next_event(), Ok(Event::Data { .. })));
    assert_eq!(reader.frames(), 4);
    // The hash is over all frames.
    let more = [begun(), optional, sealed(self::at(3), frame::MARK, 0, &whole[whole.len() - 48..])].concat();
    assert!(matches!(read(&more), Err(StreamError::OtherFrames)));
}

#[test]
fn a_length_takes_no_memory() {
    let mut huge = begun();
    let mut frame = header(at(2), frame::DATA, 0, &[]);
    frame[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    huge.extend(frame);
    let (mut reader, ..) = StreamReader::begin(&huge[..]).unwrap();
    assert!(matches!(reader.next_event(), Err(StreamError::Damaged { .. })));
}

#[test]
fn beginnings_are_told_apart() {
    let begin = |bytes: &[u8]| StreamReader::begin(bytes).err().unwrap().to_string();
    assert_eq!(begin(b""), "it ends before its end");
    assert_eq!(begin(b"<html>some page</html>"), "it is no stream of \"rowen send\"");
    let mut newer = head().encode();
    newer[0] = 2;
    assert!(
        begin(&sealed(at(0), frame::HEAD, 0, &newer)).contains("it has version 2, and this program reads version 1")
    );
    let mut more = head().encode();
    more[2] = 3;
    assert!(begin(&sealed(at(0), frame::HEAD, 0, &more)).contains("it has 3 volumes"));
    let mut featured = head().encode();
    featured[8] = 4;
    assert!(begin(&sealed(at(0), frame::HEAD, 0, &featured)).contains("features 0x4"));
    let odd = Head { group_name: "vg\u{1b}[2J".into(), ..head() };
    assert!(begin(&sealed(at(0), frame::HEAD, 0, &odd.encode())).contains("signs that are no letters"));
    for (place, byte) in [(4, 1), (16, 2), (17, 2), (8, 255)] {
        let mut strange = volume().encode();
        strange[place] = byte;
        strange[15] = if place == 8 { 255 } else { 0 };
        assert!(begin(&begun_with(&strange)).contains("makes no sense"), "{place}");
    }
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("checksum_not_compared", flips);
    must_be_found("frames_without_place", displaced);
    must_be_found("hash_not_compared", nonsense);
    must_be_found("ranges_not_compared", nonsense);
}

/// docs/stream.md says what the code does.
#[test]
fn the_page_and_the_code_say_the_same() {
    let page = include_str!("../../../docs/stream.md");
    let rows: BTreeMap<&str, &str> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((cells.next()?, cells.next()?))
        })
        .collect();
    for (name, kind) in KINDS {
        assert_eq!(rows.get(name), Some(&kind.to_string().as_str()), "{name}");
        assert!(page.contains(&format!("**{name}**")), "{name}");
    }
    for told in [
        format!("Version {VERSION}."),
        format!("magic: `{}`", std::str::from_utf8(&MAGIC).unwrap()),
        format!("at most {MAX_BODY}"),
        format!("from 1 to {MAX_RANGES}"),
        format!("at most {MAX_DATA}"),
        format!("must know: {FEATURES}."),
        "A *block* has 4096 bytes".to_owned(),
    ] {
        assert!(page.contains(&told), "{told}");
    }
    // The bytes of each fixed part, as the tables add up.
    let sum = |name: &str| {
        let part = page.split(&format!("**{name}**")).nth(1).unwrap();
        let table = part.lines().skip_while(|line| !line.starts_with("| bytes")).skip(2);
        let cells = table.take_while(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
        let size = |word: &str| match word {
            "u8" => 1,
            "u16" => 2,
            "u32" => 4,
            "u64" => 8,
            number => number.parse().unwrap_or(0),
        };
        cells.flat_map(|cell| cell.trim().split(", ").map(size).collect::<Vec<usize>>()).sum::<usize>()
    };
    assert_eq!(sum("Head"), head().encode().len() - 2 - 3);
    assert_eq!(sum("Volume"), volume().encode().len() - 6 - 2 - 3 - 3);
    assert_eq!(sum("Data"), data(&[], 0, 0, &[]).len() - frame::HEADER);
}
