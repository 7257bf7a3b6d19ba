//! Receiving, through kills and power cuts; and reads of points.
//!
//! Rules RX1, RX2, RX3, RX4 and RX5.

use super::super::memory::{Cut, Memory};
use crate::protocol::*;
use crate::settings::Settings;
use rowen_engine::disk::PageBuf;
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::sync::Arc;

const BLOCKS: u64 = 64;
const STREAM: Uuid = Uuid([0x51; 16]);
const POINT: Uuid = Uuid([0x52; 16]);

fn ask(world: &Memory, request: Request) -> Outcome {
    world.service.handle(request, &Caller::default(), &mut |_| {})
}

fn done(world: &Memory, request: Request) -> Outcome {
    let outcome = ask(world, request.clone());
    assert!(!matches!(outcome, Outcome::Error { .. }), "{request:?}: {outcome:?}");
    outcome
}

fn refusal(world: &Memory, request: Request) -> (ErrorKind, String) {
    match ask(world, request.clone()) {
        Outcome::Error { kind, message } => (kind, message),
        outcome => panic!("{request:?} was not refused: {outcome:?}"),
    }
}

fn spec(name: &str, byte: u8) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        uuid: Uuid([byte; 16]),
        kind: VolumeKind::Thick,
        blocks: BLOCKS,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes::default(),
    }
}

fn volume(name: &str, byte: u8) -> Request {
    Request::CreateVolume { spec: spec(name, byte), activate: false, on: Vec::new() }
}

fn snapshot(origin: &str, name: &str, byte: u8) -> Request {
    let spec = SnapshotSpec {
        origin: origin.into(),
        name: name.into(),
        uuid: Uuid([byte; 16]),
        reserve_blocks: None,
        read_only: false,
        chunk_blocks: 1,
        activate: false,
        attributes: Attributes::default(),
    };
    Request::Snapshot { specs: vec![spec], freeze: false }
}

fn write(world: &Memory, name: &str, block: u64, byte: u8) {
    let volume = world.service.group.volume(world.service.group.find(name).unwrap()).unwrap();
    let buf = Arc::new(PageBuf::from_slice(&[byte; BLOCK_SIZE as usize]));
    world.service.run(async move {
        volume.write(block * BLOCK_SIZE, BLOCK_SIZE as u32, buf).await.unwrap();
        volume.flush().await.unwrap();
    });
}

/// The first byte of each block.
fn contents(world: &Memory, name: &str) -> Vec<u8> {
    let volume = world.service.group.volume(world.service.group.find(name).unwrap()).unwrap();
    let len = volume.size_bytes() as usize;
    let read = world.service.run(async move { volume.read(0, len as u32, PageBuf::zeroed(len)).await.unwrap() });
    read.as_slice()[..len].iter().step_by(BLOCK_SIZE as usize).copied().collect()
}

fn point_of(world: &Memory, name: &str) -> Uuid {
    let group = &world.service.group;
    group.point_of(group.find(name).unwrap()).unwrap().unwrap()
}

/// A group with a volume `db` and its snapshot `mon`.
fn world() -> Memory {
    let pvs = vec![NewPv { uuid: Uuid([4; 16]) }];
    let group = NewGroup { uuid: Uuid([2; 16]), name: "vg".into(), extent_blocks: 1024, pvs };
    let world = Memory::create(group, &[("/dev/a", 128 << 20)], Settings::default()).unwrap();
    done(&world, volume("db", 7));
    write(&world, "db", 0, 1);
    write(&world, "db", 1, 1);
    done(&world, snapshot("db", "mon", 8));
    world
}

fn wanted(world: &Memory, base: bool) -> Receive {
    let base = base.then(|| Base { point: point_of(world, "mon"), name: "mon".into() });
    Receive {
        target: if base.is_some() { "db".into() } else { "new".into() },
        snapshot: "tue".into(),
        stream: STREAM,
        point: POINT,
        blocks: BLOCKS + 8,
        sector: 512,
        changed: None,
        thick: true,
        base,
        uuid: Uuid([9; 16]),
        created: 1,
    }
}

fn parts(target: &str, first: u64, byte: u8) -> Request {
    let range = BlockRange { start_block: first, blocks: 2 };
    let bytes = Bytes(vec![byte; 2 * BLOCK_SIZE as usize]);
    let zeros = Part::Zeros(BlockRange { start_block: 1, blocks: 1 });
    let parts = vec![Part::Data { ranges: vec![range], bytes }, zeros];
    Request::ReceiveParts { target: target.into(), stream: STREAM, parts }
}

/// All of a receive, from where it is.
fn all(world: &Memory, wanted: &Receive) -> Result<(), Box<Outcome>> {
    let ask = |request| match ask(world, request) {
        outcome @ Outcome::Error { .. } => Err(Box::new(outcome)),
        outcome => Ok(outcome),
    };
    let target = wanted.target.clone();
    let from = match ask(Request::Receive(wanted.clone()))? {
        Outcome::Receiving(Receiving::From { frames }) => frames,
        Outcome::Receiving(Receiving::IsHere { .. }) => return Ok(()),
        outcome => panic!("{outcome:?}"),
    };
    for frames in from + 1..=3 {
        ask(parts(&target, BLOCKS + 2 * (frames - 1), frames as u8 + 4))?;
        ask(Request::ReceiveMark { target: target.clone(), stream: STREAM, frames })?;
    }
    ask(Request::Publish { target, stream: STREAM }).map(drop)
}

/// What a volume has that got all of it.
fn received(base: bool) -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS as usize + 8];
    bytes[0] = u8::from(base);
    for (at, byte) in bytes[BLOCKS as usize..BLOCKS as usize + 6].iter_mut().enumerate() {
        *byte = at as u8 / 2 + 5;
    }
    bytes
}

/// What can be seen of the group: names, contents, and what these are called.
fn seen(world: &Memory) -> Vec<(String, Vec<u8>, Option<HexUuid>)> {
    let Outcome::Report(report) = ask(world, Request::Report { with_use: false }) else { panic!("no report") };
    report.volumes.iter().map(|v| (v.name.clone(), contents(world, &v.name), v.point_uuid)).collect()
}

/// The server ends at each of its writes while it receives: what can be seen is as before or as after, and the same stream goes on.
fn ended_everywhere(base: bool) {
    let target = if base { "db" } else { "new" };
    for cut in [None, Some(Cut::None), Some(Cut::Some(1)), Some(Cut::Some(2))] {
        let again = |world: Memory| match cut {
            None => world.killed().unwrap(),
            Some(cut) => world.cut(cut).unwrap(),
        };
        let before = seen(&world());
        let mut ends = [0, 0];
        for count in 1.. {
            let world = world();
            let wanted = wanted(&world, base);
            world.die_at(count);
            let outcome = all(&world, &wanted);
            let is_dead = world.is_dead();
            let world = again(world);
            let place = format!("{cut:?}, write {count}, {outcome:?}");
            let is_there = world.service.group.find("tue").is_some();
            assert!(is_there || outcome.is_err(), "{place}");
            if !is_there {
                assert!(seen(&world) == before, "{place}");
                all(&world, &wanted).unwrap_or_else(|outcome| panic!("{place}: {outcome:?}"));
            }
            ends[usize::from(is_there)] += 1;
            assert_eq!(contents(&world, target), received(base), "{place}");
            assert_eq!(contents(&world, "tue"), received(base), "{place}");
            assert_eq!((point_of(&world, target), point_of(&world, "tue")), (POINT, POINT), "{place}");
            assert_eq!(contents(&world, "mon")[..3], [1, 1, 0], "{place}");
            assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()), "{place}");
            let Outcome::Check(checked) = ask(&world, Request::Check) else { panic!("{place}") };
            assert!(checked.findings.is_empty(), "{place}: {:?}", checked.findings);
            if !is_dead {
                break;
            }
        }
        assert!(ends[0] > 5 && ends[1] > 0, "{ends:?}");
    }
}

#[test]
fn a_server_that_ends_while_it_receives_an_increment() {
    ended_everywhere(true);
}

#[test]
fn a_server_that_ends_while_it_receives_a_volume() {
    ended_everywhere(false);
}

/// RX3.
fn written_while_sent() {
    let world = world();
    let point = point_of(&world, "mon");
    let read = |ranges| Request::ReadPoint { name: "mon".into(), point, ranges };
    let ranges = vec![BlockRange { start_block: 0, blocks: 3 }];
    let Outcome::Data(bytes) = done(&world, read(ranges.clone())) else { panic!("no data") };
    assert!(bytes.0[..8192].iter().all(|byte| *byte == 1) && bytes.0[8192..].iter().all(|byte| *byte == 0));
    write(&world, "mon", 5, 1);
    let (kind, message) = refusal(&world, read(ranges));
    assert_eq!(kind, ErrorKind::Changed);
    assert!(message.contains("vg/mon was written to"), "{message}");
}

#[test]
fn what_is_sent_is_a_point() {
    written_while_sent();
}

#[test]
fn requests_that_make_no_sense_change_nothing() {
    let world = world();
    let before = seen(&world);
    let wanted = wanted(&world, true);
    let strange = |change: &dyn Fn(&mut Receive)| {
        let mut strange = wanted.clone();
        change(&mut strange);
        refusal(&world, Request::Receive(strange)).0
    };
    assert_eq!(strange(&|w| w.target = "../x".into()), ErrorKind::Invalid);
    assert_eq!(strange(&|w| w.snapshot = "receiving:x".into()), ErrorKind::Invalid);
    assert_eq!(strange(&|w| w.snapshot = "db".into()), ErrorKind::Invalid);
    assert_eq!(strange(&|w| w.snapshot = "mon".into()), ErrorKind::Exists);
    assert_eq!(strange(&|w| w.target = "none".into()), ErrorKind::NotFound);
    assert_eq!(strange(&|w| w.sector = 4096), ErrorKind::Invalid);
    assert_eq!(strange(&|w| w.blocks = u64::MAX), ErrorKind::Invalid);
    assert_eq!(strange(&|w| w.blocks = 0), ErrorKind::Invalid);
    assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()), "nothing was begun");
    assert_eq!(refusal(&world, parts("db", 0, 1)).0, ErrorKind::Changed);
    done(&world, Request::Receive(wanted.clone()));
    let hidden = world.service.group.volumes().into_iter().find(|volume| volume.name.contains(':')).unwrap().name;
    for request in [
        Request::Remove { names: vec![hidden.clone()] },
        Request::Rename { from: hidden.clone(), to: "x".into() },
        Request::Activate { names: Some(vec![hidden.clone()]), ignore_skip: true, auto: false, partial: false },
        Request::Revert { target: "db".into(), source: hidden },
    ] {
        assert_eq!(refusal(&world, request).0, ErrorKind::NotFound);
    }
    let write = |ranges: &[(u64, u64)], bytes: usize| {
        let ranges = ranges.iter().map(|(start, blocks)| BlockRange { start_block: *start, blocks: *blocks }).collect();
        let parts = vec![Part::Data { ranges, bytes: Bytes(vec![0; bytes]) }];
        refusal(&world, Request::ReceiveParts { target: "db".into(), stream: STREAM, parts }).0
    };
    assert_eq!(write(&[(0, 2)], 4096), ErrorKind::Invalid);
    assert_eq!(write(&[(BLOCKS + 8, 1)], 4096), ErrorKind::Invalid);
    assert_eq!(write(&[(u64::MAX, u64::MAX)], 0), ErrorKind::Invalid);
    assert_eq!(write(&[(u64::MAX, 1)], 4096), ErrorKind::Invalid);
    assert_eq!(write(&[(0, MOST_BLOCKS + 1)], 0), ErrorKind::Invalid);
    let zeros = vec![Part::Zeros(BlockRange { start_block: 1, blocks: u64::MAX })];
    let zeros = Request::ReceiveParts { target: "db".into(), stream: STREAM, parts: zeros };
    assert_eq!(refusal(&world, zeros).0, ErrorKind::Invalid);
    let other = Request::Publish { target: "db".into(), stream: Uuid([1; 16]) };
    assert_eq!(refusal(&world, other).0, ErrorKind::Changed);
    assert!(seen(&world) == before);
    done(&world, Request::AbortReceive { target: "db".into() });
    assert!(seen(&world) == before);
}

/// What came of another stream, which its sender never ended, is in no volume.
fn another_stream() {
    let world = world();
    let wanted = wanted(&world, true);
    let other = Receive { stream: Uuid([0x53; 16]), uuid: Uuid([0x54; 16]), ..wanted.clone() };
    done(&world, Request::Receive(other.clone()));
    let range = BlockRange { start_block: 3, blocks: 1 };
    let parts = vec![Part::Data { ranges: vec![range], bytes: Bytes(vec![9; BLOCK_SIZE as usize]) }];
    let of_other = Request::ReceiveParts { target: "db".into(), stream: other.stream, parts };
    done(&world, of_other.clone());
    assert_eq!(done(&world, Request::Receive(wanted.clone())), Outcome::Receiving(Receiving::From { frames: 0 }));
    assert_eq!(refusal(&world, of_other).0, ErrorKind::Changed);
    all(&world, &wanted).unwrap();
    assert_eq!(contents(&world, "db"), received(true));
}

#[test]
fn another_stream_begins_anew() {
    another_stream();
}

/// A part that another client is writing does not come after the contents are visible.
fn still_writing() {
    let world = world();
    let wanted = wanted(&world, true);
    done(&world, Request::Receive(wanted.clone()));
    done(&world, parts("db", BLOCKS, 5));
    let before = seen(&world);
    let writes = world.service.receiving.read();
    let (kind, message) = refusal(&world, Request::Publish { target: "db".into(), stream: STREAM });
    assert!(kind == ErrorKind::InUse && message.contains("the disks take long"), "{message}");
    assert_eq!(refusal(&world, Request::AbortReceive { target: "db".into() }).0, ErrorKind::InUse);
    assert!(seen(&world) == before);
    drop(writes);
    all(&world, &wanted).unwrap();
}

#[test]
fn nothing_is_written_while_it_becomes_visible() {
    still_writing();
}

#[test]
fn nothing_is_written_into_an_exported_group() {
    let world = world();
    let wanted = wanted(&world, true);
    done(&world, Request::Receive(wanted.clone()));
    let exported = |is: bool| {
        let change = GroupChange { exported: Some(is), ..GroupChange::default() };
        done(&world, Request::ChangeGroup { change });
    };
    exported(true);
    assert_eq!(refusal(&world, parts("db", BLOCKS, 5)).0, ErrorKind::Denied);
    let mark = Request::ReceiveMark { target: "db".into(), stream: STREAM, frames: 1 };
    assert_eq!(refusal(&world, mark).0, ErrorKind::Denied);
    exported(false);
    all(&world, &wanted).unwrap();
}

#[test]
fn a_receive_that_gave_way_begins_anew() {
    let world = world();
    let wanted = Receive { thick: false, blocks: 1 << 12, ..wanted(&world, false) };
    done(&world, Request::Receive(wanted.clone()));
    done(&world, parts("new", BLOCKS, 5));
    assert_eq!(refusal(&world, Request::Destroy { force: false }).0, ErrorKind::InUse);
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 1 << 18, ..spec("other", 3) };
    done(&world, Request::CreateVolume { spec, activate: false, on: Vec::new() });
    let other = world.service.group.volume(world.service.group.find("other").unwrap()).unwrap();
    let full = world.service.run(async move {
        let buf = Arc::new(PageBuf::zeroed(1 << 20));
        for at in 0..1 << 10 {
            if other.write(at << 20, 1 << 20, buf.clone()).await.is_err() {
                return at;
            }
        }
        panic!("it is never full")
    });
    assert!(full > 50, "{full}");
    let (kind, message) = refusal(&world, parts("new", BLOCKS, 5));
    assert!(kind == ErrorKind::NoSpace && message.contains("was given up"), "{message}");
    let Outcome::Status(status) = done(&world, Request::Status) else { panic!("no status") };
    assert!(status.invalid_snapshots.is_empty() && status.volumes == 3, "{status:?}");
    // It certainly does not fit.
    let known = Receive { changed: Some(1 << 18), ..wanted.clone() };
    assert_eq!(refusal(&world, Request::Receive(known)).0, ErrorKind::NoSpace);
    done(&world, Request::Remove { names: vec!["other".into()] });
    assert_eq!(done(&world, Request::Receive(wanted.clone())), Outcome::Receiving(Receiving::From { frames: 0 }));
    all(&world, &wanted).unwrap();
    assert_eq!(contents(&world, "new")[BLOCKS as usize], 5);
}

#[test]
fn a_full_group_refuses_a_stream_and_is_as_it_was() {
    let world = world();
    let before = seen(&world);
    let huge = Receive { blocks: 1 << 20, ..wanted(&world, false) };
    assert_eq!(refusal(&world, Request::Receive(huge)).0, ErrorKind::NoSpace);
    assert!(seen(&world) == before);
    assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()));
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("sent_while_written", written_while_sent);
    must_be_found("mark_early", || ended_everywhere(true));
    must_be_found("another_stream_goes_on", another_stream);
    must_be_found("published_beside_writes", still_writing);
    must_be_found("unfinished_is_shown", || ended_everywhere(true));
}
