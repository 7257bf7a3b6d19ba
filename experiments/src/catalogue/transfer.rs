//! A copy of a volume, and what changed since, by the programs with which people make them. Nobody publishes it.
//!
//! `make experiments EXPERIMENT=transfer`

use super::{Experiment, Remark, Sizes, UNUSED};
use crate::command::{self, Result};
use crate::context::{Context, Form, Key, MIB, Quantity};
use crate::files::{Loop, sparse};
use crate::runner::Pass;
use crate::stack::{Mount, Stack, System, text};
use crate::streams::{self, Bytes, Through};
use crate::writes::{self, Writes};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const EXPERIMENT: Experiment = Experiment {
    name: "transfer",
    title: "Full and incremental copies",
    source: None,
    question: "How long does a copy of a volume take, and one of what changed in 1 % of its blocks; and how many bytes are then sent?",
    expected: "A full copy is as fast as the disks for all that only copy, and slower where each byte is hashed. After a change of 1 % \
               dd, qemu-img, restic and borg read everything again; btrfs and Rowen read and send what changed. Rowen's bookmarks \
               cost no time.",
    steps: "dd bs=1M of the device into a file; qemu-img convert; restic backup --stdin; borg create; btrfs send, and send -p; rowen send --plain, \
            and -i; random writes of 4 KiB to 1 % of the blocks between the first copy and the second",
    notes: "The volume is full of bytes that cannot be compressed. Streams and repositories are files of one filesystem of the host; \
            each is synced before its time ends. restic and borg without a pause of their own between copies, borg without encryption, \
            restic with (it knows no other way). Page caches of the source are dropped before each copy. With LVM thin, thin_delta \
            lists the changed chunks, of 64 KiB at the least, and something else has to copy them: it is not here.",
    systems: &[System::Raw, System::Btrfs, System::Rowen],
    axis: "by",
    base: &[],
    body,
    published: Vec::new,
    sizes,
    passes: &[Pass::Host],
    quick_passes: &[],
    is_long: true,
    remarks: &[Remark {
        system: "Rowen",
        metric: "full copy",
        parameters: &[("by", "send")],
        why: "The server reads the snapshot through its own queues and hands the bytes to the command over a socket; the command sums \
              and writes them. Each byte is copied in memory more often than with dd.",
    }],
    mib: [16, 512, 4096],
    seconds: [[150.0, 0.0, 0.0], [400.0, 0.0, 0.0]],
};

const CHUNK: &str = "64k";
/// One block in this many changes.
const ONE_IN: u64 = 100;

fn sizes(form: &Form) -> Sizes {
    Sizes { raw: form.mib, lvm: UNUSED, mirror: UNUSED, rowen: 2 * form.mib + 192, rowen_mirror: UNUSED }
}

fn body(context: &Context) -> Result {
    context.in_turn(|system, round, _| match system {
        System::Raw => of_device(context, round),
        System::Btrfs => of_btrfs(context, round),
        _ => of_rowen(context, &context.stack(system), round),
    })
}

/// Where copies go; nothing is there before and afterwards.
struct Target(PathBuf);

impl Target {
    fn new(context: &Context) -> Result<Target> {
        let path = context.dir.join("copies");
        std::fs::create_dir_all(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Target(path))
    }

    fn file(&self, name: &str) -> String {
        text(&self.0.join(name))
    }

    /// MiB in a file or a folder.
    fn mib(&self, name: &str) -> Result<f64> {
        fn bytes(path: &Path) -> std::io::Result<u64> {
            if !path.is_dir() {
                return Ok(path.metadata()?.len());
            }
            std::fs::read_dir(path)?.map(|entry| bytes(&entry?.path())).sum()
        }
        let path = self.0.join(name);
        bytes(&path).map(|bytes| bytes as f64 / MIB as f64).map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {e}", self.0.display());
        }
    }
}

fn change(target: &Path, mib: u64, seed: u64) -> Result {
    let writes = Writes {
        target,
        block: 4096,
        is_random: true,
        through: Through::Past,
        offset: 0,
        span: mib * MIB,
        requests: (mib * MIB / 4096 / ONE_IN).max(1),
        limit: Duration::from_secs(120),
        seed,
    };
    writes::pass(&writes)?;
    crate::context::forget(target)
}

/// What a copy is called in the report.
#[derive(Clone, Copy)]
struct Copy<'a> {
    system: System,
    by: &'a str,
    round: usize,
}

impl Copy<'_> {
    fn key(&self, metric: &str) -> Key {
        Key::new(self.system, metric, &[("by", self.by)], self.round)
    }

    /// A copy of everything: its rate, and what was written.
    fn full(&self, context: &Context, script: &str, sent: impl FnOnce() -> Result<f64>) -> Result {
        context.section(self.key("full copy"), Quantity::Bytes(context.form.mib * MIB), || shell(context, script))?;
        context.figure(self.key("full copy, sent"), "MiB", sent()?);
        Ok(())
    }

    /// A copy of what changed.
    fn changed(&self, context: &Context, metric: &str, script: &str, sent: impl FnOnce() -> Result<f64>) -> Result {
        context.section(self.key(metric), Quantity::Once, || shell(context, script))?;
        context.figure(self.key(&format!("{metric}, sent")), "MiB", sent()?);
        Ok(())
    }
}

/// A line of commands that ends when what it wrote is on the disk.
fn shell(context: &Context, script: &str) -> Result {
    let mut shell = command::command("sh");
    shell.args(["-ec", &format!("{script}; sync -f {}", text(&context.dir))]);
    shell.env("ROWEN_SYSTEM_DIR", context.dir.join("etc")).env("ROWEN_RUN_DIR", context.dir.join("run"));
    shell.env("RESTIC_PASSWORD", "x").env("RESTIC_CACHE_DIR", context.dir.join("copies/restic-cache"));
    shell.env("BORG_BASE_DIR", context.dir.join("copies/borg-base"));
    command::output(shell).map(drop)
}

const CHANGED: &str = "1 % changed";
const UNCHANGED: &str = "nothing changed";

/// By programs that know a device and no more.
fn of_device(context: &Context, round: usize) -> Result {
    let (node, mib, target) = (context.disks.raw.clone(), context.form.mib, Target::new(context)?);
    let device = text(&node);
    // What it is called, the program, how it begins, what it does. Others are compared with the first of these names.
    let mut tools: Vec<(&str, &str, String, String)> = vec![(
        "dd",
        "dd",
        String::new(),
        format!("dd if={device} of={} bs=1M count={mib} status=none", target.file("dd")),
    )];
    let convert = format!("qemu-img convert -f raw -O raw {device} {}", target.file("qemu-img"));
    tools.push(("qemu-img convert", "qemu-img", String::new(), convert));
    let repository = target.file("restic");
    let backup = format!("dd if={device} bs=1M count={mib} status=none | restic -q -r {repository} backup --stdin");
    tools.push(("dd to restic backup", "restic", format!("restic -q -r {repository} init"), backup));
    let repository = target.file("borg");
    let backup = format!(
        "dd if={device} bs=1M count={mib} status=none | borg create -C none {repository}::$(date +%s%N) - 2>/dev/null"
    );
    tools.push(("dd to borg create", "borg", format!("borg init -e none {repository} 2>/dev/null"), backup));
    streams::fill_device(&node, mib)?;
    let mut there = Vec::new();
    for (by, program, begin, script) in tools {
        let copy = Copy { system: System::Raw, by, round };
        if !command::is_installed(program) {
            context.not_run(copy.key("full copy"), "MB/s", &format!("{program} is not installed"));
            continue;
        }
        if !begin.is_empty() {
            shell(context, &begin)?;
        }
        crate::context::forget(&node)?;
        copy.full(context, &script, || target.mib(program))?;
        there.push((copy, program, script));
    }
    change(&node, mib, 7 + round as u64)?;
    for (copy, program, script) in there {
        let before = target.mib(program)?;
        crate::context::forget(&node)?;
        // dd and qemu-img write everything once more; the others add to what they have.
        let is_whole = matches!(program, "dd" | "qemu-img");
        let sent = || Ok(target.mib(program)? - if is_whole { 0.0 } else { before });
        copy.changed(context, CHANGED, &script, sent)?;
    }
    Ok(())
}

fn of_btrfs(context: &Context, round: usize) -> Result {
    let (mib, target) = (context.form.mib, Target::new(context)?);
    let copy = Copy { system: System::Btrfs, by: "send", round };
    if !command::is_installed("mkfs.btrfs") {
        context.not_run(copy.key("full copy"), "MB/s", "mkfs.btrfs is not installed");
        return Ok(());
    }
    let image = context.dir.join("btrfs.image");
    sparse(&image, 2 * mib + 512)?;
    let made = (|| {
        let device = Loop::new(&image)?;
        command::run("mkfs.btrfs", &["-q", "-f", &text(&device.0)])?;
        let mount = Mount::new(&device.0, &context.dir.join("btrfs"), "noatime")?;
        let at = text(&mount.0);
        command::run("btrfs", &["subvolume", "create", &format!("{at}/v")])?;
        let file = mount.0.join("v/image");
        streams::write(&file, Bytes::Random, mib, Through::Past)?;
        let snapshot = |name: &str| {
            let done =
                command::run("btrfs", &["subvolume", "snapshot", "-r", &format!("{at}/v"), &format!("{at}/{name}")]);
            command::run("sync", &["-f", &at])?;
            crate::context::forget(&file)?;
            done.map(drop)
        };
        let send = |words: &str, name: &str| format!("btrfs -q send {words} >{}", target.file(name));
        snapshot("mon")?;
        copy.full(context, &send(&format!("{at}/mon"), "full"), || target.mib("full"))?;
        change(&file, mib, 7 + round as u64)?;
        snapshot("tue")?;
        let script = send(&format!("-p {at}/mon {at}/tue"), "changed");
        copy.changed(context, CHANGED, &script, || target.mib("changed"))?;
        snapshot("wed")?;
        let script = send(&format!("-p {at}/tue {at}/wed"), "unchanged");
        copy.changed(context, UNCHANGED, &script, || target.mib("unchanged"))?;
        mount.unmount()
    })();
    // It is scratch; what is left of it goes with its folder.
    let _ = std::fs::remove_file(&image);
    made
}

fn of_rowen(context: &Context, stack: &Stack<'_>, round: usize) -> Result {
    let (mib, target) = (context.form.mib, Target::new(context)?);
    stack.begin()?;
    let node = stack.origin(mib, CHUNK, 2 * mib)?;
    streams::fill_device(&node, mib)?;
    let group = stack.group();
    let snapshot = |name: &str| stack.snapshot(name, CHUNK, mib).map(drop);
    let rowen = text(&context.rowen);
    let send = |words: &str, name: &str| format!("{rowen} send --plain {words} >{}", target.file(name));
    let copy = Copy { system: System::Rowen, by: "send", round };
    snapshot("mon")?;
    copy.full(context, &send(&format!("{group}/mon"), "full"), || target.mib("full"))?;
    change(&node, mib, 7 + round as u64)?;
    snapshot("tue")?;
    let script = send(&format!("-i mon {group}/tue"), "changed");
    copy.changed(context, CHANGED, &script, || target.mib("changed"))?;
    snapshot("wed")?;
    let script = send(&format!("-i tue {group}/wed"), "unchanged");
    copy.changed(context, UNCHANGED, &script, || target.mib("unchanged"))?;
    // The same changes, from what is kept of the first snapshot when it is gone.
    let copy = Copy { by: "send from a bookmark", ..copy };
    stack.rowen_run(&["bookmark", &format!("{group}/mon")])?;
    stack.remove("mon")?;
    let script = send(&format!("-i mon {group}/tue"), "marked");
    copy.changed(context, CHANGED, &script, || target.mib("marked"))
}
