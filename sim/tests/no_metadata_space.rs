//! Metadata has no room to grow. Requests that need more of it are refused, nothing stops, and requests that free space
//! continue.
//!
//! Rules M3 and M9.

use rowen_engine::disk::{Disks, PvGeometry};
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, FullPolicy, Group, VolumeKind, VolumeState};
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

/// A group whose metadata grows by whole extents only, so that it fills up while there is free space.
fn setup(mib: u64) -> Setup {
    let mut setup = Setup::small(1, mib);
    setup.config.planted = Some("grow_by_extents");
    setup
}

fn spec(kind: VolumeKind, blocks: u64) -> VolumeSpec {
    VolumeSpec { kind, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

/// A scattered volume, in a group whose free space is in single blocks.
async fn fragmented(client: &Client, rng: &mut Rng) -> Vol {
    fragmented_of(client, rng, BLOCKS).await
}

async fn fragmented_of(client: &Client, rng: &mut Rng, blocks: u64) -> Vol {
    let vol = client.create(spec(VolumeKind::Thin, blocks)).await.unwrap();
    let mut order: Vec<u64> = (0..blocks).collect();
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
        match client.zero(filler, block * BLOCK, BLOCK, false).await {
            Ok(()) => {}
            // This many blocks are single.
            Err(Error::NoSpace { .. }) => break,
            Err(e) => panic!("{e}"),
        }
    }
    client.checkpoint().await.unwrap();
    vol
}

/// Snapshots, and a write to each leaf after each, `depth` at a time, until there is no room for more.
async fn fill(client: &Client, vol: Vol, depth: usize) -> Vec<Vol> {
    fill_of(client, vol, depth, BLOCKS).await
}

async fn fill_of(client: &Client, vol: Vol, depth: usize, blocks: u64) -> Vec<Vol> {
    let mut snapshots = Vec::new();
    for wave in 0u64.. {
        match client.snapshot(&[vol], SnapshotKind::default()).await {
            Ok(made) => snapshots.extend(made),
            Err(Error::NoSpace { .. }) => return snapshots,
            Err(e) => panic!("{e}"),
        }
        let leaves: Vec<u64> = (wave % LEAF..blocks).step_by(LEAF as usize).collect();
        for together in leaves.chunks(depth) {
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

/// A free tree with more nodes than the metadata reserve: most of them change at once.
#[test]
fn space_comes_back_part_by_part() {
    const PIECES: u64 = 14_000;
    let world = World::new(4);
    let (disks, group) = setup(64).make(&world).unwrap();
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

/// Of two snapshots that may be dropped, the engine drops the second only when the first has freed all its blocks.
#[test]
fn no_more_snapshots_are_dropped_than_must() {
    let world = World::new(5);
    let (_, group) = setup(16).make(&world).unwrap();
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
        let (disks, group) = setup(16).make(&world).unwrap();
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

/// Writes `wanted` of the volume's blocks one by one, in random order.
async fn write_at_random(client: &Client, vol: Vol, blocks: u64, wanted: u64, rng: &mut Rng) {
    let mut order: Vec<u64> = (0..blocks).collect();
    (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
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
}

/// The checkpoint's stream has room, however many volumes, points and tags are made while metadata is full. Otherwise
/// the group could not be opened any more.
#[test]
fn what_is_only_in_the_stream_is_refused_before_it_is_too_much() {
    for tags in [false, true] {
        let world = World::new(8);
        let (disks, group) = setup(16).make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        world.run(async {
            let vol = fragmented(&client, &mut Rng::new(8)).await;
            let snapshots = fill(&client, vol, 1).await;
            let mut refused = 0;
            for round in 0..2000 {
                let done = if tags {
                    let id = client.id(snapshots[round % snapshots.len()]).unwrap();
                    let tags =
                        (0..100 + round / snapshots.len() * 10).map(|n| format!("{n:0>100}")).take(256).collect();
                    let attributes = Attributes { tags, ..Attributes::default() };
                    client.group.set_attributes(id, attributes).await
                } else {
                    client.snapshot(&[vol], SnapshotKind::default()).await.map(drop)
                };
                match done {
                    Ok(()) => {}
                    Err(Error::NoSpace { .. }) => refused += 1,
                    Err(e) => panic!("{e} in round {round}"),
                }
                if refused == 20 {
                    break;
                }
                if round % 8 == 0 {
                    client.checkpoint().await.unwrap();
                }
            }
            assert_eq!(refused, 20, "nothing was refused");
            client.remove(&snapshots).await.unwrap();
            client.group.reclaim_idle().await.unwrap();
            client.verify_all(vol).await.unwrap();
            client.close().await.unwrap();
        });
        let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// A trim of a whole filesystem changes more leaves than the metadata reserve has, and nothing else starts checkpoints.
#[test]
fn a_trim_where_metadata_is_full_is_refused_or_done() {
    const LARGE: u64 = 24_000;
    let world = World::new(10);
    let mut setup = setup(192);
    (setup.config.cache_bytes, setup.config.dirty_bytes) = (64 << 20, 64 << 20);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let vol = fragmented_of(&client, &mut Rng::new(10), LARGE).await;
        let snapshots = fill_of(&client, vol, 1, LARGE).await;
        // The snapshots hold the old leaves. In the end there is no room for new ones, and nothing stops for that.
        let trim = async || {
            for block in (0..LARGE).step_by(16) {
                match client.zero(vol, block * BLOCK, BLOCK, false).await {
                    Ok(()) => {}
                    Err(Error::NoSpace { .. }) => return false,
                    Err(e) => panic!("{e} at block {block}"),
                }
            }
            true
        };
        assert!(!trim().await, "there was room for it");
        client.checkpoint().await.unwrap();
        client.verify_all(vol).await.unwrap();
        client.remove(&snapshots).await.unwrap();
        client.group.reclaim_idle().await.unwrap();
        assert!(trim().await, "nothing is shared any more");
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Slots of 16 blocks take all space after a sixteenth of the writes, and are freed in pieces. By then metadata must
/// have enough room for the rest, because it grows by whole extents. This also holds if its second copies find no room
/// on another physical volume.
#[test]
fn a_thin_volume_is_written_at_random_as_far_as_its_group_goes() {
    for second in [None, Some(5 << 20)] {
        let world = World::new(6);
        let mut setup = Setup::small(1, 256);
        setup.pvs.extend(second.map(|size| PvGeometry { size, sector: 512 }));
        let (disks, group) = setup.make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        world.run(async {
            let blocks = client.group.info().free_blocks / 16 * 16;
            let vol = client.create(VolumeSpec { chunk_blocks: 16, ..spec(VolumeKind::Thin, blocks) }).await.unwrap();
            write_at_random(&client, vol, blocks, blocks * 9 / 10, &mut Rng::new(6)).await;
            client.verify_all(vol).await.unwrap();
            client.close().await.unwrap();
        });
        let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "{second:?}: {:?}", report.findings);
    }
}

/// The same in free space before the first written block: it became free while nothing was left behind.
#[test]
fn a_thin_volume_continues_in_space_that_another_freed() {
    let world = World::new(7);
    let (disks, group) = Setup::small(1, 256).make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let free = client.group.info().free_blocks;
        let before = client.create(spec(VolumeKind::Thin, free * 4 / 5)).await.unwrap();
        for at in (0..free * 4 / 5).step_by(256) {
            client.write(before, at * BLOCK, 256.min(free * 4 / 5 - at) * BLOCK, &[]).await.unwrap();
        }
        let blocks = client.group.info().free_blocks / 16 * 16;
        let rng = &mut Rng::new(7);
        let first = client.create(VolumeSpec { chunk_blocks: 16, ..spec(VolumeKind::Thin, blocks) }).await.unwrap();
        write_at_random(&client, first, blocks, blocks * 3 / 4, rng).await;
        client.remove(&[before]).await.unwrap();
        client.group.reclaim_idle().await.unwrap();
        client.checkpoint().await.unwrap();
        let blocks = client.group.info().free_blocks / 16 * 16;
        let vol = client.create(VolumeSpec { chunk_blocks: 16, ..spec(VolumeKind::Thin, blocks) }).await.unwrap();
        write_at_random(&client, vol, blocks, blocks * 9 / 10, rng).await;
        client.verify_all(first).await.unwrap();
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
