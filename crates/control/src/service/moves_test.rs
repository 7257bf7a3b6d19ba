//! A move of extents and the servers that carry it out (PM9).

use super::super::asked::{ask, done, refusal};
use super::super::memory::{Cut, Memory};
use crate::protocol::*;
use crate::service::platform::MoveNote;
use crate::settings::Settings;
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::Uuid;
use std::time::Duration;

const SIZE: u64 = 256 << 20;

fn made() -> Memory {
    let pvs = [0x40, 0x41].map(|n| NewPv { uuid: Uuid([n; 16]) });
    let group = NewGroup {
        name: "vg".into(),
        uuid: Uuid([0x20; 16]),
        extent_blocks: 1024,
        pvs: pvs.to_vec(),
        second_journal: None,
    };
    let world = Memory::create(group, &[("/dev/a", SIZE), ("/dev/b", SIZE)], Settings::default()).unwrap();
    let spec = VolumeSpec {
        name: "data".into(),
        uuid: Uuid([7; 16]),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: 20 * 1024,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes::default(),
    };
    let on = vec![PvPart { path: "/dev/b".into(), first_extent: 0, extents: 40 }];
    done(&world, Request::CreateVolume { spec, activate: false, on });
    world.write("data", 20 * 1024).unwrap();
    world
}

fn wanted() -> Request {
    Request::MoveExtents { path: "/dev/b".into(), extents: Vec::new(), to: Vec::new(), volume: None }
}

fn status(world: &Memory) -> MoveReport {
    match ask(world, Request::MoveStatus) {
        Outcome::Moving(report) => report,
        other => panic!("{other:?}"),
    }
}

/// Until the move has ended.
fn ended(world: &Memory) -> MoveReport {
    for _ in 0..1000 {
        world.service.continue_move();
        world.pass(Duration::from_millis(10));
        let now = status(world);
        if !now.is_running {
            return now;
        }
    }
    panic!("it does not end: {:?}", status(world));
}

/// PM9: the server is killed, or ends, when some of it was moved. Its successor moves the rest, and nobody asks it to.
fn goes_on(is_killed: bool) {
    let world = made();
    let Outcome::Moving(begun) = ask(&world, wanted()) else { panic!("it begins") };
    assert!(begun.is_running && begun.total >= 20, "{begun:?}");
    let world = match is_killed {
        true => world.killed().unwrap(),
        false => world.successor().unwrap().unwrap(),
    };
    let waits = status(&world);
    assert!(waits.is_running && waits.waits.is_some(), "{waits:?}");
    assert_eq!((waits.path.as_str(), waits.total), ("/dev/b", begun.total));
    let end = ended(&world);
    assert_eq!((end.moved, end.total, end.failed, end.is_stopped), (begun.total, begun.total, None, false));
    assert!(refusal(&world, wanted()).1.contains("No data to move"));
    world.service.continue_move();
    assert_eq!(*world.notes.moving.lock(), None, "what has ended is forgotten");
    let world = world.killed().unwrap();
    world.service.continue_move();
    assert!(!status(&world).is_running);
}

/// PM9: the server is killed when everything was moved, and before it removed its note.
fn its_end_is_reported() {
    let world = made();
    let Outcome::Moving(begun) = ask(&world, wanted()) else { panic!("it begins") };
    for _ in 0..1000 {
        world.pass(Duration::from_millis(10));
        if !status(&world).is_running {
            break;
        }
    }
    let world = world.killed().unwrap();
    let end = ended(&world);
    assert_eq!((end.path.as_str(), end.failed.as_deref(), end.is_stopped), ("/dev/b", None, false), "PM9");
    assert_eq!((end.moved, end.total), (begun.total, begun.total));
    assert!(refusal(&world, wanted()).1.contains("No data to move"));
}

#[test]
fn the_end_of_a_move_is_reported_by_a_successor() {
    its_end_is_reported();
    must_be_found("end_of_move_forgotten", its_end_is_reported);
}

#[test]
fn a_move_goes_on_after_its_server() {
    goes_on(true);
    goes_on(false);
    must_be_found("move_not_resumed", || goes_on(true));
}

/// What was stopped does not go on, not even where the server was killed before it had gone on; nor does it after a boot.
#[test]
fn a_move_that_was_stopped_or_is_of_another_boot_does_not_go_on() {
    let world = made();
    ask(&world, wanted());
    let world = world.killed().unwrap();
    let Outcome::Moving(stopped) = ask(&world, Request::StopMove) else { panic!("it is stopped") };
    assert!(stopped.is_stopped && !stopped.is_running, "{stopped:?}");
    assert!(!ended(&world).is_running);
    ask(&world, wanted());
    assert!(matches!(ask(&world, Request::StopMove), Outcome::Moving(report) if report.is_stopped));
    let world = world.killed().unwrap();
    world.service.continue_move();
    assert!(!status(&world).is_running);
    ask(&world, wanted());
    let world = world.cut(Cut::None).unwrap();
    world.service.continue_move();
    assert!(!status(&world).is_running);
}

/// While all of a physical volume moves no space is taken from it; whether some is afterwards is said at any time.
#[test]
fn whether_the_source_is_allocatable_is_changed_while_it_moves() {
    let world = made();
    let takes = |world: &Memory| match ask(world, Request::Report { with_use: false }) {
        Outcome::Report(report) => report.pvs[1].is_allocatable,
        other => panic!("{other:?}"),
    };
    let Outcome::Moving(begun) = ask(&world, wanted()) else { panic!("it begins") };
    assert!(begun.is_running && takes(&world), "it is no property of it");
    for allocatable in [false, true, false] {
        done(&world, Request::SetAllocatable { path: "/dev/b".into(), allocatable });
        assert_eq!(takes(&world), allocatable);
    }
    assert!(ended(&world).failed.is_none());
    assert!(!takes(&world), "it is forgotten");
}

/// The history of a group says how each move ended.
#[test]
fn the_end_of_a_move_is_in_the_history() {
    let world = made();
    let Outcome::Moving(begun) = ask(&world, wanted()) else { panic!("it begins") };
    ended(&world);
    world.service.continue_move();
    world.service.continue_move();
    let told = || world.notes.events.lock().iter().filter(|(_, line)| line.contains("were moved")).count();
    assert_eq!(told(), 1, "{:?}", world.notes.events.lock());
    let line = format!("{} extents of physical volume /dev/b were moved", begun.total);
    assert!(world.notes.events.lock().iter().any(|(_, told)| told.contains(&line)));
}

/// New data is kept away from where the extents go.
#[test]
fn a_move_without_room_any_more_says_so() {
    let world = made();
    ask(&world, wanted());
    done(&world, Request::SetAllocatable { path: "/dev/a".into(), allocatable: false });
    let end = ended(&world);
    world.service.continue_move();
    let why = end.failed.expect("it cannot go on");
    assert!(why.contains("pvchange -x n") && !why.contains("0 available"), "{why}");
    let events = world.notes.events.lock();
    assert!(
        events.iter().any(|(_, told)| told.contains("the move off physical volume /dev/b failed after ")),
        "{events:?}"
    );
}

/// The physical volume has left before a successor could go on.
#[test]
fn a_move_off_what_has_left_is_forgotten() {
    let world = made();
    ask(&world, wanted());
    let world = world.killed().unwrap();
    let note = world.notes.moving.lock().clone().unwrap();
    // A target.
    *world.notes.moving.lock() = Some(MoveNote { to: vec![([9; 16], 0, 1)], ..note.clone() });
    world.service.continue_move();
    let end = status(&world);
    assert!(!end.is_running && end.path == "/dev/b", "{end:?}");
    assert_eq!(end.failed.as_deref(), Some("a volume or physical volume that it needs was removed."));
    let world = world.killed().unwrap();
    *world.notes.moving.lock() = Some(MoveNote { from: [9; 16], ..note.clone() });
    world.service.continue_move();
    assert!(!status(&world).is_running);
    assert_eq!(*world.notes.moving.lock(), None);
    // A note of a group that had that name.
    *world.notes.moving.lock() = Some(MoveNote { group: [9; 16], ..note });
    let world = world.killed().unwrap();
    world.service.continue_move();
    assert!(!status(&world).is_running);
    assert_eq!(*world.notes.moving.lock(), None);
}
