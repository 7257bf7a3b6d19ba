//! Lists of changes that begin at a bookmark.
//!
//! Rules MK1, MK2, MK3 and MK4.

use crate::points::{snapshot_with, write};
use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, Changed, Content, FullPolicy, Group, NewVolume, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{POLICIES, SimDisks};
use rowen_sim::effort::scaled;
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Many leaves, in which every other block is written.
const BLOCKS: u64 = 2048;

async fn snapshot(group: &Arc<Group>, origin: VolumeId, number: u8) -> VolumeId {
    snapshot_with(group, origin, &format!("s{number}"), Uuid([number; 16]), Attributes::default()).await
}

async fn discard(group: &Arc<Group>, id: VolumeId, block: u64, blocks: u64) {
    group.volume(id).unwrap().discard(block * BLOCK_SIZE, blocks * BLOCK_SIZE).await.unwrap();
}

/// The first byte of each block.
async fn contents(group: &Arc<Group>, id: VolumeId) -> Vec<u8> {
    let volume = group.volume(id).unwrap();
    let len = volume.size_bytes();
    let mut all = Vec::new();
    for at in (0..len).step_by(1 << 20) {
        let part = (len - at).min(1 << 20);
        let read = volume.read(at, part as u32, PageBuf::zeroed(part as usize)).await.unwrap();
        all.extend(read.as_slice()[..part as usize].chunks(BLOCK_SIZE as usize).map(|block| block[0]));
    }
    all
}

async fn empty(group: &Arc<Group>, bookmark: VolumeId) {
    while group.empty_bookmark(bookmark).await.unwrap() {}
}

async fn list(group: &Arc<Group>, old: VolumeId, new: VolumeId) -> Result<Vec<Changed>, Error> {
    let compared = group.compare(Some(old), new)?;
    let (mut ranges, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let part = group.changed(&compared, from, 7).await?;
        ranges.extend(part.ranges);
        next = part.next;
    }
    Ok(ranges)
}

/// What the lists contained.
#[derive(Default, Debug)]
struct Seen {
    lists: u64,
    ended: u64,
    changed: u64,
    superfluous: u64,
    equal: u64,
}

/// Compares a list from a bookmark with the bytes (MK3).
fn hold(had: &[u8], has: &[u8], list: &[Changed], seen: &mut Seen, what: &str) {
    let listed: BTreeMap<u64, Content> =
        list.iter().flat_map(|range| (range.start..range.end()).map(|at| (at, range.content))).collect();
    assert_eq!(listed.len() as u64, list.iter().map(|range| range.blocks).sum::<u64>(), "{what}: ranges overlap");
    for (at, has) in has.iter().enumerate() {
        match listed.get(&(at as u64)) {
            None => assert_eq!(had.get(at), Some(has), "{what}: block {at} differs and is not listed: {list:?}"),
            Some(Content::Zeros) => assert_eq!(*has, 0, "{what}: block {at} is not zeros"),
            Some(Content::Data) => {}
        }
        match listed.contains_key(&(at as u64)) {
            true if had.get(at) == Some(has) => seen.superfluous += 1,
            true => seen.changed += 1,
            false => seen.equal += 1,
        }
    }
}

struct Life {
    group: Arc<Group>,
    /// The contents of each bookmark.
    bookmarks: BTreeMap<VolumeId, Vec<u8>>,
    volumes: Vec<VolumeId>,
    seen: Seen,
    made: u8,
}

impl Life {
    async fn look(&mut self, what: &str) {
        let infos: BTreeMap<VolumeId, _> = self.group.bookmarks().into_iter().map(|found| (found.id, found)).collect();
        for (id, had) in &self.bookmarks {
            for volume in &self.volumes {
                match list(&self.group, *id, *volume).await {
                    Ok(list) => {
                        let has = contents(&self.group, *volume).await;
                        hold(had, &has, &list, &mut self.seen, what);
                        self.seen.lists += 1;
                        assert!(!infos[id].has_ended, "MK1");
                    }
                    Err(Error::Unrelated) => self.seen.ended += 1,
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }

    async fn step(&mut self, rng: &mut Rng) -> String {
        let group = self.group.clone();
        let id = *rng.pick(&self.volumes);
        let size = group.volume_info(id).unwrap().blocks;
        let first = rng.below(size);
        let (short, long) = (1 + rng.below(4.min(size - first)), 1 + rng.below(700.min(size - first)));
        self.made += 1;
        match rng.below(15) {
            0..=3 => {
                write(&group, id, first, short, rng.bits() as u8 | 1).await;
                format!("{short} blocks are written at {first} of {id}")
            }
            4..=6 => {
                discard(&group, id, first, long).await;
                format!("{long} blocks are discarded at {first} of {id}")
            }
            7 => {
                let new = snapshot(&group, id, self.made).await;
                self.volumes.push(new);
                format!("{new} is a snapshot of {id}")
            }
            8 | 9 => {
                let new = snapshot(&group, id, self.made).await;
                let mark =
                    group.bookmark(new, &format!("b{}", self.made), Uuid([self.made ^ 128; 16]), 1).await.unwrap();
                self.bookmarks.insert(mark, contents(&group, new).await);
                if rng.one_in(2) {
                    empty(&group, mark).await;
                }
                group.remove(&[new]).await.unwrap();
                format!("{mark} is a bookmark of {id}")
            }
            10 if self.volumes.len() > 1 => {
                group.remove(&[id]).await.unwrap();
                self.volumes.retain(|other| *other != id);
                format!("{id} is removed")
            }
            11 if self.volumes.len() > 1 => {
                let source = *rng.pick(&self.volumes);
                let consume = rng.one_in(2);
                if source != id {
                    group.revert(id, source, consume).await.unwrap();
                    self.volumes.retain(|other| !consume || *other != source);
                }
                format!("{id} is reverted to {source}")
            }
            12 => {
                let blocks = BLOCKS / 2 + rng.below(BLOCKS);
                group.resize(id, blocks).await.unwrap();
                format!("{id} has {blocks} blocks")
            }
            13 => {
                let marks: Vec<VolumeId> = self.bookmarks.keys().copied().collect();
                let Some(mark) = (!marks.is_empty()).then(|| *rng.pick(&marks)) else { return "nothing".into() };
                if rng.one_in(3) {
                    group.remove(&[mark]).await.unwrap();
                    self.bookmarks.remove(&mark);
                    return format!("the bookmark {mark} is removed");
                }
                empty(&group, mark).await;
                format!("the bookmark {mark} is empty")
            }
            _ => {
                group.search_orphans_now();
                group.reclaim_idle().await.unwrap();
                group.checkpoint().await.unwrap();
                "removal is done".into()
            }
        }
    }
}

/// Random lives of volumes with bookmarks. After each step the lists from all bookmarks to all volumes are compared
/// with the bytes.
fn lives(seeds: u64) -> Seen {
    let mut all = Seen::default();
    for seed in 1..=seeds {
        let world = World::new(seed);
        let mut rng = Rng::new(seed);
        let (mut disks, group) = Setup::small(1, 256).make(&world).unwrap();
        let kind = if rng.one_in(2) { VolumeKind::Thin } else { VolumeKind::Thick };
        let (mut life, mut world) = world_of(group, world, kind);
        for step in 0..40 {
            let what = world.run(life.step(&mut rng));
            world.run(life.look(&format!("seed {seed}, step {step}, {what}")));
            if rng.one_in(9) {
                // The machine stops. All flushed writes are there.
                let flushed = life.volumes[0];
                world.run(async { life.group.volume(flushed).unwrap().flush().await.unwrap() });
                let image = disks.moment().power_cut(POLICIES[0], &mut rng);
                world = World::new(seed + 1000 * (step + 1));
                disks = SimDisks::with_image(world.handle(), image);
                let config = Setup::small(1, 256).config;
                life.group = world.run(Group::open(disks.clone(), world.handle(), config)).unwrap();
                world.run(life.look(&format!("seed {seed}, step {step}, after a power cut")));
            }
        }
        world.run(life.group.close()).unwrap();
        let report = world.run(Group::check(disks.clone() as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
        let Seen { lists, ended, changed, superfluous, equal } = life.seen;
        all.lists += lists;
        all.ended += ended;
        all.changed += changed;
        all.superfluous += superfluous;
        all.equal += equal;
    }
    all
}

/// A volume of which every other block is written.
fn world_of(group: Arc<Group>, world: World, kind: VolumeKind) -> (Life, World) {
    let volume = world.run(async {
        let volume = group.create_volume(plain_volume("v", 1, kind, BLOCKS)).await.unwrap();
        for block in (0..BLOCKS).step_by(2) {
            write(&group, volume, block, 1, (block % 251) as u8 | 1).await;
        }
        volume
    });
    (Life { group, bookmarks: BTreeMap::new(), volumes: vec![volume], seen: Seen::default(), made: 1 }, world)
}

#[test]
fn lists_from_bookmarks_have_all_that_changed() {
    let seen = lives(scaled(24));
    println!("{seen:?}");
    assert!(seen.lists > 20 && seen.equal > seen.changed / 4, "{seen:?}");
}

/// A group with one thin volume.
fn thin_world(seed: u64) -> (World, Arc<Group>, VolumeId) {
    let world = World::new(seed);
    let (_, group) = Setup::small(1, 256).make(&world).unwrap();
    let (life, world) = world_of(group, world, VolumeKind::Thin);
    (world, life.group, life.volumes[0])
}

/// An emptied bookmark frees the blocks that were overwritten since. A list costs as much as the changes.
#[test]
fn a_bookmark_holds_nothing_of_what_was_overwritten() {
    let (world, group, volume) = thin_world(1);
    world.run(async {
        let used = |group: &Arc<Group>| group.info().blocks - group.info().free_blocks - group.info().metadata_blocks;
        let before = used(&group);
        let mon = snapshot(&group, volume, 9).await;
        let had = contents(&group, mon).await;
        let mark = group.bookmark(mon, "mon", Uuid([8; 16]), 7).await.unwrap();
        empty(&group, mark).await;
        group.remove(&[mon]).await.unwrap();
        for block in (0..BLOCKS).step_by(2) {
            write(&group, volume, block, 1, 200).await;
        }
        discard(&group, volume, 700, 500).await;
        group.search_orphans_now();
        group.reclaim_idle().await.unwrap();
        group.checkpoint().await.unwrap();
        let held = used(&group) as i64 - (before as i64 - 250);
        // A leaf keeps one block (O3).
        assert!(held < 64, "{held} blocks are held");
        let found = group.find_bookmark("mon").unwrap();
        assert_eq!((found.held, found.has_ended, found.created, found.blocks), (0, false, 7, BLOCKS));
        let list = list(&group, mark, volume).await.unwrap();
        hold(&had, &contents(&group, volume).await, &list, &mut Seen::default(), "all was written");
        // The last other volume that came from the point is removed.
        group.remove(&[volume]).await.unwrap();
        group.reclaim_idle().await.unwrap();
        assert!(group.find_bookmark("mon").unwrap().has_ended, "MK1");
    });
}

#[test]
fn only_a_snapshot_as_it_was_taken_is_bookmarked() {
    let (world, group, volume) = thin_world(1);
    world.run(async {
        let mon = snapshot(&group, volume, 9).await;
        write(&group, mon, 0, 1, 9).await;
        for id in [mon, volume] {
            write(&group, id, 5, 1, 9).await;
            assert!(matches!(group.bookmark(id, "x", Uuid([8; 16]), 7).await, Err(Error::Moved)));
        }
        assert!(group.bookmarks().is_empty());
    });
}

/// MK4.
#[test]
fn a_bookmark_is_dropped_last() {
    let world = World::new(1);
    let (_, group) = Setup::small(1, 64).make(&world).unwrap();
    world.run(async {
        let spec = NewVolume { full: FullPolicy::DropSnapshot, ..plain_volume("v", 1, VolumeKind::Thick, 1024) };
        let volume = group.create_volume(spec).await.unwrap();
        write(&group, volume, 0, 512, 1).await;
        let mon = snapshot(&group, volume, 9).await;
        let mark = group.bookmark(mon, "mon", Uuid([8; 16]), 7).await.unwrap();
        empty(&group, mark).await;
        group.remove(&[mon]).await.unwrap();
        let tue = snapshot(&group, volume, 10).await;
        let filler = plain_volume("filler", 2, VolumeKind::Thick, group.info().available_blocks / 1024 * 1024 - 1024);
        group.create_volume(filler).await.unwrap();
        for round in 2..6 {
            for block in (0..1024).step_by(64) {
                write(&group, volume, block, 64, round).await;
            }
        }
        let _ = tue;
        assert!(!group.find_bookmark("mon").unwrap().has_ended, "MK4");
        assert!(list(&group, mark, volume).await.unwrap().iter().map(|range| range.blocks).sum::<u64>() >= 1024);
    });
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("holes_in_old_leaves", edges_of_leaves);
    must_be_found("bookmark_without_holes", || assert!(lives(24).lists > 0));
    must_be_found("bookmark_older_than_point", || assert!(lives(24).lists > 0));
    must_be_found("bookmark_of_written_head", bookmarked_while_written);
}

/// MK2: a discard that ends at the end of a leaf leaves a hole to a neighbour that was not written.
fn edges_of_leaves() {
    let (world, group, volume) = thin_world(1);
    world.run(async {
        let mon = snapshot(&group, volume, 9).await;
        let had = contents(&group, mon).await;
        let mark = group.bookmark(mon, "mon", Uuid([8; 16]), 7).await.unwrap();
        empty(&group, mark).await;
        for edge in (2..600).step_by(2) {
            for (first, blocks) in [(edge, BLOCKS - edge), (0, edge)] {
                discard(&group, volume, first, blocks).await;
                let mut has = had.clone();
                has[first as usize..(first + blocks) as usize].fill(0);
                let list = list(&group, mark, volume).await.unwrap();
                hold(&had, &has, &list, &mut Seen::default(), &format!("{blocks} blocks discarded at {first}"));
                group.revert(volume, mon, false).await.unwrap();
            }
        }
    });
}

#[test]
fn discards_at_the_edges_of_leaves_are_listed() {
    edges_of_leaves();
}

/// A write to the snapshot between two steps of the command is not taken for its contents.
fn bookmarked_while_written() {
    for seed in 1..40 {
        let (world, group, volume) = thin_world(seed);
        world.run(async {
            let mon = snapshot(&group, volume, 9).await;
            let had = contents(&group, mon).await;
            let buf = Arc::new(PageBuf::from_slice(&[99; BLOCK_SIZE as usize]));
            let written = group.volume(mon).unwrap();
            let (made, done) = join(group.bookmark(mon, "mon", Uuid([8; 16]), 7), written.write(0, 4096, buf)).await;
            done.unwrap();
            if let Ok(mark) = made {
                let list = list(&group, mark, volume).await.unwrap();
                hold(&had, &contents(&group, volume).await, &list, &mut Seen::default(), "written meanwhile");
                assert_eq!(group.point_of(mark).unwrap(), group.find_bookmark("mon").map(|found| found.point));
            }
        });
    }
}

#[test]
fn a_write_during_the_command_is_noticed() {
    bookmarked_while_written();
}

async fn join<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        if second.is_none()
            && let std::task::Poll::Ready(value) = other.as_mut().poll(cx)
        {
            second = Some(value);
        }
        if first.is_none()
            && let std::task::Poll::Ready(value) = one.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if first.is_some() && second.is_some() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    (first.unwrap(), second.unwrap())
}
