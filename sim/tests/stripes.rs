//! Striped volumes in a group: their layout, their space, and disks that take nothing or are lost.

use crate::journal_copies::BLOCKS;
use crate::mirrors::{self, Made, loads, made, made_under_writes, open};
use rowen_engine::disk::{PageBuf, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{
    Attributes, FullPolicy, NewSnapshot, NewVolume, PvExtents, SegmentType, StripeLayout, VolumeKind,
};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use rowen_sim::client::{BLOCK, SnapshotKind, VolumeSpec, number};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::effort::scaled;
use rowen_sim::exec::World;
use rowen_sim::oracle::Since;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const TWO: StripeLayout = StripeLayout { columns: 2, shift: 2 };

fn setup(pvs: usize) -> Setup {
    Setup { segment: SegmentType::Striped, ..mirrors::setup(pvs) }
}

fn new(name: &str, number: u8, extents: u64, setup: &Setup) -> NewVolume {
    plain_volume(name, number, VolumeKind::Thick, extents * setup.extent_blocks)
}

/// MZ1, MZ2
#[test]
fn extents_are_lent_to_stripes_and_come_back() {
    let setup = setup(3);
    let world = World::new(3);
    let (_, group) = setup.make(&world).unwrap();
    let free = || group.info().free_extents;
    let before = free();
    // Metadata grows with the number of pieces.
    let most = before - 40;
    let too_large = world.run(group.create_striped(new("large", 1, before + 1, &setup), TWO, &[]));
    assert!(matches!(too_large, Err(Error::NoSpace { .. })), "{too_large:?}");
    for number in 2..5 {
        // Each time another layout: it can change while there is no striped volume.
        let layout = StripeLayout { columns: 2 + number % 2, shift: number };
        let id = world.run(group.create_striped(new("s", number, most, &setup), layout, &[])).unwrap();
        assert_eq!(group.volumes()[0].segment, SegmentType::Striped);
        let info = group.stripe_info().unwrap();
        assert!(info.layout == layout && info.extents >= most && free() <= 40, "{info:?}");
        let usage = world.run(group.pv_usage(id)).unwrap();
        assert_eq!(usage.iter().map(|part| part.blocks).sum::<u64>(), most * setup.extent_blocks);
        assert!(usage.len() >= usize::from(layout.columns), "{usage:?}");
        assert_eq!(world.run(group.check_open()).unwrap().findings, Vec::<String>::new());
        world.run(group.remove(&[id])).unwrap();
        world.run(group.reclaim_idle()).unwrap();
        let id = world.run(group.create_volume(new("l", number + 10, before - 16, &setup))).unwrap();
        world.run(group.remove(&[id])).unwrap();
        assert_eq!(world.run(group.check_open()).unwrap().findings, Vec::<String>::new());
    }
}

/// SZ1: what cannot be is refused, and changes nothing.
fn impossible_layouts() {
    let setup = setup(3);
    let world = World::new(3);
    let (_, group) = setup.make(&world).unwrap();
    let create = |layout, on: &[PvExtents]| world.run(group.create_striped(new("s", 1, 4, &setup), layout, on));
    let on = |pv| PvExtents { pv: PvIndex(pv), extents: 0..20 };
    for (layout, places) in [
        (StripeLayout { columns: 1, ..TWO }, vec![]),
        (StripeLayout { columns: 4, ..TWO }, vec![]),
        (StripeLayout { columns: 33, ..TWO }, vec![]),
        (StripeLayout { columns: 0, ..TWO }, vec![]),
        (StripeLayout { shift: 7, ..TWO }, vec![]),
        (StripeLayout { shift: 255, ..TWO }, vec![]),
        (TWO, vec![on(0)]),
        (TWO, vec![on(0), on(0)]),
    ] {
        let done = create(layout, &places);
        assert!(matches!(done, Err(Error::Invalid(_))), "{layout:?} {places:?}: {done:?}");
        assert_eq!(group.stripe_info(), None);
    }
    create(TWO, &[on(0), on(2)]).unwrap();
    let usage = world.run(group.pv_usage(group.volumes()[0].id)).unwrap();
    assert_eq!(usage.iter().map(|part| part.pv).collect::<std::collections::BTreeSet<_>>(), [0, 2].into());
    let other = StripeLayout { shift: 1, ..TWO };
    let refused = world.run(group.create_striped(new("t", 2, 4, &setup), other, &[]));
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    world.run(group.create_striped(new("t", 2, 4, &setup), TWO, &[])).unwrap();
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    impossible_layouts();
    must_be_found("second_layout", impossible_layouts);
}

#[test]
fn rows_are_made_under_writes() {
    (0..scaled(8)).for_each(|seed| made_under_writes(SegmentType::Striped, seed));
    must_be_found("zones_freed_early", || (0..8).for_each(|seed| made_under_writes(SegmentType::Striped, seed)));
}

/// S8
#[test]
fn a_striped_volume_whose_blocks_are_on_one_disk_is_found() {
    must_be_found("mirror_not_mirrored", || (0..4).for_each(|seed| made_under_writes(SegmentType::Striped, seed)));
}

pub fn used_on(made: &Made, pv: u16) -> u64 {
    let blocks = |id| made.world.run(made.client.group.pv_usage(id)).unwrap();
    let all = made.client.group.volumes().into_iter().flat_map(|info| blocks(info.id));
    all.filter(|part| part.pv == pv).map(|part| part.blocks).sum()
}

/// S6: a physical volume has columns, and takes nothing new.
#[test]
fn no_stripe_is_taken_on_a_disk_that_takes_nothing() {
    let setup = setup(3);
    let made = made(5, &setup);
    // The next rows are on other disks.
    let columns = made.client.group.stripe_info().unwrap().layout.columns;
    assert_eq!(columns, 3);
    made.world.run(made.client.group.set_allocatable(PvIndex(1), false)).unwrap();
    made.world.run(made.client.snapshot(&made.vols[..1], SnapshotKind::default())).unwrap();
    let before = used_on(&made, 1);
    let full = made.world.run(made.client.write(made.vols[0], 0, 64 * BLOCK, &[]));
    assert!(matches!(full, Err(Error::NoSpace { .. })), "there is no third disk for a row: {full:?}");
    assert_eq!(used_on(&made, 1), before);
    made.world.run(made.client.group.set_allocatable(PvIndex(1), true)).unwrap();
    made.world.run(made.client.write(made.vols[0], 0, 64 * BLOCK, &[])).unwrap();
    made.judge(Since::Death);
}

/// The group goes on without a disk: volumes without blocks there are whole, and the others partial. Then these go, and the
/// disk leaves for good.
fn a_disk_is_lost(seed: u64) {
    let setup = setup(3);
    let made = made(seed, &setup);
    made.client.oracle.lock().segment = SegmentType::Linear;
    let spec = VolumeSpec { kind: VolumeKind::Thick, blocks: 300, chunk_blocks: 1, full: FullPolicy::Fail };
    let linear = made.world.run(made.client.create(spec)).unwrap();
    made.world.run(made.client.write(linear, 0, 300 * BLOCK, &[])).unwrap();
    for done in made.world.run(made.client.together(loads(&made, seed, 12))) {
        done.unwrap();
    }
    // Of a group that was killed arenas are open.
    match seed % 2 {
        0 => made.world.run(made.client.close()).unwrap(),
        _ => made.world.run(made.client.checkpoint()).unwrap(),
    }
    let gone = PvIndex((seed % 3) as u16);
    let mut image = made.disks.moment().killed(&mut Rng::new(seed));
    image.set_size(gone, 0);
    let world = World::new(12);
    let disks = rowen_sim::disk::SimDisks::with_image(world.handle(), image);
    let opened = rowen_engine::group::Group::open_without(disks.clone(), world.handle(), setup.config.clone(), 9);
    let group = world.run(opened).unwrap();
    let client = rowen_sim::client::Client::new(world.handle(), group.clone(), made.client.oracle.clone());
    for info in group.volumes() {
        let is_partial = world.run(group.is_partial(info.id)).unwrap();
        assert_eq!(is_partial, info.segment == SegmentType::Striped || is_partial, "{info:?}");
        let read = world.run(client.look(number(info.uuid), 0, 200 * BLOCK));
        assert_eq!(read.is_err(), is_partial, "{info:?}: {read:?}");
    }
    // MB3: nothing is allocated on it, so what a snapshot shares finds no space, and no write goes to the lost disk.
    for at in (BLOCKS - 8..BLOCKS).map(|block| block * BLOCK) {
        let written = world.run(client.write(made.vols[0], at, BLOCK, &[]));
        assert!(matches!(written, Err(Error::NoSpace { .. })), "{written:?}");
    }
    let partial: Vec<_> =
        group.volumes().into_iter().filter(|info| world.run(group.is_partial(info.id)).unwrap()).collect();
    assert!(!partial.is_empty());
    let busy = world.run(group.close_without(gone));
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    for info in partial {
        world.run(client.remove(&[number(info.uuid)])).unwrap();
    }
    world.run(group.reclaim_idle()).unwrap();
    world.run(group.close_without(gone)).unwrap();
    let image = disks.moment().killed(&mut Rng::new(seed));
    let others: Vec<usize> = (0..3).filter(|at| *at != usize::from(gone.0)).collect();
    let left = open(image.reordered(&others), &setup, &made, None, Since::Death);
    assert!(left.client.group.info().pvs.len() == 2 && left.client.group.stripe_info().is_none());
}

#[test]
fn a_disk_with_columns_is_lost() {
    for seed in 0..scaled(6) {
        a_disk_is_lost(seed);
    }
}

/// S4: what is set aside for snapshots of striped volumes is not closed.
fn reserves_stay_open() {
    let setup = setup(2);
    let world = World::new(5);
    let (_, group) = setup.make(&world).unwrap();
    let id = world.run(group.create_striped(new("s", 1, 4, &setup), TWO, &[])).unwrap();
    let snapshot = NewSnapshot {
        origin: id,
        name: "kept".into(),
        uuid: Uuid([9; 16]),
        reserve: Some(2 * setup.extent_blocks),
        read_only: false,
        chunk_blocks: 1,
        attributes: Attributes::default(),
    };
    world.run(group.snapshot(&[snapshot])).unwrap();
    let closed = world.run(group.set_allocatable(PvIndex(0), false));
    assert!(matches!(closed, Err(Error::NoSpace { .. })), "{closed:?}");
}

#[test]
fn a_reserve_of_striped_space_keeps_its_disks_allocatable() {
    reserves_stay_open();
}

/// Writes that are refused because a pool is full take no space from others.
fn a_pool_is_full() {
    let setup = setup(2);
    let world = World::new(5);
    let (_, group) = setup.make(&world).unwrap();
    let in_pool = |name: &str, number, blocks| NewVolume {
        full: FullPolicy::Fail,
        attributes: Attributes { pool: "pool".into(), ..Attributes::default() },
        ..plain_volume(name, number, VolumeKind::Thin, blocks)
    };
    world.run(group.create_volume(in_pool("pool", 1, 2 * setup.extent_blocks))).unwrap();
    let id = world.run(group.create_striped(in_pool("t", 2, 4096), TWO, &[])).unwrap();
    let volume = group.volume(id).unwrap();
    let bytes = 64 * BLOCK_SIZE;
    let write = |at: u64| world.run(volume.write(at, bytes as u32, Arc::new(PageBuf::zeroed(bytes as usize))));
    let refused = (0..64).map(|number| write(number * bytes)).find_map(Result::err);
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
    for number in 0..20 {
        assert!(write((40 + number) * bytes).is_err());
    }
    let (striped, all) = (group.stripe_info().map_or(0, |info| info.extents), group.info().extents);
    assert!(striped < all / 3, "{striped} of {all} extents are striped");
}

#[test]
fn a_full_pool_takes_no_space_from_others() {
    a_pool_is_full();
    must_be_found("others_pay_for_a_pool", a_pool_is_full);
}

/// What was made for a volume that did not fit is for others again.
#[test]
fn a_refused_volume_leaves_the_space_as_it_was() {
    let setup = setup(3);
    let world = World::new(5);
    let (_, group) = setup.make(&world).unwrap();
    let free = || group.info().free_extents;
    let before = free();
    let kept = world.run(group.create_striped(new("s", 1, 4, &setup), TWO, &[])).unwrap();
    for number in 2..5 {
        let too_large = world.run(group.create_striped(new("large", number, before - 2, &setup), TWO, &[]));
        assert!(matches!(too_large, Err(Error::NoSpace { .. })), "{too_large:?}");
        assert!(free() + 20 >= before, "{} of {before} extents are free", free());
    }
    let too_large = world.run(group.resize(kept, (before + 8) * setup.extent_blocks));
    assert!(matches!(too_large, Err(Error::NoSpace { .. })), "{too_large:?}");
    assert!(free() + 20 >= before, "{} of {before} extents are free", free());
}

/// A mirrored volume gets the room of free striped extents, also if there are many free mirrored ones, but not enough.
#[test]
fn free_rows_become_mirrored_extents() {
    let mut setup = setup(3);
    setup.pvs.iter_mut().for_each(|pv| pv.size *= 2);
    let world = World::new(5);
    let (_, group) = setup.make(&world).unwrap();
    let create = |name: &str, number, extents| new(name, number, extents, &setup);
    let snapshot = |origin, name: &str, number| NewSnapshot {
        origin,
        name: name.into(),
        uuid: Uuid([number; 16]),
        reserve: None,
        read_only: true,
        chunk_blocks: 1,
        attributes: Attributes::default(),
    };
    let mirrored = world.run(group.create_mirrored(create("m", 1, 70), &[])).unwrap();
    let striped = world.run(group.create_striped(create("s", 2, 60), TWO, &[])).unwrap();
    world.run(group.snapshot(&[snapshot(mirrored, "of-m", 3), snapshot(striped, "of-s", 4)])).unwrap();
    let handle = world.handle();
    world.run(async move { handle.sleep(Duration::from_secs(10)).await });
    let rows = group.stripe_info().unwrap().free_extents;
    let legs = group.mirror_info().free_extents;
    assert!(rows >= 60 && legs >= 64, "{rows} striped and {legs} mirrored extents were made ahead");
    world.run(group.create_volume(create("l", 5, group.info().free_extents - 8))).unwrap();
    world.run(group.create_mirrored(create("n", 6, legs + 20), &[])).unwrap();
    assert_eq!(world.run(group.check_open()).unwrap().findings, Vec::<String>::new());
}
