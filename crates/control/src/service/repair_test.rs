//! A disk that mirrored volumes have lost is replaced without a person, or not, and why (RF1 to RF3).

use super::super::asked::{done, report, volume};
use super::super::memory::Memory;
use crate::history::What;
use crate::protocol::*;
use crate::settings::Settings;
use rowen_engine::disk::PvIndex;
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::Uuid;
use std::time::Duration;

const EXTENT: u64 = 1024;
const SIZE: u64 = 256 << 20;
const LOST: PvIndex = PvIndex(1);

fn settings() -> Settings {
    Settings { repairs_mirrors: true, ..Settings::default() }
}

/// A mirrored volume on two disks, and a third one, which is a spare if it has this tag.
fn made(settings: Settings, tag: &str) -> Memory {
    with_spares(settings, tag, &["/dev/c"])
}

/// The same with several others.
fn with_spares(settings: Settings, tag: &str, others: &[&str]) -> Memory {
    let paths: Vec<&str> = ["/dev/a", "/dev/b"].iter().chain(others).copied().collect();
    let pvs = (0x40..).take(paths.len()).map(|byte| NewPv { uuid: Uuid([byte; 16]) }).collect();
    let group =
        NewGroup { uuid: Uuid([0x20; 16]), name: "vg".into(), extent_blocks: EXTENT, pvs, second_journal: None };
    let disks: Vec<(&str, u64)> = paths.iter().map(|path| (*path, SIZE)).collect();
    let world = Memory::create(group, &disks, settings).unwrap();
    for path in others.iter().map(|path| (*path).to_owned()) {
        done(&world, Request::SetAllocatable { path: path.clone(), allocatable: false });
        done(&world, Request::TagPv { path, add: vec![tag.into(), "rack1".into()], remove: Vec::new() });
    }
    done(&world, volume("m", SegmentType::Raid1, 3 * EXTENT, &["/dev/a", "/dev/b"]));
    world.write("m", 3 * EXTENT).unwrap();
    done(&world, Request::Checkpoint);
    world
}

/// The group's server has been open for so long, and does its periodic work.
fn at(world: &Memory, seconds: u64) {
    *world.notes.open_for.lock() = Duration::from_secs(seconds);
    world.service.periodic_work();
}

fn status(world: &Memory) -> StatusReport {
    match done(world, Request::Status) {
        Outcome::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// The missing disk leaves when it is due, and the next server has begun to make its copies.
fn repaired(world: Memory) -> Memory {
    at(&world, 1);
    at(&world, 601);
    assert!(is_leaving(&world));
    let world = world.successor().unwrap().unwrap();
    at(&world, 1);
    world
}

fn is_leaving(world: &Memory) -> bool {
    world.service.ending.leaving().is_some()
}

/// What was said of repairs.
fn told(world: &Memory) -> Vec<String> {
    let events = world.notes.events.lock();
    let of_repairs = events.iter().filter(|(what, _)| matches!(what, What::Repaired | What::NotRepaired));
    of_repairs.map(|(_, line)| line.clone()).collect()
}

/// RF1: the disk has ten minutes.
fn it_is_waited_for() {
    let world = made(settings(), "spare").without(LOST).unwrap();
    at(&world, 5);
    let repair = status(&world).repair.unwrap();
    assert_eq!((repair.seconds, repair.spares.as_slice(), repair.failed), (600, &["/dev/c".to_owned()][..], None));
    at(&world, 600);
    assert!(!is_leaving(&world) && status(&world).repair.is_some_and(|repair| repair.seconds == 5), "RF1");
    at(&world, 605);
    assert!(is_leaving(&world));
}

#[test]
fn a_missing_disk_is_waited_for() {
    it_is_waited_for();
    must_be_found("disk_not_waited_for", it_is_waited_for);
}

/// RF3: the spare takes the copies, and is a spare no more.
fn a_spare_takes_the_copies() {
    let world = made(settings(), "spare").without(LOST).unwrap();
    let world = repaired(world);
    let report = report(&world);
    let spare = report.pvs.iter().find(|pv| pv.path == "/dev/c").unwrap();
    assert!(spare.is_allocatable, "RF3");
    assert_eq!((spare.tags.as_slice(), report.mirrors.single_extents), (&["rack1".to_owned()][..], 0));
    assert_eq!(told(&world).len(), 2, "{:?}", told(&world));
    for _ in 0..10_000 {
        world.pass(Duration::from_millis(10));
        if status(&world).mirrors.left_bytes() == 0 {
            break;
        }
    }
    assert_eq!((status(&world).mirrors.left_bytes(), status(&world).repair), (0, None));
    at(&world, 10);
    assert_eq!(told(&world).len(), 2, "it is done");
}

/// RF3: the server dies at any of its writes while it takes the spare. Its successor ends what it began.
#[test]
fn a_server_that_dies_while_it_takes_a_spare_is_followed_by_one_that_ends_it() {
    let mut outcomes = [0; 2];
    for count in (1..).step_by(5) {
        let world = made(settings(), "spare").without(LOST).unwrap();
        at(&world, 1);
        at(&world, 601);
        let world = world.successor().unwrap().unwrap();
        world.die_at(count);
        at(&world, 1);
        let is_dead = world.is_dead();
        let world = world.killed().unwrap_or_else(|error| panic!("killed at its write {count}: {error}"));
        let pv = |world: &Memory| report(world).pvs.into_iter().find(|pv| pv.path == "/dev/c").unwrap();
        let before = pv(&world);
        assert_eq!(before.is_allocatable, before.tags.len() == 1, "both in one step");
        outcomes[usize::from(before.is_allocatable)] += 1;
        at(&world, 1);
        let (after, single) = (pv(&world), report(&world).mirrors.single_extents);
        assert_eq!((after.is_allocatable, after.tags.len(), single), (true, 1, 0), "killed at its write {count}");
        if !is_dead {
            break;
        }
    }
    assert!(outcomes.iter().all(|times| *times > 0), "{outcomes:?}");
}

/// RF1: one that was empty is missing, too. Copies can be made only without it, and it was waited for as long: a successor goes on with
/// those that the first server noted, and with no others.
fn two_are_missing() {
    let lost = || {
        let world = with_spares(settings(), "spare", &["/dev/c", "/dev/d"]).without(PvIndex(3)).unwrap();
        world.without(LOST).unwrap()
    };
    let world = lost();
    at(&world, 1);
    assert_eq!(status(&world).repair.unwrap().spares, ["/dev/c"]);
    at(&world, 601);
    assert!(is_leaving(&world));
    let noted = world.notes.given_up.lock().clone();
    assert_eq!(noted, [[0x41; 16], [0x43; 16]]);
    for (noted, is_due) in [(noted, true), (vec![[0x41; 16]], false)] {
        let world = lost();
        *world.notes.given_up.lock() = noted;
        at(&world, 1);
        assert_eq!(is_leaving(&world), is_due, "RF1");
    }
}

#[test]
fn all_that_are_missing_leave_after_one_wait() {
    two_are_missing();
    must_be_found("given_up_forgotten", two_are_missing);
}

/// The spare is lost while it gets its copies.
#[test]
fn a_spare_that_is_lost_is_replaced_by_another() {
    let world = with_spares(settings(), "spare", &["/dev/c", "/dev/d"]).without(LOST).unwrap();
    let world = repaired(world);
    assert!(status(&world).mirrors.is_catching_up, "it is being filled");
    let taken = report(&world).pvs.iter().position(|pv| pv.is_allocatable && pv.path != "/dev/a").unwrap();
    let world = world.without(PvIndex(taken as u16)).unwrap();
    let world = repaired(world);
    let left = report(&world);
    assert_eq!((left.mirrors.single_extents, left.pvs.len()), (0, 2));
    assert!(left.pvs.iter().all(|pv| pv.is_allocatable));
}

/// RF2: the other one had not all of its copies yet.
#[test]
fn what_only_the_missing_disk_has_is_not_given_up() {
    let world = with_spares(settings(), "spare", &["/dev/c", "/dev/d"]).without(LOST).unwrap();
    let world = repaired(world);
    let whole = report(&world).pvs.iter().position(|pv| pv.path == "/dev/a").unwrap();
    let world = world.without(PvIndex(whole as u16)).unwrap();
    at(&world, 1);
    at(&world, 601);
    assert!(!is_leaving(&world));
    let told = told(&world);
    assert!(told.iter().any(|line| line.contains("only the missing physical volume has the last state")), "{told:?}");
}

/// RF3: it is no spare without the tag, and nothing else has room beside the copy that is left.
fn no_spare_is_taken() {
    let world = made(settings(), "kept").without(LOST).unwrap();
    at(&world, 1);
    at(&world, 601);
    assert!(!is_leaving(&world), "RF3: it is no spare, and RF2: there is no room");
    at(&world, 605);
    let told = told(&world);
    assert!(told.len() == 1 && told[0].contains("there is room for 0 of them"), "{told:?}");
    assert!(status(&world).repair.unwrap().failed.is_some());
    // Somebody adds a tag.
    done(&world, Request::TagPv { path: "/dev/c".into(), add: vec!["spare".into()], remove: Vec::new() });
    at(&world, 1200);
    assert!(!is_leaving(&world));
    at(&world, 1201);
    assert!(is_leaving(&world), "it is tried again");
}

#[test]
fn copies_go_to_a_spare() {
    a_spare_takes_the_copies();
    no_spare_is_taken();
    must_be_found("any_is_a_spare", no_spare_is_taken);
    must_be_found("given_up_without_room", no_spare_is_taken);
}

/// RF2: another volume has data there.
fn one_with_data_stays() {
    let world = made(settings(), "spare");
    done(&world, volume("l", SegmentType::Linear, EXTENT, &["/dev/b"]));
    world.write("l", EXTENT).unwrap();
    done(&world, Request::Checkpoint);
    let world = world.without(LOST).unwrap();
    at(&world, 1);
    at(&world, 601);
    let told = told(&world);
    assert!(told.len() == 1 && told[0].contains("vg/l has data on the missing physical volume only"), "{told:?}");
    assert!(!is_leaving(&world));
    // Without that volume it can leave.
    done(&world, Request::Remove { names: vec!["l".into()] });
    at(&world, 1201);
    assert!(is_leaving(&world));
}

#[test]
fn a_disk_with_more_than_copies_does_not_leave() {
    one_with_data_stays();
    must_be_found("given_up_with_data", one_with_data_stays);
}

#[test]
fn nothing_is_repaired_unless_it_is_wanted() {
    // By default.
    let world = made(Settings::default(), "spare").without(LOST).unwrap();
    at(&world, 1);
    at(&world, 10_000);
    assert!(!is_leaving(&world) && status(&world).repair.is_none());
    // While nothing is in use, no server stays.
    let world = made(settings(), "spare").without(LOST).unwrap();
    done(&world, Request::Deactivate { names: None });
    at(&world, 1);
    at(&world, 10_000);
    assert!(!is_leaving(&world) && status(&world).repair.is_none());
}

/// A group over all of whose disks there is room needs no spare.
#[test]
fn other_disks_take_the_copies() {
    let world = made(settings(), "kept");
    done(&world, Request::SetAllocatable { path: "/dev/c".into(), allocatable: true });
    let world = world.without(LOST).unwrap();
    let world = repaired(world);
    assert_eq!(report(&world).mirrors.single_extents, 0);
    let told = told(&world);
    assert!(
        told.len() == 1 && told[0].ends_with("extents of mirrored volumes get the copy that they lack"),
        "{told:?}"
    );
}
