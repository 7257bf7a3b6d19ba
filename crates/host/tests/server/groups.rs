//! A group as a whole: names, tags, limits, and physical volumes that come, grow and leave while it is used.
//!
//! Rules RN1, RN2 and RN3.

use super::Test;
use super::volumes::{create_refusal, starts_with, write};
use super::world::{MIB, MIB_BLOCKS, Mounted, Pause, Vg, die_at, file, run, snapshot, wait_for};
use rowen_control::protocol::{ErrorKind, GroupChange, Outcome, PvPart, Request, SegmentType, VolumeKind, VolumeState};
use rowen_control::uuids;
use rowen_host::devices::{self, Consent};
use rowen_host::server;
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

pub const TESTS: &[Test] = &[
    ("groups::a_running_group_grows", a_running_group_grows),
    ("groups::a_filling_group_warns", a_filling_group_warns),
    ("groups::tags_and_marks_of_a_group_outlive_its_server", tags_and_marks_of_a_group_outlive_its_server),
    ("groups::a_group_is_renamed_while_it_is_used", a_group_is_renamed_while_it_is_used),
    ("groups::any_physical_volume_leaves_while_the_group_is_used", any_physical_volume_leaves_while_the_group_is_used),
    ("groups::space_is_taken_where_it_is_named_and_allowed", space_is_taken_where_it_is_named_and_allowed),
    ("groups::a_rename_that_is_killed_is_finished", a_rename_that_is_killed_is_finished),
    ("groups::a_rename_without_a_keeper_is_finished_by_a_command", a_rename_without_a_keeper_is_finished_by_a_command),
    ("groups::nobody_finishes_a_rename_that_goes_on", nobody_finishes_a_rename_that_goes_on),
    ("groups::a_physical_volume_leaves_and_another_grows", a_physical_volume_leaves_and_another_grows),
    ("groups::limits_of_a_group_are_kept", limits_of_a_group_are_kept),
];

fn a_running_group_grows() {
    let mut vg = Vg::make(&[64 * MIB]);
    let before = vg.report();
    let new = file(256 * MIB);
    vg.files.push(new.clone());
    let path = || new.display().to_string();
    devices::pvcreate(&new, uuids::fresh(), Consent::default()).unwrap();
    vg.ask(Request::AddPv { paths: vec![path()] });
    let after = vg.report();
    assert_eq!(after.pvs.len(), 2);
    assert!(after.extents >= before.extents + 60, "{} extents after {}", after.extents, before.extents);
    let node = vg.create("big", VolumeKind::Thick, 200 * MIB, true);
    write(&node, 9, 190 << 20, 1 << 20);
    let (kind, message) = vg.refusal(Request::AddPv { paths: vec![path()] });
    assert_eq!(kind, ErrorKind::Exists);
    assert!(message.contains(&format!("is already in volume group '{}'", vg.name)), "{message}");
    assert_eq!(vg.refusal(Request::AddPv { paths: vec!["/nonexistent".into()] }).0, ErrorKind::NotFound);
    assert_eq!(vg.refusal(Request::AddPv { paths: vec!["/x".into(), "/x".into()] }).0, ErrorKind::Invalid);
    // Reopened, it is still one group of two.
    vg.ask(Request::Stop);
    assert_eq!(vg.report().pvs.len(), 2);
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false, partial: false });
    let mut found = vec![0; 1 << 20];
    File::open(&node).unwrap().read_exact_at(&mut found, 190 << 20).unwrap();
    assert!(found.iter().all(|byte| *byte == 9));
}

fn a_filling_group_warns() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("thin", VolumeKind::Thin, 256 * MIB, true);
    let filled = vg.report().free_blocks * 4096 / 100 * 85;
    let device = File::options().write(true).open(&node).unwrap();
    let chunk = vec![1; 1 << 20];
    (0..filled >> 20).for_each(|at| device.write_all_at(&chunk, at << 20).unwrap());
    device.sync_all().unwrap();
    drop(device);
    let mut notices = Vec::new();
    let mut client = server::ensure_running(&vg.name).unwrap();
    let specs = vec![snapshot("thin", "snap", None)];
    let outcome = client.ask(&Request::Snapshot { specs, freeze: true }, &mut |news| {
        if let Outcome::Notice { message } = news {
            notices.push(message.clone());
        }
    });
    assert!(matches!(outcome, Outcome::Created(_)), "{outcome:?}");
    // The main loop may have reported it first, to the log.
    let told = notices.join("\n") + &vg.log();
    assert!(told.contains(&format!("WARNING: Volume group \"{}\" is ", vg.name)), "{told}");
}

fn tags_and_marks_of_a_group_outlive_its_server() {
    let vg = Vg::make(&[64 * MIB, 64 * MIB]);
    let change = |change: GroupChange| vg.ask(Request::ChangeGroup { change });
    change(GroupChange { add_tags: vec!["a".into(), "b/c".into()], max_volumes: Some(9), ..GroupChange::default() });
    change(GroupChange {
        add_tags: vec!["b/c".into(), "d".into()],
        remove_tags: vec!["a".into()],
        ..Default::default()
    });
    let second = vg.report().pvs[1].path.clone();
    vg.ask(Request::TagPv { path: second, add: vec!["slow".into()], remove: Vec::new() });
    let (kind, _) = vg.refusal(Request::TagPv { path: "/dev/null".into(), add: Vec::new(), remove: Vec::new() });
    assert_eq!(kind, ErrorKind::NotFound);
    let bad = GroupChange { add_tags: vec!["two words".into()], ..GroupChange::default() };
    assert_eq!(vg.refusal(Request::ChangeGroup { change: bad }).0, ErrorKind::Invalid);
    for _ in 0..2 {
        let report = vg.report();
        assert_eq!(report.attributes.tags, ["b/c", "d"]);
        assert_eq!(report.attributes.max_volumes, 9);
        assert!(report.attributes.autoactivate && report.attributes.resizeable);
        assert_eq!(report.pvs.iter().map(|pv| pv.tags.clone()).collect::<Vec<_>>(), [vec![], vec!["slow".to_owned()]]);
        vg.ask(Request::Stop);
    }
    vg.create("lv", VolumeKind::Thin, 8 * MIB, false);
    change(GroupChange { exported: Some(true), ..GroupChange::default() });
    let (kind, message) =
        vg.refusal(Request::Activate { names: None, ignore_skip: false, auto: false, partial: false });
    assert_eq!((kind, message), (ErrorKind::Denied, format!("Volume group \"{}\" is exported", vg.name)));
    change(GroupChange { exported: Some(false), ..GroupChange::default() });
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false, partial: false });
}

pub fn rename_group(vg: &mut Vg, to: String) {
    vg.ask(Request::RenameGroup { to: to.clone() });
    vg.name = to;
    vg.report();
}

fn a_group_is_renamed_while_it_is_used() {
    let mut vg = Vg::make(&[64 * MIB, 64 * MIB]);
    let mounted = vg.create("a-b", VolumeKind::Thick, 16 * MIB, true);
    let (before, first) = (vg.name.clone(), vg.server());
    vg.create("idle", VolumeKind::Thin, 8 * MIB, true);
    vg.create("off", VolumeKind::Thin, 8 * MIB, false);
    let filesystem = Mounted::ext4(&mounted);
    fs::write(filesystem.point.join("old"), b"from before").unwrap();
    let numbers = |vg: &Vg| {
        let report = vg.report();
        report.volumes.iter().map(|volume| (volume.node.major, volume.node.minor)).collect::<Vec<_>>()
    };
    let devices = numbers(&vg);
    let other = Vg::make(&[64 * MIB]);
    let (kind, message) = vg.refusal(Request::RenameGroup { to: other.name.clone() });
    assert_eq!((kind, message), (ErrorKind::Exists, format!("New volume group \"{}\" already exists", other.name)));
    assert_eq!(vg.refusal(Request::RenameGroup { to: "../x".into() }).0, ErrorKind::Invalid);
    assert_eq!(vg.server(), first, "a refusal is no reason to end");

    wait_for("a copy of the metadata", || rowen_host::archive::backup_path(&before).exists());
    // With a dash, which is doubled in names under /dev/mapper; and there and back again.
    for to in [format!("{before}-new"), format!("{before}x")] {
        rename_group(&mut vg, to);
        assert_eq!(numbers(&vg), devices, "they are the same devices");
        assert!(fs::metadata(vg.node("a-b")).unwrap().file_type().is_block_device());
        assert!(vg.node("idle").exists() && !vg.node("off").exists());
        let report = vg.report();
        assert!(report.volume("a-b").unwrap().node.open && !report.volume("idle").unwrap().node.open);
        assert_eq!(fs::read(filesystem.point.join("old")).unwrap(), b"from before");
        fs::write(filesystem.point.join("new"), vec![7; 1 << 20]).unwrap();
    }
    for old in [before.clone(), format!("{before}-new")] {
        assert!(!Path::new("/dev").join(&old).exists(), "/dev/{old} is still there");
        assert!(!rowen_host::paths::group_dir(&old).exists(), "the run directory of {old} is still there");
        let listed = fs::read_dir("/dev/mapper").unwrap().flatten();
        let prefix = format!("{}-a", old.replace('-', "--"));
        let left = listed.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count();
        assert_eq!(left, 0, "{old} has names under /dev/mapper");
        assert!(!rowen_host::archive::backup_path(&old).exists(), "{old} has a newest copy of its metadata still");
    }
    assert!(!rowen_host::archive::archived(&before).unwrap().is_empty(), "what was said of it is no history");
    // The keeper knows the new name: a server that dies is followed by one of it.
    let pid = vg.signal_server(rustix::process::Signal::KILL);
    wait_for("another server", || vg.server() != pid && server::connect(&vg.name).is_ok_and(|client| client.is_some()));
    assert_eq!(fs::read(filesystem.point.join("new")).unwrap(), vec![7; 1 << 20]);
    drop(filesystem);
    let name = vg.name.clone();
    vg.ask(Request::Stop);
    assert!(devices::scan().unwrap().group(&before).is_err());
    assert_eq!(devices::scan().unwrap().group(&name).unwrap().paths.len(), 2);
    // With nothing active no server is needed in between.
    vg.ask(Request::Deactivate { names: None });
    rename_group(&mut vg, before);
    assert_eq!(vg.names(), ["a-b", "idle", "off"]);
}

/// The first holds the journal and metadata, the second metadata; a mounted volume is on the third, and stays mounted.
fn any_physical_volume_leaves_while_the_group_is_used() {
    let vg = Vg::make(&[64 * MIB, 64 * MIB, 96 * MIB]);
    let report = vg.report();
    let extent = report.extent_blocks * 4096;
    let before = report.pvs[0].free_extents + report.pvs[1].free_extents;
    let names: Vec<String> = (0..before).map(|number| format!("before{number}")).collect();
    names.iter().for_each(|name| drop(vg.create(name, VolumeKind::Thick, extent, false)));
    let node = vg.create("keep", VolumeKind::Thick, 32 * MIB, true);
    let used = |path: &str| (ErrorKind::InUse, format!("Physical volume \"{path}\" still in use"));
    let path = |vg: &Vg, index: usize| vg.files[index].display().to_string();
    assert_eq!(vg.refusal(Request::RemovePv { path: path(&vg, 0) }), used(&path(&vg, 0)));
    vg.ask(Request::Remove { names });
    let filesystem = Mounted::ext4(&node);
    fs::write(filesystem.point.join("old"), b"from before").unwrap();
    let number = |vg: &Vg| vg.report().volume("keep").unwrap().node.minor;
    let (device, mut left) = (number(&vg), 3);
    for index in [0, 1] {
        let server = vg.server();
        assert_eq!(vg.ask(Request::RemovePv { path: path(&vg, index) }), Outcome::HandsOver);
        let is_back = |vg: &Vg| server::connect(&vg.name).is_ok_and(|client| client.is_some());
        wait_for("a successor", || vg.server() != server && is_back(&vg));
        left -= 1;
        assert_eq!(vg.report().pvs.len(), left);
        assert_eq!(number(&vg), device, "it is the same device");
        assert_eq!(fs::read(filesystem.point.join("old")).unwrap(), b"from before");
        fs::write(filesystem.point.join(format!("new{index}")), vec![7; 1 << 20]).unwrap();
        // It belongs to no group, and nobody holds it.
        devices::pvremove(&vg.files[index], Consent::default()).unwrap();
    }
    let (_, message) = vg.refusal(Request::RemovePv { path: path(&vg, 2) });
    assert!(message.starts_with("Can't remove final physical volume"), "{message}");
    let Outcome::Check(checked) = vg.ask(Request::Check) else { panic!("that is no check") };
    assert_eq!(checked.findings, Vec::<String>::new());
    drop(filesystem);
    vg.ask(Request::Stop);
}

/// A mounted volume lies on the second physical volume, which then gives no more space, also when the server was
/// killed: what its snapshot needs comes from the first.
#[expect(clippy::too_many_lines, reason = "one group goes through all of it in this order")]
fn space_is_taken_where_it_is_named_and_allowed() {
    let vg = Vg::make(&[96 * MIB, 96 * MIB]);
    let path = |index: usize| vg.files[index].display().to_string();
    let whole = |index: usize| PvPart { path: path(index), first_extent: 0, extents: vg.report().pvs[index].extents };
    let free = |on: Vec<PvPart>| match vg.ask(Request::FreeOn { on }) {
        Outcome::Free { extents } => extents,
        other => panic!("no answer to that: {other:?}"),
    };
    let spec = |name: &str, mib: u64| rowen_control::protocol::VolumeSpec {
        name: name.into(),
        uuid: uuids::fresh(),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: mib * MIB_BLOCKS,
        sector: 512,
        chunk_blocks: 16,
        full: rowen_control::protocol::FullPolicy::Fail,
        attributes: Default::default(),
    };
    let create =
        |name: &str, mib: u64, on: Vec<PvPart>| Request::CreateVolume { spec: spec(name, mib), activate: true, on };
    let (kind, message) = vg.refusal(create("lv", 4, vec![PvPart { path: "/dev/null".into(), ..whole(1) }]));
    assert_eq!((kind, message.contains("not found in Volume Group")), (ErrorKind::NotFound, true), "{message}");
    for (first_extent, extents) in [(0, 24), (24, 1), (0, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let part = PvPart { path: path(1), first_extent, extents };
        assert_eq!(vg.refusal(create("lv", 4, vec![part.clone()])).0, ErrorKind::Invalid, "{part:?}");
        assert_eq!(vg.refusal(Request::FreeOn { on: vec![part] }).0, ErrorKind::Invalid);
    }
    let there = free(vec![whole(1)]);
    vg.ask(create("lv", 32, vec![whole(1)]));
    assert_eq!(free(vec![whole(1)]), there - 8);
    let (kind, message) = vg.refusal(create("big", 4 * there, vec![whole(1)]));
    let told = format!("Insufficient free space: {there} extents needed, but only {} available", there - 8);
    assert_eq!((kind, message), (ErrorKind::NoSpace, told));
    vg.ask(Request::Resize {
        name: "lv".into(),
        blocks: 36 * MIB_BLOCKS,
        force: false,
        on: vec![whole(1)],
        seen: None,
    });
    assert_eq!(free(vec![whole(1)]), there - 9);

    let filesystem = Mounted::ext4(&vg.node("lv"));
    fs::write(filesystem.point.join("old"), vec![3; 8 << 20]).unwrap();
    vg.ask(Request::SetAllocatable { path: path(1), allocatable: false });
    let report = vg.report();
    let told: Vec<bool> = report.pvs.iter().map(|pv| pv.is_allocatable).collect();
    assert_eq!(told, [true, false]);
    assert_eq!(report.free_extents, report.allocatable_extents + report.pvs[1].free_extents);
    wait_for("a copy of the metadata that tells it", || {
        fs::read_to_string(rowen_host::archive::backup_path(&vg.name)).is_ok_and(|text| text.contains("status = []"))
    });
    let pid = vg.signal_server(Signal::KILL);
    wait_for("another server", || vg.server() != pid && server::connect(&vg.name).is_ok_and(|client| client.is_some()));
    assert!(!vg.report().pvs[1].is_allocatable);
    assert_eq!(free(vec![whole(1)]), 0);
    let before = vg.report().pvs[1].free_extents;
    vg.ask(Request::Snapshot { specs: vec![snapshot("lv", "before", None)], freeze: true });
    fs::write(filesystem.point.join("new"), vec![7; 12 << 20]).unwrap();
    run("sync", &["-f", filesystem.point.to_str().unwrap()]);
    assert_eq!(fs::read(filesystem.point.join("old")).unwrap(), vec![3; 8 << 20]);
    let report = vg.report();
    assert_eq!(report.pvs[1].free_extents, before);
    assert_eq!(report.volume("before").unwrap().state, VolumeState::Ok);
    let (kind, _) = vg.refusal(create("more", 4 * (report.allocatable_extents + 1), Vec::new()));
    assert_eq!(kind, ErrorKind::NoSpace);
    // What is reserved for a snapshot must be there to be taken.
    let reserve = report.allocatable_extents * 1024;
    vg.ask(Request::Snapshot { specs: vec![snapshot("lv", "kept", Some(reserve))], freeze: true });
    let (kind, message) = vg.refusal(Request::SetAllocatable { path: path(0), allocatable: false });
    assert!(kind == ErrorKind::NoSpace && message.contains("is reserved for volumes"), "{message}");
    vg.ask(Request::Remove { names: vec!["kept".into()] });
    vg.ask(Request::SetAllocatable { path: path(1), allocatable: true });
    let report = vg.report();
    assert_eq!(report.free_extents, report.allocatable_extents);
    vg.ask(create("more", 4 * before, vec![whole(1)]));
    let Outcome::Check(checked) = vg.ask(Request::Check) else { panic!("that is no check") };
    assert_eq!(checked.findings, Vec::<String>::new());
    drop(filesystem);
}

/// Nothing is left of a name that the group does not have.
fn nothing_has_the_name(group: &str) {
    assert!(!Path::new("/dev").join(group).exists(), "/dev/{group} is there");
    assert!(!rowen_host::paths::group_dir(group).exists(), "the run directory of {group} is there");
    assert!(!rowen_host::archive::backup_path(group).exists(), "{group} has a newest copy of its metadata");
    let prefix = format!("{}-", group.replace('-', "--"));
    for node in fs::read_dir("/dev/mapper").unwrap().flatten() {
        let node = node.file_name().into_string().unwrap();
        let volume = node.strip_prefix(&prefix).filter(|volume| !volume.starts_with('-'));
        assert_eq!(volume, None, "/dev/mapper/{node} is there");
    }
    for file in fs::read_dir(rowen_host::paths::run_dir()).unwrap().flatten() {
        let file = file.file_name().into_string().unwrap();
        assert!(!file.contains(&format!("@{group}")), "{file} is there");
    }
}

fn a_rename_that_is_killed_is_finished() {
    let mut vg = Vg::make(&[64 * MIB, 64 * MIB]);
    let mounted = vg.create("a-b", VolumeKind::Thick, 16 * MIB, true);
    vg.create("idle", VolumeKind::Thin, 8 * MIB, true);
    let filesystem = Mounted::ext4(&mounted);
    let numbers = |vg: &Vg| {
        let report = vg.report();
        report.volumes.iter().map(|volume| (volume.node.major, volume.node.minor)).collect::<Vec<_>>()
    };
    let devices = numbers(&vg);
    let steps = ["names made", "disks renamed", "names removed", "directory moved", "keeper told"];
    for (round, step) in steps.into_iter().enumerate() {
        let (from, to) = (vg.name.clone(), format!("{}-{round}", vg.name));
        let pid = vg.server();
        die_at(step);
        let (kind, message) = vg.refusal(Request::RenameGroup { to: to.clone() });
        assert_eq!(kind, ErrorKind::Closed, "{step}: {message}");
        // Before the disks had the new name it is taken back.
        let (is, is_not) = if step == "names made" { (from, to) } else { (to, from) };
        vg.name = is.clone();
        // No command asks: the keeper starts who finishes it, since the applications wait.
        wait_for(&format!("a server of the right name, killed with {step}"), || {
            server::connect(&is).is_ok_and(|client| client.is_some())
        });
        assert_ne!(vg.server(), pid);
        assert_eq!(numbers(&vg), devices, "{step}: they are the same devices");
        assert!(vg.node("a-b").exists() && vg.node("idle").exists(), "{step}");
        nothing_has_the_name(&is_not);
        let file = filesystem.point.join(format!("after-{round}"));
        fs::write(&file, step).unwrap();
        run("sync", &["-f", file.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(&file).unwrap(), step);
    }
    drop(filesystem);
    let Outcome::Check(check) = vg.ask(Request::Check) else { panic!("no check") };
    assert_eq!(check.findings, Vec::<String>::new());
}

fn a_rename_without_a_keeper_is_finished_by_a_command() {
    for (step, by_old_name) in [("names made", false), ("disks renamed", false), ("disks renamed", true)] {
        let mut vg = Vg::make(&[64 * MIB]);
        vg.create("lv", VolumeKind::Thin, 8 * MIB, false);
        let (from, to) = (vg.name.clone(), format!("{}x", vg.name));
        die_at(step);
        assert_eq!(vg.refusal(Request::RenameGroup { to: to.clone() }).0, ErrorKind::Closed);
        let (is, is_not) = if step == "names made" { (from.clone(), to) } else { (to, from.clone()) };
        if by_old_name {
            assert!(server::ensure_running(&is_not).is_err(), "{from} is no group any more");
        }
        vg.name = is;
        assert_eq!(vg.names(), ["lv"]);
        nothing_has_the_name(&is_not);
    }
}

/// RN2
fn nobody_finishes_a_rename_that_goes_on() {
    let mut vg = Vg::make(&[64 * MIB]);
    vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    let (from, to) = (vg.name.clone(), format!("{}x", vg.name));
    let note = rowen_host::paths::run_dir().join(format!("renaming@{from}@{to}"));
    let pause = Pause::at("names made");
    let (group, name) = (from.clone(), to.clone());
    let renaming = std::thread::spawn(move || {
        let mut client = server::ensure_running(&group).unwrap();
        client.ask(&Request::RenameGroup { to: name }, &mut |_| {})
    });
    pause.wait();
    let inode = fs::metadata(&note).unwrap().ino();
    let name = to.clone();
    let other = std::thread::spawn(move || server::ensure_running(&name).map(drop).map_err(|failure| failure.message));
    let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&format!(":{inode} "));
    let is_waiting = || fs::read_to_string("/proc/locks").unwrap().lines().any(waits);
    wait_for("another that looks at the rename", || other.is_finished() || is_waiting());
    assert!(!other.is_finished(), "it did not wait for the rename: {:?}", other.join());
    let new_name = Path::new("/dev").join(&to).join("lv");
    assert!(note.exists() && new_name.exists(), "what the rename has made was taken away");
    drop(pause);
    assert!(matches!(renaming.join().unwrap(), Outcome::Ok));
    vg.name = to;
    assert_eq!(other.join().unwrap(), Ok(()));
    assert_eq!(vg.names(), ["lv"]);
    assert!(new_name.exists());
    nothing_has_the_name(&from);
}

fn a_physical_volume_leaves_and_another_grows() {
    let mut vg = Vg::make(&[64 * MIB, 64 * MIB]);
    let path = |vg: &Vg, index: usize| vg.files[index].display().to_string();
    let node = vg.create("keep", VolumeKind::Thick, 8 * MIB, true);
    write(&node, 5, 0, 1 << 20);
    vg.create("big", VolumeKind::Thick, 80 * MIB, false);
    let used = |path: &str| (ErrorKind::InUse, format!("Physical volume \"{path}\" still in use"));
    assert_eq!(vg.refusal(Request::RemovePv { path: path(&vg, 1) }), used(&path(&vg, 1)));
    assert_eq!(vg.refusal(Request::RemovePv { path: path(&vg, 0) }), used(&path(&vg, 0)));
    vg.ask(Request::Remove { names: vec!["big".into()] });
    vg.ask(Request::RemovePv { path: path(&vg, 1) });
    assert_eq!(vg.report().pvs.len(), 1);
    let (_, message) = vg.refusal(Request::RemovePv { path: path(&vg, 0) });
    assert!(message.starts_with("Can't remove final physical volume"), "{message}");
    // It is a physical volume of no group, held by nobody, and may join again or go.
    devices::pvremove(&vg.files[1], Consent::default()).unwrap();

    let before = vg.report().extents;
    vg.ask(Request::ResizePv { path: path(&vg, 0), bytes: None });
    assert_eq!(vg.report().extents, before, "a device that has not grown changes nothing");
    File::options().write(true).open(&vg.files[0]).unwrap().set_len(256 * MIB).unwrap();
    vg.ask(Request::ResizePv { path: path(&vg, 0), bytes: None });
    assert_eq!(vg.report().extents, before + 48);
    // The end of it may be given away again, and the device be cut there, as long as nothing lies there.
    vg.ask(Request::ResizePv { path: path(&vg, 0), bytes: Some(96 * MIB) });
    assert_eq!(vg.report().extents, before + 8);
    let (kind, message) = vg.refusal(Request::ResizePv { path: path(&vg, 0), bytes: Some(4 * MIB) });
    assert!(kind != ErrorKind::Internal && !message.is_empty(), "{message}");
    vg.ask(Request::Stop);
    File::options().write(true).open(&vg.files[0]).unwrap().set_len(96 * MIB).unwrap();
    assert_eq!(vg.report().extents, before + 8);
    File::options().write(true).open(&vg.files[0]).unwrap().set_len(256 * MIB).unwrap();
    vg.ask(Request::ResizePv { path: path(&vg, 0), bytes: None });
    assert_eq!(vg.report().extents, before + 48);
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false, partial: false });
    assert!(starts_with(&vg.node("keep"), 5, 1 << 20));
    vg.create("full", VolumeKind::Thick, vg.report().free_extents * 4 * MIB, false);
    let told = format!("{}: cannot resize to 23 extents as later ones are allocated.", path(&vg, 0));
    assert_eq!(vg.refusal(Request::ResizePv { path: path(&vg, 0), bytes: Some(96 * MIB) }), (ErrorKind::InUse, told));
    vg.ask(Request::Remove { names: vec!["full".into()] });
    let node = vg.create("more", VolumeKind::Thick, 160 * MIB, true);
    write(&node, 6, 150 << 20, 1 << 20);
    vg.ask(Request::Stop);
    assert_eq!(vg.report().extents, before + 48);
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false, partial: false });
    assert!(starts_with(&vg.node("keep"), 5, 1 << 20));
    match vg.ask(Request::Check) {
        Outcome::Check(found) => assert_eq!(found.findings, Vec::<String>::new()),
        other => panic!("{other:?}"),
    }
    vg.files.truncate(1);
}

fn limits_of_a_group_are_kept() {
    let vg = Vg::make(&[64 * MIB]);
    let change = |change: GroupChange| vg.ask(Request::ChangeGroup { change });
    change(GroupChange { max_volumes: Some(1), max_pvs: Some(1), ..GroupChange::default() });
    vg.create("one", VolumeKind::Thin, 8 * MIB, false);
    let most = format!("Maximum number of logical volumes (1) reached in volume group {}", vg.name);
    assert_eq!(create_refusal(&vg, "two", 4 * MIB), (ErrorKind::NoSpace, most.clone()));
    let specs = vec![snapshot("one", "two", None)];
    assert_eq!(vg.refusal(Request::Snapshot { specs, freeze: true }), (ErrorKind::NoSpace, most));
    let (kind, message) = vg.refusal(Request::AddPv { paths: vec!["/x".into()] });
    assert_eq!(
        (kind, message),
        (ErrorKind::NoSpace, format!("No space for '/x' - volume group '{}' holds max 1 physical volume(s).", vg.name))
    );
    change(GroupChange { max_pvs: Some(0), resizeable: Some(false), ..GroupChange::default() });
    let (_, message) = vg.refusal(Request::AddPv { paths: vec!["/x".into()] });
    assert_eq!(message, format!("Volume group {} is not resizeable.", vg.name));
}
