//! Groups that can only be read: nothing is written, and everything is there.
//!
//! Rule RO1.

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOpKind, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::format::record::seal;
use rowen_engine::format::superblock::{COPY_OFFSETS, SLOTS};
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::BLOCK_SIZE;
use rowen_sim::client::{BLOCK, Client, SnapshotKind, VolumeSpec};
use rowen_sim::crash::{Setup, judge_group, read_all};
use rowen_sim::disk::{Image, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since};
use rowen_sim::rng::Rng;
use std::sync::Arc;

/// The highest byte of the features that writers must know.
const FEATURE: usize = 487;

/// The disks of a killed server, whose journal has more than the checkpoint.
fn killed(setup: &Setup) -> (Image, Oracle) {
    let world = World::new(41);
    let (disks, group) = setup.make(&world).unwrap();
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group, oracle.clone());
    let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 400, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async {
        let vol = client.create(spec).await.unwrap();
        for block in 0..100 {
            client.write(vol, block * 3 * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.checkpoint().await.unwrap();
        let snapshot = client.snapshot(&[vol], SnapshotKind::default()).await.unwrap()[0];
        for block in 0..30 {
            client.write(vol, block * 7 * BLOCK, BLOCK, &[]).await.unwrap();
            client.write(snapshot, block * 5 * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.flush(vol).await.unwrap();
    });
    let image = disks.moment().killed(&mut Rng::new(41));
    let oracle = oracle.lock().clone();
    (image, oracle)
}

/// A newer program has used the group: all superblocks name a feature that only that program knows.
fn marked(mut image: Image) -> Image {
    for pv in (0..image.count()).map(|at| PvIndex(at as u16)) {
        for offset in COPY_OFFSETS.iter().flat_map(|copy| (0..SLOTS).map(move |slot| copy + slot * BLOCK_SIZE)) {
            let mut block = vec![0; 4096];
            image.read(pv, offset, &mut block);
            if block.starts_with(b"ROWENPV1") {
                block[FEATURE] = 0x80;
                seal(&mut block, 8);
                image.write(pv, offset, &block);
            }
        }
    }
    image
}

fn unwritten(disks: &SimDisks) {
    assert_eq!(disks.requests(DiskOpKind::Write) + disks.requests(DiskOpKind::Discard), 0, "RO1");
}

fn refused_to_writers() {
    let setup = Setup::small(2, 24);
    let (image, _) = killed(&setup);
    let world = World::new(42);
    let disks = SimDisks::with_image(world.handle(), marked(image));
    let refused = |outcome: Result<(), Error>| match outcome {
        Err(Error::ReadableOnly { features }) => assert_eq!(features, 1 << 63),
        other => panic!("RO1: {other:?}"),
    };
    refused(world.run(Group::open(disks.clone(), world.handle(), setup.config.clone())).map(drop));
    refused(world.run(Group::repair(disks.clone())).map(drop));
    assert!(world.run(Group::check(disks.clone())).unwrap().findings.is_empty());
    unwritten(&disks);
}

#[test]
fn a_program_that_does_not_know_all_features_writes_nothing() {
    refused_to_writers();
}

#[test]
fn a_program_that_writes_nevertheless_is_found() {
    must_be_found("unknown_written", refused_to_writers);
}

#[test]
fn everything_can_be_read() {
    let setup = Setup::small(2, 24);
    let (image, oracle) = killed(&setup);
    let image = marked(image);
    let world = World::new(43);
    let disks = SimDisks::with_image(world.handle(), image);
    let config = Config { read_only: true, ..setup.config.clone() };
    let group = world.run(Group::open(disks.clone(), world.handle(), config)).unwrap();
    assert!(group.is_read_only());
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    let found = world.run(read_all(&client)).unwrap();
    judge_group(&oracle, &group.volumes(), &found, Since::Death).unwrap();
    let volumes = group.volumes();
    assert_eq!(volumes.len(), 2);
    world.run(async {
        for volume in &volumes {
            let data = group.volume(volume.id).unwrap();
            assert!(data.read_only());
            let buf = Arc::new(rowen_engine::disk::PageBuf::zeroed(4096));
            assert_eq!(data.write(0, 4096, buf).await, Err(Error::ReadOnly));
            assert_eq!(data.write_zeroes(0, 4096).await, Err(Error::ReadOnly));
            assert_eq!(data.discard(0, 8192).await, Err(Error::ReadOnly));
            assert_eq!(data.flush().await, Ok(()));
            assert_eq!(group.remove(&[volume.id]).await, Err(Error::ReadOnly));
        }
        assert_eq!(group.checkpoint().await, Err(Error::ReadOnly));
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        assert!(group.repair_open().await.is_err());
        group.close().await.unwrap();
    });
    unwritten(&disks);
    assert_eq!(disks.requests(DiskOpKind::Flush), 0);
}
