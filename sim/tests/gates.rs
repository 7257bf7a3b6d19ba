//! Commands that close a volume's gate, during requests that never end. A command that waits for the gate is served,
//! and a late request gets an error.

use rowen_engine::disk::PageBuf;
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, Group, VolumeKind, VolumeState};
use rowen_engine::units::BLOCK_SIZE;
use rowen_sim::client::{Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Delays, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCKS: u64 = 64;
const READERS: u64 = 16;

fn thin() -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail }
}

fn make(world: &World) -> (Arc<SimDisks>, Client, Vol) {
    let (disks, group) = Setup::small(1, 32).make(world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let vol = world.run(async {
        let vol = client.create(thin()).await.unwrap();
        client.write(vol, 0, BLOCKS * 8, &[]).await.unwrap();
        vol
    });
    (disks, client, vol)
}

/// Runs `command` while readers keep at least one request to the volume in flight.
fn with_readers(seed: u64, of: impl AsyncFnOnce(&Client, Vol) -> Vol, command: impl AsyncFnOnce(&Client, Vol)) {
    let world = World::new(seed);
    let (_, client, origin) = make(&world);
    let read = world.run(of(&client, origin));
    let volume = client.volume(read).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let readers = (0..READERS).map(|reader| {
        let (volume, stop) = (volume.clone(), stop.clone());
        let loops = async move {
            let page = || PageBuf::zeroed(BLOCK_SIZE as usize);
            while !stop.load(Ordering::Relaxed) && volume.read(reader * BLOCK_SIZE, 4096, page()).await.is_ok() {}
        };
        world.handle().start("reader", loops)
    });
    let readers: Vec<_> = readers.collect();
    world.run(async {
        command(&client, origin).await;
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.await;
        }
    });
}

#[test]
fn a_volume_is_resized_while_it_is_read() {
    for seed in 0..8 {
        with_readers(
            seed,
            async |_, origin| origin,
            async |client, origin| {
                client.resize(origin, 2 * BLOCKS).await.unwrap();
                client.resize(origin, BLOCKS).await.unwrap();
            },
        );
    }
}

#[test]
fn an_origin_continues_when_its_snapshot_is_read_and_outgrown() {
    for seed in 0..8 {
        let snapshot = async |client: &Client, origin| {
            let kind = SnapshotKind { reserve: Some(4), ..SnapshotKind::default() };
            client.snapshot(&[origin], kind).await.unwrap()[0]
        };
        with_readers(seed, snapshot, async |client, origin| {
            for block in 0..8 {
                client.write(origin, block * 8, 8, &[]).await.unwrap();
            }
            assert!(client.group.volumes().iter().any(|volume| volume.state == VolumeState::Invalid));
        });
    }
}

async fn remove(group: Arc<Group>, name: String) -> bool {
    let id = group.find(&name).unwrap();
    group.remove(&[id]).await.is_ok()
}

#[test]
fn a_volume_that_two_remove_is_gone_for_good() {
    for seed in 0..8 {
        let world = World::new(seed);
        let (disks, client, vol) = make(&world);
        // Both wait for this read.
        disks.set_delays(Delays { read: (1000, 1000), ..Delays::default() });
        let volume = client.volume(vol).unwrap();
        let reader = volume.clone();
        let read = async move { reader.read(0, 4096, PageBuf::zeroed(4096)).await.map(drop) };
        let read = world.handle().start("reader", read);
        world.settle(500);
        let name = client.group.volumes()[0].name.clone();
        let removals = [0, 1].map(|_| world.handle().start("removal", remove(client.group.clone(), name.clone())));
        let [first, second] = removals;
        let removed = world.run(async {
            read.await.unwrap();
            [first.await, second.await]
        });
        assert!(removed[0] != removed[1], "one of them is too late");
        // A record of a volume that is gone would keep the group from being opened.
        let late = world.run(volume.write(0, 4096, Arc::new(PageBuf::zeroed(4096))));
        assert!(matches!(late, Err(Error::Closed)), "seed {seed}: {late:?}");
    }
}
