//! "LVM read performance during snapshots" (MySQL Performance Blog): a backup that reads a snapshot while a database writes.
//!
//! `make experiments EXPERIMENT=mylvmbackup`

use super::{Experiment, Published, Sizes, Source, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Form, Key, MIB, Quantity, forget};
use crate::in_world;
use crate::runner::Pass;
use crate::stack::{System, text};
use crate::streams::{self, Through};
use crate::writes::Writer;
use std::path::Path;

pub const EXPERIMENT: Experiment = Experiment {
    name: "mylvmbackup",
    title: "Reading a snapshot for a backup while a database writes",
    source: Some(Source {
        title: "LVM read performance during snapshots",
        author: "MySQL Performance Blog",
        year: "about 2012",
    }),
    question: "How fast is the snapshot read, and how full is its store, from the start of a backup to its end; how long does it take \
               with the writes and without; and how much of it is the compressor?",
    expected: "LVM classic: reading falls as the store fills, and the backup takes several times as long (11 h against 3 h). Rowen: \
               what the writes take of the disk, and nothing more.",
    steps: "lvcreate -s; meanwhile random writes of 16 KiB, as InnoDB makes them; the snapshot is read from end to end, 1 MiB at a \
            time, in ten parts, to nowhere and through a compressor. Then mylvmbackup itself, of a MariaDB",
    notes: "The writer is held to a rate (400 writes a second, or what the system can take), so that every system has the same to \
            do. Writer and reader share the disk: the raw row is what that alone costs. On the modelled disks the writes come as \
            often for each byte that is read as they did in the record.",
    systems: &[System::Raw, System::Classic, System::Thin, System::Rowen],
    axis: "part",
    base: &["writes", "part", "compressor"],
    body,
    published,
    sizes,
    passes: &Pass::ALL,
    quick_passes: &[Pass::Host, Pass::Inside],
    is_long: false,
    remarks: &[],
    mib: [32, 48, 384],
    seconds: [[50.0, 60.0, 15.0], [210.0, 350.0, 60.0]],
};

const PARTS: u64 = 10;
const PAGE: u64 = 16 << 10;
const RATE: u64 = 400;

fn sizes(form: &Form) -> Sizes {
    let all = 3 * form.mib + 192;
    Sizes { raw: form.mib + 16, lvm: all, mirror: UNUSED, rowen: all, rowen_mirror: UNUSED }
}

fn body(context: &Context) -> Result {
    context.in_turn(|system, round, _| one(context, system, round))?;
    if context.disks.lvm.is_none() { for_real(context) } else { Ok(()) }
}

/// mylvmbackup itself, of a MariaDB that is there.
fn for_real(context: &Context) -> Result {
    if context.form.smoke {
        return Ok(());
    }
    if let Some(why) = in_world::missing(&["mylvmbackup", "mariadbd", "mariadb-install-db", "pigz"]) {
        context.not_run(Key::new(System::Rowen, "mylvmbackup", &[], 0), "s", &why);
        return Ok(());
    }
    context.step("mylvmbackup and MariaDB", 0.9);
    in_world::run(context, "mylvmbackup", context.form.mib, &mut |words| {
        let line = in_world::parse(words).ok_or_else(|| format!("{words:?} is no figure"))?;
        in_world::figure(context, System::Rowen, &line);
        Ok(())
    })
}

fn one(context: &Context, system: System, round: usize) -> Result {
    let mib = context.form.mib;
    let stack = context.stack(system);
    stack.begin()?;
    let node = stack.origin(mib, "64k", 2 * mib + 128)?;
    streams::fill_device(&node, mib)?;
    for (compressor, writes) in [("none", "no"), ("none", "yes"), ("gzip", "no"), ("gzip", "yes")] {
        // The compressor is this machine's, and starting it takes user-mode-linux longer than reading a short part.
        let is_short = context.recording || context.is_brief();
        if is_short && compressor != "none" {
            continue;
        }
        let snapshot = match system {
            System::Raw => node.clone(),
            _ => stack.snapshot("backup", "64k", mib + mib / 8 + 16)?,
        };
        forget(&snapshot)?;
        let writer = match writes {
            "yes" => Some(Writer::start(&node, PAGE, mib * MIB, RATE)?),
            _ => None,
        };
        backup(context, &stack, &snapshot, (compressor, writes), round)?;
        writer.map_or(Ok(()), Writer::stop)?;
        if system != System::Raw {
            stack.remove("backup")?;
        }
    }
    Ok(())
}

/// Reads all of it, part by part.
fn backup(
    context: &Context,
    stack: &crate::stack::Stack<'_>,
    snapshot: &Path,
    (compressor, writes): (&str, &str),
    round: usize,
) -> Result {
    let system = stack.system;
    let part_mib = (context.form.mib / PARTS).max(1);
    let begun = std::time::Instant::now();
    for part in 0..PARTS {
        let name = format!("{} of {PARTS}", part + 1);
        let pairs = [("writes", writes), ("part", name.as_str()), ("compressor", compressor)];
        let read = || match compressor {
            "none" => streams::read(snapshot, part * part_mib, part_mib, Through::Past),
            _ => {
                let (from, skip) = (text(snapshot), part * part_mib);
                let script = format!(
                    "dd if={from} bs=1M skip={skip} count={part_mib} iflag=direct status=none | gzip -1 >/dev/null"
                );
                command::run("sh", &["-ec", &script]).map(drop)
            }
        };
        context.section(Key::new(system, "read", &pairs, round), Quantity::Bytes(part_mib * MIB), read)?;
        let is_asked = !context.is_brief() || (part + 1) % 5 == 0;
        if system != System::Raw && writes == "yes" && compressor == "none" && !context.recording && is_asked {
            let used = stack.used(if system == System::Thin { "pool" } else { "backup" })?;
            context.figure(Key::new(system, "store in use", &pairs, round), "%", used);
        }
    }
    let pairs = [("writes", writes), ("compressor", compressor)];
    context.figure(Key::new(system, "whole backup", &pairs, round), "s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn published() -> Vec<Published> {
    let row = |writes: &str, hours: f64| Published {
        system: "LVM, 600 GB of 2 TB, pbzip2",
        metric: "whole backup",
        unit: "s",
        parameters: vec![("compressor", "pbzip2".to_owned()), ("writes", writes.to_owned())],
        figure: hours * 3600.0,
    };
    vec![row("yes", 11.0), row("no", 3.0)]
}
