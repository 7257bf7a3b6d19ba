//! Lists of changes over the control socket: pages, and what a client may send.

use super::super::asked::ask;
use super::super::memory::Memory;
use crate::protocol::*;
use crate::settings::Settings;
use rowen_engine::disk::PageBuf;
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::sync::Arc;

fn page(world: &Memory, old: &str, new: &str, from: Option<DiffPlace>) -> Result<DiffPage, (ErrorKind, String)> {
    match ask(world, Request::Diff { old: Some(old.into()), new: new.into(), from }) {
        Outcome::Diff(page) => Ok(*page),
        Outcome::Error { kind, message } => Err((kind, message)),
        outcome => panic!("{outcome:?}"),
    }
}

/// Volume `a` with a snapshot `s`, and every second of its first blocks written since.
fn world(written: u64) -> Memory {
    let group = NewGroup {
        uuid: Uuid([2; 16]),
        name: "vg".into(),
        extent_blocks: 1024,
        pvs: vec![NewPv { uuid: Uuid([4; 16]) }],
        second_journal: None,
    };
    let world = Memory::create(group, &[("/dev/a", 1 << 30)], Settings::default()).unwrap();
    let spec = VolumeSpec {
        name: "a".into(),
        uuid: Uuid([7; 16]),
        kind: VolumeKind::Thin,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: 2 * written + 1024,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes::default(),
    };
    let snapshot = SnapshotSpec {
        origin: "a".into(),
        name: "s".into(),
        uuid: Uuid([8; 16]),
        reserve_blocks: None,
        read_only: true,
        chunk_blocks: 1,
        activate: false,
        attributes: Attributes::default(),
    };
    for request in [
        Request::CreateVolume { spec, activate: false, on: Vec::new() },
        Request::Snapshot { specs: vec![snapshot], freeze: false },
    ] {
        let outcome = ask(&world, request);
        assert!(!matches!(outcome, Outcome::Error { .. }), "{outcome:?}");
    }
    let volume = world.service.group.volume(world.service.group.find("a").unwrap()).unwrap();
    world.service.run(async move {
        let buf = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
        for block in 0..written {
            volume.write(2 * block * BLOCK_SIZE, BLOCK_SIZE as u32, buf.clone()).await.unwrap();
        }
    });
    world
}

#[test]
fn a_long_list_comes_in_pages() {
    const WRITTEN: u64 = PAGE_RANGES as u64 + 1000;
    let world = world(WRITTEN);
    let first = page(&world, "s", "a", None).unwrap();
    assert!(first.ranges.len() >= PAGE_RANGES && first.ranges.len() < PAGE_RANGES + 200, "{}", first.ranges.len());
    let place = first.next().expect("there is more");
    // Another name is no other volume.
    let outcome = ask(&world, Request::Rename { from: "a".into(), to: "b".into() });
    assert_eq!(outcome, Outcome::Ok);
    let second = page(&world, "s", "a", Some(place)).unwrap();
    assert_eq!(second.next(), None);
    let starts: Vec<u64> = first.ranges.iter().chain(&second.ranges).map(|range| range.start_block).collect();
    assert_eq!(starts, (0..WRITTEN).map(|n| 2 * n).collect::<Vec<_>>());
    // A volume that is gone is an error; no other volume is listed in its place.
    assert_eq!(ask(&world, Request::Remove { names: vec!["s".into()] }), Outcome::Ok);
    let (kind, message) = page(&world, "s", "b", Some(place)).unwrap_err();
    assert_eq!(kind, ErrorKind::Changed);
    assert!(message.contains("vg/s or vg/b was removed"), "{message}");
}

#[test]
fn places_that_nobody_was_given_do_no_harm() {
    let world = world(8);
    let place = DiffPlace {
        block: u64::MAX,
        ..page(&world, "s", "a", None).map(|page| DiffPlace { old: page.old, new: page.new, block: 0 }).unwrap()
    };
    let beyond = page(&world, "s", "a", Some(place)).unwrap();
    assert_eq!((beyond.ranges, beyond.next_block), (Vec::new(), None));
    let side = place.new;
    let strange = |side: DiffSide| page(&world, "s", "a", Some(DiffPlace { new: side, ..place })).unwrap_err().0;
    assert_eq!(strange(DiffSide { id: 99, ..side }), ErrorKind::Changed);
    assert_eq!(strange(DiffSide { head: u64::MAX, ..side }), ErrorKind::Changed);
    assert_eq!(strange(DiffSide { blocks: u64::MAX, ..side }), ErrorKind::Changed);
    let (kind, _) = page(&world, "s", "a", Some(DiffPlace { old: None, ..place })).unwrap_err();
    assert_eq!(kind, ErrorKind::Invalid);
    // One volume under two identities.
    let both = DiffPlace { old: Some(DiffSide { head: 77, ..side }), ..place };
    assert_eq!(page(&world, "s", "a", Some(both)).unwrap_err().0, ErrorKind::Changed);
}
