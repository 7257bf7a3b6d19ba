//! Legs of mirrors and columns of stripes move to other disks while they are written (PM10, ML12): the power fails at any
//! moment, and then a disk is lost, too.

use crate::mirrors::{self, Made, loads, made, try_open};
use crate::stripes::used_on;
use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, NewMove, PvExtents, SegmentType, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_sim::client::{BLOCK, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Faults, Image, Moment, POLICIES};
use rowen_sim::effort::scaled;
use rowen_sim::oracle::{Oracle, Since};
use rowen_sim::rng::Rng;
use std::sync::Arc;

fn setup(segment: SegmentType) -> Setup {
    // A stripe has three columns.
    Setup { segment, ..mirrors::setup(if segment == SegmentType::Striped { 4 } else { 3 }) }
}

fn all_of(from: PvIndex) -> NewMove {
    NewMove { from, extents: Vec::new(), to: Vec::new(), volume: None }
}

/// Whether this physical volume has a leg, or anything of a volume.
fn on(made: &Made, pv: PvIndex) -> bool {
    let runs = made.client.group.mirror_info().runs;
    runs.iter().any(|run| run.run.legs.iter().any(|leg| leg.pv == pv)) || used_on(made, pv.0) > 0
}

/// All that is on a disk moves away under load. It can leave then.
fn one_is_emptied(segment: SegmentType, seed: u64) {
    let made = made(seed, &setup(segment));
    for from in [PvIndex((seed % 3) as u16), PvIndex((seed / 3 % 3) as u16)] {
        let group = made.client.group.clone();
        let had = on(&made, from);
        // Nothing new goes there afterwards.
        made.world.run(group.set_allocatable(from, false)).unwrap();
        let (client, begun) = (made.client.clone(), group.clone());
        let done = made.world.run(async {
            let begun = begun.start_move(all_of(from)).await;
            client.together(loads(&made, seed, 60)).await.into_iter().for_each(|done| done.unwrap());
            group.move_ended().await;
            begun
        });
        assert!(!had || done.clone().unwrap() > 0, "seed {seed}: {done:?}");
        assert_eq!(group.move_progress().failed, None, "seed {seed}");
        assert!(!on(&made, from), "seed {seed}: {from:?}");
        made.judge(Since::Death);
        made.are_the_same(seed);
        made.world.run(group.vacate_pv(from)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        made.world.run(group.set_allocatable(from, true)).unwrap();
    }
}

impl Made {
    /// Both copies of all mirrored blocks in use are the same.
    fn are_the_same(&self, seed: u64) {
        for info in self.client.group.volumes().into_iter().filter(|info| info.segment == SegmentType::Raid1) {
            self.caught_up();
            self.client.group.start_scrub(info.id, false).unwrap();
            self.world.run(self.end_of_scrub()).unwrap();
            let found = self.client.group.scrub_of(info.id).unwrap();
            assert_eq!((found.different, found.unreadable, found.skipped), (0, 0, 0), "seed {seed}");
        }
    }
}

/// ML4: a disk is emptied under load, and leaves at once. Nothing is copied afterwards.
fn leaves_at_once(seed: u64) {
    let setup = setup(SegmentType::Raid1);
    let made = made(seed, &setup);
    let (from, group) = (PvIndex((seed % 3) as u16), made.client.group.clone());
    made.world.run(group.set_allocatable(from, false)).unwrap();
    let (client, moving) = (made.client.clone(), group.clone());
    made.world.run(async {
        moving.start_move(all_of(from)).await.unwrap();
        client.together(loads(&made, seed, 40)).await.into_iter().for_each(|done| done.unwrap());
        moving.move_ended().await;
    });
    made.world.run(group.close_without(from)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let others: Vec<usize> = (0..3).filter(|pv| *pv != usize::from(from.0)).collect();
    let left = Setup { pvs: others.iter().map(|pv| setup.pvs[*pv]).collect(), ..setup };
    let two = mirrors::open(made.killed(seed).reordered(&others), &left, &made, None, Since::Death);
    let runs = two.client.group.mirror_info().runs;
    let to_do: Vec<_> = runs.iter().map(|run| (run.open_regions, run.unsure_bytes)).collect();
    assert!(to_do.iter().all(|run| *run == (0, 0)), "seed {seed}: {to_do:?}");
    two.judge(Since::Death);
}

#[test]
fn a_disk_that_is_emptied_leaves_nothing_to_copy() {
    (0..scaled(9)).for_each(leaves_at_once);
    must_be_found("closed_unsettled", || (0..3).for_each(leaves_at_once));
}

/// MS1: metadata does not go to the disk that has the other copy of it, not even while a disk is emptied.
fn metadata_stays_on_two_disks(seed: u64) {
    let setup = setup(SegmentType::Raid1);
    let made = made(seed, &setup);
    let (from, group) = (PvIndex((seed % 3) as u16), made.client.group.clone());
    made.world.run(group.set_allocatable(from, false)).unwrap();
    let begun = made.world.run(group.start_move(all_of(from)));
    begun.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    for gone in (0..3).map(PvIndex).filter(|pv| *pv != from) {
        let mut image = made.killed(seed);
        image.set_size(gone, 0);
        if let Err(why) = try_open(image, &setup, &Arc::default(), Some(5)) {
            let why = why.to_string();
            assert!(!why.contains("both copies of some metadata"), "seed {seed}, without {}: {why}", gone.0);
        }
    }
    made.world.run(group.move_ended());
}

#[test]
fn each_disk_can_be_lost_while_one_is_emptied() {
    (0..scaled(12)).for_each(metadata_stays_on_two_disks);
    must_be_found("copy_moved_beside", || (0..12).for_each(metadata_stays_on_two_disks));
}

#[test]
fn a_disk_with_legs_is_emptied_under_load() {
    (0..scaled(18)).for_each(|seed| one_is_emptied(SegmentType::Raid1, seed));
}

#[test]
fn a_disk_with_columns_is_emptied_under_load() {
    (0..scaled(9)).for_each(|seed| one_is_emptied(SegmentType::Striped, seed));
}

/// What was acknowledged is there after a crash, and the copies are equal. Then one disk is lost: nothing changes.
fn survives(setup: &Setup, oracle: &Oracle, image: Image, since: Since, seed: u64) {
    let oracle = Arc::new(Mutex::new(oracle.clone()));
    let opened = try_open(image, setup, &oracle, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    opened.judge(since);
    if setup.segment == SegmentType::Striped {
        return;
    }
    let seen = opened.contents();
    opened.are_the_same(seed);
    let mut image = opened.killed(seed);
    let gone = PvIndex((seed % 3) as u16);
    image.set_size(gone, 0);
    let alone = match try_open(image, setup, &oracle, Some(5)) {
        Ok(alone) => alone,
        // The metadata may have been on two others.
        Err(Error::Corrupt { .. } | Error::MissingPv(_)) => return,
        Err(why) => panic!("seed {seed}: {why}"),
    };
    for ((vol, before), (_, after)) in seen.iter().zip(&alone.contents()) {
        let first = (0..before.len()).find(|at| before[*at] != after[*at]);
        assert_eq!(first, None, "seed {seed}: volume {vol} changes when disk {} goes", gone.0);
    }
}

fn cut_everywhere(segment: SegmentType, seed: u64, one_in: u64) {
    let setup = setup(segment);
    let made = made(seed, &setup);
    made.disks.keep_moments();
    let (client, mut states) = (made.client.clone(), 0);
    let mut judge = |moment: &Moment| {
        if moment.event % one_in != 0 {
            return;
        }
        let policies: Vec<_> = POLICIES.into_iter().map(Some).chain([None]).collect();
        let policy = policies[(moment.event / one_in) as usize % policies.len()];
        let image = moment.crash(policy, &mut Rng::new(moment.event + seed));
        let since = if policy.is_some() { Since::PowerLoss } else { Since::Death };
        survives(&setup, &client.oracle.lock().clone(), image, since, moment.event + seed);
        states += 1;
    };
    let (disks, group) = (made.disks.clone(), made.client.group.clone());
    let mut observe = || disks.take_moments().iter().for_each(&mut judge);
    let moving = async {
        let begun = group.start_move(all_of(PvIndex((seed % 3) as u16))).await;
        made.client.together(loads(&made, seed, 60)).await.into_iter().for_each(|done| done.unwrap());
        group.move_ended().await;
        begun
    };
    made.world.try_run_observed(moving, &mut observe).unwrap().unwrap();
    assert!(states > 10, "{states} states");
}

#[test]
fn power_fails_while_a_leg_moves() {
    (0..scaled(12).max(2)).for_each(|seed| cut_everywhere(SegmentType::Raid1, seed, 60));
}

#[test]
fn power_fails_while_a_column_moves() {
    (0..scaled(6)).for_each(|seed| cut_everywhere(SegmentType::Striped, seed, 60));
}

/// A request fails once, at any moment of a move. No write that was answered is lost, and the copies are equal.
fn a_request_fails(kind: DiskOpKind, number: u64) {
    let setup = setup(SegmentType::Raid1);
    let made = made(61 + number % 3, &setup);
    let from = PvIndex((number % 3) as u16);
    let at = made.disks.requests(kind) + number;
    made.disks.set_faults(Faults { fail: Some((kind, at)), ..Faults::default() });
    let outcome = made.world.try_run(async {
        let _ = made.client.group.start_move(all_of(from)).await;
        let _ = made.client.together(loads(&made, number, 60)).await;
        made.client.group.move_ended().await;
    });
    outcome.unwrap_or_else(|stuck| panic!("{kind:?} {number}: {stuck}"));
    made.disks.set_faults(Faults::default());
    let oracle = made.client.oracle.lock().clone();
    survives(&setup, &oracle, made.killed(number), Since::Death, number);
}

#[test]
fn a_disk_fails_while_a_leg_moves() {
    for kind in [DiskOpKind::Read, DiskOpKind::Write, DiskOpKind::Flush] {
        (0..scaled(40).max(6)).for_each(|number| a_request_fails(kind, number * 17));
    }
}

/// A snapshot is taken while a disk is emptied, and everything is overwritten: there is space for that.
fn snapshots_have_space(segment: SegmentType) {
    // Both need others than those that are full: a stripe has three columns.
    let setup = Setup { segment, ..mirrors::setup(if segment == SegmentType::Striped { 4 } else { 6 }) };
    let made = made(9, &setup);
    let (client, group) = (made.client.clone(), made.client.group.clone());
    let spec = VolumeSpec { kind: VolumeKind::Thick, blocks: 40 * 64, chunk_blocks: 1, full: FullPolicy::Fail };
    let overwrite = async {
        let vol = client.create(spec).await?;
        group.start_move(all_of(PvIndex(0))).await?;
        client.snapshot(&[vol], SnapshotKind::default()).await?;
        let is_moving = group.is_moving();
        for at in (0..spec.blocks).step_by(32) {
            client.write(vol, at * BLOCK, 32 * BLOCK, &[]).await?;
        }
        Ok::<_, Error>(is_moving)
    };
    assert!(made.world.run(overwrite).unwrap(), "it moves when the snapshot is taken");
    made.world.run(group.move_ended());
    assert_eq!(group.move_progress().failed, None);
    made.judge(Since::Death);
}

#[test]
fn there_is_space_for_snapshots_while_a_disk_is_emptied() {
    for segment in [SegmentType::Raid1, SegmentType::Striped] {
        snapshots_have_space(segment);
    }
}

/// A leg goes nowhere where the other one is, and columns neither.
fn legs_stay_apart() {
    for segment in [SegmentType::Raid1, SegmentType::Striped] {
        let setup = Setup { segment, ..mirrors::setup(if segment == SegmentType::Raid1 { 2 } else { 3 }) };
        let made = made(3, &setup);
        let group = made.client.group.clone();
        let refused = made.world.run(group.start_move(all_of(PvIndex(1))));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        let extents = group.info().pvs[0].extents;
        let to = vec![PvExtents { pv: PvIndex(0), extents: 0..extents }];
        let refused = made.world.run(group.start_move(NewMove { to, ..all_of(PvIndex(1)) }));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        made.judge(Since::Death);
    }
}

#[test]
fn no_two_copies_meet_on_one_disk() {
    legs_stay_apart();
    must_be_found("leg_moved_to_the_other", legs_stay_apart);
}

/// A volume's legs move by its name, and back. Those of others stay.
#[test]
fn legs_of_a_volume_move_by_its_name() {
    let made = made(7, &setup(SegmentType::Raid1));
    let group = made.client.group.clone();
    let volume = made.client.id(made.vols[1]).unwrap();
    let from = PvIndex(0);
    let moved = made.world.run(async {
        let moved = group.start_move(NewMove { volume: Some(volume), ..all_of(from) }).await;
        group.move_ended().await;
        moved
    });
    assert!(moved.unwrap() > 0 && on(&made, from));
    let used = |id| made.world.run(group.pv_usage(id)).unwrap();
    assert!(used(volume).iter().all(|part| part.pv != from.0));
    made.judge(Since::Death);
    made.are_the_same(7);
}

#[test]
fn planted_bugs_are_found() {
    for bug in ["replacement_not_written", "leg_renamed_in_flight", "replacement_copied_without_window"] {
        must_be_found(bug, || (0..30).for_each(|seed| one_is_emptied(SegmentType::Raid1, seed)));
    }
    must_be_found("old_leg_left_early", || (0..12).for_each(|seed| cut_everywhere(SegmentType::Raid1, seed, 20)));
}
