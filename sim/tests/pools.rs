//! A pool's volumes together take no more than its size. Writes beyond it fail or are held, and other volumes of the
//! group continue.
//!
//! Rules Q1, Q2 and W1.

use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::error::{Error, Result};
use rowen_engine::group::{Attributes, Config, FullPolicy, Group, NewSnapshot, NewVolume, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::Setup;
use rowen_sim::disk::SimDisks;
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

async fn make(group: &Arc<Group>, name: &str, blocks: u64, pool: &str, full: FullPolicy) -> VolumeId {
    let volume = NewVolume {
        name: name.into(),
        uuid: Uuid([name.len() as u8; 16]),
        kind: VolumeKind::Thin,
        blocks,
        sector: 512,
        chunk_blocks: 1,
        full,
        attributes: Attributes { pool: pool.into(), ..Attributes::default() },
    };
    group.create_volume(volume).await.unwrap()
}

async fn snapshot(group: &Arc<Group>, origin: VolumeId, name: &str, pool: &str, reserve: Option<u64>) -> VolumeId {
    let snapshot = NewSnapshot {
        origin,
        name: name.into(),
        uuid: Uuid([77; 16]),
        reserve,
        read_only: false,
        chunk_blocks: 1,
        attributes: Attributes { pool: pool.into(), ..Attributes::default() },
    };
    group.snapshot(&[snapshot]).await.unwrap()[0]
}

async fn put(group: &Arc<Group>, id: VolumeId, block: u64, blocks: u64) -> Result<()> {
    let bytes = blocks * BLOCK_SIZE;
    let page = Arc::new(PageBuf::from_slice(&vec![7; bytes as usize]));
    group.volume(id)?.write(block * BLOCK_SIZE, bytes as u32, page).await
}

async fn discard(group: &Arc<Group>, id: VolumeId, block: u64, blocks: u64) {
    group.volume(id).unwrap().discard(block * BLOCK_SIZE, blocks * BLOCK_SIZE).await.unwrap();
}

fn used(group: &Arc<Group>) -> u64 {
    group.volume_info(group.find("pool").unwrap()).unwrap().referenced
}

fn mapped(group: &Arc<Group>, volumes: &[VolumeId]) -> u64 {
    volumes.iter().map(|id| group.volume_info(*id).unwrap().referenced).sum()
}

fn is_full(outcome: &Result<()>) -> bool {
    matches!(outcome, Err(Error::NoSpace { .. }))
}

#[test]
fn a_pool_takes_no_more_than_its_size() {
    let world = World::new(5);
    let (_disks, group) = Setup::small(1, 16).make(&world).unwrap();
    world.run(async {
        let pool = make(&group, "pool", 32, "pool", FullPolicy::Fail).await;
        let a = make(&group, "a", 64, "pool", FullPolicy::Fail).await;
        let b = make(&group, "b", 64, "pool", FullPolicy::Fail).await;
        let beside = make(&group, "beside", 64, "", FullPolicy::Fail).await;
        put(&group, a, 0, 20).await.unwrap();
        put(&group, b, 0, 12).await.unwrap();
        assert_eq!(used(&group), 32);
        assert!(is_full(&put(&group, b, 12, 1).await) && is_full(&put(&group, a, 20, 1).await));
        // Blocks that have a place are written. Other volumes of the group are not affected.
        put(&group, a, 0, 20).await.unwrap();
        put(&group, beside, 0, 64).await.unwrap();
        // Freed space can be taken, and no more.
        discard(&group, a, 16, 4).await;
        put(&group, b, 12, 4).await.unwrap();
        assert!(is_full(&put(&group, b, 16, 1).await));
        // A larger pool.
        group.resize(pool, 40).await.unwrap();
        put(&group, b, 16, 8).await.unwrap();
        assert!(is_full(&put(&group, b, 24, 1).await));
        // A snapshot takes nothing until there are differences. A block that both have counts once.
        group.resize(pool, 44).await.unwrap();
        let snap = snapshot(&group, a, "snap", "pool", None).await;
        assert_eq!(used(&group), 40);
        put(&group, a, 0, 4).await.unwrap();
        assert_eq!(used(&group), 44);
        assert!(is_full(&put(&group, a, 4, 1).await));
        group.remove(&[snap]).await.unwrap();
        group.reclaim_idle().await.unwrap();
        assert_eq!(used(&group), 40);
        put(&group, a, 16, 4).await.unwrap();
        assert!(is_full(&put(&group, a, 20, 1).await));
        // A volume that leaves.
        group.remove(&[a]).await.unwrap();
        put(&group, b, 24, 20).await.unwrap();
        assert!(is_full(&put(&group, b, 44, 1).await));
        // The reserve pays for the blocks that a snapshot with a reserve keeps.
        let cow = snapshot(&group, b, "cow", "", Some(16)).await;
        put(&group, b, 0, 8).await.unwrap();
        assert_eq!(used(&group), 44);
        put(&group, cow, 0, 4).await.unwrap();
        assert_eq!(used(&group), 44);
        group.remove(&[cow]).await.unwrap();
        group.reclaim_idle().await.unwrap();
        // A volume joins the pool. Its blocks count, and nothing more is allocated.
        let attributes = Attributes { pool: "pool".into(), ..Attributes::default() };
        group.set_attributes(beside, attributes).await.unwrap();
        assert_eq!(used(&group), 108);
        discard(&group, beside, 0, 1).await;
        assert!(is_full(&put(&group, beside, 0, 1).await));
        group.set_attributes(beside, Attributes::default()).await.unwrap();
        put(&group, beside, 0, 1).await.unwrap();
    });
}

#[test]
fn the_bound_outlives_the_program() {
    let world = World::new(6);
    let (disks, group) = Setup::small(1, 16).make(&world).unwrap();
    let image = world.run(async {
        make(&group, "pool", 32, "pool", FullPolicy::Fail).await;
        let a = make(&group, "a", 64, "pool", FullPolicy::Fail).await;
        snapshot(&group, a, "early", "pool", None).await;
        put(&group, a, 0, 30).await.unwrap();
        snapshot(&group, a, "late", "pool", None).await;
        put(&group, a, 30, 1).await.unwrap();
        group.volume(a).unwrap().flush().await.unwrap();
        disks.moment().killed(&mut Rng::new(1))
    });
    let world = World::new(7);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
    world.run(async {
        let group = Group::open(disks, world.handle(), Config::default()).await.unwrap();
        let a = group.find("a").unwrap();
        assert_eq!(used(&group), 31);
        put(&group, a, 0, 1).await.unwrap();
        assert!(is_full(&put(&group, a, 1, 1).await));
        put(&group, a, 0, 1).await.unwrap();
    });
}

/// Whether the future is done within a second of the world's time.
async fn is_done_in_a_second<F: Future + Unpin>(world: &World, future: &mut F) -> bool {
    is_done_within(world, 1, future).await.is_some()
}

/// The future's result, if it is done within this many seconds of the world's time.
async fn is_done_within<F: Future + Unpin>(world: &World, seconds: u64, future: &mut F) -> Option<F::Output> {
    let mut time = world.handle().sleep(Duration::from_secs(seconds));
    poll_fn(|cx| match (Pin::new(&mut *future).poll(cx), time.as_mut().poll(cx)) {
        (Poll::Ready(outcome), _) => Poll::Ready(Some(outcome)),
        (_, Poll::Ready(())) => Poll::Ready(None),
        _ => Poll::Pending,
    })
    .await
}

#[test]
fn writes_beyond_it_are_held_until_there_is_room() {
    for way in 0..3 {
        let world = World::new(8 + way);
        let (_disks, group) = Setup::small(1, 16).make(&world).unwrap();
        world.run(async {
            let pool = make(&group, "pool", 32, "pool", FullPolicy::Hold).await;
            let a = make(&group, "a", 64, "pool", FullPolicy::Hold).await;
            let b = make(&group, "b", 64, "pool", FullPolicy::Hold).await;
            put(&group, a, 0, 32).await.unwrap();
            let mut held = pin!(put(&group, b, 0, 8));
            assert!(!is_done_in_a_second(&world, &mut held).await, "a full pool took a write");
            // In place, meanwhile.
            put(&group, a, 0, 32).await.unwrap();
            match way {
                0 => group.resize(pool, 40).await.unwrap(),
                1 => discard(&group, a, 0, 8).await,
                _ => group.remove(&[a]).await.unwrap(),
            }
            held.await.unwrap();
        });
    }
}

#[test]
fn writes_that_waited_for_too_long_fail_until_there_is_room() {
    let world = World::new(21);
    let (_disks, group) = Setup::small(1, 16).make(&world).unwrap();
    world.run(async {
        let pool = make(&group, "pool", 32, "pool", FullPolicy::Hold).await;
        let a = make(&group, "a", 64, "pool", FullPolicy::Hold).await;
        let b = make(&group, "b", 64, "pool", FullPolicy::Hold).await;
        put(&group, a, 0, 32).await.unwrap();
        let mut for_ever = pin!(put(&group, b, 60, 1));
        assert!(is_done_within(&world, 100, &mut for_ever).await.is_none(), "without a limit it waits");

        // Writes that already wait do not wait longer than others.
        group.set_no_space_timeout(Some(Duration::from_secs(60)));
        assert!(is_done_within(&world, 30, &mut for_ever).await.is_none());
        let mut later = pin!(put(&group, b, 0, 8));
        assert!(is_done_within(&world, 25, &mut later).await.is_none(), "the time was shorter than it is");
        assert!(group.timed_out_pools().is_empty());
        assert!(is_done_within(&world, 10, &mut for_ever).await.is_some_and(|outcome| is_full(&outcome)));
        assert!(is_done_within(&world, 1, &mut later).await.is_some_and(|outcome| is_full(&outcome)));
        assert_eq!(group.timed_out_pools(), [Some("pool".to_owned())]);
        let mut at_once = pin!(put(&group, b, 0, 8));
        assert!(is_done_within(&world, 1, &mut at_once).await.is_some_and(|outcome| is_full(&outcome)));
        // In place, meanwhile.
        put(&group, a, 0, 32).await.unwrap();

        // After there was room, a new time begins.
        group.resize(pool, 34).await.unwrap();
        put(&group, b, 0, 2).await.unwrap();
        assert!(group.timed_out_pools().is_empty());
        let mut held = pin!(put(&group, b, 2, 1));
        assert!(is_done_within(&world, 55, &mut held).await.is_none(), "the old time was held against it");
        discard(&group, a, 0, 1).await;
        held.await.unwrap();
        let mut again = pin!(put(&group, b, 3, 1));
        assert!(is_done_within(&world, 55, &mut again).await.is_none(), "a time that nobody waits for went on");
        // Without a limit they wait for ever.
        group.set_no_space_timeout(None);
        assert!(is_done_within(&world, 100, &mut again).await.is_none());
        group.resize(pool, 40).await.unwrap();
        again.await.unwrap();
    });
}

#[test]
fn writes_wait_no_longer_for_the_groups_own_space() {
    let world = World::new(22);
    let (_disks, group) = Setup::small(1, 16).make(&world).unwrap();
    world.run(async {
        let a = make(&group, "a", 1 << 20, "", FullPolicy::Hold).await;
        group.set_no_space_timeout(Some(Duration::from_secs(60)));
        let mut block = 0;
        let refused = loop {
            match put(&group, a, block, 8).await {
                Ok(()) => block += 8,
                refused => break refused,
            }
        };
        assert!(is_full(&refused) && block > 64, "block {block}: {refused:?}");
        assert_eq!(group.timed_out_pools(), [None]);
        let mut at_once = pin!(put(&group, a, block, 8));
        assert!(is_done_within(&world, 5, &mut at_once).await.is_some_and(|outcome| is_full(&outcome)));
        discard(&group, a, 0, 32).await;
        put(&group, a, block, 8).await.unwrap();
        assert!(group.timed_out_pools().is_empty());
    });
}

/// Many writers at once, at the limit. The pool never holds more than its size. Nothing that fits is refused once all
/// is quiet, and the counters equal the maps.
#[test]
fn writers_at_once_never_take_more_than_there_is() {
    const SIZE: u64 = 48;
    for seed in 0..60 {
        let world = World::new(1000 + seed);
        let (_disks, group) = Setup::small(1, 16).make(&world).unwrap();
        world.run(async {
            make(&group, "pool", SIZE, "pool", FullPolicy::Fail).await;
            let mut volumes = Vec::new();
            for name in ["a", "b", "c"] {
                volumes.push(make(&group, name, 64, "pool", FullPolicy::Fail).await);
            }
            let ended = Arc::new(AtomicUsize::new(0));
            let writers = 6;
            for writer in 0..writers {
                let (group, ended, id) = (group.clone(), ended.clone(), volumes[writer % 3]);
                let volumes = volumes.clone();
                let mut rng = Rng::new(seed * 100 + writer as u64);
                let work = async move {
                    for _ in 0..40 {
                        let (block, blocks) = (rng.below(60), 1 + rng.below(4));
                        match rng.below(5) {
                            0 => discard(&group, id, block, blocks).await,
                            _ => {
                                let outcome = put(&group, id, block, blocks).await;
                                assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
                            }
                        }
                        assert!(mapped(&group, &volumes) <= SIZE, "seed {seed}: more than the pool's size");
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                };
                world.handle().spawn("writer", Box::pin(work));
            }
            while ended.load(Ordering::Relaxed) < writers {
                world.handle().sleep(Duration::from_millis(1)).await;
            }
            let mapped = mapped(&group, &volumes);
            assert_eq!(used(&group), mapped, "seed {seed}");
            // All that is left can be allocated, block by block, and no more.
            let beside = make(&group, "d", 64, "pool", FullPolicy::Fail).await;
            for block in 0..SIZE - mapped {
                put(&group, beside, block, 1).await.unwrap();
            }
            assert!(is_full(&put(&group, beside, SIZE, 1).await), "seed {seed}");
            // Blocks with a place are written, although they are fresh.
            for block in 0..SIZE - mapped {
                put(&group, beside, block, 1).await.unwrap();
            }
            assert_eq!(used(&group), SIZE);
        });
    }
}
