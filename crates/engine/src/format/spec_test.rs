//! `docs/format.md` against the code: every record's table row by row, every constant, every kind of journal record.

use super::record::Field;
use super::{codec, intents, journal, node, stream, superblock, tally, zones};
use crate::model::{self, AllocPolicy, Attributes, FullPolicy, GroupAttributes, PvFlags, VolumeKind, VolumeState};
use crate::units::{LvBlock, Seq, TreeId, Uuid, VolumeId};
use crate::unproven::UnprovenRun;
use std::collections::BTreeMap;

const SPEC: &str = include_str!("../../../../docs/format.md");

/// Name, size, rows.
type Table = (String, usize, Vec<(usize, usize, String)>);

macro_rules! records {
    ($($module:ident :: $name:ident,)*) => {
        vec![$(($module::$name::NAME, $module::$name::SIZE, $module::$name::FIELDS)),*]
    };
}

/// All records of the format. `every_record_is_listed` checks that none is missing here.
fn records() -> Vec<(&'static str, usize, &'static [Field])> {
    records![
        superblock::SuperblockRecord,
        superblock::BadRunRecord,
        superblock::LeftRecord,
        superblock::PvRecord,
        zones::ZoneTableRecord,
        zones::ZoneRecord,
        intents::IntentsRecord,
        tally::TallyRecord,
        stream::IndexHeader,
        stream::IndexEntry,
        stream::PageHeader,
        stream::StreamHeader,
        stream::GroupRecord,
        stream::PairRecord,
        stream::TreeRecord,
        stream::DeadRecord,
        stream::VolumeRecord,
        stream::ArenaRecord,
        stream::RunRecord,
        stream::UnprovenRecord,
        node::NodeHeader,
        journal::FrameHeader,
        journal::RecordHeader,
        journal::WriteRecord,
        journal::WriteExtentRecord,
        journal::UnmapRecord,
        journal::ResizeRecord,
        journal::PlacedRecord,
    ]
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()
}

/// The tables under headings of the form `### Name, N bytes`.
fn tables(spec: &str) -> Vec<Table> {
    let sections = spec.split("\n### ").skip(1);
    let tables = sections.filter_map(|section| {
        let (heading, text) = section.split_once('\n')?;
        let (name, size) = heading.split_once(", ")?;
        let size = size.strip_suffix(" bytes")?.parse().expect("a size is a number");
        let text = text.split("\n## ").next().expect("a split has a first part");
        let table = text.lines().skip_while(|line| !line.starts_with("| offset")).skip(2);
        let rows = table.take_while(|line| line.starts_with('|')).map(|line| {
            let row = cells(line);
            assert!(row.len() >= 4 && !row[3].is_empty(), "{name}: a row without a meaning: {line}");
            (row[0].parse().expect("an offset"), row[1].parse().expect("a size"), row[2].to_string())
        });
        Some((name.to_string(), size, rows.collect()))
    });
    tables.collect()
}

/// Size and rows of each table, by the record's name.
type Tables = BTreeMap<String, (usize, Vec<(usize, usize, String)>)>;

/// What contradicts the code.
fn contradictions(spec: &str) -> Vec<String> {
    let mut tables: Tables = BTreeMap::new();
    let mut found = Vec::new();
    for (name, size, rows) in self::tables(spec) {
        if tables.insert(name.clone(), (size, rows)).is_some() {
            found.push(format!("{name} has two tables"));
        }
    }
    for (name, size, fields) in records() {
        let Some((spec_size, rows)) = tables.remove(name) else {
            found.push(format!("{name} has no table"));
            continue;
        };
        if spec_size != size {
            found.push(format!("{name} has {size} bytes, the page says {spec_size}"));
        }
        let code: Vec<_> = fields.iter().map(|f| (f.at, f.len, f.name.to_string())).collect();
        if rows != code {
            let first = code.iter().zip(&rows).find(|(a, b)| a != b);
            found.push(format!("{name}: {} rows, {} fields; first that differ: {first:?}", rows.len(), code.len()));
        }
    }
    found.extend(tables.keys().map(|name| format!("{name} is no record")));
    found
}

#[test]
fn every_record_has_its_table() {
    let found = contradictions(SPEC);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_page_that_is_wrong_is_noticed() {
    for (from, to) in [
        (
            "| 24 | 8 | `generation` | of the checkpoint that wrote",
            "| 24 | 4 | `generation` | of the checkpoint that wrote",
        ),
        ("| 8 | 8 | `len` | at least 1 |\n", ""),
        ("### PairRecord, 16 bytes", "### PairRecord, 24 bytes"),
        ("### PairRecord, 16 bytes", "### PeerRecord, 16 bytes"),
        ("| 40 | 8 | `marker`", "| 40 | 8 | `mark`"),
    ] {
        assert!(SPEC.contains(from), "the page has changed: {from}");
        assert!(!contradictions(&SPEC.replacen(from, to, 1)).is_empty(), "{from} -> {to}");
    }
}

#[test]
fn every_record_is_listed() {
    // A module that is not named here would hide its records. The folder's own list shows which modules there are.
    let modules = [
        ("codec", include_str!("codec.rs")),
        ("features", include_str!("features.rs")),
        ("intents", include_str!("intents.rs")),
        ("journal", include_str!("journal.rs")),
        ("node", include_str!("node.rs")),
        ("packed", include_str!("packed.rs")),
        ("record", include_str!("record.rs")),
        ("stream", include_str!("stream.rs")),
        ("superblock", include_str!("superblock.rs")),
        ("tally", include_str!("tally.rs")),
        ("zones", include_str!("zones.rs")),
    ];
    let declared = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let named: Vec<&str> = modules.iter().map(|(name, _)| *name).collect();
    assert_eq!(declared.collect::<Vec<_>>(), named);
    let declarations: usize =
        modules.iter().map(|(_, text)| text.lines().filter(|line| line.starts_with("on_disk! {")).count()).sum();
    assert_eq!(declarations, records().len());
}

#[test]
fn constants_are_what_the_page_says() {
    let rows = SPEC.lines().skip_while(|line| !line.starts_with("| constant ")).skip(2);
    let spec: Vec<(&str, u64)> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| (cells(line)[0], cells(line)[1].parse().expect("a number")))
        .collect();
    let code = [
        ("DATA_OFFSET", superblock::DATA_OFFSET),
        ("SLOTS", superblock::SLOTS),
        ("COPY_A", superblock::COPY_OFFSETS[0]),
        ("COPY_B", superblock::COPY_OFFSETS[1]),
        ("MAX_PVS", superblock::MAX_PVS as u64),
        ("VERSION", u64::from(superblock::VERSION)),
        ("FEATURE_ATTRIBUTES", superblock::FEATURE_ATTRIBUTES),
        ("FEATURE_GAPS", superblock::FEATURE_GAPS),
        ("FEATURE_ALLOCATION", superblock::FEATURE_ALLOCATION),
        ("FEATURE_PACKED_RUNS", superblock::FEATURE_PACKED_RUNS),
        ("FEATURE_PAIR_LENGTHS", superblock::FEATURE_PAIR_LENGTHS),
        ("FEATURE_BAD_RUNS", superblock::FEATURE_BAD_RUNS),
        ("FEATURE_MEMBERS", superblock::FEATURE_MEMBERS),
        ("FEATURE_UNPROVEN", superblock::FEATURE_UNPROVEN),
        ("FEATURE_ZONES", superblock::FEATURE_ZONES),
        ("FEATURE_SECOND_JOURNAL", superblock::FEATURE_SECOND_JOURNAL),
        ("FEATURE_BOOKMARKS", superblock::FEATURE_BOOKMARKS),
        ("FEATURE_MIRRORS", superblock::FEATURE_MIRRORS),
        ("FEATURE_CONVERTED", superblock::FEATURE_CONVERTED),
        ("FEATURE_STRIPES", superblock::FEATURE_STRIPES),
        ("KNOWN_INCOMPATIBLE", superblock::KNOWN_INCOMPATIBLE),
        ("LEFT_OFFSET", superblock::LEFT_OFFSET as u64),
        ("PAGE_PAYLOAD", stream::PAGE_PAYLOAD as u64),
        ("INDEX_ENTRIES", stream::INDEX_ENTRIES as u64),
        ("NODE_CAPACITY", node::CAPACITY as u64),
        ("NODE_LIMIT", node::LIMIT),
        ("RECORD_LIMIT", codec::RECORD_LIMIT),
        ("MAX_FRAME", journal::MAX_FRAME as u64),
    ];
    assert_eq!(spec, code);
}

fn volume() -> model::VolumeMeta {
    model::VolumeMeta {
        id: VolumeId(3),
        uuid: Uuid([9; 16]),
        name: "data".into(),
        segment: Default::default(),
        kind: VolumeKind::Thin,
        state: VolumeState::Ok,
        blocks: 1000,
        sector: 512,
        chunk_blocks: 16,
        read_only: true,
        full: FullPolicy::Fail,
        origin: Some(VolumeId(1)),
        reserve: Some(77),
        head: TreeId(5),
        attributes: Attributes {
            active: true,
            created: 5,
            pool: "p".into(),
            tags: vec!["t".into()],
            ..Attributes::default()
        },
    }
}

/// One of each kind, by the name that the page uses, with the length of its body as the page gives it.
fn one_of_each() -> Vec<(&'static str, journal::Record, usize)> {
    use journal::Record;
    let v = VolumeId(3);
    // The record, then "data", "p" and "t", each after two bytes of length.
    let volume_bytes = stream::VolumeRecord::SIZE + 6 + 3 + 3;
    let extent = journal::WriteExtent { lv_block: LvBlock(1), vg_block: crate::units::VgBlock(2), len: 3, data_crc: 4 };
    let placed = journal::Placed { lv_block: LvBlock(1), vg_block: crate::units::VgBlock(2), len: 3 };
    let part = journal::SnapshotPart { origin: VolumeId(1), point: TreeId(4), volume: volume() };
    vec![
        ("Write", Record::Write { volume: v, extents: [extent, extent].into_iter().collect() }, 16 + 2 * 24),
        ("Unmap", Record::Unmap { volume: v, start: LvBlock(5), len: 6 }, 24),
        ("Abort", Record::Abort { seq: Seq(7) }, 8),
        ("Create", Record::Create { volume: volume(), placed: vec![placed] }, volume_bytes + 8 + 24),
        ("Snapshot", Record::Snapshot { parts: vec![part] }, 8 + 16 + volume_bytes),
        ("Resize", Record::Resize { volume: v, blocks: 9, placed: vec![placed] }, 24 + 24),
        ("Remove", Record::Remove { volumes: vec![v, VolumeId(4)] }, 8 + 16),
        (
            "Revert",
            Record::Revert { target: v, source: VolumeId(4), consume: true, point: TreeId(8), head: TreeId(9) },
            40,
        ),
        ("Update", Record::Update { volume: volume() }, volume_bytes),
        ("Invalidate", Record::Invalidate { volume: v }, 8),
    ]
}

#[test]
fn journal_records_are_the_ones_of_the_page() {
    let rows = SPEC.lines().skip_while(|line| !line.starts_with("| kind | record |")).skip(2);
    let spec: Vec<(u16, &str)> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| (cells(line)[0].parse().expect("a number"), cells(line)[1]))
        .collect();
    let encoded = |record: &journal::Record| {
        let mut out = codec::Encoder::default();
        record.encode(&mut out);
        out.bytes
    };
    let code: Vec<(u16, &str)> = one_of_each()
        .iter()
        .map(|(name, record, len)| {
            let bytes = encoded(record);
            let header = journal::RecordHeader::decode_from(&bytes).expect("a record has a header");
            assert_eq!((header.len as usize, bytes.len()), (*len, len + journal::RecordHeader::SIZE), "{name}");
            (header.kind, *name)
        })
        .collect();
    assert_eq!(spec, code);
}

#[test]
fn a_frame_gives_back_what_was_put_into_it() {
    let mut out = codec::Encoder::default();
    let records: Vec<journal::Record> = one_of_each().into_iter().map(|(_, record, _)| record).collect();
    records.iter().for_each(|record| record.encode(&mut out));
    let id = journal::FrameId { journal_id: 2, group: 3, position: 4096, first_seq: Seq(10) };
    let mut block = vec![0; journal::frame_bytes(out.bytes.len())];
    journal::encode_frame(id, records.len() as u32, Seq(8), &out.bytes, &mut block);
    let frame = journal::decode_frame(&block, id).unwrap().unwrap();
    assert_eq!((frame.records, frame.marker, frame.bytes), (records, Seq(8), block.len() as u64));
    for other in [
        journal::FrameId { journal_id: 1, ..id },
        journal::FrameId { group: 4, ..id },
        journal::FrameId { position: 0, ..id },
        journal::FrameId { first_seq: Seq(11), ..id },
    ] {
        assert!(journal::decode_frame(&block, other).unwrap().is_none(), "{other:?}");
    }
    for bit in 0..(journal::FrameHeader::SIZE + out.bytes.len()) * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(journal::decode_frame(&block, id), Ok(None)), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn impossible_numbers_in_records_are_refused() {
    use journal::Record;
    let refused = |record: Record| {
        let mut out = codec::Encoder::default();
        record.encode(&mut out);
        let id = journal::FrameId { journal_id: 1, group: 1, position: 0, first_seq: Seq(1) };
        let mut block = vec![0; journal::frame_bytes(out.bytes.len())];
        journal::encode_frame(id, 1, Seq(1), &out.bytes, &mut block);
        journal::decode_frame(&block, id).is_err()
    };
    let v = VolumeId(3);
    let far = codec::RECORD_LIMIT;
    assert!(refused(Record::Unmap { volume: v, start: LvBlock(far), len: 1 }));
    assert!(refused(Record::Unmap { volume: v, start: LvBlock(0), len: 0 }));
    assert!(refused(Record::Unmap { volume: v, start: LvBlock(u64::MAX), len: 2 }));
    assert!(refused(Record::Resize { volume: v, blocks: far + 1, placed: Vec::new() }));
    assert!(refused(Record::Create {
        volume: model::VolumeMeta { id: VolumeId(far), ..volume() },
        placed: Vec::new()
    }));
    assert!(refused(Record::Create { volume: model::VolumeMeta { chunk_blocks: 3, ..volume() }, placed: Vec::new() }));
    assert!(refused(Record::Create {
        volume: model::VolumeMeta { head: TreeId(far), ..volume() },
        placed: Vec::new()
    }));
    assert!(refused(Record::Revert { target: v, source: v, consume: true, point: TreeId(far), head: TreeId(1) }));
    assert!(!refused(Record::Unmap { volume: v, start: LvBlock(far - 1), len: 1 }));
}

fn sample_stream() -> stream::Stream {
    let tree = model::TreeMeta {
        id: TreeId(1),
        parent: None,
        kind: model::TreeKind::Point,
        epoch: crate::units::Epoch(1),
        birth: crate::units::Epoch(1),
        tree: crate::map::Tree::default(),
        mapped: 3,
        written: 2,
        own: -1,
        charged: Some(VolumeId(3)),
        cursor: 4,
        progress: 5,
        dead: vec![(crate::units::Epoch(1), 6), (crate::units::Epoch(2), 7)],
    };
    stream::Stream {
        epoch: 2,
        next_volume: 4,
        next_tree: 6,
        free_blocks: 9,
        pv_free: vec![4, 5],
        pairs: vec![[256, 512]],
        trees: vec![tree],
        volumes: vec![volume()],
        arenas: vec![model::ArenaMeta { start: 10, len: 3, used: [0; 128] }],
        to_free: vec![(5, 6)],
        open_records: vec![1, 2],
        unproven: vec![UnprovenRun { start: 7, len: 2, crc: Some(3) }, UnprovenRun { start: 9, len: 1, crc: None }],
        attributes: GroupAttributes {
            autoactivate: false,
            alloc: AllocPolicy::Cling,
            max_volumes: 7,
            tags: vec!["g".into()],
            pv_tags: vec![Vec::new(), vec!["x".into(), "y".into()]],
            unallocatable: PvFlags(2),
            ..GroupAttributes::default()
        },
        bitmap: vec![3; 32],
        ..stream::Stream::default()
    }
}

#[test]
fn a_stream_has_the_length_that_the_page_gives_and_comes_back() {
    let stream = sample_stream();
    let bytes = stream.encode();
    let group = 64 + 3 + 2 * 8 + 2 * 3;
    assert_eq!(
        bytes.len(),
        192 + group + 2 * 8 + 16 + (128 + 2 * 16) + (104 + 6 + 3 + 3) + 144 + 16 + 2 * 8 + 2 * 24 + 32
    );
    let back = stream::Stream::decode(&bytes).unwrap();
    assert_eq!(format!("{back:?}"), format!("{stream:?}"));
    for cut in 0..bytes.len() {
        assert!(stream::Stream::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(stream::Stream::decode(&[&bytes[..], &[0]].concat()).is_err());
    let attributes = superblock::FEATURE_ATTRIBUTES | superblock::FEATURE_ALLOCATION;
    assert_eq!(stream.features(), attributes | superblock::FEATURE_UNPROVEN);
    let proven = stream::Stream { unproven: Vec::new(), ..stream };
    assert_eq!((proven.encode().len(), proven.features()), (bytes.len() - 2 * 24, attributes));
    let plain = stream::Stream { attributes: GroupAttributes::default(), ..proven };
    let bytes = bytes.len() - 2 * 24 - group;
    assert_eq!(plain.encode().len(), bytes, "what has no properties of its own has no record of them");
    assert_eq!(plain.features(), 0);
    let mut marked = plain.clone();
    marked.volumes[0].name = "bookmark:mon".into();
    assert_eq!(marked.features(), superblock::FEATURE_BOOKMARKS);
    let short = stream::Stream { pair_lengths: vec![7], ..plain };
    assert_eq!(short.encode().len(), bytes + 8);
    assert_eq!(short.features(), superblock::FEATURE_PAIR_LENGTHS);
    assert_eq!(stream::Stream::decode(&short.encode()).unwrap().pair_lengths, [7]);
}

#[test]
fn impossible_numbers_in_a_stream_are_refused() {
    let refused = |change: fn(&mut stream::Stream)| {
        let mut stream = sample_stream();
        change(&mut stream);
        stream::Stream::decode(&stream.encode()).is_err()
    };
    assert!(refused(|s| s.epoch = codec::RECORD_LIMIT));
    assert!(refused(|s| s.next_tree = u64::MAX));
    assert!(refused(|s| s.trees[0].own = i64::MIN));
    assert!(refused(|s| s.trees[0].mapped = codec::RECORD_LIMIT));
    assert!(refused(|s| s.trees[0].dead.reverse()));
    assert!(refused(|s| s.volumes[0].sector = 1024));
    assert!(refused(|s| s.volumes[0].head = TreeId(u64::MAX)));
    assert!(refused(|s| s.arenas[0].len = 1025));
    assert!(refused(|s| s.pair_lengths = vec![1, 2]));
    assert!(refused(|s| s.arenas[0].used[0] = 8), "the fourth block of three");
    assert!(!refused(|s| s.arenas[0].used[0] = 4));
}
