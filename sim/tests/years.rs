//! Years of a group that is nearly full: hourly snapshots, pruned to 24 hourly, 30 daily and 12 monthly ones (rule L5).
//!
//! No write may be refused and no snapshot dropped. The cost of operations is counted in disk commands. It is compared
//! with a young group: equally large volumes, as many snapshots, and only the writes whose contents still exist, each
//! made once, in their order. `ROWEN_SIM_SEEDS` scales the time (in percent of 13 months).

use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::group::{
    Attributes, Config, FullPolicy, Group, NewSnapshot, NewVolume, Volume, VolumeKind, VolumeState,
};
use rowen_engine::units::{Uuid, VolumeId};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Counts, SimDisks};
use rowen_sim::effort::percent;
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;

const PAGE: u64 = 4096;
const MIB: u64 = 512;
const DAY: u64 = 24;
const MONTH: u64 = 30 * DAY;
/// The kept snapshots of each volume: one for each of these hours, days and months.
const KEPT: (u64, u64, u64) = (24, 30, 12);
/// Blocks of a read of the origin.
const READ: u64 = 16;
/// First writes, and reads, that are counted.
const COUNTED: u64 = 400;

/// A volume and what each of its blocks should hold: the number of the write, 0 for zeros.
struct Origin {
    id: VolumeId,
    volume: Arc<Volume>,
    blocks: Vec<u64>,
}

/// The most that an old group may need, compared with a young one.
const MOST: f64 = 1.5;

/// Disk commands for each operation.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// A first write of 4 KiB after a snapshot, with the checkpoints that it causes.
    write: f64,
    /// A read of 64 KiB of an origin.
    read: f64,
    /// An opening after a clean close.
    opening: f64,
    /// An opening after a kill.
    recovery: f64,
}

struct Life {
    group: Arc<Group>,
    disks: Arc<SimDisks>,
    rng: Rng,
    writes: u64,
    /// The writes that filled the volumes.
    filled: u64,
    names: u64,
    /// A thick volume, and a thin one.
    origins: [Origin; 2],
    /// Snapshots by the hour in which they were made.
    snapshots: Vec<(u64, Vec<VolumeId>)>,
    /// A volume that comes and goes.
    guest: Option<VolumeId>,
    least_free: u64,
}

impl Life {
    async fn begin(group: Arc<Group>, disks: Arc<SimDisks>, seed: u64) -> Life {
        let blocks = group.info().blocks;
        let rng = Rng::new(seed);
        let mut names = 0;
        let mut origins = Vec::new();
        for (kind, share) in [(VolumeKind::Thick, 41), (VolumeKind::Thin, 25)] {
            let blocks = blocks * share / 100 / READ * READ;
            names += 1;
            let id = group.create_volume(new_volume(names, kind, blocks)).await.unwrap();
            origins.push(Origin { id, volume: group.volume(id).unwrap(), blocks: vec![0; blocks as usize] });
        }
        let origins = origins.try_into().unwrap_or_else(|_| unreachable!("there are two"));
        let mut life = Life {
            group,
            disks,
            rng,
            writes: 0,
            filled: 0,
            names,
            origins,
            snapshots: Vec::new(),
            guest: None,
            least_free: u64::MAX,
        };
        for origin in 0..2 {
            for at in (0..life.origins[origin].blocks.len() as u64).step_by(READ as usize) {
                life.write(origin, at, READ).await.unwrap();
            }
        }
        life.group.checkpoint().await.unwrap();
        life.filled = life.writes;
        life
    }

    async fn write(&mut self, origin: usize, at: u64, len: u64) -> Result<(), String> {
        let Origin { volume, blocks, .. } = &mut self.origins[origin];
        self.writes += 1;
        let mut buf = PageBuf::zeroed((len * PAGE) as usize);
        for (page, block) in buf.as_mut_slice().chunks_exact_mut(PAGE as usize).zip(at..) {
            page[..8].copy_from_slice(&self.writes.to_le_bytes());
            page[8..16].copy_from_slice(&block.to_le_bytes());
        }
        let written = volume.write(at * PAGE, (len * PAGE) as u32, Arc::new(buf)).await;
        written.map_err(|error| format!("a write: {error}"))?;
        blocks[at as usize..(at + len) as usize].fill(self.writes);
        Ok(())
    }

    async fn discard(&mut self, origin: usize, at: u64, len: u64) -> Result<(), String> {
        let Origin { volume, blocks, .. } = &mut self.origins[origin];
        volume.discard(at * PAGE, len * PAGE).await.map_err(|error| format!("a discard: {error}"))?;
        blocks[at as usize..(at + len) as usize].fill(0);
        Ok(())
    }

    /// Reads blocks of an origin and compares them.
    async fn read(&self, origin: usize, at: u64, len: u64) {
        let Origin { volume, blocks, .. } = &self.origins[origin];
        let buf = PageBuf::zeroed((len * PAGE) as usize);
        let buf = volume.read(at * PAGE, (len * PAGE) as u32, buf).await.unwrap();
        for (page, block) in buf.as_slice().chunks_exact(PAGE as usize).zip(at..) {
            let wanted = blocks[block as usize];
            let found = u64::from_le_bytes(*page.first_chunk().unwrap());
            assert_eq!(found, wanted, "block {block} of volume {origin}");
            let place = u64::from_le_bytes(*page[8..].first_chunk().unwrap());
            assert_eq!(place, if wanted == 0 { 0 } else { block }, "block {block} of volume {origin}");
        }
    }

    /// A place for this many blocks, aligned, in the first `most` of the volume.
    fn place(&mut self, origin: usize, len: u64, most: u64) -> u64 {
        let blocks = self.origins[origin].blocks.len() as u64;
        self.rng.below(blocks.min(most) / len) * len
    }

    async fn snapshot(&mut self, hour: u64) -> Result<(), String> {
        let specs: Vec<NewSnapshot> = (1..)
            .zip(&self.origins)
            .map(|(n, origin)| NewSnapshot {
                origin: origin.id,
                name: format!("v{}", self.names + n),
                uuid: uuid(self.names + n),
                reserve: None,
                read_only: true,
                chunk_blocks: 16,
                attributes: Attributes::default(),
            })
            .collect();
        self.names += specs.len() as u64;
        let made = self.group.snapshot(&specs).await.map_err(|error| format!("a snapshot: {error}"))?;
        self.snapshots.push((hour, made));
        Ok(())
    }

    /// One hour's work: a snapshot of both volumes, writes to files and to a database, discards, volumes that are made
    /// and removed.
    async fn hour(&mut self, hour: u64) -> Result<(), String> {
        self.snapshot(hour).await?;
        let thick = self.origins[0].blocks.len() as u64;
        match hour % 4 {
            // Files: one of them is replaced.
            0 => {
                let at = self.place(0, 16, 256);
                self.write(0, at, 16).await?;
            }
            // A database: pages in its tables, and its log.
            1 | 3 => {
                for _ in 0..4 {
                    let at = self.place(1, 2, 320);
                    self.write(1, at, 2).await?;
                }
                self.write(1, 1024 + hour % 64, 1).await?;
            }
            // One page at random.
            _ => {
                let at = self.place(1, 1, u64::MAX);
                self.write(1, at, 1).await?;
            }
        }
        match hour % 12 {
            // A slow pass through the volume in order.
            5 => self.write(0, hour / 12 * 4 % thick, 4).await?,
            11 => {
                let at = self.place(1, 16, 320);
                self.discard(1, at, 16).await?;
            }
            _ => {}
        }
        if hour % (2 * DAY) == 7 {
            self.guest(self.guest.is_none()).await?;
        }
        let info = self.group.info();
        self.least_free = self.least_free.min(info.free_blocks);
        let gone = self.group.any_volume(|volume| volume.state == VolumeState::Invalid);
        if gone { Err("a snapshot was dropped".into()) } else { Ok(()) }
    }

    /// A volume of a hundredth of the group is made, or removed.
    async fn guest(&mut self, comes: bool) -> Result<(), String> {
        if !comes {
            let id = self.guest.take().unwrap();
            return self.group.remove(&[id]).await.map_err(|error| format!("a removal: {error}"));
        }
        let blocks = self.group.info().blocks / 100;
        self.names += 1;
        let made = self.group.create_volume(new_volume(self.names, VolumeKind::Thin, blocks)).await;
        let id = made.map_err(|error| format!("a creation: {error}"))?;
        let volume = self.group.volume(id).unwrap();
        for at in (0..blocks).step_by(64) {
            let len = 64.min(blocks - at) * PAGE;
            let written = volume.write(at * PAGE, len as u32, Arc::new(PageBuf::zeroed(len as usize))).await;
            written.map_err(|error| format!("a write to a new volume: {error}"))?;
        }
        self.guest = Some(id);
        Ok(())
    }

    async fn prune(&mut self, now: u64) -> Result<(), String> {
        let (hours, days, months) = KEPT;
        let is_kept = |made: u64| {
            let age = now - made;
            age < hours || made % DAY == 0 && age < days * DAY || made % MONTH == 0 && age < months * MONTH
        };
        let (kept, gone) = std::mem::take(&mut self.snapshots).into_iter().partition(|(made, _)| is_kept(*made));
        self.snapshots = kept;
        for (_, ids) in gone as Vec<(u64, Vec<VolumeId>)> {
            self.group.remove(&ids).await.map_err(|error| format!("a removal: {error}"))?;
        }
        Ok(())
    }

    fn count(&self, since: &Counts) -> f64 {
        let counts = self.disks.counts().since(since);
        (counts.reads + counts.writes + counts.flushes) as f64 / COUNTED as f64
    }

    /// The present cost of operations.
    async fn measure(&mut self, hour: u64) -> Result<Figures, String> {
        self.group.reclaim_idle().await.unwrap();
        self.group.checkpoint().await.unwrap();
        let before = self.disks.counts();
        for n in 0..COUNTED {
            let origin = n as usize % 2;
            let at = self.place(origin, READ, u64::MAX);
            self.read(origin, at, READ).await;
        }
        let read = self.count(&before);
        self.snapshot(hour).await?;
        self.group.checkpoint().await.unwrap();
        let before = self.disks.counts();
        for n in 0..COUNTED {
            let origin = n as usize % 2;
            let at = self.place(origin, 1, u64::MAX);
            self.write(origin, at, 1).await?;
        }
        let write = self.count(&before);
        let (_, ids) = self.snapshots.pop().unwrap();
        self.group.remove(&ids).await.unwrap();
        self.group.reclaim_idle().await.unwrap();
        self.group.checkpoint().await.unwrap();
        let image = self.disks.moment().killed(&mut self.rng);
        let (recovery, opening) = openings(image, self.rng.bits());
        Ok(Figures { write, read, opening, recovery })
    }
}

/// Disk commands of an opening after a kill, and of one after the close that follows it. The group is checked.
fn openings(image: rowen_sim::disk::Image, seed: u64) -> (f64, f64) {
    let world = World::new(seed);
    let disks = SimDisks::with_image(world.handle(), image);
    disks.without_cache();
    let mut costs = [0.0; 2];
    for cost in &mut costs {
        let before = disks.counts();
        let group = world.run(Group::open(disks.clone(), world.handle(), config())).unwrap();
        let counts = disks.counts().since(&before);
        *cost = (counts.reads + counts.writes + counts.flushes) as f64;
        world.run(group.close()).unwrap();
    }
    let report = world.run(Group::check(disks as Arc<dyn Disks>)).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    (costs[0], costs[1])
}

fn uuid(number: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Uuid(bytes)
}

fn new_volume(number: u64, kind: VolumeKind, blocks: u64) -> NewVolume {
    let full = if kind == VolumeKind::Thick { FullPolicy::DropSnapshot } else { FullPolicy::Fail };
    NewVolume {
        name: format!("v{number}"),
        uuid: uuid(number),
        kind,
        blocks,
        sector: 512,
        chunk_blocks: 16,
        full,
        attributes: Attributes::default(),
    }
}

/// A cache that holds a part of the maps, as in a large group.
fn config() -> Config {
    Config { cache_bytes: 512 << 10, dirty_bytes: 128 << 10, ..Config::default() }
}

fn new_life(seed: u64) -> (World, Life) {
    let world = World::new(seed);
    let setup = Setup { config: config(), ..Setup::small(1, MIB) };
    let (disks, group) = setup.make(&world).unwrap();
    disks.without_cache();
    let life = world.run(Life::begin(group, disks, seed));
    (world, life)
}

/// The writes whose contents still exist, in their order: number, volume, place and length.
fn lasting_writes(life: &Life) -> Vec<(u64, usize, u64, u64)> {
    let mut writes: Vec<(u64, usize, u64, u64)> = Vec::new();
    for (n, origin) in life.origins.iter().enumerate() {
        for (at, number) in (0..).zip(origin.blocks.iter().copied()) {
            match writes.last_mut() {
                Some((last, volume, start, len)) if (*last, *volume) == (number, n) && *start + *len == at => *len += 1,
                _ => writes.push((number, n, at, 1)),
            }
        }
    }
    writes.retain(|(number, ..)| *number == 0 || *number > life.filled);
    writes.sort_unstable();
    writes
}

/// The cost in a young group with the same volumes and contents, and as many snapshots.
fn young(life: &Life, seed: u64) -> Figures {
    let (world, mut young) = new_life(seed);
    let writes = lasting_writes(life);
    world.run(async {
        let parts = life.snapshots.len();
        for (hour, part) in (0..).zip(writes.chunks(writes.len().div_ceil(parts))) {
            young.snapshot(hour).await.unwrap();
            for (number, origin, at, len) in part.iter().copied() {
                match number {
                    0 => young.discard(origin, at, len).await.unwrap(),
                    _ => young.write(origin, at, len).await.unwrap(),
                }
            }
        }
        let figures = young.measure(parts as u64).await.unwrap();
        print_figures(&young, "young", figures);
        figures
    })
}

fn print_figures(life: &Life, what: &str, figures: Figures) {
    let info = life.group.info();
    let percent = |blocks: u64| blocks as f64 * 100.0 / info.blocks as f64;
    println!(
        "{what}: {:.1} % free ({:.1} % at the least), metadata {:.1} %, {} snapshots, {} counters; commands for a first write {:.2}, \
         a read of 64 KiB {:.2}, an opening {}, a recovery {}",
        percent(info.free_blocks),
        percent(life.least_free.min(info.free_blocks)),
        percent(info.metadata_blocks),
        life.snapshots.len(),
        life.group.max_dead_counters().0,
        figures.write,
        figures.read,
        figures.opening,
        figures.recovery
    );
}

#[test]
fn years_of_snapshots_leave_a_group_fast() {
    let seed = 94;
    let (world, mut life) = new_life(seed);
    let months = (13 * percent() / 100).max(2);
    let old = world.run(async {
        let mut figures = None;
        for hour in 0..months * MONTH {
            let done = async {
                life.hour(hour).await?;
                life.prune(hour).await
            };
            if let Err(what) = done.await {
                panic!("hour {hour}: {what}; {:?}", life.group.info());
            }
            if (hour + 1) % MONTH == 0 {
                let now = life.measure(hour + 1).await.unwrap();
                print_figures(&life, &format!("month {}", (hour + 1) / MONTH), now);
                figures = Some(now);
            }
        }
        figures.unwrap()
    });
    let info = life.group.info();
    assert!(life.least_free > info.blocks / 20, "too little was free for the rule to hold");
    let young = young(&life, seed);
    let figures = [
        ("a first write", old.write, young.write),
        ("a read", old.read, young.read),
        ("an opening", old.opening, young.opening),
        ("a recovery", old.recovery, young.recovery),
    ];
    for (what, old, young) in figures {
        // In a young group a few commands more are a large share.
        if months < 13 {
            continue;
        }
        println!("{what}: {:.2} of a young group's", old / young);
        assert!(old <= MOST * young, "{what} takes {old} commands, in a young group {young}");
    }
}
