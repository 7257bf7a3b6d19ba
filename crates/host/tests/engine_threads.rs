//! The engine on several threads: writers on every worker, snapshots, removals, discards and checkpoints at once, over
//! a real file. The simulator finds what order of events can break; this finds what threads can.
#![allow(clippy::unwrap_used)]

use rowen_engine::disk::PageBuf;
use rowen_engine::group::{
    Attributes, Config, FullPolicy, Group, NewGroup, NewPv, NewSnapshot, NewVolume, Volume, VolumeKind,
};
use rowen_engine::units::{Uuid, VolumeId};
use rowen_host::disks::{IoEngine, OpenMode, PvSet};
use rowen_host::reactor::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

const WORKERS: usize = 4;
const VOLUME_BLOCKS: u64 = 4096;
const WRITERS: u64 = 8;
const ROUNDS: u32 = 1500;

/// A file that goes away with the test.
struct PvFile(std::path::PathBuf);

impl Drop for PvFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn uuid(n: u8) -> Uuid {
    Uuid([n; 16])
}

fn stamp(writer: u64, block: u64, version: u32) -> Arc<PageBuf> {
    let mut buf = PageBuf::zeroed(4096);
    for word in buf.as_mut_slice().chunks_exact_mut(16) {
        word[..8].copy_from_slice(&(writer << 32 | block).to_le_bytes());
        word[8..12].copy_from_slice(&version.to_le_bytes());
    }
    Arc::new(buf)
}

/// Writes, discards and reads back its own part of a volume; every read must give what it wrote last.
async fn writer(volume: Arc<Volume>, number: u64) -> Result<(), String> {
    let mut rng = Rng(number * 7919 + 1);
    let (first, blocks) = (number * VOLUME_BLOCKS / WRITERS, VOLUME_BLOCKS / WRITERS);
    let mut versions = vec![0u32; blocks as usize];
    for round in 1..=ROUNDS {
        let at = rng.below(blocks);
        let offset = (first + at) * 4096;
        match rng.below(10) {
            0 => {
                volume.discard(offset, 4096).await.map_err(|e| e.to_string())?;
                versions[at as usize] = 0;
            }
            1 => volume.flush().await.map_err(|e| e.to_string())?,
            2..=5 => {
                volume.write(offset, 4096, stamp(number, at, round)).await.map_err(|e| e.to_string())?;
                versions[at as usize] = round;
            }
            _ => {
                let found = volume.read(offset, 4096, PageBuf::zeroed(4096)).await.map_err(|e| e.to_string())?;
                let version = versions[at as usize];
                let expected = if version == 0 { Arc::new(PageBuf::zeroed(4096)) } else { stamp(number, at, version) };
                if found.as_slice() != expected.as_slice() {
                    return Err(format!("writer {number}, round {round}: block {at} is not version {version}"));
                }
            }
        }
    }
    Ok(())
}

/// Takes snapshots of a volume and removes older ones, in any order, while it is written.
async fn snapshots(group: Arc<Group>, origin: VolumeId, count: u32) -> Result<(), String> {
    let mut rng = Rng(u64::from(count) + origin.0);
    let mut held: Vec<VolumeId> = Vec::new();
    for n in 0..count {
        let spec = NewSnapshot {
            origin,
            name: format!("s{}-{n}", origin.0),
            uuid: uuid(n as u8),
            reserve: None,
            read_only: n % 2 == 0,
            chunk_blocks: 16,
            attributes: Attributes::default(),
        };
        held.extend(group.snapshot(&[spec]).await.map_err(|e| e.to_string())?);
        if held.len() > 3 {
            let gone = held.swap_remove(rng.below(held.len() as u64) as usize);
            group.remove(&[gone]).await.map_err(|e| e.to_string())?;
        }
        if n % 5 == 0 {
            group.checkpoint().await.map_err(|e| e.to_string())?;
        }
    }
    group.remove(&held).await.map_err(|e| e.to_string())
}

#[test]
fn threads_do_not_disturb_each_other() {
    let path = std::env::temp_dir().join(format!("rowen-threads-{}", std::process::id()));
    let file = PvFile(path.clone());
    std::fs::File::create(&path).unwrap().set_len(512 << 20).unwrap();
    let pool = Pool::start(WORKERS).unwrap();
    let disks = Arc::new(PvSet::open(&pool, &[path], OpenMode::Exclusive, IoEngine::Uring).unwrap());
    let spec = NewGroup {
        uuid: uuid(1),
        name: "threads".into(),
        extent_blocks: 1024,
        pvs: vec![NewPv { uuid: uuid(2) }],
        second_journal: None,
    };
    pool.block_on(Group::create(disks.clone(), spec)).unwrap();
    let config = Config { cache_bytes: 2 << 20, dirty_bytes: 1 << 20, ..Config::default() };
    let group = pool.block_on(Group::open(disks.clone(), pool.runtime(), config)).unwrap();
    let (report, reports) = mpsc::channel();
    let started = Arc::new(AtomicU32::new(0));
    let start = |worker: usize, task: std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send>>| {
        let report = report.clone();
        started.fetch_add(1, Ordering::Relaxed);
        pool.spawn_on(worker % WORKERS, Box::pin(async move { report.send(task.await).unwrap() }));
    };
    for (n, kind) in [VolumeKind::Thick, VolumeKind::Thin].into_iter().enumerate() {
        let spec = NewVolume {
            name: format!("v{n}"),
            uuid: uuid(10 + n as u8),
            kind,
            blocks: VOLUME_BLOCKS,
            sector: 512,
            chunk_blocks: 16,
            full: FullPolicy::Fail,
            attributes: Attributes::default(),
        };
        let creation = group.clone();
        let id = pool.block_on(async move { creation.create_volume(spec).await }).unwrap();
        let volume = group.volume(id).unwrap();
        for number in 0..WRITERS {
            start(number as usize, Box::pin(writer(volume.clone(), number)));
        }
        start(n, Box::pin(snapshots(group.clone(), id, 40)));
    }
    for _ in 0..started.load(Ordering::Relaxed) {
        let outcome = reports.recv_timeout(std::time::Duration::from_secs(300)).expect("a task hangs");
        outcome.unwrap();
    }
    let last = group.clone();
    let report = pool
        .block_on(async move {
            last.reclaim_idle().await?;
            let report = last.check_open().await?;
            last.close().await?;
            Ok::<_, rowen_engine::error::Error>(report)
        })
        .unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert!(group.stats().checkpoints > 5 && group.stats().reclaim_steps > 0, "{:?}", group.stats());
    let closed = pool.block_on(Group::check(disks)).unwrap();
    assert_eq!(closed.findings, Vec::<String>::new());
    drop(file);
}
