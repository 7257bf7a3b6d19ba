//! A group that goes on without one of its disks: refused requests, working ones, and how the disk comes back or leaves
//! for good.

use super::super::asked::{ask, done, refusal, report, volume};
use super::super::memory::{Memory, Outside};
use crate::protocol::*;
use crate::settings::Settings;
use rowen_engine::disk::{PageBuf, PvIndex};
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::sync::Arc;

/// Blocks of an extent, and of each volume: two extents.
const EXTENT: u64 = 1024;
const BLOCKS: u64 = 2 * EXTENT;
const SIZE: u64 = 256 << 20;
const LOST: PvIndex = PvIndex(1);
const LOST_UUID: Uuid = Uuid([0x41; 16]);

/// What LVM says.
const WHILE_MISSING: &str = "Cannot change VG vg while PVs are missing.\n\
     See vgreduce --removemissing and vgextend --restoremissing.\n\
     Cannot process volume group vg";

fn create(name: &str, on: &[&str]) -> Request {
    volume(name, SegmentType::Linear, BLOCKS, on)
}

fn snapshot(origin: &str, name: &str) -> Request {
    let mut id = [1; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    let spec = SnapshotSpec {
        origin: origin.into(),
        name: name.into(),
        uuid: Uuid(id),
        reserve_blocks: None,
        read_only: false,
        chunk_blocks: 1,
        activate: false,
        attributes: Attributes::default(),
    };
    Request::Snapshot { specs: vec![spec], freeze: true }
}

fn activate(name: &str, partial: bool) -> Request {
    Request::Activate { names: Some(vec![name.into()]), ignore_skip: true, auto: false, partial }
}

fn resize(name: &str, blocks: u64) -> Request {
    Request::Resize { name: name.into(), blocks, force: true, on: Vec::new(), seen: None }
}

fn remove(names: &[&str]) -> Request {
    Request::Remove { names: names.iter().map(|name| (*name).into()).collect() }
}

fn restore(path: &str) -> Request {
    Request::RestorePv { path: path.into() }
}

/// Writes a block of a volume, or says what went wrong.
fn write(world: &Memory, name: &str, block: u64, byte: u8) -> Result<(), String> {
    let volume = world.service.group.volume(world.service.group.find(name).unwrap()).unwrap();
    let buf = Arc::new(PageBuf::from_slice(&[byte; BLOCK_SIZE as usize]));
    let write = world.service.run(async move {
        volume.write(block * BLOCK_SIZE, BLOCK_SIZE as u32, buf).await?;
        volume.flush().await
    });
    write.map_err(|error| error.to_string())
}

/// The first byte of a block; none: it cannot be read.
fn read(world: &Memory, name: &str, block: u64) -> Option<u8> {
    let volume = world.service.group.volume(world.service.group.find(name).unwrap()).unwrap();
    let len = BLOCK_SIZE as usize;
    let read =
        world.service.run(async move { volume.read(block * BLOCK_SIZE, len as u32, PageBuf::zeroed(len)).await });
    read.ok().map(|buf| buf.as_slice()[0])
}

/// Volume `a` lies on `/dev/a`, volume `b` on `/dev/b`; both hold something. Then `/dev/b` is lost.
fn lost() -> Memory {
    let pvs = [0x40, 0x41].map(|byte| NewPv { uuid: Uuid([byte; 16]) }).to_vec();
    let group =
        NewGroup { uuid: Uuid([0x20; 16]), name: "vg".into(), extent_blocks: EXTENT, pvs, second_journal: None };
    let world = Memory::create(group, &[("/dev/a", SIZE), ("/dev/b", SIZE)], Settings::default()).unwrap();
    for (name, path) in [("a", "/dev/a"), ("b", "/dev/b")] {
        done(&world, create(name, &[path]));
        write(&world, name, 3, name.as_bytes()[0]).unwrap();
    }
    done(&world, Request::Checkpoint);
    world.without(LOST).unwrap()
}

/// The disk is found again, with the label that it has, and so is the other one.
fn found(world: &Memory) {
    for (path, uuid) in [("/dev/a", Uuid([0x40; 16])), ("/dev/b", LOST_UUID), ("/dev/x", Uuid([0x77; 16]))] {
        world.members.add_outside(path, Outside { size: SIZE, uuid, refused: None });
    }
}

/// The members that are missing, and the volumes that have lost something.
fn missing(world: &Memory) -> (usize, Vec<String>) {
    let report = report(world);
    let partial = report.volumes.iter().filter(|volume| volume.is_partial).map(|volume| volume.name.clone());
    (report.missing().count(), partial.collect())
}

#[test]
fn what_takes_space_is_refused_in_lvms_words_and_changes_nothing() {
    let world = lost();
    found(&world);
    assert_eq!(missing(&world), (1, vec!["b".into()]));
    let before = report(&world);
    let refused = [
        create("c", &[]),
        create("c", &["/dev/a"]),
        resize("a", 2 * BLOCKS),
        Request::AddPv { paths: vec!["/dev/x".into()] },
        Request::RemovePv { path: "/dev/a".into() },
        Request::ResizePv { path: "/dev/a".into(), bytes: Some(SIZE / 2) },
        Request::SetAllocatable { path: "/dev/a".into(), allocatable: false },
    ];
    for request in refused {
        let (kind, message) = refusal(&world, request.clone());
        let rest = message.strip_prefix(WHILE_MISSING).unwrap_or_else(|| panic!("{request:?}: {message}"));
        let adds = match request {
            Request::AddPv { .. } => "\nUnable to add physical volume '/dev/x' to volume group 'vg'",
            _ => "",
        };
        assert_eq!((kind, rest), (ErrorKind::NotFound, adds), "{request:?}");
        assert_eq!(report(&world), before, "{request:?}");
    }
}

#[test]
fn what_needs_none_works() {
    let world = lost();
    done(&world, activate("a", false));
    write(&world, "a", 4, b'n').unwrap();
    done(&world, snapshot("a", "s"));
    write(&world, "a", 3, b'm').unwrap();
    assert_eq!((read(&world, "a", 3), read(&world, "s", 3)), (Some(b'm'), Some(b'a')));
    done(&world, Request::Rename { from: "s".into(), to: "t".into() });
    let change = AttributeChange { add_tags: vec!["kept".into()], ..AttributeChange::default() };
    done(&world, Request::SetAttributes { name: "b".into(), change });
    let change = GroupChange { add_tags: vec!["poor".into()], ..GroupChange::default() };
    done(&world, Request::ChangeGroup { change });
    done(&world, Request::SetPermission { name: "t".into(), read_only: true });
    done(&world, Request::Deactivate { names: Some(vec!["a".into()]) });
    done(&world, Request::Revert { target: "a".into(), source: "t".into() });
    assert_eq!((read(&world, "a", 3), read(&world, "a", 4)), (Some(b'a'), Some(b'n')));
    done(&world, resize("a", EXTENT));
    match done(&world, Request::Check) {
        Outcome::Check(check) => assert_eq!(check.findings, Vec::<String>::new()),
        outcome => panic!("{outcome:?}"),
    }
    done(&world, Request::Status);
    done(&world, remove(&["t", "b"]));
    assert_eq!(missing(&world), (1, Vec::new()));
    let names = report(&world).volumes.into_iter().map(|volume| volume.name).collect::<Vec<_>>();
    assert_eq!(names, ["a"]);
}

/// MB2: what is lost is an error, to who wants the volume all the same.
#[test]
fn a_volume_that_has_lost_something_is_activated_on_request_alone() {
    let world = lost();
    let refused = "Refusing activation of partial LV vg/b.  Use '--activationmode partial' to override.";
    assert_eq!(refusal(&world, activate("b", false)), (ErrorKind::Denied, refused.into()));
    assert!(!report(&world).volumes.iter().any(|volume| volume.node.active));
    done(&world, activate("b", true));
    assert_eq!(read(&world, "b", 3), None);
}

#[test]
fn a_disk_comes_back_as_it_left() {
    let world = lost();
    found(&world);
    write(&world, "a", 3, b'n').unwrap();
    let restored = |message: &str| (ErrorKind::Invalid, format!("{message}\nNo PV has been restored."));
    assert_eq!(refusal(&world, restore("/dev/x")), restored("WARNING: PV /dev/x not found in VG vg"));
    assert_eq!(refusal(&world, restore("/dev/a")), restored("WARNING: PV /dev/a was not missing in VG vg"));
    assert_eq!(refusal(&world, restore("/dev/y")).0, ErrorKind::NotFound);
    assert_eq!(missing(&world).0, 1);
    done(&world, restore("/dev/b"));
    assert_eq!(missing(&world), (0, Vec::new()));
    assert_eq!((read(&world, "a", 3), read(&world, "b", 3)), (Some(b'n'), Some(b'b')));
    done(&world, activate("b", false));
    write(&world, "b", 5, b'w').unwrap();
    done(&world, create("c", &["/dev/b"]));
    let world = world.killed().unwrap();
    assert_eq!((read(&world, "b", 3), read(&world, "b", 5)), (Some(b'b'), Some(b'w')));
}

/// MB5: wherever the server dies meanwhile, the disk is back, or is missing and can be taken back again.
#[test]
fn a_server_that_dies_while_it_takes_a_disk_back_leaves_it_in_or_out() {
    let mut outcomes = [0; 2];
    for count in 1.. {
        let world = lost();
        found(&world);
        world.die_at(count);
        let answer = ask(&world, restore("/dev/b"));
        if !world.is_dead() {
            assert!(matches!(answer, Outcome::Ok), "{answer:?}");
            break;
        }
        let world = world.killed().unwrap_or_else(|error| panic!("killed at its write {count}: {error}"));
        let out = missing(&world).0;
        outcomes[out] += 1;
        if out > 0 {
            found(&world);
            done(&world, restore("/dev/b"));
        }
        assert_eq!(missing(&world), (0, Vec::new()), "killed at its write {count}");
        assert_eq!((read(&world, "a", 3), read(&world, "b", 3)), (Some(b'a'), Some(b'b')));
    }
    assert!(outcomes.iter().all(|times| *times > 0), "{outcomes:?}");
}

#[test]
fn a_disk_leaves_for_good_once_nothing_is_on_it() {
    let world = lost();
    let refused = "WARNING: Partial LV b needs to be repaired or removed.\nThere are still partial LVs in VG vg.\n\
         To remove them unconditionally use: vgreduce --removemissing --force.";
    assert_eq!(refusal(&world, Request::RemoveMissing), (ErrorKind::InUse, refused.into()));
    assert_eq!(missing(&world), (1, vec!["b".into()]));
    done(&world, remove(&["b"]));
    assert!(matches!(ask(&world, Request::RemoveMissing), Outcome::HandsOver));
    let world = world.successor().unwrap().expect("the group stays");
    assert_eq!((report(&world).pvs.len(), missing(&world).0), (1, 0));
    done(&world, create("c", &[]));
    assert_eq!(read(&world, "a", 3), Some(b'a'));
    // A group that misses nothing has nothing to remove.
    assert!(matches!(ask(&world, Request::RemoveMissing), Outcome::Ok));
}
