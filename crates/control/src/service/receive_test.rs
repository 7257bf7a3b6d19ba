//! Receiving, through kills and power cuts; and reads of points.
//!
//! Rules RX1, RX2, RX3, RX4, RX5 and RX6.

use super::super::asked::{ask, done, refusal};
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
const BY: Attempt = Attempt { stream: STREAM, attempt: Uuid([0x55; 16]) };

fn spec(name: &str, byte: u8) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        uuid: Uuid([byte; 16]),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        stripes: None,
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
    let group = NewGroup { uuid: Uuid([2; 16]), name: "vg".into(), extent_blocks: 1024, pvs, second_journal: None };
    let world = Memory::create(group, &[("/dev/a", 128 << 20)], Settings::default()).unwrap();
    done(&world, volume("db", 7));
    write(&world, "db", 0, 1);
    write(&world, "db", 1, 1);
    done(&world, snapshot("db", "mon", 8));
    world
}

fn wanted(world: &Memory, base: bool) -> Receive {
    let base = base.then(|| Base { point: point_of(world, "mon"), name: "mon".into() });
    let volume = ReceiveVolume {
        target: if base.is_some() { "db".into() } else { "new".into() },
        snapshot: "tue".into(),
        source: "db-tue".into(),
        point: POINT,
        blocks: BLOCKS + 8,
        sector: 512,
        changed: None,
        thick: true,
        base,
        uuid: Uuid([9; 16]),
    };
    Receive {
        stream: STREAM,
        continues: None,
        group: "far".into(),
        volumes: vec![volume],
        attempt: BY.attempt,
        created: 1,
    }
}

fn changed(mut wanted: Receive, change: impl Fn(&mut ReceiveVolume)) -> Receive {
    change(&mut wanted.volumes[0]);
    wanted
}

fn data(first: u64, byte: u8) -> Vec<Part> {
    let range = BlockRange { start_block: first, blocks: 2 };
    let bytes = Bytes(vec![byte; 2 * BLOCK_SIZE as usize]);
    let zeros = Part::Zeros { volume: 0, range: BlockRange { start_block: 1, blocks: 1 } };
    vec![Part::Data { volume: 0, ranges: vec![range], bytes }, zeros]
}

fn parts(by: Attempt, first: u64, byte: u8) -> Request {
    Request::ReceiveParts { by, parts: data(first, byte) }
}

/// The mark of a stream after some of its three parts.
fn mark(stream: Uuid, part: u64) -> Mark {
    Mark { stream, volume: 0, block: BLOCKS + 2 * part, hash: [part as u8; 32] }
}

fn by(wanted: &Receive) -> Attempt {
    Attempt { stream: wanted.stream, attempt: wanted.attempt }
}

/// All of a receive, from where it is: a stream of three parts, or the rest of one.
fn all(world: &Memory, wanted: &Receive) -> Result<(), Box<Outcome>> {
    let ask = |request| match ask(world, request) {
        outcome @ Outcome::Error { .. } => Err(Box::new(outcome)),
        outcome => Ok(outcome),
    };
    let (by, first) = (by(wanted), wanted.continues.map_or(0, |mark| (mark.block - BLOCKS) / 2));
    let from = match ask(Request::Receive(wanted.clone()))? {
        Outcome::Receiving(Receiving::From { frames }) => frames,
        Outcome::Receiving(Receiving::IsHere { .. }) => return Ok(()),
        outcome => panic!("{outcome:?}"),
    };
    for part in first + from..3 {
        ask(parts(by, BLOCKS + 2 * part, part as u8 + 5))?;
        ask(Request::ReceiveMark { by, frames: part + 1 - first, mark: mark(wanted.stream, part + 1) })?;
    }
    ask(Request::Publish { by }).map(drop)
}

/// The mark that a group says is the last one that it has.
fn last_mark(world: &Memory) -> Option<Mark> {
    let Outcome::Receives(all) = ask(world, Request::Receives) else { panic!("no list") };
    all.first()?.mark
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

/// The server ends at each of its writes while it receives: what can be seen is as before or as after. Then the same stream goes on, or
/// another one at the last mark that the group says it has.
fn ended_everywhere(base: bool, resume: bool) {
    let target = if base { "db" } else { "new" };
    for cut in [None, Some(Cut::None), Some(Cut::Some(1)), Some(Cut::Some(2))] {
        let again = |world: Memory| match cut {
            None => world.killed().unwrap(),
            Some(cut) => world.cut(cut).unwrap(),
        };
        let before = seen(&world());
        let mut ends = [0, 0];
        let mut goes_on = 0;
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
                let rest = last_mark(&world).filter(|_| resume).map(|mark| {
                    goes_on += 1;
                    Receive { stream: Uuid([0x61; 16]), continues: Some(mark), ..wanted.clone() }
                });
                let next = rest.unwrap_or(wanted);
                all(&world, &next).unwrap_or_else(|outcome| panic!("{place}: {outcome:?}"));
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
        assert!(ends[0] > 5 && ends[1] > 0 && (goes_on > 3 || !resume), "{ends:?} {goes_on}");
    }
}

#[test]
fn a_server_that_ends_while_it_receives_an_increment() {
    ended_everywhere(true, false);
}

#[test]
fn an_increment_that_goes_on_after_the_servers_end() {
    ended_everywhere(true, true);
}

#[test]
fn a_volume_that_goes_on_after_the_servers_end() {
    ended_everywhere(false, true);
}

#[test]
fn a_server_that_ends_while_it_receives_a_volume() {
    ended_everywhere(false, false);
}

fn side_of(world: &Memory, name: &str) -> DiffSide {
    let Outcome::Diff(page) = done(world, Request::Diff { old: None, new: name.into(), from: None }) else { panic!() };
    page.new
}

/// RX3.
fn written_while_sent() {
    let world = world();
    let (point, side) = (point_of(&world, "mon"), side_of(&world, "mon"));
    let read = |ranges| Request::ReadPoint { name: "mon".into(), point, side, ranges };
    let ranges = vec![BlockRange { start_block: 0, blocks: 3 }];
    let Outcome::Data(bytes) = done(&world, read(ranges.clone())) else { panic!("no data") };
    assert!(bytes.0[..8192].iter().all(|byte| *byte == 1) && bytes.0[8192..].iter().all(|byte| *byte == 0));
    write(&world, "mon", 5, 1);
    let (kind, message) = refusal(&world, read(ranges));
    assert_eq!(kind, ErrorKind::Changed);
    assert!(message.contains("vg/mon was written to"), "{message}");
}

/// RX3: written to, and then reverted to what it was.
fn reverted_while_sent() {
    let world = world();
    done(&world, snapshot("mon", "copy", 11));
    let (point, side) = (point_of(&world, "mon"), side_of(&world, "mon"));
    let read = Request::ReadPoint { name: "mon".into(), point, side, ranges: Vec::new() };
    done(&world, read.clone());
    write(&world, "mon", 5, 1);
    done(&world, Request::Revert { target: "mon".into(), source: "copy".into() });
    assert_eq!(point_of(&world, "mon"), point, "it has the contents again");
    assert_eq!(refusal(&world, read).0, ErrorKind::Changed);
}

#[test]
fn what_is_sent_is_a_point() {
    written_while_sent();
    reverted_while_sent();
}

#[test]
fn requests_that_make_no_sense_change_nothing() {
    let world = world();
    let before = seen(&world);
    let wanted = wanted(&world, true);
    let strange = |change: &dyn Fn(&mut ReceiveVolume)| {
        let mut strange = wanted.clone();
        change(&mut strange.volumes[0]);
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
    let none = Receive { volumes: Vec::new(), ..wanted.clone() };
    assert_eq!(refusal(&world, Request::Receive(none)).0, ErrorKind::Invalid);
    let twice = Receive { volumes: vec![wanted.volumes[0].clone(); 2], ..wanted.clone() };
    assert_eq!(refusal(&world, Request::Receive(twice)).0, ErrorKind::Invalid);
    assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()), "nothing was begun");
    assert_eq!(refusal(&world, parts(BY, 0, 1)).0, ErrorKind::Changed);
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
        let parts = vec![Part::Data { volume: 0, ranges, bytes: Bytes(vec![0; bytes]) }];
        refusal(&world, Request::ReceiveParts { by: BY, parts }).0
    };
    assert_eq!(write(&[(0, 2)], 4096), ErrorKind::Invalid);
    assert_eq!(write(&[(BLOCKS + 8, 1)], 4096), ErrorKind::Invalid);
    assert_eq!(write(&[(u64::MAX, u64::MAX)], 0), ErrorKind::Invalid);
    assert_eq!(write(&[(u64::MAX, 1)], 4096), ErrorKind::Invalid);
    assert_eq!(write(&[(0, MOST_BLOCKS + 1)], 0), ErrorKind::Invalid);
    for (volume, blocks) in [(0, u64::MAX), (1, 1), (u32::MAX, 1)] {
        let parts = vec![Part::Zeros { volume, range: BlockRange { start_block: 1, blocks } }];
        assert_eq!(refusal(&world, Request::ReceiveParts { by: BY, parts }).0, ErrorKind::Invalid);
    }
    let other = Request::Publish { by: Attempt { stream: Uuid([1; 16]), ..BY } };
    assert_eq!(refusal(&world, other).0, ErrorKind::Changed);
    assert!(seen(&world) == before);
    done(&world, Request::AbortReceive { target: "db".into() });
    assert!(seen(&world) == before);
}

/// What came of another stream, which its sender never ended, is in no volume.
fn another_stream() {
    let world = world();
    let wanted = wanted(&world, true);
    let other = Receive { stream: Uuid([0x53; 16]), ..wanted.clone() };
    done(&world, Request::Receive(other.clone()));
    let range = BlockRange { start_block: 3, blocks: 1 };
    let parts = vec![Part::Data { volume: 0, ranges: vec![range], bytes: Bytes(vec![9; BLOCK_SIZE as usize]) }];
    let of_other = Request::ReceiveParts { by: by(&other), parts };
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

/// An increment for `db` and a new volume, in one stream.
fn of_two(world: &Memory) -> Receive {
    let (first, second) = (wanted(world, true), wanted(world, false));
    let mut second = second.volumes.into_iter().next().unwrap();
    (second.snapshot, second.point, second.uuid) = ("new-tue".into(), Uuid([0x57; 16]), Uuid([10; 16]));
    Receive { volumes: vec![first.volumes[0].clone(), second], ..first }
}

/// The server ends everywhere while it receives two volumes: both can be seen, or none.
fn two_volumes(cut: Option<Cut>) {
    let before = seen(&world());
    let mut ends = [0, 0];
    for count in 1.. {
        let world = world();
        let wanted = of_two(&world);
        let run = |world: &Memory| -> Result<(), Box<Outcome>> {
            let ask = |request| match ask(world, request) {
                outcome @ Outcome::Error { .. } => Err(Box::new(outcome)),
                outcome => Ok(outcome),
            };
            if let Outcome::Receiving(Receiving::IsHere { .. }) = ask(Request::Receive(wanted.clone()))? {
                return Ok(());
            }
            for volume in 0..2 {
                let range = BlockRange { start_block: 60, blocks: 2 };
                let bytes = Bytes(vec![volume as u8 + 5; 2 * BLOCK_SIZE as usize]);
                let parts = vec![Part::Data { volume, ranges: vec![range], bytes }];
                ask(Request::ReceiveParts { by: BY, parts })?;
                let mark = Mark { volume, ..mark(STREAM, 1) };
                ask(Request::ReceiveMark { by: BY, frames: u64::from(volume) + 3, mark })?;
            }
            ask(Request::Publish { by: BY }).map(drop)
        };
        world.die_at(count);
        let outcome = run(&world);
        let is_dead = world.is_dead();
        let world = match cut {
            None => world.killed().unwrap(),
            Some(cut) => world.cut(cut).unwrap(),
        };
        let place = format!("{cut:?}, write {count}, {outcome:?}");
        let is_there = world.service.group.find("tue").is_some();
        assert_eq!(world.service.group.find("new-tue").is_some(), is_there, "{place}");
        assert_eq!(world.service.group.find("new").is_some(), is_there, "{place}");
        if !is_there {
            assert!(outcome.is_err() && seen(&world) == before, "{place}");
            run(&world).unwrap_or_else(|outcome| panic!("{place}: {outcome:?}"));
        }
        ends[usize::from(is_there)] += 1;
        for (name, byte) in [("db", 5), ("tue", 5), ("new", 6), ("new-tue", 6)] {
            assert_eq!(contents(&world, name)[60..63], [byte, byte, 0], "{place}: {name}");
        }
        assert_eq!(contents(&world, "mon")[..3], [1, 1, 0], "{place}");
        assert_eq!((point_of(&world, "db"), point_of(&world, "new")), (POINT, Uuid([0x57; 16])), "{place}");
        assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()), "{place}");
        let Outcome::Check(checked) = ask(&world, Request::Check) else { panic!("{place}") };
        assert!(checked.findings.is_empty(), "{place}: {:?}", checked.findings);
        if !is_dead {
            break;
        }
    }
    assert!(ends[0] > 5 && ends[1] > 0, "{ends:?}");
}

fn two_volumes_everywhere() {
    [None, Some(Cut::None), Some(Cut::Some(1)), Some(Cut::Some(2))].into_iter().for_each(two_volumes);
}

#[test]
fn volumes_of_one_stream_become_visible_together() {
    two_volumes_everywhere();
}

#[test]
fn a_stream_of_which_one_volume_does_not_fit_changes_none() {
    let world = world();
    let before = seen(&world);
    let good = of_two(&world);
    let refused = |change: &dyn Fn(&mut Receive)| {
        let mut wanted = good.clone();
        change(&mut wanted);
        let refused = refusal(&world, Request::Receive(wanted)).0;
        assert!(seen(&world) == before);
        assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()), "{refused:?}");
        refused
    };
    assert_eq!(refused(&|w| w.volumes[1].target = "mon".into()), ErrorKind::Exists);
    assert_eq!(refused(&|w| w.volumes[1].snapshot = "mon".into()), ErrorKind::Exists);
    assert_eq!(refused(&|w| w.volumes[1].snapshot = "tue".into()), ErrorKind::Invalid);
    assert_eq!(refused(&|w| w.volumes[1].target = "db".into()), ErrorKind::Invalid);
    assert_eq!(refused(&|w| w.volumes[1].target = "a/b".into()), ErrorKind::Invalid);
    assert_eq!(refused(&|w| w.volumes[1].blocks = 1 << 20), ErrorKind::NoSpace);
    assert_eq!(refused(&|w| w.volumes[0].base.as_mut().unwrap().point = Uuid([7; 16])), ErrorKind::NotFound);
    // The target of one is written to meanwhile: none of them changes.
    done(&world, Request::Receive(good.clone()));
    write(&world, "db", 9, 9);
    let before = seen(&world);
    assert_eq!(refusal(&world, Request::Publish { by: BY }).0, ErrorKind::Changed);
    assert!(seen(&world) == before);
    // Another stream for one of them alone waits; what is given up goes as a whole.
    assert_eq!(refusal(&world, Request::Receive(wanted(&world, false))).0, ErrorKind::InUse);
    done(&world, Request::AbortReceive { target: "new".into() });
    assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()));
    assert!(seen(&world) == before);
}

/// Two parts of three are here, and marked.
fn two_of_three() -> (Memory, Receive) {
    let world = world();
    let wanted = wanted(&world, true);
    done(&world, Request::Receive(wanted.clone()));
    for part in 0..2 {
        done(&world, parts(BY, BLOCKS + 2 * part, part as u8 + 5));
        done(&world, Request::ReceiveMark { by: BY, frames: part + 1, mark: mark(STREAM, part + 1) });
    }
    (world, wanted)
}

/// A stream that goes on elsewhere than at the last mark, or with something else, is refused, and what is here stays.
fn other_marks() {
    let (world, wanted) = two_of_three();
    let before = seen(&world);
    let last = last_mark(&world).unwrap();
    assert_eq!(last, mark(STREAM, 2));
    let rest = |mark| Receive { stream: Uuid([0x61; 16]), continues: Some(mark), ..wanted.clone() };
    let others = [
        mark(STREAM, 1),
        mark(Uuid([0x62; 16]), 2),
        Mark { block: last.block + 1, ..last },
        Mark { block: 0, ..last },
        Mark { volume: 1, ..last },
        Mark { hash: [9; 32], ..last },
    ];
    for other in others {
        let (kind, message) = refusal(&world, Request::Receive(rest(other)));
        assert!(kind == ErrorKind::Changed && message.contains("rowen receive --token vg/db"), "{message}");
    }
    // Of other contents, and from another base.
    for strange in [
        changed(rest(last), |one| one.point = Uuid([7; 16])),
        changed(rest(last), |one| one.base.as_mut().unwrap().point = Uuid([7; 16])),
        changed(rest(last), |one| one.base = None),
        changed(rest(last), |one| one.blocks += 1),
    ] {
        assert_eq!(refusal(&world, Request::Receive(strange)).0, ErrorKind::InUse);
    }
    assert!(seen(&world) == before && last_mark(&world) == Some(last));
    // It is cut before its own first mark: the same token fits again, and what the first stream still sends is refused.
    done(&world, Request::Receive(rest(last)));
    assert_eq!(last_mark(&world), Some(last));
    assert_eq!(refusal(&world, parts(BY, BLOCKS, 1)).0, ErrorKind::Changed);
    let third = Receive { stream: Uuid([0x63; 16]), ..rest(last) };
    all(&world, &third).unwrap();
    assert_eq!(contents(&world, "db"), received(true));
    // Now every request finds it.
    let again = done(&world, Request::Receive(rest(last)));
    assert_eq!(again, Outcome::Receiving(Receiving::IsHere { snapshots: vec!["tue".into()] }));
}

#[test]
fn a_stream_goes_on_at_the_last_mark_only() {
    other_marks();
}

#[test]
fn a_stream_that_goes_on_with_nothing_is_refused() {
    let (world, wanted) = two_of_three();
    let rest = Receive { stream: Uuid([0x61; 16]), continues: last_mark(&world), ..wanted };
    done(&world, Request::AbortReceive { target: "db".into() });
    let before = seen(&world);
    let (kind, message) = refusal(&world, Request::Receive(rest));
    assert!(kind == ErrorKind::NotFound && message.contains("without --resume"), "{message}");
    assert!(seen(&world) == before);
    assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()));
}

/// RX6: of two that receive the same stream, the one that asked last goes on.
fn two_at_once() {
    let world = world();
    let first = wanted(&world, true);
    let second = Receive { attempt: Uuid([0x56; 16]), ..first.clone() };
    done(&world, Request::Receive(first.clone()));
    done(&world, parts(by(&first), BLOCKS, 5));
    done(&world, Request::Receive(second.clone()));
    let (kind, message) = refusal(&world, parts(by(&first), BLOCKS, 9));
    assert!(kind == ErrorKind::Changed && message.contains("Another \"rowen receive\" goes on"), "{message}");
    let early = Request::ReceiveMark { by: by(&first), frames: 3, mark: mark(STREAM, 3) };
    assert_eq!(refusal(&world, early).0, ErrorKind::Changed);
    assert_eq!(refusal(&world, Request::Publish { by: by(&first) }).0, ErrorKind::Changed);
    all(&world, &second).unwrap();
    assert_eq!(contents(&world, "db"), received(true));
}

#[test]
fn one_command_receives_a_stream() {
    two_at_once();
}

/// A part that another client is writing does not come after the contents are visible.
fn still_writing() {
    let world = world();
    let wanted = wanted(&world, true);
    done(&world, Request::Receive(wanted.clone()));
    done(&world, parts(BY, BLOCKS, 5));
    let before = seen(&world);
    let writes = world.service.receiving.read();
    let (kind, message) = refusal(&world, Request::Publish { by: BY });
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
    assert_eq!(refusal(&world, parts(BY, BLOCKS, 5)).0, ErrorKind::Denied);
    let mark = Request::ReceiveMark { by: BY, frames: 1, mark: mark(STREAM, 1) };
    assert_eq!(refusal(&world, mark).0, ErrorKind::Denied);
    exported(false);
    all(&world, &wanted).unwrap();
}

#[test]
fn a_receive_that_gave_way_begins_anew() {
    let world = world();
    let wanted = changed(wanted(&world, false), |one| (one.thick, one.blocks) = (false, 1 << 12));
    done(&world, Request::Receive(wanted.clone()));
    done(&world, parts(BY, BLOCKS, 5));
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
    let (kind, message) = refusal(&world, parts(BY, BLOCKS, 5));
    assert!(kind == ErrorKind::NoSpace && message.contains("was given up"), "{message}");
    let Outcome::Status(status) = done(&world, Request::Status) else { panic!("no status") };
    assert!(status.invalid_snapshots.is_empty() && status.volumes == 3, "{status:?}");
    // It certainly does not fit.
    let known = changed(wanted.clone(), |one| one.changed = Some(1 << 18));
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
    let huge = changed(wanted(&world, false), |one| one.blocks = 1 << 20);
    assert_eq!(refusal(&world, Request::Receive(huge)).0, ErrorKind::NoSpace);
    assert!(seen(&world) == before);
    assert_eq!(ask(&world, Request::Receives), Outcome::Receives(Vec::new()));
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("sent_while_written", written_while_sent);
    must_be_found("sent_after_revert", reverted_while_sent);
    must_be_found("any_mark_goes_on", other_marks);
    must_be_found("two_receive_one", two_at_once);
    must_be_found("mark_early", || ended_everywhere(true, false));
    must_be_found("mark_block_early", || ended_everywhere(true, true));
    must_be_found("another_stream_goes_on", another_stream);
    must_be_found("published_beside_writes", still_writing);
    must_be_found("published_one_by_one", two_volumes_everywhere);
    must_be_found("published_in_two_frames", two_volumes_everywhere);
    must_be_found("unfinished_is_shown", || ended_everywhere(true, false));
}
