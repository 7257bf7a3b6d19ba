//! Free blocks are discarded while volumes are written. The power fails, the server dies, or a disk fails at any moment
//! (rules DC1 to DC6). On the simulated disk, discarded blocks hold their old contents, zeros, or rubbish.

use parking_lot::Mutex;
use rowen_engine::discards::Policy;
use rowen_engine::disk::{DiscardLimits, DiskOpKind, Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, Group, NewMove, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Failure, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Effort, Explorer, Report, Setup, judge_image};
use rowen_sim::disk::{Faults, Image, POLICIES, Room, SimDisks};
use rowen_sim::effort::scaled;
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use rowen_sim::scenario;
use rowen_sim::worlds::members;
use std::sync::Arc;
use std::time::Duration;

const ALL: Policy = Policy { freed: true, passed_down: true };

fn setup(pvs: usize, mib: u64, discards: Policy) -> Setup {
    let setup = Setup::small(pvs, mib);
    Setup { config: Config { discards, min_discarded: 1, ..setup.config }, ..setup }
}

struct Made {
    setup: Setup,
    world: World,
    disks: Arc<SimDisks>,
    client: Client,
    vols: Vec<Vol>,
}

/// Two thick volumes and a thin one, written in part.
fn made(setup: Setup, seed: u64) -> Made {
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::new(Mutex::new(Oracle::default())));
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
        client.checkpoint().await.unwrap();
        vols
    });
    Made { setup, world, disks, client, vols }
}

impl Made {
    fn group(&self) -> &Arc<Group> {
        &self.client.group
    }

    /// Writes, discards, snapshots and removals, on each volume by a client of its own.
    async fn load(&self, rounds: u64, seed: u64) {
        let ops: Vec<Op> = self.vols.iter().map(|vol| self.work(*vol, rounds, seed + u64::from(*vol))).collect();
        self.client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
    }

    fn work(&self, vol: Vol, rounds: u64, seed: u64) -> Op {
        let (client, handle) = (self.client.clone(), self.world.handle());
        Box::pin(async move {
            let mut rng = Rng::new(seed);
            for n in 0..rounds {
                let at = rng.below(1100);
                match n % 8 {
                    1 | 4 | 6 => client.zero(vol, at * BLOCK, rng.range(1, 90) * BLOCK, false).await?,
                    _ => client.write(vol, at * BLOCK + rng.below(8), rng.range(1, 90), &[]).await?,
                }
                if n % 5 == 0 {
                    client.flush(vol).await?;
                }
                if n % 16 == 7 {
                    let made = client.snapshot(&[vol], SnapshotKind::default()).await?;
                    client.write(vol, at * BLOCK, 20 * BLOCK, &[]).await?;
                    client.remove(&made).await?;
                }
                if n % 12 == 3 {
                    client.checkpoint().await?;
                }
                if let Err(Failure::Wrong(why)) = client.verify(vol, at * BLOCK, 8).await {
                    panic!("{why}");
                }
                handle.sleep(Duration::from_micros(rng.below(2000))).await;
            }
            Ok(())
        })
    }

    async fn judge(&self) {
        for vol in &self.vols {
            self.client.verify_all(*vol).await.unwrap();
        }
        let check = self.group().check_open().await.unwrap();
        assert_eq!(check.findings, Vec::<String>::new());
    }

    fn end(&self) -> Image {
        members(&self.disks.moment().killed(&mut Rng::new(2))).unwrap()
    }

    /// The contents are what the oracle allows, whatever power loss makes of them.
    fn judge_cuts(&self, seed: u64) {
        let oracle = self.client.oracle.lock().clone();
        for policy in POLICIES.into_iter().map(Some).chain([None]) {
            let image = members(&self.disks.moment().crash(policy, &mut Rng::new(seed))).unwrap();
            let since = if policy.is_some() { Since::PowerLoss } else { Since::Death };
            if let Err(why) = judge_image(&self.setup, &oracle, since, image, seed + 1) {
                panic!("seed {seed}, {policy:?}: {why}");
            }
        }
    }
}

fn explore(planted: Option<&'static str>, name: &str, seed: u64, effort: Effort) -> Report {
    let mut setup = if seed % 2 == 1 { setup(1, 24, ALL) } else { setup(2, 16, ALL) };
    setup.config.planted = planted;
    let steps = match name {
        "random" => scenario::random(&mut Rng::new(seed), 30),
        name => scenario::scripted().into_iter().find(|(other, _)| *other == name).unwrap().1,
    };
    Explorer { setup: &setup, effort, seed, only: None, skip_steps: 0 }.explore(&steps)
}

/// DC1, DC2: the power is cut at commands of scenarios in which all freed blocks are discarded.
#[test]
fn power_fails_while_space_is_given_back() {
    let mut sum = Report::default();
    for (name, _) in scenario::scripted() {
        sum.add(explore(None, name, 3, Effort { sample: 4, recovery: 100, ..Effort::default() }));
    }
    for seed in 1..=scaled(30) {
        sum.add(explore(None, "random", seed, Effort { sample: 6, recovery: 100, ..Effort::default() }));
    }
    assert!(sum.failures == 0, "{}", sum.findings.join("\n"));
}

/// The same for a trim of all free blocks, under load.
fn trimmed_under_load(seed: u64) {
    let made = made(setup(2, 16, ALL), seed);
    made.disks.keep_moments();
    let (client, mut states) = (made.client.clone(), 0);
    let mut judge = |moment: &rowen_sim::disk::Moment| {
        if moment.event % 97 != 0 {
            return;
        }
        for policy in POLICIES.into_iter().map(Some).chain([None]) {
            let image = members(&moment.crash(policy, &mut Rng::new(moment.event + seed))).unwrap();
            let since = if policy.is_some() { Since::PowerLoss } else { Since::Death };
            let oracle = client.oracle.lock().clone();
            if let Err(why) = judge_image(&made.setup, &oracle, since, image, moment.event + 1) {
                panic!("seed {seed}, event {}, {policy:?}: {why}", moment.event);
            }
            states += 1;
        }
    };
    let disks = made.disks.clone();
    let mut observe = || disks.take_moments().iter().for_each(&mut judge);
    let work = async {
        made.group().start_trim().unwrap();
        assert!(matches!(made.group().start_trim(), Err(Error::Busy(_))));
        made.load(40, seed).await;
        made.group().trim_ended().await;
        let trim = made.group().trim_progress();
        assert!(trim.failed.is_none() && trim.bytes > 1 << 20, "{trim:?}");
        made.group().start_trim().unwrap();
        made.group().trim_ended().await;
        made.judge().await;
    };
    made.world.try_run_observed(work, &mut observe).unwrap();
    assert!(states > 10, "{states} states");
    made.judge_cuts(seed);
}

#[test]
fn free_space_is_trimmed_under_load() {
    (1..=scaled(4)).for_each(trimmed_under_load);
}

/// DC1, DC3: free blocks are discarded at their present place, while extents move, and after that.
fn trimmed_where_it_lies(planted: Option<&'static str>, seed: u64) {
    let mut setup = setup(3, 16, ALL);
    setup.config.planted = planted;
    let made = made(setup, seed);
    made.world.run(async {
        // Nothing new is placed there.
        made.group().set_allocatable(PvIndex(1), false).await.unwrap();
        let moves = NewMove { from: PvIndex(1), extents: Vec::new(), to: Vec::new(), volume: None };
        made.group().start_move(moves).await.unwrap();
        made.group().start_trim().unwrap();
        made.load(24, seed).await;
        made.group().move_ended().await;
        made.group().trim_ended().await;
        made.judge().await;
        made.group().start_trim().unwrap();
        made.load(12, seed + 7).await;
        made.group().trim_ended().await;
        made.judge().await;
        let trim = made.group().trim_progress();
        assert!(trim.failed.is_none() && trim.done * 4096 >= trim.bytes && trim.bytes > 0, "{trim:?}");
        // No block is in use there any more.
        made.group().checkpoint().await.unwrap();
        made.group().vacate_pv(PvIndex(1)).await.unwrap();
        made.group().close_without(PvIndex(1)).await.unwrap();
    });
    let oracle = made.client.oracle.lock().clone();
    judge_image(&made.setup, &oracle, Since::Death, made.end(), 3).unwrap();
}

#[test]
fn what_is_free_is_discarded_where_it_lies() {
    (1..=scaled(4)).for_each(|seed| trimmed_where_it_lies(None, seed));
}

/// DC2: a discard takes long. Writes to its blocks wait for it.
fn written_meanwhile(planted: bool, seed: u64) {
    let made = made(setup(1, 32, ALL), seed);
    made.world.run(async {
        let next = made.disks.requests(DiskOpKind::Discard);
        made.disks.set_faults(Faults { slow: Some((DiskOpKind::Discard, next, 500_000)), ..Faults::default() });
        made.group().start_trim().unwrap();
        made.load(16, seed).await;
        made.group().trim_ended().await;
        assert!(made.disks.requests(DiskOpKind::Discard) > next || planted);
        made.judge().await;
    });
    made.judge_cuts(seed);
}

#[test]
fn writes_wait_for_a_discard() {
    (1..=scaled(6)).for_each(|seed| written_meanwhile(false, seed));
}

/// DC3: a discard takes long, and the group is closed. The next opening writes to the blocks of that discard.
fn closed_meanwhile(planted: Option<&'static str>, seed: u64) {
    let mut setup = setup(1, 24, ALL);
    setup.config.planted = planted;
    let made = made(setup.clone(), seed);
    made.world.run(async {
        let next = made.disks.requests(DiskOpKind::Discard);
        made.disks.set_faults(Faults { slow: Some((DiskOpKind::Discard, next, 500_000)), ..Faults::default() });
        made.group().start_trim().unwrap();
        while made.disks.requests(DiskOpKind::Discard) == next {
            made.world.handle().sleep(Duration::from_micros(50)).await;
        }
        made.client.close().await.unwrap();
        let group = Group::open(made.disks.clone() as Arc<dyn Disks>, made.world.handle(), setup.config.clone()).await;
        let client = Client::new(made.world.handle(), group.unwrap(), made.client.oracle.clone());
        let blocks = client.group.info().available_blocks;
        let spec = VolumeSpec { kind: VolumeKind::Thick, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        for at in (0..blocks).step_by(64) {
            client.write(vol, at * BLOCK, 64.min(blocks - at) * BLOCK, &[]).await.unwrap();
        }
        made.world.handle().sleep(Duration::from_secs(2)).await;
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
}

#[test]
fn a_closed_group_has_no_discard_under_way() {
    (1..=scaled(3)).for_each(|seed| closed_meanwhile(None, seed));
}

/// DC4: disks that do not support discards, or fail some, cause no error, and get no more discards.
fn refused(planted: Option<&'static str>) {
    let mut setup = setup(1, 24, ALL);
    setup.config.planted = planted;
    let made = made(setup, 5);
    made.disks.set_faults(Faults { fail_from: Some((DiskOpKind::Discard, 1)), ..Faults::default() });
    made.world.run(async {
        made.load(24, 9).await;
        made.group().start_trim().unwrap();
        made.group().trim_ended().await;
        assert!(made.group().trim_progress().failed.is_none());
        let asked = made.disks.requests(DiskOpKind::Discard);
        let errors = made.group().discard_errors();
        assert_eq!(errors.iter().map(|error| error.pv).collect::<Vec<_>>(), [PvIndex(0)]);
        made.load(12, 10).await;
        made.client.checkpoint().await.unwrap();
        assert_eq!((made.disks.requests(DiskOpKind::Discard), made.group().discard_errors()), (asked, vec![]));
        made.judge().await;
    });
    let limits = DiscardLimits { granularity: 0, is_whole: false };
    made.disks.set_faults(Faults { discards: limits, ..Faults::default() });
}

#[test]
fn failed_discards_cause_no_error() {
    refused(None);
}

/// Room behind the disks becomes free. If all freed blocks are discarded: the room of removed volumes. If discards are
/// passed down: the room of blocks that were discarded on thick and thin volumes. With a trim: the room of all free
/// blocks. The blocks of snapshots stay.
#[test]
fn room_comes_back() {
    for (policy, removed, discarded) in [
        (ALL, true, true),
        (Policy { freed: false, passed_down: true }, false, true),
        (Policy { freed: true, passed_down: false }, true, false),
        (Policy::default(), false, false),
    ] {
        let made = made(setup(1, 48, policy), 3);
        let all: u64 = 12 << 10;
        made.disks.set_room(Some(Room::new((0..all).map(|page| (PvIndex(0), page)), 0)));
        let left = || made.disks.room().unwrap().left();
        made.world.run(async {
            let [thick, gone, thin] = made.vols[..] else { unreachable!("three") };
            let settle = async || {
                made.world.handle().sleep(Duration::from_secs(3)).await;
                made.client.checkpoint().await.unwrap();
                made.world.handle().sleep(Duration::from_secs(3)).await;
            };
            // Blocks that are discarded on a thin volume become free.
            for (vol, comes_back) in [(thick, discarded), (thin, discarded || removed)] {
                let before = left();
                made.client.zero(vol, 0, 600 * BLOCK, false).await.unwrap();
                settle().await;
                let back = left() - before;
                assert_eq!(back > 450, comes_back, "{policy:?}: {back} pages of volume {vol}");
            }
            let kept = made.client.snapshot(&[gone], SnapshotKind::default()).await.unwrap();
            let before = left();
            made.client.zero(gone, 0, 600 * BLOCK, false).await.unwrap();
            settle().await;
            assert!(left() - before < 50, "{policy:?}: a snapshot holds it");
            made.client.remove(&kept).await.unwrap();
            made.client.remove(&[gone]).await.unwrap();
            made.group().reclaim_idle().await.unwrap();
            settle().await;
            assert_eq!(left() - before > 900, removed, "{policy:?}: {} pages of what was removed", left() - before);
            made.group().start_trim().unwrap();
            made.group().trim_ended().await;
            let free = made.group().info().free_blocks;
            assert!(left() * 20 > free * 19, "{policy:?}: {} pages came back of {free} free blocks", left());
            for vol in [thick, thin] {
                made.client.verify_all(vol).await.unwrap();
            }
        });
    }
}

/// DC6: a trim right after a removal discards the blocks that the removal frees.
fn trimmed_after_removal(planted: Option<&'static str>, seed: u64) {
    let mut setup = setup(1, 48, Policy::default());
    setup.config.planted = planted;
    let made = made(setup, seed);
    made.world.run(async {
        let held = made.group().info().free_blocks;
        made.client.remove(&made.vols).await.unwrap();
        made.group().start_trim().unwrap();
        made.group().trim_ended().await;
        let trim = made.group().trim_progress();
        assert!(trim.failed.is_none() && trim.done > held + 3000, "{trim:?}, {held} blocks were free before");
    });
}

#[test]
fn what_was_just_removed_is_trimmed() {
    (1..=scaled(6)).for_each(|seed| trimmed_after_removal(None, seed));
}

#[test]
fn finds_trims_before_removals() {
    finds("trimmed_before_removals", trimmed_after_removal);
}

/// A disk that has all of its room keeps it, unless a trim is requested.
#[test]
fn a_whole_file_stays_whole() {
    let made = made(setup(1, 24, Policy { freed: false, passed_down: true }), 4);
    let whole = Faults { discards: DiscardLimits { granularity: 65536, is_whole: true }, ..Faults::default() };
    made.disks.set_faults(whole);
    made.world.run(async {
        made.client.zero(made.vols[0], 0, 1000 * BLOCK, false).await.unwrap();
        made.world.handle().sleep(Duration::from_secs(3)).await;
        assert_eq!(made.disks.requests(DiskOpKind::Discard), 0);
        // All of it is in whole parts of this size: the disk would report more.
        let watch = |op: &rowen_engine::disk::DiskOp| {
            if let rowen_engine::disk::DiskOp::Discard { segments } = op {
                let odd = |s: &rowen_engine::disk::Segment| (s.offset | u64::from(s.len)) % 65536 != 0;
                assert!(!segments.iter().any(odd), "{segments:?}");
            }
        };
        made.disks.watch(Box::new(watch));
        made.group().start_trim().unwrap();
        made.group().trim_ended().await;
        assert!(made.disks.requests(DiskOpKind::Discard) > 0);
    });
}

/// DC5: without discards in the settings, the disks get none.
#[test]
fn nothing_is_given_back_unasked() {
    let made = made(setup(1, 24, Policy::default()), 4);
    made.world.run(async {
        made.load(40, 3).await;
        made.client.remove(&made.vols[..1]).await.unwrap();
        made.world.handle().sleep(Duration::from_secs(5)).await;
    });
    assert_eq!(made.disks.requests(DiskOpKind::Discard), 0);
}

fn finds(bug: &'static str, one: impl Fn(Option<&'static str>, u64) + Send + Sync + 'static) {
    must_be_found(bug, move || (1..30).for_each(|seed| one(Some(bug), seed)));
}

fn explored(planted: Option<&'static str>, seed: u64) {
    let scripts = scenario::scripted();
    let name = scripts[seed as usize % scripts.len()].0;
    let report = explore(planted, name, seed, Effort { recovery: 200, ..Effort::default() });
    assert!(report.failures == 0, "{}", report.findings.join("\n"));
}

#[test]
fn finds_discards_before_their_checkpoint() {
    finds("discards_early", explored);
}

#[test]
fn finds_discards_of_what_is_in_use() {
    finds("discards_used_blocks", |planted, seed| {
        let mut setup = setup(1, 24, ALL);
        setup.config.planted = planted;
        let made = made(setup, seed);
        made.world.run(async {
            made.load(60, seed).await;
            made.judge().await;
        });
    });
}

#[test]
fn finds_writes_that_do_not_wait() {
    must_be_found("written_while_discarded", || (1..12).for_each(|seed| written_meanwhile(true, seed)));
}

#[test]
fn finds_discards_at_home() {
    finds("discards_ignore_moves", trimmed_where_it_lies);
}

#[test]
fn finds_discards_of_closed_groups() {
    finds("discards_during_checkpoints", closed_meanwhile);
}

#[test]
fn finds_discards_that_are_needed() {
    must_be_found("discard_failure_stops", || refused(Some("discard_failure_stops")));
}
