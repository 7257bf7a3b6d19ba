//! What lies on volumes: loop devices, filesystems, other groups. A server that comes back must not look at what it is to serve,
//! nor at what another group is to serve.

use super::Test;
use super::world::{MIB, Mounted, Pause, Vg, file, keeper_of, kill, lives, run, unmounted, wait_for, within};
use rowen_control::protocol::{ErrorKind, Outcome, Request, VolumeKind};
use rowen_control::uuids;
use rowen_host::devices::{self, Consent};
use rowen_host::{paths, server, settings};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("stacks::a_device_that_hangs_keeps_no_server_from_coming_back", a_hanging_device_keeps_no_server_away),
    ("stacks::settings_that_hang_keep_no_server_away", settings_that_hang_keep_no_server_away),
    ("stacks::a_device_that_hangs_keeps_no_server_from_what_joined", a_hanging_device_keeps_no_server_from_what_joined),
    ("stacks::a_hanging_device_keeps_no_renamed_group_away", a_hanging_device_keeps_no_renamed_group_away),
    ("stacks::a_loop_device_over_a_file_on_a_volume_is_not_looked_at", a_loop_device_on_a_volume_is_not_looked_at),
    ("stacks::a_group_on_another_groups_volume_comes_back", a_group_on_another_groups_volume_comes_back),
    ("stacks::a_group_is_not_extended_onto_its_own_volume", a_group_is_not_extended_onto_its_own_volume),
    ("stacks::no_two_groups_lie_on_volumes_of_each_other", no_two_groups_lie_on_volumes_of_each_other),
    ("stacks::a_device_that_hangs_is_refused", a_device_that_hangs_is_refused),
    ("stacks::a_device_that_hangs_when_it_is_opened_is_refused", a_device_that_hangs_when_it_is_opened_is_refused),
    ("stacks::two_groups_do_not_take_each_others_volumes_at_once", two_groups_do_not_take_each_others_volumes_at_once),
];

/// Stopped processes go on when this is dropped.
pub struct Stopped(Vec<i32>);

impl Stopped {
    pub fn all_of(vg: &Vg) -> Stopped {
        let stopped = Stopped(vec![keeper_of(vg), vg.server()]);
        stopped.0.iter().for_each(|pid| kill(*pid, Signal::STOP));
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| kill(*pid, Signal::CONT));
    }
}

/// Kills the server, and waits until it has ended and another serves.
fn killed(vg: &Vg) {
    let dead = vg.signal_server(Signal::KILL);
    wait_for("the dead server's end", || !lives(dead));
    wait_for("a successor", || vg.server() != dead && server::connect(&vg.name).is_ok_and(|client| client.is_some()));
}

fn write(point: &Path) {
    let line = format!("date > {0}/file && sync {0}/file", point.display());
    let output = within(60, "sh", &["-c", &line]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn a_hanging_device_keeps_no_server_away() {
    let (hangs, vg) = (Vg::make(&[64 * MIB]), Vg::make(&[64 * MIB]));
    let node = hangs.create("lv", VolumeKind::Thin, 16 * MIB, true);
    vg.create("lv", VolumeKind::Thin, 16 * MIB, true);
    devices::file::remember(uuids::fresh(), &node).unwrap();
    let stopped = Stopped::all_of(&hangs);
    killed(&vg);
    assert_eq!(vg.names(), ["lv"]);
    drop(stopped);
    // With its server back, it is looked at as any other.
    assert!(devices::scan().unwrap().group(&vg.name).is_ok());
    devices::file::forget(&node).unwrap();
}

/// H14: the settings come to nobody, as those on a volume of this group would not, whose server was just killed.
fn settings_that_hang_keep_no_server_away() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("lv", VolumeKind::Thin, 16 * MIB, true);
    let pause = Pause::at("settings");
    let begun = Instant::now();
    killed(&vg);
    File::options().write(true).open(node).and_then(|file| file.write_all_at(&[7; 4096], 0)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(vg.log().contains("the settings of the server before it are used"), "{}", vg.log());
    // They come at last.
    fs::write(settings::path(), "server { no_space_timeout = 8 }\n").unwrap();
    drop(pause);
    wait_for("the settings", || vg.log().contains("the settings were read again"));
    fs::remove_file(settings::path()).unwrap();
}

/// H9: the server is killed when the labels name what joined, and the list of members does not.
fn a_hanging_device_keeps_no_server_from_what_joined() {
    let (hangs, mut vg) = (Vg::make(&[64 * MIB]), Vg::make(&[64 * MIB]));
    let node = hangs.create("lv", VolumeKind::Thin, 16 * MIB, true);
    let mut first = serve_with(&vg, &node);
    vg.create("lv", VolumeKind::Thin, 16 * MIB, true);
    devices::file::remember(uuids::fresh(), &node).unwrap();
    let new = file(64 * MIB);
    vg.files.push(new.clone());
    let pause = Pause::at("joined");
    let (group, path) = (vg.name.clone(), new.to_str().unwrap().to_owned());
    let command = std::thread::spawn(move || {
        let mut client = server::ensure_running(&group).unwrap();
        client.ask(&Request::AddPv { paths: vec![path] }, &mut |_| {})
    });
    let dead = pause.wait();
    assert_eq!(devices::members::read(&vg.name).len(), 1);
    let stopped = Stopped::all_of(&hangs);
    kill(dead, Signal::KILL);
    drop(pause);
    first.wait().unwrap();
    wait_for("a successor", || vg.server() != dead && server::connect(&vg.name).is_ok_and(|client| client.is_some()));
    drop(stopped);
    command.join().unwrap();
    assert_eq!(vg.report().pvs.len(), 2);
    assert_eq!(devices::members::read(&vg.name).len(), 2);
    assert!(!paths::joining_in(&paths::group_dir(&vg.name)).exists());
    devices::file::forget(&node).unwrap();
}

/// H9: the server is killed while it gives its group another name.
fn a_hanging_device_keeps_no_renamed_group_away() {
    for step in ["names made", "disks renamed", "directory moved"] {
        let (hangs, mut vg) = (Vg::make(&[64 * MIB]), Vg::make(&[64 * MIB]));
        let node = hangs.create("lv", VolumeKind::Thin, 16 * MIB, true);
        vg.create("lv", VolumeKind::Thin, 16 * MIB, true);
        let pause = Pause::at(step);
        let (from, to) = (vg.name.clone(), format!("{}x", vg.name));
        let request = Request::RenameGroup { to: to.clone() };
        let (group, request) = (from.clone(), request);
        let command = std::thread::spawn(move || {
            let mut client = server::ensure_running(&group).unwrap();
            client.ask(&request, &mut |_| {})
        });
        let dead = pause.wait();
        devices::file::remember(uuids::fresh(), &node).unwrap();
        let stopped = Stopped::all_of(&hangs);
        kill(dead, Signal::KILL);
        drop(pause);
        vg.name = if step == "names made" { from } else { to };
        wait_for("a successor", || server::connect(&vg.name).is_ok_and(|client| client.is_some()));
        drop(stopped);
        let _answer = command.join().unwrap();
        assert_ne!(vg.server(), dead);
        devices::file::forget(&node).unwrap();
    }
}

/// A server that waits a second for a device.
fn impatient(vg: &Vg) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.args(["serve", &vg.name]).env("ROWEN_PROBE_SECONDS", "1");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the server", || server::connect(&vg.name).unwrap().is_some());
    child
}

/// The program in another role: `pvcreate PATH`. Says what is refused.
pub fn pvcreate_as_a_command(path: &str) -> ExitCode {
    let made = devices::pvcreate(Path::new(path), uuids::fresh(), Consent { force: 0, yes: true });
    println!("{}", made.err().map_or(String::new(), |refusal| refusal.to_string()));
    ExitCode::SUCCESS
}

const SILENT: &str = "does not answer. Check the device, or the server of the group that it lies on, and try again.";

/// The server goes on after a refusal, and can be killed.
fn goes_on(vg: &Vg, mut first: Child) {
    assert_eq!(vg.report().pvs.len(), 1);
    vg.create("lv", VolumeKind::Thin, 16 * MIB, true);
    killed(vg);
    first.wait().unwrap();
}

fn a_device_that_hangs_is_refused() {
    let (hangs, vg) = (Vg::make(&[128 * MIB]), Vg::make(&[64 * MIB]));
    let node = hangs.create("lv", VolumeKind::Thick, 64 * MIB, true);
    let first = impatient(&vg);
    let stopped = Stopped::all_of(&hangs);
    let node = node.to_str().unwrap();
    let (kind, message) = vg.refusal(Request::AddPv { paths: vec![node.to_owned()] });
    assert!(kind == ErrorKind::Io && message.ends_with(SILENT), "{message}");
    goes_on(&vg, first);
    let program = std::env::current_exe().unwrap();
    let told = within(60, "env", &["ROWEN_PROBE_SECONDS=1", program.to_str().unwrap(), "pvcreate", node]);
    drop(stopped);
    let refusal = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(refusal.trim().ends_with(SILENT), "{told:?}");
}

fn a_device_that_hangs_when_it_is_opened_is_refused() {
    let (hangs, vg) = (Vg::make(&[128 * MIB]), Vg::make(&[64 * MIB]));
    let node = hangs.create("lv", VolumeKind::Thick, 64 * MIB, true);
    let first = impatient(&vg);
    let pause = Pause::at("opening");
    let (group, path) = (vg.name.clone(), node.to_str().unwrap().to_owned());
    let command = std::thread::spawn(move || {
        let mut client = server::ensure_running(&group).unwrap();
        client.ask(&Request::AddPv { paths: vec![path] }, &mut |_| {})
    });
    pause.wait();
    let stopped = Stopped::all_of(&hangs);
    drop(pause);
    wait_for("a refusal", || command.is_finished());
    match command.join().unwrap() {
        Outcome::Error { kind: ErrorKind::Io, message } => assert!(message.ends_with(SILENT), "{message}"),
        other => panic!("{other:?}"),
    }
    goes_on(&vg, first);
    drop(stopped);
}

/// A server that sees this block device, and its keeper and successors with it.
fn serve_with(vg: &Vg, device: &Path) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.args(["serve", &vg.name]).env("ROWEN_SCAN_DEVICES", device).env("ROWEN_PROBE_SECONDS", "600");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the server", || server::connect(&vg.name).unwrap().is_some());
    child
}

fn a_loop_device_on_a_volume_is_not_looked_at() {
    let vg = Vg::make(&[256 * MIB]);
    let (mounted, number);
    number = Numbered::new();
    let device = number.path();
    let mut first = serve_with(&vg, &device);
    mounted = Mounted::ext4(&vg.create("lv", VolumeKind::Thick, 64 * MIB, true));
    let file = mounted.point.join("image");
    // Holes would be read without the volume.
    fs::write(&file, vec![7; 16 << 20]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let name = device.to_str().unwrap();
    run("losetup", &["--direct-io=on", name, file.to_str().unwrap()]);
    for knows_members in [true, false] {
        if !knows_members {
            fs::remove_file(paths::members(&vg.name)).unwrap();
        }
        let dead = vg.signal_server(Signal::KILL);
        wait_for("the dead server's end", || !lives(dead));
        write(&mounted.point);
        wait_for("a successor", || server::connect(&vg.name).is_ok_and(|client| client.is_some()));
    }
    first.wait().unwrap();
}

/// A loop device with a number that nobody else takes, so that it has a name before it is there. Dropped, it is taken away.
struct Numbered {
    number: u32,
    control: File,
}

// linux/loop.h
const LOOP_CTL_REMOVE: libc::c_ulong = 0x4C81;

impl Numbered {
    fn new() -> Numbered {
        let control = File::options().read(true).write(true).open("/dev/loop-control").unwrap();
        let device = Numbered { number: 2000 + std::process::id() % 10_000, control };
        // Not every /dev gets its nodes from the kernel. The device itself comes with its file: free, it would be anybody's.
        if !device.path().exists() {
            run("mknod", &[device.path().to_str().unwrap(), "b", "7", &device.number.to_string()]);
        }
        device
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    fn remove(&self) -> std::io::Result<()> {
        // SAFETY: the request takes a plain number.
        match unsafe { libc::ioctl(self.control.as_raw_fd(), LOOP_CTL_REMOVE as _, self.number) } {
            result if result >= 0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("-d").arg(self.path()).stderr(Stdio::null()).status());
        let is_going = |e: std::io::Error| e.raw_os_error() == Some(libc::EBUSY);
        for _ in 0..500 {
            if !self.remove().is_err_and(is_going) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(fs::remove_file(self.path()));
    }
}

/// The groups' names change with each test: what the lower one carries is a file of the upper one.
fn a_group_on_another_groups_volume_comes_back() {
    let lower = Vg::make(&[512 * MIB]);
    let below = Mounted::ext4(&lower.create("lv", VolumeKind::Thick, 384 * MIB, true));
    let image = below.point.join("pv.img");
    File::create(&image).unwrap().set_len(256 * MIB).unwrap();
    let name = format!("{}upper", lower.name);
    devices::vgcreate(&name, uuids::fresh(), 1024, &[(image, uuids::fresh())], Some(16), Consent::default()).unwrap();
    let upper = Vg { name, files: Vec::new() };
    let above = Mounted::ext4(&upper.create("lv", VolumeKind::Thick, 64 * MIB, true));
    write(&above.point);
    killed(&upper);
    write(&above.point);
    killed(&lower);
    write(&above.point);
    let both = [lower.signal_server(Signal::KILL), upper.signal_server(Signal::KILL)];
    wait_for("the dead servers' ends", || !both.into_iter().any(lives));
    write(&above.point);
    // Their keepers as well: what is mounted is lost, the groups are not.
    let mut all = vec![keeper_of(&lower), keeper_of(&upper)];
    all.iter().for_each(|pid| kill(*pid, Signal::STOP));
    all.extend([lower.signal_server(Signal::KILL), upper.signal_server(Signal::KILL)]);
    all.iter().for_each(|pid| kill(*pid, Signal::KILL));
    wait_for("the ends of all", || !all.iter().copied().any(lives));
    for mounted in [&above, &below] {
        unmounted(&mounted.point);
    }
    for (vg, mounted) in [(&lower, &below), (&upper, &above)] {
        assert_eq!(vg.names(), ["lv"]);
        let (node, point) = (vg.node("lv"), mounted.point.to_str().unwrap());
        assert!(within(60, "mount", &[node.to_str().unwrap(), point]).status.success());
        write(&mounted.point);
    }
    drop(above);
    drop(upper);
}

fn a_group_is_not_extended_onto_its_own_volume() {
    let vg = Vg::make(&[512 * MIB]);
    let mounted = Mounted::ext4(&vg.create("lv", VolumeKind::Thick, 256 * MIB, true));
    vg.create("raw", VolumeKind::Thin, 64 * MIB, true);
    let image = mounted.point.join("pv.img");
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    for path in [image, vg.node("raw")] {
        let path = path.to_str().unwrap().to_owned();
        let (kind, message) = vg.refusal(Request::AddPv { paths: vec![path] });
        assert!(kind == ErrorKind::Invalid && message.ends_with("it lies on a volume of this group."), "{message}");
    }
}

/// The lower group's volume carries the upper group's physical volume, as a block device. The upper group's volume carries a
/// filesystem with a file that the lower group is to take.
fn no_two_groups_lie_on_volumes_of_each_other() {
    let lower = Vg::make(&[512 * MIB]);
    let node = lower.create("lv", VolumeKind::Thick, 384 * MIB, true);
    let name = format!("{}upper", lower.name);
    devices::vgcreate(&name, uuids::fresh(), 1024, &[(node, uuids::fresh())], Some(16), Consent::default()).unwrap();
    let upper = Vg { name, files: Vec::new() };
    let above = Mounted::ext4(&upper.create("lv", VolumeKind::Thick, 128 * MIB, true));
    let image = above.point.join("pv.img");
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let path = image.to_str().unwrap().to_owned();
    let (kind, message) = lower.refusal(Request::AddPv { paths: vec![path] });
    assert!(kind == ErrorKind::Invalid && message.ends_with("it lies on a volume of this group."), "{message}");
    drop(above);
    drop(upper);
}

/// Each looks what the other's volume lies on before either has taken it.
fn two_groups_do_not_take_each_others_volumes_at_once() {
    let lower = Vg::make(&[256 * MIB]);
    let upper = Vg::make(&[256 * MIB]);
    let (low, high) =
        (lower.create("lv", VolumeKind::Thick, 64 * MIB, true), upper.create("lv", VolumeKind::Thick, 64 * MIB, true));
    let taken = |path: &Path| Request::AddPv { paths: vec![path.to_str().unwrap().to_owned()] };
    let pause = Pause::at("looked below");
    let (group, request) = (upper.name.clone(), taken(&low));
    let first = std::thread::spawn(move || {
        let mut client = server::ensure_running(&group).unwrap();
        client.ask(&request, &mut |_| {})
    });
    pause.wait();
    let (group, request) = (lower.name.clone(), taken(&high));
    let second = std::thread::spawn(move || {
        let mut client = server::ensure_running(&group).unwrap();
        client.ask(&request, &mut |_| {})
    });
    // A second server that comes to that step would pause there, too.
    std::thread::sleep(Duration::from_millis(1500));
    drop(pause);
    let deadline = Instant::now() + Duration::from_secs(15);
    while !(first.is_finished() && second.is_finished()) {
        if Instant::now() > deadline {
            // Groups that wait for each other cannot be removed: the world's end does that.
            std::mem::forget((lower, upper));
            panic!("the groups wait for each other");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (first, second) = (first.join().unwrap(), second.join().unwrap());
    match second {
        Outcome::Error { kind: ErrorKind::Invalid, message } => {
            assert!(message.ends_with("it lies on a volume of this group."), "{message}");
        }
        other => panic!("the second: {other:?}, the first: {first:?}"),
    }
    assert!(matches!(first, Outcome::Ok), "{first:?}");
    for vg in [&lower, &upper] {
        assert!(!paths::joining_in(&paths::group_dir(&vg.name)).exists());
    }
    killed(&upper);
    assert_eq!(upper.report().pvs.len(), 2);
    drop(upper);
}
