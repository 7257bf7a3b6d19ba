//! A read that takes a disk very long. Its block is not allocated meanwhile (R8), and no other request waits for it
//! (L6).
//!
//! Rule V1.

use parking_lot::Mutex;
use rowen_engine::disk::DiskOpKind;
use rowen_engine::group::{Config, FullPolicy, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::Faults;
use rowen_sim::exec::World;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a disk retries a sector before it fails, in microseconds.
const LONG: u64 = 30_000_000;

fn spec(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

/// A block is read slowly. Meanwhile it is written, which frees its place, and all free blocks are written. Returns the
/// contents that the read found, and the virtual time at which the writes had ended.
fn read_during_a_free(planted: Option<&'static str>) -> (Result<(), String>, u64) {
    let world = World::new(3);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 16) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let handle = world.handle();
    let found = Arc::new(Mutex::new(Err("it was not read".to_string())));
    let ended = Arc::new(Mutex::new(0));
    world.run(async {
        let vol = client.create(spec(16)).await.unwrap();
        let free = client.group.info().free_blocks;
        let other = client.create(spec(2 * free)).await.unwrap();
        client.write(vol, 0, BLOCK, &[]).await.unwrap();
        let next = disks.requests(DiskOpKind::Read);
        disks.set_faults(Faults { slow: Some((DiskOpKind::Read, next, LONG)), ..Faults::default() });
        let (reader, writer, handle, found, ended) =
            (client.clone(), client.clone(), handle.clone(), found.clone(), ended.clone());
        let ops: Vec<Op> = vec![
            Box::pin(async move {
                *found.lock() = reader.verify(vol, 0, BLOCK).await.map(drop).map_err(|e| e.to_string());
                Ok(())
            }),
            Box::pin(async move {
                handle.sleep(Duration::from_millis(1)).await;
                // Fresh: it is redirected once more, and its block is freed by the next checkpoint.
                writer.write(vol, 0, BLOCK, &[]).await?;
                writer.checkpoint().await?;
                let mut at = 0;
                while writer.write(other, at * BLOCK, BLOCK, &[]).await.is_ok() {
                    at += 1;
                }
                *ended.lock() = handle.now();
                Ok(())
            }),
        ];
        client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
        // Afterwards it is free like any other.
        client.verify_all(vol).await.unwrap();
        client.checkpoint().await.unwrap();
        assert_eq!(client.group.info().pending_blocks, 0);
    });
    let found = found.lock().clone();
    let ended = *ended.lock();
    (found, ended)
}

#[test]
fn its_block_is_not_allocated() {
    let (found, ended) = read_during_a_free(None);
    assert_eq!(found, Ok(()));
    assert!(ended < LONG, "writers waited for the read until {ended} us");
}

#[test]
fn a_block_that_is_given_away_early_is_found() {
    let why = read_during_a_free(Some("readers_not_waited_for")).0.unwrap_err();
    assert!(why.contains("MISPLACED"), "{why}");
}

/// A block is overwritten in place, slowly. Meanwhile it is discarded, and all free blocks are written.
#[test]
fn a_block_that_is_being_written_is_not_allocated() {
    let world = World::new(5);
    let (disks, group) = Setup::small(1, 16).make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let handle = world.handle();
    world.run(async {
        let vol = client.create(spec(16)).await.unwrap();
        let free = client.group.info().free_blocks;
        let other = client.create(spec(2 * free)).await.unwrap();
        client.write(vol, 0, BLOCK, &[]).await.unwrap();
        // From now on it is written in place.
        client.checkpoint().await.unwrap();
        let next = disks.requests(DiskOpKind::Write);
        disks.set_faults(Faults { slow: Some((DiskOpKind::Write, next, LONG)), ..Faults::default() });
        let (writer, freer, handle) = (client.clone(), client.clone(), handle.clone());
        let ops: Vec<Op> = vec![
            Box::pin(async move {
                writer.write(vol, 0, BLOCK, &[]).await.unwrap();
                Ok(())
            }),
            Box::pin(async move {
                handle.sleep(Duration::from_millis(1)).await;
                freer.zero(vol, 0, BLOCK, false).await?;
                freer.checkpoint().await?;
                let mut at = 0;
                while freer.write(other, at * BLOCK, BLOCK, &[]).await.is_ok() {
                    at += 1;
                }
                Ok(())
            }),
        ];
        client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
        client.verify_all(other).await.unwrap();
        client.close().await.unwrap();
    });
}

#[test]
fn a_block_that_is_freed_while_it_is_written_is_found() {
    must_be_found("freed_in_flight", a_block_that_is_being_written_is_not_allocated);
}

/// The journal wraps several times during one slow read of another volume.
#[test]
fn writers_do_not_wait_for_it() {
    let world = World::new(4);
    let setup = Setup { config: Config::default(), ..Setup::small(1, 32) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    let handle = world.handle();
    world.run(async {
        let slow = client.create(spec(16)).await.unwrap();
        let busy = client.create(spec(1024)).await.unwrap();
        client.write(slow, 0, BLOCK, &[]).await.unwrap();
        let next = disks.requests(DiskOpKind::Read);
        disks.set_faults(Faults { slow: Some((DiskOpKind::Read, next, LONG)), ..Faults::default() });
        let before = client.group.stats();
        let (reader, writer, handle) = (client.clone(), client.clone(), handle.clone());
        let ops: Vec<Op> = vec![
            Box::pin(async move {
                reader.verify(slow, 0, BLOCK).await.unwrap();
                Ok(())
            }),
            Box::pin(async move {
                for round in 0..3 {
                    for block in 0..512 {
                        writer.write(busy, block * 2 * BLOCK, BLOCK, &[]).await?;
                    }
                    writer.checkpoint().await?;
                    assert!(handle.now() < LONG, "round {round} ended at {} us", handle.now());
                }
                Ok(())
            }),
        ];
        client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
        let after = client.group.stats();
        assert!(after.checkpoints >= before.checkpoints + 3);
        client.verify_all(busy).await.unwrap();
        client.close().await.unwrap();
    });
}
