//! Mirrored volumes in a group: disks that fail, return, are removed and replaced.

use crate::journal_copies::BLOCKS;
use rowen_engine::disk::{Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, Group, SegmentType, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, SnapshotKind, VolumeSpec, number};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Faults, Image, POLICIES, SimDisks};
use rowen_sim::effort::scaled;
use rowen_sim::exec::{Handle, World};
use rowen_sim::oracle::{Since, Vol};
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

fn setup(pvs: usize) -> Setup {
    let mut setup = Setup { segment: SegmentType::Raid1, second_journal: Some(4), ..Setup::small(pvs, 40) };
    setup.extent_blocks = 64;
    setup.config.leaves_failed_disks = true;
    setup
}

struct Made {
    world: World,
    disks: Arc<SimDisks>,
    client: Client,
    vols: Vec<Vol>,
}

fn made(seed: u64, setup: &Setup) -> Made {
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    client.oracle.lock().segment = setup.segment;
    let vols = world.run(volumes(&client));
    Made { world, disks, client, vols }
}

/// A thick and a thin volume with contents, and a snapshot.
async fn volumes(client: &Client) -> Vec<Vol> {
    let mut vols = Vec::new();
    for kind in [VolumeKind::Thick, VolumeKind::Thin] {
        let vol = client.create(VolumeSpec { kind, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail }).await.unwrap();
        for at in (0..BLOCKS - 8).step_by(16) {
            client.write(vol, at * BLOCK, 5 * BLOCK, &[]).await.unwrap();
        }
        client.flush(vol).await.unwrap();
        vols.push(vol);
    }
    let snapshots = client.snapshot(&vols[..1], SnapshotKind::default()).await.unwrap();
    vols.extend(snapshots);
    vols
}

/// Random writes, with flushes, until the group stops.
fn load(client: &Client, vol: Vol, seed: u64, writes: u64, handle: &Arc<Handle>) -> Op {
    let (client, handle) = (client.clone(), handle.clone());
    Box::pin(async move {
        let mut rng = Rng::new(seed);
        for n in 0..writes {
            let at = rng.below(BLOCKS - 40);
            let mut done = client.write(vol, at * BLOCK + rng.below(BLOCK), rng.range(1, 40), &[]).await;
            if n % 3 == 0 && done.is_ok() {
                done = client.flush(vol).await;
            }
            match done {
                Ok(()) => {}
                Err(Error::DiskLost(_) | Error::Poisoned(_)) => break,
                Err(error) => return Err(error),
            }
            handle.sleep(Duration::from_micros(rng.below(60))).await;
        }
        Ok(())
    })
}

fn loads(made: &Made, seed: u64, writes: u64) -> Vec<Op> {
    let handle = made.world.handle();
    made.vols.iter().map(|vol| load(&made.client, *vol, seed + u64::from(*vol), writes, &handle)).collect()
}

/// The disk fails under load. No request gets an error but that the disk is lost.
fn fails(made: &Made, pv: PvIndex, seed: u64) {
    let handle = made.world.handle();
    let mut ops = loads(made, seed, 400);
    let disks = made.disks.clone();
    ops.push(Box::pin(async move {
        handle.sleep(Duration::from_micros(Rng::new(seed).below(6000))).await;
        disks.set_faults(Faults { away: Some(pv), ..Faults::default() });
        Ok(())
    }));
    for done in made.world.run(made.client.together(ops)) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    match made.client.group.failed().expect_err("a disk has failed") {
        Error::DiskLost(error) => assert_eq!(error.pv, pv, "seed {seed}"),
        error => panic!("seed {seed}: {error}"),
    }
}

/// Opens the group on this image and reads everything.
fn open(image: Image, setup: &Setup, before: &Made, lineage: Option<u64>, since: Since) -> Made {
    let world = World::new(12);
    let disks = SimDisks::with_image(world.handle(), image);
    let (as_disks, config) = (disks.clone() as Arc<dyn Disks>, setup.config.clone());
    let group = match lineage {
        Some(lineage) => world.run(Group::open_without(as_disks, world.handle(), config, lineage)),
        None => world.run(Group::open(as_disks, world.handle(), config)),
    };
    let client = Client::new(world.handle(), group.unwrap(), before.client.oracle.clone());
    let made = Made { world, disks, client, vols: before.vols.clone() };
    made.judge(since);
    made
}

impl Made {
    fn judge(&self, since: Since) {
        for info in self.client.group.volumes() {
            let (vol, sectors) = (number(info.uuid), info.blocks * BLOCK);
            let found = self.world.run(self.client.look(vol, 0, sectors)).unwrap_or_else(|why| panic!("volume {vol}: {why}"));
            let judged = self.client.oracle.lock().judge(vol, 0, &found, since);
            judged.unwrap_or_else(|why| panic!("volume {vol}: {why}"));
        }
        let check = self.world.run(self.client.group.check_open()).unwrap();
        assert_eq!(check.findings, Vec::<String>::new());
    }

    fn killed(&self, seed: u64) -> Image {
        self.disks.moment().killed(&mut Rng::new(seed))
    }

    /// Waits until both legs of everything are the same.
    fn caught_up(&self) {
        let (group, handle) = (self.client.group.clone(), self.world.handle());
        self.world.run(async move {
            for _ in 0..100_000 {
                if group.mirror_info().unsynced == 0 && group.mirrors_are_caught_up() {
                    return;
                }
                handle.sleep(Duration::from_millis(1)).await;
            }
            panic!("the legs are not made equal: {:?}", group.mirror_info());
        });
    }
}

/// A disk fails; the group goes on with everything; the disk returns, is caught up, and the other one fails.
fn each_fails_in_turn(seed: u64) {
    let setup = setup(2);
    let first = PvIndex((seed % 2) as u16);
    let second = PvIndex(1 - first.0);
    let made = made(seed, &setup);
    fails(&made, first, seed);
    let mut image = made.killed(seed);
    image.set_size(first, 0);
    let without = open(image, &setup, &made, Some(7), Since::Death);
    for done in without.world.run(without.client.together(loads(&without, seed + 10, 60))) {
        done.unwrap();
    }
    without.world.run(without.client.snapshot(&without.vols[1..2], SnapshotKind::default())).unwrap();
    without.judge(Since::Death);
    without.world.run(without.client.close()).unwrap();
    let policy = POLICIES[(seed / 2) as usize % POLICIES.len()];
    let cut = made.disks.moment().power_cut(policy, &mut Rng::new(seed));
    let back = open(without.killed(2).with_pv_of(first, &cut), &setup, &without, None, Since::Death);
    back.world.run(back.client.group.restore_missing(first)).unwrap();
    back.judge(Since::Death);
    for done in back.world.run(back.client.together(loads(&back, seed + 20, 60))) {
        done.unwrap();
    }
    back.caught_up();
    back.judge(Since::Death);
    fails(&back, second, seed + 30);
    let mut image = back.killed(seed);
    image.set_size(second, 0);
    let _last = open(image, &setup, &back, Some(9), Since::Death);
}

#[test]
fn each_of_two_disks_fails_in_turn() {
    for seed in 0..scaled(24) {
        each_fails_in_turn(seed);
    }
}
