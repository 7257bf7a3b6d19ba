//! Blocks of the journal's ring that cannot be written (J7). Each costs only itself, and the group continues.

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOp, DiskOpKind, Disks, PvIndex};
use rowen_engine::format::superblock::{FEATURE_BAD_RUNS, GroupRoot, SLOTS, Superblock};
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Effort, Explorer, Report, Setup, judge_group, read_all};
use rowen_sim::disk::{Faults, Image, SimDisks};
use rowen_sim::effort;
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{self, Step, Target};
use std::sync::Arc;

const PV: PvIndex = PvIndex(0);
/// Where the ring begins, and its blocks.
const RING: u64 = 1 << 20;
const RING_BLOCKS: u64 = 256;

/// A group on a disk with these bad blocks of the ring: one sector of each cannot be written.
fn setup(bad: &[u64], planted: Option<&'static str>) -> Setup {
    let small = Setup::small(1, 24);
    let places = bad.iter().map(|block| (PV, RING + block * 4096 + 512 * (block % 8), 512)).collect();
    let faults = Faults { broken: Some((DiskOpKind::Write, places)), ..Faults::default() };
    Setup { config: Config { planted, ..small.config.clone() }, faults, ..small }
}

fn thin(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

/// Writes that each need a record, several at a time, before and after snapshots.
async fn work(client: &Client, vol: Vol, rounds: u64) -> Result<(), String> {
    let mut rng = Rng::new(rounds);
    for round in 0..rounds {
        let ops = (0..rng.range(1, 9)).map(|at| {
            let (client, sector) = (client.clone(), (round * 40 + at * 4) % 960 * BLOCK);
            Box::pin(async move { client.write(vol, sector, BLOCK, &[]).await }) as Op
        });
        for outcome in client.together(ops.collect()).await {
            outcome.map_err(|e| e.to_string())?;
        }
        if round % 3 == 0 {
            client.flush(vol).await.map_err(|e| e.to_string())?;
        }
        if round % 16 == 0 {
            let snapshot = client.snapshot(&[vol], Default::default()).await.map_err(|e| e.to_string())?;
            client.remove(&snapshot).await.map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Fills the ring several times. Returns the known bad blocks at the end, the frames written, and the state of the
/// disk.
fn several_rounds(setup: &Setup) -> Result<(u64, u64, Image, Oracle), String> {
    let world = World::new(71);
    let (disks, group) = setup.make(&world).unwrap();
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group.clone(), oracle.clone());
    world.run(async {
        let vol = client.create(thin(1000)).await.map_err(|e| e.to_string())?;
        work(&client, vol, 700).await?;
        client.verify_all(vol).await.map_err(|e| e.to_string())
    })?;
    let stats = group.stats();
    let image = disks.moment().killed(&mut Rng::new(71));
    let oracle = oracle.lock().clone();
    Ok((stats.ring_blocks_bad, stats.journal_frames, image, oracle))
}

/// The newest root on a physical volume.
fn root(image: &Image, pv: PvIndex) -> GroupRoot {
    let slots = (0..SLOTS).filter_map(|slot| {
        let mut block = [0; 4096];
        image.read(pv, 4096 + slot * 4096, &mut block);
        Superblock::decode(&block, "here").unwrap()
    });
    slots.max_by_key(|found| found.sequence).unwrap().group.unwrap()
}

/// Opens it on the same disk, compares everything, checks it, and closes it.
fn opens(setup: &Setup, image: Image, oracle: &Oracle) -> Result<Image, String> {
    let world = World::new(72);
    let disks = SimDisks::with_image(world.handle(), image);
    disks.set_faults(setup.faults.clone());
    let opening = Group::open(disks.clone() as Arc<dyn Disks>, world.handle(), setup.config.clone());
    let group = world.run(opening).map_err(|e| e.to_string())?;
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    let found = world.run(read_all(&client))?;
    judge_group(oracle, &group.volumes(), &found, Since::Death)?;
    let check = world.run(group.check_open()).map_err(|e| e.to_string())?;
    assert_eq!(check.findings, Vec::<String>::new());
    assert_eq!(check.notes.len(), root(&disks.current(), PV).bad.runs().len(), "{:?}", check.notes);
    assert!(check.notes.iter().all(|note| note.contains("cannot be written")), "{:?}", check.notes);
    world.run(group.close()).map_err(|e| e.to_string())?;
    Ok(disks.current())
}

#[test]
fn bad_sectors_cost_themselves() {
    for bad in
        [&[5][..], &[0], &[255], &[127, 128], &[0, 1, 7, 40, 41, 42, 130, 250, 254], &(20..60).collect::<Vec<_>>()]
    {
        let setup = setup(bad, None);
        let (known, frames, image, oracle) = several_rounds(&setup).unwrap_or_else(|e| panic!("{bad:?}: {e}"));
        assert!(frames > 3 * RING_BLOCKS, "{frames}");
        assert_eq!(known, bad.len() as u64, "{bad:?}");
        let features = root(&image, PV).features;
        assert!(features & FEATURE_BAD_RUNS != 0, "an older program refuses the group");
        let closed = opens(&setup, image, &oracle).unwrap();
        // The bad blocks are still known.
        let runs = root(&closed, PV).bad.runs().to_vec();
        assert_eq!(runs.into_iter().flatten().collect::<Vec<_>>(), bad);
    }
}

#[test]
fn a_disk_without_them_is_as_it_was() {
    let setup = setup(&[], None);
    let (known, _, image, oracle) = several_rounds(&setup).unwrap();
    assert_eq!(known, 0);
    assert_eq!(root(&image, PV).features & FEATURE_BAD_RUNS, 0);
    opens(&setup, image, &oracle).unwrap();
}

#[test]
fn a_group_that_stops_at_a_bad_sector_is_found() {
    let why = several_rounds(&setup(&[5], Some("bad_ring_stops_group"))).err().unwrap();
    assert!(why.contains("stopped"), "{why}");
}

/// One write to the ring fails, and the next write to the same place does not.
#[test]
fn a_passing_fault_marks_nothing() {
    let setup = setup(&[], None);
    let world = World::new(73);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    let last: Arc<Mutex<u64>> = Arc::default();
    let seen = last.clone();
    disks.watch(Box::new(move |op| {
        if let DiskOp::Write { buf, .. } = op
            && buf.as_slice().starts_with(b"ROWENJRN")
        {
            *seen.lock() += 1;
        }
    }));
    world.run(async {
        let vol = client.create(thin(1000)).await.unwrap();
        for round in 0..40 {
            // Data and frame: one of the two writes fails.
            let at = disks.requests(DiskOpKind::Write) + round % 2;
            client.snapshot(&[vol], Default::default()).await.unwrap();
            disks.set_faults(Faults { fail: Some((DiskOpKind::Write, at + 1)), ..Faults::default() });
            let _ = client.write(vol, round * BLOCK, BLOCK, &[]).await;
            client.flush(vol).await.unwrap();
        }
        client.verify_all(vol).await.unwrap();
    });
    assert!(*last.lock() > 40);
    assert_eq!(group.stats().ring_blocks_bad, 0);
}

/// A ring that cannot be written at all, and one with too many bad blocks: the group stops with a message.
#[test]
fn too_many_of_them_stop_the_group() {
    for bad in [(0..RING_BLOCKS).collect::<Vec<_>>(), (0..RING_BLOCKS).step_by(9).collect()] {
        let why = several_rounds(&setup(&bad, None)).err().unwrap();
        assert!(why.contains("write failed on physical volume 0"), "{why}");
    }
}

/// The journal moves because its physical volume leaves. Bad blocks of the old place are not bad at the new one.
#[test]
fn another_place_has_other_sectors() {
    let one = setup(&[3, 9], None);
    let setup = Setup { pvs: vec![one.pvs[0]; 2], ..one };
    let world = World::new(74);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    world.run(async {
        let vol = client.create(thin(1000)).await.unwrap();
        work(&client, vol, 20).await.unwrap();
        client.remove(&[vol]).await.unwrap();
        assert_eq!((group.stats().ring_blocks_bad, group.bad_places().len()), (2, 2));
        group.reclaim_idle().await.unwrap();
        group.close_without(PV).await.unwrap();
    });
    let left = root(&disks.current(), PvIndex(1));
    assert!(left.bad.is_empty() && left.features & FEATURE_BAD_RUNS == 0, "{left:?}");
    assert_eq!(left.pvs.len(), 1);
}

fn explore(steps: &[Step], bad: &[u64], planted: Option<&'static str>, seed: u64) -> Report {
    let setup = setup(bad, planted);
    let effort = Effort {
        recovery: 60,
        resume: 16,
        sample: if planted.is_some() { 1 } else { effort::one_in(2) },
        ..Effort::default()
    };
    Explorer { setup: &setup, effort, seed, only: None, skip_steps: 0 }.explore(steps)
}

/// Commands and checkpoints together: a capture while frames of commands are in flight.
fn during_checkpoints() -> Vec<Step> {
    let mut steps = vec![Step::Create(thin(64)), Step::Write(Target::A, 0, 64)];
    for round in 0..6 {
        let at = round * 2 * BLOCK;
        steps.push(Step::Together(vec![Step::Snapshot(Target::A, SnapshotKind::default()), Step::Checkpoint]));
        steps.extend([
            Step::Write(Target::A, at, BLOCK),
            Step::Flush(Target::A),
            Step::Write(Target::A, at + BLOCK, BLOCK),
        ]);
        steps.extend([Step::Flush(Target::A), Step::Remove(vec![Target::Snap(0)])]);
    }
    steps
}

/// Scenarios on rings whose first blocks are bad, cut at every disk command. `planted`: until the bug is found.
fn explore_all(planted: Option<&'static str>) -> Report {
    let mut all = Report::default();
    let wanted = ["snapshots", "queue-depth", "checkpoints"];
    let scripted = scenario::scripted().into_iter().filter(|(name, _)| wanted.contains(name));
    for (name, steps) in [("beside checkpoints", during_checkpoints())].into_iter().chain(scripted) {
        for (seed, bad) in [&[0, 2, 3][..], &[1, 4, 6, 9], &[2, 5, 7, 8, 12]].into_iter().enumerate() {
            let mut report = explore(&steps, bad, planted, seed as u64 + 1);
            report.findings.iter_mut().for_each(|finding| *finding = format!("{name}, {bad:?}: {finding}"));
            all.add(report);
            if planted.is_some() && all.failures > 0 {
                return all;
            }
        }
    }
    println!(
        "{} states, {} of recoveries, {} bad blocks met",
        all.states, all.recovery_states, all.stats.ring_blocks_bad
    );
    all
}

#[test]
fn power_cuts_while_they_are_met() {
    let report = explore_all(None);
    assert!(report.failures == 0, "{}", report.findings.join("\n"));
    assert!(
        report.states > effort::scaled(5000) && report.stats.ring_blocks_bad > effort::scaled(1000),
        "{} {:?}",
        report.states,
        report.stats
    );
}

#[test]
fn frames_behind_an_unrecorded_bad_block_are_found() {
    let report = explore_all(Some("bad_ring_not_recorded"));
    assert!(report.failures > 0);
}

#[test]
fn frames_out_of_order_are_found() {
    let report = explore_all(Some("bad_ring_later_frames_stay"));
    assert!(report.failures > 0);
}

/// A capture must fall between the write of a frame and its failure, so more seeds are drawn. Either the bug is found,
/// or all runs are right.
fn captures(planted: Option<&'static str>, seeds: impl Iterator<Item = u64>) -> Report {
    let mut all = Report::default();
    for seed in seeds {
        for bad in [&[0, 2, 3][..], &[1, 4, 6, 9], &[2, 5, 7, 8, 12]] {
            all.add(explore(&during_checkpoints(), bad, planted, seed));
            if all.failures > 0 {
                println!("seed {seed}, {bad:?}");
                return all;
            }
        }
    }
    all
}

#[test]
fn captures_while_frames_fail() {
    let report = captures(None, 1..=20);
    assert!(report.failures == 0, "{}", report.findings.join("\n"));
}

#[test]
fn a_checkpoint_that_names_what_is_still_to_move_is_found() {
    // First those that found it before.
    assert!(captures(Some("bad_ring_checkpoint_past"), (8..=20).chain(1..8)).failures > 0);
}
