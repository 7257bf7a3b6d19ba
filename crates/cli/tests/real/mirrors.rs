//! Mirrored volumes on real disks: what is written goes to two, either can be lost, come back or be replaced, and nothing
//! that was synced is ever anything else.

use crate::missing::{holds, pull, write};
use crate::world::{MIB, Random, World, tool};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const DISK: u64 = 400 * MIB;

/// Two disks with a group.
pub fn made(name: &str) -> (World, [PathBuf; 2]) {
    let world = World::empty(name);
    let disks = ["a", "b"].map(|name| world.device(name, DISK));
    world.ok("vgcreate VG a b");
    (world, disks)
}

pub fn field(world: &World, line: &str) -> String {
    world.ok(line).split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn write_files(point: &Path, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut file = File::create(point.join(format!("file{number}"))).unwrap();
        file.write_all(&Random(number + 1).bytes(300_000)).unwrap();
        file.sync_all().unwrap();
    }
}

pub fn check_files(point: &Path, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let found = fs::read(point.join(format!("file{number}"))).unwrap();
        assert!(found == Random(number + 1).bytes(300_000), "file {number}");
    }
}

/// Waits until both disks have everything.
fn wait_in_sync(world: &World) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let now = field(world, "lvs --noheadings -o raid_sync_action,copy_percent VG/m");
        if now == "idle 100.00" {
            return;
        }
        assert!(Instant::now() < until, "it is never in sync: {now}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn close(world: &World) {
    world.ok("vgchange -an VG");
    world.ok("stop VG");
}

/// The disk is not there, and the group is opened without it.
pub fn open_without(world: &World, disk: &Path) -> PathBuf {
    let away = pull(disk);
    world.refused("vgchange -ay VG", 5, "is missing");
    world.ok("vgchange -ay --activationmode degraded VG");
    away
}

#[test]
fn a_filesystem_outlives_both_disks_one_after_the_other() {
    let (world, disks) = made("mirror");
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    assert_eq!(field(&world, "lvs --noheadings -o lv_attr,segtype,copy_percent VG/m"), "rwi-a-r--- raid1 100.00");
    let places = field(&world, "lvs --noheadings -o devices VG/m");
    assert!(places.contains("/a(") && places.contains("/b("), "{places}");
    tool("mkfs.ext4", &["-q", "-F", world.node("m").to_str().unwrap()]);
    let point = world.mount("m", "rw");
    write_files(&point, 0..40);
    world.ok("lvcreate -y -s -n before VG/m");
    write_files(&point, 20..60);
    world.unmount("m");
    close(&world);

    // The first disk is away, and work goes on.
    let away = open_without(&world, &disks[0]);
    assert_eq!(field(&world, "lvs --noheadings -o lv_attr,lv_health_status VG/m"), "owi-a-r-p- partial");
    world.refused("lvcreate -y --type raid1 -L 8M -n more VG", 5, "while PVs are missing.");
    world.refused("lvextend -L +8M VG/m", 5, "while PVs are missing.");
    world.refused("lvconvert --repair -y VG/m", 5, "cannot be repaired while a physical volume");
    let point = world.mount("m", "rw");
    check_files(&point, 0..60);
    write_files(&point, 50..90);
    world.ok("lvcreate -y -s -n during VG/m");
    write_files(&point, 80..100);
    world.unmount("m");
    close(&world);

    // It comes back, and gets what it missed.
    fs::rename(&away, &disks[0]).unwrap();
    world.ok("vgextend --restoremissing VG a");
    world.ok("vgchange -ay VG");
    wait_in_sync(&world);
    assert_eq!(field(&world, "lvs --noheadings -o lv_attr,lv_health_status VG/m"), "owi-a-r---");
    world.ok("check VG");
    close(&world);

    // So the other one can go, and it is all there.
    open_without(&world, &disks[1]);
    let point = world.mount("m", "rw");
    check_files(&point, 0..100);
    world.unmount("m");
    tool("e2fsck", &["-f", "-n", world.node("m").to_str().unwrap()]);
    let before = world.mount("before", "ro");
    check_files(&before, 0..40);
    assert!(!before.join("file45").exists());
    world.unmount("before");
    world.ok("vgchange -an VG");
}

/// A mounted linear volume with snapshots is made a mirror while it is written: on a disk that joins after the first one is
/// nearly full. Either disk is enough for everything then.
#[test]
fn a_linear_volume_in_use_becomes_a_mirror() {
    let world = World::empty("mirconv");
    let disks = ["a", "b"].map(|name| world.device(name, DISK));
    world.ok("vgcreate VG a");
    world.ok("lvcreate -y -L 240M -n m VG");
    world.refused("lvconvert -y -m1 VG/m", 5, "two physical volumes");
    tool("mkfs.ext4", &["-q", "-F", world.node("m").to_str().unwrap()]);
    let point = world.mount("m", "rw");
    write_files(&point, 0..60);
    world.ok("lvcreate -y -s -n before VG/m");
    write_files(&point, 40..80);
    world.ok("vgextend VG b");
    world.refused("lvconvert -y -m1 VG/m a", 5, "");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&point, 80..200));
        world.ok("lvcreate -y -s -n during VG/m");
        world.ok("lvconvert -y -m1 VG/m b");
        writer.join().unwrap();
    });
    assert_eq!(field(&world, "lvs --noheadings -o segtype VG/m"), "raid1");
    wait_in_sync(&world);
    world.ok("check VG");
    world.ok("lvcreate -y -s -n after VG/m");
    write_files(&point, 150..220);
    world.unmount("m");
    close(&world);
    for disk in &disks {
        let away = open_without(&world, disk);
        let point = world.mount("m", "rw");
        check_files(&point, 0..220);
        world.unmount("m");
        check_before(&world);
        close(&world);
        fs::rename(&away, disk).unwrap();
        let name = disk.file_name().unwrap().to_str().unwrap();
        world.ok(&format!("vgextend --restoremissing VG {name}"));
        world.ok("vgchange -ay VG");
        wait_in_sync(&world);
        close(&world);
    }
}

/// The snapshot `before` has what was there when it was made, and nothing else.
fn check_before(world: &World) {
    let before = world.mount("before", "ro");
    check_files(&before, 0..60);
    assert!(!before.join("file70").exists());
    world.unmount("before");
}

/// A volume in use moves from one disk to another as in LVM, by a second copy. The old disk leaves.
#[test]
fn a_volume_in_use_moves_by_a_mirror() {
    let world = World::empty("mirmove");
    let disks = ["a", "b"].map(|name| world.device(name, DISK));
    world.ok("vgcreate VG a");
    world.ok("lvcreate -y -L 200M -n m VG");
    tool("mkfs.ext4", &["-q", "-F", world.node("m").to_str().unwrap()]);
    let point = world.mount("m", "rw");
    write_files(&point, 0..60);
    world.ok("lvcreate -y -s -n before VG/m");
    world.ok("vgextend VG b");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&point, 40..200));
        world.ok("lvconvert -y -m1 VG/m b");
        // The only complete copy stays.
        let is_early = field(&world, "lvs --noheadings -o copy_percent VG/m") != "100.00";
        if is_early {
            let early = world.run("lvconvert -y -m0 VG/m a");
            let why = String::from_utf8_lossy(&early.stderr);
            assert!(early.status.success() || why.contains("copy_percent"), "{why}");
        }
        wait_in_sync(&world);
        // Else new blocks may lie there.
        world.ok("pvchange -x n a");
        world.ok("lvconvert -y -m0 VG/m a");
        writer.join().unwrap();
    });
    assert_eq!(field(&world, "lvs --noheadings -o segtype VG/m"), "linear");
    world.ok("check VG");
    world.ok("vgreduce VG a");
    write_files(&point, 190..220);
    world.unmount("m");
    close(&world);
    fs::remove_file(&disks[0]).unwrap();
    world.ok("vgchange -ay VG");
    let point = world.mount("m", "ro");
    check_files(&point, 0..220);
    world.unmount("m");
    check_before(&world);
    world.ok("check VG");
    close(&world);
}

/// A disk with a linear, a mirrored and a striped volume is emptied, all of them in use, and leaves the group. Then a
/// copy goes to it again.
#[test]
fn a_disk_with_everything_is_emptied_in_use() {
    let (world, _) = made("mirleave");
    world.device("c", 2 * DISK);
    world.device("d", DISK);
    world.ok("lvcreate -y --type raid1 -L 100M -n m VG");
    world.ok("lvcreate -y -L 64M -n data VG a");
    world.ok("lvcreate -y -i2 -L 64M -n s VG a b");
    world.ok("vgextend VG c");
    let volumes = ["m", "data", "s"];
    for volume in volumes {
        tool("mkfs.ext4", &["-q", "-F", world.node(volume).to_str().unwrap()]);
    }
    let points = volumes.map(|volume| world.mount(volume, "rw"));
    std::thread::scope(|scope| {
        let writers = points.each_ref().map(|point| scope.spawn(|| write_files(point, 0..100)));
        world.ok("lvcreate -s -n before VG/m");
        world.ok("pvmove -i 0 a");
        for writer in writers {
            writer.join().unwrap();
        }
    });
    for volume in volumes {
        let devices = world.ok(&format!("lvs --noheadings -o devices VG/{volume}"));
        assert!(!devices.contains("/a("), "{devices}");
    }
    wait_in_sync(&world);
    world.ok("vgreduce VG a");
    // The next server has nothing to copy, though all was written a moment ago (ML4).
    assert_eq!(field(&world, "lvs --noheadings -o copy_percent VG/m"), "100.00");
    world.ok("vgextend VG d");
    // The kernel writes what is in its cache when it likes.
    world.ok("pvchange -x n b");
    let replaced = world.ok("lvconvert -i 0 --replace b VG/m d");
    assert!(replaced.contains("successfully converted"), "{replaced}");
    let devices = world.ok("lvs --noheadings -o devices VG/m");
    assert!(devices.contains("/d(") && !devices.contains("/b("), "{devices}");
    for (volume, point) in volumes.iter().zip(&points) {
        check_files(point, 0..100);
        world.unmount(volume);
    }
    world.ok("check VG");
    close(&world);
    world.ok("vgchange -ay VG");
    for volume in volumes {
        tool("e2fsck", &["-f", "-n", world.node(volume).to_str().unwrap()]);
    }
    close(&world);
}

/// A disk that the group uses still is at its path no more: neither of two copies goes, and none is made there.
#[test]
fn no_copy_goes_while_a_disk_has_disappeared() {
    let (world, disks) = made("mirdis");
    world.ok("lvcreate -y --type raid1 -L 32M -n m VG");
    world.ok("lvcreate -y -L 16M -n l VG");
    write(&world, "m", 0, b'm');
    let elsewhere = disks[1].with_extension("elsewhere");
    fs::rename(&disks[1], &elsewhere).unwrap();
    for line in ["lvconvert -y -m0 VG/m", "lvconvert -y -m0 VG/m a", "lvconvert -y -m1 VG/l"] {
        world.refused(line, 5, "has disappeared");
    }
    assert_eq!(field(&world, "lvs --noheadings -o segtype VG/m"), "raid1");
    fs::rename(&elsewhere, &disks[1]).unwrap();
    world.ok("lvconvert -y -m0 VG/m");
    holds(&world, "m", 0, b'm');
    close(&world);
}

/// Its contents are on the other disk. What was cut off is never read as zeros, whatever its size is later (CF1).
#[test]
fn a_disk_that_is_cut_in_use_is_left() {
    let (world, disks) = made("mircut");
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    let places = [0, 60, 120];
    places.iter().for_each(|at| write(&world, "m", *at, b'm'));
    let cut = File::options().write(true).open(&disks[0]).unwrap();
    cut.set_len(16 * MIB).unwrap();
    // Writes look at the size now and then.
    std::thread::sleep(Duration::from_millis(1));
    places.iter().for_each(|at| write(&world, "m", *at, b'n'));
    places.iter().for_each(|at| holds(&world, "m", *at, b'n'));
    assert_eq!(cut.metadata().unwrap().len(), 16 * MIB);
    assert_eq!(field(&world, "lvs --noheadings -o lv_health_status VG/m"), "partial");
    cut.set_len(DISK).unwrap();
    world.refused("vgextend --restoremissing VG a", 5, "what was cut off is lost");
    world.ok("vgreduce --removemissing VG");
    places.iter().for_each(|at| holds(&world, "m", *at, b'n'));
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

/// The tally of a disk, and what it knows of the first two (docs/format.md, TallyRecord).
fn tallies(disk: &Path) -> [u32; 3] {
    let mut record = [0; 28];
    File::open(disk).unwrap().read_exact_at(&mut record, 917_504).unwrap();
    [16, 20, 24].map(|at| u32::from_le_bytes(record[at..at + 4].try_into().unwrap()))
}

/// Two disks with a mirrored volume, a copy of one of them that was made while the group was open, and a path for the disk
/// that left. The copy lacks the first write.
pub fn with_older_copy(name: &str) -> (World, [PathBuf; 2], [PathBuf; 2]) {
    let (world, disks) = made(name);
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    let [older, newest] = ["older", "newest"].map(|name| disks[0].with_extension(name));
    fs::copy(&disks[0], &older).unwrap();
    write(&world, "m", 0, b'm');
    let until = Instant::now() + Duration::from_secs(60);
    while tallies(&disks[1])[1] <= tallies(&older)[0] {
        assert!(Instant::now() < until, "nobody counts: {:?}", tallies(&disks[1]));
        std::thread::sleep(Duration::from_millis(20));
    }
    (world, disks, [older, newest])
}

/// A group in use is copied, written, and closed. A copy of one of its disks is refused then, also for a linear volume, and
/// also when it is alone.
#[test]
fn an_older_copy_is_refused_after_a_clean_end() {
    let (world, disks) = made("mirend");
    world.ok("lvcreate -y -L 40M -n l VG a");
    world.ok("lvcreate -y --type raid1 -L 40M -n m VG");
    ["l", "m"].into_iter().for_each(|name| write(&world, name, 0, b'o'));
    close(&world);
    world.ok("vgchange -ay VG");
    let older = disks[0].with_extension("older");
    fs::copy(&disks[0], &older).unwrap();
    write(&world, "l", 0, b'n');
    close(&world);
    let newest = disks[0].with_extension("newest");
    fs::rename(&disks[0], &newest).unwrap();
    fs::copy(&older, &disks[0]).unwrap();
    world.refused("vgchange -ay VG", 5, "older copy");
    world.ok("stop VG");
    // Alone, too: this host knows what it closed.
    let away = pull(&disks[1]);
    world.refused("vgchange -ay --activationmode degraded VG", 5, "older");
    fs::rename(&away, &disks[1]).unwrap();
    // Nor as a disk that returns.
    fs::remove_file(&disks[0]).unwrap();
    world.ok("vgchange -ay --activationmode partial VG");
    fs::copy(&older, &disks[0]).unwrap();
    world.refused("vgextend --restoremissing VG a", 5, "");
    fs::rename(&newest, &disks[0]).unwrap();
    world.ok("vgextend --restoremissing VG a");
    world.ok("vgchange -ay VG");
    holds(&world, "l", 0, b'n');
    holds(&world, "m", 0, b'o');
    world.ok("vgchange -an VG");
}

pub fn kill_server(world: &World) {
    let server = world.server().unwrap();
    tool("kill", &["-9", &server.to_string()]);
    while Path::new(&format!("/proc/{server}")).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// ML11: users wait for the newest copy, and read nothing else.
#[test]
fn an_older_copy_of_one_disk_is_not_opened() {
    let (world, disks, [older, newest]) = with_older_copy("mirolder");
    fs::rename(&disks[0], &newest).unwrap();
    fs::rename(&older, &disks[0]).unwrap();
    kill_server(&world);
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| holds(&world, "m", 0, b'm'));
        world.refused("vgchange -ay VG", 5, &format!("{} of volume group \"VG\" is an older copy", disks[0].display()));
        assert!(!waits.is_finished());
        fs::rename(&disks[0], &older).unwrap();
        fs::rename(&newest, &disks[0]).unwrap();
        waits.join().unwrap();
    });
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

/// ML11: the group went on without the disk.
#[test]
fn an_older_copy_of_one_disk_is_not_taken_back() {
    let (world, disks, [older, newest]) = with_older_copy("mirback");
    fs::rename(&disks[0], &newest).unwrap();
    kill_server(&world);
    world.ok("vgchange -ay --activationmode degraded VG");
    fs::rename(&older, &disks[0]).unwrap();
    let copy = fs::read(&disks[0]).unwrap();
    world.refused("vgextend --restoremissing VG a", 5, "is an older copy");
    assert!(fs::read(&disks[0]).unwrap() == copy, "nothing was written to it");
    // The server was killed, but the other disk has all that was acknowledged (RT6).
    File::options().write(true).open(world.node("m")).unwrap().sync_data().unwrap();
    write(&world, "m", 60, b'n');
    fs::rename(&newest, &disks[0]).unwrap();
    world.ok("vgextend --restoremissing VG a");
    wait_in_sync(&world);
    [(0, b'm'), (60, b'n')].into_iter().for_each(|(at, byte)| holds(&world, "m", at, byte));
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

#[test]
fn a_disk_that_shrank_is_named_and_can_be_left_out() {
    let (world, disks) = made("mirshrank");
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    world.refused("lvcreate -y --type raid1 -L 8M -n one VG a", 5, "");
    write(&world, "m", 120, b'm');
    close(&world);
    File::options().write(true).open(&disks[1]).unwrap().set_len(16 * MIB).unwrap();
    let (path, shrank) = (disks[1].display(), "shrank: it has 16777216 bytes, the volume group uses");
    world.refused("vgchange -ay VG", 5, &format!("physical volume {path} {shrank}"));
    let status = String::from_utf8(world.run("status VG").stdout).unwrap();
    assert!(status.contains(&path.to_string()), "{status}");
    world.refused("pvs b", 5, "the device shrank");
    world.ok("vgchange -ay --activationmode degraded VG");
    holds(&world, "m", 120, b'm');
    world.refused("vgextend --restoremissing VG b", 5, "was made smaller");
    // As large as it was, it has zeros where data was (NW5).
    File::options().write(true).open(&disks[1]).unwrap().set_len(DISK).unwrap();
    world.refused("vgextend --restoremissing VG b", 5, "what was cut off is lost");
    holds(&world, "m", 120, b'm');
    world.ok("vgreduce --removemissing VG");
    world.ok("vgchange -an VG");
}

/// MS1: the metadata was made on the first disk.
#[test]
fn either_disk_of_a_group_that_grew_is_enough() {
    let world = World::empty("mirgrew");
    let disks = ["a", "b"].map(|name| world.device(name, DISK));
    world.ok("vgcreate VG a");
    world.ok("vgextend VG b");
    world.ok("lvcreate -y -m1 -L 160M -n m VG");
    write(&world, "m", 0, b'm');
    close(&world);
    for disk in &disks {
        let away = open_without(&world, disk);
        holds(&world, "m", 0, b'm');
        close(&world);
        fs::rename(&away, disk).unwrap();
        // A disk that is taken back is known again.
        world.ok(&format!("lvmdevices --deldev {}", disk.display()));
        world.ok(&format!("vgextend --restoremissing VG {}", disk.display()));
        world.ok("vgchange -ay VG");
        wait_in_sync(&world);
        close(&world);
    }
}

/// A disk comes back and lacks what was written meanwhile, and then the other one is lost: what it alone has is lost with
/// it, and not replaced by older data.
#[test]
fn the_only_disk_with_the_newest_data_is_not_given_up_unasked() {
    let (world, disks) = made("mirbehind");
    let places = [0, 16, 32, 48, 64, 80, 96, 112];
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    places.iter().for_each(|at| write(&world, "m", *at, b'1'));
    close(&world);
    let away = open_without(&world, &disks[1]);
    places.iter().for_each(|at| write(&world, "m", *at, b'2'));
    fs::rename(&away, &disks[1]).unwrap();
    world.ok("vgextend --restoremissing VG b");
    let server = world.server().unwrap();
    world.ok("vgchange -an VG");
    rustix::process::kill_process(rustix::process::Pid::from_raw(server).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    let away = pull(&disks[0]);
    let opened = world.run("vgchange -ay --activationmode partial VG");
    assert!(opened.status.success(), "{opened:?}");
    // It was copied by then, or it is known not to be.
    if field(&world, "lvs --noheadings -o lv_health_status VG/m") == "partial" {
        let removed = world.run("vgreduce --removemissing VG");
        if removed.status.success() {
            places.iter().for_each(|at| holds(&world, "m", *at, b'2'));
            return;
        }
        let said = String::from_utf8_lossy(&removed.stderr).into_owned();
        assert!(said.contains("There are still partial LVs"), "{said}");
    }
    close(&world);
    fs::rename(&away, &disks[0]).unwrap();
    world.ok("vgextend --restoremissing VG a");
    world.ok("vgchange -ay VG");
    places.iter().for_each(|at| holds(&world, "m", *at, b'2'));
    close(&world);
}

/// Waits until no copies are being compared, and says how many sectors differ.
fn mismatches(world: &World, action: &str) -> u64 {
    world.ok(&format!("lvchange --syncaction {action} VG/m"));
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let now = field(world, "lvs --noheadings -o raid_sync_action,raid_mismatch_count VG/m");
        if let Some(count) = now.strip_prefix("idle ") {
            return count.parse().unwrap();
        }
        assert!(Instant::now() < until, "it never ends: {now}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A disk loses blocks without an error: a comparison finds them, also those that only a snapshot has.
#[test]
fn a_disk_that_rots_is_found_by_a_comparison() {
    const PAGE: usize = 4096;
    let (world, disks) = made("mirrot");
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    let places = field(&world, "lvs --noheadings -o devices VG/m");
    assert!(places.split_once(',').is_some_and(|(_, second)| second.contains("/b(")), "{places}");
    [0, 60].iter().for_each(|at| write(&world, "m", *at, b'm'));
    world.ok("lvcreate -y -s -n s VG/m");
    write(&world, "m", 60, b'n');
    assert_eq!(mismatches(&world, "check"), 0);
    let disk = File::options().read(true).write(true).open(&disks[1]).unwrap();
    let mut contents = vec![0; usize::try_from(DISK).unwrap()];
    disk.read_exact_at(&mut contents, 0).unwrap();
    let of = |byte: u8| {
        let pages = contents.chunks(PAGE).enumerate();
        pages.filter(move |(_, page)| page.iter().all(|found| *found == byte)).map(|(at, _)| (at * PAGE) as u64)
    };
    // 16 MiB of the volume and its snapshot, and 16 MiB of each alone.
    assert_eq!((of(b'm').count(), of(b'n').count()), (8192, 4096));
    let rotten: Vec<u64> = of(b'm').step_by(1000).chain(of(b'n').take(3)).collect();
    rotten.iter().for_each(|at| disk.write_all_at(b"rot", at + 77).unwrap());
    disk.sync_all().unwrap();
    let sectors = 8 * rotten.len() as u64;
    assert_eq!(mismatches(&world, "check"), sectors);
    assert_eq!(field(&world, "lvs --noheadings -o lv_attr,lv_health_status VG/m"), "owi-a-r-m- mismatches exist");
    let status = String::from_utf8(world.run("status VG").stdout).unwrap();
    assert!(status.contains("the two copies of") && status.contains("--syncaction repair"), "{status}");
    assert_eq!(mismatches(&world, "repair"), sectors);
    wait_in_sync(&world);
    assert_eq!(mismatches(&world, "check"), 0);
    assert_eq!(field(&world, "lvs --noheadings -o lv_attr,lv_health_status VG/m"), "owi-a-r---");
    let mut page = [0; PAGE];
    disk.read_exact_at(&mut page, rotten[0]).unwrap();
    assert_eq!(page, [b'm'; PAGE], "SC2: it is made equal with the first");
    holds(&world, "m", 0, b'm');
    holds(&world, "m", 60, b'n');
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

#[test]
fn a_lost_disk_is_replaced() {
    let (world, disks) = made("mirnew");
    world.ok("lvcreate -y -L 40M -n plain VG a");
    world.ok("lvcreate -y -m1 -L 120M -n m VG");
    write(&world, "m", 0, b'm');
    write(&world, "plain", 0, b'p');
    close(&world);
    fs::remove_file(&disks[1]).unwrap();
    world.ok("vgreduce --removemissing VG");
    world.ok("vgchange -ay VG");
    holds(&world, "m", 0, b'm');
    assert_eq!(field(&world, "lvs --noheadings -o lv_attr,lv_health_status VG/m"), "rwi-a-r-r- refresh needed");
    write(&world, "m", 16, b'n');
    world.refused("lvconvert --repair -y VG/m", 5, "Failed to replace faulty devices");
    world.device("c", DISK);
    world.ok("vgextend VG c");
    let said = world.ok("lvconvert --repair -y VG/m");
    assert!(said.contains("successfully replaced."), "{said}");
    wait_in_sync(&world);
    assert_eq!(field(&world, "lvs --noheadings -o lv_attr,lv_health_status VG/m"), "rwi-a-r---");
    let places = field(&world, "lvs --noheadings -o devices VG/m");
    assert!(places.contains("/a(") && places.contains("/c("), "{places}");
    world.ok("check VG");
    close(&world);
    // What was on the other disk alone is lost; what was mirrored is not.
    pull(&disks[0]);
    world.refused("vgchange -ay --activationmode degraded VG", 5, "Refusing activation of partial LV");
    holds(&world, "m", 0, b'm');
    holds(&world, "m", 16, b'n');
    assert_eq!(field(&world, "lvs --noheadings -o lv_health_status VG/plain"), "partial");
    world.ok("vgchange -an VG");
}

/// A disk is lost under a mounted filesystem. Nobody does anything: the spare has its copies after a while, and the server is killed
/// meanwhile.
#[test]
fn a_spare_takes_over_from_a_lost_disk() {
    let (world, disks) = made("mirtakes");
    world.device("c", DISK);
    world.ok("vgextend VG c");
    world.ok("pvchange -x n --addtag spare c");
    world.ok("lvcreate -y --type raid1 -L 120M -n m VG");
    tool("mkfs.ext4", &["-q", "-F", world.node("m").to_str().unwrap()]);
    let point = world.mount("m", "rw");
    write_files(&point, 0..30);
    let settings = "activation { raid_fault_policy = \"allocate\" }\nserver { repair_delay = 2 }\n";
    fs::write(world.dir.join("etc/rowen.conf"), settings).unwrap();
    File::options().write(true).open(&disks[1]).unwrap().set_len(16 * MIB).unwrap();
    write_files(&point, 30..40);
    let until = Instant::now() + Duration::from_secs(180);
    let mut has_killed = false;
    loop {
        let now = field(&world, "lvs --noheadings -o lv_health_status,raid_sync_action,copy_percent VG/m");
        let places = field(&world, "pvs --noheadings -o pv_name,pv_attr,pv_tags");
        if !has_killed && places.contains("/c a--") {
            kill_server(&world);
            has_killed = true;
        } else if now == "idle 100.00" && !places.contains("unknown") && !places.contains("spare") {
            break;
        }
        assert!(Instant::now() < until, "it is not repaired: {now}; {places}; {}", world.ok("events VG"));
        write_files(&point, 35..45);
        std::thread::sleep(Duration::from_millis(300));
    }
    let places = field(&world, "lvs --noheadings -o devices VG/m");
    assert!(places.contains("/a(") && places.contains("/c("), "{places}");
    let events = world.ok("events VG");
    assert!(events.contains("repaired: the spare ") && events.contains("get the copy that they lack"), "{events}");
    assert!(world.ok("history VG").contains("the automatic repair of volume group"), "{}", world.ok("history VG"));
    world.unmount("m");
    close(&world);
    // What the spare has is all.
    pull(&disks[0]);
    world.ok("vgchange -ay --activationmode degraded VG");
    let point = world.mount("m", "rw");
    check_files(&point, 0..45);
    world.unmount("m");
    tool("e2fsck", &["-f", "-n", world.node("m").to_str().unwrap()]);
    world.ok("vgchange -an VG");
}

/// The server and its keeper are killed under writes, again and again, and each time another disk is away for a while.
#[test]
fn what_was_synced_is_on_each_disk_after_kills() {
    let (world, disks) = made("mirkill");
    world.ok("lvcreate -y --type raid1 -L 64M -n m VG");
    let block = |round: u64, at: u64| Random(round * 1000 + at + 1).bytes(4096);
    let mut newest = [0u64; 64];
    for round in 0u64..6 {
        let file = File::options().write(true).open(world.node("m")).unwrap();
        for at in (0..64).filter(|at| (at * 7 + round) % 3 == 0) {
            file.write_all_at(&block(round, at), at * MIB).unwrap();
            newest[at as usize] = round + 1;
        }
        file.sync_all().unwrap();
        drop(file);
        crate::status::kill_both(&world);
        let disk = &disks[(round % 2) as usize];
        let away = pull(disk);
        // The kernel takes a moment to end what was killed.
        let until = Instant::now() + Duration::from_secs(60);
        while !world.run("vgchange -ay --activationmode degraded VG").status.success() {
            assert!(Instant::now() < until, "it does not open without disk {}", round % 2);
            std::thread::sleep(Duration::from_millis(50));
        }
        let file = File::open(world.node("m")).unwrap();
        for at in (0..64).filter(|at| newest[*at as usize] > 0) {
            let mut read = vec![0; 4096];
            file.read_exact_at(&mut read, at * MIB).unwrap();
            assert!(read == block(newest[at as usize] - 1, at), "round {round}: MiB {at}");
        }
        drop(file);
        close(&world);
        fs::rename(&away, disk).unwrap();
        world.ok(&format!("vgextend --restoremissing VG {}", ["a", "b"][(round % 2) as usize]));
        world.ok("vgchange -ay VG");
        wait_in_sync(&world);
    }
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

/// What makes no sense changes nothing, and says why.
#[test]
fn bad_input() {
    let world = World::empty("mirbad");
    world.device("a", 200 * MIB);
    world.device("b", 200 * MIB);
    world.device("c", 100 * MIB);
    world.ok("vgcreate VG a");
    world.refused("lvcreate --type raid1 -L 8M -n m VG", 5, "Insufficient suitable allocatable extents");
    world.ok("vgextend VG b c");
    let before = field(&world, "vgs --noheadings -o vg_free,lv_count VG");
    for (line, code, words) in [
        ("lvcreate --type raid1 -m0 -L 8M VG", 3, "--mirrors must be at least 1 with segment type raid1."),
        ("lvcreate -m2 -L 8M VG", 5, "two copies of its data, not 3"),
        ("lvcreate -m4294967296 -L 8M VG", 5, "two copies"),
        ("lvcreate -m-1 -L 8M VG", 3, "Number may not be negative."),
        ("lvcreate --type linear -m1 -L 8M VG", 3, "does not accept option: --mirrors"),
        ("lvcreate -m1 -m1 -L 8M VG", 3, "may not be repeated"),
        ("lvcreate --type raid1 -R 0 -L 8M VG", 3, "Region size may not be zero."),
        ("lvcreate --type raid1 -R 3k -L 8M VG", 3, "multiple of machine memory page size"),
        ("lvcreate --type raid1 -i 2 -L 8M VG", 3, "Stripes argument cannot be used"),
        ("lvcreate --type raid10 -m1 -i2 -L 8M VG", 5, "is not supported"),
        ("lvcreate --type raid6 -L 8M VG", 5, "is not supported"),
        ("lvcreate --type raid1 -L 8M VG a", 5, "Insufficient"),
        ("lvcreate --type raid1 -L 150M VG b c", 5, "Insufficient"),
        ("lvcreate --type raid1 -L 300M VG", 5, "Insufficient"),
        ("lvcreate --type raid1 -L 8M VG a:0-1:1-2 b", 5, "Overlapping PE ranges"),
        ("lvcreate --type raid1 -L 8M VG a:9-3 b", 5, "PE range error"),
        ("lvcreate --type raid1 -L 8M VG a:0-4294967296 b", 5, "error"),
    ] {
        world.refused(line, code, words);
    }
    assert_eq!(field(&world, "vgs --noheadings -o vg_free,lv_count VG"), before);
    world.ok("lvcreate -y -L 16M -n l VG");
    world.ok("lvcreate -y --type raid1 -L 16M -n m VG");
    write(&world, "m", 0, b'm');
    for (line, words) in [
        ("lvconvert -y -m0 VG/m nosuch", "not found in Volume Group"),
        ("lvconvert -y --type striped VG/m", "cannot become striped"),
        ("lvconvert -y -m1 VG/l nosuch", "not found in Volume Group"),
        ("lvconvert -y -m2 VG/l", "cannot have 3 copies"),
        ("lvconvert -y -m2 VG/m", "cannot have 3 copies"),
        ("lvconvert -y -m+1 VG/m", "cannot have 3 copies"),
        ("lvconvert -y --splitmirrors 1 -n x VG/m", "can be split off"),
        ("lvconvert -y --replace a VG/l", "is not mirrored"),
        ("lvconvert -y --replace nosuch VG/m", "not found in Volume Group"),
        ("lvconvert -y --type thin-pool VG/m", "is mirrored, and thin pools are not"),
        ("lvconvert -y --repair VG/l", "rowen repair"),
        ("lvconvert -y --repair VG/m nosuch", "not found in Volume Group"),
        ("lvchange --syncaction check VG/l", "require LV types raid"),
        ("lvchange --resync VG/m", "is not supported"),
        ("lvextend -m2 -L +4M VG/m", "two copies"),
        ("lvextend --type raid1 -L +4M VG/l", "one copy of its data"),
        ("lvextend -L +300M VG/m", "Insufficient"),
    ] {
        world.refused(line, 5, words);
    }
    world.ok("lvconvert -y --repair VG/m");
    world.ok("lvextend -L +8M VG/m");
    world.ok("lvreduce -f -L 16M VG/m");
    holds(&world, "m", 0, b'm');
    world.ok("lvremove -f VG/m VG/l");
    world.ok("check VG");
}
