//! How long a snapshot takes, of a large volume whose map has millions of extents: in the engine, and as a command from
//! its start to its end.
//!
//! The volume is made by writing 4 KiB at a time with holes between. Only metadata reaches the (sparse) file: the data of
//! such a volume would not fit on most disks, and creating a snapshot does not look at it.

use crate::commands::World;
use crate::load::{Action, Job, Order};
use crate::report::{Asked, Row};
use crate::world::{Bench, GIB, Lab, Result, text};
use rowen_engine::disk::{Completer, DiskOp, Disks, PvGeometry, PvIndex, Segments};
use rowen_engine::group::{Config, Group};
use rowen_sim::disk::is_metadata;
use std::sync::Arc;
use std::time::Instant;

/// Disks that acknowledge data and keep only metadata.
struct MetadataOnly<D>(Arc<D>);

impl<D: Disks> Disks for MetadataOnly<D> {
    fn count(&self) -> usize {
        self.0.count()
    }
    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.0.geometry(pv)
    }
    fn submit(&self, op: DiskOp, done: Completer) {
        if let DiskOp::Write { segments, buf } = &op
            && segments.iter().all(|segment| !is_metadata(&buf.as_slice()[segment.at as usize..]))
        {
            drop(op);
            done.complete(Ok(None));
            return;
        }
        self.0.submit(op, done);
    }
    fn back(&self, segments: Segments, done: Completer) {
        self.0.back(segments, done);
    }
}

/// Writes this many blocks of 4 KiB, evenly spread over the span.
pub fn spread(extents: u64, span: u64) -> Job {
    let mut job = Job::pass(Action::Write, Order::Sequential, 4096, 64, span, 5);
    job.stride = span / extents / 4096 * 4096;
    job.limit.requests = extents;
    job
}

pub fn snapshot(bench: &Bench) -> Result {
    let extents: u64 = if bench.settings.quick { 500_000 } else { 10_000_000 };
    let times = if bench.settings.quick { 5 } else { 20 };
    let size = 1024 * GIB;
    let pv = bench.sparse("pv", size + 64 * GIB)?;
    let path = pv.path.to_str().ok_or("the directory's name is no text")?;
    let world = World::new(bench, "creation")?;
    let group = world.group.clone();
    world.run(&["vgcreate", "-y", &group, path])?;
    world.run(&["lvcreate", "-y", "-T", "-L", "1040G", &format!("{group}/pool")])?;
    world.run(&["lvcreate", "-y", "-V", "1T", "-T", &format!("{group}/pool"), "-n", "lv"])?;
    world.run(&["stop", &group])?;

    let reopen = |disks: Arc<dyn Disks>| -> Result<Lab> {
        let runtime = bench.pool.runtime();
        let opened = bench.block_on(async move { Group::open(disks, runtime, Config::default()).await });
        Ok(Lab::of(opened.map_err(text)?))
    };
    {
        let lab = reopen(Arc::new(MetadataOnly(bench.disks(&pv.path)?)))?;
        let volume = lab.open(lab.group.find("lv").ok_or("the volume is gone")?)?;
        let job = spread(extents, size);
        for part in 0..50 {
            bench.step("a volume with millions of extents", part as f64 / 60.0);
            bench.run(&volume, &job.part(part, 50))?;
        }
        lab.close(bench)?;
    }
    let what =
        |how: &str| format!("creating a snapshot, {how}: 1 TiB with {:.1} million extents", extents as f64 / 1e6);
    let mut engine = Row::new("snapshot_engine", what("engine"), Asked::AtMost(1.0), "ms");
    {
        let lab = reopen(bench.disks(&pv.path)?)?;
        let origin = lab.open(lab.group.find("lv").ok_or("the volume is gone")?)?;
        for n in 0..times {
            bench.step("snapshots in the engine", 0.85);
            // Something to be captured: each snapshot is of a volume that was written to.
            let mut job = spread(extents, size);
            (job.limit.requests, job.first) = (16, n * 1000);
            bench.run(&origin, &job)?;
            let begun = Instant::now();
            let made = lab.snapshot(bench, &origin, crate::redirect::CHUNK)?;
            engine.values.push(begun.elapsed().as_secs_f64() * 1e3);
            lab.remove(bench, &[made])?;
        }
        drop(origin);
        lab.close(bench)?;
    }
    bench.add(engine);
    let mut command = Row::new("snapshot_command", what("command"), Asked::AtMost(30.0), "ms");
    world.run(&["vgchange", "-ay", &group])?;
    for n in 0..times {
        bench.step("snapshots by command", 0.95);
        let name = format!("s{n}");
        let begun = Instant::now();
        world.run(&["lvcreate", "-y", "-s", "-n", &name, &format!("{group}/lv")])?;
        command.values.push(begun.elapsed().as_secs_f64() * 1e3);
        world.run(&["lvremove", "-f", &format!("{group}/{name}")])?;
    }
    bench.add(command);
    Ok(())
}
