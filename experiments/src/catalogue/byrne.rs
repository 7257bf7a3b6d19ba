//! Daire Byrne's "Shared snapshot tests" on dm-devel (2010): how the number of snapshots matters.
//!
//! `make experiments EXPERIMENT=byrne`

use super::{Experiment, Published, Sizes, Source, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Form, Key, MIB, Quantity, forget};
use crate::runner::Pass;
use crate::stack::{Mount, Stack, System, text};
use crate::streams::{self, Bytes, Through};
use std::path::Path;
use std::time::Instant;

pub const EXPERIMENT: Experiment = Experiment {
    name: "byrne",
    title: "No snapshot to a thousand: writing and reading a large file",
    source: Some(Source { title: "Shared snapshot tests (dm-devel)", author: "Daire Byrne", year: "2010" }),
    question: "What do 0, 1, 2, 3, 4, 10 and more snapshots cost, for small and large chunks, and what does the store cost with none \
               in it?",
    expected: "LVM classic: each snapshot adds its own copy, 45 to 3 MB/s from 1 to 10. A shared store: one copy, but 20 to 40 % \
               lost with no snapshot at all. Rowen: no cost without one, and none that grows with their number.",
    steps: "lvcreate; mkfs.xfs; mount; lvcreate -s -c CHUNK, so many times; dd if=/dev/zero of=dd-file bs=1M; dd if=dd-file \
            of=/dev/null bs=1M",
    notes: "dd-file is written once before the snapshots and then overwritten in its place (conv=notrunc,fsync), so that what is \
            written is shared; dd is done by the experiment itself, as starting it takes user-mode-linux as long as a short write; the page cache is dropped before reading. dm-thin's smallest chunk is 64k. The quick form leaves \
            out some numbers of snapshots. More than 25 are made by LVM's shell, 25 commands in each, not by a program for each.",
    systems: &[System::Raw, System::Classic, System::Thin, System::Rowen],
    axis: "snapshots",
    base: &[],
    body,
    published,
    sizes,
    passes: &Pass::ALL,
    quick_passes: &Pass::ALL,
    is_long: false,
    remarks: &[],
    mib: [16, 64, 400],
    seconds: [[17.0, 98.0, 22.0], [175.0, 1050.0, 100.0]],
};

/// mkfs.xfs makes nothing smaller.
const MIN_XFS: u64 = 320;
/// Classic snapshots take their own room each, and copy each chunk once for each of them.
const MAX_CLASSIC: usize = 10;
/// More would say the same, and the record of their making is long.
const MAX_RECORDED: usize = 10;
/// More are made for one chunk size only: the systems that can have this many have no chunk size for each snapshot.
const MANY: usize = 10;
const CHUNK_OF_MANY: &str = "256k";
const MAX_THIN: usize = 100;
/// What the quick form has in user-mode-linux.
const MAX_BRIEF: usize = 2;

fn volume(form: &Form) -> u64 {
    (form.mib + 100).max(MIN_XFS)
}

/// What one classic snapshot may have to take: the file, the log, and its index.
fn reserve(form: &Form) -> u64 {
    form.mib + form.mib / 8 + 48
}

fn most(context: &Context) -> usize {
    if context.form.quick { 4 } else { MAX_CLASSIC }
}

fn sizes(form: &Form) -> Sizes {
    let classic = if form.quick { 4 } else { MAX_CLASSIC as u64 };
    let (volume, reserve) = (volume(form), reserve(form));
    let shared = volume + 3 * reserve + 128;
    Sizes {
        raw: volume + 16,
        lvm: (volume + classic * reserve + 64).max(shared),
        mirror: UNUSED,
        rowen: shared,
        rowen_mirror: UNUSED,
    }
}

fn body(context: &Context) -> Result {
    context.in_turn(|system, round, step| {
        let chunks = chunks(context, system);
        let parts = chunks.len() as f64;
        chunks.into_iter().enumerate().try_for_each(|(part, chunk)| {
            one(context, system, chunk, round, &|what, share| step(what, (part as f64 + share) / parts))
        })
    })
}

/// The raw disk has no chunks.
fn chunks(context: &Context, system: System) -> Vec<&'static str> {
    match system {
        System::Raw => vec![""],
        _ if context.is_brief() => vec![CHUNK_OF_MANY],
        // With 4k it says why there is no figure.
        System::Thin => context.pick(&["256k"], &["4k", "256k"], &["4k", "64k", "256k"]),
        _ => context.pick(&["256k"], &["4k", "256k"], &["4k", "256k"]),
    }
}

fn one(context: &Context, system: System, chunk: &str, round: usize, step: &dyn Fn(&str, f64)) -> Result {
    let form = &context.form;
    let counts = if system == System::Raw { vec![0] } else { counts(context) };
    if counts.iter().all(|count| why_not(context, system, chunk, *count).is_some()) {
        return counts
            .iter()
            .try_for_each(|count| level(context, &context.stack(system), Path::new(""), chunk, *count, round));
    }
    let stack = context.stack(system);
    stack.begin()?;
    let begun = Instant::now();
    let node = stack.origin(volume(form), chunk, volume(form) + 2 * reserve(form))?;
    let made = begun.elapsed().as_secs_f64();
    if system != System::Raw {
        // With dm-thin this makes the store too; the others have none, or have it with the group.
        context.figure(Key::new(system, "making the volume and its store", &[("chunk", chunk)], round), "s", made);
    }
    command::run("mkfs.xfs", &["-q", "-f", &text(&node)])?;
    let mount = Mount::new(&node, &context.dir.join("origin"), "noatime,nouuid")?;
    let file = mount.0.join("dd-file");
    write(&file, Bytes::Random, form.mib)?;
    for (n, count) in counts.iter().enumerate() {
        step(&format!("chunk {chunk}, {count} snapshots"), n as f64 / counts.len() as f64);
        level(context, &stack, &file, chunk, *count, round)?;
    }
    mount.unmount()
}

fn counts(context: &Context) -> Vec<usize> {
    context.pick(&[0, 1], &[0, 1, 2, 10, 100, 1000], &[0, 1, 2, 3, 4, 10, 100, 1000])
}

/// Why a system has no figure.
fn why_not(context: &Context, system: System, chunk: &str, count: usize) -> Option<&'static str> {
    match system {
        System::Thin if chunk == "4k" => Some("the smallest chunk of dm-thin is 64k"),
        System::Classic if count > most(context) => Some(super::CLASSIC_LIMIT),
        System::Thin if count > MAX_THIN => Some(super::THIN_LIMIT),
        _ if context.recording && count > MAX_RECORDED => Some("no more than 10 snapshots are recorded"),
        _ if context.form.quick && count > 100 => Some("more than 100: full form only"),
        System::Rowen if context.disks.lvm.is_some() && count > 100 => Some(
            "lvcreate takes 50 ms in user-mode-linux, a thousand of them and their removal two minutes a round; see the host's",
        ),
        _ if count > MANY && chunk != CHUNK_OF_MANY => Some("more than 10: with chunks of 256k only"),
        _ if context.is_brief() && count > MAX_BRIEF => Some("more than 2 in user-mode-linux: full form only"),
        _ => None,
    }
}

fn level(context: &Context, stack: &Stack<'_>, file: &Path, chunk: &str, count: usize, round: usize) -> Result {
    let (system, mib, number) = (stack.system, context.form.mib, count.to_string());
    let pairs = [("chunk", chunk), ("snapshots", number.as_str())];
    let key = |metric: &str| Key::new(system, metric, if system == System::Raw { &[] } else { &pairs }, round);
    if let Some(reason) = why_not(context, system, chunk, count) {
        context.not_run(key("write"), "MB/s", reason);
        context.not_run(key("read"), "MB/s", reason);
        return Ok(());
    }
    let begun = Instant::now();
    let names = stack.snapshots(0..count, chunk, reserve(&context.form))?;
    if count > 0 {
        context.figure(key("making one snapshot"), "s", begun.elapsed().as_secs_f64() / count as f64);
    }
    context.section(key("write"), Quantity::Bytes(mib * MIB), || write(file, Bytes::Zeros, mib))?;
    forget(file)?;
    context.section(key("read"), Quantity::Bytes(mib * MIB), || streams::read(file, 0, mib, Through::Cache))?;
    stack.remove_all(&names)
}

/// What `dd conv=notrunc,fsync` does.
fn write(file: &Path, bytes: Bytes, mib: u64) -> Result {
    let written = streams::write(file, bytes, mib, Through::Cache)?;
    written.sync_all().map_err(|e| format!("cannot sync {}: {e}", file.display()))
}

fn published() -> Vec<Published> {
    let store = "shared store (2010 patches)";
    let rows = [
        (store, "4k", "0", 225.0, 127.0),
        (store, "4k", "1", 18.0, 128.0),
        (store, "4k", "2", 11.0, 128.0),
        (store, "4k", "3", 11.0, 127.0),
        (store, "4k", "4", 10.0, 127.0),
        (store, "4k", "10", 9.0, 127.0),
        (store, "256k", "0", 242.0, 129.0),
        (store, "256k", "1", 38.0, 130.0),
        (store, "256k", "2", 37.0, 131.0),
        (store, "256k", "3", 36.0, 132.0),
        (store, "256k", "4", 33.0, 129.0),
        (store, "256k", "10", 31.0, 128.0),
        ("LVM classic (2010)", "256k", "1", 45.0, 127.0),
        ("LVM classic (2010)", "256k", "2", 18.0, 128.0),
        ("LVM classic (2010)", "256k", "3", 11.0, 127.0),
        ("LVM classic (2010)", "256k", "4", 8.0, 124.0),
        ("LVM classic (2010)", "256k", "10", 3.0, 126.0),
    ];
    let figure = |system, metric, parameters, figure| Published { system, metric, unit: "MB/s", parameters, figure };
    let both = |system, parameters: Vec<(&'static str, String)>, write, read| {
        [figure(system, "write", parameters.clone(), write), figure(system, "read", parameters, read)]
    };
    let rows = rows.into_iter().flat_map(|(system, chunk, count, write, read)| {
        both(system, vec![("chunk", chunk.to_owned()), ("snapshots", count.to_owned())], write, read)
    });
    rows.chain(both("the volume alone (2010)", Vec::new(), 308.0, 214.0)).collect()
}
