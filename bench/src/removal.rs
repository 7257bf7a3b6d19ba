//! Latency of small writes while a large snapshot gives its space back.

use crate::load::{Action, Job, Limit, Order};
use crate::redirect::CHUNK;
use crate::report::{Asked, Row, micros};
use crate::world::{Bench, DEEP, GIB, MIB, Result};
use rowen_engine::group::{Config, VolumeKind};
use std::time::Duration;

/// The snapshot's own blocks are scattered: each was written alone, at random.
pub fn latency(bench: &Bench) -> Result {
    let own = if bench.settings.quick { GIB } else { 10 * GIB };
    let rounds = if bench.settings.quick { 2 } else { bench.settings.rounds.min(3) };
    let span = bench.settings.span.min(512 * MIB);
    let pv = bench.written("pv", own + 2 * span + GIB)?;
    let lab = bench.group(bench.disks(&pv.path)?, Config::default())?;
    let writer = lab.filled(bench, span, CHUNK)?;
    let what = format!("4 KiB random write QD32 while a snapshot of {} GiB is deleted, p99 / without", own / GIB);
    let mut row = Row::ratio("removal_p99", what, Asked::AtMost(1.5), "us");
    let mut length = Row::new("removal_seconds", "how long that removal takes", Asked::Nothing, "s");
    for round in 0..rounds {
        bench.step("a snapshot with 10 GiB of its own", round as f64 / rounds as f64);
        let origin = lab.volume(bench, VolumeKind::Thin, own, 4096)?;
        let snapshot = lab.snapshot(bench, &origin, 4096)?;
        let pass = Job::pass(Action::Write, Order::Shuffled, 4096, 2 * DEEP, own, round as u64 + 1);
        let target = lab.open(snapshot)?;
        for part in 0..20 {
            bench.step(
                "a snapshot with 10 GiB of its own",
                (round as f64 + f64::from(part as u32) / 25.0) / rounds as f64,
            );
            bench.run(&target, &pass.part(part, 20))?;
        }
        lab.settle(bench)?;
        let job = Job {
            limit: Limit::time(Duration::from_millis(500)),
            ..Job::pass(Action::Write, Order::Random, 4096, DEEP, span, 3)
        };
        let calm: Vec<f64> = (0..4).map(|_| bench.run(&writer, &job).map(|r| micros(r.p99))).collect::<Result<_>>()?;
        let begun = std::time::Instant::now();
        lab.remove_later(bench, &[snapshot])?;
        let mut busy = Vec::new();
        while lab.group.info().reclaim_left > 0 || busy.is_empty() {
            let slice = Job { limit: Limit::time(Duration::from_millis(200)), ..job };
            busy.push(micros(bench.run(&writer, &slice)?.p99));
            if begun.elapsed() > Duration::from_secs(120) {
                return Err("the removal does not end".to_owned());
            }
        }
        length.values.push(begun.elapsed().as_secs_f64());
        row.add(crate::report::median(&busy), crate::report::median(&calm));
        lab.remove(bench, &[origin.id()])?;
    }
    bench.add(row);
    bench.add(length);
    lab.close(bench)
}
