//! What commands ask a server for, down to the block devices.

use super::Test;
use super::world::{MIB, MIB_BLOCKS, Mounted, Pause, Vg, kill_both, lives, run, snapshot, wait_for};
use rowen_control::protocol::{AttributeChange, ErrorKind, Outcome, Request, SegmentType, VolumeKind};
use rowen_control::uuids;
use rowen_host::{paths, server};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("volumes::a_new_volume_has_its_nodes_at_once", a_new_volume_has_its_nodes_at_once),
    ("volumes::names_that_are_taken_or_unknown_are_refused", names_that_are_taken_or_unknown_are_refused),
    ("volumes::what_does_not_fit_is_refused", what_does_not_fit_is_refused),
    ("volumes::a_node_that_cannot_be_made_takes_the_volume_back", a_node_that_cannot_be_made_takes_the_volume_back),
    ("volumes::a_mounted_volume_is_not_removed", a_mounted_volume_is_not_removed),
    ("volumes::an_open_volume_is_not_deactivated", an_open_volume_is_not_deactivated),
    ("volumes::removal_takes_all_or_none", removal_takes_all_or_none),
    ("volumes::a_snapshot_of_a_mounted_filesystem_is_clean", a_snapshot_of_a_mounted_filesystem_is_clean),
    ("volumes::a_group_snapshot_is_one_moment", a_group_snapshot_is_one_moment),
    ("volumes::reserved_snapshots_follow_their_origin", reserved_snapshots_follow_their_origin),
    ("volumes::activation_minds_its_marks", activation_minds_its_marks),
    ("volumes::merge_and_revert_replace_the_contents", merge_and_revert_replace_the_contents),
    ("volumes::a_merge_waits_for_the_next_activation", a_merge_waits_for_the_next_activation),
    ("volumes::a_waiting_merge_goes_with_its_origin", a_waiting_merge_goes_with_its_origin),
    ("volumes::devices_follow_a_resize", devices_follow_a_resize),
    ("volumes::a_mounted_volume_is_renamed", a_mounted_volume_is_renamed),
    ("volumes::missing_names_are_made_again", missing_names_are_made_again),
    ("volumes::permissions_reach_the_device", permissions_reach_the_device),
    ("volumes::commands_are_quick", commands_are_quick),
    ("volumes::processes_are_looked_through_once_and_not_in_vain", processes_are_looked_through_once_and_not_in_vain),
    ("volumes::a_device_that_was_made_for_nobody_goes", a_device_that_was_made_for_nobody_goes),
    ("volumes::concurrent_commands_are_all_done", concurrent_commands_are_all_done),
];

pub fn device_size(node: &Path) -> u64 {
    let text = run("blockdev", &["--getsize64", node.to_str().unwrap()]).stdout;
    String::from_utf8_lossy(&text).trim().parse().unwrap()
}

pub fn write(node: &Path, byte: u8, offset: u64, len: usize) {
    let device = File::options().write(true).open(node).unwrap();
    device.write_all_at(&vec![byte; len], offset).unwrap();
    device.sync_all().unwrap();
}

pub fn starts_with(node: &Path, byte: u8, len: usize) -> bool {
    let mut buf = vec![!byte; len];
    File::open(node).unwrap().read_exact_at(&mut buf, 0).unwrap();
    buf.iter().all(|found| *found == byte)
}

/// How many loop devices lie over files of the group's volumes.
fn bound(vg: &Vg) -> usize {
    let files = fs::canonicalize(paths::group_dir(&vg.name)).unwrap();
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let backing = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    backing.filter(|file| Path::new(file.trim_end()).starts_with(&files)).count()
}

fn a_new_volume_has_its_nodes_at_once() {
    let vg = Vg::make(&[64 * MIB]);
    for (name, kind) in [("a-b", VolumeKind::Thick), ("thin", VolumeKind::Thin)] {
        let node = vg.create(name, kind, 8 * MIB, true);
        assert!(fs::metadata(&node).unwrap().file_type().is_block_device());
        let mapper = format!("/dev/mapper/{}-{}", vg.name, name.replace('-', "--"));
        assert!(fs::symlink_metadata(&mapper).unwrap().file_type().is_block_device());
        assert_eq!(device_size(&node), 8 * MIB);
        assert!(starts_with(&node, 0, 8 << 20), "a new volume does not read as zeros");
        let report = vg.report();
        let reported = report.volume(name).unwrap();
        assert!(reported.node.active && !reported.node.open && reported.attributes.active);
        vg.ask(Request::Deactivate { names: Some(vec![name.into()]) });
        assert!(!node.exists() && !Path::new(&mapper).exists());
        // E3
        assert_eq!(bound(&vg), 0);
        assert_eq!(fs::read_dir(paths::group_dir(&vg.name).join("volumes")).unwrap().count(), 0);
    }
    assert!(!Path::new("/dev").join(&vg.name).exists());
}

pub fn create_refusal(vg: &Vg, name: &str, size: u64) -> (ErrorKind, String) {
    let spec = rowen_control::protocol::VolumeSpec {
        name: name.into(),
        uuid: uuids::fresh(),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: size / 4096,
        sector: 512,
        chunk_blocks: 16,
        full: rowen_control::protocol::FullPolicy::Fail,
        attributes: Default::default(),
    };
    vg.refusal(Request::CreateVolume { spec, activate: true, on: Vec::new() })
}

fn names_that_are_taken_or_unknown_are_refused() {
    let vg = Vg::make(&[64 * MIB]);
    vg.create("lv", VolumeKind::Thin, 8 * MIB, false);
    let (kind, message) = create_refusal(&vg, "lv", 4 * MIB);
    assert_eq!(
        (kind, message),
        (ErrorKind::Exists, format!("Logical Volume \"lv\" already exists in volume group \"{}\"", vg.name))
    );
    for name in ["../evil", "a/b", ".", "..", "", "-x", "a b", "a\nb"] {
        let (kind, message) = create_refusal(&vg, name, 4 * MIB);
        assert_eq!(kind, ErrorKind::Invalid, "{name:?}: {message}");
        let (kind, message) = vg.refusal(Request::Rename { from: "lv".into(), to: name.into() });
        assert_eq!(kind, ErrorKind::Invalid, "{name:?}: {message}");
    }
    let unknown = format!("Failed to find logical volume \"{}/nope\"", vg.name);
    let nope = || "nope".to_owned();
    for request in [
        Request::Remove { names: vec![nope()] },
        Request::Activate { names: Some(vec![nope()]), ignore_skip: false, auto: false, partial: false },
        Request::Resize { name: nope(), blocks: MIB_BLOCKS, force: false, on: Vec::new(), seen: None },
        Request::Rename { from: nope(), to: "other".into() },
        Request::Merge { snapshot: nope() },
        Request::Snapshot { specs: vec![snapshot("nope", "s", None)], freeze: true },
    ] {
        assert_eq!(vg.refusal(request), (ErrorKind::NotFound, unknown.clone()));
    }
    let (kind, _) = vg.refusal(Request::Merge { snapshot: "lv".into() });
    assert_eq!(kind, ErrorKind::Invalid);
    assert_eq!(vg.names(), ["lv"]);
}

fn what_does_not_fit_is_refused() {
    let vg = Vg::make(&[64 * MIB]);
    let (kind, message) = create_refusal(&vg, "big", 1 << 30);
    assert_eq!(kind, ErrorKind::NoSpace);
    assert!(message.starts_with("Insufficient free space: "), "{message}");
    for size in [u64::MAX / 4096 * 4096, 0] {
        let (_, message) = create_refusal(&vg, "odd", size);
        assert!(message.lines().count() == 1, "{message}");
    }
    assert!(vg.names().is_empty());
}

fn a_node_that_cannot_be_made_takes_the_volume_back() {
    let vg = Vg::make(&[64 * MIB]);
    let mapper = format!("/dev/mapper/{}-lv", vg.name);
    fs::create_dir_all("/dev/mapper").unwrap();
    fs::write(&mapper, "somebody else's").unwrap();
    let (kind, message) = create_refusal(&vg, "lv", 8 * MIB);
    assert_eq!(fs::read_to_string(&mapper).unwrap(), "somebody else's");
    fs::remove_file(&mapper).unwrap();
    assert!(kind == ErrorKind::Exists && message.contains(&mapper), "{message}");
    assert!(vg.names().is_empty());
    vg.create("lv", VolumeKind::Thick, 8 * MIB, true);
}

fn a_mounted_volume_is_not_removed() {
    let vg = Vg::make(&[128 * MIB]);
    let mounted = Mounted::ext4(&vg.create("lv", VolumeKind::Thick, 32 * MIB, true));
    let sentence = format!("Logical volume {}/lv contains a filesystem in use.", vg.name);
    let named = || Some(vec!["lv".to_owned()]);
    assert_eq!(vg.refusal(Request::Remove { names: vec!["lv".into()] }), (ErrorKind::InUse, sentence.clone()));
    assert_eq!(vg.refusal(Request::Deactivate { names: named() }), (ErrorKind::InUse, sentence.clone()));
    let (_, whole) = vg.refusal(Request::Deactivate { names: None });
    assert_eq!(
        whole,
        format!("{sentence}\nCan't deactivate volume group \"{}\" with 1 open logical volume(s)", vg.name)
    );
    assert_eq!(vg.refusal(Request::Destroy { force: true }), (ErrorKind::InUse, sentence.clone()));
    assert_eq!(vg.refusal(Request::Stop), (ErrorKind::InUse, sentence));
    assert_eq!(
        vg.refusal(Request::Resize {
            name: "lv".into(),
            blocks: 16 * MIB_BLOCKS,
            force: false,
            on: Vec::new(),
            seen: None
        })
        .0,
        ErrorKind::InUse
    );
    fs::write(mounted.point.join("alive"), "yes").unwrap();
    assert!(vg.report().volume("lv").unwrap().node.open);
    drop(mounted);
    vg.ask(Request::Remove { names: vec!["lv".into()] });
    assert!(vg.names().is_empty() && !vg.node("lv").exists());
}

fn an_open_volume_is_not_deactivated() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 8 * MIB, true);
    let holder = File::open(&node).unwrap();
    let (kind, message) = vg.refusal(Request::Deactivate { names: Some(vec!["lv".into()]) });
    assert_eq!((kind, message), (ErrorKind::InUse, format!("Logical volume {}/lv in use.", vg.name)));
    assert!(vg.report().volume("lv").unwrap().node.open);
    drop(holder);
    vg.ask(Request::Deactivate { names: Some(vec!["lv".into()]) });
}

fn removal_takes_all_or_none() {
    let vg = Vg::make(&[64 * MIB]);
    let first = vg.create("first", VolumeKind::Thin, 8 * MIB, true);
    let second = vg.create("second", VolumeKind::Thin, 8 * MIB, true);
    let both = || vec!["first".to_owned(), "second".to_owned()];
    let holder = File::open(&second).unwrap();
    assert_eq!(vg.refusal(Request::Remove { names: both() }).0, ErrorKind::InUse);
    assert!(first.exists() && second.exists());
    drop(holder);
    let with_unknown = [both(), vec!["nope".to_owned()]].concat();
    assert_eq!(vg.refusal(Request::Remove { names: with_unknown }).0, ErrorKind::NotFound);
    assert_eq!(vg.names(), ["first", "second"]);
    vg.ask(Request::Remove { names: both() });
    assert!(vg.names().is_empty());
}

fn a_snapshot_of_a_mounted_filesystem_is_clean() {
    let vg = Vg::make(&[256 * MIB]);
    let mounted = Mounted::ext4(&vg.create("lv", VolumeKind::Thick, 64 * MIB, true));
    // Not synced: the freeze has to bring it out.
    fs::write(mounted.point.join("file"), vec![7; 5 << 20]).unwrap();
    let node = vg.snapshot("lv", "snap");
    fs::write(mounted.point.join("file"), vec![8; 5 << 20]).unwrap();
    run("e2fsck", &["-fn", node.to_str().unwrap()]);
    let other = Mounted::at(&node);
    assert!(fs::read(other.point.join("file")).unwrap() == vec![7; 5 << 20]);
    assert!(fs::read(mounted.point.join("file")).unwrap() == vec![8; 5 << 20]);
}

fn a_group_snapshot_is_one_moment() {
    let vg = Vg::make(&[256 * MIB]);
    let nodes = ["a", "b"].map(|name| vg.create(name, VolumeKind::Thin, 16 * MIB, true));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let devices = nodes.each_ref().map(|node| {
                let options = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::DSYNC;
                File::from(rustix::fs::open(node, options, rustix::fs::Mode::empty()).unwrap())
            });
            let mut turn = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                turn += 1;
                // The second never runs ahead of the first.
                devices[0].write_all_at(&turn.to_le_bytes().repeat(512), 0).unwrap();
                devices[1].write_all_at(&turn.to_le_bytes().repeat(512), 0).unwrap();
            }
            turn
        });
        for round in 0..5 {
            let specs = ["a", "b"].map(|origin| snapshot(origin, &format!("{origin}{round}"), None)).to_vec();
            vg.ask(Request::Snapshot { specs, freeze: true });
            let turn = |name: String| {
                let mut bytes = [0; 8];
                File::open(vg.node(&name)).unwrap().read_exact_at(&mut bytes, 0).unwrap();
                u64::from_le_bytes(bytes)
            };
            let (first, second) = (turn(format!("a{round}")), turn(format!("b{round}")));
            assert!(first == second || first == second + 1, "a is at {first}, b at {second}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
    });
}

fn processes_are_looked_through_once_and_not_in_vain() {
    const MANY: usize = 12;
    let vg = Vg::make(&[256 * MIB]);
    let passes = || {
        let told = |log: &str| log.matches("passes_over_processes=").count();
        let before = told(&vg.log());
        vg.signal_server(Signal::USR1);
        wait_for("the counters in the log", || told(&vg.log()) > before && vg.log().ends_with('\n'));
        let log = vg.log();
        let (_, last) = log.rsplit_once("passes_over_processes=").unwrap();
        last.trim().parse::<u64>().unwrap()
    };
    let origins: Vec<String> = (0..MANY).map(|n| format!("o{n}")).collect();
    for name in &origins {
        vg.create(name, VolumeKind::Thin, 8 * MIB, true);
    }
    let start = passes();
    let ask = |request: Request, expected: u64| {
        let before = passes();
        vg.ask(request.clone());
        assert_eq!(passes() - before, expected, "{request:?}");
    };
    ask(Request::Report { with_use: false }, 0);
    ask(Request::ReportOf { volumes: origins.clone(), with_members: true, with_use: false }, 0);
    ask(Request::Report { with_use: true }, 1);
    ask(Request::ReportOf { volumes: origins[..1].to_vec(), with_members: true, with_use: true }, 1);
    // A helper process looks for what is to be frozen.
    let specs = origins.iter().map(|origin| snapshot(origin, &format!("s{origin}"), None)).collect();
    ask(Request::Snapshot { specs, freeze: true }, 0);
    ask(Request::Deactivate { names: Some(vec!["so0".into(), "so1".into()]) }, 1);
    // Of devices of which one is open, that one is asked again, whether it stays.
    let mounted = Mounted::ext4(&vg.node("o3"));
    let (kind, message) = vg.refusal(Request::Deactivate { names: Some(origins.clone()) });
    assert_eq!(kind, ErrorKind::InUse, "{message}");
    assert!(origins.iter().all(|name| vg.node(name).exists()), "all or none");
    drop(mounted);
    ask(Request::Deactivate { names: Some(origins.clone()) }, 1);
    assert!(origins.iter().all(|name| !vg.node(name).exists()));
    assert!(passes() - start < 20, "not one for each of {MANY} volumes");
}

fn reserved_snapshots_follow_their_origin() {
    let vg = Vg::make(&[128 * MIB]);
    let origin = vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    write(&origin, 9, 0, 16 << 20);
    vg.snapshot("lv", "free");
    vg.ask(Request::Snapshot { specs: vec![snapshot("lv", "cow", Some(8 * MIB_BLOCKS))], freeze: true });
    let (cow, free) = (vg.node("cow"), vg.node("free"));
    assert!(cow.exists() && free.exists());
    vg.ask(Request::Deactivate { names: Some(vec!["lv".into()]) });
    assert!(!origin.exists() && !cow.exists() && free.exists());
    vg.ask(Request::Activate { names: Some(vec!["cow".into()]), ignore_skip: false, auto: false, partial: false });
    assert!(origin.exists() && cow.exists());
    // A snapshot of the snapshot goes with both.
    vg.ask(Request::Snapshot { specs: vec![snapshot("cow", "deep", Some(8 * MIB_BLOCKS))], freeze: true });
    let deep = vg.node("deep");
    assert!(deep.exists());
    vg.ask(Request::Deactivate { names: Some(vec!["lv".into()]) });
    assert!(!origin.exists() && !cow.exists() && !deep.exists());
    vg.ask(Request::Activate { names: Some(vec!["lv".into()]), ignore_skip: false, auto: false, partial: false });
    assert!(origin.exists() && cow.exists() && deep.exists());
    vg.ask(Request::Remove { names: vec!["deep".into()] });
    // The reserve runs out: the snapshot is invalid, the origin goes on.
    write(&origin, 1, 0, 12 << 20);
    let is_invalid = || vg.report().volume("cow").unwrap().state == rowen_control::protocol::VolumeState::Invalid;
    wait_for("the snapshot's end", is_invalid);
    write(&origin, 2, 0, 1 << 20);
    assert!(starts_with(&origin, 2, 1 << 20));
    vg.ask(Request::Remove { names: vec!["cow".into()] });
}

fn activation_minds_its_marks() {
    let vg = Vg::make(&[64 * MIB]);
    let skipped = vg.create("skipped", VolumeKind::Thin, 8 * MIB, false);
    let auto = vg.create("auto", VolumeKind::Thin, 8 * MIB, false);
    let pool = vg.create("pool", VolumeKind::Thin, 8 * MIB, false);
    let change = |change| change;
    let set = |name: &str, change: AttributeChange| vg.ask(Request::SetAttributes { name: name.into(), change });
    set("skipped", change(AttributeChange { skip_activation: Some(true), ..Default::default() }));
    set("auto", change(AttributeChange { autoactivate: Some(true), add_tags: vec!["t".into()], ..Default::default() }));
    set("pool", change(AttributeChange { pool: Some("pool".into()), ..Default::default() }));
    let activate = |names: Option<&str>, ignore_skip, auto| {
        let names = names.map(|name| vec![name.to_owned()]);
        vg.ask(Request::Activate { names, ignore_skip, auto, partial: false });
    };
    activate(None, false, true);
    assert!(auto.exists() && !skipped.exists() && !pool.exists());
    // Silently: that is how LVM's clients know it.
    activate(Some("skipped"), false, false);
    assert!(!skipped.exists());
    activate(Some("skipped"), true, false);
    assert!(skipped.exists());
    activate(None, true, false);
    assert!(!pool.exists());
    assert_eq!(vg.report().volume("auto").unwrap().attributes.tags, ["t"]);
}

fn merge_and_revert_replace_the_contents() {
    let vg = Vg::make(&[128 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    write(&node, 1, 0, 1 << 20);
    vg.snapshot("lv", "one");
    write(&node, 2, 0, 1 << 20);
    vg.snapshot("lv", "two");
    write(&node, 3, 0, 1 << 20);
    assert!(starts_with(&node, 3, 1 << 20));
    let holder = File::open(&node).unwrap();
    let (kind, message) = vg.refusal(Request::Revert { target: "lv".into(), source: "one".into() });
    assert!(kind == ErrorKind::InUse && message.contains("cannot be replaced while it is in use"), "{message}");
    drop(holder);
    vg.ask(Request::Revert { target: "lv".into(), source: "one".into() });
    assert!(starts_with(&node, 1, 1 << 20) && starts_with(&vg.node("two"), 2, 1 << 20));
    vg.ask(Request::Merge { snapshot: "two".into() });
    assert!(starts_with(&node, 2, 1 << 20) && starts_with(&vg.node("one"), 1, 1 << 20));
    assert!(!vg.node("two").exists());
    assert_eq!(vg.names(), ["lv", "one"]);
}

fn activate(vg: &Vg, name: &str) {
    vg.ask(Request::Activate { names: Some(vec![name.into()]), ignore_skip: false, auto: false, partial: false });
}

fn deactivate(vg: &Vg, name: &str) {
    vg.ask(Request::Deactivate { names: Some(vec![name.into()]) });
}

fn is_waiting(vg: &Vg, name: &str) -> bool {
    vg.report().volume(name).unwrap().is_waiting_to_merge()
}

fn a_merge_waits_for_the_next_activation() {
    let vg = Vg::make(&[192 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 32 * MIB, true);
    let merge = |snapshot: &str| Request::Merge { snapshot: snapshot.into() };
    let before = Mounted::ext4(&node);
    fs::write(before.point.join("file"), "as it was").unwrap();
    vg.ask(Request::Snapshot { specs: vec![snapshot("lv", "one", Some(16 * MIB_BLOCKS))], freeze: true });
    vg.snapshot("lv", "two");
    fs::write(before.point.join("file"), "changed").unwrap();
    assert_eq!(vg.ask(merge("one")), Outcome::MergeWaits { is_origin_open: true });
    assert!(is_waiting(&vg, "one") && !is_waiting(&vg, "two"));
    // Of a volume that waits for one, no other snapshot is merged; and the one does not go by itself.
    let (kind, message) = vg.refusal(merge("two"));
    assert!(kind == ErrorKind::Exists && message.contains("with merging snapshot"), "{message}");
    assert_eq!(vg.refusal(Request::Remove { names: vec!["one".into()] }).0, ErrorKind::InUse);
    // A server that dies forgets nothing, and does nothing of it while the volume is in use.
    vg.signal_server(rustix::process::Signal::KILL);
    assert_eq!(fs::read_to_string(before.point.join("file")).unwrap(), "changed");
    assert!(is_waiting(&vg, "one"));
    // Activating what is active is no activation.
    activate(&vg, "lv");
    assert!(is_waiting(&vg, "one"));
    drop(before);
    deactivate(&vg, "lv");
    vg.signal_server(rustix::process::Signal::KILL);
    assert!(is_waiting(&vg, "one"));
    activate(&vg, "lv");
    assert_eq!(vg.names(), ["lv", "two"]);
    let after = Mounted::at(&node);
    assert_eq!(fs::read_to_string(after.point.join("file")).unwrap(), "as it was");
    drop(after);

    // While the snapshot is in use the origin is activated as it is, and the merge goes on waiting.
    write(&node, 7, 0, 4096);
    let snapshot = vg.node("two");
    let holder = File::open(&snapshot).unwrap();
    assert_eq!(vg.ask(merge("two")), Outcome::MergeWaits { is_origin_open: false });
    deactivate(&vg, "lv");
    activate(&vg, "lv");
    assert!(is_waiting(&vg, "two") && starts_with(&node, 7, 4096));
    drop(holder);
    // Asked for again, with nothing open: now.
    assert_eq!(vg.ask(merge("two")), Outcome::Ok);
    assert!(!starts_with(&node, 7, 4096) && !snapshot.exists());
    assert_eq!(vg.names(), ["lv"]);
}

fn a_waiting_merge_goes_with_its_origin() {
    let vg = Vg::make(&[128 * MIB]);
    for (origin, together) in [("lv", false), ("other", true)] {
        let node = vg.create(origin, VolumeKind::Thick, 16 * MIB, true);
        let name = format!("{origin}-snap");
        write(&node, 1, 0, 4096);
        vg.snapshot(origin, &name);
        let holder = File::open(&node).unwrap();
        vg.ask(Request::Merge { snapshot: name.clone() });
        drop(holder);
        assert!(is_waiting(&vg, &name));
        let mut names = vec![origin.to_owned()];
        names.extend(together.then(|| name.clone()));
        vg.ask(Request::Remove { names });
        let left = vg.report().volume(&name).map(|volume| volume.attributes.merging);
        assert_eq!(left, if together { None } else { Some(false) });
    }
}

fn devices_follow_a_resize() {
    let vg = Vg::make(&[128 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let resize = |mib: u64, force| Request::Resize {
        name: "lv".into(),
        blocks: mib * MIB_BLOCKS,
        force,
        on: Vec::new(),
        seen: None,
    };
    vg.ask(resize(32, false));
    assert_eq!(device_size(&node), 32 * MIB);
    write(&node, 5, 20 << 20, 1 << 20);
    vg.ask(resize(16, false));
    assert_eq!(device_size(&node), 16 * MIB);
    vg.ask(resize(32, false));
    let mut beyond = vec![1; 1 << 20];
    File::open(&node).unwrap().read_exact_at(&mut beyond, 20 << 20).unwrap();
    assert!(beyond.iter().all(|byte| *byte == 0), "what was cut off shows again");
    assert_eq!(vg.refusal(resize(4096, false)).0, ErrorKind::NoSpace);
    assert_eq!(device_size(&node), 32 * MIB);
    // From a size that it has no more, it gets none.
    let seen_at = |seen: u64| Request::Resize {
        name: "lv".into(),
        blocks: 48 * MIB_BLOCKS,
        force: false,
        on: Vec::new(),
        seen: Some(seen * MIB_BLOCKS),
    };
    assert_eq!(vg.refusal(seen_at(16)).0, ErrorKind::Changed);
    assert_eq!(device_size(&node), 32 * MIB);
    vg.ask(seen_at(32));
    assert_eq!(device_size(&node), 48 * MIB);
}

fn a_mounted_volume_is_renamed() {
    let vg = Vg::make(&[128 * MIB]);
    let old = vg.create("old", VolumeKind::Thick, 32 * MIB, true);
    vg.create("taken", VolumeKind::Thin, 8 * MIB, false);
    let mounted = Mounted::ext4(&old);
    vg.ask(Request::Rename { from: "old".into(), to: "new-name".into() });
    fs::write(mounted.point.join("file"), "still here").unwrap();
    assert!(!old.exists() && vg.node("new-name").exists());
    assert_eq!(vg.refusal(Request::Rename { from: "new-name".into(), to: "taken".into() }).0, ErrorKind::Exists);
    // A successor finds it under the new name.
    vg.signal_server(rustix::process::Signal::KILL);
    fs::write(mounted.point.join("file2"), "still here").unwrap();
    File::open(mounted.point.join("file2")).unwrap().sync_all().unwrap();
    assert!(vg.report().volume("new-name").unwrap().node.open);
}

fn permissions_reach_the_device() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 8 * MIB, true);
    write(&node, 1, 0, 4096);
    vg.ask(Request::SetPermission { name: "lv".into(), read_only: true });
    assert!(vg.report().volume("lv").unwrap().read_only);
    let refused = File::options().write(true).open(&node).and_then(|device| {
        device.write_all_at(&[2; 4096], 0)?;
        device.sync_all()
    });
    assert!(refused.is_err(), "a read-only device was written");
    vg.ask(Request::SetPermission { name: "lv".into(), read_only: false });
    write(&node, 3, 0, 4096);
    assert!(starts_with(&node, 3, 4096));
}

fn commands_are_quick() {
    let vg = Vg::make(&[256 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 64 * MIB, true);
    write(&node, 1, 0, 8 << 20);
    let mut took: Vec<u128> = (0..15)
        .map(|round| {
            let begun = Instant::now();
            vg.snapshot("lv", &format!("s{round}"));
            begun.elapsed().as_micros()
        })
        .collect();
    took.sort_unstable();
    println!("  snapshot with its node, request to answer: median {} us, slowest {} us", took[7], took[14]);
    assert!(took[7] < 100_000, "the median snapshot took {} us", took[7]);
    let begun = Instant::now();
    vg.report();
    println!("  report of 16 active volumes: {} us", begun.elapsed().as_micros());
}

fn concurrent_commands_are_all_done() {
    let vg = Vg::make(&[256 * MIB]);
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let vg = &vg;
            scope.spawn(move || {
                for round in 0..3 {
                    let name = format!("w{worker}r{round}");
                    let node = vg.create(&name, VolumeKind::Thin, 8 * MIB, true);
                    write(&node, worker as u8, 0, 64 << 10);
                    vg.snapshot(&name, &format!("{name}s"));
                    vg.ask(Request::Remove { names: vec![name.clone()] });
                    assert!(starts_with(&vg.node(&format!("{name}s")), worker as u8, 64 << 10));
                }
            });
        }
    });
    assert_eq!(vg.names().len(), 18);
    let Outcome::Check(check) = vg.ask(Request::Check) else { panic!("no check") };
    assert_eq!(check.findings, Vec::<String>::new());
}

fn missing_names_are_made_again() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    fs::remove_file(&node).unwrap();
    fs::remove_dir(node.parent().unwrap()).unwrap();
    fs::remove_file(format!("/dev/mapper/{}-lv", vg.name)).unwrap();
    vg.ask(Request::MakeNodes);
    assert!(fs::metadata(&node).unwrap().file_type().is_block_device());
}

/// H7: the helper that made it has nobody to tell, and nobody follows who would find it.
fn a_device_that_was_made_for_nobody_goes() {
    let vg = Vg::make(&[64 * MIB]);
    vg.create("other", VolumeKind::Thin, 8 * MIB, false);
    let pause = Pause::at("attached");
    let group = vg.name.clone();
    let command = std::thread::spawn(move || {
        let mut client = server::ensure_running(&group).unwrap();
        client.ask(&Request::Activate { names: None, ignore_skip: false, auto: false, partial: false }, &mut |_| {})
    });
    let helper = pause.wait();
    assert_eq!(bound(&vg), 1);
    kill_both(&vg);
    drop(pause);
    wait_for("the helper's end", || !lives(helper));
    wait_for("the device's end", || bound(&vg) == 0);
    assert!(matches!(command.join().unwrap(), Outcome::Error { .. }));
}
