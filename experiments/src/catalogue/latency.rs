//! Small random writes at 0 to 1000 snapshots: how many, and how long the slow ones take. Nobody publishes it.
//!
//! `make experiments EXPERIMENT=latency`

use super::{Experiment, Sizes, UNUSED};
use crate::command::Result;
use crate::context::{Context, Form, Key, MIB, Quantity};
use crate::fio::{self, Job};
use crate::runner::Pass;
use crate::stack::{Stack, System};
use crate::streams::{self, Through};
use crate::writes::{self, Writes};
use std::path::Path;
use std::time::Duration;

pub const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    title: "4 KiB random writes at no snapshot to a thousand",
    source: None,
    question: "How many 4 KiB random writes a second, and p50, p99 and p99.9 of their time, at 0, 1, 10, 100 and 1000 snapshots?",
    expected: "LVM classic: falls with each snapshot. LVM thin: falls once. Rowen: the same at any number.",
    steps: "lvcreate; write all of it; at each level lvcreate -s until there are so many; 4 KiB at random, past the page cache, \
            one after another and (fio randwrite) 32 at a time, each block at most once",
    notes: "Each level and depth has a part of the volume of its own (a tenth), which nothing was written to since the volume was \
            filled: all snapshots share it, and every write is the first to its block since any of them was made. Chunks of 64 KiB, so \
            that one write in four (one at a time) or eight (32) is the first to its chunk. The time of 32 requests at once includes \
            their waiting for each other. No figure is of more than 5 seconds. p99.9 of the quick form is the slowest request.",
    systems: &[System::Raw, System::Classic, System::Thin, System::Rowen],
    axis: "snapshots",
    base: &["depth"],
    body,
    published: Vec::new,
    sizes,
    passes: &Pass::ALL,
    quick_passes: &Pass::ALL,
    is_long: false,
    remarks: &[],
    mib: [40, 160, 640],
    seconds: [[13.0, 45.0, 20.0], [100.0, 500.0, 60.0]],
};

const CHUNK: &str = "64k";
const LEVELS: [usize; 5] = [0, 1, 10, 100, 1000];
const DEPTHS: [u32; 2] = [1, 32];
/// Each takes room of its own, and each first write to a chunk is copied once for each of them.
const MAX_CLASSIC: usize = 10;

/// What one classic snapshot may have to take: the parts of three levels.
fn reserve(form: &Form) -> u64 {
    form.mib * 3 / 4 + 16
}

fn sizes(form: &Form) -> Sizes {
    let shared = 3 * form.mib + 192;
    let classic = form.mib + 64 + MAX_CLASSIC as u64 * (reserve(form) + 4);
    Sizes { raw: form.mib + 16, lvm: classic.max(shared), mirror: UNUSED, rowen: shared, rowen_mirror: UNUSED }
}

fn body(context: &Context) -> Result {
    context.in_turn(|system, round, step| one(context, &context.stack(system), round, step))
}

/// Why a system has no figure for this number of snapshots.
fn why_not(context: &Context, system: System, count: usize) -> Option<&'static str> {
    match system {
        System::Classic if count > MAX_CLASSIC => Some(super::CLASSIC_LIMIT),
        System::Thin if count > 100 => Some(super::THIN_LIMIT),
        _ if context.recording && count > 10 => Some("no more than 10 snapshots are recorded"),
        _ if context.form.quick && count > 100 => Some("more than 100: full form only"),
        _ if context.is_brief() && !context.recording && count > 1 => {
            Some("more than one in user-mode-linux: full form only")
        }
        _ => None,
    }
}

fn one(context: &Context, stack: &Stack<'_>, round: usize, step: &dyn Fn(&str, f64)) -> Result {
    let (system, mib) = (stack.system, context.form.mib);
    stack.begin()?;
    let node = stack.origin(mib, CHUNK, 2 * mib + 64)?;
    streams::fill_device(&node, mib)?;
    let levels = match system {
        System::Raw => vec![0],
        _ => context.pick(&LEVELS[..2], &LEVELS, &LEVELS),
    };
    // A record is of response times, which are of one at a time. 32 at a time are fio's, which takes too long to start in
    // user-mode-linux for the quick form.
    let is_short = context.recording || context.is_brief();
    let depths = if is_short { &DEPTHS[..1] } else { &DEPTHS[..] };
    let parts = (LEVELS.len() * DEPTHS.len()) as u64;
    let span = mib * MIB / parts / 4096 * 4096;
    let mut made = 0;
    for (at, count) in levels.into_iter().enumerate() {
        step(&format!("{count} snapshots"), at as f64 / LEVELS.len() as f64);
        if let Some(reason) = why_not(context, system, count) {
            let number = count.to_string();
            for (depth, metric) in depths.iter().flat_map(|depth| METRICS.map(|metric| (depth.to_string(), metric))) {
                let pairs = [("depth", depth.as_str()), ("snapshots", number.as_str())];
                let (name, unit) = if context.recording { RECORDED } else { metric };
                context.not_run(Key::new(system, name, &pairs, round), unit, reason);
            }
            continue;
        }
        stack.snapshots(made..count, CHUNK, reserve(&context.form))?;
        made = count;
        for (n, depth) in depths.iter().enumerate() {
            let part = (at * DEPTHS.len() + n) as u64;
            level(context, stack, &node, (count, *depth), (part * span, span), round)?;
        }
    }
    Ok(())
}

const METRICS: [(&str, &str); 4] = [("writes", "1/s"), ("p50", "ms"), ("p99", "ms"), ("p99.9", "ms")];
const RECORDED: (&str, &str) = ("response time", "ms");

/// Writes this many at a time, in a part of the volume that was not written to since it was filled.
fn level(
    context: &Context,
    stack: &Stack<'_>,
    node: &Path,
    (count, depth): (usize, u32),
    (offset, span): (u64, u64),
    round: usize,
) -> Result {
    let system = stack.system;
    let (snapshots, depth_name) = (count.to_string(), depth.to_string());
    let mut pairs = vec![("depth", depth_name.as_str())];
    if system != System::Raw {
        pairs.push(("snapshots", &snapshots));
    }
    let key = |metric: &str| Key::new(system, metric, &pairs, round);
    let requests = span / 4096 / if depth == 1 { 4 } else { 2 };
    let limit = Duration::from_secs(5);
    let (block, through, seed) = (4096, Through::Past, 1 + round as u64);
    let writes = Writes { target: node, block, is_random: true, through, offset, span, requests, limit, seed };
    if context.recording {
        let quantity = Quantity::Requests(writes.requests);
        let writes = Writes { limit: Duration::from_secs(120), ..writes };
        return context.section(key(RECORDED.0), quantity, || writes::pass(&writes).map(drop));
    }
    let figures = if depth == 1 {
        let times = writes::pass(&writes)?;
        [times.rate(), times.quantile(0.5), times.quantile(0.99), times.quantile(0.999)]
    } else {
        let seconds = limit.as_secs();
        let job = Job { target: node, rw: "randwrite", block, depth, direct: true, offset, span, requests, seconds };
        let reached = fio::run(context, &job)?;
        [reached.iops, reached.p50, reached.p99, reached.p999]
    };
    for ((metric, unit), figure) in METRICS.into_iter().zip(figures) {
        context.figure(key(metric), unit, figure);
    }
    Ok(())
}
