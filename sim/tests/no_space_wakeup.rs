//! A write that waits for space ends when the group stops (rule L4).
//!
//! Rule W2.

use rowen_engine::disk::DiskOpKind;
use rowen_engine::group::{Config, FullPolicy, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::Faults;
use rowen_sim::exec::World;
use std::sync::Arc;
use std::time::Duration;

fn spec(blocks: u64, full: FullPolicy) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full }
}

/// A write is held, then a request of this kind fails. `close`: the group is closed after that. An error: a task waits
/// for ever.
fn held(
    kind: DiskOpKind,
    no_space_timeout: Option<Duration>,
    close: bool,
    planted: Option<&'static str>,
) -> Result<(), String> {
    let world = World::new(31);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 32) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let handle = world.handle();
    let outcome = world.try_run(async {
        client.group.set_no_space_timeout(no_space_timeout);
        let small = client.create(spec(64, FullPolicy::Fail)).await.unwrap();
        client.write(small, 0, BLOCK, &[]).await.unwrap();
        let free = client.group.info().free_blocks;
        let vol = client.create(spec(2 * free, FullPolicy::Fail)).await.unwrap();
        let mut at = 0;
        while client.write(vol, at * BLOCK, BLOCK, &[]).await.is_ok() {
            at += 1;
        }
        client.group.set_full_policy(client.id(vol).unwrap(), FullPolicy::Hold).await.unwrap();
        client.checkpoint().await.unwrap();
        let (writing, failing) = (client.clone(), client.clone());
        let ops: Vec<Op> = vec![
            Box::pin(async move { writing.write(vol, (at + 10) * BLOCK, BLOCK, &[]).await }),
            Box::pin(async move {
                handle.sleep(Duration::from_millis(100)).await;
                disks.set_faults(Faults { fail_from: Some((kind, disks.requests(kind))), ..Faults::default() });
                let flushed = failing.flush(small).await;
                let written = failing.group.checkpoint().await;
                if close {
                    handle.sleep(Duration::from_millis(100)).await;
                    let _ = failing.group.close().await;
                }
                flushed.and(written)
            }),
        ];
        client.together(ops).await
    });
    let outcomes = outcome.map_err(|stuck| stuck.to_string())?;
    assert!(outcomes.iter().all(|outcome| outcome.is_err()), "{outcomes:?}");
    Ok(())
}

#[test]
fn a_held_write_ends_when_the_group_stops() {
    for kind in [DiskOpKind::Flush, DiskOpKind::Write] {
        for no_space_timeout in [None, Some(Duration::from_secs(60))] {
            for close in [false, true] {
                let outcome = held(kind, no_space_timeout, close, None);
                assert!(
                    outcome.is_ok(),
                    "{kind:?} fails, no_space_timeout {no_space_timeout:?}, close {close}: {outcome:?}"
                );
            }
        }
    }
}

#[test]
fn one_that_is_left_asleep_is_found() {
    let outcome = held(DiskOpKind::Flush, None, false, Some("waiters_not_woken"));
    assert!(outcome.is_err(), "the planted bug was not found");
}

/// A write waits for space that a removal frees. The removal ends because the group has stopped.
#[test]
fn so_does_one_that_waits_for_a_removal() {
    for number in 0..40u64 {
        let world = World::new(51 + number);
        let (disks, group) = Setup { config: Config::default(), ..Setup::small(1, 32) }.make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        let handle = world.handle();
        let outcome = world.try_run(async {
            let small = client.create(spec(64, FullPolicy::Fail)).await.unwrap();
            client.write(small, 0, BLOCK, &[]).await.unwrap();
            let free = client.group.info().free_blocks;
            let vol = client.create(spec(2 * free, FullPolicy::Fail)).await.unwrap();
            let snap = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
            let mut at = 0;
            while client.write(snap, at * 2 * BLOCK, BLOCK, &[]).await.is_ok() {
                at += 1;
            }
            let (removing, writing, failing) = (client.clone(), client.clone(), client.clone());
            let ops: Vec<Op> = vec![
                Box::pin(async move { removing.remove(&[snap]).await }),
                Box::pin(async move {
                    handle.sleep(Duration::from_micros(300)).await;
                    for n in 0..2000 {
                        writing.write(vol, n * 2 * BLOCK, BLOCK, &[]).await?;
                    }
                    Ok(())
                }),
                Box::pin(async move {
                    let _ = failing.group.checkpoint().await;
                    let first = disks.requests(DiskOpKind::Flush) + number % 3;
                    disks.set_faults(Faults { fail_from: Some((DiskOpKind::Flush, first)), ..Faults::default() });
                    failing.flush(small).await
                }),
            ];
            client.together(ops).await;
        });
        assert!(outcome.is_ok(), "seed {}: {:?}", 51 + number, outcome.err().map(|stuck| stuck.to_string()));
    }
}
