//! Lists of changes are exact, can be resumed, and cost as much as the changes.
//!
//! Rules DF1, DF2, DF3, DF4, DF5 and DF6.

use crate::model::{assert_met, run_all_with};
use rowen_engine::error::Error;
use rowen_engine::group::{Changed, Compared, Config, Content, FullPolicy, Group, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Delays, Policy, SimDisks};
use rowen_sim::effort::scaled;
use rowen_sim::exec::World;
use rowen_sim::model::{Lists, Moves, Profile, run_seed_with};
use rowen_sim::oracle::Vol;
use rowen_sim::rng::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Random runs. After each step the lists of random pairs are compared with their bytes.
fn lists(profile: Profile, seeds: u64, steps: u32, moves: Moves) -> (Lists, u64) {
    let seen = run_all_with(profile, seeds, steps, Some(moves));
    let lists = seen.lists;
    println!("{profile:?} {moves:?}: {lists:?}, {} reverts, {} deaths", seen.reverts, seen.deaths);
    assert_met(lists.compared > 0 && lists.data_blocks > 0 && lists.zero_blocks > 0 && lists.unrelated > 0, &seen);
    (lists, seen.stats.windows_rehomed)
}

#[test]
fn lists_are_what_a_comparison_of_bytes_finds() {
    lists(Profile::Exact, scaled(80), 120, Moves::None);
    lists(Profile::UnknownSectors, scaled(120), 120, Moves::None);
    lists(Profile::Full, scaled(60), 150, Moves::None);
    lists(Profile::Deep, scaled(5), 800, Moves::None);
}

/// Blocks that move belonged to the volume, and are in the list already (V5).
#[test]
fn re_homing_adds_nothing_to_lists() {
    let (lists, moved) = lists(Profile::UnknownSectors, scaled(60), 120, Moves::Rehome);
    assert!(moved > 0 || scaled(100) < 100, "nothing was moved");
    assert_eq!(lists.copies, 0);
}

/// V5: a shared block that moves gets a new birth. So it is in a list although nobody changed it.
#[test]
fn shared_blocks_that_move_are_found() {
    must_be_found("moves_shared", || {
        let copies = (1..=60)
            .map(|seed| run_seed_with(seed, 120, Profile::UnknownSectors, Some(Moves::Rehome)).unwrap().lists.copies);
        assert_eq!(copies.sum::<u64>(), 0);
    });
}

/// Copies of shared blocks are in lists, and nothing is missing.
#[test]
fn filling_adds_its_copies_to_lists() {
    let (lists, _) = lists(Profile::UnknownSectors, scaled(60), 120, Moves::Fill);
    assert!(lists.copies > 0 || scaled(100) < 100, "nothing was copied");
}

/// The random runs must find the bug.
fn is_found(bug: &'static str, profile: Profile) {
    must_be_found(bug, move || {
        for seed in 1..=60 {
            run_seed_with(seed, 120, profile, Some(Moves::None)).unwrap();
        }
    });
}

#[test]
fn planted_bugs_are_found() {
    is_found("diff_old_not_walked", Profile::Exact);
    is_found("diff_from_first", Profile::Exact);
    is_found("diff_by_key", Profile::Exact);
    is_found("diff_ends_with_old", Profile::Exact);
}

fn thin(blocks: u64) -> VolumeSpec {
    VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail }
}

const READ_ONLY: SnapshotKind = SnapshotKind { read_only: true, reserve: None, chunk_blocks: 1 };

fn compare(client: &Client, old: Vol, new: Vol) -> Compared {
    client.group.compare(Some(client.id(old).unwrap()), client.id(new).unwrap()).unwrap()
}

async fn whole(client: &Client, compared: Compared, most: usize) -> Result<Vec<Changed>, Error> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(at) = next {
        let part = client.group.changed(&compared, at, most).await?;
        all.extend(part.ranges);
        next = part.next;
    }
    Ok(all)
}

fn blocks(list: &[Changed]) -> BTreeSet<u64> {
    list.iter().flat_map(|range| range.start..range.end()).collect()
}

const BLOCKS: u64 = 32 << 10;

/// A volume whose map has about a hundred leaves.
struct Large {
    client: Client,
    disks: Arc<SimDisks>,
    world: World,
    vol: Vol,
    setup: Setup,
}

impl Large {
    fn new() -> Large {
        let setup = Setup { config: Config::default(), ..Setup::small(1, 384) };
        let world = World::new(5);
        let (disks, group) = setup.make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::default());
        let vol = world.run(async {
            let vol = client.create(thin(BLOCKS)).await.unwrap();
            for block in (0..BLOCKS).step_by(2) {
                client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            }
            client.flush(vol).await.unwrap();
            vol
        });
        Large { client, disks, world, vol, setup }
    }

    fn snapshot(&self) -> Vol {
        self.world.run(async { self.client.snapshot(&[self.vol], READ_ONLY).await.unwrap()[0] })
    }

    /// Closes the group and opens it again, with nothing in its cache.
    fn reopened(self) -> Large {
        let Large { client, disks, world, vol, setup } = self;
        world.run(async { client.close().await.unwrap() });
        let image = disks.moment().power_cut(Policy::Nothing, &mut Rng::new(1));
        let oracle = client.oracle.clone();
        drop((client, disks, world));
        let world = World::new(6);
        let disks = SimDisks::with_image(world.handle(), image);
        let group = world.run(Group::open(disks.clone(), world.handle(), setup.config.clone())).unwrap();
        let client = Client::new(world.handle(), group, oracle);
        world.settle(1_000_000);
        Large { client, disks, world, vol, setup }
    }

    /// A list, and the reads that it cost.
    fn list(&self, compared: Compared) -> (Vec<Changed>, u64) {
        let before = self.disks.counts();
        let list = self.world.run(whole(&self.client, compared, 1000)).unwrap();
        (list, self.disks.counts().since(&before).reads)
    }
}

/// The cost of a list. It reads changed nodes on both sides, and none where nothing changed.
#[test]
fn a_list_reads_what_changed() {
    let mut large = Large::new();
    let mut rng = Rng::new(3);
    for changes in [0, 1, 10, 40] {
        let old = large.snapshot();
        let written: BTreeSet<u64> = (0..changes).map(|_| rng.below(BLOCKS)).collect();
        large.world.run(async {
            for block in &written {
                large.client.write(large.vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            }
        });
        let new = large.snapshot();
        large = large.reopened();
        let (list, reads) = large.list(compare(&large.client, old, new));
        println!("{changes} changes: {reads} reads");
        assert_eq!(blocks(&list), written);
        assert!(reads <= written.len() as u64 * 2 + 2 * u64::from(changes > 0), "{changes} changes: {reads} reads");
        // In the other direction, and once more: all is in memory.
        let (back, reads) = large.list(compare(&large.client, new, old));
        assert_eq!((blocks(&back), reads), (written, 0));
        let (_, reads) = large.list(compare(&large.client, old, old));
        assert_eq!(reads, 0);
    }
}

/// The range of the first leaf of such a volume, which is filled in order.
const LEFT: u64 = 2 * 160;

/// A tree that lost its upper levels: its root is as old as the common point, and is not the point's root.
fn a_volume_of_which_most_was_discarded() {
    let large = Large::new();
    let old = large.world.run(async { large.client.snapshot(&[large.vol], SnapshotKind::default()).await.unwrap()[0] });
    large.world.run(async {
        // The first leaf does not change, and becomes the root.
        large.client.zero(old, LEFT * BLOCK, (BLOCKS - LEFT) * BLOCK, false).await.unwrap();
        large.client.write(large.vol, 20_000 * BLOCK, BLOCK, &[]).await.unwrap();
        for (from, to) in [(old, large.vol), (large.vol, old)] {
            let list = whole(&large.client, compare(&large.client, from, to), 1000).await.unwrap();
            let content = if to == old { Content::Zeros } else { Content::Data };
            assert!(list.iter().all(|range| range.content == content));
            let expected: BTreeSet<u64> = (LEFT..BLOCKS).step_by(2).collect();
            assert_eq!(blocks(&list), expected, "from {from} to {to}");
        }
    });
}

#[test]
fn a_root_that_was_a_leaf_hides_nothing() {
    a_volume_of_which_most_was_discarded();
}

/// A list continues after the group was closed and opened. It is refused if one of the volumes is another one by then.
fn a_resumed_list() {
    let mut large = Large::new();
    let (old, other) = (large.snapshot(), large.snapshot());
    let (client, vol) = (large.client.clone(), large.vol);
    let written: Vec<u64> = (0..BLOCKS).step_by(100).collect();
    large.world.run(async {
        for block in &written {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
    });
    let compared = compare(&client, old, vol);
    let first = large.world.run(client.group.changed(&compared, 0, 30)).unwrap();
    let next = first.next.expect("there is more");
    drop(client);
    large = large.reopened();
    let client = large.client.clone();
    large.world.run(async {
        client.snapshot(&[vol], READ_ONLY).await.unwrap();
        client.rename(vol, "renamed").await.unwrap();
        let rest = client.group.changed(&compared, next, 10_000).await.unwrap();
        let found: Vec<u64> = blocks(&first.ranges).into_iter().chain(blocks(&rest.ranges)).collect();
        assert_eq!(found, written);
        assert_eq!(client.group.changed(&compared, BLOCKS + 7, 10).await.unwrap().ranges, []);
        let ended = async |compared: &Compared| client.group.changed(compared, next, 10).await.unwrap_err();
        // A revert changes the tree. A shrunk volume and a removed one are refused, too.
        client.revert(vol, other, false).await.unwrap();
        assert_eq!(ended(&compared).await, Error::Moved);
        let compared = compare(&client, old, vol);
        client.resize(vol, BLOCKS / 2).await.unwrap();
        assert_eq!(ended(&compared).await, Error::Moved);
        let compared = compare(&client, old, vol);
        client.remove(&[old]).await.unwrap();
        assert_eq!(ended(&compared).await, Error::Moved);
        let error = client.group.compare(Some(compared.old.unwrap().volume), compared.new.volume).unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{error}");
        let stranger = client.create(thin(8)).await.unwrap();
        let error = client.group.compare(Some(client.id(stranger).unwrap()), compared.new.volume).unwrap_err();
        assert_eq!(error, Error::Unrelated);
    });
}

#[test]
fn a_list_resumes_with_the_same_trees_only() {
    a_resumed_list();
}

#[test]
fn planted_bugs_of_trees_are_found() {
    must_be_found("diff_of_changed_head", a_resumed_list);
}

/// Writes, discards, snapshots, removals and checkpoints run during a list. It has all blocks that had changed before.
fn lists_during_changes(seeds: u64, most: usize) {
    for seed in 1..=seeds {
        let mut large = Large::new();
        let (older, old) = (large.snapshot(), large.snapshot());
        let mut rng = Rng::new(seed);
        let before: BTreeSet<u64> = (0..300).map(|_| rng.below(BLOCKS)).collect();
        large.world.run(async {
            for block in &before {
                large.client.write(large.vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            }
        });
        large = large.reopened();
        large.disks.set_delays(Delays { read: (500, 3_000), ..Delays::default() });
        let (client, vol) = (large.client.clone(), large.vol);
        let compared = compare(&client, old, vol);
        let (lister, writer, taker) = (client.clone(), client.clone(), client.clone());
        let written: Vec<u64> = (0..400).map(|_| rng.below(BLOCKS)).collect();
        let discarded: Vec<u64> = (0..100).map(|_| rng.below(BLOCKS)).collect();
        let (w, d) = (written.clone(), discarded.clone());
        let found: Arc<parking_lot::Mutex<Vec<Changed>>> = Arc::default();
        let note = found.clone();
        let ops: Vec<Op> = vec![
            Box::pin(async move {
                *note.lock() = whole(&lister, compared, most).await?;
                Ok(())
            }),
            Box::pin(async move {
                for (at, block) in w.into_iter().enumerate() {
                    writer.write(vol, block * BLOCK, BLOCK, &[]).await?;
                    if let Some(block) = d.get(at / 4).filter(|_| at % 4 == 0) {
                        writer.zero(vol, block * BLOCK, BLOCK, false).await?;
                    }
                }
                Ok(())
            }),
            Box::pin(async move {
                taker.remove(&[older]).await?;
                for _ in 0..4 {
                    let made = taker.snapshot(&[vol], READ_ONLY).await?;
                    taker.checkpoint().await?;
                    taker.remove(&made).await?;
                }
                Ok(())
            }),
        ];
        large.world.run(client.together(ops)).into_iter().for_each(|outcome| outcome.unwrap());
        let listed = blocks(&found.lock());
        let touched: BTreeSet<u64> = written.iter().chain(&discarded).copied().collect();
        // An unmapped block that was written and then discarded is equal again.
        let missed: Vec<&u64> =
            before.iter().filter(|block| !listed.contains(block) && !discarded.contains(block)).collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?} changed before and are not listed");
        let strange: Vec<&u64> = listed.iter().filter(|b| !before.contains(b) && !touched.contains(b)).collect();
        assert!(strange.is_empty(), "seed {seed}: {strange:?} never changed");
        large.world.run(async { client.verify_all(old).await.unwrap() });
    }
}

#[test]
fn earlier_changes_are_listed_whatever_runs() {
    lists_during_changes(scaled(6), 3);
    lists_during_changes(scaled(3), 10_000);
}

#[test]
fn a_step_that_does_not_look_again_is_found() {
    must_be_found("diff_passes_unread", || lists_during_changes(6, 3));
}
