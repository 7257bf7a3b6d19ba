//! Groups that are 80 % full, whose snapshots come and go (rule L5).
//!
//! Rules N2, M5 and M9.

use parking_lot::Mutex;
use rowen_engine::disk::Disks;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind, VolumeState};
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{POLICIES, Room, SimDisks};
use rowen_sim::effort::one_in;
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use std::sync::Arc;

/// Snapshots that are kept.
const KEPT: usize = 4;
/// Blocks of a large write.
const LARGE: u64 = 256;
/// Writes in flight together.
const TOGETHER: u64 = 8;

/// `check` finds nothing.
fn is_sound(world: &World, disks: Arc<SimDisks>) {
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// A volume that fills most of its group, and the pattern of its writes.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    kind: VolumeKind,
    mib: u64,
    chunk_blocks: u32,
    /// Blocks of each write, aligned.
    write: u64,
    full: FullPolicy,
    pvs: usize,
}

impl Rotation {
    /// Fills the volume: a thick one in order, a thin one in random order.
    async fn fill(&self, client: &Client, vol: Vol, blocks: u64, rng: &mut Rng) {
        if self.kind == VolumeKind::Thick {
            for at in (0..blocks).step_by(LARGE as usize) {
                client.write(vol, at * BLOCK, LARGE.min(blocks - at) * BLOCK, &[]).await.unwrap();
            }
            return;
        }
        let mut order: Vec<u64> = (0..blocks / self.write).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
        for together in order.chunks(2 * TOGETHER as usize) {
            self.write(client, vol, together.iter().copied()).await.unwrap();
        }
    }

    /// Writes these places together, each of the size of a write.
    async fn write(&self, client: &Client, vol: Vol, places: impl Iterator<Item = u64>) -> Result<(), String> {
        let bytes = self.write * BLOCK;
        let ops = places.map(|at| {
            let client = client.clone();
            Box::pin(async move { client.write(vol, at * bytes, bytes, &[]).await }) as Op
        });
        let outcomes = client.together(ops.collect()).await;
        outcomes.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())
    }

    /// Three times the free space is overwritten at random, in rounds. Each round begins with a snapshot. The oldest
    /// snapshot is removed when there are too many. `Err`: the refusal, or the snapshot that was dropped.
    async fn rounds(&self, client: &Client, vol: Vol, blocks: u64, rng: &mut Rng) -> Result<(), String> {
        let info = client.group.info();
        let free = info.free_blocks;
        // All kept snapshots take at most half of the free space.
        let each = (free - info.blocks / 10) / 6;
        let rounds = 3 * free / each;
        let mut snapshots = Vec::new();
        for round in 0..rounds {
            let failure = |what: String| {
                let info = client.group.info();
                let free = info.free_blocks * 100 / info.blocks;
                format!("round {round} of {rounds}, {free} % free: {what}")
            };
            let made = client.snapshot(&[vol], SnapshotKind::default()).await;
            snapshots.extend(made.map_err(|error| failure(format!("a snapshot: {error}")))?);
            for _ in 0..each / self.write / TOGETHER {
                let places: Vec<u64> = (0..TOGETHER).map(|_| rng.below(blocks / self.write)).collect();
                self.write(client, vol, places.into_iter())
                    .await
                    .map_err(|error| failure(format!("a write: {error}")))?;
            }
            let volumes = client.group.volumes();
            if let Some(gone) = volumes.iter().find(|volume| volume.state == VolumeState::Invalid) {
                return Err(failure(format!("snapshot {} was dropped", gone.name)));
            }
            if snapshots.len() > KEPT {
                client.remove(&[snapshots.remove(0)]).await.unwrap();
                client.group.reclaim_idle().await.unwrap();
            }
        }
        Ok(())
    }

    fn run(&self, planted: Option<&'static str>) -> Result<(), String> {
        let world = World::new(91);
        let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(self.pvs, self.mib) };
        let (disks, group) = setup.make(&world).unwrap();
        disks.without_cache();
        let client = Client::new(world.handle(), group, Arc::default());
        let outcome = world.run(async {
            let rng = &mut Rng::new(91);
            let blocks = client.group.info().blocks * 8 / 10 / 16 * 16;
            let spec = VolumeSpec { kind: self.kind, blocks, chunk_blocks: self.chunk_blocks, full: self.full };
            let vol = client.create(spec).await.unwrap();
            self.fill(&client, vol, blocks, rng).await;
            client.checkpoint().await.unwrap();
            self.rounds(&client, vol, blocks, rng).await?;
            client.verify_all(vol).await.unwrap();
            client.close().await.unwrap();
            Ok(())
        });
        if outcome.is_ok() {
            is_sound(&world, disks);
        }
        outcome
    }
}

const THICK_64_KIB: Rotation =
    Rotation { kind: VolumeKind::Thick, mib: 256, chunk_blocks: 1, write: 16, full: FullPolicy::Fail, pvs: 1 };
const THICK_4_KIB: Rotation =
    Rotation { kind: VolumeKind::Thick, mib: 128, chunk_blocks: 16, write: 1, full: FullPolicy::DropSnapshot, pvs: 1 };
const THIN_4_KIB: Rotation =
    Rotation { kind: VolumeKind::Thin, mib: 64, chunk_blocks: 16, write: 1, full: FullPolicy::Fail, pvs: 2 };

#[test]
fn large_pieces_of_a_thick_volume() {
    assert_eq!(THICK_64_KIB.run(None), Ok(()));
}

#[test]
fn small_pieces_of_a_thick_volume() {
    assert_eq!(THICK_4_KIB.run(None), Ok(()));
}

#[test]
fn small_pieces_of_a_thin_volume() {
    assert_eq!(THIN_4_KIB.run(None), Ok(()));
}

#[test]
fn growth_by_whole_extents_alone_is_found() {
    let outcome = THIN_4_KIB.run(Some("grow_by_extents"));
    assert!(outcome.is_err(), "the planted bug was not found");
}

/// Blocks of the volume whose snapshots take metadata.
const BLOCKS: u64 = 1000;
/// A leaf of its map has more extents than this.
const LEAF: u64 = 80;
/// While metadata grows, one disk event in this many is cut.
const CUT_EACH: u64 = 47;

/// A volume in random order, and another that fills the group, of which every other block is free.
async fn fill_with_single_blocks(client: &Client, rng: &mut Rng) -> Vol {
    let spec = |blocks| VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
    let vol = client.create(spec(BLOCKS)).await.unwrap();
    let mut order: Vec<u64> = (0..BLOCKS).collect();
    (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    for block in order {
        client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
    }
    let rest = client.group.info().free_blocks - 100;
    let filler = client.create(spec(rest)).await.unwrap();
    for at in (0..rest).step_by(64) {
        client.write(filler, at * BLOCK, 64.min(rest - at) * BLOCK, &[]).await.unwrap();
    }
    for block in (0..rest).step_by(2) {
        client.zero(filler, block * BLOCK, BLOCK, false).await.unwrap();
    }
    client.checkpoint().await.unwrap();
    vol
}

/// Metadata grows by single blocks while the power fails at disk events all over that time. Returns the first error.
fn cuts_of_growth(pvs: usize, planted: Option<&'static str>) -> Result<(), String> {
    let world = World::new(92);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(pvs, 24 / pvs as u64) };
    let (disks, group) = setup.make(&world).unwrap();
    let oracle = Arc::<Mutex<Oracle>>::default();
    let client = Client::new(world.handle(), group, oracle.clone());
    let rng = &mut Rng::new(92);
    let vol = world.run(fill_with_single_blocks(&client, rng));
    let before = client.group.info().metadata_blocks;
    let (mut events, mut judged) = (0, Ok(()));
    let cut_each = if planted.is_some() { CUT_EACH } else { one_in(CUT_EACH) };
    // So making room behind the new metadata takes time, and checkpoints are taken meanwhile.
    disks.set_room(Some(Room::new([], 1 << 20)));
    disks.keep_moments();
    let mut observe = || {
        for moment in disks.take_moments() {
            events += 1;
            if events % cut_each == 0 && judged.is_ok() {
                let image = moment.power_cut(*rng.pick(&POLICIES), rng);
                let outcome = judge_image(&setup, &oracle.lock(), Since::PowerLoss, image, rng.bits());
                judged = outcome.map_err(|what| format!("cut before event {}: {what}", moment.event));
            }
        }
    };
    let growing = async {
        for round in 0.. {
            if client.group.info().metadata_blocks >= before + 2 * 400 {
                return;
            }
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            let mut ops: Vec<Op> = Vec::new();
            for block in (round % LEAF..BLOCKS).step_by(LEAF as usize) {
                let (writer, other) = (client.clone(), client.clone());
                ops.push(Box::pin(async move { writer.write(vol, block * BLOCK, BLOCK, &[]).await }));
                ops.push(Box::pin(async move { other.checkpoint().await }));
            }
            client.together(ops).await.into_iter().for_each(|done| done.unwrap());
        }
    };
    world.try_run_observed(growing, &mut observe).unwrap();
    println!("{events} events");
    world.run(async {
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    judged
}

#[test]
fn the_power_is_cut_while_metadata_grows_by_single_blocks() {
    for pvs in [1, 2] {
        assert_eq!(cuts_of_growth(pvs, None), Ok(()), "{pvs} physical volumes");
    }
}

#[test]
fn runs_that_are_lost_while_metadata_grows_are_found() {
    assert!(cuts_of_growth(1, Some("growth_forgotten")).is_err(), "the planted bug was not found");
}

/// Snapshots that are taken and pruned while counters are observed.
const PRUNED: u64 = 2000;
/// Rounds between two observations.
const LOOK_EACH: u64 = 50;

/// The number of counters of dead blocks is bounded by the epochs of the snapshots that exist, not by all that ever
/// existed. Reports say how much a snapshot frees. Returns the first error.
fn pruning(planted: Option<&'static str>) -> Result<(), String> {
    const VOLUME: u64 = 512;
    let world = World::new(93);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 32) };
    let (disks, group) = setup.make(&world).unwrap();
    disks.without_cache();
    let client = Client::new(world.handle(), group, Arc::default());
    let outcome = world.run(async {
        let rng = &mut Rng::new(93);
        let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: VOLUME, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        let settled = async || {
            client.group.reclaim_idle().await.unwrap();
            client.checkpoint().await.unwrap();
            let info = client.group.info();
            info.free_blocks + info.pending_blocks + info.metadata_blocks
        };
        let mut snapshots = Vec::new();
        let mut most = 0;
        for round in 0..PRUNED {
            snapshots.extend(client.snapshot(&[vol], SnapshotKind::default()).await.unwrap());
            for _ in 0..4 {
                client.write(vol, rng.below(VOLUME) * BLOCK, BLOCK, &[]).await.unwrap();
            }
            if snapshots.len() < 6 {
                continue;
            }
            let victim = snapshots.remove(rng.below(4) as usize);
            let looks = round % LOOK_EACH == 0;
            let before = if looks { settled().await } else { 0 };
            let id = client.id(victim).unwrap();
            let reported = client.group.volumes().iter().find(|volume| volume.id == id).unwrap().freed_if_removed;
            client.remove(&[victim]).await.unwrap();
            if looks {
                let freed = settled().await - before;
                if freed != reported {
                    return Err(format!("round {round}: {reported} blocks were to be freed, {freed} were"));
                }
                let (counters, points) = client.group.max_dead_counters();
                most = most.max(counters);
                if counters > points {
                    return Err(format!("round {round}: {counters} counters in one tree, {points} points"));
                }
            }
        }
        println!("{most} counters at the most");
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
        Ok(())
    });
    if outcome.is_ok() {
        is_sound(&world, disks);
    }
    outcome
}

#[test]
fn counters_of_dead_blocks_are_bounded_by_the_points_that_there_are() {
    assert_eq!(pruning(None), Ok(()));
}

#[test]
fn a_counter_for_each_birth_is_found() {
    assert!(pruning(Some("dead_never_folded")).is_err(), "the planted bug was not found");
}
