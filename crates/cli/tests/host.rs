//! The commands on a real host: files as physical volumes, a server, block devices. Needs root, FUSE and loop devices.
//!
//! Rules A1, A2 and A3.
#![allow(clippy::unwrap_used, reason = "tests, helpers of tests included, end where something unexpected happens")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A world of its own, with one group's name that nothing else has. Dropped, it leaves nothing.
struct World {
    dir: PathBuf,
    group: String,
}

impl World {
    fn new(name: &str) -> World {
        assert!(is_root(), "these tests make block devices: run them as root");
        let group = format!("cli{name}{}", std::process::id());
        let dir = std::env::temp_dir().join(format!("rowen-{group}"));
        fs::create_dir_all(&dir).unwrap();
        World { dir, group }
    }

    fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.dir.join(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// Runs a command line in which `VG` stands for the group.
    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn command(&self, line: &str) -> Command {
        let words = line.split_whitespace().map(|word| word.replace("VG", &self.group));
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowen"));
        command
            .args(words)
            .current_dir(&self.dir)
            .env("ROWEN_SYSTEM_DIR", self.dir.join("etc"))
            .env("ROWEN_RUN_DIR", self.dir.join("run"))
            .stdin(Stdio::null());
        command
    }

    /// Makes the file of settings.
    fn set(&self, settings: &str) {
        fs::create_dir_all(self.dir.join("etc")).unwrap();
        fs::write(self.dir.join("etc/rowen.conf"), settings.replace("VG", &self.group)).unwrap();
    }

    /// The names of volumes that have a device.
    fn active(&self) -> String {
        self.ok("lvs --noheadings -o lv_name -S lv_active=active VG").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn attr(&self, volume: &str) -> String {
        self.ok(&format!("lvs --noheadings -o lv_attr VG/{volume}")).trim().to_owned()
    }

    /// Of a volume that this test has closed. A program that another test starts at this moment has, until it is executed,
    /// a copy of what this process had open: for so long the volume is in use.
    fn attr_of_closed(&self, volume: &str) -> String {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let attr = self.attr(volume);
            if attr.chars().nth(5) != Some('o') || Instant::now() > until {
                return attr;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{line}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The command must fail with this exit code, and say something with `words` in it.
    fn refused(&self, line: &str, code: i32, words: &str) {
        let output = self.run(line);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {err}");
        assert!(err.contains(&words.replace("VG", &self.group)), "{line}: {err}");
        assert!(!err.contains("panicked"), "{line}: {err}");
    }

    fn node(&self, volume: &str) -> PathBuf {
        Path::new("/dev").join(&self.group).join(volume)
    }

    /// Process numbers of the group's `serve` or `keeper`. Their children have the same words until they execute a helper.
    fn processes(&self, role: &str) -> Vec<i32> {
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        let words = format!("\0{role}\0{}\0", self.group);
        let found: Vec<i32> = pids
            .filter(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).ends_with(&words)
            })
            .collect();
        let is_child = |pid: &i32| parent(*pid).is_some_and(|parent| found.contains(&parent));
        found.iter().copied().filter(|pid| !is_child(pid)).collect()
    }

    /// Kills processes, all at one moment: none of them sees another's end.
    fn kill(&self, roles: &[&str]) {
        use rustix::process::{Pid, Signal, kill_process};
        let all: Vec<i32> = roles.iter().flat_map(|role| self.processes(role)).collect();
        assert_eq!(all.len(), roles.len(), "one process of each: {roles:?}");
        for signal in [Signal::STOP, Signal::KILL] {
            all.iter().for_each(|pid| kill_process(Pid::from_raw(*pid).unwrap(), signal).unwrap());
        }
        let until = Instant::now() + Duration::from_secs(10);
        while roles.iter().flat_map(|role| self.processes(role)).any(|pid| all.contains(&pid)) {
            assert!(Instant::now() < until, "{roles:?} do not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What is there of volumes' devices: mounts of their files, loop devices, and names.
    fn remains(&self) -> [usize; 3] {
        let inside = self.dir.join("run").display().to_string();
        let lines = |text: String| text.lines().filter(|line| line.contains(&inside)).count();
        let loops = Command::new("losetup").args(["-n", "-O", "BACK-FILE"]).output().unwrap().stdout;
        let names = fs::read_dir("/dev/mapper").unwrap().flatten();
        let prefix = format!("{}-", self.group);
        let names = names.filter(|name| name.file_name().to_string_lossy().starts_with(&prefix)).count();
        let links = fs::read_dir(Path::new("/dev").join(&self.group)).map_or(0, Iterator::count);
        let mounts = lines(fs::read_to_string("/proc/self/mounts").unwrap());
        [mounts, lines(String::from_utf8_lossy(&loops).into_owned()), names + links]
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _may_be_gone = self.run("vgremove -f VG");
        let _may_be_gone = self.run("stop VG");
        let _left = fs::remove_dir_all(&self.dir);
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

fn write(node: &Path, text: &[u8; 4]) {
    let file = File::options().write(true).open(node).unwrap();
    file.write_all_at(&text.repeat(1024), 0).unwrap();
    file.sync_all().unwrap();
}

fn read(node: &Path) -> [u8; 4] {
    let mut start = [0; 4];
    File::open(node).unwrap().read_exact_at(&mut start, 0).unwrap();
    start
}

#[test]
fn a_group_lives_from_pvcreate_to_pvremove() {
    let world = World::new("life");
    world.file("pv1", 256 << 20);
    world.file("pv2", 256 << 20);
    world.ok("pvcreate pv1");
    world.ok("vgcreate VG pv1");
    world.ok("vgextend VG pv2");
    world.ok("lvcreate -L 100M -n data VG");
    write(&world.node("data"), b"old.");
    world.ok("lvcreate -s -n before VG/data");
    world.ok("lvcreate -s -L 20M -n sized VG/data");
    world.ok("snapshot VG data --suffix nightly");
    write(&world.node("data"), b"new.");
    for snapshot in ["before", "sized", "data-nightly"] {
        assert_eq!(&read(&world.node(snapshot)), b"old.", "{snapshot}");
    }
    assert_eq!(&read(&world.node("data")), b"new.");

    world.ok("check VG");
    world.ok("stop VG");
    assert!(!world.node("data").exists(), "a node is left after the server ended");
    world.ok("check VG");
    world.ok("vgchange -ay VG");
    assert_eq!(&read(&world.node("data")), b"new.");

    world.ok("revert -y VG/data before");
    assert_eq!(&read(&world.node("data")), b"old.");
    world.ok("lvextend -L 120M VG/data");
    world.ok("lvrename VG data kept");
    assert!(world.node("kept").exists() && !world.node("data").exists());
    world.ok("lvremove -f VG/kept");
    assert_eq!(world.ok("lvs --noheadings -o lv_name --separator , VG"), "  before\n  data-nightly\n");
    assert_eq!(&read(&world.node("before")), b"old.");

    world.ok("lvcreate -T -L 40M VG/pool");
    world.ok("lvcreate -V 1G -n thin -T VG/pool");
    write(&world.node("thin"), b"thin");
    world.ok("lvcreate -s -n skipped VG/thin");
    assert!(!world.node("skipped").exists());
    world.ok("lvchange -ay -K VG/skipped");
    assert_eq!(&read(&world.node("skipped")), b"thin");

    world.ok("vgremove -f VG");
    assert!(!Path::new("/dev").join(&world.group).exists());
    world.ok("pvremove pv1 pv2");
    assert_eq!(world.ok("pvs"), "");
}

#[test]
fn what_a_killed_server_and_keeper_left_is_cleared_away_without_their_disks() {
    let world = World::new("left");
    for line in ["stop VG", "vgcreate VG other", "vgrename another VG"] {
        world.file("pv", 64 << 20);
        world.file("other", 64 << 20);
        world.ok("vgcreate VG pv");
        world.ok("lvcreate -L 8M -n data VG");
        world.ok("lvcreate -s -n before VG/data");
        if line.starts_with("vgrename") {
            world.ok("vgcreate another other");
        }
        world.kill(&["keeper", "serve"]);
        // Where the disk is, a server that is started puts things right.
        fs::remove_file(world.dir.join("pv")).unwrap();
        assert_eq!(world.remains(), [2, 2, 4], "{line}");
        let output = world.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(world.remains(), [0, 0, 0], "{line}");
        if line == "stop VG" {
            assert!(String::from_utf8_lossy(&output.stdout).contains("2 device(s)"), "{output:?}");
        } else {
            world.ok("vgremove VG");
        }
    }
}

#[test]
fn a_server_that_was_just_killed_is_stopped_when_its_successor_is_there() {
    let world = World::new("stop");
    world.file("pv", 64 << 20);
    world.ok("vgcreate VG pv");
    world.ok("lvcreate -L 8M -n data VG");
    world.kill(&["serve"]);
    world.ok("stop VG");
    assert_eq!((world.remains(), world.processes("serve"), world.processes("keeper")), ([0, 0, 0], vec![], vec![]));
}

#[test]
fn bad_input_is_refused_and_changes_no_byte() {
    let world = World::new("bad");
    let members = [world.file("pv1", 64 << 20), world.file("spare", 64 << 20), world.file("tiny", 8192)];
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -L 8M -n data VG");
    world.ok("stop VG");
    let before = members.each_ref().map(|path| fs::read(path).unwrap());

    world.refused("pvcreate tiny", 5, "too small");
    world.refused("pvcreate nosuch", 5, "No device found");
    world.refused("pvcreate pv1", 5, "of volume group \"VG\" without -ff");
    world.refused("pvremove pv1", 5, "please use vgreduce first");
    world.refused("vgcreate VG spare", 5, "already exists");
    world.refused("vgcreate other spare tiny", 5, "too small");
    world.refused("vgcreate other spare ./spare", 5, "more than once");
    world.refused("vgcreate null spare", 3, "already exists in filesystem");
    for (path, before) in members.iter().zip(&before) {
        assert!(fs::read(path).unwrap() == *before, "{} was changed", path.display());
    }

    world.refused("lvcreate -L 1T -n big VG", 5, "insufficient free space");
    world.refused("lvcreate -L 9999999999999999999E -n big VG", 3, "too big");
    world.refused("lvcreate -L 4M -n data VG", 5, "already exists");
    world.refused("lvcreate -L 4M -n a@b VG", 3, "is invalid");
    world.refused("lvcreate -s -n s VG/nosuch", 5, "not found");
    world.refused("lvextend -L 4E VG/data", 5, "Insufficient free space");
    world.refused("vgextend VG pv1", 5, "already in volume group");
    world.refused("lvs nosuch", 5, "Volume group \"nosuch\" not found");
    world.ok("vgchange -ay VG");
    let open = File::open(world.node("data")).unwrap();
    world.refused("lvremove -f VG/data", 5, "VG/data");
    world.refused("vgremove -f VG", 5, "VG/data");
    drop(open);
    assert_eq!(world.ok("lvs --noheadings -o lv_name --separator , VG"), "  data\n");
}

fn copies(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.dir.join("etc/archive")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Waits until the newest copy of the metadata has `words`, and returns it.
fn copy_with(world: &World, words: &str) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(world.dir.join("etc/backup").join(&world.group)).unwrap_or_default();
        if text.contains(words) {
            return text;
        }
        assert!(Instant::now() < until, "no copy with {words:?}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn changes_are_archived_and_can_be_taken_back() {
    let world = World::new("cfg");
    world.file("pv1", 256 << 20);
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -L 40M -n data VG");
    write(&world.node("data"), b"kept");
    let first = copy_with(&world, "data {");
    assert!(first.contains(&format!("executing 'rowen lvcreate -L 40M -n data {}'", world.group)), "{first}");

    world.ok("lvrename VG data other");
    world.ok("lvchange -pr VG/other");
    copy_with(&world, "other {");
    world.ok("stop VG");
    let newest = copy_with(&world, "status = [\"READ\", \"VISIBLE\"]");
    assert!(!newest.contains("data {"));
    let old = copies(&world).into_iter().find(|path| fs::read_to_string(path).unwrap().contains("data {")).unwrap();
    assert!(world.ok("vgcfgrestore --list VG").contains(old.to_str().unwrap()));

    let output = world.ok(&format!("vgcfgrestore -f {} VG", old.display()));
    assert!(output.contains("Restored volume group"), "{output}");
    world.ok("vgchange -ay VG");
    assert_eq!(&read(&world.node("data")), b"kept");
    write(&world.node("data"), b"new.");

    world.ok("lvcreate -An -L 4M -n unkept VG");
    world.ok("lvremove -f VG/data");
    world.refused(
        &format!("vgcfgrestore -f {} VG", old.display()),
        5,
        "VG/data was removed, and its contents are gone.",
    );
    world.ok("vgremove -f VG");
    assert!(!world.dir.join("etc/backup").join(&world.group).exists(), "the copy of a group that is gone is history");
}

#[test]
fn many_changes_cost_few_copies() {
    let world = World::new("many");
    world.file("pv1", 256 << 20);
    world.ok("vgcreate VG pv1");
    let begun = Instant::now();
    for n in 0..60 {
        world.ok(&format!("lvcreate -an -L 4M -n v{n} VG"));
        world.ok(&format!("lvremove -f VG/v{n}"));
    }
    world.ok("stop VG");
    // One a second, one at once, one at the end.
    let most = begun.elapsed().as_secs() as usize + 3;
    assert!(copies(&world).len() <= most, "{} copies in {:?}", copies(&world).len(), begun.elapsed());
}

#[test]
fn a_half_written_config_file_is_refused_and_the_volumes_go_on() {
    let world = World::new("conf");
    world.file("pv1", 64 << 20);
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -L 8M -n data VG");
    let config = world.dir.join("etc/rowen.conf");
    fs::write(&config, "monitor {\n\tthresholds = [80, ").unwrap();
    for line in ["lvs VG", "lvcreate -L 8M -n more VG", "lvremove -f VG/data", "pvcreate pv1"] {
        world.refused(line, 4, "Failed to load config file");
        world.refused(line, 4, "Parse error at byte 30 (line 2): expected a value");
    }
    write(&world.node("data"), b"here");
    world.ok("check VG");
    world.ok("stop VG");
    fs::write(&config, "# nothing is set\n").unwrap();
    assert_eq!(world.ok("lvs --noheadings -o lv_name VG"), "  data\n");
}

#[test]
fn lists_say_what_is_activated() {
    let world = World::new("lists");
    world.file("pv1", 128 << 20);
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -L 8M -n one VG");
    world.ok("lvcreate -L 8M -n two --addtag t VG");
    world.ok("lvcreate -L 4M -s -n kept VG/two");
    world.ok("vgchange -an VG");

    world.set("activation { volume_list = [\"VG/one\"] auto_activation_volume_list = [] }");
    world.ok("vgchange -aay VG");
    assert_eq!(world.active(), "");
    world.ok("vgchange -ay VG");
    assert_eq!(world.active(), "one");
    world.ok("lvchange -ay VG/two");
    assert_eq!(world.active(), "one");
    world.refused(
        "lvcreate -L 8M -n three VG",
        5,
        "Volume VG/three is not active locally (volume_list activation filter?).",
    );
    world.refused("lvcreate -L 4M -s -n three VG/one", 5, "Aborting. Failed to wipe snapshot exception store.");
    world.refused("lvcreate -L 8M -T VG/pool", 5, "is not active locally");
    assert_eq!(
        world.ok("lvs --noheadings -o lv_name VG").split_whitespace().collect::<Vec<_>>(),
        ["kept", "one", "two"]
    );

    // A snapshot with a size goes with its origin.
    world.ok("lvchange -ay --config activation/volume_list=[\"@t\"] VG/two");
    assert_eq!(world.active(), "kept one two");
    world.ok("vgchange -an VG");

    // LVM's file, where it is named, comes before; what it has of others' settings does nothing.
    let lvms = world.dir.join("lvm");
    fs::create_dir_all(&lvms).unwrap();
    fs::write(
        lvms.join("lvm.conf"),
        "devices { filter = [\"r|.*|\"] }\nactivation { volume_list = [\"@*\"] }\ntags { t {} }\n",
    )
    .unwrap();
    let dir = lvms.display().to_string();
    let output = world.command("vgchange -ay VG").env("LVM_SYSTEM_DIR", &dir).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(world.active(), "kept two");
    fs::write(lvms.join("lvm.conf"), "activation {").unwrap();
    let output = world.command("vgchange -an VG").env("LVM_SYSTEM_DIR", &dir).output().unwrap();
    let said =
        format!("  Parse error at byte 13 (line 1): unexpected token\n  Failed to load config file {dir}/lvm.conf\n");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()), (Some(4), said));
    assert_eq!(world.active(), "kept two");
}

#[test]
fn what_a_list_makes_read_only_stays_so_when_the_server_dies() {
    let world = World::new("rolist");
    world.file("pv1", 64 << 20);
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -L 8M -n data VG");
    write(&world.node("data"), b"old.");
    assert_eq!(world.attr_of_closed("data"), "-wi-a-----");
    world.ok("lvchange -ay --config activation/read_only_volume_list=[\"VG\"] VG/data");
    assert_eq!(world.attr_of_closed("data"), "-Ri-a-----");
    let is_writable = || {
        let write = |file: File| file.write_all_at(&[1; 4096], 0).and_then(|()| file.sync_all());
        File::options().write(true).open(world.node("data")).and_then(write).is_ok()
    };
    assert!(!is_writable(), "a volume of the list can be written to");
    let pid = || fs::read_to_string(world.dir.join("run").join(&world.group).join("server.pid")).unwrap_or_default();
    let first = pid();
    assert!(Command::new("kill").args(["-9", first.trim()]).status().unwrap().success());
    let until = Instant::now() + Duration::from_secs(60);
    while pid() == first || pid().is_empty() {
        assert!(Instant::now() < until, "no server took over");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(world.attr_of_closed("data"), "-Ri-a-----");
    assert!(!is_writable(), "the successor made it writable");
    world.ok("lvchange --refresh VG/data");
    assert_eq!(world.attr_of_closed("data"), "-wi-a-----");
    write(&world.node("data"), b"new.");
    world.ok("lvchange -ay --config activation/read_only_volume_list=[\"VG\"] VG/data");
    assert_eq!(world.attr_of_closed("data"), "-Ri-a-----");
    world.ok("vgchange --refresh VG");
    assert_eq!(world.attr_of_closed("data"), "-wi-a-----");
}

#[test]
fn writes_that_wait_for_room_in_a_pool_for_too_long_fail() {
    let world = World::new("full");
    world.file("pv1", 256 << 20);
    world.set("server/no_space_timeout = 1");
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -T -L 8M VG/pool");
    world.run("lvcreate -V 64M -n thin -T VG/pool");
    let device = File::options().write(true).open(world.node("thin")).unwrap();
    let write = |at: u64| {
        device.write_all_at(&[7; 4 << 20], at)?;
        device.sync_all()
    };
    write(0).unwrap();
    write(4 << 20).unwrap();
    write(8 << 20).unwrap_err();
    assert_eq!(world.attr("pool"), "twi-aotzD-");
    write(12 << 20).unwrap_err();
    let log = || fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !log().contains("fail until there is room") {
        assert!(Instant::now() < until, "the log says nothing: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    world.run("lvextend -L 32M VG/pool");
    assert_eq!(world.attr("pool"), "twi-aotz--");
    write(16 << 20).unwrap();
}

#[test]
fn a_group_that_fills_up_is_reported_and_the_administrators_program_is_run() {
    let world = World::new("warn");
    world.file("pv1", 256 << 20);
    let (program, output) = (world.dir.join("alert"), world.dir.join("told"));
    fs::write(&program, format!("#!/bin/sh\necho \"$@\" >>{}\n", output.display())).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir_all(world.dir.join("etc")).unwrap();
    let settings = format!("monitor {{\n thresholds = [50]\n command = \"{}\"\n}}\n", program.display());
    fs::write(world.dir.join("etc/rowen.conf"), settings).unwrap();
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -T -L 100M VG/pool");
    world.ok("lvcreate -V 1G -n thin -T VG/pool");
    for _ in 0..2 {
        let output = world.run("lvcreate -L 140M -n thick VG");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("% full"), "{said}");
        world.ok("lvremove -f VG/thick");
    }
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&output).is_ok_and(|text| text.starts_with(&world.group)) {
        assert!(Instant::now() < until, "the program was not run");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills the server that a test runs in the foreground, if the test did not get to its end.
struct Foreground(std::process::Child);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _may_have_ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn the_service_manager_is_notified_who_serves() {
    let world = World::new("notify");
    world.file("pv1", 64 << 20);
    world.ok("vgcreate VG pv1");
    world.ok("stop VG");
    let path = world.dir.join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // It says that it lives, too, whenever it likes.
    let output = || loop {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        let output = String::from_utf8(buffer[..length].to_vec()).unwrap();
        // The report also says that it lives, and what its keeper has.
        if output.trim_end() != "WATCHDOG=1" && !output.starts_with("FDSTORE") {
            break output;
        }
    };
    let server = Command::new(env!("CARGO_BIN_EXE_rowen"))
        .args(["serve", &world.group])
        .env("ROWEN_SYSTEM_DIR", world.dir.join("etc"))
        .env("ROWEN_RUN_DIR", world.dir.join("run"))
        .env("NOTIFY_SOCKET", &path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Foreground(server);
    let first = output();
    assert!(first.contains("READY=1\n") && first.contains(&format!("MAINPID={}\n", server.0.id())), "{first}");

    world.ok("lvcreate -L 8M -n data VG");
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let second = output();
    assert!(second.contains("READY=1\n") && !second.contains(&format!("MAINPID={}\n", server.0.id())), "{second}");
    write(&world.node("data"), b"here");

    // The service is started while a successor serves: that one is the service.
    let other = Command::new(env!("CARGO_BIN_EXE_rowen"))
        .args(["serve", &world.group])
        .env("ROWEN_SYSTEM_DIR", world.dir.join("etc"))
        .env("ROWEN_RUN_DIR", world.dir.join("run"))
        .env("NOTIFY_SOCKET", &path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(other.success());
    assert_eq!(output(), second, "the successor's number is told again");
    world.ok("stop VG");
    assert_eq!(output(), "STOPPING=1\n");
}

#[test]
fn a_physical_volume_in_a_file_can_come_from_elsewhere() {
    let world = World::new("moved");
    world.file("pv1", 64 << 20);
    world.ok("vgcreate VG pv1");
    world.ok("lvcreate -L 8M -n data VG");
    write(&world.node("data"), b"kept");
    world.ok("stop VG");
    fs::remove_file(world.dir.join("etc/devices")).unwrap();
    fs::rename(world.dir.join("pv1"), world.dir.join("pv2")).unwrap();
    assert_eq!(world.ok("vgs"), "", "nobody knows where the file is");
    world.refused("lvmdevices --adddev nosuch", 5, "No physical volume label read from");
    let unlabelled = world.file("plain", 1 << 20);
    world.refused(&format!("lvmdevices --adddev {}", unlabelled.display()), 5, "Failed to add device");
    world.ok("lvmdevices --adddev pv2");
    assert!(world.ok("lvmdevices").contains(&format!("DEVNAME={}/pv2 PVID=", world.dir.display())));
    world.ok("vgchange -ay VG");
    assert_eq!(&read(&world.node("data")), b"kept");
    world.ok("vgremove -f VG");
    world.ok("lvmdevices --deldev pv2");
    world.refused("lvmdevices --deldev pv2", 5, "No devices file entry");
    assert_eq!(world.ok("lvmdevices"), "");
}

#[test]
fn the_archive_is_bounded() {
    let world = World::new("bound");
    world.file("pv1", 64 << 20);
    world.ok("vgcreate VG pv1");
    world.ok("vgcfgbackup VG");
    let archive = world.dir.join("etc/archive");
    fs::create_dir_all(&archive).unwrap();
    let make = |number: u32, days: u64| {
        let file = File::create(archive.join(format!("{}_{number:05}-1.vg", world.group))).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(days * 86_400)).unwrap();
    };
    let others = archive.join(format!("{}x_00001-1.vg", world.group));
    File::create(&others).unwrap();
    (1000..1150).for_each(|number| make(number, 1));
    world.ok("vgcfgbackup VG");
    // The newest copy went into the archive as well, as number 1150. Another group's copy is counted, too.
    assert_eq!(copies(&world).len(), 100 + 1);
    assert!(!archive.join(format!("{}_01050-1.vg", world.group)).exists());
    assert!(archive.join(format!("{}_01051-1.vg", world.group)).exists());

    (1000..1150).for_each(|number| make(number, 40));
    world.ok("vgcfgbackup VG");
    assert_eq!(copies(&world).len(), 10 + 1, "what is old goes, but for the last ten");
    world.ok("vgcfgbackup --config backup/retain_min=3 VG");
    assert_eq!(copies(&world).len(), 3 + 1, "but for the last three, as the command line has it");
    assert!(others.exists(), "another group's copies are left alone");
}

#[test]
fn volumes_laid_out_for_reading_are_filled_while_a_snapshot_is_held() {
    const BLOCK: u64 = 4096;
    let world = World::new("fill");
    world.file("pv", 256 << 20);
    world.ok("vgcreate VG pv");
    world.ok("lvcreate -L 8M -n read --addtag layout=read VG");
    world.ok("lvcreate -L 8M -n usual VG");
    let exclusive = |volume: &str| -> u64 {
        let size = world.ok(&format!("lvs --noheadings --nosuffix --units b -o lv_exclusive VG/{volume}"));
        size.trim().parse().unwrap()
    };
    for volume in ["read", "usual"] {
        let device = File::options().write(true).open(world.node(volume)).unwrap();
        device.write_all_at(&vec![1; 8 << 20], 0).unwrap();
        device.sync_all().unwrap();
        world.ok(&format!("lvcreate -s -n before-{volume} VG/{volume}"));
        for block in (0..2048).step_by(3) {
            device.write_all_at(&[2; BLOCK as usize], block * BLOCK).unwrap();
        }
        device.sync_all().unwrap();
    }
    // The waits end when the machine is slow, too: only a group that does nothing makes them long.
    let filled = |volume: &str| {
        let until = Instant::now() + Duration::from_secs(120);
        while exclusive(volume) < 2048 * BLOCK && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        exclusive(volume) == 2048 * BLOCK
    };
    assert!(filled("read"), "{}", world.ok("stats VG"));
    assert_eq!(exclusive("usual"), 683 * BLOCK);
    assert_eq!(
        world.ok("lvs --noheadings -o lv_laid_out_for VG/read VG/usual").split_whitespace().collect::<Vec<_>>(),
        ["read", "auto"]
    );
    world.ok("lvchange --addtag layout=read VG/usual");
    assert!(filled("usual"), "{}", world.ok("stats VG"));
    for volume in ["read", "usual"] {
        for (name, second) in [(format!("before-{volume}"), 1), (volume.to_owned(), 2)] {
            let mut all = vec![0; 8 << 20];
            File::open(world.node(&name)).unwrap().read_exact_at(&mut all, 0).unwrap();
            let is_right = |(n, block): (usize, &[u8])| {
                let byte = if n % 3 == 0 { second } else { 1 };
                block.iter().all(|b| *b == byte)
            };
            assert!(all.chunks(BLOCK as usize).enumerate().all(is_right), "{name}");
        }
    }
    world.ok("check VG");
}
