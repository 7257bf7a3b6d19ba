//! Filesystems that are held still for a snapshot, and everybody who may die meanwhile. What must hold each time: the dead
//! process ends, the volume is served again, nothing stays frozen.

use super::Test;
use super::world::{
    MIB, Mounted, Pause, Vg, dir, helpers_of, is_stopped, kill, kill_both, lives, run, snapshot, unmounted, wait_for,
    within,
};
use rowen_control::protocol::{ErrorKind, Outcome, Request, VolumeKind};
use rowen_host::{paths, server};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

pub const TESTS: &[Test] = &[
    ("freezing::a_server_that_is_killed_while_it_is_waited_for_is_replaced", killed_while_waited_for),
    ("freezing::a_server_that_is_killed_leaves_nothing_frozen", a_killed_server_leaves_nothing_frozen),
    ("freezing::a_server_and_a_keeper_that_are_killed_leave_nothing_frozen", both_killed_leave_nothing_frozen),
    ("freezing::a_helper_that_is_killed_leaves_nothing_frozen", a_killed_helper_leaves_nothing_frozen),
    ("freezing::a_helper_that_is_late_leaves_nothing_frozen", a_late_helper_leaves_nothing_frozen),
    ("freezing::what_another_namespace_puts_there_is_not_opened", what_another_namespace_puts_there_is_not_opened),
    ("freezing::what_covers_a_volume_is_not_frozen", what_covers_a_volume_is_not_frozen),
    ("freezing::a_helper_that_has_answered_is_asked_again", a_helper_that_has_answered_is_asked_again),
    ("freezing::a_request_that_no_helper_has_read_is_another_helpers", an_unread_request_is_another_helpers),
];

/// A group with a volume, on which an ext4 is mounted.
fn mounted() -> (Vg, Mounted) {
    let vg = Vg::make(&[256 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 64 * MIB, true);
    let mounted = Mounted::ext4(&node);
    fs::write(mounted.point.join("before"), vec![7; 1 << 20]).unwrap();
    (vg, mounted)
}

/// A command that takes a snapshot, and is not waited for.
fn snapshot_begins(vg: &Vg, name: &str) -> JoinHandle<Outcome> {
    let (group, spec) = (vg.name.clone(), snapshot("lv", name, None));
    std::thread::spawn(move || {
        let mut client = server::ensure_running(&group).unwrap();
        client.ask(&Request::Snapshot { specs: vec![spec], freeze: true }, &mut |_| {})
    })
}

fn markers(vg: &Vg) -> usize {
    let files = fs::read_dir(paths::group_dir(&vg.name)).unwrap().flatten();
    files.filter(|file| file.file_name().to_string_lossy().starts_with("frozen-")).count()
}

/// Writes to the filesystem, and has it on the disk.
fn write(mounted: &Mounted) {
    let file = mounted.point.join("after");
    let line = format!("echo x > {0} && sync {0}", file.display());
    let output = within(60, "sh", &["-c", &line]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn is_thawed(vg: &Vg, mounted: &Mounted) {
    write(mounted);
    wait_for("the marker's end", || markers(vg) == 0);
}

/// The freeze needs writes that the stopped server does not answer: the caller waits, and dies only when
/// the volume is served again.
fn killed_while_waited_for() {
    let (vg, mounted) = mounted();
    let pause = Pause::at("freezing");
    let command = snapshot_begins(&vg, "s");
    pause.wait();
    let dead = vg.signal_server(Signal::STOP);
    // Something to be written out by the freeze.
    fs::write(mounted.point.join("dirty"), vec![8; 1 << 20]).unwrap();
    drop(pause);
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill(dead, Signal::KILL);
    wait_for("the dead server's end", || !lives(dead));
    is_thawed(&vg, &mounted);
    assert!(matches!(command.join().unwrap(), Outcome::Error { .. }));
    assert_ne!(vg.server(), dead);
    vg.snapshot("lv", "later");
    is_thawed(&vg, &mounted);
}

fn a_killed_server_leaves_nothing_frozen() {
    let (vg, mounted) = mounted();
    let pause = Pause::at("frozen");
    let command = snapshot_begins(&vg, "s");
    pause.wait();
    assert_eq!(markers(&vg), 1);
    let dead = vg.signal_server(Signal::KILL);
    wait_for("the dead server's end", || !lives(dead));
    // The successor serves, whatever its predecessor's helper does.
    let node = vg.node("lv");
    let read =
        ["if=".to_owned() + node.to_str().unwrap(), "of=/dev/null".into(), "iflag=direct".into(), "count=8".into()];
    assert!(within(60, "dd", &read.each_ref().map(String::as_str)).status.success());
    drop(pause);
    is_thawed(&vg, &mounted);
    assert!(matches!(command.join().unwrap(), Outcome::Error { .. }));
}

fn both_killed_leave_nothing_frozen() {
    let (vg, mounted) = mounted();
    let pause = Pause::at("frozen");
    let command = snapshot_begins(&vg, "s");
    let helper = pause.wait();
    kill_both(&vg);
    drop(pause);
    assert!(matches!(command.join().unwrap(), Outcome::Error { .. }));
    wait_for("the helper's end", || !lives(helper));
    // Nobody serves the old device: its filesystem fails, and can be left.
    let point = mounted.point.to_str().unwrap();
    unmounted(&mounted.point);
    // The next command starts a server, and the filesystem can be used again.
    assert_eq!(vg.report().name, vg.name);
    assert_eq!(markers(&vg), 0);
    assert!(within(60, "mount", &[vg.node("lv").to_str().unwrap(), point]).status.success());
    write(&mounted);
}

fn a_killed_helper_leaves_nothing_frozen() {
    let (vg, mounted) = mounted();
    for step in ["frozen", "thawing"] {
        let pause = Pause::at(step);
        let command = snapshot_begins(&vg, step);
        let helper = pause.wait();
        kill(helper, Signal::KILL);
        drop(pause);
        let outcome = command.join().unwrap();
        match step {
            "frozen" => assert!(matches!(outcome, Outcome::Error { .. }), "{outcome:?}"),
            _ => assert!(matches!(outcome, Outcome::Created(_)), "{outcome:?}"),
        }
        is_thawed(&vg, &mounted);
    }
    // The helper, the server and the keeper at once: the next command's server thaws.
    let pause = Pause::at("frozen");
    let command = snapshot_begins(&vg, "all");
    let (helper, dead) = (pause.wait(), vg.server());
    kill(helper, Signal::KILL);
    kill(dead, Signal::KILL);
    drop(pause);
    assert!(matches!(command.join().unwrap(), Outcome::Error { .. }));
    is_thawed(&vg, &mounted);
}

fn a_late_helper_leaves_nothing_frozen() {
    let vg = Vg::make(&[256 * MIB]);
    let mut impatient = Command::new("/proc/self/exe")
        .args(["serve", &vg.name])
        .env("ROWEN_FREEZE_SECONDS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the server", || server::connect(&vg.name).unwrap().is_some());
    let node = vg.create("lv", VolumeKind::Thick, 64 * MIB, true);
    let mounted = Mounted::ext4(&node);
    let pause = Pause::at("frozen");
    let command = snapshot_begins(&vg, "s");
    pause.wait();
    match command.join().unwrap() {
        Outcome::Error { kind: ErrorKind::Io, message } => {
            assert!(message.contains("not done within 1 s"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    drop(pause);
    is_thawed(&vg, &mounted);
    drop(mounted);
    vg.ask(Request::Deactivate { names: None });
    kill(impatient.id() as i32, Signal::TERM);
    impatient.wait().unwrap();
}

/// In a mount namespace of its own anybody can put anything where a volume was mounted.
fn what_another_namespace_puts_there_is_not_opened() {
    let vg = Vg::make(&[256 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 64 * MIB, true);
    run("mkfs.ext4", &["-q", "-F", node.to_str().unwrap()]);
    let above = dir().join("mnt-above");
    fs::create_dir_all(above.join("x")).unwrap();
    for (number, trap) in ["mkfifo x", "ln -s / x", "mkdir x", "ln -s /dev/full x"].iter().enumerate() {
        let ready = dir().join(format!("ready-{number}"));
        let line = format!(
            "mount --make-rprivate / && cd {} && mount {} x && mount -t tmpfs none . && cd {0} && {trap} && touch {} && exec sleep 300",
            above.display(),
            node.display(),
            ready.display()
        );
        let mut other = Command::new("unshare").args(["-m", "sh", "-c", &line]).spawn().unwrap();
        wait_for("the other namespace", || ready.exists());
        let line = format!("s{number}");
        let outcome = snapshot_begins(&vg, &line);
        wait_for("the snapshot", || outcome.is_finished());
        let outcome = outcome.join().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(matches!(outcome, Outcome::Created(_)), "{trap}: {outcome:?}");
        assert_eq!(markers(&vg), 0);
        assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains("mnt-above"));
        drop(fs::write(Path::new("/tmp").join(".rowen-root-is-not-frozen"), b"x"));
    }
    drop(fs::remove_file("/tmp/.rowen-root-is-not-frozen"));
}

/// A namespace's list has both mounts, and the path leads to the one on top.
fn what_covers_a_volume_is_not_frozen() {
    let vg = Vg::make(&[256 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 64 * MIB, true);
    run("mkfs.ext4", &["-q", "-F", node.to_str().unwrap()]);
    let other = Vg::make(&[128 * MIB]);
    let cover = Mounted::ext4(&other.create("cover", VolumeKind::Thick, 64 * MIB, true));
    let (below, ready) = (dir().join("mnt-below"), dir().join("covered"));
    fs::create_dir_all(&below).unwrap();
    let line = format!(
        "mount --make-rprivate / && mount {} {1} && mount --bind {2} {1} && touch {3} && exec sleep 300",
        node.display(),
        below.display(),
        cover.point.display(),
        ready.display()
    );
    let mut namespace = Command::new("unshare").args(["-m", "sh", "-c", &line]).spawn().unwrap();
    wait_for("the other namespace", || ready.exists());
    let pause = Pause::at("frozen");
    let command = snapshot_begins(&vg, "s");
    wait_for("the snapshot or its pause", || command.is_finished() || pause.has_come());
    write(&cover);
    drop(pause);
    assert!(matches!(command.join().unwrap(), Outcome::Created(_)));
    namespace.kill().unwrap();
    namespace.wait().unwrap();
    drop(cover);
}

/// To start a process takes longer than most requests to it do. One that waits holds nothing (H2, H10), and may be killed.
fn a_helper_that_has_answered_is_asked_again() {
    let (vg, mounted) = mounted();
    let round = |name: &str| {
        vg.snapshot("lv", name);
        vg.ask(Request::Remove { names: vec![name.to_owned()] });
    };
    round("first");
    let before = helpers_of(&vg);
    assert!(!before.is_empty(), "none waits");
    (0..3).for_each(|n| round(&format!("s{n}")));
    assert_eq!(helpers_of(&vg), before);
    for helper in &before {
        let held = fs::read_dir(format!("/proc/{helper}/fd")).unwrap().flatten();
        let held: Vec<String> = held.map(|file| fs::read_link(file.path()).unwrap().display().to_string()).collect();
        let is_plain = |name: &str| name.starts_with("socket:") || name == "/dev/null" || name.ends_with("server.log");
        assert!(held.iter().all(|name| is_plain(name)), "{held:?}");
        assert!(held.iter().filter(|name| name.starts_with("socket:")).count() <= 2, "{held:?}");
    }
    before.iter().for_each(|helper| kill(*helper, Signal::KILL));
    wait_for("the helpers' ends", || !before.iter().copied().any(lives));
    round("after");
    assert!(helpers_of(&vg).iter().all(|helper| !before.contains(helper)));
    is_thawed(&vg, &mounted);
    // With its server it ends.
    let last = helpers_of(&vg);
    let dead = vg.signal_server(Signal::KILL);
    wait_for("their ends", || !lives(dead) && !last.iter().copied().any(lives));
}

/// A signal is not waited for: a helper may be asked in the moment in which it is killed.
fn an_unread_request_is_another_helpers() {
    let (vg, mounted) = mounted();
    vg.snapshot("lv", "first");
    let idle = helpers_of(&vg);
    assert!(!idle.is_empty(), "none waits");
    idle.iter().for_each(|helper| kill(*helper, Signal::STOP));
    wait_for("the helpers' stop", || idle.iter().copied().all(is_stopped));
    let command = snapshot_begins(&vg, "s");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!command.is_finished(), "no helper was asked");
    idle.iter().for_each(|helper| kill(*helper, Signal::KILL));
    match command.join().unwrap() {
        Outcome::Error { message, .. } => panic!("{message}"),
        _ => is_thawed(&vg, &mounted),
    }
}
