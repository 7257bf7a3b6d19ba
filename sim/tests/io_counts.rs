//! Cost is counted before it is timed: the exact disk requests of each operation.

use rowen_engine::discards::Policy;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_engine::map::NODE_COST;
use rowen_sim::client::{Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Counts, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::Vol;
use rowen_sim::rng::Rng;
use std::sync::Arc;

struct Bench {
    client: Client,
    disks: Arc<SimDisks>,
    vol: Vol,
    world: World,
}

impl Bench {
    /// A group with one filled and flushed thick volume, and nothing in flight.
    fn new() -> Bench {
        let world = World::new(1);
        let (disks, group) = Setup { config: Default::default(), ..Setup::small(1, 64) }.make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        let spec =
            VolumeSpec { kind: VolumeKind::Thick, blocks: 1024, chunk_blocks: 1, full: FullPolicy::DropSnapshot };
        let setup = client.clone();
        let vol = world.run(async move {
            let vol = setup.create(spec).await.unwrap();
            setup.write(vol, 0, 4096, &[]).await.unwrap();
            setup.flush(vol).await.unwrap();
            setup.checkpoint().await.unwrap();
            vol
        });
        world.settle(1_000_000);
        Bench { client, disks, vol, world }
    }

    fn snapshot(&self) {
        self.cost(async |client, vol| drop(client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()));
        self.world.settle(1_000_000);
    }

    /// Reads, writes and flushes of an operation.
    fn cost(&self, op: impl AsyncFnOnce(&Client, Vol)) -> (u64, u64, u64) {
        let before = self.disks.counts();
        self.world.run(op(&self.client, self.vol));
        let cost: Counts = self.disks.counts().since(&before);
        (cost.reads, cost.writes, cost.flushes)
    }
}

async fn write(client: &Client, vol: Vol, sector: u64, count: u64) {
    client.write(vol, sector, count, &[]).await.unwrap();
}

async fn flush(client: &Client, vol: Vol) {
    client.flush(vol).await.unwrap();
}

#[test]
fn a_write_in_place_is_one_write() {
    let bench = Bench::new();
    assert_eq!(bench.cost(async |c, v| write(c, v, 80, 8).await), (0, 1, 0));
    assert_eq!(bench.cost(async |c, v| write(c, v, 83, 1).await), (0, 1, 0), "also of one sector");
    assert_eq!(bench.cost(async |c, v| write(c, v, 0, 2048).await), (0, 1, 0), "also of 1 MiB");
}

#[test]
fn a_redirected_write_is_its_data_and_a_journal_frame() {
    let bench = Bench::new();
    bench.snapshot();
    assert_eq!(bench.cost(async |c, v| write(c, v, 80, 8).await), (0, 2, 0));
    assert_eq!(bench.cost(async |c, v| write(c, v, 800, 64).await), (0, 2, 0), "big writes stay whole");
}

/// Each frame costs as much as a write. Writes in flight together share frames, without waiting for a timer.
#[test]
fn redirected_writes_under_way_together_share_frames() {
    const LANES: u64 = 32;
    const EACH: u64 = 16;
    let bench = Bench::new();
    bench.snapshot();
    let (_, writes, _) = bench.cost(async |c, v| {
        let lanes = (0..LANES).map(|lane| {
            let client = c.clone();
            Box::pin(async move {
                for n in 0..EACH {
                    client.write(v, (n * LANES + lane) * 8, 8, &[]).await?;
                }
                Ok(())
            }) as Op
        });
        c.together(lanes.collect()).await.into_iter().for_each(|outcome| outcome.unwrap());
    });
    let frames = writes - LANES * EACH;
    assert!(frames <= LANES * EACH / 8, "{frames} frames for {} writes, {LANES} at a time", LANES * EACH);
}

#[test]
fn a_redirected_part_of_a_block_reads_the_rest_first() {
    let bench = Bench::new();
    bench.snapshot();
    assert_eq!(bench.cost(async |c, v| write(c, v, 83, 1).await), (1, 2, 0));
}

/// The second write to a block that was just redirected waits for nothing, either.
#[test]
fn a_fresh_block_is_written_elsewhere_again_and_in_place_once_it_is_durable() {
    let bench = Bench::new();
    bench.snapshot();
    let free = || bench.client.group.info().free_blocks;
    bench.cost(async |c, v| write(c, v, 80, 8).await);
    assert_eq!(bench.cost(async |c, v| write(c, v, 80, 8).await), (0, 2, 0));
    assert_eq!(bench.cost(async |c, v| write(c, v, 83, 1).await), (1, 2, 0), "a part of it");
    assert_eq!(bench.client.group.stats().writes_again, 2);
    assert_eq!(bench.client.group.stats().waits_for_marker, 0);
    // A flush, and a frame after it that says so, and a flush that makes that durable.
    bench.cost(async |c, v| flush(c, v).await);
    bench.cost(async |c, v| write(c, v, 160, 8).await);
    bench.cost(async |c, v| flush(c, v).await);
    assert_eq!(bench.cost(async |c, v| write(c, v, 80, 8).await), (0, 1, 0), "in place");
    // Replaced blocks become free: two blocks are in use for two that were redirected.
    let settled = || {
        bench.cost(async |client, _| client.checkpoint().await.unwrap());
        bench.cost(async |client, _| client.checkpoint().await.unwrap());
        free()
    };
    let before = settled();
    for n in 0..100 {
        bench.cost(async |c, v| write(c, v, 240 + n % 2, 1).await);
    }
    assert_eq!(settled(), before - 1, "a hundred writes to one block");
}

/// A thick volume's blocks stay where they were laid out, also when they are written twice at once.
#[test]
fn a_thick_volume_keeps_its_place() {
    let bench = Bench::new();
    let spec = VolumeSpec { kind: VolumeKind::Thick, blocks: 64, chunk_blocks: 1, full: FullPolicy::Fail };
    let client = bench.client.clone();
    let vol = bench.world.run(async move { client.create(spec).await.unwrap() });
    let free = || bench.client.group.info().free_blocks;
    let before = free();
    for _ in 0..3 {
        bench.cost(async |c, _| write(c, vol, 80, 8).await);
    }
    assert_eq!(free(), before, "no other block was taken");
    let stats = bench.client.group.stats();
    assert!(stats.waits_for_marker > 0 && stats.writes_again == 0, "{stats:?}");
}

#[test]
fn a_flush_is_one_flush() {
    let bench = Bench::new();
    assert_eq!(bench.cost(async |c, v| write(c, v, 80, 8).await), (0, 1, 0));
    assert_eq!(bench.cost(async |c, v| flush(c, v).await), (0, 0, 1), "with no mapping changed");
    bench.snapshot();
    bench.cost(async |c, v| write(c, v, 80, 8).await);
    assert_eq!(bench.cost(async |c, v| flush(c, v).await), (0, 0, 1), "after a redirected write");
}

#[test]
fn flushes_that_wait_together_share_one() {
    let bench = Bench::new();
    bench.cost(async |c, v| write(c, v, 80, 8).await);
    let together = bench.cost(async |c, v| {
        let client = c.clone();
        let ops = (0..16).map(|_| {
            let client = client.clone();
            Box::pin(async move { client.flush(v).await }) as rowen_sim::client::Op
        });
        for result in c.together(ops.collect()).await {
            result.unwrap();
        }
    });
    assert!(together.2 <= 3, "16 flushes at once made {} device flushes", together.2);
}

#[test]
fn a_snapshot_is_one_write_and_one_flush() {
    let bench = Bench::new();
    let cost = bench.cost(async |c, v| drop(c.snapshot(&[v], SnapshotKind::default()).await.unwrap()));
    assert_eq!(cost, (0, 1, 1));
}

#[test]
fn a_read_is_one_read() {
    let bench = Bench::new();
    assert_eq!(bench.cost(async |c, v| drop(c.look(v, 80, 8).await.unwrap())), (1, 0, 0));
    assert_eq!(bench.cost(async |c, v| drop(c.look(v, 0, 2048).await.unwrap())), (1, 0, 0), "also of 1 MiB");
}

#[test]
fn dirty_nodes_are_bounded_also_when_each_write_meets_another_leaf() {
    const DIRTY: usize = 64 << 10;
    let world = World::new(7);
    let config = Config { dirty_bytes: DIRTY, cache_bytes: 1 << 20, ..Config::default() };
    let (_, group) = Setup { config, ..Setup::small(1, 512) }.make(&world).unwrap();
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 1 << 24, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async move {
        let vol = client.create(spec).await.unwrap();
        // Scattered over as many leaves as possible, some in flight together.
        for round in 0..1000u64 {
            let writes = (0..16u64).map(|n| {
                let client = client.clone();
                let block = (round * 16 + n).wrapping_mul(0x9E37_79B1) % (1 << 24);
                Box::pin(async move { client.write(vol, block * 8, 8, &[]).await }) as Op
            });
            client.together(writes.collect()).await.into_iter().for_each(|outcome| outcome.unwrap());
        }
    });
    let stats = group.stats();
    assert!(stats.checkpoints > 10, "{stats:?}");
    assert!(stats.dirty_most > 3 * DIRTY as u64, "nobody ever had to wait: {stats:?}");
    // Writes in flight were admitted before: each may add the nodes of its paths.
    let slack = 16 * 6 * NODE_COST;
    assert!(stats.dirty_most < 3 * DIRTY as u64 + slack, "{stats:?}");
}

#[test]
fn recovery_reads_what_lies_together_at_once() {
    const WRITES: u64 = 1024;
    let world = World::new(3);
    let setup = Setup { config: Config::default(), ..Setup::small(1, 512) };
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 1 << 16, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async move {
        let vol = client.create(spec).await.unwrap();
        client.checkpoint().await.unwrap();
        for round in 0..WRITES / 16 {
            let writes = (0..16).map(|n| {
                let client = client.clone();
                let block = (round * 16 + n).wrapping_mul(0x9E37_79B1) % (1 << 16);
                Box::pin(async move { client.write(vol, block * 8, 8, &[]).await }) as Op
            });
            client.together(writes.collect()).await.into_iter().for_each(|outcome| outcome.unwrap());
        }
    });
    // Killed: nothing was flushed, and each record has to be proven by its data.
    let image = disks.moment().killed(&mut Rng::new(3));
    let world = World::new(4);
    let disks = SimDisks::with_image(world.handle(), image);
    let group = world.run(Group::open(disks.clone(), world.handle(), setup.config.clone())).unwrap();
    assert_eq!(group.stats().recovered, WRITES);
    let reads = disks.counts().reads;
    assert!(reads < WRITES / 16, "{reads} reads to prove {WRITES} blocks that lie side by side");
}

#[test]
fn removal_yields_to_writes_and_still_ends() {
    const BLOCKS: u64 = 1 << 14;
    let bench = Bench::new();
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
    let setup = bench.client.clone();
    let dying = bench.world.run(async move {
        let dying = setup.create(spec).await.unwrap();
        // With holes, so that each block is an extent.
        for round in 0..BLOCKS / 64 {
            let writes = (0..32).map(|n| {
                let client = setup.clone();
                Box::pin(async move { client.write(dying, (round * 64 + 2 * n) * 8, 8, &[]).await }) as Op
            });
            setup.together(writes.collect()).await.into_iter().for_each(|outcome| outcome.unwrap());
        }
        setup.checkpoint().await.unwrap();
        dying
    });
    let steps = || bench.client.group.stats().reclaim_steps;
    bench.cost(async |client, _| client.remove(&[dying]).await.unwrap());
    let (mut most, mut waves) = (0, 0);
    while bench.client.group.info().reclaim_left > 0 {
        let before = steps();
        bench.cost(async |client, vol| write(client, vol, waves % 512 * 8, 8).await);
        most = most.max(steps() - before);
        waves += 1;
        assert!(waves < 10_000, "it does not end under constant writes");
    }
    assert!(steps() > BLOCKS / 2 / 168, "{}", steps());
    // A write takes less time than a pause here, so it meets at most the steps between two pauses.
    assert!(most <= 8, "{most} of {} steps beside one write", steps());
}

#[test]
fn metadata_grows_where_free_space_is_in_more_pieces_than_the_cache_has_room_for() {
    const PIECES: u64 = 8192;
    let world = World::new(5);
    let setup = Setup { config: Config::default(), ..Setup::small(1, 512) };
    let (disks, group) = setup.make(&world).unwrap();
    let oracle = Arc::default();
    let client = Client::new(world.handle(), group.clone(), Arc::clone(&oracle));
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: PIECES * 2, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async move {
        let vol = client.create(spec).await.unwrap();
        for part in 0..PIECES * 2 / 256 {
            client.write(vol, part * 2048, 2048, &[]).await.unwrap();
        }
        // Every other block is freed.
        for piece in 0..PIECES {
            client.zero(vol, piece * 16, 8, false).await.unwrap();
        }
        group.close().await.unwrap();
    });
    let world = World::new(6);
    let disks = SimDisks::with_image(world.handle(), disks.moment().killed(&mut Rng::new(6)));
    let config = Config { cache_bytes: 64 << 10, ..Config::default() };
    let group = world.run(Group::open(disks.clone(), world.handle(), config)).unwrap();
    let (before, read) = (group.info().metadata_blocks, disks.counts().reads);
    let client = Client::new(world.handle(), group.clone(), oracle);
    world.run(async move {
        let spec = VolumeSpec { blocks: 1 << 16, chunk_blocks: 1, ..spec };
        let vol = client.create(spec).await.unwrap();
        for round in 0..80u64 {
            client.checkpoint().await.unwrap();
            // Each write after a snapshot copies a leaf.
            for n in 0..50 {
                let block = (round * 50 + n).wrapping_mul(0x9E37_79B1) % (1 << 16);
                client.write(vol, block * 8, 8, &[]).await.unwrap();
            }
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
        }
    });
    assert!(group.info().metadata_blocks > before, "metadata was to grow");
    let reads = disks.counts().reads - read;
    // Free runs are searched once, and not again each time metadata grows.
    assert!(reads < 200, "{reads} reads");
}

/// DC5: a discard of a volume is one record, whatever the settings say. If the blocks are discarded on the disk, that
/// is one request, after the next checkpoint.
#[test]
fn a_discard_costs_the_disk_one_request_where_it_is_wished() {
    let costs = [false, true].map(|passed_down| {
        let bench = Bench::new();
        bench.client.group.set_discards(Policy { freed: false, passed_down });
        let before = bench.disks.counts();
        let cost = bench.cost(async |c, v| c.zero(v, 0, 2048, false).await.unwrap());
        bench.cost(async |c, _| c.checkpoint().await.unwrap());
        bench.world.settle(2_000_000);
        let since = bench.disks.counts().since(&before);
        assert_eq!(bench.cost(async |c, v| write(c, v, 2560, 8).await), (0, 1, 0), "a write in place is one");
        (cost, since.discards, bench.client.group.discarded_bytes())
    });
    let [off, on] = costs;
    assert_eq!((off.1, off.2), (0, 0));
    assert_eq!((on.0, on.1, on.2), (off.0, 1, 1 << 20));
}
