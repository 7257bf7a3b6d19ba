//! A thick volume without snapshots against the same load on a raw file; filling a fresh one.

use crate::load::{Action, Job, Limit, Order};
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, MIB, Result, WIDE};
use rowen_engine::group::{Config, VolumeKind};

/// No snapshot, every block written: five loads.
pub fn steady(bench: &Bench) -> Result {
    let (span, rounds) = (bench.settings.span, bench.settings.rounds);
    let raw_file = bench.written("raw", span)?;
    let pv = bench.written("pv", span + 256 * MIB)?;
    let raw = bench.raw(&raw_file)?;
    let lab = bench.group(bench.disks(&pv.path)?, Config::default())?;
    let volume = lab.filled(bench, span, 64 << 10)?;
    let loads = [
        ("thick_write_qd32", "4 KiB random write QD32", Action::Write, Order::Random, 4096, DEEP),
        ("thick_read_qd32", "4 KiB random read QD32", Action::Read, Order::Random, 4096, DEEP),
        ("thick_write_qd1", "4 KiB random write QD1", Action::Write, Order::Random, 4096, 1),
        ("thick_write_1m", "1 MiB sequential write", Action::Write, Order::Sequential, MIB as u32, WIDE),
        ("thick_read_1m", "1 MiB sequential read", Action::Read, Order::Sequential, MIB as u32, WIDE),
    ];
    for (n, (name, what, action, order, block, depth)) in loads.into_iter().enumerate() {
        let mut row = Row::ratio(name, format!("no snapshot: {what} / raw"), Asked::AtLeast(0.9), "kIOPS");
        for round in 0..rounds {
            bench.step(what, (n * rounds + round) as f64 / (5 * rounds) as f64);
            let mut job = Job::pass(action, order, block, depth, span, round as u64 * 100 + 7);
            job.limit = Limit::time(bench.settings.slice());
            let (rowen, other) = bench.in_turn(4, (&volume, &job), (&raw, &job))?;
            row.add(rowen.kiops(), other.kiops());
        }
        bench.add(row);
    }
    lab.close(bench)
}

/// A fresh thick volume is written for the first time.
pub fn filling(bench: &Bench) -> Result {
    let (span, rounds) = (bench.settings.span, bench.settings.rounds);
    let raw_file = bench.written("raw", span)?;
    let pv = bench.written("pv", 2 * span + 512 * MIB)?;
    let raw = bench.raw(&raw_file)?;
    let lab = bench.group(bench.disks(&pv.path)?, Config::default())?;
    let loads = [
        ("fill_sequential", "1 MiB sequential", Order::Sequential, MIB as u32, WIDE, 0.9),
        ("fill_random", "4 KiB random QD32", Order::Shuffled, 4096, DEEP, 0.7),
    ];
    for (n, (name, what, order, block, depth, asked)) in loads.into_iter().enumerate() {
        let mut row =
            Row::ratio(name, format!("filling a fresh thick LV: {what} / raw"), Asked::AtLeast(asked), "kIOPS");
        for round in 0..rounds {
            bench.step(what, (n * rounds + round) as f64 / (2 * rounds) as f64);
            let volume = lab.volume(bench, VolumeKind::Thick, span, 64 << 10)?;
            let job = Job::pass(Action::Write, order, block, depth, span, round as u64 + 70);
            let (rowen, other) = bench.in_turn(8, (&volume, &job), (&raw, &job))?;
            row.add(rowen.kiops(), other.kiops());
            lab.remove(bench, &[volume.id()])?;
        }
        bench.add(row);
    }
    lab.close(bench)
}
