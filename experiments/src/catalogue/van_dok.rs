//! Dennis van Dok's "LVM2 snapshot performance problems" (2007 to 2014), with John Newbigin's chunk sizes.
//!
//! `make experiments EXPERIMENT=van-dok`

use super::{Experiment, Published, Remark, Sizes, Source, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Form, Key, MIB, Quantity};
use crate::published::{NEWBIGIN, NEWBIGIN_CHUNKS, NEWBIGIN_WITHOUT, VAN_DOK, speed};
use crate::runner::Pass;
use crate::stack::{Mount, Stack, System, text};
use crate::streams::{self, Bytes, Through};
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
            and shared. dd and sync are done by the experiment itself: starting them takes user-mode-linux as long as a short write. Only this filesystem is synced. It has blocks of 4 KiB, as mkfs.ext2 makes them on the document's 3 GB; \
            on volumes below 512 MB it makes blocks of 1 KiB, which stand as rows of their own. The full form writes 1000 MiB as the document did, the quick form less.",
    systems: &[System::Raw, System::Classic, System::Rowen],
    axis: "chunk",
    base: &["ext2 block"],
    body,
    published,
    sizes,
    passes: &Pass::ALL,
    quick_passes: &Pass::ALL,
    is_long: false,
    remarks: &[Remark {
        system: "Rowen",
        metric: "write",
        parameters: &[("ext2 block", "1k"), ("snapshot", "one, first write")],
        why: "Rowen maps blocks of 4 KiB. Requests that begin or end within one read the rest of it from where the snapshot has it, \
              a seek away; the next request, which has the rest of the block, is redirected once more. A \
              filesystem with blocks of 4 KiB has no such requests.",
    }],
    mib: [16, 64, 1000],
    seconds: [[11.0, 55.0, 21.0], [250.0, 675.0, 100.0]],
};

fn sizes(form: &Form) -> Sizes {
    // The volume, what is copied of it (with its index), and room.
    let all = 4 * form.mib + 256;
    Sizes { raw: 2 * form.mib + 96, lvm: all, mirror: UNUSED, rowen: all, rowen_mirror: UNUSED }
}

fn body(context: &Context) -> Result {
    let chunks = context.pick(&["64k"], &["4k", "512k"], &["4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k"]);
    context.in_turn(|system, round, step| one(context, system, &chunks, round, step))
}

fn one(context: &Context, system: System, chunks: &[&str], round: usize, step: &dyn Fn(&str, f64)) -> Result {
    let mib = context.form.mib;
    let stack = context.stack(system);
    stack.begin()?;
    let node = stack.origin(mib + mib / 2 + 64, "64k", 0)?;
    let run = Run { context, stack: &stack, node: &node, round, step };
    run.on_ext2("4k", chunks)?;
    // Not in the short form of user-mode-linux; the host and the modelled disks have it.
    if context.is_brief() && !context.recording { Ok(()) } else { run.on_ext2("1k", &["64k"]) }
}

/// The snapshot is written to, not its origin.
const TO_ITSELF: &str = "written to itself";

struct Run<'a> {
    context: &'a Context,
    stack: &'a Stack<'a>,
    node: &'a Path,
    round: usize,
    step: &'a dyn Fn(&str, f64),
}

impl Run<'_> {
    /// Without a snapshot, then with one of each chunk size. The larger blocks are those of the document; with the others only
    /// the first write is of interest.
    fn on_ext2(&self, block: &str, chunks: &[&str]) -> Result {
        let Run { context, stack, .. } = *self;
        let mib = context.form.mib;
        command::run("mkfs.ext2", &["-q", "-F", "-b", if block == "1k" { "1024" } else { "4096" }, &text(self.node)])?;
        let mount = Mount::new(self.node, &context.dir.join("origin"), "noatime")?;
        let file = mount.0.join("moo");
        let reserve = 2 * mib + 64;
        write(&file, Bytes::Random, mib)?;
        self.timed(&file, block, "none", None)?;
        if stack.system == System::Raw {
            return mount.unmount();
        }
        for (n, chunk) in chunks.iter().enumerate() {
            (self.step)(&format!("ext2 blocks of {block}, chunk {chunk}"), n as f64 / chunks.len() as f64);
            write(&file, Bytes::Random, mib)?;
            stack.snapshot("before", chunk, reserve)?;
            self.timed(&file, block, "one, first write", Some(chunk))?;
            if block == "4k" {
                self.timed(&file, block, "one, second write", Some(chunk))?;
                if context.is_brief() && !context.recording {
                    let key = self.key(block, TO_ITSELF, Some(chunk));
                    context.not_run(key, "MB/s", "full form only in user-mode-linux");
                } else {
                    stack.remove("before")?;
                    let snapshot = stack.snapshot("before", chunk, reserve)?;
                    let on_snapshot = Mount::new(&snapshot, &context.dir.join("snapshot"), "noatime")?;
                    self.timed(&on_snapshot.0.join("moo"), block, TO_ITSELF, Some(chunk))?;
                    on_snapshot.unmount()?;
                }
            }
            stack.remove("before")?;
        }
        mount.unmount()
    }

    fn key(&self, block: &str, snapshot: &str, chunk: Option<&str>) -> Key {
        let mut pairs = vec![("snapshot", snapshot)];
        pairs.extend(chunk.map(|chunk| ("chunk", chunk)));
        if block == "1k" {
            pairs.push(("ext2 block", block));
        }
        Key::new(self.stack.system, "write", &pairs, self.round)
    }

    fn timed(&self, file: &Path, block: &str, snapshot: &str, chunk: Option<&str>) -> Result {
        let mib = self.context.form.mib;
        let key = self.key(block, snapshot, chunk);
        command::run("sync", &["-f", &text(file)])?;
        self.context.section(key, Quantity::Bytes(mib * MIB), || write(file, Bytes::Zeros, mib))
    }
}

/// What `dd conv=notrunc` and `sync` do.
fn write(file: &Path, bytes: Bytes, mib: u64) -> Result {
    let written = streams::write(file, bytes, mib, Through::Cache)?;
    rustix::fs::syncfs(&written).map_err(|e| format!("cannot sync {}: {e}", file.display()))
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
