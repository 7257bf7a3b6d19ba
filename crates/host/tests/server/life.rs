//! Starting, ending, dying and coming back.
//!
//! Rules K2, K4 and K5.

use super::Test;
use super::planted;
use super::world::{Fatal, MIB, Mounted, Pause, Vg, dir, file, kill, lives, run, verifying_fio, wait_for};
use rowen_control::protocol::{Attributes, FullPolicy, Outcome, Request, SegmentType, VolumeKind, VolumeSpec};
use rowen_control::uuids;
use rowen_host::devices::{self, Consent};
use rowen_host::{paths, server};
use rustix::process::Signal;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("life::a_command_starts_a_server_and_stops_it", a_command_starts_a_server_and_stops_it),
    ("life::of_many_starters_one_starts", of_many_starters_one_starts),
    ("life::a_second_server_is_refused", a_second_server_is_refused),
    ("life::an_unknown_group_is_refused", an_unknown_group_is_refused),
    ("life::a_stale_socket_is_no_obstacle", a_stale_socket_is_no_obstacle),
    ("life::an_idle_server_ends", an_idle_server_ends),
    (
        "life::sigterm_takes_the_nodes_and_the_next_start_brings_them",
        sigterm_takes_the_nodes_and_the_next_start_brings_them,
    ),
    ("life::a_fresh_boot_activates_nothing", a_fresh_boot_activates_nothing),
    ("life::sigterm_while_mounted_hands_over", sigterm_while_mounted_hands_over),
    (
        "life::sigterm_while_writes_wait_for_room_leaves_them_to_a_successor",
        sigterm_while_writes_wait_for_room_leaves_them_to_a_successor,
    ),
    ("life::a_killed_server_comes_back_under_a_mount", a_killed_server_comes_back_under_a_mount),
    ("life::a_killed_server_keeps_what_was_written", a_killed_server_keeps_what_was_written),
    ("life::a_look_at_a_server_that_is_killed_is_answered", a_look_at_a_server_that_is_killed_is_answered),
    ("life::twenty_deaths_under_fio_lose_nothing", twenty_deaths_under_fio_lose_nothing),
    ("life::sigusr1_logs_the_counters", sigusr1_logs_the_counters),
    ("life::a_killed_server_is_replaced_unasked", a_killed_server_is_replaced_unasked),
    ("life::servers_that_end_when_they_serve_come_back_soon", servers_that_end_when_they_serve_come_back_soon),
    ("life::of_two_keepers_one_stays", of_two_keepers_one_stays),
    ("life::a_worker_that_is_wedged_is_replaced", a_worker_that_is_wedged_is_replaced),
    ("life::the_service_manager_is_notified_that_workers_work", the_service_manager_is_notified_that_workers_work),
    ("life::what_the_service_manager_has_outlives_both", what_the_service_manager_has_outlives_both),
    ("life::a_renamed_group_has_the_copies_of_its_service", after_a_rename_too),
    ("life::a_command_that_hangs_keeps_no_server_from_ending", a_command_that_hangs_keeps_no_server_from_ending),
    ("life::a_removed_group_leaves_nothing", a_removed_group_leaves_nothing),
    ("life::disks_of_a_removed_group_are_free_at_once", disks_of_a_removed_group_are_free_at_once),
    (
        "life::disks_of_a_removed_group_are_free_before_its_server_ends",
        disks_of_a_removed_group_are_free_before_its_server_ends,
    ),
    (
        "life::the_next_group_of_that_name_starts_when_the_directory_goes",
        the_next_group_of_that_name_starts_when_the_directory_goes,
    ),
    ("life::a_closed_group_is_checked", a_closed_group_is_checked),
    ("life::a_check_keeps_no_server_out", a_check_keeps_no_server_out),
];

fn a_command_starts_a_server_and_stops_it() {
    let vg = Vg::make(&[64 * MIB]);
    assert!(server::connect(&vg.name).unwrap().is_none());
    assert_eq!(vg.report().name, vg.name);
    assert!(server::connect(&vg.name).unwrap().is_some());
    let pid = vg.server();
    assert!(lives(pid));
    vg.ask(Request::Stop);
    wait_for("the server's end", || !lives(pid));
    assert!(!paths::control_socket(&vg.name).exists());
    vg.create("lv", VolumeKind::Thick, 8 * MIB, false);
    vg.ask(Request::Stop);
    assert_eq!(vg.names(), ["lv"]);
}

fn of_many_starters_one_starts() {
    let vg = Vg::make(&[64 * MIB]);
    let mut before = String::new();
    for _ in 0..3 {
        let threads: Vec<_> = (0..16)
            .map(|_| {
                let name = vg.name.clone();
                std::thread::spawn(move || {
                    let mut client = server::ensure_running(&name).unwrap();
                    assert!(matches!(client.ask(&Request::Report { with_use: true }, &mut |_| {}), Outcome::Report(_)));
                    fs::read_to_string(paths::pid_file(&name)).unwrap()
                })
            })
            .collect();
        let mut pids: HashSet<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        // Some of the sixteen may have been answered by the server that is on its way out.
        pids.remove(&before);
        assert_eq!(pids.len(), 1, "{pids:?}");
        before = pids.into_iter().next().unwrap();
        // Ended at once: the next sixteen meet a server that is on its way out.
        vg.ask(Request::Stop);
    }
}

fn a_second_server_is_refused() {
    let vg = Vg::make(&[64 * MIB]);
    vg.report();
    let second = Command::new("/proc/self/exe").args(["serve", &vg.name]).output().unwrap();
    assert_eq!(second.status.code(), Some(5));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    let expected = format!("  Volume group \"{}\" is already served by process {}.\n", vg.name, vg.server());
    assert!(said.ends_with(&expected), "{said}");
    // One that does not see the first (another run directory, another host) meets the hold on the disks.
    let elsewhere = dir().join("run2");
    let second = Command::new("timeout")
        .args(["20", std::env::current_exe().unwrap().to_str().unwrap(), "serve", &vg.name])
        .env("ROWEN_RUN_DIR", &elsewhere)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(5), "{said}");
    assert!(said.contains("is in use by process"), "{said}");
    vg.report();
}

fn an_unknown_group_is_refused() {
    let refusal = server::ensure_running("nosuchvg").err().expect("there is no such group");
    assert_eq!(refusal.message, "Volume group \"nosuchvg\" not found\nCannot process volume group nosuchvg");
    assert!(server::ensure_running("../../etc").is_err());
    assert!(!paths::group_dir("nosuchvg").exists());
}

fn a_stale_socket_is_no_obstacle() {
    let vg = Vg::make(&[64 * MIB]);
    paths::make_private_dir(&paths::group_dir(&vg.name)).unwrap();
    drop(UnixListener::bind(paths::control_socket(&vg.name)).unwrap());
    assert!(server::connect(&vg.name).unwrap().is_none());
    vg.report();
}

fn an_idle_server_ends() {
    let vg = Vg::make(&[64 * MIB]);
    // A server of its own, with little patience.
    let mut child = Command::new("/proc/self/exe")
        .args(["serve", &vg.name])
        .env("ROWEN_LAUNCHED_BY_COMMAND", "1")
        .env("ROWEN_IDLE_SECONDS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the server", || server::connect(&vg.name).unwrap().is_some());
    vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(child.try_wait().unwrap().is_none(), "it ended although a volume is active");
    vg.ask(Request::Deactivate { names: None });
    wait_for("the idle server's end", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
    wait_for("the keeper's end", || !paths::group_dir(&vg.name).join("keeper.sock").exists());
}

fn sigterm_takes_the_nodes_and_the_next_start_brings_them() {
    let vg = Vg::make(&[64 * MIB]);
    let on = vg.create("on", VolumeKind::Thick, 8 * MIB, true);
    vg.create("off", VolumeKind::Thick, 8 * MIB, false);
    fs::write(&on, b"written").unwrap();
    let pid = vg.signal_server(Signal::TERM);
    wait_for("the server's end", || !lives(pid));
    assert!(!on.exists() && !on.parent().unwrap().exists(), "a node is left");
    assert!(vg.log().contains("is closed"), "{}", vg.log());
    vg.report();
    assert!(on.exists() && !vg.node("off").exists());
    assert!(fs::read(&on).unwrap().starts_with(b"written"));
}

fn a_fresh_boot_activates_nothing() {
    let vg = Vg::make(&[64 * MIB]);
    let on = vg.create("on", VolumeKind::Thick, 8 * MIB, true);
    let pid = vg.signal_server(Signal::TERM);
    wait_for("the server's end", || !lives(pid));
    fs::write(paths::group_dir(&vg.name).join("boot"), "another boot").unwrap();
    let report = vg.report();
    assert!(!on.exists() && !report.volume("on").unwrap().attributes.active);
    vg.ask(Request::Activate { names: None, ignore_skip: false, auto: false, partial: false });
    assert!(on.exists());
}

fn sigterm_while_mounted_hands_over() {
    let vg = Vg::make(&[256 * MIB]);
    let mounted = Mounted::ext4(&vg.create("lv", VolumeKind::Thick, 64 * MIB, true));
    fs::write(mounted.point.join("before"), b"before").unwrap();
    let pid = vg.signal_server(Signal::TERM);
    wait_for("the server's end", || !lives(pid));
    wait_for("a successor", || server::connect(&vg.name).unwrap().is_some());
    assert_ne!(vg.server(), pid);
    fs::write(mounted.point.join("after"), b"after").unwrap();
    File::open(mounted.point.join("after")).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(mounted.point.join("before")).unwrap(), b"before");
    let device = vg.node("lv");
    drop(mounted);
    run("e2fsck", &["-fn", device.to_str().unwrap()]);
}

/// They may wait for a minute, or for ever by the settings: a server that ends is not held up by that, and they are not failed.
fn sigterm_while_writes_wait_for_room_leaves_them_to_a_successor() {
    let mut vg = Vg::make(&[64 * MIB]);
    let spec = VolumeSpec {
        name: "lv".into(),
        uuid: uuids::fresh(),
        kind: VolumeKind::Thin,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: 128 * MIB / 4096,
        sector: 512,
        chunk_blocks: 16,
        full: FullPolicy::Hold,
        attributes: Attributes::default(),
    };
    vg.ask(Request::CreateVolume { spec, activate: true, on: Vec::new() });
    let node = vg.node("lv");
    let writers = [0, 1, 2, 3].map(|quarter| {
        let (file, seek) = (format!("of={}", node.display()), format!("seek={}", quarter * 32));
        let words = ["if=/dev/zero", &file, &seek, "bs=1M", "count=24", "oflag=direct", "conv=notrunc", "status=none"];
        Command::new("dd").args(words).stderr(Stdio::piped()).spawn().unwrap()
    });
    wait_for("a full group", || vg.report().free_extents == 0);
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(300));
        let pid = vg.signal_server(Signal::TERM);
        wait_for("the server's end", || !lives(pid));
        wait_for("a successor", || server::connect(&vg.name).unwrap().is_some());
        assert!(writers.iter().any(|writer| lives(writer.id().cast_signed())), "the writers wait");
    }
    let more = file(128 * MIB);
    vg.files.push(more.clone());
    devices::pvcreate(&more, uuids::fresh(), Consent::default()).unwrap();
    vg.ask(Request::AddPv { paths: vec![more.display().to_string()] });
    for writer in writers {
        let written = writer.wait_with_output().unwrap();
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    }
    let Outcome::Check(check) = vg.ask(Request::Check) else { panic!("no check") };
    assert_eq!(check.findings, Vec::<String>::new());
}

fn a_killed_server_comes_back_under_a_mount() {
    let vg = Vg::make(&[256 * MIB]);
    let mounted = Mounted::ext4(&vg.create("lv", VolumeKind::Thick, 64 * MIB, true));
    for round in 0..3u8 {
        let pid = vg.signal_server(Signal::KILL);
        let path = mounted.point.join(format!("file{round}"));
        fs::write(&path, vec![round; 3 << 20]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        assert_ne!(vg.server(), pid);
        wait_for("a successor's socket", || server::connect(&vg.name).unwrap().is_some());
    }
    for round in 0..3u8 {
        assert!(fs::read(mounted.point.join(format!("file{round}"))).unwrap() == vec![round; 3 << 20]);
    }
    let report = vg.report();
    let node = &report.volume("lv").unwrap().node;
    assert!(node.active && node.open);
    let device = vg.node("lv");
    drop(mounted);
    run("e2fsck", &["-fn", device.to_str().unwrap()]);
}

fn a_killed_server_keeps_what_was_written() {
    let vg = Vg::make(&[256 * MIB]);
    let node = vg.create("lv", VolumeKind::Thin, 64 * MIB, true);
    let device = File::options().read(true).write(true).open(&node).unwrap();
    device.write_all_at(&[1; 1 << 20], 0).unwrap();
    device.sync_all().unwrap();
    let snapshot = vg.snapshot("lv", "snap");
    device.write_all_at(&[2; 1 << 20], 0).unwrap();
    device.sync_all().unwrap();
    vg.signal_server(Signal::KILL);
    device.write_all_at(&[3; 4096], 4096).unwrap();
    device.sync_all().unwrap();
    drop(device);
    let head = &fs::read(&node).unwrap()[..1 << 20];
    assert!(head[..4096] == [2; 4096] && head[4096..8192] == [3; 4096] && head[8192..].iter().all(|byte| *byte == 2));
    assert!(fs::read(&snapshot).unwrap()[..1 << 20].iter().all(|byte| *byte == 1));
    let Outcome::Check(check) = vg.ask(Request::Check) else { panic!("no check") };
    assert_eq!(check.findings, Vec::<String>::new());
}

/// The next server answers what the killed one has read, or not read.
fn a_look_at_a_server_that_is_killed_is_answered() {
    let vg = Vg::make(&[64 * MIB]);
    let mut client = server::ensure_running(&vg.name).unwrap();
    vg.signal_server(Signal::STOP);
    let looking = std::thread::spawn(move || client.ask(&Request::Report { with_use: false }, &mut |_| {}));
    // For the request to be on its way; sooner or later, there is an answer.
    std::thread::sleep(Duration::from_millis(200));
    vg.signal_server(Signal::KILL);
    let Outcome::Report(report) = looking.join().unwrap() else { panic!("no report") };
    assert_eq!(report.name, vg.name);
}

/// Twenty deaths under a load that reads back what it wrote, with snapshots coming and going in between.
fn twenty_deaths_under_fio_lose_nothing() {
    let vg = Vg::make(&[512 * MIB]);
    let node = vg.create("lv", VolumeKind::Thin, 96 * MIB, true);
    let mut fio = verifying_fio("deaths", &node);
    let mut slowest = Duration::ZERO;
    for round in 0..20 {
        std::thread::sleep(Duration::from_millis(400 + round * 37 % 200));
        assert!(fio.try_wait().unwrap().is_none(), "fio gave up before death {round}");
        let pid = vg.signal_server(Signal::KILL);
        let begun = Instant::now();
        wait_for("a successor", || vg.server() != pid && server::connect(&vg.name).unwrap().is_some());
        slowest = slowest.max(begun.elapsed());
        match round % 5 {
            1 => drop(vg.snapshot("lv", &format!("s{round}"))),
            4 => drop(vg.ask(Request::Remove { names: vec![format!("s{}", round - 3)] })),
            _ => {}
        }
    }
    println!("  killed to serving again: at most {} ms", slowest.as_millis());
    let fio_pid = rustix::process::Pid::from_child(&fio);
    rustix::process::kill_process(fio_pid, Signal::INT).unwrap();
    let output = fio.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("verify:") && !said.contains("error") && !said.contains("rror="), "{said}");
    // Sixth in its terse line: KiB read, all of them to verify.
    let read: u64 = said.lines().find_map(|line| line.split(';').nth(5)?.parse().ok()).expect("a terse line");
    // How many depends on the machine.
    assert!(read > 0, "nothing was verified");
    let check = || match vg.ask(Request::Check) {
        Outcome::Check(check) => check.findings,
        outcome => panic!("no check: {outcome:?}"),
    };
    let found = check();
    // What is found once is damage, or a fault of the check.
    assert!(found.is_empty(), "{found:?}; a second check finds {:?}", check());
}

fn sigusr1_logs_the_counters() {
    let vg = Vg::make(&[64 * MIB]);
    vg.report();
    let pid = vg.signal_server(Signal::USR1);
    wait_for("the counters in the log", || vg.log().contains("writes_in_place="));
    assert!(lives(pid));
}

fn a_removed_group_leaves_nothing() {
    let vg = Vg::make(&[64 * MIB, 64 * MIB]);
    vg.create("lv", VolumeKind::Thick, 8 * MIB, true);
    let pid = vg.server();
    let (_, message) = vg.refusal(Request::Destroy { force: false });
    assert!(message.contains("still contains 1 logical volume(s)"), "{message}");
    vg.ask(Request::Destroy { force: true });
    wait_for("the server's end", || !lives(pid));
    wait_for("an empty run directory", || !paths::group_dir(&vg.name).exists());
    let scan = rowen_host::devices::scan().unwrap();
    assert!(scan.group(&vg.name).is_err());
    assert!(vg.files.iter().all(|file| scan.at(file).unwrap().label().unwrap().group.is_none()));
}

fn disks_of_a_removed_group_are_free_at_once() {
    let vg = Vg::make(&[64 * MIB]);
    for _ in 0..10 {
        vg.create("lv", VolumeKind::Thick, 8 * MIB, true);
        vg.ask(Request::Destroy { force: true });
        rowen_host::devices::pvremove(&vg.files[0], Default::default()).unwrap();
        let pvs = [(vg.files[0].clone(), rowen_control::uuids::fresh())];
        rowen_host::devices::vgcreate(
            &vg.name,
            rowen_control::uuids::fresh(),
            1024,
            &pvs,
            Some(16),
            Default::default(),
        )
        .unwrap();
    }
    assert!(vg.names().is_empty());
}

/// EN2: the server that removed the group takes its time to end.
fn disks_of_a_removed_group_are_free_before_its_server_ends() {
    let vg = Vg::make(&[64 * MIB]);
    vg.create("lv", VolumeKind::Thick, 8 * MIB, true);
    let pid = vg.server();
    let pause = Pause::at("let go");
    vg.ask(Request::Destroy { force: true });
    assert_eq!(pause.wait(), pid);
    devices::pvremove(&vg.files[0], Consent::default()).unwrap();
    assert!(lives(pid));
    drop(pause);
    wait_for("the server's end", || !lives(pid));
}

/// EN3: the directory goes after the command has taken the lock in it.
fn the_next_group_of_that_name_starts_when_the_directory_goes() {
    let vg = Vg::make(&[64 * MIB]);
    let directory = paths::group_dir(&vg.name);
    fs::create_dir_all(&directory).unwrap();
    // It stands for the server of the removed group, which answers nobody any more.
    let ends = UnixListener::bind(paths::control_socket(&vg.name)).unwrap();
    let name = vg.name.clone();
    let starts = std::thread::spawn(move || server::ensure_running(&name).map(drop));
    let has_lock = || {
        File::open(paths::start_lock(&vg.name))
            .is_ok_and(|lock| rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err())
    };
    loop {
        let (asks, _) = ends.accept().unwrap();
        if has_lock() {
            paths::remove_group_dir(&vg.name).unwrap();
            drop(asks);
            break;
        }
    }
    starts.join().unwrap().unwrap();
    assert!(directory.is_dir(), "the new server has a directory of its own");
    let remains = fs::read_dir(paths::run_dir()).unwrap().flatten();
    let remains = remains.filter(|entry| entry.file_name().to_string_lossy().starts_with("removed@"));
    assert_eq!(remains.count(), 0, "the directory of the removed group is gone");
}

fn a_closed_group_is_checked() {
    let vg = Vg::make(&[64 * MIB]);
    vg.create("lv", VolumeKind::Thick, 8 * MIB, false);
    assert!(server::check_closed(&vg.name, false, &mut |_, _| {}).is_err(), "a server has it open");
    let pid = vg.server();
    vg.ask(Request::Stop);
    wait_for("the server's end", || !lives(pid));
    assert_eq!(server::check_closed(&vg.name, false, &mut |_, _| {}).unwrap().findings, Vec::<String>::new());
}

fn a_check_keeps_no_server_out() {
    let vg = Vg::make(&[256 * MIB]);
    let (name, ended) = (vg.name.clone(), std::sync::Arc::new(AtomicBool::new(false)));
    let is_over = ended.clone();
    let checks = std::thread::spawn(move || {
        let mut clean = 0;
        while !is_over.load(Ordering::Relaxed) {
            match server::check_closed(&name, false, &mut |_, _| {}) {
                Ok(outcome) => {
                    assert_eq!(outcome.findings, Vec::<String>::new());
                    clean += 1;
                }
                Err(failure) => assert!(failure.message.contains("its server has to check it"), "{}", failure.message),
            }
        }
        clean
    });
    for _ in 0..5 {
        // Between two servers there is time for a check, at some moment of which the next one starts.
        std::thread::sleep(Duration::from_millis(100));
        let mut server =
            Command::new("/proc/self/exe").args(["serve", &vg.name]).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the server", || server::connect(&vg.name).unwrap().is_some() || server.try_wait().unwrap().is_some());
        vg.ask(Request::Stop);
        assert!(server.wait().unwrap().success(), "the check kept it out");
    }
    ended.store(true, Ordering::Relaxed);
    checks.join().unwrap();
}

/// WD1. The server's workers stop where the test wants it, and the watchdog of each server looks ten times a second.
fn a_worker_that_is_wedged_is_replaced() {
    let vg = Vg::make(&[64 * MIB]);
    let bug = std::env::var(planted::VARIABLE).unwrap_or_else(|_| "worker_stops".into());
    fs::create_dir_all(paths::group_dir(&vg.name)).unwrap();
    let mut child = Command::new("/proc/self/exe")
        .args(["serve", &vg.name])
        .env("ROWEN_LAUNCHED_BY_COMMAND", "1")
        .env("ROWEN_WATCHDOG_SECONDS", "1")
        .env(planted::VARIABLE, bug)
        .stdout(Stdio::null())
        .stderr(Stdio::from(File::create(paths::server_log(&vg.name)).unwrap()))
        .spawn()
        .unwrap();
    wait_for("the server", || server::connect(&vg.name).unwrap().is_some());
    let node = vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let pause = Pause::at("worker");
    let writer = std::thread::spawn(move || {
        let file = File::options().write(true).open(node).unwrap();
        file.write_all_at(&[7; 1 << 20], 0).and_then(|()| file.sync_all())
    });
    let wedged = pause.wait();
    assert_eq!(wedged, child.id().cast_signed());
    wait_for("the wedged server's end", || child.try_wait().unwrap().is_some());
    assert!(!writer.is_finished(), "somebody answered");
    drop(pause);
    writer.join().unwrap().unwrap();
    let log = vg.log();
    assert!(log.contains("is wedged") && log.contains("reactor/worker.rs"), "{log}");
    assert_ne!(vg.server(), wedged);
}

/// A server with this in its environment, which its successors inherit.
pub fn serve_with(vg: &Vg, environment: &[(&str, &str)]) -> std::process::Child {
    fs::create_dir_all(paths::group_dir(&vg.name)).unwrap();
    let mut command = Command::new("/proc/self/exe");
    command.args(["serve", &vg.name]).env("ROWEN_LAUNCHED_BY_COMMAND", "1").envs(environment.iter().copied());
    command.stdout(Stdio::null()).stderr(Stdio::from(File::create(paths::server_log(&vg.name)).unwrap()));
    let child = command.spawn().unwrap();
    wait_for("the server", || server::connect(&vg.name).unwrap().is_some());
    child
}

/// WD3: by the server while its workers work, by the keeper while there is no server, and by nobody while a worker is wedged.
fn the_service_manager_is_notified_that_workers_work() {
    let vg = Vg::make(&[64 * MIB]);
    let path = dir().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(12))).unwrap();
    let is_alive = || {
        let deadline = Instant::now() + Duration::from_secs(12);
        let mut said = [0; 4096];
        while let Ok(len) = manager.recv(&mut said) {
            if said[..len].starts_with(b"WATCHDOG=1") {
                return true;
            }
            assert!(Instant::now() < deadline);
        }
        false
    };
    let drain = || {
        manager.set_nonblocking(true).unwrap();
        while manager.recv(&mut [0; 4096]).is_ok() {}
        manager.set_nonblocking(false).unwrap();
    };
    // A worker that is wedged ends its server, unless that is what is planted.
    let planted = std::env::var(planted::VARIABLE).unwrap_or_default();
    let bugs = format!("worker_stops,watchdog_sleeps,{planted}");
    let environment = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("ROWEN_WATCHDOG_SECONDS", "1"),
        (planted::VARIABLE, bugs.as_str()),
    ];
    let mut child = serve_with(&vg, &environment);
    let node = vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    assert!(is_alive() && is_alive());
    let pause = Pause::at("worker");
    let writer = std::thread::spawn(move || {
        let file = File::options().write(true).open(node).unwrap();
        file.write_all_at(&[7; 1 << 20], 0).and_then(|()| file.sync_all())
    });
    pause.wait();
    wait_for("the wedged worker", || vg.log().contains("is wedged"));
    std::thread::sleep(Duration::from_millis(300));
    drain();
    std::thread::sleep(Duration::from_secs(2));
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0; 4096]).is_err(), "it says that all is well");
    manager.set_nonblocking(false).unwrap();
    // The disk is away, so no server follows: the keeper is there.
    let away = vg.files[0].with_extension("away");
    fs::rename(&vg.files[0], &away).unwrap();
    vg.signal_server(Signal::KILL);
    child.wait().unwrap();
    drop(pause);
    drain();
    assert!(is_alive());
    fs::rename(&away, &vg.files[0]).unwrap();
    writer.join().unwrap().unwrap();
    wait_for("a successor", || server::connect(&vg.name).is_ok_and(|client| client.is_some()));
    assert!(is_alive());
}

/// The messages to a service manager: descriptors with their names, and names to remove.
struct Manager {
    socket: UnixDatagram,
    path: std::path::PathBuf,
    stored: Vec<(String, std::os::fd::OwnedFd)>,
}

impl Manager {
    fn listen() -> Manager {
        let path = dir().join("notify-store");
        let _of_another_test = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Manager { socket, path, stored: Vec::new() }
    }

    fn hear(&mut self) {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
        let (mut said, mut space) = ([0; 4096], [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [std::io::IoSliceMut::new(&mut said)];
            let Ok(message) = recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) else { return };
            let fd = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            let text = String::from_utf8_lossy(&said[..message.bytes]).into_owned();
            let Some(name) = text.lines().find_map(|line| line.strip_prefix("FDNAME=")) else { continue };
            match fd {
                Some(fd) if text.starts_with("FDSTORE=1\nFDPOLL=0\n") => self.stored.push((name.to_owned(), fd)),
                _ if text.starts_with("FDSTOREREMOVE=1\n") => self.stored.retain(|(stored, _)| stored != name),
                _ => panic!("{text}"),
            }
        }
    }

    fn has(&mut self, count: usize) {
        wait_for("descriptors", || {
            self.hear();
            self.stored.len() == count
        });
    }
}

/// K6: server and keeper die together, and the next server is given what the service manager has.
fn what_the_service_manager_has_outlives_both() {
    outlives_both(Vg::make(&[64 * MIB]), None);
}

/// K7: the service has the group's old name.
fn after_a_rename_too() {
    let vg = Vg::make(&[64 * MIB]);
    let name = format!("{}-renamed", vg.name);
    outlives_both(vg, Some(name));
}

fn outlives_both(mut vg: Vg, renamed: Option<String>) {
    let service = vg.name.clone();
    let mut manager = Manager::listen();
    let environment = [("NOTIFY_SOCKET", manager.path.to_str().unwrap())];
    let mut first = serve_with(&vg, &environment);
    let [node, brief] = ["lv", "brief"].map(|name| vg.create(name, VolumeKind::Thick, 16 * MIB, true));
    manager.has(2);
    vg.ask(Request::Remove { names: vec!["brief".into()] });
    manager.has(1);
    assert!(!brief.exists());
    let device = File::options().read(true).write(true).open(node).unwrap();
    device.write_all_at(&[7; 4096], 0).and_then(|()| device.sync_all()).unwrap();
    // By the group's first name.
    let keeper = crate::world::keeper_of(&vg);
    if let Some(name) = renamed {
        crate::groups::rename_group(&mut vg, name);
        manager.has(1);
    }
    crate::world::kill_with_keeper(keeper, vg.server());
    first.wait().unwrap();
    let (name, fd) = &manager.stored[0];
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(fd);
    let waiting = std::thread::spawn(move || device.write_all_at(&[8; 4096], 4096).and_then(|()| device.sync_all()));
    let mut next = Command::new("bash")
        .args(["-c", &format!("exec 3<&{number} {number}<&-; LISTEN_PID=$$ exec \"$0\" serve {service}")])
        .arg(std::env::current_exe().unwrap())
        .env("ROWEN_LAUNCHED_BY_COMMAND", "1")
        .env("NOTIFY_SOCKET", &manager.path)
        .envs([("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", name)])
        .stdout(Stdio::null())
        .stderr(Stdio::from(File::create(paths::server_log(&vg.name)).unwrap()))
        .spawn()
        .unwrap();
    wait_for("the writer", || waiting.is_finished());
    waiting.join().unwrap().unwrap();
    // It serves first, and says so then.
    wait_for("the line about it", || vg.log().contains("taken over: lv"));
    manager.hear();
    // The same once more; nothing stays in the end.
    manager.stored.truncate(1);
    vg.ask(Request::Stop);
    next.wait().unwrap();
    manager.has(0);
}

/// EN1
fn a_command_that_hangs_keeps_no_server_from_ending() {
    let vg = Vg::make(&[64 * MIB]);
    let mut child = serve_with(&vg, &[("ROWEN_END_SECONDS", "1")]);
    vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let joins = file(64 * MIB);
    let pause = Pause::at("looked below");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut client = server::connect(&vg.name).unwrap().unwrap();
            client.ask(&Request::AddPv { paths: vec![joins.display().to_string()] }, &mut |_| {});
        });
        assert_eq!(pause.wait(), vg.server());
        let ended = vg.signal_server(Signal::TERM);
        wait_for("its end", || child.try_wait().unwrap().is_some());
        let log = vg.log();
        assert!(log.contains("cannot be closed") && log.contains("has not ended in 1 s"), "{log}");
        assert!(log.contains(&format!("(process {})", std::process::id())), "{log}");
        drop(pause);
        wait_for("a successor", || vg.server() != ended && server::connect(&vg.name).is_ok_and(|it| it.is_some()));
    });
    assert_eq!(vg.report().pvs.len(), 1);
    fs::remove_file(joins).unwrap();
}

/// K3: who uses the volumes waits, and gives no command.
fn a_killed_server_is_replaced_unasked() {
    let vg = Vg::make(&[64 * MIB]);
    vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    for _ in 0..3 {
        let dead = vg.signal_server(Signal::KILL);
        wait_for("the dead server's end", || !lives(dead));
        wait_for("a successor", || server::connect(&vg.name).is_ok_and(|client| client.is_some()));
    }
}

/// K5: a crash in what each server does first, or kills in quick succession.
fn servers_that_end_when_they_serve_come_back_soon() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    let pauses = || -> Vec<u64> {
        let pause = |line: &str| line.split_once("the next server starts in ")?.1.strip_suffix(" ms")?.parse().ok();
        vg.keeper_log().lines().filter_map(pause).collect()
    };
    let ends = || vg.keeper_log().matches("without a message").count();
    let fatal = Fatal::at("taken over");
    vg.signal_server(Signal::KILL);
    wait_for("six ends", || ends() > 6 || pauses().last().is_some_and(|pause| *pause > 200));
    drop(fatal);
    let pauses = pauses();
    assert!(!pauses.is_empty() && pauses.iter().all(|pause| (20..=200).contains(pause)), "{pauses:?}");
    wait_for("a server that stays", || server::connect(&vg.name).is_ok_and(|client| client.is_some()));
    let file = File::options().write(true).open(node).unwrap();
    file.write_all_at(&[7; 4096], 0).and_then(|()| file.sync_all()).unwrap();
}

/// K2
fn of_two_keepers_one_stays() {
    let vg = Vg::make(&[64 * MIB]);
    let keepers = || -> Vec<i32> {
        let pids =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let command = format!("keeper\0{}\0", vg.name);
        let is_keeper =
            |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.ends_with(&command));
        pids.filter(|pid| is_keeper(pid) && lives(*pid)).collect()
    };
    for _ in 0..2 {
        assert!(Command::new("/proc/self/exe").args(["keeper", &vg.name]).status().unwrap().success());
    }
    let found = keepers();
    found.iter().for_each(|keeper| kill(*keeper, Signal::KILL));
    assert_eq!(found.len(), 1);
    wait_for("its end", || keepers().is_empty());
}
