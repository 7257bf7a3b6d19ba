//! Writes after a snapshot: redirected once, in place from then on; many snapshots against one.

use crate::load::{Action, Job, Limit, Order};
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, Lab, MIB, Result, WIDE};
use rowen_engine::group::{Config, Volume, VolumeKind};
use std::sync::Arc;

/// The chunk that `lvcreate` takes when none is given.
pub const CHUNK: u64 = 64 << 10;

/// First and second pass of small writes, latency of one write at a time, large overwrites, write + flush.
pub fn passes(bench: &Bench) -> Result {
    let (span, rounds) = (bench.settings.span, bench.settings.rounds);
    let raw_file = bench.written("raw", span)?;
    let pv = bench.written("pv", 4 * span + 512 * MIB)?;
    let raw = bench.raw(&raw_file)?;
    let lab = bench.group(bench.disks(&pv.path)?, Config::default())?;
    let without = lab.filled(bench, span, CHUNK)?;
    let mut first = Row::ratio(
        "first_pass",
        "after a snapshot: 4 KiB random write QD32, first pass / raw",
        Asked::AtLeast(0.7),
        "kIOPS",
    );
    let mut second = Row::ratio("second_pass", "the same, second pass / raw", Asked::AtLeast(0.9), "kIOPS");
    let mut latency =
        Row::ratio("first_pass_8k_qd1", "first pass of 8 KiB QD1, p50 / without snapshot", Asked::AtMost(1.5), "us");
    let mut large = Row::ratio(
        "overwrite_1m",
        "1 MiB sequential overwrite after a snapshot / without",
        Asked::AtLeast(0.9),
        "kIOPS",
    );
    let mut synced =
        Row::ratio("write_flush", "4 KiB write + flush QD1 after a snapshot / raw", Asked::AtLeast(0.5), "kIOPS");
    for round in 0..rounds {
        let part = |n: usize| (round * 5 + n) as f64 / (rounds * 5) as f64;
        let seed = round as u64 * 10;
        let with = lab.filled(bench, span, CHUNK)?;

        bench.step("passes after a snapshot", part(0));
        let snapshot = lab.snapshot(bench, &with, CHUNK)?;
        for row in [&mut first, &mut second] {
            let job = Job::pass(Action::Write, Order::Shuffled, 4096, DEEP, span, seed + row.values.len() as u64 + 1);
            let (rowen, other) = bench.in_turn(8, (&with, &job), (&raw, &job))?;
            row.add(rowen.kiops(), other.kiops());
        }
        lab.remove(bench, &[snapshot])?;

        bench.step("latency after a snapshot", part(2));
        let snapshot = lab.snapshot(bench, &with, CHUNK)?;
        let mut job = Job::pass(Action::Write, Order::Shuffled, 8192, 1, span, seed + 3);
        job.limit = Limit::requests((span / 8192).min(16_000));
        let (rowen, other) = bench.in_turn(8, (&with, &job), (&without, &job))?;
        latency.add(rowen.p50(), other.p50());
        lab.remove(bench, &[snapshot])?;

        bench.step("large writes after a snapshot", part(3));
        let fresh = lab.filled(bench, span, CHUNK)?;
        lab.remove(bench, &[with.id()])?;
        let snapshot = lab.snapshot(bench, &fresh, CHUNK)?;
        let job = Job::pass(Action::Write, Order::Sequential, MIB as u32, WIDE, span, seed + 4);
        let (rowen, other) = bench.in_turn(8, (&fresh, &job), (&without, &job))?;
        large.add(rowen.kiops(), other.kiops());
        lab.remove(bench, &[snapshot])?;

        bench.step("write and flush after a snapshot", part(4));
        let snapshot = lab.snapshot(bench, &fresh, CHUNK)?;
        let mut job = Job::pass(Action::WriteAndFlush, Order::Shuffled, 4096, 1, span, seed + 5);
        job.limit = Limit::requests((span / 4096).min(8_000));
        let (rowen, other) = bench.in_turn(8, (&fresh, &job), (&raw, &job))?;
        synced.add(rowen.kiops(), other.kiops());
        lab.remove(bench, &[snapshot, fresh.id()])?;
    }
    for row in [first, second, latency, large, synced] {
        bench.add(row);
    }
    lab.close(bench)
}

/// A volume with 1000 snapshots, a little written after each, against one with a single snapshot.
pub fn many(bench: &Bench) -> Result {
    let (span, rounds) = (bench.settings.span / 2, bench.settings.rounds);
    let snapshots = if bench.settings.quick { 200 } else { 1000 };
    // Each snapshot's 64 scattered writes are 64 new leaves, of two copies each, and 64 chunks that have begun.
    let pv = bench.written("pv", 16 * span + 512 * MIB)?;
    let lab = bench.group(bench.disks(&pv.path)?, Config::default())?;
    let make = || -> Result<Arc<Volume>> {
        let volume = lab.volume(bench, VolumeKind::Thick, span, CHUNK)?;
        bench.fill(&volume, span)?;
        Ok(volume)
    };
    let (one, many) = (make()?, make()?);
    let writes = |volume: &Arc<Volume>, lab: &Lab, n: u64| -> Result {
        let mut job = Job::pass(Action::Write, Order::Random, 4096, DEEP, span, 1000 + n);
        job.limit = Limit::requests(64);
        bench.run(volume, &job)?;
        lab.snapshot(bench, volume, CHUNK).map(drop)
    };
    for n in 1..snapshots {
        bench.step("making 1000 snapshots", n as f64 / snapshots as f64 / 2.0);
        writes(&many, &lab, n)?;
        // The single one's map becomes as scattered.
        let mut job = Job::pass(Action::Write, Order::Random, 4096, DEEP, span, 1000 + n);
        job.limit = Limit::requests(64);
        bench.run(&one, &job)?;
    }
    let what = format!("{snapshots} snapshots held / 1: 4 KiB random write QD32");
    let mut row = Row::ratio("many_snapshots", what, Asked::AtLeast(0.95), "kIOPS");
    for round in 0..rounds {
        bench.step("writes under 1000 snapshots", 0.5 + round as f64 / rounds as f64 / 2.0);
        let taken = [lab.snapshot(bench, &one, CHUNK)?, lab.snapshot(bench, &many, CHUNK)?];
        // Redirected writes and writes in place, as they come.
        let job = Job::pass(Action::Write, Order::Random, 4096, DEEP, span, round as u64 + 5);
        let (rowen, other) = bench.in_turn(8, (&many, &job), (&one, &job))?;
        row.add(rowen.kiops(), other.kiops());
        lab.remove(bench, &taken)?;
    }
    bench.add(row);
    lab.close(bench)
}
