//! The places where bytes come in. Each is a function that takes any bytes and says what it made of them; it panics where a
//! promise does not hold: what was read is the same after it was written and read again.

use crate::driver::Target;
use rowen_control::history;
use rowen_control::metadata::Document;
use rowen_control::protocol::{Outcome, Request, decode, encode, encode_compact, read_frame};
use rowen_control::{settings, syntax};
use rowen_engine::format::record::{block_crc, seal};
use rowen_engine::format::superblock::PvEntry;
use rowen_engine::format::tally::Tally;
use rowen_engine::format::zones::{MAX_ZONES, ZoneTable, are_sound};
use rowen_engine::format::{features, intents, journal, node, stream, superblock};
use rowen_engine::placement::Placement;
use rowen_engine::units::{Epoch, MetaBlock, Uuid};
use rowen_host::hostile;
use rowen_transfer::{Event, MAX_DATA, StreamReader, Token};

/// All of them, command lines apart: these are read by the program alone. Its own tests and `fuzz/guided` have that target.
pub const TARGETS: &[Target] = &[
    Target { name: "superblock", run: superblock },
    Target { name: "zones", run: zones },
    Target { name: "intents", run: write_intents },
    Target { name: "tally", run: tally },
    Target { name: "stream", run: stream },
    Target { name: "stream-blocks", run: stream_blocks },
    Target { name: "node", run: node },
    Target { name: "journal", run: journal },
    Target { name: "request", run: request },
    Target { name: "outcome", run: outcome },
    Target { name: "report", run: report },
    Target { name: "keeper", run: hostile::keeper_message },
    Target { name: "helper", run: hostile::helper_message },
    Target { name: "fuse", run: fuse },
    Target { name: "metadata", run: metadata },
    Target { name: "history", run: history_lines },
    Target { name: "settings", run: settings_file },
    Target { name: "devices", run: hostile::devices_file },
    Target { name: "transfer", run: transfer },
    Target { name: "token", run: token },
];

const BLOCK: usize = 4096;

/// A block of metadata with a right checksum: a wrong one hides all that lies behind it.
fn sealed(bytes: &[u8], magic: &[u8], crc_at: usize) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(BLOCK, 0);
    block[..magic.len()].copy_from_slice(magic);
    seal(&mut block, crc_at);
    block
}

fn word(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

fn superblock(bytes: &[u8]) -> String {
    let block = sealed(bytes, b"ROWENPV1", 8);
    let seen = features::FormatInfo::of(&block);
    match superblock::Superblock::decode(&block, "here") {
        Ok(Some(read)) => {
            assert!(seen.is_some_and(|seen| seen.can_be_opened()), "it was read, and cannot be opened");
            let again = superblock::Superblock::decode(&read.encode(), "here");
            assert_eq!(again.as_ref().map(Option::as_ref), Ok(Some(&read)), "another one when it comes back");
            format!("{} physical volumes", read.group.map_or(0, |group| group.pvs.len().min(5)))
        }
        Ok(None) => "none".into(),
        Err(why) => why.to_string(),
    }
}

/// A table of moved extents for as many physical volumes as the first byte says, of 16 extents each. The rest is ZoneRecords.
fn zones(bytes: &[u8]) -> String {
    const EXTENTS: u64 = 16;
    /// Above the numbers of mirrored and striped extents.
    const MOST: u64 = 1 << 45;
    let (pvs, records) = bytes.split_first().unwrap_or((&0, &[]));
    let entry =
        |n: u64| PvEntry { uuid: Uuid([1; 16]), first_extent: n * 2 * EXTENTS, extents: EXTENTS, size: 1 << 40 };
    let pvs: Vec<PvEntry> = (0..1 + u64::from(pvs % 4)).map(entry).collect();
    let homes: Vec<_> = pvs.iter().map(|pv| pv.first_extent..pv.first_extent + pv.extents).collect();
    let count = (records.len() / 32).min(MAX_ZONES);
    let mut table = ZoneTable { serial: 1, count: count as u32, ..ZoneTable::default() };
    let mut block = vec![0; table.bytes() as usize];
    block[..8].copy_from_slice(b"ROWENZON");
    block[12..16].copy_from_slice(&table.count.to_le_bytes());
    block[24..32].copy_from_slice(&table.serial.to_le_bytes());
    block[32..32 + count * 32].copy_from_slice(&records[..count * 32]);
    seal(&mut block, 8);
    table.crc = block_crc(&block, 8);
    let zones = match table.decode(&block, 0, "here") {
        Ok(zones) => zones,
        Err(why) => return why.to_string(),
    };
    if !are_sound(&zones, &homes, 4, MOST) {
        return "unsound".into();
    }
    let placement = Placement::with_zones(4, pvs.clone(), &zones);
    let placed: u64 = placement.runs().iter().map(|run| run.end - run.start).sum();
    assert_eq!(placed, placement.count(), "each extent has one number");
    let again = placement.zones();
    assert!(are_sound(&again, &homes, 4, MOST), "what is written again is not sound");
    assert_eq!(Placement::with_zones(4, pvs, &again).runs(), placement.runs(), "other places when it comes back");
    format!("{} zones", zones.len().min(5))
}

/// A sector of write intents, at the place that it names.
fn write_intents(bytes: &[u8]) -> String {
    let mut sector = sealed(bytes, b"RWNI", 4);
    sector.truncate(512);
    let number = u32::from_le_bytes(sector[16..20].try_into().expect("four bytes")) % intents::INTENT_SECTORS;
    sector[16..20].copy_from_slice(&number.to_le_bytes());
    seal(&mut sector, 4);
    let group = word(&sector, 8);
    let Some(open) = intents::decode(&sector, number, group) else { return "damaged".into() };
    let own = number * intents::REGIONS_IN_SECTOR..(number + 1) * intents::REGIONS_IN_SECTOR;
    assert!(open.iter().all(|region| own.contains(region)), "a region of another sector");
    assert_eq!(intents::encode(number, group, open.iter().copied())[..], sector, "another one when it comes back");
    format!("{} regions", open.len().min(5))
}

/// The tally of a physical volume.
fn tally(bytes: &[u8]) -> String {
    let mut sector = sealed(bytes, b"RWNT", 4);
    sector.truncate(512);
    seal(&mut sector, 4);
    let group = word(&sector, 8);
    let read = Tally::decode(&sector, group).expect("the magic and the checksum are right");
    assert_eq!(Tally::decode(&read.encode(group), group), Some(read), "another one when it comes back");
    format!("own {}, {} known", read.own.min(5), read.known.iter().filter(|known| **known > 0).count().min(5))
}

fn stream(bytes: &[u8]) -> String {
    match stream::Stream::decode(bytes) {
        Ok(read) => {
            let written = read.encode();
            let again = stream::Stream::decode(&written).expect("what was written can be read");
            assert!(again.encode() == written, "another one when it comes back");
            format!("{:?}", (read.trees.len().min(5), read.volumes.len().min(5), read.packs))
        }
        Err(why) => why.to_string(),
    }
}

fn stream_blocks(bytes: &[u8]) -> String {
    let block = sealed(bytes, b"ROWENIDX", 8);
    let index = stream::decode_index(&block, word(&block, 16), [word(&block, 24), word(&block, 32)], word(&block, 56));
    let page = sealed(bytes, b"ROWENPAG", 8);
    let crc = stream::sealed_crc(&page);
    let entry = stream::IndexEntry { copy_a: word(&page, 32), copy_b: 0, crc, reserved: 0 };
    let page = stream::decode_page(&page, word(&page, 16), word(&page, 24), &entry, word(&page, 40));
    let said =
        |outcome: Result<usize, rowen_engine::error::Error>| outcome.map_or_else(|e| e.to_string(), |_| "read".into());
    format!("{} {}", said(index.map(|read| read.0.len())), said(page.map(|read| read.len())))
}

fn node(bytes: &[u8]) -> String {
    let block = sealed(bytes, b"RwNd", 4);
    let name = node::NodeRef {
        addr: MetaBlock(word(&block, 16)),
        generation: word(&block, 24),
        birth: Epoch(word(&block, 32)),
    };
    let (level, group) = (block[9], word(&block, 40));
    match node::Node::decode(&block, name, level, group) {
        Ok(read) => {
            let again =
                node::Node::decode(&read.encode(group), name, level, group).expect("what was written can be read");
            assert!(
                again.extents().eq(read.extents()) && again.children().eq(read.children()),
                "another one comes back"
            );
            format!("{:?}", (read.level(), read.extents().count().min(5)))
        }
        Err(why) => why.to_string(),
    }
}

fn journal(bytes: &[u8]) -> String {
    let mut frame = bytes.to_vec();
    frame.resize(bytes.len().next_multiple_of(BLOCK).max(BLOCK), 0);
    frame[..8].copy_from_slice(b"ROWENJRN");
    let len = u32::from_le_bytes(frame[12..16].try_into().expect("four bytes")) as usize;
    let end = 64usize.saturating_add(len).min(frame.len());
    let crc = block_crc(&frame[..end], 8);
    frame[8..12].copy_from_slice(&crc.to_le_bytes());
    let Some(id) = journal::frame_id(&frame) else { return "none".into() };
    match journal::decode_frame(&frame, id) {
        Ok(None) => "the end".into(),
        Ok(Some(read)) => {
            assert!(read.bytes as usize <= frame.len(), "a frame that reaches beyond what there is");
            let kinds = read.records.iter().map(|record| format!("{:?}", std::mem::discriminant(record)));
            kinds.take(4).collect()
        }
        Err(why) => why.to_string(),
    }
}

/// A group's history. What is read is the same after it was written and read again, and nothing of it obeys a terminal.
fn history_lines(bytes: &[u8]) -> String {
    let (commands, events) = (history::read::<history::Command>(bytes), history::read::<history::Event>(bytes));
    let written: String = commands.lines.iter().map(history::write).collect();
    assert!(!written.replace('\n', "").chars().any(char::is_control), "a control character");
    assert_eq!(history::read::<history::Command>(written.as_bytes()).lines, commands.lines, "another one comes back");
    let written: String = events.lines.iter().map(history::write).collect();
    assert_eq!(history::read::<history::Event>(written.as_bytes()).lines, events.lines, "another one comes back");
    let count = commands.lines.len();
    let merged = history::merge(commands.lines);
    assert!(merged.len() <= count, "entries from nowhere");
    format!("{:?}", (count.min(3), merged.len().min(3), events.lines.len().min(3), events.damaged.min(3)))
}

/// What a client sends to a server.
fn request(bytes: &[u8]) -> String {
    let framed = match read_frame::<Request>(&mut &bytes[..]) {
        Ok(None) => "the end".into(),
        Ok(Some(request)) => format!("{request:?}"),
        Err(why) => why.kind().to_string(),
    };
    match decode::<Request>(bytes) {
        Ok(request) => {
            let again = encode(&request).expect("what was read is not too long");
            let again = decode::<Request>(&again[4..]).expect("what was written can be read");
            assert_eq!(request, again, "another one when it comes back");
            format!("{:?} {framed}", std::mem::discriminant(&request))
        }
        Err(why) => format!("{why} {framed}"),
    }
}

/// What a server answers.
fn outcome(bytes: &[u8]) -> String {
    match decode::<Outcome>(bytes) {
        Ok(outcome) => {
            let again = encode(&outcome).expect("what was read is not too long");
            let again = decode::<Outcome>(&again[4..]).expect("what was written can be read");
            assert_eq!(outcome, again, "another one when it comes back");
            format!("{:?}", std::mem::discriminant(&outcome))
        }
        Err(why) => why.to_string(),
    }
}

/// The same in the compact form.
fn report(bytes: &[u8]) -> String {
    match decode::<Outcome>(&[&[0], bytes].concat()) {
        Ok(outcome) => {
            let again = encode_compact(&outcome).expect("what was read is not too long");
            let again = decode::<Outcome>(&again[4..]).expect("what was written can be read");
            assert_eq!(outcome, again, "another one when it comes back");
            match outcome {
                Outcome::Report(report) => {
                    // A lookup meets names of any kind.
                    let found = report.volumes.iter().filter(|volume| report.volume(&volume.name).is_some()).count();
                    format!("{} of {}", found.min(4), report.volumes.len().min(4))
                }
                other => format!("{:?}", std::mem::discriminant(&other)),
            }
        }
        Err(why) => why.to_string(),
    }
}

fn fuse(bytes: &[u8]) -> String {
    hostile::fuse_request(bytes, 1 << 30, 4096)
}

/// A backup of the metadata that somebody has edited.
fn metadata(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match Document::read(&text) {
        Ok(document) => {
            let again = Document::read(&document.write()).expect("what was written can be read");
            assert_eq!(again.write(), document.write(), "another one when it comes back");
            format!("{:?}", (document.pvs.len().min(4), document.volumes.len().min(4)))
        }
        Err(why) => why.why,
    }
}

/// `rowen.conf`, `lvm.conf` and all that has their syntax.
fn settings_file(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let tree = syntax::parse(&text).map(|tree| tree.entries.len().min(6)).map_err(|why| why.why);
    let own = settings::read(&text).map(|config| format!("{:?}", settings::Settings::of(&config)));
    let lvms = settings::read_lvms(&text).map(|(_, told)| told.len().min(6)).map_err(|why| why.why);
    format!("{tree:?} {} {lvms:?}", own.unwrap_or_else(|why| why.why))
}

/// What `rowen send --resume` is given, without the digits and with the right sum.
fn token(bytes: &[u8]) -> String {
    match Token::of_bytes(bytes) {
        Ok(token) => {
            assert_eq!(Token::of_word(&token.to_word()).ok(), Some(token.clone()), "it is not read as it is written");
            format!("{} volumes", token.volumes.len().min(6))
        }
        Err(why) => why.to_string(),
    }
}

/// A stream of `rowen send`, with right checksums: a wrong one hides what lies behind it. The hashes stay as they are.
fn transfer(bytes: &[u8]) -> String {
    let mut stream = Vec::new();
    let mut rest = bytes;
    let mut place = rowen_transfer::Place::default();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let (body, after) = after.split_at(len.min(after.len()));
        stream.extend(rowen_transfer::sealed(place, number(4), number(6), body));
        if let Some(id) = body.get(16..32).filter(|_| place.frame == 0) {
            place.stream.copy_from_slice(id);
        }
        place.frame += 1;
        rest = after;
    }
    let (mut reader, head, volumes) = match StreamReader::begin(&stream[..]) {
        Ok(begun) => begun,
        Err(why) => return why.to_string(),
    };
    // The volume and the block that may come next.
    let mut next = head.continues.map_or((0, 0), |place| (place.volume, place.block));
    let mut events = 0;
    loop {
        match reader.next_event() {
            Ok(Event::Data { volume, ranges, bytes }) => {
                let blocks: u64 = ranges.iter().map(|range| u64::from(range.blocks)).sum();
                assert!(bytes.len() <= MAX_DATA && bytes.len() as u64 == blocks * 4096, "bytes of other ranges");
                for range in ranges {
                    assert!((volume, range.start) >= next, "backwards");
                    next = (volume, range.start + u64::from(range.blocks));
                }
            }
            Ok(Event::Zeros { volume, start, blocks }) => {
                assert!((volume, start) >= next, "backwards");
                next = (volume, start + blocks);
            }
            Ok(Event::Mark(place)) => {
                assert!((place.volume, place.block) >= next, "backwards");
                next = (place.volume, place.block);
            }
            Ok(Event::End(_)) => return format!("whole, {events} frames"),
            Err(why) => return format!("{why}, after {events} frames"),
        }
        assert!(next.1 <= volumes[next.0 as usize].blocks, "beyond the volume");
        events = (events + 1).min(9);
    }
}
