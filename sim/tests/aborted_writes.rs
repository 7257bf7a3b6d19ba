//! Recovery rejects a write whose data could not be written. This also holds if a checkpoint was taken between its
//! record and the record that withdraws it, and later markers say that all before them is durable.

use rowen_engine::disk::DiskOpKind;
use rowen_engine::group::{FullPolicy, VolumeKind};
use rowen_engine::runtime::{Runtime, yield_now};
use rowen_sim::client::{BLOCK, Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{Faults, Policy};
use rowen_sim::exec::World;
use rowen_sim::oracle::Since;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

/// The blocks of a request that one record names.
const LARGE: u64 = 16;

#[test]
fn during_a_checkpoint() {
    for seed in 0..100 {
        let setup = Setup::small(1, 32);
        let world = World::new(seed);
        let (disks, group) = setup.make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        let mut rng = Rng::new(seed);
        world.run(async {
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 64, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            client.write(vol, 0, LARGE * BLOCK, &[]).await.unwrap();
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            let number = disks.requests(DiskOpKind::Write);
            disks.set_faults(Faults { fail: Some((DiskOpKind::Write, number)), ..Faults::default() });
            let writer = client.clone();
            let write = async move { writer.write(vol, 0, LARGE * BLOCK, &[(0, LARGE * BLOCK)]).await };
            let write = world.handle().start("write", write);
            while disks.requests(DiskOpKind::Write) <= number {
                yield_now().await;
            }
            // The data and the abort take about equally long.
            world.handle().sleep(Duration::from_micros(rng.below(300))).await;
            client.checkpoint().await.unwrap();
            write.await.unwrap_err();
            // The first flush makes the record's frame durable, the second a frame with its marker, the third that
            // frame.
            for block in LARGE..LARGE + 3 {
                client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
                client.flush(vol).await.unwrap();
            }
        });
        let oracle = client.oracle.lock();
        for policy in [Policy::Nothing, Policy::All] {
            let image = disks.moment().power_cut(policy, &mut rng);
            let judged = judge_image(&setup, &oracle, Since::PowerLoss, image, seed);
            judged.unwrap_or_else(|e| panic!("seed {seed}, {policy:?}: {e}"));
        }
    }
}
