//! A checkpoint during many large writes: blocks in flight whose arena is used up take little of its stream (rule L2).

use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Delays, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of each write: the largest request of an export.
const LARGE: u64 = 256;

/// Many large writes are in flight together on a slow disk, with a checkpoint in the middle. Then the server dies, and
/// the group is opened again.
fn writes_in_flight(
    mib: u64,
    extent_blocks: u64,
    writes: u64,
    kind: VolumeKind,
    planted: Option<&'static str>,
) -> Result<(), Error> {
    let world = World::new(21);
    let setup = Setup { config: Config { planted, ..Config::default() }, extent_blocks, ..Setup::small(1, mib) };
    let (disks, group) = setup.make(&world)?;
    let client = Client::new(world.handle(), group, Arc::default());
    let handle = world.handle();
    world.run(async {
        let blocks = writes * LARGE + 1000;
        let vol = client.create(VolumeSpec { kind, blocks, chunk_blocks: 1, full: FullPolicy::Fail }).await?;
        if kind == VolumeKind::Thick {
            client.snapshot(&[vol], SnapshotKind::default()).await?;
        }
        client.checkpoint().await?;
        disks.set_delays(Delays { write: (100_000, 1_000_000), ..Delays::default() });
        let mut ops: Vec<Op> = (0..writes)
            .map(|n| {
                let client = client.clone();
                Box::pin(async move { client.write(vol, n * LARGE * BLOCK, LARGE * BLOCK, &[]).await }) as Op
            })
            .collect();
        let checkpoint = client.clone();
        ops.push(Box::pin(async move {
            handle.sleep(Duration::from_millis(20)).await;
            checkpoint.checkpoint().await
        }));
        client.together(ops).await.into_iter().collect::<Result<Vec<()>, Error>>()?;
        client.verify_all(vol).await.unwrap();
        Ok::<(), Error>(())
    })?;
    let image = disks.moment().killed(&mut Rng::new(21));
    let world = World::new(22);
    let disks = SimDisks::with_image(world.handle(), image);
    let group = world.run(Group::open(disks.clone(), world.handle(), Config::default()))?;
    world.run(group.close())?;
    let report = world.run(Group::check(disks))?;
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    Ok(())
}

#[test]
fn large_writes_in_flight_leave_room_for_a_checkpoint() {
    // 1024 blocks of metadata, and fewer.
    for (mib, extent_blocks, writes) in [(512, 256, 64), (1024, 1024, 128)] {
        let outcome = writes_in_flight(mib, extent_blocks, writes, VolumeKind::Thin, None);
        assert!(outcome.is_ok(), "{writes} writes in {mib} MiB: {outcome:?}");
    }
}

#[test]
fn so_do_redirected_ones() {
    writes_in_flight(1024, 1024, 112, VolumeKind::Thick, None).unwrap();
}

#[test]
fn an_arena_for_each_block_in_flight_is_found() {
    let outcome = writes_in_flight(512, 256, 64, VolumeKind::Thin, Some("arena_per_block"));
    assert!(outcome.is_err(), "the planted bug was not found");
}
