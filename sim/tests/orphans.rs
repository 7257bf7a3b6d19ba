//! Orphans: blocks that only a point holds are freed, although the point has to stay.
//!
//! Rules O1, O2, O3 and O4.

use rowen_engine::disk::Disks;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_sim::client::{Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use std::sync::Arc;

const BLOCKS: u64 = 4096;

fn thin() -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail }
}

/// Writes every `nth` block from `first` on, so that the extents are many and so are the leaves.
async fn scatter(client: &Client, vol: Vol, first: u64, nth: u64) {
    for block in (first..BLOCKS).step_by(nth as usize) {
        client.write(vol, block * 8, 8, &[]).await.unwrap();
    }
}

async fn free_after_all(client: &Client) -> u64 {
    client.checkpoint().await.unwrap();
    client.group.reclaim_idle().await.unwrap();
    client.checkpoint().await.unwrap();
    let info = client.group.info();
    info.free_blocks + info.pending_blocks
}

fn run(config: Config, mib: u64, test: impl AsyncFnOnce(&Client)) {
    let world = World::new(7);
    let (disks, group) = Setup { config, ..Setup::small(1, mib) }.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        test(&client).await;
        client.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn what_origin_and_clone_wrote_over_comes_back() {
    run(Config { orphan_blocks: 64, ..Setup::small(1, 1).config }, 96, async |client| {
        let origin = client.create(thin()).await.unwrap();
        scatter(client, origin, 0, 2).await;
        scatter(client, origin, 1, 2).await;
        let clone = client.snapshot(&[origin], SnapshotKind::default()).await.unwrap()[0];
        let before = free_after_all(client).await;
        scatter(client, origin, 0, 2).await;
        let metadata = client.group.info().metadata_blocks;
        let half = free_after_all(client).await;
        assert!(before - half >= BLOCKS / 2, "the clone needs what the origin wrote over");
        assert_eq!(client.group.stats().orphans_freed, 0);
        scatter(client, clone, 0, 4).await;
        free_after_all(client).await;
        // A search that ran during the writes leaves a few, which are not worth another one.
        assert!(client.group.stats().orphans_freed > BLOCKS / 4 - 64);
        client.group.search_orphans_now();
        let both = free_after_all(client).await;
        // A quarter was written by the clone. The quarter that both had is an orphan.
        let freed = client.group.stats().orphans_freed;
        assert_eq!(freed, BLOCKS / 4);
        assert_eq!(both + (client.group.info().metadata_blocks - metadata), half, "written and freed are as much");
        for vol in [origin, clone] {
            client.verify_all(vol).await.unwrap();
        }
        // All of the rest. One block stays in each leaf.
        scatter(client, clone, 0, 1).await;
        scatter(client, origin, 1, 2).await;
        free_after_all(client).await;
        let freed = client.group.stats().orphans_freed;
        assert!(freed > BLOCKS * 97 / 100 && freed < BLOCKS, "{freed}");
        client.remove(&[origin]).await.unwrap();
        free_after_all(client).await;
        client.verify_all(clone).await.unwrap();
        let info = client.group.info();
        let used = info.blocks - info.free_blocks - info.pending_blocks - info.metadata_blocks;
        assert_eq!(used, BLOCKS, "the clone alone is left, and the point is merged into it");
    });
}

#[test]
fn a_full_group_searches_for_orphans_before_it_refuses() {
    // Too few to be worth a search, but without them the group is full.
    run(Config { orphan_blocks: 1 << 20, ..Setup::small(1, 1).config }, 48, async |client| {
        let origin = client.create(thin()).await.unwrap();
        scatter(client, origin, 0, 1).await;
        let clone = client.snapshot(&[origin], SnapshotKind::default()).await.unwrap()[0];
        let other = client.create(thin()).await.unwrap();
        client.write(origin, 0, BLOCKS * 4, &[]).await.unwrap();
        client.write(clone, 0, BLOCKS * 4, &[]).await.unwrap();
        free_after_all(client).await;
        assert_eq!(client.group.stats().orphans_freed, 0);
        scatter(client, other, 0, 1).await;
        assert!(client.group.stats().orphans_freed > BLOCKS * 45 / 100, "{:?}", client.group.stats());
        for vol in [origin, clone, other] {
            client.verify_all(vol).await.unwrap();
        }
    });
}

/// Orphans in front of leaves that origin and clone share with their point. So a leaf with few remaining extents is
/// next to a shared one.
fn next_to_shared_leaves(planted: Option<&'static str>) -> Result<(), String> {
    let world = World::new(7);
    let config = Config { orphan_blocks: 1, planted, ..Setup::small(1, 1).config };
    let (disks, group) = Setup { config, ..Setup::small(1, 256) }.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    world.run(async {
        for end in (1200..2400).step_by(60) {
            let origin = client.create(thin()).await.unwrap();
            // Leaves are half full, so the rest of one fits into the next.
            scatter(&client, origin, 0, 4).await;
            for block in (0..BLOCKS).step_by(8) {
                client.zero(origin, block * 8, 8, false).await.map_err(|e| e.to_string())?;
            }
            let clone = client.snapshot(&[origin], SnapshotKind::default()).await.unwrap()[0];
            for vol in [origin, clone] {
                for block in (4..end).step_by(8) {
                    client.write(vol, block * 8, 8, &[]).await.map_err(|e| e.to_string())?;
                }
            }
            free_after_all(&client).await;
            for vol in [origin, clone] {
                client.verify_all(vol).await.map_err(|e| format!("reading: {e}"))?;
            }
        }
        assert!(client.group.stats().orphans_freed > 0);
        client.close().await.map_err(|e| format!("closing: {e}"))
    })?;
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).map_err(|e| format!("check: {e}"))?;
    if report.findings.is_empty() { Ok(()) } else { Err(report.findings.join("; ")) }
}

/// O3.
#[test]
fn shared_leaves_next_to_orphans_stay() {
    next_to_shared_leaves(None).unwrap();
    next_to_shared_leaves(Some("orphans_by_replace")).unwrap_err();
}
