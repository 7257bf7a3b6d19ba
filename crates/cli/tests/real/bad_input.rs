//! What a machine or a user may get wrong with devices: each is one clear sentence and an exit code, and changes nothing.

use crate::world::{MIB, Random, World, tool};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What the file holds, as a checksum of its own kind: the bytes.
fn image(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn one_sentence(world: &World, line: &str, words: &str) {
    let output = world.run(line);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 0), "{line} succeeded");
    assert!(err.contains(words), "{line}: {err}");
    assert!(!err.contains("panicked") && err.lines().count() <= 3, "{line}: {err}");
}

#[test]
fn a_mounted_device_is_refused() {
    let world = World::empty("busy");
    let disk = world.device("disk", 64 * MIB);
    let device = tool("losetup", &["--find", "--show", disk.to_str().unwrap()]).trim().to_owned();
    let _detached = Detached(device.clone());
    tool("mkfs.ext4", &["-q", &device]);
    let point = world.dir.join("mnt-disk");
    fs::create_dir_all(&point).unwrap();
    tool("mount", &[&device, point.to_str().unwrap()]);
    one_sentence(&world, &format!("pvcreate -ff -y {device}"), &device);
    one_sentence(&world, &format!("vgcreate VG {device}"), &device);
    tool("umount", &[point.to_str().unwrap()]);
    tool("e2fsck", &["-f", "-n", &device]);
}

struct Detached(String);

impl Drop for Detached {
    fn drop(&mut self) {
        let _shown = std::process::Command::new("umount").arg(&self.0).stderr(std::process::Stdio::null()).status();
        tool("losetup", &["-d", &self.0]);
    }
}

#[test]
fn a_read_only_device_is_refused() {
    let world = World::empty("ro");
    let disk = world.device("disk", 64 * MIB);
    let device = tool("losetup", &["--find", "--show", "--read-only", disk.to_str().unwrap()]).trim().to_owned();
    let _detached = Detached(device.clone());
    one_sentence(&world, &format!("pvcreate {device}"), &device);
    assert!(image(&disk).iter().all(|byte| *byte == 0), "the disk was changed");
}

#[test]
fn a_group_with_a_missing_device_is_not_opened() {
    let world = World::new("miss", 64);
    world.device("second", 64 * MIB);
    world.ok("vgextend VG second");
    world.ok("lvcreate -L 100M -n data VG");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let (here, away) = (world.dir.join("second"), world.dir.join("away"));
    fs::rename(&here, &away).unwrap();
    let before = [image(&world.dir.join("pv")), image(&away)];
    one_sentence(&world, "vgchange -ay VG", "second");
    one_sentence(&world, "lvcreate -L 4M -n more VG", "second");
    one_sentence(&world, "check VG", "second");
    assert!(before == [image(&world.dir.join("pv")), image(&away)], "a device was changed");
    fs::rename(&away, &here).unwrap();
    world.ok("vgchange -ay VG");
    assert!(world.node("data").exists());
}

/// The label and both superblocks, the journal and everything else of the metadata, byte ranges at a time.
#[test]
fn damaged_devices_are_reported_and_left_alone() {
    let world = World::new("flip", 48);
    world.ok("lvcreate -L 8M -n data VG");
    world.ok("lvcreate -s -n before VG/data");
    fs::write(world.node("data"), vec![b'd'; MIB as usize]).unwrap();
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let pv = world.dir.join("pv");
    let whole = image(&pv);
    let written: Vec<usize> =
        (0..whole.len()).step_by(4096).filter(|at| whole[*at..at + 4096].iter().any(|b| *b != 0)).collect();
    let (mut random, mut sound, mut reported) = (Random(5), 0, 0);
    for round in 0..40 {
        let mut damaged = whole.clone();
        let flips = if round % 4 == 0 { 400 } else { 1 + random.below(8) };
        for _ in 0..flips {
            let block = written[random.below(written.len() as u64) as usize];
            damaged[block + random.below(4096) as usize] ^= 1 << random.below(8);
        }
        File::options().write(true).open(&pv).unwrap().write_all_at(&damaged, 0).unwrap();
        let output = world.run("check VG");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("panicked") && output.status.code().is_some(), "round {round}: {err}");
        match output.status.success() {
            true => sound += 1,
            false => reported += usize::from(!err.trim().is_empty()),
        }
        assert!(output.status.success() || !err.trim().is_empty(), "round {round} failed without a word");
        assert!(image(&pv) == damaged, "round {round}: check changed the device");
        // Opened for use: served, or refused with a word. Never a panic.
        let output = world.run("vgchange -ay VG");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("panicked") && output.status.code().is_some(), "round {round}: {err}");
        assert!(output.status.success() || !err.trim().is_empty(), "round {round} failed without a word");
        let log = fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap_or_default();
        assert!(!log.contains("panicked"), "round {round}: {log}");
        world.run("vgchange -an VG");
        world.run("stop VG");
    }
    assert!(
        reported > 0 && sound > 0,
        "{reported} damages reported, {sound} harmless: the test damages too much or too little"
    );
    File::options().write(true).open(&pv).unwrap().write_all_at(&whole, 0).unwrap();
    world.ok("check VG");
}

#[test]
fn names_that_lvm_refuses_are_refused() {
    let world = World::new("name", 32);
    for name in [".", "..", "-x", "a/b/c", "snapshot", "pvmove0", "x_mlog", "a b", "é", "x_tdata"] {
        let output = world.run(&format!("lvcreate -L 4M -n {name} VG"));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !err.trim().is_empty() && !err.contains("panicked"), "{name:?}: {err}");
    }
    world.refused("lvcreate -L 4M -n VG/../../etc VG", 3, "");
    assert_eq!(world.ok("lvs --noheadings VG"), "");
}

/// A copy of a physical volume does not take the place of the original in the devices file, where the original would be lost.
#[test]
fn a_copy_is_not_added_beside_the_original() {
    let world = World::empty("copied");
    let original = world.device("a", 64 * MIB);
    world.ok("vgcreate VG a");
    world.ok("stop VG");
    fs::copy(&original, world.dir.join("z")).unwrap();
    world.refused("lvmdevices --adddev z", 5, "which is attached, too: one is a copy of the other");
    world.refused("lvmdevices --deldev z", 5, "No devices file entry");
    assert!(world.ok("pvs --noheadings -o pv_name").trim().ends_with("/a"));
    world.ok("stop VG");
    // It is the original itself under another name, or there is no other any more.
    std::os::unix::fs::symlink("a", world.dir.join("same")).unwrap();
    world.ok("lvmdevices --adddev same");
    fs::remove_file(&original).unwrap();
    world.ok("lvmdevices --adddev z");
    assert!(world.ok("pvs --noheadings -o pv_name").trim().ends_with("/z"));
    world.ok("stop VG");
}
