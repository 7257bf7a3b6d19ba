//! `rowen history`, `events`, `features` and `support-bundle` over real groups.

use crate::world::{MIB, Running, World, tool};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Lines are written a moment after their commands.
fn until(world: &World, line: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let out = String::from_utf8(world.run(line).stdout).unwrap();
        if is_so(&out) {
            return out;
        }
        assert!(begun.elapsed() < LIMIT, "waited too long: {out}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn commands_are_listed_also_of_a_group_that_is_gone() {
    let world = World::new("hist", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    world.refused("lvcreate -y -L 8M -n lv VG", 5, "already exists");
    // What a command refuses by itself reaches no server.
    world.refused("lvrename VG lv VG2/x", 3, "same volume group");
    world.ok("lvchange -an VG/lv");
    world.ok("stop VG");
    world.ok("repair VG");
    let out = until(&world, "history -l VG", |out| out.contains("repair"));
    let commands: Vec<&str> = out.lines().skip(1).map(|line| line.split(" rowen ").nth(1).unwrap_or(line)).collect();
    let of = |word: &str| commands.iter().filter(|line| line.starts_with(word)).count();
    assert_eq!((of("vgcreate"), of("lvcreate"), of("lvchange"), of("stop"), of("repair")), (1, 1, 1, 1, 1), "{out}");
    assert!(out.contains("[user ") && out.contains(", process "), "{out}");
    world.ok("vgremove -f VG");
    let out = until(&world, "history VG", |out| out.contains("vgremove"));
    assert!(out.trim_end().ends_with(&format!("vgremove -f {}", world.group)), "{out}");
    world.refused("history VGx", 5, "There is no history");
}

#[test]
fn a_full_or_read_only_directory_holds_up_no_command() {
    let world = World::empty("nohist");
    let etc = world.dir.join("etc");
    fs::create_dir_all(etc.join("history")).unwrap();
    let history = etc.join("history");
    let mount = |options: &str| tool("mount", &["-t", "tmpfs", "-o", options, "none", history.to_str().unwrap()]);
    mount("size=8k,mode=700");
    let mounted = Unmounted(history.display().to_string());
    fs::write(history.join("fill"), vec![0; 4096]).unwrap();
    let _full = fs::write(history.join("fill2"), vec![0; 16384]);
    world.device("pv", 64 * MIB);
    // Nothing but a warning.
    let made = world.run("vgcreate VG pv");
    assert!(made.status.success());
    assert!(String::from_utf8_lossy(&made.stderr).contains("History of volume group"), "{made:?}");
    (0..3).for_each(|n| drop(world.ok(&format!("lvcreate -y -L 4M -n lv{n} VG"))));
    let log = || fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap();
    let begun = Instant::now();
    while !log().contains("cannot be kept") {
        assert!(begun.elapsed() < LIMIT, "{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    tool("mount", &["-o", "remount,ro", history.to_str().unwrap()]);
    (3..6).for_each(|n| drop(world.ok(&format!("lvcreate -y -L 4M -n lv{n} VG"))));
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let lines = log().lines().filter(|line| line.contains("cannot be kept")).count();
    assert!((1..=4).contains(&lines), "{}", log());
    drop(mounted);
}

struct Unmounted(String);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _shown = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// The directory lies on the group's own volume: after any death all come back (H1).
#[test]
fn a_history_on_the_groups_own_volume_hangs_nobody() {
    let world = World::new("own", 256);
    world.ok("lvcreate -y -L 128M -n lv VG");
    tool("mkfs.ext4", &["-q", world.node("lv").to_str().unwrap()]);
    let point = world.mount("lv", "defaults");
    fs::create_dir_all(point.join("history")).unwrap();
    fs::remove_dir_all(world.dir.join("etc/history")).unwrap();
    std::os::unix::fs::symlink(point.join("history"), world.dir.join("etc/history")).unwrap();
    for round in 0..10 {
        world.ok(&format!("lvcreate -y -L 4M -n other{round} VG"));
        let before = world.server().unwrap();
        tool("kill", &["-KILL", &before.to_string()]);
        world.ok(&format!("lvremove -y VG/other{round}"));
    }
    let out = until(&world, "history VG", |out| out.contains("lvremove -y"));
    assert!(out.contains("lvcreate"), "{out}");
    fs::remove_file(world.dir.join("etc/history")).unwrap();
    // A helper may be writing the last line, and has the file open.
    let begun = Instant::now();
    while !std::process::Command::new("umount").arg(&point).status().unwrap().success() {
        assert!(begun.elapsed() < LIMIT, "something keeps the volume in use");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn events_are_followed() {
    let world = World::new("follow", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    until(&world, "events VG", |out| out.contains("server-started"));
    let mut follower = world.command("events -f VG");
    let mut follower = Running(follower.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    let mut next = |kind: &str| loop {
        let line = lines.next().expect("it goes on").unwrap();
        if line.contains(kind) {
            return line;
        }
    };
    next(" server-started: ");
    let before = world.server().unwrap();
    tool("kill", &["-KILL", &before.to_string()]);
    next(" taken-over: taken over: lv");
    next(" server-started: ");
    // Another file: what was there is the older one.
    let history = world.dir.join("etc/history");
    let files = fs::read_dir(&history).unwrap().flatten().map(|entry| entry.path());
    let events = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "events")).unwrap();
    fs::rename(&events, format!("{}.old", events.display())).unwrap();
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    next(" server-ended: ");
    // Not SIGINT, which whoever runs this in the background may have had ignored.
    tool("kill", &["-TERM", &follower.0.id().to_string()]);
    assert!(!follower.0.wait().unwrap().success());
}

#[test]
fn a_group_of_a_later_version_is_named_and_left_alone() {
    let world = World::new("feat", 64);
    world.ok("stop VG");
    let out = world.ok("features VG");
    assert!(out.contains("format version 1; this program can open it"), "{out}");
    assert!(!world.dir.join("run").join(&world.group).join("control.sock").exists(), "no server was started");
    let path = world.dir.join("pv");
    let whole = fs::read(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    // All superblocks get a feature that nobody knows.
    for copy in [4096u64, 512 << 10] {
        for slot in 0..4 {
            let at = copy + slot * 4096;
            let mut block = whole[at as usize..at as usize + 4096].to_vec();
            if block.starts_with(b"ROWENPV1") {
                block[21] |= 1;
                rowen_engine::format::record::seal(&mut block, 8);
                file.write_all_at(&block, at).unwrap();
            }
        }
    }
    let before = fs::read(&path).unwrap();
    let output = world.run("features VG");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(5), "{out}");
    assert!(out.contains("this program cannot open it") && out.contains("bit 40"), "{out}");
    assert!(fs::read(&path).unwrap() == before, "to look writes nothing");
    for garbage in [0usize, 4096, 100_000] {
        file.write_all_at(&vec![0xff; garbage], 4096).unwrap();
        let output = world.run("features VG nosuch");
        assert_eq!(output.status.code(), Some(5), "{output:?}");
    }
    file.write_all_at(&whole, 0).unwrap();
    world.ok("features VG");
}

#[test]
fn a_support_bundle_holds_no_data_and_waits_for_nothing_that_hangs() {
    let world = World::new("bundle", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let secret = b"a secret in a volume";
    let node = File::options().write(true).open(world.node("lv")).unwrap();
    node.write_all_at(&secret.repeat(512)[..4096], 0).unwrap();
    node.sync_all().unwrap();
    drop(node);
    // A log that is a FIFO: an open of it waits.
    let run = world.dir.join("run").join(&world.group);
    rustix::fs::mkfifoat(rustix::fs::CWD, run.join("server.log.old"), 0o600.into()).unwrap();
    let output = world.run("support-bundle --output b.tar.gz");
    assert!(output.status.success(), "{output:?}");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("server.log.old: it did not end within 10 s"), "{err}");
    let list = tool("tar", &["-tzf", world.dir.join("b.tar.gz").to_str().unwrap()]);
    for part in ["README.txt", "rowen/status.json", "rowen/history.txt", "host/uname.txt", "server.log", "stats.txt"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    tool("tar", &["-xzf", world.dir.join("b.tar.gz").to_str().unwrap(), "-C", world.dir.to_str().unwrap()]);
    let mut all = Vec::new();
    for line in list.lines() {
        let mut bytes = Vec::new();
        File::open(world.dir.join(line)).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{line} has data of a volume");
        all.push((line.to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    let of = |name: &str| &all.iter().find(|(line, _)| line.ends_with(name)).unwrap().1;
    assert!(of("rowen/history.txt").contains("lvcreate"), "{}", of("rowen/history.txt"));
    assert!(of("rowen/status.json").contains("\"serving\""));
    world.refused("support-bundle --output b.tar.gz", 5, "File exists");
}
