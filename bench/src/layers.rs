//! Through the block device of a real server, against the disk below it, and against the kernel's own loop device on
//! such a disk: what is lost between /dev/VG/LV and the disk.

use crate::commands::World;
use crate::device::{open, output_of, shown};
use crate::load::{self, Action, Job, Limit, Order, Raw};
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, MIB, Result, Scratch, WIDE, text};
use rowen_host::disks::PvSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a removed snapshot may take to give its space back.
const GIVEN_BACK: Duration = Duration::from_secs(120);
/// The space is back when what is free has not changed for so long.
const QUIET: Duration = Duration::from_secs(1);

type Disk = Arc<Raw<PvSet>>;

/// The kernel's loop device over a file. Dropped, it goes.
struct KernelLoop(PathBuf);

impl KernelLoop {
    fn over(file: &Scratch) -> Result<KernelLoop> {
        output_of("losetup", &["--direct-io=on", "--show", "-f", shown(&file.path)?])
            .map(|node| KernelLoop(node.into()))
    }
}

impl Drop for KernelLoop {
    fn drop(&mut self) {
        // Nothing could be done about it here.
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// A load, and what part of the raw disk's speed is asked for.
struct Load {
    what: &'static str,
    action: Action,
    order: Order,
    block: u32,
    depth: u32,
    /// Requests of one round.
    requests: u64,
    /// Rowen of raw, Rowen of the kernel's loop device, and the latter of raw.
    names: [&'static str; 3],
    asked: f64,
    /// Writes: the same for the first pass after a snapshot.
    first_pass: Option<(&'static str, f64)>,
}

#[rustfmt::skip]
const LOADS: [Load; 7] = [
    Load {
        what: "4 KiB random write QD32", action: Action::Write, order: Order::Shuffled, block: 4096, depth: DEEP, requests: 60_000,
        names: ["layers_write_qd32", "layers_write_qd32_loop", "loop_write_qd32"], asked: 0.90,
        first_pass: Some(("layers_first_pass_qd32", 0.85)),
    },
    Load {
        what: "4 KiB random read QD32", action: Action::Read, order: Order::Shuffled, block: 4096, depth: DEEP, requests: 60_000,
        names: ["layers_read_qd32", "layers_read_qd32_loop", "loop_read_qd32"], asked: 0.88, first_pass: None,
    },
    Load {
        what: "8 KiB random write QD1", action: Action::Write, order: Order::Shuffled, block: 8192, depth: 1, requests: 10_000,
        names: ["layers_write_qd1", "layers_write_qd1_loop", "loop_write_qd1"], asked: 0.88,
        first_pass: Some(("layers_first_pass_qd1", 0.80)),
    },
    Load {
        what: "1 MiB sequential write QD4", action: Action::Write, order: Order::Sequential, block: MIB as u32, depth: WIDE,
        requests: 4_000, names: ["layers_write_1m", "layers_write_1m_loop", "loop_write_1m"], asked: 0.85,
        first_pass: Some(("layers_first_pass_1m", 0.80)),
    },
    Load {
        what: "1 MiB sequential read QD4", action: Action::Read, order: Order::Sequential, block: MIB as u32, depth: WIDE,
        requests: 2_000, names: ["layers_read_1m", "layers_read_1m_loop", "loop_read_1m"], asked: 0.95, first_pass: None,
    },
    Load {
        what: "4 KiB write + flush QD1", action: Action::WriteAndFlush, order: Order::Shuffled, block: 4096, depth: 1, requests: 4_000,
        names: ["layers_flush", "layers_flush_loop", "loop_flush"], asked: 0.85, first_pass: None,
    },
    Load {
        what: "16 KiB random, 70 % reads, QD8", action: Action::Mixed, order: Order::Shuffled, block: 16384, depth: 8,
        requests: 20_000, names: ["layers_mixed", "layers_mixed_loop", "loop_mixed"], asked: 0.90, first_pass: None,
    },
];

impl Load {
    /// The requests of a round: a pass, or a part of one. A sequential load goes around.
    fn job(&self, span: u64, seed: u64) -> Job {
        let mut job = Job::pass(self.action, self.order, self.block, self.depth, span, seed);
        let pass = job.limit.requests;
        job.limit.requests = if self.order == Order::Sequential { self.requests } else { self.requests.min(pass) };
        job
    }
}

/// What is compared.
struct Layers<'a> {
    bench: &'a Bench,
    world: World<'a>,
    ours: Disk,
    raw: Disk,
    kernel: Disk,
}

/// Loads through `/dev/VG/LV`, through the kernel's loop device and on the raw disk, in turn.
pub fn through(bench: &Bench) -> Result {
    let span = bench.settings.span;
    let raw_file = bench.written("raw", span)?;
    let loop_file = bench.written("loop", span)?;
    let pv = bench.written("pv", 2 * span + 512 * MIB)?;
    let world = World::new(bench, "layers")?;
    world.run(&["vgcreate", "-y", &world.group, shown(&pv.path)?])?;
    world.run(&["lvcreate", "-y", "-L", &format!("{}M", span / MIB), "-n", "lv", &world.group])?;
    let kernel = KernelLoop::over(&loop_file)?;
    let ours = open(bench, &world.node("lv"))?;
    let layers = Layers { bench, raw: bench.raw(&raw_file)?, kernel: open(bench, &kernel.0)?, ours, world };
    bench.fill(&layers.ours, span)?;
    let outcome = layers.all(span);
    let Layers { world, ours, raw, kernel: opened, .. } = layers;
    drop((ours, raw, opened));
    // Closing a disk notifies the workers, which release it in their next turn.
    bench.block_on(async {});
    std::thread::sleep(Duration::from_millis(50));
    drop(kernel);
    outcome?;
    world.run(&["vgremove", "-f", &world.group]).map_err(text)
}

impl Layers<'_> {
    fn all(&self, span: u64) -> Result {
        let (bench, rounds) = (self.bench, self.bench.settings.rounds);
        for (n, load) in LOADS.iter().enumerate() {
            let what = load.what;
            let row = |name, what: String, asked| Row::ratio(name, what, asked, "kIOPS");
            let mut of_raw = row(load.names[0], format!("/dev/VG/LV: {what} / raw"), Asked::AtLeast(load.asked));
            let mut of_loop =
                row(load.names[1], format!("  the same / the kernel's loop device: {what}"), Asked::AtLeast(1.0));
            let mut bound = row(load.names[2], format!("  the kernel's loop device / raw: {what}"), Asked::Nothing);
            let mut first = load.first_pass.map(|(name, asked)| {
                row(name, format!("/dev/VG/LV: {what}, first pass after a snapshot / raw"), Asked::AtLeast(asked))
            });
            for round in 0..rounds {
                bench.step("through block devices", (n * rounds + round) as f64 / (LOADS.len() * rounds) as f64);
                let job = load.job(span, round as u64 * 100 + 3);
                self.compare(&mut of_raw, &self.ours, &self.raw, &job)?;
                self.compare(&mut of_loop, &self.ours, &self.kernel, &job)?;
                self.compare(&mut bound, &self.kernel, &self.raw, &job)?;
                if let Some(first) = &mut first {
                    // A sequential load that goes around would come back to what it has written.
                    let requests = job.limit.requests.min(span / u64::from(job.block));
                    let mut job = Job { seed: job.seed + 50, ..job };
                    job.limit.requests = requests;
                    self.with_snapshot(|| self.compare(first, &self.ours, &self.raw, &job))?;
                }
            }
            bench.add(of_raw);
            bench.add(of_loop);
            bench.add(bound);
            first.into_iter().for_each(|row| bench.add(row));
        }
        self.side_by_side(span)
    }

    /// A round of a row: the same load on both, in turn.
    fn compare(&self, row: &mut Row, ours: &Disk, other: &Disk, job: &Job) -> Result {
        let (ours, other) = self.bench.in_turn(4, (ours, job), (other, job))?;
        row.add(ours.kiops(), other.kiops());
        Ok(())
    }

    /// Does something while a new snapshot is held, removes it, and waits until its space is free.
    fn with_snapshot(&self, body: impl FnOnce() -> Result) -> Result {
        let (world, group) = (&self.world, &self.world.group);
        world.run(&["lvcreate", "-y", "-s", "-n", "point", &format!("{group}/lv")])?;
        body()?;
        world.run(&["lvremove", "-y", &format!("{group}/point")])?;
        let free = || world.say(&["vgs", "--noheadings", "-o", "vg_free_count", group]);
        let begun = Instant::now();
        let (mut last, mut since) = (free()?, Instant::now());
        while since.elapsed() < QUIET {
            if begun.elapsed() > GIVEN_BACK {
                return Err("the space of a removed snapshot does not come back".to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
            let now = free()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Four volumes at once against one with as many requests in flight.
    fn side_by_side(&self, span: u64) -> Result {
        const VOLUMES: u64 = 4;
        let (bench, world, pool) = (self.bench, &self.world, &self.bench.pool);
        let part = span / VOLUMES / (4 * MIB) * (4 * MIB);
        let mut several = Vec::new();
        for n in 0..VOLUMES {
            let name = format!("part{n}");
            world.run(&["lvcreate", "-y", "-L", &format!("{}M", part / MIB), "-n", &name, &world.group])?;
            let disk = open(bench, &world.node(&name))?;
            bench.fill(&disk, part)?;
            several.push(disk);
        }
        let what = "/dev/VG/LV: 4 KiB random write on 4 volumes at once, QD8 each / on one, QD32";
        let mut row = Row::ratio("layers_four", what, Asked::AtLeast(1.0), "kIOPS");
        for round in 0..bench.settings.rounds {
            let seed = round as u64 + 900;
            let mut together = Job::pass(Action::Write, Order::Random, 4096, DEEP / VOLUMES as u32, part, seed);
            let mut alone = Job::pass(Action::Write, Order::Random, 4096, DEEP, span, seed);
            (together.limit, alone.limit) = (Limit::time(bench.settings.slice()), Limit::time(bench.settings.slice()));
            let (mut four, mut one) = (0.0, 0.0);
            for _ in 0..4 {
                let reports = std::thread::scope(|scope| {
                    let run = |disk| scope.spawn(move || load::run(pool, disk, &together));
                    let running: Vec<_> = several.iter().map(run).collect();
                    running
                        .into_iter()
                        .map(|run| run.join().map_err(|_| "a load panicked".to_owned())?)
                        .collect::<Result<Vec<_>>>()
                })?;
                four += reports.iter().map(|report| report.iops).sum::<f64>();
                one += bench.run(&self.ours, &alone)?.iops;
            }
            row.add(four / 4e3, one / 4e3);
        }
        bench.add(row);
        Ok(())
    }
}
