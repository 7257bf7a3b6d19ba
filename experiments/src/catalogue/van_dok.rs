//! Dennis van Dok's "LVM2 snapshot performance problems" (2007 to 2014), with John Newbigin's chunk sizes.
//!
//! `make experiments EXPERIMENT=van-dok`

use super::{Experiment, Published, Sizes, Source, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Form, Key, MIB, Quantity};
use crate::runner::Pass;
use crate::stack::{Mount, System, text};
use rowen_bench::published::{NEWBIGIN, NEWBIGIN_CHUNKS, NEWBIGIN_WITHOUT, VAN_DOK, speed};
use std::path::Path;

pub const EXPERIMENT: Experiment = Experiment {
    name: "van-dok",
    title: "One large write: without a snapshot, with one, on one",
    source: Some(Source {
        title: "LVM2 snapshot performance problems",
        author: "Dennis van Dok; chunk sizes by John Newbigin",
        year: "2007 to 2014",
    }),
    question: "How much slower is a large write when a snapshot exists, for each chunk size, on the origin and on the snapshot?",
    expected: "LVM classic: many times slower, worst with small chunks; as fast as ever once everything was copied (second \
               write). Rowen: as fast as without a snapshot, whatever the chunk size.",
    steps: "lvcreate -L 3G -n original VG; mkfs.ext2; mount; time sh -c 'dd if=/dev/zero of=moo bs=1M count=1000; sync'; \
            lvcreate -s -c CHUNK -L 2G; the same dd again",
    notes: "The file is written once before, with bytes that are not zeros, so that each timed write overwrites what is there \
            and shared. Only this filesystem is synced. The full form writes 1000 MiB as the document did, the quick form less.",
    systems: &[System::Raw, System::Classic, System::Rowen],
    axis: "chunk",
    base: &[],
    body,
    published,
    sizes,
    passes: &Pass::ALL,
    mib: [16, 64, 1000],
    seconds: [70.0, 1500.0],
};

fn sizes(form: &Form) -> Sizes {
    // The volume, what is copied of it (with its index), and room.
    let all = 4 * form.mib + 256;
    Sizes { raw: 2 * form.mib + 96, lvm: all, mirror: UNUSED, rowen: all }
}

fn body(context: &Context) -> Result {
    let chunks =
        context.pick(&["64k"], &["4k", "64k", "512k"], &["4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k"]);
    context.in_turn(|system, round, step| one(context, system, &chunks, round, step))
}

fn one(context: &Context, system: System, chunks: &[&str], round: usize, step: &dyn Fn(&str, f64)) -> Result {
    let mib = context.form.mib;
    let stack = context.stack(system);
    stack.begin()?;
    let node = stack.origin(mib + mib / 2 + 64, "64k", 0)?;
    command::run("mkfs.ext2", &["-q", "-F", &text(&node)])?;
    let mount = Mount::new(&node, &context.dir.join("origin"), "noatime")?;
    let file = mount.0.join("moo");
    let reserve = 2 * mib + 64;
    let timed = |file: &Path, snapshot: &str, chunk: Option<&str>| -> Result {
        let mut pairs = vec![("snapshot", snapshot)];
        pairs.extend(chunk.map(|chunk| ("chunk", chunk)));
        let key = Key::new(system, "write", &pairs, round);
        command::run("sync", &["-f", &text(file)])?;
        context.section(key, Quantity::Bytes(mib * MIB), || write(file, "/dev/zero", mib))
    };
    write(&file, "/dev/urandom", mib)?;
    timed(&file, "none", None)?;
    if system == System::Raw {
        return mount.unmount();
    }
    for (n, chunk) in chunks.iter().enumerate() {
        step(&format!("chunk {chunk}"), n as f64 / chunks.len() as f64);
        write(&file, "/dev/urandom", mib)?;
        stack.snapshot("before", chunk, reserve)?;
        timed(&file, "one, first write", Some(chunk))?;
        timed(&file, "one, second write", Some(chunk))?;
        stack.remove("before")?;
        let snapshot = stack.snapshot("before", chunk, reserve)?;
        let on_snapshot = Mount::new(&snapshot, &context.dir.join("snapshot"), "noatime")?;
        timed(&on_snapshot.0.join("moo"), "written to itself", Some(chunk))?;
        on_snapshot.unmount()?;
        stack.remove("before")?;
    }
    mount.unmount()
}

/// The document's command, with the source named: `dd` and `sync`.
fn write(file: &Path, from: &str, mib: u64) -> Result {
    let script = format!("dd if={from} of=\"$0\" bs=1M count={mib} conv=notrunc status=none && sync -f \"$0\"");
    command::run("sh", &["-ec", &script, &text(file)]).map(drop)
}

/// Van Dok's two machines and Newbigin's, as MB/s of the whole command with its sync.
fn published() -> Vec<Published> {
    let row = |system, snapshot: &str, chunk: Option<&str>, seconds: f64| {
        let mut parameters = vec![("snapshot", snapshot.to_owned())];
        parameters.extend(chunk.map(|chunk| ("chunk", chunk.to_owned())));
        Published { system, metric: "write", unit: "MB/s", parameters, figure: speed(seconds) }
    };
    let mut rows = Vec::new();
    for machine in VAN_DOK {
        rows.push(row(machine.name, "none", None, machine.without));
        rows.push(row(machine.name, "one, first write", None, machine.with));
    }
    rows.push(row(NEWBIGIN, "none", None, NEWBIGIN_WITHOUT));
    for chunk in NEWBIGIN_CHUNKS {
        rows.push(row(NEWBIGIN, "one, first write", Some(chunk.size), chunk.with));
        rows.push(row(NEWBIGIN, "written to itself", Some(chunk.size), chunk.on_snapshot));
    }
    rows
}
