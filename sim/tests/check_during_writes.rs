//! The check of an open group blocks nothing (L6). Checkpoints continue during it, and it sees none of them. If the
//! group needs the metadata blocks that the check pins (M6), the check ends without a report.

use parking_lot::Mutex;
use rowen_engine::error::{Error, Result};
use rowen_engine::group::{CheckReport, Config, FullPolicy, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::Delays;
use rowen_sim::exec::World;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCKS: u64 = 4096;
/// MiB of the group, blocks of an extent (the metadata area has at least one), and rounds of writes with a checkpoint
/// each. There is room for the blocks that all rounds replace, or for those of a few rounds.
const ROOMY: [u64; 3] = [128, 1024, 12];
const SHORT: [u64; 3] = [48, 256, 60];

/// The result of a check, and the checkpoints that were taken before it ended.
struct Seen {
    report: Result<CheckReport>,
    checkpoints: u64,
}

/// Volumes with a snapshot each. A check runs under random writes with many checkpoints. Afterwards everything is
/// verified.
fn check_during_writes(
    [mib, extent_blocks, rounds]: [u64; 3],
    repair: bool,
    planted: Option<&'static str>,
    seed: u64,
) -> Seen {
    let world = World::new(seed);
    let config = Config { dirty_bytes: 1 << 20, planted, ..Config::default() };
    let setup = Setup { config, extent_blocks, ..Setup::small(1, mib) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
    let seen: Arc<Mutex<Option<Seen>>> = Arc::default();
    world.run(async {
        let mut vols = Vec::new();
        for _ in 0..2 {
            let vol = client.create(spec).await.unwrap();
            for block in (0..BLOCKS).step_by(3) {
                client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            }
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            vols.push(vol);
        }
        client.checkpoint().await.unwrap();
        // The nodes that the check reads are not in its cache, so it takes its time.
        disks.set_delays(Delays { read: (20_000, 40_000), ..Delays::default() });
        let before = client.group.stats().checkpoints;
        let (checker, writer, note) = (client.clone(), client.clone(), seen.clone());
        let ops: Vec<Op> = vec![
            Box::pin(async move {
                let report = match repair {
                    true => checker.group.repair_open().await,
                    false => checker.group.check_open().await,
                };
                let checkpoints = checker.group.stats().checkpoints - before;
                *note.lock() = Some(Seen { report, checkpoints });
                Ok(())
            }),
            Box::pin(async move {
                for round in 0..rounds {
                    for at in 0..200 {
                        let block = (at * 37 + round * 11) % BLOCKS;
                        writer.write(vols[(at % 2) as usize], block * BLOCK, BLOCK, &[]).await?;
                    }
                    writer.checkpoint().await?;
                }
                Ok(())
            }),
        ];
        client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
        if planted.is_none() {
            assert_eq!(client.group.check_open().await.unwrap().findings, Vec::<String>::new());
            let vols = client.oracle.lock().readable();
            for vol in vols {
                client.verify_all(vol).await.unwrap();
            }
            client.close().await.unwrap();
        }
    });
    let seen = seen.lock().take();
    seen.unwrap()
}

#[test]
fn checkpoints_go_on_and_it_sees_none_of_them() {
    for (seed, repair) in [(1, false), (2, true)] {
        let seen = check_during_writes(ROOMY, repair, None, seed);
        let report = seen.report.unwrap();
        assert_eq!((report.findings, report.repaired), Default::default());
        assert!(report.nodes > 30 && report.blocks > 2000, "{} nodes, {} blocks", report.nodes, report.blocks);
        assert!(seen.checkpoints >= 5, "{} checkpoints were taken beside it", seen.checkpoints);
    }
}

#[test]
fn a_check_whose_nodes_are_given_away_is_found() {
    let all_sound = (1..=4).all(|seed| {
        let seen = check_during_writes(SHORT, false, Some("kept_blocks_reused"), seed);
        seen.report.is_ok_and(|report| report.findings.is_empty())
    });
    assert!(!all_sound, "the planted bug was not found");
}

/// Metadata cannot grow, and the writes need the pinned blocks.
#[test]
fn a_check_ends_early_if_metadata_is_short() {
    let mut ended_early = 0;
    for seed in 1..=4 {
        match check_during_writes(SHORT, seed % 2 == 0, None, seed).report {
            Ok(report) => assert_eq!(report.findings, Vec::<String>::new()),
            Err(Error::Busy(why)) => {
                assert!(why.contains("ended early"), "{why}");
                ended_early += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(ended_early > 0, "no check ended early");
}

/// Many snapshots of scattered volumes: metadata takes more than checks usually let it grow to. However little of it is
/// free when a check begins, a checkpoint during the check does not end it, because the group has space.
fn checks_of_an_aged_group(planted: Option<&'static str>) -> Result<()> {
    let world = World::new(11);
    let config = Config { planted, ..Config::default() };
    let setup = Setup { config, extent_blocks: 256, ..Setup::small(1, 512) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let blocks = 4 * BLOCKS;
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async {
        let vol = client.create(spec).await.unwrap();
        for block in (0..blocks).step_by(3) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        let mut rounds = 0;
        while rounds < 12 {
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            for at in 0..200 {
                client.write(vol, (at * 331 + rounds) % blocks * BLOCK, BLOCK, &[]).await.unwrap();
            }
            client.checkpoint().await.unwrap();
            let info = client.group.info();
            if info.metadata_blocks * 30 < info.blocks {
                continue;
            }
            assert!(info.free_blocks * 2 > info.blocks, "there is space: {info:?}");
            rounds += 1;
            disks.set_delays(Delays { read: (20_000, 40_000), ..Delays::default() });
            let (checker, writer, seen) = (client.clone(), client.clone(), Arc::new(Mutex::new(None)));
            let note = seen.clone();
            let ops: Vec<Op> = vec![
                Box::pin(async move {
                    *note.lock() = Some(checker.group.check_open().await);
                    Ok(())
                }),
                Box::pin(async move {
                    writer.write(vol, rounds * BLOCK, BLOCK, &[]).await?;
                    writer.checkpoint().await
                }),
            ];
            client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
            disks.set_delays(Delays::default());
            let report = seen.lock().take().unwrap();
            assert_eq!(report?.findings, Vec::<String>::new(), "round {rounds}");
        }
        Ok(())
    })
}

#[test]
fn it_makes_room_where_there_is_space() {
    checks_of_an_aged_group(None).unwrap();
}

#[test]
fn a_check_that_makes_no_room_is_found() {
    assert!(matches!(checks_of_an_aged_group(Some("no_room_for_check")), Err(Error::Busy(_))));
}

/// Windows that were re-homed during a check, and some time after it.
fn rehomed_during_a_check(planted: Option<&'static str>) -> (u64, u64) {
    let world = World::new(12);
    let config = Config { rehome: true, planted, ..Config::default() };
    let setup = Setup { config, ..Setup::small(1, 128) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async {
        let vol = client.create(spec).await.unwrap();
        for block in (0..BLOCKS).step_by(16) {
            client.write(vol, block * BLOCK, 16 * BLOCK, &[]).await.unwrap();
        }
        let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
        for block in (0..BLOCKS).step_by(2) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.remove(&[snapshot]).await.unwrap();
        client.group.reclaim_idle().await.unwrap();
        disks.set_delays(Delays { read: (20_000, 40_000), ..Delays::default() });
        let before = client.group.stats().windows_rehomed;
        let report = client.group.check_open().await.unwrap();
        assert_eq!(report.findings, Vec::<String>::new());
        let during = client.group.stats().windows_rehomed - before;
        disks.set_delays(Delays::default());
        world.handle().sleep(Duration::from_secs(60)).await;
        (during, client.group.stats().windows_rehomed - before)
    })
}

#[test]
fn rehoming_waits_for_its_end() {
    let (during, after) = rehomed_during_a_check(None);
    // One may have been in progress.
    assert!(during <= 1, "{during} windows were re-homed beside a check");
    assert!(after > 8, "re-homing did not go on: {after}");
}

#[test]
fn rehoming_during_a_check_is_found() {
    assert!(rehomed_during_a_check(Some("rehome_during_check")).0 > 1, "the planted bug was not found");
}

/// Calls `look` every few milliseconds while `work` runs, and returns what it found.
async fn watched<T: Send + 'static>(
    world: &World,
    client: &Client,
    look: impl Fn(&Client) -> Option<T> + Send + 'static,
    work: Op,
) -> Vec<T> {
    let (seen, is_done) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let (handle, watcher, into, ends) = (world.handle(), client.clone(), seen.clone(), is_done.clone());
    let ops: Vec<Op> = vec![
        Box::pin(async move {
            let outcome = work.await;
            is_done.store(true, Ordering::Relaxed);
            outcome
        }),
        Box::pin(async move {
            while !ends.load(Ordering::Relaxed) {
                into.lock().extend(look(&watcher));
                handle.sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        }),
    ];
    client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
    std::mem::take(&mut *seen.lock())
}

#[test]
fn how_far_it_is_can_be_seen() {
    let world = World::new(14);
    let setup = Setup { config: Config { rehome: true, ..Config::default() }, ..Setup::small(1, 128) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async {
        let vol = client.create(spec).await.unwrap();
        client.write(vol, 0, BLOCKS * BLOCK, &[]).await.unwrap();
        let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
        for block in (0..BLOCKS).step_by(2) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.checkpoint().await.unwrap();
        disks.set_delays(Delays { read: (20_000, 40_000), ..Delays::default() });
        let checker = client.group.clone();
        let check: Op = Box::pin(async move { checker.check_open().await.map(drop) });
        let seen = watched(&world, &client, |client| client.group.check_progress(), check).await;
        let nodes: Vec<u64> = seen.iter().map(|progress| progress.nodes).collect();
        assert!(nodes.is_sorted() && nodes.last() > nodes.first(), "{seen:?}");
        assert!(seen.iter().all(|progress| progress.nodes <= progress.total), "{seen:?}");
        assert_eq!(client.group.check_progress(), None, "it has ended");
        client.remove(&[snapshot]).await.unwrap();
        let group = client.group.clone();
        let idle: Op = Box::pin(async move {
            group.reclaim_idle().await?;
            group.rehome_idle().await
        });
        let seen = watched(&world, &client, |client| client.group.rehome_progress(), idle).await;
        let at: Vec<u64> = seen.iter().map(|progress| progress.at).collect();
        assert!(at.is_sorted() && at.last() > at.first(), "{seen:?}");
        assert!(seen.iter().all(|progress| progress.at <= progress.blocks && progress.blocks == BLOCKS), "{seen:?}");
        assert_eq!(client.group.rehome_progress(), None, "it has ended");
    });
}
