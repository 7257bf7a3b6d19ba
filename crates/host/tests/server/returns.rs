//! A disk that is pulled and comes back: a volume of another group whose server and keeper are killed, and start again.
//!
//! Rules RT1, RT2, RT3, RT4 and RT5.

use crate::life::serve_with;
use crate::world::{MIB, Mounted, Vg, direct, file, page, run, wait_for, within};
use crate::{Test, planted};
use rowen_control::protocol::{PvPart, Request, StatusReport, VolumeKind};
use rowen_host::server;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const TESTS: &[Test] = &[
    ("returns::a_disk_that_comes_back_is_taken_unasked", a_disk_that_comes_back_is_taken_unasked),
    ("returns::an_older_copy_is_not_taken", an_older_copy_is_not_taken),
    ("returns::who_may_have_lost_something_is_reported", who_may_have_lost_something_is_reported),
    (
        "returns::a_server_that_is_killed_meanwhile_leaves_what_it_knew",
        a_server_that_is_killed_meanwhile_leaves_what_it_knew,
    ),
    ("returns::what_goes_on_after_a_note_refuses_no_disk", what_goes_on_after_a_note_refuses_no_disk),
    ("returns::a_disk_that_never_left_needs_no_proof", a_disk_that_never_left_needs_no_proof),
    ("returns::a_closed_group_takes_no_older_copy", a_closed_group_takes_no_older_copy),
];

/// A group on a volume of another group, which can be pulled.
struct Pair {
    above: Vg,
    below: Vg,
}

impl Pair {
    fn make() -> Pair {
        let below = Vg::make(&[160 * MIB]);
        let disk = below.create("disk", VolumeKind::Thick, 128 * MIB, true);
        Pair { above: Vg::over(&disk), below }
    }

    /// The server has seen that the disk is away.
    fn is_away(&self) -> bool {
        self.above.status().is_some_and(|status| status.disk_wait.is_some_and(|wait| wait.what.ends_with("is away")))
    }

    fn is_refused(&self) -> bool {
        self.above.status().is_some_and(|status| status.disk_wait.is_some_and(|wait| wait.what.contains("older copy")))
    }

    /// Another server than this one serves the group, and nothing is wrong.
    fn goes_on_after(&self, dead: i32) -> bool {
        let is_well = |status: StatusReport| status.stopped.is_none() && status.disk_wait.is_none();
        self.above.status().is_some_and(is_well) && self.above.server() != dead
    }
}

fn fails(device: &File) -> bool {
    device.read_exact_at(page(0).as_mut_slice(), 4096).is_err()
}

fn a_disk_that_comes_back_is_taken_unasked() {
    let pair = Pair::make();
    let node = pair.above.create("lv", VolumeKind::Thick, 32 * MIB, true);
    let mounted = Mounted::ext4(&node);
    let kept = mounted.point.join("kept");
    fs::write(&kept, "hello").unwrap();
    run("sync", &["-f", kept.to_str().unwrap()]);
    let dead = pair.above.server();
    pair.below.pull();
    let lost = mounted.point.join("lost");
    let failed = fs::write(&lost, "x").and_then(|()| File::open(&lost)?.sync_all());
    failed.unwrap_err();
    wait_for("the disk's absence", || pair.is_away());
    // A look in between changes nothing.
    assert_eq!(pair.above.server(), dead);
    pair.below.plug();
    wait_for("a successor", || pair.goes_on_after(dead));
    // ext4 has stopped at the error; mounted again it has all that was flushed.
    drop(mounted);
    within(60, "e2fsck", &["-fy", node.to_str().unwrap()]);
    let mounted = Mounted::at(&node);
    assert_eq!(fs::read_to_string(mounted.point.join("kept")).unwrap(), "hello");
    fs::write(mounted.point.join("new"), "new").unwrap();
    run("sync", &["-f", mounted.point.to_str().unwrap()]);
    let log = pair.above.log();
    assert!(log.contains("goes on by itself when it is attached again") && log.contains("as they were left"), "{log}");
    drop(mounted);
    drop(pair.above);
}

fn copy(from: &Path, to: &Path) {
    run("cp", &["--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()]);
}

/// A volume with a second page that was written twice, its disk pulled and missed; images of the disk before the second time and after.
fn pulled_with_an_older_copy(pair: &Pair) -> (File, PathBuf, PathBuf) {
    let device = direct(&pair.above.create("lv", VolumeKind::Thick, 32 * MIB, true));
    let write = |byte| device.write_all_at(page(byte).as_slice(), 4096).and_then(|()| device.sync_data()).unwrap();
    write(1);
    let image = &pair.below.files[0];
    let (old, newest) = (image.with_extension("old"), image.with_extension("newest"));
    // While the group is open, and with no superblock in between: nothing but its contents is older.
    copy(image, &old);
    write(2);
    pair.below.pull();
    copy(image, &newest);
    assert!(fails(&device));
    (device, old, newest)
}

fn an_older_copy_is_not_taken() {
    let pair = Pair::make();
    let (device, old, newest) = pulled_with_an_older_copy(&pair);
    let (image, dead) = (&pair.below.files[0], pair.above.server());
    wait_for("the disk's absence", || pair.is_away());
    copy(&old, image);
    pair.below.plug();
    wait_for("a refusal", || pair.is_refused());
    assert_eq!(pair.above.server(), dead);
    // Nor by the successor of a killed server.
    pair.above.signal_server(rustix::process::Signal::KILL);
    wait_for("a refusal by a successor", || pair.above.log().contains("is not as its server left it"));
    assert!(pair.above.status().is_none());
    pair.below.pull();
    copy(&newest, image);
    pair.below.plug();
    wait_for("a successor", || pair.goes_on_after(dead));
    let mut found = page(0);
    device.read_exact_at(found.as_mut_slice(), 4096).unwrap();
    assert_eq!(found.as_slice()[0], 2);
    drop(device);
    for file in [old, newest] {
        fs::remove_file(file).unwrap();
    }
    drop(pair.above);
}

/// What was acknowledged and not flushed may be lost: the next flush says so, once, to those whom it concerns.
fn who_may_have_lost_something_is_reported() {
    let pair = Pair::make();
    let nodes = ["one", "two"].map(|name| pair.above.create(name, VolumeKind::Thick, 16 * MIB, true));
    let [one, two] = nodes.map(|node| direct(&node));
    for device in [&one, &two] {
        device.write_all_at(page(1).as_slice(), 4096).and_then(|()| device.sync_data()).unwrap();
    }
    one.write_all_at(page(2).as_slice(), 4096).unwrap();
    let dead = pair.above.server();
    pair.below.pull();
    assert!(fails(&two));
    wait_for("the disk's absence", || pair.is_away());
    pair.below.plug();
    wait_for("a successor", || pair.goes_on_after(dead));
    two.sync_data().unwrap();
    let told = one.sync_data().map_err(|e: io::Error| e.raw_os_error());
    assert_eq!(told, Err(Some(libc::EIO)));
    one.sync_data().unwrap();
    drop((one, two));
    drop(pair.above);
}

fn a_server_that_is_killed_meanwhile_leaves_what_it_knew() {
    let pair = Pair::make();
    let node = pair.above.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let device = direct(&node);
    device.write_all_at(page(1).as_slice(), 4096).and_then(|()| device.sync_data()).unwrap();
    let dead = pair.above.server();
    pair.below.pull();
    assert!(fails(&device));
    wait_for("a note", || rowen_host::paths::group_dir(&pair.above.name).join("left").exists());
    pair.above.signal_server(rustix::process::Signal::KILL);
    pair.below.plug();
    wait_for("a successor", || pair.goes_on_after(dead));
    // Nobody knows what that one had acknowledged: its users get an error, once.
    assert!(device.sync_data().is_err());
    device.sync_data().unwrap();
    assert!(!rowen_host::paths::group_dir(&pair.above.name).join("left").exists());
    drop(device);
    drop(pair.above);
}

/// RT5: a group of two disks of which one is pulled, and only read. The other one is written on, after the note. The server does not
/// try the disk (LD3), as one that has just tried it.
fn what_goes_on_after_a_note_refuses_no_disk() {
    let below = Vg::make(&[160 * MIB]);
    let disk = below.create("disk", VolumeKind::Thick, 128 * MIB, true);
    let pair = Pair { above: Vg::on(&[file(128 * MIB), disk.clone()]), below };
    let bugs = std::env::var(planted::VARIABLE).unwrap_or_default() + ",doubt_ignored";
    let mut server = serve_with(&pair.above, &[(planted::VARIABLE, &bugs)]);
    // With a copy of the journal on the disk that goes, the group would stop at its next record.
    pair.above.ask(Request::SetJournalCopies { copies: 1 });
    let on = |path: &Path| PvPart { path: path.display().to_string(), first_extent: 0, extents: 8 };
    let (stays, goes) =
        (pair.above.create_on("stays", 16 * MIB, Vec::new()), pair.above.create_on("goes", 16 * MIB, vec![on(&disk)]));
    let [stays, goes] = [stays, goes].map(|node| direct(&node));
    let write = |device: &File, byte| {
        device.write_all_at(page(byte).as_slice(), 4096).and_then(|()| device.sync_data()).unwrap();
    };
    write(&goes, 1);
    // The last that is flushed before the note, and written again after it.
    write(&stays, 1);
    let dead = pair.above.server();
    pair.below.pull();
    assert!(fails(&goes));
    let directory = rowen_host::paths::group_dir(&pair.above.name);
    wait_for("a note", || pair.is_away() && directory.join("left").exists());
    (2..9).for_each(|byte| write(&stays, byte));
    assert!(pair.above.status().is_some_and(|status| status.stopped.is_none()), "it goes on");
    // The main loop has looked around.
    std::thread::sleep(Duration::from_secs(6));
    assert!(directory.join("owed").exists(), "nobody is told of what the disk may have lost");
    pair.above.signal_server(rustix::process::Signal::KILL);
    pair.below.plug();
    wait_for("a successor", || pair.goes_on_after(dead));
    let mut found = page(0);
    stays.read_exact_at(found.as_mut_slice(), 4096).unwrap();
    assert_eq!(found.as_slice()[0], 8);
    assert!(goes.sync_data().is_err(), "its users are told, once");
    goes.sync_data().unwrap();
    server.wait().unwrap();
    drop((stays, goes));
    drop(pair.above);
}

/// RT1, also if the server was asked to end while its disk was away.
fn a_closed_group_takes_no_older_copy() {
    let pair = Pair::make();
    let (device, old, newest) = pulled_with_an_older_copy(&pair);
    let (image, dead) = (&pair.below.files[0], pair.above.server());
    drop(device);
    pair.above.ask(Request::Stop);
    wait_for("the server's end", || !crate::world::lives(dead));
    copy(&old, image);
    pair.below.plug();
    let refusal = server::ensure_running(&pair.above.name).map(drop).unwrap_err().to_string();
    assert!(refusal.contains("is not as its server left it"), "{refusal}");
    pair.below.pull();
    copy(&newest, image);
    pair.below.plug();
    assert_eq!(pair.above.report().volumes.len(), 1);
    for file in [old, newest] {
        fs::remove_file(file).unwrap();
    }
    drop(pair.above);
}

/// RT1: of the disk that stays, all that was flushed last is being overwritten when the other one is pulled.
fn a_disk_that_never_left_needs_no_proof() {
    let below = Vg::make(&[160 * MIB]);
    let disk = below.create("disk", VolumeKind::Thick, 128 * MIB, true);
    let second = file(128 * MIB);
    let pair = Pair { above: Vg::on(&[disk, second.clone()]), below };
    // With a copy of the journal on each disk, the group would continue without the one that goes.
    pair.above.ask(Request::SetJournalCopies { copies: 1 });
    let on = PvPart { path: second.display().to_string(), first_extent: 0, extents: 8 };
    let stays = direct(&pair.above.create_on("stays", 16 * MIB, vec![on]));
    for byte in [1, 2] {
        stays.write_all_at(page(byte).as_slice(), 4096).and_then(|()| stays.sync_data()).unwrap();
    }
    // In place, without a flush.
    stays.write_all_at(page(3).as_slice(), 4096).unwrap();
    let dead = pair.above.server();
    pair.below.pull();
    // The journal is on the other one. Nothing is flushed to this one any more.
    stays.write_all_at(page(4).as_slice(), 1 << 20).unwrap_err();
    wait_for("the disk's absence", || pair.is_away());
    pair.below.plug();
    wait_for("a successor", || pair.goes_on_after(dead));
    let mut found = page(0);
    stays.read_exact_at(found.as_mut_slice(), 4096).unwrap();
    assert_eq!(found.as_slice()[0], 3);
    drop(stays);
    drop(pair.above);
}
