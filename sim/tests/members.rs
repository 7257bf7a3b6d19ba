//! A group continues without some of its physical volumes, and they return later (rules MB1 to MB7).

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, Group, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_sim::client::{BLOCK, Client, SnapshotKind, VolumeSpec, number};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{Image, POLICIES, Policy, SimDisks};
use rowen_sim::effort::one_in;
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PVS: u16 = 3;
/// Blocks of each volume. Some lie on two physical volumes.
const BLOCKS: u64 = 1500;

/// Volumes without a snapshot: all but the first, and the last but two.
const PLAIN: std::ops::RangeInclusive<Vol> = 2..=6;

type Shared = Arc<Mutex<Oracle>>;

fn setup() -> Setup {
    Setup::small(usize::from(PVS), 24)
}

/// The physical volume of each block of a volume.
type Homes = BTreeMap<Vol, BTreeSet<u16>>;

/// A group whose volumes lie on all of its physical volumes, its last state, and the places of their blocks.
fn made(oracle: &Shared) -> (Image, Homes) {
    let world = World::new(11);
    let (disks, group) = setup().make(&world).unwrap();
    let client = Client::new(world.handle(), group, oracle.clone());
    let homes = world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thick, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
        for _ in 0..9 {
            let vol = client.create(spec).await.unwrap();
            for at in (0..BLOCKS).step_by(50) {
                client.write(vol, at * BLOCK, 40 * BLOCK, &[]).await.unwrap();
            }
        }
        // Redirected blocks go where there is still room: these lie on two of them.
        for vol in [1, PLAIN.end() + 1] {
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
            client.write(vol, 0, 8 * BLOCK, &[]).await.unwrap();
        }
        let mut homes = Homes::new();
        for info in client.group.volumes() {
            let places = client.group.pv_usage(info.id).await.unwrap();
            homes.insert(number(info.uuid), places.iter().map(|place| place.pv).collect());
        }
        client.close().await.unwrap();
        homes
    });
    for pv in 0..PVS {
        assert!(homes.values().any(|on| on.contains(&pv)), "something lies on {pv}: {homes:?}");
    }
    assert!(homes.values().any(|on| on.len() > 1), "{homes:?}");
    (disks.moment().killed(&mut Rng::new(1)), homes)
}

/// The disks of an image, without those that `lost` names.
fn without(image: &Image, lost: u16) -> Image {
    let mut image = image.clone();
    (0..PVS).filter(|pv| lost >> pv & 1 == 1).for_each(|pv| image.set_size(PvIndex(pv), 0));
    image
}

/// An image with these physical volumes as they are in another image.
fn with_back(image: &Image, lost: u16, other: &Image) -> Image {
    let back = (0..PVS).filter(|pv| lost >> pv & 1 == 1);
    back.fold(image.clone(), |image, pv| image.with_pv_of(PvIndex(pv), other))
}

struct Opened {
    world: World,
    disks: Arc<SimDisks>,
    group: Result<Arc<Group>, Error>,
}

fn open(image: Image, may_miss: bool) -> Opened {
    let world = World::new(12);
    let disks = SimDisks::with_image(world.handle(), image);
    let (as_disks, config) = (disks.clone() as Arc<dyn Disks>, setup().config);
    let group = match may_miss {
        true => world.run(Group::open_without(as_disks, world.handle(), config, 77)),
        false => world.run(Group::open(as_disks, world.handle(), config)),
    };
    Opened { world, disks, group }
}

impl Opened {
    fn client(&self, oracle: &Shared) -> Client {
        Client::new(self.world.handle(), self.group.clone().unwrap(), oracle.clone())
    }

    fn refused(&self, words: &str) {
        match &self.group {
            Err(error @ Error::MissingPv(why)) if why.contains(words) => drop(error.to_string()),
            Err(other) => panic!("it should say {words:?}: {other}"),
            Ok(_) => panic!("it opened; it should say {words:?}"),
        }
        assert_eq!(self.disks.requests(DiskOpKind::Write), 0, "{words}: it wrote");
    }

    fn end(&self) -> Image {
        self.disks.moment().killed(&mut Rng::new(2))
    }
}

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Disk(error) if error.errno == 5)
}

/// Reads a volume, block by block. Readable contents are right, the rest are errors (MB2). Returns how many were lost.
async fn read_each(client: &Client, vol: Vol) -> u64 {
    let blocks = client.volume(vol).unwrap().size_bytes() / 4096;
    let mut lost = 0;
    for at in 0..blocks {
        match client.verify(vol, at * BLOCK, BLOCK).await {
            Ok(_) => {}
            Err(rowen_sim::client::Failure::Refused(error)) if is_lost(&error) => lost += 1,
            Err(failure) => panic!("volume {vol}, block {at}: {failure}"),
        }
    }
    lost
}

/// The work that a group with lost blocks does and refuses.
async fn work_without(client: &Client, homes: &Homes, lost: u16) {
    let touches = |on: &BTreeSet<u16>| on.iter().any(|pv| lost >> pv & 1 == 1);
    for (vol, on) in homes {
        let is_partial = client.group.is_partial(client.id(*vol).unwrap()).await.unwrap();
        assert_eq!(is_partial, touches(on), "volume {vol} on {on:?} without {lost:b}");
        let errors = read_each(client, *vol).await;
        assert_eq!(errors > 0, is_partial, "volume {vol} on {on:?} without {lost:b}: {errors} blocks");
        if !PLAIN.contains(vol) {
            continue;
        }
        let whole = on.iter().all(|pv| lost >> pv & 1 == 1);
        for at in (0..8).map(|n| n * 50) {
            match client.write(*vol, at * BLOCK, BLOCK, &[]).await {
                Ok(()) => assert!(!whole, "volume {vol} on {on:?}: what is lost was written"),
                Err(error) => assert!(is_partial && is_lost(&error), "volume {vol} without {lost:b}: {error}"),
            }
        }
        client.flush(*vol).await.unwrap();
    }
    // If a snapshot shares the blocks, whole blocks go elsewhere. Writes of parts need the lost contents.
    let plain = |wanted: bool| PLAIN.into_iter().find(|vol| touches(&homes[vol]) == wanted);
    let mut points = Vec::new();
    for vol in plain(false).into_iter().chain(plain(true)) {
        points.extend(client.snapshot(&[vol], SnapshotKind::default()).await.unwrap());
        for at in 0..4 {
            client.write(vol, at * BLOCK, BLOCK, &[]).await.unwrap();
            client.verify(vol, at * BLOCK, BLOCK).await.unwrap();
        }
    }
    for point in &points {
        read_each(client, *point).await;
    }
    client.checkpoint().await.unwrap();
    client.remove(&points[..1]).await.unwrap();
    let new = VolumeSpec { kind: VolumeKind::Thin, blocks: 8, chunk_blocks: 1, full: FullPolicy::Fail };
    assert!(matches!(client.create(new).await, Err(Error::MissingPv(_))), "a new volume");
    let check = client.group.check_open().await.unwrap();
    assert!(check.findings.is_empty(), "{:?}", check.findings.first());
}

/// Every subset of the disks is missing at the opening. The journal's disk is needed (MB1). Without the others the
/// group works, and places nothing on them (MB3). They return in the state in which they left (MB5).
fn every_subset() {
    for lost in 1..(1 << PVS) - 1 {
        let oracle = Shared::default();
        let (image, homes) = made(&oracle);
        open(without(&image, lost), false).refused("misses its physical volume");
        let opened = open(without(&image, lost), true);
        if lost & 1 == 1 {
            opened.refused("the journal is on it");
            continue;
        }
        let client = opened.client(&oracle);
        opened.world.run(work_without(&client, &homes, lost));
        opened.world.run(client.close()).unwrap();
        // From now on no opening waits for them (MB4), or uses one that is attached again.
        let later = opened.end();
        for image in [later.clone(), with_back(&later, lost, &image)] {
            let opened = open(image, false);
            let client = opened.client(&oracle);
            assert_eq!(client.group.out().0, u64::from(lost));
            for vol in homes.keys() {
                opened.world.run(read_each(&client, *vol));
            }
            opened.world.run(client.close()).unwrap();
        }
        let opened = open(with_back(&later, lost, &image), false);
        let client = opened.client(&oracle);
        opened.world.run(async {
            for pv in (0..PVS).filter(|pv| lost >> pv & 1 == 1) {
                client.group.restore_missing(PvIndex(pv)).await.unwrap();
            }
            assert_eq!(client.group.out().0, 0);
            for vol in homes.keys() {
                assert_eq!(read_each(&client, *vol).await, 0, "volume {vol}");
                client.write(*vol, 7 * BLOCK, BLOCK, &[]).await.unwrap();
            }
            let check = client.group.check_open().await.unwrap();
            assert!(check.findings.is_empty(), "{:?}", check.findings.first());
            client.close().await.unwrap();
        });
        judge_image(&setup(), &oracle.lock(), Since::PowerLoss, opened.end(), 13).unwrap();
    }
}

#[test]
fn every_subset_of_disks_is_right_or_refused() {
    every_subset();
}

#[test]
fn a_group_that_opens_without_its_journal_is_found() {
    must_be_found("journal_not_needed", every_subset);
}

#[test]
fn what_reads_as_zeros_is_found() {
    must_be_found("lost_are_zeros", every_subset);
}

#[test]
fn what_is_placed_on_a_lost_disk_is_found() {
    must_be_found("allocated_on_missing", every_subset);
}

#[test]
fn a_change_of_members_that_is_not_recorded_is_found() {
    must_be_found("missing_pv_not_recorded", every_subset);
}

/// The same, with a history of its own.
fn copy(oracle: &Shared) -> Shared {
    let copy = oracle.lock().clone();
    Arc::new(Mutex::new(copy))
}

/// Opened without the last one and used. Returns the result.
fn gone_on(oracle: &Shared, image: &Image, lineage_of: u64) -> Image {
    let world = World::new(lineage_of);
    let disks = SimDisks::with_image(world.handle(), without(image, 4));
    let opening = Group::open_without(disks.clone() as Arc<dyn Disks>, world.handle(), setup().config, lineage_of);
    let client = Client::new(world.handle(), world.run(opening).unwrap(), oracle.clone());
    world.run(async {
        let vol = number(client.group.volumes()[0].uuid);
        client.write(vol, 0, 4 * BLOCK, &[]).await.unwrap();
        client.flush(vol).await.unwrap();
        client.close().await.unwrap();
    });
    disks.moment().killed(&mut Rng::new(3))
}

/// Opened whole, written to, and closed.
fn used(oracle: &Shared, image: Image) -> Image {
    let opened = open(image, false);
    let client = opened.client(oracle);
    opened.world.run(async {
        for vol in 1..=9 {
            client.write(vol, 0, 4 * BLOCK, &[]).await.unwrap();
        }
        client.close().await.unwrap();
    });
    opened.end()
}

/// A disk comes back older than it left, or newer, or from another history (MB5, MB6).
fn other_states() {
    let oracle = Shared::default();
    let (old, _) = made(&oracle);
    let left = used(&oracle, old.clone());
    let pv = PvIndex(2);
    let elsewhere = used(&copy(&oracle), left.clone());
    let now = gone_on(&oracle, &left, 5);
    // An older copy, and one of disks that were used elsewhere: neither is accepted, and nothing is written to it.
    let other = gone_on(&copy(&oracle), &left, 6);
    let again = used(&copy(&oracle), with_taken_back(&oracle, &other, &left));
    for (what, disk) in [("older", &old), ("newer", &elsewhere), ("taken back elsewhere", &again)] {
        let image = now.with_pv_of(pv, disk);
        let opened = open(image.clone(), false);
        match opened.group.clone() {
            Ok(group) => {
                let refused = opened.world.run(group.restore_missing(pv));
                assert!(matches!(refused, Err(Error::Invalid(_))), "{what}: {refused:?}");
                assert_eq!(group.out().0, 4, "{what}");
                assert_eq!(opened.disks.counts_of(pv).writes, 0, "{what}: it was written to");
            }
            Err(error) => assert!(matches!(error, Error::MissingPv(_)), "{what}: {error}"),
        }
        // Never with a state that it did not have.
        if let Ok(group) = opened.group {
            let client = Client::new(opened.world.handle(), group, oracle.clone());
            for info in client.group.volumes() {
                opened.world.run(read_each(&client, number(info.uuid)));
            }
        }
    }
    // Two halves that were used without each other each have a copy of the journal: they are never joined.
    let mixed = now.with_pv_of(PvIndex(1), &other);
    open(mixed, false).refused("");
}

/// The group that `gone_on` left, with its disk back in use.
fn with_taken_back(oracle: &Shared, now: &Image, left: &Image) -> Image {
    let opened = open(now.with_pv_of(PvIndex(2), left), false);
    let client = opened.client(&copy(oracle));
    opened.world.run(async {
        client.group.restore_missing(PvIndex(2)).await.unwrap();
        client.group.close().await.unwrap();
    });
    opened.end()
}

#[test]
fn a_disk_in_another_state_is_not_taken_back() {
    other_states();
}

#[test]
fn a_disk_of_any_state_that_is_taken_back_is_found() {
    must_be_found("changed_pv_returns", other_states);
}

#[test]
fn histories_that_are_joined_are_found() {
    must_be_found("diverged_pvs_joined", other_states);
}

/// Power is cut while the group is opened without a disk and used, and then with the disk back or not. The oracle's
/// contract holds, or the group is refused with a message.
#[test]
fn cuts_and_losses_together() {
    let oracle = Shared::default();
    let (image, homes) = made(&oracle);
    let world = World::new(14);
    let disks = SimDisks::with_image(world.handle(), without(&image, 4));
    disks.keep_moments();
    let opening = Group::open_without(disks.clone() as Arc<dyn Disks>, world.handle(), setup().config, 9);
    let group = world.run(opening).unwrap();
    let before = disks.take_moments();
    let whole = PLAIN.into_iter().find(|vol| !homes[vol].contains(&2)).unwrap();
    let at_first = oracle.lock().clone();
    let client = Client::new(world.handle(), group, oracle.clone());
    world.run(async {
        client.snapshot(&[whole], SnapshotKind::default()).await.unwrap();
        client.write(whole, 0, 8 * BLOCK, &[]).await.unwrap();
        client.flush(whole).await.unwrap();
    });
    let after = disks.take_moments();
    let mut opened_whole = 0;
    for (moments, is_done) in [(before, false), (after, true)] {
        for moment in moments {
            let policy = POLICIES[moment.event as usize % POLICIES.len()];
            let cut = moment.power_cut(policy, &mut Rng::new(moment.event));
            // With the disk: it is still a member if no superblock without it is durable. Otherwise it is out.
            let opened = open(cut.with_pv_of(PvIndex(2), &image), false);
            match &opened.group {
                Ok(group) => {
                    opened_whole += u64::from(group.out().0 == 0);
                    assert!(!is_done || group.out().0 == 4, "MB4: event {}", moment.event);
                    let client = Client::new(opened.world.handle(), group.clone(), Shared::default());
                    let found = opened.world.run(client.look(whole, 0, 8 * BLOCK)).unwrap();
                    if !is_done {
                        at_first.judge(whole, 0, &found, Since::PowerLoss).unwrap();
                    }
                    if group.out().0 == 4 {
                        opened.world.run(group.restore_missing(PvIndex(2))).unwrap();
                    }
                    let check = opened.world.run(group.check_open()).unwrap();
                    assert!(check.findings.is_empty(), "event {}: {:?}", moment.event, check.findings.first());
                }
                Err(error) => panic!("event {}, {policy:?}: {error}", moment.event),
            }
            let opened = open(without(&cut, 4), true);
            let group = opened.group.unwrap_or_else(|error| panic!("event {}: {error}", moment.event));
            let check = opened.world.run(group.check_open()).unwrap();
            assert!(check.findings.is_empty(), "event {}: {:?}", moment.event, check.findings.first());
        }
    }
    assert!(opened_whole > 0);
    for policy in POLICIES {
        let cut = disks.moment().power_cut(policy, &mut Rng::new(4));
        let opened = open(cut.with_pv_of(PvIndex(2), &image), false);
        let client = opened.client(&oracle);
        let found = opened.world.run(client.look(whole, 0, 8 * BLOCK)).unwrap();
        oracle.lock().judge(whole, 0, &found, Since::PowerLoss).unwrap();
    }
}

/// Power is cut at each point of the return. The group opens with the disk out, so that the return can be repeated, or
/// with the disk in use.
#[test]
fn a_return_can_be_cut() {
    let oracle = Shared::default();
    let (image, _) = made(&oracle);
    let now = gone_on(&oracle, &image, 5);
    let opened = open(now.with_pv_of(PvIndex(2), &image), false);
    opened.disks.keep_moments();
    let group = opened.group.clone().unwrap();
    opened.world.run(group.restore_missing(PvIndex(2))).unwrap();
    let (mut out, mut back) = (0, 0);
    for moment in opened.disks.take_moments().into_iter().step_by(one_in(1) as usize) {
        for turn in 0..2 {
            let policy = POLICIES[(moment.event as usize + 3 * turn) % POLICIES.len()];
            let cut = moment.power_cut(policy, &mut Rng::new(moment.event));
            let again = open(cut, false);
            let group = again.group.clone().unwrap_or_else(|e| panic!("event {}, {policy:?}: {e}", moment.event));
            match group.out().0 {
                0 => back += 1,
                _ => {
                    out += 1;
                    let taken = again.world.run(group.restore_missing(PvIndex(2)));
                    taken.unwrap_or_else(|e| panic!("event {}, {policy:?}: {e}", moment.event));
                }
            }
            again.world.run(group.close()).unwrap();
            judge_image(&setup(), &oracle.lock(), Since::PowerLoss, again.end(), 15)
                .unwrap_or_else(|e| panic!("event {}, {policy:?}: {e}", moment.event));
        }
    }
    assert!(out > 0 && back > 0, "{out} {back}");
}

/// A group in which every volume has a snapshot, was then written and flushed. No marker or checkpoint followed: only
/// the journal and the data have the writes.
fn flushed(oracle: &Shared, image: Image) -> Opened {
    let opened = open(image, false);
    let client = opened.client(oracle);
    opened.world.run(async {
        for vol in PLAIN {
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
        }
        for vol in PLAIN {
            for at in 0..6 {
                client.write(vol, at * 100 * BLOCK, 4 * BLOCK, &[]).await.unwrap();
            }
            client.flush(vol).await.unwrap();
        }
    });
    opened
}

fn only_flushed(opened: &Opened) -> Image {
    opened.disks.moment().power_cut(Policy::Nothing, &mut Rng::new(5))
}

/// Flushed blocks on a lost disk are errors. Their old contents are not returned instead, and they are right when the
/// disk is back (MB7).
fn what_was_flushed_comes_back() {
    let mut unproven = 0;
    for lost in 1..PVS {
        let oracle = Shared::default();
        let (image, _) = made(&oracle);
        let image = only_flushed(&flushed(&oracle, image));
        let opened = open(without(&image, 1 << lost), true);
        let client = opened.client(&oracle);
        unproven += client.group.unproven_blocks();
        for vol in PLAIN {
            opened.world.run(read_each(&client, vol));
        }
        let check = opened.world.run(client.group.check_open()).unwrap();
        assert!(check.findings.is_empty(), "{:?}", check.findings.first());
        opened.world.run(client.close()).unwrap();
        let opened = open(with_back(&opened.end(), 1 << lost, &image), false);
        let client = opened.client(&oracle);
        opened.world.run(client.group.restore_missing(PvIndex(lost))).unwrap();
        assert_eq!(client.group.unproven_blocks(), 0, "all of it is on the disk");
        for vol in PLAIN {
            assert_eq!(opened.world.run(read_each(&client, vol)), 0, "volume {vol}");
        }
        opened.world.run(client.close()).unwrap();
        judge_image(&setup(), &oracle.lock(), Since::PowerLoss, opened.end(), 17).unwrap();
    }
    assert!(unproven > 0, "nothing that was flushed lies on a lost disk");
}

#[test]
fn what_was_flushed_on_a_lost_disk_comes_back() {
    what_was_flushed_comes_back();
}

#[test]
fn a_record_that_is_rejected_for_a_missing_disk_is_found() {
    must_be_found("missing_data_rejected", what_was_flushed_comes_back);
}

/// The disk did not get all blocks that the journal names before it was lost. Those blocks stay errors. They can be
/// written as a whole, and after that in parts (MB7).
fn what_never_got_there_stays_an_error() {
    let oracle = Shared::default();
    let (image, _) = made(&oracle);
    let running = flushed(&oracle, image);
    let client = running.client(&oracle);
    running.world.run(async {
        for vol in PLAIN {
            for at in 0..6 {
                client.write(vol, (at * 100 + 50) * BLOCK, 4 * BLOCK, &[]).await.unwrap();
            }
        }
    });
    // The other disks have all blocks.
    let (image, pv) = (running.end(), PvIndex(2));
    let behind = image.with_pv_of(pv, &running.disks.moment().power_cut(Policy::Commands, &mut Rng::new(6)));
    let opened = open(without(&image, 4), true);
    let group = opened.group.clone().unwrap();
    let unproven = group.unproven_blocks();
    assert!(unproven > 0, "nothing to compare");
    opened.world.run(group.close()).unwrap();
    let opened = open(with_back(&opened.end(), 4, &behind), false);
    let client = opened.client(&oracle);
    opened.world.run(client.group.restore_missing(pv)).unwrap();
    let left = client.group.unproven_blocks();
    assert!(0 < left && left < unproven, "{left} of {unproven}: some of it is there, some is not");
    let checked = opened.world.run(client.group.check_open()).unwrap();
    let reported: u64 = checked.notes.iter().filter_map(|note| note.split(' ').next()?.parse::<u64>().ok()).sum();
    assert!(checked.findings.is_empty() && reported == left, "{left} blocks: {:?}", checked.notes);
    let named =
        PLAIN.into_iter().any(|vol| checked.notes.iter().any(|note| note.contains(&oracle.lock().volumes[&vol].name)));
    assert!(named, "{:?}", checked.notes);
    // The list survives a close, a power cut and the death of the server.
    opened.world.run(client.checkpoint()).unwrap();
    let opened = open(opened.end(), false);
    let client = opened.client(&oracle);
    let mut errors = 0;
    for vol in PLAIN {
        for at in 0..BLOCKS {
            match opened.world.run(client.verify(vol, at * BLOCK, BLOCK)) {
                Ok(_) => {}
                Err(rowen_sim::client::Failure::Refused(error)) if is_lost(&error) => {
                    errors += 1;
                    opened.world.run(async {
                        let half = client.write(vol, at * BLOCK, 1, &[]).await;
                        assert!(half.is_err_and(|error| is_lost(&error)), "volume {vol}, block {at}");
                        client.write(vol, at * BLOCK, BLOCK, &[]).await.unwrap();
                        client.write(vol, at * BLOCK, 1, &[]).await.unwrap();
                    });
                }
                Err(failure) => panic!("volume {vol}, block {at}: {failure}"),
            }
        }
        opened.world.run(client.flush(vol)).unwrap();
    }
    assert!(errors > 0, "every block could be read");
    opened.world.run(client.checkpoint()).unwrap();
    assert_eq!(client.group.unproven_blocks(), 0, "all of them were written again");
    let opened = open(opened.end(), false);
    let client = opened.client(&oracle);
    for vol in PLAIN {
        assert_eq!(opened.world.run(read_each(&client, vol)), 0, "volume {vol}");
    }
}

#[test]
fn what_never_got_to_a_lost_disk_stays_an_error() {
    what_never_got_there_stays_an_error();
}

#[test]
fn what_is_not_compared_when_a_disk_is_back_is_found() {
    must_be_found("unproven_accepted", what_never_got_there_stays_an_error);
    must_be_found("unproven_forgotten", what_never_got_there_stays_an_error);
}

/// A physical volume that is gone for good is removed, but only after the volumes that lie on it.
#[test]
fn a_lost_disk_leaves_after_its_volumes() {
    for lost in [1, 2] {
        let oracle = Shared::default();
        let (image, homes) = made(&oracle);
        let opened = open(without(&image, 1 << lost), true);
        let client = opened.client(&oracle);
        let pv = PvIndex(lost);
        opened.world.run(async {
            let refused = client.group.vacate_pv(pv).await;
            assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
            let other = PvIndex(3 - lost);
            assert!(matches!(client.group.vacate_pv(other).await, Err(Error::MissingPv(_))));
            let gone: Vec<Vol> = homes.iter().filter(|(_, on)| on.contains(&lost)).map(|(vol, _)| *vol).collect();
            client.remove(&gone).await.unwrap();
            client.group.close_without(pv).await.unwrap();
        });
        let order: Vec<usize> = (0..3).filter(|n| *n != usize::from(lost)).collect();
        let image = opened.end().reordered(&order);
        let small = Setup { pvs: setup().pvs[..2].to_vec(), ..setup() };
        judge_image(&small, &oracle.lock(), Since::PowerLoss, image, 16).unwrap();
    }
}
