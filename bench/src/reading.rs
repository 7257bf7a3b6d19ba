//! Sequential reads after random overwrites: of the snapshot, and of the origin with several chunk sizes.
//!
//! 'Before' is a twin: filled in the same way and left alone, so that both reads can be taken in turn.

use crate::load::{Action, Job, Order};
use crate::redirect::CHUNK;
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, MIB, Result, WIDE};
use rowen_engine::group::Config;

/// Chunk sizes that are compared, the default first.
const CHUNKS: [(u64, &str); 5] =
    [(64 << 10, "64k"), (128 << 10, "128k"), (256 << 10, "256k"), (512 << 10, "512k"), (1 << 20, "1M")];

pub fn sequential(bench: &Bench) -> Result {
    let (span, rounds) = (bench.settings.span / 2, bench.settings.rounds);
    let pv = bench.written("pv", 4 * span + 512 * MIB)?;
    let lab = bench.group(bench.disks(&pv.path)?, Config::default())?;
    let twin = lab.filled(bench, span, CHUNK)?;
    let mut of_snapshot = Row::ratio(
        "read_snapshot",
        "1 MiB read of a snapshot, origin overwritten at random / before",
        Asked::AtLeast(0.95),
        "kIOPS",
    );
    let mut of_origin = Vec::new();
    for (n, (chunk, name)) in CHUNKS.into_iter().enumerate() {
        let asked = if chunk == CHUNK { Asked::AtLeast(0.7) } else { Asked::Nothing };
        let what = format!("1 MiB read of an origin overwritten in 4 KiB, chunk {name} / before");
        let mut row = Row::ratio("read_origin", what, asked, "kIOPS");
        for round in 0..rounds {
            bench.step("reads after random writes", (n * rounds + round) as f64 / (5 * rounds) as f64);
            let origin = lab.filled(bench, span, chunk)?;
            let snapshot = lab.snapshot(bench, &origin, chunk)?;
            bench.run(&origin, &Job::pass(Action::Write, Order::Shuffled, 4096, DEEP, span, round as u64 + 9))?;
            let job = Job::pass(Action::Read, Order::Sequential, MIB as u32, WIDE, span, 1);
            if chunk == CHUNK {
                let (rowen, other) = bench.in_turn(8, (&lab.open(snapshot)?, &job), (&twin, &job))?;
                of_snapshot.add(rowen.kiops(), other.kiops());
            }
            let (rowen, other) = bench.in_turn(8, (&origin, &job), (&twin, &job))?;
            row.add(rowen.kiops(), other.kiops());
            lab.remove(bench, &[snapshot, origin.id()])?;
        }
        of_origin.push(row);
    }
    bench.add(of_snapshot);
    of_origin.into_iter().for_each(|row| bench.add(row));
    lab.close(bench)
}
