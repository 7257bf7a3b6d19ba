//! Small random writes at 0 to 1000 snapshots: how many, and how long the slow ones take. Nobody publishes it.
//!
//! `make experiments EXPERIMENT=latency`

use super::{Experiment, Sizes, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Form, Key, MIB};
use crate::fio::{self, Job};
use crate::runner::Pass;
use crate::stack::{Stack, System, text};
use std::path::Path;

pub const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    title: "4 KiB random writes at no snapshot to a thousand",
    source: None,
    question: "How many 4 KiB random writes a second, and p50, p99 and p99.9 of their time, at 0, 1, 10, 100 and 1000 snapshots?",
    expected: "LVM classic: falls with each snapshot. LVM thin: falls once. Rowen: the same at any number.",
    steps: "lvcreate; write all of it; lvcreate -s, so many times; fio randwrite, 4 KiB, past the page cache, one and 32 at a time, \
            each block at most once",
    notes: "Each level begins with new snapshots, so that every write is the first to its block since. Chunks of 64 KiB. The time \
            of 32 requests at once includes their waiting for each other.",
    systems: &[System::Raw, System::Classic, System::Thin, System::Rowen],
    axis: "snapshots",
    base: &["depth"],
    body,
    published: Vec::new,
    sizes,
    passes: &Pass::ALL,
    remarks: &[],
    mib: [16, 64, 256],
    seconds: [90.0, 900.0],
};

const CHUNK: &str = "64k";
const MOST_CLASSIC: usize = 10;
const MOST_THIN: usize = 100;

fn sizes(form: &Form) -> Sizes {
    let shared = 4 * form.mib + 192;
    let classic = form.mib + 64 + MOST_CLASSIC as u64 * (form.mib + form.mib / 8 + 16);
    Sizes { raw: form.mib + 16, lvm: classic.max(shared), mirror: UNUSED, rowen: shared }
}

fn body(context: &Context) -> Result {
    context.in_turn(|system, round, step| one(context, &context.stack(system), round, step))
}

fn one(context: &Context, stack: &Stack<'_>, round: usize, step: &dyn Fn(&str, f64)) -> Result {
    let (system, mib) = (stack.system, context.form.mib);
    stack.begin()?;
    let node = stack.origin(mib, CHUNK, 3 * mib)?;
    let to = format!("of={}", text(&node));
    let count = format!("count={mib}");
    command::run("dd", &["if=/dev/urandom", &to, "bs=1M", &count, "oflag=direct", "status=none"])?;
    let levels = match system {
        System::Raw => vec![0],
        _ if context.recording => context.pick(&[0, 1], &[0, 1, 10], &[0, 1, 10]),
        _ => context.pick(&[0, 1], &[0, 1, 10, 100], &[0, 1, 10, 100, 1000]),
    };
    for (at, count) in levels.iter().enumerate() {
        step(&format!("{count} snapshots"), at as f64 / levels.len() as f64);
        // A record is of response times, which are of one at a time.
        for depth in if context.recording { vec![1] } else { vec![1, 32] } {
            level(context, stack, &node, (*count, depth), round)?;
        }
    }
    Ok(())
}

/// New snapshots, then writes so many at a time.
fn level(context: &Context, stack: &Stack<'_>, node: &Path, (count, depth): (usize, u32), round: usize) -> Result {
    let (system, mib) = (stack.system, context.form.mib);
    let (snapshots, depth_name) = (count.to_string(), depth.to_string());
    let mut pairs = vec![("depth", depth_name.as_str())];
    if system != System::Raw {
        pairs.push(("snapshots", &snapshots));
    }
    let key = |metric: &str| Key::new(system, metric, &pairs, round);
    let reason = match system {
        System::Classic if count > MOST_CLASSIC => {
            Some("each classic snapshot needs room of its own and is written to by itself")
        }
        System::Thin if count > MOST_THIN => Some("making them takes some 0.3 s each in user-mode-linux"),
        _ => None,
    };
    if let Some(reason) = reason {
        context.not_run(key("writes"), "1/s", reason);
        return Ok(());
    }
    let names = stack.snapshots(count, CHUNK, mib + mib / 8 + 8)?;
    let job = Job {
        target: node,
        rw: "randwrite",
        block: 4096,
        depth,
        direct: true,
        span: mib * MIB,
        requests: mib * MIB / 4096 / if depth == 1 { 8 } else { 2 },
        seconds: 5,
        seed: 1 + round as u64,
    };
    if context.recording {
        fio::response(context, key("response time"), &Job { requests: 1000, seconds: 60, ..job })?;
    } else {
        let reached = fio::run(context, &job)?;
        context.figure(key("writes"), "1/s", reached.iops);
        context.figure(key("p50"), "ms", reached.p50);
        context.figure(key("p99"), "ms", reached.p99);
        context.figure(key("p99.9"), "ms", reached.p999);
    }
    stack.remove_all(&names)
}
