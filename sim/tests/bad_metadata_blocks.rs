//! Blocks of metadata that can never be written (M7), and nodes of which both copies are lost (D4). Each costs only its
//! own contents.
//!
//! Rule L3.

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, PvIndex};
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_sim::client::{BLOCK, Client, VolumeSpec};
use rowen_sim::crash::{Setup, judge_group, judge_image, read_all};
use rowen_sim::disk::{Faults, Image, Policy, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{self, Runner};
use std::collections::BTreeMap;
use std::sync::Arc;

const PV: PvIndex = PvIndex(0);

fn setup(planted: Option<&'static str>) -> Setup {
    let setup = Setup::small(1, 32);
    Setup { config: Config { planted, ..setup.config.clone() }, ..setup }
}

/// The pages of the image that begin with these bytes.
fn pages(image: &Image, magic: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut pages = Vec::new();
    for offset in image.page_offsets(PV) {
        let mut page = vec![0; 4096];
        image.read(PV, offset, &mut page);
        if page.windows(magic.len()).take(16).any(|bytes| bytes == magic) {
            pages.push((offset, page));
        }
    }
    pages
}

/// A scenario on a disk that fails some writes: to one copy of every third block of metadata, and to the first
/// superblocks.
fn on_bad_places(name: &str, planted: Option<&'static str>) -> Result<u64, String> {
    let setup = setup(planted);
    let world = World::new(5);
    let (disks, group) = setup.make(&world).unwrap();
    // The metadata area's first copy begins behind the label and the journal, of one MiB each.
    let ranges = (0..256).step_by(3).map(|block| (PV, (2 << 20) + block * 4096, 512));
    let ranges: Vec<_> = ranges.chain([(PV, 4096, 4 * 4096)]).collect();
    let faults = Faults { broken: Some((DiskOpKind::Write, ranges)), ..Faults::default() };
    disks.set_faults(faults.clone());
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group.clone(), oracle.clone());
    let mut runner = Runner::new(client.clone());
    let (_, steps) = scenario::scripted().into_iter().find(|(known, _)| *known == name).unwrap();
    world.run(runner.run(&steps)).map_err(|e| e.to_string())?;
    world.run(client.checkpoint()).map_err(|e| e.to_string())?;
    let written_once = group.stats().copies_not_written;
    // A power cut, and an opening on the same disk.
    let moment = disks.moment();
    for policy in [Policy::Nothing, Policy::All, Policy::Sectors] {
        let image = moment.power_cut(policy, &mut Rng::new(6));
        judge_image(&setup, &oracle.lock(), Since::PowerLoss, image.clone(), 7)?;
        let again = World::new(8);
        let disks = SimDisks::with_image(again.handle(), image);
        disks.set_faults(faults.clone());
        let opened = again.run(Group::open(disks, again.handle(), setup.config.clone())).map_err(|e| e.to_string())?;
        let client = Client::new(again.handle(), opened.clone(), Arc::default());
        let found = again.run(read_all(&client))?;
        judge_group(&oracle.lock(), &opened.volumes(), &found, Since::PowerLoss)?;
        again.run(opened.close()).map_err(|e| e.to_string())?;
    }
    Ok(written_once)
}

#[test]
fn metadata_lives_on_one_copy() {
    let mut written_once = 0;
    for name in ["snapshots", "revert", "group-snapshot"] {
        written_once += on_bad_places(name, None).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    assert!(written_once > 5, "{written_once}");
}

#[test]
fn a_write_error_that_stops_the_group_is_found() {
    let why = on_bad_places("snapshots", Some("both_copies_or_none")).unwrap_err();
    assert!(why.contains("stopped"), "{why}");
}

/// Two volumes with a snapshot each, closed. The second is to be removed.
fn two_volumes(setup: &Setup) -> (Image, Oracle, [Vol; 2]) {
    let world = World::new(11);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let vols = world.run(async {
        let mut vols = Vec::new();
        for _ in 0..2 {
            let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 2000, chunk_blocks: 1, full: FullPolicy::Fail };
            let vol = client.create(spec).await.unwrap();
            for block in (0..2000).step_by(2) {
                client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            }
            vols.push(vol);
        }
        client.close().await.unwrap();
        vols
    });
    let oracle = client.oracle.lock().clone();
    (disks.moment().killed(&mut Rng::new(11)), oracle, [vols[0], vols[1]])
}

/// Removes the second volume while each node in turn is lost in both copies. Returns the number of skipped nodes.
fn without_each_node(planted: Option<&'static str>) -> Result<u64, String> {
    let setup = setup(planted);
    let (image, _, [_, vol]) = two_volumes(&setup);
    let mut copies: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
    for (offset, page) in pages(&image, b"RwNd") {
        copies.entry(page).or_default().push(offset);
    }
    let both: Vec<_> = copies.into_values().filter(|places| places.len() == 2).collect();
    assert!(both.len() > 20, "{} nodes", both.len());
    let mut lost = 0;
    for places in both {
        let mut rotten = image.clone();
        places.iter().for_each(|at| rotten.flip(PV, at + 200, 1));
        let world = World::new(12);
        let disks = SimDisks::with_image(world.handle(), rotten);
        // The free tree is needed to open.
        let Ok(group) = world.run(Group::open(disks, world.handle(), setup.config.clone())) else { continue };
        let id = group.volumes().iter().find(|info| rowen_sim::client::number(info.uuid) == vol).unwrap().id;
        let removed = world.run(async {
            group.remove(&[id]).await?;
            group.reclaim_idle().await
        });
        match removed {
            Err(error) if error.to_string().contains("removal failed") => return Err(error.to_string()),
            Err(_) => continue,
            Ok(()) => {}
        }
        lost += group.stats().nodes_lost;
        world.run(group.close()).map_err(|e| e.to_string())?;
    }
    Ok(lost)
}

#[test]
fn removal_does_without_a_node_that_is_lost() {
    let lost = without_each_node(None).unwrap();
    assert!(lost > 5, "{lost} nodes were lost");
}

#[test]
fn a_lost_node_that_stops_the_group_is_found() {
    let why = without_each_node(Some("lost_nodes_stop")).unwrap_err();
    assert!(why.contains("removal failed"), "{why}");
}
