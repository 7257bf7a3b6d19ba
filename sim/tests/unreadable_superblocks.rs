//! Superblock slots that cannot be read: each hides only itself (M7).

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::group::{FullPolicy, Group, VolumeKind};
use rowen_sim::client::{BLOCK, Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_group, read_all};
use rowen_sim::disk::{Faults, Image, Moment, POLICIES, Place, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since};
use rowen_sim::rng::Rng;
use std::sync::Arc;

const COPIES: [u64; 2] = [4096, 512 << 10];
const SLOTS: u64 = 4;

fn slot(pv: u16, copy: usize, slot: u64) -> Place {
    (PvIndex(pv), COPIES[copy] + slot * 4096 + 512, 512)
}

/// A group at work, and each moment of a checkpoint.
fn worked(setup: &Setup) -> (Vec<Moment>, Oracle) {
    let world = World::new(31);
    let (disks, group) = setup.make(&world).unwrap();
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group, oracle.clone());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 400, chunk_blocks: 1, full: FullPolicy::Fail };
    let vol = world.run(async {
        let vol = client.create(spec).await.unwrap();
        for block in 0..100 {
            client.write(vol, block * 3 * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
        client.checkpoint().await.unwrap();
        for block in 0..30 {
            client.write(vol, block * 7 * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.flush(vol).await.unwrap();
        vol
    });
    disks.keep_moments();
    world.run(async {
        client.checkpoint().await.unwrap();
        client.flush(vol).await.unwrap();
    });
    let oracle = oracle.lock().clone();
    (disks.take_moments(), oracle)
}

/// Opens it while these places cannot be read until they are written. Then once more.
fn opens(setup: &Setup, oracle: &Oracle, image: &Image, unreadable: &[Place]) -> Result<(), String> {
    let mut image = image.clone();
    for seed in [32, 33] {
        let world = World::new(seed);
        let disks = SimDisks::with_image(world.handle(), image);
        if seed == 32 {
            disks.set_faults(Faults { unreadable: unreadable.to_vec(), ..Faults::default() });
        }
        let opened = world.run(Group::open(disks.clone(), world.handle(), setup.config.clone()));
        let group = opened.map_err(|e| format!("it does not open: {e}"))?;
        let client = Client::new(world.handle(), group.clone(), Arc::default());
        let found = world.run(read_all(&client))?;
        judge_group(oracle, &group.volumes(), &found, Since::PowerLoss)?;
        world.run(group.close()).map_err(|e| e.to_string())?;
        let check = world.run(Group::check(disks.clone() as Arc<dyn Disks>)).map_err(|e| e.to_string())?;
        if let Some(first) = check.findings.first() {
            return Err(first.clone());
        }
        image = disks.current();
    }
    Ok(())
}

#[test]
fn one_slot_of_each_copy() {
    for pvs in [1, 2] {
        let setup = Setup::small(pvs, 24);
        let (moments, oracle) = worked(&setup);
        let image = moments.last().unwrap().killed(&mut Rng::new(34));
        for (a, b) in (0..SLOTS).flat_map(|a| (0..SLOTS).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            let bad: Vec<Place> = (0..pvs as u16).flat_map(|pv| [slot(pv, 0, a), slot(pv, 1, b)]).collect();
            assert_eq!(opens(&setup, &oracle, &image, &bad), Ok(()), "{pvs} physical volumes, slots {a} and {b}");
        }
    }
}

/// The power fails while superblocks are written, and no sector that was being written can be read.
#[test]
fn the_slot_that_was_being_written() {
    for pvs in [1, 2] {
        let setup = Setup::small(pvs, 24);
        let (moments, oracle) = worked(&setup);
        let mut torn = 0;
        for moment in moments {
            let bad = moment.places_in_flight();
            let is_superblock = |place: &Place| COPIES.iter().any(|at| (*at..*at + SLOTS * 4096).contains(&place.1));
            if !bad.iter().any(is_superblock) {
                continue;
            }
            torn += 1;
            for policy in POLICIES {
                let image = moment.power_cut(policy, &mut Rng::new(moment.event));
                let context = format!("{pvs} physical volumes, event {}, {policy:?}", moment.event);
                assert_eq!(opens(&setup, &oracle, &image, &bad), Ok(()), "{context}");
                // Sectors that cannot be read any more, and cannot be written, either.
                let some: Vec<Place> = bad.iter().copied().filter(|place| place.1 < COPIES[1]).collect();
                assert_eq!(opens(&setup, &oracle, &image, &some), Ok(()), "{context}, one copy");
            }
        }
        assert!(torn > 1, "{torn} moments");
    }
}

/// A path that comes back while superblocks are read does not make an older one the newest. Each read of a slot fails
/// once.
#[test]
fn a_path_that_comes_back() {
    let setup = Setup::small(1, 24);
    let (moments, oracle) = worked(&setup);
    let image = moments.last().unwrap().killed(&mut Rng::new(35));
    let number = |disks: &Arc<SimDisks>| {
        let world = World::new(36);
        let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), disks.current());
        world.run(Group::read_label(&*disks, PvIndex(0))).unwrap().unwrap().group.unwrap().sequence
    };
    for fails in 1..10 {
        let world = World::new(37);
        let disks = SimDisks::with_image(world.handle(), image.clone());
        let newest = number(&disks);
        let switch = disks.clone();
        disks.set_faults(Faults { fail_from: Some((DiskOpKind::Read, 0)), ..Faults::default() });
        let label = world.try_run_observed(Group::read_label(&*disks, PvIndex(0)), &mut || {
            if switch.requests(DiskOpKind::Read) >= fails {
                switch.set_faults(Faults::default());
            }
        });
        match label.unwrap() {
            Ok(label) => assert_eq!(label.unwrap().group.unwrap().sequence, newest, "{fails} reads fail"),
            Err(error) => assert!(error.to_string().contains("read failed"), "{error}"),
        }
    }
    assert_eq!(opens(&setup, &oracle, &image, &[]), Ok(()));
}
