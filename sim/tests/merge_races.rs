//! Writes during a merge into a child that has dropped whole leaves meanwhile.
//!
//! Rules D1, D2, D7 and I9.

use rowen_engine::disk::Disks;
use rowen_engine::group::{FullPolicy, Group, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::{Runtime, yield_now};
use rowen_sim::client::{Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::exec::World;
use rowen_sim::fan_out::FanOut;
use rowen_sim::oracle::Since;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const BLOCKS: u64 = 4096;
/// Extents of a leaf that was filled in order.
const LEAF: u64 = 160;

#[test]
fn no_node_is_lost_where_a_neighbour_went() {
    for seed in 0..12 {
        let world = World::new(seed);
        let (disks, group) = Setup::small(1, 96).make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        let mut rng = Rng::new(seed);
        world.run(async {
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            for block in (0..BLOCKS).step_by(2).chain((1..BLOCKS).step_by(2)) {
                client.write(vol, block * 8, 8, &[]).await.unwrap();
            }
            for _ in 0..3 {
                let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
                for _ in 0..8 {
                    let first = rng.below(BLOCKS - 2 * LEAF);
                    client.zero(vol, first * 8, (LEAF + rng.below(LEAF)) * 8, false).await.unwrap();
                }
                client.checkpoint().await.unwrap();
                client.remove(&[snapshot]).await.unwrap();
                let mut waves = 0;
                while client.group.info().reclaim_left > 0 {
                    let at = rng.below(BLOCKS);
                    client.write(vol, at * 8, 8, &[]).await.unwrap();
                    waves += 1;
                }
                assert!(waves > 0, "nothing ran beside the merge");
                client.group.reclaim_idle().await.unwrap();
                client.verify_all(vol).await.unwrap();
            }
            client.close().await.unwrap();
        });
        let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
    }
}

/// Whole leaves are dropped, and the range of their neighbour grows without a change of the node. Then it is written
/// while the merge is between its old end and its new one.
#[test]
fn no_node_is_lost_whose_range_reaches_over_the_cursor() {
    const STRIDE: u64 = 2 * LEAF;
    const LEAVES: u64 = 96;
    let mut inside = 0;
    for seed in 0..8 {
        let world = World::new(seed);
        let (disks, group) = Setup::small(1, 96).make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        world.run(async {
            let blocks = LEAVES * STRIDE;
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            // In order and with holes: each leaf is as full as possible, and begins at a multiple of the stride.
            for block in (0..blocks).step_by(2) {
                client.write(vol, block * 8, 8, &[]).await.unwrap();
            }
            let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
            let mut rng = Rng::new(seed);
            let kept = rng.below(4);
            let gone = (kept + 1) * STRIDE..(LEAVES - rng.below(3)) * STRIDE;
            client.zero(vol, gone.start * 8, (gone.end - gone.start) * 8, false).await.unwrap();
            client.checkpoint().await.unwrap();
            client.remove(&[snapshot]).await.unwrap();
            let begun = client.group.stats().reclaim_steps;
            let wait = 2 + rng.below(LEAVES / 3);
            while client.group.stats().reclaim_steps < begun + wait && client.group.info().reclaim_left > 0 {
                yield_now().await;
            }
            let left = client.group.info().reclaim_left;
            // A block without a place. The volume owns the others by now, so they are written in place.
            client.write(vol, (kept * STRIDE + 2 * rng.below(LEAF) + 1) * 8, 8, &[]).await.unwrap();
            inside += u64::from(left > 1 && client.group.info().reclaim_left > 1);
            client.group.reclaim_idle().await.unwrap();
            client.verify_all(vol).await.unwrap();
            client.close().await.unwrap();
        });
        let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
    }
    assert!(inside > 0, "nothing was written beside the merge");
}

/// D2: after the server dies during a removal, the removal continues at the position of the checkpoint.
#[test]
fn a_removal_continues_at_its_position() {
    const BLOCKS: u64 = 30_000;
    let mut inside = 0;
    for seed in 0..4 {
        let world = World::new(seed);
        let setup = Setup::small(1, 96);
        let (disks, group) = setup.make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        world.run(async {
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            for block in (0..BLOCKS).step_by(2) {
                client.write(vol, block * 8, 8, &[]).await.unwrap();
            }
            client.checkpoint().await.unwrap();
            client.remove(&[vol]).await.unwrap();
            let begun = client.group.stats().reclaim_steps;
            while client.group.stats().reclaim_steps < begun + 10 + seed && client.group.info().reclaim_left > 0 {
                yield_now().await;
            }
            inside += u64::from(client.group.info().reclaim_left > 1);
            client.checkpoint().await.unwrap();
        });
        let (killed, oracle) = (disks.moment().killed(&mut Rng::new(seed)), client.oracle.lock().clone());
        judge_image(&setup, &oracle, Since::Death, killed, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(inside > 0, "no checkpoint was taken in the middle of a removal");
}

/// D7: the child is written below the cursor of a merge. Then the server dies, and the newest checkpoint is one from
/// the middle of the merge.
fn recovered_below_the_cursor() {
    const LEAVES: u64 = 60;
    const STRIDE: u64 = 2 * LEAF;
    let mut inside = 0;
    for seed in 0..4 {
        let world = World::new(seed);
        let setup = Setup::small(1, 96);
        let (disks, group) = setup.make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        let handle = world.handle();
        let killed = world.run(async {
            let blocks = LEAVES * STRIDE;
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            for block in (0..blocks).step_by(2) {
                client.write(vol, block * 8, 8, &[]).await.unwrap();
            }
            let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
            // From here on no leaf is shared: the merge frees those of the snapshot.
            for leaf in 0..LEAVES {
                client.write(vol, leaf * STRIDE * 8, 8, &[]).await.unwrap();
            }
            client.checkpoint().await.unwrap();
            client.remove(&[snapshot]).await.unwrap();
            let begun = client.group.stats().reclaim_steps;
            let passed = 20 + seed;
            while client.group.stats().reclaim_steps < begun + passed && client.group.info().reclaim_left > 0 {
                yield_now().await;
            }
            inside += u64::from(client.group.info().reclaim_left > 0);
            let (before, group) = (client.group.stats().checkpoints, client.group.clone());
            handle.spawn("checkpoint", Box::pin(async move { group.checkpoint().await.unwrap() }));
            let mut rng = Rng::new(seed);
            while client.group.stats().checkpoints == before {
                let hole = rng.below(passed - 5) * STRIDE + 2 * rng.below(LEAF) + 1;
                client.write(vol, hole * 8, 8, &[]).await.unwrap();
            }
            disks.moment().killed(&mut rng)
        });
        let oracle = client.oracle.lock().clone();
        judge_image(&setup, &oracle, Since::Death, killed, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(inside > 0, "no checkpoint was taken in the middle of a merge");
}

#[test]
fn a_child_is_recovered_below_the_cursor() {
    recovered_below_the_cursor();
}

#[test]
fn a_parent_that_is_read_below_the_cursor_is_found() {
    must_be_found("read_below_cursor", recovered_below_the_cursor);
}

/// D7: two points are merged between two checkpoints, one after the other. Then the volume writes, in place, to a block
/// that only the older point had placed. The power fails, and the newest checkpoint is one from the middle of the first
/// merge, whose cursor had passed the block.
fn recovered_below_two_merges(seed: u64) -> bool {
    const BLOCKS: u64 = 2400;
    let _deep = FanOut::new(8);
    let world = World::new(seed);
    let setup = Setup::small(1, 96);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let handle = world.handle();
    let killed = world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thick, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        let older = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
        // Both points and the volume have leaves of their own.
        for block in (0..BLOCKS).step_by(8) {
            client.write(vol, block * 8, 8, &[]).await.unwrap();
        }
        let newer = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
        for block in (2..BLOCKS).step_by(8) {
            client.write(vol, block * 8, 8, &[]).await.unwrap();
        }
        client.checkpoint().await.unwrap();
        client.remove(&[newer]).await.unwrap();
        let begun = client.group.stats().reclaim_steps;
        let wanted = 30 + seed;
        while client.group.stats().reclaim_steps < begun + wanted && client.group.info().reclaim_left > 0 {
            handle.sleep(Duration::from_micros(1)).await;
        }
        let (before, group) = (client.group.stats().checkpoints, client.group.clone());
        handle.spawn("checkpoint", Box::pin(async move { group.checkpoint().await.unwrap() }));
        client.remove(&[older]).await.unwrap();
        while client.group.info().reclaim_left > 0 || client.group.stats().checkpoints == before {
            handle.sleep(Duration::from_micros(10)).await;
        }
        let mut killed = None;
        for block in [5, 13, 21, 29, 45] {
            client.write(vol, block * 8, 8, &[]).await.unwrap();
            if client.group.stats().checkpoints > before + 1 {
                break;
            }
            let oracle = client.oracle.lock().clone();
            killed = Some((disks.moment().killed(&mut Rng::new(seed)), oracle));
        }
        killed
    });
    let Some((killed, oracle)) = killed else { return false };
    judge_image(&setup, &oracle, Since::Death, killed, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    true
}

fn recovered_below_merges() {
    let in_time = (0..24).filter(|seed| recovered_below_two_merges(*seed)).count();
    assert!(in_time > 4, "only {in_time} seeds had no later checkpoint");
}

#[test]
fn a_child_is_recovered_below_two_merges() {
    recovered_below_merges();
}

#[test]
fn a_grandparent_that_is_not_asked_is_found() {
    must_be_found("one_parent_inherited", recovered_below_merges);
}

/// I9: a point has one extent, and its children have overwritten it in so many places that their leaves do not fit into
/// memory together. The check, the search for orphans and the removal end nevertheless.
fn one_extent_against_many_leaves() {
    const BLOCKS: u64 = 3200;
    let _deep = FanOut::new(8);
    // Each comparison reads many leaves: without an end that is seen after far fewer steps than elsewhere.
    let world = World::new(3).bounded(100_000);
    let mut setup = Setup::small(1, 128);
    setup.config.cache_bytes = 64 << 10;
    setup.config.orphan_blocks = 1;
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thick, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
        for block in (0..BLOCKS).step_by(4) {
            client.write(vol, block * 8, 8, &[]).await.unwrap();
            client.write(snapshot, block * 8, 8, &[]).await.unwrap();
        }
        client.checkpoint().await.unwrap();
        assert_eq!(client.group.check_open().await.unwrap().findings, Vec::<String>::new());
        client.group.search_orphans_now();
        // A leaf has room for some of the pieces only (O3).
        while client.group.stats().orphans_freed == 0 {
            world.handle().sleep(Duration::from_millis(1)).await;
        }
        client.verify_all(vol).await.unwrap();
        client.remove(&[snapshot]).await.unwrap();
        client.group.reclaim_idle().await.unwrap();
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn one_extent_is_compared_with_many_leaves() {
    one_extent_against_many_leaves();
}

#[test]
fn a_comparison_at_once_is_found() {
    must_be_found("compared_at_once", one_extent_against_many_leaves);
}

#[test]
fn a_removal_that_starts_over_is_found() {
    must_be_found("cursor_not_kept", a_removal_continues_at_its_position);
}

#[test]
fn a_child_that_does_not_hear_of_its_merge_is_found() {
    must_be_found("cursor_not_published", no_node_is_lost_where_a_neighbour_went);
}
