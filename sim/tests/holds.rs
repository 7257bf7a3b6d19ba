//! Held snapshots.
//!
//! Rules HO1 and HO2.

use crate::points::{snapshot_with, write};
use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::group::{Attributes, FullPolicy, Group, NewVolume, VolumeKind, VolumeState};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{POLICIES, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;

const BLOCKS: u64 = 64;

fn held(is_held: bool) -> Attributes {
    let tags = if is_held { vec!["hold=somebody".to_owned()] } else { Vec::new() };
    Attributes { tags, ..Attributes::default() }
}

async fn snapshot(group: &Arc<Group>, origin: VolumeId, number: u8, is_held: bool) -> VolumeId {
    snapshot_with(group, origin, &format!("s{number}"), Uuid([number; 16]), held(is_held)).await
}

async fn byte(group: &Arc<Group>, id: VolumeId, block: u64) -> u8 {
    let volume = group.volume(id).unwrap();
    volume.read(block * BLOCK_SIZE, BLOCK_SIZE as u32, PageBuf::zeroed(BLOCK_SIZE as usize)).await.unwrap().as_slice()
        [0]
}

fn world(seed: u64) -> (World, Arc<SimDisks>, Arc<Group>, [VolumeId; 2]) {
    let world = World::new(seed);
    let (disks, group) = Setup::small(1, 64).make(&world).unwrap();
    let made = world.run(async {
        let origin = group.create_volume(plain_volume("v", 1, VolumeKind::Thin, BLOCKS)).await.unwrap();
        write(&group, origin, 0, BLOCKS, 1).await;
        let kept = snapshot(&group, origin, 9, true).await;
        write(&group, origin, 3, 4, 2).await;
        [origin, kept]
    });
    (world, disks, group, made)
}

/// Whatever runs at the same time, a held snapshot keeps its identity, also after a crash. When the hold ends, its
/// point is merged like any other.
fn keeps_its_identity() {
    for is_reverted in [false, true] {
        let (world, disks, group, [origin, kept]) = world(1);
        let point = group.point_of(kept).unwrap().unwrap();
        world.run(async {
            if is_reverted {
                group.revert(origin, kept, false).await.unwrap();
            } else {
                let older = snapshot(&group, origin, 8, false).await;
                group.remove(&[origin, older]).await.unwrap();
            }
            group.reclaim_idle().await.unwrap();
            assert_eq!(group.point_of(kept).unwrap(), Some(point), "HO1");
            assert_eq!(group.info().reclaim_left, 0);
            group.checkpoint().await.unwrap();
        });
        let image = disks.moment().power_cut(POLICIES[0], &mut Rng::new(2));
        drop(group);
        let world = World::new(3);
        let disks = SimDisks::with_image(world.handle(), image);
        let group = world.run(Group::open(disks.clone(), world.handle(), Setup::small(1, 64).config)).unwrap();
        world.run(async {
            group.reclaim_idle().await.unwrap();
            assert_eq!(group.point_of(kept).unwrap(), Some(point), "HO1");
            assert_eq!((byte(&group, kept, 3).await, byte(&group, kept, 7).await), (1, 1));
            group.set_attributes(kept, held(false)).await.unwrap();
            group.reclaim_idle().await.unwrap();
            assert_eq!(group.point_of(kept).unwrap(), None, "nobody needs it");
            assert_eq!(byte(&group, kept, 3).await, 1);
            group.close().await.unwrap();
        });
        let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn a_snapshot_that_is_held_keeps_its_identity() {
    keeps_its_identity();
}

#[test]
fn a_snapshot_that_was_written_to_holds_no_point() {
    let (world, _, group, [origin, kept]) = world(1);
    world.run(async {
        write(&group, kept, 0, 1, 7).await;
        group.remove(&[origin]).await.unwrap();
        group.reclaim_idle().await.unwrap();
        assert_eq!((group.point_of(kept).unwrap(), group.info().reclaim_left), (None, 0));
    });
}

/// A full group drops snapshots, the held ones last, and the writes continue.
fn dropped_last() {
    let world = World::new(1);
    let (_, group) = Setup::small(1, 64).make(&world).unwrap();
    world.run(async {
        let spec = NewVolume { full: FullPolicy::DropSnapshot, ..plain_volume("v", 1, VolumeKind::Thick, 1024) };
        let origin = group.create_volume(spec).await.unwrap();
        let mut order = Vec::new();
        for (number, is_held) in [(11, true), (12, false), (13, true), (14, false)] {
            write(&group, origin, 0, 64, number).await;
            order.push(snapshot(&group, origin, number, is_held).await);
        }
        let filler = plain_volume("filler", 2, VolumeKind::Thick, group.info().available_blocks / 1024 * 1024 - 3072);
        group.create_volume(filler).await.unwrap();
        let mut gone = Vec::new();
        for round in 0..12 {
            for block in (0..1024).step_by(64) {
                write(&group, origin, block, 64, round).await;
            }
            let is_gone = |id: &VolumeId| group.volume_info(*id).unwrap().state == VolumeState::Invalid;
            gone.extend(order.iter().copied().filter(|id| is_gone(id) && !gone.contains(id)).collect::<Vec<_>>());
            // More writes that have to be redirected.
            if round < 11 {
                order.push(snapshot(&group, origin, 20 + round, false).await);
            }
        }
        let place = |id: VolumeId| gone.iter().position(|other| *other == id);
        let free = place(order[1]).expect("one that nobody holds gives way");
        assert!(place(order[0]).is_none_or(|held| held > free), "HO2: {gone:?} of {order:?}");
    });
}

#[test]
fn a_held_snapshot_is_dropped_last() {
    dropped_last();
}

/// The older of two snapshots of the same contents names them, also for the other one, which is held.
fn names_give_way_last() {
    let world = World::new(1);
    let (_, group) = Setup::small(1, 64).make(&world).unwrap();
    world.run(async {
        let spec = NewVolume { full: FullPolicy::DropSnapshot, ..plain_volume("v", 1, VolumeKind::Thick, 1024) };
        let origin = group.create_volume(spec).await.unwrap();
        write(&group, origin, 0, 64, 10).await;
        let names = snapshot(&group, origin, 11, false).await;
        let kept = snapshot(&group, origin, 12, true).await;
        write(&group, origin, 0, 64, 13).await;
        let other = snapshot(&group, origin, 13, false).await;
        let point = group.point_of(kept).unwrap();
        let filler = plain_volume("filler", 2, VolumeKind::Thick, group.info().available_blocks - 256);
        group.create_volume(filler).await.unwrap();
        let is_gone = |id: VolumeId| group.volume_info(id).unwrap().state == VolumeState::Invalid;
        let mut block = 0;
        while !is_gone(other) && !is_gone(names) {
            assert!(block < 1024, "nothing was dropped");
            write(&group, origin, block, 16, 14).await;
            block += 16;
        }
        assert!(is_gone(other) && !is_gone(names) && !is_gone(kept), "HO2");
        assert_eq!(group.point_of(kept).unwrap(), point, "HO2");
    });
}

#[test]
fn what_names_a_snapshot_that_is_held_gives_way_last() {
    names_give_way_last();
}

#[test]
fn a_name_of_a_held_snapshot_that_is_dropped_is_found() {
    must_be_found("names_of_held_go", names_give_way_last);
}

/// If nothing else can be dropped, the oldest held one is, and the write continues.
#[test]
fn writes_go_before_holds() {
    let world = World::new(1);
    let (_, group) = Setup::small(1, 64).make(&world).unwrap();
    world.run(async {
        let spec = NewVolume { full: FullPolicy::DropSnapshot, ..plain_volume("v", 1, VolumeKind::Thick, 4096) };
        let origin = group.create_volume(spec).await.unwrap();
        for block in (0..4096).step_by(64) {
            write(&group, origin, block, 64, 1).await;
        }
        let kept = snapshot(&group, origin, 9, true).await;
        let filler = plain_volume("filler", 2, VolumeKind::Thick, group.info().available_blocks / 1024 * 1024 - 1024);
        group.create_volume(filler).await.unwrap();
        for block in (0..4096).step_by(64) {
            write(&group, origin, block, 64, 2).await;
        }
        assert_eq!(group.volume_info(kept).unwrap().state, VolumeState::Invalid);
    });
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("held_is_merged", keeps_its_identity);
    must_be_found("held_dropped_first", dropped_last);
}
