//! One sector is unreadable or rotten when a group is opened (J6). Sectors that a power cut may leave do not prevent
//! the opening. Missing journal records that were flushed do.
//!
//! Rule L3.

use parking_lot::Mutex;
use rowen_engine::disk::{DiskOp, Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_sim::client::{BLOCK, Client, VolumeSpec};
use rowen_sim::crash::{Setup, judge_group, read_all};
use rowen_sim::disk::{Faults, Image, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::{Oracle, Since};
use rowen_sim::rng::Rng;
use std::sync::Arc;

const PV: PvIndex = PvIndex(0);

struct Killed {
    setup: Setup,
    image: Image,
    oracle: Oracle,
    /// The place of the last write's data, and of the last frame.
    data: u64,
    frame: u64,
}

/// A server that was killed after a checkpoint and some writes.
fn killed(flush: bool, planted: Option<&'static str>) -> Killed {
    let world = World::new(61);
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(1, 64) };
    let (disks, group) = setup.make(&world).unwrap();
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group, oracle.clone());
    let last: Arc<Mutex<(u64, u64)>> = Arc::default();
    let seen = last.clone();
    disks.watch(Box::new(move |op| {
        if let DiskOp::Write { segments, buf } = op {
            let mut seen = seen.lock();
            match buf.as_slice().starts_with(b"ROWEN") {
                true => seen.1 = segments[0].offset,
                false => seen.0 = segments[0].offset,
            }
        }
    }));
    world.run(async {
        let spec = VolumeSpec { kind: VolumeKind::Thin, blocks: 1000, chunk_blocks: 1, full: FullPolicy::Fail };
        let vol = client.create(spec).await.unwrap();
        client.write(vol, 0, 100 * BLOCK, &[]).await.unwrap();
        client.checkpoint().await.unwrap();
        for block in 200..212 {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
            client.write(vol, (block - 200) * BLOCK, BLOCK, &[]).await.unwrap();
            if flush {
                client.flush(vol).await.unwrap();
            }
        }
        client.write(vol, 300 * BLOCK, BLOCK, &[]).await.unwrap();
        if flush {
            client.flush(vol).await.unwrap();
        }
    });
    let (data, frame) = *last.lock();
    let image = disks.moment().killed(&mut Rng::new(61));
    let oracle = oracle.lock().clone();
    Killed { setup, image, oracle, data, frame }
}

/// Opens it and reads everything. `judge`: by what the oracle allows after power loss.
fn opens(killed: &Killed, image: &Image, unreadable: &[u64], judge: bool) -> Result<(), String> {
    let world = World::new(62);
    let disks = SimDisks::with_image(world.handle(), image.clone());
    let unreadable = unreadable.iter().map(|at| (PV, *at, 512)).collect();
    disks.set_faults(Faults { unreadable, ..Faults::default() });
    let check = world.run(Group::check(disks.clone() as Arc<dyn Disks>)).map_err(|e| e.to_string())?;
    let group = world.run(Group::open(disks.clone(), world.handle(), killed.setup.config.clone()));
    let group = match group {
        Err(error @ Error::Corrupt { what: "journal", .. }) => {
            assert_eq!(check.findings, [error.to_string()], "check says it, too");
            return Err(error.to_string());
        }
        other => other.map_err(|e| format!("not as it should be refused: {e}"))?,
    };
    if killed.setup.config.planted.is_none() {
        assert_eq!(check.findings, Vec::<String>::new());
    }
    let client = Client::new(world.handle(), group.clone(), Arc::default());
    let found = world.run(read_all(&client))?;
    if judge {
        judge_group(&killed.oracle, &group.volumes(), &found, Since::PowerLoss)?;
    }
    world.run(group.close()).map_err(|e| e.to_string())
}

#[test]
fn data_that_was_not_flushed() {
    let killed = killed(false, None);
    assert_eq!(opens(&killed, &killed.image, &[killed.data], true), Ok(()));
}

/// Nothing on the disk says that it was flushed. The record is treated like one whose data does not match.
#[test]
fn data_that_no_marker_covers() {
    let killed = killed(true, None);
    assert_eq!(opens(&killed, &killed.image, &[killed.data], false), Ok(()));
}

#[test]
fn the_last_frame() {
    let killed = killed(false, None);
    assert_eq!(opens(&killed, &killed.image, &[killed.frame], true), Ok(()));
}

#[test]
fn a_part_of_the_ring_that_was_never_written() {
    let killed = killed(true, None);
    assert_eq!(opens(&killed, &killed.image, &[killed.frame + (64 << 10)], true), Ok(()));
}

#[test]
fn a_disk_that_cannot_be_read_at_all_is_reported() {
    let killed = killed(true, None);
    let all: Vec<u64> = (0..1000).map(|block| killed.frame + block * 4096).collect();
    let refusal = opens(&killed, &killed.image, &all, true).unwrap_err();
    assert!(refusal.contains("read failed"), "{refusal}");
}

/// The frames in the image: their places, first records and markers.
fn frames(image: &Image) -> Vec<(u64, u64, u64)> {
    let mut frames = Vec::new();
    for offset in image.page_offsets(PV) {
        let mut head = [0; 64];
        image.read(PV, offset, &mut head);
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
        if head.starts_with(b"ROWENJRN") {
            frames.push((number(16), offset, number(24), number(40)));
        }
    }
    let life = frames.iter().map(|(life, ..)| *life).max().unwrap();
    frames.into_iter().filter(|(of, ..)| *of == life).map(|(_, at, first, marker)| (at, first, marker)).collect()
}

/// Damages each frame in turn. `Err`: flushed data was lost, and the group opened.
fn each_frame(planted: Option<&'static str>) -> Result<u64, String> {
    let killed = killed(true, planted);
    let frames = frames(&killed.image);
    let highest = frames.iter().map(|(.., marker)| *marker).max().unwrap();
    // The checkpoint contains the first of them.
    let captured = 3;
    let mut refused = 0;
    for (at, first, _) in frames {
        let mut rotten = killed.image.clone();
        rotten.flip(PV, at + 70, 3);
        for (image, unreadable) in [(&rotten, &[][..]), (&killed.image, &[at][..])] {
            let is_provable = first >= captured && first < highest;
            let outcome = opens(&killed, image, unreadable, is_provable);
            match outcome {
                Err(why) if why.contains("flushed records") => {
                    assert!(is_provable, "the frame of record {first}: {why}");
                    refused += 1;
                }
                outcome => outcome.map_err(|e| format!("the frame of record {first}: {e}"))?,
            }
        }
    }
    Ok(refused)
}

#[test]
fn missing_flushed_records_are_reported() {
    let refused = each_frame(None).unwrap();
    assert!(refused >= 20, "{refused}");
}

#[test]
fn a_journal_end_that_is_not_checked_is_found() {
    let why = each_frame(Some("journal_end_not_checked")).unwrap_err();
    assert!(why.contains("LOST"), "{why}");
}
