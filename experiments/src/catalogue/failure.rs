//! A disk of two is pulled under a database, and another one takes its place. Nobody publishes it.
//!
//! `make experiments EXPERIMENT=failure`

use super::{Experiment, Remark, Sizes, UNUSED};
use crate::command::{self, INTERRUPTED, Result};
use crate::context::{Context, Form, Key, MIB, forget};
use crate::loads::{Database, Met, Verify};
use crate::mirror::{self, Mirror};
use crate::plugs::Plugs;
use crate::runner::Pass;
use crate::stack::System;
use crate::streams::{self, Bytes, Through};
use rowen_engine::disk::PageBuf;
use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub const EXPERIMENT: Experiment = Experiment {
    name: "failure",
    title: "A disk is pulled under a database",
    source: None,
    question: "What does a database notice when one of two disks is pulled; and how long does it take, and how much is written, until \
               two disks have everything again?",
    expected: "No errors, and a pause of less than a second. md and LVM copy the whole device, Rowen the extents of its volumes, \
               btrfs what it has allocated. The kernel's own mirrors leave a disk out within milliseconds; Rowen opens the group \
               again without it.",
    steps: "a volume with two copies, half of it full; SQLite commits a row at a time with synchronous=FULL (or fio writes 4 KiB at random, \
            32 at once, and verifies them); the second disk is pulled; then vgextend and lvconvert --repair (LVM), mdadm --fail \
            --remove --add, btrfs replace, or vgreduce --removemissing, vgextend and lvconvert --repair (Rowen); at the end the first \
            disk is pulled, too, and everything is read",
    notes: "Each disk is a linear device of device-mapper over a disk of the place, and a pulled one answers everything with an error \
            (dmsetup wipe_table --nolockfs). The filesystem is ext4, but for btrfs. All limits of speed are the systems' own. A \
            pause is the longest time that one commit, or one request of fio, took. The time to full redundancy begins with the first \
            command and ends when the system says that nothing is left to copy; with Rowen when the journal has two copies, too. Copied \
            is what was written to the new disk less what was written to the remaining one in the same time, which is what the load \
            wrote. Rowen needs Linux 6.9 for this: an older kernel cannot repeat requests when the server opens the group again.",
    systems: &[System::Raid1, System::Md, System::Btrfs, System::RowenMirror],
    axis: "while",
    base: &["load", "while"],
    body,
    published: Vec::new,
    sizes,
    passes: &[Pass::Inside],
    quick_passes: &[],
    is_long: true,
    remarks: &[
        Remark {
            system: "Rowen mirror",
            metric: "longest pause",
            parameters: &[("while", "one disk is pulled")],
            why: "A server that loses a disk ends, and another one opens the group without it and has the kernel repeat the \
                  requests: that takes some tenths of a second, in which nothing is answered.",
        },
        Remark {
            system: "Rowen mirror",
            metric: "longest pause",
            parameters: &[("while", "the copy is made")],
            why: "vgreduce --removemissing has another server open the group, too.",
        },
        Remark {
            system: "Rowen mirror",
            metric: "time to full redundancy",
            parameters: &[("load", "fio verify")],
            why: "The server makes the copy in steps of at most 512 KiB, and rests between them while there are writes. Here it \
                  shares one processor with the load.",
        },
        Remark {
            system: "Rowen mirror",
            metric: "copied",
            parameters: &[("load", "database")],
            why: "Beside the volume's extents: the journal's second copy, and mirrored extents that were made ahead.",
        },
    ],
    mib: [64, 128, 512],
    seconds: [[0.0, 800.0, 0.0], [0.0, 2000.0, 0.0]],
};

const LOADS: [&str; 2] = ["database", "fio verify"];
/// After this time no copy is waited for.
const LIMIT: Duration = Duration::from_secs(120);

fn sizes(form: &Form) -> Sizes {
    // btrfs replace makes chunks read-only one after another, and a small filesystem has no room for others.
    let each = 2 * form.mib + 384;
    Sizes { raw: UNUSED, lvm: each, mirror: each, rowen: each, rowen_mirror: UNUSED }
}

fn body(context: &Context) -> Result {
    let mut number = 0;
    context.in_turn(|system, round, step| {
        for (n, load) in LOADS.into_iter().enumerate() {
            number += 1;
            let turn = Turn { context, system, round, load };
            let outcome = turn.run(number, &|what| step(&format!("{load}, {what}"), n as f64 / LOADS.len() as f64));
            match outcome {
                Err(why) if why != INTERRUPTED && command::in_time().is_ok() => {
                    context.not_run(turn.key("all", None), "", &format!("under {load}: {why}"));
                }
                outcome => outcome?,
            }
        }
        Ok(())
    })
}

/// One system under one load.
struct Turn<'a> {
    context: &'a Context,
    system: System,
    round: usize,
    load: &'static str,
}

/// What uses the filesystem.
enum Load {
    Database(Database),
    Verify(Verify),
}

impl Load {
    /// What is met while this is done, and some time before and afterwards.
    fn meets(&mut self, pause: Duration, body: impl FnOnce() -> Result) -> Result<Met> {
        match self {
            Load::Database(database) => database.begin(),
            Load::Verify(verify) => verify.begin()?,
        }
        std::thread::sleep(pause);
        body()?;
        std::thread::sleep(pause);
        match self {
            Load::Database(database) => Ok(database.end()),
            Load::Verify(verify) => verify.end(),
        }
    }
}

impl Turn<'_> {
    fn key(&self, metric: &str, state: Option<&str>) -> Key {
        let load = ("load", self.load);
        match state {
            Some(state) => Key::new(self.system, metric, &[load, ("while", state)], self.round),
            None => Key::new(self.system, metric, &[load], self.round),
        }
    }

    fn run(&self, number: usize, step: &dyn Fn(&str)) -> Result {
        let (context, mib) = (self.context, self.context.form.mib);
        let pause = Duration::from_millis(context.pick(&[500], &[2000], &[4000])[0]);
        if let Some(program) = mirror::missing(self.system) {
            return Err(format!("{program} is not installed"));
        }
        step("making a mirror");
        let plugs = Plugs::new(context)?;
        let dir = context.dir.join(format!("turn{number}"));
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let inner = context.on(mirror::disks(&plugs), dir);
        let mirror = Mirror::make(&inner, self.system, &plugs, mib)?;
        let content = mirror.at()?.join("content");
        streams::write(&content, Bytes::Random, mib / 2, Through::Past)?.sync_all().map_err(|e| e.to_string())?;
        let mut load = self.start(mirror.at()?, &inner)?;
        step("all disks are there");
        self.met("all disks are there", load.meets(pause, || Ok(()))?);
        step("one disk is pulled");
        self.met("one disk is pulled", load.meets(pause, || plugs.pull(1))?);
        step("another disk takes its place");
        let met = load.meets(pause, || self.repair(&mirror, &plugs))?;
        self.met("the copy is made", met);
        step("the other disk is pulled");
        let committed = match &mut load {
            Load::Database(database) => database.stop(),
            Load::Verify(_) => HashSet::new(),
        };
        rustix::fs::sync();
        plugs.pull(0)?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("cannot drop caches: {e}"))?;
        let lost = lost_mib(&content, mib / 2);
        context.figure(self.key("lost, when the other disk is pulled afterwards", None), "MiB", lost as f64);
        if let Load::Database(database) = &load {
            let missing = database.missing(&committed);
            let key = self.key("missing of what was committed, when the other disk is pulled afterwards", None);
            context.figure(key, "rows", missing as f64);
        }
        Ok(())
    }

    fn start(&self, at: &Path, inner: &Context) -> Result<Load> {
        if self.load == LOADS[0] {
            return Database::start(at).map(Load::Database);
        }
        let (target, mib) = (at.join("requests"), self.context.form.mib / 8);
        streams::write(&target, Bytes::Random, mib, Through::Past)?;
        forget(&target)?;
        Ok(Load::Verify(Verify::new(&target, mib, &inner.dir)))
    }

    fn met(&self, state: &str, met: Met) {
        let figure = |metric, unit, figure| self.context.figure(self.key(metric, Some(state)), unit, figure);
        figure("errors", "requests", met.errors as f64);
        figure("longest pause", "ms", met.pause);
        figure("answered", "1/s", met.rate);
    }

    /// The new disk, until two disks have everything: the time and the bytes.
    fn repair(&self, mirror: &Mirror<'_>, plugs: &Plugs) -> Result {
        let look = || Ok::<_, String>([plugs.moved(0)?, plugs.moved(2)?]);
        let (begun, before) = (Instant::now(), look()?);
        mirror.repair()?;
        let is_full = mirror.is_full_within(LIMIT)?;
        let (seconds, after) = (begun.elapsed().as_secs_f64(), look()?);
        let time = self.key("time to full redundancy", None);
        if !is_full {
            let why = format!("it was not reached within {} s", LIMIT.as_secs());
            self.context.not_run(time, "s", &why);
            return Ok(());
        }
        self.context.figure(time, "s", seconds);
        let [remaining, new] = [after[0].since(before[0]), after[1].since(before[1])];
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        let figure = |metric, bytes| self.context.figure(self.key(metric, None), "MiB", mib(bytes));
        figure("copied", new.written.saturating_sub(remaining.written));
        figure("written to the new disk", new.written);
        figure("read from the remaining disk", remaining.read);
        Ok(())
    }
}

/// How many MiB of a file are not as they were written, or cannot be read.
fn lost_mib(path: &Path, mib: u64) -> u64 {
    let Ok(file) = streams::open(path, false, Through::Past) else { return mib };
    let (mut expected, mut found) = (PageBuf::zeroed(MIB as usize), PageBuf::zeroed(MIB as usize));
    let mut is_lost = |n: u64| {
        streams::fill(&mut expected, streams::seed(n));
        file.read_exact_at(found.as_mut_slice(), n * MIB).is_err() || found.as_slice() != expected.as_slice()
    };
    (0..mib).filter(|n| is_lost(*n)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_it_was_written_is_lost() {
        let path = std::env::temp_dir().join(format!("rowen-failure-{}", std::process::id()));
        streams::write(&path, Bytes::Random, 3, Through::Cache).unwrap().sync_all().unwrap();
        assert_eq!((lost_mib(&path, 3), lost_mib(&path, 4)), (0, 1));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"x", MIB + 7).unwrap();
        assert_eq!(lost_mib(&path, 3), 1);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lost_mib(&path, 3), 3);
    }
}
