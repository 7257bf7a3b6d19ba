//! Striped volumes on real disks: their blocks are on all disks in turn, and they outlive kills and boots as others do.

use crate::mirrors::{check_files, field, write_files};
use crate::missing::pull;
use crate::world::{MIB, Random, World, tool};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const STRIPE: usize = 64 << 10;

fn made(name: &str) -> (World, [PathBuf; 3]) {
    let world = World::empty(name);
    let disks = ["a", "b", "c"].map(|name| world.device(name, 300 * MIB));
    world.ok("vgcreate VG a b c");
    (world, disks)
}

/// Where on the disk this stripe lies.
fn find(disk: &Path, stripe: &[u8]) -> Option<usize> {
    let whole = fs::read(disk).unwrap();
    (0..whole.len() / 4096).map(|block| block * 4096).find(|at| whole[*at..].starts_with(stripe))
}

/// Stripes that follow each other are on the disks in turn, and every third one follows on the same disk.
#[test]
fn stripes_are_on_the_disks_in_turn() {
    let (world, disks) = made("inturn");
    world.ok("lvcreate -y -i 3 -I 64k -L 60M -n s VG");
    assert_eq!(field(&world, "lvs --noheadings -o segtype,stripes,stripe_size VG/s"), "striped 3 64.00k");
    let bytes = Random(5).bytes(12 * STRIPE);
    let node = File::options().write(true).open(world.node("s")).unwrap();
    node.write_all_at(&bytes, 0).unwrap();
    node.sync_all().unwrap();
    drop(node);
    let place = |stripe: usize| {
        let own = &bytes[stripe * STRIPE..(stripe + 1) * STRIPE];
        let on = |disk: &PathBuf| find(disk, own);
        disks.iter().enumerate().find_map(|(number, disk)| Some((number, on(disk)?))).expect("it is somewhere")
    };
    let places: Vec<_> = (0..12).map(place).collect();
    for (stripe, (disk, at)) in places.iter().enumerate().skip(3) {
        assert_eq!((*disk, *at), (places[stripe - 3].0, places[stripe - 3].1 + STRIPE), "{places:?}");
    }
    let first: std::collections::BTreeSet<usize> = places[..3].iter().map(|(disk, _)| *disk).collect();
    assert_eq!(first.len(), 3, "{places:?}");
    world.ok("vgchange -an VG");
}

/// A mounted filesystem with snapshots, a killed server, and the group opened again.
#[test]
fn a_filesystem_on_stripes_outlives_a_kill() {
    let (world, _disks) = made("onstripes");
    world.ok("lvcreate -y -i 2 -L 120M -n s VG");
    tool("mkfs.ext4", &["-q", "-F", world.node("s").to_str().unwrap()]);
    let point = world.mount("s", "rw");
    write_files(&point, 0..60);
    world.ok("lvcreate -y -s -n before VG/s");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&point, 30..90));
        let server = world.server().expect("it runs");
        let server = rustix::process::Pid::from_raw(server).unwrap();
        rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
        writer.join().unwrap();
    });
    world.ok("lvextend -L +40M VG/s");
    check_files(&point, 0..90);
    world.unmount("s");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    world.ok("check VG");
    world.ok("vgchange -ay VG");
    let point = world.mount("s", "rw");
    check_files(&point, 0..90);
    world.unmount("s");
    tool("e2fsck", &["-f", "-n", world.node("s").to_str().unwrap()]);
    let before = world.mount("before", "ro");
    check_files(&before, 0..60);
    assert!(!before.join("file75").exists());
    world.unmount("before");
    world.ok("check VG");
    world.ok("vgchange -an VG");
}

/// A disk with stripes is lost: the volume is partial. It comes back, or the volume is removed and the disk leaves.
#[test]
fn a_disk_with_stripes_is_lost() {
    let (world, disks) = made("lost");
    world.ok("lvcreate -y -i 3 -L 60M -n s VG");
    world.ok("lvcreate -y -L 20M -n l VG a");
    let bytes = Random(7).bytes(6 * STRIPE);
    let write = |node: &str| {
        let node = File::options().write(true).open(world.node(node)).unwrap();
        node.write_all_at(&bytes, 0).unwrap();
        node.sync_all().unwrap();
    };
    let read = |node: &str, stripe: usize| {
        let mut found = vec![0; STRIPE];
        let outcome = File::open(world.node(node)).unwrap().read_exact_at(&mut found, (stripe * STRIPE) as u64);
        outcome.map(|()| found == bytes[stripe * STRIPE..(stripe + 1) * STRIPE])
    };
    write("s");
    write("l");
    let close = || {
        world.ok("vgchange -an VG");
        world.ok("stop VG");
    };
    close();
    let away = pull(&disks[2]);
    world.refused("vgchange -ay VG", 5, "is missing");
    world.ok("vgchange -ay --activationmode partial VG");
    assert_eq!(field(&world, "lvs --noheadings -o lv_name,lv_health_status VG"), "l s partial");
    assert!((0..6).all(|stripe| read("l", stripe).unwrap()));
    let found: Vec<_> = (0..6).map(|stripe| read("s", stripe).ok()).collect();
    assert_eq!(found.iter().filter(|stripe| **stripe == Some(true)).count(), 4, "{found:?}");
    assert_eq!(found.iter().filter(|stripe| stripe.is_none()).count(), 2, "{found:?}");
    close();
    fs::rename(&away, &disks[2]).unwrap();
    world.ok("vgextend --restoremissing VG c");
    world.ok("vgchange -ay VG");
    assert!((0..6).all(|stripe| read("s", stripe).unwrap()));
    world.refused("vgreduce VG c", 5, "in use");
    close();
    pull(&disks[2]);
    world.ok("vgchange -ay --activationmode partial VG");
    world.refused("vgreduce --removemissing VG", 5, "");
    world.ok("vgreduce --removemissing --force VG");
    assert_eq!(field(&world, "lvs --noheadings -o lv_name VG"), "l");
    assert_eq!(field(&world, "vgs --noheadings -o pv_count,vg_missing_pv_count,vg_striped VG"), "2 0 0");
    assert!((0..6).all(|stripe| read("l", stripe).unwrap()));
    world.ok("lvcreate -y -i 2 -L 40M -n t VG");
    world.ok("check VG");
    world.ok("vgchange -an VG");
}
