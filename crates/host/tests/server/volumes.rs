//! What commands ask a server for, down to the block devices.

use super::Test;
use super::world::{MIB, MIB_BLOCKS, Mounted, Vg, die_at, file, run, snapshot, wait_for};
use rowen_control::protocol::{
    AttributeChange, ErrorKind, GroupChange, Outcome, PvPart, Request, VolumeKind, VolumeState,
};
use rowen_control::uuids;
use rowen_host::devices::{self, Consent};
use rowen_host::server;
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
    ("volumes::tags_and_marks_of_a_group_outlive_its_server", tags_and_marks_of_a_group_outlive_its_server),
    ("volumes::a_group_is_renamed_while_it_is_used", a_group_is_renamed_while_it_is_used),
    ("volumes::a_rename_that_is_killed_is_finished", a_rename_that_is_killed_is_finished),
    ("volumes::a_rename_without_a_keeper_is_finished_by_a_command", a_rename_without_a_keeper_is_finished_by_a_command),
    ("volumes::a_physical_volume_leaves_and_another_grows", a_physical_volume_leaves_and_another_grows),
    ("volumes::any_physical_volume_leaves_while_the_group_is_used", any_physical_volume_leaves_while_the_group_is_used),
    ("volumes::space_is_taken_where_it_is_named_and_allowed", space_is_taken_where_it_is_named_and_allowed),
    ("volumes::limits_of_a_group_are_kept", limits_of_a_group_are_kept),
    ("volumes::missing_names_are_made_again", missing_names_are_made_again),
    ("volumes::permissions_reach_the_device", permissions_reach_the_device),
    ("volumes::a_running_group_grows", a_running_group_grows),
    ("volumes::a_filling_group_warns", a_filling_group_warns),
    ("volumes::commands_are_quick", commands_are_quick),
    ("volumes::processes_are_looked_through_once_and_not_in_vain", processes_are_looked_through_once_and_not_in_vain),
    ("volumes::concurrent_commands_are_all_done", concurrent_commands_are_all_done),
];

fn device_size(node: &Path) -> u64 {
    let text = run("blockdev", &["--getsize64", node.to_str().unwrap()]).stdout;
    String::from_utf8_lossy(&text).trim().parse().unwrap()
}

fn write(node: &Path, byte: u8, offset: u64, len: usize) {
    let device = File::options().write(true).open(node).unwrap();
    device.write_all_at(&vec![byte; len], offset).unwrap();
    device.sync_all().unwrap();
}

fn starts_with(node: &Path, byte: u8, len: usize) -> bool {
    let mut buf = vec![!byte; len];
    File::open(node).unwrap().read_exact_at(&mut buf, 0).unwrap();
    buf.iter().all(|found| *found == byte)
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
    }
    assert!(!Path::new("/dev").join(&vg.name).exists());
}

fn create_refusal(vg: &Vg, name: &str, size: u64) -> (ErrorKind, String) {
    let spec = rowen_control::protocol::VolumeSpec {
        name: name.into(),
        uuid: uuids::fresh(),
        kind: VolumeKind::Thick,
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
        Request::Activate { names: Some(vec![nope()]), ignore_skip: false, auto: false },
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
    vg.ask(Request::Activate { names: Some(vec!["cow".into()]), ignore_skip: false, auto: false });
    assert!(origin.exists() && cow.exists());
    // A snapshot of the snapshot goes with both.
    vg.ask(Request::Snapshot { specs: vec![snapshot("cow", "deep", Some(8 * MIB_BLOCKS))], freeze: true });
    let deep = vg.node("deep");
    assert!(deep.exists());
    vg.ask(Request::Deactivate { names: Some(vec!["lv".into()]) });
    assert!(!origin.exists() && !cow.exists() && !deep.exists());
    vg.ask(Request::Activate { names: Some(vec!["lv".into()]), ignore_skip: false, auto: false });
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
        vg.ask(Request::Activate { names, ignore_skip, auto });
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
    vg.ask(Request::Activate { names: Some(vec![name.into()]), ignore_skip: false, auto: false });
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
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false });
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
    // The main loop may have told it first, to the log.
    let told = notices.join("\n") + &vg.log();
    assert!(told.contains(&format!("WARNING: Volume group \"{}\" is ", vg.name)), "{told}");
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
    let (kind, message) = vg.refusal(Request::Activate { names: None, ignore_skip: false, auto: false });
    assert_eq!((kind, message), (ErrorKind::Denied, format!("Volume group \"{}\" is exported", vg.name)));
    change(GroupChange { exported: Some(false), ..GroupChange::default() });
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false });
}

fn rename_group(vg: &mut Vg, to: String) {
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

/// A mounted volume lies on the second physical volume, which is then told to give no more space, also when the server was
/// killed: what its snapshot needs comes from the first.
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
    // What is promised to a snapshot must be there to be taken.
    let reserve = report.allocatable_extents * 1024;
    vg.ask(Request::Snapshot { specs: vec![snapshot("lv", "kept", Some(reserve))], freeze: true });
    let (kind, message) = vg.refusal(Request::SetAllocatable { path: path(0), allocatable: false });
    assert!(kind == ErrorKind::NoSpace && message.contains("is promised to volumes"), "{message}");
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
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false });
    assert!(starts_with(&vg.node("keep"), 5, 1 << 20));
    vg.create("full", VolumeKind::Thick, vg.report().free_extents * 4 * MIB, false);
    let told = format!("{}: cannot resize to 23 extents as later ones are allocated.", path(&vg, 0));
    assert_eq!(vg.refusal(Request::ResizePv { path: path(&vg, 0), bytes: Some(96 * MIB) }), (ErrorKind::InUse, told));
    vg.ask(Request::Remove { names: vec!["full".into()] });
    let node = vg.create("more", VolumeKind::Thick, 160 * MIB, true);
    write(&node, 6, 150 << 20, 1 << 20);
    vg.ask(Request::Stop);
    assert_eq!(vg.report().extents, before + 48);
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false });
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

fn missing_names_are_made_again() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    fs::remove_file(&node).unwrap();
    fs::remove_dir(node.parent().unwrap()).unwrap();
    fs::remove_file(format!("/dev/mapper/{}-lv", vg.name)).unwrap();
    vg.ask(Request::MakeNodes);
    assert!(fs::metadata(&node).unwrap().file_type().is_block_device());
}
