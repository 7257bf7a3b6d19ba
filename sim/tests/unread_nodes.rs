//! Removal while a disk fails reads: unreadable nodes are not lost (D5). Removal without room reports this (D6).

use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, SnapshotKind, VolumeSpec, number};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Faults, Image, SimDisks};
use rowen_sim::exec::{Handle, World};
use rowen_sim::oracle::Vol;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const BLOCKS: u64 = 2000;

fn setup(planted: Option<&'static str>) -> Setup {
    let setup = Setup::small(1, 32);
    Setup { config: Config { planted, ..setup.config.clone() }, ..setup }
}

/// A volume with a snapshot, and changes since, in maps of many nodes. Closed: no node is in memory.
fn closed_group(setup: &Setup) -> (Image, [Vol; 2]) {
    let world = World::new(21);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let vols = world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        for block in (0..BLOCKS).step_by(2) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
        for block in (0..BLOCKS).step_by(4) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.close().await.unwrap();
        [vol, snapshot]
    });
    (disks.moment().killed(&mut Rng::new(21)), vols)
}

/// The open group of this image, and the handle of its world, which has the time.
fn open(world: &World, setup: &Setup, image: &Image) -> (Arc<SimDisks>, Arc<Group>, Arc<Handle>) {
    let disks = SimDisks::with_image(world.handle(), image.clone());
    let group = world.run(Group::open(disks.clone(), world.handle(), setup.config.clone())).unwrap();
    (disks, group, world.handle())
}

async fn remove(group: &Arc<Group>, vols: &[Vol]) {
    for vol in vols {
        let found = group.volumes().into_iter().find(|info| number(info.uuid) == *vol).unwrap().id;
        group.remove(&[found]).await.unwrap();
    }
}

fn findings(world: &World, disks: Arc<SimDisks>) -> Vec<String> {
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    report.findings.iter().map(ToString::to_string).collect()
}

/// Removes these volumes while no read works for some seconds. Returns what is wrong then.
fn remove_without_reads(planted: Option<&'static str>, which: &[usize]) -> Result<(), String> {
    let setup = setup(planted);
    let (image, vols) = closed_group(&setup);
    let world = World::new(22);
    let (disks, group, handle) = open(&world, &setup, &image);
    world.run(async {
        disks.set_faults(Faults { fail_from: Some((DiskOpKind::Read, 0)), ..Faults::default() });
        let which: Vec<Vol> = which.iter().map(|at| vols[*at]).collect();
        remove(&group, &which).await;
        handle.sleep(Duration::from_secs(5)).await;
        assert_ne!(group.stats().reclaim_steps, 0, "removal has begun");
        disks.set_faults(Faults::default());
        group.reclaim_idle().await.unwrap();
    });
    let lost = group.stats().nodes_lost;
    world.run(group.close()).unwrap();
    match findings(&world, disks).first() {
        None if lost == 0 => Ok(()),
        first => Err(format!("{lost} nodes are lost; {first:?}")),
    }
}

#[test]
fn what_cannot_be_read_for_a_time_is_not_lost() {
    for which in [&[0, 1][..], &[1], &[0]] {
        assert_eq!(remove_without_reads(None, which), Ok(()), "{which:?}");
    }
}

#[test]
fn a_node_that_is_given_up_at_once_is_found() {
    for which in [&[0, 1][..], &[1]] {
        let why = remove_without_reads(Some("unread_node_is_lost"), which).unwrap_err();
        assert!(why.contains("nodes are lost"), "{why}");
    }
}

/// A close while removal waits for a disk takes no longer than any other. The next opening continues the removal.
#[test]
fn a_close_does_not_wait_for_it() {
    let setup = setup(None);
    let (image, vols) = closed_group(&setup);
    let world = World::new(23);
    let (disks, group, handle) = open(&world, &setup, &image);
    world.run(async {
        disks.set_faults(Faults { fail_from: Some((DiskOpKind::Read, 0)), ..Faults::default() });
        remove(&group, &vols).await;
        handle.sleep(Duration::from_secs(20)).await;
        let begun = handle.now();
        // The close frees replaced blocks, and reads for that. Removal reads nothing at that moment.
        disks.set_faults(Faults::default());
        let idle = handle.start("idle", {
            let group = group.clone();
            async move { group.reclaim_idle().await }
        });
        group.close().await.unwrap();
        assert_eq!(idle.await, Err(Error::Closed));
        // Removal must not use the disks any more.
        let group = Arc::downgrade(&group);
        handle.sleep(Duration::from_millis(200)).await;
        assert!(group.strong_count() <= 1, "removal holds the group");
        let micros = handle.now() - begun;
        assert!(micros < SECOND / 2, "the close took {micros} us");
    });
    drop(group);
    let image = disks.current();
    let (disks, group, _) = open(&world, &setup, &image);
    world.run(async {
        group.reclaim_idle().await.unwrap();
        group.close().await.unwrap();
    });
    assert_eq!(findings(&world, disks), Vec::<String>::new());
}

/// Sectors that can never be read again are skipped in the end, all of a tree in a few minutes.
#[test]
fn what_can_never_be_read_is_lost_in_the_end() {
    let setup = setup(None);
    let (image, vols) = closed_group(&setup);
    let world = World::new(24);
    let (disks, group, handle) = open(&world, &setup, &image);
    let mut nodes = Vec::new();
    for offset in image.page_offsets(PvIndex(0)) {
        let mut page = vec![0; 4096];
        image.read(PvIndex(0), offset, &mut page);
        if page.windows(4).take(16).any(|bytes| bytes == b"RwNd") {
            nodes.push((PvIndex(0), offset, 4096));
        }
    }
    world.run(async {
        disks.set_faults(Faults { unreadable: nodes, ..Faults::default() });
        let begun = handle.now();
        remove(&group, &vols).await;
        group.reclaim_idle().await.unwrap();
        let seconds = (handle.now() - begun) / SECOND;
        assert!((60..600).contains(&seconds), "it took {seconds} s");
        assert!(group.stats().nodes_lost > 0);
        assert_eq!(group.volume_count(), 0);
        disks.set_faults(Faults::default());
        group.close().await.unwrap();
    });
}

/// Metadata has no room for the blocks that removal frees. Removal stops, which `reclaim_idle` reports, until there is
/// room again.
fn remove_without_room(planted: &'static str) -> Result<(), String> {
    let setup = setup(Some(planted));
    let (image, vols) = closed_group(&setup);
    let world = World::new(25);
    let (disks, group, _) = open(&world, &setup, &image);
    world.run(remove(&group, &vols));
    let idle = world.try_run(group.reclaim_idle()).map_err(|stuck| stuck.to_string())?;
    if !matches!(idle, Err(Error::NoSpace { .. })) {
        return Err(format!("it was not reported: {idle:?}"));
    }
    world.run(async {
        let used = |group: &Group| group.info().free_blocks + group.info().pending_blocks;
        let before = used(&group);
        while group.stats().checkpoints < 41 {
            group.checkpoint().await.unwrap();
        }
        // It resumes by itself.
        for _ in 0..1000 {
            rowen_engine::runtime::yield_now().await;
        }
        assert!(used(&group) > before, "removal stands still where there is room");
        group.reclaim_idle().await.unwrap();
        group.close().await.unwrap();
    });
    assert_eq!(findings(&world, disks), Vec::<String>::new());
    Ok(())
}

#[test]
fn removal_without_room_stands_still_and_says_so() {
    remove_without_room("no_room_to_free").unwrap();
}

#[test]
fn waiting_for_ever_for_removal_is_found() {
    let why = remove_without_room("removal_retries_without_room").unwrap_err();
    assert!(why.contains("not reported"), "{why}");
}

#[test]
fn removal_that_stands_still_for_ever_is_found() {
    must_be_found("removal_never_resumes", removal_without_room_stands_still_and_says_so);
}
