//! "HP-UX 11i v3 Using LVM Logical Volume Snapshots", section "Write performance" (2010).
//!
//! `make experiments EXPERIMENT=hp-ux`

use super::{Experiment, Published, Sizes, Source};
use crate::command::Result;
use crate::context::{Context, Form, Key, MIB, Quantity};
use crate::runner::Pass;
use crate::stack::{Stack, System};
use crate::streams::{self, Through};
use crate::writes::{self, Writes};
use std::path::Path;
use std::time::Duration;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hp-ux",
    title: "Response time of one write at a time, attempt after attempt",
    source: Some(Source {
        title: "HP-UX 11i v3 Using LVM Logical Volume Snapshots",
        author: "Hewlett-Packard",
        year: "2010",
    }),
    question: "How long does one write take, without a mirror, with one, and with a snapshot, the first to the sixth time over?",
    expected: "With a snapshot that copies units of 1 MiB, random writes past the cache take up to 300 times as long at first and \
               come back to normal as the units are copied; through the page cache nobody waits. Rowen: no difference between \
               the attempts.",
    steps: "one write after another, 8 KiB and 2048 KiB, random and sequential, past the page cache (raw) and through it \
            (block); then lvcreate -s with an unshare unit of 1 MiB and the same six times, at other random places each time",
    notes: "The document's volume had 1000 GB; here it is small, and an attempt makes so many requests that it meets about half of \
            the units. LVM classic and Rowen take at most 512 KiB as a chunk (-c 512k), LVM thin takes 1 MiB. All rows without \
            a snapshot come before the first snapshot. What Rowen still does in the background when lvremove has returned is over \
            before the next snapshot is made. Beside a mirror a volume with one copy is written in turn with it, on the same \
            disks: that is the ratio of the two. A mirror's modelled figures are of its first side.",
    systems: &[System::Raw, System::Classic, System::Thin, System::Raid1, System::Rowen, System::RowenMirror],
    axis: "state",
    base: &["path", "size", "write"],
    body,
    published,
    sizes,
    passes: &Pass::ALL,
    quick_passes: &Pass::ALL,
    is_long: false,
    remarks: &[],
    mib: [32, 64, 256],
    seconds: [[8.0, 55.0, 28.0], [110.0, 510.0, 60.0]],
};

const ATTEMPTS: u64 = 6;
/// How often a mirror and a volume with one copy take turns, for the ratio of a round.
const TURNS: u64 = 6;
const RATIO: &str = "one mirror / no mirror";

fn sizes(form: &Form) -> Sizes {
    let all = 3 * form.mib + 128;
    Sizes { raw: form.mib + 16, lvm: all, mirror: form.mib + 32, rowen: all, rowen_mirror: 2 * form.mib + 128 }
}

/// A kind of write: its path, its size, its order.
type Kind = (&'static str, u64, &'static str);

fn kinds(context: &Context) -> Vec<Kind> {
    let all: Vec<Kind> = ["raw", "block"]
        .into_iter()
        .flat_map(|path| [8 << 10, 2 << 20].map(|size| (path, size)))
        .flat_map(|(path, size)| ["random", "sequential"].map(|write| (path, size, write)))
        .collect();
    // Through the page cache a request's time is not that of a disk.
    let on_disk: Vec<Kind> = all.iter().copied().filter(|kind| kind.0 == "raw").collect();
    // The document's, but for those that nobody waits in.
    let brief: Vec<Kind> = on_disk.iter().copied().filter(|kind| kind.1 < MIB).collect();
    match context.recording {
        true => on_disk,
        false if context.is_brief() => brief,
        false => context.pick(&[("raw", 8 << 10, "random")], &all, &all),
    }
}

fn body(context: &Context) -> Result {
    context.in_turn(|system, round, step| one(context, system, round, step))
}

fn one(context: &Context, system: System, round: usize, step: &dyn Fn(&str, f64)) -> Result {
    let mib = context.form.mib;
    let unit = if system == System::Thin { "1m" } else { "512k" };
    let stack = context.stack(system);
    stack.begin()?;
    step("making a volume", 0.0);
    let node = stack.origin(mib, unit, 2 * mib + 64)?;
    // Every block is written once, so that it is there and can be shared.
    streams::fill_device(&node, mib)?;
    let kinds = kinds(context);
    let share = |n: usize| n as f64 / kinds.len() as f64;
    let is_mirror = matches!(system, System::Raid1 | System::RowenMirror);
    let state = if is_mirror { "one mirror" } else { "no mirror" };
    // All of these come before the first snapshot: what a snapshot leaves when it is gone is not in them.
    for (n, kind) in kinds.iter().enumerate() {
        step(&format!("{} {} KiB {}", kind.0, kind.1 >> 10, kind.2), 0.2 * share(n));
        write(context, system, &node, *kind, &[(state.to_owned(), 7)], round)?;
    }
    if is_mirror && !context.recording {
        return beside(context, &stack, &node, round, step);
    }
    if is_mirror || system == System::Raw {
        return Ok(());
    }
    for (n, kind) in kinds.iter().enumerate() {
        step(&format!("{} {} KiB {}, six attempts", kind.0, kind.1 >> 10, kind.2), 0.2 + 0.8 * share(n));
        stack.snapshot("before", unit, mib + mib / 4 + 16)?;
        let attempts: Vec<(String, u64)> =
            (1..=ATTEMPTS).map(|number| (format!("attempt {number}"), round as u64 * 100 + number)).collect();
        write(context, system, &node, *kind, &attempts, round)?;
        stack.remove("before")?;
        stack.settle()?;
    }
    Ok(())
}

/// A mirror and a volume with one copy on its disks, written in turn, and the ratio of their times.
fn beside(context: &Context, stack: &Stack<'_>, mirror: &Path, round: usize, step: &dyn Fn(&str, f64)) -> Result {
    let mib = context.form.mib;
    let linear = stack.volume("linear", mib)?;
    streams::fill_device(&linear, mib)?;
    let kinds = kinds(context);
    for (n, kind @ (path, size, write)) in kinds.iter().copied().enumerate() {
        step(
            &format!("{path} {} KiB {write}, in turn with one copy", size >> 10),
            0.3 + 0.7 * n as f64 / kinds.len() as f64,
        );
        let name = format!("{}k", size >> 10);
        let pairs = [("path", path), ("size", name.as_str()), ("write", write)];
        let mut means = [0.0, 0.0];
        for turn in 0..TURNS {
            // Either one is the first in half of the turns.
            let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in order {
                let target = [mirror, &linear][at];
                means[at] += writes::pass(&writes_of(context, target, kind, 1000 + turn))?.mean();
            }
        }
        context.figure(Key::new(stack.system, RATIO, &pairs, round), "times", means[0] / means[1]);
    }
    Ok(())
}

/// A pass of a kind; the seed says where it writes.
fn writes_of<'a>(context: &Context, target: &'a Path, (path, size, write): Kind, seed: u64) -> Writes<'a> {
    Writes {
        target,
        block: size,
        is_random: write == "random",
        through: if path == "raw" { Through::Past } else { Through::Cache },
        offset: 0,
        span: context.form.mib * MIB,
        // As many as there are units of 1 MiB; of large ones an eighth, each of which meets two.
        requests: if size < MIB { context.form.mib } else { (context.form.mib / 8).max(2) },
        limit: Duration::from_secs(120),
        seed,
    }
}

/// One pass for each state and its seed.
fn write(context: &Context, system: System, node: &Path, kind: Kind, states: &[(String, u64)], round: usize) -> Result {
    let (path, size, write) = kind;
    let name = format!("{}k", size >> 10);
    let key = |state: &str| {
        let pairs = [("path", path), ("size", name.as_str()), ("state", state), ("write", write)];
        Key::new(system, "response time", &pairs, round)
    };
    for (state, seed) in states {
        let writes = writes_of(context, node, kind, *seed);
        if context.recording {
            let quantity = Quantity::Requests(writes.requests);
            context.section(key(state), quantity, || writes::pass(&writes).map(drop))?;
        } else {
            context.figure(key(state), "ms", writes::pass(&writes)?.mean());
        }
    }
    Ok(())
}

fn published() -> Vec<Published> {
    let columns = [("raw", "random"), ("raw", "sequential"), ("block", "random"), ("block", "sequential")];
    let rows = [
        ("no mirror", [0.207, 0.192, 0.012, 0.166]),
        ("one mirror", [0.834, 0.228, 0.012, 0.171]),
        ("attempt 1", [63.752, 0.249, 0.012, 0.167]),
        ("attempt 2", [31.79, 0.2, 0.012, 0.166]),
        ("attempt 3", [21.115, 0.203, 0.012, 0.164]),
        ("attempt 4", [15.832, 0.205, 0.012, 0.162]),
        ("attempt 5", [2.715, 0.204, 0.012, 0.165]),
        ("attempt 6", [0.215, 0.204, 0.012, 0.166]),
    ];
    let row = |(state, figures): (&'static str, [f64; 4])| {
        columns.into_iter().zip(figures).map(move |((path, write), figure)| Published {
            system: "HP-UX 11i v3",
            metric: "response time",
            unit: "ms",
            parameters: vec![
                ("path", path.to_owned()),
                ("size", "8k".to_owned()),
                ("state", state.to_owned()),
                ("write", write.to_owned()),
            ],
            figure,
        })
    };
    let ratio = |n: usize| Published {
        system: "HP-UX 11i v3",
        metric: RATIO,
        unit: "times",
        parameters: vec![
            ("path", columns[n].0.to_owned()),
            ("size", "8k".to_owned()),
            ("write", columns[n].1.to_owned()),
        ],
        figure: rows[1].1[n] / rows[0].1[n],
    };
    (0..columns.len()).map(ratio).chain(rows.into_iter().flat_map(row)).collect()
}
