//! A group whose metadata is full opens again, whatever it has just freed (rule L1).
//!
//! Rules M2 and M4.

use rowen_engine::disk::Disks;
use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_sim::client::{BLOCK, Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::SimDisks;
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use rowen_sim::rng::Rng;
use std::sync::Arc;

/// Blocks of the volume whose snapshots fill the metadata.
const BLOCKS: u64 = 1000;
/// A leaf of its map has more extents than this.
const LEAF: u64 = 80;
/// A leaf of the free tree covers at least this many blocks where every other block is free.
const SPREAD: u64 = 100;

fn spec(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

fn setup(mib: u64) -> Setup {
    // Metadata grows by whole extents only. It must be full while there is free space.
    let config = Config { planted: Some("grow_by_extents"), ..Config::default() };
    Setup { config, extent_blocks: 256, ..Setup::small(1, mib) }
}

/// The contents of the disks, as the death of the program leaves them, are opened, closed and checked.
fn reopen(disks: &SimDisks, config: &Config, seed: u64) -> Result<(), Error> {
    let image = disks.moment().killed(&mut Rng::new(seed));
    let world = World::new(seed);
    let disks = SimDisks::with_image(world.handle(), image);
    let before = world.run(Group::check(disks.clone() as Arc<dyn Disks>))?;
    assert!(before.findings.is_empty(), "before it is opened: {:?}", before.findings);
    let group = world.run(Group::open(disks.clone(), world.handle(), config.clone()))?;
    world.run(group.close())?;
    let after = world.run(Group::check(disks as Arc<dyn Disks>))?;
    assert!(after.findings.is_empty(), "after it was opened: {:?}", after.findings);
    Ok(())
}

/// A scattered volume.
async fn scattered(client: &Client, rng: &mut Rng) -> Vol {
    let vol = client.create(spec(BLOCKS)).await.unwrap();
    let mut order: Vec<u64> = (0..BLOCKS).collect();
    (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    for block in order {
        client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
    }
    vol
}

/// A volume that takes the rest of the group and frees 6,000 single blocks. Its first blocks lie far apart, so that
/// each is in its own leaf of the free tree. Returns the number of those.
async fn filler(client: &Client) -> (Vol, u64) {
    let rest = client.group.info().free_blocks - 200;
    let filler = client.create(spec(rest)).await.unwrap();
    let spread = rest / SPREAD;
    for i in 0..spread {
        let at = spread + i * (SPREAD - 1);
        client.write(filler, at * BLOCK, (SPREAD - 1) * BLOCK, &[]).await.unwrap();
        client.write(filler, i * BLOCK, BLOCK, &[]).await.unwrap();
    }
    for block in (spread..spread * SPREAD).step_by(2).take(6000) {
        client.zero(filler, block * BLOCK, BLOCK, false).await.unwrap();
    }
    client.checkpoint().await.unwrap();
    (filler, spread)
}

/// Snapshots, and a write to each leaf after each, until metadata is full. `meanwhile` is called after each round.
async fn fill(client: &Client, vol: Vol, mut meanwhile: impl FnMut(u64)) -> Vec<Vol> {
    let mut snapshots = Vec::new();
    for round in 0u64.. {
        match client.snapshot(&[vol], SnapshotKind::default()).await {
            Ok(made) => snapshots.extend(made),
            Err(Error::NoSpace { .. }) => return snapshots,
            Err(e) => panic!("{e}"),
        }
        for block in (round % LEAF..BLOCKS).step_by(LEAF as usize) {
            match client.write(vol, block * BLOCK, BLOCK, &[]).await {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => return snapshots,
                Err(e) => panic!("{e}"),
            }
        }
        meanwhile(round);
    }
    unreachable!("rounds have no end")
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Closed,
    KilledAfterACheckpoint,
    Killed,
}

/// One discard changes each leaf of a free tree that has more leaves than metadata has free blocks.
fn a_discard_in_each_leaf(ending: Ending, planted: Option<&'static str>) -> Result<(), Error> {
    let world = World::new(4);
    let setup = setup(256);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let vol = scattered(&client, &mut Rng::new(4)).await;
        let (filler, spread) = filler(&client).await;
        fill(&client, vol, |_| ()).await;
        client.zero(filler, 0, spread * BLOCK, false).await.unwrap();
        match ending {
            Ending::Closed => client.close().await.unwrap(),
            Ending::KilledAfterACheckpoint => client.checkpoint().await.unwrap(),
            Ending::Killed => {}
        }
    });
    let planted = planted.or(setup.config.planted);
    reopen(&disks, &Config { planted, ..setup.config }, 100)
}

#[test]
fn what_a_discard_freed_comes_back_over_several_checkpoints() {
    for ending in [Ending::Closed, Ending::KilledAfterACheckpoint, Ending::Killed] {
        let outcome = a_discard_in_each_leaf(ending, None);
        assert!(outcome.is_ok(), "{ending:?}: {outcome:?}");
    }
}

#[test]
fn freeing_all_of_it_at_once_is_found() {
    let outcome = a_discard_in_each_leaf(Ending::Closed, Some("frees_at_once"));
    assert!(matches!(outcome, Err(Error::NoSpace { .. })), "{outcome:?}");
}

/// A group opens after each step on its way to full metadata, and after each step back.
#[test]
fn it_opens_at_every_step() {
    let world = World::new(5);
    let setup = setup(64);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let vol = scattered(&client, &mut Rng::new(5)).await;
        let (filler, spread) = filler(&client).await;
        let opens = |what: &str, step: u64| {
            let outcome = reopen(&disks, &setup.config, 200 + step);
            assert!(outcome.is_ok(), "{what}, step {step}: {outcome:?}");
        };
        let snapshots = fill(&client, vol, |round| {
            if round % 4 == 0 {
                opens("a snapshot was made", round);
            }
        })
        .await;
        opens("metadata is full", 0);
        client.zero(filler, 0, spread * BLOCK, false).await.unwrap();
        opens("a discard", 0);
        client.checkpoint().await.unwrap();
        opens("a discard and a checkpoint", 0);
        for (some, step) in snapshots.chunks(snapshots.len().div_ceil(4)).zip(0..) {
            client.remove(some).await.unwrap();
            opens("snapshots were removed", step);
            client.group.reclaim_idle().await.unwrap();
            opens("their space came back", step);
            client.checkpoint().await.unwrap();
            opens("it came back, and a checkpoint", step);
        }
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
        opens("it was closed", 0);
    });
}
