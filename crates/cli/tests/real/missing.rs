//! A group of three disks of which one is pulled: it goes on without, and takes it back, or does without it for good.

use crate::world::{MIB, World, tool};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const MIBS: u64 = 200;

/// Disks, and a volume on each; volumes hold a letter, again and again.
fn made(name: &str) -> (World, [PathBuf; 3]) {
    let world = World::empty(name);
    let disks = ["a", "b", "c"].map(|name| world.device(name, MIBS * MIB));
    world.ok("vgcreate VG a b c");
    for (volume, disk) in [("va", "a"), ("vb", "b"), ("vc", "c")] {
        world.ok(&format!("lvcreate -y -L 64M -n {volume} VG {disk}"));
        write(&world, volume, 0, volume.as_bytes()[1]);
    }
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    (world, disks)
}

pub fn write(world: &World, volume: &str, mib: u64, byte: u8) {
    let file = File::options().write(true).open(world.node(volume)).unwrap();
    file.write_all_at(&vec![byte; 16 << 20], mib << 20).unwrap();
    file.sync_all().unwrap();
}

pub fn holds(world: &World, volume: &str, mib: u64, byte: u8) {
    let mut read = vec![0; 16 << 20];
    File::open(world.node(volume)).unwrap().read_exact_at(&mut read, mib << 20).unwrap();
    assert!(read.iter().all(|found| *found == byte), "{volume} at {mib} MiB");
}

fn is_lost(world: &World, volume: &str) {
    let read = File::open(world.node(volume)).unwrap().read_exact_at(&mut [0; 4096], 0);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(eio()), "{volume}");
}

fn eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

/// The disk is pulled.
pub fn pull(disk: &std::path::Path) -> PathBuf {
    let away = disk.with_extension("away");
    fs::rename(disk, &away).unwrap();
    away
}

fn field(world: &World, line: &str) -> String {
    world.ok(line).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Without the third disk: what is shown, what works, and what does not.
fn works_without(world: &World) {
    assert_eq!(
        field(world, "vgs --noheadings -o vg_attr,pv_count,vg_missing_pv_count,vg_partial VG"),
        "wz-pn- 3 1 partial"
    );
    let pvs = world.ok("pvs --noheadings -o pv_name,pv_attr,pv_missing");
    assert!(pvs.contains("[unknown]") && pvs.contains("u-m ") && pvs.contains(" missing"), "{pvs}");
    let lvs = field(world, "lvs --noheadings -o lv_name,lv_attr,lv_health_status VG");
    assert_eq!(lvs, "va -wi-a----- vb -wi-a----- vc -wi-a---p- partial");
    holds(world, "va", 0, b'a');
    holds(world, "vb", 0, b'b');
    is_lost(world, "vc");
    write(world, "vb", 16, b'x');
    world.ok("lvcreate -y -s -n point VG/vb");
    write(world, "vb", 0, b'y');
    holds(world, "point", 0, b'b');
    world.ok("lvremove -f VG/point");
    world.refused("lvcreate -y -L 4M -n more VG", 5, "while PVs are missing.");
    world.refused("lvextend -L +4M VG/va", 5, "See vgreduce --removemissing and vgextend --restoremissing.");
    world.device("d", MIBS * MIB);
    world.refused("vgextend VG d", 5, "while PVs are missing.");
    let status = world.run("status VG");
    let output = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(output.contains("goes on without physical volume"), "{output}");
    let check = world.ok("check VG");
    assert!(!check.contains("bad"), "{check}");
}

/// What was being written when a disk was lost, and is not on it when it comes back, is an error until it is written again.
#[test]
fn what_never_got_to_a_pulled_disk_is_an_error() {
    let (world, disks) = made("behind");
    world.ok("vgchange -ay VG");
    // The first writes after a snapshot go to the third disk.
    world.ok("pvchange -x n a b");
    world.ok("lvcreate -y -s -n point VG/vc");
    let before = disks[2].with_extension("before");
    fs::copy(&disks[2], &before).unwrap();
    let file = File::options().write(true).open(world.node("vc")).unwrap();
    file.write_all_at(&[b'z'; 40 * 4096], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    crate::status::kill_both(&world);
    pull(&disks[2]);
    // The kernel takes a moment to end what was killed.
    let until = Instant::now() + Duration::from_secs(60);
    while !world.run("vgchange -ay -P VG").status.success() {
        assert!(Instant::now() < until, "it does not open");
        std::thread::sleep(Duration::from_millis(50));
    }
    is_lost(&world, "vc");
    world.ok("vgchange -an VG");
    fs::rename(&before, &disks[2]).unwrap();
    world.ok("vgextend --restoremissing VG c");
    let output = || String::from_utf8_lossy(&world.run("vgs VG").stderr).into_owned();
    assert!(output().contains("40 block(s) of volume group"), "{}", output());
    world.ok("vgchange -ay VG");
    is_lost(&world, "vc");
    let mut rest = [0; 4096];
    File::open(world.node("vc")).unwrap().read_exact_at(&mut rest, 40 * 4096).unwrap();
    assert_eq!(rest, [b'c'; 4096]);
    holds(&world, "point", 0, b'c');
    write(&world, "vc", 0, b'y');
    holds(&world, "vc", 0, b'y');
    // The next checkpoint frees what was there.
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    assert_eq!(output(), "");
    world.ok("check VG");
}

#[test]
fn a_disk_is_pulled_and_comes_back() {
    let (world, disks) = made("back");
    let before = disks[2].with_extension("before");
    fs::copy(&disks[2], &before).unwrap();
    let away = pull(&disks[2]);
    world.refused("vgchange -ay VG", 5, "To go on without: vgchange -ay --activationmode partial");
    world.refused("vgchange -ay --activationmode complete VG", 5, "is missing");
    let output = world.run("vgchange -ay --activationmode degraded VG");
    assert_eq!(output.status.code(), Some(5), "the partial one is not activated");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Refusing activation of partial LV"), "{output:?}");
    world.refused("lvchange -ay VG/vc", 5, "Refusing activation of partial LV");
    world.ok("lvchange -ay -P VG/vc");
    works_without(&world);
    world.refused("vgreduce --removemissing VG", 5, "There are still partial LVs in");

    // It is there again, and nobody uses it; a copy in another state is not taken.
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let events = world.ok("events VG");
    let output: Vec<_> = events.lines().filter(|line| line.contains(" pv-missing: ")).collect();
    assert!(
        !output.is_empty() && output.iter().all(|line| line.contains("goes on without physical volume")),
        "{events}"
    );
    fs::rename(&away, &disks[2]).unwrap();
    world.ok("vgchange -ay -P VG");
    is_lost(&world, "vc");
    world.refused("vgextend --restoremissing VG a", 5, "was not missing in");
    let label = fs::read(&disks[2]).unwrap();
    File::options().write(true).open(&disks[2]).unwrap().write_all_at(&vec![0; 32 << 10], 0).unwrap();
    File::options().write(true).open(&disks[2]).unwrap().write_all_at(&vec![0; 32 << 10], 512 << 10).unwrap();
    world.refused("vgextend --restoremissing VG c", 5, "No PV found");
    fs::write(&disks[2], label).unwrap();
    world.ok("vgextend --restoremissing VG c");
    holds(&world, "vc", 0, b'c');
    holds(&world, "vb", 0, b'y');
    holds(&world, "vb", 16, b'x');
    assert_eq!(field(&world, "vgs --noheadings -o vg_attr,vg_missing_pv_count VG"), "wz--n- 0");
    write(&world, "vc", 0, b'z');
    world.ok("check VG");
    world.ok("vgchange -an VG");
    world.ok("stop VG");

    // It left again; what it was before is not what it is now.
    let away = pull(&disks[2]);
    world.ok("vgchange -ay -P VG");
    fs::copy(&before, &disks[2]).unwrap();
    world.refused("vgextend --restoremissing VG c", 5, "No PV has been restored.");
    is_lost(&world, "vc");
    fs::rename(&away, &disks[2]).unwrap();
    world.ok("vgextend --restoremissing VG c");
    holds(&world, "vc", 0, b'z');
    world.ok("vgchange -an VG");
}

#[test]
fn a_disk_is_pulled_and_given_up() {
    let (world, disks) = made("lost");
    fs::remove_file(&disks[1]).unwrap();
    let output = world.run("vgreduce --removemissing VG");
    assert_eq!(output.status.code(), Some(5));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("Partial LV vb needs to be repaired or removed."),
        "{output:?}"
    );
    world.ok("lvchange -ay VG/va VG/vc");
    world.ok("vgreduce --removemissing --force VG");
    assert_eq!(field(&world, "vgs --noheadings -o vg_attr,pv_count,lv_count,vg_missing_pv_count VG"), "wz--n- 2 2 0");
    holds(&world, "va", 0, b'a');
    holds(&world, "vc", 0, b'c');
    world.ok("vgreduce --removemissing VG");
    world.device("d", MIBS * MIB);
    world.ok("vgextend VG d");
    world.ok("lvcreate -y -L 64M -n vd VG d");
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

/// What is being received has blocks on the lost disk: nothing can come of it, and it holds nobody up.
#[test]
fn what_is_received_on_a_lost_disk_is_given_up() {
    let from = World::new("lostsent", 400);
    from.ok("lvcreate -L 170M -n db VG");
    let mut node = File::options().write(true).open(from.node("db")).unwrap();
    let mut random = crate::world::Random(5);
    (0..170).for_each(|_| node.write_all(&random.bytes(MIB as usize)).unwrap());
    drop(node);
    from.ok("lvcreate -s -n mon VG/db");
    let stream = from.dir.join("stream");
    assert!(from.command("send VG/mon").stdout(File::create(&stream).unwrap()).status().unwrap().success());
    File::options().write(true).open(&stream).unwrap().set_len(160 * MIB).unwrap();
    let world = World::empty("lostgot");
    let disks = ["a", "b"].map(|name| world.device(name, MIBS * MIB));
    world.ok("vgcreate VG a b");
    world.ok("lvcreate -y -L 64M -n va VG a");
    write(&world, "va", 0, b'a');
    let cut = world.command("receive VG/db").stdin(File::open(&stream).unwrap()).output().unwrap();
    assert_eq!(cut.status.code(), Some(5));
    assert!(world.ok("receive --token VG/db").starts_with("rowen1-"));
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    fs::remove_file(&disks[1]).unwrap();
    world.ok("vgreduce --removemissing VG");
    assert!(world.ok("receive --status VG").contains("Nothing is being received"));
    assert_eq!(field(&world, "vgs --noheadings -o vg_attr,pv_count,lv_count,vg_missing_pv_count VG"), "wz--n- 1 1 0");
    world.ok("lvchange -ay VG/va");
    holds(&world, "va", 0, b'a');
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

/// Where the journal is on one disk, that one is needed: the group says so, and no byte changes.
#[test]
fn the_disk_with_the_journal_is_needed() {
    let (world, disks) = made("ring");
    world.ok("vgchange --vgmetadatacopies 1 VG");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let away = pull(&disks[0]);
    let sums = || disks[1..].iter().map(|disk| tool("sha256sum", &[disk.to_str().unwrap()])).collect::<String>();
    let before = sums();
    world.refused("vgchange -ay --activationmode partial VG", 5, "the journal is on it");
    assert_eq!(sums(), before, "it was written to");
    fs::rename(&away, &disks[0]).unwrap();
    world.ok("vgchange -ay VG");
    for (volume, byte) in [("va", b'a'), ("vb", b'b'), ("vc", b'c')] {
        holds(&world, volume, 0, byte);
    }
    world.ok("vgchange -an VG");
}

/// The journal is on the first two disks. Each of them is lost, and comes back, after the machine died under load; and it is kept
/// once, or twice, as somebody says.
#[test]
fn either_disk_with_the_journal_can_be_lost() {
    let (world, disks) = made("journals");
    assert_eq!(field(&world, "vgs --noheadings -o vg_journal_copies VG"), "2");
    for (lost, others) in [(0, ["vb", "vc"]), (1, ["va", "vc"]), (0, ["vb", "vc"])] {
        world.ok("vgchange -ay VG");
        // What is redirected goes to the disks that stay.
        let name = ["a", "b"][lost];
        world.ok(&format!("pvchange -x n {name}"));
        for (volume, byte) in others.iter().zip([b'1', b'2']) {
            // What is written after a snapshot is in the journal.
            world.ok(&format!("lvcreate -y -s -n point VG/{volume}"));
            write(&world, volume, 0, byte + lost as u8);
            world.ok("lvremove -f VG/point");
        }
        crate::status::kill_both(&world);
        let away = pull(&disks[lost]);
        let until = Instant::now() + Duration::from_secs(60);
        while !world.run("vgchange -ay --activationmode partial VG").status.success() {
            assert!(Instant::now() < until, "it does not open without disk {lost}");
            std::thread::sleep(Duration::from_millis(50));
        }
        for (volume, byte) in others.iter().zip([b'1', b'2']) {
            holds(&world, volume, 0, byte + lost as u8);
        }
        is_lost(&world, if lost == 0 { "va" } else { "vb" });
        assert_eq!(field(&world, "vgs --noheadings -o vg_journal_copies VG"), "1");
        world.ok("vgchange -an VG");
        world.ok("stop VG");
        fs::rename(&away, &disks[lost]).unwrap();
        world.ok(&format!("vgextend --restoremissing VG {name}"));
        world.ok(&format!("pvchange -x y {name}"));
        assert_eq!(field(&world, "vgs --noheadings -o vg_journal_copies VG"), "2");
    }
    world.ok("vgchange --vgmetadatacopies 1 VG");
    assert_eq!(field(&world, "vgs --noheadings -o vg_journal_copies VG"), "1");
    world.ok("vgchange --vgmetadatacopies 2 VG");
    assert_eq!(field(&world, "vgs --noheadings -o vg_journal_copies VG"), "2");
    let check = world.ok("check VG");
    assert!(!check.contains("bad"), "{check}");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
}

/// Both halves of a group were used without each other: they are refused together, and each alone goes on (MB8).
#[test]
fn two_halves_are_refused() {
    let (world, disks) = made("halves");
    world.ok("vgremove -f VG");
    world.ok("vgcreate VG a b");
    world.ok("stop VG");
    let copies = disks.each_ref().map(|disk| {
        let copy = disk.with_extension("copy");
        fs::copy(disk, &copy).unwrap();
        copy
    });
    let use_half = || {
        world.ok("vgchange -ay --activationmode partial VG");
        world.ok("vgchange -an VG");
        world.ok("stop VG");
    };
    pull(&disks[1]);
    use_half();
    // The other half is used where this one is not, as on another machine, which has not seen this one.
    fs::remove_dir_all(world.dir.join("etc/witness")).unwrap();
    let first = pull(&disks[0]);
    fs::rename(&copies[1], &disks[1]).unwrap();
    use_half();
    fs::rename(&first, &disks[0]).unwrap();
    world.refused("vgchange -ay VG", 5, "went on without each other");
    world.refused("vgchange -ay --activationmode partial VG", 5, "went on without each other");
    pull(&disks[1]);
    fs::remove_dir_all(world.dir.join("etc/witness")).unwrap();
    world.ok("vgs VG");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
}
