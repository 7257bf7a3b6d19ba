//! Disks that become larger and smaller under physical volumes, as an array or a cloud makes them.

use crate::world::{MIB, World, tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A loop device; dropped, it is gone.
pub struct Disk {
    pub file: PathBuf,
    pub device: String,
}

impl Disk {
    pub fn new(world: &World, name: &str, mib: u64) -> Disk {
        let file = world.device(name, mib * MIB);
        let device = tool("losetup", &["--find", "--show", file.to_str().unwrap()]).trim().to_owned();
        Disk { file, device }
    }

    pub fn resize(&self, mib: u64) {
        File::options().write(true).open(&self.file).unwrap().set_len(mib * MIB).unwrap();
        tool("losetup", &["-c", &self.device]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _may_be_gone = std::process::Command::new("losetup").args(["-d", &self.device]).status();
    }
}

fn extents(world: &World, disk: &Disk) -> u64 {
    world.ok(&format!("pvs --noheadings -o pv_pe_count {}", disk.device)).trim().parse().unwrap()
}

pub fn digest(file: &Path) -> String {
    tool("sha256sum", &[file.to_str().unwrap()])
}

#[test]
fn a_disk_between_others_grows_and_shrinks_while_its_filesystem_is_mounted() {
    let disks;
    let world = World::empty("disks");
    disks = ["a", "b", "c"].map(|name| Disk::new(&world, name, 200));
    let [first, between, last] = &disks;
    world.ok(&format!("vgcreate VG {} {} {}", first.device, between.device, last.device));
    world.ok(&format!("lvcreate -y -L 100M -n lv VG {}", between.device));
    tool("mkfs.ext4", &["-q", world.node("lv").to_str().unwrap()]);
    let point = world.mount("lv", "rw");
    fs::write(point.join("file"), vec![7u8; 40 << 20]).unwrap();
    world.ok("lvcreate -y -s -n before VG/lv");
    assert_eq!(extents(&world, between), 49);

    // It grows: known when it is asked for, and room at once.
    between.resize(600);
    assert_eq!(extents(&world, between), 49);
    let output = world.ok(&format!("pvresize {}", between.device));
    assert!(output.contains("1 physical volume(s) resized or updated / 0 physical volume(s) not resized"), "{output}");
    assert_eq!([first, between, last].map(|disk| extents(&world, disk)), [49, 149, 49]);
    world.unmount("lv");
    world.ok(&format!("lvextend -r -L 420M VG/lv {}", between.device));
    world.mount("lv", "rw");
    fs::write(point.join("more"), vec![9u8; 300 << 20]).unwrap();
    let before = digest(&point.join("file"));

    // What is in use stays; then its end is given back, and the disk cut there.
    world.refused(
        &format!("pvresize -y --setphysicalvolumesize 300M {}", between.device),
        5,
        "cannot resize to 74 extents as later ones are allocated.",
    );
    world.refused(&format!("pvresize --setphysicalvolumesize 580M {}", between.device), 5, "not resized");
    world.refused(&format!("pvresize -y --setphysicalvolumesize 601M {}", between.device), 5, "has only");
    assert_eq!(extents(&world, between), 149);
    world.ok(&format!("pvresize -y --setphysicalvolumesize 580M {}", between.device));
    assert_eq!(extents(&world, between), 144);
    world.ok("check VG");
    world.unmount("lv");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    between.resize(580);
    world.ok("check VG");
    world.ok("vgchange -ay -K VG");
    world.mount("lv", "rw");
    assert_eq!(digest(&point.join("file")), before);
    world.unmount("lv");
    world.ok("check VG");

    // If the file is cut too far, pvresize refuses and changes nothing. At its old size, the disk works as before.
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    between.resize(570);
    world.refused("vgchange -ay VG", 5, "shrank: it has");
    world.refused(&format!("pvresize {}", between.device), 5, "make its device as large again");
    between.resize(580);
    world.ok("vgchange -ay -K VG");
    tool("e2fsck", &["-f", "-n", world.node("lv").to_str().unwrap()]);
    world.ok("check VG");
    assert_eq!(extents(&world, between), 144);
    drop(world);
}

/// Who looks into the log finds why, whether or not anybody has asked for a change since.
#[test]
fn a_group_that_stops_says_so_in_its_log() {
    let disk;
    let world = World::empty("stops");
    disk = Disk::new(&world, "a", 64);
    world.ok(&format!("vgcreate VG {}", disk.device));
    world.ok("lvcreate -y -L 20M -n lv VG");
    let kept = world.dir.join("kept");
    fs::copy(&disk.file, &kept).unwrap();
    disk.resize(1);
    world.refused("lvcreate -y -s -n s VG/lv", 5, "VG");
    let log = || fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !log().contains("stopped after a failed write") {
        assert!(Instant::now() < until, "{}", log());
        std::thread::sleep(Duration::from_millis(100));
    }
    world.refused("lvcreate -y -L 4M -n another VG", 5, "stopped after a failed write");
    world.ok("lvs VG");
    assert_eq!(log().matches("stopped after a failed write").count(), 1, "{}", log());
    // The disk is well again, the server another: all goes on.
    let mut device = File::options().write(true).open(&disk.file).unwrap();
    std::io::copy(&mut File::open(&kept).unwrap(), &mut device).unwrap();
    tool("losetup", &["-c", &disk.device]);
    world.run("stop VG");
    world.ok("check VG");
    // What its server wrote to the beginning of the disk after the copy was made is not in the copy: a person has to say that it counts.
    world.refused("lvcreate -y -s -n s VG/lv", 5, "older copy");
    world.ok("clear --force VG");
    world.ok("lvcreate -y -s -n s VG/lv");
    drop(world);
}
