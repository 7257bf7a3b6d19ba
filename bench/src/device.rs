//! Through the block device of a real server, against the nearest thing that others have: qemu-storage-daemon's FUSE
//! export of a raw file under a loop device. The peer that is judged by goes to its disk as qemu does when nobody says
//! otherwise, with threads (and past the page cache, as Rowen does); one that uses io_uring is shown next to it.

use crate::commands::World;
use crate::load::{Action, Job, Limit, Order, Raw};
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, MIB, Result, Scratch, WIDE, text};
use rowen_engine::disk::PvIndex;
use rowen_host::disks::PvSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The peer: dropped, it takes its loop device, its mount and its process away.
struct Peer {
    daemon: Child,
    mount: Scratch,
    node: Option<PathBuf>,
}

/// What a program says that ends well.
pub(crate) fn output_of(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program).args(words).output().map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(crate) fn shown(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("{} is no text", path.display()))
}

impl Peer {
    /// `aio` is qemu's word for its way to the disk.
    fn start(bench: &Bench, file: &Scratch, aio: &str) -> Result<Peer> {
        let mount = bench.sparse(&format!("peer-{aio}"), 0)?;
        let (image, at) = (shown(&file.path)?, shown(&mount.path)?);
        let daemon = Command::new("qemu-storage-daemon")
            .args(["--blockdev", &format!("driver=file,node-name=f,filename={image},cache.direct=on,aio={aio}")])
            .args(["--export", &format!("fuse,id=e,node-name=f,mountpoint={at},writable=on")])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("qemu-storage-daemon: {e}"))?;
        let mut peer = Peer { daemon, mount, node: None };
        let begun = Instant::now();
        while std::fs::metadata(&peer.mount.path).map_or(0, |meta| meta.len()) != file.size {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err("qemu-storage-daemon: its export does not appear".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let node = output_of("losetup", &["--direct-io=on", "--show", "-f", shown(&peer.mount.path)?])?;
        peer.node = Some(node.into());
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Each step is tried whatever became of the one before.
        if let Some(node) = &self.node {
            let _ = Command::new("losetup").arg("-d").arg(node).status();
        }
        let _ = Command::new("umount").arg("-l").arg(&self.mount.path).status();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A device as a disk by itself.
pub(crate) fn open(bench: &Bench, node: &Path) -> Result<Arc<Raw<PvSet>>> {
    Ok(Arc::new(Raw { disks: bench.disks(node)?, pv: PvIndex(0), base: 0 }))
}

#[expect(clippy::too_many_lines, reason = "half of it is the table of loads")]
pub fn through(bench: &Bench) -> Result {
    let (span, rounds) = (bench.settings.span, bench.settings.rounds);
    let raw_file = bench.written("raw", span)?;
    let tuned_file = bench.written("tuned", span)?;
    let plain_file = bench.written("plain", span)?;
    let pv = bench.written("pv", span + 256 * MIB)?;
    let world = World::new(bench, "device")?;
    let group = world.group.clone();
    world.run(&["vgcreate", "-y", &group, shown(&pv.path)?])?;
    world.run(&["lvcreate", "-y", "-L", &format!("{}M", span / MIB), "-n", "lv", &group])?;
    let peers = [Peer::start(bench, &raw_file, "threads")?, Peer::start(bench, &tuned_file, "io_uring")?];
    let device = |peer: &Peer| open(bench, peer.node.as_ref().ok_or("the peer has no device")?);
    let (theirs, tuned) = (device(&peers[0])?, device(&peers[1])?);
    let (ours, plain) = (open(bench, &world.node("lv"))?, bench.raw(&plain_file)?);
    bench.fill(&ours, span)?;
    let (random, sequential) = ((Order::Random, 4096), (Order::Sequential, MIB as u32));
    let loads = [
        (
            ["device_write_qd32", "tuned_write_qd32", "bound_write_qd32"],
            "4 KiB random write QD32",
            Action::Write,
            random,
            DEEP,
            2.0,
        ),
        (
            ["device_read_qd32", "tuned_read_qd32", "bound_read_qd32"],
            "4 KiB random read QD32",
            Action::Read,
            random,
            DEEP,
            2.0,
        ),
        (
            ["device_write_qd1", "tuned_write_qd1", "bound_write_qd1"],
            "4 KiB random write QD1",
            Action::Write,
            random,
            1,
            2.0,
        ),
        (
            ["device_read_qd1", "tuned_read_qd1", "bound_read_qd1"],
            "4 KiB random read QD1",
            Action::Read,
            random,
            1,
            2.0,
        ),
        (
            ["device_write_1m", "tuned_write_1m", "bound_write_1m"],
            "1 MiB sequential write",
            Action::Write,
            sequential,
            WIDE,
            1.2,
        ),
        (
            ["device_read_1m", "tuned_read_1m", "bound_read_1m"],
            "1 MiB sequential read",
            Action::Read,
            sequential,
            WIDE,
            1.2,
        ),
    ];
    for (n, ([name, tuned_name, bound], what, action, (order, block), depth, asked)) in loads.into_iter().enumerate() {
        let title = format!("/dev/VG/LV: {what} / qemu-storage-daemon");
        let mut row = Row::ratio(name, title, Asked::AtLeast(asked), "kIOPS");
        let title = format!("  the same / with aio=io_uring: {what}");
        let mut beside = Row::ratio(tuned_name, title, Asked::Nothing, "kIOPS");
        // What no device can do better than: the same load on a file, with neither FUSE nor loop device.
        let what = format!("  the raw disk / qemu-storage-daemon: {what}");
        let mut bound = Row::ratio(bound, what, Asked::Nothing, "kIOPS");
        for round in 0..rounds {
            bench.step("through block devices", (n * rounds + round) as f64 / (6 * rounds) as f64);
            let mut job = Job::pass(action, order, block, depth, span, round as u64 * 100 + 3);
            job.limit = Limit::time(bench.settings.slice());
            let (rowen, other) = bench.in_turn(4, (&ours, &job), (&theirs, &job))?;
            row.add(rowen.kiops(), other.kiops());
            let (rowen, other) = bench.in_turn(4, (&ours, &job), (&tuned, &job))?;
            beside.add(rowen.kiops(), other.kiops());
            let (raw, other) = bench.in_turn(4, (&plain, &job), (&theirs, &job))?;
            bound.add(raw.kiops(), other.kiops());
        }
        bench.add(row);
        bench.add(beside);
        bench.add(bound);
    }
    drop((ours, theirs, tuned, plain));
    // Closing a disk notifies the workers, which release it in their next turn.
    bench.block_on(async {});
    std::thread::sleep(Duration::from_millis(50));
    drop(peers);
    world.run(&["vgremove", "-f", &group]).map_err(text)
}
