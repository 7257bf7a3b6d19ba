//! Moves of extents that end early: stopped, failed at the table, or short of space (rules PM4, PM5, PM8).

use crate::moves::{FROM, Made, all_of, made, setup};
use rowen_engine::disk::{DiskOpKind, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, NewMove, PvExtents, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::Faults;
use rowen_sim::exec::World;
use rowen_sim::oracle::Since;
use rowen_sim::rng::Rng;
use rowen_sim::worlds::members;
use std::sync::Arc;
use std::time::Duration;

fn thick(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thick, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

impl Made {
    /// Writes to a volume at short intervals.
    fn writes(&self, vol: u32, count: u64, seed: u64) -> Vec<Op> {
        let write = |n: u64| {
            let (client, handle) = (self.client.clone(), self.world.handle());
            let at = Rng::new(seed + n).below(1100) * BLOCK;
            Box::pin(async move {
                handle.sleep(Duration::from_micros(n * 100)).await;
                client.write(vol, at, 8 * BLOCK, &[]).await
            }) as Op
        };
        (0..count).map(write).collect()
    }
}

/// PM5: the copy of a write takes long, and the move is stopped meanwhile. The copy does not overwrite blocks that are
/// placed there afterwards.
fn a_copy_is_late(nth: u64) {
    let made = made(51);
    let there = made.unshared_there();
    let group = made.client.group.clone();
    let (client, handle) = (made.client.clone(), made.world.handle());
    let stop: Op = Box::pin(async move {
        handle.sleep(Duration::from_micros(500 + nth * 50)).await;
        group.stop_move();
        group.move_ended().await;
        group.checkpoint().await?;
        // All free blocks are written.
        let blocks = group.info().available_blocks;
        let vol = client.create(thick(blocks)).await?;
        for at in (0..blocks).step_by(64) {
            client.write(vol, at * BLOCK, 64.min(blocks - at) * BLOCK, &[]).await?;
        }
        Ok(())
    });
    made.world.run(async {
        made.client.group.start_move(all_of(FROM)).await.unwrap();
        let slow = (DiskOpKind::Write, made.disks.requests(DiskOpKind::Write) + nth, 3_000_000);
        made.disks.set_faults(Faults { slow: Some(slow), ..Faults::default() });
        let ops = made.writes(there, 60, nth).into_iter().chain([stop]).collect();
        // In the end some find no space.
        made.client.together(ops).await.into_iter().for_each(drop);
        made.client.group.move_ended().await;
        let all = made.client.oracle.lock().readable();
        for vol in all {
            made.client.verify_all(vol).await.unwrap();
        }
        made.judge().await;
    });
}

#[test]
fn a_copy_that_is_late_meets_what_was_there() {
    (0..60).for_each(a_copy_is_late);
}

/// PM8: a checkpoint that puts a table in force fails. Writes acknowledged since are there, whichever table is found.
fn a_table_fails(numbers: impl Iterator<Item = u64>) {
    for (kind, number) in numbers.flat_map(|n| [(DiskOpKind::Write, n), (DiskOpKind::Flush, n / 20)]) {
        let made = made(61);
        let at = made.disks.requests(kind) + number;
        made.disks.set_faults(Faults { fail: Some((kind, at)), ..Faults::default() });
        let outcome = made.world.try_run(async {
            let _ = made.move_under_load(all_of(FROM), number).await;
            for vol in made.vols.clone() {
                made.client.together(made.writes(vol, 30, number)).await.into_iter().for_each(drop);
            }
        });
        outcome.unwrap_or_else(|stuck| panic!("{kind:?} {number}: {stuck}"));
        made.disks.set_faults(Faults::default());
        for seed in 0..2 {
            let image = members(&made.disks.moment().killed(&mut Rng::new(seed))).unwrap();
            let oracle = made.client.oracle.lock().clone();
            if let Err(why) = judge_image(&setup(), &oracle, Since::Death, image, seed) {
                panic!("{kind:?} {number}: {why}");
            }
        }
    }
}

#[test]
fn a_table_that_fails_leaves_both_places_equal() {
    a_table_fails((0..900).step_by(18));
}

/// A move finds the space that is being freed.
#[test]
fn a_move_waits_for_what_is_being_freed() {
    let made = made(91);
    made.world.run(async {
        let group = &made.client.group;
        // All the rest belongs to one volume, which has just been removed.
        let blocks = group.info().available_blocks;
        let vol = made.client.create(thick(blocks)).await.unwrap();
        for at in (0..blocks).step_by(64) {
            made.client.write(vol, at * BLOCK, 64.min(blocks - at) * BLOCK, &[]).await.unwrap();
        }
        made.client.remove(&[vol]).await.unwrap();
        let total = group.start_move(all_of(FROM)).await.unwrap();
        group.move_ended().await;
        let ended = group.move_progress();
        assert_eq!((ended.moved, ended.failed), (total, None));
        made.judge().await;
    });
}

/// A target with too few free blocks is refused before anything moves.
fn target_is_too_small() {
    let made = made(92);
    made.world.run(async {
        let group = &made.client.group;
        group.reclaim_idle().await.unwrap();
        made.client.checkpoint().await.unwrap();
        let target = PvExtents { pv: PvIndex(0), extents: 0..2 };
        let refused = group.start_move(NewMove { to: vec![target], ..all_of(FROM) }).await;
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        assert!(!group.is_moving() && group.move_progress().moved == 0);
        assert!(group.start_move(all_of(FROM)).await.unwrap() > 2);
        group.move_ended().await;
        made.judge().await;
    });
}

#[test]
fn a_target_that_is_too_small_is_refused() {
    target_is_too_small();
}

#[test]
fn a_target_that_is_filled_is_found() {
    must_be_found("target_filled", target_is_too_small);
}

/// The cost of moving four extents of a volume: nodes of maps and of free space that are written, and bytes
/// that are read.
fn cost(snapshots: u64) -> (u64, u64) {
    let world = World::new(7);
    let (disks, group) = Setup { config: Config::default(), ..Setup::small(2, 64) }.make(&world).unwrap();
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    world.run(async {
        let vol = client.create(thick(2048)).await.unwrap();
        client.write(vol, 0, 2048 * BLOCK, &[]).await.unwrap();
        for n in 0..snapshots {
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            client.write(vol, (1024 + n) * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.checkpoint().await.unwrap();
        // The background work of the snapshots has ended.
        world.handle().sleep(Duration::from_secs(60)).await;
        client.checkpoint().await.unwrap();
    });
    world.run(async {
        let place = group.pv_usage(client.id(1).unwrap()).await.unwrap()[0];
        let first = place.first_extent;
        let wanted = NewMove { extents: std::iter::once(first..first + 4).collect(), ..all_of(PvIndex(place.pv)) };
        let (nodes, counts) = (group.stats().nodes_written, disks.counts());
        assert_eq!(group.start_move(wanted).await.unwrap(), 4);
        group.move_ended().await;
        assert_eq!((group.move_progress().moved, group.move_progress().failed), (4, None));
        let cost = (group.stats().nodes_written - nodes, disks.counts().since(&counts).read_bytes);
        client.verify_all(1).await.unwrap();
        cost
    })
}

#[test]
fn what_is_moved_costs_the_same_under_a_hundred_snapshots() {
    let (none, hundred) = (cost(0), cost(100));
    assert_eq!(none, hundred, "nodes written and bytes read");
    assert!(none.0 <= 8, "{none:?}: only those of free space, in each of its checkpoints");
}
