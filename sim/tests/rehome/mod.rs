//! A part of a volume was overwritten under snapshots. Its blocks return to one place: when the snapshots are gone, or
//! while they exist if the volume is filled.
//!
//! Rules V4, V5 and L5b.

mod fill;

use rowen_engine::disk::Disks;
use rowen_engine::group::{Config, FullPolicy, Group, Layout, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Effort, Explorer, Report, Setup};
use rowen_sim::disk::{Delays, Faults, SimDisks};
use rowen_sim::effort::one_in;
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{Step, Target};
use std::sync::Arc;
use std::time::Duration;

const WINDOW: u64 = 256;

fn setup(mib: u64, rehome: bool) -> Setup {
    let small = Setup::small(1, mib);
    Setup { config: Config { rehome, cache_bytes: 4 << 20, dirty_bytes: 1 << 20, ..small.config.clone() }, ..small }
}

fn thick(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thick, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

/// Waits until removal and re-homing are idle.
async fn idle(client: &Client) {
    client.group.reclaim_idle().await.unwrap();
    client.group.rehome_idle().await.unwrap();
}

/// Overwrites this percentage of a volume's blocks, at random.
async fn overwrite(client: &Client, vol: Vol, blocks: u64, percent: u64, rng: &mut Rng) {
    for _ in 0..blocks * percent / 100 {
        let block = rng.below(blocks);
        client.write(vol, block * 8, 8, &[]).await.unwrap();
    }
}

/// Segments that the disk has to read for each MiB of the volume, on average.
async fn segments(client: &Client, disks: &SimDisks, vol: Vol, blocks: u64) -> u64 {
    let before = disks.counts();
    client.verify_all(vol).await.unwrap();
    disks.counts().since(&before).reads / (blocks / WINDOW)
}

fn run(setup: &Setup, seed: u64, test: impl AsyncFnOnce(&Client, &SimDisks)) {
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        test(&client, &disks).await;
        client.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn an_origin_comes_back_to_one_place_when_its_snapshot_is_gone() {
    let blocks = 16 * WINDOW;
    for (percent, is_on) in [(10, true), (50, true), (90, true), (50, false)] {
        run(&setup(96, is_on), percent, async |client, disks| {
            let vol = client.create(thick(blocks)).await.unwrap();
            client.write(vol, 0, blocks * 8, &[]).await.unwrap();
            client.flush(vol).await.unwrap();
            let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
            overwrite(client, vol, blocks, percent, &mut Rng::new(percent)).await;
            assert!(segments(client, disks, vol, blocks).await > 20);
            client.remove(&[snapshot]).await.unwrap();
            idle(client).await;
            let after = segments(client, disks, vol, blocks).await;
            if is_on {
                assert!(after <= 2, "{percent} %: {after} segments to a MiB");
                assert!(client.group.stats().windows_rehomed >= 16);
            } else {
                assert!(after > 20, "without it nothing moves: {after}");
            }
            // Moved blocks are written in place.
            let before = client.group.stats();
            overwrite(client, vol, blocks, 5, &mut Rng::new(1)).await;
            let now = client.group.stats();
            if is_on {
                assert_eq!(now.writes_redirected, before.writes_redirected);
            }
            client.checkpoint().await.unwrap();
            let info = client.group.info();
            assert_eq!(info.blocks - info.free_blocks - info.pending_blocks - info.metadata_blocks, blocks);
        });
    }
}

/// Blocks that are written, flushed and frozen while windows are copied and moved are there afterwards. Returns how
/// many windows were moved, and how many were filled.
fn with_other_work(seed: u64, layout: Layout, planted: Option<&'static str>) -> Result<[u64; 2], String> {
    let blocks = 8 * WINDOW;
    let mut setup = setup(64, true);
    (setup.config.planted, setup.config.layout) = (planted, layout);
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).unwrap();
    let slow = if layout == Layout::Read { 10 } else { 1 };
    disks.set_delays(Delays { read: (500 * slow, 3000 * slow), ..Delays::default() });
    disks.set_faults(Faults { eager_reads: true, ..Faults::default() });
    let client = Client::new(world.handle(), group, Arc::default());
    let (mut rng, runtime) = (Rng::new(seed), world.handle());
    let moved = world.run(async {
        let vol = client.create(thick(blocks)).await.map_err(|e| e.to_string())?;
        client.write(vol, 0, blocks * 8, &[]).await.map_err(|e| e.to_string())?;
        for _ in 0..2 {
            let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.map_err(|e| e.to_string())?[0];
            overwrite(&client, vol, blocks, 40, &mut rng).await;
            client.flush(vol).await.map_err(|e| e.to_string())?;
            if layout == Layout::Space {
                client.remove(&[snapshot]).await.map_err(|e| e.to_string())?;
                client.group.reclaim_idle().await.map_err(|e| e.to_string())?;
            }
            for _ in 0..80 {
                if layout == Layout::Read {
                    // Filling begins after a second.
                    runtime.sleep(Duration::from_millis(rng.range(5, 25))).await;
                }
                let (at, len) = (rng.below(blocks - 8), rng.range(1, 8));
                match rng.below(30) {
                    0 => client.flush(vol).await.map_err(|e| e.to_string())?,
                    1 => client.zero(vol, at * 8, len * 8, false).await.map_err(|e| e.to_string())?,
                    2 => {
                        let kept =
                            client.snapshot(&[vol], SnapshotKind::default()).await.map_err(|e| e.to_string())?[0];
                        client.write(vol, at * 8, len * 8, &[]).await.map_err(|e| e.to_string())?;
                        client.verify_all(kept).await.map_err(|e| e.to_string())?;
                        client.remove(&[kept]).await.map_err(|e| e.to_string())?;
                    }
                    3 => drop(client.verify(vol, at * 8, len * 8).await.map_err(|e| e.to_string())?),
                    _ => client.write(vol, at * 8 + rng.below(8), len * 8 - 7, &[]).await.map_err(|e| e.to_string())?,
                }
                let writes = (0..6).map(|_| {
                    let (client, at, len) = (client.clone(), rng.below(blocks - 8) * 8, rng.range(1, 40));
                    Box::pin(async move { client.write(vol, at, len, &[]).await }) as Op
                });
                for written in client.together(writes.collect()).await {
                    written.map_err(|e| e.to_string())?;
                }
            }
            client.group.rehome_idle().await.map_err(|e| e.to_string())?;
            client.verify_all(vol).await.map_err(|e| e.to_string())?;
            if layout == Layout::Read {
                client.verify_all(snapshot).await.map_err(|e| e.to_string())?;
                client.remove(&[snapshot]).await.map_err(|e| e.to_string())?;
                client.group.reclaim_idle().await.map_err(|e| e.to_string())?;
                client.group.rehome_idle().await.map_err(|e| e.to_string())?;
                client.verify_all(vol).await.map_err(|e| e.to_string())?;
            }
        }
        client.close().await.map_err(|e| e.to_string())?;
        let stats = client.group.stats();
        Ok::<_, String>([stats.windows_rehomed, stats.windows_filled])
    })?;
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    if report.findings.is_empty() { Ok(moved) } else { Err(format!("{:?}", report.findings)) }
}

#[test]
fn blocks_written_meanwhile_stay() {
    for (layout, least) in [(Layout::Space, [100, 0]), (Layout::Read, [0, 100])] {
        let mut sum = [0; 2];
        for seed in 0..12 {
            let done = with_other_work(seed, layout, None).unwrap_or_else(|e| panic!("{layout:?}, seed {seed}: {e}"));
            sum = [sum[0] + done[0], sum[1] + done[1]];
        }
        assert!(sum[0] > least[0] && sum[1] >= least[1], "{layout:?}: {sum:?}");
    }
}

#[test]
fn a_copy_that_is_not_watched_is_found() {
    for layout in [Layout::Space, Layout::Read] {
        let is_found = (0..12).any(|seed| with_other_work(seed, layout, Some("rehome_ignores_writes")).is_err());
        assert!(is_found, "{layout:?}: the planted bug was not found");
    }
}

/// The power is cut before every disk command while windows are moved.
#[test]
fn a_cut_leaves_what_was_flushed() {
    let every =
        |nth: u64, of: u64| (0..of).step_by(nth as usize).map(move |block| Step::Write(Target::A, block * 8, 8));
    let spec = VolumeSpec { blocks: 96, ..thick(0) };
    let mut steps = vec![Step::Create(spec), Step::Write(Target::A, 0, 96 * 8), Step::Flush(Target::A)];
    steps.push(Step::Snapshot(Target::A, SnapshotKind::default()));
    steps.extend(every(2, 64));
    steps.extend([Step::Flush(Target::A), Step::Remove(vec![Target::Snap(0)]), Step::Reclaim]);
    let together = (0..6).map(|at| Step::Write(Target::A, at * 40, 3)).chain([Step::Flush(Target::A)]);
    steps.push(Step::Together(together.collect()));
    steps.extend([
        Step::Write(Target::A, 5, 16),
        Step::Snapshot(Target::A, SnapshotKind::default()),
        Step::Write(Target::A, 0, 40),
    ]);
    steps.extend([Step::Flush(Target::A), Step::Checkpoint, Step::Remove(vec![Target::Snap(0)]), Step::Reclaim]);
    steps.extend([Step::Discard(Target::A, 100, 60), Step::Checkpoint, Step::Flush(Target::A), Step::Verify]);
    let mut sum = Report::default();
    for seed in 0..3 {
        let small = Setup::small(1 + seed as usize % 2, 24);
        let setup = Setup { config: Config { rehome: true, ..small.config.clone() }, ..small };
        let effort = Effort { sample: one_in(2), ..Effort::default() };
        sum.add(Explorer { setup: &setup, effort, seed, only: None, skip_steps: 0 }.explore(&steps));
    }
    assert!(sum.failures == 0, "{} of {} states: {}", sum.failures, sum.states, sum.findings.join("\n"));
    assert!(sum.stats.windows_rehomed > 0, "{:?}", sum.stats);
}
