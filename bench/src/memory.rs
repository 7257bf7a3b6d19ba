//! Memory of a process whose group maps tens of millions of extents, with the node cache set to 128 MiB.
//!
//! The disks keep metadata in an unlinked file and drop data, so that the disks' memory is not counted with the engine's.

use crate::creation::spread;
use crate::load::{Action, Job, Limit, Order};
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, GIB, MIB, Result, part_settings, start_part, text};
use rowen_engine::disk::PvGeometry;
use rowen_engine::group::{Config, VolumeKind};
use rowen_sim::disk::{SpillDisks, is_metadata};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

/// The part that is measured.
pub const CHILD: &str = "memory";

pub fn resident(bench: &Bench) -> Result {
    let extents: u64 = if bench.settings.quick { 2_000_000 } else { 50_000_000 };
    let dir = bench.settings.dir.to_string_lossy().into_owned();
    let mut part = start_part(&[CHILD.to_owned(), extents.to_string(), dir])?;
    let out = part.stdout.take().ok_or("the part has no output")?;
    let mut peak = None;
    for line in BufReader::new(out).lines() {
        let line = line.map_err(text)?;
        match line.split_once(' ') {
            Some(("part", done)) => bench.step("many extents in little memory", done.parse().unwrap_or(0.0)),
            Some(("kib", kib)) => peak = kib.parse::<f64>().ok(),
            _ => return Err(format!("the part says {line:?}")),
        }
    }
    let ended = part.wait().map_err(text)?;
    let peak = peak.filter(|_| ended.success()).ok_or("the part that is measured failed")?;
    let what = format!("peak memory, {:.0} million extents mapped, cache of 128 MiB", extents as f64 / 1e6);
    let mut row = Row::new("memory", what, Asked::AtMost(256.0), "MiB");
    row.values.push(peak / 1024.0);
    bench.add(row);
    Ok(())
}

/// Maps the extents, then reads and writes all over them, before and after a snapshot; says its peak.
pub fn child(words: &[String]) -> Result {
    let [extents, dir] = words else { return Err("extents and a directory are wanted".to_owned()) };
    let extents: u64 = extents.parse().map_err(text)?;
    let bench = Bench::new(part_settings(Path::new(dir)), 1.0, false)?;
    let span = extents * 8192;
    let geometry = PvGeometry { size: span + 64 * GIB, sector: 512 };
    let disks = SpillDisks::new(Path::new(dir), &[geometry], is_metadata).map_err(text)?;
    let lab = bench.group(Arc::new(disks), Config { cache_bytes: 128 * MIB as usize, ..Config::default() })?;
    let volume = lab.volume(&bench, VolumeKind::Thin, span, 4096)?;
    let job = spread(extents, span);
    for part in 0..100 {
        bench.run(&volume, &job.part(part, 100))?;
        println!("part {}", part as f64 / 110.0);
    }
    for action in [Action::Read, Action::Write] {
        let mut job = Job::pass(action, Order::Random, 4096, DEEP, span, 1);
        job.limit = Limit::requests(100_000);
        bench.run(&volume, &job)?;
        lab.snapshot(&bench, &volume, 65536)?;
    }
    let mapped = lab.group.volume_info(volume.id()).map_err(text)?.referenced;
    if mapped < extents {
        return Err(format!("only {mapped} blocks are mapped"));
    }
    let status = std::fs::read_to_string("/proc/self/status").map_err(text)?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    println!("kib {}", peak.ok_or("the kernel does not say how much memory was used")?);
    lab.close(&bench)
}
