//! What a server refuses of snapshots that are held.
//!
//! Rules HO3 and HO4.

use super::super::asked::{done, refusal, report};
use super::super::memory::{Cut, Memory};
use crate::history::What;
use crate::protocol::*;
use crate::service::memory::NOW;
use crate::settings::Settings;
use rowen_engine::disk::PageBuf;
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::sync::Arc;
use std::time::Duration;

const BLOCKS: u64 = 64;

fn write(world: &Memory, name: &str) {
    let volume = world.service.group.volume(world.service.group.find(name).unwrap()).unwrap();
    let buf = Arc::new(PageBuf::from_slice(&[7; BLOCK_SIZE as usize]));
    world.service.run(async move { volume.write(0, BLOCK_SIZE as u32, buf).await.unwrap() });
}

fn snapshot(name: &str, byte: u8) -> Request {
    let spec = SnapshotSpec {
        origin: "db".into(),
        name: name.into(),
        uuid: Uuid([byte; 16]),
        reserve_blocks: None,
        read_only: true,
        chunk_blocks: 1,
        activate: false,
        attributes: Attributes::default(),
    };
    Request::Snapshot { specs: vec![spec], freeze: false }
}

fn write_all(world: &Memory, name: &str) {
    let volume = world.service.group.volume(world.service.group.find(name).unwrap()).unwrap();
    let buf = Arc::new(PageBuf::from_slice(&vec![8; (BLOCKS * BLOCK_SIZE) as usize]));
    world.service.run(async move { volume.write(0, (BLOCKS * BLOCK_SIZE) as u32, buf).await.unwrap() });
    let group = world.service.group.clone();
    world.service.run(async move { group.reclaim_idle().await.unwrap() });
}

/// A group with a volume and a snapshot of it, which is read only.
fn world() -> Memory {
    let pvs = vec![NewPv { uuid: Uuid([4; 16]) }];
    let group = NewGroup { uuid: Uuid([2; 16]), name: "vg".into(), extent_blocks: 1024, pvs, second_journal: None };
    let world = Memory::create(group, &[("/dev/a", 64 << 20)], Settings::default()).unwrap();
    let spec = VolumeSpec {
        name: "db".into(),
        uuid: Uuid([3; 16]),
        kind: VolumeKind::Thin,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: BLOCKS,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes::default(),
    };
    done(&world, Request::CreateVolume { spec, activate: false, on: Vec::new() });
    write_all(&world, "db");
    done(&world, snapshot("mon", 5));
    world
}

fn tag(name: &str, add: &[&str], remove: &[&str]) -> Request {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let change = AttributeChange { add_tags: words(add), remove_tags: words(remove), ..AttributeChange::default() };
    Request::SetAttributes { name: name.into(), change }
}

fn remove(names: &[&str]) -> Request {
    Request::Remove { names: names.iter().map(|name| (*name).to_owned()).collect() }
}

/// What would take the snapshot away, or change it.
fn harmful() -> Vec<Request> {
    vec![
        remove(&["mon"]),
        remove(&["db", "mon"]),
        Request::Destroy { force: true },
        Request::Merge { snapshot: "mon".into() },
        Request::Revert { target: "mon".into(), source: "db".into() },
        Request::Resize { name: "mon".into(), blocks: 2 * BLOCKS, force: true, on: Vec::new(), seen: None },
        Request::SetPermission { name: "mon".into(), read_only: false },
    ]
}

fn nothing_takes_it() {
    let mut world = world();
    done(&world, tag("mon", &["hold=offsite", "hold=other", "x"], &[]));
    for round in 0..3 {
        let before = report(&world);
        for request in harmful() {
            let (kind, message) = refusal(&world, request.clone());
            assert_eq!(kind, ErrorKind::InUse, "HO3: {request:?}: {message}");
            assert!(message.contains("vg/mon is held (offsite, other)"), "{message}");
            assert!(message.contains("rowen release --all vg/mon"), "{message}");
        }
        assert_eq!(report(&world).volumes, before.volumes);
        // It holds after a power cut, and after a kill of the server.
        world = match round {
            0 => world.cut(Cut::None).unwrap(),
            _ => world.killed().unwrap(),
        };
    }
    // What does it no harm.
    done(&world, Request::Rename { from: "mon".into(), to: "monday".into() });
    done(&world, Request::Rename { from: "monday".into(), to: "mon".into() });
    done(&world, Request::Revert { target: "db".into(), source: "mon".into() });
    done(&world, snapshot("tue", 6));
    done(&world, tag("mon", &[], &["hold=offsite"]));
    assert!(refusal(&world, remove(&["mon"])).1.contains("is held (other)"));
    done(&world, tag("mon", &[], &["hold=other"]));
    done(&world, remove(&["mon"]));
}

#[test]
fn what_is_held_stays_as_it_is() {
    nothing_takes_it();
}

#[test]
fn only_what_can_keep_its_contents_is_held() {
    let world = world();
    let refused = |request: Request, part: &str| {
        let (kind, message) = refusal(&world, request);
        assert!(kind == ErrorKind::Invalid && message.contains(part), "{message}");
    };
    refused(tag("db", &["hold=a"], &[]), "vg/db is no snapshot");
    refused(tag("mon", &["hold="], &[]), "is no name of a hold");
    refused(tag("mon", &["hold=a/b"], &[]), "\"a/b\" is no name of a hold");
    refused(tag("mon", &["hold=a:x"], &[]), "is no name of a hold");
    // A tag that begins otherwise holds nothing.
    done(&world, tag("mon", &["holds=a"], &[]));
    done(&world, Request::SetPermission { name: "mon".into(), read_only: false });
    write(&world, "mon");
    refused(tag("mon", &["hold=a"], &[]), "was written to since");
    done(&world, remove(&["mon"]));
}

fn status(world: &Memory) -> StatusReport {
    match done(world, Request::Status) {
        Outcome::Status(status) => *status,
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn the_status_tells_of_holds() {
    let world = world();
    done(&world, Request::SetPermission { name: "mon".into(), read_only: false });
    assert!(status(&world).held_snapshots.is_empty());
    done(&world, tag("mon", &["hold=a"], &[]));
    let told = status(&world);
    assert_eq!((told.held_snapshots, told.written_while_held.len()), (vec!["mon".to_owned()], 0));
    write(&world, "mon");
    assert_eq!(status(&world).written_while_held, ["mon"]);
    // More is overwritten than it may hold.
    done(&world, Request::SetReserve { name: "mon".into(), blocks: Some(3), seen: None });
    write_all(&world, "db");
    let told = status(&world);
    assert_eq!(
        (told.lost_holds, told.held_snapshots.len(), told.written_while_held.len()),
        (vec!["mon".to_owned()], 0, 0)
    );
    // There is nothing that could be held.
    done(&world, remove(&["mon"]));
}

#[test]
fn a_hold_with_an_end_ends() {
    let world = world();
    done(&world, tag("mon", &[&format!("hold=send-1:{}", NOW + 100), "hold=a", "x"], &[]));
    world.service.periodic_work();
    *world.notes.open_for.lock() = Duration::from_secs(99);
    world.service.periodic_work();
    assert!(refusal(&world, remove(&["mon"])).1.contains("(send-1, a)"));
    *world.notes.open_for.lock() = Duration::from_secs(100);
    world.service.periodic_work();
    assert_eq!(
        report(&world).volume("mon").unwrap().attributes.tags,
        ["a", "x"].map(|tag| match tag {
            "a" => "hold=a".to_owned(),
            tag => tag.to_owned(),
        })
    );
    let events = world.notes.events.lock().clone();
    assert!(
        events.iter().any(|(what, line)| *what == What::Changed && line.contains("hold send-1 of vg/mon")),
        "{events:?}"
    );
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("held_is_removed", nothing_takes_it);
}

/// A bookmark outlives kills and cuts of the server.
#[test]
fn a_bookmark_is_there_after_kills_and_cuts() {
    let mut world = world();
    let bookmark = |name: &str| Request::Bookmark {
        snapshot: "mon".into(),
        name: name.into(),
        uuid: Uuid([name.len() as u8 ^ 64; 16]),
        created: 9,
    };
    done(&world, bookmark("mon"));
    let before = report(&world).bookmarks;
    assert!(before.len() == 1 && !before[0].has_ended, "{before:?}");
    done(&world, remove(&["mon"]));
    for round in 0..3 {
        world = match round {
            0 => world.cut(Cut::None).unwrap(),
            1 => world.cut(Cut::Some(3)).unwrap(),
            _ => world.killed().unwrap(),
        };
        world.service.periodic_work();
        assert_eq!(report(&world).bookmarks, before);
        write_all(&world, "db");
        let list = Request::Diff { old: Some("mon".into()), new: "db".into(), from: None };
        let Outcome::Diff(page) = done(&world, list) else { panic!("no list") };
        assert_eq!(page.ranges.iter().map(|range| range.blocks).sum::<u64>(), BLOCKS);
    }
    assert_eq!(refusal(&world, bookmark("x")).0, ErrorKind::NotFound, "its snapshot is gone");
    assert_eq!(refusal(&world, Request::RemoveBookmark { name: "x".into() }).0, ErrorKind::NotFound);
    done(&world, Request::RemoveBookmark { name: "mon".into() });
    assert!(report(&world).bookmarks.is_empty());
}
