//! Groups that can only be read: on a disk that is read-only, or with features that only a newer program can write.
//! Rules RO1 and RO2.

use crate::resized_disks::{Disk, digest};
use crate::status::kill_both;
use crate::world::{Random, Running, World, tool};
use rowen_engine::format::record::seal;
use rowen_engine::format::superblock::{COPY_OFFSETS, SLOTS};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;

/// The device is read-only while this exists. The mark would outlive the loop device.
struct Protected(String);

impl Protected {
    fn new(disk: &Disk) -> Protected {
        tool("blockdev", &["--setro", &disk.device]);
        Protected(disk.device.clone())
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        tool("blockdev", &["--setrw", &self.0]);
    }
}

fn read(node: &Path, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(node).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A volume with these contents, and a snapshot with those before them. Server and keeper were killed, so a part of it is
/// in the journal alone.
fn killed(world: &World, disk: &Disk) -> [Vec<u8>; 2] {
    let mut random = Random(7);
    world.ok(&format!("vgcreate VG {}", disk.device));
    world.ok("lvcreate -y -V 32M -T VG/pool -n lv -L 48M");
    let mut contents = random.bytes(64 * BLOCK);
    let node = world.node("lv");
    let file = File::options().write(true).open(&node).unwrap();
    file.write_all_at(&contents, 0).unwrap();
    file.sync_all().unwrap();
    world.ok("lvcreate -y -s -n before VG/lv");
    let before = contents.clone();
    for block in 0..20 {
        let at = block * 3 * BLOCK;
        contents[at..at + BLOCK].copy_from_slice(&random.bytes(BLOCK));
        file.write_all_at(&contents[at..at + BLOCK], at as u64).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let server = world.server().unwrap();
    kill_both(world);
    until("the server's end", || !Path::new("/proc").join(server.to_string()).exists());
    [contents, before]
}

/// Everything can be read, nothing can be changed, and no byte of the disk changes.
fn can_be_read(world: &World, file: &Path, [contents, before]: &[Vec<u8>; 2], why: &str) {
    let whole = digest(file);
    assert_eq!(world.ok("vgs --noheadings -o vg_attr,vg_permissions VG").trim(), "rz--n- read-only");
    world.ok("vgchange -ay VG");
    world.ok("lvchange -ay -K VG/before");
    for (name, contents) in [("lv", contents), ("before", before)] {
        assert!(read(&world.node(name), contents.len()) == *contents, "{name} has other contents");
        let node = world.node(name);
        assert_eq!(tool("blockdev", &["--getro", node.to_str().unwrap()]).trim(), "1");
    }
    for line in [
        "lvcreate -y -L 4M -n other VG",
        "lvremove -f VG/before",
        "lvcreate -s -n more VG/lv",
        "vgchange --addtag a VG",
    ] {
        world.refused(line, 5, &format!("Volume group \"VG\" is open read-only: {why}"));
    }
    let output = world.run("status VG");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("it is open read-only: {why}")), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    world.ok("check VG");
    world.refused("repair VG", 5, "is open read-only");
    // Its next servers can only read it, too, and the devices stay.
    let in_use = File::open(world.node("lv")).unwrap();
    let ended = world.server().unwrap();
    tool("kill", &["-TERM", &ended.to_string()]);
    until("a successor", || world.server().is_some_and(|pid| pid != ended));
    assert!(read(&world.node("before"), before.len()) == *before);
    let server = world.server().unwrap();
    tool("kill", &["-KILL", &server.to_string()]);
    assert!(read(&world.node("lv"), contents.len()) == *contents);
    assert_ne!(world.server(), Some(server));
    drop(in_use);
    assert_eq!(world.ok("vgs --noheadings -o vg_permissions VG").trim(), "read-only");
    assert_eq!(digest(file), whole, "RO1: a byte of the disk changed");
}

#[test]
fn a_disk_that_is_read_only_can_be_read() {
    let disk;
    let world = World::empty("readonly");
    disk = Disk::new(&world, "pv", 128);
    let both = killed(&world, &disk);
    let protected = Protected::new(&disk);
    can_be_read(&world, &disk.file, &both, &format!("{} is read-only", disk.device));
    // It is as before once the disk can be written.
    drop(protected);
    world.ok("clear VG");
    assert_eq!(world.ok("vgs --noheadings -o vg_permissions VG").trim(), "writeable");
    world.ok("lvchange --refresh VG/lv");
    File::options().write(true).open(world.node("lv")).unwrap().write_all_at(&[7; BLOCK], 0).unwrap();
    assert_eq!(read(&world.node("before"), both[1].len()), both[1]);
    world.ok("lvremove -f VG/before");
}

#[test]
fn a_newer_format_can_be_read() {
    let disk;
    let world = World::empty("newer");
    disk = Disk::new(&world, "pv", 128);
    let both = killed(&world, &disk);
    mark(Path::new(&disk.device), 0x80);
    can_be_read(&world, &disk.file, &both, "a newer program wrote it with features (0x8000000000000000)");
    let features = world.run("features VG");
    let said = String::from_utf8_lossy(&features.stdout).into_owned();
    assert!(said.contains("this program can only read it") && said.contains("only read 63"), "{said}");
    world.ok("stop VG");
    mark(Path::new(&disk.device), 0);
    assert_eq!(world.ok("vgs --noheadings -o vg_permissions VG").trim(), "writeable");
}

/// Sets the highest byte of the features that a program must know to write, in all superblocks.
fn mark(device: &Path, byte: u8) {
    let file = File::options().read(true).write(true).open(device).unwrap();
    let slots = COPY_OFFSETS.into_iter().flat_map(|copy| (0..SLOTS).map(move |slot| copy + slot * BLOCK as u64));
    for slot in slots {
        let mut block = vec![0; BLOCK];
        file.read_exact_at(&mut block, slot).unwrap();
        if block.starts_with(b"ROWENPV1") {
            block[487] = byte;
            seal(&mut block, 8);
            file.write_all_at(&block, slot).unwrap();
        }
    }
    file.sync_all().unwrap();
}

/// RO2
#[test]
fn writers_wait_for_a_disk_that_became_read_only() {
    let disk;
    let world = World::empty("turned");
    disk = Disk::new(&world, "pv", 128);
    world.ok(&format!("vgcreate VG {}", disk.device));
    world.ok("lvcreate -y -L 32M -n lv VG");
    let node = world.node("lv");
    let server = world.server().unwrap();
    let protected = Protected::new(&disk);
    tool("kill", &["-KILL", &server.to_string()]);
    let target = format!("of={}", node.display());
    let writer = Command::new("dd")
        .args(["if=/dev/zero", &target, "bs=4096", "count=64", "oflag=direct", "conv=fsync,notrunc"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut writer = Running(writer);
    std::thread::sleep(Duration::from_secs(3));
    assert!(writer.0.try_wait().unwrap().is_none(), "RO2: the writer did not wait");
    assert!(!fs::exists(world.dir.join("run").join(&world.group).join("read-only")).unwrap());
    drop(protected);
    until("the writer's end", || writer.0.try_wait().unwrap().is_some());
    assert!(writer.0.wait().unwrap().success());
    assert_eq!(world.ok("vgs --noheadings -o vg_permissions VG").trim(), "writeable");
}

/// `cargo test -p rowen-cli --features planted --test real read_only::writers_that`.
#[cfg(feature = "planted")]
#[test]
fn writers_that_get_errors_are_found() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let test = "read_only::writers_wait_for_a_disk_that_became_read_only";
    let output = program.args(["--exact", test]).env("ROWEN_PLANTED", "writers_get_errors").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        !output.status.success() && said.contains("RO2"),
        "the planted bug writers_get_errors was not found: {said}"
    );
}
