//! Volumes that become mirrored or linear where they are, under load, and through cuts.

use crate::journal_copies::BLOCKS;
use crate::mirrors::{Made, fails, loads, made, open, setup, try_open};
use parking_lot::Mutex;
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, PvExtents, SegmentType, VolumeKind};
use rowen_engine::planted::{self, must_be_found};
use rowen_engine::runtime::Runtime;
use rowen_engine::units::VolumeId;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec, number};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{Faults, Moment, POLICIES, Policy};
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

#[test]
fn a_volume_without_room_for_copies_is_refused_at_once() {
    let setup = linear(2);
    let made = made(1, &setup);
    let group = &made.client.group;
    let extent_blocks = setup.extent_blocks;
    // Little is left on the second disk.
    let there = [PvExtents { pv: PvIndex(1), extents: 0..group.info().pvs[1].extents }];
    let rest = made.world.run(group.free_on(&there)).unwrap() / extent_blocks - 3;
    let rest = plain_volume("rest", 9, VolumeKind::Thick, rest * extent_blocks);
    made.world.run(group.create_volume_on(rest, &there)).unwrap();
    let (before, sequence) = (group.info().free_extents, group.info().sequence);
    let refused = convert_all(&made).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { needed, free } if needed > free && free > 0), "{refused}");
    assert_eq!(group.mirror_info().extents, 0);
    assert_eq!((group.info().free_extents, group.info().sequence), (before, sequence), "something was taken");
    assert_eq!(made.world.run(group.check_open()).unwrap().findings, Vec::<String>::new());
}

/// Snapshots of both volumes are made, written and removed.
fn snapshots(made: &Made) -> Op {
    let (client, vols, handle) = (made.client.clone(), made.vols.clone(), made.world.handle());
    Box::pin(async move {
        for n in 0..6 {
            handle.sleep(Duration::from_micros(600)).await;
            let made = client.snapshot(&vols[n % 2..n % 2 + 1], SnapshotKind::default()).await?;
            client.write(made[0], 0, 9, &[]).await?;
            if n % 3 == 0 {
                client.remove(&made[..1]).await?;
            }
        }
        Ok(())
    })
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
    ops.push(snapshots(&made));
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
    outlives_a_disk(&made, &setup, seed);
}

/// A disk fails, and the other one has everything.
fn outlives_a_disk(made: &Made, setup: &Setup, seed: u64) {
    made.caught_up();
    made.judge(Since::Death);
    let gone = PvIndex((seed % 2) as u16);
    fails(made, gone, seed);
    let mut image = made.killed(seed);
    image.set_size(gone, 0);
    let _alone = open(image, setup, made, Some(7), Since::Death);
}

#[test]
fn a_converted_volume_outlives_either_disk() {
    (0..scaled(16)).for_each(either_disk_is_enough);
}

/// Power is cut at one of these moments, and the group is opened again.
fn opened_after_cut(before: &Made, setup: &Setup, moments: &[Moment], policy: Policy, rng: &mut Rng) -> Made {
    let image = moments[rng.below(moments.len() as u64) as usize].power_cut(policy, rng);
    let oracle = Arc::new(Mutex::new(before.client.oracle.lock().clone()));
    let opened = try_open(image, setup, &oracle, None).unwrap();
    let check = opened.world.run(opened.client.group.check_open()).unwrap();
    assert_eq!(check.findings, Vec::<String>::new());
    opened
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
        let opened = opened_after_cut(&before, &setup, &moments, POLICIES[n % POLICIES.len()], &mut rng);
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
        let alone =
            try_open(image, &setup, &opened.client.oracle, Some(5)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
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

/// From which physical volumes the legs go.
fn leaving(seed: u64) -> Vec<PvIndex> {
    (0..2).map(PvIndex).filter(|pv| seed % 3 == u64::from(pv.0)).collect()
}

/// All volumes become linear under these operations. Returns what became of the operations.
fn linear_under(made: &Made, seed: u64, mut ops: Vec<Op>) -> Vec<Result<(), Error>> {
    let handle = made.world.handle();
    for (n, id) in (0..).zip(origins(made)) {
        let (group, handle) = (made.client.group.clone(), handle.clone());
        ops.push(Box::pin(async move {
            handle.sleep(Duration::from_micros(400 * n + Rng::new(seed).below(1500))).await;
            loop {
                match group.convert_to_linear(id, &leaving(seed)).await {
                    Err(Error::Busy(_)) => handle.sleep(Duration::from_micros(300)).await,
                    outcome => return outcome.map(drop),
                }
            }
        }));
    }
    if seed / 2 % 2 == 0 {
        // Else most writes go to mirrored extents in place.
        ops.push(snapshots(made));
    }
    made.world.run(made.client.together(ops))
}

fn linear_under_load(seed: u64, setup: &Setup) -> Made {
    let made = made(seed, setup);
    made.disks.keep_moments();
    for done in linear_under(&made, seed, loads(&made, seed, 120)) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(are_all_linear(&made), "seed {seed}");
    made
}

fn are_all_linear(made: &Made) -> bool {
    made.client.group.volumes().iter().all(|info| info.segment == SegmentType::Linear)
}

/// Waits until nothing is mirrored. Extents in which something was being freed may need the command again.
fn no_mirrored_extents(made: &Made) {
    made.world.run(made.client.checkpoint()).unwrap();
    for id in origins(made) {
        made.world.run(made.client.group.convert_to_linear(id, &[])).unwrap();
    }
    let (group, handle) = (made.client.group.clone(), made.world.handle());
    made.world.run(async move {
        for _ in 0..10_000 {
            if group.mirror_info().extents == 0 {
                return;
            }
            handle.sleep(Duration::from_millis(1)).await;
        }
        panic!("there are mirrored extents: {:?}", group.mirror_info());
    });
}

/// Afterwards all is there, with one copy, and the volumes can be mirrored again.
fn linear_and_back(seed: u64) {
    let setup = setup(2);
    let made = linear_under_load(seed, &setup);
    made.disks.take_moments();
    made.judge(Since::Death);
    no_mirrored_extents(&made);
    made.judge(Since::Death);
    let again = open(made.killed(seed), &setup, &made, None, Since::Death);
    convert_all(&again).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    outlives_a_disk(&again, &setup, seed);
}

#[test]
fn a_mirrored_volume_becomes_linear_and_mirrored_again() {
    (0..scaled(16)).for_each(linear_and_back);
}

/// Power is cut meanwhile. Nothing is lost, and the conversion can be repeated.
fn cut_while_linear(seed: u64) {
    let extent_blocks = if seed.is_multiple_of(2) { 64 } else { 256 };
    let setup = Setup { extent_blocks, ..setup(2) };
    let before = linear_under_load(seed, &setup);
    let moments = before.disks.take_moments();
    let mut rng = Rng::new(seed);
    for n in 0..6 {
        let opened = opened_after_cut(&before, &setup, &moments, POLICIES[n % POLICIES.len()], &mut rng);
        opened.caught_up();
        let seen = opened.contents();
        for id in origins(&opened) {
            // Without mirrored extents it has no copy there.
            let from = if opened.client.group.mirror_info().extents > 0 { leaving(seed + 1) } else { Vec::new() };
            let done = opened.world.run(opened.client.group.convert_to_linear(id, &from));
            done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        assert!(are_all_linear(&opened), "seed {seed}");
        no_mirrored_extents(&opened);
        assert!(seen == opened.contents(), "seed {seed}: contents changed");
        let check = opened.world.run(opened.client.group.check_open()).unwrap();
        assert_eq!(check.findings, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_conversion_to_linear_that_was_cut_is_repeated() {
    (0..scaled(8)).for_each(cut_while_linear);
}

/// The server dies, and the group is opened without a disk.
fn open_alone(made: &Made, setup: &Setup, gone: PvIndex, seed: u64) -> Result<Made, Error> {
    let mut image = made.killed(seed);
    image.set_size(gone, 0);
    try_open(image, setup, &made.client.oracle, Some(7))
}

/// A disk fails meanwhile. What can be read without it is right, and mirrored volumes have everything.
fn lost_while_linear(seed: u64) {
    // With room for metadata on both.
    let setup = Setup { pvs: Setup::small(2, 80).pvs, ..setup(2) };
    let made = made(seed, &setup);
    let gone = PvIndex((seed % 2) as u16);
    if seed / 4 % 2 == 0 {
        // Then the other one shares no extents with a mirror, and is written in place.
        made.world.run(made.client.group.convert_to_linear(origins(&made)[0], &leaving(seed))).unwrap();
    }
    let (handle, disks, group) = (made.world.handle(), made.disks.clone(), made.client.group.clone());
    let mut ops = loads(&made, seed, 400);
    ops.push(Box::pin(async move {
        let mut rng = Rng::new(seed);
        handle.sleep(Duration::from_micros(rng.below(9000))).await;
        if seed % 4 > 0 {
            // Soon after extents have lost a leg.
            let mut before = 0;
            for _ in 0..2000 {
                let extents = group.mirror_info().extents;
                if extents < before || group.failed().is_err() {
                    break;
                }
                before = extents;
                handle.sleep(Duration::from_micros(10)).await;
            }
            handle.sleep(Duration::from_micros(rng.below(600))).await;
        }
        disks.set_faults(Faults { away: Some(gone), ..Faults::default() });
        Ok(())
    }));
    // Requests may have failed, too: those to the only copy of a block.
    drop(linear_under(&made, seed, ops));
    let oracle = made.client.oracle.clone();
    let alone = match open_alone(&made, &setup, gone, seed) {
        // Linear volumes do not keep metadata on both.
        Err(Error::MissingPv(_)) if are_all_linear(&made) => return,
        opened => opened.unwrap_or_else(|why| panic!("seed {seed}: {why}")),
    };
    for info in alone.client.group.volumes() {
        let vol = number(info.uuid);
        for block in 0..info.blocks {
            let found = match alone.world.run(alone.client.look(vol, block * BLOCK, BLOCK)) {
                Err(Error::Disk(_)) if info.segment == SegmentType::Linear => continue,
                found => found.unwrap_or_else(|why| panic!("seed {seed}: {vol}: {why}")),
            };
            let judged = oracle.lock().judge(vol, block * BLOCK, &found, Since::Death);
            judged.unwrap_or_else(|why| panic!("seed {seed}: {vol}: {why}"));
        }
    }
}

#[test]
fn a_disk_fails_while_volumes_become_linear() {
    (0..scaled(60)).for_each(lost_while_linear);
}

/// MZ4
#[test]
fn legs_that_leave_too_early_are_found() {
    // From the seed that found it before.
    must_be_found("leg_leaves_at_once", || (242..340).chain(0..242).for_each(lost_while_linear));
    must_be_found("linear_stored_late", || (0..24).for_each(cut_while_linear));
    must_be_found("shared_extents_lose_legs", || (0..24).for_each(shared_extents_stay));
}

/// MZ5: a volume with a snapshot becomes linear under writes, in a group in which no linear block is free. What the snapshot needs
/// is in mirrored extents. It stays valid, and no write fails.
fn linear_in_a_full_group(seed: u64) {
    let made = made(seed, &setup(2));
    let handle = made.world.handle();
    // Mirrored extents are made ahead.
    made.world.run(async move { handle.sleep(Duration::from_secs(1)).await });
    made.client.oracle.lock().segment = SegmentType::Linear;
    let info = made.client.group.info();
    let blocks = info.available_blocks / info.extent_blocks * info.extent_blocks;
    let spec = VolumeSpec { kind: VolumeKind::Thick, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
    made.world.run(made.client.create(spec)).unwrap();
    let mut ops = loads(&made, seed, 60);
    let (group, handle, id) = (made.client.group.clone(), made.world.handle(), origins(&made)[0]);
    ops.push(Box::pin(async move {
        handle.sleep(Duration::from_micros(Rng::new(seed).below(500))).await;
        match group.convert_to_linear(id, &leaving(seed)).await {
            // There is no room for that, and nothing is lost.
            Err(Error::NoSpace { .. }) => Ok(()),
            outcome => outcome.map(drop),
        }
    }));
    for done in made.world.run(made.client.together(ops)) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    made.judge(Since::Death);
}

#[test]
fn a_snapshot_survives_a_conversion_to_linear_in_a_full_group() {
    (0..scaled(24)).for_each(linear_in_a_full_group);
    must_be_found("linear_at_once", || (0..24).for_each(linear_in_a_full_group));
}

/// Two mirrored volumes share extents. One becomes linear: the other one keeps two copies of everything.
fn shared_extents_stay(seed: u64) {
    let setup = setup(2);
    let made = made(seed, &setup);
    for done in made.world.run(made.client.together(loads(&made, seed, 60))) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let ids = origins(&made);
    let done = made.world.run(made.client.group.convert_to_linear(ids[(seed % 2) as usize], &leaving(seed))).unwrap();
    assert!(done.shared > 0 || planted::is("shared_extents_lose_legs"), "seed {seed}: {done:?}");
    made.judge(Since::Death);
    let gone = PvIndex((seed / 2 % 2) as u16);
    let alone = open_alone(&made, &setup, gone, seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    for info in alone.client.group.volumes().iter().filter(|info| info.segment == SegmentType::Raid1) {
        let vol = number(info.uuid);
        let found = alone
            .world
            .run(alone.client.look(vol, 0, info.blocks * BLOCK))
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let judged = alone.client.oracle.lock().judge(vol, 0, &found, Since::Death);
        judged.unwrap_or_else(|why| panic!("seed {seed}: {vol}: {why}"));
    }
}

#[test]
fn extents_with_blocks_of_another_mirror_keep_both_legs() {
    (0..scaled(8)).for_each(shared_extents_stay);
}

/// S9
#[test]
fn blocks_that_are_allocated_while_they_are_converted_are_found() {
    must_be_found("converted_not_withheld", || (0..24).for_each(cut_and_repeated));
}
