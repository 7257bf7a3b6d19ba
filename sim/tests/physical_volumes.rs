//! Physical volumes join, grow and leave, and the power goes at any moment of it: the group opens with the physical volumes
//! that it had before or after, every block is what it was, and nothing of the space is lost.
#![allow(clippy::unwrap_used)]

use rowen_engine::disk::{DiskOpKind, Disks, PageBuf, PvGeometry, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, Config, FullPolicy, Group, NewPv, NewSnapshot, NewVolume, VolumeKind};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Faults, Image, POLICIES, Policy, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const PV: PvGeometry = PvGeometry { size: 16 * MIB, sector: 512 };
/// Extents of a physical volume of 16 MiB.
const EXTENTS: u64 = 15;

fn config() -> Config {
    Config { cache_bytes: 256 << 10, dirty_bytes: 64 << 10, ..Config::default() }
}

fn volume(name: &str, kind: VolumeKind, blocks: u64) -> NewVolume {
    NewVolume {
        name: name.into(),
        uuid: Uuid([9; 16]),
        kind,
        blocks,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes::default(),
    }
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

/// The disks that the newest label names, as a host would find them.
fn members(image: &Image) -> Image {
    let world = World::new(1);
    let disks = SimDisks::with_image(world.handle(), image.clone());
    let places = world.run(async {
        let mut newest = (0, Vec::new());
        let mut labels = Vec::new();
        for pv in 0..disks.count() {
            // One that is being labelled anew may be torn: it has left.
            let label = Group::read_label(&*disks, PvIndex(pv as u16)).await.unwrap_or_default();
            labels.push(label.as_ref().map(|label| label.pv_uuid));
            if let Some(group) = label.and_then(|label| label.group) {
                newest = newest.max((group.sequence, group.members));
            }
        }
        let place = |uuid: &Uuid| labels.iter().position(|own| own.as_ref() == Some(uuid)).unwrap();
        newest.1.iter().map(place).collect::<Vec<_>>()
    });
    image.reordered(&places)
}

/// What is left after a cut, opened, checked and looked over; the extents that it has.
fn survivor(image: Image, seed: u64) -> u64 {
    let world = World::new(seed);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), members(&image));
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
    Setup { pvs: vec![PV], extent_blocks: 256, config: config() }
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
            // Cuts that are alike: a sample of them finds what all of them would.
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

#[test]
fn the_last_one_grows() {
    let world = World::new(4);
    let (disks, group) = setup().make(&world).unwrap();
    world.run(async {
        contents(&group).await;
        assert!(!group.grow_last_pv().await.unwrap(), "its disk has not grown");
        group.close().await.unwrap();
    });
    let mut image = disks.moment().killed(&mut Rng::new(1));
    image.set_size(PvIndex(0), 24 * MIB);
    let world = World::new(5);
    let disks = SimDisks::with_image(world.handle(), image);
    let as_disks: Arc<dyn Disks> = disks.clone();
    let group = world.run(async { Group::open(as_disks, world.handle(), config()).await.unwrap() });
    let grow = async { assert!(group.grow_last_pv().await.unwrap()) };
    cut_everywhere(&world, &disks, grow, [EXTENTS, EXTENTS + 8]);
    world.run(async { group.create_volume(volume("more", VolumeKind::Thick, 10 * 256)).await.unwrap() });
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

/// A group of three whose data is on the last: the first has the journal and metadata, the second metadata.
async fn data_on_the_last(group: &Arc<Group>) {
    let info = group.info();
    let mut before = Vec::new();
    // An extent at a time: each is put where the first is free.
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
        let image = members(&disks.moment().killed(&mut Rng::new(1)));
        let world = World::new(9);
        let disks = SimDisks::with_image(world.handle(), image);
        let as_disks: Arc<dyn Disks> = disks.clone();
        world.run(async {
            let group = Group::open(as_disks.clone(), world.handle(), config()).await.unwrap();
            let uuids: Vec<Uuid> = group.info().pvs.iter().map(|pv| pv.uuid).collect();
            assert_eq!(uuids, left.map(|byte| Uuid([byte; 16])));
            // The group goes on with its gap: another joins, space is used up and given back, and it opens again.
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
fn what_is_promised_keeps_one_from_leaving() {
    let world = World::new(11);
    let setup = Setup { pvs: vec![PV, PV], ..setup() };
    let (_, group) = setup.make(&world).unwrap();
    world.run(async {
        let blocks = (group.info().free_extents - 2) * 256;
        let big = group.create_volume(volume("big", VolumeKind::Thick, blocks)).await.unwrap();
        let refused = group.close_without(PvIndex(0)).await.unwrap_err();
        assert!(matches!(refused, Error::Busy(_)), "{refused}");
        // It was seen before anything was closed.
        group.remove(&[big]).await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
    });
}

/// Each block of the physical volume's first extent, where metadata is, apart: what is written can be read again.
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
            // Of what is to move neither copy can be read, or one of the writes of it fails.
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
                // Another time it can.
                group.remove_last_pv().await.unwrap();
                expect(&group, "data", 300, 7).await;
            }
        });
    }
    assert!(failed > 1, "some error was to come while metadata moves: {failed}");
}
