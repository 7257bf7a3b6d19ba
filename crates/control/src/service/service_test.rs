//! What a server decides, on an engine over disks in memory.
//!
//! Rules SV1 and SV3.

use super::asked::{self, ask, caller, refusal, report};
use super::memory::{Cut, Memory, Outside};
use super::platform::{Devices, Faults, User};
use crate::history::What;
use crate::protocol::*;
use crate::settings::Settings;
use rowen_engine::disk::{DiskError, DiskOpKind, PvIndex};
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::Uuid;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 256;

fn with_settings(settings: Settings) -> Memory {
    let pvs = [0x40, 0x41].map(|byte| NewPv { uuid: Uuid([byte; 16]) }).to_vec();
    let group = NewGroup { uuid: Uuid([0x20; 16]), name: "vg".into(), extent_blocks: 1024, pvs, second_journal: None };
    Memory::create(group, &[("/dev/a", 256 << 20), ("/dev/b", 256 << 20)], settings).unwrap()
}

fn memory() -> Memory {
    with_settings(Settings::default())
}

/// What is done without a refusal, whatever it answers.
fn done(world: &Memory, request: Request) {
    asked::done(world, request);
}

fn create(name: &str) -> Request {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    let spec = VolumeSpec {
        name: name.into(),
        uuid: Uuid(id),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: 8 * MIB,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes { autoactivate: true, ..Attributes::default() },
    };
    Request::CreateVolume { spec, activate: true, on: Vec::new() }
}

fn snapshot(pairs: &[(&str, &str)]) -> Request {
    let spec = |(origin, name): &(&str, &str)| {
        let mut id = [1; 16];
        id[..name.len()].copy_from_slice(name.as_bytes());
        SnapshotSpec {
            origin: (*origin).into(),
            name: (*name).into(),
            uuid: Uuid(id),
            reserve_blocks: Some(4 * MIB),
            read_only: false,
            chunk_blocks: 1,
            activate: true,
            attributes: Attributes::default(),
        }
    };
    Request::Snapshot { specs: pairs.iter().map(spec).collect(), freeze: true }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The volumes, and which have devices: both say the same (SV2).
fn volumes(world: &Memory) -> Vec<(String, bool)> {
    let report = report(world);
    for volume in &report.volumes {
        assert_eq!(volume.attributes.active, volume.node.active, "{}", volume.name);
    }
    report.volumes.into_iter().map(|volume| (volume.name, volume.node.active)).collect()
}

fn active(names: &[&str]) -> Vec<(String, bool)> {
    names.iter().map(|name| ((*name).to_owned(), true)).collect()
}

#[test]
fn a_volume_whose_device_cannot_be_made_is_not_made() {
    let world = memory();
    world.devices.fail(Some("activate"));
    assert_eq!(refusal(&world, create("a")), (ErrorKind::Io, "Cannot activate: planted.".into()));
    assert!(volumes(&world).is_empty());
    world.devices.fail(None);
    done(&world, create("a"));
    assert_eq!(volumes(&world), active(&["a"]));
}

/// SV2.
#[test]
fn a_volume_without_a_device_is_not_active() {
    let world = memory();
    done(&world, create("a"));
    done(&world, Request::Deactivate { names: Some(names(&["a"])) });
    assert_eq!(volumes(&world), [("a".to_owned(), false)]);
}

/// SV1: clients are served side by side.
#[test]
fn changes_are_made_one_at_a_time() {
    let world = Arc::new(memory());
    world.devices.be_slow(Duration::from_millis(2));
    let other = world.clone();
    let others = std::thread::spawn(move || (0..10).for_each(|n| done(&other, create(&format!("b{n}")))));
    (0..10).for_each(|n| done(&world, create(&format!("a{n}"))));
    others.join().unwrap();
    assert_eq!(volumes(&world).len(), 20);
    assert!(!world.devices.has_overlapped());
}

/// SV1 to SV3: requests that leave something behind are found.
#[test]
fn requests_that_leave_something_behind_are_found() {
    must_be_found("changes_side_by_side", changes_are_made_one_at_a_time);
    must_be_found("stays_half_made", a_volume_whose_device_cannot_be_made_is_not_made);
    must_be_found("activity_not_noted", a_volume_without_a_device_is_not_active);
}

#[test]
fn of_snapshots_made_together_all_or_none_are_there() {
    let world = memory();
    done(&world, create("a"));
    done(&world, create("b"));
    world.devices.fail(Some("activate"));
    assert_eq!(refusal(&world, snapshot(&[("a", "sa"), ("b", "sb")])).0, ErrorKind::Io);
    assert_eq!(volumes(&world), active(&["a", "b"]));
    world.devices.fail(None);
    done(&world, snapshot(&[("a", "sa"), ("b", "sb")]));
    assert_eq!(volumes(&world), active(&["a", "b", "sa", "sb"]));
    assert_eq!(world.devices.held(), [names(&["a", "b"]), names(&["a", "b"])], "both at once, each time");
}

#[test]
fn of_volumes_that_are_removed_together_one_in_use_keeps_all() {
    let world = memory();
    ["a", "b", "c"].into_iter().for_each(|name| done(&world, create(name)));
    for (user, how) in [
        (User::Filesystem, "contains a filesystem in use"),
        (User::Device, "is used by another device"),
        (User::Other, "in use"),
    ] {
        world.devices.set_user("b", Some(user));
        let message = format!("Logical volume vg/b {how}.");
        assert_eq!(refusal(&world, Request::Remove { names: names(&["a", "b", "c"]) }), (ErrorKind::InUse, message));
        assert_eq!(volumes(&world), active(&["a", "b", "c"]));
    }
    world.devices.set_user("b", None);
    // The last step fails: the devices that went come back.
    world.devices.fail(Some("deactivate"));
    assert_eq!(refusal(&world, Request::Remove { names: names(&["a", "b", "c"]) }).0, ErrorKind::Io);
    assert_eq!(volumes(&world), active(&["a", "b", "c"]));
    world.devices.fail(None);
    done(&world, Request::Remove { names: names(&["a", "b", "c"]) });
    assert!(volumes(&world).is_empty());
}

#[test]
fn who_was_in_use_and_is_no_more_is_counted() {
    let world = memory();
    ["a", "b"].into_iter().for_each(|name| done(&world, create(name)));
    world.devices.set_user("a", Some(User::Other));
    world.devices.let_users_pass();
    let whole = "Logical volume vg/a in use.\nCan't deactivate volume group \"vg\" with 1 open logical volume(s)";
    assert_eq!(refusal(&world, Request::Deactivate { names: None }), (ErrorKind::InUse, whole.to_owned()));
    done(&world, Request::Deactivate { names: None });
}

#[test]
fn a_merge_waits_for_the_next_activation_also_over_a_kill() {
    let mut world = memory();
    done(&world, create("a"));
    done(&world, snapshot(&[("a", "s")]));
    world.devices.set_user("a", Some(User::Filesystem));
    let merge = || Request::Merge { snapshot: "s".into() };
    assert_eq!(ask(&world, merge()), Outcome::MergeWaits { is_origin_open: true });
    let (kind, message) = refusal(&world, Request::Remove { names: names(&["s"]) });
    assert_eq!((kind, message.as_str()), (ErrorKind::InUse, "Can't remove merging snapshot logical volume vg/s."));
    world = world.killed().unwrap();
    assert!(report(&world).volume("s").unwrap().is_waiting_to_merge());
    // The next server of this boot: what was active is so again, and nothing is merged under a filesystem.
    assert!(world.service.restore_nodes(true).is_empty());
    assert_eq!(volumes(&world), active(&["a", "s"]));
    done(&world, Request::Deactivate { names: Some(names(&["a"])) });
    done(&world, Request::Activate { names: Some(names(&["a"])), ignore_skip: false, auto: false, partial: false });
    assert_eq!(volumes(&world), active(&["a"]));
    assert_eq!(world.notes.lines.lock().as_slice(), ["s was merged into a"]);
}

#[test]
fn after_a_boot_nothing_is_active_by_itself() {
    let world = memory();
    done(&world, create("a"));
    let world = world.killed().unwrap();
    assert!(world.service.restore_nodes(false).is_empty());
    assert_eq!(volumes(&world), [("a".to_owned(), false)]);
}

#[test]
fn a_device_that_keeps_its_name_keeps_the_volumes() {
    let world = memory();
    done(&world, create("a"));
    done(&world, create("b"));
    let rename = |to: &str| Request::Rename { from: "a".into(), to: to.into() };
    assert_eq!(refusal(&world, rename("b")).0, ErrorKind::Exists);
    assert_eq!(refusal(&world, rename("a/b")).0, ErrorKind::Invalid);
    world.devices.fail(Some("rename"));
    assert_eq!(refusal(&world, rename("c")).0, ErrorKind::Io);
    assert_eq!(volumes(&world), active(&["a", "b"]));
    world.devices.fail(None);
    done(&world, rename("c"));
    assert_eq!(volumes(&world), active(&["c", "b"]));
}

#[test]
fn a_permission_that_the_device_does_not_take_is_taken_back() {
    let world = memory();
    done(&world, create("a"));
    let set = |read_only| Request::SetPermission { name: "a".into(), read_only };
    world.devices.fail(Some("set_read_only"));
    assert_eq!(refusal(&world, set(true)).0, ErrorKind::Io);
    assert!(!report(&world).volume("a").unwrap().read_only);
    world.devices.fail(None);
    done(&world, set(true));
    let report = report(&world);
    assert!(report.volume("a").unwrap().read_only && report.volume("a").unwrap().node.read_only);
}

#[test]
fn a_group_that_cannot_be_renamed_keeps_its_name() {
    let world = memory();
    done(&world, create("a"));
    let rename = || Request::RenameGroup { to: "other".into() };
    world.devices.fail(Some("make_names_of"));
    assert_eq!(refusal(&world, rename()).0, ErrorKind::Io);
    assert_eq!(report(&world).name, "vg");
    assert!(!world.service.ending.is_asked());
    world.devices.fail(None);
    world.members.add_group("taken");
    let taken = refusal(&world, Request::RenameGroup { to: "taken".into() });
    assert_eq!(taken, (ErrorKind::Exists, "New volume group \"taken\" already exists".into()));
    done(&world, rename());
    assert!(world.service.ending.is_renamed());
    assert_eq!(*world.notes.renames.lock(), [true, true], "one was undone, one is done");
    // It ends, and takes nothing more.
    assert_eq!(refusal(&world, create("b")).0, ErrorKind::Closed);
}

#[test]
fn limits_and_an_exported_group() {
    let world = memory();
    let change = |change| Request::ChangeGroup { change };
    done(&world, change(GroupChange { max_volumes: Some(1), ..GroupChange::default() }));
    done(&world, create("a"));
    assert_eq!(refusal(&world, create("b")).1, "Maximum number of logical volumes (1) reached in volume group vg");
    assert_eq!(refusal(&world, snapshot(&[("a", "s")])).0, ErrorKind::NoSpace);
    done(&world, change(GroupChange { exported: Some(true), ..GroupChange::default() }));
    for request in [create("b"), snapshot(&[("a", "s")]), Request::Remove { names: names(&["a"]) }] {
        assert_eq!(refusal(&world, request), (ErrorKind::Denied, "Volume group \"vg\" is exported".into()));
    }
    done(&world, Request::Deactivate { names: None });
    done(&world, change(GroupChange { exported: Some(false), max_volumes: Some(0), ..GroupChange::default() }));
    done(&world, create("b"));
}

#[test]
fn what_changes_metadata_is_archived_and_nothing_else() {
    let world = memory();
    let archived = |request: Request| {
        let before = world.notes.archived.lock().len();
        done(&world, request);
        world.notes.archived.lock().len() - before
    };
    assert_eq!(archived(create("a")), 1);
    assert_eq!(archived(Request::Deactivate { names: None }), 0);
    assert_eq!(archived(Request::Activate { names: None, ignore_skip: false, auto: false, partial: false }), 0);
    assert_eq!(archived(Request::Report { with_use: false }), 0);
    assert_eq!(archived(Request::Checkpoint), 0);
    assert_eq!(archived(Request::Rename { from: "a".into(), to: "b".into() }), 1);
    let quiet = Caller { no_backup: true, ..caller() };
    world.service.handle(create("c"), &quiet, &mut |_| {});
    assert_eq!(world.notes.archived.lock().len(), 2);
}

#[test]
fn what_changes_something_is_noted_whatever_became_of_it() {
    let world = memory();
    let caller = Caller { id: "x".into(), user: "u".into(), pid: 7, ..caller() };
    let noted = |request: Request| {
        world.notes.done.lock().clear();
        world.service.handle(request, &caller, &mut |_| {});
        let done = std::mem::take(&mut *world.notes.done.lock());
        done.into_iter().map(|line| (line.request.clone(), line.failure.clone())).collect::<Vec<_>>()
    };
    assert_eq!(noted(create("a")), [("create-volume".to_owned(), None)]);
    let [(word, Some(why))] = &noted(create("a"))[..] else { panic!("a failure is noted, too") };
    assert!(word == "create-volume" && why.contains("already exists"), "{why}");
    assert_eq!(noted(Request::Deactivate { names: None }), [("deactivate".to_owned(), None)]);
    assert_eq!(noted(Request::Repair), [("repair".to_owned(), None)]);
    for look in [Request::Report { with_use: false }, Request::Check, Request::Checkpoint, Request::Stats] {
        assert_eq!(noted(look), []);
    }
    // What the caller does again with other numbers, or asks another server for, was not done.
    let seen = Some(1);
    let stale = Request::Resize { name: "a".into(), blocks: MIB, force: false, on: Vec::new(), seen };
    assert_eq!(noted(stale), []);
    world.service.handle(Request::RenameGroup { to: "other".into() }, &caller, &mut |_| {});
    let line = world.notes.done.lock().last().unwrap().clone();
    assert_eq!((line.group.as_str(), line.id.as_str(), line.user.as_str(), line.pid), ("other", "x", "u", 7));
    assert_eq!(noted(create("b")), [], "it is closing");
}

#[test]
fn what_a_smaller_volume_gives_back_is_free_at_once() {
    let world = memory();
    done(&world, create("a"));
    let free = || world.service.group.info().available_blocks;
    let before = free();
    let resize = |blocks| Request::Resize { name: "a".into(), blocks, force: false, on: Vec::new(), seen: None };
    done(&world, Request::Deactivate { names: None });
    done(&world, resize(128 * MIB));
    assert!(free() + 119 * MIB < before);
    done(&world, resize(8 * MIB));
    assert!(free() + MIB > before, "{} of {before}", free());
}

#[test]
fn a_check_says_how_far_it_is() {
    let world = memory();
    done(&world, create("a"));
    let mut told = Vec::new();
    let mut interim = |outcome| match outcome {
        Outcome::Progress { done, total, what } => told.push((done, total, what)),
        other => panic!("{other:?}"),
    };
    let checked = world.service.handle(Request::Check, &caller(), &mut interim);
    assert!(matches!(checked, Outcome::Check(_)), "{checked:?}");
    assert!(told.iter().all(|(done, total, what)| done <= total && what.starts_with("Checking ")), "{told:?}");
    assert!(!told.is_empty() && told.is_sorted(), "{told:?}");
}

#[test]
fn what_happens_by_itself_is_reported_once() {
    let world = memory();
    done(&world, create("a"));
    done(&world, snapshot(&[("a", "s")]));
    let kinds = || world.notes.events.lock().drain(..).map(|(what, _)| what).collect::<Vec<_>>();
    kinds();
    let fail = |offset| DiskError { op: DiskOpKind::Write, pv: PvIndex(1), offset, errno: 5 };
    *world.members.new_failures.lock() = vec![fail(4096), fail(1 << 30)];
    world.service.periodic_work();
    let told = std::mem::take(&mut *world.notes.events.lock());
    let [(What::PvError, first), (What::PvError, _)] = &told[..] else { panic!("{told:?}") };
    assert!(first.contains("/dev/b of volume group vg failed a write at byte 4096"), "{first}");
    world.service.periodic_work();
    assert_eq!(kinds(), []);
    // The snapshot outgrows its reserve.
    world.write("a", 8 * MIB).unwrap();
    world.pass(Duration::from_secs(5));
    world.service.periodic_work();
    assert!(kinds().contains(&What::SnapshotDropped));
    world.service.periodic_work();
    assert_eq!(kinds(), []);
}

#[test]
fn a_physical_volume_joins_and_leaves() {
    let world = memory();
    world.members.add_outside("/dev/c", Outside { size: 256 << 20, uuid: Uuid([0x80; 16]), refused: None });
    let unknown = refusal(&world, Request::AddPv { paths: names(&["/dev/c", "/dev/d"]) });
    assert_eq!(unknown, (ErrorKind::NotFound, "No device found for /dev/d.".into()));
    assert_eq!(report(&world).pvs.len(), 2, "all are checked before one joins");
    done(&world, Request::AddPv { paths: names(&["/dev/c"]) });
    assert_eq!(report(&world).pvs.len(), 3);
    assert_eq!(world.notes.members.lock().len(), 3, "a successor is to find it");
    done(&world, Request::RemovePv { path: "/dev/c".into() });
    assert_eq!(report(&world).pvs.len(), 2);
    // One whose leaving changes the others' numbers is left to the successor.
    assert_eq!(ask(&world, Request::RemovePv { path: "/dev/a".into() }), Outcome::HandsOver);
    let world = world.successor().unwrap().unwrap();
    assert_eq!(report(&world).pvs.iter().map(|pv| pv.path.as_str()).collect::<Vec<_>>(), ["/dev/b"]);
}

#[test]
fn a_snapshot_that_fills_up_is_extended_and_reported() {
    let settings = crate::settings::read("activation {\n snapshot_autoextend_threshold = 50\n}\n").unwrap();
    let settings = crate::settings::Loaded { config: settings, warnings: Vec::new() }.settings();
    let world = with_settings(settings);
    done(&world, create("a"));
    done(&world, snapshot(&[("a", "s")]));
    world.service.periodic_work();
    assert_eq!(report(&world).volume("s").unwrap().reserve_blocks, Some(4 * MIB));
    world.write("a", 3 * MIB).unwrap();
    world.service.periodic_work();
    assert_eq!(report(&world).volume("s").unwrap().reserve_blocks, Some(8 * MIB));
    let lines = world.notes.lines.lock().join("\n");
    assert!(lines.contains("vg/s was nearly full and was extended from 4.00 MiB to 8.00 MiB"), "{lines}");
}

#[test]
fn a_stopped_service_leaves_what_was_active_to_the_next() {
    let world = memory();
    done(&world, create("a"));
    world.devices.set_user("a", Some(User::Other));
    assert_eq!(refusal(&world, Request::Stop).0, ErrorKind::InUse);
    world.devices.set_user("a", None);
    done(&world, Request::Stop);
    assert!(world.service.ending.is_asked() && world.devices.active().is_empty());
    let world = world.killed().unwrap();
    assert!(world.service.restore_nodes(true).is_empty());
    assert_eq!(volumes(&world), active(&["a"]));
}

/// The group as its reports show it: names, relations, tags, policies, devices.
fn state(world: &Memory) -> Vec<String> {
    let report = report(world);
    let tags = |tags: &[String]| tags.join(",");
    let pvs: Vec<_> = report.pvs.iter().map(|pv| (pv.extents, pv.is_allocatable)).collect();
    let mut lines = vec![format!("{} {pvs:?} {}", report.name, tags(&report.attributes.tags))];
    for volume in &report.volumes {
        assert_eq!(volume.attributes.active, volume.node.active, "{}: SV2", volume.name);
        let (a, node) = (&volume.attributes, &volume.node);
        lines.push(format!(
            "{} of {:?} {} blocks, reserve {:?}, {:?} {:?} merging {} pool {:?} tags {} device {} {}",
            volume.name,
            volume.origin,
            volume.blocks,
            volume.reserve_blocks,
            volume.full,
            volume.read_only,
            a.merging,
            a.pool,
            tags(&a.tags),
            node.active,
            node.read_only
        ));
    }
    lines
}

/// Ends the server at each of its writes to the disks while it carries out `command`, by a kill and by power cuts, and opens
/// the group again. It is as it was before, or as it is after the command, or as `between` has it; after an answer of success,
/// as after the command.
fn ended_everywhere(prepared: &dyn Fn() -> Memory, command: &Request, between: &dyn Fn(&[String]) -> bool) {
    let cuts = [None, Some(Cut::None), Some(Cut::Some(1)), Some(Cut::Some(2))];
    ended_by(&cuts, prepared, command, between);
}

/// The same by these cuts; none is a kill.
fn ended_by(
    cuts: &[Option<Cut>],
    prepared: &dyn Fn() -> Memory,
    command: &Request,
    between: &dyn Fn(&[String]) -> bool,
) {
    for cut in cuts.iter().copied() {
        let again = |world: Memory, place: &str| {
            let world = match cut {
                None => world.killed(),
                Some(cut) => world.cut(cut),
            };
            let world = world.unwrap_or_else(|error| panic!("{command:?}, {place}: {error}"));
            // After a power cut the host has booted: nothing is active.
            let failures = world.service.restore_nodes(cut.is_none());
            assert!(failures.is_empty(), "{command:?}, {place}: {failures:?}");
            world
        };
        let whole = || {
            let world = prepared();
            world.service.checkpoint().unwrap();
            world
        };
        let before = state(&again(whole(), "before"));
        let world = whole();
        done(&world, command.clone());
        let after = state(&again(world, "after"));
        assert_ne!(before, after, "{command:?} changes nothing");
        let mut deaths = 0;
        for count in 1.. {
            let world = prepared();
            world.die_at(count);
            let outcome = ask(&world, command.clone());
            let is_dead = world.is_dead();
            let place = format!("{cut:?}, write {count}, {outcome:?}");
            let world = again(world, &place);
            let found = state(&world);
            let is_done = !matches!(outcome, Outcome::Error { .. });
            let is_right = found == after || !is_done && (found == before || between(&found));
            assert!(is_right, "{command:?}, {place}:\n{found:#?}\n{before:#?}\n{after:#?}");
            let checked = ask(&world, Request::Check);
            let Outcome::Check(checked) = checked else { panic!("{command:?}, {place}: {checked:?}") };
            assert!(checked.findings.is_empty(), "{command:?}, {place}: {:?}", checked.findings);
            if !is_dead {
                break;
            }
            deaths += 1;
        }
        assert!(deaths > 0, "{command:?} writes nothing");
    }
}

fn nothing(_: &[String]) -> bool {
    false
}

#[test]
fn a_server_that_ends_leaves_no_command_half_done() {
    let prepared = || {
        let world = memory();
        done(&world, create("a"));
        done(&world, create("b"));
        done(&world, snapshot(&[("a", "s")]));
        world.members.add_outside("/dev/c", Outside { size: 256 << 20, uuid: Uuid([0x80; 16]), refused: None });
        world
    };
    let tags = AttributeChange { add_tags: names(&["t"]), ..AttributeChange::default() };
    let group = GroupChange { add_tags: names(&["t"]), max_volumes: Some(9), ..GroupChange::default() };
    for command in [
        create("c"),
        snapshot(&[("a", "sa"), ("b", "sb")]),
        Request::Remove { names: names(&["b"]) },
        Request::Remove { names: names(&["a", "s"]) },
        Request::Rename { from: "a".into(), to: "z".into() },
        Request::Resize { name: "a".into(), blocks: 12 * MIB, force: false, on: Vec::new(), seen: None },
        Request::SetReserve { name: "s".into(), blocks: Some(6 * MIB), seen: None },
        Request::SetPermission { name: "b".into(), read_only: true },
        Request::SetFullPolicy { name: "b".into(), full: FullPolicy::Hold },
        Request::SetAttributes { name: "s".into(), change: tags },
        Request::ChangeGroup { change: group },
        Request::Merge { snapshot: "s".into() },
        Request::SetAllocatable { path: "/dev/b".into(), allocatable: false },
        Request::AddPv { paths: names(&["/dev/c"]) },
        Request::ResizePv { path: "/dev/b".into(), bytes: Some(200 << 20) },
        Request::RenameGroup { to: "other".into() },
    ] {
        ended_everywhere(&prepared, &command, &nothing);
    }
    let larger = || {
        let world = prepared();
        done(&world, Request::AddPv { paths: names(&["/dev/c"]) });
        world
    };
    ended_everywhere(&larger, &Request::RemovePv { path: "/dev/c".into() }, &nothing);
}

/// What is active is a matter of this boot.
#[test]
fn a_killed_server_leaves_no_device_half_gone() {
    let prepared = || {
        let world = memory();
        ["a", "b"].iter().for_each(|name| done(&world, create(name)));
        world
    };
    ended_by(&[None], &prepared, &Request::Deactivate { names: Some(names(&["b"])) }, &nothing);
}

/// The tests above would find a missing flush.
#[test]
fn a_cut_takes_what_was_not_flushed() {
    let world = memory();
    done(&world, create("a"));
    world.lie();
    done(&world, Request::Rename { from: "a".into(), to: "z".into() });
    let world = world.cut(Cut::None).unwrap();
    assert!(world.service.restore_nodes(false).is_empty());
    assert_eq!(volumes(&world), [("a".to_owned(), false)]);
}

/// A pool and its members change in one record, so that no member names a pool that is gone.
#[test]
fn a_server_that_ends_leaves_no_pool_half_renamed() {
    let in_pool = |name: &str| {
        let Request::CreateVolume { mut spec, activate, on } = create(name) else { unreachable!() };
        spec.kind = VolumeKind::Thin;
        spec.attributes.pool = "p".into();
        Request::CreateVolume { spec, activate: activate && name != "p", on }
    };
    let prepared = || {
        let world = memory();
        ["p", "a", "b"].iter().for_each(|name| done(&world, in_pool(name)));
        world
    };
    ended_everywhere(&prepared, &Request::Rename { from: "p".into(), to: "q".into() }, &nothing);
    let world = prepared();
    done(&world, Request::Rename { from: "p".into(), to: "q".into() });
    let volumes = world.service.group.volumes();
    assert!(volumes.iter().all(|volume| volume.attributes.pool == "q"), "{volumes:?}");
}

#[test]
fn a_merge_at_activation_is_done_or_goes_on_waiting() {
    let prepared = || {
        let world = memory();
        done(&world, create("a"));
        done(&world, snapshot(&[("a", "s")]));
        world.devices.set_user("a", Some(User::Filesystem));
        done(&world, Request::Merge { snapshot: "s".into() });
        world.devices.set_user("a", None);
        done(&world, Request::Deactivate { names: Some(names(&["a"])) });
        world
    };
    let activate = Request::Activate { names: Some(names(&["a"])), ignore_skip: false, auto: false, partial: false };
    // Merged, and not active yet.
    let merged = |found: &[String]| found.len() == 2 && found[1].contains("device false");
    ended_everywhere(&prepared, &activate, &merged);
}

#[test]
fn a_group_that_stops_and_disks_that_fail_are_reported_once() {
    let memory = memory();
    let status = memory.service.status();
    assert_eq!((status.stopped, status.pvs[0].path.as_str()), (None, "/dev/a"));
    // A fault is counted, and reported with the place that failed: one line for it, in the log and among the events.
    memory.set_faults(&[Faults { reads: 3, silent: Some(Duration::from_secs(7)), ..Faults::default() }]);
    *memory.members.new_failures.lock() =
        vec![DiskError { op: DiskOpKind::Read, pv: PvIndex(0), offset: 4096, errno: 5 }];
    for _ in 0..3 {
        memory.service.periodic_work();
    }
    let told = |words: &str| memory.notes.lines.lock().iter().filter(|line| line.contains(words)).count();
    assert_eq!((told("/dev/a of volume group vg failed a read at byte 4096"), told("failed")), (1, 1));
    let pv = memory.service.status().pvs[0].clone();
    assert_eq!((pv.failed_reads, pv.failed_writes, pv.silent_seconds), (3, 0, Some(7)));
    memory.die_at(1);
    assert!(memory.service.checkpoint().is_err());
    memory.service.periodic_work();
    memory.service.periodic_work();
    let why = memory.service.status().stopped.unwrap();
    assert!(why.contains("/dev/a"), "{why}");
    assert_eq!(told("stopped after a failed write"), 1);
    assert!(memory.notes.state.lock().contains("stopped after a failed write"));
}

#[test]
fn a_group_that_has_not_stopped_is_not_cleared() {
    let world = memory();
    assert_eq!(refusal(&world, Request::Clear).0, ErrorKind::Denied);
    assert!(!world.service.ending.is_asked());
    world.die_at(1);
    assert!(world.service.checkpoint().is_err());
    done(&world, Request::Clear);
    assert!(world.service.ending.is_reopened() && world.service.ending.is_asked());
}

#[test]
fn a_server_ends_for_an_upgrade_between_changes() {
    let upgrade = Request::Upgrade { to: "2\u{1b}".into() };
    let stopped = memory();
    stopped.die_at(1);
    assert!(stopped.service.checkpoint().is_err());
    assert!(refusal(&stopped, upgrade.clone()).1.contains("Clear it first"));
    let world = memory();
    done(&world, create("a"));
    world.service.checks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(refusal(&world, upgrade.clone()).0, ErrorKind::InUse);
    world.service.checks.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
    assert!(!world.service.ending.is_asked());
    let waited_for = world.service.change.lock();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&world, upgrade.clone()));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!asked.is_finished());
        drop(waited_for);
        assert_eq!(asked.join().unwrap(), Outcome::HandsOver);
    });
    assert!(world.service.ending.is_upgraded() && world.service.ending.is_asked());
    assert!(
        world
            .notes
            .events
            .lock()
            .iter()
            .any(|(what, text)| *what == What::HandedOver && text.ends_with("Rowen 2\\u{1b}"))
    );
    // What comes later is the next server's; the volumes stay.
    for late in [create("b"), Request::Check, upgrade] {
        assert_eq!(refusal(&world, late).0, ErrorKind::Closed);
    }
    assert_eq!(volumes(&world), active(&["a"]));
}

fn io(world: &Memory) -> IoReport {
    match ask(world, Request::Io) {
        Outcome::Io(report) => *report,
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn counters_of_a_volume_live_as_long_as_it_does() {
    let world = memory();
    ["a", "b"].iter().for_each(|name| done(&world, create(name)));
    let counts = |bytes| IoCounts { write: OpCounts { bytes, ..OpCounts::default() }, ..IoCounts::default() };
    let id = |name: &str| world.service.group.find(name).unwrap();
    world.devices.set_io(id("a"), counts(100));
    world.devices.set_io(id("b"), counts(7));
    world.set_disk_io(&[counts(512)]);
    done(&world, Request::Deactivate { names: Some(names(&["a"])) });
    done(&world, Request::Rename { from: "a".into(), to: "z".into() });
    let seen = |world: &Memory| -> Vec<(String, bool, u64)> {
        io(world).volumes.into_iter().map(|v| (v.name, v.is_active, v.counts.write.bytes)).collect()
    };
    assert_eq!(seen(&world), [("b".to_owned(), true, 7), ("z".to_owned(), false, 100)]);
    done(&world, Request::Activate { names: Some(names(&["z"])), ignore_skip: false, auto: false, partial: false });
    assert_eq!(seen(&world)[1], ("z".to_owned(), true, 100));
    done(&world, Request::Remove { names: names(&["z"]) });
    assert_eq!(seen(&world), [("b".to_owned(), true, 7)]);
    assert_eq!(world.devices.io().len(), 2);
    world.service.periodic_work();
    assert_eq!(world.devices.io().len(), 1, "what is removed is forgotten");
    let disks = io(&world).pvs;
    assert_eq!((disks[0].path.as_str(), disks[0].counts.write.bytes), ("/dev/a", 512));
}

#[test]
fn counters_are_reported_while_a_change_waits() {
    let world = memory();
    done(&world, create("a"));
    let _change = world.service.change.lock();
    assert_eq!(io(&world).volumes.len(), 1);
}

/// Tasks that wait have what they wait for, and the group; it goes with them.
#[test]
fn nothing_is_left_of_a_group_in_memory() {
    let world = memory();
    done(&world, create("data"));
    let group = Arc::downgrade(&world.service.group);
    let next = world.killed().unwrap();
    assert!(group.upgrade().is_none(), "a task of the killed server has it");
    let group = Arc::downgrade(&next.service.group);
    drop(next);
    assert!(group.upgrade().is_none(), "a task has it");
}
