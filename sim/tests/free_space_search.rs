//! A write that needs a run of free blocks does not search all free space for it (rule L6).
//!
//! Rule LR2.

use rowen_engine::disk::Disks;
use rowen_engine::group::{FullPolicy, Group, VolumeKind};
use rowen_sim::client::{BLOCK, Client, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::exec::World;
use std::sync::Arc;

/// Single free blocks before the count begins.
const SINGLES: u64 = 24_000;
/// Rounds. In each, some more blocks become free, so that a search for large runs is worth its cost again. Then writes
/// are counted.
const ROUNDS: u64 = 8;
const FREED: u64 = 1200;
const WRITES: u64 = 40;

/// Nodes that were read by each round's writes, in a group without any large free run. Its free tree is much larger
/// than the cache.
fn nodes_read() -> Vec<u64> {
    let world = World::new(31);
    let (disks, group) = Setup::small(1, 512).make(&world).unwrap();
    disks.without_cache();
    let client = Client::new(world.handle(), group, Arc::default());
    let counts = world.run(async {
        let spec = |blocks| VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec(ROUNDS * WRITES)).await.unwrap();
        let rest = client.group.info().free_blocks - 100;
        let filler = client.create(spec(rest)).await.unwrap();
        for at in (0..rest).step_by(64) {
            client.write(filler, at * BLOCK, 64.min(rest - at) * BLOCK, &[]).await.unwrap();
        }
        for block in (0..2 * SINGLES).step_by(2) {
            client.zero(filler, block * BLOCK, BLOCK, false).await.unwrap();
        }
        let mut counts = Vec::new();
        for round in 0..ROUNDS {
            // All over the volume, each next to some free blocks.
            for block in (0..FREED).map(|n| n * (2 * SINGLES / FREED) + 2 * round + 1) {
                client.zero(filler, block * BLOCK, BLOCK, false).await.unwrap();
            }
            client.checkpoint().await.unwrap();
            let before = client.group.stats().node_loads;
            for block in round * WRITES..(round + 1) * WRITES {
                client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            }
            counts.push(client.group.stats().node_loads - before);
        }
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
        counts
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    counts
}

#[test]
fn a_missing_run_is_refused_without_a_search_of_all_leaves() {
    let counts = nodes_read();
    println!("{counts:?}");
    // The first round may search unknown chunks.
    assert!(counts[1..].iter().all(|nodes| *nodes <= 40), "{counts:?} nodes for {WRITES} writes");
}
