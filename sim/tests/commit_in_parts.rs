//! Freed blocks become usable in parts. So the number of dirty nodes stays within its bound (L7), and no write waits
//! for all parts (L6).
//!
//! Rule S7.

use rowen_engine::disk::Disks;
use rowen_engine::group::{Config, FullPolicy, Group, GroupInfo, VolumeKind};
use rowen_engine::map::NODE_COST;
use rowen_sim::client::{BLOCK, Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::Image;
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since};
use rowen_sim::rng::Rng;
use std::sync::Arc;

/// Blocks that only a snapshot has, every second one of a volume. When it is removed, each is a free run of its own.
const BLOCKS: u64 = 20_000;
/// The most writes during that, each to another block. A block that is written again frees blocks, too.
const WRITES: u64 = 15_000;
/// If nodes of this many bytes are dirty, a checkpoint starts. Writes wait at three times as many.
const DIRTY: u64 = 20;

/// Each write during the commit takes less of the disk's time than this, in microseconds. A commit and a checkpoint
/// take several times as long.
const LONG_WRITE: u64 = 1000;

struct Seen {
    /// The most dirty nodes.
    most_dirty: u64,
    /// The longest write during the commit, and the duration of the whole commit, in microseconds of the disk's time.
    longest_write: u64,
    all: u64,
    checkpoints: u64,
    /// The server was killed at these moments.
    killed: Vec<(Image, Oracle)>,
}

fn setup(planted: Option<&'static str>) -> Setup {
    let small = Setup::small(1, 512);
    Setup { config: Config { planted, dirty_bytes: (DIRTY * NODE_COST) as usize, ..small.config.clone() }, ..small }
}

fn commit(planted: Option<&'static str>) -> Seen {
    let world = World::new(51);
    let setup = setup(planted);
    let (disks, group) = setup.make(&world).unwrap();
    disks.without_cache();
    let client = Client::new(world.handle(), group, Arc::default());
    let clock = world.handle();
    let seen = world.run(async {
        let spec = |blocks| VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec(WRITES)).await.unwrap();
        let origin = client.create(spec(2 * BLOCKS)).await.unwrap();
        for block in (0..2 * BLOCKS).step_by(64) {
            client.write(origin, block * BLOCK, 64.min(2 * BLOCKS - block) * BLOCK, &[]).await.unwrap();
        }
        let snapshot = client.snapshot(&[origin], SnapshotKind::default()).await.unwrap();
        for block in (0..2 * BLOCKS).step_by(2) {
            client.write(origin, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.checkpoint().await.unwrap();
        let (begun, checkpoints) = (clock.now(), client.group.stats().checkpoints);
        client.remove(&snapshot).await.unwrap();
        let (mut longest, mut block, mut killed) = (0, 0, Vec::new());
        let is_done = |info: GroupInfo| info.reclaim_left == 0 && info.pending_blocks == 0;
        while !is_done(client.group.info()) && block < WRITES {
            let at = clock.now();
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            longest = longest.max(clock.now() - at);
            block += 1;
            if block % 16 == 0 && killed.len() < 8 {
                killed.push((disks.moment().killed(&mut Rng::new(block)), client.oracle.lock().clone()));
            }
        }
        assert!(is_done(client.group.info()), "{:?}", client.group.info());
        let stats = client.group.stats();
        client.verify_all(vol).await.unwrap();
        Seen {
            most_dirty: stats.dirty_most / NODE_COST,
            longest_write: longest,
            all: clock.now() - begun,
            checkpoints: stats.checkpoints - checkpoints,
            killed,
        }
    });
    world.run(client.close()).unwrap();
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    seen
}

#[test]
fn dirty_nodes_are_bounded_and_writes_go_on() {
    let seen = commit(None);
    let all = format!(
        "{} dirty nodes, {} µs of {} µs, {} checkpoints",
        seen.most_dirty, seen.longest_write, seen.all, seen.checkpoints
    );
    println!("{all}");
    assert!(seen.most_dirty <= 3 * DIRTY + 10, "{all}");
    assert!(seen.checkpoints > 3 && seen.longest_write < LONG_WRITE, "{all}");
    assert!(!seen.killed.is_empty());
    for (at, (image, oracle)) in seen.killed.into_iter().enumerate() {
        judge_image(&setup(None), &oracle, Since::Death, image, at as u64)
            .unwrap_or_else(|e| panic!("killed at {at}: {e}"));
    }
}

#[test]
fn a_commit_without_a_bound_is_found() {
    let seen = commit(Some("commit_unbounded"));
    println!(
        "{} dirty nodes, {} µs of {} µs, {} checkpoints",
        seen.most_dirty, seen.longest_write, seen.all, seen.checkpoints
    );
    assert!(seen.most_dirty > 3 * DIRTY + 10 && seen.longest_write > LONG_WRITE);
}
