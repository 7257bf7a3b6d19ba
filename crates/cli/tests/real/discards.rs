//! What is free is given back to files, loop devices and volumes of other groups; servers are killed meanwhile; sparse files are
//! written out.

use crate::world::{Looped, MIB, Random, Running, World, tool};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// MiB of which a file has room.
fn room(file: &Path) -> u64 {
    fs::metadata(file).unwrap().blocks() * 512 / MIB
}

/// Waits until a file has at most this many MiB.
fn shrinks_to(file: &Path, mib: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while room(file) > mib {
        assert!(Instant::now() < until, "{} has {} MiB still, and not {mib}", file.display(), room(file));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn fill(node: &Path, at: u64, mib: u64, seed: u64) {
    let file = File::options().write(true).open(node).unwrap();
    for part in 0..mib {
        file.write_all_at(&Random(seed + part).bytes(MIB as usize), (at + part) * MIB).unwrap();
    }
    file.sync_all().unwrap();
}

fn holds(node: &Path, at: u64, mib: u64, seed: u64) {
    let file = File::open(node).unwrap();
    let mut read = vec![0; MIB as usize];
    for part in 0..mib {
        file.read_exact_at(&mut read, (at + part) * MIB).unwrap();
        assert!(read == Random(seed + part).bytes(MIB as usize), "{} at {} MiB", node.display(), at + part);
    }
}

fn settings(world: &World, text: &str) {
    fs::create_dir_all(world.dir.join("etc")).unwrap();
    fs::write(world.dir.join("etc/rowen.conf"), text).unwrap();
}

/// `fstrim` of a mounted filesystem, `blkdiscard` of a thin volume, and `rowen trim` make the file smaller; `lvremove` does with
/// `issue_discards`. What is there, and what a snapshot holds, stays.
#[test]
fn the_file_of_a_physical_volume_becomes_smaller() {
    let world = World::new("punch", 700);
    let pv = world.dir.join("pv");
    world.ok("lvcreate -y -L 200M -n data VG");
    world.ok("lvcreate -y -L 128M -n gone VG");
    world.ok("lvcreate -y -V 200M --type thin -L 200M --thinpool pool -n thin VG");
    fill(&world.node("gone"), 0, 100, 1000);
    fill(&world.node("thin"), 0, 60, 2000);
    world.ok("lvcreate -y -s -k n -n kept VG/thin");
    tool("mkfs.ext4", &["-q", "-F", world.node("data").to_str().unwrap()]);
    let point = world.mount("data", "rw");
    fs::write(point.join("stays"), Random(5).bytes(10 * MIB as usize)).unwrap();
    fs::write(point.join("goes"), Random(6).bytes(120 * MIB as usize)).unwrap();
    tool("sync", &["-f", point.to_str().unwrap()]);
    let full = room(&pv);
    assert!(full > 290, "{full}");
    fs::remove_file(point.join("goes")).unwrap();
    tool("sync", &["-f", point.to_str().unwrap()]);
    tool("fstrim", &[point.to_str().unwrap()]);
    shrinks_to(&pv, full - 110);
    // What a snapshot holds stays.
    tool("blkdiscard", &[world.node("thin").to_str().unwrap()]);
    std::thread::sleep(Duration::from_secs(3));
    let before = room(&pv);
    assert!(before + 115 > full - 10, "{before} of {full}");
    holds(&world.node("kept"), 0, 60, 2000);
    world.ok("lvremove -y VG/kept");
    world.ok("lvremove -y VG/gone");
    std::thread::sleep(Duration::from_secs(3));
    let removed = room(&pv);
    assert!(removed + 70 > before, "issue_discards is off: {removed} of {before}");
    let output = world.ok("trim VG");
    assert!(output.contains("discarded of") && output.contains("that are free"), "{output}");
    shrinks_to(&pv, before - 150);
    world.unmount("data");
    world.mount("data", "rw");
    assert!(fs::read(point.join("stays")).unwrap() == Random(5).bytes(10 * MIB as usize));
    // With LVM's setting what is removed comes back by itself.
    settings(&world, "devices { issue_discards = 1 }\n");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(world.server().unwrap()).unwrap(),
        rustix::process::Signal::HUP,
    )
    .unwrap();
    world.ok("lvcreate -y -L 128M -n gone VG");
    fill(&world.node("gone"), 0, 100, 1000);
    let with = room(&pv);
    world.ok("lvremove -y VG/gone");
    shrinks_to(&pv, with - 95);
    assert!(world.ok("check VG").contains("is sound"));
    world.refused("trim", 3, "specify the volume group's name");
    world.refused("trim nosuch", 5, "nosuch");
    world.refused("trim VG/data", 3, "");
}

/// A loop device, and a volume of another group, pass on what is freed on them.
#[test]
fn what_is_below_gets_it_back() {
    let world = World::new("below", 900);
    let low = world.dir.join("pv");
    world.ok("lvcreate -y -L 500M -n base VG");
    let stacked = world.beside("s");
    stacked.ok(&format!("vgcreate VG {}", world.node("base").display()));
    stacked.ok("lvcreate -y -L 300M -n data VG");
    fill(&stacked.node("data"), 0, 200, 1);
    let full = room(&low);
    assert!(full > 200, "{full}");
    tool("blkdiscard", &["-o", "0", "-l", "104857600", stacked.node("data").to_str().unwrap()]);
    shrinks_to(&low, full - 90);
    holds(&stacked.node("data"), 100, 100, 101);
    stacked.ok("lvremove -y VG/data");
    stacked.ok("trim VG");
    shrinks_to(&low, full - 180);
    assert!(stacked.ok("check VG").contains("is sound"));
    stacked.ok("vgremove -f VG");
    drop(stacked);
    // A loop device of the host's.
    let file = world.device("looped", 300 * MIB);
    let device = Looped::new(&file);
    let looped = world.beside("l");
    looped.ok(&format!("vgcreate VG {}", device.path()));
    looped.ok("lvcreate -y -L 200M -n data VG");
    fill(&looped.node("data"), 0, 150, 7);
    let full = room(&file);
    looped.ok("lvremove -y VG/data");
    looped.ok("trim VG");
    shrinks_to(&file, full - 140);
    looped.ok("vgremove -f VG");
}

/// The server is killed again and again while it gives space back and volumes are written: everything is what was written.
#[test]
fn a_server_is_killed_while_it_discards() {
    let world = World::empty("killtrim");
    settings(&world, "devices { issue_discards = 1 }\n");
    world.device("pv", 900 * MIB);
    world.ok("vgcreate VG pv");
    world.ok("lvcreate -y -L 100M -n data VG");
    for round in 0..6 {
        world.ok("lvcreate -y -L 400M -n gone VG");
        fill(&world.node("gone"), 0, 150, 50);
        world.ok("lvcreate -y -s -n before VG/data");
        fill(&world.node("data"), 0, 60, round * 1000);
        world.ok("lvremove -y VG/gone");
        let trim = world.command("trim VG").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let trim = Running(trim);
        std::thread::sleep(Duration::from_millis(20 + 37 * round));
        if let Some(server) = world.server().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
        }
        // What comes next may lie where the dead one discarded.
        fill(&world.node("data"), 60, 40, round * 1000 + 60);
        drop(trim);
        holds(&world.node("data"), 0, 100, round * 1000);
        world.ok("lvremove -y VG/before");
    }
    assert!(world.ok("check VG").contains("is sound"));
}

/// `pvcreate` reports sparse files, and writes them out. They stay whole, unless a user asks for less.
#[test]
fn a_sparse_file_is_written_out() {
    let world = World::empty("writeout");
    let pv = world.device("pv", 300 * MIB);
    let output = world.ok("pvcreate pv");
    assert!(output.contains("pv is a sparse file") && output.contains("--writeout"), "{output}");
    let output = world.ok("pvcreate --writeout pv");
    assert!(output.contains("written out.") && !output.contains("sparse"), "{output}");
    assert!(room(&pv) >= 300);
    assert!(world.ok("pvcreate --writeout pv").contains("has all of its room already"));
    world.device("huge", 1 << 43);
    let output = world.run("pvcreate --writeout huge");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{err}");
    assert!(err.contains("bytes more, and its filesystem has"), "{err}");
    world.ok("vgcreate VG pv");
    world.ok("lvcreate -y -L 200M -n data VG");
    fill(&world.node("data"), 0, 150, 3);
    tool("blkdiscard", &[world.node("data").to_str().unwrap()]);
    std::thread::sleep(Duration::from_secs(3));
    assert!(room(&pv) >= 300, "a discard of a volume leaves it whole");
    world.ok("lvremove -y VG/data");
    world.ok("trim VG");
    shrinks_to(&pv, 100);
}
