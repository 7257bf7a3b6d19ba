//! Figures of a group of 10 TiB on a modelled flash disk: the time of an opening, and how long a write waits during
//! background work. Not part of the usual run: `docs/testing.md` has the commands and the results.
//!
//! The disk's time is virtual and exact, and does not include processor time. For an opening, the processor's time is
//! printed separately, to 4 ms. For writes, only the disk's time is printed: their waiting, not their cost.

use parking_lot::Mutex;
use rowen_engine::disk::{Disks, PageBuf, PvGeometry};
use rowen_engine::group::{Attributes, Config, Group, NewGroup, NewPv, NewSnapshot, NewVolume, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::plain_volume;
use rowen_sim::disk::{FLASH, Modelled, SpillDisks, is_metadata};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const TIB: u64 = 1 << 40;
/// Nanoseconds of processor time of this thread.
fn processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn spec(name: &str, kind: VolumeKind, blocks: u64) -> NewVolume {
    plain_volume(name, name.len() as u8, kind, blocks)
}

fn snapshot(origin: VolumeId, name: &str) -> NewSnapshot {
    NewSnapshot {
        origin,
        name: name.into(),
        uuid: Uuid([name.len() as u8 + 100; 16]),
        reserve: None,
        read_only: false,
        chunk_blocks: 1,
        attributes: Attributes::default(),
    }
}

/// A machine with the group open.
struct Machine {
    world: World,
    group: Arc<Group>,
}

impl Machine {
    /// Opens the group in a world of its own, and returns the time that it took.
    fn open(spill: &Arc<SpillDisks>, what: &str) -> Machine {
        let world = World::new(7);
        let disk = Modelled::new(spill.clone(), world.handle(), FLASH);
        let (begun, cpu) = (world.handle().now(), processor());
        let config = Config { rehome: false, ..Config::default() };
        let group = world.run(Group::open(disk.clone() as Arc<dyn Disks>, world.handle(), config)).unwrap();
        let (took, cpu) = (world.handle().now() - begun, processor() - cpu);
        let (counts, stats) = (disk.counts(), group.stats());
        println!(
            "{what}: {} ms of the disk, {} ms of the processor; {} reads of {} KiB, {} writes of {} KiB, {} flushes; \
             {} records applied, {} left out",
            took / 1000,
            cpu / 1_000_000,
            counts.reads,
            counts.read_bytes >> 10,
            counts.writes,
            counts.written_bytes >> 10,
            counts.flushes,
            stats.recovered,
            stats.recovery_skipped
        );
        Machine { world, group }
    }

    /// This many writes of single blocks at random below `limit`, many at a time, with a flush now and then.
    fn scatter(&self, id: VolumeId, count: u64, limit: u64, seed: u64) {
        let volume = self.group.volume(id).unwrap();
        let buf = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
        let mut rng = Rng::new(seed);
        for _ in 0..count / 64 {
            let blocks: Vec<u64> = (0..64).map(|_| rng.below(limit)).collect();
            self.world.run(async {
                let start = |block: u64| {
                    let (volume, buf) = (volume.clone(), buf.clone());
                    self.world
                        .handle()
                        .start("write", async move { volume.write(block * BLOCK_SIZE, BLOCK_SIZE as u32, buf).await })
                };
                let started: Vec<_> = blocks.into_iter().map(start).collect();
                for write in started {
                    write.await.unwrap();
                }
                volume.flush().await.unwrap();
            });
        }
    }
}

/// A group of 10 TiB, of which a thick volume has 80 %. A snapshot, `FIRST` random writes in the volume, a second
/// snapshot, `WRITES` writes, and the first snapshot is removed. So a part of the volume, and of the free space, is in
/// single blocks. The second snapshot has about `WRITES` extents of its own.
fn aged() -> (Arc<SpillDisks>, Machine, VolumeId) {
    let second = number("WRITES", 150_000);
    let writes = number("FIRST", second);
    let geometry = PvGeometry { size: 10 * TIB, sector: 512 };
    let spill = Arc::new(SpillDisks::new(&std::env::temp_dir(), &[geometry], is_metadata).unwrap());
    let pvs = vec![NewPv { uuid: Uuid([1; 16]) }];
    let new = NewGroup { uuid: Uuid([0x77; 16]), name: "vg".into(), extent_blocks: 1024, pvs, second_journal: None };
    World::new(6).run(Group::create(spill.clone() as Arc<dyn Disks>, new)).unwrap();
    let machine = Machine::open(&spill, "a new group");
    let blocks = 8 * TIB / BLOCK_SIZE;
    let (group, world) = (machine.group.clone(), &machine.world);
    let volume = world.run(async {
        let volume = group.create_volume(spec("data", VolumeKind::Thick, blocks)).await.unwrap();
        group.create_volume(spec("other", VolumeKind::Thin, 1 << 20)).await.unwrap();
        group.snapshot(&[snapshot(volume, "first")]).await.unwrap();
        volume
    });
    machine.scatter(volume, writes, blocks, 1);
    world.run(async { group.snapshot(&[snapshot(volume, "second")]).await.unwrap() });
    machine.scatter(volume, second, blocks, 2);
    let first = id_of(&group, "first");
    world.run(async {
        group.remove(&[first]).await.unwrap();
        group.reclaim_idle().await.unwrap();
    });
    println!("{writes} and {second} writes: {:?}", group.stats());
    (spill, machine, volume)
}

fn id_of(group: &Group, name: &str) -> VolumeId {
    group.volumes().iter().find(|info| info.name == name).unwrap().id
}

/// Opening after a kill, while the blocks of a removed snapshot, each a run of its own, wait for the checkpoint that
/// makes them usable.
#[test]
#[ignore = "a figure"]
fn opening_with_frees() {
    let asked = number("PENDING", 64 << 10);
    let (spill, machine, _) = aged();
    let (group, clock) = (machine.group.clone(), machine.world.handle());
    machine.world.run(async {
        group.remove(&[id_of(&group, "second")]).await.unwrap();
        while group.info().pending_blocks < asked {
            clock.sleep(Duration::from_micros(50)).await;
        }
    });
    println!("{} blocks wait", group.info().pending_blocks);
    drop((machine, group));
    let machine = Machine::open(&spill, "10 TiB, 80 % full, killed while frees wait");
    let report = machine.world.run(async { machine.group.check_open().await.unwrap() });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Opening after a kill in the middle of writes, and after an orderly end.
#[test]
#[ignore = "a figure"]
fn opening() {
    let (spill, machine, volume) = aged();
    machine.scatter(volume, 20_000, 8 * TIB / BLOCK_SIZE, 3);
    drop(machine);
    let machine = Machine::open(&spill, "10 TiB, 80 % full, killed while it was written to");
    machine.world.run(async { machine.group.close().await.unwrap() });
    drop(machine);
    let machine = Machine::open(&spill, "after an orderly end");
    let report = machine.world.run(async { machine.group.check_open().await.unwrap() });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Writes to the other volume, one at a time, until `work` is done, or a thousand. Returns the duration of each in
/// microseconds, and the number of writes during the work.
fn writes_during(machine: &Machine, work: impl Future<Output = ()> + Send + 'static) -> (Vec<u64>, usize) {
    let clock = machine.world.handle();
    let is_done = Arc::new(Mutex::new(false));
    let (group, done) = (machine.group.clone(), is_done.clone());
    let volume = group.volume(id_of(&group, "other")).unwrap();
    let working = clock.start("work", async move {
        work.await;
        *done.lock() = true;
    });
    let buf = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
    let mut rng = Rng::new(8);
    let (mut took, mut beside) = (Vec::new(), 0);
    while !*is_done.lock() || took.len() < 1000 {
        let begun = clock.now();
        let block = rng.below(1 << 20);
        machine.world.run(async { volume.write(block * BLOCK_SIZE, BLOCK_SIZE as u32, buf.clone()).await.unwrap() });
        took.push(clock.now() - begun);
        beside += usize::from(!*is_done.lock());
        machine.world.run(clock.sleep(Duration::from_micros(100)));
    }
    machine.world.run(working);
    took.sort_unstable();
    (took, beside)
}

fn tell(what: &str, (took, beside): &(Vec<u64>, usize)) {
    let at = |share: usize| took[(took.len() - 1) * share / 1000];
    println!(
        "{what}: {} writes, {beside} beside it; median {} µs, p99 {} µs, longest {} µs",
        took.len(),
        at(500),
        at(990),
        at(1000)
    );
}

/// The longest write during each kind of background work.
#[test]
#[ignore = "a figure"]
fn writes_during_work() {
    let (spill, machine, volume) = aged();
    let blocks = 8 * TIB / BLOCK_SIZE;
    tell("nothing else", &writes_during(&machine, async {}));
    let group = machine.group.clone();
    machine.world.run(async { group.snapshot(&[snapshot(id_of(&group, "other"), "ofother")]).await.unwrap() });
    tell("after a snapshot", &writes_during(&machine, async {}));

    machine.scatter(volume, 30_000, blocks, 9);
    let beside = group.clone();
    tell("a checkpoint", &writes_during(&machine, async move { beside.checkpoint().await.unwrap() }));

    let beside = group.clone();
    let second = id_of(&group, "second");
    let removal = async move {
        beside.remove(&[second]).await.unwrap();
        beside.reclaim_idle().await.unwrap();
        while beside.info().pending_blocks > 0 {
            beside.checkpoint().await.unwrap();
        }
    };
    tell("a removal, and making usable what it frees", &writes_during(&machine, removal));

    let beside = group.clone();
    let check = async move {
        let report = beside.check_open().await.unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    };
    tell("a check", &writes_during(&machine, check));
    println!("{:?}", group.stats());
    drop((machine, group));
    drop(spill);
}

/// A whole list of changes, and its cost.
fn listed(machine: &Machine, disk: &Modelled, [old, new]: [&str; 2], what: &str) -> u64 {
    let group = machine.group.clone();
    let compared = group.compare(Some(id_of(&group, old)), id_of(&group, new)).unwrap();
    let (begun, cpu, reads) = (machine.world.handle().now(), processor(), disk.counts().reads);
    let blocks = machine.world.run(async {
        let (mut next, mut blocks) = (Some(0), 0);
        while let Some(at) = next {
            let part = group.changed(&compared, at, 64 << 10).await.unwrap();
            blocks += part.ranges.iter().map(|range| range.blocks).sum::<u64>();
            next = part.next;
        }
        blocks
    });
    println!(
        "{what}: {blocks} blocks; {} ms of the disk, {} ms of the processor, {} reads",
        (machine.world.handle().now() - begun) / 1000,
        (processor() - cpu) / 1_000_000,
        disk.counts().reads - reads
    );
    blocks
}

/// Lists of changes of a volume of 1 TiB, of which `CHANGES` single blocks at random were written since a snapshot.
#[test]
#[ignore = "a figure"]
fn lists_of_changes() {
    let changes = number("CHANGES", 2_700_000);
    let geometry = PvGeometry { size: 2 * TIB, sector: 512 };
    let spill = Arc::new(SpillDisks::new(&std::env::temp_dir(), &[geometry], is_metadata).unwrap());
    let pvs = vec![NewPv { uuid: Uuid([1; 16]) }];
    let new = NewGroup { uuid: Uuid([0x77; 16]), name: "vg".into(), extent_blocks: 1024, pvs, second_journal: None };
    World::new(6).run(Group::create(spill.clone() as Arc<dyn Disks>, new)).unwrap();
    let machine = Machine::open(&spill, "a new group");
    let blocks = TIB / BLOCK_SIZE;
    let group = machine.group.clone();
    let volume = machine.world.run(async {
        let volume = group.create_volume(spec("data", VolumeKind::Thick, blocks)).await.unwrap();
        group.snapshot(&[snapshot(volume, "monday")]).await.unwrap();
        volume
    });
    machine.scatter(volume, changes, blocks, 1);
    machine.world.run(async {
        group.snapshot(&[snapshot(volume, "tuesday")]).await.unwrap();
        group.snapshot(&[snapshot(volume, "wednesday")]).await.unwrap();
        group.close().await.unwrap();
    });
    drop((machine, group));
    for cache_mib in [128, 1024] {
        let world = World::new(7);
        let disk = Modelled::new(spill.clone(), world.handle(), FLASH);
        let config = Config { rehome: false, cache_bytes: cache_mib << 20, ..Config::default() };
        let group = world.run(Group::open(disk.clone() as Arc<dyn Disks>, world.handle(), config)).unwrap();
        let machine = Machine { world, group };
        println!("a cache of {cache_mib} MiB");
        let days = ["monday", "tuesday", "wednesday"];
        assert_eq!(listed(&machine, &disk, [days[1], days[2]], "nothing changed"), 0);
        let cold = listed(&machine, &disk, [days[0], days[1]], "cold");
        assert!(cold > changes * 9 / 10 && cold <= changes);
        assert_eq!(listed(&machine, &disk, [days[0], days[1]], "again"), cold);
        assert_eq!(listed(&machine, &disk, [days[1], days[0]], "the other way round"), cold);
        machine.world.run(async { machine.group.close().await.unwrap() });
    }
}
