//! fio's own verification through the device, on a volume and later on its snapshot.

use crate::world::{Running, World, tool};
use std::process::{Command, Stdio};
use std::time::Duration;

const SIZES: [&str; 3] = ["--bsrange=512-128k", "--blockalign=512", "--serialize_overlap=1"];

fn fio(world: &World, volume: &str, seed: u32, more: &[&str]) -> String {
    let file = format!("--filename={}", world.node(volume).display());
    let seed = format!("--randseed={seed}");
    let fixed = ["--name=v", &file, &seed, "--direct=1", "--ioengine=io_uring", "--iodepth=16", "--rw=randwrite"];
    let verified =
        ["--size=48M", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--output-format=terse"];
    tool("fio", &[&fixed[..], &verified, &SIZES, more].concat())
}

#[test]
fn random_sizes_are_verified_on_a_volume_and_on_its_snapshots() {
    let world = World::new("fio", 512);
    world.ok("lvcreate -L 64M -n data VG");
    fio(&world, "data", 1, &["--fdatasync=32"]);
    world.ok("lvcreate -s -n first VG/data");
    fio(&world, "data", 2, &["--fdatasync=32"]);
    world.ok("lvcreate -s -n second VG/data");
    // The snapshot's writes and the origin's are each other's worst neighbours.
    fio(&world, "second", 3, &[]);
    fio(&world, "data", 4, &[]);
    fio(&world, "first", 1, &["--verify_only=1"]);
    fio(&world, "second", 3, &["--verify_only=1"]);
    world.ok("lvremove -f VG/second");
    fio(&world, "first", 1, &["--verify_only=1"]);
    fio(&world, "data", 4, &["--verify_only=1"]);
    world.ok("check VG");
}

/// The twenty deaths of a server under one load are a test of the server; these are of the commands' own server, while
/// snapshots come and go.
#[test]
fn servers_that_are_killed_under_a_verified_load_are_a_pause() {
    let world = World::new("kill", 512);
    world.ok("lvcreate -L 64M -n data VG");
    let file = format!("--filename={}", world.node("data").display());
    let fio = Command::new("fio")
        .args(["--name=v", &file, "--direct=1", "--ioengine=io_uring", "--iodepth=8", "--rw=randwrite", "--size=48M"])
        .args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--verify_backlog=128",
            "--fdatasync=64",
        ])
        .args(SIZES)
        .args(["--time_based", "--runtime=12", "--output-format=terse", "--fallocate=none"])
        .current_dir(&world.dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut fio = Running(fio);
    let mut deaths = 0;
    while fio.0.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(500));
        let Some(pid) = world.server().and_then(rustix::process::Pid::from_raw) else { continue };
        if deaths == 20 || rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_err() {
            continue;
        }
        deaths += 1;
        if deaths % 3 == 1 {
            world.ok(&format!("lvcreate -s -n s{deaths} VG/data"));
        } else if deaths % 3 == 2 {
            world.ok(&format!("lvremove -f VG/s{}", deaths - 1));
        }
    }
    let mut said = String::new();
    std::io::Read::read_to_string(fio.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(fio.0.wait().unwrap().success(), "fio after {deaths} deaths: {said}");
    assert!(deaths >= 5, "only {deaths} servers were killed");
    world.ok("check VG");
}
