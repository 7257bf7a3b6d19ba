//! Disks that rot and lie. Damage to metadata is repaired from the second copy or refused with a message. It is never
//! returned as data.

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOp, DiskOpKind, Disks, PvIndex};
use rowen_engine::group::Group;
use rowen_sim::client::{Client, Failure};
use rowen_sim::crash::{Setup, Verdict, judge_damaged};
use rowen_sim::disk::{Faults, Image, Policy, SimDisks, is_metadata};
use rowen_sim::exec::World;
use rowen_sim::oracle::Oracle;
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{self, Runner, Step};
use std::sync::Arc;

fn steps(name: &str) -> Vec<Step> {
    scenario::scripted().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Runs a scenario and closes the group. Returns the contents of the disks, or the reason why the engine stopped.
fn try_run(setup: &Setup, steps: &[Step], prepare: impl FnOnce(&SimDisks)) -> Result<(Image, Oracle), Failure> {
    let world = World::new(7);
    let (disks, group) = setup.make(&world).unwrap();
    prepare(&disks);
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group, oracle.clone());
    let mut runner = Runner::new(client.clone());
    world.run(async {
        runner.run(steps).await?;
        Ok::<_, Failure>(client.close().await?)
    })?;
    let image = disks.moment().power_cut(Policy::Nothing, &mut Rng::new(1));
    let oracle = oracle.lock().clone();
    Ok((image, oracle))
}

fn run(setup: &Setup, steps: &[Step], prepare: impl FnOnce(&SimDisks)) -> (Image, Oracle) {
    try_run(setup, steps, prepare).unwrap_or_else(|e| panic!("{e}"))
}

fn metadata_pages(image: &Image) -> Vec<(PvIndex, u64)> {
    let mut pages = Vec::new();
    for pv in (0..image.count()).map(|at| PvIndex(at as u16)) {
        for offset in image.page_offsets(pv) {
            let mut head = [0; 8];
            image.read(pv, offset, &mut head);
            if is_metadata(&head) {
                pages.push((pv, offset));
            }
        }
    }
    pages
}

#[test]
fn one_rotten_page_of_metadata_does_no_harm() {
    let setup = Setup::small(2, 24);
    for name in ["snapshots", "group-snapshot", "revert"] {
        let (image, oracle) = run(&setup, &steps(name), |_| {});
        let pages = metadata_pages(&image);
        assert!(pages.len() > 8, "{name}: only {} pages of metadata", pages.len());
        let mut rng = Rng::new(3);
        for (pv, offset) in pages {
            for _ in 0..4 {
                let mut rotten = image.clone();
                let at = offset + rng.below(4096);
                rotten.flip(pv, at, rng.below(8) as u8);
                let verdict = judge_damaged(&setup, &oracle, rotten, 5)
                    .unwrap_or_else(|e| panic!("{name}: {pv:?} byte {at}: {e}"));
                assert_eq!(verdict, Verdict::Sound, "{name}: {pv:?} byte {at}");
            }
        }
    }
}

/// Rot in one copy of any block that the checkpoint uses is found and repaired, also if the engine itself never reads
/// the block.
#[test]
fn rot_in_either_copy_is_found_and_repaired() {
    let setup = Setup::small(2, 24);
    let (image, _) = run(&setup, &steps("revert"), |_| {});
    let world = World::new(3);
    let verify = |image: Image, repair: bool| {
        let disks = SimDisks::with_image(world.handle(), image);
        let as_disks = disks.clone() as Arc<dyn Disks>;
        let report = match repair {
            true => world.run(Group::repair(as_disks)),
            false => world.run(Group::check(as_disks)),
        };
        (report.unwrap(), disks.moment().power_cut(Policy::Nothing, &mut Rng::new(1)))
    };
    assert!(verify(image.clone(), false).0.findings.is_empty());
    let (mut rng, mut found) = (Rng::new(4), 0);
    for (pv, offset) in metadata_pages(&image) {
        let mut rotten = image.clone();
        rotten.flip(pv, offset + rng.below(4096), rng.below(8) as u8);
        let (report, unchanged) = verify(rotten.clone(), false);
        assert_eq!(report.findings.len() as u64, report.repairable, "{:?}", report.findings);
        let (mended, after) = verify(rotten, true);
        assert!(mended.findings.is_empty() && mended.repaired.len() == report.findings.len(), "{mended:?}");
        let page = |image: &Image| {
            let mut page = vec![0; 4096];
            image.read(pv, offset, &mut page);
            page
        };
        if report.repairable > 0 {
            found += 1;
            assert!(page(&unchanged) != page(&image), "a check writes nothing");
            assert_eq!(page(&after), page(&image));
        }
        assert!(verify(after, false).0.findings.is_empty());
    }
    assert!(found >= 8, "{found} pages only are in use");
}

#[test]
fn any_damage_to_metadata_is_refused_or_harmless() {
    let setup = Setup::small(2, 24);
    let (image, oracle) = run(&setup, &steps("snapshots"), |_| {});
    let mut pages = metadata_pages(&image);
    // Not the labels. If every copy of the newest one is lost, the one before it is what an interrupted write leaves.
    pages.retain(|&(pv, offset)| {
        let mut head = [0; 8];
        image.read(pv, offset, &mut head);
        &head != b"ROWENPV1"
    });
    let mut refused = 0;
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let mut damaged = image.clone();
        for _ in 0..rng.range(1, 40) {
            let (pv, offset) = *rng.pick(&pages);
            match rng.below(3) {
                0 => damaged.flip(pv, offset + rng.below(4096), rng.below(8) as u8),
                1 => damaged.write(pv, offset + rng.below(8) * 512, &[rng.bits() as u8; 512]),
                _ => {
                    // A page at the place of another.
                    let (from, at) = *rng.pick(&pages);
                    let mut page = [0; 4096];
                    image.read(from, at, &mut page);
                    damaged.write(pv, offset, &page);
                }
            }
        }
        match judge_damaged(&setup, &oracle, damaged, seed) {
            Ok(Verdict::Sound) => {}
            Ok(Verdict::Refused(words)) => {
                assert!(!words.is_empty());
                refused += 1;
            }
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    assert!(refused > 0, "some damage must be too much");
}

/// The numbers of a scenario's writes whose first page belongs to checkpoints. The journal is left out: it has only one
/// copy.
fn checkpoint_writes(setup: &Setup, steps: &[Step]) -> Vec<u64> {
    let seen = Arc::new(Mutex::new((0u64, Vec::new())));
    let noting = seen.clone();
    run(setup, steps, |disks| {
        noting.lock().0 = disks.requests(DiskOpKind::Write);
        disks.watch(Box::new(move |op| {
            let DiskOp::Write { segments, buf } = op else { return };
            let mut seen = noting.lock();
            let bytes = &buf.as_slice()[segments[0].at as usize..];
            if is_metadata(bytes) && !bytes.starts_with(b"ROWENJRN") {
                let number = seen.0;
                seen.1.push(number);
            }
            seen.0 += 1;
        }));
    });
    seen.lock().1.clone()
}

#[test]
fn a_lost_or_misdirected_write_of_metadata_is_never_served() {
    let setup = Setup::small(1, 24);
    let steps = steps("checkpoints");
    let numbers = checkpoint_writes(&setup, &steps);
    assert!(numbers.len() > 5, "the scenario writes checkpoints");
    for number in numbers {
        for fault in [
            Faults { lost_write: Some(number), ..Faults::default() },
            Faults { misdirected: Some((number, 8 * 4096)), ..Faults::default() },
        ] {
            let misdirected = fault.misdirected.is_some();
            let words = format!("{fault:?}");
            // A group that notices damage while it is open may stop, with a message.
            let (image, oracle) = match try_run(&setup, &steps, |disks| disks.set_faults(fault)) {
                Ok(outcome) => outcome,
                Err(Failure::Refused(_)) => continue,
                Err(Failure::Wrong(what)) if misdirected && what.contains("RUBBISH") => continue,
                Err(Failure::Wrong(what)) => panic!("{words}: {what}"),
            };
            match judge_damaged(&setup, &oracle, image, 5) {
                Ok(_) => {}
                // A misdirected write may destroy data, which has no checksum.
                Err(e) if misdirected && e.contains("RUBBISH") => {}
                Err(e) => panic!("{words}: {e}"),
            }
        }
    }
}
