//! A disk fails under a group in use, and the group goes on without it: a volume of another group whose server and keeper are killed.
//!
//! Rules LD1, LD2, LD3, MB9, CF1, RT6 and NW5.

use crate::Test;
use crate::world::{MIB, Mounted, Vg, direct, file, keeper_of, kill, lives, page, run, verifying_fio, wait_for};
use rowen_control::protocol::{ErrorKind, Outcome, PvPart, Request};
use rowen_host::server;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("lost::the_others_go_on_without_it", the_others_go_on_without_it),
    ("lost::who_may_have_lost_something_is_reported", who_may_have_lost_something_is_reported),
    ("lost::an_older_copy_is_not_taken_back", an_older_copy_is_not_taken_back),
    ("lost::one_that_is_killed_meanwhile_is_followed", one_that_is_killed_meanwhile_is_followed),
    ("lost::a_command_under_way_ends", a_command_under_way_ends),
    ("lost::a_command_in_the_pause_is_served", a_command_in_the_pause_is_served),
    ("lost::a_read_that_fails_is_enough", a_read_that_fails_is_enough),
    ("lost::what_is_needed_is_waited_for", what_is_needed_is_waited_for),
    ("lost::it_is_waited_for_if_the_settings_say_so", it_is_waited_for_if_the_settings_say_so),
    ("lost::a_file_that_is_cut_is_lost_for_good", a_file_that_is_cut_is_lost_for_good),
    ("lost::a_file_that_is_cut_is_not_accepted", a_file_that_is_cut_is_not_accepted),
    ("lost::a_user_can_go_on_without_it_under_who_uses_it", a_user_can_go_on_without_it_under_who_uses_it),
];

/// A group of a file and of a volume of another group, which can be pulled; the journal is on both.
pub struct Pair {
    // Closed before the groups are removed.
    pub stays: File,
    pub goes: File,
    pub above: Vg,
    pub below: Vg,
}

impl Pair {
    pub fn make() -> Pair {
        Pair::with_copies(2)
    }

    pub fn with_copies(copies: u8) -> Pair {
        let below = Vg::make(&[160 * MIB]);
        let disk = below.create("disk", rowen_control::protocol::VolumeKind::Thick, 128 * MIB, true);
        let kept = file(256 * MIB);
        // The one that goes is the first.
        let above = Vg::on(&[disk.clone(), kept.clone()]);
        if copies == 1 {
            above.ask(Request::SetJournalCopies { copies });
        }
        let on = |path: &Path, extents| PvPart { path: path.display().to_string(), first_extent: 0, extents };
        let goes = direct(&above.create_on("goes", 16 * MIB, vec![on(&disk, 12)]));
        let stays = direct(&above.create_on("stays", 128 * MIB, vec![on(&kept, 60)]));
        Pair { stays, goes, above, below }
    }

    /// Whether the group is served without this many disks.
    pub fn lacks(&self, count: usize) -> bool {
        lacks(&self.above, count)
    }

    fn noted(&self) -> bool {
        rowen_host::paths::group_dir(&self.above.name).join("lost").exists()
    }
}

/// Whether the group is served without this many disks.
fn lacks(vg: &Vg, count: usize) -> bool {
    let report = server::connect(&vg.name).ok().flatten();
    match report.map(|mut client| client.ask(&Request::Report { with_use: false }, &mut |_| {})) {
        Some(Outcome::Report(report)) => report.pvs.iter().filter(|pv| pv.is_missing).count() == count,
        _ => false,
    }
}

pub fn write(device: &File, byte: u8) -> io::Result<()> {
    device.write_all_at(page(byte).as_slice(), 4096)
}

pub fn holds(device: &File, byte: u8) -> bool {
    let mut found = page(0);
    device.read_exact_at(found.as_mut_slice(), 4096).is_ok() && found.as_slice().iter().all(|found| *found == byte)
}

/// No error above, and a short pause, on a volume that lies on the other disk; what lay on the disk is an error until it is back. It comes
/// back by itself.
fn the_others_go_on_without_it() {
    let pair = Pair::make();
    let Pair { above, stays, goes, .. } = &pair;
    write(goes, 1).and_then(|()| goes.sync_data()).unwrap();
    let before = above.server();
    let load = verifying_fio("stays", &above.node("stays"));
    std::thread::sleep(Duration::from_secs(1));
    pair.below.pull();
    let since = Instant::now();
    assert!(!holds(goes, 1));
    fail_a_record(above);
    wait_for("a successor", || pair.lacks(1));
    eprintln!("the group goes on without the disk after {} ms", since.elapsed().as_millis());
    assert_ne!(above.server(), before);
    assert!(!holds(goes, 1), "what is lost is an error");
    above.ask(Request::Snapshot { specs: vec![crate::world::snapshot("stays", "point", None)], freeze: true });
    std::thread::sleep(Duration::from_secs(2));
    rustix::process::kill_process(rustix::process::Pid::from_child(&load), Signal::INT).unwrap();
    let ended = load.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(!said.contains("verify:") && !said.contains("error") && !said.contains("rror="), "{said}");
    let log = above.log();
    assert!(
        log.contains("the volume group goes on without it") && log.contains("goes on without physical volume"),
        "{log}"
    );
    let server = above.server();
    pair.below.plug();
    wait_for("the disk's return", || pair.lacks(0));
    assert_eq!(above.server(), server, "no other server is needed for that");
    assert!(holds(goes, 1));
    wait_for("the note's end", || !pair.noted());
    write(goes, 3).and_then(|()| goes.sync_data()).unwrap();
    wait_for("its event", || above.log().contains("again, as it was left"));
    // Both disks have all that is needed again: now the other way round would do, too.
    assert_eq!(above.report().journal_copies_written, 2);
    write(stays, 9).and_then(|()| stays.sync_data()).unwrap();
    match above.ask(Request::Check) {
        Outcome::Check(check) => assert_eq!(check.findings, Vec::<String>::new()),
        other => panic!("{other:?}"),
    }
}

/// What was acknowledged and not flushed on the disk may be lost: the next flush says so, once, to those whom it concerns.
fn who_may_have_lost_something_is_reported() {
    let pair = Pair::make();
    let Pair { above, stays, goes, .. } = &pair;
    for device in [stays, goes] {
        write(device, 1).and_then(|()| device.sync_data()).unwrap();
    }
    let kept = above.report().pvs[1].path.clone();
    let on = PvPart { path: kept, first_extent: 0, extents: 60 };
    let mounted = Mounted::ext4(&above.create_on("other", 32 * MIB, vec![on]));
    fs::write(mounted.point.join("kept"), "kept").unwrap();
    write(stays, 2).unwrap();
    write(goes, 2).unwrap();
    pair.below.pull();
    goes.sync_data().map_err(|e| e.raw_os_error()).expect_err("its writes may be lost");
    stays.sync_data().unwrap();
    assert!(holds(stays, 2));
    wait_for("a successor", || pair.lacks(1));
    goes.sync_data().unwrap();
    wait_for("the reason", || above.log().contains("a flush of volume"));
    // A filesystem that had nothing there has noticed nothing.
    fs::write(mounted.point.join("new"), "new").unwrap();
    run("sync", &["-f", mounted.point.to_str().unwrap()]);
}

fn copy(from: &Path, to: &Path) {
    run("cp", &["--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()]);
}

/// A copy that was made while the group was open has the right superblock, and older contents.
fn an_older_copy_is_not_taken_back() {
    let pair = Pair::make();
    let Pair { above, below, stays, goes } = &pair;
    write(goes, 1).and_then(|()| goes.sync_data()).unwrap();
    let image = &below.files[0];
    let (old, newest): (PathBuf, PathBuf) = (image.with_extension("old"), image.with_extension("newest"));
    copy(image, &old);
    write(goes, 2).and_then(|()| goes.sync_data()).unwrap();
    pair.below.pull();
    copy(image, &newest);
    assert!(!holds(goes, 2));
    fail_a_record(above);
    wait_for("a successor", || pair.lacks(1));
    copy(&old, image);
    pair.below.plug();
    wait_for("a refusal", || above.log().contains("is not taken back by itself"));
    std::thread::sleep(Duration::from_secs(3));
    assert!(pair.lacks(1) && !holds(goes, 1));
    pair.below.pull();
    copy(&newest, image);
    pair.below.plug();
    wait_for("the disk's return", || pair.lacks(0));
    assert!(holds(goes, 2));
    write(stays, 2).and_then(|()| stays.sync_data()).unwrap();
    for file in [old, newest] {
        fs::remove_file(file).unwrap();
    }
}

/// A command that writes a record: the first that cannot be written to the disk.
fn fail_a_record(vg: &Vg) {
    let spec = crate::world::snapshot("stays", "first", None);
    vg.try_ask(Request::Snapshot { specs: vec![spec], freeze: false });
}

/// The successor, and the one after it, are killed, with their keeper, while the disk is away and after it is there again where it was.
fn one_that_is_killed_meanwhile_is_followed() {
    let pair = Pair::make();
    let Pair { above, stays, goes, .. } = &pair;
    write(goes, 1).and_then(|()| goes.sync_data()).unwrap();
    pair.below.pull();
    fail_a_record(above);
    wait_for("a successor", || pair.lacks(1));
    for byte in 2..5 {
        let dead = above.signal_server(Signal::KILL);
        wait_for("another successor", || pair.lacks(1) && above.server() != dead);
        write(stays, byte).and_then(|()| stays.sync_data()).unwrap();
        assert!(holds(stays, byte) && !holds(goes, 1));
    }
    pair.below.plug();
    above.signal_server(Signal::KILL);
    wait_for("the disk's return", || pair.lacks(0));
    assert!(holds(goes, 1) && holds(stays, 4));
}

/// A command that meets the disk's failure is refused with advice to retry, or the successor carries it out. It does not hang.
fn a_command_under_way_ends() {
    let pair = Pair::make();
    pair.below.pull();
    fail_a_record(&pair.above);
    wait_for("a successor", || pair.lacks(1));
    let names = pair.above.names();
    let is_there = names.contains(&"first".to_owned());
    let again = pair
        .above
        .try_ask(Request::Snapshot { specs: vec![crate::world::snapshot("stays", "first", None)], freeze: false });
    match again {
        Outcome::Error { kind, message } => assert!(is_there && kind == ErrorKind::Exists, "{message}"),
        _ => assert!(!is_there),
    }
    pair.below.plug();
    wait_for("the disk's return", || pair.lacks(0));
}

/// A command that comes when the server has noted the disk and ended, and before a successor is there.
fn a_command_in_the_pause_is_served() {
    let pair = Pair::make();
    let Pair { above, stays, goes, .. } = &pair;
    write(stays, 1).and_then(|()| stays.sync_data()).unwrap();
    // The server notifies its keeper before it ends. The keeper would start the successor.
    let (keeper, server) = (keeper_of(above), above.server());
    kill(keeper, Signal::STOP);
    pair.below.pull();
    std::thread::scope(|threads| {
        let written = threads.spawn(|| write(goes, 2).and_then(|()| goes.sync_data()));
        wait_for("the note", || pair.noted());
        for process in [server, keeper] {
            kill(process, Signal::KILL);
        }
        wait_for("both ends", || !lives(server) && !lives(keeper));
        written.join().unwrap().expect_err("nobody has the request");
    });
    above.ask(Request::Report { with_use: false });
    assert!(pair.lacks(1));
    assert!(holds(&direct(&above.node("stays")), 1));
    pair.below.plug();
    wait_for("the disk's return", || pair.lacks(0));
}

/// LD3: nothing is written to the group. A read of the disk fails, and the server tries it.
fn a_read_that_fails_is_enough() {
    let pair = Pair::make();
    let Pair { stays, goes, .. } = &pair;
    for device in [stays, goes] {
        write(device, 1).and_then(|()| device.sync_data()).unwrap();
    }
    pair.below.pull();
    assert!(!holds(goes, 1));
    wait_for("a successor", || pair.lacks(1));
    assert!(holds(stays, 1) && !holds(goes, 1));
    stays.sync_data().unwrap();
    pair.below.plug();
    wait_for("the disk's return", || pair.lacks(0));
    assert!(holds(goes, 1));
}

/// The journal is on the disk that goes, and nowhere else: the group stops, and waits for it.
fn what_is_needed_is_waited_for() {
    waits_for_the_disk(&Pair::with_copies(1));
}

/// The same for a disk without which the group could continue.
fn it_is_waited_for_if_the_settings_say_so() {
    let settings = rowen_host::paths::system_dir().join("rowen.conf");
    fs::write(&settings, "server/leave_failed_disks = 0\n").unwrap();
    let pair = std::panic::catch_unwind(Pair::make);
    fs::remove_file(&settings).unwrap();
    waits_for_the_disk(&pair.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
}

fn waits_for_the_disk(pair: &Pair) {
    let Pair { above, stays, goes, .. } = pair;
    write(goes, 1).and_then(|()| goes.sync_data()).unwrap();
    write(stays, 1).and_then(|()| stays.sync_data()).unwrap();
    let before = above.server();
    pair.below.pull();
    fail_a_record(above);
    wait_for("its absence", || pair.above.status().is_some_and(|status| status.disk_wait.is_some()));
    assert!(!pair.noted() && above.server() == before);
    pair.below.plug();
    wait_for("a successor", || pair.lacks(0) && above.server() != before);
    assert!(holds(goes, 1) && holds(stays, 1));
}

/// A group of two files, with a volume on each.
fn on_files() -> (Vg, [File; 2]) {
    let vg = Vg::make(&[128 * MIB, 128 * MIB]);
    let on = |file: &Path| vec![PvPart { path: file.display().to_string(), first_extent: 0, extents: 27 }];
    let volumes =
        [("goes", 0), ("stays", 1)].map(|(name, at)| direct(&vg.create_on(name, 64 * MIB, on(&vg.files[at]))));
    (vg, volumes)
}

/// CF1: no write makes it longer, so nothing reads as zeros that was data. When its size is restored, it does not count as the disk.
fn a_file_that_is_cut_is_lost_for_good() {
    const LEFT: u64 = 32 * MIB;
    let (vg, [goes, stays]) = on_files();
    let far = |byte| goes.write_all_at(page(byte).as_slice(), 48 * MIB);
    far(1).and_then(|()| goes.sync_data()).unwrap();
    write(&stays, 1).and_then(|()| stays.sync_data()).unwrap();
    let file = File::options().write(true).open(&vg.files[0]).unwrap();
    file.set_len(LEFT).unwrap();
    // Writes look at the size now and then.
    std::thread::sleep(Duration::from_millis(1));
    far(2).expect_err("it would make the file longer");
    assert_eq!(file.metadata().unwrap().len(), LEFT);
    wait_for("a successor", || lacks(&vg, 1));
    let mut found = page(9);
    goes.read_exact_at(found.as_mut_slice(), 48 * MIB).expect_err("it is lost");
    write(&stays, 2).and_then(|()| stays.sync_data()).unwrap();
    assert!(vg.log().contains("its file was made shorter"), "{}", vg.log());
    file.set_len(128 * MIB).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert!(lacks(&vg, 1));
    let (_, refused) = vg.refusal(Request::RestorePv { path: vg.files[0].display().to_string() });
    assert!(refused.contains("what was cut off is lost"), "{refused}");
    // After a boot, too (NW5).
    wait_for("the host's note", || rowen_host::witness::was_cut(vg.report().pvs[0].uuid));
    assert!(lacks(&vg, 1) && holds(&stays, 2));
}

/// CF1: the group does not go on without the file, and a person says that the disks are to be taken as they are.
fn a_file_that_is_cut_is_not_accepted() {
    let settings = rowen_host::paths::system_dir().join("rowen.conf");
    fs::write(&settings, "server/leave_failed_disks = 0\n").unwrap();
    let made = std::panic::catch_unwind(on_files);
    fs::remove_file(&settings).unwrap();
    let (vg, [goes, stays]) = made.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    goes.write_all_at(page(1).as_slice(), 48 * MIB).and_then(|()| goes.sync_data()).unwrap();
    write(&stays, 1).and_then(|()| stays.sync_data()).unwrap();
    let file = File::options().write(true).open(&vg.files[0]).unwrap();
    file.set_len(32 * MIB).unwrap();
    wait_for("its end", || vg.status().is_some_and(|status| status.stopped.is_some()));
    file.set_len(128 * MIB).unwrap();
    vg.ask(Request::Clear);
    wait_for("a refusal", || vg.log().contains("what was cut off is lost. Detach it"));
    server::accept_disks(&vg.name).unwrap();
    let refused = server::ensure_running(&vg.name).map(drop).unwrap_err();
    assert!(refused.message.contains("what was cut off is lost"), "{}", refused.message);
    // The rest is there.
    fs::remove_file(&vg.files[0]).unwrap();
    assert_eq!(server::go_on_without(&vg.name, false).unwrap().missing, 1);
    wait_for("a server", || lacks(&vg, 1));
    assert!(holds(&stays, 1));
}

/// RT6: nobody has noted that the disk is gone, since the server has died, too. Its users hear of it once.
fn a_user_can_go_on_without_it_under_who_uses_it() {
    let (vg, [goes, stays]) = on_files();
    for device in [&goes, &stays] {
        write(device, 1).and_then(|()| device.sync_data()).unwrap();
        write(device, 2).unwrap();
    }
    let away = vg.files[0].with_extension("away");
    fs::rename(&vg.files[0], &away).unwrap();
    let server = vg.signal_server(Signal::KILL);
    wait_for("its end", || !lives(server));
    std::thread::scope(|threads| {
        let flushed = threads.spawn(|| stays.sync_data());
        std::thread::sleep(Duration::from_secs(2));
        assert!(!flushed.is_finished());
        let went_on = server::go_on_without(&vg.name, false).unwrap();
        assert_eq!(went_on.missing, 1);
        assert!(went_on.warnings[0].contains("the next flush of each fails once"), "{:?}", went_on.warnings);
        wait_for("a server", || lacks(&vg, 1));
        flushed.join().unwrap().expect_err("what it wrote may be lost");
    });
    assert!(holds(&stays, 2) && !holds(&goes, 1));
    write(&stays, 3).and_then(|()| stays.sync_data()).unwrap();
    fs::rename(&away, &vg.files[0]).unwrap();
    vg.ask(Request::RestorePv { path: vg.files[0].display().to_string() });
    assert!(lacks(&vg, 0) && (holds(&goes, 1) || holds(&goes, 2)) && holds(&stays, 3));
}
