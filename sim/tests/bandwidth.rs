//! What several disks give together, on modelled disks: their time is virtual, so these figures do not depend on the machine.

use parking_lot::Mutex;
use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::group::{Group, SegmentType, StripeLayout, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_engine::units::BLOCK_SIZE;
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{FLASH, Model, Modelled, ROTATING, SimDisks};
use rowen_sim::exec::{Handle, World};
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const VOLUME: u64 = 64 * MIB;

/// A machine with a volume that was written once.
struct Machine {
    world: World,
    group: Arc<Group>,
}

#[derive(Clone, Copy)]
enum Action {
    Read,
    Write,
}

impl Machine {
    /// `shift`: of the stripes.
    fn new(pvs: usize, (segment, shift): (SegmentType, u8), model: Model) -> Machine {
        let setup = Setup { segment, extent_blocks: 256, ..Setup::small(pvs, 120) };
        let world = World::new(3);
        let disks = SimDisks::new(world.handle(), &setup.pvs);
        let disks = Modelled::new(disks, world.handle(), model) as Arc<dyn Disks>;
        let group = world.run(async {
            Group::create(disks.clone(), setup.spec()).await.unwrap();
            let group = Group::open(disks.clone(), world.handle(), setup.config.clone()).await.unwrap();
            let spec = plain_volume("v", 1, VolumeKind::Thick, VOLUME / BLOCK_SIZE);
            let layout = StripeLayout { columns: pvs as u8, shift };
            match segment {
                SegmentType::Linear => group.create_volume(spec).await,
                SegmentType::Raid1 => group.create_mirrored(spec, &[]).await,
                SegmentType::Striped => group.create_striped(spec, layout, &[]).await,
            }
            .unwrap();
            group
        });
        let machine = Machine { world, group };
        machine.micros(Action::Write, MIB, 4, 0);
        machine
    }

    /// The time of as many requests of this size as the volume has, in order or at random, so many at once.
    fn micros(&self, action: Action, size: u64, depth: u64, random: u64) -> u64 {
        let volume = self.group.volume(self.group.volumes()[0].id).unwrap();
        let handle: Arc<Handle> = self.world.handle();
        let begun = handle.now();
        let (count, places) = ((VOLUME / size).min(4096), VOLUME / size);
        let worker = |first: u64| {
            let volume = volume.clone();
            handle.start("requests", async move {
                for number in (first..count).step_by(depth as usize) {
                    let place = if random == 0 { number } else { number.wrapping_mul(random) % places };
                    let (at, len) = (place * size, size as u32);
                    match action {
                        Action::Read => drop(volume.read(at, len, PageBuf::zeroed(size as usize)).await.unwrap()),
                        Action::Write => volume.write(at, len, Arc::new(PageBuf::zeroed(size as usize))).await.unwrap(),
                    }
                }
            })
        };
        let workers: Vec<_> = (0..depth).map(worker).collect();
        self.world.run(async {
            for worker in workers {
                worker.await;
            }
        });
        handle.now() - begun
    }
}

/// How many times faster two disks are than one.
fn ratio(layout: (SegmentType, u8), model: Model, (action, size, depth, random): (Action, u64, u64, u64)) -> f64 {
    let time = |pvs, layout| Machine::new(pvs, layout, model).micros(action, size, depth, random) as f64;
    let ratio = time(1, (SegmentType::Linear, 0)) / time(2, layout);
    println!("{}, {layout:?}, requests of {} KiB, {depth} at once: {ratio:.2}", model.name, size >> 10);
    ratio
}

#[test]
fn two_disks_carry_a_striped_volume_together() {
    // Each stripe is a command of its own. On a rotating disk that costs as much as 18 KiB more, so it needs larger ones.
    for (model, shift, depth) in [(FLASH, 4, 4), (ROTATING, 7, 1)] {
        for action in [Action::Read, Action::Write] {
            let ratio = ratio((SegmentType::Striped, shift), model, (action, MIB, depth, 0));
            assert!(ratio >= 1.8, "{}: {ratio}", model.name);
        }
    }
}

#[test]
fn two_disks_read_a_mirror_together() {
    let ratio = ratio((SegmentType::Raid1, 0), ROTATING, (Action::Read, 4096, 32, 2_654_435_761));
    assert!(ratio >= 1.8, "{ratio}");
}

/// Work in the background.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// A second leg is filled.
    Fill,
    /// Legs are compared.
    Scrub,
}

impl Work {
    fn goes_on(self, group: &Group) -> bool {
        match self {
            Work::Fill => group.mirror_info().unsynced > 0,
            Work::Scrub => group.is_scrubbing(),
        }
    }
}

impl Machine {
    /// Two disks, and work that has begun when this returns.
    fn working(work: Work, model: Model) -> Machine {
        let segment = if matches!(work, Work::Fill) { SegmentType::Linear } else { SegmentType::Raid1 };
        let machine = Machine::new(2, (segment, 0), model);
        let id = machine.group.volumes()[0].id;
        match work {
            Work::Fill => machine.world.run(machine.group.convert_to_mirror(id, &[])),
            Work::Scrub => machine.group.start_scrub(id, false),
        }
        .unwrap();
        assert!(work.goes_on(&machine.group), "{}, {work:?}: it has ended already", model.name);
        machine
    }

    /// The time until the work has ended.
    fn micros_of(&self, work: Work) -> u64 {
        let handle = self.world.handle();
        let begun = handle.now();
        while work.goes_on(&self.group) {
            self.world.run(handle.sleep(Duration::from_millis(1)));
        }
        handle.now() - begun
    }

    /// The 99th percentile of the time of random 4 KiB writes, 32 at once, until the work has ended, of so many at least.
    fn p99(&self, work: Work, least: usize) -> u64 {
        let volume = self.group.volume(self.group.volumes()[0].id).unwrap();
        let handle: Arc<Handle> = self.world.handle();
        let times: Arc<Mutex<Vec<u64>>> = Arc::default();
        let worker = |seed: u64| {
            let (volume, group, clock, times) = (volume.clone(), self.group.clone(), handle.clone(), times.clone());
            handle.start("requests", async move {
                let mut rng = Rng::new(seed);
                for number in 0.. {
                    if number % 64 == 0 && times.lock().len() >= least && !work.goes_on(&group) {
                        break;
                    }
                    let (at, begun) = (rng.below(VOLUME / BLOCK_SIZE) * BLOCK_SIZE, clock.now());
                    let buf = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
                    volume.write(at, BLOCK_SIZE as u32, buf).await.unwrap();
                    times.lock().push(clock.now() - begun);
                }
            })
        };
        let workers: Vec<_> = (0..32).map(worker).collect();
        self.world.run(async {
            for worker in workers {
                worker.await;
            }
        });
        let mut times = std::mem::take(&mut *times.lock());
        times.sort_unstable();
        times[times.len() * 99 / 100]
    }
}

#[test]
fn background_work_is_nearly_as_fast_as_a_disk_is_read() {
    for model in [FLASH, ROTATING] {
        // A rotating disk reads in order if it gets one request at a time.
        let depth = if model.seek > 0 { 1 } else { 4 };
        let read = Machine::new(2, (SegmentType::Linear, 0), model).micros(Action::Read, MIB, depth, 0) as f64;
        for (work, least) in [(Work::Fill, 0.8), (Work::Scrub, 0.9)] {
            let ratio = read / Machine::working(work, model).micros_of(work) as f64;
            println!("{}, {work:?}: {ratio:.2} of the rate of reading", model.name);
            assert!(ratio >= least, "{}, {work:?}: {ratio}", model.name);
        }
    }
}

#[test]
fn requests_hardly_wait_for_background_work() {
    for work in [Work::Fill, Work::Scrub] {
        let machine = Machine::working(work, FLASH);
        let begun = machine.world.handle().now();
        let meanwhile = machine.p99(work, 1000);
        let micros = machine.world.handle().now() - begun;
        let ratio = meanwhile as f64 / machine.p99(work, 20_000) as f64;
        let rate = VOLUME / micros;
        println!("{work:?} at {rate} MB/s: p99 of 4 KiB writes, 32 at once, meanwhile / afterwards: {ratio:.2}");
        assert!(ratio <= 1.5, "{work:?}: {ratio}");
    }
}
