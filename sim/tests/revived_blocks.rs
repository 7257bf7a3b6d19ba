//! Recovery counted a block as the snapshot's alone, and then maps it again. This happens if a thick origin's discard
//! keeps the place while the snapshot is removed, and the next write uses it. A power cut may leave a checkpoint from
//! before the removal.
//!
//! Rule N1.

use rowen_engine::disk::DiskOpKind;
use rowen_engine::group::{Config, FullPolicy, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{Faults, Policy};
use rowen_sim::exec::World;
use rowen_sim::oracle::Since;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

/// Longer than everything else takes, in microseconds.
const LONG: u64 = 30_000_000;

/// A snapshot is removed. The `nth` write to the disk from then on takes long. It is part of the checkpoint after the
/// removal, or of something else. Returns what is wrong with the group after a power cut.
fn cut_before_a_checkpoint(nth: u64, planted: Option<&'static str>) -> Result<(), String> {
    let world = World::new(nth);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 16) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let handle = world.handle();
    world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thick, blocks: 64, chunk_blocks: 1, full: FullPolicy::Fail };
        // Removal in the recovered group handles these first.
        let other = client.create(spec).await.unwrap();
        let mut gone = Vec::new();
        for _ in 0..4 {
            client.write(other, 0, 512, &[]).await.unwrap();
            gone.extend(client.snapshot(&[other], SnapshotKind::default()).await.unwrap());
        }
        let vol = client.create(spec).await.unwrap();
        client.write(vol, 0, 512, &[]).await.unwrap();
        gone.extend(client.snapshot(&[vol], SnapshotKind::default()).await.unwrap());
        client.checkpoint().await.unwrap();
        let next = disks.requests(DiskOpKind::Write) + nth;
        disks.set_faults(Faults { slow: Some((DiskOpKind::Write, next, LONG)), ..Faults::default() });
        client.remove(&gone).await.unwrap();
        for _ in 0..100 {
            handle.sleep(Duration::from_micros(100)).await;
        }
        client.zero(vol, 0, 256, false).await.unwrap();
        client.write(vol, 64, 64, &[]).await.unwrap();
        client.flush(vol).await.unwrap();
        let image = disks.moment().power_cut(Policy::All, &mut Rng::new(nth));
        let judged = judge_image(&setup, &client.oracle.lock(), Since::PowerLoss, image, nth);
        client.close().await.unwrap();
        judged
    })
}

#[test]
fn it_is_not_counted_as_dead() {
    for nth in 0..12 {
        assert_eq!(cut_before_a_checkpoint(nth, None), Ok(()), "write {nth} is slow");
    }
}

#[test]
fn one_that_stays_dead_is_found() {
    let found: Vec<String> =
        (0..12).filter_map(|nth| cut_before_a_checkpoint(nth, Some("revived_block_stays_dead")).err()).collect();
    assert!(found.iter().any(|why| why.contains("no longer uses")), "{found:?}");
}
