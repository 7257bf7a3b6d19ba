//! The filesystem or thin device below the physical volumes is full (rules U1 to U6). Only data can meet that. The
//! volume's policy decides the result of a write, and the group recovers by itself.
//!
//! Rules U2, U4, U5 and U6.

use rowen_engine::disk::{Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind, VolumeState};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{POLICIES, Policy, Room, SimDisks};
use rowen_sim::exec::{Handle, World};
use rowen_sim::oracle::{Since, Vol};
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs in which the power fails.
const SEEDS: u64 = 24;
/// Blocks of the volumes that are written.
const BLOCKS: u64 = 600;

fn setup() -> Setup {
    Setup::small(1, 64)
}

fn thin(full: FullPolicy) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 4, full }
}

/// A new group on disks with this much room.
fn make(world: &World, setup: &Setup, room: u64) -> Result<(Arc<SimDisks>, Client), Error> {
    let disks = SimDisks::new(world.handle(), &setup.pvs);
    disks.set_room(Some(Room::new([], room)));
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    let (spec, config) = (setup.spec(), setup.config.clone());
    let group = world.run(async move {
        Group::create(as_disks.clone(), spec).await?;
        Group::open(as_disks, runtime, config).await
    })?;
    Ok((disks, Client::new(world.handle(), group, Arc::default())))
}

async fn write_all(client: &Client, vol: Vol) {
    for block in 0..BLOCKS {
        client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
    }
}

/// Writes blocks, each of which needs a new place, until one finds no room.
async fn until_there_is_no_room(client: &Client, vol: Vol) -> u64 {
    for block in 0..BLOCKS {
        match client.write(vol, block * BLOCK, BLOCK, &[]).await {
            Ok(()) => {}
            Err(Error::NoRoom(_)) => return block,
            Err(e) => panic!("{e}"),
        }
    }
    panic!("there was room for everything");
}

async fn sleep(world: &Handle, seconds: u64) {
    world.sleep(Duration::from_secs(seconds)).await;
}

/// Informs the oracle that snapshots may become invalid.
fn may_be_dropped(client: &Client) {
    client.oracle.lock().volumes.values_mut().for_each(|volume| volume.may_become_invalid = true);
}

fn check(world: &World, disks: &Arc<SimDisks>) {
    let report = world.run(Group::check(disks.clone() as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Opens the group. Its areas must have their room, and the volume its contents.
fn opens_again(world: &World, disks: &Arc<SimDisks>, before: &Client, config: Config, vol: Vol) {
    let group = world.run(Group::open(disks.clone() as Arc<dyn Disks>, world.handle(), config)).unwrap();
    let client = Client::new(world.handle(), group, before.oracle.clone());
    world.run(async {
        assert_eq!(client.group.missing_room().for_metadata, None);
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    check(world, disks);
}

#[test]
fn a_group_is_made_only_where_its_areas_have_room() {
    let world = World::new(1);
    let refused = make(&world, &setup(), 700).map(drop).unwrap_err();
    assert!(matches!(refused, Error::NoRoom(_)), "{refused:?}");
    // The journal has 256 blocks, each copy of metadata as many. The labels take the 1 MiB before them.
    make(&world, &setup(), 4 * 256).unwrap();
}

/// Everything but new data works: commands, flushes, checkpoints, writes in place, removal, closing and opening (U1).
#[test]
fn nothing_but_data_meets_a_full_disk() {
    for seed in 0..4 {
        let world = World::new(seed);
        let (disks, client) = make(&world, &setup(), 4 * 256 + BLOCKS + 8).unwrap();
        world.run(async {
            let vol = client.create(thin(FullPolicy::Fail)).await.unwrap();
            write_all(&client, vol).await;
            let kept = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
            disks.leave_room(0);
            assert_eq!(until_there_is_no_room(&client, vol).await, 0);
            let missing = client.group.missing_room();
            assert_eq!((missing.for_data, missing.for_metadata), (Some(PvIndex(0)), None));
            for round in 0..40u64 {
                // Each of these writes records, and the journal wraps.
                let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
                let refused = client.write(vol, round * BLOCK, BLOCK, &[]).await.unwrap_err();
                assert!(matches!(refused, Error::NoRoom(_)), "{refused:?}");
                client.flush(vol).await.unwrap();
                client.remove(&snapshot).await.unwrap();
                client.checkpoint().await.unwrap();
            }
            client.group.failed().unwrap();
            client.verify_all(vol).await.unwrap();
            client.verify_all(kept).await.unwrap();
            client.close().await.unwrap();
        });
        check(&world, &disks);
        let again = world.run(Group::open(disks.clone() as Arc<dyn Disks>, world.handle(), setup().config)).unwrap();
        let client = Client::new(world.handle(), again, client.oracle.clone());
        world.run(async {
            assert_eq!(client.group.missing_room().for_metadata, None, "U1");
            disks.leave_room(BLOCKS);
            write_all(&client, 1).await;
            client.verify_all(1).await.unwrap();
            client.close().await.unwrap();
        });
        check(&world, &disks);
    }
}

#[test]
fn waiting_writes_continue_when_there_is_room_again() {
    for seed in 0..4 {
        let world = World::new(seed);
        let (disks, client) = make(&world, &setup(), 4 * 256 + 64).unwrap();
        let handle = world.handle();
        world.run(async {
            let vol = client.create(thin(FullPolicy::Hold)).await.unwrap();
            let writers: Vec<_> = (0..4u64)
                .map(|part| {
                    let client = client.clone();
                    handle.start("writer", async move {
                        for block in (part..BLOCKS).step_by(4) {
                            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
                        }
                    })
                })
                .collect();
            sleep(&handle, 30).await;
            assert_eq!(disks.room().unwrap().left(), 0);
            assert!(client.group.missing_room().for_data.is_some());
            client.group.failed().unwrap();
            client.flush(vol).await.unwrap();
            // First some room, which is not enough, and then enough.
            disks.leave_room(40);
            sleep(&handle, 30).await;
            disks.leave_room(BLOCKS);
            let begun = handle.now();
            for writer in writers {
                writer.await;
            }
            assert!(handle.now() - begun < 5_000_000, "U4");
            sleep(&handle, 2).await;
            assert_eq!(client.group.missing_room().for_data, None);
            client.verify_all(vol).await.unwrap();
            client.close().await.unwrap();
        });
        check(&world, &disks);
    }
}

/// A removal frees room behind the disk (U3). A write that waits continues, and no more snapshots are dropped than
/// necessary.
#[test]
fn what_is_freed_is_room() {
    for (seed, policy) in (0..3).flat_map(|seed| [(seed, FullPolicy::Hold), (seed, FullPolicy::DropSnapshot)]) {
        let world = World::new(seed);
        let (disks, client) = make(&world, &setup(), 4 * 256 + 3 * BLOCKS + 100).unwrap();
        let handle = world.handle();
        world.run(async {
            let vol = client.create(thin(policy)).await.unwrap();
            write_all(&client, vol).await;
            let mut snapshots = Vec::new();
            for _ in 0..2 {
                snapshots.extend(client.snapshot(&[vol], SnapshotKind::default()).await.unwrap());
                write_all(&client, vol).await;
            }
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            let writer = client.clone();
            let writing = handle.start("writer", async move { write_all(&writer, vol).await });
            if policy == FullPolicy::Hold {
                sleep(&handle, 20).await;
                client.remove(&snapshots[..1]).await.unwrap();
            }
            writing.await;
            let gone = client.group.volumes().iter().filter(|volume| volume.state == VolumeState::Invalid).count();
            assert_eq!(gone, usize::from(policy == FullPolicy::DropSnapshot), "seed {seed}");
            client.verify_all(vol).await.unwrap();
            client.verify_all(snapshots[1]).await.unwrap();
            client.close().await.unwrap();
        });
        check(&world, &disks);
    }
}

/// A map is copied again and again while neither data nor metadata has room to grow. Discards may be refused, and
/// nothing else.
fn growth(planted: Option<&'static str>) -> Result<(), String> {
    let mut setup = Setup { extent_blocks: 32, ..setup() };
    setup.config.planted = planted;
    let world = World::new(3);
    let (disks, client) = make(&world, &setup, 16 << 8).unwrap();
    let said = |what: &str, e: Error| format!("{what}: {e}");
    world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 8000, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        let mut rng = Rng::new(3);
        for _ in 0..3000 {
            client.write(vol, rng.below(8000) * BLOCK, BLOCK, &[]).await.unwrap();
        }
        disks.leave_room(0);
        let mut refused = 0;
        for round in 0..40 {
            let made = client.snapshot(&[vol], SnapshotKind::default()).await;
            refused += u64::from(matches!(made, Err(Error::NoSpace { .. })));
            // The map is copied leaf by leaf.
            for block in (round..8000).step_by(60) {
                match client.zero(vol, block * BLOCK, BLOCK, false).await {
                    Ok(()) => {}
                    Err(Error::NoRoom(_) | Error::NoSpace { .. }) => refused += 1,
                    Err(e) => return Err(said("discard", e)),
                }
            }
            let done = Arc::new(AtomicBool::new(false));
            let (group, is_done) = (client.group.clone(), done.clone());
            let _checkpoint = world.handle().start("checkpoint", async move {
                group.checkpoint().await.unwrap();
                is_done.store(true, Ordering::Relaxed);
            });
            sleep(&world.handle(), 2).await;
            if !done.load(Ordering::Relaxed) {
                return Err("a checkpoint waits for room".into());
            }
        }
        assert!(refused > 0 || planted.is_some());
        client.group.failed().map_err(|e| said("group", e))?;
        client.verify_all(vol).await.unwrap();
        client.close().await.map_err(|e| said("closing", e))
    })?;
    check(&world, &disks);
    Ok(())
}

/// Metadata that has to grow finds no room. Then a write finds no room, and nothing else fails.
#[test]
fn metadata_does_not_grow_into_nothing() {
    growth(None).unwrap();
    let found = growth(Some("grow_unbacked")).unwrap_err();
    assert!(found.contains("waits for room"), "{found}");
}

/// A group of a program that did not back its areas. Opening reports it, and backs them as soon as there is room.
#[test]
fn an_older_group_is_backed_when_there_is_room() {
    let setup = setup();
    let world = World::new(1);
    let (old, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let vol = client.create(thin(FullPolicy::Hold)).await.unwrap();
        write_all(&client, vol).await;
        client.close().await.unwrap();
    });
    let image = old.current();
    let backed: Vec<_> = image.page_offsets(PvIndex(0)).into_iter().map(|at| (PvIndex(0), at / 4096)).collect();
    let disks = SimDisks::with_image(world.handle(), image);
    disks.set_room(Some(Room::new(backed, 30)));
    let config = Config { ..setup.config.clone() };
    let group = world.run(Group::open(disks.clone() as Arc<dyn Disks>, world.handle(), config)).unwrap();
    let client = Client::new(world.handle(), group, client.oracle.clone());
    let handle = world.handle();
    world.run(async {
        assert_eq!(client.group.missing_room().for_metadata, Some(PvIndex(0)));
        disks.leave_room(4 * 256);
        sleep(&handle, 3).await;
        assert_eq!(client.group.missing_room().for_metadata, None);
        disks.leave_room(0);
        for _ in 0..50 {
            let snapshot = client.snapshot(&[1], SnapshotKind::default()).await.unwrap();
            client.remove(&snapshot).await.unwrap();
            client.checkpoint().await.unwrap();
        }
        client.close().await.unwrap();
    });
    check(&world, &disks);
}

/// Blocks of the volume of an older group: more than the room of its areas.
const OLDER: u64 = 6000;

/// A group of a program that did not back its areas. Its server was killed while its journal named new writes, and the
/// filesystem is full. Returns its disks, and the result of the opening. `frees`: most of the written blocks are free
/// again.
fn older_group_on_full_disks(
    world: &World,
    planted: Option<&'static str>,
    frees: bool,
) -> (Arc<SimDisks>, Client, Result<Arc<Group>, Error>) {
    let mut setup = Setup::small(1, 32);
    // No checkpoint comes between: recovery has to write many nodes.
    (setup.config.cache_bytes, setup.config.dirty_bytes) = (16 << 20, 8 << 20);
    let (old, group) = setup.make(world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        let vol = client.create(VolumeSpec { blocks: OLDER, ..thin(FullPolicy::Hold) }).await.unwrap();
        for block in (0..OLDER).step_by(50) {
            client.write(vol, block * BLOCK, 50 * BLOCK, &[]).await.unwrap();
        }
        if frees {
            client.zero(vol, 0, (OLDER - BLOCKS) * BLOCK, false).await.unwrap();
        }
        // The freed blocks are free in a checkpoint.
        client.checkpoint().await.unwrap();
        client.checkpoint().await.unwrap();
        client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
        // Together, so that few frames hold them. The first half goes to blocks that were never written.
        let (parts, len) = if frees { (2, 1200) } else { (1, BLOCKS) };
        for part in 0..parts {
            let blocks: Vec<u64> = (part * len..(part + 1) * len).map(|block| OLDER - 1 - block).collect();
            for some in blocks.chunks(100) {
                let ops = some.iter().map(|&block| {
                    let client = client.clone();
                    Box::pin(async move { client.write(vol, block * BLOCK, BLOCK, &[]).await }) as Op
                });
                client.together(ops.collect()).await.into_iter().for_each(|done| done.unwrap());
            }
            if part + 1 < parts {
                client.checkpoint().await.unwrap();
            }
        }
        client.flush(vol).await.unwrap();
    });
    let image = old.moment().killed(&mut Rng::new(1));
    let backed: Vec<_> = image.page_offsets(PvIndex(0)).into_iter().map(|at| (PvIndex(0), at / 4096)).collect();
    let disks = SimDisks::with_image(world.handle(), image);
    disks.set_room(Some(Room::new(backed, 0)));
    setup.config.planted = planted;
    let opened = world.run(Group::open(disks.clone() as Arc<dyn Disks>, world.handle(), setup.config.clone()));
    (disks, client, opened)
}

/// ... discards free blocks that have room of their own, and keeps blocks that only the journal names.
fn helps_itself(planted: Option<&'static str>) -> Result<(), String> {
    let world = World::new(1);
    let (disks, before, opened) = older_group_on_full_disks(&world, planted, true);
    let group = opened.map_err(|e| format!("opening: {e}"))?;
    let client = Client::new(world.handle(), group, before.oracle.clone());
    world.run(async {
        if client.group.missing_room().for_metadata.is_some() {
            return Err("its areas have no room".into());
        }
        client.verify_all(1).await.map_err(|e| format!("reading: {e}"))?;
        client.close().await.map_err(|e| format!("closing: {e}"))
    })?;
    check(&world, &disks);
    Ok(())
}

#[test]
fn an_older_group_on_a_full_filesystem_helps_itself() {
    helps_itself(None).unwrap();
    for bug in ["areas_stay_unbacked", "discarded_before_replay"] {
        assert!(helps_itself(Some(bug)).is_err(), "{bug}");
    }
}

/// If it has no such blocks, it reports this, and opens when there is room.
#[test]
fn an_older_group_that_has_nothing_to_give_waits_for_room() {
    let world = World::new(1);
    let (disks, before, opened) = older_group_on_full_disks(&world, None, false);
    match opened {
        Err(Error::NoRoom(error)) => assert_eq!(error.pv, PvIndex(0)),
        other => panic!("{:?}", other.err()),
    }
    disks.leave_room(4 * 256);
    opens_again(&world, &disks, &before, setup().config, 1);
}

/// The power fails, or the server dies, at any moment after room became short.
fn power(seed: u64, planted: Option<&'static str>) -> Result<(), String> {
    let mut setup = setup();
    setup.config.planted = planted;
    let world = World::new(seed);
    let (disks, client) = make(&world, &setup, 4 * 256 + 2 * BLOCKS).unwrap();
    let mut rng = Rng::new(seed);
    let handle = world.handle();
    world.run(async {
        let vol = client.create(thin(FullPolicy::DropSnapshot)).await.unwrap();
        write_all(&client, vol).await;
        let writer = client.clone();
        let mut throws = rng.fork();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        let _load = handle.start("load", async move {
            for _ in 0..4 {
                writer.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
                may_be_dropped(&writer);
                for _ in 0..BLOCKS / 2 {
                    let block = throws.below(BLOCKS);
                    writer.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
                    if throws.one_in(40) {
                        writer.flush(vol).await.unwrap();
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        while client.group.missing_room().for_data.is_none() && !is_done.load(Ordering::Relaxed) {
            handle.sleep(Duration::from_millis(1)).await;
        }
        handle.sleep(Duration::from_micros(rng.below(30_000))).await;
    });
    let moment = disks.moment();
    let oracle = client.oracle.lock();
    let found = |how: String, e: String| format!("seed {seed}, {how}: {e}");
    for policy in POLICIES {
        let image = moment.power_cut(policy, &mut rng);
        judge_image(&setup, &oracle, Since::PowerLoss, image, seed).map_err(|e| found(format!("{policy:?}"), e))?;
    }
    judge_image(&setup, &oracle, Since::Death, moment.killed(&mut rng), seed).map_err(|e| found("death".into(), e))
}

/// Nothing that was flushed is lost, and discarded blocks are free (U3).
#[test]
fn the_power_goes_while_room_is_short() {
    for seed in 0..SEEDS {
        power(seed, None).unwrap();
    }
}

/// The power fails at each command of a checkpoint that discards blocks. Meanwhile a flushed write is redirected once
/// more. If that was not durable yet, the place before it counts.
fn during_a_checkpoint(seed: u64, planted: Option<&'static str>) -> Result<(), String> {
    let mut setup = setup();
    setup.config.planted = planted;
    let world = World::new(seed);
    let (disks, client) = make(&world, &setup, 4 * 256 + 40).unwrap();
    world.run(async {
        let vol = client.create(thin(FullPolicy::Fail)).await.unwrap();
        client.checkpoint().await.unwrap();
        disks.leave_room(0);
        client.write(vol, 100 * BLOCK, BLOCK, &[]).await.unwrap_err();
        // Until the group checks for room.
        disks.leave_room(20);
        client.write(vol, 0, BLOCK, &[]).await.unwrap();
        client.flush(vol).await.unwrap();
        client.write(vol, 0, BLOCK, &[]).await.unwrap();
        disks.keep_moments();
        client.group.checkpoint().await.unwrap();
    });
    assert!(disks.counts().discards > 0, "nothing was given back");
    let oracle = client.oracle.lock();
    let mut rng = Rng::new(seed);
    for moment in disks.take_moments() {
        for policy in [Policy::Nothing, Policy::Sectors] {
            let image = moment.power_cut(policy, &mut rng);
            judge_image(&setup, &oracle, Since::PowerLoss, image, seed)
                .map_err(|e| format!("seed {seed}, event {}, {policy:?}: {e}", moment.event))?;
        }
    }
    Ok(())
}

#[test]
fn what_is_given_back_is_free_for_good() {
    (0..4).try_for_each(|seed| during_a_checkpoint(seed, None)).unwrap();
    let found = (0..16).any(|seed| during_a_checkpoint(seed, Some("room_released_early")).is_err());
    assert!(found, "a planted bug was not found");
}

#[test]
fn faults_where_room_is_short_are_found() {
    must_be_found("allocation_not_undone", waiting_writes_continue_when_there_is_room_again);
    must_be_found("room_not_announced", waiting_writes_continue_when_there_is_room_again);
}

/// A filesystem that never writes in place is full while a group is busy. A checkpoint and frames of the journal find
/// no room.
struct Full {
    disks: Arc<SimDisks>,
    client: Client,
    vol: Vol,
    checkpoint: Waited,
    writers: Vec<Waited>,
}

type Waited = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// `writes`: this many writers have begun.
fn full_without_writing_in_place(world: &World, setup: &Setup, seed: u64, writers: u64) -> Full {
    let (disks, client) = make(world, setup, 4 * 256 + 3 * BLOCKS).unwrap();
    disks.set_room(Some(disks.room().unwrap().copying()));
    let handle = world.handle();
    world.run(async {
        let vol = client.create(thin(FullPolicy::Hold)).await.unwrap();
        write_all(&client, vol).await;
        client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
        let writers = (0..writers)
            .map(|part| {
                let client = client.clone();
                Box::pin(handle.start("writer", async move {
                    for block in (part..BLOCKS).step_by(4) {
                        client.write(vol, block * BLOCK, BLOCK, &[]).await?;
                    }
                    client.flush(vol).await
                })) as Waited
            })
            .collect();
        handle.sleep(Duration::from_micros(Rng::new(seed).below(20_000))).await;
        disks.leave_room(0);
        let group = client.group.clone();
        let checkpoint = Box::pin(handle.start("checkpoint", async move { group.checkpoint().await })) as Waited;
        sleep(&handle, 20).await;
        Full { disks, client, vol, checkpoint, writers }
    })
}

/// U6: reads work, changes are refused with a message, and everything else continues when there is room.
fn continues(seed: u64, planted: Option<&'static str>) -> Result<(), String> {
    let mut setup = setup();
    setup.config.planted = planted;
    let world = World::new(seed);
    let Full { disks, client, vol, checkpoint, writers } = full_without_writing_in_place(&world, &setup, seed, 4);
    let said = |what: &str, e: Error| format!("{what}: {e}");
    client.group.failed().map_err(|e| said("without room", e))?;
    let (moment, mut rng) = (disks.moment(), Rng::new(seed));
    for policy in POLICIES {
        let image = moment.power_cut(policy, &mut rng);
        judge_image(&setup, &client.oracle.lock(), Since::PowerLoss, image, seed)
            .map_err(|e| format!("{policy:?}: {e}"))?;
    }
    world.run(async {
        assert_eq!(client.group.missing_room().for_data, Some(PvIndex(0)));
        client.verify(vol, 0, BLOCKS * BLOCK).await.map_err(|e| format!("reading without room: {e}"))?;
        let refused = client.snapshot(&[vol], SnapshotKind::default()).await;
        assert!(matches!(refused, Err(Error::NoRoom(_))), "U6: {refused:?}");
        disks.leave_room(2 * BLOCKS);
        checkpoint.await.map_err(|e| said("checkpoint", e))?;
        for writer in writers {
            writer.await.map_err(|e| said("writing", e))?;
        }
        sleep(&world.handle(), 2).await;
        assert_eq!(client.group.missing_room().for_data, None);
        client.snapshot(&[vol], SnapshotKind::default()).await.map_err(|e| said("a snapshot", e))?;
        client.verify_all(vol).await.map_err(|e| format!("reading: {e}"))?;
        client.close().await.map_err(|e| said("closing", e))
    })?;
    check(&world, &disks);
    Ok(())
}

#[test]
fn a_full_filesystem_that_never_writes_in_place_is_waited_for() {
    (0..16).try_for_each(|seed| continues(seed, None).map_err(|e| format!("seed {seed}, {e}"))).unwrap();
    let found = continues(0, Some("metadata_fails_without_room")).unwrap_err();
    assert!(found.contains("without room"), "{found}");
}

/// A group that ends does not wait for room. It reports the missing room, and nothing is lost.
#[test]
fn a_group_that_waits_for_room_can_be_closed() {
    for seed in 0..4 {
        let world = World::new(seed);
        let setup = setup();
        let Full { disks, client, vol, checkpoint, .. } = full_without_writing_in_place(&world, &setup, seed, 0);
        world.run(async {
            let begun = world.handle().now();
            let refused = client.close().await.unwrap_err();
            assert!(refused.to_string().contains("error 28"), "{refused}");
            assert!(world.handle().now() - begun < 3_000_000, "it waited");
            checkpoint.await.unwrap_err();
        });
        disks.leave_room(BLOCKS);
        opens_again(&world, &disks, &client, setup.config, vol);
    }
}

/// A server that ends while its group waits for room: the successor answers the open requests, and none gets an error.
fn is_left_to_a_successor(seed: u64, planted: Option<&'static str>) -> Result<(), String> {
    let mut setup = setup();
    setup.config.planted = planted;
    let world = World::new(seed);
    let Full { disks, client, vol, checkpoint, writers } = full_without_writing_in_place(&world, &setup, seed, 4);
    world.run(async {
        client.group.end_waiting();
        for done in writers.into_iter().chain([checkpoint]) {
            match done.await {
                Err(Error::Closed) | Ok(()) => {}
                Err(error) => return Err(format!("seed {seed}: {error}")),
            }
        }
        Ok(())
    })?;
    disks.leave_room(2 * BLOCKS);
    opens_again(&world, &disks, &client, setup.config, vol);
    Ok(())
}

#[test]
fn a_server_that_ends_without_room_has_a_successor() {
    (0..16).try_for_each(|seed| is_left_to_a_successor(seed, None)).unwrap();
    assert!((0..16).any(|seed| is_left_to_a_successor(seed, Some("closed_counts_as_failure")).is_err()));
}
