//! A journal with two copies (rules JC1 to JC4, MB8).

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::format::superblock::{
    COPY_OFFSETS, DATA_OFFSET, FEATURE_SECOND_JOURNAL, GroupRoot, SLOTS, Superblock,
};
use rowen_engine::group::{FullPolicy, Group, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec, number};
use rowen_sim::crash::{Setup, judge_image};
use rowen_sim::disk::{Faults, Image, Moment, POLICIES, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const PVS: [PvIndex; 2] = [PvIndex(0), PvIndex(1)];
/// Blocks of each volume.
pub(crate) const BLOCKS: u64 = 1500;
/// Blocks of the ring.
const RING: u64 = 256;

type Shared = Arc<Mutex<Oracle>>;

fn setup(second_journal: bool) -> Setup {
    Setup { second_journal: second_journal.then_some(4), ..Setup::small(PVS.len(), 24) }
}

struct Made {
    world: World,
    disks: Arc<SimDisks>,
    client: Client,
    vols: Vec<Vol>,
}

/// Volumes of these kinds with [`BLOCKS`] blocks, most of which are written. The first has a snapshot. All is in a
/// checkpoint.
pub(crate) async fn written_volumes(client: &Client, kinds: impl Iterator<Item = VolumeKind>) -> Vec<Vol> {
    let mut vols = Vec::new();
    for kind in kinds {
        let spec = VolumeSpec { kind, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        for at in (0..BLOCKS).step_by(50) {
            client.write(vol, at * BLOCK, 40 * BLOCK, &[]).await.unwrap();
        }
        vols.push(vol);
    }
    client.snapshot(&vols[..1], SnapshotKind::default()).await.unwrap();
    client.checkpoint().await.unwrap();
    vols
}

/// A group over two disks with volumes on both. One volume has a snapshot.
fn made(seed: u64, second_journal: bool) -> Made {
    let world = World::new(seed);
    let (disks, group) = setup(second_journal).make(&world).unwrap();
    let client = Client::new(world.handle(), group, Shared::default());
    let kinds = [VolumeKind::Thin, VolumeKind::Thick, VolumeKind::Thick, VolumeKind::Thin];
    let vols = world.run(written_volumes(&client, kinds.into_iter()));
    Made { world, disks, client, vols }
}

/// Random writes, with flushes, and a snapshot half way.
fn load(client: &Client, vol: Vol, seed: u64, handle: &Arc<rowen_sim::exec::Handle>) -> Op {
    let (client, handle) = (client.clone(), handle.clone());
    Box::pin(async move {
        let mut rng = Rng::new(seed);
        for n in 0..60 {
            let at = rng.below(BLOCKS - 40);
            client.write(vol, at * BLOCK, rng.range(1, 40), &[]).await?;
            if n % 3 == 0 {
                client.flush(vol).await?;
            }
            if n == 20 {
                client.snapshot(&[vol], SnapshotKind::default()).await?;
            }
            handle.sleep(Duration::from_micros(rng.below(60))).await;
        }
        Ok(())
    })
}

impl Made {
    fn ops(&self, seed: u64) -> Vec<Op> {
        let handle = self.world.handle();
        self.vols.iter().take(3).map(|vol| load(&self.client, *vol, seed + u64::from(*vol), &handle)).collect()
    }

    fn end(&self) -> Image {
        self.disks.moment().killed(&mut Rng::new(2))
    }
}

fn without(image: &Image, pv: PvIndex) -> Image {
    let mut image = image.clone();
    image.set_size(pv, 0);
    image
}

struct Opened {
    world: World,
    disks: Arc<SimDisks>,
    group: Result<Arc<Group>, Error>,
}

fn open(image: Image, may_miss: Option<u64>) -> Opened {
    let world = World::new(12);
    let disks = SimDisks::with_image(world.handle(), image);
    let (as_disks, config) = (disks.clone() as Arc<dyn Disks>, setup(false).config);
    let group = match may_miss {
        Some(lineage) => world.run(Group::open_without(as_disks, world.handle(), config, lineage)),
        None => world.run(Group::open(as_disks, world.handle(), config)),
    };
    Opened { world, disks, group }
}

impl Opened {
    fn end(&self) -> Image {
        self.disks.moment().killed(&mut Rng::new(2))
    }
}

/// The newest root on a physical volume.
fn root(image: &Image, pv: PvIndex) -> GroupRoot {
    let places = COPY_OFFSETS.into_iter().flat_map(|copy| (0..SLOTS).map(move |slot| copy + slot * 4096));
    let slots = places.filter_map(|place| {
        let mut block = [0; 4096];
        image.read(pv, place, &mut block);
        Superblock::decode(&block, "here").ok().flatten()
    });
    slots.max_by_key(|found| found.sequence).unwrap().group.unwrap()
}

/// The place of a copy of the ring on the second disk, in bytes.
fn second_place(root: &GroupRoot) -> u64 {
    let first = root.pvs[1].first_extent * root.extent_blocks;
    DATA_OFFSET + (root.second_journal.unwrap() - first) * 4096
}

/// Reads everything block by block. The oracle judges what can be read. The rest lies on a disk that is out. Returns
/// the number of unreadable blocks.
/// blocks could not.
async fn judge_each(client: &Client, oracle: &Oracle, since: Since) -> Result<u64, String> {
    let mut lost = 0;
    for info in client.group.volumes() {
        let vol = number(info.uuid);
        let is_known = oracle.volumes.contains_key(&vol);
        for at in (0..info.blocks).filter(|_| is_known) {
            match client.look(vol, at * BLOCK, BLOCK).await {
                Ok(found) => oracle.judge(vol, at * BLOCK, &found, since)?,
                Err(error) if client.group.out().0 != 0 => drop(error),
                Err(error) => return Err(format!("volume {vol}, block {at}: {error}")),
            }
            lost += u64::from(client.look(vol, at * BLOCK, BLOCK).await.is_err());
        }
    }
    let check = client.group.check_open().await.map_err(|e| e.to_string())?;
    check.findings.first().map_or(Ok(lost), |finding| Err(finding.clone()))
}

/// Opens it without this disk. This works, and the contents are right. Returns the result.
fn judge_without(image: &Image, pv: PvIndex, oracle: &Oracle, since: Since) -> Result<Image, String> {
    let opened = open(without(image, pv), Some(u64::from(pv.0) + 5));
    let group = opened.group.clone().map_err(|error| error.to_string())?;
    let client = Client::new(opened.world.handle(), group, Shared::default());
    let lost = opened.world.run(judge_each(&client, oracle, since))?;
    assert!(lost > 0, "something lies on each");
    assert_eq!(client.group.journal_copies(), (2, 1));
    opened.world.run(client.close()).map_err(|error| error.to_string())?;
    Ok(opened.end())
}

/// Power fails, or the server dies, at moments of a load, and then one of two disks is gone (JC1).
fn each_disk_can_be_lost() {
    let made = made(21, true);
    let oracle = made.client.oracle.clone();
    made.world.run(made.client.together(made.ops(3))).into_iter().for_each(|done| done.unwrap());
    let oracle = oracle.lock().clone();
    let end = made.disks.moment();
    for policy in POLICIES {
        for pv in PVS {
            for throw in 0..3 {
                let cut = end.power_cut(policy, &mut Rng::new(throw));
                judge_without(&cut, pv, &oracle, Since::PowerLoss).unwrap_or_else(|e| panic!("{policy:?} {pv:?}: {e}"));
            }
        }
    }
    for pv in PVS {
        judge_without(&made.end(), pv, &oracle, Since::Death).unwrap_or_else(|e| panic!("{pv:?}: {e}"));
    }
}

#[test]
fn either_of_two_disks_can_be_lost() {
    each_disk_can_be_lost();
}

/// The lost disk is back: its copy is filled, and then the other disk may be lost.
#[test]
fn a_disk_comes_back_and_the_other_one_goes() {
    let made = made(22, true);
    made.world.run(made.client.together(made.ops(3))).into_iter().for_each(|done| done.unwrap());
    let mut image = made.end();
    let oracle = made.client.oracle.clone();
    for pv in [PVS[0], PVS[1], PVS[0]] {
        let rest = judge_without(&image, pv, &oracle.lock(), Since::Death).unwrap();
        assert_eq!(root(&rest, PVS[1 - usize::from(pv.0)]).stale_journals, 1 << pv.0);
        let opened = open(rest.with_pv_of(pv, &image), None);
        let client = Client::new(opened.world.handle(), opened.group.clone().unwrap(), oracle.clone());
        opened.world.run(async {
            client.write(made.vols[1], 0, 8, &[]).await.ok();
            client.group.restore_missing(pv).await.unwrap();
            assert_eq!(client.group.journal_copies(), (2, 2));
            client.snapshot(&made.vols[..1], SnapshotKind::default()).await.unwrap();
            client.write(made.vols[0], 0, 30 * BLOCK, &[]).await.unwrap();
            client.flush(made.vols[0]).await.unwrap();
        });
        image = opened.end();
        assert_eq!(root(&image, pv).stale_journals, 0);
    }
    judge_image(&setup(true), &oracle.lock(), Since::Death, image, 3).unwrap();
}

/// The second copy is added, or dropped, under load. At each moment both disks together have everything. So does each
/// disk that a superblock calls sufficient (JC2, JC4).
fn comes_and_goes(seed: u64, is_there: bool) {
    let made = made(seed, is_there);
    made.disks.keep_moments();
    let group = made.client.group.clone();
    let mut ops = made.ops(seed);
    let change = group.clone();
    ops.push(Box::pin(async move {
        let changed = match is_there {
            true => change.drop_second_journal().await,
            false => change.add_second_journal(4).await,
        };
        assert!(changed.map_err(|e| e.to_string()).unwrap());
        Ok(())
    }));
    let (mut judged, client) = (0, made.client.clone());
    let mut judge = |moment: &Moment| {
        if moment.event % 40 != seed % 40 {
            return;
        }
        let oracle = client.oracle.lock().clone();
        let policy = POLICIES[(moment.event / 40) as usize % POLICIES.len()];
        let cut = moment.power_cut(policy, &mut Rng::new(moment.event));
        judge_image(&setup(false), &oracle, Since::PowerLoss, cut.clone(), 5)
            .unwrap_or_else(|e| panic!("event {}, {policy:?}: {e}", moment.event));
        let root = root(&cut, PVS[1]);
        if root.second_journal.is_some() && root.stale_journals == 0 {
            judged += 1;
            let opened = open(without(&cut, PVS[0]), Some(8));
            let group = opened.group.unwrap_or_else(|e| panic!("event {}, {policy:?}: {e}", moment.event));
            let client = Client::new(opened.world.handle(), group, Shared::default());
            let done = opened.world.run(judge_each(&client, &oracle, Since::PowerLoss));
            done.unwrap_or_else(|e| panic!("event {}, {policy:?}, without the first: {e}", moment.event));
        }
    };
    let disks = made.disks.clone();
    let mut observe = || disks.take_moments().iter().for_each(&mut judge);
    let done = made.world.try_run_observed(made.client.together(ops), &mut observe).unwrap();
    done.into_iter().for_each(|done| done.unwrap());
    assert_eq!(group.journal_copies().0, if is_there { 1 } else { 2 });
    assert!(judged > 0 || is_there, "seed {seed}: no moment was judged without the first disk");
    made.world.run(made.client.close()).unwrap();
    let features = root(&made.end(), PVS[0]).features;
    assert_eq!(features & FEATURE_SECOND_JOURNAL != 0, !is_there);
}

fn comes_under_load() {
    (31..37).for_each(|seed| comes_and_goes(seed, false));
}

fn goes_under_load() {
    (41..47).for_each(|seed| comes_and_goes(seed, true));
}

/// A frame takes a disk very long while the copy is dropped. Its blocks are free only when the frame has ended (JC4).
fn place_is_used_again() {
    let mut slow = 0;
    for nth in 0..6 {
        let made = made(61, true);
        let place = second_place(&root(&made.disks.current(), PVS[1]));
        let before = made.disks.requests(DiskOpKind::Write);
        made.disks
            .set_faults(Faults { slow: Some((DiskOpKind::Write, before + nth, 30_000_000)), ..Faults::default() });
        let (client, vol) = (made.client.clone(), made.vols[0]);
        let write: Op = Box::pin(async move { client.write(vol, 80, 8, &[]).await });
        let (client, disks, handle) = (made.client.clone(), made.disks.clone(), made.world.handle());
        let is_there =
            move |(pv, offset, _): &(PvIndex, u64, u64)| *pv == PVS[1] && (place..place + RING * 4096).contains(offset);
        let seen = Arc::new(Mutex::new(false));
        let was_slow = seen.clone();
        let give_up: Op = Box::pin(async move {
            handle.sleep(Duration::from_secs(1)).await;
            *was_slow.lock() = disks.moment().places_in_flight().iter().any(is_there);
            assert!(client.group.drop_second_journal().await?);
            assert!(
                !disks.moment().places_in_flight().iter().any(is_there),
                "a frame is on its way to a place that is free"
            );
            Ok(())
        });
        made.world.run(made.client.together(vec![write, give_up])).into_iter().for_each(|done| done.unwrap());
        slow += u64::from(*seen.lock());
        made.world.run(made.client.verify_all(vol)).unwrap();
    }
    assert!(slow > 0);
}

#[test]
fn a_place_that_is_used_again_is_safe() {
    place_is_used_again();
}

#[test]
fn a_frame_that_is_not_waited_for_is_found() {
    must_be_found("copy_not_waited_for", place_is_used_again);
}

#[test]
fn a_second_copy_comes_under_load() {
    comes_under_load();
}

#[test]
fn a_second_copy_goes_under_load() {
    goes_under_load();
}

#[test]
fn a_new_copy_that_is_called_whole_too_early_is_found() {
    must_be_found("new_copy_is_whole", comes_under_load);
}

/// The place of a new copy held data of a volume, which can look like anything (JC3).
fn place_holds_zeros() {
    let made = made(51, false);
    let image = made.world.run(async {
        for vol in &made.vols {
            for at in (0..BLOCKS).step_by(50) {
                made.client.write(*vol, at * BLOCK, 50 * BLOCK, &[]).await.unwrap();
            }
        }
        let all: Vec<Vol> = made.client.group.volumes().iter().map(|info| number(info.uuid)).collect();
        made.client.remove(&all).await.unwrap();
        made.client.group.reclaim_idle().await.unwrap();
        made.client.checkpoint().await.unwrap();
        assert!(made.client.group.add_second_journal(4).await.unwrap());
        made.disks.current()
    });
    let place = second_place(&root(&image, PVS[1]));
    let mut last = [0; 4096];
    // A frame or two may be at its beginning.
    let used = (8..RING).filter(|block| {
        image.read(PVS[1], place + block * 4096, &mut last);
        last.iter().any(|byte| *byte != 0)
    });
    assert_eq!(used.count(), 0);
}

#[test]
fn a_new_copy_lies_on_zeros() {
    place_holds_zeros();
}

#[test]
fn a_new_copy_on_old_data_is_found() {
    must_be_found("copy_not_zeroed", place_holds_zeros);
}

/// Frames of one copy are rotten or unreadable: the other one has them.
fn one_copy_rots() {
    let made = made(52, true);
    made.world.run(made.client.together(made.ops(4))).into_iter().for_each(|done| done.unwrap());
    let image = made.end();
    let second = second_place(&root(&image, PVS[0]));
    for (pv, place) in [(PVS[0], DATA_OFFSET), (PVS[1], second)] {
        let mut rotten = image.clone();
        for block in 0..RING {
            rotten.flip(pv, place + block * 4096 + 100, 3);
        }
        judge_image(&setup(true), &made.client.oracle.lock(), Since::Death, rotten, 6).unwrap();
    }
    // Each copy has lost every second block.
    let mut rotten = image.clone();
    for block in 0..RING {
        let (pv, place) = if block % 2 == 0 { (PVS[0], DATA_OFFSET) } else { (PVS[1], second) };
        rotten.flip(pv, place + block * 4096 + 100, 3);
    }
    let opened = open(rotten, None);
    match opened.group {
        Ok(_) => judge_image(&setup(true), &made.client.oracle.lock(), Since::Death, opened.end(), 6).unwrap(),
        Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
    }
}

#[test]
fn rot_in_one_copy_costs_nothing() {
    one_copy_rots();
}

#[test]
fn a_second_copy_that_is_not_read_is_found() {
    must_be_found("second_copy_unread", one_copy_rots);
}

/// Each half was opened without the other. They are never joined, and each half alone is unchanged (MB8).
fn halves() {
    let made = made(53, true);
    made.world.run(made.client.close()).unwrap();
    let image = made.end();
    let oracle = made.client.oracle.lock().clone();
    let half = |pv: PvIndex| judge_without(&image, pv, &oracle, Since::Death).unwrap();
    let (second, first) = (half(PVS[0]), half(PVS[1]));
    for rounds in 0..3 {
        // One of them was used more.
        let mut first = first.clone();
        for _ in 0..rounds {
            let opened = open(first.clone(), None);
            opened.world.run(opened.group.clone().unwrap().close()).unwrap();
            first = opened.end();
        }
        let opened = open(first.with_pv_of(PVS[1], &second), None);
        match &opened.group {
            Err(Error::MissingPv(why)) => assert!(why.contains("without each other"), "{why}"),
            Err(error) => panic!("{rounds}: {error}"),
            Ok(_) => panic!("{rounds}: it opened"),
        }
        assert_eq!(opened.disks.counts().writes, 0);
        for (alone, pv) in [(&first, PVS[1]), (&second, PVS[0])] {
            let opened = open(without(alone, pv), None);
            let client = Client::new(opened.world.handle(), opened.group.unwrap(), Shared::default());
            opened.world.run(judge_each(&client, &oracle, Since::Death)).unwrap();
        }
    }
}

#[test]
fn two_halves_are_never_joined() {
    halves();
}

#[test]
fn two_halves_that_are_joined_are_found() {
    must_be_found("split_brain_joined", halves);
}

/// A disk leaves. Its copy goes to another disk if there is one. Otherwise there is one copy.
#[test]
fn a_copy_leaves_with_its_disk() {
    let world = World::new(54);
    let (disks, group) = Setup { second_journal: Some(4), ..Setup::small(3, 24) }.make(&world).unwrap();
    assert_eq!(group.journal_copies(), (2, 2));
    world.run(async {
        // The last disk has no copy: it leaves, and so does the next, with its copy.
        group.remove_last_pv().await.unwrap();
        disks.remove_last_pv();
        assert_eq!(group.journal_copies(), (2, 2));
        assert!(!group.needs_closing(PVS[1]));
        group.remove_last_pv().await.unwrap();
        disks.remove_last_pv();
        assert_eq!(group.journal_copies(), (1, 1));
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.close().await.unwrap();
    });
    for pv in 0..3 {
        let world = World::new(55);
        let (disks, group) = Setup { second_journal: Some(4), ..Setup::small(3, 24) }.make(&world).unwrap();
        world.run(group.close_without(PvIndex(pv))).unwrap();
        let image = disks
            .moment()
            .killed(&mut Rng::new(1))
            .reordered(&(0..3).filter(|n| *n != usize::from(pv)).collect::<Vec<_>>());
        let opened = open(image, None);
        let group = opened.group.unwrap();
        assert_eq!(group.journal_copies(), (2, 2), "without {pv}");
        assert_eq!(opened.world.run(group.check_open()).unwrap().findings, Vec::<String>::new(), "without {pv}");
    }
}

/// The cost: one more request for each frame, to the other disk, at the same time.
#[test]
fn a_frame_costs_one_request_more() {
    for (second_journal, writes) in [(false, 2), (true, 3)] {
        let made = made(56, second_journal);
        made.world.settle(1_000_000);
        let before = made.disks.counts();
        made.world.run(made.client.write(made.vols[0], 80, 8, &[])).unwrap();
        assert_eq!(made.disks.counts().since(&before).writes, writes);
    }
}

/// A disk that is away for a while is no bad block of the journal. Its data is complete when it is back, and must not
/// be replaced.
#[test]
fn a_disk_that_was_away_is_no_bad_place() {
    for lost in PVS {
        let made = made(31, true);
        let (client, vol) = (made.client.clone(), made.vols[0]);
        made.disks.set_faults(Faults { away: Some(lost), ..Faults::default() });
        // It has a snapshot: writes are redirected, and have a frame.
        made.world.run(async move {
            let _ = client.write(vol, 0, 8 * BLOCK, &[]).await;
            let _ = client.flush(vol).await;
        });
        made.disks.set_faults(Faults::default());
        let opened = open(made.end(), None);
        opened.group.as_ref().unwrap();
        let image = opened.end();
        for pv in PVS {
            assert_eq!(root(&image, pv).bad.blocks(), 0, "{pv:?}, when {lost:?} was away");
        }
    }
}
