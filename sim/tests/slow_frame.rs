//! A frame of the journal that takes a disk very long. Frames behind it are written once, not again and again. A ring
//! that fills up gets its checkpoint, whatever waits for it.
//!
//! Rules J8 and J9.

use parking_lot::Mutex;
use rowen_engine::disk::DiskOpKind;
use rowen_engine::group::{Attributes, Config, FullPolicy, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::Faults;
use rowen_sim::exec::World;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a disk retries a sector before it fails, in microseconds.
const LONG: u64 = 30_000_000;
/// The requests while a frame is in flight: the data of eight writes, their frames, and frames for markers.
const WRITTEN: u64 = 20;

fn spec(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

/// A snapshot is removed, which needs a marker, during a write. The `nth` request from then on is slow. Returns how
/// many requests the disks get within a second.
fn written_during_a_slow_request(nth: u64, planted: Option<&'static str>) -> u64 {
    let world = World::new(7);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 16) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let handle = world.handle();
    let written = Arc::new(Mutex::new(0));
    world
        .try_run(async {
            let vol = client.create(spec(16)).await.unwrap();
            let other = client.create(spec(16)).await.unwrap();
            client.write(vol, 0, 4 * BLOCK, &[]).await.unwrap();
            let snap = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
            client.write(vol, 0, BLOCK, &[]).await.unwrap();
            let before = disks.requests(DiskOpKind::Write);
            disks.set_faults(Faults { slow: Some((DiskOpKind::Write, before + nth, LONG)), ..Faults::default() });
            let (remover, writer, seen) = (client.clone(), client.clone(), written.clone());
            let counted = disks.clone();
            let ops: Vec<Op> = vec![
                Box::pin(async move { remover.remove(&[snap]).await }),
                Box::pin(async move {
                    for block in 0..8 {
                        writer.write(other, block * BLOCK, BLOCK, &[]).await?;
                    }
                    Ok(())
                }),
                Box::pin(async move {
                    handle.sleep(Duration::from_secs(1)).await;
                    *seen.lock() = counted.requests(DiskOpKind::Write) - before;
                    Ok(())
                }),
            ];
            client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
            client.verify_all(vol).await.unwrap();
            client.close().await.unwrap();
        })
        .unwrap();
    *written.lock()
}

#[test]
fn each_marker_is_sent_once() {
    for nth in 0..12 {
        let written = written_during_a_slow_request(nth, None);
        assert!(written <= WRITTEN, "request {nth} is slow: {written} others");
    }
}

#[test]
fn a_marker_that_is_sent_again_is_found() {
    let most = (0..12).map(|nth| written_during_a_slow_request(nth, Some("marker_sent_twice"))).max();
    assert!(most > Some(5 * WRITTEN), "{most:?} requests");
}

/// Large records of commands that run together fill the ring before any of their frames is on the disk. Then a command
/// waits for room.
fn a_command_behind_many(planted: Option<&'static str>) -> Result<(), String> {
    let world = World::new(9);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 64) };
    let (_, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let outcome = world.try_run(async {
        let mut vols = Vec::new();
        for _ in 0..14 {
            vols.push(client.create(spec(16)).await.unwrap());
        }
        client.checkpoint().await.unwrap();
        let tags: Vec<String> = (0..60).map(|n| format!("{n:01000}")).collect();
        let ops = vols.iter().map(|vol| {
            let (client, id, tags) = (client.clone(), client.id(*vol).unwrap(), tags.clone());
            Box::pin(async move { client.group.set_attributes(id, Attributes { tags, ..Attributes::default() }).await })
                as Op
        });
        client.together(ops.collect()).await.into_iter().for_each(|outcome| outcome.unwrap());
        client.resize(vols[0], 32).await.unwrap();
        client.close().await.unwrap();
    });
    outcome.map_err(|stuck| stuck.to_string())
}

#[test]
fn a_full_ring_gets_its_checkpoint() {
    assert_eq!(a_command_behind_many(None), Ok(()));
}

#[test]
fn a_full_ring_without_a_checkpoint_is_found() {
    let why = a_command_behind_many(Some("no_checkpoint_for_waiters")).unwrap_err();
    assert!(why.contains("deadlock"), "{why}");
}
