//! Extents move to other physical volumes while they are written (rules PM1 to PM7, Z1 to Z5). The power fails, the
//! server dies or a disk fails at any moment.

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, Disks, PvGeometry, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, Group, NewMove, NewPv, PvExtents, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_engine::units::Uuid;
use rowen_sim::client::{BLOCK, Client, Failure, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{Faults, Image, POLICIES, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use rowen_sim::worlds::members;
use std::sync::Arc;
use std::time::Duration;

fn seeds(full: u64) -> u64 {
    let percent = std::env::var("ROWEN_SIM_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(100);
    (full * percent / 100).max(1)
}

type Shared = Arc<Mutex<Oracle>>;

pub(crate) const FROM: PvIndex = PvIndex(1);

pub(crate) fn setup() -> Setup {
    Setup::small(3, 16)
}

pub(crate) fn all_of(from: PvIndex) -> NewMove {
    NewMove { from, extents: Vec::new(), to: Vec::new(), volume: None }
}

/// A group with data on all physical volumes, and with snapshots.
pub(crate) struct Made {
    pub world: World,
    pub disks: Arc<SimDisks>,
    pub client: Client,
    pub vols: Vec<Vol>,
}

pub(crate) fn made(seed: u64) -> Made {
    let world = World::new(seed);
    let (disks, group) = setup().make(&world).unwrap();
    let client = Client::new(world.handle(), group, Shared::default());
    let vols = world.run(async {
        let mut vols = Vec::new();
        for kind in [VolumeKind::Thick, VolumeKind::Thick, VolumeKind::Thin] {
            let spec = VolumeSpec { kind, blocks: 1200, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            for at in (0..1200).step_by(60) {
                client.write(vol, at * BLOCK, 50 * BLOCK, &[]).await.unwrap();
            }
            vols.push(vol);
        }
        client.snapshot(&vols[..1], SnapshotKind::default()).await.unwrap();
        client.write(vols[0], 0, 64 * BLOCK, &[]).await.unwrap();
        client.checkpoint().await.unwrap();
        vols
    });
    Made { world, disks, client, vols }
}

/// Blocks in use on a physical volume.
pub(crate) fn used_on(group: &Arc<Group>, pv: PvIndex) -> u64 {
    let info = &group.info().pvs[usize::from(pv.0)];
    info.extents * group.info().extent_blocks - info.free_blocks
}

impl Made {
    /// Moves, while the volumes are written, read and flushed by as many clients, and a snapshot is taken.
    pub async fn move_under_load(&self, wanted: NewMove, seed: u64) -> Result<u64, Error> {
        let begun = self.client.group.start_move(wanted).await;
        let ops: Vec<Op> = self.vols.iter().map(|vol| self.load(*vol, seed + u64::from(*vol))).collect();
        self.client.together(ops).await.into_iter().for_each(drop);
        self.client.group.move_ended().await;
        begun
    }

    pub fn load(&self, vol: Vol, seed: u64) -> Op {
        let (client, handle) = (self.client.clone(), self.world.handle());
        Box::pin(async move {
            let mut rng = Rng::new(seed);
            for n in 0..50 {
                let at = rng.below(1100);
                let _ = client.write(vol, at * BLOCK + rng.below(8), rng.range(1, 90), &[]).await;
                if n % 5 == 0 {
                    client.flush(vol).await.ok();
                }
                if n == 25 && vol == 2 {
                    client.snapshot(&[vol], SnapshotKind::default()).await.ok();
                }
                if let Err(Failure::Wrong(why)) = client.verify(vol, at * BLOCK, 8).await {
                    panic!("{why}");
                }
                handle.sleep(Duration::from_micros(rng.below(60))).await;
            }
            Ok(())
        })
    }

    /// A volume without a snapshot, on the extents that move.
    pub fn unshared_there(&self) -> Vol {
        self.world.run(async {
            let mut most = (0, 0);
            for vol in &self.vols[1..] {
                let places = self.client.group.pv_usage(self.client.id(*vol).unwrap()).await.unwrap();
                let there = places.iter().find(|place| place.pv == FROM.0).map_or(0, |place| place.blocks);
                most = most.max((there, *vol));
            }
            assert!(most.0 > 900, "{most:?}: blocks on the source");
            most.1
        })
    }

    pub async fn judge(&self) {
        for vol in &self.vols {
            self.client.verify_all(*vol).await.unwrap();
        }
        let check = self.client.group.check_open().await.unwrap();
        assert_eq!(check.findings, Vec::<String>::new());
    }

    pub fn end(&self) -> Image {
        self.disks.moment().killed(&mut Rng::new(2))
    }
}

/// All extents of a physical volume move away. Nothing is changed by that, and the physical volume can leave. Another
/// takes its place, and extents move back.
fn one_is_emptied_and_leaves() {
    let made = made(5);
    made.world.run(async {
        let group = &made.client.group;
        let before = used_on(group, FROM);
        assert!(before > 0);
        // Nothing new is placed there after the move has ended.
        group.set_allocatable(FROM, false).await.unwrap();
        let total = made.move_under_load(all_of(FROM), 7).await.unwrap();
        let ended = group.move_progress();
        assert_eq!((ended.moved, ended.total, ended.failed, ended.unreadable), (total, total, None, 0));
        made.judge().await;
        for vol in &made.vols {
            let places = group.pv_usage(made.client.id(*vol).unwrap()).await.unwrap();
            assert!(places.iter().all(|place| place.pv != FROM.0), "{places:?}");
        }
        group.checkpoint().await.unwrap();
        group.vacate_pv(FROM).await.unwrap();
        group.close_without(FROM).await.unwrap();
    });
    let image = members(&made.end()).unwrap();
    let oracle = made.client.oracle.clone();
    judge_image(&setup(), &oracle.lock(), Since::Death, image.clone(), 3).unwrap();
    let world = World::new(9);
    let disks = SimDisks::with_image(world.handle(), image);
    let as_disks: Arc<dyn Disks> = disks.clone();
    let end = world.run(async {
        let group = Group::open(as_disks, world.handle(), setup().config).await.unwrap();
        assert_eq!(group.info().pvs.len(), 2);
        disks.add_pv(PvGeometry { size: 16 << 20, sector: 512 });
        group.add_pv(NewPv { uuid: Uuid([0x44; 16]) }).await.unwrap();
        let moved = group.start_move(all_of(PvIndex(1))).await.unwrap();
        group.move_ended().await;
        assert_eq!((group.move_progress().moved, group.move_progress().failed), (moved, None));
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.resize_pv(PvIndex(1), 8 << 20).await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.close().await.unwrap();
        disks.moment().killed(&mut Rng::new(1))
    });
    judge_image(&setup(), &oracle.lock(), Since::Death, end, 4).unwrap();
}

#[test]
fn a_physical_volume_is_emptied_and_leaves() {
    one_is_emptied_and_leaves();
}

/// PM1, PM6, PM7: power fails, or the server dies, at moments of a move under load. All contents are allowed ones,
/// whichever table is found.
fn cut_everywhere(seed: u64, one_in: u64) {
    let made = made(seed);
    made.disks.keep_moments();
    let (client, mut states) = (made.client.clone(), 0);
    let mut judge = |moment: &rowen_sim::disk::Moment| {
        if moment.event % one_in != 0 {
            return;
        }
        for policy in POLICIES.into_iter().map(Some).chain([None]) {
            let mut rng = Rng::new(moment.event + seed);
            let image = members(&moment.crash(policy, &mut rng)).unwrap();
            let since = if policy.is_some() { Since::PowerLoss } else { Since::Death };
            let oracle = client.oracle.lock().clone();
            if let Err(why) = judge_image(&setup(), &oracle, since, image, moment.event + 1) {
                panic!("seed {seed}, event {}, {policy:?}: {why}", moment.event);
            }
            states += 1;
        }
    };
    let disks = made.disks.clone();
    let mut observe = || disks.take_moments().iter().for_each(&mut judge);
    let moving = made.move_under_load(all_of(FROM), seed);
    made.world.try_run_observed(moving, &mut observe).unwrap().unwrap();
    assert!(states > 10, "{states} states");
}

#[test]
fn power_fails_at_any_moment_of_a_move() {
    (0..seeds(3)).for_each(|seed| cut_everywhere(seed + 20, 50));
}

/// Requests to one of the disks fail from some moment on, or one does. Nothing is lost, and the group opens.
#[test]
fn a_disk_fails_during_a_move() {
    for kind in [DiskOpKind::Read, DiskOpKind::Write, DiskOpKind::Flush] {
        for number in (0..240).step_by(24) {
            for only_once in [true, false] {
                let made = made(31);
                let at = made.disks.requests(kind) + number;
                made.disks.set_faults(match only_once {
                    true => Faults { fail: Some((kind, at)), ..Faults::default() },
                    false => Faults { fail_from: Some((kind, at)), ..Faults::default() },
                });
                let outcome = made.world.try_run(async {
                    let _ = made.move_under_load(all_of(FROM), number).await;
                });
                outcome.unwrap_or_else(|stuck| panic!("{kind:?} {number}: {stuck}"));
                made.disks.set_faults(Faults::default());
                let image = members(&made.end()).unwrap();
                let oracle = made.client.oracle.lock().clone();
                if let Err(why) = judge_image(&setup(), &oracle, Since::PowerLoss, image, 8) {
                    panic!("{kind:?} {number}, once {only_once}: {why}");
                }
            }
        }
    }
}

/// The table of moved extents rots on one physical volume. The group opens, and the check reports and repairs it.
#[test]
fn a_rotten_table_is_rewritten() {
    let made = made(81);
    made.world.run(async {
        made.client.group.start_move(all_of(FROM)).await.unwrap();
        made.client.group.move_ended().await;
        made.client.close().await.unwrap();
    });
    let image = members(&made.end()).unwrap();
    let oracle = made.client.oracle.lock().clone();
    for pv in 0..3 {
        let world = World::new(3);
        let disks = SimDisks::with_image(world.handle(), image.clone());
        for slot in [64 << 10, 256 << 10] {
            disks.rot(PvIndex(pv), slot + 40, 3);
        }
        let as_disks: Arc<dyn Disks> = disks.clone();
        world.run(async {
            let found = Group::check(as_disks.clone()).await.unwrap();
            assert_eq!(found.findings, [format!("the table of moved extents on physical volume {pv} is bad")]);
            assert_eq!(found.repairable, 1);
            let repaired = Group::repair(as_disks.clone()).await.unwrap();
            assert_eq!((repaired.repaired.len(), repaired.findings.len()), (1, 0));
            assert_eq!(Group::check(as_disks.clone()).await.unwrap().findings, Vec::<String>::new());
        });
        let end = disks.moment().killed(&mut Rng::new(1));
        judge_image(&setup(), &oracle, Since::Death, end, 5).unwrap();
    }
    let world = World::new(3);
    let disks = SimDisks::with_image(world.handle(), image);
    for (pv, slot) in (0..3).flat_map(|pv| [(pv, 64 << 10), (pv, 256 << 10)]) {
        disks.rot(PvIndex(pv), slot + 40, 3);
    }
    let refused =
        world.run(Group::open(disks.clone() as Arc<dyn Disks>, world.handle(), setup().config)).err().unwrap();
    assert!(refused.to_string().contains("table of zones"), "{refused}");
    assert_eq!(disks.requests(DiskOpKind::Write), 0, "nothing is written then");
}

/// PM5: a request that began before its extents moved takes long. A read does not return blocks that are placed there
/// later. A write does not overwrite them.
fn a_request_is_late(kind: DiskOpKind, nth: u64) {
    let made = made(51);
    let (client, group) = (made.client.clone(), made.client.group.clone());
    let target = made.unshared_there();
    let requests: Vec<Op> = (0..60u64)
        .map(|n| {
            let (client, handle) = (client.clone(), made.world.handle());
            let (vol, at) = (target, n * 18 * BLOCK);
            Box::pin(async move {
                handle.sleep(Duration::from_micros(n * 100)).await;
                if kind == DiskOpKind::Write {
                    return client.write(vol, at, 8 * BLOCK, &[]).await;
                }
                match client.verify(vol, at, 8).await {
                    Err(Failure::Wrong(why)) => panic!("read {n}: {why}"),
                    _ => Ok(()),
                }
            }) as Op
        })
        .collect();
    let rest: Op = Box::pin(async move {
        group.move_ended().await;
        group.checkpoint().await?;
        // All free blocks are written, also at the old place of the extents.
        let blocks = group.info().available_blocks;
        let spec = VolumeSpec { kind: VolumeKind::Thick, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await?;
        for at in (0..blocks).step_by(64) {
            client.write(vol, at * BLOCK, 64.min(blocks - at) * BLOCK, &[]).await?;
        }
        Ok(())
    });
    made.world.run(async {
        made.client.group.start_move(all_of(FROM)).await.unwrap();
        let next = made.disks.requests(kind) + nth;
        made.disks.set_faults(Faults { slow: Some((kind, next, 3_000_000)), ..Faults::default() });
        let ops = requests.into_iter().chain([rest]).collect();
        made.client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
        let all = made.client.oracle.lock().readable();
        for vol in all {
            made.client.verify_all(vol).await.unwrap();
        }
        made.judge().await;
    });
}

#[test]
fn late_requests_meet_what_was_there() {
    (0..14).for_each(|nth| a_request_is_late(DiskOpKind::Read, nth));
    (0..80).for_each(|nth| a_request_is_late(DiskOpKind::Write, nth));
}

/// PM4: of the writes to both places one fails. Then the move ends, or the write fails.
fn a_copy_fails(numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let made = made(61);
        let at = made.disks.requests(DiskOpKind::Write) + number;
        made.disks.set_faults(Faults { fail: Some((DiskOpKind::Write, at)), ..Faults::default() });
        let outcome = made.world.try_run(async {
            let _ = made.move_under_load(all_of(FROM), number).await;
            made.disks.set_faults(Faults::default());
            if made.client.group.failed().is_ok() {
                made.judge().await;
            }
        });
        outcome.unwrap_or_else(|stuck| panic!("write {number}: {stuck}"));
    }
}

#[test]
fn a_write_fails_at_one_of_two_places() {
    a_copy_fails((10..250).step_by(6));
}

/// Requests that make no sense change nothing.
#[test]
fn what_cannot_be_moved_is_refused() {
    let made = made(41);
    made.world.run(async {
        let group = made.client.group.clone();
        let has = group.info().pvs[1].extents;
        let on = |pv: u16, extents: std::ops::Range<u64>| PvExtents { pv: PvIndex(pv), extents };
        let some = |first: u64, end: u64| NewMove { extents: std::iter::once(first..end).collect(), ..all_of(FROM) };
        let refused = [
            NewMove { from: PvIndex(3), ..all_of(FROM) },
            some(has, has + 1),
            some(5, 5),
            some(0, u64::MAX),
            NewMove { extents: vec![3..6, 0..4], ..all_of(FROM) },
            NewMove { to: vec![on(1, 0..has)], ..all_of(FROM) },
            NewMove { to: vec![on(7, 0..1)], ..all_of(FROM) },
            NewMove { to: vec![on(2, 0..has + 9)], ..all_of(FROM) },
        ];
        for wanted in refused {
            let refused = group.start_move(wanted.clone()).await;
            assert!(matches!(refused, Err(Error::Invalid(_) | Error::NotFound(_))), "{wanted:?}: {refused:?}");
            assert!(!group.is_moving());
        }
        group.start_move(all_of(FROM)).await.unwrap();
        assert!(matches!(group.start_move(all_of(FROM)).await, Err(Error::Busy(_))), "one at a time");
        assert!(matches!(group.vacate_pv(PvIndex(2)).await, Err(Error::Busy(_))), "none leaves meanwhile");
        group.stop_move();
        group.move_ended().await;
        assert_eq!(group.move_progress().failed, Some(Error::Closed));
        made.judge().await;
        // A group that is closed during a move ends the move first.
        group.start_move(all_of(FROM)).await.unwrap();
        made.client.close().await.unwrap();
        assert!(!group.is_moving());
    });
    let oracle = made.client.oracle.lock().clone();
    judge_image(&setup(), &oracle, Since::Death, made.end(), 3).unwrap();
}

#[test]
fn planted_bugs_are_found() {
    for bug in ["one_place_written", "move_forgotten"] {
        must_be_found(bug, || (0..6).for_each(|seed| cut_everywhere(seed + 20, 25)));
    }
    // PM2
    for bug in ["window_written_during_copy", "window_not_waited_for"] {
        must_be_found(bug, || {
            for seed in 0..60 {
                let made = made(70 + seed);
                made.world.run(async {
                    made.move_under_load(all_of(FROM), seed).await.unwrap();
                    made.judge().await;
                });
            }
        });
    }
    must_be_found("slot_overwritten", one_is_emptied_and_leaves);
    must_be_found("old_place_reused", || (0..80).for_each(|nth| a_request_is_late(DiskOpKind::Write, nth)));
}
