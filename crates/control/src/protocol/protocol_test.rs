use super::*;
use crate::lists::Lists;
use rowen_engine::group as engine;
use rowen_engine::units::Uuid;
use std::io;

fn spec() -> SnapshotSpec {
    SnapshotSpec {
        origin: "original".into(),
        name: "snap".into(),
        uuid: Uuid([7; 16]),
        reserve_blocks: Some(1024),
        read_only: true,
        chunk_blocks: 16,
        activate: true,
        attributes: Attributes { tags: vec!["t".into()], ..Attributes::default() },
    }
}

fn caller() -> Caller {
    let lists = Lists { auto: Some(vec!["@boot".into()]), ..Lists::default() };
    Caller { command: "lvs".into(), id: "x".into(), user: "root".into(), pid: 1, no_backup: true, lists }
}

fn place() -> DiffPlace {
    let side = DiffSide { id: 3, head: u64::MAX, blocks: 1 << 28 };
    DiffPlace { old: Some(side), new: side, block: 7 }
}

#[test]
fn a_full_page_of_changes_is_far_below_the_cap() {
    let range = |n: u64| DiffRange { start_block: (1 << 47) + 2 * n, blocks: u64::from(u32::MAX), is_data: n % 2 == 0 };
    let DiffPlace { old, new, block } = place();
    let page = DiffPage { old, new, ranges: (0..PAGE_RANGES as u64).map(range).collect(), next_block: Some(block) };
    assert_eq!(page.next(), Some(place()));
    let outcome = Outcome::Diff(Box::new(page));
    let mut frame = Vec::new();
    write_outcome(&mut frame, &outcome).unwrap();
    assert!(frame.len() < FRAME_CAP / 32, "{} bytes", frame.len());
    assert_eq!(read_frame::<Outcome>(&mut &frame[..]).unwrap(), Some(outcome));
}

#[test]
fn frames_come_back_as_they_were_sent() {
    let requests = [
        Request::Hello { version: VERSION, caller: caller() },
        Request::Snapshot { specs: vec![spec()], freeze: true },
        Request::SetAttributes { name: "a".into(), change: AttributeChange::default() },
        Request::Io,
        Request::Diff { old: Some("a".into()), new: "b".into(), from: Some(place()) },
        Request::Bookmark { snapshot: "a".into(), name: "b".into(), uuid: Uuid([7; 16]), created: 9 },
        Request::RemoveBookmark { name: "b".into() },
        Request::Stop,
        Request::Upgrade { to: "2".into() },
    ];
    let mut bytes = Vec::new();
    for request in &requests {
        write_frame(&mut bytes, request).unwrap();
    }
    let mut from = &bytes[..];
    for request in &requests {
        assert_eq!(read_frame::<Request>(&mut from).unwrap().as_ref(), Some(request));
    }
    assert_eq!(read_frame::<Request>(&mut from).unwrap(), None);
}

/// What the stable part looks like never changes: programs of other versions read it.
#[test]
fn the_stable_part_is_what_it_always_was() {
    let hello: Request = decode(br#"{"hello":{"version":0,"caller":{"command":"rowen upgrade"}}}"#).unwrap();
    assert!(matches!(hello, Request::Hello { version: STABLE, .. }));
    let upgrade: Request = decode(br#"{"upgrade":{"to":"1.2","more":1}}"#).unwrap();
    assert_eq!(upgrade, Request::Upgrade { to: "1.2".into() });
    let answers: [(&[u8], Outcome); 3] = [
        (
            br#"{"hello":{"version":12,"group":"vg","pid":7,"notes":1,"oldest_notes":1,"more":1}}"#,
            Outcome::Hello { version: 12, group: "vg".into(), pid: 7, notes: 1, oldest_notes: 1 },
        ),
        (br#""hands-over""#, Outcome::HandsOver),
        (
            br#"{"error":{"kind":"in-use","message":"m"}}"#,
            Outcome::Error { kind: ErrorKind::InUse, message: "m".into() },
        ),
    ];
    for (bytes, outcome) in answers {
        assert_eq!(decode::<Outcome>(bytes).unwrap(), outcome);
    }
}

#[test]
fn a_cut_an_overlong_or_a_senseless_frame_is_an_error() {
    let whole = encode(&Request::Report { with_use: false }).unwrap();
    for end in 1..whole.len() {
        assert!(read_frame::<Request>(&mut &whole[..end]).is_err(), "cut at {end}");
    }
    let overlong = u32::try_from(FRAME_CAP + 1).unwrap().to_le_bytes();
    assert_eq!(frame_length(overlong).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(read_frame::<Request>(&mut &overlong[..]).is_err());
    assert!(decode::<Request>(b"{\"no-such-request\":{}}").is_err());
    assert!(decode::<Request>(b"\xff\xfe").is_err());
}

fn report(volumes: u64) -> GroupReport {
    let info = engine::GroupInfo {
        uuid: Uuid([1; 16]),
        name: "vg".into(),
        extent_blocks: 1024,
        extents: 9,
        free_extents: 8,
        allocatable_extents: 7,
        blocks: 9216,
        free_blocks: 8192,
        available_blocks: 8191,
        reserved_blocks: 1,
        pending_blocks: 2,
        metadata_blocks: 3,
        journal_copies: 1,
        journal_copies_written: 1,
        sequence: 4,
        lineage: 0,
        pvs: Vec::new(),
        reclaim_left: 5,
        attributes: Default::default(),
    };
    let volume = |n: u64| engine::VolumeInfo {
        id: rowen_engine::units::VolumeId(n),
        name: format!("lv{n}"),
        uuid: Uuid([n as u8; 16]),
        kind: engine::VolumeKind::Thin,
        segment: rowen_engine::group::SegmentType::Linear,
        state: engine::VolumeState::Ok,
        blocks: 1 << 18,
        sector: 512,
        chunk_blocks: 16,
        read_only: n % 2 == 0,
        full: engine::FullPolicy::Hold,
        origin: (n > 1).then_some(rowen_engine::units::VolumeId(1)),
        reserve: (n % 3 == 0).then_some(n),
        attributes: engine::Attributes { pool: "lv0".into(), ..Default::default() },
        referenced: n,
        exclusive: n,
        freed_if_removed: n,
        snapshot_used: n,
        moment: None,
        point: (n % 5 == 0).then_some(Uuid([n as u8; 16])),
    };
    GroupReport::new(info, &[], (0..volumes).map(volume).collect(), |_| NodeState::default())
}

#[test]
fn a_report_is_sent_in_its_compact_form() {
    let outcome = Outcome::Report(Box::new(report(1000)));
    let mut frame = Vec::new();
    write_outcome(&mut frame, &outcome).unwrap();
    assert!(frame.len() * 3 < encode(&outcome).unwrap().len(), "{} bytes", frame.len());
    assert_eq!(read_frame::<Outcome>(&mut &frame[..]).unwrap(), Some(outcome));
    for end in (5..frame.len()).step_by(997) {
        assert!(decode::<Outcome>(&frame[4..end]).is_err(), "cut at {end}");
    }
    // A count that promises more than there is makes nobody allocate it.
    assert!(decode::<Outcome>(&[&frame[4..6], &[0xff; 12]].concat()).is_err());
    write_outcome(&mut frame, &Outcome::Ok).unwrap();
    assert!(frame.ends_with(b"\"ok\""), "other answers can be read by a person");
}

#[test]
fn a_report_finds_its_volumes() {
    let report = report(7);
    assert_eq!(report.volume("lv3").unwrap().id, 3);
    assert_eq!(report.volume("lv7"), None);
    assert_eq!(report.snapshots_of("lv1").map(|volume| volume.id).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    assert_eq!(report.members_of("lv0").count(), 6);
    let mut fewer = report.clone();
    fewer.volumes.retain(|volume| volume.id != 3);
    assert_eq!(fewer.volume("lv3"), None);
    assert_eq!(fewer.volume("lv4").unwrap().id, 4);
}

#[test]
fn an_identifier_must_be_whole() {
    let good = serde_json::to_string(&spec()).unwrap();
    assert!(good.contains(&"07".repeat(16)));
    for bad in ["07", "+7070707070707070707070707070707", "zz"] {
        let text = good.replace(&"07".repeat(16), bad);
        assert!(serde_json::from_str::<SnapshotSpec>(&text).is_err(), "{bad}");
    }
}

#[test]
fn a_change_of_attributes_leaves_the_rest() {
    let before = engine::Attributes { tags: vec!["a".into(), "b".into()], created: 5, ..Default::default() };
    let change = AttributeChange {
        skip_activation: Some(true),
        add_tags: vec!["b".into(), "c".into()],
        remove_tags: vec!["a".into(), "nosuch".into()],
        ..Default::default()
    };
    let after = change.apply(&before);
    assert_eq!(after.tags, ["b", "c"]);
    assert!(after.skip_activation && !after.autoactivate);
    assert_eq!(after.created, 5);
}

#[test]
fn progress_and_notices_are_not_the_last_word() {
    assert!(Outcome::Progress { done: 1, total: 2, what: "nodes".into() }.is_interim());
    assert!(Outcome::Notice { message: "nearly full".into() }.is_interim());
    assert!(!Outcome::Ok.is_interim());
}

#[test]
fn counters_are_sent_in_their_compact_form() {
    let counts =
        IoCounts { read: OpCounts { requests: 3, buckets: [1; BUCKETS], ..Default::default() }, ..Default::default() };
    let volume = |n: u8| VolumeIo { name: format!("lv{n}"), uuid: Uuid([n; 16]), is_active: n % 2 == 0, counts };
    let pvs = vec![PvIo { path: "/dev/sda".into(), uuid: Uuid([9; 16]), counts }];
    let volumes = (0..200).map(volume).collect();
    let report = IoReport { open_micros: 7, request_memory_limit_bytes: 9, pvs, volumes, ..IoReport::default() };
    let outcome = Outcome::Io(Box::new(report));
    let mut frame = Vec::new();
    write_outcome(&mut frame, &outcome).unwrap();
    assert!(frame.len() * 3 < encode(&outcome).unwrap().len(), "{} bytes", frame.len());
    assert_eq!(read_frame::<Outcome>(&mut &frame[..]).unwrap(), Some(outcome));
}
