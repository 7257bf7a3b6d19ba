//! What this host has seen of a group: an older half of it is not opened without a word (NW1, NW2, NW3).

use crate::missing::{holds, pull, write};
use crate::world::{MIB, World, tool};
use std::fs;
use std::path::{Path, PathBuf};

const MIBS: u64 = 200;
const SEEN: &str = "this host has seen";

/// Two disks, and a volume on each.
fn made(name: &str) -> (World, [PathBuf; 2]) {
    let world = World::empty(name);
    let disks = ["a", "b"].map(|name| world.device(name, MIBS * MIB));
    world.ok("vgcreate VG a b");
    for (volume, disk) in [("va", "a"), ("vb", "b")] {
        world.ok(&format!("lvcreate -y -L 32M -n {volume} VG {disk}"));
        write(&world, volume, 0, volume.as_bytes()[1]);
    }
    end(&world);
    (world, disks)
}

fn end(world: &World) {
    world.ok("vgchange -an VG");
    world.ok("stop VG");
}

/// The group is used with its first disk alone.
fn use_first(world: &World, disks: &[PathBuf; 2]) -> PathBuf {
    let away = pull(&disks[1]);
    world.ok("vgchange -ay -P VG");
    write(world, "va", 0, b'x');
    end(world);
    away
}

fn sum(disk: &Path) -> String {
    tool("sha256sum", &[disk.to_str().unwrap()])
}

/// No command opens it, and no byte of it changes.
fn is_refused(world: &World, disk: &Path, newer: &str) {
    let before = sum(disk);
    for line in [
        "vgchange -ay VG",
        "vgchange -aay VG",
        "vgchange -ay -P VG",
        "vgchange -ay --activationmode degraded VG",
        "lvchange -ay -P VG/vb",
        "vgreduce --removemissing VG",
        "vgreduce --removemissing --force VG",
        "serve VG",
    ] {
        world.refused(line, 5, SEEN);
        world.refused(line, 5, newer);
        world.refused(line, 5, "vgchange -ay --activationmode partial --force VG");
    }
    let output = world.run("status VG");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stdout).contains(SEEN), "{output:?}");
    assert_eq!(sum(disk), before, "it was written to");
}

fn uuid(world: &World, disk: &str) -> String {
    world.ok(&format!("pvs --noheadings -o pv_uuid {disk}")).trim().to_owned()
}

#[test]
fn the_older_half_is_not_opened_without_a_word() {
    let (world, disks) = made("older");
    let [a, b] = ["a", "b"].map(|disk| uuid(&world, disk));
    end(&world);
    let second = use_first(&world, &disks);
    let first = pull(&disks[0]);
    fs::rename(&second, &disks[1]).unwrap();
    // The devices file says where it was.
    is_refused(&world, &disks[1], &format!("{a} (last seen at {})", disks[0].display()));

    // Another host has seen nothing.
    let etc = world.dir.join("etc");
    let copy = disks[1].with_extension("copy");
    fs::copy(&disks[1], &copy).unwrap();
    fs::rename(etc.join("witness"), etc.join("kept")).unwrap();
    world.ok("vgchange -ay -P VG");
    end(&world);
    fs::remove_dir_all(etc.join("witness")).unwrap();
    fs::rename(etc.join("kept"), etc.join("witness")).unwrap();
    // What that one has done without the first is no newer state of what was done here, whatever its number is.
    is_refused(&world, &disks[1], &a);
    fs::rename(&copy, &disks[1]).unwrap();

    // The disk that it asks for is there: all goes on, and the other comes back.
    fs::rename(&first, &disks[0]).unwrap();
    world.ok("vgchange -ay -P VG");
    holds(&world, "va", 0, b'x');
    world.ok("vgextend --restoremissing VG b");
    end(&world);
    world.ok("vgchange -ay VG");
    holds(&world, "vb", 0, b'b');
    end(&world);

    // Somebody gives the newer state up: from then on that one is the older.
    let second = use_first(&world, &disks);
    let first = pull(&disks[0]);
    fs::rename(&second, &disks[1]).unwrap();
    world.refused("vgchange -ay -P VG", 5, SEEN);
    world.ok("vgchange -ay --activationmode partial --force VG");
    holds(&world, "vb", 0, b'b');
    end(&world);
    world.ok("lvchange -ay VG/vb");
    end(&world);
    let second = pull(&disks[1]);
    fs::rename(&first, &disks[0]).unwrap();
    // By its own word it needs no other: at boot it would be opened, but for what was seen.
    is_refused(&world, &disks[0], &b);
    world.ok("lvchange -ay -P --force VG/va");
    holds(&world, "va", 0, b'x');
    end(&world);
    fs::rename(&second, &disks[1]).unwrap();
    world.refused("vgchange -ay VG", 5, "went on without each other");
}

/// Copies of one moment are the group as it was then, whatever happened since; and so is what came back from elsewhere.
#[test]
fn a_group_that_is_whole_is_opened() {
    let (world, disks) = made("whole");
    let copies = disks.each_ref().map(|disk| {
        let copy = disk.with_extension("copy");
        fs::copy(disk, &copy).unwrap();
        copy
    });
    use_first(&world, &disks);
    for (copy, disk) in copies.iter().zip(&disks) {
        fs::copy(copy, disk).unwrap();
    }
    world.ok("vgchange -aay VG");
    holds(&world, "va", 0, b'a');
    end(&world);
    // That is what counts now: either may be used alone.
    pull(&disks[0]);
    world.ok("vgchange -ay -P VG");
    holds(&world, "vb", 0, b'b');
    end(&world);
}

/// What was seen is the group's, whatever it is called, and whoever else is called so.
#[test]
fn what_was_seen_follows_the_group_and_goes_with_it() {
    let (mut world, disks) = made("named");
    let files = |world: &World| fs::read_dir(world.dir.join("etc/witness")).unwrap().count();
    let old = world.group.clone();
    let second = use_first(&world, &disks);
    world.ok("vgrename VG VGnew");
    world.group = format!("{old}new");
    let first = pull(&disks[0]);
    fs::rename(&second, &disks[1]).unwrap();
    // It has the old name there.
    world.refused(&format!("vgchange -ay -P {old}"), 5, SEEN);
    let second = pull(&disks[1]);
    fs::rename(&first, &disks[0]).unwrap();
    world.ok("vgexport VG");
    world.ok("stop VG");
    world.ok("vgimport VG");
    world.ok("stop VG");
    assert_eq!(files(&world), 1);
    let first = pull(&disks[0]);
    fs::rename(&second, &disks[1]).unwrap();
    world.refused(&format!("vgchange -ay -P {old}"), 5, SEEN);
    pull(&disks[1]);
    // Another group of that name, of which nothing is known.
    let more = ["c", "d"].map(|name| world.device(name, MIBS * MIB));
    world.ok(&format!("vgcreate {old} c d"));
    world.ok(&format!("lvcreate -y -L 32M -n vc {old} c"));
    world.ok(&format!("vgchange -an {old}"));
    world.ok(&format!("stop {old}"));
    assert_eq!(files(&world), 2);
    let away = pull(&more[1]);
    world.ok(&format!("vgchange -ay -P {old}"));
    world.ok(&format!("vgchange -an {old}"));
    world.ok(&format!("stop {old}"));
    fs::rename(&away, &more[1]).unwrap();
    world.ok(&format!("vgextend --restoremissing {old} d"));
    world.ok(&format!("vgremove -f {old}"));
    assert_eq!(files(&world), 1);
    fs::rename(&first, &disks[0]).unwrap();
    world.refused("vgremove -f VG", 5, "Consider vgreduce --removemissing");
    world.ok("vgreduce --removemissing --force VG");
    world.ok("vgremove -f VG");
    assert_eq!(files(&world), 0);
}

/// Who left for good, and who joined, is seen as well.
#[test]
fn one_that_was_given_up_is_not_the_group() {
    let (world, disks) = made("given");
    let away = pull(&disks[1]);
    world.ok("vgreduce --removemissing --force VG");
    world.ok("vgs VG");
    world.ok("stop VG");
    let first = pull(&disks[0]);
    fs::rename(&away, &disks[1]).unwrap();
    world.refused("vgchange -ay -P VG", 5, SEEN);
    fs::rename(&first, &disks[0]).unwrap();
    world.ok("vgchange -ay VG");
    world.device("c", MIBS * MIB);
    world.ok("vgextend VG c");
    // It was written before the command was answered.
    let file = fs::read_dir(world.dir.join("etc/witness")).unwrap().flatten().next().unwrap().path();
    let members = || fs::read_to_string(&file).unwrap().matches("\nin ").count();
    assert_eq!(members(), 2);
    world.ok("vgreduce VG c");
    assert_eq!(members(), 1);
    holds(&world, "va", 0, b'a');
    end(&world);
}

/// If the file cannot be written, everything continues with a warning. A damaged file counts as missing.
#[test]
fn what_cannot_be_written_down_is_reported() {
    let (world, disks) = made("unwritten");
    let dir = world.dir.join("etc/witness");
    let file = fs::read_dir(&dir).unwrap().flatten().next().unwrap().path();
    // Root writes anywhere but into what is no directory.
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "").unwrap();
    let second = pull(&disks[1]);
    let output = world.run("vgchange -ay -P VG");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && err.contains("WARNING: Cannot record in") && err.contains("/witness/"), "{err}");
    end(&world);
    fs::rename(&second, &disks[1]).unwrap();
    world.ok("vgextend --restoremissing VG b");
    let log = fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap();
    assert!(log.contains("cannot record the members"), "{log}");
    world.ok("vgs VG");
    world.ok("stop VG");
    world.device("c", MIBS * MIB);
    let output = String::from_utf8_lossy(&world.run("vgextend VG c").stderr).into_owned();
    assert!(output.contains("Cannot record the members of") && output.contains("/witness/"), "{output}");
    end(&world);
    fs::remove_file(&dir).unwrap();
    // The next server has something to write.
    world.ok("vgs VG");
    world.ok("stop VG");
    assert!(fs::read_to_string(&file).unwrap().ends_with("end\n"));
    // A damaged one says nothing: all is as on a host that has seen nothing.
    fs::write(&file, "sequence 99999\nlineage 1\nin x").unwrap();
    pull(&disks[1]);
    world.ok("vgchange -ay -P VG");
    end(&world);
    assert!(fs::read_to_string(&file).unwrap().contains("\nout "));
}
