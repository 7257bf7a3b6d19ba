//! The copies of mirrored volumes are compared: what rots on one disk is found, and nothing else.

use crate::journal_copies::BLOCKS;
use crate::mirrors::{Made, loads, made, setup};
use rowen_engine::discards::Policy;
use rowen_engine::group::{Config, ScrubInfo, VolumeState};
use rowen_engine::planted::must_be_found;
use rowen_engine::runtime::Runtime;
use rowen_engine::units::BLOCK_SIZE;
use rowen_sim::client::{BLOCK, Op, SnapshotKind};
use rowen_sim::crash::Setup;
use rowen_sim::effort::scaled;
use rowen_sim::oracle::{Since, Vol};
use rowen_sim::rng::Rng;
use std::time::Duration;

impl Made {
    /// The blocks that a volume has written, or its snapshot, if the volume has written nothing since.
    fn used(&self, vol: Vol) -> u64 {
        let (group, id) = (&self.client.group, self.client.id(vol).unwrap());
        let snapshots = group.snapshots_of(id);
        snapshots.iter().map(|info| info.referenced).chain([group.volume_info(id).unwrap().referenced]).max().unwrap()
    }

    /// A scrub of a volume, from its beginning to its end.
    fn scrub(&self, vol: Vol, is_repair: bool) -> Op {
        let (group, id, end) = (self.client.group.clone(), self.client.id(vol).unwrap(), self.end_of_scrub());
        Box::pin(async move {
            group.start_scrub(id, is_repair)?;
            end.await
        })
    }

    pub fn end_of_scrub(&self) -> Op {
        let (group, handle) = (self.client.group.clone(), self.world.handle());
        Box::pin(async move {
            while group.is_scrubbing() {
                handle.sleep(Duration::from_micros(200)).await;
            }
            Ok(())
        })
    }

    pub fn scrubbed(&self, vol: Vol, is_repair: bool) -> ScrubInfo {
        self.world.run(self.scrub(vol, is_repair)).unwrap();
        self.client.group.scrub_of(self.client.id(vol).unwrap()).unwrap()
    }

    /// A bit of each block of one leg flips, whether the block is in use or not.
    fn rot(&self, leg: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        for run in self.client.group.mirror_info().runs {
            let leg = run.run.legs[leg];
            for block in 0..run.run.bytes / BLOCK_SIZE {
                self.disks.rot(leg.pv, leg.offset + block * BLOCK_SIZE + rng.below(BLOCK_SIZE), rng.below(8) as u8);
            }
        }
    }
}

/// Each block that is in use is found, once. A repair changes these blocks, and reads give what was written (SC2).
fn rot_is_found(seed: u64) {
    let made = made(seed, &setup(2 + (seed % 2) as usize));
    made.caught_up();
    // A thick volume keeps the place of what it gives up.
    made.world.run(made.client.zero(made.vols[0], 0, 64 * BLOCK, false)).unwrap();
    let clean = made.scrubbed(made.vols[0], false);
    assert_eq!((clean.different, clean.unreadable, clean.skipped), (0, 0, 0), "seed {seed}");
    assert_eq!(clean.done, made.used(made.vols[0]), "seed {seed}");
    made.rot(1, seed);
    let rotten = made.scrubbed(made.vols[0], false);
    // The snapshot has the same blocks.
    assert_eq!(rotten.different, made.used(made.vols[0]), "seed {seed}");
    for vol in &made.vols[..2] {
        let repaired = made.scrubbed(*vol, true);
        assert_eq!(repaired.different, made.used(*vol), "seed {seed}");
    }
    made.caught_up();
    made.judge(Since::Death);
    for vol in &made.vols[..2] {
        assert_eq!(made.scrubbed(*vol, false).different, 0, "seed {seed}");
    }
}

#[test]
fn each_block_that_rots_is_found_and_repaired() {
    for seed in 0..scaled(8) {
        rot_is_found(seed);
    }
}

/// Writes and discards go on, snapshots come and go, and the copies never differ.
fn load_differs_nowhere(seed: u64) {
    // What is freed is discarded, and holds anything then.
    let plain = setup(2);
    let config =
        Config { discards: Policy { freed: true, passed_down: true }, min_discarded: 1, ..plain.config.clone() };
    let made = made(seed, &Setup { config, ..plain });
    made.caught_up();
    let mut ops = loads(&made, seed, 60).split_off(1);
    let (client, handle, vol) = (made.client.clone(), made.world.handle(), made.vols[0]);
    ops.push(Box::pin(async move {
        let mut rng = Rng::new(seed + 7);
        for _ in 0..80 {
            let at = rng.below(BLOCKS - 40) * BLOCK;
            match rng.below(10) {
                0 => {
                    let taken = client.snapshot(&[vol], SnapshotKind::default()).await?;
                    client.remove(&taken).await?;
                }
                // What was freed is discarded after a checkpoint.
                1..4 => {
                    client.zero(vol, at, rng.range(1, 32) * BLOCK, false).await?;
                    client.checkpoint().await?;
                }
                _ => client.write(vol, at, rng.range(1, 40), &[]).await?,
            }
            handle.sleep(Duration::from_micros(rng.below(100))).await;
        }
        Ok(())
    }));
    // Again and again, until a difference is found that is none.
    let scrubs: Vec<Op> = (0..20).map(|_| made.scrub(made.vols[0], false)).collect();
    let (group, id) = (made.client.group.clone(), made.client.id(made.vols[0]).unwrap());
    ops.push(Box::pin(async move {
        for scrub in scrubs {
            scrub.await?;
            let info = group.scrub_of(id).expect("it has ended");
            assert_eq!((info.different, info.unreadable, info.is_incomplete), (0, 0, false), "seed {seed}");
        }
        Ok(())
    }));
    for done in made.world.run(made.client.together(ops)) {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    made.judge(Since::Death);
}

#[test]
fn what_is_written_meanwhile_is_no_difference() {
    for seed in 0..scaled(16) {
        load_differs_nowhere(seed);
    }
}

/// SC1
#[test]
fn what_was_never_written_is_not_compared() {
    must_be_found("scrub_compares_unwritten", || (0..4).for_each(rot_is_found));
}

/// A second one is refused, one is ended on request, and one copy alone is not compared.
#[test]
fn what_cannot_be_compared_is_not() {
    let made = made(3, &setup(2));
    made.caught_up();
    let (group, id) = (made.client.group.clone(), made.client.id(made.vols[0]).unwrap());
    group.start_scrub(id, false).unwrap();
    assert!(group.start_scrub(id, false).is_err());
    assert!(group.stop_scrub(id));
    made.world.run(made.end_of_scrub()).unwrap();
    let ended = group.take_ended_scrubs();
    assert!(ended.len() == 1 && ended[0].1.is_incomplete, "{ended:?}");
    assert!(!group.stop_scrub(id));

    // A snapshot that has lost its contents, between two that have them.
    let reserved = SnapshotKind { reserve: Some(4), ..SnapshotKind::default() };
    made.world.run(async {
        made.client.snapshot(&made.vols[..1], reserved).await.unwrap();
        for at in (0..BLOCKS - 40).step_by(16) {
            made.client.write(made.vols[0], at * BLOCK, 5 * BLOCK, &[]).await.unwrap();
        }
        made.client.snapshot(&made.vols[..1], SnapshotKind::default()).await.unwrap();
    });
    assert!(group.volumes().iter().any(|info| info.state == VolumeState::Invalid));
    let info = made.scrubbed(made.vols[0], false);
    assert_eq!((info.different, info.is_incomplete), (0, false));
}
