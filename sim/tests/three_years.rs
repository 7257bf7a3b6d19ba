//! The effect of three years of hourly snapshots on a group's speed, on modelled disks. Not part of the usual run:
//! `docs/testing.md` has the command and the results.
//!
//! A group is filled to a constant share. Each hour a snapshot is taken, blocks are overwritten at random and in order,
//! and snapshots are pruned to 24 hourly, 30 daily and 12 monthly ones. Each day there are discards, and a filler is
//! made or removed if the fill has changed. The disk's time is virtual and exact, and does not include processor time.
//! So there is no noise.

use rowen_engine::disk::{Disks, PageBuf, PvGeometry};
use rowen_engine::group::{
    Attributes, Config, Group, Layout, NewGroup, NewPv, NewSnapshot, NewVolume, Volume, VolumeKind,
};
use rowen_engine::runtime::Runtime;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::plain_volume;
use rowen_sim::disk::{FLASH, Model, Modelled, ROTATING, SpillDisks, is_metadata};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GROUP: u64 = 4096 * MIB;
const DAY: u64 = 24;
const MONTH: u64 = 30 * DAY;
const YEAR: u64 = 365 * DAY;
/// Blocks of the origin, and of a filler.
const ORIGIN: u64 = 256 * MIB_BLOCKS;
const FILLER: u64 = 64 * MIB_BLOCKS;
const MIB_BLOCKS: u64 = MIB / BLOCK_SIZE;
/// First writes that are measured, and the number in flight.
const COUNTED: usize = 4096;
const TOGETHER: usize = 32;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn model() -> Model {
    match std::env::var("DISK").as_deref() {
        Ok("rotating") => ROTATING,
        Ok("flash") | Err(_) => FLASH,
        Ok(other) => panic!("DISK is flash or rotating, not {other}"),
    }
}

/// The default of a server. `LAYOUT=read` is its default if all disks rotate.
fn config() -> Config {
    let layout = match std::env::var("LAYOUT").as_deref() {
        Ok("read") => Layout::Read,
        Ok("space") | Err(_) => Layout::Space,
        Ok(other) => panic!("LAYOUT is read or space, not {other}"),
    };
    Config { rehome: true, layout, ..Config::default() }
}

struct Life {
    world: World,
    spill: Arc<SpillDisks>,
    group: Arc<Group>,
    origin: VolumeId,
    volume: Arc<Volume>,
    fillers: Vec<VolumeId>,
    /// By the hour in which they were made.
    snapshots: Vec<(u64, VolumeId)>,
    names: u64,
    rng: Rng,
    fill: u64,
    refused: u64,
}

/// The results. Rates in MiB or writes in a second, times in microseconds.
#[derive(Clone, Copy, Debug)]
struct Figures {
    first_pass: u64,
    first_p99: u64,
    in_place: u64,
    in_place_p99: u64,
    large: f64,
    origin_read: f64,
    snapshot_read: f64,
    opening: u64,
}

impl Life {
    fn begin(fill: u64) -> Life {
        let geometry = PvGeometry { size: GROUP, sector: 512 };
        let spill = Arc::new(SpillDisks::new(&std::env::temp_dir(), &[geometry], is_metadata).unwrap());
        let world = World::new(5);
        let pvs = vec![NewPv { uuid: Uuid([1; 16]) }];
        let new =
            NewGroup { uuid: Uuid([0x77; 16]), name: "vg".into(), extent_blocks: 1024, pvs, second_journal: None };
        world.run(Group::create(spill.clone() as Arc<dyn Disks>, new)).unwrap();
        let (group, _) = open(&world, &spill);
        let mut spec = plain_volume("origin", 2, VolumeKind::Thick, ORIGIN);
        spec.chunk_blocks = 16;
        let origin = world.run(group.create_volume(spec)).unwrap();
        let volume = group.volume(origin).unwrap();
        let (fillers, snapshots) = (Vec::new(), Vec::new());
        let rng = Rng::new(fill);
        let mut life =
            Life { world, spill, group, origin, volume, fillers, snapshots, names: 0, rng, fill, refused: 0 };
        life.write_all(&life.volume.clone(), ORIGIN);
        life.keep_fill();
        life
    }

    /// Closes the group and opens it. Returns the time of the disk.
    fn reopen(&mut self) -> u64 {
        self.world.run(async { self.group.close().await.unwrap() });
        self.world = World::new(5);
        let (group, took) = open(&self.world, &self.spill);
        self.volume = group.volume(self.origin).unwrap();
        self.group = group;
        took
    }

    fn used(&self) -> u64 {
        let info = self.group.info();
        (info.blocks - info.free_blocks) * 1000 / info.blocks
    }

    /// Makes and removes fillers until the fill is as requested, to 1.5 % of the group.
    fn keep_fill(&mut self) {
        while self.used() + 15 < self.fill * 10 {
            self.names += 1;
            let spec = NewVolume { uuid: self.uuid(), ..plain_volume(&self.name("f"), 0, VolumeKind::Thin, FILLER) };
            let id = self.world.run(self.group.create_volume(spec)).unwrap();
            self.write_all(&self.group.volume(id).unwrap(), FILLER);
            self.fillers.push(id);
        }
        while self.used() > self.fill * 10 + 15 && !self.fillers.is_empty() {
            let at = self.rng.below(self.fillers.len() as u64) as usize;
            let gone = self.fillers.remove(at);
            self.world.run(self.group.remove(&[gone])).unwrap();
            self.idle();
        }
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}{}", self.names)
    }

    fn uuid(&self) -> Uuid {
        let mut bytes = [9; 16];
        bytes[..8].copy_from_slice(&self.names.to_le_bytes());
        Uuid(bytes)
    }

    fn write_all(&self, volume: &Arc<Volume>, blocks: u64) {
        let places: Vec<u64> = (0..blocks).step_by(MIB_BLOCKS as usize).collect();
        self.writes(volume, &places, MIB_BLOCKS, TOGETHER);
    }

    /// Writes at these blocks, each of `count` blocks, `together` at a time. Returns the time of each, and of all.
    fn writes(&self, volume: &Arc<Volume>, places: &[u64], len: u64, together: usize) -> (Vec<u64>, u64) {
        let clock = self.world.handle();
        let buf = Arc::new(PageBuf::zeroed((len * BLOCK_SIZE) as usize));
        let begun = clock.now();
        let mut took = Vec::new();
        // As many tasks as writes in flight, each with its own places. A task that is done continues at once.
        let tasks: Vec<_> = (0..together.min(places.len()))
            .map(|task| {
                let mine: Vec<u64> = places.iter().copied().skip(task).step_by(together).collect();
                let (volume, buf, clock) = (volume.clone(), buf.clone(), clock.clone());
                let own = clock.clone();
                clock.start("writes", async move {
                    let mut took = Vec::new();
                    for block in mine {
                        let begun = own.now();
                        volume.write(block * BLOCK_SIZE, (len * BLOCK_SIZE) as u32, buf.clone()).await.unwrap();
                        took.push(own.now() - begun);
                    }
                    took
                })
            })
            .collect();
        for task in tasks {
            took.extend(self.world.run(task));
        }
        took.sort_unstable();
        (took, clock.now() - begun)
    }

    /// MiB a second of sequential reads of 1 MiB, four at once.
    fn reads(&self, volume: &Arc<Volume>) -> f64 {
        let clock = self.world.handle();
        let begun = clock.now();
        let count = ORIGIN / MIB_BLOCKS;
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let volume = volume.clone();
                clock.start("reads", async move {
                    for at in (task..count).step_by(4) {
                        volume.read(at * MIB, MIB as u32, PageBuf::zeroed(MIB as usize)).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            self.world.run(task);
        }
        per_second(count, clock.now() - begun)
    }

    fn snapshot(&mut self) -> VolumeId {
        self.names += 1;
        let spec = NewSnapshot {
            origin: self.origin,
            name: self.name("s"),
            uuid: self.uuid(),
            reserve: None,
            read_only: true,
            chunk_blocks: 16,
            attributes: Attributes::default(),
        };
        self.world.run(self.group.snapshot(&[spec])).unwrap()[0]
    }

    /// Waits until all background work has ended.
    fn idle(&self) {
        self.world.run(async {
            self.group.reclaim_idle().await.unwrap();
            while self.group.info().pending_blocks > 0 {
                self.group.checkpoint().await.unwrap();
            }
        });
    }

    /// One hour: a snapshot, pages of a database with their log, random pages.
    fn hour(&mut self, hour: u64) {
        let made = self.snapshot();
        self.snapshots.push((hour, made));
        let hot = ORIGIN / 4;
        let mut places: Vec<u64> = (0..16).map(|_| self.rng.below(hot)).collect();
        places.push(self.rng.below(ORIGIN));
        let volume = self.volume.clone();
        self.writes(&volume, &places, 1, 8);
        let pages: Vec<u64> = (0..8).map(|_| ORIGIN / 2 + self.rng.below(hot / 8) * 2).collect();
        self.writes(&volume, &pages, 2, 8);
        let log: Vec<u64> = (0..8).map(|n| ORIGIN * 3 / 4 + (hour * 8 + n) % (32 * MIB_BLOCKS)).collect();
        self.writes(&volume, &log, 1, 1);
        self.world.run(async { volume.flush().await.unwrap() });
        if hour % DAY == 5 {
            let at = (ORIGIN / MIB_BLOCKS * 7 / 8 + self.rng.below(ORIGIN / MIB_BLOCKS / 8)) * MIB_BLOCKS;
            self.world.run(async { volume.discard(at * BLOCK_SIZE, MIB).await.unwrap() });
            self.writes(&volume, &[at], MIB_BLOCKS, 1);
            let whole = self.rng.below(ORIGIN / MIB_BLOCKS / 4) * MIB_BLOCKS;
            self.writes(&volume, &[whole], MIB_BLOCKS, 1);
        }
        self.prune(hour);
        if hour % DAY == 23 {
            self.idle();
            self.keep_fill();
        }
        // The rest of the hour is idle: work that waits for an idle group has a minute.
        self.world.run(self.world.handle().sleep(Duration::from_secs(60)));
    }

    fn prune(&mut self, now: u64) {
        let is_kept = |made: u64| {
            let age = now - made;
            age < 24 || made % DAY == 0 && age < 30 * DAY || made % MONTH == 0 && age < 12 * MONTH
        };
        let (kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.snapshots).into_iter().partition(|s| is_kept(s.0));
        self.snapshots = kept;
        let gone: Vec<VolumeId> = gone.into_iter().map(|(_, id)| id).collect();
        if !gone.is_empty() {
            self.world.run(self.group.remove(&gone)).unwrap();
        }
        let lost = self.group.any_volume(|volume| volume.state == rowen_engine::group::VolumeState::Invalid);
        self.refused += u64::from(lost);
    }

    fn measure(&mut self, what: &str) -> Figures {
        self.idle();
        let origin_read = self.reads(&self.volume);
        let oldest = self.snapshots.first().map_or(self.origin, |(_, id)| *id);
        let snapshot_read = self.reads(&self.group.volume(oldest).unwrap());
        let free_blocks = self.group.info().free_blocks;
        let own = self.snapshot();
        let volume = self.volume.clone();
        let whole: Vec<u64> = (0..48).map(|n| ORIGIN / 4 + n * MIB_BLOCKS).collect();
        let (_, large) = self.writes(&volume, &whole, MIB_BLOCKS, 4);
        let mut places: Vec<u64> = (0..ORIGIN).collect();
        for n in 0..COUNTED {
            let other = n as u64 + self.rng.below(ORIGIN - n as u64);
            places.swap(n, other as usize);
        }
        places.truncate(COUNTED);
        let (first, first_took) = self.writes(&volume, &places, 1, TOGETHER);
        let (again, again_took) = self.writes(&volume, &places, 1, TOGETHER);
        self.world.run(self.group.remove(&[own])).unwrap();
        self.idle();
        let info = self.group.info();
        let opening = self.reopen();
        let rate = |took: u64| COUNTED as u64 * 1_000_000 / took;
        let p99 = |took: &[u64]| took[took.len() * 99 / 100];
        let figures = Figures {
            first_pass: rate(first_took),
            first_p99: p99(&first),
            in_place: rate(again_took),
            in_place_p99: p99(&again),
            large: per_second(48, large),
            origin_read,
            snapshot_read,
            opening,
        };
        println!(
            "{what}: free {:.1} %, metadata {:.2} %, {} snapshots; {figures:?}",
            free_blocks as f64 * 100.0 / info.blocks as f64,
            info.metadata_blocks as f64 * 100.0 / info.blocks as f64,
            self.snapshots.len(),
        );
        figures
    }
}

/// Rounded to a tenth.
fn per_second(count: u64, micros: u64) -> f64 {
    (count * 10_000_000 / micros) as f64 / 10.0
}

fn open(world: &World, spill: &Arc<SpillDisks>) -> (Arc<Group>, u64) {
    let disk = Modelled::new(spill.clone(), world.handle(), model());
    let begun = world.handle().now();
    let group = world.run(Group::open(disk as Arc<dyn Disks>, world.handle(), config())).unwrap();
    (group, world.handle().now() - begun)
}

#[test]
#[ignore = "a figure"]
fn three_years() {
    let (fill, years) = (number("FILL", 80), number("YEARS", 3));
    let mut life = Life::begin(fill);
    println!("{}, {fill} % full, {:?}", model().name, config().layout);
    // A young group has a snapshot of its own, too, so that only age is measured.
    let fresh = life.measure("fresh");
    let mut last = fresh;
    for hour in 0..years * YEAR {
        life.hour(hour);
        if (hour + 1) % (YEAR / 2) == 0 {
            last = life.measure(&format!("day {}", (hour + 1) / DAY));
        }
    }
    let share = |new: u64, old: u64| new as f64 / old as f64;
    let rate = |new: f64, old: f64| new / old;
    println!(
        "against fresh: first pass {:.2}, in place {:.2}, 1 MiB writes {:.2}, p99 {:.2} and {:.2}, read {:.2} (oldest snapshot {:.2}), \
         opening {:.2}",
        share(last.first_pass, fresh.first_pass),
        share(last.in_place, fresh.in_place),
        rate(last.large, fresh.large),
        share(last.first_p99, fresh.first_p99),
        share(last.in_place_p99, fresh.in_place_p99),
        rate(last.origin_read, fresh.origin_read),
        rate(last.snapshot_read, fresh.snapshot_read),
        share(last.opening, fresh.opening),
    );
    assert_eq!(life.refused, 0, "no snapshot is dropped (L5)");
    life.idle();
    let report = life.world.run(async { life.group.check_open().await.unwrap() });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
