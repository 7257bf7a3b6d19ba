//! Identities of contents, and received contents that become visible.
//!
//! Rules PT1, PT2, PT3, PT4 and PT5.

use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::error::Error;
use rowen_engine::group::{
    Attributes, FullPolicy, Group, NewSnapshot, NewVolume, Publish, PublishTo, VolumeKind, point_identity, point_seed,
};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{Image, POLICIES, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCKS: u64 = 24;

fn uuid(rng: &mut Rng) -> Uuid {
    Uuid([0; 16].map(|_: u8| rng.bits() as u8))
}

async fn snapshot(group: &Arc<Group>, origin: VolumeId, name: &str, uuid: Uuid) -> VolumeId {
    snapshot_with(group, origin, name, uuid, Attributes::default()).await
}

/// A snapshot that can be written to, with these attributes.
pub(crate) async fn snapshot_with(
    group: &Arc<Group>,
    origin: VolumeId,
    name: &str,
    uuid: Uuid,
    attributes: Attributes,
) -> VolumeId {
    let spec = NewSnapshot {
        origin,
        name: name.to_owned(),
        uuid,
        reserve: None,
        read_only: false,
        chunk_blocks: 1,
        attributes,
    };
    group.snapshot(&[spec]).await.unwrap()[0]
}

/// Writes a byte to some blocks.
pub(crate) async fn write(group: &Arc<Group>, id: VolumeId, block: u64, blocks: u64, byte: u8) {
    let buf = PageBuf::from_slice(&vec![byte; (blocks * BLOCK_SIZE) as usize]);
    let volume = group.volume(id).unwrap();
    volume.write(block * BLOCK_SIZE, (blocks * BLOCK_SIZE) as u32, Arc::new(buf)).await.unwrap();
}

/// The first byte of each block, all of whose bytes are equal.
async fn contents(group: &Arc<Group>, id: VolumeId) -> Vec<u8> {
    let volume = group.volume(id).unwrap();
    let len = volume.size_bytes();
    let read = volume.read(0, len as u32, PageBuf::zeroed(len as usize)).await.unwrap();
    let blocks = read.as_slice()[..len as usize].chunks(BLOCK_SIZE as usize);
    blocks.map(|block| if block.iter().all(|byte| *byte == block[0]) { block[0] } else { panic!("torn") }).collect()
}

/// All contents that an identity ever stood for, in several groups.
#[derive(Default)]
struct Known {
    contents: BTreeMap<Uuid, Vec<u8>>,
    met_again: u64,
}

impl Known {
    async fn look(&mut self, group: &Arc<Group>) {
        let volumes = group.volumes();
        assert!(volumes.iter().all(|info| group.point_of(info.id).unwrap() == info.point));
        for info in volumes {
            // Removal continues between two reads.
            let Some(point) = group.point_of(info.id).unwrap() else { continue };
            let found = contents(group, info.id).await;
            match self.contents.get(&point) {
                Some(known) => {
                    assert_eq!(*known, found, "two contents of one name: {}", info.name);
                    self.met_again += 1;
                }
                None => drop(self.contents.insert(point, found)),
            }
        }
    }
}

/// A random life: writes, discards, snapshots, reverts, merges, removals, resizes. Returns how often an identity was
/// met again.
fn a_life(seed: u64, steps: u32) -> u64 {
    let world = World::new(seed);
    let (disks, group) = Setup::small(1, 64).make(&world).unwrap();
    let mut known = Known::default();
    world.run(async {
        let mut rng = Rng::new(seed);
        let kinds = [VolumeKind::Thin, VolumeKind::Thick];
        let mut volumes = Vec::new();
        for (at, kind) in kinds.into_iter().enumerate() {
            let spec = plain_volume(&format!("v{at}"), at as u8, kind, BLOCKS);
            volumes.push(group.create_volume(spec).await.unwrap());
        }
        for step in 0..steps {
            let id = *rng.pick(&volumes);
            let size = group.volume_info(id).unwrap().blocks;
            let first = rng.below(size);
            let blocks = 1 + rng.below(size - first);
            match rng.below(12) {
                0..=2 => write(&group, id, first, blocks, rng.bits() as u8).await,
                3 => {
                    let volume = group.volume(id).unwrap();
                    volume.discard(first * BLOCK_SIZE, blocks * BLOCK_SIZE).await.unwrap();
                }
                4..=6 => {
                    let name = format!("s{step}");
                    volumes.push(snapshot(&group, id, &name, uuid(&mut rng)).await);
                }
                7 => {
                    let source = *rng.pick(&volumes);
                    if source != id {
                        group.revert(id, source, false).await.unwrap();
                    }
                }
                8 => {
                    let source = *rng.pick(&volumes);
                    if source != id && volumes.len() > 2 {
                        group.revert(id, source, true).await.unwrap();
                        volumes.retain(|other| *other != source);
                    }
                }
                9 if volumes.len() > 2 => {
                    group.remove(&[id]).await.unwrap();
                    volumes.retain(|other| *other != id);
                }
                10 => {
                    let to = 1 + rng.below(2 * BLOCKS);
                    group.resize(id, to).await.unwrap();
                }
                _ => group.reclaim_idle().await.unwrap(),
            }
            known.look(&group).await;
        }
        group.close().await.unwrap();
    });
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
    known.met_again
}

fn lives() {
    let met: u64 = (1..=40).map(|seed| a_life(seed, 120)).sum();
    assert!(met > 1000, "{met}");
}

#[test]
fn an_identity_stands_for_one_contents() {
    lives();
}

/// What a receiver starts from, and its result.
struct Received {
    disks: Arc<SimDisks>,
    world: World,
    group: Arc<Group>,
    target: VolumeId,
    hidden: VolumeId,
    base: Uuid,
    point: Uuid,
    publish: Publish,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A target with a snapshot `base`, and what was received for it, unflushed.
fn received(seed: u64) -> Received {
    let world = World::new(seed);
    let (disks, group) = Setup::small(1, 24).make(&world).unwrap();
    let (target, hidden, base, before, after) = world.run(async {
        let target = group.create_volume(plain_volume("v", 1, VolumeKind::Thick, BLOCKS)).await.unwrap();
        write(&group, target, 0, 8, 1).await;
        snapshot(&group, target, "base", Uuid([9; 16])).await;
        let base = group.point_of(target).unwrap().unwrap();
        assert_eq!(base, point_identity(Uuid([9; 16]), BLOCKS));
        let hidden = snapshot(&group, target, "receiving:v", Uuid([8; 16])).await;
        assert_eq!(group.point_of(target).unwrap(), Some(base), "it is where it was");
        let before = contents(&group, target).await;
        group.resize(hidden, BLOCKS + 4).await.unwrap();
        group.volume(target).unwrap().flush().await.unwrap();
        disks.keep_moments();
        write(&group, hidden, 4, 2, 2).await;
        write(&group, hidden, BLOCKS, 4, 3).await;
        group.volume(hidden).unwrap().write_zeroes(0, BLOCK_SIZE).await.unwrap();
        let after = contents(&group, hidden).await;
        (target, hidden, base, before, after)
    });
    let point = Uuid([5; 16]);
    let publish = Publish {
        received: hidden,
        to: PublishTo::Volume { target, blocks: BLOCKS },
        snapshot: "tue".into(),
        seed: point_seed(point, BLOCKS + 4),
        attributes: Attributes::default(),
    };
    Received { disks, world, group, target, hidden, base, point, publish, before, after }
}

/// The contents of a group after a crash: whether the received contents are visible.
fn judge(image: Image, one: &Received) -> bool {
    let world = World::new(3);
    let disks = SimDisks::with_image(world.handle(), image);
    let group = world.run(Group::open(disks, world.handle(), Setup::small(1, 24).config)).unwrap();
    world.run(async {
        let is_visible = group.find("tue").is_some();
        assert_eq!(group.find("receiving:v").is_none(), is_visible, "both or none");
        let found = contents(&group, one.target).await;
        assert_eq!(found, if is_visible { one.after.clone() } else { one.before.clone() });
        let point = group.point_of(one.target).unwrap();
        assert_eq!(point, Some(if is_visible { one.point } else { one.base }));
        if let Some(tue) = group.find("tue") {
            assert_eq!(contents(&group, tue).await, one.after);
            assert_eq!(group.point_of(tue).unwrap(), Some(one.point));
            assert_eq!(group.volume_info(tue).unwrap().origin, Some(one.target));
        }
        let base = group.find("base").unwrap();
        assert_eq!(contents(&group, base).await, one.before);
        group.close().await.unwrap();
        is_visible
    })
}

/// The power is cut at each disk event of a publication.
fn cuts() {
    let mut seen = [0; 2];
    for seed in 1..=6 {
        let one = received(seed);
        one.world.run(one.group.publish(std::slice::from_ref(&one.publish))).unwrap();
        let mut rng = Rng::new(seed);
        for moment in one.disks.take_moments() {
            for policy in POLICIES {
                seen[usize::from(judge(moment.power_cut(policy, &mut rng), &one))] += 1;
            }
            seen[usize::from(judge(moment.killed(&mut rng), &one))] += 1;
        }
        assert!(judge(one.disks.moment().power_cut(POLICIES[0], &mut rng), &one), "it is durable");
    }
    println!("{seen:?} states before and after");
    assert!(seen[0] > 50 && seen[1] > 10, "{seen:?}");
}

#[test]
fn received_contents_become_visible_whole_or_not_at_all() {
    cuts();
}

/// The changes to a target while something is received for it.
fn a_target_that_changed_is_refused() {
    for what in 0..5 {
        let one = received(1);
        one.world.run(async {
            let (group, target) = (&one.group, one.target);
            let base = group.find("base").unwrap();
            match what {
                0 => write(group, target, 20, 1, 7).await,
                // The same bytes as before.
                1 => write(group, target, 0, 1, 1).await,
                2 => group.resize(target, BLOCKS + 4).await.unwrap(),
                3 => group.revert(target, base, false).await.unwrap(),
                _ => group.volume(target).unwrap().discard(0, BLOCK_SIZE).await.unwrap(),
            }
            let before = contents(group, target).await;
            let refused = group.publish(std::slice::from_ref(&one.publish)).await;
            assert!(matches!(refused, Err(Error::Moved)), "{what}: {refused:?}");
            assert_eq!(contents(group, target).await, before);
            assert_eq!(contents(group, one.hidden).await, one.after, "what was received is still there");
            assert!(group.find("tue").is_none());
        });
    }
}

#[test]
fn nothing_is_rolled_back() {
    a_target_that_changed_is_refused();
}

/// If a snapshot of the base is removed meanwhile, the target does not change.
#[test]
fn a_target_whose_base_goes_is_where_it_was() {
    let one = received(1);
    one.world.run(async {
        one.group.remove(&[one.group.find("base").unwrap()]).await.unwrap();
        one.group.reclaim_idle().await.unwrap();
        one.group.publish(std::slice::from_ref(&one.publish)).await.unwrap();
        assert_eq!(contents(&one.group, one.target).await, one.after);
        assert_eq!(one.group.point_of(one.target).unwrap(), Some(one.point));
    });
}

/// A receive that is abandoned leaves the target at its point.
#[test]
fn a_target_whose_receive_is_given_up_is_where_it_was() {
    let one = received(1);
    one.world.run(async {
        one.group.remove(&[one.hidden]).await.unwrap();
        assert_eq!(one.group.point_of(one.target).unwrap(), Some(one.base), "also while it is merged");
        one.group.reclaim_idle().await.unwrap();
        assert_eq!(one.group.point_of(one.target).unwrap(), Some(one.base));
        assert_eq!(contents(&one.group, one.target).await, one.before);
    });
}

/// Several volumes become visible in one step, or none. Names and targets of all of them are checked before.
#[test]
fn several_volumes_become_visible_together() {
    let one = received(1);
    one.world.run(async {
        let group = &one.group;
        let second = group.create_volume(plain_volume("receiving:w", 7, VolumeKind::Thin, BLOCKS)).await.unwrap();
        write(group, second, 2, 2, 6).await;
        let new = Publish {
            received: second,
            to: PublishTo::New { name: "w".into(), attributes: Attributes::default() },
            snapshot: "w-tue".into(),
            seed: Uuid([0x31; 16]),
            attributes: Attributes::default(),
        };
        let both = [one.publish.clone(), new.clone()];
        let taken = [one.publish.clone(), Publish { snapshot: "tue".into(), ..new.clone() }];
        assert!(matches!(group.publish(&taken).await, Err(Error::Exists(_))));
        let twice = [one.publish.clone(), Publish { received: one.hidden, ..new.clone() }];
        assert!(matches!(group.publish(&twice).await, Err(Error::Invalid(_))));
        assert!(matches!(group.publish(&[]).await, Err(Error::Invalid(_))));
        assert!(group.find("tue").is_none() && group.find("w").is_none());
        group.publish(&both).await.unwrap();
        assert_eq!(contents(group, one.target).await, one.after);
        assert_eq!(contents(group, group.find("w").unwrap()).await[..5], [0, 0, 6, 6, 0]);
        let moment = |name| group.volume_info(group.find(name).unwrap()).unwrap().moment;
        assert!(moment("tue").is_some() && moment("tue") == moment("w-tue"));
        group.close().await.unwrap();
    });
    let report = one.world.run(Group::check(one.disks.clone() as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_new_volume_comes_with_its_snapshot() {
    let mut one = received(1);
    one.publish.to = PublishTo::New { name: "w".into(), attributes: Attributes::default() };
    one.world.run(async {
        let group = &one.group;
        let taken = Publish { snapshot: "base".into(), ..one.publish.clone() };
        assert!(matches!(group.publish(&[taken]).await, Err(Error::Exists(_))));
        let twice = Publish { snapshot: "w".into(), ..one.publish.clone() };
        assert!(matches!(group.publish(&[twice]).await, Err(Error::Exists(_))));
        group.publish(std::slice::from_ref(&one.publish)).await.unwrap();
        let new = group.find("w").unwrap();
        assert_eq!((new, group.find("receiving:v")), (one.hidden, None));
        assert_eq!(group.volume_info(group.find("tue").unwrap()).unwrap().origin, Some(new));
        assert_eq!(contents(group, new).await, one.after);
        assert_eq!(group.point_of(new).unwrap(), Some(one.point));
        assert_eq!(contents(group, one.target).await, one.before);
    });
}

/// A thick volume that gets a larger size has its space from then on.
fn a_size_without_room() {
    let one = received(1);
    let (group, target) = (&one.group, one.target);
    one.world.run(async {
        let free = group.info().free_blocks;
        group.resize(one.hidden, BLOCKS + free + 100).await.unwrap();
        let refused = group.publish(std::slice::from_ref(&one.publish)).await;
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        assert_eq!(contents(group, target).await, one.before);
        assert!(group.find("tue").is_none());
        // With room for it, all of it can be written.
        let blocks = BLOCKS + free / 2;
        group.resize(one.hidden, blocks).await.unwrap();
        let seed = point_seed(one.point, blocks);
        group.publish(&[Publish { seed, ..one.publish.clone() }]).await.unwrap();
        for block in (BLOCKS..blocks).step_by(64) {
            write(group, target, block, 64.min(blocks - block), 4).await;
        }
        assert_eq!(group.stats().volumes_invalidated, 0);
    });
}

#[test]
fn a_size_for_which_there_is_no_room_is_refused() {
    a_size_without_room();
}

/// A new volume that is being received, with these blocks.
async fn unfinished(group: &Arc<Group>, blocks: u64, full: FullPolicy) -> VolumeId {
    let spec = NewVolume { full, ..plain_volume("receiving:w", 7, VolumeKind::Thin, 2 * blocks) };
    let hidden = group.create_volume(spec).await.unwrap();
    for block in (0..blocks).step_by(64) {
        write(group, hidden, block, 64.min(blocks - block), 6).await;
    }
    hidden
}

/// An unfinished receive holds up no volume, and causes no snapshot to be dropped.
fn a_full_group() {
    for (full, is_thick) in [(FullPolicy::DropSnapshot, true), (FullPolicy::Fail, false), (FullPolicy::Hold, false)] {
        let one = received(1);
        one.world.run(async {
            let group = &one.group;
            let kind = if is_thick { VolumeKind::Thick } else { VolumeKind::Thin };
            let spec = NewVolume { full, ..plain_volume("w", 3, kind, 512) };
            let other = group.create_volume(spec).await.unwrap();
            write(group, other, 0, 64, 7).await;
            let kept = snapshot(group, other, "kept", Uuid([6; 16])).await;
            let hidden = unfinished(group, group.info().free_blocks.saturating_sub(100), full).await;
            // The received blocks take no space that others need.
            let buf = Arc::new(PageBuf::from_slice(&vec![1; 512 << 12]));
            let volume = group.volume(hidden).unwrap();
            let at = volume.size_bytes() / 2;
            let refused = volume.write(at, 512 << 12, buf).await;
            assert!(matches!(refused, Err(Error::NoSpace { .. })), "{full:?}: {refused:?}");
            assert_eq!(group.stats().volumes_invalidated, 0, "{full:?}");
            for block in (0..512).step_by(64) {
                write(group, other, block, 64, 8).await;
            }
            assert_eq!(contents(group, kept).await[..65], [vec![7; 64], vec![0]].concat(), "{full:?}");
            assert!(group.volume(hidden).is_err(), "{full:?}");
            group.remove(&[hidden]).await.unwrap();
            group.close().await.unwrap();
        });
        let report = one.world.run(Group::check(one.disks.clone() as Arc<dyn Disks>)).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// A full pool cannot use space outside of it.
fn a_full_pool() {
    let one = received(1);
    one.world.run(async {
        let group = &one.group;
        let in_pool = |name: &str, number, blocks| NewVolume {
            attributes: Attributes { pool: "pool".into(), ..Attributes::default() },
            ..plain_volume(name, number, VolumeKind::Thin, blocks)
        };
        group.create_volume(in_pool("pool", 2, 64)).await.unwrap();
        let member = group.create_volume(in_pool("member", 3, 128)).await.unwrap();
        let hidden = unfinished(group, 64, FullPolicy::Fail).await;
        let buf = Arc::new(PageBuf::from_slice(&vec![1; 128 << 12]));
        let refused = group.volume(member).unwrap().write(0, 128 << 12, buf).await;
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        assert!(group.volume(hidden).is_ok() && group.stats().volumes_invalidated == 0);
    });
}

#[test]
fn a_full_pool_gives_up_nothing_that_is_received() {
    a_full_pool();
}

#[test]
fn an_unfinished_receive_is_dropped_first() {
    a_full_group();
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("written_head_is_point", lives);
    must_be_found("identity_without_size", lives);
    must_be_found("published_before_flush", cuts);
    must_be_found("published_in_two_frames", cuts);
    must_be_found("size_without_room", a_size_without_room);
    must_be_found("receive_never_dropped", a_full_group);
    must_be_found("receive_dropped_for_pool", a_full_pool);
    must_be_found("publish_over_writes", a_target_that_changed_is_refused);
}
