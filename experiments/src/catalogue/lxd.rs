//! "Selecting best backend for LXD" (Hard Drive Archive, 2016).
//!
//! `make experiments EXPERIMENT=lxd`

use super::{Experiment, Published, Sizes, Source, UNUSED};
use crate::command::Result;
use crate::context::{Context, Key};
use crate::in_world;
use crate::runner::Pass;
use crate::stack::System;

pub const EXPERIMENT: Experiment = Experiment {
    name: "lxd",
    title: "LXD's back ends",
    source: Some(Source { title: "Selecting best backend for LXD", author: "Hard Drive Archive", year: "2016" }),
    question: "How fast are a large write with sync and the document's fio line, on the host and in a container, for each back end; and \
               which functions does each have?",
    expected: "In a container as on the host, for every back end; btrfs well ahead with dd on compressible zeros or not at all; Rowen \
               through the lvm driver as a directory on the same filesystem.",
    steps: "sync; dd if=/dev/zero of=tempfile bs=1M count=1024; sync; fio --randrepeat=1 --ioengine=libaio --direct=1 --gtod_reduce=1 \
            --name=test --filename=test --bs=4k --iodepth=64 --size=1G --readwrite=randrw --rwmixread=75",
    notes: "LXD 5.0, unmodified, with its drivers dir, btrfs and lvm; Rowen answers the lvm driver's commands, its volumes thick. noatime; \
            nobarrier is no option of these filesystems any more. ZFS stands as the document gave it. The functions are what an lxc \
            command did, 1 or 0, with Rowen in a thin pool and thick. Image storage: the pool has a volume of the image. Copy on \
            write: a snapshot takes less than half of what the container has. Block based: block.filesystem is an option. \
            Container transfer: export --optimized-storage gives a stream of the back end's. Nesting: a container with \
            security.nesting can make what such a pool is made of. Storage quota: writing ends at the size that was given. Of the \
            others only that the command works is shown, not that nothing was copied.",
    systems: &[System::Directory, System::Btrfs, System::Rowen],
    axis: "filesystem",
    base: &[],
    body,
    published,
    sizes: |_| Sizes { raw: UNUSED, lvm: UNUSED, mirror: UNUSED, rowen: UNUSED, rowen_mirror: UNUSED },
    passes: &[Pass::Host],
    quick_passes: &[],
    is_long: false,
    remarks: &[],
    mib: [8, 64, 512],
    seconds: [[200.0, 0.0, 0.0], [350.0, 0.0, 0.0]],
};

fn body(context: &Context) -> Result {
    if let Some(why) = in_world::missing(&["lxd", "lxc", "busybox", "mkfs.btrfs", "rsync", "mksquashfs"]) {
        for system in EXPERIMENT.systems {
            context.not_run(Key::new(*system, "dd", &[], 0), "MB/s", &why);
        }
        return Ok(());
    }
    context.step("containers", 0.1);
    in_world::run(context, "lxd", context.form.mib, &mut |words| {
        let system = words.first().and_then(|name| System::ALL.into_iter().find(|system| system.name() == *name));
        let line = in_world::parse(words.get(1..).unwrap_or_default());
        let (Some(system), Some(line)) = (system, line) else { return Err(format!("{words:?} is no figure")) };
        in_world::figure(context, system, &line);
        Ok(())
    })
}

/// The rows whose meaning is certain; dd in MB/s, fio in ms.
fn published() -> Vec<Published> {
    let rows = [
        ("host", "directory", "xfs", 93.0, 154_046.0),
        ("host", "directory", "ext4", 92.0, 168_451.0),
        ("host", "directory", "btrfs", 89.0, 136_560.0),
        ("container", "directory", "xfs", 76.0, 170_480.0),
        ("container", "directory", "ext4", 83.0, 172_358.0),
        ("container", "btrfs", "btrfs", 87.0, 138_856.0),
    ];
    let mut all = Vec::new();
    for (place, system, filesystem, dd, fio) in rows {
        for (metric, unit, figure) in [("dd", "MB/s", dd), ("fio", "ms", fio)] {
            let parameters = vec![("filesystem", filesystem.to_owned()), ("place", place.to_owned())];
            all.push(Published { system, metric, unit, parameters, figure });
        }
    }
    for figure in [15.4, 22.2] {
        let how = if figure < 20.0 { "zfs" } else { "zfs without prefetch" };
        let parameters = vec![("filesystem", how.to_owned()), ("place", "container".to_owned())];
        all.push(Published { system: "zfs", metric: "dd", unit: "MB/s", parameters, figure });
    }
    // The first five and cloning say "optimized" or "instant" there: without copying.
    let functions = [
        ("image storage", [0.0, 1.0, 1.0, 1.0]),
        ("container creation", [0.0, 1.0, 1.0, 1.0]),
        ("snapshot creation", [0.0, 1.0, 1.0, 1.0]),
        ("image transfer", [0.0, 1.0, 0.0, 1.0]),
        ("container transfer", [0.0, 1.0, 0.0, 1.0]),
        ("copy on write", [0.0, 1.0, 1.0, 1.0]),
        ("block based", [0.0, 0.0, 1.0, 0.0]),
        ("cloning", [0.0, 1.0, 1.0, 1.0]),
        ("nesting", [1.0, 1.0, 0.0, 0.0]),
        ("restore from an older snapshot", [1.0, 1.0, 1.0, 0.0]),
        ("storage quota", [0.0, 1.0, 0.0, 1.0]),
    ];
    for (function, answers) in functions {
        for (system, figure) in ["directory", "btrfs", "lvm", "zfs"].into_iter().zip(answers) {
            let parameters = vec![("function", function.to_owned())];
            all.push(Published { system, metric: "function", unit: "1 = works", parameters, figure });
        }
    }
    all
}
