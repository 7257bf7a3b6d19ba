//! `rowen status` over groups with which something is wrong: it names it within two seconds, and shows the others.

use crate::world::{MIB, Running, Stopped, World, tool};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the command promises, and what a loaded machine takes to start it.
const PROMISED: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(60);

/// What the command prints, and its exit code, in the time that it promises.
fn status(world: &World, line: &str) -> (String, i32) {
    let begun = Instant::now();
    let output = world.run(line);
    let took = begun.elapsed();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(took < PROMISED, "{line} took {took:?}: {out}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (out, output.status.code().unwrap())
}

fn until(world: &World, line: &str, mut is_so: impl FnMut(&str, i32) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let (out, code) = status(world, line);
        if is_so(&out, code) {
            return out;
        }
        assert!(begun.elapsed() < LIMIT, "waited too long: {out}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What a command that fails says, and its exit code.
fn refusal(world: &World, line: &str) -> (String, i32) {
    let output = world.run(line);
    (String::from_utf8(output.stderr).unwrap(), output.status.code().unwrap())
}

fn keeper(world: &World) -> String {
    let log = fs::read_to_string(world.dir.join("run").join(&world.group).join("keeper.log")).unwrap();
    log.lines().rev().find_map(|line| Some(line.split_once(" started, process ")?.1.to_owned())).unwrap()
}

fn kill(signal: &str, pid: impl ToString) {
    tool("kill", &[signal, &pid.to_string()]);
}

/// A server that finds its keeper gone starts another, and a keeper another server: one that is stopped starts none.
pub fn kill_both(world: &World) {
    let (keeper, server) = (keeper(world), world.server().unwrap());
    kill("-STOP", &keeper);
    kill("-KILL", server);
    kill("-KILL", keeper);
}

#[test]
fn a_group_is_well_whether_or_not_it_is_served() {
    let world = World::new("well", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let (out, code) = status(&world, "status");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(&format!("group: {}", world.group)), "{out}");
    assert!(out.contains("state: serving: 1 active volume of 1"), "{out}");
    assert!(out.contains(&format!("server {}", world.server().unwrap())), "{out}");
    assert!(out.contains(&format!("keeper {}", keeper(&world))), "{out}");
    assert_eq!(status(&world, "status -x").0, "  all groups are healthy\n");
    // A second of two groups, which nobody serves. To look starts no server, and writes nothing.
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let pv = world.dir.join("pv");
    let before = fs::read(&pv).unwrap();
    let (out, code) = status(&world, "status VG");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("state: not running") && out.contains("/pv") && !out.contains("runs:"), "{out}");
    assert_eq!(fs::metadata(&pv).unwrap().len(), 64 * MIB);
    assert!(fs::read(&pv).unwrap() == before);
    assert!(!world.dir.join("run").join(&world.group).join("control.sock").exists());
    world.refused("status nosuchgroup", 5, "not found");
}

#[test]
fn a_server_that_was_stopped_is_named_and_others_are_shown() {
    let world = World::new("silent", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    world.device("pv2", 64 * MIB);
    world.ok("vgcreate VG2 pv2");
    world.ok("lvcreate -y -L 8M -n lv VG2");
    let pid = world.server().unwrap();
    let stopped = Stopped::new(pid);
    let (out, code) = status(&world, "status");
    let (json, json_code) = status(&world, "status -x --json");
    drop(stopped);
    assert_eq!((code, json_code), (1, 1), "{out}");
    assert!(out.contains("state: not answering") && out.contains(&format!("kill -CONT {pid}")), "{out}");
    assert!(out.contains(&format!("group: {}2", world.group)) && out.contains("state: serving"), "{out}");
    assert!(json.contains("\"state\": \"not-answering\"") && !json.contains("\"serving\""), "{json}");
    until(&world, "status", |out, code| code == 0 && !out.contains("not answering"));
    // A keeper.
    let stopped = Stopped::new(keeper(&world).parse().unwrap());
    let (out, code) = status(&world, "status -x VG");
    drop(stopped);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("its keeper") && out.contains("SIGSTOP"), "{out}");
    world.ok("vgremove -f VG2");
}

#[test]
fn what_is_left_of_a_server_that_was_killed_is_reported() {
    let world = World::new("killed", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    // The keeper starts another.
    let first = world.server().unwrap();
    kill("-KILL", first);
    let restarted = |out: &str| out.contains("serving") && out.contains(", 1 restart");
    until(&world, "status", |out, code| code == 0 && restarted(out) && world.server() != Some(first));
    kill_both(&world);
    let out = until(&world, "status -x", |out, _| out.contains("state: killed"));
    assert!(out.contains("the devices of 1 volume still exist"), "{out}");
    assert!(out.contains(&format!("rowen vgchange -ay {}", world.group)), "{out}");
    world.ok("vgchange -ay VG");
    assert_eq!(status(&world, "status -x"), ("  all groups are healthy\n".to_owned(), 0));
}

/// A group on a volume of another group, which was killed: its disk fails every request.
#[test]
fn a_group_that_stopped_says_why() {
    let below = World::new("fails", 160);
    below.ok("lvcreate -y -L 128M -n disk VG");
    let world = World::empty("why");
    let device = below.node("disk").display().to_string();
    world.ok(&format!("vgcreate VG {device}"));
    world.ok("lvcreate -y -L 16M -n lv VG");
    kill_both(&below);
    world.run("vgchange --addtag t VG");
    // Its server has seen that the disk is not only ill.
    let out = until(&world, "status -x", |out, _| out.contains("state: stopped: ") && out.contains(" is away"));
    assert!(out.contains("the group goes on by itself"), "{out}");
    assert!(out.contains("attach it: ") && out.contains("  missing  "), "{out}");
    let health = world.ok("lvs --noheadings -o lv_attr,lv_health_status -S lv_name=lv VG");
    assert!(health.trim().ends_with("X- unknown"), "{health}");
    assert_eq!(world.ok("vgs --noheadings -o vg_attr VG").trim(), "rz-pn-");
    let (out, code) = refusal(&world, "lvcreate -s -n snap VG/lv");
    assert!(code == 5 && out.contains(&format!("rowen clear {}", world.group)), "{out}");
    below.ok("vgchange -ay VG");
    world.run("stop VG");
    world.ok("check VG");
    drop(world);
    drop(below);
}

/// Its server reports it; no label does.
#[test]
fn a_group_whose_disks_are_gone_is_shown_while_it_is_served() {
    let world = World::new("gone", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let (pv, away) = (world.dir.join("pv"), world.dir.join("away"));
    fs::rename(&pv, &away).unwrap();
    let begun = Instant::now();
    let (groups, volumes) = (world.ok("vgs --noheadings -o vg_name"), world.ok("lvs --noheadings -o lv_name"));
    let disks = world.ok("pvs --noheadings -o pv_name,vg_name,pv_attr,pv_missing");
    let took = begun.elapsed();
    let (output, code) = status(&world, "status -x");
    // A server that was killed is started by no look; nor does one hang.
    let server = world.server().unwrap();
    kill_both(&world);
    let looks = ["pvs", "vgs", "lvs", "pvs -a", "vgs VG", "lvs VG", "pvscan", "vgdisplay"];
    let slow: Vec<&str> = looks
        .into_iter()
        .filter(|look| {
            let begun = Instant::now();
            world.run(look);
            begun.elapsed() > PROMISED
        })
        .collect();
    let still = world.server();
    fs::rename(&away, &pv).unwrap();
    assert_eq!((groups.trim(), volumes.trim()), (world.group.as_str(), "lv"));
    assert_eq!(disks.split_whitespace().collect::<Vec<_>>(), ["[unknown]", &world.group, "a-m", "missing"]);
    assert!(took < 3 * PROMISED, "{took:?}");
    assert!(code == 1 && output.contains("has disappeared") && output.contains(&pv.display().to_string()), "{output}");
    assert_eq!((slow, still), (Vec::new(), Some(server)));
    world.ok("vgchange -ay VG");
}

/// A group that stopped, and its disk comes back while a volume is in use.
#[test]
fn a_group_that_stopped_is_opened_again_in_place() {
    let below = World::new("back", 160);
    below.ok("lvcreate -y -L 128M -n disk VG");
    let world = World::empty("clear");
    world.ok(&format!("vgcreate VG {}", below.node("disk").display()));
    world.ok("lvcreate -y -L 16M -n lv VG");
    assert!(world.ok("clear VG").contains("has not stopped"));
    let node = world.node("lv");
    let volume = fs::File::options().read(true).write(true).open(&node).unwrap();
    let kept = vec![7; 4096];
    volume.write_all_at(&kept, 4096).unwrap();
    volume.sync_all().unwrap();
    kill_both(&below);
    world.run("vgchange --addtag t VG");
    until(&world, "status -x", |out, _| out.contains("state: stopped: "));
    let first = world.server().unwrap();
    // Its disk is still away: the group does not open, and its device waits.
    let (out, code) = refusal(&world, "clear VG");
    assert_eq!(code, 5, "{out}");
    assert!(out.contains("has not been opened again"), "{out}");
    below.ok("vgchange -ay VG");
    let begun = Instant::now();
    while world.run("vgs VG").status.code() != Some(0) {
        assert!(begun.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_ne!(world.server().unwrap(), first);
    let mut read = vec![0; 4096];
    volume.read_exact_at(&mut read, 4096).unwrap();
    assert!(read == kept);
    volume.write_all_at(&kept, 8192).unwrap();
    volume.sync_all().unwrap();
    drop(volume);
    // Servers that failed are a problem until another has served for a moment.
    until(&world, "status -x", |_, code| code == 0);
    drop(world);
    drop(below);
}

#[test]
fn writes_that_wait_for_space_are_named() {
    let world = World::empty("held");
    fs::create_dir_all(world.dir.join("etc")).unwrap();
    fs::write(world.dir.join("etc/rowen.conf"), "server { no_space_timeout = 0 }\n").unwrap();
    world.device("pv", 128 * MIB);
    world.ok("vgcreate VG pv");
    world.ok("lvcreate -y -T -L 16M VG/pool");
    world.ok("lvcreate -y -V 64M -T VG/pool -n data");
    let node = world.node("data");
    let mut dd = Command::new("dd");
    dd.args([
        "if=/dev/zero",
        &format!("of={}", node.display()),
        "bs=1M",
        "oflag=direct",
        "conv=notrunc",
        "status=none",
    ]);
    let mut writer = Running(dd.stdin(Stdio::null()).spawn().unwrap());
    let out = until(&world, "status -x", |out, code| code == 1 && out.contains("state: waiting for space"));
    assert!(out.contains("writes wait for space: data (for "), "{out}");
    assert!(out.contains("thin pool pool is 100.0% full"), "{out}");
    world.ok("lvextend -L +80M VG/pool");
    let begun = Instant::now();
    while writer.0.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(100));
    }
    until(&world, "status", |out, _| !out.contains("waiting"));
}

#[test]
fn a_physical_volume_that_is_missing_is_named() {
    let world = World::empty("missing");
    let (one, two) = (world.device("one", 64 * MIB), world.device("two", 64 * MIB));
    world.ok("vgcreate VG one two");
    world.ok("lvcreate -y -L 8M -n lv VG");
    let away = world.dir.join("away");
    fs::rename(&two, &away).unwrap();
    let (out, code) = status(&world, "status -x");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("state: serving") && out.contains("could not be opened again"), "{out}");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let (out, code) = status(&world, "status -x");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("state: incomplete: 1 of 2 physical volumes are there"), "{out}");
    assert!(out.contains(&format!("wrong: {} (", two.display())) && out.contains("lvmdevices --adddev"), "{out}");
    // Both are gone. Only the copy of the metadata says whose they were.
    let away_too = world.dir.join("away too");
    fs::rename(&one, &away_too).unwrap();
    let (out, code) = status(&world, "status -x VG");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("state: incomplete: 0 of 2 physical volumes are there"), "{out}");
    assert_eq!(out.matches(" is missing").count(), 2, "{out}");
    assert!(out.contains(&format!("lvmdevices --deldev {}", one.display())), "{out}");
    fs::rename(&away_too, &one).unwrap();
    // One that is of no group.
    let third = world.device("third", 64 * MIB);
    world.ok("pvcreate third");
    assert_eq!(status(&world, "status").0.matches("wrong:").count(), 1);
    fs::rename(&third, &away_too).unwrap();
    let (out, code) = status(&world, "status -x");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains(&format!("the physical volume {} (", third.display())), "{out}");
    world.ok(&format!("lvmdevices --deldev {}", third.display()));
    // The server was killed, and no label has anything to report.
    fs::rename(&away, &two).unwrap();
    world.ok("vgchange -ay VG");
    kill_both(&world);
    world.run("status");
    let gone = world.dir.join("gone");
    fs::create_dir_all(&gone).unwrap();
    for pv in [&one, &two] {
        fs::rename(pv, gone.join(pv.file_name().unwrap())).unwrap();
    }
    let out = until(&world, "status -x", |out, _| out.contains("killed"));
    assert_eq!(out.matches(" is missing").count(), 2, "{out}");
    for pv in [&one, &two] {
        fs::rename(gone.join(pv.file_name().unwrap()), pv).unwrap();
    }
    assert!(Path::new(&one).metadata().unwrap().size() > 0);
    world.ok("vgchange -ay VG");
}

/// A group on a volume of another group, whose server and keeper stand still: as a disk whose path is dead.
#[test]
fn a_disk_that_does_not_answer_is_waited_for_and_named() {
    let below = World::new("below", 160);
    below.ok("lvcreate -y -L 128M -n disk VG");
    let world = World::empty("above");
    let device = below.node("disk");
    world.ok(&format!("vgcreate VG {}", device.display()));
    world.ok("lvcreate -y -L 16M -n lv VG");
    let stopped = [keeper(&below).parse().unwrap(), below.server().unwrap()].map(Stopped::new);
    let node = world.node("lv");
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", &format!("of={}", node.display()), "bs=1M", "count=1", "oflag=direct", "status=none"]);
    let writer = Running(dd.stdin(Stdio::null()).spawn().unwrap());
    // Devices are looked at beside it: those that hang are named, and not looked at for ever.
    let out = until(&world, "status", |out, code| code == 1 && out.contains("state: waiting for a disk"));
    assert!(out.contains(&format!("{} has not answered for ", device.display())), "{out}");
    assert!(out.contains("does not answer") || out.contains("earlier reads of devices"), "{out}");
    drop(stopped);
    drop(writer);
    until(&world, "status -x", |out, code| code == 0 && out.contains("all groups are healthy"));
    drop(world);
    drop(below);
}
