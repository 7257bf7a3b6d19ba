//! A volume is reduced while a checkpoint is taken, and the power fails. It has its old contents or its new size.
//!
//! Rule V2.

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, PageBuf};
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_engine::units::BLOCK_SIZE;
use rowen_sim::client::{BLOCK, Client, Op, VolumeSpec};
use rowen_sim::crash::{Setup, judge_image, plain_volume};
use rowen_sim::disk::{Delays, Faults, Policy, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since};
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Three times the blocks of one step of a reduction.
const BLOCKS: u64 = 3 << 16;
const SEED: u64 = 5;

/// A checkpoint begins `after` microseconds of a reduction whose journal frame takes a second. The power fails when the
/// checkpoint is durable. False: the reduction had ended by then.
fn race(after: u64, planted: Option<&'static str>) -> Result<bool, String> {
    let world = World::new(SEED);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 64) };
    let (disks, group) = setup.make(&world).unwrap();
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group, oracle.clone());
    let vol = world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: BLOCKS, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        for block in (0..BLOCKS).step_by(97) {
            client.write(vol, block * BLOCK, 1, &[]).await.unwrap();
        }
        client.close().await.unwrap();
        vol
    });
    // After the opening the map is not in memory, and the reduction waits for its nodes.
    let image = disks.moment().killed(&mut Rng::new(SEED));
    let world = World::new(SEED + 1);
    let disks = SimDisks::with_image(world.handle(), image);
    let group = world.run(Group::open(disks.clone(), world.handle(), setup.config.clone())).unwrap();
    let client = Client::new(world.handle(), group, oracle.clone());
    disks.set_delays(Delays { read: (100, 200), ..Delays::default() });
    let frame = disks.requests(DiskOpKind::Write);
    disks.set_faults(Faults { slow: Some((DiskOpKind::Write, frame, 1_000_000)), ..Faults::default() });
    let handle = world.handle();
    let kept = Arc::new(Mutex::new(None));
    world.run(async {
        let (reducing, checkpoint, keep) = (client.clone(), client.clone(), kept.clone());
        let (disks, oracle) = (disks.clone(), oracle.clone());
        let is_reduced = Arc::new(AtomicBool::new(false));
        let seen = is_reduced.clone();
        let ops: Vec<Op> = vec![
            Box::pin(async move {
                let done = reducing.resize(vol, 1000).await;
                is_reduced.store(true, Ordering::Relaxed);
                done
            }),
            Box::pin(async move {
                handle.sleep(Duration::from_micros(after)).await;
                checkpoint.group.checkpoint().await?;
                if !seen.load(Ordering::Relaxed) {
                    *keep.lock() = Some((disks.moment(), oracle.lock().clone()));
                }
                Ok(())
            }),
        ];
        client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
    });
    let Some((moment, oracle)) = kept.lock().take() else { return Ok(false) };
    let image = moment.crash(Some(Policy::Nothing), &mut Rng::new(SEED));
    judge_image(&setup, &oracle, Since::PowerLoss, image, SEED)?;
    Ok(true)
}

#[test]
fn a_checkpoint_during_a_reduction_and_a_power_cut() {
    let mut raced = 0;
    for after in (0..6000).step_by(750) {
        match race(after, None) {
            Ok(first) => raced += u64::from(first),
            Err(finding) => panic!("a checkpoint {after} us after: {finding}"),
        }
    }
    assert!(raced > 0, "no checkpoint ended before the reduction");
}

#[test]
fn a_map_that_changes_before_its_record_is_found() {
    let is_found = (1500..6000).step_by(300).any(|after| race(after, Some("map_first")).is_err());
    assert!(is_found, "the planted bug was not found");
}

/// A thin volume may be larger than any disk. Unmapped blocks take no time when they are dropped, neither at once nor
/// in a replay.
#[test]
fn a_volume_larger_than_any_disk_is_reduced_at_once() {
    const HUGE: u64 = 1 << 46;
    let world = World::new(SEED);
    let setup = Setup::small(1, 64);
    let (disks, group) = setup.make(&world).unwrap();
    let id = world.run(async {
        let id = group.create_volume(plain_volume("huge", 1, VolumeKind::Thin, HUGE)).await.unwrap();
        let volume = group.volume(id).unwrap();
        for block in [0, 1 << 20, HUGE / 2, HUGE - 1] {
            let data = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
            volume.write(block * BLOCK_SIZE, BLOCK_SIZE as u32, data).await.unwrap();
        }
        group.resize(id, 256).await.unwrap();
        id
    });
    assert_eq!(group.volume_info(id).unwrap().referenced, 1);
    let image = disks.moment().killed(&mut Rng::new(SEED));
    let world = World::new(SEED + 1);
    let disks = SimDisks::with_image(world.handle(), image);
    let group = world.run(Group::open(disks, world.handle(), setup.config)).unwrap();
    let info = group.volume_info(id).unwrap();
    assert_eq!((info.blocks, info.referenced), (256, 1));
    assert!(world.run(group.check_open()).unwrap().findings.is_empty());
}
