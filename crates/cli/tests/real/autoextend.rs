//! What fills up is made larger by the server, with nobody asking.

use crate::world::{World, tool};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until the volume has this size, in MiB.
fn grows_to(world: &World, volume: &str, mib: &str) {
    let size = || world.ok(&format!("lvs --noheadings --units m --nosuffix -o lv_size VG/{volume}")).trim().to_owned();
    let until = Instant::now() + Duration::from_secs(120);
    while size() != mib {
        assert!(Instant::now() < until, "{volume} stays at {}", size());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn fill(node: &Path, mib: u64) {
    let of = format!("of={}", node.display());
    tool("dd", &["if=/dev/urandom", &of, "bs=1M", &format!("count={mib}"), "oflag=direct", "status=none"]);
}

#[test]
fn snapshots_and_pools_grow_by_the_settings() {
    let world = World::empty("autoextend");
    fs::create_dir_all(world.dir.join("etc")).unwrap();
    let settings = "activation {\n snapshot_autoextend_threshold = 70\n thin_pool_autoextend_threshold = 70\n}\n";
    fs::write(world.dir.join("etc/rowen.conf"), settings).unwrap();
    world.device("pv", 256 << 20);
    world.ok("vgcreate VG pv");
    world.ok("lvcreate -L 40M -n a VG");
    world.ok("lvcreate -s -L 20M -n s VG/a");
    world.ok("lvcreate -L 40M -T VG/pool");
    world.ok("lvcreate -V 80M -T VG/pool -n t");
    let before = tool("sha256sum", &[world.node("s").to_str().unwrap()]);
    fill(&world.node("a"), 15);
    grows_to(&world, "s", "24.00");
    fill(&world.node("t"), 36);
    grows_to(&world, "pool", "52.00");
    let log = fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap();
    assert!(log.contains("/s was nearly full and was extended from 20.00 MiB to 24.00 MiB"), "{log}");
    assert_eq!(tool("sha256sum", &[world.node("s").to_str().unwrap()]), before, "the snapshot holds what it held");
    // The group has no space for more. The server reports this once.
    world.ok("lvcreate -l 100%FREE -n rest VG");
    fill(&world.node("a"), 20);
    let failing = || fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while !failing().contains("/s fills up and cannot be extended") {
        assert!(Instant::now() < until, "{}", failing());
        std::thread::sleep(Duration::from_millis(200));
    }
    for _ in 0..10 {
        world.ok("lvs VG");
    }
    assert_eq!(failing().matches("cannot be extended").count(), 1, "{}", failing());
    world.ok("check VG");
}
