//! Streams that are whole, cut, changed, or made to do harm.
//!
//! Rules TR1, TR2, TR3, TR4 and TR5.

use super::*;
use crate::frame::{self, header};
use rowen_engine::planted::must_be_found;
use std::collections::BTreeMap;

const BLOCKS: u64 = 1 << 20;

fn head() -> Head {
    Head { stream: [1; 16], continues: None, volumes: 1, time: 1_790_000_000, group: [2; 16], group_name: "vg0".into() }
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
    let mut writer = StreamWriter::begin(Vec::new(), &head(), &[volume()], compress).unwrap();
    writer
        .data(
            0,
            &[Range { start: 1, blocks: 1 }, Range { start: 5, blocks: 2 }],
            &[block(7), block(8), block(9)].concat(),
        )
        .unwrap();
    writer.zeros(0, 7, 100).unwrap();
    writer.mark(0, 107).unwrap();
    let random: Vec<u8> = (0..BLOCK as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    writer.data(0, &[Range { start: BLOCKS - 1, blocks: 1 }], &random).unwrap();
    writer.end().unwrap()
}

/// All events up to the end.
fn read(bytes: &[u8]) -> Result<Vec<Event>, StreamError> {
    let (mut reader, head_read, volumes_read) = StreamReader::begin(bytes)?;
    assert_eq!((head_read, volumes_read), (head(), vec![volume()]));
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
            Event::Data { volume: 0, ranges, bytes },
            Event::Zeros { volume: 0, start: 7, blocks: 100 },
            Event::Mark(MarkPlace { volume: 0, block: 107, .. }),
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
    let mut writer = StreamWriter::begin(Vec::new(), &head(), &[volume()], true).unwrap();
    for at in 0..200 {
        writer.data(0, &[Range { start: at * 256, blocks: 256 }], &vec![at as u8; MAX_DATA]).unwrap();
    }
    for at in 0..16 << 10 {
        writer.zeros(0, 200 * 256 + 2 * at, 1).unwrap();
    }
    let events = read(&writer.end().unwrap()).unwrap();
    let marks: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Mark(place) => Some(place.block),
            _ => None,
        })
        .collect();
    let mib = [1, 2, 4, 8, 16, 32, 64, 128, 192];
    assert_eq!(marks[..9], mib.map(|mib| mib * 256));
    // A range of zeros counts as a block of data.
    assert_eq!(marks[9..], [200 * 256 + 2 * 56 * 256 - 1]);
}

#[test]
fn a_stream_that_is_cut_has_no_end() {
    let whole = stream(true);
    for len in 1..whole.len() {
        assert!(matches!(read(&whole[..len]), Err(StreamError::Cut)), "{len}");
    }
    assert!(matches!(read(&[]), Err(StreamError::Empty)));
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
    let mut writer = StreamWriter::begin(Vec::new(), &other, &[volume()], true).unwrap();
    (0..5).for_each(|at| writer.data(0, &[Range { start: BLOCKS - 10 + at, blocks: 1 }], &block(3)).unwrap());
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
    begun_with(&volume().encode(0))
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

/// The identities of the volume that was begun.
const POINTS: [[u8; 16]; 2] = [[3; 16], [4; 16]];

fn mark_body(volume: u64, block: u64, points: [[u8; 16]; 2], hash: &[u8; 32]) -> Vec<u8> {
    [&volume.to_le_bytes()[..], &block.to_le_bytes(), &points.concat(), hash].concat()
}

/// A mark right after what was begun.
fn mark(volume: u64, block: u64, points: [[u8; 16]; 2]) -> Vec<u8> {
    third(frame::MARK, 0, &mark_body(volume, block, points, blake3::hash(&begun()).as_bytes()))
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
        ("a mark with another hash", third(frame::MARK, 0, &mark_body(0, 9, POINTS, &[0; 32]))),
        ("a mark of another base", mark(0, 9, [[9; 16], [4; 16]])),
        ("a mark of other contents", mark(0, 9, [[3; 16], [9; 16]])),
        ("a mark beyond the end", mark(0, BLOCKS + 1, POINTS)),
        ("a mark of another volume", mark(1, 0, POINTS)),
        ("a mark of an impossible volume", mark(1 << 32, 0, POINTS)),
        (
            "data of another volume",
            third(
                frame::DATA,
                0,
                &[&[1, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[1, 0, 0, 0], &one].concat(),
            ),
        ),
        ("zeros of another volume", third(frame::ZERO, 0, &[1u64, 5, 1].map(u64::to_le_bytes).concat())),
        ("an end with another hash", third(frame::END, 0, &[0; 56])),
        ("a second head", third(frame::HEAD, 0, &head().encode())),
        ("a second volume", third(frame::VOLUME, 0, &volume().encode(0))),
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
    let before = [begun(), optional].concat();
    let marked = |hashed: &[u8]| {
        let body = mark_body(0, 9, POINTS, blake3::hash(hashed).as_bytes());
        let bytes = [&before[..], &sealed(self::at(3), frame::MARK, 0, &body)].concat();
        let (mut reader, ..) = StreamReader::begin(&bytes[..]).unwrap();
        reader.next_event()
    };
    assert!(matches!(marked(&before), Ok(Event::Mark(_))));
    assert!(matches!(marked(&begun()), Err(StreamError::OtherFrames)));
}

#[test]
fn a_length_takes_no_memory() {
    let mut huge = begun();
    let mut frame = header(at(2), frame::DATA, 0, [&[], &[]]);
    frame[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    huge.extend(frame);
    let (mut reader, ..) = StreamReader::begin(&huge[..]).unwrap();
    assert!(matches!(reader.next_event(), Err(StreamError::Damaged { .. })));
}

#[test]
fn beginnings_are_told_apart() {
    let begin = |bytes: &[u8]| StreamReader::begin(bytes).err().unwrap().to_string();
    assert_eq!(begin(b""), "nothing came: see what the sender says");
    assert_eq!(begin(b"hello"), "what came is no stream of \"rowen send\"");
    assert_eq!(begin(&frame::MAGIC), "the stream ends before its end");
    assert_eq!(begin(b"<html>some page</html>"), "what came is no stream of \"rowen send\"");
    let mut newer = head().encode();
    newer[0] = 2;
    assert!(
        begin(&sealed(at(0), frame::HEAD, 0, &newer)).contains("it has version 2, and this program reads version 1")
    );
    let mut more = head().encode();
    more[3] = 3;
    assert!(begin(&sealed(at(0), frame::HEAD, 0, &more)).contains("makes no sense"));
    more[2..4].copy_from_slice(&[2, 0]);
    let second = [begun_with(&volume().encode(0)), sealed(at(2), frame::VOLUME, 0, &volume().encode(0))].concat();
    let first = sealed(at(0), frame::HEAD, 0, &head().encode()).len();
    let two = [&sealed(at(0), frame::HEAD, 0, &more)[..], &second[first..]].concat();
    assert!(begin(&two).contains("makes no sense"), "two volumes of one number");
    let mut featured = head().encode();
    featured[8] = 4;
    assert!(begin(&sealed(at(0), frame::HEAD, 0, &featured)).contains("features 0x4"));
    let odd = Head { group_name: "vg\u{1b}[2J".into(), ..head() };
    assert!(begin(&sealed(at(0), frame::HEAD, 0, &odd.encode())).contains("signs that are no letters"));
    for (place, byte) in [(4, 1), (16, 2), (17, 2), (8, 255)] {
        let mut strange = volume().encode(0);
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
    must_be_found("marks_of_others", nonsense);
    must_be_found("token_not_summed", tokens);
}

/// A stream of three volumes, of which the second has no changes.
fn of_three() -> (Head, Vec<Volume>) {
    let volumes = ["a", "b", "c"].map(|name| Volume { name: name.into(), snapshot: format!("{name}-tue"), ..volume() });
    (Head { volumes: 3, ..head() }, volumes.to_vec())
}

#[test]
fn volumes_come_in_their_order() {
    let (head, volumes) = of_three();
    let mut writer = StreamWriter::begin(Vec::new(), &head, &volumes, false).unwrap();
    writer.data(0, &[Range { start: 5, blocks: 1 }], &block(1)).unwrap();
    writer.mark(0, BLOCKS).unwrap();
    writer.mark(1, BLOCKS).unwrap();
    writer.data(2, &[Range { start: 2, blocks: 1 }], &block(2)).unwrap();
    let stream = writer.end().unwrap();
    let (mut reader, head_read, volumes_read) = StreamReader::begin(&stream[..]).unwrap();
    assert_eq!((head_read, volumes_read), (head.clone(), volumes.clone()));
    let mut seen = Vec::new();
    loop {
        match reader.next_event().unwrap() {
            Event::Data { volume, ranges, .. } => seen.push((volume, ranges[0].start)),
            Event::Mark(place) => seen.push((place.volume, place.block)),
            Event::Zeros { .. } => panic!("there are none"),
            Event::End(_) => break,
        }
    }
    assert_eq!(seen, [(0, 5), (0, BLOCKS), (1, BLOCKS), (2, 2)]);
    // A volume does not come back.
    let mut writer = StreamWriter::begin(Vec::new(), &head, &volumes, false).unwrap();
    writer.data(2, &[Range { start: 5, blocks: 1 }], &block(1)).unwrap();
    writer.data(1, &[Range { start: 6, blocks: 1 }], &block(1)).unwrap();
    let stream = writer.end().unwrap();
    let (mut reader, ..) = StreamReader::begin(&stream[..]).unwrap();
    assert!(matches!(reader.next_event(), Ok(Event::Data { volume: 2, .. })));
    assert!(matches!(reader.next_event(), Err(StreamError::Malformed(_))));
}

fn goes_on_at() -> MarkPlace {
    MarkPlace { stream: [8; 16], volume: 1, block: 100, hash: [7; 32] }
}

#[test]
fn a_stream_that_goes_on_begins_at_its_mark() {
    let (head, volumes) = of_three();
    let begin =
        |place| StreamWriter::begin(Vec::new(), &Head { continues: Some(place), ..head.clone() }, &volumes, true);
    for (at, is_right) in [((1, 100), true), ((2, 0), true), ((1, 99), false), ((0, 200), false)] {
        let mut writer = begin(goes_on_at()).unwrap();
        writer.data(at.0, &[Range { start: at.1, blocks: 1 }], &block(1)).unwrap();
        let stream = writer.end().unwrap();
        let (mut reader, head, _) = StreamReader::begin(&stream[..]).unwrap();
        assert_eq!(head.continues, Some(goes_on_at()));
        assert_eq!(reader.next_event().is_ok(), is_right, "{at:?}");
    }
    for (volume, block) in [(1, BLOCKS + 1), (3, 0)] {
        let stream = begin(MarkPlace { volume, block, ..goes_on_at() }).unwrap().end().unwrap();
        assert!(matches!(StreamReader::begin(&stream[..]), Err(StreamError::Malformed(_))), "{volume} {block}");
    }
}

fn token() -> Token {
    let volumes = of_three().1.into_iter().map(|volume| TokenVolume {
        base: volume.base,
        point: volume.point,
        snapshot: volume.snapshot,
    });
    Token { place: goes_on_at(), group_name: "vg0".into(), volumes: volumes.collect() }
}

fn tokens() {
    let word = token().to_word();
    assert!(word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{word}");
    assert_eq!(Token::of_word(&word).unwrap(), token());
    for at in 0..word.len() {
        let mut changed = word.clone().into_bytes();
        changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
        assert!(Token::of_word(std::str::from_utf8(&changed).unwrap()).is_err(), "{at}");
        assert!(Token::of_word(&word[..at]).is_err(), "{at}");
    }
    assert!(Token::of_word("").is_err() && Token::of_word("rowen1-").is_err() && Token::of_word("rowen1-é").is_err());
}

#[test]
fn a_token_is_whole_or_none() {
    tokens();
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
        format!("from 1 to {MAX_VOLUMES}"),
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
    assert_eq!(sum("Mark"), 8 + 8 + 16 + 16 + 32);
    assert_eq!(sum("Volume"), volume().encode(0).len() - 6 - 2 - 3 - 3);
    assert_eq!(sum("Data"), data(&[], 0, 0, &[]).len() - frame::HEADER);
}
