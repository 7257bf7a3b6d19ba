//! Discards, reductions and removals that free very many blocks leave room for the next checkpoint (rules L1 and L2).
//!
//! Rule M2.

use parking_lot::Mutex;
use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{Image, POLICIES, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use std::sync::Arc;

/// Blocks of the volume whose snapshots fill the metadata.
const BLOCKS: u64 = 1000;
/// A leaf of its map has more extents than this.
const LEAF: u64 = 80;
/// Blocks of the volume that is discarded. Each is an extent of its own.
const LARGE: u64 = 30_000;
/// One disk event in this many of an opening is cut.
const CUT_EACH: u64 = 101;

/// Metadata grows by whole extents only. It must be full while there is free space.
fn setup(mib: u64, planted: Option<&'static str>) -> Setup {
    let planted = planted.or(Some("grow_by_extents"));
    Setup { config: Config { planted, ..Config::default() }, extent_blocks: 256, ..Setup::small(1, mib) }
}

fn spec(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

async fn write_in_no_order(client: &Client, vol: Vol, blocks: u64, rng: &mut Rng) {
    let mut order: Vec<u64> = (0..blocks).collect();
    (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    for together in order.chunks(32) {
        let ops = together.iter().map(|&block| {
            let client = client.clone();
            Box::pin(async move { client.write(vol, block * BLOCK, BLOCK, &[]).await }) as Op
        });
        client.together(ops.collect()).await.into_iter().for_each(|outcome| outcome.unwrap());
    }
}

/// All of the group but some single blocks is allocated, so metadata cannot grow.
async fn fill_space(client: &Client, single: u64) -> Vol {
    let rest = client.group.info().free_blocks - 200;
    let filler = client.create(spec(rest)).await.unwrap();
    for at in (0..rest).step_by(64) {
        client.write(filler, at * BLOCK, 64.min(rest - at) * BLOCK, &[]).await.unwrap();
    }
    for block in (0..rest).step_by(2).take(single as usize) {
        client.zero(filler, block * BLOCK, BLOCK, false).await.unwrap();
    }
    client.checkpoint().await.unwrap();
    filler
}

/// Snapshots, and a change of each leaf after each, until metadata has no room. `discard`: by discards, which may use
/// the reserve, too.
async fn fill_metadata(client: &Client, vol: Vol, discard: bool) {
    for round in 0u64.. {
        match client.snapshot(&[vol], SnapshotKind::default()).await {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => return,
            Err(e) => panic!("{e}"),
        }
        for block in (round % LEAF..BLOCKS).step_by(LEAF as usize) {
            let outcome = match discard {
                true => client.zero(vol, block * BLOCK, BLOCK, false).await,
                false => client.write(vol, block * BLOCK, BLOCK, &[]).await,
            };
            match outcome {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => return,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// Opens an image, as this program does without planted bugs; closes the group and checks it.
fn open(image: Image, seed: u64) -> Result<(), Error> {
    let world = World::new(seed);
    let disks = SimDisks::with_image(world.handle(), image);
    let report = world.run(Group::check(disks.clone()))?;
    assert!(report.findings.is_empty(), "before it is opened: {:?}", report.findings);
    let group = world.run(Group::open(disks.clone(), world.handle(), Config::default()))?;
    world.run(async {
        group.reclaim_idle().await?;
        group.close().await
    })?;
    let report = world.run(Group::check(disks))?;
    assert!(report.findings.is_empty(), "after it was opened: {:?}", report.findings);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Discard,
    Reduce,
}

/// The results of the command and of the checkpoint after it, and the contents of the disks.
fn free_all(how: How, planted: Option<&'static str>) -> (Result<(), Error>, Result<(), Error>, Image) {
    let (done, checkpoint, image, _) = free_all_noted(how, planted);
    (done, checkpoint, image)
}

/// The same, with the written contents.
fn free_all_noted(how: How, planted: Option<&'static str>) -> (Result<(), Error>, Result<(), Error>, Image, Oracle) {
    let oracle = Arc::<Mutex<Oracle>>::default();
    let world = World::new(11);
    let (disks, group) = setup(LARGE / 256 + 60, planted).make(&world).unwrap();
    disks.without_cache();
    let client = Client::new(world.handle(), group, oracle.clone());
    let (done, checkpoint) = world.run(async {
        let rng = &mut Rng::new(11);
        let vol = client.create(spec(BLOCKS)).await.unwrap();
        write_in_no_order(&client, vol, BLOCKS, rng).await;
        let large = client.create(spec(LARGE)).await.unwrap();
        write_in_no_order(&client, large, LARGE, rng).await;
        fill_space(&client, 3000).await;
        fill_metadata(&client, vol, false).await;
        if how == How::Discard {
            fill_metadata(&client, vol, true).await;
        }
        client.checkpoint().await.unwrap();
        let done = match how {
            How::Discard => client.zero(large, 0, LARGE * BLOCK, false).await,
            How::Reduce => client.resize(large, 1).await,
        };
        (done, client.checkpoint().await)
    });
    let oracle = oracle.lock().clone();
    (done, checkpoint, disks.moment().killed(&mut Rng::new(11)), oracle)
}

#[test]
fn a_discard_goes_in_parts() {
    let (done, checkpoint, image) = free_all(How::Discard, None);
    assert!(matches!(done, Ok(()) | Err(Error::NoSpace { .. })), "{done:?}");
    assert_eq!(checkpoint, Ok(()));
    assert_eq!(open(image, 12), Ok(()));
}

#[test]
fn a_reduction_takes_checkpoints_on_its_way() {
    let (done, checkpoint, image) = free_all(How::Reduce, None);
    assert!(matches!(done, Ok(()) | Err(Error::NoSpace { .. })), "{done:?}");
    assert_eq!(checkpoint, Ok(()));
    assert_eq!(open(image, 12), Ok(()));
}

/// An image of a program that bounded nothing, and stopped: one record frees all blocks. It is replayed in parts.
#[test]
fn a_group_that_stopped_by_it_opens() {
    let (done, checkpoint, image) = free_all(How::Discard, Some("frees_unbounded"));
    assert!(checkpoint.is_err(), "the planted bug was not found: {done:?}, {checkpoint:?}");
    assert_eq!(open(image, 13), Ok(()));
}

/// The power is cut while such an image is opened, at commands all over the opening. The next opening continues, and
/// all contents are there.
#[test]
fn an_opening_in_parts_that_is_cut_is_gone_on_with() {
    let (_, _, image, oracle) = free_all_noted(How::Discard, Some("frees_unbounded"));
    let world = World::new(15);
    let disks = SimDisks::with_image(world.handle(), image);
    disks.keep_moments();
    let (mut cut, mut events) = (Vec::new(), 0);
    let mut observe = || {
        for moment in disks.take_moments() {
            events += 1;
            if events % CUT_EACH == 0 {
                cut.push(moment);
            }
        }
    };
    let opening = Group::open(disks.clone(), world.handle(), Config::default());
    let group = world.try_run_observed(opening, &mut observe).unwrap().unwrap();
    let checkpoints = group.stats().checkpoints;
    println!("{events} events, {} of them cut, {checkpoints} checkpoints", cut.len());
    assert!(checkpoints > 2, "{checkpoints} checkpoints: this opening has no parts");
    let rng = &mut Rng::new(15);
    for moment in cut {
        let image = moment.power_cut(*rng.pick(&POLICIES), rng);
        let setup = setup(LARGE / 256 + 60, None);
        let judged = judge_image(&setup, &oracle, Since::Death, image, rng.bits());
        assert_eq!(judged, Ok(()), "cut before event {}", moment.event);
    }
}

/// A snapshot whose origin discarded every other block of a few large extents: a step of its removal frees thousands of
/// runs.
#[test]
fn a_removal_that_frees_much_in_one_leaf_continues() {
    let world = World::new(4);
    let (disks, group) = setup(256, None).make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let rng = &mut Rng::new(4);
        let vol = client.create(spec(BLOCKS)).await.unwrap();
        write_in_no_order(&client, vol, BLOCKS, rng).await;
        let filler = fill_space(&client, 2000).await;
        let snapshot = client.snapshot(&[filler], SnapshotKind::default()).await.unwrap();
        for block in (4000..40_000).step_by(2).take(9000) {
            match client.zero(filler, block * BLOCK, BLOCK, false).await {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => break,
                Err(e) => panic!("{e}"),
            }
        }
        client.checkpoint().await.unwrap();
        fill_metadata(&client, vol, false).await;
        client.checkpoint().await.unwrap();
        let free = client.group.info().free_blocks;
        client.remove(&snapshot).await.unwrap();
        client.group.reclaim_idle().await.unwrap();
        client.checkpoint().await.unwrap();
        let info = client.group.info();
        assert!(info.free_blocks + info.pending_blocks > free + 5000, "{free} before, now {info:?}");
        client.close().await.unwrap();
    });
    assert_eq!(open(disks.moment().killed(&mut Rng::new(5)), 14), Ok(()));
}
