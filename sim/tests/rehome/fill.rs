//! Filling (rule R13): blocks that a volume shares are copied next to its redirected blocks, while the snapshot exists.
//!
//! Rules F2 and F3.

use super::{WINDOW, idle, overwrite, run, segments, setup, thick};
use rowen_engine::disk::PageBuf;
use rowen_engine::group::{
    Attributes, Config, FullPolicy, Group, Layout, NewSnapshot, NewVolume, VolumeInfo, VolumeKind,
};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use rowen_sim::client::{Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Effort, Explorer, Report, Setup};
use rowen_sim::disk::Delays;
use rowen_sim::effort::one_in;
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{Step, Target};
use std::sync::Arc;
use std::time::Duration;

const BLOCKS: u64 = 16 * WINDOW;

fn filling(mib: u64, layout: Layout) -> Setup {
    let usual = setup(mib, true);
    Setup { config: Config { layout, ..usual.config.clone() }, ..usual }
}

fn info(client: &Client, vol: Vol) -> VolumeInfo {
    client.group.volume_info(client.id(vol).unwrap()).unwrap()
}

/// A volume that is written, and a snapshot of it.
async fn with_snapshot(client: &Client, spec: VolumeSpec, kind: SnapshotKind) -> (Vol, Vol) {
    let vol = client.create(spec).await.unwrap();
    client.write(vol, 0, spec.blocks * 8, &[]).await.unwrap();
    client.flush(vol).await.unwrap();
    (vol, client.snapshot(&[vol], kind).await.unwrap()[0])
}

#[test]
fn an_origin_reads_in_one_piece_while_its_snapshot_is_held() {
    for kind in [VolumeKind::Thick, VolumeKind::Thin] {
        for (percent, layout) in [(10, Layout::Read), (50, Layout::Read), (90, Layout::Read), (50, Layout::Space)] {
            run(&filling(96, layout), percent, async |client, disks| {
                let spec = VolumeSpec { kind, ..thick(BLOCKS) };
                let (vol, snapshot) = with_snapshot(client, spec, SnapshotKind::default()).await;
                let before = client.group.stats();
                overwrite(client, vol, BLOCKS, percent, &mut Rng::new(percent)).await;
                let redirected = info(client, vol).exclusive;
                // Nothing is copied while the writes are answered.
                assert_eq!(client.group.stats().windows_filled, before.windows_filled);
                assert!(segments(client, disks, vol, BLOCKS).await > 20);
                idle(client).await;
                let after = segments(client, disks, vol, BLOCKS).await;
                let (stats, held) = (client.group.stats(), info(client, vol));
                if layout == Layout::Space {
                    assert!(after > 20 && stats.windows_filled == 0, "{after} segments, {stats:?}");
                    return;
                }
                assert!(after <= 3, "{percent} %: {after} segments to a MiB");
                assert!(stats.windows_filled >= 15, "{stats:?}");
                // F1: the volume owns the copied blocks, and they count for the snapshot as if they had been
                // overwritten.
                assert_eq!(held.exclusive, redirected + stats.blocks_filled);
                assert_eq!(info(client, snapshot).snapshot_used, held.exclusive);
                client.verify_all(snapshot).await.unwrap();
                // From now on the volume is written in place.
                overwrite(client, vol, BLOCKS, 50, &mut Rng::new(1)).await;
                let redirected = client.group.stats().writes_redirected - stats.writes_redirected;
                assert!(redirected <= BLOCKS / 20, "{redirected}");
                idle(client).await;
                assert!(segments(client, disks, vol, BLOCKS).await <= 3);
                client.remove(&[snapshot]).await.unwrap();
                idle(client).await;
                assert!(segments(client, disks, vol, BLOCKS).await <= 3);
                client.checkpoint().await.unwrap();
                let group = client.group.info();
                assert_eq!(
                    group.blocks - group.free_blocks - group.pending_blocks - group.metadata_blocks,
                    BLOCKS,
                    "what was copied comes back with the snapshot"
                );
            });
        }
    }
}

/// Writes to blocks that were just filled are redirected once more (R6). The engine examines these windows again.
#[test]
fn a_volume_that_is_written_while_it_is_filled_is_filled_in_the_end() {
    let setup = filling(96, Layout::Read);
    let world = World::new(9);
    let (disks, group) = setup.make(&world).unwrap();
    let (client, runtime) = (Client::new(world.handle(), group, Arc::default()), world.handle());
    world.run(async {
        let (vol, _) = with_snapshot(&client, thick(BLOCKS), SnapshotKind::default()).await;
        disks.set_delays(Delays { read: (5_000, 30_000), ..Delays::default() });
        // Every second block. Then the same ones while their windows are filled.
        let mut rng = Rng::new(9);
        for block in (0..BLOCKS).step_by(2) {
            client.write(vol, block * 8, 8, &[]).await.unwrap();
        }
        for _ in 0..BLOCKS {
            client.write(vol, rng.below(BLOCKS / 2) * 16, 8, &[]).await.unwrap();
            runtime.sleep(Duration::from_micros(300)).await;
        }
        let stats = client.group.stats();
        assert!(stats.windows_filled > 0 && stats.writes_again > 0, "{stats:?}");
        idle(&client).await;
        let after = segments(&client, &disks, vol, BLOCKS).await;
        assert!(after <= 4, "{after} segments, {stats:?}");
        client.close().await.unwrap();
    });
}

#[test]
fn few_writes_do_not_make_a_volume_be_copied() {
    run(&filling(96, Layout::Read), 3, async |client, _| {
        let (vol, _) = with_snapshot(client, thick(BLOCKS), SnapshotKind::default()).await;
        // Four blocks in each MiB: a chunk for each is less than the rest of it (F4).
        for block in (0..BLOCKS).step_by(WINDOW as usize / 4) {
            client.write(vol, block * 8, 8, &[]).await.unwrap();
        }
        idle(client).await;
        assert_eq!((client.group.stats().windows_filled, info(client, vol).exclusive), (0, BLOCKS / WINDOW * 4));
    });
}

#[test]
fn a_tag_says_what_a_volume_is_laid_out_for() {
    for (usual, tags, is_filled) in [
        (Layout::Space, &["layout=read"][..], true),
        (Layout::Read, &["layout=space"], false),
        (Layout::Space, &["layout"], false),
        (Layout::Read, &["a", "layout=read", "layout=space"], false),
    ] {
        run(&filling(96, usual), 4, async |client, _| {
            let vol = client.create(thick(BLOCKS)).await.unwrap();
            let set = async |tags: &[&str]| {
                let tags = tags.iter().map(|tag| tag.to_string()).collect();
                let attributes = Attributes { tags, ..info(client, vol).attributes };
                client.group.set_attributes(client.id(vol).unwrap(), attributes).await.unwrap();
            };
            set(tags).await;
            client.write(vol, 0, BLOCKS * 8, &[]).await.unwrap();
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            overwrite(client, vol, BLOCKS, 50, &mut Rng::new(4)).await;
            idle(client).await;
            assert_eq!(client.group.stats().windows_filled > 0, is_filled, "{usual:?} {tags:?}");
            // The engine examines the volume when the layout is set.
            set(&["layout=read"]).await;
            idle(client).await;
            assert!(client.group.stats().windows_filled > 0, "{usual:?} {tags:?}");
        });
    }
}

#[test]
fn a_volume_is_filled_after_an_opening() {
    let setup = filling(96, Layout::Read);
    let world = World::new(5);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let oracle = client.oracle.clone();
    let vol = world.run(async {
        let (vol, _) = with_snapshot(&client, thick(BLOCKS), SnapshotKind::default()).await;
        overwrite(&client, vol, BLOCKS, 30, &mut Rng::new(5)).await;
        client.close().await.unwrap();
        vol
    });
    assert_eq!(client.group.stats().windows_filled, 0, "it was closed before that");
    let group = world.run(Group::open(disks.clone(), world.handle(), setup.config.clone())).unwrap();
    let client = Client::new(world.handle(), group, oracle);
    world.run(async {
        idle(&client).await;
        let after = segments(&client, &disks, vol, BLOCKS).await;
        assert!(after <= 3, "{after} segments, {:?}", client.group.stats());
        client.close().await.unwrap();
    });
}

/// How much of the group is free after filling took all that it may, and how often it stopped for lack of room.
fn free_after_filling(planted: Option<&'static str>) -> (u64, u64) {
    let mut setup = filling(44, Layout::Read);
    setup.config.planted = planted;
    let mut percent = (0, 0);
    run(&setup, 6, async |client, _| {
        let (vol, snapshot) = with_snapshot(client, thick(BLOCKS), SnapshotKind::default()).await;
        overwrite(client, vol, BLOCKS, 40, &mut Rng::new(6)).await;
        let before = client.group.info();
        assert!(before.available_blocks * 100 / before.blocks > 30, "{before:?}");
        idle(client).await;
        client.checkpoint().await.unwrap();
        assert!(client.group.stats().windows_filled > 0);
        let (group, stats) = (client.group.info(), client.group.stats());
        percent = (group.available_blocks * 100 / group.blocks, stats.fills_without_room);
        // It continues when there is room.
        client.remove(&[snapshot]).await.unwrap();
        idle(client).await;
        client.verify_all(vol).await.unwrap();
    });
    percent
}

#[test]
fn filling_leaves_its_share_of_the_group_free() {
    let (free, ended) = free_after_filling(None);
    assert!((24..=30).contains(&free) && ended == 1, "{free} % free, ended {ended} times");
    let (free, _) = free_after_filling(Some("fill_leaves_no_share"));
    assert!(free < 24, "the planted bug was not found: {free} % free");
}

#[test]
fn filling_leaves_its_share_of_a_pool_free() {
    for (planted, leaves_it) in [(None, true), (Some("fill_leaves_no_share"), false)] {
        let mut setup = filling(96, Layout::Read);
        setup.config.planted = planted;
        run(&setup, 8, async |client, _| {
            let group = &client.group;
            let attributes = || Attributes { pool: "pool".into(), ..Attributes::default() };
            let make = async |name: &str, blocks| {
                let (kind, full, uuid) = (VolumeKind::Thin, FullPolicy::Fail, Uuid([name.len() as u8; 16]));
                let (name, attributes) = (name.into(), attributes());
                let volume = NewVolume { name, uuid, kind, blocks, sector: 512, chunk_blocks: 1, full, attributes };
                group.create_volume(volume).await.unwrap()
            };
            make("pool", 2 * BLOCKS).await;
            let id = make("a", BLOCKS).await;
            let volume = group.volume(id).unwrap();
            let put = async |block: u64, blocks: u64| {
                let bytes = Arc::new(PageBuf::zeroed((blocks * BLOCK_SIZE) as usize));
                volume.write(block * BLOCK_SIZE, (blocks * BLOCK_SIZE) as u32, bytes).await.unwrap();
            };
            put(0, BLOCKS).await;
            let (name, uuid) = ("s".into(), Uuid([9; 16]));
            let attributes = attributes();
            let snapshot =
                NewSnapshot { origin: id, name, uuid, reserve: None, read_only: false, chunk_blocks: 1, attributes };
            group.snapshot(&[snapshot]).await.unwrap();
            let mut rng = Rng::new(8);
            for _ in 0..BLOCKS * 40 / 100 {
                put(rng.below(BLOCKS), 1).await;
            }
            idle(client).await;
            let (used, stats) = (group.pools()[0].referenced, group.stats());
            assert!(stats.windows_filled > 0);
            if leaves_it {
                assert!(used * 4 <= 2 * BLOCKS * 3 && stats.fills_without_room == 1, "{used} blocks, {stats:?}");
            } else {
                assert!(used * 4 > 2 * BLOCKS * 3, "the planted bug was not found: {used}");
            }
        });
    }
}

/// Overwrites a third of a volume whose snapshot has a size that is just enough for that.
fn with_a_reserve(planted: Option<&'static str>) -> (u64, Vec<Vol>) {
    let mut setup = filling(96, Layout::Read);
    setup.config.planted = planted;
    let mut outcome = (0, Vec::new());
    run(&setup, 7, async |client, _| {
        let kind = SnapshotKind { reserve: Some(BLOCKS / 2), ..SnapshotKind::default() };
        let (vol, snapshot) = with_snapshot(client, thick(BLOCKS), kind).await;
        overwrite(client, vol, BLOCKS, 30, &mut Rng::new(7)).await;
        idle(client).await;
        overwrite(client, vol, BLOCKS, 15, &mut Rng::new(8)).await;
        idle(client).await;
        let invalid = client.note_invalid().unwrap();
        if invalid.is_empty() {
            client.verify_all(snapshot).await.unwrap();
        }
        outcome = (client.group.stats().windows_filled, invalid);
    });
    outcome
}

#[test]
fn filling_takes_nothing_of_a_snapshots_size() {
    assert_eq!(with_a_reserve(None), (0, Vec::new()));
    let (filled, invalid) = with_a_reserve(Some("fill_on_reserve"));
    assert!(filled > 0 && !invalid.is_empty(), "the planted bug was not found: {filled}");
}

/// The power is cut before every second disk command while windows are filled.
#[test]
fn a_cut_while_windows_are_filled_leaves_what_was_flushed() {
    let every =
        |nth: u64, of: u64| (0..of).step_by(nth as usize).map(move |block| Step::Write(Target::A, block * 8, 8));
    let spec = VolumeSpec { blocks: 96, ..thick(0) };
    let mut sum = Report::default();
    for seed in 0..4 {
        let kind = if seed % 2 == 0 { VolumeKind::Thick } else { VolumeKind::Thin };
        let mut steps = vec![Step::Create(VolumeSpec { kind, full: FullPolicy::Fail, ..spec })];
        steps.extend([Step::Write(Target::A, 0, 96 * 8), Step::Flush(Target::A)]);
        steps.push(Step::Snapshot(Target::A, SnapshotKind::default()));
        steps.extend(every(3, 64));
        steps.push(Step::Flush(Target::A));
        let writes = (0..6).map(|at| Step::Write(Target::A, at * 40, 3)).chain([Step::Flush(Target::A), Step::Rehome]);
        steps.push(Step::Together(writes.collect()));
        steps.extend([Step::Write(Target::A, 5, 16), Step::Snapshot(Target::A, SnapshotKind::default())]);
        steps.extend(every(5, 96));
        steps.extend([Step::Rehome, Step::Write(Target::A, 0, 40), Step::Flush(Target::A), Step::Checkpoint]);
        steps.extend([Step::Remove(vec![Target::Snap(0)]), Step::Reclaim, Step::Discard(Target::A, 100, 60)]);
        steps.extend([Step::Rehome, Step::Checkpoint, Step::Flush(Target::A), Step::Verify]);
        let small = Setup::small(1 + seed as usize % 2, 24);
        let config = Config { rehome: true, layout: Layout::Read, ..small.config.clone() };
        let setup = Setup { config, ..small };
        let effort = Effort { sample: one_in(2), ..Effort::default() };
        sum.add(Explorer { setup: &setup, effort, seed, only: None, skip_steps: 0 }.explore(&steps));
    }
    assert!(sum.failures == 0, "{} of {} states: {}", sum.failures, sum.states, sum.findings.join("\n"));
    assert!(sum.stats.windows_filled > 0, "{:?}", sum.stats);
}

#[test]
fn unwanted_copies_are_found() {
    must_be_found("fill_unlimited", few_writes_do_not_make_a_volume_be_copied);
}
