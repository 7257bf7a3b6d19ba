//! Writes beside a merge into a child that has dropped whole leaves meanwhile.
#![allow(clippy::unwrap_used)]

use rowen_engine::disk::Disks;
use rowen_engine::group::{FullPolicy, Group, VolumeKind};
use rowen_sim::client::{Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;

const BLOCKS: u64 = 4096;
/// Extents of a leaf that was filled in order.
const LEAF: u64 = 160;

#[test]
fn no_node_is_lost_where_a_neighbour_went() {
    for seed in 0..12 {
        let world = World::new(seed);
        let (disks, group) = Setup::small(1, 96).make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        let mut rng = Rng::new(seed);
        world.run(async {
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            for block in (0..BLOCKS).step_by(2).chain((1..BLOCKS).step_by(2)) {
                client.write(vol, block * 8, 8, &[]).await.unwrap();
            }
            for _ in 0..3 {
                let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
                for _ in 0..8 {
                    let first = rng.below(BLOCKS - 2 * LEAF);
                    client.zero(vol, first * 8, (LEAF + rng.below(LEAF)) * 8, false).await.unwrap();
                }
                client.checkpoint().await.unwrap();
                client.remove(&[snapshot]).await.unwrap();
                let mut waves = 0;
                while client.group.info().reclaim_left > 0 {
                    let at = rng.below(BLOCKS);
                    client.write(vol, at * 8, 8, &[]).await.unwrap();
                    waves += 1;
                }
                assert!(waves > 0, "nothing ran beside the merge");
                client.group.reclaim_idle().await.unwrap();
                client.verify_all(vol).await.unwrap();
            }
            client.close().await.unwrap();
        });
        let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
    }
}
