//! Physical volumes join, grow, shrink and leave, and the power fails at any moment. The group opens with the physical
//! volumes that it had before or after. Every block keeps its contents, and no space is lost.

use rowen_engine::disk::{DiskOpKind, Disks, PageBuf, PvGeometry, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, Config, Group, NewGroup, NewPv, NewSnapshot, NewVolume, VolumeKind};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{Faults, Image, POLICIES, Policy, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use rowen_sim::worlds::members;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const PV: PvGeometry = PvGeometry { size: 16 * MIB, sector: 512 };
/// Extents of a physical volume of 16 MiB.
const EXTENTS: u64 = 15;

fn config() -> Config {
    Config { cache_bytes: 256 << 10, dirty_bytes: 64 << 10, ..Config::default() }
}

fn volume(name: &str, kind: VolumeKind, blocks: u64) -> NewVolume {
    plain_volume(name, 9, kind, blocks)
}

async fn fill(group: &Arc<Group>, name: &str, blocks: u64, byte: u8) {
    let volume = group.volume(group.find(name).unwrap()).unwrap();
    for block in 0..blocks {
        let mut buf = PageBuf::zeroed(BLOCK_SIZE as usize);
        buf.as_mut_slice().fill(byte.wrapping_add(block as u8));
        volume.write(block * BLOCK_SIZE, BLOCK_SIZE as u32, Arc::new(buf)).await.unwrap();
    }
    volume.flush().await.unwrap();
}

async fn expect(group: &Arc<Group>, name: &str, blocks: u64, byte: u8) {
    let volume = group.volume(group.find(name).unwrap()).unwrap();
    for block in 0..blocks {
        let buf = PageBuf::zeroed(BLOCK_SIZE as usize);
        let buf = volume.read(block * BLOCK_SIZE, BLOCK_SIZE as u32, buf).await.unwrap();
        let found = &buf.as_slice()[..BLOCK_SIZE as usize];
        assert!(found.iter().all(|b| *b == byte.wrapping_add(block as u8)), "{name}, block {block}");
    }
}

/// The state after a cut, opened, checked and compared. Returns its extents.
fn survivor(image: Image, seed: u64) -> u64 {
    let world = World::new(seed);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), members(&image).unwrap());
    world.run(async {
        assert_eq!(Group::check(disks.clone()).await.unwrap().findings, Vec::<String>::new());
        let group = Group::open(disks.clone(), world.handle(), config()).await.unwrap();
        expect(&group, "data", 300, 7).await;
        expect(&group, "before", 300, 3).await;
        group.reclaim_idle().await.unwrap();
        group.checkpoint().await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        let info = group.info();
        group.close().await.unwrap();
        info.extents
    })
}

fn setup() -> Setup {
    Setup { pvs: vec![PV], config: config(), ..Setup::small(1, 1) }
}

/// A volume with a snapshot, both written, in a group of one physical volume.
async fn contents(group: &Arc<Group>) {
    let origin = group.create_volume(volume("data", VolumeKind::Thick, 512)).await.unwrap();
    fill(group, "data", 300, 3).await;
    let spec = NewSnapshot {
        origin,
        name: "before".into(),
        uuid: Uuid([8; 16]),
        reserve: None,
        read_only: true,
        chunk_blocks: 1,
        attributes: Attributes::default(),
    };
    group.snapshot(&[spec]).await.unwrap();
    fill(group, "data", 300, 7).await;
}

fn cut_everywhere(world: &World, disks: &Arc<SimDisks>, change: impl Future<Output = ()>, extents: [u64; 2]) {
    disks.keep_moments();
    let mut seen = [0, 0];
    let mut judge = |moment: &rowen_sim::disk::Moment| {
        for policy in POLICIES.into_iter().map(Some).chain([None]) {
            // Similar cuts: a sample of them finds what all of them would.
            if policy.is_some_and(|policy| !matches!(policy, Policy::Nothing | Policy::All)) && moment.event % 5 != 0 {
                continue;
            }
            let mut rng = Rng::new(moment.event + 1);
            let found = survivor(moment.crash(policy, &mut rng), moment.event + 1);
            let place = extents.iter().position(|extents| *extents == found);
            seen[place.unwrap_or_else(|| panic!("event {}, {policy:?}: {found} extents", moment.event))] += 1;
        }
    };
    let mut observe = || disks.take_moments().iter().for_each(&mut judge);
    world.try_run_observed(change, &mut observe).unwrap();
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    assert_eq!(survivor(disks.moment().killed(&mut Rng::new(1)), 5), extents[1], "what was answered for is there");
}

#[test]
fn one_joins() {
    let world = World::new(3);
    let (disks, group) = setup().make(&world).unwrap();
    world.run(contents(&group));
    disks.add_pv(PV);
    let join = async { group.add_pv(NewPv { uuid: Uuid([0x22; 16]) }).await.unwrap() };
    cut_everywhere(&world, &disks, join, [EXTENTS, 2 * EXTENTS]);
    world.run(async {
        let big = (EXTENTS + 4) * 256;
        group.create_volume(volume("big", VolumeKind::Thick, big)).await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
    });
}

/// Whichever slot the group's first superblock on it goes to, that superblock may be torn. The label must survive.
fn each_slot_is_torn(config: Config) -> bool {
    let mut opens = true;
    for checkpoints in 0..4 {
        let world = World::new(3 + checkpoints);
        let (disks, group) = Setup { config: config.clone(), ..setup() }.make(&world).unwrap();
        world.run(async {
            for _ in 0..checkpoints {
                group.checkpoint().await.unwrap();
            }
        });
        disks.add_pv(PV);
        disks.keep_moments();
        let mut observe = || {
            for moment in disks.take_moments() {
                for throw in 0..8 {
                    let image = moment.power_cut(Policy::Sectors, &mut Rng::new(moment.event << 8 | throw));
                    let world = World::new(1);
                    let members = std::panic::catch_unwind(|| members(&image).unwrap());
                    opens &= members.is_ok_and(|image| {
                        let disks = SimDisks::with_image(world.handle(), image);
                        world.run(Group::open(disks, world.handle(), config.clone())).is_ok()
                    });
                }
            }
        };
        let join = async { group.add_pv(NewPv { uuid: Uuid([0x22; 16]) }).await.unwrap() };
        world.try_run_observed(join, &mut observe).unwrap();
    }
    opens
}

#[test]
fn the_first_superblock_of_one_that_joins_is_torn() {
    assert!(each_slot_is_torn(config()));
    let planted = Config { planted: Some("label_written_once"), ..config() };
    assert!(!each_slot_is_torn(planted), "the planted bug was not found");
}

/// The group on disks of these sizes, as an administrator changes them while the group is closed.
fn on_other_disks(disks: &Arc<SimDisks>, sizes: &[u64]) -> Image {
    let mut image = disks.moment().killed(&mut Rng::new(1));
    for (pv, size) in sizes.iter().enumerate() {
        image.set_size(PvIndex(pv as u16), *size);
    }
    image
}

/// Any of them: the only one, one with others behind it, the last.
/// The group gets the size that `pvresize` left before the physical volume joined.
#[test]
fn one_joins_with_less_than_its_disk() {
    let world = World::new(17);
    let disks = SimDisks::new(world.handle(), &[PV, PV]);
    let as_disks: Arc<dyn Disks> = disks.clone();
    world.run(async {
        for (size, good) in [(16 * MIB + 1, false), (2 * MIB - 1, false), (12 * MIB, true)] {
            let written = Group::write_label_of(&*as_disks, PvIndex(0), Uuid([1; 16]), size).await;
            assert_eq!(written.is_ok(), good, "{size}");
        }
        let pvs = vec![NewPv { uuid: Uuid([1; 16]) }, NewPv { uuid: Uuid([2; 16]) }];
        let spec = NewGroup { uuid: Uuid([9; 16]), name: "less".into(), extent_blocks: 256, pvs, second_journal: None };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks.clone(), world.handle(), config()).await.unwrap();
        disks.add_pv(PV);
        Group::write_label_of(&*as_disks, PvIndex(2), Uuid([3; 16]), 8 * MIB).await.unwrap();
        group.add_pv(NewPv { uuid: Uuid([3; 16]) }).await.unwrap();
        let sizes: Vec<_> = group.info().pvs.iter().map(|pv| (pv.extents, pv.size)).collect();
        assert_eq!(sizes, [(11, 12 * MIB), (15, 16 * MIB), (7, 8 * MIB)]);
        group.resize_pv(PvIndex(2), 16 * MIB).await.unwrap();
        assert_eq!(group.info().extents, 11 + 15 + 15);
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.close().await.unwrap();
    });
}

#[test]
fn any_grows() {
    for (pvs, pv) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
        let world = World::new(4);
        let setup = Setup { pvs: vec![PV; pvs], ..setup() };
        let (disks, group) = setup.make(&world).unwrap();
        world.run(async {
            contents(&group).await;
            let refused = group.resize_pv(PvIndex(pv), 24 * MIB).await.unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "its disk has not grown: {refused}");
            group.close().await.unwrap();
        });
        let image = on_other_disks(&disks, &vec![24 * MIB; pvs]);
        let world = World::new(5);
        let disks = SimDisks::with_image(world.handle(), image);
        let as_disks: Arc<dyn Disks> = disks.clone();
        let group = world.run(async { Group::open(as_disks, world.handle(), config()).await.unwrap() });
        let extents = pvs as u64 * EXTENTS;
        assert_eq!(group.info().extents, extents, "a disk that has grown changes nothing by itself");
        let grow = async { group.resize_pv(PvIndex(pv), 24 * MIB).await.unwrap() };
        cut_everywhere(&world, &disks, grow, [extents, extents + 8]);
        world.run(async {
            let all = group.info().free_extents;
            group.create_volume(volume("all", VolumeKind::Thick, all * 256)).await.unwrap();
            let volume = group.volume(group.find("all").unwrap()).unwrap();
            // The whole range, one MiB at a time.
            for extent in 0..all {
                let mut buf = PageBuf::zeroed(MIB as usize);
                buf.as_mut_slice().fill(extent as u8 | 1);
                volume.write(extent * MIB, MIB as u32, Arc::new(buf)).await.unwrap();
            }
            for extent in 0..all {
                let buf = volume.read(extent * MIB, MIB as u32, PageBuf::zeroed(MIB as usize)).await.unwrap();
                assert!(buf.as_slice()[..MIB as usize].iter().all(|byte| *byte == extent as u8 | 1), "{extent}");
            }
            expect(&group, "data", 300, 7).await;
            assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        });
    }
}

#[test]
fn a_disk_that_became_smaller_than_its_physical_volume_is_reported() {
    let world = World::new(14);
    let setup = Setup { pvs: vec![PV, PV], ..setup() };
    let (disks, group) = setup.make(&world).unwrap();
    world.run(async {
        contents(&group).await;
        // The physical volume has a part of the last extent. That part may be cut off alone, and the group must learn
        // of it.
        group.resize_pv(PvIndex(1), 16 * MIB - 4096).await.unwrap();
        assert_eq!(group.info().extents, 2 * EXTENTS - 1);
        group.resize_pv(PvIndex(1), 15 * MIB + 4096).await.unwrap();
        assert_eq!(group.info().extents, 2 * EXTENTS - 1);
        group.close().await.unwrap();
    });
    for (size, opens) in [(15 * MIB + 4096, true), (15 * MIB, false), (MIB, false), (4096, false)] {
        let world = World::new(15);
        let image = on_other_disks(&disks, &[16 * MIB, size]);
        let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
        world.run(async {
            match Group::open(disks, world.handle(), config()).await {
                Ok(group) => {
                    assert!(opens, "{size}");
                    expect(&group, "data", 300, 7).await;
                    group.close().await.unwrap();
                }
                Err(error) => {
                    assert!(!opens && matches!(error, Error::Invalid(_) | Error::NotFound(_)), "{size}: {error}");
                }
            }
        });
    }
}

/// The first one, with the journal, shrinks and grows again. Its data, and the data behind it, keeps its place.
#[test]
fn any_shrinks_and_grows_again() {
    let world = World::new(12);
    let setup = Setup { pvs: vec![PV, PV], ..setup() };
    let (disks, group) = setup.make(&world).unwrap();
    world.run(async {
        contents(&group).await;
        let free = group.info().free_extents;
        let there = group.create_volume(volume("there", VolumeKind::Thick, free * 256)).await.unwrap();
        fill(&group, "there", 600, 5).await;
        let before = group.info().pvs;
        // A volume lies there; the journal does; no extent would be left; or no physical volume.
        for (bytes, busy) in [(15 * MIB, true), (10 * MIB, true), (2 * MIB, true), (2 * MIB - 1, false), (0, false)] {
            let refused = group.resize_pv(PvIndex(0), bytes).await.unwrap_err();
            assert_eq!(matches!(refused, Error::Busy(_)), busy, "{bytes}: {refused}");
            assert_eq!(matches!(refused, Error::Invalid(_)), !busy, "{bytes}: {refused}");
        }
        let refused = group.resize_pv(PvIndex(2), 15 * MIB).await.unwrap_err();
        assert!(matches!(refused, Error::NotFound(_)), "{refused}");
        let extents =
            |pvs: Vec<rowen_engine::group::PvInfo>| pvs.iter().map(|pv| (pv.extents, pv.size)).collect::<Vec<_>>();
        assert_eq!(extents(group.info().pvs), extents(before));
        expect(&group, "there", 600, 5).await;
        group.remove(&[there]).await.unwrap();
        group.reclaim_idle().await.unwrap();
        group.checkpoint().await.unwrap();
        // Reserved blocks must have room elsewhere.
        let reserve = Some((group.info().free_extents - 3) * 256);
        let origin = group.find("data").unwrap();
        let spec = NewSnapshot {
            origin,
            name: "kept".into(),
            uuid: Uuid([7; 16]),
            reserve,
            read_only: true,
            chunk_blocks: 1,
            attributes: Attributes::default(),
        };
        let kept = group.snapshot(&[spec]).await.unwrap()[0];
        let refused = group.resize_pv(PvIndex(0), 12 * MIB).await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace { needed: 1024, free: 0..1024 }), "{refused}");
        assert_eq!(group.info().extents, 2 * EXTENTS);
        group.remove(&[kept]).await.unwrap();
        group.reclaim_idle().await.unwrap();
    });
    let shrink = async { group.resize_pv(PvIndex(0), 12 * MIB + 5000).await.unwrap() };
    cut_everywhere(&world, &disks, shrink, [2 * EXTENTS, 2 * EXTENTS - 4]);
    world.run(async {
        // The end of the address space is full, and the gap belongs to no physical volume.
        let all = group.info().free_extents;
        let all = group.create_volume(volume("all", VolumeKind::Thick, all * 256)).await.unwrap();
        fill(&group, "all", 600, 4).await;
        expect(&group, "all", 600, 4).await;
        expect(&group, "data", 300, 7).await;
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.remove(&[all]).await.unwrap();
        group.reclaim_idle().await.unwrap();
    });
    let grow = async { group.resize_pv(PvIndex(0), 16 * MIB).await.unwrap() };
    cut_everywhere(&world, &disks, grow, [2 * EXTENTS - 4, 2 * EXTENTS]);
    world.run(async {
        let all = group.info().free_extents;
        group.create_volume(volume("all", VolumeKind::Thick, all * 256)).await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
    });
}

/// One that is not allocatable loses its end, and gets it back. Reservations never count on it.
#[test]
fn one_that_is_not_allocatable_shrinks_and_grows() {
    let world = World::new(16);
    let setup = Setup { pvs: vec![PV, PV], ..setup() };
    let (disks, group) = setup.make(&world).unwrap();
    world.run(async {
        contents(&group).await;
        group.set_allocatable(PvIndex(1), false).await.unwrap();
        let free = group.info().allocatable_extents;
        group.create_volume(volume("promised", VolumeKind::Thick, free * 256)).await.unwrap();
    });
    let shrink = async { group.resize_pv(PvIndex(1), 8 * MIB).await.unwrap() };
    cut_everywhere(&world, &disks, shrink, [2 * EXTENTS, 2 * EXTENTS - 8]);
    let grow = async { group.resize_pv(PvIndex(1), 16 * MIB).await.unwrap() };
    cut_everywhere(&world, &disks, grow, [2 * EXTENTS - 8, 2 * EXTENTS]);
    world.run(async {
        let refused = group.create_volume(volume("more", VolumeKind::Thick, 256)).await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        group.set_allocatable(PvIndex(1), true).await.unwrap();
        group.create_volume(volume("more", VolumeKind::Thick, 12 * 256)).await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
    });
}

/// Metadata that lies in what is cut off moves away.
#[test]
fn the_last_one_shrinks_with_metadata_at_its_end() {
    let world = World::new(13);
    let setup = Setup { pvs: vec![PV, PV], ..setup() };
    let (disks, group) = setup.make(&world).unwrap();
    world.run(async {
        contents(&group).await;
        // Metadata begins where the second one does. In front of it are the blocks that others left.
        let free = group.info().pvs[0].free_extents + group.info().pvs[1].free_extents;
        let mut all = Vec::new();
        for number in 0..free {
            all.push(group.create_volume(volume(&format!("{number}"), VolumeKind::Thick, 256)).await.unwrap());
        }
        let last = all.split_off(all.len() - 2);
        group.remove(&last).await.unwrap();
        group.reclaim_idle().await.unwrap();
        // The only room for more metadata is at the end.
        let id = group.create_volume(volume("small", VolumeKind::Thin, 1 << 20)).await.unwrap();
        let small = group.volume(id).unwrap();
        let before = group.info().metadata_blocks;
        for number in 0.. {
            if group.info().metadata_blocks > before {
                break;
            }
            let buf = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
            if small.write(number * 64 * BLOCK_SIZE, BLOCK_SIZE as u32, buf).await.is_err() {
                break;
            }
        }
        all.push(id);
        group.remove(&all).await.unwrap();
        group.reclaim_idle().await.unwrap();
    });
    let moved = group.info().metadata_blocks;
    let shrink = async { group.resize_pv(PvIndex(1), 3 * MIB).await.unwrap() };
    cut_everywhere(&world, &disks, shrink, [2 * EXTENTS, EXTENTS + 2]);
    world.run(async {
        assert_eq!(group.info().metadata_blocks, moved);
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
    });
}

#[test]
fn the_last_one_leaves() {
    let world = World::new(6);
    let setup = Setup { pvs: vec![PV, PV], ..setup() };
    let (disks, group) = setup.make(&world).unwrap();
    world.run(async {
        contents(&group).await;
        let gone = group.create_volume(volume("gone", VolumeKind::Thick, 20 * 256)).await.unwrap();
        let refused = group.remove_last_pv().await.unwrap_err();
        assert!(matches!(refused, Error::Busy(_)), "{refused}");
        group.remove(&[gone]).await.unwrap();
    });
    let leave = async { group.remove_last_pv().await.unwrap() };
    cut_everywhere(&world, &disks, leave, [2 * EXTENTS, EXTENTS]);
    world.run(async {
        let label = Group::read_label(&*disks, PvIndex(1)).await.unwrap().unwrap();
        assert!(label.group.is_none() && label.pv_uuid == Uuid([2; 16]));
        let refused = group.remove_last_pv().await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        expect(&group, "data", 300, 7).await;
    });
}

/// A group of three with all data on the last. The first has the journal and metadata, the second metadata.
async fn data_on_the_last(group: &Arc<Group>) {
    let info = group.info();
    let mut before = Vec::new();
    // One extent at a time. Each is placed where the first is free.
    for number in 0..info.pvs[0].free_extents + info.pvs[1].free_extents {
        before.push(group.create_volume(volume(&format!("{number}"), VolumeKind::Thick, 256)).await.unwrap());
    }
    contents(group).await;
    group.remove(&before).await.unwrap();
    group.reclaim_idle().await.unwrap();
}

#[test]
fn any_leaves() {
    for (place, left) in [(0u16, [2u8, 3]), (1, [1, 3])] {
        let world = World::new(7 + u64::from(place));
        let setup = Setup { pvs: vec![PV, PV, PV], ..setup() };
        let (disks, group) = setup.make(&world).unwrap();
        world.run(async {
            data_on_the_last(&group).await;
            let refused = group.vacate_pv(PvIndex(2)).await.unwrap_err();
            assert!(matches!(refused, Error::Busy(_)), "{refused}");
            group.vacate_pv(PvIndex(place)).await.unwrap();
        });
        let leave = async { group.close_without(PvIndex(place)).await.unwrap() };
        cut_everywhere(&world, &disks, leave, [3 * EXTENTS, 2 * EXTENTS]);

        let label = world.run(async { Group::read_label(&*disks, PvIndex(place)).await.unwrap().unwrap() });
        assert!(label.group.is_none() && label.pv_uuid == Uuid([place as u8 + 1; 16]));
        let image = members(&disks.moment().killed(&mut Rng::new(1))).unwrap();
        let world = World::new(9);
        let disks = SimDisks::with_image(world.handle(), image);
        let as_disks: Arc<dyn Disks> = disks.clone();
        world.run(async {
            let group = Group::open(as_disks.clone(), world.handle(), config()).await.unwrap();
            let uuids: Vec<Uuid> = group.info().pvs.iter().map(|pv| pv.uuid).collect();
            assert_eq!(uuids, left.map(|byte| Uuid([byte; 16])));
            // The group continues with its gap: another joins, space is used up and freed, and it opens again.
            disks.add_pv(PV);
            group.add_pv(NewPv { uuid: Uuid([0x22; 16]) }).await.unwrap();
            let all = group.info().free_extents * 256;
            let big = group.create_volume(volume("big", VolumeKind::Thick, all)).await.unwrap();
            fill(&group, "big", 40, 9).await;
            expect(&group, "data", 300, 7).await;
            assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
            group.close().await.unwrap();
            let group = Group::open(as_disks.clone(), world.handle(), config()).await.unwrap();
            expect(&group, "big", 40, 9).await;
            expect(&group, "before", 300, 3).await;
            group.remove(&[big]).await.unwrap();
            group.reclaim_idle().await.unwrap();
            group.checkpoint().await.unwrap();
            assert_eq!(group.info().free_extents * 256, all);
            assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
            group.close().await.unwrap();
        });
    }
}

#[test]
fn what_is_reserved_keeps_one_from_leaving() {
    let world = World::new(11);
    let setup = Setup { pvs: vec![PV, PV], ..setup() };
    let (_, group) = setup.make(&world).unwrap();
    world.run(async {
        let blocks = (group.info().free_extents - 2) * 256;
        let big = group.create_volume(volume("big", VolumeKind::Thick, blocks)).await.unwrap();
        let refused = group.close_without(PvIndex(0)).await.unwrap_err();
        assert!(matches!(refused, Error::Busy(_)), "{refused}");
        // This was noticed before anything was closed.
        group.remove(&[big]).await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
    });
}

/// Each block of the physical volume's first extent that is not metadata. Written blocks can be read again.
fn unreadable(pv: PvIndex, from: u64) -> impl Iterator<Item = (PvIndex, u64, u64)> {
    (0..256).map(move |block| (pv, from + block * BLOCK_SIZE, BLOCK_SIZE))
}

#[test]
fn one_leaves_that_cannot_be_read() {
    let world = World::new(6);
    let (disks, group) = Setup { pvs: vec![PV, PV], ..setup() }.make(&world).unwrap();
    world.run(async {
        contents(&group).await;
        disks.set_faults(Faults { unreadable: unreadable(PvIndex(1), MIB).collect(), ..Faults::default() });
        group.remove_last_pv().await.unwrap();
        expect(&group, "data", 300, 7).await;
    });
}

#[test]
fn nothing_is_lost_when_metadata_cannot_move() {
    let mut failed = 0;
    for number in 0..40 {
        let world = World::new(6);
        let (disks, group) = Setup { pvs: vec![PV, PV], ..setup() }.make(&world).unwrap();
        world.run(async {
            contents(&group).await;
            group.checkpoint().await.unwrap();
            // Neither copy of a moving block can be read, or one of its writes fails.
            let both = unreadable(PvIndex(0), 2 * MIB).chain(unreadable(PvIndex(1), MIB)).collect();
            let write = Some((DiskOpKind::Write, disks.requests(DiskOpKind::Write) + number));
            disks.set_faults(match number {
                0 => Faults { unreadable: both, ..Faults::default() },
                _ => Faults { fail: write, ..Faults::default() },
            });
            let outcome = group.remove_last_pv().await;
            disks.set_faults(Faults::default());
            if let Err(Error::Disk(_)) = outcome
                && let Ok(report) = group.check_open().await
            {
                assert_eq!(report.findings, Vec::<String>::new(), "{number}");
                failed += 1;
                // The next attempt succeeds.
                group.remove_last_pv().await.unwrap();
                expect(&group, "data", 300, 7).await;
            }
        });
    }
    assert!(failed > 1, "some error was to come while metadata moves: {failed}");
}
