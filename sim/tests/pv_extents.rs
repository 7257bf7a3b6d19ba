//! Volumes that are allocated from named physical volumes, or from named extents of them. All blocks come from there,
//! or the command fails. This stays so after a crash.

use rowen_engine::disk::{Disks, PageBuf, PvGeometry, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, Config, Group, NewSnapshot, NewVolume, PvExtents, VolumeKind};
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{Faults, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const EXTENT: u64 = 64;
/// Extents of each of the three physical volumes.
const EXTENTS: u64 = 28;

fn setup() -> Setup {
    let config = Config { cache_bytes: 256 << 10, dirty_bytes: 64 << 10, ..Config::default() };
    Setup {
        pvs: vec![PvGeometry { size: 8 * MIB, sector: 512 }; 3],
        segment: Default::default(),
        second_journal: None,
        extent_blocks: EXTENT,
        config,
        faults: Faults::default(),
    }
}

fn volume(name: &str, kind: VolumeKind, extents: u64) -> NewVolume {
    NewVolume { chunk_blocks: 4, ..plain_volume(name, 9, kind, extents * EXTENT) }
}

fn on(pv: u16, extents: Range<u64>) -> PvExtents {
    PvExtents { pv: PvIndex(pv), extents }
}

async fn free_extents(group: &Arc<Group>, on: &[PvExtents]) -> u64 {
    group.free_on(on).await.unwrap() / EXTENT
}

/// The physical volumes that hold a volume, and the number of its blocks on each.
async fn places(group: &Arc<Group>, id: VolumeId) -> BTreeMap<u16, u64> {
    group.pv_usage(id).await.unwrap().into_iter().map(|place| (place.pv, place.blocks)).collect()
}

async fn write(group: &Arc<Group>, id: VolumeId, block: u64) {
    let buf = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
    group.volume(id).unwrap().write(block * BLOCK_SIZE, BLOCK_SIZE as u32, buf).await.unwrap();
}

async fn sound(group: &Arc<Group>) {
    assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
}

#[test]
fn space_comes_from_the_named_physical_volumes_and_extents() {
    let world = World::new(1);
    let (_, group) = setup().make(&world).unwrap();
    world.run(async {
        let second =
            group.create_volume_on(volume("second", VolumeKind::Thick, 5), &[on(1, 0..EXTENTS)]).await.unwrap();
        assert_eq!(places(&group, second).await, BTreeMap::from([(1, 5 * EXTENT)]));
        // Every other extent of the third. The rest of it is unchanged.
        let odd: Vec<PvExtents> = (0..EXTENTS).filter(|n| n % 2 == 1).map(|n| on(2, n..n + 1)).collect();
        let even: Vec<PvExtents> = (0..EXTENTS).filter(|n| n % 2 == 0).map(|n| on(2, n..n + 1)).collect();
        assert_eq!((free_extents(&group, &odd).await, free_extents(&group, &even).await), (EXTENTS / 2, EXTENTS / 2));
        let odd_one = group.create_volume_on(volume("odd", VolumeKind::Thick, EXTENTS / 2), &odd).await.unwrap();
        assert_eq!((free_extents(&group, &odd).await, free_extents(&group, &even).await), (0, EXTENTS / 2));
        // It grows on the named physical volume. After this the rest of that one is not enough.
        group.resize_on(odd_one, (EXTENTS / 2 + 3) * EXTENT, &[on(1, 20..24)]).await.unwrap();
        assert_eq!(places(&group, odd_one).await, BTreeMap::from([(1, 3 * EXTENT), (2, EXTENTS / 2 * EXTENT)]));
        assert_eq!(free_extents(&group, &[on(1, 20..24)]).await, 1);
        sound(&group).await;
    });
}

#[test]
fn too_little_room_in_the_places_changes_nothing() {
    let world = World::new(2);
    let (_, group) = setup().make(&world).unwrap();
    world.run(async {
        let all = [on(2, 0..EXTENTS)];
        let small = group.create_volume_on(volume("small", VolumeKind::Thick, 4), &all).await.unwrap();
        let before = (group.info().free_extents, free_extents(&group, &all).await);
        assert_eq!(before.1, EXTENTS - 4);
        let refused = group.create_volume_on(volume("big", VolumeKind::Thick, EXTENTS - 3), &all).await.unwrap_err();
        let (needed, free) = ((EXTENTS - 3) * EXTENT, (EXTENTS - 4) * EXTENT);
        assert_eq!(refused, Error::NoSpace { needed, free });
        let refused = group.resize_on(small, EXTENTS * EXTENT + EXTENT, &all).await.unwrap_err();
        assert_eq!(refused, Error::NoSpace { needed, free });
        assert_eq!((group.info().free_extents, free_extents(&group, &all).await), before);
        assert!(group.find("big").is_none());
        // To the last block of it.
        group.resize_on(small, EXTENTS * EXTENT, &all).await.unwrap();
        assert_eq!(free_extents(&group, &all).await, 0);
        sound(&group).await;
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new(3);
    let (_, group) = setup().make(&world).unwrap();
    world.run(async {
        let bad = [on(3, 0..1), on(0, 0..EXTENTS + 1), on(0, EXTENTS..EXTENTS + 1), on(1, 3..3), on(u16::MAX, 0..1)];
        for bad in bad {
            let bad = [bad];
            let refused = group.create_volume_on(volume("v", VolumeKind::Thick, 1), &bad).await.unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{bad:?}: {refused}");
            assert!(matches!(group.free_on(&bad).await, Err(Error::Invalid(_))));
        }
        let thin = group.create_volume_on(volume("v", VolumeKind::Thin, 1), &[on(1, 0..9)]).await.unwrap_err();
        assert!(matches!(thin, Error::Invalid(_)), "{thin}");
        let thin = group.create_volume(volume("v", VolumeKind::Thin, 1)).await.unwrap();
        let refused = group.resize_on(thin, 4 * EXTENT, &[on(1, 0..9)]).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        // Ranges that overlap count once.
        assert_eq!(free_extents(&group, &[on(2, 4..9), on(2, 0..6), on(2, 9..10)]).await, 10);
    });
}

/// Step number `step` of the run of `seed`: a volume is made, grows or is removed, or a snapshot is taken and removed.
async fn step_at_random(group: &Arc<Group>, rng: &mut Rng, volumes: &mut Vec<VolumeId>, seed: u64, step: u32) {
    let pv = rng.below(3) as u16;
    let first = rng.below(EXTENTS);
    let mut places_named = vec![on(pv, first..rng.range(first + 1, EXTENTS))];
    if rng.one_in(2) {
        let pv = rng.below(3) as u16;
        let first = rng.below(EXTENTS);
        places_named.push(on(pv, first..rng.range(first + 1, EXTENTS)));
    }
    let free = free_extents(group, &places_named).await;
    let named: Vec<u16> = places_named.iter().map(|place| place.pv.0).collect();
    match rng.below(5) {
        0 | 1 => {
            let extents = rng.range(1, 10);
            let spec = volume(&format!("v{step}"), VolumeKind::Thick, extents);
            match group.create_volume_on(spec, &places_named).await {
                Ok(id) => {
                    let found = places(group, id).await;
                    assert!(found.keys().all(|pv| named.contains(pv)), "seed {seed}, step {step}: {found:?}");
                    volumes.push(id);
                    write(group, id, rng.below(extents * EXTENT)).await;
                }
                Err(Error::NoSpace { .. }) => {
                    assert!(extents > free, "seed {seed}, step {step}: {free} free");
                }
                Err(error) => panic!("seed {seed}, step {step}: {error}"),
            }
        }
        2 if !volumes.is_empty() => {
            let id = *rng.pick(volumes);
            let (more, old) = (rng.range(1, 4), places(group, id).await);
            let blocks = group.volume_info(id).unwrap().blocks + more * EXTENT;
            if group.resize_on(id, blocks, &places_named).await.is_ok() {
                for (pv, blocks) in places(group, id).await {
                    let before = old.get(&pv).copied().unwrap_or(0);
                    assert!(blocks == before || named.contains(&pv), "seed {seed}, step {step}");
                }
            }
        }
        3 if volumes.len() > 3 => {
            let id = volumes.swap_remove(rng.below(volumes.len() as u64) as usize);
            group.remove(&[id]).await.unwrap();
        }
        4 if !volumes.is_empty() => {
            let origin = *rng.pick(volumes);
            let spec = NewSnapshot {
                origin,
                name: format!("s{step}"),
                uuid: Uuid([8; 16]),
                reserve: None,
                read_only: false,
                chunk_blocks: 4,
                attributes: Attributes::default(),
            };
            let id = group.snapshot(&[spec]).await.unwrap()[0];
            for _ in 0..6 {
                write(group, origin, rng.below(EXTENT)).await;
            }
            group.remove(&[id]).await.unwrap();
        }
        _ => {}
    }
}

/// Volumes are made, grow and are removed at random places, with writes and snapshots meanwhile. Their blocks lie at
/// the requested places, and the free blocks are those that can be allocated.
#[test]
fn at_random() {
    for seed in 1..=40 {
        let world = World::new(seed);
        let (disks, group) = setup().make(&world).unwrap();
        let mut rng = Rng::new(seed);
        world.run(async {
            let mut volumes: Vec<VolumeId> = Vec::new();
            for step in 0..60 {
                step_at_random(&group, &mut rng, &mut volumes, seed, step).await;
            }
            sound(&group).await;
        });
        let image = disks.moment().power_cut(*rng.pick(&rowen_sim::disk::POLICIES), &mut rng);
        let world = World::new(seed);
        let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
        world.run(async {
            let group = Group::open(disks, world.handle(), setup().config).await.unwrap();
            sound(&group).await;
        });
    }
}
