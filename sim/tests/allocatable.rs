//! Physical volumes that are not allocatable. Nothing new is placed on them after the change, whenever the power fails.
//! Blocks there are read and written in place. If all other physical volumes are full, the group is full.
//!
//! Rule S6.

use rowen_engine::disk::{Disks, PageBuf, PvGeometry, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::format::superblock::{COPY_OFFSETS, FEATURE_ALLOCATION, GroupRoot, SLOTS, Superblock};
use rowen_engine::group::{
    Attributes, Config, FullPolicy, Group, GroupAttributes, NewPv, NewSnapshot, NewVolume, PvExtents, VolumeKind,
    VolumeState,
};
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Faults, Image, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use rowen_sim::steps::each_is_whole;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: u64 = 1 << 20;
const EXTENT: u64 = 64;
/// Extents of a physical volume.
const EXTENTS: u64 = 28;

fn config() -> Config {
    Config { cache_bytes: 256 << 10, dirty_bytes: 64 << 10, ..Config::default() }
}

fn setup(pvs: usize) -> Setup {
    Setup {
        pvs: vec![PvGeometry { size: 8 * MIB, sector: 512 }; pvs],
        segment: Default::default(),
        second_journal: None,
        extent_blocks: EXTENT,
        config: config(),
        faults: Faults::default(),
    }
}

fn volume(name: &str, kind: VolumeKind, extents: u64, full: FullPolicy) -> NewVolume {
    NewVolume {
        name: name.into(),
        uuid: Uuid([9; 16]),
        kind,
        blocks: extents * EXTENT,
        sector: 512,
        chunk_blocks: 4,
        full,
        attributes: Attributes::default(),
    }
}

fn snapshot(origin: VolumeId, name: &str, reserve: Option<u64>) -> NewSnapshot {
    NewSnapshot {
        origin,
        name: name.into(),
        uuid: Uuid([8; 16]),
        reserve,
        read_only: false,
        chunk_blocks: 4,
        attributes: Attributes::default(),
    }
}

async fn write(group: &Arc<Group>, id: VolumeId, block: u64, byte: u8) -> Result<(), Error> {
    let mut buf = PageBuf::zeroed(BLOCK_SIZE as usize);
    buf.as_mut_slice().fill(byte);
    group.volume(id)?.write(block * BLOCK_SIZE, BLOCK_SIZE as u32, Arc::new(buf)).await
}

async fn byte_at(group: &Arc<Group>, id: VolumeId, block: u64) -> u8 {
    let buf = PageBuf::zeroed(BLOCK_SIZE as usize);
    let buf = group.volume(id).unwrap().read(block * BLOCK_SIZE, BLOCK_SIZE as u32, buf).await.unwrap();
    buf.as_slice()[0]
}

fn pv_free(group: &Group, pv: usize) -> u64 {
    group.info().pvs[pv].free_blocks
}

async fn sound(group: &Arc<Group>) {
    assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
}

/// The newest root on a physical volume.
fn root(image: &Image) -> GroupRoot {
    let slots = COPY_OFFSETS.iter().flat_map(|copy| (0..SLOTS).map(move |slot| copy + slot * BLOCK_SIZE));
    let found = slots.filter_map(|offset| {
        let mut block = [0; BLOCK_SIZE as usize];
        image.read(PvIndex(0), offset, &mut block);
        Superblock::decode(&block, "here").ok().flatten()?.group
    });
    found.max_by_key(|root| root.generation).unwrap()
}

#[test]
fn nothing_new_is_placed_there_and_old_blocks_stay_in_use() {
    let world = World::new(1);
    let (disks, group) = setup(3).make(&world).unwrap();
    let (here, image) = world.run(async {
        let all_of_it = [PvExtents { pv: PvIndex(1), extents: 0..EXTENTS }];
        let spec = volume("here", VolumeKind::Thick, 4, FullPolicy::Fail);
        let here = group.create_volume_on(spec, &all_of_it).await.unwrap();
        // Open arenas on all of them.
        let thin = group.create_volume(volume("thin", VolumeKind::Thin, 40, FullPolicy::Fail)).await.unwrap();
        for block in 0..600 {
            write(&group, thin, block * 2, 1).await.unwrap();
        }
        group.set_allocatable(PvIndex(1), false).await.unwrap();
        let before = pv_free(&group, 1);
        let info = group.info();
        assert!(info.allocatable_extents < info.free_extents && !info.pvs[1].is_allocatable, "{info:?}");
        assert_eq!(info.pvs.iter().map(|pv| pv.free_extents).sum::<u64>(), info.free_extents);
        assert_eq!(group.free_on(&all_of_it).await.unwrap(), 0);

        // Unwritten blocks are written at their place. Blocks that a snapshot shares go elsewhere.
        for block in 0..20 {
            write(&group, here, block, 2).await.unwrap();
        }
        assert_eq!(group.pv_usage(here).await.unwrap().len(), 1);
        group.snapshot(&[snapshot(here, "before", None)]).await.unwrap();
        for block in 0..20 {
            write(&group, here, block, 3).await.unwrap();
        }
        let elsewhere: BTreeSet<u16> = group.pv_usage(here).await.unwrap().iter().map(|place| place.pv).collect();
        assert!(elsewhere.len() > 1, "{elsewhere:?}");
        // All other free blocks, to the last one, and metadata that has to grow.
        let left = group.info().allocatable_extents;
        group.create_volume(volume("rest", VolumeKind::Thick, left - 4, FullPolicy::Fail)).await.unwrap();
        let refused = group.create_volume(volume("more", VolumeKind::Thick, 5, FullPolicy::Fail)).await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace { needed, free } if needed == 5 * EXTENT && free < needed));
        let refused = group.create_volume_on(volume("more", VolumeKind::Thick, 1, FullPolicy::Fail), &all_of_it).await;
        assert_eq!(refused.unwrap_err(), Error::NoSpace { needed: EXTENT, free: 0 });
        let mut block = 600;
        while write(&group, thin, block * 2, 1).await.is_ok() {
            block += 1;
        }
        assert_eq!(pv_free(&group, 1), before);
        sound(&group).await;
        group.volume(here).unwrap().flush().await.unwrap();
        (here, disks.moment().killed(&mut Rng::new(3)))
    });
    assert!(root(&image).features & FEATURE_ALLOCATION != 0, "an older program refuses the group");

    // Another server opens the group, and then the physical volume is allocatable again.
    let world = World::new(2);
    let disks = SimDisks::with_image(world.handle(), image);
    let as_disks: Arc<dyn Disks> = disks.clone();
    world.run(async {
        let group = Group::open(as_disks, world.handle(), config()).await.unwrap();
        assert!(!group.info().pvs[1].is_allocatable);
        let before = pv_free(&group, 1);
        assert!(before > 0);
        let refused = group.create_volume(volume("more", VolumeKind::Thick, 5, FullPolicy::Fail)).await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        for block in 0..20 {
            assert_eq!(byte_at(&group, here, block).await, 3);
        }
        write(&group, here, 5, 4).await.unwrap();
        let refused = write(&group, here, 100, 4).await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "a snapshot shares it: {refused}");
        assert_eq!(pv_free(&group, 1), before);
        group.set_allocatable(PvIndex(1), true).await.unwrap();
        let more = group.create_volume(volume("more", VolumeKind::Thick, 5, FullPolicy::Fail)).await.unwrap();
        let places = group.pv_usage(more).await.unwrap();
        assert!(places.iter().any(|place| place.pv == 1), "{places:?}");
        sound(&group).await;
        group.close().await.unwrap();
    });
    let image = disks.moment().killed(&mut Rng::new(1));
    assert_eq!(root(&image).features & FEATURE_ALLOCATION, 0, "the group is as one that never had it");
}

/// The comparisons of these tests fail if the rule is broken.
#[test]
fn finds_take_unallocatable() {
    let planted = Config { planted: Some("take_unallocatable"), ..config() };
    let world = World::new(3);
    let (_, group) = Setup { config: planted, ..setup(2) }.make(&world).unwrap();
    world.run(async {
        let thin = group.create_volume(volume("thin", VolumeKind::Thin, 40, FullPolicy::Fail)).await.unwrap();
        group.set_allocatable(PvIndex(1), false).await.unwrap();
        let before = pv_free(&group, 1);
        let mut block = 0;
        while block < 40 * EXTENT && write(&group, thin, block, 1).await.is_ok() {
            block += 1;
        }
        assert!(pv_free(&group, 1) < before, "the planted bug was not found");
    });
}

#[test]
fn a_change_is_whole_whenever_the_power_goes() {
    async fn said(group: &Arc<Group>) -> Vec<bool> {
        // The state that was found counts: nothing may be placed on a physical volume that it calls not allocatable.
        let before: Vec<u64> = (0..3).map(|pv| pv_free(group, pv)).collect();
        let thin = group.find("thin").unwrap();
        let mut block = 0;
        while block < 400 && write(group, thin, block * 2 + 1, 5).await.is_ok() {
            block += 1;
        }
        let info = group.info();
        for (pv, info) in info.pvs.iter().enumerate().filter(|(_, info)| !info.is_allocatable) {
            assert!(info.free_blocks >= before[pv], "{pv}: {info:?}");
        }
        sound(group).await;
        info.pvs.iter().map(|pv| pv.is_allocatable).collect()
    }
    let world = World::new(7);
    let (disks, group) = setup(3).make(&world).unwrap();
    world.run(async {
        let thin = group.create_volume(volume("thin", VolumeKind::Thin, 60, FullPolicy::Fail)).await.unwrap();
        for block in 0..200 {
            write(&group, thin, block * 2, 1).await.unwrap();
        }
    });
    let states = [vec![true, true, true], vec![true, false, true], vec![false, false, true], vec![false, true, true]];
    let done = AtomicUsize::new(0);
    let change = async {
        for (step, (pv, allocatable)) in [(1, false), (0, false), (1, true)].into_iter().enumerate() {
            group.set_allocatable(PvIndex(pv), allocatable).await.unwrap();
            done.store(step + 1, Ordering::SeqCst);
        }
    };
    each_is_whole(&world, &disks, &states, &done, change, said);
}

/// A thick volume that shares all its blocks with a snapshot. The allocatable space is too small for its writes; the
/// rest is on a physical volume that is not allocatable.
async fn little_room(group: &Arc<Group>, full: FullPolicy) -> (VolumeId, VolumeId) {
    let origin = group.create_volume(volume("origin", VolumeKind::Thick, 8, full)).await.unwrap();
    for block in 0..8 * EXTENT {
        write(group, origin, block, 1).await.unwrap();
    }
    group.set_allocatable(PvIndex(1), false).await.unwrap();
    let rest = group.info().allocatable_extents - 2;
    group.create_volume(volume("rest", VolumeKind::Thick, rest, FullPolicy::Fail)).await.unwrap();
    let before = group.snapshot(&[snapshot(origin, "before", None)]).await.unwrap()[0];
    assert!(group.info().free_extents > 10);
    (origin, before)
}

#[test]
fn a_write_fails_where_only_what_is_not_allocatable_is_free() {
    let world = World::new(4);
    let (_, group) = setup(2).make(&world).unwrap();
    world.run(async {
        let (origin, before) = little_room(&group, FullPolicy::Fail).await;
        let mut block = 0;
        let refused = loop {
            match write(&group, origin, block, 2).await {
                Ok(()) => block += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, Error::NoSpace { .. }) && block >= EXTENT, "block {block}: {refused}");
        assert_eq!(group.volume_info(before).unwrap().state, VolumeState::Ok);
        group.set_allocatable(PvIndex(1), true).await.unwrap();
        write(&group, origin, block, 2).await.unwrap();
        assert_eq!(byte_at(&group, before, block).await, 1);
        sound(&group).await;
    });
}

#[test]
fn a_snapshot_is_dropped_if_no_free_block_is_allocatable() {
    let world = World::new(5);
    let (_, group) = setup(2).make(&world).unwrap();
    world.run(async {
        let (origin, before) = little_room(&group, FullPolicy::DropSnapshot).await;
        for block in 0..8 * EXTENT {
            write(&group, origin, block, 2).await.unwrap();
        }
        assert_eq!(group.volume_info(before).unwrap().state, VolumeState::Invalid);
        sound(&group).await;
    });
}

#[test]
fn a_held_write_continues_when_space_is_allocatable_again() {
    let world = World::new(6);
    let (_, group) = setup(2).make(&world).unwrap();
    let (writer, done) = (group.clone(), Rc::new(Cell::new(0)));
    let written = done.clone();
    let origin = world.run(async { little_room(&group, FullPolicy::Hold).await.0 });
    let all = 8 * EXTENT;
    let writing = async {
        for block in 0..all {
            write(&writer, origin, block, 2).await.unwrap();
            written.set(block + 1);
        }
    };
    // Nothing could free space, so it would wait for ever.
    assert!(world.try_run(writing).is_err());
    let held = done.get();
    assert!((EXTENT..all).contains(&held), "{held} blocks were written");
    world.run(async {
        group.set_allocatable(PvIndex(1), true).await.unwrap();
        for block in held..all {
            write(&group, origin, block, 2).await.unwrap();
        }
        sound(&group).await;
    });
}

#[test]
fn what_is_reserved_keeps_a_physical_volume_allocatable() {
    let world = World::new(8);
    let (_, group) = setup(2).make(&world).unwrap();
    world.run(async {
        let origin = group.create_volume(volume("origin", VolumeKind::Thick, 2, FullPolicy::Fail)).await.unwrap();
        let reserve = group.info().free_extents - 3;
        let kept = group.snapshot(&[snapshot(origin, "kept", Some(reserve * EXTENT))]).await.unwrap()[0];
        let before = group.info();
        for pv in 0..2 {
            let refused = group.set_allocatable(PvIndex(pv), false).await.unwrap_err();
            assert!(matches!(refused, Error::NoSpace { needed, free } if free < needed), "{refused}");
        }
        let after = group.info();
        assert!(after.pvs.iter().all(|pv| pv.is_allocatable));
        assert_eq!(after.allocatable_extents, before.allocatable_extents);
        group.remove(&[kept]).await.unwrap();
        group.set_allocatable(PvIndex(0), false).await.unwrap();
        // Space that cannot be allocated is not reserved for any volume.
        let most = group.info().allocatable_extents;
        let refused = group.snapshot(&[snapshot(origin, "big", Some((most + 1) * EXTENT))]).await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        group.snapshot(&[snapshot(origin, "fits", Some(most * EXTENT))]).await.unwrap();
        assert_eq!(group.info().allocatable_extents, 0);
        sound(&group).await;
        assert!(matches!(group.set_allocatable(PvIndex(2), false).await, Err(Error::NotFound(_))));
    });
}

#[test]
fn the_mark_goes_with_its_physical_volume() {
    let world = World::new(9);
    let (disks, group) = setup(3).make(&world).unwrap();
    world.run(async {
        group.set_allocatable(PvIndex(2), false).await.unwrap();
        group.set_allocatable(PvIndex(1), false).await.unwrap();
        // A stale copy of the attributes must not change it back.
        group.set_group_attributes(GroupAttributes { max_pvs: 9, ..GroupAttributes::default() }).await.unwrap();
        assert!(!group.info().pvs[1].is_allocatable && group.info().attributes.max_pvs == 9);
        group.set_allocatable(PvIndex(1), true).await.unwrap();
        group.close_without(PvIndex(0)).await.unwrap();
    });
    let image = disks.moment().killed(&mut Rng::new(1)).reordered(&[1, 2]);
    let world = World::new(10);
    let disks = SimDisks::with_image(world.handle(), image);
    let as_disks: Arc<dyn Disks> = disks.clone();
    world.run(async {
        let group = Group::open(as_disks, world.handle(), config()).await.unwrap();
        let flags =
            |group: &Group| group.info().pvs.iter().map(|pv| (pv.uuid.0[0], pv.is_allocatable)).collect::<Vec<_>>();
        assert_eq!(flags(&group), [(2, true), (3, false)]);
        // The last physical volume leaves. One that joins in its place is allocatable.
        group.remove_last_pv().await.unwrap();
        group.add_pv(NewPv { uuid: Uuid([7; 16]) }).await.unwrap();
        assert_eq!(flags(&group), [(2, true), (7, true)]);
        let all = group.info().free_extents;
        group.create_volume(volume("all", VolumeKind::Thick, all, FullPolicy::Fail)).await.unwrap();
        sound(&group).await;
    });
}
