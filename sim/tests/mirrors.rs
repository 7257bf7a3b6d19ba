//! Mirrored volumes in a group: disks that fail, return, are removed and replaced.

use crate::journal_copies::BLOCKS;
use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, Group, NewPv, PvExtents, SegmentType, VolumeInfo, VolumeKind, rows_on};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_engine::units::Uuid;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec, number};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{Faults, Image, POLICIES, SimDisks};
use rowen_sim::effort::scaled;
use rowen_sim::exec::{Handle, World};
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use rowen_sim::stamp::Found;
use std::sync::Arc;
use std::time::Duration;

type Shared = Arc<Mutex<Oracle>>;

pub fn setup(pvs: usize) -> Setup {
    let mut setup = Setup { segment: SegmentType::Raid1, second_journal: Some(4), ..Setup::small(pvs, 40) };
    setup.extent_blocks = 64;
    setup.config.leaves_failed_disks = true;
    setup
}

pub struct Made {
    pub world: World,
    pub disks: Arc<SimDisks>,
    pub client: Client,
    pub vols: Vec<Vol>,
}

pub fn made(seed: u64, setup: &Setup) -> Made {
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    client.oracle.lock().segment = setup.segment;
    let vols = world.run(volumes(&client));
    Made { world, disks, client, vols }
}

/// A thick and a thin volume with contents, and a snapshot.
async fn volumes(client: &Client) -> Vec<Vol> {
    let mut vols = Vec::new();
    for kind in [VolumeKind::Thick, VolumeKind::Thin] {
        let vol =
            client.create(VolumeSpec { kind, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail }).await.unwrap();
        for at in (0..BLOCKS - 8).step_by(16) {
            client.write(vol, at * BLOCK, 5 * BLOCK, &[]).await.unwrap();
        }
        client.flush(vol).await.unwrap();
        vols.push(vol);
    }
    let snapshots = client.snapshot(&vols[..1], SnapshotKind::default()).await.unwrap();
    vols.extend(snapshots);
    vols
}

/// Random writes, with flushes, until the group stops.
fn load(client: &Client, vol: Vol, seed: u64, writes: u64, handle: &Arc<Handle>) -> Op {
    let (client, handle) = (client.clone(), handle.clone());
    Box::pin(async move {
        let mut rng = Rng::new(seed);
        for n in 0..writes {
            let at = rng.below(BLOCKS - 40);
            let mut done = client.write(vol, at * BLOCK + rng.below(BLOCK), rng.range(1, 40), &[]).await;
            if n % 3 == 0 && done.is_ok() {
                done = client.flush(vol).await;
            }
            match done {
                Ok(()) => {}
                Err(Error::DiskLost(_) | Error::Poisoned(_)) => break,
                Err(error) => return Err(error),
            }
            handle.sleep(Duration::from_micros(rng.below(60))).await;
        }
        Ok(())
    })
}

pub fn loads(made: &Made, seed: u64, writes: u64) -> Vec<Op> {
    let handle = made.world.handle();
    made.vols.iter().map(|vol| load(&made.client, *vol, seed + u64::from(*vol), writes, &handle)).collect()
}

/// The disk fails under load. No request gets an error but that the disk is lost.
pub fn fails(made: &Made, pv: PvIndex, seed: u64) {
    let handle = made.world.handle();
    let mut ops = loads(made, seed, 400);
    let disks = made.disks.clone();
    ops.push(Box::pin(async move {
        handle.sleep(Duration::from_micros(Rng::new(seed).below(6000))).await;
        disks.set_faults(Faults { away: Some(pv), ..Faults::default() });
        Ok(())
    }));
    for done in made.world.run(made.client.together(ops)) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    match made.client.group.failed().expect_err("a disk has failed") {
        Error::DiskLost(error) => assert_eq!(error.pv, pv, "seed {seed}"),
        error => panic!("seed {seed}: {error}"),
    }
}

/// Opens the group on this image and reads everything.
pub fn open(image: Image, setup: &Setup, before: &Made, lineage: Option<u64>, since: Since) -> Made {
    let world = World::new(12);
    let disks = SimDisks::with_image(world.handle(), image);
    let (as_disks, config) = (disks.clone() as Arc<dyn Disks>, setup.config.clone());
    let group = match lineage {
        Some(lineage) => world.run(Group::open_without(as_disks, world.handle(), config, lineage)),
        None => world.run(Group::open(as_disks, world.handle(), config)),
    };
    let client = Client::new(world.handle(), group.unwrap(), before.client.oracle.clone());
    let made = Made { world, disks, client, vols: before.vols.clone() };
    made.judge(since);
    made
}

impl Made {
    pub fn judge(&self, since: Since) {
        for info in self.client.group.volumes() {
            let (vol, sectors) = (number(info.uuid), info.blocks * BLOCK);
            let found =
                self.world.run(self.client.look(vol, 0, sectors)).unwrap_or_else(|why| panic!("volume {vol}: {why}"));
            let judged = self.client.oracle.lock().judge(vol, 0, &found, since);
            judged.unwrap_or_else(|why| panic!("volume {vol}: {why}"));
        }
        let check = self.world.run(self.client.group.check_open()).unwrap();
        assert_eq!(check.findings, Vec::<String>::new());
    }

    pub fn killed(&self, seed: u64) -> Image {
        self.disks.moment().killed(&mut Rng::new(seed))
    }

    /// Waits until both legs of everything are the same.
    pub fn caught_up(&self) {
        let (group, handle) = (self.client.group.clone(), self.world.handle());
        self.world.run(async move {
            for _ in 0..100_000 {
                if group.mirror_info().unsynced == 0 && group.mirrors_are_caught_up() {
                    return;
                }
                handle.sleep(Duration::from_millis(1)).await;
            }
            panic!("the legs are not made equal: {:?}", group.mirror_info());
        });
    }
}

/// A disk fails; the group goes on with everything; the disk returns, is caught up, and the other one fails.
fn each_fails_in_turn(seed: u64) {
    let setup = setup(2);
    let first = PvIndex((seed % 2) as u16);
    let second = PvIndex(1 - first.0);
    let made = made(seed, &setup);
    fails(&made, first, seed);
    let mut image = made.killed(seed);
    image.set_size(first, 0);
    let without = open(image, &setup, &made, Some(7), Since::Death);
    for done in without.world.run(without.client.together(loads(&without, seed + 10, 30))) {
        done.unwrap();
    }
    without.world.run(without.client.snapshot(&without.vols[1..2], SnapshotKind::default())).unwrap();
    without.judge(Since::Death);
    without.world.run(without.client.close()).unwrap();
    let policy = POLICIES[(seed / 2) as usize % POLICIES.len()];
    let cut = made.disks.moment().power_cut(policy, &mut Rng::new(seed));
    let back = open(without.killed(2).with_pv_of(first, &cut), &setup, &without, None, Since::Death);
    back.world.run(back.client.group.restore_missing(first)).unwrap();
    back.judge(Since::Death);
    for done in back.world.run(back.client.together(loads(&back, seed + 20, 60))) {
        done.unwrap();
    }
    back.caught_up();
    back.judge(Since::Death);
    fails(&back, second, seed + 30);
    let mut image = back.killed(seed);
    image.set_size(second, 0);
    let _last = open(image, &setup, &back, Some(9), Since::Death);
}

#[test]
fn each_of_two_disks_fails_in_turn() {
    for seed in 0..scaled(24) {
        each_fails_in_turn(seed);
    }
}

/// The first disk has failed, and is attached again. The group went on without it and was written, and does not use it yet.
fn before_return(seed: u64, setup: &Setup) -> Made {
    let made = made(seed, setup);
    fails(&made, PvIndex(0), seed);
    let mut image = made.killed(seed);
    image.set_size(PvIndex(0), 0);
    let without = open(image, setup, &made, Some(7), Since::Death);
    for done in without.world.run(without.client.together(loads(&without, seed + 10, 60))) {
        done.unwrap();
    }
    without.world.run(without.client.close()).unwrap();
    let cut = made.disks.moment().power_cut(POLICIES[0], &mut Rng::new(seed));
    open(without.killed(2).with_pv_of(PvIndex(0), &cut), setup, &without, None, Since::Death)
}

/// B3: a disk returns when the last mirrored volume is gone. Mirrored extents become linear before it has caught up, and each superblock
/// can be read.
fn nothing_is_mirrored_when_it_returns(seed: u64) {
    let setup = setup(2);
    let back = before_return(seed, &setup);
    let vols: Vec<Vol> = back.client.group.volumes().iter().map(|info| number(info.uuid)).collect();
    back.world.run(back.client.remove(&vols)).unwrap();
    back.disks.keep_moments();
    let (group, handle) = (back.client.group.clone(), back.world.handle());
    // It needs all room, before the background finds that the disk lacks nothing.
    let large = plain_volume("large", 9, VolumeKind::Thick, group.info().blocks);
    back.world.run(async {
        group.restore_missing(PvIndex(0)).await.unwrap();
        if let Ok(large) = group.create_volume(large).await {
            group.remove(&[large]).await.unwrap();
        }
    });
    back.caught_up();
    back.world.run(async move {
        for _ in 0..4 {
            group.checkpoint().await.unwrap();
            handle.sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(group.mirror_info().extents, 0, "they are not needed any more");
    });
    for (at, moment) in back.disks.take_moments().iter().enumerate() {
        let image = moment.killed(&mut Rng::new(seed));
        let opened = try_open(image, &setup, &back.client.oracle, None);
        let opened = opened.unwrap_or_else(|error| panic!("seed {seed}, moment {at}: {error}"));
        let check = opened.world.run(opened.client.group.check_open()).unwrap();
        assert_eq!(check.findings, Vec::<String>::new(), "seed {seed}, moment {at}");
    }
}

#[test]
fn superblocks_are_readable_when_the_last_mirror_is_gone() {
    let all = || (0..scaled(6).max(2)).for_each(nothing_is_mirrored_when_it_returns);
    all();
    must_be_found("behind_without_mirrors", all);
}

/// ML11: a disk returns; a copy of it is made before it has caught up, and takes its place after a kill. It is refused: else its
/// older blocks would be copied over those of the other disk.
fn copied_before_it_caught_up(seed: u64) {
    let setup = setup(2);
    let back = before_return(seed, &setup);
    back.disks.keep_moments();
    back.world.run(back.client.group.restore_missing(PvIndex(0))).unwrap();
    back.caught_up();
    let (last, moments) = (back.killed(seed), back.disks.take_moments());
    for moment in moments.iter().rev().take(60) {
        let image = last.clone().with_pv_of(PvIndex(0), &moment.killed(&mut Rng::new(seed)));
        match try_open(image, &setup, &back.client.oracle, None) {
            Err(Error::OlderCopy(pv)) => assert_eq!(pv, PvIndex(0), "seed {seed}"),
            Err(Error::MissingPv(why)) => assert!(why.contains("older copy"), "seed {seed}: {why}"),
            Err(error) => panic!("seed {seed}: {error}"),
            Ok(opened) => opened.judge(Since::Death),
        }
    }
}

#[test]
fn a_copy_from_before_it_caught_up_is_refused() {
    let all = || (0..6).for_each(copied_before_it_caught_up);
    all();
    must_be_found("caught_up_without_step", all);
}

/// Power is cut under load. Everything that was flushed is there, with both disks and then with either alone, and what
/// was read once is read again.
fn cuts(seed: u64) {
    let setup = setup(2);
    let made = made(seed, &setup);
    made.disks.keep_moments();
    for done in made.world.run(made.client.together(loads(&made, seed, 40))) {
        done.unwrap();
    }
    let oracle = made.client.oracle.clone();
    let mut rng = Rng::new(seed);
    let moments = made.disks.take_moments();
    let moment = &moments[rng.below(moments.len() as u64) as usize];
    let policy = POLICIES[(seed as usize) % POLICIES.len()];
    let image = moment.power_cut(policy, &mut rng);
    let Ok(both) = try_open(image.clone(), &setup, &oracle, None) else { panic!("seed {seed}: not opened") };
    let seen = both.contents();
    both.disks.moment();
    let mut image = both.killed(seed);
    let gone = PvIndex((seed % 2) as u16);
    image.set_size(gone, 0);
    let alone = try_open(image, &setup, &oracle, Some(5)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let again = alone.contents();
    for ((vol, before), (_, after)) in seen.iter().zip(&again) {
        let first = (0..before.len()).find(|at| before[*at] != after[*at]);
        assert_eq!(first, None, "seed {seed}: volume {vol} changes when disk {} goes", gone.0);
    }
}

pub fn try_open(image: Image, setup: &Setup, oracle: &Shared, lineage: Option<u64>) -> Result<Made, Error> {
    let world = World::new(12);
    let disks = SimDisks::with_image(world.handle(), image);
    let (as_disks, config) = (disks.clone() as Arc<dyn Disks>, setup.config.clone());
    let group = match lineage {
        Some(lineage) => world.run(Group::open_without(as_disks, world.handle(), config, lineage)),
        None => world.run(Group::open(as_disks, world.handle(), config)),
    }?;
    let client = Client::new(world.handle(), group, oracle.clone());
    Ok(Made { world, disks, client, vols: Vec::new() })
}

impl Made {
    /// All sectors of all volumes.
    pub fn contents(&self) -> Vec<(Vol, Vec<Found>)> {
        let volumes = self.client.group.volumes();
        let read = |info: &VolumeInfo| {
            let vol = number(info.uuid);
            (vol, self.world.run(self.client.look(vol, 0, info.blocks * BLOCK)).unwrap())
        };
        volumes.iter().map(read).collect()
    }
}

#[test]
fn what_was_read_after_a_cut_stays_when_a_disk_goes() {
    for seed in 0..scaled(40) {
        cuts(seed);
    }
}

/// A disk fails and is removed for good, its legs are replaced on a third one, and then the other one fails.
fn replaced(seed: u64) {
    let setup = setup(3);
    let made = made(seed, &setup);
    let legs = |made: &Made, pv: u16| {
        made.client.group.mirror_info().runs.iter().any(|run| run.run.legs.iter().any(|leg| leg.pv.0 == pv))
    };
    // It has no copy of the journal in some seeds.
    let gone = (0..3).rev().find(|pv| legs(&made, *pv)).unwrap();
    fails(&made, PvIndex(gone), seed);
    let mut image = made.killed(seed);
    image.set_size(PvIndex(gone), 0);
    let without = open(image, &setup, &made, Some(7), Since::Death);
    let group = without.client.group.clone();
    without.world.run(group.close_without(PvIndex(gone))).unwrap();
    let left = Setup { pvs: setup.pvs[..2].to_vec(), ..setup.clone() };
    let others: Vec<usize> = (0..3).filter(|pv| *pv != usize::from(gone)).collect();
    let image = without.killed(3).reordered(&others);
    let two = open(image, &left, &without, None, Since::Death);
    let single = two.client.group.mirror_info().single;
    assert!(single > 0, "seed {seed}");
    // As where no disk had room for the journal that one took with it.
    two.world.run(two.client.group.drop_second_journal()).unwrap();
    let repaired = two.world.run(two.client.group.repair_mirrors(&[])).unwrap();
    assert_eq!((repaired, two.client.group.mirror_info().single), (single, 0), "seed {seed}");
    assert_eq!(two.client.group.info().journal_copies, 2, "seed {seed}: each disk can be lost");
    for done in two.world.run(two.client.together(loads(&two, seed + 20, 60))) {
        done.unwrap();
    }
    two.caught_up();
    two.judge(Since::Death);
    let next = PvIndex((seed % 2) as u16);
    fails(&two, next, seed + 30);
    let mut image = two.killed(seed);
    image.set_size(next, 0);
    let _last = open(image, &left, &two, Some(9), Since::Death);
}

#[test]
fn legs_of_a_disk_that_was_removed_are_replaced() {
    for seed in 0..scaled(12) {
        replaced(seed);
    }
    must_be_found("journal_not_repaired", || replaced(0));
}

/// A disk was removed for good, and its legs were not replaced. The other disk is not cut where the only legs are.
fn cut_where_only_legs_are() {
    let setup = setup(2);
    let world = World::new(5);
    let (disks, group) = setup.make(&world).unwrap();
    let last = group.info().pvs[0].extents - 1;
    let on = [0, 1].map(|pv| PvExtents { pv: PvIndex(pv), extents: last..last + 1 });
    let end = plain_volume("end", 9, VolumeKind::Thick, setup.extent_blocks);
    world.run(group.create_mirrored(end, &on)).unwrap();
    world.run(group.close()).unwrap();
    let mut image = disks.moment().killed(&mut Rng::new(5));
    image.set_size(PvIndex(1), 0);
    let without = reopened(image, &setup, Some(7));
    without.world.run(without.client.group.close_without(PvIndex(1))).unwrap();
    let left = Setup { pvs: setup.pvs[..1].to_vec(), ..setup };
    let alone = reopened(without.killed(3).reordered(&[0]), &left, None);
    assert!(alone.client.group.mirror_info().single > 0);
    let extent = alone.client.group.info().extent_blocks * 4096;
    let cut = alone.world.run(alone.client.group.resize_pv(PvIndex(0), left.pvs[0].size - extent));
    assert!(matches!(cut, Err(Error::Busy(_))), "{cut:?}");
}

fn reopened(image: Image, setup: &Setup, lineage: Option<u64>) -> Made {
    try_open(image, setup, &Arc::default(), lineage).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn the_only_legs_are_not_cut_off() {
    cut_where_only_legs_are();
    must_be_found("single_legs_cut", cut_where_only_legs_are);
}

/// An opening reads mirrored blocks to prove the journal, also one that only looks.
#[test]
fn a_group_with_mirrors_is_checked() {
    for seed in 0..scaled(12) {
        let setup = setup(2);
        let made = made(seed, &setup);
        for done in made.world.run(made.client.together(loads(&made, seed, 20))) {
            done.unwrap();
        }
        made.judge(Since::Death);
        let world = World::new(seed);
        let disks = SimDisks::with_image(world.handle(), made.killed(seed));
        world.run(Group::can_be_opened(disks.clone())).unwrap();
        assert_eq!(world.run(Group::check(disks)).unwrap().findings, Vec::<String>::new(), "seed {seed}");
    }
}

/// While a disk is away no mirrored extents are made: those that snapshots need were made before.
#[test]
fn a_volume_with_a_snapshot_is_overwritten_without_a_disk() {
    for seed in 0..scaled(12) {
        let setup = setup(2);
        let made = made(seed, &setup);
        let handle = made.world.handle();
        made.world.run(async move { handle.sleep(Duration::from_secs(5)).await });
        fails(&made, PvIndex((seed % 2) as u16), seed);
        let mut image = made.killed(seed);
        image.set_size(PvIndex((seed % 2) as u16), 0);
        let without = open(image, &setup, &made, Some(7), Since::Death);
        let (client, vol) = (without.client.clone(), without.vols[0]);
        without.world.run(async move {
            for at in 0..BLOCKS {
                client.write(vol, at * BLOCK, BLOCK, &[]).await.unwrap();
            }
        });
        without.judge(Since::Death);
    }
}

/// MZ1, MZ2: extents become mirrored for volumes, and linear again when those are gone.
#[test]
fn extents_are_lent_to_mirrors_and_come_back() {
    let setup = setup(2);
    let world = World::new(3);
    let (_, group) = setup.make(&world).unwrap();
    let free = || group.info().free_extents;
    let before = free();
    // Metadata grows with the number of pieces.
    let most = before / 2 - 16;
    let new =
        |name: &str, number, extents| plain_volume(name, number, VolumeKind::Thick, extents * setup.extent_blocks);
    let too_large = world.run(group.create_mirrored(new("large", 1, before / 2 + 1), &[]));
    assert!(matches!(too_large, Err(Error::NoSpace { .. })), "{too_large:?}");
    for number in 2..5 {
        let id = world.run(group.create_mirrored(new("m", number, most), &[])).unwrap();
        assert_eq!(group.volumes()[0].segment, SegmentType::Raid1);
        assert!(group.mirror_info().extents >= most && free() <= 40, "{:?}", group.mirror_info());
        world.run(group.remove(&[id])).unwrap();
        world.run(group.reclaim_idle()).unwrap();
        let id = world.run(group.create_volume(new("l", number + 10, before - 16))).unwrap();
        world.run(group.remove(&[id])).unwrap();
        assert_eq!(world.run(group.check_open()).unwrap().findings, Vec::<String>::new());
    }
    let here = [PvExtents { pv: PvIndex(0), extents: 0..20 }];
    let alone = world.run(group.create_mirrored(new("a", 20, 4), &here));
    assert!(matches!(alone, Err(Error::Invalid(_))), "both legs on one disk: {alone:?}");
}

/// ML4: nothing is copied after an end, and no copy is the older one.
fn a_closed_group_has_nothing_to_copy(seed: u64) {
    let setup = setup(2);
    let made = made(seed, &setup);
    for done in made.world.run(made.client.together(loads(&made, seed, 40))) {
        done.unwrap();
    }
    made.world.run(made.client.group.close()).unwrap();
    let again = open(made.killed(seed), &setup, &made, None, Since::Death);
    let to_do: Vec<_> =
        again.client.group.mirror_info().runs.iter().map(|run| (run.open_regions, run.unsure_bytes)).collect();
    assert!(to_do.iter().all(|run| *run == (0, 0)), "seed {seed}: {to_do:?}");
    again.judge(Since::Death);
}

#[test]
fn a_closed_group_is_in_sync_when_it_is_opened_again() {
    for seed in 0..scaled(12) {
        a_closed_group_has_nothing_to_copy(seed);
    }
    must_be_found("closed_unsettled", || a_closed_group_has_nothing_to_copy(1));
}

/// MZ1: a disk fails what must be durable before the table names the first mirrored extents.
fn the_first_zone_fails(nth: u64) {
    let mut setup = setup(2);
    // It goes on with both disks.
    setup.config.leaves_failed_disks = false;
    let world = World::new(3);
    let (disks, group) = setup.make(&world).unwrap();
    let before = group.info().free_extents;
    let flushes = disks.requests(DiskOpKind::Flush);
    disks.set_faults(Faults { fail: Some((DiskOpKind::Flush, flushes + nth)), ..Faults::default() });
    let new = plain_volume("m", 1, VolumeKind::Thick, 4 * setup.extent_blocks);
    let failed = world.run(group.create_mirrored(new, &[]));
    assert!(matches!(failed, Err(Error::Disk(_))), "{failed:?}");
    assert_eq!((group.mirror_info().runs, group.info().free_extents), (Vec::new(), before), "flush {nth}");
    disks.set_faults(Faults::default());
    assert_eq!(world.run(group.check_open()).unwrap().findings, Vec::<String>::new());
}

#[test]
fn extents_that_become_no_mirror_are_free_again() {
    (0..2).for_each(the_first_zone_fails);
    must_be_found("failed_runs_stay", || the_first_zone_fails(1));
}

/// What cannot be done with physical volumes that have legs.
#[test]
fn a_disk_with_legs_does_not_leave() {
    let made = made(4, &setup(3));
    let group = &made.client.group;
    for pv in 0..3 {
        let outcome = made.world.run(group.vacate_pv(PvIndex(pv)));
        assert!(matches!(outcome, Err(Error::Busy(_))), "{outcome:?}");
    }
    let single = World::new(5);
    let (_, alone) = setup(1).make(&single).unwrap();
    let outcome = single.run(alone.create_mirrored(plain_volume("m", 1, VolumeKind::Thick, 64), &[]));
    assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
}

/// MZ1: mirrored or striped extents are made under writes that need them. The power is cut meanwhile.
pub fn made_under_writes(segment: SegmentType, seed: u64) {
    let setup = Setup { segment, ..setup(2) };
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    client.oracle.lock().segment = setup.segment;
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 8192, chunk_blocks: 1, full: FullPolicy::Fail };
    let vols: Vec<Vol> = (0..2).map(|_| world.run(client.create(spec)).unwrap()).collect();
    let extents = |group: &Group| group.mirror_info().extents + group.stripe_info().map_or(0, |info| info.extents);
    let before = extents(&client.group);
    disks.keep_moments();
    let (mut rng, handle) = (Rng::new(seed), world.handle());
    let writers = (0..4).map(|n| {
        let (client, vol, handle) = (client.clone(), vols[n % 2], handle.clone());
        let op: Op = Box::pin(async move {
            for i in 0..60 {
                client.write(vol, (n as u64 / 2 * 4000 + i * 32) * BLOCK, 32 * BLOCK, &[]).await?;
                handle.sleep(Duration::from_micros(200)).await;
            }
            client.flush(vol).await
        });
        op
    });
    for done in world.run(client.together(writers.collect())) {
        done.unwrap();
    }
    assert!(extents(&client.group) > before, "seed {seed}");
    let moments = disks.take_moments();
    for n in 0..12 {
        let moment = &moments[rng.below(moments.len() as u64) as usize];
        let image = moment.power_cut(POLICIES[n % POLICIES.len()], &mut rng);
        let oracle = client.oracle.lock().clone();
        let opened = try_open(image, &setup, &Arc::new(Mutex::new(oracle)), None);
        let opened = opened.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let check = opened.world.run(opened.client.group.check_open()).unwrap();
        assert_eq!(check.findings, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn zones_are_made_under_writes() {
    (0..scaled(8)).for_each(|seed| made_under_writes(SegmentType::Raid1, seed));
}

#[test]
fn zones_whose_blocks_are_used_too_early_are_found() {
    must_be_found("zones_freed_early", || (0..8).for_each(|seed| made_under_writes(SegmentType::Raid1, seed)));
}

/// S8
#[test]
fn a_mirror_whose_blocks_have_one_leg_is_found() {
    must_be_found("mirror_not_mirrored", || (0..4).for_each(|seed| made_under_writes(SegmentType::Raid1, seed)));
}

#[test]
fn a_write_that_is_on_one_leg_is_found() {
    must_be_found("one_leg_written", || (0..4).for_each(each_fails_in_turn));
}

/// After a disk has failed, a flush must fail for what was written there alone, and for nothing else.
#[test]
fn what_is_on_two_disks_is_on_neither_alone() {
    let setup = setup(2);
    let made = made(6, &setup);
    let written = |made: &Made| {
        let volume = made.client.volume(made.vols[0]).unwrap();
        volume.forget_written_to();
        made.world.run(made.client.write(made.vols[0], 80 * BLOCK, BLOCK, &[])).unwrap();
        volume.written_to().iter().collect::<Vec<_>>()
    };
    assert_eq!(written(&made), [0; 0]);
    fails(&made, PvIndex(0), 6);
    let mut image = made.killed(6);
    image.set_size(PvIndex(0), 0);
    let without = open(image, &setup, &made, Some(7), Since::Death);
    assert_eq!(written(&without), [1]);
}

/// MS1: metadata was made when there was one disk. Either of two is enough afterwards.
fn either_opens_the_group(seed: u64) {
    let one = Setup { second_journal: None, pvs: setup(1).pvs, ..setup(2) };
    let world = World::new(seed);
    let (disks, group) = one.make(&world).unwrap();
    disks.add_pv(disks.geometry(PvIndex(0)));
    world.run(group.add_pv(NewPv { uuid: Uuid([0x22; 16]) })).unwrap();
    world.run(group.add_second_journal(4)).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    client.oracle.lock().segment = SegmentType::Raid1;
    let vols = world.run(volumes(&client));
    let made = Made { world, disks, client, vols };
    made.caught_up();
    made.world.run(made.client.close()).unwrap();
    let both = setup(2);
    for gone in [PvIndex(0), PvIndex(1)] {
        let mut image = made.killed(seed);
        image.set_size(gone, 0);
        let _alone = open(image, &both, &made, Some(7), Since::Death);
    }
}

#[test]
fn metadata_is_on_both_disks_of_a_mirror() {
    let all = || (0..4).for_each(either_opens_the_group);
    all();
    must_be_found("metadata_not_spread", all);
}

/// ML7: a disk returns and lacks some of what was written meanwhile, and the other one goes. What needs the other one is
/// partial, so nobody gives that one up and reads older data.
fn behind_is_partial(seed: u64) -> bool {
    let setup = setup(2);
    let back = before_return(seed, &setup);
    back.world.run(back.client.group.restore_missing(PvIndex(0))).unwrap();
    let mut image = back.killed(seed);
    image.set_size(PvIndex(1), 0);
    let oracle = back.client.oracle.clone();
    let alone = try_open(image, &setup, &oracle, Some(9)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let mut any = false;
    for info in alone.client.group.volumes() {
        let is_read = alone.world.run(alone.client.look(number(info.uuid), 0, info.blocks * BLOCK)).is_ok();
        let is_partial = alone.world.run(alone.client.group.is_partial(info.id)).unwrap();
        assert!(is_read || is_partial, "seed {seed}: what cannot be read is whole");
        any |= is_partial;
    }
    any
}

#[test]
fn a_leg_that_is_behind_is_no_copy_without_the_other_one() {
    let all = || assert!((0..8).filter(|seed| behind_is_partial(*seed)).count() > 0);
    all();
    must_be_found("behind_is_whole", all);
}

#[test]
fn all_free_extents_become_pairs() {
    for sizes in [vec![40; 4], vec![40; 3], vec![40, 60, 50], vec![80, 30, 30, 41], vec![40; 5]] {
        let mut setup = setup(sizes.len());
        setup.pvs.iter_mut().zip(&sizes).for_each(|(pv, mib)| pv.size = mib << 20);
        let world = World::new(7);
        let (_, group) = setup.make(&world).unwrap();
        let free: Vec<u64> = group.info().pvs.iter().map(|pv| pv.free_extents).collect();
        let extents = rows_on(&free, 2);
        world
            .run(group.create_mirrored(plain_volume("m", 1, VolumeKind::Thick, extents * setup.extent_blocks), &[]))
            .unwrap_or_else(|error| {
                panic!("{sizes:?}: {error}; {extents} extents on {free:?}");
            });
        let left: u64 = group.info().pvs.iter().map(|pv| pv.free_blocks / setup.extent_blocks).sum();
        assert!(sizes.len() == 4 && sizes[0] == 80 || left <= 4, "{sizes:?}: {left} extents are left of {free:?}");
        assert_eq!(world.run(group.check_open()).unwrap().findings, Vec::<String>::new());
    }
}

#[test]
fn free_mirrored_extents_elsewhere_are_no_room_on_named_disks() {
    let setup = setup(3);
    let world = World::new(8);
    let (_, group) = setup.make(&world).unwrap();
    let new =
        |name: &str, number, extents| plain_volume(name, number, VolumeKind::Thick, extents * setup.extent_blocks);
    let all = |pv: u16| PvExtents { pv: PvIndex(pv), extents: 0..group.info().pvs[usize::from(pv)].extents };
    let rest = world.run(group.free_on(&[all(1)])).unwrap() / setup.extent_blocks;
    world.run(group.create_volume_on(new("full", 1, rest), &[all(1)])).unwrap();
    let gone = world.run(group.create_mirrored(new("gone", 2, 8), &[all(0), all(2)])).unwrap();
    let stays = world.run(group.create_mirrored(new("stays", 3, 2), &[all(0), all(2)])).unwrap();
    world.run(group.remove(&[gone])).unwrap();
    world.run(group.reclaim_idle()).unwrap();
    let free = group.mirror_info().free_extents;
    assert!(free > 2, "{free}");
    let refused = world.run(group.create_mirrored(new("m", 4, 2), &[all(0), all(1)]));
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    let refused = world.run(group.resize_on(stays, 4 * setup.extent_blocks, &[all(0), all(1)]));
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    world.run(group.create_mirrored(new("m", 5, 2), &[all(0), all(2)])).unwrap();
}
