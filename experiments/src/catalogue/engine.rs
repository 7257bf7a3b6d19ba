//! Recovery and memory of Rowen alone: opening a group after its process was killed, against the journal that is left; and
//! memory against the extents that are mapped. Nobody publishes it of the others.
//!
//! `make experiments EXPERIMENT=engine`

use super::{Experiment, Sizes, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Key};
use crate::runner::Pass;
use crate::stack::{System, text};
use serde_json::Value;

pub const EXPERIMENT: Experiment = Experiment {
    name: "engine",
    title: "Recovery and memory",
    source: None,
    question: "How long does opening take after the server was killed, with how many records in the journal; and how much memory do \
               so many mapped extents take?",
    expected: "Opening is bounded by the journal: seconds at most. Memory is bounded by the setting (a node cache of 128 MiB), \
               whatever the number of extents.",
    steps: "rowen-bench --only recovery, and its part that maps so many extents of 4 KiB with holes between them",
    notes: "Of the engine by itself, in a process of its own, not through a block device. dm-snapshot keeps all exceptions in the \
            kernel's memory, and dm-thin's repair reads all its metadata; neither says how much or how long.",
    systems: &[System::Rowen],
    axis: "extents",
    base: &[],
    body,
    published: Vec::new,
    sizes: |_| Sizes { raw: UNUSED, lvm: UNUSED, mirror: UNUSED, rowen: UNUSED, rowen_mirror: UNUSED },
    passes: &[Pass::Host],
    quick_passes: &[Pass::Host],
    is_long: false,
    remarks: &[],
    mib: [0, 0, 0],
    seconds: [[25.0, 0.0, 0.0], [100.0, 0.0, 0.0]],
};

fn body(context: &Context) -> Result {
    let bench = context.rowen.with_file_name("rowen-bench");
    if !bench.exists() {
        return Err(format!("{} is not built: cargo build --release -p rowen-bench", bench.display()));
    }
    let (bench, dir) = (text(&bench), text(&context.dir));
    let extents = context.pick(&[100_000_u64], &[500_000, 2_000_000], &[500_000, 2_000_000, 8_000_000]);
    for (n, count) in extents.iter().enumerate() {
        context.step(format!("{count} extents"), n as f64 / (extents.len() + 1) as f64);
        let said = command::run(&bench, &["--child", "memory", &count.to_string(), &dir])?;
        let kib = said.lines().find_map(|line| line.strip_prefix("kib ")?.trim().parse::<f64>().ok());
        let kib = kib.ok_or_else(|| format!("the bench says {said:?} and no memory"))?;
        let name = count.to_string();
        context.figure(Key::new(System::Rowen, "peak memory", &[("extents", &name)], 0), "MiB", kib / 1024.0);
    }
    context.step("killed and opened", extents.len() as f64 / (extents.len() + 1) as f64);
    let file = context.dir.join("recovery.jsonl");
    let rounds = context.form.rounds.to_string();
    let mut run = command::command(&bench);
    run.args(["--only", "recovery", "--rounds", &rounds, "--dir", &dir, "--json", &text(&file)]);
    // It also judges its figures by its exit code; here they are only reported.
    let outcome = command::output(run);
    let said = std::fs::read_to_string(&file).map_err(|_| outcome.err().unwrap_or_else(|| "no figures".to_owned()))?;
    for line in said.lines() {
        let row: Value = serde_json::from_str(line).map_err(|e| format!("{}: {e}", file.display()))?;
        let metric = match row["name"].as_str() {
            Some("open_after_kill") => "opening after kill -9",
            Some("records_replayed") => "records in the journal then",
            _ => continue,
        };
        let unit = row["unit"].as_str().unwrap_or_default();
        let values = row["rounds"].as_array().cloned().unwrap_or_default();
        for (round, value) in values.iter().filter_map(Value::as_f64).enumerate() {
            context.figure(Key::new(System::Rowen, metric, &[], round), unit, value);
        }
    }
    Ok(())
}
