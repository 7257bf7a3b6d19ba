//! `rowen diff` over real devices: what it lists is what both snapshots read back.

use crate::world::{Random, World, tool};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

const BLOCK: usize = 4096;

/// The blocks of a list, and whether each has data.
fn listed(world: &World, line: &str) -> BTreeMap<u64, bool> {
    let list: serde_json::Value = serde_json::from_str(&world.ok(line)).unwrap();
    let mut blocks = BTreeMap::new();
    for range in list["ranges"].as_array().unwrap() {
        let number = |name: &str| range[name].as_u64().unwrap() / BLOCK as u64;
        let is_data = range["data"].as_bool().unwrap();
        assert_ne!(is_data, range["zero"].as_bool().unwrap());
        (number("start")..number("start") + number("length")).for_each(|block| {
            assert_eq!(blocks.insert(block, is_data), None, "block {block} is listed twice");
        });
    }
    blocks
}

fn read(world: &World, volume: &str) -> Vec<u8> {
    fs::read(world.node(volume)).unwrap()
}

/// Compares two snapshots byte by byte. Returns how many blocks are listed, and how many of them are equal.
fn compare(world: &World, old: &str, new: &str) -> (usize, usize) {
    let listed = listed(world, &format!("diff --json VG/{old} {new}"));
    let (before, after) = (read(world, old), read(world, new));
    assert_eq!(before.len(), after.len());
    let mut equal = 0;
    for (at, (before, after)) in before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate() {
        match listed.get(&(at as u64)) {
            None => assert!(before == after, "block {at} differs and is not listed"),
            Some(is_data) => {
                assert!(*is_data || after.iter().all(|byte| *byte == 0), "block {at} is not zeros");
                equal += usize::from(before == after);
            }
        }
    }
    (listed.len(), equal)
}

/// What a list says is what it takes to make the old contents the new ones.
fn apply(world: &World, old: &str, new: &str) {
    let (mut image, after) = (read(world, old), read(world, new));
    for (block, is_data) in listed(world, &format!("diff --format json VG/{old} VG/{new}")) {
        let bytes = block as usize * BLOCK..(block as usize + 1) * BLOCK;
        match is_data {
            true => image[bytes.clone()].copy_from_slice(&after[bytes]),
            false => image[bytes].fill(0),
        }
    }
    assert!(image == after, "{old} with the changes is not {new}");
}

#[test]
fn what_ext4_changed_is_listed() {
    let world = World::new("diff-ext4", 800);
    world.ok("lvcreate -y -L 160M -n data VG");
    tool("mkfs.ext4", &["-q", "-F", world.node("data").to_str().unwrap()]);
    let point = world.mount("data", "rw");
    let mut random = Random(7);
    for name in ["stays", "goes", "changes"] {
        fs::write(point.join(name), random.bytes(12 << 20)).unwrap();
    }
    tool("sync", &["-f", point.to_str().unwrap()]);
    world.ok("lvcreate -s -n s1 VG/data");
    fs::remove_file(point.join("goes")).unwrap();
    let file = OpenOptions::new().write(true).open(point.join("changes")).unwrap();
    for _ in 0..200 {
        file.write_all_at(&random.bytes(BLOCK), random.below(3 << 10) * BLOCK as u64).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    tool("fstrim", &[point.to_str().unwrap()]);
    world.ok("lvcreate -s -n s2 VG/data");
    fs::write(point.join("comes"), random.bytes(5 << 20)).unwrap();
    world.ok("lvcreate -s -n s3 VG/data");
    world.unmount("data");
    for (old, new) in [("s1", "s2"), ("s2", "s3"), ("s1", "s3"), ("s3", "s1")] {
        let (blocks, equal) = compare(&world, old, new);
        println!("{old} to {new}: {blocks} blocks are listed, {equal} of them equal");
        // A filesystem writes some blocks with what they had.
        assert!(blocks > 200 && equal * 4 < blocks, "{old} to {new}: {equal} of {blocks} blocks are equal");
        apply(&world, old, new);
    }
    assert_eq!(compare(&world, "s1", "s1"), (0, 0));
}

#[test]
fn each_block_that_was_written_is_listed_and_no_other() {
    let world = World::new("diff-raw", 400);
    world.ok("lvcreate -y -V 64M -T -L 100M -n data VG/pool");
    let node = world.node("data");
    let mut random = Random(11);
    let device = OpenOptions::new().write(true).open(&node).unwrap();
    device.write_all_at(&random.bytes(32 << 20), 0).unwrap();
    device.sync_all().unwrap();
    world.ok("snapshot VG data --suffix one");
    let mut written = BTreeMap::new();
    for _ in 0..500 {
        let block = random.below(16 << 10);
        device.write_all_at(&random.bytes(BLOCK), block * BLOCK as u64).unwrap();
        written.insert(block, true);
    }
    device.sync_all().unwrap();
    drop(device);
    // In the middle of what has data, so that it is zeros now.
    for block in (100..4000).step_by(97) {
        let (offset, node) = (format!("{}", block * BLOCK), node.to_str().unwrap());
        tool("blkdiscard", &["--offset", &offset, "--length", "4096", node]);
        written.insert(block as u64, false);
    }
    world.ok("snapshot VG data --suffix two");
    assert_eq!(listed(&world, "diff --json VG/data-one data-two"), written);
    assert_eq!(listed(&world, "diff --json VG/data-one data"), written);
    // All of it again by another server, in the other forms.
    world.ok("lvchange -an VG");
    world.ok("stop VG");
    assert_eq!(listed(&world, "diff --json VG/data-one data-two"), written);
    let path = std::env::temp_dir().join(format!("{}.diff", world.group));
    let printed =
        world.command("diff --format binary VG/data-one data-two").stdout(File::create(&path).unwrap()).status();
    let list = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(printed.unwrap().success());
    let number = |at: usize| u64::from_le_bytes(list[at..at + 8].try_into().unwrap());
    let mut found = BTreeMap::new();
    for at in (16..list.len() - 16).step_by(16) {
        let (start, length, is_data) = (number(at) >> 12, number(at + 8) >> 12, number(at + 8) & 1 == 0);
        found.extend((start..start + length).map(|block| (block, is_data)));
    }
    assert_eq!(found, written);
    assert_eq!((number(8), number(list.len() - 16), number(list.len() - 8)), (64 << 20, 64 << 20, 2));
}
