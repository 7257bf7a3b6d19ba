//! Small random writes at 0 to 1000 snapshots: how many, and how long the slow ones take. Nobody publishes it.
//!
//! `make experiments EXPERIMENT=latency`

use super::{Experiment, Sizes, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Form, Key, MIB};
use crate::fio::{self, Job};
use crate::stack::{System, text};

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
    recorded: true,
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
    let rounds = if context.recording { 1 } else { context.form.rounds };
    let levels = context.pick(&[0, 1], &[0, 1, 10, 100], &[0, 1, 10, 100, 1000]);
    let turns = (rounds * context.systems.len()) as f64;
    for round in 0..rounds {
        for (n, system) in context.turn(round).into_iter().enumerate() {
            let stack = context.stack(system);
            stack.begin()?;
            let mib = context.form.mib;
            let node = stack.origin(mib, CHUNK, 3 * mib)?;
            let to = format!("of={}", text(&node));
            let count = format!("count={mib}");
            command::run("dd", &["if=/dev/urandom", &to, "bs=1M", &count, "oflag=direct", "status=none"])?;
            for (at, level) in levels.iter().enumerate() {
                let share = at as f64 / levels.len() as f64;
                let what = format!("{system}, round {}, {level} snapshots", round + 1);
                context.step(what, ((round * context.systems.len() + n) as f64 + share) / turns);
                if system == System::Raw && *level > 0 || context.recording && *level > 10 {
                    continue;
                }
                for depth in [1, 32] {
                    let snapshots = level.to_string();
                    let depth_name = depth.to_string();
                    let mut pairs = vec![("depth", depth_name.as_str())];
                    if system != System::Raw {
                        pairs.push(("snapshots", &snapshots));
                    }
                    let key = |metric: &str| Key::new(system, metric, &pairs, round);
                    let reason = match system {
                        System::Classic if *level > MOST_CLASSIC => {
                            "each classic snapshot needs room of its own and is written to by itself"
                        }
                        System::Thin if *level > MOST_THIN => "making them takes some 0.3 s each in user-mode-linux",
                        _ => "",
                    };
                    if !reason.is_empty() {
                        context.not_run(key("writes"), "1/s", reason);
                        continue;
                    }
                    let names = stack.snapshots(*level, CHUNK, mib + mib / 8 + 8)?;
                    let job = Job {
                        target: &node,
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
                        if depth == 1 {
                            let job = Job { requests: 1000, seconds: 60, ..job };
                            fio::response(context, key("response time"), &job)?;
                        }
                    } else {
                        let reached = fio::run(context, &job)?;
                        context.figure(key("writes"), "1/s", reached.iops);
                        context.figure(key("p50"), "ms", reached.p50);
                        context.figure(key("p99"), "ms", reached.p99);
                        context.figure(key("p99.9"), "ms", reached.p999);
                    }
                    stack.remove_all(&names)?;
                }
            }
        }
    }
    Ok(())
}
