//! A group snapshot is closed under happens-before. If it contains a write, it also contains every write, to any of its
//! volumes, that was answered before that write began.

use rowen_engine::disk::PageBuf;
use rowen_engine::group::{FullPolicy, VolumeKind};
use rowen_sim::client::{Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const VOLUMES: usize = 4;
/// Counters of a volume. Each has one writer and a place of its own. Some places are parts of one block.
const WRITERS: u64 = 6;

fn place(writer: u64) -> u64 {
    if writer.is_multiple_of(2) { writer * 4096 } else { (1 << 20) + writer * 512 }
}

async fn put(client: &Client, vol: Vol, writer: u64, n: u64) {
    let mut buf = PageBuf::zeroed(512);
    buf.as_mut_slice()[..8].copy_from_slice(&n.to_le_bytes());
    client.volume(vol).unwrap().write(place(writer), 512, Arc::new(buf)).await.unwrap();
}

async fn get(client: &Client, vol: Vol, writer: u64) -> u64 {
    let buf = client.volume(vol).unwrap().read(place(writer), 512, PageBuf::zeroed(512)).await.unwrap();
    u64::from_le_bytes(buf.as_slice()[..8].try_into().unwrap())
}

/// Each writer counts: it writes its number to one volume after the other, then the next number.
async fn count(client: Client, vols: Vec<Vol>, writer: u64, stop: Arc<AtomicBool>) {
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        for &vol in &vols {
            put(&client, vol, writer, n).await;
        }
    }
}

/// Whether a writer's numbers could have been there at one moment.
fn is_a_moment(numbers: &[u64]) -> bool {
    numbers.is_sorted_by(|a, b| a >= b) && numbers[0] - numbers[VOLUMES - 1] <= 1
}

async fn moments(client: &Client, snapshots: &[Vol], what: &Cell<(u64, u64)>) {
    for writer in 0..WRITERS {
        let mut numbers = Vec::new();
        for &snapshot in snapshots {
            numbers.push(get(client, snapshot, writer).await);
        }
        let (all, wrong) = what.get();
        what.set((all + 1, wrong + u64::from(!is_a_moment(&numbers))));
    }
}

#[test]
fn no_effect_without_its_cause() {
    let (together, one_by_one) = (Cell::new((0, 0)), Cell::new((0, 0)));
    for seed in 0..8 {
        let world = World::new(seed);
        let (_disks, group) = Setup::small(2, 64).make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        world.run(async {
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 512, chunk_blocks: 4, full: FullPolicy::Fail };
            let mut vols = Vec::new();
            for _ in 0..VOLUMES {
                vols.push(client.create(spec).await.unwrap());
            }
            let stop = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| world.handle().start("writer", count(client.clone(), vols.clone(), writer, stop.clone())))
                .collect();
            for round in 0..12 {
                // In random order: the order in the command must not matter.
                let mut order = vols.clone();
                order.rotate_left(round % VOLUMES);
                let taken = client.snapshot(&order, SnapshotKind::default()).await.unwrap();
                let of = |vol: &Vol| taken[order.iter().position(|o| o == vol).unwrap()];
                let snapshots: Vec<Vol> = vols.iter().map(of).collect();
                moments(&client, &snapshots, &together).await;
                client.remove(&snapshots).await.unwrap();
                let mut snapshots = Vec::new();
                for vol in &vols {
                    snapshots.extend(client.snapshot(&[*vol], SnapshotKind::default()).await.unwrap());
                }
                moments(&client, &snapshots, &one_by_one).await;
                client.remove(&snapshots).await.unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            for writer in writers {
                writer.await;
            }
            client.close().await.unwrap();
        });
    }
    let ((all, wrong), (_, wrong_apart)) = (together.get(), one_by_one.get());
    assert_eq!((all, wrong), (8 * 12 * WRITERS, 0));
    assert!(wrong_apart > 0, "snapshots taken one by one would have passed, too: the writers are too slow to tell");
}
