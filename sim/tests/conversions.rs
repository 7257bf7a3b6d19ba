//! Volumes that become mirrored where they are, under load, and through cuts.

use crate::journal_copies::BLOCKS;
use crate::mirrors::{Made, fails, loads, made, open, setup, try_open};
use parking_lot::Mutex;
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, SegmentType, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_engine::units::VolumeId;
use rowen_sim::client::{Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::POLICIES;
use rowen_sim::effort::scaled;
use rowen_sim::exec::World;
use rowen_sim::oracle::{Since, Vol};
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

fn linear(pvs: usize) -> Setup {
    Setup { segment: SegmentType::Linear, ..setup(pvs) }
}

/// The volumes that are no snapshots.
fn origins(made: &Made) -> Vec<VolumeId> {
    made.client.group.volumes().iter().filter(|info| info.origin.is_none()).map(|info| info.id).collect()
}

fn are_all_mirrored(made: &Made) -> bool {
    made.client.group.volumes().iter().all(|info| info.segment == SegmentType::Raid1)
}

fn convert_all(made: &Made) -> Result<(), Error> {
    let group = &made.client.group;
    origins(made)
        .into_iter()
        .filter(|id| group.volume_info(*id).unwrap().segment == SegmentType::Linear)
        .try_for_each(|id| made.world.run(group.convert_to_mirror(id, &[])))
}

/// Both volumes are converted while they and a snapshot are written, and snapshots are made and removed.
fn converted_under_load(seed: u64, setup: &Setup) -> Made {
    let made = made(seed, setup);
    made.disks.keep_moments();
    let mut ops = loads(&made, seed, 120);
    let handle = made.world.handle();
    for (n, id) in (0..).zip(origins(&made)) {
        let (group, handle) = (made.client.group.clone(), handle.clone());
        ops.push(Box::pin(async move {
            handle.sleep(Duration::from_micros(400 * n + Rng::new(seed).below(1500))).await;
            loop {
                match group.convert_to_mirror(id, &[]).await {
                    Err(Error::Busy(_)) => handle.sleep(Duration::from_micros(300)).await,
                    outcome => return outcome,
                }
            }
        }));
    }
    let (client, vols) = (made.client.clone(), made.vols.clone());
    let snapshots: Op = Box::pin(async move {
        for n in 0..6 {
            handle.sleep(Duration::from_micros(600)).await;
            let made = client.snapshot(&vols[n % 2..n % 2 + 1], SnapshotKind::default()).await?;
            client.write(made[0], 0, 9, &[]).await?;
            if n % 3 == 0 {
                client.remove(&made[..1]).await?;
            }
        }
        Ok(())
    });
    ops.push(snapshots);
    for done in made.world.run(made.client.together(ops)) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(are_all_mirrored(&made), "seed {seed}");
    made
}

/// After that either disk is enough for everything.
fn either_disk_is_enough(seed: u64) {
    let setup = linear(2);
    let made = converted_under_load(seed, &setup);
    made.disks.take_moments();
    made.judge(Since::Death);
    made.caught_up();
    made.judge(Since::Death);
    let gone = PvIndex((seed % 2) as u16);
    fails(&made, gone, seed);
    let mut image = made.killed(seed);
    image.set_size(gone, 0);
    let _alone = open(image, &setup, &made, Some(7), Since::Death);
}

#[test]
fn a_converted_volume_outlives_either_disk() {
    (0..scaled(16)).for_each(either_disk_is_enough);
}

/// Power is cut meanwhile. Nothing is lost, and the conversion can be repeated; then either disk is enough.
fn cut_and_repeated(seed: u64) {
    // In large extents there is more room beside the volumes.
    let extent_blocks = if seed.is_multiple_of(2) { 64 } else { 256 };
    let setup = Setup { extent_blocks, ..linear(2) };
    let before = converted_under_load(seed, &setup);
    let moments = before.disks.take_moments();
    let mut rng = Rng::new(seed);
    for n in 0..6 {
        let moment = &moments[rng.below(moments.len() as u64) as usize];
        let image = moment.power_cut(POLICIES[n % POLICIES.len()], &mut rng);
        let oracle = Arc::new(Mutex::new(before.client.oracle.lock().clone()));
        let opened = try_open(image, &setup, &oracle, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let check = opened.world.run(opened.client.group.check_open()).unwrap();
        assert_eq!(check.findings, Vec::<String>::new(), "seed {seed}");
        let seen = opened.contents();
        convert_all(&opened).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(are_all_mirrored(&opened), "seed {seed}");
        opened.caught_up();
        assert!(seen == opened.contents(), "seed {seed}: contents changed");
        let check = opened.world.run(opened.client.group.check_open()).unwrap();
        assert_eq!(check.findings, Vec::<String>::new(), "seed {seed}");
        opened.world.run(opened.client.group.close()).unwrap();
        let gone = PvIndex((n % 2) as u16);
        let mut image = opened.killed(seed);
        image.set_size(gone, 0);
        let alone = try_open(image, &setup, &oracle, Some(5)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(seen == alone.contents(), "seed {seed}: contents are lost with disk {}", gone.0);
    }
}

#[test]
fn a_conversion_that_was_cut_is_repeated() {
    (0..scaled(8)).for_each(cut_and_repeated);
}

/// A volume without any block is converted under its first writes.
fn empty_under_writes(seed: u64) {
    let setup = linear(2);
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
    let vols: Vec<Vol> = (0..2).map(|_| world.run(client.create(spec)).unwrap()).collect();
    let mut made = Made { world, disks, client, vols };
    let (group, handle, ids) = (made.client.group.clone(), made.world.handle(), origins(&made));
    // From here on there are mirrored extents.
    made.world.run(group.convert_to_mirror(ids[0], &[])).unwrap();
    made.vols.remove(0);
    let mut ops = loads(&made, seed, 2);
    let id = ids[1];
    ops.push(Box::pin(async move {
        handle.sleep(Duration::from_micros(Rng::new(seed).below(100))).await;
        group.convert_to_mirror(id, &[]).await
    }));
    for done in made.world.run(made.client.together(ops)) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(are_all_mirrored(&made), "seed {seed}");
    made.judge(Since::Death);
}

#[test]
fn an_empty_volume_is_converted_under_its_first_writes() {
    (0..scaled(24)).for_each(empty_under_writes);
}

/// MZ3
#[test]
fn a_volume_that_counts_as_mirrored_too_early_is_found() {
    must_be_found("snapshots_not_converted", || (0..24).for_each(either_disk_is_enough));
    must_be_found("plain_blocks_not_awaited", || (0..24).for_each(empty_under_writes));
    must_be_found("converting_stored", || (0..24).for_each(cut_and_repeated));
}

/// S9
#[test]
fn blocks_that_are_allocated_while_they_are_converted_are_found() {
    must_be_found("converted_not_withheld", || (0..24).for_each(cut_and_repeated));
}
