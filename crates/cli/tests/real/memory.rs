//! Many volumes of a full thin pool want more memory for their requests than there is.
//!
//! Rules FB1 and FB2.

use crate::world::{MIB, World};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const VOLUMES: usize = 20;
/// MiB that each of them writes at once.
const WRITTEN: u64 = 8;

fn direct(node: &Path) -> File {
    File::options().read(true).write(true).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(node).unwrap()
}

/// Pages of this byte.
fn pages(byte: u8, mib: u64) -> rowen_engine::disk::PageBuf {
    rowen_engine::disk::PageBuf::from_slice(&vec![byte; (mib * MIB) as usize])
}

/// MiB of memory that a process has.
fn memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// A gauge of `rowen metrics`, in MiB.
fn gauge(world: &World, name: &str) -> u64 {
    let told = world.ok("metrics VG");
    let line = told.lines().find(|line| line.starts_with(name) && !line.starts_with('#')).unwrap();
    line.split_whitespace().last().unwrap().parse::<f64>().unwrap() as u64 / MIB
}

/// Makes room in the pool, also after a failure: no thread may wait for ever.
struct Room<'a>(&'a World);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let extended = self.0.run("lvextend -y -L 300M VG/pool");
        assert!(extended.status.success() || std::thread::panicking(), "{extended:?}");
    }
}

#[test]
fn volumes_of_a_full_pool_leave_memory_for_others() {
    let world = World::empty("memory");
    fs::create_dir_all(world.dir.join("etc")).unwrap();
    fs::write(world.dir.join("etc/rowen.conf"), "server { request_memory = 16 no_space_timeout = 0 }\n").unwrap();
    world.device("pv", 600 * MIB);
    world.ok("vgcreate VG pv");
    world.ok("lvcreate -y -T -L 32M VG/pool");
    let names: Vec<String> = (0..VOLUMES).map(|at| format!("thin{at}")).collect();
    names.iter().for_each(|name| drop(world.ok(&format!("lvcreate -y -V 64M -T VG/pool -n {name}"))));
    world.ok("lvcreate -y -L 32M -n plain VG");
    let server = world.server().unwrap();
    let before = memory(server);
    std::thread::scope(|threads| {
        let _room = Room(&world);
        for (name, byte) in names.iter().zip(1..) {
            let node = world.node(name);
            threads.spawn(move || direct(&node).write_all_at(pages(byte, WRITTEN).as_slice(), 0).unwrap());
        }
        let until = Instant::now() + Duration::from_secs(30);
        // The status is no success: something is wrong.
        while !String::from_utf8_lossy(&world.run("status VG").stdout).contains("writes wait for space") {
            assert!(Instant::now() < until, "no write waits for room");
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(gauge(&world, "rowen_group_request_memory_limit_bytes"), 16);
        assert!(gauge(&world, "rowen_group_request_memory_bytes") <= 16);
        let grown = memory(server).saturating_sub(before);
        assert!(grown < 16 + 64, "the server's memory grew by {grown} MiB");
        // Another volume goes on.
        let plain = direct(&world.node("plain"));
        plain.write_all_at(pages(77, 8).as_slice(), 0).unwrap();
        plain.sync_data().unwrap();
        let mut read = pages(0, 8);
        plain.read_exact_at(read.as_mut_slice(), 0).unwrap();
        assert!(read.as_slice().iter().all(|byte| *byte == 77));
    });
    for (name, byte) in names.iter().zip(1..) {
        let mut read = pages(0, WRITTEN);
        direct(&world.node(name)).read_exact_at(read.as_mut_slice(), 0).unwrap();
        assert!(read.as_slice().iter().all(|found| *found == byte), "{name}");
    }
    assert_eq!(gauge(&world, "rowen_group_request_memory_bytes"), 0);
    assert!(world.ok("check VG").contains("is sound"));
}
