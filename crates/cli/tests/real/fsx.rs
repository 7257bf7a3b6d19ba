//! Random I/O through the devices against a model in memory: writes, reads, flushes, discards and zeroes of any aligned
//! range. It goes to a volume and to writable snapshots of it. Meanwhile snapshots are made and removed, the volume is
//! extended and reverted, and its server is killed. `ROWEN_FSX_SEED` and `ROWEN_FSX_STEPS` choose another run.

use crate::world::{MIB, Random, World};
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

const SECTOR: u64 = 512;
const SIZE: u64 = 16 * MIB;
const LONGEST: u64 = 256 << 10;
const MAX_SNAPSHOTS: usize = 5;

struct Volume {
    name: String,
    file: Option<File>,
    model: Vec<u8>,
}

impl Volume {
    fn new(name: &str, model: Vec<u8>) -> Volume {
        Volume { name: name.to_owned(), file: None, model }
    }

    /// The device, past the page cache. Opened when needed: commands refuse to touch what is open.
    fn file(&mut self, world: &World, trace: &str) -> &File {
        let node = world.node(&self.name);
        self.file.get_or_insert_with(|| {
            let direct = OFlags::DIRECT.bits() as i32;
            let opened = File::options().read(true).write(true).custom_flags(direct).open(&node);
            opened.unwrap_or_else(|e| {
                panic!("{trace}: {}: {e}; {}", node.display(), world.ok("lvs -o name,origin,attr VG"))
            })
        })
    }
}

/// A buffer as direct I/O wants it.
struct Aligned {
    space: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let space = vec![0; len + 4096];
        let start = space.as_ptr().align_offset(4096);
        Aligned { space, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.space[self.start..self.start + self.len]
    }
}

struct Run {
    /// Before the world: what is open keeps it from being removed.
    volumes: Vec<Volume>,
    world: World,
    random: Random,
    made: u32,
    trace: String,
}

impl Run {
    fn range(&mut self, at: usize) -> (u64, u64) {
        let sectors = self.volumes[at].model.len() as u64 / SECTOR;
        let most = (LONGEST / SECTOR).min(sectors);
        let len = if self.random.below(4) == 0 { 1 + self.random.below(most) } else { 1 + self.random.below(32) };
        let from = self.random.below(sectors - len + 1);
        (from * SECTOR, len * SECTOR)
    }

    fn compare(&mut self, at: usize, from: u64, len: u64) {
        let mut found = Aligned::new(len as usize);
        let volume = &mut self.volumes[at];
        volume.file(&self.world, &self.trace).read_exact_at(found.bytes(), from).unwrap();
        let expected = &volume.model[from as usize..(from + len) as usize];
        if let Some(bad) = expected.iter().zip(found.bytes().iter()).position(|(a, b)| a != b) {
            let (name, place) = (&volume.name, from + bad as u64);
            panic!(
                "{}: {name} differs at byte {place}: {:#x} is not {:#x}",
                self.trace,
                found.bytes()[bad],
                expected[bad]
            );
        }
    }

    fn step(&mut self) {
        let at = self.random.below(self.volumes.len() as u64) as usize;
        let (from, len) = self.range(at);
        let place = from as usize..(from + len) as usize;
        match self.random.below(1000) {
            0..550 => {
                let bytes = self.random.bytes(len as usize);
                let mut buffer = Aligned::new(len as usize);
                buffer.bytes().copy_from_slice(&bytes);
                let volume = &mut self.volumes[at];
                volume.file(&self.world, &self.trace).write_all_at(buffer.bytes(), from).unwrap();
                volume.model[place].copy_from_slice(&bytes);
            }
            550..850 => self.compare(at, from, len),
            850..910 => {
                let volume = &mut self.volumes[at];
                let discards = len % 1024 == 0;
                let how = if discards { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
                rustix::fs::fallocate(
                    volume.file(&self.world, &self.trace),
                    how | FallocateFlags::KEEP_SIZE,
                    from,
                    len,
                )
                .unwrap();
                volume.model[place].fill(0);
            }
            910..970 => self.volumes[at].file(&self.world, &self.trace).sync_all().unwrap(),
            970..980 if self.volumes.len() <= MAX_SNAPSHOTS => self.snapshot(at),
            980..987 if at > 0 => {
                let mut gone = self.volumes.remove(at);
                drop(gone.file.take());
                self.world.ok(&format!("lvremove -f VG/{}", gone.name));
            }
            987..991 if at > 0 && self.volumes[0].model.len() == self.volumes[at].model.len() => self.revert(at),
            991..993 if self.volumes[0].model.len() as u64 <= 2 * SIZE => {
                self.world.ok("lvextend -L +4M VG/data");
                self.volumes.iter_mut().for_each(|volume| volume.file = None);
                let longer = self.volumes[0].model.len() + 4 * MIB as usize;
                self.volumes[0].model.resize(longer, 0);
            }
            993..995 => {
                // A server that has served for a while is replaced at once, one that has not is taken for broken.
                std::thread::sleep(Duration::from_millis(600));
                let pid = self.world.server().and_then(rustix::process::Pid::from_raw).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
            _ => self.compare(at, from, len),
        }
    }

    fn snapshot(&mut self, at: usize) {
        self.made += 1;
        let (name, origin) = (format!("s{}", self.made), self.volumes[at].name.clone());
        self.world.ok(&format!("lvcreate -s -kn -n {name} VG/{origin}"));
        let model = self.volumes[at].model.clone();
        self.volumes.push(Volume::new(&name, model));
    }

    fn revert(&mut self, to: usize) {
        self.volumes.iter_mut().for_each(|volume| volume.file = None);
        let name = self.volumes[to].name.clone();
        self.world.ok(&format!("revert -y VG/data {name}"));
        self.volumes[0].model = self.volumes[to].model.clone();
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn what_is_read_is_what_was_written() {
    let steps = setting("ROWEN_FSX_STEPS", 6000);
    let seeds = match setting("ROWEN_FSX_SEED", 0) {
        0 => 1..=3,
        seed => seed..=seed,
    };
    for seed in seeds {
        let world = World::new(&format!("fsx{seed}n"), 512);
        world.ok("lvcreate -L 16M -n data VG");
        let volumes = vec![Volume::new("data", vec![0; SIZE as usize])];
        let mut run = Run { world, random: Random(seed), volumes, made: 0, trace: String::new() };
        for step in 0..steps {
            run.trace = format!("ROWEN_FSX_SEED={seed} ROWEN_FSX_STEPS={steps}, step {step}");
            run.step();
        }
        for at in 0..run.volumes.len() {
            let len = run.volumes[at].model.len() as u64;
            run.compare(at, 0, len);
        }
        run.volumes.iter_mut().for_each(|volume| volume.file = None);
        run.world.ok("check VG");
        assert!(run.made > 5, "seed {seed} made {} snapshots only", run.made);
        // Nothing of it may depend on what a server has in memory.
        run.world.ok("stop VG");
        run.world.ok("check VG");
        run.world.ok("vgchange -ay VG");
        for at in 0..run.volumes.len() {
            let len = run.volumes[at].model.len() as u64;
            run.compare(at, 0, len);
        }
        run.volumes.clear();
    }
}
