//! pvmove on real disks: a busy, mounted filesystem with snapshots moves off a disk, the server is killed meanwhile, and the disk
//! leaves.

use crate::world::{MIB, Random, Stops, World, tool};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DISK: u64 = 600 * MIB;

/// Three disks, of which the first two are a group with a mounted ext4 on a thick volume, a thin volume, and a snapshot of each.
fn made(name: &str) -> World {
    let world = World::empty(name);
    world.device("a", DISK);
    world.device("b", DISK);
    world.device("c", 2 * DISK);
    world.ok("vgcreate VG a b");
    world.ok("lvcreate -y -L 160M -n data VG b");
    world.ok("lvcreate -y -V 300M --type thin -L 250M --thinpool pool -n thin VG");
    let node = world.node("data");
    tool("mkfs.ext4", &["-q", "-F", node.to_str().unwrap()]);
    let thin = File::options().write(true).open(world.node("thin")).unwrap();
    thin.write_all_at(&vec![7; (64 * MIB) as usize], 0).unwrap();
    thin.sync_all().unwrap();
    world.ok("lvcreate -y -s -k n -n before VG/thin");
    thin.write_all_at(&vec![8; (16 * MIB) as usize], 8 * MIB).unwrap();
    thin.sync_all().unwrap();
    world
}

/// Writes files with known contents until the flag is set. Returns how many.
fn write_files(point: &Path, stop: &AtomicBool) -> u64 {
    let mut written = 0;
    while !stop.load(Ordering::Acquire) {
        let bytes = Random(written + 1).bytes(300_000);
        let mut file = File::create(point.join(format!("file{}", written % 60))).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        written += 1;
    }
    written
}

fn check_files(point: &Path, written: u64) {
    for number in written.saturating_sub(60)..written {
        let found = fs::read(point.join(format!("file{}", number % 60))).unwrap();
        assert!(found == Random(number + 1).bytes(300_000), "file {number}");
    }
}

fn check_thin(world: &World) {
    for (volume, at, byte) in [("thin", 0, 7), ("thin", 8, 8), ("thin", 24, 7), ("before", 8, 7)] {
        let mut read = vec![0; MIB as usize];
        File::open(world.node(volume)).unwrap().read_exact_at(&mut read, at * MIB).unwrap();
        assert!(read.iter().all(|found| *found == byte), "{volume} at {at} MiB");
    }
}

fn used(world: &World, disk: &str) -> String {
    world.ok(&format!("pvs --noheadings -o pv_used {disk}")).trim().to_owned()
}

#[test]
fn a_busy_filesystem_moves_off_a_disk_that_leaves() {
    let world = made("pvmove");
    let point = world.mount("data", "rw");
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let stopping = Stops(&stop);
        let writer = scope.spawn(|| write_files(&point, &stop));
        world.ok("vgextend VG c");
        world.ok("pvchange -x n b");
        let moved = world.ok("pvmove -i 1 b c");
        assert!(moved.contains("Moved: 100.00%"), "{moved}");
        let places = world.ok("lvs --noheadings -o devices VG/data");
        assert!(places.contains("/c(") && !places.contains("/b("), "{places}");
        world.ok("lvcreate -y -s -n during VG/data");
        drop(stopping);
        writer.join().unwrap()
    });
    check_files(&point, written);
    check_thin(&world);
    world.refused("pvmove b", 5, "No data to move for");
    world.ok("vgreduce VG b");
    assert_eq!(world.ok("vgs --noheadings -o pv_count VG").trim(), "2");
    // The server was replaced for that; the files are where they were.
    check_files(&point, written);
    let check = world.ok("check VG");
    assert!(check.contains("sound") || !check.contains("bad"), "{check}");
    world.unmount("data");
    tool("e2fsck", &["-f", "-n", world.node("data").to_str().unwrap()]);
    check_thin(&world);
    // Closed and opened again. The opening reads the table of moved extents.
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    world.ok("vgchange -ay VG");
    check_thin(&world);
    // And back, onto the disk that had left.
    world.ok("vgextend VG b");
    world.ok("pvmove -i 0 c b");
    check_thin(&world);
    world.ok("check VG");
}

#[test]
fn a_killed_server_leaves_what_was_moved() {
    let world = made("pvmove-kill");
    world.ok("vgextend VG c");
    world.ok("pvchange -x n b");
    let point = world.mount("data", "rw");
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let stopping = Stops(&stop);
        let writer = scope.spawn(|| write_files(&point, &stop));
        let begun = Instant::now();
        for kill in 0u64.. {
            let mut command = world.command("pvmove -i 0 b");
            let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(20 + 37 * kill % 150));
            if kill < 6 {
                if let Some(server) = world.server() {
                    let pid = rustix::process::Pid::from_raw(server).unwrap();
                    // The one before may not have a successor yet.
                    let _may_be_gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                child.wait().unwrap();
                continue;
            }
            if child.wait().unwrap().success() {
                break;
            }
            let left = String::from_utf8_lossy(&world.run("pvmove -i 0 b").stderr).into_owned();
            if left.contains("No data to move") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not come to an end: {left}");
        }
        drop(stopping);
        writer.join().unwrap()
    });
    check_files(&point, written);
    check_thin(&world);
    world.ok("check VG");
    world.ok("vgreduce VG b");
    check_files(&point, written);
    world.unmount("data");
    tool("e2fsck", &["-f", "-n", world.node("data").to_str().unwrap()]);
}

/// PM9: the server is killed while it moves extents, or replaced by an upgrade. Its successor goes on, and one command sees the end.
#[test]
fn a_successor_goes_on() {
    let world = made("pvmove-on");
    world.ok("vgextend VG c");
    world.ok("pvchange -x n b");
    let point = world.mount("data", "rw");
    let stop = AtomicBool::new(false);
    let (written, interruptions) = std::thread::scope(|scope| {
        let stopping = Stops(&stop);
        let writer = scope.spawn(|| write_files(&point, &stop));
        world.ok("pvmove -b b c");
        let mut command = world.command("pvmove -i 1");
        let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut interruptions = 0;
        for turn in 0u64..5 {
            std::thread::sleep(Duration::from_millis(30 + 37 * turn));
            if !world.dir.join("run").join(&world.group).join("moving").exists() {
                break;
            }
            interruptions += 1;
            if turn == 2 {
                world.ok("upgrade VG");
                continue;
            }
            // One that is killed before it serves fails the command that waits for it.
            world.ok("vgs VG");
            if let Some(server) = world.server() {
                let pid = rustix::process::Pid::from_raw(server).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
        let end = child.wait_with_output().unwrap();
        drop(stopping);
        assert!(end.status.success(), "{interruptions} interruptions: {end:?}");
        (writer.join().unwrap(), interruptions)
    });
    assert!(interruptions > 0);
    check_files(&point, written);
    check_thin(&world);
    world.refused("pvmove b", 5, "No data to move for");
    world.ok("check VG");
    // What was stopped does not go on.
    world.ok("pvchange -x y b");
    world.ok("pvmove -b c b");
    world.ok("pvmove --abort");
    let server = rustix::process::Pid::from_raw(world.server().unwrap()).unwrap();
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    world.ok("pvmove");
    check_files(&point, written);
    world.unmount("data");
    tool("e2fsck", &["-f", "-n", world.node("data").to_str().unwrap()]);
}

#[test]
fn what_pvmove_refuses() {
    let world = made("pvmove-refused");
    for (line, words) in [
        ("pvmove nowhere", "device not found"),
        ("pvmove c", "Failed to find physical volume"),
        ("pvmove b b", "No extents available for allocation"),
        ("pvmove b:9000", "PE range error"),
        ("pvmove b:5-2", "PE range error"),
        ("pvmove b:0-5:3-9", "Overlapping PE ranges"),
        ("pvmove b:x", "Physical extent parsing error"),
        ("pvmove -n nothing b", "not found"),
        ("pvmove b c", "not found in Volume Group"),
        ("pvmove -n data a", "No data to move for"),
    ] {
        world.refused(line, 5, words);
    }
    world.ok("pvmove --abort");
    world.ok("pvmove");
    // There is no room for all of it elsewhere.
    world.ok("lvcreate -y -L 400M -n more VG a");
    let before = used(&world, "b");
    world.refused("pvmove -i 0 b", 5, "Insufficient free space");
    assert_eq!(used(&world, "b"), before, "some of it has moved");
    check_thin(&world);
    world.ok("lvremove -f VG/more");
    world.ok("pvmove -b b");
    world.ok("pvmove -i 0");
    world.ok("check VG");
    assert!(!used(&world, "a").is_empty());
}

/// What is being moved is a volume to `lvs -a`, as LVM has it; the same command again watches, and another disk is not meant.
#[test]
fn a_move_is_seen_in_reports() {
    let world = World::empty("pvmove-seen");
    ["a", "b"].iter().for_each(|name| drop(world.device(name, 3 * DISK)));
    world.ok("vgcreate VG a b");
    world.ok("lvcreate -y -L 1600M -n data VG a");
    let mut node = File::options().write(true).open(world.node("data")).unwrap();
    let bytes = Random(1).bytes(MIB as usize);
    (0..1600).for_each(|_| node.write_all(&bytes).unwrap());
    node.sync_all().unwrap();
    drop(node);
    let source = world.dir.join("a").display().to_string();
    world.ok("pvmove -b a b");
    let seen = world.ok("lvs -a --noheadings -o lv_name,lv_attr,lv_role,segtype,move_pv,copy_percent,devices VG");
    let line = seen.lines().find(|line| line.contains("[pvmove0]")).unwrap_or_else(|| panic!("{seen}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..5], ["[pvmove0]", "p-C-aom---", "private,pvmove", "mirror", source.as_str()], "{line}");
    let percent: f64 = words[5].parse().unwrap();
    assert!((0.0..=100.0).contains(&percent), "{line}");
    // It is hidden, and counted nowhere.
    assert_eq!(
        world.ok("lvs --noheadings -o lv_name,move_pv,copy_percent VG").split_whitespace().collect::<Vec<_>>(),
        ["data"]
    );
    assert_eq!(world.ok("lvs -a --noheadings -o lv_count -S lv_name=data VG").trim(), "1");
    assert_eq!(world.ok("vgs --noheadings -o lv_count VG").trim(), "1");
    // It is what it was, and what it is to be can be said now.
    assert_eq!(world.ok("pvs --noheadings -o pv_attr a").trim(), "a--");
    world.ok("pvchange -x n a");
    world.refused("pvmove --abort b", 5, "No pvmove in progress for");
    let again = world.run("pvmove -i 1 a b");
    let (out, err) = (String::from_utf8_lossy(&again.stdout), String::from_utf8_lossy(&again.stderr));
    assert!(
        again.status.success() && out.contains(&format!("Detected pvmove in progress for {source}.")),
        "{out}{err}"
    );
    assert!(err.contains("Ignoring remaining command line arguments"), "{err}");
    assert!(out.contains("Moved: 100.00%"), "{out}");
    assert!(!world.ok("lvs -a VG").contains("pvmove0"));
    assert_eq!(world.ok("pvs --noheadings -o pv_attr a").trim(), "u--");
    let mut found = vec![0; MIB as usize];
    File::open(world.node("data")).unwrap().read_exact_at(&mut found, 1599 * MIB).unwrap();
    assert!(found == bytes);
    world.ok("vgchange -an VG");
}
