//! A bad copy of a node is restored only while the block is still that node's (M8).

use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Faults, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const BLOCKS: u64 = 3000;
/// The time of the write that repairs a copy, in microseconds.
const SLOW: u64 = 2_000_000;

/// All first copies of nodes are rotten. One is read, and the next write takes long. Meanwhile all nodes are replaced
/// until the metadata area was used several times. Returns the findings of `check` that are not rot.
fn slow_repair(seed: u64, planted: Option<&'static str>) -> Vec<String> {
    let world = World::new(seed);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 48) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let vol = world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        for block in (0..BLOCKS).step_by(2) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.close().await.unwrap();
        vol
    });
    let image = disks.moment().killed(&mut Rng::new(seed));
    let world = World::new(seed);
    let disks = SimDisks::with_image(world.handle(), image);
    let group = world.run(Group::open(disks.clone(), world.handle(), setup.config.clone())).unwrap();
    let client = Client::new(world.handle(), group, client.oracle.clone());
    // The metadata area's first copy begins behind the label and the journal, of one MiB each.
    for block in 0..256 {
        disks.rot(PvIndex(0), (2 << 20) + block * 4096 + 100, 1);
    }
    let next = disks.requests(DiskOpKind::Write);
    disks.set_faults(Faults { slow: Some((DiskOpKind::Write, next, SLOW)), ..Faults::default() });
    let handle = world.handle();
    world.run(async {
        let (reader, writer) = (client.clone(), client.clone());
        let end = handle.now() + SLOW + 20_000;
        let ops: Vec<Op> = vec![
            Box::pin(async move {
                reader.verify(vol, 2 * BLOCK, BLOCK).await.map(drop).unwrap();
                Ok(())
            }),
            Box::pin(async move {
                let mut rng = Rng::new(seed);
                handle.sleep(Duration::from_millis(1)).await;
                while handle.now() < end {
                    for _ in 0..8 {
                        writer.write(vol, rng.below(BLOCKS) * BLOCK, BLOCK, &[]).await?;
                    }
                    writer.checkpoint().await?;
                }
                Ok(())
            }),
        ];
        client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
        client.verify_all(vol).await.unwrap();
        client.close().await.unwrap();
    });
    let image = disks.moment().killed(&mut Rng::new(seed));
    let world = World::new(seed);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
    let report = world.run(Group::check(disks)).unwrap();
    report.findings.into_iter().filter(|finding| !finding.contains("checksum")).collect()
}

#[test]
fn a_node_is_not_written_over_by_the_one_before_it() {
    for seed in 1..=3 {
        assert_eq!(slow_repair(seed, None), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_repair_that_comes_too_late_is_found() {
    let found = (1..=200).any(|seed| !slow_repair(seed, Some("repaired_outside_checkpoint")).is_empty());
    assert!(found, "the planted bug was not found");
}
