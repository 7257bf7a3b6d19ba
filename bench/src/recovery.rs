//! Opening a group whose process was killed when its journal was as full as it gets.

use crate::load::{Action, Job, Order};
use crate::redirect::CHUNK;
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, GIB, Result, part_settings, start_part, text};
use rowen_engine::group::{Config, Group, VolumeKind};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

/// The part that is killed.
pub const CHILD: &str = "recovery";

pub fn after_kill(bench: &Bench) -> Result {
    let rounds = bench.settings.rounds;
    let mut row = Row::new("open_after_kill", "opening after kill -9 with a full journal", Asked::AtMost(2.0), "s");
    let mut records = Row::new("records_replayed", "records that this opening replayed", Asked::Nothing, "records");
    let mut held = Row::new("open_held", "of that, until the killed process let go of its disk", Asked::Nothing, "s");
    // Large enough for the largest journal. Not sparse: a file of scattered pieces takes minutes to delete where the filesystem
    // discards each, and its last holder, one of our workers, is held up by it.
    let pv = bench.written("pv", 4 * GIB)?;
    for round in 0..rounds {
        bench.step("kill and open", round as f64 / rounds as f64);
        let mut part = start_part(&[CHILD.to_owned(), pv.path.to_string_lossy().into_owned()])?;
        let out = part.stdout.take().ok_or("the part has no output")?;
        let told = BufReader::new(out).lines().next();
        part.kill().map_err(text)?;
        part.wait().map_err(text)?;
        if !matches!(told, Some(Ok(_))) {
            return Err("the part that is to be killed failed".to_owned());
        }
        let begun = Instant::now();
        let (disks, runtime) = (bench.disks(&pv.path)?, bench.pool.runtime());
        held.values.push(begun.elapsed().as_secs_f64());
        let opened = bench.block_on(async move { Group::open(disks, runtime, Config::default()).await });
        row.values.push(begun.elapsed().as_secs_f64());
        let group = opened.map_err(text)?;
        records.values.push(group.stats().recovered as f64);
        bench.block_on(async move { group.close().await }).map_err(text)?;
    }
    bench.add(row);
    bench.add(held);
    bench.add(records);
    Ok(())
}

/// Learns how many records lie between two checkpoints at most, says so when the journal is nearly as full again, and waits for
/// its end. Nothing was flushed.
pub fn child(words: &[String]) -> Result {
    let [path] = words else { return Err("a file is wanted".to_owned()) };
    let path = Path::new(path);
    let dir = path.parent().ok_or("the file has no directory")?;
    let bench = Bench::new(part_settings(dir), 1.0, false)?;
    let lab = bench.group(bench.disks(path)?, Config { dirty_bytes: GIB as usize, ..Config::default() })?;
    let volume = lab.volume(&bench, VolumeKind::Thin, 4 * GIB, CHUNK)?;
    let (mut checkpoints, mut start, mut longest) = (0, 0, 0);
    let job = Job::pass(Action::Write, Order::Shuffled, 4096, DEEP, 4 * GIB, 1);
    for part in 0..1000 {
        bench.run(&volume, &job.part(part, 1000))?;
        let now = lab.group.stats();
        if now.checkpoints != checkpoints {
            longest = longest.max(now.journal_records - start);
            (checkpoints, start) = (now.checkpoints, now.journal_records);
        }
        if checkpoints > 4 && (now.journal_records - start) * 10 > longest * 8 {
            println!("full");
            // Another write might bring the checkpoint that empties it.
            std::thread::sleep(Duration::from_secs(60));
            return Err("nobody killed this".to_owned());
        }
    }
    Err("the journal never was full".to_owned())
}
