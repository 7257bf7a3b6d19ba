//! What several disks give together, on modelled disks: their time is virtual, so these figures do not depend on the machine.

use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::group::{Group, SegmentType, StripeLayout, VolumeKind};
use rowen_engine::units::BLOCK_SIZE;
use rowen_sim::crash::{Setup, plain_volume};
use rowen_sim::disk::{FLASH, Model, Modelled, ROTATING, SimDisks};
use rowen_sim::exec::{Handle, World};
use std::sync::Arc;

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
