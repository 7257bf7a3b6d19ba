//! mkfs, mount, load, a snapshot under load, and the filesystem's own checker on both.

use crate::world::{Random, Stops, World, tool};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Filesystem {
    name: &'static str,
    mkfs: &'static [&'static str],
    /// The read-only checker, which must find nothing.
    check: &'static [&'static str],
    /// Needed to mount the snapshot together with its origin, which has the same UUID.
    mount_snapshot: &'static str,
}

#[test]
fn ext4_and_its_snapshot_are_clean() {
    lives(&Filesystem {
        name: "ext4",
        mkfs: &["mkfs.ext4", "-q", "-F"],
        check: &["e2fsck", "-f", "-n"],
        mount_snapshot: "rw",
    });
}

#[test]
fn xfs_and_its_snapshot_are_clean() {
    lives(&Filesystem {
        name: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f"],
        check: &["xfs_repair", "-n"],
        mount_snapshot: "nouuid",
    });
}

#[test]
fn btrfs_and_its_snapshot_are_clean() {
    lives(&Filesystem {
        name: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f"],
        check: &["btrfs", "check", "--readonly"],
        mount_snapshot: "rw",
    });
}

/// Bytes that the mounted filesystem has room for, used or not.
fn room(point: &Path) -> u64 {
    let found = rustix::fs::statvfs(point).unwrap();
    found.f_blocks * found.f_frsize
}

/// `lvresize -r`: grown by its own tools, and no smaller than the filesystem was made first.
#[test]
fn ext4_is_resized_with_its_volume() {
    let world = World::new("resize-ext4", 800);
    world.ok("lvcreate -L 200M -n data VG");
    on(&world, "data", &["mkfs.ext4", "-q", "-F"]);
    let point = world.mount("data", "rw");
    keep(&point, 1);
    let before = room(&point);
    world.refused("lvreduce -r -L 100M VG/data", 5, "can be reduced only while it is not mounted");
    world.unmount("data");
    world.ok("lvextend -r -L +200M VG/data");
    world.mount("data", "rw");
    assert!(room(&point) > before + (150 << 20), "{before} and {}", room(&point));
    is_kept(&point, 1);
    world.unmount("data");
    world.ok("lvreduce -y -r -L 100M VG/data");
    on(&world, "data", &["e2fsck", "-f", "-n"]);
    world.mount("data", "rw");
    assert!(room(&point) < before);
    is_kept(&point, 1);
    // What the filesystem needs cannot be taken from it, and then the volume keeps its size, too.
    let mut full = File::create(point.join("large")).unwrap();
    full.write_all(&vec![5; 60 << 20]).unwrap();
    drop(full);
    world.unmount("data");
    world.refused("lvreduce -y -r -L 40M VG/data", 5, "resize2fs failed");
    assert_eq!(world.ok("lvs --noheadings -o lv_size VG/data").trim(), "100.00m");
    on(&world, "data", &["e2fsck", "-f", "-n"]);
    // The kernel lets only who may exceed limits of resources grow a mounted one; not every machine's root may.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    if u64::from_str_radix(capabilities, 16).unwrap() >> 24 & 1 == 1 {
        world.mount("data", "rw");
        world.ok("lvextend -r -L 300M VG/data");
        assert!(room(&point) > 250 << 20);
        world.unmount("data");
        on(&world, "data", &["e2fsck", "-f", "-n"]);
    }
}

#[test]
fn xfs_grows_while_it_is_mounted() {
    let world = World::new("resize-xfs", 1000);
    world.ok("lvcreate -L 400M -n data VG");
    on(&world, "data", &["mkfs.xfs", "-q", "-f"]);
    let point = world.mount("data", "rw");
    keep(&point, 1);
    let before = room(&point);
    world.ok("lvextend -r -L +200M VG/data");
    assert!(room(&point) > before + (150 << 20), "{before} and {}", room(&point));
    is_kept(&point, 1);
    world.refused("lvreduce -y -r -L 400M VG/data", 5, "shrinking is unsupported");
    assert_eq!(world.ok("lvs --noheadings -o lv_size VG/data").trim(), "600.00m");
    world.unmount("data");
    on(&world, "data", &["xfs_repair", "-n"]);
}

fn on(world: &World, volume: &str, words: &[&str]) {
    let node = world.node(volume);
    let (program, words) = words.split_first().unwrap();
    tool(program, &[words, &[node.to_str().unwrap()]].concat());
}

/// Files with content of a seed; what is written is synced.
fn keep(dir: &Path, seed: u64) {
    let mut random = Random(seed);
    for n in 0..40 {
        let len = random.below(300_000) as usize;
        let mut file = File::create(dir.join(format!("kept{n}"))).unwrap();
        file.write_all(&random.bytes(len)).unwrap();
        file.sync_all().unwrap();
    }
}

fn is_kept(dir: &Path, seed: u64) {
    let mut random = Random(seed);
    for n in 0..40 {
        let len = random.below(300_000) as usize;
        let (expected, found) = (random.bytes(len), fs::read(dir.join(format!("kept{n}"))).unwrap());
        assert!(expected == found, "{}/kept{n} is not what was written", dir.display());
    }
}

/// Makes, changes, renames and removes files until it is stopped.
fn stir(dir: &Path, seed: u64, stop: &AtomicBool, steps: &AtomicU64) {
    let mut random = Random(seed);
    while !stop.load(Ordering::Relaxed) {
        let path = dir.join(format!("stir{seed}-{}", random.below(60)));
        match random.below(8) {
            0 => drop(fs::remove_file(&path)),
            1 => drop(fs::rename(&path, dir.join(format!("stir{seed}-{}", random.below(60))))),
            step => {
                let len = random.below(200_000) as usize;
                let mut file = File::create(&path).unwrap();
                file.write_all(&random.bytes(len)).unwrap();
                if step == 2 {
                    file.sync_all().unwrap();
                }
            }
        }
        steps.fetch_add(1, Ordering::Relaxed);
    }
}

fn wait_for_steps(steps: &AtomicU64, more: u64) {
    let wanted = steps.load(Ordering::Relaxed) + more;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while steps.load(Ordering::Relaxed) < wanted {
        assert!(std::time::Instant::now() < until, "the load stands still");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn lives(kind: &Filesystem) {
    let world = World::new(kind.name, 1600);
    world.ok("lvcreate -L 400M -n data VG");
    on(&world, "data", kind.mkfs);
    let origin = world.mount("data", "rw");
    keep(&origin, 1);
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stopping = Stops(&stop);
        let load = [7, 8].map(|seed| {
            scope.spawn({
                let (origin, stop, steps) = (&origin, &stop, &steps);
                move || stir(origin, seed, stop, steps)
            })
        });
        wait_for_steps(&steps, 100);
        world.ok("lvcreate -s -n early VG/data");
        wait_for_steps(&steps, 300);
        world.ok("lvcreate -s -n late VG/data");
        wait_for_steps(&steps, 100);
        drop(stopping);
        load.into_iter().for_each(|thread| thread.join().unwrap());
    });
    keep(&origin, 2);

    for snapshot in ["early", "late"] {
        // A frozen XFS keeps something in its log on purpose, which the first mount replays.
        if kind.name != "xfs" {
            on(&world, snapshot, kind.check);
        }
        if kind.name == "btrfs" {
            // Two mounted filesystems with one identity are one to btrfs.
            on(&world, snapshot, &["btrfstune", "-f", "-m"]);
        }
        let point = world.mount(snapshot, kind.mount_snapshot);
        is_kept(&point, 1);
        keep(&point, 3);
        world.unmount(snapshot);
        on(&world, snapshot, kind.check);
    }
    is_kept(&origin, 2);
    tool("fstrim", &[origin.to_str().unwrap()]);
    world.ok("lvremove -f VG/early");
    world.unmount("data");
    on(&world, "data", kind.check);
    on(&world, "late", kind.check);
    world.mount("late", kind.mount_snapshot);
    is_kept(&world.dir.join("mnt-late"), 3);
    world.unmount("late");
    world.ok("check VG");
}
