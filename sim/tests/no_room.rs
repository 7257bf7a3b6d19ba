//! Metadata has no room to grow: who needs more is refused, nothing stops, and what gives space back goes on.
#![allow(clippy::unwrap_used)]

use rowen_engine::disk::Disks;
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, Group, VolumeKind, VolumeState};
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use rowen_sim::rng::Rng;
use std::sync::Arc;

/// Blocks of the volume that is written.
const BLOCKS: u64 = 1000;
/// A leaf of its map has more extents than this.
const LEAF: u64 = 80;

fn spec(kind: VolumeKind, blocks: u64) -> VolumeSpec {
    VolumeSpec { kind, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

/// A volume whose blocks lie in no order, in a group whose free space is in pieces of one block.
async fn fragmented(client: &Client, rng: &mut Rng) -> Vol {
    let vol = client.create(spec(VolumeKind::Thin, BLOCKS)).await.unwrap();
    let mut order: Vec<u64> = (0..BLOCKS).collect();
    (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    for block in order {
        client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
    }
    let rest = client.group.info().free_blocks - 200;
    let filler = client.create(spec(VolumeKind::Thin, rest)).await.unwrap();
    for at in (0..rest).step_by(64) {
        client.write(filler, at * BLOCK, 64.min(rest - at) * BLOCK, &[]).await.unwrap();
    }
    for block in (0..rest).step_by(2) {
        client.zero(filler, block * BLOCK, BLOCK, false).await.unwrap();
    }
    client.checkpoint().await.unwrap();
    vol
}

/// Snapshots, and a write to each leaf after each, in waves of `depth`, until there is no room for more.
async fn fill(client: &Client, vol: Vol, depth: usize) -> Vec<Vol> {
    let mut snapshots = Vec::new();
    for wave in 0u64.. {
        match client.snapshot(&[vol], SnapshotKind::default()).await {
            Ok(made) => snapshots.extend(made),
            Err(Error::NoSpace { .. }) => return snapshots,
            Err(e) => panic!("{e}"),
        }
        let blocks: Vec<u64> = (wave % LEAF..BLOCKS).step_by(LEAF as usize).collect();
        for together in blocks.chunks(depth) {
            let ops = together.iter().map(|&block| {
                let client = client.clone();
                Box::pin(async move { client.write(vol, block * BLOCK, BLOCK, &[]).await }) as Op
            });
            for done in client.together(ops.collect()).await {
                match done {
                    Ok(()) => {}
                    Err(Error::NoSpace { .. }) => return snapshots,
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }
    unreachable!("waves have no end")
}

/// A free tree of more nodes than what is kept back of metadata: most of them change at once.
#[test]
fn space_comes_back_part_by_part() {
    const PIECES: u64 = 14_000;
    let world = World::new(4);
    let (disks, group) = Setup::small(1, 64).make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let rng = &mut Rng::new(4);
        let vol = fragmented(&client, rng).await;
        let snapshots = fill(&client, vol, 4).await;
        let filler = vol + 1;
        let before = client.group.info().free_blocks;
        for block in (1..PIECES).step_by(4) {
            client.zero(filler, block * BLOCK, BLOCK, false).await.unwrap();
        }
        let mut rounds = 0;
        while client.group.info().pending_blocks > 0 && rounds < 100 {
            client.checkpoint().await.unwrap();
            rounds += 1;
        }
        assert!(client.group.info().free_blocks > before + PIECES / 4 - 500);
        client.remove(&snapshots).await.unwrap();
        client.group.reclaim_idle().await.unwrap();
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Of two snapshots that could give way the second is needed only when the first has given all that it had.
#[test]
fn no_more_snapshots_give_way_than_must() {
    let world = World::new(5);
    let (_, group) = Setup::small(1, 16).make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let vol = fragmented(&client, &mut Rng::new(5)).await;
        let snapshots = fill(&client, vol, 1).await;
        client.group.set_full_policy(client.id(vol).unwrap(), FullPolicy::DropSnapshot).await.unwrap();
        for block in (0..BLOCKS).step_by(LEAF as usize) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        let gone = client.group.volumes().iter().filter(|volume| volume.state == VolumeState::Invalid).count();
        assert!(gone > 0 && gone <= 3, "{gone} of {} gave way", snapshots.len());
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
}

#[test]
fn writes_are_refused_and_removal_makes_room() {
    for (seed, depth) in [(1, 1), (2, 4), (3, 13)] {
        let world = World::new(seed);
        let (disks, group) = Setup::small(1, 16).make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        world.run(async {
            let vol = fragmented(&client, &mut Rng::new(seed)).await;
            let snapshots = fill(&client, vol, depth).await;
            assert!(client.group.info().free_blocks > 500, "there is room for data");
            client.remove(&snapshots[..snapshots.len() / 2]).await.unwrap();
            client.group.reclaim_idle().await.unwrap();
            client.checkpoint().await.unwrap();
            for block in (0..BLOCKS).step_by(LEAF as usize) {
                client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            }
            client.verify_all(vol).await.unwrap();
            client.close().await.unwrap();
        });
        let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
    }
}

/// Slots of 16 blocks take all space after a sixteenth of the writes, and are taken back in pieces: by then metadata must have
/// what the rest needs, for it grows by whole extents.
#[test]
fn a_thin_volume_is_written_at_random_as_far_as_its_group_goes() {
    let world = World::new(6);
    let (disks, group) = Setup::small(1, 256).make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let free = client.group.info().free_blocks;
        let blocks = free / 16 * 16;
        let vol = client.create(VolumeSpec { chunk_blocks: 16, ..spec(VolumeKind::Thin, blocks) }).await.unwrap();
        let rng = &mut Rng::new(6);
        let mut order: Vec<u64> = (0..blocks).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
        let wanted = blocks * 9 / 10;
        for (n, together) in order[..wanted as usize].chunks(32).enumerate() {
            let ops = together.iter().map(|&block| {
                let client = client.clone();
                Box::pin(async move { client.write(vol, block * BLOCK, BLOCK, &[]).await }) as Op
            });
            for done in client.together(ops.collect()).await {
                let info = client.group.info();
                assert!(done.is_ok(), "{done:?} after {} of {blocks} blocks: {info:?}", n * 32);
            }
        }
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
